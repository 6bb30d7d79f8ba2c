// The files beside their targets that WriteWholeFile (ir/files.h) writes and then renames: PATH.PID.tmp. Their writer
// holds a lock (flock) on them, which ends with it; one that a killed writer left behind has none.
//
// Thread safety: functions may run at the same time, on the same files too, and beside writers of any process.
#ifndef MESHWRIGHT_IR_TEMPORARY_FILE_H_
#define MESHWRIGHT_IR_TEMPORARY_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace meshwright {

// Whose temporary a file of this name is, or "": "a.ckpt" of "a.ckpt.4711.tmp".
absl::string_view TargetOfTemporary(absl::string_view name);

// Removes a temporary that nobody writes any more; whether it did. Where the file system knows no locks it cannot be
// known, and the file stays.
bool RemoveAbandoned(const std::string& temporary);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_TEMPORARY_FILE_H_
