#include "tools/sweep.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

constexpr int64_t kMostDevices = int64_t{1} << 32;
constexpr double kSecondsPerDay = 86400;

double WorkPerDevice(const SweepPoint& point) {
  return point.best->prediction.tokens_per_second / static_cast<double>(point.devices);
}

// The best work per device among the points of `device`.
double BestWork(const std::vector<SweepPoint>& points, const std::string& device) {
  double best = 0;
  for (const SweepPoint& point : points) {
    if (point.device == device && point.best.has_value()) best = std::max(best, WorkPerDevice(point));
  }
  return best;
}

// The first sentence without its remedy, in lines of so many characters behind an indentation, at most kMostLines.
std::string ShowProblem(const std::string& text, size_t indentation) {
  constexpr size_t kColumns = 80, kMostLines = 3;
  const std::string part = text.substr(0, std::min({text.find('\n'), text.find(". "), text.find("; ")}));
  std::vector<std::string> lines(1);
  for (const absl::string_view word : absl::StrSplit(part, ' ')) {
    if (!lines.back().empty() && indentation + lines.back().size() + 1 + word.size() > kColumns) {
      if (lines.size() == kMostLines) {
        lines.back() += " ...";
        break;
      }
      lines.emplace_back();
    }
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  return absl::StrJoin(lines, "\n" + std::string(indentation, ' '));
}

std::string CsvCell(std::string cell) {
  if (!cell.empty() && absl::string_view("=+-@").find(cell[0]) != absl::string_view::npos) cell.insert(0, "'");
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  return absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
}

// Of a device of which no number fits: what the plan of the last one says would fit.
std::string ShowWayOut(const SweepPoint& last) {
  const size_t begin = last.problem.find("What would ");
  if (begin == std::string::npos) return "";
  const absl::string_view what = absl::string_view(last.problem).substr(begin);
  return absl::StrCat("  of ", ShowCount(last.devices), ": ", ShowProblem(std::string(absl::StripSuffix(what, ".")), 4),
                      "\n");
}

std::string ShowPoint(const SweepReport& report, const SweepPoint& point, double best_work) {
  if (!point.best.has_value()) {
    return absl::StrFormat("%8s  %s\n", ShowCount(point.devices), ShowProblem(point.problem, 10));
  }
  const Prediction& p = point.best->prediction;
  std::string line =
      absl::StrFormat("%8s %8s %8s %6s %6.0f %%", ShowCount(point.devices), ShowTime(p.step),
                      ShowLarge(p.tokens_per_second), ShowPercent(p.mfu), WorkPerDevice(point) / best_work * 100);
  if (report.tokens > 0) {
    absl::StrAppend(
        &line, absl::StrFormat(" %7s %8s %8s", ShowPercent(point.goodput), ShowSeconds(point.RunSeconds(report.tokens)),
                               ShowLarge(point.DeviceHours(report.tokens))));
    absl::StrAppend(&line, absl::StrFormat(" %8s", point.price.has_value() ? ShowDollars(point.Dollars(report.tokens))
                                                                           : std::string("-")));
  }
  if (point.smallest) line += " s";
  if (point.knee) line += " k";
  if (point.idle > 0) absl::StrAppend(&line, "\n          ", ShowCount(point.idle), " of them idle");
  return line + "\n";
}

std::string ShowRun(const SweepReport& report, const SweepPoint& point) {
  const std::string cost = point.price.has_value() ? absl::StrCat(", ", ShowDollars(point.Dollars(report.tokens))) : "";
  return absl::StrCat(ShowCount(point.devices), " ", point.device, ", ", ShowSeconds(point.RunSeconds(report.tokens)),
                      cost);
}

// The point with the shortest run, or null.
const SweepPoint* Fastest(const SweepReport& report) {
  const SweepPoint* fastest = nullptr;
  for (const SweepPoint& point : report.points) {
    if (!point.best.has_value()) continue;
    if (fastest == nullptr || point.RunSeconds(report.tokens) < fastest->RunSeconds(report.tokens)) fastest = &point;
  }
  return fastest;
}

// What to buy. Where nothing keeps the limits: what keeps each of the two alone, or comes nearest to it.
std::string ShowAnswer(const SweepReport& report) {
  if (report.days == 0 && report.dollars == 0) return "";
  SweepReport only_days = report, only_dollars = report, unlimited = report;
  only_days.dollars = only_dollars.days = unlimited.dollars = unlimited.days = 0;
  const std::string days = absl::StrCat(ShortestNumber(report.days), " days"), dollars = ShowDollars(report.dollars);
  const bool both = report.days > 0 && report.dollars > 0;
  const std::string limits = both ? absl::StrCat(days, " and ", dollars) : report.days > 0 ? days : dollars;
  if (const SweepPoint* best = CheapestWithin(report); best != nullptr) {
    return absl::StrCat("\nthe cheapest within ", limits, ": ", ShowRun(report, *best), "\n");
  }
  std::string text = absl::StrCat("\nnothing here is within ", limits, "\n");
  const auto add = [&](absl::string_view limit, const SweepReport& alone, absl::string_view which,
                       const SweepPoint* nearest) {
    if (const SweepPoint* best = CheapestWithin(alone); best != nullptr) {
      absl::StrAppend(&text, "within ", limit, " alone: ", ShowRun(report, *best), "\n");
    } else if (nearest != nullptr) {
      absl::StrAppend(&text, which, " here: ", ShowRun(report, *nearest), "\n");
    }
  };
  if (report.days > 0) add(days, only_days, "the fastest", Fastest(report));
  if (report.dollars > 0) add(dollars, only_dollars, "the cheapest", CheapestWithin(unlimited));
  return text;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseCounts(absl::string_view text) {
  std::set<int64_t> counts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t dots = part.find("..");
    if (dots == absl::string_view::npos) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t count, ParseInt(part, 1, kMostDevices));
      counts.insert(count);
      continue;
    }
    const absl::StatusOr<int64_t> first = ParseInt(part.substr(0, dots), 1, kMostDevices);
    const absl::StatusOr<int64_t> last =
        first.ok() ? ParseInt(part.substr(dots + 2), *first, kMostDevices) : first.status();
    if (!last.ok()) return WrongInput(QuoteForMessage(part), "two numbers, the smaller first, e.g. 64..4096");
    for (int64_t count = *first; count <= *last; count *= 2) counts.insert(count);
  }
  return std::vector<int64_t>(counts.begin(), counts.end());
}

std::string LeftOut(absl::string_view why, absl::string_view file) {
  absl::string_view reason = why;
  if (absl::ConsumePrefix(&reason, absl::StrCat(file, ":"))) {
    reason.remove_prefix(std::min(reason.size(), reason.find(": ") + 2));
  }
  return absl::StrCat("left out: ", reason);
}

double SweepPoint::RunSeconds(double tokens) const {
  return tokens / (at_slowest.has_value() ? *at_slowest : best->prediction).tokens_per_second / goodput;
}
double SweepPoint::DeviceHours(double tokens) const { return RunSeconds(tokens) / 3600 * static_cast<double>(devices); }
double SweepPoint::Dollars(double tokens) const {
  return price.has_value() ? DeviceHours(tokens) * price->dollars_per_hour : 0;
}

void MarkPoints(std::vector<SweepPoint>& points) {
  std::set<std::string> devices;
  for (const SweepPoint& point : points) devices.insert(point.device);
  for (const std::string& device : devices) {
    const double best = BestWork(points, device);
    SweepPoint *smallest = nullptr, *knee = nullptr;
    for (SweepPoint& point : points) {
      if (point.device != device || !point.best.has_value()) continue;
      if (smallest == nullptr) smallest = &point;
      if (WorkPerDevice(point) >= kKneeShare * best) knee = &point;
    }
    if (smallest != nullptr) smallest->smallest = true;
    if (knee != nullptr) knee->knee = true;
  }
}

bool SweepReport::IsWithin(const SweepPoint& point) const {
  if (!point.best.has_value()) return false;
  if (days > 0 && point.RunSeconds(tokens) > days * kSecondsPerDay) return false;
  return dollars == 0 || (point.price.has_value() && point.Dollars(tokens) <= dollars);
}

const SweepPoint* CheapestWithin(const SweepReport& report) {
  const SweepPoint* best = nullptr;
  const auto is_better = [&](const SweepPoint& point) {
    if (best == nullptr || point.price.has_value() != best->price.has_value()) {
      return best == nullptr || point.price.has_value();
    }
    if (!point.price.has_value()) return point.DeviceHours(report.tokens) < best->DeviceHours(report.tokens);
    return point.Dollars(report.tokens) < best->Dollars(report.tokens);
  };
  for (const SweepPoint& point : report.points) {
    if (report.IsWithin(point) && is_better(point)) best = &point;
  }
  return best;
}

std::string ToText(const SweepReport& report) {
  std::string text = absl::StrCat(report.name, ": ", report.batch, " a step");
  if (report.tokens > 0) {
    absl::StrAppend(&text, ", ", ShowLarge(report.tokens), report.rows ? " rows" : " tokens", " in all");
  }
  text += "\n";
  if (!report.trainer.empty()) {
    absl::StrAppend(&text, "as ", report.trainer, " runs it, at the pace of the slowest device\n");
  }
  std::string device;
  for (size_t i = 0; i < report.points.size(); ++i) {
    const SweepPoint& point = report.points[i];
    if (point.device != device) {
      device = point.device;
      absl::StrAppend(&text, "\n", device);
      if (point.price.has_value()) {
        absl::StrAppend(&text, ", ", ShowDollars(point.price->dollars_per_hour), " a device-hour (",
                        point.price->source, ")");
      }
      absl::StrAppend(&text, "\n",
                      absl::StrFormat("%8s %8s %8s %6s %8s", "devices", "step", report.rows ? "rows/s" : "tokens/s",
                                      "MFU", "per dev."));
      if (report.tokens > 0)
        absl::StrAppend(&text, absl::StrFormat(" %7s %8s %8s %8s", "goodput", "run", "dev.-h", "cost"));
      text += "\n";
    }
    const double best_work = BestWork(report.points, device);
    text += ShowPoint(report, point, best_work);
    const bool is_last = i + 1 == report.points.size() || report.points[i + 1].device != device;
    if (is_last && best_work == 0) text += ShowWayOut(point);
  }
  text += ShowAnswer(report);
  absl::StrAppend(
      &text, "\nper dev.: work of a device, against the best row of its kind\n", "s: the smallest count that fits\n",
      absl::StrFormat("k: the knee, the most devices that do %.0f %% of the best work per device\n", kKneeShare * 100));
  if (report.tokens > 0) {
    const Reliability& r = report.reliability;
    absl::StrAppend(&text, "goodput: the share of the run in steps that count, with ",
                    absl::StrFormat("%.3g", r.failures_per_device_hour * 1e6),
                    " failures in a million device-hours,\n         a checkpoint of ",
                    ShowSeconds(ToSeconds(r.checkpoint)), " as often as is best, restarts of ",
                    ShowSeconds(ToSeconds(r.restart)),
                    "\nrun, dev.-h, cost: with that, at the pace of the slowest device; the other columns are those of "
                    "plan\n");
  }
  return text;
}

Json ToJson(const SweepReport& report) {
  Json out;
  out["schema"] = "meshwright/whatif/1";
  out["name"] = report.name;
  if (!report.trainer.empty()) out["trainer"] = report.trainer;
  out["tokens"] = report.tokens;
  out["knee_share"] = kKneeShare;
  const bool limited = report.days > 0 || report.dollars > 0;
  if (report.days > 0) out["days"] = report.days;
  if (report.dollars > 0) out["budget_usd"] = report.dollars;
  if (const SweepPoint* best = CheapestWithin(report); limited) {
    out["cheapest_within"] =
        best == nullptr ? Json(nullptr) : Json{{"device", best->device}, {"devices", best->devices}};
  }
  Json points = Json::array();
  for (const SweepPoint& point : report.points) {
    Json row;
    row["device"] = point.device;
    row["devices"] = point.devices;
    row["fits"] = point.best.has_value();
    if (!point.best.has_value()) {
      row["problem"] = point.problem;
      points.push_back(std::move(row));
      continue;
    }
    const Prediction& p = point.best->prediction;
    row["step_time_s"] = JsonSeconds(p.step);
    row["tokens_per_second"] = p.tokens_per_second;
    row["mfu"] = p.mfu;
    row["peak_memory_bytes"] = p.peak.raw();
    row["idle_devices"] = point.idle;
    if (point.at_slowest.has_value()) {
      row["at_slowest_device"] = Json{{"step_time_s", JsonSeconds(point.at_slowest->step)},
                                      {"tokens_per_second", point.at_slowest->tokens_per_second},
                                      {"mfu", point.at_slowest->mfu}};
    }
    row["smallest_that_fits"] = point.smallest;
    row["knee"] = point.knee;
    if (report.tokens > 0) {
      row["goodput"] = point.goodput;
      row["run_s"] = point.RunSeconds(report.tokens);
      row["device_hours"] = point.DeviceHours(report.tokens);
      if (point.price.has_value()) row["cost_usd"] = point.Dollars(report.tokens);
      if (limited) row["within"] = report.IsWithin(point);
    }
    points.push_back(std::move(row));
  }
  out["points"] = std::move(points);
  return out;
}

std::string ToCsv(const SweepReport& report) {
  std::string text =
      "device,devices,fits,step_time_s,step_time_at_slowest_device_s,tokens_per_second,mfu,peak_memory_bytes,goodput,"
      "run_s,device_hours,cost_usd,"
      "smallest_that_fits,knee,problem,idle_devices\r\n";
  for (const SweepPoint& point : report.points) {
    absl::StrAppend(&text, CsvCell(point.device), ",", point.devices, ",", point.best.has_value() ? "true" : "false");
    if (!point.best.has_value()) {
      absl::StrAppend(&text, ",,,,,,,,,,,,", CsvCell(point.problem), ",\r\n");
      continue;
    }
    const Prediction& p = point.best->prediction;
    absl::StrAppend(&text, ",", ShortestNumber(JsonSeconds(p.step)), ",",
                    point.at_slowest.has_value() ? ShortestNumber(JsonSeconds(point.at_slowest->step)) : "", ",",
                    ShortestNumber(p.tokens_per_second), ",", ShortestNumber(p.mfu), ",", p.peak.raw());
    const bool budget = report.tokens > 0;
    absl::StrAppend(&text, ",", budget ? ShortestNumber(point.goodput) : "", ",",
                    budget ? ShortestNumber(point.RunSeconds(report.tokens)) : "", ",",
                    budget ? ShortestNumber(point.DeviceHours(report.tokens)) : "", ",",
                    budget && point.price.has_value() ? ShortestNumber(point.Dollars(report.tokens)) : "");
    absl::StrAppend(&text, ",", point.smallest ? "true" : "false", ",", point.knee ? "true" : "false", ",,", point.idle,
                    "\r\n");
  }
  return text;
}

}  // namespace meshwright
