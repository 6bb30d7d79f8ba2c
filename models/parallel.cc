#include "models/parallel.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "models/knobs.h"

namespace meshwright {
namespace {

constexpr int64_t kMost = int64_t{1} << 32;

// Which of two keys of a map comes later in the file.
bool IsLater(const NodeRef& a, const NodeRef& b) {
  return std::pair(a.line(), a.column()) > std::pair(b.line(), b.column());
}

// Where two knobs say the same thing the later one holds (S9.5, S10.4).
void KeepTheLater(const NodeRef& in, Parallel& parallel) {
  const auto warn = [&](absl::string_view a, absl::string_view b, absl::string_view later) {
    parallel.warnings.push_back(absl::StrCat(a, " and ", b, " are both set; ", later, ", the later, holds"));
  };
  const NodeRef list = in["all_reduce_fusion_config"], map = in["comm_fusion"];
  std::optional<FusionRule>& rule = parallel.comm_fusion.allreduce;
  if (rule.has_value() && !parallel.all_reduce_fusion_config.empty()) {
    const bool map_wins = IsLater(map, list);
    if (map_wins) {
      parallel.all_reduce_fusion_config.clear();
    } else {
      rule.reset();
    }
    warn("comm_fusion.allreduce", "all_reduce_fusion_config", map_wins ? "comm_fusion" : "all_reduce_fusion_config");
  }
  constexpr absl::string_view kSize = "optimizer_weight_shard_size", kConfig = "parallel_optimizer_config";
  if (const NodeRef alone = in[kSize], nested = in[kConfig][kSize]; alone.present() && nested.present()) {
    warn(kSize, absl::StrCat("that of ", kConfig), IsLater(in[kConfig], alone) ? "that of the map" : "that of its own");
  }
  const NodeRef strategy = in["dataset_strategy"], full = in["full_batch"];
  if (strategy.present() && full.present()) {
    warn("full_batch", "dataset_strategy", IsLater(full, strategy) ? "full_batch" : "dataset_strategy");
  }
}

// S12.3, S13.4.
absl::Status CheckMicroBatches(const NodeRef& in, const Parallel& p, const Training& training) {
  const std::optional<int64_t> count = p.NumMicroBatches();
  if (!count.has_value()) return absl::OkStatus();
  const NodeRef at = in[p.micro_batches.has_value() ? "micro_batches" : "grad_accumulation_step"];
  if (p.grad_accumulation_step > 1 && p.grad_accumulation_step != *count) {
    return in["grad_accumulation_step"].Error(absl::StrCat(p.grad_accumulation_step),
                                              absl::StrCat(*count, ", which micro_batches says of the same step"),
                                              "leave one of them out");
  }
  if (*count < p.pipeline_stages) {
    return at.Error(absl::StrCat(*count), absl::StrCat("at least as many as pipeline_stages = ", p.pipeline_stages));
  }
  if (training.batch % *count != 0) {
    return at.Error(absl::StrCat(*count), absl::StrCat("a divisor of the batch of ", training.batch, " rows"));
  }
  return absl::OkStatus();
}

// What holds between knobs (S1.2 to S1.4, S11.2, S12.1, S12.3, S12.11).
absl::Status CheckTogether(const NodeRef& in, const Parallel& p, const Training& training) {
  if (p.parallel_mode == ParallelMode::kStandAlone && p.device_num.value_or(1) > 1) {
    return in["device_num"].Error(absl::StrCat(*p.device_num), "1, since parallel_mode is stand_alone",
                                  "set parallel_mode");
  }
  const bool data_parallel = p.parallel_mode == ParallelMode::kDataParallel;
  if (p.enable_parallel_optimizer && data_parallel && training.optimizer.kind != OpKind::kAdamW &&
      training.optimizer.kind != OpKind::kLamb) {
    return in["enable_parallel_optimizer"].Locate(StateError(kOwnersOptimizers));
  }
  if (p.shard_parameters.value_or(false) && !p.enable_parallel_optimizer && in["enable_parallel_optimizer"].present()) {
    return in["shard_parameters"].Error("true",
                                        "false, since enable_parallel_optimizer is false: parameters are split "
                                        "with their optimizer state");
  }
  if (p.virtual_pipeline_stages.value_or(1) > 1 && !p.pipeline_interleave) {
    return in["virtual_pipeline_stages"].Error(absl::StrCat(*p.virtual_pipeline_stages),
                                               "1, since pipeline_config has no `pipeline_interleave: true`");
  }
  if (p.pipeline_stages > 1) {
    const NodeRef at = in["pipeline_stages"];
    if (p.parallel_mode == ParallelMode::kAuto && p.search_mode == SearchKnob::kDynamicProgramming) {
      return at.Locate(StateError("a pipeline needs search_mode sharding_propagation or recursive_programming"));
    }
    if (p.device_num.has_value() && *p.device_num % p.pipeline_stages != 0) {
      return at.Error(absl::StrCat(p.pipeline_stages), absl::StrCat("a divisor of device_num = ", *p.device_num));
    }
  }
  return CheckMicroBatches(in, p, training);
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

// Whether an entry of `shard` is a list of integers.
bool HoldsInts(const NodeRef& in) {
  const std::vector<NodeRef> entries = in.children();
  return in.is_list() && std::all_of(entries.begin(), entries.end(), [](const NodeRef& entry) {
           constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
           return entry.AsInt(kAny).ok();
         });
}

absl::StatusOr<TensorSharding> ReadTensorSharding(const NodeRef& in, const OpSharding& sharding) {
  TensorSharding tensor;
  if (!sharding.is_layout()) {
    const absl::StatusOr<std::vector<int64_t>> pieces = in.AsInts(1, kMost);
    if (!pieces.ok()) return WithKind(HoldsInts(in) ? "E-LAYOUT" : "E-TYPE", pieces.status());
    tensor.pieces = *pieces;
    return tensor;
  }
  const absl::StatusOr<std::vector<NodeRef>> dims = in.AsList();
  if (!dims.ok()) return WithKind("E-TYPE", dims.status());
  if (dims->empty())
    return WithKind("E-VALUE", in.Error("an empty list", "None, an axis or a list of axes for each dim"));
  std::vector<std::string> used;
  for (const NodeRef& dim : *dims) {
    absl::StatusOr<std::vector<std::string>> axes = ReadAxesOfDim(dim, sharding, used);
    if (!axes.ok()) return WithKind("E-VALUE", axes.status());
    tensor.dims.push_back(*std::move(axes));
  }
  return tensor;
}

absl::Status ReadDeviceMatrix(const NodeRef& in, OpSharding& sharding) {
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-KEY", in.CheckKeys({"device_matrix", "alias_name", "name"})));
  const absl::StatusOr<std::vector<int64_t>> sizes = in["device_matrix"].AsInts(1, kMost);
  if (!sizes.ok()) return WithKind(HoldsInts(in["device_matrix"]) ? "E-VALUE" : "E-TYPE", sizes.status());
  sharding.device_matrix = *sizes;
  const NodeRef names = in[in["name"].present() ? "name" : "alias_name"];
  const absl::StatusOr<std::vector<std::string>> axes = names.AsStrings();
  if (!axes.ok()) return WithKind("E-TYPE", axes.status());
  sharding.axes = *axes;
  if (sharding.axes.size() != sharding.device_matrix.size() || sharding.axes.empty()) {
    return names.Error(absl::StrCat(sharding.axes.size(), " names"),
                       absl::StrCat("one for each of the ", sharding.device_matrix.size(), " sizes in device_matrix"));
  }
  for (size_t i = 0; i < sharding.axes.size(); ++i) {
    const std::string& axis = sharding.axes[i];
    const NodeRef at = names.children()[i];
    if (axis.empty() || axis == "None") return at.Error(QuoteForMessage(axis), "a name for an axis");
    if (axis == kInterleavedAxis && i + 1 < sharding.axes.size()) {
      return at.Error(QuoteForMessage(axis), "it as the last axis: it splits on each device, not over devices");
    }
    for (size_t j = 0; j < i; ++j) {
      if (sharding.axes[j] == axis) return at.Error(absl::StrCat(QuoteForMessage(axis), " twice"), "different names");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Parallel> ReadParallelAlone(const NodeRef& in, ParallelMode default_mode, const ParallelFlags& flags) {
  Parallel parallel;
  parallel.parallel_mode = default_mode;
  if (in.present()) MESHWRIGHT_RETURN_IF_ERROR(ReadKnobs(in, parallel));
  parallel.parallel_mode = flags.parallel_mode.value_or(parallel.parallel_mode);
  if (flags.search_mode.has_value()) parallel.search_mode = flags.search_mode;
  if (!in.present()) return parallel;
  KeepTheLater(in, parallel);
  MESHWRIGHT_RETURN_IF_ERROR(CheckModes(in, parallel));
  return parallel;
}

absl::Status CheckParallel(const NodeRef& in, const Parallel& parallel, const Training& training) {
  return in.present() ? WithKind("E-VALUE", CheckTogether(in, parallel, training)) : absl::OkStatus();
}

absl::StatusOr<Parallel> ReadParallel(const NodeRef& in, const Training& training, ParallelMode default_mode) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Parallel parallel, ReadParallelAlone(in, default_mode));
  MESHWRIGHT_RETURN_IF_ERROR(CheckParallel(in, parallel, training));
  return parallel;
}

absl::StatusOr<OpSharding> ReadSharding(const NodeRef& op, const NodeRef& layouts, size_t num_inputs) {
  OpSharding sharding;
  NodeRef inputs = op["shard"];
  if (inputs.is_map()) {
    MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-KEY", inputs.CheckKeys({"layout", "in_strategy"})));
    MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-TYPE", layouts.AsMapIfPresent().status()));
    std::vector<absl::string_view> names;
    const std::vector<NodeRef> known = layouts.children();
    for (const NodeRef& layout : known) names.push_back(layout.key());
    const absl::StatusOr<size_t> index = inputs["layout"].AsChoice(names);
    if (!index.ok()) return WithKind("E-VALUE", index.status());
    MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-VALUE", ReadDeviceMatrix(known[*index], sharding)));
    inputs = inputs["in_strategy"];
  }
  const absl::StatusOr<std::vector<NodeRef>> tensors = inputs.AsList();
  if (!tensors.ok()) return WithKind("E-TYPE", tensors.status());
  if (tensors->size() != num_inputs) {
    return WithKind("E-LAYOUT", inputs.Error(absl::StrCat("a list of ", tensors->size()),
                                             absl::StrCat("one entry for each of the ", num_inputs, " inputs")));
  }
  const auto lists_of_ints = std::count_if(tensors->begin(), tensors->end(), HoldsInts);
  const auto lists = std::count_if(tensors->begin(), tensors->end(), [](const NodeRef& in) { return in.is_list(); });
  if (!sharding.is_layout() && lists_of_ints > 0 && lists_of_ints < lists) {
    return WithKind("E-VALUE", inputs.Error("integers for some inputs, names for others",
                                            "integers for all, or axes of one layout for all"));
  }
  for (const NodeRef& tensor : *tensors) {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorSharding read, ReadTensorSharding(tensor, sharding));
    sharding.inputs.push_back(std::move(read));
  }
  const NodeRef output = op["out_strategy"];
  if (!output.present()) return sharding;
  const absl::StatusOr<std::vector<NodeRef>> outputs = output.AsList();
  if (!outputs.ok()) return WithKind("E-TYPE", outputs.status());
  if (outputs->size() != 1) {
    return WithKind("E-LAYOUT", output.Error(absl::StrCat("a list of ", outputs->size()), "one entry, for the output"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(sharding.output, ReadTensorSharding(outputs->front(), sharding));
  return sharding;
}

}  // namespace meshwright
