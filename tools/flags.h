// The flags of one command: what there are, what the user gave, and what is said when they do not fit.
//
//   const std::vector<FlagSpec> specs = {{"steps", "N", "how many steps to run"}, {"all_ranks", "", "one line a
//   rank"}}; MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(specs, {"model.yaml", "--steps=3",
//   "--all_ranks"})); flags.arguments();             // {"model.yaml"} flags.Int("steps", 1, 1000);   // 3
//
// `--name=value` and `--name value` are the same; a flag without a value is `--name`, or `--name=true`, `--name=false`,
// `--noname`. A dash may be written for an underscore. Behind `--` everything is an argument; `-` alone is one too. The
// last of several holds.
//
// Errors: kInvalidArgument, marked kUsage (tools/exit_code.h): "--stpes: there is no such flag; did you mean --steps?"
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_TOOLS_FLAGS_H_
#define MESHWRIGHT_TOOLS_FLAGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace meshwright {

struct FlagSpec {
  std::string name;
  std::string value;  // how the value is written in help, "N" or "FILE"; "": the flag is true or false
  std::string help;
  std::string others_say = {};  // what other tools call it: an unknown flag of such a name is told this one
  std::string section = {};     // the heading in help under which it stands, with those of the same one beside it
  bool may_be_empty = false;    // whether --NAME= says something, too
};

class Flags {
 public:
  static absl::StatusOr<Flags> Parse(const std::vector<FlagSpec>& specs, absl::Span<const std::string> args);

  const std::vector<std::string>& arguments() const { return arguments_; }

  bool Has(absl::string_view name) const { return values_.find(std::string(name)) != values_.end(); }
  // "" where the flag was not given.
  std::string Text(absl::string_view name) const;
  bool True(absl::string_view name) const { return Text(name) == "true"; }
  // Nothing where the flag was not given.
  std::optional<bool> Bool(absl::string_view name) const;
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view name, int64_t min, int64_t max) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view name, int64_t fallback, int64_t min, int64_t max) const;
  // One of `names`, as its index.
  absl::StatusOr<std::optional<size_t>> Choice(absl::string_view name, absl::Span<const absl::string_view> names) const;

  // Where one of `outputs` is "-", standard output has that alone: a usage error beside one of `reports`, which would
  // be left out.
  absl::Status CheckAlone(absl::Span<const absl::string_view> outputs,
                          absl::Span<const absl::string_view> reports) const;

  // A usage error about this flag: "--name: <the message>".
  static absl::Status Wrong(absl::string_view name, const absl::Status& status);

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> arguments_;
};

// One or two lines per flag, at most 80 columns wide.
std::string HelpFor(const std::vector<FlagSpec>& specs);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_FLAGS_H_
