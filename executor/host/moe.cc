// Mixture of experts: tokens to per-expert slots and back. Both directions route the same way, from the same logits.
//
//   x (s, b, h), logits (s, b, e), experts' tensors (e, c, h)
//
// Each of the b sequences owns c / b slots of every expert, so a rank that holds some sequences whole routes them
// without knowing the others, and to the same slots.
//
// Where ranks share sequences, experts' tensors are (e, p, c, h): each of p parts of a sequence, one behind the other,
// owns c / b slots as a sequence does.
//
// By groups of experts, x is (n, q, b, h) and logits are (n, q, b, e): of each group the tokens that came to it, with
// -infinity for the logits of slots without one. They find slots of the group's own experts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "executor/host/kernel_functions.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

struct Choice {
  int64_t expert = 0;
  int64_t slot = -1;  // row of (e, p, c) that the token got, or -1: dropped
};

// A token is a row of the logits: (s, b), or (n, s, b) where there are groups.
struct Routing {
  int64_t n, s, b, e, p, c, h, top_k;
  std::vector<Choice> choices;  // of a token: top_k from token * top_k on, best first; slots without a token: expert -1

  int64_t tokens() const { return n * s * b; }
  bool empty(int64_t token) const { return choices[token * top_k].expert < 0; }
};

// Whether tokens can choose so many of `e` experts.
bool CanChoose(int64_t e, const OpAttrs& attrs) {
  const int64_t groups = attrs.choice_groups;
  return groups >= 1 && e % groups == 0 && attrs.top_choice_groups >= 1 && attrs.top_choice_groups <= groups &&
         attrs.top_k >= 1 && attrs.top_k <= e / groups * attrs.top_choice_groups;
}

// The experts that a token may choose of, at the front of `order`: those of its best groups. Their number.
template <class T>
int64_t Candidates(const T* row, int64_t e, const OpAttrs& attrs, std::vector<int64_t>& order) {
  const int64_t groups = attrs.choice_groups, of_group = e / groups;
  std::vector<std::pair<T, int64_t>> scores;  // of the groups, negative, so that equal ones stay in order
  for (int64_t g = 0; g < groups && groups > 1; ++g) {
    std::vector<T> logits(row + g * of_group, row + (g + 1) * of_group);
    std::partial_sort(logits.begin(), logits.begin() + std::min<int64_t>(2, of_group), logits.end(), std::greater<T>());
    scores.push_back({-(logits[0] + (of_group > 1 ? logits[1] : T(0))), g});
  }
  std::sort(scores.begin(), scores.end());
  int64_t count = 0;
  for (int64_t k = 0; k < attrs.top_choice_groups; ++k) {
    const int64_t first = groups > 1 ? scores[k].second * of_group : 0;
    for (int64_t i = 0; i < of_group; ++i) order[count++] = first + i;
  }
  return count;
}

// The token's experts, best first.
template <class T>
void Choose(const T* row, int64_t e, const OpAttrs& attrs, std::vector<int64_t>& order, Choice* choices) {
  const int64_t count = Candidates(row, e, attrs, order), top_k = attrs.top_k;
  std::partial_sort(order.begin(), order.begin() + top_k, order.begin() + count,
                    [&](int64_t i, int64_t j) { return row[i] > row[j] || (row[i] == row[j] && i < j); });
  const bool empty = row[order[0]] == -std::numeric_limits<T>::infinity();
  for (int64_t k = 0; k < top_k; ++k) choices[k].expert = empty ? -1 : order[k];
}

template <class T>
absl::StatusOr<Routing> Route(const TensorView& logits, const TensorView& tokens, const TensorView& experts,
                              const OpAttrs& attrs) {
  const Shape &l = logits.shape, &t = tokens.shape, &x = experts.shape;
  const bool grouped = l.size() == 4;
  const size_t s = grouped ? 1 : 0;
  const int64_t groups = grouped ? l[0] : 1;
  const int64_t parts = x.size() == 4 ? x[1] : 1;
  if (l.size() != s + 3 || t.size() != s + 3 || (x.size() != 3 && x.size() != 4) || parts < 1 ||
      !std::equal(l.begin(), l.end() - 1, t.begin()) || l[s] % parts != 0 ||
      x[0] * (grouped ? tokens.global[0] : 1) != (grouped ? l[s + 2] : x[0]) * groups || x.back() != t[s + 2] ||
      x[x.size() - 2] % l[s + 1] != 0 || !CanChoose(l[s + 2], attrs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("wants tokens (s, b, h), logits (s, b, e), experts (e, c, h) or (e, p, c, h) with p dividing s, "
                     "c a multiple of b and 1 <= top_k <= e, or (n, q, b, h), (n, q, b, e) with n dividing e; found ",
                     ToText(t), ", ", ToText(l), ", ", ToText(x), " and top_k ", attrs.top_k, " of ",
                     attrs.top_choice_groups, " in ", attrs.choice_groups, " groups"));
  }
  Routing r = {groups, l[s], l[s + 1], l[s + 2], parts, x[x.size() - 2], x.back(), attrs.top_k, {}};
  r.choices.resize(r.tokens() * r.top_k);
  std::vector<int64_t> order(r.e);
  for (int64_t token = 0; token < r.tokens(); ++token) {
    Choose(logits.as<T>() + token * r.e, r.e, attrs, order, &r.choices[token * r.top_k]);
  }
  const int64_t capacity = r.c / r.b, of_group = x[0] / groups, length = r.s / r.p;
  for (int64_t row = 0; row < groups * r.p * r.b; ++row) {
    const int64_t n = row / (r.p * r.b), p = row / r.b % r.p, b = row % r.b;
    const int64_t first = grouped ? (tokens.begin[0] + n) * of_group : experts.begin.empty() ? 0 : experts.begin[0];
    std::vector<int64_t> used(of_group, 0);
    for (int64_t k = 0; k < r.top_k; ++k) {
      for (int64_t i = p * length; i < (p + 1) * length; ++i) {
        Choice& choice = r.choices[((n * r.s + i) * r.b + b) * r.top_k + k];
        const int64_t mine = choice.expert - first;
        if (choice.expert < 0 || mine < 0 || mine >= of_group || used[mine] >= capacity) continue;
        choice.slot = ((n * of_group + mine) * r.p + p) * r.c + b * capacity + used[mine]++;
      }
    }
  }
  return r;
}

// By token (s, b) and group: the slot (row of (n, q, b)) that the token got there, or -1.
struct Grouping {
  int64_t n, q, s, b, e, h;
  std::vector<int64_t> slots;
};

template <class T>
absl::StatusOr<Grouping> Group(const TensorView& logits, const TensorView& tokens, const TensorView& groups,
                               const OpAttrs& attrs) {
  const Shape &l = logits.shape, &t = tokens.shape, &x = groups.shape;
  if (l.size() != 3 || t.size() != 3 || x.size() != 4 || t[0] != l[0] || t[1] != l[1] || x[2] != l[1] || x[3] != t[2] ||
      x[0] < 1 || l[2] % x[0] != 0 || !CanChoose(l[2], attrs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("wants tokens (s, b, h), logits (s, b, e), groups (n, q, b, h) with n dividing e and 1 <= top_k "
                     "<= e; found ",
                     ToText(t), ", ", ToText(l), ", ", ToText(x), " and top_k ", attrs.top_k, " of ",
                     attrs.top_choice_groups, " in ", attrs.choice_groups, " groups"));
  }
  Grouping g = {x[0], x[1], l[0], l[1], l[2], t[2], {}};
  g.slots.assign(g.s * g.b * g.n, -1);
  std::vector<int64_t> order(g.e);
  std::vector<Choice> choices(attrs.top_k);
  for (int64_t b = 0; b < g.b; ++b) {
    std::vector<int64_t> used(g.n, 0);
    for (int64_t s = 0; s < g.s; ++s) {
      const int64_t token = s * g.b + b;
      Choose(logits.as<T>() + token * g.e, g.e, attrs, order, choices.data());
      for (const Choice& choice : choices) {
        const int64_t n = choice.expert / (g.e / g.n);
        int64_t& slot = g.slots[token * g.n + n];
        if (slot < 0 && used[n] < g.q) slot = (n * g.q + used[n]++) * g.b + b;
      }
    }
  }
  return g;
}

// Weights of a token's choices: the softmax over their logits, also those of other groups.
// REQUIRES: it has some.
template <class T>
void Gates(const Routing& r, const T* logits, int64_t token, std::vector<T>& gates) {
  const Choice* choices = &r.choices[token * r.top_k];
  const T top = logits[token * r.e + choices[0].expert];
  T sum = 0;
  for (int64_t k = 0; k < r.top_k; ++k) sum += gates[k] = std::exp(logits[token * r.e + choices[k].expert] - top);
  for (int64_t k = 0; k < r.top_k; ++k) gates[k] /= sum;
}

// Each row of `width` of input k to its places in output k: place i is of row i / places_per_row, and has the slot
// slot_of(i), below 0 none. No two places have one slot; those that no place has hold `empty`.
template <class T, class SlotOf>
void RowsToPlaces(const KernelCall& call, size_t k, size_t places, int64_t places_per_row, int64_t width, T empty,
                  const SlotOf& slot_of) {
  const TensorView& y = call.outputs[k];
  if (!call.Adds(k)) std::fill_n(y.as<T>(), y.size(), empty);
  for (size_t i = 0; i < places; ++i) {
    if (slot_of(i) < 0) continue;
    const T* from = call.inputs[k].as<T>() + static_cast<int64_t>(i) / places_per_row * width;
    T* to = y.as<T>() + slot_of(i) * width;
    for (int64_t j = 0; j < width; ++j) to[j] = call.Adds(k) ? to[j] + from[j] : from[j];
  }
}

// To each row of h of the first output, the sum of what its places have in the first input: place i is of row
// i / places_per_row, and has the slot slot_of(i), below 0 none.
template <class T, class SlotOf>
void SumOfPlaces(const KernelCall& call, size_t places, int64_t places_per_row, int64_t h, const SlotOf& slot_of) {
  const TensorView& y = call.outputs[0];
  if (!call.Adds(0)) std::fill_n(y.as<T>(), y.size(), T(0));
  for (size_t i = 0; i < places; ++i) {
    if (slot_of(i) < 0) continue;
    const T* from = call.inputs[0].as<T>() + slot_of(i) * h;
    T* to = y.as<T>() + static_cast<int64_t>(i) / places_per_row * h;
    for (int64_t k = 0; k < h; ++k) to[k] += from[k];
  }
}

}  // namespace

// x, logits -> experts' inputs; empty slots hold 0.
template <class T>
absl::Status Dispatch(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Routing r, Route<T>(call.inputs[1], call.inputs[0], call.outputs[0], *call.attrs));
  RowsToPlaces<T>(call, 0, r.choices.size(), r.top_k, r.h, T(0), [&](size_t i) { return r.choices[i].slot; });
  return absl::OkStatus();
}

// d experts' inputs, logits -> dx
template <class T>
absl::Status DispatchGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const TensorView& dx = call.outputs[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Routing r, Route<T>(call.inputs[1], dx, call.inputs[0], *call.attrs));
  SumOfPlaces<T>(call, r.choices.size(), r.top_k, r.h, [&](size_t i) { return r.choices[i].slot; });
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
  for (int64_t token = 0; token < r.tokens(); ++token) {
    if (r.empty(token)) continue;
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
  for (int64_t token = 0; token < r.tokens(); ++token) {
    if (r.empty(token)) continue;
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

// x, logits -> the groups' tokens, and their logits; empty slots hold 0 and -infinity.
template <class T>
absl::Status ToGroups(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, call.outputs.size() == 2 ? 2 : 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Grouping g, Group<T>(call.inputs[1], call.inputs[0], call.outputs[0], *call.attrs));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const int64_t width = i == 0 ? g.h : g.e;
    if (call.outputs[i].size() != g.n * g.q * g.b * width) {
      return absl::InvalidArgumentError("the groups' logits do not fit their tokens");
    }
    const T empty = i == 0 ? T(0) : -std::numeric_limits<T>::infinity();
    RowsToPlaces<T>(call, i, g.slots.size(), g.n, width, empty, [&](size_t place) { return g.slots[place]; });
  }
  return absl::OkStatus();
}

// What groups made, logits -> the sum of each token's; of what a group had no slot for, 0.
template <class T>
absl::Status FromGroups(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const TensorView& y = call.outputs[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const Grouping g, Group<T>(call.inputs[1], y, call.inputs[0], *call.attrs));
  SumOfPlaces<T>(call, g.slots.size(), g.n, g.h, [&](size_t i) { return g.slots[i]; });
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                           \
  template absl::Status Dispatch<T>(const KernelCall&);     \
  template absl::Status DispatchGrad<T>(const KernelCall&); \
  template absl::Status Combine<T>(const KernelCall&);      \
  template absl::Status CombineGrad<T>(const KernelCall&);  \
  template absl::Status ToGroups<T>(const KernelCall&);     \
  template absl::Status FromGroups<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
