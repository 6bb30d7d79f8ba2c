// The seven collectives of a hand-written parallel program (section 3 of the semantics), on tensors in main memory.
//
//   sum = AllReduce(context, x)                                     S3.1
//   max = AllReduce(context, x, "max", "my_group")
//   all = AllGather(context, x)                                     S3.2: rows of all, in the order of the group
//   own = ReduceScatter(context, x)                                 S3.3
//   xs  = Broadcast(context, xs, root)                              S3.4: root is a rank of the job
//   y   = AlltoAll(context, x, {split_count, split_dim, concat_dim})   S3.5
//   ys  = NeighborExchange(context, xs, spec)                       S3.6: ranks of the job, tensors of any shapes
//   y   = NeighborExchangeV2(context, x, spec)                      S3.7: the halo of a tile
//
// All members of the group call the same collectives in the same order; "" is the world. Reductions are in the order of
// the group and give every member the same bits. A collective that is refused moved nothing: the members are still in
// step and may go on.
//
// Errors. What one member does wrong is the same error on all members of the group: E-VALUE for values out of range and
// for shapes, types and arguments that differ between members, E-STATE for different operators, E-TYPE to reduce bool,
// E-LAYOUT where sends and receives of an exchange do not meet, kUnimplemented to reduce types that the host does not
// (it does float32, float64, int32, int64). On the caller alone, since there is nobody to tell: E-STATE before init and
// for a group that is unknown or does not hold this rank. kDeadlineExceeded and kCancelled as in
// executor/host/communicator.h.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_COLLECTIVES_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_COLLECTIVES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/manual/context.h"
#include "executor/manual/tensor.h"

namespace meshwright::manual {

// op: "sum", "max", "min" or "prod". The shape stays.
absl::StatusOr<Tensor> AllReduce(Context& context, const Tensor& x, absl::string_view op = "sum",
                                 absl::string_view group = "");

// (d0, ...) -> (N d0, ...). E-VALUE for a scalar.
absl::StatusOr<Tensor> AllGather(Context& context, const Tensor& x, absl::string_view group = "");

// (d0, ...) -> (d0 / N, ...): rows [p d0/N, (p+1) d0/N) of the reduced tensor on the member at position p. E-VALUE for
// a scalar and where N does not divide d0.
absl::StatusOr<Tensor> ReduceScatter(Context& context, const Tensor& x, absl::string_view op = "sum",
                                     absl::string_view group = "");

// The tensors of the root, whose rank in the job must be in the group. All give tensors of the same shapes.
absl::StatusOr<std::vector<Tensor>> Broadcast(Context& context, const std::vector<Tensor>& xs, int64_t root,
                                              absl::string_view group = "");

// Member p gets piece p, along split_dim, of every member, and puts them together along concat_dim. split_count must be
// the size of the group and divide the dim.
struct AlltoAllSpec {
  int64_t split_count = 0;
  int64_t split_dim = 0, concat_dim = 0;
};
absl::StatusOr<Tensor> AlltoAll(Context& context, const Tensor& x, const AlltoAllSpec& spec,
                                absl::string_view group = "");

// Input i goes to send_ranks[i]; output j is the next of what recv_ranks[j] sends here. send_shapes must be those of
// the inputs, recv_shapes and recv_type those of the partners' inputs.
struct NeighborExchangeSpec {
  std::vector<int64_t> send_ranks = {}, recv_ranks = {};
  std::vector<Shape> recv_shapes = {}, send_shapes = {};
  DType recv_type = DType::kFloat32;
};
absl::StatusOr<std::vector<Tensor>> NeighborExchange(Context& context, const std::vector<Tensor>& xs,
                                                     const NeighborExchangeSpec& spec, absl::string_view group = "");

// Tiles of an image x (N, C, H, W) with their eight neighbours, clockwise:
//
//   7 0 1      top left, top, top right
//   6 x 2      left, right                   -1: no neighbour there
//   5 4 3      bottom left, bottom, bottom right
//
// Lengths are in rows (top, bottom) and columns (left, right): {top, bottom, left, right}. What is sent to a direction
// is the border strip, or the corner, of the tile that faces it; what is received lies outside the tile on that side:
// the output has H + top + bottom rows and W + left + right columns of recv_lens. A length is 0 where the side itself
// has no neighbour; a corner without neighbour between two sides with one is zero.
struct NeighborExchangeV2Spec {
  std::array<int64_t, 8> send_ranks = {-1, -1, -1, -1, -1, -1, -1, -1};
  std::array<int64_t, 8> recv_ranks = {-1, -1, -1, -1, -1, -1, -1, -1};
  std::array<int64_t, 4> send_lens = {}, recv_lens = {};
  std::string data_format = "NCHW";  // the only one
};
absl::StatusOr<Tensor> NeighborExchangeV2(Context& context, const Tensor& x, const NeighborExchangeV2Spec& spec,
                                          absl::string_view group = "");

// The eight neighbours of a rank in a grid of rows x columns ranks, row by row; -1 beyond its border.
std::array<int64_t, 8> GridNeighbors(int64_t rows, int64_t columns, int64_t rank);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_COLLECTIVES_H_
