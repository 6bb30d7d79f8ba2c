#include "executor/op_examples.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

OpAttrs Scaled(double scale) {
  OpAttrs attrs;
  attrs.scale = scale;
  return attrs;
}

OpAttrs Training(double rate) {
  OpAttrs attrs;
  attrs.learning_rate = rate;
  attrs.beta1 = 0.75;
  attrs.beta2 = 0.875;
  attrs.weight_decay = 0.125;
  return attrs;
}

OpAttrs Scaling(int64_t interval) {
  OpAttrs attrs;
  attrs.growth = 2;
  attrs.backoff = 0.5;
  attrs.interval = interval;
  return attrs;
}

OpAttrs Masked(double rate) {
  OpAttrs attrs;
  attrs.rate = rate;
  attrs.stream = 7;
  return attrs;
}

OpAttrs Sliced(const Shape& begin, const Shape& strides) {
  OpAttrs attrs;
  attrs.begin = begin;
  attrs.strides = strides;
  return attrs;
}

OpAttrs Turned(int64_t elements, int64_t head_width = 0) {
  OpAttrs attrs;
  attrs.turned = elements;
  attrs.head_width = head_width;
  return attrs;
}

OpAttrs GateFirst() {
  OpAttrs attrs;
  attrs.gate_first = true;
  return attrs;
}

OpAttrs InOrderFor(int64_t ranks) {
  OpAttrs attrs;
  attrs.context = ranks;
  return attrs;
}

OpAttrs AttentionAttrs(bool causal, bool fused) {
  OpAttrs attrs = Scaled(0.5);
  attrs.causal = causal;
  attrs.fused = fused;
  return attrs;
}

// Products: plain, transposed, batched, and those whose operands must be rearranged first.
std::vector<OpExample> Products() {
  const OpKind op = OpKind::kMatMul;
  return {
      {op, "m k, k n -> m n", {{4, 6}, {6, 8}}},
      {op, "k m, n k -> m n", {{6, 4}, {8, 6}}},
      {op, "m k, k n -> n m", {{4, 6}, {6, 8}}},
      {op, "m k!, k! n, n -> m n", {{4, 6}, {6, 8}, {8}}},
      {op, "b m k, b k n -> b m n", {{2, 4, 6}, {2, 6, 8}}},
      {op, "m b k, k b n -> m b n", {{4, 2, 6}, {6, 2, 8}}},
      {op, "s b h, h g r d -> s b g r d", {{4, 2, 6}, {6, 2, 4, 2}}},
      {op, "s b h, s b g r d -> h g r d", {{4, 2, 6}, {4, 2, 2, 4, 2}}},
      {op, "s b g q d, g q d h -> s b h", {{4, 2, 2, 2, 4}, {2, 2, 4, 6}}},
      {op, "s b h, v h -> s b v", {{4, 2, 6}, {8, 6}}},
      {op, "e b h, e h t f -> e b t f", {{2, 4, 6}, {2, 6, 2, 4}}},
      {op, "m j k, k n j -> m n", {{4, 2, 6}, {6, 8, 2}}},
      {op, "a b k, k c -> a c b", {{4, 2, 6}, {6, 8}}},
      {op, "m k x, k n -> m n", {{4, 6, 2}, {6, 8}}},
      {op, "m n, k n -> m k x", {{4, 8}, {6, 8}}, {}, {}, -1, 1, {{4, 6, 2}}},
      {op, "m, m n -> n", {{4}, {4, 8}}},
      {op, "m, n -> m n", {{4}, {8}}},
      {op, "k, k -> ", {{6}, {6}}},
  };
}

std::vector<OpExample> AttentionCases(bool gradient) {
  std::vector<OpExample> examples;
  const Shape qkv = {6, 2, 2, 4, 4}, y = {6, 2, 2, 2, 4}, rows = {6, 2, 2, 2}, scores = {6, 2, 2, 2, 6};
  for (const bool causal : {true, false}) {
    for (const bool fused : {true, false}) {
      const OpAttrs attrs = AttentionAttrs(causal, fused);
      const Shape& saved = fused ? rows : scores;
      const std::string s = fused ? "s! b g q!" : "s! b g q! t!";
      if (gradient) {
        const std::string rule = absl::StrCat("s! b g q! d!, s! b g r! d!, s! b g q! d!, ", s, " -> s! b g r! d!");
        examples.push_back({OpKind::kAttentionGrad, rule, {y, qkv, y, saved}, attrs});
      } else {
        const std::string rule = absl::StrCat("s! b g r! d! -> s! b g q! d!, ", s);
        examples.push_back({OpKind::kAttention, rule, {qkv}, attrs, {}, -2, 2, {y, saved}});
      }
    }
  }
  // Keys apart from the queries: all of them, in the order for three ranks, or the block of a ring of two.
  const std::string q = "s b g q! d!", rows_of = "s b g q!", all = "t! b g w! d!", block = "s b g w! d!";
  for (const bool ring : {false, true}) {
    const int64_t s = ring ? 8 : 6;
    const Shape queries = {s, 2, 2, 2, 4}, keys = {s, 2, 2, 2, 4}, sums = {s, 2, 2, 2};
    OpAttrs attrs = AttentionAttrs(!ring, true);
    attrs.context = ring ? 2 : 3;
    attrs.shift = ring ? 1 : -1;
    const std::string& kv = ring ? block : all;
    if (gradient) {
      const std::string rule = absl::StrCat(q, ", ", q, ", ", kv, ", ", q, ", ", rows_of, " -> ", q, ", ", kv);
      examples.push_back({OpKind::kAttentionGrad, rule, {queries, queries, keys, queries, sums}, attrs});
    } else {
      const std::string rule = absl::StrCat(q, ", ", kv, " -> ", q, ", ", rows_of);
      examples.push_back({OpKind::kAttention, rule, {queries, keys}, attrs, {}, -2, 2});
    }
  }
  // Heads one behind the other: two queries and a key of 4, a value of 2; and with keys apart.
  const Shape narrow = {6, 2, 2, 2, 2};
  for (const bool apart : {false, true}) {
    const std::string s = apart ? "s" : "s!", made = absl::StrCat(s, " b g q! u!"), saved = absl::StrCat(s, " b g q!");
    const std::string from = apart ? "s b g x!, t! b g y!" : "s! b g w!";
    const std::vector<Shape> operands =
        apart ? std::vector<Shape>{{6, 2, 2, 8}, {6, 2, 2, 6}} : std::vector<Shape>{{6, 2, 2, 14}};
    std::vector<Shape> inputs = {narrow};
    inputs.insert(inputs.end(), operands.begin(), operands.end());
    inputs.insert(inputs.end(), {narrow, rows});
    const OpAttrs attrs = AttentionAttrs(true, true);
    if (gradient) {
      const std::string rule = absl::StrCat(made, ", ", from, ", ", made, ", ", saved, " -> ", from);
      examples.push_back({OpKind::kAttentionGrad, rule, inputs, attrs});
    } else {
      const std::string rule = absl::StrCat(from, " -> ", made, ", ", saved);
      examples.push_back({OpKind::kAttention, rule, operands, attrs, {}, -2, 2, {narrow, rows}});
    }
  }
  return examples;
}

// By the delta rule, two heads of 3 x 2 to a group; state spaces, in the order for two ranks.
std::vector<OpExample> Recurrences(OpKind op) {
  std::vector<OpExample> examples;
  enum class Form { kDelta, kDeltaByRow, kSpace };
  for (const Form form : {Form::kDelta, Form::kDeltaByRow, Form::kSpace}) {
    const bool delta = form != Form::kSpace, by_row = form == Form::kDeltaByRow;
    const int64_t s = delta ? 5 : 4;
    const Shape x = {s, 2, 2, 10}, gates = {s, 2, 2, by_row ? 6 : delta ? 4 : 2}, heads = {2, 2}, y = {s, 2, 2, 2, 2};
    std::vector<Shape> inputs = {x, gates, heads, by_row ? Shape{2, 2, 3} : heads};
    std::string of = absl::StrCat("s! b y w!, s! b y p!, y n!, y n!", by_row  ? " k!, s! b y n!"
                                                                      : delta ? ""
                                                                              : ", y n!");
    if (by_row) inputs.push_back({s, 2, 2, 2});
    if (!delta) inputs.push_back(heads);
    const std::string made = "s! b y n! u!";
    const OpAttrs attrs = delta ? OpAttrs() : InOrderFor(2);
    if (op == OpKind::kLinearAttention) {
      examples.push_back({op, absl::StrCat(of, " -> ", made), inputs, attrs, {}, -2, 2, {y}});
    } else {
      inputs.insert(inputs.begin(), y);
      examples.push_back({op, absl::StrCat(made, ", ", of, " -> ", of), inputs, attrs});
    }
  }
  return examples;
}

void Fail(const OpExample& example, absl::string_view message) {
  std::fprintf(stderr, "example of %s: %s\n", std::string(NameOf(example.op)).c_str(), std::string(message).c_str());
  std::abort();
}

}  // namespace

// One switch over all operators, so that a new one does not compile without an example; long for that reason.
std::vector<OpExample> ExamplesOf(OpKind op) {
  const Shape sbh = {4, 2, 6}, sb = {4, 2}, bs = {2, 4}, sbv = {4, 2, 8}, sb2 = {4, 2, 2}, table = {8, 6}, none = {};
  const Shape experts = {4, 6, 2}, parts = {4, 2, 4, 2}, tokens = {4, 2, 2}, logits = {4, 2, 4};
  const Shape grouped = {2, 3, 2, 2}, grouped_logits = {2, 3, 2, 4};
  const OpAttrs half = Scaled(0.5);
  switch (op) {
    case OpKind::kMatMul:
      return Products();
    case OpKind::kAdd:
      return {{op, "", {sbh, sbh}},
              {op, "", {sbh, {6}}},
              {op, "", {sbh, {6}, sbh}},
              {op, "", {sbh, sbh, sbh, {6}, {2, 6}}},
              {op, "", {{4, 2, 6}, {4, 1, 6}}}};
    case OpKind::kSub:
    case OpKind::kMul:
      return {{op, "", {sbh, sbh}}, {op, "", {sbh, {6}}}, {op, "", {{2, 1}, {2, 4}}}};
    case OpKind::kDiv:
      return {{op, "", {sbh, sbh}, {}, {}, 0.5, 1.5}, {op, "", {sbh, {6}}, {}, {}, 0.5, 1.5}};
    case OpKind::kScale:
      return {{op, "", {sbh}, Scaled(-1.5)}};
    case OpKind::kCast:
      return {{op, "", {sbh}}};
    case OpKind::kRelu:
    case OpKind::kSquaredRelu:
    case OpKind::kGelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kSilu:
      return {{op, "", {sbh}, {}, {}, -3, 3}, {op, "", {sbh, {6}}, {}, {}, -3, 3}};
    case OpKind::kSqrt:
      return {{op, "", {sbh}, {}, {}, 0.5, 3}, {op, "", {sbh, {6}}, {}, {}, 0.5, 3}};
    case OpKind::kSqrtGrad:
      return {{op, "", {sbh, sbh}, {}, {}, 0.5, 3}, {op, "", {sbh, sbh, {6}}, {}, {}, 0.5, 3}};
    case OpKind::kDropout:
      return {{op, "", {sbh}, Masked(0.25)}, {op, "s b h -> s b h", {sbh}, Masked(0.5)}};
    case OpKind::kReluGrad:
    case OpKind::kSquaredReluGrad:
    case OpKind::kGeluGrad:
    case OpKind::kTanhGrad:
    case OpKind::kSigmoidGrad:
    case OpKind::kSiluGrad:
      return {{op, "", {sbh, sbh}, {}, {}, -3, 3}, {op, "", {sbh, sbh, {6}}, {}, {}, -3, 3}};
    case OpKind::kSwiglu:
    case OpKind::kGeglu:
      return {{op, "", {{4, 2, 2, 6}}}, {op, "e c t! f -> e c f", {{2, 4, 2, 6}}}};
    case OpKind::kSwigluGrad:
    case OpKind::kGegluGrad:
      return {{op, "", {{4, 2, 6}, {4, 2, 2, 6}}}};
    case OpKind::kSoftmax:
      return {{op, "", {sbh}, {}, {}, -3, 3}};
    case OpKind::kLogSoftmax:
      return {{op, "", {sbh}, {}, {}, -3, 3}};
    case OpKind::kLogSoftmaxGrad:
      return {{op, "", {sbh, sbh}, {}, {}, -3, 0}};
    case OpKind::kSoftmaxGrad:
      return {{op, "", {sbh, sbh}}};
    case OpKind::kLayerNorm:
      return {{op, "", {sbh, {6}, {6}}}};
    case OpKind::kLayerNormGrad:
      return {{op, "", {sbh, sbh, {6}}}};
    case OpKind::kRmsNorm:
      return {{op, "", {sbh, {6}}}};
    case OpKind::kCausalConv:
      return {{op, "s! b y w!, y w! k! -> s! b y w!", {{5, 2, 2, 3}, {2, 3, 4}}},
              {op, "s! b y w!, y w! k!, y w! -> s! b y w!", {{4, 2, 2, 3}, {2, 3, 2}, {2, 3}}, InOrderFor(2)}};
    case OpKind::kCausalConvGrad:
      return {{op, "s! b y w!, s! b y w!, y w! k! -> s! b y w!, y w! k!", {{5, 2, 2, 3}, {5, 2, 2, 3}, {2, 3, 4}}},
              {op,
               "s! b y w!, s! b y w!, y w! k!, y w! -> s! b y w!, y w! k!, y w!",
               {{4, 2, 2, 3}, {4, 2, 2, 3}, {2, 3, 2}, {2, 3}},
               InOrderFor(2)}};
    case OpKind::kLinearAttention:
    case OpKind::kLinearAttentionGrad:
      return Recurrences(op);
    case OpKind::kGatedRmsNorm:
      return {
          {op, "", {sbh, sbh, {6}}, {}, {}, -2, 2},
          {op, "s b y w!, s b y w!, y w! -> s b y w!", {{4, 2, 2, 3}, {4, 2, 2, 3}, {2, 3}}, GateFirst(), {}, -2, 2}};
    case OpKind::kGatedRmsNormGrad:
      return {{op, "", {sbh, sbh, sbh, {6}}, {}, {}, -2, 2},
              {op,
               "s b y w!, s b y w!, s b y w!, y w! -> s b y w!, s b y w!, y w!",
               {{4, 2, 2, 3}, {4, 2, 2, 3}, {4, 2, 2, 3}, {2, 3}},
               GateFirst(),
               {},
               -2,
               2}};
    case OpKind::kRmsNormGrad:
      return {{op, "", {sbh, sbh, {6}}}};
    case OpKind::kGather:
      return {{op, "v h, b s -> s b h", {table, bs}, {}, {0, 8}}, {op, "v h, s -> s h", {table, {4}}, {}, {0, 8}}};
    case OpKind::kGatherGrad:
      return {{op, "s b h, b s -> v h", {sbh, bs}, {}, {0, 8}, -1, 1, {table}}};
    case OpKind::kOneHot:
      return {{op, "s b -> s b c", {sb}, {}, {8}, -1, 1, {sbv}}, {op, "s -> s c", {{4}}, {}, {6}, -1, 1, {{4, 6}}}};
    case OpKind::kAddPositions:
      return {{op, "", {sbh, {4, 6}}}, {op, "", {sbh, table}}};
    case OpKind::kAddPositionsGrad:
      return {{op, "", {sbh}, {}, {}, -1, 1, {table}}};
    case OpKind::kNormHeads:
      return {{op, "", {{4, 2, 2, 4, 6}, {2, 6}}}, {op, "", {{4, 2, 2, 3, 5}, {2, 5}}}};
    case OpKind::kNormHeadsGrad:
      return {{op, "", {{4, 2, 2, 4, 6}, {4, 2, 2, 4, 6}, {2, 6}}}};
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
      return {{op, "", {{4, 2, 2, 4, 6}}},
              {op, "", {{4, 2, 2, 4, 6}}, Turned(2)},
              {op, "s b g w! -> s b g w!", {{4, 2, 2, 22}}, Turned(2, 6)}};
    case OpKind::kLatentHeads:
      return {{op, "", {{4, 2, 2, 6}, {4, 2, 2}, {4, 2, 2, 9}}, {}, {}, -1, 1, {{4, 2, 2, 17}}}};
    case OpKind::kLatentHeadsGrad:
      return {{op, "", {{4, 2, 2, 17}}, {}, {}, -1, 1, {{4, 2, 2, 6}, {4, 2, 2}, {4, 2, 2, 9}}}};
    case OpKind::kAttention:
      return AttentionCases(false);
    case OpKind::kAttentionGrad:
      return AttentionCases(true);
    case OpKind::kMergeAttention:
      return {{op, "s b h!, s b, s b h!, s b -> s b h!, s b", {sbh, sb, sbh, sb}}};
    case OpKind::kReduceSum:
      return {{op, "s b h -> h", {sbh}, half}, {op, "s b h -> b 1 h", {sbh}}};
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
      return {{op, "s b h -> h", {sbh}}, {op, "s b h -> s 1 h", {sbh}}, {op, "s b h -> ", {sbh}}};
    case OpKind::kEqual:
      return {{op, "", {sbh, sbh}}, {op, "", {sbh, {6}}}};
    case OpKind::kConcat:
      return {{op, "s x! h, s y! h -> s z! h", {{4, 2, 6}, {4, 3, 6}}, {}, {}, -1, 1, {{4, 5, 6}}},
              {op, "x!, y!, w! -> z!", {{2}, {1}, {3}}, {}, {}, -1, 1, {{6}}}};
    case OpKind::kSplit:
      return {{op, "s z! h -> s x! h, s y! h", {{4, 5, 6}}, {}, {}, -1, 1, {{4, 2, 6}, {4, 3, 6}}},
              {op, "b z! -> b x!, b y!", {{4, 4}}, {}, {}, -1, 1, {{4, 2}, {4, 2}}}};
    case OpKind::kStridedSlice:
      return {{op, "s x! h -> s y! h", {{4, 5, 6}}, Sliced({0, 1, 0}, {1, 2, 1}), {}, -1, 1, {{4, 2, 6}}},
              {op, "x! b y! -> v! b w!", {{4, 2, 6}}, Sliced({1, 0, 3}, {}), {}, -1, 1, {{2, 2, 3}}}};
    case OpKind::kStridedSliceGrad:
      return {{op, "s y! h -> s x! h", {{4, 2, 6}}, Sliced({0, 1, 0}, {1, 2, 1}), {}, -1, 1, {{4, 5, 6}}}};
    case OpKind::kBroadcast:
      return {{op, "h -> s b h", {{6}}, half, {}, -1, 1, {sbh}}, {op, "s -> s b", {{4}}, {}, {}, -1, 1, {sb}}};
    case OpKind::kTranspose:
      return {{op, "s b h -> b s h", {sbh}}, {op, "a b c d -> d b a c", {{2, 4, 2, 6}}}};
    case OpKind::kReshape:
      return {{op, "b x! y! -> b z!", {{4, 2, 6}}, {}, {}, -1, 1, {{4, 12}}}};
    case OpKind::kMseLoss:
      return {{op, "", {sbh, sbh}, Scaled(1.0 / 48)}};
    case OpKind::kMseLossGrad:
      return {{op, "", {none, sbh, sbh}, Scaled(1.0 / 48)}};
    case OpKind::kCrossEntropy:
      return {{op, "", {sbv, sb}, Scaled(1.0 / 8), {0, 8}}, {op, "s b v!, b s -> ", {sbv, bs}, half, {0, 8}}};
    case OpKind::kCrossEntropyGrad:
      return {{op, "", {none, sbv, sb}, Scaled(1.0 / 8), {0, 0, 8}}};
    case OpKind::kRowMax:
      return {{op, "", {sbv}}};
    case OpKind::kExpSumAndPick:
      return {{op, "s b v, s b, b s -> s b, s b", {sbv, sb, bs}, {}, {0, 0, 8}}};
    case OpKind::kRowPartials:
      return {{op, "s b v, b s -> s b =v, s b =v, s b =v", {sbv, bs}, {}, {0, 8}, -3, 3, {sb2, sb2, sb2}},
              {op, "s b v!, b s -> s b, s b, s b", {sbv, bs}, {}, {0, 8}, -3, 3}};
    case OpKind::kJoinPartials:
      return {{op, "", {sb2, sb2, sb2, sb}, {}, {}, 0.5, 1.5}};
    case OpKind::kLossFromPartials:
      return {{op, "", {sb, sb, sb}, Scaled(1.0 / 8), {}, 0.5, 1.5}};
    case OpKind::kPartialsGrad:
      return {{op, ", s b v, s b, s b, b s -> s b v", {none, sbv, sb, sb, bs}, half, {0, 0, 0, 0, 8}, 0.5, 1.5}};
    case OpKind::kDispatch:
      return {{op, "", {tokens, logits}, {}, {}, -1, 1, {experts}},
              {op, "n q! b h, n q! b e! -> =n =b h", {grouped, grouped_logits}, {}, {}, -1, 1, {experts}},
              {op, "z b h, z b e! -> x =z =b h", {tokens, logits}, {}, {}, -1, 1, {parts}}};
    case OpKind::kDispatchGrad:
      return {{op, "", {experts, logits}, {}, {}, -1, 1, {tokens}},
              {op, "=n =b h, n q! b e! -> n q! b h", {experts, grouped_logits}, {}, {}, -1, 1, {grouped}},
              {op, "x =z =b h, z b e! -> z b h", {parts, logits}, {}, {}, -1, 1, {tokens}}};
    case OpKind::kCombine:
      return {{op, "", {experts, logits}, {}, {}, -1, 1, {tokens}},
              {op, "=n =b h, n q! b e! -> n q! b h", {experts, grouped_logits}, {}, {}, -1, 1, {grouped}},
              {op, "=n =z =b h, n z b e! -> n z b h", {parts, {2, 4, 2, 4}}, {}, {}, -1, 1, {{2, 4, 2, 2}}}};
    case OpKind::kCombineGrad:
      return {{op, "", {tokens, experts, logits}, {}, {}, -1, 1, {experts, logits}},
              {op,
               "n q! b h!, =n =b h!, n q! b e! -> =n =b h!, n q! b e!",
               {grouped, experts, grouped_logits},
               {},
               {},
               -1,
               1,
               {experts, grouped_logits}}};
    case OpKind::kToGroups:  // with both outputs: every token goes to both groups, so that no slot is empty
      return {{op, "", {tokens, {4, 2, 2}}, {}, {}, -1, 1, {{2, 4, 2, 2}, {2, 4, 2, 2}}},
              {op, "s! b h, s! b e! -> n! q! b h", {tokens, logits}, {}, {}, -1, 1, {{2, 3, 2, 2}}}};
    case OpKind::kFromGroups:
      return {{op, "", {{2, 3, 2, 2}, logits}}};
    case OpKind::kMatMulGelu:
      return {{op, "m k!, k! n -> m n, m n", {{4, 6}, {6, 8}}, {}, {}, -2, 2},
              {op, "m k!, k! n -> m n", {{4, 6}, {6, 8}}, {}, {}, -2, 2},
              {op, "s b h!, h! f, f -> s b f, s b f", {sbh, {6, 8}, {8}}, {}, {}, -2, 2},
              {op, "s b h!, h! f -> s f b", {sbh, {6, 8}}},
              {op, "e c h!, e h! f -> e c f, e c f", {{2, 4, 6}, {2, 6, 8}}}};
    case OpKind::kMatMulGeluGrad:
      return {{op, "s b h!, f h!, s b f -> s b f", {sbh, {8, 6}, sbv}, {}, {}, -2, 2},
              {op, "e c h!, e f h!, e c f -> e c f", {{2, 4, 6}, {2, 8, 6}, {2, 4, 8}}}};
    case OpKind::kDropoutAdd:
      return {{op, "s b h, s b h -> s b h", {sbh, sbh}, Masked(0.25)},
              {op, "s b h, b s h -> s b h", {sbh, {2, 4, 6}}, Masked(0.5)},
              {op, "s b h, s b h -> s b h, s b h", {sbh, sbh}, Masked(0.5)}};
    case OpKind::kAddLayerNorm:
      return {{op, "s b h!, h!, s b h!, h!, h! -> s b h!, s b h!", {sbh, {6}, sbh, {6}, {6}}},
              {op, "s b h!, s b h!, h!, h! -> s b h!, s b h!", {{2, 4, 16}, {2, 4, 16}, {16}, {16}}}};
    case OpKind::kAddRmsNorm:
      return {{op, "s b h!, s b h!, h! -> s b h!, s b h!", {sbh, sbh, {6}}},
              {op, "s b h!, b s h!, h! -> s b h!, s b h!", {sbh, {2, 4, 6}, {6}}},
              {op, "s h!, h!, s h!, s h!, h! -> s h!, s h!", {{4, 16}, {16}, {4, 16}, {4, 16}, {16}}}};
    case OpKind::kLayerNormGradAdd:
      return {{op, "s b h!, s b h!, h!, s b h! -> s b h!, h!, h!", {sbh, sbh, {6}, sbh}},
              {op, "s h!, s h!, h!, s h! -> s h!, h!, h!", {{4, 16}, {4, 16}, {16}, {4, 16}}}};
    case OpKind::kRmsNormGradAdd:
      return {{op, "s b h!, s b h!, h!, s b h! -> s b h!, h!", {sbh, sbh, {6}, sbh}},
              {op, "s h!, s h!, h!, s h! -> s h!, h!", {{4, 16}, {4, 16}, {16}, {4, 16}}}};
    case OpKind::kSgd:
      return {{op, "", {table, table}, Training(0.25)},
              {op, "i j, i j, , -> i j", {table, table, none, none}, Training(0.25)}};
    case OpKind::kMomentum:
      return {{op, "", {table, table, table}, Training(0.25)},
              {op, "i j, i j, i j, , -> i j, i j", {table, table, table, none, none}, Training(0.25)}};
    case OpKind::kAdamW:
      return {{op, "", {table, table, table, table}, Training(0.25), {}, 0, 1},
              {op,
               "i j, i j, i j, i j, , -> i j, i j, i j",
               {table, table, table, table, none, none},
               Training(0.25),
               {},
               0.25,
               1}};
    case OpKind::kLambStep:
      return {{op, "", {table, table, table, table}, Training(0.25), {}, 0, 1},
              {op,
               "i j, i j, i j, i j, , -> i j, i j, i j, , ",
               {table, table, table, table, none, none},
               Training(0.25),
               {},
               0.25,
               1}};
    case OpKind::kLamb:
      return {{op, "", {table, table, none, none}, Training(0.25), {}, 0.5, 1},
              {op, "i j, i j, , , , -> i j", {table, table, none, none, none, none}, Training(0.25), {}, 0.5, 1}};
    case OpKind::kMuonStep:
      return {{op, "", {table, table, table}, Training(0.25)},
              {op, "i j, i j, i j, , -> i j, i j", {table, table, table, none, none}, Training(0.25)}};
    case OpKind::kMuon:
      return {{op, "", {table, table}, Training(0.25)},
              {op, "i j, i j, , -> i j", {table, table, none, none}, Training(0.25)}};
    case OpKind::kNotFinite:
      return {{op, "i j -> ", {table}}, {op, "i j, k i, -> ", {table, {6, 8}, none}}};
    case OpKind::kAdjustScale:
      return {{op, "", {none, none, none, none}, Scaling(1), {}, 0.5, 1},
              {op, "", {none, none, none, none}, Scaling(3), {}, 0.5, 1}};
    case OpKind::kFill:
    case OpKind::kExchange:
    case OpKind::kFeed:
    case OpKind::kNumOps:
      return {};
  }
  return {};
}

OwnedTensor::OwnedTensor(DType type, const Shape& extents)
    : dtype(type), shape(extents), data(static_cast<size_t>(NumElements(extents) * SizeOf(type).raw())) {}

TensorView OwnedTensor::View() { return {data.data(), dtype, shape, shape, Shape(shape.size(), 0)}; }

double OwnedTensor::At(int64_t i) const {
  if (dtype == DType::kInt32) return reinterpret_cast<const int32_t*>(data.data())[i];
  if (dtype == DType::kFloat32) return reinterpret_cast<const float*>(data.data())[i];
  return reinterpret_cast<const double*>(data.data())[i];
}

void OwnedTensor::Set(int64_t i, double value) {
  if (dtype == DType::kInt32) {
    reinterpret_cast<int32_t*>(data.data())[i] = static_cast<int32_t>(value);
  } else if (dtype == DType::kFloat32) {
    reinterpret_cast<float*>(data.data())[i] = static_cast<float>(value);
  } else {
    reinterpret_cast<double*>(data.data())[i] = value;
  }
}

OpCase MakeCase(const OpExample& example, uint64_t seed, DType dtype) {
  OpCase result;
  result.example = example;
  absl::StatusOr<IndexRule> rule =
      example.rule.empty() ? InstantiateRule(InfoOf(example.op).rule, example.inputs) : ParseRule(example.rule);
  if (!rule.ok()) Fail(example, rule.status().ToString());
  result.rule = *rule;
  const absl::StatusOr<Shape> extents =
      LabelExtents(*rule, example.inputs, example.outputs.empty() ? absl::Span<const Shape>() : example.outputs);
  std::vector<Shape> outputs = example.outputs;
  if (outputs.empty()) {
    if (!extents.ok()) Fail(example, extents.status().ToString());
    outputs = InferShapes(*rule, *extents);
  }
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    const int64_t ids = i < example.ids.size() ? example.ids[i] : 0;
    OwnedTensor& input = result.inputs.emplace_back(ids > 0 ? DType::kInt32 : dtype, example.inputs[i]);
    for (int64_t e = 0; e < NumElements(input.shape); ++e) {
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      input.Set(e, ids > 0 ? std::floor(u * static_cast<double>(ids)) : example.low + (example.high - example.low) * u);
    }
  }
  for (const Shape& shape : outputs) {
    OwnedTensor& output = result.outputs.emplace_back(dtype, shape);
    for (int64_t e = 0; e < NumElements(shape); ++e) output.Set(e, std::numeric_limits<double>::quiet_NaN());
  }
  result.text = absl::StrCat(NameOf(example.op), " ", ToText(*rule), example.attrs.causal ? "" : " not causal",
                             example.attrs.fused ? "" : " not fused");
  return result;
}

}  // namespace meshwright
