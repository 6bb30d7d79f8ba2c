// Operators that look at one element of each operand at a time, and updates of parameters.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "executor/cuda/lowering.h"
#include "executor/random.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

Activation ActivationOf(OpKind op) {
  switch (op) {
    case OpKind::kSquaredRelu:
    case OpKind::kSquaredReluGrad:
      return Activation::kSquaredRelu;
    case OpKind::kGelu:
    case OpKind::kGeluGrad:
      return Activation::kGelu;
    case OpKind::kTanh:
    case OpKind::kTanhGrad:
      return Activation::kTanh;
    case OpKind::kSigmoid:
    case OpKind::kSigmoidGrad:
      return Activation::kSigmoid;
    case OpKind::kSilu:
    case OpKind::kSiluGrad:
      return Activation::kSilu;
    case OpKind::kSqrt:
    case OpKind::kSqrtGrad:
      return Activation::kSqrt;
    default:
      return Activation::kRelu;
  }
}

// y (+)= op of the inputs from `first` on, `count` of them.
absl::Status Apply(const Lowering& l, PointOp op, size_t first, size_t count, bool add) {
  Pointwise body;
  body.op = op;
  body.activation = ActivationOf(l.call.op);
  body.inputs = static_cast<int32_t>(count);
  body.add = add;
  body.scale = l.call.attrs->scale;
  body.y = RefOf(l.call.outputs[0]);
  for (size_t i = 0; i < count; ++i) body.x[i] = RefOf(l.call.inputs[first + i]);
  body.places = count == 1   ? OverOutput(l.call, {first})
                : count == 2 ? OverOutput(l.call, {first, first + 1})
                             : OverOutput(l.call, {first, first + 1, first + 2});
  return LaunchPointwise(l, body);
}

absl::Status Expect(const Lowering& l, size_t least, size_t most, size_t outputs) {
  const size_t n = l.call.inputs.size();
  if (n >= least && n <= most && l.call.outputs.size() == outputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("has ", n, " inputs and ", l.call.outputs.size(), " outputs, wants ",
                                                 least, " to ", most, " and ", outputs));
}

// Any number of summands: three at a time.
absl::Status LowerAdd(const Lowering& l) {
  const size_t n = l.call.inputs.size();
  for (size_t first = 0; first < n; first += 3) {
    MESHWRIGHT_RETURN_IF_ERROR(
        Apply(l, PointOp::kAdd, first, std::min<size_t>(3, n - first), first > 0 || l.call.Adds(0)));
  }
  return absl::OkStatus();
}

// The dim of extent 2 (gate, value) is the one that the small operand lacks.
absl::Status LowerGate(const Lowering& l, bool gradient) {
  const IndexRule& rule = *l.call.rule;
  const TensorView &small = gradient ? l.call.inputs[0] : l.call.outputs[0],
                   &wide = gradient ? l.call.inputs[1] : l.call.inputs[0];
  const OperandRule &small_rule = gradient ? rule.inputs[0] : rule.outputs[0],
                    &wide_rule = gradient ? rule.inputs[1] : rule.inputs[0];
  Gate body;
  body.gradient = gradient;
  body.gelu = l.call.op == OpKind::kGeglu || l.call.op == OpKind::kGegluGrad;
  body.add = l.call.Adds(0);
  body.y = RefOf(small);
  body.x = RefOf(wide);
  body.dx = RefOf(l.call.outputs[0]);
  const LabelStrides in_small = StridesByLabel(rule, small_rule, small.shape);
  const Shape strides = RowMajorStrides(wide.shape);
  for (size_t d = 0; d < wide_rule.size(); ++d) {
    const int8_t label = wide_rule[d].label;
    const bool shared = std::any_of(small_rule.begin(), small_rule.end(),
                                    [&](const DimRule& dim) { return label >= 0 && dim.label == label; });
    if (shared) {
      AddDim(body.places, wide.shape[d], {in_small[label], strides[d], strides[d]});
    } else if (body.half == 0 && wide.shape[d] == 2) {
      body.half = strides[d];
    } else {
      return absl::InvalidArgumentError("one dim of extent 2 (gate, value) must vanish");
    }
  }
  if (body.half == 0) return absl::InvalidArgumentError("no dim of extent 2 (gate, value) vanishes");
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  body.vectors = body.half % kVector == 0 && TakesVectors(body.places, {body.y, body.x, body.dx}, 3);
  return l.LaunchVectors(body.places.total, body);
}

absl::Status LowerMseGrad(const Lowering& l) {
  Pointwise body;
  body.op = PointOp::kMseGrad;
  body.inputs = 2;
  body.add = l.call.Adds(0);
  body.scale = l.call.attrs->scale;
  body.factor = RefOf(l.call.inputs[0]);
  body.y = RefOf(l.call.outputs[0]);
  body.x[0] = RefOf(l.call.inputs[1]);
  body.x[1] = RefOf(l.call.inputs[2]);
  body.places = OverOutput(l.call, {1, 2});
  return LaunchPointwise(l, body);
}

// And the sum with what has the same dims.
absl::Status LowerDropout(const Lowering& l) {
  const bool sum = l.call.op == OpKind::kDropoutAdd;
  if (sum && (l.call.inputs.size() != 2 || l.call.outputs.size() != 1 || l.call.Adds(0) ||
              l.call.rule->inputs[1] != l.call.rule->outputs[0])) {
    return LowerInParts(l);
  }
  const TensorView &x = l.call.inputs[0], &y = l.call.outputs[0];
  if (x.shape != y.shape) return absl::InvalidArgumentError("dims of input and output are in the same order");
  Dropout body;
  body.add = l.call.Adds(0);
  body.rate = l.call.attrs->rate;
  const auto key = [draws = Draws(l.call.seed, "dropout", l.call.layer).Sub(l.call.attrs->stream)](int64_t step) {
    return draws.Sub(step).key();
  };
  if (l.values == nullptr) {
    body.key = key(l.call.step);
  } else {
    const std::string name = absl::StrCat("dropout ", l.call.attrs->stream, " ", l.call.layer);
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::byte* const at, l.values->Get(name, key));
    body.key_at = reinterpret_cast<const uint64_t*>(at);
  }
  body.x = RefOf(x);
  if (sum) body.summand = RefOf(l.call.inputs[1]);
  body.y = RefOf(y);
  const TensorView& drawn = l.call.Drawn();
  const Shape in_whole = RowMajorStrides(drawn.global);
  for (size_t d = 0; d < drawn.shape.size(); ++d) {
    body.base += drawn.begin[d] * in_whole[d];
    AddDim(body.places, drawn.shape[d], {in_whole[d]});
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  const int32_t last = body.places.dims - 1;  // its places are of the whole; x and y are contiguous
  body.vectors = TakesVectors({body.x, body.summand, body.y}) && last >= 0 && body.places.stride[last][0] == 1 &&
                 (last == 0 || body.places.extent[last] % kVector == 0);
  return l.LaunchVectors(body.places.total, body);
}

absl::Status CheckShapes(absl::Span<const TensorView> views, const Shape& shape) {
  for (const TensorView& view : views) {
    if (view.shape != shape) return absl::InvalidArgumentError("operands differ in shape");
  }
  return absl::OkStatus();
}

double CorrectionOf(double beta, int64_t step) { return 1 / (1 - std::pow(beta, static_cast<double>(step))); }

absl::StatusOr<const double*> CorrectionAt(StepValues& values, double beta) {
  const auto bits = [beta](int64_t step) {
    const double correction = CorrectionOf(beta, step);
    uint64_t bits;
    std::memcpy(&bits, &correction, sizeof(bits));
    return bits;
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::byte* const at,
                              values.Get(absl::StrFormat("correction of %.17g", beta), bits));
  return reinterpret_cast<const double*>(at);
}

absl::StatusOr<const double*> StepAt(StepValues& values) {
  const auto bits = [](int64_t step) {
    const double number = static_cast<double>(step);
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    return bits;
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::byte* const at, values.Get("step", bits));
  return reinterpret_cast<const double*>(at);
}

// Where loss scaling's scalars are inputs `all` and `all` + 1, the device decides: by them, and the number of the step.
absl::Status SetScaling(const Lowering& l, size_t all, Update& body) {
  if (l.call.inputs.size() == all) return absl::OkStatus();
  body.factor = RefOf(l.call.inputs[all]);
  body.skipped = RefOf(l.call.inputs[all + 1]);
  body.step = static_cast<double>(l.call.step);
  if (l.values == nullptr) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(body.step_at, StepAt(*l.values));
  return absl::OkStatus();
}

// Without parameters. `all`: inputs without the scalars of loss scaling.
absl::StatusOr<Update> UpdateOf(const Lowering& l, UpdateKind kind, size_t all) {
  const KernelCall& call = l.call;
  Update body;
  body.kind = kind;
  body.rate = call.attrs->learning_rate;
  body.beta1 = call.attrs->beta1;
  body.beta2 = call.attrs->beta2;
  body.decay = call.attrs->weight_decay;
  body.epsilon = call.attrs->epsilon;
  body.scale = call.attrs->scale;
  if (l.values == nullptr) {
    body.correct_m = CorrectionOf(body.beta1, call.step);
    body.correct_v = CorrectionOf(body.beta2, call.step);
  } else if (kind == UpdateKind::kAdamW || kind == UpdateKind::kLambStep) {
    MESHWRIGHT_ASSIGN_OR_RETURN(body.correct_m_at, CorrectionAt(*l.values, body.beta1));
    MESHWRIGHT_ASSIGN_OR_RETURN(body.correct_v_at, CorrectionAt(*l.values, body.beta2));
  }
  MESHWRIGHT_RETURN_IF_ERROR(SetScaling(l, all, body));
  return body;
}

using Views = absl::Span<const TensorView>;

// Parameters of one launch.
struct Batch {
  Update update;
  LambNorms norms;  // of kLambStep
};

// Adds a parameter, unless there is no room, or its types are others than those so far.
bool AddTensor(OpKind op, Views inputs, Views outputs, Batch& batch) {
  Update& update = batch.update;
  const Ref none;
  // What stands behind the parameter and the gradient is read, LAMB's second step has norms there and writes no states.
  const size_t states = NumStates(op), written = op == OpKind::kLamb ? 0 : states;
  const Ref w = RefOf(inputs[0]), g = RefOf(inputs[1]), to = RefOf(outputs[0]);
  const Ref m = states > 0 ? RefOf(inputs[2]) : none, new_m = written > 0 ? RefOf(outputs[1]) : none;
  const Ref v = states > 1 ? RefOf(inputs[3]) : none, new_v = written > 1 ? RefOf(outputs[2]) : none;
  const Ref copy = outputs.size() == written + 2 ? RefOf(outputs[written + 1]) : none;
  const Update::Types types = {w.type, g.type, m.type, v.type, to.type, new_m.type, new_v.type, copy.type};
  const int64_t before = update.count == 0 ? 0 : update.ends[update.count - 1], n = inputs[0].size();
  if (update.count == 0) {
    update.types = types;
    update.vectors = true;
  }
  if (update.count == Update::kMost || update.types != types) return false;
  update.vectors =
      update.vectors && TakesVectors({w, g, to, new_m, new_v, copy}) && (op == OpKind::kLamb || TakesVectors({m, v}));
  if (op == OpKind::kLambStep) {
    batch.norms.weights[update.count] = RefOf(outputs[3]);
    batch.norms.steps[update.count] = RefOf(outputs[4]);
  }
  update.tensors[update.count] = {w.data, g.data, m.data, v.data, to.data, new_m.data, new_v.data, copy.data, n};
  update.ends[update.count++] = static_cast<int32_t>(before + Update::ChunksOf(n));
  return true;
}

absl::Status LaunchUpdate(const Lowering& l, Batch& batch) {
  const Update& update = batch.update;
  const int64_t chunks = update.ends[update.count - 1];
  if (update.kind != UpdateKind::kLambStep) {
    return chunks == 0 ? absl::OkStatus() : l.Launch({chunks, 256, 0}, update);
  }
  const int64_t sums = 2 * std::max<int64_t>(1, chunks);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(sums * sizeof(double))));
  LambStep step;
  static_cast<Update&>(step) = update;
  step.sums = reinterpret_cast<double*>(scratch);
  if (chunks > 0) MESHWRIGHT_RETURN_IF_ERROR(l.Launch({chunks, 256, 0}, step));
  batch.norms.sums = step.sums;
  std::copy(update.ends, update.ends + update.count, batch.norms.ends);
  return l.Launch({update.count, 256, 0}, batch.norms);
}

// One launch for as many parameters as it takes; of LAMB's first step two.
absl::Status LowerUpdate(const Lowering& l, UpdateKind kind) {
  const KernelCall& call = l.call;
  const std::optional<UpdateOperands> operands =
      UpdateOperandsOf(call.op, *call.attrs, call.inputs.size(), call.outputs.size());
  if (!operands.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("has ", call.inputs.size(), " inputs and ", call.outputs.size(),
                                                   " outputs, which are not of ", call.attrs->tensors, " parameters"));
  }
  const auto tensors = static_cast<size_t>(call.attrs->tensors), all = tensors * operands->inputs;
  MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(call.inputs.subspan(all), {}));
  Batch batch;
  MESHWRIGHT_ASSIGN_OR_RETURN(batch.update, UpdateOf(l, kind, all));
  const Batch none = batch;
  for (size_t t = 0; t < tensors; ++t) {
    const Views inputs = call.inputs.subspan(t * operands->inputs, operands->inputs);
    const Views outputs = call.outputs.subspan(t * operands->outputs, operands->outputs);
    const size_t whole_inputs = operands->inputs - operands->input_scalars,
                 whole_outputs = operands->outputs - operands->output_scalars;
    MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(inputs.first(whole_inputs), inputs[0].shape));
    MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(inputs.subspan(whole_inputs), {}));
    MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(outputs.first(whole_outputs), inputs[0].shape));
    MESHWRIGHT_RETURN_IF_ERROR(CheckShapes(outputs.subspan(whole_outputs), {}));
    if (AddTensor(call.op, inputs, outputs, batch)) continue;
    MESHWRIGHT_RETURN_IF_ERROR(LaunchUpdate(l, batch));
    batch = none;
    AddTensor(call.op, inputs, outputs, batch);
  }
  return LaunchUpdate(l, batch);
}

// Any of the inputs may find something.
absl::Status LowerNotFinite(const Lowering& l) {
  const TensorView& y = l.call.outputs[0];
  if (!l.call.Adds(0)) {
    MESHWRIGHT_RETURN_IF_ERROR(LaunchFill(l, {y}, 0));
  }
  for (size_t first = 0; first < l.call.inputs.size(); first += NotFinite::kMost) {
    NotFinite body;
    body.y = RefOf(y);
    int64_t largest = 0;
    body.vectors = true;
    for (const TensorView& x : l.call.inputs.subspan(first, NotFinite::kMost)) {
      body.n[body.count] = x.size();
      body.x[body.count++] = RefOf(x);
      body.vectors = body.vectors && TakesVectors({RefOf(x)});
      largest = std::max(largest, x.size());
    }
    MESHWRIGHT_RETURN_IF_ERROR(l.LaunchVectors(largest, body));
  }
  return absl::OkStatus();
}

absl::Status LowerAdjustScale(const Lowering& l) {
  MESHWRIGHT_RETURN_IF_ERROR(Expect(l, 4, 4, 4));
  AdjustScale body;
  body.growth = l.call.attrs->growth;
  body.backoff = l.call.attrs->backoff;
  body.interval = static_cast<double>(l.call.attrs->interval);
  body.scale = RefOf(l.call.inputs[0]);
  body.good = RefOf(l.call.inputs[1]);
  body.skipped = RefOf(l.call.inputs[2]);
  body.found = RefOf(l.call.inputs[3]);
  body.new_scale = RefOf(l.call.outputs[0]);
  body.new_good = RefOf(l.call.outputs[1]);
  body.new_skipped = RefOf(l.call.outputs[2]);
  body.factor = RefOf(l.call.outputs[3]);
  return l.Launch({1, 32, 0}, body);
}

}  // namespace

absl::Status LaunchFill(const Lowering& l, absl::Span<const TensorView> views, double value) {
  for (size_t first = 0; first < views.size(); first += Fill::kMost) {
    Fill body;
    body.value = value;
    body.vectors = true;
    int64_t chunks = 0;
    for (const TensorView& view : views.subspan(first, Fill::kMost)) {
      chunks += (view.size() + Fill::kChunk - 1) / Fill::kChunk;
      body.vectors = body.vectors && TakesVectors({RefOf(view)});
      body.n[body.count] = view.size();
      body.ends[body.count] = static_cast<int32_t>(chunks);
      body.y[body.count++] = RefOf(view);
    }
    if (chunks > 0) MESHWRIGHT_RETURN_IF_ERROR(l.Launch({chunks, 256, 0}, body));
  }
  return absl::OkStatus();
}

absl::Status LowerElementwise(const Lowering& l) {
  const bool add = l.call.Adds(0);
  switch (l.call.op) {
    case OpKind::kAdd:
      MESHWRIGHT_RETURN_IF_ERROR(Expect(l, 1, 64, 1));
      return LowerAdd(l);
    case OpKind::kSub:
      return Apply(l, PointOp::kSub, 0, 2, add);
    case OpKind::kMul:
      return Apply(l, PointOp::kMul, 0, 2, add);
    case OpKind::kDiv:
      return Apply(l, PointOp::kDiv, 0, 2, add);
    case OpKind::kEqual:
      return Apply(l, PointOp::kEqual, 0, 2, add);
    case OpKind::kRelu:
    case OpKind::kSquaredRelu:
    case OpKind::kGelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kSilu:
    case OpKind::kSqrt:
      MESHWRIGHT_RETURN_IF_ERROR(Expect(l, 1, 2, 1));
      return Apply(l, PointOp::kActivation, 0, l.call.inputs.size(), add);
    case OpKind::kReluGrad:
    case OpKind::kSquaredReluGrad:
    case OpKind::kGeluGrad:
    case OpKind::kTanhGrad:
    case OpKind::kSigmoidGrad:
    case OpKind::kSiluGrad:
    case OpKind::kSqrtGrad:
      MESHWRIGHT_RETURN_IF_ERROR(Expect(l, 2, 3, 1));
      return Apply(l, PointOp::kActivationGrad, 0, l.call.inputs.size(), add);
    case OpKind::kSwiglu:
    case OpKind::kGeglu:
      return LowerGate(l, false);
    case OpKind::kSwigluGrad:
    case OpKind::kGegluGrad:
      return LowerGate(l, true);
    case OpKind::kMseLossGrad:
      return LowerMseGrad(l);
    case OpKind::kDropout:
    case OpKind::kDropoutAdd:
      return LowerDropout(l);
    case OpKind::kFill:
      return LaunchFill(l, l.call.outputs, l.call.attrs->scale);
    case OpKind::kSgd:
      return LowerUpdate(l, UpdateKind::kSgd);
    case OpKind::kMomentum:
      return LowerUpdate(l, UpdateKind::kMomentum);
    case OpKind::kAdamW:
      return LowerUpdate(l, UpdateKind::kAdamW);
    case OpKind::kLambStep:
      return LowerUpdate(l, UpdateKind::kLambStep);
    case OpKind::kLamb:
      return LowerUpdate(l, UpdateKind::kLamb);
    case OpKind::kMuonStep:
      return LowerUpdate(l, UpdateKind::kMuonStep);
    case OpKind::kMuon:
      return LowerUpdate(l, UpdateKind::kMuon);
    case OpKind::kNotFinite:
      return LowerNotFinite(l);
    case OpKind::kAdjustScale:
      return LowerAdjustScale(l);
    default:
      return absl::UnimplementedError("there is no kernel for devices");
  }
}

}  // namespace meshwright::cuda
