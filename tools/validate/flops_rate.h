// From a printed rate in FLOP/s back to the time of a step: needs the source's own count of FLOPs.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_FLOPS_RATE_H_
#define MESHWRIGHT_TOOLS_VALIDATE_FLOPS_RATE_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "models/decoder.h"

namespace meshwright {

// FLOPs of one step of `tokens` tokens in rows of `sequence`, as the text in a table's column flops_def counts them:
//
//   "96BLsh^2(1+s/6h+V/16Lh)"   Narayanan et al. 2021: forward, recomputed and backward; "3/4 of the Megatron formula"
//   "72BLsh^2(1+s/6h+V/12Lh)"   Korthikanti et al. 2022: forward and backward
//   "6N+12Lhs" a token          N parameters; "6*seqlen*N + 12*L*h*s^2" a row. "N - input embedding": without it
//
// `frozen`: weights have no gradients, a third of what is counted of parameters.
//
// The order of the factors and spaces do not matter. Nothing where the text is none of these.
std::optional<double> FlopsOfStep(absl::string_view definition, const DecoderConfig& model, double sequence,
                                  double tokens, bool frozen = false);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_FLOPS_RATE_H_
