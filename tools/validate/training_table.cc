#include "tools/validate/training_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "costmodel/variability.h"
#include "ir/program.h"
#include "ir/status.h"
#include "ir/strategy.h"
#include "planner/search/parallel_for.h"
#include "tools/json_text.h"
#include "tools/validate/distinct_runs.h"
#include "tools/validate/framework_memory.h"
#include "tools/validate/predict_run.h"
#include "tools/validate/row_model.h"
#include "tools/validate/run_problem.h"
#include "tools/validate/table_columns.h"
#include "tools/validate/training_columns.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

RunTraits TraitsOf(const TrainingRun& run) {
  return {.adapters = run.frozen,
          .experts = run.model.experts,
          .expert_loop = run.expert_loop,
          .sequence = run.training.sequence,
          .context = run.degrees.context,
          .shard_parameters = run.shard_parameters};
}

std::string LabelOf(const CsvCells& cells, int64_t microbatch) {
  const auto with = [&](absl::string_view name) {
    const std::string text = cells.Text(name);
    return absl::StrCat(name, text.empty() ? "-" : text);
  };
  const std::string model = cells.Text("model");
  return absl::StrCat(model, model.empty() ? "" : ", ", cells.Text("gpus"), " x ", cells.Text("gpu_type"), ", ",
                      with("tp"), " ", with("pp"), " ", with("dp"), ", micro-batch ", microbatch, " of ",
                      cells.Text("global_batch_seqs"));
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }
std::string Signed(double share) { return absl::StrFormat("%+.1f %%", 100 * share); }

std::string RowText(const TrainingRowResult& row) {
  std::string text = absl::StrCat("  line ", row.line, ": ", row.label, ": ");
  if (!row.skipped.empty()) return absl::StrCat(text, "skipped, ", row.skipped, "\n");
  const auto [low, high] = row.Interval();
  absl::StrAppendFormat(&text, "predicted %.4g s (%.4g to %.4g)", ToSeconds(row.prediction.step), low, high);
  if (row.measured.step_seconds.has_value()) {
    absl::StrAppendFormat(&text, ", measured %.4g s, %s", *row.measured.step_seconds, Signed(row.Steps().Error()));
  }
  const auto gib = [](Bytes bytes) {
    return absl::StrFormat("%.1f GiB", static_cast<double>(bytes.raw()) / (1 << 30));
  };
  if (!row.compared()) {
    absl::StrAppend(&text, "; memory ", gib(row.PredictedPeak()), row.prediction.fits() ? ", fits" : ", does not fit");
  } else if (row.measured.peak.has_value() || row.measured.out_of_memory) {
    absl::StrAppend(&text, "; memory ", gib(row.PredictedPeak()));
    if (row.measured.peak.has_value()) absl::StrAppend(&text, ", measured ", gib(*row.measured.peak));
    if (row.measured.out_of_memory) {
      absl::StrAppend(&text, row.prediction.fits() ? ", fits" : ", does not fit", ", ran out of memory");
    }
  }
  return absl::StrCat(text, TextOf(row.defaults, row.approximations), "\n");
}

Json RowJson(const TrainingRowResult& row) {
  Json json = {{"line", row.line}, {"label", row.label}};
  if (!row.skipped.empty()) {
    json["skipped"] = row.skipped;
    return json;
  }
  json["predicted_s"] = ToSeconds(row.prediction.step);
  json["interval_s"] = {row.Interval().first, row.Interval().second};
  if (row.measured.step_seconds.has_value()) {
    json["measured_s"] = *row.measured.step_seconds;
    json["measured_from"] = row.measured.from;
    json["error"] = row.Steps().Error();
  }
  json["kind"] = TrackRecordOf(row.kind).name;
  json["predicted_peak_bytes"] = row.PredictedPeak().raw();
  json["memory_bytes"] = ToJson(row.prediction.memory);
  if (row.measured.peak.has_value()) json["measured_peak_bytes"] = row.measured.peak->raw();
  json["fits"] = row.prediction.fits();
  json["ran_out_of_memory"] = row.measured.out_of_memory;
  json["memory_comparable"] = row.memory_comparable;
  Json& uses = json["time_ns"] = Json::object();
  for (size_t i = 0; i < kNumTimeUses; ++i) {
    const TimeUse use = static_cast<TimeUse>(i);
    uses[JsonKey(NameOf(use))] = row.prediction.time[use].raw();
  }
  json["defaults"] = row.defaults;
  json["approximations"] = row.approximations;
  return json;
}

}  // namespace

std::pair<double, double> TrainingRowResult::Interval() const {
  const double step = ToSeconds(prediction.step);
  return {step / (1 + kDeviceRange), step * (1 + kDeviceRange)};
}

Bytes TrainingRowResult::PredictedPeak() const {
  if (!measured.whole_process && !measured.reserved) return prediction.arena;
  return (measured.whole_process ? prediction.peak : prediction.arena) + cached;
}

namespace {

// Rows that are read before any of them is predicted: a run takes some kilobytes.
constexpr size_t kRowsAtOnce = 4096;

bool HasMeasurements(const CsvTable& table) {
  constexpr absl::string_view kMeasured[] = {"step_time_s",
                                             "step_time_derived_s",
                                             "tokens_per_s_total",
                                             "samples_per_s",
                                             "tokens_per_s_per_gpu",
                                             "samples_per_s_per_gpu",
                                             "mfu_pct",
                                             "hfu_pct",
                                             "tflops_per_gpu",
                                             "status"};
  return std::any_of(std::begin(kMeasured), std::end(kMeasured),
                     [&](absl::string_view column) { return table.Find(column).has_value(); });
}

// A row up to its prediction: nothing where it has none. `planned`: nobody timed rows of this table.
std::optional<TrainingRun> ReadRow(const CsvCells& cells, const CsvRow& row, const RowOverrides& overrides,
                                   bool planned, TrainingRowResult* out) {
  out->line = row.line;
  if (!row.damaged.empty()) {
    out->label = "damaged";
    out->skipped = absl::StrCat("damaged row: ", row.damaged);
    return std::nullopt;
  }
  out->group = RunKey(cells);
  out->layout = LayoutKey(cells);
  out->model = absl::StrCat(cells.Text("model"), ", ", cells.Text("gpus"), " x ", cells.Text("gpu_type"));
  absl::StatusOr<TrainingRun> run = ReadTrainingRun(cells, overrides);
  absl::StatusOr<TrainingMeasurement> measured = ReadTrainingMeasurement(cells, run.ok() ? *run : TrainingRun());
  if (planned && absl::IsUnimplemented(measured.status())) {
    measured = TrainingMeasurement();
    measured->whole_process = true;
  }
  if (!measured.ok() || !run.ok()) {
    out->label = LabelOf(cells, out->microbatch);
    out->skipped = WhySkipped(measured.ok() ? run.status() : measured.status());
    return std::nullopt;
  }
  out->measured = *std::move(measured);
  return *std::move(run);
}

// The rest of it.
void TakePrediction(const CsvCells& cells, TrainingRun run, const TrainingRun& chosen,
                    const absl::StatusOr<Prediction>& prediction, TrainingRowResult* out) {
  run.degrees = chosen.degrees;
  out->microbatch = run.degrees.microbatch;
  out->label = LabelOf(cells, out->microbatch);
  if (!prediction.ok()) {
    out->skipped =
        WhySkipped(absl::UnimplementedError(absl::StrCat("does not lower: ", prediction.status().message())));
    return;
  }
  out->defaults = run.defaults;
  out->defaults.insert(out->defaults.end(), chosen.defaults.begin(), chosen.defaults.end());
  out->approximations = run.approximations;
  out->prediction = *prediction;
  out->kind = KindOf(TraitsOf(run), run.cluster);
  out->cached = CachedBesideArena(WithDividingDegree(run), out->prediction);
  out->memory_comparable = run.memory_comparable;
}

// What rows lack since no column has it.
void RemarkWhatIsMissing(const CsvTable& table, TrainingTableResult* result) {
  std::set<std::string> missing;
  if (!HasMeasurements(table) && !result->rows.empty()) {
    missing.insert("step_time_s");
    result->remarks.push_back(
        "no row says how long a step took: their times are predicted and not compared; --rows lists them");
  }
  for (const TrainingRowResult& row : result->rows) {
    absl::string_view column = row.skipped;
    if (!absl::ConsumePrefix(&column, "not given: ") || absl::StrContains(column, ' ')) continue;
    if (!table.Find(column).has_value()) missing.emplace(column);
  }
  if (missing.empty()) return;
  result->remarks.push_back(absl::StrCat(
      "no column was read as ", absl::StrJoin(missing, ", "),
      missing.size() == 1 ? ": give the one that holds it this name" : ": give those that hold them these names"));
}

}  // namespace

absl::StatusOr<TrainingTableResult> PredictTrainingTable(const CsvTable& given, const RowOverrides& overrides,
                                                         const std::function<void(size_t, size_t)>& progress) {
  const CsvTable table = WithDevice(WithTrainingColumns(given), overrides);
  MESHWRIGHT_RETURN_IF_ERROR(CheckTrainingColumns(table));
  TrainingTableResult result;
  result.file = table.file;
  result.remarks = table.remarks;
  result.rows.resize(table.rows.size());
  const bool planned = !HasMeasurements(table);
  for (size_t begin = 0; begin < table.rows.size(); begin += kRowsAtOnce) {
    const size_t end = std::min(table.rows.size(), begin + kRowsAtOnce);
    std::vector<size_t> rows;
    std::vector<TrainingRun> runs;
    for (size_t i = begin; i < end; ++i) {
      std::optional<TrainingRun> run =
          ReadRow(CsvCells(table, table.rows[i]), table.rows[i], overrides, planned, &result.rows[i]);
      if (!run.has_value()) continue;
      rows.push_back(i);
      runs.push_back(*std::move(run));
    }
    DistinctRuns distinct(runs);
    std::vector<absl::StatusOr<Prediction>> predictions(distinct.runs.size(), absl::UnknownError("not predicted"));
    constexpr int kAsManyAsCores = 0;
    std::mutex one_at_a_time;
    size_t done = begin;
    ParallelFor(predictions.size(), kAsManyAsCores, [&](size_t k) {
      predictions[k] = PredictFastest(&distinct.runs[k]);
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      if (progress) progress(++done, begin + predictions.size() + table.rows.size() - end);
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t of = distinct.of[i];
      TakePrediction(CsvCells(table, table.rows[rows[i]]), std::move(runs[i]), distinct.runs[of], predictions[of],
                     &result.rows[rows[i]]);
    }
  }
  RemarkWhatIsMissing(table, &result);
  return result;
}

namespace {

// The means of rows of one layout, by layout; and their lines.
struct Alternatives {
  const TrainingRowResult* first = nullptr;
  std::map<std::string, std::vector<Pair>> layouts;
  std::vector<int64_t> lines;

  std::vector<Pair> Means() const {
    std::vector<Pair> means;
    for (const auto& [layout, rows] : layouts) {
      Pair& mean = means.emplace_back();
      for (const Pair& row : rows) {
        mean.predicted += row.predicted / static_cast<double>(rows.size());
        mean.measured += row.measured / static_cast<double>(rows.size());
      }
    }
    return means;
  }
};

void AddGroups(const TrainingTableResult& table, TrainingTableSummary* summary) {
  std::map<std::string, Alternatives> groups;
  for (const TrainingRowResult& row : table.rows) {
    if (!row.scored()) continue;
    Alternatives& group = groups[row.group];
    if (group.first == nullptr) group.first = &row;
    group.layouts[row.layout].push_back(row.Steps());
    group.lines.push_back(row.line);
  }
  std::vector<std::vector<Pair>> alternatives;
  for (const auto& [key, group] : groups) {
    const std::vector<Pair> means = group.Means();
    if (means.size() < 2) continue;
    summary->groups.push_back({group.first->model, group.lines, means.size(),
                               means.size() < 3 ? std::nullopt : Spearman(means), TopOneRegret(means)});
    alternatives.push_back(means);
  }
  std::sort(summary->groups.begin(), summary->groups.end(),
            [](const LayoutGroup& a, const LayoutGroup& b) { return a.lines < b.lines; });
  summary->ranks = SummariseGroups(alternatives);
}

std::string GroupText(const LayoutGroup& group) {
  std::string text = absl::StrCat("  group of lines ", absl::StrJoin(group.lines, ", "), ": ", group.label, ", ",
                                  group.layouts, " layouts");
  if (group.spearman.has_value()) absl::StrAppendFormat(&text, ", Spearman %.3f", *group.spearman);
  return absl::StrCat(text, ", regret ", Percent(group.regret), "\n");
}

// Whether the peak that was measured is more than the device has: of its nominal size, as some read it from nvidia-smi,
// 1 to 1.5 % are the driver's.
bool AboveDevice(const TrainingRowResult& row) {
  constexpr double kNominal = 1.02;
  return row.measured.peak.has_value() &&
         static_cast<double>(row.measured.peak->raw()) > kNominal * static_cast<double>(row.prediction.capacity.raw());
}

}  // namespace

TrainingTableSummary Summarise(const TrainingTableResult& table) {
  TrainingTableSummary summary;
  std::vector<Pair> times, peaks;
  for (const TrainingRowResult& row : table.rows) {
    if (!summary.Add(row)) continue;
    if (row.scored()) {
      times.push_back(row.Steps());
      const auto [low, high] = row.Interval();
      if (low <= *row.measured.step_seconds && *row.measured.step_seconds <= high) ++summary.inside;
    }
    if (!row.memory_comparable || !row.compared()) continue;
    if (row.measured.peak.has_value()) {
      peaks.push_back({static_cast<double>(row.PredictedPeak().raw()), static_cast<double>(row.measured.peak->raw())});
    }
    if (row.measured.out_of_memory) {
      ++summary.oom_rows;
      if (!row.prediction.fits()) ++summary.oom_right;
    } else if (!AboveDevice(row)) {
      ++summary.fitting_rows;
      if (row.prediction.fits()) ++summary.fitting_right;
    }
  }
  summary.time = Summarise(times);
  summary.memory = Summarise(peaks);
  AddGroups(table, &summary);
  return summary;
}

std::vector<KindSummary> SummariseKinds(const std::vector<TrainingTableResult>& tables) {
  std::vector<std::vector<Pair>> steps(kNumRunKinds);
  for (const TrainingTableResult& table : tables) {
    for (const TrainingRowResult& row : table.rows) {
      if (row.scored()) steps[static_cast<size_t>(row.kind)].push_back(row.Steps());
    }
  }
  std::vector<KindSummary> kinds;
  for (size_t i = 0; i < kNumRunKinds; ++i) {
    if (steps[i].empty()) continue;
    const auto [low, high] = MiddleOfMeasured(steps[i], 0.8);
    kinds.push_back({static_cast<RunKind>(i), Summarise(steps[i]), low, high});
  }
  return kinds;
}

std::string KindsToText(const std::vector<TrainingTableResult>& tables) {
  const std::vector<KindSummary> kinds = SummariseKinds(tables);
  if (kinds.empty()) return "";
  std::string text = absl::StrFormat("%-40s %5s %7s %7s %7s  %s\n", "by kind of run", "rows", "mean", "median", "bias",
                                     "eight in ten took, of the prediction");
  for (const KindSummary& kind : kinds) {
    const ErrorSummary& e = kind.errors;
    absl::StrAppendFormat(&text, "  %-38s %5d %7s %7s %7s  %.2f to %.2f\n", TrackRecordOf(kind.kind).name, e.count,
                          Percent(e.mean), Percent(e.median), Signed(e.bias), kind.low, kind.high);
  }
  return text;
}

std::string ToText(const TrainingTableResult& table, bool rows) {
  const TrainingTableSummary s = Summarise(table);
  std::string text = absl::StrCat(table.file, "\n");
  for (const std::string& remark : table.remarks) absl::StrAppend(&text, "  note       ", remark, "\n");
  if (rows) {
    for (const TrainingRowResult& row : table.rows) absl::StrAppend(&text, RowText(row));
    for (const LayoutGroup& group : s.groups) absl::StrAppend(&text, GroupText(group));
  }
  absl::StrAppend(&text, s.Lines(10));
  const auto errors = [&](absl::string_view what, const ErrorSummary& e) {
    if (e.count == 0) return;
    absl::StrAppend(&text, what, e.count, " rows, mean ", Percent(e.mean), ", median ", Percent(e.median), ", p90 ",
                    Percent(e.p90), ", worst ", Signed(e.worst), ", bias ", Signed(e.bias), "\n");
  };
  errors("  step time  ", s.time);
  if (s.time.count > 0) {
    absl::StrAppendFormat(&text, "  interval   +-%.0f %%, measured inside: %d of %d\n", 100 * kDeviceRange, s.inside,
                          s.time.count);
  }
  if (s.ranks.groups > 0) {
    absl::StrAppend(&text, "  layouts    ", s.ranks.groups, " groups of ", s.ranks.alternatives, " layouts");
    if (s.ranks.correlated > 0) {
      absl::StrAppendFormat(&text, ", Spearman %.3f (mean of %d)", s.ranks.mean_spearman, s.ranks.correlated);
    }
    absl::StrAppend(&text, ", regret mean ", Percent(s.ranks.mean_regret), ", worst ", Percent(s.ranks.worst_regret),
                    "\n");
  }
  errors("  memory     ", s.memory);
  if (s.oom_rows + s.fitting_rows > 0) {
    absl::StrAppend(&text, "  verdict    out of memory: ", s.oom_right, " of ", s.oom_rows,
                    " called; ran: ", s.fitting_right, " of ", s.fitting_rows, " called to fit\n");
  }
  return text;
}

std::string ToJson(const std::vector<TrainingTableResult>& tables, bool rows) {
  Json out = Json::array();
  for (const TrainingTableResult& table : tables) {
    const TrainingTableSummary s = Summarise(table);
    Json json = JsonOf("meshwright/training_validation/1", table, s);
    json["step_time"] = JsonOf(s.time);
    json["measured_inside_interval"] = s.inside;
    json["layouts"] = {{"groups", s.ranks.groups},           {"rows", s.ranks.alternatives},
                       {"correlated", s.ranks.correlated},   {"spearman", s.ranks.mean_spearman},
                       {"mean_regret", s.ranks.mean_regret}, {"worst_regret", s.ranks.worst_regret}};
    json["memory"] = JsonOf(s.memory);
    json["verdict"] = {{"oom_rows", s.oom_rows},
                       {"oom_right", s.oom_right},
                       {"fitting_rows", s.fitting_rows},
                       {"fitting_right", s.fitting_right}};
    if (rows) {
      Json& list = json["per_row"] = Json::array();
      for (const TrainingRowResult& row : table.rows) list.push_back(RowJson(row));
      Json& groups = json["layouts"]["per_group"] = Json::array();
      for (const LayoutGroup& group : s.groups) {
        Json& one =
            groups.emplace_back(Json{{"label", group.label}, {"lines", group.lines}, {"layouts", group.layouts}});
        if (group.spearman.has_value()) one["spearman"] = *group.spearman;
        one["regret"] = group.regret;
      }
    }
    out.push_back(std::move(json));
  }
  return TextOf(out);
}

}  // namespace meshwright
