#include "tools/become.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "absl/status/status.h"
#include "tools/exit_code.h"
#include "tools/local_device.h"

namespace meshwright {
namespace {

int Fail(const std::string& tool, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", tool.c_str(), std::string(status.message()).c_str());
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace

bool WantsGpu(const std::vector<FlagSpec>& flags, int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto parsed = Flags::Parse(flags, args);
  return parsed.ok() && parsed->Text("device") == "gpu";
}

int Become(const std::string& tool, const std::string& suffix, const std::string& when, char** argv) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string program = std::string(path, size > 0 ? static_cast<size_t>(size) : 0) + suffix;
  ::execv(program.c_str(), argv);
  return Fail(tool,
              WithExit(ExitCode::kIo, absl::NotFoundError(when + " it needs " + program + ": " + std::strerror(errno) +
                                                          "; build //tools:" + tool + suffix)));
}

int BecomeForGpus(const std::string& tool, const std::string& suffix, char** argv) {
  if (::dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) {
    return Fail(tool, NoGpu(std::string("there is no NVIDIA driver (") + ::dlerror() + ")"));
  }
  return Become(tool, suffix, "on GPUs", argv);
}

}  // namespace meshwright
