#include "costmodel/kernel_cost.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "costmodel/library.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

KernelWork Product(int64_t m, int64_t n, int64_t k, DType dtype = DType::kBFloat16, int64_t batch = 1) {
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  work.dtype = dtype;
  work.batch = batch;
  work.m = m;
  work.n = n;
  work.k = k;
  work.flops = Flops(2.0 * static_cast<double>(batch * m) * static_cast<double>(n * k));
  work.read = SizeOf(dtype) * (batch * (m * k + k * n));
  work.written = SizeOf(dtype) * (batch * m * n);
  return work;
}

KernelWork Stream(Bytes read, Bytes written) {
  KernelWork work;
  work.kernel = KernelClass::kMemory;
  work.read = read;
  work.written = written;
  return work;
}

KernelWork Attention(int64_t batch, int64_t m, int64_t n, int64_t width, bool causal) {
  KernelWork work;
  work.kernel = KernelClass::kAttention;
  work.dtype = DType::kBFloat16;
  work.causal = causal;
  work.batch = batch;
  work.m = m;
  work.n = n;
  work.k = width;
  work.flops = Flops(4.0 * static_cast<double>(batch * m) * static_cast<double>(n * width) * (causal ? 0.5 : 1));
  work.read = Bytes(2 * batch * (m + 2 * n) * width);
  work.written = Bytes(2 * batch * m * width);
  return work;
}

const Device& A100() {
  static const Device device = A100Cluster(1).device;
  return device;
}

// 108 multiprocessors, 27 x 4 = 108 tiles of 128 x 256: one wave.
//   compute  1 wave x (2 x 128 x 256 x 4096 / (0.9 x 312e12 / 108) + 1 us) = 103.24 + 1 us
//   L2       108 x 384 x 4096 x 2 B / 6e12 B/s = 56.6 us
//   start-up 3 us
TEST(KernelCostTest, ProductThatFillsTheDeviceOnce) {
  const KernelEstimate estimate = EstimateKernel(Product(27 * 128, 4 * 256, 4096), A100());
  EXPECT_NEAR(ToSeconds(estimate.time) * 1e6, 107.24, 0.01);
  EXPECT_EQ(estimate.bound, Bound::kCompute);
  EXPECT_FALSE(estimate.estimated);
}

// One row is a product of a vector: the matrix is streamed. (4096 x 4096 + 2 x 4096) x 2 B = 33.57 MB and a ramp of
// 4.19 MB at 0.8 x 2039 GB/s is 23.15 us, and the start-up of 3 us.
TEST(KernelCostTest, ProductOfOneRowIsBoundByMemory) {
  const KernelEstimate estimate = EstimateKernel(Product(1, 4096, 4096), A100());
  EXPECT_EQ(estimate.bound, Bound::kMemory);
  EXPECT_NEAR(ToSeconds(estimate.time) * 1e6, 26.15, 0.01);
}

TEST(KernelCostTest, OneTileMoreThanAWaveIsAnotherWave) {
  const double one = ToSeconds(PriceKernel(Product(27 * 128, 4 * 256, 8192), A100()));
  const double more = ToSeconds(PriceKernel(Product(28 * 128, 4 * 256, 8192), A100()));
  EXPECT_GT(more / one, 1.05);  // 3.7 % more work
}

// 64 products of 256 x 256 x 512 are cut into as many tiles as one of 64 times the rows; only the matrix that all rows
// share is read 64 times.
TEST(KernelCostTest, BatchOfProductsCostsAboutAsMuchAsOneLongOne) {
  const double batch = ToSeconds(PriceKernel(Product(256, 256, 512, DType::kBFloat16, 64), A100()));
  const double one = ToSeconds(PriceKernel(Product(256 * 64, 256, 512), A100()));
  EXPECT_GE(batch, one);
  EXPECT_LT(batch, 1.5 * one);
}

// 100 MB read and written each, and the ramp: (200 + 4.194) MB / (0.8 x 2039 GB/s) = 125.18 us, + 3 us.
TEST(KernelCostTest, StreamingPaysBandwidthRampAndStartup) {
  const KernelEstimate estimate = EstimateKernel(Stream(Bytes(100000000), Bytes(100000000)), A100());
  EXPECT_NEAR(ToSeconds(estimate.time) * 1e6, 128.18, 0.01);
  EXPECT_EQ(estimate.bound, Bound::kMemory);
}

TEST(KernelCostTest, EmptyKernelIsBoundByItsLaunch) {
  const KernelEstimate estimate = EstimateKernel(Stream(Bytes(0), Bytes(0)), A100());
  EXPECT_EQ(estimate.bound, Bound::kLaunch);
  EXPECT_GE(estimate.time, Micros(3));
  EXPECT_EQ(PriceKernel(KernelWork{}, A100()), Nanos(0));  // kNone: a view
}

// A core of 40 GFLOP/s, of which products reach 0.8, at half of its clock.
Device Core() {
  Device device = MakeClusterOfDevices("host", 1)->device;
  device.kernels.l2_bandwidth = GBps(10);
  device.kernels.sustained_clock = 0.5;
  return device;
}

// 20 x 20 results are computed as 32 x 32: 2 x 32 x 32 x 100 / (0.8 x 40e9 x 0.5) = 12.8 us. Operands of (2000 + 2000 +
// 400) x 4 B are brought in order before, at 10 GB/s x 0.5: 3.52 us. And a start-up of 1 us.
TEST(KernelCostTest, AHostBringsOperandsInOrderAndThenComputes) {
  const KernelEstimate estimate = EstimateKernel(Product(20, 20, 100, DType::kFloat32), Core());
  EXPECT_NEAR(ToSeconds(estimate.time) * 1e6, 17.32, 0.01);
  EXPECT_EQ(estimate.bound, Bound::kCompute);
  // One row of 1000 x 1000: 2 x 16 x 1008 x 1000 / 16e9 = 2.016 ms, and 1,002,000 x 4 B / 5e9 = 0.802 ms.
  EXPECT_NEAR(ToSeconds(PriceKernel(Product(1, 1000, 1000, DType::kFloat32), Core())) * 1e6, 2818.6, 0.1);
}

// 1 MB at 8 GB/s x 0.8 (and the ramp of 64 kB) is 166.25 us; 10 operations each of 125,000 points at 2.5 GHz x 0.5 are
// 1 ms. A start-up of 1 us.
TEST(KernelCostTest, AHostsLoopsWaitForFunctionsWhereTheyCallThem) {
  KernelWork work = Stream(Bytes(500'000), Bytes(500'000));
  work.flops = Flops(1'250'000);
  EXPECT_EQ(PriceKernel(work, Core()), Nanos(167'250));
  work.functions = true;
  EXPECT_EQ(PriceKernel(work, Core()), Nanos(1'001'000));
}

// Four ranks on two cores: every kernel takes twice as long.
TEST(KernelCostTest, RanksThatShareCores) {
  Device device = Core();
  device.kernels.core_sharing = 2;
  EXPECT_EQ(PriceKernel(Stream(Bytes(500'000), Bytes(500'000)), device), Nanos(334'500));
  EXPECT_NEAR(ToSeconds(PriceKernel(Product(20, 20, 100, DType::kFloat32), device)) * 1e6, 34.64, 0.02);
}

// 4096 keys, heads of 128, nothing skipped: factor (1 + 22/128) x (4096 + 170)/4096 = 1.2205 on
// 4 x 64 x 4096^2 x 128 / (0.75 x 312e12) = 2349.3 us: 2867.4 us; 64 x 32 blocks of queries are 18.96 rounds of 108, so
// 19: 2873.1 us, and 3 us.
TEST(KernelCostTest, AttentionPaysForSoftmaxAndSetup) {
  const KernelEstimate estimate = EstimateKernel(Attention(64, 4096, 4096, 128, false), A100());
  EXPECT_NEAR(ToSeconds(estimate.time) * 1e6, 2876.1, 0.1);
  EXPECT_EQ(estimate.bound, Bound::kCompute);
}

// With a share of 0.9 and a softmax that weighs as 47.4 columns of 128, attention in 16 bits takes (1 + 47.4 / 128) /
// 0.9 = 1.523 times its products. float8 halves these alone: (1 + 2 x 0.523) / 2 / 1.523 = 0.672 of the time.
TEST(KernelCostTest, Float8HalvesTheProductsOfAttentionAlone) {
  Device device = H100Cluster(1).device;
  device.attention = {{"a kernel", 0.9, 0.9, 47.4, 0, false}};
  KernelWork work = Attention(64, 16384, 16384, 128, false);
  const double wide = ToSeconds(PriceKernel(work, device));
  work.dtype = DType::kFloat8;
  EXPECT_NEAR(ToSeconds(PriceKernel(work, device)) / wide, 0.672, 0.002);

  // Of a device that has bfloat16 alone of 16 bits nothing changes.
  device.peak[static_cast<size_t>(DType::kFloat16)] = FlopsPerSecond();
  work.dtype = DType::kBFloat16;
  EXPECT_NEAR(ToSeconds(PriceKernel(work, device)) / wide, 1, 0.002);
}

// One sequence and 8 heads give 64 blocks for 108 multiprocessors: as slow as 104 blocks.
TEST(KernelCostTest, FewBlocksLeaveMultiprocessorsIdle) {
  const double few = ToSeconds(PriceKernel(Attention(8, 1024, 1024, 128, false), A100()));
  const double full = ToSeconds(PriceKernel(Attention(13, 1024, 1024, 128, false), A100()));  // 104 blocks
  EXPECT_NEAR(few, full, 1e-8);
}

// In float32 a product is three in TensorFloat-32, 52 instead of 312 TFLOP/s: six times as long, but for what keeps the
// matrix units waiting in 16 bits. With a share of a half and no softmax, (6 + 2 - 1) / 2 of it.
TEST(KernelCostTest, FusedAttentionInFloat32) {
  Device device = A100();
  device.attention = {{"a kernel", 0.5, 0.5, 0, 0, false}};
  KernelWork work = Attention(64, 16384, 16384, 128, false);
  const double wide = ToSeconds(PriceKernel(work, device));
  work.dtype = DType::kFloat32;
  EXPECT_NEAR(ToSeconds(PriceKernel(work, device)) / wide, 3.5, 0.01);
  // Volta has no such products: 312 to 19.5 TFLOP/s are (16 + 2 - 1) / 2.
  device.generation = Generation::kVolta;
  EXPECT_NEAR(ToSeconds(PriceKernel(work, device)) / wide, 8.5, 0.02);
}
TEST(KernelCostTest, CausalAttentionCostsMoreThanHalf) {
  const double full = ToSeconds(PriceKernel(Attention(64, 1024, 1024, 128, false), A100()));
  const double causal = ToSeconds(PriceKernel(Attention(64, 1024, 1024, 128, true), A100()));
  EXPECT_GT(causal, 0.5 * full);
  EXPECT_LT(causal, full);
}

// The score matrix, 64 x 2048 x 2048 x 2 B = 537 MB, is written and read by the products and 4 more times in between:
// more than 6 x 537 MB / (0.8 x 2039 GB/s) = 1975 us.
// Of 32 K tokens that see 1 K each: 1008 keys in the mean (those at the beginning have fewer), 128 in vain, since a
// block of 128 queries has a diagonal on both sides, and the set-up, 188 keys; without a window 16 K, 64 and 188.
// Within 2 %: the last blocks of a causal mask are longer than the mean and leave others idle, those of a window are
// not.
TEST(KernelCostTest, WindowsCostWhatTheySee) {
  const auto seconds = [](int64_t n, int64_t window) {
    KernelWork work = Attention(64, n, n, 128, true);
    const double share = static_cast<double>(window) / static_cast<double>(n);
    if (window > 0) work.flops = Flops(work.flops.raw() * 2 * (share - share * share / 2));
    work.window = window;
    return ToSeconds(EstimateKernel(work, A100()).time);
  };
  const double share = seconds(32768, 1024) / seconds(32768, 0);
  EXPECT_NEAR(share, (1008.0 + 128 + 188) / (16384 + 64 + 188), 0.02 * share);
  double before = 0;
  for (const int64_t window : {64, 128, 512, 2048, 8192, 16384}) {
    const double now = seconds(32768, window);
    EXPECT_GT(now, before) << window;
    before = now;
  }
  EXPECT_LT(before, seconds(32768, 0));
}

TEST(KernelCostTest, UnfusedAttentionPaysForTheScoreMatrix) {
  KernelWork work = Attention(64, 2048, 2048, 128, true);
  const double fused = ToSeconds(PriceKernel(work, A100())) * 1e6;
  work.fused = false;
  const double unfused = ToSeconds(PriceKernel(work, A100())) * 1e6;
  EXPECT_GT(unfused, 1975);
  EXPECT_LT(unfused, 4000);
  EXPECT_GT(unfused, 3 * fused);
  const double forward = unfused;
  work.backward = true;
  EXPECT_GT(ToSeconds(PriceKernel(work, A100())) * 1e6, 1.2 * forward);
}

TEST(KernelCostTest, BackwardNormsReachLessBandwidth) {
  KernelWork work = Stream(MiB(512), MiB(512));
  work.kernel = KernelClass::kNormalize;
  const double forward = ToSeconds(PriceKernel(work, A100()));
  work.backward = true;
  EXPECT_NEAR(ToSeconds(PriceKernel(work, A100())) / forward, 2, 0.02);  // shares 0.8 and 0.4
}

// Four kernels' start-up and 4096^2 x 7 bytes streamed.
TEST(KernelCostTest, QuantisingTheLeftOperandIsAPassOfItsOwn) {
  const KernelWork product = Product(4096, 4096, 4096);
  Device device = A100();
  const Nanos plain = PriceKernel(product, device);
  device.kernels.quantize_bytes = Bytes(7);
  KernelWork pass = Stream(Bytes(7 * 4096 * 4096), Bytes());
  const Nanos expected = plain + PriceKernel(pass, device) + device.kernels.startup * 3;
  EXPECT_NEAR(ToSeconds(PriceKernel(product, device)), ToSeconds(expected), 1e-8);
}

// 2048 x 2048 x 65536 in 8 bits: the operands are 2 x 2048 x 65536 bytes, of 16 bits twice as many. Where memory binds
// they take half, and a quarter in 4 bits, beside the result of 16 bits, a 64th of operands of 16.
TEST(KernelCostTest, QuantisedOperandsAreNarrow) {
  KernelWork product = Product(2048, 2048, 65536);
  product.dtype = DType::kBFloat16;
  product.read = Bytes(int64_t{2} * 2 * 2048 * 65536);
  product.written = Bytes(2 * 2048 * 2048);
  ASSERT_OK_AND_ASSIGN(Device device, FindDevice("b200"));
  device.memory_bandwidth = device.memory_bandwidth / 1000.0;  // so that it binds
  const double plain = ToSeconds(PriceKernel(product, device));
  const auto seconds = [&](int bits) {
    device.kernels.product_bits = bits;
    return ToSeconds(PriceKernel(product, device));
  };
  EXPECT_NEAR(seconds(8) / plain, (1.0 / 2 + 1.0 / 64) / (1 + 1.0 / 64), 0.01);
  EXPECT_NEAR(seconds(4) / plain, (1.0 / 4 + 1.0 / 64) / (1 + 1.0 / 64), 0.01);
}

// What frameworks leave in 16 bits takes what it takes on the device as it is: the output layer's products, and those
// of attention without a kernel of its own.
TEST(KernelCostTest, SomeProductsStayWideBesideFloat8) {
  ASSERT_OK_AND_ASSIGN(const Device plain, FindDevice("h100-sxm"));
  Device narrow = plain;
  ASSERT_OK(UseFloat8Products(&narrow));
  KernelWork product = Product(8192, 8192, 8192);
  product.dtype = DType::kBFloat16;
  EXPECT_LT(PriceKernel(product, narrow), PriceKernel(product, plain) * 3 / 4);
  product.wide = true;
  EXPECT_EQ(PriceKernel(product, narrow), PriceKernel(product, plain));
  KernelWork attention = product;
  attention.kernel = KernelClass::kAttention;
  attention.fused = attention.wide = false;
  EXPECT_EQ(PriceKernel(attention, narrow), PriceKernel(attention, plain));
}

KernelWork LinearAttention(int64_t heads, int64_t tokens, bool delta) {
  KernelWork work;
  work.kernel = KernelClass::kLinearAttention;
  work.dtype = DType::kBFloat16;
  work.delta = delta;
  work.batch = heads;
  work.m = tokens;
  work.k = 128;
  work.n = delta ? 128 : 64;
  work.flops =
      Flops(2.0 * (delta ? 3 : 2) * static_cast<double>(heads * tokens) * static_cast<double>(work.k * work.n));
  return work;
}

// Of a token of a head, states of 128 x 128: 6 x 128 x 128 + 64 x 10 x 128 = 180,224 operations, 450 a cycle of 132
// multiprocessors at 1.83 GHz: 1.658 ns. 4096 tokens of 256 heads are so 1.739 ms, and 64 chunks of 1.4 us follow each
// other; 2560 elements of 2 bytes at 0.9 x 3.35 TB/s would be 1.781 ms.
TEST(KernelCostTest, LinearAttentionGoesByChunks) {
  ASSERT_OK_AND_ASSIGN(const Device device, FindDevice("h100-sxm"));
  const auto seconds = [&device](const KernelWork& work) { return ToSeconds(PriceKernel(work, device)); };
  EXPECT_NEAR(seconds(LinearAttention(256, 4096, true)), 1.739e-3 + 64 * 1.4e-6, 1e-5);
  // Of few heads what is left are the chunks.
  EXPECT_NEAR(seconds(LinearAttention(1, 65536, true)), 1024 * 1.4e-6 + 65536 * 1.658e-9, 1e-5);
  // A state space has wider chunks, and less to do.
  EXPECT_LT(seconds(LinearAttention(256, 4096, false)), 0.4 * seconds(LinearAttention(256, 4096, true)));
  // Linear in tokens; backward 2.7 times as much.
  KernelWork backward = LinearAttention(256, 32768, true);
  const double forward = seconds(backward);
  EXPECT_NEAR(forward, 8 * seconds(LinearAttention(256, 4096, true)), 1e-4);
  backward.backward = true;
  EXPECT_NEAR(seconds(backward) / forward, 2.7, 0.1);
  // Where rows decay apart there is 2.16 times as much to do, in as many steps.
  KernelWork by_row = LinearAttention(256, 4096, true);
  by_row.by_row = true;
  EXPECT_NEAR(seconds(by_row), 2.16 * 1.739e-3 + 64 * 1.4e-6, 2e-5);
}

// What memory moves binds where it is slow beside the clock: RTX 5090 has 0.84 x 1.792 TB/s, which 2560 elements of 2
// bytes for each of 256 x 4096 tokens and heads take 3.567 ms to pass.
TEST(KernelCostTest, LinearAttentionWaitsForSlowMemory) {
  ASSERT_OK_AND_ASSIGN(const Device device, FindDevice("rtx-5090"));
  const KernelEstimate estimate = EstimateKernel(LinearAttention(256, 4096, true), device);
  EXPECT_EQ(estimate.bound, Bound::kMemory);
  EXPECT_NEAR(ToSeconds(estimate.time), 3.567e-3, 1e-5);
}

// Rows of 4100 elements of 2 bytes do not begin at multiples of 16 bytes, those of 4104 do: 1/0.62 = 1.61 times as
// slow, but for what each wave and the start-up take; rows of 4101 not even at multiples of 4, 1/0.34 = 2.94.
TEST(KernelCostTest, MisalignedProductsAreSlow) {
  const auto ratio = [](const KernelWork& a, const KernelWork& b) {
    return ToSeconds(PriceKernel(a, A100())) / ToSeconds(PriceKernel(b, A100()));
  };
  EXPECT_NEAR(ratio(Product(4096, 4096, 4100), Product(4096, 4096, 4104)), 1.57, 0.04);
  EXPECT_NEAR(ratio(Product(4096, 4100, 4096), Product(4096, 4104, 4096)), 1.57, 0.04);
  EXPECT_NEAR(ratio(Product(4100, 4096, 4096), Product(4104, 4096, 4096)), 1, 0.01);
  EXPECT_NEAR(ratio(Product(4096, 4096, 4101), Product(4096, 4096, 4104)), 2.8, 0.1);
}

// Heads of 108 elements: attention's products at 0.1 of what aligned ones reach, where a library does no better.
TEST(KernelCostTest, MisalignedAttentionOfEarlyLibraries) {
  KernelWork work = Attention(64, 2048, 2048, 112, false);
  work.fused = false;
  const auto seconds = [&work](int64_t width, double early) {
    Device device = A100();
    device.kernels.misaligned_attention = early;
    work.k = width;
    return ToSeconds(PriceKernel(work, device));
  };
  EXPECT_EQ(seconds(112, 0.1), seconds(112, 0));
  // Two products of 2 x 64 x 2048^2 x 108 operations at a tenth of 280 TFLOP/s: 4.1 ms.
  EXPECT_GT(seconds(108, 0.1) - seconds(112, 0), 3.5e-3);
  EXPECT_GT(seconds(108, 0.1), 2 * seconds(108, 0));
}

// pytorch issue 83272: 384 batches of 1024 x 1024 x 140, 1.13e11 operations at 12.2 TFLOP/s: 9.23 ms over the keys,
// with three tiles of 64 columns for 140; over the heads' width, without a part of a tile, 140/192 of it. Products half
// as fast add what they take.
TEST(KernelCostTest, MisalignedAttentionAsMeasured) {
  KernelWork work = Attention(384, 1024, 1024, 140, false);
  work.fused = false;
  const auto seconds = [&work](double teraflops) {
    Device device = A100();
    device.kernels.sustained_clock = 1;
    device.kernels.misaligned_attention = teraflops / (device.kernels.matmul_share * 312) * (192.0 / 140);
    return ToSeconds(PriceKernel(work, device));
  };
  EXPECT_NEAR(seconds(12.2 / 2) - seconds(12.2), 9.23e-3 * (1 + 140.0 / 192), 0.2e-3);
}

// 8192^3 float32 products, 1.1e12 operations: 64 general cores a multiprocessor keep A100's 19.5 TFLOP/s, 128 have
// registers for 0.67 of RTX 4090's 82.6, and for 0.77 of H100's 67, where 8192 tiles of 128 x 64 in 63 waves cost
// 5.4 us each besides.
TEST(KernelCostTest, WideMultiprocessorsReachLessOfTheirFloat32Peak) {
  const KernelWork work = Product(8192, 8192, 8192, DType::kFloat32);
  const Device ada = *FindDevice("rtx-4090");
  Device h100 = H100Cluster(1).device;
  h100.kernels.sustained_clock = 1;
  EXPECT_NEAR(ToSeconds(PriceKernel(work, A100())), 2 * 5.498e11 / (0.96 * 19.5e12), 4e-3);
  EXPECT_NEAR(ToSeconds(PriceKernel(work, ada)), 2 * 5.498e11 / (0.67 * 82.6e12), 0.4e-3);
  EXPECT_NEAR(ToSeconds(PriceKernel(work, h100)), 2 * 5.498e11 / (0.77 * 67e12) * (63 * 132 / 8192.0) + 63 * 5.4e-6,
              0.1e-3);
}

// FlashAttention-2 has no kernel for heads of 80: it computes 96 columns, and its softmax for as many scores.
TEST(KernelCostTest, HeadsAreComputedAtTheWidthsOfTheKernels) {
  const Device& device = A100();
  ASSERT_EQ(device.attention.front().kernel, "flash2");
  const auto seconds = [&device](int64_t width) {
    KernelWork work = Attention(64, 8192, 8192, width, false);
    work.fused = true;
    return ToSeconds(PriceKernel(work, device));
  };
  EXPECT_NEAR(seconds(80), seconds(96), 1e-3 * seconds(96));
  EXPECT_NEAR(seconds(112), seconds(128), 1e-3 * seconds(128));
  EXPECT_LT(seconds(64), 0.8 * seconds(80));
}

// Matrix units ten times as fast leave attention to its exponentials: 64 x 4096^2 of them, 16 in a clock on each of 132
// multiprocessors; wider heads have no more.
TEST(KernelCostTest, ExponentialsBindAttentionOfFastMatrixUnits) {
  Device device = H100Cluster(1).device;
  device.attention = {{"a kernel", 0.9, 0.9, 0, 0, false}};
  device.peak[static_cast<size_t>(DType::kBFloat16)] = Teraflops(9890);
  const double rate = 16.0 * device.sms * device.boost_mhz * 1e6 * device.kernels.sustained_clock;
  const double bound = 64 * 4096.0 * 4096 / rate;
  EXPECT_NEAR(ToSeconds(PriceKernel(Attention(64, 4096, 4096, 64, false), device)), bound, 0.05 * bound);
  EXPECT_NEAR(ToSeconds(PriceKernel(Attention(64, 4096, 4096, 128, false), device)), bound, 0.05 * bound);
  device.exponentials = 32;
  EXPECT_NEAR(ToSeconds(PriceKernel(Attention(64, 4096, 4096, 64, false), device)), bound / 2, 0.05 * bound);
}

// What unaligned loads add, 1 / 0.34 - 1 of an A100's products for odd rows, weighs a quarter beside matrix units of a
// quarter of its 1024 multiply-adds a clock: 1 / (1 + 0.25 x 1.94) = 0.673.
TEST(KernelCostTest, UnalignedLoadsWeighByTheMatrixUnitsBesideThem) {
  Device device = A100();
  device.peak[static_cast<size_t>(DType::kBFloat16)] = device.peak[static_cast<size_t>(DType::kBFloat16)] / 4;
  device.peak[static_cast<size_t>(DType::kFloat16)] = device.peak[static_cast<size_t>(DType::kBFloat16)];
  const auto odd = [](const Device& priced) {
    return ToSeconds(PriceKernel(Product(8192, 8192, 8192), priced)) /
           ToSeconds(PriceKernel(Product(8192, 8193, 8192), priced));
  };
  EXPECT_NEAR(odd(A100()), 0.34, 0.03);
  EXPECT_NEAR(odd(device), 0.673, 0.03);
}

TEST(KernelCostTest, TypeWithoutPeakIsPricedAsTheNextAndMarked) {
  const KernelEstimate fp8 = EstimateKernel(Product(4096, 4096, 4096, DType::kFloat8), A100());
  EXPECT_TRUE(fp8.estimated);
  // float8 moves half the bytes but runs at float16's rate.
  EXPECT_NEAR(ToSeconds(fp8.time) / ToSeconds(PriceKernel(Product(4096, 4096, 4096), A100())), 1, 0.1);
}

TEST(KernelCostTest, SustainedClockSlowsComputeOnly) {
  Device device = A100();
  device.kernels.sustained_clock = 0.8;
  EXPECT_GT(PriceKernel(Product(8192, 8192, 8192), device), PriceKernel(Product(8192, 8192, 8192), A100()) * 6 / 5);
  EXPECT_EQ(PriceKernel(Stream(MiB(64), MiB(64)), device), PriceKernel(Stream(MiB(64), MiB(64)), A100()));
}

// More work never costs less: a planner that splits a dimension must not be punished by an artefact of the formula.
// But for rows of an odd number of elements, which twice as many align.
TEST(KernelCostTest, MoreWorkNeverCostsLess) {
  const std::vector<int64_t> sizes = {1, 7, 64, 128, 129, 512, 1000, 1024, 4096, 5000, 16384};
  const std::vector<int64_t> even = {2, 8, 64, 128, 130, 512, 1000, 1024, 4096, 5000, 16384};
  for (const Device& device : {A100(), H100Cluster(1).device}) {
    for (int64_t m : sizes) {
      for (int64_t n : even) {
        for (int64_t k : even) {
          const Nanos time = PriceKernel(Product(m, n, k), device);
          EXPECT_GE(PriceKernel(Product(2 * m, n, k), device), time) << m << " " << n << " " << k;
          EXPECT_GE(PriceKernel(Product(m, 2 * n, k), device), time) << m << " " << n << " " << k;
          EXPECT_GE(PriceKernel(Product(m, n, 2 * k), device), time) << m << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(KernelCostTest, ProductIsSymmetric) {
  EXPECT_EQ(PriceKernel(Product(4096, 1000, 2048), A100()), PriceKernel(Product(1000, 4096, 2048), A100()));
}

}  // namespace
}  // namespace meshwright
