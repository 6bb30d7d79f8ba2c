#include "executor/manual/launch.h"

#include <memory>
#include <thread>
#include <vector>

#include "executor/host/thread_fabric.h"

namespace meshwright::manual {
namespace {

absl::Status RunBody(Context& context, const Body& body) {
  const absl::Status status = body(context);
  if (!status.ok()) context.Stop(status);
  return status;
}

absl::Status FirstError(const std::vector<absl::Status>& statuses) {
  absl::Status first;
  for (const absl::Status& status : statuses) {
    if (!status.ok() && !absl::IsCancelled(status)) return status;
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace

absl::Status LaunchOnThreads(int64_t num_ranks, const ThreadLaunchOptions& options, const Body& body) {
  ThreadFabric fabric(num_ranks, {.deadline = options.deadline});
  std::vector<absl::Status> statuses(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto join = [&fabric, rank]() -> absl::StatusOr<std::shared_ptr<Endpoint>> {
        return std::shared_ptr<Endpoint>(&fabric.endpoint(rank), [](Endpoint*) {});  // the fabric's
      };
      Context context({.device_target = options.device_target, .join = join, .warn = options.warn});
      statuses[rank] = RunBody(context, body);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return FirstError(statuses);
}

}  // namespace meshwright::manual
