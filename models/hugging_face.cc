#include "models/hugging_face.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/expert_layers.h"

namespace meshwright {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;

// The keys of a family, and what its class says where a key is missing: as transformers' configuration_*.py and
// modeling_*.py have it.
struct Family {
  absl::string_view model_type;
  bool tied_by_default = false;
  bool qkv_bias = false;  // of q, k and v, whatever the file says
  bool bias = false;      // of all linear layers
  bool gelu = false;      // a feed-forward layer of two products with GELU between, where others have three and a gate
  bool layer_norm = false;
  bool side_by_side = false;  // attention and the feed-forward layer, unless the file says otherwise
  bool experts = false;
  bool latent = false;         // queries, keys and values come from narrow vectors (DeepSeek-V2, section 2.1)
  bool query_norms = false;    // norms of queries and keys
  bool shared_expert = false;  // one as wide as the others, that no key tells of
  int64_t head_dim = 0;        // 0: the hidden size over the heads
  int64_t kv_heads = 0;        // 0: as many as heads, which an explicit null means everywhere
  double rope_theta = 10000;
  double rotary_share = 1;  // of each head, which rotary positions turn
  bool may_window = true;   // without `use_sliding_window`
  int64_t window = 0;       // of attention, in tokens; 0: all of the sequence
  int64_t full_every = 0;   // where there are windows, every so manieth layer has none; 0: each has one
  // What else its layers have, and a plan has not.
  absl::string_view left_out = "";
};
constexpr absl::string_view kOneNorm =
    "the one norm before attention and the feed-forward layer is taken as two, and what scales or shifts logits is "
    "left out";
constexpr Family kFamilies[] = {
    {.model_type = "gpt2", .tied_by_default = true, .qkv_bias = true},
    {.model_type = "llama"},
    {.model_type = "mistral", .kv_heads = 8, .window = 4096},
    {.model_type = "mixtral", .experts = true, .kv_heads = 8, .rope_theta = 1e6},
    {.model_type = "phi",
     .bias = true,
     .gelu = true,
     .layer_norm = true,
     .side_by_side = true,
     .rotary_share = 0.5,
     .left_out = kOneNorm},
    {.model_type = "phi3"},
    {.model_type = "phimoe", .layer_norm = true, .experts = true, .kv_heads = 8, .rope_theta = 1e6},
    {.model_type = "qwen2", .qkv_bias = true, .kv_heads = 32, .may_window = false, .window = 4096},
    {.model_type = "qwen2_moe",
     .qkv_bias = true,
     .experts = true,
     .kv_heads = 16,
     .may_window = false,
     .window = 4096,
     .full_every = 2,
     .left_out = "the gate of the shared expert is left out"},
    {.model_type = "qwen3", .query_norms = true, .head_dim = 128, .kv_heads = 32, .may_window = false, .window = 4096},
    {.model_type = "qwen3_moe",
     .experts = true,
     .query_norms = true,
     .kv_heads = 4,
     .may_window = false,
     .window = 4096},
    {.model_type = "gemma",
     .tied_by_default = true,
     .head_dim = 256,
     .kv_heads = 16,
     .left_out = "the scale of the embeddings is left out"},
    {.model_type = "gemma2",
     .tied_by_default = true,
     .head_dim = 256,
     .kv_heads = 4,
     .window = 4096,
     .full_every = 2,
     .left_out = "the norms behind attention and behind the feed-forward layer, caps of scores and logits, and the "
                 "scale of the embeddings are left out"},
    {.model_type = "gemma3_text",
     .tied_by_default = true,
     .query_norms = true,
     .head_dim = 256,
     .kv_heads = 4,
     .rope_theta = 1e6,
     .window = 4096,
     .full_every = 6,
     .left_out = "the norms behind attention and behind the feed-forward layer, and the scale of the embeddings, are "
                 "left out"},
    {.model_type = "gpt_oss",
     .qkv_bias = true,
     .experts = true,
     .head_dim = 64,
     .kv_heads = 8,
     .rope_theta = 150000,
     .window = 128,
     .full_every = 2,
     .left_out = "biases of the experts and of attention's output, and attention sinks, are left out"},
    {.model_type = "gpt_neox",
     .bias = true,
     .gelu = true,
     .layer_norm = true,
     .side_by_side = true,
     .rotary_share = 0.25},
    {.model_type = "stablelm", .layer_norm = true, .kv_heads = 32, .rotary_share = 0.25},
    {.model_type = "starcoder2",
     .tied_by_default = true,
     .bias = true,
     .gelu = true,
     .layer_norm = true,
     .kv_heads = 2},
    {.model_type = "granite", .left_out = "multipliers of embeddings, scores, residuals and logits are left out"},
    {.model_type = "granitemoe",
     .experts = true,
     .left_out = "multipliers of embeddings, scores, residuals and logits are left out"},
    {.model_type = "smollm3",
     .tied_by_default = true,
     .kv_heads = 4,
     .rope_theta = 2e6,
     .may_window = false,
     .left_out = "layers without rotary positions are taken as layers with them"},
    {.model_type = "seed_oss", .qkv_bias = true, .head_dim = 128, .kv_heads = 8},
    {.model_type = "cohere",
     .tied_by_default = true,
     .layer_norm = true,
     .side_by_side = true,
     .rope_theta = 500000,
     .left_out = kOneNorm},
    {.model_type = "olmo", .left_out = "norms without weights are taken as norms with them"},
    {.model_type = "olmo2", .query_norms = true},
    {.model_type = "olmoe", .experts = true, .query_norms = true},
    {.model_type = "internlm2"},
    {.model_type = "ernie4_5", .tied_by_default = true, .head_dim = 128, .kv_heads = 2, .rope_theta = 500000},
    {.model_type = "ernie4_5_moe", .tied_by_default = true, .experts = true, .kv_heads = 4, .rope_theta = 500000},
    {.model_type = "glm4",
     .qkv_bias = true,
     .head_dim = 128,
     .kv_heads = 2,
     .rotary_share = 0.5,
     .left_out = "the norms behind attention and behind the feed-forward layer are left out"},
    {.model_type = "glm4_moe", .qkv_bias = true, .experts = true, .kv_heads = 8, .rotary_share = 0.5},
    {.model_type = "minimax_m2", .experts = true, .query_norms = true, .head_dim = 128, .kv_heads = 8},
    {.model_type = "llama4_text",
     .experts = true,
     .shared_expert = true,
     .head_dim = 128,
     .kv_heads = 8,
     .rope_theta = 500000,
     .window = 8192,
     .full_every = 4,
     .left_out = "layers without rotary positions are taken as layers with them"},
    {.model_type = "deepseek", .experts = true},
    {.model_type = "deepseek_v2", .experts = true, .latent = true},
    {.model_type = "deepseek_v3", .experts = true, .latent = true},
    {.model_type = "kimi_k2", .experts = true, .latent = true},
};

constexpr absl::string_view kDropouts[] = {"attention_dropout", "residual_dropout", "embedding_dropout",
                                           "attn_pdrop",        "embd_pdrop",       "resid_pdrop"};

absl::Status NotModelled(const NodeRef& at, absl::string_view what) {
  return at.Locate(absl::UnimplementedError(absl::StrCat(what, " is not modelled")));
}

// JSON's null is a missing value.
bool Given(const NodeRef& in) { return in.present() && !in.is_null(); }

absl::StatusOr<int64_t> IntOr(const NodeRef& in, int64_t fallback, int64_t min = 1) {
  if (!Given(in)) return fallback;
  return in.AsInt(min, kMost);
}

absl::StatusOr<bool> BoolOr(const NodeRef& in, bool fallback) {
  if (!Given(in)) return fallback;
  return in.AsBool();
}

absl::StatusOr<double> DoubleOr(const NodeRef& in, double fallback, double min, double max) {
  if (!Given(in)) return fallback;
  return in.AsDouble(min, max);
}

// What families call by different names: the first that the file has, or else the first.
NodeRef FirstGiven(const NodeRef& in, absl::Span<const absl::string_view> keys) {
  for (const absl::string_view key : keys) {
    if (Given(in[key])) return in[key];
  }
  return in[keys[0]];
}

constexpr absl::string_view kExperts[] = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"};

// Keys of other kinds of models, by which the family's own layers would cost something else.
absl::Status CheckNothingElse(const NodeRef& in, const Family& family) {
  const NodeRef experts = FirstGiven(in, kExperts);
  if (!family.experts && Given(experts)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t number, experts.AsInt(0, kMost));
    if (number > 1) return NotModelled(experts, absl::StrCat("experts of the model_type ", family.model_type));
  }
  if (!family.latent && Given(in["kv_lora_rank"])) {
    return NotModelled(in["kv_lora_rank"], absl::StrCat("latent attention of the model_type ", family.model_type));
  }
  for (const absl::string_view key : {"is_encoder_decoder", "add_cross_attention"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool other, BoolOr(in[key], false));
    if (other) return NotModelled(in[key], "attention to another sequence");
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(const NodeRef& in, absl::Span<const absl::string_view> known) {
  if (!Given(in)) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, in.AsString());
  for (const absl::string_view good : known) {
    if (name == good) return absl::OkStatus();
  }
  return NotModelled(in, absl::StrCat("the activation ", QuoteForMessage(name)));
}

absl::StatusOr<DecoderConfig> ReadGpt2(const NodeRef& in, const Training& training) {
  DecoderConfig c;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, in["n_embd"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, in["n_layer"].AsInt(1, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, in["n_head"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, IntOr(in["n_inner"], 4 * c.hidden));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, in["vocab_size"].AsInt(2, kMost));
  c.vocab_multiple = DefaultVocabMultiple(c.vocab);
  const NodeRef positions = in[Given(in["n_positions"]) ? "n_positions" : "n_ctx"];
  MESHWRIGHT_ASSIGN_OR_RETURN(c.max_positions, IntOr(positions, training.sequence));
  if (c.max_positions < training.sequence) {
    return positions.Error(absl::StrCat(c.max_positions), absl::StrCat("at least the sequence of ", training.sequence),
                           absl::StrCat("plan with a sequence of ", c.max_positions, " at most"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, DoubleOr(in["layer_norm_epsilon"], 1e-5, 0, 1));
  MESHWRIGHT_RETURN_IF_ERROR(
      CheckActivation(in["activation_function"], {"gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"}));
  c.activation = Activation::kGelu;
  c.norm = Norm::kLayerNorm;
  c.positions = Positions::kLearned;
  c.bias = true;
  return c;
}

// By layer, whether it has a window, of a model that has some.
absl::StatusOr<std::vector<bool>> WindowedLayers(const NodeRef& in, const Family& family, size_t layers) {
  std::vector<bool> windowed(layers, true);
  if (!Given(in["layer_types"])) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t first, IntOr(in["max_window_layers"], 0, 0));
    const NodeRef pattern = FirstGiven(in, {"sliding_window_pattern", "_sliding_window_pattern"});
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t every, IntOr(pattern, family.full_every, 0));
    for (size_t i = 0; i < layers; ++i) {
      windowed[i] = every > 0 ? (i + 1) % static_cast<size_t>(every) != 0 : i >= static_cast<size_t>(first);
    }
    return windowed;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> types, in["layer_types"].AsList());
  for (size_t i = 0; i < types.size(); ++i) {
    const absl::string_view type = types[i].text();
    const bool has = type == "sliding_attention" || type == "chunked_attention";
    if (!has && type != "full_attention") return NotModelled(types[i], QuoteForMessage(type));
    if (i < layers) windowed[i] = has;
  }
  if (types.size() != layers) {
    return in["layer_types"].Error(absl::StrCat(types.size(), " kinds"),
                                   absl::StrCat("one for each of the ", layers, " layers"));
  }
  return windowed;
}

// DecoderConfig::full_attention_every, where that says which layers have windows: some of these have.
std::optional<int64_t> FullEvery(const std::vector<bool>& windowed) {
  const auto full = static_cast<size_t>(std::find(windowed.begin(), windowed.end(), false) - windowed.begin());
  if (full == windowed.size()) return 0;
  for (size_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i] != ((i + 1) % (full + 1) != 0)) return std::nullopt;
  }
  return static_cast<int64_t>(full) + 1;
}

absl::Status ReadWindow(const NodeRef& in, const Family& family, const Training& training, DecoderConfig& c,
                        std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                              WindowedLayers(in, family, static_cast<size_t>(c.layers)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool used, BoolOr(in["use_sliding_window"], family.may_window));
  const NodeRef window = FirstGiven(in, {"sliding_window", "attention_chunk_size"});
  const int64_t count = std::count(windowed.begin(), windowed.end(), true);
  if (!used || window.is_null() || count == 0) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t length, IntOr(window, family.window, 0));
  if (length == 0) return absl::OkStatus();
  const std::optional<int64_t> every = FullEvery(windowed);
  if (every.has_value()) {
    c.sliding_window = length;
    c.full_attention_every = *every;
  }
  if (length >= training.sequence) return absl::OkStatus();
  if (!every.has_value()) {
    notices.push_back(absl::StrCat("attention windows of ", length, " tokens in ", count, " of ", c.layers,
                                   " layers are taken as attention over all ", training.sequence,
                                   ": time and model FLOPs come out too high"));
  } else if (Given(in["attention_chunk_size"])) {
    notices.push_back(absl::StrCat("attention in chunks of ", length,
                                   " tokens is taken for windows of as many, up to "
                                   "twice the work"));
  }
  return absl::OkStatus();
}

// Positions of long contexts are other angles of the same operators.
void NoteRopeScaling(const NodeRef& in, std::vector<std::string>& notices) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!in[key].is_map()) continue;
    const NodeRef type = in[key][in[key]["rope_type"].present() ? "rope_type" : "type"];
    if (!type.is_scalar() || type.text() == "default") continue;
    notices.push_back(absl::StrCat(key,
                                   " is left out: the time is the same, but what `run` and `export` make of the "
                                   "model has plain rotary positions"));
  }
}

// Transformers 5 keeps them together, of models with windows by the kind of layer.
NodeRef RopeParameters(const NodeRef& in) {
  const NodeRef all = in["rope_parameters"];
  return all["full_attention"].is_map() ? all["full_attention"] : all;
}

absl::StatusOr<double> ReadRopeTheta(const NodeRef& in, const Family& family) {
  const NodeRef together = RopeParameters(in);
  for (const NodeRef& theta :
       {together.is_map() ? together["rope_theta"] : in["rope_theta"], in["rope_theta"], in["rotary_emb_base"]}) {
    if (Given(theta)) return theta.AsDouble(1);
  }
  return family.rope_theta;
}

absl::Status NotePartOfHeads(const NodeRef& in, const Family& family, std::vector<std::string>& notices) {
  double share = family.rotary_share;
  const NodeRef together = RopeParameters(in);
  for (const NodeRef& key : {together.is_map() ? together["partial_rotary_factor"] : in["partial_rotary_factor"],
                             in["partial_rotary_factor"], in["rotary_pct"]}) {
    if (!Given(key)) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(share, key.AsDouble(0, 1));
    break;
  }
  if (share < 1) {
    notices.push_back(absl::StrCat("rotary positions of ", share,
                                   " of each head are taken as of all of it: the time is about the same, but what "
                                   "`run` and `export` make of the model turns whole heads"));
  }
  return absl::OkStatus();
}

// The width of what each token passes through beside the experts that it chooses, as it stands or counted in these.
absl::StatusOr<int64_t> ReadSharedExpert(const NodeRef& in, const DecoderConfig& c) {
  const NodeRef width = FirstGiven(in, {"shared_expert_intermediate_size", "shared_intermediate_size"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t wide, IntOr(width, 0, 0));
  if (wide > 0) return wide;
  const NodeRef count = FirstGiven(in, {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t shared, IntOr(count, 0, 0));
  return shared * c.ffn;
}

absl::Status ReadExperts(const NodeRef& in, const Family& family, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, FirstGiven(in, kExperts).AsInt(2, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, FirstGiven(in, {"num_experts_per_tok", "moe_k"}).AsInt(1, 1 << 16));
  if (c.bias) return NotModelled(in["mlp_bias"], "a bias of experts");
  MESHWRIGHT_RETURN_IF_ERROR(ReadExpertLayers(in, c));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, ReadSharedExpert(in, c));
  if (family.shared_expert) c.shared_expert_ffn = c.ffn;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups, IntOr(in["n_group"], 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups_per_token, IntOr(in["topk_group"], 1));
  return absl::OkStatus();
}

absl::Status ReadLatent(const NodeRef& in, DecoderConfig& c, std::vector<std::string>& notices) {
  c.kv_heads = c.heads;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.q_lora_rank, IntOr(in["q_lora_rank"], 0, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_lora_rank, in["kv_lora_rank"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, in["qk_nope_head_dim"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_head_dim, in["qk_rope_head_dim"].AsInt(2, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.value_head_dim, in["v_head_dim"].AsInt(1, kMost));
  if (c.qkv_bias) notices.push_back("the biases of attention are left out");
  c.qkv_bias = false;
  return absl::OkStatus();
}

absl::Status ReadKinds(const NodeRef& in, const Family& family, DecoderConfig& c, std::vector<std::string>& notices) {
  if (family.experts) MESHWRIGHT_RETURN_IF_ERROR(ReadExperts(in, family, c));
  if (family.latent) MESHWRIGHT_RETURN_IF_ERROR(ReadLatent(in, c, notices));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t next,
                              IntOr(FirstGiven(in, {"num_nextn_predict_layers", "num_mtp_modules"}), 0, 0));
  if (next > 0) notices.push_back("layers that predict tokens after the next are left out");
  return absl::OkStatus();
}

absl::StatusOr<double> ReadEpsilon(const NodeRef& in) {
  absl::string_view key = "rms_norm_eps";
  for (const absl::string_view other : {"layer_norm_eps", "norm_epsilon"}) {
    if (Given(in[other])) key = other;
  }
  return DoubleOr(in[key], 1e-6, 0, 1);
}

// Of a gate, GELU costs what SiLU does.
absl::Status ReadActivation(const NodeRef& in, const Family& family, DecoderConfig& c,
                            std::vector<std::string>& notices) {
  constexpr absl::string_view kGelus[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
  const NodeRef act = in[Given(in["hidden_activation"]) ? "hidden_activation" : "hidden_act"];
  c.activation = family.gelu ? Activation::kGelu : Activation::kSwiglu;
  if (family.gelu) return CheckActivation(act, kGelus);
  if (std::find(std::begin(kGelus), std::end(kGelus), act.text()) != std::end(kGelus)) {
    notices.push_back("GELU of gates is taken as SiLU, which takes as long");
    return absl::OkStatus();
  }
  return CheckActivation(act, {"silu", "swish"});
}

absl::Status ReadBiases(const NodeRef& in, const Family& family, DecoderConfig& c, std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool all, BoolOr(in["use_bias"], family.bias));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool attention, BoolOr(FirstGiven(in, {"attention_bias", "bias"}), all));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool inputs, BoolOr(in["use_qkv_bias"], attention || family.qkv_bias));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool mlp, BoolOr(in["mlp_bias"], all));
  c.bias = attention && mlp;
  c.qkv_bias = inputs;
  if (mlp && !attention) return NotModelled(in["mlp_bias"], "a bias in one half of the layers only");
  if (attention && !mlp && !family.qkv_bias) notices.push_back("the bias of attention's output is left out");
  return absl::OkStatus();
}

absl::StatusOr<DecoderConfig> ReadLlamaKind(const NodeRef& in, const Training& training, const Family& family,
                                            std::vector<std::string>& notices) {
  DecoderConfig c;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, in["hidden_size"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, in["num_hidden_layers"].AsInt(1, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, in["num_attention_heads"].AsInt(1, kMost));
  const NodeRef kv_heads = in["num_key_value_heads"];
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, IntOr(kv_heads, kv_heads.is_null() ? 0 : family.kv_heads));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, IntOr(in["head_dim"], family.head_dim));
  const bool narrow = family.experts && Given(in["moe_intermediate_size"]);
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, in[narrow ? "moe_intermediate_size" : "intermediate_size"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, in["vocab_size"].AsInt(2, kMost));
  c.vocab_multiple = DefaultVocabMultiple(c.vocab);
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, ReadEpsilon(in));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, ReadRopeTheta(in, family));
  NoteRopeScaling(in, notices);
  MESHWRIGHT_RETURN_IF_ERROR(NotePartOfHeads(in, family, notices));
  MESHWRIGHT_RETURN_IF_ERROR(ReadActivation(in, family, c, notices));
  MESHWRIGHT_RETURN_IF_ERROR(ReadWindow(in, family, training, c, notices));
  MESHWRIGHT_RETURN_IF_ERROR(ReadBiases(in, family, c, notices));
  c.max_positions = training.sequence;
  c.norm = family.layer_norm ? Norm::kLayerNorm : Norm::kRmsNorm;
  c.positions = Positions::kRotary;
  MESHWRIGHT_RETURN_IF_ERROR(ReadKinds(in, family, c, notices));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool query_norms,
                              BoolOr(FirstGiven(in, {"use_qk_norm", "qk_layernorm"}), family.query_norms));
  if (query_norms) notices.push_back("the norms of queries and keys are left out");
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool beside, BoolOr(in["use_parallel_residual"], family.side_by_side));
  if (beside) {
    notices.push_back("attention and the feed-forward layer are taken one behind the other, not side by side");
  }
  if (!family.left_out.empty()) notices.push_back(std::string(family.left_out));
  return c;
}

}  // namespace

absl::StatusOr<DecoderConfig> ReadHuggingFace(const NodeRef& in, const Training& training,
                                              std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string model_type, in["model_type"].AsString());
  const Family* family = nullptr;
  std::vector<absl::string_view> names;
  for (const Family& row : kFamilies) {
    names.push_back(row.model_type);
    if (row.model_type == model_type) family = &row;
  }
  if (family == nullptr && (in["text_config"].is_map() || in["vision_config"].is_map())) {
    return in["model_type"].Locate(absl::UnimplementedError(absl::StrCat(
        "found ", QuoteForMessage(model_type),
        ", which is more than a decoder, wanted a decoder alone; to plan the one in it, ",
        in["text_config"].is_map() ? "save the map `text_config` as a file of its own"
                                   : "remove `vision_config` and write the model_type of its decoder, such as qwen2")));
  }
  if (family == nullptr) {
    return in["model_type"].Locate(absl::UnimplementedError(
        absl::StrCat("found ", QuoteForMessage(model_type), ", wanted one of ", absl::StrJoin(names, ", "),
                     "; a decoder of another name but the same layers is written as "
                     "`architecture: {decoder: ..}`")));
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckNothingElse(in, *family));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      DecoderConfig c, model_type == "gpt2" ? ReadGpt2(in, training) : ReadLlamaKind(in, training, *family, notices));
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) {
    if (c.hidden % c.heads != 0) {
      const NodeRef heads = in[model_type == "gpt2" ? "n_head" : "num_attention_heads"];
      return heads.Error(absl::StrCat(c.heads), absl::StrCat("a divisor of the hidden size, ", c.hidden));
    }
    c.head_dim = c.hidden / c.heads;
  }
  c.qkv_bias = c.qkv_bias || family->qkv_bias || c.bias;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, BoolOr(in["tie_word_embeddings"], family->tied_by_default));
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(CheckDecoder(c, training)));
  if (in["quantization_config"].is_map()) {
    notices.push_back("quantization_config is left out: all weights are trained, in the type of the training");
  }
  for (const absl::string_view key : kDropouts) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const double share, DoubleOr(in[key], 0, 0, 1));
    if (share > 0)
      notices.push_back(absl::StrCat(key, " of ", in[key].text(), " is left out: decoders have no dropout"));
  }
  return c;
}

bool IsHuggingFaceConfig(const NodeRef& root) {
  if (root["name"].present()) return false;
  return root["model_type"].present() || root["architectures"].present() || root["hidden_size"].present();
}

std::string ModelFileAround(absl::string_view path, int64_t batch, int64_t sequence) {
  const size_t slash = path.rfind('/');
  const absl::string_view folder = slash == absl::string_view::npos ? "" : path.substr(0, slash);
  const absl::string_view file = path.substr(slash == absl::string_view::npos ? 0 : slash + 1);
  absl::string_view stem = absl::StripSuffix(file, ".json");
  if (stem == "config") stem = folder.substr(folder.rfind('/') + 1);
  std::string name;
  for (const char c : stem) name.push_back(CheckName(std::string(1, c)).ok() || c == '.' ? c : '_');
  if (name.find_first_not_of("._-") == std::string::npos) name = "model";
  return absl::StrCat("name: ", QuoteYaml(name.substr(0, 64)),
                      "\nhuggingface: ", CheckName(file).ok() ? QuoteYaml(file) : "config.json",
                      "\ntraining: {batch: ", batch, ", sequence: ", sequence,
                      ", dtype: bfloat16, optimizer: adamw}\n");
}

}  // namespace meshwright
