#include "tools/validate/training_measurement.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"
#include "tools/validate/row_testing.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<TrainingMeasurement> MeasuredOf(const Cells& changes) {
  const CsvTable table = TableOf(changes);
  const CsvCells cells(table, table.rows[0]);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingRun run, ReadTrainingRun(cells, {}));
  return ReadTrainingMeasurement(cells, run);
}

TEST(TrainingMeasurementTest, StepTimeElseDerivedElseTokens) {
  ASSERT_OK_AND_ASSIGN(TrainingMeasurement measured, MeasuredOf({{"step_time_derived_s", "3"}}));
  EXPECT_EQ(measured.step_seconds, 2);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"step_time_s", ""}, {"step_time_derived_s", "3"}}));
  EXPECT_EQ(measured.step_seconds, 3);
  // 64 x 1024 tokens at 16 x 512 a second.
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"step_time_s", ""}, {"tokens_per_s_per_gpu", "512"}}));
  EXPECT_EQ(measured.step_seconds, 8);
  EXPECT_EQ(measured.from, "tokens_per_s_per_gpu");
  // 1 TFLOP/s on each of 16 devices: 4 (24 B s L h^2 (1 + s/6h) + 3/4 of 2 B s h V) with B = 64, V = 51200.
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"step_time_s", ""}, {"tflops_per_gpu", "1"}, {"flops_def", "96BLsh^2"}}));
  EXPECT_NEAR(*measured.step_seconds, 65536.0 * (96 * 4 * 1048576.0 * (1 + 1 / 6.0) + 6 * 1024.0 * 51200) / 16e12,
              1e-9);
  EXPECT_THAT(std::string(MeasuredOf({{"step_time_s", ""}}).status().message()), HasSubstr("no time or rate"));
  EXPECT_THAT(std::string(MeasuredOf({{"status", "suspect"}}).status().message()), HasSubstr("status: suspect"));
}

// 64 rows at 8 a second, or at 1 a second on each of 8 devices.
TEST(TrainingMeasurementTest, RowsASecondAreARate) {
  for (const std::string column : {",samples_per_s", ",samples_per_s_per_gpu"}) {
    ASSERT_OK_AND_ASSIGN(const CsvTable table, Table(column, column == ",samples_per_s" ? ",8" : ",1"));
    const CsvCells cells(table, table.rows[0]);
    ASSERT_OK_AND_ASSIGN(const TrainingRun run, ReadTrainingRun(cells, {}));
    ASSERT_OK_AND_ASSIGN(const TrainingMeasurement measured, ReadTrainingMeasurement(cells, run));
    EXPECT_EQ(measured.step_seconds, 8.0);
  }
}

// 6 N + 12 L h s FLOPs a token, of which 8 devices take 50 % of 312 TFLOP/s: N is 6.738e9 with both embeddings, L h s
// 32 x 4096 x 2048, so that 64 x 2048 tokens take 64 x 2048 x 4.365e10 / (8 x 156e12) = 4.584 s.
TEST(TrainingMeasurementTest, AShareOfThePeakIsARate) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, Table(",dtype,mfu_pct,flops_def", ",bf16,50,PaLM: 6N+12Lhs"));
  const CsvCells cells(table, table.rows[0]);
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, ReadTrainingRun(cells, {}));
  ASSERT_OK_AND_ASSIGN(const TrainingMeasurement measured, ReadTrainingMeasurement(cells, run));
  ASSERT_TRUE(measured.step_seconds.has_value());
  EXPECT_NEAR(*measured.step_seconds, 4.584, 0.01);
  EXPECT_EQ(measured.from, "mfu_pct, FLOPs as flops_def counts them");
  ASSERT_OK_AND_ASSIGN(const CsvTable bare, Table(",dtype,mfu_pct", ",bf16,50"));
  ASSERT_OK_AND_ASSIGN(const TrainingMeasurement usual, ReadTrainingMeasurement(CsvCells(bare, bare.rows[0]), run));
  EXPECT_EQ(*usual.step_seconds, *measured.step_seconds);
  EXPECT_EQ(usual.from, "mfu_pct, FLOPs taken for 6 N + 12 L h s a token");
  // A rate of the hardware counts the forward pass twice, of three, where layers are recomputed.
  ASSERT_OK_AND_ASSIGN(const CsvTable hardware, Table(",dtype,tflops_per_gpu,hfu_pct,recompute", ",bf16,156,50,full"));
  const CsvCells again(hardware, hardware.rows[0]);
  ASSERT_OK_AND_ASSIGN(const TrainingRun recomputed, ReadTrainingRun(again, {}));
  ASSERT_OK_AND_ASSIGN(const TrainingMeasurement rate, ReadTrainingMeasurement(again, recomputed));
  EXPECT_NEAR(*rate.step_seconds, 4.584 * 4 / 3, 0.01);
  // So does a share of the peak alone; of half of the 32 layers, a sixth more; without recompute it is MFU.
  for (const auto& [recompute, passes] :
       {std::pair("full", 4.0 / 3), std::pair("block 16 layers", 7.0 / 6), std::pair("none", 1.0)}) {
    ASSERT_OK_AND_ASSIGN(const CsvTable shares,
                         Table(",dtype,hfu_pct,recompute", absl::StrCat(",bf16,50,", recompute)));
    const CsvCells row(shares, shares.rows[0]);
    ASSERT_OK_AND_ASSIGN(const TrainingRun known, ReadTrainingRun(row, {}));
    ASSERT_OK_AND_ASSIGN(const TrainingMeasurement alone, ReadTrainingMeasurement(row, known));
    EXPECT_NEAR(*alone.step_seconds, 4.584 * passes, 0.01);
    EXPECT_EQ(alone.from, "hfu_pct, FLOPs taken for 6 N + 12 L h s a token");
  }
}

TEST(TrainingMeasurementTest, MemoryAsTheCounterMeansIt) {
  ASSERT_OK_AND_ASSIGN(TrainingMeasurement measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GB"}}));
  EXPECT_EQ(measured.peak, Bytes(2000000000));
  EXPECT_FALSE(measured.whole_process);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GB from nvidia-smi"}}));
  EXPECT_EQ(measured.peak, GiB(2));
  EXPECT_TRUE(measured.whole_process);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GiB, max reserved"}}));
  EXPECT_EQ(measured.peak, GiB(2));
  EXPECT_TRUE(measured.reserved);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GB, nanotron peak memory"}}));
  EXPECT_EQ(measured.peak, GiB(2));
  EXPECT_TRUE(measured.reserved);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GiB"}, {"notes", "torchtitan log"}}));
  EXPECT_TRUE(measured.reserved);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"status", "oom"}}));
  EXPECT_TRUE(measured.out_of_memory);
  EXPECT_FALSE(measured.step_seconds.has_value());
}

// Of the card's memory, whoever uses it.
TEST(TrainingMeasurementTest, MemoryAsAShareOfTheCard) {
  const absl::StatusOr<CsvTable> table = ParseCsv("peak_mem_pct\n25\n", "t.csv");
  ASSERT_OK(table);
  TrainingRun run;
  run.cluster.device.memory = GiB(80);
  ASSERT_OK_AND_ASSIGN(const TrainingMeasurement measured,
                       ReadTrainingMeasurement(CsvCells(*table, table->rows[0]), run));
  EXPECT_EQ(measured.peak, GiB(20));
  EXPECT_TRUE(measured.whole_process);
}

// FlashAttention's training code reads nvidia-smi, in thousands of MiB.
TEST(TrainingMeasurementTest, MemoryOfTheWholeProcess) {
  const absl::StatusOr<CsvTable> table =
      ParseCsv("source_ref,peak_mem_gb,mem_def\nflash-attention training/configs/owt,2,GB as commented\n", "t.csv");
  ASSERT_OK(table);
  ASSERT_OK_AND_ASSIGN(const TrainingMeasurement measured,
                       ReadTrainingMeasurement(CsvCells(*table, table->rows[0]), TrainingRun()));
  EXPECT_EQ(measured.peak, MiB(2000));
  EXPECT_TRUE(measured.whole_process);
}

}  // namespace
}  // namespace meshwright
