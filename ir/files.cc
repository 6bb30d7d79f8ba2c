#include "ir/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/temporary_file.h"

namespace meshwright {
namespace {

constexpr char kPayload[] = "meshwright/file";

absl::Status IoError(const std::string& path, absl::string_view what) {
  return FileError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// Messages name the file that was asked for.
absl::Status WriteInPlace(const std::string& path, absl::string_view bytes, const std::string& named) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return IoError(named, "cannot be opened for writing");
  const absl::Status status = WriteOpenFile(file, named, bytes);
  if (::close(file) != 0 && status.ok()) return IoError(named, "cannot be written");
  return status;
}

// Whether a file that is open still has this name.
bool IsNamed(int file, const std::string& path) {
  struct stat open = {}, named = {};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

// The temporary, empty, under this writer's lock; or -1. Who removes an abandoned one of the name may be about to do
// so.
int OpenTemporary(const std::string& path) {
  while (true) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return -1;
    const bool locked = ::flock(file, LOCK_EX) == 0;
    if ((!locked || IsNamed(file, path)) && ::ftruncate(file, 0) == 0) return file;
    const bool failed = !locked || IsNamed(file, path);
    ::close(file);
    if (failed) return -1;
  }
}

// What is written is on the disk, as far as the file system knows such a thing.
bool Sync(int file) { return ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS; }

// So that a crash of the machine does not undo a rename. A folder that cannot be read was written to all the same.
bool SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return true;
  const auto close = absl::MakeCleanup([&] { ::close(file); });
  return Sync(file);
}

}  // namespace

bool IsFileError(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

absl::Status FileError(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

absl::Status WithPrefix(absl::string_view prefix, const absl::Status& status) {
  absl::Status other(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { other.SetPayload(type, payload); });
  return other;
}

absl::StatusOr<std::string> ReadOpenFile(int file, const std::string& path, size_t most) {
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = ::read(file, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return IoError(path, "cannot be read");
    if (size == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(size));
    if (bytes.size() > most) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found more than ", most, " bytes, wanted a smaller file"));
    }
  }
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return IoError(path, "cannot be opened");
  const auto close = absl::MakeCleanup([&] { ::close(file); });
  return ReadOpenFile(file, path, most);
}

absl::Status WriteOpenFile(int file, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError(path, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view bytes) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return WriteInPlace(path, bytes, path);
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  const int file = OpenTemporary(temporary);
  if (file < 0) return IoError(path, "cannot be opened for writing");
  const auto close = absl::MakeCleanup([&] { ::close(file); });
  absl::Status status = WriteOpenFile(file, path, bytes);
  if (status.ok() && (!Sync(file) || std::rename(temporary.c_str(), path.c_str()) != 0)) {
    status = IoError(path, "cannot be written");
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  if (status.ok() && !SyncFolderOf(path)) return IoError(path, "cannot be written");
  return status;
}

absl::string_view TargetOfTemporary(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, ".tmp")) return "";
  const absl::string_view with_pid = name;
  while (!name.empty() && absl::ascii_isdigit(name.back())) name.remove_suffix(1);
  return name.size() < with_pid.size() && absl::ConsumeSuffix(&name, ".") ? name : "";
}

bool RemoveAbandoned(const std::string& temporary) {
  const int file = ::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  const auto close = absl::MakeCleanup([&] { ::close(file); });
  // A writer renames its file under its lock: what has this name under ours is nobody's.
  return ::flock(file, LOCK_EX | LOCK_NB) == 0 && IsNamed(file, temporary) && ::unlink(temporary.c_str()) == 0;
}

absl::Status CreateFolders(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError(absl::StrCat(path, ": the folder cannot be made: ", error.message()));
  return absl::OkStatus();
}

absl::Status CreateFoldersOf(const std::string& path) {
  return CreateFolders(std::filesystem::path(path).parent_path().string());
}

}  // namespace meshwright
