#include "executor/host/host_backend.h"

#include <vector>

#include "executor/host/thread_fabric.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TensorView View(std::vector<double>& values, const Shape& shape, const Shape& global, const Shape& begin) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kFloat64, shape, global, begin};
}

TEST(HostBackendTest, TheArenaIsAlignedAndShowsWhatNobodyWrote) {
  ThreadFabric fabric(1);
  HostBackend backend(fabric.endpoint(0));
  ASSERT_OK_AND_ASSIGN(std::byte* const arena, backend.AllocateArena(Bytes(1000)));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena) % kAlignment, 0u);
  EXPECT_THAT(std::vector<std::byte>(arena, arena + 1000), Each(std::byte{0xff}));
}

// Rows 2.. of the whole, of which columns 1 and 2 are wanted from row 3.
TEST(HostBackendTest, ASliceCountsFromWhereItsSourceBegins) {
  ThreadFabric fabric(1);
  HostBackend backend(fabric.endpoint(0));
  std::vector<double> from = {20, 21, 22, 30, 31, 32}, to(2);
  const TensorView source = View(from, {2, 3}, {4, 3}, {2, 0});
  ASSERT_OK(backend.RunSlice(Stream::kCompute, source, View(to, {1, 2}, {4, 3}, {3, 1})));
  EXPECT_THAT(to, ElementsAre(31, 32));
  EXPECT_THAT(backend.RunSlice(Stream::kCompute, source, View(to, {1, 2}, {4, 3}, {1, 1})),
              StatusIs(absl::StatusCode::kInvalidArgument, "slice (1, 2) at (1, 1) of (2, 3) at (2, 0)"));
}

// The other rank never comes.
TEST(HostBackendTest, ACollectiveThatWaitsInVainNamesItsGroup) {
  ThreadFabric fabric(2, {.deadline = absl::Milliseconds(20)});
  HostBackend backend(fabric.endpoint(1));
  std::vector<double> values(4);
  const Collective collective;  // all_reduce sum
  const std::vector<int64_t> group = {1, 0};
  const std::vector<TensorView> views = {View(values, {4}, {4}, {0})};
  EXPECT_THAT(backend.RunCollective(Stream::kComm, {&collective, group, 0, views, views}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "all_reduce over ranks 1-0: rank 1 waited 20ms for a message from"));
}

TEST(HostBackendTest, CollectivesCheckTheirShapes) {
  ThreadFabric fabric(1);
  HostBackend backend(fabric.endpoint(0));
  std::vector<double> values(4), less(3);
  const std::vector<int64_t> group = {0};
  const std::vector<TensorView> four = {View(values, {4}, {4}, {0})}, three = {View(less, {3}, {3}, {0})};
  Collective collective;
  EXPECT_THAT(backend.RunCollective(Stream::kComm, {&collective, group, 0, four, three}),
              StatusIs(absl::StatusCode::kInvalidArgument, "all_reduce over ranks 0: from (4) to (3)"));
  EXPECT_THAT(backend.RunCollective(Stream::kComm, {&collective, group, 0, {}, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "as many reads as writes"));
  collective.kind = CollectiveKind::kAllGather;
  collective.dim = 1;
  EXPECT_THAT(backend.RunCollective(Stream::kComm, {&collective, group, 0, four, four}),
              StatusIs(absl::StatusCode::kInvalidArgument, "dim 1 of a tensor (4)"));
}

}  // namespace
}  // namespace meshwright
