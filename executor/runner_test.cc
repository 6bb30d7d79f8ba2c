#include "executor/runner.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "executor/host/run_on_threads.h"
#include "executor/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using ::testing::SizeIs;

absl::StatusOr<RunResult> RunSteps(const Program& program, int64_t steps) {
  return RunOnThreads(program, {.steps = steps, .keep_parameters = true}, SyntheticData(1));
}

absl::StatusOr<RunResult> RunText(absl::string_view text, int64_t steps = 1) {
  return RunSteps(ProgramFromText(text), steps);
}

constexpr double kPrinted = 6e-10;  // the reference prints nine digits

// ---- the oracles of S18.1 ------------------------------------------------------------------------------------------

auto OracleLosses() {
  return ElementsAre(DoubleNear(0.294782409, kPrinted), DoubleNear(0.292738942, kPrinted),
                     DoubleNear(0.290354212, kPrinted), DoubleNear(0.287596576, kPrinted),
                     DoubleNear(0.284185660, kPrinted), DoubleNear(0.279603848, kPrinted));
}

TEST(OracleTest, OneRankGivesItsNumbers) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(kOracleOneRank, 6));
  EXPECT_NEAR(result.losses[0], 0.2947824088388052, 1e-15);
  EXPECT_THAT(result.losses, OracleLosses());
  EXPECT_NEAR(result.parameters.at({"w", 0}).values[0], -0.1505709677, 6e-11);
  EXPECT_NEAR(result.parameters.at({"w2", 0}).values[0], -0.0899499746, 6e-11);
}

// S18.1: losses differ by less than 2e-8; storing one as a float32 near 0.29 adds at most half of 2^-25.
TEST(OracleTest, SinglePrecisionStaysWithinItsBound) {
  ASSERT_OK_AND_ASSIGN(const RunResult exact, RunSteps(ProgramFromText(kOracleOneRank), 6));
  ASSERT_OK_AND_ASSIGN(const RunResult single, RunSteps(ProgramFromText(kOracleOneRank, DType::kFloat32), 6));
  for (size_t i = 0; i < exact.losses.size(); ++i) EXPECT_NEAR(single.losses[i], exact.losses[i], 2e-8 + 0x1p-26);
}

void ExpectSameTraining(const RunResult& a, const RunResult& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-15);
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (const auto& [key, whole] : a.parameters) {
    EXPECT_THAT(whole.values, Pointwise(DoubleNear(1e-15), b.parameters.at(key).values)) << key.first;
  }
}

TEST(OracleTest, MeanGradientsOfEightRanksTrainAsOneRank) {
  ASSERT_OK_AND_ASSIGN(const RunResult one, RunText(kOracleOneRank, 6));
  ASSERT_OK_AND_ASSIGN(const RunResult eight, RunText(absl::Substitute(kOracleDataParallel, 0.125), 6));
  ExpectSameTraining(eight, one);
  for (const std::vector<double>& losses : eight.rank_losses) EXPECT_EQ(losses, eight.losses);
}

// "data_parallel, 8 ranks, gradients_mean False (gradient x 8)"
TEST(OracleTest, SummedGradientsOfEightRanksGiveTheVariantsLosses) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(absl::Substitute(kOracleDataParallel, 1), 3));
  EXPECT_THAT(result.losses, ElementsAre(DoubleNear(0.294782409, kPrinted), DoubleNear(0.277843127, kPrinted),
                                         DoubleNear(0.211464475, kPrinted)));
}

TEST(OracleTest, ASplitContractionTrainsAsOneRank) {
  ASSERT_OK_AND_ASSIGN(const RunResult one, RunText(kOracleOneRank, 6));
  ASSERT_OK_AND_ASSIGN(const RunResult four, RunText(kOracleTensorParallel, 6));
  ExpectSameTraining(four, one);
}

// "pipeline, M = 4": reported sums are 4 times 0.294782409, 0.286509286, 0.270991507; the first one's micro losses sum
// to 1.179129635. The last stage alone has a loss (S12.5).
TEST(OracleTest, APipelineReportsTheSumOfItsMicroBatches) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(kOraclePipeline, 3));
  EXPECT_NEAR(result.losses[0], 1.179129635, kPrinted);
  EXPECT_THAT(result.losses,
              ElementsAre(DoubleNear(4 * 0.294782409, 4 * kPrinted), DoubleNear(4 * 0.286509286, 4 * kPrinted),
                          DoubleNear(4 * 0.270991507, 4 * kPrinted)));
  EXPECT_THAT(result.rank_losses, ElementsAre(IsEmpty(), IsEmpty(), result.losses, result.losses));
}

TEST(OracleTest, RunsAreRepeatable) {
  ASSERT_OK_AND_ASSIGN(const RunResult a, RunText(absl::Substitute(kOracleDataParallel, 0.125), 3));
  ASSERT_OK_AND_ASSIGN(const RunResult b, RunText(absl::Substitute(kOracleDataParallel, 0.125), 3));
  EXPECT_EQ(a.losses, b.losses);
  for (const auto& [key, whole] : a.parameters) EXPECT_EQ(whole.values, b.parameters.at(key).values);
}

// ---- redistribution ------------------------------------------------------------------------------------------------

// Feeds x, element (i, j) = 10 i + j, in layout `from`, runs `work` to layout `to`, and returns the whole of what came
// out: pieces put where `to` says.
absl::StatusOr<std::vector<double>> Redistribute(absl::string_view mesh, absl::string_view from, absl::string_view work,
                                                 absl::string_view to) {
  const std::string text = absl::Substitute(R"(program redistribution mesh $0
class all
  buffer x float64 (4, 8) $1 input init formula a=10 b=1 modulus=1000
  buffer y float64 (4, 8) $3 parameter init constant value=-1
  block b forward
    compute Feed "-> i j" writes x
    compute $2 reads x writes y @moved
  slot b mb 0 layer 0
)",
                                            mesh, from, work, to);
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult result, RunText(text));
  return result.parameters.at({"y", 0}).values;
}

std::vector<double> Ramp() {
  std::vector<double> values;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 8; ++j) values.push_back(10 * i + j);
  }
  return values;
}

// Whatever moved, every piece must be where its layout says.
TEST(RedistributionTest, EveryKindMovesPiecesToWhereTheirLayoutSays) {
  const struct {
    const char *mesh, *from, *work, *to;
  } cases[] = {
      {"x1=4", "{x1 | -}", "all_gather (x1) dim 0 activation", "{- | -}"},
      {"x1=4", "{- | x1}", "all_gather (x1) dim 1 activation", "{- | -}"},
      {"x2=2 x1=2", "{x2.x1 | -}", "all_gather (x1) dim 0 activation", "{x2 | -}"},
      {"x2=2 x1=2", "{x1 | x2}", "all_gather (x2) dim 1 activation", "{x1 | -}"},
      {"x1=4", "{x1 | -}", "all_to_all (x1) dim 0 to 1 activation", "{- | x1}"},
      {"x2=2 x1=2", "{x2.x1 | -}", "all_to_all (x1) dim 0 to 1 activation", "{x2 | x1}"},
      {"x2=2 x1=2", "{x1 | x2}", "all_to_all (x2) dim 1 to 0 activation", "{x1.x2 | -}"},
      {"x1=4", "{- | -}", "slice", "{- | x1}"},
      {"x2=2 x1=2", "{x2 | -}", "slice", "{x2.x1 | -}"},
      {"x2=2 x1=2", "{x2 | -}", "slice", "{x2 | x1}"},
      {"x2=2 x1=2", "{x2 | x1}", "permute", "{x1 | x2}"},
      {"x2=2 x1=2", "{x2.x1 | -}", "permute", "{x1.x2 | -}"},
      {"x2=2 x1=2", "{x2 | -}", "permute", "{x1 | -}"},
      {"x1=4", "{- | -}", "broadcast (x1) activation", "{- | -}"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.from, " ", c.work, " ", c.to));
    ASSERT_OK_AND_ASSIGN(const std::vector<double> values, Redistribute(c.mesh, c.from, c.work, c.to));
    EXPECT_EQ(values, Ramp());
  }
}

// Both tensors of one call: 8 x 2 and 2 x 8, whose partial sums over 4 ranks are 4 times the constant; the first is
// scattered over its rows, so that rows of different tensors must not mix.
TEST(RedistributionTest, AFusedReduceScatterKeepsItsTensorsApart) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(R"(program fused mesh x1=4
class all
  buffer a float64 (8, 2) {- | -} partial sum x1 gradient
  buffer b float64 (4, 3) {- | -} partial sum x1 gradient
  buffer ya float64 (8, 2) {x1 | -} parameter
  buffer yb float64 (4, 3) {x1 | -} parameter
  block b forward
    compute Fill "-> i j" scale=2 writes a
    compute Fill "-> i j" scale=5 writes b
    compute reduce_scatter sum (x1) dim 0 gradient reads a b writes ya yb
  slot b mb 0 layer 0
)"));
  EXPECT_THAT(result.parameters.at({"ya", 0}).values, AllOf(SizeIs(16), Each(8)));
  EXPECT_THAT(result.parameters.at({"yb", 0}).values, AllOf(SizeIs(12), Each(20)));
}

// A product whose contracted dim is split gives partial sums; scattered along its columns they are the whole product's.
TEST(RedistributionTest, ReduceScatterAlongTheSecondDim) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(R"(program scatter mesh x1=4
class all
  buffer x float64 (2, 8) {- | x1} input init formula a=10 b=1 modulus=1000
  buffer ones float64 (8, 4) {x1 | -} input init constant value=1
  buffer p float64 (2, 4) {- | -} partial sum x1 temporary
  buffer y float64 (2, 4) {- | x1} parameter
  block b forward
    compute Feed "-> i k" writes x
    compute Feed "-> k j" writes ones
    compute MatMul "i k, k j -> i j" reads x ones writes p
    compute reduce_scatter sum (x1) dim 1 activation reads p writes y
  slot b mb 0 layer 0
)"));
  // Row sums: 0 + ... + 7 = 28 and 28 + 80 = 108.
  EXPECT_THAT(result.parameters.at({"y", 0}).values, ElementsAre(28, 28, 28, 28, 108, 108, 108, 108));
}

// ---- slots, layers, micro-batches ----------------------------------------------------------------------------------

// Upwards y of layer l + 1 is twice that of layer l, from 1; downwards g of layer l is ten times that of l + 1, from 5.
TEST(SlotTest, LayersCountUpAndDownWithShifts) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(R"(program layers mesh x1=1
class all
  buffer y float64 (1) {-} activation layers 4
  buffer up float64 (1) {-} parameter layers 3
  buffer down float64 (1) {-} parameter layers 3
  buffer g float64 (1) {-} activation layers 4
  block start forward
    compute Fill "-> d0" scale=1 writes y
    compute Fill "-> d0" scale=5 writes g+3
  block forward forward
    compute Scale scale=2 reads y writes y+1
    compute Scale scale=1 reads y+1 writes up
  block backward backward
    compute Scale scale=10 reads g+1 writes g
    compute Scale scale=1 reads g writes down
  slot start mb 0 layer 0
  slot forward mb 0 layer 0 x3 up
  slot backward mb 0 layer 2 x3 down
)"));
  const auto value = [&](const char* name, int64_t layer) { return result.parameters.at({name, layer}).values[0]; };
  EXPECT_EQ(value("up", 0), 2);
  EXPECT_EQ(value("up", 1), 4);
  EXPECT_EQ(value("up", 2), 8);
  EXPECT_EQ(value("down", 2), 50);
  EXPECT_EQ(value("down", 1), 500);
  EXPECT_EQ(value("down", 0), 5000);
}

// Micro-batch i of 3 gets rows 2i and 2i + 1 of six (S12.3); a rank its half of them.
TEST(SlotTest, MicroBatchesAreRowsOfTheStepsBatch) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunText(R"(program rows mesh x1=2 microbatches 3
class all
  buffer x float64 (2, 1) {x1 | -} input init formula a=1 b=0 modulus=100
  buffer y float64 (2, 1) {x1 | -} parameter layers 3
  block b forward
    compute Feed "-> i j" writes x
    compute Scale scale=1 reads x writes y
  slot b mb 0 layer 0
  slot b mb 1 layer 1
  slot b mb 2 layer 2
)"));
  EXPECT_THAT(result.parameters.at({"y", 0}).values, ElementsAre(0, 1));
  EXPECT_THAT(result.parameters.at({"y", 1}).values, ElementsAre(2, 3));
  EXPECT_THAT(result.parameters.at({"y", 2}).values, ElementsAre(4, 5));
}

// The same six rows as two batches of three, in which micro-batch i has row i of each: read by ranks that hold a row of
// it, and by one that holds both.
TEST(SlotTest, MicroBatchesArePartsOfEachBatch) {
  for (const char* layout : {"{x1 | -}", "{- | -}"}) {
    RunOptions options;
    options.trace = false;
    options.keep_parameters = true;
    options.batches = 2;
    const Program program = ProgramFromText(absl::StrReplaceAll(R"(program rows mesh x1=2 microbatches 3
class all
  buffer x float64 (2, 1) LAYOUT input init formula a=1 b=0 modulus=100
  buffer y float64 (2, 1) LAYOUT parameter layers 3
  block b forward
    compute Feed "-> i j" writes x
    compute Scale scale=1 reads x writes y
  slot b mb 0 layer 0
  slot b mb 1 layer 1
  slot b mb 2 layer 2
)",
                                                                {{"LAYOUT", layout}}));
    ASSERT_OK_AND_ASSIGN(const RunResult result, RunOnThreads(program, options, SyntheticData(1)));
    EXPECT_THAT(result.parameters.at({"y", 0}).values, ElementsAre(0, 3));
    EXPECT_THAT(result.parameters.at({"y", 1}).values, ElementsAre(1, 4));
    EXPECT_THAT(result.parameters.at({"y", 2}).values, ElementsAre(2, 5));
  }
}

// The same parameter whole, split, as a master, and as layers 2 and 3 of the model on another stage.
TEST(SlotTest, ParametersStartAlikeHoweverTheyLie) {
  constexpr char kText[] = R"(program start mesh pp=2 x1=4
class "stage 0"
  buffer w float64 (8, 4) {- | -} parameter layers 4 init normal value=1
  block none forward
  slot none mb 0 layer 0
class "stage 1"
  buffer w@1 float64 (8, 4) {x1 | -} $0 layers 2 first_layer 2 init normal value=1
  block none forward
  slot none mb 0 layer 0
)";
  for (const char* role : {"parameter", "master"}) {
    ASSERT_OK_AND_ASSIGN(const RunResult both, RunText(absl::Substitute(kText, role)));
    ASSERT_OK_AND_ASSIGN(const RunResult whole,
                         RunText(absl::StrReplaceAll(absl::Substitute(kText, role), {{"w@1", "other"}})));
    ASSERT_THAT(both.parameters, SizeIs(4));
    for (int64_t layer = 0; layer < 4; ++layer) {
      EXPECT_EQ(both.parameters.at({"w", layer}).values, whole.parameters.at({"w", layer}).values);
    }
    EXPECT_NE(both.parameters.at({"w", 0}).values, both.parameters.at({"w", 1}).values);
  }
}

// ---- what is reported ----------------------------------------------------------------------------------------------

TEST(ReportTest, TheArenaIsThePlannedOne) {
  Program program = ProgramFromText(absl::Substitute(kOracleDataParallel, 1));
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunSteps(program, 1));
  EXPECT_THAT(result.arenas, AllOf(SizeIs(8), Each(program.classes[0].arena)));
  program.classes[0].arena = program.classes[0].arena - Bytes(1);
  EXPECT_THAT(RunSteps(program, 1), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ReportTest, EveryInstructionOfTheLastStepIsMeasured) {
  const Program program = ProgramFromText(kOraclePipeline);
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunSteps(program, 2));
  EXPECT_EQ(result.trace.source, "measured");
  for (int64_t rank = 0; rank < 4; ++rank) {
    const RankClass& c = program.classes[rank / 2];
    int64_t count = 0;
    const Span* before = nullptr;
    for (const Span& span : result.trace.spans) {
      if (span.rank != rank) continue;
      ++count;
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, result.trace.makespan);
      const Instruction& instruction = c.blocks[c.slots[span.slot].block.index()].instructions[span.instruction];
      EXPECT_EQ(span.stream, instruction.stream);
      if (before != nullptr && before->stream == span.stream) {
        EXPECT_LE(before->end, span.begin);
      }
      before = &span;
    }
    EXPECT_EQ(count, NumIssued(c));
  }
}

TEST(ReportTest, LossesAreToldAsTheyCome) {
  std::vector<std::pair<int64_t, double>> told;
  RunOptions options = {.steps = 3, .trace = false};
  options.on_loss = [&](int64_t step, double loss, bool first) {
    if (first) told.emplace_back(step, loss);
  };
  ASSERT_OK_AND_ASSIGN(const RunResult result,
                       RunOnThreads(ProgramFromText(kOraclePipeline), options, SyntheticData(1)));
  ASSERT_THAT(told, SizeIs(3));
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(told[step], std::pair(step, result.losses[step]));
  EXPECT_THAT(result.trace.spans, IsEmpty());
}

// ---- failures ------------------------------------------------------------------------------------------------------

// Rank 7 alone asks for a row that the table lacks; the others wait for it in the all_reduce.
TEST(FailureTest, OneRankStopsAllAndItsStatusIsTheRuns) {
  EXPECT_THAT(RunText(kOneRankFails),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rank 7 (all), slot 0 (b, layer 0, micro-batch 0), instruction 2 (lookup): Gather: row 7 of a "
                       "table that has 7 rows"));
}

TEST(FailureTest, ALossThatIsNoNumberStopsTheRun) {
  const std::string text = absl::StrReplaceAll(kOracleOneRank, {{"learning_rate=0.4", "learning_rate=1e200"}});
  EXPECT_THAT(RunText(text, 6), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the loss is")));
}

TEST(FailureTest, ProgramsThatBreakARuleAreNotRun) {
  const std::string text = absl::StrReplaceAll(kOracleOneRank, {{"compute Feed \"-> m n\" writes y\n", ""}});
  EXPECT_THAT(RunText(text), StatusIs(absl::StatusCode::kInvalidArgument, "rule 9"));
}

TEST(FailureTest, TypesThatTheHostDoesNotStoreAreRefused) {
  EXPECT_THAT(RunSteps(ProgramFromText(kOracleOneRank, DType::kFloat8), 1),
              StatusIs(absl::StatusCode::kUnimplemented, "buffer \"x\" is float8"));
}

}  // namespace
}  // namespace meshwright
