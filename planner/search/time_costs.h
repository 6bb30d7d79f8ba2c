// Prices of a search in nanoseconds of the cluster at hand: each kernel and collective as the cost model prices it when
// it runs alone, added up. What the compatible model (compatible_costs.h) leaves out counts here: how fast kernels are,
// the links between ranks, and the reduction of gradients that products leave partial.
//
//   operators   forward and backward kernels in the candidate's layouts; the reduction of partial outputs; of the
//               reduction of parameters' gradients what outlasts the operator's own backward kernels, which it runs
//               beside
//   uses        the cheapest redistribution forward (planner/redistribute.h), and that of the gradient back, with the
//               reduction where the user's backward pass leaves it partial
//   memory      that of the compatible model
//
// A bound on nothing: the simulator, which judges the plan, lets communication hide behind kernels and kernels slow
// each other down.
//
// Thread safety: const methods may be called from any thread.
#ifndef MESHWRIGHT_PLANNER_SEARCH_TIME_COSTS_H_
#define MESHWRIGHT_PLANNER_SEARCH_TIME_COSTS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "ir/graph.h"
#include "planner/passes/step_end.h"
#include "planner/redistribute.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/search_prices.h"

namespace meshwright {

class TimeCosts final : public SearchPrices {
 public:
  // All references but `graph` must outlive this. `memory`: of the same graph. Without a loss there is no backward
  // pass.
  static absl::StatusOr<TimeCosts> Make(const Graph& graph, const Mesh& mesh, const CostModel& costs,
                                        const CompatibleCosts& memory, const UpdateRule& update);

  absl::StatusOr<Cost> OfOperator(size_t op, const OpCandidate& candidate) const override;
  absl::StatusOr<Cost> OfUse(const TensorSide& from, size_t user, size_t input,
                             const OpCandidate& candidate) const override;

 private:
  // Redistributions that have been priced: searches ask for the same ones over and over.
  struct Known {
    std::mutex mutex;
    std::map<std::string, double> times;
  };

  TimeCosts(const Mesh& mesh, const CostModel& costs, const CompatibleCosts& memory)
      : mesh_(mesh), costs_(costs), memory_(memory), known_(std::make_unique<Known>()) {}
  absl::StatusOr<double> Redistribution(const Tensor& tensor, const Layout& from, const Layout& to) const;
  double Kernel(const Op& op, const Assignment& assignment) const;
  absl::StatusOr<double> Update(const Tensor& parameter, const Layout& layout) const;

  const Mesh& mesh_;
  const CostModel& costs_;
  const CompatibleCosts& memory_;
  Graph graph_;                              // with its backward ops
  std::vector<std::vector<OpId>> backward_;  // by forward op
  std::vector<bool> wanted_;                 // by tensor: a gradient
  std::map<TensorId, size_t> first_user_;    // of trainable parameters
  OpKind update_ = OpKind::kSgd;
  std::unique_ptr<Known> known_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_TIME_COSTS_H_
