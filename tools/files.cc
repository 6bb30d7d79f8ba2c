#include "tools/files.h"

#include <unistd.h>

#include <utility>

#include "ir/files.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

absl::Status Marked(absl::Status status) {
  return IsFileError(status) ? WithExit(ExitCode::kIo, std::move(status)) : status;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  absl::StatusOr<std::string> text = path == "-" ? ReadOpenFile(STDIN_FILENO, path, most) : ReadWholeFile(path, most);
  if (!text.ok()) return Marked(text.status());
  return text;
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  return Marked(path == "-" ? WriteOpenFile(STDOUT_FILENO, path, text) : WriteWholeFile(path, text));
}

absl::Status WriteFileInNewFolder(const std::string& path, absl::string_view text) {
  if (absl::Status made = CreateFoldersOf(path); !made.ok()) return Marked(std::move(made));
  return WriteFile(path, text);
}

}  // namespace meshwright
