// Tables of kernels and of collectives as others write them, under the names that price_table.h lists.
//
// Beyond columns.h: "Shape (MxNxK)", "M=N=K" and "Matrix size" become m, n, k; times and rates of a forward and of a
// backward pass side by side become two rows. Of several columns for one thing that of the library that is priced
// counts (cuBLAS, PyTorch; NCCL), then medians before means before the rest, out of place before in place. A time of a
// kernel without any unit gives way to a rate.
//
// Errors: kInvalidArgument, `file:line:character: found X, wanted Y; hint`, where columns leave open which one counts,
// or in which unit. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_PRICE_COLUMNS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_PRICE_COLUMNS_H_

#include "absl/status/statusor.h"
#include "tools/validate/csv.h"

namespace meshwright {

absl::StatusOr<CsvTable> WithKernelColumns(CsvTable table);
absl::StatusOr<CsvTable> WithCollectiveColumns(CsvTable table);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_PRICE_COLUMNS_H_
