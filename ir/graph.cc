#include "ir/graph.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace meshwright {
namespace {

absl::Status OpError(absl::string_view name, OpKind kind, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("operator \"", name, "\" (", NameOf(kind), "): ", what));
}

absl::StatusOr<Shared<IndexRule>> RuleOf(const GraphBuilder::OpSpec& spec, absl::Span<const Shape> inputs) {
  if (!spec.rule.empty()) return ParsedRule(spec.rule);
  return InstantiateRule(InfoOf(spec.kind).rule, inputs);
}

// Fills the dims that the rule leaves open, or says what is missing.
absl::Status FillOpenDims(const GraphBuilder::OpSpec& spec, std::vector<Shape>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      if (shapes[i][d] != 0) continue;
      const bool given = i < spec.output_shapes.size() && d < spec.output_shapes[i].size();
      if (!given || spec.output_shapes[i][d] < 1) {
        return OpError(spec.name, spec.kind, absl::StrCat("the size of dim ", d, " of output ", i, " is not given"));
      }
      shapes[i][d] = spec.output_shapes[i][d];
    }
  }
  return absl::OkStatus();
}

}  // namespace

static int64_t CountParameters(const Graph& graph, bool frozen) {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::kParameter || (!frozen && !tensor.trainable)) continue;
    count += (NumElements(tensor.shape) - tensor.padding) * graph.segment(tensor.segment).repeat;
  }
  return count;
}
int64_t Graph::NumParameters() const { return CountParameters(*this, /*frozen=*/true); }
int64_t Graph::NumTrainableParameters() const { return CountParameters(*this, /*frozen=*/false); }

OpId Graph::FindOp(absl::string_view name) const {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].name == name && ops[i].phase == Phase::kForward) return OpId(i);
  }
  return OpId();
}

TensorId Graph::FindTensor(absl::string_view name) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return TensorId(i);
  }
  return TensorId();
}

SegmentId GraphBuilder::BeginSegment(std::string name, int64_t repeat) {
  segment_ = SegmentId(graph_.segments.size());
  Segment segment;
  segment.name = std::move(name);
  segment.repeat = repeat;
  graph_.segments.push_back(std::move(segment));
  return segment_;
}

TensorId GraphBuilder::BeginCarry(TensorId initial) {
  const Tensor& from = graph_.tensor(initial);
  Tensor in;
  in.name = absl::StrCat(graph_.segment(segment_).name, "/in");
  in.dtype = from.dtype;
  in.shape = from.shape;
  in.segment = segment_;
  graph_.tensors.push_back(std::move(in));
  const TensorId id(graph_.tensors.size() - 1);
  Carry carry;
  carry.initial = initial;
  carry.in = id;
  graph_.segments[segment_.index()].carries.push_back(carry);
  return id;
}

absl::StatusOr<TensorId> GraphBuilder::EndCarry(TensorId out) {
  Segment& segment = graph_.segments[segment_.index()];
  if (segment.carries.empty()) return absl::FailedPreconditionError("EndCarry without BeginCarry");
  Carry& carry = segment.carries.back();
  const Tensor in = graph_.tensor(carry.in);
  if (in.shape != graph_.tensor(out).shape || in.dtype != graph_.tensor(out).dtype) {
    return absl::InvalidArgumentError(absl::StrCat("segment \"", segment.name, "\" carries ", ToText(in.shape),
                                                   " in and ", ToText(graph_.tensor(out).shape),
                                                   " out; they must be equal"));
  }
  carry.out = out;
  Tensor final = in;
  final.name = absl::StrCat(segment.name, "/out");
  graph_.tensors.push_back(std::move(final));
  carry.final = TensorId(graph_.tensors.size() - 1);
  return carry.final;
}

TensorId GraphBuilder::Input(std::string name, DType dtype, Shape shape, Initializer init) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.kind = TensorKind::kInput;
  tensor.init = init;
  graph_.tensors.push_back(std::move(tensor));
  return TensorId(graph_.tensors.size() - 1);
}

TensorId GraphBuilder::Parameter(std::string name, DType dtype, Shape shape, Initializer init, bool trainable) {
  const TensorId id = Input(std::move(name), dtype, std::move(shape), init);
  Tensor& tensor = graph_.tensors[id.index()];
  tensor.kind = TensorKind::kParameter;
  tensor.segment = segment_;
  tensor.trainable = trainable;
  return id;
}

absl::StatusOr<std::vector<TensorId>> GraphBuilder::Add(OpSpec spec) {
  std::vector<Shape> inputs;
  for (TensorId id : spec.inputs) inputs.push_back(graph_.tensor(id).shape);
  absl::StatusOr<Shared<IndexRule>> found = RuleOf(spec, inputs);
  if (!found.ok()) return OpError(spec.name, spec.kind, found.status().message());
  Shared<IndexRule>& rule = *found;
  // As text, one scalar looks like none.
  if (rule->inputs.empty() && inputs.size() == 1) rule.Change([](IndexRule& own) { own.inputs.emplace_back(); });
  std::vector<Shape> known;
  for (TensorId id : spec.outputs) known.push_back(graph_.tensor(id).shape);
  const absl::StatusOr<Shape> extents = LabelExtents(*rule, inputs, known);
  if (!extents.ok()) return OpError(spec.name, spec.kind, extents.status().message());

  Op op;
  op.outputs = spec.outputs;
  if (op.outputs.empty()) {
    std::vector<Shape> shapes = InferShapes(*rule, *extents);
    MESHWRIGHT_RETURN_IF_ERROR(FillOpenDims(spec, shapes));
    DType dtype = DType::kFloat32;
    for (TensorId id : spec.inputs) {
      if (!InfoOf(graph_.tensor(id).dtype).floating) continue;
      dtype = graph_.tensor(id).dtype;
      break;
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      Tensor tensor;
      tensor.name = shapes.size() == 1 ? spec.name : absl::StrCat(spec.name, ":", i);
      tensor.dtype = i < spec.output_dtypes.size() ? spec.output_dtypes[i] : dtype;
      tensor.shape = shapes[i];
      tensor.segment = segment_;
      tensor.producer = OpId(graph_.ops.size());
      op.outputs.push_back(TensorId(graph_.tensors.size()));
      graph_.tensors.push_back(std::move(tensor));
    }
  }
  op.name = std::move(spec.name);
  op.kind = spec.kind;
  op.inputs = std::move(spec.inputs);
  op.rule = std::move(rule);
  op.attrs = spec.attrs;
  op.phase = spec.phase;
  op.segment = segment_;
  op.forward = spec.forward;
  op.recompute = spec.recompute;
  op.recompute_group = std::move(spec.recompute_group);
  op.own_batch = spec.own_batch;
  op.on_host = spec.on_host || (spec.forward.valid() && graph_.op(spec.forward).on_host);
  std::vector<TensorId> outputs = op.outputs;
  graph_.ops.push_back(std::move(op));
  return outputs;
}

absl::StatusOr<TensorId> GraphBuilder::AddOne(OpSpec spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, Add(std::move(spec)));
  if (outputs.size() != 1) return absl::InternalError("AddOne is for ops of one output");
  return outputs[0];
}

void GraphBuilder::SetLoss(TensorId loss) {
  graph_.loss = loss;
  graph_.tensors[loss.index()].kind = TensorKind::kLoss;
}

TensorId GraphBuilder::GradientOf(TensorId parameter, DType dtype) {
  const auto [found, is_new] = gradients_.try_emplace(parameter, graph_.tensors.size());
  if (!is_new) return found->second;
  const Tensor& of = graph_.tensor(parameter);
  Tensor gradient;
  gradient.name = absl::StrCat("d", of.name);
  gradient.dtype = dtype;
  gradient.shape = of.shape;
  gradient.kind = TensorKind::kGradient;
  gradient.segment = of.segment;
  gradient.gradient_of = parameter;
  graph_.tensors.push_back(std::move(gradient));
  return TensorId(graph_.tensors.size() - 1);
}

std::vector<int64_t> LayersOfOps(const Graph& graph, SegmentId segment) {
  const std::vector<TensorId>& ends = graph.segment(segment).layer_ends;
  std::vector<int64_t> layers(graph.ops.size(), -1);
  size_t layer = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.segment != segment || op.phase != Phase::kForward) continue;
    layers[i] = static_cast<int64_t>(layer);
    const bool last = layer < ends.size() && std::count(op.outputs.begin(), op.outputs.end(), ends[layer]) > 0;
    if (last) ++layer;
  }
  return layers;
}

namespace {

// Each layer of a stack has its own values and parameters: outside the stack only what it carries is seen.
absl::Status CheckReach(const Graph& graph, const Op& op, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  SegmentId home = tensor.segment;
  if (tensor.kind == TensorKind::kValue) {
    if (!tensor.producer.valid()) return absl::OkStatus();  // carried
    home = graph.op(tensor.producer).segment;
  } else if (tensor.kind != TensorKind::kParameter) {
    return absl::OkStatus();
  }
  if (!home.valid() || home == op.segment || graph.segment(home).repeat == 1) return absl::OkStatus();
  return OpError(op.name, op.kind,
                 absl::StrCat("uses \"", tensor.name, "\", of which every layer of \"", graph.segment(home).name,
                              "\" has its own; wanted what that segment carries"));
}

// Of layers in one run: each ends with a value of the form that the segment carries, and sees nothing else of another.
absl::Status CheckLayerEnds(const Graph& graph, SegmentId segment) {
  const Segment& of = graph.segment(segment);
  if (of.layer_ends.empty()) return absl::OkStatus();
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("segment \"", of.name, "\": ", what...));
  };
  if (of.carries.size() != 1) return wrong("found several layers in one run, wanted a value that they carry");
  const Carry& carry = of.carries[0];
  const std::vector<int64_t> layers = LayersOfOps(graph, segment);
  const int64_t found = *std::max_element(layers.begin(), layers.end());
  if (found != of.layers() - 1) return wrong("found the ends of ", found, " layers, wanted ", of.layers() - 1);
  for (const TensorId end : of.layer_ends) {
    if (graph.tensor(end).shape != graph.tensor(carry.in).shape) {
      return wrong("a layer ends with ", ToText(graph.tensor(end).shape), ", and what is carried is ",
                   ToText(graph.tensor(carry.in).shape), "; they must be equal");
    }
  }
  std::vector<int64_t> made(graph.tensors.size(), -1), used = made;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (layers[i] < 0) continue;
    for (const TensorId id : graph.ops[i].inputs) {
      const bool parameter = graph.tensor(id).kind == TensorKind::kParameter && graph.tensor(id).segment == segment;
      int64_t seen_in = id == carry.in ? 0 : made[id.index()];
      if (seen_in >= 0 && seen_in < of.layers() - 1 && id == of.layer_ends[static_cast<size_t>(seen_in)]) ++seen_in;
      if (parameter) seen_in = std::exchange(used[id.index()], layers[i]);
      if (seen_in < 0 || seen_in == layers[i]) continue;
      return OpError(graph.ops[i].name, graph.ops[i].kind,
                     absl::StrCat("uses \"", graph.tensor(id).name,
                                  "\" of another layer; wanted what that one ends "
                                  "with, or a value of its own"));
    }
    for (const TensorId id : graph.ops[i].outputs) made[id.index()] = layers[i];
  }
  return absl::OkStatus();
}

bool EndsWith(const std::vector<Carry>& carries, TensorId value) {
  return std::any_of(carries.begin(), carries.end(), [&](const Carry& carry) { return carry.final == value; });
}

// The value that enters a stack stands in a buffer of the stack, which its producer writes, or which it shares with the
// stack before: in the backward phase that is the next one.
absl::Status CheckInitial(const Graph& graph, size_t s, Phase phase, const Carry& carry) {
  const Tensor& initial = graph.tensor(carry.initial);
  const bool made_once = initial.producer.valid() && graph.segment(graph.op(initial.producer).segment).repeat == 1;
  if (made_once) return absl::OkStatus();
  if (phase == Phase::kForward && s > 0 && EndsWith(graph.segments[s - 1].carries, carry.initial)) {
    return absl::OkStatus();
  }
  if (phase == Phase::kBackward && s + 1 < graph.segments.size() &&
      EndsWith(graph.segments[s + 1].gradient_carries, carry.initial)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("segment \"", graph.segments[s].name, "\" begins with \"", initial.name,
                   "\"; wanted the output of an operator of an earlier segment that is not repeated, or what the "
                   "segment before it carries"));
}

}  // namespace

std::vector<size_t> ChainsOf(const Graph& graph) {
  std::vector<size_t> chains;
  for (size_t s = 0; s < graph.segments.size(); ++s) {
    const auto& carries = graph.segments[s].carries;
    const bool goes_on = s > 0 && !carries.empty() && EndsWith(graph.segments[s - 1].carries, carries[0].initial);
    chains.push_back(goes_on ? chains[s - 1] : s);
  }
  return chains;
}

absl::Status VerifyGraph(const Graph& graph) {
  std::vector<bool> made(graph.tensors.size(), false);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    made[i] = tensor.kind != TensorKind::kValue && tensor.kind != TensorKind::kLoss;
    for (int64_t d : tensor.shape) {
      if (d < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor \"", tensor.name, "\" is ", ToText(tensor.shape), "; every dim must be at least 1"));
      }
    }
  }
  for (size_t s = 0; s < graph.segments.size(); ++s) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckLayerEnds(graph, SegmentId(s)));
  }
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    for (size_t k = 0; k < graph.segments.size(); ++k) {
      const size_t s = phase == Phase::kForward ? k : graph.segments.size() - 1 - k;
      const Segment& segment = graph.segments[s];
      const auto& carries = phase == Phase::kForward ? segment.carries : segment.gradient_carries;
      for (const Carry& carry : carries) {
        made[carry.in.index()] = true;
        MESHWRIGHT_RETURN_IF_ERROR(CheckInitial(graph, s, phase, carry));
      }
      for (const Op& op : graph.ops) {
        if (op.phase != phase || op.segment != SegmentId(s)) continue;
        std::vector<Shape> inputs, outputs;
        for (TensorId id : op.inputs) {
          if (!made[id.index()]) {
            return OpError(op.name, op.kind, absl::StrCat("uses \"", graph.tensor(id).name, "\" before it is made"));
          }
          MESHWRIGHT_RETURN_IF_ERROR(CheckReach(graph, op, id));
          inputs.push_back(graph.tensor(id).shape);
        }
        for (TensorId id : op.outputs) {
          made[id.index()] = true;
          outputs.push_back(graph.tensor(id).shape);
        }
        const absl::StatusOr<Shape> extents = LabelExtents(op.rule, inputs, outputs);
        if (!extents.ok()) return OpError(op.name, op.kind, extents.status().message());
      }
      for (const Carry& carry : carries) {
        if (!carry.out.valid() || !made[carry.out.index()]) {
          return absl::InvalidArgumentError(
              absl::StrCat("segment \"", segment.name, "\" carries a value it does not make"));
        }
        if (carry.final.valid()) made[carry.final.index()] = true;
      }
    }
  }
  return absl::OkStatus();
}

std::string ToText(const Graph& graph) {
  std::string text = absl::StrCat("graph ", graph.name, "\n");
  const auto name = [&](std::string* out, TensorId id) { absl::StrAppend(out, graph.tensor(id).name); };
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::kValue) continue;
    constexpr absl::string_view kKinds[] = {"input", "parameter", "value", "gradient", "loss"};
    absl::StrAppend(&text, "  ", kKinds[static_cast<size_t>(tensor.kind)], " ", tensor.name, " ", NameOf(tensor.dtype),
                    " ", ToText(tensor.shape), "\n");
  }
  for (size_t s = 0; s < graph.segments.size(); ++s) {
    const int64_t layers = graph.segments[s].layers();
    absl::StrAppend(&text, "  segment ", graph.segments[s].name, " x", graph.segments[s].repeat,
                    layers == 1 ? "" : absl::StrCat(" of ", layers, " layers"), "\n");
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (const Op& op : graph.ops) {
        if (op.segment != SegmentId(s) || op.phase != phase) continue;
        absl::StrAppend(&text,
                        phase == Phase::kForward ? "    forward  "
                        : op.recompute           ? "    again    "
                                                 : "    backward ",
                        op.name, ": ", NameOf(op.kind), "(", absl::StrJoin(op.inputs, ", ", name), ") -> ",
                        absl::StrJoin(op.outputs, ", ", name), "  [", ToText(op.rule),
                        op.on_host ? "] on host\n" : "]\n");
      }
    }
  }
  return text;
}

}  // namespace meshwright
