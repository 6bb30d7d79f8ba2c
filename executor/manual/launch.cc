#include "executor/manual/launch.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
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

// A scheduler on a thread of its own, and a worker beside it, which must leave first.
struct Serving {
  std::unique_ptr<Scheduler> scheduler;
  std::thread thread;
  std::unique_ptr<SocketWorld> world;
  ~Serving() {
    world = nullptr;
    if (thread.joinable()) thread.join();
  }
};

bool IsSet(const Environment& environment, const char* name) { return !Read(environment, name).empty(); }

constexpr const char* kOurs[] = {"MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM"};

// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: whether they are what this process was given.
bool HasMaster(const Environment& environment) {
  return IsSet(environment, "MASTER_ADDR") || IsSet(environment, "MASTER_PORT") ||
         (IsSet(environment, "RANK") && IsSet(environment, "WORLD_SIZE"));
}

absl::StatusOr<LaunchSettings> ReadMaster(const Environment& environment) {
  const Environment either = [&](const char* name) -> const char* {
    const char* value = environment(name);
    if (value != nullptr && *value != 0) return value;
    if (std::string(name) == "RANK") return environment("SLURM_PROCID");
    return std::string(name) == "WORLD_SIZE" ? environment("SLURM_NTASKS") : value;
  };
  std::vector<std::string> missing;
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (!IsSet(either, name)) missing.emplace_back(name);
  }
  if (!missing.empty()) {
    return LaunchError(
        "init: ", absl::StrJoin(missing, ", "), missing.size() == 1 ? " is" : " are",
        " not set. torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process; or start "
        "the program with mpirun -np N");
  }
  LaunchSettings settings;
  RendezvousOptions& rendezvous = settings.rendezvous;
  MESHWRIGHT_ASSIGN_OR_RETURN(rendezvous.num_workers, ReadNumber(either, "WORLD_SIZE", 0, 1, kMostWorkers));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, ReadNumber(either, "RANK", 0, 0, rendezvous.num_workers - 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t port, ReadNumber(either, "MASTER_PORT", 0, 1024, 65534));
  const bool taken = Read(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  rendezvous.scheduler = {Read(environment, "MASTER_ADDR"), static_cast<int>(port) + (taken ? 1 : 0)};
  settings.serves = rank == 0;
  settings.node_id = absl::StrCat(rank);
  return settings;
}

absl::Status ReadTimeouts(const Environment& environment, RendezvousOptions& rendezvous) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t topology,
                              ReadNumber(environment, "MS_TOPO_TIMEOUT", 1800, 1, kMostSeconds));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t node, ReadNumber(environment, "MS_NODE_TIMEOUT", 300, 1, kMostSeconds));
  rendezvous.topology_timeout = absl::Seconds(topology);
  rendezvous.node_timeout = absl::Seconds(node);
  return absl::OkStatus();
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
  for (const char* name : kOurs) {
    if (!IsSet(environment, name)) missing.emplace_back(name);
  }
  if (missing.size() == std::size(kOurs) && HasMaster(environment)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(LaunchSettings settings, ReadMaster(environment));
    MESHWRIGHT_RETURN_IF_ERROR(ReadTimeouts(environment, settings.rendezvous));
    return settings;
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
  MESHWRIGHT_RETURN_IF_ERROR(ReadTimeouts(environment, rendezvous));
  settings.node_id = Read(environment, "MS_NODE_ID");
  return settings;
}

Environment OwnEnvironment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

bool HasBothLaunchers(const Environment& environment) {
  return IsSet(environment, "MS_ROLE") && IsSet(environment, "OMPI_COMM_WORLD_RANK");
}

Launcher FindLauncher(const Environment& environment) {
  if (IsSet(environment, "MS_ROLE")) return Launcher::kVariables;
  if (IsSet(environment, "OMPI_COMM_WORLD_RANK")) return Launcher::kMpirun;
  const bool ours =
      std::any_of(std::begin(kOurs), std::end(kOurs), [&](const char* name) { return IsSet(environment, name); });
  return ours || HasMaster(environment) ? Launcher::kVariables : Launcher::kNone;
}

absl::StatusOr<std::shared_ptr<Endpoint>> JoinByVariables(const Environment& environment, absl::Duration deadline) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const LaunchSettings settings, ReadLaunchSettings(environment));
  const auto serving = std::make_shared<Serving>();
  if (settings.is_scheduler || settings.serves) {
    absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Listen(settings.rendezvous);
    if (!scheduler.ok()) return ToLaunchError(scheduler.status());
    serving->scheduler = *std::move(scheduler);
  }
  if (settings.is_scheduler) {
    MESHWRIGHT_RETURN_IF_ERROR(ToLaunchError(serving->scheduler->Serve()));
    return std::shared_ptr<Endpoint>();
  }
  if (settings.serves) {
    // How the job ends is told to every worker, this one too.
    serving->thread = std::thread([scheduler = serving->scheduler.get()] { scheduler->Serve().IgnoreError(); });
  }
  absl::StatusOr<std::unique_ptr<SocketWorld>> world = SocketWorld::Join(settings.rendezvous, settings.node_id);
  if (!world.ok()) return ToLaunchError(world.status());
  (*world)->set_deadline(deadline);
  serving->world = *std::move(world);
  return std::shared_ptr<Endpoint>(serving, serving->world.get());
}

absl::Status Launch(const LaunchOptions& options, const Body& body) {
  const Environment environment = options.environment != nullptr ? options.environment : OwnEnvironment();
  Context* self = nullptr;
  const auto join = [&]() -> absl::StatusOr<std::shared_ptr<Endpoint>> {
    if (HasBothLaunchers(environment)) self->Warn(kBothLaunchers);
    if (FindLauncher(environment) == Launcher::kMpirun) {
      if (options.join_mpi != nullptr) return options.join_mpi();
      return LaunchError(
          "init: mpirun started this process, but the program was built without MPI; set MS_ROLE, "
          "MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM instead");
    }
    return JoinByVariables(environment, options.deadline);
  };
  Context context({.device_target = options.device_target, .join = join, .warn = options.warn});
  self = &context;
  const absl::Status status = RunBody(context, body);
  return context.is_scheduler() ? absl::OkStatus() : status;  // it has served the job
}

}  // namespace meshwright::manual
