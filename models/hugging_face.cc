#include "models/hugging_face.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;

// The keys of a family, and what its class says where a key is missing.
struct Family {
  absl::string_view model_type;
  bool tied_by_default;
  bool qkv_bias;  // of q, k and v, whatever the file says
  bool experts;
};
constexpr Family kFamilies[] = {
    {"gpt2", true, true, false},     {"llama", false, false, false}, {"mistral", false, false, false},
    {"mixtral", false, false, true}, {"qwen2", false, true, false},
};

constexpr absl::string_view kDropouts[] = {"attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"};

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
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, in["layer_norm_epsilon"].AsDoubleOr(1e-5, 0, 1));
  MESHWRIGHT_RETURN_IF_ERROR(
      CheckActivation(in["activation_function"], "gelu_new", {"gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"}));
  c.activation = Activation::kGelu;
  c.norm = Norm::kLayerNorm;
  c.positions = Positions::kLearned;
  c.bias = true;
  return c;
}

// Attention over all of the sequence in every layer is what we model.
absl::Status CheckAttention(const NodeRef& in, const Training& training, bool window_by_default) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> types, in["layer_types"].AsListIfPresent());
  for (const NodeRef& type : types) {
    if (type.text() != "full_attention") return NotModelled(type, QuoteForMessage(type.text()));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool used, in["use_sliding_window"].AsBoolOr(window_by_default));
  const NodeRef window = in["sliding_window"];
  if (!used || !Given(window)) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t length, window.AsInt(1));
  if (length >= training.sequence) return absl::OkStatus();
  return NotModelled(window, absl::StrCat("an attention window of ", length, " in a sequence of ", training.sequence));
}

absl::StatusOr<double> ReadRopeTheta(const NodeRef& in) {
  // Transformers 5 moved it.
  const NodeRef nested = in["rope_parameters"].is_map() ? in["rope_parameters"]["rope_theta"] : in["rope_theta"];
  if (!Given(nested)) return 10000.0;
  return nested.AsDouble(1);
}

absl::StatusOr<DecoderConfig> ReadLlamaKind(const NodeRef& in, const Training& training, const Family& family) {
  DecoderConfig c;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, in["hidden_size"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, in["num_hidden_layers"].AsInt(1, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, in["num_attention_heads"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, IntOr(in["num_key_value_heads"], c.heads));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, IntOr(in["head_dim"], 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, in["intermediate_size"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, in["vocab_size"].AsInt(2, kMost));
  c.vocab_multiple = DefaultVocabMultiple(c.vocab);
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, in["rms_norm_eps"].AsDoubleOr(1e-6, 0, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, ReadRopeTheta(in));
  MESHWRIGHT_RETURN_IF_ERROR(CheckActivation(in["hidden_act"], "silu", {"silu", "swish"}));
  MESHWRIGHT_RETURN_IF_ERROR(CheckAttention(in, training, family.model_type == "mistral"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool attention_bias, in["attention_bias"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool mlp_bias, in["mlp_bias"].AsBoolOr(false));
  if (attention_bias != mlp_bias) {
    return NotModelled(in[attention_bias ? "attention_bias" : "mlp_bias"], "a bias in one half of the layers only");
  }
  c.bias = attention_bias;
  c.max_positions = training.sequence;
  c.activation = Activation::kSwiglu;
  c.norm = Norm::kRmsNorm;
  c.positions = Positions::kRotary;
  if (family.experts) {
    const NodeRef experts = in[in["num_local_experts"].present() ? "num_local_experts" : "num_experts"];
    MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, experts.AsInt(2, 1 << 16));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, in["num_experts_per_tok"].AsInt(1, 1 << 16));
    if (c.bias) return NotModelled(in["mlp_bias"], "a bias of experts");
  }
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
  if (family == nullptr) {
    return in["model_type"].Locate(absl::UnimplementedError(
        absl::StrCat("found ", QuoteForMessage(model_type), ", wanted one of ", ListNames(names),
                     "; a decoder of another name but the same layers is written as `architecture: {decoder: ..}`")));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(DecoderConfig c,
                              model_type == "gpt2" ? ReadGpt2(in, training) : ReadLlamaKind(in, training, *family));
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) {
    if (c.hidden % c.heads != 0) return in.Error(absl::StrCat(c.heads, " heads"), "a divisor of the hidden size");
    c.head_dim = c.hidden / c.heads;
  }
  c.qkv_bias = family->qkv_bias || c.bias;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, in["tie_word_embeddings"].AsBoolOr(family->tied_by_default));
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(CheckDecoder(c, training)));
  for (const absl::string_view key : kDropouts) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const double share, DoubleOr(in[key], 0, 0, 1));
    if (share > 0)
      notices.push_back(absl::StrCat(key, " of ", in[key].text(), " is left out: decoders have no dropout"));
  }
  return c;
}

}  // namespace meshwright
