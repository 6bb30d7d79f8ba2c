// How the operators of a plan are split, as its program has them: for reports of models of operators.
//
// Thread safety: plain values, a pure function.
#ifndef MESHWRIGHT_TOOLS_OPERATOR_ROWS_H_
#define MESHWRIGHT_TOOLS_OPERATOR_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/program.h"
#include "ir/strategy.h"

namespace meshwright {

// How one operator is split: into how many pieces each dim of each input is cut, those on each device included (S6.14).
struct OperatorRow {
  std::string name;
  std::string kind;  // "MatMul"
  std::vector<std::vector<int64_t>> in_strategy;
  friend bool operator==(const OperatorRow&, const OperatorRow&) = default;
};
std::vector<OperatorRow> OperatorRows(const Graph& graph, const Strategy& strategy, const Program& program);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_OPERATOR_ROWS_H_
