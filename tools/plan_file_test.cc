#include "tools/plan_file.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "planner/search/search.h"
#include "tools/cluster_flags.h"
#include "tools/exit_code.h"
#include "tools/files.h"

namespace meshwright {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& args) {
  std::vector<FlagSpec> specs = StrategyFlags();
  specs.insert(specs.end(), ClusterFlags().begin(), ClusterFlags().end());
  specs.push_back({"tokens", "X", ""});
  return Flags::Parse(specs, args);
}

absl::StatusOr<Plan> Make(const SourceFile& source, const std::vector<std::string>& args) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, ParseFlags(args));
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel(source, flags));
  SearchOptions options;
  options.keep = 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(const SearchResult found, Search(plan.session.problem, options));
  plan.strategy = found.ranked.front().strategy;
  plan.promise = PromiseOf(found.ranked.front().prediction);
  return plan;
}

struct Case {
  std::string name, config;
  std::vector<std::string> args = {};
};
class PlanFileTest : public testing::TestWithParam<Case> {};

TEST_P(PlanFileTest, ReadsBackAsTheSameProgram) {
  ASSERT_OK_AND_ASSIGN(const SourceFile source,
                       ReadSource(absl::StrCat("models/configs/", GetParam().config, ".yaml")));
  ASSERT_OK_AND_ASSIGN(const Plan plan, Make(source, GetParam().args));
  const std::string text = ToYaml(plan);
  ASSERT_OK_AND_ASSIGN(const Plan again, ParsePlan(SourceFile{"plan.yaml", text}));
  EXPECT_EQ(again.promise, plan.promise);
  EXPECT_EQ(again.session.source.text, source.text);
  EXPECT_EQ(again.session.source.path, source.path);
  EXPECT_EQ(again.session.changes, plan.session.changes);
  EXPECT_TRUE(again.session.problem.cluster == plan.session.problem.cluster);
  EXPECT_EQ(ToYaml(again), text);

  ASSERT_OK_AND_ASSIGN(const Program before, ProgramOf(plan));
  ASSERT_OK_AND_ASSIGN(const Program after, ProgramOf(again));
  EXPECT_EQ(ToText(after), ToText(before));
  // What it promised is what the program takes.
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(again.session.problem, again.strategy));
  EXPECT_EQ(PromiseOf(evaluation.prediction), plan.promise);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlanFileTest,
    testing::Values(Case{"Tiny", "gpt2_tiny"},
                    Case{"TinyPipeline",
                         "gpt2_tiny",
                         {"--stages=2", "--recompute=full", "--precision=float64", "--batch=32", "--tokens=2T",
                          "--schedule=gpipe"}},
                    Case{"Adapters", "gpt2_tiny", {"--lora_rank=4", "--microbatch=1"}},
                    Case{"Experts", "mixtral_8x7b", {"--devices=16", "--memory=96GB", "--inter_bandwidth=95 Gb/s"}},
                    Case{"Shards", "oracle_b"}, Case{"Layouts", "oracle_d"}, Case{"Interleaved", "mlp_interleaved"},
                    Case{"OperatorStages", "oracle_b", {"--ignore_shards", "--stages=4", "--microbatches=4"}},
                    Case{"DataParallel", "oracle_b", {"--mode=data_parallel", "--gradients_mean"}},
                    Case{"Owners", "gpt2_tiny", {"--mode=data_parallel", "--parallel_optimizer"}},
                    Case{"Propagation", "matmul_relu"}),
    [](const auto& info) { return info.param.name; });

// The model's own text does not say so.
TEST(PlanFile, HoldsThatWeightsAreInFloat8) {
  ASSERT_OK_AND_ASSIGN(const std::string model, ReadTextFile("models/configs/gpt2_tiny.yaml"));
  ASSERT_OK_AND_ASSIGN(const Plan plan, Make({"m.yaml", model}, {"--device=h100", "--precision=bfloat16",
                                                                 "--products=float8", "--parameters=float8"}));
  const std::string text = ToYaml(plan);
  EXPECT_NE(text.find("changes: {precision: bfloat16, parameters: float8}"), std::string::npos);
  ASSERT_OK_AND_ASSIGN(const Plan again, ParsePlan(SourceFile{"plan.yaml", text}));
  EXPECT_EQ(again.session.changes, plan.session.changes);
  ASSERT_OK_AND_ASSIGN(const Program before, ProgramOf(plan));
  ASSERT_OK_AND_ASSIGN(const Program after, ProgramOf(again));
  EXPECT_EQ(ToText(after), ToText(before));
}

// What a plan has decided is not decided again: flags that say otherwise are refused, not passed over.
TEST(PlanFile, RefusesFlagsOfChoicesThatItHasMade) {
  ASSERT_OK_AND_ASSIGN(const std::string model, ReadTextFile("models/configs/gpt2_tiny.yaml"));
  ASSERT_OK_AND_ASSIGN(const Plan plan, Make({"m.yaml", model}, {}));
  const SourceFile file{"plan.yaml", ToYaml(plan)};
  for (const char* flag : {"--batch=8", "--stages=1", "--recompute=full", "--nosequence_parallel"}) {
    ASSERT_OK_AND_ASSIGN(const Flags flags, Flags::Parse(StrategyFlags(), {flag}));
    EXPECT_THAT(ParsePlan(file, flags), StatusIs(absl::StatusCode::kInvalidArgument, "found it with a plan")) << flag;
  }
}

// A plan is carried to machines that have neither the model file nor what lies beside it.
TEST(PlanFile, HoldsTheHuggingFaceConfig) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/hf"), config = folder + "/config.json";
  ASSERT_OK(WriteFileInNewFolder(config,
                                 "{\n  \"model_type\": \"llama\",\n\n  \"hidden_size\": 8, "
                                 "\"num_hidden_layers\": 2, \"num_attention_heads\": 2,\n"
                                 "  \"intermediate_size\": 16, \"vocab_size\": 32}"));
  const SourceFile source = {folder + "/m.yaml",
                             "name: hf\nhuggingface: config.json\ntraining: {batch: 2, sequence: 4}"};
  ASSERT_OK_AND_ASSIGN(const Plan plan, Make(source, {"--device=host", "--devices=1"}));
  const std::string text = ToYaml(plan);
  ASSERT_EQ(std::remove(config.c_str()), 0);
  ASSERT_OK_AND_ASSIGN(const Plan again, ParsePlan(SourceFile{"plan.yaml", text}));
  EXPECT_EQ(again.session.source.config, plan.session.source.config);
  EXPECT_EQ(ToYaml(again), text);
  ASSERT_OK_AND_ASSIGN(const Program before, ProgramOf(plan));
  ASSERT_OK_AND_ASSIGN(const Program after, ProgramOf(again));
  EXPECT_EQ(ToText(after), ToText(before));
}

constexpr char kModel[] =
    "name: m\n"
    "architecture: {decoder: {hidden: 16, layers: 2, heads: 2, vocab: 32}}\n"
    "training: {batch: 4, sequence: 8}\n"
    "cluster: {device: host, devices_per_node: 2}\n";

// A block of YAML keeps every byte of the model: its first and last lines, blank ones, comments, letters.
TEST(PlanFileTextTest, AnyModelTextComesBack) {
  const std::string model = kModel;
  for (const std::string& text :
       {model, model.substr(0, model.size() - 1), model + "\n\n\n", "\n\n  # a comment further in\n" + model,
        model + "# \xC3\xA9t\xC3\xA9 # \"quoted\"\n   \n", absl::StrReplaceAll(model, {{": {", ":   {"}})}) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, Make({"dir/m.yaml", text}, {}));
    ASSERT_OK_AND_ASSIGN(const Plan again, ParsePlan(SourceFile{"plan.yaml", ToYaml(plan)}));
    EXPECT_EQ(again.session.source.text, text);
  }
}

TEST(PlanFileTextTest, AnotherPrecisionIsAChangeOfTheSamePlan) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, Make({"m.yaml", kModel}, {}));
  ASSERT_OK_AND_ASSIGN(const Flags flags, ParseFlags({"--precision=float64"}));
  ASSERT_OK_AND_ASSIGN(const Plan wide, ParsePlan(SourceFile{"plan.yaml", ToYaml(plan)}, flags));
  EXPECT_EQ(wide.session.changes.precision, DType::kFloat64);
  EXPECT_EQ(wide.strategy.gradient_dtype, DType::kFloat64);
  EXPECT_EQ(wide.strategy.mesh, plan.strategy.mesh);
  ASSERT_OK_AND_ASSIGN(const Program program, ProgramOf(wide));
  for (const Buffer& buffer : program.classes[0].buffers) EXPECT_NE(buffer.dtype, DType::kFloat32) << buffer.name;
}

TEST(PlanFileTextTest, ErrorsSayWhere) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, Make({"m.yaml", kModel}, {}));
  const std::string text = ToYaml(plan);
  const auto error = [&](const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from << " in\n" << text;
    return ParsePlan(SourceFile{"p.yaml", absl::StrReplaceAll(text, {{from, to}})}).status();
  };
  EXPECT_THAT(error("plan/1", "plan/9"), StatusIs(kInvalid,
                                                  "p.yaml:2:9: schema: found \"meshwright/plan/9\", wanted "
                                                  "meshwright/plan/1; plan again with this version"));
  EXPECT_THAT(error("device: host", "device: hst"),
              StatusIs(absl::StatusCode::kNotFound, "p.yaml:6:19: cluster.device"));
  EXPECT_THAT(error("nodes: 1, devices_per_node: 2", "nodes: 1, devices_per_node: 1"),
              StatusIs(kInvalid, "strategy.mesh: found 2 ranks, wanted at most 1, the devices of the cluster"));
  EXPECT_THAT(error("hidden: 16", "hidden: x"), StatusIs(kInvalid, "the model in it: m.yaml:2:34: architecture"));
  EXPECT_THAT(error("\nstrategy:", "\nstratgy:"), StatusIs(kInvalid, "did you mean \"strategy\"?"));
}

}  // namespace
}  // namespace meshwright
