#include "planner/passes/plan_memory.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace meshwright {
namespace {

struct Life {
  BufferId buffer;
  size_t first = 0, last = 0;  // instructions of the block
  Bytes offset;
};

bool IsKept(const Buffer& buffer) { return buffer.role != BufferRole::kTemporary && !buffer.alias.valid(); }

// Places what lives across blocks, of buffers whose bytes are known; says where it ends.
Bytes PlaceKept(RankClass& c) {
  Bytes end;
  for (Buffer& buffer : c.buffers) {
    if (!IsKept(buffer) || buffer.owner >= 0) continue;
    buffer.offset = end;
    end += buffer.bytes * (buffer.layers * buffer.microbatches);
  }
  // No rank has buffers of two owners.
  std::map<int64_t, Bytes> owned;
  Bytes most_owned;
  for (Buffer& buffer : c.buffers) {
    if (buffer.role == BufferRole::kTemporary || buffer.owner < 0) continue;
    Bytes& used = owned[buffer.owner];
    buffer.offset = end + used;
    used += buffer.bytes * (buffer.layers * buffer.microbatches);
    most_owned = std::max(most_owned, used);
  }
  return end + most_owned;
}

// An in-place result has its source's instances and size.
void PlaceAliases(RankClass& c) {
  for (Buffer& buffer : c.buffers) {
    if (!buffer.alias.valid()) continue;
    const Buffer& source = c.buffers[RootOf(c, buffer.alias).index()];
    buffer.offset = source.offset;
    buffer.bytes = source.bytes;
  }
}

bool Overlap(const Life& a, const Life& b) { return a.first <= b.last && b.first <= a.last; }

class Planner {
 public:
  Planner(RankClass& c, const Mesh& mesh) : c_(c), mesh_(mesh), place_(c.buffers.size()) {}

  void Run() {
    for (Buffer& buffer : c_.buffers) buffer.bytes = Rounded(LocalBytes(buffer, mesh_));
    const Bytes end = PlaceKept(c_);
    Bytes most;
    for (const Block& block : c_.blocks) most = std::max(most, PlaceTemporaries(block, end));
    PlaceAliases(c_);
    c_.arena = end + most;
  }

 private:
  static Bytes Rounded(Bytes bytes) {
    const int64_t units = std::max<int64_t>(1, (bytes.raw() + kAlignment - 1) / kAlignment);
    return Bytes(units * kAlignment);
  }

  // From which instruction to which what instruction `i` uses is used: beside the kernels it may start as soon as what
  // it waits for is recorded, and go on until somebody waits for what it records.
  static std::pair<size_t, size_t> SpanOf(const Block& block, size_t i) {
    const Instruction& instruction = block.instructions[i];
    if (instruction.stream == Stream::kCompute) return {i, i};
    const auto shares = [](const auto& a, const auto& b) {
      return std::any_of(a.begin(), a.end(), [&](const EventRef& ref) {
        return std::any_of(b.begin(), b.end(), [&](const EventRef& other) { return other.event == ref.event; });
      });
    };
    size_t first = i, last = i;
    if (!instruction.waits.empty()) {
      while (first > 0 && !shares(instruction.waits, block.instructions[first].records)) --first;
    }
    if (!instruction.records.empty()) {
      while (last + 1 < block.instructions.size() && !shares(instruction.records, block.instructions[last].waits)) {
        ++last;
      }
    }
    return {first, last};
  }

  // Returns how much the block needs beyond `base`.
  Bytes PlaceTemporaries(const Block& block, Bytes base) {
    std::vector<Life>& order = order_;
    order.clear();
    for (size_t i = 0; i < block.instructions.size(); ++i) {
      const auto [first, last] = SpanOf(block, i);
      for (const auto* operands : {&block.instructions[i].reads, &block.instructions[i].writes}) {
        for (const Operand& operand : *operands) {
          const BufferId id = RootOf(c_, operand.buffer);
          if (c_.buffers[id.index()].role != BufferRole::kTemporary) continue;
          size_t& place = place_[id.index()];
          if (place >= order.size() || order[place].buffer != id) {
            place = order.size();
            order.push_back({id, first, last, Bytes()});
          }
          order[place].first = std::min(order[place].first, first);
          order[place].last = std::max(order[place].last, last);
        }
      }
    }
    // The largest first, of equal ones the first buffer.
    std::sort(order.begin(), order.end(), [this](const Life& a, const Life& b) {
      const Bytes of_a = c_.buffers[a.buffer.index()].bytes, of_b = c_.buffers[b.buffer.index()].bytes;
      return of_a != of_b ? of_a > of_b : a.buffer < b.buffer;
    });
    Bytes most;
    std::vector<Life>& placed = placed_;
    placed.clear();
    for (Life& life : order) {
      const Bytes size = c_.buffers[life.buffer.index()].bytes;
      // The lowest gap among those that live at the same time, in order of offset.
      for (const Life& other : placed) {
        if (!Overlap(life, other)) continue;
        if (life.offset + size <= other.offset) break;
        life.offset = std::max(life.offset, other.offset + c_.buffers[other.buffer.index()].bytes);
      }
      c_.buffers[life.buffer.index()].offset = base + life.offset;
      most = std::max(most, life.offset + size);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), life,
                                     [](const Life& a, const Life& b) { return a.offset < b.offset; }),
                    life);
    }
    return most;
  }

  RankClass& c_;
  const Mesh& mesh_;
  std::vector<size_t> place_;         // by buffer: among the lives of a block, if that is its
  std::vector<Life> order_, placed_;  // of PlaceTemporaries
};

}  // namespace

Program PlanMemory(Program program) {
  for (RankClass& c : program.classes) Planner(c, program.mesh).Run();
  return program;
}

void ResizeMemory(RankClass& rank_class, const std::vector<int64_t>& microbatches) {
  const Bytes before = PlaceKept(rank_class);
  for (size_t i = 0; i < microbatches.size(); ++i) rank_class.buffers[i].microbatches = microbatches[i];
  const Bytes moved = PlaceKept(rank_class) - before;
  for (Buffer& buffer : rank_class.buffers) {
    // What no block uses has no place behind the others.
    if (buffer.role == BufferRole::kTemporary && buffer.offset >= before) buffer.offset += moved;
  }
  PlaceAliases(rank_class);
  rank_class.arena += moved;
}

}  // namespace meshwright
