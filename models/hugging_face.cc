#include "models/hugging_face.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/expert_layers.h"
#include "models/hugging_face_families.h"
#include "models/hugging_face_values.h"
#include "models/hybrid_layers.h"
#include "models/multimodal_config.h"
#include "models/window_layers.h"

namespace meshwright {
namespace {

using config_json::BoolOr;
using config_json::DoubleOr;
using config_json::Find;
using config_json::FirstGiven;
using config_json::Given;
using config_json::IntOr;
using config_json::kMost;
using config_json::NotModelled;
using config_json::SameOfAll;

constexpr absl::string_view kDropouts[] = {"attention_dropout", "residual_dropout", "embedding_dropout",
                                           "embed_dropout",     "attn_pdrop",       "embd_pdrop",
                                           "resid_pdrop",       "emb_pdrop",        "attn_config.attn_pdrop"};

constexpr absl::string_view kExperts[] = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
                                          "ffn_config.moe_num_experts"};

// Of some families the smaller models have none.
absl::StatusOr<bool> HasExperts(const NodeRef& in, const HuggingFaceFamily& family) {
  if (!family.experts) return false;
  if (family.dense_beside) return BoolOr(in["enable_moe_block"], false);
  if (family.hybrid == HybridKeys::kNone) return true;
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t number, IntOr(FirstGiven(in, kExperts), 0, 0));
  return number > 0;
}

// Keys of other kinds of models, by which the family's own layers would cost something else.
absl::Status CheckNothingElse(const NodeRef& in, const HuggingFaceFamily& family) {
  const NodeRef experts = FirstGiven(in, kExperts);
  if (!family.experts && Given(experts)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t number, experts.AsInt(0, kMost));
    if (number > 1) return NotModelled(experts, absl::StrCat("experts of the model_type ", family.model_type));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool latent, BoolOr(in["use_mla"], true));
  if (!family.latent && latent && Given(in["kv_lora_rank"])) {
    return NotModelled(in["kv_lora_rank"], absl::StrCat("latent attention of the model_type ", family.model_type));
  }
  // Of the smaller Gemma 4, whose class has the first unless told otherwise.
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t of_layer, IntOr(in["hidden_size_per_layer_input"], family.layer_input, 0));
  if (of_layer > 0) return NotModelled(in["hidden_size_per_layer_input"], "an embedding in each layer");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t sharing, IntOr(in["num_kv_shared_layers"], 0, 0));
  if (sharing > 0) return NotModelled(in["num_kv_shared_layers"], "keys and values that layers share");
  if (in["use_bidirectional_attention"].text() == "all") {
    return NotModelled(in["use_bidirectional_attention"], "attention to tokens behind one's own");
  }
  if (family.picked == 0 && Given(in["index_topk"])) {
    return NotModelled(in["index_topk"], absl::StrCat("an indexer of the model_type ", family.model_type));
  }
  // Of MiniMax M3, whose decoder calls itself an M2.
  if (Given(in["sparse_attention_config"])) {
    return NotModelled(in["sparse_attention_config"], "attention to blocks that an indexer picks");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool bias, BoolOr(in["bias"], false));
  if (bias && family.bias_beside_inputs) return NotModelled(in["bias"], "a bias of all but queries and keys");
  // OPT's of 350 million parameters: norms behind the residual, embeddings of another width.
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool before, BoolOr(in["do_layer_norm_before"], true));
  if (!before) return NotModelled(in["do_layer_norm_before"], "a norm behind the residual");
  for (const absl::string_view key : {"is_encoder_decoder", "add_cross_attention"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool other, BoolOr(in[key], false));
    if (other) return NotModelled(in[key], "attention to another sequence");
  }
  return absl::OkStatus();
}

// DeepSeek Sparse Attention ("DeepSeek-V3.2", section 2.1): each token attends to those that an indexer picks.
absl::Status ReadIndexer(const NodeRef& in, const HuggingFaceFamily& family, const Training& training,
                         std::vector<std::string>& notices) {
  if (family.picked == 0) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t picked, IntOr(in["index_topk"], family.picked, 1));
  notices.push_back(
      training.sequence <= picked
          ? absl::StrCat("the indexer of attention is left out: of ", training.sequence, " tokens it picks all")
          : absl::StrCat("the indexer of attention is left out, and attention to the ", picked,
                         " tokens that it picks is taken as attention over all ", training.sequence));
  return absl::OkStatus();
}

// Positions of long contexts are other angles of the same operators.
void NoteRopeScaling(const NodeRef& in, std::vector<std::string>& notices) {
  for (const absl::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!in[key].is_map()) continue;
    const NodeRef type = in[key][in[key]["rope_type"].present() ? "rope_type" : "type"];
    // Multimodal models' turn by three numbers a token, which are the same in text.
    if (!type.is_scalar() || type.text() == "default" || type.text() == "mrope") continue;
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

absl::StatusOr<double> ReadRopeTheta(const NodeRef& in, const HuggingFaceFamily& family) {
  const NodeRef together = RopeParameters(in);
  for (const NodeRef& theta : {together.is_map() ? together["rope_theta"] : in["rope_theta"], in["rope_theta"],
                               in["rotary_emb_base"], in["attn_config"]["rope_theta"]}) {
    if (theta.is_list() && theta.size() > 0) return theta.children()[0].AsDouble(1);  // one for each layer
    if (Given(theta)) return theta.AsDouble(1);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const double ratio, DoubleOr(in["rope_ratio"], 1, 1, 1e9));  // ChatGLM's
  return family.rope_theta * ratio;
}

// Of each head, how much is turned.
absl::StatusOr<double> ReadRotaryFactor(const NodeRef& in, const HuggingFaceFamily& family, int64_t head_dim) {
  const NodeRef together = RopeParameters(in);
  for (const NodeRef& key : {together.is_map() ? together["partial_rotary_factor"] : in["partial_rotary_factor"],
                             in["partial_rotary_factor"], in["rotary_pct"]}) {
    if (Given(key)) return key.AsDouble(0, 1);
  }
  if (!Given(in["rotary_dim"])) return family.rotary_share;
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t turned, in["rotary_dim"].AsInt(2, head_dim));
  return static_cast<double>(turned) / static_cast<double>(head_dim);
}

// Rows of a learned table.
absl::StatusOr<int64_t> ReadPositions(const NodeRef& in, const HuggingFaceFamily& family, int64_t sequence) {
  if (family.positions != Positions::kLearned) return sequence;
  const NodeRef positions = FirstGiven(in, {"max_position_embeddings", "n_positions", "n_ctx"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t most, IntOr(positions, sequence));
  if (most >= sequence) return most + family.more_positions;
  return positions.Error(absl::StrCat(most), absl::StrCat("at least the sequence of ", sequence),
                         absl::StrCat("plan with a sequence of ", most, " at most"));
}

// The width of what each token passes through beside the experts that it chooses, as it stands or counted in these.
absl::StatusOr<int64_t> ReadSharedExpert(const NodeRef& in, const DecoderConfig& c) {
  const NodeRef width = FirstGiven(in, {"shared_expert_intermediate_size", "shared_intermediate_size",
                                        "moe_shared_expert_intermediate_size", "share_expert_dim"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t wide, IntOr(width, 0, 0));
  if (wide > 0) return wide;
  const NodeRef count = FirstGiven(in, {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t shared, IntOr(count, 0, 0));
  return shared * c.ffn;
}

absl::Status ReadExperts(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, FirstGiven(in, kExperts).AsInt(2, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const NodeRef chosen,
      SameOfAll(FirstGiven(in, {"num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k",
                                "top_k_experts", "ffn_config.moe_top_k"})));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, chosen.AsInt(1, 1 << 16));
  if (c.bias) return NotModelled(in["mlp_bias"], "a bias of experts");
  MESHWRIGHT_RETURN_IF_ERROR(ReadExpertLayers(in, family.dense_layers, c));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, ReadSharedExpert(in, c));
  if (family.shared_expert) c.shared_expert_ffn = c.ffn;
  if (family.dense_beside) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, in["intermediate_size"].AsInt(1, kMost));
  }
  c.shared_expert_gate = family.gates_shared_expert && c.shared_expert_ffn > 0;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.expert_hidden,
                              IntOr(FirstGiven(in, {"moe_latent_size", "routed_expert_hidden_size"}), 0, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups, IntOr(FirstGiven(in, {"n_group", "num_expert_group"}), 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups_per_token, IntOr(in["topk_group"], 1));
  return absl::OkStatus();
}

absl::Status ReadLatent(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c,
                        std::vector<std::string>& notices) {
  c.kv_heads = c.heads;
  c.rotary_factor = 1;  // what is turned has a size of its own; Mistral 4's file says the share of both together
  MESHWRIGHT_ASSIGN_OR_RETURN(c.q_lora_rank, IntOr(in["q_lora_rank"], 0, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_lora_rank, in["kv_lora_rank"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, in["qk_nope_head_dim"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_head_dim, in["qk_rope_head_dim"].AsInt(2, kMost));
  const NodeRef value = in["v_head_dim"];
  c.value_head_dim = c.hidden / c.heads;
  if (Given(value) || !family.plain_values) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.value_head_dim, value.AsInt(1, kMost));
  }
  if (c.qkv_bias) notices.push_back("the biases of attention are left out");
  c.qkv_bias = false;
  return absl::OkStatus();
}

absl::Status ReadKinds(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c,
                       std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool experts, HasExperts(in, family));
  if (experts) MESHWRIGHT_RETURN_IF_ERROR(ReadExperts(in, family, c));
  MESHWRIGHT_RETURN_IF_ERROR(ReadHybridLayers(in, family.hybrid, c));
  if (family.latent) MESHWRIGHT_RETURN_IF_ERROR(ReadLatent(in, family, c, notices));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const int64_t next,
      IntOr(FirstGiven(in, {"num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"}), 0, 0));
  c.mtp_layers = next;
  if (next > 0) {
    notices.push_back(absl::StrCat(next,
                                   next > 1 ? " layers that predict tokens after the next are"
                                            : " layer that predicts the token after the next is",
                                   " trained, too (mtp_layers), as by Megatron-Bridge; transformers leaves that out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ReadEpsilon(const NodeRef& in, const HuggingFaceFamily& family) {
  const NodeRef epsilon = FirstGiven(
      in, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps"});
  return DoubleOr(epsilon, family.layer_norm ? 1e-5 : 1e-6, 0, 1);
}

absl::StatusOr<Activation> ReadActivation(const NodeRef& in, const HuggingFaceFamily& family,
                                          std::vector<std::string>& notices) {
  struct Row {
    absl::string_view name;
    Activation plain, of_gate;
  };
  // A name that only gates have, or only what has none: the same twice.
  constexpr Activation kSilu = Activation::kSwiglu;
  constexpr absl::string_view kXielu = "xielu";  // Apertus's
  constexpr Row kRows[] = {
      {"gelu", Activation::kGelu, Activation::kGeglu},
      {"gelu_new", Activation::kGelu, Activation::kGeglu},
      {"gelu_pytorch_tanh", Activation::kGelu, Activation::kGeglu},
      {"gelu_fast", Activation::kGelu, Activation::kGeglu},
      {"relu", Activation::kRelu, Activation::kRelu},
      {"relu2", Activation::kSquaredRelu, Activation::kSquaredRelu},
      {"silu", kSilu, kSilu},
      {"swish", kSilu, kSilu},
      {"situ", kSilu, kSilu},  // Kimi K3's, whose halves saturate
      {kXielu, Activation::kSquaredRelu, Activation::kSquaredRelu},
  };
  const NodeRef act = FirstGiven(in, {"hidden_activation", "hidden_act", "activation_function", "activation",
                                      "mlp_hidden_act", "ffn_config.ffn_act_fn.name"});
  if (!Given(act)) return family.activation;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, act.AsString());
  const bool gated = IsGated(family.activation);
  if (name == kXielu) notices.push_back("the activation xIELU is taken as a squared ReLU");
  for (const Row& row : kRows) {
    const Activation found = gated ? row.of_gate : row.plain;
    if (row.name == name && IsGated(found) == gated) return found;
  }
  return NotModelled(act, absl::StrCat("the activation ", QuoteForMessage(name), gated ? " of a gate" : ""));
}

absl::Status ReadBiases(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c,
                        std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool none, BoolOr(in["no_bias"], !family.bias));  // MPT's
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool all,
                              BoolOr(FirstGiven(in, {"use_bias", "enable_bias", "add_bias_linear"}), !none));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool attention, BoolOr(FirstGiven(in, {"attention_bias", "bias"}), all));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool inputs, BoolOr(FirstGiven(in, {"use_qkv_bias", "qkv_bias", "add_qkv_bias"}),
                                                        attention || family.qkv_bias));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool mlp, BoolOr(in["mlp_bias"], all));
  c.bias = attention && mlp;
  c.qkv_bias = inputs;
  if (mlp && !attention) return NotModelled(in["mlp_bias"], "a bias in one half of the layers only");
  if (attention && !mlp && !family.qkv_bias) notices.push_back("the bias of attention's output is left out");
  return absl::OkStatus();
}

absl::Status ReadKeyHeads(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool grouped, BoolOr(in["multi_query_attention"], false));  // ChatGLM's
  const NodeRef kv_heads = grouped ? in["multi_query_group_num"]
                                   : FirstGiven(in, {"num_key_value_heads", "num_kv_heads", "n_head_kv",
                                                     "num_attention_groups", "attn_config.kv_n_heads"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool newer, BoolOr(in["new_decoder_architecture"], false));
  MESHWRIGHT_ASSIGN_OR_RETURN(bool one, BoolOr(in["multi_query"], family.one_key));
  if (newer) one = false;
  const int64_t fallback = kv_heads.is_null() || family.kv_heads == 0 ? c.heads : family.kv_heads;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, IntOr(kv_heads, fallback));
  if (one) c.kv_heads = 1;
  return absl::OkStatus();
}

// Widths of a layer, by the names that families have for them.
absl::Status ReadSizes(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden,
                              FirstGiven(in, {"hidden_size", "n_embd", "n_embed", "d_model"}).AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, LayersOfPattern(in, family.hybrid));
  const NodeRef layers = FirstGiven(in, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  if (c.layers == 0 || Given(layers)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t said, layers.AsInt(1, kMostLayers));
    if (c.layers > 0 && said != c.layers) {
      return layers.Error(absl::StrCat(said), absl::StrCat(c.layers, ", as the pattern of layers has"));
    }
    c.layers = said;
  }
  const NodeRef heads = FirstGiven(in, {"num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"});
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, family.heads > 0 ? IntOr(heads, family.heads) : heads.AsInt(1, kMost));
  MESHWRIGHT_RETURN_IF_ERROR(ReadKeyHeads(in, family, c));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, IntOr(FirstGiven(in, {"head_dim", "kv_channels"}), family.head_dim));
  if (family.value_head_dim > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.value_head_dim, IntOr(in["v_head_dim"], family.value_head_dim));
    if (c.value_head_dim == c.head_dim) c.value_head_dim = 0;
  }
  if (c.head_dim == 0 && !family.latent && c.hidden % c.heads != 0) {
    return heads.Error(absl::StrCat(c.heads), absl::StrCat("a divisor of the hidden size, ", c.hidden));
  }
  if (c.head_dim == 0) c.head_dim = c.hidden / c.heads;
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool experts, HasExperts(in, family));
  NodeRef ffn =
      FirstGiven(in, {"intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "ffn_config.ffn_hidden_size"});
  if (experts && Given(in["moe_intermediate_size"])) {
    MESHWRIGHT_ASSIGN_OR_RETURN(ffn, SameOfAll(in["moe_intermediate_size"]));
  }
  // Granite 4's without experts have what stands beside experts otherwise.
  if (family.experts && !experts && Given(in["shared_intermediate_size"])) ffn = in["shared_intermediate_size"];
  // Those without a gate are usually, and unless told so, four times as wide.
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t times, IntOr(in["expansion_ratio"], 4));
  const bool gated = IsGated(family.activation);
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, gated ? ffn.AsInt(1, kMost) : IntOr(ffn, times * c.hidden));
  if (family.ffn_of_both) c.ffn = (c.ffn + 1) / 2;
  const NodeRef vocab = FirstGiven(in, {"vocab_size", "padded_vocab_size"});
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, family.vocab > 0 ? IntOr(vocab, family.vocab, 2) : vocab.AsInt(2, kMost));
  c.vocab_multiple = DefaultVocabMultiple(c.vocab);
  return absl::OkStatus();
}

// Falcon's, which says in several keys how it is built (modeling_falcon.py).
absl::Status ReadFalcon(const NodeRef& in, DecoderConfig& c, std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool with_distances, BoolOr(in["alibi"], false));
  if (with_distances) {
    c.positions = Positions::kNone;
    notices.push_back("what is added to scores by distance (ALiBi) is left out");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool newer, BoolOr(in["new_decoder_architecture"], false));
  if (!newer) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t norms, IntOr(in["num_ln_in_parallel_attn"], 2));
  c.layer_form = norms == 1 ? LayerForm::kParallelOneNorm : LayerForm::kParallel;
  return absl::OkStatus();
}

absl::StatusOr<DecoderConfig> ReadFamily(const NodeRef& in, const Training& training, const HuggingFaceFamily& family,
                                         std::vector<std::string>& notices) {
  DecoderConfig c;
  MESHWRIGHT_RETURN_IF_ERROR(ReadSizes(in, family, c));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, ReadEpsilon(in, family));
  c.positions = family.positions;
  // Of Granite 4 few have, of OLMo Hybrid those whose file has a base.
  if (in["position_embedding_type"].text() == "rope" ||
      (family.hybrid == HybridKeys::kOlmo && Given(RopeParameters(in)["rope_theta"]))) {
    c.positions = Positions::kRotary;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.max_positions, ReadPositions(in, family, training.sequence));
  if (c.positions == Positions::kRotary) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, ReadRopeTheta(in, family));
    NoteRopeScaling(in, notices);
    MESHWRIGHT_ASSIGN_OR_RETURN(c.rotary_factor, ReadRotaryFactor(in, family, c.head_dim));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.activation, ReadActivation(in, family, notices));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      c.attention_gate, BoolOr(FirstGiven(in, {"attn_output_gate", "mla_use_output_gate"}), family.gates_attention));
  MESHWRIGHT_RETURN_IF_ERROR(ReadBiases(in, family, c, notices));
  c.norm = family.layer_norm ? Norm::kLayerNorm : Norm::kRmsNorm;
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool both, BoolOr(in["use_post_norm"], false));  // HyperCLOVA X's
  c.norm_places = both ? NormPlaces::kBoth : family.norm_places;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.qk_norm, BoolOr(FirstGiven(in, {"use_qk_norm", "qk_layernorm"}), family.query_norms));
  if (c.qk_norm && c.norm == Norm::kLayerNorm) {
    notices.push_back("norms of queries and keys, which are LayerNorm, are taken as RMSNorm");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool beside,
                              BoolOr(FirstGiven(in, {"use_parallel_residual", "parallel_attn"}), family.side_by_side));
  if (beside) c.layer_form = family.side_form;
  MESHWRIGHT_RETURN_IF_ERROR(ReadKinds(in, family, c, notices));
  if (family.hybrid == HybridKeys::kNone) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadWindow(in, family, training, c, notices));
    MESHWRIGHT_RETURN_IF_ERROR(ReadHeadsByKind(in, family, c, notices));
  }
  MESHWRIGHT_RETURN_IF_ERROR(ReadIndexer(in, family, training, notices));
  if (in["sparse_config"].is_map()) {
    notices.push_back("attention to blocks of tokens (sparse_config) is taken as attention over all of the sequence");
  }
  if (Given(in["attn_res_block_size"])) {
    notices.push_back(
        "attention to what earlier blocks of layers made (attn_res_block_size) is left out: its authors give it 4 % of "
        "the time");
  }
  if (family.model_type == "falcon") MESHWRIGHT_RETURN_IF_ERROR(ReadFalcon(in, c, notices));
  if (!family.left_out.empty()) notices.push_back(std::string(family.left_out));
  return c;
}

}  // namespace

absl::StatusOr<DecoderConfig> ReadHuggingFace(const NodeRef& root, const Training& training,
                                              std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const DecoderMap map, FindDecoder(root, notices));
  const NodeRef& in = map.in;
  MESHWRIGHT_RETURN_IF_ERROR(CheckNothingElse(in, *map.family));
  MESHWRIGHT_ASSIGN_OR_RETURN(DecoderConfig c, ReadFamily(in, training, *map.family, notices));
  c.qkv_bias = c.qkv_bias || map.family->qkv_bias || c.bias;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, ReadTied(map, notices));
  MESHWRIGHT_RETURN_IF_ERROR(in.Locate(CheckDecoder(c, training)));
  if (in["quantization_config"].is_map() || root["quantization_config"].is_map()) {
    notices.push_back("quantization_config is left out: all weights are trained, in the type of the training");
  }
  for (const absl::string_view key : kDropouts) {
    const NodeRef given = Find(in, key);
    MESHWRIGHT_ASSIGN_OR_RETURN(const double share, DoubleOr(given, 0, 0, 1));
    if (share > 0) notices.push_back(absl::StrCat(key, " of ", given.text(), " is left out: decoders have no dropout"));
  }
  return c;
}

NodeRef CheckpointType(const NodeRef& root) {
  const NodeRef decoder = DecoderMapOf(root);
  // Transformers 5 has the shorter name.
  for (const NodeRef& type : {root["dtype"], root["torch_dtype"], decoder["dtype"]}) {
    if (Given(type)) return type;
  }
  return decoder["torch_dtype"];
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
