// The `training:` section of a model file: what one step trains on, and how the parameters change.
//
//   training:
//     batch: 256                  # rows of one step, over all ranks; the operator form takes it from its inputs
//     sequence: 1024              # tokens a row; decoders only
//     dtype: bfloat16             # of computing and of parameters, where a tensor does not say its own
//     gradient_dtype: float32     # of accumulation and reduction
//     parameters: float8          # weights of layers' products lie in 8 bits and are gathered so; decoders. Without,
//     or
//                                 # bfloat16: as dtype says
//     loss_scale: {initial: 65536, growth_factor: 2, backoff_factor: 0.5, growth_interval: 2000}   # dynamic: as here;
//                                 # or a number, which stays; or none. float16: dynamic unless said, others: none
//     optimizer: {adamw: {learning_rate: 6e-4, beta1: 0.9, beta2: 0.95, weight_decay: 0.1}}   # sgd, momentum, lamb
//     lora: {rank: 16, alpha: 32, targets: [qkv, proj, mlp1, mlp2]}   # decoders: these products' adapters train alone
//     loss_reduction: mean        # or sum: over the rows of a micro-batch
//     attention: fused            # or unfused: the score matrix is in memory
//     norms: fused                # or unfused: a kernel for each step of RMS norms, rotary positions and gates, as in
//                                 # eager PyTorch; decoders
//     loss: fused                 # or unfused: float32 logits, a kernel for each step of the cross entropy; decoders
//     data: {mnist: {path: data/mnist, rows: 32}}   # every rank reads the same 32 rows of a step (S9.6); or synthetic
//                                 # or {text: {path: FILE}}: its bytes, for decoders of 256 words or more
//     steps: 20                   # or epochs, of steps_per_epoch steps unless the data set says how many it has
//     seed: 1
//     seed_per_rank: true         # rank r draws its parameters from seed + r
//     tokens: 300B                # or 300e9: the whole run, for questions of time and cost
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_MODELS_TRAINING_H_
#define MESHWRIGHT_MODELS_TRAINING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace meshwright {

struct Optimizer {
  // With the settings that it has where the file gives none.
  static Optimizer Default(OpKind kind);

  OpKind kind = OpKind::kSgd;  // kSgd, kMomentum, kAdamW, kLamb or kMuon
  double learning_rate = 0.01;
  double momentum = 0;  // kMomentum: u <- momentum * u + g, w <- w - learning_rate * u; kMuon: the same u
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // kAdamW, kLamb; kMuon: AdamW's, for what is no matrix
  double weight_decay = 0;                            // kMomentum: added to the gradient; others: decoupled

  // As the optimizer's operators read them (ir/graph.h): Momentum's and Muon's momentum is in beta1.
  OpAttrs Attrs() const;
  // Of AdamW with the same rate and decay, which updates what Muon does not.
  OpAttrs AttrsOfAdamW() const;
  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

// The loss is multiplied by the scale before the backward pass, gradients are divided by it before the update. A step
// in which a gradient is not finite is skipped. PyTorch's GradScaler has these names and numbers.
struct LossScaling {
  double initial = 65536;
  double growth_factor = 2;        // after `growth_interval` good steps in a row
  double backoff_factor = 0.5;     // after a step that was skipped; down to 1 at most
  int64_t growth_interval = 2000;  // steps

  // As AdjustScale reads them (ir/graph.h); its initial value is in `scale`.
  OpAttrs Attrs() const;
  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};

// Low-rank adapters: a product x W has s (x A) B added to it, with A of `rank` columns, and A and B train alone (Hu et
// al. 2021, "LoRA", section 4.1). Their names in a decoder's graph: "qkv.lora_a", "qkv.lora_b".
struct Lora {
  int64_t rank = 0;
  std::optional<double> alpha = {};                        // s is alpha / rank; not given: s is 1
  bool qkv = true, proj = true, mlp1 = true, mlp2 = true;  // the products of a layer that have one

  double scale() const { return alpha.has_value() ? *alpha / static_cast<double>(rank) : 1; }
  friend bool operator==(const Lora&, const Lora&) = default;
};
inline constexpr int64_t kHighestLoraRank = int64_t{1} << 14;

inline constexpr int64_t kMostRows = int64_t{1} << 32;         // of a step
inline constexpr int64_t kLongestSequence = int64_t{1} << 24;  // tokens

enum class LossReduction : uint8_t { kMean, kSum };
inline constexpr absl::string_view kLossReductionNames[] = {"mean", "sum"};

// Where inputs with `init: data` come from.
enum class DataSet : uint8_t {
  kNone,
  kMnist,
  kNumpyUniform,  // what numpy draws: np.random.seed(data_seed), then rand(rows, width) of each such input, in order
  kText,          // the bytes of a file, as a decoder's tokens
};

struct Training {
  int64_t batch = 0;     // rows of one step over all ranks; ParseModelFile sets it in every case
  int64_t sequence = 0;  // tokens a row; 0 in the operator form
  DType dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  bool float8_parameters = false;  // `parameters: float8`
  Optimizer optimizer;
  enum class Scales : uint8_t { kByType, kYes, kNo } scales_loss = Scales::kByType;  // by type: where dtype is float16
  LossScaling loss_scaling;
  std::optional<Lora> lora;  // without: all parameters train
  LossReduction loss_reduction = LossReduction::kMean;
  bool fused_attention = true;
  bool fused_loss = true;
  bool fused_norms = true;
  DataSet data = DataSet::kNone;
  std::string data_path;        // of the data set's folder; "" where the environment's DATA_PATH says
  int64_t data_rows = 0;        // of the data set in a step; the batch is copies of them (S9.6). 0: as many as it has
  bool synthetic_data = false;  // where nothing says where the data set lies: digits that are made up
  int64_t data_seed = 1;
  int64_t steps = 10;
  int64_t epochs = 0;           // 0: `steps` says how long
  int64_t steps_per_epoch = 0;  // 0: as the data set says; without one, all steps are one epoch
  int64_t seed = 1;
  bool seed_per_rank = false;
  double tokens = 0;  // of the whole run; 0: not said

  // Of weights that products in layers read, but for routers; of all else parameters are of `dtype`. Frameworks
  // quantise linear layers of transformer blocks alone: Transformer Engine's modules (module/base.py,
  // primary_weights_in_fp8), of which Megatron-Core's embedding, router and output layer are none.
  DType TypeOfWeights() const { return float8_parameters ? DType::kFloat8 : dtype; }
  // Where the loss is scaled.
  std::optional<LossScaling> LossScale() const;

  friend bool operator==(const Training&, const Training&) = default;
};

// Reads the section; a missing one has the defaults above.
absl::StatusOr<Training> ReadTraining(const NodeRef& in);

// One of the element types. `floating` refuses integer types and bool.
// What is short for one of them, "bf16", is told the name.
absl::StatusOr<DType> ReadDType(const NodeRef& in, DType fallback, bool floating);

// "bfloat16" for "bf16", and so on; "" for what is no short name.
absl::string_view DTypeNameOfShort(absl::string_view text);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_TRAINING_H_
