// Every row of S3.8: over all ranks, <J v, dy> = <v, J^T dy> (feature row F5), where J is the derivative of the
// collective, worked out in each test. All numbers are small integers, so both sides are exact.
#include "executor/manual/gradients.h"

#include <random>
#include <vector>

#include "executor/manual/point_to_point.h"
#include "executor/manual/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::manual {
namespace {

using ::testing::ElementsAre;

constexpr auto kState = absl::StatusCode::kFailedPrecondition;
constexpr auto kValue = absl::StatusCode::kInvalidArgument;
using Tensors = std::vector<Tensor>;

// Integers from -4 to 4, others on every rank and for every salt.
Tensor Random(const Shape& shape, int64_t rank, uint32_t salt) {
  std::mt19937 generator(static_cast<uint32_t>(rank) * 1000 + salt);
  Tensor tensor = Tensor::Zeros(shape, DType::kFloat64);
  for (double& value : tensor.As<double>()) value = static_cast<double>(generator() % 9) - 4;
  return tensor;
}

double Dot(const Tensors& a, const Tensors& b) {
  double sum = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t t = 0; t < a.size(); ++t) {
    EXPECT_EQ(a[t].shape, b[t].shape);
    for (size_t i = 0; i < a[t].As<double>().size(); ++i) sum += a[t].As<double>()[i] * b[t].As<double>()[i];
  }
  return sum;
}

// <J v, dy> - <v, J^T dy> over all ranks of the world must vanish, and neither side be trivially zero.
absl::Status ExpectAdjoint(Context& context, const Tensors& v, const Tensors& jv, const Tensors& dy,
                           const Tensors& dx) {
  const Tensor sides = Tensor::Of<double>({3}, {Dot(jv, dy), Dot(v, dx), std::abs(Dot(jv, dy))});
  MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(context, sides));
  EXPECT_EQ(sum.As<double>()[0], sum.As<double>()[1]);
  EXPECT_GT(sum.As<double>()[2], 0) << "these data show nothing";
  return absl::OkStatus();
}

TEST(GradientsTest, AllReduceSum) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const Tensor x = Random({2, 3}, rank, 1), v = Random({2, 3}, rank, 2), dy = Random({2, 3}, rank, 3);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, AllReduce(context, x));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor jv, AllReduce(context, v));  // linear
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, AllReduceGrad(context, x, y, dy));
    return ExpectAdjoint(context, {v}, {jv}, {dy}, {dx});
  });
}

// Where no two ranks tie, (J v)[i] = v[i] of the rank that has the extreme x[i].
TEST(GradientsTest, AllReduceMaxAndMin) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    Tensor x = Tensor::Zeros({5}, DType::kFloat64);
    for (int64_t i = 0; i < 5; ++i)
      x.As<double>()[i] = static_cast<double>((rank + i) % 4);  // a permutation for each i
    const Tensor v = Random({5}, rank, 2), dy = Random({5}, rank, 3);
    for (const char* op : {"max", "min"}) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, AllReduce(context, x, op));
      Tensor own = v;
      for (int64_t i = 0; i < 5; ++i) {
        if (x.As<double>()[i] != y.As<double>()[i]) own.As<double>()[i] = 0;
      }
      MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor jv, AllReduce(context, own));
      MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, AllReduceGrad(context, x, y, dy, op));
      MESHWRIGHT_RETURN_IF_ERROR(ExpectAdjoint(context, {v}, {jv}, {dy}, {dx}));
    }
    return absl::OkStatus();
  });
}

// x = (r, 7): the maximum of the second element is on all ranks. dy = 1 on 4 ranks: (0, 4), on rank 3 (4, 4).
TEST(GradientsTest, MembersThatTieForTheMaximumGetTheGradientInFull) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const Tensor x = Tensor::Of<double>({2}, {static_cast<double>(rank), 7});
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, AllReduce(context, x, "max"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, AllReduceGrad(context, x, y, Tensor::Full<double>({2}, 1), "max"));
    EXPECT_THAT(dx.As<double>(), ElementsAre(rank == 3 ? 4 : 0, 4));
    return absl::OkStatus();
  });
}

// y = prod x_r: (J v) = sum over r of v_r y / x_r. x is a power of two with a sign: exact.
TEST(GradientsTest, AllReduceProd) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    Tensor x = Tensor::Zeros({3}, DType::kFloat64);
    for (int64_t i = 0; i < 3; ++i) {
      x.As<double>()[i] = static_cast<double>(int64_t{1} << ((rank + i) % 4)) * (rank == i ? -1 : 1);
    }
    const Tensor v = Random({3}, rank, 2), dy = Random({3}, rank, 3);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor y, AllReduce(context, x, "prod"));
    Tensor own = v;
    for (int64_t i = 0; i < 3; ++i) own.As<double>()[i] *= y.As<double>()[i] / x.As<double>()[i];
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor jv, AllReduce(context, own));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, AllReduceGrad(context, x, y, dy, "prod"));
    return ExpectAdjoint(context, {v}, {jv}, {dy}, {dx});
  });
}

TEST(GradientsTest, AllGatherAndReduceScatter) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const Tensor small = Random({2, 3}, rank, 1), large = Random({8, 3}, rank, 2);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor gathered, AllGather(context, small));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, AllGatherGrad(context, large));
    MESHWRIGHT_RETURN_IF_ERROR(ExpectAdjoint(context, {small}, {gathered}, {large}, {dx}));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor scattered, ReduceScatter(context, large));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dlarge, ReduceScatterGrad(context, small));
    return ExpectAdjoint(context, {large}, {scattered}, {small}, {dlarge});
  });
}

TEST(GradientsTest, AlltoAll) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    for (const AlltoAllSpec& spec : {AlltoAllSpec{4, 1, 0}, AlltoAllSpec{4, 0, 2}, AlltoAllSpec{4, 1, 1}}) {
      const Tensor v = Random({4, 8, 3}, rank, 1);
      MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor jv, AlltoAll(context, v, spec));
      const Tensor dy = Random(jv.shape, rank, 2);
      MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, AlltoAllGrad(context, dy, spec));
      MESHWRIGHT_RETURN_IF_ERROR(ExpectAdjoint(context, {v}, {jv}, {dy}, {dx}));
    }
    return absl::OkStatus();
  });
}

TEST(GradientsTest, Broadcast) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const Tensors v = {Random({2, 3}, rank, 1), Random({}, rank, 2)},
                  dy = {Random({2, 3}, rank, 3), Random({}, rank, 4)};
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensors jv, Broadcast(context, v, 2));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensors dx, BroadcastGrad(context, dy, 2));
    if (rank != 2) {
      EXPECT_EQ(dx[0], Tensor::Zeros({2, 3}, DType::kFloat64));
    }
    return ExpectAdjoint(context, v, jv, dy, dx);
  });
}

// A ring of three, each sends a vector of its own length r + 1 to the next, and rank 0 also a scalar to itself.
TEST(GradientsTest, NeighborExchange) {
  OnRanks(3, [](Context& context, int64_t rank) -> absl::Status {
    const int64_t next = (rank + 1) % 3, previous = (rank + 2) % 3;
    NeighborExchangeSpec spec = {.send_ranks = {next},
                                 .recv_ranks = {previous},
                                 .recv_shapes = {{previous + 1}},
                                 .send_shapes = {{rank + 1}},
                                 .recv_type = DType::kFloat64};
    Tensors v = {Random({rank + 1}, rank, 1)}, dy = {Random({previous + 1}, rank, 2)};
    if (rank == 0) {
      spec.send_ranks.push_back(0);
      spec.recv_ranks.push_back(0);
      spec.recv_shapes.push_back({});
      spec.send_shapes.push_back({});
      v.push_back(Tensor::Full<double>({}, 3));
      dy.push_back(Tensor::Full<double>({}, 2));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensors jv, NeighborExchange(context, v, spec));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensors dx, NeighborExchangeGrad(context, dy, spec));
    return ExpectAdjoint(context, v, jv, dy, dx);
  });
}

// Tiles of 3x4 in a grid of 2x2. What is sent upwards and downwards differs in width: halo 1 above, 2 below.
TEST(GradientsTest, NeighborExchangeV2) {
  OnRanks(4, [](Context& context, int64_t rank) -> absl::Status {
    const std::array<int64_t, 8> neighbors = GridNeighbors(2, 2, rank);
    const int64_t below = rank < 2, right = rank % 2 == 0;
    const NeighborExchangeV2Spec spec = {neighbors,
                                         neighbors,
                                         {2 * (1 - below), below, 1 - right, right},  // what the other receives
                                         {1 - below, 2 * below, 1 - right, right}};
    const Tensor v = Random({2, 1, 3, 4}, rank, 1);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor jv, NeighborExchangeV2(context, v, spec));
    const Tensor dy = Random(jv.shape, rank, 2);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, NeighborExchangeV2Grad(context, dy, spec));
    return ExpectAdjoint(context, {v}, {jv}, {dy}, {dx});
  });
}

// A ring: each sends to the next. J is the shift, its transpose the shift back.
TEST(GradientsTest, SendAndReceive) {
  OnRanks(3, [](Context& context, int64_t rank) -> absl::Status {
    const int64_t next = (rank + 1) % 3, previous = (rank + 2) % 3;
    const Tensor v = Random({2, 3}, rank, 1), dy = Random({2, 3}, rank, 2);
    MESHWRIGHT_RETURN_IF_ERROR(Send(context, v, next));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor jv, Receive(context, {2, 3}, DType::kFloat64, previous));
    MESHWRIGHT_RETURN_IF_ERROR(ReceiveGrad(context, dy, previous));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dx, SendGrad(context, v, next));
    return ExpectAdjoint(context, {v}, {jv}, {dy}, {dx});
  });
}

TEST(GradientsTest, ATensorThatWasNotWantedIsNamed) {
  OnRanks(2, [](Context& context, int64_t rank) -> absl::Status {
    EXPECT_THAT(Send(context, {}, 2), StatusIs(kValue, "there is no rank 2 in a job of 2 [E-VALUE]"));
    const Tensor x = Tensor::Full<float>({2}, 1);
    MESHWRIGHT_RETURN_IF_ERROR(Send(context, x, 1 - rank));
    MESHWRIGHT_RETURN_IF_ERROR(Send(context, x, 1 - rank));
    EXPECT_THAT(Receive(context, {3}, DType::kFloat32, 1 - rank), StatusIs(kValue, "wants float32 (3) from rank "));
    EXPECT_EQ(Receive(context, {2}, DType::kFloat32, 1 - rank).value(), x);  // still in step
    return absl::OkStatus();
  });
}

TEST(GradientsTest, WhatHasNoDerivativeIsRefused) {
  OnRanks(2, [](Context& context, int64_t) -> absl::Status {
    const Tensor x = Tensor::Full<int32_t>({2}, 1), y = Tensor::Full<float>({2}, 1);
    EXPECT_THAT(ReduceScatterGrad(context, y, "max"),
                StatusIs(kState, "the reduction is \"max\"; only that of a sum has a derivative [E-STATE]"));
    EXPECT_THAT(AllReduceGrad(context, x, x, x, "prod"), StatusIs(kValue, "is int32, wants floating point [E-TYPE]"));
    EXPECT_THAT(AllReduceGrad(context, x, x, y), StatusIs(kValue, "x is int32 (2), y int32 (2), dy float32 (2); they"));
    EXPECT_THAT(AllReduceGrad(context, y, y, y, "mean"), StatusIs(kValue, "no reduction \"mean\""));
    EXPECT_THAT(BroadcastGrad(context, {y}, 2), StatusIs(kValue, "the root is rank 2, which is not in the group"));
    const std::array<int64_t, 8> none = {-1, -1, -1, -1, -1, -1, -1, -1};
    EXPECT_THAT(NeighborExchangeV2Grad(context, y, {none, none, {}, {}}), StatusIs(kValue, "has 1 dims, wants 4"));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace meshwright::manual
