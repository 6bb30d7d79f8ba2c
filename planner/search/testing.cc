#include "planner/search/testing.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

Initializer Normal(double deviation) { return {.kind = Initializer::Kind::kNormal, .value = deviation}; }

class Builder {
 public:
  Builder(const ToyDecoder& sizes, int64_t rows) : c_(sizes), rows_(rows), b_("toy decoder") {}

  absl::StatusOr<Graph> Build() {
    b_.BeginSegment("embed");
    const Initializer ids{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(c_.vocab)};
    const TensorId tokens = b_.Input("tokens", DType::kInt32, {rows_, c_.sequence}, ids);
    const TensorId labels = b_.Input("labels", DType::kInt32, {rows_, c_.sequence}, ids);
    const TensorId embedding = Weight("embedding", {c_.vocab, c_.hidden});
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId x, Add("embed", OpKind::kGather, {embedding, tokens}, "v h, b s -> s b h"));
    if (c_.dense_layers > 0) {
      b_.BeginSegment("dense_layers", c_.dense_layers);
      x = b_.BeginCarry(x);
      MESHWRIGHT_ASSIGN_OR_RETURN(x, DenseLayer("dense_", x));
      MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    }
    b_.BeginSegment("layers", c_.unrolled ? 1 : (c_.layers - c_.dense_layers) / c_.expert_every);
    if (!c_.unrolled) x = b_.BeginCarry(x);
    for (int64_t i = 0; i + 1 < c_.expert_every; ++i) {
      MESHWRIGHT_ASSIGN_OR_RETURN(x, DenseLayer(absl::StrCat("dense", i, "_"), x));
      if (!c_.unrolled) b_.EndLayer(x);
    }
    for (int64_t layer = 0; layer < (c_.unrolled ? c_.layers : 1); ++layer) {
      prefix_ = c_.unrolled ? absl::StrCat("layer", layer, ".") : "";
      MESHWRIGHT_ASSIGN_OR_RETURN(x, Attention(x));
      MESHWRIGHT_ASSIGN_OR_RETURN(x, c_.experts > 0 ? Experts(x) : Mlp(x));
    }
    prefix_.clear();
    if (!c_.unrolled) {
      MESHWRIGHT_ASSIGN_OR_RETURN(x, b_.EndCarry(x));
    }
    b_.BeginSegment("head");
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Normalize("norm", x));
    const TensorId head = c_.tied ? embedding : Weight("head", {c_.vocab, c_.hidden});
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits,
                                Add("logits", OpKind::kMatMul, {x, head}, "s b h, v h -> s b v"));
    return Loss(logits, labels);
  }

 private:
  using OpSpec = GraphBuilder::OpSpec;

  TensorId Weight(std::string name, Shape shape) {
    return b_.Parameter(prefix_ + std::move(name), c_.dtype, std::move(shape), Normal(0.02));
  }
  absl::StatusOr<TensorId> Add(std::string name, OpKind kind, std::vector<TensorId> inputs, std::string rule,
                               std::string group = "") {
    return b_.AddOne({.name = prefix_ + std::move(name),
                      .kind = kind,
                      .inputs = std::move(inputs),
                      .rule = std::move(rule),
                      .recompute_group = std::move(group)});
  }
  absl::StatusOr<TensorId> Normalize(const std::string& name, TensorId x) {
    return Add(name, OpKind::kRmsNorm, {x, Weight(name + ".gamma", {c_.hidden})}, "s b h!, h! -> s b h!", "activation");
  }

  absl::StatusOr<TensorId> DenseLayer(std::string prefix, TensorId x) {
    prefix_ = std::move(prefix);
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Attention(x));
    return Mlp(x);
  }
  absl::StatusOr<TensorId> Attention(TensorId in) {
    const int64_t size = c_.hidden / c_.heads;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, Normalize("norm1", in));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId qkv,
                                Add("qkv", OpKind::kMatMul, {x, Weight("qkv.weight", {c_.hidden, c_.heads, 3, size})},
                                    "s b h, h g r d -> s b g r d"));
    OpSpec attention{.name = prefix_ + "attention", .kind = OpKind::kAttention, .inputs = {qkv}};
    attention.rule = "s! b g r! d! -> s! b g q! d!, s! b g q!";
    attention.attrs.scale = 1 / std::sqrt(static_cast<double>(size));
    attention.output_shapes = {{c_.sequence, rows_, c_.heads, 1, size}, {c_.sequence, rows_, c_.heads, 1}};
    attention.output_dtypes = {c_.dtype, DType::kFloat32};
    attention.recompute_group = "attention";
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> context, b_.Add(std::move(attention)));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const TensorId y,
        Add("proj", OpKind::kMatMul, {context[0], Weight("proj.weight", {c_.heads, 1, size, c_.hidden})},
            "s b g q d, g q d h -> s b h"));
    return Add("add1", OpKind::kAdd, {y, in}, "s b h, s b h -> s b h");
  }

  absl::StatusOr<TensorId> Mlp(TensorId in) {
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId x, Normalize("norm2", in));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        x, Add("mlp1", OpKind::kMatMul, {x, Weight("mlp1.weight", {c_.hidden, c_.ffn})}, "s b h, h f -> s b f"));
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Add("gelu", OpKind::kGelu, {x}, "s b f -> s b f", "activation"));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        x, Add("mlp2", OpKind::kMatMul, {x, Weight("mlp2.weight", {c_.ffn, c_.hidden})}, "s b f, f h -> s b h"));
    return Add("add2", OpKind::kAdd, {x, in}, "s b h, s b h -> s b h");
  }

  // A quarter more slots than tokens, as many for each row.
  absl::StatusOr<TensorId> Experts(TensorId in) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, Normalize("norm2", in));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const TensorId logits,
        Add("router", OpKind::kMatMul, {x, Weight("router.weight", {c_.hidden, c_.experts})}, "s b h, h e -> s b e"));
    OpSpec dispatch{.name = prefix_ + "dispatch", .kind = OpKind::kDispatch, .inputs = {x, logits}};
    dispatch.rule = "s! b h, s! b e! -> x =b h";
    dispatch.attrs.top_k = c_.top_k;
    dispatch.output_shapes = {{c_.experts, c_.sequence * c_.top_k * 5 / 4 / c_.experts * rows_, c_.hidden}};
    MESHWRIGHT_ASSIGN_OR_RETURN(TensorId y, b_.AddOne(std::move(dispatch)));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        y, Add("mlp1", OpKind::kMatMul, {y, Weight("mlp1.weight", {c_.experts, c_.hidden, c_.ffn})},
               "e c h, e h f -> e c f"));
    MESHWRIGHT_ASSIGN_OR_RETURN(y, Add("gelu", OpKind::kGelu, {y}, "e c f -> e c f", "activation"));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        y, Add("mlp2", OpKind::kMatMul, {y, Weight("mlp2.weight", {c_.experts, c_.ffn, c_.hidden})},
               "e c f, e f h -> e c h"));
    OpSpec combine{.name = prefix_ + "combine", .kind = OpKind::kCombine, .inputs = {y, logits}};
    combine.rule = "x =b h, s! b e! -> s! b h";
    combine.attrs.top_k = c_.top_k;
    MESHWRIGHT_ASSIGN_OR_RETURN(y, b_.AddOne(std::move(combine)));
    return Add("add2", OpKind::kAdd, {y, in}, "s b h, s b h -> s b h");
  }

  absl::StatusOr<Graph> Loss(TensorId logits, TensorId labels) {
    OpSpec max{.name = "row_max", .kind = OpKind::kRowMax, .inputs = {logits}, .rule = "s b v -> s b"};
    max.output_dtypes = {DType::kFloat32};
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId row_max, b_.AddOne(std::move(max)));
    OpSpec sums{.name = "exp_sum", .kind = OpKind::kExpSumAndPick, .inputs = {logits, row_max, labels}};
    sums.rule = "s b v, s b, b s -> s b, s b";
    sums.output_dtypes = {DType::kFloat32, DType::kFloat32};
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> parts, b_.Add(std::move(sums)));
    OpSpec loss{.name = "loss", .kind = OpKind::kLossFromPartials, .inputs = {row_max, parts[0], parts[1]}};
    loss.rule = "s b, s b, s b -> ";
    loss.attrs.scale = 1 / static_cast<double>(rows_ * c_.sequence);
    loss.output_dtypes = {DType::kFloat32};
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId value, b_.AddOne(std::move(loss)));
    b_.SetLoss(value);
    MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(b_.graph()));
    return std::move(b_).Build();
  }

  const ToyDecoder& c_;
  const int64_t rows_;
  GraphBuilder b_;
  std::string prefix_;  // of the layer
};

}  // namespace

absl::StatusOr<Graph> BuildToyDecoder(const ToyDecoder& sizes, int64_t rows) { return Builder(sizes, rows).Build(); }

Problem ToyDecoderProblem(const ToyDecoder& sizes, int64_t batch, Cluster cluster) {
  Problem problem;
  problem.name = "toy decoder";
  problem.graph = [sizes](int64_t rows) { return BuildToyDecoder(sizes, rows); };
  problem.batch = batch;
  problem.tokens_per_row = sizes.sequence;
  problem.update.kind = OpKind::kAdamW;
  problem.cluster = std::move(cluster);
  return problem;
}

ToyDecoder Gpt3() {
  return {.layers = 96, .hidden = 12288, .heads = 96, .ffn = 49152, .vocab = 51200, .sequence = 2048, .tied = true};
}

absl::StatusOr<Graph> BuildChain() {
  GraphBuilder b("chain");
  b.BeginSegment("model");
  const DType f = DType::kFloat32;
  const TensorId x = b.Input("x", f, {64, 128}, {});
  const TensorId w1 = b.Parameter("w1", f, {128, 64}, {}), w2 = b.Parameter("w2", f, {64, 64}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(
      TensorId y, b.AddOne({.name = "matmul1", .kind = OpKind::kMatMul, .inputs = {x, w1}, .rule = "m k, k n -> m n"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(y, b.AddOne({.name = "relu", .kind = OpKind::kRelu, .inputs = {y}}));
  MESHWRIGHT_RETURN_IF_ERROR(
      b.AddOne({.name = "matmul2", .kind = OpKind::kMatMul, .inputs = {y, w2}, .rule = "m k, k n -> m n"}).status());
  return std::move(b).Build();
}

absl::StatusOr<Graph> BuildFeedForward() {
  GraphBuilder b("ffn");
  b.BeginSegment("model");
  const DType f = DType::kFloat32;
  const TensorId x = b.Input("x", f, {256, 784}, {});
  const TensorId w = b.Parameter("w", f, {784, 64}, {}), bias = b.Parameter("bias", f, {64}, {});
  const TensorId w2 = b.Parameter("w2", f, {64, 10}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(
      TensorId y, b.AddOne({.name = "matmul", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k n -> m n"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(y, b.AddOne({.name = "add", .kind = OpKind::kAdd, .inputs = {y, bias}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(y, b.AddOne({.name = "relu", .kind = OpKind::kRelu, .inputs = {y}}));
  MESHWRIGHT_RETURN_IF_ERROR(
      b.AddOne({.name = "matmul2", .kind = OpKind::kMatMul, .inputs = {y, w2}, .rule = "m k, k n -> m n"}).status());
  return std::move(b).Build();
}

absl::StatusOr<Graph> BuildSeedB(int64_t rows) {
  GraphBuilder b("seed b");
  b.BeginSegment("model");
  const DType f = DType::kFloat32;
  const TensorId x = b.Input("x", f, {rows, 32}, Normal(1));
  const TensorId y = b.Input("y", f, {rows, 16}, Normal(1));
  const TensorId w = b.Parameter("w", f, {32, 16}, Normal(0.1));
  const TensorId w2 = b.Parameter("w2", f, {16, 16}, Normal(0.1));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const TensorId h,
      b.AddOne({.name = "matmul", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k n -> m n"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId r, b.AddOne({.name = "relu", .kind = OpKind::kRelu, .inputs = {h}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const TensorId p,
      b.AddOne({.name = "matmul2", .kind = OpKind::kMatMul, .inputs = {r, w2}, .rule = "m k, k n -> m n"}));
  OpAttrs attrs;
  attrs.scale = 1.0 / static_cast<double>(rows * 16);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId loss,
                              b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {p, y}, .attrs = attrs}));
  b.SetLoss(loss);
  MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(b.graph()));
  return std::move(b).Build();
}

}  // namespace meshwright
