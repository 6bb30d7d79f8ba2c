// Every kernel on a GPU against the host's in float64: fresh random inputs (MESHWRIGHT_SEED repeats a run), outputs
// that start as NaN, and guards behind them. And how fast attention is.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "executor/cuda/device_kernels.h"
#include "executor/cuda/real_driver.h"
#include "executor/cuda/testing/op_checks.h"
#include "gtest/gtest.h"
#include "ir/index_rule.h"
#include "ir/status.h"
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

// On tensor cores, by the kernels of all devices or by Hopper's own. Behind the other tests: what is wrong here may
// hang.
class GpuAttentionTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const int64_t devices, CountDevices());
    if (devices == 0) GTEST_SKIP() << "needs 1 GPU, found 0";
    ASSERT_OK_AND_ASSIGN(driver_, OpenDevice(0));
    ASSERT_OK_AND_ASSIGN(const DeviceInfo info, driver_->Info());
    if (GetParam() && !HasWgmma(info)) GTEST_SKIP() << "needs compute capability 9.0";
    launcher_ = MakeDeviceLauncher();
    kernels_ = std::make_unique<DeviceKernels>(*driver_, *launcher_, /*tf32=*/false, /*wgmma=*/GetParam());
  }
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<KernelLauncher> launcher_;
  std::unique_ptr<DeviceKernels> kernels_;
};

// Many tiles, the last one not full, heads that share keys, and longer than what an emulation can play.
TEST_P(GpuAttentionTest, EqualsTheHost) {
  SCOPED_TRACE("MESHWRIGHT_SEED=" + std::to_string(Seed()));
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t d : {64, 128, 80}) {
      for (const bool causal : {true, false}) {
        EXPECT_OK(CheckAttention(*driver_, *kernels_, {.s = 600, .b = 2, .g = 2, .q = 3, .d = d, .causal = causal},
                                 {dtype, Seed()}));
      }
    }
    EXPECT_OK(CheckAttention(*driver_, *kernels_, {.s = 1024, .d = 64, .apart = true, .keys = 1024, .context = 4},
                             {dtype, Seed()}));
  }
}

// Milliseconds of a causal attention of bfloat16, or of its gradient: the median of several, of operands that are
// random in each 4 MiB.
constexpr int64_t kLength = 8192, kHeads = 16;
absl::StatusOr<double> TimeOfAttention(Driver& driver, Kernels& kernels, int64_t d, bool backward) {
  constexpr int kWarmUp = 3, kTimes = 11;
  constexpr int64_t kPart = 4 << 20;
  std::vector<uint16_t> random(kPart / 2);
  std::mt19937_64 generator(Seed());
  std::normal_distribution<float> normal;
  for (uint16_t& x : random) x = BFloat16Of(normal(generator));
  MESHWRIGHT_ASSIGN_OR_RETURN(const IndexRule rule, ParseRule("s! b g r! d! -> s! b g q! d!, s! b g q!"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const IndexRule back,
                              ParseRule("s! b g q! d!, s! b g r! d!, s! b g q! d!, s! b g q! -> s! b g r! d!"));
  OpAttrs attrs;
  attrs.scale = 1 / std::sqrt(static_cast<double>(d));
  MESHWRIGHT_ASSIGN_OR_RETURN(const DeviceStream stream, driver.MakeStream());
  // dy, qkv, y, what is saved, and the gradient of qkv.
  TensorView views[5];
  const Shape y = {kLength, 1, kHeads, 1, d}, qkv = {kLength, 1, kHeads, 3, d}, rows = {kLength, 1, kHeads, 1};
  const Shape shapes[5] = {y, qkv, y, rows, qkv};
  for (int i = 0; i < 5; ++i) {
    views[i].shape = views[i].global = shapes[i];
    views[i].begin = Shape(shapes[i].size(), 0);
    views[i].dtype = i == 3 ? DType::kFloat32 : DType::kBFloat16;
    MESHWRIGHT_ASSIGN_OR_RETURN(views[i].data, driver.Allocate(Bytes(views[i].bytes())));
    for (int64_t at = 0; at < views[i].bytes() && i < 2; at += kPart) {
      MESHWRIGHT_RETURN_IF_ERROR(driver.Copy(stream, CopyKind::kToDevice, reinterpret_cast<std::byte*>(random.data()),
                                             views[i].data + at, Bytes(std::min(kPart, views[i].bytes() - at))));
    }
  }
  Scratch scratch(driver);
  const KernelCall forward = {OpKind::kAttention, &attrs, &rule, 0, 1, {&views[1], 1}, {&views[2], 2}};
  const KernelCall gradient = {OpKind::kAttentionGrad, &attrs, &back, 0, 1, {&views[0], 4}, {&views[4], 1}};
  MESHWRIGHT_RETURN_IF_ERROR(kernels.Run(stream, forward, scratch, nullptr));
  std::vector<DeviceEvent> events(kTimes + 1);
  for (DeviceEvent& event : events) {
    MESHWRIGHT_ASSIGN_OR_RETURN(event, driver.MakeEvent(/*timed=*/true));
  }
  for (int i = -kWarmUp; i < kTimes; ++i) {
    if (i >= 0) MESHWRIGHT_RETURN_IF_ERROR(driver.RecordTime(stream, events[static_cast<size_t>(i)]));
    MESHWRIGHT_RETURN_IF_ERROR(kernels.Run(stream, backward ? gradient : forward, scratch, nullptr));
  }
  MESHWRIGHT_RETURN_IF_ERROR(driver.RecordTime(stream, events.back()));
  for (bool idle = false; !idle;) {
    MESHWRIGHT_ASSIGN_OR_RETURN(idle, driver.IsIdle(stream));
  }
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) {
    const auto at = static_cast<size_t>(i);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Nanos time, driver.Elapsed(events[at], events[at + 1]));
    times.push_back(static_cast<double>(time.raw()) / 1e6);
  }
  for (const DeviceEvent event : events) driver.Destroy(event);
  for (const TensorView& view : views) driver.Free(view.data);
  driver.Destroy(stream);
  std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
  return times[kTimes / 2];
}

// Printed, for gpu_check to show beside PyTorch's (tools/bundle/gpt2_torch.py has the same sizes).
TEST_P(GpuAttentionTest, Speed) {
  for (const int64_t d : {64, 128}) {
    for (const bool backward : {false, true}) {
      ASSERT_OK_AND_ASSIGN(const double ms, TimeOfAttention(*driver_, *kernels_, d, backward));
      // Of what a causal mask leaves: two products forward, and five backward, however many there are.
      const auto flops = static_cast<double>(kLength * kLength * kHeads * d) * (backward ? 5 : 2);
      std::printf("attention %s, %d x %d heads of %d, causal, bfloat16: %s %.3f ms, %.0f TFLOP/s\n",
                  backward ? "backward" : "forward", static_cast<int>(kLength), static_cast<int>(kHeads),
                  static_cast<int>(d), GetParam() ? "wgmma" : "mma.sync", ms, flops / ms / 1e9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OpTable, GpuKernelsTest, ::testing::ValuesIn(CheckedOps()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });
INSTANTIATE_TEST_SUITE_P(Kernels, GpuAttentionTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "wgmma" : "mma_sync"); });

}  // namespace
}  // namespace meshwright::cuda
