// The devices of the library against figures that others published: holds data files and formulas together. The errors
// over whole tables are in README.md.
#include <cstdint>
#include <string>

#include "costmodel/kernel_cost.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/cluster.h"
#include "ir/dtype.h"
#include "ir/kernel_work.h"
#include "ir/quantities.h"

namespace meshwright {
namespace {

// Rate of a batch of products in TFLOP/s.
double ProductRate(const std::string& device, int64_t batch, int64_t m, int64_t n, int64_t k) {
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  work.dtype = DType::kBFloat16;
  work.batch = batch;
  work.m = m;
  work.n = n;
  work.k = k;
  work.flops = Flops(2.0 * static_cast<double>(batch * m) * static_cast<double>(n * k));
  work.read = Bytes(2 * batch * (m * k + k * n));
  work.written = Bytes(2 * batch * m * n);
  Device priced = *FindDevice(device);
  // The library's clocks are those of training; products alone hold 0.94 on H100 (huggingface/gpu-fryer), 0.935 on A100
  // (stas00/ml-engineering, 271 TFLOP/s for long of 290 in short loops).
  priced.kernels.sustained_clock = device == "h100-sxm" ? 0.94 : 0.935;
  return work.flops.raw() / ToSeconds(PriceKernel(work, priced)) / 1e12;
}

// cuBLAS on H100: 716 TFLOP/s at 4096, 795 at 8192 (pranjalssh/fast.cu). Products of a transformer layer and a batch on
// an A100-class device (EleutherAI/cookbook): 241.6, 241.1, 252.8, 227.3.
TEST(PublishedTest, Products) {
  EXPECT_NEAR(ProductRate("h100-sxm", 1, 4096, 4096, 4096) / 716, 1, 0.1);
  EXPECT_NEAR(ProductRate("h100-sxm", 1, 8192, 8192, 8192) / 795, 1, 0.1);
  EXPECT_NEAR(ProductRate("a100", 1, 8192, 12288, 4096) / 241.6, 1, 0.05);
  EXPECT_NEAR(ProductRate("a100", 1, 8192, 16384, 4096) / 241.1, 1, 0.05);
  EXPECT_NEAR(ProductRate("a100", 1, 8192, 4096, 16384) / 252.8, 1, 0.05);
  EXPECT_NEAR(ProductRate("a100", 128, 1024, 1024, 1024) / 227.3, 1, 0.05);
}

// Forward and backward of fused attention in TFLOP/s, as the charts of Dao-AILab/flash-attention count: 16k tokens,
// hidden 2048, 4 b s^2 h operations forward (half if causal) and 2.5 times that backward.
double AttentionRate(const std::string& name, int64_t width, int64_t sequence, bool causal) {
  Device device = *FindDevice(name);
  device.kernels.sustained_clock = 1;  // the charts are of short loops
  KernelWork work;
  work.kernel = KernelClass::kAttention;
  work.dtype = DType::kBFloat16;
  work.causal = causal;
  work.batch = 16384 / sequence * (2048 / width);
  work.m = work.n = sequence;
  work.k = width;
  work.flops = Flops(4.0 * 16384 * static_cast<double>(sequence) * 2048 * (causal ? 0.5 : 1));
  work.read = Bytes(3 * 2 * 16384 * 2048);
  work.written = Bytes(2 * 16384 * 2048);
  const double forward = ToSeconds(PriceKernel(work, device));
  const Flops operations = work.flops * 3.5;
  work.backward = true;
  work.flops = work.flops * 2.5;
  return operations.raw() / (forward + ToSeconds(PriceKernel(work, device))) / 1e12;
}

TEST(PublishedTest, Attention) {
  EXPECT_NEAR(AttentionRate("a100", 64, 512, false) / 132, 1, 0.05);
  EXPECT_NEAR(AttentionRate("a100", 128, 4096, false) / 196, 1, 0.05);
  EXPECT_NEAR(AttentionRate("a100", 128, 1024, true) / 133, 1, 0.05);
  EXPECT_NEAR(AttentionRate("h100-sxm", 64, 1024, true) / 192, 1, 0.05);
  EXPECT_NEAR(AttentionRate("h100-sxm", 128, 16384, false) / 338, 1, 0.05);
}

// RMSNorm forward of 4096 rows in bfloat16 on H100 (linkedin/Liger-Kernel): width 16384 in 95 us; a norm backward
// at 1.2 to 1.4 TB/s. The figures include the launch of a loop that is not a graph.
TEST(PublishedTest, Norms) {
  const Device device = *FindDevice("h100-sxm");
  KernelWork work;
  work.kernel = KernelClass::kNormalize;
  work.dtype = DType::kBFloat16;
  work.read = work.written = Bytes(2 * 4096 * 16384);
  EXPECT_NEAR(ToSeconds(PriceKernel(work, device)) * 1e6, 95, 8);
  work.backward = true;
  const double rate = static_cast<double>((work.read + work.written).raw()) / ToSeconds(PriceKernel(work, device));
  EXPECT_GT(rate, 1.2e12);
  EXPECT_LT(rate, 1.4e12);
}

}  // namespace
}  // namespace meshwright
