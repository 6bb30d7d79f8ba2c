// run: see tools/run_command.h. On the host it is this program; under mpirun it becomes run_mpi, on GPUs run_gpu or
// run_gpu_mpi, which lie beside it: this program itself needs neither MPI's library nor CUDA's.
#include "executor/manual/launch.h"
#include "tools/become.h"
#include "tools/host_player.h"
#include "tools/run_command.h"
#include "tools/run_main.h"

int main(int argc, char** argv) {
  namespace manual = meshwright::manual;
  const bool mpirun = manual::FindLauncher(manual::OwnEnvironment()) == manual::Launcher::kMpirun;
  if (meshwright::WantsGpu(meshwright::RunCommandLine().flags, argc, argv)) {
    return meshwright::BecomeForGpus("run", mpirun ? "_gpu_mpi" : "_gpu", argv);
  }
  if (mpirun) return meshwright::Become("run", "_mpi", "under mpirun", argv);
  return meshwright::RunMain(argc, argv, meshwright::OpenHost);
}
