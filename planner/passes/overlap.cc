#include "planner/passes/overlap.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "planner/passes/class_parts.h"

namespace meshwright {
namespace {

bool Moves(const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.work);
  return collective != nullptr &&
         (collective->purpose == Purpose::kGradient || collective->purpose == Purpose::kParameter);
}

class Overlapper {
 public:
  // `copies`: the axis between groups of replicas; not valid where there is none.
  Overlapper(RankClass& c, AxisId copies) : c_(c), copies_(copies) {}

  void Run() {
    done_.resize(c_.blocks.size());
    layers_.assign(c_.blocks.size(), 1);
    for (const Slot& slot : c_.slots) {
      int64_t& layers = layers_[slot.block.index()];
      layers = std::max({layers, slot.layer + 1, slot.layer + (slot.count - 1) * slot.step + 1});
    }
    for (size_t b = 0, n = c_.blocks.size(); b < n; ++b) {
      if (GathersInside(c_.blocks[b])) {
        MoveInside(BlockId(b));
      } else {
        MoveCollectives(BlockId(b));
      }
    }
    NoteUses();
    std::vector<Slot> slots;
    slots.reserve(c_.slots.size());
    for (const Slot& slot : c_.slots) Append(slot, slots);
    c_.slots = std::move(slots);
  }

 private:
  void MoveCollectives(BlockId id) {
    Block& block = c_.blocks[id.index()];
    if (std::none_of(block.instructions.begin(), block.instructions.end(), Moves)) return;
    const EventId ready = AddEvent(c_, absl::StrCat(block.name, " ready"), layers_[id.index()]);
    const EventId done = AddEvent(c_, absl::StrCat(block.name, " done"), layers_[id.index()]);
    done_[id.index()] = done;
    std::vector<Instruction> out;
    bool open = false;  // the last instruction is a call that nobody waits for yet
    for (Instruction& instruction : block.instructions) {
      const bool moves = Moves(instruction);
      if (moves && !open) {
        // What the call reads was made before it.
        out.push_back(MakeSync({}, {ready}, block.name));
        instruction.waits.push_back({ready, 0});
      }
      if (moves) {
        instruction.stream = Between(instruction) ? Stream::kContext : Stream::kComm;
        if (!open || out.back().stream != instruction.stream) Follow(id, open, out, instruction);
      }
      if (!moves && open) {
        // What follows in the block may use the result.
        out.back().records.push_back({done, 0});
        out.push_back(MakeSync({done}, {}, block.name));
      }
      open = moves;
      out.push_back(std::move(instruction));
    }
    if (open) out.back().records.push_back({done, 0});
    block.instructions = std::move(out);
  }

  // Calls within a pass that follow each other, and that nobody waits for yet. Each says when it is through: how long
  // memory is in use is read off these events (plan_memory.h).
  struct Calls {
    EventId ready;
    CollectiveKind kind;
    std::vector<EventId> done;
    std::vector<Instruction> calls;
  };
  static bool Needs(const Instruction& instruction, const Calls& calls) {
    return absl::c_any_of(calls.calls, [&](const Instruction& one) { return Meet(instruction, one); });
  }

  // Calls wait for what stands in front of them. Nothing is left open at the block's end: memory that was used here is
  // another block's then.
  void MoveInside(BlockId id) {
    Block& block = c_.blocks[id.index()];
    std::vector<Instruction> out;
    std::vector<Calls> open;
    bool issuing = false;  // the last instruction is a call
    const auto event = [&](absl::string_view what) {
      return AddEvent(c_, absl::StrCat(block.name, what, out.size()), layers_[id.index()]);
    };
    const auto await = [&](const auto& which) {
      std::erase_if(open, [&](const Calls& calls) {
        if (!which(calls)) return false;
        out.push_back(MakeSync(calls.done, {}, block.name));
        return true;
      });
    };
    for (Instruction& instruction : block.instructions) {
      if (!Moves(instruction)) {
        issuing = false;
        await([&](const Calls& calls) { return Needs(instruction, calls); });
        out.push_back(std::move(instruction));
        continue;
      }
      const CollectiveKind kind = std::get<Collective>(instruction.work).kind;
      if (!issuing || open.back().kind != kind) {
        await([&](const Calls& calls) { return calls.kind == kind || Needs(instruction, calls); });
        open.push_back({event(" ready "), kind, {}, {}});
        out.push_back(MakeSync({}, {open.back().ready}, block.name));
      }
      Calls& calls = open.back();
      calls.calls.push_back(instruction);
      calls.done.push_back(event(" done "));
      instruction.stream = Stream::kComm;
      instruction.waits.push_back({calls.ready, 0});
      instruction.records.push_back({calls.done.back(), 0});
      issuing = true;
      out.push_back(std::move(instruction));
    }
    await([](const Calls&) { return true; });
    block.instructions = std::move(out);
  }

  // Whether the call goes between groups of replicas, mostly over links of its own: calls inside of the groups, which
  // the next layer may need, are not to stand behind it. None of them uses what it adds up, once a step, before the
  // update.
  bool Between(const Instruction& instruction) const {
    if (!copies_.valid()) return false;
    const AxisList& axes = std::get<Collective>(instruction.work).axes;
    return std::find(axes.begin(), axes.end(), copies_) != axes.end();
  }

  // Lets `call` of a block start behind what was issued before it on the other of the two streams: a call between
  // groups behind those inside of them, whose rows it adds up; one inside of a group behind the calls of its own block.
  void Follow(BlockId id, bool open, std::vector<Instruction>& out, Instruction& call) {
    const bool between = call.stream == Stream::kContext;
    if (!between && !open) return;
    const std::string& name = c_.blocks[id.index()].name;
    const EventId before =
        AddEvent(c_, absl::StrCat(name, between ? " inside " : " between ", out.size()), layers_[id.index()]);
    Instruction sync = MakeSync({}, {before}, name);
    sync.stream = between ? Stream::kComm : Stream::kContext;
    out.push_back(std::move(sync));
    call.waits.push_back({before, 0});
  }

  // A block at a layer whose communication runs: its place among those of all blocks.
  struct Pending {
    BlockId block;
    int64_t layer = 0;
  };
  size_t PlaceOf(const Pending& pending) const {
    return first_pending_[pending.block.index()] + static_cast<size_t>(pending.layer);
  }
  // What communication that nobody has waited for writes, or reads. Instances of buffers are numbered through.
  struct Open {
    std::vector<Pending> by;              // by instance: the latest; no block where there is none
    std::vector<std::vector<size_t>> of;  // by place of what is pending: instances
    size_t count = 0;                     // of instances that have one

    void Note(size_t instance, const Pending& pending, size_t place) {
      if (!by[instance].block.valid()) ++count;
      by[instance] = pending;
      of[place].push_back(instance);
    }
    void Close(const Pending& pending, size_t place) {
      for (const size_t instance : of[place]) {
        Pending& latest = by[instance];
        if (latest.block != pending.block || latest.layer != pending.layer) continue;
        latest = Pending();
        --count;
      }
      of[place].clear();
    }
  };

  // REQUIRES: the buffer is communicated beside the kernels.
  size_t InstanceAt(const Operand& operand, int64_t layer) const {
    const int64_t layers = c_.buffers[operand.buffer.index()].layers;
    const int64_t at = (layer + operand.layer_shift) % layers;
    // Layers below 0 are none of those above.
    return first_instance_[operand.buffer.index()] + static_cast<size_t>(at < 0 ? layers - 1 - at : at);
  }

  // The first that block at layer uses of what is still being communicated: what communication writes, and what the
  // block overwrites while communication reads it.
  std::optional<Pending> Needed(BlockId block, int64_t layer) const {
    if (writes_.count == 0 || block.index() >= uses_.size()) return std::nullopt;  // the latter: one that waits
    for (const Use& use : uses_[block.index()]) {
      const Pending& latest = (use.overwrites ? reads_ : writes_).by[InstanceAt(use.operand, layer)];
      if (latest.block.valid()) return latest;
    }
    return std::nullopt;
  }

  struct Use {
    Operand operand;
    bool overwrites = false;  // what communication may be reading
  };
  // By block, of the buffers that are ever communicated beside the kernels.
  void NoteUses() {
    std::vector<bool> moved(c_.buffers.size(), false);
    for (const Block& block : c_.blocks) {
      for (const Instruction& instruction : block.instructions) {
        if (!Moves(instruction)) continue;
        for (const auto* operands : {&instruction.reads, &instruction.writes}) {
          for (const Operand& operand : *operands) moved[operand.buffer.index()] = true;
        }
      }
    }
    size_t instances = 0, places = 0;
    for (size_t b = 0; b < moved.size(); ++b) {
      first_instance_.push_back(instances);
      if (moved[b]) instances += 2 * static_cast<size_t>(c_.buffers[b].layers);
    }
    for (size_t b = 0; b < layers_.size(); ++b) {
      first_pending_.push_back(places);
      if (done_[b].valid()) places += static_cast<size_t>(layers_[b]);
    }
    for (Open* open : {&writes_, &reads_}) {
      open->by.resize(instances);
      open->of.resize(places);
    }
    for (const Block& block : c_.blocks) {
      std::vector<Use>& uses = uses_.emplace_back();
      const auto note = [&](const auto& operands, bool overwrites) {
        for (const Operand& operand : operands) {
          if (moved[operand.buffer.index()]) uses.push_back({operand, overwrites});
        }
      };
      for (const Instruction& instruction : block.instructions) {
        if (instruction.stream == Stream::kComm || Moves(instruction)) continue;
        note(instruction.reads, false);
        note(instruction.writes, false);
        note(instruction.writes, true);
      }
    }
  }

  void Await(const Pending& pending, std::vector<Slot>& slots) {
    auto [it, inserted] = await_.try_emplace(pending.block);
    if (inserted) {
      const std::string name = absl::StrCat("await ", c_.blocks[pending.block.index()].name);
      c_.blocks.push_back({name, Phase::kForward, {MakeSync({done_[pending.block.index()]}, {}, name)}});
      done_.push_back(EventId());
      it->second = BlockId(c_.blocks.size() - 1);
    }
    slots.push_back({it->second, 0, pending.layer, 1, 1});
    writes_.Close(pending, PlaceOf(pending));
    reads_.Close(pending, PlaceOf(pending));
  }

  void Append(const Slot& slot, std::vector<Slot>& slots) {
    if (writes_.count == 0) {
      slots.push_back(slot);
      NotePending(slot);
      return;
    }
    Slot run = slot;
    run.count = 0;
    for (int64_t k = 0; k < slot.count; ++k) {
      const int64_t layer = slot.layer + k * slot.step;
      std::optional<Pending> needed = Needed(slot.block, layer);
      if (needed.has_value() && run.count > 0) {
        slots.push_back(run);
        run.layer = layer;
        run.count = 0;
      }
      for (; needed.has_value(); needed = Needed(slot.block, layer)) Await(*needed, slots);
      ++run.count;
    }
    slots.push_back(run);
    NotePending(slot);
  }

  void NotePending(const Slot& slot) {
    if (!done_[slot.block.index()].valid()) return;
    for (const Instruction& instruction : c_.blocks[slot.block.index()].instructions) {
      if (!Moves(instruction)) continue;
      const Pending pending = {slot.block, slot.layer};
      for (const Operand& operand : instruction.writes) {
        writes_.Note(InstanceAt(operand, slot.layer), pending, PlaceOf(pending));
      }
      for (const Operand& operand : instruction.reads) {
        reads_.Note(InstanceAt(operand, slot.layer), pending, PlaceOf(pending));
      }
    }
  }

  RankClass& c_;
  const AxisId copies_;
  std::vector<EventId> done_;           // by block: recorded when its collectives are through
  std::vector<int64_t> layers_;         // by block: one more than the highest that a slot runs
  std::vector<size_t> first_pending_;   // by block, of its layers' places
  std::vector<size_t> first_instance_;  // by buffer
  std::vector<std::vector<Use>> uses_;  // by block
  Open writes_, reads_;
  std::map<BlockId, BlockId> await_;
};

}  // namespace

Program OverlapCommunication(Program program) {
  const AxisId copies = program.mesh.Find("copy");
  for (RankClass& c : program.classes) Overlapper(c, copies).Run();
  return program;
}

}  // namespace meshwright
