// What torch.profiler recorded of one rank, beside what a plan predicts of it: `compare plan.yaml trace.json`.
//
// Both steps are cut into the same kinds of work. Predicted is the plan's own program, simulated as `simulate` does;
// what a trainer does besides is known for the step as a whole only. Measured are the kernels that ran, known by their
// names (tools/kernel_kinds.h).
//
// Ranks are numbered as the plan's, stages outermost, as trainers number them unless they are told otherwise.
//
// Communication is not the same on both sides: a measured collective contains the wait for the rank that comes last,
// while simulated ranks of a stage come together, and wait for other stages outside of it.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_PROFILE_PROFILE_COMPARISON_H_
#define MESHWRIGHT_TOOLS_PROFILE_PROFILE_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/quantities.h"
#include "tools/json_text.h"
#include "tools/plan_file.h"
#include "tools/profile/device_use.h"
#include "tools/profile/profile_trace.h"

namespace meshwright {

struct ProfileComparison {
  std::string plan, trace;  // their files
  std::string device;       // of the trace
  int64_t rank = 0, ranks = 1;
  std::string stage;                                 // that the rank belongs to: "stage 0"
  ProfileWindow window;                              // of the trace
  DeviceUse predicted, measured;                     // of a step
  std::string trainer;                               // that the plan is for; "": none
  std::optional<Nanos> as_trainer;                   // the step as that runs it, where it is known
  std::optional<double> cpu_slowdown;                // with which it is predicted to take as long, where it idles
  std::vector<std::pair<std::string, Nanos>> other;  // kernels of no known kind, the longest first: time in a step
  std::vector<std::string> notes;                    // a sentence each
};

// kInvalidArgument, with the trace's file: another number of ranks than the plan's, a rank that it does not have, steps
// of no time. kResourceExhausted: too many instructions to look at one by one. Else errors of Evaluate and Simulate.
absl::StatusOr<ProfileComparison> CompareWithProfile(const std::string& file, const Plan& plan,
                                                     const ProfileTrace& trace);

// 80 columns but for the trace's file; at most `most` sorts of calls, those that differ most.
std::string ToText(const ProfileComparison& comparison, size_t most);
Json ToJson(const ProfileComparison& comparison);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PROFILE_PROFILE_COMPARISON_H_
