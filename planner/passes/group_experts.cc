#include "planner/passes/group_experts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "planner/passes/cut_runs.h"

namespace meshwright {
namespace {

class Grouper {
 public:
  Grouper(Graph graph, int64_t groups) : graph_(std::move(graph)), groups_(groups) {}

  absl::StatusOr<Graph> Run() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (Op& op : ops) {
      if (op.kind == OpKind::kDispatch) {
        MESHWRIGHT_RETURN_IF_ERROR(Dispatch(std::move(op)));
      } else if (op.kind == OpKind::kCombine) {
        MESHWRIGHT_RETURN_IF_ERROR(Combine(std::move(op)));
      } else {
        Put(std::move(op));
      }
    }
    MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(graph_));
    return std::move(graph_);
  }

 private:
  void Put(Op op) {
    for (TensorId id : op.outputs) graph_.tensors[id.index()].producer = OpId(graph_.ops.size());
    graph_.ops.push_back(std::move(op));
  }

  absl::Status Put(const Op& like, OpKind kind, std::string name, std::vector<TensorId> inputs,
                   std::vector<TensorId> outputs, const std::string& rule) {
    Op op = like;
    op.kind = kind;
    op.name = std::move(name);
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    MESHWRIGHT_ASSIGN_OR_RETURN(op.rule, ParsedRule(rule));
    Put(std::move(op));
    return absl::OkStatus();
  }

  TensorId NewTensor(TensorId like, const std::string& name, Shape shape) {
    Tensor tensor = graph_.tensor(like);
    tensor.name = absl::StrCat(name, PieceMark(tensor.name));
    tensor.shape = std::move(shape);
    tensor.kind = TensorKind::kValue;
    graph_.tensors.push_back(std::move(tensor));
    return TensorId(graph_.tensors.size() - 1);
  }

  // Operands of the rules, in the op's own labels.
  struct Operands {
    std::string tokens, logits, groups, groups_logits, parts, parts_logits, slots;
  };
  static Operands OperandsOf(const IndexRule& rule, const OperandRule& tokens, const OperandRule& logits) {
    const auto name = [&rule](const DimRule& dim) { return rule.labels[static_cast<size_t>(dim.label)].name; };
    const std::string s = name(tokens[0]), b = name(tokens[1]), h = name(tokens[2]), e = name(logits[2]);
    const std::string part = absl::StrCat(kGroupLabel, " q! ", b, " ");
    const std::string whole = absl::StrCat(kGroupLabel, "! q! ", b, " ");
    return {absl::StrCat(s, "! ", b, " ", h),
            absl::StrCat(s, "! ", b, " ", e, "!"),
            absl::StrCat(whole, h),
            absl::StrCat(whole, e, "!"),
            absl::StrCat(part, h),
            absl::StrCat(part, e, "!"),
            absl::StrCat("=", kGroupLabel, " =", b, " ", h)};
  }

  absl::Status Dispatch(Op op) {
    const TensorId tokens = op.inputs[0], logits = op.inputs[1];
    const Shape x = graph_.tensor(tokens).shape, slots = graph_.tensor(op.outputs[0]).shape;
    const int64_t experts = slots[0];
    if (experts % groups_ != 0) {
      return LayoutError("operator \"", op.name, "\": ", experts, " experts in ", groups_,
                         " groups; wanted a divisor of the experts");
    }
    // As many times what comes on average as the experts' slots are.
    const double even = static_cast<double>(x[0] * x[1] * op.attrs.top_k) / static_cast<double>(experts * slots[1]);
    const double room = ShareOfGroup(experts, op.attrs, groups_) / even;
    const int64_t places =
        std::min(x[0], static_cast<int64_t>(std::ceil(std::min(1.0, room) * static_cast<double>(x[0]))));
    const TensorId sent = NewTensor(tokens, absl::StrCat(op.name, "/sent"), {groups_, places, x[1], x[2]});
    const TensorId sent_logits =
        NewTensor(logits, absl::StrCat(op.name, "/logits"), {groups_, places, x[1], graph_.tensor(logits).shape[2]});
    sent_[logits] = {sent_logits, places};
    const Operands o = OperandsOf(op.rule, op.rule->inputs[0], op.rule->inputs[1]);
    MESHWRIGHT_RETURN_IF_ERROR(Put(op, OpKind::kToGroups, absl::StrCat(op.name, "/groups"), {tokens, logits},
                                   {sent, sent_logits},
                                   absl::StrCat(o.tokens, "!, ", o.logits, " -> ", o.groups, "!, ", o.groups_logits)));
    return Put(op, OpKind::kDispatch, op.name, {sent, sent_logits}, op.outputs,
               absl::StrCat(o.parts, ", ", o.parts_logits, " -> ", o.slots));
  }

  absl::Status Combine(Op op) {
    const TensorId logits = op.inputs[1];
    const auto sent = sent_.find(logits);
    if (sent == sent_.end()) {
      return absl::UnimplementedError(
          absl::StrCat("operator \"", op.name, "\" (", NameOf(op.kind), ") by groups: no Dispatch by its logits"));
    }
    const auto& [sent_logits, places] = sent->second;
    const Shape y = graph_.tensor(op.outputs[0]).shape;
    const TensorId parts = NewTensor(op.outputs[0], absl::StrCat(op.name, "/parts"), {groups_, places, y[1], y[2]});
    const Operands o = OperandsOf(op.rule, op.rule->outputs[0], op.rule->inputs[1]);
    MESHWRIGHT_RETURN_IF_ERROR(Put(op, OpKind::kCombine, op.name, {op.inputs[0], sent_logits}, {parts},
                                   absl::StrCat(o.slots, ", ", o.parts_logits, " -> ", o.parts)));
    return Put(op, OpKind::kFromGroups, absl::StrCat(op.name, "/groups"), {parts, logits}, op.outputs,
               absl::StrCat(o.groups, ", ", o.logits, " -> ", o.tokens));
  }

  Graph graph_;
  const int64_t groups_;
  std::map<TensorId, std::pair<TensorId, int64_t>>
      sent_;  // by router's logits: those that groups got, and their places
};

// Of `all`, of which `some` count, the probability that `draws` meet none of these: C(all - some, draws) / C(all,
// draws).
double NoneOf(int64_t all, int64_t some, int64_t draws) {
  double none = 1;
  for (int64_t i = 0; i < draws; ++i) {
    none *= std::max(0.0, static_cast<double>(all - some - i)) / static_cast<double>(all - i);
  }
  return none;
}

double Choose(int64_t n, int64_t k) {
  double ways = k < 0 || k > n ? 0 : 1;
  for (int64_t i = 0; i < k && k <= n; ++i) ways *= static_cast<double>(n - i) / static_cast<double>(k - i);
  return ways;
}

// The probability that of `all`, of which `some` count, `draws` meet `met` of these.
double Chosen(int64_t all, int64_t some, int64_t draws, int64_t met) {
  return Choose(some, met) * Choose(all - some, draws - met) / Choose(all, draws);
}

}  // namespace

double ShareOfGroup(int64_t experts, const OpAttrs& routing, int64_t groups) {
  const int64_t of = routing.choice_groups;
  if (of == 1 || (groups % of != 0 && of % groups != 0)) {
    return 1 - NoneOf(experts, experts / groups, routing.top_k);
  }
  // A group is a part of one of the router's, or some of them: as many of these as are among the token's.
  const int64_t best = routing.top_choice_groups, open = experts / of * best;
  const int64_t own = std::max<int64_t>(1, of / groups), size = experts / std::max(groups, of);
  double share = 0;
  for (int64_t chosen = 1; chosen <= std::min(own, best); ++chosen) {
    share += Chosen(of, own, best, chosen) * (1 - NoneOf(open, size * chosen, routing.top_k));
  }
  return share;
}

absl::StatusOr<Graph> GroupExperts(Graph graph, const Strategy& strategy) {
  if (strategy.expert_groups == 1) return graph;
  return Grouper(std::move(graph), strategy.expert_groups).Run();
}

}  // namespace meshwright
