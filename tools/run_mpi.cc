// run_mpi: run with ranks as processes of an MPI job, started by `mpirun -np N run ...`.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "executor/host/mpi.h"
#include "executor/host/run_on_endpoint.h"
#include "tools/exit_code.h"
#include "tools/run_command.h"

int main(int argc, char** argv) {
  using meshwright::MpiWorld;
  const absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Join();
  if (!world.ok()) {
    std::fprintf(stderr, "run: %s\n", std::string(world.status().message()).c_str());
    return static_cast<int>(meshwright::ExitCode::kRunFailed);
  }
  meshwright::RankCarrier processes;
  processes.ranks = (*world)->num_ranks();
  // Open MPI tells how many processes of the job share this machine.
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  processes.here = here == nullptr ? 0 : std::max(1, std::atoi(here));
  processes.rank = (*world)->rank();
  processes.speaks = (*world)->rank() == 0;
  processes.run = [&](const meshwright::Program& program, const meshwright::RunOptions& options,
                      const meshwright::DataSource& data) { return RunOnEndpoint(program, options, data, **world); };
  std::FILE* const output = ::fdopen(::dup(STDOUT_FILENO), "w");
  processes.print = [&](const std::string& line) {
    if (output == nullptr) return;
    std::fputs(line.c_str(), output);
    std::fflush(output);
  };
  // Every rank tells of its errors; one of the results.
  if (!processes.speaks && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  return meshwright::RunCommand(
      meshwright::RunCommandLine(),
      [&](const meshwright::Flags& flags) { return meshwright::RunTraining(flags, processes); }, argc, argv);
}
