#include "tools/import/accelerate.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "models/training.h"
#include "tools/import/accelerate_keys.h"
#include "tools/import/deepspeed.h"
#include "tools/import/known_keys.h"
#include "tools/import/named_model.h"

namespace meshwright {
namespace {

enum class Kind { kNo, kMultiGpu, kFsdp, kDeepSpeed, kMegatron };
constexpr absl::string_view kKinds[] = {"NO", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM"};

constexpr int64_t kDdpBucket = int64_t{25} << 20;  // bytes: torch.nn.parallel.DistributedDataParallel's bucket_cap_mb

NodeRef Value(const NodeRef& in, absl::string_view key) {
  const NodeRef value = in[key];
  const bool none = value.is_scalar() && (value.text() == "None" || value.text() == "auto");
  return value.is_null() || none ? in["~"] : value;
}

absl::StatusOr<int64_t> DegreeOr(const NodeRef& in, absl::string_view key, int64_t fallback = 1) {
  return Value(in, key).AsIntOr(fallback, 1, kMostOfDegree);
}

struct Launch {
  Kind kind = Kind::kNo;
  std::optional<DType> dtype;  // of the products; not said: none
  bool float8 = false;
  std::optional<int64_t> world, of_node;
  int64_t machines = 1;
};

absl::StatusOr<Launch> ReadLaunch(const NodeRef& in) {
  Launch launch;
  MESHWRIGHT_ASSIGN_OR_RETURN(launch.kind, in["distributed_type"].AsEnum<Kind>(kKinds));
  constexpr absl::string_view kPrecisions[] = {"no", "fp16", "bf16", "fp8"};
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kBFloat16};
  if (const NodeRef precision = Value(in, "mixed_precision"); precision.present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, precision.AsChoice(kPrecisions));
    launch.dtype = kTypes[index];
    launch.float8 = index == 3;
  } else if (IsOn(in["fp16"])) {
    launch.dtype = DType::kFloat16;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(launch.machines, DegreeOr(in, "num_machines"));
  const NodeRef processes = Value(in, "num_processes");
  if (launch.kind == Kind::kNo) launch.world = 1;
  if (processes.present() && processes.text() != "-1") {
    MESHWRIGHT_ASSIGN_OR_RETURN(launch.world, processes.AsInt(1, int64_t{1} << 24));
  }
  if (!launch.world.has_value()) return launch;
  if (*launch.world % launch.machines != 0) {
    return processes.Error(absl::StrCat(*launch.world),
                           absl::StrCat("a multiple of the ", launch.machines, " machines"));
  }
  launch.of_node = *launch.world / launch.machines;
  return launch;
}

void SetDTypes(const Launch& launch, DType gradients, Recipe& recipe, const ImportHints& hints,
               std::vector<std::string>& notes) {
  Training& t = recipe.training;
  t.dtype = launch.dtype.value_or(DType::kFloat32);
  t.gradient_dtype = gradients;
  t.optimizer.kind = OpKind::kAdamW;
  t.optimizer.learning_rate = 1e-3;
  notes.push_back("the optimizer is the training code's: planned as adamw");
  if (recipe.leaves_recompute) notes.push_back(std::string(kRecomputeIsCode));
  if (!launch.dtype.has_value()) {
    notes.push_back("no mixed_precision is said: planned in float32; plan with --precision=bfloat16 for another");
  }
  if (launch.float8) recipe.cluster.device.kernels.product_bits = 8;
  if (launch.float8 && hints.device.empty()) {
    notes.push_back("products in float8 are the cluster's: plan with --products=float8");
  }
}

// FSDP 1 by what is split, FSDP 2 by whether parameters are let go of between the passes.
absl::Status ReadFsdp(const NodeRef& in, const Launch& launch, Recipe& recipe, std::vector<std::string>& notes) {
  const NodeRef fsdp = in[kFsdpSection];
  const NodeRef version = Value(fsdp, "fsdp_version");
  const bool second = version.present() && version.text() == "2";
  const NodeRef reshard = Value(fsdp, "fsdp_reshard_after_forward");
  bool parameters = true, split = true;
  if (second) {
    parameters = !reshard.present() || IsOn(reshard);
  } else {
    constexpr absl::string_view kStrategies[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                                 "HYBRID_SHARD_ZERO2"};
    constexpr absl::string_view kNumbers[] = {"1", "2", "3", "4", "5"};  // as it was written once
    NodeRef strategy = Value(fsdp, "fsdp_sharding_strategy");
    const bool flag = reshard.present() && (reshard.text() == "true" || reshard.text() == "false");
    if (!strategy.present() && !flag) strategy = reshard;
    size_t index = 0;
    if (strategy.present()) {
      const bool number = strategy.text().size() == 1;
      MESHWRIGHT_ASSIGN_OR_RETURN(index, number ? strategy.AsChoice(kNumbers) : strategy.AsChoice(kStrategies));
    }
    parameters = index == 0 || index == 3;
    split = index != 2;
    if (index >= 3) recipe.copies = launch.machines;  // FSDP's groups are nodes
  }
  recipe.shard_parameters = split && parameters;
  recipe.shard_gradients = split && !parameters;
  recipe.shard_optimizer = split;
  if (recipe.shard_gradients) {
    notes.push_back("parameters stay gathered between the passes there: planned as split gradients and optimizer");
  }
  const NodeRef again = Value(fsdp, "fsdp_activation_checkpointing");
  recipe.recompute = IsOn(again) ? Recompute::kFull : Recompute::kNone;
  recipe.leaves_recompute = !again.present();
  if (const NodeRef wrap = Value(fsdp, "fsdp_auto_wrap_policy"); wrap.present() && wrap.text() == "NO_WRAP") {
    notes.push_back("fsdp_auto_wrap_policy NO_WRAP gathers the whole model at once, the plan a layer at a time");
  }
  return absl::OkStatus();
}

// The replicas are groups of dp_shard_size, which context-parallel ranks belong to.
absl::Status ReadParallelism(const NodeRef& in, Recipe& recipe, std::optional<int64_t>& replicas,
                             std::vector<std::string>& notes) {
  const NodeRef parallelism = in[kParallelismSection];
  if (!parallelism.is_map()) return absl::OkStatus();
  const auto read = [&](absl::string_view key) {
    return DegreeOr(parallelism, absl::StrCat("parallelism_config_", key));
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t copies, read("dp_replicate_size"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t group, read("dp_shard_size"));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.tensor, read("tp_size"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t context, read("cp_size"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, read("sp_size"));
  if (context > 1 && heads > 1) {
    return parallelism.Error("cp_size and sp_size above 1", "one of them");
  }
  recipe.context = std::max(context, heads);
  if (context > 1) {
    constexpr absl::string_view kWays[] = {"allgather", "alltoall"};
    const NodeRef way = Value(parallelism, "parallelism_config_cp_comm_strategy");
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, way.present() ? way.AsChoice(kWays) : size_t{0});
    // PyTorch hands keys and values round by all-to-alls in place of sends.
    recipe.exchange = index == 0 ? ContextExchange::kAllGather : ContextExchange::kRing;
  }
  if (heads > 1)
    notes.push_back("ranks that share a sequence exchange heads there (Ulysses), keys and values in the plan");
  if (recipe.shard_optimizer) recipe.copies = copies;
  replicas = copies * group;
  return absl::OkStatus();
}

absl::StatusOr<Recipe> ReadTorch(const NodeRef& in, const Launch& launch, Recipe recipe, const ImportHints& hints,
                                 std::vector<std::string>& notes) {
  const bool fsdp = launch.kind == Kind::kFsdp;
  recipe.leaves_recompute = true;
  if (fsdp) MESHWRIGHT_RETURN_IF_ERROR(ReadFsdp(in, launch, recipe, notes));
  std::optional<int64_t> replicas;
  MESHWRIGHT_RETURN_IF_ERROR(ReadParallelism(in, recipe, replicas, notes));
  // FSDP's set_mixed_precision reduces in the type of the products; gradients of parameters in float32 are float32.
  const DType gradients = recipe.shard_optimizer ? launch.dtype.value_or(DType::kFloat32) : DType::kFloat32;
  SetDTypes(launch, gradients, recipe, hints, notes);
  if (!recipe.shard_optimizer) recipe.bucket_elements = kDdpBucket / SizeOf(gradients).raw();
  std::optional<int64_t> world = launch.world;
  if (!world.has_value() && replicas.has_value()) world = *replicas * recipe.tensor * recipe.context;
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(SetDevices(hints, world, launch.of_node, recipe, notes)));
  if (replicas.has_value() && recipe.data > 0 && *replicas != recipe.data && fsdp) {
    return in[kParallelismSection].Error(absl::StrCat(*replicas, " replicas"),
                                         absl::StrCat(recipe.data, ", as the devices have"),
                                         "--devices=N says how many there are");
  }
  if (recipe.copies > 1 && recipe.data > 0 && recipe.data * recipe.context % recipe.copies != 0) {
    return in[kFsdpSection].Error(absl::StrCat(recipe.copies, " groups"),
                                  absl::StrCat("a divisor of ", recipe.data, " replicas"));
  }
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(SetStep(hints, {}, recipe, notes)));
  return recipe;
}

absl::StatusOr<Recipe> ReadMegatronPlugin(const NodeRef& in, const Launch& launch, Recipe recipe,
                                          const ImportHints& hints, std::vector<std::string>& notes) {
  const NodeRef megatron = in[kMegatronSection];
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.tensor, DegreeOr(megatron, "megatron_lm_tp_degree"));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.pipeline, DegreeOr(megatron, "megatron_lm_pp_degree"));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.context, DegreeOr(megatron, "megatron_lm_context_parallel_size"));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.expert, DegreeOr(megatron, "megatron_lm_expert_model_parallel_size"));
  recipe.sequence_parallel = recipe.tensor > 1 && IsOn(megatron["megatron_lm_sequence_parallelism"]);
  recipe.shard_optimizer =
      IsOn(megatron["megatron_lm_use_distributed_optimizer"]) || IsOn(megatron["megatron_lm_use_custom_fsdp"]);
  constexpr absl::string_view kGranularities[] = {"full", "selective"};
  const NodeRef granularity = Value(megatron, "megatron_lm_recompute_granularity");
  if (granularity.present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, granularity.AsChoice(kGranularities));
    recipe.recompute = index == 0 ? Recompute::kFull : Recompute::kSelective;
  } else if (IsOn(megatron["megatron_lm_recompute_activations"])) {
    recipe.recompute = Recompute::kSelective;
  }
  SetDTypes(launch, DType::kFloat32, recipe, hints, notes);
  recipe.model.vocab_multiple = std::max<int64_t>(recipe.model.vocab_multiple, 128 * recipe.tensor);
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(SetDevices(hints, launch.world, launch.of_node, recipe, notes)));
  if (recipe.data > 1) notes.push_back("gradients are reduced behind the backward pass there, beside it in the plan");
  StepParts step;
  MESHWRIGHT_ASSIGN_OR_RETURN(step.accumulated,
                              Value(megatron, "megatron_lm_num_micro_batches").AsIntOr(0, 1, kMostOfStep));
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(SetStep(hints, step, recipe, notes)));
  return recipe;
}

// Of the file that it names; else of the settings that Accelerate makes of its own keys (DeepSpeedPlugin).
absl::StatusOr<Recipe> ReadDeepSpeedPlugin(const NodeRef& in, const Launch& launch, absl::string_view name,
                                           const ImportHints& hints, std::vector<std::string>& notes) {
  const NodeRef deepspeed = in[kDeepSpeedSection];
  const NodeRef file = Value(deepspeed, "deepspeed_config_file");
  DeepSpeedLauncher launcher = {.dtype = launch.dtype, .world = launch.world, .of_node = launch.of_node};
  MESHWRIGHT_ASSIGN_OR_RETURN(launcher.context, DegreeOr(in[kParallelismSection], "parallelism_config_sp_size"));
  MESHWRIGHT_ASSIGN_OR_RETURN(launcher.accumulated,
                              Value(deepspeed, "gradient_accumulation_steps").AsIntOr(0, 1, kMostOfStep));
  if (file.present() && !hints.deepspeed.given()) {
    return file.Error(absl::StrCat("a file that is named, \"", file.text(), "\""), "the file itself",
                      absl::StrCat("give it as --deepspeed=", file.text()));
  }
  if (file.present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(hints.deepspeed.text, hints.deepspeed.path));
    launcher.accumulated = 0;  // Accelerate refuses its own keys beside a file
    return ReadDeepSpeed(document.root(), name, hints, launcher, notes);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t stage, Value(deepspeed, "zero_stage").AsIntOr(2, 0, 3));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document,
                              ParseDocument(absl::StrCat("{zero_optimization: {stage: ", stage,
                                                         "}, bf16: {enabled: auto}, fp16: {enabled: auto}}"),
                                            kDeepSpeedSection));
  launcher.place = in;
  return ReadDeepSpeed(document.root(), name, hints, launcher, notes);
}

}  // namespace

bool LooksLikeAccelerate(absl::string_view text) {
  return absl::StrContains(text, "distributed_type") &&
         (absl::StrContains(text, "num_processes") || absl::StrContains(text, "mixed_precision") ||
          absl::StrContains(text, "_config:"));
}

absl::StatusOr<Recipe> ReadAccelerate(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                      std::vector<std::string>& notes) {
  MESHWRIGHT_RETURN_IF_ERROR(in.AsMap().status());
  MESHWRIGHT_RETURN_IF_ERROR(CheckKnownKeys(in, kAccelerateKeys, notes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Launch launch, ReadLaunch(in));
  if (launch.kind == Kind::kDeepSpeed) return ReadDeepSpeedPlugin(in, launch, name, hints, notes);
  Recipe recipe;
  recipe.name = PlainName(name);
  MESHWRIGHT_RETURN_IF_ERROR(ReadNamedModel(in, hints, std::nullopt, recipe, notes));
  if (launch.kind == Kind::kMegatron) return ReadMegatronPlugin(in, launch, std::move(recipe), hints, notes);
  return ReadTorch(in, launch, std::move(recipe), hints, notes);
}

}  // namespace meshwright
