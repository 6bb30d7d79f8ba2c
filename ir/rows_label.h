// The label by which the rule of a random operator says which dim of its operand counts the rows of the batch.
//
//   Dropout "rows d1 -> rows d1"    micro-batch i draws rows i*b .. (i+1)*b of the mask of the step's whole batch
//   Dropout "d0 d1 -> d0 d1"        no rows (a parameter): every micro-batch of a step draws the same mask
//
// Other dims may stand inside the rows ("rows" of a batch and its sequence in one dim).
#ifndef MESHWRIGHT_IR_ROWS_LABEL_H_
#define MESHWRIGHT_IR_ROWS_LABEL_H_

#include "absl/strings/string_view.h"

namespace meshwright {

inline constexpr absl::string_view kRowsLabel = "rows";

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_ROWS_LABEL_H_
