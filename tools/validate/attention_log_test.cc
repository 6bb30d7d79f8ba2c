#include "tools/validate/attention_log.h"

#include <string>

#include "gtest/gtest.h"
#include "tools/validate/csv.h"

namespace meshwright {
namespace {

constexpr char kLog[] = R"(python benchmarks/benchmark_flash_attention.py
### causal=True, headdim=64, batch_size=4, seqlen=4096 ###
Flash2 fwd: 53.13 TFLOPs/s, bwd: 51.93 TFLOPs/s, fwd + bwd: 52.27 TFLOPs/s
Triton fwd: 0.00 TFLOPs/s, bwd: 0.00 TFLOPs/s, fwd + bwd: 0.00 TFLOPs/s
### headdim = 128, causal = False, seqlen = 8192, batch_size = 2, nheads = 16, nheads_kv = 4, varlen = False ###
FA Python fwd: 1.433ms, 1534.8 TFLOPS
)";

std::string RowOf(const CsvTable& table, size_t row) {
  std::string text;
  for (const std::string& cell : table.rows[row].cells) text += cell + "|";
  return text;
}

// 2048 columns of 64 are 32 heads; what did not run is no row.
TEST(AttentionLogTest, ARowForEachPass) {
  ASSERT_TRUE(LooksLikeAttentionLog(kLog));
  const CsvTable table = TableOfAttentionLog(kLog, "x.log");
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(RowOf(table, 0), "Flash2|fwd|True|64|4|4096|32|||53.13|");
  EXPECT_EQ(RowOf(table, 1), "Flash2|bwd|True|64|4|4096|32|||51.93|");
  EXPECT_EQ(RowOf(table, 2), "Flash2|fwd + bwd|True|64|4|4096|32|||52.27|");
  EXPECT_EQ(RowOf(table, 3), "FA Python|fwd|False|128|2|8192|16|4|1.433|1534.8|");
  EXPECT_EQ(table.rows[3].line, 6);
}

TEST(AttentionLogTest, TablesAreNone) {
  EXPECT_FALSE(LooksLikeAttentionLog("headdim,seqlen\n### x\n"));
  EXPECT_TRUE(TableOfAttentionLog("### headdim=0, seqlen=\xff ###\nwd:\nfwd: 1..2 TFLOPs/s\n", "x").rows.empty());
}

}  // namespace
}  // namespace meshwright
