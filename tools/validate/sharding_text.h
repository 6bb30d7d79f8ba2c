// What the column zero_fsdp says, in the words that the rest of this folder asks for: sources write the same thing in
// many ways; and what ZeRO-3 of that kind gathers again.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_SHARDING_TEXT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_SHARDING_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace meshwright {

// `cell` in lower case, and behind it what it means in the words of this folder, where it says so in others:
//   "zero-0" to "zero-3"   "ZeRO stage 3", "sharding stage2", "zero_2", "z3"
//   "fsdp"                 "fully sharded", "FULL_SHARD", "Gemini" (Colossal-AI's)
//   "hsdp"                 "HYBRID_SHARD", "hybrid shard", "dp_replicate"
//   "zero-2"               "SHARD_GRAD_OP", "no reshard after forward", "reshard_after_forward=False"
std::string ShardingText(absl::string_view cell);

// Whether what ShardingText gave holds a word that says which state replicas split, or that they split none.
bool SaysSharding(absl::string_view text);

// Of `ranks` with the same parameters, how many share them, where the text says so: "groups of 8", "dp_shard=8",
// "dp_replicate 4" (a fourth of them).
std::optional<int64_t> RanksThatShare(absl::string_view text, int64_t ranks);

// Of parameters, the share that DeepSpeed's first ZeRO-3 gathers once more for a layer that runs again. It lets go of
// them after each module, in that pass, too, but for those it needs once more within `stage3_max_reuse_distance`
// parameters (stage3.py, `_keep_for_later`; ZeRO-Infinity, section 4.2). Between a product's second forward and its
// backward pass lie those after it in the layer, twice.
double GathersAgain(int64_t hidden, int64_t ffn);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_SHARDING_TEXT_H_
