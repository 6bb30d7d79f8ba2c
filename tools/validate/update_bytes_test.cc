#include "tools/validate/update_bytes.h"

#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/row_testing.h"

namespace meshwright {
namespace {

double BytesOf(const std::string& options, const std::string& dtype = "bf16") {
  const absl::StatusOr<TrainingRun> run = RunOf(",dtype,other_opts", "," + dtype + "," + options);
  EXPECT_OK(run.status());
  return run.ok() ? run->host.optimizer_bytes : 0;
}

// Nothing is known: 12 for clipping, in float16 14 more for the scale.
TEST(UpdateBytesTest, OfFrameworksThatBringTheirOwn) {
  EXPECT_DOUBLE_EQ(BytesOf("Megatron-LM"), 12);
  EXPECT_DOUBLE_EQ(BytesOf("Megatron-LM", "fp16"), 26);
}

// The program moves 24 of state, 4 of the gradient and 2 of the parameter. PyTorch's lists of tensors move 20 floats,
// transformers' old loop 18, one kernel 7; clipping moves 3, the scale 2 more.
TEST(UpdateBytesTest, OfAdamByItsPasses) {
  EXPECT_DOUBLE_EQ(BytesOf("Hugging Face"), (20 + 3) * 4 - 30);
  EXPECT_DOUBLE_EQ(BytesOf("Hugging Face", "fp16"), (20 + 3 + 2) * 4 - 30);
  EXPECT_DOUBLE_EQ(BytesOf("Hugging Face; fused Adam of apex"), (7 + 3) * 4 - 30);
  EXPECT_DOUBLE_EQ(BytesOf("torchtune; pure bf16"), (7 + 3) * 2 - 30 + 2);
  EXPECT_DOUBLE_EQ(BytesOf("litgpt; pure bf16"), (20 + 3) * 2 - 30 + 2);
  EXPECT_DOUBLE_EQ(BytesOf("KempnerForge"), (7 + 3) * 2 - 30 + 2);
  EXPECT_DOUBLE_EQ(BytesOf("DeepSpeed; weights in fp16", "fp16"), 26);  // its own, with masters
  EXPECT_DOUBLE_EQ(BytesOf("Hugging Face; Adafactor"), (21 + 3) * 4 - 30);
  EXPECT_DOUBLE_EQ(BytesOf("Hugging Face; 8-bit Adam"), 3 * 4 + 4 + 3 * 4 - 30);
}

// Beside clipping's 12 each of two moments is widened 2 + 4, narrowed 4 + 2 and copied 2 + 2.
TEST(UpdateBytesTest, OfMomentsThatAreWidened) {
  EXPECT_DOUBLE_EQ(BytesOf("Megatron-Core; precision-aware optimizer; Adam state in bf16"), 12 + 2 * 16);
  EXPECT_DOUBLE_EQ(BytesOf("Megatron-Core; precision-aware optimizer"), 12);
}

}  // namespace
}  // namespace meshwright
