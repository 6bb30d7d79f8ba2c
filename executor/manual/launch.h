// Starts the ranks of a hand-written parallel program.
//
//   LaunchOnThreads(8, {}, Train);   // ranks are threads of this process
//   Launch({}, Train);               // this process is one of a job's
//
// A job's processes are started from outside, in one of two ways:
//
//   mpirun -np 8 program             where Launch is given JoinWithMpi of executor/manual/mpi_launch.h
//
//   MS_ROLE=MS_SCHED MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=8118 MS_WORKER_NUM=2 program &
//   MS_ROLE=MS_WORKER MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=8118 MS_WORKER_NUM=2 program &
//   MS_ROLE=MS_WORKER MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=8118 MS_WORKER_NUM=2 program
//
//   MS_NODE_ID        a number: this worker's rank. Two workers with the same id do not make a job
//   MS_TOPO_TIMEOUT   seconds to wait for all workers, 1800
//   MS_NODE_TIMEOUT   seconds of silence after which a worker is lost, 300
//
// The scheduler's process serves the job in Init and runs no training code. Where both ways are in the environment,
// MS_ROLE wins, with a warning. tools:launch starts scheduler and workers.
//
// Launchers that know nothing of a scheduler (torchrun, srun) set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; rank 0
// then serves the job beside its training. Under torchrun, whose own store has MASTER_PORT, it listens at the next one.
// Under srun RANK and WORLD_SIZE may be left to SLURM_PROCID and SLURM_NTASKS.
//
// Thread safety: functions may run at the same time.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_LAUNCH_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "executor/host/rendezvous.h"
#include "executor/manual/context.h"

namespace meshwright::manual {

// What every rank runs. It calls context.Init() itself, and returns what went wrong.
using Body = std::function<absl::Status(Context& context)>;

struct ThreadLaunchOptions {
  std::string device_target = "CPU";
  absl::Duration deadline = absl::Minutes(2);             // how long a rank waits for another before it gives up
  std::function<void(absl::string_view)> warn = nullptr;  // called from the ranks' threads; null: to stderr
};

// Runs `body` on as many threads and waits for all. When one fails, the others stop at their next collective. The first
// error in the order of the ranks that is not just kCancelled by another rank.
absl::Status LaunchOnThreads(int64_t num_ranks, const ThreadLaunchOptions& options, const Body& body);

// A variable's value, or null where it is not set.
using Environment = std::function<const char*(const char* name)>;

struct LaunchOptions {
  std::string device_target = "CPU";
  absl::Duration deadline = absl::Minutes(2);             // how long a rank waits for another before it gives up
  std::function<void(absl::string_view)> warn = nullptr;  // null: to stderr
  Join join_mpi = nullptr;                                // null: this program does not know MPI
  Environment environment = nullptr;                      // null: the process's own
};

// Runs `body` as this process's rank; when it fails the other ranks stop. Returns what the body returned; in the
// scheduler's process how the job ended. Without a launcher, or with one whose settings make no sense, Init is E-LAUNCH
// and names what is missing.
absl::Status Launch(const LaunchOptions& options, const Body& body);

// The settings of a launch without mpirun.
struct LaunchSettings {
  bool is_scheduler = false;
  bool serves = false;  // this worker is the scheduler too, on a thread of its own
  RendezvousOptions rendezvous;
  std::string node_id;  // empty where there is none
};
// E-LAUNCH, naming every variable that is missing, or the first that is wrong.
absl::StatusOr<LaunchSettings> ReadLaunchSettings(const Environment& environment);

// How this process was started; where several launchers have left variables, MS_ROLE's, then mpirun.
enum class Launcher : uint8_t { kNone, kMpirun, kVariables };
Launcher FindLauncher(const Environment& environment);
// Of the process itself.
Environment OwnEnvironment();
// MS_ROLE won over mpirun.
inline constexpr absl::string_view kBothLaunchers =
    "both mpirun and MS_ROLE are in the environment; MS_ROLE is taken, mpirun's ranks are not used";
bool HasBothLaunchers(const Environment& environment);

// Takes part in the job that the variables describe, waiting for the other workers. In the scheduler's process: null,
// when the job has ended. E-LAUNCH. `deadline` is how long a receive waits.
absl::StatusOr<std::shared_ptr<Endpoint>> JoinByVariables(const Environment& environment, absl::Duration deadline);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_LAUNCH_H_
