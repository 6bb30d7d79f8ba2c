// Updates of parameters. Inputs: parameter, gradient, state...; outputs: parameter, state..., and optionally a copy of
// the parameter. Inputs and outputs may be the same memory. Under loss scaling two scalars follow the inputs: the
// factor of the gradient, 0 where the step is skipped, and how many steps were skipped before. Several parameters may
// be updated in one call (UpdateOperands of ir/graph.h): the same as one after the other.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "executor/host/kernel_functions.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

// Checks that the operands are of one shape.
absl::Status CheckShapes(const KernelCall& call, absl::Span<const TensorView> views) {
  for (const TensorView& view : views) {
    if (view.shape == call.inputs[0].shape) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("an operand is ", ToText(view.shape), ", the parameter ", ToText(call.inputs[0].shape)));
  }
  return absl::OkStatus();
}

// Checks that `inputs` of one shape stand first, and nothing or the two scalars of loss scaling behind `all`.
absl::Status CheckInputs(const KernelCall& call, size_t inputs, size_t all, size_t outputs) {
  const bool scaled = call.inputs.size() == all + 2;
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, scaled ? all + 2 : all, scaled ? all + 2 : all, outputs));
  MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(call, call.inputs.first(inputs)));
  for (size_t i = all; i < call.inputs.size(); ++i) {
    if (call.inputs[i].shape.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", ToText(call.inputs[i].shape), ", not a scalar"));
  }
  return absl::OkStatus();
}

// Checks the operands of an optimizer that keeps `states` tensors, all of one shape.
absl::Status CheckOptimizer(const KernelCall& call, size_t states) {
  const size_t with_copy = call.outputs.size() == states + 2 ? 1 : 0;
  MESHWRIGHT_RETURN_IF_ERROR(CheckInputs(call, states + 2, states + 2, states + 1 + with_copy));
  return CheckShapes(call, call.outputs);
}

// The update of each of the call's parameters, one after the other.
absl::Status ForEach(const KernelCall& call, absl::Status (*update)(const KernelCall& call)) {
  if (call.attrs->tensors == 1) return update(call);
  const std::optional<UpdateOperands> operands =
      UpdateOperandsOf(call.op, *call.attrs, call.inputs.size(), call.outputs.size());
  if (!operands.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("has ", call.inputs.size(), " inputs and ", call.outputs.size(),
                                                   " outputs, which are not of ", call.attrs->tensors, " parameters"));
  }
  for (size_t t = 0; t < static_cast<size_t>(call.attrs->tensors); ++t) {
    const auto of_all = call.inputs.last(operands->scaled ? 2 : 0);
    const auto own = call.inputs.subspan(t * operands->inputs, operands->inputs);
    std::vector<TensorView> inputs(own.begin(), own.end());
    inputs.insert(inputs.end(), of_all.begin(), of_all.end());
    KernelCall one = call;
    one.inputs = inputs;
    one.outputs = call.outputs.subspan(t * operands->outputs, operands->outputs);
    MESHWRIGHT_RETURN_IF_ERROR(update(one));
  }
  return absl::OkStatus();
}

template <class T>
struct Pointers {
  int64_t n;
  const T* w;
  const T* g;
  T* to;
  T* copy = nullptr;  // the optional last output
  double step;        // from 1; steps that were skipped do not count
  T factor = 1;       // of the gradient
  bool skip = false;

  // `all`: inputs without the scalars of loss scaling.
  Pointers(const KernelCall& call, size_t states, size_t all)
      : n(call.inputs[0].size()),
        w(call.inputs[0].as<T>()),
        g(call.inputs[1].as<T>()),
        to(call.outputs[0].as<T>()),
        step(static_cast<double>(call.step)) {
    if (call.outputs.size() > states + 1) copy = call.outputs[states + 1].as<T>();
    if (call.inputs.size() == all) return;
    factor = *call.inputs[all].as<T>();
    step -= *call.inputs[all + 1].as<T>();
    skip = factor == 0;
  }
  Pointers(const KernelCall& call, size_t states) : Pointers(call, states, states + 2) {}

  T Gradient(int64_t i) const { return factor * g[i]; }
  void Set(int64_t i, T value) const {
    to[i] = value;
    if (copy != nullptr) copy[i] = value;
  }
  // The step is skipped: everything stays as it is.
  absl::Status Keep(const KernelCall& call, size_t states) const {
    for (int64_t i = 0; i < n; ++i) Set(i, w[i]);
    for (size_t s = 0; s < states; ++s) {
      const T* const from = call.inputs[s + 2].as<T>();
      std::copy(from, from + n, call.outputs[s + 1].as<T>());
    }
    return absl::OkStatus();
  }
};

template <class T>
absl::Status OneSgd(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckOptimizer(call, 0));
  const Pointers<T> p(call, 0);
  if (p.skip) return p.Keep(call, 0);
  const T rate = static_cast<T>(call.attrs->learning_rate);
  for (int64_t i = 0; i < p.n; ++i) p.Set(i, p.w[i] - rate * p.Gradient(i));
  return absl::OkStatus();
}

template <class T>
absl::Status OneMomentum(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckOptimizer(call, 1));
  const Pointers<T> p(call, 1);
  if (p.skip) return p.Keep(call, 1);
  const T* u = call.inputs[2].as<T>();
  T* new_u = call.outputs[1].as<T>();
  const T rate = static_cast<T>(call.attrs->learning_rate), beta = static_cast<T>(call.attrs->beta1);
  for (int64_t i = 0; i < p.n; ++i) {
    const T velocity = beta * u[i] + p.Gradient(i);
    new_u[i] = velocity;
    p.Set(i, p.w[i] - rate * velocity);
  }
  return absl::OkStatus();
}

// Loshchilov and Hutter, arXiv:1711.05101, algorithm 2 with a schedule multiplier of 1 and the decay times the rate.
template <class T>
absl::Status OneAdamW(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckOptimizer(call, 2));
  const Pointers<T> p(call, 2);
  if (p.skip) return p.Keep(call, 2);
  const T* m = call.inputs[2].as<T>();
  const T* v = call.inputs[3].as<T>();
  T* new_m = call.outputs[1].as<T>();
  T* new_v = call.outputs[2].as<T>();
  const OpAttrs& attrs = *call.attrs;
  const T correct_m = static_cast<T>(1 / (1 - std::pow(attrs.beta1, p.step)));
  const T correct_v = static_cast<T>(1 / (1 - std::pow(attrs.beta2, p.step)));
  const T rate = static_cast<T>(attrs.learning_rate), epsilon = static_cast<T>(attrs.epsilon);
  const T beta1 = static_cast<T>(attrs.beta1), beta2 = static_cast<T>(attrs.beta2);
  const T decay = static_cast<T>(attrs.weight_decay);
  for (int64_t i = 0; i < p.n; ++i) {
    const T gradient = p.Gradient(i);
    const T mean = beta1 * m[i] + (1 - beta1) * gradient;
    const T square = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    new_m[i] = mean;
    new_v[i] = square;
    const T direction = mean * correct_m / (std::sqrt(square * correct_v) + epsilon);
    p.Set(i, p.w[i] - rate * (direction + decay * p.w[i]));
  }
  return absl::OkStatus();
}

// You et al., arXiv:1904.00962, algorithm 2 with the decay inside the step: with m and v as in AdamW,
//   step = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w
//   w <- w - learning_rate * (|w| / |step|) * step
// where both norms are of the whole parameter, and their quotient is 1 where either is 0. This is the first line, with
// the sums of squares that the norms are the roots of.
template <class T>
absl::Status OneLambStep(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInputs(call, 4, 4, 5));
  MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(call, call.outputs.first(3)));
  Pointers<T> p(call, 2);
  p.copy = nullptr;  // what follows the states is a norm
  const T* m = call.inputs[2].as<T>();
  const T* v = call.inputs[3].as<T>();
  T* new_m = call.outputs[1].as<T>();
  T* new_v = call.outputs[2].as<T>();
  const OpAttrs& attrs = *call.attrs;
  const T correct_m = static_cast<T>(1 / (1 - std::pow(attrs.beta1, p.step)));
  const T correct_v = static_cast<T>(1 / (1 - std::pow(attrs.beta2, p.step)));
  const T epsilon = static_cast<T>(attrs.epsilon), decay = static_cast<T>(attrs.weight_decay);
  const T beta1 = static_cast<T>(attrs.beta1), beta2 = static_cast<T>(attrs.beta2);
  double weights = 0, steps = 0;
  if (p.skip) {
    MESHWRIGHT_RETURN_IF_ERROR(p.Keep(call, 2));
    std::fill(p.to, p.to + p.n, T(0));
  }
  for (int64_t i = 0; i < p.n && !p.skip; ++i) {
    const T weight = p.w[i];
    const T gradient = p.Gradient(i);
    const T mean = beta1 * m[i] + (1 - beta1) * gradient;
    const T square = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    new_m[i] = mean;
    new_v[i] = square;
    p.to[i] = mean * correct_m / (std::sqrt(square * correct_v) + epsilon) + decay * weight;
    weights += static_cast<double>(weight) * weight;
    steps += static_cast<double>(p.to[i]) * p.to[i];
  }
  *call.outputs[3].as<T>() = static_cast<T>(weights);
  *call.outputs[4].as<T>() = static_cast<T>(steps);
  return absl::OkStatus();
}

// The second line.
template <class T>
absl::Status OneLamb(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInputs(call, 2, 4, call.outputs.size() == 2 ? 2 : 1));
  MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(call, call.outputs));
  const Pointers<T> p(call, 0, 4);
  if (p.skip) return p.Keep(call, 0);
  const T weights = std::sqrt(*call.inputs[2].as<T>()), steps = std::sqrt(*call.inputs[3].as<T>());
  const T trust = weights > 0 && steps > 0 ? weights / steps : 1;
  const T rate = static_cast<T>(call.attrs->learning_rate) * trust;
  for (int64_t i = 0; i < p.n; ++i) p.Set(i, p.w[i] - rate * p.g[i]);
  return absl::OkStatus();
}

// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon), as Liu et al., arXiv:2502.16982, have it:
//   u <- momentum * u + gradient,  step = gradient + momentum * u
//   w <- w - learning_rate * (scale * direction + weight_decay * w)
// where the direction is the step with its singular values made one (planner/passes/orthogonalize.h). The first line.
template <class T>
absl::Status OneMuonStep(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckInputs(call, 3, 3, 2));
  MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(call, call.outputs));
  Pointers<T> p(call, 1);
  if (p.skip) {
    MESHWRIGHT_RETURN_IF_ERROR(p.Keep(call, 1));
    std::fill(p.to, p.to + p.n, T(0));
    return absl::OkStatus();
  }
  const T* u = call.inputs[2].as<T>();
  T* new_u = call.outputs[1].as<T>();
  const T momentum = static_cast<T>(call.attrs->beta1);
  for (int64_t i = 0; i < p.n; ++i) {
    const T gradient = p.Gradient(i), velocity = momentum * u[i] + gradient;
    new_u[i] = velocity;
    p.to[i] = gradient + momentum * velocity;
  }
  return absl::OkStatus();
}

// The second line.
template <class T>
absl::Status OneMuon(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckOptimizer(call, 0));
  const Pointers<T> p(call, 0);
  if (p.skip) return p.Keep(call, 0);
  const T rate = static_cast<T>(call.attrs->learning_rate), scale = static_cast<T>(call.attrs->scale);
  const T decay = static_cast<T>(call.attrs->weight_decay);
  for (int64_t i = 0; i < p.n; ++i) p.Set(i, p.w[i] - rate * (scale * p.g[i] + decay * p.w[i]));
  return absl::OkStatus();
}

}  // namespace

template <class T>
absl::Status Sgd(const KernelCall& call) {
  return ForEach(call, OneSgd<T>);
}
template <class T>
absl::Status Momentum(const KernelCall& call) {
  return ForEach(call, OneMomentum<T>);
}
template <class T>
absl::Status AdamW(const KernelCall& call) {
  return ForEach(call, OneAdamW<T>);
}
template <class T>
absl::Status LambStep(const KernelCall& call) {
  return ForEach(call, OneLambStep<T>);
}
template <class T>
absl::Status Lamb(const KernelCall& call) {
  return ForEach(call, OneLamb<T>);
}
template <class T>
absl::Status MuonStep(const KernelCall& call) {
  return ForEach(call, OneMuonStep<T>);
}
template <class T>
absl::Status Muon(const KernelCall& call) {
  return ForEach(call, OneMuon<T>);
}

// Accumulating, it joins what is there: by maximum, as its row says.
template <class T>
absl::Status NotFinite(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, call.inputs.size(), 1));
  T found = 0;
  for (const TensorView& view : call.inputs) {
    const T* const x = view.as<T>();
    if (!std::all_of(x, x + view.size(), [](T value) { return std::isfinite(value); })) {
      found = std::numeric_limits<T>::infinity();
    }
  }
  T& y = *call.outputs[0].as<T>();
  y = call.Adds(0) ? std::max(y, found) : found;
  return absl::OkStatus();
}

// As PyTorch's GradScaler; the scale never falls below 1 by backing off, as in Megatron-LM and MindSpore.
template <class T>
absl::Status AdjustScale(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 4, 4, 4));
  const T scale = *call.inputs[0].as<T>(), good = *call.inputs[1].as<T>(), skipped = *call.inputs[2].as<T>();
  const bool skip = !std::isfinite(*call.inputs[3].as<T>());
  const bool grows = !skip && good + 1 >= static_cast<T>(call.attrs->interval);
  const T grown = scale * static_cast<T>(call.attrs->growth), less = scale * static_cast<T>(call.attrs->backoff);
  T next = scale;
  if (skip) next = std::max(less, std::min(scale, T(1)));
  if (grows && std::isfinite(grown)) next = grown;
  *call.outputs[0].as<T>() = next;
  *call.outputs[1].as<T>() = skip || grows ? 0 : good + 1;
  *call.outputs[2].as<T>() = skip ? skipped + 1 : skipped;
  *call.outputs[3].as<T>() = skip ? 0 : 1 / scale;
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                        \
  template absl::Status Sgd<T>(const KernelCall&);       \
  template absl::Status Momentum<T>(const KernelCall&);  \
  template absl::Status AdamW<T>(const KernelCall&);     \
  template absl::Status LambStep<T>(const KernelCall&);  \
  template absl::Status Lamb<T>(const KernelCall&);      \
  template absl::Status MuonStep<T>(const KernelCall&);  \
  template absl::Status Muon<T>(const KernelCall&);      \
  template absl::Status NotFinite<T>(const KernelCall&); \
  template absl::Status AdjustScale<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
