// The slots of one pipeline stage's passes. Used by split_stages.
//
//   per pass    [receive] blocks of the chunk's segments [send]
//
// Passes that are linked (planner/schedule.h) run in turns:
//   B with W     layer by layer: W of a layer behind the next layer's B up to its first collective, which so has W
//                beside it; the last layer's behind what B sends
//   F with B W   F0 B0 F1 B1 ..: block by block, as take_turns.h has cut them; the rest of the longer one last
// What F sends goes before what B sends.
#ifndef MESHWRIGHT_PLANNER_PASSES_PASS_SLOTS_H_
#define MESHWRIGHT_PLANNER_PASSES_PASS_SLOTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ir/program.h"
#include "planner/passes/arrivals.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/passes/step_end.h"
#include "planner/schedule.h"

namespace meshwright {

struct PassSlots {
  // A range of layers on the stage.
  struct Here {
    LayerRange range;
    int64_t chunk = 0;
    bool is_stack = false, is_carried = false;               // has layers; these hand a value on
    std::array<std::vector<BlockId>, kNumPassKinds> blocks;  // by kind of pass
  };
  struct Transfers {
    std::vector<Slot> before, after;  // of one pass, at micro-batch 0
  };

  // Appends passes [first, end) of the stage to the class's slots: one, or those that are linked. With `step_end` the
  // last one is its chunk's last: each layer's gradients are reduced once they are complete.
  // A chunk's other passes of one kind have the same slots but for what they receive, and are `known`.
  void Append(const std::vector<Pass>& passes, size_t first, size_t end, const StepEnd* step_end, RankClass& c);

  std::vector<Here> here;                                       // by chunk, in the order of the forward pass
  std::map<std::pair<int64_t, PassKind>, Transfers> transfers;  // by chunk
  Arrivals arrivals;
  std::vector<Slot> receives;  // by route of `arrivals`, at micro-batch 0
  std::map<std::pair<int64_t, PassKind>, std::vector<Slot>> known;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PASS_SLOTS_H_
