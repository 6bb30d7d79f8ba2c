// Which map of a config.json is the decoder's: of a multimodal model one in it, beside those of its encoders. Used by
// hugging_face.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_MULTIMODAL_CONFIG_H_
#define MESHWRIGHT_MODELS_MULTIMODAL_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/document.h"
#include "models/hugging_face_families.h"

namespace meshwright {

struct DecoderMap {
  NodeRef root;  // of the file, or of a model in it
  NodeRef in;    // the decoder's: the root, or a map in it
  const HuggingFaceFamily* family = nullptr;
};

// kUnimplemented, at the model_type, for a decoder of no known family. Notices tell of what the model has beside it.
absl::StatusOr<DecoderMap> FindDecoder(const NodeRef& file, std::vector<std::string>& notices);

// The map in the file that would be the decoder's, whatever its family; or else the root of the model.
NodeRef DecoderMapOf(const NodeRef& file);

// Whether the output layer shares the embedding's weights.
absl::StatusOr<bool> ReadTied(const DecoderMap& map, std::vector<std::string>& notices);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_MULTIMODAL_CONFIG_H_
