// Attention on q, k and v in one tensor, or on queries and keys with values, which context parallelism keeps apart
// (ir/heads.h).
//
// Rows are handled in blocks, so that the scores in memory are a block of rows wide, whether the program keeps
// probabilities (not fused) or only the log of each row's sum of exponentials (fused).
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "executor/call_operands.h"
#include "executor/host/blas.h"
#include "executor/host/kernel_functions.h"
#include "ir/context_order.h"
#include "ir/heads.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

constexpr int64_t kRowBlock = 64;  // rows of scores at a time

struct Heads {
  int64_t rows, keys, b, g;  // queries and keys, batch, groups
  HeadSizes of;
  std::vector<int64_t> row_at, key_at;  // positions in the sequence
  bool causal, fused;
  int64_t window;
  // Of a ring's block each part of the queries has keys of its own: the tensors hold so many blocks.
  int64_t blocks = 1;

  int64_t q_row() const { return b * g * of.query_stride; }  // from one position to the next
  int64_t k_row() const { return b * g * of.key_stride; }
  int64_t y_row() const { return b * g * of.queries * of.value_width; }
  int64_t Query(int64_t batch, int64_t group, int64_t head) const {
    return (batch * g + group) * of.query_stride + head * of.width;
  }
  int64_t Key(int64_t batch, int64_t group) const { return (batch * g + group) * of.key_stride + of.key_at; }
  int64_t Value(int64_t batch, int64_t group) const { return Key(batch, group) + of.width; }
  int64_t y(int64_t batch, int64_t group, int64_t head) const {
    return ((batch * g + group) * of.queries + head) * of.value_width;
  }

  bool Sees(int64_t row, int64_t key) const {
    const int64_t before = row_at[row] - key_at[key];
    return !causal || (before >= 0 && (window == 0 || before < window));
  }
  // How many keys, from key `first` on, reach to the last one before `last` that a row of [begin, end) sees.
  int64_t Columns(int64_t begin, int64_t end, int64_t first, int64_t last) const {
    if (!causal) return last - first;
    const int64_t latest = *std::max_element(row_at.begin() + begin, row_at.begin() + end);
    while (last > first && key_at[last - 1] > latest) --last;
    return last - first;
  }
};

// The positions of what is stored in dim 0; of a ring's keys, those of the block that has arrived.
std::vector<int64_t> PositionsOf(const TensorView& view, const OpAttrs& attrs, int64_t shift) {
  const int64_t sequence = view.global[0], block = sequence / std::max<int64_t>(1, attrs.context);
  std::vector<int64_t> positions(view.shape[0]);
  for (int64_t i = 0; i < view.shape[0]; ++i) {
    const int64_t place = view.begin[0] + i - std::max<int64_t>(0, shift) * block;
    positions[i] = PositionOf(place < 0 ? place + sequence : place, sequence, attrs.context);
  }
  return positions;
}

// `operands`: qkv, or q and kv.
absl::StatusOr<Heads> HeadsOf(absl::Span<const TensorView> operands, const OpAttrs& attrs, const TensorView& y,
                              const TensorView& saved) {
  const TensorView &first = operands.front(), &last = operands.back();
  const bool apart = operands.size() == 2;
  const auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat(apart ? "queries are " : "qkv is ", ToText(first.shape),
                                                   apart ? absl::StrCat(", keys ", ToText(last.shape)) : "",
                                                   ", the result ", ToText(y.shape), " and what it saves ",
                                                   ToText(saved.shape)));
  };
  const std::optional<HeadSizes> sizes = HeadSizesOf(first.shape, last.shape, apart, y.shape);
  if (!sizes.has_value()) return wrong();
  const Shape& x = first.shape;
  Heads heads{.rows = x[0],
              .keys = last.shape[0],
              .b = x[1],
              .g = x[2],
              .of = *sizes,
              .row_at = PositionsOf(first, attrs, 0),
              .key_at = PositionsOf(last, attrs, attrs.shift),
              .causal = attrs.causal,
              .fused = attrs.fused,
              .window = attrs.window};
  if (attrs.shift >= 0) heads.blocks = heads.rows * attrs.context / first.global[0];
  Shape want_saved = {heads.rows, heads.b, heads.g, sizes->queries};
  if (!attrs.fused) want_saved.push_back(heads.keys);
  if (saved.shape != want_saved || (apart && !attrs.fused)) return wrong();
  const bool ring = attrs.shift >= 0;
  if (ring && (!apart || heads.keys != heads.rows || heads.blocks < 1 || heads.rows % heads.blocks != 0))
    return wrong();
  return heads;
}

// Where row i of head (b, g, h) has its saved value, or its saved row of probabilities.
template <class T>
T* SavedRow(const TensorView& saved, const Heads& heads, int64_t i, int64_t b, int64_t g, int64_t h) {
  const int64_t row = ((i * heads.b + b) * heads.g + g) * heads.of.queries + h;
  return saved.as<T>() + row * (heads.fused ? 1 : heads.keys);
}

// Rows and keys that have to do with each other: all, or a block of each.
struct Part {
  int64_t row, end, key, last;
};
Part PartOf(const Heads& heads, int64_t block) {
  const int64_t rows = heads.rows / heads.blocks, keys = heads.keys / heads.blocks;
  return {block * rows, (block + 1) * rows, block * keys, (block + 1) * keys};
}

// Scores of the rows [begin, end) over `columns` keys from `first` on, scale * q k^T; what a row does not see is
// minus infinity.
template <class T>
void Scores(const Heads& heads, const OpAttrs& attrs, const T* q, const T* k, int64_t begin, int64_t end, int64_t first,
            int64_t columns, T* scores) {
  Gemm<T>(end - begin, columns, heads.of.width, static_cast<T>(attrs.scale), {q + begin * heads.q_row(), heads.q_row()},
          {k + first * heads.k_row(), heads.k_row(), true}, T(0), {scores, heads.keys});
  if (!heads.causal) return;
  for (int64_t i = begin; i < end; ++i) {
    T* row = scores + (i - begin) * heads.keys;
    for (int64_t j = 0; j < columns; ++j) {
      if (!heads.Sees(i, first + j)) row[j] = -std::numeric_limits<T>::infinity();
    }
  }
}

// The gradients of one query head, which are added to.
template <class T>
struct HeadGrad {
  const Heads& heads;
  const OpAttrs& attrs;
  const TensorView& saved_view;
  const T *q_all, *kv_all, *dy_all, *y_all;
  T *dq_all, *dkv_all;
  std::vector<T> probabilities = std::vector<T>(kRowBlock * heads.keys), d_scores = probabilities;

  void Run(int64_t b, int64_t g, int64_t h) {
    const T *q = q_all + heads.Query(b, g, h), *k = kv_all + heads.Key(b, g), *v = kv_all + heads.Value(b, g);
    T *dq = dq_all + heads.Query(b, g, h), *dk = dkv_all + heads.Key(b, g), *dv = dkv_all + heads.Value(b, g);
    const T *dy = dy_all + heads.y(b, g, h), *y = y_all + heads.y(b, g, h);
    const int64_t q_row = heads.q_row(), k_row = heads.k_row(), y_row = heads.y_row(), all = heads.keys;
    const int64_t d = heads.of.width, u = heads.of.value_width;
    for (int64_t block = 0; block < heads.blocks; ++block) {
      const Part part = PartOf(heads, block);
      for (int64_t begin = part.row; begin < part.end; begin += kRowBlock) {
        const int64_t end = std::min(part.end, begin + kRowBlock), n = end - begin, at = part.key;
        const int64_t columns = heads.Columns(begin, end, part.key, part.last);
        T *p = probabilities.data(), *ds = d_scores.data();
        Probabilities(b, g, h, begin, end, at, columns, q, k);
        // dv += p^T dy; ds = p * (dy v^T - sum(dy * y)) * scale; dq += ds k; dk += ds^T q
        Gemm<T>(columns, u, n, T(1), {p, all, true}, {dy + begin * y_row, y_row}, T(1), {dv + at * k_row, k_row});
        Gemm<T>(n, columns, u, T(1), {dy + begin * y_row, y_row}, {v + at * k_row, k_row, true}, T(0), {ds, all});
        for (int64_t i = 0; i < n; ++i) {
          T dot = 0;
          for (int64_t c = 0; c < u; ++c) dot += dy[(begin + i) * y_row + c] * y[(begin + i) * y_row + c];
          for (int64_t j = 0; j < columns; ++j) {
            T& value = ds[i * all + j];
            value = p[i * all + j] * (value - dot) * static_cast<T>(attrs.scale);
          }
        }
        Gemm<T>(n, d, columns, T(1), {ds, all}, {k + at * k_row, k_row}, T(1), {dq + begin * q_row, q_row});
        Gemm<T>(columns, d, n, T(1), {ds, all, true}, {q + begin * q_row, q_row}, T(1), {dk + at * k_row, k_row});
      }
    }
  }

  void Probabilities(int64_t b, int64_t g, int64_t h, int64_t begin, int64_t end, int64_t first, int64_t columns,
                     const T* q, const T* k) {
    if (attrs.fused) Scores(heads, attrs, q, k, begin, end, first, columns, probabilities.data());
    for (int64_t i = begin; i < end; ++i) {
      T* p = probabilities.data() + (i - begin) * heads.keys;
      const T* saved = SavedRow<T>(saved_view, heads, i, b, g, h);
      for (int64_t j = 0; j < columns; ++j) {
        p[j] = attrs.fused ? std::exp(p[j] - *saved) : heads.Sees(i, first + j) ? saved[j] : T(0);
      }
    }
  }
};

// One row of scores becomes probabilities; returns the log of the sum of their exponentials.
template <class T>
T Normalize(T* row, int64_t columns) {
  const T nothing = -std::numeric_limits<T>::infinity();
  const T top = columns == 0 ? nothing : *std::max_element(row, row + columns);
  if (top == nothing) {  // a row that sees no key of a ring's block
    std::fill_n(row, columns, T(0));
    return nothing;
  }
  T sum = 0;
  for (int64_t j = 0; j < columns; ++j) sum += row[j] = std::exp(row[j] - top);
  for (int64_t j = 0; j < columns; ++j) row[j] /= sum;
  return top + std::log(sum);
}

// The pairs (x[i], x[i + d/2]) of a head at one position are turned by the angle position * theta^(-2i/d) (Su et al.,
// arXiv:2104.09864, with the halves of a head as pairs). The gradient turns back.
template <class T>
class Turn {
 public:
  Turn(const KernelCall& call, int64_t width, bool back)
      : theta_(call.attrs->theta), direction_(back ? -1 : 1), cosine_(width / 2), sine_(cosine_) {}

  void To(int64_t position) {
    const auto half = static_cast<double>(cosine_.size());
    for (size_t i = 0; i < cosine_.size(); ++i) {
      const double angle = static_cast<double>(position) * std::pow(theta_, -static_cast<double>(i) / half);
      cosine_[i] = static_cast<T>(std::cos(angle));
      sine_[i] = static_cast<T>(direction_ * std::sin(angle));
    }
  }
  // Element i of the turned head.
  T Of(const T* from, int64_t i) const {
    const auto half = static_cast<int64_t>(cosine_.size());
    if (i < half) return from[i] * cosine_[i] - from[i + half] * sine_[i];
    return from[i] * cosine_[i - half] + from[i - half] * sine_[i - half];
  }

 private:
  double theta_, direction_;
  std::vector<T> cosine_, sine_;
};

}  // namespace

// Of all heads of a group but the value. What is not turned comes in pairs, too.
template <class T>
absl::Status Rotary(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const TurnedHeads heads, TurnedHeadsOf(call));
  Turn<T> turn(call, heads.turned, call.op == OpKind::kRotaryGrad);
  const auto set = [&](T& to, T value) { to = (call.Adds(0) ? to : T(0)) + value; };
  for (int64_t s = 0; s < x.shape[0]; ++s) {
    turn.To(PositionOf(x.begin[0] + s, x.global[0], call.attrs->context));
    for (int64_t head = 0; head < heads.groups * (heads.heads + 1); ++head) {
      const int64_t group = head / (heads.heads + 1), of_group = head % (heads.heads + 1);
      const int64_t at = (s * heads.groups + group) * heads.stride() + of_group * heads.width;
      const bool value_head = of_group == heads.heads;
      const int64_t width = value_head ? heads.value_width : heads.width, turned = value_head ? 0 : heads.turned;
      const T* from = x.as<T>() + at;
      T* to = y.as<T>() + at;
      for (int64_t pair = 0; pair < width / 2; ++pair) {  // both at once: `to` may be `from`
        const bool turns = pair < turned / 2;
        const int64_t i = turns ? pair : pair + turned / 2, j = i + (turns ? turned : width - turned) / 2;
        const T a = turns ? turn.Of(from, i) : from[i], b = turns ? turn.Of(from, j) : from[j];
        set(to[i], a);
        set(to[j], b);
      }
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status LatentHeads(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const LatentShape l, LatentShapeOf(call));
  const TensorView &packed = call.outputs[0], &query = call.inputs[0];
  Turn<T> turn(call, l.positions, /*back=*/false);
  std::vector<T> turned(l.positions);  // the part that all keys share
  const auto put = [&call](T& to, T value) { to = (call.Adds(0) ? to : T(0)) + value; };
  for (int64_t s = 0; s < l.s; ++s) {
    turn.To(PositionOf(query.begin[0] + s, query.global[0], call.attrs->context));
    for (int64_t b = 0; b < l.b; ++b) {
      const T* const shared = call.inputs[1].as<T>() + (s * l.b + b) * l.positions;
      for (int64_t i = 0; i < l.positions; ++i) turned[i] = turn.Of(shared, i);
      for (int64_t g = 0; g < l.g; ++g) {
        const int64_t head = (s * l.b + b) * l.g + g;
        const T *const q = query.as<T>() + head * l.width, *const kv = call.inputs[2].as<T>() + head * l.of_latent();
        T *const to = packed.as<T>() + head * l.packed(), *const key = to + l.width, *const value = key + l.width;
        for (int64_t i = 0; i < l.plain(); ++i) {
          put(to[i], q[i]);
          put(key[i], kv[i]);
        }
        for (int64_t i = 0; i < l.positions; ++i) {
          put(to[l.plain() + i], turn.Of(q + l.plain(), i));
          put(key[l.plain() + i], turned[i]);
        }
        for (int64_t i = 0; i < l.value_width; ++i) put(value[i], kv[l.plain() + i]);
      }
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status LatentHeadsGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 3));
  MESHWRIGHT_ASSIGN_OR_RETURN(const LatentShape l, LatentShapeOf(call));
  const TensorView &packed = call.inputs[0], &query = call.outputs[0];
  Turn<T> turn(call, l.positions, /*back=*/true);
  std::vector<T> sum(l.positions);  // over all keys, of the part that they share
  const auto put = [&call](size_t output, T& to, T value) { to = (call.Adds(output) ? to : T(0)) + value; };
  for (int64_t s = 0; s < l.s; ++s) {
    turn.To(PositionOf(query.begin[0] + s, query.global[0], call.attrs->context));
    for (int64_t b = 0; b < l.b; ++b) {
      std::fill(sum.begin(), sum.end(), T(0));
      for (int64_t g = 0; g < l.g; ++g) {
        const int64_t head = (s * l.b + b) * l.g + g;
        const T *const from = packed.as<T>() + head * l.packed(), *const key = from + l.width,
                       *const value = key + l.width;
        T *const q = query.as<T>() + head * l.width, *const kv = call.outputs[2].as<T>() + head * l.of_latent();
        for (int64_t i = 0; i < l.plain(); ++i) {
          put(0, q[i], from[i]);
          put(2, kv[i], key[i]);
        }
        for (int64_t i = 0; i < l.positions; ++i) {
          put(0, q[l.plain() + i], turn.Of(from + l.plain(), i));
          sum[i] += key[l.plain() + i];
        }
        for (int64_t i = 0; i < l.value_width; ++i) put(2, kv[l.plain() + i], value[i]);
      }
      T* const shared = call.outputs[1].as<T>() + (s * l.b + b) * l.positions;
      for (int64_t i = 0; i < l.positions; ++i) put(1, shared[i], turn.Of(sum.data(), i));
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status Attention(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 2, 2));
  if (call.accumulate != 0) return absl::InvalidArgumentError("cannot add to its outputs");
  const OpAttrs& attrs = *call.attrs;
  const TensorView &y = call.outputs[0], &saved = call.outputs[1];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Heads heads, HeadsOf(call.inputs, attrs, y, saved));
  const T *queries = call.inputs.front().as<T>(), *keys = call.inputs.back().as<T>();
  std::vector<T> scores(kRowBlock * heads.keys);
  const auto one_head = [&](int64_t b, int64_t g, int64_t h, const Part& part) {
    const T *k = keys + heads.Key(b, g), *v = keys + heads.Value(b, g);
    for (int64_t begin = part.row; begin < part.end; begin += kRowBlock) {
      const int64_t end = std::min(part.end, begin + kRowBlock);
      const int64_t columns = heads.Columns(begin, end, part.key, part.last);
      Scores(heads, attrs, queries + heads.Query(b, g, h), k, begin, end, part.key, columns, scores.data());
      for (int64_t i = begin; i < end; ++i) {
        T* row = scores.data() + (i - begin) * heads.keys;
        const T sum = Normalize(row, columns);
        T* keep = SavedRow<T>(saved, heads, i, b, g, h);
        if (attrs.fused) {
          *keep = sum;
        } else {
          std::copy(row, row + columns, keep);
          std::fill(keep + columns, keep + heads.keys, T(0));
        }
      }
      Gemm<T>(end - begin, heads.of.value_width, columns, T(1), {scores.data(), heads.keys},
              {v + part.key * heads.k_row(), heads.k_row()}, T(0),
              {y.as<T>() + begin * heads.y_row() + heads.y(b, g, h), heads.y_row()});
    }
  };
  for (int64_t b = 0; b < heads.b; ++b) {
    for (int64_t g = 0; g < heads.g; ++g) {
      for (int64_t h = 0; h < heads.of.queries; ++h) {
        for (int64_t block = 0; block < heads.blocks; ++block) one_head(b, g, h, PartOf(heads, block));
      }
    }
  }
  return absl::OkStatus();
}

// dy, qkv or q and kv, y, saved -> dqkv or dq and dkv
template <class T>
absl::Status AttentionGrad(const KernelCall& call) {
  const size_t operands = call.outputs.size() == 2 ? 2 : 1;
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, operands + 3, operands + 3, operands));
  const TensorView &dy = call.inputs[0], &y = call.inputs[operands + 1], &saved = call.inputs[operands + 2];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Heads heads, HeadsOf(call.inputs.subspan(1, operands), *call.attrs, y, saved));
  for (size_t i = 0; i < operands; ++i) {
    const TensorView& gradient = call.outputs[i];
    if (gradient.shape != call.inputs[1 + i].shape || dy.shape != y.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("dy is ", ToText(dy.shape), " and a gradient ", ToText(gradient.shape)));
    }
    if (!call.Adds(i)) std::fill_n(gradient.as<T>(), gradient.size(), T(0));
  }
  HeadGrad<T> head = {heads,
                      *call.attrs,
                      saved,
                      call.inputs[1].as<T>(),
                      call.inputs[operands].as<T>(),
                      dy.as<T>(),
                      y.as<T>(),
                      call.outputs.front().as<T>(),
                      call.outputs.back().as<T>()};
  for (int64_t b = 0; b < heads.b; ++b) {
    for (int64_t g = 0; g < heads.g; ++g) {
      for (int64_t h = 0; h < heads.of.queries; ++h) head.Run(b, g, h);
    }
  }
  return absl::OkStatus();
}

// Results y_k of attention over different keys with the logs of their sums l_k: l = log(sum(exp(l_k))),
// y = sum(exp(l_k - l) y_k).
template <class T>
absl::Status MergeAttention(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, call.inputs.size() + 1, 2));
  const TensorView &y = call.outputs[0], &saved = call.outputs[1];
  const size_t parts = call.inputs.size() / 2;
  const int64_t d = y.shape.empty() ? 0 : y.shape.back();
  bool fits = call.inputs.size() % 2 == 0 && call.accumulate == 0 && y.size() == saved.size() * d;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    fits = fits && call.inputs[i].shape == (i % 2 == 0 ? y.shape : saved.shape);
  }
  if (!fits) return absl::InvalidArgumentError(absl::StrCat("results and sums do not fit ", ToText(y.shape)));
  for (int64_t row = 0; row < saved.size(); ++row) {
    const auto sum_of = [&](size_t k) { return call.inputs[2 * k + 1].as<T>()[row]; };
    T top = sum_of(0), sum = 0;
    for (size_t k = 1; k < parts; ++k) top = std::max(top, sum_of(k));
    for (size_t k = 0; k < parts; ++k) sum += std::exp(sum_of(k) - top);
    const T all = top + std::log(sum);
    saved.as<T>()[row] = all;
    T* to = y.as<T>() + row * d;
    std::fill_n(to, d, T(0));
    for (size_t k = 0; k < parts; ++k) {
      const T share = std::exp(sum_of(k) - all);
      const T* from = call.inputs[2 * k].as<T>() + row * d;
      for (int64_t c = 0; c < d; ++c) to[c] += share * from[c];
    }
  }
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                              \
  template absl::Status Rotary<T>(const KernelCall&);          \
  template absl::Status LatentHeads<T>(const KernelCall&);     \
  template absl::Status LatentHeadsGrad<T>(const KernelCall&); \
  template absl::Status Attention<T>(const KernelCall&);       \
  template absl::Status MergeAttention<T>(const KernelCall&);  \
  template absl::Status AttentionGrad<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
