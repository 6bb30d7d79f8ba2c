#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "executor/host/mpi.h"
#include "ir/status.h"
#include "tools/exit_code.h"
#include "tools/run_command.h"
#include "tools/run_main.h"

namespace meshwright {
namespace {

absl::Status RunInMpi(const Flags& flags, const OpenPlayer& open, MpiWorld& world, std::FILE* output) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const RankPlayer player, open());
  RankCarrier processes;
  processes.device = player.device;
  processes.memory = player.memory;
  processes.ranks = world.num_ranks();
  // Open MPI tells how many processes of the job share this machine.
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  processes.here = here == nullptr ? 0 : std::max(1, std::atoi(here));
  processes.rank = world.rank();
  processes.speaks = world.rank() == 0;
  processes.run = [&](const Program& program, const RunOptions& options, const DataSource& data) {
    return player.process(program, options, data, world);
  };
  processes.print = [output](const std::string& line) {
    if (output == nullptr) return;
    std::fputs(line.c_str(), output);
    std::fflush(output);
  };
  return RunTraining(flags, processes);
}

}  // namespace

int RunMpiMain(int argc, char** argv, const OpenPlayer& open) {
  const absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Join();
  if (!world.ok()) {
    std::fprintf(stderr, "run: %s\n", std::string(world.status().message()).c_str());
    return static_cast<int>(ExitCode::kRunFailed);
  }
  std::FILE* const output = ::fdopen(::dup(STDOUT_FILENO), "w");
  // Every rank tells of its errors; one of the results.
  if ((*world)->rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  return RunCommand(
      RunCommandLine(), [&](const Flags& flags) { return RunInMpi(flags, open, **world, output); }, argc, argv);
}

}  // namespace meshwright
