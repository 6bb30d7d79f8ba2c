#include "tools/strategy_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "planner/group_file.h"
#include "planner/search/fixed_strategies.h"
#include "planner/strategy_file.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/files.h"

namespace meshwright {
namespace {

constexpr char kLoad[] = "strategy_ckpt_load_file";
constexpr char kSave[] = "strategy_ckpt_save_file";
constexpr char kGroups[] = "group_ckpt_save_file";

std::string PathOf(const Flags& flags, absl::string_view flag, const std::string& knob, absl::string_view usual_name) {
  std::string path = flags.Has(flag) ? flags.Text(flag) : knob;
  if (path.empty()) return path;
  std::error_code error;
  if (absl::EndsWith(path, "/") || std::filesystem::is_directory(path, error)) {
    absl::StrAppend(&path, absl::EndsWith(path, "/") ? "" : "/", usual_name);
  }
  return path;
}

constexpr int64_t kSeveral = 2;  // any number of stages above 1: their files have names of their own

std::string OfStage(const std::string& path, int64_t stage, int64_t stages) {
  if (stages == 1 || path.empty()) return path;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / absl::StrCat(whole.stem().string(), "_stage", stage, whole.extension().string()))
      .string();
}

// How many stages the files at `path` are of: those that lie there, counted from 0; one where there are none.
int64_t StagesOf(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return 1;
  int64_t stages = 0;
  while (std::filesystem::exists(OfStage(path, stages, kSeveral), error)) ++stages;
  return std::max<int64_t>(1, stages);
}

// S1.2: both knobs work where strategies do.
bool HasEffect(const Session& session) {
  return session.problem.mode != SearchMode::kStandAlone && session.problem.mode != SearchMode::kDataParallel;
}

// S16.3: of the kind of a malformed one.
absl::StatusOr<StrategyFile> Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxDocumentBytes);
  if (!text.ok()) return WithExit(ExitCodeOf(text.status()), ValueError(kLoad, ": ", text.status().message()));
  return ParseStrategyFile(*text, path);
}

}  // namespace

const std::vector<FlagSpec>& StrategyFileFlags() {
  constexpr char kSection[] = "Files of strategies";
  static const auto* const kFlags = new std::vector<FlagSpec>{
      {kLoad, "FILE", "strategies of operators that have none, as strategy_ckpt_save_file wrote them", "", kSection},
      {kSave, "FILE", "where strategies of operators with weights go: JSON, or binary for *.pb", "", kSection},
      {kGroups, "FILE", "where groups of ranks go, and which ranks hold the same parameters", "", kSection},
  };
  return *kFlags;
}

absl::Status LoadStrategies(const Flags& flags, Session& session) {
  const std::string path = PathOf(flags, kLoad, session.file->parallel.strategy_ckpt_load_file, "strategy.json");
  if (path.empty()) return absl::OkStatus();
  if (!HasEffect(session)) {
    session.notices.push_back(absl::StrCat(kLoad, " has no effect in this mode or on one rank"));
    return absl::OkStatus();
  }
  Problem& problem = session.problem;
  const bool decoder = session.file->is_decoder();
  if (decoder && !problem.stages.has_value()) problem.stages = StagesOf(path);
  const int64_t stages = problem.stages.value_or(1), devices = problem.cluster.num_devices();
  const int64_t microbatches = decoder ? 1 : problem.microbatches.value_or(stages);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(std::max<int64_t>(1, problem.batch / microbatches)));
  std::map<std::string, std::string> places;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const std::string own = OfStage(path, stage, stages);
    MESHWRIGHT_ASSIGN_OR_RETURN(const StrategyFile file, Read(own));
    if (file.current_stage != stage) {
      return ValueError(own, ": current_stage: found ", file.current_stage, ", wanted ", stage);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(UsedStrategies used,
                                UseStrategyFile(file, own, graph, stages, devices / stages, problem.shards));
    session.notices.insert(session.notices.end(), used.notices.begin(), used.notices.end());
    places.merge(used.places);
  }
  if (!decoder) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string impossible, FirstThatNoPlanHas(problem));
  if (impossible.empty()) return absl::OkStatus();
  return LayoutError(places[impossible], ": found a strategy that no plan of \"", problem.name, "\" on ", devices,
                     " devices has together with those before it, wanted one whose pieces are degrees of parallelism; "
                     "plan without the file, and save anew");
}

bool SavesStrategies(const Flags& flags, const Session& session) {
  const Parallel& parallel = session.file->parallel;
  return HasEffect(session) && (!PathOf(flags, kSave, parallel.strategy_ckpt_save_file, "").empty() ||
                                !PathOf(flags, kGroups, parallel.group_ckpt_save_file, "").empty());
}

absl::Status CheckSavesStrategies(const Flags& flags, const Session& session, absl::Span<const std::string> inputs,
                                  absl::Span<const std::string> outputs) {
  for (const absl::string_view flag : {kSave, kGroups}) {
    if (flags.Has(flag) && !HasEffect(session)) {
      PrintNotices({absl::StrCat("--", flag, " has no effect: no strategies are planned in this mode")});
    }
  }
  if (!SavesStrategies(flags, session)) return absl::OkStatus();
  const Parallel& parallel = session.file->parallel;
  const std::string strategies = PathOf(flags, kSave, parallel.strategy_ckpt_save_file, "strategy.json");
  const std::string groups = PathOf(flags, kGroups, parallel.group_ckpt_save_file, "groups.json");
  for (const std::string& path : {strategies, groups}) MESHWRIGHT_RETURN_IF_ERROR(CheckWritableInNewFolder(path));
  std::vector<std::string> all(outputs.begin(), outputs.end()), read(inputs.begin(), inputs.end());
  const std::string loaded = PathOf(flags, kLoad, parallel.strategy_ckpt_load_file, "strategy.json");
  read.push_back(loaded);
  for (const std::string& path : {strategies, groups}) all.push_back(path);
  // Of a pipeline nobody knows yet how many stages it will have: those that would be written over lie there.
  for (int64_t stage = 0; stage < StagesOf(strategies); ++stage) {
    all.push_back(OfStage(strategies, stage, kSeveral));
    read.push_back(OfStage(loaded, stage, kSeveral));
  }
  return CheckOutputs(all, read);
}

absl::Status SaveStrategies(const Flags& flags, const Session& session, const Strategy& strategy,
                            const Program& program) {
  if (!SavesStrategies(flags, session)) return absl::OkStatus();
  const Parallel& parallel = session.file->parallel;
  const std::string path = PathOf(flags, kSave, parallel.strategy_ckpt_save_file, "strategy.json");
  const std::string groups = PathOf(flags, kGroups, parallel.group_ckpt_save_file, "groups.json");
  if (!path.empty()) {
    const Problem& problem = session.problem;
    MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(problem.batch / strategy.microbatches));
    for (int64_t stage = 0; stage < strategy.stages; ++stage) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const StrategyFile file, StrategyFileOf(graph, strategy, program, stage));
      const std::string text = absl::EndsWith(path, ".pb") ? ToBinary(file) : ToJson(file);
      MESHWRIGHT_RETURN_IF_ERROR(WriteFileInNewFolder(OfStage(path, stage, strategy.stages), text));
    }
  }
  if (groups.empty()) return absl::OkStatus();
  return WriteFileInNewFolder(groups, ToJson(GroupFileOf(program)));
}

}  // namespace meshwright
