// A model file as text, planned and run on threads of this process, as `run` does it.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_MODEL_RUN_H_
#define MESHWRIGHT_TESTS_SEMANTICS_MODEL_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/runner.h"
#include "ir/program.h"
#include "tools/plan_file.h"

namespace meshwright {

// The plan for so many ranks of the host. `flags` as `plan` takes them.
absl::StatusOr<Plan> PlanModel(const std::string& text, int64_t ranks, const std::vector<std::string>& flags = {});

struct ModelRun {
  RunResult result;  // with parameters
  Program program;
  std::vector<std::string> notices;
};
absl::StatusOr<ModelRun> RunModel(const std::string& text, int64_t ranks, int64_t steps,
                                  const std::vector<std::string>& flags = {});

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_SEMANTICS_MODEL_RUN_H_
