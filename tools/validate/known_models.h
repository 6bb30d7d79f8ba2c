// Published models by name: the sizes that a table leaves out because everybody knows them.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_KNOWN_MODELS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_KNOWN_MODELS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "models/decoder.h"

namespace meshwright {

// What of a model is not attention (models/decoder.h).
struct KnownHybrid {
  LinearAttentionConfig linear;
  int64_t full_attention_every = 0;
  absl::string_view layer_pattern = "";  // then of squared ReLU, RMSNorm and no positions, as Nemotron's
  bool gates = false;                    // of attention and of the shared expert
  int64_t expert_hidden = 0, mtp_layers = 0;
};

// What of it is as in models/decoder.h; `ffn` is then one expert's.
struct KnownExperts {
  int64_t count = 0, per_token = 0, shared_ffn = 0, dense_layers = 0, dense_ffn = 0, every = 1;
  int64_t groups = 1, groups_per_token = 1;
};
struct KnownLatent {
  int64_t q_lora_rank = 0, kv_lora_rank = 0, rope_head_dim = 0;
};
struct KnownWindows {
  int64_t sliding = 0, full_attention_every = 0;
};

struct KnownModel {
  absl::string_view family;  // in the name, without what stands between words: "qwen3"
  double billions = 0;       // of parameters, all experts counted; 0: the family's name is enough
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool tied = false;  // embeddings
  KnownExperts experts = {};
  KnownLatent latent = {};
  KnownWindows windows = {};
  const KnownHybrid* hybrid = nullptr;
};

// The model of this name with this hidden size; nullptr where there is none. `billions` and `hidden` 0: not said.
const KnownModel* FindKnownModel(absl::string_view name, double billions, int64_t hidden);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_KNOWN_MODELS_H_
