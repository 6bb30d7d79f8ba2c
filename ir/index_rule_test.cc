#include "ir/index_rule.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/op_list.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

IndexRule Rule(const std::string& text) {
  absl::StatusOr<IndexRule> rule = ParseRule(text);
  EXPECT_OK(rule) << text;
  return rule.ok() ? *rule : IndexRule();
}

std::string Instantiated(absl::string_view row, const std::vector<Shape>& inputs) {
  const absl::StatusOr<IndexRule> rule = InstantiateRule(row, inputs);
  return rule.ok() ? ToText(*rule) : std::string(rule.status().message());
}

TEST(ParseRuleTest, LabelsStandInOrderOfFirstAppearance) {
  const IndexRule rule = Rule("m k, k n -> m n");
  ASSERT_EQ(rule.labels.size(), 3u);
  EXPECT_EQ(rule.labels[0].name, "m");
  EXPECT_EQ(rule.labels[1].name, "k");
  EXPECT_EQ(rule.labels[2].name, "n");
  EXPECT_EQ(rule.FindLabel("n"), 2);
  EXPECT_EQ(rule.FindLabel("x"), -1);
  EXPECT_TRUE(rule.InInputs(1));
  EXPECT_FALSE(rule.InOutput(1, 0));
  EXPECT_TRUE(rule.InOutput(2, 0));
}

TEST(ParseRuleTest, MarksOfOneOccurrenceHoldForTheLabel) {
  const IndexRule rule = Rule("s b h!, h -> s b h");
  EXPECT_TRUE(rule.labels[2].whole);
  EXPECT_FALSE(rule.labels[0].whole);
  EXPECT_EQ(ToText(rule), "s b h!, h! -> s b h!");
}

TEST(ParseRuleTest, OwnSizesAndOnes) {
  const IndexRule rule = Rule("s! b h, 1 e -> e =b 1");
  EXPECT_TRUE(rule.outputs[0][1].own_size);
  EXPECT_EQ(rule.outputs[0][1].label, rule.FindLabel("b"));
  EXPECT_EQ(rule.outputs[0][2].label, DimRule::kUnsplit);
  EXPECT_EQ(rule.inputs[1][0].label, DimRule::kUnsplit);
}

TEST(ParseRuleTest, EqualTextsShareARule) {
  ASSERT_OK_AND_ASSIGN(const Shared<IndexRule> first, ParsedRule("m k, k n -> m n"));
  ASSERT_OK_AND_ASSIGN(Shared<IndexRule> second, ParsedRule("m k, k n -> m n"));
  EXPECT_EQ(&*first, &*second);
  EXPECT_EQ(*first, Rule("m k, k n -> m n"));
  second.Change([](IndexRule& own) { own.labels[0].whole = true; });
  ASSERT_OK_AND_ASSIGN(const Shared<IndexRule> third, ParsedRule("m k, k n -> m n"));
  EXPECT_EQ(third, first) << "who changes a rule changes it for nobody else";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ParsedRule("m k").status(), ParseRule("m k").status()) << "errors stay errors";
}

TEST(ParseRuleTest, RoundTrips) {
  for (const std::string text : {"m k, k n -> m n", "s! b h, s! b e! -> e! =b h", "a 1 -> 1 a", " -> ", " -> d0 d1",
                                 ", a -> a", "a, b -> , a b", "s b v, s b, b s -> s b, s b"}) {
    EXPECT_EQ(ToText(Rule(text)), text);
  }
}

TEST(ParseRuleTest, Errors) {
  EXPECT_THAT(ParseRule("m k, k n"), StatusIs(kInvalid, "written inputs -> outputs, found \"m k, k n\""));
  EXPECT_THAT(ParseRule(""), StatusIs(kInvalid, "written inputs -> outputs"));
  EXPECT_THAT(ParseRule("m* -> m"), StatusIs(kInvalid, "\"m* \" is not a list of labels"));
  EXPECT_THAT(ParseRule("a -> b -> c"), StatusIs(kInvalid, "is not a list of labels"));
  EXPECT_THAT(ParseRule("a -> !"), StatusIs(kInvalid, "is not a list of labels"));
  EXPECT_THAT(ParseRule("... -> ..."), StatusIs(kInvalid, "is not a list of labels"));
  std::string many;
  for (int i = 0; i < 102; ++i) absl::StrAppend(&many, " a", i);
  EXPECT_THAT(ParseRule(absl::StrCat(many, " -> ")), StatusIs(kInvalid, "at most 100 labels"));
}

TEST(InstantiateRuleTest, DotsStandForLeadingDims) {
  EXPECT_EQ(Instantiated("... -> ...", {{4, 2}}), "d0 d1 -> d0 d1");
  EXPECT_EQ(Instantiated("... c! -> ... c!", {{4, 2, 8}}), "d0 d1 c! -> d0 d1 c!");
  EXPECT_EQ(Instantiated("... c! -> ... c!", {{8}}), "c! -> c!");
  EXPECT_EQ(Instantiated("... h!, h! -> ... h!", {{4, 8}, {8}}), "d0 h!, h! -> d0 h!");
  EXPECT_EQ(Instantiated("... t! f -> ... f", {{4, 2, 8}}), "d0 t! f -> d0 f");
  EXPECT_EQ(Instantiated("..., ... -> ", {{4, 2}, {4, 2}}), "d0 d1, d0 d1 -> ");
  EXPECT_EQ(Instantiated(", ..., ... -> ...", {{}, {4}, {4}}), ", d0, d0 -> d0");
}

// S5.11: dims are aligned on the right; one of size 1 beside a larger one is not split, and neither is a missing one.
TEST(InstantiateRuleTest, Broadcasting) {
  EXPECT_EQ(Instantiated("..., ... -> ...", {{256, 64}, {64}}), "d0 d1, d1 -> d0 d1");
  EXPECT_EQ(Instantiated("..., ... -> ...", {{256, 64}, {1, 64}}), "d0 d1, 1 d1 -> d0 d1");
  EXPECT_EQ(Instantiated("..., ... -> ...", {{64}, {256, 64}}), "d1, d0 d1 -> d0 d1");
  EXPECT_EQ(Instantiated("..., ... -> ...", {{4, 1}, {1, 8}}), "d0 1, 1 d1 -> d0 d1");
  EXPECT_EQ(Instantiated("..., ... -> ...", {{1, 8}, {1, 8}}), "d0 d1, d0 d1 -> d0 d1");
  EXPECT_EQ(Instantiated("..., ... -> ...", {{4, 8}, {}}), "d0 d1,  -> d0 d1");
}

TEST(InstantiateRuleTest, AnyNumberOfInputs) {
  EXPECT_EQ(Instantiated("..., ..., * -> ...", {{4}, {4}, {4}, {4}}), "d0, d0, d0, d0 -> d0");
  EXPECT_EQ(Instantiated("..., ..., * -> ...", {{4}}), "d0 -> d0");
  EXPECT_EQ(Instantiated("..., * -> ...", {{4, 2}, {2}}), "d0 d1, d1 -> d0 d1");
}

TEST(InstantiateRuleTest, Errors) {
  EXPECT_EQ(Instantiated("..., ... -> ...", {{4}}), "takes 2 inputs (..., ... -> ...), found 1");
  EXPECT_EQ(Instantiated("..., * -> ...", {}), "takes 1 inputs (..., * -> ...), found 0");
  EXPECT_EQ(Instantiated("... t! f -> ... f", {{4}}), "input 0 is (4), wanted at least 2 dims (... t! f -> ... f)");
  EXPECT_EQ(Instantiated("s b h -> h", {{4, 2}}), "input 0 is (4, 2), wanted 3 dims (s b h -> h)");
}

TEST(LabelExtentsTest, FromAnyOperand) {
  const IndexRule rule = Rule("m k, k n -> m n");
  ASSERT_OK_AND_ASSIGN(const Shape extents, LabelExtents(rule, {Shape{16, 32}, Shape{32, 8}}, {}));
  EXPECT_THAT(extents, ElementsAre(16, 32, 8));
  EXPECT_THAT(InferShapes(rule, extents), ElementsAre(Shape{16, 8}));
}

// Labels of outputs alone, and dims with a size of their own, come from the outputs.
TEST(LabelExtentsTest, OpenDims) {
  const IndexRule rule = Rule("s b h -> e =b h");
  ASSERT_OK_AND_ASSIGN(Shape extents, LabelExtents(rule, {Shape{4, 2, 8}}, {}));
  EXPECT_THAT(extents, ElementsAre(4, 2, 8, -1));
  EXPECT_THAT(InferShapes(rule, extents), ElementsAre(Shape{0, 0, 8}));
  ASSERT_OK_AND_ASSIGN(extents, LabelExtents(rule, {Shape{4, 2, 8}}, {Shape{3, 10, 8}}));
  EXPECT_THAT(extents, ElementsAre(4, 2, 8, 3));
}

TEST(LabelExtentsTest, Errors) {
  const IndexRule rule = Rule("m k, k n -> m n");
  EXPECT_THAT(LabelExtents(rule, {Shape{16, 32}, Shape{4, 8}}, {}),
              StatusIs(kInvalid, "k is 32 in input 0 and 4 in input 1"));
  EXPECT_THAT(LabelExtents(rule, {Shape{16, 32}, Shape{32, 8}}, {Shape{16, 4}}),
              StatusIs(kInvalid, "n is 8 in input 1 and 4 in output 0"));
  EXPECT_THAT(LabelExtents(rule, {Shape{16, 32}}, {}), StatusIs(kInvalid, "takes 2 inputs (m k, k n -> m n), found 1"));
  EXPECT_THAT(LabelExtents(rule, {Shape{16, 32}, Shape{32}}, {}), StatusIs(kInvalid, "input 1 is (32), wanted 2 dims"));
  // A dim that the rule calls 1 must be 1: its value would be read for one element of the label only.
  EXPECT_THAT(LabelExtents(Rule("a 1 -> a"), {Shape{4, 2}}, {}), StatusIs(kInvalid, "dim 1 of input 0 is 2, wanted 1"));
}

Mesh Eight() { return Mesh::Factored(1, 8); }  // x4 x2 x1

TEST(OutputLayoutTest, InputsOnlyMeansPartial) {
  const Mesh mesh = Eight();
  const IndexRule rule = Rule("m k, k n -> m n");
  const AxisId x4 = mesh.Find("x4"), x2 = mesh.Find("x2"), x1 = mesh.Find("x1");
  const Assignment assignment = {{x4}, {x2, x1}, {}};
  EXPECT_EQ(ToText(InputLayout(rule, assignment, 0), mesh), "{x4 | x2.x1}");
  EXPECT_EQ(ToText(InputLayout(rule, assignment, 1), mesh), "{x2.x1 | -}");
  EXPECT_EQ(ToText(OutputLayout(rule, assignment, 0, Reduction::kSum), mesh), "{x4 | -} partial sum x2.x1");
  EXPECT_EQ(ToText(OutputLayout(rule, assignment, 0, Reduction::kMax), mesh), "{x4 | -} partial max x2.x1");
  EXPECT_EQ(ToText(OutputLayout(rule, {{x4}, {}, {}}, 0, Reduction::kMax), mesh), "{x4 | -}");
}

// A label that only one of the outputs lacks makes that one partial: the gradients of a norm's weights.
TEST(OutputLayoutTest, OutputsOfTheirOwn) {
  const Mesh mesh = Eight();
  const IndexRule rule = Rule("s h!, s h! -> s h!, h!");
  const Assignment assignment = {{mesh.Find("x4")}, {}};
  EXPECT_EQ(ToText(OutputLayout(rule, assignment, 0, Reduction::kSum), mesh), "{x4 | -}");
  EXPECT_EQ(ToText(OutputLayout(rule, assignment, 1, Reduction::kSum), mesh), "{-} partial sum x4");
}

// A new label is split, not summed: each rank makes its own piece.
TEST(OutputLayoutTest, NewLabelsAndOwnSizes) {
  const Mesh mesh = Eight();
  const AxisId x4 = mesh.Find("x4"), x2 = mesh.Find("x2");
  EXPECT_EQ(ToText(OutputLayout(Rule("h -> s h"), {{}, {x2}}, 0, Reduction::kSum), mesh), "{x2 | -}");
  EXPECT_EQ(ToText(OutputLayout(Rule("s! b h -> e =b h"), {{}, {x4}, {}, {}}, 0, Reduction::kSum), mesh),
            "{- | x4 | -}");
  EXPECT_EQ(ToText(InputLayout(Rule("1 h -> h"), {{x4}}, 0), mesh), "{- | x4}");
}

// Rows of the table are templates that parse: with inputs of enough dims, all of one extent.
TEST(OpListTest, EveryRowIsARule) {
  for (const OpInfo& row : kOps) {
    if (row.rule.empty()) continue;
    SCOPED_TRACE(row.name);
    const absl::string_view text = row.rule;
    std::vector<Shape> inputs;
    for (size_t begin = 0; begin < text.find("->");) {
      const size_t end = std::min(text.find(',', begin), text.find("->"));
      const absl::string_view operand = text.substr(begin, end - begin);
      begin = end + 1;
      if (operand.find('*') != operand.npos) continue;
      Shape shape;
      bool dots = false;
      for (size_t i = 0; i < operand.size(); ++i) {
        if (operand[i] == '.') dots = true;
        const bool letter = (operand[i] >= 'a' && operand[i] <= 'z');
        if (letter) shape.push_back(2);
      }
      if (dots) shape.insert(shape.end(), 2, 2);
      inputs.push_back(shape);
    }
    ASSERT_OK_AND_ASSIGN(const IndexRule rule, InstantiateRule(text, inputs));
    EXPECT_OK(LabelExtents(rule, inputs, {}));
    EXPECT_EQ(Rule(ToText(rule)), rule);
    EXPECT_EQ(OpKindFromName(row.name), row.kind);
  }
  EXPECT_EQ(OpKindFromName("Matmul"), std::nullopt);
}

}  // namespace
}  // namespace meshwright
