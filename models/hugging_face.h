// Reads a Hugging Face config.json as a decoder.
//
// Families: gpt2, llama, mistral, mixtral, qwen2. Keys that change neither sizes nor time are ignored. kUnimplemented
// for another model_type, and for a known key with a value that our decoder does not model (an attention window shorter
// than the sequence, layers of several types, biases on some products only).
//
// Thread safety: pure function.
#ifndef MESHWRIGHT_MODELS_HUGGING_FACE_H_
#define MESHWRIGHT_MODELS_HUGGING_FACE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/document.h"
#include "models/decoder.h"
#include "models/training.h"

namespace meshwright {

// `in` is the root of a parsed config.json. Errors are at its keys.
// Notices tell of what the model has and a plan leaves out: dropout.
absl::StatusOr<DecoderConfig> ReadHuggingFace(const NodeRef& in, const Training& training,
                                              std::vector<std::string>& notices);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_HUGGING_FACE_H_
