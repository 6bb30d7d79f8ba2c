#include "tools/validate/releases.h"

#include <cstdint>

#include "ir/strategy.h"
#include "tools/validate/eager_kernels.h"

namespace meshwright {
namespace {

using enum Sign;

// From the first to the last of them, as Signs counts them.
enum class CountedBy : uint8_t { kNothing, kContainer, kDeepSpeed, kMegatronCore };
struct Releases {
  CountedBy by = CountedBy::kNothing;
  int64_t first = 0, last = 0;
};
constexpr Releases Before(int64_t container) { return {CountedBy::kContainer, 0, container - 1}; }
constexpr Releases Since(int64_t container) { return {CountedBy::kContainer, container, kNewest}; }
constexpr Releases DeepSpeed(int64_t first, int64_t last) { return {CountedBy::kDeepSpeed, first, last}; }
constexpr Releases MegatronCoreSince(int64_t minor) { return {CountedBy::kMegatronCore, minor, kNewest}; }

// What is done where a training row has all of the signs `when`, none of `unless`, and is of one of these releases.
struct Release {
  SignSet when, unless;
  void (*does)(Framework* f);
  Releases of = {};  // all
};

EagerBytes Twice(const EagerBytes& bytes) { return {2 * bytes.forward, 2 * bytes.backward}; }

void MegatronBuckets(Framework* f) {
  f->bucket = 40'000'000;
  f->bucket_of_replica = 1'000'000;
}
void NemoBuckets(int64_t megabytes, Framework* f) {
  f->bucket = megabytes * (1 << 20) / 2;
  f->bucket_of_replica = 0;
}

constexpr Release kReleases[] = {
    // --- optimizers, and how fast operators are issued ---------------------------------------------------------------
    // PyTorch's default, and what transformers' Trainer takes since its release 4.25; DeepSpeed brings its own, in one
    // kernel, as apex does and as torchtune's recipes (`fused: True`) and KempnerForge (config/optimizer.py) ask for.
    {{kNarrowStates}, {kDeepSpeed}, [](Framework* f) { f->updates = kListsOfTensors; }},
    {{kHuggingFace}, {kDeepSpeed}, [](Framework* f) { f->updates = kListsOfTensors; }},
    {{kHuggingFace, kUnfused},
     {kDeepSpeed},
     [](Framework* f) {
       f->updates = kTensorByTensor;
       f->update_steps = kStepsByTensor;
     }},
    {{kHuggingFace, kFactoredState},
     {kDeepSpeed},
     [](Framework* f) {
       f->updates = kFactored;
       f->update_steps = kFactoredSteps;
     }},
    {{kHuggingFace, kEightBitState}, {kDeepSpeed}, [](Framework* f) { f->update_steps = 0; }},
    {{kTorchTune}, {}, [](Framework* f) { f->updates = kOneKernel; }},
    {{kKempnerForge}, {}, [](Framework* f) { f->updates = kOneKernel; }},
    {{kFusedAdam},
     {kDeepSpeed},
     [](Framework* f) {
       f->updates = kOneKernel;
       f->update_steps = 0;
     }},
    {{kEager, kHuggingFace}, {}, [](Framework* f) { f->kernel = kHuggingFaceOperator; }},

    // --- what a kernel is --------------------------------------------------------------------------------------------
    {{kEager}, {}, [](Framework* f) { f->eager = true; }},
    {{kUnfused}, {}, [](Framework* f) { f->fused_attention = false; }},
    {{kAttentionKnown}, {}, [](Framework* f) { f->names_attention = true; }},
    // Caps of scores, which PyTorch's attention has not: litgpt and transformers go step by step (model.py,
    // modeling_gemma2.py).
    {{kGemma2, kSdpa}, {}, [](Framework* f) { f->fused_attention = false; }},
    // Keras went through scores before its release 3.7 (layers/attention/multi_head_attention.py).
    {{kKeras, kAttentionOpen}, {}, [](Framework* f) { f->fused_attention = false; }},
    // Frameworks that issue kernel by kernel have a kernel for each step of the loss, too, but for these: MPT's default
    // loss is flash-attn's (modeling_mpt.py); FlashAttention's training code brings fused kernels for all of a layer
    // and for the loss (its training/README.md); vTrain's profile has PyTorch's loss on the 16-bit logits
    // (src/model/gpt_modeling.py, src/trainer.py).
    {{kEager}, {kFoundry, kFlashCode, kVTrainProfile, kFusedLoss}, [](Framework* f) { f->fused_loss = false; }},
    // Transformer Engine has a kernel for a norm, for rotary positions and for a gate; PyTorch's eager mode has none.
    // nanotron takes flash-attn's for the first two (nanotron/models/llama.py).
    {{kEager}, {kTransformerEngine, kFlashCode, kNanotron}, [](Framework* f) { f->fused_norms = false; }},
    {{kEager}, {kTransformerEngine, kFlashCode, kFusedGates}, [](Framework* f) { f->split_gates = true; }},
    {{kNanotron}, {kFusedGates}, [](Framework* f) { f->split_gates = true; }},
    {{kNanotron, kEager}, {}, [](Framework* f) { f->host.gates = kStepsOfGates; }},
    // Operators of a layer by the names that models/decoder.cc gives them.
    {{kFusedNorms},
     {},
     [](Framework* f) {
       f->fused_ops.insert({"norm1", "norm2", "norm", "norm1_after", "norm2_after", "qk_norm", "gated_norm"});
     }},
    {{kFusedRotary}, {}, [](Framework* f) { f->fused_ops.insert("rotary"); }},
    {{kFusedGates}, {}, [](Framework* f) { f->fused_ops.insert("activation"); }},
    {{kFlashCode}, {}, [](Framework* f) { f->in_place_loss = f->wide_residuals = true; }},
    {{kLlmC},
     {},
     [](Framework* f) {
       f->in_place_loss = true;
       f->caching = false;
     }},
    // Composer's metrics.
    {{kFoundry, kEager}, {}, [](Framework* f) { f->host.logits = kTrainMetrics; }},
    // Transformer Engine's products add to the gradient themselves. So does Megatron-LM since it has the choice of
    // sequence parallelism (3.0).
    {{kEager, kSequenceParallelOpen}, {kTransformerEngine}, [](Framework* f) { f->host.adds_gradients = true; }},
    // PyTorch's embeddings, as all of these have them.
    {{kEager}, {}, [](Framework* f) { f->host.whole_tables = true; }},
    // "For fine-tuning, we use SQuAD, and the inputs are packed to 4096 tokens" (NeMo-Framework-Launcher's and NeMo's
    // tables); kernels get where each example begins (gpt_sft_dataset.py, `cu_seqlens`). Not so in MLPerf's LoRA, whose
    // rows are of GovReport (`packed_sequence_return_cu_seqlen: False` in NVIDIA's submissions since v4.0).
    {{kNemo, kFineTuning}, {kMlPerf}, [](Framework* f) { f->packs_examples = true; }},
    {{kPackedDocuments}, {}, [](Framework* f) { f->packs_examples = true; }},
    {{kOldSteps, kMegatronAttention}, {}, [](Framework* f) { f->misaligned_attention = kEarlyMisalignedAttention; }},

    // --- which attention ---------------------------------------------------------------------------------------------
    {{kFlash3}, {kUnfused}, [](Framework* f) { f->attention = "flash3"; }},
    {{kCudnn}, {kUnfused}, [](Framework* f) { f->attention = "flash3"; }},
    // Transformer Engine takes cuDNN's from Hopper on, unless it is told not to (dot_product_attention/utils.py,
    // get_attention_backend; attention.py before).
    {{kTransformerEngine}, {kUnfused, kOlderThanHopper, kSaysFused}, [](Framework* f) { f->attention = "flash3"; }},
    {{kFoundry}, {kUnfused}, [](Framework* f) { f->attention = "triton"; }},
    {{kFlash1}, {kUnfused}, [](Framework* f) { f->attention = "flash1"; }},
    // Before July 2023 there was no other; FlashAttention-2's paper calls it by the bare name beside its own.
    {{kFlashCode}, {kUnfused, kTwoOrThree}, [](Framework* f) { f->attention = "flash1"; }},
    {{kFlashUnnumbered, kFlash2Paper}, {kUnfused}, [](Framework* f) { f->attention = "flash1"; }},

    // --- types of numbers --------------------------------------------------------------------------------------------
    // Hugging Face's models and FlashAttention's code train under autocast; DeepSpeed holds the weights in 16 bits
    // itself (its documentation of `bf16` and `fp16`). FSDP2 casts and copies what it gathers.
    {{kAutocast}, {}, [](Framework* f) { f->autocast = true; }},
    // Weights that are frozen are loaded in 16 bits.
    {{kAutocast}, {kAdapters}, [](Framework* f) { f->host.parameters = kAutocastParameters; }},
    {{kDeepSpeed, kZero2},
     {},
     [](Framework* f) {
       f->host.parameters = kZero2Parameters;
       f->host.reduces_each = true;
     }},
    {{kDeepSpeed, kZero3}, {kSaysUnfused}, [](Framework* f) { f->host.parameters = kZero3Parameters; }},
    {{kPyTorchFsdp}, {}, [](Framework* f) { f->host.parameters = kFsdp1WideParameters; }},
    {{kPyTorchFsdp, kNarrowReduction}, {}, [](Framework* f) { f->host.parameters = kFsdp1Parameters; }},
    {{kFsdp2}, {}, [](Framework* f) { f->host.parameters = kFsdp2Parameters; }},
    // FSDP that is given no type of parameters leaves them to autocast, as Composer's DEFAULT did before 0.13.2 of March
    // 2023 (trainer/mosaic_fsdp.py, get_mixed_precision: `reduce_dtype` alone).
    {{kPyTorchFsdp, kWideGathers},
     {},
     [](Framework* f) {
       f->host.gathered_share = 2;
       f->host.parameters = kFsdp1AutocastParameters;
       f->host.norms = kWideNorms;
     }},
    // Experts' products in float8: Megatron-Core 0.9 refuses them, 0.10 of February 2025 has them where Transformer
    // Engine is 1.11 or later (transformer_config.py); containers of NVIDIA's from 25.02 on bring both.
    {{kNamesContainer}, {}, [](Framework* f) { f->float8_experts = true; }, Since(2502)},
    {{kGroupedExperts}, {}, [](Framework* f) { f->float8_experts = true; }},
    // On Hopper, too (DeepSeek-V3's report, section 3.3); who has Transformer Engine only names its schedule.
    {{kDeepSeek}, {kTransformerEngine}, [](Framework* f) { f->float8_experts = true; }},

    // --- vocabulary and checkpoints ----------------------------------------------------------------------------------
    // vTrain's times of one node are sums of a profile (docs/accuracy.md), which its own layers fit: a vocabulary that
    // is cut over ranks and not padded (src/model/gpt_modeling.py).
    {{kVTrainProfile}, {}, [](Framework* f) { f->pads_vocabulary = false; }},
    {{kHuggingFace}, {}, [](Framework* f) { f->pads_vocabulary = false; }},
    // LitGPT's heads are a product of their own (scripts/convert_hf_checkpoint.py copies what is tied), but where
    // pretraining is told otherwise (args.py, `tie_embeddings`).
    {{kLitGpt}, {}, [](Framework* f) { f->unties_head = true; }},
    {{kUntiedHead}, {}, [](Framework* f) { f->unties_head = true; }},
    // llm-foundry's tables of A100 are of May 2023, with the image of PyTorch 1.13.1 (sweep.sh at the commit, 300cc5c),
    // and of bf16; that of the 80 GB card was measured again in October 2023 with 2.1.0 (sweep.sh, b2a43a1), in
    // amp_bf16. Checkpoints stop early since 2.1 (pytorch pull request 96866).
    {{kFoundry, kOlderThanHopper}, {kAmpBf16}, [](Framework* f) { f->checkpoints_stop = false; }},
    {{kFoundry, kWideGathers}, {}, [](Framework* f) { f->checkpoints_stop = false; }},
    // All of their configurations checkpoint activations: GPT-NeoX's configs/, metaseq's launcher/opt_baselines.py;
    // ModelCenter's layers are BMTrain's checkpoint blocks (layer/blocks.py and model/).
    {{kNeox}, {}, [](Framework* f) { f->recomputes = true; }},
    {{kMetaseq}, {}, [](Framework* f) { f->recomputes = true; }},
    {{kBmTrain}, {}, [](Framework* f) { f->recomputes = true; }},
    // Its scripts of fine-tuning under FSDP (finetune/full.py, lora_legacy.py, `activation_checkpointing_policy`).
    {{kLitGpt, kFsdp, kFineTuning}, {}, [](Framework* f) { f->recomputes = true; }},
    // Unless told not to (model/model_utils/checkpointing.py, `disable_gradient_checkpointing`).
    {{kLlamaFactory}, {}, [](Framework* f) { f->recomputes = true; }},
    // nanotron kept what tensor parallelism gathered until July 2024 (`tp_recompute_allgather`).
    {{kNanotron, kNanotron2023}, {}, [](Framework* f) { f->keeps_gathered = true; }},
    // Megatron-Core's state spaces (ssm/mamba_mixer.py, `use_mem_eff_path`; mamba_split_conv1d_scan_combined).
    {{kSaysMegatronCore}, {}, [](Framework* f) { f->scans_again = true; }},
    {{kNemo}, {}, [](Framework* f) { f->scans_again = true; }},

    // Megatron-LM adds up the gradients of a tied embedding over the first and the last stage (finalize_model_grads.py,
    // _allreduce_word_embedding_grads), nanotron (tied_parameters.py, sync_tied_weights_gradients) and DeepSpeed's
    // pipeline (pipe/module.py, allreduce_tied_weight_gradients) do the same.
    {{}, {}, [](Framework* f) { f->host.updates_shared = true; }},

    // --- collectives -------------------------------------------------------------------------------------------------
    // Megatron-Core's buckets grow with the replicas, so that latency does not bind (`bucket_size`,
    // distributed_data_parallel_config.py). Before NeMo took its data parallelism, in 2.0, it had 50 to 400 MB of bf16,
    // most 125 (NeMo-Framework-Launcher, conf/training, `bucket_cap_mb`), MLPerf's 100 and from 4.0 on 200
    // (conf/optim/distributed_fused_adam.yaml and config_common.sh of NVIDIA's submissions).
    {{kTransformerEngine}, {}, MegatronBuckets},
    {{kMegatron}, {kOlderThanHopper}, MegatronBuckets},
    {{kNemo}, {}, [](Framework* f) { NemoBuckets(125, f); }, Before(2412)},
    {{kNemo, kMlPerf}, {}, [](Framework* f) { NemoBuckets(200, f); }, Before(2412)},
    {{kNemo, kMlPerf}, {}, [](Framework* f) { NemoBuckets(100, f); }, Before(2404)},
    // Parameters in float8 for the products in it (`FP8_PARAMS`, `FP8_PARAM_GATHER` there).
    {{kNemo, kFloat8, kMlPerf}, {}, [](Framework* f) { f->host.gathered_share = 0.5; }, Since(2404)},
    // nanotron's benchmarks ran PyTorch 2.1 (run_multinode.sh), which brings NCCL 2.18.
    {{kNanotron, kNanotronBenchmarks}, {}, [](Framework* f) { f->untuned_nccl = true; }},
    {{kNanotron}, {}, [](Framework* f) { f->early_nccl = f->host.reduces_whole = true; }},
    {{kOlderThanHopper}, {}, [](Framework* f) { f->early_nccl = true; }},
    // nanotron's ZeRO-1 gathers all parameters into a list (distributed.py, all_gather_coalesced); its gradients are
    // reduced whole, whatever the optimizer (optim/gradient_accumulator.py), as above.
    {{kNanotron, kZero1}, {}, [](Framework* f) { f->host.copies_pieces = true; }},
    // DeepSpeed reduces beside the backward pass where it is told to (its documentation of `overlap_comm`: false);
    // Megatron-LM could from August 2023 on, and does where it is told to (`--overlap-grad-reduce`, then
    // `--overlap-param-gather`). Both gather at the end of the update (stage_1_and_2.py and bf16_optimizer.py, step;
    // distrib_optimizer.py).
    {{kDeepSpeed, kZero1}, {kGradientOverlap}, [](Framework* f) { f->reduces_afterwards = true; }},
    {{kDeepSpeed, kZero2}, {kGradientOverlap}, [](Framework* f) { f->reduces_afterwards = true; }},
    {{kBf16Optimizer}, {}, [](Framework* f) { f->reduces_afterwards = true; }},
    {{kDeepSpeed, kZero1}, {}, [](Framework* f) { f->host.serial_gathers = true; }},
    {{kNeox, kZero1}, {}, [](Framework* f) { f->host.serial_gathers = true; }},
    {{kDeepSpeed, kZero2}, {}, [](Framework* f) { f->host.serial_gathers = true; }},
    {{kBf16Optimizer}, {}, [](Framework* f) { f->host.serial_gathers = true; }},
    {{kMegatron, kOlderThanHopper},
     {kUnfused, kTransformerEngine, kGradientOverlap, kFsdp, kZero3},
     [](Framework* f) { f->reduces_afterwards = f->host.serial_gathers = true; }},
    {{kSerialGathers}, {}, [](Framework* f) { f->host.serial_gathers = true; }},
    // NeMo's recipes for tensor parallelism switch it on (`tp_comm_overlap`; NeMo-Framework-Launcher, conf/training).
    {{kNemo}, {}, [](Framework* f) { f->host.overlaps_products = true; }},
    {{kAsyncTensor}, {}, [](Framework* f) { f->host.overlaps_products = true; }},
    // Megatron-Bridge's switch it off for NVFP4 (v0.4.2, scripts/performance/configs/llama/*_pretrain.py).
    {{kNemo, kFloat4}, {}, [](Framework* f) { f->host.overlaps_products = false; }},
    {{kSerialTensor}, {}, [](Framework* f) { f->host.overlaps_products = false; }},
    // A trace of KempnerForge's has 12 all-gathers and 8 reduce-scatters for a layer and micro-batch, recompute's
    // included (benchmarks/profiling/13b_24gpu_profiling.md), and 24 of PyTorch's `cat`: functional collectives copy
    // where the dimension is not the first (torch/distributed/_functional_collectives.py).
    {{kGathersEach}, {}, [](Framework* f) { f->host.gathers_each = f->host.copies_gathered = true; }},
    // The same of torchtitan up to 0.2.2, which gathers once for all products of an input (models/llama3/infra/
    // parallelize.py, PrepareModuleInput) and splits rows' tokens, the second dimension. Since August 2026 tokens of all
    // rows are one dimension, the first (its pull 4121).
    {{kEarlyTitan}, {kAsyncTensor}, [](Framework* f) { f->host.copies_gathered = true; }},
    // BigScience's runs of BLOOM on Jean Zay hung without it (train/tr11-176B-ml/chronicles-prequel.md and its .slurm).
    {{kBloom, kJeanZay, kEager}, {}, [](Framework* f) { f->host.launch_blocking = f->host.serial = true; }},
    {{kLaunchBlocking, kEager}, {}, [](Framework* f) { f->host.launch_blocking = f->host.serial = true; }},
    // DeepSpeed's ZeRO-3 of 2021, told by attention that says it is not fused, waited for the device before each call
    // and gathered each tensor where a layer needed it, into a list (partition_parameters.py, `_allgather_param`).
    {{kZero3, kSaysUnfused},
     {kFsdp},
     [](Framework* f) { f->early_zero3 = f->calls_each_tensor = f->host.serial = f->host.copies_pieces = true; }},
    // PEFT makes each adapter a unit of FSDP's own, inside its layer's (`fsdp_auto_wrap_policy`, which Transformers'
    // Trainer takes by itself, and AnswerDotAI's train.py, `get_wrapping_policy`), and FSDP1 starts a gather when all
    // but the last two units have run (_limiter_utils.py, `_max_num_inflight_all_gathers`). The two are adapters: where
    // the last product has one, the next layer is gathered when the one before it has run; else beside its MLP.
    // In the backward pass the unit before starts a gather (`_prefetch_handle`), which is the adapter of queries. Kernels
    // of whole adapters take these out of FSDP (fms_acceleration_foak, lora_adapters_switch_ddp_from_fsdp).
    {{kHuggingFace, kAdapters, kPyTorchFsdp},
     {kFusedAdapters},
     [](Framework* f) { f->host.serial_regathers = true; }},
    {{kHuggingFace, kAdapters, kPyTorchFsdp, kAllAdapted},
     {kFusedAdapters},
     [](Framework* f) { f->host.serial = true; }},
    // InternEvo's ZeRO gives whole tensors to ranks, which reduce to and broadcast from them.
    // Its configurations overlap the first, and not the second (configs/7B_sft.py, `overlap_sync_param`).
    {{kInternLm, kZero1},
     {kZeroGroups},
     [](Framework* f) { f->calls_each_tensor = f->host.serial_gathers = true; }},
    // DeepSpeed's pipeline sends a part from each rank (pipe/engine.py, `is_pipe_partitioned`); so did Megatron-LM
    // before it had sequence parallelism (Narayanan et al. 2021, section 4.1).
    {{kDeepSpeedPipeline}, {}, [](Framework* f) { f->host.scatters_transfers = true; }},
    {{kBloom, kJeanZay}, {}, [](Framework* f) { f->host.scatters_transfers = true; }},
    {{kUnfused, kMegatronAttention}, {}, [](Framework* f) { f->host.scatters_transfers = true; }},
    // DeepSpeed's ZeRO-1 sums gradients on all ranks since 0.5 of July 2021: up to 0.12 of January 2024 it ignores
    // `contiguous_gradients`, and what is left all-reduces buckets (runtime/engine.py, _configure_zero_optimizer;
    // zero/stage_1_and_2.py, buffered_reduce_fallback; pull requests 1246 and 4887); since then it takes the way of
    // ZeRO-2, which all-reduces buckets of several ranks, too (`use_multi_rank_bucket_allreduce`,
    // allreduce_and_scatter). GPT-NeoX goes with a fork of 0.3.15, which scatters.
    {{kDeepSpeed, kZero1}, {kNeox}, [](Framework* f) { f->host.reduces_whole = true; }, DeepSpeed(5, kNewest)},
    {{kBloom, kJeanZay, kZero1}, {kNeox}, [](Framework* f) { f->host.reduces_whole = true; }, DeepSpeed(5, kNewest)},
    {{kDeepSpeed, kZero2}, {kNeox}, [](Framework* f) { f->host.reduces_whole = true; }, DeepSpeed(13, kNewest)},

    // Its optimizer for bfloat16 (runtime/bf16_optimizer.py): gradients are added up in float32, and summed whole
    // behind the last micro-batch; each rank updates a part and all gather what it holds.
    {{kBf16Optimizer},
     {},
     [](Framework* f) {
       f->host.reduces_whole = f->host.adds_gradients = true;
       f->host.parameters = kBf16OptimizerParameters;
     }},

    // --- experts -----------------------------------------------------------------------------------------------------
    // A token goes once to each node, or to each rank of one (DeepEP's README; Megatron-LM's flex dispatcher).
    {{kOnePerNode},
     {},
     [](Framework* f) {
       f->dispatcher = Dispatcher::kPerNode;
       f->host.experts.joins = true;
     }},
    // Megatron-Core's all-gather of tokens (moe_token_dispatcher_type "allgather"). One to each rank that has an expert
    // of the token is nearest: nearly all have one, where a token has more experts than there are ranks.
    {{kToEachRank}, {}, [](Framework* f) { f->dispatcher = Dispatcher::kPerRank; }},
    // Of Megatron-Core since its 0.12 (transformer/moe/experts.py, `permuted_probs`), which NeMo's container 25.04 has.
    {{kSaysMegatronCore}, {kOlderThanHopper}, [](Framework* f) { f->weighs_inside = true; }, MegatronCoreSince(12)},
    {{kNemo}, {}, [](Framework* f) { f->weighs_inside = true; }, Since(2504)},
    {{kExpertOverlap}, {}, [](Framework* f) { f->host.experts.overlaps = true; }},
    // Multiprocessors that they take (transformer_config.py of Megatron-Core 0.14, `moe_deepep_num_sms` and
    // `moe_hybridep_num_sms`; Megatron-Bridge's perf_recipes/_common.py and scripts/performance/utils/overrides.py).
    {{kDeepEp}, {}, [](Framework* f) { f->host.experts.dispatch_blocks = 20; }},
    {{kHybridEp}, {}, [](Framework* f) { f->host.experts.dispatch_blocks = 16; }},
    {{kHybridEp, kNemo}, {}, [](Framework* f) { f->host.experts.dispatch_blocks = 32; }},
    {{kPartialGraphs}, {}, [](Framework* f) { f->host.experts.graphs = true; }},
    {{kWholeGraphs}, {}, [](Framework* f) { f->whole_graphs = true; }},
    // PyTorch's stages add gradients up and reduce them behind the last micro-batch, whose parameters alone are let go
    // of (distributed/pipelining/stage.py, backward_maybe_with_nosync). AutoModel's experts do so without stages, too
    // (moe/fsdp_mixin.py, prepare_for_grad_accumulation).
    {{kFsdp2, kStages}, {}, [](Framework* f) { f->keeps_whole = true; }},
    {{kSaysAutoModel, kFsdp2}, {}, [](Framework* f) { f->keeps_whole = true; }},
    // AutoModel's benchmarks give a token the experts behind those of the token before it (moe/layers.py,
    // FakeBalancedGate).
    {{kAutoModel}, {}, [](Framework* f) { f->neighbour_experts = true; }},
    {{kExpertSteps},
     {},
     [](Framework* f) {
       ExpertPace& experts = f->host.experts;
       experts.dispatch = kPlainDispatch;
       experts.combine = kPlainCombine;
       experts.launches = kExpertLaunches;
       experts.waits = true;
     }},
    {{kExpertSteps, kTransformerEngine},
     {},
     [](Framework* f) {
       ExpertPace& experts = f->host.experts;
       experts.dispatch = kMegatronDispatch;
       experts.combine = kMegatronCombine;
       experts.product = kOperator;
     }},
    {{kExpertSteps, kTransformerEngine, kGrace},
     {},
     [](Framework* f) { f->host.experts.product = kOperatorOnGrace; }},
    {{kExpertSteps, kTransformerEngine, kRouterGraphs},
     {},
     [](Framework* f) { f->host.experts.dispatch = kBehindRouterGraph; }},
    {{kUnfusedPermutes}, {}, [](Framework* f) { f->host.experts.results = kUnfusedPermutation; }},
    {{kExpertLoop},
     {kSlicedExperts},
     [](Framework* f) {
       ExpertPace& experts = f->host.experts;
       experts.launches = kExpertLaunches;
       experts.product = experts.step = kOperator;
       experts.waits = true;
       experts.results = kIndexAddResults;
       experts.result_steps = kLoopSteps;
     }},
    {{kSlicedExperts},
     {},
     [](Framework* f) {
       ExpertPace& experts = f->host.experts;
       experts.launches = kExpertLaunches;
       experts.product = kOperator;
       experts.waits = true;
       experts.whole_gradients = f->autocast ? kWideWholeGradients : kWholeGradients;
     }},
    {{kIndexAdd}, {}, [](Framework* f) { f->host.experts.results = kIndexAddResults; }},
    // GPT-OSS has biases of experts, in float32 where the dispatcher's weights are.
    {{kExpertSteps, kTransformerEngine, kGptOss},
     {},
     [](Framework* f) {
       ExpertPace& experts = f->host.experts;
       experts.results = kBiasedResults;
       experts.result_steps = kBiasedSteps;
       experts.step = kOperator;
     }},
    {{kExpertSteps, kTransformerEngine, kGptOss, kOnePerNode},
     {},
     [](Framework* f) { f->host.experts.results = kBiasedResultsWide; }},
    {{kExpertSteps, kTransformerEngine, kGptOss, kGrace},
     {},
     [](Framework* f) { f->host.experts.step = kOperatorOnGrace; }},

    // --- before attention was fused ----------------------------------------------------------------------------------
    // GPT and BERT of that time drop a tenth; Llama's kind and GPT-NeoX's models nothing (their configurations).
    {{kOldSteps}, {kModernFamily, kNeoxModel}, [](Framework* f) { f->dropout = true; }},
    {{kOldSteps},
     {},
     [](Framework* f) {
       f->host.queries = kMegatronQueries;
       f->host.norms = kMegatronNorms;
     }},
    {{kOldSteps, kLongRows}, {}, [](Framework* f) { f->host.scores = kEagerScores; }},
    {{kOldSteps, kHuggingFace},
     {kUnfusedOperators},
     [](Framework* f) {
       f->host.scores = kEagerScores;
       f->host.queries = kHuggingFaceQueries;
       f->host.activations = kHuggingFaceActivations;
       f->host.norms = kHuggingFaceNorms;
     }},
    // Where nothing is cast, all is of the type of the weights (the same code).
    {{kOldSteps, kHuggingFace},
     {kUnfusedOperators, kAutocast},
     [](Framework* f) {
       f->host.scores = kMinGptScores;
       f->host.activations = kMinGptActivations;
       f->host.norms = kDropoutNorms;
     }},
    {{kOldSteps, kHuggingFace, kBert},
     {kUnfusedOperators, kAutocast},
     [](Framework* f) { f->host.scores = kNvidiaBertScores; }},
    {{kOldSteps, kHuggingFace, kOpt}, {kUnfusedOperators}, [](Framework* f) { f->host.activations = EagerBytes(); }},
    {{kOldSteps, kHuggingFace, kOpt},
     {kUnfusedOperators, kAutocast, kFloat32},
     [](Framework* f) { f->host.scores = kOptScores; }},
    {{kOldSteps, kHuggingFace, kWideScores}, {kUnfusedOperators}, [](Framework* f) { f->host.scores = kEagerScores; }},
    {{kOldSteps, kHuggingFace, kFloat32},
     {kUnfusedOperators},
     [](Framework* f) {
       for (EagerBytes* bytes : {&f->host.scores, &f->host.queries, &f->host.activations}) *bytes = Twice(*bytes);
       f->host.norms = kWideDropoutNorms;
     }},
    // GELU of BERT and StarCoder is one kernel (modeling_bert.py, `hidden_act`; configuration_gpt_bigcode.py).
    {{kOldSteps, kHuggingFace, kBert}, {kUnfusedOperators}, [](Framework* f) { f->host.activations = EagerBytes(); }},
    {{kOldSteps, kHuggingFace, kBigCode},
     {kUnfusedOperators},
     [](Framework* f) { f->host.activations = EagerBytes(); }},
    // What is around attention stays as it was with attention of one kernel.
    {{kEager, kHuggingFace, kDropsTenth},
     {kUnfused},
     [](Framework* f) {
       f->dropout = true;
       f->host.norms = kDropoutNorms;
     }},
    {{kEager, kHuggingFace, kDropsTenth, kAutocast},
     {kUnfused},
     [](Framework* f) { f->host.norms = kHuggingFaceNorms; }},
    // FlashAttention's comparisons ran it with one more option.
    {{kOldSteps, kHuggingFace, kFlashSource},
     {kUnfusedOperators},
     [](Framework* f) { f->host.scores = kEagerScoresByLayer; }},
    // Megatron-LM without its fusion (Narayanan et al. 2021, section 4.2).
    {{kOldSteps, kUnfusedOperators},
     {},
     [](Framework* f) {
       f->host.scores = kEagerScores;
       f->host.activations = kUnfusedBias;
       f->host.norms = kUnfusedNorms;
     }},

    {{kOldSteps, kNvidiaBert},
     {},
     [](Framework* f) {
       f->host.scores = kNvidiaBertScores;
       f->host.queries = kModelCenterQueries;
       f->host.norms = kUnfusedNorms;
     }},

    {{kOldSteps, kMinGpt},
     {},
     [](Framework* f) {
       f->host.scores = kMinGptScores;
       f->host.queries = kHuggingFaceQueries;
       f->host.activations = kMinGptActivations;
       f->host.norms = kDropoutNorms;
     }},
    // FSDP's policy widens nothing, but what autocast runs in float32 it does there, too.
    {{kOldSteps, kMinGpt, kSaysAutocast},
     {},
     [](Framework* f) {
       f->host.scores = kEagerScores;
       f->host.activations = kHuggingFaceActivations;
       f->host.norms = kHuggingFaceNorms;
     }},

    // ModelCenter drops nothing unless told to (model/config/).
    {{kOldSteps, kBmTrain},
     {},
     [](Framework* f) {
       f->dropout = false;
       f->host.scores = kModelCenterScores;
       f->host.queries = kModelCenterQueries;
       f->host.activations = f->host.norms = kUnfusedBias;
     }},

    // Megatron-LM drops a tenth unless told otherwise (arguments.py), with FlashAttention as without.
    {{kEager, kMegatron},
     {kUnfused, kTransformerEngine, kModernFamily},
     [](Framework* f) {
       f->dropout = true;
       f->host.queries = kMegatronFlashQueries;
       f->host.norms = kMegatronNorms;
     }},

    {{kEager, kModalities}, {}, [](Framework* f) { f->host.queries = kModalitiesQueries; }},

    // --- NeMo's recipes ----------------------------------------------------------------------------------------------
    {{kRecipeSteps, kModernFamily}, {}, [](Framework* f) { f->cuts_queries = true; }},
    {{kRecipeSteps, kNemotron}, {}, [](Framework* f) { f->cuts_queries = true; }},
    // GPT-3 drops a tenth of scores and of what is added to the residual stream (conf/training/gpt3 of NeMo-Framework-
    // Launcher, all releases); the sum's kernel writes a mask, and backward there is one more. MLPerf's drops nothing
    // (conf/custom.yaml of NVIDIA's submissions).
    {{kRecipeSteps, kGpt},
     {kModernFamily, kMlPerf},
     [](Framework* f) {
       f->dropout = true;
       f->host.norms = kMegatronNorms;
     }},
    // Llama's gates were in steps, and Nemotron's and Mixtral's gradients added by kernels of their own (conf/training
    // at cb3482d0, 81b75a7c and 3499f38e: `bias_activation_fusion`, `gradient_accumulation_fusion`).
    {{kRecipeSteps, kModernFamily},
     {},
     [](Framework* f) {
       f->split_gates = true;
       f->host.gates = kStepsOfGates;
     },
     Before(2403)},
    {{kRecipeSteps, kNemotron}, {}, [](Framework* f) { f->host.adds_gradients = true; }, Before(2405)},
    {{kRecipeSteps, kMixtral}, {}, [](Framework* f) { f->host.adds_gradients = true; }, Before(2407)},
    // NeMo's pull request 8963 compiled Nemotron's activation in April 2024 (modules/common/megatron/utils.py at
    // v1.23.0; without it at v2.0.0.rc0.beta of May, with it at v2.0.0rc0 of June).
    {{kRecipeSteps, kNemotron}, {}, [](Framework* f) { f->host.activations = kSquaredRelu; }, Before(2407)},
    // Gradients were held and reduced in float32, the optimizer's default (megatron_base_model.py, setup_optimization),
    // until scripts asked for bf16 (examples/training at 81b75a7c; Mixtral's conf/training of 24.07); those of Nemotron
    // never did.
    {{kNemo}, {}, [](Framework* f) { f->narrow_gradients = true; }},
    {{kRecipeSteps}, {}, [](Framework* f) { f->narrow_gradients = false; }, Before(2403)},
    {{kRecipeSteps, kMixtral}, {}, [](Framework* f) { f->narrow_gradients = false; }, Before(2407)},
    {{kRecipeSteps, kNemotron}, {}, [](Framework* f) { f->narrow_gradients = false; }, Before(2409)},

    // Apex's distributed Adam and Megatron-Core's precision-aware optimizer (`store_param_remainders`). NeMo's
    // benchmarks have the latter in bf16 alone (scripts/performance/helpers.py at v2.4.0; Megatron-Bridge's
    // utils/overrides.py at v0.3.0), its recipes with gradients in float32 not at all, and Megatron-Core holds masters
    // itself beside float8 with current scaling (optimizer_config.py, use_precision_aware_optimizer_no_fp8_or_ds_fp8).
    {{kNemo}, {kLibraryRecipes}, [](Framework* f) { f->remainders = true; }},
    {{kNemo, kFloat8}, {}, [](Framework* f) { f->remainders = false; }, Since(2507)},
    {{kNemo, kFloat4}, {}, [](Framework* f) { f->remainders = false; }},
    {{kPrecisionAware}, {}, [](Framework* f) { f->remainders = true; }},
    {{kPrecisionAware, kCurrentScaling}, {}, [](Framework* f) { f->remainders = false; }},
    // Transformer Engine's since its 2.14 (commit 523801d), which NeMo's container 26.04 has.
    {{kTransformerEngine, kFloat4}, {}, [](Framework* f) { f->joint_float4 = true; }, Since(2604)},

    // Whatever the framework's default.
    {{kNoDropout}, {}, [](Framework* f) { f->dropout = false; }},
};

bool Covers(const Releases& releases, const Signs& signs) {
  const auto within = [&](int64_t release) { return release >= releases.first && release <= releases.last; };
  switch (releases.by) {
    case CountedBy::kContainer:
      return within(signs.container);
    case CountedBy::kDeepSpeed:
      return within(signs.deepspeed);
    case CountedBy::kMegatronCore:
      return within(signs.megatron_core);
    case CountedBy::kNothing:
      break;
  }
  return true;
}

}  // namespace

void ApplyReleases(const Signs& signs, Framework* framework) {
  for (const Release& row : kReleases) {
    if (signs.set.HasAll(row.when) && !signs.set.HasAny(row.unless) && Covers(row.of, signs)) row.does(framework);
  }
}

}  // namespace meshwright
