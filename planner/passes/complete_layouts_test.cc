#include "planner/passes/complete_layouts.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/passes/differentiate.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr DType kF = DType::kFloat32;

Strategy Eight(const std::vector<std::pair<std::string, std::string>>& rules) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 8);  // x4 x2 x1
  for (const auto& [label, axes] : rules) strategy.rules.push_back({label, Axes(strategy.mesh, axes)});
  return strategy;
}

Layout Parse(const std::string& text, const Mesh& mesh) {
  absl::StatusOr<Layout> layout = ParseLayout(text, mesh);
  EXPECT_OK(layout);
  return layout.ok() ? *layout : Layout();
}
void Give(Strategy& strategy, const std::string& op, const std::vector<std::string>& inputs,
          const std::string& output = "") {
  OpStrategy& own = strategy.ops[op];
  for (const std::string& text : inputs) own.inputs.push_back(Parse(text, strategy.mesh));
  if (!output.empty()) own.output = Parse(output, strategy.mesh);
}

absl::StatusOr<ShardedGraph> Complete(Graph forward, const Strategy& strategy) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, Differentiate(std::move(forward), {}));
  return CompleteLayouts(std::move(graph), strategy);
}

// "m=x4 k=x2.x1" for one op: the labels that are split.
std::string Assigned(const ShardedGraph& sharded, size_t op) {
  std::vector<std::string> parts;
  const std::vector<Label>& labels = sharded.graph.ops[op].rule->labels;
  for (size_t label = 0; label < labels.size(); ++label) {
    const AxisList& axes = sharded.assignments[op][label];
    if (axes.empty()) continue;
    parts.push_back(absl::StrCat(labels[label].name, "=", absl::StrJoin(axes, ".", [&](std::string* out, AxisId id) {
                                   absl::StrAppend(out, sharded.mesh.axis(id).name);
                                 })));
  }
  return absl::StrJoin(parts, " ");
}
std::string Assigned(const ShardedGraph& sharded, const std::string& op) {
  return Assigned(sharded, sharded.graph.FindOp(op).index());
}
std::string Natural(const ShardedGraph& sharded, const std::string& tensor) {
  return ToText(sharded.natural[sharded.graph.FindTensor(tensor).index()], sharded.mesh);
}

TensorId Made(const absl::StatusOr<TensorId>& id) {
  EXPECT_OK(id);
  return id.value_or(TensorId());
}

TEST(CompleteLayoutsTest, RulesNameLabels) {
  ASSERT_OK_AND_ASSIGN(const ShardedGraph sharded, Complete(SeedB(), Eight({{"m", "x4"}, {"k", "x2.x1"}})));
  EXPECT_EQ(Assigned(sharded, "matmul"), "m=x4 k=x2.x1");
  EXPECT_EQ(Assigned(sharded, "relu"), "m=x4");
  EXPECT_EQ(Assigned(sharded, "loss"), "m=x4");
  EXPECT_EQ(Natural(sharded, "matmul"), "{x4 | -} partial sum x2.x1");
  EXPECT_EQ(Natural(sharded, "relu"), "{x4 | -}");
  EXPECT_EQ(Natural(sharded, "loss"), "{} partial sum x4");
  EXPECT_EQ(Natural(sharded, "w"), "{x2.x1 | -}");
  EXPECT_EQ(Natural(sharded, "x"), "{x4 | x2.x1}");
  EXPECT_EQ(Natural(sharded, "y"), "{x4 | -}");
}

// The first rule that an op has a label for takes its axes; a later one that wants one of them is left out whole.
TEST(CompleteLayoutsTest, EarlierRulesComeFirst) {
  ASSERT_OK_AND_ASSIGN(ShardedGraph sharded, Complete(SeedB(), Eight({{"k", "x4.x2"}, {"m", "x2.x1"}, {"n", "x1"}})));
  EXPECT_EQ(Assigned(sharded, "matmul"), "k=x4.x2 n=x1");
  EXPECT_EQ(Assigned(sharded, "relu"), "m=x2.x1");  // has no k; n comes after m
  ASSERT_OK_AND_ASSIGN(sharded, Complete(SeedB(), Eight({{"m", "x2.x1"}, {"k", "x4.x2"}, {"n", "x1"}})));
  EXPECT_EQ(Assigned(sharded, "matmul"), "m=x2.x1");
}

// An op's own strategy goes before the rules, and says what becomes of its output at once (S5.5, S5.7).
TEST(CompleteLayoutsTest, AnOpsOwnStrategyGoesFirst) {
  Strategy strategy = Eight({{"m", "x4.x2.x1"}});
  Give(strategy, "matmul", {"{x4 | x2.x1}", "{x2.x1 | -}"});
  Give(strategy, "matmul2", {"{x4 | x2}", "{x2 | -}"}, "{x4.x2 | -}");
  ASSERT_OK_AND_ASSIGN(const ShardedGraph sharded, Complete(SeedB(), strategy));
  EXPECT_EQ(Assigned(sharded, "matmul"), "m=x4 k=x2.x1");
  EXPECT_EQ(Assigned(sharded, "relu"), "m=x4.x2.x1");
  ASSERT_EQ(sharded.outputs.size(), 2u);
  EXPECT_EQ(ToText(sharded.outputs.at(sharded.graph.FindTensor("matmul")), sharded.mesh), "{x4 | -}");
  EXPECT_EQ(ToText(sharded.outputs.at(sharded.graph.FindTensor("matmul2")), sharded.mesh), "{x4.x2 | -}");
}

// Backward ops take over the labels of their forward op: the gradients of seed B are split as its products are.
TEST(CompleteLayoutsTest, BackwardFollowsForward) {
  ASSERT_OK_AND_ASSIGN(const ShardedGraph sharded, Complete(SeedB(), Eight({{"m", "x4"}, {"k", "x2.x1"}})));
  int checked = 0;
  for (size_t i = 0; i < sharded.graph.ops.size(); ++i) {
    const Op& op = sharded.graph.ops[i];
    if (op.phase == Phase::kForward || !op.forward.valid()) continue;
    for (size_t label = 0; label < op.rule->labels.size(); ++label) {
      const int of_forward = sharded.graph.op(op.forward).rule->FindLabel(op.rule->labels[label].name);
      ASSERT_GE(of_forward, 0);
      EXPECT_EQ(sharded.assignments[i][label], sharded.assignments[op.forward.index()][of_forward]) << op.name;
      ++checked;
    }
  }
  EXPECT_GT(checked, 10);
  // dw = x^T dy over m: partial over the axes of m. drelu = dy w2^T: k of matmul2 is split, n is summed and whole.
  EXPECT_EQ(Natural(sharded, "drelu"), "{x4 | x2.x1}");
}

// A stack's value lies as its last op leaves it; gradients of it likewise, sums of them too.
TEST(CompleteLayoutsTest, CarriedValues) {
  Strategy strategy = Eight({{"b", "x4"}, {"f", "x2"}});
  ASSERT_OK_AND_ASSIGN(const ShardedGraph sharded, Complete(TiedStack(3, 8), strategy));
  EXPECT_EQ(Natural(sharded, "sum"), "{- | x4 | -}");
  EXPECT_EQ(Natural(sharded, "layers/in"), "{- | x4 | -}");
  EXPECT_EQ(Natural(sharded, "layers/out"), "{- | x4 | -}");
  EXPECT_EQ(Natural(sharded, "down"), "{- | x4 | -} partial sum x2");
  const Carry& carry = sharded.graph.segments[1].gradient_carries[0];
  for (TensorId id : {carry.in, carry.out, carry.final}) {
    EXPECT_EQ(ToText(sharded.natural[id.index()], sharded.mesh), "{- | x4 | -}") << sharded.graph.tensor(id).name;
  }
}

// How the data arrives, where it is said; else as the first op wants it.
TEST(CompleteLayoutsTest, Inputs) {
  Strategy strategy = Eight({{"m", "x4"}});
  strategy.inputs["x"] = Parse("{x4.x2.x1 | -}", strategy.mesh);
  ASSERT_OK_AND_ASSIGN(const ShardedGraph sharded, Complete(SeedB(), strategy));
  EXPECT_EQ(Natural(sharded, "x"), "{x4.x2.x1 | -}");
  EXPECT_EQ(Natural(sharded, "y"), "{x4 | -}");
}

// S5.15, R15: seed E's weight (16, 32) with Mul ((8,1),(8,1)) and Mul ((1,8),(1,8)).
Graph SharedWeight() {
  GraphBuilder b("shared");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {16, 32}, {}), w = b.Parameter("weight1", kF, {16, 32}, {});
  const absl::StatusOr<TensorId> y =
      b.AddOne({.name = "mul1", .kind = OpKind::kMul, .inputs = {x, w}, .rule = "m n, m n -> m n"});
  const absl::StatusOr<TensorId> z =
      b.AddOne({.name = "mul2", .kind = OpKind::kMul, .inputs = {*y, w}, .rule = "m n, m n -> m n"});
  const absl::StatusOr<TensorId> loss = b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {*z, x}});
  b.SetLoss(*loss);
  return std::move(b).Build();
}

// x w + x v, both split along k, is summed up as it lies, whatever a rule says of its rows; who reads it wants it
// whole. Where something else reads one of the two, that is a whole value anyway.
TEST(CompleteLayoutsTest, ASumOfSumsIsAPartialSum) {
  const auto build = [](bool read_twice) {
    GraphBuilder b("sums");
    b.BeginSegment("all");
    const TensorId x = b.Input("x", kF, {16, 8}, {}), w = b.Parameter("w", kF, {8, 8}, {}),
                   v = b.Parameter("v", kF, {8, 8}, {});
    const auto product = [&](const std::string& name, TensorId by) {
      return Made(b.AddOne({.name = name, .kind = OpKind::kMatMul, .inputs = {x, by}, .rule = "m k, k n -> m n"}));
    };
    const TensorId one = product("one", w), two = product("two", v);
    TensorId y = Made(b.AddOne({.name = "sum", .kind = OpKind::kAdd, .inputs = {one, two}, .rule = "m n, m n -> m n"}));
    if (read_twice) {
      y = Made(b.AddOne({.name = "more", .kind = OpKind::kMul, .inputs = {y, one}, .rule = "m n, m n -> m n"}));
    }
    b.SetLoss(Made(b.AddOne({.name = "loss", .kind = OpKind::kReduceSum, .inputs = {y}, .rule = "m n -> "})));
    return std::move(b).Build();
  };
  const Strategy strategy = Eight({{"k", "x4"}, {"m", "x4"}});
  ASSERT_OK_AND_ASSIGN(const ShardedGraph sharded, Complete(build(false), strategy));
  EXPECT_EQ(Natural(sharded, "one"), "{- | -} partial sum x4");
  EXPECT_EQ(Natural(sharded, "sum"), "{- | -} partial sum x4");
  EXPECT_EQ(Assigned(sharded, "sum"), "");
  EXPECT_EQ(Assigned(sharded, "loss"), "m=x4");
  ASSERT_OK_AND_ASSIGN(const ShardedGraph twice, Complete(build(true), strategy));
  EXPECT_EQ(Natural(twice, "sum"), "{x4 | -}");
}

TEST(CompleteLayoutsTest, UsersOfAParameterMustAgree) {
  Strategy strategy = Eight({});
  Give(strategy, "mul1", {"{x4.x2.x1 | -}", "{x4.x2.x1 | -}"});
  Give(strategy, "mul2", {"{- | x4.x2.x1}", "{- | x4.x2.x1}"});
  EXPECT_THAT(Complete(SharedWeight(), strategy),
              StatusIs(kInvalid,
                       "parameter \"weight1\" is used by \"mul1\" as {x4.x2.x1 | -} and by \"mul2\" as {- | "
                       "x4.x2.x1}; all its users must split it the same way"));
  strategy.ops.erase("mul2");
  Give(strategy, "mul2", {"{x4.x2.x1 | -}", "{x4.x2.x1 | -}"});
  EXPECT_OK(Complete(SharedWeight(), strategy));
}

// Slices count, not spelling.
TEST(CompleteLayoutsTest, UsersMaySpellALayoutDifferently) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 6);
  Graph graph = SharedWeight();
  for (Tensor& tensor : graph.tensors) {
    if (!tensor.shape.empty()) tensor.shape = {12, 32};
  }
  Give(strategy, "mul1", {"{2x3.3x1 | -}", "{2x3.3x1 | -}"});
  Give(strategy, "mul2", {"{3x2.2x1 | -}", "{3x2.2x1 | -}"});
  EXPECT_OK(Complete(graph, strategy));
}

TEST(CompleteLayoutsErrorsTest, RulesThatDoNotDivide) {
  const Strategy strategy = Eight({{"h", "x4.x2.x1"}});  // h is 4
  EXPECT_THAT(Complete(TiedStack(2, 8), strategy),
              StatusIs(kInvalid, "operator \"embed\" (Gather): \"h\" is not divisible by 8 pieces"));
}

TEST(CompleteLayoutsErrorsTest, StrategiesThatDoNotFit) {
  Strategy strategy = Eight({});
  Give(strategy, "matmul", {"{x4 | x2}", "{x1 | -}"});
  EXPECT_THAT(Complete(SeedB(), strategy),
              StatusIs(kInvalid, "operator \"matmul\" (MatMul): the contracting dimension"));
  strategy = Eight({});
  Give(strategy, "matmull", {"{- | -}", "{- | -}"});
  EXPECT_THAT(Complete(SeedB(), strategy),
              StatusIs(kInvalid, "names an operator \"matmull\" that the model does not have"));
  // Axes that are not orthogonal, on labels of one op.
  strategy.ops.clear();
  strategy.mesh = Mesh::Factored(1, 6);
  strategy.rules = {{"m", Axes(strategy.mesh, "2x3")}, {"k", Axes(strategy.mesh, "2x1")}};
  EXPECT_THAT(Complete(SeedB(), strategy), StatusIs(kInvalid, "operator \"matmul\" (MatMul): the layout"));
}

// What plan.yaml may ask for and nobody can give.
TEST(CompleteLayoutsErrorsTest, OutputsAndInputs) {
  Strategy strategy = Eight({});
  Give(strategy, "matmul", {"{x4 | -}", "{- | -}"}, "{x4}");
  EXPECT_THAT(
      Complete(SeedB(), strategy),
      StatusIs(kInvalid, "operator \"matmul\" (MatMul): the layout {x4} has 1 dims, the tensor (16, 16) has 2"));
  strategy = Eight({});
  Give(strategy, "matmul", {"{x4 | -}", "{- | -}"}, "{x4 | -} partial sum x2");
  EXPECT_THAT(
      Complete(SeedB(), strategy),
      StatusIs(kInvalid, "operator \"matmul\" (MatMul): the output {x4 | -} partial sum x2 is to stay partial"));
  strategy = Eight({});
  strategy.inputs["x"] = Parse("{x4 | x4}", strategy.mesh);
  EXPECT_THAT(Complete(SeedB(), strategy), StatusIs(kInvalid, "input \"x\": the layout {x4 | x4} uses the axes"));
  strategy.inputs["x"] = Parse("{x4 | -} partial sum x2", strategy.mesh);
  EXPECT_THAT(Complete(SeedB(), strategy), StatusIs(kInvalid, "input \"x\": data cannot arrive as partial sums"));
  strategy.inputs.clear();
  strategy.inputs["z"] = Parse("{x4 | -}", strategy.mesh);
  EXPECT_THAT(Complete(SeedB(), strategy),
              StatusIs(kInvalid, "the strategy names an input \"z\" that the model does not have"));
}

// The axis of the stages splits no tensor.
TEST(CompleteLayoutsErrorsTest, TheAxisOfTheStages) {
  Strategy strategy;
  strategy.stages = 2;
  strategy.mesh = Mesh::Factored(2, 4);
  strategy.rules = {{"m", Axes(strategy.mesh, "pp")}};
  EXPECT_THAT(Complete(SeedB(), strategy), StatusIs(kInvalid, "\"pp\" is the axis of the pipeline stages"));
  strategy.rules.clear();
  Give(strategy, "relu", {"{pp | -}"});
  EXPECT_THAT(Complete(SeedB(), strategy), StatusIs(kInvalid, "\"pp\" is the axis of the pipeline stages"));
  strategy.ops.clear();
  strategy.inputs["x"] = Parse("{pp | -}", strategy.mesh);
  EXPECT_THAT(Complete(SeedB(), strategy), StatusIs(kInvalid, "\"pp\" is the axis of the pipeline stages"));
}

}  // namespace
}  // namespace meshwright
