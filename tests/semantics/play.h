// How the suite plays programs: on the host unless the environment names another back end.
//
//   MESHWRIGHT_BACKEND=host        ranks are threads (the default)
//   MESHWRIGHT_BACKEND=stand_ins   the back end for GPUs, on stand-ins in host memory that check every access, with the
//                                  host's kernels: the same numbers to the bit
//   MESHWRIGHT_BACKEND=emulated    the same, with the devices' kernels played on the host: accesses are not checked,
//                                  and sums have another order
//
//   tools/bazel test --test_env=MESHWRIGHT_BACKEND=stand_ins //tests/semantics/...
//
// Where MESHWRIGHT_SUITE_CASES names a folder, programs of several ranks on synthetic data are written there as well
// (tests/gpu/suite_case.h), for a machine with a GPU.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_PLAY_H_
#define MESHWRIGHT_TESTS_SEMANTICS_PLAY_H_

#include "absl/status/statusor.h"
#include "executor/data.h"
#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

// As RunOnThreads. What stand-ins find wrong is kInternal.
absl::StatusOr<RunResult> Play(const Program& program, const RunOptions& options, const DataSource& data);

// Emulated devices: what runs on them and what runs on the host then differ by rounding.
bool DevicesSumInAnotherOrder();

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_SEMANTICS_PLAY_H_
