#include "tools/import/torchtitan.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "models/training.h"
#include "tools/import/known_keys.h"
#include "tools/import/named_model.h"
#include "tools/import/torchtitan_keys.h"

namespace meshwright {
namespace {

constexpr int64_t kDdpBucket = int64_t{100} << 20;  // bytes: apply_ddp of its parallelize.py

// The first of several names that the file has, else the first.
NodeRef First(const NodeRef& in, absl::Span<const absl::string_view> keys) {
  for (const absl::string_view key : keys) {
    if (in[key].present()) return in[key];
  }
  return in[keys[0]];
}

// Of a degree, under the section of 2025 or an older one.
NodeRef Degree(const NodeRef& in, absl::string_view key) {
  return First(in,
               {absl::StrCat("parallelism.", key), absl::StrCat("training.", key), absl::StrCat("experimental.", key)});
}

// Llama 3 (torchtitan/models/llama3/__init__.py), as its config.json says it.
struct Flavor {
  absl::string_view name;
  int64_t hidden, layers, heads, ffn;
};
constexpr Flavor kLlama3[] = {
    {"8B", 4096, 32, 32, 14336}, {"70B", 8192, 80, 64, 28672}, {"405B", 16384, 126, 128, 53248}};

absl::Status ReadModel(const NodeRef& in, ImportHints hints, Recipe& recipe, std::vector<std::string>& notes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t sequence, in["training.seq_len"].AsIntOr(2048, 1, kLongestSequence));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, in["model.name"].AsStringOr("llama3"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string flavor, in["model.flavor"].AsStringOr("debugmodel"));
  for (const Flavor& row : kLlama3) {
    if (hints.model.given() || row.name != flavor || (name != "llama3" && name != "llama")) continue;
    hints.model = {absl::StrCat("Llama 3 ", flavor),
                   absl::StrCat("{model_type: llama, hidden_size: ", row.hidden, ", num_hidden_layers: ", row.layers,
                                ", num_attention_heads: ", row.heads, ", num_key_value_heads: 8, intermediate_size: ",
                                row.ffn, ", vocab_size: 128256, rope_theta: 500000, rms_norm_eps: 1e-05}")};
  }
  if (!hints.model.given()) {
    return First(in, {"model.flavor", "model.name"})
        .Error(absl::StrCat("the model ", name, " ", flavor), "Llama 3 of 8B, 70B or 405B",
               "of another one give --model=config.json");
  }
  return ReadNamedModel(in, hints, sequence, recipe, notes);
}

absl::Status ReadTraining(const NodeRef& in, const ImportHints& hints, Recipe& recipe,
                          std::vector<std::string>& notes) {
  Training& t = recipe.training;
  constexpr absl::string_view kTypes[] = {"bfloat16", "float32"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const int type, in["training.mixed_precision_param"].AsEnumOr(0, kTypes));
  t.dtype = type == 0 ? DType::kBFloat16 : DType::kFloat32;
  t.gradient_dtype = DType::kFloat32;  // mixed_precision_reduce has no other value
  MESHWRIGHT_ASSIGN_OR_RETURN(t.steps, in["training.steps"].AsIntOr(10000, 1, kMostRows));
  const bool compiled = IsOn(in["training.compile"]) || IsOn(in["compile.enable"]);
  t.fused_norms = t.fused_loss = compiled;
  Optimizer& o = t.optimizer;
  o.kind = OpKind::kAdamW;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, in["optimizer.name"].AsStringOr("AdamW"));
  if (!absl::EqualsIgnoreCase(name, "AdamW") && !absl::EqualsIgnoreCase(name, "Adam")) {
    notes.push_back(absl::StrCat("the optimizer ", name, " is planned as adamw"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(o.learning_rate, in["optimizer.lr"].AsDoubleOr(8e-4, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.beta1, in["optimizer.beta1"].AsDoubleOr(0.9, 0, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.beta2, in["optimizer.beta2"].AsDoubleOr(0.95, 0, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.epsilon, in["optimizer.eps"].AsDoubleOr(1e-8, 0, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.weight_decay, in["optimizer.weight_decay"].AsDoubleOr(0.1, 0));
  const NodeRef converters = in["model.converters"];
  bool float8 = IsOn(in["float8.enable_float8_linear"]) || IsOn(in["training.fp8_linear"]) ||
                absl::StrContains(converters.text(), "float8");
  for (const NodeRef& one : converters.children()) float8 = float8 || absl::StrContains(one.text(), "float8");
  if (float8) recipe.cluster.device.kernels.product_bits = 8;
  if (float8 && hints.device.empty()) {
    notes.push_back("products in float8 are the cluster's: plan with --products=float8");
  }
  return absl::OkStatus();
}

absl::Status ReadRecompute(const NodeRef& in, Recipe& recipe, std::vector<std::string>& notes) {
  constexpr absl::string_view kModes[] = {"none", "selective", "full", "memory_budget"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const int mode, in["activation_checkpoint.mode"].AsEnumOr(1, kModes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string option,
                              in["activation_checkpoint.selective_ac_option"].AsStringOr("2"));
  recipe.recompute = mode == 0 ? Recompute::kNone : mode == 2 ? Recompute::kFull : Recompute::kSelective;
  if (mode == 3) notes.push_back("activation_checkpoint.mode memory_budget is planned as `selective`");
  if (mode != 1) return absl::OkStatus();
  int64_t every = 0;
  if (option == "op") {
    notes.push_back(
        "selective checkpointing keeps products and runs all else again there, the plan norms, activations "
        "and the core of attention");
  } else if (absl::SimpleAtoi(option, &every) && every >= 1) {
    recipe.recompute = Recompute::kFull;
    if (every > 1) notes.push_back(absl::StrCat("one layer of ", every, " is run again there, each in the plan"));
  } else {
    return in["activation_checkpoint.selective_ac_option"].Error(absl::StrCat("\"", option, "\""),
                                                                 "op, or a number of layers from 1");
  }
  return absl::OkStatus();
}

// How FSDP splits: over the context-parallel ranks, too; without a pipeline parameters are let go of between passes.
absl::Status ReadSharding(const NodeRef& in, int64_t group, Recipe& recipe) {
  constexpr absl::string_view kPolicies[] = {"default", "always", "never"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const int policy, Degree(in, "fsdp_reshard_after_forward").AsEnumOr(0, kPolicies));
  const bool split = group != 1 || recipe.context > 1;
  const bool lets_go = policy == 1 || (policy == 0 && recipe.pipeline == 1);
  recipe.shard_optimizer = split;
  recipe.shard_parameters = split && lets_go;
  recipe.shard_gradients = split && !lets_go;
  if (!split) recipe.bucket_elements = kDdpBucket / SizeOf(recipe.training.gradient_dtype).raw();
  return absl::OkStatus();
}

absl::Status ReadExperts(const NodeRef& in, Recipe& recipe, std::vector<std::string>& notes) {
  const NodeRef degree = in["parallelism.expert_parallel_degree"];
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t ranks, degree.AsIntOr(1, 1, kMostOfDegree));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t tensor,
                              in["parallelism.expert_tensor_parallel_degree"].AsIntOr(1, 1, kMostOfDegree));
  if (recipe.model.experts == 0 || ranks == 1) return absl::OkStatus();
  recipe.spread_experts = tensor == 1 && recipe.tensor > 1 && ranks % recipe.tensor == 0;
  recipe.expert = recipe.spread_experts ? ranks / recipe.tensor : ranks;
  notes.push_back("experts have no capacity there; the plan takes tokens to be spread evenly");
  return absl::OkStatus();
}

absl::Status ReadDegrees(const NodeRef& in, const ImportHints& hints, Recipe& recipe, std::vector<std::string>& notes) {
  const auto read = [&](absl::string_view key) { return Degree(in, key).AsIntOr(1, 1, kMostOfDegree); };
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t copies, read("data_parallel_replicate_degree"));
  const NodeRef groups = First(in, {"parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree",
                                    "training.data_parallel_degree"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t group, groups.AsIntOr(-1, -1, kMostOfDegree));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.tensor, read("tensor_parallel_degree"));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.pipeline, read("pipeline_parallel_degree"));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.context, read("context_parallel_degree"));
  recipe.sequence_parallel = recipe.tensor > 1;  // its tensor parallelism has it always
  if (recipe.context > 1) {
    constexpr absl::string_view kWays[] = {"allgather", "alltoall"};
    MESHWRIGHT_ASSIGN_OR_RETURN(const int way, Degree(in, "context_parallel_rotate_method").AsEnumOr(0, kWays));
    recipe.exchange = way == 0 ? ContextExchange::kAllGather : ContextExchange::kRing;
  }
  MESHWRIGHT_RETURN_IF_ERROR(ReadSharding(in, group, recipe));
  if (recipe.shard_optimizer) recipe.copies = copies;
  MESHWRIGHT_RETURN_IF_ERROR(ReadExperts(in, recipe, notes));
  const int64_t others = recipe.tensor * recipe.pipeline * recipe.context;
  std::optional<int64_t> world;
  if (group >= 1 && copies * group <= kMostOfDegree) world = copies * group * others;
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(SetDevices(hints, world, std::nullopt, recipe, notes)));
  if (group >= 1 && recipe.data > 0 && recipe.data != copies * group) {
    return groups.Error(absl::StrCat(copies, " x ", group, " replicas"),
                        absl::StrCat(recipe.data, ", as the devices have"), "--devices=N says how many there are");
  }
  if (recipe.data % copies != 0) {
    return Degree(in, "data_parallel_replicate_degree")
        .Error(absl::StrCat(copies), absl::StrCat("a divisor of the ", recipe.data, " replicas"));
  }
  return absl::OkStatus();
}

// The replica's sequences are one micro-batch, and with a pipeline several.
absl::Status ReadStep(const NodeRef& in, const ImportHints& hints, Recipe& recipe, std::vector<std::string>& notes) {
  const NodeRef rows = First(in, {"training.local_batch_size", "training.batch_size"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t local, rows.AsIntOr(8, 1, kMostOfStep));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t global, in["training.global_batch_size"].AsIntOr(-1, -1, kMostRows));
  StepParts step = {.rows = local, .accumulated = global < 1 ? 1 : 0, .batch = std::max<int64_t>(0, global)};
  if (recipe.pipeline > 1) {
    const NodeRef many = in["experimental.pipeline_parallel_microbatches"];
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size,
                                in["parallelism.pipeline_parallel_microbatch_size"].AsIntOr(1, 1, kMostOfStep));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t parts, many.AsIntOr(local / size, 1, kMostOfStep));
    if (parts < 1 || local % parts != 0) {
      return rows.Error(absl::StrCat(local), absl::StrCat("a multiple of the ", parts, " micro-batches of a pipeline"));
    }
    step.rows = local / parts;
    if (step.accumulated > 0) step.accumulated = parts;
    if (global > 0) notes.push_back("the pipeline is emptied after each local batch there, once a step in the plan");
  }
  const absl::Status status = SetStep(hints, step, recipe, notes);
  return status.ok() ? status : rows.Locate(status);
}

// Layers of each part, where the file deals them by names of modules.
std::vector<int64_t> PartsByName(const NodeRef& in, int64_t layers) {
  std::vector<int64_t> parts;
  for (const NodeRef& part : in["parallelism.module_fqns_per_model_part"].children()) {
    parts.push_back(0);
    for (const NodeRef& module : part.children()) parts.back() += absl::StartsWith(module.text(), "layers.") ? 1 : 0;
  }
  int64_t last = 0;
  const std::vector<NodeRef> points = Degree(in, "pipeline_parallel_split_points").children();
  for (const NodeRef& point : points) {
    int64_t first = 0;
    const absl::string_view text = point.text();
    if (!absl::StartsWith(text, "layers.") || !absl::SimpleAtoi(text.substr(7), &first)) return {};
    parts.push_back(first - last);
    last = first;
  }
  if (!points.empty()) parts.push_back(layers - last);
  return parts;
}

absl::Status ReadPipeline(const NodeRef& in, Recipe& recipe) {
  if (recipe.pipeline == 1) return absl::OkStatus();
  struct Row {
    absl::string_view name;
    Schedule schedule;
    int64_t chunks;
  };
  constexpr Row kRows[] = {{"1f1b", Schedule::kOneFOneB, 1},
                           {"gpipe", Schedule::kGpipe, 1},
                           {"interleaved1f1b", Schedule::kOneFOneB, 2},
                           {"zbvzerobubble", Schedule::kZeroBubbleV, 2},
                           {"dualpipev", Schedule::kDualPipeV, 2}};
  const NodeRef schedule = Degree(in, "pipeline_parallel_schedule");
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, schedule.AsStringOr("1F1B"));
  const auto row = absl::c_find_if(kRows, [&](const Row& one) { return absl::EqualsIgnoreCase(one.name, name); });
  if (row == std::end(kRows)) {
    return schedule.Locate(absl::UnimplementedError(
        absl::StrCat("found ", name, ", wanted 1F1B, GPipe, Interleaved1F1B, ZBVZeroBubble or DualPipeV")));
  }
  recipe.schedule = row->schedule;
  const int64_t layers = recipe.model.layers;
  recipe.layers = PartsByName(in, layers);
  if (recipe.layers.empty()) {
    const auto read = [&](absl::string_view key) {
      return in[absl::StrCat("parallelism.pipeline_parallel_", key)].AsIntOr(1, 0, kMostLayers);
    };
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t first, read("first_stage_less_layers"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t last, read("last_stage_less_layers"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t of_part,
                                in["parallelism.pipeline_parallel_layers_per_stage"].AsIntOr(0, 1, kMostLayers));
    const int64_t parts = of_part > 0 ? (layers + first + last + of_part - 1) / of_part : row->chunks * recipe.pipeline;
    if (parts <= kMostLayers) recipe.layers = DealLayers(layers, parts, first, last);
  }
  const auto parts = static_cast<int64_t>(recipe.layers.size());
  const bool known = absl::c_all_of(recipe.layers, [](int64_t of_part) { return of_part >= 0; });
  if (parts == 0 || !known || parts % recipe.pipeline != 0 || (parts == recipe.pipeline) != (row->chunks == 1)) {
    return Degree(in, "pipeline_parallel_degree")
        .Error(absl::StrCat(layers, " layers in ", parts, " parts of the pipeline"),
               absl::StrCat(row->chunks == 1 ? "one" : "two or more", " for each of the ", recipe.pipeline, " stages"));
  }
  recipe.chunks = parts / recipe.pipeline;
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> DealLayers(int64_t layers, int64_t parts, int64_t less_first, int64_t less_last) {
  const int64_t all = layers + less_first + less_last, each = all / std::max<int64_t>(1, parts);
  if (parts < 1 || each < std::max<int64_t>({1, less_first, less_last})) return {};
  std::vector<int64_t> dealt(static_cast<size_t>(parts), each);
  for (int64_t i = 0; i < all % parts; ++i) ++dealt[static_cast<size_t>(i)];
  dealt.front() -= less_first;
  dealt.back() -= less_last;
  return dealt;
}

bool LooksLikeTorchtitan(absl::string_view text) {
  return absl::StrContains(text, "[training]") && absl::StrContains(text, "[model]") &&
         absl::StrContains(text, "seq_len");
}

absl::StatusOr<Recipe> ReadTorchtitan(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                      std::vector<std::string>& notes) {
  Recipe recipe;
  recipe.name = PlainName(name);
  MESHWRIGHT_RETURN_IF_ERROR(in.AsMap().status());
  MESHWRIGHT_RETURN_IF_ERROR(CheckKnownKeys(in, kTorchtitanKeys, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadModel(in, hints, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadTraining(in, hints, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadRecompute(in, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadDegrees(in, hints, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadStep(in, hints, recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadPipeline(in, recipe));
  return recipe;
}

}  // namespace meshwright
