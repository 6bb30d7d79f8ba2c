#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "models/decoder_pieces.h"

namespace meshwright {
namespace {

struct LayerKind {
  bool experts = true;  // where the model has some
  int64_t window = 0;   // 0: all of the sequence
};

// Of layer i of a run.
LayerKind KindInRun(const DecoderConfig& c, int64_t i) {
  const bool full = c.full_attention_every > 0 && (i + 1) % c.full_attention_every == 0;
  return {.experts = (i + 1) % c.expert_every == 0, .window = full ? 0 : c.sliding_window};
}

// Layers are all alike where windows hold the whole sequence.
DecoderConfig WithoutIdleWindows(DecoderConfig c, int64_t sequence) {
  if (c.sliding_window >= sequence) c.sliding_window = c.full_attention_every = 0;
  return c;
}

// The last of a run stands for all: nothing.
std::string PrefixInRun(const DecoderConfig& c, int64_t i) {
  if (i + 1 == LayersOfRun(c)) return "";
  const LayerKind kind = KindInRun(c, i);
  return absl::StrCat(!kind.experts ? "dense" : kind.window > 0 ? "window" : "layer", i, "_");
}

// Of what predicts the k-th token after the next.
std::string NextPrefix(int64_t k) { return k == 1 ? "next_" : absl::StrCat("next", k, "_"); }

OpKind KindOf(Activation activation) {
  constexpr OpKind kKinds[] = {OpKind::kGelu, OpKind::kRelu, OpKind::kSquaredRelu, OpKind::kSwiglu, OpKind::kGeglu};
  return kKinds[static_cast<size_t>(activation)];
}

// Builds the graph, segment by segment.
class DecoderBuilder : DecoderPieces {
 public:
  DecoderBuilder(const DecoderConfig& config, const Training& training, const std::string& name, int64_t rows)
      : DecoderPieces(WithoutIdleWindows(config, training.sequence), training, name, rows) {}

  absl::StatusOr<Graph> Build() {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId x, Embed());
    if (c_.dense_layers > 0) {
      b_.BeginSegment("dense_layers", c_.dense_layers);
      const LayerKind dense = {.experts = false, .window = c_.sliding_window};
      MESHWRIGHT_ASSIGN_OR_RETURN(x, Layer("dense_", dense, b_.BeginCarry(x)));
      MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    }
    const int64_t run = LayersOfRun(c_);
    b_.BeginSegment("layers", (c_.layers - c_.dense_layers) / run, run);
    x = b_.BeginCarry(x);
    for (int64_t i = 0; i < run; ++i) {
      MESHWRIGHT_ASSIGN_OR_RETURN(x, Layer(PrefixInRun(c_, i), KindInRun(c_, i), x));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    if (const int64_t last = LastLayers(c_); last > 0) {
      b_.BeginSegment("last_layers", last);
      MESHWRIGHT_ASSIGN_OR_RETURN(x, Layer("last_", KindInRun(c_, 0), b_.BeginCarry(x)));
      MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    }
    MESHWRIGHT_RETURN_IF_ERROR(Head(x));
    MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(b_.graph()));
    return std::move(b_).Build();
  }

 private:
  absl::StatusOr<TensorId> Embed() {
    b_.BeginSegment("embed");
    Initializer ids{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(c_.vocab)};
    tokens_ = b_.Input("tokens", DType::kInt32, {rows_, t_.sequence}, ids);
    if (c_.classes > 0) ids.high = static_cast<double>(c_.classes);
    labels_.push_back(b_.Input("labels", DType::kInt32, {rows_, t_.sequence}, ids));
    for (int64_t k = 1; k <= c_.mtp_layers; ++k) {
      labels_.push_back(b_.Input(absl::StrCat("labels", k + 1), DType::kInt32, {rows_, t_.sequence}, ids));
    }
    embedding_ = VocabularyWeight("embedding");
    MESHWRIGHT_ASSIGN_OR_RETURN(
        TensorId x,
        b_.AddOne(
            {.name = "embed", .kind = OpKind::kGather, .inputs = {embedding_, tokens_}, .rule = "v h, b s -> s b h"}));
    if (c_.positions != Positions::kLearned) return x;
    const TensorId table = Weight("positions", {c_.max_positions, c_.hidden});
    return b_.AddOne(
        {.name = "add_positions", .kind = OpKind::kAddPositions, .inputs = {x, table}, .rule = "s b h, p! h -> s b h"});
  }

  // What attention, a feed-forward layer or experts add to the residual stream: the sum of all that there are.
  struct Branch {
    TensorId result, bias, adapted, shared, shared_adapted;
  };

  static Branch WithoutBias(Branch branch) {
    branch.bias = TensorId();
    return branch;
  }

  // The sum of branches and of what is `last`, where that is valid.
  absl::StatusOr<TensorId> Sum(const std::string& name, std::initializer_list<Branch> branches, TensorId last) {
    OpSpec spec{.name = name, .kind = OpKind::kAdd, .inputs = {}};
    std::vector<std::string> rule;
    const auto add = [&](TensorId term, const char* labels) {
      if (!term.valid()) return;
      spec.inputs.push_back(term);
      rule.push_back(labels);
    };
    for (const Branch& branch : branches) {
      add(branch.result, "s b h");
      add(branch.bias, "h");
      for (const TensorId term : {branch.adapted, branch.shared, branch.shared_adapted}) add(term, "s b h");
    }
    add(last, "s b h");
    spec.rule = absl::StrCat(absl::StrJoin(rule, ", "), " -> s b h");
    return b_.AddOne(std::move(spec));
  }

  // Of the half-layer `half`, 1 or 2: what attention or the feed-forward layer takes of the residual stream, and the
  // stream with what that makes.
  absl::StatusOr<TensorId> Before(int half, TensorId x) {
    return c_.norm_places == NormPlaces::kAfter ? x : Normalize(absl::StrCat("norm", half), x);
  }
  absl::StatusOr<TensorId> Behind(int half, Branch branch, TensorId x) {
    if (c_.norm_places != NormPlaces::kBefore) {
      const bool alone = !branch.bias.valid() && !branch.adapted.valid() && !branch.shared.valid();
      TensorId made = branch.result;
      if (!alone) {
        MESHWRIGHT_ASSIGN_OR_RETURN(made, Sum(absl::StrCat("sum", half), {branch}, TensorId()));
      }
      branch = Branch();
      MESHWRIGHT_ASSIGN_OR_RETURN(branch.result, Normalize(absl::StrCat("norm", half, "_after"), made));
    }
    return Sum(absl::StrCat("add", half), {branch}, x);
  }

  absl::StatusOr<Branch> AttentionBranch(TensorId normed) {
    Branch branch;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId qkv, c_.kv_lora_rank > 0 ? LatentHeads(normed) : Heads(normed));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId context, Attend(qkv));
    const int64_t queries = c_.heads / c_.kv_heads;
    const bool latent = c_.kv_lora_rank > 0;
    const char* const columns = latent ? "g q u" : "g q d";
    // h first: the parallel optimizer splits dim 0, which heads seldom leave divisible.
    const TensorId weight = ResidualWeight("proj.weight", {c_.hidden, c_.kv_heads, queries, ValueWidth(c_)});
    MESHWRIGHT_ASSIGN_OR_RETURN(branch.result,
                                b_.AddOne({.name = "proj",
                                           .kind = OpKind::kMatMul,
                                           .inputs = {context, weight},
                                           .rule = absl::StrCat("s b ", columns, ", h ", columns, " -> s b h")}));
    if (t_.lora.has_value() && t_.lora->proj) {
      const Product proj{"proj", "s b", columns, "h", "", {c_.kv_heads, queries, ValueWidth(c_)}, {c_.hidden}, {}};
      MESHWRIGHT_ASSIGN_OR_RETURN(branch.adapted, Adapt(proj, context));
    }
    if (c_.bias) branch.bias = Bias("add1.bias", {c_.hidden});
    return branch;
  }

  // Queries, keys and values of one width, in one.
  absl::StatusOr<TensorId> Heads(TensorId normed) {
    const int64_t queries = c_.heads / c_.kv_heads;
    const Shape qkv_shape = {c_.hidden, c_.kv_heads, queries + 2, c_.head_dim};
    OpSpec product{.name = "qkv",
                   .kind = OpKind::kMatMul,
                   .inputs = {normed, Weight("qkv.weight", qkv_shape)},
                   .rule = "s b h, h g r d -> s b g r d"};
    if (c_.qkv_bias) {
      product.inputs.push_back(Bias("qkv.bias", {c_.kv_heads, queries + 2, c_.head_dim}));
      product.rule = "s b h!, h! g r d, g r d -> s b g r d";
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId qkv, b_.AddOne(std::move(product)));
    if (t_.lora.has_value() && t_.lora->qkv) {
      const Product adapted{"qkv", "s b", "h", "g r d", "", {c_.hidden}, {c_.kv_heads, queries + 2, c_.head_dim}, {}};
      MESHWRIGHT_ASSIGN_OR_RETURN(qkv, AddAdapter(adapted, normed, qkv));
    }
    if (c_.qk_norm) {
      OpSpec norm{.name = "qk_norm", .kind = OpKind::kNormHeads, .inputs = {qkv}};
      norm.rule = "s b g r! d!, t! d! -> s b g r! d!";
      norm.attrs.epsilon = c_.norm_epsilon;
      norm.attrs.fused = t_.fused_norms;
      norm.recompute_group = "activation";
      norm.inputs.push_back(Parameter("qk_norm.gamma", {2, c_.head_dim}, Constant(1)));
      MESHWRIGHT_ASSIGN_OR_RETURN(qkv, b_.AddOne(std::move(norm)));
    }
    if (c_.positions != Positions::kRotary) return qkv;
    OpSpec rotary{.name = "rotary", .kind = OpKind::kRotary, .inputs = {qkv}, .rule = "s b g r! d! -> s b g r! d!"};
    rotary.attrs.theta = c_.rope_theta;
    if (c_.rotary_factor < 1) rotary.attrs.turned = TurnedElements(c_);
    rotary.attrs.fused = t_.fused_norms;
    return b_.AddOne(std::move(rotary));
  }

  // Queries, keys and values one behind the other, made from narrow vectors that are normed (DeepSeek-V2, section 2.1).
  absl::StatusOr<TensorId> LatentHeads(TensorId normed) {
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
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId down,
                                Times("kv_down", normed, "s b h, h m -> s b m", {c_.hidden, both}));
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
  absl::StatusOr<TensorId> Attend(TensorId qkv) {
    const int64_t queries = c_.heads / c_.kv_heads;
    OpSpec spec{.name = "attention", .kind = OpKind::kAttention, .inputs = {qkv}};
    spec.attrs.scale = 1 / std::sqrt(static_cast<double>(ScoreWidth(c_)));
    spec.attrs.causal = true;
    spec.attrs.window = window_;
    spec.attrs.fused = t_.fused_attention;
    spec.recompute_group = "attention";
    const Shape context = {t_.sequence, rows_, c_.kv_heads, queries, ValueWidth(c_)};
    Shape saved = {t_.sequence, rows_, c_.kv_heads, queries};
    spec.rule =
        c_.kv_lora_rank > 0 ? "s! b g w! -> s! b g q! u!, s! b g q!" : "s! b g r! d! -> s! b g q! d!, s! b g q!";
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

  // A feed-forward layer: what its operators' names begin with, its width, and the labels of its rows and of a weight
  // for each expert: "s b" and "", or "e c" and "e ".
  struct Mlp {
    std::string name;
    int64_t ffn = 0;
    std::string rows = "s b";
    std::string expert = {};
    bool bias = false;
  };

  // The product with the first matrix (two for swiglu) and the activation.
  absl::StatusOr<TensorId> Activate(TensorId in, const Mlp& mlp) {
    const std::string &x = mlp.rows, &e = mlp.expert;
    const bool gated = IsGated(c_.activation);
    const std::string columns = gated ? "t f" : "f";
    const std::string name = absl::StrCat(mlp.name, "mlp1");
    // h first, of experts, too: the parallel optimizer splits dim 0, and ranks have few experts, or one.
    Shape weight_shape = {c_.hidden}, bias_shape;
    if (!e.empty()) weight_shape.push_back(c_.experts);
    if (gated) bias_shape.push_back(2);
    bias_shape.push_back(mlp.ffn);
    weight_shape.insert(weight_shape.end(), bias_shape.begin(), bias_shape.end());
    const TensorId weight = Weight(absl::StrCat(name, ".weight"), weight_shape);
    OpSpec product{.name = name, .kind = OpKind::kMatMul, .inputs = {in, weight}};
    product.rule = absl::StrCat(x, " h, h ", e, columns, " -> ", x, " ", columns);
    OpSpec activation{.name = absl::StrCat(mlp.name, "activation"), .kind = KindOf(c_.activation), .inputs = {}};
    activation.recompute_group = "activation";
    activation.attrs.fused = t_.fused_norms || !gated;
    if (mlp.bias) {
      product.inputs.push_back(Bias(absl::StrCat(name, ".bias"), bias_shape));
      product.rule = absl::StrCat(x, " h!, ", e, "h! ", columns, ", ", columns, " -> ", x, " ", columns);
    }
    activation.rule = absl::StrCat(x, gated ? " t! f -> " : " f -> ", x, " f");
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId wide, b_.AddOne(std::move(product)));
    if (t_.lora.has_value() && t_.lora->mlp1) {
      const Shape column_sizes = gated ? Shape{2, mlp.ffn} : Shape{mlp.ffn};
      const Product adapted{name, x,           "h",          columns,
                            e,    {c_.hidden}, column_sizes, e.empty() ? Shape() : Shape{c_.experts}};
      MESHWRIGHT_ASSIGN_OR_RETURN(wide, AddAdapter(adapted, in, wide));
    }
    activation.inputs.push_back(wide);
    return b_.AddOne(std::move(activation));
  }

  // Of a layer that every token goes through.
  absl::StatusOr<Branch> Dense(TensorId in, const Mlp& mlp) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId active, Activate(in, mlp));
    const std::string name = absl::StrCat(mlp.name, "mlp2");
    const TensorId weight = ResidualWeight(absl::StrCat(name, ".weight"), {mlp.ffn, c_.hidden});
    Branch branch;
    MESHWRIGHT_ASSIGN_OR_RETURN(
        branch.result,
        b_.AddOne({.name = name, .kind = OpKind::kMatMul, .inputs = {active, weight}, .rule = "s b f, f h -> s b h"}));
    if (t_.lora.has_value() && t_.lora->mlp2) {
      const Product product{name, "s b", "f", "h", "", {mlp.ffn}, {c_.hidden}, {}};
      MESHWRIGHT_ASSIGN_OR_RETURN(branch.adapted, Adapt(product, active));
    }
    if (mlp.bias) branch.bias = Bias("add2.bias", {c_.hidden});
    return branch;
  }

  // Attention and the feed-forward layer take the same.
  absl::StatusOr<TensorId> SideBySide(TensorId x) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm1", x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Branch attended, AttentionBranch(normed));
    TensorId of_mlp = normed;
    if (c_.layer_form == LayerForm::kParallel) {
      MESHWRIGHT_ASSIGN_OR_RETURN(of_mlp, Normalize("norm2", x));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const Branch made, Dense(of_mlp, {.name = "", .ffn = c_.ffn, .bias = c_.bias}));
    // The sum of both first, so that on tensor-parallel ranks, which have parts of either, it is brought together once.
    Branch both, other;
    MESHWRIGHT_ASSIGN_OR_RETURN(both.result, Sum("sum", {WithoutBias(attended), WithoutBias(made)}, TensorId()));
    both.bias = attended.bias;
    other.bias = made.bias;
    return Sum("add", {both, other}, x);
  }

  absl::StatusOr<TensorId> OneBehindTheOther(const LayerKind& kind, TensorId x) {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId taken, Before(1, x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Branch attended, AttentionBranch(taken));
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Behind(1, attended, x));
    MESHWRIGHT_ASSIGN_OR_RETURN(taken, Before(2, x));
    Branch made;
    if (c_.experts > 0 && kind.experts) {
      MESHWRIGHT_ASSIGN_OR_RETURN(made, Experts(taken));
    } else {
      const int64_t ffn = c_.experts > 0 ? c_.dense_ffn : c_.ffn;
      MESHWRIGHT_ASSIGN_OR_RETURN(made, Dense(taken, {.name = "", .ffn = ffn, .bias = c_.bias}));
    }
    return Behind(2, made, x);
  }

  // What it makes has names that begin with `prefix`.
  absl::StatusOr<TensorId> Layer(const std::string& prefix, const LayerKind& kind, TensorId x) {
    const Made before = SoFar();
    window_ = kind.window;
    MESHWRIGHT_ASSIGN_OR_RETURN(x, c_.layer_form == LayerForm::kSerial ? OneBehindTheOther(kind, x) : SideBySide(x));
    Rename(prefix, before);
    return x;
  }

  void SetChoice(OpAttrs* attrs) const {
    attrs->top_k = c_.experts_per_token;
    attrs->choice_groups = c_.choice_groups;
    attrs->top_choice_groups = c_.choice_groups_per_token;
  }

  // Tokens go to slots of the experts that the router's logits name, and come back weighted by them.
  absl::StatusOr<Branch> Experts(TensorId normed) {
    Branch branch;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits,
                                b_.AddOne({.name = "router",
                                           .kind = OpKind::kMatMul,
                                           .inputs = {normed, Weight("router.weight", {c_.hidden, c_.experts})},
                                           .rule = "s b h, h r -> s b r"}));
    const int64_t slots = ExpertCapacity(c_, rows_ * t_.sequence, rows_);
    OpSpec dispatch{
        .name = "dispatch", .kind = OpKind::kDispatch, .inputs = {normed, logits}, .rule = "s! b h, s! b e! -> x =b h"};
    SetChoice(&dispatch.attrs);
    dispatch.output_shapes = {{c_.experts, slots, c_.hidden}};
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sent, b_.AddOne(std::move(dispatch)));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId active,
                                Activate(sent, {.name = "", .ffn = c_.ffn, .rows = "e c", .expert = "e "}));
    const TensorId weight = ResidualWeight("mlp2.weight", {c_.hidden, c_.experts, c_.ffn});
    MESHWRIGHT_ASSIGN_OR_RETURN(
        TensorId made,
        b_.AddOne(
            {.name = "mlp2", .kind = OpKind::kMatMul, .inputs = {active, weight}, .rule = "e c f, h e f -> e c h"}));
    if (t_.lora.has_value() && t_.lora->mlp2) {
      const Product adapted{"mlp2", "e c", "f", "h", "e ", {c_.ffn}, {c_.hidden}, {c_.experts}};
      MESHWRIGHT_ASSIGN_OR_RETURN(made, AddAdapter(adapted, active, made));
    }
    OpSpec combine{
        .name = "combine", .kind = OpKind::kCombine, .inputs = {made, logits}, .rule = "x =b h, s! b e! -> s! b h"};
    SetChoice(&combine.attrs);
    MESHWRIGHT_ASSIGN_OR_RETURN(branch.result, b_.AddOne(std::move(combine)));
    if (c_.shared_expert_ffn == 0) return branch;
    MESHWRIGHT_ASSIGN_OR_RETURN(const Branch shared, Dense(normed, {.name = "shared_", .ffn = c_.shared_expert_ffn}));
    branch.shared = shared.result;
    branch.shared_adapted = shared.adapted;
    return branch;
  }

  // The mean cross entropy of what `weight` makes of x and of `labels`, times `share`.
  absl::StatusOr<TensorId> Loss(TensorId x, TensorId weight, TensorId labels, double share) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm", x));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        TensorId logits,
        b_.AddOne(
            {.name = "logits", .kind = OpKind::kMatMul, .inputs = {normed, weight}, .rule = "s b h, v h -> s b v"}));
    const DType exact = t_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    if (!t_.fused_loss && t_.dtype != exact) {
      OpSpec cast{.name = "logits_cast", .kind = OpKind::kCast, .inputs = {logits}, .rule = "s b v -> s b v"};
      cast.output_dtypes = {exact};
      MESHWRIGHT_ASSIGN_OR_RETURN(logits, b_.AddOne(std::move(cast)));
    }
    OpSpec row_max{.name = "row_max", .kind = OpKind::kRowMax, .inputs = {logits}, .rule = "s b v -> s b"};
    row_max.output_dtypes = {exact};
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId max, b_.AddOne(std::move(row_max)));
    OpSpec sums{.name = "exp_sum", .kind = OpKind::kExpSumAndPick, .inputs = {logits, max, labels}};
    sums.rule = "s b v, s b, b s -> s b, s b";
    sums.output_dtypes = {exact, exact};
    sums.attrs.fused = t_.fused_loss;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> parts, b_.Add(std::move(sums)));
    OpSpec loss{.name = "loss", .kind = OpKind::kLossFromPartials, .inputs = {max, parts[0], parts[1]}};
    loss.rule = "s b, s b, s b -> ";
    const double terms = static_cast<double>(rows_) * static_cast<double>(t_.sequence);
    loss.attrs.scale = share * (t_.loss_reduction == LossReduction::kMean ? 1 / terms : 1);
    loss.output_dtypes = {exact};
    loss.attrs.fused = t_.fused_loss;  // its gradient's, which takes its attributes over
    return b_.AddOne(std::move(loss));
  }

  // What the layer behind `x` makes of it and of the token that x predicts (DeepSeek-V3's report, section 2.2).
  absl::StatusOr<TensorId> NextLayer(TensorId x, TensorId tokens) {
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const TensorId embedded,
        b_.AddOne(
            {.name = "embed", .kind = OpKind::kGather, .inputs = {embedding_, tokens}, .rule = "v h, b s -> s b h"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId state, Normalize("state_norm", x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId token, Normalize("token_norm", embedded));
    OpSpec join{.name = "join", .kind = OpKind::kConcat, .inputs = {token, state}, .rule = "s b x!, s b y! -> s b j!"};
    join.output_shapes = {{t_.sequence, rows_, 2 * c_.hidden}};
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId joined, b_.AddOne(std::move(join)));
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Times("joined", joined, "s b j, j h -> s b h", {2 * c_.hidden, c_.hidden}));
    return Layer("", KindInRun(c_, LayersOfRun(c_) - 1), x);
  }

  absl::Status Head(TensorId x) {
    b_.BeginSegment("head");
    // One of its own is new, and trains with adapters, too, as in PEFT's classifiers.
    const TensorId weight = c_.classes > 0       ? b_.Parameter("head", t_.dtype, {c_.classes, c_.hidden}, Normal(0.02))
                            : c_.tied_embeddings ? embedding_
                                                 : VocabularyWeight("head");
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId loss, Loss(x, weight, labels_[0], 1));
    for (int64_t k = 1; k <= c_.mtp_layers; ++k) {
      const Made before = SoFar();
      MESHWRIGHT_ASSIGN_OR_RETURN(x, NextLayer(x, labels_[static_cast<size_t>(k) - 1]));
      const double share = c_.mtp_loss_weight / static_cast<double>(c_.mtp_layers);
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId more, Loss(x, weight, labels_[static_cast<size_t>(k)], share));
      Rename(NextPrefix(k), before);
      MESHWRIGHT_ASSIGN_OR_RETURN(loss, b_.AddOne({.name = k == c_.mtp_layers ? "losses" : absl::StrCat("losses", k),
                                                   .kind = OpKind::kAdd,
                                                   .inputs = {loss, more},
                                                   .rule = ", -> "}));
    }
    b_.SetLoss(loss);
    return absl::OkStatus();
  }

  // How much of the graph there is, and what has come since gets names that begin with `prefix`.
  struct Made {
    size_t ops, tensors;
  };
  Made SoFar() const { return {b_.graph().ops.size(), b_.graph().tensors.size()}; }
  void Rename(const std::string& prefix, const Made& before) {
    Graph& graph = b_.mutable_graph();
    for (size_t i = before.ops; i < graph.ops.size(); ++i) graph.ops[i].name.insert(0, prefix);
    for (size_t i = before.tensors; i < graph.tensors.size(); ++i) graph.tensors[i].name.insert(0, prefix);
  }

  TensorId tokens_, embedding_;
  std::vector<TensorId> labels_;  // the token behind each, and the next ones
  int64_t window_ = 0;            // of the layer that is built
};

}  // namespace

std::vector<std::string> LayerPrefixes(const DecoderConfig& config) {
  std::vector<std::string> prefixes = {""};
  if (config.dense_layers > 0) prefixes.push_back("dense_");
  for (int64_t i = 0; i + 1 < LayersOfRun(config); ++i) prefixes.push_back(PrefixInRun(config, i));
  if (LastLayers(config) > 0) prefixes.push_back("last_");
  for (int64_t k = 1; k <= config.mtp_layers; ++k) prefixes.push_back(NextPrefix(k));
  return prefixes;
}

absl::StatusOr<Graph> BuildDecoder(const DecoderConfig& config, const Training& training, const std::string& name,
                                   int64_t rows) {
  return DecoderBuilder(config, training, name, rows).Build();
}

}  // namespace meshwright
