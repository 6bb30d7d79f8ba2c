// Attention and mixture of experts.
#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "executor/cuda/lowering.h"
#include "ir/heads.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

// The largest tile whose block fits.
template <class Body>
absl::StatusOr<int32_t> TileFor(const Lowering& l, int64_t d, int64_t& shared) {
  for (const int32_t tile : {32, 16, 8, 4}) {
    shared = Body::SharedElements(tile, d) * (l.wide ? 8 : 4);
    if (shared <= kSharedLimit) return tile;
  }
  return absl::UnimplementedError(absl::StrCat("heads of ", d, " elements"));
}

SequenceOrder OrderOf(const TensorView& view, const OpAttrs& attrs, int64_t shift) {
  const int64_t ranks = std::max<int64_t>(1, attrs.context), block = view.global[0] / ranks;
  return {view.begin[0] - std::max<int64_t>(0, shift) * block, view.global[0], ranks};
}

// `operands`: qkv, or queries and keys.
absl::StatusOr<AttentionShape> ShapeOf(const Lowering& l, absl::Span<const TensorView> operands, const TensorView& y,
                                       const TensorView& saved) {
  const OpAttrs& attrs = *l.call.attrs;
  const Shape &x = operands.front().shape, &keys = operands.back().shape;
  const bool apart = operands.size() == 2, ring = attrs.shift >= 0;
  const auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat("queries are in ", ToText(x), ", keys in ", ToText(keys),
                                                   ", the result ", ToText(y.shape), " and what it saves ",
                                                   ToText(saved.shape)));
  };
  const std::optional<HeadSizes> heads = HeadSizesOf(x, keys, apart, y.shape);
  if (!heads.has_value()) return wrong();
  AttentionShape a;
  a.s = x[0];
  a.keys = keys[0];
  a.b = x[1];
  a.g = x[2];
  a.q = heads->queries;
  a.d = heads->width;
  a.u = heads->value_width;
  a.of_queries = heads->query_stride;
  a.of_keys = heads->key_stride;
  a.key_at = heads->key_at;
  a.causal = attrs.causal;
  a.window = attrs.causal ? attrs.window : 0;
  a.fused = attrs.fused;
  a.scale = attrs.scale;
  a.row_order = OrderOf(operands.front(), attrs, 0);
  a.key_order = OrderOf(operands.back(), attrs, attrs.shift);
  if (ring) a.blocks = std::max<int64_t>(1, a.s * attrs.context / operands.front().global[0]);
  Shape want = {a.s, a.b, a.g, a.q};
  if (!attrs.fused) want.push_back(a.keys);
  const bool ring_fits = !ring || (apart && a.keys == a.s && a.s % a.blocks == 0);
  if (saved.shape != want || (apart && !attrs.fused) || !ring_fits) return wrong();
  return a;
}

// What a section of heads reads over and over: it should stay in the L2 cache (40 MB on A100, 50 MB on H100: their data
// sheets) beside what passes through.
constexpr int64_t kSectionBytes = 16 << 20;

// Positions follow each other within every tile that begins at a multiple of kFlashTile.
bool InOrderWithinTiles(const SequenceOrder& order) {
  if (order.ranks <= 1) return true;
  return order.begin % kFlashTile == 0 && order.sequence % (2 * order.ranks * kFlashTile) == 0;
}

// The one place that chooses between tensor cores (flash_attention.h, or flash_hopper.h where there is wgmma) and tiles
// (attention.h). On tensor cores: elements of 16 bits, of one type in all operands but `saved`, in heads that are whole
// pieces of 16 bytes and fit into registers; a scale above 0, by which the largest score stays the largest; only the
// log of each row's sum saved; values as wide as keys; and an order that does not break within tiles. Tiles are for
// float32, float64, latent attention and small tests.
std::optional<FlashShape> OnTensorCores(const AttentionShape& a, std::initializer_list<const TensorView*> operands) {
  bool fits = a.fused && a.u == a.d && a.d % 8 == 0 && a.d <= 128 && a.scale > 0;
  const DType dtype = (*operands.begin())->dtype;
  fits = fits && (dtype == DType::kBFloat16 || dtype == DType::kFloat16);
  for (const TensorView* view : operands) {
    fits = fits && view->dtype == dtype && reinterpret_cast<uintptr_t>(view->data) % sizeof(Piece) == 0;
  }
  fits = fits && (!a.causal || (InOrderWithinTiles(a.row_order) && InOrderWithinTiles(a.key_order)));
  if (a.blocks > 1) fits = fits && a.s / a.blocks % kFlashTile == 0 && a.keys / a.blocks % kFlashTile == 0;
  constexpr int64_t kMost = 1 << 30;  // numbers of positions and blocks are int32
  fits = fits && std::max(a.row_order.sequence, a.key_order.sequence) < kMost &&
         (std::max(a.s, a.keys) / 32 + 1) * a.b * a.g * a.q < kMost;
  if (!fits) return std::nullopt;
  FlashShape flash;
  static_cast<AttentionShape&>(flash) = a;
  flash.type = ElemOf(dtype);
  flash.score_scale = static_cast<float>(a.scale) * kLog2E;
  flash.query_stride = a.b * a.g * a.of_queries;
  flash.key_stride = a.b * a.g * a.of_keys;
  flash.y_stride = a.b * a.g * a.q * a.d;
  if (a.window > 0) flash.reach = static_cast<int32_t>(std::min<int64_t>(a.window, FlashShape::kFar));
  if (a.blocks > 1) {
    flash.part_rows = static_cast<int32_t>(a.s / a.blocks);
    flash.part_keys = static_cast<int32_t>(a.keys / a.blocks);
  }
  return flash;
}

// So many heads in a section that two tensors of `rows` rows each, for each of them, are kSectionBytes.
int64_t SectionOf(const FlashShape& a, int64_t rows, int64_t heads) {
  return std::clamp<int64_t>(kSectionBytes / std::max<int64_t>(1, rows * 2 * a.d * 2), 1, std::max<int64_t>(1, heads));
}

template <class Body>
absl::Status LaunchFlash(const Lowering& l, const Body& body) {
  const LaunchShape shape = body.Visit([](const auto& variant) {
    return LaunchShape{variant.Blocks(), variant.kThreads, variant.kShared};
  });
  return shape.blocks == 0 ? absl::OkStatus() : l.Launch(shape, body);
}

// The gradient of queries goes first: it leaves the sums that that of keys and values reads.
absl::Status LaunchFlashGradients(const Lowering& l, const FlashShape& a, const AttentionBackward& operands,
                                  const TensorView& d_queries, bool add_queries) {
  FlashQueryGradient of_queries;
  of_queries.a = a;
  of_queries.a.section = SectionOf(a, a.keys, a.b * a.g) * a.q;  // whose heads share their keys
  of_queries.add = add_queries;
  of_queries.dy = operands.dy;
  of_queries.queries = operands.queries;
  of_queries.keys = operands.keys;
  of_queries.y = operands.y;
  of_queries.saved = operands.saved;
  of_queries.gradient = RefOf(d_queries);
  of_queries.sums.rows = (a.s + kFlashTile - 1) / kFlashTile * kFlashTile;
  of_queries.sums.heads = a.b * a.g * a.q;
  const Bytes bytes(RowSums::Bytes(of_queries.sums.rows, of_queries.sums.heads));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, bytes));
  of_queries.sums.data = reinterpret_cast<float*>(scratch);
  FlashKeyGradient of_keys;
  of_keys.a = a;
  of_keys.a.section = SectionOf(a, a.s * a.q, a.b * a.g);
  of_keys.add = operands.add;
  of_keys.dy = operands.dy;
  of_keys.queries = operands.queries;
  of_keys.keys = operands.keys;
  of_keys.gradient = operands.gradient;
  of_keys.sums = of_queries.sums;
  if (l.wgmma) {
    MESHWRIGHT_RETURN_IF_ERROR(LaunchFlash(l, HopperQueryGradient{of_queries}));
    return LaunchFlash(l, HopperKeyGradient{of_keys});
  }
  MESHWRIGHT_RETURN_IF_ERROR(LaunchFlash(l, of_queries));
  return LaunchFlash(l, of_keys);
}

absl::StatusOr<Choice> ChoiceOf(const OpAttrs& attrs, int64_t experts) {
  const Choice choice = {experts, attrs.top_k, attrs.choice_groups, attrs.top_choice_groups};
  if (choice.groups < 1 || experts % choice.groups != 0 || choice.best < 1 || choice.best > choice.groups ||
      choice.top_k < 1 || choice.top_k > experts / choice.groups * choice.best) {
    return absl::InvalidArgumentError(absl::StrCat("top_k ", choice.top_k, " of ", choice.best, " of ", choice.groups,
                                                   " groups of ", experts, " experts do not fit"));
  }
  if (choice.groups > Choice::kMostGroups) {
    return absl::UnimplementedError(
        absl::StrCat("experts in ", choice.groups, " groups: kernels choose of ", Choice::kMostGroups, " at most"));
  }
  return choice;
}

absl::StatusOr<RoutingShape> RoutingOf(const TensorView& logits, const TensorView& tokens, const TensorView& experts,
                                       int64_t top_k) {
  const Shape &l = logits.shape, &t = tokens.shape, &x = experts.shape;
  const size_t s = l.size() == 4 ? 1 : 0;
  const int64_t groups = s == 1 ? l[0] : 1;
  const int64_t parts = x.size() == 4 ? x[1] : 1;
  if (l.size() != s + 3 || t.size() != s + 3 || (x.size() != 3 && x.size() != 4) || parts < 1 ||
      !std::equal(l.begin(), l.end() - 1, t.begin()) || l[s] % parts != 0 ||
      x[0] * (s == 1 ? tokens.global[0] : 1) != (s == 1 ? l[s + 2] : x[0]) * groups || x.back() != t[s + 2] ||
      x[x.size() - 2] % l[s + 1] != 0 || top_k < 1 || top_k > l[s + 2]) {
    return absl::InvalidArgumentError(absl::StrCat("tokens ", ToText(t), ", logits ", ToText(l), ", experts ",
                                                   ToText(x), " and top_k ", top_k, " do not fit"));
  }
  const int64_t of_group = x[0] / groups, first = s == 1                  ? tokens.begin[0] * of_group
                                                  : experts.begin.empty() ? 0
                                                                          : experts.begin[0];
  return RoutingShape{groups, l[s], l[s + 1], l[s + 2], parts, x[x.size() - 2], x.back(), top_k, first, of_group};
}

// Launches a body whose tokens and slots are set, from input i to output i. Slots that no token has hold `empty`.
absl::Status LaunchSlotRows(const Lowering& l, SlotRows body, size_t i, double empty) {
  const TensorView &from = l.call.inputs[i], &to = l.call.outputs[i];
  body.add = l.call.Adds(i);
  body.width = to.shape.back();
  body.rows = RefOf(body.back ? to : from);
  body.in_slots = RefOf(body.back ? from : to);
  if (!body.back && !body.add) MESHWRIGHT_RETURN_IF_ERROR(LaunchFill(l, {to}, empty));
  return l.LaunchRows(body.tokens, body.width, body);
}

// The gates' kernel, of the call that `route` is for.
absl::Status LaunchCombine(const Lowering& l, const Route& route, const TensorView& tokens, const TensorView& experts) {
  const KernelCall& call = l.call;
  CombineSlots body;
  body.gradient = call.op == OpKind::kCombineGrad;
  body.add = call.Adds(0);
  body.r = route.r;
  body.experts = route.experts;
  body.slots = route.slots;
  body.tokens = RefOf(tokens);
  body.in_slots = RefOf(experts);
  body.logits = route.logits;
  if (body.gradient) {
    body.d_slots = RefOf(call.outputs[0]);
    body.d_logits = RefOf(call.outputs[1]);
    for (size_t i = 0; i < 2; ++i) {
      if (!call.Adds(i)) MESHWRIGHT_RETURN_IF_ERROR(LaunchFill(l, {call.outputs[i]}, 0));
    }
  }
  return l.LaunchRows(body.r.Tokens(), body.r.h, body);
}

}  // namespace

absl::Status LowerAttention(const Lowering& l) {
  int64_t shared = 0;
  const KernelCall& call = l.call;
  if (call.op == OpKind::kAttention) {
    if (call.accumulate != 0) return absl::InvalidArgumentError("cannot add to its outputs");
    AttentionForward body;
    MESHWRIGHT_ASSIGN_OR_RETURN(body.a, ShapeOf(l, call.inputs, call.outputs[0], call.outputs[1]));
    body.queries = RefOf(call.inputs.front());
    body.keys = RefOf(call.inputs.back());
    body.y = RefOf(call.outputs[0]);
    body.saved = RefOf(call.outputs[1]);
    if (auto flash = OnTensorCores(body.a, {&call.inputs.front(), &call.inputs.back(), &call.outputs[0]})) {
      flash->section = SectionOf(*flash, flash->keys, flash->b * flash->g) * flash->q;  // whose heads share their keys
      const FlashForward forward = {*flash, body.queries, body.keys, body.y, body.saved};
      return l.wgmma ? LaunchFlash(l, HopperForward{forward}) : LaunchFlash(l, forward);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(body.a.tile, TileFor<AttentionForward>(l, body.a.widest(), shared));
    const int64_t blocks = body.a.row_tiles() * body.a.b * body.a.g * body.a.q;
    return l.Launch({std::min(blocks, Lowering::kMostBlocks), 128, shared}, body);
  }
  const size_t operands = call.outputs.size();
  if (operands < 1 || operands > 2 || call.inputs.size() != operands + 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", call.inputs.size(), " inputs and ", operands, " outputs, wants 4 and 1, or 5 and 2"));
  }
  const TensorView &dy = call.inputs[0], &y = call.inputs[operands + 1], &saved = call.inputs[operands + 2];
  AttentionBackward body;
  MESHWRIGHT_ASSIGN_OR_RETURN(body.a, ShapeOf(l, call.inputs.subspan(1, operands), y, saved));
  bool alike = dy.shape == y.shape;
  for (size_t i = 0; i < operands; ++i) alike = alike && call.outputs[i].shape == call.inputs[1 + i].shape;
  if (!alike) return absl::InvalidArgumentError("gradients differ in shape from what they are gradients of");
  body.dy = RefOf(dy);
  body.queries = RefOf(call.inputs[1]);
  body.keys = RefOf(call.inputs[operands]);
  body.y = RefOf(y);
  body.saved = RefOf(saved);
  body.of_keys = true;
  body.gradient = RefOf(call.outputs.back());
  body.add = call.Adds(operands - 1);
  if (const auto flash = OnTensorCores(
          body.a, {&call.inputs[1], &call.inputs[operands], &dy, &y, &call.outputs.front(), &call.outputs.back()})) {
    return LaunchFlashGradients(l, *flash, body, call.outputs.front(), call.Adds(0));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(body.a.tile, TileFor<AttentionBackward>(l, body.a.widest(), shared));
  const int64_t groups = body.a.b * body.a.g;
  MESHWRIGHT_RETURN_IF_ERROR(
      l.Launch({std::min(body.a.key_tiles() * groups, Lowering::kMostBlocks), 128, shared}, body));
  body.of_keys = false;
  body.gradient = RefOf(call.outputs.front());
  body.add = call.Adds(0);
  return l.Launch({std::min(body.a.row_tiles() * groups * body.a.q, Lowering::kMostBlocks), 128, shared}, body);
}

absl::Status LowerLatentHeads(const Lowering& l) {
  const KernelCall& call = l.call;
  MESHWRIGHT_ASSIGN_OR_RETURN(const LatentShape shape, LatentShapeOf(call));
  LatentHeads body;
  body.back = call.op == OpKind::kLatentHeadsGrad;
  const auto apart = body.back ? call.outputs : call.inputs;
  const TensorView& query = apart[0];
  for (size_t i = 0; i < 3; ++i) body.add[i] = call.Adds(i);
  body.theta = call.attrs->theta;
  body.query = RefOf(query);
  body.shared = RefOf(apart[1]);
  body.latent = RefOf(apart[2]);
  body.packed = RefOf((body.back ? call.inputs : call.outputs)[0]);
  body.rows = shape.s * shape.b;
  body.b = shape.b;
  body.g = shape.g;
  body.width = shape.width;
  body.value_width = shape.value_width;
  body.positions = shape.positions;
  body.order = OrderOf(query, *call.attrs, -1);
  const int64_t shared = shape.positions * (l.wide ? 8 : 4);
  if (shared > kSharedLimit)
    return absl::UnimplementedError(absl::StrCat("positions of ", shape.positions, " elements"));
  if (body.rows == 0) return absl::OkStatus();
  return l.Launch({std::min(body.rows, Lowering::kMostBlocks), 256, shared}, body);
}

absl::Status LowerMergeAttention(const Lowering& l) {
  const KernelCall& call = l.call;
  const TensorView &y = call.outputs[0], &saved = call.outputs[1];
  AttentionMerge body;
  bool fits = call.inputs.size() % 2 == 0 && !y.shape.empty() && y.size() == saved.size() * y.shape.back();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    fits = fits && call.inputs[i].shape == (i % 2 == 0 ? y.shape : saved.shape);
  }
  if (!fits || call.accumulate != 0) {
    return absl::InvalidArgumentError(absl::StrCat("results and sums do not fit ", ToText(y.shape)));
  }
  if (call.inputs.size() > 2 * AttentionMerge::kMost) {
    return absl::UnimplementedError(absl::StrCat("more than ", AttentionMerge::kMost, " blocks of keys"));
  }
  body.parts = static_cast<int32_t>(call.inputs.size() / 2);
  body.rows = saved.size();
  body.d = y.shape.back();
  for (int32_t k = 0; k < body.parts; ++k) {
    body.results[k] = RefOf(call.inputs[2 * k]);
    body.sums[k] = RefOf(call.inputs[2 * k + 1]);
  }
  body.y = RefOf(y);
  body.saved = RefOf(saved);
  return l.LaunchRows(body.rows, body.d, body);
}

absl::Status LowerExperts(const Lowering& l) {
  const KernelCall& call = l.call;
  const bool combine_grad = call.op == OpKind::kCombineGrad, dispatch = call.op == OpKind::kDispatch;
  const TensorView& logits = call.inputs[combine_grad ? 2 : 1];
  const TensorView& tokens = dispatch || combine_grad ? call.inputs[0] : call.outputs[0];
  const TensorView& experts = dispatch ? call.outputs[0] : call.inputs[combine_grad ? 1 : 0];
  if (combine_grad && (call.outputs[0].shape != experts.shape || call.outputs[1].shape != logits.shape)) {
    return absl::InvalidArgumentError("gradients differ in shape from what they are gradients of");
  }
  Route route;
  MESHWRIGHT_ASSIGN_OR_RETURN(route.r, RoutingOf(logits, tokens, experts, call.attrs->top_k));
  MESHWRIGHT_ASSIGN_OR_RETURN(route.choice, ChoiceOf(*call.attrs, route.r.e));
  const int64_t choices = route.r.Tokens() * route.r.top_k;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(choices * 8)));
  route.logits = RefOf(logits);
  route.experts = reinterpret_cast<int32_t*>(scratch);
  route.slots = route.experts + choices;
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(route.r.Rows(), std::max(route.r.Length(), route.r.of_group), route));
  if (!dispatch && call.op != OpKind::kDispatchGrad) return LaunchCombine(l, route, tokens, experts);
  SlotRows body;
  body.back = !dispatch;
  body.n = route.r.top_k;
  body.tokens = route.r.Tokens();
  body.slots = route.slots;
  return LaunchSlotRows(l, body, 0, 0);
}

absl::Status LowerGroups(const Lowering& l) {
  const KernelCall& call = l.call;
  SlotRows body;
  body.back = call.op == OpKind::kFromGroups;
  const Shape& logits = call.inputs[1].shape;
  const Shape& groups = (body.back ? call.inputs[0] : call.outputs[0]).shape;
  if (logits.size() != 3 || groups.size() != 4 || groups[0] < 1 || logits[2] % groups[0] != 0 ||
      groups[2] != logits[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups ", ToText(groups), " and logits ", ToText(logits), " do not fit"));
  }
  RouteGroups group;
  group.n = groups[0];
  group.q = groups[1];
  group.s = logits[0];
  group.b = logits[1];
  MESHWRIGHT_ASSIGN_OR_RETURN(group.choice, ChoiceOf(*call.attrs, logits[2]));
  group.logits = RefOf(call.inputs[1]);
  body.n = group.n;
  body.tokens = group.s * group.b;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch,
                              l.scratch.Get(l.stream, Bytes(body.tokens * (group.choice.top_k + group.n) * 4)));
  group.experts = reinterpret_cast<int32_t*>(scratch);
  group.slots = group.experts + body.tokens * group.choice.top_k;
  body.slots = group.slots;
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchRows(group.b, std::max(group.s, group.n), group));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const double empty = i == 0 ? 0 : -std::numeric_limits<double>::infinity();
    MESHWRIGHT_RETURN_IF_ERROR(LaunchSlotRows(l, body, i, empty));
  }
  return absl::OkStatus();
}

}  // namespace meshwright::cuda
