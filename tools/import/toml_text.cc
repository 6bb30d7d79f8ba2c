// toml++ 3.3.0 asserts some of what a file may break, such as a table's name: here that is an error of the file.
#undef NDEBUG
namespace meshwright {
struct BrokenToml {};
constexpr void RequireToml(bool holds) {
  if (!holds) throw BrokenToml();
}
}  // namespace meshwright
#define TOML_ASSERT(expr) meshwright::RequireToml(static_cast<bool>(expr))

#include "tools/import/toml_text.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/text.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// toml++ makes a table of each part of a key and of each brace, in each other, and takes them apart again by recursion.
constexpr int kMostDots = 64, kMostOpen = 32;  // on a line, outside of texts and comments

// The line where the text goes deeper than that, else 0.
int DeepLine(absl::string_view text) {
  int line = 1, dots = 0, open = 0;
  absl::string_view quote;  // that a text began with
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      dots = 0;
      if (quote.size() == 1) quote = "";
    } else if (!quote.empty()) {
      if (c == '\\' && quote[0] == '"') {
        ++i;
      } else if (absl::StartsWith(text.substr(i), quote)) {
        i += quote.size() - 1;
        quote = "";
      }
    } else if (c == '"' || c == '\'') {
      const absl::string_view three = text.substr(i, 3);
      quote = three == "\"\"\"" || three == "'''" ? three : three.substr(0, 1);
      i += quote.size() - 1;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else {
      if (c == '.') ++dots;
      if (c == '[' || c == '{') ++open;
      if (c == ']' || c == '}') open = std::max(0, open - 1);
      if (dots > kMostDots || open > kMostOpen) return line;
    }
  }
  return 0;
}

struct Entry {
  uint32_t line = 0, column = 0;
  std::string key, value;
};

// In double quotes always: a TOML text is never a number.
std::string Quoted(absl::string_view text) {
  std::string quoted = QuoteYaml(text);
  if (!quoted.empty() && quoted[0] == '"') return quoted;
  return absl::StrCat("\"", quoted, "\"");
}

std::string ValueText(const toml::node& node) {
  if (const auto* const text = node.as_string()) return Quoted(text->get());
  if (const auto* const number = node.as_integer()) return absl::StrCat(number->get());
  if (const auto* const number = node.as_floating_point()) return ShortestNumber(number->get());
  if (const auto* const flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* const list = node.as_array()) {
    std::string all = "[";
    for (const toml::node& child : *list) absl::StrAppend(&all, all.size() > 1 ? ", " : "", ValueText(child));
    return absl::StrCat(all, "]");
  }
  if (node.is_table()) return "{}";
  return "\"a date or a time\"";
}

// What no document may have is not made at all: keys are as long as their tables are deep.
void Flatten(const toml::table& table, const std::string& prefix, size_t& bytes, std::vector<Entry>& entries) {
  for (const auto& [key, node] : table) {
    const std::string name = absl::StrCat(prefix, std::string(key.str()));
    bytes += name.size();
    if (bytes > kMaxDocumentBytes) return;
    if (const toml::table* const inner = node.as_table()) {
      Flatten(*inner, name + ".", bytes, entries);
      continue;
    }
    const toml::source_position& at = node.source().begin;
    entries.push_back({at.line, at.column, name, ValueText(node)});
  }
}

// A flow map whose values stand where the TOML has them, as long as what is in front of them on the line leaves room.
std::string Placed(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  std::string text = "{";
  uint32_t line = 1;
  size_t begin = 0;  // of the line
  for (const Entry& entry : entries) {
    absl::StrAppend(&text, Quoted(entry.key), ":");
    for (; line < entry.line; ++line) {
      text.push_back('\n');
      begin = text.size();
    }
    const size_t column = text.size() - begin + 1;
    text.append(column < entry.column ? entry.column - column : 1, ' ');
    absl::StrAppend(&text, entry.value, ", ");
  }
  return text + "}\n";
}

}  // namespace

absl::StatusOr<Document> ParseToml(absl::string_view text, absl::string_view file_name) {
  const std::string name(file_name);
  if (text.size() > kMaxDocumentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":1:1: found ", text.size(), " bytes, wanted at most ", kMaxDocumentBytes));
  }
  if (const int line = DeepLine(text); line > 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ":", line, ":1: found more than ", kMostDots, " points or ",
                                                   kMostOpen, " open brackets, wanted fewer"));
  }
  toml::table table;
  try {
    table = toml::parse(std::string_view(text.data(), text.size()));
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":", at.line, ":", at.column, ": ", std::string(error.description())));
  } catch (const BrokenToml&) {
    return absl::InvalidArgumentError(absl::StrCat(name, ":1:1: found text that is no TOML, wanted tables of keys"));
  }
  std::vector<Entry> entries;
  size_t bytes = 0;
  Flatten(table, "", bytes, entries);
  if (bytes > kMaxDocumentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":1:1: found keys of more than ", kMaxDocumentBytes, " bytes, wanted shorter ones"));
  }
  return ParseDocument(Placed(std::move(entries)), file_name);
}

}  // namespace meshwright
