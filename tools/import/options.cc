#include "tools/import/options.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"
#include "tools/import/shell_script.h"

namespace meshwright {
namespace {

std::string WithDashes(absl::string_view name) { return absl::StrReplaceAll(name, {{"_", "-"}}); }

// "--num-layers" or "--num_layers=32" -> "num-layers".
std::string NameOf(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "--") || word.empty()) return "";
  return WithDashes(word.substr(0, word.find('=')));
}

bool IsWanted(absl::string_view name, const std::vector<absl::string_view>& wanted) {
  return absl::c_linear_search(wanted, name);
}

void AddWords(const ShellCommand& words, size_t from, Options& options) {
  for (size_t i = from; i < words.size(); ++i) {
    const std::string name = NameOf(words[i].text);
    if (name.empty()) continue;
    const int64_t line = words[i].line;
    std::vector<std::string> values;
    if (const size_t equals = words[i].text.find('='); equals != std::string::npos) {
      values.push_back(words[i].text.substr(equals + 1));
    }
    for (; i + 1 < words.size() && !absl::StartsWith(words[i + 1].text, "--"); ++i) values.push_back(words[i + 1].text);
    options.Add(name, std::move(values), line);
  }
}

// Of a word of several, as "bash -c" takes them.
ShellCommand Flat(const ShellCommand& command, const std::vector<absl::string_view>& wanted) {
  ShellCommand words;
  for (const ShellWord& word : command) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(word.text, absl::ByAnyChar(" \t\n\r\\"), absl::SkipEmpty());
    const bool several = parts.size() > 1 &&
                         absl::c_any_of(parts, [&](absl::string_view part) { return IsWanted(NameOf(part), wanted); });
    if (!several) {
      words.push_back(word);
      continue;
    }
    for (const absl::string_view part : parts) words.push_back({std::string(part), word.line});
  }
  return words;
}

// Sizes by the names that launchers have for them. A word that is no number says nothing.
void ReadLaunch(const ShellCommand& words, size_t end, LaunchSize& launch) {
  struct Row {
    absl::string_view name;
    std::optional<int64_t> LaunchSize::*size;
  };
  constexpr Row kRows[] = {
      {"--nnodes", &LaunchSize::nodes},
      {"--nodes", &LaunchSize::nodes},
      {"-N", &LaunchSize::nodes},
      {"--nproc-per-node", &LaunchSize::per_node},
      {"--ntasks-per-node", &LaunchSize::per_node},
      {"--gpus-per-node", &LaunchSize::per_node},
      {"--num-nodes", &LaunchSize::nodes},
      {"--num-gpus", &LaunchSize::per_node},
      {"-np", &LaunchSize::ranks},
      {"--ntasks", &LaunchSize::ranks},
      {"-n", &LaunchSize::ranks},
  };
  for (size_t i = 0; i < std::min(end, words.size()); ++i) {
    const absl::string_view word = words[i].text;
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = absl::StartsWith(word, "--") ? absl::StrCat("--", NameOf(word)) : std::string(word);
    const absl::string_view value = equals < word.size()   ? word.substr(equals + 1)
                                    : i + 1 < words.size() ? absl::string_view(words[i + 1].text)
                                                           : "";
    int64_t number = 0;
    // "1:4" are bounds of an elastic job, "h100:8" is a kind and a number.
    const size_t colon = value.rfind(':');
    if (!absl::SimpleAtoi(value.substr(colon == absl::string_view::npos ? 0 : colon + 1), &number) || number < 1 ||
        number > kMostOfStep) {
      continue;
    }
    for (const Row& row : kRows) {
      if (row.name == name) launch.*row.size = number;
    }
  }
}

// Where what the launcher was told ends: the trainer's own file.
size_t EndOfLauncher(const ShellCommand& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (absl::EndsWith(words[i].text, ".py")) return i + 1;
  }
  return 0;
}

// "num_layers ...... 32", with anything in front of it: its name and value. Dots stand between them.
bool IsArgument(absl::string_view line, absl::string_view& name, absl::string_view& value) {
  const size_t dots = line.find(" ...");
  if (dots == absl::string_view::npos || dots == 0) return false;
  const size_t end = std::min(line.find_first_not_of('.', dots + 1), line.size());
  if (end < line.size() && line[end] != ' ') return false;
  name = line.substr(0, dots);
  name.remove_prefix(name.rfind(' ') == absl::string_view::npos ? 0 : name.rfind(' ') + 1);
  value = absl::StripAsciiWhitespace(line.substr(end));
  return !name.empty() &&
         absl::c_all_of(name, [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

}  // namespace

void Options::Add(absl::string_view name, std::vector<std::string> values, int64_t line) {
  options_[WithDashes(name)] = {std::move(values), line, false};
}

const Options::Option* Options::Find(absl::string_view name) const {
  const auto found = options_.find(std::string(name));
  if (found == options_.end()) return nullptr;
  found->second.asked_for = true;
  return &found->second;
}

// As the file writes it.
std::string Options::Spelled(absl::string_view name) const {
  return resolved_ ? absl::StrReplaceAll(name, {{"-", "_"}}) : absl::StrCat("--", name);
}

absl::Status Options::Error(absl::string_view name, absl::string_view found, absl::string_view wanted) const {
  const Option* const option = Find(name);
  const std::string place = option == nullptr ? file_ : absl::StrCat(file_, ":", option->line);
  std::string advice;
  if (IsUnknown(found)) {
    advice = "; the script does not say it itself: give what stands there as --set=NAME=VALUE, or put the number there";
  }
  return absl::InvalidArgumentError(
      absl::StrCat(place, ": ", Spelled(name), ": found ", found, ", wanted ", wanted, advice));
}

absl::Status Options::Locate(absl::string_view name, const absl::Status& status) const {
  const Option* const option = Find(name);
  const std::string place = option == nullptr ? file_ : absl::StrCat(file_, ":", option->line);
  return absl::Status(status.code(), absl::StrCat(place, ": ", Spelled(name), ": ", status.message()));
}

absl::StatusOr<std::optional<int64_t>> Options::IntIfGiven(absl::string_view name, int64_t min) const {
  const Option* const option = Find(name);
  if (option == nullptr) return std::nullopt;
  const std::string text = option->values.empty() ? "nothing" : option->values[0];
  int64_t value = 0;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!absl::SimpleAtoi(text, &value) || value < min) return Error(name, text, absl::StrCat("an integer from ", min));
  if (value > kMost) return Error(name, text, absl::StrCat("at most ", kMost));
  return value;
}

absl::StatusOr<int64_t> Options::Int(absl::string_view name, int64_t fallback, int64_t min) const {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, IntIfGiven(name, min));
  return value.value_or(fallback);
}

absl::StatusOr<double> Options::Number(absl::string_view name, double fallback) const {
  const Option* const option = Find(name);
  if (option == nullptr) return fallback;
  const std::string text = option->values.empty() ? "nothing" : option->values[0];
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value < 1e30)) return Error(name, text, "a number from 0");
  return value;
}

absl::StatusOr<double> Options::NumberIfKnown(absl::string_view name, double fallback) const {
  const Option* const option = Find(name);
  if (option != nullptr && !option->values.empty() && IsUnknown(option->values[0])) return fallback;
  return Number(name, fallback);
}

absl::StatusOr<std::string> Options::Text(absl::string_view name, absl::string_view fallback) const {
  const Option* const option = Find(name);
  if (option == nullptr) return std::string(fallback);
  if (option->values.empty()) return Error(name, "nothing", "a value");
  if (IsUnknown(option->values[0])) return Error(name, option->values[0], "a value");
  return option->values[0];
}

std::vector<std::string> Options::Values(absl::string_view name) const {
  const Option* const option = Find(name);
  return option == nullptr ? std::vector<std::string>() : option->values;
}

std::vector<std::string> Options::NotAskedFor() const {
  std::vector<std::string> names;
  for (const auto& [name, option] : options_) {
    if (!option.asked_for) names.push_back(name);
  }
  return names;
}

bool LooksLikeScript(absl::string_view text, const std::vector<absl::string_view>& wanted) {
  return absl::c_any_of(wanted, [&](absl::string_view name) {
    return absl::StrContains(text, absl::StrCat("--", name)) ||
           absl::StrContains(text, absl::StrCat("--", absl::StrReplaceAll(name, {{"-", "_"}})));
  });
}

bool LooksLikeArguments(absl::string_view text, const std::vector<absl::string_view>& wanted) {
  return absl::c_any_of(wanted, [&](absl::string_view name) {
    return absl::StrContains(text, absl::StrCat(absl::StrReplaceAll(name, {{"-", "_"}}), " ..."));
  });
}

absl::StatusOr<Options> OptionsOfScript(absl::string_view text, absl::string_view file_name,
                                        const std::vector<absl::string_view>& wanted,
                                        const std::map<std::string, std::string>& given) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const ShellScript script, ReadShellScript(text, file_name, given));
  Options options(file_name, false);
  options.notes = script.notes;
  ReadLaunch(script.directives, script.directives.size(), options.launch);
  const auto starts = [&](const ShellCommand& words) {
    return absl::c_any_of(words, [&](const ShellWord& word) { return IsWanted(NameOf(word.text), wanted); });
  };
  ShellCommand last;
  for (const ShellCommand& command : script.commands) {
    const ShellCommand words = Flat(command, wanted);
    if (starts(words)) last = words;
  }
  if (last.empty()) {
    for (const std::string& name : script.order) {
      const ShellCommand words = Flat(script.variables.at(name), wanted);
      if (absl::c_any_of(words, [](const ShellWord& word) { return absl::StartsWith(word.text, "--"); })) {
        last.insert(last.end(), words.begin(), words.end());
      }
    }
    options.notes.push_back("no command starts the trainer here; all options that variables hold are read");
  }
  const size_t end = EndOfLauncher(last);
  if (end > 0) options.program = last[end - 1].text.substr(last[end - 1].text.rfind('/') + 1);
  ReadLaunch(last, end, options.launch);
  AddWords(last, end, options);
  return options;
}

absl::StatusOr<Options> OptionsOfLog(absl::string_view text, absl::string_view file_name) {
  Options options(file_name, true);
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::string_view name, value;
    constexpr absl::string_view kPadded = "padded vocab (size: ";
    if (const size_t at = line.find(kPadded); at != absl::string_view::npos) {
      const absl::string_view words = line.substr(at + kPadded.size());
      options.Add(kTokenizerWords, {std::string(words.substr(0, words.find(')')))}, number);
    }
    if (!IsArgument(line, name, value) || value.empty() || value == "None" || value == "False") continue;
    std::vector<std::string> values;
    if (value != "True") values.push_back(std::string(value));
    options.Add(name, std::move(values), number);
  }
  return options;
}

}  // namespace meshwright
