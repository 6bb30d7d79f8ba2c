// Attention and rotary positions by their definitions, on sequences longer than one block of rows.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/host/kernels.h"
#include "executor/op_examples.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr int64_t kLength = 150;  // 64 + 64 + 22 rows
const Shape kQkv = {kLength, 2, 1, 4, 2}, kY = {kLength, 2, 1, 2, 2};

OpExample Forward(bool causal, bool fused) {
  OpAttrs attrs;
  attrs.scale = 0.7;
  attrs.causal = causal;
  attrs.fused = fused;
  const Shape rows = {kLength, 2, 1, 2}, scores = {kLength, 2, 1, 2, kLength};
  return {OpKind::kAttention,
          fused ? "s! b g r! d! -> s! b g q! d!, s! b g q!" : "s! b g r! d! -> s! b g q! d!, s! b g q! t!",
          {kQkv},
          attrs,
          {},
          -2,
          2,
          {kY, fused ? rows : scores}};
}

absl::Status RunCase(OpCase& c, const std::vector<TensorView>& inputs) {
  std::vector<TensorView> outputs;
  for (OwnedTensor& tensor : c.outputs) outputs.push_back(tensor.View());
  return RunHostKernel({c.example.op, &c.example.attrs, &c.rule, 0, 1, inputs, outputs});
}
absl::Status RunCase(OpCase& c) {
  std::vector<TensorView> inputs;
  for (OwnedTensor& tensor : c.inputs) inputs.push_back(tensor.View());
  return RunCase(c, inputs);
}

int64_t At(int64_t s, int64_t b, int64_t head, int64_t d) { return ((s * 2 + b) * 4 + head) * 2 + d; }

class AttentionTest : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  bool causal() const { return GetParam().first; }
  bool fused() const { return GetParam().second; }
};

// y = softmax(scale q k^T) v, row by row.
TEST_P(AttentionTest, EqualsItsDefinition) {
  OpCase c = MakeCase(Forward(causal(), fused()), 5);
  ASSERT_OK(RunCase(c));
  const OwnedTensor& x = c.inputs[0];
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t q = 0; q < 2; ++q) {
      for (int64_t i = 0; i < kLength; ++i) {
        const int64_t seen = causal() ? i + 1 : kLength;
        std::vector<double> e;
        double sum = 0, y[2] = {0, 0};
        for (int64_t j = 0; j < seen; ++j) {
          const double dot = x.At(At(i, b, q, 0)) * x.At(At(j, b, 2, 0)) + x.At(At(i, b, q, 1)) * x.At(At(j, b, 2, 1));
          e.push_back(std::exp(0.7 * dot));
          sum += e.back();
        }
        const int64_t row = (i * 2 + b) * 2 + q;
        for (int64_t j = 0; j < seen; ++j) {
          for (int64_t d = 0; d < 2; ++d) y[d] += e[j] / sum * x.At(At(j, b, 3, d));
          if (!fused()) {
            ASSERT_NEAR(c.outputs[1].At(row * kLength + j), e[j] / sum, 1e-13);
          }
        }
        if (fused()) {
          ASSERT_NEAR(c.outputs[1].At(row), std::log(sum), 1e-12);
        }
        if (!fused() && seen < kLength) {
          ASSERT_EQ(c.outputs[1].At(row * kLength + seen), 0);
        }
        for (int64_t d = 0; d < 2; ++d) ASSERT_NEAR(c.outputs[0].At(row * 2 + d), y[d], 1e-12) << "row " << i;
      }
    }
  }
}

TEST_P(AttentionTest, GradientOverSeveralBlocksEqualsFiniteDifferences) {
  OpCase forward = MakeCase(Forward(causal(), fused()), 5);
  ASSERT_OK(RunCase(forward));
  const std::string saved = fused() ? "s! b g q!" : "s! b g q! t!";
  OpCase backward = MakeCase({OpKind::kAttentionGrad,
                              absl::StrCat("s! b g q! d!, s! b g r! d!, s! b g q! d!, ", saved, " -> s! b g r! d!"),
                              {kY, kQkv, kY, forward.outputs[1].shape},
                              forward.example.attrs},
                             9);
  OwnedTensor& dy = backward.inputs[0];
  ASSERT_OK(
      RunCase(backward, {dy.View(), forward.inputs[0].View(), forward.outputs[0].View(), forward.outputs[1].View()}));
  const auto objective = [&] {
    EXPECT_OK(RunCase(forward));
    double sum = 0;
    for (int64_t i = 0; i < NumElements(kY); ++i) sum += dy.At(i) * forward.outputs[0].At(i);
    return sum;
  };
  OwnedTensor& x = forward.inputs[0];
  for (const int64_t s : {0, 63, 64, 100, 149}) {  // the blocks' borders among them
    for (int64_t head = 0; head < 4; ++head) {
      const int64_t i = At(s, 1, head, 1);
      const double before = x.At(i), h = 1e-6;
      x.Set(i, before + h);
      const double up = objective();
      x.Set(i, before - h);
      const double down = objective();
      x.Set(i, before);
      EXPECT_NEAR(backward.outputs[0].At(i), (up - down) / (2 * h), 1e-7) << "position " << s << ", head " << head;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest,
                         testing::Values(std::pair(true, true), std::pair(true, false), std::pair(false, true),
                                         std::pair(false, false)),
                         [](const auto& info) {
                           return absl::StrCat(info.param.first ? "Causal" : "Full",
                                               info.param.second ? "Fused" : "NotFused");
                         });

// d = 4, theta = 100: at position p the pair (0, 2) turns by p, the pair (1, 3) by p * 100^(-1/2) = p / 10. The view
// starts at position 3 of the whole sequence. The last head of the group, the value, stays.
TEST(RotaryTest, TurnsByThePositionInTheWholeSequence) {
  OwnedTensor x(DType::kFloat64, {1, 1, 1, 3, 4}), y(DType::kFloat64, x.shape);
  for (int64_t i = 0; i < 12; ++i) x.Set(i, i % 4 < 2 ? 1 : 0);
  TensorView in = x.View(), out = y.View();
  in.global[0] = out.global[0] = 8;
  in.begin[0] = out.begin[0] = 3;
  OpAttrs attrs;
  attrs.theta = 100;
  ASSERT_OK_AND_ASSIGN(const IndexRule rule, ParseRule("s b g r! d! -> s b g r! d!"));
  const std::vector<TensorView> reads = {in}, writes = {out};
  ASSERT_OK(RunHostKernel({OpKind::kRotary, &attrs, &rule, 0, 1, reads, writes}));
  const double want[4] = {std::cos(3.0), std::cos(0.3), std::sin(3.0), std::sin(0.3)};
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t d = 0; d < 4; ++d) EXPECT_NEAR(y.At(head * 4 + d), want[d], 1e-15);
  }
  for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(y.At(8 + d), x.At(8 + d));
}

// Two queries and a key of 3 elements, a value of 2: y = softmax(scale q k^T) v.
TEST(NarrowValuesTest, AttentionEqualsItsDefinition) {
  constexpr int64_t kRows = 70, kWidth = 3, kValue = 2, kAll = 3 * kWidth + kValue;
  OpAttrs attrs;
  attrs.scale = 0.7;
  OpCase c = MakeCase({OpKind::kAttention,
                       "s! b g w! -> s! b g q! u!, s! b g q!",
                       {{kRows, 1, 2, kAll}},
                       attrs,
                       {},
                       -2,
                       2,
                       {{kRows, 1, 2, 2, kValue}, {kRows, 1, 2, 2}}},
                      5);
  ASSERT_OK(RunCase(c));
  const auto at = [&](int64_t row, int64_t group, int64_t first, int64_t i) {
    return c.inputs[0].At((row * 2 + group) * kAll + first + i);
  };
  for (int64_t group = 0; group < 2; ++group) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t i = 0; i < kRows; ++i) {
        double sum = 0, y[kValue] = {};
        for (int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (int64_t d = 0; d < kWidth; ++d) score += at(i, group, head * kWidth, d) * at(j, group, 2 * kWidth, d);
          const double e = std::exp(attrs.scale * score);
          sum += e;
          for (int64_t d = 0; d < kValue; ++d) y[d] += e * at(j, group, 3 * kWidth, d);
        }
        for (int64_t d = 0; d < kValue; ++d) {
          EXPECT_NEAR(c.outputs[0].At(((i * 2 + group) * 2 + head) * kValue + d), y[d] / sum, 1e-12);
        }
        EXPECT_NEAR(c.outputs[1].At((i * 2 + group) * 2 + head), std::log(sum), 1e-12);
      }
    }
  }
}

// A window of 5: the scores of a mask by hand.
TEST(WindowTest, AQuerySeesTheLastKeysAlone) {
  constexpr int64_t kRows = 150, kWindow = 5;
  OpAttrs attrs;
  attrs.scale = 0.7;
  attrs.window = kWindow;
  for (const bool fused : {true, false}) {
    attrs.fused = fused;
    OpCase c =
        MakeCase({OpKind::kAttention,
                  fused ? "s! b g r! d! -> s! b g q! d!, s! b g q!" : "s! b g r! d! -> s! b g q! d!, s! b g q! t!",
                  {{kRows, 1, 1, 3, 2}},
                  attrs,
                  {},
                  -2,
                  2,
                  {{kRows, 1, 1, 1, 2}, fused ? Shape{kRows, 1, 1, 1} : Shape{kRows, 1, 1, 1, kRows}}},
                 5);
    ASSERT_OK(RunCase(c));
    const auto at = [&](int64_t row, int64_t head, int64_t i) { return c.inputs[0].At((row * 3 + head) * 2 + i); };
    for (int64_t i = 0; i < kRows; ++i) {
      double sum = 0, y[2] = {};
      for (int64_t j = std::max<int64_t>(0, i - kWindow + 1); j <= i; ++j) {
        const double e = std::exp(attrs.scale * (at(i, 0, 0) * at(j, 1, 0) + at(i, 0, 1) * at(j, 1, 1)));
        sum += e;
        for (int64_t d = 0; d < 2; ++d) y[d] += e * at(j, 2, d);
      }
      for (int64_t d = 0; d < 2; ++d) EXPECT_NEAR(c.outputs[0].At(i * 2 + d), y[d] / sum, 1e-12) << i;
    }
  }
}

// Queries of 1 + 2 elements, 2 positions turned by p; theta does not matter to one pair. Position 3 of the whole.
TEST(LatentHeadsTest, JoinsAndTurns) {
  OwnedTensor query(DType::kFloat64, {1, 1, 2, 3}), shared(DType::kFloat64, {1, 1, 2}),
      latent(DType::kFloat64, {1, 1, 2, 3}), packed(DType::kFloat64, {1, 1, 2, 8});
  for (int64_t i = 0; i < 6; ++i) query.Set(i, 1 + static_cast<double>(i));  // 1, (2, 3); 4, (5, 6)
  for (int64_t i = 0; i < 6; ++i) latent.Set(i, 10 + static_cast<double>(i));
  shared.Set(0, 7);
  shared.Set(1, 8);
  std::vector<TensorView> reads = {query.View(), shared.View(), latent.View()}, writes = {packed.View()};
  for (TensorView* view : {&reads[0], &reads[1], &reads[2], &writes[0]}) {
    view->global[0] = 8;
    view->begin[0] = 3;
  }
  const OpAttrs attrs;
  ASSERT_OK_AND_ASSIGN(const IndexRule rule, ParseRule("s b g d!, s b p!, s b g u! -> s b g w!"));
  ASSERT_OK(RunHostKernel({OpKind::kLatentHeads, &attrs, &rule, 0, 1, reads, writes}));
  const double c = std::cos(3.0), s = std::sin(3.0);
  const double want[16] = {1, 2 * c - 3 * s, 3 * c + 2 * s, 10, 7 * c - 8 * s, 8 * c + 7 * s, 11, 12,
                           4, 5 * c - 6 * s, 6 * c + 5 * s, 13, 7 * c - 8 * s, 8 * c + 7 * s, 14, 15};
  for (int64_t i = 0; i < 16; ++i) EXPECT_NEAR(packed.At(i), want[i], 1e-14) << i;
}

}  // namespace
}  // namespace meshwright
