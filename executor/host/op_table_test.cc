// Properties that every kernel has, over all rows of the op table: a row that is added is tested without a change here.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/call_operands.h"
#include "executor/host/kernels.h"
#include "executor/host/loop.h"
#include "executor/op_examples.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr uint64_t kSeed = 7;

class OpTableTest : public testing::TestWithParam<OpKind> {};

std::vector<TensorView> Views(std::vector<OwnedTensor>& tensors) {
  std::vector<TensorView> views;
  for (OwnedTensor& tensor : tensors) views.push_back(tensor.View());
  return views;
}

absl::Status RunCase(OpCase& c, uint32_t accumulate = 0) {
  const std::vector<TensorView> inputs = Views(c.inputs), outputs = Views(c.outputs);
  return RunHostKernel({c.example.op, &c.example.attrs, &c.rule, accumulate, 3, inputs, outputs});
}

void ExpectNear(const OwnedTensor& a, const OwnedTensor& b, double bound, const std::string& what) {
  ASSERT_EQ(a.shape, b.shape) << what;
  for (int64_t i = 0; i < NumElements(a.shape); ++i) {
    ASSERT_NEAR(a.At(i), b.At(i), bound * (1 + std::fabs(b.At(i)))) << what << ", element " << i;
  }
}

// Piece `half` (0 or 1) of a tensor whose dims of `label` are cut in two; the whole where it has none.
struct Piece {
  OwnedTensor tensor;
  TensorView view;
  bool cut = false;
};
Piece Cut(OwnedTensor& whole, const OperandRule& rule, int label, int64_t half) {
  Piece piece;
  piece.view = whole.View();
  for (size_t d = 0; d < rule.size(); ++d) {
    if (rule[d].label != label) continue;
    piece.cut = true;
    piece.view.shape[d] /= 2;
    piece.view.begin[d] = half * piece.view.shape[d];
  }
  piece.tensor = OwnedTensor(whole.dtype, piece.view.shape);
  piece.view.data = piece.tensor.data.data();
  return piece;
}

// Calls f(place in the piece, place in the whole).
template <class F>
void ForEachPlace(const TensorView& piece, const F& f) {
  const Shape in_whole = RowMajorStrides(piece.global), in_piece = RowMajorStrides(piece.shape);
  for (int64_t i = 0; i < piece.size(); ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < piece.shape.size(); ++d) {
      place += (piece.begin[d] + i / in_piece[d] % piece.shape[d]) * in_whole[d];
    }
    f(i, place);
  }
}

double Combined(Reduction reduction, double a, double b) {
  return reduction == Reduction::kMax ? std::max(a, b) : reduction == Reduction::kMin ? std::min(a, b) : a + b;
}

// Runs the case on the two halves of `label`, and puts the outputs together: pieces side by side, partial results by
// the row's reduction; where an output does not depend on the label, both halves must give the same.
void ExpectHalvesEqualWhole(OpCase& whole, int label) {
  const std::string what = absl::StrCat(whole.text, " split on ", whole.rule.labels[label].name);
  std::vector<OwnedTensor> joined;
  for (OwnedTensor& output : whole.outputs) joined.emplace_back(output.dtype, output.shape);
  for (int64_t half = 0; half < 2; ++half) {
    std::vector<Piece> inputs, outputs;
    std::vector<TensorView> in, out;
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      Piece& piece = inputs.emplace_back(Cut(whole.inputs[i], whole.rule.inputs[i], label, half));
      ForEachPlace(piece.view, [&](int64_t at, int64_t place) { piece.tensor.Set(at, whole.inputs[i].At(place)); });
    }
    for (size_t i = 0; i < whole.outputs.size(); ++i) {
      outputs.push_back(Cut(whole.outputs[i], whole.rule.outputs[i], label, half));
    }
    for (Piece& piece : inputs) in.push_back(piece.view);
    for (Piece& piece : outputs) out.push_back(piece.view);
    ASSERT_OK(RunHostKernel({whole.example.op, &whole.example.attrs, &whole.rule, 0, 3, in, out})) << what;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool partial = !outputs[i].cut && whole.rule.InInputs(label);
      const Reduction reduction = InfoOf(whole.example.op).reduction;
      ForEachPlace(outputs[i].view, [&](int64_t at, int64_t place) {
        const double value = outputs[i].tensor.At(at), before = joined[i].At(place);
        const bool combine = partial && half == 1;
        joined[i].Set(place, combine ? Combined(reduction, before, value) : value);
      });
    }
  }
  for (size_t i = 0; i < joined.size(); ++i) {
    ExpectNear(joined[i], whole.outputs[i], 1e-13, absl::StrCat(what, ", output ", i));
  }
}

TEST_P(OpTableTest, HalvesOfEveryLabelEqualTheWhole) {
  int labels = 0;
  for (const OpExample& example : ExamplesOf(GetParam())) {
    OpCase whole = MakeCase(example, kSeed);
    ASSERT_OK(RunCase(whole)) << whole.text;
    for (size_t label = 0; label < whole.rule.labels.size(); ++label) {
      if (whole.rule.labels[label].whole) continue;
      ExpectHalvesEqualWhole(whole, static_cast<int>(label));
      ++labels;
    }
  }
  EXPECT_TRUE(labels > 0 || GetParam() == OpKind::kAdjustScale);  // which takes scalars
}

TEST_P(OpTableTest, OutputsAreWrittenWhole) {
  for (const OpExample& example : ExamplesOf(GetParam())) {
    OpCase c = MakeCase(example, kSeed);  // outputs start as NaN
    ASSERT_OK(RunCase(c)) << c.text;
    for (const OwnedTensor& output : c.outputs) {
      for (int64_t i = 0; i < NumElements(output.shape); ++i) EXPECT_TRUE(std::isfinite(output.At(i))) << c.text;
    }
  }
}

// Only outputs in gradient and loss buffers are ever added to; those of updates, attention and epilogues never are.
// What a norm's gradient makes of its parameters is, with an epilogue, too.
bool NeverAdds(OpKind op, size_t output) {
  const OpInfo& info = InfoOf(op);
  const bool epilogues = info.epilogue != OpKind::kNumOps &&
                         (output == 0 || (info.front != OpKind::kLayerNormGrad && info.front != OpKind::kRmsNormGrad));
  return epilogues || IsOptimizer(op) || op == OpKind::kAttention || op == OpKind::kMergeAttention ||
         op == OpKind::kAdjustScale;
}

TEST_P(OpTableTest, AccumulateAddsToEachOutputOnItsOwn) {
  for (const OpExample& example : ExamplesOf(GetParam())) {
    OpCase plain = MakeCase(example, kSeed);
    ASSERT_OK(RunCase(plain));
    for (size_t added = 0; added < plain.outputs.size(); ++added) {
      if (NeverAdds(GetParam(), added)) continue;
      OpCase c = MakeCase(example, kSeed);
      for (int64_t i = 0; i < NumElements(c.outputs[added].shape); ++i) {
        c.outputs[added].Set(i, static_cast<double>(i % 5) - 2);
      }
      ASSERT_OK(RunCase(c, 1u << added));
      for (size_t k = 0; k < plain.outputs.size(); ++k) {
        for (int64_t i = 0; i < NumElements(plain.outputs[k].shape); ++i) {
          const double value = plain.outputs[k].At(i), before = static_cast<double>(i % 5) - 2;
          const double want = k == added ? Combined(InfoOf(GetParam()).reduction, value, before) : value;
          ASSERT_NEAR(c.outputs[k].At(i), want, 1e-13 * (1 + std::fabs(want))) << c.text << ", output " << k;
        }
      }
    }
  }
}

TEST_P(OpTableTest, WhatWorksInPlaceGivesTheSameThere) {
  if (!WorksInPlace(GetParam())) return;
  for (const OpExample& example : ExamplesOf(GetParam())) {
    OpCase apart = MakeCase(example, kSeed), in_place = MakeCase(example, kSeed);
    ASSERT_OK(RunCase(apart));
    for (size_t i = 0; i < apart.inputs.size(); ++i) {
      if (apart.rule.inputs[i] != apart.rule.outputs[0]) continue;
      const std::vector<TensorView> inputs = Views(in_place.inputs);
      std::vector<TensorView> outputs = Views(in_place.outputs);
      outputs[0].data = inputs[i].data;
      ASSERT_OK(RunHostKernel({example.op, &example.attrs, &in_place.rule, 0, 3, inputs, outputs})) << apart.text;
      ExpectNear(in_place.inputs[i], apart.outputs[0], 0, apart.text);
      break;
    }
  }
}

TEST_P(OpTableTest, SinglePrecisionIsClose) {
  for (const OpExample& example : ExamplesOf(GetParam())) {
    OpCase exact = MakeCase(example, kSeed), single = MakeCase(example, kSeed, DType::kFloat32);
    for (size_t i = 0; i < exact.inputs.size(); ++i) {  // the same numbers
      for (int64_t e = 0; e < NumElements(exact.inputs[i].shape); ++e) exact.inputs[i].Set(e, single.inputs[i].At(e));
    }
    ASSERT_OK(RunCase(exact));
    ASSERT_OK(RunCase(single));
    for (size_t i = 0; i < exact.outputs.size(); ++i) ExpectNear(single.outputs[i], exact.outputs[i], 1e-5, exact.text);
  }
}

TEST_P(OpTableTest, OperandsThatDoNotFitAreRefused) {
  for (const OpExample& example : ExamplesOf(GetParam())) {
    OpCase c = MakeCase(example, kSeed);
    c.inputs.pop_back();
    EXPECT_THAT(RunCase(c), StatusIs(absl::StatusCode::kInvalidArgument, std::string(NameOf(example.op)))) << c.text;
  }
}

// But Fill, and what is no kernel.
std::vector<OpKind> AllWithExamples() {
  std::vector<OpKind> ops;
  for (const OpInfo& row : kOps) {
    if (!ExamplesOf(row.kind).empty()) ops.push_back(row.kind);
  }
  return ops;
}
INSTANTIATE_TEST_SUITE_P(All, OpTableTest, testing::ValuesIn(AllWithExamples()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace meshwright
