// The gradient of every differentiable operator, as ir/gradients.h composes it from kernels, against finite differences
// of the forward kernel.
#include "ir/gradients.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/host/kernels.h"
#include "executor/op_examples.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr uint64_t kSeed = 11;
constexpr double kStep = 1e-6;  // of the finite differences; their error is about kStep^2 + 1e-16 / kStep
constexpr double kBound = 1e-7;

using Values = std::map<int, OwnedTensor>;  // by index of the tensor

// Runs ops [first, last) of a graph on whole tensors.
absl::Status Evaluate(const Graph& graph, size_t first, size_t last, Values& values) {
  for (size_t i = first; i < last; ++i) {
    const Op& op = graph.ops[i];
    std::vector<TensorView> inputs, outputs;
    for (TensorId id : op.inputs) inputs.push_back(values.at(static_cast<int>(id.index())).View());
    for (TensorId id : op.outputs) {
      OwnedTensor& output = values[static_cast<int>(id.index())];
      output = OwnedTensor(DType::kFloat64, graph.tensor(id).shape);
      outputs.push_back(output.View());
    }
    MESHWRIGHT_RETURN_IF_ERROR(RunHostKernel({op.kind, &op.attrs, &*op.rule, 0, 1, inputs, outputs}));
  }
  return absl::OkStatus();
}

// One forward op (or a chain that ends in it), its backward ops, and numbers for its inputs.
struct Problem {
  GraphBuilder builder = GraphBuilder("test");
  std::vector<TensorId> inputs;
  TensorId output;
  OpId op;  // whose gradient is asked for
  size_t forward_ops = 0;
  TensorId dy;
  std::vector<std::pair<TensorId, TensorId>> gradients;  // (tensor, its gradient)
  Values values;
};

absl::Status Build(const OpCase& c, Problem& p) {
  p.builder.BeginSegment("model");
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    p.inputs.push_back(p.builder.Input(absl::StrCat("x", i), c.inputs[i].dtype, c.inputs[i].shape, Initializer()));
  }
  if (c.example.op == OpKind::kLossFromPartials) {  // has a gradient at the end of its chain only
    // x0 stands for logits "s b v" here, x1 for labels "b s": see PartialsCase.
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId top,
                                p.builder.AddOne({.name = "max", .kind = OpKind::kRowMax, .inputs = {p.inputs[0]}}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> sums,
                                p.builder.Add({.name = "sums",
                                               .kind = OpKind::kExpSumAndPick,
                                               .inputs = {p.inputs[0], top, p.inputs[1]},
                                               .rule = "s b v, s b, b s -> s b, s b"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(p.output, p.builder.AddOne({.name = "op",
                                                            .kind = OpKind::kLossFromPartials,
                                                            .inputs = {top, sums[0], sums[1]},
                                                            .attrs = c.example.attrs}));
  } else {
    GraphBuilder::OpSpec spec{.name = "op", .kind = c.example.op, .inputs = p.inputs, .rule = c.example.rule};
    spec.attrs = c.example.attrs;
    spec.output_shapes = c.example.outputs;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, p.builder.Add(std::move(spec)));
    p.output = outputs[0];
  }
  p.forward_ops = p.builder.graph().ops.size();
  p.op = OpId(p.forward_ops - 1);
  p.dy = p.builder.Input("dy", DType::kFloat64, p.builder.graph().tensor(p.output).shape, Initializer());
  for (size_t i = 0; i < c.inputs.size(); ++i) p.values[static_cast<int>(p.inputs[i].index())] = c.inputs[i];
  return absl::OkStatus();
}

absl::Status Differentiate(Problem& p) {
  std::vector<TensorId> dys(p.builder.graph().op(p.op).outputs.size());
  dys[0] = p.dy;
  GradientContext context{p.builder,
                          p.op,
                          dys,
                          [](TensorId id) { return id; },
                          [&](TensorId id) { return InfoOf(p.builder.graph().tensor(id).dtype).floating; },
                          [](TensorId) { return TensorId(); },
                          [&](TensorId id, TensorId gradient) { p.gradients.emplace_back(id, gradient); }};
  return AddGradient(context);
}

// sum(dy * output)
absl::StatusOr<double> Objective(Problem& p) {
  MESHWRIGHT_RETURN_IF_ERROR(Evaluate(p.builder.graph(), 0, p.forward_ops, p.values));
  const OwnedTensor& y = p.values.at(static_cast<int>(p.output.index()));
  const OwnedTensor& dy = p.values.at(static_cast<int>(p.dy.index()));
  double sum = 0;
  for (int64_t i = 0; i < NumElements(y.shape); ++i) sum += y.At(i) * dy.At(i);
  return sum;
}

void ExpectGradientsMatch(const OpCase& c) {
  SCOPED_TRACE(c.text);
  Problem p;
  ASSERT_OK(Build(c, p));
  ASSERT_OK(Differentiate(p));
  OwnedTensor& dy = p.values[static_cast<int>(p.dy.index())];
  dy = OwnedTensor(DType::kFloat64, p.builder.graph().tensor(p.dy).shape);
  for (int64_t i = 0; i < NumElements(dy.shape); ++i) dy.Set(i, std::cos(static_cast<double>(i + 1)));
  ASSERT_OK(Objective(p).status());
  ASSERT_OK(Evaluate(p.builder.graph(), p.forward_ops, p.builder.graph().ops.size(), p.values));

  // An op may contribute to a tensor several times.
  std::map<int, std::vector<double>> analytic;
  for (const auto& [tensor, gradient] : p.gradients) {
    const OwnedTensor& d = p.values.at(static_cast<int>(gradient.index()));
    std::vector<double>& sum = analytic[static_cast<int>(tensor.index())];
    ASSERT_EQ(d.shape, p.builder.graph().tensor(tensor).shape);
    sum.resize(static_cast<size_t>(NumElements(d.shape)));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += d.At(static_cast<int64_t>(i));
  }
  for (TensorId input : p.inputs) {
    OwnedTensor& x = p.values.at(static_cast<int>(input.index()));
    if (!InfoOf(x.dtype).floating) continue;
    std::vector<double>& dx = analytic[static_cast<int>(input.index())];
    dx.resize(static_cast<size_t>(NumElements(x.shape)));  // nothing contributed: 0
    for (int64_t i = 0; i < NumElements(x.shape); ++i) {
      const double before = x.At(i);
      x.Set(i, before + kStep);
      ASSERT_OK_AND_ASSIGN(const double up, Objective(p));
      x.Set(i, before - kStep);
      ASSERT_OK_AND_ASSIGN(const double down, Objective(p));
      x.Set(i, before);
      const double numeric = (up - down) / (2 * kStep);
      ASSERT_NEAR(dx[static_cast<size_t>(i)], numeric, kBound * (1 + std::fabs(numeric)))
          << "input " << input.index() << ", element " << i;
    }
  }
}

class GradientsTest : public testing::TestWithParam<OpKind> {};

TEST_P(GradientsTest, EqualFiniteDifferences) {
  std::vector<OpExample> examples = ExamplesOf(GetParam());
  ASSERT_FALSE(examples.empty());
  if (GetParam() == OpKind::kLossFromPartials) {
    examples = {{GetParam(), "s b v, b s -> ", {{4, 2, 8}, {2, 4}}, examples[0].attrs, {0, 8}, -3, 3}};
  }
  for (const OpExample& example : examples) {
    // A loss has no gradient to its target, and its target is no number to vary.
    if (GetParam() == OpKind::kMseLoss) continue;
    // Attention in blocks has one gradient for all its blocks: tests/semantics:context_parallel_test compares it.
    if (GetParam() == OpKind::kMergeAttention || example.attrs.shift >= 0) continue;
    ExpectGradientsMatch(MakeCase(example, kSeed));
  }
}

// dL/dx = dloss * scale * 2 (x - t) for dloss 2, scale 1/4, x - t = (1, -2): (1, -2).
TEST(MseLossGradTest, IsTwiceTheErrorTimesScale) {
  OwnedTensor dloss(DType::kFloat64, {}), x(DType::kFloat64, {2}), target(DType::kFloat64, {2}),
      dx(DType::kFloat64, {2});
  dloss.Set(0, 2);
  x.Set(0, 3);
  x.Set(1, 5);
  target.Set(0, 2);
  target.Set(1, 7);
  ASSERT_OK_AND_ASSIGN(const IndexRule rule, ParseRule(", n, n -> n"));
  OpAttrs attrs;
  attrs.scale = 0.25;
  const std::vector<TensorView> inputs = {dloss.View(), x.View(), target.View()}, outputs = {dx.View()};
  ASSERT_OK(RunHostKernel({OpKind::kMseLossGrad, &attrs, &rule, 0, 1, inputs, outputs}));
  EXPECT_EQ(dx.At(0), 1);
  EXPECT_EQ(dx.At(1), -2);
}

// An Exchange is no kernel: tests/semantics F34 compares its gradient.
std::vector<OpKind> Differentiable() {
  std::vector<OpKind> ops;
  for (const OpInfo& row : kOps) {
    if (row.differentiable && row.kind != OpKind::kExchange) ops.push_back(row.kind);
  }
  return ops;
}
INSTANTIATE_TEST_SUITE_P(All, GradientsTest, testing::ValuesIn(Differentiable()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace meshwright
