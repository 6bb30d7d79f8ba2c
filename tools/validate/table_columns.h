// The columns of the tables that this folder reads: one row each. What a cell holds is said where it is read.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_TABLE_COLUMNS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_TABLE_COLUMNS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tools/validate/columns.h"
#include "tools/validate/csv.h"

namespace meshwright {

// What the tables of each kind call their columns.
ColumnRules RulesOfTrainings();
ColumnRules RulesOfKernels();
ColumnRules RulesOfCollectives();

// Of a row of training runs: equal for rows that differ in layout only, and what of the row is that.
std::string RunKey(const CsvCells& cells);
std::string LayoutKey(const CsvCells& cells);

// Whether a column says how a model is split in a way that another row of the same run may lend.
bool IsLentColumn(absl::string_view column);
// Whether all of these are empty.
bool LentColumnsAreEmpty(const CsvCells& cells);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_TABLE_COLUMNS_H_
