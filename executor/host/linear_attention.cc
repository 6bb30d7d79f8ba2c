// Linear attention and state spaces, token by token as ir/recurrence.h writes it down, and the convolution in front.
//
// Backward walks each head's tokens from the last to the first. It keeps the state in front of every so manieth token
// of a first walk, and makes those between anew, part by part.
#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/call_operands.h"
#include "executor/host/kernel_functions.h"
#include "ir/context_order.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

template <class T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}
template <class T>
T Softplus(T x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

// Outputs that are added to start as they are, others with 0.
template <class T>
T* Cleared(const KernelCall& call, size_t output) {
  const TensorView& view = call.outputs[output];
  if (!call.Adds(output)) std::fill_n(view.as<T>(), view.size(), T(0));
  return view.as<T>();
}

template <class T>
struct Operands {
  T *x, *gates, *rates, *biases;
  T* fifth;  // of state spaces weights, of rows that decay apart the logits of what is written
};
template <class T>
Operands<T> OperandsOf(absl::Span<const TensorView> views) {
  return {views[0].as<T>(), views[1].as<T>(), views[2].as<T>(), views[3].as<T>(),
          views.size() > 4 ? views[4].as<T>() : nullptr};
}

// One head of one row of the batch.
struct Head {
  const RecurrenceShape& of;
  int64_t ranks;  // whose order the sequence is stored in
  int64_t batch, group, head;

  int64_t Row(int64_t t) const { return (PlaceOf(t, of.s, ranks) * of.b + batch) * of.groups + group; }
  int64_t Query(int64_t t) const { return Row(t) * of.of_group(); }
  int64_t Key(int64_t t) const { return Query(t) + of.width; }
  int64_t Value(int64_t t) const { return Query(t) + 2 * of.width + head * of.value_width; }
  int64_t Gate(int64_t t) const { return Row(t) * of.of_gates() + head * of.decays(); }
  int64_t Result(int64_t t) const { return (Row(t) * of.heads + head) * of.value_width; }
  int64_t parameter() const { return group * of.heads + head; }
  int64_t bias() const { return parameter() * of.decays(); }
  // The logit of how much of a value is written, by the delta rule.
  template <class T>
  T* Amount(const Operands<T>& in, int64_t t) const {
    return of.by_row ? in.fifth + Row(t) * of.heads + head : in.gates + Gate(t) + of.heads;
  }
};

// What a token does to the state.
template <class T>
struct Token {
  std::vector<T> q, k;         // as the state meets them
  T q_by = 1, k_by = 1;        // what the operands' were multiplied by
  std::vector<T> decay;        // of each row
  std::vector<T> step, slope;  // of each decay; the latter of the step, by its logit
  T amount = 0;                // beta, or the step

  void Read(const Head& head, const Operands<const T>& in, int64_t t) {
    const RecurrenceShape& of = head.of;
    const T *from_q = in.x + head.Query(t), *from_k = in.x + head.Key(t);
    q.assign(from_q, from_q + of.width);
    k.assign(from_k, from_k + of.width);
    const T rate = std::exp(in.rates[head.parameter()]);
    step.resize(of.decays());
    slope.resize(of.decays());
    decay.resize(of.width);
    for (int64_t d = 0; d < of.decays(); ++d) {
      const T logit = in.gates[head.Gate(t) + d] + in.biases[head.bias() + d];
      step[d] = Softplus(logit);
      slope[d] = Sigmoid(logit);
      decay[d] = std::exp(-rate * step[d]);
    }
    if (!of.by_row) std::fill(decay.begin(), decay.end(), decay[0]);
    amount = of.delta ? Sigmoid(*head.Amount(in, t)) : step[0];
    if (!of.delta) return;
    q_by = InverseLength(q) / std::sqrt(static_cast<T>(of.width));
    k_by = InverseLength(k);
    for (T& value : q) value *= q_by;
    for (T& value : k) value *= k_by;
  }

 private:
  static T InverseLength(const std::vector<T>& x) {
    T squares = 0;
    for (const T value : x) squares += value * value;
    return 1 / std::sqrt(squares + static_cast<T>(kLengthEpsilon));
  }
};

// y += a x
template <class T>
void AddScaled(T a, const T* x, int64_t n, T* y) {
  for (int64_t j = 0; j < n; ++j) y[j] += a * x[j];
}
template <class T>
T Dot(const T* x, const T* y, int64_t n) {
  constexpr int64_t kLanes = 8;  // sums of their own, as a vector unit has them
  T sums[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += x[j + l] * y[j + l];
  }
  T sum = 0;
  for (; j < n; ++j) sum += x[j] * y[j];
  for (const T lane : sums) sum += lane;
  return sum;
}

// The state of one head.
template <class T>
class State {
 public:
  explicit State(const RecurrenceShape& of) : of_(of), s_(of.width * of.value_width, T(0)), change_(of.value_width) {}

  // Takes a token. `found`, where it is not null, is what the state had for its key: S'^T k.
  void Take(const Token<T>& token, const T* value, T* found = nullptr) {
    const int64_t u = of_.value_width;
    for (int64_t i = 0; i < of_.width; ++i) {
      for (int64_t j = 0; j < u; ++j) Row(i)[j] *= token.decay[i];
    }
    std::fill(change_.begin(), change_.end(), T(0));
    if (of_.delta) {
      for (int64_t i = 0; i < of_.width; ++i) AddScaled(token.k[i], Row(i), u, change_.data());
    }
    if (found != nullptr) std::copy(change_.begin(), change_.end(), found);
    for (int64_t j = 0; j < u; ++j) change_[j] = token.amount * (value[j] - change_[j]);
    for (int64_t i = 0; i < of_.width; ++i) AddScaled(token.k[i], change_.data(), u, Row(i));
  }
  T* Row(int64_t i) { return s_.data() + i * of_.value_width; }
  const T* Row(int64_t i) const { return s_.data() + i * of_.value_width; }
  std::vector<T>& elements() { return s_; }
  const std::vector<T>& elements() const { return s_; }

 private:
  const RecurrenceShape& of_;
  std::vector<T> s_, change_;
};

template <class T>
void Forward(const Head& head, const Operands<const T>& in, bool add, T* y) {
  const RecurrenceShape& of = head.of;
  State<T> state(of);
  Token<T> token;
  for (int64_t t = 0; t < of.s; ++t) {
    token.Read(head, in, t);
    const T* value = in.x + head.Value(t);
    state.Take(token, value);
    T* out = y + head.Result(t);
    if (!add) std::fill_n(out, of.value_width, T(0));
    for (int64_t i = 0; i < of.width; ++i) AddScaled(token.q[i], state.Row(i), of.value_width, out);
    if (!of.delta) AddScaled(in.fifth[head.parameter()], value, of.value_width, out);
  }
}

// The gradients of one head, which are added to.
template <class T>
class Backward {
 public:
  Backward(const Head& head, const Operands<const T>& in, const T* dy, const Operands<T>& out)
      : head_(head), of_(head.of), in_(in), dy_(dy), out_(out), ds_(of_) {}

  void Run() {
    const auto part = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(of_.s))));
    std::vector<State<T>> marks;  // the state in front of each part
    State<T> state(of_);
    Token<T> token;
    for (int64_t t = 0; t < of_.s; ++t) {
      if (t % part == 0) marks.push_back(state);
      token.Read(head_, in_, t);
      state.Take(token, in_.x + head_.Value(t));
    }
    for (int64_t p = static_cast<int64_t>(marks.size()); p-- > 0;) {
      const int64_t begin = p * part, end = std::min(of_.s, begin + part);
      std::vector<State<T>> states = {marks[p]};  // in front of each token, and behind the last
      for (int64_t t = begin; t < end; ++t) {
        states.push_back(states.back());
        token.Read(head_, in_, t);
        states.back().Take(token, in_.x + head_.Value(t));
      }
      for (int64_t t = end; t-- > begin;) Step(t, states[t - begin], states[t - begin + 1]);
    }
  }

 private:
  // ds_ is the gradient of the state behind the token, then of that in front.
  void Step(int64_t t, const State<T>& before, const State<T>& after) {
    const int64_t n = of_.width, u = of_.value_width;
    token_.Read(head_, in_, t);
    const T *dy = dy_ + head_.Result(t), *value = in_.x + head_.Value(t);
    T* d_value = out_.x + head_.Value(t);
    std::vector<T> dq(n), dk(n), change(u, T(0)), d_change(u, T(0)), found(u, T(0));
    for (int64_t i = 0; i < n; ++i) {
      dq[i] = Dot(after.Row(i), dy, u);
      AddScaled(token_.q[i], dy, u, ds_.Row(i));
      AddScaled(token_.k[i], ds_.Row(i), u, d_change.data());
      if (of_.delta) AddScaled(token_.decay[i] * token_.k[i], before.Row(i), u, found.data());
    }
    T d_amount = 0;
    std::vector<T> d_log(of_.decays(), T(0));  // by the logarithm of a decay
    for (int64_t j = 0; j < u; ++j) {
      change[j] = token_.amount * (value[j] - found[j]);
      d_amount += d_change[j] * (value[j] - found[j]);
      d_value[j] += token_.amount * d_change[j];
    }
    for (int64_t i = 0; i < n; ++i) {
      T* ds = ds_.Row(i);
      dk[i] = Dot(ds, change.data(), u);
      if (of_.delta) {  // by what was found
        dk[i] -= token_.amount * token_.decay[i] * Dot(before.Row(i), d_change.data(), u);
        AddScaled(-token_.amount * token_.k[i], d_change.data(), u, ds);
      }
      d_log[of_.by_row ? i : 0] += token_.decay[i] * Dot(ds, before.Row(i), u);
      for (int64_t j = 0; j < u; ++j) ds[j] *= token_.decay[i];
    }
    Finish(t, dq, dk, d_amount, d_log);
  }

  // From what the state meets to the operands.
  void Finish(int64_t t, const std::vector<T>& dq, const std::vector<T>& dk, T d_amount, const std::vector<T>& d_log) {
    const int64_t h = head_.parameter(), u = of_.value_width;
    const T rate = std::exp(in_.rates[h]);
    for (int64_t d = 0; d < of_.decays(); ++d) {
      const T d_step = (of_.delta ? T(0) : d_amount) - rate * d_log[d];
      out_.rates[h] -= rate * token_.step[d] * d_log[d];
      out_.gates[head_.Gate(t) + d] += d_step * token_.slope[d];
      out_.biases[head_.bias() + d] += d_step * token_.slope[d];
    }
    if (of_.delta) {
      *head_.Amount(out_, t) += d_amount * token_.amount * (1 - token_.amount);
    } else {
      const T *dy = dy_ + head_.Result(t), *value = in_.x + head_.Value(t);
      out_.fifth[h] += Dot(dy, value, u);
      AddScaled(in_.fifth[h], dy, u, out_.x + head_.Value(t));
    }
    AddOfUnit(token_.q, token_.q_by, dq, std::sqrt(static_cast<T>(of_.width)), out_.x + head_.Query(t));
    AddOfUnit(token_.k, token_.k_by, dk, T(1), out_.x + head_.Key(t));
  }

  // Adds the gradient of x, where y = by * x, by the inverse of x's length over `root`.
  void AddOfUnit(const std::vector<T>& y, T by, const std::vector<T>& d_y, T root, T* dx) const {
    const int64_t n = of_.width;
    const T along = of_.delta ? Dot(y.data(), d_y.data(), n) * root * root : T(0);
    for (int64_t i = 0; i < n; ++i) dx[i] += by * (d_y[i] - y[i] * along);
  }

  const Head head_;
  const RecurrenceShape& of_;
  const Operands<const T> in_;
  const T* dy_;
  const Operands<T> out_;
  State<T> ds_;
  Token<T> token_;
};

template <class F>
void ForEachHead(const RecurrenceShape& of, int64_t ranks, const F& f) {
  for (int64_t batch = 0; batch < of.b; ++batch) {
    for (int64_t group = 0; group < of.groups; ++group) {
      for (int64_t head = 0; head < of.heads; ++head) f(Head{of, ranks, batch, group, head});
    }
  }
}

template <class T>
Operands<const T> Read(absl::Span<const TensorView> views) {
  const Operands<T> in = OperandsOf<T>(views);
  return {in.x, in.gates, in.rates, in.biases, in.fifth};
}

// Where the channels of the token `back` before t are, or -1 in front of the sequence.
int64_t RowBefore(const ConvShape& of, int64_t ranks, int64_t t, int64_t back) {
  return t < back ? -1 : PlaceOf(t - back, of.s, ranks);
}

// What a channel's taps and bias sum up to at position t.
template <class T>
T SumOfTaps(const ConvShape& of, const KernelCall& call, absl::Span<const TensorView> in, int64_t t, int64_t batch,
            int64_t channel) {
  const T *x = in[0].as<T>(), *weight = in[1].as<T>() + channel * of.taps;
  T sum = of.bias ? in[2].as<T>()[channel] : T(0);
  for (int64_t i = 0; i < of.taps; ++i) {
    const int64_t row = RowBefore(of, call.attrs->context, t, of.taps - 1 - i);
    if (row >= 0) sum += weight[i] * x[(row * of.b + batch) * of.channels + channel];
  }
  return sum;
}

}  // namespace

template <class T>
absl::Status LinearAttention(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 4, 5, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RecurrenceShape of, RecurrenceOf(call));
  const Operands<const T> in = Read<T>(call.inputs);
  ForEachHead(of, call.attrs->context,
              [&](const Head& head) { Forward(head, in, call.Adds(0), call.outputs[0].as<T>()); });
  return absl::OkStatus();
}

template <class T>
absl::Status LinearAttentionGrad(const KernelCall& call) {
  const size_t operands = call.inputs.size() - 1;
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 5, 6, operands));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RecurrenceShape of, RecurrenceOf(call));
  const Operands<const T> in = Read<T>(call.inputs.subspan(1));
  for (size_t i = 0; i < operands; ++i) Cleared<T>(call, i);
  const Operands<T> out = OperandsOf<T>(call.outputs);
  ForEachHead(of, call.attrs->context,
              [&](const Head& head) { Backward<T>(head, in, call.inputs[0].as<T>(), out).Run(); });
  return absl::OkStatus();
}

template <class T>
absl::Status CausalConv(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 3, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ConvShape of, ConvShapeOf(call));
  T* y = call.outputs[0].as<T>();
  for (int64_t t = 0; t < of.s; ++t) {
    const int64_t row = RowBefore(of, call.attrs->context, t, 0);
    for (int64_t batch = 0; batch < of.b; ++batch) {
      for (int64_t channel = 0; channel < of.channels; ++channel) {
        const T sum = SumOfTaps<T>(of, call, call.inputs, t, batch, channel);
        T& out = y[(row * of.b + batch) * of.channels + channel];
        out = (call.Adds(0) ? out : T(0)) + sum * Sigmoid(sum);
      }
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status CausalConvGrad(const KernelCall& call) {
  const size_t operands = call.inputs.size() - 1;
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 4, operands));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ConvShape of, ConvShapeOf(call));
  const absl::Span<const TensorView> in = call.inputs.subspan(1);
  const T *dy = call.inputs[0].as<T>(), *x = in[0].as<T>(), *weight = in[1].as<T>();
  T *dx = Cleared<T>(call, 0), *d_weight = Cleared<T>(call, 1), *d_bias = of.bias ? Cleared<T>(call, 2) : nullptr;
  for (int64_t t = 0; t < of.s; ++t) {
    const int64_t row = RowBefore(of, call.attrs->context, t, 0);
    for (int64_t batch = 0; batch < of.b; ++batch) {
      for (int64_t channel = 0; channel < of.channels; ++channel) {
        const T sum = SumOfTaps<T>(of, call, in, t, batch, channel), s = Sigmoid(sum);
        const T d_sum = dy[(row * of.b + batch) * of.channels + channel] * s * (1 + sum * (1 - s));
        for (int64_t i = 0; i < of.taps; ++i) {
          const int64_t from = RowBefore(of, call.attrs->context, t, of.taps - 1 - i);
          if (from < 0) continue;
          const int64_t at = (from * of.b + batch) * of.channels + channel;
          dx[at] += d_sum * weight[channel * of.taps + i];
          d_weight[channel * of.taps + i] += d_sum * x[at];
        }
        if (of.bias) d_bias[channel] += d_sum;
      }
    }
  }
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                                  \
  template absl::Status LinearAttention<T>(const KernelCall&);     \
  template absl::Status LinearAttentionGrad<T>(const KernelCall&); \
  template absl::Status CausalConv<T>(const KernelCall&);          \
  template absl::Status CausalConvGrad<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
