#include "models/operators.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// The graph of a file, for `rows` rows (0: all).
absl::StatusOr<Graph> Build(absl::string_view text, int64_t rows = 0, int64_t stages = 1, Training training = {}) {
  const absl::StatusOr<Document> document = ParseDocument(text, "m.yaml");
  if (!document.ok()) return document.status();
  const absl::StatusOr<OperatorModel> model = ReadOperators(document->root(), training, stages);
  if (!model.ok()) return model.status();
  return BuildOperators(*model, training, "g", rows == 0 ? model->batch() : rows);
}

// A file with x (4, 6), ids (4) in 0..9, w of the given shape, one operator "y" as given, and a loss: the sum of
// squares of y's distance from 0.
std::string With(absl::string_view op, absl::string_view w_shape = "[6, 8]") {
  return absl::StrCat(
      "inputs: {x: {shape: [4, 6]}, ids: {shape: [4], dtype: int32, init: {tokens: 10}}}\n",
      "parameters: {w: {shape: ", w_shape, "}, table: {shape: [10, 3]}}\n", "operators:\n",
      "  - {name: rows, op: Gather, inputs: [table, ids]}\n", "  - {name: y, ", op, "}\n",
      "  - {name: sum, op: ReduceSum, inputs: [y]}\n", "  - {name: all, op: ReduceSum, inputs: [rows]}\n",
      "  - {name: use_w, op: ReduceSum, inputs: [w]}\n", "  - {name: use_x, op: ReduceSum, inputs: [x]}\n",
      "  - {name: a1, op: Add, inputs: [sum, all]}\n", "  - {name: a2, op: Add, inputs: [use_w, use_x]}\n",
      "  - {name: loss, op: MSELoss, inputs: [a1, a2]}\n");
}

// "rule -> shape" of operator y.
std::string RuleAndShape(absl::string_view op, absl::string_view w_shape = "[6, 8]", int64_t rows = 4) {
  const absl::StatusOr<Graph> graph = Build(With(op, w_shape), rows);
  if (!graph.ok()) return std::string(graph.status().message());
  const Op& y = graph->op(graph->FindOp("y"));
  return absl::StrCat(ToText(y.rule), " : ", ToText(graph->tensor(y.outputs[0]).shape));
}

TEST(OperatorsTest, Products) {
  EXPECT_EQ(RuleAndShape("op: MatMul, inputs: [x, w]"), "m k, k n -> m n : (4, 8)");
  EXPECT_EQ(RuleAndShape("op: MatMul, inputs: [x, w], transpose_b: true", "[8, 6]"), "m k, n k -> m n : (4, 8)");
  EXPECT_EQ(RuleAndShape("op: MatMul, inputs: [x, w], transpose_a: true", "[4, 8]"), "k m, k n -> m n : (6, 8)");
  EXPECT_EQ(
      RuleAndShape("op: MatMul, inputs: [x, w]", "[5, 8]"),
      "m.yaml:5:35: operators[1].inputs: found x (4, 6) and w (5, 8), wanted shapes that go together; operator \"y\" "
      "(MatMul): k is 6 in input 0 and 5 in input 1 [E-LAYOUT]");
  EXPECT_EQ(RuleAndShape("op: MatMul, inputs: [x, w]", "[2, 6, 8]"),
            "m.yaml:5:39: operators[1].inputs[1]: found a tensor of shape (2, 6, 8), wanted 2 dims");
}

TEST(OperatorsTest, BatchMatMulAlignsLeadingDims) {
  const auto build = [](absl::string_view a, absl::string_view b, absl::string_view flags = "") {
    const absl::StatusOr<Graph> graph = Build(absl::StrCat(
        "inputs: {a: {shape: ", a, "}}\nparameters: {b: {shape: ", b, "}}\noperators:\n",
        "  - {name: y, op: BatchMatMul, inputs: [a, b]", flags, "}\n",
        "  - {name: z, op: Scale, factor: 0, inputs: [y]}\n", "  - {name: loss, op: MSELoss, inputs: [y, z]}\n"));
    if (!graph.ok()) return std::string(graph.status().message());
    const Op& y = graph->op(graph->FindOp("y"));
    return absl::StrCat(ToText(y.rule), " : ", ToText(graph->tensor(y.outputs[0]).shape));
  };
  EXPECT_EQ(build("[2, 3, 4, 5]", "[2, 3, 5, 6]"), "d0 d1 m k, d0 d1 k n -> d0 d1 m n : (2, 3, 4, 6)");
  EXPECT_EQ(build("[2, 3, 4, 5]", "[3, 5, 6]"), "d0 d1 m k, d1 k n -> d0 d1 m n : (2, 3, 4, 6)");
  EXPECT_EQ(build("[2, 3, 4, 5]", "[2, 1, 5, 6]"), "d0 d1 m k, d0 1 k n -> d0 d1 m n : (2, 3, 4, 6)");
  EXPECT_EQ(build("[2, 4, 5]", "[2, 6, 5]", ", transpose_b: true"), "d0 m k, d0 n k -> d0 m n : (2, 4, 6)");
  EXPECT_THAT(build("[2, 4, 5]", "[3, 5, 6]"), testing::HasSubstr("d0 is 2 in input 0 and 3 in input 1"));
  EXPECT_THAT(build("[4, 5]", "[5, 6]"), testing::HasSubstr("wanted 3 to 8 dims"));
}

TEST(OperatorsTest, ElementByElement) {
  EXPECT_EQ(RuleAndShape("op: Add, inputs: [x, w]", "[4, 6]"), "d0 d1, d0 d1 -> d0 d1 : (4, 6)");
  EXPECT_EQ(RuleAndShape("op: Mul, inputs: [x, w]", "[6]"), "d0 d1, d1 -> d0 d1 : (4, 6)");
  EXPECT_EQ(RuleAndShape("op: Sub, inputs: [x, w]", "[1, 6]"), "d0 d1, 1 d1 -> d0 d1 : (4, 6)");
  EXPECT_EQ(RuleAndShape("op: BiasAdd, inputs: [x, w]", "[6]"), "d0 d1, d1 -> d0 d1 : (4, 6)");
  EXPECT_THAT(RuleAndShape("op: BiasAdd, inputs: [x, w]", "[4, 6]"), testing::HasSubstr("wanted one dim, as long as"));
  EXPECT_THAT(RuleAndShape("op: BiasAdd, inputs: [x, w]", "[1]"), testing::HasSubstr("wanted one dim, as long as"));
  // The channels are dim 1.
  EXPECT_THAT(RuleAndShape("op: BiasAdd, inputs: [w, x]", "[4, 6, 3]"),
              testing::HasSubstr("wanted one dim, as long as dim 1 of (4, 6, 3)"));
  for (const absl::string_view op : {"ReLU", "GeLU", "Tanh", "Sigmoid", "SiLU", "Neg", "Sqrt"}) {
    EXPECT_EQ(RuleAndShape(absl::StrCat("op: ", op, ", inputs: [x]")), "d0 d1 -> d0 d1 : (4, 6)") << op;
  }
  EXPECT_EQ(RuleAndShape("op: Dropout, inputs: [x]"), "rows d1 -> rows d1 : (4, 6)");
  EXPECT_EQ(RuleAndShape("op: Dropout, inputs: [w]"), "d0 d1 -> d0 d1 : (6, 8)");  // no rows of the batch
  EXPECT_EQ(RuleAndShape("op: SwiGLU, inputs: [w]", "[4, 2, 5]"), "d0 t! f -> d0 f : (4, 5)");
}

TEST(OperatorsTest, AlongTheLastDim) {
  EXPECT_EQ(RuleAndShape("op: Softmax, inputs: [x]"), "d0 c! -> d0 c! : (4, 6)");
  EXPECT_EQ(RuleAndShape("op: LayerNorm, inputs: [x, w, w]", "[6]"), "d0 h!, h!, h! -> d0 h! : (4, 6)");
  EXPECT_EQ(RuleAndShape("op: RMSNorm, inputs: [x, w], epsilon: 1e-6", "[6]"), "d0 h!, h! -> d0 h! : (4, 6)");
}

TEST(OperatorsTest, ReductionsAndMovement) {
  EXPECT_EQ(RuleAndShape("op: ReduceSum, inputs: [x], axis: 0"), "d0 d1 -> d1 : (6)");
  EXPECT_EQ(RuleAndShape("op: ReduceSum, inputs: [x], axis: [-1]"), "d0 d1 -> d0 : (4)");
  EXPECT_EQ(RuleAndShape("op: ReduceMean, inputs: [x]"), "d0 d1 ->  : ()");
  EXPECT_EQ(RuleAndShape("op: Transpose, inputs: [x], perm: [1, 0]"), "d0 d1 -> d1 d0 : (6, 4)");
  EXPECT_THAT(RuleAndShape("op: Transpose, inputs: [x], perm: [1, 1]"),
              testing::HasSubstr("found [1, 1], wanted each of the 2 dims of (4, 6) once"));
  EXPECT_THAT(RuleAndShape("op: ReduceSum, inputs: [x], axis: 2"),
              testing::HasSubstr("wanted an integer from -2 to 1"));
  EXPECT_EQ(RuleAndShape("op: ReduceMax, inputs: [x], axis: 1, keep_dims: true"), "d0 d1 -> d0 1 : (4, 1)");
  EXPECT_EQ(RuleAndShape("op: ReduceMin, inputs: [x]"), "d0 d1 ->  : ()");
  EXPECT_EQ(RuleAndShape("op: OneHot, inputs: [ids], depth: 10"), "d0 -> d0 c : (4, 10)");
  EXPECT_EQ(RuleAndShape("op: Gather, inputs: [table, ids]"), "v h, n0 -> n0 h : (4, 3)");
}

TEST(OperatorsTest, ReshapeKeepsTheOuterDimsThatSurvive) {
  EXPECT_EQ(RuleAndShape("op: Reshape, inputs: [x], shape: [4, 2, 3]"), "d0 x1! -> d0 y1! y2! : (4, 2, 3)");
  EXPECT_EQ(RuleAndShape("op: Reshape, inputs: [x], shape: [-1, 2, 3]"), "d0 x1! -> d0 y1! y2! : (4, 2, 3)");
  EXPECT_EQ(RuleAndShape("op: Reshape, inputs: [x], shape: [2, 2, 6]"), "x0! z0 -> y0! y1! z0 : (2, 2, 6)");
  EXPECT_EQ(RuleAndShape("op: Reshape, inputs: [x], shape: [24]"), "x0! x1! -> y0! : (24)");
  EXPECT_EQ(RuleAndShape("op: Reshape, inputs: [w], shape: [4, 15]", "[4, 3, 5]"), "d0 x1! x2! -> d0 y1! : (4, 15)");
  EXPECT_EQ(RuleAndShape("op: Flatten, inputs: [w]", "[4, 3, 5]"), "d0 x1! x2! -> d0 y1! : (4, 15)");
  EXPECT_EQ(RuleAndShape("op: Flatten, inputs: [x]"), "d0 x1! -> d0 y1! : (4, 6)");
  EXPECT_THAT(RuleAndShape("op: Reshape, inputs: [x], shape: [5, 5]"),
              testing::HasSubstr("found (5, 5), wanted a shape of the 24 elements of (4, 6)"));
  EXPECT_THAT(RuleAndShape("op: Reshape, inputs: [x], shape: [-1, 5]"), testing::HasSubstr("wanted a shape of the 24"));
  EXPECT_THAT(RuleAndShape("op: Reshape, inputs: [x], shape: [-1, -1]"), testing::HasSubstr("found -1, wanted a size"));
  EXPECT_THAT(RuleAndShape("op: Reshape, inputs: [x], shape: [0, 6]"), testing::HasSubstr("found 0, wanted a size"));
}

TEST(OperatorsTest, ReshapeFollowsTheMicroBatch) {
  // The file says 4 rows; a micro-batch has 2.
  EXPECT_EQ(RuleAndShape("op: Reshape, inputs: [x], shape: [4, 2, 3]", "[6, 8]", 2),
            "d0 x1! -> d0 y1! y2! : (2, 2, 3)");
}

TEST(OperatorsTest, AttributesReachTheOp) {
  const auto attrs = [](absl::string_view op) {
    const absl::StatusOr<Graph> graph = Build(With(op, "[6]"));
    EXPECT_THAT(graph, IsOk());
    return graph.ok() ? graph->op(graph->FindOp("y")).attrs : OpAttrs();
  };
  EXPECT_EQ(attrs("op: Scale, inputs: [x], factor: 0.5").scale, 0.5);
  EXPECT_EQ(attrs("op: ReduceMean, inputs: [x]").scale, 1.0 / 24);
  EXPECT_EQ(attrs("op: ReduceMean, inputs: [x], axis: 1").scale, 1.0 / 6);
  EXPECT_EQ(attrs("op: RMSNorm, inputs: [x, w], epsilon: 1e-6").epsilon, 1e-6);
  EXPECT_THAT(Build(With("op: Scale, inputs: [x]")), StatusIs(kInvalid, "operators[1].factor: found nothing"));
  EXPECT_THAT(Build(With("op: ReLU, inputs: [x], factor: 2")), StatusIs(kInvalid, "factor: found an unknown key"));
}

// The dim that is joined or cut stays whole, the others may be split.
TEST(OperatorsTest, PiecesOfTensors) {
  EXPECT_EQ(RuleAndShape("op: Concat, inputs: [w, x], axis: 0", "[3, 6]"), "x0! d1, x1! d1 -> y! d1 : (7, 6)");
  EXPECT_EQ(RuleAndShape("op: Concat, inputs: [x, w, x], axis: -1", "[4, 2]"),
            "d0 x0!, d0 x1!, d0 x2! -> d0 y! : (4, 14)");
  EXPECT_THAT(RuleAndShape("op: Concat, inputs: [x, w], axis: 1", "[3, 6]"),
              testing::HasSubstr("inputs[1]: found a tensor of shape (3, 6), wanted one that differs from (4, 6) in "
                                 "dim 1"));
  EXPECT_THAT(RuleAndShape("op: Concat, inputs: [x]"), testing::HasSubstr("found a list of 1, wanted 2 to 64 inputs"));
  EXPECT_EQ(RuleAndShape("op: StridedSlice, inputs: [x], begin: [0, 1], end: [4, 6], strides: [1, 2]"),
            "d0 x1! -> d0 y1! : (4, 3)");
  // Of a graph with half of the rows, the half of a dim that the file takes whole.
  EXPECT_EQ(RuleAndShape("op: StridedSlice, inputs: [x], begin: [0, 5], end: [4, 6]", "[6, 8]", 2),
            "d0 x1! -> d0 y1! : (2, 1)");
  EXPECT_THAT(RuleAndShape("op: StridedSlice, inputs: [x], begin: [0, 1], end: [4, 7]"),
              testing::HasSubstr("end[1]: found 7, wanted more than begin, 1, and at most 6"));
  EXPECT_THAT(RuleAndShape("op: StridedSlice, inputs: [x], begin: [0], end: [4, 7]"),
              testing::HasSubstr("begin: found a list of 1, wanted one number for each dim of (4, 6)"));
  EXPECT_THAT(RuleAndShape("op: Dropout, inputs: [x], rate: 1"), testing::HasSubstr("rate: found 1, wanted less"));
}

// A Split has a name for each part; all of them are used.
TEST(OperatorsTest, PartsOfASplit) {
  const auto build = [](absl::string_view split, absl::string_view second) {
    return Build(absl::StrCat(
        "inputs: {x: {shape: [4, 6]}, y: {shape: [4, 2]}}\nparameters: {p: {shape: [2]}}\noperators:\n",
        "  - {name: s, op: Split, inputs: [x], ", split, "}\n", "  - {name: a, op: Add, inputs: [s.0, ", second, "]}\n",
        "  - {name: b, op: Add, inputs: [a, s.2]}\n  - {name: c, op: Add, inputs: [b, p]}\n",
        "  - {name: loss, op: MSELoss, inputs: [c, y]}\n"));
  };
  ASSERT_OK_AND_ASSIGN(const Graph graph, build("axis: 1, parts: 3", "s.1"));
  const Op& split = graph.op(graph.FindOp("s"));
  EXPECT_EQ(ToText(split.rule), "d0 x! -> d0 y0!, d0 y1!, d0 y2!");
  EXPECT_EQ(graph.op(graph.FindOp("b")).inputs[1], split.outputs[2]);
  EXPECT_THAT(build("axis: 1, parts: 3", "s.0"), StatusIs(kInvalid, "found no operator that uses s.1, wanted one"));
  EXPECT_THAT(build("axis: 0, parts: 3", "s.1"), StatusIs(kInvalid, "parts: found 3, wanted a divisor of 4, dim 0"));
  EXPECT_THAT(build("axis: 1, parts: 3", "s"),
              StatusIs(kInvalid, "found \"s\", which has several parts, wanted one of them: s.0"));
}

TEST(OperatorsTest, TypesMustAgree) {
  EXPECT_THAT(Build(With("op: ReLU, inputs: [ids]")),
              StatusIs(kInvalid, "inputs[0]: found a tensor of int32, wanted one of a floating type"));
  EXPECT_THAT(Build(With("op: Gather, inputs: [table, x]")),
              StatusIs(kInvalid, "inputs[1]: found a tensor of float32, wanted one of integers"));
  const std::string mixed =
      "inputs: {x: {shape: [4], dtype: float16}}\nparameters: {w: {shape: [4]}}\noperators:\n"
      "  - {name: loss, op: MSELoss, inputs: [x, w]}\n";
  EXPECT_THAT(Build(mixed), StatusIs(kInvalid, "found a tensor of float32, wanted one of float16, as the others"));
  const std::string cast =
      "inputs: {x: {shape: [4], dtype: float16}}\nparameters: {w: {shape: [4]}}\noperators:\n"
      "  - {name: x32, op: Cast, dtype: float32, inputs: [x]}\n  - {name: loss, op: MSELoss, inputs: [x32, w]}\n";
  EXPECT_THAT(Build(cast), IsOk());
}

constexpr absl::string_view kClassifier = R"(inputs:
  x: {shape: [4, 6]}
  label: {shape: [4], dtype: int32, init: {tokens: 3}}
parameters: {w: {shape: [6, 3]}}
operators:
  - {name: logits, op: MatMul, inputs: [x, w]}
  - {name: loss, op: CrossEntropyLoss, inputs: [logits, label]}
)";

TEST(OperatorsTest, LossesAreMeansOverTheRowsOfTheMicroBatch) {
  ASSERT_OK_AND_ASSIGN(const Graph whole, Build(kClassifier));
  EXPECT_EQ(whole.op(whole.FindOp("loss")).attrs.scale, 0.25);
  ASSERT_OK_AND_ASSIGN(const Graph half, Build(kClassifier, 2));
  EXPECT_EQ(half.op(half.FindOp("loss")).attrs.scale, 0.5);
  EXPECT_EQ(half.loss, half.FindTensor("loss"));
  Training training;
  training.loss_reduction = LossReduction::kSum;
  ASSERT_OK_AND_ASSIGN(const Graph sum, Build(kClassifier, 4, 1, training));
  EXPECT_EQ(sum.op(sum.FindOp("loss")).attrs.scale, 1);
}

TEST(OperatorsTest, LossShapes) {
  EXPECT_THAT(Build("inputs: {x: {shape: [4, 6]}}\nparameters: {w: {shape: [6]}}\noperators:\n"
                    "  - {name: loss, op: MSELoss, inputs: [x, w]}\n"),
              StatusIs(kInvalid, "inputs[1]: found a tensor of shape (6), wanted one of (4, 6)"));
}

// The file of a chain of products x -> m0 -> m1 -> m2 -> m3 -> loss; `stages` says the stage of each, "-" none.
std::string Chain(const std::vector<absl::string_view>& stages) {
  std::string text = "inputs: {x: {shape: [4, 4]}}\nparameters:\n";
  for (size_t i = 0; i < 4; ++i) absl::StrAppend(&text, "  w", i, ": {shape: [4, 4]}\n");
  absl::StrAppend(&text, "operators:\n");
  for (size_t i = 0; i < 4; ++i) {
    absl::StrAppend(&text, "  - {name: m", i, ", op: MatMul, inputs: [", i == 0 ? "x" : absl::StrCat("m", i - 1), ", w",
                    i, "]", stages[i] == "-" ? "" : absl::StrCat(", pipeline_stage: ", stages[i]), "}\n");
  }
  absl::StrAppend(&text, "  - {name: loss, op: MSELoss, inputs: [m3, x]}\n");
  return text;
}

TEST(OperatorsTest, StagesBecomeSegments) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Build(Chain({"0", "-", "1", "-"}), 0, 2));
  ASSERT_EQ(graph.segments.size(), 2u);
  EXPECT_EQ(graph.segments[0].stage, 0);
  EXPECT_EQ(graph.segments[1].stage, 1);
  const auto segment_of = [&](absl::string_view op) { return graph.op(graph.FindOp(op)).segment.index(); };
  EXPECT_EQ(segment_of("m1"), 0u) << "takes over the stage of what it reads";
  EXPECT_EQ(segment_of("m3"), 1u);
  EXPECT_EQ(segment_of("loss"), 1u);
  EXPECT_EQ(graph.tensor(graph.FindTensor("w1")).segment.index(), 0u);
  EXPECT_EQ(graph.tensor(graph.FindTensor("w2")).segment.index(), 1u);
  // The first has none to read: it takes over its reader's.
  EXPECT_THAT(Build(Chain({"-", "0", "1", "1"}), 0, 2), IsOk());
}

// R24 of the error catalogue, and S12.2.
TEST(OperatorsTest, StagesMustBeInOrderAndUsed) {
  EXPECT_THAT(
      Build(Chain({"0", "1", "0", "1"}), 0, 2),
      StatusIs(kInvalid,
               "operators[2]: found \"m2\" of stage 0 after \"m1\" of stage 1, wanted stages that never decrease"));
  EXPECT_THAT(Build(Chain({"0", "0", "0", "0"}), 0, 2), StatusIs(kInvalid, "found no operator of stage 1"));
  EXPECT_THAT(Build(Chain({"0", "0", "2", "2"}), 0, 3), StatusIs(kInvalid, "wanted an operator of stage 1 before it"));
  EXPECT_THAT(Build(Chain({"1", "1", "1", "1"}), 0, 2), StatusIs(kInvalid, "wanted an operator of stage 0 before it"));
  EXPECT_THAT(Build(Chain({"-", "-", "-", "-"}), 0, 2), StatusIs(kInvalid, "found no pipeline_stage"));
  EXPECT_THAT(Build(Chain({"0", "0", "2", "2"}), 0, 2), StatusIs(kInvalid,
                                                                 "pipeline_stage: found \"2\", wanted an "
                                                                 "integer from 0 to 1"));
}

TEST(OperatorsTest, NamesMustBeKnownFreeAndUsed) {
  const auto error = [](absl::string_view from, absl::string_view to) {
    std::string text(kClassifier);
    text.replace(text.find(std::string(from)), from.size(), std::string(to));
    return std::string(Build(text).status().message());
  };
  EXPECT_EQ(
      error("inputs: [logits, label]", "inputs: [logit, label]"),
      "m.yaml:7:49: operators[1].inputs[0]: found \"logit\", wanted an input, a parameter or an earlier operator; did "
      "you mean \"logits\"?");
  EXPECT_THAT(error("name: logits", "name: w"), testing::HasSubstr("found \"w\", wanted a name that is not taken yet"));
  EXPECT_THAT(error("{w:", "{x: {shape: [6, 3]}, w:"), testing::HasSubstr("parameters.x: found \"x\""));
  EXPECT_THAT(error("{w:", "{v: {shape: [6, 3]}, w:"),
              testing::HasSubstr("parameters.v: found no operator that uses it"));
  EXPECT_THAT(error("{w:", "{'a b': {shape: [6, 3]}, w:"),
              testing::HasSubstr("found \"a b\", wanted a name of letters"));
  EXPECT_THAT(error("op: MatMul", "op: Matmul"), testing::HasSubstr("did you mean \"MatMul\"?"));
  EXPECT_THAT(error("op: MatMul", "op: Conv"), testing::HasSubstr("found \"Conv\", wanted one of MatMul"));
  EXPECT_THAT(error("inputs: [x, w]", "inputs: [x]"),
              testing::HasSubstr("found a list of 1, wanted 2 inputs for MatMul"));
  EXPECT_THAT(error("  - {name: loss, op: CrossEntropyLoss, inputs: [logits, label]}\n", ""),
              testing::HasSubstr("label: found no operator that uses it"));
  EXPECT_THAT(error("op: CrossEntropyLoss, inputs: [logits, label]", "op: Gather, inputs: [logits, label]"),
              testing::HasSubstr("found no loss at the end, wanted one loss, as the last operator"));
}

TEST(OperatorsTest, InputsShareTheBatch) {
  EXPECT_THAT(Build("inputs: {x: {shape: [4, 6]}, t: {shape: [5, 6]}}\nparameters: {}\noperators:\n"
                    "  - {name: loss, op: MSELoss, inputs: [x, t]}\n"),
              StatusIs(kInvalid, "inputs.t.shape[0]: found 5, wanted the batch of x, 4; dim 0 of every input"));
  EXPECT_THAT(Build("inputs: {x: {shape: []}}\nparameters: {}\noperators: []\n"), StatusIs(kInvalid, "found 0 dims"));
  EXPECT_THAT(Build("inputs: {x: {shape: [65536, 65536, 65537]}}\nparameters: {}\noperators: []\n"),
              StatusIs(kInvalid, "wanted at most 2^48 elements"));
}

TEST(OperatorsTest, OutputsThatAreTooLargeAreRefused) {
  EXPECT_THAT(Build("inputs: {x: {shape: [33554432, 1]}}\nparameters: {w: {shape: [1, 33554432]}}\noperators:\n"
                    "  - {name: y, op: MatMul, inputs: [x, w]}\n  - {name: loss, op: MSELoss, inputs: [y, y]}\n"),
              StatusIs(kInvalid, "found an output of shape (33554432, 33554432)"));  // 2^50
}

TEST(OperatorsTest, Initializers) {
  const auto init = [](absl::string_view text) -> absl::StatusOr<Initializer> {
    const absl::StatusOr<Graph> graph =
        Build(absl::StrCat("inputs: {x: {shape: [4]}}\nparameters: {w: {shape: [4], init: ", text,
                           "}}\noperators:\n  - {name: loss, op: MSELoss, inputs: [x, w]}\n"));
    if (!graph.ok()) return graph.status();
    return graph->tensor(graph->FindTensor("w")).init;
  };
  using Kind = Initializer::Kind;
  EXPECT_EQ(init("zeros")->value, 0);
  EXPECT_EQ(init("ones")->value, 1);
  EXPECT_EQ(init("{constant: 0.5}")->value, 0.5);
  EXPECT_EQ(init("normal")->kind, Kind::kNormal);
  EXPECT_EQ(init("normal")->value, 0.01);
  EXPECT_EQ(init("{normal: 0.02}")->value, 0.02);
  EXPECT_EQ(init("{uniform: [-1, 2]}")->low, -1);
  EXPECT_EQ(init("{uniform: [-1, 2]}")->high, 2);
  ASSERT_OK_AND_ASSIGN(const Initializer formula, init("{formula: {a: 7, b: 3, mod: 11, sub: 1, div: 12}}"));
  EXPECT_EQ(formula.kind, Kind::kFormula);
  EXPECT_EQ(formula.a, 7);
  EXPECT_EQ(formula.b, 3);
  EXPECT_EQ(formula.modulus, 11);
  EXPECT_EQ(formula.subtract, 1);
  EXPECT_EQ(formula.divide, 12);
  EXPECT_THAT(init("gaussian"), StatusIs(kInvalid, "init: found \"gaussian\", wanted one of constant, normal"));
  EXPECT_THAT(init("{uniform: [2, 1]}"), StatusIs(kInvalid, "wanted [low, high]"));
  EXPECT_THAT(init("{formula: {a: 7, mod: 0}}"), StatusIs(kInvalid, "mod: found \"0\""));
  EXPECT_THAT(init("{formula: {a: 7, mod: 3, div: 0}}"), StatusIs(kInvalid, "div: found 0"));
  EXPECT_THAT(init("constant"), StatusIs(kInvalid, "wanted a map with the key constant"));
  EXPECT_THAT(init("{zeros: 1}"), StatusIs(kInvalid, "found an option, wanted none"));
  EXPECT_THAT(init("data"), StatusIs(kInvalid, "found data"));
}

TEST(OperatorsTest, DataNeedsADataSet) {
  const std::string text =
      "inputs: {x: {shape: [4], init: data}}\nparameters: {w: {shape: [4]}}\noperators:\n"
      "  - {name: loss, op: MSELoss, inputs: [x, w]}\n";
  EXPECT_THAT(Build(text),
              StatusIs(kInvalid, "inputs.x.init: found data, wanted a data set; write it in training.data"));
  Training training;
  training.data = DataSet::kMnist;
  EXPECT_THAT(Build(text, 4, 1, training), IsOk());
  EXPECT_THAT(Build("inputs: {x: {shape: [4], dtype: int32}}\nparameters: {}\noperators: []\n"),
              StatusIs(kInvalid, "inputs.x.init: found nothing, wanted what the integers are"));
}

TEST(OperatorsTest, FlagsOfParameters) {
  ASSERT_OK_AND_ASSIGN(const Document document,
                       ParseDocument("inputs: {x: {shape: [4]}}\nparameters: {w: {shape: [4], trainable: false, "
                                     "layerwise_parallel: true, parallel_optimizer: false, comm_fusion: 2}}\n"
                                     "operators:\n  - {name: loss, op: MSELoss, inputs: [x, w]}\n",
                                     "m.yaml"));
  ASSERT_OK_AND_ASSIGN(const OperatorModel model, ReadOperators(document.root(), Training(), 1));
  const ParameterSpec& w = model.parameters[0];
  EXPECT_FALSE(w.trainable);
  EXPECT_TRUE(w.layerwise_parallel);
  EXPECT_FALSE(w.parallel_optimizer);
  EXPECT_EQ(w.comm_fusion, 2);
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildOperators(model, Training(), "g", 4));
  EXPECT_FALSE(graph.tensor(graph.FindTensor("w")).trainable);
}

TEST(OperatorsTest, OutStrategyNeedsAShard) {
  EXPECT_THAT(Build(With("op: MatMul, inputs: [x, w], out_strategy: [[4, 1]]")),
              StatusIs(kInvalid, "out_strategy: found it alone, wanted `shard` beside it"));
}

}  // namespace
}  // namespace meshwright
