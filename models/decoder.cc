#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr double kMostParameters = 1125899906842624.0;  // 2^50
constexpr double kMostElements = 72057594037927936.0;   // 2^56, of one tensor

// What is wrong with a size, and whose.
struct Complaint {
  absl::string_view field;
  std::string found, wanted;
};

double NumParameters(const DecoderConfig& c) {
  const double hidden = static_cast<double>(c.hidden), head_dim = static_cast<double>(c.head_dim);
  const double ffn_matrices = c.activation == Activation::kSwiglu ? 3 : 2;
  const double attention = hidden * head_dim * static_cast<double>(2 * c.heads + 2 * c.kv_heads);
  const double experts = static_cast<double>(c.experts > 0 ? c.experts : 1);
  const double mlp =
      ffn_matrices * hidden * (experts * static_cast<double>(c.ffn) + static_cast<double>(c.shared_expert_ffn));
  const double with_experts = static_cast<double>(ExpertLayers(c)), layers = static_cast<double>(c.layers);
  return layers * attention + with_experts * mlp +
         (layers - with_experts) * ffn_matrices * hidden * static_cast<double>(c.dense_ffn) +
         2 * hidden * static_cast<double>(c.vocab + c.max_positions);
}

std::vector<Complaint> Complaints(const DecoderConfig& c, const Training& t) {
  std::vector<Complaint> found;
  const auto complain = [&](absl::string_view field, int64_t value, std::string wanted) {
    found.push_back({field, absl::StrCat(value), std::move(wanted)});
  };
  if (c.layers > kMostLayers) complain("layers", c.layers, absl::StrCat("at most ", kMostLayers));
  if (c.heads % c.kv_heads != 0) complain("kv_heads", c.kv_heads, absl::StrCat("a divisor of heads = ", c.heads));
  if (c.positions == Positions::kRotary && c.head_dim % 2 != 0) {
    complain("head_dim", c.head_dim, "an even number, since positions are rotary");
  }
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
  if (c.dense_layers >= c.layers) {
    complain("dense_layers", c.dense_layers, absl::StrCat("fewer than layers = ", c.layers));
  } else if ((c.layers - c.dense_layers) % c.expert_every != 0) {
    complain("expert_every", c.expert_every,
             absl::StrCat("a divisor of the ", c.layers - c.dense_layers,
                          c.dense_layers > 0 ? " layers behind the first dense ones" : " layers"));
  }
  if (NumParameters(c) > kMostParameters) complain("layers", c.layers, "a model of at most 2^50 parameters");
  const double tokens = static_cast<double>(t.batch) * static_cast<double>(t.sequence);
  const double qkv = static_cast<double>(c.heads + 2 * c.kv_heads) * static_cast<double>(c.head_dim);
  const double mlp = 2.0 * static_cast<double>(std::max({c.ffn, c.shared_expert_ffn, c.dense_ffn}));
  double widest = std::max({static_cast<double>(std::max(c.vocab, c.classes)), mlp, qkv});
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

// Builds the graph, segment by segment.
class DecoderBuilder {
 public:
  DecoderBuilder(const DecoderConfig& config, const Training& training, const std::string& name, int64_t rows)
      : c_(config), t_(training), b_(name), rows_(rows) {}

  absl::StatusOr<Graph> Build() {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId x, Embed());
    if (c_.dense_layers > 0) {
      b_.BeginSegment("dense_layers", c_.dense_layers);
      MESHWRIGHT_ASSIGN_OR_RETURN(x, DenseLayer("dense_", b_.BeginCarry(x)));
      MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    }
    b_.BeginSegment("layers", (c_.layers - c_.dense_layers) / c_.expert_every, c_.expert_every);
    x = b_.BeginCarry(x);
    for (int64_t i = 0; i + 1 < c_.expert_every; ++i) {
      MESHWRIGHT_ASSIGN_OR_RETURN(x, DenseLayer(absl::StrCat("dense", i, "_"), x));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(x, AttentionHalf(x));
    MESHWRIGHT_ASSIGN_OR_RETURN(x, c_.experts > 0 ? ExpertHalf(x) : MlpHalf(x, c_.ffn));
    MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    MESHWRIGHT_RETURN_IF_ERROR(Head(x));
    MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(b_.graph()));
    return std::move(b_).Build();
  }

 private:
  using OpSpec = GraphBuilder::OpSpec;

  static Initializer Constant(double value) {
    return Initializer{.kind = Initializer::Kind::kConstant, .value = value};
  }
  static Initializer Normal(double deviation) {
    return Initializer{.kind = Initializer::Kind::kNormal, .value = deviation};
  }
  // Trains unless there are adapters.
  TensorId Parameter(std::string name, Shape shape, Initializer init) {
    return b_.Parameter(std::move(name), t_.dtype, std::move(shape), init, /*trainable=*/!t_.lora.has_value());
  }
  TensorId Weight(std::string name, Shape shape) { return Parameter(std::move(name), std::move(shape), Normal(0.02)); }
  // A weight whose product is added to the residual stream.
  TensorId ResidualWeight(std::string name, Shape shape) {
    const double deviation = 0.02 / std::sqrt(2.0 * static_cast<double>(c_.layers));
    return Parameter(std::move(name), std::move(shape), Normal(deviation));
  }
  TensorId VocabularyWeight(std::string name) {
    const int64_t rows = (c_.vocab + c_.vocab_multiple - 1) / c_.vocab_multiple * c_.vocab_multiple;
    const TensorId id = Weight(std::move(name), {rows, c_.hidden});
    b_.mutable_graph().tensors[id.index()].padding = (rows - c_.vocab) * c_.hidden;
    return id;
  }
  TensorId Bias(std::string name, Shape shape) { return Parameter(std::move(name), std::move(shape), Constant(0)); }

  // A product of a layer, "x i, e i o -> x o": labels of rows, of what is added up, of columns, and of a weight for
  // each expert; sizes of the latter three.
  struct Product {
    std::string name, rows, inputs, columns, expert;
    Shape input_sizes, column_sizes, expert_sizes;

    Shape Sizes(const Shape& before, const Shape& after) const {
      Shape sizes = expert_sizes;
      sizes.insert(sizes.end(), before.begin(), before.end());
      sizes.insert(sizes.end(), after.begin(), after.end());
      return sizes;
    }
  };

  // What the product's adapter adds to it. A starts as PEFT's does, within one over the root of its inputs, B with 0,
  // so that the first step's is nothing.
  absl::StatusOr<TensorId> Adapt(const Product& p, TensorId in) {
    const Lora& lora = *t_.lora;
    double inputs = 1;
    for (const int64_t size : p.input_sizes) inputs *= static_cast<double>(size);
    const double most = 1 / std::sqrt(inputs);
    const auto part = [&](absl::string_view name, Shape shape, Initializer init) {
      return b_.Parameter(absl::StrCat(p.name, name), t_.dtype, std::move(shape), init);
    };
    const std::string a = absl::StrCat(p.name, ".lora_a"), b = absl::StrCat(p.name, ".lora_b");
    const TensorId down = part(".lora_a.weight", p.Sizes(p.input_sizes, {lora.rank}),
                               {.kind = Initializer::Kind::kUniform, .low = -most, .high = most});
    MESHWRIGHT_ASSIGN_OR_RETURN(
        TensorId narrow,
        b_.AddOne({.name = a,
                   .kind = OpKind::kMatMul,
                   .inputs = {in, down},
                   .rule = absl::StrCat(p.rows, " ", p.inputs, ", ", p.expert, p.inputs, " l -> ", p.rows, " l")}));
    if (lora.scale() != 1) {
      OpSpec scale{.name = absl::StrCat(p.name, ".lora_scale"), .kind = OpKind::kScale, .inputs = {narrow}};
      scale.rule = absl::StrCat(p.rows, " l -> ", p.rows, " l");
      scale.attrs.scale = lora.scale();
      MESHWRIGHT_ASSIGN_OR_RETURN(narrow, b_.AddOne(std::move(scale)));
    }
    const TensorId up = part(".lora_b.weight", p.Sizes({lora.rank}, p.column_sizes), Constant(0));
    return b_.AddOne({.name = b,
                      .kind = OpKind::kMatMul,
                      .inputs = {narrow, up},
                      .rule = absl::StrCat(p.rows, " l, ", p.expert, "l ", p.columns, " -> ", p.rows, " ", p.columns)});
  }

  // The product's result with that of its adapter.
  absl::StatusOr<TensorId> AddAdapter(const Product& p, TensorId in, TensorId result) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId adapted, Adapt(p, in));
    const std::string labels = absl::StrCat(p.rows, " ", p.columns);
    return b_.AddOne({.name = absl::StrCat(p.name, ".lora_add"),
                      .kind = OpKind::kAdd,
                      .inputs = {result, adapted},
                      .rule = absl::StrCat(labels, ", ", labels, " -> ", labels)});
  }

  absl::StatusOr<TensorId> Embed() {
    b_.BeginSegment("embed");
    Initializer ids{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(c_.vocab)};
    tokens_ = b_.Input("tokens", DType::kInt32, {rows_, t_.sequence}, ids);
    if (c_.classes > 0) ids.high = static_cast<double>(c_.classes);
    labels_ = b_.Input("labels", DType::kInt32, {rows_, t_.sequence}, ids);
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

  absl::StatusOr<TensorId> Normalize(const std::string& name, TensorId x) {
    OpSpec spec{.name = name, .kind = OpKind::kRmsNorm, .inputs = {x}, .rule = "s b h!, h! -> s b h!"};
    spec.attrs.epsilon = c_.norm_epsilon;
    spec.attrs.fused = t_.fused_norms || c_.norm == Norm::kLayerNorm;
    spec.recompute_group = "activation";
    spec.inputs.push_back(Parameter(absl::StrCat(name, ".gamma"), {c_.hidden}, Constant(1)));
    if (c_.norm == Norm::kLayerNorm) {
      spec.kind = OpKind::kLayerNorm;
      spec.rule = "s b h!, h!, h! -> s b h!";
      spec.inputs.push_back(Bias(absl::StrCat(name, ".beta"), {c_.hidden}));
    }
    return b_.AddOne(std::move(spec));
  }

  // residual + x (+ bias) + those of `more` that there are
  absl::StatusOr<TensorId> AddResidual(const std::string& name, TensorId x, TensorId residual, bool bias,
                                       std::initializer_list<TensorId> more = {}) {
    OpSpec spec{.name = name, .kind = OpKind::kAdd, .inputs = {x}, .rule = "s b h"};
    if (bias) {
      spec.rule += ", h";
      spec.inputs.push_back(Bias(absl::StrCat(name, ".bias"), {c_.hidden}));
    }
    for (const TensorId term : more) {
      if (!term.valid()) continue;
      spec.rule += ", s b h";
      spec.inputs.push_back(term);
    }
    spec.rule += ", s b h -> s b h";
    spec.inputs.push_back(residual);
    return b_.AddOne(std::move(spec));
  }

  absl::StatusOr<TensorId> AttentionHalf(TensorId x) {
    const int64_t queries = c_.heads / c_.kv_heads;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm1", x));
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
    if (c_.positions == Positions::kRotary) {
      OpSpec rotary{.name = "rotary", .kind = OpKind::kRotary, .inputs = {qkv}, .rule = "s b g r! d! -> s b g r! d!"};
      rotary.attrs.theta = c_.rope_theta;
      rotary.attrs.fused = t_.fused_norms;
      MESHWRIGHT_ASSIGN_OR_RETURN(qkv, b_.AddOne(std::move(rotary)));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId context, Attend(qkv, queries));
    // h first: the parallel optimizer splits dim 0, which heads seldom leave divisible.
    const TensorId weight = ResidualWeight("proj.weight", {c_.hidden, c_.kv_heads, queries, c_.head_dim});
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId projected, b_.AddOne({.name = "proj",
                                                                     .kind = OpKind::kMatMul,
                                                                     .inputs = {context, weight},
                                                                     .rule = "s b g q d, h g q d -> s b h"}));
    TensorId adapted;
    if (t_.lora.has_value() && t_.lora->proj) {
      const Product proj{"proj", "s b", "g q d", "h", "", {c_.kv_heads, queries, c_.head_dim}, {c_.hidden}, {}};
      MESHWRIGHT_ASSIGN_OR_RETURN(adapted, Adapt(proj, context));
    }
    return AddResidual("add1", projected, x, c_.bias, {adapted});
  }

  // The second output is what backward needs of the scores: their row sums in log form, or all the probabilities.
  absl::StatusOr<TensorId> Attend(TensorId qkv, int64_t queries) {
    OpSpec spec{.name = "attention", .kind = OpKind::kAttention, .inputs = {qkv}};
    spec.attrs.scale = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    spec.attrs.causal = true;
    spec.attrs.fused = t_.fused_attention;
    spec.recompute_group = "attention";
    const Shape context = {t_.sequence, rows_, c_.kv_heads, queries, c_.head_dim};
    Shape saved = {t_.sequence, rows_, c_.kv_heads, queries};
    if (t_.fused_attention) {
      spec.rule = "s! b g r! d! -> s! b g q! d!, s! b g q!";
      spec.output_dtypes = {t_.dtype, t_.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32};
    } else {
      saved.push_back(t_.sequence);
      spec.rule = "s! b g r! d! -> s! b g q! d!, s! b g q! t!";
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
    const bool gated = c_.activation == Activation::kSwiglu;
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
    OpSpec activation{.name = absl::StrCat(mlp.name, "activation"), .kind = OpKind::kGelu, .inputs = {}};
    activation.recompute_group = "activation";
    activation.attrs.fused = t_.fused_norms || !gated;
    if (mlp.bias) {
      product.inputs.push_back(Bias(absl::StrCat(name, ".bias"), bias_shape));
      product.rule = absl::StrCat(x, " h!, ", e, "h! ", columns, ", ", columns, " -> ", x, " ", columns);
    }
    if (gated) activation.kind = OpKind::kSwiglu;
    if (c_.activation == Activation::kRelu) activation.kind = OpKind::kRelu;
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

  // What a layer that every token goes through adds to the residual stream.
  struct Added {
    TensorId result, adapted;
  };
  absl::StatusOr<Added> Dense(TensorId in, const Mlp& mlp) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId active, Activate(in, mlp));
    const std::string name = absl::StrCat(mlp.name, "mlp2");
    const TensorId weight = ResidualWeight(absl::StrCat(name, ".weight"), {mlp.ffn, c_.hidden});
    Added added;
    MESHWRIGHT_ASSIGN_OR_RETURN(
        added.result,
        b_.AddOne({.name = name, .kind = OpKind::kMatMul, .inputs = {active, weight}, .rule = "s b f, f h -> s b h"}));
    if (t_.lora.has_value() && t_.lora->mlp2) {
      const Product product{name, "s b", "f", "h", "", {mlp.ffn}, {c_.hidden}, {}};
      MESHWRIGHT_ASSIGN_OR_RETURN(added.adapted, Adapt(product, active));
    }
    return added;
  }

  absl::StatusOr<TensorId> MlpHalf(TensorId x, int64_t ffn) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm2", x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Added y, Dense(normed, {.name = "", .ffn = ffn, .bias = c_.bias}));
    return AddResidual("add2", y.result, x, c_.bias, {y.adapted});
  }

  // A layer without experts in a model of experts. What it makes has names that begin with `prefix`.
  absl::StatusOr<TensorId> DenseLayer(const std::string& prefix, TensorId x) {
    const size_t first_op = b_.graph().ops.size(), first_tensor = b_.graph().tensors.size();
    MESHWRIGHT_ASSIGN_OR_RETURN(x, AttentionHalf(x));
    MESHWRIGHT_ASSIGN_OR_RETURN(x, MlpHalf(x, c_.dense_ffn));
    Graph& graph = b_.mutable_graph();
    for (size_t i = first_op; i < graph.ops.size(); ++i) graph.ops[i].name.insert(0, prefix);
    for (size_t i = first_tensor; i < graph.tensors.size(); ++i) graph.tensors[i].name.insert(0, prefix);
    return x;
  }

  void SetChoice(OpAttrs* attrs) const {
    attrs->top_k = c_.experts_per_token;
    attrs->choice_groups = c_.choice_groups;
    attrs->top_choice_groups = c_.choice_groups_per_token;
  }

  // Tokens go to slots of the experts that the router's logits name, and come back weighted by them.
  absl::StatusOr<TensorId> ExpertHalf(TensorId x) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm2", x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits,
                                b_.AddOne({.name = "router",
                                           .kind = OpKind::kMatMul,
                                           .inputs = {normed, Weight("router.weight", {c_.hidden, c_.experts})},
                                           .rule = "s b h, h e -> s b e"}));
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
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId y, b_.AddOne(std::move(combine)));
    if (c_.shared_expert_ffn == 0) return AddResidual("add2", y, x, false);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Added shared, Dense(normed, {.name = "shared_", .ffn = c_.shared_expert_ffn}));
    return AddResidual("add2", y, x, false, {shared.result, shared.adapted});
  }

  absl::Status Head(TensorId x) {
    b_.BeginSegment("head");
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId normed, Normalize("norm", x));
    // One of its own is new, and trains with adapters, too, as in PEFT's classifiers.
    const TensorId weight = c_.classes > 0       ? b_.Parameter("head", t_.dtype, {c_.classes, c_.hidden}, Normal(0.02))
                            : c_.tied_embeddings ? embedding_
                                                 : VocabularyWeight("head");
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
    OpSpec sums{.name = "exp_sum", .kind = OpKind::kExpSumAndPick, .inputs = {logits, max, labels_}};
    sums.rule = "s b v, s b, b s -> s b, s b";
    sums.output_dtypes = {exact, exact};
    sums.attrs.fused = t_.fused_loss;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> parts, b_.Add(std::move(sums)));
    OpSpec loss{.name = "loss", .kind = OpKind::kLossFromPartials, .inputs = {max, parts[0], parts[1]}};
    loss.rule = "s b, s b, s b -> ";
    const double terms = static_cast<double>(rows_) * static_cast<double>(t_.sequence);
    loss.attrs.scale = t_.loss_reduction == LossReduction::kMean ? 1 / terms : 1;
    loss.output_dtypes = {exact};
    loss.attrs.fused = t_.fused_loss;  // its gradient's, which takes its attributes over
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId value, b_.AddOne(std::move(loss)));
    b_.SetLoss(value);
    return absl::OkStatus();
  }

  const DecoderConfig& c_;
  const Training& t_;
  GraphBuilder b_;
  const int64_t rows_;
  TensorId tokens_, labels_, embedding_;
};

}  // namespace

int64_t ExpertLayers(const DecoderConfig& config) {
  return config.experts == 0 ? config.layers : (config.layers - config.dense_layers) / config.expert_every;
}

std::vector<std::string> LayerPrefixes(const DecoderConfig& config) {
  std::vector<std::string> prefixes = {""};
  if (config.dense_layers > 0) prefixes.push_back("dense_");
  for (int64_t i = 0; i + 1 < config.expert_every; ++i) prefixes.push_back(absl::StrCat("dense", i, "_"));
  return prefixes;
}

int64_t DefaultVocabMultiple(int64_t vocab) { return vocab < 1024 ? 1 : 128; }

absl::StatusOr<DecoderConfig> ReadDecoder(const NodeRef& in, const Training& training) {
  constexpr int64_t kMost = int64_t{1} << 24;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"hidden",
                                           "layers",
                                           "heads",
                                           "kv_heads",
                                           "head_dim",
                                           "ffn",
                                           "vocab",
                                           "vocab_multiple",
                                           "classes",
                                           "max_positions",
                                           "activation",
                                           "norm",
                                           "positions",
                                           "tied_embeddings",
                                           "bias",
                                           "qkv_bias",
                                           "experts",
                                           "experts_per_token",
                                           "shared_expert_ffn",
                                           "dense_layers",
                                           "dense_ffn",
                                           "expert_every",
                                           "choice_groups",
                                           "choice_groups_per_token",
                                           "capacity_factor",
                                           "rope_theta",
                                           "norm_epsilon"}));
  DecoderConfig c;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, in["hidden"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, in["layers"].AsInt(1, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, in["heads"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, in["kv_heads"].AsIntOr(c.heads, 1, kMost));
  if (!in["head_dim"].present() && c.hidden % c.heads != 0) {
    return in["heads"].Error(absl::StrCat(c.heads), absl::StrCat("a divisor of hidden = ", c.hidden),
                             "or write head_dim");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, in["head_dim"].AsIntOr(c.hidden / c.heads, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, in["ffn"].AsIntOr(4 * c.hidden, 1, 4 * kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, in["vocab"].AsInt(2, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab_multiple,
                              in["vocab_multiple"].AsIntOr(DefaultVocabMultiple(c.vocab), 1, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.classes, in["classes"].AsIntOr(0, 2, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.activation, in["activation"].AsEnumOr(c.activation, kActivationNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm, in["norm"].AsEnumOr(c.norm, kNormNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.positions, in["positions"].AsEnumOr(c.positions, kPositionsNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.max_positions, in["max_positions"].AsIntOr(training.sequence, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, in["tied_embeddings"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.bias, in["bias"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.qkv_bias, in["qkv_bias"].AsBoolOr(c.bias));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, in["experts"].AsIntOr(0, 2, 1 << 16));
  if (c.experts > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, in["experts_per_token"].AsInt(1, 1 << 16));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, in["shared_expert_ffn"].AsIntOr(0, 0, 4 * kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.dense_layers, in["dense_layers"].AsIntOr(0, 0, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.expert_every, in["expert_every"].AsIntOr(1, 1, kMostLayers));
  const bool dense = c.dense_layers > 0 || c.expert_every > 1;
  const int64_t of_token = c.experts_per_token * c.ffn + c.shared_expert_ffn;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.dense_ffn, in["dense_ffn"].AsIntOr(dense ? of_token : 0, 1, 4 * kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups, in["choice_groups"].AsIntOr(1, 1, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups_per_token, in["choice_groups_per_token"].AsIntOr(1, 1, 1 << 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.capacity_factor, in["capacity_factor"].AsDoubleOr(c.capacity_factor, 0.01, 1024));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, in["rope_theta"].AsDoubleOr(c.rope_theta, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, in["norm_epsilon"].AsDoubleOr(c.norm_epsilon, 0, 1));
  for (const absl::string_view field :
       {"experts_per_token", "shared_expert_ffn", "choice_groups", "choice_groups_per_token", "capacity_factor",
        "dense_layers", "dense_ffn", "expert_every"}) {
    if (c.experts == 0 && in[field].present()) return in[field].Error("it without experts", "`experts` beside it");
  }
  if (!dense && in["dense_ffn"].present()) {
    return in["dense_ffn"].Error("it without layers that have no experts",
                                 "`dense_layers` or `expert_every` beside it");
  }
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

absl::StatusOr<Graph> BuildDecoder(const DecoderConfig& config, const Training& training, const std::string& name,
                                   int64_t rows) {
  return DecoderBuilder(config, training, name, rows).Build();
}

int64_t IdleParameters(const DecoderConfig& config, const Training& training) {
  const int64_t wide = config.activation == Activation::kSwiglu ? 2 : 1;  // matrices of the first product
  int64_t expert = (wide + 1) * config.hidden * config.ffn;
  if (training.lora.has_value()) {
    if (training.lora->mlp1) expert += training.lora->rank * (config.hidden + wide * config.ffn);
    if (training.lora->mlp2) expert += training.lora->rank * (config.ffn + config.hidden);
  }
  return ExpertLayers(config) * (config.experts - config.experts_per_token) * expert;
}

int64_t ExpertCapacity(const DecoderConfig& config, int64_t tokens, int64_t rows) {
  const double share = static_cast<double>(tokens) * static_cast<double>(config.experts_per_token) *
                       config.capacity_factor / static_cast<double>(config.experts);
  return static_cast<int64_t>(std::ceil(share / static_cast<double>(rows))) * rows;
}

}  // namespace meshwright
