#include "tools/measure/core_sharing.h"

#include <thread>
#include <vector>

#include "executor/host/run_on_threads.h"
#include "executor/host/thread_fabric.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

// `play(rank)` for each rank of a job of four; what rank 0 measures.
template <class F>
double OverFour(const Experiment& experiment, const F& play) {
  ThreadFabric fabric(4, {});
  std::vector<double> found(4);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::StatusOr<double> sharing = MeasureCoreSharing(experiment, play(rank), fabric.endpoint(rank));
      EXPECT_OK(sharing.status());
      found[static_cast<size_t>(rank)] = sharing.value_or(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 1; rank < 4; ++rank) EXPECT_EQ(found[rank], 1);
  return found[0];
}

// Rank 0 plays alone in 10 ms and at once in 25, the first time in 3 ms more; rank 2, beside it, in 30: 3 times as
// long.
TEST(CoreSharingTest, TimeAtOnceByTimeAlone) {
  ASSERT_OK_AND_ASSIGN(const Experiment experiment, SharingExperiment(QuickPlan(HostPlan())));
  EXPECT_OK(VerifyProgram(experiment.program));
  std::vector<int> plays(4);
  const double sharing = OverFour(experiment, [&](int64_t rank) -> PlayProgram {
    return [&plays, rank](const Program&, const RunOptions&, const DataSource&) -> absl::StatusOr<RunResult> {
      const int number = plays[static_cast<size_t>(rank)]++;
      const bool alone = number % 2 == 0 && rank == 0;
      const Nanos late = number < 2 ? Millis(3) : Nanos();
      RunResult result;
      result.trace.spans = {{0, 0, 0, 0, Stream::kCompute, Millis(1), alone ? Millis(7) : Millis(11)},
                            {0, 0, 0, 1, Stream::kCompute, Millis(20),
                             late + (alone       ? Millis(24)
                                     : rank == 2 ? Millis(40)
                                                 : Millis(35))}};
      return result;
    };
  });
  EXPECT_DOUBLE_EQ(sharing, 3);
  EXPECT_EQ(plays, (std::vector<int>{6, 3, 3, 3}));
}

// Nobody shares with one rank: nothing is played, whose times would differ by chance.
TEST(CoreSharingTest, OneRankSharesWithNobody) {
  ASSERT_OK_AND_ASSIGN(const Experiment experiment, SharingExperiment(QuickPlan(HostPlan())));
  ThreadFabric fabric(1, {});
  const auto play = [](const Program&, const RunOptions&, const DataSource&) -> absl::StatusOr<RunResult> {
    return absl::InternalError("played");
  };
  ASSERT_OK_AND_ASSIGN(const double sharing, MeasureCoreSharing(experiment, play, fabric.endpoint(0)));
  EXPECT_EQ(sharing, 1);
}

TEST(CoreSharingTest, PlaysOnTheHost) {
  ASSERT_OK_AND_ASSIGN(const Experiment experiment, SharingExperiment(QuickPlan(HostPlan())));
  EXPECT_GE(OverFour(experiment, [](int64_t) -> PlayProgram { return RunOnThreads; }), 1);
}

}  // namespace
}  // namespace meshwright
