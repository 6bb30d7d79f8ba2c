#include "simulator/memory.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>

namespace meshwright {
namespace {

bool LivesAllStep(BufferRole role) {
  switch (role) {
    case BufferRole::kParameter:
    case BufferRole::kMaster:
    case BufferRole::kGradient:
    case BufferRole::kOptimizerState:
    case BufferRole::kLoss:
      return true;
    case BufferRole::kInput:
    case BufferRole::kActivation:
    case BufferRole::kTemporary:
    case BufferRole::kNumRoles:
      break;
  }
  return false;
}

// The buffer whose memory `operand` means: what works in place writes the one that it reads.
Operand MemoryOf(const Operand& operand, const RankClass& rank_class) {
  return {RootOf(rank_class, operand.buffer), operand.layer_shift};
}

bool WritesAnew(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.work);
  return compute == nullptr || !compute->accumulate;
}

// What one run of a block does to buffers that outlive it, and the most that its own buffers need at one time.
struct BlockUse {
  struct Touch {
    Operand operand;
    bool anew = false;  // the first use in the block overwrites it
  };
  std::vector<Touch> touches;
  BytesByRole inside = {};
};

// Blocks that use each buffer: -1 none, -2 several.
std::vector<int32_t> UsersOf(const RankClass& rank_class) {
  std::vector<int32_t> users(rank_class.buffers.size(), -1);
  for (size_t b = 0; b < rank_class.blocks.size(); ++b) {
    for (const Instruction& instruction : rank_class.blocks[b].instructions) {
      for (const auto* operands : {&instruction.reads, &instruction.writes}) {
        for (const Operand& operand : *operands) {
          int32_t& user = users[RootOf(rank_class, operand.buffer).index()];
          const int32_t block = static_cast<int32_t>(b);
          user = user == -1 || user == block ? block : -2;
        }
      }
    }
  }
  return users;
}

class BlockReader {
 public:
  BlockReader(const RankClass& rank_class, const Block& block, const std::vector<int32_t>& users)
      : rank_class_(rank_class), block_(block), users_(users) {}

  BlockUse Read() {
    std::map<Operand, std::pair<size_t, size_t>> lives;  // of the block's own buffers: first and last instruction
    std::map<Operand, bool> outer;
    for (size_t i = 0; i < block_.instructions.size(); ++i) {
      const Instruction& instruction = block_.instructions[i];
      for (const Operand& operand : instruction.reads) Touch(operand, i, false, &lives, &outer);
      for (const Operand& operand : instruction.writes) Touch(operand, i, WritesAnew(instruction), &lives, &outer);
    }
    BlockUse use;
    for (const auto& [operand, anew] : outer) use.touches.push_back({operand, anew});
    Bytes most;
    for (size_t i = 0; i < block_.instructions.size(); ++i) {
      BytesByRole alive = {};
      Bytes sum;
      for (const auto& [operand, life] : lives) {
        if (i < life.first || i > life.second) continue;
        const Buffer& buffer = rank_class_.buffers[operand.buffer.index()];
        alive[static_cast<size_t>(buffer.role)] += buffer.bytes;
        sum += buffer.bytes;
      }
      if (sum <= most) continue;
      most = sum;
      use.inside = alive;
    }
    return use;
  }

 private:
  void Touch(const Operand& named, size_t instruction, bool anew, std::map<Operand, std::pair<size_t, size_t>>* lives,
             std::map<Operand, bool>* outer) const {
    const Operand operand = MemoryOf(named, rank_class_);
    const Buffer& buffer = rank_class_.buffers[operand.buffer.index()];
    if (LivesAllStep(buffer.role)) return;
    if (buffer.role == BufferRole::kTemporary && users_[operand.buffer.index()] != -2) {
      lives->emplace(operand, std::make_pair(instruction, instruction)).first->second.second = instruction;
    } else {
      outer->emplace(operand, anew && operand == named);
    }
  }

  const RankClass& rank_class_;
  const Block& block_;
  const std::vector<int32_t>& users_;
};

// The owner whose buffers take most, or -1: what the fullest rank of the class has.
int64_t FullestOwner(const RankClass& rank_class) {
  std::map<int64_t, Bytes> owned;
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.owner < 0 || buffer.role == BufferRole::kTemporary) continue;
    owned[buffer.owner] += buffer.bytes * (buffer.layers * buffer.microbatches);
  }
  int64_t fullest = -1;
  for (const auto& [owner, bytes] : owned) {
    if (fullest < 0 || bytes > owned[fullest]) fullest = owner;
  }
  return fullest;
}

struct Change {
  Nanos time;
  Bytes bytes;  // negative: given back
  BufferRole role;
};

// Lives of the instances that outlive a block, as changes in no particular order.
class LifeTracker {
 public:
  LifeTracker(const RankClass& rank_class, const std::vector<SlotTimes>& slots)
      : rank_class_(rank_class), slots_(slots) {
    for (const Buffer& buffer : rank_class.buffers) {
      first_instance_.push_back(lives_.size());
      lives_.resize(lives_.size() + static_cast<size_t>(buffer.layers * buffer.microbatches));
    }
  }

  void Use(const BlockUse& block, size_t slot_index) {
    const Slot& slot = rank_class_.slots[slot_index];
    for (const BlockUse::Touch& touch : block.touches) {
      const Buffer& buffer = rank_class_.buffers[touch.operand.buffer.index()];
      for (int64_t k = 0; k < slot.count; ++k) {
        const int64_t layer = std::max<int64_t>(0, slot.layer + k * slot.step + touch.operand.layer_shift);
        const int64_t instance = InstanceOf(buffer, layer, slot.microbatch);
        Life& life = lives_[first_instance_[touch.operand.buffer.index()] + static_cast<size_t>(instance)];
        // Written by a slot that did not use it before: a new life. What is read without having been written was there.
        if (life.last_slot < 0) {
          life.begin = touch.anew ? slots_[slot_index].begin : Nanos();
        } else if (touch.anew && life.last_slot != static_cast<int32_t>(slot_index)) {
          Close(buffer, life);
          life.begin = slots_[slot_index].begin;
          life.end = Nanos();
        }
        life.last_slot = static_cast<int32_t>(slot_index);
        life.end = std::max(life.end, slots_[slot_index].end);
      }
    }
  }

  std::vector<Change> Finish() {
    for (size_t b = 0; b < rank_class_.buffers.size(); ++b) {
      const size_t end = b + 1 < first_instance_.size() ? first_instance_[b + 1] : lives_.size();
      for (size_t i = first_instance_[b]; i < end; ++i) {
        if (lives_[i].last_slot >= 0) Close(rank_class_.buffers[b], lives_[i]);
      }
    }
    return std::move(changes_);
  }

 private:
  struct Life {
    int32_t last_slot = -1;
    Nanos begin, end;
  };

  void Close(const Buffer& buffer, const Life& life) {
    if (life.end <= life.begin) return;
    changes_.push_back({life.begin, buffer.bytes, buffer.role});
    changes_.push_back({life.end, Bytes() - buffer.bytes, buffer.role});
  }

  const RankClass& rank_class_;
  const std::vector<SlotTimes>& slots_;
  std::vector<size_t> first_instance_;
  std::vector<Life> lives_;
  std::vector<Change> changes_;
};

}  // namespace

BytesByRole ReservedBytes(const RankClass& rank_class) {
  BytesByRole reserved = {};
  const int64_t owner = FullestOwner(rank_class);
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.alias.valid() || (buffer.owner >= 0 && buffer.owner != owner)) continue;
    reserved[static_cast<size_t>(buffer.role)] += buffer.bytes * (buffer.layers * buffer.microbatches);
  }
  return reserved;
}

MemoryUse MemoryOverTime(const Program& program, size_t class_index, const std::vector<SlotTimes>& slots) {
  const RankClass& rank_class = program.classes[class_index];
  const std::vector<int32_t> users = UsersOf(rank_class);
  std::vector<BlockUse> blocks;
  for (const Block& block : rank_class.blocks) blocks.push_back(BlockReader(rank_class, block, users).Read());

  LifeTracker tracker(rank_class, slots);
  for (size_t s = 0; s < slots.size(); ++s) tracker.Use(blocks[rank_class.slots[s].block.index()], s);
  std::vector<Change> changes = tracker.Finish();
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].end <= slots[s].begin) continue;
    const BytesByRole& inside = blocks[rank_class.slots[s].block.index()].inside;
    for (size_t r = 0; r < kNumRoles; ++r) {
      if (inside[r] == Bytes()) continue;
      changes.push_back({slots[s].begin, inside[r], static_cast<BufferRole>(r)});
      changes.push_back({slots[s].end, Bytes() - inside[r], static_cast<BufferRole>(r)});
    }
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });

  BytesByRole now = {};
  Bytes sum;
  const int64_t owner = FullestOwner(rank_class);
  for (const Buffer& buffer : rank_class.buffers) {
    if (!LivesAllStep(buffer.role) || buffer.alias.valid()) continue;
    if (buffer.owner >= 0 && buffer.owner != owner) continue;
    now[static_cast<size_t>(buffer.role)] += buffer.bytes * (buffer.layers * buffer.microbatches);
    sum += buffer.bytes * (buffer.layers * buffer.microbatches);
  }
  MemoryUse use;
  const int64_t rank = program.RankOf(class_index, 0);
  size_t i = 0;
  for (Nanos time; time == Nanos() || i < changes.size();) {
    for (; i < changes.size() && changes[i].time == time; ++i) {
      now[static_cast<size_t>(changes[i].role)] += changes[i].bytes;
      sum += changes[i].bytes;
    }
    if (use.points.empty() || use.points.back().bytes != sum) use.points.push_back({rank, time, sum});
    if (use.points.size() == 1 || sum > use.peak) {
      use.peak = sum;
      use.peak_time = time;
      use.at_peak = now;
    }
    if (i == changes.size()) break;
    time = changes[i].time;
  }
  return use;
}

}  // namespace meshwright
