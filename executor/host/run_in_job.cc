#include "executor/host/run_in_job.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "executor/host/rank_result_bytes.h"
#include "ir/status.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

// Rank 0 receives what the others bring home.
absl::StatusOr<RunResult> JoinAtRankZero(Endpoint& self, RankResult own) {
  const auto size_bytes = [](uint64_t& size) {
    return absl::MakeSpan(reinterpret_cast<std::byte*>(&size), sizeof(size));
  };
  if (self.rank() != 0) {
    const std::vector<std::byte> bytes = ToBytes(own);
    uint64_t size = bytes.size();
    MESHWRIGHT_RETURN_IF_ERROR(self.Send(0, Channel::kReport, size_bytes(size)));
    MESHWRIGHT_RETURN_IF_ERROR(self.Send(0, Channel::kReport, bytes));
    std::vector<RankResult> only(1);
    only[0] = std::move(own);
    return JoinResults(std::move(only));
  }
  std::vector<RankResult> ranks(1);
  ranks[0] = std::move(own);
  for (int64_t r = 1; r < self.num_ranks(); ++r) {
    uint64_t size = 0;
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(r, Channel::kReport, size_bytes(size)));
    std::vector<std::byte> bytes(size);
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(r, Channel::kReport, absl::MakeSpan(bytes)));
    ranks.push_back(RankResultFromBytes(bytes));
  }
  return JoinResults(std::move(ranks));
}

}  // namespace

absl::StatusOr<RunResult> RunInJob(const Program& program, const RunOptions& options, Endpoint& self,
                                   const PlayRank& play) {
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  if (program.mesh.num_ranks() != self.num_ranks()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the program has ", program.mesh.num_ranks(), " ranks, the job has ", self.num_ranks(),
                     "; start it with as many processes, e.g. mpirun -np ", program.mesh.num_ranks()));
  }
  self.set_deadline(options.deadline);
  absl::StatusOr<RankResult> own = play(self);
  absl::StatusOr<RunResult> result =
      own.ok() ? JoinAtRankZero(self, *std::move(own)) : absl::StatusOr<RunResult>(own.status());
  if (absl::IsCancelled(result.status()) && !self.abort_reason().ok()) return self.abort_reason();
  return result;
}

}  // namespace meshwright
