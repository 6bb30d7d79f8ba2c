#include "models/hugging_face.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "ir/text.h"

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
  bool latent = false;       // queries, keys and values come from narrow vectors (DeepSeek-V2, section 2.1)
  bool query_norms = false;  // norms of queries and keys
  int64_t head_dim = 0;      // 0: the hidden size over the heads
  int64_t kv_heads = 0;      // 0: as many as heads
  double rope_theta = 10000;
  // What else its layers have, and a plan has not.
  absl::string_view left_out = "";
};
constexpr Family kFamilies[] = {
    {.model_type = "gpt2", .tied_by_default = true, .qkv_bias = true},
    {.model_type = "llama"},
    {.model_type = "mistral"},
    {.model_type = "mixtral", .experts = true, .rope_theta = 1e6},
    {.model_type = "phi3"},
    {.model_type = "qwen2", .qkv_bias = true},
    {.model_type = "qwen3", .query_norms = true, .head_dim = 128},
    {.model_type = "qwen3_moe", .experts = true, .query_norms = true},
    {.model_type = "gemma",
     .tied_by_default = true,
     .head_dim = 256,
     .left_out = "the scale of the embeddings is left out"},
    {.model_type = "gemma2",
     .tied_by_default = true,
     .head_dim = 256,
     .kv_heads = 4,
     .left_out = "the norms behind attention and behind the feed-forward layer, caps of scores and logits, and the "
                 "scale of the embeddings are left out"},
    {.model_type = "gemma3_text",
     .tied_by_default = true,
     .query_norms = true,
     .head_dim = 256,
     .kv_heads = 4,
     .rope_theta = 1e6,
     .left_out = "the norms behind attention and behind the feed-forward layer, and the scale of the embeddings, are "
                 "left out"},
    {.model_type = "gpt_oss",
     .qkv_bias = true,
     .experts = true,
     .head_dim = 64,
     .kv_heads = 8,
     .rope_theta = 150000,
     .left_out = "biases of the experts and of attention's output, and attention sinks, are left out"},
    {.model_type = "gpt_neox", .bias = true, .gelu = true, .layer_norm = true, .side_by_side = true},
    {.model_type = "starcoder2", .tied_by_default = true, .bias = true, .gelu = true, .layer_norm = true},
    {.model_type = "granite", .left_out = "multipliers of embeddings, scores, residuals and logits are left out"},
    {.model_type = "seed_oss", .qkv_bias = true, .head_dim = 128, .kv_heads = 8},
    {.model_type = "olmo2", .query_norms = true},
    {.model_type = "olmoe", .experts = true, .query_norms = true},
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

absl::StatusOr<int64_t> IntOr(const NodeRef& in, int64_t fallback) {
  if (!Given(in)) return fallback;
  return in.AsInt(1, kMost);
}

absl::StatusOr<double> DoubleOr(const NodeRef& in, double fallback, double min, double max) {
  if (!Given(in)) return fallback;
  return in.AsDouble(min, max);
}

absl::Status CheckActivation(const NodeRef& in, absl::string_view fallback, absl::Span<const absl::string_view> known) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, in.AsStringOr(fallback));
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
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, in["layer_norm_epsilon"].AsDoubleOr(1e-5, 0, 1));
  MESHWRIGHT_RETURN_IF_ERROR(
      CheckActivation(in["activation_function"], "gelu_new", {"gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"}));
  c.activation = Activation::kGelu;
  c.norm = Norm::kLayerNorm;
  c.positions = Positions::kLearned;
  c.bias = true;
  return c;
}

// Attention over all of the sequence in every layer is what we model. A window that is shorter is told: its layers cost
// less than is said.
absl::Status ReadWindow(const NodeRef& in, const Training& training, std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layers, in["num_hidden_layers"].AsInt(1, kMostLayers));
  int64_t windowed = layers;
  if (!in["layer_types"].children().empty()) windowed = 0;
  for (const NodeRef& type : in["layer_types"].children()) {
    if (type.text() == "sliding_attention") {
      ++windowed;
    } else if (type.text() != "full_attention") {
      return NotModelled(type, QuoteForMessage(type.text()));
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool used, in["use_sliding_window"].AsBoolOr(true));
  const NodeRef window = in["sliding_window"];
  if (!used || !Given(window) || windowed == 0) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t length, window.AsInt(1));
  if (length >= training.sequence) return absl::OkStatus();
  notices.push_back(absl::StrCat("attention windows of ", length, " tokens",
                                 windowed < layers ? absl::StrCat(" in ", windowed, " of ", layers, " layers") : "",
                                 " are taken as attention over all ", training.sequence,
                                 ": time and model FLOPs come out too high"));
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

// The class of GPT-NeoX turns a quarter of each head where nothing is said (configuration_gpt_neox.py, `rotary_pct`).
absl::Status NotePartOfHeads(const NodeRef& in, const Family& family, std::vector<std::string>& notices) {
  double share = family.side_by_side ? 0.25 : 1;
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

// All layers have experts, and all experts are chosen among: what else there is becomes that, and is told.
absl::Status ReadExperts(const NodeRef& in, DecoderConfig& c, std::vector<std::string>& notices) {
  absl::string_view key = "num_local_experts";
  for (const absl::string_view other : {"num_experts", "n_routed_experts"}) {
    if (Given(in[other])) key = other;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, in[key].AsInt(2, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, in["num_experts_per_tok"].AsInt(1, 1 << 16));
  if (c.bias) return NotModelled(in["mlp_bias"], "a bias of experts");
  for (const absl::string_view step : {"decoder_sparse_step", "moe_layer_freq"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t every, IntOr(in[step], 1));
    if (every > 1) return NotModelled(in[step], absl::StrCat("experts in every ", every, "th layer only"));
  }
  if (!in["mlp_only_layers"].children().empty()) return NotModelled(in["mlp_only_layers"], "a layer without experts");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t first, in["first_k_dense_replace"].AsIntOr(0, 0, kMostLayers));
  if (first > 0) notices.push_back(absl::StrCat("the first ", first, " layers are taken as layers of experts, too"));
  // The width of the shared one itself (Qwen2-MoE), or how many experts it is wide (DeepSeek).
  MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, IntOr(in["shared_expert_intermediate_size"], 0));
  if (Given(in["n_shared_experts"])) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t shared, in["n_shared_experts"].AsInt(0, 1 << 16));
    c.shared_expert_ffn = shared * c.ffn;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups, IntOr(in["n_group"], 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups_per_token, IntOr(in["topk_group"], 1));
  return absl::OkStatus();
}

// The products of the narrow vectors are about those of heads that share one key and value.
absl::Status ReadLatent(const NodeRef& in, DecoderConfig& c, std::vector<std::string>& notices) {
  MESHWRIGHT_RETURN_IF_ERROR(in["kv_lora_rank"].AsInt(1, kMost).status());
  c.kv_heads = 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, in["v_head_dim"].AsInt(1, kMost));
  notices.push_back(absl::StrCat("latent attention is taken as ", c.heads, " heads of ", c.head_dim,
                                 " that share a key, without the rotary dims of their own"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t next, in["num_nextn_predict_layers"].AsIntOr(0, 0, kMostLayers));
  if (next > 0) notices.push_back("layers that predict tokens after the next are left out");
  return absl::OkStatus();
}

absl::StatusOr<double> ReadEpsilon(const NodeRef& in) {
  absl::string_view key = "rms_norm_eps";
  for (const absl::string_view other : {"layer_norm_eps", "norm_epsilon"}) {
    if (Given(in[other])) key = other;
  }
  return in[key].AsDoubleOr(1e-6, 0, 1);
}

// Of a gate, GELU costs what SiLU does.
absl::Status ReadActivation(const NodeRef& in, const Family& family, DecoderConfig& c,
                            std::vector<std::string>& notices) {
  constexpr absl::string_view kGelus[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
  const NodeRef act = in[Given(in["hidden_activation"]) ? "hidden_activation" : "hidden_act"];
  c.activation = family.gelu ? Activation::kGelu : Activation::kSwiglu;
  if (family.gelu) return CheckActivation(act, "gelu", kGelus);
  if (std::find(std::begin(kGelus), std::end(kGelus), act.text()) != std::end(kGelus)) {
    notices.push_back("GELU of gates is taken as SiLU, which takes as long");
    return absl::OkStatus();
  }
  return CheckActivation(act, "silu", {"silu", "swish"});
}

absl::Status ReadBiases(const NodeRef& in, const Family& family, DecoderConfig& c, std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool all, in["use_bias"].AsBoolOr(family.bias));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool attention, in["attention_bias"].AsBoolOr(all));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool mlp, in["mlp_bias"].AsBoolOr(all));
  c.bias = attention && mlp;
  c.qkv_bias = attention || family.qkv_bias;
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
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, IntOr(in["num_key_value_heads"], family.kv_heads));
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
  MESHWRIGHT_RETURN_IF_ERROR(ReadWindow(in, training, notices));
  MESHWRIGHT_RETURN_IF_ERROR(ReadBiases(in, family, c, notices));
  c.max_positions = training.sequence;
  c.norm = family.layer_norm ? Norm::kLayerNorm : Norm::kRmsNorm;
  c.positions = Positions::kRotary;
  if (family.experts) MESHWRIGHT_RETURN_IF_ERROR(ReadExperts(in, c, notices));
  if (family.latent) MESHWRIGHT_RETURN_IF_ERROR(ReadLatent(in, c, notices));
  if (family.query_norms) notices.push_back("the norms of queries and keys are left out");
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool beside, in["use_parallel_residual"].AsBoolOr(family.side_by_side));
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
        absl::StrCat("found ", QuoteForMessage(model_type), ", wanted one of ", ListNames(names),
                     "; a decoder of another name but the same layers is written as `architecture: {decoder: ..}`")));
  }
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
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, in["tie_word_embeddings"].AsBoolOr(family->tied_by_default));
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
