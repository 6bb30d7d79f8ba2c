// Which layers of a config.json have linear attention or a state space, and their sizes. Used by hugging_face.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_HYBRID_LAYERS_H_
#define MESHWRIGHT_MODELS_HYBRID_LAYERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/document.h"
#include "models/decoder.h"

namespace meshwright {

// By which names the file has them.
enum class HybridKeys : uint8_t {
  kNone,
  kLinear,    // Qwen3-Next's: linear_num_value_heads and so on
  kOlmo,      // OLMo Hybrid's: the same keys, with sizes by attention's heads where one is missing
  kKimi,      // Kimi Linear's: a map, linear_attn_config
  kMamba,     // Bamba's and Granite 4's: mamba_n_heads and so on
  kPatterns,  // Nemotron-H's, whose layers are halves: hybrid_override_pattern, mamba_num_heads and so on
};

// Layers of a file that says them by a pattern alone, 0: it does not. Errors at the pattern.
absl::StatusOr<int64_t> LayersOfPattern(const NodeRef& in, HybridKeys keys);

// Sets linear_attention, and which layers have attention or, of halves, layer_pattern. Reads c's layers and experts.
// kUnimplemented at the first layer of a kind that is not modelled.
absl::Status ReadHybridLayers(const NodeRef& in, HybridKeys keys, DecoderConfig& c);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_HYBRID_LAYERS_H_
