#include "planner/passes/differentiate.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
constexpr DType kF = DType::kFloat32;

// "matmul/grad: MatMul(dmatmul, w) -> dx" for each backward op of a segment, in order; a recomputed op begins "again ".
std::vector<std::string> Backward(const Graph& graph, const std::string& segment) {
  std::vector<std::string> lines;
  const auto name = [&](std::string* out, TensorId id) { absl::StrAppend(out, graph.tensor(id).name); };
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kBackward || graph.segment(op.segment).name != segment) continue;
    lines.push_back(absl::StrCat(op.recompute ? "again " : "", op.name, ": ", NameOf(op.kind), "(",
                                 absl::StrJoin(op.inputs, ", ", name), ") -> ", absl::StrJoin(op.outputs, ", ", name)));
  }
  return lines;
}

// The chain rule from the loss down; x and y are inputs, so nothing is made for them.
TEST(DifferentiateTest, AChain) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(SeedB(), {}));
  EXPECT_THAT(Backward(graph, "model"), ElementsAre("dloss: Fill() -> dloss",                                 //
                                                    "loss/grad: MSELossGrad(dloss, matmul2, y) -> dmatmul2",  //
                                                    "matmul2/grad: MatMul(dmatmul2, w2) -> drelu",            //
                                                    "matmul2/grad: MatMul(relu, dmatmul2) -> dw2",            //
                                                    "relu/grad: ReLUGrad(drelu, matmul) -> relu/grad",        //
                                                    "matmul/grad: MatMul(x, relu/grad) -> dw"));
  EXPECT_OK(VerifyGraph(graph));
  const Tensor& dw = graph.tensor(graph.FindTensor("dw"));
  EXPECT_EQ(dw.kind, TensorKind::kGradient);
  EXPECT_EQ(dw.gradient_of, graph.FindTensor("w"));
  // Every backward op but the seed belongs to a forward op, whose label names it uses.
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::kForward || op.kind == OpKind::kFill) continue;
    ASSERT_TRUE(op.forward.valid()) << op.name;
    for (const Label& label : op.rule->labels) {
      EXPECT_GE(graph.op(op.forward).rule->FindLabel(label.name), 0) << op.name << " " << label.name;
    }
  }
}

TEST(DifferentiateTest, TheForwardPassStaysAsItIs) {
  const Graph forward = SeedB();
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(forward, {}));
  for (size_t i = 0; i < forward.ops.size(); ++i) {
    EXPECT_EQ(graph.ops[i].name, forward.ops[i].name);
    EXPECT_EQ(graph.ops[i].inputs, forward.ops[i].inputs);
    EXPECT_EQ(graph.ops[i].outputs, forward.ops[i].outputs);
    EXPECT_EQ(graph.ops[i].phase, Phase::kForward);
  }
}

TEST(DifferentiateTest, OptionsOfTheLossAndTheAccumulators) {
  DifferentiateOptions options;
  options.loss_gradient = 0.25;
  options.gradient_dtype = DType::kFloat64;
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(SeedB(), options));
  EXPECT_EQ(graph.ops[4].kind, OpKind::kFill);
  EXPECT_EQ(graph.ops[4].attrs.scale, 0.25);
  EXPECT_EQ(graph.tensor(graph.FindTensor("dw")).dtype, DType::kFloat64);
  EXPECT_EQ(graph.tensor(graph.FindTensor("drelu")).dtype, kF);
}

// Nothing is differentiated with respect to what does not depend on a trainable parameter.
TEST(DifferentiateTest, FrozenParametersHaveNoGradient) {
  Graph forward = SeedB();
  forward.tensors[forward.FindTensor("w").index()].trainable = false;
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(forward, {}));
  EXPECT_THAT(Backward(graph, "model"), ElementsAre("dloss: Fill() -> dloss",                                 //
                                                    "loss/grad: MSELossGrad(dloss, matmul2, y) -> dmatmul2",  //
                                                    "matmul2/grad: MatMul(relu, dmatmul2) -> dw2"));
  EXPECT_FALSE(graph.FindTensor("dw").valid());
}

// A value that is read twice gets the sum; a parameter that is read twice gets both in its accumulator.
TEST(DifferentiateTest, SeveralReaders) {
  GraphBuilder b("readers");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {4, 8}, {}), w = b.Parameter("w", kF, {8}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "shift", .kind = OpKind::kAdd, .inputs = {x, w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId z, b.AddOne({.name = "square", .kind = OpKind::kMul, .inputs = {y, y}}));
  ASSERT_OK_AND_ASSIGN(const TensorId s, b.AddOne({.name = "scaled", .kind = OpKind::kMul, .inputs = {z, w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {s, x}}));
  b.SetLoss(loss);
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(std::move(b).Build(), {}));
  EXPECT_OK(VerifyGraph(graph));
  EXPECT_THAT(Backward(graph, "model"), ElementsAre("dloss: Fill() -> dloss",                               //
                                                    "loss/grad: MSELossGrad(dloss, scaled, x) -> dscaled",  //
                                                    "scaled/grad: Mul(dscaled, w) -> scaled/grad",          //
                                                    "scaled/grad: Mul(dscaled, square) -> scaled/grad",     //
                                                    "scaled/grad: ReduceSum(scaled/grad) -> dw",            //
                                                    "square/grad: Mul(scaled/grad, shift) -> square/grad",  //
                                                    "square/grad: Mul(scaled/grad, shift) -> square/grad",  //
                                                    "dshift: Add(square/grad, square/grad) -> dshift",      //
                                                    "shift/grad: ReduceSum(dshift) -> dw"));
}

// An operator beside the way from parameters to the loss needs no gradient.
TEST(DifferentiateTest, DeadEnds) {
  GraphBuilder b("dead_end");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {4, 8}, {}), w = b.Parameter("w", kF, {8}, {}), v = b.Parameter("v", kF, {8}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "y", .kind = OpKind::kAdd, .inputs = {x, w}}));
  ASSERT_OK(b.AddOne({.name = "unused", .kind = OpKind::kMul, .inputs = {y, v}}));
  ASSERT_OK(b.AddOne({.name = "max", .kind = OpKind::kRowMax, .inputs = {y}}));
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {y, x}}));
  b.SetLoss(loss);
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(std::move(b).Build(), {}));
  EXPECT_THAT(Backward(graph, "model"),
              ElementsAre("dloss: Fill() -> dloss", "loss/grad: MSELossGrad(dloss, y, x) -> dy",
                          "y/grad: ReduceSum(dy) -> dw"));
  EXPECT_FALSE(graph.FindTensor("dv").valid());
}

// In a stack the gradient flows from layer to layer as the values did; each layer adds to its own du and dv.
TEST(DifferentiateTest, AStack) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(TiedStack(3, 2), {}));
  EXPECT_OK(VerifyGraph(graph));
  EXPECT_THAT(Backward(graph, "head"),
              ElementsAre("dloss: Fill() -> dloss",                                         //
                          "loss/grad: CrossEntropyGrad(dloss, logits, labels) -> dlogits",  //
                          "logits/grad: MatMul(dlogits, table) -> dlayers/out",             //
                          "logits/grad: MatMul(layers/out, dlogits) -> dtable"));
  EXPECT_THAT(Backward(graph, "layers"), ElementsAre("down/grad: MatMul(dlayers/out, v) -> drelu",   //
                                                     "down/grad: MatMul(relu, dlayers/out) -> dv",   //
                                                     "relu/grad: ReLUGrad(drelu, up) -> relu/grad",  //
                                                     "up/grad: MatMul(relu/grad, u) -> dlayers/in",  //
                                                     "up/grad: MatMul(layers/in, relu/grad) -> du",  //
                                                     "dlayers/in: Add(dlayers/out, dlayers/in) -> dlayers/in"));
  EXPECT_THAT(Backward(graph, "embed"), ElementsAre("embed/grad: GatherGrad(dembed, ids) -> dtable"));
  ASSERT_EQ(graph.segments[1].gradient_carries.size(), 1u);
  const Carry& carry = graph.segments[1].gradient_carries[0];
  EXPECT_EQ(graph.op(graph.tensor(carry.initial).producer).name, "logits/grad");
  EXPECT_EQ(graph.op(graph.tensor(carry.out).producer).kind, OpKind::kAdd);
  EXPECT_EQ(graph.tensor(carry.final).name, "dembed");
}

// Where several operators read what a stack made, their gradients are added up behind the stack, once, not in every
// layer's backward pass.
TEST(DifferentiateTest, SeveralReadersOfAStack) {
  Graph forward = TiedStack(3, 2);
  GraphBuilder b(std::move(forward));
  b.ContinueSegment(SegmentId(2));
  const TensorId out = b.graph().segments[1].carries[0].final;
  ASSERT_OK_AND_ASSIGN(const TensorId square, b.AddOne({.name = "square", .kind = OpKind::kMul, .inputs = {out, out}}));
  // The square takes the place of the stack's result in the product.
  Graph& graph = b.mutable_graph();
  std::swap(graph.ops[graph.ops.size() - 1], graph.ops[graph.ops.size() - 3]);
  std::swap(graph.ops[graph.ops.size() - 1], graph.ops[graph.ops.size() - 2]);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (TensorId id : graph.ops[i].outputs) graph.tensors[id.index()].producer = OpId(i);
    if (graph.ops[i].name == "logits") graph.ops[i].inputs[0] = square;
  }
  ASSERT_OK_AND_ASSIGN(const Graph differentiated, Differentiate(std::move(b).Build(), {}));
  EXPECT_OK(VerifyGraph(differentiated));
  EXPECT_EQ(Backward(differentiated, "head").back(), "dlayers/out: Add(square/grad, square/grad) -> dlayers/out");
  EXPECT_EQ(Backward(differentiated, "layers").front(), "down/grad: MatMul(dlayers/out, v) -> drelu");
}

DifferentiateOptions With(Recompute recompute) {
  DifferentiateOptions options;
  options.recompute = recompute;
  return options;
}

// Selective: what is named in a recompute group runs again, just before its first reader.
TEST(RecomputeTest, Selective) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(TiedStack(3, 2), With(Recompute::kSelective)));
  EXPECT_OK(VerifyGraph(graph));
  EXPECT_THAT(Backward(graph, "layers"), ElementsAre("down/grad: MatMul(dlayers/out, v) -> drelu",        //
                                                     "again relu: ReLU(up) -> relu/again",                //
                                                     "down/grad: MatMul(relu/again, dlayers/out) -> dv",  //
                                                     "relu/grad: ReLUGrad(drelu, up) -> relu/grad",       //
                                                     "up/grad: MatMul(relu/grad, u) -> dlayers/in",       //
                                                     "up/grad: MatMul(layers/in, relu/grad) -> du",       //
                                                     "dlayers/in: Add(dlayers/out, dlayers/in) -> dlayers/in"));
}

// Full: of a stack only what it carries is kept; every value that backward reads is made again, once. What stands
// around the layers is kept.
TEST(RecomputeTest, Full) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(TiedStack(3, 2), With(Recompute::kFull)));
  EXPECT_OK(VerifyGraph(graph));
  EXPECT_THAT(Backward(graph, "layers"), ElementsAre("down/grad: MatMul(dlayers/out, v) -> drelu",         //
                                                     "again up: MatMul(layers/in, u) -> up/again",         //
                                                     "again relu: ReLU(up/again) -> relu/again",           //
                                                     "down/grad: MatMul(relu/again, dlayers/out) -> dv",   //
                                                     "relu/grad: ReLUGrad(drelu, up/again) -> relu/grad",  //
                                                     "up/grad: MatMul(relu/grad, u) -> dlayers/in",        //
                                                     "up/grad: MatMul(layers/in, relu/grad) -> du",        //
                                                     "dlayers/in: Add(dlayers/out, dlayers/in) -> dlayers/in"));
  for (const std::string& line : Backward(graph, "head")) EXPECT_FALSE(absl::StartsWith(line, "again")) << line;
  // Nothing of the layers is read by their backward pass but what they carry.
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kBackward || op.segment != SegmentId(1)) continue;
    for (TensorId id : op.inputs) {
      const OpId producer = graph.tensor(id).producer;
      const bool forward = producer.valid() && graph.op(producer).phase == Phase::kForward;
      EXPECT_FALSE(forward && graph.op(producer).segment == SegmentId(1)) << op.name;
    }
  }
}

// A whole layer: all its ops run again first, in order, whether backward reads them or not.
TEST(RecomputeTest, Layer) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(TiedStack(3, 2), With(Recompute::kLayer)));
  EXPECT_OK(VerifyGraph(graph));
  EXPECT_THAT(Backward(graph, "layers"), ElementsAre("again up: MatMul(layers/in, u) -> up/again",          //
                                                     "again relu: ReLU(up/again) -> relu/again",            //
                                                     "again down: MatMul(relu/again, v) -> down/again",     //
                                                     "again sum: Add(layers/in, down/again) -> sum/again",  //
                                                     "down/grad: MatMul(dlayers/out, v) -> drelu",          //
                                                     "down/grad: MatMul(relu/again, dlayers/out) -> dv",    //
                                                     "relu/grad: ReLUGrad(drelu, up/again) -> relu/grad",   //
                                                     "up/grad: MatMul(relu/grad, u) -> dlayers/in",         //
                                                     "up/grad: MatMul(layers/in, relu/grad) -> du",         //
                                                     "dlayers/in: Add(dlayers/out, dlayers/in) -> dlayers/in"));
  for (const std::string& line : Backward(graph, "head")) EXPECT_FALSE(absl::StartsWith(line, "again")) << line;
}

// Two layers in a run: x = x u and x = relu(x v), each run again when its own backward pass begins, from what it begins
// with, which is kept.
Graph RunOfTwo() {
  GraphBuilder b("run_of_two");
  b.BeginSegment("embed");
  const TensorId x = b.Input("x", kF, {2, 4}, {});
  const TensorId w = b.Parameter("w", kF, {4, 4}, {});
  const auto product = [&](const char* name, TensorId of, TensorId by) {
    return *b.AddOne({.name = name, .kind = OpKind::kMatMul, .inputs = {of, by}, .rule = "m k, k n -> m n"});
  };
  const TensorId from = product("begin", x, w);
  b.BeginSegment("layers", 2);
  const TensorId in = b.BeginCarry(from);
  const TensorId u = b.Parameter("u", kF, {4, 4}, {}), v = b.Parameter("v", kF, {4, 4}, {});
  const TensorId gelu =
      *b.AddOne({.name = "gelu", .kind = OpKind::kGelu, .inputs = {product("first", in, u)}, .rule = "m n -> m n"});
  b.EndLayer(gelu);
  const TensorId relu =
      *b.AddOne({.name = "relu", .kind = OpKind::kRelu, .inputs = {product("second", gelu, v)}, .rule = "m n -> m n"});
  const TensorId out = *b.EndCarry(relu);
  b.BeginSegment("head");
  const TensorId y = b.Input("y", kF, {2, 4}, {});
  b.SetLoss(*b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {out, y}}));
  return std::move(b).Build();
}

TEST(RecomputeTest, EachLayerOfARun) {
  ASSERT_OK(VerifyGraph(RunOfTwo()));
  ASSERT_OK_AND_ASSIGN(const Graph full, Differentiate(RunOfTwo(), With(Recompute::kFull)));
  EXPECT_OK(VerifyGraph(full));
  EXPECT_THAT(Backward(full, "layers"), ElementsAre("again second: MatMul(gelu, v) -> second/again",                //
                                                    "relu/grad: ReLUGrad(dlayers/out, second/again) -> relu/grad",  //
                                                    "second/grad: MatMul(relu/grad, v) -> dgelu",                   //
                                                    "second/grad: MatMul(gelu, relu/grad) -> dv",                   //
                                                    "again first: MatMul(layers/in, u) -> first/again",             //
                                                    "gelu/grad: GeLUGrad(dgelu, first/again) -> gelu/grad",         //
                                                    "first/grad: MatMul(gelu/grad, u) -> dlayers/in",               //
                                                    "first/grad: MatMul(layers/in, gelu/grad) -> du"));
  ASSERT_OK_AND_ASSIGN(const Graph layer, Differentiate(RunOfTwo(), With(Recompute::kLayer)));
  EXPECT_OK(VerifyGraph(layer));
  std::vector<std::string> again;
  for (const Op& op : layer.ops) {
    if (op.phase == Phase::kBackward) again.push_back(absl::StrCat(op.recompute ? "again " : "", op.name));
  }
  EXPECT_THAT(again,
              ElementsAre("dloss", "loss/grad", "again second", "again relu", "relu/grad", "second/grad", "second/grad",
                          "again first", "again gelu", "gelu/grad", "first/grad", "first/grad", "begin/grad"));
}

TEST(RecomputeTest, None) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(TiedStack(3, 2), With(Recompute::kNone)));
  for (const Op& op : graph.ops) EXPECT_FALSE(op.recompute) << op.name;
}

// A recomputed op is the forward op again: attributes, rule and types.
TEST(RecomputeTest, IsTheSameOperator) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Differentiate(TiedStack(3, 2), With(Recompute::kFull)));
  int found = 0;
  for (const Op& op : graph.ops) {
    if (!op.recompute) continue;
    ++found;
    const Op& forward = graph.op(op.forward);
    EXPECT_EQ(op.kind, forward.kind);
    EXPECT_EQ(op.rule, forward.rule);
    EXPECT_EQ(op.attrs, forward.attrs);
    EXPECT_EQ(graph.tensor(op.outputs[0]).shape, graph.tensor(forward.outputs[0]).shape);
    EXPECT_EQ(graph.tensor(op.outputs[0]).dtype, graph.tensor(forward.outputs[0]).dtype);
  }
  EXPECT_EQ(found, 2);
}

TEST(DifferentiateErrorsTest, NoLoss) {
  Graph forward = SeedB();
  forward.loss = TensorId();
  EXPECT_THAT(Differentiate(forward, {}), StatusIs(absl::StatusCode::kInvalidArgument, "no loss operator"));
}

// Every row that has no gradient says so where one is asked for: here it stands between a parameter and the loss.
TEST(DifferentiateErrorsTest, NamesTheOperatorThatHasNoGradient) {
  GraphBuilder b("max");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {4}, {}), w = b.Parameter("w", kF, {4, 8}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "top", .kind = OpKind::kRowMax, .inputs = {w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {y, x}}));
  b.SetLoss(loss);
  EXPECT_THAT(Differentiate(std::move(b).Build(), {}),
              StatusIs(absl::StatusCode::kUnimplemented, "operator \"top\": RowMax has no gradient"));
}

TEST(DifferentiateErrorsTest, ATargetHasNoGradient) {
  GraphBuilder b("target");
  b.BeginSegment("model");
  const TensorId x = b.Parameter("x", kF, {4}, {}), w = b.Parameter("w", kF, {4}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {x, w}}));
  b.SetLoss(loss);
  EXPECT_THAT(Differentiate(std::move(b).Build(), {}),
              StatusIs(absl::StatusCode::kUnimplemented, "operator \"loss\": no gradient to its target"));
}

TEST(DifferentiateErrorsTest, AStackThatReadsAValueFromOutside) {
  GraphBuilder b("outside");
  b.BeginSegment("embed");
  const TensorId x = b.Input("x", kF, {4, 8}, {}), w = b.Parameter("w", kF, {8}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId start, b.AddOne({.name = "start", .kind = OpKind::kAdd, .inputs = {x, w}}));
  b.BeginSegment("layers", 2);
  const TensorId in = b.BeginCarry(start);
  ASSERT_OK_AND_ASSIGN(const TensorId sum, b.AddOne({.name = "sum", .kind = OpKind::kAdd, .inputs = {in, start}}));
  ASSERT_OK_AND_ASSIGN(const TensorId out, b.EndCarry(sum));
  b.BeginSegment("head");
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {out, x}}));
  b.SetLoss(loss);
  EXPECT_THAT(Differentiate(std::move(b).Build(), {}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "operator \"sum\" of the repeated segment \"layers\" uses \"start\", which is made outside"));
}

}  // namespace
}  // namespace meshwright
