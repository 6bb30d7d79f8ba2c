// F05: the derivatives of the collectives (S3.8) are their adjoints: <F v, dy> = <v, F^T dy>, summed over the ranks,
// for every row of the table, with random numbers from printed seeds. The rows are in worked_collectives.cc.
#include <cstdint>
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

TEST(DerivativesTest, AreAdjointsOnThreads) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    EXPECT_OK(manual::LaunchOnThreads(
        8, {}, [&](manual::Context& context) { return manual::CheckDerivatives(context, seed); }));
  }
}

TEST(DerivativesTest, AreAdjointsOfProcesses) {
  const std::vector<std::string> check = {"tests/semantics/rank_check", "derivatives", "21"};
  const JobOutput sockets = RunOverSockets(8, check);
  EXPECT_OK(sockets.status) << sockets.ranks[0];
  if (!HasMpirun()) GTEST_SKIP() << "needs mpirun, which is not installed";
  const JobOutput mpi = RunUnderMpirun(8, check);
  EXPECT_OK(mpi.status) << mpi.ranks[0];
  EXPECT_EQ(mpi.ranks, sockets.ranks);
}

}  // namespace
}  // namespace meshwright
