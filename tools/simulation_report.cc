#include "tools/simulation_report.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// The stages to show where there are many: the first and last ones, the critical one.
std::vector<size_t> StagesToShow(size_t count, size_t critical) {
  constexpr size_t kMost = 16;
  std::vector<size_t> stages;
  for (size_t i = 0; i < count; ++i) {
    if (count <= kMost || i < kMost / 2 || i + kMost / 2 >= count || i == critical) stages.push_back(i);
  }
  return stages;
}

// The stages' columns: kernels, exposed communication, contention, bubble.
std::string StageRow(const Program& program, const SimulationResult& result, size_t c) {
  const TimeUses& time = result.classes[c].time.exclusive;
  const auto share = [&](std::initializer_list<TimeUse> uses) {
    Nanos sum;
    for (const TimeUse use : uses) sum += time[use];
    return ToSeconds(sum) / std::max(1e-9, ToSeconds(result.makespan)) * 100;
  };
  return absl::StrFormat("  %-12s %7.1f %8.1f %9.1f %9.1f %8.1f %10.1f %6.1f\n", program.classes[c].name,
                         share({TimeUse::kForward}), share({TimeUse::kBackward}), share({TimeUse::kRecompute}),
                         share({TimeUse::kOptimizer}),
                         share({TimeUse::kActivationCollective, TimeUse::kGradientCollective,
                                TimeUse::kParameterCollective, TimeUse::kReportCollective, TimeUse::kTransfer}),
                         share({TimeUse::kContention}), share({TimeUse::kWait}));
}

// What is in use when most is.
std::string PeakRow(const std::string& stage, const MemoryUse& memory) {
  const auto of = [&](BufferRole role) { return memory.at_peak[static_cast<size_t>(role)]; };
  const Bytes parameter = of(BufferRole::kParameter), gradient = of(BufferRole::kGradient);
  const Bytes optimizer = of(BufferRole::kMaster) + of(BufferRole::kOptimizerState);
  const Bytes activation = of(BufferRole::kActivation);
  Bytes other;
  for (const Bytes bytes : memory.at_peak) other += bytes;
  other -= parameter + gradient + optimizer + activation;
  std::string row = absl::StrFormat("  %-10s %9s", stage, ShowTime(memory.peak_time));
  for (const Bytes bytes : {parameter, gradient, optimizer, activation, other}) {
    absl::StrAppend(&row, absl::StrFormat(" %10s", ShowBytes(bytes)));
  }
  return row + "\n";
}

}  // namespace

std::string MemoryLine(const std::vector<MemoryPoint>& points, Nanos end, Bytes whole, size_t columns) {
  std::vector<int64_t> most(columns, 0);
  const int64_t last = std::max<int64_t>(1, end.raw());
  const auto column_of = [&](int64_t time) {
    return static_cast<size_t>(std::clamp<double>(static_cast<double>(time) / static_cast<double>(last), 0, 1) *
                               static_cast<double>(columns));
  };
  for (size_t i = 0; i < points.size(); ++i) {
    const int64_t until = i + 1 < points.size() ? points[i + 1].time.raw() : last;
    const size_t from = column_of(points[i].time.raw()), to = column_of(std::max(points[i].time.raw(), until));
    for (size_t c = from; c <= std::min(to, columns - 1); ++c) {
      if (c == to && c > from) break;
      most[c] = std::max(most[c], points[i].bytes.raw());
    }
  }
  std::string line;
  for (const int64_t bytes : most) {
    const double tenths = 10.0 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, whole.raw()));
    line.push_back(tenths >= 10 ? '#' : static_cast<char>('0' + static_cast<int>(tenths)));
  }
  return line;
}

std::string ToText(const Program& program, const SimulationResult& result, const std::optional<StepTimes>& varied) {
  std::string text =
      absl::StrCat(program.name, ": ", ShowCount(program.mesh.num_ranks()),
                   program.mesh.num_ranks() == 1 ? " rank in " : " ranks in ", program.classes.size(),
                   program.classes.size() == 1 ? " class, " : " classes, ", ShowCount(program.num_microbatches),
                   program.num_microbatches == 1 ? " micro-batch" : " micro-batches", "\n\nstep ",
                   ShowTime(result.makespan), "; ", program.classes[result.critical_class].name, " ends last\n");
  if (varied.has_value() && varied->ascending.size() == 1) {
    absl::StrAppend(&text, "with the slow ranks ", ShowTime(varied->Mean()), "\n");
  } else if (varied.has_value()) {
    absl::StrAppend(&text, "of ", ShowCount(static_cast<int64_t>(varied->ascending.size())),
                    " steps of varying devices: mean ", ShowTime(varied->Mean()), ", 5 % below ",
                    ShowTime(varied->Quantile(0.05)), ", 5 % above ", ShowTime(varied->Quantile(0.95)), "\n");
  }
  absl::StrAppend(&text, "\n  % of the step forward backward recompute optimizer  exposed contention bubble\n");
  const std::vector<size_t> stages = StagesToShow(program.classes.size(), result.critical_class);
  for (const size_t c : stages) text += StageRow(program, result, c);
  text +=
      "  exposed: communication that nothing hides; contention: what kernels and\n"
      "  communication take from each other; bubble: waiting for other stages\n";

  absl::StrAppend(&text, "\nmemory in use over the step, in tenths of the arena\n");
  for (const size_t c : stages) {
    const ClassResult& stage = result.classes[c];
    absl::StrAppend(&text, absl::StrFormat("  %-10s %10s  %s\n", program.classes[c].name, ShowBytes(stage.arena),
                                           MemoryLine(stage.memory.points, result.makespan, stage.arena, 54)));
  }
  absl::StrAppend(&text, "\n", absl::StrFormat("  %-10s %9s", "the peak", "when"));
  for (const absl::string_view column : {"parameter", "gradient", "optimizer", "activation", "other"}) {
    absl::StrAppend(&text, absl::StrFormat(" %10s", column));
  }
  text += "\n";
  for (const size_t c : stages) text += PeakRow(program.classes[c].name, result.classes[c].memory);
  return text;
}

Json ToJson(const Program& program, const SimulationResult& result, const std::optional<StepTimes>& varied) {
  Json out;
  out["schema"] = "meshwright/simulation/1";
  out["name"] = program.name;
  out["ranks"] = program.mesh.num_ranks();
  out["microbatches"] = program.num_microbatches;
  out["step_time_s"] = JsonSeconds(result.makespan);
  if (varied.has_value()) {
    Json row;
    row["samples"] = varied->ascending.size();
    row["mean_s"] = JsonSeconds(varied->Mean());
    row["p5_s"] = JsonSeconds(varied->Quantile(0.05));
    row["p50_s"] = JsonSeconds(varied->Quantile(0.5));
    row["p95_s"] = JsonSeconds(varied->Quantile(0.95));
    out["varied"] = std::move(row);
  }
  out["critical_stage"] = result.critical_class;
  Json stages = Json::array();
  for (size_t c = 0; c < program.classes.size(); ++c) {
    const ClassResult& stage = result.classes[c];
    Json row;
    row["name"] = program.classes[c].name;
    row["end_s"] = JsonSeconds(stage.time.end);
    row["time_s"] = ToJson(stage.time.exclusive);
    row["busy_s"] = ToJson(stage.time.busy);
    row["arena_bytes"] = stage.arena.raw();
    row["peak_bytes"] = stage.memory.peak.raw();
    row["peak_time_s"] = JsonSeconds(stage.memory.peak_time);
    row["peak_memory_bytes"] = ToJson(stage.memory.at_peak);
    stages.push_back(std::move(row));
  }
  out["stages"] = std::move(stages);
  return out;
}

}  // namespace meshwright
