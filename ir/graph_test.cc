#include "ir/graph.h"

#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr DType kF = DType::kFloat32;

// A projection, `repeat` layers of in + in w, a loss.
struct Stack {
  GraphBuilder b{"stack"};
  TensorId x, w0, start, in, w, product, out, final, loss;
};

absl::Status Build(int64_t repeat, Stack& s) {
  s.b.BeginSegment("embed");
  s.x = s.b.Input("x", kF, {4, 8}, {});
  s.w0 = s.b.Parameter("w0", kF, {8, 8}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(
      s.start,
      s.b.AddOne({.name = "project", .kind = OpKind::kMatMul, .inputs = {s.x, s.w0}, .rule = "m k, k n -> m n"}));
  s.b.BeginSegment("layers", repeat);
  s.in = s.b.BeginCarry(s.start);
  s.w = s.b.Parameter("w", kF, {8, 8}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(
      s.product,
      s.b.AddOne({.name = "product", .kind = OpKind::kMatMul, .inputs = {s.in, s.w}, .rule = "m k, k n -> m n"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.out, s.b.AddOne({.name = "sum", .kind = OpKind::kAdd, .inputs = {s.in, s.product}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.final, s.b.EndCarry(s.out));
  s.b.BeginSegment("head");
  MESHWRIGHT_ASSIGN_OR_RETURN(s.loss, s.b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {s.final, s.x}}));
  s.b.SetLoss(s.loss);
  return absl::OkStatus();
}

TEST(GraphBuilderTest, InfersShapesAndKeepsWhatItWasTold) {
  Stack s;
  ASSERT_OK(Build(3, s));
  ASSERT_OK(VerifyGraph(s.b.graph()));
  const Graph graph = std::move(s.b).Build();
  EXPECT_EQ(graph.tensor(s.product).shape, (Shape{4, 8}));
  EXPECT_EQ(graph.tensor(s.loss).shape, Shape{});
  EXPECT_EQ(graph.tensor(s.loss).kind, TensorKind::kLoss);
  EXPECT_EQ(graph.tensor(s.product).kind, TensorKind::kValue);
  EXPECT_EQ(graph.tensor(s.product).producer, graph.FindOp("product"));
  EXPECT_EQ(graph.tensor(s.w).segment, SegmentId(1));
  EXPECT_EQ(graph.tensor(s.in).name, "layers/in");
  EXPECT_EQ(graph.FindTensor("w0"), s.w0);
  EXPECT_FALSE(graph.FindTensor("nothing").valid());
  EXPECT_FALSE(graph.FindOp("nothing").valid());
  ASSERT_EQ(graph.segments[1].carries.size(), 1u);
  EXPECT_EQ(graph.segments[1].carries[0].out, s.out);
  EXPECT_EQ(graph.segments[1].carries[0].final, s.final);
  // w0 once, w in each of 3 layers: 64 + 3 * 64.
  EXPECT_EQ(graph.NumParameters(), 256);
}

TEST(GraphBuilderTest, TypesAreThoseOfTheFirstFloatingInput) {
  GraphBuilder b("types");
  b.BeginSegment("model");
  const TensorId table = b.Parameter("table", DType::kBFloat16, {8, 4}, {});
  const TensorId ids = b.Input("ids", DType::kInt32, {2, 3}, {});
  ASSERT_OK_AND_ASSIGN(
      const TensorId y,
      b.AddOne({.name = "gather", .kind = OpKind::kGather, .inputs = {table, ids}, .rule = "v h, b s -> s b h"}));
  EXPECT_EQ(b.graph().tensor(y).dtype, DType::kBFloat16);
  EXPECT_EQ(b.graph().tensor(y).shape, (Shape{3, 2, 4}));
  ASSERT_OK_AND_ASSIGN(const TensorId cast,
                       b.AddOne({.name = "cast", .kind = OpKind::kCast, .inputs = {y}, .output_dtypes = {kF}}));
  EXPECT_EQ(b.graph().tensor(cast).dtype, kF);
}

TEST(GraphBuilderTest, SeveralOutputs) {
  GraphBuilder b("outputs");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {4, 2, 2, 4, 2}, {});
  ASSERT_OK_AND_ASSIGN(const std::vector<TensorId> outputs, b.Add({.name = "attention",
                                                                   .kind = OpKind::kAttention,
                                                                   .inputs = {x},
                                                                   .rule = "s! b g r! d! -> s! b g q! d!, s! b g q!",
                                                                   .output_shapes = {{4, 2, 2, 2, 2}, {4, 2, 2, 2}}}));
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(b.graph().tensor(outputs[1]).name, "attention:1");
  EXPECT_EQ(b.graph().tensor(outputs[1]).shape, (Shape{4, 2, 2, 2}));
  EXPECT_THAT(b.AddOne({.name = "two",
                        .kind = OpKind::kAttention,
                        .inputs = {x},
                        .rule = "s! b g r! d! -> s! b g q! d!, s! b g q!",
                        .output_shapes = {{4, 2, 2, 2, 2}, {4, 2, 2, 2}}}),
              StatusIs(absl::StatusCode::kInternal, "ops of one output"));
}

// One scalar input: its text is that of no input at all.
TEST(GraphBuilderTest, AScalarInput) {
  GraphBuilder b("scalar");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "scale", .kind = OpKind::kScale, .inputs = {x}}));
  EXPECT_EQ(b.graph().tensor(y).shape, Shape{});
  EXPECT_OK(VerifyGraph(b.graph()));
}

TEST(GraphBuilderTest, ErrorsNameTheOperator) {
  GraphBuilder b("errors");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {4, 8}, {}), w = b.Parameter("w", kF, {4, 2}, {});
  EXPECT_THAT(b.AddOne({.name = "p", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k n -> m n"}),
              StatusIs(kInvalid, "operator \"p\" (MatMul): k is 8 in input 0 and 4 in input 1"));
  EXPECT_THAT(b.AddOne({.name = "a", .kind = OpKind::kSub, .inputs = {x, w}}),
              StatusIs(kInvalid, "operator \"a\" (Sub): d1 is 8 in input 0 and 2 in input 1"));
  EXPECT_THAT(b.AddOne({.name = "s", .kind = OpKind::kSoftmax, .inputs = {x, x}}),
              StatusIs(kInvalid, "operator \"s\" (Softmax): takes 1 inputs"));
  EXPECT_THAT(b.AddOne({.name = "r", .kind = OpKind::kRelu, .inputs = {x}, .rule = "m n"}),
              StatusIs(kInvalid, "operator \"r\" (ReLU): an index rule is written"));
  EXPECT_THAT(b.AddOne({.name = "v", .kind = OpKind::kReshape, .inputs = {x}, .rule = "m! n! -> f!"}),
              StatusIs(kInvalid, "operator \"v\" (Reshape): the size of dim 0 of output 0 is not given"));
  EXPECT_THAT(b.AddOne({.name = "o", .kind = OpKind::kRelu, .inputs = {x}, .outputs = {w}}),
              StatusIs(kInvalid, "operator \"o\" (ReLU): d1 is 8 in input 0 and 2 in output 0"));
  EXPECT_TRUE(b.graph().ops.empty());
}

TEST(GraphBuilderTest, CarriesMustAgree) {
  GraphBuilder b("carries");
  b.BeginSegment("model");
  EXPECT_THAT(b.EndCarry(TensorId(0)), StatusIs(absl::StatusCode::kFailedPrecondition, "EndCarry without BeginCarry"));
  const TensorId x = b.Input("x", kF, {4, 8}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "relu", .kind = OpKind::kRelu, .inputs = {x}}));
  b.BeginSegment("layers", 2);
  const TensorId in = b.BeginCarry(y);
  ASSERT_OK_AND_ASSIGN(const TensorId sum,
                       b.AddOne({.name = "sum", .kind = OpKind::kReduceSum, .inputs = {in}, .rule = "m n -> m"}));
  EXPECT_THAT(b.EndCarry(sum), StatusIs(kInvalid, "segment \"layers\" carries (4, 8) in and (4) out"));
}

TEST(GraphBuilderTest, OneGradientPerParameter) {
  GraphBuilder b("gradients");
  b.BeginSegment("model");
  const TensorId w = b.Parameter("w", DType::kBFloat16, {4, 2}, {}), v = b.Parameter("v", kF, {4, 2}, {});
  const TensorId dw = b.GradientOf(w, kF);
  EXPECT_EQ(b.GradientOf(w, kF), dw);
  EXPECT_NE(b.GradientOf(v, kF), dw);
  const Tensor& tensor = b.graph().tensor(dw);
  EXPECT_EQ(tensor.name, "dw");
  EXPECT_EQ(tensor.dtype, kF);
  EXPECT_EQ(tensor.kind, TensorKind::kGradient);
  EXPECT_EQ(tensor.gradient_of, w);
}

TEST(VerifyGraphTest, WhatIsReadIsMade) {
  Stack s;
  ASSERT_OK(Build(2, s));
  Graph graph = std::move(s.b).Build();
  std::swap(graph.ops[1], graph.ops[2]);
  EXPECT_THAT(VerifyGraph(graph), StatusIs(kInvalid, "operator \"sum\" (Add): uses \"product\" before it is made"));
}

TEST(VerifyGraphTest, ShapesAgreeWithRules) {
  Stack s;
  ASSERT_OK(Build(2, s));
  Graph graph = std::move(s.b).Build();
  graph.tensors[s.w.index()].shape = {4, 8};
  EXPECT_THAT(VerifyGraph(graph),
              StatusIs(kInvalid, "operator \"product\" (MatMul): k is 8 in input 0 and 4 in input 1"));
  graph.tensors[s.w.index()].shape = {0, 8};
  EXPECT_THAT(VerifyGraph(graph), StatusIs(kInvalid, "tensor \"w\" is (0, 8); every dim must be at least 1"));
}

TEST(VerifyGraphTest, CarriesAreClosed) {
  Stack s;
  ASSERT_OK(Build(2, s));
  Graph graph = std::move(s.b).Build();
  graph.segments[1].carries[0].out = TensorId();
  EXPECT_THAT(VerifyGraph(graph), StatusIs(kInvalid, "segment \"layers\" carries a value it does not make"));
}

// Layers have their own values and parameters: which one would another segment mean?
TEST(VerifyGraphTest, InsideAStackOnlyTheCarryIsSeenFromOutside) {
  Stack s;
  ASSERT_OK(Build(2, s));
  ASSERT_OK_AND_ASSIGN(const TensorId a, s.b.AddOne({.name = "late", .kind = OpKind::kRelu, .inputs = {s.product}}));
  EXPECT_THAT(VerifyGraph(s.b.graph()),
              StatusIs(kInvalid,
                       "operator \"late\" (ReLU): uses \"product\", of which every layer of \"layers\" has its "
                       "own; wanted what that segment carries"));
  s.b.mutable_graph().ops.back().inputs = {s.final};
  EXPECT_OK(VerifyGraph(s.b.graph()));
  s.b.mutable_graph().ops.back().inputs = {s.w};
  s.b.mutable_graph().tensors[a.index()].shape = {8, 8};
  EXPECT_THAT(VerifyGraph(s.b.graph()),
              StatusIs(kInvalid, "operator \"late\" (ReLU): uses \"w\", of which every layer"));
  // A stack of one layer has one of each.
  s.b.mutable_graph().segments[1].repeat = 1;
  EXPECT_OK(VerifyGraph(s.b.graph()));
}

// Layers of two kinds: the second ones go on where the first end, and not where a layer of these does.
TEST(VerifyGraphTest, AStackGoesOnWhereTheOneBeforeEnds) {
  GraphBuilder b("chain");
  b.BeginSegment("embed");
  const TensorId x = b.Input("x", kF, {4, 8}, {});
  ASSERT_OK_AND_ASSIGN(TensorId value, b.AddOne({.name = "start", .kind = OpKind::kRelu, .inputs = {x}}));
  for (const std::string name : {"first", "second", "third"}) {
    b.BeginSegment(name, 2);
    const TensorId in = b.BeginCarry(value);
    ASSERT_OK_AND_ASSIGN(value, b.AddOne({.name = name, .kind = OpKind::kRelu, .inputs = {in}}));
    ASSERT_OK_AND_ASSIGN(value, b.EndCarry(value));
  }
  Graph graph = std::move(b).Build();
  EXPECT_OK(VerifyGraph(graph));
  EXPECT_EQ(ChainsOf(graph), (std::vector<size_t>{0, 1, 1, 1}));
  // Not where one that stands further off ends, nor with what each layer has.
  for (const TensorId other : {graph.segments[1].carries[0].final, graph.segments[2].carries[0].out}) {
    graph.segments[3].carries[0].initial = other;
    EXPECT_THAT(VerifyGraph(graph), StatusIs(kInvalid, "segment \"third\" begins with \""));
    EXPECT_EQ(ChainsOf(graph), (std::vector<size_t>{0, 1, 1, 3}));
  }
}

TEST(VerifyGraphTest, AStackBeginsWithAnOperatorsOutput) {
  Stack s;
  ASSERT_OK(Build(2, s));
  Graph graph = std::move(s.b).Build();
  graph.segments[1].carries[0].initial = s.x;
  EXPECT_THAT(VerifyGraph(graph), StatusIs(kInvalid,
                                           "segment \"layers\" begins with \"x\"; wanted the output of an "
                                           "operator of an earlier segment that is not repeated, or what the "
                                           "segment before it carries"));
}

TEST(GraphTextTest, SegmentsTensorsAndOps) {
  Stack s;
  ASSERT_OK(Build(2, s));
  EXPECT_EQ(ToText(s.b.graph()), R"(graph stack
  input x float32 (4, 8)
  parameter w0 float32 (8, 8)
  parameter w float32 (8, 8)
  loss loss float32 ()
  segment embed x1
    forward  project: MatMul(x, w0) -> project  [m k, k n -> m n]
  segment layers x2
    forward  product: MatMul(layers/in, w) -> product  [m k, k n -> m n]
    forward  sum: Add(layers/in, product) -> sum  [d0 d1, d0 d1 -> d0 d1]
  segment head x1
    forward  loss: MSELoss(layers/out, x) -> loss  [d0 d1, d0 d1 -> ]
)");
}

// Two products in a run, the second of what the first ends with.
absl::Status BuildRun(GraphBuilder& b, bool past_the_end, bool own_weights) {
  b.BeginSegment("in");
  const TensorId x = b.Input("x", DType::kFloat32, {2, 4}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId from, b.AddOne({.name = "relu", .kind = OpKind::kRelu, .inputs = {x}}));
  b.BeginSegment("layers", 3);
  const TensorId in = b.BeginCarry(from);
  const TensorId u = b.Parameter("u", DType::kFloat32, {4, 4}, {}), v = b.Parameter("v", DType::kFloat32, {4, 4}, {});
  const auto product = [&](const char* name, TensorId of, TensorId by) {
    return b.AddOne({.name = name, .kind = OpKind::kMatMul, .inputs = {of, by}, .rule = "m k, k n -> m n"});
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId first, product("first", in, u));
  b.EndLayer(first);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId second, product("second", past_the_end ? in : first, own_weights ? v : u));
  return b.EndCarry(second).status();
}

TEST(GraphTest, ALayerSeesOfOthersInItsRunWhatTheOneBeforeEndsWith) {
  GraphBuilder good("g");
  ASSERT_OK(BuildRun(good, false, true));
  EXPECT_OK(VerifyGraph(good.graph()));
  EXPECT_EQ(good.graph().segments[1].layers(), 2);
  EXPECT_EQ(LayersOfOps(good.graph(), SegmentId(1)), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_NE(ToText(good.graph()).find("segment layers x3 of 2 layers"), std::string::npos);
  GraphBuilder past("g");
  ASSERT_OK(BuildRun(past, true, true));
  EXPECT_THAT(VerifyGraph(past.graph()), StatusIs(absl::StatusCode::kInvalidArgument,
                                                  "operator \"second\" (MatMul): uses \"layers/in\" of another layer; "
                                                  "wanted what that one ends with, or a value of its own"));
  GraphBuilder shared("g");
  ASSERT_OK(BuildRun(shared, false, false));
  EXPECT_THAT(VerifyGraph(shared.graph()),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("uses \"u\" of another layer")));
}

TEST(GraphTest, LayersOfARunEndInOrder) {
  GraphBuilder b("g");
  ASSERT_OK(BuildRun(b, false, true));
  Segment& layers = b.mutable_graph().segments[1];
  layers.layer_ends.push_back(layers.carries[0].in);
  EXPECT_THAT(VerifyGraph(b.graph()),
              StatusIs(absl::StatusCode::kInvalidArgument, "segment \"layers\": found the ends of 1 layers, wanted 2"));
  layers.carries.clear();
  EXPECT_THAT(VerifyGraph(b.graph()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "segment \"layers\": found several layers in one run, wanted a value that they carry"));
}

}  // namespace
}  // namespace meshwright
