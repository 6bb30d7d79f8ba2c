#include "ir/gradients.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ir/exchange.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// One call of AddGradient, with short names for what every entry needs.
class Gradients {
 public:
  explicit Gradients(const GradientContext& context)
      : c_(context), op_(context.builder.graph().op(context.op)), dy_(context.output_gradients[0]) {}

  absl::Status Run();

 private:
  struct Emit {
    OpKind kind;
    std::vector<TensorId> inputs;
    std::string rule;
    std::vector<TensorId> of;  // the tensors whose gradients the outputs are
    double scale = 1;
    OpId forward = {};  // default: the op itself
    Shape sources = {};
  };

  const Tensor& tensor(TensorId id) const { return c_.builder.graph().tensor(id); }
  // An operand's part of the forward rule as text: In(0) is "m k" for "m k, k n -> m n".
  std::string In(size_t i) const { return Text(op_.rule->inputs[i]); }
  std::string Out(size_t i = 0) const { return Text(op_.rule->outputs[i]); }
  std::string Text(const OperandRule& operand) const { return Text(op_.rule, operand); }
  static std::string Text(const IndexRule& rule, const OperandRule& operand) {
    return absl::StrJoin(operand, " ", [&rule](std::string* out, const DimRule& dim) {
      if (dim.label == DimRule::kUnsplit) {
        absl::StrAppend(out, "1");
      } else {
        const Label& label = rule.labels[dim.label];
        absl::StrAppend(out, dim.own_size ? "=" : "", label.name, label.whole ? "!" : "");
      }
    });
  }
  bool Wanted(size_t input) const { return c_.wanted(op_.inputs[input]); }

  // Adds one backward op whose outputs are gradients of `emit.of`, and reports them. Outputs nobody wants are made too.
  absl::Status Add(Emit emit) {
    GraphBuilder::OpSpec spec{.name = absl::StrCat(op_.name, "/grad"), .kind = emit.kind, .inputs = emit.inputs};
    spec.rule = std::move(emit.rule);
    spec.attrs = op_.attrs;
    spec.attrs.scale = emit.scale;
    spec.attrs.sources = emit.sources;
    spec.phase = Phase::kBackward;
    spec.forward = emit.forward.valid() ? emit.forward : c_.op;
    for (TensorId id : emit.of) {
      TensorId output = c_.wanted(id) ? c_.accumulator(id) : TensorId();
      if (!output.valid()) {
        Tensor gradient;
        gradient.name = absl::StrCat("d", tensor(id).name);
        gradient.dtype = tensor(id).dtype;
        gradient.shape = tensor(id).shape;
        gradient.segment = op_.segment;
        gradient.producer = OpId(c_.builder.graph().ops.size());
        gradient.gradient_of = id;
        Graph& graph = c_.builder.mutable_graph();
        output = TensorId(graph.tensors.size());
        graph.tensors.push_back(std::move(gradient));
      }
      spec.outputs.push_back(output);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, c_.builder.Add(std::move(spec)));
    for (size_t i = 0; i < emit.of.size(); ++i) {
      if (c_.wanted(emit.of[i]) && !c_.accumulator(emit.of[i]).valid()) c_.contribute(emit.of[i], outputs[i]);
    }
    return absl::OkStatus();
  }

  // dz has the shape of the output; gives it to input i, summed over the dims that were broadcast.
  absl::Status Reduce(TensorId dz, size_t i, double scale = 1) {
    if (!Wanted(i)) return absl::OkStatus();
    const bool same = op_.rule->inputs[i] == op_.rule->outputs[0];
    if (same && scale == 1 && !c_.accumulator(op_.inputs[i]).valid()) {
      c_.contribute(op_.inputs[i], dz);
      return absl::OkStatus();
    }
    return Add({OpKind::kReduceSum, {dz}, absl::StrCat(Out(), " -> ", In(i)), {op_.inputs[i]}, scale});
  }

  // A value in the output's shape that is no tensor's gradient yet.
  absl::StatusOr<TensorId> Elementwise(OpKind kind, std::vector<TensorId> inputs, const std::string& rule) {
    GraphBuilder::OpSpec spec{.name = absl::StrCat(op_.name, "/grad"), .kind = kind, .inputs = std::move(inputs)};
    spec.rule = rule;
    spec.attrs = op_.attrs;
    spec.phase = Phase::kBackward;
    spec.forward = c_.op;
    return c_.builder.AddOne(std::move(spec));
  }

  absl::Status Product();
  absl::Status Activation(OpKind gradient);
  absl::Status MulOrDiv();
  absl::Status Norm(OpKind gradient);
  absl::Status Recurrent(OpKind gradient);
  absl::Status Losses();
  absl::Status Experts();
  absl::Status Groups();
  absl::Status Extremum();
  absl::Status Pieces();
  absl::Status Exchanged();
  absl::Status Attention();
  absl::Status MergedAttention();
  absl::StatusOr<TensorId> HandOn(TensorId keys, const Op& exchange);
  absl::Status Movement();

  const GradientContext& c_;
  const Op op_;  // a copy: the graph's vector grows while ops are added
  const TensorId dy_;
};

absl::Status Gradients::Product() {
  if (Wanted(0)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId b, c_.saved(op_.inputs[1]));
    MESHWRIGHT_RETURN_IF_ERROR(
        Add({OpKind::kMatMul, {dy_, b}, absl::StrCat(Out(), ", ", In(1), " -> ", In(0)), {op_.inputs[0]}}));
  }
  if (Wanted(1)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId a, c_.saved(op_.inputs[0]));
    MESHWRIGHT_RETURN_IF_ERROR(
        Add({OpKind::kMatMul, {a, dy_}, absl::StrCat(In(0), ", ", Out(), " -> ", In(1)), {op_.inputs[1]}}));
  }
  return op_.inputs.size() > 2 ? Reduce(dy_, 2) : absl::OkStatus();
}

absl::Status Gradients::Activation(OpKind gradient) {
  std::vector<TensorId> inputs = {dy_};
  std::string rule = Out();
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, c_.saved(op_.inputs[i]));
    inputs.push_back(x);
    absl::StrAppend(&rule, ", ", In(i));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId dz, Elementwise(gradient, inputs, absl::StrCat(rule, " -> ", Out())));
  for (size_t i = 0; i < op_.inputs.size(); ++i) MESHWRIGHT_RETURN_IF_ERROR(Reduce(dz, i));
  return absl::OkStatus();
}

absl::Status Gradients::MulOrDiv() {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId b, c_.saved(op_.inputs[1]));
  if (Wanted(0)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId da,
                                Elementwise(op_.kind, {dy_, b}, absl::StrCat(Out(), ", ", In(1), " -> ", Out())));
    MESHWRIGHT_RETURN_IF_ERROR(Reduce(da, 0));
  }
  if (!Wanted(1)) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId a, c_.saved(op_.inputs[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId db,
                              Elementwise(OpKind::kMul, {dy_, a}, absl::StrCat(Out(), ", ", In(0), " -> ", Out())));
  if (op_.kind == OpKind::kMul) return Reduce(db, 1);
  // d(a/b)/db = -a / b^2
  const std::string by_b = absl::StrCat(Out(), ", ", In(1), " -> ", Out());
  MESHWRIGHT_ASSIGN_OR_RETURN(db, Elementwise(OpKind::kDiv, {db, b}, by_b));
  MESHWRIGHT_ASSIGN_OR_RETURN(db, Elementwise(OpKind::kDiv, {db, b}, by_b));
  return Reduce(db, 1, -1);
}

absl::Status Gradients::Norm(OpKind gradient) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, c_.saved(op_.inputs[0]));
  std::string rule = absl::StrCat(Out(), ", ", In(0), ", ", In(1), " -> ", In(0), ", ", In(1));
  if (op_.inputs.size() > 2) absl::StrAppend(&rule, ", ", In(2));
  return Add({gradient, {dy_, x, op_.inputs[1]}, std::move(rule), op_.inputs});
}

// Takes dy and all inputs; makes the gradients of all of them.
absl::Status Gradients::Recurrent(OpKind gradient) {
  std::vector<TensorId> inputs = {dy_};
  std::vector<std::string> operands;
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId read, c_.saved(op_.inputs[i]));
    inputs.push_back(read);
    operands.push_back(In(i));
  }
  const std::string of = absl::StrJoin(operands, ", ");
  return Add({gradient, inputs, absl::StrCat(Out(), ", ", of, " -> ", of), op_.inputs});
}

absl::Status Gradients::Losses() {
  if (op_.kind == OpKind::kLossFromPartials) {
    // The three steps of the split cross entropy have one gradient, with respect to the logits.
    const OpId partials = tensor(op_.inputs[1]).producer;
    const Op from = c_.builder.graph().op(partials);
    if (from.kind != OpKind::kExpSumAndPick) return absl::InternalError("LossFromPartials without ExpSumAndPick");
    std::vector<TensorId> inputs = {dy_};
    for (TensorId id : {from.inputs[0], op_.inputs[0], op_.inputs[1], from.inputs[2]}) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId read, c_.saved(id));
      inputs.push_back(read);
    }
    const std::string rule = ToText(from.rule);  // "s b v, s b, b s -> s b, s b"
    const std::vector<std::string> parts = absl::StrSplit(rule.substr(0, rule.find(" ->")), ", ");
    return Add({OpKind::kPartialsGrad,
                inputs,
                absl::StrCat(", ", parts[0], ", ", parts[1], ", ", parts[1], ", ", parts[2], " -> ", parts[0]),
                {from.inputs[0]},
                op_.attrs.scale,
                partials});
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, c_.saved(op_.inputs[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId target, c_.saved(op_.inputs[1]));
  const OpKind kind = op_.kind == OpKind::kMseLoss ? OpKind::kMseLossGrad : OpKind::kCrossEntropyGrad;
  if (Wanted(1))
    return absl::UnimplementedError(absl::StrCat("operator \"", op_.name, "\": no gradient to its target"));
  return Add({kind,
              {dy_, x, target},
              absl::StrCat(Out(), ", ", In(0), ", ", In(1), " -> ", In(0)),
              {op_.inputs[0]},
              op_.attrs.scale});
}

absl::Status Gradients::Experts() {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits, c_.saved(op_.inputs[1]));
  if (op_.kind == OpKind::kDispatch) {
    return Add(
        {OpKind::kDispatchGrad, {dy_, logits}, absl::StrCat(Out(), ", ", In(1), " -> ", In(0)), {op_.inputs[0]}});
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId ye, c_.saved(op_.inputs[0]));
  return Add({OpKind::kCombineGrad,
              {dy_, ye, logits},
              absl::StrCat(Out(), ", ", In(0), ", ", In(1), " -> ", In(0), ", ", In(1)),
              {op_.inputs[0], op_.inputs[1]}});
}

// ToGroups and FromGroups, each the other's gradient; which groups a token goes to has none.
absl::Status Gradients::Groups() {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId logits, c_.saved(op_.inputs[1]));
  for (size_t i = 0; i < c_.output_gradients.size(); ++i) {
    const TensorId dy = c_.output_gradients[i];
    if (!dy.valid() || !Wanted(i)) continue;
    const OpKind kind = op_.kind == OpKind::kToGroups ? OpKind::kFromGroups : OpKind::kToGroups;
    MESHWRIGHT_RETURN_IF_ERROR(
        Add({kind, {dy, logits}, absl::StrCat(Out(i), ", ", In(1), " -> ", In(i)), {op_.inputs[i]}}));
  }
  return absl::OkStatus();
}

// dy goes where x is the extremum; elements that are equal share it.
absl::Status Gradients::Extremum() {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, c_.saved(op_.inputs[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId y, c_.saved(op_.outputs[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId hit,
                              Elementwise(OpKind::kEqual, {x, y}, absl::StrCat(In(0), ", ", Out(), " -> ", In(0))));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId hits,
                              Elementwise(OpKind::kReduceSum, {hit}, absl::StrCat(In(0), " -> ", Out())));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId share,
                              Elementwise(OpKind::kDiv, {dy_, hits}, absl::StrCat(Out(), ", ", Out(), " -> ", Out())));
  return Add({OpKind::kMul, {hit, share}, absl::StrCat(In(0), ", ", Out(), " -> ", In(0)), {op_.inputs[0]}});
}

// Concat and Split, each the other's gradient.
absl::Status Gradients::Pieces() {
  std::vector<std::string> operands;
  if (op_.kind == OpKind::kConcat) {
    for (size_t i = 0; i < op_.inputs.size(); ++i) operands.push_back(In(i));
    return Add({OpKind::kSplit, {dy_}, absl::StrCat(Out(), " -> ", absl::StrJoin(operands, ", ")), op_.inputs});
  }
  std::vector<TensorId> gradients = c_.output_gradients;
  for (size_t i = 0; i < gradients.size(); ++i) {
    operands.push_back(Out(i));
    if (gradients[i].valid()) continue;
    // No gradient reaches this piece: zeros.
    GraphBuilder::OpSpec zeros{.name = absl::StrCat(op_.name, "/grad"), .kind = OpKind::kFill, .inputs = {}};
    zeros.rule = absl::StrCat(" -> ", Out(i));
    zeros.attrs.scale = 0;
    zeros.output_shapes = {tensor(op_.outputs[i]).shape};
    zeros.output_dtypes = {tensor(op_.outputs[i]).dtype};
    zeros.phase = Phase::kBackward;
    zeros.forward = c_.op;
    MESHWRIGHT_ASSIGN_OR_RETURN(gradients[i], c_.builder.AddOne(std::move(zeros)));
  }
  return Add({OpKind::kConcat, gradients, absl::StrCat(absl::StrJoin(operands, ", "), " -> ", In(0)), op_.inputs});
}

// What a rank sent comes back from who got it. Of a broadcast: the sum of all, at the root.
absl::Status Gradients::Exchanged() {
  const Shape& sources = op_.attrs.sources;
  const std::string back = absl::StrCat(Out(), " -> ", In(0));
  const Shape shape = tensor(op_.inputs[0]).shape;
  if (const std::optional<ExchangedBroadcast> cast = BroadcastOf(sources, shape); cast.has_value()) {
    OperandRule others = op_.rule->inputs[0];
    others.erase(others.begin() + cast->begin, others.begin() + cast->end);
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sum,
                                Elementwise(OpKind::kReduceSum, {dy_}, absl::StrCat(Out(), " -> ", Text(others))));
    GraphBuilder::OpSpec spec{.name = absl::StrCat(op_.name, "/grad"), .kind = OpKind::kBroadcast, .inputs = {sum}};
    spec.rule = absl::StrCat(Text(others), " -> ", Out());
    spec.output_shapes = {shape};
    spec.phase = Phase::kBackward;
    spec.forward = c_.op;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId everywhere, c_.builder.AddOne(std::move(spec)));
    Shape at_root = sources;
    for (size_t p = 0; p < at_root.size(); ++p) at_root[p] = sources[p] == static_cast<int64_t>(p) ? sources[p] : -1;
    return Add({OpKind::kExchange, {everywhere}, back, {op_.inputs[0]}, 1, {}, at_root});
  }
  Shape returned(sources.size(), -1);
  for (size_t p = 0; p < sources.size(); ++p) {
    if (sources[p] < 0) continue;
    if (returned[sources[p]] >= 0) {
      return absl::UnimplementedError(
          absl::StrCat("operator \"", op_.name, "\": rank ", sources[p], " sends to several ranks, but not to all"));
    }
    returned[sources[p]] = static_cast<int64_t>(p);
  }
  return Add({OpKind::kExchange, {dy_}, back, {op_.inputs[0]}, 1, {}, returned});
}

absl::Status Gradients::Attention() {
  if (op_.attrs.shift >= 0) {
    return absl::UnimplementedError(absl::StrCat("operator \"", op_.name, "\" is one block of an attention in blocks; ",
                                                 "MergeAttention has the gradient of all of them"));
  }
  std::vector<TensorId> inputs = {dy_}, read = op_.inputs;
  std::vector<std::string> operands;
  for (size_t i = 0; i < op_.inputs.size(); ++i) operands.push_back(In(i));
  const std::string of = absl::StrJoin(operands, ", ");
  read.insert(read.end(), op_.outputs.begin(), op_.outputs.end());
  for (TensorId id : read) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId saved, c_.saved(id));
    inputs.push_back(saved);
  }
  return Add({OpKind::kAttentionGrad, inputs, absl::StrCat(Out(), ", ", of, ", ", Out(), ", ", Out(1), " -> ", of),
              op_.inputs, op_.attrs.scale});
}

// To the rank that has the block next, as `exchange` does.
absl::StatusOr<TensorId> Gradients::HandOn(TensorId keys, const Op& exchange) {
  GraphBuilder::OpSpec spec{.name = absl::StrCat(op_.name, "/grad"), .kind = OpKind::kExchange, .inputs = {keys}};
  spec.rule = ToText(exchange.rule);
  spec.attrs = exchange.attrs;
  spec.phase = Phase::kBackward;
  spec.forward = c_.op;
  return c_.builder.AddOne(std::move(spec));
}

// Keys and values go round the ring once more, and their gradients with them, from rank to rank: block by block the
// gradient is that of attention whose result and row sums are those of the whole. After the last block one more step
// brings the gradients home.
absl::Status Gradients::MergedAttention() {
  std::vector<Op> blocks;
  for (size_t i = 0; i < op_.inputs.size(); i += 2) {
    blocks.push_back(c_.builder.graph().op(tensor(op_.inputs[i]).producer));
    if (blocks.back().kind != OpKind::kAttention || blocks.back().inputs.size() != 2) {
      return absl::InternalError("MergeAttention of something else than attention over given keys");
    }
  }
  if (blocks.size() < 2) return absl::InternalError("MergeAttention of one block");
  const Op exchange = c_.builder.graph().op(tensor(blocks[1].inputs[1]).producer);
  const std::string y = Out(), rows = Out(1);
  const auto in_block = [&](size_t i) { return Text(blocks[0].rule, blocks[0].rule->inputs[i]); };
  const std::string q = in_block(0), kv = in_block(1);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId queries, c_.saved(blocks[0].inputs[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId result, c_.saved(op_.outputs[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sums, c_.saved(op_.outputs[1]));
  MESHWRIGHT_ASSIGN_OR_RETURN(TensorId next, c_.saved(blocks[0].inputs[1]));
  TensorId dq, dkv;
  for (size_t k = 0; k < blocks.size(); ++k) {
    const TensorId here = next;
    TensorId moved;
    // What is on its way while this block is worked on stands before it.
    if (k + 1 < blocks.size()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(next, c_.saved(blocks[k + 1].inputs[1]));
    }
    if (k > 0) {
      MESHWRIGHT_ASSIGN_OR_RETURN(moved, HandOn(dkv, exchange));
    }
    GraphBuilder::OpSpec grad{.name = absl::StrCat(blocks[k].name, "/grad"),
                              .kind = OpKind::kAttentionGrad,
                              .inputs = {dy_, queries, here, result, sums}};
    grad.rule = absl::StrCat(y, ", ", q, ", ", kv, ", ", y, ", ", rows, " -> ", q, ", ", kv);
    grad.attrs = blocks[k].attrs;
    grad.phase = Phase::kBackward;
    grad.forward = c_.op;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> gradients, c_.builder.Add(std::move(grad)));
    if (k == 0) {
      dq = gradients[0];
      dkv = gradients[1];
      continue;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(dq, Elementwise(OpKind::kAdd, {dq, gradients[0]}, absl::StrCat(q, ", ", q, " -> ", q)));
    MESHWRIGHT_ASSIGN_OR_RETURN(
        dkv, Elementwise(OpKind::kAdd, {moved, gradients[1]}, absl::StrCat(kv, ", ", kv, " -> ", kv)));
    if (k + 1 == blocks.size()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(dkv, HandOn(dkv, exchange));
    }
  }
  c_.contribute(blocks[0].inputs[0], dq);
  c_.contribute(blocks[0].inputs[1], dkv);
  return absl::OkStatus();
}

// Ops whose gradient needs no value of the forward pass, or only their own input or output.
absl::Status Gradients::Movement() {
  const std::string back = absl::StrCat(Out(), " -> ", In(0));
  switch (op_.kind) {
    case OpKind::kScale:
      return Add({OpKind::kScale, {dy_}, back, {op_.inputs[0]}, op_.attrs.scale});
    case OpKind::kCast:
    case OpKind::kTranspose:
    case OpKind::kReshape:
      return Add({op_.kind, {dy_}, back, {op_.inputs[0]}});
    case OpKind::kReduceSum:
      return Add({OpKind::kBroadcast, {dy_}, back, {op_.inputs[0]}, op_.attrs.scale});
    case OpKind::kDropout:
      return Add({OpKind::kDropout, {dy_}, back, {op_.inputs[0]}});
    case OpKind::kStridedSlice:
      return Add({OpKind::kStridedSliceGrad, {dy_}, back, {op_.inputs[0]}});
    case OpKind::kBroadcast:
      return Add({OpKind::kReduceSum, {dy_}, back, {op_.inputs[0]}, op_.attrs.scale});
    case OpKind::kRotary:
      return Add({OpKind::kRotaryGrad, {dy_}, back, {op_.inputs[0]}});
    case OpKind::kLatentHeads:
      return Add(
          {OpKind::kLatentHeadsGrad, {dy_}, absl::StrCat(Out(), " -> ", In(0), ", ", In(1), ", ", In(2)), op_.inputs});
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax: {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId y, c_.saved(op_.outputs[0]));
      const OpKind kind = op_.kind == OpKind::kSoftmax ? OpKind::kSoftmaxGrad : OpKind::kLogSoftmaxGrad;
      return Add({kind, {dy_, y}, absl::StrCat(Out(), ", ", Out(), " -> ", In(0)), {op_.inputs[0]}});
    }
    case OpKind::kSwiglu:
    case OpKind::kGeglu: {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId x, c_.saved(op_.inputs[0]));
      const OpKind kind = op_.kind == OpKind::kSwiglu ? OpKind::kSwigluGrad : OpKind::kGegluGrad;
      return Add({kind, {dy_, x}, absl::StrCat(Out(), ", ", In(0), " -> ", In(0)), {op_.inputs[0]}});
    }
    case OpKind::kGather: {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId ids, c_.saved(op_.inputs[1]));
      return Add({OpKind::kGatherGrad, {dy_, ids}, absl::StrCat(Out(), ", ", In(1), " -> ", In(0)), {op_.inputs[0]}});
    }
    case OpKind::kAddPositions:
      MESHWRIGHT_RETURN_IF_ERROR(Reduce(dy_, 0));
      if (!Wanted(1)) return absl::OkStatus();
      return Add({OpKind::kAddPositionsGrad, {dy_}, absl::StrCat(Out(), " -> ", In(1)), {op_.inputs[1]}});
    default:
      return absl::UnimplementedError(
          absl::StrCat("operator \"", op_.name, "\": ", NameOf(op_.kind), " has no gradient"));
  }
}

absl::Status Gradients::Run() {
  switch (op_.kind) {
    case OpKind::kMatMul:
      return Product();
    case OpKind::kAdd:
    case OpKind::kSub:
      for (size_t i = 0; i < op_.inputs.size(); ++i) {
        MESHWRIGHT_RETURN_IF_ERROR(Reduce(dy_, i, op_.kind == OpKind::kSub && i == 1 ? -1 : 1));
      }
      return absl::OkStatus();
    case OpKind::kMul:
    case OpKind::kDiv:
      return MulOrDiv();
    case OpKind::kRelu:
      return Activation(OpKind::kReluGrad);
    case OpKind::kSquaredRelu:
      return Activation(OpKind::kSquaredReluGrad);
    case OpKind::kGelu:
      return Activation(OpKind::kGeluGrad);
    case OpKind::kTanh:
      return Activation(OpKind::kTanhGrad);
    case OpKind::kSigmoid:
      return Activation(OpKind::kSigmoidGrad);
    case OpKind::kSilu:
      return Activation(OpKind::kSiluGrad);
    case OpKind::kSqrt:
      return Activation(OpKind::kSqrtGrad);
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
      return Extremum();
    case OpKind::kConcat:
    case OpKind::kSplit:
      return Pieces();
    case OpKind::kAttention:
      return Attention();
    case OpKind::kMergeAttention:
      return MergedAttention();
    case OpKind::kExchange:
      return Exchanged();
    case OpKind::kLayerNorm:
      return Norm(OpKind::kLayerNormGrad);
    case OpKind::kRmsNorm:
      return Norm(OpKind::kRmsNormGrad);
    case OpKind::kNormHeads:
      return Norm(OpKind::kNormHeadsGrad);
    case OpKind::kCausalConv:
      return Recurrent(OpKind::kCausalConvGrad);
    case OpKind::kLinearAttention:
      return Recurrent(OpKind::kLinearAttentionGrad);
    case OpKind::kGatedRmsNorm:
      return Recurrent(OpKind::kGatedRmsNormGrad);
    case OpKind::kMseLoss:
    case OpKind::kCrossEntropy:
    case OpKind::kLossFromPartials:
      return Losses();
    case OpKind::kDispatch:
    case OpKind::kCombine:
      return Experts();
    case OpKind::kToGroups:
    case OpKind::kFromGroups:
      return Groups();
    default:
      return Movement();
  }
}

}  // namespace

absl::Status AddGradient(const GradientContext& context) { return Gradients(context).Run(); }

}  // namespace meshwright
