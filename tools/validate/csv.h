// Tables as text: comma separated values after RFC 4180, read whole, cells found by the names of the header.
//
// A cell in double quotes may hold commas, line breaks and doubled quotes. Lines end with LF or CRLF; a byte order mark
// and lines without anything but separators are skipped. Between semicolons or tabs, a fraction behind a comma in any
// cell makes commas decimal and points of thousands; a row whose point may be either is damaged. Semicolons, tabs or
// bars (a table in Markdown, whose line of dashes is skipped) may stand in place of the commas: what separates the
// names of the header separates all cells. So do two spaces and more, as programs print tables; there, one space
// separates the cells of a line that then has as many as the header, and the number in front of each line that pandas
// prints is dropped. Lines before the header that begin with # or are drawn of dashes are no rows. A quote behind the
// begin of a cell is a character like any other. Cells missing at the end of a line are empty. A row that has more
// cells than the header, or a quote that does not close as it should, is damaged and says so; reading goes on behind
// its first line.
//
// Errors: kInvalidArgument as `file:line: found X, wanted Y`, of the header, or of more than 2^24 cells; as
// tools/files.h has them where a file cannot be read. Thread safety: plain values, pure functions but for reading
// files.
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
  int64_t line = 0;                // of its first character, from 1
  std::vector<std::string> cells;  // as many as columns
  std::string damaged = {};        // "" or what is wrong with it; its cells are empty
};

struct CsvTable {
  std::string file;
  std::string title;                 // the lines before the header, in lower case
  char separator = ',';              // ';', '\t', '|' and ' ' too
  std::vector<std::string> columns;  // in lower case; "": none that counts
  std::vector<std::string> names;    // of the file's columns, as it has them
  std::vector<std::string> places;   // of these: "FILE:LINE:CHARACTER"
  std::vector<CsvRow> rows;
  std::vector<std::string> remarks;  // what a reader of the results should know of the table

  std::optional<size_t> Find(absl::string_view column) const;
};

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, absl::string_view file);
absl::StatusOr<CsvTable> ReadCsv(const std::string& path);

// "4.25", "1,024"; where semicolons separate the cells, "4,25" is 4.25, "1.024,5" 1024.5 and "1,024" none, since it may
// be either.
std::optional<double> NumberIn(absl::string_view cell, char separator);

// Whether a cell holds nothing: a dash, a slash, "n/a", "?".
bool IsEmptyCell(absl::string_view cell);

// One row, by column names. Must not outlive the table.
class CsvCells {
 public:
  CsvCells(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}

  // The cell without spaces around it, of a long one the begin; "" where it holds nothing (IsEmptyCell) or the table
  // has no such column.
  std::string Text(absl::string_view column) const;
  // Nothing for an empty cell; else as NumberIn. "4.0" and "1,024" are integers.
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view column, int64_t min) const;
  absl::StatusOr<std::optional<double>> Number(absl::string_view column) const;
  // The other rows of the table that are not damaged, in its order.
  std::vector<CsvCells> Others() const;
  // An error about this cell: `file:line: column: found X, wanted Y`.
  absl::Status Wrong(absl::string_view column, absl::string_view wanted) const;

 private:
  const CsvTable& table_;
  const CsvRow& row_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_CSV_H_
