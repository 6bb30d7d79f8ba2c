#include "planner/passes/split_stages.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/passes/arrivals.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/follow_stages.h"
#include "planner/passes/part_uses.h"
#include "planner/passes/pass_slots.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/passes/split_backward.h"
#include "planner/passes/step_end.h"
#include "planner/passes/take_turns.h"
#include "planner/passes/transfer_blocks.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

constexpr absl::string_view kKindNames[kKinds] = {" forward", " backward", " weights"};

class Splitter {
 public:
  Splitter(const Program& program, const Graph& graph, const Strategy& strategy, const UpdateRule& optimizer,
           Followers* followers, const Matrices& matrices)
      : before_(program),
        events_(program.classes[0].events),
        graph_(graph),
        strategy_(strategy),
        optimizer_(optimizer),
        matrices_(matrices),
        followers_(followers) {
    // A single stage waits for nobody.
    if (strategy.stages > 1) schedule_ = strategy.schedule;
  }

  absl::StatusOr<Program> Run() {
    MESHWRIGHT_RETURN_IF_ERROR(CheckSchedule(schedule_, strategy_.stages, strategy_.microbatches));
    if (strategy_.microbatches > kMostPasses / strategy_.chunks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found ", strategy_.microbatches, " micro-batches", strategy_.chunks > 1 ? " through each of " : "",
          strategy_.chunks > 1 ? absl::StrCat(strategy_.chunks, " chunks") : "", ", wanted at most ", kMostPasses,
          " passes of a stage; take fewer and larger ones"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(parts_, PartsOf(graph_, strategy_));
    const std::vector<Part> model = parts_;
    for (int64_t k = 1; k < directions(); ++k) parts_.insert(parts_.end(), model.begin(), model.end());
    passes_ = PassesOf(schedule_, strategy_.stages, strategy_.microbatches, strategy_.chunks);
    MakeBlocks();
    uses_ = FindUses(all(), blocks_, graph_, parts_, strategy_, schedule_);
    CountBuffers();
    CutBlocks();
    Program after;
    after.name = before_.name;
    after.mesh = before_.mesh;
    after.num_microbatches = strategy_.microbatches;
    after.loss_divisor = strategy_.loss_divisor;
    for (int64_t stage = 0; stage < strategy_.stages; ++stage) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const bool follows, Follows(stage, after));
      if (follows) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(RankClass rank_class, BuildClass(stage));
      after.classes.push_back(std::move(rank_class));
    }
    return after;
  }

 private:
  const RankClass& all() const { return before_.classes[0]; }
  int64_t StageOf(int64_t part) const { return StageOfPart(schedule_, part, strategy_.stages); }
  int64_t ChunkOf(int64_t part) const { return part / strategy_.stages; }
  int64_t PartOf(int64_t stage, int64_t chunk) const { return PartAt(schedule_, stage, chunk, strategy_.stages); }
  int64_t directions() const { return DirectionsOf(schedule_); }
  int64_t chunks() const { return strategy_.chunks * directions(); }  // of a stage

  // Those of `before_`, or made of them.
  void MakeBlocks() {
    static const Block* const none = new Block();
    for (size_t s = 0; s < graph_.segments.size(); ++s) {
      const Block *backward = &all().blocks[2 * s + 1], *weights = none;
      if (SplitsBackward(schedule_)) {
        SplitBlock split = SplitBackward(*backward, all().buffers);
        backward = &made_blocks_.emplace_back(std::move(split.backward));
        weights = &made_blocks_.emplace_back(std::move(split.weights));
      }
      blocks_.insert(blocks_.end(), {&all().blocks[2 * s], backward, weights});
    }
  }
  void CutBlocks() {
    for (const Block* const block : blocks_) {
      std::vector<const Block*>& cuts = cuts_.emplace_back();
      if (!TakesTurns(schedule_)) {
        cuts.push_back(block);
        continue;
      }
      std::vector<Block> made = CutAtCollectives(*block, events_);
      for (const BufferId id : UsedAcross(made)) across_cuts_.insert(id);
      for (Block& cut : made) cuts.push_back(&made_blocks_.emplace_back(std::move(cut)));
    }
  }
  void CountBuffers() {
    buffers_of_.assign(graph_.segments.size(), 0);
    for (const BlocksOfBuffer& uses : uses_.of_buffer) {
      for (const auto* blocks : {&uses.readers, &uses.writers}) {
        for (const size_t block : *blocks) ++buffers_of_[SegmentOf(block)];
      }
    }
  }
  // Of the pass after which a micro-batch is done with.
  PassKind LastKind() const { return SplitsBackward(schedule_) ? PassKind::kWeights : PassKind::kBackward; }

  // --- one class ---------------------------------------------------------------------------------------------------

  absl::StatusOr<RankClass> BuildClass(int64_t stage) {
    renamed_.assign(static_cast<size_t>(chunks()), std::vector<BufferId>(all().buffers.size()));
    made_.clear();
    between_.clear();
    leader_ = Leader();
    NoteChunks(stage);
    RankClass c;
    c.name = absl::StrCat("stage ", stage);
    c.stage = stage;
    c.events = events_;
    slots_ = PassSlots();
    MESHWRIGHT_ASSIGN_OR_RETURN(slots_.arrivals, ArrivalsAt(stage));
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      for (const LayerRange& range : parts_[PartOf(stage, chunk)]) {
        const bool carried = !graph_.segments[range.segment].carries.empty();
        slots_.here.push_back({range, chunk, IsStack(range, graph_), carried, {}});
      }
    }
    size_t most = 0;
    for (const PassSlots::Here& here : slots_.here) most += buffers_of_[here.range.segment];
    c.buffers.reserve(most);  // with those of the step's end: few buffers are of one block alone
    for (size_t kind = 0; kind <= static_cast<size_t>(LastKind()); ++kind) {
      for (PassSlots::Here& here : slots_.here) AddBlocks(c, stage, kind, here);
    }
    AddTransfers(c, stage);
    MESHWRIGHT_ASSIGN_OR_RETURN(
        step_end_, StepEnd::Make(c, before_.mesh, optimizer_, strategy_, Segments(stage), uses_.shared, matrices_));
    StageSlots slots = SlotsOfStage(stage, c);
    if (followers_ != nullptr) leader_.slots = slots;
    leader_.class_index = static_cast<size_t>(stage);
    c.slots = std::move(slots.slots);
    return c;
  }

  absl::StatusOr<Arrivals> ArrivalsAt(int64_t stage) {
    const std::vector<Route> routes = RoutesTo(stage);
    // Interleaved groups of different sizes: forwards and backwards come from both peers in orders that do not fit.
    const bool uneven =
        schedule_ == Schedule::kOneFOneB && chunks() > 1 && strategy_.microbatches % strategy_.stages != 0;
    std::optional<Arrivals> in_order = uneven ? std::nullopt : ArrivalsInOrder(stage, passes_, routes);
    if (in_order.has_value()) return *std::move(in_order);
    if (pass_ends_.empty()) pass_ends_ = EndsOf(schedule_, passes_);
    if (pass_ends_.empty()) return absl::InternalError("the stages of the schedule wait for each other");
    return PlanArrivals(stage, passes_, pass_ends_, routes, uneven);
  }

  // Of a stage with the blocks of `c`, whose own slots stay what they are.
  StageSlots SlotsOfStage(int64_t stage, RankClass& c) {
    const std::vector<Pass>& passes = passes_[stage];
    StageSlots of;
    std::swap(c.slots, of.slots);
    c.slots.reserve(leader_.slots.slots.size());  // all stages have about as many
    step_end_.AppendStart(c);
    std::vector<int64_t> left(chunks(), strategy_.microbatches / directions());
    std::vector<bool> begun(chunks());
    for (size_t first = 0, end = 0; first < passes.size(); first = end) {
      end = EndOfLinked(passes, first);
      const Pass& pass = passes[end - 1];
      const bool last = pass.kind == LastKind() && --left[pass.chunk] == 0;
      if (last && of.tail == 0) of.tail = c.slots.size();
      slots_.Append(passes, first, end, last ? &step_end_ : nullptr, c);
      if (!begun[passes[first].chunk]) of.middle = c.slots.size();
      begun[passes[first].chunk] = true;
    }
    step_end_.AppendEnd(c);
    std::swap(c.slots, of.slots);
    return of;
  }

  // --- stages that are alike ---------------------------------------------------------------------------------------

  // Whether the stage's class is that of the stage built last but for what a Follower says, which it notes.
  absl::StatusOr<bool> Follows(int64_t stage, Program& after) {
    if (followers_ == nullptr || after.classes.empty() || !IsLike(stage)) return false;
    MESHWRIGHT_ASSIGN_OR_RETURN(Arrivals arrivals, ArrivalsAt(stage));
    if (arrivals.early != slots_.arrivals.early) return false;
    slots_.arrivals = std::move(arrivals);
    between_.clear();
    Follower follower;
    follower.slots = SlotsOfStage(stage, after.classes[leader_.class_index]);
    if (!follower.slots.SameEnds(leader_.slots)) return false;
    std::vector<Leader>& leaders = followers_->leaders;
    if (leaders.empty() || leaders.back().class_index != leader_.class_index) leaders.push_back(leader_);
    follower.class_index = static_cast<size_t>(stage);
    follower.leader = leaders.size() - 1;
    follower.layers_later = LayersLater(stage).value_or(0);
    for (const Made& made : made_) {
      follower.microbatches.push_back(MicrobatchesIn(stage, made.chunk, made.buffer, made.kept));
    }
    for (const size_t k : uses_.crossings_at[static_cast<size_t>(stage)]) follower.crossings.push_back(WhatOf(k));
    followers_->followers.push_back(std::move(follower));
    after.classes.emplace_back();
    return true;
  }

  // Its first layer less that of the stage built last; nothing where chunks differ in that, or layers in number.
  std::optional<int64_t> LayersLater(int64_t stage) const {
    std::optional<int64_t> later;
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      const Part &a = parts_[PartOf(Built(), chunk)], &b = parts_[PartOf(stage, chunk)];
      if (a.size() != b.size()) return std::nullopt;
      for (size_t i = 0; i < a.size(); ++i) {
        if (a[i].segment != b[i].segment || a[i].count != b[i].count) return std::nullopt;
        if (graph_.segments[a[i].segment].repeat == 1) continue;
        const int64_t of_range = b[i].first - a[i].first;
        if (a[i].first == 0 || of_range != later.value_or(of_range)) return std::nullopt;
        later = of_range;
      }
    }
    return later;
  }
  int64_t Built() const { return static_cast<int64_t>(leader_.class_index); }

  bool IsLike(int64_t stage) const {
    if (directions() > 1 || !LayersLater(stage).has_value()) return false;
    const auto touches = [](const SharedParameter& shared, int64_t one) {
      return shared.owner == one || absl::c_linear_search(shared.users, one) ||
             absl::c_linear_search(shared.contributors, one);
    };
    for (const SharedParameter& shared : uses_.shared) {
      if (touches(shared, stage) || touches(shared, Built())) return false;
    }
    const auto seen_from = [this](int64_t here, const Crossing& one) {
      return std::tuple(one.buffer, one.kind, StageOf(one.from) - here, StageOf(one.to) - here, ChunkOf(one.from),
                        ChunkOf(one.to), ChunkOf(one.last), one.to - one.from, one.from_layer, one.to_layer);
    };
    const auto &a = uses_.crossings_at[leader_.class_index], &b = uses_.crossings_at[static_cast<size_t>(stage)];
    return absl::c_equal(a, b, [&](size_t k, size_t l) {
      return seen_from(Built(), uses_.crossings[k]) == seen_from(stage, uses_.crossings[l]);
    });
  }

  void AddBlocks(RankClass& c, int64_t stage, size_t kind, PassSlots::Here& here) {
    for (const Block* const before : cuts_[kKinds * here.range.segment + kind]) {
      Block block = *before;
      block.name = absl::StrCat(NameOf(here), kKindNames[kind]);
      if (const size_t k = here.blocks[kind].size(); k > 0) absl::StrAppend(&block.name, " ", k);
      // What a chain hands on counts all layers that the part has of it.
      const Part& part = parts_[PartOf(stage, here.chunk)];
      const int64_t layers_before = here.is_stack ? LayersBefore(here.range.segment, part, graph_) : 0;
      for (Instruction& instruction : block.instructions) {
        for (auto* operands : {&instruction.reads, &instruction.writes}) {
          for (Operand& operand : *operands) {
            if (uses_.is_stream[operand.buffer.index()]) operand.layer_shift += static_cast<int32_t>(layers_before);
            operand.buffer = BufferIn(c, stage, here.chunk, operand.buffer);
          }
        }
      }
      here.blocks[kind].push_back(BlockId(c.blocks.size()));
      c.blocks.push_back(std::move(block));
    }
  }

  std::string NameOf(const PassSlots::Here& here) const {
    const std::string& segment = graph_.segments[here.range.segment].name;
    return here.chunk == 0 || !IsStack(here.range, graph_) ? segment : absl::StrCat(segment, " chunk ", here.chunk);
  }

  // What the class has of each segment, in order, with the local layers that its gradients have.
  std::vector<StepEnd::SegmentLayers> Segments(int64_t stage) const {
    std::vector<StepEnd::SegmentLayers> segments;
    for (const PassSlots::Here& here : slots_.here) {
      const int64_t layers = graph_.segments[here.range.segment].repeat > 1 ? here.range.count : 1;
      segments.push_back({NameOf(here), layers, here.blocks[1]});
      if (directions() > 1 && graph_.segments[here.range.segment].repeat > 1) {
        segments.back().twin = strategy_.stages - 1 - stage;
        segments.back().owned = here.chunk == 0;
      }
      segments.back().backward.insert(segments.back().backward.end(), here.blocks[2].begin(), here.blocks[2].end());
    }
    return segments;
  }

  // The layers of the part that have an instance each of a buffer: those of the one segment that has many and uses it.
  const LayerRange* RangeWith(int64_t part, BufferId id) const {
    const BlocksOfBuffer& uses = uses_.of_buffer[id.index()];
    const int64_t layers = all().buffers[id.index()].layers;
    for (const LayerRange& range : parts_[part]) {
      if (graph_.segments[range.segment].repeat != layers) continue;
      const auto is_here = [&](size_t block) { return SegmentOf(block) == range.segment; };
      if (absl::c_any_of(uses.readers, is_here) || absl::c_any_of(uses.writers, is_here)) return &range;
    }
    return nullptr;
  }

  // Chunks share what is not of single layers: a parameter of several ranges, what one makes for another.
  BufferId BufferIn(RankClass& c, int64_t stage, int64_t chunk, BufferId old) {
    chunk = HomeChunk(chunk, old);
    BufferId& renamed = renamed_[static_cast<size_t>(chunk)][old.index()];
    if (renamed.valid()) return renamed;
    Buffer b = all().buffers[old.index()];
    const int64_t part = PartOf(stage, chunk);
    const bool across_cuts = b.role == BufferRole::kTemporary && across_cuts_.count(old) > 0;
    if (uses_.is_stream[old.index()]) {
      const int64_t layers = LayersOn(parts_[part], graph_) + 1;
      // Two copies do for going from layer to layer, but what arrives at one end of the layers must not share a copy
      // with what is still being sent from the other.
      int64_t copies = 2;
      while (copies < layers && LayersOn(parts_[part], graph_) % copies == 0) ++copies;
      const bool kept = (TouchedForward(old) && ReadBackward(old)) || IsSplit(old);
      b.layers = kept ? layers : std::min(layers, copies);
    } else {
      if (const LayerRange* range = b.layers > 1 ? RangeWith(part, old) : nullptr; range != nullptr) {
        b.layers = range->count;
        b.first_layer += range->first;
      }
      if (b.role == BufferRole::kTemporary && IsSplit(old)) {
        b.role = BufferRole::kActivation;
        b.layers = LayersOf(part, SegmentOf(*uses_.of_buffer[old.index()].writers.begin()));
      }
    }
    const bool kept = b.role == BufferRole::kActivation || b.role == BufferRole::kInput;
    b.microbatches = MicrobatchesIn(stage, chunk, old, kept);
    if (across_cuts) b.role = BufferRole::kActivation;
    if (chunk > 0 && IsOfChunk(old)) absl::StrAppend(&b.name, "@chunk", chunk);
    made_.push_back({old, chunk, kept});
    renamed = AddBuffer(c, std::move(b));
    return renamed;
  }
  // For how many micro-batches a buffer has room, which is `kept` for longer than a pass takes or else is not.
  int64_t MicrobatchesIn(int64_t stage, int64_t chunk, BufferId old, bool kept) const {
    int64_t held = all().buffers[old.index()].microbatches, least = 1;
    const bool crosses = Crosses(old);
    if (uses_.is_stream[old.index()]) {
      held = Held(stage, chunk, old);
      if (strategy_.stages > 1) least = 2;
      // Values go both ways, and one that finds no free copy holds up those behind it.
      if (IsV(schedule_)) least = held + 1;
    } else if (kept) {
      const bool by_chunks = NumChunks(old) > 1;
      const bool waits = IsSplit(old) || (TouchedForward(old) && (ReadBackward(old) || crosses));
      if (by_chunks || waits) held = Held(stage, chunk, old);
      if (crosses) least = 2;
    }
    const auto waiting = slots_.arrivals.waiting.find({chunk, old});
    if (waiting != slots_.arrivals.waiting.end()) least = std::max(least, waiting->second);
    return std::max(held, std::min(least, strategy_.microbatches));
  }
  bool ReadBackward(BufferId id) const { return !absl::c_all_of(uses_.of_buffer[id.index()].readers, IsForward); }
  // Between a backward pass and the gradients of parameters.
  bool IsSplit(BufferId id) const {
    return ReadByWeights(id) && !absl::c_all_of(uses_.of_buffer[id.index()].writers, IsWeights);
  }
  bool TouchedForward(BufferId id) const {
    return absl::c_any_of(uses_.of_buffer[id.index()].readers, IsForward) ||
           absl::c_any_of(uses_.of_buffer[id.index()].writers, IsForward);
  }
  bool ReadByWeights(BufferId id) const { return absl::c_any_of(uses_.of_buffer[id.index()].readers, IsWeights); }
  int64_t LayersOf(int64_t part, size_t segment) const {
    for (const LayerRange& range : parts_[part]) {
      if (range.segment == segment) return range.count;
    }
    return 1;
  }
  // Of how many micro-batches the values are needed at once: from the pass that makes them or gets them from the other
  // chunk of the stage, to the last that reads them.
  int64_t Held(int64_t stage, int64_t chunk, BufferId id) const {
    const PassKind first = TouchedForward(id) ? PassKind::kForward : PassKind::kBackward;
    const PassKind last = ReadByWeights(id) ? PassKind::kWeights : PassKind::kBackward;
    int64_t most = 1;
    const auto hold = [&](int64_t from, int64_t to) {
      if (first != last || from != to) most = std::max(most, Between(stage, first, last, from, to));
    };
    if (IsOfChunk(id)) {
      hold(chunk, chunk);
    } else {
      for (const int64_t from : ChunksWith(id)) {
        for (const int64_t to : ChunksWith(id)) hold(from, to);
      }
    }
    for (const size_t k : uses_.crossings_of[id.index()]) {
      if (!IsTurn(uses_.crossings[k]) || uses_.crossings[k].to != PartOf(stage, chunk)) continue;
      most = std::max(most, Between(stage, first, last, ChunkOf(uses_.crossings[k].from), chunk));
    }
    return most;
  }
  // MaxBetween, asked for many buffers.
  int64_t Between(int64_t stage, PassKind first, PassKind last, int64_t from, int64_t to) const {
    const auto [found, is_new] = between_.try_emplace({first, last, from, to});
    if (is_new) found->second = MaxBetween(passes_[stage], first, last, from, to);
    return found->second;
  }
  // From one chunk of a stage to the next: copied instead of sent.
  bool IsTurn(const Crossing& crossing) const { return StageOf(crossing.from) == StageOf(crossing.to); }
  bool Crosses(BufferId id) const { return !uses_.crossings_of[id.index()].empty(); }
  // The chunks of the stage that use a buffer, in order.
  using Chunks = absl::InlinedVector<int64_t, 4>;
  const Chunks& ChunksWith(BufferId id) const {
    std::optional<Chunks>& known = chunks_with_[id.index()];
    if (known.has_value()) return *known;
    Chunks& chunks = known.emplace();
    for (const auto* blocks : {&uses_.of_buffer[id.index()].readers, &uses_.of_buffer[id.index()].writers}) {
      for (size_t block : *blocks) {
        const std::vector<int64_t>& here = chunks_of_[SegmentOf(block)];
        chunks.insert(chunks.end(), here.begin(), here.end());
      }
    }
    absl::c_sort(chunks);
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
    return chunks;
  }
  // Of the stage under construction.
  void NoteChunks(int64_t stage) {
    chunks_with_.assign(all().buffers.size(), std::nullopt);
    chunks_of_.assign(graph_.segments.size(), {});
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      for (const LayerRange& range : parts_[PartOf(stage, chunk)]) chunks_of_[range.segment].push_back(chunk);
    }
  }
  size_t NumChunks(BufferId id) const { return ChunksWith(id).size(); }
  // The chunk whose copy of the buffer is meant in a block of `chunk`.
  int64_t HomeChunk(int64_t chunk, BufferId id) const { return IsOfChunk(id) ? chunk : *ChunksWith(id).begin(); }
  bool IsOfChunk(BufferId id) const {
    const Buffer& buffer = all().buffers[id.index()];
    if (buffer.layers > 1) return true;
    // One pass of a kind runs at a time, so what only lives inside of one does for all chunks.
    if (buffer.role == BufferRole::kTemporary) return across_cuts_.count(id) == 0 || ReadByWeights(id);
    // Micro-batches of two directions are no neighbours.
    return directions() > 1 && (buffer.role == BufferRole::kActivation || buffer.role == BufferRole::kInput);
  }

  // --- transfers ---------------------------------------------------------------------------------------------------

  PassSlots::Transfers& SlotsOf(int64_t chunk, PassKind kind) { return slots_.transfers[{chunk, kind}]; }

  // What is sent to the stage.
  std::vector<Route> RoutesTo(int64_t stage) const {
    std::vector<Route> routes;
    for (const size_t k : uses_.crossings_at[static_cast<size_t>(stage)]) {
      const Crossing& crossing = uses_.crossings[k];
      if (IsTurn(crossing) || StageOf(crossing.to) != stage) continue;
      Route& route = routes.emplace_back();
      route.to = stage;
      route.from = StageOf(crossing.from);
      route.from_chunk = ChunkOf(crossing.from);
      route.to_chunk = ChunkOf(crossing.to);
      route.kind = crossing.kind;
      route.skips = chunks() > 1 && std::abs(crossing.from - crossing.to) > 1;
      std::tie(route.last_kind, route.last_chunk) = ReleasedAfter(crossing);
      route.home = HomeOf(crossing);
    }
    return routes;
  }

  std::pair<int64_t, BufferId> HomeOf(const Crossing& arrives) const {
    return {HomeChunk(ChunkOf(arrives.to), arrives.buffer), arrives.buffer};
  }

  // The pass of the receiving stage that reads it last: of what backward reads too, the backward pass, and of what the
  // gradients of parameters need, theirs.
  std::pair<PassKind, int64_t> ReleasedAfter(const Crossing& crossing) const {
    const bool forward = crossing.kind == PassKind::kForward;
    const bool kept = !absl::c_all_of(uses_.of_buffer[crossing.buffer.index()].readers, IsForward);
    const int64_t chunk = ChunkOf(forward && kept ? crossing.to : crossing.last);
    if (ReadByWeights(crossing.buffer)) return {PassKind::kWeights, chunk};
    return {kept ? PassKind::kBackward : PassKind::kForward, chunk};
  }

  // Blocks for each side of each crossing.
  void AddTransfers(RankClass& c, int64_t stage) {
    leader_.first_block = c.blocks.size();
    leader_.first_event = c.events.size();
    for (const size_t k : uses_.crossings_at[static_cast<size_t>(stage)]) {
      const Crossing& crossing = uses_.crossings[k];
      const std::string what = WhatOf(k);
      const int64_t from = StageOf(crossing.from), to = StageOf(crossing.to);
      const Phase phase = PhaseOf(crossing.kind);
      const BufferId buffer = BufferIn(c, stage, ChunkOf(from == stage ? crossing.from : crossing.to), crossing.buffer);
      if (from == to) {
        const Operand target = {BufferIn(c, stage, ChunkOf(crossing.to), crossing.buffer),
                                static_cast<int32_t>(crossing.to_layer - crossing.from_layer)};
        const BlockId turn = AddTurn(c, what, phase, buffer, target);
        SlotsOf(ChunkOf(crossing.from), crossing.kind).after.push_back({turn, 0, crossing.from_layer, 1, 1});
      } else if (from == stage) {
        PassSlots::Transfers& slots = SlotsOf(ChunkOf(crossing.from), crossing.kind);
        const SendBlocks send = AddSend(c, what, phase, buffer, static_cast<int32_t>(to - from));
        slots.before.push_back({send.await_sent, 0, crossing.from_layer, 1, 1});
        slots.after.push_back({send.send, 0, crossing.from_layer, 1, 1});
      } else {
        AddReceiveOf(c, crossing, what, buffer);
      }
      leader_.crossings.push_back({what, buffer});
      leader_.of_block.resize(c.blocks.size() - leader_.first_block, leader_.crossings.size() - 1);
      leader_.of_event.resize(c.events.size() - leader_.first_event, leader_.crossings.size() - 1);
    }
  }
  std::string WhatOf(size_t k) const {
    const Crossing& crossing = uses_.crossings[k];
    return absl::StrCat(all().buffers[crossing.buffer.index()].name, " ", crossing.from, "->", crossing.to);
  }

  void AddReceiveOf(RankClass& c, const Crossing& crossing, const std::string& what, BufferId buffer) {
    const auto [kind, chunk] = ReleasedAfter(crossing);
    const int64_t offset = StageOf(crossing.from) - StageOf(crossing.to);
    const bool early = slots_.arrivals.early.count(slots_.receives.size()) > 0;
    const ReceiveBlocks blocks =
        AddReceive(c, what, PhaseOf(crossing.kind), PhaseOf(kind), buffer, static_cast<int32_t>(offset), early);
    slots_.receives.push_back({blocks.receive, 0, crossing.to_layer, 1, 1});
    if (early) {
      SlotsOf(ChunkOf(crossing.to), crossing.kind).before.push_back({blocks.arrival, 0, crossing.to_layer, 1, 1});
    }
    SlotsOf(chunk, kind).after.push_back({blocks.release, 0, crossing.to_layer, 1, 1});
  }

  const Program& before_;
  std::vector<Event> events_;  // its own, and those of cuts
  const Graph& graph_;
  const Strategy& strategy_;
  const UpdateRule& optimizer_;
  const Matrices& matrices_;
  Followers* const followers_;  // null: every stage is built
  Schedule schedule_ = Schedule::kOneFOneB;
  std::vector<std::vector<Pass>> passes_;        // by stage
  std::deque<Block> made_blocks_;                // of the next two those that `before_` does not have
  std::vector<const Block*> blocks_;             // by segment and kind of pass
  std::vector<std::vector<const Block*>> cuts_;  // the same, each as one or several
  std::vector<size_t> buffers_of_;               // by segment: how many its blocks read, and how many they write
  std::set<BufferId> across_cuts_;               // that several of these use
  std::vector<Part> parts_;                      // of the pipeline, in order
  PartUses uses_;
  std::vector<std::vector<int64_t>> pass_ends_;  // by stage and pass; empty until somebody asks for them
  // Of the class under construction, or built last.
  struct Made {
    BufferId buffer;  // before
    int64_t chunk = 0;
    bool kept = false;
  };
  PassSlots slots_;
  StepEnd step_end_;
  Leader leader_;
  std::vector<Made> made_;                       // by buffer, as far as they are not of the step's end
  std::vector<std::vector<int64_t>> chunks_of_;  // by segment
  std::vector<std::vector<BufferId>> renamed_;   // by chunk and the buffer before; invalid: not yet
  mutable std::map<std::tuple<PassKind, PassKind, int64_t, int64_t>, int64_t> between_;
  mutable std::vector<std::optional<Chunks>> chunks_with_;  // by buffer
};

}  // namespace

absl::StatusOr<Program> SplitStages(const Program& program, const Graph& graph, const Strategy& strategy,
                                    const UpdateRule& optimizer, Followers* followers, const Matrices& matrices) {
  return Splitter(program, graph, strategy, optimizer, followers, matrices).Run();
}

}  // namespace meshwright
