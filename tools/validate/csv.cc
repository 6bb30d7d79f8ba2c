#include "tools/validate/csv.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/files.h"

namespace meshwright {
namespace {

constexpr size_t kMostTableBytes = size_t{64} << 20;
constexpr size_t kMostColumns = size_t{1} << 13;  // names are compared with each other
constexpr size_t kMostCells = size_t{1} << 24;    // lines may be far shorter than the header: half a gigabyte

// What stands most often between the names of the first line, outside of quotes; where nothing does spaces, a comma
// where there are no two of them together.
char SeparatorOf(absl::string_view text) {
  constexpr absl::string_view kSeparators = ",;\t|";
  size_t counts[kSeparators.size()] = {};
  bool quoted = false, named = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if ((c == '\n' || c == '\r') && named) break;
    named = named || !absl::ascii_isspace(static_cast<unsigned char>(c));
    const size_t at = kSeparators.find(c);
    if (at != absl::string_view::npos) ++counts[at];
  }
  const auto* const most = std::max_element(std::begin(counts), std::end(counts));
  const absl::string_view line =
      absl::StripAsciiWhitespace(text.substr(0, text.find('\n', text.find_first_not_of(" \r\n"))));
  if (*most == 0 && absl::StrContains(line, "  ")) return ' ';
  return kSeparators[static_cast<size_t>(most - std::begin(counts))];
}

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view file) : text_(text), file_(file) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  }

  // Goes to the header, behind lines that are none: what they say.
  std::string Title() {
    std::string title;
    const size_t markdown = MarkdownHeader();
    while (!AtEnd() && at_ != markdown) {
      const absl::string_view line = Line(at_);
      const absl::string_view named = line.substr(std::min(line.size(), line.find_first_not_of("# \t")));
      const bool rule = line.find_first_not_of(" -=+") == absl::string_view::npos;
      const bool comment = absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "#");
      const bool before_table = markdown != absl::string_view::npos && at_ < markdown;
      if (!rule && !before_table && !(IsOneCell(named) && (comment || NamesFollow()))) {
        if (comment) at_ += line.size() - named.size();
        break;
      }
      if (!rule) absl::StrAppend(&title, title.empty() ? "" : "; ", absl::AsciiStrToLower(named));
      GoBehindLineAt(place());
    }
    separator_ = SeparatorOf(text_.substr(std::min(at_, text_.size())));
    return title;
  }

  char separator() const { return separator_; }
  // Of the cells of the last record, from 1.
  const std::vector<size_t>& places_of_cells() const { return begins_; }

  bool AtEnd() const { return at_ >= text_.size(); }

  // The cells of one record; no cells for a blank line. After an error the reader stands anywhere.
  absl::StatusOr<CsvRow> Record() {
    CsvRow row;
    row.line = line_;
    const size_t begin = text_.substr(0, at_).find_last_of("\r\n") + 1;  // of the line, behind npos too
    begins_.clear();
    if (EatLineEnd()) return row;
    if (separator_ == ' ') return Spaced(begin, std::move(row));
    for (;;) {
      begins_.push_back(at_ - begin + 1);
      std::string cell;
      const size_t quote = text_.find_first_not_of(' ', at_);
      if (quote != absl::string_view::npos && text_[quote] == '"') {
        at_ = quote;
        MESHWRIGHT_RETURN_IF_ERROR(Quoted(&cell));
        while (!AtEnd() && Peek() == ' ') ++at_;
      } else {
        while (!AtEnd() && Peek() != separator_ && Peek() != '\n' && Peek() != '\r') {
          cell.push_back(text_[at_++]);
        }
      }
      row.cells.push_back(std::move(cell));
      if (AtEnd() || EatLineEnd()) return row;
      if (Peek() != separator_) return Wrong("text behind a closing quote", "a comma or the end of the line");
      ++at_;
    }
  }

  // Where a line begins that a later call may go on behind.
  struct Place {
    size_t at = 0;
    int64_t line = 1;
  };
  Place place() const { return {at_, line_}; }
  void GoBehindLineAt(Place place) {
    at_ = place.at;
    line_ = place.line;
    while (!AtEnd() && !EatLineEnd()) ++at_;
  }

  absl::Status Wrong(absl::string_view found, absl::string_view wanted) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", line_, ": found ", found, ", wanted ", wanted));
  }

 private:
  absl::string_view Line(size_t at) const { return text_.substr(at, text_.find_first_of("\r\n", at) - at); }

  static bool IsOneCell(absl::string_view line) {
    return line.find_first_of(",;\t|\"") == absl::string_view::npos &&
           !absl::StrContains(absl::StripAsciiWhitespace(line), "  ");
  }

  // Where the header of the first table in Markdown begins, the line above its line of dashes, whatever text stands
  // before it; npos where there is none but in a cell between quotes.
  size_t MarkdownHeader() const {
    size_t before = absl::string_view::npos;
    bool quoted = false;
    for (size_t at = 0; at < text_.size(); at = std::min(text_.find('\n', at), text_.size() - 1) + 1) {
      const absl::string_view line = Line(at);
      quoted = quoted != (std::count(line.begin(), line.end(), '"') % 2 == 1);
      if (quoted) continue;
      const bool bars = absl::StrContains(line, '|');
      const bool rule = bars && absl::StrContains(line, "--") && line.find_first_not_of(" |:-") == line.npos;
      if (rule && before != absl::string_view::npos) return before;
      before = bars ? at : absl::string_view::npos;
    }
    return absl::string_view::npos;
  }

  // Whether of the next lines the first that has cells begins with a name.
  bool NamesFollow() const {
    constexpr int kMostLines = 16;
    size_t at = at_;
    for (int i = 0; i < kMostLines && at < text_.size(); ++i) {
      const absl::string_view line = absl::StripLeadingAsciiWhitespace(Line(at));
      const size_t first = line.find_first_not_of("|# ");
      if (!IsOneCell(line)) return first < line.size() && absl::ascii_isalpha(static_cast<unsigned char>(line[first]));
      at = std::min(text_.find('\n', at), text_.size() - 1) + 1;
    }
    return false;
  }

  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  bool EatLineEnd() {
    if (text_.substr(at_, 2) == "\r\n") ++at_;
    if (Peek() != '\n' && Peek() != '\r') return false;
    ++at_;
    ++line_;
    return true;
  }

  CsvRow Spaced(size_t begin, CsvRow row) {
    const size_t end = std::min(text_.find_first_of("\r\n", at_), text_.size());
    std::vector<std::string> words;
    bool apart = true;  // two spaces stand before what comes
    while (at_ < end) {
      const size_t word = std::min(text_.find_first_not_of(" \t", at_), end);
      apart = apart || word - at_ > 1;
      at_ = std::min(text_.find_first_of(" \t\r\n", word), end);
      if (at_ == word) break;
      words.emplace_back(text_.substr(word, at_ - word));
      if (apart) begins_.push_back(word - begin + 1);
      if (apart) row.cells.emplace_back();
      absl::StrAppend(&row.cells.back(), apart ? "" : " ", words.back());
      apart = false;
    }
    if (columns_ == 0) columns_ = row.cells.size();
    if (row.cells.size() != columns_ && words.size() == columns_) row.cells = words;
    for (std::vector<std::string>* cells : {&row.cells, &words}) {
      if (row.cells.size() == columns_ || cells->size() != columns_ + 1) continue;
      if ((*cells)[0].find_first_not_of("0123456789") != std::string::npos) continue;
      row.cells = std::vector<std::string>(cells->begin() + 1, cells->end());
    }
    EatLineEnd();
    return row;
  }

  absl::Status Quoted(std::string* cell) {
    const absl::Status open = Wrong("an opening quote", "a closing one before the end of the file");
    for (++at_; !AtEnd(); ++at_) {
      if (Peek() == '"') {
        ++at_;
        if (Peek() != '"') return absl::OkStatus();
      } else if (Peek() == '\n') {
        ++line_;
      }
      cell->push_back(text_[at_]);
    }
    return open;
  }

  absl::string_view text_;
  absl::string_view file_;
  char separator_ = ',';
  size_t at_ = 0, columns_ = 0;  // of a table between spaces
  int64_t line_ = 1;
  std::vector<size_t> begins_;
};

// The line of dashes below the names of a table in Markdown, or around them.
bool IsRule(const CsvRow& row) {
  return std::all_of(row.cells.begin(), row.cells.end(),
                     [](const std::string& cell) { return cell.find_first_not_of(" -:=+") == std::string::npos; });
}

// Spreadsheets end with lines of separators alone.
bool IsBlank(const CsvRow& row) {
  return std::all_of(row.cells.begin(), row.cells.end(),
                     [](const std::string& cell) { return absl::StripAsciiWhitespace(cell).empty(); });
}

constexpr size_t kLongestNumber = 64;  // with commas between thousands

// "-12", "1.024,5": digits with commas and points among them.
bool IsOfDigits(absl::string_view cell) {
  return !cell.empty() && cell.size() < kLongestNumber && cell.find_first_not_of("-0123456789.,") == cell.npos &&
         cell.find_first_of(".,") != cell.npos;
}

// Where a fraction stands behind a comma in a table that commas do not separate, commas are decimal in all of it and
// points are of thousands, but for columns where a point cannot be: "9,87" makes 106240 of "106.240" and 9.125 of
// "9,125". "3.125" in a column of "9,87" may be either, unless "1.024,5" there shows what its points are: that row is
// not read.
void ReadDecimalCommas(CsvTable* table) {
  if (table->separator != ';' && table->separator != '\t') return;
  static const std::regex* const kFraction = new std::regex(R"(-?\d{1,3}(\.\d{3})+,\d+|-?\d+,(\d{1,2}|\d{4,}))");
  static const std::regex* const kPoint = new std::regex(R"(-?\d*\.(\d{1,2}|\d{4,})|-?\d{1,3}(,\d{3})+\.\d+)");
  static const std::regex* const kNumber = new std::regex(R"(-?\d{1,3}(\.\d{3})+(,\d+)?|-?\d+,\d+)");
  static const std::regex* const kThousands = new std::regex(R"(-?\d{1,3}(\.\d{3})+,\d+|-?\d{1,3}(\.\d{3}){2,})");
  static const std::regex* const kEither = new std::regex(R"(-?\d{1,3}\.\d{3})");
  std::vector<bool> points(table->columns.size()), fractions(points), thousand_points(points);
  bool commas = false;
  for (const CsvRow& row : table->rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const std::string cell(absl::StripAsciiWhitespace(row.cells[i]));
      if (!IsOfDigits(cell)) continue;
      fractions[i] = fractions[i] || std::regex_match(cell, *kFraction);
      commas = commas || fractions[i];
      thousand_points[i] = thousand_points[i] || std::regex_match(cell, *kThousands);
      points[i] = points[i] || std::regex_match(cell, *kPoint);
    }
  }
  if (!commas) return;
  std::string thousands;  // an example
  for (CsvRow& row : table->rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      std::string cell(absl::StripAsciiWhitespace(row.cells[i]));
      if (points[i] || !IsOfDigits(cell) || !std::regex_match(cell, *kNumber)) continue;
      if (fractions[i] && !thousand_points[i] && std::regex_match(cell, *kEither)) {
        row.damaged =
            absl::StrCat(table->file, ":", row.line, ": ", table->names[i], ": found ", QuoteForMessage(cell),
                         " in a column whose fractions stand behind commas, wanted no point that may be of "
                         "thousands or of a fraction; write ",
                         absl::StrReplaceAll(cell, {{".", ","}}), " or ", absl::StrReplaceAll(cell, {{".", ""}}));
        break;
      }
      if (thousands.empty() && absl::StrContains(cell, '.')) thousands = cell;
      cell.erase(std::remove(cell.begin(), cell.end(), '.'), cell.end());
      std::replace(cell.begin(), cell.end(), ',', '.');
      row.cells[i] = cell;
    }
  }
  for (CsvRow& row : table->rows) {
    if (!row.damaged.empty()) row.cells.assign(table->columns.size(), "");
  }
  if (thousands.empty()) return;
  table->remarks.push_back(absl::StrCat("commas are decimal here, and points of thousands, as in \"", thousands, "\""));
}

// A name that comes again, as that of two columns of notes may, is of the first column alone.
void NameColumns(const CsvRow& header, CsvTable* table) {
  for (const std::string& cell : header.cells) {
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell));
    const bool again = !name.empty() && table->Find(name).has_value();
    if (again) {
      table->remarks.push_back(absl::StrCat("the column ", QuoteForMessage(name), " stands twice: the first counts"));
    }
    table->columns.push_back(again ? "" : name);
  }
}

}  // namespace

std::optional<size_t> CsvTable::Find(absl::string_view column) const {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == column) return i;
  }
  return std::nullopt;
}

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, absl::string_view file) {
  CsvTable table;
  table.file = std::string(file);
  Reader reader(text, file);
  if (absl::StartsWith(text, "\xFF\xFE") || absl::StartsWith(text, "\xFE\xFF")) {
    return reader.Wrong("UTF-16", absl::StrCat("UTF-8; iconv -f UTF-16 -t UTF-8 ", file, " writes it"));
  }
  table.title = reader.Title();
  table.separator = reader.separator();
  while (!reader.AtEnd()) {
    const Reader::Place begin = reader.place();
    absl::StatusOr<CsvRow> read = reader.Record();
    if (!read.ok() && table.columns.empty()) return read.status();
    CsvRow row = read.ok() ? *std::move(read) : CsvRow();
    if (!read.ok()) {
      row.line = begin.line;
      row.damaged = std::string(read.status().message());
      reader.GoBehindLineAt(begin);
    } else if (IsBlank(row) || ((table.separator == '|' || table.separator == ' ') && IsRule(row))) {
      continue;
    }
    if (table.separator == '|') {  // what Markdown sets in bold
      for (std::string& cell : row.cells) absl::StrReplaceAll({{"**", ""}, {"`", ""}}, &cell);
    }
    if (table.columns.empty()) {
      if (row.cells.size() > kMostColumns) {
        return reader.Wrong(absl::StrCat(row.cells.size(), " columns"), absl::StrCat("at most ", kMostColumns));
      }
      NameColumns(row, &table);
      table.names = row.cells;
      for (const size_t place : reader.places_of_cells()) {
        table.places.push_back(absl::StrCat(file, ":", row.line, ":", place));
      }
      continue;
    }
    // Spreadsheets add empty cells at the end of a line, and drop them.
    while (row.cells.size() > table.columns.size() && row.cells.back().empty()) row.cells.pop_back();
    if (row.cells.size() > table.columns.size()) {
      row.damaged = absl::StrCat(file, ":", row.line, ": found ", row.cells.size(), " cells, wanted ",
                                 table.columns.size(), " as in the header");
      row.cells.clear();
    }
    if (table.rows.size() >= kMostCells / table.columns.size()) {
      return reader.Wrong(absl::StrCat("more than ", table.rows.size(), " rows of ", table.columns.size(), " columns"),
                          absl::StrCat("at most ", kMostCells, " cells; split the file"));
    }
    row.cells.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  if (table.columns.empty()) return reader.Wrong("no header", "a line of column names");
  ReadDecimalCommas(&table);
  return table;
}

absl::StatusOr<CsvTable> ReadCsv(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostTableBytes));
  return ParseCsv(text, path);
}

bool IsEmptyCell(absl::string_view cell) {
  constexpr size_t kLongest = 7;
  cell = absl::StripAsciiWhitespace(cell);
  if (cell.size() > kLongest) return false;
  const std::string lower = absl::AsciiStrToLower(cell);
  constexpr absl::string_view kNothing[] = {"", "-", "--", "\xE2\x80\x93", "\xE2\x80\x94", "/", "n/a", "na", "nan",
                                            "null", "?",
                                            // a spreadsheet's errors
                                            "#n/a", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"};
  return std::find(std::begin(kNothing), std::end(kNothing), lower) != std::end(kNothing);
}

std::string CsvCells::Text(absl::string_view column) const {
  constexpr size_t kLongestText = 4096;  // patterns are matched against it, which takes stack for each byte
  const std::optional<size_t> at = table_.Find(column);
  if (!at.has_value()) return "";
  const absl::string_view cell = absl::StripAsciiWhitespace(row_.cells[*at]);
  return IsEmptyCell(cell) ? "" : std::string(cell.substr(0, kLongestText));
}

std::optional<double> NumberIn(absl::string_view cell, char separator) {
  std::string text(absl::StripAsciiWhitespace(cell));
  double value = 0;
  if (!absl::StrContains(text, ',')) {
    if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
    return value;
  }
  static const std::regex* const kThousands = new std::regex(R"(\d{1,3}(,\d{3})+(\.\d+)?)");
  if (separator != ';' && text.size() < kLongestNumber && std::regex_match(text, *kThousands)) {
    text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  }
  // Who separates cells by semicolons writes fractions with commas; three digits behind one may as well be thousands.
  static const std::regex* const kDecimal = new std::regex(R"(-?\d+,(\d{1,2}|\d{4,}))");
  if (separator == ';' && text.size() < kLongestNumber && std::regex_match(text, *kDecimal)) {
    std::replace(text.begin(), text.end(), ',', '.');
  }
  static const std::regex* const kBoth = new std::regex(R"(-?\d{1,3}(\.\d{3})+,\d+)");
  if (separator == ';' && text.size() < kLongestNumber && std::regex_match(text, *kBoth)) {
    text.erase(std::remove(text.begin(), text.end(), '.'), text.end());
    std::replace(text.begin(), text.end(), ',', '.');
  }
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

absl::StatusOr<std::optional<double>> CsvCells::Number(absl::string_view column) const {
  const std::string text = Text(column);
  if (text.empty()) return std::optional<double>();
  const std::optional<double> value = NumberIn(text, table_.separator);
  if (!value.has_value()) return Wrong(column, "a number");
  return value;
}

absl::StatusOr<std::optional<int64_t>> CsvCells::Int(absl::string_view column, int64_t min) const {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> value, Number(column));
  if (!value.has_value()) return std::optional<int64_t>();
  if (*value != std::floor(*value) || std::abs(*value) > 9e15 || *value < static_cast<double>(min)) {
    return Wrong(column, absl::StrCat("an integer from ", min));
  }
  return std::optional<int64_t>(static_cast<int64_t>(*value));
}

std::vector<CsvCells> CsvCells::Others() const {
  std::vector<CsvCells> others;
  for (const CsvRow& row : table_.rows) {
    if (row.line != row_.line && row.damaged.empty()) others.push_back(CsvCells(table_, row));
  }
  return others;
}

absl::Status CsvCells::Wrong(absl::string_view column, absl::string_view wanted) const {
  return absl::InvalidArgumentError(absl::StrCat(table_.file, ":", row_.line, ": ", column, ": found ",
                                                 QuoteForMessage(Text(column)), ", wanted ", wanted));
}

}  // namespace meshwright
