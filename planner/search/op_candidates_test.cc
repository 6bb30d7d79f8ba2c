#include "planner/search/op_candidates.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// One op on inputs ("i") and parameters ("p") of these shapes.
struct OneOp {
  OpKind kind;
  std::vector<std::pair<char, Shape>> operands;
  std::string rule = "";
};
absl::StatusOr<Graph> Build(const OneOp& spec) {
  GraphBuilder b("one op");
  b.BeginSegment("model");
  GraphBuilder::OpSpec op{.name = "op", .kind = spec.kind, .rule = spec.rule};
  for (const auto& [kind, shape] : spec.operands) {
    const std::string name = absl::StrCat("t", op.inputs.size());
    op.inputs.push_back(kind == 'p' ? b.Parameter(name, DType::kFloat32, shape, {})
                                    : b.Input(name, DType::kFloat32, shape, {}));
  }
  MESHWRIGHT_RETURN_IF_ERROR(b.Add(std::move(op)).status());
  return std::move(b).Build();
}

std::string ToText(const std::vector<std::vector<int64_t>>& tuples) {
  std::vector<std::string> parts;
  for (const auto& tuple : tuples) parts.push_back(absl::StrCat("(", absl::StrJoin(tuple, ","), ")"));
  return absl::StrJoin(parts, " ");
}

std::string DefaultOf(const OneOp& spec, int64_t ranks) {
  const auto graph = Build(spec);
  EXPECT_OK(graph);
  return graph.ok() ? ToText(TuplesOf(graph->ops[0], DefaultPieces(graph->ops[0], *graph, ranks))) : "";
}

// The table of S5.14.
TEST(DefaultPiecesTest, SplitsDimZeroByTheGreatestCommonDivisor) {
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> rows = {{16, 8, 8}, {12, 8, 4},  {6, 8, 2},
                                                                   {1, 8, 1},  {256, 8, 8}, {32, 6, 2}};
  for (const auto& [batch, ranks, pieces] : rows) {
    EXPECT_EQ(DefaultOf({OpKind::kRelu, {{'i', {batch, 4}}}}, ranks), absl::StrCat("(", pieces, ",1)")) << batch;
  }
}

TEST(DefaultPiecesTest, OperatorByOperator) {
  EXPECT_EQ(DefaultOf({OpKind::kAdd, {{'i', {16, 4}}, {'i', {16, 4}}}}, 8), "(8,1) (8,1)");
  EXPECT_EQ(DefaultOf({OpKind::kAdd, {{'i', {16, 4}}, {'p', {4}}}}, 8), "(8,1) (1)");
  EXPECT_EQ(DefaultOf({OpKind::kAdd, {{'i', {16, 4}}, {'p', {1, 4}}}}, 8), "(8,1) (1,1)");
  EXPECT_EQ(DefaultOf({OpKind::kMatMul, {{'i', {16, 32}}, {'p', {32, 8}}}, "m k, k n -> m n"}, 8), "(8,1) (1,1)");
  EXPECT_EQ(DefaultOf({OpKind::kMatMul, {{'i', {32, 16}}, {'p', {32, 8}}}, "k m, k n -> m n"}, 8), "(1,8) (1,1)");
  EXPECT_EQ(DefaultOf({OpKind::kMatMul, {{'i', {4, 2, 3}}, {'i', {4, 3, 5}}}, "b m k, b k n -> b m n"}, 8),
            "(4,1,1) (4,1,1)");
  EXPECT_EQ(DefaultOf({OpKind::kMatMul, {{'i', {4, 2, 3}}, {'p', {3, 5}}}, "b m k, k n -> b m n"}, 8), "(4,1,1) (1,1)");
  EXPECT_EQ(DefaultOf({OpKind::kMseLoss, {{'i', {16, 4}}, {'i', {16, 4}}}}, 8), "(8,1) (8,1)");
  EXPECT_EQ(DefaultOf({OpKind::kMul, {{'p', {16, 4}}, {'p', {16, 4}}}}, 8), "(1,1) (1,1)");
  // Rows of ids, not of the table.
  EXPECT_EQ(DefaultOf({OpKind::kGather, {{'p', {64, 4}}, {'i', {8, 2}}}, "v h, b s -> b s h"}, 8), "(1,1) (8,1)");
  EXPECT_EQ(DefaultOf({OpKind::kSoftmax, {{'i', {16}}}}, 8), "(1)");  // dim 0 must stay whole
}

std::vector<std::string> Candidates(const OneOp& spec, int64_t ranks) {
  std::vector<std::string> texts;
  const Mesh mesh = Mesh::Factored(1, ranks);
  const auto graph = Build(spec);
  EXPECT_OK(graph);
  const auto candidates = CandidatesOf(graph->ops[0], *graph, mesh, ranks);
  EXPECT_OK(candidates);
  for (const OpCandidate& candidate : *candidates) {
    std::vector<std::vector<int64_t>> tuples;
    for (const Layout& layout : candidate.strategy.inputs) {
      auto& tuple = tuples.emplace_back();
      for (const AxisList& axes : layout.dims) tuple.push_back(mesh.SizeOf(axes));
    }
    texts.push_back(ToText(tuples));
  }
  return texts;
}

// S15.6's list for relu on (16, 16).
TEST(CandidatesTest, UseAllRanksOrNone) {
  EXPECT_EQ(Candidates({OpKind::kRelu, {{'i', {16, 16}}}}, 8),
            (std::vector<std::string>{"(1,8)", "(2,4)", "(4,2)", "(8,1)", "(1,1)"}));
  // What does not divide is left out.
  EXPECT_EQ(Candidates({OpKind::kRelu, {{'i', {4, 2}}}}, 8), (std::vector<std::string>{"(4,2)", "(1,1)"}));
  EXPECT_EQ(Candidates({OpKind::kRelu, {{'i', {6, 5}}}}, 6), (std::vector<std::string>{"(6,1)", "(1,1)"}));
  EXPECT_EQ(Candidates({OpKind::kSoftmax, {{'i', {16, 16}}}}, 8), (std::vector<std::string>{"(8,1)", "(1,1)"}));
  EXPECT_EQ(Candidates({OpKind::kRelu, {{'i', {16, 16}}}}, 1), (std::vector<std::string>{"(1,1)"}));
}

// S14.9: seven triples (a, b, c) on 4 devices.
TEST(CandidatesTest, OfAProduct) {
  EXPECT_EQ(Candidates({OpKind::kMatMul, {{'i', {64, 128}}, {'p', {128, 64}}}, "m k, k n -> m n"}, 4),
            (std::vector<std::string>{"(1,1) (1,4)", "(1,2) (2,2)", "(1,4) (4,1)", "(2,1) (1,2)", "(2,2) (2,1)",
                                      "(4,1) (1,1)", "(1,1) (1,1)"}));
}

}  // namespace
}  // namespace meshwright
