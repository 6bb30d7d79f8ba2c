// run: see tools/run_command.h. On the host it is this program; under mpirun it becomes run_mpi, on GPUs run_gpu or
// run_gpu_mpi, which lie beside it: this program itself needs neither MPI's library nor CUDA's.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "executor/manual/launch.h"
#include "tools/exit_code.h"
#include "tools/flags.h"
#include "tools/host_player.h"
#include "tools/local_device.h"
#include "tools/run_command.h"
#include "tools/run_main.h"

namespace {

using meshwright::ExitCode;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "run: %s\n", std::string(status.message()).c_str());
  return static_cast<int>(meshwright::ExitCodeOf(status));
}

// Returns only where it cannot be done.
int Become(const std::string& suffix, const std::string& when, char** argv) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string program = std::string(path, size > 0 ? static_cast<size_t>(size) : 0) + suffix;
  ::execv(program.c_str(), argv);
  return Fail(WithExit(ExitCode::kIo, absl::NotFoundError(when + " it needs " + program + ": " + std::strerror(errno) +
                                                          "; build //tools:run" + suffix)));
}

// Wrong flags are for the program itself to tell.
bool WantsGpu(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto flags = meshwright::Flags::Parse(meshwright::RunCommandLine().flags, args);
  return flags.ok() && flags->Text("device") == "gpu";
}

}  // namespace

int main(int argc, char** argv) {
  namespace manual = meshwright::manual;
  const bool mpirun = manual::FindLauncher(manual::OwnEnvironment()) == manual::Launcher::kMpirun;
  if (WantsGpu(argc, argv)) {
    // Before CUDA's libraries are looked for, which are as likely to be missing then.
    if (::dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) {
      return Fail(meshwright::NoGpu(std::string("there is no NVIDIA driver (") + ::dlerror() + ")"));
    }
    return Become(mpirun ? "_gpu_mpi" : "_gpu", "on GPUs", argv);
  }
  if (mpirun) return Become("_mpi", "under mpirun", argv);
  return meshwright::RunMain(argc, argv, meshwright::OpenHost);
}
