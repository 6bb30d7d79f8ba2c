#include "models/knobs.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr int64_t kMostDevices = 4096;  // S1.2
constexpr int64_t kMost = int64_t{1} << 32;
constexpr double kSmallest = 1e-300, kLargest = 1e300;  // of what must be above 0

// --- readers of common forms: a field and its range ------------------------------------------------------------------

template <auto kField, int64_t kMin, int64_t kMax>
absl::Status Int(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.*kField, in.AsInt(kMin, kMax));
  return absl::OkStatus();
}
template <auto kField>
absl::Status Bool(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.*kField, in.AsBool());
  return absl::OkStatus();
}
template <auto kField>
absl::Status Text(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.*kField, in.AsString());
  return absl::OkStatus();
}
template <auto kField, const auto& kNames>
absl::Status Choice(const NodeRef& in, Parallel& p) {
  using Field = std::remove_reference_t<decltype(p.*kField)>;
  if constexpr (std::is_enum_v<Field>) {
    MESHWRIGHT_ASSIGN_OR_RETURN(p.*kField, in.AsEnum<Field>(kNames));
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(p.*kField, in.AsEnum<typename Field::value_type>(kNames));
  }
  return absl::OkStatus();
}
// The knobs of the cost model.
template <auto kField>
absl::Status CostAboveZero(const NodeRef& in, Parallel& p) {
  absl::StatusOr<double> value = in.AsDouble(kSmallest, kLargest);
  if (!value.ok()) return in.Error(in.text(), "a number above 0");
  p.cost_model.*kField = *value;
  return absl::OkStatus();
}
template <auto kField>
absl::Status CostShare(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.cost_model.*kField, in.AsDouble(0, 1));
  return absl::OkStatus();
}
template <auto kField>
absl::Status CostAtLeastZero(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.cost_model.*kField, in.AsDouble(0, kLargest));
  return absl::OkStatus();
}
template <auto kField>
absl::Status CostBool(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.cost_model.*kField, in.AsBool());
  return absl::OkStatus();
}

// --- readers of single knobs -----------------------------------------------------------------------------------------

absl::Status OldSearchMode(const NodeRef& in, Parallel& p) {
  p.warnings.push_back("auto_parallel_search_mode is the old name of search_mode");
  MESHWRIGHT_ASSIGN_OR_RETURN(p.search_mode, in.AsEnum<SearchKnob>(kSearchModeNames));
  return absl::OkStatus();
}

// S10.4. An empty list is the default.
absl::StatusOr<std::vector<int64_t>> ReadIndices(const NodeRef& in) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<int64_t> values, in.AsInts(0, kMost));
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] <= values[i - 1]) {
      return in.children()[i].Error(absl::StrCat(values[i], " after ", values[i - 1]), "ascending indices");
    }
  }
  return values;
}

absl::Status AllReduceFusionConfig(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.all_reduce_fusion_config, ReadIndices(in));
  return absl::OkStatus();
}

absl::Status ReadLayersPerStage(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.layers_per_stage, in.AsInts(0, kMost));
  return absl::OkStatus();
}

bool LooksLikeInt(const NodeRef& in) {
  int64_t value = 0;
  return in.is_scalar() && !in.quoted() && absl::SimpleAtoi(in.text(), &value);
}

absl::Status CheckInts(const NodeRef& in) {
  if (!in.is_list()) return WithKind("E-TYPE", in.AsInts(0).status());
  for (const NodeRef& child : in.children()) {
    if (!LooksLikeInt(child)) return WithKind("E-TYPE", child.AsInt(0).status());
  }
  return absl::OkStatus();
}

// S10.5: {mode, config}.
absl::Status ReadFusionRule(const NodeRef& in, bool index_allowed, std::optional<FusionRule>& result) {
  if (!in.present()) return absl::OkStatus();
  if (!in.is_map()) return WithKind("E-TYPE", in.AsMap().status());
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-KEY", in.CheckKeys({"mode", "config"})));
  const absl::Span<const absl::string_view> modes(kFusionModeNames, index_allowed ? 3 : 2);
  FusionRule rule;
  const absl::StatusOr<FusionRule::Mode> mode = in["mode"].AsEnum<FusionRule::Mode>(modes);
  if (!mode.ok()) return WithKind("E-KEY", mode.status());
  rule.mode = *mode;
  const NodeRef config = in["config"];
  if (!config.present()) {
    return WithKind("E-KEY", config.Error("nothing", "a config for the mode",
                                          "add `config: None` for auto, a number of MB for size, a list of indices for "
                                          "index"));
  }
  switch (rule.mode) {
    case FusionRule::Mode::kAuto:
      if (!config.is_null() && config.text() != "None") {
        return config.Error(absl::StrCat("a config for the mode auto"), "None");
      }
      break;
    case FusionRule::Mode::kSize: {
      if (!LooksLikeInt(config)) return WithKind("E-TYPE", config.AsInt(1, kMost).status());
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t megabytes, config.AsInt(1, kMost));
      rule.size = MiB(megabytes);
      break;
    }
    case FusionRule::Mode::kIndex:
      MESHWRIGHT_RETURN_IF_ERROR(CheckInts(config));
      MESHWRIGHT_ASSIGN_OR_RETURN(rule.last, ReadIndices(config));
      if (rule.last.empty()) return config.Error("an empty list", "indices");
      break;
  }
  result = std::move(rule);
  return absl::OkStatus();
}

absl::Status ReadCommFusion(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-KEY", in.CheckKeys({"openstate", "allreduce", "allgather", "reducescatter"})));
  const absl::StatusOr<bool> open = in["openstate"].AsBoolOr(true);
  if (!open.ok()) return WithKind("E-TYPE", open.status());
  p.comm_fusion.open = *open;
  MESHWRIGHT_RETURN_IF_ERROR(ReadFusionRule(in["allreduce"], true, p.comm_fusion.allreduce));
  MESHWRIGHT_RETURN_IF_ERROR(ReadFusionRule(in["allgather"], false, p.comm_fusion.allgather));
  return ReadFusionRule(in["reducescatter"], false, p.comm_fusion.reducescatter);
}

absl::Status ReadDatasetStrategy(const NodeRef& in, Parallel& p) {
  if (!in.is_list()) {
    constexpr absl::string_view kNames[] = {"data_parallel", "full_batch"};
    MESHWRIGHT_ASSIGN_OR_RETURN(p.dataset_strategy, in.AsEnum<DatasetStrategy>(kNames));
    return absl::OkStatus();
  }
  std::vector<std::vector<int64_t>> tuples;
  for (const NodeRef& tuple : in.children()) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckInts(tuple));
    MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<int64_t> pieces, tuple.AsInts(1, kMostDevices));
    tuples.push_back(std::move(pieces));
  }
  if (tuples.empty()) return in.Error("an empty list", "one list per input");
  p.dataset_tuples = std::move(tuples);
  p.dataset_strategy = DatasetStrategy::kTuples;
  return absl::OkStatus();
}

absl::Status ReadFullBatch(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool full, in.AsBool());
  p.dataset_strategy = full ? DatasetStrategy::kFullBatch : DatasetStrategy::kDataParallel;
  p.dataset_tuples.clear();
  return absl::OkStatus();
}

absl::Status ReadShardSize(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size, in.AsInt(-1, kMostDevices));
  p.optimizer_weight_shard_size = size;
  if (size == 0) return in.Error("0", "-1 (all replicas) or a number of replicas");
  return absl::OkStatus();
}

// S11.9.
absl::Status ReadParallelOptimizerConfig(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_RETURN_IF_ERROR(
      in.CheckKeys({"gradient_accumulation_shard", "parallel_optimizer_threshold", "optimizer_weight_shard_size"}));
  const absl::StatusOr<bool> shard = in["gradient_accumulation_shard"].AsBoolOr(true);
  if (!shard.ok()) return WithKind("E-TYPE", shard.status());
  p.gradient_accumulation_shard = *shard;
  for (const absl::string_view key : {"parallel_optimizer_threshold", "optimizer_weight_shard_size"}) {
    if (in[key].present() && !LooksLikeInt(in[key])) return WithKind("E-TYPE", in[key].AsInt(-1).status());
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t kilobytes, in["parallel_optimizer_threshold"].AsIntOr(64, 0, kMost));
  p.parallel_optimizer_threshold = KiB(kilobytes);
  const NodeRef size = in["optimizer_weight_shard_size"];
  return size.present() ? ReadShardSize(size, p) : absl::OkStatus();
}

absl::Status ReadContextExchange(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const size_t way, in.AsChoice(absl::MakeConstSpan(kContextExchangeNames).subspan(1)));
  p.context_exchange = static_cast<ContextExchange>(way + 1);
  return absl::OkStatus();
}

// S12.9.
absl::Status ReadPipelineConfig(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-KEY", in.CheckKeys({"pipeline_scheduler", "pipeline_interleave"})));
  MESHWRIGHT_ASSIGN_OR_RETURN(p.schedule, in["pipeline_scheduler"].AsEnumOr(p.schedule, kScheduleNames));
  const absl::StatusOr<bool> interleave = in["pipeline_interleave"].AsBoolOr(false);
  if (!interleave.ok()) return WithKind("E-TYPE", interleave.status());
  p.pipeline_interleave = *interleave;
  if (p.pipeline_interleave && ChunksOf(p.schedule).has_value()) {
    return in["pipeline_interleave"].Error("true", absl::StrCat("false with ", NameOf(p.schedule)));
  }
  return absl::OkStatus();
}

// A number of bytes, as the interface that users know has it, or one with a unit.
absl::Status ReadCapacity(const NodeRef& in, Parallel& p) {
  double bytes = 0;
  if (absl::SimpleAtod(in.text(), &bytes) && !in.quoted()) {
    if (!(bytes >= 1 && bytes < 1e18)) return in.Error(in.text(), "a number of bytes above 0");
    p.cost_model.device_memory_capacity = Bytes(static_cast<int64_t>(bytes));
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(p.cost_model.device_memory_capacity, in.AsBytes());
  if (p.cost_model.device_memory_capacity <= Bytes(0)) return in.Error(in.text(), "more than 0 bytes");
  return absl::OkStatus();
}

absl::Status ReadRunPhase(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t phase, in.AsInt(0, 1));
  p.cost_model.inference = phase == 1;
  return absl::OkStatus();
}

absl::Status ReadSliceSize(const NodeRef& in, Parallel& p) {
  MESHWRIGHT_ASSIGN_OR_RETURN(p.cost_model.tensor_slice_align_size, in.AsInt(1, 1024));
  return absl::OkStatus();
}

absl::Status ReadEpsilon(const NodeRef& in, Parallel& p) {
  const absl::StatusOr<double> value = in.AsDouble(kSmallest, 1);
  if (!value.ok()) return in.Error(in.text(), "a number above 0, at most 1");
  p.cost_model.dp_algo_approxi_epsilon = *value;
  return absl::OkStatus();
}

// --- the table -------------------------------------------------------------------------------------------------------

constexpr auto kIgnored = Elsewhere::kIgnored;
constexpr auto kState = Elsewhere::kState;
constexpr Modes kAutoOnly = ModeBit(ParallelMode::kAuto);
constexpr Modes kOptimizerModes = kPlannedModes | ModeBit(ParallelMode::kDataParallel);
using P = Parallel;
using C = CostModelKnobs;
using T = KnobType;

// clang-format off
constexpr Knob kKnobs[] = {
    // name, type, default, acts in, elsewhere, reader                                                             S1.2
    {"device_num", T::kInt, "0", kAnyMode, kIgnored, Int<&P::device_num, 1, kMostDevices>},
    {"global_rank", T::kInt, "0", kAnyMode, kIgnored, Int<&P::global_rank, 0, kMostDevices - 1>},
    {"gradients_mean", T::kBool, "false", kManyRanks, kIgnored, Bool<&P::gradients_mean>},
    {"gradient_fp32_sync", T::kBool, "true", kPlannedModes, kIgnored, Bool<&P::gradient_fp32_sync>},
    {"parallel_mode", T::kText, "stand_alone", kAnyMode, kIgnored, Choice<&P::parallel_mode, kParallelModeNames>},
    {"search_mode", T::kText, "dynamic_programming", kAutoOnly, kIgnored, Choice<&P::search_mode, kSearchModeNames>},
    {"auto_parallel_search_mode", T::kText, "dynamic_programming", kAutoOnly, kIgnored, OldSearchMode},
    {"all_reduce_fusion_config", T::kInts, "[]", kManyRanks, kIgnored, AllReduceFusionConfig},
    {"comm_fusion", T::kMap, "None", kManyRanks, kIgnored, ReadCommFusion},
    {"enable_parallel_optimizer", T::kBool, "false", kOptimizerModes, kState, Bool<&P::enable_parallel_optimizer>},
    {"parallel_optimizer_config", T::kMap, "{}", kOptimizerModes, kIgnored, ReadParallelOptimizerConfig},
    {"optimizer_weight_shard_size", T::kInt, "-1", kPlannedModes, kIgnored, ReadShardSize},
    {"parameter_broadcast", T::kBool, "false", kByHandModes, kState, Bool<&P::parameter_broadcast>},
    {"full_batch", T::kBool, "false", kPlannedModes, kState, ReadFullBatch},
    {"dataset_strategy", T::kTextOrLists, "data_parallel", kPlannedModes, kState, ReadDatasetStrategy},
    {"pipeline_stages", T::kInt, "1", kPlannedModes, kState, Int<&P::pipeline_stages, 1, kMostDevices>},
    {"pipeline_config", T::kMap, "{pipeline_scheduler: 1f1b, pipeline_interleave: false}", kPlannedModes, kIgnored, ReadPipelineConfig},
    {"strategy_ckpt_save_file", T::kText, "\"\"", kPlannedModes, kIgnored, Text<&P::strategy_ckpt_save_file>},
    {"strategy_ckpt_load_file", T::kText, "\"\"", kPlannedModes, kIgnored, Text<&P::strategy_ckpt_load_file>},
    {"group_ckpt_save_file", T::kText, "\"\"", kPlannedModes, kIgnored, Text<&P::group_ckpt_save_file>},
    {"enable_alltoall", T::kBool, "false", kPlannedModes, kIgnored, Bool<&P::enable_alltoall>},
    {"grad_accumulation_step", T::kInt, "1", kAnyMode, kIgnored, Int<&P::grad_accumulation_step, 1, kMost>},
    // The cost model of the compatible search.                                                                   S14.2
    {"device_memory_capacity", T::kBytes, "16 GiB", kAutoOnly, kIgnored, ReadCapacity},
    {"costmodel_alpha", T::kNumber, "1.0", kAutoOnly, kIgnored, CostAboveZero<&C::alpha>},
    {"costmodel_beta", T::kNumber, "50.0", kAutoOnly, kIgnored, CostAboveZero<&C::beta>},
    {"costmodel_gamma", T::kNumber, "0.001", kAutoOnly, kIgnored, CostShare<&C::gamma>},
    {"costmodel_communi_threshold", T::kNumber, "2048", kAutoOnly, kIgnored, CostAtLeastZero<&C::communi_threshold>},
    {"costmodel_communi_const", T::kNumber, "3072", kAutoOnly, kIgnored, CostAtLeastZero<&C::communi_const>},
    {"costmodel_communi_bias", T::kNumber, "1024", kAutoOnly, kIgnored, CostAtLeastZero<&C::communi_bias>},
    {"run_phase", T::kInt, "0", kAutoOnly, kIgnored, ReadRunPhase},
    {"costmodel_simplify_cal", T::kBool, "true", kAutoOnly, kIgnored, CostBool<&C::simplify_cal>},
    {"multi_subgraphs", T::kBool, "false", kAutoOnly, kIgnored, CostBool<&C::multi_subgraphs>},
    {"fully_use_devices", T::kBool, "true", kAutoOnly, kIgnored, CostBool<&C::fully_use_devices>},
    {"elementwise_op_strategy_follow", T::kBool, "false", kAutoOnly, kIgnored, CostBool<&C::elementwise_op_strategy_follow>},
    {"tensor_slice_align_enable", T::kBool, "false", kAutoOnly, kIgnored, CostBool<&C::tensor_slice_align_enable>},
    {"tensor_slice_align_size", T::kInt, "16", kAutoOnly, kIgnored, ReadSliceSize},
    {"dp_algo_enable_approxi", T::kBool, "false", kAutoOnly, kIgnored, CostBool<&C::dp_algo_enable_approxi>},
    {"dp_algo_approxi_epsilon", T::kNumber, "0.1", kAutoOnly, kIgnored, ReadEpsilon},
    {"dp_algo_single_loop", T::kBool, "false", kAutoOnly, kIgnored, CostBool<&C::dp_algo_single_loop>},
    {"rp_matmul_mem_coef", T::kNumber, "0.25", kAutoOnly, kIgnored, CostAboveZero<&C::rp_matmul_mem_coef>},
    {"search_prices", T::kText, "bytes", kAutoOnly, kIgnored, Choice<&P::search_prices, kSearchPricesNames>},  // ours
    // Ours: what the planner would decide.
    {"pipeline_loss", T::kText, "sum", kAnyMode, kIgnored, Choice<&P::pipeline_loss, kPipelineLossNames>},
    {"virtual_pipeline_stages", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::virtual_pipeline_stages, 1, kMost>},
    {"layers_per_stage", T::kInts, "[]", kPlannedModes, kIgnored, ReadLayersPerStage},
    {"micro_batches", T::kInt, "None", kAnyMode, kIgnored, Int<&P::micro_batches, 1, kMost>},
    {"micro_batch", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::micro_batch, 1, kMost>},
    {"tensor_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::tensor_parallel, 1, kMost>},
    {"data_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::data_parallel, 1, kMost>},
    {"expert_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::expert_parallel, 1, kMost>},
    {"dispatcher", T::kText, "None", kPlannedModes, kIgnored, Choice<&P::dispatcher, kDispatcherNames>},
    {"spread_experts", T::kBool, "None", kPlannedModes, kIgnored, Bool<&P::spread_experts>},
    {"context_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::context_parallel, 1, kMost>},
    {"context_exchange", T::kText, "None", kPlannedModes, kIgnored, ReadContextExchange},
    {"sequence_parallel", T::kBool, "None", kPlannedModes, kIgnored, Bool<&P::sequence_parallel>},
    {"shard_parameters", T::kBool, "None", kOptimizerModes, kState, Bool<&P::shard_parameters>},
    {"max_pipeline_stages", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::max_pipeline_stages, 1, kMost>},
    {"max_tensor_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::max_tensor_parallel, 1, kMost>},
    {"max_data_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::max_data_parallel, 1, kMost>},
    {"max_expert_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::max_expert_parallel, 1, kMost>},
    {"max_context_parallel", T::kInt, "None", kPlannedModes, kIgnored, Int<&P::max_context_parallel, 1, kMost>},
    {"fuse_epilogues", T::kBool, "true", kAnyMode, kIgnored, Bool<&P::fuse_epilogues>},
    {"fuse_loss", T::kBool, "true", kAnyMode, kIgnored, Bool<&P::fuse_loss>},
    {"fuse_updates", T::kBool, "true", kAnyMode, kIgnored, Bool<&P::fuse_updates>},
    {"recompute", T::kText, "auto", kAnyMode, kIgnored, Choice<&P::recompute, kRecomputeChoiceNames>},
};
// clang-format on

std::string NamesOf(Modes modes) {
  std::vector<absl::string_view> names;
  for (size_t m = 0; m < std::size(kParallelModeNames); ++m) {
    if ((modes >> m & 1) != 0) names.push_back(kParallelModeNames[m]);
  }
  if (names.size() == 1) return std::string(names[0]);
  const absl::string_view last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

}  // namespace

absl::Span<const Knob> ParallelKnobs() { return kKnobs; }

const Knob* FindKnob(absl::string_view name) {
  for (const Knob& knob : kKnobs) {
    if (knob.name == name) return &knob;
  }
  return nullptr;
}

absl::Status CheckType(const Knob& knob, const NodeRef& in) {
  const auto wrong = [&](const absl::Status& status) { return WithKind("E-TYPE", status); };
  const absl::string_view text = in.text();
  double number = 0;
  switch (knob.type) {
    case KnobType::kInt:
      return LooksLikeInt(in) ? absl::OkStatus() : wrong(in.AsInt(0).status());
    case KnobType::kNumber:
      if (in.is_scalar() && !in.quoted() && absl::SimpleAtod(text, &number)) return absl::OkStatus();
      return wrong(in.AsDouble().status());
    case KnobType::kBytes:
      if (in.is_scalar()) return absl::OkStatus();
      return wrong(in.AsBytes().status());
    case KnobType::kBool:
      return wrong(in.AsBool().status());
    case KnobType::kText:
      return wrong(in.AsString().status());
    case KnobType::kInts:
      return CheckInts(in);
    case KnobType::kMap:
      return wrong(in.AsMap().status());
    case KnobType::kTextOrLists:
      if (!in.is_list()) return wrong(in.AsString().status());
      for (const NodeRef& child : in.children()) MESHWRIGHT_RETURN_IF_ERROR(CheckInts(child));
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CheckMode(const Knob& knob, ParallelMode mode) {
  if (ActsIn(knob, mode) || knob.elsewhere == Elsewhere::kIgnored) return absl::OkStatus();
  return StateError("needs ", NamesOf(knob.modes), ", parallel_mode is ", NameOf(mode));
}

absl::Status ReadKnobs(const NodeRef& in, Parallel& parallel) {
  std::vector<absl::string_view> names;
  for (const Knob& knob : kKnobs) names.push_back(knob.name);
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-VALUE", in.CheckKeys(names)));
  for (const NodeRef& value : in.children()) {
    const Knob* const knob = FindKnob(value.key());
    MESHWRIGHT_RETURN_IF_ERROR(CheckType(*knob, value));
    MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-VALUE", knob->read(value, parallel)));
  }
  if (parallel.global_rank.has_value() && parallel.device_num.has_value() &&
      *parallel.global_rank >= *parallel.device_num) {
    return WithKind("E-VALUE",
                    in["global_rank"].Error(absl::StrCat(*parallel.global_rank),
                                            absl::StrCat("a rank below device_num = ", *parallel.device_num)));
  }
  return absl::OkStatus();
}

absl::Status CheckModes(const NodeRef& in, Parallel& parallel) {
  for (const NodeRef& value : in.children()) {
    const Knob& knob = *FindKnob(value.key());
    if (ActsIn(knob, parallel.parallel_mode) || (value.is_scalar() && value.text() == knob.fallback)) continue;
    MESHWRIGHT_RETURN_IF_ERROR(value.Locate(CheckMode(knob, parallel.parallel_mode)));
    parallel.warnings.push_back(absl::StrCat(knob.name, " has no effect in the mode ", NameOf(parallel.parallel_mode)));
  }
  return absl::OkStatus();
}

}  // namespace meshwright
