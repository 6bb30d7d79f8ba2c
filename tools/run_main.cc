#include "tools/run_main.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "executor/manual/launch.h"
#include "ir/status.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/run_command.h"

namespace meshwright {
namespace {

void PrintNow(const std::string& line) {
  Print(line);
  std::fflush(stdout);
}

RankCarrier CarrierOf(const RankPlayer& player) {
  RankCarrier carrier;
  carrier.device = player.device;
  carrier.memory = player.memory;
  carrier.print = PrintNow;
  return carrier;
}

absl::Status RunAsThreads(const Flags& flags, const OpenPlayer& open) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const RankPlayer player, open());
  RankCarrier threads = CarrierOf(player);
  threads.run = player.threads;
  return RunTraining(flags, threads);
}

absl::Status RunInWorld(const Flags& flags, const OpenPlayer& open, Endpoint& world) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const RankPlayer player, open());
  RankCarrier processes = CarrierOf(player);
  processes.ranks = world.num_ranks();
  const char* const here = std::getenv("LOCAL_WORLD_SIZE");  // how many of them share this machine
  processes.here = here == nullptr ? 0 : std::max(1, std::atoi(here));
  processes.rank = world.rank();
  processes.speaks = world.rank() == 0;
  processes.run = [&](const Program& program, const RunOptions& options, const DataSource& data) {
    return player.process(program, options, data, world);
  };
  return RunTraining(flags, processes);
}

// Joins the job that the environment describes. The scheduler's process runs no training code.
absl::Status RunAsProcess(const Flags& flags, const OpenPlayer& open) {
  const manual::Environment environment = manual::OwnEnvironment();
  if (manual::HasBothLaunchers(environment)) {
    std::fprintf(stderr, "warning: %s\n", std::string(manual::kBothLaunchers).c_str());
  }
  const absl::StatusOr<std::shared_ptr<Endpoint>> world = manual::JoinByVariables(environment, absl::Minutes(2));
  if (!world.ok()) return WithExit(ExitCode::kRunFailed, world.status());
  if (*world == nullptr) return absl::OkStatus();
  const absl::Status status = RunInWorld(flags, open, **world);
  if (!status.ok()) (*world)->Abort(status);  // what only this process met stops the others too
  return status;
}

}  // namespace

int RunMain(int argc, char** argv, const OpenPlayer& open) {
  const bool job = manual::FindLauncher(manual::OwnEnvironment()) == manual::Launcher::kVariables;
  return RunCommand(
      RunCommandLine(), [&](const Flags& flags) { return job ? RunAsProcess(flags, open) : RunAsThreads(flags, open); },
      argc, argv);
}

}  // namespace meshwright
