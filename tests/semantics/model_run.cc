#include "tests/semantics/model_run.h"

#include <utility>

#include "costmodel/library.h"
#include "ir/status.h"
#include "planner/search/search.h"
#include "tests/semantics/play.h"
#include "tools/flags.h"
#include "tools/session.h"
#include "tools/strategy_files.h"
#include "tools/training_data.h"

namespace meshwright {

absl::StatusOr<Plan> PlanModel(const std::string& text, int64_t ranks, const std::vector<std::string>& flags) {
  std::vector<FlagSpec> specs = StrategyFlags();
  specs.insert(specs.end(), StrategyFileFlags().begin(), StrategyFileFlags().end());
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags parsed, Flags::Parse(specs, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster host, MakeClusterOfDevices("host", ranks));
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel({"model.yaml", text}, parsed, std::move(host)));
  MESHWRIGHT_RETURN_IF_ERROR(LoadStrategies(parsed, plan.session));
  SearchOptions options;
  options.keep = 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(SearchResult found, Search(plan.session.problem, options));
  plan.strategy = std::move(found.ranked.front().strategy);
  return plan;
}

absl::StatusOr<ModelRun> RunModel(const std::string& text, int64_t ranks, int64_t steps,
                                  const std::vector<std::string>& flags) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, PlanModel(text, ranks, flags));
  ModelRun run;
  run.notices = plan.session.notices;
  MESHWRIGHT_ASSIGN_OR_RETURN(run.program, ProgramOf(plan));
  const Training& training = plan.session.file->training;
  std::vector<InputSpec> inputs;
  if (const auto* model = std::get_if<OperatorModel>(&plan.session.file->model)) inputs = model->inputs;
  RunOptions options;
  options.steps = steps;
  options.seed = static_cast<uint64_t>(training.seed);
  options.keep_parameters = true;
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(training, inputs, options.seed, ""));
  MESHWRIGHT_ASSIGN_OR_RETURN(run.result, Play(run.program, options, *data.source));
  return run;
}

}  // namespace meshwright
