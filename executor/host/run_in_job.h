// Plays this process's rank of a program in a job whose processes talk through an Endpoint, whatever the device, and
// brings the results together at rank 0.
#ifndef MESHWRIGHT_EXECUTOR_HOST_RUN_IN_JOB_H_
#define MESHWRIGHT_EXECUTOR_HOST_RUN_IN_JOB_H_

#include <functional>

#include "absl/status/statusor.h"
#include "executor/host/communicator.h"
#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

// Plays the rank of `self` on this process's device.
using PlayRank = std::function<absl::StatusOr<RankResult>(Endpoint& self)>;

// The program must have as many ranks as the job. Rank 0 gets the whole result, the others their own part of it. Errors
// as in executor/runner.h, the same on every rank; kFailedPrecondition where the numbers of ranks differ.
absl::StatusOr<RunResult> RunInJob(const Program& program, const RunOptions& options, Endpoint& self,
                                   const PlayRank& play);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_RUN_IN_JOB_H_
