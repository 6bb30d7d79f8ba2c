// Operation and byte counts of an operator, from its rule and the shapes of its operands.
#include <algorithm>
#include <iterator>
#include <optional>

#include "ir/graph.h"
#include "ir/heads.h"
#include "ir/recurrence.h"

namespace meshwright {
namespace {

// Where a label stands decides its part in a product: both inputs and output: batch; first and output: m; second and
// output: n; inputs only: k.
void SetProductExtents(const IndexRule& rule, const Shape& extents, OpKind epilogue, KernelWork& work) {
  const auto in = [&](const OperandRule& operand, size_t label) {
    return std::any_of(operand.begin(), operand.end(),
                       [&](const DimRule& dim) { return dim.label == static_cast<int>(label); });
  };
  for (size_t label = 0; label < rule.labels.size(); ++label) {
    const bool a = in(rule.inputs[0], label), b = in(rule.inputs[1], label), y = in(rule.outputs[0], label);
    const int64_t extent = std::max<int64_t>(extents[label], 1);
    if (!y) {
      work.k *= extent;
    } else if (a && b) {
      work.batch *= extent;
    } else if (a) {
      work.m *= extent;
    } else {
      work.n *= extent;
    }
  }
  const double made = static_cast<double>(work.batch) * work.m * work.n;
  work.flops = Flops(2.0 * made * work.k);
  if (epilogue != OpKind::kNumOps) work.epilogue = Flops(InfoOf(epilogue).flops_per_point * made);
}

// Useful operations: two products forward, five backward, three of them over the width of keys (ir/heads.h).
//
// Of queries that are a part of the sequence in balanced order (ir/context_order.h) half of the scores are kept as
// well. Of a block of them beside another rank's block of keys too, but as a rectangle: all queries see the front half
// of the keys, or the back half of the queries sees all keys.
void SetAttentionExtents(const OpAttrs& attrs, bool backward, absl::Span<const Shape> inputs,
                         absl::Span<const Shape> outputs, KernelWork& work) {
  const size_t first = backward ? 1 : 0;
  const bool apart = inputs.size() == (backward ? 5 : 2);
  const Shape &queries = inputs[first], &keys = inputs[apart ? first + 1 : first];
  work.backward = backward;
  work.causal = attrs.causal;
  work.fused = attrs.fused;
  const std::optional<HeadSizes> heads = HeadSizesOf(queries, keys, apart, backward ? inputs[0] : outputs[0]);
  if (!heads.has_value()) return;  // its kernel will say what is wrong
  work.batch = queries[1] * queries[2] * heads->queries;
  work.m = queries[0];
  work.n = apart ? keys[0] : work.m;
  work.k = (heads->width + heads->value_width) / 2;
  if (attrs.causal && attrs.shift > 0) {
    work.causal = false;
    work.n = std::max<int64_t>(1, work.n / 2);
  }
  double kept = work.causal ? 0.5 : 1.0;
  if (work.causal && attrs.window > 0 && attrs.window < work.n) {
    work.window = attrs.window;
    const double share = static_cast<double>(work.window) / static_cast<double>(work.n);
    kept = share - share * share / 2;  // queries at the beginning have fewer keys before them
  }
  const double scores = kept * static_cast<double>(work.batch) * work.m * work.n;
  const int64_t widths = backward ? 3 * heads->width + 2 * heads->value_width : heads->width + heads->value_width;
  work.flops = Flops(2 * scores * static_cast<double>(widths));
}

// Useful operations of the recurrence as it is written down: of the delta rule three products with the state for each
// token of a head forward, of state spaces two; backward twice as many. How a kernel goes about it is the cost model's.
void SetRecurrenceExtents(bool backward, absl::Span<const Shape> inputs, absl::Span<const Shape> outputs,
                          KernelWork& work) {
  work.backward = backward;
  const std::optional<RecurrenceShape> shape =
      backward ? RecurrenceShapeOf(inputs.subspan(1), inputs[0]) : RecurrenceShapeOf(inputs, outputs[0]);
  if (!shape.has_value()) return;  // its kernel will say what is wrong
  work.delta = shape->delta;
  work.by_row = shape->by_row;
  work.batch = shape->b * shape->groups * shape->heads;
  work.m = shape->s;
  work.k = shape->width;
  work.n = shape->value_width;
  const double products = (shape->delta ? 3 : 2) * (backward ? 2 : 1);
  work.flops = Flops(2 * products * static_cast<double>(work.batch) * work.m * work.k * work.n);
}

// Of a table only the rows that are named are touched: no more of them than the other side has.
void CountRows(OpKind kind, absl::Span<const Shape> inputs, absl::Span<const DType> input_dtypes,
               absl::Span<const Shape> outputs, absl::Span<const DType> output_dtypes, KernelWork& work) {
  const Bytes input = SizeOf(input_dtypes[0]) * NumElements(inputs[0]);
  const Bytes output = SizeOf(output_dtypes[0]) * NumElements(outputs[0]);
  if (kind == OpKind::kGather) work.read = work.read - input + std::min(input, output);
  if (kind == OpKind::kGatherGrad) {
    work.written = SizeOf(output_dtypes[0]) * std::min(NumElements(inputs[0]), NumElements(outputs[0]));
  }
}

// What eager PyTorch does for an op that it has no kernel for: each step of the formula is an operator (transformers,
// modeling_llama.py; backward by PyTorch's derivatives, with a sum for each of what is broadcast or read twice), which
// reads and writes its operands, in float32 where the formula says so. Elements of 2 bytes for each element of the op's
// input `operand`; of NormHeads, which norms queries and keys one after the other, values are not touched.
struct EagerOp {
  OpKind kind;
  size_t operand;
  int64_t read, written;
  int64_t steps;  // besides the first
};
constexpr EagerOp kEagerOps[] = {
    // float(x) (1, 2), squared (2, 2), mean (2), plus epsilon, inverse root, x times that (2, 2), cast (2, 1), times
    // gamma (1, 1)
    {OpKind::kRmsNorm, 0, 10, 8, 7},
    {OpKind::kNormHeads, 0, 10, 8, 2 * 7},
    // dy gamma (1, 1), dy y (2, 1) and its sum (1), cast (1, 2), by the product rule (2, 2), (4, 2), sum (2), 2 x
    // (2, 2), times the gradient of the mean (2, 2), the sum of both (4, 2), cast (2, 1)
    {OpKind::kRmsNormGrad, 1, 23, 15, 15},
    {OpKind::kNormHeadsGrad, 1, 23, 15, 2 * 15},
    // As those, then float(z) (1, 2), silu (2, 2), product (3, 2), cast (2, 1)
    {OpKind::kGatedRmsNorm, 0, 18, 15, 11},
    // backward two products (7, 4), silu (4, 2), casts (4, 2)
    {OpKind::kGatedRmsNormGrad, 1, 38, 23, 20},
    // Bytes: float(x) (1, 2), times the angles (2, 2), cast (2, 1). Operators: of queries and keys two products, two
    // slices, a negation, a joint and a sum each.
    {OpKind::kRotary, 0, 5, 5, 13},
    {OpKind::kRotaryGrad, 0, 5, 5, 17},
    // Of DeepSeek-V3's heads, 128 + 64 and values of 128: a third of the queries turned (5, 5); queries, keys and
    // values joined (1, 1) each. Backward the same the other way round; there the operand is all three.
    {OpKind::kLatentHeads, 0, 4, 4, 13 + 3},
    {OpKind::kLatentHeadsGrad, 0, 2, 2, 17 + 3},
    // silu (1, 1), product (2, 1), of half of the elements each; backward two products (2, 1) and silu (2, 1)
    {OpKind::kSwiglu, 0, 2, 1, 1},
    {OpKind::kSwigluGrad, 1, 3, 2, 2},
    {OpKind::kGeglu, 0, 2, 1, 1},
    {OpKind::kGegluGrad, 1, 3, 2, 2},
};

void CountEagerSteps(OpKind kind, absl::Span<const Shape> inputs, KernelWork& work) {
  for (const EagerOp& eager : kEagerOps) {
    if (eager.kind != kind) continue;
    const Shape& shape = inputs[eager.operand];
    int64_t touched = NumElements(shape);
    if ((kind == OpKind::kNormHeads || kind == OpKind::kNormHeadsGrad) && shape.size() == 5 && shape[3] > 0) {
      touched -= touched / shape[3];
    }
    const Bytes elements(2 * touched);
    work.kernel = KernelClass::kMemory;
    work.read = elements * eager.read;
    work.written = elements * eager.written;
    work.steps = eager.steps;
  }
}

// Operators whose kernels take an exponential, a tangent or a sine at every point.
constexpr OpKind kWithFunctions[] = {
    OpKind::kTanh,
    OpKind::kSigmoid,
    OpKind::kSilu,
    OpKind::kGelu,
    OpKind::kSwiglu,
    OpKind::kSoftmax,
    OpKind::kLogSoftmax,
    OpKind::kCrossEntropy,
    OpKind::kRotary,
    OpKind::kExpSumAndPick,
    OpKind::kJoinPartials,
    OpKind::kMergeAttention,
    OpKind::kTanhGrad,
    OpKind::kSigmoidGrad,
    OpKind::kSiluGrad,
    OpKind::kGeluGrad,
    OpKind::kSwigluGrad,
    OpKind::kLogSoftmaxGrad,
    OpKind::kGeglu,
    OpKind::kGegluGrad,
    OpKind::kPartialsGrad,
    OpKind::kCrossEntropyGrad,
    OpKind::kLatentHeads,
    OpKind::kCausalConv,
    OpKind::kCausalConvGrad,
    OpKind::kGatedRmsNorm,
    OpKind::kGatedRmsNormGrad,
};

// Points of all parameters of an update.
double UpdatePoints(const UpdateOperands& operands, int64_t tensors, absl::Span<const Shape> inputs) {
  double points = 0;
  for (int64_t t = 0; t < tensors; ++t) {
    points += static_cast<double>(NumElements(inputs[static_cast<size_t>(t) * operands.inputs]));
  }
  return points;
}

}  // namespace

std::optional<UpdateOperands> UpdateOperandsOf(OpKind kind, const OpAttrs& attrs, size_t inputs, size_t outputs) {
  if (!IsOptimizer(kind) || attrs.tensors < 1 || static_cast<size_t>(attrs.tensors) > inputs) return std::nullopt;
  const auto tensors = static_cast<size_t>(attrs.tensors);
  // LAMB's states are its first step's; the second takes that step and the norms, which are as many.
  const bool makes_norms = kind == OpKind::kLambStep, takes_norms = kind == OpKind::kLamb;
  const bool makes_step = makes_norms || kind == OpKind::kMuonStep;
  UpdateOperands operands;
  operands.inputs = NumStates(kind) + 2;
  operands.input_scalars = takes_norms ? 2 : 0;
  operands.output_scalars = makes_norms ? 2 : 0;
  operands.outputs = outputs / tensors;
  operands.scaled = inputs == tensors * operands.inputs + 2;
  const size_t least = takes_norms ? 1 : NumStates(kind) + 1 + operands.output_scalars;
  const bool copied = !makes_step && operands.outputs == least + 1;
  if (inputs != tensors * operands.inputs + (operands.scaled ? 2 : 0) || outputs != tensors * operands.outputs ||
      (!copied && operands.outputs != least)) {
    return std::nullopt;
  }
  return operands;
}

// Products over the vocabulary (models/decoder.h) are the output layer's, which frameworks leave in 16 bits:
// Megatron-Core's output_layer is none of Transformer Engine's (models/gpt/gpt_model.py), torchtitan's filter leaves
// `output` out (float8.filter_fqns in its configurations), MaxText's logits_dense has no `quant` (layers/decoders.py),
// and DeepSeek-V3 says so (its report, section 3.3.1).
constexpr absl::string_view kVocabularyLabel = "v";

KernelWork WorkOf(OpKind kind, const OpAttrs& attrs, const IndexRule& rule, absl::Span<const Shape> inputs,
                  absl::Span<const DType> input_dtypes, absl::Span<const Shape> outputs,
                  absl::Span<const DType> output_dtypes) {
  KernelWork work;
  const OpInfo& info = InfoOf(kind);
  work.kernel = info.kernel;
  if (work.kernel == KernelClass::kNone) return work;
  bool found = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (kind != OpKind::kMuonStep || i > 0) work.read += SizeOf(input_dtypes[i]) * NumElements(inputs[i]);
    if (!found && InfoOf(input_dtypes[i]).floating && !inputs[i].empty()) {
      work.dtype = input_dtypes[i];
      found = true;
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    work.written += SizeOf(output_dtypes[i]) * NumElements(outputs[i]);
    if (!found && InfoOf(output_dtypes[i]).floating) work.dtype = output_dtypes[i];
  }
  Shape extents(rule.labels.size(), 1);
  const auto collect = [&](const std::vector<OperandRule>& operands, absl::Span<const Shape> shapes) {
    for (size_t i = 0; i < operands.size() && i < shapes.size(); ++i) {
      for (size_t d = 0; d < operands[i].size(); ++d) {
        const DimRule& dim = operands[i][d];
        if (dim.label != DimRule::kUnsplit && !dim.own_size) extents[dim.label] = shapes[i][d];
      }
    }
  };
  collect(rule.outputs, outputs);
  collect(rule.inputs, inputs);
  switch (work.kernel) {
    case KernelClass::kContraction:
      SetProductExtents(rule, extents, info.epilogue, work);
      work.wide = std::any_of(rule.labels.begin(), rule.labels.end(),
                              [](const Label& label) { return label.name == kVocabularyLabel; });
      return work;
    case KernelClass::kAttention:
      SetAttentionExtents(attrs, kind == OpKind::kAttentionGrad, inputs, outputs, work);
      return work;
    case KernelClass::kLinearAttention:
      SetRecurrenceExtents(kind == OpKind::kLinearAttentionGrad, inputs, outputs, work);
      return work;
    case KernelClass::kGather:
      CountRows(kind, inputs, input_dtypes, outputs, output_dtypes, work);
      break;
    case KernelClass::kNone:
    case KernelClass::kMemory:
    case KernelClass::kNormalize:
      break;
  }
  if (kind == OpKind::kExpSumAndPick && !attrs.fused) {
    // One kernel each, in place: minus the maximum, exponential, sum, division by it.
    const Bytes logits = SizeOf(input_dtypes[0]) * NumElements(inputs[0]);
    work.read += logits * 3;
    work.written += logits * 3;
  }
  // The gradient of a log-softmax, which sums a row before it writes it.
  if (kind == OpKind::kPartialsGrad && !attrs.fused) work.kernel = KernelClass::kNormalize;
  if (kind == OpKind::kStridedSlice) work.read = work.written;
  if (!attrs.fused) CountEagerSteps(kind, inputs, work);
  const OpKind first = info.front != OpKind::kNumOps ? info.front : kind;
  work.functions = std::find(std::begin(kWithFunctions), std::end(kWithFunctions), kind) != std::end(kWithFunctions);
  work.backward = first >= OpKind::kReluGrad && first <= OpKind::kCombineGrad;
  // As a double: a Fill of many tensors spans a space larger than any integer.
  double points = 1;
  for (int64_t extent : extents) points *= static_cast<double>(extent);
  if (attrs.tensors > 1) {
    const std::optional<UpdateOperands> update = UpdateOperandsOf(kind, attrs, inputs.size(), outputs.size());
    points = update.has_value() ? UpdatePoints(*update, attrs.tensors, inputs) : 0;
  }
  work.flops = Flops(info.flops_per_point == 0 ? 0 : info.flops_per_point * points);
  return work;
}

}  // namespace meshwright
