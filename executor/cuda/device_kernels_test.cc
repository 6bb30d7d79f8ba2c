// The kernels of devices, with their threads played on the host: every operator of the table against the host's
// kernels, by one thread a block, and by real threads with barriers. What this leaves out is the device itself:
// tests/gpu.
#include "executor/cuda/device_kernels.h"

#include "executor/cuda/testing/emulated_launcher.h"
#include "executor/cuda/testing/op_checks.h"
#include "executor/cuda/testing/stand_in.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::cuda {
namespace {

using testing::CanAccumulate;
using testing::CheckedOps;
using testing::CheckOp;
using testing::EmulatedLauncher;
using testing::OpCheck;
using testing::StandInMachine;

class DeviceKernelsTest : public ::testing::TestWithParam<OpKind> {
 protected:
  absl::Status Check(const OpCheck& check, int threads) {
    StandInMachine machine(1);
    EmulatedLauncher launcher(machine.driver(0), threads);
    DeviceKernels kernels(machine.driver(0), launcher);
    return CheckOp(machine.driver(0), kernels, GetParam(), check);
  }
};

TEST_P(DeviceKernelsTest, EqualsTheHostInEveryType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) EXPECT_OK(Check({dtype, seed}, 1));
  }
  // By numbers that 8 bits hold: Route's choices and comparisons for equality must not hang on a rounding.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) EXPECT_OK(Check({dtype, 1}, 1));
}

TEST_P(DeviceKernelsTest, AddsToWhatIsThere) {
  if (!CanAccumulate(GetParam())) return;
  EXPECT_OK(Check({DType::kFloat64, 4, true}, 1));
}

TEST_P(DeviceKernelsTest, ManyThreadsInABlock) {
  EXPECT_OK(Check({DType::kFloat64, 5}, 4));
  EXPECT_OK(Check({DType::kFloat64, 6, false, true}, 3));
}

INSTANTIATE_TEST_SUITE_P(OpTable, DeviceKernelsTest, ::testing::ValuesIn(CheckedOps()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// 1 + 2^-9 rounds to even in bfloat16, half's smallest number is 2^-24, and what is too large becomes infinite.
TEST(ElementTest, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16Of(1.0f), 0x3f80);
  EXPECT_EQ(BFloat16Of(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(BFloat16Of(1.0f + 0x1.8p-8f), 0x3f81);
  EXPECT_EQ(Float16Of(1.0f), 0x3c00);
  EXPECT_EQ(Float16Of(0x1p-24f), 1);
  EXPECT_EQ(Float16Of(65504.0f), 0x7bff);
  EXPECT_EQ(Float16Of(65520.0f), 0x7c00);
  EXPECT_EQ(Float16Of(-2.0f), 0xc000);
  for (int bits = 0; bits < 0x7c00; ++bits) {
    EXPECT_EQ(Float16Of(FromFloat16(static_cast<uint16_t>(bits))), bits);
  }
}

TEST(DeviceKernelsErrorTest, WhatItCannotDoIsSaid) {
  StandInMachine machine(1);
  EmulatedLauncher launcher(machine.driver(0));
  DeviceKernels kernels(machine.driver(0), launcher);
  Scratch scratch(machine.driver(0));
  ASSERT_OK_AND_ASSIGN(const DeviceStream stream, machine.driver(0).MakeStream());
  KernelCall feed;
  feed.op = OpKind::kFeed;
  EXPECT_THAT(kernels.Run(stream, feed, scratch, nullptr), StatusIs(absl::StatusCode::kInvalidArgument, "Feed: "));
}

}  // namespace
}  // namespace meshwright::cuda
