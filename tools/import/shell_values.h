// Arithmetic and conditions of a shell, on values that are there. Used by shell_script.
//
// Thread safety: pure functions. Nothing here throws; what is nested too deeply counts as unknown.
#ifndef MESHWRIGHT_TOOLS_IMPORT_SHELL_VALUES_H_
#define MESHWRIGHT_TOOLS_IMPORT_SHELL_VALUES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace meshwright {

enum class Truth : uint8_t { kNo, kYes, kUnknown };

constexpr Truth Not(Truth truth) {
  return truth == Truth::kUnknown ? truth : truth == Truth::kYes ? Truth::kNo : Truth::kYes;
}

// Integers, names, + - * / % and comparisons, && || !, parentheses; as 64-bit integers. Nothing where it is something
// else, divides by 0 or leaves the range. `value` gives the text of a name, or nothing.
std::optional<int64_t> EvaluateArithmetic(
    absl::string_view text, const std::function<std::optional<std::string>(absl::string_view name)>& value);

struct TestToken {
  std::string text;
  bool quoted = false;  // no pattern, no operator
};

// What stands between "[[" and "]]", or "[" and "]": of words, whether they are empty or equal (to a pattern of * and ?
// where `patterns`), of integers, how they compare; !, && and || (-a and -o), parentheses. Of files and regular
// expressions, and of words that say nothing, unknown.
Truth EvaluateTest(const std::vector<TestToken>& tokens, bool patterns);

// Whether `text` is what a pattern of * and ? stands for.
bool MatchesPattern(absl::string_view text, absl::string_view pattern);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_SHELL_VALUES_H_
