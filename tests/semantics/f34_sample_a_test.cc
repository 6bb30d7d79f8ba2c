// F34: programs whose author splits them (S17.1 to S17.3): sample A as written and corrected, the toy table of S17.2,
// the manual row of S18.1, and each collective of a model file against executor/manual, forward and backward.
//
// Longer than 600 lines because its cases are one list of programs on the same models, with the numbers they must give.
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "executor/cuda/testing/run_on_stand_ins.h"
#include "executor/host/run_on_threads.h"
#include "executor/manual/collectives.h"
#include "executor/manual/gradients.h"
#include "executor/manual/launch.h"
#include "executor/spread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/job.h"
#include "tests/semantics/model_run.h"

namespace meshwright {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

// --- each collective of a model file against executor/manual ---------------------------------------------------------

constexpr char kGroups[] = "groups: {pairs: [[0, 1], [2, 3]], columns: [[0, 2], [1, 3]]}";

// y = op(w x) with x = this rank's rows and the loss mean(y^2), 4 ranks with their own w; one step of SGD with rate 1.
// x on rank r is (4, 4) with element (i, j) = ((7 (4 r + i) + 3 j) mod 11) / 11.
std::string OneCollective(const std::string& op) {
  return absl::StrCat(R"(
name: collective
)",
                      kGroups, R"(
inputs: {x: {shape: [16, 4], init: {formula: {a: 7, b: 3, mod: 11, sub: 0, div: 11}}}}
parameters: {w: {shape: [4, 4], init: {formula: {a: 2, b: 3, mod: 5, sub: 2, div: 5}}}}
operators:
  - {name: own, op: RankSlice, inputs: [x]}
  - {name: z, op: Mul, inputs: [own, w]}
  - {name: y, )",
                      op, R"(, inputs: [z]}
  - {name: squares, op: Mul, inputs: [y, y]}
  - {name: loss, op: ReduceMean, inputs: [squares]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: 1}}}
)");
}

struct Expected {
  double loss;
  std::vector<double> w;
};

// One operator of a model file and what it is in functions: of a group of `ranks`, root and sends by place in it.
struct Together {
  const char *name, *file;
  std::vector<int64_t> send_ranks = {};
};

// The partners in the job of the rank at place `own` of `ranks`.
manual::NeighborExchangeSpec Neighbors(const std::vector<int64_t>& ranks, size_t own,
                                       const std::vector<int64_t>& send_ranks) {
  manual::NeighborExchangeSpec spec;
  spec.recv_type = DType::kFloat64;
  if (send_ranks[own] >= 0) spec.send_ranks = {ranks[static_cast<size_t>(send_ranks[own])]};
  for (size_t p = 0; p < send_ranks.size(); ++p) {
    if (send_ranks[p] == static_cast<int64_t>(own)) spec.recv_ranks = {ranks[p]};
  }
  spec.send_shapes.assign(spec.send_ranks.size(), {4, 4});
  spec.recv_shapes.assign(spec.recv_ranks.size(), {4, 4});
  return spec;
}

// The same with the functions of executor/manual.
absl::StatusOr<Expected> ByFunctions(manual::Context& context, const Together& c, const std::vector<int64_t>& ranks) {
  using namespace manual;  // its names only
  MESHWRIGHT_RETURN_IF_ERROR(context.Init());
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, context.GetRank());
  const std::string group = absl::StrCat("group of ", ranks[0]), op = c.name;
  MESHWRIGHT_RETURN_IF_ERROR(context.CreateGroup(group, ranks));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t place, context.GetRank(group));
  std::vector<double> x(16), w(16), z(16);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      x[4 * i + j] = static_cast<double>((7 * (4 * rank + i) + 3 * j) % 11) / 11;
      w[4 * i + j] = static_cast<double>((2 * i + 3 * j) % 5 - 2) / 5;
      z[4 * i + j] = x[4 * i + j] * w[4 * i + j];
    }
  }
  const manual::Tensor in = manual::Tensor::Of<double>({4, 4}, z);
  const AlltoAllSpec spec{static_cast<int64_t>(ranks.size()), 1, 0};
  const int64_t root = ranks.back();
  manual::Tensor y = in;
  const NeighborExchangeSpec neighbors =
      c.send_ranks.empty() ? NeighborExchangeSpec() : Neighbors(ranks, static_cast<size_t>(place), c.send_ranks);
  const auto one = [](absl::StatusOr<std::vector<manual::Tensor>> ys) -> absl::StatusOr<manual::Tensor> {
    if (!ys.ok()) return ys.status();
    return ys->empty() ? manual::Tensor::Zeros({4, 4}, DType::kFloat64) : (*ys)[0];  // who gets nothing has zeros
  };
  const auto given = [](bool any, const manual::Tensor& tensor) {
    return any ? std::vector<manual::Tensor>{tensor} : std::vector<manual::Tensor>();
  };
  const bool sends = !neighbors.send_ranks.empty(), receives = !neighbors.recv_ranks.empty();
  const auto forward = [&]() -> absl::StatusOr<manual::Tensor> {
    if (op == "AllGather") return AllGather(context, in, group);
    if (op == "ReduceScatter") return ReduceScatter(context, in, "sum", group);
    if (op == "AlltoAll") return AlltoAll(context, in, spec, group);
    if (op == "Broadcast") return one(Broadcast(context, {in}, root, group));
    if (op == "NeighborExchange") return one(NeighborExchange(context, given(sends, in), neighbors, group));
    return AllReduce(context, in, op, group);
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(y, forward());
  manual::Tensor dy = y;
  const double n = static_cast<double>(dy.As<double>().size());
  double loss = 0;
  for (double& value : dy.As<double>()) {
    loss += value * value / n;
    value *= 2 / n;
  }
  const auto backward = [&]() -> absl::StatusOr<manual::Tensor> {
    if (op == "AllGather") return AllGatherGrad(context, dy, group);
    if (op == "ReduceScatter") return ReduceScatterGrad(context, dy, "sum", group);
    if (op == "AlltoAll") return AlltoAllGrad(context, dy, spec, group);
    if (op == "Broadcast") return one(BroadcastGrad(context, {dy}, root, group));
    if (op == "NeighborExchange") return one(NeighborExchangeGrad(context, given(receives, dy), neighbors, group));
    return AllReduceGrad(context, in, y, dy, op, group);
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const manual::Tensor dz, backward());
  for (size_t e = 0; e < 16; ++e) w[e] -= dz.As<double>()[e] * x[e];
  return Expected{loss, w};
}

// A model file of 4 ranks and what each of them computes with functions.
void ExpectOnFourRanks(const std::string& text,
                       const std::function<absl::StatusOr<Expected>(manual::Context&)>& by_functions) {
  ASSERT_OK_AND_ASSIGN(const ModelRun run, RunModel(text, 4, 1));
  std::vector<Expected> expected(4);
  ASSERT_OK(manual::LaunchOnThreads(4, {}, [&](manual::Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    MESHWRIGHT_ASSIGN_OR_RETURN(expected[context.GetRank().value()], by_functions(context));
    return absl::OkStatus();
  }));
  const std::vector<double> w = ValuesOf(run, "w");
  ASSERT_EQ(w.size(), 64u);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(run.result.rank_losses[rank][0], expected[rank].loss, 1e-12);
    for (size_t e = 0; e < 16; ++e) EXPECT_NEAR(w[16 * rank + e], expected[rank].w[e], 1e-12) << rank << " " << e;
  }
}

// Of 4 ranks: all of them, in a file without groups and in one with them (where ranks are counted in two dims), pairs
// beside each other, and pairs across.
TEST(SampleATest, CollectivesOfAModelFileAreThoseOfTheFunctions) {
  const std::vector<std::pair<std::string, std::vector<std::vector<int64_t>>>> groupings = {
      {"no groups", {{0, 1, 2, 3}}}, {"", {{0, 1, 2, 3}}}, {"pairs", {{0, 1}, {2, 3}}}, {"columns", {{0, 2}, {1, 3}}}};
  for (const auto& [grouping, groups] : groupings) {
    const size_t size = groups[0].size();
    const std::string count = absl::StrCat("op: AlltoAll, split_dim: 1, concat_dim: 0, split_count: ", size);
    const std::string root = absl::StrCat("op: Broadcast, root: ", size - 1);
    const bool all = size == 4;
    const Together cases[] = {
        {"sum", "op: AllReduce, reduction: sum"},
        {"max", "op: AllReduce, reduction: max"},
        {"min", "op: AllReduce, reduction: min"},
        {"AllGather", "op: AllGather"},
        {"ReduceScatter", "op: ReduceScatter"},
        {"AlltoAll", count.c_str()},
        {"Broadcast", root.c_str()},
        {"NeighborExchange",
         all ? "op: NeighborExchange, send_ranks: [1, 2, 3, 0]" : "op: NeighborExchange, send_ranks: [1, 0]",
         all ? std::vector<int64_t>{1, 2, 3, 0} : std::vector<int64_t>{1, 0}},
        {"NeighborExchange",
         all ? "op: NeighborExchange, send_ranks: [1, 2, 3, -1]" : "op: NeighborExchange, send_ranks: [-1, 0]",
         all ? std::vector<int64_t>{1, 2, 3, -1} : std::vector<int64_t>{-1, 0}},
    };
    for (const Together& c : cases) {
      SCOPED_TRACE(absl::StrCat(c.file, " in ", grouping));
      const std::string file = all ? OneCollective(c.file) : OneCollective(absl::StrCat(c.file, ", group: ", grouping));
      const std::string text = grouping.empty() || !all ? file : absl::StrReplaceAll(file, {{kGroups, ""}});
      ExpectOnFourRanks(text, [&](manual::Context& context) -> absl::StatusOr<Expected> {
        const int64_t rank = context.GetRank().value();
        const auto own = std::find_if(groups.begin(), groups.end(), [&](const std::vector<int64_t>& group) {
          return std::find(group.begin(), group.end(), rank) != group.end();
        });
        return ByFunctions(context, c, *own);
      });
    }
  }
}

// The same programs on devices that stand-ins play, forward and backward, steps launched as graphs: neighbours too,
// whose values come from the ranks that the program names.
TEST(SampleATest, TheSameOnDevices) {
  for (const char* const op :
       {"op: NeighborExchange, send_ranks: [1, 2, 3, 0]", "op: NeighborExchange, send_ranks: [2, 0, -1, 1]",
        "op: NeighborExchange, send_ranks: [1, -1], group: columns", "op: Broadcast, root: 2",
        "op: Broadcast, root: 1, group: columns", "op: AllReduce, reduction: prod",
        "op: AlltoAll, split_dim: 1, concat_dim: 0, group: pairs"}) {
    SCOPED_TRACE(op);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanModel(OneCollective(op), 4));
    ASSERT_OK_AND_ASSIGN(const Program program, ProgramOf(plan));
    const RunOptions options = {.steps = 3, .keep_parameters = true};
    ASSERT_OK_AND_ASSIGN(const RunResult host, RunOnThreads(program, options, SyntheticData(1)));
    cuda::testing::StandInMachine machine(4);
    const cuda::testing::StandInRun run =
        cuda::testing::RunOnStandIns(program, options, SyntheticData(1), cuda::testing::Patient(), machine,
                                     cuda::testing::StandInKernelKind::kEmulated);
    ASSERT_THAT(run.statuses, Each(IsOk()));
    EXPECT_THAT(machine.faults(), IsEmpty());
    const std::vector<double>& wanted = host.parameters.at({"w", 0}).values;
    const std::vector<double>& found = run.result.parameters.at({"w", 0}).values;
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t e = 0; e < wanted.size(); ++e) EXPECT_NEAR(found[e], wanted[e], 1e-9) << e;
  }
}

// S3.7. y = the tile w x and its halo, the loss the sum of y^2: what a model file has beyond the border, zeros, counts
// for nothing, so it is that of the functions, whose tiles end there.
absl::StatusOr<Expected> HaloByFunctions(manual::Context& context, int64_t rows, int64_t columns,
                                         const std::array<int64_t, 4>& lens) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, context.GetRank());
  std::vector<double> x(16), w(16), z(16);
  for (int64_t e = 0; e < 16; ++e) {
    // A formula's i is dim 0, its j what lies behind.
    x[e] = static_cast<double>((7 * rank + 3 * e) % 11) / 11;
    w[e] = static_cast<double>(3 * e % 5 - 2) / 5;
    z[e] = x[e] * w[e];
  }
  manual::NeighborExchangeV2Spec spec;
  spec.send_ranks = spec.recv_ranks = manual::GridNeighbors(rows, columns, rank);
  constexpr size_t kSides[] = {0, 4, 6, 2}, kOpposite[] = {1, 0, 3, 2};  // top, bottom, left, right
  for (size_t s = 0; s < 4; ++s) {
    if (spec.recv_ranks[kSides[s]] < 0) continue;
    spec.recv_lens[s] = lens[s];
    spec.send_lens[s] = lens[kOpposite[s]];
  }
  const manual::Tensor tile = manual::Tensor::Of<double>({1, 1, 4, 4}, z);
  MESHWRIGHT_ASSIGN_OR_RETURN(manual::Tensor dy, manual::NeighborExchangeV2(context, tile, spec));
  double loss = 0;
  for (double& value : dy.As<double>()) {
    loss += value * value;
    value *= 2;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const manual::Tensor dz, manual::NeighborExchangeV2Grad(context, dy, spec));
  for (size_t e = 0; e < 16; ++e) w[e] -= dz.As<double>()[e] * x[e];
  return Expected{loss, w};
}

std::string HaloOf(const std::string& keys) {
  return absl::StrReplaceAll(OneCollective(absl::StrCat("op: NeighborExchangeV2, ", keys)),
                             {{"[16, 4]", "[4, 1, 4, 4]"}, {"[4, 4]", "[1, 1, 4, 4]"}, {"ReduceMean", "ReduceSum"}});
}

TEST(SampleATest, HalosOfAModelFileAreThoseOfTheFunctions) {
  const struct {
    int64_t rows, columns;
    std::array<int64_t, 4> lens;
  } cases[] = {{2, 2, {1, 1, 1, 1}}, {2, 2, {2, 1, 0, 3}}, {4, 1, {1, 2, 0, 0}}, {1, 4, {0, 0, 1, 0}}};
  for (const auto& c : cases) {
    const std::string keys =
        absl::StrCat("grid: [", c.rows, ", ", c.columns, "], recv_lens: [", absl::StrJoin(c.lens, ", "), "]");
    SCOPED_TRACE(keys);
    for (const std::string& text : {HaloOf(keys), absl::StrReplaceAll(HaloOf(keys), {{kGroups, ""}})}) {
      ExpectOnFourRanks(text,
                        [&](manual::Context& context) { return HaloByFunctions(context, c.rows, c.columns, c.lens); });
    }
  }
}

// Around the grid every rank has all its neighbours, and the sum over the ranks is that of the tiles as often as each
// element is seen: with a halo of 1 on every side of 4 x 4 tiles, 36 elements where there are 16.
TEST(SampleATest, APeriodicHaloSeesEveryElementAsOftenAsAnother) {
  // Tiles of ones: (4 + 2) x (4 + 2) of them on each rank, in a row of 4, in a column, and in a square.
  for (const char* const grid : {"[2, 2]", "[1, 4]", "[4, 1]"}) {
    const std::string text =
        absl::StrReplaceAll(HaloOf(absl::StrCat("grid: ", grid, ", periodic: true, recv_lens: [1, 1, 1, 1]")),
                            {{"{a: 7, b: 3, mod: 11, sub: 0, div: 11}", "{a: 0, b: 0, mod: 2, sub: -1, div: 1}"},
                             {"{a: 2, b: 3, mod: 5, sub: 2, div: 5}", "{a: 0, b: 0, mod: 2, sub: -1, div: 1}"}});
    ASSERT_OK_AND_ASSIGN(const ModelRun run, RunModel(text, 4, 1));
    for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(run.result.rank_losses[rank][0], 36) << grid << " " << rank;
  }
}

// A StridedSlice of what ranks have each for themselves counts from the user's first dim.
TEST(SampleATest, ASliceOfOwnValues) {
  const std::string text =
      absl::StrReplaceAll(OneCollective("op: StridedSlice, begin: [1, 2], end: [3, 4]"), {{"ReduceMean", "ReduceSum"}});
  ASSERT_OK_AND_ASSIGN(const ModelRun run, RunModel(text, 4, 1));
  for (int64_t rank = 0; rank < 4; ++rank) {
    double loss = 0;
    for (int64_t i = 1; i < 3; ++i) {
      for (int64_t j = 2; j < 4; ++j) {
        const double x = static_cast<double>((7 * (4 * rank + i) + 3 * j) % 11) / 11;
        const double w = static_cast<double>((2 * i + 3 * j) % 5 - 2) / 5;
        loss += x * w * x * w;
      }
    }
    EXPECT_NEAR(run.result.rank_losses[static_cast<size_t>(rank)][0], loss, 1e-12) << rank;
  }
}

// w (1) on 4 ranks whose rows are 1, 2, 3, 4: y = prod(x w) = 24, loss y^2 = 576. d y^2 / d z_r on each of four ranks
// is 2 y . y / z_r, and the sum over the ranks' losses is four times that: dw_r = 4 . 2 . 24 . 24 / x_r . x_r = 4608.
// Where rank 2's row is 0, y = 0 and so are all derivatives, its own 2 y . (1 . 2 . 4) too; y / x would be 0 / 0.
TEST(SampleATest, AProductHasADerivativeAtZeroToo) {
  const auto model = [](const std::string& formula) {
    return absl::StrCat(R"(
name: product
inputs: {x: {shape: [4, 1], init: {formula: )",
                        formula, R"(}}}
parameters: {w: {shape: [1, 1], init: ones}}
operators:
  - {name: own, op: RankSlice, inputs: [x]}
  - {name: z, op: Mul, inputs: [own, w]}
  - {name: y, op: AllReduce, reduction: prod, inputs: [z]}
  - {name: squares, op: Mul, inputs: [y, y]}
  - {name: loss, op: ReduceSum, inputs: [squares]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: 0.001}}}
)");
  };
  ASSERT_OK_AND_ASSIGN(const ModelRun run, RunModel(model("{a: 1, mod: 100, sub: -1}"), 4, 1));
  for (const double w : ValuesOf(run, "w")) EXPECT_NEAR(w, 1 - 4.608, 1e-12);
  for (const std::vector<double>& losses : run.result.rank_losses) EXPECT_NEAR(losses[0], 576, 1e-9);
  ASSERT_OK_AND_ASSIGN(const ModelRun zero, RunModel(model("{a: 1, mod: 100, sub: 2}"), 4, 1));  // -2, -1, 0, 1
  for (const double w : ValuesOf(zero, "w")) EXPECT_EQ(w, 1);
}

// A Broadcast is one in the program, and priced as one; neighbours exchange by one message each.
TEST(SampleATest, BroadcastsAndExchangesAreInstructions) {
  const auto kinds = [](const std::string& op) -> std::vector<std::string> {
    absl::StatusOr<Plan> plan = PlanModel(OneCollective(op), 4);
    EXPECT_OK(plan);
    if (!plan.ok()) return {};
    const absl::StatusOr<Program> program = ProgramOf(*plan);
    EXPECT_OK(program);
    std::vector<std::string> found;
    for (const Instruction& instruction : program->classes[0].blocks[0].instructions) {
      if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
        found.push_back(absl::StrCat(NameOf(collective->kind), " of ", program->mesh.SizeOf(collective->axes), " root ",
                                     collective->root));
      }
      if (const auto* permute = std::get_if<Permute>(&instruction.work)) {
        found.push_back(absl::StrCat("permute ", absl::StrJoin(permute->sources, " ")));
      }
    }
    return found;
  };
  EXPECT_THAT(kinds("op: Broadcast, root: 2"), ElementsAre("broadcast of 4 root 2"));
  EXPECT_THAT(kinds("op: Broadcast, root: 1, group: columns"), ElementsAre("broadcast of 2 root 1"));
  EXPECT_THAT(kinds("op: NeighborExchange, send_ranks: [1, 2, 3, 0]"), ElementsAre("permute 3 0 1 2"));
  EXPECT_THAT(kinds("op: NeighborExchange, send_ranks: [1, -1], group: columns"), ElementsAre("permute -1 -1 0 1"));
  EXPECT_THAT(kinds("op: AllReduce, group: pairs"), ElementsAre("all_reduce of 2 root 0"));
  EXPECT_THAT(kinds("op: ReduceScatter, group: columns"), ElementsAre("reduce_scatter of 2 root 0"));
  EXPECT_THAT(kinds("op: AllGather, group: columns"), ElementsAre("all_gather of 2 root 0"));
  EXPECT_THAT(kinds("op: AlltoAll, split_dim: 1, concat_dim: 0, group: pairs"), ElementsAre("all_to_all of 2 root 0"));
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

// R9, R30 and their like, at plan time, with the operator's place.
TEST(SampleATest, MistakesAreSaidWhenThePlanIsMade) {
  const auto kind = [](const std::string& text, int64_t ranks) {
    return std::string(KindOf(PlanModel(text, ranks).status()));
  };
  EXPECT_EQ(kind(OneCollective("op: AlltoAll, split_count: 3, split_dim: 1, concat_dim: 0"), 4), "E-VALUE");
  EXPECT_EQ(kind(OneCollective("op: Broadcast, root: 4"), 4), "E-VALUE");
  EXPECT_EQ(kind(absl::StrReplaceAll(OneCollective("op: ReduceScatter"),
                                     {{"[16, 4]", "[18, 4]"}, {"[4, 4]", "[6, 4]"}, {kGroups, ""}}),
                 3),
            "");
  EXPECT_EQ(
      kind(absl::StrReplaceAll(OneCollective("op: ReduceScatter"), {{"[16, 4]", "[24, 4]"}, {"[4, 4]", "[6, 4]"}}), 4),
      "E-VALUE");
  for (const char* mode : {"semi_auto_parallel", "auto_parallel"}) {
    EXPECT_EQ(kind(OracleB(absl::StrCat("parallel_mode: ", mode)), 8), "E-STATE");
  }
  EXPECT_EQ(kind(OneCollective("op: AllReduce, reduction: mean"), 4), "E-VALUE");
  EXPECT_EQ(kind(OneCollective("op: ReduceScatter, reduction: max"), 4), "E-STATE");  // S3.8
  EXPECT_EQ(kind(OneCollective("op: AllReduce, group: rows"), 4), "E-VALUE");
  EXPECT_EQ(kind(OneCollective("op: NeighborExchange, send_ranks: [1, 2, 3]"), 4), "E-VALUE");
  EXPECT_EQ(kind(OneCollective("op: NeighborExchange, send_ranks: [1, 2, 3, 4]"), 4), "E-VALUE");
  EXPECT_EQ(kind(OneCollective("op: NeighborExchange, send_ranks: [1, 1, 3, 0]"), 4), "E-LAYOUT");
  EXPECT_EQ(kind(HaloOf("grid: [2, 3], recv_lens: [1, 1, 1, 1]"), 4), "E-VALUE");
  EXPECT_EQ(kind(HaloOf("grid: [4, 1], recv_lens: [1, 1, 1, 0]"), 4), "E-VALUE");  // nobody is to the left
  EXPECT_EQ(kind(HaloOf("grid: [2, 2], recv_lens: [5, 0, 0, 0]"), 4), "E-VALUE");  // tiles have 4 rows
  EXPECT_THAT(PlanModel(HaloOf("grid: [2, 2], recv_lens: [1, 2, 0, 0], send_lens: [1, 2, 0, 0]"), 4),
              StatusIs(absl::StatusCode::kInvalidArgument, "wanted what the neighbours receive there, [2, 1, 0, 0]"));
  EXPECT_THAT(PlanModel(HaloOf("grid: [2, 2], recv_lens: [1, 2, 0, 0], data_format: NHWC"), 4),
              StatusIs(absl::StatusCode::kInvalidArgument, "found \"NHWC\", wanted NCHW"));
  EXPECT_EQ(kind(OneCollective("op: NeighborExchangeV2, grid: [2, 2], recv_lens: [1, 1, 1, 1]"), 4), "E-VALUE");
  // Groups of 4 ranks in a job of 8; and R8's for groups of a file.
  EXPECT_THAT(PlanModel(OneCollective("op: AllReduce, group: pairs"), 8),
              StatusIs(absl::StatusCode::kInvalidArgument, "groups.pairs: rank 4 of 8 is in no group"));
  const auto groups = [&](const std::string& lists) {
    return kind(absl::StrReplaceAll(OneCollective("op: AllReduce, group: pairs"), {{"[[0, 1], [2, 3]]", lists}}), 4);
  };
  for (const char* lists : {"[[0, 0], [2, 3]]", "[[], [2, 3]]", "[[0, 1], [2, 9]]", "[[0, 1, 2], [3]]", "[]",
                            "[[0, 3], [1, 2]]", "[[1, 0], [2, 3]]"}) {
    EXPECT_EQ(groups(lists), "E-VALUE") << lists;
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
