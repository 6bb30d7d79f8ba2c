// When a pipeline stage receives what other stages send it.
#ifndef MESHWRIGHT_PLANNER_PASSES_ARRIVALS_H_
#define MESHWRIGHT_PLANNER_PASSES_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "ir/ids.h"
#include "planner/schedule.h"

namespace meshwright {

// A value that every micro-batch sends from one stage to another: `kind` is that of the pass that makes it in chunk
// `from_chunk` of `from`, and that reads it first in chunk `to_chunk` of `to`.
struct Route {
  int64_t from = 0, from_chunk = 0, to = 0, to_chunk = 0;
  PassKind kind = PassKind::kForward;
  bool skips = false;  // parts of the pipeline
  // After which pass of `to` it is no longer needed.
  PassKind last_kind = PassKind::kForward;
  int64_t last_chunk = 0;
  std::pair<int64_t, BufferId> home;  // what it arrives in: chunk and buffer
};

struct Arrivals {
  struct Receive {
    size_t route = 0;
    int64_t microbatch = 0;
  };
  std::vector<absl::InlinedVector<Receive, 2>> before;      // by pass: receives that are issued before it
  std::set<size_t> early;                                   // routes of which some are issued before another pass
  std::map<std::pair<int64_t, BufferId>, int64_t> waiting;  // by home: received and not yet done with at once, at most
};

// Before which pass each receive of `stage` is issued. It is the pass that reads it, or one before that, as chunks read
// in another order than they are sent to, and a send that nobody has come to receive holds up those behind it:
//   - what a peer sends is received in the peer's order;
//   - what skips parts is received before all that is sent later;
//   - with `in_order_of_time` everything is. Then stages never wait for each other in a circle, whatever their passes:
//     of all transfers the first is the next of both its streams. What is early takes memory, so that it is for
//     schedules that need it.
// `passes` and `ends` by stage, as PassesOf and EndsOf have them.
Arrivals PlanArrivals(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                      const std::vector<std::vector<int64_t>>& ends, const std::vector<Route>& routes,
                      bool in_order_of_time);

// PlanArrivals where that takes no times: nothing skips parts, all that a pass reads comes from one peer, and each peer
// sends in the order in which the stage reads, so that each receive is issued before the pass that reads it. Otherwise
// nothing.
std::optional<Arrivals> ArrivalsInOrder(int64_t stage, const std::vector<std::vector<Pass>>& passes,
                                        const std::vector<Route>& routes);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_ARRIVALS_H_
