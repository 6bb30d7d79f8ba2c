// What the other rows of a table tell of one: sources describe a model or a layout once.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_SIBLINGS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_SIBLINGS_H_

#include <cstdint>
#include <optional>

#include "tools/validate/csv.h"

namespace meshwright {

// Heads of the row of the same hidden size and nearest in layers, of those that split over `tensor` ranks. 0: none.
int64_t HeadsOfSibling(const CsvCells& cells, int64_t hidden, double layers, int64_t tensor);

// Of a row whose columns of layout are empty (IsLentColumn): the row of the same model on as many of the same devices,
// for the same task, that has a layout which divides this row's batch; of several the first of those nearest in batch.
std::optional<CsvCells> SiblingWithLayout(const CsvCells& cells);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_SIBLINGS_H_
