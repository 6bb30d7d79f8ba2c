#include "executor/manual/launch.h"

#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/host/socket_fabric.h"
#include "executor/host/thread_fabric.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

constexpr int64_t kMostWorkers = 4096;
constexpr int64_t kMostSeconds = 7 * 24 * 3600;

absl::Status RunBody(Context& context, const Body& body) {
  const absl::Status status = body(context);
  if (!status.ok()) context.Stop(status);
  return status;
}

absl::Status FirstError(const std::vector<absl::Status>& statuses) {
  absl::Status first;
  for (const absl::Status& status : statuses) {
    if (!status.ok() && !absl::IsCancelled(status)) return status;
    if (first.ok()) first = status;
  }
  return first;
}

std::string Read(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

// The variable's number; `otherwise` where it is not set.
absl::StatusOr<int64_t> ReadNumber(const Environment& environment, const char* name, int64_t otherwise, int64_t min,
                                   int64_t max) {
  const std::string text = Read(environment, name);
  int64_t value = otherwise;
  if (text.empty()) return value;
  if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) return value;
  return LaunchError(name, " is \"", text, "\"; wants a whole number from ", min, " to ", max);
}

// Errors of the processes' coming together are E-LAUNCH.
absl::Status ToLaunchError(const absl::Status& status) {
  return absl::IsUnavailable(status) ? LaunchError(status.message()) : status;
}

absl::StatusOr<std::shared_ptr<Endpoint>> JoinOverSockets(const LaunchOptions& options, const Environment& environment,
                                                          absl::Status& served) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const LaunchSettings settings, ReadLaunchSettings(environment));
  if (settings.is_scheduler) {
    absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Listen(settings.rendezvous);
    served = ToLaunchError(scheduler.ok() ? (*scheduler)->Serve() : scheduler.status());
    if (!served.ok()) return served;
    return std::shared_ptr<Endpoint>();
  }
  absl::StatusOr<std::unique_ptr<SocketWorld>> world = SocketWorld::Join(settings.rendezvous, settings.node_id);
  if (!world.ok()) return ToLaunchError(world.status());
  (*world)->set_deadline(options.deadline);
  return std::shared_ptr<Endpoint>(*std::move(world));
}

}  // namespace

absl::Status LaunchOnThreads(int64_t num_ranks, const ThreadLaunchOptions& options, const Body& body) {
  ThreadFabric fabric(num_ranks, {.deadline = options.deadline});
  std::vector<absl::Status> statuses(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto join = [&fabric, rank]() -> absl::StatusOr<std::shared_ptr<Endpoint>> {
        return std::shared_ptr<Endpoint>(&fabric.endpoint(rank), [](Endpoint*) {});  // the fabric's
      };
      Context context({.device_target = options.device_target, .join = join, .warn = options.warn});
      statuses[rank] = RunBody(context, body);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return FirstError(statuses);
}

absl::StatusOr<LaunchSettings> ReadLaunchSettings(const Environment& environment) {
  std::vector<std::string> missing;
  for (const char* name : {"MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM"}) {
    if (Read(environment, name).empty()) missing.emplace_back(name);
  }
  if (!missing.empty()) {
    return LaunchError("init: no launcher: ", absl::StrJoin(missing, ", "), missing.size() == 1 ? " is" : " are",
                       " not set. Start the program with mpirun -np N, or start a scheduler and N workers that have "
                       "MS_ROLE (MS_SCHED or MS_WORKER), MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM");
  }
  LaunchSettings settings;
  const std::string role = Read(environment, "MS_ROLE");
  if (role != "MS_SCHED" && role != "MS_WORKER") {
    return LaunchError("MS_ROLE is \"", role, "\"; wants MS_SCHED or MS_WORKER");
  }
  settings.is_scheduler = role == "MS_SCHED";
  RendezvousOptions& rendezvous = settings.rendezvous;
  rendezvous.scheduler.host = Read(environment, "MS_SCHED_HOST");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t port, ReadNumber(environment, "MS_SCHED_PORT", 0, 1024, 65535));
  rendezvous.scheduler.port = static_cast<int>(port);
  MESHWRIGHT_ASSIGN_OR_RETURN(rendezvous.num_workers, ReadNumber(environment, "MS_WORKER_NUM", 0, 1, kMostWorkers));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t topology,
                              ReadNumber(environment, "MS_TOPO_TIMEOUT", 1800, 1, kMostSeconds));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t node, ReadNumber(environment, "MS_NODE_TIMEOUT", 300, 1, kMostSeconds));
  rendezvous.topology_timeout = absl::Seconds(topology);
  rendezvous.node_timeout = absl::Seconds(node);
  settings.node_id = Read(environment, "MS_NODE_ID");
  return settings;
}

absl::Status Launch(const LaunchOptions& options, const Body& body) {
  const Environment environment = options.environment != nullptr
                                      ? options.environment
                                      : [](const char* name) -> const char* { return std::getenv(name); };
  absl::Status served;  // in the scheduler's process: how the job ended
  Context* self = nullptr;
  const auto join = [&]() -> absl::StatusOr<std::shared_ptr<Endpoint>> {
    const bool under_mpirun = !Read(environment, "OMPI_COMM_WORLD_RANK").empty();
    const bool has_role = !Read(environment, "MS_ROLE").empty();
    if (has_role && under_mpirun) {
      self->Warn("both mpirun and MS_ROLE are in the environment; MS_ROLE is taken, mpirun's ranks are not used");
    }
    if (has_role || !under_mpirun) return JoinOverSockets(options, environment, served);
    if (options.join_mpi != nullptr) return options.join_mpi();
    return LaunchError(
        "init: mpirun started this process, but the program was built without MPI; set MS_ROLE, "
        "MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM instead");
  };
  Context context({.device_target = options.device_target, .join = join, .warn = options.warn});
  self = &context;
  const absl::Status status = RunBody(context, body);
  return context.is_scheduler() ? served : status;
}

}  // namespace meshwright::manual
