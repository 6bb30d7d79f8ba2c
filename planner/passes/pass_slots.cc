#include "planner/passes/pass_slots.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace meshwright {
namespace {

// What one side of those that take turns issues: a forward pass, or a backward pass with its W.
using Slots = absl::InlinedVector<Slot, 4>;
struct Side {
  Slots before, after;
  absl::InlinedVector<Slots, 1> turns;  // each but the first begins with a wait
  Slots tail;                           // behind what is sent
};

bool IsEmpty(const RankClass& c, BlockId block) { return c.blocks[block.index()].instructions.empty(); }

template <class To>
void AppendAt(int64_t microbatch, Slot slot, To& to) {
  slot.microbatch = microbatch;
  to.push_back(slot);
}
template <class To>
void AppendAt(int64_t microbatch, const std::vector<Slot>& from, To& to) {
  to.insert(to.end(), from.begin(), from.end());
  for (auto slot = to.end() - static_cast<std::ptrdiff_t>(from.size()); slot != to.end(); ++slot) {
    slot->microbatch = microbatch;
  }
}

template <class To>
void AppendTo(To& slots, const Slots& more) {
  slots.insert(slots.end(), more.begin(), more.end());
}

class SideMaker {
 public:
  // Of the stage's passes [first, end).
  SideMaker(const PassSlots& slots, const std::vector<Pass>& passes, size_t first, size_t end, const StepEnd* step_end,
            const RankClass& c)
      : slots_(slots),
        passes_(absl::MakeConstSpan(passes).subspan(first, end - first)),
        first_(first),
        step_end_(step_end),
        c_(c) {}

  Side Make() {
    side_.turns.emplace_back();
    Slots released;  // behind W
    for (size_t i = 0; i < passes_.size(); ++i) {
      const Pass& pass = passes_[i];
      for (const Arrivals::Receive& one : slots_.arrivals.before[first_ + i]) {
        AppendAt(one.microbatch, slots_.receives[one.route], side_.before);
      }
      const auto transfers = slots_.transfers.find({pass.chunk, pass.kind});
      if (transfers == slots_.transfers.end()) continue;
      AppendAt(pass.microbatch, transfers->second.before, side_.before);
      AppendAt(pass.microbatch, transfers->second.after, i == 0 ? side_.after : released);
    }
    // Those of a chunk stand beside each other.
    const int64_t chunk = passes_[0].chunk;
    const auto of_chunk = std::equal_range(slots_.here.begin(), slots_.here.end(), chunk, ByChunk());
    const size_t begin = static_cast<size_t>(of_chunk.first - slots_.here.begin());
    const size_t end = static_cast<size_t>(of_chunk.second - slots_.here.begin());
    for (size_t k = begin; k < end; ++k) AddSegment(forward() ? k : begin + end - 1 - k);
    for (const Late& late : late_) side_.tail.push_back(late.slot);
    AppendTo(side_.tail, released);
    return std::move(side_);
  }

 private:
  struct Late {
    Slot slot;
    bool waits = false;
  };

  struct ByChunk {
    bool operator()(const PassSlots::Here& here, int64_t chunk) const { return here.chunk < chunk; }
    bool operator()(int64_t chunk, const PassSlots::Here& here) const { return chunk < here.chunk; }
  };

  bool forward() const { return passes_[0].kind == PassKind::kForward; }

  void AddSegment(size_t i) {
    const PassSlots::Here& here = slots_.here[i];
    const int64_t count = here.is_stack ? here.range.count : 1;
    const std::vector<BlockId>& blocks = here.blocks[static_cast<size_t>(passes_[0].kind)];
    if (here.is_stack && passes_.size() == 1 && blocks.size() == 1 && step_end_ == nullptr) {
      Add(blocks[0], passes_[0], forward() ? 0 : count - 1, count, forward() ? 1 : -1, false);
      return;
    }
    for (int64_t k = 0; k < count; ++k) {
      const int64_t layer = forward() ? k : count - 1 - k;
      if (blocks.size() == 1) AddLate();
      for (size_t p = 0; p < passes_.size(); ++p) {
        bool waits = false;
        // The gradients of parameters stand behind the next layer's first block, beside the collective that it ends in.
        late_pass_ = p > 0 && step_end_ == nullptr;
        if (late_pass_) AddLate();
        for (const BlockId block : here.blocks[static_cast<size_t>(passes_[p].kind)]) {
          Add(block, passes_[p], here.is_stack ? layer : Base(i), 1, here.is_stack && !forward() ? -1 : 1, waits);
          waits = true;
        }
      }
      late_pass_ = false;
      if (step_end_ == nullptr) continue;
      const std::optional<Slot> reduce = step_end_->ReduceOf(i, here.is_stack ? layer : 0);
      if (reduce.has_value()) side_.turns.back().push_back(*reduce);
    }
  }

  // Around the layers: what stands before them sees layer 0 of the stream, what stands after them its end.
  int64_t Base(size_t i) const {
    int64_t base = 0;
    for (size_t j = 0; j < i; ++j) {
      const PassSlots::Here& before = slots_.here[j];
      if (before.chunk == slots_.here[i].chunk && before.is_carried) base += before.range.count;
    }
    return base;
  }

  void Add(BlockId block, const Pass& pass, int64_t layer, int64_t count, int64_t step, bool waits) {
    if (IsEmpty(c_, block)) return;
    const Slot slot = {block, pass.microbatch, layer, count, step};
    if (late_pass_) {
      late_.push_back({slot, waits});
      return;
    }
    if (waits) {
      AddLate();
      side_.turns.emplace_back();
    }
    side_.turns.back().push_back(slot);
  }
  void AddLate() {
    for (const Late& late : late_) {
      if (late.waits) side_.turns.emplace_back();
      side_.turns.back().push_back(late.slot);
    }
    late_.clear();
  }

  const PassSlots& slots_;
  const absl::Span<const Pass> passes_;
  const size_t first_;
  const StepEnd* const step_end_;
  const RankClass& c_;
  Side side_;
  bool late_pass_ = false;
  std::vector<Late> late_;  // slots that stand behind the next block
};

}  // namespace

void PassSlots::Append(const std::vector<Pass>& passes, size_t first, size_t end, const StepEnd* step_end,
                       RankClass& c) {
  const Pass& pass = passes[first];
  const bool plain = end - first == 1 && step_end == nullptr;
  if (const auto found = plain ? known.find({pass.chunk, pass.kind}) : known.end(); found != known.end()) {
    for (const Arrivals::Receive& one : arrivals.before[first]) AppendAt(one.microbatch, receives[one.route], c.slots);
    AppendAt(pass.microbatch, found->second, c.slots);
    return;
  }
  const size_t received = c.slots.size() + arrivals.before[first].size();
  const bool in_turns = end - first > 1 && passes[first].kind == PassKind::kForward;
  const Side theirs = SideMaker(*this, passes, in_turns ? first + 1 : first, end, step_end, c).Make();
  size_t next = 0;  // of their turns
  if (in_turns) {
    const Side ours = SideMaker(*this, passes, first, first + 1, nullptr, c).Make();
    AppendTo(c.slots, ours.before);
    const size_t n = ours.turns.size(), m = theirs.turns.size();
    for (size_t k = 0; k < n; ++k) {
      AppendTo(c.slots, ours.turns[k]);
      if (k == 0) AppendTo(c.slots, theirs.before);
      if (k + 1 == n) AppendTo(c.slots, ours.after);
      // As many in proportion, rounded up.
      for (; next < ((k + 1) * m + n - 1) / n; ++next) AppendTo(c.slots, theirs.turns[next]);
    }
  } else {
    AppendTo(c.slots, theirs.before);
    for (const Slots& turn : theirs.turns) AppendTo(c.slots, turn);
  }
  AppendTo(c.slots, theirs.after);
  AppendTo(c.slots, theirs.tail);
  if (plain)
    known[{pass.chunk, pass.kind}].assign(c.slots.begin() + static_cast<std::ptrdiff_t>(received), c.slots.end());
}

}  // namespace meshwright
