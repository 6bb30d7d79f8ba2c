// What a command's exit code tells a script, and how an error says which one it is.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_EXIT_CODE_H_
#define MESHWRIGHT_TOOLS_EXIT_CODE_H_

#include "absl/status/status.h"

namespace meshwright {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 2,        // flags or arguments that the command does not have
  kBadInput = 3,     // a file that says something wrong
  kNothingFits = 4,  // the request was understood and cannot be met
  kRunFailed = 5,    // the training run stopped
  kIo = 6,           // a file that cannot be read or written
  kBug = 70,         // ours
};

// The same error, which ends the command with this code.
absl::Status WithExit(ExitCode code, absl::Status status);

// The code of WithExit; else by the error's own: kResourceExhausted is kNothingFits, kInternal, kUnknown and the like
// are kBug, everything else kBadInput.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXIT_CODE_H_
