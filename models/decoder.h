// Decoder-only transformers: GPT, Llama, Mixtral and their like, from their sizes.
//
//   architecture:
//     decoder: {hidden: 4096, layers: 32, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, activation: swiglu,
//               norm: rms_norm, positions: rotary, tied_embeddings: false, bias: false}
//
// The graph has three segments: "embed", "layers" (repeated, the residual stream is carried) and "head". The first
// `dense_layers`, which have no experts, stand in one of their own before "layers". Where one layer of several has
// experts, sees more than a window, or has attention, a run of "layers" is that many; what is left over, and all alike,
// stands in "last_layers". Where layers are in another order, they stand in as few runs as can be, "layers", "layers2"
// and so on. Names of what is in the first layers begin with "dense_", in a run's layers but the last with "dense0_",
// "linear1_" and so on, in the last ones with "last_", in a second run with "part2_", of what predicts further tokens,
// in the head, with "next_". The residual stream is (s, b, h). Index labels, which label rules of a strategy name:
//   b batch   s sequence   h hidden   g KV head (with its queries)   f ffn   v vocabulary   e expert
//   x experts that a rank sends tokens to
//   z parts of a sequence in slots of experts, where ranks share it (planner/passes/split_context.h)
//   c slots of an expert: the dim of its own size that is split as b is. A rule for "b" should be given for "c" too.
//   o groups of heads of linear attention; y the same where the sequence is whole
//   q, r (of the router: the experts that it tells apart), d, t, p, i, and l, the rank of adapters (Lora in
//   models/training.h), j, of what is joined to predict further tokens: never split; a, k, m: widths of latent
//   attention's vectors, of queries, of keys and values, and of what these are a part of; u, w of its heads: never
//   split
//
// Weights of the second product of each half-layer, which write into the residual stream, start with the standard
// deviation 0.02 / sqrt(2 * layers), all others with 0.02; norms start with 1, biases with 0.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_MODELS_DECODER_H_
#define MESHWRIGHT_MODELS_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/graph.h"
#include "models/training.h"

namespace meshwright {

enum class Activation : uint8_t { kGelu, kRelu, kSquaredRelu, kSwiglu, kGeglu };
enum class Norm : uint8_t { kLayerNorm, kRmsNorm };
// Of attention and of the feed-forward layer: in front of it, behind it before the residual is added, or both.
enum class NormPlaces : uint8_t { kBefore, kAfter, kBoth };
// Whether the feed-forward layer takes what attention made, or what attention takes, by a norm of its own or by
// attention's (GPT-J, GPT-NeoX; Wang and Komatsuzaki 2021).
enum class LayerForm : uint8_t { kSerial, kParallel, kParallelOneNorm };
// Of layers in place of attention (ir/recurrence.h): the gated delta rule (Qwen3-Next), a state space (Mamba-2), or the
// delta rule with a decay for each element of a key (Kimi Delta Attention, arXiv:2510.26692).
enum class LinearForm : uint8_t { kGatedDelta, kStateSpace, kKimiDelta };
enum class Positions : uint8_t { kLearned, kRotary, kNone };
inline constexpr absl::string_view kActivationNames[] = {"gelu", "relu", "squared_relu", "swiglu", "geglu"};
inline constexpr absl::string_view kNormPlacesNames[] = {"before", "after", "both"};
inline constexpr absl::string_view kLayerFormNames[] = {"serial", "parallel", "parallel_one_norm"};
inline constexpr absl::string_view kLinearFormNames[] = {"gated_delta", "state_space", "kimi_delta"};
inline constexpr absl::string_view kNormNames[] = {"layer_norm", "rms_norm"};
inline constexpr absl::string_view kPositionsNames[] = {"learned", "rotary", "none"};

// Twice those of the deepest that was published, DeepNet (Wang et al. 2022). The time of a search grows with their
// square: a minute for these.
inline constexpr int64_t kMostLayers = 2048;

// Of state spaces keys and queries are what Mamba-2 calls B and C, and a group of heads has one of each.
struct LinearAttentionConfig {
  LinearForm form = LinearForm::kGatedDelta;
  int64_t key_heads = 0, value_heads = 0;  // of the latter 0: the model has none of this
  int64_t key_dim = 0, value_dim = 0;      // of one head
  int64_t convolution = 4;                 // taps of the convolution in front; 0: none
  bool convolution_bias = false;
  // Of kKimiDelta, what the logits of decays, and the gates of the result, of all heads are made from: a vector of so
  // many elements. 0: of gates, the hidden state.
  int64_t decay_rank = 0, gate_rank = 0;

  friend bool operator==(const LinearAttentionConfig&, const LinearAttentionConfig&) = default;
};

// How many queries a layer's attention has, and keys with values, and of how many elements each is.
struct AttentionHeads {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;

  friend bool operator==(const AttentionHeads&, const AttentionHeads&) = default;
};

struct DecoderConfig {
  int64_t hidden = 0;
  int64_t layers = 0;
  // A letter for each layer, which then is one half: M linear attention or a state space, * attention, - a feed-forward
  // layer, E experts (Megatron-Core's hybrid models). Empty: layers are whole, and the keys below say of which kind.
  std::string layer_pattern;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // default: heads
  int64_t head_dim = 0;  // default: hidden / heads; of latent attention the part of a key without positions
  // Latent attention (DeepSeek-V2, section 2.1): keys and values of all heads are made from one vector of so many
  // elements, and queries from another, 0: from the hidden state. Queries and keys have `rope_head_dim` elements with
  // positions besides, those of the keys the same in all heads. 0: heads of one kind.
  int64_t kv_lora_rank = 0, q_lora_rank = 0, rope_head_dim = 0;
  int64_t value_head_dim = 0;  // 0: head_dim; without latent attention narrower than that (MiMo-V2)
  // A token sees itself and those before it up to so many in all; of each `full_attention_every` layers, counted from
  // the first of all, the last sees all before it. 0: all do; 0: none does.
  int64_t sliding_window = 0, full_attention_every = 0;
  // Which of those layers it is: 0: the last.
  int64_t full_attention_at = 0;
  // Or those layers by number, in order and from 0, where one of each so many does not say it.
  std::vector<int64_t> full_attention_layers;
  // Of the layers without a window, where the heads above are of those with one (Gemma 4). 0 heads: all have these.
  AttentionHeads full_attention_heads;
  // What all layers but those have in place of attention.
  LinearAttentionConfig linear_attention;
  bool attention_gate = false;  // a sigmoid of a product of its own multiplies what attention makes
  int64_t ffn = 0;              // of one expert where there are experts; default: 4 * hidden
  int64_t vocab = 0;
  // The tables' rows are padded to a multiple of this, so that they split evenly; the rows count as classes that no
  // label names, not as parameters. Default: 128, small vocabularies (under 1024) 1.
  int64_t vocab_multiple = 1;
  int64_t classes = 0;        // of the head, which then has a weight of its own; 0: the vocabulary's
  int64_t max_positions = 0;  // rows of the learned position table; default: training.sequence
  Activation activation = Activation::kGelu;
  Norm norm = Norm::kLayerNorm;
  NormPlaces norm_places = NormPlaces::kBefore;
  LayerForm layer_form = LayerForm::kSerial;
  bool qk_norm = false;      // an RMS norm of each query and each key, before positions
  double rotary_factor = 1;  // how much of each head rotary positions turn
  Positions positions = Positions::kLearned;
  bool tied_embeddings = false;  // the head's weight is the embedding
  bool bias = false;             // of all linear layers but the router, the head and linear attention's
  bool qkv_bias = false;         // of the q, k, v product; default: bias
  int64_t experts = 0;           // 0: dense
  int64_t experts_per_token = 0;
  int64_t shared_expert_ffn = 0;  // width of a feed-forward layer beside the experts that takes every token; 0: none
  int64_t expert_hidden = 0;      // tokens are brought to so many elements before they go to experts, and back; 0: not
  bool shared_expert_gate = false;  // a sigmoid of a product, one number a token, multiplies what that makes
  // Layers without experts, whose feed-forward layer is of width `dense_ffn`: the first `dense_layers`, and of the
  // others all but the last of each `expert_every`. DeepSeek-V3: 3 of 61; Llama 4 Maverick: every second.
  int64_t dense_layers = 0, expert_every = 1;
  int64_t dense_ffn = 0;  // default, where there are such layers: what a token goes through in the others
  // A token's experts are of the best `choice_groups_per_token` of so many equal groups, those whose two largest logits
  // have the largest sums (DeepSeek-V3: 4 of 8, each a node of an expert group of 8 nodes).
  int64_t choice_groups = 1, choice_groups_per_token = 1;
  // Layers behind the last that predict tokens after the next one (DeepSeek-V3's report, section 2.2): each takes the
  // state in front of it and the embedding of the token that this predicts, and its loss, by the same embedding and
  // output layer, counts for mtp_loss_weight over their number.
  int64_t mtp_layers = 0;
  double mtp_loss_weight = 0.1;   // Megatron-Core's; DeepSeek-V3: 0.3, then 0.1
  double capacity_factor = 1.25;  // an expert has room for this many times its even share of the tokens
  double rope_theta = 10000;
  double norm_epsilon = 1e-5;

  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;
};

// Two first products, one of which gates the other.
constexpr bool IsGated(Activation activation) {
  return activation == Activation::kSwiglu || activation == Activation::kGeglu;
}

// Elements that rotary positions turn of a head of so many: an even number.
int64_t TurnedElements(const DecoderConfig& config, int64_t head_dim);

// Of attention with that window. 0: without one.
constexpr AttentionHeads HeadsOf(const DecoderConfig& config, int64_t window) {
  if (window == 0 && config.full_attention_heads.heads > 0) return config.full_attention_heads;
  return {config.heads, config.kv_heads, config.head_dim};
}

// Whether some layers have attention over all where others have a window or linear attention.
inline bool HasFullAttention(const DecoderConfig& config) {
  return config.full_attention_every > 0 || !config.full_attention_layers.empty();
}
// By layer, whether it has; sets the three fields above that say so. REQUIRES: one for each of config.layers.
void SetFullAttention(const std::vector<bool>& full, DecoderConfig& config);

// The shortest run of layers in which all kinds are that the repeated ones have. Without a pattern or a list.
int64_t LayersOfRun(const DecoderConfig& config);

// What names of operators of a layer begin with, one for each kind of layer: "", "dense_", "dense0_", ..
std::vector<std::string> LayerPrefixes(const DecoderConfig& config);

// What `vocab_multiple` is where the file does not say.
int64_t DefaultVocabMultiple(int64_t vocab);

// Reads the map of sizes. Checks that they fit together (CheckDecoder) at the fields' places.
absl::StatusOr<DecoderConfig> ReadDecoder(const NodeRef& in, const Training& training);

// kInvalidArgument where sizes do not fit together, or the model is so large that counts of its elements overflow.
absl::Status CheckDecoder(const DecoderConfig& config, const Training& training);

// The forward graph of one micro-batch of `rows` sequences, with the loss: the mean cross entropy of the tokens
// (training.loss_reduction: mean), computed in steps that allow a split vocabulary.
// REQUIRES: CheckDecoder is OK, rows >= 1.
absl::StatusOr<Graph> BuildDecoder(const DecoderConfig& config, const Training& training, const std::string& name,
                                   int64_t rows);

// Of a query or key, and of a value, of layers with windows where heads differ.
constexpr int64_t ScoreWidth(const DecoderConfig& config) { return config.head_dim + config.rope_head_dim; }
constexpr int64_t ValueWidth(const DecoderConfig& config) {
  return config.value_head_dim > 0 ? config.value_head_dim : config.head_dim;
}

// Whether queries, keys and values lie one behind the other, since values are of another width.
constexpr bool HasNarrowValues(const DecoderConfig& config) {
  return config.kv_lora_rank == 0 && config.value_head_dim > 0;
}

// Elements of linear attention for each group of heads, which share a key: its heads, what goes through the
// convolution, the values, which are as many as their gates, the logits of heads' gates, and those of decays that have
// a product of their own.
struct LinearSizes {
  int64_t heads = 0, mixed = 0, values = 0, gates = 0, decays = 0;
};
LinearSizes LinearSizesOf(const DecoderConfig& config);

// How many layers have which mixer, and which feed-forward layer.
struct LayerCounts {
  int64_t attention = 0, windows = 0, linear = 0, experts = 0, dense = 0;  // attention: windows among them
};
LayerCounts CountLayers(const DecoderConfig& config);

// Layers with experts, or all feed-forward layers where there are none.
int64_t ExpertLayers(const DecoderConfig& config);

// Parameters of the weights of one layer's attention, with that window (0: without one, as HeadsOf), and of its linear
// attention. As a double: sizes may be any.
double AttentionParameters(const DecoderConfig& config, int64_t window = 0);
double LinearAttentionParameters(const DecoderConfig& config);

// Parameters of the experts that a token does not use, adapters among them: what a token is multiplied by is the rest.
int64_t IdleParameters(const DecoderConfig& config, const Training& training);

// Slots of one expert for `tokens` tokens of one micro-batch: capacity_factor times the even share, rounded up to a
// multiple of `rows`, so that slots split as rows do.
int64_t ExpertCapacity(const DecoderConfig& config, int64_t tokens, int64_t rows);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_DECODER_H_
