#include "tools/plan_comparison.h"

#include <string>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/search/search.h"
#include "tools/cluster_flags.h"
#include "tools/export/trainer_prediction.h"
#include "tools/export/writers.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

absl::StatusOr<Plan> PlanWith(const std::vector<std::string>& args) {
  std::vector<FlagSpec> specs = StrategyFlags();
  specs.insert(specs.end(), ClusterFlags().begin(), ClusterFlags().end());
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(specs, args));
  const SourceFile source{"m.yaml",
                          "name: d\narchitecture: {decoder: {hidden: 64, layers: 4, heads: 4, vocab: 128}}\n"
                          "training: {batch: 16, sequence: 32, dtype: bfloat16, optimizer: adamw}\ncluster: {device: "
                          "h100-sxm, nodes: 1}\n"};
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel(source, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SearchResult found, Search(plan.session.problem, SearchOptions{}));
  plan.strategy = found.ranked.front().strategy;
  plan.promise = PromiseOf(found.ranked.front().prediction);
  return plan;
}

TEST(PlanComparisonTest, SaysWhatIsChosenDifferentlyAndWhatItTakes) {
  ASSERT_OK_AND_ASSIGN(const Plan a, PlanWith({"--tensor_parallel=1", "--stages=1"}));
  ASSERT_OK_AND_ASSIGN(const Plan b, PlanWith({"--tensor_parallel=2", "--stages=2", "--recompute=full"}));
  ASSERT_OK_AND_ASSIGN(const PlanComparison both, ComparePlans({"a.yaml", "b.yaml"}, a, b));
  // Each is what its own plan promised.
  EXPECT_EQ(both.predictions[0].step, a.promise.step);
  EXPECT_EQ(both.predictions[1].step, b.promise.step);
  EXPECT_EQ(both.predictions[1].peak, b.promise.peak);
  EXPECT_THAT(both.choices, Contains(Choice{"mesh", {"dp=8", "pp=2 dp=2 tp=2"}}));
  EXPECT_THAT(both.choices, Contains(Choice{"recompute", {"none", "full"}}));
  for (const Choice& choice : both.choices) {
    EXPECT_NE(choice.values[0], choice.values[1]) << choice.name;
    EXPECT_NE(choice.name, "cluster");
    EXPECT_NE(choice.name, "gradient_dtype") << "both have float32";
  }
  const std::string text = ToText(both);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(text, HasSubstr("\n  recompute               none                full\n"));
  EXPECT_THAT(text, HasSubstr("\n  rules\n    b: dp c: dp\n    b: dp c: dp "));
  EXPECT_THAT(text, HasSubstr("\nB: b.yaml\n"));
  const Json json = ToJson(both);
  EXPECT_EQ(json.at("schema"), "meshwright/plan_comparison/1");
  EXPECT_EQ(json.at("plans").at(1).at("file"), "b.yaml");
  EXPECT_EQ(json.at("choices").size(), both.choices.size());
}

// Two plans that were ranked under a trainer are compared as it runs them: what is faster there may be slower here.
TEST(PlanComparisonTest, PlansForATrainer) {
  ASSERT_OK_AND_ASSIGN(Plan a, PlanWith({"--tensor_parallel=1", "--stages=1"}));
  ASSERT_OK_AND_ASSIGN(Plan b, PlanWith({"--tensor_parallel=2", "--stages=1", "--sequence_parallel"}));
  a.promise.trainer = b.promise.trainer = "megatron";
  ASSERT_OK_AND_ASSIGN(const PlanComparison both, ComparePlans({"a", "b"}, a, b));
  ASSERT_OK_AND_ASSIGN(const TrainerPrediction under, PredictUnder(kTrainers[0], b));
  EXPECT_EQ(both.predictions[1].step, under.prediction.step);
  EXPECT_NE(both.predictions[1].step, b.promise.step);
  EXPECT_THAT(ToText(both), HasSubstr("as Megatron-LM runs them\n"));
  EXPECT_EQ(ToJson(both).at("trainer"), "megatron");
  b.promise.trainer.clear();
  ASSERT_OK_AND_ASSIGN(const PlanComparison mixed, ComparePlans({"a", "b"}, a, b));
  EXPECT_EQ(mixed.predictions[1].step, b.promise.step);
  EXPECT_THAT(ToText(mixed), HasSubstr("A is planned for megatron, B for no trainer:\nboth are compared as our own"));
  EXPECT_FALSE(ToJson(mixed).contains("trainer"));
}

TEST(PlanComparisonTest, APlanBesideItselfDiffersInNothing) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanWith({}));
  ASSERT_OK_AND_ASSIGN(const PlanComparison same, ComparePlans({"a", "a"}, plan, plan));
  EXPECT_THAT(same.choices, IsEmpty());
  EXPECT_THAT(ToText(same), HasSubstr("they choose the same"));
  EXPECT_THAT(ToText(same), HasSubstr("+0.0 %"));
}

TEST(PlanComparisonTest, ModelsAndClustersMayDiffer) {
  ASSERT_OK_AND_ASSIGN(const Plan a, PlanWith({}));
  ASSERT_OK_AND_ASSIGN(const Plan b, PlanWith({"--batch=32", "--device=a100-sxm-80gb"}));
  ASSERT_OK_AND_ASSIGN(const PlanComparison both, ComparePlans({"a", "b"}, a, b));
  EXPECT_THAT(both.choices, Contains(Choice{"a step", {"16 x 32 tokens", "32 x 32 tokens"}}));
  const std::string text = ToText(both);
  EXPECT_THAT(text, HasSubstr("\n  cluster\n    {device: h100-sxm, nodes: 1, devices_per_node: 8}\n"
                              "    {device: a100-sxm-80gb, nodes: 1, devices_per_node: 8}\n"));
  EXPECT_THAT(text, Not(HasSubstr("they choose the same")));
}

}  // namespace
}  // namespace meshwright
