// Starts the processes of a job on this machine and watches them: what `launch` does (S2.8).
//
// One process is the job's scheduler, the others are its workers; all run the same command and learn what they are from
// their environment (executor/manual/launch.h has the variables). What they print goes to LOG_DIR/scheduler.log and
// LOG_DIR/worker_RANK.log.
//
// When one ends badly the others have a while to end by themselves, then they are told to stop (SIGTERM), and five
// seconds later they are stopped. Whatever a process started itself is in its process group and goes with it, and all
// go when this process is killed.
//
// Thread safety: one thread; the process must have no other child processes.
#ifndef MESHWRIGHT_TOOLS_LAUNCHER_H_
#define MESHWRIGHT_TOOLS_LAUNCHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace meshwright {

struct LaunchedJob {
  std::vector<std::string> command;  // a program without a slash is one beside this one, or on PATH
  int64_t workers = 8;               // of the whole job
  int64_t local_workers = 8;         // of them, on this machine
  std::string address = "127.0.0.1";
  int64_t port = 8118;  // where the scheduler listens
  // This machine's number: its ranks are node * local_workers and the following, and machine 0 has the scheduler. -1:
  // ranks in order of arrival where there are several machines, and the scheduler is where `address` is.
  int64_t node = -1;
  std::string log_dir = ".";
  absl::Duration timeout = absl::Seconds(600);  // for all workers to arrive
  absl::Duration to_end = absl::Seconds(10);    // for the others to end by themselves, when one ended badly
};

// E-VALUE for numbers that do not fit together.
absl::Status CheckJob(const LaunchedJob& job);

// kUnavailable (E-LAUNCH) where there is no such program.
absl::Status CheckProgram(const LaunchedJob& job);

// Runs it to its end. kUnavailable (E-LAUNCH) when a process cannot be started, an error of ir/files.h when a log
// cannot be written; kAborted names the first that ended badly, how, and its log. SIGINT and SIGTERM stop the job.
absl::Status RunJob(const LaunchedJob& job);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_LAUNCHER_H_
