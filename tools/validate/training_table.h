// Tables of training runs against predictions of the same runs.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_TRAINING_TABLE_H_
#define MESHWRIGHT_TOOLS_VALIDATE_TRAINING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/search/evaluate.h"
#include "tools/track_record.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"
#include "tools/validate/row_counts.h"
#include "tools/validate/score.h"
#include "tools/validate/training_measurement.h"
#include "tools/validate/training_run.h"

namespace meshwright {

struct TrainingRowResult {
  int64_t line = 0;     // in the file
  std::string label;    // "GPT 22B, 8 x A100, tp8 pp1 dp1, 4 rows a micro-batch"
  std::string model;    // "GPT 22B, 8 x A100"
  std::string group;    // equal for rows that differ in layout only
  std::string layout;   // what of the row is that
  std::string skipped;  // why there is no prediction: "reason: detail"; "" where there is one
  std::vector<std::string> defaults, approximations;
  TrainingMeasurement measured;
  Prediction prediction;
  RunKind kind = RunKind::kFew;
  Bytes cached;  // reserved beside what it needs: framework_memory.h
  bool memory_comparable = true;
  int64_t microbatch = 1;

  // Whether there is anything to compare: rows of a table without such columns are only predicted.
  bool compared() const { return scored() || measured.peak.has_value() || measured.out_of_memory; }
  bool scored() const { return skipped.empty() && measured.step_seconds.has_value(); }
  Pair Steps() const { return {ToSeconds(prediction.step), measured.step_seconds.value_or(0)}; }
  // Seconds between which clusters of equal devices differ (kDeviceRange); the model's own error is beside that.
  std::pair<double, double> Interval() const;
  // What the prediction has for the counter that the source read.
  Bytes PredictedPeak() const;
};

struct TrainingTableResult {
  std::string file;
  std::vector<std::string> remarks;  // CsvTable's
  std::vector<TrainingRowResult> rows;
};

// A damaged cell and what cannot be expressed is a row that says so. Rows that are equal in all that a prediction reads
// are predicted once, the others on all cores. `progress` is told how many are done, of how many, one call at a time.
// Error: kInvalidArgument where no column tells of a run.
absl::StatusOr<TrainingTableResult> PredictTrainingTable(
    const CsvTable& given, const RowOverrides& overrides,
    const std::function<void(size_t done, size_t all)>& progress = nullptr);

// Rows that differ in layout only. Those of one layout (of several releases, of runs that were repeated) are one
// alternative, of their mean.
struct LayoutGroup {
  std::string label;           // "GPT 22B, 8 x A100"
  std::vector<int64_t> lines;  // of the rows, in the file
  size_t layouts = 0;
  std::optional<double> spearman;  // of three layouts and more
  double regret = 0;               // how much slower the layout that is predicted to be fastest is than the fastest
};

struct TrainingTableSummary : RowCounts {
  ErrorSummary time;
  size_t inside = 0;                   // of these, measured inside of the prediction's interval
  std::vector<LayoutGroup> groups;     // of two layouts and more, by their first line
  RankSummary ranks;                   // over them
  ErrorSummary memory;                 // rows with a peak that can be compared
  size_t oom_rows = 0, oom_right = 0;  // rows that ran out of memory; of these, predicted not to fit
  // Rows that ran; of these, predicted to fit. Not those whose peak is more than the device that they name has: they
  // ran on another.
  size_t fitting_rows = 0, fitting_right = 0;
};
TrainingTableSummary Summarise(const TrainingTableResult& table);

// Of the rows of one kind that have a time.
struct KindSummary {
  RunKind kind = RunKind::kFew;
  ErrorSummary errors;
  double low = 1, high = 1;  // what eight in ten took, as multiples of the prediction
};
// Of each kind that there is, in their order.
std::vector<KindSummary> SummariseKinds(const std::vector<TrainingTableResult>& tables);
std::string KindsToText(const std::vector<TrainingTableResult>& tables);

// `rows`: one line for each row as well, and for each group of layouts.
std::string ToText(const TrainingTableResult& table, bool rows);
std::string ToJson(const std::vector<TrainingTableResult>& tables, bool rows);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_TRAINING_TABLE_H_
