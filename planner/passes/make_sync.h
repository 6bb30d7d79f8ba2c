// An instruction that does nothing but record an event, or wait for one: how passes order streams.
#ifndef MESHWRIGHT_PLANNER_PASSES_MAKE_SYNC_H_
#define MESHWRIGHT_PLANNER_PASSES_MAKE_SYNC_H_

#include <string>

#include "ir/program.h"

namespace meshwright {

// On the compute stream; `origin` as Instruction::origin.
inline Instruction MakeSync(EventId event, bool wait, const std::string& origin) {
  Instruction sync;
  sync.work = Sync{};
  (wait ? sync.waits : sync.records).push_back({event, 0});
  sync.origin = origin;
  return sync;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_MAKE_SYNC_H_
