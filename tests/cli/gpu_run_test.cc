// `run --device=gpu` as a user sees it where there is no GPU: what it says, and, on stand-ins, what it prints.
#include <cstdlib>
#include <filesystem>
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
