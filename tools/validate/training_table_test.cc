#include "tools/validate/training_table.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

constexpr char kHeader[] =
    "model,layers,hidden,heads,ffn,vocab,seq_len,global_batch_seqs,micro_batch_seqs,gpu_type,gpus,tp,pp,dp,cp,"
    "recompute,"
    "attention,zero_fsdp,step_time_s,status,note\n";

// Rows of an open layout are searched for once where they are equal in what counts, whatever they measured; each has
// its own defaults. A row of another micro-batch is another run.
TEST(TrainingTableTest, EqualRowsArePredictedOnce) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(std::string(kHeader) + "GPT,2,256,4,1024,1024,128,8,,A100,2,,,,1,none,flash,none,0.01,ok,x\n"
                                      "GPT,2,256,4,,1024,128,8,,A100,2,,,,1,none,flash,none,0.02,ok,y\n"
                                      "GPT,2,256,4,1024,1024,128,8,1,A100,2,2,1,1,1,none,flash,none,0.02,ok,x\n",
               "t.csv"));
  std::vector<std::pair<size_t, size_t>> told;
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}, [&](size_t done, size_t all) {
                         told.push_back({done, all});
                       }));
  EXPECT_EQ(told, (std::vector<std::pair<size_t, size_t>>{{1, 2}, {2, 2}}));
  EXPECT_EQ(result.rows[0].prediction.step, result.rows[1].prediction.step);
  EXPECT_EQ(result.rows[0].label, result.rows[1].label);
  EXPECT_NE(result.rows[0].prediction.step, result.rows[2].prediction.step);
  const auto count = [&](size_t row, const std::string& text) {
    return std::count(result.rows[row].defaults.begin(), result.rows[row].defaults.end(), text);
  };
  EXPECT_EQ(count(0, "ffn 1024"), 0);
  EXPECT_EQ(count(1, "ffn 1024"), 1);
  for (const size_t row : {0, 1}) {
    EXPECT_EQ(std::count_if(result.rows[row].defaults.begin(), result.rows[row].defaults.end(),
                            [](const std::string& text) { return absl::StartsWith(text, "pp "); }),
              1);
  }
  EXPECT_EQ(*result.rows[1].measured.step_seconds, 0.02);
}

// Layouts that nobody has run yet: predicted, with what they take of a device, and not counted as runs that fit.
TEST(TrainingTableTest, ATableWithoutMeasurementsIsPredicted) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("model,seq_len,global_batch_seqs,micro_batch_seqs,gpu,gpus,tp,pp\n"
                                "GPT-3 6.7B,2048,64,1,A100,8,1,1\nGPT-3 175B,2048,64,1,A100,8,8,1\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  const std::string text = ToText(result, true);
  EXPECT_THAT(text, HasSubstr("no row says how long a step took: their times are predicted and not compared; --rows"));
  EXPECT_THAT(text, HasSubstr("predicted 2, skipped 0"));
  EXPECT_THAT(text, HasSubstr(" GiB, fits; taken: "));
  EXPECT_THAT(text, HasSubstr(" GiB, does not fit; taken: "));
  EXPECT_EQ(Summarise(result).time.count, 0u);
  EXPECT_EQ(Summarise(result).fitting_rows, 0u);
  EXPECT_EQ(result.rows[0].PredictedPeak(), result.rows[0].prediction.peak + result.rows[0].cached);
}

// A share of the peak that recomputed layers count in times a step, too; peaks alone are compared.
TEST(TrainingTableTest, WhatTimesAStepAndWhatDoesNot) {
  constexpr char kRun[] = "model,seq_len,global_batch_seqs,micro_batch_seqs,gpu,gpus,tp,pp,recompute,";
  constexpr char kCells[] = "GPT-3 6.7B,2048,64,1,A100,8,1,1,full,";
  const auto with = [&](const char* column, const char* cell) {
    const auto table = ParseCsv(absl::StrCat(kRun, column, "\n", kCells, cell, "\n"), "t.csv");
    return PredictTrainingTable(*table, {});
  };
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult hardware, with("hfu_pct", "60"));
  EXPECT_EQ(Summarise(hardware).time.count, 1u);
  EXPECT_THAT(ToText(hardware, false), testing::Not(HasSubstr("no row says")));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult peaks, with("peak_mem_gb", "60"));
  EXPECT_EQ(Summarise(peaks).memory.count, 1u);
  EXPECT_THAT(ToText(peaks, false), HasSubstr("no row says how long a step took: their times are predicted"));
}

TEST(TrainingTableTest, SaysWhatColumnsAreMissing) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("Modell;Schichten;gpus;gpu;Zeit\nx;2;8;A100;3\n", "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  EXPECT_EQ(result.remarks.back(), "no column was read as hidden, step_time_s: give those that hold them these names");
  ASSERT_OK_AND_ASSIGN(const CsvTable timed, ParseCsv("Modell;gpus;gpu;step time (s)\nx;8;A100;3\n", "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult without, PredictTrainingTable(timed, {}));
  EXPECT_EQ(without.remarks.back(), "no column was read as hidden: give the one that holds it this name");
  ASSERT_OK_AND_ASSIGN(const CsvTable log, ParseCsv("iteration 1/ 9 | loss: 8\niteration 2/ 9 | loss: 7\n", "t.log"));
  EXPECT_THAT(PredictTrainingTable(log, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "t.log:1:1: found no column that tells of a run, wanted a line of names, such as model, "));
}

TEST(TrainingTableTest, EveryRowIsPredictedOrSaysWhyNot) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(std::string(kHeader) + "GPT,2,256,4,1024,1024,128,8,1,A100,2,2,1,1,1,none,flash,none,0.01,ok,x\n"
                                      "GPT,2,256,4,1024,1024,128,8,1,A100,2,1,1,2,1,none,flash,none,0.02,ok,x\n"
                                      "GPT,2,256,4,1024,1024,128,8,1,abacus,2,1,1,2,1,none,flash,none,0.02,ok,x\n"
                                      "GPT,2,256,4,1024,1024,128,8,,A100,2,1,2,1,1,none,flash,none,,oom,x\n",
               "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  const TrainingTableSummary summary = Summarise(result);
  EXPECT_EQ(summary.rows, 4u);
  EXPECT_EQ(summary.predicted, 3u);
  EXPECT_EQ(summary.skipped.counts().at("unknown device"), 1u);
  EXPECT_EQ(summary.time.count, 2u);
  EXPECT_EQ(summary.ranks.groups, 1u);
  EXPECT_EQ(summary.oom_rows, 1u);
  EXPECT_EQ(summary.oom_right, 0u);  // so small a model fits
  EXPECT_EQ(summary.fitting_right, 2u);
  EXPECT_GT(result.rows[0].prediction.step, Nanos());
  EXPECT_THAT(ToText(result, true), HasSubstr("line 4: GPT, 2 x abacus, tp1 pp1 dp2, micro-batch 1 of 8: skipped"));
  EXPECT_THAT(ToText(result, true), HasSubstr("(the fastest that fits)"));
  EXPECT_THAT(ToJson({result}, true), HasSubstr("\"predicted\": 3"));
}

// A peak of 46 GB is none of a card of 40 GB: whether the run fits such a card cannot be told.
TEST(TrainingTableTest, APeakAboveTheDevicesMemoryIsOfAnotherDevice) {
  const std::string header = "model,layers,hidden,heads,seq_len,global_batch_seqs,gpu_type,gpus,tp,pp,dp,peak_mem_gb\n";
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(header + "GPT,2,256,4,128,8,A100 40GB,2,1,1,2,38\nGPT,2,256,4,128,8,A100 40GB,2,1,1,2,46\n", "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  const TrainingTableSummary summary = Summarise(result);
  EXPECT_EQ(summary.predicted, 2u);
  EXPECT_EQ(summary.memory.count, 2u);
  EXPECT_EQ(summary.fitting_rows, 1u);
  EXPECT_EQ(summary.fitting_right, 1u);
}

// Three layouts, one of them twice: 0.02 and 0.04 are 0.03. Predicted, two stages of two ranks are slower than two
// ranks that share tensors or rows.
TEST(TrainingTableTest, RowsOfOneLayoutAreOneAlternative) {
  const std::string row = "GPT,2,256,4,1024,1024,128,8,1,A100,2,";
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv(absl::StrCat(kHeader, row, "2,1,1,1,none,flash,none,0.05,ok,x\n",  // tp
                                             row, "1,1,2,1,none,flash,none,0.02,ok,x\n",           // dp
                                             row, "1,1,2,1,none,flash,none,0.04,ok,again\n",       // dp
                                             row, "1,2,1,1,none,flash,none,0.01,ok,x\n",           // pp
                                             row, "1,2,1,1,none,flash,none,0.01,ok,x,1,2\n"),
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  const TrainingTableSummary summary = Summarise(result);
  EXPECT_EQ(summary.skipped.counts().at("damaged row"), 1u);
  ASSERT_EQ(summary.groups.size(), 1u);
  const LayoutGroup& group = summary.groups[0];
  EXPECT_EQ(group.lines, (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(group.layouts, 3u);
  ASSERT_TRUE(group.spearman.has_value());
  EXPECT_EQ(*group.spearman, summary.ranks.mean_spearman);
  EXPECT_EQ(group.regret, summary.ranks.mean_regret);
  const Nanos fastest = std::min(result.rows[0].prediction.step, result.rows[1].prediction.step);
  ASSERT_GT(result.rows[3].prediction.step, fastest);
  const bool data = fastest == result.rows[1].prediction.step;
  EXPECT_NEAR(group.regret, (data ? 0.03 : 0.05) / 0.01 - 1, 1e-9);
  EXPECT_THAT(ToText(result, true), HasSubstr("group of lines 2, 3, 4, 5: GPT, 2 x A100, 3 layouts, Spearman"));
  EXPECT_THAT(ToText(result, true), HasSubstr("skipped    1 damaged row: t.csv:6: found 23 cells"));
  EXPECT_THAT(ToJson({result}, true), HasSubstr("per_group"));
}

TEST(TrainingTableTest, WhatIsLeftOpenIsTheFastestThatFits) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(std::string(kHeader) + "GPT,2,256,4,1024,1024,128,8,1,A100,2,,,,1,none,flash,none,0.01,ok,x\n"
                                      "GPT,2,256,4,1024,1024,128,8,1,A100,2,2,1,1,1,none,flash,none,0.01,ok,x\n"
                                      "GPT,2,256,4,1024,1024,128,8,1,A100,2,1,2,1,1,none,flash,none,0.01,ok,x\n"
                                      "GPT,2,256,4,1024,1024,128,8,1,A100,2,1,1,2,1,none,flash,none,0.01,ok,x\n",
               "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  Nanos fastest = result.rows[1].prediction.step;
  for (size_t i = 2; i < 4; ++i) fastest = std::min(fastest, result.rows[i].prediction.step);
  EXPECT_EQ(result.rows[0].prediction.step, fastest);
  EXPECT_THAT(ToText(result, true), HasSubstr("tp 1 (the fastest that fits)"));
}

// A half of the layers recomputed: half way between none and all, in time and in memory.
TEST(TrainingTableTest, RecomputeOfSomeLayersLiesBetween) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(std::string(kHeader) +
                   "GPT,4,256,4,1024,1024,128,8,8,A100,1,1,1,1,1,none,flash,none,0.01,ok,x\n"
                   "GPT,4,256,4,1024,1024,128,8,8,A100,1,1,1,1,1,every 2nd layer,flash,none,0.01,ok,x\n"
                   "GPT,4,256,4,1024,1024,128,8,8,A100,1,1,1,1,1,full,flash,none,0.01,ok,x\n",
               "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  const auto step = [&](size_t row) { return result.rows[row].prediction.step.raw(); };
  const auto arena = [&](size_t row) { return result.rows[row].prediction.arena.raw(); };
  EXPECT_LT(step(0), step(2));
  EXPECT_NEAR(step(1), (step(0) + step(2)) / 2.0, 1);
  EXPECT_GT(arena(0), arena(2));
  EXPECT_NEAR(arena(1), (arena(0) + arena(2)) / 2.0, 1);
}

// Whatever stands in the cells, every row is predicted or says why not.
TEST(TrainingTableTest, OddCellsCostNoOtherRow) {
  constexpr absl::string_view kOdd[] = {"",
                                        "0",
                                        "-1",
                                        "1e18",
                                        "1e300",
                                        "nan",
                                        "inf",
                                        "H900",
                                        "4.5",
                                        "7",
                                        "128",
                                        "\"1,024\"",
                                        "\"a \"\"q\"\"\"",
                                        "full",
                                        "every 0th layer",
                                        "99999999 layers",
                                        "fp8",
                                        "GPT 9999b",
                                        "Mixtral 99999x7B",
                                        "\xff\xfe",
                                        " 8 "};
  const absl::string_view kRow = "GPT,2,256,4,1024,1024,128,8,1,A100,2,2,1,1,1,none,flash,none,0.01,ok,x";
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::minstd_rand random(seed + 1);
    std::vector<std::string> cells = absl::StrSplit(kRow, ',');
    for (int changes = 0; changes < 3; ++changes) {
      cells[random() % cells.size()] = std::string(kOdd[random() % std::size(kOdd)]);
    }
    const std::string end = seed % 2 == 0 ? "\n" : "\r\n";
    ASSERT_OK_AND_ASSIGN(
        const CsvTable table,
        ParseCsv(absl::StrCat("\xEF\xBB\xBF", kHeader, absl::StrJoin(cells, ","), end, kRow, end), "t.csv"));
    ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
    ASSERT_EQ(result.rows.size(), 2u);
    EXPECT_TRUE(!result.rows[0].skipped.empty() || result.rows[0].prediction.step > Nanos());
    EXPECT_TRUE(result.rows[1].skipped.empty()) << result.rows[1].skipped;
    EXPECT_THAT(ToText(result, true), HasSubstr("line 3: GPT"));
    EXPECT_THAT(ToJson({result}, true), HasSubstr("interval_s"));
  }
}

// With eight rows a micro-batch all layers' activations do not fit; with half of the layers computed again, they do.
TEST(TrainingTableTest, SomeLayersAgainWhereNoneWouldNotFit) {
  const std::string header =
      "model,layers,hidden,heads,seq_len,global_batch_seqs,micro_batch_seqs,gpu_type,gpus,tp,pp,dp,recompute,attention,"
      "step_time_s\n";
  const auto row = [](const std::string& rows, const std::string& recompute) {
    return absl::StrCat("GPT,32,2048,16,4096,64,", rows, ",A100-SXM4-80GB,8,1,1,8,", recompute, ",flash,2\n");
  };
  const std::string some = "every 2 layers";
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv(header + row("8", "none") + row("8", some) + row("", some), "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  ASSERT_EQ(result.rows.size(), 3u);
  EXPECT_FALSE(result.rows[0].prediction.fits());
  EXPECT_TRUE(result.rows[1].prediction.fits());
  EXPECT_THAT(ToText(result, true), HasSubstr("micro_batch_seqs 8 (the fastest that fits)"));
  EXPECT_EQ(result.rows[2].prediction.step, result.rows[1].prediction.step);
}

// Over one card a node an all-to-all of 16 replicas takes longer than all else; all experts of a tenth of the layers
// fit on a device (DeepSeek's own runs kept them there).
TEST(TrainingTableTest, ExpertsWhereTheyAreFastest) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv("model,gpu_type,gpus,gpus_per_node,interconnect,tp,pp,seq_len,global_batch_seqs,micro_batch_seqs,"
               "step_time_s\nDeepSeekMoE-16B,A100 PCIe 40GB,160,8,200 Gb/s,1,10,4096,4608,1,20.8\n",
               "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  EXPECT_THAT(ToText(result, true), HasSubstr("ep 1 (the fastest that fits)"));
}

// Patterns are matched with stack for each byte: these took more than there was.
TEST(TrainingTableTest, VeryLongCells) {
  const std::string gap(200'000, ' '), dashes(200'000, '-');
  const std::string cells[][2] = {{"model", "8" + gap + "x 7b"},
                                  {"zero_fsdp", "zero" + dashes + "3"},
                                  {"recompute", "every" + gap + "2"},
                                  {"gpu_type", "80" + gap + "gb"},
                                  {"gpus", "8" + gap + "x"},
                                  {"interconnect", "pcie" + gap + "gen4"},
                                  {"parallelism", gap + "tp" + gap + "2"}};
  for (const auto& [column, cell] : cells) {
    const std::string header = absl::StrCat(column, ",", column == "model" ? "x" : "model", ",tokens_per_s_total\n");
    ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv(absl::StrCat(header, cell, ",Llama 2 7B,1000\n"), "t.csv"));
    ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
    EXPECT_EQ(result.rows.size(), 1u) << column;
  }
}

TEST(TrainingTableTest, ADamagedCellIsNamed) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(std::string(kHeader) + "GPT,two,256,4,1024,1024,128,8,1,A100,2,2,1,1,1,none,flash,none,0.01,ok,x\n",
               "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
  EXPECT_EQ(result.rows[0].skipped, "damaged cell: t.csv:2: layers: found \"two\", wanted a number");
  EXPECT_EQ(Summarise(result).skipped.counts().at("damaged cell"), 1u);
}

// 1.5 s: a cluster of equal devices may take 1.39 to 1.62 s; 1.6 s is inside, 2 s is not.
TEST(TrainingTableTest, AnIntervalOfWhatClustersDifferBy) {
  TrainingTableResult result;
  for (const double measured : {1.6, 2.0}) {
    TrainingRowResult& row = result.rows.emplace_back();
    row.prediction.step = FromSeconds(1.5);
    row.measured.step_seconds = measured;
  }
  EXPECT_NEAR(result.rows[0].Interval().first, 1.389, 0.001);
  EXPECT_NEAR(result.rows[0].Interval().second, 1.62, 0.001);
  EXPECT_EQ(Summarise(result).inside, 1u);
}

TEST(TrainingTableTest, ErrorsAreOfPredictedAgainstMeasured) {
  TrainingTableResult result;
  for (const double measured : {1.0, 2.0}) {
    TrainingRowResult& row = result.rows.emplace_back();
    row.prediction.step = FromSeconds(1.5);
    row.measured.step_seconds = measured;
  }
  const TrainingTableSummary summary = Summarise(result);
  EXPECT_NEAR(summary.time.mean, (0.5 + 0.25) / 2, 1e-12);
  EXPECT_NEAR(summary.time.bias, (0.5 - 0.25) / 2, 1e-12);
  EXPECT_NEAR(summary.ranks.worst_regret, 0, 1e-12);  // a tie: the first is taken
}

}  // namespace
}  // namespace meshwright
