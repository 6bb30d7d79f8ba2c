// Which communicators a program needs, in which order (S2.5), and who is to blame when one does not end.
#include "executor/cuda/communicator_plan.h"

#include <string>
#include <vector>

#include "executor/cuda/stall.h"
#include "executor/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Texts(const CommunicatorPlan& plan) {
  std::vector<std::string> texts;
  for (const PlannedCommunicator& c : plan.communicators) texts.push_back(Describe(c));
  return texts;
}

// 2 stages of 2 x 2 ranks. First uses: over x2 on stream compute, over x1 on stream comm, then the transfers. Groups of
// one use have no rank in common, so each use is one round.
constexpr char kProgram[] = R"(program plan mesh pp=2 x1=2 x2=2
class "stage 0"
  buffer x float64 (4) {-} partial sum x2 activation
  buffer y float64 (4) {-} activation
  buffer g float64 (4) {-} partial sum x1 gradient
  buffer h float64 (4) {-} gradient
  block b forward
    compute Fill "-> i" scale=1 writes x
    compute Fill "-> i" scale=1 writes g
    compute all_reduce sum (x2) activation reads x writes y
    comm all_reduce sum (x1) gradient reads g writes h
    send to +1 activation reads y
  slot b mb 0 layer 0
class "stage 1"
  buffer y float64 (4) {-} activation
  block b forward
    receive from -1 activation writes y
  slot b mb 0 layer 0
)";

TEST(CommunicatorPlanTest, FirstUseThenRankList) {
  ASSERT_OK_AND_ASSIGN(const CommunicatorPlan plan, PlanCommunicators(ProgramFromText(kProgram)));
  EXPECT_THAT(Texts(plan),
              ElementsAre("over ranks 0-1 on stream compute", "over ranks 2-3 on stream compute",
                          "over ranks 0-2 on stream comm", "over ranks 1-3 on stream comm", "from rank 0 to rank 4",
                          "from rank 1 to rank 5", "from rank 2 to rank 6", "from rank 3 to rank 7"));
  EXPECT_EQ(plan.rounds, 3);
  EXPECT_EQ(plan.Find(CommUse::kCollective, Stream::kComm, {1, 3}), 3);
  EXPECT_EQ(plan.Find(CommUse::kCollective, Stream::kCompute, {1, 3}), -1);
  EXPECT_EQ(plan.communicators[6].PositionOf(6), 1);
  EXPECT_EQ(plan.communicators[6].PositionOf(5), -1);
}

TEST(CommunicatorPlanTest, OneRankNeedsNone) {
  ASSERT_OK_AND_ASSIGN(const CommunicatorPlan plan, PlanCommunicators(ProgramFromText(kOracleOneRank)));
  EXPECT_THAT(plan.communicators, IsEmpty());
}

// ---- stalls --------------------------------------------------------------------------------------------------------

StallReport In(const char* text, int64_t communicator, int64_t ordinal, bool started) {
  StallReport report;
  report.SetText(text);
  report.num_open = 1;
  report.open[0] = {communicator, ordinal, started};
  return report;
}

CommunicatorPlan PlanOfProgram() {
  absl::StatusOr<CommunicatorPlan> plan = PlanCommunicators(ProgramFromText(kProgram));
  return *std::move(plan);
}

TEST(JudgeTest, ARankInAKernelIsToBlameNotThoseWhoWaitForIt) {
  std::vector<std::optional<StallReport>> reports(8);
  for (int r = 0; r < 8; ++r) reports[r] = In("instruction 2 (all_reduce)", r < 2 ? 0 : 1, 0, true);
  for (int r = 4; r < 8; ++r) {
    reports[r] = StallReport();
    reports[r]->finished = true;
  }
  reports[3] = In("instruction 0 (fill)", 1, 0, false);
  reports[3]->busy = true;
  const Verdict verdict = Judge(PlanOfProgram(), reports);
  EXPECT_THAT(verdict.culprits, ElementsAre(3));
  EXPECT_EQ(verdict.text, "rank 3 does not finish step 1, instruction 0 (fill)");
}

// Between two instructions, as while the host prepares a step.
TEST(JudgeTest, WhoWaitsForNobodyIsNamedByTheStep) {
  const std::vector<std::optional<StallReport>> reports(8, StallReport());
  EXPECT_EQ(Judge(PlanOfProgram(), reports).text, "rank 0, 1, 2, 3, 4, 5, 6, 7 is in step 1");
}

TEST(JudgeTest, SilenceWeighsMore) {
  std::vector<std::optional<StallReport>> reports(8, In("instruction 2 (all_reduce)", 0, 0, true));
  reports[1]->busy = true;
  reports[6].reset();
  EXPECT_THAT(Judge(PlanOfProgram(), reports).culprits, ElementsAre(6));
}

// Ranks 0 and 1 wait in two collectives that the other has not reached: nobody is in a kernel, all are named.
TEST(JudgeTest, WhoWaitsForWhom) {
  std::vector<std::optional<StallReport>> reports(8);
  for (auto& report : reports) {
    report = StallReport();
    report->finished = true;
  }
  reports[0] = In("instruction 2 (all_reduce)", 0, 5, true);
  reports[1] = In("instruction 3 (all_reduce)", 0, 4, true);
  reports[1]->open[0] = {3, 0, true};
  reports[1]->open[1] = {0, 5, false};
  reports[1]->num_open = 2;
  reports[3] = In("instruction 1 (send)", 3, 0, true);
  const Verdict verdict = Judge(PlanOfProgram(), reports);
  EXPECT_THAT(verdict.culprits, IsEmpty());
  EXPECT_THAT(verdict.text, HasSubstr("rank 0 is in step 1, instruction 2 (all_reduce), and waits for rank 1"));
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 is in step 1, instruction 3 (all_reduce), which all its members have"));
}

}  // namespace
}  // namespace meshwright::cuda
