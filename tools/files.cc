#include "tools/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/files.h"
#include "ir/status.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

absl::Status Marked(absl::Status status) {
  return IsFileError(status) ? WithExit(ExitCode::kIo, std::move(status)) : status;
}

absl::Status CannotBeWritten(const std::string& path, absl::string_view found, absl::string_view what_to_do) {
  return Marked(FileError(absl::StrCat(path, ": cannot be written: found ", found, "; ", what_to_do)));
}

// Of files whose text would be lost: /dev/null and a pipe have none.
bool IsSameFile(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;  // of a file that is not there yet
  if (std::filesystem::is_other(a, error)) return false;
  return std::filesystem::path(a).lexically_normal() == std::filesystem::path(b).lexically_normal() ||
         std::filesystem::equivalent(a, b, error);
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  absl::StatusOr<std::string> text = path == "-" ? ReadOpenFile(STDIN_FILENO, path, most) : ReadWholeFile(path, most);
  if (!text.ok()) return Marked(text.status());
  return text;
}

// A file is written beside the one that is there, so that it is the folder that must let one be made: by trying, for
// whoever may do all may still not write to a file system that can only be read.
absl::Status CheckWritable(const std::string& path) {
  constexpr absl::string_view kElsewhere = "name a file in a folder that you can write to";
  if (path.empty() || path == "-") return absl::OkStatus();
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return CannotBeWritten(path, "a folder, wanted a file",
                             absl::StrCat("name a file in it, such as ", absl::StripSuffix(path, "/"), "/out"));
    }
    if (!S_ISREG(info.st_mode)) return absl::OkStatus();  // a pipe or a device
  }
  const std::string parent = std::filesystem::path(path).parent_path().string(), folder = parent.empty() ? "." : parent;
  if (::stat(folder.c_str(), &info) != 0) {
    return CannotBeWritten(path, absl::StrCat("no folder ", folder), absl::StrCat("mkdir -p ", folder, " makes it"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return CannotBeWritten(path, absl::StrCat(folder, ", which is a file, wanted a folder"), kElsewhere);
  }
  const std::string trial = absl::StrCat(folder, "/.", ::getpid(), ".tmp");
  const int file = ::open(trial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) {
    return CannotBeWritten(path, absl::StrCat("that no file can be made in ", folder, " (", std::strerror(errno), ")"),
                           kElsewhere);
  }
  ::close(file);
  ::unlink(trial.c_str());
  return absl::OkStatus();
}

absl::Status CheckWritableInNewFolder(const std::string& path) {
  if (path.empty() || path == "-") return absl::OkStatus();
  if (absl::Status made = CreateFoldersOf(path); !made.ok()) return Marked(std::move(made));
  return CheckWritable(path);
}

absl::Status CheckOutputs(absl::Span<const std::string> outputs, absl::Span<const std::string> inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckWritable(outputs[i]));
    const auto is_same = [&](const std::string& other) { return IsSameFile(outputs[i], other); };
    if (outputs[i] != "-" && std::any_of(inputs.begin(), inputs.end(), is_same)) {
      return CannotBeWritten(outputs[i], "a file that this command reads", "name another");
    }
    if (std::any_of(outputs.begin(), outputs.begin() + static_cast<ptrdiff_t>(i), is_same)) {
      return CannotBeWritten(outputs[i], "two outputs that go there", "name another for one of them");
    }
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  return Marked(path == "-" ? WriteOpenFile(STDOUT_FILENO, "standard output", text) : WriteWholeFile(path, text));
}

absl::Status WriteFileInNewFolder(const std::string& path, absl::string_view text) {
  if (absl::Status made = CreateFoldersOf(path); !made.ok()) return Marked(std::move(made));
  return WriteFile(path, text);
}

}  // namespace meshwright
