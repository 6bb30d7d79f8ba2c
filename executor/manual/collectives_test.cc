// The worked values of S3.9 (feature row F4), the errors of S3.1 to S3.7 and R9, on threads and over sockets.
#include "executor/manual/collectives.h"

#include <vector>

#include "executor/manual/launch.h"
#include "executor/manual/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::manual {
namespace {

using ::testing::ElementsAre;

constexpr auto kState = absl::StatusCode::kFailedPrecondition;
constexpr auto kValue = absl::StatusCode::kInvalidArgument;

using D = std::vector<double>;
Tensor Doubles(const Shape& shape, const D& values) { return Tensor::Of<double>(shape, values); }

// 2x2 full of r: sum 6, max 3, min 0; of r + 1: product 24. The same for every type that is reduced.
TEST(CollectivesTest, AllReduceGivesEveryRankTheReduction) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const auto check = [&](auto zero) -> absl::Status {
      using T = decltype(zero);
      const T r = static_cast<T>(rank);
      const struct {
        const char* op;
        T value, want;
      } cases[] = {{"sum", r, 6}, {"max", r, 3}, {"min", r, 0}, {"prod", static_cast<T>(r + 1), 24}};
      for (const auto& c : cases) {
        MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, AllReduce(context, Tensor::Full<T>({2, 2}, c.value), c.op));
        EXPECT_EQ(y, Tensor::Full<T>({2, 2}, c.want)) << c.op << " of " << NameOf(y.dtype);
      }
      return absl::OkStatus();
    };
    MESHWRIGHT_RETURN_IF_ERROR(check(float{}));
    MESHWRIGHT_RETURN_IF_ERROR(check(double{}));
    MESHWRIGHT_RETURN_IF_ERROR(check(int32_t{}));
    return check(int64_t{});
  });
}

TEST(CollectivesTest, AGroupOfOneChangesNothing) {
  OnRanks(1, [](Context& context, int64_t) -> absl::Status {
    const Tensor x = Doubles({2}, {3, 5});
    EXPECT_EQ(AllReduce(context, x).value(), x);
    EXPECT_EQ(AllGather(context, x).value(), x);
    EXPECT_EQ(ReduceScatter(context, x).value(), x);
    EXPECT_EQ(Broadcast(context, {x}, 0).value(), std::vector<Tensor>{x});
    EXPECT_EQ(AlltoAll(context, x, {1, 0, 0}).value(), x);
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, AllGatherPutsRowsInTheOrderOfTheGroup) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, AllGather(context, Doubles({1, 1}, {static_cast<double>(rank)})));
    EXPECT_EQ(y, Doubles({4, 1}, {0, 1, 2, 3}));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, ReduceScatterGivesEachItsRows) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, ReduceScatter(context, Doubles({4, 1}, {0, 1, 2, 3})));
    EXPECT_EQ(y, Doubles({1, 1}, {4.0 * static_cast<double>(rank)}));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, BroadcastSendsATupleFromTheRoot) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.CreateGroup("odd", {1, 3}));
    const Tensor a = Tensor::Full<float>({2, 3}, static_cast<float>(rank)), b = Tensor::Of<int32_t>({}, {7});
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Tensor> ys, Broadcast(context, {a, b}, 2));
    EXPECT_EQ(ys[0], Tensor::Full<float>({2, 3}, 2));
    EXPECT_EQ(ys[1], b);
    if (rank % 2 == 0) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Tensor> odd, Broadcast(context, {a}, 3, "odd"));
    EXPECT_EQ(odd[0], Tensor::Full<float>({2, 3}, 3));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, AlltoAllExchangesSplitForConcat) {
  OnRanks(2, [](Context& context, int64_t rank) -> absl::Status {
    D values = {0, 1, 2, 3, 4, 5, 6, 7};
    for (double& value : values) value += 10.0 * static_cast<double>(rank);
    const Tensor x = Doubles({2, 4}, values);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor columns, AlltoAll(context, x, {2, 1, 0}));
    EXPECT_EQ(columns, rank == 0 ? Doubles({4, 2}, {0, 1, 4, 5, 10, 11, 14, 15})
                                 : Doubles({4, 2}, {2, 3, 6, 7, 12, 13, 16, 17}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor rows, AlltoAll(context, x, {2, 0, 1}));
    EXPECT_EQ(rows, rank == 0 ? Doubles({1, 8}, {0, 1, 2, 3, 10, 11, 12, 13})
                              : Doubles({1, 8}, {4, 5, 6, 7, 14, 15, 16, 17}));
    return absl::OkStatus();
  });
  OnRanks(8, [](Context& context, int64_t rank) -> absl::Status {
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const Tensor y, AlltoAll(context, Tensor::Full<double>({1, 1, 8, 1}, static_cast<double>(rank)), {8, 2, 3}));
    EXPECT_EQ(y, Doubles({1, 1, 1, 8}, {0, 1, 2, 3, 4, 5, 6, 7}));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, NeighborExchangeSwapsTensorsOfDifferentShapes) {
  OnRanks(2, [](Context& context, int64_t rank) -> absl::Status {
    const Tensor ones = Tensor::Full<float>({3, 3}, 1), twos = Tensor::Full<float>({2, 2}, 2);
    const Tensor& own = rank == 0 ? ones : twos;
    const Tensor& other = rank == 0 ? twos : ones;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Tensor> ys, NeighborExchange(context, {own},
                                                                               {.send_ranks = {1 - rank},
                                                                                .recv_ranks = {1 - rank},
                                                                                .recv_shapes = {other.shape},
                                                                                .send_shapes = {own.shape}}));
    EXPECT_THAT(ys, ElementsAre(other));
    return absl::OkStatus();
  });
}

// r0 over r1, tiles of 2x2: each gets the row of the other that faces it.
TEST(CollectivesTest, NeighborExchangeV2PutsStripsOutsideTheTile) {
  OnRanks(2, [](Context& context, int64_t rank) -> absl::Status {
    const std::array<int64_t, 8> neighbors = GridNeighbors(2, 1, rank);
    const std::array<int64_t, 4> lens = rank == 0 ? std::array<int64_t, 4>{0, 1, 0, 0} : std::array<int64_t, 4>{1};
    const Tensor x = Tensor::Full<double>({1, 1, 2, 2}, static_cast<double>(rank + 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, NeighborExchangeV2(context, x, {neighbors, neighbors, lens, lens}));
    EXPECT_EQ(y, rank == 0 ? Doubles({1, 1, 3, 2}, {1, 1, 1, 1, 2, 2}) : Doubles({1, 1, 3, 2}, {1, 1, 2, 2, 2, 2}));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, NeighborExchangeV2PutsCornersInTheCorners) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const std::array<int64_t, 8> neighbors = GridNeighbors(2, 2, rank);
    const int64_t below = rank < 2, right = rank % 2 == 0;
    const std::array<int64_t, 4> lens = {1 - below, below, 1 - right, right};
    const Tensor x = Tensor::Full<double>({1, 1, 2, 2}, static_cast<double>(rank));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, NeighborExchangeV2(context, x, {neighbors, neighbors, lens, lens}));
    const D want[4] = {{0, 0, 1, 0, 0, 1, 2, 2, 3},
                       {0, 1, 1, 0, 1, 1, 2, 3, 3},
                       {0, 0, 1, 2, 2, 3, 2, 2, 3},
                       {0, 1, 1, 2, 3, 3, 2, 3, 3}};
    EXPECT_EQ(y, Doubles({1, 1, 3, 3}, want[rank]));
    return absl::OkStatus();
  });
}

// A ring of one row: rank 1 is both to the left and to the right of rank 0. Tiles (1 2) and (3 4): 4 1 2 3, 2 3 4 1.
TEST(CollectivesTest, NeighborExchangeV2OnARingOfTwo) {
  OnRanks(2, [](Context& context, int64_t rank) -> absl::Status {
    const int64_t other = 1 - rank;
    const std::array<int64_t, 8> neighbors = {-1, -1, other, -1, -1, -1, other, -1};
    const Tensor x = rank == 0 ? Doubles({1, 1, 1, 2}, {1, 2}) : Doubles({1, 1, 1, 2}, {3, 4});
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y,
                                NeighborExchangeV2(context, x, {neighbors, neighbors, {0, 0, 1, 1}, {0, 0, 1, 1}}));
    EXPECT_EQ(y, rank == 0 ? Doubles({1, 1, 1, 4}, {4, 1, 2, 3}) : Doubles({1, 1, 1, 4}, {2, 3, 4, 1}));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, GridNeighborsGoClockwiseFromTheTop) {
  EXPECT_THAT(GridNeighbors(4, 4, 10), ElementsAre(6, 7, 11, 15, 14, 13, 9, 5));
  EXPECT_THAT(GridNeighbors(4, 4, 0), ElementsAre(-1, -1, 1, 5, 4, -1, -1, -1));
}

// R9, and the other mistakes that all ranks make alike: all get the message of rank 0, and may go on.
TEST(CollectivesTest, WhatAllDoWrongIsOneErrorOnAll) {
  OnRanks(4, [](Context& context, int64_t) -> absl::Status {
    const Tensor six = Tensor::Zeros({6, 2}, DType::kFloat32), scalar = Tensor::Full<float>({}, 1);
    EXPECT_THAT(ReduceScatter(context, six),
                StatusIs(kValue, "rank 0: ReduceScatter: dim 0 of (6, 2) is 6, which 4 ranks do not divide [E-VALUE]"));
    EXPECT_THAT(AlltoAll(context, six, {3, 0, 0}),
                StatusIs(kValue, "AlltoAll: split_count is 3, the group has 4 ranks; they must be equal [E-VALUE]"));
    EXPECT_THAT(AlltoAll(context, six, {4, 0, 1}),
                StatusIs(kValue, "split_dim 0 of (6, 2) is 6, which split_count 4 does not divide [E-VALUE]"));
    EXPECT_THAT(AlltoAll(context, six, {4, 2, 0}), StatusIs(kValue, "split_dim is 2, the tensor has 2 dims [E-VALUE]"));
    EXPECT_THAT(AlltoAll(context, six, {4, 0, -1}), StatusIs(kValue, "concat_dim is -1, the tensor has 2 dims"));
    EXPECT_THAT(AllReduce(context, six, "mean"),
                StatusIs(kValue, "no reduction \"mean\"; there are sum, max, min, prod [E-VALUE]"));
    EXPECT_THAT(AllReduce(context, Tensor::Zeros({2}, DType::kBool)),
                StatusIs(kValue, "AllReduce: the tensor is bool; wants numbers [E-TYPE]"));
    EXPECT_THAT(AllReduce(context, Tensor::Zeros({2}, DType::kBFloat16)),
                StatusIs(absl::StatusCode::kUnimplemented, "int32 and int64, not bfloat16"));
    EXPECT_THAT(AllReduce(context, {{2}, DType::kFloat32, {}}),
                StatusIs(kValue, "a tensor of float32 (2) holds 0 bytes, not 8"));
    EXPECT_THAT(AllGather(context, scalar),
                StatusIs(kValue, "the tensor is a scalar; wants at least one dim [E-VALUE]"));
    EXPECT_THAT(Broadcast(context, {scalar}, 4), StatusIs(kValue, "the root is rank 4, which is not in the group"));
    EXPECT_THAT(AllReduce(context, scalar, "sum", "nobody"), StatusIs(kState, "there is no group \"nobody\""));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(context, scalar));
    EXPECT_EQ(sum, Tensor::Full<float>({}, 4)) << "after the errors";
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, WhatOneDoesWrongIsTheSameErrorOnAll) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const Tensor x = Tensor::Zeros({rank == 2 ? 3 : 2}, DType::kFloat32);
    EXPECT_THAT(AllReduce(context, x),
                StatusIs(kValue,
                         "AllReduce: rank 0 has sum of float32 (2), rank 2 has sum of float32 (3); they must be "
                         "the same on all members [E-VALUE]"));
    EXPECT_THAT(AllReduce(context, x, rank == 3 ? "best" : "sum"), StatusIs(kValue, "rank 3: AllReduce: no reduction"));
    EXPECT_THAT(Broadcast(context, {x}, rank == 1 ? 1 : 0),
                StatusIs(kValue, "from rank 0, rank 1 has float32 (2) from"));
    EXPECT_THAT(rank == 1 ? AllGather(context, x) : AllReduce(context, x),
                StatusIs(kState,
                         "rank 0 calls AllReduce, rank 1 AllGather; the members of a group call the same "
                         "collectives in the same order [E-STATE]"));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, ExchangesThatDoNotMeetAreRefusedOnAll) {
  OnRanks(3, [](Context& context, int64_t rank) -> absl::Status {
    const Tensor x = Tensor::Zeros({2}, DType::kFloat32);
    // Rank 0 sends two to rank 1, which waits for one.
    NeighborExchangeSpec spec;
    if (rank == 0) spec = {.send_ranks = {1, 1}, .recv_ranks = {}, .recv_shapes = {}, .send_shapes = {{2}, {2}}};
    if (rank == 1) spec = {.send_ranks = {}, .recv_ranks = {0}, .recv_shapes = {{2}}, .send_shapes = {}};
    const std::vector<Tensor> xs(spec.send_ranks.size(), x);
    EXPECT_THAT(NeighborExchange(context, xs, spec),
                StatusIs(kValue, "NeighborExchange: rank 0 sends 2 tensors to rank 1, which waits for 1 [E-LAYOUT]"));
    // Rank 2 waits for what nobody sends.
    spec = {};
    if (rank == 2) spec = {.send_ranks = {}, .recv_ranks = {1}, .recv_shapes = {{2}}, .send_shapes = {}};
    EXPECT_THAT(NeighborExchange(context, {}, spec),
                StatusIs(kValue, "rank 1 sends 0 tensors to rank 2, which waits for 1"));
    // Another shape.
    spec = {};
    if (rank == 0) spec = {.send_ranks = {2}, .recv_ranks = {}, .recv_shapes = {}, .send_shapes = {{2}}};
    if (rank == 2) spec = {.send_ranks = {}, .recv_ranks = {0}, .recv_shapes = {{3}}, .send_shapes = {}};
    EXPECT_THAT(NeighborExchange(context, std::vector<Tensor>(spec.send_ranks.size(), x), spec),
                StatusIs(kValue, "rank 0 sends float32 (2) to rank 2, which waits for float32 (3) [E-LAYOUT]"));
    // What one rank sees for itself.
    EXPECT_THAT(
        NeighborExchange(context, {x}, {.send_ranks = {0}, .recv_ranks = {}, .recv_shapes = {}, .send_shapes = {}}),
        StatusIs(kValue, "1 send_ranks, 0 send_shapes and 1 inputs; wants as many of each [E-VALUE]"));
    EXPECT_THAT(
        NeighborExchange(context, {}, {.send_ranks = {}, .recv_ranks = {0}, .recv_shapes = {}, .send_shapes = {}}),
        StatusIs(kValue, "1 recv_ranks and 0 recv_shapes; wants as many of each [E-VALUE]"));
    EXPECT_THAT(
        NeighborExchange(context, {x}, {.send_ranks = {0}, .recv_ranks = {}, .recv_shapes = {}, .send_shapes = {{4}}}),
        StatusIs(kValue, "send_shapes[0] is (4), the input is (2) [E-VALUE]"));
    EXPECT_THAT(
        NeighborExchange(context, {x}, {.send_ranks = {3}, .recv_ranks = {}, .recv_shapes = {}, .send_shapes = {{2}}}),
        StatusIs(kValue, "send_ranks has rank 3, which is not in the group [E-VALUE]"));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, HalosThatDoNotFitAreRefusedOnAll) {
  OnRanks(2, [](Context& context, int64_t rank) -> absl::Status {
    const std::array<int64_t, 8> neighbors = GridNeighbors(2, 1, rank), none = {-1, -1, -1, -1, -1, -1, -1, -1};
    const std::array<int64_t, 4> one = rank == 0 ? std::array<int64_t, 4>{0, 1, 0, 0} : std::array<int64_t, 4>{1};
    const std::array<int64_t, 4> two = rank == 0 ? std::array<int64_t, 4>{0, 2, 0, 0} : std::array<int64_t, 4>{2};
    const std::array<int64_t, 4> three = rank == 0 ? std::array<int64_t, 4>{0, 3, 0, 0} : std::array<int64_t, 4>{3};
    const Tensor x = Tensor::Zeros({1, 1, 2, 2}, DType::kFloat32);
    EXPECT_THAT(NeighborExchangeV2(context, x, {neighbors, neighbors, one, two}),
                StatusIs(kValue,
                         "NeighborExchangeV2: rank 0 sends float32 (1, 1, 1, 2) for its top to rank 1, which "
                         "waits for float32 (1, 1, 2, 2) for its top [E-LAYOUT]"));
    EXPECT_THAT(NeighborExchangeV2(context, x, {neighbors, neighbors, three, three}),
                StatusIs(kValue, "send_lens is 3 at the bottom, the tile has 2 [E-VALUE]"));
    EXPECT_THAT(NeighborExchangeV2(context, x, {none, none, {0, 0, 1, 0}, {}}),
                StatusIs(kValue, "send_lens is 1 at the left, where there is no neighbour; wants 0 [E-VALUE]"));
    EXPECT_THAT(NeighborExchangeV2(context, x, {none, none, {}, {0, 0, 0, -1}}),
                StatusIs(kValue, "recv_lens is -1 at"));
    EXPECT_THAT(NeighborExchangeV2(context, x, {{5, -1, -1, -1, -1, -1, -1, -1}, none, {}, {}}),
                StatusIs(kValue, "send_ranks has rank 5 at the top, which is not in the group; -1 is none [E-VALUE]"));
    EXPECT_THAT(NeighborExchangeV2(context, x, {none, none, {}, {}, "NHWC"}),
                StatusIs(kValue, "data_format is \"NHWC\"; there is only NCHW [E-VALUE]"));
    EXPECT_THAT(NeighborExchangeV2(context, Tensor::Zeros({2, 2}, DType::kFloat32), {none, none, {}, {}}),
                StatusIs(kValue, "the tensor has 2 dims, wants 4: N, C, H, W [E-VALUE]"));
    return absl::OkStatus();
  });
}

TEST(CollectivesTest, AWaitForARankThatDoesNotComeEnds) {
  const absl::Status status =
      LaunchOnThreads(2, {.deadline = absl::Milliseconds(100)}, [](Context& context) -> absl::Status {
        MESHWRIGHT_RETURN_IF_ERROR(context.Init());
        if (context.GetRank().value() == 0) return absl::OkStatus();
        return AllReduce(context, Tensor::Full<float>({}, 1)).status();
      });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1 waited 100ms for a message from rank 0"));
}

TEST(CollectivesTest, ARankThatFailsStopsTheOthers) {
  const absl::Status status = LaunchOnThreads(4, {}, [](Context& context) -> absl::Status {
    MESHWRIGHT_RETURN_IF_ERROR(context.Init());
    if (context.GetRank().value() == 3) return absl::InternalError("out of cheese");
    const absl::StatusOr<Tensor> sum = AllReduce(context, Tensor::Full<float>({}, 1));
    EXPECT_THAT(sum, StatusIs(absl::StatusCode::kCancelled, "out of cheese"));
    return sum.status();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "out of cheese"));
}

}  // namespace
}  // namespace meshwright::manual
