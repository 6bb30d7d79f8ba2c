// Whole files, read and written so that whoever looks sees the old content or the new one.
//
// Errors: kUnavailable, with the path and the system's reason; IsFileError knows them. Thread safety: functions may run
// at the same time on different paths.
#ifndef MESHWRIGHT_IR_FILES_H_
#define MESHWRIGHT_IR_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace meshwright {

// Whether the error is one of a file that cannot be read or written, from here or from FileError.
bool IsFileError(const absl::Status& status);
absl::Status FileError(absl::string_view message);
// The same error with `prefix` in front of its message.
absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status);

// Up to the end of an open file. More than `most` bytes are kInvalidArgument. `path` is for messages.
absl::StatusOr<std::string> ReadOpenFile(int file, const std::string& path, size_t most);
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most);

absl::Status WriteOpenFile(int file, const std::string& path, absl::string_view bytes);
// Writes a file beside `path` and renames it. Where `path` is a link, a pipe or a device it is written in place.
absl::Status WriteWholeFile(const std::string& path, absl::string_view bytes);

// The folder and those above it that do not exist. "" is the current one.
absl::Status CreateFolders(const std::string& path);
// Those that a file at `path` lies in.
absl::Status CreateFoldersOf(const std::string& path);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_FILES_H_
