// What the tests of zero-bubble schedules and of DualPipe have in common: a pipeline of a schedule, and that it
// computes what 1F1B computes. For tests only.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_SCHEDULES_H_
#define MESHWRIGHT_TESTS_SEMANTICS_SCHEDULES_H_

#include <cstdint>

#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// On `ranks` ranks a stage, which split the rows ("m"), or the middle of each layer ("f": all-reduces in both passes).
Strategy Pipeline(Schedule schedule, int64_t stages, int64_t microbatches, int64_t ranks = 1, const char* split = "m");

// Trains `graph` three steps with AdamW by `strategy` and by 1F1B: losses and parameters are the same, bit for bit
// where gradients are summed in the same order (`exact`); all ranks see one loss; and what was planned is allocated.
void ExpectAsOneForwardOneBackward(const Graph& graph, Strategy strategy, bool exact = true);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_SEMANTICS_SCHEDULES_H_
