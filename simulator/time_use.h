// What a device spends its time on: one row per kind of use, exclusive, so that the uses of a step add up to the step.
//
// Thread safety: constants and pure functions.
#ifndef MESHWRIGHT_SIMULATOR_TIME_USE_H_
#define MESHWRIGHT_SIMULATOR_TIME_USE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"
#include "ir/program.h"
#include "ir/quantities.h"

namespace meshwright {

enum class TimeUse : uint8_t {
  kForward,
  kBackward,
  kRecompute,
  kOptimizer,
  kActivationCollective,
  kGradientCollective,
  kParameterCollective,
  kReportCollective,
  kTransfer,
  kContention,
  kWait,
};

struct TimeUseInfo {
  TimeUse use;
  absl::string_view name;  // as reports spell it
};

inline constexpr TimeUseInfo kTimeUses[] = {
    {TimeUse::kForward, "forward"},
    {TimeUse::kBackward, "backward"},
    {TimeUse::kRecompute, "recompute"},  // second runs of forward ops
    {TimeUse::kOptimizer, "optimizer"},  // all kernels of a block that holds an optimizer op
    // Collectives by purpose; permutations of pieces among ranks count as activation collectives.
    {TimeUse::kActivationCollective, "activation collectives"},
    {TimeUse::kGradientCollective, "gradient collectives"},
    {TimeUse::kParameterCollective, "parameter collectives"},
    {TimeUse::kReportCollective, "report collectives"},
    {TimeUse::kTransfer, "transfers"},     // between stages, while they run
    {TimeUse::kContention, "contention"},  // what sharing the device added to kernels and collectives of this stream
    {TimeUse::kWait, "pipeline bubble"},   // waiting for another stage: to begin, to be met, to end
};
inline constexpr size_t kNumTimeUses = std::size(kTimeUses);

constexpr bool TimeUseRowsAreInOrder() {
  for (size_t i = 0; i < kNumTimeUses; ++i) {
    if (kTimeUses[i].use != static_cast<TimeUse>(i)) return false;
  }
  return kNumTimeUses == static_cast<size_t>(TimeUse::kWait) + 1;
}
static_assert(TimeUseRowsAreInOrder(), "kTimeUses needs one row per TimeUse, in the enum's order");

constexpr absl::string_view NameOf(TimeUse use) { return kTimeUses[static_cast<size_t>(use)].name; }

// Time by use.
class TimeUses {
 public:
  Nanos& operator[](TimeUse use) { return times_[static_cast<size_t>(use)]; }
  Nanos operator[](TimeUse use) const { return times_[static_cast<size_t>(use)]; }
  Nanos Total() const {
    Nanos total;
    for (const Nanos time : times_) total += time;
    return total;
  }
  friend bool operator==(const TimeUses&, const TimeUses&) = default;

 private:
  std::array<Nanos, kNumTimeUses> times_ = {};
};

// `optimizer`: the instruction stands in a block that holds an optimizer op.
TimeUse UseOf(const Instruction& instruction, Phase phase, bool optimizer);
bool HoldsOptimizer(const Block& block);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_TIME_USE_H_
