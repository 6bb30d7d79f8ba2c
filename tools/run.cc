// run: see tools/run_command.h. Under mpirun it becomes run_mpi, which lies beside it: this program itself needs no
// MPI library.
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "executor/host/run_on_threads.h"
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

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return BecomeRunMpi(argv);
  meshwright::RankCarrier threads;
  threads.run = meshwright::RunOnThreads;
  threads.print = [](const std::string& line) {
    meshwright::Print(line);
    std::fflush(stdout);
  };
  return meshwright::RunCommand(
      meshwright::RunCommandLine(),
      [&](const meshwright::Flags& flags) { return meshwright::RunTraining(flags, threads); }, argc, argv);
}
