// F04: every row of the table of worked values S3.9, on the host: ranks as threads, as processes over sockets, as
// processes under mpirun. The rows are in worked_collectives.cc; executor/manual/collectives_test.cc has the errors of
// S3.1 to S3.7. NCCL carries the collectives of a Program on GPUs (executor/cuda), not these.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/manual/launch.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tests/semantics/job.h"
#include "tests/semantics/worked_collectives.h"

namespace meshwright {
namespace {

const std::vector<std::string> kCheck = {"tests/semantics/rank_check", "values", "0"};

void ExpectAllRight(const JobOutput& job) {
  EXPECT_OK(job.status);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(job.ranks[rank], absl::StrCat("rank ", rank, " of 8: ok\n"));
}

TEST(CollectivesTest, WorkedValuesOnThreads) { EXPECT_OK(manual::LaunchOnThreads(8, {}, manual::CheckWorkedValues)); }

TEST(CollectivesTest, WorkedValuesOverSockets) { ExpectAllRight(RunOverSockets(8, kCheck)); }

TEST(CollectivesTest, WorkedValuesUnderMpirun) {
  if (!HasMpirun()) GTEST_SKIP() << "needs mpirun, which is not installed";
  ExpectAllRight(RunUnderMpirun(8, kCheck));
}

}  // namespace
}  // namespace meshwright
