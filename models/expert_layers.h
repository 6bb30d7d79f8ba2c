// Which layers of a config.json of experts have them, as families say it: the first have none, or one of several has,
// or both. Used by hugging_face.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_EXPERT_LAYERS_H_
#define MESHWRIGHT_MODELS_EXPERT_LAYERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ir/document.h"
#include "models/decoder.h"

namespace meshwright {

// Sets `dense_layers` and `expert_every` from the decoder's map, and where there are layers without experts
// `dense_ffn`. Where the map does not say, the first `dense_layers` have none. REQUIRES: `layers` is set.
// kUnimplemented, at the key that says so: layers of experts in another order.
absl::Status ReadExpertLayers(const NodeRef& in, int64_t dense_layers, DecoderConfig& c);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_EXPERT_LAYERS_H_
