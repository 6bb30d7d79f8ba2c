// Options that a trainer was given on its command line, out of the script that starts it or the log that lists them.
//
// Thread safety: one thread at a time, for options remember who asked for them.
#ifndef MESHWRIGHT_TOOLS_IMPORT_OPTIONS_H_
#define MESHWRIGHT_TOOLS_IMPORT_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/import/hints.h"

namespace meshwright {

class Options {
 public:
  struct Option {
    std::vector<std::string> values;
    int64_t line = 0;
    bool asked_for = false;
  };

  // `resolved`: every option is there with its value, given or not (a log), so that a missing one is off.
  Options(absl::string_view file_name, bool resolved) : file_(file_name), resolved_(resolved) {}

  // Names with dashes, "num-layers"; of several of the same name the last one holds.
  void Add(absl::string_view name, std::vector<std::string> values, int64_t line);
  bool resolved() const { return resolved_; }

  bool Has(absl::string_view name) const { return Find(name) != nullptr; }
  // Their first value; `fallback` where the option is missing. Errors: kInvalidArgument as `file:line: --name: found
  // X, wanted Y`, with advice where the script does not say the value itself.
  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t fallback, int64_t min = 1) const;
  absl::StatusOr<std::optional<int64_t>> IntIfGiven(absl::string_view name, int64_t min) const;
  absl::StatusOr<double> Number(absl::string_view name, double fallback) const;
  // The same, for what a plan does not depend on: the fallback where the script does not say it itself.
  absl::StatusOr<double> NumberIfKnown(absl::string_view name, double fallback) const;
  absl::StatusOr<std::string> Text(absl::string_view name, absl::string_view fallback) const;
  std::vector<std::string> Values(absl::string_view name) const;

  absl::Status Error(absl::string_view name, absl::string_view found, absl::string_view wanted) const;
  absl::Status Locate(absl::string_view name, const absl::Status& status) const;  // an error of something else
  // In the order of their names: what nobody asked for.
  std::vector<std::string> NotAskedFor() const;

  std::string program;  // "pretrain_gpt.py"; "" where no command starts one
  std::vector<std::string> notes;
  LaunchSize launch;

 private:
  const Option* Find(absl::string_view name) const;
  std::string Spelled(absl::string_view name) const;

  std::string file_;
  bool resolved_;
  mutable std::map<std::string, Option> options_;
};

// Whether a text is a script that starts a trainer with any of `wanted`, its options without dashes in front; or a log
// that lists them, "num_layers ............ 32".
bool LooksLikeScript(absl::string_view text, const std::vector<absl::string_view>& wanted);
bool LooksLikeArguments(absl::string_view text, const std::vector<absl::string_view>& wanted);

// Of the last command with any of `wanted`; if there is none, of all variables with options in the order of the script.
absl::StatusOr<Options> OptionsOfScript(absl::string_view text, absl::string_view file_name,
                                        const std::vector<absl::string_view>& wanted,
                                        const std::map<std::string, std::string>& given);

// Megatron-LM prints "name ..... value" for each of its arguments when it starts, ranks or dates in front or not, and
// then " > padded vocab (size: 50257) with .." (megatron/training/arguments.py, core/tokenizers). Options that are off
// are missing, those that are on have no value; words of the tokenizer are kTokenizerWords.
inline constexpr absl::string_view kTokenizerWords = "words-of-the-tokenizer";
absl::StatusOr<Options> OptionsOfLog(absl::string_view text, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_OPTIONS_H_
