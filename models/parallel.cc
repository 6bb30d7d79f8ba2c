#include "models/parallel.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr int64_t kMostDevices = 4096;  // S1.2
constexpr int64_t kMost = int64_t{1} << 32;

// Knobs that exclude each other (E-STATE).
absl::Status StateError(const NodeRef& at, absl::string_view what) {
  return at.Locate(absl::FailedPreconditionError(what));
}

absl::StatusOr<std::optional<int64_t>> OptionalInt(const NodeRef& in, int64_t min, int64_t max) {
  if (!in.present()) return std::optional<int64_t>();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t value, in.AsInt(min, max));
  return std::optional<int64_t>(value);
}

// Which of two keys of a map comes later in the file.
bool IsLater(const NodeRef& a, const NodeRef& b) {
  return std::pair(a.line(), a.column()) > std::pair(b.line(), b.column());
}

absl::Status CheckAscending(const NodeRef& in, const std::vector<int64_t>& values) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] <= values[i - 1]) {
      return in.children()[i].Error(absl::StrCat(values[i], " after ", values[i - 1]), "ascending indices");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<FusionRule>> ReadFusionRule(const NodeRef& in, bool index_allowed) {
  if (!in.present()) return std::optional<FusionRule>();
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"mode", "config"}));
  const absl::Span<const absl::string_view> modes(kFusionModeNames, index_allowed ? 3 : 2);
  FusionRule rule;
  MESHWRIGHT_ASSIGN_OR_RETURN(rule.mode, in["mode"].AsEnum<FusionRule::Mode>(modes));
  const NodeRef config = in["config"];
  if (!config.present()) {
    return config.Error("nothing", "a config for the mode",
                        "add `config: None` for auto, a number of MB for size, a list "
                        "of indices for index");
  }
  switch (rule.mode) {
    case FusionRule::Mode::kAuto:
      if (!config.is_null() && config.text() != "None") {
        return config.Error(absl::StrCat("a config for the mode auto"), "None");
      }
      break;
    case FusionRule::Mode::kSize: {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t megabytes, config.AsInt(1, kMost));
      rule.size = MiB(megabytes);
      break;
    }
    case FusionRule::Mode::kIndex: {
      MESHWRIGHT_ASSIGN_OR_RETURN(rule.last, config.AsInts(0, kMost));
      if (rule.last.empty()) return config.Error("an empty list", "indices");
      MESHWRIGHT_RETURN_IF_ERROR(CheckAscending(config, rule.last));
      break;
    }
  }
  return std::optional<FusionRule>(std::move(rule));
}

absl::Status ReadFusion(const NodeRef& in, Parallel& parallel) {
  const NodeRef list = in["all_reduce_fusion_config"], map = in["comm_fusion"];
  if (list.present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(parallel.all_reduce_fusion_config, list.AsInts(0, kMost));
    MESHWRIGHT_RETURN_IF_ERROR(CheckAscending(list, parallel.all_reduce_fusion_config));
  }
  if (!map.present()) return absl::OkStatus();
  MESHWRIGHT_RETURN_IF_ERROR(map.CheckKeys({"openstate", "allreduce", "allgather", "reducescatter"}));
  CommFusion& fusion = parallel.comm_fusion;
  MESHWRIGHT_ASSIGN_OR_RETURN(fusion.open, map["openstate"].AsBoolOr(true));
  MESHWRIGHT_ASSIGN_OR_RETURN(fusion.allreduce, ReadFusionRule(map["allreduce"], true));
  MESHWRIGHT_ASSIGN_OR_RETURN(fusion.allgather, ReadFusionRule(map["allgather"], false));
  MESHWRIGHT_ASSIGN_OR_RETURN(fusion.reducescatter, ReadFusionRule(map["reducescatter"], false));
  if (fusion.allreduce.has_value() && !parallel.all_reduce_fusion_config.empty()) {
    const bool map_wins = IsLater(map, list);
    if (map_wins) {
      parallel.all_reduce_fusion_config.clear();
    } else {
      fusion.allreduce.reset();
    }
    parallel.warnings.push_back(absl::StrCat("comm_fusion.allreduce and all_reduce_fusion_config are both set; ",
                                             map_wins ? "comm_fusion" : "all_reduce_fusion_config",
                                             ", the later, holds"));
  }
  return absl::OkStatus();
}

absl::Status ReadDatasetTuples(const NodeRef& in, Parallel& parallel) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> tuples, in.AsList());
  for (const NodeRef& tuple : tuples) {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<int64_t> pieces, tuple.AsInts(1, kMostDevices));
    parallel.dataset_tuples.push_back(std::move(pieces));
  }
  if (parallel.dataset_tuples.empty()) return in.Error("an empty list", "one list per input");
  parallel.dataset_strategy = DatasetStrategy::kTuples;
  return absl::OkStatus();
}

absl::Status ReadDataset(const NodeRef& in, Parallel& parallel) {
  const NodeRef strategy = in["dataset_strategy"], full = in["full_batch"];
  if (strategy.is_list()) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadDatasetTuples(strategy, parallel));
  } else {
    constexpr absl::string_view kNames[] = {"data_parallel", "full_batch"};
    MESHWRIGHT_ASSIGN_OR_RETURN(parallel.dataset_strategy, strategy.AsEnumOr(DatasetStrategy::kDataParallel, kNames));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool full_batch, full.AsBoolOr(false));
  if (!full.present()) return absl::OkStatus();
  if (strategy.present()) {
    const bool full_wins = IsLater(full, strategy);
    parallel.warnings.push_back(absl::StrCat("full_batch and dataset_strategy are both set; ",
                                             full_wins ? "full_batch" : "dataset_strategy", ", the later, holds"));
    if (!full_wins) return absl::OkStatus();
  }
  parallel.dataset_strategy = full_batch ? DatasetStrategy::kFullBatch : DatasetStrategy::kDataParallel;
  parallel.dataset_tuples.clear();
  return absl::OkStatus();
}

absl::Status ReadParallelOptimizer(const NodeRef& in, Parallel& parallel) {
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.enable_parallel_optimizer, in["enable_parallel_optimizer"].AsBoolOr(false));
  const NodeRef config = in["parallel_optimizer_config"];
  MESHWRIGHT_RETURN_IF_ERROR(config.CheckKeysIfPresent(
      {"gradient_accumulation_shard", "parallel_optimizer_threshold", "optimizer_weight_shard_size"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.gradient_accumulation_shard,
                              config["gradient_accumulation_shard"].AsBoolOr(true));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t kilobytes, config["parallel_optimizer_threshold"].AsIntOr(64, 0, kMost));
  parallel.parallel_optimizer_threshold = KiB(kilobytes);
  for (const NodeRef& size : {in["optimizer_weight_shard_size"], config["optimizer_weight_shard_size"]}) {
    if (!size.present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(parallel.optimizer_weight_shard_size, size.AsInt(-1, kMostDevices));
    if (parallel.optimizer_weight_shard_size == 0) return size.Error("0", "-1 (all replicas) or a number of replicas");
  }
  return absl::OkStatus();
}

absl::Status ReadPipeline(const NodeRef& in, Parallel& parallel) {
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.pipeline_stages, in["pipeline_stages"].AsIntOr(1, 1, kMostDevices));
  const NodeRef config = in["pipeline_config"];
  MESHWRIGHT_RETURN_IF_ERROR(config.CheckKeysIfPresent({"pipeline_scheduler", "pipeline_interleave"}));
  constexpr absl::string_view kSchedules[] = {"gpipe", "1f1b"};  // as in Schedule; S12.9
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.schedule, config["pipeline_scheduler"].AsEnumOr(parallel.schedule, kSchedules));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.pipeline_interleave, config["pipeline_interleave"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.pipeline_loss,
                              in["pipeline_loss"].AsEnumOr(parallel.pipeline_loss, kPipelineLossNames));
  return absl::OkStatus();
}

absl::Status ReadModes(const NodeRef& in, Parallel& parallel) {
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.parallel_mode,
                              in["parallel_mode"].AsEnumOr(parallel.parallel_mode, kParallelModeNames));
  const NodeRef old_name = in["auto_parallel_search_mode"], name = in["search_mode"];
  for (const NodeRef& mode : {old_name, name}) {
    if (!mode.present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(parallel.search_mode, mode.AsEnum<SearchKnob>(kSearchModeNames));
  }
  if (old_name.present()) {
    parallel.warnings.push_back("auto_parallel_search_mode is the old name of search_mode");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.device_num, OptionalInt(in["device_num"], 1, kMostDevices));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.global_rank, OptionalInt(in["global_rank"], 0, kMostDevices - 1));
  if (parallel.global_rank.has_value() && parallel.device_num.has_value() &&
      *parallel.global_rank >= *parallel.device_num) {
    return in["global_rank"].Error(absl::StrCat(*parallel.global_rank),
                                   absl::StrCat("a rank below device_num = ", *parallel.device_num));
  }
  return absl::OkStatus();
}

absl::Status ReadOwnKeys(const NodeRef& in, Parallel& parallel) {
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.micro_batches, OptionalInt(in["micro_batches"], 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.micro_batch, OptionalInt(in["micro_batch"], 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.tensor_parallel, OptionalInt(in["tensor_parallel"], 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.data_parallel, OptionalInt(in["data_parallel"], 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.expert_parallel, OptionalInt(in["expert_parallel"], 1, kMost));
  if (in["sequence_parallel"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(parallel.sequence_parallel, in["sequence_parallel"].AsBool());
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.recompute, in["recompute"].AsEnumOr(parallel.recompute, kRecomputeChoiceNames));
  return absl::OkStatus();
}

// What holds between knobs (S1.2, S1.4, S8.10, S11.2, S12.1, S12.3, S12.11).
absl::Status CheckTogether(const NodeRef& in, const Parallel& p, const Training& training) {
  const bool planned = p.parallel_mode == ParallelMode::kSemiAuto || p.parallel_mode == ParallelMode::kAuto;
  const bool by_hand =
      p.parallel_mode == ParallelMode::kDataParallel || p.parallel_mode == ParallelMode::kHybridParallel;
  const absl::string_view mode = kParallelModeNames[static_cast<size_t>(p.parallel_mode)];
  const std::string not_planned = absl::StrCat("needs semi_auto_parallel or auto_parallel, parallel_mode is ", mode);
  if (p.parallel_mode == ParallelMode::kStandAlone && p.device_num.value_or(1) > 1) {
    return in["device_num"].Error(absl::StrCat(*p.device_num), "1, since parallel_mode is stand_alone",
                                  "set parallel_mode");
  }
  if (p.parameter_broadcast && !by_hand) {
    return StateError(in["parameter_broadcast"],
                      absl::StrCat("needs data_parallel or hybrid_parallel, parallel_mode is ", mode));
  }
  if (p.dataset_strategy != DatasetStrategy::kDataParallel && !planned) {
    return StateError(in[in["full_batch"].present() ? "full_batch" : "dataset_strategy"], not_planned);
  }
  if (p.enable_parallel_optimizer) {
    const NodeRef at = in["enable_parallel_optimizer"];
    if (!planned && p.parallel_mode != ParallelMode::kDataParallel) {
      return StateError(
          at, absl::StrCat("needs data_parallel, semi_auto_parallel or auto_parallel, parallel_mode is ", mode));
    }
    if (!planned && training.optimizer.kind != OpKind::kAdamW) {
      return StateError(at, "in data_parallel it works with the optimizer adamw only (Lamb and AdamWeightDecay there)");
    }
  }
  if (p.pipeline_stages > 1) {
    const NodeRef at = in["pipeline_stages"];
    if (!planned) return StateError(at, not_planned);
    if (p.parallel_mode == ParallelMode::kAuto && p.search_mode == SearchKnob::kDynamicProgramming) {
      return StateError(at, "a pipeline needs search_mode sharding_propagation or recursive_programming");
    }
    if (p.device_num.has_value() && *p.device_num % p.pipeline_stages != 0) {
      return at.Error(absl::StrCat(p.pipeline_stages), absl::StrCat("a divisor of device_num = ", *p.device_num));
    }
    if (p.micro_batches.has_value() && *p.micro_batches < p.pipeline_stages) {
      return in["micro_batches"].Error(absl::StrCat(*p.micro_batches),
                                       absl::StrCat("at least as many as pipeline_stages = ", p.pipeline_stages));
    }
  }
  if (p.micro_batches.has_value() && training.batch % *p.micro_batches != 0) {
    return in["micro_batches"].Error(absl::StrCat(*p.micro_batches),
                                     absl::StrCat("a divisor of the batch of ", training.batch, " rows"));
  }
  return absl::OkStatus();
}

// "None", an axis, or a list of axes.
absl::StatusOr<std::vector<std::string>> ReadAxesOfDim(const NodeRef& in, const OpSharding& sharding,
                                                       std::vector<std::string>& used) {
  std::vector<std::string> axes;
  if (in.text() == "None" || in.is_null()) return axes;
  const std::vector<NodeRef> names = in.is_list() ? in.children() : std::vector<NodeRef>{in};
  if (names.empty()) return in.Error("an empty list", "None, an axis or a list of axes");
  const std::vector<absl::string_view> known(sharding.axes.begin(), sharding.axes.end());
  for (const NodeRef& name : names) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t axis, name.AsChoice(known));
    for (const std::string& other : used) {
      if (other == known[axis]) return name.Error(QuoteForMessage(other), "an axis that this tensor does not use yet");
    }
    used.emplace_back(known[axis]);
    axes.emplace_back(known[axis]);
  }
  return axes;
}

absl::StatusOr<TensorSharding> ReadTensorSharding(const NodeRef& in, const OpSharding& sharding) {
  TensorSharding tensor;
  if (!sharding.is_layout()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(tensor.pieces, in.AsInts(1, kMost));
    return tensor;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> dims, in.AsList());
  if (dims.empty()) return in.Error("an empty list", "None, an axis or a list of axes for each dim");
  std::vector<std::string> used;
  for (const NodeRef& dim : dims) {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<std::string> axes, ReadAxesOfDim(dim, sharding, used));
    tensor.dims.push_back(std::move(axes));
  }
  return tensor;
}

absl::Status ReadDeviceMatrix(const NodeRef& in, OpSharding& sharding) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"device_matrix", "alias_name", "name"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(sharding.device_matrix, in["device_matrix"].AsInts(1, kMost));
  const NodeRef names = in[in["name"].present() ? "name" : "alias_name"];
  MESHWRIGHT_ASSIGN_OR_RETURN(sharding.axes, names.AsStrings());
  if (sharding.axes.size() != sharding.device_matrix.size() || sharding.axes.empty()) {
    return names.Error(absl::StrCat(sharding.axes.size(), " names"),
                       absl::StrCat("one for each of the ", sharding.device_matrix.size(), " sizes in device_matrix"));
  }
  for (size_t i = 0; i < sharding.axes.size(); ++i) {
    const std::string& axis = sharding.axes[i];
    const NodeRef at = names.children()[i];
    if (axis.empty() || axis == "None") return at.Error(QuoteForMessage(axis), "a name for an axis");
    if (axis == "interleaved_parallel")
      return at.Locate(absl::UnimplementedError("interleaved_parallel is not supported"));
    for (size_t j = 0; j < i; ++j) {
      if (sharding.axes[j] == axis) return at.Error(absl::StrCat(QuoteForMessage(axis), " twice"), "different names");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Parallel> ReadParallel(const NodeRef& in, const Training& training, ParallelMode default_mode) {
  Parallel parallel;
  parallel.parallel_mode = default_mode;
  if (!in.present()) return parallel;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"parallel_mode",
                                           "search_mode",
                                           "auto_parallel_search_mode",
                                           "device_num",
                                           "global_rank",
                                           "dataset_strategy",
                                           "full_batch",
                                           "gradients_mean",
                                           "gradient_fp32_sync",
                                           "parameter_broadcast",
                                           "enable_alltoall",
                                           "grad_accumulation_step",
                                           "all_reduce_fusion_config",
                                           "comm_fusion",
                                           "enable_parallel_optimizer",
                                           "parallel_optimizer_config",
                                           "optimizer_weight_shard_size",
                                           "pipeline_stages",
                                           "pipeline_config",
                                           "pipeline_loss",
                                           "micro_batches",
                                           "micro_batch",
                                           "tensor_parallel",
                                           "data_parallel",
                                           "expert_parallel",
                                           "sequence_parallel",
                                           "recompute",
                                           "strategy_ckpt_load_file",
                                           "strategy_ckpt_save_file"}));
  MESHWRIGHT_RETURN_IF_ERROR(ReadModes(in, parallel));
  MESHWRIGHT_RETURN_IF_ERROR(ReadDataset(in, parallel));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.gradients_mean, in["gradients_mean"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.gradient_fp32_sync, in["gradient_fp32_sync"].AsBoolOr(true));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.parameter_broadcast, in["parameter_broadcast"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.enable_alltoall, in["enable_alltoall"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.grad_accumulation_step, in["grad_accumulation_step"].AsIntOr(1, 1, kMost));
  MESHWRIGHT_RETURN_IF_ERROR(ReadFusion(in, parallel));
  MESHWRIGHT_RETURN_IF_ERROR(ReadParallelOptimizer(in, parallel));
  MESHWRIGHT_RETURN_IF_ERROR(ReadPipeline(in, parallel));
  MESHWRIGHT_RETURN_IF_ERROR(ReadOwnKeys(in, parallel));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.strategy_ckpt_load_file, in["strategy_ckpt_load_file"].AsStringOr(""));
  MESHWRIGHT_ASSIGN_OR_RETURN(parallel.strategy_ckpt_save_file, in["strategy_ckpt_save_file"].AsStringOr(""));
  MESHWRIGHT_RETURN_IF_ERROR(CheckTogether(in, parallel, training));
  return parallel;
}

absl::StatusOr<OpSharding> ReadSharding(const NodeRef& op, const NodeRef& layouts, size_t num_inputs) {
  OpSharding sharding;
  NodeRef inputs = op["shard"];
  if (inputs.is_map()) {
    MESHWRIGHT_RETURN_IF_ERROR(inputs.CheckKeys({"layout", "in_strategy"}));
    MESHWRIGHT_RETURN_IF_ERROR(layouts.AsMapIfPresent().status());
    std::vector<absl::string_view> names;
    const std::vector<NodeRef> known = layouts.children();
    for (const NodeRef& layout : known) names.push_back(layout.key());
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, inputs["layout"].AsChoice(names));
    MESHWRIGHT_RETURN_IF_ERROR(ReadDeviceMatrix(known[index], sharding));
    inputs = inputs["in_strategy"];
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> tensors, inputs.AsList());
  if (tensors.size() != num_inputs) {
    return inputs.Error(absl::StrCat("a list of ", tensors.size()),
                        absl::StrCat("one entry for each of the ", num_inputs, " inputs"));
  }
  for (const NodeRef& tensor : tensors) {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorSharding read, ReadTensorSharding(tensor, sharding));
    sharding.inputs.push_back(std::move(read));
  }
  const NodeRef output = op["out_strategy"];
  if (!output.present()) return sharding;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> outputs, output.AsList());
  if (outputs.size() != 1) return output.Error(absl::StrCat("a list of ", outputs.size()), "one entry, for the output");
  MESHWRIGHT_ASSIGN_OR_RETURN(sharding.output, ReadTensorSharding(outputs[0], sharding));
  return sharding;
}

}  // namespace meshwright
