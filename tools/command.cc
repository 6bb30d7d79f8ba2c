#include "tools/command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

// `bazel run` starts a program in its own folder and says where the user stood.
void GoWhereTheUserStands() {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder != nullptr && ::chdir(folder) != 0) std::fprintf(stderr, "cannot go to the folder %s\n", folder);
}

bool WantsHelp(absl::Span<const std::string> args) {
  for (const std::string& arg : args) {
    if (arg == "--") return false;
    if (arg == "--help" || arg == "-h" || arg == "-help") return true;
  }
  return args.size() == 1 && args[0] == "help";
}

absl::Status RunWith(const Command& command, const std::function<absl::Status(const Flags&)>& run,
                     absl::Span<const std::string> args) {
  const absl::StatusOr<Flags> flags = Flags::Parse(command.flags, args);
  if (!flags.ok()) return flags.status();
  const size_t found = flags->arguments().size();
  if (found < command.num_arguments || (found > command.num_arguments && !command.more_arguments)) {
    return WithExit(ExitCode::kUsage,
                    absl::InvalidArgumentError(absl::StrCat(
                        "found ", found, found == 1 ? " argument" : " arguments", ", wanted ",
                        command.arguments.empty() ? "none" : command.arguments, "; --help has an example")));
  }
  try {
    return run(*flags);
  } catch (const std::exception& e) {
    return WithExit(ExitCode::kBug, absl::InternalError(absl::StrCat("a bug of Meshwright: ", e.what())));
  }
}

// What is longer than the stream's buffer is written at once, and leaves fflush nothing to fail at.
bool WroteAll() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace

std::string Help(const Command& command) {
  std::string help = absl::StrCat(command.summary, "\n\n");
  for (const std::string& line : command.example) {
    const size_t space = line.find(' ');
    absl::StrAppend(&help, "  tools/bazel run //tools:", line.substr(0, space), " --", line.substr(space), "\n");
  }
  const std::string arguments = absl::StrCat(command.arguments.empty() ? "" : " ", command.arguments);
  const bool flags_first = absl::StartsWith(command.arguments, "--");  // what is behind two dashes is no flag
  absl::StrAppend(&help, "\nUsage: ", command.name, flags_first ? " [flags]" : arguments,
                  flags_first ? arguments : " [flags]", "\n\n", HelpFor(command.flags));
  absl::StrAppend(&help,
                  "\nExit codes: 0 done, 2 usage, 3 bad input, 4 nothing fits, 5 run failed,\n"
                  "6 a file cannot be read or written, 70 a bug of ours.\n");
  return help;
}

void Print(absl::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void PrintNotices(const std::vector<std::string>& notices) {
  for (const std::string& notice : notices) std::fprintf(stderr, "note: %s\n", notice.c_str());
}

int RunCommand(const Command& command, const std::function<absl::Status(const Flags&)>& run, int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  absl::Status status;
  if (WantsHelp(args)) {
    Print(Help(command));
  } else {
    GoWhereTheUserStands();
    status = RunWith(command, run, args);
  }
  if (!WroteAll() && status.ok()) {
    status = WithExit(ExitCode::kIo, absl::UnavailableError("standard output cannot be written"));
  }
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", command.name.c_str(), std::string(status.message()).c_str());
  return static_cast<int>(ExitCodeOf(status));
}

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1), watch_([this] { Watch(); }) {}

Progress::~Progress() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  watch_.join();
}

void Progress::Update(int64_t done, int64_t total) {
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = done;
  total_ = total;
}

void Progress::Watch() {
  using std::chrono::milliseconds;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto over = [&] { return is_over_; };
  if (over_.wait_for(lock, milliseconds(terminal_ ? 300 : 2000), over)) return;
  do {
    const std::string count = total_ > 0 ? absl::StrFormat(": %d of %d", done_, total_) : "";
    absl::FPrintF(stderr, terminal_ ? "\r%s%s\033[K" : "%s%s ...\n", what_, count);
    std::fflush(stderr);
  } while (terminal_ && !over_.wait_for(lock, milliseconds(100), over));
  if (terminal_) std::fputs("\r\033[K", stderr);
}

}  // namespace meshwright
