#include "ir/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"

namespace meshwright {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

char LowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// How a number at the beginning of a text is written.
struct NumberShape {
  size_t length = 0;  // of the number; 0 if the text does not begin with one
  bool leading_zero = false;
  bool integer = true;  // neither a point nor an exponent
};

// Matches -?digits(.digits)?([eE][+-]?digits)? as far as it goes.
NumberShape ShapeOf(absl::string_view text) {
  NumberShape shape;
  size_t at = 0;
  const auto digits = [&](size_t from) {
    while (from < text.size() && IsDigit(text[from])) ++from;
    return from;
  };
  if (at < text.size() && text[at] == '-') ++at;
  const size_t first_digit = at;
  at = digits(at);
  if (at == first_digit) return shape;
  shape.leading_zero = text[first_digit] == '0' && at - first_digit > 1;
  if (at + 1 < text.size() && text[at] == '.' && IsDigit(text[at + 1])) {
    shape.integer = false;
    at = digits(at + 1);
  }
  if (at + 1 < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    size_t exponent = at + 1;
    if (text[exponent] == '+' || text[exponent] == '-') ++exponent;
    if (digits(exponent) > exponent) {
      shape.integer = false;
      at = digits(exponent);
    }
  }
  shape.length = at;
  return shape;
}

// The value of a text that has the shape of a number, or nothing if a double cannot hold it.
std::optional<double> ToDouble(absl::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string WantedInt(int64_t min, int64_t max) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  if (min == kLowest && max == kHighest) return "an integer";
  if (max == kHighest) return absl::StrCat("an integer of at least ", min);
  if (min == kLowest) return absl::StrCat("an integer of at most ", max);
  return absl::StrCat("an integer from ", min, " to ", max);
}

std::string WantedDouble(double min, double max) {
  constexpr double kLowest = std::numeric_limits<double>::lowest();
  constexpr double kHighest = std::numeric_limits<double>::max();
  if (min == kLowest && max == kHighest) return "a number";
  if (max == kHighest) return absl::StrFormat("a number of at least %.6g", min);
  if (min == kLowest) return absl::StrFormat("a number of at most %.6g", max);
  return absl::StrFormat("a number from %.6g to %.6g", min, max);
}

// What somebody who wrote `text` for an integer probably meant, as advice; "" if that is anybody's guess.
std::string AdviceForInt(absl::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits.push_back(c);
  }
  const NumberShape shape = ShapeOf(digits);
  if (shape.length != digits.size()) return "";
  if (shape.integer && !shape.leading_zero) return digits == text ? "" : absl::StrCat("write ", digits);
  const std::optional<double> value = ToDouble(digits);
  if (!value.has_value() || *value != std::floor(*value) || std::fabs(*value) > 9.0e15) return "";
  return absl::StrFormat("write %.0f", *value);
}

struct UnitKindInfo {
  UnitKind kind;
  absl::string_view name;          // for messages: "wanted a rate"
  absl::string_view example;       // a number for it and
  absl::string_view example_unit;  // the unit that most files would use
  bool zero_allowed;
};
constexpr UnitKindInfo kUnitKinds[] = {
    {UnitKind::kBytes, "a size", "80", "GB", true},
    {UnitKind::kBytesPerSecond, "a rate", "450", "GB/s", false},
    {UnitKind::kTime, "a time", "10", "us", true},
    {UnitKind::kFlops, "a number of operations", "6.3", "TFLOP", true},
    {UnitKind::kFlopsPerSecond, "a rate of operations", "312", "TFLOP/s", false},
    {UnitKind::kFrequency, "a frequency", "1.98", "GHz", false},
    {UnitKind::kPower, "a power", "700", "W", false},
    {UnitKind::kPrice, "a price", "2.5", "USD/h", true},
};
constexpr bool UnitKindRowsAreInOrder() {
  for (size_t i = 0; i < std::size(kUnitKinds); ++i) {
    if (kUnitKinds[i].kind != static_cast<UnitKind>(i)) return false;
  }
  return std::size(kUnitKinds) == static_cast<size_t>(UnitKind::kPrice) + 1;
}
static_assert(UnitKindRowsAreInOrder(), "kUnitKinds needs one row per UnitKind, in the enum's order");

struct UnitRow {
  UnitKind kind;
  absl::string_view name;
  double scale;  // one of it in base units
};
constexpr double kKi = 1024.0;
constexpr UnitRow kUnits[] = {
    {UnitKind::kBytes, "B", 1},
    {UnitKind::kBytes, "kB", 1e3},
    {UnitKind::kBytes, "MB", 1e6},
    {UnitKind::kBytes, "GB", 1e9},
    {UnitKind::kBytes, "TB", 1e12},
    {UnitKind::kBytes, "PB", 1e15},
    {UnitKind::kBytes, "KiB", kKi},
    {UnitKind::kBytes, "MiB", kKi* kKi},
    {UnitKind::kBytes, "GiB", kKi* kKi* kKi},
    {UnitKind::kBytes, "TiB", kKi* kKi* kKi* kKi},
    {UnitKind::kBytes, "PiB", kKi* kKi* kKi* kKi* kKi},
    {UnitKind::kBytesPerSecond, "B/s", 1},
    {UnitKind::kBytesPerSecond, "kB/s", 1e3},
    {UnitKind::kBytesPerSecond, "MB/s", 1e6},
    {UnitKind::kBytesPerSecond, "GB/s", 1e9},
    {UnitKind::kBytesPerSecond, "TB/s", 1e12},
    {UnitKind::kBytesPerSecond, "PB/s", 1e15},
    {UnitKind::kBytesPerSecond, "KiB/s", kKi},
    {UnitKind::kBytesPerSecond, "MiB/s", kKi* kKi},
    {UnitKind::kBytesPerSecond, "GiB/s", kKi* kKi* kKi},
    {UnitKind::kBytesPerSecond, "TiB/s", kKi* kKi* kKi* kKi},
    {UnitKind::kBytesPerSecond, "b/s", 1 / 8.0},
    {UnitKind::kBytesPerSecond, "kb/s", 1e3 / 8},
    {UnitKind::kBytesPerSecond, "Mb/s", 1e6 / 8},
    {UnitKind::kBytesPerSecond, "Gb/s", 1e9 / 8},
    {UnitKind::kBytesPerSecond, "Tb/s", 1e12 / 8},
    {UnitKind::kBytesPerSecond, "Mbps", 1e6 / 8},
    {UnitKind::kBytesPerSecond, "Gbps", 1e9 / 8},
    {UnitKind::kBytesPerSecond, "Tbps", 1e12 / 8},
    {UnitKind::kBytesPerSecond, "Mbit/s", 1e6 / 8},
    {UnitKind::kBytesPerSecond, "Gbit/s", 1e9 / 8},
    {UnitKind::kBytesPerSecond, "Tbit/s", 1e12 / 8},
    {UnitKind::kTime, "ps", 1e-12},
    {UnitKind::kTime, "ns", 1e-9},
    {UnitKind::kTime, "us", 1e-6},
    {UnitKind::kTime, "\u00b5s", 1e-6},  // micro sign
    {UnitKind::kTime, "\u03bcs", 1e-6},  // Greek mu
    {UnitKind::kTime, "ms", 1e-3},
    {UnitKind::kTime, "s", 1},
    {UnitKind::kTime, "min", 60},
    {UnitKind::kTime, "h", 3600},
    {UnitKind::kTime, "d", 86400},
    {UnitKind::kFlops, "FLOP", 1},
    {UnitKind::kFlops, "MFLOP", 1e6},
    {UnitKind::kFlops, "GFLOP", 1e9},
    {UnitKind::kFlops, "TFLOP", 1e12},
    {UnitKind::kFlops, "PFLOP", 1e15},
    {UnitKind::kFlops, "EFLOP", 1e18},
    {UnitKind::kFlopsPerSecond, "FLOP/s", 1},
    {UnitKind::kFlopsPerSecond, "MFLOP/s", 1e6},
    {UnitKind::kFlopsPerSecond, "GFLOP/s", 1e9},
    {UnitKind::kFlopsPerSecond, "TFLOP/s", 1e12},
    {UnitKind::kFlopsPerSecond, "PFLOP/s", 1e15},
    {UnitKind::kFlopsPerSecond, "EFLOP/s", 1e18},
    {UnitKind::kFrequency, "Hz", 1},
    {UnitKind::kFrequency, "kHz", 1e3},
    {UnitKind::kFrequency, "MHz", 1e6},
    {UnitKind::kFrequency, "GHz", 1e9},
    {UnitKind::kPower, "W", 1},
    {UnitKind::kPower, "kW", 1e3},
    {UnitKind::kPower, "MW", 1e6},
    {UnitKind::kPrice, "USD/h", 1},
};

absl::Status UnknownUnit(absl::string_view text, absl::string_view unit, const UnitKindInfo& info) {
  std::vector<absl::string_view> names;
  for (const UnitRow& row : kUnits) {
    if (row.kind == info.kind) names.push_back(row.name);
  }
  const absl::string_view nearest = NearestName(unit, names);
  return WrongInput(QuoteForMessage(text), absl::StrFormat("%s in one of the units %s", info.name, ListNames(names)),
                    nearest.empty() ? "" : absl::StrFormat("did you mean \"%s\"?", nearest));
}

// Rounds to an integer count of `base_name`.
absl::StatusOr<int64_t> ToCount(double value, absl::string_view text, absl::string_view base_name) {
  constexpr double kLimit = 4611686018427387904.0;  // 2^62
  if (!(value < kLimit)) {
    return WrongInput(QuoteForMessage(text), absl::StrFormat("fewer than 2^62 %s", base_name));
  }
  const int64_t count = std::llround(value);
  if (count == 0 && value != 0) {
    return WrongInput(QuoteForMessage(text), absl::StrFormat("0 or at least one of the %s", base_name));
  }
  return count;
}

}  // namespace

absl::StatusOr<int64_t> ParseInt(absl::string_view text, int64_t min, int64_t max) {
  const NumberShape shape = ShapeOf(text);
  if (shape.length == 0 || shape.length != text.size() || !shape.integer || shape.leading_zero) {
    return WrongInput(QuoteForMessage(text), WantedInt(min, max), AdviceForInt(text));
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    return WrongInput(QuoteForMessage(text), WantedInt(min, max));
  }
  return value;
}

absl::StatusOr<double> ParseDouble(absl::string_view text, double min, double max) {
  const NumberShape shape = ShapeOf(text);
  if (shape.length == 0 || shape.length != text.size() || shape.leading_zero) {
    const bool half_a_number = !text.empty() && ((text.front() == '.' && IsDigit(text.back())) ||
                                                 (text.back() == '.' && IsDigit(text.front())));
    return WrongInput(QuoteForMessage(text), WantedDouble(min, max),
                      half_a_number ? "write digits on both sides of the point" : "");
  }
  const std::optional<double> value = ToDouble(text);
  if (!value.has_value()) return WrongInput(QuoteForMessage(text), "a number that a 64-bit float can hold");
  if (*value < min || *value > max) return WrongInput(QuoteForMessage(text), WantedDouble(min, max));
  return *value;
}

absl::StatusOr<double> ParseAmount(absl::string_view text) {
  constexpr std::pair<char, double> kUnits[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  double unit = 1;
  absl::string_view digits = text;
  for (const auto& [letter, value] : kUnits) {
    if (digits.empty() || (digits.back() != letter && digits.back() != LowerCase(letter))) continue;
    unit = value;
    digits.remove_suffix(1);
    break;
  }
  const absl::StatusOr<double> number = ParseDouble(digits, 0);
  if (number.ok() && *number * unit >= 1 && std::isfinite(*number * unit)) return *number * unit;
  return WrongInput(QuoteForMessage(text), "a number of at least 1, e.g. 300e9 or 300B");
}

absl::StatusOr<double> ParseQuantity(absl::string_view text, UnitKind kind) {
  const UnitKindInfo& info = kUnitKinds[static_cast<size_t>(kind)];
  const NumberShape shape = ShapeOf(text);
  const std::string example = absl::StrFormat("write e.g. \"%s %s\"", info.example, info.example_unit);
  if (shape.length == 0 || shape.leading_zero) return WrongInput(QuoteForMessage(text), info.name, example);
  const absl::string_view number = text.substr(0, shape.length);
  absl::string_view unit = text.substr(shape.length);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) {
    return WrongInput(absl::StrFormat("%s, which has no unit", QuoteForMessage(text)), info.name,
                      absl::StrFormat("write e.g. \"%s %s\"%s", number, info.example_unit,
                                      kind == UnitKind::kTime ? absl::StrFormat(" or \"%s s\"", number) : ""));
  }
  const UnitRow* row = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const UnitRow& candidate) {
    return candidate.kind == kind && candidate.name == unit;
  });
  if (row == std::end(kUnits)) return UnknownUnit(text, unit, info);
  const std::optional<double> value = ToDouble(number);
  if (!value.has_value() || !std::isfinite(*value * row->scale)) {
    return WrongInput(QuoteForMessage(text), "a number that a 64-bit float can hold");
  }
  if (*value < 0 || std::signbit(*value) || (*value == 0 && !info.zero_allowed)) {
    return WrongInput(QuoteForMessage(text),
                      absl::StrFormat("%s %s", info.name, info.zero_allowed ? "that is not negative" : "above zero"));
  }
  return *value * row->scale;
}

absl::StatusOr<Bytes> ParseBytes(absl::string_view text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const double bytes, ParseQuantity(text, UnitKind::kBytes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t count, ToCount(bytes, text, "bytes"));
  return Bytes(count);
}

absl::StatusOr<Nanos> ParseNanos(absl::string_view text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const double seconds, ParseQuantity(text, UnitKind::kTime));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t count, ToCount(seconds * 1e9, text, "nanoseconds"));
  return Nanos(count);
}

absl::Status WrongInput(absl::string_view found, absl::string_view wanted, absl::string_view remedy) {
  return absl::InvalidArgumentError(
      absl::StrFormat("found %s, wanted %s%s%s", found, wanted, remedy.empty() ? "" : "; ", remedy));
}

std::string QuoteForMessage(absl::string_view text) {
  constexpr size_t kMaxLength = 60;
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    // Not within a character of several bytes.
    if (i >= kMaxLength && (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return absl::StrCat(quoted, "...\"");
    const char c = text[i];
    if (c == '\n') {
      absl::StrAppend(&quoted, "\\n");
    } else if (c == '\t') {
      absl::StrAppend(&quoted, "\\t");
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') quoted.push_back('\\');
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

absl::Status CheckName(absl::string_view name) {
  bool good = name.size() <= 128;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    bool only_dots = true;
    for (const char c : part) {
      const char lower = LowerCase(c);
      good = good && ((lower >= 'a' && lower <= 'z') || IsDigit(c) || c == '_' || c == '-' || c == '.');
      only_dots = only_dots && c == '.';
    }
    good = good && !only_dots;
  }
  if (good) return absl::OkStatus();
  return WrongInput(QuoteForMessage(name), "a name of letters, digits and _ - . /, at most 128");
}

namespace {

// "H100-SXM 80GB": h100, sxm, 80gb.
std::vector<std::string> WordsOf(absl::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), LowerCase);
  return absl::StrSplit(lower, absl::ByAnyChar("_- "), absl::SkipEmpty());
}

// Whether `name` may be another name of `candidate`: its initials ("lr" of learning_rate), or all words of the one with
// fewer words are in the other, whole or as a beginning of three letters and more ("global_batch_size" of batch,
// "auto" of auto_parallel).
bool SharesWords(absl::string_view name, absl::string_view candidate) {
  const std::vector<std::string> own = WordsOf(name), others = WordsOf(candidate);
  if (own.empty() || others.empty()) return false;
  std::string initials;
  for (const std::string& word : others) initials.push_back(word.front());
  if (others.size() > 1 && own.size() == 1 && own.front() == initials) return true;
  const auto alike = [](const std::string& a, const std::string& b) {
    constexpr size_t kShortest = 3;
    const size_t shared = std::min(a.size(), b.size());
    return a == b || (shared >= kShortest && a.compare(0, shared, b, 0, shared) == 0);
  };
  const auto& [few, many] = own.size() <= others.size() ? std::tie(own, others) : std::tie(others, own);
  return std::all_of(few.begin(), few.end(), [&, &all = many](const std::string& word) {
    return std::any_of(all.begin(), all.end(), [&](const std::string& other) { return alike(word, other); });
  });
}

// The one of nearest length of those that share words with `name`.
absl::string_view NearestInWords(absl::string_view name, absl::Span<const absl::string_view> names) {
  absl::string_view best;
  const auto distance = [&](absl::string_view other) {
    return std::max(name.size(), other.size()) - std::min(name.size(), other.size());
  };
  for (const absl::string_view candidate : names) {
    if (!SharesWords(name, candidate)) continue;
    if (best.empty() || distance(candidate) < distance(best)) best = candidate;
  }
  return best;
}

}  // namespace

absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> names) {
  constexpr size_t kLongest = 64;  // nobody mistypes longer names, and the work grows with the square
  absl::string_view best;
  size_t best_distance = 0;
  if (name.size() > kLongest) return best;
  for (const absl::string_view candidate : names) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (candidate.size() > kLongest) continue;
    // Edit distance with swaps of neighbours, row by row: two rows back, one row back, this row.
    std::vector<size_t> before(candidate.size() + 1), last(candidate.size() + 1), row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      before.swap(last);
      last.swap(row);
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const auto same = [&](size_t a, size_t b) { return LowerCase(name[a]) == LowerCase(candidate[b]); };
        row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(i - 1, j - 1) ? 0 : 1)});
        if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1)) row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    const size_t distance = row[candidate.size()];
    if (distance <= longer / 3 && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? NearestInWords(name, names) : best;
}

std::string ListNames(absl::Span<const absl::string_view> names) {
  constexpr size_t kMostListed = 24;
  std::string listed;
  for (size_t i = 0; i < names.size() && i < kMostListed; ++i) {
    absl::StrAppendFormat(&listed, "%s%s", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMostListed) absl::StrAppendFormat(&listed, ", ... (%d in all)", names.size());
  return listed;
}

absl::Status UnknownName(absl::string_view name, absl::Span<const absl::string_view> names) {
  const absl::string_view nearest = NearestName(name, names);
  return WrongInput(QuoteForMessage(name), absl::StrFormat("one of %s", names.empty() ? "nothing" : ListNames(names)),
                    nearest.empty() ? "" : absl::StrFormat("did you mean \"%s\"?", nearest));
}

std::string QuoteYaml(absl::string_view text) {
  constexpr absl::string_view kPlainWords[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  const auto is_letter = [](char c) { return (LowerCase(c) >= 'a' && LowerCase(c) <= 'z') || c == '_'; };
  const auto is_plain = [&](char c) { return is_letter(c) || IsDigit(c) || c == '-' || c == '.' || c == '/'; };
  if (!text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), is_plain)) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), LowerCase);
    if (std::find(std::begin(kPlainWords), std::end(kPlainWords), lower) == std::end(kPlainWords)) {
      return std::string(text);
    }
  }
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text.substr(at));
    if (c.length == 0) {
      absl::StrAppend(&quoted, "\xEF\xBF\xBD");
      ++at;
      continue;
    }
    if (c.code == '\n') {
      absl::StrAppend(&quoted, "\\n");
    } else if (c.code == '\t') {
      absl::StrAppend(&quoted, "\\t");
    } else if (IsControl(c.code)) {
      absl::StrAppendFormat(&quoted, "\\x%02x", c.code);
    } else {
      if (c.code == '"' || c.code == '\\') quoted.push_back('\\');
      absl::StrAppend(&quoted, text.substr(at, c.length));
    }
    at += c.length;
  }
  quoted.push_back('"');
  return quoted;
}

Utf8Char ReadUtf8(absl::string_view text) {
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800,
                                    0x10000};  // of each length: a longer form than needed is refused
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC0 || byte(0) > 0xF7 || text.size() < length) return {};
  uint32_t code = byte(0) & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[length] || code > 0x10FFFF || surrogate) return {};
  return {code, length};
}

bool IsControl(uint32_t code) { return (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0); }

}  // namespace meshwright
