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
#include "ir/graph.h"
#include "ir/program.h"
#include "planner/search/search.h"
#include "tools/json_text.h"
#include "tools/session.h"

namespace meshwright {

// How one operator is split: into how many pieces each dim of each input is cut, those on each device included (S6.14).
struct OperatorRow {
  std::string name;
  std::string kind;  // "MatMul"
  std::vector<std::vector<int64_t>> in_strategy;
  friend bool operator==(const OperatorRow&, const OperatorRow&) = default;
};
std::vector<OperatorRow> OperatorRows(const Graph& graph, const Strategy& strategy, const Program& program);

struct PlanReport {
  const Session* session = nullptr;  // not null; must outlive the report
  SearchResult result;               // with at least one candidate
  int64_t num_parameters = 0;
  // Of the candidates, in their order; empty for decoders.
  std::vector<std::vector<OperatorRow>> operators;
  // Of the best (tools/slowest_device.h).
  std::optional<Prediction> at_slowest;
  double tokens = 0;  // of the whole run; 0 where nobody says
};

// Adds what the session's model knows about the result. REQUIRES: result.ranked is not empty.
absl::StatusOr<PlanReport> MakeReport(const Session& session, SearchResult result);

std::string ToText(const PlanReport& report);

// Fixed order of keys; times in seconds, sizes in bytes; "schema" says which version of the form it is. All but
// search.seconds is the same for the same input.
Json ToJson(const PlanReport& report);
// What a plan promises, as ToJson has it under `predicted`.
Json ToJson(const Prediction& prediction);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PLAN_REPORT_H_
