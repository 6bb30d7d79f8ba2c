#include "tools/step_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/search/search.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// 512 sequences of 1,024 tokens on 8 devices: 65,536 tokens of a step on each.
Problem ProblemOfLogs() {
  Problem problem;
  problem.batch = 512;
  problem.tokens_per_row = 1024;
  problem.cluster.nodes = 1;
  problem.cluster.devices_per_node = 8;
  return problem;
}

absl::StatusOr<StepLog> Parse(absl::string_view text) { return ParseStepLog(text, "train.log", ProblemOfLogs()); }

// Each as its trainer prints it.
TEST(StepLogTest, TrainersAreKnownByTheirLines) {
  const auto seconds_of = [](absl::string_view trainer, absl::string_view text) {
    const absl::StatusOr<StepLog> log = Parse(text);
    EXPECT_OK(log);
    if (!log.ok()) return std::vector<double>();
    EXPECT_EQ(log->trainer, trainer);
    return log->seconds;
  };
  EXPECT_THAT(
      seconds_of("Megatron-LM",
                 "building GPT model ...\r\n"
                 " [2024-11-02 10:01:02] iteration       10/     500 | consumed samples:         5120 | elapsed "
                 "time per iteration (ms): 5000.0 | throughput per GPU (TFLOP/s/GPU): 412.3 | global batch "
                 "size:   512 | lm loss: 9.1E+00 |\r\n"
                 " [2024-11-02 10:01:08] iteration       20/     500 | elapsed time per iteration (ms): 4000.0 "
                 "| global batch size:   512 |\r\n"),
      ElementsAre(5, 4));
  EXPECT_THAT(seconds_of("NeMo",
                         "Training epoch 0, iteration 0/9 | lr: 1e-06 | global_batch_size: 512 | "
                         "train_step_timing in s: 7.5\n"),
              ElementsAre(7.5));
  EXPECT_THAT(seconds_of("NeMo",
                         "Epoch 0: : 99%|#| 99/100 [10:48<00:00, train_step_timing in s=3.500]\r"
                         "Epoch 0: : 100%|#| 100/100 [10:48<00:00, train_step_timing in s=3.250]"),
              ElementsAre(3.5, 3.25));
  EXPECT_THAT(seconds_of("nanotron",
                         "iteration: 3 / 20 | consumed_tokens: 1.57M | elapsed_time_per_iteration_ms: 2.5K "
                         "| tokens_per_sec: 210K | global_batch_size: 512 | lm_loss: 10.3\n"),
              ElementsAre(2.5));
  // 512 rows of 1,024 tokens
  EXPECT_THAT(seconds_of("nanotron",
                         "iteration: 3 / 20 | consumed_tokens: 1.57M | time_per_iteration_ms: 2.5K | tokens_per_sec: "
                         "210K | tokens_per_sec_per_gpu: 26.2K | global_batch_size: 524K | lm_loss: 10.3\n"),
              ElementsAre(2.5));
  // As lines of containers' logs.
  EXPECT_THAT(
      seconds_of("Megatron-LM",
                 "{\"log\":\" iteration 1/ 100 | elapsed time per iteration (ms): 5000.0 | global batch size:   "
                 "512 |\\n\",\"stream\":\"stdout\"}\n"),
      ElementsAre(5));
  // 65,536 tokens at 8,192 a second.
  EXPECT_THAT(seconds_of("torchtitan",
                         "\x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[34mtps: 8,192  \x1b[36mtflops: "
                         "300.00  \x1b[35mmfu: 30.33%\x1b[39m\n"),
              ElementsAre(8));
  EXPECT_THAT(seconds_of("torchtitan",
                         "step: 10  loss: 7.1  memory: 60.12GiB(75.90%)  tps: 8,192  tflops: 533.10  mfu: 53.90%\n"
                         "validate step: 10  loss: 7.1  memory: 40.12GiB(50.90%)  tps: 26,963\n"),
              ElementsAre(8));
  EXPECT_THAT(seconds_of("DeepSpeed",
                         "[timer.py:260:stop] epoch=0/micro_step=3/global_step=3, "
                         "RunningAvgSamplesPerSec=74.6, CurrSamplesPerSec=128.0, MemAllocated=4.75GB\n"),
              ElementsAre(4));
  EXPECT_THAT(seconds_of("MindSpore", "Train epoch time: 12345.6 ms, per step time: 1500.0 ms\n"), ElementsAre(1.5));
}

TEST(StepLogTest, WhatIsNoLogOrAnotherRunIsAnError) {
  EXPECT_THAT(Parse("hello\nworld\n"),
              StatusIs(kInvalid, "train.log: found no step, wanted another plan, or what one of Megatron-LM, NeMo, "));
  EXPECT_THAT(Parse(""), StatusIs(kInvalid, "found no step"));
  EXPECT_THAT(Parse("\n\n tps: nan\n"), StatusIs(kInvalid, "found no step"));
  ASSERT_OK_AND_ASSIGN(const StepLog damaged, Parse(" tps: nan\n tps: 8,192\n tps: -3"));
  EXPECT_THAT(damaged.seconds, ElementsAre(8));
  EXPECT_EQ(damaged.unread, 2);
  EXPECT_THAT(Parse("\x1b["), StatusIs(kInvalid, "found no step"));
  EXPECT_THAT(
      Parse("\r\nelapsed time per iteration (ms): 5 | global batch size: 256 |"),
      StatusIs(kInvalid, "train.log:2: found a global batch of 256, wanted that of the plan, 512; plan with --batch"));
  // Only what is rounded may differ a little.
  EXPECT_THAT(Parse("elapsed time per iteration (ms): 5 | global batch size: 511 |"), StatusIs(kInvalid, "of 511"));
  EXPECT_OK(Parse("elapsed_time_per_iteration_ms: 2.5K | global_batch_size: 0.51K |"));
}

// Twelve steps: the first, of 60 s, is left out. Of 2, 2, .. 4 s the median of eleven is the sixth.
TEST(StepLogTest, BesideAPlan) {
  const SourceFile source{
      "m.yaml",
      "name: d\narchitecture: {decoder: {hidden: 64, layers: 4, heads: 4, vocab: 128}}\n"
      "training: {batch: 512, sequence: 1024, dtype: bfloat16, optimizer: adamw}\ncluster: {device: "
      "h100-sxm, nodes: 1}\n"};
  Plan plan;
  ASSERT_OK_AND_ASSIGN(plan.session, OpenModel(source, Flags()));
  ASSERT_OK_AND_ASSIGN(const SearchResult found, Search(plan.session.problem, SearchOptions{}));
  plan.strategy = found.ranked.front().strategy;
  std::string text = "elapsed time per iteration (ms): 60000 |\n";
  for (const int ms : {2000, 2100, 2200, 2300, 2400, 3000, 3100, 3200, 3300, 3400, 4000}) {
    absl::StrAppend(&text, "elapsed time per iteration (ms): ", ms, ".0 |\n");
  }
  ASSERT_OK_AND_ASSIGN(StepLog log, ParseStepLog(text, "train.log", plan.session.problem));
  ASSERT_OK_AND_ASSIGN(const LogComparison comparison, CompareWithLog("plan.yaml", plan, std::move(log)));
  EXPECT_EQ(comparison.left_out, 1);
  EXPECT_DOUBLE_EQ(comparison.median, 3);
  EXPECT_DOUBLE_EQ(comparison.low, 2.1);
  EXPECT_DOUBLE_EQ(comparison.high, 3.4);
  EXPECT_EQ(comparison.predicted.step, found.ranked.front().prediction.step);
  // What Megatron-LM does besides the program takes time, too.
  ASSERT_TRUE(comparison.as_trainer.has_value());
  EXPECT_GT(comparison.as_trainer->step, comparison.predicted.step);
  // Three seconds of four layers of width 64 no CPU explains.
  EXPECT_EQ(comparison.cpu_slowdown, std::nullopt);
  const std::string shown = ToText(comparison);
  EXPECT_THAT(shown, HasSubstr(" times what was predicted of Megatron-LM ("));
  // 65,536 tokens in 3 s.
  EXPECT_THAT(shown, HasSubstr("measured        3.000 s      21.85 k"));
  EXPECT_THAT(shown, HasSubstr("measured: 11 lines of Megatron-LM, the median; eight in ten 2.100 s to 3.400 s\n"
                               "left out: 1 line at the beginning, 0 without a number\n"));
  for (const absl::string_view line : absl::StrSplit(shown, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(shown, Not(HasSubstr("another model")));
  // Half as long again as predicted: a step that waits for its CPUs may be.
  const double longer = ToSeconds(comparison.as_trainer->step) * 1.5;
  ASSERT_OK_AND_ASSIGN(const LogComparison waits,
                       CompareWithLog("plan.yaml", plan, {"train.log", "Megatron-LM", {longer, longer}, 0}));
  ASSERT_TRUE(waits.cpu_slowdown.has_value());
  EXPECT_GE(*waits.cpu_slowdown, 1.49);  // no step grows faster than its CPUs' time; to the hundredth
  EXPECT_THAT(ToText(waits), HasSubstr(absl::StrFormat("  as predicted where the cluster has `cpu_slowdown: %.2f`",
                                                       *waits.cpu_slowdown)));
  EXPECT_EQ(ToJson(waits).at("cpu_slowdown"), *waits.cpu_slowdown);
  for (const absl::string_view line : absl::StrSplit(ToText(waits), '\n')) EXPECT_LE(line.size(), 80u) << line;
  // Twice as fast as the devices' peak.
  LogComparison fast = comparison;
  fast.median = ToSeconds(fast.predicted.step) * fast.predicted.mfu / 2;
  EXPECT_THAT(ToText(fast), HasSubstr("above 100 % MFU: is the log of another model, batch or cluster?\n"));
  const Json json = ToJson(comparison);
  EXPECT_DOUBLE_EQ(json.at("as_trainer").at("step_time_s").get<double>(), ToSeconds(comparison.as_trainer->step));
  EXPECT_EQ(json.at("schema"), "meshwright/log_comparison/1");
  EXPECT_DOUBLE_EQ(json.at("measured_over_predicted").get<double>(),
                   3 / json.at("predicted").at("step_time_s").get<double>());
}

}  // namespace
}  // namespace meshwright
