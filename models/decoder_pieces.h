// What a decoder's graph is built of: weights with their first values, products with their adapters, norms. Used by
// decoder.cc. Values are (s, b, h) or what `rule` says; the first errors of the graph's builder are returned.
//
// Thread safety: none; each graph has a builder of its own.
#ifndef MESHWRIGHT_MODELS_DECODER_PIECES_H_
#define MESHWRIGHT_MODELS_DECODER_PIECES_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/status.h"
#include "models/decoder.h"
#include "models/training.h"

namespace meshwright {

class DecoderPieces {
 protected:
  // `training` must outlive this.
  DecoderPieces(DecoderConfig config, const Training& training, const std::string& name, int64_t rows)
      : c_(std::move(config)), t_(training), b_(name), rows_(rows) {}

  using OpSpec = GraphBuilder::OpSpec;

  static Initializer Constant(double value) {
    return Initializer{.kind = Initializer::Kind::kConstant, .value = value};
  }
  static Initializer Normal(double deviation) {
    return Initializer{.kind = Initializer::Kind::kNormal, .value = deviation};
  }
  // Trains unless there are adapters.
  TensorId Parameter(std::string name, DType dtype, Shape shape, Initializer init) {
    return b_.Parameter(std::move(name), dtype, std::move(shape), init, /*trainable=*/!t_.lora.has_value());
  }
  TensorId Parameter(std::string name, Shape shape, Initializer init) {
    return Parameter(std::move(name), t_.dtype, std::move(shape), init);
  }
  // A table of the vocabulary or of positions, a router, a gate of an expert.
  TensorId Table(std::string name, Shape shape) { return Parameter(std::move(name), std::move(shape), Normal(0.02)); }
  // What a product of a layer reads.
  TensorId Weight(std::string name, Shape shape) {
    return Parameter(std::move(name), t_.TypeOfWeights(), std::move(shape), Normal(0.02));
  }
  // A weight whose product is added to the residual stream.
  TensorId ResidualWeight(std::string name, Shape shape) {
    const double halves = (c_.layer_pattern.empty() ? 2.0 : 1.0) * static_cast<double>(c_.layers);
    const double deviation = 0.02 / std::sqrt(halves);
    return Parameter(std::move(name), t_.TypeOfWeights(), std::move(shape), Normal(deviation));
  }
  TensorId VocabularyWeight(std::string name) {
    const int64_t rows = (c_.vocab + c_.vocab_multiple - 1) / c_.vocab_multiple * c_.vocab_multiple;
    const TensorId id = Table(std::move(name), {rows, c_.hidden});
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

  absl::StatusOr<TensorId> Times(std::string name, TensorId in, std::string rule, Shape weight) {
    const TensorId id = Weight(absl::StrCat(name, ".weight"), std::move(weight));
    return b_.AddOne({.name = std::move(name), .kind = OpKind::kMatMul, .inputs = {in, id}, .rule = std::move(rule)});
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

  absl::StatusOr<TensorId> NormalizeLatent(const std::string& name, TensorId x, const char* width, int64_t size) {
    OpSpec spec{.name = name, .kind = OpKind::kRmsNorm, .inputs = {x}};
    spec.rule = absl::StrCat("s b ", width, "!, ", width, "! -> s b ", width, "!");
    spec.attrs.epsilon = c_.norm_epsilon;
    spec.attrs.fused = t_.fused_norms;
    spec.recompute_group = "activation";
    spec.inputs.push_back(Parameter(absl::StrCat(name, ".gamma"), {size}, Constant(1)));
    return b_.AddOne(std::move(spec));
  }

  const DecoderConfig c_;
  const Training& t_;
  GraphBuilder b_;
  const int64_t rows_;  // of a micro-batch
};

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_DECODER_PIECES_H_
