// Columns of tables of kernels and collectives under the names that their readers know.
//
// "Message Size (KiB)", "latency_ms", "busbw (GB/s)" become `size_bytes`, `time_us`, `busbw_gbps`, their cells
// converted. The unit stands in brackets behind a name, at the end of it, or in a cell ("64 KiB", "1.2 ms"); else it is
// the usual one of the column. K, M and G of a message's size are powers of two, with a B behind them too: sweeps
// double. Where a table already has the known name, its other columns stay as they are.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_COLUMNS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_COLUMNS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/validate/csv.h"

namespace meshwright {

enum class ColumnUnit : uint8_t { kText, kMicros, kMillis, kBytes, kGigabytesPerSecond, kTeraflops };

struct KnownColumn {
  absl::string_view name;  // that the reader asks for, in lower case
  ColumnUnit unit;         // of its cells
  // What others call it, separated by spaces, the most telling first: in lower case, other signs than letters and
  // digits as '_', no unit.
  absl::string_view others;
};

// `table` with the columns that it lacks under their known names, in the known unit. Cells that hold no number stay.
CsvTable WithKnownColumns(CsvTable table, absl::Span<const KnownColumn> known);

// How many of `unit`'s own unit one of the unit that `text` names is: "ms" of kMicros is 1000. Nothing for other text.
std::optional<double> FactorOf(absl::string_view text, ColumnUnit unit);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_COLUMNS_H_
