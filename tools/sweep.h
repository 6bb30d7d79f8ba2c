// whatif: the best plan for each of several clusters, side by side.
//
// The knee of a device is the largest count that still does kKneeShare of the work per device that its best count does:
// beyond it, devices are bought for little.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_SWEEP_H_
#define MESHWRIGHT_TOOLS_SWEEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "costmodel/goodput.h"
#include "ir/cluster.h"
#include "planner/search/search.h"
#include "tools/json_text.h"

namespace meshwright {

inline constexpr double kKneeShare = 0.8;

// "64..4096" (doubling from 64 on), "8,24,64", or both: "8,64..1024". Ascending, each once.
absl::StatusOr<std::vector<int64_t>> ParseCounts(absl::string_view text);

// The problem of a point that is left out of the sweep: "left out: " and why, without the place in `file` that all
// points have in common.
std::string LeftOut(absl::string_view why, absl::string_view file);

struct SweepPoint {
  std::string device;
  int64_t devices = 0;
  std::optional<DevicePrice> price;
  std::optional<Candidate> best;
  std::optional<Prediction> at_slowest;  // of the best (tools/slowest_device.h), where no trainer runs it
  int64_t idle = 0;                      // devices that the best leaves idle; they count as all others do
  std::string problem;                   // where there is no best: why
  bool smallest = false, knee = false;
  double goodput = 1;  // the share of a run's time that goes into steps that count (costmodel/goodput.h)

  // For a run of `tokens`, where there is a best: at the pace of the slowest device, failures and checkpoints included.
  // Dollars: 0 without a price.
  double RunSeconds(double tokens) const;
  double DeviceHours(double tokens) const;
  double Dollars(double tokens) const;
};

// Marks, for each device, the smallest count that fits and the knee. Points of a device stand together, by count.
void MarkPoints(std::vector<SweepPoint>& points);

struct SweepReport {
  std::string name;
  std::string trainer = {};      // "Megatron-LM", which runs the plans; "": their own programs
  std::string batch;             // "1,536 x 2,048 tokens"
  bool rows = false;             // of samples, not tokens
  double tokens = 0;             // of the whole run; 0: not asked
  double days = 0, dollars = 0;  // that the run may take; 0: not asked
  Reliability reliability;
  std::vector<SweepPoint> points;

  bool IsWithin(const SweepPoint& point) const;
};

// Of the points that keep days and dollars, the one that costs least; of those of the same cost the first. Where none
// of them has a price, and no dollars are asked, the one with the fewest device-hours. Null: none.
const SweepPoint* CheapestWithin(const SweepReport& report);

std::string ToText(const SweepReport& report);  // 80 columns
Json ToJson(const SweepReport& report);
std::string ToCsv(const SweepReport& report);  // RFC 4180, units in the header

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_SWEEP_H_
