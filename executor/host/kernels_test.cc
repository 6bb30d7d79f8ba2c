#include "executor/host/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/op_examples.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

using Numbers = std::vector<double>;

// A tensor and what it holds; `ids`: integers.
struct In {
  Shape shape;
  Numbers values;
  bool ids = false;
};

OwnedTensor Make(const In& in) {
  OwnedTensor tensor(in.ids ? DType::kInt32 : DType::kFloat64, in.shape);
  for (size_t i = 0; i < in.values.size(); ++i) tensor.Set(static_cast<int64_t>(i), in.values[i]);
  return tensor;
}

Numbers ValuesOf(const OwnedTensor& tensor) {
  Numbers values;
  for (int64_t i = 0; i < NumElements(tensor.shape); ++i) values.push_back(tensor.At(i));
  return values;
}

// The outputs of one kernel on whole tensors. An empty rule: the row's own.
absl::StatusOr<std::vector<Numbers>> RunOp(OpKind op, const std::string& rule_text, const std::vector<In>& inputs,
                                           const std::vector<Shape>& outputs, const OpAttrs& attrs = {},
                                           int64_t step = 1) {
  std::vector<Shape> shapes;
  std::vector<OwnedTensor> in, out;
  for (const In& input : inputs) {
    shapes.push_back(input.shape);
    in.push_back(Make(input));
  }
  for (const Shape& shape : outputs) out.emplace_back(DType::kFloat64, shape);
  MESHWRIGHT_ASSIGN_OR_RETURN(const IndexRule rule,
                              rule_text.empty() ? InstantiateRule(InfoOf(op).rule, shapes) : ParseRule(rule_text));
  std::vector<TensorView> reads, writes;
  for (OwnedTensor& tensor : in) reads.push_back(tensor.View());
  for (OwnedTensor& tensor : out) writes.push_back(tensor.View());
  MESHWRIGHT_RETURN_IF_ERROR(RunHostKernel({op, &attrs, &rule, 0, step, reads, writes}));
  std::vector<Numbers> values;
  for (const OwnedTensor& tensor : out) values.push_back(ValuesOf(tensor));
  return values;
}

// For kernels of one output.
Numbers RunOne(OpKind op, const std::string& rule, const std::vector<In>& inputs, const Shape& output,
               const OpAttrs& attrs = {}) {
  const absl::StatusOr<std::vector<Numbers>> values = RunOp(op, rule, inputs, {output}, attrs);
  EXPECT_OK(values.status());
  return values.ok() ? (*values)[0] : Numbers();
}

OpAttrs Scaled(double scale) {
  OpAttrs attrs;
  attrs.scale = scale;
  return attrs;
}

auto Near(const Numbers& values, double bound = 1e-12) {
  std::vector<::testing::Matcher<double>> matchers;
  for (const double value : values) matchers.push_back(DoubleNear(value, bound));
  return ElementsAreArray(matchers);
}

// ---- products ------------------------------------------------------------------------------------------------------

// The definition: every point of the space that all labels span adds a product to its element of the output.
Numbers Einsum(const OpCase& c, const Shape& extents) {
  Numbers out(static_cast<size_t>(NumElements(c.outputs[0].shape)), 0.0);
  const auto place = [&](const OperandRule& operand, const Shape& shape, const Shape& at) {
    int64_t index = 0;
    for (size_t d = 0; d < operand.size(); ++d)
      index = index * shape[d] + (operand[d].label < 0 ? 0 : at[operand[d].label]);
    return index;
  };
  Shape at(extents.size(), 0);
  for (int64_t i = 0; i < NumElements(extents); ++i) {
    const int64_t target = place(c.rule.outputs[0], c.outputs[0].shape, at);
    out[static_cast<size_t>(target)] += c.inputs[0].At(place(c.rule.inputs[0], c.inputs[0].shape, at)) *
                                        c.inputs[1].At(place(c.rule.inputs[1], c.inputs[1].shape, at));
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < extents[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

void ExpectMatMulIsEinsum(const OpExample& example) {
  OpCase c = MakeCase(example, 3);
  SCOPED_TRACE(c.text);
  std::vector<TensorView> reads, writes;
  for (OwnedTensor& tensor : c.inputs) reads.push_back(tensor.View());
  for (OwnedTensor& tensor : c.outputs) writes.push_back(tensor.View());
  ASSERT_OK(RunHostKernel({OpKind::kMatMul, &c.example.attrs, &c.rule, 0, 1, reads, writes}));
  std::vector<Shape> outputs = {c.outputs[0].shape};
  ASSERT_OK_AND_ASSIGN(const Shape extents, LabelExtents(c.rule, c.example.inputs, outputs));
  EXPECT_THAT(ValuesOf(c.outputs[0]), Near(Einsum(c, extents)));
}

TEST(MatMulTest, EqualsTheDefinitionOnTheTablesExamples) {
  for (const OpExample& example : ExamplesOf(OpKind::kMatMul)) {
    if (example.inputs.size() == 2) ExpectMatMulIsEinsum(example);
  }
}

// Any order of labels in any operand, labels of one operand only among them.
TEST(MatMulTest, EqualsTheDefinitionOnRandomRules) {
  std::mt19937 random(20240607);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(absl::StrCat("trial ", trial));
    const Shape sizes = {2, 3, 4, 1, 5, 2};
    std::vector<std::vector<int>> operands(3);
    for (int label = 0; label < 6; ++label) {
      const uint32_t where = random() % 8;  // a set of operands
      for (int o = 0; o < 3; ++o) {
        if ((where >> o & 1) != 0) operands[o].push_back(label);
      }
    }
    std::vector<std::string> texts;
    std::vector<Shape> shapes(3);
    for (int o = 0; o < 3; ++o) {
      std::shuffle(operands[o].begin(), operands[o].end(), random);
      texts.push_back(absl::StrJoin(operands[o], " ", [](std::string* out, int l) { out->append(1, "abcdef"[l]); }));
      for (int label : operands[o]) shapes[o].push_back(sizes[label]);
    }
    ExpectMatMulIsEinsum({OpKind::kMatMul,
                          absl::StrCat(texts[0], ", ", texts[1], " -> ", texts[2]),
                          {shapes[0], shapes[1]},
                          {},
                          {},
                          -1,
                          1,
                          {shapes[2]}});
  }
}

// (1 2)(5 6; 7 8) + (10 20) = (19 22) + (10 20)
TEST(MatMulTest, AddsItsBias) {
  EXPECT_THAT(RunOne(OpKind::kMatMul, "m k!, k! n, n -> m n",
                     {{{1, 2}, {1, 2}}, {{2, 2}, {5, 6, 7, 8}}, {{2}, {10, 20}}}, {1, 2}),
              ElementsAre(29, 42));
}

// ---- elementwise ---------------------------------------------------------------------------------------------------

TEST(ElementwiseTest, BroadcastsByLabels) {
  EXPECT_THAT(RunOne(OpKind::kSub, "", {{{2, 2}, {1, 2, 3, 4}}, {{2}, {10, 20}}}, {2, 2}),
              ElementsAre(-9, -18, -7, -16));
  EXPECT_THAT(RunOne(OpKind::kMul, "", {{{2, 1}, {2, 3}}, {{2, 2}, {1, 2, 3, 4}}}, {2, 2}), ElementsAre(2, 4, 9, 12));
  EXPECT_THAT(RunOne(OpKind::kDiv, "", {{{2}, {1, 9}}, {{2}, {4, 3}}}, {2}), ElementsAre(0.25, 3));
  EXPECT_THAT(RunOne(OpKind::kAdd, "", {{{2}, {1, 2}}, {{2}, {3, 4}}, {{2}, {5, 6}}, {{2}, {7, 8}}}, {2}),
              ElementsAre(16, 20));
}

// At x = 1: tanh 0.761594, sigmoid s = 1 / (1 + 1/e) = 0.731059, SiLU = s; GeLU's tanh form: 0.5 (1 + tanh(0.797885 *
// 1.044715)) = 0.5 (1 + tanh(0.833562)) = 0.841192. The bias moves x from 0 to 1.
TEST(ElementwiseTest, ActivationsAtOneWithABias) {
  const std::vector<In> inputs = {{{2}, {0, -2}}, {{2}, {1, 1}}};
  EXPECT_THAT(RunOne(OpKind::kRelu, "", inputs, {2}), ElementsAre(1, 0));
  EXPECT_NEAR(RunOne(OpKind::kTanh, "", inputs, {2})[0], 0.76159415595576489, 1e-15);
  EXPECT_NEAR(RunOne(OpKind::kSigmoid, "", inputs, {2})[0], 0.73105857863000488, 1e-15);
  EXPECT_NEAR(RunOne(OpKind::kSilu, "", inputs, {2})[0], 0.73105857863000488, 1e-15);
  EXPECT_NEAR(RunOne(OpKind::kGelu, "", inputs, {2})[0], 0.84119199060827676, 1e-10);
}

// silu(1) * 3 = 2.193176, silu(0) * 5 = 0
TEST(ElementwiseTest, SwigluGatesTheSecondHalfByTheFirst) {
  EXPECT_THAT(RunOne(OpKind::kSwiglu, "", {{{2, 2}, {1, 0, 3, 5}}}, {2}), Near({3 * 0.73105857863000488, 0}));
}

TEST(ElementwiseTest, FillWritesScaleAndCastConverts) {
  EXPECT_THAT(RunOne(OpKind::kFill, " -> n", {}, {2}, Scaled(2.5)), ElementsAre(2.5, 2.5));
  EXPECT_THAT(RunOne(OpKind::kCast, "", {{{2}, {3, -4}, true}}, {2}), ElementsAre(3, -4));
}

// ---- movement ------------------------------------------------------------------------------------------------------

TEST(MovementTest, GatherTakesRowsOfItsSliceAndGivesZeroElsewhere) {
  const auto rule = ParseRule("v h, s -> s h");
  OwnedTensor table = Make({{2, 2}, {1, 2, 3, 4}}), ids = Make({{3}, {2, 0, 3}, true}), out = Make({{3, 2}, {}});
  TensorView rows = table.View();  // rows 2 and 3 of four
  rows.global = {4, 2};
  rows.begin = {2, 0};
  const std::vector<TensorView> reads = {rows, ids.View()}, writes = {out.View()};
  const OpAttrs attrs;
  ASSERT_OK(RunHostKernel({OpKind::kGather, &attrs, &*rule, 0, 1, reads, writes}));
  EXPECT_THAT(ValuesOf(out), ElementsAre(1, 2, 0, 0, 3, 4));
}

TEST(MovementTest, RowsThatNoTableHasAreRefused) {
  EXPECT_THAT(RunOp(OpKind::kGather, "v h, s -> s h", {{{2, 1}, {1, 2}}, {{1}, {2}, true}}, {{1, 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "row 2 of a table that has 2 rows"));
  EXPECT_THAT(RunOp(OpKind::kGather, "v h, s -> s h", {{{2, 1}, {1, 2}}, {{1}, {1}}}, {{1, 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "row numbers are float64"));
}

TEST(MovementTest, GatherGradAddsRepeatedRows) {
  EXPECT_THAT(RunOne(OpKind::kGatherGrad, "s h, s -> v h", {{{3, 1}, {1, 2, 4}}, {{3}, {1, 0, 1}, true}}, {2, 1}),
              ElementsAre(2, 5));
}

TEST(MovementTest, TransposeReduceAndBroadcast) {
  const In x = {{2, 3}, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(RunOne(OpKind::kTranspose, "a b -> b a", {x}, {3, 2}), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(RunOne(OpKind::kReduceSum, "a b -> b", {x}, {3}, Scaled(0.5)), ElementsAre(2.5, 3.5, 4.5));
  EXPECT_THAT(RunOne(OpKind::kBroadcast, "b -> a b", {{{2}, {1, 2}}}, {2, 2}, Scaled(2)), ElementsAre(2, 4, 2, 4));
}

// ---- along the last dim --------------------------------------------------------------------------------------------

// softmax(0, ln 3) = (1/4, 3/4), with and without a large number added to both.
TEST(NormsTest, Softmax) {
  const double l = std::log(3.0);
  EXPECT_THAT(RunOne(OpKind::kSoftmax, "", {{{2, 2}, {0, l, 1000, 1000 + l}}}, {2, 2}), Near({0.25, 0.75, 0.25, 0.75}));
}

// (1, 3): mean 2, deviation 1, so (-1, 1) * 2 + 1. (3, 4): mean square 12.5, so (3, 4) / sqrt(12.5).
TEST(NormsTest, LayerNormAndRmsNorm) {
  OpAttrs attrs;
  attrs.epsilon = 0;
  EXPECT_THAT(RunOne(OpKind::kLayerNorm, "", {{{1, 2}, {1, 3}}, {{2}, {2, 2}}, {{2}, {1, 1}}}, {1, 2}, attrs),
              Near({-1, 3}));
  EXPECT_THAT(RunOne(OpKind::kRmsNorm, "", {{{1, 2}, {3, 4}}, {{2}, {1, 1}}}, {1, 2}, attrs),
              Near({0.84852813742385702, 1.1313708498984761}));
}

// ---- losses --------------------------------------------------------------------------------------------------------

// ((1-0)^2 + (2-4)^2) / 2 = 2.5
TEST(LossesTest, MseIsTheScaledSumOfSquares) {
  EXPECT_THAT(RunOne(OpKind::kMseLoss, "", {{{2}, {1, 2}}, {{2}, {0, 4}}}, {}, Scaled(0.5)), ElementsAre(2.5));
}

// -ln(3/4) for label 1 of logits (0, ln 3), -ln(1/4) for label 0; half of their sum is 0.836988.
TEST(LossesTest, CrossEntropyWholeAndInThreeStepsAgree) {
  const double l = std::log(3.0), want = 0.5 * (std::log(4.0 / 3) + std::log(4.0));
  const In logits = {{2, 2}, {0, l, 0, l}}, labels = {{2}, {1, 0}, true};
  EXPECT_THAT(RunOne(OpKind::kCrossEntropy, "", {logits, labels}, {}, Scaled(0.5)), Near({want}));
  const Numbers top = RunOne(OpKind::kRowMax, "", {logits}, {2});
  EXPECT_THAT(top, ElementsAre(l, l));
  ASSERT_OK_AND_ASSIGN(const auto partials,
                       RunOp(OpKind::kExpSumAndPick, "", {logits, {{2}, top}, labels}, {{2}, {2}}));
  EXPECT_THAT(partials[0], Near({4.0 / 3, 4.0 / 3}));  // e^(0 - ln 3) + e^0
  EXPECT_THAT(partials[1], ElementsAre(l, 0));
  EXPECT_THAT(
      RunOne(OpKind::kLossFromPartials, "", {{{2}, top}, {{2}, partials[0]}, {{2}, partials[1]}}, {}, Scaled(0.5)),
      Near({want}));
}

// Logits (0, ln 3 | ln 2, 0) in two parts, label 2: e^0 + e^ln 3 less ln 3 is 4/3, e^ln 2 + e^0 less ln 2 is 3/2; less
// ln 3 both are (1 + 3 + 2 + 1) / 3. A part that is masked sums to 0.
TEST(LossesTest, PartialsOfPartsAreJoined) {
  const double l2 = std::log(2.0), l3 = std::log(3.0), masked = -std::numeric_limits<double>::infinity();
  const In logits = {{2, 4}, {0, l3, l2, 0, masked, masked, 0, 0}}, labels = {{2}, {2, 3}, true};
  const std::string rule = "r v, r -> r =v, r =v, r =v";
  ASSERT_OK_AND_ASSIGN(const auto parts, RunOp(OpKind::kRowPartials, rule, {logits, labels}, {{2, 2}, {2, 2}, {2, 2}}));
  EXPECT_THAT(parts[0], ElementsAre(l3, l2, masked, 0));
  EXPECT_THAT(parts[1], Near({4.0 / 3, 1.5, 0, 2}));
  EXPECT_THAT(parts[2], ElementsAre(0, l2, 0, 0));
  const std::vector<In> all = {{{2, 2}, parts[0]}, {{2, 2}, parts[1]}, {{2, 2}, parts[2]}, {{2}, {l3, 0}}};
  ASSERT_OK_AND_ASSIGN(const auto joined, RunOp(OpKind::kJoinPartials, "", all, {{2}, {2}}));
  EXPECT_THAT(joined[0], Near({7.0 / 3, 2}));
  EXPECT_THAT(joined[1], ElementsAre(l2, 0));
}

TEST(LossesTest, LabelsThatNameNoClassAreRefused) {
  EXPECT_THAT(RunOp(OpKind::kCrossEntropy, "", {{{1, 2}, {0, 0}}, {{1}, {2}, true}}, {{}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "label 2 is none of the 2 classes"));
}

// ---- mixture of experts --------------------------------------------------------------------------------------------

// Three tokens (1, 2, 3) of one sequence, two experts with two slots each, one choice. All prefer expert 0: the third
// finds no slot.
TEST(MoeTest, TokensBeyondTheCapacityAreDropped) {
  OpAttrs attrs;
  attrs.top_k = 1;
  const In tokens = {{3, 1, 1}, {1, 2, 3}}, logits = {{3, 1, 2}, {1, 0, 1, 0, 1, 0}};
  EXPECT_THAT(RunOne(OpKind::kDispatch, "", {tokens, logits}, {2, 2, 1}, attrs), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(RunOne(OpKind::kCombine, "", {{{2, 2, 1}, {10, 20, 30, 40}}, logits}, {3, 1, 1}, attrs),
              ElementsAre(10, 20, 0));
}

// Two choices each: token 0 prefers expert 1, token 1 expert 0. One slot per expert: first choices take it, second
// choices find none. Gates of logits (0, ln 3) are (1/4, 3/4).
TEST(MoeTest, FirstChoicesComeBeforeSecondOnesAndGatesWeigh) {
  OpAttrs attrs;
  attrs.top_k = 2;
  const double l = std::log(3.0);
  const In tokens = {{2, 1, 1}, {5, 7}}, logits = {{2, 1, 2}, {0, l, l, 0}};
  EXPECT_THAT(RunOne(OpKind::kDispatch, "", {tokens, logits}, {2, 1, 1}, attrs), ElementsAre(7, 5));
  EXPECT_THAT(RunOne(OpKind::kCombine, "", {{{2, 1, 1}, {100, 200}}, logits}, {2, 1, 1}, attrs), Near({150, 75}));
}

// The best expert is 0, but the two of the second group have 4 + 3 against 5 + 0.
TEST(MoeTest, ExpertsAreOfTheBestGroups) {
  OpAttrs attrs;
  attrs.top_k = 1;
  attrs.choice_groups = 2;
  const In tokens = {{1, 1, 1}, {9}}, logits = {{1, 1, 4}, {5, 0, 4, 3}};
  EXPECT_THAT(RunOne(OpKind::kDispatch, "", {tokens, logits}, {4, 1, 1}, attrs), ElementsAre(0, 0, 9, 0));
  attrs.top_choice_groups = 2;
  EXPECT_THAT(RunOne(OpKind::kDispatch, "", {tokens, logits}, {4, 1, 1}, attrs), ElementsAre(9, 0, 0, 0));
}

// Two sequences, two slots per expert: one each, so the second token of sequence 0 cannot take sequence 1's slot.
TEST(MoeTest, EverySequenceHasSlotsOfItsOwn) {
  OpAttrs attrs;
  attrs.top_k = 1;
  const In tokens = {{2, 2, 1}, {1, 10, 2, 20}}, logits = {{2, 2, 1}, {0, 0, 0, 0}};
  EXPECT_THAT(RunOne(OpKind::kDispatch, "", {tokens, logits}, {1, 2, 1}, attrs), ElementsAre(1, 10));
}

// ---- optimizers ----------------------------------------------------------------------------------------------------

OpAttrs Rate(double rate) {
  OpAttrs attrs;
  attrs.learning_rate = rate;
  return attrs;
}

TEST(PiecesTest, ConcatAndSplitAreEachOthersInverse) {
  ASSERT_OK_AND_ASSIGN(const auto joined, RunOp(OpKind::kConcat, "b x!, b y! -> b z!",
                                                {{{2, 1}, {1, 2}}, {{2, 2}, {3, 4, 5, 6}}}, {{2, 3}}));
  EXPECT_THAT(joined, ElementsAre(ElementsAre(1, 3, 4, 2, 5, 6)));
  ASSERT_OK_AND_ASSIGN(const auto parts,
                       RunOp(OpKind::kSplit, "b z! -> b x!, b y!", {{{2, 3}, {1, 3, 4, 2, 5, 6}}}, {{2, 1}, {2, 2}}));
  EXPECT_THAT(parts, ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4, 5, 6)));
  EXPECT_THAT(RunOp(OpKind::kConcat, "x!, y! -> z!", {{{1}, {1}}, {{1}, {2}}}, {{3}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "the pieces do not make up dim 0 of (3)"));
}

TEST(PiecesTest, StridedSlicesAndTheirGradient) {
  OpAttrs attrs;
  attrs.begin = {0, 1};
  attrs.strides = {1, 2};
  ASSERT_OK_AND_ASSIGN(const auto slice, RunOp(OpKind::kStridedSlice, "b x! -> b y!",
                                               {{{2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}}}, {{2, 2}}, attrs));
  EXPECT_THAT(slice, ElementsAre(ElementsAre(1, 3, 5, 7)));
  ASSERT_OK_AND_ASSIGN(const auto zeros,
                       RunOp(OpKind::kStridedSliceGrad, "b y! -> b x!", {{{2, 2}, {1, 3, 5, 7}}}, {{2, 4}}, attrs));
  EXPECT_THAT(zeros, ElementsAre(ElementsAre(0, 1, 0, 3, 0, 5, 0, 7)));
  EXPECT_THAT(RunOp(OpKind::kStridedSlice, "x! y! -> v! w!", {{{1, 4}, {0, 1, 2, 3}}}, {{1, 3}}, attrs),
              StatusIs(absl::StatusCode::kInvalidArgument, "from 1 by 2: there are no 3 of 4 elements of dim 1"));
}

TEST(PiecesTest, OneHotsAndExtrema) {
  ASSERT_OK_AND_ASSIGN(const auto ones, RunOp(OpKind::kOneHot, "b -> b c", {{{2}, {2, 0}, true}}, {{2, 3}}));
  EXPECT_THAT(ones, ElementsAre(ElementsAre(0, 0, 1, 1, 0, 0)));
  ASSERT_OK_AND_ASSIGN(const auto most, RunOp(OpKind::kReduceMax, "b x -> b", {{{2, 2}, {-3, -1, 4, 2}}}, {{2}}));
  EXPECT_THAT(most, ElementsAre(ElementsAre(-1, 4)));
  ASSERT_OK_AND_ASSIGN(const auto least, RunOp(OpKind::kReduceMin, "b x -> x", {{{2, 2}, {3, 1, 4, 2}}}, {{2}}));
  EXPECT_THAT(least, ElementsAre(ElementsAre(3, 1)));
  ASSERT_OK_AND_ASSIGN(const auto equal, RunOp(OpKind::kEqual, "", {{{2, 2}, {3, 1, 4, 2}}, {{2}, {3, 2}}}, {{2, 2}}));
  EXPECT_THAT(equal, ElementsAre(ElementsAre(1, 0, 0, 1)));
}

// Elements are 0 or divided by the share that stays; about the right share, another mask for every stream and step.
TEST(DropoutTest, MasksAreDrawnBySeedStreamAndStep) {
  const Numbers x(4000, 3);
  OpAttrs attrs;
  attrs.rate = 0.25;
  const auto draw = [&](int64_t stream, int64_t step) {
    attrs.stream = stream;
    const auto values = RunOp(OpKind::kDropout, "", {{{4000}, x}}, {{4000}}, attrs, step);
    EXPECT_OK(values);
    return values.ok() ? values->at(0) : Numbers();
  };
  const Numbers first = draw(1, 1);
  const auto zeros = std::count(first.begin(), first.end(), 0);
  EXPECT_EQ(std::count(first.begin(), first.end(), 3 / 0.75), 4000 - zeros);
  EXPECT_NEAR(static_cast<double>(zeros), 1000, 5 * 27.4);  // five deviations: sqrt(4000 * 0.25 * 0.75) = 27.4
  EXPECT_EQ(draw(1, 1), first);
  EXPECT_NE(draw(2, 1), first);
  EXPECT_NE(draw(1, 2), first);
}

TEST(OptimizersTest, SgdStepsAgainstTheGradientAndMayCopy) {
  ASSERT_OK_AND_ASSIGN(const auto values, RunOp(OpKind::kSgd, "", {{{1}, {3}}, {{1}, {2}}}, {{1}, {1}}, Rate(0.5)));
  EXPECT_THAT(values, ElementsAre(ElementsAre(2), ElementsAre(2)));
}

// u = 0.5 * 4 + 2 = 4, w = 3 - 0.25 * 4 = 2
TEST(OptimizersTest, MomentumKeepsAVelocity) {
  OpAttrs attrs = Rate(0.25);
  attrs.beta1 = 0.5;
  ASSERT_OK_AND_ASSIGN(const auto values,
                       RunOp(OpKind::kMomentum, "", {{{1}, {3}}, {{1}, {2}}, {{1}, {4}}}, {{1}, {1}}, attrs));
  EXPECT_THAT(values, ElementsAre(ElementsAre(2), ElementsAre(4)));
}

// u = 0.5 * 4 + 2 = 4, and the step looks ahead: 2 + 0.5 * 4 = 4; the parameter plays no part. Then 3 - 0.25 * (2 * -1
// + 0.5 * 3) = 3.125. Where the step is skipped, u and the parameter stay, and the step is zero.
TEST(OptimizersTest, MuonsTwoSteps) {
  OpAttrs attrs = Rate(0.25);
  attrs.beta1 = 0.5;
  attrs.scale = 2;
  attrs.weight_decay = 0.5;
  const std::vector<In> step = {{{1}, {3}}, {{1}, {2}}, {{1}, {4}}}, apply = {{{1}, {3}}, {{1}, {-1}}};
  ASSERT_OK_AND_ASSIGN(const auto made, RunOp(OpKind::kMuonStep, "", step, {{1}, {1}}, attrs));
  EXPECT_THAT(made, ElementsAre(ElementsAre(4), ElementsAre(4)));
  ASSERT_OK_AND_ASSIGN(const auto applied, RunOp(OpKind::kMuon, "", apply, {{1}, {1}}, attrs));
  EXPECT_THAT(applied, ElementsAre(ElementsAre(3.125), ElementsAre(3.125)));  // and a copy
  const auto skipped = [](std::vector<In> inputs) {
    inputs.push_back({{}, {0}});
    inputs.push_back({{}, {1}});
    return inputs;
  };
  ASSERT_OK_AND_ASSIGN(const auto none, RunOp(OpKind::kMuonStep, " -> ", skipped(step), {{1}, {1}}, attrs));
  EXPECT_THAT(none, ElementsAre(ElementsAre(0), ElementsAre(4)));
  ASSERT_OK_AND_ASSIGN(const auto kept, RunOp(OpKind::kMuon, " -> ", skipped(apply), {{1}, {1}}, attrs));
  EXPECT_THAT(kept, ElementsAre(ElementsAre(3), ElementsAre(3)));
}

// Step 1 from zero state: both corrected averages are g and g^2, so the direction is g / |g| = -1 whatever the betas:
// w = 3 - 0.5 * (-1 + 0.1 * 3) = 3.35. Step 2 with g = -2 again and beta 0.5: averages stay -2 and 4, direction -1.
TEST(OptimizersTest, AdamWCorrectsItsAveragesByTheStep) {
  OpAttrs attrs = Rate(0.5);
  attrs.beta1 = 0.5;
  attrs.beta2 = 0.75;
  attrs.epsilon = 0;
  attrs.weight_decay = 0.1;
  ASSERT_OK_AND_ASSIGN(const auto first, RunOp(OpKind::kAdamW, "", {{{1}, {3}}, {{1}, {-2}}, {{1}, {0}}, {{1}, {0}}},
                                               {{1}, {1}, {1}, {1}}, attrs, 1));
  EXPECT_THAT(first, ElementsAre(Near({3.35}), Near({-1}), Near({1}), Near({3.35})));
  ASSERT_OK_AND_ASSIGN(const auto second, RunOp(OpKind::kAdamW, "", {{{1}, {0}}, {{1}, {-2}}, {{1}, {-1}}, {{1}, {1}}},
                                                {{1}, {1}, {1}}, attrs, 2));
  EXPECT_THAT(second, ElementsAre(Near({0.5}), Near({-1.5}), Near({1.75})));
}

// In one call as one after the other, also where the step is skipped; a copy of each beside it.
TEST(OptimizersTest, SeveralParametersInOneCall) {
  for (const double factor : {0.5, 0.0}) {
    OpAttrs attrs = Rate(0.25);
    attrs.beta1 = 0.5;
    const In scale = {{}, {factor}}, skipped = {{}, {1}};
    const std::vector<In> first = {{{2}, {3, 5}}, {{2}, {2, 4}}, {{2}, {4, 6}}};
    const std::vector<In> second = {{{1}, {7}}, {{1}, {-2}}, {{1}, {1}}};
    std::vector<Numbers> expected;
    for (const std::vector<In>& one : {first, second}) {
      std::vector<In> inputs = one;
      inputs.insert(inputs.end(), {scale, skipped});
      ASSERT_OK_AND_ASSIGN(const auto values,
                           RunOp(OpKind::kMomentum, " -> ", inputs, std::vector<Shape>(3, one[0].shape), attrs, 3));
      expected.insert(expected.end(), values.begin(), values.end());
    }
    EXPECT_EQ(expected[0], factor == 0 ? Numbers({3, 5}) : Numbers({3 - 0.25 * 3, 5 - 0.25 * 5}));
    attrs.tensors = 2;
    std::vector<In> both = first;
    both.insert(both.end(), second.begin(), second.end());
    both.insert(both.end(), {scale, skipped});
    ASSERT_OK_AND_ASSIGN(const auto values,
                         RunOp(OpKind::kMomentum, " -> ", both, {{2}, {2}, {2}, {1}, {1}, {1}}, attrs, 3));
    EXPECT_EQ(values, expected);
    both.pop_back();
    EXPECT_THAT(RunOp(OpKind::kMomentum, " -> ", both, {{2}, {2}, {2}, {1}, {1}, {1}}, attrs, 3),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "Momentum: has 7 inputs and 6 outputs, which are not of 2 parameters"));
  }
}

// LAMB's norms are of each parameter alone, and of a copy.
TEST(OptimizersTest, LambOfSeveralParametersInOneCall) {
  OpAttrs attrs = Rate(0.25);
  attrs.beta1 = 0.5;
  attrs.beta2 = 0.75;
  const std::vector<In> first = {{{2}, {3, 5}}, {{2}, {2, 4}}, {{2}, {4, 6}}, {{2}, {1, 2}}};
  const std::vector<In> second = {{{1}, {7}}, {{1}, {-2}}, {{1}, {1}}, {{1}, {3}}};
  std::vector<Numbers> steps, weights;
  std::vector<In> all, half;
  for (const std::vector<In>& one : {first, second}) {
    const Shape& shape = one[0].shape;
    ASSERT_OK_AND_ASSIGN(const auto made,
                         RunOp(OpKind::kLambStep, " -> ", one, {shape, shape, shape, {}, {}}, attrs, 3));
    steps.insert(steps.end(), made.begin(), made.end());
    const std::vector<In> apply = {one[0], {shape, made[0]}, {{}, made[3]}, {{}, made[4]}};
    ASSERT_OK_AND_ASSIGN(const auto applied, RunOp(OpKind::kLamb, " -> ", apply, {shape, shape}, attrs, 3));
    weights.insert(weights.end(), applied.begin(), applied.end());
    all.insert(all.end(), one.begin(), one.end());
    half.insert(half.end(), apply.begin(), apply.end());
  }
  attrs.tensors = 2;
  const std::vector<Shape> made = {{2}, {2}, {2}, {}, {}, {1}, {1}, {1}, {}, {}};
  ASSERT_OK_AND_ASSIGN(const auto all_steps, RunOp(OpKind::kLambStep, " -> ", all, made, attrs, 3));
  EXPECT_EQ(all_steps, steps);
  ASSERT_OK_AND_ASSIGN(const auto all_weights, RunOp(OpKind::kLamb, " -> ", half, {{2}, {2}, {1}, {1}}, attrs, 3));
  EXPECT_EQ(all_weights, weights);
}

// ---- what does not fit ---------------------------------------------------------------------------------------------

// You et al., arXiv:1904.00962, with beta1 1/2, beta2 3/4, epsilon 1 and decay 0.1, by hand.
TEST(KernelsTest, Lamb) {
  OpAttrs attrs;
  attrs.learning_rate = 0.5;
  attrs.beta1 = 0.5;
  attrs.beta2 = 0.75;
  attrs.epsilon = 1;
  attrs.weight_decay = 0.1;
  // m = -1, v = 1; corrected -2 and 4; the step is -2 / (2 + 1) + 0.1 * 3; sums of squares 9 and that of the step.
  const double step = -2.0 / 3 + 0.3;
  ASSERT_OK_AND_ASSIGN(const auto first,
                       RunOp(OpKind::kLambStep, "n, n, n, n -> n, n, n, , ",
                             {{{1}, {3}}, {{1}, {-2}}, {{1}, {0}}, {{1}, {0}}}, {{1}, {1}, {1}, {}, {}}, attrs, 1));
  EXPECT_THAT(first, ElementsAre(Near({step}), Near({-1}), Near({1}), Near({9}), Near({step * step})));
  // |w| = 5 and |step| = 2: 2.5 times the step times 0.5.
  ASSERT_OK_AND_ASSIGN(
      const auto second,
      RunOp(OpKind::kLamb, "n, n, ,  -> n", {{{2}, {3, 4}}, {{2}, {2, 0}}, {{}, {25}}, {{}, {4}}}, {{2}}, attrs, 1));
  EXPECT_THAT(second, ElementsAre(Near({0.5, 4})));
  // Where a norm is 0 the quotient is 1.
  ASSERT_OK_AND_ASSIGN(const auto zero, RunOp(OpKind::kLamb, "n, n, ,  -> n",
                                              {{{1}, {0}}, {{1}, {2}}, {{}, {0}}, {{}, {4}}}, {{1}}, attrs, 1));
  EXPECT_THAT(zero, ElementsAre(Near({-1})));
}

TEST(KernelsTest, OperandsMustFitTheRule) {
  EXPECT_THAT(RunOp(OpKind::kMatMul, "m k, k n -> m n", {{{1, 2}, {1, 2}}, {{3, 1}, {1, 2, 3}}}, {{1, 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "MatMul: k is 2 in input 0 and 3 in input 1"));
  EXPECT_THAT(RunOp(OpKind::kReshape, "a! -> b!", {{{4}, {1, 2, 3, 4}}}, {{3}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "Reshape: (4) cannot be seen as (3)"));
  EXPECT_THAT(RunOp(OpKind::kSwiglu, "t! f -> f", {{{3, 1}, {1, 2, 3}}}, {{1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "extent 2"));
  EXPECT_THAT(RunOp(OpKind::kSgd, "", {{{2}, {1, 2}}, {{1}, {1}}}, {{2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "SGD: an operand is (1), the parameter (2)"));
  EXPECT_THAT(RunOp(OpKind::kFeed, " -> n", {}, {{2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "the runner feeds"));
}

// A kernel computes in the widest type of its operands, at least float32, and rounds what it stores.
TEST(KernelsTest, NarrowTypesAreRoundedWhenTheyAreStored) {
  OwnedTensor one = Make({{1}, {1 + 0x1p-11 + 0x1p-30}}), other(DType::kFloat32, {1}), half(DType::kFloat16, {1});
  const OpAttrs attrs;
  ASSERT_OK_AND_ASSIGN(const IndexRule rule, ParseRule("n -> n"));
  const std::vector<TensorView> in = {one.View()}, single = {other.View()}, small = {half.View()};
  ASSERT_OK(RunHostKernel({OpKind::kScale, &attrs, &rule, 0, 1, in, single}));
  EXPECT_EQ(*other.View().as<float>(), 1 + 0x1p-11f);
  ASSERT_OK(RunHostKernel({OpKind::kScale, &attrs, &rule, 0, 1, single, small}));
  EXPECT_EQ(*half.View().as<uint16_t>(), 0x3c00);  // halfway from 1 to the next: the even one
  OwnedTensor tiny(DType::kFloat8, {1});
  const std::vector<TensorView> eight = {tiny.View()};
  EXPECT_THAT(RunHostKernel({OpKind::kScale, &attrs, &rule, 0, 1, in, eight}),
              StatusIs(absl::StatusCode::kUnimplemented, "float8"));
}

}  // namespace
}  // namespace meshwright
