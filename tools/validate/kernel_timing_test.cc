#include "tools/validate/kernel_timing.h"

#include <string>

#include "costmodel/kernel_cost.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/quantities.h"
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
  EXPECT_EQ(AloneFor("notes", "each timed alone between two events"), 20e-6);
  EXPECT_EQ(AloneFor("notes", "Nsight Systems"), 1.8e-6);
  EXPECT_EQ(AloneFor("impl", "cuBLAS"), 0);
  EXPECT_EQ(AloneFor("source", "some insights into H100"), 0);
  EXPECT_EQ(AloneFor("library", "CUTLASS Profiler"), 0);
}

// Fused attention in float32 is three products in TensorFloat-32, 52 TFLOP/s of A100's where its general cores have
// 19.5: a power limit that leaves 0.85 of the clock to products leaves attention, which waits more, all of it, in one
// type as in the other.
TEST(KernelTimingTest, AttentionInFloat32DrawsWhatItsProductsDo) {
  ASSERT_OK_AND_ASSIGN(Device device, FindDevice("a100-pcie-40gb"));
  KernelWork work;
  work.kernel = KernelClass::kAttention;
  work.fused = true;
  work.batch = 128;
  work.m = work.n = 8192;
  work.k = 64;
  work.flops = Flops(4.0 * 128 * 8192 * 8192 * 64);
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    work.dtype = dtype;
    device.kernels.sustained_clock = 1;
    const double full = ToSeconds(PriceKernel(work, device));
    device.kernels.sustained_clock = 0.85;
    EXPECT_DOUBLE_EQ(LoopSeconds(work, device), full) << NameOf(dtype);
  }
}

// The collector's few runs end before B200's limit acts. 400 of 575 W, of which 89 are drawn idle, leave 0.64 of the
// power at the highest clock, 1.28^2: 1.05, which is that at 0.857.
TEST(KernelTimingTest, ClockInLoopsIsTheLimits) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv("source_ref,notes,m\nai-dynamo/aiconfigurator,,1\nvidur,,1\nlog,400 of 575 W,1\n", "t.csv"));
  const auto clock = [&](size_t row, double in_loops) {
    KernelConstants kernels;
    kernels.loop_clock = in_loops;
    return ClockInLoops(CsvCells(table, table.rows[row]), kernels);
  };
  EXPECT_EQ(clock(0, 0.89), 1);
  EXPECT_EQ(clock(1, 0.89), 0.89);
  EXPECT_NEAR(clock(2, 1.18) / 1.18, 0.857, 0.001);
}

// A card that boosts to 1.18 of its data sheet and is held to 1.0 there by products without pause: one of few rows,
// which waits for memory, keeps its highest clock.
TEST(KernelTimingTest, FewRowsKeepABoostedClock) {
  ASSERT_OK_AND_ASSIGN(Device device, FindDevice("rtx-5090"));
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  work.dtype = DType::kBFloat16;
  work.m = 16;
  work.n = work.k = 8192;
  work.flops = Flops(2.0 * 16 * 8192 * 8192);
  work.read = MiB(128);
  device.kernels.sustained_clock = device.kernels.loop_clock;
  const double boosted = LoopSeconds(work, device);
  device.kernels.sustained_clock = 1;
  EXPECT_DOUBLE_EQ(LoopSeconds(work, device), boosted);
  work.m = 8192;
  work.flops = Flops(2.0 * 8192 * 8192 * 8192);
  EXPECT_GT(LoopSeconds(work, device), 1.1 * work.flops.raw() / (1.18 * ProductRate(work.dtype, device)));
}

}  // namespace
}  // namespace meshwright
