// S5.15: all users of a parameter give it the same layout, since no redistribution is ever inserted on one.
//
// Thread safety: const methods may be called from any thread.
#ifndef MESHWRIGHT_PLANNER_SEARCH_PARAMETER_USERS_H_
#define MESHWRIGHT_PLANNER_SEARCH_PARAMETER_USERS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "ir/graph.h"
#include "planner/search/op_candidates.h"

namespace meshwright {

class ParameterUsers {
 public:
  ParameterUsers(const Graph& graph, const Mesh& mesh);  // both must outlive this

  // Ops that are chosen already, by number.
  using Chosen = std::vector<std::optional<OpCandidate>>;

  // E-LAYOUT, naming the parameter, both ops and both layouts, where `candidate` of op number `op` reads a parameter
  // otherwise than an op that is chosen.
  absl::Status Check(size_t op, const OpCandidate& candidate, const Chosen& chosen) const;
  bool Agrees(size_t op, const OpCandidate& candidate, const Chosen& chosen) const;

 private:
  struct Use {
    size_t op, input;
  };
  struct Conflict {
    size_t input;  // of the op in question
    Use other;
  };
  std::optional<Conflict> Find(size_t op, const OpCandidate& candidate, const Chosen& chosen) const;

  const Graph& graph_;
  const Mesh& mesh_;
  std::map<TensorId, std::vector<Use>> uses_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_PARAMETER_USERS_H_
