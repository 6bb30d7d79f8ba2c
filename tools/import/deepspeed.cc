#include "tools/import/deepspeed.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/training.h"
#include "tools/import/deepspeed_keys.h"
#include "tools/import/known_keys.h"
#include "tools/import/named_model.h"

namespace meshwright {
namespace {

constexpr double kUsualBucket =
    5e8;  // elements: runtime/zero/config.py; of stage 0 engine.py's MEMORY_OPT_ALLREDUCE_SIZE

bool IsAuto(const NodeRef& value) { return value.is_scalar() && value.text() == "auto"; }

// A null is a missing value there, and what is left to the launcher is one here.
NodeRef Value(const NodeRef& in, absl::string_view key) {
  const NodeRef value = in[key];
  return value.is_null() || IsAuto(value) ? in["~"] : value;
}

// "5e8", 500000000 or 500000000.0.
absl::StatusOr<int64_t> CountOr(const NodeRef& in, double fallback) {
  constexpr double kMostElements = 1e12;
  MESHWRIGHT_ASSIGN_OR_RETURN(const double number, in.AsDoubleOr(fallback, 0, kMostElements));
  if (number != std::floor(number)) return in.Error(in.text(), "a whole number of elements");
  return static_cast<int64_t>(number);
}

absl::StatusOr<bool> Enabled(const NodeRef& in, absl::string_view section) {
  return Value(in[section], "enabled").AsBoolOr(false);
}

absl::Status ReadScale(const NodeRef& in, Training& training) {
  training.scales_loss = Training::Scales::kYes;
  MESHWRIGHT_ASSIGN_OR_RETURN(const double fixed, Value(in, "loss_scale").AsDoubleOr(0, 0, 0x1p126));
  if (fixed > 0) {
    training.loss_scaling = {fixed, 1, 1, 1};
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const double power, Value(in, "initial_scale_power").AsDoubleOr(16, 0, 126));
  training.loss_scaling.initial = std::exp2(power);
  MESHWRIGHT_ASSIGN_OR_RETURN(training.loss_scaling.growth_interval,
                              Value(in, "loss_scale_window").AsIntOr(1000, 1, int64_t{1} << 24));
  return absl::OkStatus();
}

absl::Status ReadDTypes(const NodeRef& in, const DeepSpeedLauncher& launcher, Training& t,
                        std::vector<std::string>& notes) {
  const NodeRef bf16 = in[in["bf16"].present() ? "bf16" : "bfloat16"];
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool brain, Value(bf16, "enabled").AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool half, Enabled(in, "fp16"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool apex, Enabled(in, "amp"));
  if (brain && half) return in["fp16"].Error("bf16 and fp16 switched on", "one of them");
  const bool open = IsAuto(bf16["enabled"]) || IsAuto(in["fp16"]["enabled"]);
  if (brain || half || apex) {
    t.dtype = brain ? DType::kBFloat16 : DType::kFloat16;
  } else if (launcher.dtype.has_value()) {
    t.dtype = *launcher.dtype;
  } else if (open) {
    t.dtype = DType::kBFloat16;
    notes.push_back("bf16 and fp16 are auto: planned in bfloat16; plan with --precision=float16 for the other");
  }
  if (t.dtype == DType::kFloat16) MESHWRIGHT_RETURN_IF_ERROR(ReadScale(in["fp16"], t));
  return absl::OkStatus();
}

// What engine.py's get_data_types and communication_data_type say: sums of bf16 are float32 where there is no ZeRO.
absl::Status ReadGradientDType(const NodeRef& in, Recipe& recipe, std::vector<std::string>& notes) {
  Training& t = recipe.training;
  const bool wide = t.dtype == DType::kBFloat16 && !recipe.shard_optimizer;
  constexpr absl::string_view kNames[] = {"fp32", "fp16", "bf16", "float32", "float16", "bfloat16"};
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  const auto read = [&](const NodeRef& value, DType fallback) -> absl::StatusOr<DType> {
    if (!value.present()) return fallback;
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, value.AsChoice(kNames));
    return kTypes[index % 3];
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(t.gradient_dtype,
                              read(Value(in["data_types"], "grad_accum_dtype"), wide ? DType::kFloat32 : t.dtype));
  MESHWRIGHT_ASSIGN_OR_RETURN(const DType sent, read(Value(in, "communication_data_type"), t.dtype));
  if (sent != t.gradient_dtype) {
    notes.push_back(absl::StrCat("gradients are summed in ", NameOf(t.gradient_dtype), " and reduced in ", NameOf(sent),
                                 " there; the plan does both in ", NameOf(t.gradient_dtype)));
  }
  return absl::OkStatus();
}

absl::Status ReadOptimizer(const NodeRef& in, Optimizer& o, std::vector<std::string>& notes) {
  o.kind = OpKind::kAdamW;
  o.learning_rate = 1e-3;
  if (!Value(in, "type").present()) {
    notes.push_back("the optimizer is the training code's: planned as adamw");
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string type, in["type"].AsString());
  const std::string name = absl::AsciiStrToLower(type);
  const NodeRef params = in["params"];
  MESHWRIGHT_ASSIGN_OR_RETURN(o.momentum, Value(params, "momentum").AsDoubleOr(0, 0, 1));
  if (name == "lamb") {
    o.kind = OpKind::kLamb;
  } else if (name == "sgd") {
    o.kind = o.momentum > 0 ? OpKind::kMomentum : OpKind::kSgd;
  } else if (name == "muon") {
    o.kind = OpKind::kMuon;
    if (!Value(params, "momentum").present()) o.momentum = Optimizer::Default(o.kind).momentum;
  } else if (name != "adam" && name != "adamw") {
    notes.push_back(absl::StrCat("the optimizer ", QuoteForMessage(type), " is planned as adamw"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(o.learning_rate, Value(params, "lr").AsDoubleOr(o.learning_rate, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.epsilon, Value(params, "eps").AsDoubleOr(1e-8, 0, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.weight_decay, Value(params, "weight_decay").AsDoubleOr(0, 0));
  const NodeRef betas = Value(params, "betas");
  if (!betas.present()) return absl::OkStatus();
  if (betas.size() == 2 && IsAuto(betas.children()[0]) && IsAuto(betas.children()[1])) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> both, betas.AsDoubles(0, 1));
  if (both.size() != 2) return betas.Error(absl::StrCat(both.size(), " numbers"), "two, as in [0.9, 0.999]");
  o.beta1 = both[0];
  o.beta2 = both[1];
  return absl::OkStatus();
}

absl::Status ReadBuckets(const NodeRef& zero, int64_t stage, Recipe& recipe, std::vector<std::string>& notes) {
  const auto hidden = static_cast<double>(recipe.model.hidden);
  const double usual = IsAuto(zero["reduce_bucket_size"]) ? hidden * hidden : kUsualBucket;
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.bucket_elements, CountOr(Value(zero, "reduce_bucket_size"), usual));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t gathered, CountOr(Value(zero, "allgather_bucket_size"), kUsualBucket));
  if (recipe.bucket_elements == 0) return absl::OkStatus();
  if ((stage == 1 || stage == 2) && gathered != recipe.bucket_elements) {
    notes.push_back(absl::StrCat("parameters are gathered in buckets of ", gathered, " elements there, of ",
                                 recipe.bucket_elements, ", as gradients are, in the plan"));
  }
  return absl::OkStatus();
}

absl::Status ReadZero(const NodeRef& in, Recipe& recipe, std::vector<std::string>& notes) {
  const NodeRef zero = in[kZeroSection];
  int64_t stage = 0;
  if (zero.is_scalar()) {  // as it was once: whether the optimizer is split
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool on, zero.AsBool());
    stage = on ? 1 : 0;
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(stage, Value(zero, "stage").AsIntOr(0, 0, 3));
  }
  recipe.shard_optimizer = stage > 0;
  recipe.shard_gradients = stage == 2;
  recipe.shard_parameters = stage == 3;
  MESHWRIGHT_RETURN_IF_ERROR(ReadBuckets(zero, stage, recipe, notes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool beside, Value(zero, "overlap_comm").AsBoolOr(stage == 3));
  if (!beside || stage == 0) {
    notes.push_back("gradients are reduced behind the backward pass there, beside it in the plan");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t group, Value(zero, "zero_hpz_partition_size").AsIntOr(1, 0, kMostOfDegree));
  if (stage == 3 && group > 1) {
    notes.push_back(
        absl::StrCat("zero_hpz_partition_size ", group,
                     ": all gathers of parameters but the first of a step are within groups there, which keep one more "
                     "copy; over all replicas in the plan"));
  }
  return absl::OkStatus();
}

// Groups of replicas that have all parameters between them (MiCS). The replicas are known, or 0.
absl::Status ReadGroups(const NodeRef& in, Recipe& recipe) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t group,
                              Value(in[kZeroSection], "mics_shard_size").AsIntOr(-1, -1, kMostOfDegree));
  if (group < 1 || recipe.data == 0) return absl::OkStatus();
  if (recipe.data % group != 0) {
    return in[kZeroSection]["mics_shard_size"].Error(absl::StrCat(group),
                                                     absl::StrCat("a divisor of the ", recipe.data, " replicas"));
  }
  recipe.copies = recipe.data / group;
  return absl::OkStatus();
}

absl::Status ReadDegrees(const NodeRef& in, const DeepSpeedLauncher& launcher, Recipe& recipe,
                         std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t tensor,
                              Value(in["tensor_parallel"], "autotp_size").AsIntOr(1, 0, kMostOfDegree));
  recipe.tensor = std::max<int64_t>(1, tensor);
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.context, Value(in, "sequence_parallel_size").AsIntOr(1, 1, kMostOfDegree));
  if (launcher.context > 0) recipe.context = launcher.context;
  if (recipe.context > 1) {
    notes.push_back("ranks that share a sequence exchange heads there (Ulysses), keys and values in the plan");
  }
  const NodeRef pipeline = in["pipeline"];
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.pipeline, Value(pipeline, "stages").AsIntOr(1, 1, kMostOfDegree));
  if (pipeline.is_map() && !Value(pipeline, "stages").present()) {
    notes.push_back("how many stages a pipeline has is said in code there; planned without one");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layers,
                              Value(pipeline, "activation_checkpoint_interval").AsIntOr(0, 0, kMostOfDegree));
  const NodeRef kept = in["activation_checkpointing"];
  const bool again = layers > 0 || IsOn(kept["partition_activations"]) || IsOn(kept["cpu_checkpointing"]) ||
                     IsOn(kept["number_checkpoints"]);
  recipe.recompute = again ? Recompute::kFull : Recompute::kNone;
  recipe.leaves_recompute = !again;
  if (!again) notes.push_back(std::string(kRecomputeIsCode));
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeDeepSpeed(absl::string_view text) {
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) return false;
  for (const absl::string_view key :
       {"\"zero_optimization\"", "\"train_batch_size\"", "\"train_micro_batch_size_per_gpu\""}) {
    if (absl::StrContains(text, key)) return true;
  }
  return false;
}

absl::StatusOr<Recipe> ReadDeepSpeed(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                     const DeepSpeedLauncher& launcher, std::vector<std::string>& notes) {
  Recipe recipe;
  recipe.name = PlainName(name);
  const NodeRef place = launcher.place.value_or(in);
  MESHWRIGHT_RETURN_IF_ERROR(in.AsMap().status());
  MESHWRIGHT_RETURN_IF_ERROR(CheckKnownKeys(in, kDeepSpeedKeys, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadNamedModel(place, hints, std::nullopt, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadDTypes(in, launcher, recipe.training, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadZero(in, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadGradientDType(in, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadOptimizer(in["optimizer"], recipe.training.optimizer, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadDegrees(in, launcher, recipe, notes));
  StepParts step;
  MESHWRIGHT_ASSIGN_OR_RETURN(step.batch, Value(in, "train_batch_size").AsIntOr(0, 1, kMostRows));
  MESHWRIGHT_ASSIGN_OR_RETURN(step.rows, Value(in, "train_micro_batch_size_per_gpu").AsIntOr(0, 1, kMostOfStep));
  MESHWRIGHT_ASSIGN_OR_RETURN(step.accumulated,
                              Value(in, "gradient_accumulation_steps").AsIntOr(launcher.accumulated, 1, kMostOfStep));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t replicas, Value(in, "data_parallel_size").AsIntOr(0, 1, kMostOfDegree));
  const int64_t of_replica = recipe.tensor * recipe.pipeline * recipe.context;
  std::optional<int64_t> world = launcher.world;
  if (!world.has_value() && replicas > 0) world = replicas * of_replica;
  if (!world.has_value() && ReplicasOf(step).value_or(kMostOfDegree + 1) <= kMostOfDegree) {
    world = *ReplicasOf(step) * of_replica;
  }
  MESHWRIGHT_RETURN_IF_ERROR(place.Locate(SetDevices(hints, world, launcher.of_node, recipe, notes)));
  // config.py's _set_batch_related_parameters: of a step of one micro-batch nobody needs to say so.
  const bool alone = in["train_batch_size"].present() != in["train_micro_batch_size_per_gpu"].present();
  if (step.batch + step.rows > 0 && alone && !in["gradient_accumulation_steps"].present() && step.accumulated == 0) {
    step.accumulated = 1;
  }
  MESHWRIGHT_RETURN_IF_ERROR(place.Locate(SetStep(hints, step, recipe, notes)));
  MESHWRIGHT_RETURN_IF_ERROR(ReadGroups(in, recipe));
  return recipe;
}

}  // namespace meshwright
