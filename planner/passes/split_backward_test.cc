#include "planner/passes/split_backward.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SplitBackwardTest : public ::testing::Test {
 protected:
  BufferId Add(const std::string& name, BufferRole role) {
    Buffer buffer;
    buffer.name = name;
    buffer.role = role;
    buffers_.push_back(buffer);
    return BufferId(buffers_.size() - 1);
  }
  static Instruction Make(std::string origin, const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    Instruction instruction;
    instruction.origin = std::move(origin);
    for (const BufferId id : reads) instruction.reads.push_back({id, 0});
    for (const BufferId id : writes) instruction.writes.push_back({id, 0});
    return instruction;
  }
  static std::vector<std::string> Origins(const Block& block) {
    std::vector<std::string> origins;
    for (const Instruction& instruction : block.instructions) origins.push_back(instruction.origin);
    return origins;
  }

  std::vector<Buffer> buffers_;
};

// y = relu(x w): dh = relu'(dy), dx = dh w^T for the layer before, dw = x^T dh for nobody. A cast of x serves dw alone.
TEST_F(SplitBackwardTest, GradientsOfParametersAndWhatServesThemAloneAreApart) {
  const BufferId x = Add("x", BufferRole::kActivation), w = Add("w", BufferRole::kParameter);
  const BufferId dy = Add("dy", BufferRole::kActivation), dx = Add("dx", BufferRole::kActivation);
  const BufferId dh = Add("dh", BufferRole::kTemporary), cast = Add("cast", BufferRole::kTemporary);
  const BufferId dw = Add("dw", BufferRole::kGradient);
  const Block block = {"layers backward",
                       Phase::kBackward,
                       {Make("cast", {x}, {cast}), Make("relu", {dy, x}, {dh}), Make("dw", {cast, dh}, {dw}),
                        Make("dx", {dh, w}, {dx})}};
  const SplitBlock split = SplitBackward(block, buffers_);
  EXPECT_THAT(Origins(split.backward), ElementsAre("relu", "dx"));
  EXPECT_THAT(Origins(split.weights), ElementsAre("cast", "dw"));
  EXPECT_EQ(split.backward.name, "layers backward");
  EXPECT_EQ(split.weights.phase, Phase::kBackward);
}

// A norm's gradient makes both at once, so it stays, and with it what it needs.
TEST_F(SplitBackwardTest, WhatMakesBothStays) {
  const BufferId dy = Add("dy", BufferRole::kActivation), dx = Add("dx", BufferRole::kActivation);
  const BufferId sum = Add("sum", BufferRole::kTemporary), dgain = Add("dgain", BufferRole::kGradient);
  const Block block = {"norm backward", Phase::kBackward, {Make("sum", {dy}, {sum}), Make("norm", {sum}, {dx, dgain})}};
  const SplitBlock split = SplitBackward(block, buffers_);
  EXPECT_THAT(Origins(split.backward), ElementsAre("sum", "norm"));
  EXPECT_THAT(split.weights.instructions, IsEmpty());
}

// A collective beside the kernels takes its events along, whichever way it goes.
TEST_F(SplitBackwardTest, SyncsGoWithTheirCollective) {
  const BufferId dy = Add("dy", BufferRole::kActivation), dx = Add("dx", BufferRole::kActivation);
  const BufferId part = Add("part", BufferRole::kTemporary), sum = Add("sum", BufferRole::kTemporary);
  const BufferId own = Add("own", BufferRole::kTemporary), all = Add("all", BufferRole::kTemporary);
  const BufferId dw = Add("dw", BufferRole::kGradient);
  const auto beside = [](Instruction instruction, size_t first) {
    instruction.waits = {{EventId(first), 0}};
    instruction.records = {{EventId(first + 1), 0}};
    return instruction;
  };
  const auto sync = [](std::string origin, size_t event, bool wait) {
    Instruction instruction;
    instruction.work = Sync{};
    instruction.origin = std::move(origin);
    (wait ? instruction.waits : instruction.records) = {{EventId(event), 0}};
    return instruction;
  };
  const Block block = {
      "layers backward",
      Phase::kBackward,
      {Make("part", {dy}, {part}), sync("stays ready", 0, false), beside(Make("stays", {part}, {sum}), 0),
       Make("own", {dy}, {own}), sync("goes ready", 2, false), beside(Make("goes", {own}, {all}), 2),
       sync("goes done", 3, true), Make("dw", {all}, {dw}), sync("stays done", 1, true), Make("dx", {sum}, {dx})}};
  const SplitBlock split = SplitBackward(block, buffers_);
  EXPECT_THAT(Origins(split.backward), ElementsAre("part", "stays ready", "stays", "stays done", "dx"));
  EXPECT_THAT(Origins(split.weights), ElementsAre("own", "goes ready", "goes", "goes done", "dw"));
}

}  // namespace
}  // namespace meshwright
