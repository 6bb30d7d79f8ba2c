#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/decoder.h"

namespace meshwright {
namespace {

constexpr double kMostParameters = 1125899906842624.0;  // 2^50
constexpr double kMostElements = 72057594037927936.0;   // 2^56, of one tensor
constexpr int64_t kMostSize = int64_t{1} << 24;
constexpr int64_t kMostMtpLayers = 16;  // each is written out in the graph; published models have up to three

// What is wrong with a size, and whose.
struct Complaint {
  absl::string_view field;
  std::string found, wanted;
};

double NumParameters(const DecoderConfig& c) {
  const double hidden = static_cast<double>(c.hidden);
  const double ffn_matrices = IsGated(c.activation) ? 3 : 2;
  const double experts = static_cast<double>(c.experts > 0 ? c.experts : 1);
  const double of_expert = static_cast<double>(c.expert_hidden > 0 ? c.expert_hidden : c.hidden);
  const double mlp = ffn_matrices * (of_expert * experts * static_cast<double>(c.ffn) +
                                     hidden * static_cast<double>(c.shared_expert_ffn)) +
                     2 * hidden * static_cast<double>(c.expert_hidden);
  const LayerCounts layers = CountLayers(c);
  const double with_experts = static_cast<double>(ExpertLayers(c));
  const double without = c.experts > 0 ? static_cast<double>(layers.dense) : 0;
  const double next = static_cast<double>(c.mtp_layers) * (AttentionParameters(c) + mlp + 2 * hidden * hidden);
  return next + static_cast<double>(layers.attention - layers.windows) * AttentionParameters(c) +
         static_cast<double>(layers.windows) * AttentionParameters(c, c.sliding_window) +
         static_cast<double>(layers.linear) * LinearAttentionParameters(c) + with_experts * mlp +
         without * ffn_matrices * hidden * static_cast<double>(c.dense_ffn) +
         2 * hidden * static_cast<double>(c.vocab + c.max_positions);
}

void ComplainOfLatent(const DecoderConfig& c, const Training& t,
                      absl::FunctionRef<void(absl::string_view, int64_t, std::string)> complain) {
  if (c.kv_lora_rank == 0) return;
  if (c.kv_heads != c.heads) {
    complain("kv_heads", c.kv_heads,
             absl::StrCat("heads = ", c.heads,
                          ", each of which has a key of its own where "
                          "there is a kv_lora_rank"));
  }
  if (c.positions != Positions::kRotary) {
    complain("kv_lora_rank", c.kv_lora_rank, "positions: rotary beside it");
  } else if (c.rope_head_dim < 2 || c.rope_head_dim % 2 != 0) {
    complain("rope_head_dim", c.rope_head_dim, "an even number above 0");
  }
  if (c.bias || c.qkv_bias) complain("kv_lora_rank", c.kv_lora_rank, "bias and qkv_bias: false beside it");
  if (c.qk_norm) complain("kv_lora_rank", c.kv_lora_rank, "qk_norm: false beside it");
  if (c.rotary_factor < 1) complain("kv_lora_rank", c.kv_lora_rank, "rotary_factor: 1 beside it");
  if (t.lora.has_value() && t.lora->qkv) {
    complain("kv_lora_rank", c.kv_lora_rank, "adapters (training.lora.targets) of proj, mlp1 and mlp2 alone");
  }
}

void ComplainOfLinear(const DecoderConfig& c,
                      absl::FunctionRef<void(absl::string_view, int64_t, std::string)> complain) {
  const LinearAttentionConfig& l = c.linear_attention;
  if (l.value_heads == 0) return;
  if (c.sliding_window > 0) complain("sliding_window", c.sliding_window, "none beside linear_attention");
}

void ComplainOfPattern(const DecoderConfig& c, std::vector<Complaint>& found) {
  const std::string& pattern = c.layer_pattern;
  if (pattern.empty()) return;
  const auto complain = [&found](absl::string_view field, std::string value, std::string wanted) {
    found.push_back({field, std::move(value), std::move(wanted)});
  };
  const auto has = [&pattern](char letter) { return absl::StrContains(pattern, letter); };
  if (const size_t at = pattern.find_first_not_of("M*-E"); at != std::string::npos) {
    complain("layer_pattern", absl::StrCat("\"", pattern.substr(at, 1), "\" in place ", at + 1),
             "letters M (linear_attention), * (attention), - (feed-forward) and E (experts)");
  } else if (has('M') && c.linear_attention.value_heads == 0) {
    complain("layer_pattern", "M, linear attention", "`linear_attention` beside it");
  } else if (has('E') && c.experts == 0) {
    complain("layer_pattern", "E, experts", "`experts` beside it");
  } else if (!has('-') && !has('E')) {
    complain("layer_pattern", pattern, "a layer with a feed-forward layer or experts");
  }
  const std::pair<absl::string_view, bool> beside[] = {{"full_attention_every", c.full_attention_every > 0},
                                                       {"full_attention_layers", !c.full_attention_layers.empty()},
                                                       {"sliding_window", c.sliding_window > 0},
                                                       {"dense_layers", c.dense_layers > 0},
                                                       {"expert_every", c.expert_every > 1},
                                                       {"layer_form", c.layer_form != LayerForm::kSerial}};
  for (const auto& [field, given] : beside) {
    if (given) complain(field, "it beside layer_pattern", "the pattern alone, which says what each layer is");
  }
}

void ComplainOfWindows(const DecoderConfig& c,
                       absl::FunctionRef<void(absl::string_view, int64_t, std::string)> complain) {
  const int64_t every = c.full_attention_every;
  for (size_t i = 0; i < c.full_attention_layers.size(); ++i) {
    const int64_t layer = c.full_attention_layers[i];
    if (layer < 0 || layer >= c.layers || (i > 0 && layer <= c.full_attention_layers[i - 1])) {
      complain("full_attention_layers", layer,
               absl::StrCat("numbers of layers from 0 to ", c.layers - 1, ", in order"));
      break;
    }
  }
  if (every == 0) return;
  if (!c.full_attention_layers.empty()) {
    complain("full_attention_every", every, "either it or `full_attention_layers`");
  }
  if (every == 1 || every > c.layers) {
    complain("full_attention_every", every, absl::StrCat("from 2 to layers = ", c.layers));
  } else if (c.full_attention_at > every) {
    complain("full_attention_at", c.full_attention_at, absl::StrCat("at most full_attention_every = ", every));
  }
}

void ComplainOfHeads(const DecoderConfig& c, std::vector<Complaint>& found) {
  constexpr absl::string_view kFull = "full_attention_heads";
  const AttentionHeads& full = c.full_attention_heads;
  const auto check = [&](const AttentionHeads& sizes, bool others) {
    const auto complain = [&](absl::string_view field, int64_t value, std::string wanted) {
      found.push_back({others ? kFull : field, others ? absl::StrCat(field, " of ", value) : absl::StrCat(value),
                       std::move(wanted)});
    };
    if (sizes.heads % sizes.kv_heads != 0) {
      complain("kv_heads", sizes.kv_heads, absl::StrCat("a divisor of heads = ", sizes.heads));
    }
    if (c.positions == Positions::kRotary && c.kv_lora_rank == 0 && sizes.head_dim % 2 != 0) {
      complain("head_dim", sizes.head_dim, "an even number, since positions are rotary");
    }
    if (HasNarrowValues(c) && c.value_head_dim >= sizes.head_dim) {
      complain("head_dim", sizes.head_dim, absl::StrCat("more than value_head_dim = ", c.value_head_dim));
    }
  };
  if (HasNarrowValues(c) && c.positions == Positions::kRotary && c.value_head_dim % 2 != 0) {
    found.push_back({"value_head_dim", absl::StrCat(c.value_head_dim), "an even number, since positions are rotary"});
  }
  if (HasNarrowValues(c) && c.qk_norm) {
    found.push_back({"value_head_dim", absl::StrCat(c.value_head_dim), "qk_norm: false beside it"});
  }
  check({c.heads, c.kv_heads, c.head_dim}, /*others=*/false);
  if (full.heads == 0) return;
  check(full, /*others=*/true);
  if (c.sliding_window == 0 || !HasFullAttention(c)) {
    found.push_back(
        {kFull, "it where all attention is alike", "`sliding_window` and `full_attention_every` beside it"});
  }
  if (c.kv_lora_rank > 0) found.push_back({kFull, "it beside latent attention", "no `kv_lora_rank`"});
}

std::vector<Complaint> Complaints(const DecoderConfig& c, const Training& t) {
  std::vector<Complaint> found;
  const auto complain = [&](absl::string_view field, int64_t value, std::string wanted) {
    found.push_back({field, absl::StrCat(value), std::move(wanted)});
  };
  if (c.layers > kMostLayers) complain("layers", c.layers, absl::StrCat("at most ", kMostLayers));
  ComplainOfHeads(c, found);
  const int64_t narrowest =
      c.full_attention_heads.heads > 0 ? std::min(c.head_dim, c.full_attention_heads.head_dim) : c.head_dim;
  if (c.rotary_factor < 1 && (c.positions != Positions::kRotary || TurnedElements(c, narrowest) < 2)) {
    found.push_back({"rotary_factor", absl::StrCat(c.rotary_factor),
                     "positions: rotary, and a share that is at least two elements of a head"});
  }
  if (c.norm_places != NormPlaces::kBefore && c.layer_form != LayerForm::kSerial) {
    found.push_back({"norm_places", std::string(kNormPlacesNames[static_cast<size_t>(c.norm_places)]),
                     "before, since layer_form is not serial"});
  }
  if (c.experts > 0 && c.layer_form != LayerForm::kSerial) {
    found.push_back({"layer_form", std::string(kLayerFormNames[static_cast<size_t>(c.layer_form)]),
                     "serial, since there are experts"});
  }
  ComplainOfLatent(c, t, complain);
  if (c.positions == Positions::kLearned && c.max_positions < t.sequence) {
    complain("max_positions", c.max_positions, absl::StrCat("at least training.sequence = ", t.sequence));
  }
  if (c.experts > 0 && c.experts_per_token > c.experts) {
    complain("experts_per_token", c.experts_per_token, absl::StrCat("at most experts = ", c.experts));
  }
  if (c.experts > 0 && c.experts % c.choice_groups != 0) {
    complain("choice_groups", c.choice_groups, absl::StrCat("a divisor of experts = ", c.experts));
  } else if (c.choice_groups_per_token > c.choice_groups) {
    complain("choice_groups_per_token", c.choice_groups_per_token,
             absl::StrCat("at most choice_groups = ", c.choice_groups));
  } else if (c.experts > 0 && c.experts_per_token > c.experts / c.choice_groups * c.choice_groups_per_token) {
    complain("choice_groups_per_token", c.choice_groups_per_token,
             absl::StrCat("groups with at least experts_per_token = ", c.experts_per_token, " experts"));
  }
  if (c.mtp_layers > kMostMtpLayers) complain("mtp_layers", c.mtp_layers, absl::StrCat("at most ", kMostMtpLayers));
  if (c.mtp_layers > 0 && c.classes > 0) {
    complain("mtp_layers", c.mtp_layers, "0, since there are classes in place of words to predict");
  }
  ComplainOfPattern(c, found);
  ComplainOfLinear(c, complain);
  ComplainOfWindows(c, complain);
  if (c.dense_layers >= c.layers) {
    complain("dense_layers", c.dense_layers, absl::StrCat("fewer than layers = ", c.layers));
  } else if ((c.layers - c.dense_layers) % c.expert_every != 0) {
    complain("expert_every", c.expert_every,
             absl::StrCat("a divisor of the ", c.layers - c.dense_layers,
                          c.dense_layers > 0 ? " layers behind the first dense ones" : " layers"));
  }
  // Of layers that fit together.
  if (found.empty() && NumParameters(c) > kMostParameters)
    complain("layers", c.layers, "a model of at most 2^50 parameters");
  const double tokens = static_cast<double>(t.batch) * static_cast<double>(t.sequence);
  const AttentionHeads& full = c.full_attention_heads;
  const double qkv =
      std::max(static_cast<double>(c.heads + 2 * c.kv_heads) * static_cast<double>(ScoreWidth(c) + ValueWidth(c)),
               static_cast<double>(full.heads + 2 * full.kv_heads) * 2 * static_cast<double>(full.head_dim));
  const double mlp = 2.0 * static_cast<double>(std::max({c.ffn, c.shared_expert_ffn, c.dense_ffn}));
  const LinearSizes linear = LinearSizesOf(c);
  const double in_proj = static_cast<double>(c.linear_attention.key_heads) *
                         static_cast<double>(linear.mixed + linear.values + linear.gates);
  double widest = std::max({static_cast<double>(std::max(c.vocab, c.classes)), mlp, qkv, in_proj});
  if (c.experts > 0) {  // slots of all experts, with some room for the rounding up of the capacity
    widest = std::max(
        widest, 2.0 * static_cast<double>(std::max(c.ffn, c.hidden)) *
                    (static_cast<double>(c.experts_per_token) * c.capacity_factor + static_cast<double>(c.experts)));
  }
  if (tokens * widest > kMostElements) {
    const bool classes = c.classes > c.vocab;
    complain(classes ? "classes" : "vocab", classes ? c.classes : c.vocab,
             "tensors of at most 2^56 elements; lower training.batch");
  }
  return found;
}

// `others` are those of the model's other layers.
absl::StatusOr<AttentionHeads> ReadAttentionHeads(const NodeRef& in, const AttentionHeads& others) {
  if (!in.present()) return AttentionHeads();
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"heads", "kv_heads", "head_dim"}));
  AttentionHeads sizes;
  MESHWRIGHT_ASSIGN_OR_RETURN(sizes.heads, in["heads"].AsIntOr(others.heads, 1, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(sizes.kv_heads, in["kv_heads"].AsIntOr(others.kv_heads, 1, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(sizes.head_dim, in["head_dim"].AsIntOr(others.head_dim, 1, kMostSize));
  return sizes;
}

absl::StatusOr<LinearAttentionConfig> ReadLinearAttention(const NodeRef& in) {
  constexpr int64_t kMost = int64_t{1} << 20;
  LinearAttentionConfig l;
  if (!in.present()) return l;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"form", "key_heads", "value_heads", "key_dim", "value_dim", "convolution",
                                           "convolution_bias", "decay_rank", "gate_rank"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.form, in["form"].AsEnumOr(l.form, kLinearFormNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads, in["value_heads"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_heads, in["key_heads"].AsIntOr(l.value_heads, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim, in["key_dim"].AsIntOr(128, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.value_dim, in["value_dim"].AsIntOr(l.key_dim, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution, in["convolution"].AsIntOr(4, 0, 1 << 10));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution_bias, in["convolution_bias"].AsBoolOr(false));
  const bool kimi = l.form == LinearForm::kKimiDelta;
  MESHWRIGHT_ASSIGN_OR_RETURN(l.decay_rank, in["decay_rank"].AsIntOr(kimi ? l.key_dim : 0, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.gate_rank, in["gate_rank"].AsIntOr(kimi ? l.key_dim : 0, 0, kMost));
  for (const absl::string_view field : {"decay_rank", "gate_rank"}) {
    if (!kimi && in[field].present()) return in[field].Error("it of another form", "`form: kimi_delta` beside it");
  }
  if (l.value_heads % l.key_heads != 0) {
    return in["key_heads"].Error(absl::StrCat(l.key_heads), absl::StrCat("a divisor of value_heads = ", l.value_heads));
  }
  return l;
}

constexpr absl::string_view kKeys[] = {"hidden",
                                       "layers",
                                       "layer_pattern",
                                       "heads",
                                       "kv_heads",
                                       "head_dim",
                                       "kv_lora_rank",
                                       "q_lora_rank",
                                       "rope_head_dim",
                                       "value_head_dim",
                                       "sliding_window",
                                       "full_attention_every",
                                       "full_attention_at",
                                       "full_attention_layers",
                                       "full_attention_heads",
                                       "linear_attention",
                                       "attention_gate",
                                       "ffn",
                                       "vocab",
                                       "vocab_multiple",
                                       "classes",
                                       "max_positions",
                                       "activation",
                                       "norm",
                                       "norm_places",
                                       "layer_form",
                                       "qk_norm",
                                       "positions",
                                       "rotary_factor",
                                       "tied_embeddings",
                                       "bias",
                                       "qkv_bias",
                                       "experts",
                                       "experts_per_token",
                                       "shared_expert_ffn",
                                       "shared_expert_gate",
                                       "expert_hidden",
                                       "dense_layers",
                                       "dense_ffn",
                                       "expert_every",
                                       "choice_groups",
                                       "choice_groups_per_token",
                                       "mtp_layers",
                                       "mtp_loss_weight",
                                       "capacity_factor",
                                       "rope_theta",
                                       "norm_epsilon"};

// How many layers there are, and of which kinds.
absl::Status ReadLayers(const NodeRef& in, DecoderConfig& c) {
  if (in["layer_pattern"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.layer_pattern, in["layer_pattern"].AsString());
    c.layers = static_cast<int64_t>(c.layer_pattern.size());
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t said, in["layers"].AsIntOr(c.layers, 1, kMostLayers));
    if (said != c.layers || c.layers == 0 || c.layers > kMostLayers) {
      return in["layer_pattern"].Error(absl::StrCat(c.layers, " letters"),
                                       absl::StrCat("one for each of ", said == c.layers ? "1 to " : "the ",
                                                    said == c.layers ? kMostLayers : said, " layers"));
    }
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, in["layers"].AsInt(1, kMostLayers));
  }
  return absl::OkStatus();
}

// Heads, windows, and what stands in place of attention.
absl::Status ReadMixers(const NodeRef& in, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, in["heads"].AsInt(1, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, in["kv_heads"].AsIntOr(c.heads, 1, kMostSize));
  if (!in["head_dim"].present() && c.hidden % c.heads != 0) {
    return in["heads"].Error(absl::StrCat(c.heads), absl::StrCat("a divisor of hidden = ", c.hidden),
                             "or write head_dim");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, in["head_dim"].AsIntOr(c.hidden / c.heads, 1, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_lora_rank, in["kv_lora_rank"].AsIntOr(0, 0, kMostSize));
  if (c.kv_lora_rank > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.q_lora_rank, in["q_lora_rank"].AsIntOr(0, 0, kMostSize));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_head_dim, in["rope_head_dim"].AsInt(2, kMostSize));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.value_head_dim, in["value_head_dim"].AsIntOr(0, 1, kMostSize));
  if (c.kv_lora_rank == 0 && c.value_head_dim == c.head_dim) c.value_head_dim = 0;
  for (const absl::string_view field : {"q_lora_rank", "rope_head_dim"}) {
    if (c.kv_lora_rank == 0 && in[field].present()) {
      return in[field].Error("it without latent attention", "`kv_lora_rank` beside it");
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.sliding_window, in["sliding_window"].AsIntOr(0, 1, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.full_attention_every, in["full_attention_every"].AsIntOr(0, 2, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.full_attention_at, in["full_attention_at"].AsIntOr(0, 1, kMostLayers));
  if (in["full_attention_layers"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.full_attention_layers, in["full_attention_layers"].AsInts(0, kMostLayers - 1));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.full_attention_heads, ReadAttentionHeads(in["full_attention_heads"], HeadsOf(c, 1)));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.linear_attention, ReadLinearAttention(in["linear_attention"]));
  if (c.sliding_window == 0 && c.linear_attention.value_heads == 0 && HasFullAttention(c)) {
    const absl::string_view field = c.full_attention_every > 0 ? "full_attention_every" : "full_attention_layers";
    return in[field].Error("it where all layers are alike", "`sliding_window` or `linear_attention` beside it");
  }
  if (c.full_attention_every == 0 && c.full_attention_at > 0) {
    return in["full_attention_at"].Error("it without full attention", "`full_attention_every` beside it");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.attention_gate, in["attention_gate"].AsBoolOr(false));
  return absl::OkStatus();
}

// Experts, and the feed-forward layers beside and between them.
absl::Status ReadExperts(const NodeRef& in, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, in["experts"].AsIntOr(0, 2, 1 << 16));
  if (c.experts > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, in["experts_per_token"].AsInt(1, 1 << 16));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, in["shared_expert_ffn"].AsIntOr(0, 0, 4 * kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_gate, in["shared_expert_gate"].AsBoolOr(false));
  if (c.shared_expert_gate && c.shared_expert_ffn == 0) {
    return in["shared_expert_gate"].Error("it without a shared expert", "`shared_expert_ffn` beside it");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.dense_layers, in["dense_layers"].AsIntOr(0, 0, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.expert_every, in["expert_every"].AsIntOr(1, 1, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.expert_hidden, in["expert_hidden"].AsIntOr(0, 1, kMostSize));
  const bool dense = c.dense_layers > 0 || c.expert_every > 1 || absl::StrContains(c.layer_pattern, '-');
  const int64_t of_token = c.experts_per_token * c.ffn + c.shared_expert_ffn;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.dense_ffn, in["dense_ffn"].AsIntOr(dense ? of_token : 0, 1, 4 * kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups, in["choice_groups"].AsIntOr(1, 1, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups_per_token, in["choice_groups_per_token"].AsIntOr(1, 1, 1 << 16));
  for (const absl::string_view field :
       {"experts_per_token", "shared_expert_ffn", "shared_expert_gate", "expert_hidden", "choice_groups",
        "choice_groups_per_token", "capacity_factor", "dense_layers", "dense_ffn", "expert_every"}) {
    if (c.experts == 0 && in[field].present()) return in[field].Error("it without experts", "`experts` beside it");
  }
  if (!dense && in["dense_ffn"].present()) {
    return in["dense_ffn"].Error("it without layers that have no experts",
                                 "`dense_layers` or `expert_every` beside it");
  }
  return absl::OkStatus();
}

}  // namespace

LinearSizes LinearSizesOf(const DecoderConfig& config) {
  const LinearAttentionConfig& l = config.linear_attention;
  if (l.value_heads == 0) return {};
  LinearSizes sizes;
  sizes.heads = l.value_heads / l.key_heads;
  sizes.values = sizes.heads * l.value_dim;
  sizes.mixed = 2 * l.key_dim + sizes.values;
  sizes.gates = l.form == LinearForm::kGatedDelta ? 2 * sizes.heads : sizes.heads;
  sizes.decays = l.form == LinearForm::kKimiDelta ? sizes.heads * l.key_dim : 0;
  return sizes;
}

int64_t TurnedElements(const DecoderConfig& config, int64_t head_dim) {
  constexpr double kRounding = 1e-6;  // of a factor that was made of a number of elements
  return static_cast<int64_t>(config.rotary_factor * static_cast<double>(head_dim) + kRounding) / 2 * 2;
}

int64_t LayersOfRun(const DecoderConfig& config) {
  return std::lcm(config.expert_every, std::max<int64_t>(1, config.full_attention_every));
}

int64_t DefaultVocabMultiple(int64_t vocab) { return vocab < 1024 ? 1 : 128; }

absl::StatusOr<DecoderConfig> ReadDecoder(const NodeRef& in, const Training& training) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(kKeys));
  DecoderConfig c;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, in["hidden"].AsInt(1, kMostSize));
  MESHWRIGHT_RETURN_IF_ERROR(ReadLayers(in, c));
  MESHWRIGHT_RETURN_IF_ERROR(ReadMixers(in, c));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, in["ffn"].AsIntOr(4 * c.hidden, 1, 4 * kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, in["vocab"].AsInt(2, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab_multiple,
                              in["vocab_multiple"].AsIntOr(DefaultVocabMultiple(c.vocab), 1, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.classes, in["classes"].AsIntOr(0, 2, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.activation, in["activation"].AsEnumOr(c.activation, kActivationNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm, in["norm"].AsEnumOr(c.norm, kNormNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_places, in["norm_places"].AsEnumOr(c.norm_places, kNormPlacesNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layer_form, in["layer_form"].AsEnumOr(c.layer_form, kLayerFormNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.qk_norm, in["qk_norm"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rotary_factor, in["rotary_factor"].AsDoubleOr(1, 0, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.positions, in["positions"].AsEnumOr(c.positions, kPositionsNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.max_positions, in["max_positions"].AsIntOr(training.sequence, 1, kMostSize));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, in["tied_embeddings"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.bias, in["bias"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.qkv_bias, in["qkv_bias"].AsBoolOr(c.bias));
  MESHWRIGHT_RETURN_IF_ERROR(ReadExperts(in, c));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.mtp_layers, in["mtp_layers"].AsIntOr(0, 0, kMostMtpLayers));
  if (c.mtp_layers == 0 && in["mtp_loss_weight"].present()) {
    return in["mtp_loss_weight"].Error("it without layers that predict further tokens", "`mtp_layers` beside it");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.mtp_loss_weight, in["mtp_loss_weight"].AsDoubleOr(c.mtp_loss_weight, 0, 100));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.capacity_factor, in["capacity_factor"].AsDoubleOr(c.capacity_factor, 0.01, 1024));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, in["rope_theta"].AsDoubleOr(c.rope_theta, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, in["norm_epsilon"].AsDoubleOr(c.norm_epsilon, 0, 1));
  if (c.experts > 0 && c.bias) return in["bias"].Error("true", "false, since there are experts");
  for (const Complaint& complaint : Complaints(c, training)) {
    return in[complaint.field].Error(complaint.found, complaint.wanted);
  }
  return c;
}

absl::Status CheckDecoder(const DecoderConfig& config, const Training& training) {
  for (const Complaint& complaint : Complaints(config, training)) {
    return WrongInput(absl::StrCat(complaint.field, " = ", complaint.found), complaint.wanted);
  }
  return absl::OkStatus();
}

double AttentionParameters(const DecoderConfig& config, int64_t window) {
  const AttentionHeads sizes = HeadsOf(config, window);
  const double hidden = static_cast<double>(config.hidden), heads = static_cast<double>(sizes.heads);
  if (config.kv_lora_rank == 0) {
    const double gate = config.attention_gate ? heads : 0, keys = static_cast<double>(sizes.kv_heads);
    const int64_t values = HasNarrowValues(config) ? config.value_head_dim : sizes.head_dim;
    return hidden * (heads + keys) * static_cast<double>(sizes.head_dim + values) +
           hidden * gate * static_cast<double>(values);
  }
  const double width = static_cast<double>(ScoreWidth(config)), value = static_cast<double>(ValueWidth(config));
  const double gate = config.attention_gate ? hidden * heads * value : 0;
  const double q = static_cast<double>(config.q_lora_rank), kv = static_cast<double>(config.kv_lora_rank);
  const double queries = q > 0 ? q * (hidden + heads * width) : hidden * heads * width;
  return gate + queries + hidden * (kv + static_cast<double>(config.rope_head_dim)) +
         kv * heads * (static_cast<double>(config.head_dim) + value) + heads * value * hidden;
}

double LinearAttentionParameters(const DecoderConfig& config) {
  if (config.linear_attention.value_heads == 0) return 0;
  const LinearSizes sizes = LinearSizesOf(config);
  const double hidden = static_cast<double>(config.hidden);
  const double groups = static_cast<double>(config.linear_attention.key_heads);
  const double convolution = static_cast<double>(sizes.mixed * config.linear_attention.convolution);
  const LinearAttentionConfig& l = config.linear_attention;
  const double values = static_cast<double>(sizes.values), narrow = static_cast<double>(l.gate_rank);
  const double gates = l.gate_rank > 0 ? narrow * (hidden / groups + values) : hidden * values;
  const double decays = static_cast<double>(l.decay_rank) * (hidden / groups + static_cast<double>(sizes.decays));
  return groups * (hidden * (static_cast<double>(sizes.mixed + sizes.gates) + values) + convolution + gates + decays);
}

int64_t IdleParameters(const DecoderConfig& config, const Training& training) {
  const int64_t wide = IsGated(config.activation) ? 2 : 1;  // matrices of the first product
  int64_t expert = (wide + 1) * (config.expert_hidden > 0 ? config.expert_hidden : config.hidden) * config.ffn;
  if (training.lora.has_value()) {
    if (training.lora->mlp1) expert += training.lora->rank * (config.hidden + wide * config.ffn);
    if (training.lora->mlp2) expert += training.lora->rank * (config.ffn + config.hidden);
  }
  return (ExpertLayers(config) + config.mtp_layers) * (config.experts - config.experts_per_token) * expert;
}

int64_t ExpertCapacity(const DecoderConfig& config, int64_t tokens, int64_t rows) {
  const double share = static_cast<double>(tokens) * static_cast<double>(config.experts_per_token) *
                       config.capacity_factor / static_cast<double>(config.experts);
  return static_cast<int64_t>(std::ceil(share / static_cast<double>(rows))) * rows;
}

}  // namespace meshwright
