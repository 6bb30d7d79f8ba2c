// What a stand-in's streams hold, and the product that stands in for cuBLASLt's. For tests only.
//
// Thread safety: the machine's lock guards everything here.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_WORK_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_WORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/testing/shadow.h"
#include "executor/cuda/testing/stand_in.h"
#include "executor/cuda/testing/stand_in_comm.h"

namespace meshwright::cuda::testing {

struct Event {
  int64_t issued = 0, done = 0;  // records
  VectorClock clock;             // of the latest record issued
  absl::Time time;
};

struct Task {
  enum class Kind : uint8_t { kRun, kRecord, kWait, kLaunch };
  Kind kind = Kind::kRun;
  std::string name;
  std::vector<Access> accesses;
  std::function<absl::Status()> run;
  Event* event = nullptr;
  int64_t generation = 0;
  CommMember* member = nullptr;
  std::vector<CommCall> calls;
  std::shared_ptr<CommLaunch> launch;  // made when it is issued
  bool hangs = false;
  std::optional<CommError> breaks;  // the communicator, when it gets its turn
};

struct StreamState {
  size_t id = 0;
  std::deque<Task> tasks;
  VectorClock clock;
};

struct Graph {
  std::vector<std::pair<StreamState*, Task>> tasks;
  std::set<StreamState*> streams;
};

struct Allocation {
  std::byte* data;
  int64_t size;
  Shadow shadow;
};

// Notes an access by the work of `stream` that is its clock's latest. What is wrong with it, or "".
std::string Enter(const Access& access, size_t stream, const VectorClock& clock,
                  std::map<std::byte*, Allocation>& allocations);

// A single byte may be looked at by the host meanwhile.
void CopyBytes(const std::byte* from, std::byte* to, int64_t size);

struct HostGemm {
  std::vector<Access> accesses;
  std::function<absl::Status()> run;
};
// kUnimplemented for types that the host does not store.
absl::StatusOr<HostGemm> PlanGemm(const GemmCall& call);

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_WORK_H_
