// The knobs strategy_ckpt_load_file, strategy_ckpt_save_file and group_ckpt_save_file (S16.1 to S16.4), and the flags
// of the same names, which count instead.
//
// A folder stands for the file strategy.json (groups.json) in it; folders that do not exist are made. Names ending in
// ".pb" are written in the binary form, all others as JSON; either form is read, whatever the name. Of a pipeline each
// stage has its own file: "_stage0", "_stage1", ... stands before the name's ending.
//
// Thread safety: functions may run at the same time on different files.
#ifndef MESHWRIGHT_TOOLS_STRATEGY_FILES_H_
#define MESHWRIGHT_TOOLS_STRATEGY_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/program.h"
#include "ir/strategy.h"
#include "tools/flags.h"
#include "tools/session.h"

namespace meshwright {

const std::vector<FlagSpec>& StrategyFileFlags();

// To be called before the search: operators without a strategy of their own take that of the file. A decoder's files
// say how many stages it has and which degrees of parallelism; the rest is searched as before. E-VALUE where a file is
// missing or malformed, E-LAYOUT, at the place of the operator, where it does not fit.
absl::Status LoadStrategies(const Flags& flags, Session& session);

// To be called when a strategy is chosen; `program` is what it becomes.
absl::Status SaveStrategies(const Flags& flags, const Session& session, const Strategy& strategy,
                            const Program& program);
// Whether it could write them, and none of them is one of `inputs`, of `outputs` or what LoadStrategies reads: to be
// asked before the search for a strategy. Makes their folders.
absl::Status CheckSavesStrategies(const Flags& flags, const Session& session, absl::Span<const std::string> inputs,
                                  absl::Span<const std::string> outputs);
// Whether it would write anything.
bool SavesStrategies(const Flags& flags, const Session& session);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_STRATEGY_FILES_H_
