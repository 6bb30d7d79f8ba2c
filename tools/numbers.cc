#include "tools/numbers.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace meshwright {
namespace {

// Four significant digits at most: 1.234, 12.34, 123.4, 1234.
std::string Digits(double value) {
  const double size = std::fabs(value);
  const int decimals = size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0;
  return absl::StrFormat("%.*f", decimals, value);
}

template <class T>
std::string Shortest(T value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : "0";
}

}  // namespace

std::string ShortestNumber(double value) { return Shortest(value); }
std::string ShortestNumber(float value) { return Shortest(value); }

std::string ShowTime(Nanos time) { return ShowSeconds(ToSeconds(time)); }

std::string ShowSeconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return absl::StrFormat("%.0f ns", seconds * 1e9);
  if (seconds < 1e-3) return absl::StrCat(Digits(seconds * 1e6), " us");
  if (seconds < 1) return absl::StrCat(Digits(seconds * 1e3), " ms");
  if (seconds < 600) return absl::StrCat(Digits(seconds), " s");
  if (seconds < 7200) return absl::StrFormat("%.1f min", seconds / 60);
  if (seconds < 48 * 3600) return absl::StrFormat("%.1f h", seconds / 3600);
  return absl::StrFormat("%.1f d", seconds / 86400);
}

std::string ShowBytes(Bytes bytes) {
  struct Unit {
    absl::string_view name;
    double size;
  };
  constexpr Unit kUnits[] = {{"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};
  const double value = static_cast<double>(bytes.raw());
  for (const Unit& unit : kUnits) {
    if (std::fabs(value) < unit.size) continue;
    std::string digits = absl::StrFormat("%.1f", value / unit.size);
    return absl::StrCat(absl::StripSuffix(digits, ".0"), " ", unit.name);
  }
  return absl::StrCat(bytes.raw(), " B");
}

std::string ShowCount(int64_t count) {
  std::string text = absl::StrCat(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string ShowLarge(double count) {
  struct Unit {
    absl::string_view name;
    double size;
  };
  constexpr Unit kUnits[] = {{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}};
  for (const Unit& unit : kUnits) {
    // What four digits round up to the next unit is shown in it.
    if (count >= 0.99995 * unit.size) return absl::StrFormat("%.4g %s", count / unit.size, unit.name);
  }
  return absl::StrFormat("%.4g", count);
}

std::string ShowPercent(double fraction) { return absl::StrFormat("%.1f %%", fraction * 100); }

std::string ShowDollars(double dollars) {
  if (dollars < 100) return absl::StrFormat("$%.2f", dollars);
  if (dollars < 1e6) return absl::StrCat("$", ShowCount(std::llround(dollars)));
  return absl::StrFormat("$%.2f M", dollars / 1e6);
}

std::string ShowTuples(const std::vector<std::vector<int64_t>>& tuples) {
  std::string text = "(";
  for (size_t i = 0; i < tuples.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", (" : "(", absl::StrJoin(tuples[i], ", "), tuples[i].size() == 1 ? ",)" : ")");
  }
  return text + (tuples.size() == 1 ? ",)" : ")");
}

}  // namespace meshwright
