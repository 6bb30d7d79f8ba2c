#include "planner/passes/beside_kernels.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/plan_memory.h"
#include "planner/passes/testing.h"
#include "simulator/simulate.h"
#include "simulator/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

Nanos StepTime(const Program& program) {
  const absl::StatusOr<SimulationResult> result = Simulate(program, UnitPrices(program));
  EXPECT_OK(result);
  return result.ok() ? result->makespan : Nanos();
}

// Three ranks, each with a block of keys: A0, A1, A2 read its own, that of the rank before, and the one before that.
constexpr char kRing[] = R"(program ring mesh cp=3
class all
  buffer k float32 (48) {cp} temporary
  buffer k1 float32 (48) {cp} temporary
  buffer k2 float32 (48) {cp} temporary
  buffer y float32 (48) {cp} temporary
  buffer y1 float32 (48) {cp} temporary
  buffer y2 float32 (48) {cp} temporary
  block "layer" forward
    compute Fill "-> s" writes k @K
    compute permute (cp) from 2 0 1 reads k writes k1 @ring
    compute ReLU reads k writes y @A0
    compute permute (cp) from 2 0 1 reads k1 writes k2 @ring
    compute ReLU reads k1 writes y1 @A1
    compute ReLU reads k2 writes y2 @A2
  slot "layer" mb 0 layer 0
)";

TEST(RingBesideKernelsTest, KeysTravelBesideTheAttention) {
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(kRing));
  ASSERT_OK(VerifyProgram(before));
  Program program = PlanMemory(RunRingBesideKernels(before));
  ASSERT_OK(VerifyProgram(program));
  EXPECT_THAT(Lines(program, 0, "layer"),
              ElementsAre("compute Fill \" -> s\" writes k @K", "compute sync records \"layer 1 ready\" @ring",
                          "context permute (cp) from 2 0 1 reads k writes k1 waits \"layer 1 ready\" "
                          "records \"layer 1 done\" @ring",
                          "compute ReLU reads k writes y @A0", "compute sync records \"layer 3 ready\" @ring",
                          "context permute (cp) from 2 0 1 reads k1 writes k2 waits \"layer 3 ready\" "
                          "records \"layer 3 done\" @ring",
                          "compute sync waits \"layer 1 done\" @ring", "compute ReLU reads k1 writes y1 @A1",
                          "compute sync waits \"layer 3 done\" @ring", "compute ReLU reads k2 writes y2 @A2"));
  // With 1 ms each:   compute  K P1 A0 P2 A1 A2     6 ms
  //           after   compute  K A0 A1 A2           4 ms
  //                   context    P1 P2
  EXPECT_EQ(StepTime(before), Millis(6));
  EXPECT_EQ(StepTime(program), Millis(4));
}

TEST(RingBesideKernelsTest, WithoutContextParallelismNothingMoves) {
  std::string text = kRing;
  for (size_t at; (at = text.find("cp")) != std::string::npos;) text.replace(at, 2, "dp");
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(text));
  EXPECT_EQ(ToText(RunRingBesideKernels(before)), ToText(before));
}

// What travels keeps its place until it has arrived: k, which A0 reads last, does not share memory with what A1 writes
// where k1 is still under way.
TEST(RingBesideKernelsTest, WhatTravelsKeepsItsPlace) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(R"(program ring mesh cp=2
class all
  buffer k float32 (128) {cp} temporary
  buffer k1 float32 (128) {cp} temporary
  buffer y float32 (128) {cp} temporary
  buffer z float32 (128) {cp} temporary
  block "layer" forward
    compute Fill "-> s" writes k @K
    compute permute (cp) from 1 0 reads k writes k1 @ring
    compute Fill "-> s" writes y @A
    compute ReLU reads y writes z @B
    compute ReLU reads k1 writes y @C
  slot "layer" mb 0 layer 0
)"));
  program = PlanMemory(RunRingBesideKernels(std::move(program)));
  ASSERT_OK(VerifyProgram(program));
  // k, k1, y and z all live while the keys travel: 256 bytes each.
  EXPECT_EQ(program.classes[0].arena, Bytes(4 * 256));
}

}  // namespace
}  // namespace meshwright
