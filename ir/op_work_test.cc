// Operation and byte counts of operators: what prices are made of.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

struct Sizes {
  std::vector<Shape> inputs, outputs;
  DType dtype = DType::kBFloat16;
  OpAttrs attrs = {};
  std::vector<DType> input_dtypes = {};  // default: dtype
};

KernelWork Work(OpKind kind, const std::string& rule_text, const Sizes& sizes) {
  const absl::StatusOr<IndexRule> rule =
      rule_text.empty() ? InstantiateRule(InfoOf(kind).rule, sizes.inputs) : ParseRule(rule_text);
  EXPECT_OK(rule);
  const std::vector<DType> inputs =
      sizes.input_dtypes.empty() ? std::vector<DType>(sizes.inputs.size(), sizes.dtype) : sizes.input_dtypes;
  return WorkOf(kind, sizes.attrs, *rule, sizes.inputs, inputs, sizes.outputs,
                std::vector<DType>(sizes.outputs.size(), sizes.dtype));
}

TEST(WorkOfTest, Product) {
  const KernelWork work = Work(OpKind::kMatMul, "m k, k n -> m n", {{{16, 32}, {32, 8}}, {{16, 8}}});
  EXPECT_EQ(work.kernel, KernelClass::kContraction);
  EXPECT_EQ(work.dtype, DType::kBFloat16);
  EXPECT_EQ(work.batch, 1);
  EXPECT_EQ(work.m, 16);
  EXPECT_EQ(work.n, 8);
  EXPECT_EQ(work.k, 32);
  EXPECT_EQ(work.flops.raw(), 2.0 * 16 * 32 * 8);
  EXPECT_EQ(work.read, Bytes(2 * (16 * 32 + 32 * 8)));
  EXPECT_EQ(work.written, Bytes(2 * 16 * 8));
}

// Logits, and the gradients of the output layer's input and weight.
TEST(WorkOfTest, ProductsOverTheVocabularyStayWide) {
  const Shape hidden = {4, 2, 6}, weight = {32, 6}, logits = {4, 2, 32};
  EXPECT_TRUE(Work(OpKind::kMatMul, "s b h, v h -> s b v", {{hidden, weight}, {logits}}).wide);
  EXPECT_TRUE(Work(OpKind::kMatMul, "s b v, v h -> s b h", {{logits, weight}, {hidden}}).wide);
  EXPECT_TRUE(Work(OpKind::kMatMul, "s b v, s b h -> v h", {{logits, hidden}, {weight}}).wide);
  EXPECT_FALSE(Work(OpKind::kMatMul, "s b h, h f -> s b f", {{hidden, {6, 8}}, {{4, 2, 8}}}).wide);
}

// Labels of both inputs and the output are a batch; several labels of one part multiply. A bias is read.
TEST(WorkOfTest, BatchedProductsOfSeveralLabels) {
  KernelWork work = Work(OpKind::kMatMul, "e c h, e h t f -> e c t f", {{{4, 10, 6}, {4, 6, 2, 8}}, {{4, 10, 2, 8}}});
  EXPECT_EQ(work.batch, 4);
  EXPECT_EQ(work.m, 10);
  EXPECT_EQ(work.n, 16);  // t f
  EXPECT_EQ(work.k, 6);
  EXPECT_EQ(work.flops.raw(), 2.0 * 4 * 10 * 16 * 6);
  work = Work(OpKind::kMatMul, "s b h!, h! f, f -> s b f", {{{4, 2, 6}, {6, 8}, {8}}, {{4, 2, 8}}});
  EXPECT_EQ(work.m, 8);  // s b
  EXPECT_EQ(work.n, 8);
  EXPECT_EQ(work.read, Bytes(2 * (48 + 48 + 8)));
  // The gradient of a weight contracts over s and b.
  work = Work(OpKind::kMatMul, "s b h, s b f -> h f", {{{4, 2, 6}, {4, 2, 8}}, {{6, 8}}});
  EXPECT_EQ(work.k, 8);
  EXPECT_EQ(work.flops.raw(), 2.0 * 6 * 8 * 8);
}

// (s, b, g, q + 2, d): b g q heads of s queries and s keys; two products of 2 s^2 d operations each, five backward;
// half of it where a token sees only those before it.
TEST(WorkOfTest, Attention) {
  const Shape qkv = {64, 2, 4, 6, 16}, context = {64, 2, 4, 4, 16}, rows = {64, 2, 4, 4};
  const double whole = 2.0 * 2 * (2 * 4 * 4) * 64 * 64 * 16;
  const std::string rule = "s! b g r! d! -> s! b g q! d!, s! b g q!";
  KernelWork work = Work(OpKind::kAttention, rule, {{qkv}, {context, rows}});
  EXPECT_EQ(work.kernel, KernelClass::kAttention);
  EXPECT_EQ(work.batch, 2 * 4 * 4);
  EXPECT_EQ(work.m, 64);
  EXPECT_EQ(work.n, 64);
  EXPECT_EQ(work.k, 16);
  EXPECT_TRUE(work.causal);
  EXPECT_FALSE(work.backward);
  EXPECT_EQ(work.flops.raw(), whole / 2);
  OpAttrs both;
  both.causal = false;
  EXPECT_EQ(Work(OpKind::kAttention, rule, {{qkv}, {context, rows}, DType::kBFloat16, both}).flops.raw(), whole);
  work = Work(OpKind::kAttentionGrad, "s! b g q! d!, s! b g r! d!, s! b g q! d!, s! b g q! -> s! b g r! d!",
              {{context, qkv, context, rows}, {qkv}});
  EXPECT_TRUE(work.backward);
  EXPECT_EQ(work.batch, 2 * 4 * 4);
  EXPECT_EQ(work.flops.raw(), whole / 2 * 2.5);
}

// DeepSeek-V3's heads: forward a product over 192 and one over 128, backward three and two; the mean width is 160.
TEST(WorkOfTest, AttentionWithNarrowValues) {
  const Shape packed = {64, 2, 4, 512}, context = {64, 2, 4, 1, 128}, rows = {64, 2, 4, 1};
  const double half = (2 * 4) * 64 * 64 / 2;
  KernelWork work = Work(OpKind::kAttention, "s! b g w! -> s! b g q! u!, s! b g q!", {{packed}, {context, rows}});
  EXPECT_EQ(work.batch, 2 * 4);
  EXPECT_EQ(work.k, 160);
  EXPECT_EQ(work.flops.raw(), 2 * half * (192 + 128));
  work = Work(OpKind::kAttentionGrad, "s! b g q! u!, s! b g w!, s! b g q! u!, s! b g q! -> s! b g w!",
              {{context, packed, context, rows}, {packed}});
  EXPECT_EQ(work.flops.raw(), 2 * half * (3 * 192 + 2 * 128));
}

// Of 64 queries each sees 16 keys at most: 16 x 64 pairs less the corner of 16 x 16 / 2. A window of all is none.
TEST(WorkOfTest, AttentionWithAWindow) {
  const Shape qkv = {64, 2, 4, 6, 16}, context = {64, 2, 4, 4, 16}, rows = {64, 2, 4, 4};
  const std::string rule = "s! b g r! d! -> s! b g q! d!, s! b g q!";
  OpAttrs attrs;
  attrs.window = 16;
  KernelWork work = Work(OpKind::kAttention, rule, {{qkv}, {context, rows}, DType::kBFloat16, attrs});
  EXPECT_EQ(work.window, 16);
  EXPECT_EQ(work.flops.raw(), 2.0 * 2 * (2 * 4 * 4) * (16 * 64 - 128) * 16);
  attrs.window = 64;
  work = Work(OpKind::kAttention, rule, {{qkv}, {context, rows}, DType::kBFloat16, attrs});
  EXPECT_EQ(work.window, 0);
  EXPECT_EQ(work.flops.raw(), 2.0 * 2 * (2 * 4 * 4) * 64 * 64 * 16 / 2);
}

// A quarter of the queries over all keys is a quarter of the work, in the balanced order; so is the sum over four
// blocks of keys, each with half of its scores: the own block under the mask, the others as rectangles over half of the
// keys.
TEST(WorkOfTest, AttentionOfAPartOfTheSequence) {
  const Shape queries = {16, 2, 4, 4, 16}, keys = {64, 2, 4, 2, 16}, block = {16, 2, 4, 2, 16}, rows = {16, 2, 4, 4};
  const double quarter = 2.0 * 2 * (2 * 4 * 4) * 64 * 64 * 16 / 2 / 4;
  const std::string q = "s b g q! d!", rule = " -> s b g q! d!, s b g q!";
  OpAttrs attrs;
  attrs.context = 4;
  KernelWork work = Work(OpKind::kAttention, q + ", t! b g w! d!" + rule,
                         {{queries, keys}, {queries, rows}, DType::kBFloat16, attrs});
  EXPECT_EQ(work.batch, 2 * 4 * 4);
  EXPECT_EQ(work.m, 16);
  EXPECT_EQ(work.n, 64);
  EXPECT_TRUE(work.causal);
  EXPECT_EQ(work.flops.raw(), quarter);
  for (attrs.shift = 0; attrs.shift < 4; ++attrs.shift) {
    work = Work(OpKind::kAttention, q + ", s b g w! d!" + rule,
                {{queries, block}, {queries, rows}, DType::kBFloat16, attrs});
    EXPECT_EQ(work.causal, attrs.shift == 0);
    EXPECT_EQ(work.n, attrs.shift == 0 ? 16 : 8);
    EXPECT_EQ(work.flops.raw(), quarter / 4);
  }
  work = Work(OpKind::kAttentionGrad, q + ", " + q + ", s b g w! d!, " + q + ", s b g q! -> " + q + ", s b g w! d!",
              {{queries, queries, block, queries, rows}, {queries, block}, DType::kBFloat16, attrs});
  EXPECT_TRUE(work.backward);
  EXPECT_EQ(work.n, 8);
  EXPECT_EQ(work.flops.raw(), quarter / 4 * 2.5);
}

// 10 operations per element of GeLU, 8 of a norm; every operand is streamed once.
TEST(WorkOfTest, Elementwise) {
  KernelWork work = Work(OpKind::kGelu, "", {{{4, 8}, {8}}, {{4, 8}}});
  EXPECT_EQ(work.kernel, KernelClass::kMemory);
  EXPECT_EQ(work.flops.raw(), 10.0 * 32);
  EXPECT_EQ(work.read, Bytes(2 * 40));
  EXPECT_EQ(work.written, Bytes(2 * 32));
  work = Work(OpKind::kLayerNorm, "", {{{4, 8}, {8}, {8}}, {{4, 8}}, DType::kFloat32});
  EXPECT_EQ(work.kernel, KernelClass::kNormalize);
  EXPECT_EQ(work.flops.raw(), 8.0 * 32);
  EXPECT_FALSE(work.backward);
  EXPECT_TRUE(Work(OpKind::kGeluGrad, "", {{{4, 8}, {4, 8}}, {{4, 8}}}).backward);
  EXPECT_FALSE(Work(OpKind::kAdamW, "", {{{4}, {4}, {4}, {4}}, {{4}, {4}, {4}}}).backward);
  EXPECT_TRUE(Work(OpKind::kGelu, "", {{{4, 8}}, {{4, 8}}}).functions);
  EXPECT_FALSE(Work(OpKind::kAdamW, "", {{{4}, {4}, {4}, {4}}, {{4}, {4}, {4}}}).functions);
}

// 14 operations for each element of either parameter; everything is read and written once.
TEST(WorkOfTest, SeveralUpdatesInOne) {
  OpAttrs attrs;
  attrs.tensors = 2;
  const std::vector<Shape> inputs = {{4, 8}, {4, 8}, {4, 8}, {4, 8}, {5}, {5}, {5}, {5}};
  const std::vector<Shape> outputs = {{4, 8}, {4, 8}, {4, 8}, {5}, {5}, {5}};
  const KernelWork work = WorkOf(OpKind::kAdamW, attrs, {}, inputs, std::vector<DType>(inputs.size(), DType::kFloat32),
                                 outputs, std::vector<DType>(outputs.size(), DType::kFloat32));
  EXPECT_EQ(work.flops.raw(), 14.0 * (32 + 5));
  EXPECT_EQ(work.read, Bytes(4 * 4 * (32 + 5)));
  EXPECT_EQ(work.written, Bytes(3 * 4 * (32 + 5)));
}

TEST(UpdateOperandsTest, AreCountedByParameter) {
  OpAttrs attrs;
  attrs.tensors = 3;
  const auto copied = UpdateOperandsOf(OpKind::kMomentum, attrs, 9 + 2, 9);
  ASSERT_TRUE(copied.has_value());
  EXPECT_EQ(copied->inputs, 3u);
  EXPECT_EQ(copied->outputs, 3u);
  EXPECT_TRUE(copied->scaled);
  EXPECT_FALSE(UpdateOperandsOf(OpKind::kMomentum, attrs, 9, 6)->scaled);
  for (const auto& [inputs, outputs] : {std::pair<size_t, size_t>(9, 3), {9, 7}, {10, 6}, {8, 6}, {9, 12}}) {
    EXPECT_FALSE(UpdateOperandsOf(OpKind::kMomentum, attrs, inputs, outputs).has_value());
  }
  attrs.tensors = 2;  // of SGD: two parameters, or one with a copy under loss scaling
  EXPECT_FALSE(UpdateOperandsOf(OpKind::kSgd, attrs, 4, 2)->scaled);
  attrs.tensors = 1;
  EXPECT_TRUE(UpdateOperandsOf(OpKind::kSgd, attrs, 4, 2)->scaled);
  // LAMB's first step makes two norms, its second takes them and may have a copy.
  EXPECT_EQ(UpdateOperandsOf(OpKind::kLambStep, attrs, 4, 5)->output_scalars, 2u);
  EXPECT_FALSE(UpdateOperandsOf(OpKind::kLambStep, attrs, 4, 6).has_value());
  attrs.tensors = 3;
  EXPECT_TRUE(UpdateOperandsOf(OpKind::kLambStep, attrs, 12 + 2, 15)->scaled);
  EXPECT_EQ(UpdateOperandsOf(OpKind::kLamb, attrs, 12, 3)->input_scalars, 2u);
  EXPECT_EQ(UpdateOperandsOf(OpKind::kLamb, attrs, 12, 6)->outputs, 2u);
  EXPECT_FALSE(UpdateOperandsOf(OpKind::kLamb, attrs, 12, 9).has_value());
  for (const int64_t tensors : {int64_t{0}, int64_t{-1}, int64_t{1} << 62}) {
    attrs.tensors = tensors;
    EXPECT_FALSE(UpdateOperandsOf(OpKind::kSgd, attrs, 2, 1).has_value());
  }
}

// A view costs nothing; a scalar gradient does not say in which type a loss is computed.
TEST(WorkOfTest, ViewsAndScalars) {
  const KernelWork view = Work(OpKind::kReshape, "b x! -> b y! z!", {{{4, 8}}, {{4, 2, 4}}});
  EXPECT_EQ(view.kernel, KernelClass::kNone);
  EXPECT_EQ(view.read, Bytes(0));
  const KernelWork loss = Work(
      OpKind::kMseLossGrad, "",
      {{{}, {4, 8}, {4, 8}}, {{4, 8}}, DType::kBFloat16, {}, {DType::kFloat32, DType::kBFloat16, DType::kBFloat16}});
  EXPECT_EQ(loss.dtype, DType::kBFloat16);
  EXPECT_EQ(loss.flops.raw(), 2.0 * 32);
}

const std::vector<DType> kTableAndIds = {DType::kBFloat16, DType::kInt32};

// A large table: as many rows as ids name. 6 ids of 4 bytes, 6 rows of 8 elements of 2 bytes.
TEST(WorkOfTest, GatherReadsTheRowsThatAreNamed) {
  const KernelWork work = Work(OpKind::kGather, "v h, b s -> s b h",
                               {{{1000, 8}, {2, 3}}, {{3, 2, 8}}, DType::kBFloat16, {}, kTableAndIds});
  EXPECT_EQ(work.kernel, KernelClass::kGather);
  EXPECT_EQ(work.read, Bytes(6 * 4 + 6 * 16));
  EXPECT_EQ(work.written, Bytes(6 * 16));
}

// A small table, as a rank of many has of a split vocabulary: it is read once, but all rows are written.
TEST(WorkOfTest, GatherFromASmallTableWritesEveryRow) {
  const KernelWork work = Work(OpKind::kGather, "v h, b s -> s b h",
                               {{{4, 8}, {20, 30}}, {{30, 20, 8}}, DType::kBFloat16, {}, kTableAndIds});
  EXPECT_EQ(work.read, Bytes(600 * 4 + 4 * 16));
  EXPECT_EQ(work.written, Bytes(600 * 16));
}

// Its gradient reads every row that came back, and writes the rows of the table that were named.
TEST(WorkOfTest, GatherGradient) {
  KernelWork work = Work(OpKind::kGatherGrad, "s b h, b s -> v h",
                         {{{3, 2, 8}, {2, 3}}, {{1000, 8}}, DType::kBFloat16, {}, kTableAndIds});
  EXPECT_EQ(work.read, Bytes(6 * 16 + 6 * 4));
  EXPECT_EQ(work.written, Bytes(6 * 16));
  work = Work(OpKind::kGatherGrad, "s b h, b s -> v h",
              {{{30, 20, 8}, {20, 30}}, {{4, 8}}, DType::kBFloat16, {}, kTableAndIds});
  EXPECT_EQ(work.read, Bytes(600 * 16 + 600 * 4));
  EXPECT_EQ(work.written, Bytes(4 * 16));
}

// Tokens go to slots and back: both sides are streamed whole.
TEST(WorkOfTest, Dispatch) {
  const KernelWork work = Work(OpKind::kDispatch, "", {{{4, 2, 6}, {4, 2, 4}}, {{4, 10, 6}}});
  EXPECT_EQ(work.read, Bytes(2 * (48 + 32)));
  EXPECT_EQ(work.written, Bytes(2 * 240));
}

// 48 elements of 2 bytes: an eager RMS norm reads 10 and writes 8 of them for each, where a kernel of its own reads and
// writes each once (and gamma).
TEST(WorkOfTest, AnEagerNormStreamsEachStep) {
  Sizes sizes = {{{4, 2, 6}, {6}}, {{4, 2, 6}}};
  const KernelWork fused = Work(OpKind::kRmsNorm, "s b h!, h! -> s b h!", sizes);
  EXPECT_EQ(fused.kernel, KernelClass::kNormalize);
  EXPECT_EQ(fused.read + fused.written, Bytes(96 + 12 + 96));
  sizes.attrs.fused = false;
  const KernelWork steps = Work(OpKind::kRmsNorm, "s b h!, h! -> s b h!", sizes);
  EXPECT_EQ(steps.kernel, KernelClass::kMemory);
  EXPECT_EQ(steps.read, Bytes(96 * 10));
  EXPECT_EQ(steps.written, Bytes(96 * 8));
}

// 8 rows of 16 logits of 2 bytes, in and out, 3 numbers a row and the scalar before it: one pass. Derived from a
// log-softmax, it sums a row before it writes it.
TEST(WorkOfTest, TheGradientOfALossStreamsTheLogits) {
  Sizes sizes = {{{}, {8, 16}, {8}, {8}, {8}}, {{8, 16}}, DType::kBFloat16};
  const KernelWork work = Work(OpKind::kPartialsGrad, ", r v, r, r, r -> r v", sizes);
  EXPECT_EQ(work.kernel, KernelClass::kMemory);
  EXPECT_EQ(work.read, Bytes(2 * (1 + 128 + 3 * 8)));
  EXPECT_EQ(work.written, Bytes(2 * 128));
  sizes.attrs.fused = false;
  EXPECT_EQ(Work(OpKind::kPartialsGrad, ", r v, r, r, r -> r v", sizes).kernel, KernelClass::kNormalize);
}

// The work of a rank is that of its own pieces: of a product in n pieces, whatever label is split, the n-th part.
TEST(WorkOfTest, PiecesAddUp) {
  const double whole = Work(OpKind::kMatMul, "m k, k n -> m n", {{{16, 32}, {32, 8}}, {{16, 8}}}).flops.raw();
  EXPECT_EQ(Work(OpKind::kMatMul, "m k, k n -> m n", {{{4, 32}, {32, 8}}, {{4, 8}}}).flops.raw(), whole / 4);
  EXPECT_EQ(Work(OpKind::kMatMul, "m k, k n -> m n", {{{16, 8}, {8, 8}}, {{16, 8}}}).flops.raw(), whole / 4);
  EXPECT_EQ(Work(OpKind::kMatMul, "m k, k n -> m n", {{{16, 32}, {32, 2}}, {{16, 2}}}).flops.raw(), whole / 4);
}

}  // namespace
}  // namespace meshwright
