#include "planner/passes/take_turns.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// a -> all-reduce -> b -> two all-reduces, one of which c needs -> c, d
constexpr char kLayer[] = R"(program layer mesh x=2
class all
  buffer a float32 (8) {-} partial sum x temporary
  buffer a1 float32 (8) {-} temporary
  buffer b float32 (8) {-} partial sum x temporary
  buffer b1 float32 (8) {-} temporary
  buffer e float32 (8) {-} partial sum x temporary
  buffer e1 float32 (8) {-} temporary
  buffer s float32 (8) {-} temporary
  buffer t float32 (8) {-} temporary
  buffer u float32 (8) {-} temporary
  block "layer" forward
    compute Fill "-> s" writes a @A
    compute all_reduce sum (x) activation reads a writes a1 @R
    compute ReLU reads a1 writes s @B0
    compute Fill "-> s" writes b @B1
    compute Fill "-> s" writes e @B2
    compute all_reduce sum (x) activation reads b writes b1 @S
    compute all_reduce sum (x) activation reads e writes e1 @T
    compute ReLU reads b1 writes u @C
    compute ReLU reads e1 writes t @D
  slot "layer" mb 0 layer 0
)";

// S and T are issued together: one cut does for both.
TEST(TakeTurnsTest, BlocksEndWhereACollectiveIsWaitedFor) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kLayer));
  RankClass& c = program.classes[0];
  const std::vector<Block> blocks = CutAtCollectives(c.blocks[0], c.events);
  std::vector<std::vector<std::string>> origins;
  for (const Block& block : blocks) {
    auto& of_block = origins.emplace_back();
    for (const Instruction& instruction : block.instructions) {
      const bool sync = std::holds_alternative<Sync>(instruction.work);
      of_block.push_back((sync ? instruction.waits.empty() ? "record " : "wait " : "") + instruction.origin);
    }
  }
  EXPECT_THAT(origins, ElementsAre(ElementsAre("A", "record R", "R"),
                                   ElementsAre("wait R", "B0", "B1", "record S", "B2", "record T", "S", "T"),
                                   ElementsAre("wait S", "C", "wait T", "D")));
  // What is reduced, read or written, may be so while another pass runs; s, t and u live inside of one block.
  std::set<std::string> across;
  for (const BufferId id : UsedAcross(blocks)) across.insert(c.buffers[id.index()].name);
  EXPECT_EQ(across, (std::set<std::string>{"a", "a1", "b", "b1", "e", "e1"}));
}

TEST(TakeTurnsTest, WithoutCollectivesThereIsOneBlock) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kLayer));
  RankClass& c = program.classes[0];
  Block block = c.blocks[0];
  block.instructions = {block.instructions[0], block.instructions[3]};
  const std::vector<Block> blocks = CutAtCollectives(block, c.events);
  ASSERT_THAT(blocks, SizeIs(1));
  EXPECT_THAT(UsedAcross(blocks), IsEmpty());
  EXPECT_THAT(c.events, IsEmpty());
}

}  // namespace
}  // namespace meshwright
