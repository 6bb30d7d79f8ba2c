#include "planner/passes/split_stages.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/passes/step_end.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

// The layers [first, first + count) of a segment, on one stage.
struct Piece {
  size_t segment = 0;
  int64_t first = 0, count = 1;
};

absl::StatusOr<std::vector<std::vector<Piece>>> PiecesPerStage(const Graph& graph, const Strategy& strategy) {
  std::vector<std::vector<Piece>> stages(strategy.stages);
  int64_t stage = 0;
  for (size_t s = 0; s < graph.segments.size(); ++s) {
    const Segment& segment = graph.segments[s];
    if (segment.repeat == 1 || strategy.stages == 1) {
      if (segment.stage >= 0) {
        if (segment.stage < stage || segment.stage >= strategy.stages) {
          return absl::InvalidArgumentError(absl::StrCat(
              "segment \"", segment.name, "\" is on pipeline stage ", segment.stage, " after one on stage ", stage,
              " of ", strategy.stages, "; stages must not decrease along the graph"));
        }
        stage = segment.stage;
      }
      stages[stage].push_back({s, 0, segment.repeat});
      continue;
    }
    std::vector<int64_t> layers = strategy.layers_per_stage;
    if (layers.empty()) {
      for (int64_t i = 0; i < strategy.stages; ++i) {
        layers.push_back(segment.repeat / strategy.stages + (i < segment.repeat % strategy.stages ? 1 : 0));
      }
    }
    int64_t first = 0;
    for (int64_t count : layers) {
      if (count < 1 || stage + 1 > strategy.stages) {
        return absl::InvalidArgumentError(absl::StrCat("segment \"", segment.name, "\" has ", segment.repeat,
                                                       " layers for ", strategy.stages,
                                                       " stages; every stage needs one"));
      }
      stages[stage].push_back({s, first, count});
      first += count;
      if (first < segment.repeat) ++stage;
    }
    if (first != segment.repeat) {
      return absl::InvalidArgumentError(
          absl::StrCat("layers_per_stage adds up to ", first, ", segment \"", segment.name, "\" has ", segment.repeat));
    }
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pipeline stage ", i, " of ", strategy.stages,
                       " has no operators; give each stage some (pipeline_stage) or use fewer stages"));
    }
  }
  return stages;
}

// What flows over a stage border: a buffer, from where to where, in which phase.
struct Crossing {
  BufferId buffer;  // of the program before
  int64_t from = 0, to = 0;
  Phase phase = Phase::kForward;
  int64_t from_layer = 0, to_layer = 0;  // local layer at which it leaves and arrives
};

class Splitter {
 public:
  Splitter(Program program, const Graph& graph, const Strategy& strategy, const UpdateRule& optimizer)
      : before_(std::move(program)), graph_(graph), strategy_(strategy), optimizer_(optimizer) {}

  absl::StatusOr<Program> Run() {
    MESHWRIGHT_ASSIGN_OR_RETURN(pieces_, PiecesPerStage(graph_, strategy_));
    FindUses();
    MESHWRIGHT_RETURN_IF_ERROR(FindCrossings());
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
    stage_of_.assign(graph_.segments.size(), {});
    for (size_t stage = 0; stage < pieces_.size(); ++stage) {
      for (const Piece& piece : pieces_[stage]) stage_of_[piece.segment].push_back(static_cast<int64_t>(stage));
    }
  }

  int64_t LayersOn(int64_t stage) const {
    for (const Piece& piece : pieces_[stage]) {
      if (graph_.segments[piece.segment].repeat > 1 || !graph_.segments[piece.segment].carries.empty())
        return piece.count;
    }
    return 0;
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

  absl::Status FindCrossings() {
    for (size_t i = 0; i < all().buffers.size(); ++i) {
      const Buffer& buffer = all().buffers[i];
      const Uses& uses = uses_[i];
      if (buffer.role == BufferRole::kParameter) NoteShared(BufferId(i));
      if (buffer.role != BufferRole::kActivation || uses.writers.empty()) continue;
      const Phase phase = *uses.writers.begin() % 2 == 0 ? Phase::kForward : Phase::kBackward;
      if (IsStream(BufferId(i))) {
        const bool forward = absl::EndsWith(buffer.name, "/stream");
        for (int64_t stage = 0; stage + 1 < strategy_.stages; ++stage) {
          if (LayersOn(stage) == 0 || LayersOn(stage + 1) == 0) continue;
          if (forward) {
            crossings_.push_back({BufferId(i), stage, stage + 1, Phase::kForward, LayersOn(stage), 0});
          } else {
            crossings_.push_back({BufferId(i), stage + 1, stage, Phase::kBackward, 0, LayersOn(stage)});
          }
        }
        continue;
      }
      const size_t made_in = *uses.writers.begin() / 2;
      const int64_t from = stage_of_[made_in][0];
      std::set<int64_t> to;
      for (size_t reader : uses.readers) {
        // A layer keeps its own values.
        if (reader / 2 != made_in) to.insert(stage_of_[reader / 2].begin(), stage_of_[reader / 2].end());
      }
      to.erase(from);
      for (int64_t stage : to) crossings_.push_back({BufferId(i), from, stage, phase, 0, 0});
    }
    return absl::OkStatus();
  }

  std::set<int64_t> StagesOf(const std::set<size_t>& blocks) const {
    std::set<int64_t> stages;
    for (size_t block : blocks) stages.insert(stage_of_[block / 2].begin(), stage_of_[block / 2].end());
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
    const std::vector<Pass> passes = PassesOf(strategy_.schedule, stage, strategy_.stages, strategy_.microbatches);
    in_flight_ = MaxInFlight(passes);
    renamed_.clear();
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (const Piece& piece : pieces_[stage]) {
        Block block = BlockOf(piece.segment, phase);
        for (Instruction& instruction : block.instructions) {
          for (Operand& operand : instruction.reads) operand.buffer = BufferIn(c, stage, operand.buffer);
          for (Operand& operand : instruction.writes) operand.buffer = BufferIn(c, stage, operand.buffer);
        }
        block_of_[{stage, piece.segment, phase}] = BlockId(c.blocks.size());
        c.blocks.push_back(std::move(block));
      }
    }
    AddTransfers(c, stage);
    MESHWRIGHT_ASSIGN_OR_RETURN(const StepEnd step_end,
                                StepEnd::Make(c, before_.mesh, optimizer_, strategy_, Segments(stage), shared_));
    step_end.AppendStart(c);
    int64_t backwards_left = strategy_.microbatches;
    for (const Pass& pass : passes) {
      if (pass.phase == Phase::kBackward) --backwards_left;
      AppendPass(c, stage, pass, pass.phase == Phase::kBackward && backwards_left == 0 ? &step_end : nullptr);
    }
    step_end.AppendEnd(c);
    return c;
  }

  // Segments of the class in order, with the range of local layers that their gradients have.
  std::vector<StepEnd::SegmentLayers> Segments(int64_t stage) const {
    std::vector<StepEnd::SegmentLayers> segments;
    for (const Piece& piece : pieces_[stage]) {
      segments.push_back(
          {graph_.segments[piece.segment].name, graph_.segments[piece.segment].repeat > 1 ? piece.count : 1});
    }
    return segments;
  }

  const Piece* PieceWith(int64_t stage, int64_t repeat_of_buffer) const {
    for (const Piece& piece : pieces_[stage]) {
      if (graph_.segments[piece.segment].repeat == repeat_of_buffer) return &piece;
    }
    return nullptr;
  }

  BufferId BufferIn(RankClass& c, int64_t stage, BufferId old) {
    const auto found = renamed_.find(old);
    if (found != renamed_.end()) return found->second;
    Buffer b = all().buffers[old.index()];
    const Uses& uses = uses_[old.index()];
    const auto backward = [](size_t block) { return block % 2 == 1; };
    const bool read_backward = absl::c_any_of(uses.readers, backward);
    const bool touched_forward = !absl::c_all_of(uses.readers, backward) || !absl::c_all_of(uses.writers, backward);
    if (IsStream(old)) {
      const int64_t layers = LayersOn(stage) + 1;
      // Two copies do for going from layer to layer, but what arrives at one end of the layers must not share a copy
      // with what is still being sent from the other.
      int64_t copies = 2;
      while (copies < layers && LayersOn(stage) % copies == 0) ++copies;
      b.layers = touched_forward && read_backward ? layers : std::min(layers, copies);
      b.microbatches = touched_forward ? in_flight_ : 1;
      if (strategy_.stages > 1)
        b.microbatches = std::max<int64_t>(b.microbatches, std::min<int64_t>(2, strategy_.microbatches));
    } else {
      if (const Piece* piece = b.layers > 1 ? PieceWith(stage, b.layers) : nullptr; piece != nullptr) {
        b.layers = piece->count;
        b.first_layer = piece->first;
      }
      const bool kept = b.role == BufferRole::kActivation || b.role == BufferRole::kInput;
      if (kept && touched_forward && (read_backward || Crosses(old))) b.microbatches = in_flight_;
      if (kept && Crosses(old))
        b.microbatches = std::max<int64_t>(b.microbatches, std::min<int64_t>(2, strategy_.microbatches));
    }
    c.buffers.push_back(std::move(b));
    const BufferId id(c.buffers.size() - 1);
    renamed_[old] = id;
    return id;
  }
  bool Crosses(BufferId id) const {
    return absl::c_any_of(crossings_, [&](const Crossing& crossing) { return crossing.buffer == id; });
  }

  // --- transfers ---------------------------------------------------------------------------------------------------

  struct TransferSlots {
    std::vector<Slot> before, after;  // of one pass, at micro-batch 0
  };

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
    for (TransferSlots* slots : {&forward_transfers_, &backward_transfers_}) *slots = {};
    for (const Crossing& crossing : crossings_) {
      TransferSlots& slots = crossing.phase == Phase::kForward ? forward_transfers_ : backward_transfers_;
      const std::string what =
          absl::StrCat(all().buffers[crossing.buffer.index()].name, " ", crossing.from, "->", crossing.to);
      if (crossing.from == stage) AddSend(c, crossing, what, slots);
      if (crossing.to == stage) AddReceive(c, crossing, what, slots);
    }
  }

  void AddSend(RankClass& c, const Crossing& crossing, const std::string& what, TransferSlots& slots) {
    const BufferId buffer = BufferIn(c, crossing.from, crossing.buffer);
    const int64_t copies = c.buffers[buffer.index()].microbatches;
    const EventId ready = NewEvent(c, absl::StrCat("ready ", what), copies);
    const EventId sent = NewEvent(c, absl::StrCat("sent ", what), copies);
    Instruction send;
    send.work = Transfer{true, static_cast<int32_t>(crossing.to - crossing.from), Purpose::kActivation};
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

  void AddReceive(RankClass& c, const Crossing& crossing, const std::string& what, TransferSlots& slots) {
    const BufferId buffer = BufferIn(c, crossing.to, crossing.buffer);
    const int64_t copies = c.buffers[buffer.index()].microbatches;
    const EventId free = NewEvent(c, absl::StrCat("free ", what), copies);
    const EventId arrived = NewEvent(c, absl::StrCat("arrived ", what), copies);
    Instruction receive;
    receive.work = Transfer{false, static_cast<int32_t>(crossing.from - crossing.to), Purpose::kActivation};
    receive.stream = Stream::kReceive;
    receive.writes = {{buffer, 0}};
    receive.waits = {{free, 0}};
    receive.records = {{arrived, 0}};
    receive.origin = what;
    const BlockId block = NewBlock(c, absl::StrCat("receive ", what), crossing.phase,
                                   {std::move(receive), MakeSync({arrived}, {}, what)});
    slots.before.push_back({block, 0, crossing.to_layer, 1, 1});
    // The last reader is the backward pass, of what backward reads; else the pass itself.
    const BlockId release = NewBlock(c, absl::StrCat("release ", what), crossing.phase, {MakeSync({}, {free}, what)});
    const bool kept =
        absl::c_any_of(uses_[crossing.buffer.index()].readers, [](size_t block) { return block % 2 == 1; });
    TransferSlots& last = crossing.phase == Phase::kForward && kept ? backward_transfers_ : slots;
    last.after.push_back({release, 0, crossing.to_layer, 1, 1});
  }

  // --- slots -------------------------------------------------------------------------------------------------------

  static void Append(RankClass& c, Slot slot, int64_t microbatch) {
    slot.microbatch = microbatch;
    c.slots.push_back(slot);
  }

  // With `step_end`, the pass is the last backward pass: each layer's gradients are reduced once they are complete.
  void AppendPass(RankClass& c, int64_t stage, const Pass& pass, const StepEnd* step_end) {
    const bool forward = pass.phase == Phase::kForward;
    const TransferSlots& transfers = forward ? forward_transfers_ : backward_transfers_;
    for (const Slot& slot : transfers.before) Append(c, slot, pass.microbatch);
    const std::vector<Piece>& pieces = pieces_[stage];
    for (size_t k = 0; k < pieces.size(); ++k) {
      const size_t i = forward ? k : pieces.size() - 1 - k;
      const Piece& piece = pieces[i];
      const BlockId block = block_of_.at({stage, piece.segment, pass.phase});
      const bool repeated =
          graph_.segments[piece.segment].repeat > 1 || !graph_.segments[piece.segment].carries.empty();
      // Around the layers: what stands before them sees layer 0 of the stream, what stands after them its end.
      int64_t base = 0;
      if (!repeated) {
        for (size_t j = 0; j < i; ++j) {
          if (!graph_.segments[pieces[j].segment].carries.empty()) base = pieces[j].count;
        }
      }
      if (!repeated) {
        c.slots.push_back({block, pass.microbatch, base, 1, 1});
        if (step_end != nullptr) step_end->AppendReduce(c, i, 0);
      } else if (step_end == nullptr) {
        c.slots.push_back({block, pass.microbatch, forward ? 0 : piece.count - 1, piece.count, forward ? 1 : -1});
      } else {
        for (int64_t layer = piece.count - 1; layer >= 0; --layer) {
          c.slots.push_back({block, pass.microbatch, layer, 1, -1});
          step_end->AppendReduce(c, i, layer);
        }
      }
    }
    for (const Slot& slot : transfers.after) Append(c, slot, pass.microbatch);
  }

  Program before_;
  const Graph& graph_;
  const Strategy& strategy_;
  const UpdateRule& optimizer_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<std::vector<int64_t>> stage_of_;  // by segment
  std::vector<Uses> uses_;                      // by buffer
  std::vector<Crossing> crossings_;
  SharedParameters shared_;
  std::map<std::tuple<int64_t, size_t, Phase>, BlockId> block_of_;
  std::map<BufferId, BufferId> renamed_;  // into the class under construction
  TransferSlots forward_transfers_, backward_transfers_;
  int64_t in_flight_ = 1;
};

}  // namespace

absl::StatusOr<Program> SplitStages(Program program, const Graph& graph, const Strategy& strategy,
                                    const UpdateRule& optimizer) {
  return Splitter(std::move(program), graph, strategy, optimizer).Run();
}

}  // namespace meshwright
