#include "tools/validate/signs.h"

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "costmodel/library.h"
#include "ir/cluster.h"
#include "tools/validate/gpu_type.h"
#include "tools/validate/row_model.h"
#include "tools/validate/sharding_text.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

using enum Sign;

struct Words {
  Sign sign;
  absl::string_view columns;  // separated by spaces
  absl::string_view words;    // separated by '|': "=word" is the whole cell, "^word" its beginning
};

// Frameworks and what else has a name: words of their own (SaysName); "*" stands where a longer word may go on, as
// "DeepSpeedPlugin" and "DPOTrainer" do.
constexpr Words kNames[] = {
    {kSaysNemo, "other_opts", "nemo"},
    {kNemoContainer, "other_opts", "nemo container"},
    {kSaysBridge, "other_opts", "megatron-bridge|megatron bridge|megatronbridge"},
    {kTransformerEngine, "other_opts", "transformer engine|transformer-engine|transformer_engine|transformerengine"},
    {kSaysMegatronCore, "other_opts", "megatron-core|megatron core|megatroncore|mcore"},
    {kMegatron, "other_opts", "megatron*"},
    {kNanotron, "model other_opts", "nanotron"},
    {kDeepSpeed, "zero_fsdp other_opts", "*deepspeed*"},
    {kDeepSpeedPipeline, "other_opts", "*deepspeed*"},
    {kNeox, "other_opts", "*neox"},
    {kMetaseq, "other_opts", "metaseq"},
    {kBmTrain, "other_opts", "bmtrain|modelcenter"},
    {kHuggingFace, "other_opts attention", "huggingface|hugging face|sfttrainer|fms-hf-tuning|fms_hf_tuning"},
    {kLlmC, "other_opts attention recompute", "llm.c"},
    {kAutoModel, "source_ref", "automodel"},
    {kSaysAutoModel, "other_opts", "automodel"},
    {kAccelerate, "other_opts", "accelerate"},
    {kSaysTrainer, "other_opts", "*trainer"},
    {kLitGpt, "other_opts", "litgpt|lit-gpt"},
    {kTorchTune, "other_opts", "torchtune"},
    {kTorchTitan, "other_opts", "torchtitan"},
    {kEarlyTitan, "other_opts", "torchtitan 0.1*|torchtitan 0.2*"},
    {kTorchAo, "source_ref other_opts", "torchao|torchtitan|pytorch/ao"},
    {kLlamaFactory, "source_ref other_opts", "llama-factory|llamafactory|llama factory"},
    {kKempnerForge, "source_ref model other_opts", "kempnerforge"},
    {kTensorFlow, "other_opts", "tensorflow"},
    {kTrl, "other_opts", "trl"},
    {kFurtherTokens, "model other_opts", "mtp"},
    {kSaysHalo, "source_ref other_opts", "whitecircle/halo"},
    {kModalities, "model other_opts", "modalities"},
    {kMlPerf, "source_ref other_opts", "mlperf"},
    // Its own, whose schedule and products others name (DeepSeek-V3's report, sections 3.2 and 3.3).
    {kDeepSeek, "other_opts", "dualpipe|deepgemm|hai-llm"},
    {kNvidiaBert, "other_opts", "deeplearningexamples"},
    {kMinGpt, "other_opts", "mingpt"},
    {kKeras, "other_opts", "keras"},
    {kLamb, "other_opts", "lamb|fusedlamb"},
    {kMuon, "other_opts", "muon|dist_muon"},
    {kFusedAdam, "other_opts", "fused adam*|fusedadam*|adamw_torch_fused|adamw_apex_fused"},
    {kApexAdam, "other_opts", "apex fusedadam*|apex fused adam*|adamw_apex_fused"},
    // Its Triton kernels (unsloth/kernels: rms_layernorm, rope_embedding, swiglu, cross_entropy_loss, fast_lora).
    {kFusedNorms, "other_opts", "unsloth"},
    {kFusedRotary, "other_opts", "unsloth"},
    {kFusedGates, "other_opts", "unsloth"},
    {kFusedLoss, "other_opts", "unsloth"},
    {kFusedAdapters, "other_opts", "unsloth"},
    {kExpertKernels, "other_opts", "scattermoe|megablocks|sonicmoe|sonic-moe|tutel"},
    {kExpertKernels, "other_opts", "transformers 5|transformers v5"},
};

constexpr Words kWords[] = {
    // Tables whose attention or type is Transformer Engine's are NeMo's and Megatron-Bridge's; what others say of it is
    // of its kernels alone. Megatron-Core takes them by default (`transformer_impl`).
    {kNemo, "attention", "te/|transformer engine|transformerengine"},
    {kNemo, "dtype", "transformer engine|transformerengine"},
    {kTransformerEngine, "attention", "(te)"},
    {kMegatronAttention, "attention", "megatron"},
    // Its logs of 2023 and its benchmarks, whose rows of A100 are from before July 2024.
    {kNanotron2023, "source_ref", "old_bench"},
    {kNanotronBenchmarks, "source_ref", "bench"},
    {kBfloat16, "dtype", "bf16|bfloat16"},
    {kNeoxModel, "model other_opts", "neox|pythia"},
    {kBloom, "model", "bloom"},
    {kJeanZay, "interconnect", "jean zay"},
    // llm-foundry's own layers; its benchmarks ran FlashAttention in Triton (submit_benchmarks.py, --attn_impl).
    {kFoundry, "attention", "mpt attn_impl"},
    {kAmpBf16, "dtype", "amp_bf16"},
    {kFlashRepo, "other_opts", "flashattention (this repo)"},
    {kFlashSource, "source_ref", "flash-attention"},
    {kFlashPapers, "source_ref", "flash-attention training/configs|flashattention-2 paper"},
    {kVTrainProfile, "source_ref", "vtrain data/ground_truth_single"},
    {kInternLm, "model", "internlm"},
    {kGpt, "model", "gpt"},
    {kGptOss, "model", "gpt oss|gpt-oss|gpt_oss"},
    {kNemotron, "model", "nemotron"},
    {kMixtral, "model", "mixtral"},
    {kFineTuning, "other_opts", "sft|fine-tun|finetun"},
    {kAllAdapted, "other_opts", "all-linear|all linear"},
    {kAttentionAdapted, "other_opts", "queries, keys, values and output|q_proj k_proj v_proj o_proj|q, k, v, o"},
    {kAttentionAdapted, "other_opts", "q_proj, k_proj, v_proj, o_proj|qkvo"},
    // QwenLM/Qwen's finetune.py, `lora_target_modules`; its layers have one product of queries, keys and values.
    {kAllAdapted, "source_ref", "qwenlm/qwen "},
    {kJoinedQueries, "source_ref", "qwenlm/qwen "},
    {kBert, "model", "bert"},
    {kOpt, "model", "^opt"},
    {kWideScores, "model", "gpt-neo |gpt neo |gpt-neo-|gpt-j|gptj|gpt_neo_"},
    {kBigCode, "model", "starcoder|santacoder|bigcode"},
    // Hugging Face's configurations of these (configuration_gpt2.py, `resid_pdrop`, and so on).
    {kDropsTenth, "model", "gpt2|gpt-2|gpt 2|bert|starcoder|santacoder|bigcode|^opt"},
    {kClassifier, "model", "classifier|classification"},
    {kGemma2, "model", "=gemma 2|=gemma-2|=gemma2|gemma 2 |gemma2 |gemma2-|gemma2_|gemma-2-|gemma_2_"},
    {kNormedFamily, "model", "qwen3|qwen 3|qwen-3|olmo2|olmo-2|olmo 2|olmo3|olmo-3|olmo 3|gemma3|gemma-3|gemma 3"},
    {kNoQueryNorms, "other_opts", "no norms of queries|without norms of queries"},
    {kSumsWhole, "zero_fsdp other_opts", "no_sync|no-sync|no sync|requires_gradient_sync"},
    {kGrace, "gpu_type", "gb200|gb300|gh200|a4x"},
    {kNotCompiled, "compile", "=|^no|eager|without|=false|=off|=0|=n|disabled|=\xE2\x9C\x97"},
    {kFloat8, "dtype", "fp8|float8"},
    {kFloat4, "dtype", "fp4|float4"},
    {kFloat32, "dtype", "^fp32|^float32|^tf32|^tfloat32"},
    {kCudaGraphs, "other_opts", "cuda graph|cudagraph"},
    {kWholeGraphs, "other_opts", "full iteration graphs"},
    {kPartialGraphs, "other_opts", "partial graphs of attention"},
    {kUnfusedOperators, "other_opts", "without operator fusion|no operator fusion"},
    // DeepSpeed's examples hold Megatron-LM of 2019, which fuses nothing, and 1.1.5, which fuses what it is told to.
    {kUnfusedOperators, "other_opts", "deepspeedexamples|deepspeed examples|megatron-lm v1|megatron-lm-v1"},
    {kSequenceParallelOpen, "seq_parallel", "="},
    {kEightBitState, "other_opts", "8-bit adam|8bit adam|adamw8bit|adam8bit|adamw_8bit|adamw_bnb_8bit|8-bit optim"},
    {kFactoredState, "other_opts", "adafactor"},
    {kNoDropout, "other_opts", "no dropout|without dropout"},
    {kFusedLoss, "other_opts", "sum of the logits"},
    {kNoUpdate, "other_opts", "without an optimizer"},
    {kUpdateInBackward, "other_opts", "optimizer in backward|optimizer_in_bwd|optimizer step into backward"},
    {kOffloadsActivations, "other_opts", "activation offload|activation_offload|offloads activations"},
    {kOffloadsActivations, "other_opts", "checkpoints offloaded|offloaded checkpoints"},
    {kOffloadsParameters, "other_opts", "parameters kept in host memory|offloads parameters"},
    {kUntiedHead, "other_opts", "untied head|untie-embeddings|untie_embeddings"},
    // PEFT's prepare_model_for_kbit_training (peft/utils/other.py), which TRL calls (sft_trainer.py).
    {kWideRest, "other_opts", "all else in float32|prepared for k-bit training"},
    {kNarrowLoss, "other_opts", "loss of 16-bit logits"},
    {kChunkedLoss, "other_opts", "chunked cross|chunked loss|chunked ce|chunkedoutputloss"},
    {kGathersLogits, "other_opts", "logits gathered|gathers logits|gathered logits"},
    {kLinearLoss, "other_opts", "linear cross|linearcross|linear_cross|cut cross"},
    // What PyTorch calls asynchronous tensor parallelism.
    {kAsyncTensor, "other_opts", "async tp|async_tp|asynctp|tp_comm_overlap|userbuffers"},
    {kSerialTensor, "other_opts", "no overlap of tensor|without overlap of tensor|no tp overlap|without tp overlap"},
    {kSerialGathers, "other_opts", "no overlap of gathers|without overlap of gathers"},
    {kStageOverlap, "other_opts", "overlap-p2p|overlap_p2p|overlap p2p|p2p overlap"},
    {kLaunchBlocking, "other_opts", "cuda_launch_blocking"},
    {kUnsharded, "zero_fsdp", "=no|none|zero-0|ddp"},
    {kDdp, "zero_fsdp", "ddp"},
    {kZero, "zero_fsdp", "zero"},
    {kZeroStage, "zero_fsdp", "zero-"},
    {kZero1, "zero_fsdp", "zero-1"},
    {kZero2, "zero_fsdp", "zero-2"},
    {kZero3, "zero_fsdp", "zero-3"},
    {kZeroGroups, "zero_fsdp", "groups|hybrid"},
    {kFsdp, "zero_fsdp", "fsdp|hsdp"},
    {kHsdp, "zero_fsdp", "hsdp"},
    {kFsdp2, "zero_fsdp", "fsdp2"},
    // XLA and Megatron cut whole tensors and buffers of their own.
    {kOtherShards, "compile other_opts", "xla|jax"},
    {kOtherShards, "zero_fsdp", "megatron"},
    {kNarrowReduction, "other_opts", "precision=pure|precision: pure|pure fp16|pure float16"},
    {kWideGathers, "other_opts", "gathered in float32|gathers in float32|gathered in fp32"},
    {kFusedAdapters, "other_opts", "kernels of lora|fused lora"},
    // Lightning's word for its type, torchtune's, and others'.
    {kNarrowStates, "dtype other_opts",
     "pure bf16|pure bfloat16|bf16-true|bf16_true|fp16-true|without mixed precision"},
    {kNarrowStates, "dtype other_opts", "full bf16|true bf16|loaded in bf16"},
    {kSaysNarrowStates, "dtype other_opts", "state in bf16|states in bf16"},
    {kNarrowStates, "other_opts", "weights in fp16|weights in float16|weights in bf16"},
    // Loads weights in the type that it trains in (swift/llm/utils/argument.py, select_dtype).
    {kNarrowStates, "other_opts", "ms-swift|swift sft"},
    // Modalities' names of its policies (running_env/env_utils.py).
    {kNarrowReduction, "dtype", "bf_16|bfsixteen"},
    // transformers' `attn_implementation`, since its 4.36 of December 2023.
    {kPyTorch2, "attention", "=eager"},
    {kPyTorch2, "other_opts", "pytorch 2."},
    {kUnfusedPermutes, "other_opts", "unfused permutation"},
    // `topk_method: noaux_tc` in their config.json.
    {kBiasBalanced, "model", "deepseek v3|deepseek-v3|deepseekv3|deepseek-r1|deepseek r1|moonlight|kimi"},
    {kAttentionOpen, "attention", "="},
    {kAttentionKnown, "attention", "=|flash|fa1|fa2|fa3|sdpa|scaled_dot|scaled dot|fused|cudnn|te|transformer|triton"},
    {kAttentionKnown, "attention", "xformers|memory|standard|eager|naive|pytorch|torch|megatron|math|core"},
    {kSdpa, "attention", "sdpa|scaled_dot|scaled dot"},
    {kSaysFused, "attention", "flash|fa1|fa2|fa3|sdpa|scaled_dot|scaled dot|triton|xformers|memory"},
    {kSaysUnfused, "attention", "unfused|pre-flash|no flash|without flash|no cudnn|standard|eager|naive"},
    {kSaysUnfused, "attention",
     "w/o flash|=math|sdpa math|math backend|softmax kernel|megatron kernel|=no|=none|=false"},
    {kSaysUnfused, "attention", "=torch|=pytorch|=megatron"},
    {kCudnn, "attention", "cudnn"},
    {kFlashUnnumbered, "attention", "=flashattention"},
    {kFlash2Paper, "source_ref", "-2 paper"},
    {kTwoOrThree, "attention", "2|3"},
};

// Kernels that a row says it has, of those that eager frameworks lack: a word for the operator, beside one for "fused"
// or "kernel" ("fused rms norm", "RMSNorm kernel", "fused_cross_entropy"). Liger's kernels are for all four (its
// README), and Fast-LLM has its own (fast_llm/functional/triton).
constexpr Words kFusedKernels[] = {
    {kFusedNorms, "other_opts attention", "norm|rms|liger|fast-llm"},
    {kFusedRotary, "other_opts attention", "rotary|rope|liger|fast-llm"},
    {kFusedGates, "other_opts attention", "swiglu|silu|geglu|liger|fast-llm"},
    {kFusedLoss, "other_opts", "entropy|loss|liger|fast-llm"},
};

// Switches, which a row may say are off.
constexpr Words kSwitches[] = {
    {kSaysCompiled, "other_opts", "torch.compile|torch compile|torch_compile"},
    {kGradientOverlap, "zero_fsdp", "overlap"},
    {kGradientOverlap, "other_opts", "overlap-grad|overlap_grad|overlap grad|overlap-param|overlap_param"},
    {kGradientOverlap, "other_opts", "overlap_comm|overlap-comm|overlap comm"},
    {kGradientOverlap, "other_opts", "overlappeddistributedoptimizer"},  // alibaba/Megatron-LLaMA's
    // PyTorch's; FSDP's mixed precision is a policy of its own.
    {kSaysAutocast, "other_opts", "autocast|automatic mixed precision|native amp"},
    // Megatron-Core's (`--main-grads-dtype bf16`, `--grad-reduce-in-bf16`), and in words.
    {kNarrowReduction, "other_opts", "main-grads-dtype bf16|grad-reduce-in-bf16|gradients in bf16|grads in bf16"},
    {kWideGradients, "other_opts", "gradients in float32|gradients in fp32|grads in fp32|grads in float32"},
    {kWideGradients, "other_opts", "grad-reduce-in-fp32|grad_reduce_in_fp32|main-grads-dtype fp32"},
    {kQueryNorms, "other_opts", "norms of queries|qk-norm|qk norm|qk-layernorm|qk_layernorm"},
    {kPrecisionAware, "other_opts", "precision-aware|precision_aware|precision aware"},
    {kNarrowMoments, "other_opts", "adam state in bf16|moments in bf16|exp-avg-dtype bf16|exp_avg_dtype bf16"},
    {kCurrentScaling, "dtype other_opts", "current scaling|current-scaling|fp8_cs|fp8-cs"},
    // DeepEP's README; Megatron-LM's flex dispatcher.
    {kOnePerNode, "other_opts", "deepep|hybridep"},
    {kToEachRank, "other_opts", "all-gather dispatcher|allgather dispatcher"},
    {kDeepEp, "other_opts", "deepep"},
    {kHybridEp, "other_opts", "hybridep"},
    {kExpertOverlap, "other_opts", "expert-parallel overlap|dualpipe"},
    {kNaturalRouting, "other_opts", "natural routing"},
    {kGroupedExperts, "other_opts", "grouped gemm|grouped_gemm|grouped-gemm|groupedgemm|grouped_mm|grouped mm"},
    {kGroupedExperts, "other_opts", "grouped product|grouped expert|grouped linear|groupedlinear|grouped matmul"},
    {kRouterGraphs, "other_opts", "partial graphs of attention|graphs of the router"},
    {kSlicedPositions, "other_opts", "positions by example"},
    {kPackedDocuments, "other_opts", "packed documents"},
    {kPaddedExperts, "other_opts", "one batched product"},
    {kSlicedExperts, "other_opts", "loop over experts"},
    {kIndexAdd, "other_opts", "index_add"},
};

// What signs tell together, in this order.
struct Conclusion {
  Sign sign;
  SignSet when, unless;
};
constexpr Conclusion kConclusions[] = {
    {kFineTuning, {kAdapters}, {}},
    {kNemo, {kSaysNemo}, {kSaysAutoModel, kOlderThanHopper, kNemoContainer}},
    {kNemo, {kSaysBridge}, {kSaysAutoModel, kOlderThanHopper}},
    // They reduce in float32 (`grad_reduce_in_fp32`), which those of benchmarks do not (scripts/performance).
    {kLibraryRecipes, {kNemo, kWideGradients}, {}},
    {kTransformerEngine, {kNemo}, {}},
    {kTransformerEngine, {kSaysMegatronCore}, {kLocalLayers}},
    // Megatron-LM has float8 of it alone (arguments.py, `fp8-format`).
    {kTransformerEngine, {kMegatron, kFloat8}, {}},
    // llm.c is a C program: nothing stands between it and the launches.
    {kEager, {kNotCompiled}, {kSaysCompiled, kCudaGraphs, kLlmC}},
    // Who has stages as well writes his own (Llama 3's report).
    {kPyTorchFsdp, {kFsdp}, {kFsdp2, kOtherShards, kTransformerEngine, kStages}},
    {kBf16Optimizer, {kDeepSpeed, kBfloat16, kUnsharded}, {kHuggingFace}},
    {kBf16Optimizer, {kDeepSpeed, kBfloat16, kZero1, kStages}, {}},
    {kSaysUnfused, {kNvidiaBert}, {}},  // modeling.py, BertSelfAttention
    {kSaysUnfused, {kMinGpt}, {}},      // mingpt/model.py, CausalSelfAttention
    {kUnfused, {kSaysUnfused}, {}},
    // No model of a modern family was trained before there was fused attention, and compilers bring it. PyTorch's
    // FSDP and FlashAttention are both of 2022; LitGPT (model.py) and torchtune (modules/attention_utils.py) call
    // PyTorch's scaled_dot_product_attention for all models. Transformer Engine has FlashAttention since its 0.6.
    {kUnfused,
     {kAttentionOpen, kEager, kOlderThanHopper},
     {kModernFamily, kPyTorchFsdp, kLitGpt, kTorchTune, kTransformerEngine}},
    {kFlashCode, {kFlashRepo}, {}},
    {kFlashCode, {kFlashPapers}, {kUnfused}},
    {kNarrowStates, {kSaysNarrowStates}, {kNarrowMoments}},
    {kAutocast, {kFlashCode}, {}},
    {kAutocast, {kHuggingFace}, {kDeepSpeed, kNarrowStates, kFloat32}},
    {kAutocast, {kSaysAutocast}, {kFsdp, kDeepSpeed}},
    // Its page of comparisons has rows of TRL's, too.
    {kHalo, {kSaysHalo}, {kTrl}},
    // Casts the whole model to the type that it trains in, and has FSDP reduce in float32 (kempnerforge/distributed/
    // parallel.py, default_mp_policy and build_parallel_model).
    {kNarrowStates, {kKempnerForge}, {}},
    {kWideReduction, {kKempnerForge, kFsdp}, {}},
    // Its plan has ColwiseParallel for each (distributed/tensor_parallel.py, _build_block_tp_plan).
    {kGathersEach, {kKempnerForge}, {}},
    {kNarrowReduction, {kNarrowStates}, {kWideReduction}},
    {kQueryNorms, {kNormedFamily}, {kNoQueryNorms}},
    {kTorchAo, {kFsdp2}, {kTransformerEngine, kSaysAutoModel}},
    {kAccelerate, {kHuggingFace, kSaysTrainer}, {}},
    // TRL's chunks begin with the product before the loss (pull request 5575).
    {kLinearLoss, {kHuggingFace, kChunkedLoss}, {}},
    // Megatron-LM drops a tenth of what is added to the residual stream, and of scores, unless told otherwise
    // (arguments.py), with Transformer Engine's layers as with its own; Llama's kind is trained without.
    {kDefaultDropout, {kMegatron, kTransformerEngine}, {kNemo, kModernFamily, kNoDropout}},
    {kSumsWhole, {kAccelerate}, {}},
    {kSumsWhole, {kLitGpt}, {}},
    {kOldSteps, {kEager, kUnfused}, {}},
    {kRecipeSteps, {kEager, kNemo}, {kUnfused}},
    {kExpertSteps, {kEager}, {kWholeGraphs}},
    {kExpertLoop, {kSlicedExperts}, {}},
    // Transformers before its release 5 (modeling_mixtral.py, modeling_qwen3_moe.py), where nothing else stands in.
    {kExpertLoop, {kHuggingFace}, {kGroupedExperts, kExpertKernels, kPaddedExperts}},
    // AutoModel's benchmarks go without a router.
    {kNaturalRouting, {kFineTuning}, {kAutoModel}},
    {kNaturalRouting, {kPaddedExperts}, {}},
};

// Megatron-LM's fused softmax takes rows up to here (fused_softmax.py); longer ones go through the steps.
constexpr int64_t kLongestFusedSoftmax = 4096;

// DeepSpeed's releases between which its ZeRO-1 and A100 are of one time: of the last of them where none is named.
constexpr int64_t kDeepSpeedOfOldDevices = 12;

std::string CellOf(const CsvCells& cells, absl::string_view column) {
  const std::string text = cells.Text(column);
  return column == "zero_fsdp" ? ShardingText(text) : absl::AsciiStrToLower(text);
}

bool SaysWord(absl::string_view cell, absl::string_view word) {
  if (absl::ConsumePrefix(&word, "=")) return cell == word;
  if (absl::ConsumePrefix(&word, "^")) return absl::StartsWith(cell, word);
  return absl::StrContains(cell, word);
}

bool Says(absl::string_view cell, absl::string_view words) {
  for (const absl::string_view word : absl::StrSplit(words, '|')) {
    if (SaysWord(cell, word)) return true;
  }
  return false;
}

bool IsLetter(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); }

// Whether what is before a name denies it: "not NeMo", "no-DeepSpeed", but not "Volcano NeMo".
bool Denies(absl::string_view before) {
  size_t end = before.size();
  while (end > 0 && (before[end - 1] == ' ' || before[end - 1] == '-')) --end;
  size_t begin = end;
  while (begin > 0 && (IsLetter(before[begin - 1]) || before[begin - 1] == '/')) --begin;
  const absl::string_view word = before.substr(begin, end - begin);
  return end < before.size() && (word == "no" || word == "not" || word == "non" || word == "without" || word == "w/o");
}

// Not denied, nor in the address of a page.
bool Stands(absl::string_view before) {
  return !Denies(before) && !absl::StrContains(before.substr(before.rfind(' ') + 1), "://");
}

// Not a part of a longer word ("NeMo" of "Nemotron"), but at a "*".
bool SaysName(absl::string_view cell, absl::string_view names) {
  for (absl::string_view name : absl::StrSplit(names, '|')) {
    const bool may_begin = absl::ConsumePrefix(&name, "*"), may_go_on = absl::ConsumeSuffix(&name, "*");
    for (size_t at = cell.find(name); at != absl::string_view::npos; at = cell.find(name, at + 1)) {
      const size_t end = at + name.size();
      const bool begins = may_begin || at == 0 || !IsLetter(cell[at - 1]);
      const bool ends = may_go_on || end == cell.size() || !IsLetter(cell[end]);
      if (begins && ends && Stands(cell.substr(0, at))) return true;
    }
  }
  return false;
}

// "off", but not "offload".
bool Lacks(absl::string_view part) {
  return HasAny(absl::StrReplaceAll(part, {{"offload", ""}}), {"no ", "not ", "without", "unfused", "off", "false"});
}

// Parts of "kernels of A, B and C" go together.
bool SaysFused(absl::string_view cell, absl::string_view operators) {
  const std::vector<absl::string_view> parts = absl::StrSplit(cell, absl::ByAnyChar(",;+"));
  const auto ends_list = [](absl::string_view part) { return absl::StrContains(part, " and "); };
  auto listed = parts.begin();  // up to here parts are of a list
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    const bool fused = HasAny(*part, {"fused", "fusion", "kern", "liger", "apex", "fast-llm"});
    if (absl::StrContains(*part, "kernels of ")) {
      const auto last = std::find_if(part, parts.end(), ends_list);
      if (last != parts.end()) listed = last + 1;
    }
    if ((fused || part < listed) && !Lacks(*part) && Says(*part, operators)) return true;
  }
  return false;
}

// "LoRA", "QLoRA", "PEFT"; not "no LoRA", nor a word such as "exploratory".
bool SaysAdapters(const std::string& options) {
  static const std::regex* const kAdapters = new std::regex(R"((^|[^a-z])((q|rs|ada)-?)?(lora|peft))");
  static const std::regex* const kNone = new std::regex(R"(\b(no|not|without) (q-?)?(lora|peft))");
  return std::regex_search(std::regex_replace(options, *kNone, ""), *kAdapters);
}

bool SaysOn(absl::string_view cell, absl::string_view words) {
  for (const absl::string_view part : absl::StrSplit(cell, absl::ByAnyChar(",;+"))) {
    if (!Lacks(part) && Says(part, words)) return true;
  }
  return false;
}

template <class Told>
void AddWords(const CsvCells& cells, const Words& row, Told told, SignSet* signs) {
  for (const absl::string_view column : absl::StrSplit(row.columns, ' ')) {
    if (told(CellOf(cells, column), row.words)) signs->Add(row.sign);
  }
}

// Whether the device came before attention was fused everywhere: FlashAttention is of May 2022, Megatron-LM, NeMo and
// PyTorch have it since 2023 (PyTorch with its compiler), H100 was sold from October 2022.
bool OlderThanHopper(const CsvCells& cells) {
  const absl::StatusOr<std::string> name = DeviceNamed(cells.Text("gpu_type"));
  if (!name.ok()) return false;
  const absl::StatusOr<Device> device = FindDevice(*name);
  return device.ok() && device->generation < Generation::kHopper;
}

// 1 to 3 of "flash v1", "FlashAttention-2", "flash_attn1.0.8", "FA3"; 0 where none is named.
int FlashVersion(absl::string_view attention) {
  const std::string text = absl::StrReplaceAll(attention, {{" ", ""}, {"_", ""}, {"-", ""}});
  static const std::regex* const kVersion = new std::regex(R"((flash(attention|attn)?|\bfa)v?([123]))");
  std::smatch match;
  return std::regex_search(text, match, *kVersion) ? std::stoi(match[3].str()) : 0;
}

// "24.07", "v26.04.01"; no date as "21.05.2024".
int64_t ContainerOf(const std::string& source) {
  std::smatch match;
  static const std::regex* const kRelease =
      new std::regex(R"((^|[^0-9.])(2[0-9])\.(0[1-9]|1[0-2])(?![0-9]|\.[0-9]{4}))");
  if (!std::regex_search(source, match, *kRelease)) return kNewest;
  return std::stoll(match[2].str()) * 100 + std::stoll(match[3].str());
}

// The default of `--transformer-impl` is Transformer Engine's since April 2024 (Megatron-LM, commit e7b74a4); a paper's
// first version tells by when its runs were made.
constexpr int kTransformerEngineDefault = 2404;

// Years and months of "arXiv 2310.19341", "arxiv.org/abs/2310.19341": 2310. kNewest where there is none.
int64_t PaperOf(const std::string& source) {
  std::smatch match;
  static const std::regex* const kPaper = new std::regex(R"(arxiv[^0-9]{1,20}(\d{4})\.\d{4,5})");
  return std::regex_search(source, match, *kPaper) ? std::stoll(match[1].str()) : kNewest;
}

// PEFT's releases that make adapters float32 begin here (its pull request 1706).
constexpr int kWidePeft = 11;

// "PEFT 0.9", "PEFT before 0.11".
bool SaysNarrowPeft(const std::string& options) {
  std::smatch match;
  static const std::regex* const kRelease = new std::regex(R"(\bpeft (before )?0\.(\d{1,3})\b)");
  if (!std::regex_search(options, match, *kRelease)) return false;
  return std::stoi(match[2].str()) < kWidePeft + (match[1].matched ? 1 : 0);
}

int64_t DeepSpeedOf(const std::string& options, bool old_device) {
  std::smatch match;
  static const std::regex* const kRelease = new std::regex(R"(deepspeed (0\.(\d{1,2})|[1-9]))");
  if (!std::regex_search(options, match, *kRelease)) return old_device ? kDeepSpeedOfOldDevices : kNewest;
  return match[2].matched ? std::stoll(match[2].str()) : kNewest;
}

// "Megatron-Core 0.6", "MCore v0.12", "core_r0.16.0".
int64_t MegatronCoreOf(const std::string& text) {
  std::smatch match;
  static const std::regex* const kRelease = new std::regex(R"(\b(megatron[- ]?core |mcore |core_)[vr]?0\.(\d{1,2})\b)");
  return std::regex_search(text, match, *kRelease) ? std::stoll(match[2].str()) : kNewest;
}

}  // namespace

Signs ReadSigns(const CsvCells& cells, int64_t sequence) {
  Signs signs;
  SignSet& set = signs.set;
  for (const Words& row : kNames) AddWords(cells, row, SaysName, &set);
  for (const Words& row : kWords) AddWords(cells, row, Says, &set);
  for (const Words& row : kFusedKernels) AddWords(cells, row, SaysFused, &set);
  for (const Words& row : kSwitches) AddWords(cells, row, SaysOn, &set);
  const bool old_device = OlderThanHopper(cells);
  const int flash = FlashVersion(CellOf(cells, "attention"));
  if (old_device) set.Add(kOlderThanHopper);
  if (flash == 1) set.Add(kFlash1);
  if (flash == 3) set.Add(kFlash3);
  if (const std::string stages = CellOf(cells, "pp"); !stages.empty() && stages != "1") set.Add(kStages);
  if (sequence > kLongestFusedSoftmax) set.Add(kLongRows);
  if (IsModernFamily(CellOf(cells, "model"))) set.Add(kModernFamily);
  signs.container = ContainerOf(absl::StrCat(CellOf(cells, "source_ref"), " ", CellOf(cells, "other_opts")));
  if (signs.container != kNewest) set.Add(kNamesContainer);
  if (PaperOf(CellOf(cells, "source_ref")) < kTransformerEngineDefault) set.Add(kLocalLayers);
  if (SaysAdapters(CellOf(cells, "other_opts"))) set.Add(kAdapters);
  if (SaysNarrowPeft(CellOf(cells, "other_opts"))) set.Add(kNarrowPeft);
  signs.deepspeed = DeepSpeedOf(CellOf(cells, "other_opts"), old_device);
  signs.megatron_core = MegatronCoreOf(absl::StrCat(CellOf(cells, "other_opts"), " ", CellOf(cells, "source_ref")));
  for (const Conclusion& row : kConclusions) {
    if (set.HasAll(row.when) && !set.HasAny(row.unless)) set.Add(row.sign);
  }
  return signs;
}

}  // namespace meshwright
