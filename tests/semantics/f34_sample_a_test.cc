// F34: programs whose author splits them (S17.1 to S17.3): sample A as written and corrected, the toy table of S17.2
// and the manual row of S18.1. f34_collectives_test.cc has the collectives that such programs may name.
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "executor/spread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/job.h"
#include "tests/semantics/model_run.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSampleA[] = "models/configs/samples/seed_a.yaml";
constexpr char kSynchronized[] = "models/configs/samples/seed_a_synchronized.yaml";

std::vector<double> ValuesOf(const ModelRun& run, const std::string& parameter) {
  return run.result.parameters.at({parameter, 0}).values;
}

// --- the toy of S17.2: y = w x, x = 1 and 3, t = 0, w = 1, learning rate 0.01 ----------------------------------------

std::string Toy(absl::string_view parallel) {
  return absl::StrCat(R"(
name: toy
inputs: {x: {shape: [2, 1], init: {formula: {a: 2, b: 0, mod: 100, sub: -1, div: 1}}}, t: {shape: [2, 1], init: zeros}}
parameters: {w: {shape: [1, 1], init: ones}}
operators:
  - {name: own_x, op: RankSlice, inputs: [x]}
  - {name: own_t, op: RankSlice, inputs: [t]}
  - {name: y, op: MatMul, inputs: [own_x, w]}
  - {name: own_loss, op: MSELoss, inputs: [y, own_t]}
  - {name: sum, op: AllReduce, inputs: [own_loss]}
  - {name: loss, op: DivByGroupSize, inputs: [sum]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: 0.01}}}
parallel: {)",
                      parallel, "}\n");
}

TEST(SampleATest, TheTableOfTheToy) {
  const struct {
    const char* parallel;
    std::vector<double> w;  // after one step; one value where the ranks share it
    double loss;            // printed at the next
  } rows[] = {{"parallel_mode: stand_alone", {0.98, 0.82}, 3.506},
              {"parallel_mode: hybrid_parallel, gradients_mean: true", {0.9}, 4.05},
              {"parallel_mode: hybrid_parallel", {0.8}, 3.2},
              {"parallel_mode: data_parallel, gradients_mean: true", {0.9}, 4.05}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.parallel);
    ASSERT_OK_AND_ASSIGN(const ModelRun one, RunModel(Toy(row.parallel), 2, 1));
    const std::vector<double> w = ValuesOf(one, "w");
    ASSERT_EQ(w.size(), row.w.size());
    for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(w[i], row.w[i], 1e-12);
    ASSERT_OK_AND_ASSIGN(const ModelRun two, RunModel(Toy(row.parallel), 2, 2));
    ASSERT_EQ(two.result.rank_losses.size(), 2u);
    for (const std::vector<double>& losses : two.result.rank_losses) {
      EXPECT_NEAR(losses[0], 5, 1e-12);  // (1 + 9) / 2
      EXPECT_NEAR(losses[1], row.loss, 1e-12);
    }
  }
}

// S8.9: in hybrid_parallel a parameter that is marked stays each rank's own, as all do in stand_alone.
TEST(SampleATest, AMarkedParameterStaysTheRanksOwn) {
  const std::string marked = absl::StrReplaceAll(Toy("parallel_mode: hybrid_parallel, gradients_mean: true"),
                                                 {{"init: ones}", "init: ones, layerwise_parallel: true}"}});
  ASSERT_OK_AND_ASSIGN(const ModelRun run, RunModel(marked, 2, 1));
  const std::vector<double> w = ValuesOf(run, "w");
  ASSERT_EQ(w.size(), 2u);
  EXPECT_NEAR(w[0], 0.98, 1e-12);
  EXPECT_NEAR(w[1], 0.82, 1e-12);
}

// --- oracle B by hand (S18.1) ----------------------------------------------------------------------------------------

std::string OracleB(absl::string_view parallel) {
  return absl::StrCat(R"(
name: oracle_b_by_hand
inputs:
  x: {shape: [16, 32], init: {formula: {a: 7, b: 3, mod: 11, sub: 0, div: 11}}}
  label: {shape: [16, 16], init: {formula: {a: 5, b: 2, mod: 13, sub: 0, div: 13}}}
parameters:
  w: {shape: [32, 16], init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 20}}}
  w2: {shape: [16, 16], init: {formula: {a: 2, b: 3, mod: 5, sub: 2, div: 20}}}
operators:
  - {name: own_x, op: RankSlice, inputs: [x]}
  - {name: own_label, op: RankSlice, inputs: [label]}
  - {name: matmul, op: MatMul, inputs: [own_x, w]}
  - {name: relu, op: ReLU, inputs: [matmul]}
  - {name: matmul2, op: MatMul, inputs: [relu, w2]}
  - {name: own_loss, op: MSELoss, inputs: [matmul2, own_label]}
  - {name: sum, op: AllReduce, inputs: [own_loss]}
  - {name: loss, op: DivByGroupSize, inputs: [sum]}
training: {dtype: float64, optimizer: {momentum: {learning_rate: 0.4, momentum: 0.1}}}
parallel: {)",
                      parallel, "}\n");
}

TEST(SampleATest, TheManualRowOfTheOracle) {
  ASSERT_OK_AND_ASSIGN(const ModelRun run, RunModel(OracleB(""), 8, 6));
  const std::vector<double> want = {0.294782409, 0.290413174, 0.285377552, 0.279358914, 0.271593260, 0.260859788};
  for (const std::vector<double>& losses : run.result.rank_losses) {
    EXPECT_EQ(losses, run.result.rank_losses[0]) << "the printed loss is equal on all ranks, bit for bit";
    ASSERT_EQ(losses.size(), want.size());
    for (size_t step = 0; step < want.size(); ++step) EXPECT_NEAR(losses[step], want[step], 1e-9);
  }
  const std::vector<Spread> spreads = SpreadByRank(run.program, run.result);
  ASSERT_EQ(spreads.size(), 2u);
  EXPECT_EQ(spreads[1].parameter, "w2");
  EXPECT_NEAR(spreads[1].spread, 0.0731, 5e-5);
}

// The corrected scheme is one device with all 16 rows: the main row of S18.1.
TEST(SampleATest, WithMeanGradientsTheOracleIsThatOfOneDevice) {
  ASSERT_OK_AND_ASSIGN(const ModelRun run,
                       RunModel(OracleB("parallel_mode: hybrid_parallel, gradients_mean: true"), 8, 6));
  const std::vector<double> want = {0.294782409, 0.292738942, 0.290354212, 0.287596576, 0.284185660, 0.279603848};
  for (size_t step = 0; step < want.size(); ++step) EXPECT_NEAR(run.result.losses[step], want[step], 1e-9);
  EXPECT_THAT(SpreadByRank(run.program, run.result), IsEmpty());
}

// The spine: the collectives are instructions of the Program, one AllReduce of the loss and one back (S3.8), over all.
TEST(SampleATest, TheCollectivesAreInstructionsOfTheProgram) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanModel(OracleB(""), 8));
  ASSERT_OK_AND_ASSIGN(const Program program, ProgramOf(plan));
  int reductions = 0;
  for (const Block& block : program.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const Collective* const collective = std::get_if<Collective>(&instruction.work);
      if (collective == nullptr) continue;
      EXPECT_EQ(collective->kind, CollectiveKind::kAllReduce);
      EXPECT_EQ(program.mesh.SizeOf(collective->axes), 8);
      ++reductions;
    }
  }
  EXPECT_EQ(reductions, 2);
}

// --- rank slices (S17.1) ---------------------------------------------------------------------------------------------

// Rank r prints the mean of the numbers of its rows.
std::string RowNumbers() {
  return R"(
name: rows
inputs: {x: {shape: [32, 1], init: {formula: {a: 1, b: 0, mod: 100}}}}
parameters: {w: {shape: [1, 1], init: ones}}
operators:
  - {name: own, op: RankSlice, inputs: [x]}
  - {name: y, op: MatMul, inputs: [own, w]}
  - {name: loss, op: ReduceMean, inputs: [y]}
training: {dtype: float64}
)";
}

TEST(SampleATest, RanksTakeTheirRows) {
  // q = 4: rank 3 has rows 12 to 15, mean 13.5.
  ASSERT_OK_AND_ASSIGN(const ModelRun eight, RunModel(RowNumbers(), 8, 1));
  for (size_t r = 0; r < 8; ++r) EXPECT_EQ(eight.result.rank_losses[r][0], 4.0 * static_cast<double>(r) + 1.5);
  EXPECT_THAT(eight.notices, IsEmpty());
  // q = 6 on 5 ranks: rank 4 has rows 24 to 29, mean 26.5; 30 and 31 are dropped, with a warning.
  ASSERT_OK_AND_ASSIGN(const ModelRun five, RunModel(RowNumbers(), 5, 1));
  EXPECT_NEAR(five.result.rank_losses[4][0], 26.5, 1e-12);
  EXPECT_THAT(five.notices, ElementsAre(HasSubstr("32 rows on 5 ranks: each gets 6, rows 30 to 31 are dropped")));
  const absl::Status none = RunModel(RowNumbers(), 33, 1).status();
  EXPECT_EQ(KindOf(none), "E-VALUE");
  EXPECT_THAT(std::string(none.message()), HasSubstr("a batch of 32 rows on 33 ranks leaves none for each"));
}

// S12.4 for these programs too: losses and gradients of micro-batches add up. Each has 4 rows, one for each of 4 ranks.
TEST(SampleATest, MicroBatchesAddUp) {
  const auto with = [](absl::string_view parallel) { return OracleB(parallel); };
  ASSERT_OK_AND_ASSIGN(
      const ModelRun run,
      RunModel(with("parallel_mode: hybrid_parallel, gradients_mean: true, grad_accumulation_step: 4"), 4, 3));
  // The pipeline row of S18.1, M = 4: as mean losses, whose gradients are those of the sum.
  const double sums[] = {0.294782409, 0.286509286, 0.270991507};
  for (size_t step = 0; step < 3; ++step) EXPECT_NEAR(run.result.losses[step], 4 * sums[step], 4e-9);
}

// The author splits the program, so no mode that splits it for him.
TEST(SampleATest, NoSearchBesideTheAuthorsSplit) {
  for (const char* mode : {"semi_auto_parallel", "auto_parallel"}) {
    EXPECT_EQ(KindOf(PlanModel(OracleB(absl::StrCat("parallel_mode: ", mode)), 8).status()), "E-STATE") << mode;
  }
}

// --- the sample itself, as a user runs it ----------------------------------------------------------------------------

std::vector<std::string> LossesIn(const std::string& text) {
  std::vector<std::string> losses;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t at = line.find(", loss is ");
    if (at != absl::string_view::npos) losses.emplace_back(line.substr(at + 10));
  }
  return losses;
}

TEST(SampleATest, EightProcessesPrintOneLossAndAreWarned) {
  const JobOutput job = RunOverSockets(8, {"tools/run", kSampleA, "--steps=10", "--all_ranks"});
  ASSERT_OK(job.status);
  const std::vector<std::string> own = LossesIn(job.ranks[7]);
  ASSERT_EQ(own.size(), 10u);
  for (size_t rank = 1; rank < 8; ++rank) EXPECT_EQ(LossesIn(job.ranks[rank]), own);
  EXPECT_LT(std::stod(own.back()), std::stod(own.front()));
  EXPECT_THAT(job.ranks[0], HasSubstr("warning: after 10 steps the ranks' weights differ: layer1.weight by up to "));
  // The same under mpirun.
  if (!HasMpirun()) GTEST_SKIP() << "needs mpirun, which is not installed";
  const JobOutput mpi = RunUnderMpirun(8, {"tools/run", kSampleA, "--steps=10"});
  ASSERT_OK(mpi.status);
  EXPECT_EQ(LossesIn(mpi.ranks[0]), own);
}

TEST(SampleATest, TheCorrectedSampleIsOneDevice) {
  const std::string text = ReadAll(kSynchronized);
  ASSERT_OK_AND_ASSIGN(const ModelRun eight, RunModel(text, 8, 10));
  ASSERT_OK_AND_ASSIGN(const ModelRun one, RunModel(text, 1, 10));
  ASSERT_EQ(eight.result.losses.size(), 10u);
  for (size_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(eight.result.losses[step], one.result.losses[step], 1e-5 * one.result.losses[step]);  // S0.4, fp32
  }
  EXPECT_FALSE(HasSpread(eight.program));
}

}  // namespace
}  // namespace meshwright
