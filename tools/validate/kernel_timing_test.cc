#include "tools/validate/kernel_timing.h"

#include <string>

#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

double AloneFor(const std::string& column, const std::string& text) {
  const absl::StatusOr<CsvTable> table = ParseCsv(column + ",m\n" + text + ",1\n", "t.csv");
  return table.ok() ? SecondsAlone(CsvCells(*table, table->rows[0])) : -1;
}

// Whichever column says it; nothing is added to loops.
TEST(KernelTimingTest, WordsOfARowSayHowItWasTimed) {
  EXPECT_EQ(AloneFor("library", "PyTorch profiler"), 1.8e-6);
  EXPECT_EQ(AloneFor("impl", "PyTorch profiler"), 1.8e-6);
  EXPECT_EQ(AloneFor("impl", "DeepGEMM"), 1.8e-6);
  EXPECT_EQ(AloneFor("source", "an analysis (cold L2)"), 5.2e-6);
  EXPECT_EQ(AloneFor("notes", "one at a time between two synchronisations"), 6.7e-6);
  EXPECT_EQ(AloneFor("source", "sitar-lab/NeuSight linear.csv"), 20e-6);
  EXPECT_EQ(AloneFor("impl", "cuBLAS"), 0);
}

TEST(KernelTimingTest, CollectorsRunFewTimes) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("source_ref,m\nai-dynamo/aiconfigurator,1\nvidur,1\n", "t.csv"));
  EXPECT_TRUE(RunsFewTimes(CsvCells(table, table.rows[0])));
  EXPECT_FALSE(RunsFewTimes(CsvCells(table, table.rows[1])));
}

}  // namespace
}  // namespace meshwright
