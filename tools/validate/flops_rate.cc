#include "tools/validate/flops_rate.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "tools/validate/row_model.h"

namespace meshwright {

std::optional<double> FlopsOfStep(absl::string_view definition, const DecoderConfig& model, double sequence,
                                  double tokens, bool frozen) {
  const std::string text = absl::StrReplaceAll(absl::AsciiStrToLower(definition), {{" ", ""}, {"*", ""}});
  const auto has = [&](absl::string_view part) { return absl::StrContains(text, part); };
  const double h = static_cast<double>(model.hidden), layers = static_cast<double>(model.layers);
  const double vocab = static_cast<double>(model.vocab);
  // Forward is 24 B s L h^2 (1 + s/6h) in the layers and 2 B s h V of logits.
  const double forward = tokens * (24 * layers * h * h * (1 + sequence / (6 * h)) + 2 * h * vocab);
  // The logits are not recomputed: 6 B s h V in both counts.
  const double recomputed = 4 * forward - 2 * tokens * h * vocab;
  if (has("3/4ofthemegatronformula")) return recomputed * 3 / 4;
  if (has("96bslh") || has("96blsh") || has("megatronformula")) return recomputed;
  if (has("72bslh") || has("72blsh")) return 3 * forward;
  const bool parameters = has("6n") || has("6seqlenn") || has("6(n");
  const bool causal = has("6lhs") || has("6lsh");  // half of the scores, as Megatron-LM counts since 2025
  if (!parameters || (!has("12l") && !causal)) return std::nullopt;
  DecoderConfig active = model;
  if (model.experts > 1) active.experts = model.experts_per_token;
  double n = NumParameters(active);
  if (has("-inputemb")) n -= (model.tied_embeddings ? 0 : 1) * h * vocab;
  const double width = static_cast<double>(model.heads * (ScoreWidth(model) + ValueWidth(model))) / 2;
  const double scores = causal ? 6 * layers * width * sequence : 12 * layers * h * sequence;
  return tokens * ((frozen ? 4 : 6) * n + scores);
}

}  // namespace meshwright
