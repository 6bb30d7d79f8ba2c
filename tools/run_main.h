// The `main` of `run` and of the programs that it becomes: run (host), run_mpi, run_gpu, run_gpu_mpi. They differ in
// what plays a rank, and in whether MPI carries the job.
//
// Thread safety: called once, from main.
#ifndef MESHWRIGHT_TOOLS_RUN_MAIN_H_
#define MESHWRIGHT_TOOLS_RUN_MAIN_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "executor/data.h"
#include "executor/host/communicator.h"
#include "executor/runner.h"
#include "ir/program.h"
#include "ir/quantities.h"

namespace meshwright {

// A kind of device.
struct RankPlayer {
  std::string device = "host";  // of the library (costmodel/library.h): what a model file is planned for
  Bytes memory;                 // of one device; zero: ranks share this machine's
  int64_t devices = 0;          // that there are; 0: as many ranks as are asked for
  std::string description;      // of the device and what drives it: "NVIDIA H200, driver 13.0, CUDA 13.0, NCCL 2.28.9"
  // All ranks, as threads; and this process's rank of a job.
  std::function<absl::StatusOr<RunResult>(const Program&, const RunOptions&, const DataSource&)> threads;
  std::function<absl::StatusOr<RunResult>(const Program&, const RunOptions&, const DataSource&, Endpoint&)> process;
};
// Called when the flags have been read, and this process has joined its job.
using OpenPlayer = std::function<absl::StatusOr<RankPlayer>()>;

// Ranks are threads; or, where a launcher has left its variables (tools:launch, torchrun, srun:
// executor/manual/launch.h), this process is one of them.
int RunMain(int argc, char** argv, const OpenPlayer& open);

// This process is a rank of an MPI job. In a library of its own, which needs MPI's.
int RunMpiMain(int argc, char** argv, const OpenPlayer& open);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_RUN_MAIN_H_
