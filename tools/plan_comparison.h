// Two plans beside each other: what they choose differently, and what each would take of time and memory.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_PLAN_COMPARISON_H_
#define MESHWRIGHT_TOOLS_PLAN_COMPARISON_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/search/evaluate.h"
#include "tools/export/writers.h"
#include "tools/json_text.h"
#include "tools/plan_file.h"

namespace meshwright {

// What is written differently in two plans: "tensor_parallel", {"8", "-"}. A dash: it is not written there.
struct Choice {
  std::string name;
  std::array<std::string, 2> values;
  friend bool operator==(const Choice&, const Choice&) = default;
};

struct PlanComparison {
  std::array<std::string, 2> files;
  std::array<Prediction, 2> predictions;  // of each on its own cluster, simulated now
  // Whose runs these are of, where both plans are for one trainer; else of our own program, and what else they are for.
  const Trainer* trainer = nullptr;
  std::string note = {};
  std::vector<Choice> choices;  // model, batch and cluster too where they differ; in the order of plan.yaml
};

// Errors: those of Evaluate.
absl::StatusOr<PlanComparison> ComparePlans(const std::array<std::string, 2>& files, const Plan& a, const Plan& b);

std::string ToText(const PlanComparison& comparison);  // 80 columns
Json ToJson(const PlanComparison& comparison);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PLAN_COMPARISON_H_
