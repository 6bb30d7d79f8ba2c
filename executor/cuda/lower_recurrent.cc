// Linear attention and state spaces, with the convolution in front and the norm behind.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/cuda/lowering.h"
#include "ir/recurrence.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

// Output `output` (+)= the sum of `parts` parts of as many elements.
absl::Status LaunchSumOfParts(const Lowering& l, const Ref& x, int64_t parts, size_t output) {
  const TensorView& to = l.call.outputs[output];
  Reduce sum;
  sum.by_thread = true;
  sum.add = l.call.Adds(output);
  sum.x = x;
  sum.out = RefOf(to);
  AddDim(sum.kept, to.size(), {1, 1});
  AddDim(sum.reduced, parts, {to.size()});
  sum.vectors = to.size() % kVector == 0 && TakesVectors({sum.x, sum.out});
  return l.LaunchVectors(to.size(), sum);
}

// Of a whole sequence.
SequenceOrder OrderOf(const KernelCall& call, int64_t s) { return {0, s, std::max<int64_t>(1, call.attrs->context)}; }

absl::Status LowerCausalConv(const Lowering& l) {
  const KernelCall& call = l.call;
  MESHWRIGHT_ASSIGN_OR_RETURN(const ConvShape shape, ConvShapeOf(call));
  CausalConv body;
  body.gradient = call.op == OpKind::kCausalConvGrad;
  const auto in = call.inputs.subspan(body.gradient ? 1 : 0);
  body.add = call.Adds(0);
  body.c = {shape.s, shape.b, shape.channels, shape.taps, OrderOf(call, shape.s), RefOf(in[0]), RefOf(in[1]), {}, {}};
  if (shape.bias) body.c.bias = RefOf(in[2]);
  if (body.gradient) body.c.dy = RefOf(call.inputs[0]);
  body.out = RefOf(call.outputs[0]);
  AddDim(body.places, shape.s, {1, 0, 0});
  AddDim(body.places, shape.b, {0, 1, 0});
  AddDim(body.places, shape.channels, {0, 0, 1});
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchPoints(body.places.total, body));
  if (!body.gradient) return absl::OkStatus();
  const int64_t columns = shape.channels * shape.taps;
  CausalConvParameters parameters;
  parameters.c = body.c;
  parameters.parts = PartsOf(shape.s, shape.channels * kVector);  // threads take one channel each
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch,
                              l.scratch.Get(l.stream, Bytes(parameters.parts * (columns + shape.channels) * 8)));
  const Elem type = l.wide ? Elem::kFloat64 : Elem::kFloat32;
  parameters.d_weight = {scratch, type};
  if (shape.bias) parameters.d_bias = {scratch + parameters.parts * columns * 8, type};
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchPoints(parameters.Points(), parameters));
  MESHWRIGHT_RETURN_IF_ERROR(LaunchSumOfParts(l, parameters.d_weight, parameters.parts, 1));
  return shape.bias ? LaunchSumOfParts(l, parameters.d_bias, parameters.parts, 2) : absl::OkStatus();
}

absl::Status LowerGatedNorm(const Lowering& l) {
  const KernelCall& call = l.call;
  GatedNorm body;
  MESHWRIGHT_ASSIGN_OR_RETURN(body.gammas, GammaRowsOf(call));
  body.gradient = call.op == OpKind::kGatedRmsNormGrad;
  body.first = call.attrs->gate_first;
  body.epsilon = call.attrs->epsilon;
  body.add = call.Adds(0);
  const auto in = call.inputs.subspan(body.gradient ? 1 : 0);
  body.width = in[0].shape.back();
  body.rows = in[0].size() / std::max<int64_t>(1, body.width);
  body.x = RefOf(in[0]);
  body.z = RefOf(in[1]);
  body.gamma = RefOf(in[2]);
  (body.gradient ? body.dx : body.y) = RefOf(call.outputs[0]);
  if (body.gradient) {
    body.add_dz = call.Adds(1);
    body.dy = RefOf(call.inputs[0]);
    body.dz = RefOf(call.outputs[1]);
  }
  body.vectors =
      body.width % kVector == 0 && TakesVectors({body.x, body.z, body.gamma, body.y, body.dy, body.dx, body.dz});
  const int64_t width = body.vectors ? body.width / 4 : body.width;
  if (!body.gradient) return l.LaunchRows(body.rows, width, body);
  GatedNormParameters parameters;
  const int64_t columns = body.gammas * body.width;
  parameters.parts = PartsOf(body.rows / std::max<int64_t>(1, body.gammas), columns);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch,
                              l.scratch.Get(l.stream, Bytes(body.rows * 8 + 8 + parameters.parts * columns * 8)));
  body.inverses = reinterpret_cast<double*>(scratch);
  parameters.rows = body.rows;
  parameters.width = body.width;
  parameters.gammas = body.gammas;
  parameters.dy = body.dy;
  parameters.x = body.x;
  parameters.z = body.z;
  parameters.inverses = body.inverses;
  // At a multiple of 16 bytes.
  parameters.dgamma = {scratch + (body.rows + body.rows % 2) * 8, l.wide ? Elem::kFloat64 : Elem::kFloat32};
  parameters.vectors = body.vectors && TakesVectors({parameters.dgamma});
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(body.rows, width, body));
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchVectors(parameters.parts * columns, parameters));
  return LaunchSumOfParts(l, parameters.dgamma, parameters.parts, 2);
}

// Sets how many threads a column has, and how many tokens come at a time: as many as fit.
template <class Body>
absl::Status Cut(const Lowering& l, Body& body, int64_t& shared) {
  body.lanes = static_cast<int32_t>((body.width + Body::kRows - 1) / Body::kRows);
  for (body.tokens = 16; body.tokens >= 4 && body.threads() <= 256; body.tokens /= 2) {
    shared = body.SharedElements() * (l.wide ? 8 : 4);
    if (shared <= kSharedLimit) return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("queries and keys of ", body.width, " elements"));
}

// Sizes and operands of a call, whose first operand is in[0].
StateWalk WalkOf(const Lowering& l, const RecurrenceShape& shape, absl::Span<const TensorView> in) {
  StateWalk walk;
  walk.delta = shape.delta;
  walk.by_row = shape.by_row;
  walk.s = shape.s;
  walk.b = shape.b;
  walk.groups = shape.groups;
  walk.heads = shape.heads;
  walk.width = shape.width;
  walk.value_width = shape.value_width;
  walk.pairs = shape.b * shape.groups;
  walk.order = OrderOf(l.call, shape.s);
  walk.x = RefOf(in[0]);
  if (l.call.op == OpKind::kLinearAttentionGrad) walk.dy = RefOf(l.call.inputs[0]);
  walk.vectors = shape.width % kVector == 0 && shape.value_width % kVector == 0 && TakesVectors({walk.x, walk.dy});
  return walk;
}

absl::Status LaunchScalars(const Lowering& l, const StateWalk& walk, absl::Span<const TensorView> in, void* out) {
  LinearAttentionScalars body;
  static_cast<StateWalk&>(body) = walk;
  body.epsilon = kLengthEpsilon;
  body.gates = RefOf(in[1]);
  body.rates = RefOf(in[2]);
  body.biases = RefOf(in[3]);
  if (walk.by_row) body.amounts = RefOf(in[4]);
  body.out = out;
  return l.LaunchRows(walk.s * walk.pairs, walk.width, body);
}

template <class Body>
absl::Status LaunchWalk(const Lowering& l, const Body& body, int64_t shared) {
  return l.Launch({std::min(body.blocks(), Lowering::kMostBlocks), body.threads(), shared}, body);
}

absl::Status LowerLinearAttention(const Lowering& l, const RecurrenceShape& shape) {
  LinearAttentionForward body;
  static_cast<StateWalk&>(body) = WalkOf(l, shape, l.call.inputs);
  int64_t shared = 0;
  MESHWRIGHT_RETURN_IF_ERROR(Cut(l, body, shared));
  body.add = l.call.Adds(0);
  if (!shape.delta) body.weights = RefOf(l.call.inputs[4]);
  body.y = RefOf(l.call.outputs[0]);
  if (l.call.outputs[0].size() == 0) return absl::OkStatus();
  const int64_t element = l.wide ? 8 : 4;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch,
                              l.scratch.Get(l.stream, Bytes(shape.s * body.pairs * body.of_scalars() * element)));
  body.scalars = scratch;
  MESHWRIGHT_RETURN_IF_ERROR(LaunchScalars(l, body, l.call.inputs, scratch));
  return LaunchWalk(l, body, shared);
}

// So many blocks walk backward at a time, two for each SM of an H100, or those of one pair (row of the batch, group).
// Their scratch, of float32, keys of 128 and s tokens, with n the cube root of s: 3 n + 1 states of 16 KiB for each,
// and 1 KiB of partial sums for n * n tokens. Of 4,096 tokens that is 196 + 66 MiB for all, of 32,768 tokens 388 + 262
// MiB.
constexpr int64_t kBackwardBlocks = 256;

// What the walks backward of a call share.
struct BackwardPlan {
  LinearAttentionForward forward;
  LinearAttentionBackward back;
  LinearAttentionSums sums;
  int64_t forward_shared = 0, back_shared = 0;
};

absl::Status LaunchBackward(const Lowering& l, BackwardPlan& plan, int64_t pairs) {
  LinearAttentionBackward& back = plan.back;
  for (int64_t pair = 0; pair < back.b * back.groups; pair += pairs) {
    for (StateWalk* const walk : {static_cast<StateWalk*>(&plan.forward), static_cast<StateWalk*>(&back),
                                  static_cast<StateWalk*>(&plan.sums)}) {
      walk->first_pair = pair;
      walk->pairs = std::min(pairs, back.b * back.groups - pair);
    }
    MESHWRIGHT_RETURN_IF_ERROR(LaunchWalk(l, plan.forward, plan.forward_shared));
    for (back.now = back.parts(); back.now-- > 0;) {
      MESHWRIGHT_RETURN_IF_ERROR(LaunchWalk(l, back, plan.back_shared));
      plan.sums.begin = back.now * back.part;
      plan.sums.count = std::min(back.part, back.s - plan.sums.begin);
      const int64_t shared = back.width * (l.wide ? 8 : 4);
      const int32_t threads = back.width > 64 ? 128 : 32;
      MESHWRIGHT_RETURN_IF_ERROR(
          l.Launch({std::min(plan.sums.count * back.pairs, Lowering::kMostBlocks), threads, shared}, plan.sums));
    }
  }
  return absl::OkStatus();
}

absl::Status LowerLinearAttentionGrad(const Lowering& l, const RecurrenceShape& shape) {
  const auto in = l.call.inputs.subspan(1);
  const auto out = l.call.outputs;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out.size() != in.size() || out[i].shape != in[i].shape) {
      return absl::InvalidArgumentError("gradients differ in shape from what they are gradients of");
    }
  }
  BackwardPlan plan;
  LinearAttentionBackward& back = plan.back;
  static_cast<StateWalk&>(back) = WalkOf(l, shape, in);
  MESHWRIGHT_RETURN_IF_ERROR(Cut(l, back, plan.back_shared));
  while (back.step * back.step * back.step < shape.s) ++back.step;
  back.part = back.step * back.step;
  const int64_t all_pairs = back.pairs, of_pair = shape.heads * back.slices();
  const int64_t pairs =
      std::clamp<int64_t>(kBackwardBlocks / std::max<int64_t>(1, of_pair), 1, std::max<int64_t>(1, all_pairs));
  const int64_t blocks = pairs * of_pair, tokens = shape.s * shape.b, heads = shape.groups * shape.heads;
  const int64_t sizes[] = {tokens * shape.groups * back.of_scalars(),
                           (2 * shape.decays() + 1) * tokens * heads,
                           blocks * back.of_marks(),
                           blocks * back.of_states(),
                           blocks * back.elements(),
                           blocks * back.part * back.of_sums()};
  int64_t places[std::size(sizes) + 1] = {};
  const int64_t element = l.wide ? 8 : 4;
  for (size_t i = 0; i < std::size(sizes); ++i) places[i + 1] = places[i] + (sizes[i] * element + 15) / 16 * 16;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(places[std::size(sizes)])));
  std::byte *const scalars = scratch, *const parameters = scratch + places[1], *const marks = scratch + places[2];
  back.scalars = scalars;
  back.marks = marks;
  back.states = scratch + places[3];
  back.d_states = scratch + places[4];
  back.partials = scratch + places[5];
  back.add = l.call.Adds(0);
  back.dx = RefOf(out[0]);
  if (!shape.delta) back.weights = RefOf(in[4]);
  static_cast<StateWalk&>(plan.forward) = back;
  plan.forward.dy = {};
  plan.forward.marks = marks;
  plan.forward.every = back.part;
  plan.forward_shared = plan.forward.SharedElements() * element;
  static_cast<StateWalk&>(plan.sums) = back;
  plan.sums.add = back.add;
  plan.sums.add_gates = l.call.Adds(1);
  plan.sums.dx = back.dx;
  plan.sums.d_gates = RefOf(out[1]);
  plan.sums.gates = RefOf(in[1]);
  plan.sums.rates = RefOf(in[2]);
  plan.sums.biases = RefOf(in[3]);
  if (shape.by_row) {
    plan.sums.d_amounts = RefOf(out[4]);
    plan.sums.add_amounts = l.call.Adds(4);
  }
  plan.sums.part = back.part;
  plan.sums.partials = back.partials;
  plan.sums.parameters = parameters;
  if (l.call.inputs[0].size() > 0) {
    MESHWRIGHT_RETURN_IF_ERROR(LaunchScalars(l, back, in, scalars));
    MESHWRIGHT_RETURN_IF_ERROR(LaunchBackward(l, plan, pairs));
  }
  // Rates are those of a head, biases of a decay, weights of a head.
  const int64_t decays = shape.decays(), kept[] = {heads, heads * decays, heads};
  for (size_t i = 2; i < (shape.by_row ? 4 : out.size()); ++i) {
    const int64_t rows = kept[i - 2], columns = i == 2 ? decays * tokens : tokens;
    Reduce sum;
    sum.add = l.call.Adds(i);
    sum.x = {parameters + static_cast<int64_t>(i - 2) * tokens * heads * decays * element,
             l.wide ? Elem::kFloat64 : Elem::kFloat32};
    sum.out = RefOf(out[i]);
    AddDim(sum.kept, rows, {1, columns});
    AddDim(sum.reduced, columns, {1});
    MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(rows, columns, sum));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerRecurrent(const Lowering& l) {
  const OpKind op = l.call.op;
  const bool conv = op == OpKind::kCausalConv || op == OpKind::kCausalConvGrad;
  const bool back =
      op == OpKind::kCausalConvGrad || op == OpKind::kGatedRmsNormGrad || op == OpKind::kLinearAttentionGrad;
  const size_t operands = l.call.inputs.size() - (back ? 1 : 0), outputs = l.call.outputs.size();
  if (operands < (conv ? 2 : 3) || outputs != (back ? operands : 1)) {
    return absl::InvalidArgumentError(absl::StrCat("has ", l.call.inputs.size(), " inputs and ", outputs, " outputs"));
  }
  if (conv) return LowerCausalConv(l);
  if (op == OpKind::kGatedRmsNorm || op == OpKind::kGatedRmsNormGrad) return LowerGatedNorm(l);
  MESHWRIGHT_ASSIGN_OR_RETURN(const RecurrenceShape shape, RecurrenceOf(l.call));
  return back ? LowerLinearAttentionGrad(l, shape) : LowerLinearAttention(l, shape);
}

}  // namespace meshwright::cuda
