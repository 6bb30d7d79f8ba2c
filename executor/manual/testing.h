// For tests: runs the same body on ranks of every kind that one process can hold.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_TESTING_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_TESTING_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "executor/manual/context.h"

namespace meshwright::manual {

// Runs `body`, after Init, on each of n ranks that are threads and talk through a ThreadFabric, and again on ranks that
// talk over sockets; expects OK of all. A rank that waits in vain gives up after 200 seconds.
void OnRanks(int64_t n, const std::function<absl::Status(Context& context, int64_t rank)>& body);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_TESTING_H_
