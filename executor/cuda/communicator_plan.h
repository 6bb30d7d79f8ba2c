// Which communicators a program needs, and the one order in which every rank makes them (S2.5: by first use in the
// program, then by rank list).
//
//   collectives   one per (stream, ordered group): two streams may be in two collectives at once
//   transfers     one per ordered pair (from, to): both directions may be under way at once
//   permutations  one per (stream, class)
//
// Communicators of a round have no rank in common, so that one split of the world makes all of them at once.
//
// Thread safety: pure functions, plain values.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_COMMUNICATOR_PLAN_H_
#define MESHWRIGHT_EXECUTOR_CUDA_COMMUNICATOR_PLAN_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/program.h"

namespace meshwright::cuda {

enum class CommUse : uint8_t { kCollective, kTransfer, kPermute };

struct PlannedCommunicator {
  CommUse use = CommUse::kCollective;
  Stream stream = Stream::kCompute;  // of collectives and permutations
  std::vector<int64_t> ranks;        // in order: the position of a rank is its place here
  int64_t round = 0;

  // The place of `rank`, or -1.
  int64_t PositionOf(int64_t rank) const;
};

struct CommunicatorPlan {
  std::vector<PlannedCommunicator> communicators;  // in the order in which they are made
  int64_t rounds = 0;

  // The index of the one for this use, or -1.
  int64_t Find(CommUse use, Stream stream, absl::Span<const int64_t> ranks) const;

  std::map<std::tuple<CommUse, Stream, std::vector<int64_t>>, int64_t> index;
};

// kInvalidArgument for a transfer to a stage that there is not.
absl::StatusOr<CommunicatorPlan> PlanCommunicators(const Program& program);

// "all_reduce" and the like are the instruction's to say; this says "ranks 0-2-4 on stream comm".
std::string Describe(const PlannedCommunicator& communicator);

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_COMMUNICATOR_PLAN_H_
