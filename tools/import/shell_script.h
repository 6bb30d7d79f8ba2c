// Reads a shell script for the command that starts a trainer. Nothing is run: variables, arrays, arithmetic and simple
// conditions are worked out as bash would, and all else is passed over.
//
//   TP=8
//   MODEL_ARGS=(
//     --num-layers 80 # of Llama
//     --seq-length ${SEQ:-8192}
//   )
//   if [[ "$DTYPE" == fp8 ]]; then MODEL_ARGS+=(--fp8-format hybrid); fi
//   torchrun --nproc-per-node 8 pretrain_gpt.py "${MODEL_ARGS[@]}" --tensor-model-parallel-size $TP
//
// What a script does not say itself (environment, arguments, output of commands) stays in the words as it is written,
// "${NODES}" or "$(nproc)", so that who needs the word can say what is missing. In conditions it is empty, as it is in
// bash where nobody has set it. Of a loop one turn is read, of a function its body where it stands; files that are
// sourced are not read.
//
// Scripts come from strangers: at most kMostScriptBytes, kMostWords words in all variables and commands, and
// kMostNesting of what is nested. Errors: kInvalidArgument as `file:line: found X, wanted Y`. Thread safety: pure.
#ifndef MESHWRIGHT_TOOLS_IMPORT_SHELL_SCRIPT_H_
#define MESHWRIGHT_TOOLS_IMPORT_SHELL_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace meshwright {

inline constexpr size_t kMostScriptBytes = 1 << 20;
inline constexpr size_t kMostWords = 100000, kMostWordBytes = 1 << 16;
inline constexpr int kMostNesting = 64;

struct ShellWord {
  std::string text;
  int64_t line = 0;  // where it stands, or where the value came from that it is part of
};
using ShellCommand = std::vector<ShellWord>;

struct ShellScript {
  std::vector<ShellCommand> commands;                       // that bash would run, in order; built-ins are left out
  std::map<std::string, std::vector<ShellWord>> variables;  // at the end; an array has several words
  std::vector<std::string> order;                           // their names, as they were first set
  std::vector<ShellWord> directives;                        // words of "#SBATCH" lines
  std::vector<std::string> notes;                           // a sentence each: what was taken for granted
};

// `given` are variables that somebody knows; the script's own `NAME=value` does not change them.
absl::StatusOr<ShellScript> ReadShellScript(absl::string_view text, absl::string_view file_name,
                                            const std::map<std::string, std::string>& given = {});

// Whether a value stands in the word that the script does not say: "${NODES}", "$(nproc)".
bool IsUnknown(absl::string_view word);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_SHELL_SCRIPT_H_
