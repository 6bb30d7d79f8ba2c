// F34: each collective of a program whose author splits it (S17.1) against executor/manual, forward and backward, and
// against what the device back end does; halos; mistakes in them.
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
#include "executor/cuda/testing/run_on_stand_ins.h"
#include "executor/host/run_on_threads.h"
#include "executor/manual/collectives.h"
#include "executor/manual/gradients.h"
#include "executor/manual/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/model_run.h"

namespace meshwright {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// All ranks' values of `w`, one rank's behind another's.
std::vector<double> WeightsOf(const ModelRun& run) { return run.result.parameters.at({"w", 0}).values; }

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
  const std::vector<double> w = WeightsOf(run);
  ASSERT_EQ(w.size(), 64u);
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(run.result.rank_losses[rank][0], expected[rank].loss, 1e-12);
    for (size_t e = 0; e < 16; ++e) EXPECT_NEAR(w[16 * rank + e], expected[rank].w[e], 1e-12) << rank << " " << e;
  }
}

// Of 4 ranks: all of them, in a file without groups and in one with them (where ranks are counted in two dims), pairs
// beside each other, and pairs across.
TEST(AuthorsCollectivesTest, CollectivesOfAModelFileAreThoseOfTheFunctions) {
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
TEST(AuthorsCollectivesTest, TheSameOnDevices) {
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

TEST(AuthorsCollectivesTest, HalosOfAModelFileAreThoseOfTheFunctions) {
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
TEST(AuthorsCollectivesTest, APeriodicHaloSeesEveryElementAsOftenAsAnother) {
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
TEST(AuthorsCollectivesTest, ASliceOfOwnValues) {
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
TEST(AuthorsCollectivesTest, AProductHasADerivativeAtZeroToo) {
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
  for (const double w : WeightsOf(run)) EXPECT_NEAR(w, 1 - 4.608, 1e-12);
  for (const std::vector<double>& losses : run.result.rank_losses) EXPECT_NEAR(losses[0], 576, 1e-9);
  ASSERT_OK_AND_ASSIGN(const ModelRun zero, RunModel(model("{a: 1, mod: 100, sub: 2}"), 4, 1));  // -2, -1, 0, 1
  for (const double w : WeightsOf(zero)) EXPECT_EQ(w, 1);
}

// A Broadcast is one in the program, and priced as one; neighbours exchange by one message each.
TEST(AuthorsCollectivesTest, BroadcastsAndExchangesAreInstructions) {
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

// R9, R30 and their like, at plan time, with the operator's place.
TEST(AuthorsCollectivesTest, MistakesAreSaidWhenThePlanIsMade) {
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

}  // namespace
}  // namespace meshwright
