#include "planner/passes/overlap.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/testing.h"
#include "simulator/simulate.h"
#include "simulator/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<Program> Overlapped(const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  program = OverlapCommunication(std::move(program));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

// A step whose instructions take 1 ms each.
Nanos StepTime(const Program& program) {
  const absl::StatusOr<SimulationResult> result = Simulate(program, UnitPrices(program));
  EXPECT_OK(result);
  return result.ok() ? result->makespan : Nanos();
}

// B reduces R for each of three layers, then U.
constexpr char kReductions[] = R"(program reductions mesh dp=2
class all
  buffer p float32 (16) {-} parameter layers 3
  buffer dp float32 (16) {-} partial sum dp gradient layers 3
  buffer dp@whole float32 (16) {-} gradient layers 3 alias dp
  block "layers backward" backward
    compute Fill "-> a" writes dp @B
  block "layers reduce" backward
    compute all_reduce sum (dp) gradient reads dp writes dp@whole @R
  block "layers update" backward
    compute SGD reads p dp@whole writes p @U
  slot "layers backward" mb 0 layer 2
  slot "layers reduce" mb 0 layer 2
  slot "layers backward" mb 0 layer 1
  slot "layers reduce" mb 0 layer 1
  slot "layers backward" mb 0 layer 0
  slot "layers reduce" mb 0 layer 0
  slot "layers update" mb 0 layer 0 x3 up
)";

// Each reduction waits for its layer's gradient, each update for its layer's reduction.
TEST(OverlapTest, ReductionsRunBesideTheBackwardPass) {
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(kReductions));
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kReductions));
  EXPECT_THAT(Lines(program, 0, "layers reduce"),
              ElementsAre("compute sync records \"layers reduce ready\" @\"layers reduce\"",
                          "comm all_reduce sum (dp) gradient reads dp writes dp@whole waits \"layers reduce ready\" "
                          "records \"layers reduce done\" @R"));
  EXPECT_THAT(Lines(program, 0, "await layers reduce"),
              ElementsAre("compute sync waits \"layers reduce done\" @\"await layers reduce\""));
  EXPECT_THAT(
      SlotLines(program.classes[0]),
      ElementsAre("layers backward mb 0 layer 2", "layers reduce mb 0 layer 2", "layers backward mb 0 layer 1",
                  "layers reduce mb 0 layer 1", "layers backward mb 0 layer 0", "layers reduce mb 0 layer 0",
                  "await layers reduce mb 0 layer 0", "layers update mb 0 layer 0", "await layers reduce mb 0 layer 1",
                  "layers update mb 0 layer 1", "await layers reduce mb 0 layer 2", "layers update mb 0 layer 2"));
  for (const Event& event : program.classes[0].events) EXPECT_EQ(event.layers, 3);

  // With 1 ms each:   compute  B2 R2 B1 R1 B0 R0 U0 U1 U2     9 ms
  //           after   compute  B2 B1 B0 -- U0 U1 U2            7 ms: U0 waits for R0
  //                   comm        R2 R1 R0
  EXPECT_EQ(StepTime(before), Millis(9));
  EXPECT_EQ(StepTime(program), Millis(7));
}

// What is computed stays what it was: operands, work and order of each block's other instructions.
TEST(OverlapTest, ChangesStreamsWaitsAndSlotsOnly) {
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(kReductions));
  ASSERT_OK_AND_ASSIGN(const Program after, Overlapped(kReductions));
  for (size_t b = 0; b < before.classes[0].blocks.size(); ++b) {
    std::vector<const Instruction*> kept;
    for (const Instruction& instruction : after.classes[0].blocks[b].instructions) {
      if (!std::holds_alternative<Sync>(instruction.work)) kept.push_back(&instruction);
    }
    const std::vector<Instruction>& wanted = before.classes[0].blocks[b].instructions;
    ASSERT_EQ(kept.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(kept[i]->reads, wanted[i].reads);
      EXPECT_EQ(kept[i]->writes, wanted[i].writes);
      EXPECT_EQ(kept[i]->work.index(), wanted[i].work.index());
      EXPECT_EQ(kept[i]->origin, wanted[i].origin);
    }
  }
}

// Parameters are gathered at the start of the step; the first slot that reads one waits for its gather, and slots of
// several layers are cut there. What was waited for once is not waited for again.
TEST(OverlapTest, GathersRunBesideTheForwardPass) {
  constexpr char kGathers[] = R"(program gathers mesh dp=2 microbatches 2
class all
  buffer p float32 (16) {-} parameter layers 3
  buffer p@master float32 (16) {dp} master layers 3
  buffer y float32 (16) {-} temporary
  block "layers forward" forward
    compute ReLU reads p writes y @F
  block "layers gather" forward
    compute all_gather (dp) dim 0 parameter reads p@master writes p @G
  slot "layers gather" mb 0 layer 0
  slot "layers gather" mb 0 layer 1
  slot "layers gather" mb 0 layer 2
  slot "layers forward" mb 0 layer 0 x3 up
  slot "layers forward" mb 1 layer 0 x3 up
)";
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kGathers));
  EXPECT_THAT(
      SlotLines(program.classes[0]),
      ElementsAre("layers gather mb 0 layer 0", "layers gather mb 0 layer 1", "layers gather mb 0 layer 2",
                  "await layers gather mb 0 layer 0", "layers forward mb 0 layer 0", "await layers gather mb 0 layer 1",
                  "layers forward mb 0 layer 1", "await layers gather mb 0 layer 2", "layers forward mb 0 layer 2",
                  "layers forward mb 1 layer 0 x3 up"));
  // compute     F0 F1 F2 F0 F1 F2    7 ms, where it took 9 before
  // comm     G0 G1 G2
  EXPECT_EQ(StepTime(program), Millis(7));
}

// A slot that needs nothing stays whole, from the layers before those that wait.
TEST(OverlapTest, SlotsAreCutOnlyWhereAWaitMustStand) {
  constexpr char kOneGather[] = R"(program one mesh dp=2
class all
  buffer p float32 (16) {-} parameter layers 4
  buffer p@master float32 (16) {dp} master layers 4
  buffer y float32 (16) {-} temporary
  block "layers forward" forward
    compute ReLU reads p writes y
  block "layers gather" forward
    compute all_gather (dp) dim 0 parameter reads p@master writes p
  slot "layers gather" mb 0 layer 2
  slot "layers forward" mb 0 layer 0 x4 up
)";
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kOneGather));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("layers gather mb 0 layer 2", "layers forward mb 0 layer 0 x2 up",
                          "await layers gather mb 0 layer 2", "layers forward mb 0 layer 2 x2 up"));
}

// One call for several layers: the first layer that is used waits for all of them.
TEST(OverlapTest, ABucketOfSeveralLayersIsAwaitedOnce) {
  constexpr char kBucket[] = R"(program bucket mesh dp=2
class all
  buffer p float32 (16) {-} parameter layers 2
  buffer dp float32 (16) {-} partial sum dp gradient layers 2
  buffer dp@whole float32 (16) {-} gradient layers 2 alias dp
  block "layers backward" backward
    compute Fill "-> a" writes dp
  block "layers reduce x2" backward
    compute all_reduce sum (dp) gradient reads dp dp+1 writes dp@whole dp@whole+1
  block "layers update" backward
    compute SGD reads p dp@whole writes p
  slot "layers backward" mb 0 layer 1 x2 down
  slot "layers reduce x2" mb 0 layer 0
  slot "layers update" mb 0 layer 0 x2 up
)";
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kBucket));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("layers backward mb 0 layer 1 x2 down", "layers reduce x2 mb 0 layer 0",
                          "await layers reduce x2 mb 0 layer 0", "layers update mb 0 layer 0 x2 up"));
}

// Within a block: calls in a row wait once, what follows them waits for the last, and a call behind that for it.
TEST(OverlapTest, CallsAndKernelsOfOneBlock) {
  constexpr char kMixed[] = R"(program mixed mesh dp=2
class all
  buffer a float32 (16) {-} partial sum dp gradient
  buffer b float32 (16) {-} partial sum dp gradient
  buffer c float32 (16) {-} partial sum dp gradient
  buffer a@whole float32 (16) {-} gradient
  buffer b@whole float32 (16) {-} gradient
  buffer c@whole float32 (16) {-} gradient
  block mixed backward
    compute Fill "-> n, m" writes a b
    compute all_reduce sum (dp) gradient reads a writes a@whole @c1
    compute all_reduce sum (dp) gradient reads b writes b@whole @c2
    compute Scale scale=2 reads a@whole writes a@whole @c3
    compute Fill "-> n" writes c @c4
    compute all_reduce sum (dp) gradient reads c writes c@whole @c5
  block last backward
    compute Scale scale=2 reads c@whole writes c@whole @c6
  slot mixed mb 0 layer 0
  slot last mb 0 layer 0
)";
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kMixed));
  EXPECT_THAT(
      Lines(program, 0, "mixed"),
      ElementsAre("compute Fill \" -> n, m\" writes a b", "compute sync records \"mixed ready\" @mixed",
                  "comm all_reduce sum (dp) gradient reads a writes a@whole waits \"mixed ready\" @c1",
                  "comm all_reduce sum (dp) gradient reads b writes b@whole records \"mixed done\" @c2",
                  "compute sync waits \"mixed done\" @mixed", "compute Scale scale=2 reads a@whole writes a@whole @c3",
                  "compute Fill \" -> n\" writes c @c4", "compute sync records \"mixed ready\" @mixed",
                  "comm all_reduce sum (dp) gradient reads c writes c@whole waits \"mixed ready\" records "
                  "\"mixed done\" @c5"));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("mixed mb 0 layer 0", "await mixed mb 0 layer 0", "last mb 0 layer 0"));
}

// Sums between groups of replicas have a stream of their own: they start behind the scatter whose rows they add up (S),
// and the gather of the next layer (G) does not stand behind them.
TEST(OverlapTest, SumsBetweenGroupsHoldUpNoGather) {
  constexpr char kGroups[] = R"(program groups mesh copy=2 dp=2
class all
  buffer shard float32 (16) {dp} parameter
  buffer p float32 (16) {-} parameter
  buffer g float32 (16) {-} partial sum copy.dp gradient
  buffer g@1 float32 (16) {dp} partial sum copy gradient
  buffer g@whole float32 (16) {dp} gradient
  block backward backward
    compute Fill "-> n" writes g @B
  block reduce backward
    compute reduce_scatter sum (dp) dim 0 gradient reads g writes g@1 @S
    compute all_reduce sum (copy) gradient reads g@1 writes g@whole @R
  block gather forward
    compute all_gather (dp) dim 0 parameter reads shard writes p @G
  block next backward
    compute Scale scale=2 reads p writes p @N
  block update backward
    compute Scale scale=2 reads g@whole writes g@whole @U
  slot backward mb 0 layer 0
  slot reduce mb 0 layer 0
  slot gather mb 0 layer 0
  slot next mb 0 layer 0
  slot update mb 0 layer 0
)";
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kGroups));
  EXPECT_THAT(Lines(program, 0, "reduce"),
              ElementsAre("compute sync records \"reduce ready\" @reduce",
                          "comm reduce_scatter sum (dp) dim 0 gradient reads g writes g@1 waits \"reduce ready\" @S",
                          "comm sync records \"reduce inside 2\" @reduce",
                          "context all_reduce sum (copy) gradient reads g@1 writes g@whole waits \"reduce inside 2\" "
                          "records \"reduce done\" @R"));
  EXPECT_EQ(StepTime(program), Millis(5));  // B S G N U, R beside G; behind each other they would take 6
}

// A send of what is being gathered waits too, though it is no kernel.
TEST(OverlapTest, SendsWaitForGathers) {
  constexpr char kShare[] = R"(program share mesh pp=2 dp=2
class "stage 0"
  buffer p float32 (16) {-} parameter
  buffer p@master float32 (16) {dp} master
  event ready
  block gather forward
    compute all_gather (dp) dim 0 parameter reads p@master writes p
  block share backward
    compute sync records ready
    send to +1 parameter reads p waits ready
  slot gather mb 0 layer 0
  slot share mb 0 layer 0
class "stage 1"
  buffer p float32 (16) {-} parameter
  block share backward
    receive from -1 parameter writes p
  slot share mb 0 layer 0
)";
  ASSERT_OK_AND_ASSIGN(const Program program, Overlapped(kShare));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("gather mb 0 layer 0", "await gather mb 0 layer 0", "share mb 0 layer 0"));
}

// Collectives between kernels stay where they are: the next kernel needs them at once.
TEST(OverlapTest, ActivationsStayInTheirPlace) {
  constexpr char kActivations[] = R"(program activations mesh tp=2
class all
  buffer x float32 (16) {-} partial sum tp temporary
  buffer y float32 (16) {-} temporary
  block forward forward
    compute Fill "-> a" writes x
    compute all_reduce sum (tp) activation reads x writes y
  slot forward mb 0 layer 0
)";
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(kActivations));
  ASSERT_OK_AND_ASSIGN(const Program after, Overlapped(kActivations));
  EXPECT_EQ(ToText(after), ToText(before));
}

}  // namespace
}  // namespace meshwright
