// A model run with a pass of the planner that joins kernels, and without it. For tests only.
#ifndef MESHWRIGHT_TESTS_PROPERTY_WITH_AND_WITHOUT_H_
#define MESHWRIGHT_TESTS_PROPERTY_WITH_AND_WITHOUT_H_

#include <cstdint>
#include <string>

#include "tests/semantics/model_run.h"

namespace meshwright {

struct WithAndWithout {
  ModelRun with, without;
};

// `model` ends within its `parallel:`, where `option`, such as "fuse_epilogues", is then false. Expects the same losses
// and parameters of a few steps on the host, to the bit, or not `to_the_bit` losses that differ by roundings; on
// stand-ins for GPUs with the host's kernels the same losses and no faults; and by the devices' kernels losses that
// differ by roundings alone. `seed` draws the order in which the stand-ins run what is asynchronous. Failures are the
// calling test's; what could not be run has no program.
WithAndWithout ExpectTheSameWithout(const std::string& option, const std::string& model, int64_t ranks, uint64_t seed,
                                    bool to_the_bit = true);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_PROPERTY_WITH_AND_WITHOUT_H_
