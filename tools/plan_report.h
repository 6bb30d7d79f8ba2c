// What `plan` says: the strategy it chose and why, what else was near, how the search went. For people in 80 columns,
// for programs as JSON.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_PLAN_REPORT_H_
#define MESHWRIGHT_TOOLS_PLAN_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/search/search.h"
#include "tools/export/writers.h"
#include "tools/json_text.h"
#include "tools/operator_rows.h"
#include "tools/session.h"

namespace meshwright {

inline constexpr const Trainer& kUsualTrainer = kTrainers[0];
inline constexpr const Trainer& kUsualTrainerOfAdapters = kTrainers[1];

struct PlanReport {
  const Session* session = nullptr;  // not null; must outlive the report
  SearchResult result;               // with at least one candidate
  int64_t num_parameters = 0, num_trainable = 0;
  // Of the candidates, in their order; empty for decoders.
  std::vector<std::vector<OperatorRow>> operators;
  // That runs the plans of `result` as they are predicted, at the pace of the slowest device; null: their own programs.
  const Trainer* trainer = nullptr;
  // Of the best, where no trainer runs it: at the pace of the slowest device (tools/slowest_device.h); as kUsualTrainer
  // runs it, which published runs are compared with, where that one can.
  std::optional<Prediction> at_slowest, usual;
  double cpu_share = 0;  // of the best's step, where a trainer runs it: that CPUs hold up (tools/export/cpu_pace.h)
  double tokens = 0;     // of the whole run; 0 where nobody says
};

// Adds what the session's model knows about the result. REQUIRES: result.ranked is not empty.
absl::StatusOr<PlanReport> MakeReport(const Session& session, SearchResult result, const Trainer* trainer = nullptr);

std::string ToText(const PlanReport& report);

// Fixed order of keys; times in seconds, sizes in bytes; "schema" says which version of the form it is. All but
// search.seconds is the same for the same input.
Json ToJson(const PlanReport& report);
// What a plan promises, as ToJson has it under `predicted`.
Json ToJson(const Prediction& prediction);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PLAN_REPORT_H_
