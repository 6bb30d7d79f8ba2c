#include "tools/validate/columns.h"

#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace meshwright {
namespace {

struct UnitName {
  ColumnUnit unit;
  absl::string_view names;  // separated by spaces
  double factor;
};
constexpr UnitName kUnits[] = {
    {ColumnUnit::kMicros, "us usec usecs microseconds \xC2\xB5s \xCE\xBCs", 1},
    {ColumnUnit::kMicros, "ms msec milliseconds", 1e3},
    {ColumnUnit::kMicros, "ns nsec nanoseconds", 1e-3},
    {ColumnUnit::kMicros, "s sec secs seconds", 1e6},
    {ColumnUnit::kBytes, "b bytes byte", 1},
    {ColumnUnit::kBytes, "k kb kib kbytes", 1024},
    {ColumnUnit::kBytes, "m mb mib mbytes", 1048576},
    {ColumnUnit::kBytes, "g gb gib gbytes", 1073741824},
    {ColumnUnit::kGigabytesPerSecond, "gb/s gb_s gbps gbytes/s gbs", 1},
    {ColumnUnit::kGigabytesPerSecond, "gib/s gib_s gibps", 1.073741824},
    {ColumnUnit::kGigabytesPerSecond, "mb/s mb_s mbps", 1e-3},
    {ColumnUnit::kGigabytesPerSecond, "tb/s tb_s tbps", 1e3},
    {ColumnUnit::kTeraflops, "tflops tflop/s tflops/s tflop_s tflops_s tf", 1},
    {ColumnUnit::kTeraflops, "gflops gflop/s gflops/s gflop_s gflops_s", 1e-3},
    {ColumnUnit::kTeraflops, "pflops pflop/s pflops/s pflop_s pflops_s", 1e3},
};

bool Holds(absl::string_view names, absl::string_view name) {
  for (const absl::string_view each : absl::StrSplit(names, ' ')) {
    if (each == name) return true;
  }
  return false;
}

// A column's name without its unit.
struct Name {
  std::string base, unit;
};

Name NameOfColumn(absl::string_view column) {
  Name name;
  const size_t open = column.find_first_of("([");
  if (open != absl::string_view::npos && open > 0) {
    const size_t close = column.find_first_of(")]", open);
    name.unit = std::string(absl::StripAsciiWhitespace(
        column.substr(open + 1, close == absl::string_view::npos ? close : close - open - 1)));
    column = column.substr(0, open);
  }
  for (const char c : column) {
    const bool sign = std::isalnum(static_cast<unsigned char>(c)) == 0;
    if (!sign) name.base.push_back(c);
    if (sign && !name.base.empty() && name.base.back() != '_') name.base.push_back('_');
  }
  while (!name.base.empty() && name.base.back() == '_') name.base.pop_back();
  return name;
}

// Whether `column` is one of `others`, and how many of `unit` one of its unit is.
std::optional<double> Matches(absl::string_view column, absl::string_view other, ColumnUnit unit) {
  const Name name = NameOfColumn(column);
  if (name.base == other) return name.unit.empty() ? 1 : FactorOf(name.unit, unit).value_or(1);
  if (unit == ColumnUnit::kText || !absl::StartsWith(name.base, absl::StrCat(other, "_"))) return std::nullopt;
  return FactorOf(absl::string_view(name.base).substr(other.size() + 1), unit);
}

// "64 KiB", "1.2ms", "1,024": converted; anything else as it is.
std::string Converted(absl::string_view cell, double factor, ColumnUnit unit, char separator) {
  const size_t end = cell.find_first_not_of("0123456789.,-+eE");
  const absl::string_view digits = absl::StripAsciiWhitespace(cell.substr(0, end));
  if (end != absl::string_view::npos) {
    const std::string behind = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell.substr(end)));
    if (!behind.empty()) {
      const std::optional<double> own = FactorOf(behind, unit);
      if (!own.has_value()) return std::string(cell);
      factor = *own;
    }
  }
  if (factor == 1) return std::string(digits);
  const std::optional<double> value = NumberIn(digits, separator);
  if (!value.has_value()) return std::string(cell);
  return absl::StrFormat("%.17g", *value * factor);
}

}  // namespace

std::optional<double> FactorOf(absl::string_view text, ColumnUnit unit) {
  const bool millis = unit == ColumnUnit::kMillis;
  for (const UnitName& row : kUnits) {
    if (row.unit != (millis ? ColumnUnit::kMicros : unit) || !Holds(row.names, text)) continue;
    return millis ? row.factor / 1e3 : row.factor;
  }
  return std::nullopt;
}

CsvTable WithKnownColumns(CsvTable table, absl::Span<const KnownColumn> known) {
  const std::vector<std::string> given = table.columns;
  std::vector<bool> taken(given.size(), false);
  for (const KnownColumn& column : known) {
    std::optional<size_t> at = table.Find(column.name);
    double factor = 1;
    if (!at.has_value()) {
      // "GPUs per node" is the known name itself, written otherwise.
      for (const absl::string_view other : absl::StrSplit(absl::StrCat(column.name, " ", column.others), ' ')) {
        for (size_t i = 0; i < given.size() && !at.has_value(); ++i) {
          const std::optional<double> match = taken[i] ? std::nullopt : Matches(given[i], other, column.unit);
          if (!match.has_value()) continue;
          at = i;
          factor = *match;
        }
      }
    }
    if (!at.has_value()) continue;
    taken[*at] = true;
    table.columns[*at] = std::string(column.name);
    if (column.unit == ColumnUnit::kText) continue;
    for (CsvRow& row : table.rows) {
      row.cells[*at] = Converted(absl::StripAsciiWhitespace(row.cells[*at]), factor, column.unit, table.separator);
    }
  }
  return table;
}

}  // namespace meshwright
