// Reads a Hugging Face config.json as a decoder.
//
// Families: rows of `kFamilies` in hugging_face_families.cc. Keys that change neither sizes nor time are ignored.
// kUnimplemented for another model_type, and for a known key with a value that our decoder does not model (layers of
// linear attention, experts in layers that follow no rule, biases of feed-forward layers alone) or that the family's
// own class would not read (experts of a llama). A key of null is a missing one.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_HUGGING_FACE_H_
#define MESHWRIGHT_MODELS_HUGGING_FACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "models/decoder.h"
#include "models/training.h"

namespace meshwright {

// `root` is that of a parsed config.json. Errors are at its keys. Of a multimodal model it is the decoder.
// Notices tell of what the model has and a plan leaves out (encoders, dropout, multipliers) or takes for something near
// (attention windows in an order of their own).
absl::StatusOr<DecoderConfig> ReadHuggingFace(const NodeRef& root, const Training& training,
                                              std::vector<std::string>& notices);

// What the checkpoint's weights are stored in; may be missing.
NodeRef CheckpointType(const NodeRef& root);

// Whether `root` is that of a config.json: it has keys of one, such as model_type, and no name.
bool IsHuggingFaceConfig(const NodeRef& root);

// The text of a model file around the config.json at `path`: what such models are trained with, in bfloat16 with AdamW.
// Its name is the file's; of a config.json, its folder's.
std::string ModelFileAround(absl::string_view path, int64_t batch, int64_t sequence);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_HUGGING_FACE_H_
