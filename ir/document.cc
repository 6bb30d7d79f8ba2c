#include "ir/document.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <istream>
#include <map>
#include <streambuf>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "ir/document_tree.h"
#include "ir/status.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/parser.h"

namespace meshwright {
namespace {

// Leaves yaml-cpp's parser from within an event. Caught in ParseDocument.
struct Refusal : std::exception {
  Refusal(int line_in, int column_in, std::string message_in)
      : line(line_in), column(column_in), message(std::move(message_in)) {}
  int line, column;  // from 1
  std::string message;
};

[[noreturn]] void Refuse(const YAML::Mark& mark, const absl::Status& why) {
  throw Refusal(mark.line + 1, mark.column + 1, std::string(why.message()));
}

// Reads from memory without a copy.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(absl::string_view text) {
    char* begin = const_cast<char*>(text.data());  // setg asks for it; nothing writes
    setg(begin, begin, begin + text.size());
  }
};

// Builds the tree from yaml-cpp's events and refuses what document.h says is refused.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view text, Tree* tree) : text_(text), tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (tree_->nodes.empty()) return;
    Refuse(mark, WrongInput("a second document, or text behind the end of the first", "one document", "remove it"));
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    CheckProperties(mark, "", anchor);
    if (AwaitsKey()) Refuse(mark, WrongInput("an empty key", "`key: value`"));
    const bool key_without_colon = awaits_value_ && mark.pos == key_pos_;
    if (key_without_colon) {
      Refuse(mark,
             WrongInput(absl::StrFormat("the key %s without a colon", QuoteForMessage(key_.key)), "`key: value`"));
    }
    Node& node = Add(mark, NodeKind::kNull);
    // yaml-cpp gives an empty value the place of what comes next, often a line further down.
    if (node.parent != nullptr && node.parent->kind == NodeKind::kMap) {
      node.line = node.key_line;
      node.column = node.key_column;
    }
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, WrongInput("an alias (*)", "plain values", "write the value out"));
  }

  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    Refuse(mark, WrongInput(absl::StrFormat("the anchor %s", QuoteForMessage(name)), "plain values", "remove it"));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckProperties(mark, tag, anchor);
    CheckQuoteIsClosed(mark);
    CheckCharacters(mark, value);
    if (AwaitsKey()) {
      StartEntry(mark, value);
      return;
    }
    Node& node = Add(mark, NodeKind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    StartNested(mark, tag, anchor, NodeKind::kList);
  }
  void OnSequenceEnd() override { EndNested(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    StartNested(mark, tag, anchor, NodeKind::kMap);
  }
  void OnMapEnd() override { EndNested(); }

 private:
  // A list or map that has begun and not ended.
  struct Open {
    Node* node;
    std::map<std::string, int, std::less<>> key_lines;  // of a map: which keys were there, and where
  };

  bool AwaitsKey() const { return !open_.empty() && open_.back().node->kind == NodeKind::kMap && !awaits_value_; }

  char CharAt(int pos) const {
    return pos >= 0 && static_cast<size_t>(pos) < text_.size() ? text_[static_cast<size_t>(pos)] : '\0';
  }

  // Refuses tags and anchors. A scalar without a tag has the tag "?", or "!" if it is quoted.
  void CheckProperties(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) Refuse(mark, WrongInput("an anchor (&)", "plain values", "remove it"));
    if (CharAt(mark.pos) == '!' || !(tag.empty() || tag == "?" || tag == "!")) {
      Refuse(mark, WrongInput(absl::StrFormat("the tag %s", QuoteForMessage(tag)), "plain values", "remove it"));
    }
  }
  // yaml-cpp takes the end of the file for a closing quote.
  void CheckQuoteIsClosed(const YAML::Mark& mark) const {
    const char quote = CharAt(mark.pos);
    if (quote != '\'' && quote != '"') return;
    for (size_t at = static_cast<size_t>(mark.pos) + 1; at < text_.size(); ++at) {
      if (text_[at] == '\\' && quote == '"') {
        ++at;
      } else if (text_[at] == quote) {
        if (quote == '"' || at + 1 == text_.size() || text_[at + 1] != quote) return;
        ++at;  // '' within single quotes is one quote
      }
    }
    Refuse(mark, WrongInput("a quote that is never closed", absl::StrFormat("a %c at the end", quote)));
  }

  // The text itself has been checked before; what escapes such as "\x1b" made of it has not.
  static void CheckCharacters(const YAML::Mark& mark, absl::string_view value) {
    for (size_t at = 0; at < value.size();) {
      const Utf8Char c = ReadUtf8(value.substr(at));
      if (c.length == 0 || IsControl(c.code)) {
        Refuse(mark, WrongInput(absl::StrFormat("a control character (U+%04X) in a text", c.code), "printable text"));
      }
      at += c.length;
    }
  }

  void StartEntry(const YAML::Mark& mark, const std::string& key) {
    Open& map = open_.back();
    if (key == "<<") {
      Refuse(mark, WrongInput("the merge key <<", "plain keys", "write the entries out"));
    }
    const auto [first, is_new] = map.key_lines.emplace(key, mark.line + 1);
    if (!is_new) {
      Refuse(mark, WrongInput(absl::StrFormat("the key %s a second time (lines %d and %d)", QuoteForMessage(key),
                                              first->second, mark.line + 1),
                              "it once", "remove one of the two"));
    }
    key_.key = key;
    key_.key_line = mark.line + 1;
    key_.key_column = mark.column + 1;
    key_pos_ = mark.pos;
    awaits_value_ = true;
  }

  Node& Add(const YAML::Mark& mark, NodeKind kind) {
    if (tree_->nodes.size() >= kMaxDocumentNodes) {
      Refuse(mark, WrongInput(absl::StrFormat("more than %d values", kMaxDocumentNodes), "a smaller file"));
    }
    Node& node = tree_->nodes.emplace_back();
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    if (open_.empty()) return node;
    Node* parent = open_.back().node;
    node.parent = parent;
    node.index = parent->children.size();
    if (awaits_value_) {
      node.key = std::move(key_.key);
      node.key_line = key_.key_line;
      node.key_column = key_.key_column;
      awaits_value_ = false;
    }
    parent->children.push_back(&node);
    return node;
  }

  void StartNested(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, NodeKind kind) {
    CheckProperties(mark, tag, anchor);
    if (AwaitsKey()) {
      Refuse(mark, WrongInput("a list or map as a key", "`key: value`", "is a closing bracket missing behind it?"));
    }
    if (open_.size() >= static_cast<size_t>(kMaxDocumentDepth)) {
      Refuse(mark, WrongInput(absl::StrFormat("more than %d lists and maps within each other", kMaxDocumentDepth),
                              "a flatter file"));
    }
    Node& node = Add(mark, kind);
    open_.push_back({&node, {}});
  }

  void EndNested() {
    open_.pop_back();
    awaits_value_ = false;
  }

  absl::string_view text_;
  Tree* tree_;
  std::vector<Open> open_;
  bool awaits_value_ = false;  // a key has been read, in the innermost open map
  Node key_;                   // only its key fields: that key
  int key_pos_ = -1;
};

absl::Status At(absl::string_view file_name, int line, int column, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrFormat("%s:%d:%d: %s", file_name, line, column, message));
}

absl::Status At(absl::string_view file_name, int line, int column, const absl::Status& why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s:%d:%d: %s", file_name, line, column, std::string(why.message())));
}

// Refuses what is not UTF-8 text.
absl::Status CheckText(absl::string_view text, absl::string_view file_name) {
  int line = 1, column = 1;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text.substr(at));
    const bool line_end = c.code == '\r' && text.substr(at, 2) == "\r\n";
    if (c.length == 0) {
      return At(file_name, line, column,
                WrongInput(absl::StrFormat("the byte 0x%02X", static_cast<unsigned char>(text[at])), "text in UTF-8",
                           "save the file in that encoding"));
    }
    if (IsControl(c.code) && !line_end) {
      return At(file_name, line, column,
                WrongInput(absl::StrFormat("a control character (U+%04X)", c.code), "printable text"));
    }
    at += c.length;
    column += static_cast<int>(c.length);
    if (c.code == '\n') {
      ++line;
      column = 1;
    }
  }
  return absl::OkStatus();
}

// Whether line `line` (from 0) of `text` has a tab before its first other character.
bool IsIndentedWithTab(absl::string_view text, int line) {
  for (; line > 0; --line) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
  const size_t first = text.find_first_not_of(" ");
  return first != absl::string_view::npos && text[first] == '\t';
}

// What yaml-cpp says most often, in our form; its own words for the rest.
std::string Explained(absl::string_view message) {
  struct Row {
    absl::string_view message, found, wanted;
  };
  constexpr Row kRows[] = {
      {"illegal map value", "a second key within a value",
       "each key on a line of its own, in the column of its neighbours"},
      {"end of map not found", "a line that begins in no column of those above", "keys below each other"},
      {"end of sequence not found", "a line that begins in no column of those above", "dashes below each other"},
      {"end of map flow not found", "neither a comma nor the closing bracket",
       "one of the two behind a value within { }"},
      {"end of sequence flow not found", "neither a comma nor the closing bracket",
       "one of the two behind a value within [ ]"},
      {"illegal flow end", "a closing bracket of another kind", "first the one that was opened last"},
      {"illegal EOF in scalar", "the end of the file within a text in quotes", "the closing quote"},
      {"illegal block entry", "a dash within a value", "the dashes of a list on lines of their own"},
      {"illegal tab when looking for indentation", "a tab at the beginning of a line", "spaces"},
      {"unknown token", "a character that begins no value", "a value, in quotes where it begins with such a one"},
  };
  for (const Row& row : kRows) {
    if (row.message == message) return std::string(WrongInput(row.found, row.wanted).message());
  }
  return std::string(message);
}

// Runs yaml-cpp over `text`. The only place that meets exceptions.
absl::Status Build(absl::string_view text, absl::string_view file_name, Tree* tree) {
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    TreeBuilder builder(text, tree);
    if (parser.HandleNextDocument(builder)) parser.HandleNextDocument(builder);
    return absl::OkStatus();
  } catch (const Refusal& refusal) {
    return At(file_name, refusal.line, refusal.column, refusal.message);
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 0 : error.mark.line;
    const int column = error.mark.is_null() ? 0 : error.mark.column;
    return At(file_name, line + 1, column + 1,
              absl::StrCat(Explained(error.msg),
                           IsIndentedWithTab(text, line) ? "; indent with spaces instead of tabs" : ""));
  } catch (const std::exception& error) {
    return At(file_name, 1, 1, absl::StrCat("yaml-cpp gave up: ", error.what()));
  }
}

}  // namespace

Document::Document(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}

NodeRef Document::root() const { return NodeRef(tree_.get(), &tree_->nodes.front()); }
const std::string& Document::file_name() const { return tree_->file_name; }

absl::StatusOr<Document> ParseDocument(absl::string_view text, absl::string_view file_name) {
  constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.size() > kMaxDocumentBytes) {
    return At(file_name, 1, 1,
              WrongInput(absl::StrFormat("%d bytes", text.size()),
                         absl::StrFormat("a file of at most %d", kMaxDocumentBytes)));
  }
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  MESHWRIGHT_RETURN_IF_ERROR(CheckText(text, file_name));
  auto tree = std::make_shared<Tree>();
  tree->file_name = std::string(file_name);
  MESHWRIGHT_RETURN_IF_ERROR(Build(text, file_name, tree.get()));
  if (tree->nodes.empty() || tree->nodes.front().kind == NodeKind::kNull) {
    return At(file_name, 1, 1, WrongInput("nothing", "a YAML document"));
  }
  return Document(std::move(tree));
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open())
    return absl::NotFoundError(absl::StrFormat("%s: cannot be opened: %s", path, std::strerror(errno)));
  std::string text(kMaxDocumentBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::NotFoundError(absl::StrFormat("%s: cannot be read: %s", path, std::strerror(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxDocumentBytes) {
    return At(path, 1, 1, WrongInput("a larger file", absl::StrFormat("one of at most %d bytes", kMaxDocumentBytes)));
  }
  return text;
}

}  // namespace meshwright
