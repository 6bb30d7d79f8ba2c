// Section 2 of the semantics: init, ranks, groups (feature row F2), with the errors R5 to R8.
#include "executor/manual/context.h"

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "executor/manual/launch.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::manual {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kState = absl::StatusCode::kFailedPrecondition;
constexpr auto kValue = absl::StatusCode::kInvalidArgument;

TEST(ContextTest, EightRanksHaveTheNumbersZeroToSeven) {
  std::mutex mutex;
  std::set<int64_t> ranks;
  EXPECT_OK(LaunchOnThreads(8, {}, [&](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, context.GetRank());
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size, context.GetGroupSize("mccl_world_group"));
    EXPECT_EQ(size, 8);
    const std::lock_guard<std::mutex> lock(mutex);
    ranks.insert(rank);
    return absl::OkStatus();
  }));
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(ContextTest, OneRankIsRankZeroOfOne) {
  EXPECT_OK(LaunchOnThreads(1, {}, [](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init("mccl"));
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());  // the second does nothing
    EXPECT_EQ(context.GetRank().value(), 0);
    EXPECT_EQ(context.GetGroupSize().value(), 1);
    return absl::OkStatus();
  }));
}

// R5.
TEST(ContextTest, NothingWorksBeforeInit) {
  Context context({});
  EXPECT_THAT(context.GetRank(), StatusIs(kState, "get_rank before init; call Init first [E-STATE]"));
  EXPECT_THAT(context.GetGroupSize(), StatusIs(kState, "get_group_size before init"));
  EXPECT_THAT(context.CreateGroup("g", {0}), StatusIs(kState, "create_group before init"));
  EXPECT_THAT(context.Members(""), StatusIs(kState, "a collective before init"));
}

// R6.
TEST(ContextTest, TheBackendMustBeThatOfTheDeviceTarget) {
  Context cpu({});
  EXPECT_THAT(cpu.Init("mpi"), StatusIs(kState, "no backend \"mpi\"; the device target CPU has \"mccl\" [E-STATE]"));
  EXPECT_THAT(cpu.Init("nccl"), StatusIs(kState, "init with the backend \"nccl\"; the device target CPU has \"mccl\""));
  Context gpu({.device_target = "GPU"});
  EXPECT_THAT(gpu.Init("hccl"), StatusIs(kState, "init with the backend \"hccl\"; the device target GPU has \"nccl\""));
  EXPECT_THAT(gpu.Init(), StatusIs(absl::StatusCode::kUnimplemented, "run on the host only, not on GPU"));
  Context toaster({.device_target = "toaster"});
  EXPECT_THAT(toaster.Init(), StatusIs(kState, "the device target is \"toaster\"; there are CPU, GPU and Ascend"));
}

// R7, where nothing could launch; launch_test has the environment.
TEST(ContextTest, WithoutLauncherInitSaysHowToGetOne) {
  Context context({});
  EXPECT_THAT(context.Init(), StatusIs(absl::StatusCode::kUnavailable,
                                       "use mpirun, or set MS_ROLE, MS_SCHED_HOST, MS_SCHED_PORT and "
                                       "MS_WORKER_NUM [E-LAUNCH]"));
}

TEST(ContextTest, AGroupIsOrderedByRankWhateverTheOrderOfItsList) {
  EXPECT_OK(LaunchOnThreads(4, {}, [](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, context.GetRank());
    MESHWRIGHT_RETURN_IF_ERROR(context.CreateGroup("odd", {3, 1}));
    MESHWRIGHT_RETURN_IF_ERROR(context.CreateGroup("odd", {1, 3}));  // the same ranks: nothing happens
    MESHWRIGHT_RETURN_IF_ERROR(context.CreateGroup("mccl_world_group", {3, 2, 1, 0}));
    EXPECT_EQ(context.GetGroupSize("odd").value(), 2);  // members or not
    if (rank == 1 || rank == 3) {
      EXPECT_EQ(context.GetRank("odd").value(), rank == 3 ? 1 : 0);
      return absl::OkStatus();
    }
    EXPECT_THAT(context.GetRank("odd"), StatusIs(kValue, "is not in the group \"odd\" of [1, 3] [E-VALUE]"));
    EXPECT_THAT(context.Members("odd"), StatusIs(kState, "which it is not in [E-STATE]"));
    return absl::OkStatus();
  }));
}

// R8.
TEST(ContextTest, GroupsThatCannotBeAreRefused) {
  EXPECT_OK(LaunchOnThreads(8, {}, [](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    EXPECT_THAT(context.CreateGroup("g", {0, 0}),
                StatusIs(kValue, "create_group(\"g\", [0, 0]): rank 0 is listed twice [E-VALUE]"));
    EXPECT_THAT(context.CreateGroup("g", {}), StatusIs(kValue, "a group has at least one rank [E-VALUE]"));
    EXPECT_THAT(context.CreateGroup("g", {9}), StatusIs(kValue, "there is no rank 9 in a job of 8 [E-VALUE]"));
    EXPECT_THAT(context.CreateGroup("g", {-1}), StatusIs(kValue, "there is no rank -1 in a job of 8"));
    EXPECT_THAT(context.CreateGroup("", {0}), StatusIs(kValue, "the name is empty"));
    MESHWRIGHT_RETURN_IF_ERROR(context.CreateGroup("g", {0, 1}));
    EXPECT_THAT(context.CreateGroup("g", {0, 2}), StatusIs(kValue, "the name stands for the ranks [0, 1] [E-VALUE]"));
    EXPECT_THAT(context.CreateGroup("mccl_world_group", {0}),
                StatusIs(kValue, "the name stands for the ranks [0, 1, "));
    EXPECT_THAT(context.GetRank("h"), StatusIs(kValue, "there is no group \"h\""));
    EXPECT_THAT(context.GetGroupSize("h"), StatusIs(kValue, "there is no group \"h\""));
    EXPECT_THAT(context.Members("h"), StatusIs(kState, "there is no group \"h\""));
    return absl::OkStatus();
  }));
}

// S17.1: q = 32 // N. Rank 3 of 8 gets rows 12 to 16; 5 ranks drop rows 30 and 31, and say so once.
TEST(ContextTest, RowsOfABatchAreDividedOverTheRanks) {
  EXPECT_OK(LaunchOnThreads(8, {}, [](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    MESHWRIGHT_ASSIGN_OR_RETURN(const RowRange rows, RowsOfRank(context, 32));
    if (context.GetRank().value() == 3) {
      EXPECT_EQ(rows.begin, 12);
      EXPECT_EQ(rows.end, 16);
    }
    EXPECT_EQ(rows.dropped, 0);
    EXPECT_THAT(RowsOfRank(context, 7), StatusIs(kValue, "a batch of 7 rows on 8 ranks leaves none for each"));
    return absl::OkStatus();
  }));
  std::mutex mutex;
  std::vector<std::string> warnings;
  const auto warn = [&](absl::string_view text) {
    const std::lock_guard<std::mutex> lock(mutex);
    warnings.emplace_back(text);
  };
  EXPECT_OK(LaunchOnThreads(5, {.warn = warn}, [](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    MESHWRIGHT_ASSIGN_OR_RETURN(const RowRange rows, RowsOfRank(context, 32));
    EXPECT_EQ(rows.end - rows.begin, 6);
    EXPECT_EQ(rows.dropped, 2);
    return absl::OkStatus();
  }));
  EXPECT_THAT(warnings, ElementsAre("a batch of 32 rows on 5 ranks: each gets 6, rows 30 to 31 are dropped"));
}

}  // namespace
}  // namespace meshwright::manual
