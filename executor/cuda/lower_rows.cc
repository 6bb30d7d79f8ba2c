// Operators along the last dim: softmax, norms, losses.
#include "absl/strings/str_cat.h"
#include "executor/cuda/lowering.h"
#include "executor/epilogue.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr int64_t kSumBlocks = 256;  // of the first pass of a sum over everything

// The points of the row dims of input `of`: one operand of `places` for each of `operands` (inputs first, then outputs;
// -1: none), in the order of RowOp.
absl::Status SetPlaces(const KernelCall& call, size_t of, std::initializer_list<int> operands, bool skip_last,
                       Places& places) {
  const IndexRule& rule = *call.rule;
  LabelStrides strides[Places::kMaxOperands];
  size_t n = 0;
  for (const int k : operands) {
    const size_t inputs = rule.inputs.size(), index = static_cast<size_t>(k);
    strides[n++] = k < 0 ? LabelStrides(rule.labels.size(), 0)
                   : index < inputs
                       ? StridesByLabel(rule, rule.inputs[index], call.inputs[index].shape)
                       : StridesByLabel(rule, rule.outputs[index - inputs], call.outputs[index - inputs].shape);
  }
  const OperandRule& dims = rule.inputs[of];
  for (size_t d = 0; d + (skip_last ? 1 : 0) < dims.size(); ++d) {
    const int8_t label = dims[d].label;
    if (label < 0) continue;
    const auto at = [&](size_t k) { return k < n ? strides[k][label] : 0; };
    AddDim(places, call.inputs[of].shape[d], {at(0), at(1), at(2), at(3), at(4), at(5)});
  }
  return CheckDims(places);
}

// Class numbers of input `logits`, which labels name.
absl::Status SetClasses(const KernelCall& call, size_t logits, RowOp& body) {
  const TensorView& view = call.inputs[logits];
  if (view.shape.empty()) return absl::InvalidArgumentError("logits need a class dim");
  body.width = view.shape.back();
  body.begin = view.begin.empty() ? 0 : view.begin.back();
  body.whole = view.global.back();
  return absl::OkStatus();
}

absl::Status SetLabels(const TensorView& labels, RowOp& body) {
  if (labels.dtype != DType::kInt32) {
    return absl::InvalidArgumentError(absl::StrCat("labels are ", NameOf(labels.dtype), ", wanted int32"));
  }
  body.labels = labels.as<int32_t>();
  return absl::OkStatus();
}

// Output 0 (+)= the call's scale * a sum.
SumAll ToOutput(const KernelCall& call) {
  SumAll body;
  body.add = call.Adds(0);
  body.scale = call.attrs->scale;
  body.out = RefOf(call.outputs[0]);
  return body;
}

// out (+)= scale * the sum over `places`: first sums of blocks, then the sum of those.
absl::Status LowerSum(const Lowering& l, SumAll body, std::byte* scratch) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  const int64_t blocks = std::clamp<int64_t>((body.places.total + 255) / 256, 1, kSumBlocks);
  SumAll last;
  last.add = body.add;
  last.scale = body.scale;
  last.out = body.out;
  last.a = {scratch, Elem::kFloat64};
  AddDim(last.places, blocks, {1, 0, 0});
  body.partial = reinterpret_cast<double*>(scratch);
  body.vectors = TakesVectors(body.places, {body.a, body.b, body.c}, 3);
  MESHWRIGHT_RETURN_IF_ERROR(l.Launch({blocks, 256, 0}, body));
  return l.Launch({1, 256, 0}, last);
}

absl::Status LowerMseLoss(const Lowering& l) {
  SumAll body = ToOutput(l.call);
  body.kind = SumKind::kSquaredErrors;
  body.a = RefOf(l.call.inputs[0]);
  body.b = RefOf(l.call.inputs[1]);
  MESHWRIGHT_RETURN_IF_ERROR(SetPlaces(l.call, 0, {0, 1, -1}, false, body.places));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(kSumBlocks * 8)));
  return LowerSum(l, body, scratch);
}

absl::Status LowerLossFromPartials(const Lowering& l) {
  SumAll body = ToOutput(l.call);
  body.kind = SumKind::kLogLoss;
  body.a = RefOf(l.call.inputs[0]);
  body.b = RefOf(l.call.inputs[1]);
  body.c = RefOf(l.call.inputs[2]);
  MESHWRIGHT_RETURN_IF_ERROR(SetPlaces(l.call, 0, {0, 1, 2}, false, body.places));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(kSumBlocks * 8)));
  return LowerSum(l, body, scratch);
}

// Whether the rows of a, and of b where it has their shape, can be taken eight elements at a time. Two are in step only
// where all rows begin at multiples of eight: they are whole and contiguous.
bool RowsInVectors(const RowOp& body, bool two) {
  return TakesVectors({body.a}) && (!two || (body.width % kVector == 0 && TakesVectors({body.b})));
}

// The losses of the rows into scratch, then their sum.
absl::Status LowerCrossEntropy(const Lowering& l) {
  RowOp body;
  body.kind = RowKind::kCrossEntropy;
  body.a = RefOf(l.call.inputs[0]);
  MESHWRIGHT_RETURN_IF_ERROR(SetClasses(l.call, 0, body));
  MESHWRIGHT_RETURN_IF_ERROR(SetLabels(l.call.inputs[1], body));
  const int64_t rows = l.call.inputs[0].size() / std::max<int64_t>(1, body.width);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes((kSumBlocks + rows) * 8)));
  body.out = {scratch + kSumBlocks * 8, Elem::kFloat64};
  // Of row p, in the order of the logits, the loss goes to place p.
  Places places;
  MESHWRIGHT_RETURN_IF_ERROR(SetPlaces(l.call, 0, {0, -1, -1, 1, -1, -1}, true, places));
  int64_t next = 1;
  for (int32_t d = places.dims; d-- > 0;) {
    places.stride[d][4] = next;
    next *= places.extent[d];
  }
  body.places = places;
  body.vectors = RowsInVectors(body, false);
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(rows, body.vectors ? body.width / 4 : body.width, body));
  SumAll sum = ToOutput(l.call);
  sum.a = body.out;
  AddDim(sum.places, rows, {1, 0, 0});
  return LowerSum(l, sum, scratch);
}

absl::Status LowerRow(const Lowering& l, RowOp body, std::initializer_list<int> operands, size_t of = 0) {
  body.add = l.call.Adds(0);
  body.add2 = l.call.Adds(1);
  body.scale = l.call.attrs->scale;
  body.out = RefOf(l.call.outputs[0]);
  if (l.call.outputs.size() > 1) body.out2 = RefOf(l.call.outputs[1]);
  MESHWRIGHT_RETURN_IF_ERROR(SetClasses(l.call, of, body));
  MESHWRIGHT_RETURN_IF_ERROR(SetPlaces(l.call, of, operands, true, body.places));
  const bool two = body.kind == RowKind::kSoftmaxGrad || body.kind == RowKind::kLogSoftmaxGrad;
  const bool sums = body.kind == RowKind::kMax || body.kind == RowKind::kExpSumAndPick;
  body.vectors = RowsInVectors(body, two) && (sums || TakesVectors({body.out}));
  return l.LaunchRows(body.places.total, body.vectors ? body.width / 4 : body.width, body);
}

// Of each of as many parts of the rows as the outputs have along them.
absl::Status LowerRowPartials(const Lowering& l) {
  RowOp body;
  body.kind = RowKind::kPartials;
  body.a = RefOf(l.call.inputs[0]);
  body.out = RefOf(l.call.outputs[0]);
  body.out2 = RefOf(l.call.outputs[1]);
  body.out3 = RefOf(l.call.outputs[2]);
  body.add = l.call.Adds(0);
  body.add2 = l.call.Adds(1);
  body.add3 = l.call.Adds(2);
  MESHWRIGHT_RETURN_IF_ERROR(SetClasses(l.call, 0, body));
  MESHWRIGHT_RETURN_IF_ERROR(SetLabels(l.call.inputs[1], body));
  MESHWRIGHT_RETURN_IF_ERROR(SetPlaces(l.call, 0, {0, -1, 4, 1, 2, 3}, true, body.places));
  body.parts = l.call.outputs[0].size() / std::max<int64_t>(1, body.places.total);
  if (body.parts == 0 || body.width % body.parts != 0) {
    return absl::InvalidArgumentError(absl::StrCat(body.width, " classes are not ", body.parts, " equal parts"));
  }
  body.width /= body.parts;
  AddDim(body.places, body.parts, {body.width, 0, 1, 0, 1, 1});
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  body.vectors = RowsInVectors(body, false);
  return l.LaunchRows(body.places.total, body.vectors ? body.width / 4 : body.width, body);
}

absl::Status LowerJoinPartials(const Lowering& l) {
  const auto in = [&](size_t i) { return RefOf(l.call.inputs[i]); };
  RowOp body;
  body.kind = RowKind::kJoinPartials;
  body.a = in(0);
  body.b = in(1);
  body.c = in(2);
  body.factor = in(3);
  body.out = RefOf(l.call.outputs[0]);
  body.out2 = RefOf(l.call.outputs[1]);
  body.add = l.call.Adds(0);
  body.add2 = l.call.Adds(1);
  body.width = l.call.inputs[0].shape.empty() ? 1 : l.call.inputs[0].shape.back();
  MESHWRIGHT_RETURN_IF_ERROR(SetPlaces(l.call, 0, {0, 1, 2, 3, 4, 5}, true, body.places));
  return l.LaunchPoints(body.places.total, body);
}

// Sets input `i` as a term beside `like`; false where it is neither laid out so nor one row of it.
bool SetTerm(const Lowering& l, size_t i, const TensorView& like, const OperandRule& rule, Norm& body) {
  const TensorView& view = l.call.inputs[i];
  const OperandRule& has = l.call.rule->inputs[i];
  const bool row = has.size() == 1 && has[0] == rule.back() && view.size() == body.width;
  if (body.terms == Norm::kMostTerms || (!row && (has != rule || view.shape != like.shape))) return false;
  body.one_row[body.terms] = row;
  body.term[body.terms++] = RefOf(view);
  return true;
}

bool NormInVectors(const Norm& body) {
  return body.width % kVector == 0 &&
         TakesVectors({body.x, body.gamma, body.beta, body.y, body.dx, body.term[0], body.term[1], body.term[2]});
}

// Of one tensor, or of the sum of several, which is then the second output.
absl::Status LowerNorm(const Lowering& l, bool centred) {
  const bool sums = HasEpilogue(l.call);
  if (sums && l.call.outputs.size() != 2) return LowerInParts(l);
  const TensorView& x = sums ? l.call.outputs[1] : l.call.inputs[0];
  const size_t gamma = sums ? l.call.inputs.size() - (centred ? 2 : 1) : 1;
  Norm body;
  body.centred = centred;
  body.add = l.call.Adds(0);
  body.epsilon = l.call.attrs->epsilon;
  body.width = x.shape.back();
  body.rows = x.size() / std::max<int64_t>(1, body.width);
  for (size_t i = 0; sums && i < gamma; ++i) {
    if (!SetTerm(l, i, x, l.call.rule->outputs[1], body)) return LowerInParts(l);
  }
  body.x = RefOf(x);
  if (l.call.op == OpKind::kNormHeads) {
    MESHWRIGHT_ASSIGN_OR_RETURN(body.heads, NormedHeadsOf(l.call));
  }
  body.gamma = RefOf(l.call.inputs[gamma]);
  if (centred) body.beta = RefOf(l.call.inputs[gamma + 1]);
  body.y = RefOf(l.call.outputs[0]);
  body.vectors = NormInVectors(body);
  return l.LaunchRows(body.rows, body.vectors ? body.width / 4 : body.width, body);
}

absl::Status LowerNormGrad(const Lowering& l, bool centred) {
  const TensorView &dy = l.call.inputs[0], &x = l.call.inputs[1];
  Norm body;
  body.gradient = true;
  body.centred = centred;
  body.add = l.call.Adds(0);
  body.epsilon = l.call.attrs->epsilon;
  body.width = x.shape.back();
  body.rows = x.size() / std::max<int64_t>(1, body.width);
  body.y = RefOf(dy);
  body.x = RefOf(x);
  body.gamma = RefOf(l.call.inputs[2]);
  body.dx = RefOf(l.call.outputs[0]);
  const bool sums = HasEpilogue(l.call);
  if (sums && (l.call.inputs.size() != 4 || !SetTerm(l, 3, x, l.call.rule->outputs[0], body))) return LowerInParts(l);
  if (l.call.op == OpKind::kNormHeadsGrad) {
    MESHWRIGHT_ASSIGN_OR_RETURN(body.heads, NormedHeadsOf(l.call));
  }
  body.vectors = NormInVectors(body);
  // Of gamma, which heads have two rows of.
  const int64_t columns = l.call.inputs[2].size();
  const int64_t parts = PartsOf(body.rows, columns), partials = parts * columns;
  // Two doubles a row, and sums of each part of the rows, which are at most of double.
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch,
                              l.scratch.Get(l.stream, Bytes(body.rows * 16 + 2 * partials * 8)));
  body.statistics = reinterpret_cast<double*>(scratch);
  NormParameters parameters;
  parameters.centred = centred;
  parameters.rows = body.rows;
  parameters.width = body.width;
  parameters.parts = parts;
  parameters.heads = body.heads;
  parameters.dy = RefOf(dy);
  parameters.x = RefOf(x);
  const Elem type = l.wide ? Elem::kFloat64 : Elem::kFloat32;
  parameters.dgamma = {scratch + body.rows * 16, type};
  parameters.dbeta = {scratch + body.rows * 16 + partials * 8, type};
  parameters.statistics = body.statistics;
  parameters.vectors = body.vectors && TakesVectors({parameters.dgamma, parameters.dbeta});
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(body.rows, body.vectors ? body.width / 4 : body.width, body));
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchVectors(partials, parameters));
  for (size_t output = 1; output < (centred ? 3 : 2); ++output) {
    Reduce sum;
    sum.by_thread = true;
    sum.add = l.call.Adds(output);
    sum.x = output == 1 ? parameters.dgamma : parameters.dbeta;
    sum.out = RefOf(l.call.outputs[output]);
    AddDim(sum.kept, columns, {1, 1});
    AddDim(sum.reduced, parts, {columns});
    sum.vectors = parameters.vectors && TakesVectors({sum.out});
    MESHWRIGHT_RETURN_IF_ERROR(l.LaunchVectors(columns, sum));
  }
  return absl::OkStatus();
}

}  // namespace

// One case for each operator; RowOp's operands are a, b, c, labels, out, out2.
absl::Status LowerRows(const Lowering& l) {
  const auto in = [&](size_t i) { return RefOf(l.call.inputs[i]); };
  RowOp body;
  switch (l.call.op) {
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax:
      body.kind = l.call.op == OpKind::kSoftmax ? RowKind::kSoftmax : RowKind::kLogSoftmax;
      body.a = in(0);
      return LowerRow(l, body, {0, -1, -1, -1, 1, -1});
    case OpKind::kSoftmaxGrad:
    case OpKind::kLogSoftmaxGrad:
      body.kind = l.call.op == OpKind::kSoftmaxGrad ? RowKind::kSoftmaxGrad : RowKind::kLogSoftmaxGrad;
      body.a = in(0);
      body.b = in(1);
      return LowerRow(l, body, {0, 1, -1, -1, 2, -1});
    case OpKind::kRowMax:
      body.kind = RowKind::kMax;
      body.a = in(0);
      return LowerRow(l, body, {0, -1, -1, -1, 1, -1});
    case OpKind::kExpSumAndPick:
      body.kind = RowKind::kExpSumAndPick;
      body.a = in(0);
      body.b = in(1);
      MESHWRIGHT_RETURN_IF_ERROR(SetLabels(l.call.inputs[2], body));
      return LowerRow(l, body, {0, 1, -1, 2, 3, 4});
    case OpKind::kRowPartials:
      return LowerRowPartials(l);
    case OpKind::kJoinPartials:
      return LowerJoinPartials(l);
    case OpKind::kPartialsGrad:
      body.kind = RowKind::kPartialsGrad;
      body.factor = in(0);
      body.a = in(1);
      body.b = in(2);
      body.c = in(3);
      MESHWRIGHT_RETURN_IF_ERROR(SetLabels(l.call.inputs[4], body));
      return LowerRow(l, body, {1, 2, 3, 4, 5, -1}, 1);
    case OpKind::kCrossEntropyGrad:
      body.kind = RowKind::kCrossEntropyGrad;
      body.factor = in(0);
      body.a = in(1);
      MESHWRIGHT_RETURN_IF_ERROR(SetLabels(l.call.inputs[2], body));
      return LowerRow(l, body, {1, -1, -1, 2, 3, -1}, 1);
    case OpKind::kCrossEntropy:
      return LowerCrossEntropy(l);
    case OpKind::kMseLoss:
      return LowerMseLoss(l);
    case OpKind::kLossFromPartials:
      return LowerLossFromPartials(l);
    case OpKind::kLayerNorm:
    case OpKind::kAddLayerNorm:
      return LowerNorm(l, true);
    case OpKind::kRmsNorm:
    case OpKind::kAddRmsNorm:
    case OpKind::kNormHeads:
      return LowerNorm(l, false);
    case OpKind::kLayerNormGrad:
    case OpKind::kLayerNormGradAdd:
      return LowerNormGrad(l, true);
    case OpKind::kRmsNormGrad:
    case OpKind::kRmsNormGradAdd:
    case OpKind::kNormHeadsGrad:
      return LowerNormGrad(l, false);
    default:
      return absl::UnimplementedError("there is no kernel for devices");
  }
}

}  // namespace meshwright::cuda
