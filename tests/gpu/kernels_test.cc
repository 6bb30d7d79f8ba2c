// Every kernel on a GPU against the host's in float64: fresh random inputs (MESHWRIGHT_SEED repeats a run), outputs
// that start as NaN, and guards behind them.
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "executor/cuda/device_kernels.h"
#include "executor/cuda/real_driver.h"
#include "executor/cuda/testing/op_checks.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::cuda {
namespace {

using testing::CanAccumulate;
using testing::CheckAttention;
using testing::CheckedOps;
using testing::CheckOp;
using testing::OpCheck;

uint64_t Seed() {
  static const uint64_t kSeed = [] {
    const char* const given = std::getenv("MESHWRIGHT_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  }();
  return kSeed;
}

class GpuKernelsTest : public ::testing::TestWithParam<OpKind> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const int64_t devices, CountDevices());
    if (devices == 0) GTEST_SKIP() << "needs 1 GPU, found 0";
    ASSERT_OK_AND_ASSIGN(driver_, OpenDevice(0));
    launcher_ = MakeDeviceLauncher();
    ::testing::Test::RecordProperty("seed", std::to_string(Seed()));
  }
  absl::Status Check(const OpCheck& check, bool tf32 = false) {
    DeviceKernels kernels(*driver_, *launcher_, tf32);
    return CheckOp(*driver_, kernels, GetParam(), check);
  }
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<KernelLauncher> launcher_;
};

TEST_P(GpuKernelsTest, EqualsTheHostInEveryType) {
  SCOPED_TRACE("MESHWRIGHT_SEED=" + std::to_string(Seed()));
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_OK(Check({dtype, Seed()}));
  }
}

TEST_P(GpuKernelsTest, SeveralBlocksAndTiles) {
  SCOPED_TRACE("MESHWRIGHT_SEED=" + std::to_string(Seed()));
  EXPECT_OK(Check({DType::kFloat64, Seed(), false, true}));
}

TEST_P(GpuKernelsTest, AddsToWhatIsThere) {
  if (!CanAccumulate(GetParam())) return;
  SCOPED_TRACE("MESHWRIGHT_SEED=" + std::to_string(Seed()));
  EXPECT_OK(Check({DType::kFloat64, Seed(), true}));
}

// On tensor cores: many tiles, the last one not full, heads that share keys, and longer than what an emulation can
// play.
TEST(GpuAttentionTest, EqualsTheHost) {
  ASSERT_OK_AND_ASSIGN(const int64_t devices, CountDevices());
  if (devices == 0) GTEST_SKIP() << "needs 1 GPU, found 0";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Driver> driver, OpenDevice(0));
  const std::unique_ptr<KernelLauncher> launcher = MakeDeviceLauncher();
  DeviceKernels kernels(*driver, *launcher);
  SCOPED_TRACE("MESHWRIGHT_SEED=" + std::to_string(Seed()));
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t d : {64, 128, 80}) {
      for (const bool causal : {true, false}) {
        EXPECT_OK(CheckAttention(*driver, kernels, {.s = 1100, .b = 2, .g = 2, .q = 3, .d = d, .causal = causal},
                                 {dtype, Seed()}));
      }
    }
    EXPECT_OK(CheckAttention(*driver, kernels, {.s = 1024, .d = 64, .apart = true, .keys = 1024, .context = 4},
                             {dtype, Seed()}));
  }
}

INSTANTIATE_TEST_SUITE_P(OpTable, GpuKernelsTest, ::testing::ValuesIn(CheckedOps()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace meshwright::cuda
