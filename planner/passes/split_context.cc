#include "planner/passes/split_context.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/heads.h"
#include "ir/status.h"
#include "planner/passes/cut_runs.h"

namespace meshwright {
namespace {

class Splitter {
 public:
  Splitter(Graph graph, const Strategy& strategy)
      : graph_(std::move(graph)), ranks_(strategy.mesh.SizeOf(ContextAxes(strategy.mesh))), how_(strategy.context) {}

  absl::StatusOr<Graph> Run() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (Op& op : ops) {
      MESHWRIGHT_RETURN_IF_ERROR(Order(op));
      MESHWRIGHT_RETURN_IF_ERROR(Route(op));
      if (op.kind == OpKind::kAttention) {
        MESHWRIGHT_RETURN_IF_ERROR(Attend(std::move(op)));
      } else {
        Put(std::move(op));
      }
    }
    MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(graph_));
    return std::move(graph_);
  }

 private:
  static absl::Status Cannot(const Op& op, absl::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat("operator \"", op.name, "\" (", NameOf(op.kind), ") with context parallelism: ", what));
  }

  // Tells the op, and the inputs that it reads, how the sequence is stored.
  absl::Status Order(Op& op) {
    const int label = op.rule->FindLabel(kSequenceLabel);
    if (label < 0) return absl::OkStatus();
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      Tensor& input = graph_.tensors[op.inputs[i].index()];
      for (size_t d = 0; d < op.rule->inputs[i].size(); ++d) {
        if (op.rule->inputs[i][d].label != label) continue;
        if (input.shape[d] % (2 * ranks_) != 0) {
          return LayoutError("operator \"", op.name, "\": a sequence of ", input.shape[d], " for ", ranks_,
                             " ranks of context parallelism; wanted a multiple of ", 2 * ranks_);
        }
        if (input.kind != TensorKind::kInput) continue;
        if (d + 1 != input.shape.size()) return Cannot(op, "its input has other dims behind the sequence");
        input.init.context = ranks_;
      }
    }
    switch (op.kind) {
      case OpKind::kAttention:
      case OpKind::kRotary:
      case OpKind::kLatentHeads:
      case OpKind::kAddPositions:
      case OpKind::kCausalConv:
      case OpKind::kLinearAttention:
        op.attrs.context = ranks_;
        return absl::OkStatus();
      case OpKind::kDropout:
        return Cannot(op, "which elements it drops depends on their place");
      default:
        return op.rule->labels[static_cast<size_t>(label)].whole && !RoutesTokens(op.kind)
                   ? Cannot(op, "it wants the sequence whole")
                   : absl::OkStatus();
    }
  }

  // To experts or their groups, or back.
  static bool RoutesTokens(OpKind kind) {
    const OpRole role = InfoOf(kind).role;
    return role == OpRole::kDispatch || role == OpRole::kCombine || role == OpRole::kGroup;
  }

  static int64_t RoundedUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

  // Before dim `d`, one of the ranks' parts.
  static void InsertParts(OperandRule& operand, size_t d, DimRule parts) { operand.insert(operand.begin() + d, parts); }

  // Each part of a sequence goes its own way to experts and back. Groups have places, and experts slots, of every part.
  absl::Status Route(Op& op) {
    if (!RoutesTokens(op.kind)) return OfSlots(op);
    IndexRule rule = op.rule;
    const OperandRule& logits = rule.inputs[1];
    const DimRule parts = {logits[logits.size() - 3].label, true};
    rule.labels[static_cast<size_t>(parts.label)] = {std::string(kPartLabel), false};
    if (op.kind == OpKind::kToGroups) {
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        rule.outputs[i][1] = parts;
        int64_t& places = graph_.tensors[op.outputs[i].index()].shape[1];
        places = RoundedUp(places, ranks_);
      }
    } else if (op.kind == OpKind::kFromGroups) {
      rule.inputs[0][1] = parts;
    } else if (op.kind == OpKind::kCombine) {
      InsertParts(rule.inputs[0], 1, parts);
      // As many tokens as have logits, those of groups among them.
      Shape& made = graph_.tensors[op.outputs[0].index()].shape;
      made[made.size() - 3] = graph_.tensor(op.inputs[1]).shape[made.size() - 3];
    } else {
      InsertParts(rule.outputs[0], 1, parts);
      Shape& slots = graph_.tensors[op.outputs[0].index()].shape;
      const Shape& of_logits = graph_.tensor(op.inputs[1]).shape;
      const int64_t rows = of_logits[of_logits.size() - 2];
      const int64_t of_part = RoundedUp(slots[1] / rows, ranks_) / ranks_ * rows;
      slots = {slots[0], ranks_, of_part, slots[2]};
      slots_.insert(op.outputs[0]);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(op.rule, ParsedRule(ToText(rule)));
    return absl::OkStatus();
  }

  // What reads slots and makes more of them.
  absl::Status OfSlots(Op& op) {
    int label = DimRule::kUnsplit;
    int64_t of_part = 0;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!slots_.contains(op.inputs[i])) continue;
      label = op.rule->inputs[i][1].label;
      of_part = graph_.tensor(op.inputs[i]).shape[2];
    }
    if (label == DimRule::kUnsplit) return absl::OkStatus();
    if (op.rule->FindLabel(kPartLabel) >= 0) return Cannot(op, "its rule has a label of the name of the ranks' parts");
    IndexRule rule = op.rule;
    const DimRule parts = {static_cast<int8_t>(rule.labels.size())};
    rule.labels.push_back({std::string(kPartLabel), false});
    const auto at = [label](const OperandRule& operand) {
      return absl::c_find_if(operand, [label](const DimRule& dim) { return dim.label == label; }) - operand.begin();
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      OperandRule& operand = rule.inputs[i];
      const auto d = static_cast<size_t>(at(operand));
      if (d == operand.size()) continue;
      if (!slots_.contains(op.inputs[i])) return Cannot(op, "it reads slots of experts beside something else");
      InsertParts(operand, d, parts);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      OperandRule& operand = rule.outputs[i];
      const auto d = static_cast<size_t>(at(operand));
      if (d == operand.size()) continue;
      InsertParts(operand, d, parts);
      Shape& shape = graph_.tensors[op.outputs[i].index()].shape;
      shape[d] = of_part;
      shape.insert(shape.begin() + static_cast<int64_t>(d), ranks_);
      slots_.insert(op.outputs[i]);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(op.rule, ParsedRule(ToText(rule)));
    return absl::OkStatus();
  }

  TensorId NewTensor(const TensorId like, const std::string& name, Shape shape) {
    Tensor tensor = graph_.tensor(like);
    tensor.name = absl::StrCat(name, PieceMark(tensor.name));
    tensor.shape = std::move(shape);
    graph_.tensors.push_back(std::move(tensor));
    return TensorId(graph_.tensors.size() - 1);
  }

  void Put(Op op) {
    for (TensorId id : op.outputs) graph_.tensors[id.index()].producer = OpId(graph_.ops.size());
    graph_.ops.push_back(std::move(op));
  }

  absl::Status Put(const Op& like, OpKind kind, std::string name, std::vector<TensorId> inputs,
                   std::vector<TensorId> outputs, const std::string& rule, OpAttrs attrs = {}) {
    Op op;
    op.name = std::move(name);
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.attrs = std::move(attrs);
    op.segment = like.segment;
    if (InfoOf(kind).kernel == KernelClass::kAttention || kind == OpKind::kMergeAttention) {
      op.recompute_group = like.recompute_group;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(op.rule, ParsedRule(rule));
    Put(std::move(op));
    return absl::OkStatus();
  }

  // The rules' operands, in the op's own labels: what splits them splits the parts.
  struct Operands {
    std::string qkv, queries, keys, all_keys, result;
  };
  static Operands OperandsOf(const IndexRule& rule) {
    const auto name = [&](const OperandRule& operand, size_t d) {
      return rule.labels[static_cast<size_t>(operand[d].label)].name;
    };
    const OperandRule &qkv = rule.inputs[0], &result = rule.outputs[0];
    const std::string sequence = name(qkv, 0), rows = absl::StrCat(" ", name(qkv, 1), " ", name(qkv, 2), " ");
    const std::string made = absl::StrCat(sequence, rows, "q! ", name(result, 4), "!, ", sequence, rows, "q!");
    if (qkv.size() == 4) {  // heads one behind the other
      const std::string keys = absl::StrCat(rows, "y!");
      return {absl::StrCat(sequence, rows, name(qkv, 3), "!"), absl::StrCat(sequence, rows, "x!"),
              absl::StrCat(sequence, keys), absl::StrCat("t!", keys), made};
    }
    const std::string width = absl::StrCat("! ", name(qkv, 4), "!"), keys = absl::StrCat(rows, "w", width);
    return {absl::StrCat(sequence, rows, name(qkv, 3), width), absl::StrCat(sequence, rows, "q", width),
            absl::StrCat(sequence, keys), absl::StrCat("t!", keys), made};
  }

  absl::Status Attend(Op op) {
    const TensorId qkv = op.inputs[0];
    const Shape shape = graph_.tensor(qkv).shape;
    const std::optional<HeadSizes> heads =
        op.inputs.size() == 1 ? HeadSizesOf(shape, shape, false, graph_.tensor(op.outputs[0]).shape) : std::nullopt;
    if (!heads.has_value() || op.rule->inputs[0][0].label != op.rule->FindLabel(kSequenceLabel)) {
      return Cannot(op, "only attention of queries, keys and values in one");
    }
    if (!op.attrs.fused) return Cannot(op, "it keeps its probabilities; use fused attention");
    const Operands operands = OperandsOf(op.rule);
    Shape of_queries(shape.begin(), shape.begin() + 3), of_keys = of_queries;
    if (shape.size() == 5) {
      of_queries.insert(of_queries.end(), {heads->queries, heads->width});
      of_keys.insert(of_keys.end(), {2, heads->width});
    } else {
      of_queries.push_back(heads->key_at);
      of_keys.push_back(heads->width + heads->value_width);
    }
    const TensorId queries = NewTensor(qkv, absl::StrCat(op.name, "/queries"), of_queries);
    const TensorId keys = NewTensor(qkv, absl::StrCat(op.name, "/keys"), of_keys);
    MESHWRIGHT_RETURN_IF_ERROR(Put(op, OpKind::kSplit, absl::StrCat(op.name, "/split"), {qkv}, {queries, keys},
                                   absl::StrCat(operands.qkv, " -> ", operands.queries, ", ", operands.keys)));
    if (how_ == ContextExchange::kRing && op.attrs.window > 0) {
      return Cannot(op, "a window over keys that go round; use context_exchange all_gather");
    }
    if (how_ == ContextExchange::kRing) return GoRound(op, queries, keys, operands);
    return Put(op, OpKind::kAttention, op.name, {queries, keys}, op.outputs,
               absl::StrCat(operands.queries, ", ", operands.all_keys, " -> ", operands.result), op.attrs);
  }

  absl::Status GoRound(const Op& op, TensorId queries, TensorId keys, const Operands& operands) {
    OpAttrs round;
    round.context = ranks_;
    for (int64_t rank = 0; rank < ranks_; ++rank) round.sources.push_back((rank + ranks_ - 1) % ranks_);
    std::vector<TensorId> parts;
    std::string merge;
    for (int64_t shift = 0; shift < ranks_; ++shift) {
      const TensorId here = keys;
      // What is on its way during a block stands before it.
      if (shift + 1 < ranks_) {
        const std::string name = absl::StrCat(op.name, "/keys", shift + 1);
        keys = NewTensor(here, name, graph_.tensor(here).shape);
        MESHWRIGHT_RETURN_IF_ERROR(Put(op, OpKind::kExchange, name, {here}, {keys},
                                       absl::StrCat(operands.keys, " -> ", operands.keys), round));
      }
      OpAttrs attrs = op.attrs;
      attrs.shift = shift;
      std::vector<TensorId> outputs;
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        const Shape shape = graph_.tensor(op.outputs[i]).shape;
        outputs.push_back(NewTensor(op.outputs[i], absl::StrCat(op.name, "/", shift, ":", i), shape));
      }
      MESHWRIGHT_RETURN_IF_ERROR(
          Put(op, OpKind::kAttention, absl::StrCat(op.name, "/", shift), {queries, here}, outputs,
              absl::StrCat(operands.queries, ", ", operands.keys, " -> ", operands.result), attrs));
      parts.insert(parts.end(), outputs.begin(), outputs.end());
      absl::StrAppend(&merge, shift == 0 ? "" : ", ", operands.result);
    }
    return Put(op, OpKind::kMergeAttention, op.name, parts, op.outputs, absl::StrCat(merge, " -> ", operands.result));
  }

  Graph graph_;
  const int64_t ranks_;
  const ContextExchange how_;
  std::set<TensorId> slots_;  // of experts, by parts: (e, parts, c, ...)
};

}  // namespace

absl::StatusOr<Graph> SplitContext(Graph graph, const Strategy& strategy) {
  if (strategy.context == ContextExchange::kNone) return graph;
  if (ContextAxes(strategy.mesh).empty()) return LayoutError("context parallelism over a mesh without an axis \"cp\"");
  return Splitter(std::move(graph), strategy).Run();
}

std::vector<std::string> BroughtKeys(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kExchange && op.attrs.context > 1) names.push_back(op.name);
  }
  return names;
}

}  // namespace meshwright
