#include "tools/flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ir/files.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

const FlagSpec* FindSpec(const std::vector<FlagSpec>& specs, absl::string_view name) {
  for (const FlagSpec& spec : specs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

absl::Status UsageError(absl::string_view message) {
  return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(message));
}

absl::Status UnknownFlag(const std::vector<FlagSpec>& specs, absl::string_view name) {
  std::vector<absl::string_view> names = {"help"};
  for (const FlagSpec& spec : specs) names.push_back(spec.name);
  absl::string_view nearest = NearestName(name, names);
  for (const FlagSpec& spec : specs) {
    for (const absl::string_view other : absl::StrSplit(spec.others_say, ' ')) {
      if (other == name) nearest = spec.name;
    }
  }
  return UsageError(
      absl::StrCat("--", name, ": there is no such flag; ",
                   nearest.empty() ? "--help lists them" : absl::StrCat("did you mean --", nearest, "?")));
}

}  // namespace

absl::StatusOr<Flags> Flags::Parse(const std::vector<FlagSpec>& specs, absl::Span<const std::string> args) {
  Flags flags;
  bool only_arguments = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (only_arguments || !absl::StartsWith(arg, "-") || arg == "-") {
      flags.arguments_.push_back(arg);
      continue;
    }
    if (arg == "--") {
      only_arguments = true;
      continue;
    }
    if (!absl::StartsWith(arg, "--")) {
      return UsageError(absl::StrCat(arg, ": flags begin with two dashes; --help lists them"));
    }
    const size_t equals = arg.find('=');
    const bool has_value = equals != std::string::npos;
    const std::string name = absl::StrReplaceAll(arg.substr(2, has_value ? equals - 2 : equals), {{"-", "_"}});
    const FlagSpec* spec = FindSpec(specs, name);
    std::string value = has_value ? arg.substr(equals + 1) : "";
    if (spec == nullptr && absl::StartsWith(name, "no") && !has_value) {
      spec = FindSpec(specs, name.substr(2));
      if (spec != nullptr && !spec->value.empty()) spec = nullptr;
      value = "false";
    } else if (spec != nullptr && spec->value.empty()) {
      if (!has_value) value = "true";
      if (value != "true" && value != "false") {
        return UsageError(absl::StrCat("--", name, ": found ", QuoteForMessage(value), ", wanted true or false"));
      }
    } else if (spec != nullptr && !has_value) {
      const bool is_next = i + 1 < args.size() && (!absl::StartsWith(args[i + 1], "--") || args[i + 1] == "--");
      if (is_next) value = args[++i];
    }
    if (spec == nullptr) return UnknownFlag(specs, name);
    if (value.empty() && !(has_value && spec->may_be_empty)) {
      return UsageError(absl::StrCat("--", name, ": found no value, wanted --", name, "=", spec->value));
    }
    flags.values_[spec->name] = std::move(value);
  }
  return flags;
}

std::string Flags::Text(absl::string_view name) const {
  const auto it = values_.find(std::string(name));
  return it == values_.end() ? "" : it->second;
}

std::optional<bool> Flags::Bool(absl::string_view name) const {
  if (!Has(name)) return std::nullopt;
  return True(name);
}

absl::StatusOr<std::optional<int64_t>> Flags::Int(absl::string_view name, int64_t min, int64_t max) const {
  if (!Has(name)) return std::optional<int64_t>();
  const absl::StatusOr<int64_t> value = ParseInt(Text(name), min, max);
  if (!value.ok()) return Wrong(name, value.status());
  return std::optional<int64_t>(*value);
}

absl::StatusOr<int64_t> Flags::IntOr(absl::string_view name, int64_t fallback, int64_t min, int64_t max) const {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Int(name, min, max));
  return value.value_or(fallback);
}

absl::StatusOr<std::optional<size_t>> Flags::Choice(absl::string_view name,
                                                    absl::Span<const absl::string_view> names) const {
  if (!Has(name)) return std::optional<size_t>();
  const std::string text = Text(name);
  const auto it = std::find(names.begin(), names.end(), text);
  if (it == names.end()) return Wrong(name, UnknownName(text, names));
  return std::optional<size_t>(it - names.begin());
}

absl::Status Flags::CheckAlone(absl::Span<const absl::string_view> outputs,
                               absl::Span<const absl::string_view> reports) const {
  for (const absl::string_view output : outputs) {
    for (const absl::string_view report : reports) {
      if (Text(output) != "-" || !Has(report)) continue;
      return Wrong(output,
                   WrongInput("-", "a file", absl::StrCat("standard output would have no room for --", report)));
    }
  }
  return absl::OkStatus();
}

absl::Status Flags::Wrong(absl::string_view name, const absl::Status& status) {
  const std::string message = absl::StrCat("--", name, ": ", status.message());
  if (IsFileError(status)) return WithExit(ExitCode::kIo, FileError(message));
  return UsageError(message);
}

std::string HelpFor(const std::vector<FlagSpec>& specs) {
  constexpr size_t kColumns = 80, kIndent = 30;
  std::string help, section;
  for (const FlagSpec& spec : specs) {
    if (spec.section != section) absl::StrAppend(&help, help.empty() ? "" : "\n", spec.section, ":\n");
    section = spec.section;
    std::string line = absl::StrCat("  --", spec.name, spec.value.empty() ? "" : "=", spec.value);
    if (line.size() + 2 > kIndent) {
      absl::StrAppend(&help, line, "\n");
      line.clear();
    }
    line.resize(kIndent, ' ');
    for (const absl::string_view word : absl::StrSplit(spec.help, ' ', absl::SkipEmpty())) {
      if (line.size() + 1 + word.size() > kColumns) {
        absl::StrAppend(&help, line, "\n");
        line.assign(kIndent, ' ');
      }
      absl::StrAppend(&line, line.size() > kIndent ? " " : "", word);
    }
    absl::StrAppend(&help, line, "\n");
  }
  return help;
}

}  // namespace meshwright
