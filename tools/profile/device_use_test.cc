#include "tools/profile/device_use.h"

#include <vector>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

DeviceSpan Kernel(int64_t begin, int64_t end, WorkKind kind = WorkKind::kProduct) {
  DeviceSpan span;
  span.begin = Nanos(begin);
  span.end = Nanos(end);
  span.kind = kind;
  return span;
}

DeviceSpan Call(int64_t begin, int64_t end, int64_t bytes) {
  DeviceSpan span = Kernel(begin, end, WorkKind::kCommunication);
  span.call = {CallKind::kAllReduce, 8};
  span.bytes = Bytes(bytes);
  return span;
}

// Three intervals, of which the middle one communicates:
//
//   kernels  [0 .. 10)          [20 .. 30)
//   calls         [5   ..   25)       [32 .. 40)
//   exposed        [10 .. 20)         [32 .. 40)    18
//   idle                            [30, 32), [40, 50)    12
TEST(DeviceUseTest, ExposedIsWhereNothingElseRuns) {
  const DeviceUse use =
      UseBetween({Call(32, 40, 7), Kernel(0, 10), Call(5, 25, 100), Kernel(20, 30)}, Nanos(0), Nanos(50), 1);
  EXPECT_EQ(use.step, Nanos(50));
  EXPECT_EQ(use[WorkKind::kProduct], Nanos(20));
  EXPECT_EQ(use[WorkKind::kCommunication], Nanos(28));
  EXPECT_EQ(use.exposed, Nanos(18));
  EXPECT_EQ(use.idle, Nanos(12));
  ASSERT_EQ(use.calls.size(), 1u);
  const CallUse& call = use.calls.begin()->second;
  EXPECT_EQ(call.calls, 2);
  EXPECT_EQ(call.bytes, 107);
  EXPECT_EQ(call.time, Nanos(28));
}

// Kernels of two streams count each, but the device is busy once.
TEST(DeviceUseTest, StreamsThatOverlap) {
  const DeviceUse use =
      UseBetween({Kernel(0, 10), Kernel(0, 30, WorkKind::kNorm), Kernel(5, 8), Call(0, 30, 1)}, Nanos(0), Nanos(30), 1);
  EXPECT_EQ(use[WorkKind::kProduct], Nanos(13));
  EXPECT_EQ(use[WorkKind::kNorm], Nanos(30));
  EXPECT_EQ(use.exposed, Nanos(0));
  EXPECT_EQ(use.idle, Nanos(0));
}

// From 100 to 200, two steps: of the first call 10 lie inside, but it began before; of the last 20.
TEST(DeviceUseTest, WhatLiesInsideCountsAndTheMeanOfTheSteps) {
  DeviceSpan unsized = Call(180, 250, 0);
  unsized.sized = false;
  const DeviceUse use = UseBetween({Call(50, 110, 9), Kernel(110, 150), Kernel(150, 170), Kernel(300, 400), unsized},
                                   Nanos(100), Nanos(200), 2);
  EXPECT_EQ(use.step, Nanos(50));
  EXPECT_EQ(use[WorkKind::kProduct], Nanos(30));
  EXPECT_EQ(use[WorkKind::kCommunication], Nanos(15));
  EXPECT_EQ(use.exposed, Nanos(15));
  EXPECT_EQ(use.idle, Nanos(5));
  const CallUse& call = use.calls.begin()->second;
  EXPECT_EQ(call.calls, 0.5);
  EXPECT_EQ(call.bytes, 0);
  EXPECT_EQ(use.unsized, 0.5);
}

TEST(DeviceUseTest, NothingIsIdle) {
  const DeviceUse use = UseBetween({}, Nanos(-5), Nanos(5), 1);
  EXPECT_EQ(use.idle, Nanos(10));
  EXPECT_EQ(use.exposed, Nanos(0));
}

}  // namespace
}  // namespace meshwright
