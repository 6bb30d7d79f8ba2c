#include "tools/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

absl::Status IoError(const std::string& path, absl::string_view what) {
  return WithExit(ExitCode::kIo, absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno))));
}

absl::Status WriteAll(int file, const std::string& path, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError(path, "cannot be written");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, absl::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return IoError(path, "cannot be opened for writing");
  const absl::Status status = WriteAll(file, path, text);
  if (::close(file) != 0 && status.ok()) return IoError(path, "cannot be written");
  return status;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  const bool standard = path == "-";
  const int file = standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return IoError(path, "cannot be opened");
  const auto close = absl::MakeCleanup([&] {
    if (!standard) ::close(file);
  });
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = ::read(file, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return IoError(path, "cannot be read");
    if (size == 0) return text;
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > most) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found more than ", most, " bytes, wanted a smaller file"));
    }
  }
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  if (path == "-") return WriteAll(STDOUT_FILENO, path, text);
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return WriteInPlace(path, text);
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  absl::Status status = WriteInPlace(temporary, text);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) status = IoError(path, "cannot be written");
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

}  // namespace meshwright
