#include "tools/validate/framework_copies.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ir/dtype.h"
#include "ir/quantities.h"
#include "ir/strategy.h"
#include "models/decoder.h"
#include "tools/validate/adapters.h"
#include "tools/validate/signs.h"

namespace meshwright {
namespace {

// What its loss holds of a logit, where it is known to differ from Hugging Face's and the program's.
std::optional<double> LossBytes(const TrainingRun& run, const Framework& framework, bool modern) {
  if (framework.Is(Sign::kClassifier) || framework.Is(Sign::kLinearLoss)) return kLinearLoss;
  if (framework.Is(Sign::kTorchTune) && framework.Is(Sign::kChunkedLoss)) {
    return framework.eager ? kChunkedLoss : kCompiledChunkedLoss;
  }
  if (framework.Is(Sign::kTorchTune) || framework.Is(Sign::kEarlyTitan)) {
    return framework.eager ? kWideLoss : kCompiledWideLoss;
  }
  if (framework.Is(Sign::kLitGpt) || framework.Is(Sign::kNarrowLoss)) return kHalfLoss;
  // Liger's cross entropy without the product before it (its agent-docs/optimization/liger-kernels.md).
  if (framework.Is(Sign::kHalo) && framework.fused_loss) return kKernelOnCastLogits;
  // Unsloth's, in place, where transformers calls it (fms_acceleration_foak, cross_entropy_loss.py): its logits, cast
  // and shifted, and the gradient of those before they were, 4 each.
  const bool wide = framework.autocast || modern;
  if (framework.Is(Sign::kHuggingFace) && framework.Is(Sign::kFusedLoss) && framework.eager && wide) {
    return kKernelOnCastLogits;
  }
  const bool megatron = framework.Is(Sign::kMegatron) || framework.Is(Sign::kMegatronAttention);
  // By default its own (gpt_provider.py of v0.1.0rc4, `cross_entropy_loss_fusion`); benchmarks ask for Transformer
  // Engine's (`cross_entropy_fusion_impl`), whose gradients are float32, 2 + 4 as without.
  const bool fused = framework.Is(Sign::kFusedLoss) || framework.Is(Sign::kLibraryRecipes);
  if (megatron && fused && framework.eager) return kSplitLossBytes;
  if (megatron && !framework.fused_loss) return kVocabParallelLoss + (framework.Is(Sign::kDeepSpeed) ? kHeldLogits : 0);
  if (framework.Is(Sign::kGathersLogits) && run.degrees.pipeline == 1) {
    return (framework.eager ? kWideLoss : kCompiledWideLoss) * static_cast<double>(run.degrees.tensor);
  }
  // Its ranks gather all logits for the loss (distributed/tensor_parallel.py, `output_layouts`); with stages it is the
  // first whose memory is printed, which has none.
  if (framework.Is(Sign::kKempnerForge) && run.degrees.pipeline == 1) {
    return kHalfLoss * static_cast<double>(run.degrees.tensor);
  }
  return std::nullopt;
}

void AddLossCopies(const TrainingRun& run, const Framework& framework, bool modern, FrameworkCopies* copies) {
  if (framework.in_place_loss) copies->logits = kInPlaceLogits;
  if (framework.Is(Sign::kHuggingFace) && !framework.fused_loss) {
    const bool wide = framework.autocast || modern;
    copies->logits = wide ? kWideHuggingFaceLogits : kHuggingFaceLogits;
    if (framework.Is(Sign::kTrl) && wide) copies->logits -= kFloatLogits;
  }
  if (const std::optional<double> bytes = LossBytes(run, framework, modern)) {
    copies->logits = *bytes - (framework.fused_loss ? kFusedLossBytes : kSplitLossBytes);
  }
}

// Micro-batches of a step on a replica.
int64_t MicrobatchesOf(const TrainingRun& run) {
  return run.training.batch / std::max<int64_t>(1, run.degrees.data * run.degrees.microbatch);
}

// Until its last micro-batch, a step adds them up without splitting them.
bool SumsWhole(const TrainingRun& run, const Framework& framework) {
  return framework.Is(Sign::kSumsWhole) && MicrobatchesOf(run) > 1;
}

// Whose layers are the published ones, and whose loop is PyTorch's own, without buffers for gradients.
bool IsPyTorchLoop(const Framework& framework) {
  if (framework.Is(Sign::kDeepSpeed) || framework.Is(Sign::kTransformerEngine)) return false;
  const bool fsdp = framework.Is(Sign::kFsdp) && !framework.Is(Sign::kOtherShards);
  return fsdp || framework.Is(Sign::kLitGpt) || framework.Is(Sign::kTorchTune) || framework.Is(Sign::kHuggingFace);
}

// Since PyTorch 2.0, which came with fused attention everywhere, `zero_grad` lets go of gradients. Frozen weights have
// none.
bool FreesGradients(const TrainingRun& run, const Framework& framework) {
  const bool once = (MicrobatchesOf(run) == 1 || run.frozen) && run.degrees.pipeline == 1;
  return IsPyTorchLoop(framework) && once && (!framework.Is(Sign::kUnfused) || framework.Is(Sign::kPyTorch2));
}

// Of the optimizer's state, and of gradients beside it.
void AddStateCopies(const TrainingRun& run, const Framework& framework, FrameworkCopies* copies) {
  const bool narrow = SizeOf(run.training.dtype) < Bytes(4);
  const bool half = framework.HasNarrowStates() && !run.frozen && narrow;
  if (framework.Is(Sign::kNoUpdate)) {
    // Weights in float32, as under autocast and FSDP's mixed precision, are what stands for masters.
    const bool wide = framework.autocast || (framework.Is(Sign::kFsdp) && !framework.HasNarrowStates());
    copies->owned += kNoMoments + (narrow && !wide ? kNoMasters : 0);
    copies->fresh_gradients = FreesGradients(run, framework);
    return;
  }
  // Apex's moments are float32 whatever the weights are (apex/optimizers/fused_adam.py).
  if (half) copies->owned += kNoMasters + (framework.Is(Sign::kApexAdam) ? 0 : kHalfMoments);
  if (framework.Is(Sign::kEightBitState)) copies->owned += kEightBitMoments - (half ? kHalfMoments : 0);
  if (framework.Is(Sign::kFactoredState)) copies->owned += kNoMoments - (half ? kHalfMoments : 0);
  if (framework.Is(Sign::kNarrowMoments) && !run.frozen && !half) {
    copies->owned += kHalfMoments;
    if (framework.Is(Sign::kPrecisionAware)) copies->update = kWidenedMoments;
  }
  const bool known = framework.Is(Sign::kEightBitState) || framework.Is(Sign::kFactoredState);
  // transformers' Trainer takes PyTorch's AdamW since 4.25.
  const bool foreach =
      framework.Is(Sign::kHuggingFace) && !framework.Is(Sign::kDeepSpeed) && !framework.Is(Sign::kUnfused);
  if (foreach && !known && !run.frozen) copies->update = half ? kHalfForeachRoots : kForeachRoots;
  copies->fresh_gradients = FreesGradients(run, framework);
  copies->one_gradient = framework.Is(Sign::kUpdateInBackward) && copies->fresh_gradients;
}

// What autograd keeps of a layer, where its operators are not of one kernel each.
void AddActivationCopies(const TrainingRun& run, const Framework& framework, FrameworkCopies* copies) {
  const double keys = static_cast<double>(run.model.kv_heads) / static_cast<double>(run.model.heads);
  const double joined = kJoinedQueries + kJoinedKeys * keys;
  // Its operators are Hugging Face's GPT-2's.
  const bool wide_steps = framework.Is(Sign::kMinGpt) && framework.Is(Sign::kSaysAutocast);
  const bool default_dropout = framework.Is(Sign::kDefaultDropout);
  if (framework.Is(Sign::kSdpa)) copies->keys = kRepeatedKeys * (1 - keys);
  if (framework.Is(Sign::kLitGpt) && keys == 1) copies->keys = joined;
  // Its tables of memory are of 2023 and of 2024.
  if (framework.Is(Sign::kLitGpt) && run.quantized) {
    copies->norms += kQuantizedNorms;
    copies->keys += kQuantizedHeads;
    copies->gates += kQuantizedGates;
  }
  if (run.model.norm == Norm::kRmsNorm && framework.eager && !framework.fused_norms) {
    const bool published = IsPyTorchLoop(framework) || framework.Is(Sign::kDeepSpeed);
    (published ? copies->norms : copies->keys) += published ? kSplitNorms : joined;
  }
  if (run.model.qk_norm) {
    const bool split = IsPyTorchLoop(framework) && framework.eager && !framework.fused_norms;
    copies->keys += (split ? kSplitQueryNorms * (1 + keys) : 0) - kNormedValues * keys;
  }
  if (IsGated(run.model.activation) && framework.eager && framework.split_gates) {
    copies->gates += kSplitGates;
  }
  if (framework.wide_residuals) {
    copies->norms = kWideResiduals;
  } else if ((framework.dropout && !framework.Is(Sign::kHuggingFace) && !wide_steps) || default_dropout) {
    copies->norms += kDropoutMasks;
    // Fused attention draws its mask again.
    const bool again = run.recompute == Recompute::kSelective || run.recompute_ops.count("attention") > 0;
    const bool kept = !framework.fused_attention && !again;
    if (kept) copies->scores = framework.autocast ? kBertScores : kDropoutScores;
  }
  const bool tensorflow = framework.Is(Sign::kTensorFlow) && !framework.Is(Sign::kKeras);
  if (tensorflow && framework.Is(Sign::kBert) && !framework.fused_attention) {
    const auto width = static_cast<double>(SizeOf(run.training.dtype).raw());
    copies->norms = kTensorFlowMasks * width;
    copies->scores = kTensorFlowScores * width;
    copies->gates = kTensorFlowGelu * width;
  }
  if (run.narrow && framework.Is(Sign::kTransformerEngine) && !framework.Is(Sign::kNemo)) {
    // A layer that is run again keeps its input.
    const bool again = run.recompute == Recompute::kFull || run.recompute == Recompute::kLayer;
    if (!again) copies->activations = kFloat8Activations;
    const double copy = KeepsTransposes(run.cluster.device) ? kFloat8CopyAndTranspose : kFloat8Copy;
    if (!run.training.float8_parameters) copies->weights = copy;
  }
  if (wide_steps) copies->activations = kHuggingFaceActivationShare;
  if (!framework.Is(Sign::kHuggingFace) || !framework.Is(Sign::kUnfused)) return;
  if (SizeOf(run.training.dtype) == Bytes(4)) {
    copies->norms += kDropoutMasks;
    copies->scores = kWideDropoutScores;
  } else if (framework.Is(Sign::kBert)) {
    copies->norms += framework.autocast ? kBertActivations : kDropoutMasks;
    copies->scores = framework.autocast ? kBertScores : kDropoutScores;
  } else if (framework.Is(Sign::kOpt) && !framework.autocast) {
    copies->norms += kDropoutMasks;
    copies->scores = run.training.dtype == DType::kFloat16 ? kKeptOptScores : kKeptNarrowOptScores;
  } else if (run.recompute == Recompute::kFull || run.recompute == Recompute::kLayer) {
    copies->scores = kScoresAgain;
  } else if (!run.frozen && !framework.Is(Sign::kFsdp) && !framework.Is(Sign::kZero3)) {
    copies->activations = kHuggingFaceActivationShare;
  }
}

// Of FSDP's parts of weights and gradients, where all of them train in 16 bits.
void AddShardCopies(const TrainingRun& run, const Framework& framework, FrameworkCopies* copies) {
  if (!framework.HasNarrowStates()) {
    // Which it casts to 8 bits before it gathers them (torchao's float8/fsdp_utils.py, fsdp_pre_all_gather).
    const bool narrow = run.training.float8_parameters && !KeepsTransposes(run.cluster.device);
    copies->owned += narrow ? kNarrowShardsAreMasters : kShardsAreMasters;
  }
  // accelerate reduces in the type that it computes in.
  copies->narrow_passing = framework.Is(Sign::kHuggingFace);
  // Fabric and accelerate add up whole gradients until the last micro-batch (FSDP's `no_sync`); what ranks own of
  // them comes behind. FSDP2 adds them up in the type that it reduces in (_fsdp_param.py,
  // to_accumulated_grad_if_needed), which for both is that of the weights.
  if (SumsWhole(run, framework)) {
    const bool wide = framework.Is(Sign::kFsdp2) && !framework.Is(Sign::kLitGpt) && !framework.Is(Sign::kAccelerate);
    copies->sum = static_cast<double>(SizeOf(wide ? run.gradient_dtype : run.training.dtype).raw());
    copies->owned -= static_cast<double>(SizeOf(run.gradient_dtype).raw());
  } else if (framework.Is(Sign::kWideReduction) && !framework.keeps_whole) {
    // What a rank keeps of them has the type of the parameter again (foreach_reduce in _fsdp_collectives.py).
    copies->owned -= static_cast<double>((SizeOf(run.gradient_dtype) - SizeOf(run.training.dtype)).raw());
  }
  // Without resharding after the forward pass, FSDP's ZeRO-2, a rank has its shards beside what it gathered.
  if (framework.Is(Sign::kZero2)) {
    copies->shards = true;
    // Stages keep whole gradients until the last micro-batch (Framework::keeps_whole).
    copies->pieces = !framework.keeps_whole;
    if (copies->pieces) copies->whole -= static_cast<double>(SizeOf(run.gradient_dtype).raw());
  }
}

// Of adapters and of the frozen weights beside them.
void AddFrozenCopies(const TrainingRun& run, const Framework& framework, bool modern, FrameworkCopies* copies) {
  if (run.frozen) copies->adapted = AdaptersKeep(framework, run.model);
  const bool narrow_adapters =
      framework.Is(Sign::kLitGpt) || framework.Is(Sign::kTorchTune) || framework.Is(Sign::kNarrowStates);
  copies->adapters = narrow_adapters ? kHalfAdapterBytes : kAdapterBytes;
  // Fabric's FSDP wraps blocks with their adapters in them (finetune/lora.py), whose flat parameters have gradients of
  // all that is in them, "equivalent to not freezing" (PyTorch's documentation of FullyShardedDataParallel,
  // `use_orig_params`).
  if (run.frozen && framework.Is(Sign::kLitGpt) && framework.Is(Sign::kFsdp)) {
    const double ranks = SumsWhole(run, framework) ? 1 : static_cast<double>(run.degrees.data);
    copies->flat_gradients = static_cast<double>(SizeOf(run.training.dtype).raw()) / ranks;
  }
  copies->wide_rest = run.quantized && framework.Is(Sign::kWideRest);
  if (copies->wide_rest) {
    copies->activations = kWideActivations;
    if (!framework.fused_loss && !LossBytes(run, framework, modern).has_value()) {
      copies->logits = kWideRestLogits - (framework.Is(Sign::kTrl) ? kFloatLogits : 0);
    }
  }
  copies->host_weights = framework.Is(Sign::kOffloadsParameters);
}

int WorkspacesOf(const Framework& framework) {
  const bool other = framework.Is(Sign::kTensorFlow) || framework.Is(Sign::kKeras) || framework.Is(Sign::kOtherShards);
  if (other || !framework.caching) return 0;
  return framework.Is(Sign::kTransformerEngine) ? kTransformerEngineWorkspaces : kPyTorchWorkspaces;
}

}  // namespace

FrameworkCopies CopiesOf(const TrainingRun& run, const Framework& framework, bool modern) {
  FrameworkCopies copies;
  AddActivationCopies(run, framework, &copies);
  AddLossCopies(run, framework, modern, &copies);
  AddStateCopies(run, framework, &copies);
  AddFrozenCopies(run, framework, modern, &copies);
  // FSDP ignores experts that are over ranks (its agent-docs/parallelism/expert-parallelism.md).
  copies.whole_experts = framework.Is(Sign::kHalo) && run.degrees.expert > 1;
  copies.weighs_inside = framework.weighs_inside;
  copies.scans_again = framework.scans_again;
  copies.whole_table = framework.Is(Sign::kKempnerForge);  // distributed/tensor_parallel.py
  copies.caches = framework.caching;
  copies.workspaces = WorkspacesOf(framework);
  copies.gathered_inputs = framework.keeps_gathered;
  copies.offloads = framework.Is(Sign::kOffloadsActivations);
  // Accelerate's default beside FSDP2 (ParallelismConfig, cp_comm_strategy: allgather), on which TRL's trainers stand.
  copies.gathered_keys = framework.Is(Sign::kTrl) && framework.Is(Sign::kFsdp2);
  const bool fsdp = framework.Is(Sign::kFsdp), shared = run.degrees.data > 1;
  const bool narrow = SizeOf(run.training.dtype) == Bytes(2);
  if (fsdp && !run.frozen && shared && narrow) AddShardCopies(run, framework, &copies);
  if (framework.Is(Sign::kDeepSpeed) && framework.Is(Sign::kZero3) && !run.frozen && narrow) {
    copies.update = kFloat32GradientCopy + kFlatGradientCopy;
    copies.updated_at_once = kDeepSpeedGroupElements;
  }
  if (run.frozen || fsdp || framework.Is(Sign::kZero3)) return copies;
  // Whose ZeRO is the same in bfloat16.
  const bool stages_of_zero =
      framework.Is(Sign::kDeepSpeed) && framework.Is(Sign::kZeroStage) && !framework.Is(Sign::kBf16Optimizer) && narrow;
  if (framework.autocast && narrow) {
    copies.whole = kAutocastCopies + (shared ? kAutocastBuckets : 0);
    copies.owned += kAutocastMasters;
  } else if (framework.Is(Sign::kNemo) || framework.Is(Sign::kPrecisionAware)) {
    if (framework.remainders) copies.owned += kParameterRemainders;
    if (framework.Is(Sign::kNemo) && run.narrow) copies.activations = kFloat8Activations;
  } else if ((run.training.dtype == DType::kFloat16 && !framework.HasNarrowStates()) || stages_of_zero) {
    const bool flat = framework.Is(Sign::kZeroStage);
    (flat ? copies.owned : copies.update) += kFloat32GradientCopy;
    const bool megatron = framework.Is(Sign::kMegatron) || framework.Is(Sign::kMegatronAttention);
    if (megatron && framework.Is(Sign::kUnfused) && framework.Is(Sign::kUnsharded) && !framework.Is(Sign::kDeepSpeed)) {
      copies.update += kFlatGradientCopy;
    }
    if (flat) {
      copies.owned += kFlatGradientCopy;
      copies.buckets = Bytes(static_cast<int64_t>(2 * 2 * kDeepSpeedBucketElements));
    }
  } else if (shared && framework.Is(Sign::kDdp) && IsPyTorchLoop(framework)) {
    copies.whole = static_cast<double>(SizeOf(run.training.dtype).raw());  // buckets
  }
  if (framework.Is(Sign::kNanotron)) {
    copies.turned_heads = kTurnedHeads;
    copies.gathers_lists = true;
    copies.node_group = true;  // its bandwidth is measured (trainer.py, measure_bandwidth)
    // Without ZeRO it takes DistributedDataParallel (trainer.py, make_ddp).
    if (framework.Is(Sign::kUnsharded) && run.degrees.data > 1) copies.whole = kBucketGradientCopy;
  }
  // ZeRO-2 reduces gradients as they come and keeps the rank's pieces.
  if (run.degrees.data > 1 && framework.Is(Sign::kZero2)) {
    copies.whole -= static_cast<double>(SizeOf(run.gradient_dtype).raw());
    copies.pieces = true;
  }
  return copies;
}

}  // namespace meshwright
