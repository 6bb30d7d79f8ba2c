// Jobs of real processes on this machine, for tests: under mpirun, or over sockets as tools/launcher.h starts them.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_JOB_H_
#define MESHWRIGHT_TESTS_SEMANTICS_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace meshwright {

struct JobOutput {
  absl::Status status;             // of the launcher
  std::vector<std::string> ranks;  // what each printed, on both streams
  std::string scheduler;           // over sockets
  absl::Duration took;
};

bool HasMpirun();

// After which a job, or what else a test waits for, hangs, however busy the machine is. Far below the half an hour, or
// the ten minutes, that ranks wait for others to arrive: what ends before did not wait for anybody.
constexpr absl::Duration kHang = absl::Seconds(200);

// `command` is a program, by its path from the workspace's root, and its arguments. A job that hangs is stopped.
JobOutput RunUnderMpirun(int64_t ranks, const std::vector<std::string>& command);
JobOutput RunOverSockets(int64_t ranks, const std::vector<std::string>& command);

// A folder of this test's own.
std::string NewFolder();
std::string ReadAll(const std::string& path);
void WriteAll(const std::string& path, const std::string& text);

// The line that begins with "run: ", without its end; "" where there is none.
std::string ErrorLine(const std::string& output);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_SEMANTICS_JOB_H_
