#include "planner/search/op_candidates.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// The greatest number that divides every dim that the label names; 0 for a label that is in no input.
Shape SplittableExtents(const Op& op, const Graph& graph) {
  Shape extents(op.rule->labels.size(), 0);
  for (size_t label = 0; label < extents.size(); ++label) {
    if (!op.rule->InInputs(static_cast<int>(label))) continue;
    const auto visit = [&](const std::vector<OperandRule>& operands, const std::vector<TensorId>& ids) {
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t d = 0; d < operands[i].size(); ++d) {
          if (operands[i][d].label != static_cast<int>(label)) continue;
          extents[label] = std::gcd(extents[label], graph.tensor(ids[i]).shape[d]);
        }
      }
    };
    visit(op.rule->inputs, op.inputs);
    visit(op.rule->outputs, op.outputs);
  }
  return extents;
}

// All pieces of the labels from `label` on that multiply to `left`, or divide it.
void Enumerate(const Op& op, const Shape& extents, size_t label, int64_t left, bool all, Pieces& pieces,
               std::vector<Pieces>& out) {
  if (label == extents.size()) {
    if (left == 1 || !all) out.push_back(pieces);
    return;
  }
  const bool fixed = op.rule->labels[label].whole || extents[label] == 0;
  for (int64_t p = 1; p <= (fixed ? 1 : left); ++p) {
    if (left % p != 0 || (p > 1 && extents[label] % p != 0)) continue;
    pieces[label] = p;
    Enumerate(op, extents, label + 1, left / p, all, pieces, out);
  }
  pieces[label] = 1;
}

// Rows and columns of each matrix of a product, on a rank.
bool IsAligned(const Op& op, const Graph& graph, const Pieces& pieces, int64_t align) {
  if (align <= 1 || InfoOf(op.kind).kernel != KernelClass::kContraction) return true;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const OperandRule& operand = op.rule->inputs[i];
    const Shape& shape = graph.tensor(op.inputs[i]).shape;
    for (size_t d = operand.size() < 2 ? 0 : operand.size() - 2; d < operand.size(); ++d) {
      const int label = operand[d].label;
      if (shape[d] / (label < 0 ? 1 : pieces[static_cast<size_t>(label)]) % align != 0) return false;
    }
  }
  return true;
}

// Whether the input's dims are the last ones of a larger input: it is broadcast along the batch.
bool IsTailOfAnother(const Op& op, size_t input) {
  const OperandRule& tail = op.rule->inputs[input];
  return std::any_of(op.rule->inputs.begin(), op.rule->inputs.end(), [&](const OperandRule& other) {
    return other.size() > tail.size() && std::equal(tail.rbegin(), tail.rend(), other.rbegin());
  });
}

}  // namespace

std::vector<std::vector<int64_t>> TuplesOf(const Op& op, const Pieces& pieces) {
  std::vector<std::vector<int64_t>> tuples;
  for (const OperandRule& operand : op.rule->inputs) {
    std::vector<int64_t>& tuple = tuples.emplace_back();
    for (const DimRule& dim : operand) {
      tuple.push_back(dim.label == DimRule::kUnsplit ? 1 : pieces[static_cast<size_t>(dim.label)]);
    }
  }
  return tuples;
}

absl::StatusOr<OpCandidate> MakeCandidate(const Op& op, const Graph& graph, const OpStrategy& strategy,
                                          const Mesh& mesh) {
  OpCandidate candidate{strategy, {}};
  MESHWRIGHT_ASSIGN_OR_RETURN(candidate.assignment, AssignmentOf(op, graph, strategy, mesh));
  return candidate;
}

absl::StatusOr<OpCandidate> MakeCandidate(const Op& op, const Graph& graph, const Pieces& pieces, const Mesh& mesh,
                                          int64_t ranks_per_stage) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const OpStrategy strategy,
                              FromTuples(op, graph, TuplesOf(op, pieces), mesh, ranks_per_stage));
  return MakeCandidate(op, graph, strategy, mesh);
}

Layout OutputOf(const Op& op, const OpCandidate& candidate, size_t output) {
  if (candidate.strategy.output.has_value() && output == 0) return *candidate.strategy.output;
  Layout layout = OutputLayout(op.rule, candidate.assignment, output, Reduction::kSum);
  layout.partial.clear();
  return layout;
}

CandidateOptions OptionsFrom(const CostModelKnobs& knobs) {
  return {.fully_use_devices = knobs.fully_use_devices,
          .align = knobs.tensor_slice_align_enable ? knobs.tensor_slice_align_size : 1};
}

absl::Status NoCandidate(const Op& op, const CostModelKnobs& knobs) {
  return PlanError("operator \"", op.name, "\" (", NameOf(op.kind), "): no strategy is allowed",
                   knobs.tensor_slice_align_enable
                       ? absl::StrCat("; the slices of none are multiples of tensor_slice_align_size = ",
                                      knobs.tensor_slice_align_size)
                       : "");
}

absl::StatusOr<std::vector<OpCandidate>> CandidatesOf(const Op& op, const Graph& graph, const Mesh& mesh,
                                                      int64_t ranks_per_stage, const CandidateOptions& options) {
  const Pieces whole(op.rule->labels.size(), 1);
  std::vector<Pieces> all;
  Pieces pieces = whole;
  Enumerate(op, SplittableExtents(op, graph), 0, ranks_per_stage, options.fully_use_devices, pieces, all);
  if (ranks_per_stage > 1) {
    all.erase(std::remove(all.begin(), all.end(), whole), all.end());
    all.push_back(whole);
  }
  std::vector<OpCandidate> candidates;
  for (const Pieces& one : all) {
    if (!IsAligned(op, graph, one, options.align)) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(OpCandidate candidate, MakeCandidate(op, graph, one, mesh, ranks_per_stage));
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

Pieces DefaultPieces(const Op& op, const Graph& graph, int64_t ranks_per_stage) {
  Pieces pieces(op.rule->labels.size(), 1);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const OperandRule& operand = op.rule->inputs[i];
    if (graph.tensor(op.inputs[i]).kind == TensorKind::kParameter) continue;
    if (IsTailOfAnother(op, i)) continue;
    if (operand.empty()) return pieces;
    int label = operand[0].label;
    if (op.kind == OpKind::kMatMul) {
      for (size_t d = 0; d < operand.size() && (label < 0 || !op.rule->InOutput(label, 0)); ++d)
        label = operand[d].label;
    }
    if (label < 0 || op.rule->labels[static_cast<size_t>(label)].whole) return pieces;
    const Shape extents = SplittableExtents(op, graph);
    pieces[static_cast<size_t>(label)] = std::gcd(extents[static_cast<size_t>(label)], ranks_per_stage);
    return pieces;
  }
  return pieces;
}

}  // namespace meshwright
