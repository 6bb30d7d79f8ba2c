// Mixture of experts: tokens to slots of experts and back, as executor/host/moe.cc. See kernels/simt.h.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_EXPERTS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_EXPERTS_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

struct RoutingShape {
  int64_t s = 0, b = 0, e = 0, c = 0, h = 0, top_k = 1;
};

// Each token's experts, best first, and the slot (row of (e, c)) that each choice got, or -1. A block per sequence.
struct Route {
  RoutingShape r;
  Ref logits;
  int32_t *experts = nullptr, *slots = nullptr;  // of token (s, b): top_k from (s * b_size + b) * top_k on

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t b = ctx.block(); b < r.b; b += ctx.blocks()) {
      for (int64_t s = ctx.thread(); s < r.s; s += ctx.threads()) {
        const int64_t token = s * r.b + b;
        int32_t* const chosen = experts + token * r.top_k;
        for (int64_t k = 0; k < r.top_k; ++k) {
          int32_t best = -1;
          A top = A(0);
          for (int32_t e = 0; e < r.e; ++e) {
            bool taken = false;
            for (int64_t before = 0; before < k; ++before) taken = taken || chosen[before] == e;
            const A value = Load<A>(logits, token * r.e + e);
            if (taken || (best >= 0 && !(value > top))) continue;
            best = e;
            top = value;
          }
          chosen[k] = best;
        }
      }
      ctx.Sync();
      // By rank of choice, then by position.
      const int64_t capacity = r.c / r.b;
      for (int64_t e = ctx.thread(); e < r.e; e += ctx.threads()) {
        int64_t used = 0;
        for (int64_t k = 0; k < r.top_k; ++k) {
          for (int64_t s = 0; s < r.s; ++s) {
            const int64_t choice = (s * r.b + b) * r.top_k + k;
            if (experts[choice] != e) continue;
            slots[choice] = used < capacity ? static_cast<int32_t>(e * r.c + b * capacity + used++) : -1;
          }
        }
      }
      ctx.Sync();
    }
  }
};

enum class TokenKind : uint8_t { kDispatch, kDispatchGrad, kCombine, kCombineGrad };

// A block per token. Dispatch writes slots that hold 0, or are added to, before.
struct Tokens {
  TokenKind kind = TokenKind::kDispatch;
  bool add = false;
  RoutingShape r;
  const int32_t *experts = nullptr, *slots = nullptr;
  Ref tokens;    // x, dx, y or dy
  Ref in_slots;  // the experts' tensor that is read or written
  Ref d_slots;   // CombineGrad: its gradient
  Ref logits, d_logits;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t token = ctx.block(); token < r.s * r.b; token += ctx.blocks()) {
      switch (kind) {
        case TokenKind::kDispatch:
          for (int64_t k = 0; k < r.top_k; ++k) {
            const int64_t slot = slots[token * r.top_k + k];
            for (int64_t i = ctx.thread(); i < r.h && slot >= 0; i += ctx.threads()) {
              Put(in_slots, slot * r.h + i, Load<A>(tokens, token * r.h + i), true);
            }
          }
          break;
        case TokenKind::kDispatchGrad:
        case TokenKind::kCombine:
          Gather<A>(ctx, token);
          break;
        case TokenKind::kCombineGrad:
          CombineGrad<A>(ctx, token);
          break;
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
  MESHWRIGHT_DEVICE void Gather(Ctx& ctx, int64_t token) const {
    for (int64_t i = ctx.thread(); i < r.h; i += ctx.threads()) {
      A sum = A(0);
      for (int64_t k = 0; k < r.top_k; ++k) {
        const int64_t slot = slots[token * r.top_k + k];
        if (slot < 0) continue;
        sum += (kind == TokenKind::kCombine ? Gate<A>(token, k) : A(1)) * Load<A>(in_slots, slot * r.h + i);
      }
      Put(tokens, token * r.h + i, sum, add);
    }
  }

  // d_slots += gate * dy; d_logits += gate * (d_gate - sum of gates * d_gates).
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void CombineGrad(Ctx& ctx, int64_t token) const {
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
