// Cuts a block where it waits for a collective, for the schedules whose passes take turns (planner/schedule.h).
//
//   before   compute   A R B S C              R reads what A makes, B what R makes; the same with S and C
//   after    compute   A | B | C              B waits for R, C for S
//            context     R   S
//
// Between the blocks of one pass stand those of another, whose kernels then run beside R and S.
#ifndef MESHWRIGHT_PLANNER_PASSES_TAKE_TURNS_H_
#define MESHWRIGHT_PLANNER_PASSES_TAKE_TURNS_H_

#include <set>
#include <vector>

#include "ir/program.h"

namespace meshwright {

// The instructions of the blocks are, in order, those of `block` and the syncs that order its collectives, whose events
// are added to `events`. One block where there are no collectives, or where some of it is beside the kernels already.
std::vector<Block> CutAtCollectives(Block block, std::vector<Event>& events);

// The buffers that live longer than a run of one of these blocks: several use them, or a collective does.
std::set<BufferId> UsedAcross(const std::vector<Block>& blocks);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_TAKE_TURNS_H_
