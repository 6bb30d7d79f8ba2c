// whatif as users call it: sweeps over devices and counts, what is left out of them, and the bounds of degrees.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

constexpr char kTiny[] = "models/configs/gpt2_tiny.yaml";
constexpr char kOracleB[] = "models/configs/oracle_b.yaml";

std::string TempPath(const std::string& name) { return absl::StrCat(std::string(testing::TempDir()), "/", name); }

// Rows of the file's own devices are of its machines: whatif says of a count what plan says.
TEST(WhatifTest, TheFilesClusterIsPlannedForAsItStands) {
  const std::string model = TempPath("own_cluster.yaml");
  std::ofstream(model) << absl::StrReplaceAll(
      ReadText(DataPath("models/configs/gpt2_124m.yaml")),
      {{"cluster: {", "cluster: {memory: 40 GB, nics_per_node: 1, inter_bandwidth: 2 GB/s, "}});
  for (const char* devices : {"8", "16"}) {
    const std::string count = absl::StrCat("--devices=", devices);
    const ToolResult sweep = RunTool("whatif", {model, count, "--format=json"});
    ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
    const Json plan = Json::parse(RunTool("plan", {model, count, "--out=", "--format=json"}).out);
    EXPECT_EQ(Json::parse(sweep.out).at("points").at(0).at("step_time_s"), plan.at("predicted").at("step_time_s"));
    // The same by name, once, is the file's; another kind is its usual machine.
    const Json own = Json::parse(RunTool("whatif", {model, count, "--device=h100,h100-sxm", "--format=json"}).out);
    ASSERT_EQ(own.at("points").size(), 1u);
    EXPECT_EQ(own.at("points").at(0).at("step_time_s"), plan.at("predicted").at("step_time_s"));
  }
}

// As plan's exit code.
TEST(WhatifTest, NothingFitsAnywhere) {
  const std::vector<std::string> args = {"models/configs/llama3_405b.yaml", "--device=h100", "--devices=8"};
  const ToolResult result = RunTool("whatif", args);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.out, HasSubstr("nothing fits"));
}

// As plan says of the same trainer.
TEST(WhatifTest, SizesAClusterForATrainer) {
  const std::vector<std::string> args = {"models/configs/gpt2_350m.yaml", "--device=h100", "--devices=8",
                                         "--trainer=torchtitan"};
  std::vector<std::string> json = args, plan = args;
  json.push_back("--format=json");
  plan.insert(plan.end(), {"--format=json", "--out="});
  const ToolResult sweep = RunTool("whatif", json);
  ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
  const Json report = Json::parse(sweep.out);
  EXPECT_EQ(report.at("trainer"), "torchtitan");
  EXPECT_EQ(report.at("points").at(0).at("step_time_s"),
            Json::parse(RunTool("plan", plan).out).at("predicted").at("step_time_s"));
  EXPECT_THAT(RunTool("whatif", args).out, HasSubstr("as torchtitan runs it, at the pace of the slowest device\n"));
}

TEST(WhatifTest, ASweepMarksTheSmallestAndTheKnee) {
  const std::vector<std::string> args = {"models/configs/gpt2_1_5b.yaml", "--devices=1..16", "--device=h100-sxm",
                                         "--tokens=1e9"};
  const ToolResult text = RunTool("whatif", args);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("h100-sxm, $"));
  std::vector<std::string> json_args = args, csv_args = args;
  json_args.push_back("--format=json");
  csv_args.push_back("--format=csv");
  const Json report = Json::parse(RunTool("whatif", json_args).out);
  ASSERT_EQ(report.at("points").size(), 5u);
  int smallest = 0, knees = 0;
  for (const Json& point : report.at("points")) {
    if (!point.at("fits").get<bool>()) continue;
    smallest += point.at("smallest_that_fits").get<bool>() ? 1 : 0;
    knees += point.at("knee").get<bool>() ? 1 : 0;
    // Hours of all devices for 1e9 tokens at the slowest one's pace, steps that failures undo and checkpoints included.
    const double goodput = point.at("goodput").get<double>();
    EXPECT_GT(goodput, 0.99);
    EXPECT_LT(goodput, 1);
    const bool several = point.at("devices").get<int>() > 1;
    EXPECT_EQ(point.contains("at_slowest_device"), several);
    const Json& pace = several ? point.at("at_slowest_device") : point;
    EXPECT_LE(pace.at("tokens_per_second").get<double>(), point.at("tokens_per_second").get<double>());
    EXPECT_NEAR(point.at("device_hours").get<double>() * goodput,
                1e9 / pace.at("tokens_per_second").get<double>() / 3600 * point.at("devices").get<double>(), 1e-6);
  }
  EXPECT_EQ(smallest, 1);
  EXPECT_EQ(knees, 1);
  const std::string csv = RunTool("whatif", csv_args).out;
  EXPECT_EQ(
      csv.substr(0, csv.find("\r\n")),
      "device,devices,fits,step_time_s,step_time_at_slowest_device_s,tokens_per_second,mfu,peak_memory_bytes,goodput,"
      "run_s,device_hours,cost_usd,smallest_that_fits,knee,problem,idle_devices");
  const ToolResult failing =
      RunTool("whatif", {kTiny, "--devices=1", "--device=h100", "--tokens=1e9", "--failures=1e12"});
  EXPECT_THAT(failing.out, AllOf(HasSubstr("the run never ends"), Not(HasSubstr("inf"))));
  const ToolResult unknown = RunTool("whatif", {args[0], "--devices=16", "--device=h100,foo"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, Not(HasSubstr("planning")));
  const std::string bare = TempPath("no_cluster.yaml");
  std::ofstream(bare) << "name: d\narchitecture: {decoder: {hidden: 64, layers: 2, heads: 2, vocab: 64}}\n"
                         "training: {batch: 8, sequence: 16}\n";
  EXPECT_THAT(RunTool("whatif", {bare, "--device=h100"}).err, HasSubstr("--devices: found nothing, wanted numbers"));
  const ToolResult wrong = RunTool("whatif", {args[0], "--devices=16..8"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--devices: found \"16..8\", wanted two numbers, the smaller first"));
}

// 4 devices have no tensor parallelism of 8, 12 are no whole nodes, and 8 have no room for groups of 16: each is left
// out, in every form, and the others are as they are without them. Where none is left, that is an error.
TEST(WhatifTest, CountsThatDoNotGoWithAChoiceAreLeftOut) {
  const std::string model = "models/configs/gpt2_124m.yaml";
  const std::vector<std::string> args = {model, "--devices=4,12,8,16", "--device=h100", "--tensor_parallel=8"};
  const ToolResult text = RunTool("whatif", args);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(
      text.out,
      AllOf(HasSubstr("       4  left out: --tensor_parallel: found 8, wanted a divisor of the 4\n          devices\n"),
            HasSubstr("      12  left out: found 12 devices, wanted whole nodes of 8 h100-sxm\n")));
  std::vector<std::string> json_args = args;
  json_args.push_back("--format=json");
  const Json points = Json::parse(RunTool("whatif", json_args).out).at("points");
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points.at(0).at("problem"), "left out: --tensor_parallel: found 8, wanted a divisor of the 4 devices");
  EXPECT_FALSE(points.at(2).at("fits").get<bool>());
  json_args[1] = "--devices=8,16";
  const Json alone = Json::parse(RunTool("whatif", json_args).out).at("points");
  EXPECT_EQ(alone.at(0), points.at(1));
  EXPECT_EQ(alone.at(1), points.at(3));
  const ToolResult groups = RunTool("whatif", {model, "--devices=8,16", "--optimizer_weight_shard_size=16"});
  EXPECT_THAT(groups.out, HasSubstr("       8  left out: --optimizer_weight_shard_size: found 16"));
  // The place in the file is that of all counts.
  const ToolResult shard = RunTool("whatif", {kOracleB, "--devices=2..8"});
  EXPECT_EQ(shard.exit_code, 0);
  EXPECT_THAT(shard.out, HasSubstr("       2  left out: operators[0].shard: found ((2, 4), (4, 1)), wanted one that\n"
                                   "          fits MatMul on 2 devices\n"));
  const ToolResult none = RunTool("whatif", {model, "--devices=2,4", "--tensor_parallel=8"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--tensor_parallel: found 8, wanted a divisor of the 2 devices"));
}

TEST(WhatifTest, KnowsWhatOtherToolsCallAClustersKeys) {
  for (const char* const tool : {"plan", "whatif"}) {
    EXPECT_THAT(RunTool(tool, {kOracleB, "--nic_bandwidth=3 GB/s"}).err, HasSubstr("did you mean --inter_bandwidth?"))
        << tool;
  }
}

// Bounds are of the file or of flags, and never make a count a wrong one.
TEST(WhatifTest, DegreesKeepTheirBounds) {
  const std::string model = TempPath("bounds.yaml"), plan = TempPath("bounds_plan.yaml");
  std::ofstream(model) << ReadText(DataPath("models/configs/gpt2_124m.yaml")) << "parallel: {max_data_parallel: 2}\n";
  const Json report =
      Json::parse(RunTool("plan", {model, "--devices=8", "--max_stages=2", "--out=" + plan, "--format=json"}).out);
  const Json& strategy = report.at("strategy");
  EXPECT_LE(strategy.at("data_parallel").get<int>(), 2);
  EXPECT_LE(strategy.at("pipeline_stages").get<int>(), 2);
  EXPECT_GT(report.at("search").at("pruned").at("more than max_data_parallel").get<int>(), 0);
  EXPECT_EQ(RunTool("simulate", {plan}).exit_code, 0);
  EXPECT_EQ(RunTool("export/export", {plan, "--to=megatron"}).exit_code, 0);
  const Json sweep = Json::parse(RunTool("whatif", {model, "--devices=1..8", "--max_stages=2", "--format=json"}).out);
  EXPECT_EQ(sweep.at("points").at(3).at("step_time_s"), report.at("predicted").at("step_time_s"));
}

// 16 sequences a step; the note on their number is told once for both kinds.
TEST(WhatifTest, NotesAreThoseOfAllRows) {
  const ToolResult result = RunTool("whatif", {"models/configs/gpt2_124m.yaml", "--batch=16", "--devices=3,8",
                                               "--device=a100,v100", "--precision=bfloat16"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("note: v100-sxm-32gb has no bfloat16, whose products are priced as in float16"),
                    HasSubstr("note: a batch of 16 is no multiple of 3 devices: at most 1 can share it; "
                              "15 or 18 would leave more plans\n")));
  const std::vector<std::string> parts = absl::StrSplit(result.err, "is no multiple of 3");
  EXPECT_EQ(parts.size(), 2u);
}

}  // namespace
}  // namespace meshwright
