#include "models/training.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 40;

absl::StatusOr<Optimizer> ReadOptimizer(const NodeRef& in) {
  Optimizer optimizer;
  if (!in.present()) return optimizer;
  constexpr absl::string_view kNames[] = {"sgd", "momentum", "adamw", "lamb", "muon"};
  constexpr size_t kSgd = 0, kMomentum = 1, kAdamW = 2, kMuon = 4;
  for (const absl::string_view key : {"type", "name"}) {  // as other tools have it
    if (!in.is_map() || !in[key].present()) continue;
    return in[key].Error(absl::StrCat("the optimizer behind `", key, "`"), "it as the key",
                         "e.g. `optimizer: {adamw: {learning_rate: 6e-4}}`");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const NodeRef::Variant variant, in.AsVariant(kNames));
  const NodeRef& o = variant.options;
  if (variant.index == kSgd) {
    MESHWRIGHT_RETURN_IF_ERROR(o.CheckKeysIfPresent({"learning_rate"}));
  } else if (variant.index == kMomentum) {
    optimizer = Optimizer::Default(OpKind::kMomentum);
    MESHWRIGHT_RETURN_IF_ERROR(o.CheckKeysIfPresent({"learning_rate", "momentum", "weight_decay"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.momentum, o["momentum"].AsDoubleOr(optimizer.momentum, 0, 1));
  } else {
    constexpr OpKind kKinds[] = {OpKind::kAdamW, OpKind::kLamb, OpKind::kMuon};
    optimizer = Optimizer::Default(kKinds[variant.index - kAdamW]);
    std::vector<absl::string_view> keys = {"learning_rate", "beta1", "beta2", "epsilon", "weight_decay"};
    if (variant.index == kMuon) {
      keys.insert(keys.begin() + 1, "momentum");
      MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.momentum, o["momentum"].AsDoubleOr(optimizer.momentum, 0, 1));
    }
    MESHWRIGHT_RETURN_IF_ERROR(o.CheckKeysIfPresent(keys));
    MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.beta1, o["beta1"].AsDoubleOr(optimizer.beta1, 0, 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.beta2, o["beta2"].AsDoubleOr(optimizer.beta2, 0, 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.epsilon, o["epsilon"].AsDoubleOr(optimizer.epsilon, 0, 1));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.learning_rate, o["learning_rate"].AsDoubleOr(optimizer.learning_rate, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(optimizer.weight_decay, o["weight_decay"].AsDoubleOr(optimizer.weight_decay, 0));
  return optimizer;
}

// none, dynamic, a number, or the numbers of a dynamic one.
absl::Status ReadLossScale(const NodeRef& in, Training& training) {
  if (!in.present()) return absl::OkStatus();
  using Scales = Training::Scales;
  LossScaling& scaling = training.loss_scaling;
  training.scales_loss = Scales::kYes;
  constexpr double kMost = 0x1p126;  // a float32 whose double is one, too
  if (in.is_map()) {
    MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"initial", "growth_factor", "backoff_factor", "growth_interval"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(scaling.initial, in["initial"].AsDoubleOr(scaling.initial, 0x1p-24, kMost));
    MESHWRIGHT_ASSIGN_OR_RETURN(scaling.growth_factor, in["growth_factor"].AsDoubleOr(scaling.growth_factor, 1, 1e6));
    MESHWRIGHT_ASSIGN_OR_RETURN(scaling.backoff_factor,
                                in["backoff_factor"].AsDoubleOr(scaling.backoff_factor, 1e-6, 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(scaling.growth_interval,
                                in["growth_interval"].AsIntOr(scaling.growth_interval, 1, int64_t{1} << 24));
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, in.AsString());
  if (text == "dynamic") return absl::OkStatus();
  if (text == "none") {
    training.scales_loss = Scales::kNo;
    return absl::OkStatus();
  }
  const absl::StatusOr<double> number = in.AsDouble(0x1p-24, kMost);
  if (!number.ok()) {
    return in.Error(absl::StrCat("\"", text, "\""),
                    "dynamic, none, a number of at least 2^-24, or {initial: 65536, ..}");
  }
  scaling = {*number, 1, 1, 1};
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Lora>> ReadLora(const NodeRef& in) {
  if (!in.present()) return std::optional<Lora>();
  struct Target {
    absl::string_view name;
    bool Lora::*field;
  };
  constexpr Target kTargets[] = {
      {"qkv", &Lora::qkv}, {"proj", &Lora::proj}, {"mlp1", &Lora::mlp1}, {"mlp2", &Lora::mlp2}};
  Lora lora;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"rank", "alpha", "targets"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(lora.rank, in["rank"].AsInt(1, kHighestLoraRank));
  if (in["alpha"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(lora.alpha, in["alpha"].AsDouble(0, 1e6));
  }
  if (!in["targets"].present()) return lora;
  std::vector<absl::string_view> names;
  for (const Target& target : kTargets) {
    names.push_back(target.name);
    lora.*target.field = false;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> targets, in["targets"].AsList());
  if (targets.empty()) return in["targets"].Error("an empty list", "products of a layer, e.g. [qkv, proj]");
  for (const NodeRef& target : targets) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, target.AsChoice(names));
    if (lora.*kTargets[index].field) return target.Error(absl::StrCat(names[index], " again"), "each product once");
    lora.*kTargets[index].field = true;
  }
  return lora;
}

absl::Status ReadData(const NodeRef& in, Training& training) {
  if (!in.present()) return absl::OkStatus();
  constexpr absl::string_view kNames[] = {"none", "mnist", "numpy_uniform", "text"};  // as in DataSet
  MESHWRIGHT_ASSIGN_OR_RETURN(const NodeRef::Variant variant, in.AsVariant(kNames));
  training.data = static_cast<DataSet>(variant.index);
  if (!variant.options.present()) return absl::OkStatus();
  const NodeRef& options = variant.options;
  if (training.data == DataSet::kNumpyUniform) {
    MESHWRIGHT_RETURN_IF_ERROR(options.CheckKeys({"seed", "rows"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(training.data_seed, options["seed"].AsIntOr(1, 0, (int64_t{1} << 32) - 1));
  } else if (training.data == DataSet::kText) {
    MESHWRIGHT_RETURN_IF_ERROR(options.CheckKeys({"path"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(training.data_path, options["path"].AsString());
    return absl::OkStatus();
  } else {
    MESHWRIGHT_RETURN_IF_ERROR(options.CheckKeys({"path", "rows", "synthetic"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(training.data_path, options["path"].AsStringOr(""));
    MESHWRIGHT_ASSIGN_OR_RETURN(training.synthetic_data, options["synthetic"].AsBoolOr(false));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(training.data_rows, options["rows"].AsIntOr(0, 1, kMostRows));
  return absl::OkStatus();
}

}  // namespace

OpAttrs LossScaling::Attrs() const {
  OpAttrs attrs;
  attrs.scale = initial;
  attrs.growth = growth_factor;
  attrs.backoff = backoff_factor;
  attrs.interval = growth_interval;
  return attrs;
}

std::optional<LossScaling> Training::LossScale() const {
  const bool scales = scales_loss == Scales::kYes || (scales_loss == Scales::kByType && dtype == DType::kFloat16);
  return scales ? std::optional(loss_scaling) : std::nullopt;
}

Optimizer Optimizer::Default(OpKind kind) {
  Optimizer optimizer;
  optimizer.kind = kind;
  if (kind == OpKind::kMomentum) optimizer.momentum = 0.9;
  if (kind == OpKind::kMuon) optimizer.momentum = 0.95;
  if (kind == OpKind::kAdamW || kind == OpKind::kLamb || kind == OpKind::kMuon) {
    optimizer.learning_rate = 1e-3;
    optimizer.weight_decay = 0.01;
  }
  if (kind == OpKind::kLamb) optimizer.epsilon = 1e-6;
  return optimizer;
}

OpAttrs Optimizer::AttrsOfAdamW() const {
  Optimizer adamw = *this;
  adamw.kind = OpKind::kAdamW;
  return adamw.Attrs();
}

OpAttrs Optimizer::Attrs() const {
  OpAttrs attrs;
  attrs.learning_rate = learning_rate;
  attrs.beta1 = kind == OpKind::kMomentum || kind == OpKind::kMuon ? momentum : beta1;
  attrs.beta2 = beta2;
  attrs.epsilon = epsilon;
  attrs.weight_decay = weight_decay;
  return attrs;
}

absl::string_view DTypeNameOfShort(absl::string_view text) {
  constexpr std::pair<absl::string_view, absl::string_view> kShorts[] = {
      {"bf16", "bfloat16"}, {"fp16", "float16"},  {"half", "float16"}, {"fp32", "float32"},
      {"fp64", "float64"},  {"tf32", "tfloat32"}, {"fp8", "float8"},
  };
  for (const auto& [brief, name] : kShorts) {
    if (brief == text) return name;
  }
  return "";
}

absl::StatusOr<DType> ReadDType(const NodeRef& in, DType fallback, bool floating) {
  if (!in.present()) return fallback;
  std::vector<absl::string_view> names;
  std::vector<DType> dtypes;
  for (const DTypeInfo& row : kDTypes) {
    if (floating && !row.floating) continue;
    names.push_back(row.name);
    dtypes.push_back(row.dtype);
  }
  const absl::StatusOr<size_t> index = in.AsChoice(names);
  if (index.ok()) return dtypes[*index];
  const absl::string_view meant = DTypeNameOfShort(in.text());
  return meant.empty() ? index.status() : in.Error(QuoteForMessage(in.text()), meant);
}

static absl::StatusOr<double> ReadTokens(const NodeRef& in) {
  if (!in.is_scalar() || in.is_null() || in.quoted()) return in.AsDoubleOr(0, 1);
  absl::StatusOr<double> tokens = ParseAmount(in.text());
  if (!tokens.ok()) return in.Locate(tokens.status());
  return tokens;
}

absl::StatusOr<Training> ReadTraining(const NodeRef& in) {
  Training training;
  if (!in.present()) return training;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"batch", "sequence", "dtype", "gradient_dtype", "parameters", "optimizer",
                                           "loss_scale", "lora", "loss_reduction", "attention", "loss", "norms", "data",
                                           "steps", "epochs", "steps_per_epoch", "seed", "seed_per_rank", "tokens"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.batch, in["batch"].AsIntOr(0, 1, kMostRows));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.sequence, in["sequence"].AsIntOr(0, 1, kLongestSequence));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.dtype, ReadDType(in["dtype"], training.dtype, true));
  // Sums of many small numbers: at least float32 where nothing else is said.
  const DType sums = training.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  MESHWRIGHT_ASSIGN_OR_RETURN(training.gradient_dtype, ReadDType(in["gradient_dtype"], sums, true));
  enum class Parameters { kAsDtype, kFloat8 };
  constexpr absl::string_view kParameterNames[] = {"bfloat16", "float8"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const Parameters parameters,
                              in["parameters"].AsEnumOr(Parameters::kAsDtype, kParameterNames));
  training.float8_parameters = parameters == Parameters::kFloat8;
  MESHWRIGHT_ASSIGN_OR_RETURN(training.optimizer, ReadOptimizer(in["optimizer"]));
  MESHWRIGHT_RETURN_IF_ERROR(ReadLossScale(in["loss_scale"], training));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.lora, ReadLora(in["lora"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.loss_reduction,
                              in["loss_reduction"].AsEnumOr(training.loss_reduction, kLossReductionNames));
  enum class Fusion { kFused, kUnfused };
  constexpr absl::string_view kFusionNames[] = {"fused", "unfused"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const Fusion attention, in["attention"].AsEnumOr(Fusion::kFused, kFusionNames));
  training.fused_attention = attention == Fusion::kFused;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Fusion loss, in["loss"].AsEnumOr(Fusion::kFused, kFusionNames));
  training.fused_loss = loss == Fusion::kFused;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Fusion norms, in["norms"].AsEnumOr(Fusion::kFused, kFusionNames));
  training.fused_norms = norms == Fusion::kFused;
  MESHWRIGHT_RETURN_IF_ERROR(ReadData(in["data"], training));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.steps, in["steps"].AsIntOr(training.steps, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.epochs, in["epochs"].AsIntOr(0, 1, kMostRows));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.steps_per_epoch, in["steps_per_epoch"].AsIntOr(0, 1, kMostRows));
  if (training.epochs > 0) {
    if (in["steps"].present()) return in["epochs"].Error("it beside steps", "one of them");
    if (training.steps_per_epoch == 0 && training.data != DataSet::kMnist) {
      return in["epochs"].Error("epochs without a length", "steps_per_epoch beside it");
    }
    if (training.steps_per_epoch > 0) {
      if (training.epochs > kMostSteps / training.steps_per_epoch) {
        return in["epochs"].Error(absl::StrCat(training.epochs, " epochs of ", training.steps_per_epoch, " steps"),
                                  absl::StrCat("at most ", kMostSteps, " steps in all"));
      }
      training.steps = training.epochs * training.steps_per_epoch;
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(training.seed, in["seed"].AsIntOr(training.seed, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.seed_per_rank, in["seed_per_rank"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(training.tokens, ReadTokens(in["tokens"]));
  return training;
}

}  // namespace meshwright
