#include "planner/passes/partition.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ir/exchange.h"
#include "ir/status.h"
#include "planner/passes/beside_kernels.h"
#include "planner/passes/class_parts.h"

namespace meshwright {
namespace {

Layout Whole(Layout layout) {
  layout.partial.clear();
  layout.reduction = Reduction::kSum;
  return layout;
}

class Partitioner {
 public:
  Partitioner(const ShardedGraph& sharded, const StepPrice& price, const std::set<std::string>& pieces,
              KeptRedistributions* kept)
      : sharded_(sharded),
        graph_(sharded.graph),
        mesh_(sharded.mesh),
        price_(price),
        pieces_(pieces),
        kept_ways_(kept) {
    natural_.resize(graph_.tensors.size());
  }

  absl::StatusOr<Program> Run() {
    program_.name = graph_.name;
    program_.mesh = mesh_;
    program_.classes.emplace_back();
    program_.classes[0].name = "all";
    MakePersistent();
    MakeCarries();
    program_.classes[0].blocks.resize(2 * graph_.segments.size());
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (size_t k = 0; k < graph_.segments.size(); ++k) {
        const size_t s = phase == Phase::kForward ? k : graph_.segments.size() - 1 - k;
        MESHWRIGHT_RETURN_IF_ERROR(EmitBlock(s, phase));
      }
    }
    AssignRoles();
    return std::move(program_);
  }

 private:
  // One layout in which a value exists, and where.
  struct Version {
    Operand operand;
    Layout layout;
  };

  RankClass& all() { return program_.classes[0]; }
  Buffer& buffer(BufferId id) { return all().buffers[id.index()]; }
  int64_t Repeat(SegmentId id) const { return id.valid() ? graph_.segment(id).repeat : 1; }

  BufferId NewBuffer(const Tensor& tensor, std::string name, Layout layout, BufferRole role, int64_t layers) {
    Buffer b;
    b.name = std::move(name);
    b.dtype = tensor.dtype;
    b.shape = tensor.shape;
    b.layout = std::move(layout);
    b.role = role;
    b.layers = layers;
    if (tensor.kind == TensorKind::kParameter && tensor.segment.valid()) {
      b.first_layer = graph_.segment(tensor.segment).first;
    }
    b.init = tensor.init;
    b.trainable = tensor.trainable;
    all().buffers.push_back(std::move(b));
    return BufferId(all().buffers.size() - 1);
  }

  // Parameters, gradient accumulators (as their parameters lie) and the loss.
  void MakePersistent() {
    const std::map<TensorId, AxisList> partial = PartialGradients();
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      const Tensor& tensor = graph_.tensors[i];
      if (tensor.kind == TensorKind::kParameter) {
        SetNatural(TensorId(i),
                   NewBuffer(tensor, tensor.name, sharded_.natural[i], BufferRole::kParameter, Repeat(tensor.segment)));
      } else if (tensor.kind == TensorKind::kGradient) {
        Layout layout = Whole(sharded_.natural[tensor.gradient_of.index()]);
        if (const auto found = partial.find(TensorId(i)); found != partial.end()) layout.partial = found->second;
        SetNatural(TensorId(i),
                   NewBuffer(tensor, tensor.name, std::move(layout), BufferRole::kGradient, Repeat(tensor.segment)));
      } else if (tensor.kind == TensorKind::kLoss) {
        SetNatural(TensorId(i), NewBuffer(tensor, tensor.name, sharded_.natural[i], BufferRole::kLoss, 1));
      }
    }
  }

  // By gradient, the axes over which every contribution to it is partial.
  std::map<TensorId, AxisList> PartialGradients() const {
    std::map<TensorId, AxisList> partial;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      for (size_t k = 0; k < op.outputs.size(); ++k) {
        if (graph_.tensor(op.outputs[k]).kind != TensorKind::kGradient) continue;
        const AxisList of_op = LayoutOf(OpId(i), k).partial;
        const auto [found, is_first] = partial.try_emplace(op.outputs[k], of_op);
        if (is_first) continue;
        AxisList& all = found->second;
        all.erase(std::remove_if(all.begin(), all.end(), [&](AxisId id) { return !absl::c_linear_search(of_op, id); }),
                  all.end());
      }
    }
    for (auto& [unused, axes] : partial) std::sort(axes.begin(), axes.end());
    return partial;
  }

  // How the op leaves its output, with the partial sums that it passes on.
  Layout LayoutOf(OpId id, size_t output) const {
    const Op& op = graph_.op(id);
    Layout layout = OutputLayout(op.rule, sharded_.assignments[id.index()], output, InfoOf(op.kind).reduction);
    if (const auto passed = sharded_.passed.find(id); passed != sharded_.passed.end()) {
      layout.partial.insert(layout.partial.end(), passed->second.begin(), passed->second.end());
    }
    return layout;
  }

  void SetNatural(TensorId id, BufferId b) { natural_[id.index()] = Version{{b, 0}, buffer(b).layout}; }

  // One buffer holds a carried value before, between and after the layers of a chain: instance l is what layer l sees.
  // Operands say it by the layer of their own segment; split_stages adds those of the segments before.
  void MakeCarries() {
    const std::vector<size_t> chains = ChainsOf(graph_);
    std::vector<int64_t> layers(chains.size());
    for (size_t s = 0; s < chains.size(); ++s) layers[chains[s]] += graph_.segments[s].repeat;
    std::map<std::pair<size_t, bool>, BufferId> made;  // by chain
    for (size_t s = 0; s < chains.size(); ++s) {
      const Segment& segment = graph_.segments[s];
      for (const bool gradient : {false, true}) {
        for (const Carry& carry : gradient ? segment.gradient_carries : segment.carries) {
          const Layout layout = Whole(sharded_.natural[carry.in.index()]);
          const std::string name = absl::StrCat(segment.name, gradient ? "/gradient" : "/stream");
          BufferId& b = made[{chains[s], gradient}];
          if (!b.valid()) {
            b = NewBuffer(graph_.tensor(carry.in), name, layout, BufferRole::kActivation, layers[chains[s]] + 1);
          }
          // Backward, a layer reads what stands above it and writes what stands below.
          const Version above{{b, 1}, layout}, here{{b, 0}, layout};
          natural_[carry.in.index()] = gradient ? above : here;
          carried_[carry.out] = gradient ? here : above;
          natural_[carry.final.index()] = here;
          carried_[carry.initial] = here;
        }
      }
    }
  }

  absl::Status EmitBlock(size_t s, Phase phase) {
    block_ = &all().blocks[2 * s + (phase == Phase::kForward ? 0 : 1)];
    block_->name = absl::StrCat(graph_.segments[s].name, phase == Phase::kForward ? " forward" : " backward");
    block_->phase = phase;
    phase_ = phase;
    segment_ = SegmentId(s);
    here_.clear();
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (op.segment != segment_ || op.phase != phase) continue;
      MESHWRIGHT_RETURN_IF_ERROR(EmitOp(OpId(i)));
    }
    const Segment& segment = graph_.segments[s];
    for (const Carry& carry : phase == Phase::kForward ? segment.carries : segment.gradient_carries) {
      MESHWRIGHT_RETURN_IF_ERROR(EnsureCarried(carry.out));
    }
    // Values made here that a later segment carries.
    for (const auto& [id, version] : carried_) {
      if (natural_[id.index()].has_value() && made_here_.count(id) > 0) MESHWRIGHT_RETURN_IF_ERROR(EnsureCarried(id));
    }
    made_here_.clear();
    RunBesideKernels(std::exchange(beside_, {}), Stream::kComm, TravelStart::kWhenReady, *block_, all().events);
    if (phase == Phase::kForward) forward_versions_[s] = here_;
    return absl::OkStatus();
  }

  // A carried value must end in the carry's buffer; where its producer could not write there directly, a copy does.
  absl::Status EnsureCarried(TensorId id) {
    const Version& target = carried_.at(id);
    if (carried_done_.count({segment_, id}) > 0) return absl::OkStatus();
    carried_done_.insert({segment_, id});
    if (!natural_[id.index()].has_value()) return absl::InternalError("a carried value was not made");
    const Version from = *natural_[id.index()];
    if (from.operand == target.operand) return absl::OkStatus();
    MESHWRIGHT_RETURN_IF_ERROR(EmitRedistribution(id, from, target.layout, target.operand));
    natural_[id.index()] = target;
    return absl::OkStatus();
  }

  absl::Status EmitOp(OpId id) {
    const Op& op = graph_.op(id);
    const Assignment& assignment = sharded_.assignments[id.index()];
    Instruction instruction;
    instruction.origin = absl::StrCat(graph_.segment(op.segment).name, "/", op.name);
    Compute compute{.op = op.kind,
                    .attrs = op.attrs,
                    .rule = op.rule,
                    .accumulate = false,
                    .recompute = op.recompute,
                    .on_host = op.on_host};
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      Layout wanted = InputLayout(op.rule, assignment, i);
      if (const auto passed = sharded_.passed.find(id); passed != sharded_.passed.end())
        wanted.partial = passed->second;
      MESHWRIGHT_ASSIGN_OR_RETURN(const Operand operand, Read(op.inputs[i], wanted, instruction.origin));
      instruction.reads.push_back(operand);
    }
    std::vector<std::pair<TensorId, Version>> accumulate_later;
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const TensorId output = op.outputs[i];
      const Tensor& tensor = graph_.tensor(output);
      const Layout layout = LayoutOf(id, i);
      made_here_.insert(output);
      if (tensor.kind == TensorKind::kGradient || tensor.kind == TensorKind::kLoss) {
        const Version& accumulator = *natural_[output.index()];
        compute.accumulate = true;
        if (SamePlacement(tensor.shape, layout, accumulator.layout, mesh_)) {
          instruction.writes.push_back(accumulator.operand);
          continue;
        }
        Tensor summand = tensor;
        const BufferId b = NewBuffer(summand, absl::StrCat(tensor.name, "/part"), layout, BufferRole::kTemporary, 1);
        instruction.writes.push_back({b, 0});
        accumulate_later.push_back({output, Version{{b, 0}, layout}});
        continue;
      }
      const auto carried = carried_.find(output);
      if (carried != carried_.end() && carried->second.layout == layout) {
        natural_[output.index()] = carried->second;
      } else {
        const BufferId b = NewBuffer(tensor, tensor.name, layout, BufferRole::kTemporary, 1);
        SetNatural(output, b);
      }
      made_in_[output] = {segment_, phase_};
      instruction.writes.push_back(natural_[output.index()]->operand);
    }
    if (op.kind == OpKind::kExchange) {
      MESHWRIGHT_ASSIGN_OR_RETURN(instruction.work, ExchangeOf(op, assignment));
    } else {
      instruction.work = std::move(compute);
    }
    const std::string origin = instruction.origin;
    block_->instructions.push_back(std::move(instruction));
    for (TensorId output : op.outputs) {
      const auto wanted = sharded_.outputs.find(output);
      if (wanted == sharded_.outputs.end()) continue;
      const Version made = *natural_[output.index()];
      if (std::optional<Redistribution> way = OneCollective(made.layout, wanted->second); way.has_value()) {
        const Tensor& tensor = graph_.tensor(output);
        ways_[RedistributionKey(tensor.shape, tensor.dtype, made.layout, wanted->second)] = *std::move(way);
      }
      MESHWRIGHT_ASSIGN_OR_RETURN(const Operand operand,
                                  Redistributed(graph_.tensor(output), graph_.tensor(output).name, made, wanted->second,
                                                std::nullopt, origin, output));
      natural_[output.index()] = Version{operand, wanted->second};
    }
    for (auto& [gradient, summand] : accumulate_later)
      MESHWRIGHT_RETURN_IF_ERROR(Accumulate(gradient, summand, origin));
    return absl::OkStatus();
  }

  // The one op that is no kernel: its ranks' values change places.
  absl::StatusOr<Work> ExchangeOf(const Op& op, const Assignment& assignment) const {
    const Shape &sources = op.attrs.sources, &shape = graph_.tensor(op.inputs[0]).shape;
    const auto axes_of = [&](size_t begin, size_t end) {
      AxisList axes;
      for (size_t d = begin; d < end; ++d) {
        const int8_t label = op.rule->inputs[0][d].label;
        if (label >= 0) axes.insert(axes.end(), assignment[label].begin(), assignment[label].end());
      }
      return axes;
    };
    const AxisList all = axes_of(0, RankDims(sources, shape));
    if (mesh_.SizeOf(all) != static_cast<int64_t>(sources.size())) {
      return absl::UnimplementedError(absl::StrCat("operator \"", op.name, "\" exchanges values of ", sources.size(),
                                                   " ranks, which lie on ", mesh_.SizeOf(all)));
    }
    if (const std::optional<ExchangedBroadcast> cast = BroadcastOf(sources, shape); cast.has_value()) {
      Collective collective;
      collective.kind = CollectiveKind::kBroadcast;
      collective.axes = axes_of(cast->begin, cast->end);
      collective.root = static_cast<int32_t>(cast->root);
      return Work(std::move(collective));
    }
    return Work(Permute{all, std::vector<int32_t>(sources.begin(), sources.end())});
  }

  // A contribution that lies differently than its accumulator: redistribute it, then add it.
  absl::Status Accumulate(TensorId gradient, const Version& summand, const std::string& origin) {
    const Tensor& tensor = graph_.tensor(gradient);
    const Version& accumulator = *natural_[gradient.index()];
    MESHWRIGHT_ASSIGN_OR_RETURN(const Operand operand,
                                Redistributed(tensor, tensor.name, summand, accumulator.layout, std::nullopt, origin));
    block_->instructions.push_back(MakeAddition(tensor.shape.size(), operand, accumulator.operand, origin));
    return absl::OkStatus();
  }

  // The operand that holds `id` in `wanted`, redistributed here if need be.
  absl::StatusOr<Operand> Read(TensorId id, const Layout& wanted, const std::string& origin) {
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.kind == TensorKind::kInput) MESHWRIGHT_RETURN_IF_ERROR(EnsureFed(id));
    std::vector<Version> candidates = here_[id];
    const bool again = phase_ == Phase::kBackward && MadeForward(id);
    if (again) {
      candidates.insert(candidates.begin(), Kept(id, wanted));
    } else {
      if (!natural_[id.index()].has_value())
        return absl::InternalError(absl::StrCat("\"", tensor.name, "\" is read before it is made"));
      candidates.insert(candidates.begin(), *natural_[id.index()]);
    }
    std::optional<Redistribution> best;
    Version source;
    for (const Version& candidate : candidates) {
      if (SamePlacement(tensor.shape, candidate.layout, wanted, mesh_)) return candidate.operand;
      // A value that is still partial cannot be re-reduced once a whole version of it exists.
      MESHWRIGHT_ASSIGN_OR_RETURN(Redistribution way, FindWay(tensor, candidate.layout, wanted));
      if (!best.has_value() || way.cost < best->cost) {
        best = std::move(way);
        source = candidate;
      }
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const Operand operand,
                                Redistributed(tensor, tensor.name, source, wanted, std::nullopt, origin, id));
    return operand;
  }

  bool MadeForward(TensorId id) const {
    const auto found = made_in_.find(id);
    return found != made_in_.end() && found->second.second == Phase::kForward;
  }

  // What is kept of a forward value for backward: the smallest version that is not partial (see the header); of several
  // the one that its first reader wants.
  const Version& Kept(TensorId id, const Layout& wanted) {
    const auto known = kept_.find({segment_, id});
    if (known != kept_.end()) return known->second;
    const Tensor& tensor = graph_.tensor(id);
    std::vector<Version> versions = {*natural_[id.index()]};
    // The value of another segment is kept there; only that segment's natural version crosses.
    const auto& made = forward_versions_[segment_.index()];
    if (const auto found = made.find(id); found != made.end()) {
      versions.insert(versions.end(), found->second.begin(), found->second.end());
    }
    const auto rank = [&](const Version& version) {
      return std::tuple(!version.layout.partial.empty(), NumElements(LocalShape(tensor.shape, version.layout, mesh_)),
                        !SamePlacement(tensor.shape, version.layout, wanted, mesh_));
    };
    const auto least =
        absl::c_min_element(versions, [&](const Version& a, const Version& b) { return rank(a) < rank(b); });
    return kept_[{segment_, id}] = *least;
  }

  absl::Status EnsureFed(TensorId id) {
    if (fed_.count({segment_, id}) > 0) {
      natural_[id.index()] = fed_.at({segment_, id});
      return absl::OkStatus();
    }
    const Tensor& tensor = graph_.tensor(id);
    const BufferId b = NewBuffer(tensor, tensor.name, sharded_.natural[id.index()], BufferRole::kInput, 1);
    block_->instructions.push_back(
        MakeInstruction(MakeCompute(OpKind::kFeed, ElementwiseRule(tensor.shape.size(), 0, 1)), {}, {{b, 0}},
                        absl::StrCat(graph_.segment(segment_).name, "/", tensor.name)));
    natural_[id.index()] = Version{{b, 0}, sharded_.natural[id.index()]};
    fed_[{segment_, id}] = *natural_[id.index()];
    return absl::OkStatus();
  }

  // What an operator's strategy asks of its output is one collective over all that is partial, whatever else might cost
  // less: an all-reduce (S5.5), or a reduce-scatter that appends the axes to a dim (S5.7, S6.7).
  static std::optional<Redistribution> OneCollective(const Layout& from, const Layout& to) {
    if (from.partial.empty() || !to.partial.empty() || from.dims.size() != to.dims.size()) return std::nullopt;
    Collective collective;
    collective.reduction = from.reduction;
    collective.axes = from.partial;
    for (size_t d = 0; d < from.dims.size(); ++d) {
      if (from.dims[d] == to.dims[d]) continue;
      AxisList scattered = from.dims[d];
      scattered.insert(scattered.end(), from.partial.begin(), from.partial.end());
      const bool first = collective.kind == CollectiveKind::kAllReduce;
      if (!first || scattered != to.dims[d] || from.reduction != Reduction::kSum) return std::nullopt;
      collective.kind = CollectiveKind::kReduceScatter;
      collective.dim = static_cast<int32_t>(d);
    }
    return Redistribution{{{collective, to}}, Nanos()};
  }

  absl::StatusOr<Redistribution> FindWay(const Tensor& tensor, const Layout& from, const Layout& to) {
    std::vector<int64_t> key = RedistributionKey(tensor.shape, tensor.dtype, from, to);
    const auto found = ways_.find(key);
    if (found != ways_.end()) return found->second;
    MESHWRIGHT_ASSIGN_OR_RETURN(Redistribution way,
                                kept_ways_ != nullptr
                                    ? kept_ways_->Find(tensor.shape, tensor.dtype, from, to, mesh_, price_)
                                    : Redistribute(tensor.shape, tensor.dtype, from, to, mesh_, price_));
    ways_[std::move(key)] = way;
    return way;
  }

  absl::Status EmitRedistribution(TensorId id, const Version& from, const Layout& to, Operand into) {
    const Tensor& tensor = graph_.tensor(id);
    const std::string origin = absl::StrCat(graph_.segment(segment_).name, "/", tensor.name);
    return Redistributed(tensor, tensor.name, from, to, into, origin, id).status();
  }

  // Whether an op of one piece of an interleaved operator makes it, or the backward op of such an op.
  bool IsOfPiece(TensorId id) const {
    if (pieces_.empty() || !id.valid() || !graph_.tensor(id).producer.valid()) return false;
    const Op& producer = graph_.op(graph_.tensor(id).producer);
    return pieces_.count(producer.forward.valid() ? graph_.op(producer.forward).name : producer.name) > 0;
  }

  // Emits the steps; the last one writes `into` where given. Versions made on the way are remembered for this block.
  absl::StatusOr<Operand> Redistributed(const Tensor& tensor, const std::string& name, const Version& from,
                                        const Layout& to, std::optional<Operand> into, const std::string& origin,
                                        TensorId id = TensorId()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Redistribution way, FindWay(tensor, from.layout, to));
    Version at = from;
    for (size_t i = 0; i < way.steps.size(); ++i) {
      const RedistributionStep& step = way.steps[i];
      Version next{{}, step.after};
      if (into.has_value() && i + 1 == way.steps.size()) {
        next.operand = *into;
      } else {
        next.operand = {
            NewBuffer(tensor, absl::StrCat(name, "@", ++versions_[name]), step.after, BufferRole::kTemporary, 1), 0};
      }
      if (IsOfPiece(id) && std::holds_alternative<Collective>(step.work)) beside_.insert(block_->instructions.size());
      block_->instructions.push_back(MakeInstruction(step.work, {at.operand}, {next.operand}, origin));
      at = next;
      if (id.valid()) here_[id].push_back(at);
    }
    if (into.has_value() && way.steps.empty()) {
      // Same placement, another buffer: a copy.
      block_->instructions.push_back(MakeInstruction(Slice{}, {from.operand}, {*into}, origin));
      return *into;
    }
    return at.operand;
  }

  // A value that is read in the block that made it only is temporary; others are kept between blocks.
  void AssignRoles() {
    std::vector<int> writer(all().buffers.size(), -1);
    const auto keep = [&](const Operand& operand, int block) {
      Buffer& b = buffer(operand.buffer);
      if (b.role == BufferRole::kTemporary && writer[operand.buffer.index()] != block) {
        b.role = BufferRole::kActivation;
        b.layers = graph_.segments[writer[operand.buffer.index()] / 2].repeat;
      }
    };
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t k = 0; k < all().blocks.size(); ++k) {
        for (const Instruction& instruction : all().blocks[k].instructions) {
          for (const Operand& operand : instruction.writes) {
            if (pass == 0) writer[operand.buffer.index()] = static_cast<int>(k);
          }
          for (const Operand& operand : instruction.reads) {
            if (pass == 1) keep(operand, static_cast<int>(k));
          }
        }
      }
    }
  }

  const ShardedGraph& sharded_;
  const Graph& graph_;
  const Mesh& mesh_;
  const StepPrice& price_;
  const std::set<std::string>& pieces_;
  Program program_;
  Block* block_ = nullptr;
  Phase phase_ = Phase::kForward;
  SegmentId segment_;
  std::vector<std::optional<Version>> natural_;  // by tensor: as its producer left it
  std::map<TensorId, Version> carried_;          // where values that are carried have to end
  std::set<std::pair<SegmentId, TensorId>> carried_done_;
  std::set<TensorId> made_here_;  // by the current block
  std::map<TensorId, std::pair<SegmentId, Phase>> made_in_;
  std::map<TensorId, std::vector<Version>> here_;  // other versions made in the current block
  std::map<size_t, std::map<TensorId, std::vector<Version>>> forward_versions_;  // by segment
  std::map<std::pair<SegmentId, TensorId>, Version> fed_;
  std::map<std::pair<SegmentId, TensorId>, Version> kept_;
  std::map<std::string, int> versions_;
  std::set<size_t> beside_;  // instructions of the current block that run beside its kernels
  KeptRedistributions* const kept_ways_;
  std::map<std::vector<int64_t>, Redistribution> ways_;  // by RedistributionKey
};

}  // namespace

absl::StatusOr<Program> Partition(const ShardedGraph& sharded, const StepPrice& price,
                                  const std::set<std::string>& pieces, KeptRedistributions* kept) {
  return Partitioner(sharded, price, pieces, kept).Run();
}

}  // namespace meshwright
