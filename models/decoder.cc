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
#include "models/decoder_layers.h"
#include "models/decoder_mixers.h"

namespace meshwright {
namespace {

// Layers are all alike where windows hold the whole sequence, unless their heads differ.
DecoderConfig WithoutIdleWindows(DecoderConfig c, int64_t sequence) {
  if (c.sliding_window < sequence || c.full_attention_heads.heads > 0) return c;
  c.sliding_window = c.full_attention_every = c.full_attention_at = 0;
  c.full_attention_layers.clear();
  return c;
}

OpKind KindOf(Activation activation) {
  constexpr OpKind kKinds[] = {OpKind::kGelu, OpKind::kRelu, OpKind::kSquaredRelu, OpKind::kSwiglu, OpKind::kGeglu};
  return kKinds[static_cast<size_t>(activation)];
}

// Builds the graph, segment by segment.
class DecoderBuilder : DecoderMixers {
 public:
  DecoderBuilder(const DecoderConfig& config, const Training& training, const std::string& name, int64_t rows)
      : DecoderMixers(WithoutIdleWindows(config, training.sequence), training, name, rows) {}

  absl::StatusOr<Graph> Build() {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId x, Embed());
    for (const Stretch& stretch : StretchesOf(c_)) {
      b_.BeginSegment(stretch.name, stretch.repeat);
      x = b_.BeginCarry(x);
      for (size_t i = 0; i < stretch.run.size(); ++i) {
        if (i > 0) b_.EndLayer(x);
        MESHWRIGHT_ASSIGN_OR_RETURN(x, Layer(stretch.run[i].prefix, stretch.run[i].kind, x));
      }
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
    const TensorId table = Table("positions", {c_.max_positions, c_.hidden});
    return b_.AddOne(
        {.name = "add_positions", .kind = OpKind::kAddPositions, .inputs = {x, table}, .rule = "s b h, p! h -> s b h"});
  }

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

  // A feed-forward layer: what its operators' names begin with, its width, and the labels of its rows and of a weight
  // for each expert: "s b" and "", or "e c" and "e ".
  struct Mlp {
    std::string name;
    int64_t ffn = 0;
    std::string rows = "s b";
    std::string expert = {};
    int64_t width = 0;  // of what it takes; 0: hidden
    bool bias = false;
    bool gate = false;  // by a sigmoid of a product, a number for each token (Qwen2-MoE's shared expert)
  };

  // The product with the first matrix (two for swiglu) and the activation.
  absl::StatusOr<TensorId> Activate(TensorId in, const Mlp& mlp) {
    const std::string &x = mlp.rows, &e = mlp.expert;
    const bool gated = IsGated(c_.activation);
    const std::string columns = gated ? "t f" : "f";
    const std::string name = absl::StrCat(mlp.name, "mlp1");
    // h first, of experts, too: the parallel optimizer splits dim 0, and ranks have few experts, or one.
    const int64_t width = mlp.width > 0 ? mlp.width : c_.hidden;
    Shape weight_shape = {width}, bias_shape;
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
      const Product adapted{name, x, "h", columns, e, {width}, column_sizes, e.empty() ? Shape() : Shape{c_.experts}};
      MESHWRIGHT_ASSIGN_OR_RETURN(wide, AddAdapter(adapted, in, wide));
    }
    activation.inputs.push_back(wide);
    return b_.AddOne(std::move(activation));
  }

  // In front of the second product, which it commutes with: so partial sums of that stay such.
  absl::StatusOr<TensorId> Gate(TensorId in, const Mlp& mlp, TensorId active) {
    // Megatron-Core has a plain parameter for it (moe/shared_experts.py).
    const std::string name = absl::StrCat(mlp.name, "gate");
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logit,
                                b_.AddOne({.name = name,
                                           .kind = OpKind::kMatMul,
                                           .inputs = {in, Table(absl::StrCat(name, ".weight"), {c_.hidden, 1})},
                                           .rule = "s b h, h i -> s b i"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId share, b_.AddOne({.name = absl::StrCat(mlp.name, "share"),
                                                                 .kind = OpKind::kSigmoid,
                                                                 .inputs = {logit},
                                                                 .rule = "s b i -> s b i"}));
    return b_.AddOne({.name = absl::StrCat(mlp.name, "gated"),
                      .kind = OpKind::kMul,
                      .inputs = {active, share},
                      .rule = "s b f, s b 1 -> s b f"});
  }

  // Of a layer that every token goes through.
  absl::StatusOr<Branch> Dense(TensorId in, const Mlp& mlp) {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId active, Activate(in, mlp));
    if (mlp.gate) {
      MESHWRIGHT_ASSIGN_OR_RETURN(active, Gate(in, mlp, active));
    }
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

  absl::StatusOr<Branch> Mix(const LayerKind& kind, TensorId normed) {
    return kind.linear ? LinearAttention(normed) : Attention(normed, kind.window);
  }

  // Attention and the feed-forward layer take the same.
  absl::StatusOr<TensorId> SideBySide(const LayerKind& kind, TensorId x) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm1", x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Branch attended, Mix(kind, normed));
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
    if (kind.mixer) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId mixed, Before(1, x));
      MESHWRIGHT_ASSIGN_OR_RETURN(const Branch attended, Mix(kind, mixed));
      MESHWRIGHT_ASSIGN_OR_RETURN(x, Behind(1, attended, x));
    }
    if (!kind.feed_forward) return x;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId taken, Before(2, x));
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
    const bool serial = c_.layer_form == LayerForm::kSerial;
    MESHWRIGHT_ASSIGN_OR_RETURN(x, serial ? OneBehindTheOther(kind, x) : SideBySide(kind, x));
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
                                           .inputs = {normed, Table("router.weight", {c_.hidden, c_.experts})},
                                           .rule = "s b h, h r -> s b r"}));
    const int64_t slots = ExpertCapacity(c_, rows_ * t_.sequence, rows_);
    TensorId taken = normed;
    if (c_.expert_hidden > 0) {
      MESHWRIGHT_ASSIGN_OR_RETURN(taken,
                                  Times("expert_down", normed, "s b h, h i -> s b i", {c_.hidden, c_.expert_hidden}));
    }
    OpSpec dispatch{
        .name = "dispatch", .kind = OpKind::kDispatch, .inputs = {taken, logits}, .rule = "s! b h, s! b e! -> x =b h"};
    SetChoice(&dispatch.attrs);
    const int64_t width = c_.expert_hidden > 0 ? c_.expert_hidden : c_.hidden;
    dispatch.output_shapes = {{c_.experts, slots, width}};
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sent, b_.AddOne(std::move(dispatch)));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const TensorId active,
        Activate(sent, {.name = "", .ffn = c_.ffn, .rows = "e c", .expert = "e ", .width = width}));
    const TensorId weight = ResidualWeight("mlp2.weight", {width, c_.experts, c_.ffn});
    MESHWRIGHT_ASSIGN_OR_RETURN(
        TensorId made,
        b_.AddOne(
            {.name = "mlp2", .kind = OpKind::kMatMul, .inputs = {active, weight}, .rule = "e c f, h e f -> e c h"}));
    if (t_.lora.has_value() && t_.lora->mlp2) {
      const Product adapted{"mlp2", "e c", "f", "h", "e ", {c_.ffn}, {width}, {c_.experts}};
      MESHWRIGHT_ASSIGN_OR_RETURN(made, AddAdapter(adapted, active, made));
    }
    OpSpec combine{
        .name = "combine", .kind = OpKind::kCombine, .inputs = {made, logits}, .rule = "x =b h, s! b e! -> s! b h"};
    SetChoice(&combine.attrs);
    MESHWRIGHT_ASSIGN_OR_RETURN(branch.result, b_.AddOne(std::move(combine)));
    if (c_.expert_hidden > 0) {
      const TensorId up = ResidualWeight("expert_up.weight", {c_.expert_hidden, c_.hidden});
      MESHWRIGHT_ASSIGN_OR_RETURN(branch.result, b_.AddOne({.name = "expert_up",
                                                            .kind = OpKind::kMatMul,
                                                            .inputs = {branch.result, up},
                                                            .rule = "s b i, i h -> s b h"}));
    }
    if (c_.shared_expert_ffn == 0) return branch;
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const Branch shared,
        Dense(normed, {.name = "shared_", .ffn = c_.shared_expert_ffn, .gate = c_.shared_expert_gate}));
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
    return Layer("", NextKind(c_), x);
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
};

}  // namespace

absl::StatusOr<Graph> BuildDecoder(const DecoderConfig& config, const Training& training, const std::string& name,
                                   int64_t rows) {
  return DecoderBuilder(config, training, name, rows).Build();
}

}  // namespace meshwright
