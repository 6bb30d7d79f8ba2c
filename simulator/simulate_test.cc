#include "simulator/simulate.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/trace.h"
#include "ir/trace_drawing.h"
#include "simulator/tasks.h"
#include "simulator/testing.h"

namespace meshwright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

InstructionPrice Plain(Nanos time) { return CommunicationPrice(time, 0, 0); }

// S12.8: F = 1, B = 2, free transfers: (M + S - 1) * 3 for both schedules, idle share (S - 1) / (M + S - 1).
struct ScheduleCase {
  int64_t stages, microbatches;
  double milliseconds;
};
class ScheduleTest : public testing::TestWithParam<ScheduleCase> {};

TEST_P(ScheduleTest, TakesWhatTheTableSays) {
  const ScheduleCase& param = GetParam();
  for (const Schedule schedule : {Schedule::kGpipe, Schedule::kOneFOneB}) {
    const Program program =
        MakePipeline({.stages = param.stages, .microbatches = param.microbatches, .layers = 1, .schedule = schedule});
    const Prices prices = PricesByOrigin(program, {{"F", KernelPrice(Millis(1))}, {"B", KernelPrice(Millis(2))}});
    ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
    EXPECT_EQ(result.makespan, Millis(param.milliseconds));
    for (const ClassResult& of_class : result.classes) {
      const TimeUses& time = of_class.time.exclusive;
      EXPECT_EQ(time[TimeUse::kForward], Millis(1) * param.microbatches);
      EXPECT_EQ(time[TimeUse::kBackward], Millis(2) * param.microbatches);
      EXPECT_EQ(time[TimeUse::kWait], Millis(3) * (param.stages - 1));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Table, ScheduleTest,
                         testing::Values(ScheduleCase{2, 4, 15}, ScheduleCase{4, 4, 21}, ScheduleCase{4, 8, 33}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.stages, "Stages", info.param.microbatches, "MicroBatches");
                         });

TEST(SimulateTest, TransferTimeIsExposedOnlyWhereNothingHidesIt) {
  // Two stages, one micro-batch, F = 1, B = 2, transfers 0.5. Nothing to hide a transfer behind.
  //   stage 0  F 0-1                          B 5-7
  //   stage 1         F 1.5-2.5  B 2.5-4.5              transfers 1-1.5 and 4.5-5
  // => 7.0: F 1, X 0.5, F 1, B 2, X 0.5, B 2.
  const Program program = MakePipeline({.stages = 2, .microbatches = 1});
  const Prices prices = PricesByOrigin(
      program, {{"F", KernelPrice(Millis(1))}, {"B", KernelPrice(Millis(2))}, {"X", Plain(Millis(0.5))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(result.makespan, Millis(7));
  EXPECT_EQ(result.critical_class, 0u);
  // Stage 0 waits from 1 until the other begins to send back, at 4.5 (its own send runs meanwhile); receiving takes
  // 0.5.
  const TimeUses& first = result.classes[0].time.exclusive;
  EXPECT_EQ(first[TimeUse::kTransfer], Millis(0.5));
  EXPECT_EQ(first[TimeUse::kWait], Millis(3.5));
  EXPECT_EQ(first.Total(), Millis(7));
  // Stage 1 ends with its send at 5; the rest of the step it waits.
  EXPECT_EQ(result.classes[1].time.end, Millis(5));
  const TimeUses& second = result.classes[1].time.exclusive;
  EXPECT_EQ(second[TimeUse::kTransfer], Millis(1));  // received 1-1.5, sent 4.5-5
  EXPECT_EQ(second[TimeUse::kWait], Millis(1) + Millis(2));
  EXPECT_EQ(second.Total(), Millis(7));
}

// Of four stages the two in the middle receive and send both ways. Where one's kernel takes a nanosecond more, they are
// cut each for itself.
TEST(UnrollTest, ClassesThatRunTheSameShareTheirRuns) {
  const Program program = MakePipeline({.stages = 4, .microbatches = 8});
  Prices prices = PricesByOrigin(program, {{"F", KernelPrice(Millis(1))}, {"B", KernelPrice(Millis(2))}});
  ASSERT_OK_AND_ASSIGN(const auto lists, Unroll(program, prices, Folding::kRuns));
  EXPECT_EQ(lists[1].blocks, lists[2].blocks);
  EXPECT_NE(lists[0].blocks, lists[1].blocks);
  EXPECT_NE(lists[2].blocks, lists[3].blocks);
  prices.classes[2][0][0].time += Nanos(1);
  ASSERT_OK_AND_ASSIGN(const auto others, Unroll(program, prices, Folding::kRuns));
  EXPECT_NE(others[1].blocks, others[2].blocks);
}

// The third stage of four is told to run the blocks of the second. Where its own prices are others, it has runs of its
// own; and a message about it does without the names that stand in blocks.
TEST(UnrollTest, AClassThatIsNotWrittenOutRunsTheBlocksOfAnother) {
  Program program = MakePipeline({.stages = 4, .microbatches = 8});
  Prices prices = PricesByOrigin(program, {{"F", KernelPrice(Millis(1))}, {"B", KernelPrice(Millis(2))}});
  program.classes[2].blocks.clear();
  program.classes[2].buffers.clear();
  const ClassCopies copies = {{0, 1, 1, 3}, {}};
  ASSERT_OK_AND_ASSIGN(const auto lists, Unroll(program, prices, Folding::kRuns, copies));
  EXPECT_EQ(lists[1].blocks, lists[2].blocks);
  prices.classes[2][0][0].time += Nanos(1);
  ASSERT_OK_AND_ASSIGN(const auto others, Unroll(program, prices, Folding::kRuns, copies));
  EXPECT_NE(others[1].blocks, others[2].blocks);
  program.classes[3].slots.clear();
  EXPECT_THAT(Unroll(program, prices, Folding::kRuns, copies),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("stage 2 sends 8 times to stage 3, which receives 0 times"),
                             HasSubstr("the first without a partner is stage 2 slot "))));
}

constexpr char kOverlap[] = R"(program overlap mesh x1=2
class "stage 0"
  buffer g float32 (4) {-} gradient
  event ready
  event reduced
  block b backward
    compute Fill writes g records ready @K1
    comm all_reduce sum (x1) gradient reads g writes g waits ready records reduced @R
    compute Fill writes g @K2
    compute Fill writes g @K3
    compute SGD reads g g writes g waits reduced @U
  slot b mb 0 layer 0
)";

TEST(SimulateTest, KernelsBesideCommunicationRunAtTheRateThatItLeaves) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kOverlap));
  // R takes a quarter of the multiprocessors for 6 us. K1 has ended by then; K2 (4 us of work) runs beside R from 10
  // on, at 3/4: 4 / 0.75 = 5333.3 ns, so it ends at 15334 ns. R ends at 16000: until then K3 (5 us of work) gets 666 x
  // 0.75 = 499.5 ns of work done; the other 4500.5 ns alone end at 20500.5, rounded up 20501. The update has waited
  // since 16000 only in order, K3 is longer: U 20501 .. 21501.
  const Prices prices = PricesByOrigin(program, {{"K1", KernelPrice(Micros(10))},
                                                 {"K2", KernelPrice(Micros(4))},
                                                 {"K3", KernelPrice(Micros(5))},
                                                 {"U", KernelPrice(Micros(1))},
                                                 {"R", CommunicationPrice(Micros(6), 0.25, 0.8)}});
  for (const bool fold : {true, false}) {
    ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.fold = fold}));
    EXPECT_EQ(result.makespan, Nanos(21501));
    const Breakdown& time = result.classes[0].time;
    EXPECT_EQ(time.exclusive[TimeUse::kContention], Nanos(1501));  // 21501 - (10 + 4 + 5 + 1) us
    EXPECT_EQ(time.exclusive[TimeUse::kGradientCollective], Nanos(0));
    EXPECT_EQ(time.busy[TimeUse::kGradientCollective], Micros(6));
    EXPECT_EQ(time.exclusive[TimeUse::kOptimizer], Micros(20));  // all kernels of a block with an update
    EXPECT_EQ(time.exclusive.Total(), result.makespan);
  }
}

TEST(SimulateTest, CommunicationLongerThanWhatHidesItIsExposed) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kOverlap));
  // K1 0-10, R 10-40, K2 10-14, K3 14-19, U waits until 40: 21 us of R are exposed.
  const Prices prices = PricesByOrigin(program, {{"K1", KernelPrice(Micros(10))},
                                                 {"K2", KernelPrice(Micros(4))},
                                                 {"K3", KernelPrice(Micros(5))},
                                                 {"U", KernelPrice(Micros(1))},
                                                 {"R", Plain(Micros(30))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(result.makespan, Micros(41));
  EXPECT_EQ(result.classes[0].time.exclusive[TimeUse::kGradientCollective], Micros(21));
  EXPECT_EQ(result.classes[0].time.busy[TimeUse::kGradientCollective], Micros(30));
}

TEST(SimulateTest, CommunicationSharesALinkInProportion) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program links mesh x1=2
class "stage 0"
  buffer g float32 (4) {-} gradient
  block b backward
    comm all_reduce sum (x1) gradient reads g writes g @R
    compute all_reduce sum (x1) activation reads g writes g @T
  slot b mb 0 layer 0
)"));
  // Each alone would use 0.8 of the link; together 1.6, so each runs at 1 / 1.6 = 0.625 (6250 of 10000).
  // T: 5 us of work take 8 us. R has then done 5 of 10 us, and does the rest alone: 8 + 5 = 13 us.
  const Prices prices = PricesByOrigin(
      program, {{"R", CommunicationPrice(Micros(10), 0.1, 0.8)}, {"T", CommunicationPrice(Micros(5), 0.1, 0.8)}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(result.makespan, Micros(13));
  const TimeUses& time = result.classes[0].time.exclusive;
  EXPECT_EQ(time[TimeUse::kActivationCollective], Micros(5));
  EXPECT_EQ(time[TimeUse::kContention], Micros(3));
  EXPECT_EQ(time[TimeUse::kGradientCollective], Micros(5));
}

TEST(SimulateTest, ATransferRunsAtTheRateOfItsBusierEnd) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program busy_end mesh pp=2 x1=2
class "stage 0"
  buffer g float32 (4) {-} gradient
  block b backward
    send to +1 activation reads g @X
  slot b mb 0 layer 0
class "stage 1"
  buffer g float32 (4) {-} gradient
  block b backward
    comm all_reduce sum (x1) gradient reads g writes g @R
    receive from -1 activation writes g @X
  slot b mb 0 layer 0
)"));
  // On stage 1 both want the whole link: half speed until R's 4 us are done at 8 us, when X has done 4 of its 10: 14
  // us.
  const Prices prices = PricesByOrigin(
      program, {{"X", CommunicationPrice(Micros(10), 0, 1)}, {"R", CommunicationPrice(Micros(4), 0, 1)}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(result.makespan, Micros(14));
  EXPECT_EQ(result.classes[0].time.end, Micros(14));
}

TEST(SimulateTest, TheNthSendMeetsTheNthReceive) {
  // Stage 1 takes its first piece at 0 and the second only after its kernel of 5 ms; stage 0 has the first ready at 2
  // ms.
  //   stage 0  K1 0-2   X 2-3  X 5-6 (issued at once, the partner comes at 5)
  //   stage 1  K2 0-5   X 2-3  X 5-6
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program rendezvous mesh pp=2
class "stage 0"
  buffer a float32 (4) {-} activation
  event made
  block b forward
    compute Fill writes a records made @K1
    send to +1 activation reads a waits made @X
    send to +1 activation reads a @X
  slot b mb 0 layer 0
class "stage 1"
  buffer a float32 (4) {-} activation
  buffer c float32 (4) {-} activation
  event free
  block b forward
    compute Fill writes c records free @K2
    receive from -1 activation writes a @X
    receive from -1 activation writes c waits free @X
  slot b mb 0 layer 0
)"));
  const Prices prices = PricesByOrigin(
      program, {{"K1", KernelPrice(Millis(2))}, {"K2", KernelPrice(Millis(5))}, {"X", Plain(Millis(1))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.trace = TraceDetail::kInstructions}));
  EXPECT_EQ(result.makespan, Millis(6));
  std::vector<std::string> spans;
  for (const Span& span : result.trace.spans) {
    spans.push_back(absl::StrCat(span.rank, " ", NameOf(span.stream), " ", span.instruction, ": ",
                                 ToSeconds(span.begin) * 1e3, "-", ToSeconds(span.end) * 1e3));
  }
  EXPECT_THAT(spans, testing::ElementsAre("0 compute 0: 0-2", "0 send 1: 2-3", "0 send 2: 5-6", "1 compute 0: 0-5",
                                          "1 receive 1: 2-3", "1 receive 2: 5-6"));
}

TEST(SimulateTest, AWaitMeansTheLatestRecordIssuedBeforeIt) {
  // The reduce waits for the first kernel's record, not for the second one's, which is issued later: 0-1, then 1-11.
  // The kernel that writes the buffer again waits for the reduce (write after read). Before any record a wait means
  // nothing.
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program events mesh x1=2
class "stage 0"
  buffer g float32 (4) {-} gradient
  event ready
  event reduced
  block b backward
    compute Fill writes g waits reduced records ready @K
    comm all_reduce sum (x1) gradient reads g writes g waits ready records reduced @R
    compute Fill writes g records ready @L
  slot b mb 0 layer 0 x2 up
)"));
  // K 0-1, R 1-11, L 1-3; second layer: K waits for R: 11-12, R 12-22, L 12-14.
  const Prices prices =
      PricesByOrigin(program, {{"K", KernelPrice(Millis(1))}, {"R", Plain(Millis(10))}, {"L", KernelPrice(Millis(2))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(result.makespan, Millis(22));
  const TimeUses& time = result.classes[0].time.exclusive;
  EXPECT_EQ(time[TimeUse::kBackward], Millis(6));
  EXPECT_EQ(time[TimeUse::kGradientCollective], Millis(8) + Millis(8));  // 3-11 and 14-22
}

TEST(SimulateTest, EventInstancesOfLayersAreApart) {
  // Layer 1's reduce does not wait for layer 1's second kernel, whose record is of the other instance.
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program instances mesh x1=2
class "stage 0"
  buffer g float32 (4) {-} gradient
  event ready layers 2
  block compute_all backward
    compute Fill writes g records ready @K
  block reduce backward
    comm all_reduce sum (x1) gradient reads g writes g waits ready @R
  slot compute_all mb 0 layer 1 x2 down
  slot reduce mb 0 layer 1 x2 down
)"));
  // K(1) 0-4, K(0) 4-8; R(1) 4-7, R(0) 8-11.
  const Prices prices = PricesByOrigin(program, {{"K", KernelPrice(Millis(4))}, {"R", Plain(Millis(3))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.trace = TraceDetail::kInstructions}));
  EXPECT_EQ(result.makespan, Millis(11));
  ASSERT_EQ(result.trace.spans.size(), 4u);
  EXPECT_EQ(result.trace.spans[2].layer, 1);
  EXPECT_EQ(result.trace.spans[2].begin, Millis(4));
  EXPECT_EQ(result.trace.spans[3].begin, Millis(8));
}

TEST(SimulateTest, LayersOfKernelsAreOneTask) {
  const Program program =
      MakePipeline({.stages = 1, .microbatches = 8, .layers = 96, .instructions = 10, .collective_every = 5});
  const Prices prices = UnitPrices(program);
  ASSERT_OK_AND_ASSIGN(const SimulationResult folded, Simulate(program, prices));
  EXPECT_EQ(folded.num_tasks, 2 * 8);
  // 12 instructions a layer and direction, 1 ms each.
  EXPECT_EQ(folded.makespan, Millis(1) * (12 * 96 * 2 * 8));
  EXPECT_EQ(folded.classes[0].time.exclusive[TimeUse::kActivationCollective], Millis(1) * (2 * 96 * 2 * 8));
}

TEST(SimulateTest, AWaitThatEveryLayerRepeatsCostsOneTask) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program repeated mesh x1=2
class "stage 0"
  buffer g float32 (4) {-} gradient
  event here
  block fetch forward
    comm all_reduce sum (x1) activation reads g writes g records here @R
  block layers forward
    compute Fill writes g waits here @K
    compute Fill writes g waits here @K
  slot fetch mb 0 layer 0
  slot layers mb 0 layer 0 x10 up
)"));
  const Prices prices = PricesByOrigin(program, {{"K", KernelPrice(Millis(1))}, {"R", Plain(Millis(3))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(result.num_tasks, 2);  // R, and all layers: only the first can wait
  EXPECT_EQ(result.makespan, Millis(23));
}

// Three stages hand five micro-batches on twice and back twice, by arrows from a slot of one rank to one of the next.
TEST(SimulateTest, SlotsOfATimelineAreJoinedByFlows) {
  const Program program = MakePipeline({.stages = 3, .microbatches = 5, .layers = 4, .instructions = 3});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                       Simulate(program, UnitPrices(program), {.trace = TraceDetail::kSlots}));
  const TraceDrawing drawing = Draw(result.trace, program);
  EXPECT_EQ(drawing.flows.size(), 20u);
  for (const DrawnFlow& flow : drawing.flows) {
    const Span &from = result.trace.spans[flow.from], &to = result.trace.spans[flow.to];
    EXPECT_EQ(from.stream, Stream::kSend);
    EXPECT_EQ(to.stream, Stream::kReceive);
    EXPECT_EQ(std::abs(from.rank - to.rank), program.ranks_per_class());
    EXPECT_EQ(drawing.slices[flow.from].microbatch, drawing.slices[flow.to].microbatch);
    EXPECT_LE(from.begin, to.end);
  }
}

TEST(SimulateTest, SlotsThatComputeForNoTimeAreNotDrawn) {
  const Program program = MakePipeline({.stages = 2, .microbatches = 3, .layers = 2});
  const Prices prices = PricesByOrigin(program, {{"F", KernelPrice(Millis(1))}, {"B", KernelPrice(Millis(2))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.trace = TraceDetail::kSlots}));
  size_t computed = 0;
  for (const Span& span : result.trace.spans) {
    if (span.stream != Stream::kCompute) continue;
    ++computed;
    EXPECT_LT(span.begin, span.end);
  }
  EXPECT_EQ(computed, 2u * 2 * 3);  // forward and backward of three micro-batches on two stages
}

TEST(SimulateTest, SlotSpansDoNotOverlapOnAStream) {
  const Program program = MakePipeline({.stages = 3, .microbatches = 5, .layers = 4, .instructions = 3});
  const Prices prices = UnitPrices(program);
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.trace = TraceDetail::kSlots}));
  EXPECT_EQ(result.trace.makespan, result.makespan);
  EXPECT_EQ(result.trace.source, "simulated");
  // Each class: one span per slot; those that receive and send hand over in no time.
  size_t slots = 0;
  for (const RankClass& rank_class : program.classes) slots += rank_class.slots.size();
  EXPECT_EQ(result.trace.spans.size(), slots);
  std::map<std::pair<int64_t, Stream>, Nanos> clock;
  for (const Span& span : result.trace.spans) {
    Nanos& time = clock[{span.rank, span.stream}];
    EXPECT_GE(span.begin, time);
    EXPECT_LE(span.begin, span.end);
    EXPECT_EQ(span.instruction, -1);
    time = span.end;
  }
}

TEST(SimulateTest, TextSaysWhereTheTimeOfTheCriticalClassGoes) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kOverlap));
  // As in CommunicationLongerThanWhatHidesItIsExposed.
  const Prices prices = PricesByOrigin(program, {{"K1", KernelPrice(Micros(10))},
                                                 {"K2", KernelPrice(Micros(4))},
                                                 {"K3", KernelPrice(Micros(5))},
                                                 {"U", KernelPrice(Micros(1))},
                                                 {"R", Plain(Micros(30))}});
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(ToText(result, program),
            "step 0.041 ms, stage 0 ends last:\n"
            "  optimizer                   0.020 ms  48.8 %\n"
            "  gradient collectives        0.021 ms  51.2 % (and 0.009 ms hidden)");
}

TEST(SimulateTest, EmptyProgramsTakeNoTime) {
  Program program;
  program.classes.resize(1);
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, UnitPrices(program)));
  EXPECT_EQ(result.makespan, Nanos(0));
  EXPECT_EQ(result.classes[0].time.exclusive.Total(), Nanos(0));
}

// Both stages send before they receive, on one stream: each waits for the other.
constexpr char kDeadlock[] = R"(program deadlock mesh pp=2
class "stage 0"
  buffer a float32 (4) {-} activation
  block exchange forward
    compute Fill writes a @K
    compute send to +1 activation reads a @ping
    compute receive from +1 activation writes a @pong
  slot exchange mb 0 layer 0
class "stage 1"
  buffer a float32 (4) {-} activation
  block exchange forward
    compute send to -1 activation reads a @pong
    compute receive from -1 activation writes a @ping
  slot exchange mb 0 layer 0
)";

TEST(SimulateTest, NamesTheInstructionsThatWaitForEachOther) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kDeadlock));
  EXPECT_THAT(
      Simulate(program, UnitPrices(program)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               testing::Eq("instructions wait for each other, nothing goes on after 1 ms:\n"
                           "  stage 0 slot 0 (exchange, micro-batch 0, layer 0) send ping waits for stage 1 slot 0 "
                           "(exchange, micro-batch 0, layer 0) receive ping, which stands on the compute stream behind "
                           "the next line's\n"
                           "  stage 1 slot 0 (exchange, micro-batch 0, layer 0) send pong waits for stage 0 slot 0 "
                           "(exchange, micro-batch 0, layer 0) receive pong, which stands on the compute stream behind "
                           "the next line's")));
}

TEST(SimulateTest, AWaitForWhatCannotBeginIsNamedToo) {
  // Stage 0's send waits for a reduce that stands behind a receive; what it receives, stage 1 makes of what it sends.
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program circle mesh pp=2 x1=2
class "stage 0"
  buffer a float32 (4) {-} activation
  event done
  block b forward
    comm receive from +1 activation writes a @answer
    comm all_reduce sum (x1) gradient reads a writes a records done @R
    send to +1 activation reads a waits done @question
  slot b mb 0 layer 0
class "stage 1"
  buffer a float32 (4) {-} activation
  event asked
  block b forward
    receive from -1 activation writes a records asked @question
    send to -1 activation reads a waits asked @answer
  slot b mb 0 layer 0
)"));
  EXPECT_THAT(
      Simulate(program, UnitPrices(program)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("receive answer waits for stage 1 slot 0 (b, micro-batch 0, layer 0) send answer"),
                     HasSubstr("send answer waits for stage 1 slot 0 (b, micro-batch 0, layer 0) receive question"),
                     HasSubstr("send question waits for stage 0 slot 0 (b, micro-batch 0, layer 0) R, which stands "
                               "on the comm stream behind the next line's"))));
}

TEST(SimulateTest, NamesATransferWithoutPartner) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kDeadlock));
  program.classes[1].blocks[0].instructions.pop_back();
  EXPECT_THAT(
      Simulate(program, UnitPrices(program)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("stage 0 sends 1 times to stage 1, which receives 0 times"), HasSubstr("ping"))));
}

TEST(SimulateTest, RefusesPricesOfAnotherProgram) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kDeadlock));
  Prices prices = UnitPrices(program);
  prices.classes[1][0].pop_back();
  EXPECT_THAT(Simulate(program, prices),
              StatusIs(absl::StatusCode::kInvalidArgument, "has 2 instructions, the prices are for 1"));
}

TEST(SimulateTest, NamesAnInstructionThatCannotRun) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kOverlap));
  const Prices prices = PricesByOrigin(program, {{"R", Plain(kForever)}});
  EXPECT_THAT(Simulate(program, prices),
              StatusIs(absl::StatusCode::kFailedPrecondition, "stage 0, block \"b\", instruction 1 (R) cannot run"));
}

TEST(SimulateTest, RefusesACollectiveOverStages) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program over_stages mesh pp=2
class "stage 0"
  buffer a float32 (4) {-} activation
  block b forward
    compute all_reduce sum (pp) report reads a writes a @loss
  slot b mb 0 layer 0
class "stage 1"
)"));
  EXPECT_THAT(Simulate(program, UnitPrices(program)), StatusIs(absl::StatusCode::kUnimplemented, "loss"));
}

// --- more periods than a program has -------------------------------------------------------------------------------

PipelineOptions ThreeStages(int64_t microbatches) {
  return {.stages = 3, .microbatches = microbatches, .layers = 2, .instructions = 3, .optimizer = true};
}
Prices WithContention(const Program& program) {
  return PricesByOrigin(program, {{"F", KernelPrice(Millis(1))},
                                  {"B", KernelPrice(Millis(2))},
                                  {"X", CommunicationPrice(Micros(500), 0, 0.5)},
                                  {"R", CommunicationPrice(Micros(400), 0.2, 0.6)},
                                  {"U", KernelPrice(Micros(100))}});
}

// A micro-batch goes forth and back while its stage runs two others, and that trip is what the first stage waits for:
// so every third micro-batch finds the stages as they were.
TEST(SimulateLongerTest, CountsPeriodsInsteadOfPlayingThem) {
  const Program shorter = MakePipeline(ThreeStages(24));
  for (const int64_t more : {3, 30, 3000}) {
    const Program longer = MakePipeline(ThreeStages(24 + more));
    ASSERT_OK_AND_ASSIGN(const SimulationResult played, Simulate(longer, WithContention(longer)));
    ASSERT_OK_AND_ASSIGN(const std::optional<Nanos> counted,
                         SimulateLonger(shorter, WithContention(shorter), {.distance = 1, .more = more}));
    ASSERT_TRUE(counted.has_value());
    EXPECT_EQ(*counted, played.makespan);
  }
}

// Where the number of periods is none of a recurrence's, the rest is played; and where the step is over before the
// state comes back, all of it.
TEST(SimulateLongerTest, PlaysPeriodsThatItCannotCount) {
  const Program shorter = MakePipeline(ThreeStages(7));
  for (const int64_t more : {0, 1, 2, 3, 4, 5, 100, 101}) {
    const Program longer = MakePipeline(ThreeStages(7 + more));
    ASSERT_OK_AND_ASSIGN(const SimulationResult played, Simulate(longer, WithContention(longer)));
    ASSERT_OK_AND_ASSIGN(const std::optional<Nanos> counted,
                         SimulateLonger(shorter, WithContention(shorter), {.distance = 1, .more = more}));
    ASSERT_TRUE(counted.has_value());
    EXPECT_EQ(*counted, played.makespan) << more << " more";
  }
}

// A stream that does nothing in the middle of a step begins as soon as what it waits for is there, also where that is
// in turns that are not played: a reduction behind the forward pass of one of the last micro-batches.
TEST(SimulateLongerTest, WhatBeginsInTheLastTurnsIsPlayed) {
  for (const size_t stage : {0, 1}) {
    for (const int64_t back : {1, 2, 3, 4}) {
      const auto make = [&](int64_t microbatches) {
        return WithLateReduction(MakePipeline({.stages = 3, .microbatches = microbatches, .layers = 2}), stage, back);
      };
      const auto prices = [](const Program& program) {
        return PricesByOrigin(program, {{"F", KernelPrice(Millis(1))},
                                        {"B", KernelPrice(Millis(2))},
                                        {"X", CommunicationPrice(Micros(500), 0, 0.5)},
                                        {"Z", CommunicationPrice(Millis(1000), 0.2, 0)}});
      };
      const Program shorter = make(7);
      for (const int64_t more : {0, 1, 2, 3, 30, 31, 32, 100}) {
        SCOPED_TRACE(absl::StrCat("stage ", stage, ", ", back, " back, ", more, " more"));
        const Program longer = make(7 + more);
        ASSERT_OK_AND_ASSIGN(const SimulationResult played, Simulate(longer, prices(longer)));
        ASSERT_OK_AND_ASSIGN(const std::optional<Nanos> counted,
                             SimulateLonger(shorter, prices(shorter), {.distance = 1, .more = more}));
        ASSERT_TRUE(counted.has_value());
        EXPECT_EQ(*counted, played.makespan);
      }
    }
  }
}

// Three micro-batches on three stages fill and empty the pipeline; gpipe does nothing twice in turn.
TEST(SimulateLongerTest, SaysSoWhereNothingRepeats) {
  const Program filling = MakePipeline(ThreeStages(3));
  ASSERT_OK_AND_ASSIGN(std::optional<Nanos> counted, SimulateLonger(filling, WithContention(filling), {1, 8}));
  EXPECT_FALSE(counted.has_value());
  PipelineOptions gpipe = ThreeStages(30);
  gpipe.schedule = Schedule::kGpipe;
  const Program program = MakePipeline(gpipe);
  ASSERT_OK_AND_ASSIGN(counted, SimulateLonger(program, WithContention(program), {1, 8}));
  EXPECT_FALSE(counted.has_value());
}

}  // namespace
}  // namespace meshwright
