// F10, its part S6.14: layouts with the axis interleaved_parallel. The worked table, equality with one device, what is
// refused, and that the collective of one piece runs beside the kernel of the next.
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/program.h"
#include "ir/testing.h"
#include "tests/semantics/networks.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

constexpr absl::string_view kGrid = "grid: {device_matrix: [2, 2, 2], alias_name: [dp, mp, interleaved_parallel]}";

std::string Line(absl::string_view text, absl::string_view shard) {
  return absl::StrCat(text, ", shard: {layout: grid, in_strategy: ", shard, "}");
}

// Whose layouts are taken away, all else left as it is.
std::string OnOneDevice(std::string yaml) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(yaml, '\n', absl::SkipEmpty())) {
    const size_t shard = line.find(", shard:");
    absl::StrAppend(&text, line.substr(0, shard), shard == absl::string_view::npos ? "" : "}", "\n");
  }
  return absl::StrReplaceAll(text, {{"devices_per_node: 4", "devices_per_node: 1"}});
}

void ExpectSameRun(const std::string& a, const std::string& b, int64_t steps) {
  ASSERT_OK_AND_ASSIGN(const RunResult x, RunModel(a, steps));
  ASSERT_OK_AND_ASSIGN(const RunResult y, RunModel(b, steps));
  ExpectSameTraining(x, y, 1e-12);
}

// --- the worked table

std::string Worked() {
  return Product({.x = "[8, 4]",
                  .w = "[4, 6]",
                  .y = "[8, 6]",
                  .keys = "shard: {layout: grid, in_strategy: [[[dp, interleaved_parallel], mp], [mp, None]]}, "
                          "out_strategy: [[[dp, interleaved_parallel, mp], None]]",
                  .layouts = kGrid,
                  .devices = 4});
}

// "2:4, 0:2" of piece `k` of `pieces`, of a tensor whose `rows` lie on `blocks` blocks of ranks, in rows of the whole.
std::string InWhole(const std::string& slice, int64_t k, int64_t pieces, int64_t blocks, int64_t rows) {
  const std::vector<std::string> dims = absl::StrSplit(slice, ", ");
  const std::vector<std::string> bounds = absl::StrSplit(dims[0], ':');
  int64_t begin = 0, end = 0;
  if (!absl::SimpleAtoi(bounds[0], &begin) || !absl::SimpleAtoi(bounds[1], &end)) return "no rows";
  const int64_t of_piece = rows / blocks / pieces;
  const auto whole = [&](int64_t row) { return row / of_piece * of_piece * pieces + k * of_piece + row % of_piece; };
  return absl::StrCat(whole(begin), ":", whole(end - 1) + 1, ", ", dims[1]);
}

TEST(F10InterleavedTest, WorkedTable) {
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(Worked()));
  const struct {
    const char *x_rows[2], *x_columns, *out_rows[2];
  } table[] = {
      {{"0:2", "2:4"}, "0:2", {"0:1", "2:3"}},
      {{"0:2", "2:4"}, "2:4", {"1:2", "3:4"}},
      {{"4:6", "6:8"}, "0:2", {"4:5", "6:7"}},
      {{"4:6", "6:8"}, "2:4", {"5:6", "7:8"}},
  };
  for (int64_t k = 0; k < 2; ++k) {
    const std::string piece = absl::StrCat("matmul/", k);
    EXPECT_EQ(n.Local(piece), "(2, 2)(2, 6)->(2, 6)");
    for (int64_t rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE(absl::StrCat(piece, " on rank ", rank));
      EXPECT_EQ(InWhole(n.Reads(piece, 0, rank), k, 2, 2, 8),
                absl::StrCat(table[rank].x_rows[k], ", ", table[rank].x_columns));
      EXPECT_EQ(n.Reads(piece, 1, rank), absl::StrCat(table[rank].x_columns, ", 0:6"));
      EXPECT_EQ(InWhole(n.Holds(piece, rank), k, 2, 2, 8), absl::StrCat(table[rank].out_rows[k], ", 0:6"));
      EXPECT_EQ(n.Reduces(piece, rank), rank < 2 ? "reduce_scatter 0-1" : "reduce_scatter 2-3");
    }
  }
}

// The rows of the table hold what the product has there: x(i, j) = (7 i + 3 j) mod 11 / 11, w(i, j) = ((3 i + 5 j) mod
// 7
// - 3) / 20.
TEST(F10InterleavedTest, WorkedTableInValues) {
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(Worked()));
  const int64_t out_rows[4][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}};
  for (int64_t k = 0; k < 2; ++k) {
    ASSERT_OK_AND_ASSIGN(const auto kept, n.RunAndKeepReduced(absl::StrCat("matmul/", k)));
    for (size_t rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(kept[rank].size(), 6u);
      for (int64_t column = 0; column < 6; ++column) {
        double wanted = 0;
        for (int64_t j = 0; j < 4; ++j) {
          wanted += static_cast<double>((7 * out_rows[rank][k] + 3 * j) % 11) / 11 *
                    (static_cast<double>((3 * j + 5 * column) % 7) - 3) / 20;
        }
        EXPECT_NEAR(kept[rank][static_cast<size_t>(column)], wanted, 1e-12) << "piece " << k << ", rank " << rank;
      }
    }
  }
}

TEST(F10InterleavedTest, WorkedExampleEqualsOneDevice) { ExpectSameRun(Worked(), OnOneDevice(Worked()), 4); }

// --- networks

constexpr absl::string_view kFormula = "init: {formula: {a: 7, b: 3, mod: 11, sub: 5, div: 11}}";

// Three products with an activation between the first two, all in the same pieces.
std::string Chain(absl::string_view parallel = {}, absl::string_view grid = kGrid) {
  const std::string rows = "[[dp, interleaved_parallel], None]";
  const std::vector<std::string> operators = {
      Line("name: first, op: MatMul, inputs: [x, w1]", "[[[dp, interleaved_parallel], mp], [mp, None]]"),
      Line("name: relu, op: ReLU, inputs: [first]", absl::StrCat("[", rows, "]")),
      Line("name: second, op: MatMul, inputs: [relu, w2]", absl::StrCat("[", rows, ", [None, mp]]")),
      Line("name: third, op: MatMul, inputs: [second, w3]", "[[[dp, interleaved_parallel], mp], [mp, None]]"),
      "name: loss, op: MSELoss, inputs: [third, y]"};
  return NetworkFile(absl::StrCat("x: {shape: [16, 8], ", kFormula, "}, y: {shape: [16, 4]}"),
                     absl::StrCat("w1: {shape: [8, 12], ", kFormula, "}, w2: {shape: [12, 8], ", kFormula,
                                  "}, w3: {shape: [8, 4], init: {formula: {a: 5, b: 2, mod: 7, sub: 3, div: 9}}}"),
                     std::vector<absl::string_view>(operators.begin(), operators.end()), parallel, 4, grid);
}

struct Counts {
  int64_t splits = 0, concats = 0, products = 0;
  int64_t beside = 0, between = 0;  // collectives of activations on the communication and on the compute stream
};
Counts CountIn(const Program& program, Phase phase) {
  Counts counts;
  for (const Block& block : program.classes[0].blocks) {
    if (block.phase != phase) continue;
    for (const Instruction& instruction : block.instructions) {
      if (const auto* compute = std::get_if<Compute>(&instruction.work); compute != nullptr) {
        counts.splits += compute->op == OpKind::kSplit ? 1 : 0;
        counts.concats += compute->op == OpKind::kConcat ? 1 : 0;
        counts.products += compute->op == OpKind::kMatMul ? 1 : 0;
      }
      const auto* collective = std::get_if<Collective>(&instruction.work);
      if (collective == nullptr || collective->purpose != Purpose::kActivation) continue;
      ++(instruction.stream == Stream::kComm ? counts.beside : counts.between);
    }
  }
  return counts;
}

// x is cut once and the last product joined once; between them piece goes to piece. Each piece has collectives of its
// own, beside the kernels: the partial sums of the first and the third product, and backward, where the columns of the
// second are split, the gradient of what it reads.
TEST(F10InterleavedTest, PiecesFeedPieces) {
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(Chain()));
  const Counts forward = CountIn(n.program(), Phase::kForward);
  EXPECT_EQ(forward.splits, 1);
  EXPECT_EQ(forward.concats, 1);
  EXPECT_EQ(forward.products, 6);
  EXPECT_EQ(forward.beside, 4);
  EXPECT_EQ(forward.between, 0);
  EXPECT_EQ(CountIn(n.program(), Phase::kBackward).beside, 2);
}

TEST(F10InterleavedTest, ChainEqualsOneDevice) { ExpectSameRun(Chain(), OnOneDevice(Chain()), 5); }

TEST(F10InterleavedTest, ThreePiecesAndPiecesFirst) {
  // 24 rows in 3 pieces, which stand before dp: rank (dp, mp) has the rows (k, dp) of piece k.
  const std::string grid = "grid: {device_matrix: [2, 2, 3], alias_name: [dp, mp, interleaved_parallel]}";
  std::string yaml = absl::StrReplaceAll(
      Chain({}, grid), {{"[16, ", "[24, "}, {"[dp, interleaved_parallel]", "[interleaved_parallel, dp]"}});
  ExpectSameRun(yaml, OnOneDevice(yaml), 3);
}

// A gradient is the sum of the pieces', reduced over the ranks once, of a weight whose columns are in pieces, too.
TEST(F10InterleavedTest, OneReductionForEachParameter) {
  const std::string columns =
      Product({.x = "[8, 4]",
               .w = "[4, 12]",
               .y = "[8, 12]",
               .keys = "shard: {layout: grid, in_strategy: [[dp, None], [None, [mp, interleaved_parallel]]]}",
               .layouts = kGrid,
               .devices = 4});
  for (const std::string& yaml : {Worked(), columns, Chain()}) {
    ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(yaml));
    int64_t gradients = 0, parameters = 0;
    for (const Block& block : n.program().classes[0].blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* collective = std::get_if<Collective>(&instruction.work);
        if (collective == nullptr || collective->purpose != Purpose::kGradient) continue;
        gradients += static_cast<int64_t>(instruction.reads.size());
      }
    }
    for (const Buffer& buffer : n.program().classes[0].buffers) parameters += buffer.role == BufferRole::kParameter;
    EXPECT_EQ(gradients, parameters) << yaml;
  }
  ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(columns));
  EXPECT_EQ(n.Mirror("w", 1), "1-3");
  EXPECT_EQ(n.Reads("matmul/in1/blocks", 0, 1), "0:4, 6:12");  // of the parameter a rank holds a block
  ExpectSameRun(columns, OnOneDevice(columns), 3);
}

// Micro-batches, stages, recompute and the parallel optimizer go with it as with anything else.
TEST(F10InterleavedTest, WithOtherParallelism) {
  const std::string accumulated = Chain("micro_batches: 2");
  ExpectSameRun(accumulated, OnOneDevice(accumulated), 3);
  const std::string optimizer =
      Chain("enable_parallel_optimizer: true, parallel_optimizer_config: {parallel_optimizer_threshold: 0}");
  ExpectSameRun(optimizer, OnOneDevice(Chain()), 3);
  const std::string recomputed = absl::StrReplaceAll(Chain(), {{"op: ReLU,", "op: ReLU, recompute: true,"}});
  ExpectSameRun(recomputed, OnOneDevice(Chain()), 3);
  // Two stages of two ranks, cut between the second and the third product, in one piece and in two.
  for (const char* const schedule : {"1f1b", "gpipe", "zero_bubble_h1"}) {
    const auto staged = [&](int64_t pieces) {
      const std::string grid =
          absl::StrCat("grid: {device_matrix: [1, 2, ", pieces, "], alias_name: [dp, mp, interleaved_parallel]}");
      const std::string parallel =
          absl::StrCat("pipeline_stages: 2, micro_batches: 4, pipeline_config: {pipeline_scheduler: ", schedule, "}");
      return absl::StrReplaceAll(Chain(parallel, grid),
                                 {{"inputs: [second, w3]", "pipeline_stage: 1, inputs: [second, w3]"},
                                  {"inputs: [x, w1]", "pipeline_stage: 0, inputs: [x, w1]"}});
    };
    ExpectSameRun(staged(2), staged(1), 3);
  }
}

// The search modes leave what is given as it is.
TEST(F10InterleavedTest, SearchesKeepIt) {
  for (const char* const mode : {"dynamic_programming", "recursive_programming", "sharding_propagation"}) {
    const std::string yaml = Chain(absl::StrCat("parallel_mode: auto_parallel, search_mode: ", mode));
    ASSERT_OK_AND_ASSIGN(const Network n, Network::Make(yaml));
    EXPECT_EQ(CountIn(n.program(), Phase::kForward).products, 6) << mode;
    ExpectSameRun(yaml, OnOneDevice(Chain()), 3);
  }
}

// --- what it is for

// Products whose partial sums take about as long to add up as they take to multiply: with two pieces, the sum of the
// first is added up while the second is multiplied.
TEST(F10InterleavedTest, StepIsShorter) {
  const auto step = [](int64_t pieces) -> Nanos {
    const std::string grid =
        absl::StrCat("grid: {device_matrix: [1, 4, ", pieces, "], alias_name: [dp, mp, interleaved_parallel]}");
    const std::string yaml = absl::StrReplaceAll(Chain({}, grid), {{"[16, 8]", "[16384, 4096]"},
                                                                   {"[16, 4]", "[16384, 4096]"},
                                                                   {"[8, 12]", "[4096, 4096]"},
                                                                   {"[12, 8]", "[4096, 4096]"},
                                                                   {"[8, 4]", "[4096, 4096]"},
                                                                   {"device: host", "device: h100-sxm"},
                                                                   {"dtype: float64", "dtype: bfloat16"}});
    const absl::StatusOr<PlannedRun> planned = PlanModel(yaml);
    EXPECT_OK(planned) << yaml;
    return planned.ok() ? planned->prediction.step : Nanos();
  };
  const Nanos whole = step(1), two = step(2);
  EXPECT_LT(two, whole);
  RecordProperty("step of one piece, ns", static_cast<int>(whole.raw()));
  RecordProperty("step of two pieces, ns", static_cast<int>(two.raw()));
}

// --- what is refused

TEST(F10InterleavedTest, Errors) {
  const auto expect = [](const std::string& yaml, absl::string_view kind, const std::string& what) {
    const absl::Status status = Network::Make(yaml).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, what));
    EXPECT_EQ(KindOf(status), kind) << status;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "model.yaml:"));
  };
  const auto product = [](absl::string_view in, absl::string_view out = {}, absl::string_view grid = kGrid,
                          absl::string_view x = "[8, 4]") {
    return Product({.x = x,
                    .w = "[4, 8]",
                    .y = "[8, 8]",
                    .keys = absl::StrCat("shard: {layout: grid, in_strategy: ", in, "}", out),
                    .layouts = grid,
                    .devices = 4});
  };
  expect(product("[[dp, None], [None, mp]]", "",
                 "grid: {device_matrix: [2, 2, 2], alias_name: [dp, interleaved_parallel, mp]}"),
         "E-VALUE", "alias_name[1]: found \"interleaved_parallel\", wanted it as the last axis");
  expect(product("[[dp, None], [None, mp]]", "",
                 "grid: {device_matrix: [2, 4, 2], alias_name: [dp, mp, interleaved_parallel]}"),
         "E-LAYOUT", "has 8 devices but for interleaved_parallel, a stage has 4");
  expect(product("[[dp, interleaved_parallel], [interleaved_parallel, mp]]"), "E-LAYOUT",
         "splits \"k\", which is reduced");
  expect(product("[[dp, interleaved_parallel], [None, mp]]"), "E-LAYOUT", "in input 1 it is not");
  expect(product("[[interleaved_parallel, None], [None, interleaved_parallel]]"), "E-LAYOUT",
         "splits both \"m\" and \"n\"");
  expect(product("[[[dp, interleaved_parallel], None], [None, mp]]", ", out_strategy: [[dp, mp]]"), "E-LAYOUT",
         "out_strategy must name interleaved_parallel in dim 0");
  expect(product("[[dp, None], [None, mp]]", ", out_strategy: [[[dp, interleaved_parallel], mp]]"), "E-LAYOUT",
         "which splits no input");
  expect(product("[[dp, None], [None, [interleaved_parallel, mp]]]"), "E-LAYOUT",
         "stands before other axes in dim 1 of the parameter \"w\"");
  expect(product("[[[dp, interleaved_parallel], None], [None, mp]]", "",
                 "grid: {device_matrix: [2, 2, 3], alias_name: [dp, mp, interleaved_parallel]}"),
         "E-LAYOUT", "is 8, which 6 pieces do not divide");
  expect(product("[[[interleaved_parallel, interleaved_parallel], None], [None, mp]]"), "E-VALUE",
         "found \"interleaved_parallel\"");
  const auto network = [](absl::string_view op) {
    return NetworkFile(
        "x: {shape: [8, 8]}, y: {shape: [8, 8]}",
        "w: {shape: [8, 8]}, g: {shape: [8], init: ones}, b: {shape: [8], init: zeros}",
        {"name: first, op: MatMul, inputs: [x, w]", op, "name: norm, op: LayerNorm, inputs: [middle, g, b]",
         "name: loss, op: MSELoss, inputs: [norm, y]"},
        {}, 4, kGrid);
  };
  expect(network(Line("name: middle, op: Softmax, inputs: [first]", "[[dp, interleaved_parallel]]")), "E-LAYOUT",
         "splits \"c\", which must stay whole");
  expect(network(Line("name: middle, op: Dropout, inputs: [first]", "[[[dp, interleaved_parallel], None]]")),
         "E-LAYOUT", "looks at places in the whole");
}

}  // namespace
}  // namespace meshwright
