#include "executor/manual/gradients.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/manual/agreement.h"
#include "executor/manual/halo.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

// to[i] = f(to[i], x[i], y[i]). REQUIRES: equal shapes, and a type that the host reduces.
template <class F>
void ForEachElement(const Tensor& x, const Tensor& y, Tensor& to, const F& f) {
  const auto typed = [&](auto zero) {
    using T = decltype(zero);
    const absl::Span<T> target = to.As<T>();
    for (size_t i = 0; i < target.size(); ++i) target[i] = f(target[i], x.As<T>()[i], y.As<T>()[i]);
  };
  if (to.dtype == DType::kFloat32) typed(float{});
  if (to.dtype == DType::kFloat64) typed(double{});
  if (to.dtype == DType::kInt32) typed(int32_t{});
  if (to.dtype == DType::kInt64) typed(int64_t{});
}

bool IsReducible(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

absl::Status CheckAllReduceGrad(const Tensor& x, const Tensor& y, const Tensor& dy, absl::string_view op) {
  for (const Tensor* tensor : {&x, &y, &dy}) MESHWRIGHT_RETURN_IF_ERROR(CheckTensor(*tensor));
  if (op != "sum" && op != "max" && op != "min" && op != "prod") {
    return ValueError("no reduction \"", op, "\"; there are sum, max, min, prod");
  }
  if (x.shape != y.shape || x.shape != dy.shape || x.dtype != y.dtype || x.dtype != dy.dtype) {
    return ValueError("x is ", ToText(x), ", y ", ToText(y), ", dy ", ToText(dy), "; they must be alike");
  }
  if (op == "prod" && IsReducible(x.dtype) && !InfoOf(x.dtype).floating) {
    return TypeError("the derivative of a product divides; the tensor is ", NameOf(x.dtype), ", wants floating point");
  }
  if (dy.dtype == DType::kBool) return TypeError("the tensor is bool; wants numbers");
  if (IsReducible(dy.dtype)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the host reduces float32, float64, int32 and int64, not ", NameOf(dy.dtype)));
}

absl::Status CheckBroadcastRoot(int64_t root, const GroupView& members) {
  if (std::find(members.ranks.begin(), members.ranks.end(), root) != members.ranks.end()) return absl::OkStatus();
  return ValueError("the root is rank ", root, ", which is not in the group");
}

// What NeighborExchangeV2Grad checks; `tile` is what the forward call had.
absl::Status CheckHaloGrad(const Tensor& dy, const NeighborExchangeV2Spec& forward, const GroupView& members,
                           Shape& tile) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckTensor(dy));
  if (dy.shape.size() != 4) return ValueError("the gradient has ", dy.shape.size(), " dims, wants 4: N, C, H, W");
  if (!IsReducible(dy.dtype)) return TypeError("the gradient is ", NameOf(dy.dtype), ", which the host does not add");
  tile = dy.shape;
  tile[2] -= forward.recv_lens[0] + forward.recv_lens[1];
  tile[3] -= forward.recv_lens[2] + forward.recv_lens[3];
  if (tile[2] < 0 || tile[3] < 0) {
    return ValueError("the gradient is ", ToText(dy), ", smaller than the halo that the forward call received");
  }
  return CheckHalo(tile, forward, members);
}

}  // namespace

absl::StatusOr<Tensor> AllReduceGrad(Context& context, const Tensor& x, const Tensor& y, const Tensor& dy,
                                     absl::string_view op, absl::string_view group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const GroupView members, context.Members(group));
  MESHWRIGHT_RETURN_IF_ERROR(Agree(context.endpoint(), members, "AllReduceGrad", CheckAllReduceGrad(x, y, dy, op),
                                   absl::StrCat(op, " of ", ToText(dy))));
  Tensor own = dy;
  if (op == "prod") ForEachElement(x, y, own, [](auto d, auto, auto product) { return d * product; });
  MESHWRIGHT_ASSIGN_OR_RETURN(Tensor dx, AllReduce(context, own, "sum", group));
  if (op == "prod") ForEachElement(x, y, dx, [](auto d, auto factor, auto) { return d / factor; });
  if (op == "max" || op == "min") {
    ForEachElement(x, y, dx, [](auto d, auto in, auto out) { return in == out ? d : decltype(d){}; });
  }
  return dx;
}

absl::StatusOr<Tensor> AllGatherGrad(Context& context, const Tensor& dy, absl::string_view group) {
  return ReduceScatter(context, dy, "sum", group);
}

absl::StatusOr<Tensor> ReduceScatterGrad(Context& context, const Tensor& dy, absl::string_view op,
                                         absl::string_view group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const GroupView members, context.Members(group));
  const absl::Status checks =
      op == "sum" ? absl::OkStatus() : StateError("the reduction is \"", op, "\"; only that of a sum has a derivative");
  MESHWRIGHT_RETURN_IF_ERROR(Agree(context.endpoint(), members, "ReduceScatterGrad", checks, op));
  return AllGather(context, dy, group);
}

absl::StatusOr<Tensor> AlltoAllGrad(Context& context, const Tensor& dy, const AlltoAllSpec& forward,
                                    absl::string_view group) {
  return AlltoAll(context, dy, {forward.split_count, forward.concat_dim, forward.split_dim}, group);
}

absl::StatusOr<std::vector<Tensor>> BroadcastGrad(Context& context, const std::vector<Tensor>& dys, int64_t root,
                                                  absl::string_view group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const GroupView members, context.Members(group));
  MESHWRIGHT_RETURN_IF_ERROR(Agree(context.endpoint(), members, "BroadcastGrad", CheckBroadcastRoot(root, members),
                                   absl::StrCat(dys.size(), " tensors, root ", root)));
  std::vector<Tensor> dxs;
  for (const Tensor& dy : dys) {
    MESHWRIGHT_ASSIGN_OR_RETURN(Tensor sum, AllReduce(context, dy, "sum", group));
    dxs.push_back(context.endpoint().rank() == root ? std::move(sum) : Tensor::Zeros(dy.shape, dy.dtype));
  }
  return dxs;
}

absl::StatusOr<std::vector<Tensor>> NeighborExchangeGrad(Context& context, const std::vector<Tensor>& dys,
                                                         const NeighborExchangeSpec& forward, absl::string_view group) {
  const NeighborExchangeSpec reverse = {.send_ranks = forward.recv_ranks,
                                        .recv_ranks = forward.send_ranks,
                                        .recv_shapes = forward.send_shapes,
                                        .send_shapes = forward.recv_shapes,
                                        .recv_type = forward.recv_type};
  return NeighborExchange(context, dys, reverse, group);
}

absl::StatusOr<Tensor> NeighborExchangeV2Grad(Context& context, const Tensor& dy, const NeighborExchangeV2Spec& forward,
                                              absl::string_view group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const GroupView members, context.Members(group));
  Shape tile;
  const absl::Status checks = CheckHaloGrad(dy, forward, members, tile);
  std::array<Tensor, 8> outgoing, incoming;
  for (int d = 0; d < kDirections && checks.ok(); ++d) {
    const Region received = ReceivedRegion(tile, forward, d);
    if (forward.recv_ranks[d] >= 0) outgoing[d] = Block(dy, received.begin, received.shape);
    if (forward.send_ranks[d] >= 0) incoming[d] = Tensor::Zeros(SentRegion(tile, forward, d).shape, dy.dtype);
  }
  MESHWRIGHT_RETURN_IF_ERROR(ExchangeHalo(context, members, "NeighborExchangeV2Grad", checks, forward.recv_ranks,
                                          outgoing, forward.send_ranks, incoming));
  Tensor dx = Block(dy, TileRegion(tile, forward).begin, tile);
  for (int d = 0; d < kDirections; ++d) {
    if (forward.send_ranks[d] >= 0) AddBlock(incoming[d], SentRegion(tile, forward, d).begin, dx);
  }
  return dx;
}

}  // namespace meshwright::manual
