// What the column recompute says: which parts of a layer run again in the backward pass, and in how many of the layers.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_RECOMPUTE_TEXT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_RECOMPUTE_TEXT_H_

#include <cstdint>
#include <set>
#include <string>

#include "ir/strategy.h"

namespace meshwright {

struct RecomputeText {
  Recompute recompute = Recompute::kNone;
  std::set<std::string> ops, more;  // by name, of all layers; of `share` of them besides
  double share = 1;                 // of the layers that `recompute` or `more` is of
  bool some_layers = false;         // `recompute` is of `share` alone
  bool known = true;                // else nothing is recomputed
};

// `text`: in lower case; empty: nothing. `layers`: of the model; `experts`: it has them.
//
// torchtitan's "selective op" keeps attention's output and that of every other product: of a gated layer those of
// queries, values, the first half of the wide product and the last one (torchtitan, apply_ac). "checkpoint_lvl" is
// FlashAttention's (training code, flash_attn/ops/fused_dense.py). Lists of Megatron-Core's modules by what each wraps
// (transformer_config.py, recompute_modules).
RecomputeText ReadRecomputeText(const std::string& text, int64_t layers, bool experts);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_RECOMPUTE_TEXT_H_
