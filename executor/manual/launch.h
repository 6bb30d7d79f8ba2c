// Starts the ranks of a hand-written parallel program.
//
//   LaunchOnThreads(8, {}, Train);   // ranks are threads of this process
//   Launch({}, Train);               // this process is one rank of a job: see below
//
// Thread safety: functions may run at the same time.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_LAUNCH_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "executor/manual/context.h"

namespace meshwright::manual {

// What every rank runs. It calls context.Init() itself, and returns what went wrong.
using Body = std::function<absl::Status(Context& context)>;

struct ThreadLaunchOptions {
  std::string device_target = "CPU";
  absl::Duration deadline = absl::Minutes(2);             // how long a rank waits for another before it gives up
  std::function<void(absl::string_view)> warn = nullptr;  // called from the ranks' threads; null: to stderr
};

// Runs `body` on as many threads and waits for all. When one fails, the others stop at their next collective. The first
// error in the order of the ranks that is not just kCancelled by another rank.
absl::Status LaunchOnThreads(int64_t num_ranks, const ThreadLaunchOptions& options, const Body& body);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_LAUNCH_H_
