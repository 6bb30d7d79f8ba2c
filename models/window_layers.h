// Which layers of a config.json have a window, how long it is, and the heads of either kind. Used by hugging_face.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_WINDOW_LAYERS_H_
#define MESHWRIGHT_MODELS_WINDOW_LAYERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ir/document.h"
#include "models/decoder.h"
#include "models/hugging_face_families.h"
#include "models/training.h"

namespace meshwright {

// Sets sliding_window, and which layers have none. Reads c's layers. Notices tell of what is taken for a window.
// kUnimplemented at the first layer of a kind that is not modelled.
absl::Status ReadWindow(const NodeRef& in, const HuggingFaceFamily& family, const Training& training, DecoderConfig& c,
                        std::vector<std::string>& notices);

// Heads that differ by whether a layer has a window. After ReadWindow.
absl::Status ReadHeadsByKind(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c,
                             std::vector<std::string>& notices);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_WINDOW_LAYERS_H_
