#include "tools/import/shell_words.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/import/shell_values.h"

namespace meshwright {
namespace {

constexpr size_t kMostExpanded = size_t{64} << 20;
constexpr absl::string_view kOperators = ";&|()<>\n";

bool IsNameCharacter(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
// Names of one character: arguments, their number, the last status and the like.
bool IsSpecial(char c) { return c != '\0' && absl::StrContains("@*#?$!-0123456789", c); }

}  // namespace

ShellVariables::ShellVariables(const std::map<std::string, std::string>& given) : given_(given) {
  for (const auto& [name, value] : given_) values_[name] = {{value, 0}};
}

const std::vector<ShellWord>* ShellVariables::Find(absl::string_view name) const {
  static const std::vector<ShellWord>* const kNoArguments = new std::vector<ShellWord>();
  const auto found = values_.find(std::string(name));
  if (found != values_.end()) return &found->second;
  return name == "@" || name == "*" ? kNoArguments : nullptr;
}

std::optional<std::string> ShellVariables::Text(absl::string_view name) const {
  const std::vector<ShellWord>* const words = Find(name);
  if (words == nullptr) return std::nullopt;
  return words->empty() ? "" : (*words)[0].text;
}

void ShellVariables::Set(const std::string& name, std::vector<ShellWord> words, bool append, bool array) {
  if (given_.count(name) > 0) return;
  const auto [at, fresh] = values_.try_emplace(name);
  if (fresh) order_.push_back(name);
  std::vector<ShellWord>& value = at->second;
  if (!append) {
    value = std::move(words);
  } else if (array || value.empty()) {
    value.insert(value.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
  } else if (!words.empty()) {
    absl::StrAppend(&value[0].text, words[0].text);
  }
}

struct ShellReader::Build {
  std::vector<ShellWord> fields;
  ShellWord current;
  bool begun = false;   // `current` is a field, if an empty one
  bool quoted = false;  // any of it

  void End() {
    if (begun) fields.push_back(std::move(current));
    current = ShellWord();
    begun = false;
  }
};

void ShellReader::Fail(absl::string_view found, absl::string_view wanted) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(file_, ":", line_, ": found ", found, ", wanted ", wanted));
}

bool ShellReader::Take(absl::string_view token) {
  if (!absl::StartsWith(Rest(), token)) return false;
  Skip(token.size());
  return true;
}

void ShellReader::Skip(size_t bytes) {
  const size_t end = std::min(text_.size(), at_ + bytes);
  line_ += std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(end), '\n');
  at_ = end;
}

void ShellReader::SkipLine() {
  const size_t end = text_.find('\n', at_);
  at_ = end == absl::string_view::npos ? text_.size() : end;
}

void ShellReader::SkipBlanks() {
  while (!AtEnd()) {
    if (IsBlank(Peek())) {
      ++at_;
    } else if (!Take("\\\n") && !Take("\\\r\n")) {
      return;
    }
  }
}

bool ShellReader::AtWord() const { return !AtEnd() && !IsBlank(Peek()) && !absl::StrContains(kOperators, Peek()); }

absl::string_view ShellReader::Bare() const {
  size_t size = 0;
  for (const absl::string_view rest = Rest(); size < rest.size(); ++size) {
    const char c = rest[size];
    if (IsBlank(c) || absl::StrContains(kOperators, c)) break;
    if (absl::StrContains("\\'\"$`", c)) return "";
  }
  return Rest().substr(0, size);
}

void ShellReader::Append(Build& build, absl::string_view text) {
  build.begun = true;
  if (build.current.line == 0) build.current.line = line_;
  bytes_ += text.size();
  if (build.current.text.size() + text.size() > kMostWordBytes || bytes_ > kMostExpanded) {
    return Fail("a word that grows without end", absl::StrCat("at most ", kMostWordBytes, " bytes"));
  }
  build.current.text.append(text.data(), text.size());
}

void ShellReader::Expand(Build& build, const std::vector<ShellWord>& words, bool quoted, bool apart) {
  for (size_t i = 0; i < words.size() && status_.ok(); ++i) {
    if (i > 0 && (apart || !quoted)) build.End();
    if (i > 0 && quoted && !apart) Append(build, " ");
    if (!build.begun && words[i].line > 0) build.current.line = words[i].line;
    if (quoted) {
      Append(build, words[i].text);
      continue;
    }
    absl::string_view rest = words[i].text;
    while (!rest.empty() && status_.ok()) {
      const size_t size = std::min(rest.find_first_of(" \t\n\r"), rest.size());
      if (size > 0) Append(build, rest.substr(0, size));
      rest.remove_prefix(size);
      const absl::string_view next = absl::StripLeadingAsciiWhitespace(rest);
      const int64_t line = build.current.line;
      if (next.size() < rest.size()) build.End();
      if (next.size() < rest.size() && words[i].line > 0) build.current.line = line;
      rest = next;
    }
    if (build.fields.size() > kMostWords) return Fail("more words than a command has", absl::StrCat(kMostWords));
  }
}

void ShellReader::Unset(Build& build, absl::string_view as_written) {
  Append(build, unset_is_empty_ ? absl::string_view() : as_written);
}

// Behind "${", up to the "}" that ends it: a word, of one field.
std::string ShellReader::UntilBrace(int depth) {
  Build build;
  while (!AtEnd() && Peek() != '}') {
    if (Peek() == '"') {
      Quoted(build, depth);
    } else if (Peek() == '$') {
      Dollar(build, true, depth);
    } else if (Peek() == '\'') {
      const size_t end = text_.find('\'', at_ + 1);
      if (end == absl::string_view::npos) return Fail("a quote that never ends", "a second '"), "";
      Append(build, text_.substr(at_ + 1, end - at_ - 1));
      Skip(end + 1 - at_);
    } else {
      if (Peek() == '\\') Skip(1);
      Append(build, text_.substr(at_, 1));
      Skip(1);
    }
  }
  if (!Take("}")) Fail("\"${\" that never ends", "a \"}\"");
  return build.current.text;
}

// "${NAME}", "${NAME:-word}", "${NAME[@]}", "${#NAME[@]}"; of all other forms the value is unknown.
void ShellReader::Braces(Build& build, bool quoted, int depth) {
  const size_t begin = at_;
  Skip(2);
  const bool count = Peek() == '#' && Peek(1) != '}' && Take("#");
  size_t end = at_;
  while (end < text_.size() && IsNameCharacter(text_[end])) ++end;
  if (end == at_ && IsSpecial(Peek())) ++end;
  const std::string name(text_.substr(at_, end - at_));
  Skip(end - at_);
  const bool apart = Take("[@]") || name == "@", whole = apart || Take("[*]") || name == "*";
  const std::vector<ShellWord>* const words = variables_.Find(name);
  const bool colon = Peek() == ':' && absl::StrContains("-=?+", Peek(1)) && Take(":");
  const char form = Peek();
  if (form == '}') {
    Skip(1);
    const absl::string_view as_written = text_.substr(begin, at_ - begin);
    if (words == nullptr) return Unset(build, as_written);
    if (count) return whole ? Append(build, absl::StrCat(words->size())) : Append(build, as_written);
    if (whole) return Expand(build, *words, quoted, apart);
    return Expand(build, {words->begin(), words->begin() + (words->empty() ? 0 : 1)}, quoted, false);
  }
  if (form == '\0' || !absl::StrContains("-=?+", form) || count) {
    UntilBrace(depth);
    return Append(build, text_.substr(begin, at_ - begin));  // a part of a value, or another spelling
  }
  Skip(1);
  const std::string word = UntilBrace(depth);
  const std::string value =
      words == nullptr
          ? ""
          : absl::StrJoin(*words, " ", [](std::string* out, const ShellWord& w) { absl::StrAppend(out, w.text); });
  const bool has = words != nullptr && !(colon && value.empty());
  if (form == '+') return has ? Append(build, word) : void();
  if (has) return Expand(build, *words, quoted, apart);
  if (form == '?') return Unset(build, text_.substr(begin, at_ - begin));
  if (form == '=') variables_.Set(name, {{word, line_}}, false, false);
  Expand(build, {{word, 0}}, quoted, false);
}

void ShellReader::Substitution(Build& build) {
  const size_t begin = at_;
  int open = 0;
  for (char quote = '\0'; !AtEnd(); Skip(1)) {
    const char c = Peek();
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(') {
      ++open;
    } else if (c == ')' && --open == 0) {
      Skip(1);
      return Append(build, text_.substr(begin, at_ - begin));
    }
  }
  Fail("\"$(\" that never ends", "a \")\"");
}

// "$((...))".
void ShellReader::Arithmetic(Build& build) {
  const size_t begin = at_, end = text_.find("))", at_);
  if (end == absl::string_view::npos) return Fail("\"$((\" that never ends", "\"))\"");
  const absl::string_view inside = text_.substr(begin + 3, end - begin - 3);
  size_t more = 0;  // "$(( (A + B) ))" and "$((A * (B + C)))"
  while (end + 2 + more < text_.size() && text_[end + 2 + more] == ')' &&
         std::count(inside.begin(), inside.end(), '(') >
             std::count(inside.begin(), inside.end(), ')') + static_cast<ptrdiff_t>(more)) {
    ++more;
  }
  Skip(end + 2 + more - begin);
  const std::optional<int64_t> value = EvaluateArithmetic(
      text_.substr(begin + 3, at_ - begin - 5), [this](absl::string_view name) { return variables_.Text(name); });
  Append(build, value.has_value() ? absl::StrCat(*value) : text_.substr(begin, at_ - begin));
}

void ShellReader::Dollar(Build& build, bool quoted, int depth) {
  if (depth > kMostNesting) return Fail("values within values", absl::StrCat("at most ", kMostNesting, " of them"));
  const char next = Peek(1);
  if (next == '{') return Braces(build, quoted, depth + 1);
  if (next == '(') return Peek(2) == '(' ? Arithmetic(build) : Substitution(build);
  Skip(1);
  size_t end = at_;
  while (end < text_.size() && IsNameCharacter(text_[end])) ++end;
  if (IsSpecial(next)) end = at_ + 1;
  if (end == at_) return Append(build, "$");
  const absl::string_view name = text_.substr(at_, end - at_);
  Skip(end - at_);
  const std::vector<ShellWord>* const words = variables_.Find(name);
  if (words == nullptr) return Unset(build, absl::StrCat("${", name, "}"));
  if (name == "@" || name == "*") return Expand(build, *words, quoted, name == "@");
  Expand(build, {words->begin(), words->begin() + (words->empty() ? 0 : 1)}, quoted, false);
}

// Between two '"'.
void ShellReader::Quoted(Build& build, int depth) {
  const int64_t line = line_;
  Skip(1);
  build.quoted = true;
  const size_t fields = build.fields.size();
  const bool empty = !build.begun;
  while (!AtEnd() && Peek() != '"') {
    if (Peek() == '$') {
      Dollar(build, true, depth);
    } else if (Take("\\\n")) {
      continue;
    } else {
      if (Peek() == '\\' && Peek(1) != '\0' && absl::StrContains("\"$`\\", Peek(1))) Skip(1);
      Append(build, text_.substr(at_, 1));
      Skip(1);
    }
  }
  if (!Take("\"")) {
    line_ = line;
    return Fail("a quote that never ends", "a second \"");
  }
  // "" is a field, and "${A[@]}" of an empty array is none.
  const bool none = empty && !build.begun && build.fields.size() == fields;
  if (none && text_[at_ - 2] == '"') Append(build, "");
}

void ShellReader::Word(std::vector<ShellWord>& fields, bool* quoted) {
  Build build;
  while (AtWord()) {
    const char c = Peek();
    if (c == '\'') {
      const size_t end = text_.find('\'', at_ + 1);
      if (end == absl::string_view::npos) return Fail("a quote that never ends", "a second '");
      build.quoted = true;
      Append(build, text_.substr(at_ + 1, end - at_ - 1));
      Skip(end + 1 - at_);
    } else if (c == '"') {
      Quoted(build, 0);
    } else if (c == '$') {
      Dollar(build, false, 0);
    } else if (c == '`') {
      const size_t end = std::min(text_.find('`', at_ + 1), text_.size() - 1);
      Append(build, absl::StrCat("$(", text_.substr(at_ + 1, end - at_ - 1), ")"));
      Skip(end + 1 - at_);
    } else if (c == '\\') {
      if (Peek(1) == '\n' || (Peek(1) == '\r' && Peek(2) == '\n')) break;  // the line goes on, the word does not
      Append(build, text_.substr(at_ + 1, 1));
      Skip(2);
    } else {
      Append(build, text_.substr(at_, 1));
      Skip(1);
    }
  }
  build.End();
  if (quoted != nullptr) *quoted = build.quoted;
  fields.insert(fields.end(), std::make_move_iterator(build.fields.begin()),
                std::make_move_iterator(build.fields.end()));
  if (fields.size() > kMostWords) Fail("more words than a command has", absl::StrCat(kMostWords));
}

std::string ShellReader::OneWord() {
  std::vector<ShellWord> fields;
  Word(fields);
  return absl::StrJoin(fields, " ", [](std::string* out, const ShellWord& word) { absl::StrAppend(out, word.text); });
}

}  // namespace meshwright
