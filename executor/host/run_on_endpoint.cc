#include "executor/host/run_on_endpoint.h"

#include "executor/host/blas.h"
#include "executor/host/host_backend.h"
#include "executor/host/run_in_job.h"

namespace meshwright {

absl::StatusOr<RunResult> RunOnEndpoint(const Program& program, const RunOptions& options, const DataSource& data,
                                        Endpoint& self) {
  host::UseOneBlasThread();
  return RunInJob(program, options, self, [&](Endpoint& endpoint) {
    HostBackend backend(endpoint);
    return RunRank(program, options, data, endpoint.rank(), backend);
  });
}

}  // namespace meshwright
