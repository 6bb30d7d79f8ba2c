#include "executor/cuda/testing/run_on_stand_ins.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "executor/cuda/device_kernels.h"
#include "executor/cuda/testing/emulated_launcher.h"
#include "executor/host/thread_fabric.h"

namespace meshwright::cuda::testing {

CudaOptions Patient() {
  CudaOptions options;
  options.deadline_floor = absl::Minutes(5);
  return options;
}

StandInRun RunOnStandIns(const Program& program, const RunOptions& options, const DataSource& data,
                         const CudaOptions& cuda, StandInMachine& machine, StandInKernelKind kind) {
  const int64_t n = program.mesh.num_ranks();
  ThreadFabric fabric(n, {.deadline = options.deadline});
  StandInRun run;
  run.statuses.resize(n);
  run.scratch.resize(n);
  std::vector<RankResult> results(n);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      StandInKernels host_kernels(machine.driver(rank));
      EmulatedLauncher launcher(machine.driver(rank));
      DeviceKernels device_kernels(machine.driver(rank), launcher);
      Kernels& kernels = kind == StandInKernelKind::kHost ? static_cast<Kernels&>(host_kernels) : device_kernels;
      auto backend = CudaBackend::Make(machine.driver(rank), kernels, fabric.endpoint(rank), program, cuda);
      if (!backend.ok()) {
        run.statuses[rank] = backend.status();
        return;
      }
      absl::StatusOr<RankResult> result = RunRank(program, options, data, rank, **backend);
      run.statuses[rank] = result.status();
      run.scratch[rank] = (*backend)->scratch();
      if (result.ok()) results[rank] = *std::move(result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const bool ok = std::all_of(run.statuses.begin(), run.statuses.end(), [](const auto& s) { return s.ok(); });
  if (ok) run.result = JoinResults(std::move(results));
  return run;
}

}  // namespace meshwright::cuda::testing
