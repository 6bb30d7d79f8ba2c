#include "executor/product_groups.h"

#include "gtest/gtest.h"
#include "ir/index_rule.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

struct Call {
  IndexRule rule;
  std::vector<TensorView> inputs, outputs;
  KernelCall Kernel() const {
    KernelCall call;
    call.op = OpKind::kMatMul;
    call.rule = &rule;
    call.inputs = inputs;
    call.outputs = outputs;
    return call;
  }
};

TensorView Of(Shape shape) {
  TensorView view;
  view.shape = std::move(shape);
  return view;
}

Call CallOf(const std::string& rule, Shape a, Shape b, Shape c) {
  return {*ParseRule(rule), {Of(std::move(a)), Of(std::move(b))}, {Of(std::move(c))}};
}

// Attention's scores from queries (rows, sequence, heads, width): a batch entry's rows lie heads x width = 24 apart.
TEST(ProductGroupsTest, LabelsFallIntoGroupsByTheirOperands) {
  const Call call = CallOf("b s h d!, b t h d! -> b h s t", {2, 5, 3, 8}, {2, 7, 3, 8}, {2, 3, 5, 7});
  ASSERT_OK_AND_ASSIGN(const ProductGroups p, GroupsOf(call.Kernel()));
  EXPECT_EQ(Extent(p.batch), 2 * 3);
  EXPECT_EQ(Extent(p.m), 5);
  EXPECT_EQ(Extent(p.n), 7);
  EXPECT_EQ(Extent(p.k), 8);
  // In c a head follows a head (5 x 7 elements); in a they are 8 elements apart, within rows: no one stride.
  EXPECT_EQ(MergedStride(p.batch, &LabelDim::c), 35);
  EXPECT_EQ(MergedStride(p.batch, &LabelDim::a), 0);
  const std::optional<MatrixPlace> a = PlaceOf(p.m, p.k, &LabelDim::a);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->leading, 24);
  EXPECT_FALSE(a->transposed);
  // t d as the second operand wants d t: its transpose.
  const std::optional<MatrixPlace> b = PlaceOf(p.k, p.n, &LabelDim::b);
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ(b->leading, 24);
  EXPECT_TRUE(b->transposed);
}

TEST(ProductGroupsTest, LabelsOfOneOperandAloneAreSummedOrRepeated) {
  const Call call = CallOf("m k! x!, k! n y! -> m n z", {2, 3, 4}, {3, 5, 6}, {2, 5, 7});
  ASSERT_OK_AND_ASSIGN(const ProductGroups p, GroupsOf(call.Kernel()));
  EXPECT_EQ(Extent(p.a_only), 4);
  EXPECT_EQ(Extent(p.b_only), 6);
  EXPECT_EQ(Extent(p.c_only), 7);
  // Between two elements of a row of a lie the 4 of x: no matrix.
  EXPECT_FALSE(PlaceOf(p.m, p.k, &LabelDim::a).has_value());
}

TEST(ProductGroupsTest, OperandsThatDoNotAgreeAreAnError) {
  EXPECT_THAT(GroupsOf(CallOf("m k!, k! n -> m n", {2, 3}, {4, 5}, {2, 5}).Kernel()),
              StatusIs(absl::StatusCode::kInvalidArgument, "k"));
  Call one = CallOf("m k!, k! n -> m n", {2, 3}, {3, 5}, {2, 5});
  one.inputs.pop_back();
  EXPECT_THAT(GroupsOf(one.Kernel()),
              StatusIs(absl::StatusCode::kInvalidArgument, "takes 2 inputs (m k!, k! n -> m n), found 1"));
  EXPECT_THAT(GroupsOf(CallOf("m k!, k! n -> m n 1", {2, 3}, {3, 5}, {2, 5, 4}).Kernel()),
              StatusIs(absl::StatusCode::kInvalidArgument, "dim 2 of output 0 is 4, wanted 1"));
}

}  // namespace
}  // namespace meshwright
