#include "tools/validate/columns.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ir/text.h"

namespace meshwright {
namespace {

std::string Lower(absl::string_view cell) { return absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell)); }

constexpr double kNoUnit = 0;
constexpr size_t kLongestUnit = 64;
constexpr double kMostGigabytes = 1000, kMostMegabytes = 1e7;  // of one device

struct UnitWords {
  absl::string_view words;  // separated by '|'
  double factor;
};
constexpr UnitWords kSeconds[] = {{"ms|msec|msecs|millisecond|milliseconds", 1e-3},
                                  {"us|usec|usecs|microsecond|microseconds|tavg_us", 1e-6},
                                  {"ns|nsec|nanoseconds", 1e-9},
                                  {"min|mins|minute|minutes", 60},
                                  {"s|sec|secs|second|seconds|s/it", 1}};
constexpr UnitWords kBytes[] = {
    {"k|kb|kib|kbytes", 1024}, {"m|mb|mib|mbytes", 1048576}, {"g|gb|gib|gbytes", 1073741824}, {"b|byte|bytes", 1}};
constexpr UnitWords kBandwidths[] = {
    {"gib|gibps", 1.073741824}, {"mb|mbps|mbytes", 1e-3}, {"tb|tbps", 1e3}, {"gb|gbps|gbytes|gbs|gbit|gbits", 1}};
constexpr UnitWords kFlops[] = {{"mflops|mflop", 1e-6},
                                {"gflops|gflop|gf", 1e-3},
                                {"pflops|pflop|pf", 1e3},
                                {"tflops|tflop|teraflops|teraflop|tf", 1}};

double FactorOf(const Words& words, absl::Span<const UnitWords> units) {
  for (const UnitWords& unit : units) {
    if (HasOneOf(words, unit.words)) return unit.factor;
  }
  return kNoUnit;
}

// Of the cell, else of the column, else `usual`. Nothing where the cell has a unit of something else.
std::optional<double> Chosen(const std::string& cell_unit, double cell, double column, double usual = 1) {
  if (cell != kNoUnit) return cell;
  if (!cell_unit.empty() && cell_unit[0] != '(') return std::nullopt;
  return column == kNoUnit ? usual : column;
}

// Megabytes are what counters print, 2^20 of them: GB of 2^30 each, which `binary` says. So are bytes.
double GigabytesOf(const Words& words, bool* binary) {
  *binary = HasOneOf(words, "mb|mib|gib|m|bytes|kb|kib");
  if (HasOneOf(words, "kb|kib")) return 1.0 / (1 << 20);
  if (HasOneOf(words, "mb|mib|m")) return 1.0 / 1024;
  if (HasOneOf(words, "bytes")) return 1.0 / (1 << 30);
  return HasOneOf(words, "gib|gb|g|gigabytes") ? 1 : kNoUnit;
}

// K, M and B in front of the rest of a unit, of counts in powers of two where `binary`.
double Multiple(absl::string_view unit, bool binary) {
  if (unit.empty() || (unit.size() > 1 && absl::ascii_isalpha(static_cast<unsigned char>(unit[1])))) return 1;
  const double thousand = binary ? 1024 : 1000;
  const char c = unit[0];
  return c == 'k' ? thousand : c == 'm' ? thousand * thousand : c == 'b' ? 1e9 : 1;
}

// "Gb/s", "Gbps", "(Gbit/s)": bits, by a small b behind a large letter.
bool SaysBits(absl::string_view text) {
  for (const absl::string_view unit : {"Gb", "Mb", "Tb", "Gbit", "gbit"}) {
    const size_t at = text.find(unit);
    if (at != absl::string_view::npos && !absl::StartsWith(text.substr(at + 1), "byte")) return true;
  }
  return false;
}

// A column's name, and what its cells have in common.
struct Header {
  absl::string_view given;
  Words words;
  bool decimal = false;  // bytes are counted in powers of ten
};

// "(K tok/s)", "Params (M)", "tokens/s (thousands)": what a column is counted in.
double HeaderMultiple(absl::string_view given, bool binary) {
  constexpr size_t kLongest = 256;
  const std::string lower = Lower(given.substr(0, kLongest));
  std::smatch match;
  static const std::regex* const kCounted = new std::regex(
      R"(\(\s?(k|m|b|thousands?|millions?|billions?)(?:\s?\)|\s(?:tok|sam|seq|par))|\b(k|m)\s?tok|\b(thousand|million|billion)s?\b)");
  if (!std::regex_search(lower, match, *kCounted)) return 1;
  const std::string word = match[1].str() + match[2].str() + match[3].str();
  return word[0] == 't' ? Multiple("k", binary) : Multiple(word.substr(0, 1), binary);
}

// "4M tokens" below "global batch", "2 per GPU", "512/2": a count of something else, or more than one.
bool IsOfAnother(absl::string_view unit, const Header& header) {
  const Words words = WordsOf(unit);
  const bool tokens = HasOneOf(words, "token|tokens|tok|toks|mtok|ktok");
  static const std::regex* const kAnother = new std::regex(R"((^|[^(0-9])[x*/] ?\d)");
  const bool two = std::regex_search(std::string(unit.substr(0, kLongestUnit)), *kAnother);
  return (tokens && !header.words.empty() && !HasOneOf(header.words, "token|tokens|tok|toks|t")) ||
         HasOneOf(words, "per") || absl::StartsWith(unit, "/") || (two && !absl::StartsWith(unit, "("));
}

double BytesFactor(double binary) { return binary == 1024 ? 1e3 : binary == 1048576 ? 1e6 : binary == 1 ? 1 : 1e9; }

// How many of the kind's own unit one of the quantity's is; 0 for text without a unit that must have one.
std::optional<double> CellFactor(const Amount& quantity, CellKind kind, const Header& header, bool* binary) {
  const Words unit = WordsOf(quantity.unit);
  switch (kind) {
    case CellKind::kText:
      return 1;
    case CellKind::kSeconds:
      return Chosen(quantity.unit, FactorOf(unit, kSeconds), FactorOf(header.words, kSeconds));
    case CellKind::kMillis:
    case CellKind::kMicros: {
      const double own = kind == CellKind::kMillis ? 1e-3 : 1e-6;
      const bool known = header.words.empty() || kind == CellKind::kMicros;  // by the name that readers have for it
      const auto seconds =
          Chosen(quantity.unit, FactorOf(unit, kSeconds), FactorOf(header.words, kSeconds), known ? own : kNoUnit);
      return seconds.has_value() ? std::optional<double>(*seconds == own ? 1 : *seconds / own) : std::nullopt;
    }
    case CellKind::kGigabytes: {
      bool own = false, named = false;
      const double cell = GigabytesOf(unit, &own), name = GigabytesOf(header.words, &named);
      // nvidia-smi counts MiB; no device has so many GB.
      const bool counter = cell == kNoUnit && name == kNoUnit && quantity.value >= kMostGigabytes;
      *binary = *binary || (cell != kNoUnit ? own : named || counter);
      const double count = quantity.value >= kMostMegabytes ? 1.0 / (1 << 30) : 1.0 / 1024;
      return Chosen(quantity.unit, cell, name, counter ? count : 1);
    }
    case CellKind::kBytes: {
      const auto bytes = Chosen(quantity.unit, FactorOf(unit, kBytes), FactorOf(header.words, kBytes));
      return bytes.has_value() && header.decimal ? BytesFactor(*bytes) : bytes;
    }
    case CellKind::kPercent:
      return !header.words.empty() && !absl::StrContains(quantity.unit, "%") && quantity.value <= 1 ? 100 : 1;
    case CellKind::kBillions: {
      double multiple = Multiple(quantity.unit, false);
      if (multiple == 1) multiple = HeaderMultiple(header.given, false);
      return multiple > 1 ? multiple / 1e9 : quantity.value > 1e5 ? 1e-9 : 1;
    }
    case CellKind::kGigabytesPerSecond: {
      const double cell = FactorOf(unit, kBandwidths);
      const auto gigabytes = Chosen(quantity.unit, cell, FactorOf(header.words, kBandwidths));
      const bool bits = cell == kNoUnit ? SaysBits(header.given) : SaysBits(quantity.given);
      return gigabytes.has_value() && bits ? *gigabytes / 8 : gigabytes;
    }
    case CellKind::kTeraflops:
      return Chosen(quantity.unit, FactorOf(unit, kFlops), FactorOf(header.words, kFlops));
    case CellKind::kCount:
    case CellKind::kVocabulary:
    case CellKind::kRate: {
      if (kind != CellKind::kRate && IsOfAnother(quantity.unit, header)) return std::nullopt;
      const double own = Multiple(quantity.unit, kind == CellKind::kCount);
      return own == 1 ? HeaderMultiple(header.given, kind == CellKind::kCount) : own;
    }
  }
  return std::nullopt;
}

// `cell` as a plain number in the unit of `kind`; as it is where it is none.
std::string Plain(const std::string& cell, CellKind kind, const Header& header, char separator, bool* binary) {
  const std::optional<Amount> quantity = kind == CellKind::kText ? std::nullopt : AmountIn(cell, separator);
  if (!quantity.has_value()) return cell;
  const std::optional<double> factor = CellFactor(*quantity, kind, header, binary);
  if (!factor.has_value() || (*factor == 1 && quantity->unit.empty())) return cell;
  if (*factor == kNoUnit) return absl::StrCat(cell, " without a unit");
  return absl::StrFormat("%.12g", quantity->value * *factor);
}

}  // namespace

Words WordsOf(absl::string_view name) {
  std::string plain;
  for (const char c : absl::StrReplaceAll(name, {{"\xC2\xB5s", "us"}, {"\xCE\xBCs", "us"}})) {
    plain.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : ' ');
  }
  Words words = absl::StrSplit(absl::AsciiStrToLower(plain), ' ', absl::SkipEmpty());
  constexpr absl::string_view kSecond = "s|sec|secs|second|seconds|ms",
                              kStep = "it|iter|iters|iteration|iterations|step|steps|its";
  const size_t given = absl::StrContains(name, '/') || HasOneOf(words, "per") ? words.size() : 0;
  for (size_t i = 0; i + 1 < given; ++i) {
    const size_t next = words[i + 1] == "per" && i + 2 < given ? i + 2 : i + 1;
    if (IsOneOf(words[i], kSecond) && IsOneOf(words[next], kStep)) words.push_back("s/it");
    if (IsOneOf(words[i], kStep) && IsOneOf(words[next], kSecond)) words.push_back("it/s");
  }
  static const std::regex* const kRateOfAny =
      new std::regex(R"([a-z]\)?\s?(/|\bper\b)\s?(s|secs?|seconds?|min|minutes?)\b)");
  constexpr size_t kLongest = 256;
  const std::string lower = Lower(name.substr(0, kLongest));
  if (std::regex_search(lower, *kRateOfAny)) words.push_back("/s");
  // "step time (s)" has its second behind its step, too.
  if (HasOneOf(words, "time|timing")) words.erase(std::remove(words.begin(), words.end(), "it/s"), words.end());
  return words;
}

bool NamesTime(const Words& words) { return FactorOf(words, kSeconds) != kNoUnit; }

bool IsOneOf(absl::string_view word, absl::string_view alternatives) {
  for (const absl::string_view one : absl::StrSplit(alternatives, '|', absl::SkipEmpty())) {
    if (one == word) return true;
  }
  return false;
}

bool HasOneOf(const Words& words, absl::string_view alternatives) {
  return std::any_of(words.begin(), words.end(), [&](const auto& word) { return IsOneOf(word, alternatives); });
}

std::optional<Amount> AmountIn(absl::string_view cell, char separator) {
  constexpr size_t kLongestNumber = 32;
  cell = absl::StripAsciiWhitespace(cell);
  absl::ConsumePrefix(&cell, "~");
  size_t end = cell.find_first_not_of("0123456789.,+-eE");
  if (end == absl::string_view::npos) end = cell.size();
  // "1.2e" of "1.2 examples" written together is no number; its digits are.
  end = std::min(end, kLongestNumber);
  for (; end > 0; --end) {
    const std::optional<double> value = NumberIn(cell.substr(0, end), separator);
    if (!value.has_value()) continue;
    const std::string given(absl::StripAsciiWhitespace(cell.substr(end)));
    // "45-47K" is no one number.
    if (!given.empty() && (absl::ascii_isdigit(given[0]) || absl::StrContains("-+.,:", given.substr(0, 1)))) break;
    return Amount{*value, absl::AsciiStrToLower(given), given};
  }
  return std::nullopt;
}

bool SaysYes(absl::string_view cell) { return IsOneOf(Lower(cell), "true|yes|on|y"); }
bool SaysNo(absl::string_view cell) { return IsOneOf(Lower(cell), "false|no|off|n"); }
bool SaysOutOfMemory(absl::string_view cell) {
  const std::string lower = Lower(cell);
  const Words words = WordsOf(lower);
  if (HasOneOf(words, "no|not|without")) return false;
  return HasOneOf(words, "oom|outofmemory|outofmemoryerror") || absl::StrContains(lower, "out of memory");
}

std::string DevicesIn(const std::string& cell) {
  constexpr size_t kLongest = 256;
  const std::string text = cell.substr(0, kLongest);
  std::smatch match;
  // "4 nodes of 8x H100", "1 node, 8xH100"
  static const std::regex* const kNodes =
      new std::regex(R"(^\s{0,8}(\d{1,5})\s{0,2}(?:nodes?|hosts?)\b[^0-9]{0,16}(\d{1,3})\s{0,2}[xX*\s])");
  if (std::regex_search(text, match, *kNodes)) {
    return absl::StrCat(std::stoll(match[1].str()) * std::stoll(match[2].str()));
  }
  static const std::regex* const kFront = new std::regex(R"(^\s{0,8}(\d{1,5})\s{0,2}([xX*]|\s)\s{0,2}[A-Za-z])");
  static const std::regex* const kBehind = new std::regex(R"([\s)][xX*]\s{0,2}(\d{1,5})\s{0,8}$)");
  const bool found = std::regex_search(text, match, *kFront) || std::regex_search(text, match, *kBehind);
  return found ? match[1].str() : "";
}

ColumnReader::ColumnReader(CsvTable table, ColumnRules rules)
    : table_(std::move(table)), names_(table_.columns), all_(rules) {}

absl::StatusOr<CsvTable> ColumnReader::Read() {
  rules_.assign(names_.size(), nullptr);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (Stays(i)) {
      ReadCells(i, KindOf(names_[i]), {});
    } else {
      rules_[i] = RuleOf(i);
    }
  }
  if (absl::Status status = Prepare(); !status.ok()) return status;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!Stays(i)) Rename(i);
  }
  Complete();
  if (!read_.empty()) table_.remarks.push_back(absl::StrCat("columns: ", absl::StrJoin(read_, ", ")));
  if (!unread_.empty()) table_.remarks.push_back(absl::StrCat("not read: ", absl::StrJoin(unread_, ", ")));
  return std::move(table_);
}

bool ColumnReader::IsKnown(absl::string_view name) const {
  return IsOneOf(name, all_.also) ||
         std::any_of(all_.rules.begin(), all_.rules.end(), [&](const ColumnRule& rule) { return rule.known == name; });
}

CellKind ColumnReader::KindOf(absl::string_view known) const {
  for (const ColumnRule& rule : all_.rules) {
    if (rule.known == known) return rule.kind;
  }
  return CellKind::kText;
}

const ColumnRule* ColumnReader::RuleFor(const Words& words) const {
  for (const ColumnRule& rule : all_.rules) {
    if (HasOneOf(words, rule.without)) continue;
    absl::string_view needs = rule.needs;
    if (absl::ConsumePrefix(&needs, "=") && words.size() != 1) continue;
    const std::vector<absl::string_view> groups = absl::StrSplit(needs, ' ');
    const auto has = [&](absl::string_view group) { return HasOneOf(words, group); };
    if (std::all_of(groups.begin(), groups.end(), has)) return &rule;
  }
  return nullptr;
}

std::string ColumnReader::FirstCell(size_t column) const {
  for (const CsvRow& row : table_.rows) {
    if (row.damaged.empty() && !IsEmptyCell(row.cells[column])) return row.cells[column];
  }
  return "";
}

bool ColumnReader::HoldsAmounts(size_t column) const {
  return std::any_of(table_.rows.begin(), table_.rows.end(), [&](const CsvRow& row) {
    return row.damaged.empty() && (AmountIn(row.cells[column], table_.separator) || SaysOutOfMemory(row.cells[column]));
  });
}

bool ColumnReader::HoldsNumbers(size_t column) const {
  const std::optional<Amount> first = AmountIn(FirstCell(column), table_.separator);
  return first.has_value() && first->unit.empty();
}

bool ColumnReader::Has(absl::string_view known) const {
  return table_.Find(known).has_value() || std::any_of(rules_.begin(), rules_.end(), [&](const ColumnRule* rule) {
           return rule != nullptr && rule->known == known;
         });
}

size_t ColumnReader::ColumnOf(const std::string& known) {
  if (const std::optional<size_t> at = table_.Find(known)) return *at;
  table_.columns.push_back(known);
  for (CsvRow& row : table_.rows) row.cells.resize(table_.columns.size());
  return table_.columns.size() - 1;
}

void ColumnReader::Rename(size_t i) {
  if (ReadOtherwise(i)) return;
  if (rules_[i] == nullptr) {
    if (!names_[i].empty()) unread_.push_back(QuoteForMessage(names_[i]));
    return;
  }
  const std::string known = KnownName(i);
  if (table_.Find(known).has_value() || (KindOf(known) != CellKind::kText && !HoldsAmounts(i))) {
    unread_.push_back(QuoteForMessage(names_[i]));
    return;
  }
  table_.columns[i] = known;
  read_.push_back(absl::StrCat(QuoteForMessage(names_[i]), " as ", known));
  ReadCells(i, IsKnown(known) ? KindOf(known) : rules_[i]->kind, WordsOf(names_[i]));
}

// Whether the cell's unit is that of another rate than the column was taken for: "tokens/s" below "tokens/s/GPU".
bool ColumnReader::SaysAnotherRate(size_t column, const std::string& cell) const {
  if (rules_[column] == nullptr || rules_[column]->kind != CellKind::kRate) return false;
  const std::optional<Amount> quantity = AmountIn(cell, table_.separator);
  if (!quantity.has_value() || quantity->unit.empty()) return false;
  const ColumnRule* own = RuleFor(WordsOf(absl::StrCat(names_[column], " ", quantity->unit)));
  return own != nullptr && own->known[0] != '?' && own->known != rules_[column]->known;
}

void ColumnReader::ReadCells(size_t column, CellKind kind, const Words& name) {
  Header header = {column < table_.names.size() ? table_.names[column] : names_[column], name};
  bool binary = false;
  for (const CsvRow& row : table_.rows) {
    if (kind != CellKind::kBytes || header.decimal || !row.damaged.empty()) continue;
    const std::optional<Amount> quantity = AmountIn(row.cells[column], table_.separator);
    const auto factor = quantity.has_value() ? CellFactor(*quantity, kind, header, &binary) : std::nullopt;
    const double bytes = factor.has_value() ? quantity->value * *factor : 0;
    header.decimal = std::abs(bytes - std::round(bytes)) > 1e-6;
  }
  for (CsvRow& row : table_.rows) {
    if (!row.damaged.empty() || SaysAnotherRate(column, row.cells[column])) continue;
    row.cells[column] = Plain(row.cells[column], kind, header, table_.separator, &binary);
  }
  CellsRead(column, name, binary);
}

std::optional<double> ColumnReader::Number(const CsvRow& row, absl::string_view column) const {
  const std::optional<size_t> at = table_.Find(column);
  if (!at.has_value() || IsEmptyCell(row.cells[*at])) return std::nullopt;
  return NumberIn(row.cells[*at], table_.separator);
}

bool ColumnReader::Lacks(const CsvRow& row, absl::string_view column) const {
  const std::optional<size_t> at = table_.Find(column);
  return !at.has_value() || IsEmptyCell(row.cells[*at]);
}

void ColumnReader::Set(CsvRow* row, const std::string& column, double value) {
  Set(row, column, absl::StrFormat("%.12g", value));
}
void ColumnReader::Set(CsvRow* row, const std::string& column, const std::string& text) {
  const size_t at = ColumnOf(column);
  row->cells[at] = text;
}

void ColumnReader::ReadDevices(CsvRow* row, const std::string& total) {
  const std::optional<double> nodes = Number(*row, "nodes"), per_node = Number(*row, "gpus_per_node");
  if (nodes.has_value() && per_node.has_value() && Lacks(*row, total)) Set(row, total, *nodes * *per_node);
  const std::optional<size_t> type = table_.Find("gpu_type");
  if (!type.has_value() || !Lacks(*row, total)) return;
  if (const std::string devices = DevicesIn(row->cells[*type]); !devices.empty()) Set(row, total, devices);
}

}  // namespace meshwright
