#include "executor/host/run_on_threads.h"

#include <thread>
#include <utility>
#include <vector>

#include "executor/host/blas.h"
#include "executor/host/host_backend.h"
#include "executor/host/thread_fabric.h"
#include "ir/status.h"
#include "ir/verify.h"

namespace meshwright {

absl::StatusOr<RunResult> RunOnThreads(const Program& program, const RunOptions& options, const DataSource& data) {
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  host::UseOneBlasThread();
  const int64_t n = program.mesh.num_ranks();
  ThreadFabric fabric(n, {.deadline = options.deadline});
  std::vector<absl::Status> statuses(n);
  std::vector<RankResult> results(n);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      HostBackend backend(fabric.endpoint(rank));
      absl::StatusOr<RankResult> result = RunRank(program, options, data, rank, backend);
      statuses[rank] = result.status();
      if (result.ok()) results[rank] = *std::move(result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  MESHWRIGHT_RETURN_IF_ERROR(FirstError(statuses));
  return JoinResults(std::move(results));
}

}  // namespace meshwright
