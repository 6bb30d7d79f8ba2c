// The frame of every tool: help, flags, where relative paths begin, and exit codes.
//
//   int main(int argc, char** argv) { return meshwright::RunCommand(kCommand, Plan, argc, argv); }
//
// Results go to standard output, everything else to standard error. There is no colour.
//
// Thread safety: called once, from main.
#ifndef MESHWRIGHT_TOOLS_COMMAND_H_
#define MESHWRIGHT_TOOLS_COMMAND_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/flags.h"

namespace meshwright {

struct Command {
  std::string name;       // "plan"
  std::string summary;    // one sentence
  std::string arguments;  // "MODEL.yaml"
  size_t num_arguments = 1;
  bool more_arguments = false;       // that many, or more
  std::vector<std::string> example;  // "TOOL ARGUMENTS", each works after those before it, in a fresh checkout
  std::vector<FlagSpec> flags;
};

// Relative paths begin where the user stands, under `bazel run` too. `--help` (also -h, help) prints the help and gives
// 0. A command's error is printed as "plan: <message>" and gives ExitCodeOf it. What is thrown is our bug.
int RunCommand(const Command& command, const std::function<absl::Status(const Flags&)>& run, int argc, char** argv);

std::string Help(const Command& command);

// To standard output, where results go; and one line each to standard error, where notices go.
void Print(absl::string_view text);
void PrintNotices(const std::vector<std::string>& notices);

// Progress of a long computation, on standard error: a line that is overwritten on a terminal, else one line when it
// has taken two seconds, whether it has come to an Update by then or not. Nothing in a short one.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void Update(int64_t done, int64_t total);

 private:
  void Watch();

  const std::string what_;
  const bool terminal_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  int64_t done_ = 0, total_ = 0;  // 0 of 0: nobody has said yet
  std::thread watch_;             // shows it
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_COMMAND_H_
