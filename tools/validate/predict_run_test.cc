#include "tools/validate/predict_run.h"

#include "costmodel/cost_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/search/degrees.h"
#include "planner/search/evaluate.h"
#include "tools/validate/row_testing.h"
#include "tools/validate/run_problem.h"

namespace meshwright {
namespace {

// Eight replicas on two nodes, over four of which the experts lie. What is not an expert's is gathered and reduced over
// 4 x 2 ranks, the experts' weights over pairs: not over pairs of eight.
TEST(PredictRunTest, GroupsOfExpertsAreThoseOfTheProgram) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"model", "GPT 8x1B"},
                                                     {"gpu_type", "H100"},
                                                     {"attention", "flash"},
                                                     {"tp", "1"},
                                                     {"pp", "2"},
                                                     {"dp", "8"},
                                                     {"ep", "4"},
                                                     {"zero_fsdp", "ZeRO-1"}}));
  ASSERT_EQ(run.degrees.data, 8);
  ASSERT_EQ(run.degrees.expert, 4);
  ASSERT_OK_AND_ASSIGN(const Prediction prediction, PredictRun(run));

  const Problem problem = ProblemOf(run);
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, run.degrees));
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(problem.batch / strategy.microbatches));
  ASSERT_OK_AND_ASSIGN(const Evaluation program, EvaluateGraph(problem, graph, CostModel(run.cluster), strategy));
  EXPECT_GT(program.prediction.time[TimeUse::kGradientCollective], Nanos());
  EXPECT_EQ(prediction.step, program.prediction.step);
}

// Six replicas divide neither 1024 rows nor 4096: eight stand for them, whose collectives are of six.
TEST(PredictRunTest, ReplicasThatDivideNothing) {
  const Cells cells = {{"attention", "flash"},
                       {"tp", "1"},
                       {"pp", "1"},
                       {"dp", "6"},
                       {"gpus", "6"},
                       {"gpus_per_node", "1"},
                       {"interconnect", "1 x 10Gb"},
                       {"global_batch_seqs", "48"},
                       {"micro_batch_seqs", "8"},
                       {"zero_fsdp", "ZeRO-1"}};
  ASSERT_OK_AND_ASSIGN(const TrainingRun six, RunOf(cells));
  ASSERT_EQ(WithDividingDegree(six).degrees.data, 8);
  ASSERT_OK_AND_ASSIGN(const Prediction prediction, PredictRun(six));
  ASSERT_OK_AND_ASSIGN(const Prediction eight, PredictRun(WithDividingDegree(six)));
  EXPECT_LT(prediction.step, eight.step);
}

}  // namespace
}  // namespace meshwright
