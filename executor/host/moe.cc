// Mixture of experts: tokens to per-expert slots and back. Both directions route the same way, from the same logits.
//
//   x (s, b, h), logits (s, b, e), experts' tensors (e, c, h)
//
// Each of the b sequences owns c / b slots of every expert, so a rank that holds some sequences whole routes them
// without knowing the others, and to the same slots.
#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/host/kernel_functions.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

struct Choice {
  int64_t expert = 0;
  int64_t slot = -1;  // row of (e, c) that the token got, or -1: dropped
};

struct Routing {
  int64_t s, b, e, c, h, top_k;
  std::vector<Choice> choices;  // of token (s, b): top_k from (s * b_size + b) * top_k on, best first
};

template <class T>
absl::StatusOr<Routing> Route(const TensorView& logits, const TensorView& tokens, const TensorView& experts,
                              const OpAttrs& attrs) {
  const Shape &l = logits.shape, &t = tokens.shape, &x = experts.shape;
  if (l.size() != 3 || t.size() != 3 || x.size() != 3 || x[0] != l[2] || t[0] != l[0] || t[1] != l[1] || x[2] != t[2] ||
      x[1] % l[1] != 0 || attrs.top_k < 1 || attrs.top_k > l[2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("wants tokens (s, b, h), logits (s, b, e), experts (e, c, h) with c a multiple of b and 1 <= "
                     "top_k <= e; found ",
                     ToText(t), ", ", ToText(l), ", ", ToText(x), " and top_k ", attrs.top_k));
  }
  Routing r = {l[0], l[1], l[2], x[1], x[2], attrs.top_k, {}};
  r.choices.resize(r.s * r.b * r.top_k);
  std::vector<int64_t> order(r.e);
  for (int64_t token = 0; token < r.s * r.b; ++token) {
    const T* row = logits.as<T>() + token * r.e;
    for (int64_t e = 0; e < r.e; ++e) order[e] = e;
    std::partial_sort(order.begin(), order.begin() + r.top_k, order.end(),
                      [&](int64_t i, int64_t j) { return row[i] > row[j] || (row[i] == row[j] && i < j); });
    for (int64_t k = 0; k < r.top_k; ++k) r.choices[token * r.top_k + k].expert = order[k];
  }
  const int64_t capacity = r.c / r.b;
  for (int64_t b = 0; b < r.b; ++b) {
    std::vector<int64_t> used(r.e, 0);
    for (int64_t k = 0; k < r.top_k; ++k) {
      for (int64_t s = 0; s < r.s; ++s) {
        Choice& choice = r.choices[(s * r.b + b) * r.top_k + k];
        if (used[choice.expert] < capacity) {
          choice.slot = choice.expert * r.c + b * capacity + used[choice.expert]++;
        }
      }
    }
  }
  return r;
}

// Weights of a token's choices: the softmax over their logits.
template <class T>
void Gates(const Routing& r, const T* logits, int64_t token, std::vector<T>& gates) {
  const Choice* choices = &r.choices[token * r.top_k];
  const T top = logits[token * r.e + choices[0].expert];
  T sum = 0;
  for (int64_t k = 0; k < r.top_k; ++k) sum += gates[k] = std::exp(logits[token * r.e + choices[k].expert] - top);
  for (int64_t k = 0; k < r.top_k; ++k) gates[k] /= sum;
}

}  // namespace

// x, logits -> experts' inputs; empty slots hold 0.
template <class T>
absl::Status Dispatch(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const TensorView& experts = call.outputs[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Routing r, Route<T>(call.inputs[1], call.inputs[0], experts, *call.attrs));
  if (!call.Adds(0)) std::fill_n(experts.as<T>(), experts.size(), T(0));
  for (size_t i = 0; i < r.choices.size(); ++i) {
    if (r.choices[i].slot < 0) continue;
    const T* from = call.inputs[0].as<T>() + static_cast<int64_t>(i) / r.top_k * r.h;
    T* to = experts.as<T>() + r.choices[i].slot * r.h;
    for (int64_t h = 0; h < r.h; ++h) to[h] += from[h];
  }
  return absl::OkStatus();
}

// d experts' inputs, logits -> dx
template <class T>
absl::Status DispatchGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const TensorView& dx = call.outputs[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Routing r, Route<T>(call.inputs[1], dx, call.inputs[0], *call.attrs));
  if (!call.Adds(0)) std::fill_n(dx.as<T>(), dx.size(), T(0));
  for (size_t i = 0; i < r.choices.size(); ++i) {
    if (r.choices[i].slot < 0) continue;
    const T* from = call.inputs[0].as<T>() + r.choices[i].slot * r.h;
    T* to = dx.as<T>() + static_cast<int64_t>(i) / r.top_k * r.h;
    for (int64_t h = 0; h < r.h; ++h) to[h] += from[h];
  }
  return absl::OkStatus();
}

// experts' outputs, logits -> y = sum over a token's choices of gate * its row; a dropped choice gives 0.
template <class T>
absl::Status Combine(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const TensorView& y = call.outputs[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Routing r, Route<T>(call.inputs[1], y, call.inputs[0], *call.attrs));
  if (!call.Adds(0)) std::fill_n(y.as<T>(), y.size(), T(0));
  std::vector<T> gates(r.top_k);
  for (int64_t token = 0; token < r.s * r.b; ++token) {
    Gates(r, call.inputs[1].as<T>(), token, gates);
    T* to = y.as<T>() + token * r.h;
    for (int64_t k = 0; k < r.top_k; ++k) {
      const Choice& choice = r.choices[token * r.top_k + k];
      if (choice.slot < 0) continue;
      const T* from = call.inputs[0].as<T>() + choice.slot * r.h;
      for (int64_t h = 0; h < r.h; ++h) to[h] += gates[k] * from[h];
    }
  }
  return absl::OkStatus();
}

// dy, experts' outputs, logits -> d experts' outputs, d logits. With top_k = 1 the only gate is 1 and d logits is 0.
template <class T>
absl::Status CombineGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 2));
  const TensorView &d_experts = call.outputs[0], &d_logits = call.outputs[1];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Routing r, Route<T>(call.inputs[2], call.inputs[0], call.inputs[1], *call.attrs));
  if (d_experts.shape != call.inputs[1].shape || d_logits.shape != call.inputs[2].shape) {
    return absl::InvalidArgumentError("gradients differ in shape from what they are gradients of");
  }
  if (!call.Adds(0)) std::fill_n(d_experts.as<T>(), d_experts.size(), T(0));
  if (!call.Adds(1)) std::fill_n(d_logits.as<T>(), d_logits.size(), T(0));
  std::vector<T> gates(r.top_k), d_gates(r.top_k);
  for (int64_t token = 0; token < r.s * r.b; ++token) {
    Gates(r, call.inputs[2].as<T>(), token, gates);
    const T* dy = call.inputs[0].as<T>() + token * r.h;
    T mean = 0;  // of d_gates, weighed by the gates
    for (int64_t k = 0; k < r.top_k; ++k) {
      const Choice& choice = r.choices[token * r.top_k + k];
      d_gates[k] = 0;
      if (choice.slot < 0) continue;
      const T* out = call.inputs[1].as<T>() + choice.slot * r.h;
      T* d_out = d_experts.as<T>() + choice.slot * r.h;
      for (int64_t h = 0; h < r.h; ++h) {
        d_gates[k] += dy[h] * out[h];
        d_out[h] += gates[k] * dy[h];
      }
      mean += gates[k] * d_gates[k];
    }
    for (int64_t k = 0; k < r.top_k; ++k) {
      const int64_t expert = r.choices[token * r.top_k + k].expert;
      d_logits.as<T>()[token * r.e + expert] += gates[k] * (d_gates[k] - mean);
    }
  }
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                           \
  template absl::Status Dispatch<T>(const KernelCall&);     \
  template absl::Status DispatchGrad<T>(const KernelCall&); \
  template absl::Status Combine<T>(const KernelCall&);      \
  template absl::Status CombineGrad<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
