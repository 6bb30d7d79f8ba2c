#include "tools/report_charts.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

double ToGiB(Bytes bytes) { return static_cast<double>(bytes.raw()) / static_cast<double>(GiB(1).raw()); }

// A bar for each label, stacked from what `times` gives for each; uses that nobody has are left out.
Chart TimeChart(std::string title, std::vector<std::string> labels, const std::function<TimeUses(size_t)>& times) {
  Chart chart{.title = std::move(title), .x = "seconds", .labels = std::move(labels)};
  for (const TimeUseInfo& use : kTimeUses) {
    Chart::Series series{.name = std::string(use.name), .colour = static_cast<size_t>(use.use)};
    bool any = false;
    for (size_t i = 0; i < chart.labels.size(); ++i) {
      const Nanos time = times(i)[use.use];
      any |= time > Nanos();
      series.points.push_back({static_cast<double>(i), JsonSeconds(time)});
    }
    if (any) chart.series.push_back(std::move(series));
  }
  return chart;
}

// A bar for each label, of what the arena holds by role and what is beside it.
Chart MemoryChart(std::string title, std::vector<std::string> labels,
                  const std::function<const Prediction&(size_t)>& of) {
  const auto bytes = [&of](size_t i) { return of(i).memory; };
  Chart chart{.title = std::move(title), .x = "GiB", .labels = std::move(labels)};
  for (size_t role = 0; role < kNumRoles; ++role) {
    Chart::Series series{.name = std::string(NameOf(static_cast<BufferRole>(role))), .colour = role};
    bool any = false;
    for (size_t i = 0; i < chart.labels.size(); ++i) {
      const Bytes held = bytes(i)[role];
      any |= held > Bytes();
      series.points.push_back({static_cast<double>(i), ToGiB(held)});
    }
    if (any) chart.series.push_back(std::move(series));
  }
  std::vector<std::string> beside;
  for (size_t i = 0; i < chart.labels.size(); ++i) {
    for (const auto& [name, held] : of(i).outside) {
      if (held > Bytes() && std::count(beside.begin(), beside.end(), name) == 0) beside.push_back(name);
    }
  }
  for (size_t k = 0; k < beside.size(); ++k) {
    Chart::Series series{.name = beside[k], .colour = kNumRoles + k};
    for (size_t i = 0; i < chart.labels.size(); ++i) {
      Bytes held;
      for (const auto& [name, bytes_of] : of(i).outside) held += name == beside[k] ? bytes_of : Bytes();
      series.points.push_back({static_cast<double>(i), ToGiB(std::max(Bytes(), held))});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// "dp 32, tp 4, pp 8, 12 chunks, mb 1, recompute none"
std::string LabelOf(size_t place, const Candidate& candidate) {
  const Degrees& d = candidate.degrees;
  const Strategy& s = candidate.strategy;
  std::string label = absl::StrCat(place + 1, ": dp ", d.data, ", tp ", d.tensor, ", pp ", d.pipeline);
  if (s.chunks > 1) absl::StrAppend(&label, ", ", s.chunks, " chunks");
  if (d.context > 1) absl::StrAppend(&label, ", cp ", d.context);
  if (d.expert > 1) absl::StrAppend(&label, ", ep ", d.expert);
  return absl::StrCat(label, ", mb ", d.microbatch, ", recompute ", NameOf(s.recompute));
}

// A line for each device of what `value` gives for a point that fits.
Chart SweepChart(const SweepReport& report, std::string title, std::string y,
                 const std::function<double(const SweepPoint&)>& value) {
  Chart chart{
      .title = std::move(title), .x = "devices", .y = std::move(y), .kind = Chart::Kind::kLines, .powers_of_two = true};
  for (const SweepPoint& point : report.points) {
    if (!point.best.has_value()) continue;
    if (chart.series.empty() || chart.series.back().name != point.device)
      chart.series.push_back({.name = point.device});
    chart.series.back().points.push_back({static_cast<double>(point.devices), value(point)});
  }
  return chart;
}

// At most so many points of a line: the highest of each stretch, so that no peak is lost.
constexpr size_t kMostPoints = 1000;

Chart::Series MemoryLine(const std::string& name, const MemoryUse& memory, Nanos end) {
  Chart::Series line{.name = name};
  const size_t stretch = (memory.points.size() + kMostPoints - 1) / kMostPoints;
  for (size_t i = 0; i < memory.points.size(); i += stretch) {
    const auto first = memory.points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto last = memory.points.begin() + static_cast<std::ptrdiff_t>(std::min(i + stretch, memory.points.size()));
    const auto highest =
        std::max_element(first, last, [](const MemoryPoint& a, const MemoryPoint& b) { return a.bytes < b.bytes; });
    line.points.push_back({JsonSeconds(first->time), ToGiB(highest->bytes)});
  }
  if (!line.points.empty()) line.points.push_back({JsonSeconds(end), line.points.back().second});
  return line;
}

}  // namespace

std::vector<Chart> ChartsOf(const SearchResult& result) {
  const std::vector<Candidate>& ranked = result.ranked;
  std::vector<std::string> labels;
  for (size_t i = 0; i < ranked.size(); ++i) labels.push_back(LabelOf(i, ranked[i]));
  return {TimeChart("A step of the fastest strategies", labels, [&](size_t i) { return ranked[i].prediction.time; }),
          MemoryChart("Memory of the fullest stage", labels,
                      [&](size_t i) -> const Prediction& { return ranked[i].prediction; })};
}

std::vector<Chart> ChartsOf(const Program& program, const SimulationResult& result) {
  std::vector<std::string> labels;
  for (const RankClass& rank_class : program.classes) labels.push_back(rank_class.name);
  Chart memory{.title = "Memory in use over the step", .x = "seconds", .y = "GiB", .kind = Chart::Kind::kSteps};
  for (size_t c = 0; c < program.classes.size(); ++c) {
    memory.series.push_back(MemoryLine(labels[c], result.classes[c].memory, result.makespan));
  }
  return {TimeChart("A step by stages", labels, [&](size_t c) { return result.classes[c].time.exclusive; }),
          std::move(memory)};
}

std::vector<Chart> ChartsOf(const SweepReport& report) {
  const std::string unit = report.rows ? "rows/s" : "tokens/s";
  std::vector<Chart> charts = {
      SweepChart(report, "Work of the whole cluster", unit,
                 [](const SweepPoint& point) { return point.best->prediction.tokens_per_second; }),
      SweepChart(report, "Model FLOPs utilisation", "%",
                 [](const SweepPoint& point) { return point.best->prediction.mfu * 100; })};
  if (report.tokens <= 0) return charts;
  charts.push_back(SweepChart(report, "The run, failures included", "days",
                              [&](const SweepPoint& point) { return point.RunSeconds(report.tokens) / 86400; }));
  const bool priced = std::any_of(report.points.begin(), report.points.end(),
                                  [](const SweepPoint& point) { return point.price.has_value(); });
  if (!priced) return charts;
  SweepReport with_price = report;
  std::vector<SweepPoint>& points = with_price.points;
  points.erase(std::remove_if(points.begin(), points.end(), [](const SweepPoint& p) { return !p.price.has_value(); }),
               points.end());
  charts.push_back(SweepChart(with_price, "What the run costs", "dollars",
                              [&](const SweepPoint& point) { return point.Dollars(report.tokens); }));
  return charts;
}

}  // namespace meshwright
