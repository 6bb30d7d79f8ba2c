#include "tools/validate/siblings.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr char kColumns[] = "model,gpus,other_opts,global_batch_seqs,tp,pp,dp,micro_batch_seqs\n";

// The micro-batch of the layout that the first row takes; 0 where there is none.
int64_t RowsOf(const std::string& rows) {
  const absl::StatusOr<CsvTable> table = ParseCsv(absl::StrCat(kColumns, rows), "t.csv");
  EXPECT_OK(table);
  const auto sibling = SiblingWithLayout(CsvCells(*table, table->rows[0]));
  return sibling.has_value() ? sibling->Int("micro_batch_seqs", 1)->value_or(0) : 0;
}

TEST(SiblingsTest, LayoutOfTheSameRun) {
  EXPECT_EQ(RowsOf("A,8,SFT,32,,,,\nA,8,SFT,32,2,1,4,4\n"), 4);
  EXPECT_EQ(RowsOf("A,8,SFT,32,,,,\nA,8,LoRA,32,2,1,4,4\nB,8,SFT,32,2,1,4,4\nA,16,SFT,32,2,1,8,4\n"), 0);
  EXPECT_EQ(RowsOf("A,8,SFT,32,2,1,4,\nA,8,SFT,32,2,1,4,4\n"), 0);  // has one of its own
}

TEST(SiblingsTest, NearestBatchThatDivides) {
  EXPECT_EQ(RowsOf("A,8,,32,,,,\nA,8,,256,1,1,8,1\nA,8,,64,1,1,8,2\nA,8,,64,1,1,8,4\n"), 2);
  EXPECT_EQ(RowsOf("A,8,,32,,,,\nA,8,,32,1,1,8,3\nA,8,,x,1,1,8,2\nA,8,,64,1,1,8,4\n"), 4);
  EXPECT_EQ(RowsOf("A,8,,32,,,,\nA,8,,32,3,1,,1\n"), 0);
}

// 2^32 x 2^32 is 0 in 64 bits.
TEST(SiblingsTest, MoreThanDevicesDividesNothing) {
  EXPECT_EQ(RowsOf("A,8,,32,,,,\nA,8,,32,4294967296,4294967296,,1\n"), 0);
}

}  // namespace
}  // namespace meshwright
