#include "planner/passes/split_stages.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/passes/arrivals.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/pass_slots.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/passes/split_backward.h"
#include "planner/passes/step_end.h"
#include "planner/passes/take_turns.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

// What flows from one stage to another: a buffer, from which part to which, in which phase.
struct Crossing {
  BufferId buffer;  // of the program before
  int64_t from = 0, to = 0;
  PassKind kind = PassKind::kForward;    // of the pass that makes it
  int64_t from_layer = 0, to_layer = 0;  // local layer at which it leaves and arrives
  int64_t last = 0;                      // the last part of the receiving stage that reads it in such a pass
};

constexpr size_t kKinds = kNumPassKinds;
constexpr absl::string_view kKindNames[kKinds] = {" forward", " backward", " weights"};

class Splitter {
 public:
  Splitter(Program program, const Graph& graph, const Strategy& strategy, const UpdateRule& optimizer)
      : before_(std::move(program)), graph_(graph), strategy_(strategy), optimizer_(optimizer) {
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
    pass_ends_ = EndsOf(schedule_, passes_);
    if (pass_ends_.empty()) return absl::InternalError("the stages of the schedule wait for each other");
    MakeBlocks();
    FindUses();
    FindCrossings();
    crossings_of_.resize(all().buffers.size());
    for (size_t k = 0; k < crossings_.size(); ++k) crossings_of_[crossings_[k].buffer.index()].push_back(k);
    Program after;
    after.name = before_.name;
    after.mesh = before_.mesh;
    after.num_microbatches = strategy_.microbatches;
    after.loss_divisor = strategy_.loss_divisor;
    for (int64_t stage = 0; stage < strategy_.stages; ++stage) {
      MESHWRIGHT_ASSIGN_OR_RETURN(RankClass rank_class, BuildClass(stage));
      after.classes.push_back(std::move(rank_class));
    }
    return after;
  }

 private:
  RankClass& all() { return before_.classes[0]; }
  int64_t StageOf(int64_t part) const { return StageOfPart(schedule_, part, strategy_.stages); }
  int64_t ChunkOf(int64_t part) const { return part / strategy_.stages; }
  int64_t PartOf(int64_t stage, int64_t chunk) const { return PartAt(schedule_, stage, chunk, strategy_.stages); }
  int64_t num_parts() const { return static_cast<int64_t>(parts_.size()); }
  int64_t directions() const { return DirectionsOf(schedule_); }
  int64_t chunks() const { return strategy_.chunks * directions(); }  // of a stage
  int64_t DirectionOf(int64_t part) const { return part * directions() / num_parts(); }

  // The blocks of a segment, one for each kind of pass.
  static size_t SegmentOf(size_t block) { return block / kKinds; }
  static PassKind KindOf(size_t block) { return static_cast<PassKind>(block % kKinds); }
  static bool IsForward(size_t block) { return KindOf(block) == PassKind::kForward; }
  static bool IsWeights(size_t block) { return KindOf(block) == PassKind::kWeights; }
  void MakeBlocks() {
    for (size_t s = 0; s < graph_.segments.size(); ++s) {
      SplitBlock backward = {all().blocks[2 * s + 1], {}};
      if (SplitsBackward(schedule_)) backward = SplitBackward(backward.backward, all().buffers);
      Keep(all().blocks[2 * s]);
      Keep(std::move(backward.backward));
      Keep(std::move(backward.weights));
    }
  }
  void Keep(Block block) {
    blocks_.push_back(block);
    cuts_.push_back(TakesTurns(schedule_) ? CutAtCollectives(std::move(block), all().events)
                                          : std::vector<Block>{std::move(block)});
    for (const BufferId id : UsedAcross(cuts_.back())) across_cuts_.insert(id);
  }
  // Of the pass after which a micro-batch is done with.
  PassKind LastKind() const { return SplitsBackward(schedule_) ? PassKind::kWeights : PassKind::kBackward; }

  struct Uses {
    std::set<size_t> readers, writers;  // blocks
  };
  void FindUses() {
    uses_.resize(all().buffers.size());
    for (size_t k = 0; k < blocks_.size(); ++k) {
      for (const Instruction& instruction : blocks_[k].instructions) {
        for (const Operand& operand : instruction.reads) uses_[operand.buffer.index()].readers.insert(k);
        for (const Operand& operand : instruction.writes) uses_[operand.buffer.index()].writers.insert(k);
      }
    }
    parts_of_.assign(graph_.segments.size(), {});
    for (int64_t part = 0; part < num_parts(); ++part) {
      for (const Piece& piece : parts_[part]) parts_of_[piece.segment].push_back(part);
    }
  }

  int64_t LayersOn(int64_t part) const {
    for (const Piece& piece : parts_[part]) {
      if (IsStack(piece)) return piece.count;
    }
    return 0;
  }
  // Whether the part has layers, or none of its share of them: then it hands on what they would read.
  bool PassesOn(int64_t part) const {
    const std::vector<int64_t>& given = strategy_.layers_per_stage;
    return LayersOn(part) > 0 || (!given.empty() && given[static_cast<size_t>(part) % given.size()] == 0);
  }
  bool IsStack(const Piece& piece) const {
    const Segment& segment = graph_.segments[piece.segment];
    return segment.repeat > 1 || !segment.carries.empty();
  }
  bool IsStream(BufferId id) {
    return all().buffers[id.index()].role == BufferRole::kActivation && StreamSegment(id) >= 0;
  }
  // The repeated segment whose carried value this buffer holds, or -1.
  int StreamSegment(BufferId id) {
    for (size_t s = 0; s < graph_.segments.size(); ++s) {
      const Segment& segment = graph_.segments[s];
      if (segment.carries.empty() || all().buffers[id.index()].layers != segment.repeat + 1) continue;
      if (absl::StartsWith(all().buffers[id.index()].name, absl::StrCat(segment.name, "/"))) return static_cast<int>(s);
    }
    return -1;
  }

  void FindCrossings() {
    for (size_t i = 0; i < all().buffers.size(); ++i) {
      const Buffer& buffer = all().buffers[i];
      const Uses& uses = uses_[i];
      if (buffer.role == BufferRole::kParameter) NoteShared(BufferId(i));
      if (buffer.role != BufferRole::kActivation || uses.writers.empty()) continue;
      const PassKind kind = IsForward(*uses.writers.begin()) ? PassKind::kForward : PassKind::kBackward;
      if (IsStream(BufferId(i))) {
        const bool forward = absl::EndsWith(buffer.name, "/stream");
        for (int64_t part = 0; part + 1 < num_parts(); ++part) {
          const int64_t layers = LayersOn(part);
          if (!PassesOn(part) || !PassesOn(part + 1) || DirectionOf(part) != DirectionOf(part + 1)) continue;
          if (forward) {
            crossings_.push_back({BufferId(i), part, part + 1, PassKind::kForward, layers, 0, part + 1});
          } else {
            crossings_.push_back({BufferId(i), part + 1, part, PassKind::kBackward, 0, layers, part});
          }
        }
        continue;
      }
      const size_t made_in = SegmentOf(*uses.writers.begin());
      for (size_t first = 0; first < parts_of_[made_in].size(); ++first) {
        const int64_t from = parts_of_[made_in][first];
        if (first > 0 && DirectionOf(from) == DirectionOf(parts_of_[made_in][first - 1])) continue;
        // By stage, in the order in which the parts run.
        std::map<int64_t, std::vector<int64_t>> readers;
        for (int64_t part : PartsThatRead(uses, made_in)) {
          if (DirectionOf(part) == DirectionOf(from)) readers[StageOf(part)].push_back(part);
        }
        for (auto& [stage, parts] : readers) {
          if (stage == StageOf(from)) continue;
          if (kind == PassKind::kBackward) std::reverse(parts.begin(), parts.end());
          crossings_.push_back({BufferId(i), from, parts.front(), kind, 0, 0, parts.back()});
        }
      }
    }
  }
  // In ascending order. A layer keeps its own values.
  std::set<int64_t> PartsThatRead(const Uses& uses, size_t made_in) const {
    std::set<int64_t> parts;
    for (size_t reader : uses.readers) {
      const std::vector<int64_t>& of_reader = parts_of_[SegmentOf(reader)];
      if (SegmentOf(reader) != made_in) parts.insert(of_reader.begin(), of_reader.end());
    }
    return parts;
  }

  std::set<int64_t> StagesOf(const std::set<size_t>& blocks) const {
    std::set<int64_t> stages;
    for (size_t block : blocks) {
      for (int64_t part : parts_of_[SegmentOf(block)]) stages.insert(StageOf(part));
    }
    return stages;
  }
  // Of what is on several stages for both directions, that of the first one's first part: so each of the two stages
  // that have a part twice owns one.
  int64_t OwnerOf(const std::set<size_t>& blocks) const {
    if (directions() == 1) return *StagesOf(blocks).begin();
    int64_t part = num_parts();
    for (size_t block : blocks) part = std::min(part, parts_of_[SegmentOf(block)][0]);
    return StageOf(part);
  }

  // Notes a parameter that several stages use, and where its gradient is made. Each layer has its own parameters; one
  // that nobody has a gradient of never changes.
  void NoteShared(BufferId id) {
    const Buffer& parameter = all().buffers[id.index()];
    if (parameter.layers > 1) return;
    std::set<int64_t> readers = StagesOf(uses_[id.index()].readers), contributors;
    SharedParameter shared;
    for (size_t i = 0; i < all().buffers.size(); ++i) {
      const Buffer& gradient = all().buffers[i];
      if (gradient.role != BufferRole::kGradient || gradient.name != absl::StrCat("d", parameter.name)) continue;
      contributors = StagesOf(uses_[i].writers);
      if (!contributors.empty()) shared.owner = OwnerOf(uses_[i].writers);
    }
    if (contributors.empty() || readers.size() < 2) return;
    shared.name = parameter.name;
    readers.erase(shared.owner);
    contributors.erase(shared.owner);
    shared.users.assign(readers.begin(), readers.end());
    shared.contributors.assign(contributors.begin(), contributors.end());
    shared_.push_back(std::move(shared));
  }

  // --- one class ---------------------------------------------------------------------------------------------------

  absl::StatusOr<RankClass> BuildClass(int64_t stage) {
    renamed_.assign(static_cast<size_t>(chunks()), std::vector<BufferId>(all().buffers.size()));
    between_.clear();
    chunks_with_.assign(all().buffers.size(), std::nullopt);
    RankClass c;
    c.buffers.reserve(2 * all().buffers.size() * static_cast<size_t>(chunks()));  // with those of the step's end
    c.name = absl::StrCat("stage ", stage);
    c.stage = stage;
    c.events = all().events;
    const std::vector<Pass>& passes = passes_[stage];
    slots_ = PassSlots();
    // Interleaved groups of different sizes: forwards and backwards come from both peers in orders that do not fit.
    const bool uneven =
        schedule_ == Schedule::kOneFOneB && chunks() > 1 && strategy_.microbatches % strategy_.stages != 0;
    slots_.arrivals = PlanArrivals(stage, passes_, pass_ends_, RoutesTo(stage), uneven);
    for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
      for (const Piece& piece : parts_[PartOf(stage, chunk)]) {
        const bool carried = !graph_.segments[piece.segment].carries.empty();
        slots_.here.push_back({piece, chunk, IsStack(piece), carried, {}});
      }
    }
    for (size_t kind = 0; kind <= static_cast<size_t>(LastKind()); ++kind) {
      for (PassSlots::Here& here : slots_.here) AddBlocks(c, stage, kind, here);
    }
    AddTransfers(c, stage);
    MESHWRIGHT_ASSIGN_OR_RETURN(const StepEnd step_end,
                                StepEnd::Make(c, before_.mesh, optimizer_, strategy_, Segments(stage), shared_));
    step_end.AppendStart(c);
    std::vector<int64_t> left(chunks(), strategy_.microbatches / directions());
    for (size_t first = 0, end = 0; first < passes.size(); first = end) {
      end = EndOfLinked(passes, first);
      const Pass& pass = passes[end - 1];
      const bool last = pass.kind == LastKind() && --left[pass.chunk] == 0;
      slots_.Append(passes, first, end, last ? &step_end : nullptr, c);
    }
    step_end.AppendEnd(c);
    return c;
  }

  void AddBlocks(RankClass& c, int64_t stage, size_t kind, PassSlots::Here& here) {
    for (Block block : cuts_[kKinds * here.piece.segment + kind]) {
      block.name = absl::StrCat(NameOf(here), kKindNames[kind]);
      if (const size_t k = here.blocks[kind].size(); k > 0) absl::StrAppend(&block.name, " ", k);
      for (Instruction& instruction : block.instructions) {
        for (Operand& operand : instruction.reads) operand.buffer = BufferIn(c, stage, here.chunk, operand.buffer);
        for (Operand& operand : instruction.writes) operand.buffer = BufferIn(c, stage, here.chunk, operand.buffer);
      }
      here.blocks[kind].push_back(BlockId(c.blocks.size()));
      c.blocks.push_back(std::move(block));
    }
  }

  std::string NameOf(const PassSlots::Here& here) const {
    const std::string& segment = graph_.segments[here.piece.segment].name;
    return here.chunk == 0 || !IsStack(here.piece) ? segment : absl::StrCat(segment, " chunk ", here.chunk);
  }

  // Pieces of the class in order, with the range of local layers that their gradients have.
  std::vector<StepEnd::SegmentLayers> Segments(int64_t stage) const {
    std::vector<StepEnd::SegmentLayers> segments;
    for (const PassSlots::Here& here : slots_.here) {
      const int64_t layers = graph_.segments[here.piece.segment].repeat > 1 ? here.piece.count : 1;
      segments.push_back({NameOf(here), layers, here.blocks[1]});
      if (directions() > 1 && graph_.segments[here.piece.segment].repeat > 1) {
        segments.back().twin = strategy_.stages - 1 - stage;
        segments.back().owned = here.chunk == 0;
      }
      segments.back().backward.insert(segments.back().backward.end(), here.blocks[2].begin(), here.blocks[2].end());
    }
    return segments;
  }

  const Piece* PieceWith(int64_t part, int64_t repeat_of_buffer) const {
    for (const Piece& piece : parts_[part]) {
      if (graph_.segments[piece.segment].repeat == repeat_of_buffer) return &piece;
    }
    return nullptr;
  }

  // Chunks share what is not of single layers: a parameter of several pieces, what one makes for another.
  BufferId BufferIn(RankClass& c, int64_t stage, int64_t chunk, BufferId old) {
    chunk = HomeChunk(stage, chunk, old);
    BufferId& renamed = renamed_[static_cast<size_t>(chunk)][old.index()];
    if (renamed.valid()) return renamed;
    Buffer b = all().buffers[old.index()];
    const int64_t part = PartOf(stage, chunk);
    const Uses& uses = uses_[old.index()];
    const bool read_backward = !absl::c_all_of(uses.readers, IsForward);
    const bool touched_forward = TouchedForward(old);
    const bool split = ReadByWeights(old) && !absl::c_all_of(uses.writers, IsWeights);
    const bool crosses = Crosses(old);
    int64_t least = 1;
    if (IsStream(old)) {
      const int64_t layers = LayersOn(part) + 1;
      // Two copies do for going from layer to layer, but what arrives at one end of the layers must not share a copy
      // with what is still being sent from the other.
      int64_t copies = 2;
      while (copies < layers && LayersOn(part) % copies == 0) ++copies;
      const bool kept = (touched_forward && read_backward) || split;
      b.layers = kept ? layers : std::min(layers, copies);
      b.microbatches = Held(stage, chunk, old);
      if (strategy_.stages > 1) least = 2;
      // Values go both ways, and one that finds no free copy holds up those behind it.
      if (IsV(schedule_)) least = b.microbatches + 1;
    } else {
      if (const Piece* piece = b.layers > 1 ? PieceWith(part, b.layers) : nullptr; piece != nullptr) {
        b.layers = piece->count;
        b.first_layer = piece->first;
      }
      const bool across_cuts = b.role == BufferRole::kTemporary && across_cuts_.count(old) > 0;
      if (b.role == BufferRole::kTemporary && split) {
        b.role = BufferRole::kActivation;
        b.layers = LayersOf(part, SegmentOf(*uses.writers.begin()));
      }
      const bool kept = b.role == BufferRole::kActivation || b.role == BufferRole::kInput;
      const bool by_chunks = NumChunks(stage, old) > 1;
      const bool waits = split || (touched_forward && (read_backward || crosses));
      if (kept && (by_chunks || waits)) b.microbatches = Held(stage, chunk, old);
      if (kept && crosses) least = 2;
      if (across_cuts) b.role = BufferRole::kActivation;
    }
    const auto waiting = slots_.arrivals.waiting.find({chunk, old});
    if (waiting != slots_.arrivals.waiting.end()) least = std::max(least, waiting->second);
    b.microbatches = std::max(b.microbatches, std::min(least, strategy_.microbatches));
    if (chunk > 0 && IsOfChunk(old)) absl::StrAppend(&b.name, "@chunk", chunk);
    renamed = AddBuffer(c, std::move(b));
    return renamed;
  }
  bool TouchedForward(BufferId id) const {
    return absl::c_any_of(uses_[id.index()].readers, IsForward) || absl::c_any_of(uses_[id.index()].writers, IsForward);
  }
  bool ReadByWeights(BufferId id) const { return absl::c_any_of(uses_[id.index()].readers, IsWeights); }
  int64_t LayersOf(int64_t part, size_t segment) const {
    for (const Piece& piece : parts_[part]) {
      if (piece.segment == segment) return piece.count;
    }
    return 1;
  }
  // Of how many micro-batches the values are needed at once: from the pass that makes them or gets them from the other
  // chunk of the stage, to the last that reads them.
  int64_t Held(int64_t stage, int64_t chunk, BufferId id) const {
    const PassKind first = TouchedForward(id) ? PassKind::kForward : PassKind::kBackward;
    const PassKind last = ReadByWeights(id) ? PassKind::kWeights : PassKind::kBackward;
    int64_t most = 1;
    const std::set<int64_t> one = {chunk};
    const std::set<int64_t>& chunks = IsOfChunk(id) ? one : ChunksWith(stage, id);
    for (const int64_t from : chunks) {
      for (const int64_t to : chunks) {
        if (first == last && from == to) continue;
        most = std::max(most, Between(stage, first, last, from, to));
      }
    }
    for (const size_t k : crossings_of_[id.index()]) {
      if (!IsTurn(crossings_[k]) || crossings_[k].to != PartOf(stage, chunk)) continue;
      most = std::max(most, Between(stage, first, last, ChunkOf(crossings_[k].from), chunk));
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
  bool Crosses(BufferId id) const { return !crossings_of_[id.index()].empty(); }
  // The chunks of a stage that use a buffer.
  const std::set<int64_t>& ChunksWith(int64_t stage, BufferId id) const {
    std::optional<std::set<int64_t>>& known = chunks_with_[id.index()];
    if (known.has_value()) return *known;
    std::set<int64_t>& chunks = known.emplace();
    for (const auto* blocks : {&uses_[id.index()].readers, &uses_[id.index()].writers}) {
      for (size_t block : *blocks) {
        for (int64_t part : parts_of_[SegmentOf(block)]) {
          if (StageOf(part) == stage) chunks.insert(ChunkOf(part));
        }
      }
    }
    return chunks;
  }
  size_t NumChunks(int64_t stage, BufferId id) const { return ChunksWith(stage, id).size(); }
  // The chunk whose copy of the buffer is meant in a block of `chunk`.
  int64_t HomeChunk(int64_t stage, int64_t chunk, BufferId id) const {
    return IsOfChunk(id) ? chunk : *ChunksWith(stage, id).begin();
  }
  bool IsOfChunk(BufferId id) const {
    const Buffer& buffer = before_.classes[0].buffers[id.index()];
    if (buffer.layers > 1) return true;
    // One pass of a kind runs at a time, so what only lives inside of one does for all chunks.
    if (buffer.role == BufferRole::kTemporary) return across_cuts_.count(id) == 0 || ReadByWeights(id);
    // Micro-batches of two directions are no neighbours.
    return directions() > 1 && (buffer.role == BufferRole::kActivation || buffer.role == BufferRole::kInput);
  }

  // --- transfers ---------------------------------------------------------------------------------------------------

  PassSlots::Transfers& SlotsOf(int64_t chunk, PassKind kind) { return slots_.transfers[{chunk, kind}]; }

  // Of all crossings, as far as `stage` is concerned.
  std::vector<Route> RoutesTo(int64_t stage) const {
    std::vector<Route> routes;
    for (const Crossing& crossing : crossings_) {
      Route& route = routes.emplace_back();
      route.to = StageOf(crossing.to);
      if (IsTurn(crossing) || route.to != stage) {
        route.to = -1;
        continue;
      }
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
    return {HomeChunk(StageOf(arrives.to), ChunkOf(arrives.to), arrives.buffer), arrives.buffer};
  }

  // The pass of the receiving stage that reads it last: of what backward reads too, the backward pass, and of what the
  // gradients of parameters need, theirs.
  std::pair<PassKind, int64_t> ReleasedAfter(const Crossing& crossing) const {
    const bool forward = crossing.kind == PassKind::kForward;
    const bool kept = !absl::c_all_of(uses_[crossing.buffer.index()].readers, IsForward);
    const int64_t chunk = ChunkOf(forward && kept ? crossing.to : crossing.last);
    if (ReadByWeights(crossing.buffer)) return {PassKind::kWeights, chunk};
    return {kept ? PassKind::kBackward : PassKind::kForward, chunk};
  }

  // One block per crossing and side; see rules 3 and 4 of ir/program.h for why each event is there.
  void AddTransfers(RankClass& c, int64_t stage) {
    slots_.receives.assign(crossings_.size(), Slot());
    for (size_t k = 0; k < crossings_.size(); ++k) {
      const Crossing& crossing = crossings_[k];
      const int64_t from = StageOf(crossing.from), to = StageOf(crossing.to);
      if (from != stage && to != stage) continue;
      const std::string what =
          absl::StrCat(all().buffers[crossing.buffer.index()].name, " ", crossing.from, "->", crossing.to);
      if (from == to) AddTurn(c, crossing, what);
      if (from == stage && from != to) AddSend(c, crossing, what);
      if (to == stage && from != to) AddReceive(c, k, what);
    }
  }
  int32_t Offset(int64_t from, int64_t to) const { return static_cast<int32_t>(StageOf(to) - StageOf(from)); }

  void AddTurn(RankClass& c, const Crossing& crossing, const std::string& what) {
    const int64_t stage = StageOf(crossing.from);
    Instruction copy;
    copy.work = Slice{};
    copy.reads = {{BufferIn(c, stage, ChunkOf(crossing.from), crossing.buffer), 0}};
    copy.writes = {{BufferIn(c, stage, ChunkOf(crossing.to), crossing.buffer),
                    static_cast<int32_t>(crossing.to_layer - crossing.from_layer)}};
    copy.origin = what;
    const BlockId block = AddBlock(c, absl::StrCat("turn ", what), PhaseOf(crossing.kind), {std::move(copy)});
    SlotsOf(ChunkOf(crossing.from), crossing.kind).after.push_back({block, 0, crossing.from_layer, 1, 1});
  }

  void AddSend(RankClass& c, const Crossing& crossing, const std::string& what) {
    PassSlots::Transfers& slots = SlotsOf(ChunkOf(crossing.from), crossing.kind);
    const BufferId buffer = BufferIn(c, StageOf(crossing.from), ChunkOf(crossing.from), crossing.buffer);
    const int64_t copies = c.buffers[buffer.index()].microbatches;
    const EventId ready = AddEvent(c, absl::StrCat("ready ", what), 1, copies);
    const EventId sent = AddEvent(c, absl::StrCat("sent ", what), 1, copies);
    Instruction send;
    send.work = Transfer{true, Offset(crossing.from, crossing.to), Purpose::kActivation};
    send.stream = Stream::kSend;
    send.reads = {{buffer, 0}};
    send.waits = {{ready, 0}};
    send.records = {{sent, 0}};
    send.origin = what;
    // What the pass overwrites must have left.
    const BlockId guard =
        AddBlock(c, absl::StrCat("await sent ", what), PhaseOf(crossing.kind), {MakeSync({sent}, {}, what)});
    slots.before.push_back({guard, 0, crossing.from_layer, 1, 1});
    const BlockId block = AddBlock(c, absl::StrCat("send ", what), PhaseOf(crossing.kind),
                                   {MakeSync({}, {ready}, what), std::move(send)});
    slots.after.push_back({block, 0, crossing.from_layer, 1, 1});
  }

  void AddReceive(RankClass& c, size_t k, const std::string& what) {
    const Crossing& crossing = crossings_[k];
    const BufferId buffer = BufferIn(c, StageOf(crossing.to), ChunkOf(crossing.to), crossing.buffer);
    const int64_t copies = c.buffers[buffer.index()].microbatches;
    const EventId free = AddEvent(c, absl::StrCat("free ", what), 1, copies);
    const EventId arrived = AddEvent(c, absl::StrCat("arrived ", what), 1, copies);
    Instruction receive;
    receive.work = Transfer{false, Offset(crossing.to, crossing.from), Purpose::kActivation};
    receive.stream = Stream::kReceive;
    receive.writes = {{buffer, 0}};
    receive.waits = {{free, 0}};
    receive.records = {{arrived, 0}};
    receive.origin = what;
    std::vector<Instruction> here = {std::move(receive)};
    Instruction await = MakeSync({arrived}, {}, what);
    // Where some are issued early, the reader waits at its own place.
    if (slots_.arrivals.early.count(k) == 0) here.push_back(std::move(await));
    slots_.receives[k] = {AddBlock(c, absl::StrCat("receive ", what), PhaseOf(crossing.kind), std::move(here)), 0,
                          crossing.to_layer, 1, 1};
    if (slots_.arrivals.early.count(k) > 0) {
      const BlockId arrival = AddBlock(c, absl::StrCat("arrival ", what), PhaseOf(crossing.kind), {std::move(await)});
      SlotsOf(ChunkOf(crossing.to), crossing.kind).before.push_back({arrival, 0, crossing.to_layer, 1, 1});
    }
    const auto [kind, chunk] = ReleasedAfter(crossing);
    const BlockId release = AddBlock(c, absl::StrCat("release ", what), PhaseOf(kind), {MakeSync({}, {free}, what)});
    SlotsOf(chunk, kind).after.push_back({release, 0, crossing.to_layer, 1, 1});
  }

  Program before_;
  const Graph& graph_;
  const Strategy& strategy_;
  const UpdateRule& optimizer_;
  Schedule schedule_ = Schedule::kOneFOneB;
  std::vector<std::vector<Pass>> passes_;       // by stage
  std::vector<Block> blocks_;                   // by segment and kind of pass
  std::vector<std::vector<Block>> cuts_;        // the same, each as one or several
  std::set<BufferId> across_cuts_;              // that several of these use
  std::vector<Part> parts_;                     // of the pipeline, in order
  std::vector<std::vector<int64_t>> parts_of_;  // by segment
  std::vector<Uses> uses_;                      // by buffer
  std::vector<Crossing> crossings_;
  std::vector<std::vector<size_t>> crossings_of_;  // by buffer
  SharedParameters shared_;
  std::vector<std::vector<int64_t>> pass_ends_;  // by stage and pass
  // Of the class under construction.
  PassSlots slots_;                             // routes of its arrivals are crossings
  std::vector<std::vector<BufferId>> renamed_;  // by chunk and the buffer before; invalid: not yet
  mutable std::map<std::tuple<PassKind, PassKind, int64_t, int64_t>, int64_t> between_;
  mutable std::vector<std::optional<std::set<int64_t>>> chunks_with_;  // by buffer
};

}  // namespace

absl::StatusOr<Program> SplitStages(Program program, const Graph& graph, const Strategy& strategy,
                                    const UpdateRule& optimizer) {
  return Splitter(std::move(program), graph, strategy, optimizer).Run();
}

}  // namespace meshwright
