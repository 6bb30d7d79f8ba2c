#include "tools/validate/framework.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using Cells = std::vector<std::pair<std::string, std::string>>;

Framework Of(const Cells& cells, int64_t sequence = 2048) {
  std::string header = "status", row = "ok";
  for (const auto& [name, value] : cells) {
    absl::StrAppend(&header, ",", name);
    absl::StrAppend(&row, ",", value);
  }
  const absl::StatusOr<CsvTable> table = ParseCsv(absl::StrCat(header, "\n", row, "\n"), "t.csv");
  EXPECT_OK(table);
  return FrameworkOf(CsvCells(*table, table->rows[0]), sequence);
}

TEST(FrameworkTest, EagerUnlessCompiledOrCaptured) {
  EXPECT_TRUE(Of({{"compile", ""}}).eager);
  EXPECT_TRUE(Of({{"compile", "no"}}).eager);
  EXPECT_FALSE(Of({{"compile", "torch.compile"}}).eager);
  EXPECT_FALSE(Of({{"other_opts", "CUDA graphs"}}).eager);
  EXPECT_FALSE(Of({{"recompute", "llm.c -r 1"}}).eager);
}

TEST(FrameworkTest, FusedLosses) {
  EXPECT_FALSE(Of({{"attention", "flash"}}).fused_loss);
  EXPECT_TRUE(Of({{"compile", "torch.compile"}}).fused_loss);
  const Framework foundry = Of({{"attention", "flash (FA via MPT attn_impl)"}});
  EXPECT_TRUE(foundry.fused_loss);
  EXPECT_EQ(foundry.logits, (EagerBytes{28, 0}));  // its two metrics
  EXPECT_TRUE(Of({{"attention", "flash v1"}, {"other_opts", "FlashAttention (this repo)"}}).fused_loss);
}

TEST(FrameworkTest, AttentionStepByStep) {
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "Megatron-LM"}}).scores, EagerBytes());
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}}).scores, (EagerBytes{24, 26}));
  EXPECT_GT(Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}}).activations.backward, 0);
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "Megatron-LM"}}, 8192).scores, (EagerBytes{24, 26}));
  EXPECT_EQ(Of({{"attention", "flash"}, {"other_opts", "HuggingFace"}}).scores, EagerBytes());
}

TEST(FrameworkTest, WhoOverlapsProducts) {
  EXPECT_TRUE(Of({{"attention", "TE/cuDNN flash"}}).overlaps_products);
  EXPECT_TRUE(Of({{"other_opts", "2D + async TP"}}).overlaps_products);
  EXPECT_FALSE(Of({{"attention", "flash"}}).overlaps_products);
}

TEST(FrameworkTest, TheFirstFlashAttention) {
  EXPECT_EQ(Of({{"attention", "FlashAttention"}, {"source_ref", "FlashAttention-2 paper"}}).attention, "flash1");
  EXPECT_EQ(Of({{"attention", "FlashAttention-2"}, {"source_ref", "FlashAttention-2 paper"}}).attention, "");
  EXPECT_EQ(Of({{"attention", "FlashAttention-3"}}).attention, "flash3");
  EXPECT_EQ(Of({{"attention", "FlashAttention"}}).attention, "");
}

TEST(FrameworkTest, CallsForEachTensor) {
  const auto calls = [](const std::string& model, const std::string& zero, const std::string& attention) {
    const absl::StatusOr<CsvTable> table =
        ParseCsv(absl::StrCat("model,zero_fsdp,attention\n", model, ",", zero, ",", attention, "\n"), "t.csv");
    EXPECT_OK(table);
    const CsvCells cells(*table, table->rows[0]);
    return CallsEachTensor(cells, FrameworkOf(cells, 2048));
  };
  EXPECT_TRUE(calls("Llama (nanotron)", "ZeRO-1", "flash"));
  EXPECT_FALSE(calls("Llama (nanotron)", "ZeRO-0", "flash"));
  EXPECT_TRUE(calls("InternLM-7B", "ZeRO-1 over all DP ranks", "flash"));
  EXPECT_FALSE(calls("InternLM-7B", "ZeRO-1 within groups of 8 GPUs", "flash"));
  EXPECT_TRUE(calls("GPT", "ZeRO-3", "unfused"));
  EXPECT_FALSE(calls("GPT", "FSDP2 (ZeRO-3)", "SDPA"));
}

}  // namespace
}  // namespace meshwright
