// run: see tools/run_command.h. Ranks are threads; or, where a launcher has left its variables (tools:launch, torchrun,
// srun: executor/manual/launch.h), this process is one of them. Under mpirun it becomes run_mpi, which lies beside it:
// this program itself needs no MPI library.
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "executor/host/run_on_endpoint.h"
#include "executor/host/run_on_threads.h"
#include "executor/manual/launch.h"
#include "ir/status.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/run_command.h"

namespace {

// Returns only where it cannot be done.
int BecomeRunMpi(char** argv) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string program(path, size > 0 ? static_cast<size_t>(size) : 0);
  program += "_mpi";
  ::execv(program.c_str(), argv);
  std::fprintf(stderr, "run: under mpirun it needs %s: %s; build //tools:run_mpi\n", program.c_str(),
               std::strerror(errno));
  return static_cast<int>(meshwright::ExitCode::kIo);
}

using meshwright::Endpoint;

void PrintNow(const std::string& line) {
  meshwright::Print(line);
  std::fflush(stdout);
}

// Joins the job that the environment describes. The scheduler's process runs no training code.
absl::Status RunAsProcess(const meshwright::Flags& flags) {
  namespace manual = meshwright::manual;
  const manual::Environment environment = manual::OwnEnvironment();
  if (manual::HasBothLaunchers(environment)) {
    std::fprintf(stderr, "warning: %s\n", std::string(manual::kBothLaunchers).c_str());
  }
  const absl::StatusOr<std::shared_ptr<Endpoint>> world = manual::JoinByVariables(environment, absl::Minutes(2));
  if (!world.ok()) return WithExit(meshwright::ExitCode::kRunFailed, world.status());
  if (*world == nullptr) return absl::OkStatus();
  meshwright::RankCarrier processes;
  processes.ranks = (*world)->num_ranks();
  const char* const here = environment("LOCAL_WORLD_SIZE");  // torchrun's: how many of them share this machine
  processes.here = here == nullptr ? 0 : std::max(1, std::atoi(here));
  processes.rank = (*world)->rank();
  processes.speaks = (*world)->rank() == 0;
  processes.print = PrintNow;
  processes.run = [&](const meshwright::Program& program, const meshwright::RunOptions& options,
                      const meshwright::DataSource& data) { return RunOnEndpoint(program, options, data, **world); };
  const absl::Status status = RunTraining(flags, processes);
  if (!status.ok()) (*world)->Abort(status);  // what only this process met stops the others too
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  using meshwright::manual::Launcher;
  const auto launcher = meshwright::manual::FindLauncher(meshwright::manual::OwnEnvironment());
  if (launcher == Launcher::kMpirun) return BecomeRunMpi(argv);
  meshwright::RankCarrier threads;
  threads.run = meshwright::RunOnThreads;
  threads.print = PrintNow;
  return meshwright::RunCommand(
      meshwright::RunCommandLine(),
      [&](const meshwright::Flags& flags) {
        return launcher == Launcher::kVariables ? RunAsProcess(flags) : RunTraining(flags, threads);
      },
      argc, argv);
}
