// The stand-in's communicators: who has called what, and what happens when all members have. For tests only.
//
// Thread safety: the machine's lock guards everything here.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_COMM_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_COMM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/driver.h"

namespace meshwright::cuda::testing {

enum class CallKind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kSend, kReceive };

struct CommGroup;

// One rank's end of a communicator.
struct CommMember {
  std::shared_ptr<CommGroup> group;  // null until all members are there
  int64_t device = 0, position = 0;
  bool aborted = false;
  bool for_estimates = false;  // what is called on it is never launched
  CommError error = CommError::kNone;
  int64_t splits = 0, collectives = 0;  // called so far
};

struct CommCall {
  CallKind kind = CallKind::kAllReduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;
  int64_t peer = 0;  // or root
  bool done = false;

  int64_t bytes() const { return count * SizeOf(dtype).raw(); }
  int64_t read_bytes(int64_t members) const;   // of `from`, null for none
  int64_t write_bytes(int64_t members) const;  // of `to`
};

// What one group call puts on one stream.
struct CommLaunch {
  CommMember* member = nullptr;
  std::vector<CommCall> calls;
  bool arrived = false, hangs = false;
  bool done() const;
};

struct CommGroup {
  std::vector<CommMember*> members;  // by position
  bool broken = false;               // a member went away: nothing is done any more
  std::map<int64_t, std::vector<std::pair<CommMember*, CommCall*>>> collectives;  // by number, while not complete
  std::map<std::pair<int64_t, int64_t>, std::deque<CommCall*>> sends, receives;   // by (from, to)
  struct SplitCall {
    int64_t color, key;
    CommMember* made;  // null for no colour
  };
  std::map<int64_t, std::map<int64_t, SplitCall>> splits;  // by number and position
};

// What is wrong with a call by itself, or "".
std::string CheckCall(const CommCall& call, int64_t position, int64_t members);
// The launch has come to the head of its stream: its calls meet those of the others, and what is complete is done.
// Returns what is wrong, or "".
std::string Arrive(CommLaunch& launch);
// Notes a split, and makes the communicators when all members have called.
void Split(CommMember& parent, int64_t color, int64_t key, CommMember* made);

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_COMM_H_
