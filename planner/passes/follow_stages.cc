#include "planner/passes/follow_stages.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "planner/passes/plan_memory.h"

namespace meshwright {
namespace {

bool SameSlot(const Slot& a, const Slot& b) {
  return a.block == b.block && a.microbatch == b.microbatch && a.layer == b.layer && a.count == b.count &&
         a.step == b.step;
}

absl::Span<const Slot> MiddleOf(const StageSlots& of) {
  return absl::MakeConstSpan(of.slots).subspan(of.middle, of.tail - of.middle);
}

// Where the middle of the leader's slots is behind the passes.
std::optional<size_t> FindMiddle(const Leader& leader, const RankClass& c) {
  const absl::Span<const Slot> middle = MiddleOf(leader.slots);
  const auto found = std::search(c.slots.begin(), c.slots.end(), middle.begin(), middle.end(), SameSlot);
  if (found == c.slots.end()) return std::nullopt;
  return static_cast<size_t>(found - c.slots.begin());
}

// Replaces `before` at the end by `after`.
void Rename(absl::string_view before, absl::string_view after, std::string& name) {
  name.resize(name.size() - before.size());
  absl::StrAppend(&name, after);
}

RankClass Complete(const Leader& leader, const RankClass& of, size_t middle, const Follower& follower) {
  RankClass c;
  c.stage = static_cast<int64_t>(follower.class_index);
  c.name = absl::StrCat("stage ", c.stage);
  c.buffers = of.buffers;
  c.events = of.events;
  c.blocks = of.blocks;
  c.start = of.start;
  c.arena = of.arena;
  ResizeMemory(c, follower.microbatches);
  for (Buffer& buffer : c.buffers) {
    if (buffer.first_layer > 0) buffer.first_layer += follower.layers_later;
  }
  for (size_t i = 0; i < leader.of_block.size(); ++i) {
    const size_t k = leader.of_block[i];
    Block& block = c.blocks[leader.first_block + i];
    Rename(leader.crossings[k].what, follower.crossings[k], block.name);
    for (Instruction& instruction : block.instructions) instruction.origin = follower.crossings[k];
  }
  for (size_t i = 0; i < leader.of_event.size(); ++i) {
    const size_t k = leader.of_event[i];
    Event& event = c.events[leader.first_event + i];
    Rename(leader.crossings[k].what, follower.crossings[k], event.name);
    event.microbatches = c.buffers[leader.crossings[k].buffer.index()].microbatches;
  }
  const absl::Span<const Slot> own = MiddleOf(follower.slots);
  const auto tail = of.slots.begin() + static_cast<std::ptrdiff_t>(middle + MiddleOf(leader.slots).size());
  c.slots.reserve(of.slots.size() + own.size());
  c.slots.assign(of.slots.begin(), of.slots.begin() + static_cast<std::ptrdiff_t>(middle));
  c.slots.insert(c.slots.end(), own.begin(), own.end());
  c.slots.insert(c.slots.end(), tail, of.slots.end());
  return c;
}

}  // namespace

bool StageSlots::SameEnds(const StageSlots& other) const {
  const auto same = [](absl::Span<const Slot> a, absl::Span<const Slot> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameSlot);
  };
  const auto mine = absl::MakeConstSpan(slots), theirs = absl::MakeConstSpan(other.slots);
  if (middle >= tail || other.middle >= other.tail) return false;
  return same(mine.subspan(0, middle), theirs.subspan(0, other.middle)) &&
         same(mine.subspan(tail), theirs.subspan(other.tail));
}

Program FollowStages(Program program, Followers& followers) {
  std::vector<size_t> middles;
  for (const Leader& leader : followers.leaders) {
    const std::optional<size_t> middle = FindMiddle(leader, program.classes[leader.class_index]);
    followers.in_vain |= !middle.has_value();
    middles.push_back(middle.value_or(0));
  }
  if (followers.in_vain) return program;
  for (const Follower& follower : followers.followers) {
    const Leader& leader = followers.leaders[follower.leader];
    program.classes[follower.class_index] =
        Complete(leader, program.classes[leader.class_index], middles[follower.leader], follower);
  }
  return program;
}

}  // namespace meshwright
