// run: trains for real. What the programs share that it consists of, whatever plays the ranks (tools/run_main.h).
//
// Thread safety: called once, from main.
#ifndef MESHWRIGHT_TOOLS_RUN_COMMAND_H_
#define MESHWRIGHT_TOOLS_RUN_COMMAND_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/data.h"
#include "executor/runner.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "tools/command.h"

namespace meshwright {

// What carries the ranks.
struct RankCarrier {
  int64_t ranks = 0;            // that there are; 0: as many as are asked for
  int64_t here = 0;             // of them, on this machine; 0: all
  std::optional<int64_t> rank;  // of this process; none where it has all of them
  std::string device = "host";  // of the library: what a model file is planned for
  Bytes memory;                 // of one device; zero: ranks share this machine's
  bool speaks = true;           // this process prints; the others of a job only work, but each prints its own losses
  std::function<void(const std::string&)> print;  // a loss, to this process's output
  std::function<absl::StatusOr<RunResult>(const Program&, const RunOptions&, const DataSource&)> run;
};

Command RunCommandLine();
absl::Status RunTraining(const Flags& flags, const RankCarrier& carrier);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_RUN_COMMAND_H_
