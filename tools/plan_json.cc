#include <utility>

#include "tools/json_text.h"
#include "tools/plan_facts.h"
#include "tools/plan_report.h"
#include "tools/track_record.h"

namespace meshwright {
namespace {

Json StrategyJson(const Candidate& candidate, const std::vector<OperatorRow>* operators) {
  const Strategy& s = candidate.strategy;
  Json out;
  if (operators == nullptr) {
    const Degrees& d = candidate.degrees;
    out["data_parallel"] = d.data;
    out["tensor_parallel"] = d.tensor;
    out["pipeline_stages"] = d.pipeline;
    out["expert_parallel"] = d.expert;
    out["expert_groups"] = d.expert_groups;
    out["spread_experts"] = d.spread_experts;
    out["context_parallel"] = d.context;
    if (d.context > 1) out["context_exchange"] = std::string(NameOf(d.exchange));
    out["sequence_parallel"] = d.sequence_parallel;
    out["microbatch"] = d.microbatch;
  } else {
    out["pipeline_stages"] = s.stages;
  }
  out["microbatches"] = s.microbatches;
  out["schedule"] = std::string(NameOf(s.schedule));
  out["chunks"] = s.chunks;
  out["recompute"] = std::string(NameOf(s.recompute));
  out["recompute_ops"] = s.recompute_ops;
  out["parallel_optimizer"] = s.parallel_optimizer;
  out["shard_parameters"] = s.shard_parameters;
  if (GroupOf(candidate) > 1) out["optimizer_weight_shard_size"] = GroupOf(candidate);
  out["gradient_accumulation_shard"] = s.gradient_accumulation_shard;
  out["parallel_optimizer_threshold_bytes"] = s.parallel_optimizer_threshold.raw();
  out["bucket_bytes"] = s.bucket.raw();
  out["gradients_mean"] = s.gradients_mean;
  out["gradient_dtype"] = std::string(NameOf(s.gradient_dtype));
  out["loss_divisor"] = s.loss_divisor;
  out["ranks"] = s.mesh.num_ranks();
  out["mesh"] = meshwright::ToText(s.mesh);
  if (!s.layers_per_stage.empty()) out["layers_per_stage"] = s.layers_per_stage;
  if (operators == nullptr) {
    Json rules = Json::object();
    for (const LabelRule& rule : s.rules) {
      Json axes = Json::array();
      for (const AxisId axis : rule.axes) axes.push_back(s.mesh.axis(axis).name);
      rules[rule.label] = std::move(axes);
    }
    out["rules"] = std::move(rules);
    return out;
  }
  Json rows = Json::array();
  for (const OperatorRow& row : *operators) {
    rows.push_back(Json{{"name", row.name}, {"op", row.kind}, {"in_strategy", row.in_strategy}});
  }
  out["operators"] = std::move(rows);
  return out;
}

}  // namespace

Json ToJson(const Prediction& p) {
  Json out;
  out["step_time_s"] = JsonSeconds(p.step);
  out["mfu"] = p.mfu;
  out["tokens_per_second"] = p.tokens_per_second;
  out["peak_memory_bytes"] = p.peak.raw();
  out["arena_bytes"] = p.arena.raw();
  out["capacity_bytes"] = p.capacity.raw();
  out["dense_peak_flops_per_second"] = p.peak_flops.raw();
  out["critical_stage"] = p.critical_class;
  out["time_s"] = ToJson(p.time);
  out["fullest_stage"] = p.fullest_class;
  Json memory = ToJson(p.memory);
  for (const auto& [name, bytes] : p.outside) memory[JsonKey(name)] = bytes.raw();
  out["memory_bytes"] = std::move(memory);
  return out;
}

Json ToJson(const PlanReport& report) {
  const Problem& problem = report.session->problem;
  const SearchResult& result = report.result;
  Json out;
  out["schema"] = "meshwright/plan_report/1";
  out["model"] = Json{{"name", problem.name},
                      {"parameters", report.num_parameters},
                      {"active_parameters", ActiveParameters(report)},
                      {"trainable_parameters", report.num_trainable},
                      {"batch", problem.batch},
                      {"tokens_per_row", problem.tokens_per_row}};
  out["cluster"] = Json{{"device", problem.cluster.device.name},
                        {"nodes", problem.cluster.nodes},
                        {"devices_per_node", problem.cluster.devices_per_node},
                        {"devices", problem.cluster.num_devices()},
                        {"idle_devices", report.session->idle_devices},
                        {"estimated", Estimates(problem.cluster)}};
  const auto operators = [&](size_t i) { return report.operators.empty() ? nullptr : &report.operators[i]; };
  if (report.trainer != nullptr) out["trainer"] = std::string(report.trainer->name);
  out["predicted"] = ToJson(Best(report).prediction);
  if (report.trainer != nullptr) out["cpu_share"] = report.cpu_share;
  if (report.at_slowest.has_value()) out["at_slowest_device"] = ToJson(*report.at_slowest);
  if (report.usual.has_value()) {
    out["usual_trainer"] =
        Json{{"trainer", std::string(UsualTrainer(*report.session).name)}, {"predicted", ToJson(*report.usual)}};
  }
  if (const double run = RunSeconds(report); run > 0) out["run"] = Json{{"tokens", report.tokens}, {"run_s", run}};
  if (const TrackRecord* const record = RecordOf(report); record != nullptr) {
    out["track_record"] = Json{{"kind", record->name},        {"predicted_s", JsonSeconds(LikeARun(report).step)},
                               {"runs", record->runs},        {"median_error", record->median},
                               {"measured_low", record->low}, {"measured_high", record->high}};
  }
  out["strategy"] = StrategyJson(Best(report), operators(0));
  Json pruned = Json::object();
  for (const auto& [reason, count] : result.pruned) pruned[reason] = count;
  out["search"] =
      Json{{"considered", result.considered}, {"simulated", result.simulated}, {"pruned", std::move(pruned)},
           {"not_tried", result.not_tried},   {"guarantee", result.guarantee}, {"seconds", result.seconds}};
  Json alternatives = Json::array();
  for (size_t i = 1; i < result.ranked.size(); ++i) {
    alternatives.push_back(Json{{"predicted", ToJson(result.ranked[i].prediction)},
                                {"strategy", StrategyJson(result.ranked[i], operators(i))}});
  }
  out["alternatives"] = std::move(alternatives);
  return out;
}

}  // namespace meshwright
