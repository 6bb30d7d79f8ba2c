// Runs a whole Program on the host, one thread per rank: the embedded default, which needs nothing.
#ifndef MESHWRIGHT_EXECUTOR_HOST_RUN_ON_THREADS_H_
#define MESHWRIGHT_EXECUTOR_HOST_RUN_ON_THREADS_H_

#include "absl/status/statusor.h"
#include "executor/data.h"
#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

// Errors as in executor/runner.h, and those of VerifyProgram.
absl::StatusOr<RunResult> RunOnThreads(const Program& program, const RunOptions& options, const DataSource& data);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_RUN_ON_THREADS_H_
