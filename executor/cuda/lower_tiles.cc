// Attention and mixture of experts.
#include "absl/strings/str_cat.h"
#include "executor/cuda/lowering.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr int64_t kSharedLimit = 96 * 1024;  // of a block, on every device that is compiled for

// The largest tile whose block fits.
template <class Body>
absl::StatusOr<int32_t> TileFor(const Lowering& l, int64_t d, int64_t& shared) {
  for (const int32_t tile : {32, 16, 8, 4}) {
    shared = Body::SharedElements(tile, d) * (l.wide ? 8 : 4);
    if (shared <= kSharedLimit) return tile;
  }
  return absl::UnimplementedError(absl::StrCat("heads of ", d, " elements"));
}

absl::StatusOr<AttentionShape> ShapeOf(const Lowering& l, const TensorView& qkv, const TensorView& y,
                                       const TensorView& saved) {
  const OpAttrs& attrs = *l.call.attrs;
  const Shape& x = qkv.shape;
  if (x.size() != 5 || x[3] < 3) {
    return absl::InvalidArgumentError(absl::StrCat("qkv is ", ToText(x), ", wanted (s, b, g, r, d) with r >= 3"));
  }
  AttentionShape a;
  a.s = x[0];
  a.b = x[1];
  a.g = x[2];
  a.r = x[3];
  a.d = x[4];
  a.causal = attrs.causal;
  a.fused = attrs.fused;
  a.scale = attrs.scale;
  Shape want = {a.s, a.b, a.g, a.r - 2};
  if (!attrs.fused) want.push_back(a.s);
  if (y.shape != Shape{a.s, a.b, a.g, a.r - 2, a.d} || saved.shape != want) {
    return absl::InvalidArgumentError(absl::StrCat("qkv is ", ToText(x), ", the result ", ToText(y.shape),
                                                   " and what it saves ", ToText(saved.shape)));
  }
  return a;
}

absl::StatusOr<RoutingShape> RoutingOf(const TensorView& logits, const TensorView& tokens, const TensorView& experts,
                                       int64_t top_k) {
  const Shape &l = logits.shape, &t = tokens.shape, &x = experts.shape;
  if (l.size() != 3 || t.size() != 3 || x.size() != 3 || x[0] != l[2] || t[0] != l[0] || t[1] != l[1] || x[2] != t[2] ||
      x[1] % l[1] != 0 || top_k < 1 || top_k > l[2]) {
    return absl::InvalidArgumentError(absl::StrCat("tokens ", ToText(t), ", logits ", ToText(l), ", experts ",
                                                   ToText(x), " and top_k ", top_k, " do not fit"));
  }
  return RoutingShape{l[0], l[1], l[2], x[1], x[2], top_k};
}

absl::Status Zero(const Lowering& l, const TensorView& view) {
  Pointwise body;
  body.op = PointOp::kFill;
  body.inputs = 0;
  body.scale = 0;
  body.y = RefOf(view);
  AddDim(body.places, view.size(), {1});
  return l.LaunchPoints(view.size(), body);
}

}  // namespace

absl::Status LowerAttention(const Lowering& l) {
  int64_t shared = 0;
  if (l.call.op == OpKind::kAttention) {
    if (l.call.accumulate != 0) return absl::InvalidArgumentError("cannot add to its outputs");
    AttentionForward body;
    MESHWRIGHT_ASSIGN_OR_RETURN(body.a, ShapeOf(l, l.call.inputs[0], l.call.outputs[0], l.call.outputs[1]));
    MESHWRIGHT_ASSIGN_OR_RETURN(body.a.tile, TileFor<AttentionForward>(l, body.a.d, shared));
    body.qkv = RefOf(l.call.inputs[0]);
    body.y = RefOf(l.call.outputs[0]);
    body.saved = RefOf(l.call.outputs[1]);
    const int64_t tiles = (body.a.s + body.a.tile - 1) / body.a.tile;
    const int64_t blocks = tiles * body.a.b * body.a.g * (body.a.r - 2);
    return l.Launch({std::min(blocks, Lowering::kMostBlocks), 128, shared}, body);
  }
  AttentionBackward body;
  MESHWRIGHT_ASSIGN_OR_RETURN(body.a, ShapeOf(l, l.call.inputs[1], l.call.inputs[2], l.call.inputs[3]));
  if (l.call.inputs[0].shape != l.call.inputs[2].shape || l.call.outputs[0].shape != l.call.inputs[1].shape) {
    return absl::InvalidArgumentError("gradients differ in shape from what they are gradients of");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(body.a.tile, TileFor<AttentionBackward>(l, body.a.d, shared));
  body.add = l.call.Adds(0);
  body.dy = RefOf(l.call.inputs[0]);
  body.qkv = RefOf(l.call.inputs[1]);
  body.y = RefOf(l.call.inputs[2]);
  body.saved = RefOf(l.call.inputs[3]);
  body.dqkv = RefOf(l.call.outputs[0]);
  const int64_t tiles = (body.a.s + body.a.tile - 1) / body.a.tile, groups = tiles * body.a.b * body.a.g;
  body.keys = true;
  MESHWRIGHT_RETURN_IF_ERROR(l.Launch({std::min(groups, Lowering::kMostBlocks), 128, shared}, body));
  body.keys = false;
  return l.Launch({std::min(groups * (body.a.r - 2), Lowering::kMostBlocks), 128, shared}, body);
}

absl::Status LowerExperts(const Lowering& l) {
  const KernelCall& call = l.call;
  const bool combine_grad = call.op == OpKind::kCombineGrad;
  const TensorView& logits = call.inputs[combine_grad ? 2 : 1];
  const TensorView& tokens = call.op == OpKind::kDispatch || combine_grad ? call.inputs[0] : call.outputs[0];
  const TensorView& experts = call.op == OpKind::kDispatch ? call.outputs[0] : call.inputs[combine_grad ? 1 : 0];
  Tokens body;
  MESHWRIGHT_ASSIGN_OR_RETURN(body.r, RoutingOf(logits, tokens, experts, call.attrs->top_k));
  const int64_t choices = body.r.s * body.r.b * body.r.top_k;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(choices * 8)));
  Route route;
  route.r = body.r;
  route.logits = RefOf(logits);
  route.experts = reinterpret_cast<int32_t*>(scratch);
  route.slots = route.experts + choices;
  body.experts = route.experts;
  body.slots = route.slots;
  body.add = call.Adds(0);
  body.tokens = RefOf(tokens);
  body.in_slots = RefOf(experts);
  body.logits = RefOf(logits);
  switch (call.op) {
    case OpKind::kDispatch:
      body.kind = TokenKind::kDispatch;
      if (!call.Adds(0)) MESHWRIGHT_RETURN_IF_ERROR(Zero(l, experts));
      break;
    case OpKind::kDispatchGrad:
      body.kind = TokenKind::kDispatchGrad;
      break;
    case OpKind::kCombine:
      body.kind = TokenKind::kCombine;
      break;
    default:
      body.kind = TokenKind::kCombineGrad;
      if (call.outputs[0].shape != experts.shape || call.outputs[1].shape != logits.shape) {
        return absl::InvalidArgumentError("gradients differ in shape from what they are gradients of");
      }
      body.d_slots = RefOf(call.outputs[0]);
      body.d_logits = RefOf(call.outputs[1]);
      for (size_t i = 0; i < 2; ++i) {
        if (!call.Adds(i)) MESHWRIGHT_RETURN_IF_ERROR(Zero(l, call.outputs[i]));
      }
  }
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(body.r.b, std::max(body.r.s, body.r.e), route));
  return l.LaunchRows(body.r.s * body.r.b, body.r.h, body);
}

}  // namespace meshwright::cuda
