// Tables as text: comma separated values after RFC 4180, read whole, cells found by the names of the header.
//
// A cell in double quotes may hold commas, line breaks and doubled quotes. Lines end with LF or CRLF; a byte order mark
// and blank lines are skipped. Every row has as many cells as the header. Semicolons or tabs may stand in place of the
// commas: what separates the names of the header separates all cells.
//
// Errors: kInvalidArgument as `file:line: found X, wanted Y`; as tools/files.h has them where a file cannot be read.
// Thread safety: plain values, pure functions but for reading files.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_CSV_H_
#define MESHWRIGHT_TOOLS_VALIDATE_CSV_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace meshwright {

struct CsvRow {
  int64_t line = 0;  // of its first character, from 1
  std::vector<std::string> cells;
};

struct CsvTable {
  std::string file;
  char separator = ',';              // ';' and '\t' too
  std::vector<std::string> columns;  // in lower case
  std::vector<CsvRow> rows;

  std::optional<size_t> Find(absl::string_view column) const;
};

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, absl::string_view file);
absl::StatusOr<CsvTable> ReadCsv(const std::string& path);

// "4.25", "1,024"; where semicolons separate the cells, "4,25" is 4.25 and "1,024" none, since it may be either.
std::optional<double> NumberIn(absl::string_view cell, char separator);

// One row, by column names. Must not outlive the table.
class CsvCells {
 public:
  CsvCells(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}

  // The cell without spaces around it; "" where it is empty or the table has no such column.
  std::string Text(absl::string_view column) const;
  // Nothing for an empty cell; else as NumberIn. "4.0" and "1,024" are integers.
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view column, int64_t min) const;
  absl::StatusOr<std::optional<double>> Number(absl::string_view column) const;
  // The other rows of the table, in its order.
  std::vector<CsvCells> Others() const;
  // An error about this cell: `file:line: column: found X, wanted Y`.
  absl::Status Wrong(absl::string_view column, absl::string_view wanted) const;

 private:
  const CsvTable& table_;
  const CsvRow& row_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_CSV_H_
