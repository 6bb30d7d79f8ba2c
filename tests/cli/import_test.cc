// import on the command line, and what `plan` makes of its files.
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/run_tool.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

constexpr char kTiny[] = "models/configs/gpt2_tiny.yaml";

std::string TempPath(const std::string& name) { return absl::StrCat(std::string(testing::TempDir()), "/", name); }

// From a plan to a trainer's script, and from the script to the same plan: what it decided is not searched again.
TEST(ImportTest, AScriptBecomesTheModelThatItWasMadeOf) {
  const std::string plan = TempPath("there.yaml"), script = TempPath("there.sh"), model = TempPath("back.yaml");
  const ToolResult there = RunTool("plan", {kTiny, "--stages=2", "--out=" + plan});
  ASSERT_EQ(there.exit_code, 0) << there.err;
  ASSERT_EQ(RunTool("export/export", {plan, "--to=megatron", "--out=" + script}).exit_code, 0);
  const ToolResult imported = RunTool("import/import", {script, "--device=a100", "--vocab=256", "--out=" + model});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_EQ(imported.out, absl::StrCat("wrote ", model, "\n"));
  const ToolResult back = RunTool("plan", {model, "--out="});
  ASSERT_EQ(back.exit_code, 0) << back.err;
  const auto decided = [](const std::string& report) {  // "plan: data 4 x pipeline 2, .. bucket .."
    const size_t begin = report.find("\nplan: "), end = report.find("buckets", begin);
    return begin == std::string::npos || end == std::string::npos ? report : report.substr(begin, end - begin);
  };
  EXPECT_EQ(decided(back.out), decided(there.out));
  const ToolResult unknown = RunTool("import/import", {script, "--device=h101", "--vocab=256"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--device: "));
  const ToolResult none = RunTool("import/import", {plan});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(
      none.err,
      HasSubstr(
          "found nothing that is known, wanted one of megatron_log, megatron, nemo, nanotron, accelerate, deepspeed, "
          "torchtitan, "
          "cluster"));
}

// The settings of a trainer whose model is its users' code; a flag names it. The plan is theirs, and no other.
TEST(ImportTest, SettingsOfDeepSpeedAndAccelerateArePlanned) {
  const std::string settings = TempPath("ds_config.json"), model = TempPath("ds_model.yaml");
  std::ofstream(settings) << R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true},
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})";
  const ToolResult none = RunTool("import/import", {settings});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("wanted the config.json of the model; give it as --model=config.json"));
  const std::string named = absl::StrCat("--model=", kTiny);
  const ToolResult imported = RunTool("import/import", {settings, named, "--device=h100", "--out=" + model});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const ToolResult plan = RunTool("plan", {model, "--recompute=none", "--out="});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  // 64 / (2 x 4) = 8 devices.
  EXPECT_THAT(plan.out, HasSubstr("plan: data 8 x tensor 1 x pipeline 1, micro-batch 2, 4 micro-batches"));
  EXPECT_THAT(plan.out, HasSubstr("parameters split"));
  const std::string yaml = TempPath("accelerate.yaml");
  std::ofstream(yaml) << "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: " << settings
                      << "}\nnum_processes: 8\n";
  const ToolResult around = RunTool("import/import", {yaml, named, "--device=h100", "--deepspeed=" + settings});
  ASSERT_EQ(around.exit_code, 0) << around.err;
  EXPECT_THAT(around.out, HasSubstr("  data_parallel: 8\n"));
  const ToolResult lost = RunTool("import/import", {settings, named, "--out=" + settings});
  EXPECT_EQ(lost.exit_code, 6);
  EXPECT_THAT(lost.err, HasSubstr("found a file that this command reads"));
}

TEST(ImportTest, CardsBecomeACluster) {
  const std::string cards = TempPath("cards.txt"), machine = TempPath("machine.yaml");
  std::ofstream(cards) << "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n";
  const ToolResult imported = RunTool("import/import", {cards, "--nodes=2", "--out=" + machine});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const ToolResult plan = RunTool("plan", {kTiny, "--cluster=" + machine, "--out="});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("2 nodes x 2 h100-sxm, "));
}

}  // namespace
}  // namespace meshwright
