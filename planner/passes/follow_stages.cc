#include "planner/passes/follow_stages.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

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

// What a follower has for itself in any case. `middle`: of the slots of `of`, the leader's class.
RankClass Begun(const Leader& leader, const RankClass& of, size_t middle, const Follower& follower) {
  RankClass c;
  c.stage = static_cast<int64_t>(follower.class_index);
  c.name = absl::StrCat("stage ", c.stage);
  c.start = of.start;
  const absl::Span<const Slot> own = MiddleOf(follower.slots);
  const auto tail = of.slots.begin() + static_cast<std::ptrdiff_t>(middle + MiddleOf(leader.slots).size());
  c.slots.reserve(of.slots.size() + own.size());
  c.slots.assign(of.slots.begin(), of.slots.begin() + static_cast<std::ptrdiff_t>(middle));
  c.slots.insert(c.slots.end(), own.begin(), own.end());
  c.slots.insert(c.slots.end(), tail, of.slots.end());
  return c;
}

// Of a class that is not written out, beside its slots: what the leader's events and buffers are like, and as much
// memory as those take. `memory` has the leader's buffers and arena, or those of a follower before this one.
void AddSizes(const Leader& leader, const RankClass& of, const Follower& follower, RankClass& memory, RankClass& c) {
  c.events.resize(of.events.size());
  for (size_t i = 0; i < c.events.size(); ++i) {
    c.events[i].layers = of.events[i].layers;
    c.events[i].microbatches = of.events[i].microbatches;
  }
  ResizeMemory(memory, follower.microbatches);
  for (size_t i = 0; i < leader.of_event.size(); ++i) {
    const BufferId buffer = leader.crossings[leader.of_event[i]].buffer;
    c.events[leader.first_event + i].microbatches = memory.buffers[buffer.index()].microbatches;
  }
  c.arena = memory.arena;
}

// All of it.
void WriteOut(const Leader& leader, const RankClass& of, const Follower& follower, RankClass& c) {
  c.buffers = of.buffers;
  c.events = of.events;
  c.blocks = of.blocks;
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
}

// Where each class is written out.
ClassCopies NoCopies(size_t num_classes) {
  ClassCopies copies;
  for (size_t c = 0; c < num_classes; ++c) copies.of.push_back(c);
  copies.microbatches.resize(num_classes);
  return copies;
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

Program FollowStages(Program program, Followers& followers, ClassCopies* copies) {
  std::vector<size_t> middles;
  for (const Leader& leader : followers.leaders) {
    const std::optional<size_t> middle = FindMiddle(leader, program.classes[leader.class_index]);
    followers.in_vain |= !middle.has_value();
    middles.push_back(middle.value_or(0));
  }
  if (followers.in_vain) return program;
  if (copies != nullptr) *copies = NoCopies(program.classes.size());
  std::vector<RankClass> memories(copies != nullptr ? followers.leaders.size() : 0);  // by leader, once it is asked for
  for (Follower& follower : followers.followers) {
    const Leader& leader = followers.leaders[follower.leader];
    const RankClass& of = program.classes[leader.class_index];
    RankClass c = Begun(leader, of, middles[follower.leader], follower);
    if (copies == nullptr) {
      WriteOut(leader, of, follower, c);
    } else {
      RankClass& memory = memories[follower.leader];
      if (memory.buffers.empty()) memory.buffers = of.buffers, memory.arena = of.arena;
      AddSizes(leader, of, follower, memory, c);
      copies->of[follower.class_index] = leader.class_index;
      copies->microbatches[follower.class_index] = std::move(follower.microbatches);
    }
    program.classes[follower.class_index] = std::move(c);
  }
  return program;
}

}  // namespace meshwright
