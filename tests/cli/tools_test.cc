// What all tools have in common, and the way from a plan to a simulated step, a real run and their comparison.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/run_tool.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kGpt3[] = "models/configs/gpt3_175b.yaml";
constexpr char kTiny[] = "models/configs/gpt2_tiny.yaml";
constexpr char kOracleB[] = "models/configs/oracle_b.yaml";

std::string TempPath(const std::string& name) { return absl::StrCat(std::string(testing::TempDir()), "/", name); }

// A program, as a path below tools/.
class HelpTest : public testing::TestWithParam<std::string> {};

TEST_P(HelpTest, OpensWithASentenceAndAnExample) {
  const std::string name = GetParam().substr(GetParam().rfind('/') + 1);
  for (const char* flag : {"--help", "-h"}) {
    const ToolResult result = RunTool(GetParam(), {flag});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, AllOf(HasSubstr(absl::StrCat("\n\n  tools/bazel run //tools:")),
                                  HasSubstr(absl::StrCat("\nUsage: ", name, " ")), HasSubstr("Exit codes:")));
    for (const absl::string_view line : absl::StrSplit(result.out, '\n')) {
      if (absl::StartsWith(line, "  tools/bazel run ")) continue;
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HelpTest,
                         testing::Values("plan", "whatif", "simulate", "run", "launch", "merge", "compare",
                                         "measure/measure", "export/export", "import/import", "validate/validate"),
                         [](const auto& info) { return info.param.substr(info.param.rfind('/') + 1); });

class EveryToolTest : public testing::TestWithParam<std::string> {};

TEST_P(EveryToolTest, UsageErrorsExitWithTwo) {
  const ToolResult none = RunTool(GetParam(), {});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr(absl::StrCat(GetParam(), ": found 0 arguments, wanted ")));
  const ToolResult flag = RunTool(GetParam(), {"x", "--fromat=json"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_EQ(flag.err, absl::StrCat(GetParam(), ": --fromat: there is no such flag; did you mean --format?\n"));
  EXPECT_EQ(flag.out, "");
}

TEST_P(EveryToolTest, AFileThatIsNotThereExitsWithSix) {
  const ToolResult result = RunTool(GetParam(), GetParam() == "compare" ? std::vector<std::string>{"none", "none"}
                                                                        : std::vector<std::string>{"none"});
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("none: cannot be opened"));
}

// Before anything is searched, simulated, run or measured: each of these is given work that has no end in this test's
// time, or an input that is wrong, of which nothing is said.
TEST(OutputTest, APlaceThatCannotBeWrittenEndsACommandAtOnce) {
  const std::string file = TempPath("in_the_way"), plan = TempPath("outputs_plan.yaml");
  std::ofstream(file) << "x";
  ASSERT_EQ(RunTool("plan", {kTiny, "--out=" + plan}).exit_code, 0);
  const std::string there = file + "/out";
  const std::vector<std::vector<std::string>> commands = {
      {"plan", kTiny, "--out=" + there},          {"plan", kTiny, "--out=", "--chart=" + there},
      {"simulate", plan, "--trace=" + there},     {"simulate", plan, "--chart=" + there},
      {"whatif", "none", "--chart=" + there},     {"run", plan, "--steps=1000000000", "--trace=" + there},
      {"measure/measure", "--out=" + there},      {"export/export", "none", "--to=megatron", "--out=" + there},
      {"import/import", "none", "--out=" + there}};
  for (const std::vector<std::string>& command : commands) {
    const ToolResult result = RunTool(command[0], {command.begin() + 1, command.end()});
    EXPECT_EQ(result.exit_code, 6) << command[0];
    EXPECT_THAT(result.err, HasSubstr(there + ": cannot be written: found " + file + ", which is a file"))
        << command[0];
    EXPECT_EQ(result.out, "") << command[0];
  }
  const ToolResult ranks = RunTool("measure/measure", {"--out=" + TempPath("unmeasured.yaml"), "--ranks=0"});
  EXPECT_EQ(ranks.exit_code, 2);
  EXPECT_EQ(ranks.err, "measure: --ranks: found \"0\", wanted an integer from 1 to 1024\n");  // and no progress
  const ToolResult merge = RunTool("merge", {"none", "--out=" + there});
  EXPECT_EQ(merge.exit_code, 6);
  EXPECT_THAT(merge.err, HasSubstr(file + ": the folder cannot be made: "));
}

// Nor is a file that is there already: what a command reads, and what plan did not write where it writes unless told.
TEST(OutputTest, NoFileOfTheUsersIsLost) {
  const std::string model = TempPath("kept_model.yaml"), plan = TempPath("kept_plan.yaml");
  const std::string text = ReadText(DataPath(kTiny));
  std::ofstream(model) << text;
  ASSERT_EQ(RunTool("plan", {model, "--out=" + plan}).exit_code, 0);
  const std::string plan_text = ReadText(plan), zero = TempPath("kept_0");
  std::ofstream(zero) << "a checkpoint";
  const std::vector<std::vector<std::string>> commands = {
      {"plan", model, "--out=" + model},
      {"plan", model, "--out=", "--chart=" + model},
      {"plan", model, "--out=", "--devices=2", "--strategy_ckpt_save_file=" + model},
      {"plan", model, "--out=", "--devices=2", "--group_ckpt_save_file=" + model},
      {"run", model, "--ranks=2", "--strategy_ckpt_save_file=" + model},
      {"whatif", model, "--chart=" + model},
      {"simulate", plan, "--trace=" + plan},
      {"simulate", plan, "--chart=" + plan},
      {"run", plan, "--trace=" + plan},
      {"run", plan, "--data=" + model, "--trace=" + model},
      {"run", plan, "--load=" + model, "--trace=" + model},
      {"merge", TempPath("kept_{rank_id}"), "--out=" + zero},
      {"export/export", plan, "--to=megatron", "--out=" + plan},
      {"import/import", model, "--out=" + model}};
  for (const std::vector<std::string>& command : commands) {
    const ToolResult result = RunTool(command[0], {command.begin() + 1, command.end()});
    EXPECT_EQ(result.exit_code, 6) << command[0];
    EXPECT_THAT(result.err, HasSubstr(": cannot be written: found a file that this command reads; name another"));
  }
  EXPECT_EQ(ReadText(model), text);
  EXPECT_EQ(ReadText(plan), plan_text);
  const std::string folder = TempPath("usual_place");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/plan.yaml") << "buy: milk\n";
  const ToolResult milk = RunTool("plan", {model}, {.folder = folder});
  EXPECT_EQ(milk.exit_code, 2);
  EXPECT_THAT(milk.err, HasSubstr("--out: found a file plan.yaml that is no plan, wanted where the plan goes"));
  EXPECT_EQ(ReadText(folder + "/plan.yaml"), "buy: milk\n");
  EXPECT_EQ(RunTool("plan", {model, "--out=plan.yaml"}, {.folder = folder}).exit_code, 0);
  EXPECT_EQ(RunTool("plan", {model}, {.folder = folder}).exit_code, 0);  // over a plan
}

// JSON that would be left out, or mixed with something else, is an error.
TEST(OutputTest, StandardOutputHasOneThing) {
  const std::string plan = TempPath("one_thing_plan.yaml");
  ASSERT_EQ(RunTool("plan", {kTiny, "--out=" + plan}).exit_code, 0);
  const std::vector<std::vector<std::string>> commands = {{"plan", kTiny, "--out=-", "--format=json"},
                                                          {"plan", kTiny, "--out=-", "--dump=graph"},
                                                          {"plan", kTiny, "--out=", "--chart=-", "--format=json"},
                                                          {"whatif", kTiny, "--chart=-", "--format=csv"},
                                                          {"simulate", plan, "--trace=-", "--format=json"},
                                                          {"run", plan, "--trace=-"}};
  for (const std::vector<std::string>& command : commands) {
    const ToolResult result = RunTool(command[0], {command.begin() + 1, command.end()});
    EXPECT_EQ(result.exit_code, 2) << command[0];
    EXPECT_THAT(result.err, HasSubstr(": found -, wanted a file; standard output ")) << command[0];
    EXPECT_EQ(result.out, "") << command[0];
  }
  EXPECT_EQ(Json::parse(RunTool("simulate", {plan, "--trace=-"}).out).count("traceEvents"), 1u);
}

// What a cluster file says wrong is the file's mistake, not the flag's.
TEST(ClusterFlagTest, ItsFileEndsACommandAsOtherFilesDo) {
  const std::string wrong = TempPath("cluster.yaml");
  std::ofstream(wrong) << "device: h100-sxm\nnodes: 0\n";
  const ToolResult bad = RunTool("plan", {kTiny, "--cluster=" + wrong, "--out="});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr(wrong + ":2:8: nodes: found \"0\", wanted an integer from 1 to "));
  const ToolResult none = RunTool("plan", {kTiny, "--cluster=none", "--out="});
  EXPECT_EQ(none.exit_code, 6);
  EXPECT_THAT(none.err, HasSubstr("none: cannot be opened: No such file or directory"));
}

INSTANTIATE_TEST_SUITE_P(All, EveryToolTest, testing::Values("plan", "simulate", "run", "compare", "whatif"),
                         [](const auto& info) { return info.param; });

TEST(SimulateTest, JsonStagesAddUpToTheStep) {
  const std::string plan = TempPath("tiny.yaml");
  ASSERT_EQ(RunTool("plan", {kTiny, "--stages=2", "--out=" + plan}).exit_code, 0);
  const ToolResult result = RunTool("simulate", {plan, "--format=json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report.at("stages").size(), 2u);
  for (const Json& stage : report.at("stages")) {
    double sum = 0;
    for (const auto& [use, seconds] : stage.at("time_s").items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, report.at("step_time_s").get<double>(), 1e-9);
    EXPECT_LE(stage.at("peak_bytes").get<int64_t>(), stage.at("arena_bytes").get<int64_t>());
  }
}

TEST(ExportTest, APlanBecomesATrainersConfiguration) {
  const std::string plan = TempPath("exported.yaml"), script = TempPath("train.sh");
  ASSERT_EQ(RunTool("plan", {kTiny, "--stages=2", "--out=" + plan}).exit_code, 0);
  const ToolResult megatron = RunTool("export/export", {plan, "--to=megatron", "--out=" + script});
  ASSERT_EQ(megatron.exit_code, 0) << megatron.err;
  EXPECT_EQ(megatron.out, absl::StrCat("wrote ", script, "\n"));
  EXPECT_THAT(ReadText(script), HasSubstr("  --pipeline-model-parallel-size 2 \\\n"));
  const ToolResult deepspeed = RunTool("export/export", {plan, "--to=deepspeed"});
  EXPECT_EQ(deepspeed.exit_code, 4);
  EXPECT_THAT(deepspeed.err, HasSubstr("plan with --stages=1"));
  EXPECT_EQ(RunTool("export/export", {plan, "--to=megtron"}).exit_code, 2);
  EXPECT_EQ(RunTool("export/export", {plan}).exit_code, 2);
}

// What was skipped is still said on standard output.
TEST(ValidateTest, ATableOfWhichNothingIsPredictedIsBadInput) {
  const std::string table = TempPath("unpredicted.csv"), names = "m,n,k,gpu_type,time_us\n";
  std::ofstream(table) << names << "4096,4096,4096,abacus,600\n";
  const ToolResult unknown = RunTool("validate/validate", {"kernels", table});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.out, HasSubstr("1 unknown device: abacus"));
  EXPECT_THAT(unknown.err, HasSubstr("validate: predicted none of 1 row; \"skipped\" above says what each lacks"));
  std::ofstream(table) << names;
  const ToolResult empty = RunTool("validate/validate", {"kernels", table});
  EXPECT_EQ(empty.exit_code, 3);
  EXPECT_THAT(empty.err, HasSubstr("found no row below the line of names, wanted a line for each measurement"));
  // One row that is predicted is enough, in whichever of the tables.
  const std::string other = TempPath("predicted.csv");
  std::ofstream(other) << names << "4096,4096,4096,A100,600\n";
  EXPECT_EQ(RunTool("validate/validate", {"kernels", table, other}).exit_code, 0);
}

TEST(ValidateTest, ReadsTablesWhereTheUserStands) {
  const std::string table = "oracle_of_validate.csv";
  std::ofstream(TempPath(table)) << "m,n,k,dtype,gpu_type,time_us\n4096,4096,4096,bfloat16,A100-SXM4-80GB,600\n";
  const ToolResult there = RunTool("validate/validate", {"kernels", table}, {.folder = TempPath("")});
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_EQ(RunTool("validate/validate", {"kernels", "none.csv"}).exit_code, 6);
  const ToolResult among =
      RunTool("validate/validate", {"kernels", "none.csv", table, table, "--rows"}, {.folder = TempPath("")});
  EXPECT_EQ(among.exit_code, 6);
  EXPECT_EQ(among.out, RunTool("validate/validate", {"kernels", table, table, "--rows"}, {.folder = TempPath("")}).out);
  EXPECT_THAT(among.err, HasSubstr("not read: none.csv: "));
  EXPECT_THAT(among.err, HasSubstr("validate: read 2 of 3 files: none.csv: "));
  const ToolResult kind = RunTool("validate/validate", {"kernel", table});
  EXPECT_EQ(kind.exit_code, 2);
  EXPECT_EQ(kind.err, "validate: found \"kernel\", wanted one of training, kernels, collectives\n");
}

TEST(ValidateTest, FlagsAreCheckedBeforeAnyRow) {
  const std::string table = TempPath("flags_of_validate.csv");
  std::ofstream(table) << "m,n,k,dtype,gpu_type,time_us\n4096,4096,4096,bfloat16,A100,600\n";
  for (const char* const flag : {"--device=typo", "--internode=rubbish", "--internode=-8x200Gb/s",
                                 "--internode=0 x 200Gb/s", "--internode=8x0.0Gb/s", "--memory=40cows",
                                 "--attention=flash9", "--expert_imbalance=0.5", "--sustained_clock=2", "--device="}) {
    const ToolResult result = RunTool("validate/validate", {"kernels", table, flag});
    EXPECT_EQ(result.exit_code, 2) << flag << result.err;
    EXPECT_EQ(result.out, "") << flag;
  }
  EXPECT_THAT(RunTool("validate/validate", {"kernels", table, "--device=typo"}).err, HasSubstr("h100-sxm"));
  EXPECT_EQ(RunTool("validate/validate", {"kernels", table, "--device=none.yaml"}).exit_code, 6);
}

TEST(SimulateTest, FlagsAreCheckedWhereTheyDoNothingToo) {
  const std::string plan = TempPath("tiny_flags.yaml");
  ASSERT_EQ(RunTool("plan", {kTiny, "--out=" + plan}).exit_code, 0);
  EXPECT_EQ(RunTool("simulate", {plan, "--detail=x"}).exit_code, 2);
  EXPECT_EQ(RunTool("simulate", {plan, "--samples=0"}).exit_code, 2);
  EXPECT_EQ(RunTool("simulate", {plan, "--detail=slots"}).err, "note: --detail has no effect without --trace\n");
  EXPECT_THAT(RunTool("simulate", {plan, "--trace="}).err, HasSubstr("--trace: found no value, wanted --trace=FILE"));
  EXPECT_THAT(RunTool("simulate", {plan, "--slow=0:1.5,0:2"}).err, HasSubstr("--slow: found rank 0 twice"));
}

TEST(SimulateTest, PerfettosOwnFormatIsSmallerThanJson) {
  const std::string plan = TempPath("tiny_traced.yaml"), json = TempPath("t.json"), own = TempPath("t.pftrace");
  ASSERT_EQ(RunTool("plan", {kTiny, "--stages=2", "--out=" + plan}).exit_code, 0);
  ASSERT_EQ(RunTool("simulate", {plan, "--trace=" + json}).exit_code, 0);
  ASSERT_EQ(RunTool("simulate", {plan, "--trace=" + own}).exit_code, 0);
  EXPECT_GT(ReadText(own).size(), 0u);
  EXPECT_LT(ReadText(own).size(), ReadText(json).size() / 2);
  const std::string packed = json + ".gz";
  ASSERT_EQ(RunTool("simulate", {plan, "--trace=" + packed}).exit_code, 0);
  EXPECT_THAT(RunTool("compare", {packed, json}).err, HasSubstr("t.json.gz: found a packed file, wanted a timeline"));
  EXPECT_THAT(RunTool("compare", {own, json}).err, HasSubstr("t.pftrace: found a timeline for Perfetto, wanted one"));
}

TEST(SimulateTest, DevicesThatVary) {
  const std::string plan = TempPath("tiny_varied.yaml");
  ASSERT_EQ(RunTool("plan", {kTiny, "--stages=2", "--out=" + plan}).exit_code, 0);
  const ToolResult result = RunTool("simulate", {plan, "--jitter=0.05", "--slow=0:2", "--samples=50", "--format=json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  const Json& varied = report.at("varied");
  EXPECT_EQ(varied.at("samples"), 50);
  EXPECT_GT(varied.at("p5_s").get<double>(), report.at("step_time_s").get<double>());
  EXPECT_LT(varied.at("p5_s").get<double>(), varied.at("p95_s").get<double>());
  EXPECT_THAT(RunTool("simulate", {plan, "--slow=0"}).err, HasSubstr("found \"0\", wanted RANK:X"));
  EXPECT_THAT(RunTool("simulate", {plan, "--slow=0:2"}).out, HasSubstr(" ends last\nwith the slow ranks "));
  const ToolResult beyond = RunTool("simulate", {plan, "--slow=4096:2"});
  EXPECT_THAT(beyond.err, HasSubstr("--slow: found rank 4096, wanted a rank of the plan, from 0 to 7"));
  EXPECT_EQ(beyond.exit_code, 2);
}

TEST(SimulateTest, AModelFileIsNotAPlan) {
  const ToolResult result = RunTool("simulate", {kTiny});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("wanted a plan; plan writes one from a model file"));
  const std::string plan = TempPath("b.yaml");
  ASSERT_EQ(RunTool("plan", {kOracleB, "--out=" + plan}).exit_code, 0);
  EXPECT_THAT(RunTool("plan", {plan}).err, HasSubstr("found a plan, wanted a model file"));
  // A plan that an editor saved in another encoding.
  std::ofstream(plan, std::ios::binary) << absl::string_view("\xff\xfes\0c\0h\0", 8);
  EXPECT_THAT(RunTool("simulate", {plan}).err, HasSubstr(":1:1: found the byte 0xFF, wanted text in UTF-8"));
}

// The losses that "loss is" gives, and their mean where a sum is printed.
std::vector<double> Losses(const std::string& out) {
  std::vector<double> losses;
  for (const absl::string_view line : absl::StrSplit(out, '\n')) {
    if (!absl::StartsWith(line, "epoch: ")) continue;
    const std::string text(line);
    const size_t mean = text.find("with mean ");
    const size_t at = mean == std::string::npos ? text.find("loss is ") + 8 : mean + 10;
    losses.push_back(std::strtod(text.c_str() + at, nullptr));
  }
  return losses;
}

void ExpectLosses(const ToolResult& result, const std::vector<double>& expected) {
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<double> losses = Losses(result.out);
  ASSERT_GE(losses.size(), expected.size()) << result.out;
  // The tables have nine decimals.
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-9) << "step " << i + 1;
  EXPECT_THAT(result.out, HasSubstr("bytes planned, the same allocated on each of"));
}

struct OracleRun {
  std::string name;
  std::vector<std::string> args;
  std::vector<double> losses;
};
class OracleTest : public testing::TestWithParam<OracleRun> {};
TEST_P(OracleTest, TrainsAsTheOracle) { ExpectLosses(RunTool("run", GetParam().args), GetParam().losses); }

// S18.1 (learning rate 0.4) and S18.2.
const std::vector<double> kB = {0.294782409, 0.292738942, 0.290354212, 0.287596576, 0.284185660, 0.279603848};
const std::vector<double> kD = {1.379620138, 1.363466394, 1.354297826, 1.344983313, 1.334692313, 1.319384193};
INSTANTIATE_TEST_SUITE_P(
    All, OracleTest,
    testing::Values(
        OracleRun{"BOneRank", {kOracleB, "--steps=6"}, kB}, OracleRun{"BShards", {kOracleB, "--ranks=8"}, kB},
        OracleRun{"BDataParallel", {kOracleB, "--ranks=8", "--mode=data_parallel", "--gradients_mean"}, kB},
        OracleRun{"BDataParallelSum",
                  {kOracleB, "--ranks=8", "--mode=data_parallel", "--steps=3"},
                  {0.294782409, 0.277843127, 0.211464475}},
        OracleRun{"BParallelOptimizer",
                  {kOracleB, "--ranks=8", "--parallel_optimizer", "--parallel_optimizer_threshold=0B"},
                  kB},
        OracleRun{"BFourStages",
                  {kOracleB, "--ranks=8", "--ignore_shards", "--stages=4", "--microbatches=4"},
                  {0.294782409, 0.286509286, 0.270991507}},
        OracleRun{"BFourStagesOfTheMean",
                  {kOracleB, "--ranks=8", "--ignore_shards", "--stages=4", "--microbatches=4", "--pipeline_loss=mean"},
                  kB},
        OracleRun{"DOneRank", {"models/configs/oracle_d.yaml"}, kD},
        OracleRun{"DLayouts", {"models/configs/oracle_d.yaml", "--ranks=8"}, kD}),
    [](const auto& info) { return info.param.name; });

// A tiny GPT-2 on eight ranks trains as on one, however it is split (command 4 of the first slice).
TEST(RunTest, ATinyDecoderTrainsTheSameOnEightRanks) {
  const std::vector<std::string> one = {kTiny, "--precision=float64", "--steps=10"};
  const ToolResult alone = RunTool("run", one);
  const std::vector<double> expected = Losses(alone.out);
  ASSERT_EQ(expected.size(), 10u) << alone.err;
  EXPECT_LT(expected.back(), expected.front());
  const std::vector<std::vector<std::string>> strategies = {
      {"--data_parallel=8"},
      {"--tensor_parallel=8"},
      {"--stages=2", "--tensor_parallel=2", "--data_parallel=2", "--recompute=full", "--parallel_optimizer"},
      {"--mode=data_parallel", "--gradients_mean"},  // S8.7: a mean of local means
      {},                                            // the planner's own choice
  };
  for (const std::vector<std::string>& strategy : strategies) {
    std::vector<std::string> args = one;
    args.push_back("--ranks=8");
    args.insert(args.end(), strategy.begin(), strategy.end());
    ExpectLosses(RunTool("run", args), expected);
  }
}

TEST(RunTest, Float32LossesAreShort) {
  const ToolResult result = RunTool("run", {kOracleB, "--precision=float32", "--steps=1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NEAR(Losses(result.out)[0], 0.294782409, 6e-8);  // two units in the last place
  const size_t at = result.out.find("loss is ") + 8;
  EXPECT_LE(result.out.find('\n') - at, 11u) << result.out;  // "0.29478240": nine digits tell floats apart
}

TEST(RunTest, AllRanksTellTheSame) {
  const ToolResult result = RunTool("run", {kOracleB, "--ranks=8", "--steps=2", "--all_ranks"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("rank ", rank, " epoch: 1 step: 2, loss is 0.29273894169371")));
  }
}

// Losses of a learning rate that is far too large are not numbers any more.
TEST(RunTest, ARunThatFailsExitsWithFive) {
  std::string text = ReadText(kOracleB);
  text.replace(text.find("learning_rate: 0.4"), 18, "learning_rate: 1e200");
  std::ofstream(TempPath("diverges.yaml")) << text;
  const ToolResult result = RunTool("run", {TempPath("diverges.yaml"), "--steps=20"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("the loss is "));
}

// Whoever runs the test, root too: where a folder is wanted there is a file. That is said before the first of very many
// steps.
TEST(RunTest, ACheckpointThatCannotBeWrittenExitsWithSix) {
  const std::string file = TempPath("a_file");
  std::ofstream(file) << "x";
  const ToolResult folder = RunTool("run", {kOracleB, "--steps=1000000000", "--checkpoint_steps=1000000000",
                                            "--checkpoint_dir=" + file + "/checkpoints"});
  EXPECT_EQ(folder.exit_code, 6) << folder.err;
  EXPECT_THAT(folder.err, HasSubstr(file + "/checkpoints: the folder cannot be made: Not a directory"));
  // The first checkpoint's name is taken by a folder; one of two ranks meets it.
  const std::string taken = TempPath("taken");
  std::filesystem::create_directories(taken + "/1/CKP-1_1.ckpt/in_use");
  const ToolResult written = RunTool("run", {kOracleB, "--ignore_shards", "--mode=data_parallel", "--ranks=2",
                                             "--steps=2", "--checkpoint_dir=" + taken + "/{rank_id}"});
  EXPECT_EQ(written.exit_code, 6) << written.err;
  EXPECT_THAT(written.err, HasSubstr("CKP-1_1.ckpt: cannot be "));
}

TEST(RunTest, AFolderIsNoCheckpoint) {
  const ToolResult result = RunTool("run", {kTiny, "--steps=1", "--load=" + TempPath("")});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("--load: found the folder "), HasSubstr(", wanted a checkpoint in it, e.g. ")));
}

TEST(RunTest, APlanHasItsOwnRanks) {
  const std::string plan = TempPath("ranks.yaml");
  ASSERT_EQ(RunTool("plan", {kTiny, "--out=" + plan}).exit_code, 0);
  const ToolResult result = RunTool("run", {plan, "--ranks=3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--ranks: found 3, wanted 8, the ranks of the plan"));
}

TEST(RunTest, FlagsThatDoNothingAreTold) {
  const auto notes = [](const std::vector<std::string>& flags) {
    std::vector<std::string> args = {kTiny, "--steps=1"};
    args.insert(args.end(), flags.begin(), flags.end());
    const ToolResult result = RunTool("run", args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(notes({}), Not(HasSubstr("no effect")));
  EXPECT_THAT(notes({"--checkpoint_steps=2", "--nointegrated_save"}),
              AllOf(HasSubstr("note: --checkpoint_steps has no effect without --checkpoint_dir\n"),
                    HasSubstr("note: --integrated_save has no effect without --checkpoint_dir\n")));
  EXPECT_THAT(notes({"--nographs", "--register_arena", "--nccl_estimates"}),
              AllOf(HasSubstr("note: --graphs has no effect without --device=gpu\n"),
                    HasSubstr("note: --register_arena has no effect without --device=gpu\n"),
                    HasSubstr("note: --nccl_estimates has no effect without --device=gpu\n")));
  EXPECT_THAT(notes({"--checkpoint_steps=2", "--checkpoint_dir=" + TempPath("idle_flags")}),
              Not(HasSubstr("no effect")));
  EXPECT_EQ(RunTool("run", {kTiny, "--checkpoint_steps=0"}).exit_code, 2);
}

TEST(RunTest, BFloat16NeedsAPrecision) {
  const ToolResult result = RunTool("run", {"models/configs/gpt2_124m.yaml"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--precision: found a model in bfloat16, wanted float32 or float64"));
}

TEST(RunTest, WeightsInFloat8AreOnlyPredicted) {
  const std::string plan = TempPath("float8.yaml");
  const std::vector<std::string> types = {"--precision=bfloat16", "--products=float8", "--parameters=float8"};
  const ToolResult planned = RunTool("plan", {kTiny, "--device=h100", types[0], types[1], types[2], "--out=" + plan});
  ASSERT_EQ(planned.exit_code, 0);
  EXPECT_THAT(planned.out, HasSubstr("parameters in float8"));
  EXPECT_THAT(planned.out, HasSubstr("products in float8"));
  const ToolResult result = RunTool("run", {plan, "--steps=1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--parameters: found weights in float8"));
}

TEST(RunTest, UnderMpirunTheLinesAreTheSame) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "needs mpirun, which is not installed";
  // A job of one machine, by whoever runs the tests; a folder of its own, with a short path, for its sockets.
  char folder[] = "/tmp/mpiXXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ToolOptions mpi;
  mpi.launcher = {"mpirun", "-np", "8"};
  mpi.variables = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                   {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                   {"OMPI_MCA_plm", "isolated"},
                   {"OMPI_MCA_pml", "ob1"},
                   {"OMPI_MCA_btl", "self,vader"},
                   {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                   {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                   {"OMPI_MCA_btl_vader_backing_directory", folder},
                   {"TMPDIR", folder},
                   {"HOME", folder},
                   {"ASAN_OPTIONS", "detect_leaks=0"}};
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{kOracleB, "--steps=3"},
        {kOracleB, "--steps=3", "--ignore_shards", "--stages=4", "--microbatches=4"}}) {
    std::vector<std::string> on_threads = args;
    on_threads.push_back("--ranks=8");
    const ToolResult threads = RunTool("run", on_threads);
    const ToolResult processes = RunTool("run", args, mpi);
    ASSERT_EQ(processes.exit_code, 0) << processes.err;
    EXPECT_EQ(processes.out, threads.out);
  }
  std::filesystem::remove_all(folder);
}

TEST(CompareTest, AllInstructionsOfATinyDecoderJoin) {
  const std::string plan = TempPath("compare.yaml"), sim = TempPath("sim.json"), run = TempPath("run.json");
  ASSERT_EQ(RunTool("plan", {kTiny, "--stages=2", "--recompute=full", "--out=" + plan}).exit_code, 0);
  ASSERT_EQ(RunTool("simulate", {plan, "--trace=" + sim}).exit_code, 0);
  ASSERT_EQ(RunTool("run", {plan, "--steps=2", "--trace=" + run}).exit_code, 0);
  const ToolResult text = RunTool("compare", {sim, run});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr(" instructions joined, 0 predicted only, 0 measured only"),
                              HasSubstr("the 10 that differ most")));
  for (const absl::string_view line : absl::StrSplit(text.out, '\n')) EXPECT_LE(line.size(), 80u) << line;
  const Json report = Json::parse(RunTool("compare", {sim, run, "--format=json"}).out);
  EXPECT_GT(report.at("joined").get<int64_t>(), 100);
  EXPECT_EQ(report.at("only_simulated"), 0);
  EXPECT_EQ(report.at("only_measured"), 0);

  const ToolResult swapped = RunTool("compare", {run, sim});
  EXPECT_EQ(swapped.exit_code, 3);
  EXPECT_THAT(swapped.err, HasSubstr("found a measured trace, wanted a simulated one"));
  const ToolResult no_trace = RunTool("compare", {plan, run});
  EXPECT_EQ(no_trace.exit_code, 3);
  EXPECT_THAT(no_trace.err, HasSubstr("is a plan, "));
  // A log may have lines of JSON; a plan is of 16 rows a step.
  const std::string log = TempPath("lines.log");
  std::ofstream(log) << "{\"log\": \"elapsed time per iteration (ms): 5000.0 | global batch size: 16 |\"}\n"
                        "{\"log\": \"elapsed time per iteration (ms): 4000.0 | global batch size: 16 |\"}\n";
  const ToolResult logged = RunTool("compare", {plan, log});
  EXPECT_EQ(logged.exit_code, 0) << logged.err;
  EXPECT_THAT(logged.out, HasSubstr("measured: 1 line of Megatron-LM"));
  // A trace of torch.profiler is known by its beginning.
  const std::string profile = TempPath("profile.json");
  std::ofstream(profile) << R"({"schemaVersion": 1, "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x256", "ts": 10.5, "dur": 20, "args": {"stream": 7}}]})";
  const ToolResult profiled = RunTool("compare", {plan, profile});
  EXPECT_EQ(profiled.exit_code, 0) << profiled.err;
  EXPECT_THAT(profiled.out, HasSubstr("matrix products"));
  std::ofstream(profile) << "{\"schemaVersion\": 1, \"traceEvents\": [{";
  const ToolResult cut = RunTool("compare", {plan, profile});
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_THAT(cut.err, HasSubstr("profile.json: found the end of the text within it"));
  const ToolResult models = RunTool("compare", {kTiny, kTiny});
  EXPECT_EQ(models.exit_code, 3);
  EXPECT_THAT(models.err,
              HasSubstr(absl::StrCat(kTiny, ":1:1: found neither a plan nor a timeline, wanted two plans, ")));
  const ToolResult plans = RunTool("compare", {plan, plan});
  EXPECT_EQ(plans.exit_code, 0) << plans.err;
  EXPECT_THAT(plans.out, HasSubstr("they choose the same"));
}

}  // namespace
}  // namespace meshwright
