// Kernels that look at one element of each operand at a time. Operands broadcast by the labels of the rule.
#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/call_operands.h"
#include "executor/host/kernel_functions.h"
#include "executor/host/loop.h"
#include "executor/random.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

// Loops over the output's points; operand 0 is the output, then the inputs.
template <size_t N>
LoopNest<N + 1> OverOutput(const KernelCall& call) {
  const IndexRule& rule = *call.rule;
  const Shape& shape = call.outputs[0].shape;
  const Shape strides = RowMajorStrides(shape);
  std::array<LabelStrides, N> inputs;
  for (size_t i = 0; i < N; ++i) inputs[i] = StridesByLabel(rule, rule.inputs[i], call.inputs[i].shape);
  LoopNest<N + 1> nest;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int8_t label = rule.outputs[0][d].label;
    std::array<int64_t, N + 1> step = {strides[d]};
    for (size_t i = 0; i < N; ++i) step[i + 1] = label < 0 ? 0 : inputs[i][label];
    nest.Add(shape[d], step);
  }
  return nest;
}

// output (+)= f(inputs...), element by element.
template <class T, size_t N, class F, size_t... I>
void ApplyTo(const KernelCall& call, const F& f, std::index_sequence<I...>) {
  T* out = call.outputs[0].as<T>();
  const std::array<const T*, N> in = {call.inputs[I].template as<T>()...};
  const bool add = call.Adds(0);
  OverOutput<N>(call).ForEachRow([&](const auto& at, int64_t n, const auto& step) {
    T* y = out + at[0];
    const std::array<const T*, N> x = {in[I] + at[I + 1]...};
    const bool contiguous = step[0] == 1 && ((step[I + 1] == 1) && ...);
    if (contiguous && !add) {
      for (int64_t i = 0; i < n; ++i) y[i] = f(x[I][i]...);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        T& value = y[i * step[0]];
        value = (add ? value : T(0)) + f(x[I][i * step[I + 1]]...);
      }
    }
  });
}
template <class T, size_t N, class F>
void Apply(const KernelCall& call, const F& f) {
  ApplyTo<T, N>(call, f, std::make_index_sequence<N>());
}

template <class T>
T SigmoidOf(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// sqrt(2 / pi), and the cubic term of the tanh form of GeLU (Hendrycks and Gimpel, arXiv:1606.08415).
inline constexpr double kGeluScale = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

// Calls then(f, derivative), both functions of one T. Of a gated op, the gate's.
template <class T, class Then>
void WithActivation(OpKind op, const Then& then) {
  switch (op) {
    case OpKind::kRelu:
    case OpKind::kReluGrad:
      return then([](T x) { return x > 0 ? x : T(0); }, [](T x) { return x > 0 ? T(1) : T(0); });
    case OpKind::kSquaredRelu:
    case OpKind::kSquaredReluGrad:
      return then([](T x) { return x > 0 ? x * x : T(0); }, [](T x) { return x > 0 ? 2 * x : T(0); });
    case OpKind::kSqrt:
    case OpKind::kSqrtGrad:
      return then([](T x) { return std::sqrt(x); }, [](T x) { return T(0.5) / std::sqrt(x); });
    case OpKind::kTanh:
    case OpKind::kTanhGrad:
      return then([](T x) { return std::tanh(x); },
                  [](T x) {
                    const T t = std::tanh(x);
                    return 1 - t * t;
                  });
    case OpKind::kSigmoid:
    case OpKind::kSigmoidGrad:
      return then([](T x) { return SigmoidOf(x); },
                  [](T x) {
                    const T s = SigmoidOf(x);
                    return s * (1 - s);
                  });
    case OpKind::kSilu:
    case OpKind::kSiluGrad:
    case OpKind::kSwiglu:
    case OpKind::kSwigluGrad:
      return then([](T x) { return x * SigmoidOf(x); },
                  [](T x) {
                    const T s = SigmoidOf(x);
                    return s * (1 + x * (1 - s));
                  });
    case OpKind::kGelu:
    case OpKind::kGeluGrad:
    case OpKind::kGeglu:
    case OpKind::kGegluGrad:
      return then([](T x) { return T(0.5) * x * (1 + std::tanh(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x))); },
                  [](T x) {
                    const T t = std::tanh(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x));
                    const T inner = T(kGeluScale) * (1 + 3 * T(kGeluCubic) * x * x);
                    return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * inner;
                  });
    default:  // RunHostKernel calls with the kinds above only
      return;
  }
}

// The place of the dim of two (gate and value) and the loop over the rest; operand 0 has no such dim, operand 1 has.
struct GateLoop {
  LoopNest<3> nest;  // y or dy, x, dx (which has x's strides)
  int64_t half = 0;  // from x[0] to x[1], in elements
};
absl::StatusOr<GateLoop> LoopOfGate(const IndexRule& rule, const OperandRule& small, const Shape& small_shape,
                                    const OperandRule& wide, const Shape& wide_shape) {
  const LabelStrides by_label = StridesByLabel(rule, small, small_shape);
  const Shape strides = RowMajorStrides(wide_shape);
  GateLoop loop;
  for (size_t d = 0; d < wide.size(); ++d) {
    const int8_t label = wide[d].label;
    bool in_small = false;
    for (const DimRule& dim : small) in_small = in_small || dim.label == label;
    if (in_small) {
      loop.nest.Add(wide_shape[d], {by_label[label], strides[d], strides[d]});
    } else if (loop.half == 0 && wide_shape[d] == 2) {
      loop.half = strides[d];
    } else {
      return absl::InvalidArgumentError("one dim of extent 2 (gate, value) must vanish");
    }
  }
  if (loop.half == 0) return absl::InvalidArgumentError("no dim of extent 2 (gate, value) vanishes");
  return loop;
}

}  // namespace

template <class T>
absl::Status Add(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 64, 1));
  switch (call.inputs.size()) {
    case 1:
      Apply<T, 1>(call, [](T a) { return a; });
      break;
    case 2:
      Apply<T, 2>(call, [](T a, T b) { return a + b; });
      break;
    case 3:
      Apply<T, 3>(call, [](T a, T b, T c) { return a + b + c; });
      break;
    default: {
      IndexRule rule = *call.rule;  // the first three at once, the others onto the result, one by one
      rule.inputs.resize(3);
      KernelCall part = call;
      part.rule = &rule;
      part.inputs = call.inputs.first(3);
      Apply<T, 3>(part, [](T a, T b, T c) { return a + b + c; });
      part.accumulate = 1;
      rule.inputs.resize(1);
      for (size_t i = 3; i < call.inputs.size(); ++i) {
        rule.inputs[0] = call.rule->inputs[i];
        part.inputs = call.inputs.subspan(i, 1);
        Apply<T, 1>(part, [](T a) { return a; });
      }
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status Binary(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  if (call.op == OpKind::kSub) Apply<T, 2>(call, [](T a, T b) { return a - b; });
  if (call.op == OpKind::kMul) Apply<T, 2>(call, [](T a, T b) { return a * b; });
  if (call.op == OpKind::kDiv) Apply<T, 2>(call, [](T a, T b) { return a / b; });
  if (call.op == OpKind::kEqual) Apply<T, 2>(call, [](T a, T b) { return a == b ? T(1) : T(0); });
  return absl::OkStatus();
}

template <class T>
absl::Status Activation(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 2, 1));
  WithActivation<T>(call.op, [&](const auto& f, const auto&) {
    if (call.inputs.size() == 1) {
      Apply<T, 1>(call, f);
    } else {
      Apply<T, 2>(call, [&](T x, T bias) { return f(x + bias); });
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status ActivationGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 3, 1));
  WithActivation<T>(call.op, [&](const auto&, const auto& derivative) {
    if (call.inputs.size() == 2) {
      Apply<T, 2>(call, [&](T dy, T x) { return dy * derivative(x); });
    } else {
      Apply<T, 3>(call, [&](T dy, T x, T bias) { return dy * derivative(x + bias); });
    }
  });
  return absl::OkStatus();
}

template <class T>
absl::Status Gate(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  const IndexRule& rule = *call.rule;
  MESHWRIGHT_ASSIGN_OR_RETURN(const GateLoop loop, LoopOfGate(rule, rule.outputs[0], call.outputs[0].shape,
                                                              rule.inputs[0], call.inputs[0].shape));
  T* y = call.outputs[0].as<T>();
  const T* x = call.inputs[0].as<T>();
  WithActivation<T>(call.op, [&](const auto& f, const auto&) {
    loop.nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
      for (int64_t i = 0; i < n; ++i) {
        const T* gate = x + at[1] + i * step[1];
        T& out = y[at[0] + i * step[0]];
        out = (call.Adds(0) ? out : T(0)) + f(*gate) * gate[loop.half];
      }
    });
  });
  return absl::OkStatus();
}

template <class T>
absl::Status GateGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const IndexRule& rule = *call.rule;
  MESHWRIGHT_ASSIGN_OR_RETURN(const GateLoop loop, LoopOfGate(rule, rule.inputs[0], call.inputs[0].shape,
                                                              rule.inputs[1], call.inputs[1].shape));
  const T* dy = call.inputs[0].as<T>();
  const T* x = call.inputs[1].as<T>();
  T* dx = call.outputs[0].as<T>();
  WithActivation<T>(call.op, [&](const auto& f, const auto& derivative) {
    loop.nest.ForEachRow([&](const auto& at, int64_t n, const auto& step) {
      for (int64_t i = 0; i < n; ++i) {
        const T* in = x + at[1] + i * step[1];
        T* out = dx + at[2] + i * step[2];
        const T g = dy[at[0] + i * step[0]];
        const T d_gate = g * in[loop.half] * derivative(in[0]), d_value = g * f(in[0]);
        out[0] = (call.Adds(0) ? out[0] : T(0)) + d_gate;
        out[loop.half] = (call.Adds(0) ? out[loop.half] : T(0)) + d_value;
      }
    });
  });
  return absl::OkStatus();
}

template <class T>
absl::Status Dropout(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (x.shape != y.shape) return absl::InvalidArgumentError("dims of input and output are in the same order");
  const double rate = call.attrs->rate;
  const T kept = static_cast<T>(1 / (1 - rate));
  const Draws draws = Draws(call.seed, "dropout", call.layer).Sub(call.attrs->stream).Sub(call.step);
  ForEachElement(call.Drawn(), [&](int64_t i, int64_t element) {
    const T factor = draws.Uniform(static_cast<uint64_t>(element)) < rate ? T(0) : kept;
    y.as<T>()[i] = (call.Adds(0) ? y.as<T>()[i] : T(0)) + factor * x.as<T>()[i];
  });
  return absl::OkStatus();
}

template <class T>
absl::Status Fill(const KernelCall& call) {
  for (const TensorView& view : call.outputs) {
    const int64_t n = view.size();
    const double value = call.attrs->scale;
    if (view.dtype == DType::kInt32) {
      std::fill_n(view.as<int32_t>(), n, static_cast<int32_t>(value));
    } else {
      std::fill_n(view.as<T>(), n, static_cast<T>(value));
    }
  }
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                             \
  template absl::Status Add<T>(const KernelCall&);            \
  template absl::Status Binary<T>(const KernelCall&);         \
  template absl::Status Activation<T>(const KernelCall&);     \
  template absl::Status ActivationGrad<T>(const KernelCall&); \
  template absl::Status Gate<T>(const KernelCall&);           \
  template absl::Status GateGrad<T>(const KernelCall&);       \
  template absl::Status Dropout<T>(const KernelCall&);        \
  template absl::Status Fill<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
