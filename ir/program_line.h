// Lines and tokens of the text form of a Program. Private to ir/program_text.
#ifndef MESHWRIGHT_IR_PROGRAM_LINE_H_
#define MESHWRIGHT_IR_PROGRAM_LINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace meshwright::program_text_internal {

struct Token {
  enum class Kind { kWord, kString, kLayout, kMark, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: without quotes and escapes
  int column = 1;
  bool glued = false;  // nothing between it and the token before
};

// "7:12: found X, wanted Y".
absl::Status Wrong(int line, int column, absl::string_view found, absl::string_view wanted);

// Cuts one line into tokens; "# ..." is dropped. The last token is kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view line, int number);

// The tokens of one line, read from the left. Readers that fail leave their token where it is.
class Line {
 public:
  // `tokens` as from Tokenize.
  Line(int number, std::vector<Token> tokens) : number_(number), tokens_(std::move(tokens)) {}

  const Token& Peek() const { return tokens_[at_]; }
  const Token& Next();  // returns it and goes on; stays at the end
  bool AtEnd() const { return Peek().kind == Token::Kind::kEnd; }
  bool IsWord(absl::string_view word) const { return Peek().kind == Token::Kind::kWord && Peek().text == word; }
  bool IsMark(absl::string_view mark) const { return Peek().kind == Token::Kind::kMark && Peek().text == mark; }
  // Whether the line goes on with key=x.
  bool IsField() const { return Peek().kind == Token::Kind::kWord && Peek().text.find('=') != std::string::npos; }
  // Goes on if the token is this one.
  bool Take(absl::string_view word);
  bool TakeMark(absl::string_view mark);

  absl::Status Expect(absl::string_view word);
  absl::Status ExpectMark(absl::string_view mark);
  absl::Status ExpectEnd() const;

  // A name: a plain word, or anything in quotes.
  absl::StatusOr<std::string> Name();
  absl::StatusOr<int64_t> Integer(absl::string_view what);
  absl::StatusOr<int32_t> Integer32(absl::string_view what);
  absl::StatusOr<double> Double(absl::string_view what);
  // One of `names`, as its index.
  absl::StatusOr<size_t> Choice(absl::Span<const absl::string_view> names, absl::string_view what);

  // The error that `token` (or the next one) is not what was wanted.
  absl::Status Error(const Token& token, absl::string_view wanted) const;
  absl::Status Error(absl::string_view wanted) const { return Error(Peek(), wanted); }
  // Puts the place of `token` before the message of another reader.
  absl::Status Locate(const Token& token, const absl::Status& status) const;

 private:
  const int number_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace meshwright::program_text_internal

#endif  // MESHWRIGHT_IR_PROGRAM_LINE_H_
