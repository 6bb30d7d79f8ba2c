// Small languages in which Megatron's arguments say what each layer is.
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/decoder.h"
#include "tools/import/megatron.h"

namespace meshwright {
namespace {

constexpr int kDeepest = 16;

absl::Status Wrong(absl::string_view found, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, ", wanted ", wanted));
}

// Sums, multiples and parentheses of `Item`s; text of either language, without blanks.
class Reader {
 public:
  explicit Reader(absl::string_view text) {
    for (const char c : text) {
      if (!absl::ascii_isspace(static_cast<unsigned char>(c)) && c != '\'' && c != '"') text_.push_back(c);
    }
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  bool AtEnd() const { return at_ == text_.size(); }
  std::string Rest() const { return AtEnd() ? "the end" : absl::StrCat("\"", text_.substr(at_, 20), "\""); }
  // "*3" behind something; 1 where there is none.
  absl::StatusOr<int64_t> Times() {
    if (!Take('*')) return 1;
    int64_t times = 0;
    size_t end = at_;
    while (end < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[end]))) ++end;
    if (!absl::SimpleAtoi(text_.substr(at_, end - at_), &times) || times > kMostLayers) {
      return Wrong(Rest(), absl::StrCat("a number up to ", kMostLayers, " behind *"));
    }
    at_ = end;
    return times;
  }

 private:
  std::string text_;
  size_t at_ = 0;
};

absl::StatusOr<std::vector<int>> Sum(Reader& in, int depth);

absl::StatusOr<std::vector<int>> Product(Reader& in, int depth) {
  std::vector<int> list;
  if (depth > kDeepest) return Wrong("lists within lists", absl::StrCat("at most ", kDeepest));
  if (in.Take('(')) {
    MESHWRIGHT_ASSIGN_OR_RETURN(list, Sum(in, depth + 1));
    if (!in.Take(')')) return Wrong(in.Rest(), "\")\"");
  } else if (in.Take('[')) {
    while (!in.Take(']')) {
      if (in.Peek() != '0' && in.Peek() != '1') return Wrong(in.Rest(), "0 or 1");
      list.push_back(in.Take('1') ? 1 : (in.Take('0'), 0));
      if (!in.Take(',') && in.Peek() != ']') return Wrong(in.Rest(), "\",\" or \"]\"");
    }
  } else {
    return Wrong(in.Rest(), "a list such as ([0]*3+[1]*58)");
  }
  while (in.Peek() == '*') {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t times, in.Times());
    if (static_cast<int64_t>(list.size()) * times > kMostLayers)
      return Wrong("a longer list", absl::StrCat(kMostLayers, " layers"));
    std::vector<int> repeated;
    for (int64_t i = 0; i < times; ++i) repeated.insert(repeated.end(), list.begin(), list.end());
    list = std::move(repeated);
  }
  return list;
}

absl::StatusOr<std::vector<int>> Sum(Reader& in, int depth) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<int> list, Product(in, depth));
  while (in.Take('+')) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int> more, Product(in, depth));
    list.insert(list.end(), more.begin(), more.end());
    if (list.size() > static_cast<size_t>(kMostLayers))
      return Wrong("a longer list", absl::StrCat(kMostLayers, " layers"));
  }
  return list;
}

// Letters of a layout, written out.
absl::StatusOr<std::string> Letters(Reader& in, int depth) {
  std::string letters;
  if (depth > kDeepest) return Wrong("parts within parts", absl::StrCat("at most ", kDeepest));
  while (!in.AtEnd() && in.Peek() != ')') {
    std::string one;
    if (in.Take(',')) continue;
    if (in.Take('(')) {
      MESHWRIGHT_ASSIGN_OR_RETURN(one, Letters(in, depth + 1));
      if (!in.Take(')')) return Wrong(in.Rest(), "\")\"");
    } else {
      for (const char letter : {'E', 't', 'm', 'L', '|'}) {
        if (one.empty() && in.Take(letter)) one.push_back(letter);
      }
      if (one.empty()) return Wrong(in.Rest(), "E, t, m, L or |");
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t times, in.Times());
    if (letters.size() + one.size() * static_cast<size_t>(times) > 4 * static_cast<size_t>(kMostLayers)) {
      return Wrong("a longer layout", absl::StrCat(kMostLayers, " layers"));
    }
    for (int64_t i = 0; i < times; ++i) letters += one;
  }
  return letters;
}

}  // namespace

absl::StatusOr<std::vector<int>> ReadListExpression(absl::string_view text) {
  Reader in(text);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<int> list, Sum(in, 0));
  if (!in.AtEnd()) return Wrong(in.Rest(), "the end of the list");
  return list;
}

absl::StatusOr<std::vector<int64_t>> ReadPipelineLayout(absl::string_view text) {
  Reader in(text);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string letters, Letters(in, 0));
  if (!in.AtEnd()) return Wrong(in.Rest(), "the end of the layout");
  std::vector<int64_t> layers = {0};
  for (const char letter : letters) {
    if (letter == '|') layers.push_back(0);
    if (letter == 't') ++layers.back();
  }
  return layers;
}

}  // namespace meshwright
