// What trainers print of their steps, beside what a plan predicts of them: `compare plan.yaml train.log`.
//
// A log is known by a phrase of its lines (kLogFormats in the .cc, one row per trainer). Colours are taken out; lines
// without the phrase are passed over. Steps that a trainer averages before it prints count as one.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_STEP_LOG_H_
#define MESHWRIGHT_TOOLS_STEP_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/search/evaluate.h"
#include "tools/json_text.h"
#include "tools/plan_file.h"

namespace meshwright {

struct StepLog {
  std::string file;
  std::string trainer;          // "Megatron-LM"
  std::vector<double> seconds;  // of a step, in the order of the log
  int64_t unread = 0;           // lines of it without a number above 0, as "nan"
};

// `problem` says how many tokens and devices a step has, for trainers that print rates. kInvalidArgument, with the file
// and the line: no line of a trainer that is known; another batch than the problem's.
absl::StatusOr<StepLog> ParseStepLog(absl::string_view text, const std::string& file, const Problem& problem);

struct LogComparison {
  StepLog log;
  std::string plan;                      // its file
  Prediction predicted;                  // the plan's own program
  std::optional<Prediction> as_trainer;  // as the log's trainer runs it, where that is known (tools/export)
  std::optional<double> cpu_slowdown;  // with which the trainer is predicted to take as long (tools/export/cpu_pace.h)
  std::string work;                    // "tokens" or "rows"
  double work_of_step = 0;             // on one device
  int64_t left_out = 0;                // steps at the beginning, in which trainers warm up
  double low = 0, high = 0;            // of the others: the tenth and the ninetieth percentile
  double median = 0;                   // seconds
};

// The first tenth of the steps, at least one where there are several, is left out. Errors: those of Evaluate.
absl::StatusOr<LogComparison> CompareWithLog(const std::string& file, const Plan& plan, StepLog log);

std::string ToText(const LogComparison& comparison);  // 80 columns
Json ToJson(const LogComparison& comparison);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_STEP_LOG_H_
