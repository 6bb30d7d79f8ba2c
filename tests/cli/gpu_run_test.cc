// `run --device=gpu` as a user sees it where there is no GPU: what it says, and, on stand-ins, what it prints.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/run_tool.h"

namespace meshwright {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kOracleB[] = "models/configs/oracle_b.yaml";
constexpr char kStandIn[] = "../tests/cli/run_stand_in";

std::string TempPath(const std::string& name) { return absl::StrCat(std::string(testing::TempDir()), "/", name); }

std::vector<double> LossesOf(const std::string& out) {
  std::vector<double> losses;
  for (const absl::string_view part : absl::StrSplit(out, '\n')) {
    const std::string line(part);
    const size_t at = line.find("loss is ");
    if (at != std::string::npos) losses.push_back(std::strtod(line.c_str() + at + 8, nullptr));
  }
  return losses;
}

bool HasDriver() { return std::system("ldconfig -p 2>/dev/null | grep -q libcuda.so.1") == 0; }

TEST(GpuRunTest, WithoutADriverItSaysSo) {
  if (HasDriver()) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const std::vector<ToolOptions> launchers = {
      {}, {.variables = {{"OMPI_COMM_WORLD_RANK", "0"}}}, {.variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}}}};
  for (const ToolOptions& launcher : launchers) {
    const ToolResult result = RunTool("run", {kOracleB, "--device=gpu"}, launcher);
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_THAT(result.err, HasSubstr("run: --device=gpu: this machine has no GPU that can be used: there is no NVIDIA "
                                      "driver (libcuda.so.1"));
    EXPECT_EQ(result.out, "");
  }
}

TEST(GpuRunTest, AnUnknownKindOfDevice) {
  const ToolResult result = RunTool("run", {kOracleB, "--device=tpu"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--device: found \"tpu\", wanted one of host, gpu"));
}

// The lines of the host's run, to the bit: the kernels are the host's, and reductions in the order of the group.
TEST(GpuRunTest, TheSameLinesAsOnTheHost) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{kOracleB, "--steps=4"},
        {kOracleB, "--steps=4", "--ranks=8"},
        {kOracleB, "--steps=4", "--ranks=8", "--ignore_shards", "--stages=4", "--microbatches=4", "--all_ranks"},
        {kOracleB, "--steps=4", "--ranks=8", "--format=json"}}) {
    const ToolResult host = RunTool("run", args), gpu = RunTool(kStandIn, args);
    ASSERT_EQ(host.exit_code, 0) << host.err;
    ASSERT_EQ(gpu.exit_code, 0) << gpu.err;
    EXPECT_EQ(gpu.out, host.out);
  }
}

// What differs between steps: the optimizer's corrections and the masks. Launched as a graph, issued call by call, and
// with the devices' own kernels, which sum in other orders.
TEST(GpuRunTest, StepsThatDifferInNumberAreLaunchedAgain) {
  const std::string file = TempPath("masks.yaml");
  std::ofstream(file) << R"(name: masks
inputs:
  x: {shape: [16, 32], dtype: float64, init: {uniform: [0, 1]}}
  label: {shape: [16, 16], dtype: float64, init: {uniform: [0, 1]}}
parameters:
  w: {shape: [32, 16], dtype: float64, init: {normal: 0.1}}
  w2: {shape: [16, 16], dtype: float64, init: {normal: 0.1}}
operators:
  - {name: matmul,  op: MatMul,  inputs: [x, w]}
  - {name: drop,    op: Dropout, inputs: [matmul], rate: 0.4}
  - {name: matmul2, op: MatMul,  inputs: [drop, w2]}
  - {name: loss,    op: MSELoss, inputs: [matmul2, label]}
training: {dtype: float64, optimizer: {adamw: {learning_rate: 0.05, weight_decay: 0.1}}, steps: 6, seed: 1}
)";
  const std::vector<std::string> args = {file, "--ranks=2", "--mode=data_parallel"};
  const ToolResult host = RunTool("run", args);
  ASSERT_EQ(host.exit_code, 0) << host.err;
  const std::vector<double> expected = LossesOf(host.out);
  ASSERT_EQ(expected.size(), 6u);
  EXPECT_EQ(RunTool(kStandIn, args).out, host.out);
  std::vector<std::string> issued = args;
  issued.push_back("--nographs");
  EXPECT_EQ(RunTool(kStandIn, issued).out, host.out);
  const std::vector<double> losses =
      LossesOf(RunTool(kStandIn, args, {.variables = {{"MESHWRIGHT_EMULATED", "1"}}}).out);
  ASSERT_EQ(losses.size(), 6u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-12);
}

// A byte-level GPT on this project's own text learns, and does so alike on stand-ins, with every step but two a launch.
TEST(GpuRunTest, AGptOverBytesLearns) {
  const std::vector<std::string> args = {"models/configs/gpt_bytes.yaml", "--steps=12", "--data=models/README.md"};
  const ToolResult host = RunTool("run", args);
  ASSERT_EQ(host.exit_code, 0) << host.err;
  const std::vector<double> losses = LossesOf(host.out);
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_NEAR(losses.front(), 5.55, 0.1);  // ln 256 = 5.545: it knows nothing
  EXPECT_LT(losses.back(), 4.2);
  const std::vector<double> found = LossesOf(RunTool(kStandIn, args).out);
  ASSERT_EQ(found.size(), losses.size());
  // In float32, whose products the host's BLAS sums in an order of the CPU's, and the stand-in in double.
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(found[i], losses[i], 1e-5) << i;
}

// The precision of the model file: bfloat16 with float32 masters and gradients, on a device alone.
TEST(GpuRunTest, BFloat16WithFloat32Masters) {
  const std::vector<std::string> args = {"models/configs/gpt2_tiny.yaml", "--steps=8", "--precision=bfloat16"};
  EXPECT_EQ(RunTool("run", args).exit_code, 2);
  const ToolResult narrow = RunTool(kStandIn, args);
  ASSERT_EQ(narrow.exit_code, 0) << narrow.err;
  EXPECT_THAT(narrow.err, HasSubstr("bfloat16"));
  const std::vector<double> wide = LossesOf(RunTool("run", {args[0], args[1]}).out), found = LossesOf(narrow.out);
  ASSERT_EQ(found.size(), wide.size());
  // Sums of many roundings of one part in 256 that mostly cancel. The weights move although a step is below a
  // bfloat16's spacing.
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(found[i], wide[i], 0.001 * wide[i]) << i;
  EXPECT_LT(found.back(), found.front() - 0.3);
}

TEST(GpuRunTest, ATimelineOfEveryInstruction) {
  const std::string plan = TempPath("plan.yaml"), sim = TempPath("sim.json"), run = TempPath("run.json");
  ASSERT_EQ(RunTool("plan", {"models/configs/gpt2_tiny.yaml", "--stages=2", "--out=" + plan}).exit_code, 0);
  ASSERT_EQ(RunTool("simulate", {plan, "--trace=" + sim}).exit_code, 0);
  const ToolResult ran = RunTool(kStandIn, {plan, "--steps=3", "--trace=" + run});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const ToolResult joined = RunTool("compare", {sim, run, "--format=json"});
  ASSERT_EQ(joined.exit_code, 0) << joined.err;
  const Json report = Json::parse(joined.out);
  EXPECT_GT(report.at("joined").get<int64_t>(), 100);
  EXPECT_EQ(report.at("only_simulated").get<int64_t>(), 0);
  EXPECT_EQ(report.at("only_measured").get<int64_t>(), 0);
}

}  // namespace
}  // namespace meshwright
