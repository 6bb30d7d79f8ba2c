// Which layers of a config.json of experts have them, as families say it: the first have none, or one of several has,
// or both. Used by hugging_face.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_EXPERT_LAYERS_H_
#define MESHWRIGHT_MODELS_EXPERT_LAYERS_H_

#include "absl/status/status.h"
#include "ir/document.h"
#include "models/decoder.h"

namespace meshwright {

// Sets `dense_layers` and `expert_every` from the root of the file, and where there are layers without experts
// `dense_ffn`. REQUIRES: `layers` is set. kUnimplemented, at the key that says so: layers of experts in another order.
absl::Status ReadExpertLayers(const NodeRef& in, DecoderConfig& c);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_EXPERT_LAYERS_H_
