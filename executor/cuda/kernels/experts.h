// Mixture of experts: tokens to slots of experts, or of groups of experts, and back, as executor/host/moe.cc. See
// kernels/simt.h.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_EXPERTS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_EXPERTS_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

// How many of `e` experts a token goes to: of the best `best` of so many equal groups, those whose two largest logits
// have the largest sums.
struct Choice {
  static constexpr int64_t kMostGroups = 64;
  int64_t e = 0, top_k = 1, groups = 1, best = 1;
};

// Tokens (s, b), or (n, s, b) by groups, the first of which has `first` experts before it; of_group experts each. A
// sequence is p parts, each with slots of its own.
struct RoutingShape {
  int64_t n = 1, s = 0, b = 0, e = 0, p = 1, c = 0, h = 0, top_k = 1, first = 0, of_group = 0;

  MESHWRIGHT_DEVICE int64_t Tokens() const { return n * s * b; }
  MESHWRIGHT_DEVICE int64_t Rows() const { return n * p * b; }
  MESHWRIGHT_DEVICE int64_t Length() const { return s / p; }  // of a part
};

// The groups that the token chooses of, a bit each. Of equal ones the first are better.
template <class A>
MESHWRIGHT_DEVICE uint64_t BestGroups(const Ref& logits, int64_t token, const Choice& choice) {
  if (choice.groups == 1) return 1;
  A scores[Choice::kMostGroups];
  const int64_t of_group = choice.e / choice.groups;
  for (int64_t g = 0; g < choice.groups; ++g) {
    A first = Load<A>(logits, token * choice.e + g * of_group), second = static_cast<A>(-INFINITY);
    for (int64_t i = 1; i < of_group; ++i) {
      const A value = Load<A>(logits, token * choice.e + g * of_group + i);
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    scores[g] = of_group > 1 ? first + second : first;
  }
  uint64_t open = 0;
  for (int64_t g = 0; g < choice.groups; ++g) {
    int64_t better = 0;
    for (int64_t other = 0; other < choice.groups; ++other) {
      if (scores[other] > scores[g] || (scores[other] == scores[g] && other < g)) ++better;
    }
    if (better < choice.best) open |= uint64_t{1} << g;
  }
  return open;
}

// The token's experts, best first; -1 for all of a slot without a token, whose logits are -infinity.
template <class A>
MESHWRIGHT_DEVICE void Choose(const Ref& logits, int64_t token, const Choice& choice, int32_t* chosen) {
  const uint64_t open = BestGroups<A>(logits, token, choice);
  const int64_t of_group = choice.e / choice.groups;
  for (int64_t k = 0; k < choice.top_k; ++k) {
    int32_t best = -1;
    A top = A(0);
    for (int32_t e = 0; e < choice.e; ++e) {
      bool taken = (open >> (e / of_group) & 1) == 0;
      for (int64_t before = 0; before < k; ++before) taken = taken || chosen[before] == e;
      const A value = Load<A>(logits, token * choice.e + e);
      if (taken || (best >= 0 && !(value > top))) continue;
      best = e;
      top = value;
    }
    const bool empty = k == 0 ? top - top != A(0) && top < A(0) : chosen[0] < 0;
    chosen[k] = empty ? -1 : best;
  }
}

// Each token's experts, best first, and the slot (row of (e, p, c)) that each choice got, or -1. A block per part of a
// sequence of a group.
struct Route {
  RoutingShape r;
  Choice choice;
  Ref logits;
  int32_t *experts = nullptr, *slots = nullptr;  // of a token: top_k from token * top_k on

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t row = ctx.block(); row < r.Rows(); row += ctx.blocks()) {
      const int64_t n = row / (r.p * r.b), p = row / r.b % r.p, b = row % r.b;
      const int64_t first = n * r.s + p * r.Length();
      for (int64_t s = ctx.thread(); s < r.Length(); s += ctx.threads()) {
        const int64_t token = (first + s) * r.b + b;
        Choose<A>(logits, token, choice, experts + token * r.top_k);
        for (int64_t k = 0; k < r.top_k; ++k) slots[token * r.top_k + k] = -1;
      }
      ctx.Sync();
      // By rank of choice, then by position.
      const int64_t capacity = r.c / r.b;
      for (int64_t mine = ctx.thread(); mine < r.of_group; mine += ctx.threads()) {
        const int64_t e = r.first + n * r.of_group + mine;
        int64_t used = 0;
        for (int64_t k = 0; k < r.top_k; ++k) {
          for (int64_t s = 0; s < r.Length() && used < capacity; ++s) {
            const int64_t choice = ((first + s) * r.b + b) * r.top_k + k;
            if (experts[choice] != e) continue;
            slots[choice] = static_cast<int32_t>(((n * r.of_group + mine) * r.p + p) * r.c + b * capacity + used++);
          }
        }
      }
      ctx.Sync();
    }
  }
};

// By token (s, b) and group, the slot (row of (n, q, b)) that the token got there, or -1. A block per sequence.
struct RouteGroups {
  int64_t n = 1, q = 0, s = 0, b = 0;
  Choice choice;
  Ref logits;
  int32_t *experts = nullptr, *slots = nullptr;  // of a token: top_k, and n

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t row = ctx.block(); row < b; row += ctx.blocks()) {
      for (int64_t i = ctx.thread(); i < s; i += ctx.threads()) {
        const int64_t token = i * b + row;
        Choose<A>(logits, token, choice, experts + token * choice.top_k);
      }
      ctx.Sync();
      const int64_t of_group = choice.e / n, top_k = choice.top_k;
      for (int64_t group = ctx.thread(); group < n; group += ctx.threads()) {
        int64_t used = 0;
        for (int64_t i = 0; i < s; ++i) {
          const int64_t token = i * b + row;
          bool here = false;
          for (int64_t k = 0; k < top_k; ++k) here = here || experts[token * top_k + k] / of_group == group;
          slots[token * n + group] = here && used < q ? static_cast<int32_t>((group * q + used++) * b + row) : -1;
        }
      }
      ctx.Sync();
    }
  }
};

// Rows of tokens to their slots, or the sum of their slots' rows back. A block per token. Slots hold 0, what is added
// to, or what empty ones hold, before.
struct SlotRows {
  bool back = false;
  bool add = false;
  int64_t n = 1, tokens = 0, width = 0;
  const int32_t* slots = nullptr;  // n of each token, -1 where it has none
  Ref rows, in_slots;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t token = ctx.block(); token < tokens; token += ctx.blocks()) {
      for (int64_t i = ctx.thread(); i < width; i += ctx.threads()) {
        A sum = A(0);
        for (int64_t k = 0; k < n; ++k) {
          const int64_t slot = slots[token * n + k];
          if (slot < 0) continue;
          if (back) {
            sum += Load<A>(in_slots, slot * width + i);
          } else {
            Put(in_slots, slot * width + i, Load<A>(rows, token * width + i), add);
          }
        }
        if (back) Put(rows, token * width + i, sum, add);
      }
    }
  }
};

// The sum of a token's slots by its gates, or its gradient. A block per token.
struct CombineSlots {
  bool gradient = false, add = false;
  RoutingShape r;
  const int32_t *experts = nullptr, *slots = nullptr;
  Ref tokens;    // y or dy
  Ref in_slots;  // what the experts made
  Ref d_slots;   // its gradient
  Ref logits, d_logits;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t token = ctx.block(); token < r.Tokens(); token += ctx.blocks()) {
      if (gradient) {
        Gradient<A>(ctx, token);
      } else {
        Sum<A>(ctx, token);
      }
    }
  }

 private:
  // The softmax over the logits of the token's choices, its k-th.
  template <class A>
  MESHWRIGHT_DEVICE A Gate(int64_t token, int64_t k) const {
    using std::exp;
    const int32_t* const chosen = experts + token * r.top_k;
    const A top = Load<A>(logits, token * r.e + chosen[0]);
    A sum = A(0);
    for (int64_t j = 0; j < r.top_k; ++j) sum += exp(Load<A>(logits, token * r.e + chosen[j]) - top);
    return exp(Load<A>(logits, token * r.e + chosen[k]) - top) / sum;
  }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Sum(Ctx& ctx, int64_t token) const {
    for (int64_t i = ctx.thread(); i < r.h; i += ctx.threads()) {
      A sum = A(0);
      for (int64_t k = 0; k < r.top_k; ++k) {
        const int64_t slot = slots[token * r.top_k + k];
        if (slot < 0) continue;
        sum += Gate<A>(token, k) * Load<A>(in_slots, slot * r.h + i);
      }
      Put(tokens, token * r.h + i, sum, add);
    }
  }

  // d_slots += gate * dy; d_logits += gate * (d_gate - sum of gates * d_gates).
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Gradient(Ctx& ctx, int64_t token) const {
    if (experts[token * r.top_k] < 0) return;
    A mean = A(0);
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t k = 0; k < r.top_k; ++k) {
        const int64_t slot = slots[token * r.top_k + k];
        const A gate = Gate<A>(token, k);
        A d_gate = A(0);
        for (int64_t i = ctx.thread(); i < r.h && slot >= 0; i += ctx.threads()) {
          const A g = Load<A>(tokens, token * r.h + i);
          d_gate += g * Load<A>(in_slots, slot * r.h + i);
          if (pass == 0) Put(d_slots, slot * r.h + i, gate * g, true);
        }
        d_gate = ctx.Sum(d_gate);
        if (pass == 0) {
          mean += gate * d_gate;
        } else if (ctx.thread() == 0) {
          Put(d_logits, token * r.e + experts[token * r.top_k + k], gate * (d_gate - mean), true);
        }
      }
    }
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_EXPERTS_H_
