#include "tools/plan_report.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "costmodel/device_file.h"
#include "ir/cluster.h"
#include "ir/status.h"
#include "models/decoder.h"
#include "planner/search/evaluate.h"
#include "tools/export/cpu_pace.h"
#include "tools/export/trainer_prediction.h"
#include "tools/plan_facts.h"
#include "tools/slowest_device.h"
#include "tools/track_record.h"

namespace meshwright {

int64_t GroupOf(const Candidate& candidate) {
  if (!candidate.strategy.parallel_optimizer) return 0;
  const Degrees& d = candidate.degrees;
  return d.copies > 1 ? d.data * d.context / d.copies : std::max<int64_t>(0, candidate.strategy.optimizer_shard_size);
}

const TrackRecord* RecordOf(const PlanReport& report) {
  const Problem& problem = report.session->problem;
  const auto* const decoder = std::get_if<DecoderConfig>(&report.session->file->model);
  if (decoder == nullptr || problem.cluster.device.generation == Generation::kHost) return nullptr;
  const Candidate& best = Best(report);
  return &TrackRecordOf(KindOf({.adapters = report.session->file->training.lora.has_value(),
                                .experts = decoder->experts,
                                .sequence = problem.tokens_per_row,
                                .context = best.degrees.context,
                                .shard_parameters = best.strategy.shard_parameters},
                               problem.cluster));
}

int64_t ActiveParameters(const PlanReport& report) {
  const auto* const decoder = std::get_if<DecoderConfig>(&report.session->file->model);
  return report.num_parameters - (decoder == nullptr ? 0 : IdleParameters(*decoder, report.session->file->training));
}

const Trainer& UsualTrainer(const Session& session) {
  return session.file->training.lora.has_value() ? kUsualTrainerOfAdapters : kUsualTrainer;
}

const Prediction& LikeARun(const PlanReport& report) {
  return report.usual.has_value() ? *report.usual : Best(report).prediction;
}

double RunSeconds(const PlanReport& report) {
  const double pace = report.at_slowest.value_or(Best(report).prediction).tokens_per_second;
  return pace > 0 ? report.tokens / pace : 0;
}

std::vector<std::string> Estimates(const Cluster& cluster) {
  std::vector<std::string> names;
  const std::vector<AttentionConstants>& attention = cluster.device.attention;
  for (const Provenance& row : cluster.device.provenance) {
    const bool other = !attention.empty() && absl::StartsWith(row.what, kAttentionProvenance) &&
                       row.what != absl::StrCat(kAttentionProvenance, attention.front().kernel);
    if (row.estimated && !other && std::find(names.begin(), names.end(), row.what) == names.end())
      names.push_back(row.what);
  }
  return names;
}

absl::StatusOr<PlanReport> MakeReport(const Session& session, SearchResult result, const Trainer* trainer) {
  PlanReport report;
  report.session = &session;
  report.trainer = trainer;
  report.tokens = session.file->training.tokens;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, session.problem.graph(session.problem.batch));
  report.num_parameters = graph.NumParameters();
  report.num_trainable = graph.NumTrainableParameters();
  if (!session.file->is_decoder()) {
    for (const Candidate& candidate : result.ranked) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation evaluation, Evaluate(session.problem, candidate.strategy));
      report.operators.push_back(OperatorRows(graph, candidate.strategy, evaluation.program));
    }
  }
  report.result = std::move(result);
  const Strategy& best = Best(report).strategy;
  const Plan plan{session, best, PromiseOf(Best(report).prediction)};
  if (trainer != nullptr) {
    MESHWRIGHT_ASSIGN_OR_RETURN(report.cpu_share, ShareOfCpu(*trainer, plan, Best(report).prediction.step));
    return report;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(report.at_slowest, PredictAtSlowest(session.problem, best));
  if (RecordOf(report) == nullptr) return report;
  absl::StatusOr<TrainerPrediction> usual = PredictUnder(UsualTrainer(session), plan);
  if (usual.ok()) report.usual = std::move(usual->prediction);
  return report;
}

}  // namespace meshwright
