#include "tests/property/random_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "tests/property/random_model_maker.h"

namespace meshwright {

absl::StatusOr<Graph> ModelMaker::Run() {
  switch (options_.form) {
    case ModelForm::kFlat:
      b_.BeginSegment("model");
      MESHWRIGHT_RETURN_IF_ERROR(Start());
      MESHWRIGHT_RETURN_IF_ERROR(Ops(1 + draw_.Below(7)));
      break;
    case ModelForm::kLayers:
      MESHWRIGHT_RETURN_IF_ERROR(Layers());
      break;
    case ModelForm::kSegments:
      for (int64_t s = 0; s < options_.num_stages; ++s) {
        b_.BeginSegment(absl::StrCat("part", s));
        b_.mutable_graph().segments.back().stage = s;
        if (s == 0) MESHWRIGHT_RETURN_IF_ERROR(Start());
        MESHWRIGHT_RETURN_IF_ERROR(Ops(1 + draw_.Below(3)));
      }
      break;
  }
  MESHWRIGHT_RETURN_IF_ERROR(Loss());
  MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(b_.graph()));
  return std::move(b_).Build();
}

std::string ModelMaker::FreshLabel(const Names& taken) {
  const Names candidates = {"h", "k", "n", "f", "s", "g", "u", "v", "w"};
  for (;;) {
    const std::string& name = draw_.Of(candidates);
    if (!absl::c_linear_search(taken, name)) return name;
  }
}

OpAttrs ModelMaker::Scaled(double scale) {
  OpAttrs attrs;
  attrs.scale = scale;
  return attrs;
}

absl::StatusOr<TensorId> ModelMaker::AddOp(OpKind kind, std::vector<TensorId> inputs, std::string rule, OpAttrs attrs,
                                           std::vector<Shape> output_shapes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                              AddOps(kind, std::move(inputs), std::move(rule), attrs, std::move(output_shapes)));
  return outputs[0];
}

absl::StatusOr<std::vector<TensorId>> ModelMaker::AddOps(OpKind kind, std::vector<TensorId> inputs, std::string rule,
                                                         OpAttrs attrs, std::vector<Shape> output_shapes) {
  OpSpec spec{.name = Fresh(std::string(NameOf(kind))), .kind = kind, .inputs = std::move(inputs)};
  spec.rule = std::move(rule);
  spec.attrs = attrs;
  spec.output_shapes = std::move(output_shapes);
  if (draw_.Chance(40)) spec.recompute_group = "some";
  return b_.Add(std::move(spec));
}

absl::Status ModelMaker::Push(const absl::StatusOr<TensorId>& made, Names names, int degree) {
  MESHWRIGHT_RETURN_IF_ERROR(made.status());
  pool_.push_back({*made, std::move(names), degree});
  return absl::OkStatus();
}

absl::Status ModelMaker::Push(const absl::StatusOr<TensorId>& made, Names names) {
  return Push(made, std::move(names), pool_.empty() ? 1 : pool_.back().degree);
}

absl::Status ModelMaker::Start() {
  if (draw_.Chance(40)) return draw_.Chance(25) ? OneHots() : Embed();
  Names names = {"b"};
  Shape shape = {options_.rows};
  for (int64_t dims = 1 + draw_.Below(2); dims > 0; --dims) {
    names.push_back(FreshLabel(names));
    shape.push_back(Extent());
  }
  const TensorId x = b_.Input(Fresh("x"), kReal, shape, Uniform(-1, 1));
  pool_.push_back({x, names, 1});
  return Product();
}

absl::Status ModelMaker::OneHots() {
  const int64_t vocab = 12, hidden = draw_.Of(std::vector<int64_t>{4, 6, 8});
  const Initializer tokens{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(vocab)};
  const TensorId ids = b_.Input(Fresh("ids"), DType::kInt32, {options_.rows, 4}, tokens);
  OpSpec spec{.name = Fresh("OneHot"), .kind = OpKind::kOneHot, .inputs = {ids}};
  spec.rule = "b s -> b s v";
  spec.output_shapes = {{options_.rows, 4, vocab}};
  spec.output_dtypes = {kReal};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId ones, b_.AddOne(std::move(spec)));
  return Push(AddOp(OpKind::kMatMul, {ones, Weight({vocab, hidden}, Normal(1))}, "b s v, v h -> b s h"),
              {"b", "s", "h"});
}

absl::Status ModelMaker::Embed() {
  const int64_t vocab = 12, hidden = draw_.Of(std::vector<int64_t>{4, 8, 12}), sequence = 4;
  const Initializer tokens{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(vocab)};
  const TensorId ids = b_.Input(Fresh("ids"), DType::kInt32, {options_.rows, sequence}, tokens);
  table_ = Weight({vocab, hidden}, Normal(1));
  const bool rows_first = options_.form != ModelForm::kLayers && draw_.Chance(50);
  const Names names = rows_first ? Names{"b", "s", "h"} : Names{"s", "b", "h"};
  return Push(AddOp(OpKind::kGather, {table_, ids}, absl::StrCat("v h, b s -> ", absl::StrJoin(names, " "))), names);
}

absl::Status ModelMaker::Layers() {
  b_.BeginSegment("embed");
  MESHWRIGHT_RETURN_IF_ERROR(Embed());
  if (draw_.Chance(30)) MESHWRIGHT_RETURN_IF_ERROR(Push(AddOp(OpKind::kTanh, {pool_.back().id}), {"s", "b", "h"}));
  const Value start = pool_.back();
  if (draw_.Chance(40)) common_ = Weight({ShapeOf(start.id)[2], 8}, Normal(0.3));
  int64_t layers = 2 + draw_.Below(3);
  b_.BeginSegment("layers", layers);
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId out, StackOf(start, 1));
  // Layers of other kinds behind them, as many or not. Masks are drawn by the number of a layer in one segment.
  // Five in all: each adds to what rounding leaves.
  for (int64_t kind = 0; layers < 5 && !options_.has_masks && draw_again_.Chance(60); ++kind) {
    const int64_t more = std::min(5 - layers, 1 + draw_again_.Below(3));
    layers += more;
    b_.BeginSegment(absl::StrCat("layers", kind), more);
    const Value from = {out, start.names, 1};
    MESHWRIGHT_ASSIGN_OR_RETURN(out, StackOf(from, 1 + draw_again_.Below(2), /*bounded=*/true));
  }
  b_.BeginSegment("head");
  pool_.clear();
  if (draw_.Chance(50)) pool_.push_back(start);
  pool_.push_back({out, start.names, 1});
  return Ops(1 + draw_.Below(2));
}

absl::StatusOr<TensorId> ModelMaker::StackOf(const Value& from, int64_t in_run, bool bounded) {
  pool_.push_back({b_.BeginCarry(from.id), from.names, 1});
  for (int64_t layer = 0; layer < in_run; ++layer) {
    if (layer > 0) b_.EndLayer(pool_.back().id);
    MESHWRIGHT_RETURN_IF_ERROR(Layer(pool_.back(), bounded));
  }
  return b_.EndCarry(pool_.back().id);
}

absl::Status ModelMaker::Layer(Value in, bool bounded) {
  for (int64_t n = 1 + draw_.Below(2); n > 0; --n) MESHWRIGHT_RETURN_IF_ERROR(Preserving());
  if (draw_.Chance(70)) MESHWRIGHT_RETURN_IF_ERROR(Push(AddOp(OpKind::kAdd, {pool_.back().id, in.id}), in.names));
  if (pool_.back().id == in.id) MESHWRIGHT_RETURN_IF_ERROR(Activation());
  if (bounded) {
    const TensorId gamma = Weight({ShapeOf(in.id)[2]}, Normal(1));
    MESHWRIGHT_RETURN_IF_ERROR(
        Push(AddOp(OpKind::kRmsNorm, {pool_.back().id, gamma}, "s b h!, h! -> s b h!"), in.names));
  }
  return absl::OkStatus();
}

absl::Status ModelMaker::Loss() {
  if (table_.valid() && pool_.back().names == Names{"s", "b", "h"} && draw_.Chance(50) &&
      ShapeOf(pool_.back().id)[2] == ShapeOf(table_)[1]) {
    // The embedding is used again, as tied embeddings are.
    MESHWRIGHT_RETURN_IF_ERROR(
        Push(AddOp(OpKind::kMatMul, {pool_.back().id, table_}, "s b h, v h -> s b v"), {"s", "b", "v"}));
  }
  Value x = pool_.back();
  const bool rows_second = x.names == Names{"s", "b", "v"} && ShapeOf(x.id)[2] > 1;
  if (const auto rows = absl::c_find(x.names, "b"); !rows_second && rows != x.names.end() && rows != x.names.begin()) {
    Names result = x.names;
    result.erase(absl::c_find(result, "b"));
    result.insert(result.begin(), "b");
    MESHWRIGHT_RETURN_IF_ERROR(TransposeTo(x, result));
    x = pool_.back();
  }
  const Shape shape = ShapeOf(x.id);
  if (shape.size() < 2 || shape.back() < 2 || (!rows_second && draw_.Chance(50))) return SquaredError(x);
  return CrossEntropy(x, rows_second);
}

absl::Status ModelMaker::SquaredError(const Value& x) {
  const Shape shape = ShapeOf(x.id);
  if (absl::c_linear_search(x.names, "b") && x.names[0] != "b") return absl::InternalError("rows come first");
  const TensorId y = b_.Input(Fresh("y"), kReal, shape, Uniform(-1, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const TensorId loss, AddOp(OpKind::kMseLoss, {x.id, y}, "", Scaled(1 / static_cast<double>(NumElements(shape)))));
  b_.SetLoss(loss);
  return absl::OkStatus();
}

absl::Status ModelMaker::CrossEntropy(const Value& x, bool rows_second) {
  const Shape shape = ShapeOf(x.id);
  Shape label_shape(shape.begin(), shape.end() - 1);
  if (rows_second) std::swap(label_shape[0], label_shape[1]);
  const Initializer ids{.kind = Initializer::Kind::kTokens, .high = static_cast<double>(shape.back())};
  const TensorId labels = b_.Input(Fresh("labels"), DType::kInt32, label_shape, ids);
  const OpAttrs attrs = Scaled(1 / static_cast<double>(NumElements(label_shape)));
  TensorId loss;
  if (draw_.Chance(40)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(
        loss, AddOp(OpKind::kCrossEntropy, {x.id, labels}, rows_second ? "s b v!, b s -> " : "", attrs));
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId max, AddOp(OpKind::kRowMax, {x.id}));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const std::vector<TensorId> sums,
        AddOps(OpKind::kExpSumAndPick, {x.id, max, labels}, rows_second ? "s b v, s b, b s -> s b, s b" : "", {}, {}));
    MESHWRIGHT_ASSIGN_OR_RETURN(loss, AddOp(OpKind::kLossFromPartials, {max, sums[0], sums[1]}, "", attrs));
  }
  b_.SetLoss(loss);
  return absl::OkStatus();
}

absl::StatusOr<Graph> RandomModel(uint64_t seed, const ModelOptions& options) {
  return ModelMaker(seed, options).Run();
}

}  // namespace meshwright
