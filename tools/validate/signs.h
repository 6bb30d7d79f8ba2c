// What the words of a row tell of the framework behind it: who it is, of which release, what it trains and how it was
// told to. One table in signs.cc has a line for each sign; what frameworks do is in releases.cc, by these signs.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_SIGNS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_SIGNS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "tools/validate/csv.h"

namespace meshwright {

enum class Sign : uint8_t {
  // Who it is.
  kSaysNemo,
  kNemoContainer,      // in which other frameworks run, too
  kSaysBridge,         // Megatron-Bridge
  kNemo,               // NeMo's and Megatron-Bridge's recipes
  kLibraryRecipes,     // of Megatron-Bridge, that are not of its benchmarks
  kTransformerEngine,  // its kernels, which these take, and Megatron-Core by default
  kMegatron,           // as it says
  kSaysMegatronCore,
  kLocalLayers,        // a paper of the time when Megatron-Core's own layers were its default
  kMegatronAttention,  // Megatron-LM's own, which was there until FlashAttention
  kNanotron,
  kNanotron2023,
  kNanotronBenchmarks,  // of 2023 and 2024
  kDeepSpeed,
  kDeepSpeedPipeline,
  kNeox,
  kMetaseq,
  kBmTrain,  // and ModelCenter, which stands on it
  kBloom,
  kJeanZay,    // where BigScience trained it
  kFoundry,    // llm-foundry's own layers
  kAmpBf16,    // its type since October 2023
  kFlashRepo,  // FlashAttention's training code, by its name
  kFlashSource,
  kFlashPapers,
  kFlashCode,  // as it says or its papers ran it
  kSaysAutocast,
  kAutocast,
  kHuggingFace,
  kNvidiaBert,  // of its DeepLearningExamples, in PyTorch
  kMinGpt,
  kKeras,
  kLamb,
  kMuon,
  kVTrainProfile,
  kLlmC,
  kAutoModel,
  kSaysAutoModel,
  kInternLm,
  kSumsWhole,   // gradients are not reduced behind each micro-batch (`no_sync`)
  kAccelerate,  // and transformers' Trainer, which stands on it
  kSaysTrainer,
  kPyTorch2,       // its release 2.0 or later
  kNarrowPeft,     // a release before 0.11, whose adapters are as narrow as the weights beside them
  kFusedAdapters,  // Unsloth's kernels of adapters
  kLitGpt,
  kTorchTune,
  kTorchTitan,
  kEarlyTitan,  // its releases 0.1 and 0.2, from June 2025 to February 2026
  kTorchAo,     // whose products in float8 these and torchtitan take
  kLlamaFactory,
  kKempnerForge,
  kSaysHalo,
  kHalo,
  kTensorFlow,
  kTrl,             // whose rows of long sequences and of experts are of 2025 and 2026
  kDefaultDropout,  // Megatron-LM's, of a model that nobody says trains without
  kDeepSeek,        // its own, by the names of what it published of it
  // What it trains, on what.
  kModernFamily,  // IsModernFamily
  kGpt,
  kGptOss,
  kNeoxModel,
  kNemotron,
  kMixtral,
  kFineTuning,
  kAdapters,          // beside weights that do not train
  kAllAdapted,        // adapters beside all products of a layer
  kAttentionAdapted,  // beside those of attention
  kJoinedQueries,     // where queries, keys and values are one product
  kBert,
  kOpt,
  kWideScores,  // GPT-Neo and GPT-J, which take scores in float32 whatever the rest is (modeling_gpt_neo.py)
  kBigCode,     // StarCoder's
  kDropsTenth,  // of what is added to its residual stream
  kGemma2,
  kNormedFamily,  // with norms of queries and keys, as published
  kClassifier,    // without a head over the vocabulary
  kModalities,
  kMlPerf,    // its rules and data sets
  kStages,    // of a pipeline, more than one
  kLongRows,  // beyond what Megatron-LM's fused softmax takes
  kOlderThanHopper,
  kGrace,
  // How it was told to.
  kNotCompiled,
  kSaysCompiled,
  kFloat8,
  kFloat4,
  kCurrentScaling,  // of float8, by the largest element of the tensor at hand
  kFloat32,         // or TensorFloat-32, of which products alone are narrower
  kCudaGraphs,
  kWholeGraphs,    // of a step
  kPartialGraphs,  // of attention and router
  kRouterGraphs,   // of the router
  kEager,          // issues kernels one by one, from Python
  kOldSteps,       // so, before attention was fused
  kRecipeSteps,    // NeMo's so
  kExpertSteps,    // around experts so
  kUnfusedOperators,
  kSequenceParallelOpen,  // nobody says whether
  kAsyncTensor,
  kSerialTensor,     // what it sends is not overlapped, as the row says
  kSerialGathers,    // nor are gathers of what replicas update
  kStageOverlap,     // of what stages send
  kGradientOverlap,  // of what replicas reduce and gather
  kLaunchBlocking,
  kEightBitState,
  kFactoredState,   // as Adafactor's
  kPrecisionAware,  // Megatron-Core's optimizer, whose masters are what 16-bit weights lack
  kNarrowMoments,   // Adam's, of 16 bits, beside masters where nothing says that weights have none
  kNoDropout,
  kFusedAdam,         // in one kernel, as the row says
  kApexAdam,          // apex's of them
  kNoUpdate,          // only forward and backward passes are timed
  kUpdateInBackward,  // of a parameter as soon as its gradient is there
  kOffloadsActivations,
  kOffloadsParameters,
  kQueryNorms,     // of queries and keys, as the row or its model says
  kFurtherTokens,  // a layer that predicts the token after the next
  kNoQueryNorms,
  kUntiedHead,     // the embedding's weights are not the head's
  kWideRest,       // what is not quantized is in float32, and what it passes on
  kNarrowLoss,     // of 16-bit logits, all at once
  kChunkedLoss,    // of 16-bit logits, a part of the tokens at a time
  kGathersLogits,  // over ranks of tensor parallelism, for the loss
  kLinearLoss,     // with the product before it, so that there are no logits
  kUnsharded,
  kDdp,  // DistributedDataParallel
  kZero,
  kZeroStage,  // which
  kZero1,
  kZero2,
  kZero3,
  kZeroGroups,  // which replicas split state in
  kFsdp,
  kHsdp,
  kFsdp2,
  kOtherShards,      // cut as PyTorch's do not: XLA's, Megatron's
  kPyTorchFsdp,      // its first
  kNarrowReduction,  // of gradients, in the type of the parameters
  kWideReduction,    // in float32, whatever they are held in
  kWideGradients,    // held and reduced in float32, as the row says
  kGathersEach,      // of activations, for each product, and of a dimension that is not the first
  kWideGathers,      // of parameters, in float32
  kSaysNarrowStates,
  kNarrowStates,  // all of 16 bits: weights, gradients and Adam's moments, with no masters
  kBfloat16,
  kBf16Optimizer,  // DeepSpeed's, for bfloat16 without ZeRO and with stages
  kGroupedExperts,
  kOnePerNode,  // a token goes once to each node
  kToEachRank,  // all tokens go to all ranks with experts
  kDeepEp,
  kHybridEp,
  kExpertOverlap,
  kPaddedExperts,    // to the fullest of them
  kExpertLoop,       // a product after the other
  kSlicedExperts,    // of slices of a parameter of all experts
  kExpertKernels,    // libraries whose kernels compute all experts at once
  kIndexAdd,         // tokens are brought back by PyTorch's index_add_
  kUnfusedPermutes,  // of tokens
  kSlicedPositions,  // of packed rows, turned example by example
  kPackedDocuments,  // which attention does not cross
  kNaturalRouting,   // tokens go where a trained router sends them
  kBiasBalanced,     // whose experts are kept even by a bias (DeepSeek-V3's kind)
  kNamesContainer,
  // Attention and kernels that a row names.
  kAttentionOpen,  // nobody says which
  kAttentionKnown,
  kSdpa,  // PyTorch's scaled_dot_product_attention
  kSaysUnfused,
  kSaysFused,  // which kernel, of other libraries than Transformer Engine's choice
  kUnfused,    // says so, or is that old
  kCudnn,
  kFlash1,
  kFlash3,
  kFlashUnnumbered,  // "FlashAttention"
  kFlash2Paper,
  kTwoOrThree,
  kFusedNorms,
  kFusedRotary,
  kFusedGates,
  kFusedLoss,
};
inline constexpr size_t kNumSigns = static_cast<size_t>(Sign::kFusedLoss) + 1;

class SignSet {
 public:
  constexpr SignSet() = default;
  constexpr SignSet(std::initializer_list<Sign> signs) {
    for (const Sign sign : signs) Add(sign);
  }
  constexpr void Add(Sign sign) { has_[static_cast<size_t>(sign)] = true; }
  constexpr bool HasAll(const SignSet& other) const { return other.Count(*this, false) == 0; }
  constexpr bool HasAny(const SignSet& other) const { return other.Count(*this, true) > 0; }

 private:
  // Of its signs, those that `other` has, or that it has not.
  constexpr size_t Count(const SignSet& other, bool has) const {
    size_t count = 0;
    for (size_t i = 0; i < kNumSigns; ++i) count += has_[i] && other.has_[i] == has ? 1 : 0;
    return count;
  }

  std::array<bool, kNumSigns> has_ = {};
};

inline constexpr int64_t kNewest = std::numeric_limits<int64_t>::max();

struct Signs {
  SignSet set;
  // Releases; where none is named the newest.
  int64_t container = kNewest;      // of NVIDIA's, or of a set of recipes: "25.04" as 2504
  int64_t deepspeed = kNewest;      // "0.12" as 12; on older devices one of their time
  int64_t megatron_core = kNewest;  // "0.12" as 12
};

// `sequence`: of the row, where it has none the default.
Signs ReadSigns(const CsvCells& cells, int64_t sequence);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_SIGNS_H_
