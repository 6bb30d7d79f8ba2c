#include "models/rows.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/rows_label.h"

namespace meshwright {
namespace {

// The dim of a row-major view that holds what is dim `dim` of `from`: as many elements stand in front of it.
int DimOfView(const Shape& from, int dim, const Shape& to) {
  int64_t in_front = 1, seen = 1;
  for (int d = 0; d < dim; ++d) in_front *= from[d];
  int found = -1;
  for (size_t d = 0; d < to.size() && seen <= in_front; seen *= to[d++]) found = static_cast<int>(d);
  return found;
}

// Which dim of an output holds the rows of an input, of which they are dim `dim`; -1: none.
int DimOfOutput(const Op& op, size_t input, int dim, size_t output, const Graph& graph) {
  const Shape &from = graph.tensor(op.inputs[input]).shape, &to = graph.tensor(op.outputs[output]).shape;
  if (op.kind == OpKind::kReshape) return DimOfView(from, dim, to);
  const int8_t label = op.rule->inputs[input][dim].label;
  const OperandRule& dims = op.rule->outputs[output];
  for (size_t d = 0; d < dims.size(); ++d) {
    if (label >= 0 && dims[d].label == label) return static_cast<int>(d);
  }
  // What wants them whole and has a dim of its own in their place.
  const bool cut = label >= 0 && op.rule->labels[label].whole && to.size() == from.size();
  return cut && dims[dim].label >= 0 ? dim : -1;
}

}  // namespace

void NameRows(Graph& graph) {
  std::vector<int> rows(graph.tensors.size(), -1);  // per tensor: the dim
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind == TensorKind::kInput && !graph.tensors[t].shape.empty()) rows[t] = 0;
  }
  for (Op& op : graph.ops) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int dim = rows[op.inputs[i].index()];
      if (dim < 0) continue;
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        int& of_output = rows[op.outputs[o].index()];
        if (of_output < 0) of_output = DimOfOutput(op, i, dim, o, graph);
      }
      if (op.kind != OpKind::kDropout) continue;
      op.rule.Change([&](IndexRule& own) { own.labels[own.inputs[i][dim].label].name = std::string(kRowsLabel); });
    }
  }
}

}  // namespace meshwright
