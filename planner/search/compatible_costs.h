// The compatible cost model (S14): bytes that a device touches and moves, by which the searches of S15 decide in the
// parallel interface that users know. Deterministic, knows no machine. Everything follows from index rules and layouts:
//
//   computation    slices of all inputs, and of outputs that are partial sums (S14.3)
//   forward        slices of outputs that are partial sums, corrected for latency (S14.4)
//   gradient       slices of trainable parameters that have replicas
//   redistribution the canonical sequence (canonical_redistribution.h), forward and backward corrected each
//   memory         parameters and what backward reads, each tensor once (S14.8)
//
// What backward reads is what the op's gradient asks for (ir/gradients.h). An op of one activation whose output has its
// dims (activation functions, norms, softmax) counts its output, whichever of the two its gradient reads; others count
// inputs, unless the producer counts them already. In inference memory is parameters and the outputs on the critical
// path, which is the longest chain of operators, of equal ones the first.
//
// Thread safety: const methods may be called from any thread.
#ifndef MESHWRIGHT_PLANNER_SEARCH_COMPATIBLE_COSTS_H_
#define MESHWRIGHT_PLANNER_SEARCH_COMPATIBLE_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/cost_model_knobs.h"
#include "ir/graph.h"
#include "ir/mesh.h"
#include "planner/search/op_candidates.h"
#include "planner/search/search_prices.h"

namespace meshwright {

// Bytes.
struct OperatorCost {
  double computation = 0;  // less 1 where dim 0 of the first input is split over all ranks (S14.5)
  double forward = 0;      // as it is weighed: F of S14.4
  double gradient = 0;
};

// Bytes of one redistribution: the cost columns of S14.7 and what they are weighed as.
struct RedistributionCost {
  double forward = 0, backward = 0;  // moved
  double computation = 0, memory = 0;
  double communication = 0;  // as it is weighed: both corrected (S14.4), in inference forward only
};

// By tensor: whether it is a trainable parameter or depends on one.
std::vector<bool> WantsGradient(const Graph& graph);

// t(x) of S14.4.
double Corrected(double bytes, const CostModelKnobs& knobs);

class CompatibleCosts final : public SearchPrices {
 public:
  // `graph` and `mesh` (Mesh::Factored) must outlive this. `all_to_all`: the knob enable_alltoall.
  static absl::StatusOr<CompatibleCosts> Make(const Graph& graph, const Mesh& mesh, int64_t ranks_per_stage,
                                              const CostModelKnobs& knobs, bool all_to_all);

  OperatorCost Operator(size_t op, const OpCandidate& candidate) const;
  // Infinite for a tensor of bools that would have to move (S7.11).
  RedistributionCost Redistribution(const Tensor& tensor, const TensorSide& from, const TensorSide& to) const;
  // What the op adds to S14.8's sum.
  double Memory(size_t op, const OpCandidate& candidate) const;

  // S14.6's two terms: communication is F + gamma x gradient, in inference F.
  absl::StatusOr<Cost> OfOperator(size_t op, const OpCandidate& candidate) const override;
  absl::StatusOr<Cost> OfUse(const TensorSide& from, size_t user, size_t input,
                             const OpCandidate& candidate) const override;

  const CostModelKnobs& knobs() const { return knobs_; }

 private:
  // Inputs and outputs of an op whose slices it adds to the memory.
  struct Held {
    std::vector<size_t> inputs, outputs;
  };

  CompatibleCosts(const Graph& graph, const Mesh& mesh, int64_t ranks, const CostModelKnobs& knobs, bool all_to_all)
      : graph_(graph), mesh_(mesh), ranks_(ranks), knobs_(knobs), all_to_all_(all_to_all) {}
  absl::Status FindHeld();
  void FindCriticalPath();
  double Slice(TensorId id, const Layout& layout) const;

  const Graph& graph_;
  const Mesh& mesh_;
  int64_t ranks_;
  CostModelKnobs knobs_;
  bool all_to_all_;
  std::vector<Held> held_;  // by op
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_COMPATIBLE_COSTS_H_
