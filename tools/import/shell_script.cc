#include "tools/import/shell_script.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/import/shell_values.h"
#include "tools/import/shell_words.h"

namespace meshwright {
namespace {

bool IsOneOf(absl::string_view word, std::initializer_list<absl::string_view> words) {
  return absl::c_linear_search(words, word);
}

// The name in front of "=" or "+=" where a word begins with these.
absl::string_view AssignedName(absl::string_view text) {
  size_t size = 0;
  while (size < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[size])) || text[size] == '_'))
    ++size;
  if (size == 0 || absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return "";
  const absl::string_view rest = text.substr(size);
  return absl::StartsWith(rest, "=") || absl::StartsWith(rest, "+=") ? text.substr(0, size) : absl::string_view();
}

// if, case or a loop around what is read.
struct Frame {
  enum class Kind : uint8_t { kIf, kCase, kLoop };
  Kind kind = Kind::kIf;
  bool outer = true;       // what stands around it is read
  bool reads = true;       // what stands here is read
  bool condition = false;  // of an if or a loop, before `then` or `do`
  bool done = false;       // of an if or a case: one branch was it
  std::string value;       // of a case
  int64_t line = 0;
};

class Interpreter {
 public:
  Interpreter(absl::string_view text, absl::string_view file_name, const std::map<std::string, std::string>& given)
      : variables_(given), in_(text, file_name, variables_) {}

  absl::StatusOr<ShellScript> Run() {
    while (!in_.AtEnd()) Statement();
    if (!in_.status().ok()) return in_.status();
    script_.variables = variables_.all();
    script_.order = variables_.order();
    return std::move(script_);
  }

 private:
  bool Reads() const { return (frames_.empty() || frames_.back().reads) && !skips_; }
  void Note(int64_t line, absl::string_view what) { script_.notes.push_back(absl::StrCat("line ", line, ": ", what)); }

  // What ends a statement, and whether the next one is read for that.
  void Separator() {
    skips_ = false;
    if (in_.Take("&&")) {
      skips_ = last_ != Truth::kYes;
    } else if (in_.Take("||")) {
      skips_ = last_ != Truth::kNo;
    } else if (in_.Take(";;")) {
      Patterns();
    } else if (in_.Peek() == '\n') {
      in_.Skip(1);
      HereDocuments();
    } else {
      in_.Skip(1);  // ; | & ( )
    }
  }

  // Text that is a command's input: "<<EOF", up to a line that is EOF.
  void HereDocuments() {
    for (const std::string& end : std::exchange(here_, {})) {
      while (!in_.AtEnd()) {
        const absl::string_view rest = in_.Rest(), line = rest.substr(0, std::min(rest.find('\n'), rest.size()));
        in_.Skip(line.size() + 1);
        if (absl::StripAsciiWhitespace(line) == end) break;
      }
    }
  }

  // ">file", "2>&1", "<<EOF".
  void Redirection() {
    const bool here = absl::StartsWith(in_.Rest(), "<<") && in_.Peek(2) != '<';
    while (absl::StrContains("<>&|-", in_.Peek()) && in_.Peek() != '\0') in_.Skip(1);
    in_.SkipBlanks();
    std::vector<ShellWord> target;
    if (in_.AtWord()) in_.Word(target);
    if (here && !target.empty()) here_.push_back(target[0].text);
  }

  void Comment() {
    const absl::string_view rest = in_.Rest();
    if (absl::StartsWith(rest, "#SBATCH")) {
      in_.Skip(7);
      for (in_.SkipBlanks(); in_.AtWord() && in_.Peek() != '#'; in_.SkipBlanks()) in_.Word(script_.directives);
    }
    in_.SkipLine();
  }

  // Up to a separator, and that, too.
  void Statement() {
    ShellCommand words;
    bool declares = false;
    const bool before = Reads();
    while (!in_.AtEnd()) {
      in_.SkipBlanks();
      const char c = in_.Peek();
      if (c == '#') {
        Comment();
      } else if (c == '<' || c == '>' || (c == '&' && in_.Peek(1) == '>')) {
        Redirection();
      } else if (words.empty() && absl::StartsWith(in_.Rest(), "((")) {
        return Arithmetic();
      } else if (!in_.AtWord()) {
        break;
      } else if (absl::ascii_isdigit(static_cast<unsigned char>(c)) && (in_.Peek(1) == '>' || in_.Peek(1) == '<')) {
        in_.Skip(1);
      } else if ((words.empty() || declares) && Assignment()) {
        continue;
      } else if (words.empty() && Keyword()) {
        return;
      } else if (words.empty() && IsOneOf(in_.Bare(), {"export", "local", "declare", "readonly", "typeset"})) {
        in_.Skip(in_.Bare().size());
        declares = true;
      } else {
        in_.Word(words);
        if (words.size() == 1 && absl::StartsWith(in_.Rest(), "()")) in_.Skip(2), words.clear();  // a function
      }
    }
    if (!declares && before) Done(std::move(words));
    if (!in_.AtEnd()) Separator();
  }

  void Done(ShellCommand words) {
    const bool condition = !frames_.empty() && frames_.back().condition;
    if (!words.empty()) last_ = condition ? Truth::kUnknown : Truth::kYes;
    if (words.empty()) return;
    if (words[0].text == "source" || words[0].text == ".") {
      Note(words[0].line, absl::StrCat(words.size() > 1 ? words[1].text : "a file", " is not read"));
    }
    if (IsOneOf(words[0].text, {"echo", "printf", "cat", "set", "shift", "exit", "cd", "source", ".", "unset"})) return;
    if (words[0].text == "true" || words[0].text == "false") {
      last_ = words[0].text == "true" ? Truth::kYes : Truth::kNo;
      return;
    }
    count_ += words.size();
    if (count_ > kMostWords) return in_.Fail("more words than a script has", absl::StrCat(kMostWords));
    script_.commands.push_back(std::move(words));
  }

  // "NAME=value", "NAME+=value", "NAME=(words)".
  bool Assignment() {
    const std::string name(AssignedName(in_.Rest()));
    if (name.empty()) return false;
    in_.Skip(name.size());
    const bool append = in_.Take("+");
    in_.Skip(1);
    const bool reads = Reads(), array = in_.Take("(");
    const int64_t line = in_.line();
    std::vector<ShellWord> words;
    if (array) {
      while (!in_.AtEnd() && !in_.Take(")")) {
        in_.SkipBlanks();
        if (in_.Peek() == '#') {
          in_.SkipLine();
        } else if (in_.AtWord()) {
          in_.Word(words);
        } else if (in_.Peek() != ')') {
          in_.Skip(1);
        }
      }
    } else {
      words.push_back({in_.AtWord() ? in_.OneWord() : "", line});
    }
    count_ += words.size();
    if (count_ > kMostWords) in_.Fail("more words than a script has", absl::StrCat(kMostWords));
    if (reads && in_.status().ok()) variables_.Set(name, std::move(words), append, array);
    return true;
  }

  // Words that say what is read. Whether one stood here, which then is done with.
  bool Keyword() {
    const std::string word(in_.Bare());
    if (IsOneOf(word, {"{", "}", "!", "time", "function"})) {
      in_.Skip(word.size());
      negated_ = word == "!" ? !negated_ : negated_;
      return true;
    }
    if (word == "[[" || word == "[") return Condition(word), true;
    if (word == "if" || word == "while" || word == "until" || word == "for" || word == "case") {
      in_.Skip(word.size());
      Open(word);
      return true;
    }
    if (!IsOneOf(word, {"then", "elif", "else", "fi", "do", "done", "esac"})) return false;
    in_.Skip(word.size());
    if (frames_.empty()) return in_.Fail(absl::StrCat("\"", word, "\""), "\"if\", \"case\" or a loop before it"), true;
    if (word == "fi" || word == "done" || word == "esac") {
      frames_.pop_back();
      skips_ = false;
      last_ = Truth::kYes;
      return true;
    }
    Branch(word);
    return true;
  }

  void Open(absl::string_view word) {
    if (frames_.size() >= static_cast<size_t>(kMostNesting))
      return in_.Fail("commands within commands", absl::StrCat(kMostNesting, " at most"));
    Frame frame;
    frame.outer = frame.reads = Reads();
    frame.line = in_.line();
    frame.kind = word == "if" ? Frame::Kind::kIf : word == "case" ? Frame::Kind::kCase : Frame::Kind::kLoop;
    frame.condition = frame.kind == Frame::Kind::kIf || word == "while" || word == "until";
    in_.SkipBlanks();
    if (word == "case") {
      frame.value = in_.AtWord() ? in_.OneWord() : "";
      while (!in_.AtEnd() && in_.Bare() != "in") in_.Skip(1);
      in_.Skip(2);
      frames_.push_back(std::move(frame));
      return Patterns();
    }
    if (word == "for") {
      const std::string name(in_.Bare());
      in_.Skip(name.size());
      in_.SkipBlanks();
      std::vector<ShellWord> turns;
      if (in_.Bare() == "in") {
        in_.Skip(2);
        for (in_.SkipBlanks(); in_.AtWord(); in_.SkipBlanks()) in_.Word(turns);
      }
      if (frame.reads && turns.size() > 1) Note(frame.line, "of a loop its first turn is read");
      if (frame.reads && !turns.empty() && !name.empty()) variables_.Set(name, {turns[0]}, false, false);
      frame.done = true;
    }
    frames_.push_back(std::move(frame));
    last_ = Truth::kUnknown;
  }

  // then, elif, else, do: the frame is there.
  void Branch(absl::string_view word) {
    Frame& frame = frames_.back();
    skips_ = false;
    if (word == "then") {
      if (frame.outer && !frame.done && last_ == Truth::kUnknown) {
        Note(frame.line, "a condition that cannot be told is taken not to hold");
      }
      frame.reads = frame.outer && !frame.done && last_ == Truth::kYes;
      frame.done = frame.done || frame.reads;
      frame.condition = false;
    } else if (word == "do") {
      frame.reads = frame.outer && frame.done;  // a loop over words, of which the first was taken
      frame.condition = false;
    } else {
      frame.reads = frame.outer && !frame.done;
      frame.condition = word == "elif";
      frame.line = in_.line();
      if (word == "else") frame.done = true;
      last_ = Truth::kUnknown;
    }
  }

  // Behind "in" and ";;" of a case: "a|b*)", whether its branch is read.
  void Patterns() {
    if (frames_.empty() || frames_.back().kind != Frame::Kind::kCase) return;
    bool matches = false;
    while (!in_.AtEnd()) {
      in_.SkipBlanks();
      if (in_.Bare() == "esac") return;
      if (in_.Take(")")) break;
      if (in_.Peek() == '#') {
        in_.SkipLine();
      } else if (in_.AtWord()) {
        const std::string pattern = in_.OneWord();
        matches = matches || MatchesPattern(frames_.back().value, pattern);
      } else {
        in_.Skip(1);  // | ( and ends of lines
      }
    }
    Frame& frame = frames_.back();
    frame.reads = frame.outer && !frame.done && matches;
    frame.done = frame.done || frame.reads;
  }

  void Decide(Truth truth) {
    if (Reads()) last_ = std::exchange(negated_, false) ? Not(truth) : truth;
  }

  // "[[ ... ]]" or "[ ... ]".
  void Condition(absl::string_view open) {
    const std::string end = open == "[[" ? "]]" : "]";
    in_.Skip(open.size());
    in_.set_unset_is_empty(true);
    std::vector<TestToken> tokens;
    while (!in_.AtEnd()) {
      in_.SkipBlanks();
      if (in_.Bare() == end) break;
      if (in_.AtWord()) {
        std::vector<ShellWord> fields;
        bool quoted = false;
        in_.Word(fields, &quoted);
        for (ShellWord& field : fields) tokens.push_back({std::move(field.text), quoted});
        if (fields.empty()) tokens.push_back({"", true});
      } else if (in_.Peek() == '\n' && open == "[") {
        break;
      } else {
        const bool two = absl::StartsWith(in_.Rest(), "&&") || absl::StartsWith(in_.Rest(), "||");
        if (in_.Peek() != '\n') tokens.push_back({std::string(in_.Rest().substr(0, two ? 2 : 1))});
        in_.Skip(two ? 2 : 1);
      }
    }
    in_.set_unset_is_empty(false);
    if (in_.Bare() == end) in_.Skip(end.size());
    Decide(EvaluateTest(tokens, open == "[["));
  }

  void Arithmetic() {
    const absl::string_view rest = in_.Rest();
    const size_t end = rest.find("))");
    if (end == absl::string_view::npos) return in_.Fail("\"((\" that never ends", "\"))\"");
    const std::optional<int64_t> value =
        EvaluateArithmetic(rest.substr(2, end - 2), [this](absl::string_view name) { return variables_.Text(name); });
    in_.Skip(end + 2);
    Decide(!value.has_value() ? Truth::kUnknown : *value != 0 ? Truth::kYes : Truth::kNo);
  }

  ShellVariables variables_;
  ShellReader in_;
  ShellScript script_;
  std::vector<Frame> frames_;
  std::vector<std::string> here_;
  Truth last_ = Truth::kYes;  // of the statement before
  bool skips_ = false;        // the statement, for what && or || said
  bool negated_ = false;      // the next condition
  size_t count_ = 0;          // words in variables and commands
};

}  // namespace

absl::StatusOr<ShellScript> ReadShellScript(absl::string_view text, absl::string_view file_name,
                                            const std::map<std::string, std::string>& given) {
  if (text.size() > kMostScriptBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ":1: found ", text.size(), " bytes, wanted at most ", kMostScriptBytes));
  }
  return Interpreter(text, file_name, given).Run();
}

bool IsUnknown(absl::string_view word) { return absl::StrContains(word, "${") || absl::StrContains(word, "$("); }

}  // namespace meshwright
