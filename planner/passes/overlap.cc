#include "planner/passes/overlap.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/passes/make_sync.h"

namespace meshwright {
namespace {

bool Moves(const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.work);
  return collective != nullptr &&
         (collective->purpose == Purpose::kGradient || collective->purpose == Purpose::kParameter);
}

class Overlapper {
 public:
  explicit Overlapper(RankClass& c) : c_(c) {}

  void Run() {
    done_.resize(c_.blocks.size());
    for (size_t b = 0, n = c_.blocks.size(); b < n; ++b) MoveCollectives(BlockId(b));
    NoteUses();
    std::vector<Slot> slots;
    for (const Slot& slot : c_.slots) Append(slot, slots);
    c_.slots = std::move(slots);
  }

 private:
  EventId NewEvent(std::string name, int64_t layers) {
    c_.events.push_back({std::move(name), layers, 1});
    return EventId(c_.events.size() - 1);
  }
  int64_t LayersOf(BlockId block) const {
    int64_t layers = 1;
    for (const Slot& slot : c_.slots) {
      if (slot.block == block)
        layers = std::max({layers, slot.layer + 1, slot.layer + (slot.count - 1) * slot.step + 1});
    }
    return layers;
  }

  void MoveCollectives(BlockId id) {
    Block& block = c_.blocks[id.index()];
    if (std::none_of(block.instructions.begin(), block.instructions.end(), Moves)) return;
    const EventId ready = NewEvent(absl::StrCat(block.name, " ready"), LayersOf(id));
    const EventId done = NewEvent(absl::StrCat(block.name, " done"), LayersOf(id));
    done_[id.index()] = done;
    std::vector<Instruction> out;
    bool open = false;  // the last instruction is a call that nobody waits for yet
    for (Instruction& instruction : block.instructions) {
      const bool moves = Moves(instruction);
      if (moves && !open) {
        // What the call reads was made before it.
        out.push_back(MakeSync(ready, false, block.name));
        instruction.waits.push_back({ready, 0});
      }
      if (moves) instruction.stream = Stream::kComm;
      if (!moves && open) {
        // What follows in the block may use the result.
        out.back().records.push_back({done, 0});
        out.push_back(MakeSync(done, true, block.name));
      }
      open = moves;
      out.push_back(std::move(instruction));
    }
    if (open) out.back().records.push_back({done, 0});
    block.instructions = std::move(out);
  }

  using Instance = std::pair<BufferId, int64_t>;
  struct Pending {
    BlockId block;
    int64_t layer;
    friend auto operator<=>(const Pending&, const Pending&) = default;
  };
  // What communication that nobody has waited for writes, or reads.
  struct Open {
    std::map<Instance, Pending> by;  // the latest of each
    std::map<Pending, std::vector<Instance>> of;

    void Note(const Instance& instance, const Pending& pending) {
      by[instance] = pending;
      of[pending].push_back(instance);
    }
    void Close(const Pending& pending) {
      const auto done = of.find(pending);
      if (done == of.end()) return;
      for (const Instance& instance : done->second) {
        const auto found = by.find(instance);
        if (found != by.end() && found->second == pending) by.erase(found);
      }
      of.erase(done);
    }
  };

  int64_t LayerInstance(const Operand& operand, int64_t layer) const {
    return (layer + operand.layer_shift) % c_.buffers[operand.buffer.index()].layers;
  }

  // What block at layer uses that is still being communicated: what communication writes, and what the block overwrites
  // while communication reads it.
  std::vector<Pending> Needs(BlockId block, int64_t layer) const {
    std::vector<Pending> needs;
    if (writes_.by.empty()) return needs;
    if (block.index() >= uses_.size()) return needs;  // one that waits
    for (const Use& use : uses_[block.index()]) {
      const auto& open = use.overwrites ? reads_.by : writes_.by;
      const auto found = open.find({use.operand.buffer, LayerInstance(use.operand, layer)});
      if (found != open.end()) needs.push_back(found->second);
    }
    return needs;
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
    for (const Block& block : c_.blocks) {
      std::vector<Use>& uses = uses_.emplace_back();
      const auto note = [&](const auto& operands, bool overwrites) {
        for (const Operand& operand : operands) {
          if (moved[operand.buffer.index()]) uses.push_back({operand, overwrites});
        }
      };
      for (const Instruction& instruction : block.instructions) {
        if (instruction.stream == Stream::kComm) continue;
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
      c_.blocks.push_back({name, Phase::kForward, {MakeSync(done_[pending.block.index()], true, name)}});
      done_.push_back(EventId());
      it->second = BlockId(c_.blocks.size() - 1);
    }
    slots.push_back({it->second, 0, pending.layer, 1, 1});
    writes_.Close(pending);
    reads_.Close(pending);
  }

  void Append(const Slot& slot, std::vector<Slot>& slots) {
    if (writes_.by.empty()) {
      slots.push_back(slot);
      NotePending(slot);
      return;
    }
    Slot run = slot;
    run.count = 0;
    for (int64_t k = 0; k < slot.count; ++k) {
      const int64_t layer = slot.layer + k * slot.step;
      std::vector<Pending> needs = Needs(slot.block, layer);
      if (!needs.empty() && run.count > 0) {
        slots.push_back(run);
        run.layer = layer;
        run.count = 0;
      }
      for (; !needs.empty(); needs = Needs(slot.block, layer)) Await(needs.front(), slots);
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
        writes_.Note({operand.buffer, LayerInstance(operand, slot.layer)}, pending);
      }
      for (const Operand& operand : instruction.reads) {
        reads_.Note({operand.buffer, LayerInstance(operand, slot.layer)}, pending);
      }
    }
  }

  RankClass& c_;
  std::vector<EventId> done_;           // by block: recorded when its collectives are through
  std::vector<std::vector<Use>> uses_;  // by block
  Open writes_, reads_;
  std::map<BlockId, BlockId> await_;
};

}  // namespace

Program OverlapCommunication(Program program) {
  for (RankClass& c : program.classes) Overlapper(c).Run();
  return program;
}

}  // namespace meshwright
