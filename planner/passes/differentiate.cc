#include "planner/passes/differentiate.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/gradients.h"
#include "ir/program.h"
#include "ir/status.h"

namespace meshwright {
namespace {

class Differentiator {
 public:
  Differentiator(Graph forward, const DifferentiateOptions& options)
      : builder_(std::move(forward)), options_(options), num_forward_ops_(graph().ops.size()) {}

  absl::StatusOr<Graph> Run() {
    if (!graph().loss.valid()) return absl::InvalidArgumentError("the graph has no loss operator to differentiate");
    FindWanted();
    MESHWRIGHT_RETURN_IF_ERROR(SeedLoss());
    for (size_t s = graph().segments.size(); s-- > 0;) {
      MESHWRIGHT_RETURN_IF_ERROR(DifferentiateSegment(SegmentId(s)));
    }
    return std::move(builder_).Build();
  }

 private:
  const Graph& graph() const { return builder_.graph(); }

  // A gradient is wanted for what depends on a trainable parameter.
  void FindWanted() {
    wanted_.assign(graph().tensors.size(), false);
    for (size_t i = 0; i < graph().tensors.size(); ++i) {
      const Tensor& tensor = graph().tensors[i];
      wanted_[i] = tensor.kind == TensorKind::kParameter && tensor.trainable;
    }
    for (size_t s = 0; s < graph().segments.size(); ++s) {
      const Segment& segment = graph().segments[s];
      // Twice: what a layer makes flows into the next one.
      for (int round = 0; round < (segment.carries.empty() ? 1 : 2); ++round) {
        for (const Carry& carry : segment.carries) {
          if (Wants(carry.initial) || Wants(carry.out)) wanted_[carry.in.index()] = true;
        }
        for (const Op& op : graph().ops) {
          if (op.segment != SegmentId(s)) continue;
          bool any = false;
          for (TensorId id : op.inputs) any |= Wants(id);
          for (TensorId id : op.outputs) wanted_[id.index()] = any;
        }
      }
      for (const Carry& carry : segment.carries) wanted_[carry.final.index()] = Wants(carry.out);
    }
  }
  bool Wants(TensorId id) const { return id.index() < wanted_.size() && wanted_[id.index()]; }

  absl::Status SeedLoss() {
    const Tensor loss = graph().tensor(graph().loss);
    builder_.ContinueSegment(graph().op(loss.producer).segment);
    GraphBuilder::OpSpec fill{.name = "dloss", .kind = OpKind::kFill, .inputs = {}, .rule = " ->"};
    for (size_t d = 0; d < loss.shape.size(); ++d) absl::StrAppend(&fill.rule, " d", d);  // each rank's own loss
    if (options_.loss_scale.has_value()) {
      if (graph().FindTensor(kLossScale).valid()) {
        return absl::InvalidArgumentError(absl::StrCat("found a tensor \"", kLossScale,
                                                       "\", wanted another name: it is that of the scale of the loss"));
      }
      const Initializer init{.value = *options_.loss_scale};
      fill.kind = OpKind::kBroadcast;
      fill.inputs = {builder_.Parameter(std::string(kLossScale), DType::kFloat32, {}, init, /*trainable=*/false)};
    }
    fill.attrs.scale = options_.loss_gradient;
    fill.output_shapes = {loss.shape};
    fill.output_dtypes = {loss.dtype};
    fill.phase = Phase::kBackward;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId seed, builder_.AddOne(std::move(fill)));
    builder_.mutable_graph().tensors[seed.index()].gradient_of = graph().loss;
    contributions_[graph().loss] = {seed};
    return absl::OkStatus();
  }

  absl::Status DifferentiateSegment(SegmentId id) {
    builder_.ContinueSegment(id);
    recomputed_.clear();
    segment_ = id;
    const std::vector<Carry> carries = graph().segment(id).carries;
    std::vector<Carry> gradient_carries;
    for (const Carry& carry : carries) {
      Carry gradient;
      // What flows into the last layer is added up once, before the layers, where its readers are.
      if (id.index() + 1 < graph().segments.size()) builder_.ContinueSegment(SegmentId(id.index() + 1));
      MESHWRIGHT_ASSIGN_OR_RETURN(gradient.initial, Sum(carry.final));
      builder_.ContinueSegment(id);
      if (!gradient.initial.valid()) continue;
      Tensor in = graph().tensor(carry.out);
      in.name = absl::StrCat("d", graph().segment(id).name, "/out");
      in.kind = TensorKind::kValue;
      in.producer = OpId();
      in.gradient_of = carry.out;
      gradient.in = TensorId(graph().tensors.size());
      builder_.mutable_graph().tensors.push_back(std::move(in));
      contributions_[carry.out].push_back(gradient.in);
      gradient_carries.push_back(gradient);
    }
    const std::vector<int64_t> layers = LayersOfOps(graph(), id);
    int64_t below = -1;  // the layer of the op that was differentiated last
    for (size_t i = num_forward_ops_; i-- > 0;) {
      if (layers[i] < 0) continue;
      if (options_.recompute == Recompute::kLayer && std::exchange(below, layers[i]) != layers[i]) {
        MESHWRIGHT_RETURN_IF_ERROR(RunLayerAgain(layers, layers[i]));
      }
      MESHWRIGHT_RETURN_IF_ERROR(DifferentiateOp(OpId(i)));
    }
    for (size_t i = 0; i < gradient_carries.size(); ++i) {
      MESHWRIGHT_ASSIGN_OR_RETURN(gradient_carries[i].out, Sum(carries[i].in));
      if (!gradient_carries[i].out.valid()) {
        return absl::InvalidArgumentError(
            absl::StrCat("segment \"", graph().segment(id).name, "\": no gradient reaches what it carries"));
      }
      Tensor final = graph().tensor(carries[i].initial);
      final.name = absl::StrCat("d", final.name);
      final.kind = TensorKind::kValue;
      final.producer = OpId();
      final.gradient_of = carries[i].initial;
      gradient_carries[i].final = TensorId(graph().tensors.size());
      builder_.mutable_graph().tensors.push_back(std::move(final));
      if (Wants(carries[i].initial)) contributions_[carries[i].initial].push_back(gradient_carries[i].final);
    }
    builder_.mutable_graph().segments[id.index()].gradient_carries = std::move(gradient_carries);
    return absl::OkStatus();
  }

  // All of it, where the segment is one of layers. `layers`: by op.
  absl::Status RunLayerAgain(const std::vector<int64_t>& layers, int64_t layer) {
    for (size_t i = 0; i < num_forward_ops_; ++i) {
      if (layers[i] != layer || !IsOfLayers(graph().ops[i].segment)) continue;
      MESHWRIGHT_RETURN_IF_ERROR(Again(OpId(i)));
    }
    return absl::OkStatus();
  }

  absl::Status DifferentiateOp(OpId id) {
    const Op op = graph().op(id);
    std::vector<TensorId> output_gradients;
    bool any = false;
    for (TensorId output : op.outputs) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId gradient, Sum(output));
      output_gradients.push_back(gradient);
      any |= gradient.valid();
    }
    bool wanted = false;
    for (TensorId input : op.inputs) wanted |= Wants(input);
    if (!any || !wanted) return absl::OkStatus();
    MESHWRIGHT_RETURN_IF_ERROR(CheckReach(op));
    return AddGradient(
        {.builder = builder_,
         .op = id,
         .output_gradients = std::move(output_gradients),
         .saved = [this](TensorId tensor) { return Saved(tensor); },
         .wanted = [this](TensorId tensor) { return Wants(tensor); },
         .accumulator =
             [this](TensorId tensor) {
               const bool parameter = graph().tensor(tensor).kind == TensorKind::kParameter;
               return parameter ? builder_.GradientOf(tensor, options_.gradient_dtype) : TensorId();
             },
         .contribute = [this](TensorId tensor, TensorId gradient) { contributions_[tensor].push_back(gradient); }});
  }

  // The gradient of a value that every layer of a stack reads would have to be added up over the layers.
  absl::Status CheckReach(const Op& op) const {
    if (graph().segment(op.segment).repeat == 1) return absl::OkStatus();
    for (TensorId id : op.inputs) {
      const OpId producer = graph().tensor(id).producer;
      if (!Wants(id) || !producer.valid() || graph().op(producer).segment == op.segment) continue;
      return absl::UnimplementedError(absl::StrCat(
          "operator \"", op.name, "\" of the repeated segment \"", graph().segment(op.segment).name, "\" uses \"",
          graph().tensor(id).name, "\", which is made outside; only what the segment carries has a gradient"));
    }
    return absl::OkStatus();
  }

  // The whole gradient of a tensor: its one contribution, or an op that adds several. Invalid where none flows.
  absl::StatusOr<TensorId> Sum(TensorId tensor) {
    const auto found = contributions_.find(tensor);
    if (found == contributions_.end()) return TensorId();
    std::vector<TensorId>& parts = found->second;
    if (parts.size() == 1) return parts[0];
    std::vector<std::string> dims;
    for (size_t d = 0; d < graph().tensor(tensor).shape.size(); ++d) dims.push_back(absl::StrCat("d", d));
    const std::string operand = absl::StrJoin(dims, " ");
    GraphBuilder::OpSpec add{.name = absl::StrCat("d", graph().tensor(tensor).name), .kind = OpKind::kAdd};
    add.inputs = parts;
    add.rule = absl::StrCat(absl::StrJoin(std::vector<std::string>(parts.size(), operand), ", "), " -> ", operand);
    add.phase = Phase::kBackward;
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sum, builder_.AddOne(std::move(add)));
    builder_.mutable_graph().tensors[sum.index()].gradient_of = tensor;
    parts = {sum};
    return sum;
  }

  bool IsOfLayers(SegmentId segment) const {
    return graph().segment(segment).repeat > 1 || !graph().segment(segment).carries.empty();
  }

  bool IsKept(const Op& producer) const {
    if (options_.recompute_ops.count(producer.name) > 0) return false;
    switch (options_.recompute) {
      case Recompute::kNone:
        return true;
      case Recompute::kSelective:
        return producer.recompute_group.empty();
      case Recompute::kFull:
      case Recompute::kLayer:
        return !IsOfLayers(producer.segment) || EndsLayer(producer);
    }
    return true;
  }
  // But the last of a run, which the segment carries.
  bool EndsLayer(const Op& op) const {
    const std::vector<TensorId>& ends = graph().segment(op.segment).layer_ends;
    return std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId id) { return std::count(ends.begin(), ends.end(), id) > 0; });
  }

  // What backward reads for `tensor`: itself where it is kept, else the output of a second run of its producer.
  absl::StatusOr<TensorId> Saved(TensorId tensor) {
    const OpId producer = graph().tensor(tensor).producer;
    if (!producer.valid() || producer.index() >= num_forward_ops_) return tensor;
    const Op op = graph().op(producer);
    if (op.segment != segment_ || IsKept(op)) return tensor;
    MESHWRIGHT_RETURN_IF_ERROR(Again(producer));
    return recomputed_[tensor];
  }

  // Runs a forward op a second time, where that is not done yet.
  absl::Status Again(OpId producer) {
    const Op op = graph().op(producer);
    if (op.outputs.empty() || recomputed_.find(op.outputs[0]) != recomputed_.end()) return absl::OkStatus();
    GraphBuilder::OpSpec again{.name = op.name, .kind = op.kind};
    for (TensorId input : op.inputs) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId read, Saved(input));
      again.inputs.push_back(read);
    }
    again.rule = ToText(op.rule);
    again.attrs = op.attrs;
    again.phase = Phase::kBackward;
    again.forward = producer;
    again.recompute = true;
    for (TensorId output : op.outputs) {
      again.output_shapes.push_back(graph().tensor(output).shape);
      again.output_dtypes.push_back(graph().tensor(output).dtype);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, builder_.Add(std::move(again)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      builder_.mutable_graph().tensors[outputs[i].index()].name =
          absl::StrCat(graph().tensor(op.outputs[i]).name, "/again");
      recomputed_[op.outputs[i]] = outputs[i];
    }
    return absl::OkStatus();
  }

  GraphBuilder builder_;
  const DifferentiateOptions options_;
  const size_t num_forward_ops_;
  std::vector<bool> wanted_;                                 // by tensor of the forward graph
  std::map<TensorId, std::vector<TensorId>> contributions_;  // to the gradient of a tensor
  std::map<TensorId, TensorId> recomputed_;                  // in this segment: forward tensor -> its second copy
  SegmentId segment_;
};

}  // namespace

absl::StatusOr<Graph> Differentiate(Graph forward, const DifferentiateOptions& options) {
  return Differentiator(std::move(forward), options).Run();
}

}  // namespace meshwright
