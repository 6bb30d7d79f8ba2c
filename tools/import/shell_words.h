// Words of a shell script, with what is expanded in them. Used by shell_script.
//
// Thread safety: one thread at a time.
#ifndef MESHWRIGHT_TOOLS_IMPORT_SHELL_WORDS_H_
#define MESHWRIGHT_TOOLS_IMPORT_SHELL_WORDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/import/shell_script.h"

namespace meshwright {

// Values of variables, of which those that somebody knows stay as they are.
class ShellVariables {
 public:
  explicit ShellVariables(const std::map<std::string, std::string>& given);

  // Null where nobody has set it. "@" and "*" are an empty array: a script without arguments.
  const std::vector<ShellWord>* Find(absl::string_view name) const;
  std::optional<std::string> Text(absl::string_view name) const;  // of an array its first word, as in bash
  void Set(const std::string& name, std::vector<ShellWord> words, bool append, bool array);

  const std::map<std::string, std::vector<ShellWord>>& all() const { return values_; }
  const std::vector<std::string>& order() const { return order_; }

 private:
  const std::map<std::string, std::string> given_;
  std::map<std::string, std::vector<ShellWord>> values_;
  std::vector<std::string> order_;
};

// A place in the text, from which words are read.
class ShellReader {
 public:
  ShellReader(absl::string_view text, absl::string_view file_name, ShellVariables& variables)
      : text_(text), file_(file_name), variables_(variables) {}

  // In place of what nobody has set: nothing, or the word as it is written.
  void set_unset_is_empty(bool empty) { unset_is_empty_ = empty; }

  bool AtEnd() const { return at_ >= text_.size() || !status_.ok(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool Take(absl::string_view token);  // if it stands here
  void Skip(size_t bytes);
  void SkipLine();    // up to the end of the line
  void SkipBlanks();  // spaces, tabs and continued lines
  absl::string_view Rest() const { return text_.substr(at_); }
  int64_t line() const { return line_; }

  // Whether a word begins here: no blank, operator or end.
  bool AtWord() const;
  // The word here if nothing in it is quoted or expanded; else empty. Does not move.
  absl::string_view Bare() const;

  // The fields that the word here becomes, added to `fields`; `quoted`: whether any of it was in quotes.
  void Word(std::vector<ShellWord>& fields, bool* quoted = nullptr);
  // The same as one field, as behind "NAME=".
  std::string OneWord();

  const absl::Status& status() const { return status_; }
  void Fail(absl::string_view found, absl::string_view wanted);

 private:
  struct Build;  // the fields of a word

  void Quoted(Build& build, int depth);
  void Dollar(Build& build, bool quoted, int depth);
  void Braces(Build& build, bool quoted, int depth);
  void Substitution(Build& build);  // "$(...)", as it is written
  void Arithmetic(Build& build);
  void Append(Build& build, absl::string_view text);
  void Expand(Build& build, const std::vector<ShellWord>& words, bool quoted, bool apart);
  void Unset(Build& build, absl::string_view as_written);
  std::string UntilBrace(int depth);

  absl::string_view text_;
  std::string file_;
  ShellVariables& variables_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool unset_is_empty_ = false;
  size_t bytes_ = 0;  // that were expanded so far
  absl::Status status_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_SHELL_WORDS_H_
