#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/rows_label.h"
#include "ir/status.h"
#include "tests/property/random_model_maker.h"

namespace meshwright {
namespace {

constexpr int kMaxDegree = 3;
constexpr int64_t kRowsOfMost = 48;

}  // namespace

absl::Status ModelMaker::Ops(int64_t count) {
  while (count > 0) {
    if (draw_.Chance(20))
      std::swap(pool_[static_cast<size_t>(draw_.Below(static_cast<int64_t>(pool_.size())))], pool_.back());
    const size_t before = b_.graph().ops.size();
    MESHWRIGHT_RETURN_IF_ERROR(OneOp());
    if (b_.graph().ops.size() > before) --count;
  }
  return absl::OkStatus();
}

absl::Status ModelMaker::OneOp() {
  switch (draw_.Below(19)) {
    case 0:
    case 1:
    case 2:
      return Product();
    case 3:
      return SelfProduct();
    case 4:
    case 5:
      return Binary();
    case 6:
    case 7:
      return Activation();
    case 8:
    case 9:
      return Rows();
    case 10:
      return Sum();
    case 11:
      return Transpose();
    case 12:
      return Reshape();
    case 13:
      return draw_.Chance(40) ? Gated() : Simple();
    case 14:
      return Positions();
    case 15:
      return Joined();
    case 16:
      return Parts();
    case 17:
      return Piece();
    default:
      return IsStream(pool_.back()) ? Preserving() : Activation();
  }
}

std::optional<size_t> ModelMaker::OwnDim(const Value& x) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < x.names.size(); ++d) {
    if (!Fixed(x.names[d])) dims.push_back(d);
  }
  if (dims.empty()) return {};
  return draw_.Of(dims);
}

std::string ModelMaker::WithOwn(const Value& x, size_t own, const std::string& name) {
  Names names = x.names;
  names[own] = absl::StrCat(name, "!");
  return absl::StrJoin(names, " ");
}

absl::Status ModelMaker::Joined() {
  const Value x = pool_.back();
  const std::optional<size_t> d = OwnDim(x);
  if (!d.has_value() || ShapeOf(x.id)[*d] > 12) return absl::OkStatus();
  std::vector<TensorId> inputs = {x.id};
  int degree = x.degree;
  for (const Value& other : pool_) {
    Shape expected = ShapeOf(x.id);
    if (other.names != x.names || inputs.size() == 3) continue;
    expected[*d] = ShapeOf(other.id)[*d];
    if (ShapeOf(other.id) != expected || expected[*d] > 12) continue;
    inputs.push_back(other.id);  // x itself at the latest
    degree = std::max(degree, other.degree);
  }
  Names rules;
  Shape shape = ShapeOf(x.id);
  shape[*d] = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    rules.push_back(WithOwn(x, *d, absl::StrCat("x", i)));
    shape[*d] += ShapeOf(inputs[i])[*d];
  }
  return Push(AddOp(OpKind::kConcat, inputs, absl::StrCat(absl::StrJoin(rules, ", "), " -> ", WithOwn(x, *d, "y")), {},
                    {shape}),
              x.names, degree);
}

absl::Status ModelMaker::Parts() {
  const Value x = pool_.back();
  const std::optional<size_t> d = OwnDim(x);
  if (!d.has_value() || ShapeOf(x.id)[*d] < 2) return absl::OkStatus();
  std::vector<Shape> shapes(2, ShapeOf(x.id));
  shapes[0][*d] = 1 + draw_.Below(shapes[0][*d] - 1);
  shapes[1][*d] -= shapes[0][*d];
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const std::vector<TensorId> parts,
      AddOps(OpKind::kSplit, {x.id},
             absl::StrCat(WithOwn(x, *d, "x"), " -> ", WithOwn(x, *d, "y0"), ", ", WithOwn(x, *d, "y1")), {}, shapes));
  if (draw_.Chance(60)) pool_.push_back({parts[0], x.names, x.degree});
  return Push(parts[1], x.names, x.degree);
}

absl::Status ModelMaker::Piece() {
  const Value x = pool_.back();
  OpAttrs attrs;
  Shape shape;
  Names in = x.names, out = x.names;
  for (size_t d = 0; d < x.names.size(); ++d) {
    const int64_t extent = ShapeOf(x.id)[d];
    const bool cut = !Fixed(x.names[d]) && extent > 1 && draw_.Chance(60);
    attrs.begin.push_back(cut ? draw_.Below(extent) : 0);
    attrs.strides.push_back(cut ? 1 + draw_.Below(3) : 1);
    const int64_t left = extent - attrs.begin[d];
    shape.push_back(cut ? (left + attrs.strides[d] - 1) / attrs.strides[d] : extent);
    if (!cut) continue;
    in[d] = absl::StrCat("x", d, "!");
    out[d] = absl::StrCat("y", d, "!");
  }
  if (in == x.names) return absl::OkStatus();
  return Push(AddOp(OpKind::kStridedSlice, {x.id},
                    absl::StrCat(absl::StrJoin(in, " "), " -> ", absl::StrJoin(out, " ")), attrs, {shape}),
              x.names);
}

absl::Status ModelMaker::Product() {
  const Value x = pool_.back();
  std::vector<size_t> dims;
  for (size_t d = 0; d < x.names.size(); ++d) {
    if (!Fixed(x.names[d])) dims.push_back(d);
  }
  Names taken = x.names, weight_names, added;
  const int64_t num_added = x.names.size() < 3 && draw_.Chance(25) ? 2 : 1;
  for (int64_t i = 0; i < num_added; ++i) {
    added.push_back(FreshLabel(taken));
    taken.push_back(added.back());
  }
  std::string contracted;
  int64_t depth = 1;
  Names result;
  if (!dims.empty()) {
    const size_t d = draw_.Of(dims);
    contracted = x.names[d];
    depth = ShapeOf(x.id)[d];
  } else if (x.names.size() > 2) {
    return absl::OkStatus();
  }
  for (const std::string& name : x.names) {
    if (name != contracted) result.push_back(name);
  }
  result.insert(result.end(), added.begin(), added.end());
  if (draw_.Chance(30)) draw_.Shuffle(result);
  weight_names = added;
  if (!contracted.empty()) weight_names.insert(weight_names.begin(), contracted);
  if (draw_.Chance(40)) draw_.Shuffle(weight_names);
  Shape shape;
  std::vector<int64_t> added_extents;
  for (size_t i = 0; i < added.size(); ++i) added_extents.push_back(Extent());
  for (const std::string& name : weight_names) {
    const auto found = absl::c_find(added, name);
    shape.push_back(found == added.end() ? depth : added_extents[static_cast<size_t>(found - added.begin())]);
  }
  // Sometimes a weight that another product has.
  TensorId weight;
  for (TensorId id : products_) {
    const Shape& known = ShapeOf(id);
    const bool fits = known.size() == shape.size() && added.size() == 1 && !contracted.empty() &&
                      known[weight_names[0] == contracted ? 0 : 1] == depth;
    if (!fits || !draw_.Chance(40)) continue;
    weight = id;
    added_extents = {known[weight_names[0] == contracted ? 1 : 0]};
  }
  if (!weight.valid()) {
    weight = Weight(shape, Normal(1 / std::sqrt(static_cast<double>(depth))));
    if (shape.size() == 2) products_.push_back(weight);
  }
  const bool bias = !contracted.empty() && draw_.Chance(20);
  const auto text = [&](const Names& names) {
    return absl::StrJoin(names, " ", [&](std::string* out, const std::string& name) {
      absl::StrAppend(out, name, bias && name == contracted ? "!" : "");
    });
  };
  std::vector<TensorId> inputs = {x.id, weight};
  std::string rule = absl::StrCat(text(x.names), ", ", text(weight_names));
  if (bias) {
    inputs.push_back(Weight({added_extents.begin(), added_extents.end()}, Normal(0.3)));
    absl::StrAppend(&rule, ", ", text(added));
  }
  return Push(AddOp(OpKind::kMatMul, inputs, absl::StrCat(rule, " -> ", text(result))), result);
}

absl::Status ModelMaker::SelfProduct() {
  const Value x = pool_.back();
  std::vector<size_t> dims;
  for (size_t d = 0; d < x.names.size(); ++d) {
    if (options_.mixes_rows || !Fixed(x.names[d])) dims.push_back(d);
  }
  if (dims.size() < 2 || x.names.size() > 3) return absl::OkStatus();
  draw_.Shuffle(dims);
  const size_t kept = dims[0], contracted = dims[1];
  if (2 * x.degree > kMaxDegree || Fixed(x.names[contracted]) || ShapeOf(x.id)[kept] > kRowsOfMost) {
    return absl::OkStatus();
  }
  Names other = x.names, result;
  other[kept] = FreshLabel(x.names);
  for (size_t d = 0; d < x.names.size(); ++d) {
    if (d != contracted) result.push_back(x.names[d]);
  }
  result.push_back(other[kept]);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId y,
                              AddOp(OpKind::kMatMul, {x.id, x.id},
                                    absl::StrCat(absl::StrJoin(x.names, " "), ", ", absl::StrJoin(other, " "), " -> ",
                                                 absl::StrJoin(result, " "))));
  const double scale = 0.5 / std::sqrt(static_cast<double>(ShapeOf(x.id)[contracted]));
  return Push(AddOp(OpKind::kScale, {y}, "", Scaled(scale)), result, 2 * x.degree);
}

TensorId ModelMaker::Broadcast(const Value& x, Initializer init) {
  const Shape& shape = ShapeOf(x.id);
  const size_t rank = 1 + static_cast<size_t>(draw_.Below(static_cast<int64_t>(shape.size())));
  Shape own;
  for (size_t d = shape.size() - rank; d < shape.size(); ++d) {
    own.push_back(Fixed(x.names[d]) || draw_.Chance(20) ? 1 : shape[d]);
  }
  return Weight(std::move(own), init);
}

absl::Status ModelMaker::Binary() {
  const Value x = pool_.back();
  const OpKind kind =
      draw_.Of(std::vector<OpKind>{OpKind::kAdd, OpKind::kAdd, OpKind::kSub, OpKind::kMul, OpKind::kDiv});
  std::vector<Value> others;
  for (const Value& other : pool_) {
    const bool small = kind != OpKind::kMul || x.degree + other.degree <= kMaxDegree;
    if (small && other.names == x.names && ShapeOf(other.id) == ShapeOf(x.id)) others.push_back(other);
  }
  int degree = x.degree;
  std::vector<TensorId> inputs = {x.id};
  if (kind == OpKind::kDiv) {
    inputs.push_back(Broadcast(x, Uniform(0.75, 1.5)));
  } else if (!others.empty() && draw_.Chance(60)) {
    const Value& other = draw_.Of(others);  // x itself may be among them
    inputs.push_back(other.id);
    degree = kind == OpKind::kMul ? x.degree + other.degree : std::max(x.degree, other.degree);
  } else {
    inputs.push_back(Broadcast(x, Normal(0.5)));
  }
  if (kind == OpKind::kAdd && draw_.Chance(30)) {
    const Value& other = draw_.Of(others);
    inputs.push_back(other.id);
    degree = std::max(degree, other.degree);
  }
  return Push(AddOp(kind, inputs), x.names, degree);
}

absl::Status ModelMaker::Activation() {
  const Value x = pool_.back();
  OpKind kind =
      draw_.Of(std::vector<OpKind>{OpKind::kRelu, OpKind::kGelu, OpKind::kTanh, OpKind::kSigmoid, OpKind::kSilu});
  const bool squared = kind == OpKind::kRelu && 2 * x.degree <= kMaxDegree && draw_again_.Chance(50);
  if (squared) kind = OpKind::kSquaredRelu;
  std::vector<TensorId> inputs = {x.id};
  if (draw_.Chance(30)) inputs.push_back(Broadcast(x, Normal(0.3)));
  const std::string names = absl::StrJoin(x.names, " ");
  const bool own_labels = inputs.size() == 1 && draw_.Chance(50);
  const auto made = AddOp(kind, inputs, own_labels ? absl::StrCat(names, " -> ", names) : "");
  return squared ? Push(made, x.names, 2 * x.degree) : Push(made, x.names);
}

absl::Status ModelMaker::Rows() {
  const Value x = pool_.back();
  const int64_t h = ShapeOf(x.id).back();
  if (h < 2 || (Fixed(x.names.back()) && !options_.mixes_rows)) return Transpose();
  switch (draw_.Below(4)) {
    case 3:
      return Push(AddOp(OpKind::kLogSoftmax, {x.id}), x.names);
    case 0:
      return Push(AddOp(OpKind::kSoftmax, {x.id}), x.names, 1);
    case 1:
      return Push(AddOp(OpKind::kLayerNorm, {x.id, Weight({h}, Uniform(0.5, 1.5)), Weight({h}, Normal(0.3))}), x.names,
                  1);
    default:
      return Push(AddOp(OpKind::kRmsNorm, {x.id, Weight({h}, Uniform(0.5, 1.5))}), x.names, 1);
  }
}

absl::Status ModelMaker::Sum() {
  const Value x = pool_.back();
  Names result, out;
  double count = 1;
  for (size_t d = 0; d < x.names.size(); ++d) {
    const bool may = !Fixed(x.names[d]) || (options_.mixes_rows && draw_.Chance(20));
    if (!may || draw_.Chance(60)) {
      result.push_back(x.names[d]);
      out.push_back(x.names[d]);
      continue;
    }
    count *= static_cast<double>(ShapeOf(x.id)[d]);
    if (draw_.Chance(30)) {
      result.push_back(FreshLabel(x.names));
      out.push_back("1");
    }
  }
  if (out == x.names || result.empty() || std::set<std::string>(result.begin(), result.end()).size() < result.size()) {
    return absl::OkStatus();
  }
  const OpKind kind =
      draw_.Of(std::vector<OpKind>{OpKind::kReduceSum, OpKind::kReduceSum, OpKind::kReduceMax, OpKind::kReduceMin});
  return Push(AddOp(kind, {x.id}, absl::StrCat(absl::StrJoin(x.names, " "), " -> ", absl::StrJoin(out, " ")),
                    Scaled(kind == OpKind::kReduceSum ? 1 / std::sqrt(count) : 1)),
              result);
}

absl::Status ModelMaker::Transpose() {
  const Value x = pool_.back();
  Names result = x.names;
  draw_.Shuffle(result);
  if (result == x.names) return absl::OkStatus();
  return TransposeTo(x, result);
}

absl::Status ModelMaker::TransposeTo(const Value& x, const Names& result) {
  return Push(
      AddOp(OpKind::kTranspose, {x.id}, absl::StrCat(absl::StrJoin(x.names, " "), " -> ", absl::StrJoin(result, " "))),
      result);
}

absl::Status ModelMaker::Reshape() {
  const Value x = pool_.back();
  const Shape shape = ShapeOf(x.id);
  const size_t r = shape.size();
  Names lead(x.names.begin(), x.names.end() - 1);
  const std::string& last = x.names[r - 1];
  if (Fixed(last)) return absl::OkStatus();
  if (r >= 3 && !Fixed(x.names[r - 2]) && draw_.Chance(50)) {
    lead.pop_back();
    Names result = lead;
    result.push_back(FreshLabel(x.names));
    Shape out(shape.begin(), shape.end() - 2);
    out.push_back(shape[r - 2] * shape[r - 1]);
    const std::string names = absl::StrJoin(lead, " ");
    return Push(
        AddOp(OpKind::kReshape, {x.id},
              absl::StrCat(names, " ", x.names[r - 2], "! ", last, "! -> ", names, " ", result.back(), "!"), {}, {out}),
        result);
  }
  if (shape[r - 1] % 2 != 0 || r > 3) return absl::OkStatus();
  Names result = lead;
  for (int i = 0; i < 2; ++i) {
    Names taken = x.names;
    taken.insert(taken.end(), result.begin(), result.end());
    result.push_back(FreshLabel(taken));
  }
  Shape out(shape.begin(), shape.end() - 1);
  out.push_back(2);
  out.push_back(shape[r - 1] / 2);
  const std::string names = absl::StrJoin(lead, " ");
  return Push(
      AddOp(OpKind::kReshape, {x.id},
            absl::StrCat(names, " ", last, "! -> ", names, " ", result[r - 1], "! ", result[r], "!"), {}, {out}),
      result);
}

absl::Status ModelMaker::Gated() {
  const Value x = pool_.back();
  if (x.names.size() < 2 || Fixed(x.names.back()) || 2 * x.degree > kMaxDegree) return absl::OkStatus();
  const int64_t h = ShapeOf(x.id).back(), f = draw_.Of(std::vector<int64_t>{4, 6, 8});
  const std::string lead = absl::StrJoin(Names(x.names.begin(), x.names.end() - 1), " ");
  Names result(x.names.begin(), x.names.end() - 1);
  result.push_back(FreshLabel(x.names));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId wide,
                              AddOp(OpKind::kMatMul, {x.id, Weight({h, 2, f}, Normal(1 / std::sqrt(h)))},
                                    absl::StrCat(lead, " ", x.names.back(), ", ", x.names.back(), " t ", result.back(),
                                                 " -> ", lead, " t ", result.back())));
  const OpKind kind = draw_again_.Chance(30) ? OpKind::kGeglu : OpKind::kSwiglu;
  return Push(AddOp(kind, {wide}), result, 2 * x.degree);
}

absl::Status ModelMaker::Simple() {
  const Value x = pool_.back();
  switch (draw_.Below(4)) {
    case 0:
      return Push(AddOp(OpKind::kScale, {x.id}, "", Scaled(-0.75)), x.names);
    case 1:
      return Push(AddOp(OpKind::kCast, {x.id}), x.names);
    case 2: {  // of something that stays away from 0
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId positive, AddOp(OpKind::kSigmoid, {x.id}));
      return Push(AddOp(OpKind::kSqrt, {positive}), x.names, 1);
    }
    default: {
      if (!options_.has_masks) return absl::OkStatus();
      OpAttrs attrs;
      attrs.rate = draw_.Chance(50) ? 0.5 : 0.125;
      attrs.stream = next_;
      Names names = x.names;
      absl::c_replace(names, std::string("b"), std::string(kRowsLabel));
      const std::string dims = absl::StrJoin(names, " ");
      return Push(AddOp(OpKind::kDropout, {x.id}, absl::StrCat(dims, " -> ", dims), attrs), x.names);
    }
  }
}

absl::Status ModelMaker::Positions() {
  const Value x = pool_.back();
  if (x.names.size() != 3 || Fixed(x.names[0]) || Fixed(x.names[2])) return Binary();
  const Shape shape = ShapeOf(x.id);
  const int64_t p = shape[0] + draw_.Below(3);
  const std::string names = absl::StrJoin(x.names, " ");
  return Push(AddOp(OpKind::kAddPositions, {x.id, Weight({p, shape[2]}, Normal(0.5))},
                    absl::StrCat(names, ", p! ", x.names[2], " -> ", names)),
              x.names);
}

bool ModelMaker::IsStream(const Value& x) const {
  return x.names == Names{"s", "b", "h"} && ShapeOf(x.id)[2] % 4 == 0 && ShapeOf(x.id)[0] > 1;
}

absl::Status ModelMaker::Preserving() {
  const Value x = pool_.back();
  switch (draw_.Below(5)) {
    case 0:
      return draw_again_.Chance(30) ? LinearAttention(x) : Attention(x);
    case 1:
      return Experts(x);
    case 2:
      return Rows();
    case 3:
      return Positions();
    default: {
      const int64_t h = ShapeOf(x.id)[2], f = draw_.Of(std::vector<int64_t>{4, 8, 12});
      MESHWRIGHT_ASSIGN_OR_RETURN(
          TensorId y, AddOp(OpKind::kMatMul, {x.id, Weight({h, f}, Normal(1 / std::sqrt(h)))}, "s b h, h f -> s b f"));
      MESHWRIGHT_ASSIGN_OR_RETURN(y, AddOp(OpKind::kGelu, {y, Weight({f}, Normal(0.2))}, "s b f, f -> s b f"));
      return Push(AddOp(OpKind::kMatMul, {y, Weight({f, h}, Normal(1 / std::sqrt(f)))}, "s b f, f h -> s b h"),
                  x.names);
    }
  }
}

absl::StatusOr<TensorId> ModelMaker::LatentHeads(const Value& x, int64_t width, int64_t value_width) {
  const Shape shape = ShapeOf(x.id);
  const int64_t h = shape[2], g = 2, shared = 2;
  const auto times = [&](Shape weight, const char* rule) {
    return AddOp(OpKind::kMatMul, {x.id, Weight(std::move(weight), Normal(1 / std::sqrt(h)))}, rule);
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId queries, times({h, g, width}, "s b h, h g d -> s b g d"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId key, times({h, shared}, "s b h, h p -> s b p"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId keys,
                              times({h, g, width - shared + value_width}, "s b h, h g u -> s b g u"));
  return AddOp(OpKind::kLatentHeads, {queries, key, keys}, "", {}, {{shape[0], shape[1], g, 2 * width + value_width}});
}

absl::Status ModelMaker::Attention(const Value& x) {
  const Shape shape = ShapeOf(x.id);
  const bool latent = draw_.Chance(30);
  const int64_t s = shape[0], rows = shape[1], h = shape[2], g = 2, q = latent ? 1 : 2, d = draw_.Chance(50) ? 2 : 4;
  const int64_t u = latent ? 3 : d;
  TensorId qkv;
  if (latent) {
    MESHWRIGHT_ASSIGN_OR_RETURN(qkv, LatentHeads(x, d, u));
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(qkv, AddOp(OpKind::kMatMul, {x.id, Weight({h, g, q + 2, d}, Normal(1 / std::sqrt(h)))},
                                           "s b h, h g r d -> s b g r d"));
    if (draw_again_.Chance(40)) {
      MESHWRIGHT_ASSIGN_OR_RETURN(qkv, AddOp(OpKind::kNormHeads, {qkv, Weight({2, d}, Uniform(0.5, 1.5))}));
    }
    if (draw_.Chance(50)) {
      OpAttrs attrs;
      if (d == 4 && draw_again_.Chance(50)) attrs.turned = 2;
      MESHWRIGHT_ASSIGN_OR_RETURN(qkv, AddOp(OpKind::kRotary, {qkv}, "", attrs));
    }
  }
  OpAttrs attrs = Scaled(1 / std::sqrt(static_cast<double>(d)));
  attrs.causal = draw_.Chance(50);
  if (attrs.causal && draw_.Chance(50)) attrs.window = draw_.Of(std::vector<int64_t>{1, 2, 3});
  attrs.fused = draw_.Chance(70);
  Shape saved = {s, rows, g, q};
  if (!attrs.fused) saved.push_back(s);
  const char* const made = latent ? "s! b g w! -> s! b g q! u!, s! b g q!" : "s! b g r! d! -> s! b g q! d!, s! b g q!";
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> context,
                              AddOps(OpKind::kAttention, {qkv}, absl::StrCat(made, attrs.fused ? "" : " t!"), attrs,
                                     {{s, rows, g, q, u}, saved}));
  return Push(AddOp(OpKind::kMatMul, {context[0], Weight({g, q, u, h}, Normal(1 / std::sqrt(g * q * u)))},
                    "s b g q d, g q d h -> s b h"),
              x.names);
}

// Two groups of two heads: the gated delta rule, of one decay or of one for each row, or a state space whose gate is
// applied in front of the norm.
absl::Status ModelMaker::LinearAttention(const Value& x) {
  const Shape shape = ShapeOf(x.id);
  const bool delta = draw_again_.Chance(50), bias = draw_again_.Chance(50), by_row = delta && draw_again_.Chance(50);
  const int64_t s = shape[0], rows = shape[1], h = shape[2], y = 2, n = 2, k = 3, u = 2, w = 2 * k + n * u;
  const auto times = [&](int64_t width, const char* rule) {
    return AddOp(OpKind::kMatMul, {x.id, Weight({h, y, width}, Normal(1 / std::sqrt(h)))}, rule);
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId mixed, times(w, "s b h, h y w -> s b y w"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId gates, times(by_row  ? n * k
                                                          : delta ? 2 * n
                                                                  : n,
                                                          "s b h, h y p -> s b y p"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId gate, times(n * u, "s b h, h y i -> s b y i"));
  std::vector<TensorId> conv = {mixed, Weight({y, w, 3}, Normal(0.5))};
  if (bias) conv.push_back(Weight({y, w}, Normal(0.2)));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      mixed, AddOp(OpKind::kCausalConv, conv,
                   bias ? "s! b y w!, y w! k!, y w! -> s! b y w!" : "s! b y w!, y w! k! -> s! b y w!"));
  std::vector<TensorId> inputs = {mixed, gates, Weight({y, n}, Uniform(0, 1)),
                                  Weight(by_row ? Shape{y, n, k} : Shape{y, n}, Uniform(-1, 1))};
  if (!delta) inputs.push_back(Weight({y, n}, Uniform(0.5, 1.5)));
  if (by_row) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId amounts, times(n, "s b h, h y t -> s b y t"));
    inputs.push_back(amounts);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId made, AddOp(OpKind::kLinearAttention, inputs,
                                                   absl::StrCat("s! b y w!, s! b y p!, y t!, y t!",
                                                                by_row  ? " d!, s! b y t!"
                                                                : delta ? ""
                                                                        : ", y t!",
                                                                " -> s! b y t! u!"),
                                                   {}, {{s, rows, y, n, u}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(made,
                              AddOp(OpKind::kReshape, {made}, "s b y t! u! -> s b y i!", {}, {{s, rows, y, n * u}}));
  OpAttrs attrs;
  attrs.gate_first = !delta;
  // By a row of weights for all groups, or one for each.
  MESHWRIGHT_ASSIGN_OR_RETURN(
      made, AddOp(OpKind::kGatedRmsNorm,
                  {made, gate, delta ? Weight({n * u}, Uniform(0.5, 1.5)) : Weight({y, n * u}, Uniform(0.5, 1.5))},
                  delta ? "s b y i!, s b y i!, i! -> s b y i!" : "s b y i!, s b y i!, y i! -> s b y i!", attrs));
  return Push(AddOp(OpKind::kMatMul, {made, Weight({y, n * u, h}, Normal(1 / std::sqrt(y * n * u)))},
                    "s b y i, y i h -> s b h"),
              x.names);
}

absl::Status ModelMaker::Experts(const Value& x) {
  const Shape shape = ShapeOf(x.id);
  const int64_t h = shape[2], e = 4, slots = shape[0] * shape[1], f = 4;
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits,
                              AddOp(OpKind::kMatMul, {x.id, Weight({h, e}, Normal(1))}, "s b h, h e -> s b e"));
  const bool grouped = draw_.Chance(50);
  TensorId sent = x.id, sent_logits = logits;
  if (grouped) {
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const std::vector<TensorId> groups,
        AddOps(OpKind::kToGroups, {x.id, logits}, "", {}, {{2, shape[0], shape[1], h}, {2, shape[0], shape[1], e}}));
    sent = groups[0];
    sent_logits = groups[1];
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId y, AddOp(OpKind::kDispatch, {sent, sent_logits},
                                                grouped ? "n q! b h, n q! b e! -> =n =b h" : "", {}, {{e, slots, h}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      y, AddOp(OpKind::kMatMul, {y, Weight({e, h, f}, Normal(1 / std::sqrt(h)))}, "e c h, e h f -> e c f"));
  MESHWRIGHT_ASSIGN_OR_RETURN(y, AddOp(OpKind::kTanh, {y}, "e c f -> e c f"));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      y, AddOp(OpKind::kMatMul, {y, Weight({e, f, h}, Normal(1 / std::sqrt(f)))}, "e c f, e f h -> e c h"));
  if (!grouped) return Push(AddOp(OpKind::kCombine, {y, logits}), x.names);
  MESHWRIGHT_ASSIGN_OR_RETURN(y, AddOp(OpKind::kCombine, {y, sent_logits}, "=n =b h, n q! b e! -> n q! b h"));
  return Push(AddOp(OpKind::kFromGroups, {y, logits}), x.names);
}

}  // namespace meshwright
