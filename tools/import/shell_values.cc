#include "tools/import/shell_values.h"

#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/import/shell_script.h"

namespace meshwright {
namespace {

using Value = std::optional<int64_t>;

std::optional<int64_t> IntegerOf(absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

Value Apply(absl::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &result) ? Value() : result;
  if (op == "-") return __builtin_sub_overflow(a, b, &result) ? Value() : result;
  if (op == "*") return __builtin_mul_overflow(a, b, &result) ? Value() : result;
  if (op == "/" || op == "%") {
    if (b == 0 || b == -1) return b == 0 || __builtin_sub_overflow(0, a, &result) ? Value() : op == "/" ? result : 0;
    return op == "/" ? a / b : a % b;
  }
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  if (op == ">=") return a >= b;
  if (op == "&&") return a != 0 && b != 0;
  return a != 0 || b != 0;
}

class Arithmetic {
 public:
  Arithmetic(absl::string_view text, const std::function<std::optional<std::string>(absl::string_view)>& value)
      : rest_(text), value_(value) {}

  Value All() {
    const Value value = Binary(0);
    Blanks();
    return rest_.empty() ? value : std::nullopt;
  }

 private:
  // By how tightly they bind, the least first; longer ones before those that they begin with.
  static constexpr std::array<std::array<absl::string_view, 4>, 6> kLevels = {{{"||", "", "", ""},
                                                                               {"&&", "", "", ""},
                                                                               {"==", "!=", "", ""},
                                                                               {"<=", ">=", "<", ">"},
                                                                               {"+", "-", "", ""},
                                                                               {"*", "/", "%", ""}}};

  void Blanks() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }
  bool Take(absl::string_view op) {
    Blanks();
    if (op.empty() || rest_.substr(0, op.size()) != op) return false;
    rest_.remove_prefix(op.size());
    return true;
  }

  Value Binary(size_t level) {
    if (level == kLevels.size()) return Unary();
    Value left = Binary(level + 1);
    while (left.has_value()) {
      absl::string_view op;
      for (const absl::string_view candidate : kLevels[level]) {
        if (op.empty() && Take(candidate)) op = candidate;
      }
      if (op.empty()) return left;
      const Value right = Binary(level + 1);
      left = right.has_value() ? Apply(op, *left, *right) : std::nullopt;
    }
    return left;
  }

  Value Unary() {
    if (++depth_ > kMostNesting) return std::nullopt;
    Value value;
    if (Take("-")) {
      value = Unary();
      value = value.has_value() ? Apply("-", 0, *value) : value;
    } else if (Take("!")) {
      value = Unary();
      if (value.has_value()) value = *value == 0;
    } else if (Take("(")) {
      value = Binary(0);
      if (!Take(")")) value = std::nullopt;
    } else {
      value = Atom();
    }
    --depth_;
    return value;
  }

  // A number, or the name of one: X, $X, ${X}.
  Value Atom() {
    const bool braces = Take("${");
    if (!braces) Take("$");
    Blanks();
    size_t size = 0;
    while (size < rest_.size() && (absl::ascii_isalnum(static_cast<unsigned char>(rest_[size])) || rest_[size] == '_'))
      ++size;
    const absl::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    if (word.empty() || (braces && !Take("}"))) return std::nullopt;
    if (absl::ascii_isdigit(static_cast<unsigned char>(word[0])) && !braces) return IntegerOf(word);
    const std::optional<std::string> text = value_(word);
    return text.has_value() ? IntegerOf(*text) : std::nullopt;
  }

  absl::string_view rest_;
  const std::function<std::optional<std::string>(absl::string_view)>& value_;
  int depth_ = 0;
};

class Test {
 public:
  Test(const std::vector<TestToken>& tokens, bool patterns) : tokens_(tokens), patterns_(patterns) {}

  Truth All() {
    const Truth truth = Or();
    return at_ == tokens_.size() ? truth : Truth::kUnknown;
  }

 private:
  bool Take(absl::string_view a, absl::string_view b) {
    if (at_ == tokens_.size() || tokens_[at_].quoted || (tokens_[at_].text != a && tokens_[at_].text != b))
      return false;
    ++at_;
    return true;
  }
  Truth Or() {
    Truth truth = And();
    while (Take("||", "-o")) {
      const Truth other = And();
      truth = truth == Truth::kYes || other == Truth::kYes ? Truth::kYes
              : truth == Truth::kNo && other == Truth::kNo ? Truth::kNo
                                                           : Truth::kUnknown;
    }
    return truth;
  }
  Truth And() {
    Truth truth = One();
    while (Take("&&", "-a")) {
      const Truth other = One();
      truth = truth == Truth::kNo || other == Truth::kNo     ? Truth::kNo
              : truth == Truth::kYes && other == Truth::kYes ? Truth::kYes
                                                             : Truth::kUnknown;
    }
    return truth;
  }
  Truth One() {
    if (++depth_ > kMostNesting) return Truth::kUnknown;
    Truth truth = Truth::kUnknown;
    if (Take("!", "!")) {
      truth = Not(One());
    } else if (Take("(", "(")) {
      truth = Or();
      if (!Take(")", ")")) truth = Truth::kUnknown;
    } else {
      truth = Primary();
    }
    --depth_;
    return truth;
  }
  Truth Primary() {
    if (at_ == tokens_.size()) return Truth::kNo;
    const TestToken& first = tokens_[at_++];
    if (!first.quoted && first.text.size() == 2 && first.text[0] == '-' && at_ < tokens_.size()) {
      const std::string& word = tokens_[at_++].text;
      if (first.text != "-z" && first.text != "-n") return Truth::kUnknown;
      return IsUnknown(word) ? Truth::kUnknown : word.empty() == (first.text == "-z") ? Truth::kYes : Truth::kNo;
    }
    if (at_ + 1 < tokens_.size() && !tokens_[at_].quoted && !IsJoint(tokens_[at_].text)) {
      const std::string& op = tokens_[at_].text;
      const TestToken& second = tokens_[at_ + 1];
      at_ += 2;
      return Compare(first.text, op, second);
    }
    return IsUnknown(first.text) ? Truth::kUnknown : first.text.empty() ? Truth::kNo : Truth::kYes;
  }
  static bool IsJoint(absl::string_view text) {
    return text == "&&" || text == "||" || text == "-a" || text == "-o" || text == ")";
  }
  Truth Compare(const std::string& a, absl::string_view op, const TestToken& b) const {
    if (IsUnknown(a) || IsUnknown(b.text)) return Truth::kUnknown;
    const auto truth = [](bool holds) { return holds ? Truth::kYes : Truth::kNo; };
    if (op == "=" || op == "==" || op == "!=") {
      const bool equal = patterns_ && !b.quoted ? MatchesPattern(a, b.text) : a == b.text;
      return truth(equal == (op != "!="));
    }
    constexpr std::pair<absl::string_view, absl::string_view> kNumbers[] = {
        {"-eq", "=="}, {"-ne", "!="}, {"-lt", "<"}, {"-le", "<="}, {"-gt", ">"}, {"-ge", ">="}};
    for (const auto& [name, symbol] : kNumbers) {
      if (op != name) continue;
      const Value x = IntegerOf(a), y = IntegerOf(b.text);
      return x.has_value() && y.has_value() ? truth(*Apply(symbol, *x, *y) != 0) : Truth::kUnknown;
    }
    return Truth::kUnknown;
  }

  const std::vector<TestToken>& tokens_;
  const bool patterns_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<int64_t> EvaluateArithmetic(absl::string_view text,
                                          const std::function<std::optional<std::string>(absl::string_view)>& value) {
  return Arithmetic(text, value).All();
}

Truth EvaluateTest(const std::vector<TestToken>& tokens, bool patterns) { return Test(tokens, patterns).All(); }

// By the last * alone: what stands before it has matched for good.
bool MatchesPattern(absl::string_view text, absl::string_view pattern) {
  size_t t = 0, p = 0, star = absl::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace meshwright
