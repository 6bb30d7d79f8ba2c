#include "planner/passes/split_stages.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/passes/step_end.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

// What flows from one stage to another: a buffer, from which part to which, in which phase.
struct Crossing {
  BufferId buffer;  // of the program before
  int64_t from = 0, to = 0;
  Phase phase = Phase::kForward;
  int64_t from_layer = 0, to_layer = 0;  // local layer at which it leaves and arrives
  int64_t last = 0;                      // the last part of the receiving stage that reads it in this phase
};

class Splitter {
 public:
  Splitter(Program program, const Graph& graph, const Strategy& strategy, const UpdateRule& optimizer)
      : before_(std::move(program)), graph_(graph), strategy_(strategy), optimizer_(optimizer) {}

  absl::StatusOr<Program> Run() {
    MESHWRIGHT_ASSIGN_OR_RETURN(parts_, PartsOf(graph_, strategy_));
    pass_ends_ = EndsOf(strategy_.schedule, strategy_.stages, strategy_.microbatches, strategy_.chunks);
    if (pass_ends_.empty()) return absl::InternalError("the stages of the schedule wait for each other");
    FindUses();
    FindCrossings();
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
  const Block& BlockOf(size_t segment, Phase phase) {
    return all().blocks[2 * segment + (phase == Phase::kForward ? 0 : 1)];
  }
  // Part p of the pipeline is chunk p / S of stage p % S.
  int64_t StageOf(int64_t part) const { return part % strategy_.stages; }
  int64_t ChunkOf(int64_t part) const { return part / strategy_.stages; }
  int64_t PartOf(int64_t stage, int64_t chunk) const { return chunk * strategy_.stages + stage; }
  int64_t num_parts() const { return static_cast<int64_t>(parts_.size()); }
  std::vector<Pass> Passes(int64_t stage) const {
    return PassesOf(strategy_.schedule, stage, strategy_.stages, strategy_.microbatches, strategy_.chunks);
  }

  struct Uses {
    std::set<size_t> readers, writers;  // blocks
  };
  void FindUses() {
    uses_.resize(all().buffers.size());
    for (size_t k = 0; k < all().blocks.size(); ++k) {
      for (const Instruction& instruction : all().blocks[k].instructions) {
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
      const Phase phase = *uses.writers.begin() % 2 == 0 ? Phase::kForward : Phase::kBackward;
      if (IsStream(BufferId(i))) {
        const bool forward = absl::EndsWith(buffer.name, "/stream");
        for (int64_t part = 0; part + 1 < num_parts(); ++part) {
          const int64_t layers = LayersOn(part);
          if (layers == 0 || LayersOn(part + 1) == 0) continue;
          if (forward) {
            crossings_.push_back({BufferId(i), part, part + 1, Phase::kForward, layers, 0, part + 1});
          } else {
            crossings_.push_back({BufferId(i), part + 1, part, Phase::kBackward, 0, layers, part});
          }
        }
        continue;
      }
      const size_t made_in = *uses.writers.begin() / 2;
      const int64_t from = parts_of_[made_in][0];
      // By stage, in the order in which the parts run.
      std::map<int64_t, std::vector<int64_t>> readers;
      for (int64_t part : PartsThatRead(uses, made_in)) readers[StageOf(part)].push_back(part);
      for (auto& [stage, parts] : readers) {
        if (stage == StageOf(from)) continue;
        if (phase == Phase::kBackward) std::reverse(parts.begin(), parts.end());
        crossings_.push_back({BufferId(i), from, parts.front(), phase, 0, 0, parts.back()});
      }
    }
  }
  // In ascending order. A layer keeps its own values.
  std::set<int64_t> PartsThatRead(const Uses& uses, size_t made_in) const {
    std::set<int64_t> parts;
    for (size_t reader : uses.readers) {
      if (reader / 2 != made_in) parts.insert(parts_of_[reader / 2].begin(), parts_of_[reader / 2].end());
    }
    return parts;
  }

  std::set<int64_t> StagesOf(const std::set<size_t>& blocks) const {
    std::set<int64_t> stages;
    for (size_t block : blocks) {
      for (int64_t part : parts_of_[block / 2]) stages.insert(StageOf(part));
    }
    return stages;
  }

  // Notes a parameter that several stages use, and where its gradient is made. Each layer has its own parameters; one
  // that nobody has a gradient of never changes.
  void NoteShared(BufferId id) {
    const Buffer& parameter = all().buffers[id.index()];
    if (parameter.layers > 1) return;
    std::set<int64_t> readers = StagesOf(uses_[id.index()].readers), contributors;
    for (size_t i = 0; i < all().buffers.size(); ++i) {
      const Buffer& gradient = all().buffers[i];
      if (gradient.role != BufferRole::kGradient || gradient.name != absl::StrCat("d", parameter.name)) continue;
      contributors = StagesOf(uses_[i].writers);
    }
    if (contributors.empty() || readers.size() < 2) return;
    SharedParameter shared;
    shared.name = parameter.name;
    shared.owner = *contributors.begin();
    readers.erase(shared.owner);
    contributors.erase(shared.owner);
    shared.users.assign(readers.begin(), readers.end());
    shared.contributors.assign(contributors.begin(), contributors.end());
    shared_.push_back(std::move(shared));
  }

  // --- one class ---------------------------------------------------------------------------------------------------

  absl::StatusOr<RankClass> BuildClass(int64_t stage) {
    RankClass c;
    c.name = absl::StrCat("stage ", stage);
    c.stage = stage;
    const std::vector<Pass> passes = Passes(stage);
    PlanArrivals(stage, passes);
    in_flight_.clear();
    here_.clear();
    for (int64_t chunk = 0; chunk < strategy_.chunks; ++chunk) {
      in_flight_.push_back(MaxInFlight(passes, chunk));
      for (const Piece& piece : parts_[PartOf(stage, chunk)]) here_.push_back({piece, chunk, BlockId(), BlockId()});
    }
    renamed_.clear();
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (Here& here : here_) {
        Block block = BlockOf(here.piece.segment, phase);
        block.name = absl::StrCat(NameOf(here), phase == Phase::kForward ? " forward" : " backward");
        for (Instruction& instruction : block.instructions) {
          for (Operand& operand : instruction.reads) operand.buffer = BufferIn(c, stage, here.chunk, operand.buffer);
          for (Operand& operand : instruction.writes) operand.buffer = BufferIn(c, stage, here.chunk, operand.buffer);
        }
        (phase == Phase::kForward ? here.forward : here.backward) = BlockId(c.blocks.size());
        c.blocks.push_back(std::move(block));
      }
    }
    AddTransfers(c, stage);
    MESHWRIGHT_ASSIGN_OR_RETURN(const StepEnd step_end,
                                StepEnd::Make(c, before_.mesh, optimizer_, strategy_, Segments(), shared_));
    step_end.AppendStart(c);
    std::vector<int64_t> backwards_left(strategy_.chunks, strategy_.microbatches);
    for (size_t i = 0; i < passes.size(); ++i) {
      const bool last = passes[i].phase == Phase::kBackward && --backwards_left[passes[i].chunk] == 0;
      AppendPass(c, i, passes[i], last ? &step_end : nullptr);
    }
    step_end.AppendEnd(c);
    return c;
  }

  // A piece on the stage under construction.
  struct Here {
    Piece piece;
    int64_t chunk = 0;
    BlockId forward, backward;
  };
  std::string NameOf(const Here& here) const {
    const std::string& segment = graph_.segments[here.piece.segment].name;
    return here.chunk == 0 || !IsStack(here.piece) ? segment : absl::StrCat(segment, " chunk ", here.chunk);
  }

  // Pieces of the class in order, with the range of local layers that their gradients have.
  std::vector<StepEnd::SegmentLayers> Segments() const {
    std::vector<StepEnd::SegmentLayers> segments;
    for (const Here& here : here_) {
      segments.push_back({NameOf(here), graph_.segments[here.piece.segment].repeat > 1 ? here.piece.count : 1});
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
    Buffer b = all().buffers[old.index()];
    chunk = HomeChunk(stage, chunk, old);
    const auto found = renamed_.find({chunk, old});
    if (found != renamed_.end()) return found->second;
    const int64_t part = PartOf(stage, chunk);
    const Uses& uses = uses_[old.index()];
    const auto backward = [](size_t block) { return block % 2 == 1; };
    const bool read_backward = absl::c_any_of(uses.readers, backward);
    const bool touched_forward = !absl::c_all_of(uses.readers, backward) || !absl::c_all_of(uses.writers, backward);
    const bool crosses = Crosses(old);
    int64_t least = 1;
    if (IsStream(old)) {
      const int64_t layers = LayersOn(part) + 1;
      // Two copies do for going from layer to layer, but what arrives at one end of the layers must not share a copy
      // with what is still being sent from the other.
      int64_t copies = 2;
      while (copies < layers && LayersOn(part) % copies == 0) ++copies;
      b.layers = touched_forward && read_backward ? layers : std::min(layers, copies);
      b.microbatches = touched_forward ? in_flight_[chunk] : 1;
      if (strategy_.stages > 1) least = 2;
    } else {
      if (const Piece* piece = b.layers > 1 ? PieceWith(part, b.layers) : nullptr; piece != nullptr) {
        b.layers = piece->count;
        b.first_layer = piece->first;
      }
      const bool kept = b.role == BufferRole::kActivation || b.role == BufferRole::kInput;
      const bool by_chunks = NumChunks(stage, old) > 1;
      if (kept && (by_chunks || (touched_forward && (read_backward || crosses)))) b.microbatches = in_flight_[chunk];
      if (kept && crosses) least = 2;
    }
    const auto waiting = waiting_.find({chunk, old});
    if (waiting != waiting_.end()) least = std::max(least, waiting->second);
    b.microbatches = std::max(b.microbatches, std::min(least, strategy_.microbatches));
    if (chunk > 0 && IsOfChunk(old)) absl::StrAppend(&b.name, "@chunk", chunk);
    c.buffers.push_back(std::move(b));
    const BufferId id(c.buffers.size() - 1);
    renamed_[{chunk, old}] = id;
    return id;
  }
  bool Crosses(BufferId id) const {
    return absl::c_any_of(crossings_, [&](const Crossing& crossing) { return crossing.buffer == id; });
  }
  // The chunks of a stage that use a buffer.
  std::set<int64_t> ChunksWith(int64_t stage, BufferId id) const {
    std::set<int64_t> chunks;
    for (const auto* blocks : {&uses_[id.index()].readers, &uses_[id.index()].writers}) {
      for (size_t block : *blocks) {
        for (int64_t part : parts_of_[block / 2]) {
          if (StageOf(part) == stage) chunks.insert(ChunkOf(part));
        }
      }
    }
    return chunks;
  }
  size_t NumChunks(int64_t stage, BufferId id) const { return ChunksWith(stage, id).size(); }
  // The chunk whose copy of the buffer is meant in a block of `chunk`.
  int64_t HomeChunk(int64_t stage, int64_t chunk, BufferId id) {
    return IsOfChunk(id) ? chunk : *ChunksWith(stage, id).begin();
  }
  bool IsOfChunk(BufferId id) {
    const Buffer& buffer = all().buffers[id.index()];
    return buffer.layers > 1 || buffer.role == BufferRole::kTemporary;
  }

  // --- transfers ---------------------------------------------------------------------------------------------------

  struct TransferSlots {
    std::vector<Slot> before, after;  // of one pass, at micro-batch 0
  };
  TransferSlots& SlotsOf(int64_t chunk, Phase phase) { return transfer_slots_[{chunk, phase}]; }

  // A receive: its crossing and micro-batch, and when the pass that makes it ends, in some order of all passes.
  struct Sent {
    size_t crossing = 0;
    int64_t microbatch = 0;
    int64_t time = 0;
  };

  static bool Runs(const Pass& pass, Phase phase, int64_t chunk) { return pass.phase == phase && pass.chunk == chunk; }

  // Before which pass each receive is issued, and how many micro-batches wait at once for that reason. It is the pass
  // that reads it, or one before that, as chunks read in another order than they are sent to, and a send that nobody
  // has come to receive holds up those behind it:
  //   - what a peer sends is received in the peer's order;
  //   - what skips parts is received before all that is sent later.
  void PlanArrivals(int64_t stage, const std::vector<Pass>& passes) {
    const std::vector<Sent> sent = SentTo(stage);
    std::vector<bool> issued(sent.size(), false);
    arrivals_.assign(passes.size(), {});
    early_.clear();
    waiting_.clear();
    std::map<std::pair<int64_t, BufferId>, int64_t> now;  // by chunk and buffer: received and not released
    for (size_t i = 0; i < passes.size(); ++i) {
      const auto reads = [&](const Sent& one) {
        const Crossing& crossing = crossings_[one.crossing];
        return one.microbatch == passes[i].microbatch && Runs(passes[i], crossing.phase, ChunkOf(crossing.to));
      };
      std::set<int64_t> peers;  // that send something behind or at n to this pass
      bool any = false;
      for (size_t n = sent.size(); n-- > 0;) {
        const Crossing& crossing = crossings_[sent[n].crossing];
        if (issued[n]) continue;
        if (reads(sent[n])) {
          peers.insert(StageOf(crossing.from));
          any = true;
        }
        const bool skips = strategy_.chunks > 1 && std::abs(crossing.from - crossing.to) > 1;
        issued[n] = peers.count(StageOf(crossing.from)) > 0 || (any && skips);
        if (!issued[n]) continue;
        arrivals_[i].push_back(sent[n]);
        if (!reads(sent[n])) early_.insert(sent[n].crossing);
        int64_t& waiting = waiting_[HomeOf(crossing)];
        waiting = std::max(waiting, ++now[HomeOf(crossing)]);
      }
      std::reverse(arrivals_[i].begin(), arrivals_[i].end());
      for (const Crossing& crossing : crossings_) {
        const auto [phase, chunk] = ReleasedAfter(crossing);
        if (StageOf(crossing.to) == stage && Runs(passes[i], phase, chunk)) --now[HomeOf(crossing)];
      }
    }
  }

  // What the stage receives, in the order in which it is sent.
  std::vector<Sent> SentTo(int64_t stage) const {
    std::vector<Sent> sent;
    for (int64_t sender = 0; sender < strategy_.stages; ++sender) {
      const std::vector<Pass> passes = Passes(sender);
      for (size_t i = 0; i < passes.size(); ++i) {
        for (size_t k = 0; k < crossings_.size(); ++k) {
          const Crossing& crossing = crossings_[k];
          if (StageOf(crossing.from) != sender || StageOf(crossing.to) != stage) continue;
          if (!Runs(passes[i], crossing.phase, ChunkOf(crossing.from))) continue;
          sent.push_back({k, passes[i].microbatch, pass_ends_[sender][i]});
        }
      }
    }
    absl::c_stable_sort(sent, [](const Sent& a, const Sent& b) { return a.time < b.time; });
    return sent;
  }

  std::pair<int64_t, BufferId> HomeOf(const Crossing& arrives) {
    return {HomeChunk(StageOf(arrives.to), ChunkOf(arrives.to), arrives.buffer), arrives.buffer};
  }

  // The pass of the receiving stage that reads it last: the backward pass, of what backward reads.
  std::pair<Phase, int64_t> ReleasedAfter(const Crossing& crossing) const {
    const bool kept =
        absl::c_any_of(uses_[crossing.buffer.index()].readers, [](size_t block) { return block % 2 == 1; });
    if (crossing.phase == Phase::kForward && kept) return {Phase::kBackward, ChunkOf(crossing.to)};
    return {crossing.phase, ChunkOf(crossing.last)};
  }

  EventId NewEvent(RankClass& c, std::string name, int64_t microbatches) {
    c.events.push_back({std::move(name), 1, microbatches});
    return EventId(c.events.size() - 1);
  }
  BlockId NewBlock(RankClass& c, std::string name, Phase phase, std::vector<Instruction> instructions) {
    c.blocks.push_back({std::move(name), phase, std::move(instructions)});
    return BlockId(c.blocks.size() - 1);
  }
  static Instruction MakeSync(std::vector<EventId> waits, std::vector<EventId> records, std::string origin) {
    Instruction sync;
    sync.work = Sync{};
    for (EventId id : waits) sync.waits.push_back({id, 0});
    for (EventId id : records) sync.records.push_back({id, 0});
    sync.origin = std::move(origin);
    return sync;
  }

  // One block per crossing and side; see rules 3 and 4 of ir/program.h for why each event is there.
  void AddTransfers(RankClass& c, int64_t stage) {
    transfer_slots_.clear();
    receives_.assign(crossings_.size(), Slot());
    for (size_t k = 0; k < crossings_.size(); ++k) {
      const Crossing& crossing = crossings_[k];
      const std::string what =
          absl::StrCat(all().buffers[crossing.buffer.index()].name, " ", crossing.from, "->", crossing.to);
      if (StageOf(crossing.from) == stage) AddSend(c, crossing, what);
      if (StageOf(crossing.to) == stage) AddReceive(c, k, what);
    }
  }
  int32_t Offset(int64_t from, int64_t to) const { return static_cast<int32_t>(StageOf(to) - StageOf(from)); }

  void AddSend(RankClass& c, const Crossing& crossing, const std::string& what) {
    TransferSlots& slots = SlotsOf(ChunkOf(crossing.from), crossing.phase);
    const BufferId buffer = BufferIn(c, StageOf(crossing.from), ChunkOf(crossing.from), crossing.buffer);
    const int64_t copies = c.buffers[buffer.index()].microbatches;
    const EventId ready = NewEvent(c, absl::StrCat("ready ", what), copies);
    const EventId sent = NewEvent(c, absl::StrCat("sent ", what), copies);
    Instruction send;
    send.work = Transfer{true, Offset(crossing.from, crossing.to), Purpose::kActivation};
    send.stream = Stream::kSend;
    send.reads = {{buffer, 0}};
    send.waits = {{ready, 0}};
    send.records = {{sent, 0}};
    send.origin = what;
    // What the pass overwrites must have left.
    const BlockId guard = NewBlock(c, absl::StrCat("await sent ", what), crossing.phase, {MakeSync({sent}, {}, what)});
    slots.before.push_back({guard, 0, crossing.from_layer, 1, 1});
    const BlockId block =
        NewBlock(c, absl::StrCat("send ", what), crossing.phase, {MakeSync({}, {ready}, what), std::move(send)});
    slots.after.push_back({block, 0, crossing.from_layer, 1, 1});
  }

  void AddReceive(RankClass& c, size_t k, const std::string& what) {
    const Crossing& crossing = crossings_[k];
    const BufferId buffer = BufferIn(c, StageOf(crossing.to), ChunkOf(crossing.to), crossing.buffer);
    const int64_t copies = c.buffers[buffer.index()].microbatches;
    const EventId free = NewEvent(c, absl::StrCat("free ", what), copies);
    const EventId arrived = NewEvent(c, absl::StrCat("arrived ", what), copies);
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
    if (early_.count(k) == 0) here.push_back(std::move(await));
    receives_[k] = {NewBlock(c, absl::StrCat("receive ", what), crossing.phase, std::move(here)), 0, crossing.to_layer,
                    1, 1};
    if (early_.count(k) > 0) {
      const BlockId arrival = NewBlock(c, absl::StrCat("arrival ", what), crossing.phase, {std::move(await)});
      SlotsOf(ChunkOf(crossing.to), crossing.phase).before.push_back({arrival, 0, crossing.to_layer, 1, 1});
    }
    const BlockId release = NewBlock(c, absl::StrCat("release ", what), crossing.phase, {MakeSync({}, {free}, what)});
    const auto [phase, chunk] = ReleasedAfter(crossing);
    SlotsOf(chunk, phase).after.push_back({release, 0, crossing.to_layer, 1, 1});
  }

  // --- slots -------------------------------------------------------------------------------------------------------

  static void Append(RankClass& c, Slot slot, int64_t microbatch) {
    slot.microbatch = microbatch;
    c.slots.push_back(slot);
  }

  // With `step_end`, the pass is the chunk's last backward pass: each layer's gradients are reduced once they are
  // complete.
  void AppendPass(RankClass& c, size_t index, const Pass& pass, const StepEnd* step_end) {
    const bool forward = pass.phase == Phase::kForward;
    const TransferSlots& transfers = SlotsOf(pass.chunk, pass.phase);
    for (const Sent& arrival : arrivals_[index]) Append(c, receives_[arrival.crossing], arrival.microbatch);
    for (const Slot& slot : transfers.before) Append(c, slot, pass.microbatch);
    for (size_t k = 0; k < here_.size(); ++k) {
      const size_t i = forward ? k : here_.size() - 1 - k;
      const Here& here = here_[i];
      if (here.chunk != pass.chunk) continue;
      const BlockId block = forward ? here.forward : here.backward;
      const int64_t count = here.piece.count;
      if (!IsStack(here.piece)) {
        // Around the layers: what stands before them sees layer 0 of the stream, what stands after them its end.
        int64_t base = 0;
        for (size_t j = 0; j < i; ++j) {
          if (here_[j].chunk == here.chunk && IsCarried(here_[j].piece)) base = here_[j].piece.count;
        }
        c.slots.push_back({block, pass.microbatch, base, 1, 1});
        if (step_end != nullptr) step_end->AppendReduce(c, i, 0);
      } else if (step_end == nullptr) {
        c.slots.push_back({block, pass.microbatch, forward ? 0 : count - 1, count, forward ? 1 : -1});
      } else {
        for (int64_t layer = count - 1; layer >= 0; --layer) {
          c.slots.push_back({block, pass.microbatch, layer, 1, -1});
          step_end->AppendReduce(c, i, layer);
        }
      }
    }
    for (const Slot& slot : transfers.after) Append(c, slot, pass.microbatch);
  }
  bool IsCarried(const Piece& piece) const { return !graph_.segments[piece.segment].carries.empty(); }

  Program before_;
  const Graph& graph_;
  const Strategy& strategy_;
  const UpdateRule& optimizer_;
  std::vector<Part> parts_;                     // of the pipeline, in order
  std::vector<std::vector<int64_t>> parts_of_;  // by segment
  std::vector<Uses> uses_;                      // by buffer
  std::vector<Crossing> crossings_;
  SharedParameters shared_;
  std::vector<std::vector<int64_t>> pass_ends_;  // by stage and pass
  // Of the class under construction.
  std::vector<Here> here_;                                             // by chunk, in the order of the forward pass
  std::vector<int64_t> in_flight_;                                     // by chunk
  std::map<std::pair<int64_t, BufferId>, BufferId> renamed_;           // by chunk and the buffer before
  std::map<std::pair<int64_t, Phase>, TransferSlots> transfer_slots_;  // by chunk
  std::vector<std::vector<Sent>> arrivals_;                            // by pass: receives issued before it
  std::vector<Slot> receives_;                                         // by crossing, at micro-batch 0
  std::set<size_t> early_;                                             // crossings of which some are issued early
  std::map<std::pair<int64_t, BufferId>, int64_t> waiting_;            // by chunk and buffer: received at once, at most
};

}  // namespace

absl::StatusOr<Program> SplitStages(Program program, const Graph& graph, const Strategy& strategy,
                                    const UpdateRule& optimizer) {
  return Splitter(std::move(program), graph, strategy, optimizer).Run();
}

}  // namespace meshwright
