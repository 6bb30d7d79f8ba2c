// Attention on q, k and v in one tensor (s, b, g, r, d): for each KV group its r - 2 query heads, then key, then value.
//
// Rows are handled in blocks, so that the scores in memory are a block of rows wide, whether the program keeps
// probabilities (not fused) or only the log of each row's sum of exponentials (fused).
#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/host/blas.h"
#include "executor/host/kernel_functions.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

constexpr int64_t kRowBlock = 64;  // rows of scores at a time

struct Heads {
  int64_t s, b, g, r, d;
  int64_t q() const { return r - 2; }
  int64_t qkv_row() const { return b * g * r * d; }  // from one position to the next
  int64_t y_row() const { return b * g * q() * d; }
  int64_t qkv(int64_t batch, int64_t group, int64_t head) const { return ((batch * g + group) * r + head) * d; }
  int64_t y(int64_t batch, int64_t group, int64_t head) const { return ((batch * g + group) * q() + head) * d; }
};

absl::StatusOr<Heads> HeadsOf(const TensorView& qkv, const TensorView& y, const TensorView& saved, bool fused) {
  const Shape& x = qkv.shape;
  if (x.size() != 5 || x[3] < 3) {
    return absl::InvalidArgumentError(absl::StrCat("qkv is ", ToText(x), ", wanted (s, b, g, r, d) with r >= 3"));
  }
  const Heads heads = {x[0], x[1], x[2], x[3], x[4]};
  Shape want_saved = {heads.s, heads.b, heads.g, heads.q()};
  if (!fused) want_saved.push_back(heads.s);
  if (y.shape != Shape{heads.s, heads.b, heads.g, heads.q(), heads.d} || saved.shape != want_saved) {
    return absl::InvalidArgumentError(absl::StrCat("qkv is ", ToText(x), ", the result ", ToText(y.shape),
                                                   " and what it saves ", ToText(saved.shape)));
  }
  return heads;
}

// Where row i of head (b, g, h) has its saved value, or its saved row of probabilities.
template <class T>
T* SavedRow(const TensorView& saved, const Heads& heads, bool fused, int64_t i, int64_t b, int64_t g, int64_t h) {
  const int64_t row = ((i * heads.b + b) * heads.g + g) * heads.q() + h;
  return saved.as<T>() + row * (fused ? 1 : heads.s);
}

// Columns that rows [.., end) see.
int64_t ColumnsFor(const Heads& heads, bool causal, int64_t end) { return causal ? end : heads.s; }

// scores (rows x s) of rows [begin, end) of one head: scale * q k^T.
template <class T>
void Scores(const Heads& heads, const OpAttrs& attrs, const T* q, const T* k, int64_t begin, int64_t end, T* scores) {
  Gemm<T>(end - begin, ColumnsFor(heads, attrs.causal, end), heads.d, static_cast<T>(attrs.scale),
          {q + begin * heads.qkv_row(), heads.qkv_row()}, {k, heads.qkv_row(), true}, T(0), {scores, heads.s});
}

// dy, qkv, y, saved -> dqkv for one query head; dqkv is added to.
template <class T>
struct HeadGrad {
  const Heads& heads;
  const KernelCall& call;
  std::vector<T> probabilities = std::vector<T>(kRowBlock * heads.s), d_scores = probabilities;

  void Run(int64_t b, int64_t g, int64_t h) {
    const OpAttrs& attrs = *call.attrs;
    const T* qkv = call.inputs[1].as<T>();
    const T *q = qkv + heads.qkv(b, g, h), *k = qkv + heads.qkv(b, g, heads.r - 2),
            *v = qkv + heads.qkv(b, g, heads.r - 1);
    T* d_qkv = call.outputs[0].as<T>();
    T *dq = d_qkv + heads.qkv(b, g, h), *dk = d_qkv + heads.qkv(b, g, heads.r - 2),
      *dv = d_qkv + heads.qkv(b, g, heads.r - 1);
    const T* dy = call.inputs[0].as<T>() + heads.y(b, g, h);
    const T* y = call.inputs[2].as<T>() + heads.y(b, g, h);
    const int64_t row = heads.qkv_row(), y_row = heads.y_row(), d = heads.d;
    for (int64_t begin = 0; begin < heads.s; begin += kRowBlock) {
      const int64_t end = std::min(heads.s, begin + kRowBlock), n = end - begin;
      const int64_t columns = ColumnsFor(heads, attrs.causal, end);
      T *p = probabilities.data(), *ds = d_scores.data();
      Probabilities(b, g, h, begin, end, q, k);
      // dv += p^T dy; ds = p * (dy v^T - sum(dy * y)) * scale; dq += ds k; dk += ds^T q
      Gemm<T>(columns, d, n, T(1), {p, heads.s, true}, {dy + begin * y_row, y_row}, T(1), {dv, row});
      Gemm<T>(n, columns, d, T(1), {dy + begin * y_row, y_row}, {v, row, true}, T(0), {ds, heads.s});
      for (int64_t i = 0; i < n; ++i) {
        T dot = 0;
        for (int64_t c = 0; c < d; ++c) dot += dy[(begin + i) * y_row + c] * y[(begin + i) * y_row + c];
        for (int64_t j = 0; j < columns; ++j) {
          T& value = ds[i * heads.s + j];
          value = p[i * heads.s + j] * (value - dot) * static_cast<T>(attrs.scale);
        }
      }
      Gemm<T>(n, d, columns, T(1), {ds, heads.s}, {k, row}, T(1), {dq + begin * row, row});
      Gemm<T>(columns, d, n, T(1), {ds, heads.s, true}, {q + begin * row, row}, T(1), {dk, row});
    }
  }

  void Probabilities(int64_t b, int64_t g, int64_t h, int64_t begin, int64_t end, const T* q, const T* k) {
    const OpAttrs& attrs = *call.attrs;
    const int64_t columns = ColumnsFor(heads, attrs.causal, end);
    if (attrs.fused) Scores(heads, attrs, q, k, begin, end, probabilities.data());
    for (int64_t i = begin; i < end; ++i) {
      T* p = probabilities.data() + (i - begin) * heads.s;
      const T* saved = SavedRow<T>(call.inputs[3], heads, attrs.fused, i, b, g, h);
      const int64_t seen = ColumnsFor(heads, attrs.causal, i + 1);
      for (int64_t j = 0; j < seen; ++j) p[j] = attrs.fused ? std::exp(p[j] - *saved) : saved[j];
      std::fill(p + seen, p + columns, T(0));
    }
  }
};

}  // namespace

// Rotates the pairs (x[i], x[i + d/2]) of each head at position t by the angle t * theta^(-2i/d) (Su et al.,
// arXiv:2104.09864, with the halves of a head as pairs). The gradient rotates back.
template <class T>
absl::Status Rotary(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (x.shape.size() != 5 || x.shape[4] % 2 != 0 || y.shape != x.shape) {
    return absl::InvalidArgumentError(absl::StrCat("wants (s, b, g, r, d) with even d, found ", ToText(x.shape)));
  }
  const int64_t r = x.shape[3], d = x.shape[4], half = d / 2, heads = x.shape[1] * x.shape[2] * r;
  const double direction = call.op == OpKind::kRotaryGrad ? -1 : 1;
  std::vector<T> cosine(half), sine(half);
  for (int64_t s = 0; s < x.shape[0]; ++s) {
    const double position = static_cast<double>(x.begin[0] + s);
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          position * std::pow(call.attrs->theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      cosine[i] = static_cast<T>(std::cos(angle));
      sine[i] = static_cast<T>(direction * std::sin(angle));
    }
    for (int64_t head = 0; head < heads; ++head) {
      const T* from = x.as<T>() + (s * heads + head) * d;
      T* to = y.as<T>() + (s * heads + head) * d;
      const bool value_head = head % r == r - 1;
      for (int64_t i = 0; i < half; ++i) {
        const T a = from[i], b = from[i + half];
        const T new_a = value_head ? a : a * cosine[i] - b * sine[i];
        const T new_b = value_head ? b : b * cosine[i] + a * sine[i];
        to[i] = (call.Adds(0) ? to[i] : T(0)) + new_a;
        to[i + half] = (call.Adds(0) ? to[i + half] : T(0)) + new_b;
      }
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status Attention(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 2));
  if (call.accumulate != 0) return absl::InvalidArgumentError("cannot add to its outputs");
  const OpAttrs& attrs = *call.attrs;
  const TensorView &y = call.outputs[0], &saved = call.outputs[1];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Heads heads, HeadsOf(call.inputs[0], y, saved, attrs.fused));
  const T* qkv = call.inputs[0].as<T>();
  std::vector<T> scores(kRowBlock * heads.s);
  for (int64_t b = 0; b < heads.b; ++b) {
    for (int64_t g = 0; g < heads.g; ++g) {
      const T* k = qkv + heads.qkv(b, g, heads.r - 2);
      const T* v = qkv + heads.qkv(b, g, heads.r - 1);
      for (int64_t h = 0; h < heads.q(); ++h) {
        for (int64_t begin = 0; begin < heads.s; begin += kRowBlock) {
          const int64_t end = std::min(heads.s, begin + kRowBlock), columns = ColumnsFor(heads, attrs.causal, end);
          Scores(heads, attrs, qkv + heads.qkv(b, g, h), k, begin, end, scores.data());
          for (int64_t i = begin; i < end; ++i) {
            T* row = scores.data() + (i - begin) * heads.s;
            const int64_t seen = ColumnsFor(heads, attrs.causal, i + 1);
            const T top = *std::max_element(row, row + seen);
            T sum = 0;
            for (int64_t j = 0; j < seen; ++j) sum += row[j] = std::exp(row[j] - top);
            for (int64_t j = 0; j < seen; ++j) row[j] /= sum;
            std::fill(row + seen, row + columns, T(0));
            T* keep = SavedRow<T>(saved, heads, attrs.fused, i, b, g, h);
            if (attrs.fused) {
              *keep = top + std::log(sum);
            } else {
              std::copy(row, row + columns, keep);
              std::fill(keep + columns, keep + heads.s, T(0));
            }
          }
          Gemm<T>(end - begin, heads.d, columns, T(1), {scores.data(), heads.s}, {v, heads.qkv_row()}, T(0),
                  {y.as<T>() + begin * heads.y_row() + heads.y(b, g, h), heads.y_row()});
        }
      }
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status AttentionGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 4, 4, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Heads heads,
                              HeadsOf(call.inputs[1], call.inputs[2], call.inputs[3], call.attrs->fused));
  const TensorView& d_qkv = call.outputs[0];
  if (d_qkv.shape != call.inputs[1].shape || call.inputs[0].shape != call.inputs[2].shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("dy is ", ToText(call.inputs[0].shape), " and dqkv ", ToText(d_qkv.shape)));
  }
  if (!call.Adds(0)) std::fill_n(d_qkv.as<T>(), d_qkv.size(), T(0));
  HeadGrad<T> head = {heads, call};
  for (int64_t b = 0; b < heads.b; ++b) {
    for (int64_t g = 0; g < heads.g; ++g) {
      for (int64_t h = 0; h < heads.q(); ++h) head.Run(b, g, h);
    }
  }
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                        \
  template absl::Status Rotary<T>(const KernelCall&);    \
  template absl::Status Attention<T>(const KernelCall&); \
  template absl::Status AttentionGrad<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
