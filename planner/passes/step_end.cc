#include "planner/passes/step_end.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/orthogonalize.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

constexpr absl::string_view kStateNames[] = {"@m", "@v"};

absl::string_view ParameterOf(absl::string_view gradient) { return gradient.substr(1); }

class Maker {
 public:
  Maker(RankClass& c, const Mesh& mesh, int64_t ranks, const UpdateRule& optimizer, const Matrices& matrices)
      : c_(c), mesh_(mesh), ranks_(ranks), optimizer_(optimizer), matrices_(matrices) {}

  BufferId Find(absl::string_view name, BufferRole role) const {
    for (size_t i = 0; i < c_.buffers.size(); ++i) {
      if (c_.buffers[i].name == name && c_.buffers[i].role == role) return BufferId(i);
    }
    return BufferId();
  }
  // Invalid where there is nothing to do.
  BlockId AddIfAny(std::string name, std::vector<Instruction> instructions) {
    if (instructions.empty()) return BlockId();
    return AddBlock(c_, std::move(name), Phase::kBackward, std::move(instructions));
  }

  // A gradient and its parameter, which is invalid where there is none.
  struct Trained {
    BufferId gradient, parameter;
  };
  // By segment, those whose last contribution is made in its backward pass, in the order of parameters.
  std::vector<std::vector<Trained>> GradientsOf(const std::vector<StepEnd::SegmentLayers>& segments) const {
    std::map<BufferId, size_t> last;
    for (size_t k = 0; k < segments.size(); ++k) {
      for (const BlockId block : segments[k].backward) {
        if (block.valid()) NoteGradients(block, k, last);
      }
    }
    std::map<absl::string_view, BufferId> parameters;
    for (size_t i = 0; i < c_.buffers.size(); ++i) {
      if (c_.buffers[i].role == BufferRole::kParameter) parameters.try_emplace(c_.buffers[i].name, BufferId(i));
    }
    std::vector<std::vector<Trained>> gradients(segments.size());
    for (const auto& [id, segment] : last) {
      const auto parameter = parameters.find(ParameterOf(c_.buffers[id.index()].name));
      gradients[segment].push_back({id, parameter == parameters.end() ? BufferId() : parameter->second});
    }
    for (std::vector<Trained>& of_segment : gradients) {
      absl::c_stable_sort(of_segment, [](const Trained& a, const Trained& b) { return a.parameter < b.parameter; });
    }
    return gradients;
  }

  // Notes k as the segment of the block's gradients that have none yet.
  void NoteGradients(BlockId block, size_t k, std::map<BufferId, size_t>& segment) const {
    for (const Instruction& instruction : c_.blocks[block.index()].instructions) {
      for (const Operand& operand : instruction.writes) {
        if (c_.buffers[operand.buffer.index()].role == BufferRole::kGradient) segment.try_emplace(operand.buffer, k);
      }
    }
  }

  // Without a rule: any number of buffers, of any shapes.
  static Instruction MakeZero(const std::vector<BufferId>& buffers, const std::string& origin) {
    Instruction fill;
    Compute compute;
    compute.op = OpKind::kFill;
    compute.attrs.Change([](OpAttrs& own) { own.scale = 0; });
    for (BufferId id : buffers) fill.writes.push_back({id, 0});
    fill.work = std::move(compute);
    fill.origin = origin;
    return fill;
  }

  // All-reduce over the partial axes, in place; returns where the whole value is.
  BufferId Reduce(BufferId partial, Purpose purpose, std::vector<Instruction>& out) {
    const Buffer before = c_.buffers[partial.index()];
    if (before.layout.partial.empty()) return partial;
    Buffer after = before;
    after.name = absl::StrCat(before.name, "@whole");
    after.layout.partial.clear();
    after.layout.reduction = Reduction::kSum;
    after.alias = partial;
    const BufferId whole = AddBuffer(c_, std::move(after));
    out.push_back(MakeInstruction(
        Collective{.kind = CollectiveKind::kAllReduce, .axes = before.layout.partial, .purpose = purpose},
        {{partial, 0}}, {{whole, 0}}, before.name));
    return whole;
  }

  int64_t NumPieces(BufferId id, const Mesh& mesh) const {
    int64_t pieces = 1;
    for (const AxisList& axes : c_.buffers[id.index()].layout.dims) pieces *= mesh.SizeOf(axes);
    return pieces;
  }

  // S8.2: gradients_mean divides by the size of the replica group. Just before the update, so that nothing waits for
  // the reduction earlier.
  void Mean(BufferId gradient, double replicas, std::vector<Instruction>& out) {
    const Buffer& buffer = c_.buffers[gradient.index()];
    Compute scale = MakeCompute(OpKind::kScale, ElementwiseRule(buffer.shape.size(), 1, 1));
    scale.attrs.Change([replicas](OpAttrs& own) { own.scale = 1 / replicas; });
    out.push_back(MakeInstruction(std::move(scale), {{gradient, 0}}, {{gradient, 0}}, buffer.name));
  }

  // The optimizer works on the parameter itself, or on a float32 master of it where it is narrower.
  void Update(BufferId parameter, BufferId gradient, std::vector<Instruction>& out) {
    const Buffer param = c_.buffers[parameter.index()];
    const bool narrow = SizeOf(param.dtype) < SizeOf(DType::kFloat32);
    Buffer state = param;
    state.dtype = narrow ? DType::kFloat32 : param.dtype;
    BufferId master = parameter;
    if (narrow) {
      state.role = BufferRole::kMaster;
      state.name = absl::StrCat(param.name, "@master");
      master = AddBuffer(c_, state);
    }
    Instruction update;
    update.reads = {{master, 0}, {gradient, 0}};
    update.writes = {{master, 0}};
    const std::vector<MatrixDim> matrix = MatrixOf(param);
    const bool aside = optimizer_.kind == OpKind::kMuon && matrix.empty();
    const OpKind kind = aside ? OpKind::kAdamW : !matrix.empty() ? OpKind::kMuonStep : optimizer_.kind;
    for (size_t i = 0; i < NumStates(kind); ++i) {
      state.role = BufferRole::kOptimizerState;
      state.name = absl::StrCat(param.name, kStateNames[i]);
      state.init = Initializer();
      const BufferId id = AddBuffer(c_, state);
      update.reads.push_back({id, 0});
      update.writes.push_back({id, 0});
    }
    if (!matrix.empty()) {
      Muon(std::move(update), narrow ? parameter : BufferId(), param, matrix, out);
      return;
    }
    if (kind == OpKind::kLamb) {
      Lamb(std::move(update), narrow ? parameter : BufferId(), param, out);
      return;
    }
    if (narrow) update.writes.push_back({parameter, 0});
    Compute compute = MakeCompute(kind, ElementwiseRule(param.shape.size(), update.reads.size(), update.writes.size()));
    compute.attrs = aside ? optimizer_.others : optimizer_.attrs;
    update.work = std::move(compute);
    update.origin = param.name;
    out.push_back(std::move(update));
  }

  // Of a parameter that Muon updates; else empty.
  std::vector<MatrixDim> MatrixOf(const Buffer& parameter) const {
    if (optimizer_.kind != OpKind::kMuon) return {};
    const auto found = matrices_.find(parameter.name.substr(0, parameter.name.find('@')));
    if (found == matrices_.end()) return {};
    std::vector<MatrixDim> dims = found->second;
    // What each rank has for itself has a dim of ranks in front (separate_ranks.h).
    if (parameter.shape.size() > dims.size()) dims.insert(dims.begin(), MatrixDim::kMatrix);
    return dims;
  }
  // Behind the updates of a block that runs for so many layers: the next layer's matrices go to the ranks behind these.
  void EndUpdates(int64_t layers, std::vector<Instruction>& updates) {
    const auto step = static_cast<int32_t>(turns_ % ranks_);
    for (Instruction& instruction : updates) {
      if (!absl::EndsWith(instruction.origin, kOrthogonalize)) continue;
      if (auto* const kernel = std::get_if<Compute>(&instruction.work); kernel != nullptr && kernel->turn != Turn()) {
        kernel->turn.step = step;
      }
      auto* const cast = std::get_if<Collective>(&instruction.work);
      if (cast != nullptr && cast->kind == CollectiveKind::kBroadcast) cast->root_step = step;
    }
    next_turn_ += turns_ * layers;
    turns_ = 0;
  }

  // `step` has the operands of an update in one go; `copy` as Lamb's.
  void Muon(Instruction step, BufferId copy, const Buffer& param, const std::vector<MatrixDim>& dims,
            std::vector<Instruction>& out) {
    const Operand master = step.reads[0];
    Buffer made = c_.buffers[master.buffer.index()];
    made.name = absl::StrCat(param.name, "@step");
    made.role = BufferRole::kTemporary;
    made.layers = 1;
    made.init = Initializer();
    const DType wide = made.dtype;
    // Squares of a step that nothing has scaled yet do not fit float16.
    const DType dtype = param.dtype == DType::kFloat8    ? DType::kBFloat16
                        : param.dtype == DType::kFloat16 ? wide
                                                         : param.dtype;
    const size_t rank = param.shape.size();
    BufferId x = AddBuffer(c_, made);
    step.writes[0] = {x, 0};
    Compute compute = MakeCompute(OpKind::kMuonStep, ElementwiseRule(rank, 3, 2));
    compute.attrs = optimizer_.attrs;
    step.work = std::move(compute);
    step.origin = param.name;
    out.push_back(std::move(step));
    if (dtype != wide) {
      made.name = absl::StrCat(param.name, "@narrow_step");
      made.dtype = dtype;
      const BufferId narrow = AddBuffer(c_, std::move(made));
      out.push_back(MakeInstruction(MakeCompute(OpKind::kCast, ElementwiseRule(rank, 1, 1)), {{x, 0}}, {{narrow, 0}},
                                    param.name));
      x = narrow;
    }
    Turn turn;
    if (TakesTurns(param, dims, mesh_, ranks_)) {
      turn.first = static_cast<int32_t>((next_turn_ + turns_++) % ranks_);  // its step: EndUpdates
    }
    const BufferId direction = Orthogonalize(c_, mesh_, ranks_, x, dims, turn, param.name, out);
    Instruction apply = MakeInstruction(Sync{}, {master, {direction, 0}}, {master}, param.name);
    if (copy.valid()) apply.writes.push_back({copy, 0});
    compute = MakeCompute(OpKind::kMuon, ElementwiseRule(rank, 2, apply.writes.size()));
    compute.attrs = optimizer_.attrs;
    compute.attrs.Change([&](OpAttrs& own) { own.scale = MuonScale(param.shape, dims); });
    apply.work = std::move(compute);
    out.push_back(std::move(apply));
  }

  // LAMB's norms are of the whole parameter: where it is split, their squares are added up before the second half.
  // `step` has the operands of an update in one go; `copy` is what kernels read, where that is another buffer.
  void Lamb(Instruction step, BufferId copy, const Buffer& param, std::vector<Instruction>& out) {
    const Operand master = step.reads[0];
    Buffer whole_step = c_.buffers[master.buffer.index()];
    whole_step.name = absl::StrCat(param.name, "@step");
    whole_step.role = BufferRole::kTemporary;
    whole_step.layers = 1;
    whole_step.init = Initializer();
    Buffer norm;
    norm.dtype = whole_step.dtype;
    norm.role = BufferRole::kTemporary;
    for (const AxisList& axes : param.layout.dims) {
      norm.layout.partial.insert(norm.layout.partial.end(), axes.begin(), axes.end());
    }
    step.writes[0] = {AddBuffer(c_, std::move(whole_step)), 0};
    Instruction apply, add;
    apply.reads = {master, step.writes[0]};
    for (const absl::string_view name : {"@norm", "@step_norm"}) {
      norm.name = absl::StrCat(param.name, name);
      const BufferId sum = AddBuffer(c_, norm);
      step.writes.push_back({sum, 0});
      add.reads.push_back({sum, 0});
      if (norm.layout.partial.empty()) continue;
      Buffer whole = norm;
      absl::StrAppend(&whole.name, "@whole");
      whole.layout.partial.clear();
      add.writes.push_back({AddBuffer(c_, std::move(whole)), 0});
    }
    const auto& norms = norm.layout.partial.empty() ? add.reads : add.writes;
    apply.reads.insert(apply.reads.end(), norms.begin(), norms.end());
    apply.writes = {master};
    if (copy.valid()) apply.writes.push_back({copy, 0});
    const size_t rank = param.shape.size();
    IndexRule step_rule = ElementwiseRule(rank, 4, 3);
    step_rule.outputs.resize(5);
    IndexRule apply_rule = ElementwiseRule(rank, 2, apply.writes.size());
    apply_rule.inputs.resize(4);
    step.work = Compute{.op = OpKind::kLambStep, .attrs = optimizer_.attrs, .rule = std::move(step_rule)};
    apply.work = Compute{.op = OpKind::kLamb, .attrs = optimizer_.attrs, .rule = std::move(apply_rule)};
    add.work = Collective{.axes = norm.layout.partial, .purpose = Purpose::kParameter};
    step.origin = add.origin = apply.origin = param.name;
    out.push_back(std::move(step));
    if (!norm.layout.partial.empty()) out.push_back(std::move(add));
    out.push_back(std::move(apply));
  }

  RankClass& c_;
  const Mesh& mesh_;
  const int64_t ranks_;  // of the class
  const UpdateRule& optimizer_;
  const Matrices& matrices_;
  int64_t next_turn_ = 0, turns_ = 0;  // of the blocks before, and of one layer of the block at hand
};

// The owner's or the user's half of an exchange of shared values. All stages go through the shared parameters in the
// same order, so that the n-th send of a stage to another is of what the other receives n-th.
class Sharing {
 public:
  Sharing(Maker& make, const SharedParameters& shared) : make_(make), shared_(shared) {}

  bool IsShared(absl::string_view parameter) const {
    return absl::c_any_of(shared_, [&](const SharedParameter& shared) { return shared.name == parameter; });
  }

  // Returns what is recorded when it has left.
  EventId Send(BufferId buffer, int64_t to, Purpose purpose, std::vector<Instruction>& out) {
    const std::string what = Name(buffer, make_.c_.stage, to);
    const EventId ready = AddEvent(make_.c_, absl::StrCat("ready ", what));
    out.push_back(MakeSync({}, {ready}, what));
    out.push_back(MakeTransfer(true, to, purpose, what));
    out.back().reads = {{buffer, 0}};
    out.back().waits = {{ready, 0}};
    const EventId sent = AddEvent(make_.c_, absl::StrCat("sent ", what), make_.c_.buffers[buffer.index()].layers);
    out.back().records = {{sent, 0}};
    if (purpose == Purpose::kParameter) sent_[buffer].push_back(sent);
    return sent;
  }
  void Receive(BufferId buffer, int64_t from, Purpose purpose, std::vector<Instruction>& out) {
    const std::string what = Name(buffer, from, make_.c_.stage);
    const EventId arrived = AddEvent(make_.c_, absl::StrCat("arrived ", what));
    EventId free;  // what the blocks of several layers receive in turn
    if (make_.c_.buffers[buffer.index()].role == BufferRole::kTemporary) {
      free = AddEvent(make_.c_, absl::StrCat("free ", what));
      out.push_back(MakeSync({}, {free}, what));
    }
    out.push_back(MakeTransfer(false, from, purpose, what));
    if (free.valid()) out.back().waits = {{free, 0}};
    out.back().writes = {{buffer, 0}};
    out.back().records = {{arrived, 0}};
    out.push_back(MakeSync({arrived}, {}, what));
  }

  // The values, at the start of the step. The update, at its end, waits until they have left.
  void Values(std::vector<Instruction>& out) {
    const int64_t stage = make_.c_.stage;
    for (const SharedParameter& shared : shared_) {
      const BufferId parameter = make_.Find(shared.name, BufferRole::kParameter);
      if (absl::c_linear_search(shared.users, stage)) Receive(parameter, shared.owner, Purpose::kParameter, out);
      if (stage != shared.owner) continue;
      for (int64_t user : shared.users) Send(parameter, user, Purpose::kParameter, out);
    }
  }

  // The gradients that this stage has of what others own.
  void GiveBack(std::vector<Instruction>& out) {
    for (const SharedParameter& shared : shared_) {
      if (!absl::c_linear_search(shared.contributors, make_.c_.stage)) continue;
      Send(make_.Find(absl::StrCat("d", shared.name), BufferRole::kGradient), shared.owner, Purpose::kGradient, out);
    }
  }

  // The owner's part: adds the others' gradients to its own.
  void Collect(const SharedParameter& shared, BufferId gradient, std::vector<Instruction>& out) {
    AwaitSent(make_.Find(shared.name, BufferRole::kParameter), out);
    for (int64_t user : shared.contributors) {
      Buffer copy = make_.c_.buffers[gradient.index()];
      copy.name = absl::StrCat(copy.name, "@of stage ", user);
      const BufferId theirs = AddBuffer(make_.c_, copy);
      Receive(theirs, user, Purpose::kGradient, out);
      AddUp(theirs, gradient, out);
    }
  }

  // Gradients of the owner's twin, layer by layer.
  void CollectFromTwin(int64_t twin, BufferId parameter, BufferId gradient, std::vector<Instruction>& out) {
    AwaitSent(parameter, out);
    const BufferId theirs = AddTheirs(gradient, twin);
    Receive(theirs, twin, Purpose::kGradient, out);
    AddUp(theirs, gradient, out);
  }

  // The losses of both directions: each of the two stages that have one tells the other.
  void ExchangeLoss(int64_t twin, BufferId loss, std::vector<Instruction>& out) {
    const EventId sent = Send(loss, twin, Purpose::kReport, out);
    const BufferId theirs = AddTheirs(loss, twin);
    Receive(theirs, twin, Purpose::kReport, out);
    out.push_back(MakeSync({sent}, {}, make_.c_.buffers[loss.index()].name));
    AddUp(theirs, loss, out);
  }

 private:
  // Before what has been sent is overwritten.
  void AwaitSent(BufferId parameter, std::vector<Instruction>& out) {
    const std::vector<EventId>& sent = sent_[parameter];
    if (!sent.empty()) out.push_back(MakeSync(sent, {}, make_.c_.buffers[parameter.index()].name));
  }
  BufferId AddTheirs(BufferId ours, int64_t stage) {
    Buffer theirs = make_.c_.buffers[ours.index()];
    theirs.name = absl::StrCat(theirs.name, "@of stage ", stage);
    theirs.role = BufferRole::kTemporary;
    theirs.layers = 1;
    return AddBuffer(make_.c_, std::move(theirs));
  }
  void AddUp(BufferId theirs, BufferId sum, std::vector<Instruction>& out) {
    const Buffer& copy = make_.c_.buffers[theirs.index()];
    out.push_back(MakeAddition(copy.shape.size(), {theirs, 0}, {sum, 0}, copy.name));
  }
  std::string Name(BufferId buffer, int64_t from, int64_t to) const {
    return absl::StrCat(make_.c_.buffers[buffer.index()].name, " ", from, "->", to);
  }
  Instruction MakeTransfer(bool send, int64_t peer, Purpose purpose, const std::string& what) const {
    Instruction instruction;
    instruction.work = Transfer{send, static_cast<int32_t>(peer - make_.c_.stage), purpose};
    instruction.stream = send ? Stream::kSend : Stream::kReceive;
    instruction.origin = what;
    return instruction;
  }

  Maker& make_;
  const SharedParameters& shared_;
  std::map<BufferId, std::vector<EventId>> sent_;  // by parameter
};

// Adds to `report` what makes the class's losses whole; returns the blocks that clear them.
std::vector<BlockId> ReportLosses(const Strategy& strategy, Maker& make, Sharing& sharing,
                                  std::vector<Instruction>& report) {
  std::vector<BlockId> zeros;
  for (size_t i = 0, n = make.c_.buffers.size(); i < n; ++i) {
    if (make.c_.buffers[i].role != BufferRole::kLoss) continue;
    zeros.push_back(make.AddIfAny("loss zero", {make.MakeZero({BufferId(i)}, "loss/zero")}));
    if (strategy.stages > 1 && DirectionsOf(strategy.schedule) > 1) {
      sharing.ExchangeLoss(strategy.stages - 1 - make.c_.stage, BufferId(i), report);
    }
    make.Reduce(BufferId(i), Purpose::kReport, report);
  }
  return zeros;
}

}  // namespace

absl::StatusOr<StepEnd> StepEnd::Make(RankClass& c, const Mesh& mesh, const UpdateRule& optimizer,
                                      const Strategy& strategy, const std::vector<SegmentLayers>& segments,
                                      const SharedParameters& shared, const Matrices& matrices) {
  StepEnd end;
  Maker make(c, mesh, mesh.num_ranks() / strategy.stages, optimizer, matrices);
  Sharing sharing(make, shared);
  std::vector<Instruction> share, give_back, late_reduce, late_update, report;
  sharing.Values(share);
  sharing.GiveBack(give_back);
  // From the gradient's last contribution to the update.
  const auto finish = [&](BufferId gradient, BufferId parameter, std::vector<Instruction>& reduce,
                          std::vector<Instruction>& update) {
    const BufferId whole = make.Reduce(gradient, Purpose::kGradient, reduce);
    const int64_t replicas = mesh.num_ranks() / strategy.stages / make.NumPieces(parameter, mesh);
    if (strategy.gradients_mean && replicas > 1) {
      make.Mean(whole, static_cast<double>(replicas), update);
    }
    make.Update(parameter, whole, update);
  };
  std::vector<std::pair<BufferId, BufferId>> late;  // gradient, parameter
  const std::vector<std::vector<Maker::Trained>> gradients = make.GradientsOf(segments);
  for (size_t i = 0; i < segments.size(); ++i) {
    Blocks blocks;
    blocks.layers = segments[i].layers;
    std::vector<BufferId> zeroed;
    for (const Maker::Trained& trained : gradients[i]) zeroed.push_back(trained.gradient);
    std::vector<Instruction> zero, reduce, update, values, of_twin;
    const int64_t twin = segments[i].twin;
    if (!zeroed.empty()) zero.push_back(make.MakeZero(zeroed, absl::StrCat(segments[i].name, "/zero")));
    for (const auto& [gradient, parameter] : gradients[i]) {
      const std::string name(ParameterOf(c.buffers[gradient.index()].name));
      if (!parameter.valid()) return absl::InternalError(absl::StrCat("no parameter \"", name, "\""));
      if (sharing.IsShared(name)) continue;
      if (twin >= 0 && !segments[i].owned) {
        sharing.Receive(parameter, twin, Purpose::kParameter, values);
        sharing.Send(gradient, twin, Purpose::kGradient, of_twin);
        continue;
      }
      if (twin >= 0) {
        sharing.Send(parameter, twin, Purpose::kParameter, values);
        sharing.CollectFromTwin(twin, parameter, gradient, of_twin);
      }
      if (c.buffers[gradient.index()].layers < segments[i].layers) {
        late.push_back({gradient, parameter});
      } else {
        finish(gradient, parameter, reduce, update);
      }
    }
    make.EndUpdates(segments[i].layers, update);
    blocks.zero = make.AddIfAny(absl::StrCat(segments[i].name, " zero"), std::move(zero));
    blocks.reduce = make.AddIfAny(absl::StrCat(segments[i].name, " reduce"), std::move(reduce));
    blocks.update = make.AddIfAny(absl::StrCat(segments[i].name, " update"), std::move(update));
    (segments[i].owned ? blocks.send_values : blocks.receive_values) =
        make.AddIfAny(absl::StrCat(segments[i].name, " values"), std::move(values));
    (segments[i].owned ? blocks.receive_gradients : blocks.send_gradients) =
        make.AddIfAny(absl::StrCat(segments[i].name, " of twin"), std::move(of_twin));
    end.segments_.push_back(blocks);
  }
  for (const SharedParameter& one : shared) {
    if (one.owner != c.stage) continue;
    const BufferId gradient = make.Find(absl::StrCat("d", one.name), BufferRole::kGradient);
    sharing.Collect(one, gradient, late_reduce);
    late.push_back({gradient, make.Find(one.name, BufferRole::kParameter)});
  }
  for (const auto& [gradient, parameter] : late) {
    finish(gradient, parameter, late_reduce, late_update);
  }
  make.EndUpdates(1, late_update);
  end.late_.reduce = make.AddIfAny("shared parameters reduce", std::move(late_reduce));
  end.late_.update = make.AddIfAny("shared parameters update", std::move(late_update));
  end.share_ = make.AddIfAny("share", std::move(share));
  end.give_back_ = make.AddIfAny("give back", std::move(give_back));
  for (const BlockId zero : ReportLosses(strategy, make, sharing, report)) end.segments_.emplace_back().zero = zero;
  end.report_ = make.AddIfAny("report", std::move(report));
  return end;
}

void StepEnd::AppendStart(RankClass& c) const {
  AppendForEach({&Blocks::zero}, c);
  if (share_.valid()) c.slots.push_back({share_, 0, 0, 1, 1});
  AppendForEach({&Blocks::send_values, &Blocks::receive_values}, c);
}

std::optional<Slot> StepEnd::ReduceOf(size_t segment, int64_t layer) const {
  const Blocks& blocks = segments_[segment];
  if (!blocks.reduce.valid() || blocks.receive_gradients.valid()) return std::nullopt;
  return Slot{blocks.reduce, 0, layer, 1, 1};
}

// What is sent goes first, or two stages would wait for each other.
void StepEnd::AppendEnd(RankClass& c) const {
  if (give_back_.valid()) c.slots.push_back({give_back_, 0, 0, 1, 1});
  AppendForEach({&Blocks::send_gradients}, c);
  if (late_.reduce.valid()) c.slots.push_back({late_.reduce, 0, 0, 1, 1});
  AppendForEach({&Blocks::receive_gradients}, c);
  for (const Blocks& blocks : segments_) {
    if (!blocks.reduce.valid() || !blocks.receive_gradients.valid()) continue;
    for (int64_t layer = 0; layer < blocks.layers; ++layer) c.slots.push_back({blocks.reduce, 0, layer, 1, 1});
  }
  if (late_.update.valid()) c.slots.push_back({late_.update, 0, 0, 1, 1});
  AppendForEach({&Blocks::update}, c);
  if (report_.valid()) c.slots.push_back({report_, 0, 0, 1, 1});
}

void StepEnd::AppendForEach(std::initializer_list<BlockId Blocks::*> which, RankClass& c) const {
  for (BlockId Blocks::*const block : which) {
    for (const Blocks& blocks : segments_) {
      if ((blocks.*block).valid()) c.slots.push_back({blocks.*block, 0, 0, blocks.layers, 1});
    }
  }
}

}  // namespace meshwright
