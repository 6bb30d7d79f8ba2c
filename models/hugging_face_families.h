// The families of Hugging Face models: a row each. Used by hugging_face.
//
// Thread safety: a constant table.
#ifndef MESHWRIGHT_MODELS_HUGGING_FACE_FAMILIES_H_
#define MESHWRIGHT_MODELS_HUGGING_FACE_FAMILIES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/decoder.h"
#include "models/hybrid_layers.h"

namespace meshwright {

// The keys of a family, and what its class says where a key is missing: as transformers' configuration_*.py and
// modeling_*.py have it.
struct HuggingFaceFamily {
  absl::string_view model_type;
  bool tied_by_default = false;
  bool qkv_bias = false;  // of q, k and v, whatever the file says
  bool bias = false;      // of all linear layers
  // Whether a `bias` is of what comes behind attention, beside one of q, k and v that has a key of its own.
  bool bias_beside_inputs = false;
  bool one_key = false;  // in each layer, without `multi_query`
  // Where the file does not say; a gate stays a gate, and none none.
  Activation activation = Activation::kSwiglu;
  bool layer_norm = false;
  NormPlaces norm_places = NormPlaces::kBefore;
  bool side_by_side = false;                          // attention and the feed-forward layer, unless the file says so
  LayerForm side_form = LayerForm::kParallelOneNorm;  // if they are
  bool experts = false;
  bool latent = false;         // queries, keys and values come from narrow vectors (DeepSeek-V2, section 2.1)
  bool plain_values = false;   // then, without `v_head_dim`: of the hidden size over the heads
  bool ffn_of_both = false;    // `intermediate_size` counts a gate and what it gates together
  bool query_norms = false;    // norms of queries and keys
  bool dense_beside = false;   // `enable_moe_block` has experts beside the feed-forward layer of `intermediate_size`
  bool shared_expert = false;  // one as wide as the others, that no key tells of
  bool gates_shared_expert = false, gates_attention = false;  // DecoderConfig::shared_expert_gate, attention_gate
  HybridKeys hybrid = HybridKeys::kNone;                      // layers with linear attention
  int64_t dense_layers = 0;                                   // the first so many have no experts
  int64_t head_dim = 0;                                       // 0: the hidden size over the heads
  int64_t value_head_dim = 0;                                 // of values where these are narrower than keys
  int64_t heads = 0;                                          // 0: the file says
  int64_t kv_heads = 0;  // 0: as many as heads, which an explicit null means everywhere
  Positions positions = Positions::kRotary;
  int64_t vocab = 0;           // 0: the file says
  int64_t more_positions = 0;  // rows of a learned table beside those of `max_position_embeddings`
  double rope_theta = 10000;
  double rotary_share = 1;    // of each head, which rotary positions turn
  bool may_window = true;     // without `use_sliding_window`
  int64_t window = 0;         // of attention, in tokens; 0: all of the sequence
  int64_t full_every = 0;     // where there are windows, every so manieth layer has none; 0: each has one
  int64_t full_at = 0;        // which of those it is; 0: the last
  bool full_first = false;    // nor has the first layer of all, where no list says which
  int64_t full_head_dim = 0;  // of the layers without a window, where heads are told apart by `global_head_dim`
  int64_t layer_input = 0;    // elements of an embedding in each layer, unless the file says
  int64_t picked = 0;         // tokens that an indexer picks for each to attend to; 0: it has none
  // What else its layers have, and a plan has not.
  absl::string_view left_out = "";
};

absl::Span<const HuggingFaceFamily> HuggingFaceFamilies();

// What layers of a model_type that is no family have, and decoders have not: "attention to ..". Empty: nobody looked.
absl::string_view WhatOthersHave(absl::string_view model_type);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_HUGGING_FACE_FAMILIES_H_
