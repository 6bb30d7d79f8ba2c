// Runs this process's rank of a program on the host, in a job whose processes talk through an Endpoint: under mpirun
// (executor/host/mpi.h), or over sockets (executor/host/socket_fabric.h). Results are bit for bit those of a run on
// threads.
#ifndef MESHWRIGHT_EXECUTOR_HOST_RUN_ON_ENDPOINT_H_
#define MESHWRIGHT_EXECUTOR_HOST_RUN_ON_ENDPOINT_H_

#include "absl/status/statusor.h"
#include "executor/data.h"
#include "executor/host/communicator.h"
#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright {

// Results and errors as RunInJob has them (executor/host/run_in_job.h).
absl::StatusOr<RunResult> RunOnEndpoint(const Program& program, const RunOptions& options, const DataSource& data,
                                        Endpoint& self);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_RUN_ON_ENDPOINT_H_
