#include "models/decoder_mixers.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// Of new layers, as their authors start them: rates of 1 to 16 (state-spaces/mamba, Mamba2.__init__), of state spaces
// steps of 0.001 to 0.1, which is what softplus makes of these logits.
constexpr double kLeastLogRate = 0, kMostLogRate = 2.772588722239781;
constexpr double kLeastStepLogit = -6.907255, kMostStepLogit = -2.252168;

// Whether a group's queries, key and value lie one behind the other (ir/heads.h).
bool LieBehind(const DecoderConfig& c) { return c.kv_lora_rank > 0 || HasNarrowValues(c); }

}  // namespace

absl::StatusOr<DecoderMixers::Branch> DecoderMixers::Attention(TensorId normed, int64_t window) {
  Branch branch;
  const bool latent = c_.kv_lora_rank > 0, behind = LieBehind(c_);
  const AttentionHeads heads = HeadsOf(c_, window);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId qkv, latent ? LatentHeads(normed) : Heads(normed, heads));
  // Of what attention makes for a token.
  const Shape made = {heads.kv_heads, heads.heads / heads.kv_heads, behind ? ValueWidth(c_) : heads.head_dim};
  const int64_t compared = latent ? ScoreWidth(c_) : heads.head_dim;
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId context, Attend(qkv, window, compared, made));
  if (c_.attention_gate) {
    MESHWRIGHT_ASSIGN_OR_RETURN(context, GateResult(normed, context, made));
  }
  const char* const columns = behind ? "g q u" : "g q d";
  // h first: the parallel optimizer splits dim 0, which heads seldom leave divisible.
  const TensorId weight = ResidualWeight("proj.weight", {c_.hidden, made[0], made[1], made[2]});
  MESHWRIGHT_ASSIGN_OR_RETURN(branch.result,
                              b_.AddOne({.name = "proj",
                                         .kind = OpKind::kMatMul,
                                         .inputs = {context, weight},
                                         .rule = absl::StrCat("s b ", columns, ", h ", columns, " -> s b h")}));
  if (t_.lora.has_value() && t_.lora->proj) {
    const Product proj{"proj", "s b", columns, "h", "", made, {c_.hidden}, {}};
    MESHWRIGHT_ASSIGN_OR_RETURN(branch.adapted, Adapt(proj, context));
  }
  if (c_.bias) branch.bias = Bias("add1.bias", {c_.hidden});
  return branch;
}

// Queries, keys and values in one; values of another width lie one behind the other with the others.
absl::StatusOr<TensorId> DecoderMixers::Heads(TensorId normed, const AttentionHeads& heads) {
  const int64_t each = heads.heads / heads.kv_heads;
  const bool behind = HasNarrowValues(c_);
  const Shape columns = behind ? Shape{heads.kv_heads, (each + 1) * heads.head_dim + c_.value_head_dim}
                               : Shape{heads.kv_heads, each + 2, heads.head_dim};
  const std::string made = behind ? "g w" : "g r d";
  Shape weight = columns;
  weight.insert(weight.begin(), c_.hidden);
  OpSpec product{.name = "qkv",
                 .kind = OpKind::kMatMul,
                 .inputs = {normed, Weight("qkv.weight", weight)},
                 .rule = absl::StrCat("s b h, h ", made, " -> s b ", made)};
  if (c_.qkv_bias) {
    product.inputs.push_back(Bias("qkv.bias", columns));
    product.rule = absl::StrCat("s b h!, h! ", made, ", ", made, " -> s b ", made);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId qkv, b_.AddOne(std::move(product)));
  if (t_.lora.has_value() && t_.lora->qkv) {
    const Product adapted{"qkv", "s b", "h", made, "", {c_.hidden}, columns, {}};
    MESHWRIGHT_ASSIGN_OR_RETURN(qkv, AddAdapter(adapted, normed, qkv));
  }
  if (c_.qk_norm) {
    OpSpec norm{.name = "qk_norm", .kind = OpKind::kNormHeads, .inputs = {qkv}};
    norm.rule = "s b g r! d!, t! d! -> s b g r! d!";
    norm.attrs.epsilon = c_.norm_epsilon;
    norm.attrs.fused = t_.fused_norms;
    norm.recompute_group = "activation";
    norm.inputs.push_back(Parameter("qk_norm.gamma", {2, heads.head_dim}, Constant(1)));
    MESHWRIGHT_ASSIGN_OR_RETURN(qkv, b_.AddOne(std::move(norm)));
  }
  if (c_.positions != Positions::kRotary) return qkv;
  OpSpec rotary{.name = "rotary", .kind = OpKind::kRotary, .inputs = {qkv}, .rule = "s b g r! d! -> s b g r! d!"};
  if (behind) {
    rotary.rule = "s b g w! -> s b g w!";
    rotary.attrs.head_width = heads.head_dim;
  }
  rotary.attrs.theta = c_.rope_theta;
  if (c_.rotary_factor < 1) rotary.attrs.turned = TurnedElements(c_, heads.head_dim);
  rotary.attrs.fused = t_.fused_norms;
  return b_.AddOne(std::move(rotary));
}

// Queries, keys and values one behind the other, made from narrow vectors that are normed (DeepSeek-V2, section 2.1).
absl::StatusOr<TensorId> DecoderMixers::LatentHeads(TensorId normed) {
  TensorId from = normed;
  std::string of_queries = "s b h, h g d -> s b g d";
  if (c_.q_lora_rank > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(from, Times("q_down", normed, "s b h, h a -> s b a", {c_.hidden, c_.q_lora_rank}));
    MESHWRIGHT_ASSIGN_OR_RETURN(from, NormalizeLatent("q_norm", from, "a", c_.q_lora_rank));
    of_queries = "s b a, a g d -> s b g d";
  }
  const int64_t read = c_.q_lora_rank > 0 ? c_.q_lora_rank : c_.hidden;
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId queries,
                              Times("q_up", from, of_queries, {read, c_.heads, ScoreWidth(c_)}));
  const int64_t both = c_.kv_lora_rank + c_.rope_head_dim;
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId down, Times("kv_down", normed, "s b h, h m -> s b m", {c_.hidden, both}));
  OpSpec split{.name = "kv_split", .kind = OpKind::kSplit, .inputs = {down}, .rule = "s b m! -> s b k!, s b p!"};
  split.output_shapes = {{t_.sequence, rows_, c_.kv_lora_rank}, {t_.sequence, rows_, c_.rope_head_dim}};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> parts, b_.Add(std::move(split)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId latent, NormalizeLatent("kv_norm", parts[0], "k", c_.kv_lora_rank));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId kv, Times("kv_up", latent, "s b k, k g u -> s b g u",
                                                       {c_.kv_lora_rank, c_.heads, c_.head_dim + ValueWidth(c_)}));
  OpSpec heads{.name = "latent_heads", .kind = OpKind::kLatentHeads, .inputs = {queries, parts[1], kv}};
  heads.rule = "s b g d!, s b p!, s b g u! -> s b g w!";
  heads.attrs.theta = c_.rope_theta;
  heads.attrs.fused = t_.fused_norms;
  heads.output_shapes = {{t_.sequence, rows_, c_.heads, 2 * ScoreWidth(c_) + ValueWidth(c_)}};
  return b_.AddOne(std::move(heads));
}

// The second output is what backward needs of the scores: their row sums in log form, or all the probabilities.
absl::StatusOr<TensorId> DecoderMixers::Attend(TensorId qkv, int64_t window, int64_t compared, const Shape& made) {
  OpSpec spec{.name = "attention", .kind = OpKind::kAttention, .inputs = {qkv}};
  spec.attrs.scale = 1 / std::sqrt(static_cast<double>(compared));
  spec.attrs.causal = true;
  spec.attrs.window = window < t_.sequence ? window : 0;
  spec.attrs.fused = t_.fused_attention;
  spec.recompute_group = "attention";
  const Shape context = {t_.sequence, rows_, made[0], made[1], made[2]};
  Shape saved = {t_.sequence, rows_, made[0], made[1]};
  spec.rule = LieBehind(c_) ? "s! b g w! -> s! b g q! u!, s! b g q!" : "s! b g r! d! -> s! b g q! d!, s! b g q!";
  if (t_.fused_attention) {
    spec.output_dtypes = {t_.dtype, t_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32};
  } else {
    saved.push_back(t_.sequence);
    spec.rule += " t!";
    spec.output_dtypes = {t_.dtype, t_.dtype};
  }
  spec.output_shapes = {context, saved};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, b_.Add(std::move(spec)));
  return outputs[0];
}

// By a sigmoid of a product of its own (Qwen3-Next; Qiu et al., arXiv:2505.06708).
absl::StatusOr<TensorId> DecoderMixers::GateResult(TensorId normed, TensorId context, const Shape& made) {
  const std::string columns = LieBehind(c_) ? "g q u" : "g q d", rows = absl::StrCat("s b ", columns);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits,
                              Times("attention_gate", normed, absl::StrCat("s b h, h ", columns, " -> ", rows),
                                    {c_.hidden, made[0], made[1], made[2]}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId share, b_.AddOne({.name = "attention_share",
                                                               .kind = OpKind::kSigmoid,
                                                               .inputs = {logits},
                                                               .rule = absl::StrCat(rows, " -> ", rows)}));
  return b_.AddOne({.name = "gated_attention",
                    .kind = OpKind::kMul,
                    .inputs = {context, share},
                    .rule = absl::StrCat(rows, ", ", rows, " -> ", rows)});
}

// One product makes what is mixed, the gate of the result and the logits of the gates of each head, in this order for
// each group (Megatron-Core's in_proj). Heads are o in products and y where the sequence is whole: ranks that share a
// sequence have some heads each there (planner/search/degrees.cc).
absl::StatusOr<DecoderMixers::Branch> DecoderMixers::LinearAttention(TensorId normed) {
  const LinearSizes sizes = LinearSizesOf(c_);
  const LinearAttentionConfig& l = c_.linear_attention;
  const bool kimi = l.form == LinearForm::kKimiDelta, gate_apart = kimi && l.gate_rank > 0;
  const int64_t groups = l.key_heads, all = sizes.mixed + (gate_apart ? 0 : sizes.values) + sizes.gates;
  Branch branch;
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId made,
                              Times("in_proj", normed, "s b h, h o r -> s b o r", {c_.hidden, groups, all}));
  if (t_.lora.has_value() && t_.lora->qkv) {
    const Product adapted{"in_proj", "s b", "h", "o r", "", {c_.hidden}, {groups, all}, {}};
    MESHWRIGHT_ASSIGN_OR_RETURN(made, AddAdapter(adapted, normed, made));
  }
  OpSpec split{.name = "in_split", .kind = OpKind::kSplit, .inputs = {made}};
  split.rule = gate_apart ? "s b o r! -> s b o w!, s b o p!" : "s b o r! -> s b o w!, s b o i!, s b o p!";
  for (const int64_t width : {sizes.mixed, gate_apart ? 0 : sizes.values, sizes.gates}) {
    if (width > 0) split.output_shapes.push_back({t_.sequence, rows_, groups, width});
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> parts, b_.Add(std::move(split)));
  TensorId gates = parts.back(), gate = parts[1];
  if (gate_apart) {
    MESHWRIGHT_ASSIGN_OR_RETURN(gate, Narrow("gate", normed, l.gate_rank, sizes.values));
  }
  if (kimi) {
    MESHWRIGHT_ASSIGN_OR_RETURN(gates, Narrow("decay", normed, l.decay_rank, sizes.decays));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId mixed, Recur(parts[0], gates, parts.back()));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId context, NormGated(mixed, gate));
  const bool delta = l.form != LinearForm::kStateSpace;
  const std::string columns = delta ? "o t u" : "o i";
  const Shape rows = delta ? Shape{groups, sizes.heads, l.value_dim} : Shape{groups, sizes.values};
  Shape weight = {c_.hidden};
  weight.insert(weight.end(), rows.begin(), rows.end());
  MESHWRIGHT_ASSIGN_OR_RETURN(branch.result,
                              b_.AddOne({.name = "out_proj",
                                         .kind = OpKind::kMatMul,
                                         .inputs = {context, ResidualWeight("out_proj.weight", weight)},
                                         .rule = absl::StrCat("s b ", columns, ", h ", columns, " -> s b h")}));
  if (t_.lora.has_value() && t_.lora->proj) {
    MESHWRIGHT_ASSIGN_OR_RETURN(branch.adapted,
                                Adapt({"out_proj", "s b", columns, "h", "", rows, {c_.hidden}, {}}, context));
  }
  return branch;
}

TensorId DecoderMixers::OfLinearHeads(const char* name, Initializer init) {
  return Parameter(absl::StrCat("linear_attention.", name), {c_.linear_attention.key_heads, LinearSizesOf(c_).heads},
                   init);
}

absl::StatusOr<TensorId> DecoderMixers::Narrow(const std::string& name, TensorId normed, int64_t rank, int64_t width) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId down,
                              Times(absl::StrCat(name, "_down"), normed, "s b h, h a -> s b a", {c_.hidden, rank}));
  return Times(absl::StrCat(name, "_up"), down, "s b a, a o i -> s b o i",
               {rank, c_.linear_attention.key_heads, width});
}

// The convolution and the recurrence.
absl::StatusOr<TensorId> DecoderMixers::Recur(TensorId mixed, TensorId gates, TensorId amounts) {
  const LinearAttentionConfig& l = c_.linear_attention;
  const LinearSizes sizes = LinearSizesOf(c_);
  if (l.convolution > 0) {
    const double most = 1 / std::sqrt(static_cast<double>(l.convolution));
    OpSpec conv{.name = "conv", .kind = OpKind::kCausalConv, .inputs = {mixed}};
    conv.inputs.push_back(Parameter("conv.weight", {l.key_heads, sizes.mixed, l.convolution},
                                    {.kind = Initializer::Kind::kUniform, .low = -most, .high = most}));
    conv.rule = "s! b y w!, y w! k! -> s! b y w!";
    if (l.convolution_bias) {
      conv.inputs.push_back(Bias("conv.bias", {l.key_heads, sizes.mixed}));
      conv.rule = "s! b y w!, y w! k!, y w! -> s! b y w!";
    }
    conv.recompute_group = "activation";
    MESHWRIGHT_ASSIGN_OR_RETURN(mixed, b_.AddOne(std::move(conv)));
  }
  const auto uniform = [](double low, double high) {
    return Initializer{.kind = Initializer::Kind::kUniform, .low = low, .high = high};
  };
  OpSpec spec{.name = "linear_attention", .kind = OpKind::kLinearAttention, .inputs = {mixed, gates}};
  spec.inputs.push_back(OfLinearHeads("log_rate", uniform(kLeastLogRate, kMostLogRate)));
  const Initializer bias = l.form == LinearForm::kGatedDelta ? Constant(1) : uniform(kLeastStepLogit, kMostStepLogit);
  absl::string_view others = "y t!";
  if (l.form == LinearForm::kKimiDelta) {
    spec.inputs.push_back(Parameter("linear_attention.step_bias", {l.key_heads, sizes.heads, l.key_dim}, bias));
    spec.inputs.push_back(amounts);
    others = "y t! d!, s! b y t!";
  } else {
    spec.inputs.push_back(OfLinearHeads("step_bias", bias));
  }
  if (l.form == LinearForm::kStateSpace) {
    spec.inputs.push_back(OfLinearHeads("skip", Constant(1)));
    others = "y t!, y t!";
  }
  spec.rule = absl::StrCat("s! b y w!, s! b y p!, y t!, ", others, " -> s! b y t! u!");
  spec.output_shapes = {{t_.sequence, rows_, l.key_heads, sizes.heads, l.value_dim}};
  return b_.AddOne(std::move(spec));
}

// Of the delta rule each head is normed, then gated; of state spaces a group, gated before.
absl::StatusOr<TensorId> DecoderMixers::NormGated(TensorId made, TensorId gate) {
  const LinearAttentionConfig& l = c_.linear_attention;
  const LinearSizes sizes = LinearSizesOf(c_);
  const bool delta = l.form != LinearForm::kStateSpace;
  const Shape heads = {t_.sequence, rows_, l.key_heads, sizes.heads, l.value_dim};
  const Shape group = {t_.sequence, rows_, l.key_heads, sizes.values};
  OpSpec view{.name = delta ? "gate_heads" : "group", .kind = OpKind::kReshape, .inputs = {delta ? gate : made}};
  view.rule = delta ? "s b o i! -> s b o t! u!" : "s b o t! u! -> s b o i!";
  view.output_shapes = {delta ? heads : group};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId viewed, b_.AddOne(std::move(view)));
  OpSpec norm{
      .name = "gated_norm", .kind = OpKind::kGatedRmsNorm, .inputs = {delta ? made : viewed, delta ? viewed : gate}};
  norm.rule = delta ? "s b o t u!, s b o t u!, u! -> s b o t u!" : "s b o i!, s b o i!, o i! -> s b o i!";
  norm.inputs.push_back(
      Parameter("gated_norm.gamma", delta ? Shape{l.value_dim} : Shape{l.key_heads, sizes.values}, Constant(1)));
  norm.attrs.epsilon = c_.norm_epsilon;
  norm.attrs.gate_first = !delta;
  norm.attrs.fused = t_.fused_norms;
  norm.recompute_group = "activation";
  return b_.AddOne(std::move(norm));
}

}  // namespace meshwright
