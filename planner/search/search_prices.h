// What a search adds up: the price of every operator in a candidate's layouts, and of every use of a tensor whose
// producer and user want it in different ones. Two kinds of prices exist: the compatible cost model's bytes
// (compatible_costs.h), and times of the machine at hand (time_costs.h).
//
// Thread safety: const methods may be called from any thread.
#ifndef MESHWRIGHT_PLANNER_SEARCH_SEARCH_PRICES_H_
#define MESHWRIGHT_PLANNER_SEARCH_SEARCH_PRICES_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "planner/search/canonical_redistribution.h"
#include "planner/search/op_candidates.h"

namespace meshwright {

// Adds up over a graph. Computation and communication in the unit of the prices, memory in bytes of one rank.
struct Cost {
  double computation = 0, communication = 0, memory = 0;

  Cost& operator+=(const Cost& other) {
    computation += other.computation;
    communication += other.communication;
    memory += other.memory;
    return *this;
  }
  friend Cost operator+(Cost a, const Cost& b) { return a += b; }
};

// How a tensor lies before its user takes it: its layout, and the device matrix of whoever left it so.
struct TensorSide {
  Layout layout;  // whole
  MatrixBounds matrix;
};

class SearchPrices {
 public:
  virtual ~SearchPrices() = default;

  // Of op number `op` of the graph.
  virtual absl::StatusOr<Cost> OfOperator(size_t op, const OpCandidate& candidate) const = 0;

  // Of bringing the tensor that is input `input` of op number `user` to where that op wants it, and its gradient back.
  virtual absl::StatusOr<Cost> OfUse(const TensorSide& from, size_t user, size_t input,
                                     const OpCandidate& candidate) const = 0;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_SEARCH_PRICES_H_
