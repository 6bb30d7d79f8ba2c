// Stages that are alike, lowered once: what one of them says of all, and what each says for itself.
//
// Stages in the middle of a pipeline that have as many layers differ in their number, in the order of their passes and
// so in how many micro-batches they keep at once, and in nothing else. split_stages builds the first of them, the
// leader, and notes of each other, a follower, what it has for itself; its class stays empty. The passes so see one
// class of many, and FollowStages, behind all of them, completes the others from it.
//
//   leader's slots before the passes    head  m m m m m   tail        head: up to each chunk's first forward pass
//                 and behind them       HEAD  m m m m m   TAIL        tail: from the first pass that reduces gradients
//   follower's                          HEAD  n n n n n n TAIL        middle: passes that no pass has touched
//
// For a prediction they are not written out: simulator/class_copies.h.
//
// What rests on the passes is that they do at the ends what they would have done there with another middle.
//
// Thread safety: plain values, a pure function.
#ifndef MESHWRIGHT_PLANNER_PASSES_FOLLOW_STAGES_H_
#define MESHWRIGHT_PLANNER_PASSES_FOLLOW_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"
#include "simulator/class_copies.h"

namespace meshwright {

// Of one class as split_stages makes it: all of its slots, and where the middle of them begins and ends.
struct StageSlots {
  std::vector<Slot> slots;
  size_t middle = 0, tail = 0;

  // Whether both have a middle, and the same head and tail.
  bool SameEnds(const StageSlots& other) const;
};

struct Leader {
  // What crosses to or from the stage, and the class's buffer for it.
  struct Crossing {
    std::string what;  // "layers/stream 1->2", as names and origins of its blocks and events end
    BufferId buffer;
  };
  size_t class_index = 0;
  StageSlots slots;
  std::vector<Crossing> crossings;
  // Their blocks and events stand one behind the other: which crossing each is of.
  size_t first_block = 0, first_event = 0;
  std::vector<size_t> of_block, of_event;
};

struct Follower {
  size_t class_index = 0;
  size_t leader = 0;                   // in Followers::leaders
  int64_t layers_later = 0;            // its first layer less the leader's
  std::vector<int64_t> microbatches;   // by buffer, as split_stages makes the leader's
  std::vector<std::string> crossings;  // Leader::Crossing::what
  StageSlots slots;
};

struct Followers {
  std::vector<Leader> leaders;
  std::vector<Follower> followers;
  bool in_vain = false;  // a pass has changed a leader's middle: each stage is to be lowered for itself
};

// Completes the followers' classes, or says that it is in vain. With `copies`, which may be null, they are not written
// out, but told there.
Program FollowStages(Program program, Followers& followers, ClassCopies* copies = nullptr);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_FOLLOW_STAGES_H_
