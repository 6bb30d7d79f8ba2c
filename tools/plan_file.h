// plan.yaml: what `plan` decides and the other tools take up. It holds everything that a Program is made of, so that it
// can be carried to another machine: the model file's text, the cluster, the strategy.
//
//   schema: meshwright/plan/1
//   tool: meshwright
//   name: gpt3_175b
//   predicted: {step_time: 36123456789 ns, mfu: 0.473, tokens_per_second: 87084.5, peak_memory: 65802338304 B}
//                                                # and `trainer: megatron`, where it is as that trainer runs the plan
//   cluster: {device: a100-sxm-80gb, nodes: 128, devices_per_node: 8}      # costmodel/library.h
//   changes: {precision: float64}                                          # what flags changed about the model
//   strategy:                                                              # ir/strategy.h
//     mesh: "pp=16 dp=8 tp=8"
//     ...
//   config: |2+                                                            # the text of `huggingface:`, if it has that
//     ...
//   model_file: models/configs/gpt3_175b.yaml
//   model: |2+
//     name: gpt3_175b
//     ...
//
// Errors: as ir/document.h says them. Thread safety: pure functions but for reading files.
#ifndef MESHWRIGHT_TOOLS_PLAN_FILE_H_
#define MESHWRIGHT_TOOLS_PLAN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/quantities.h"
#include "ir/strategy.h"
#include "planner/search/evaluate.h"
#include "tools/session.h"

namespace meshwright {

// What the plan promises.
struct PlanPromise {
  Nanos step;
  double mfu = 0;
  double tokens_per_second = 0;
  Bytes peak;
  std::string trainer = {};  // that runs it so (tools/export/writers.h); "": the plan's own program
  friend bool operator==(const PlanPromise&, const PlanPromise&) = default;
};

struct Plan {
  Session session;
  Strategy strategy;
  PlanPromise promise;
};

PlanPromise PromiseOf(const Prediction& prediction, absl::string_view trainer = "");

// Deterministic. ParsePlan gives the same back.
std::string ToYaml(const Plan& plan);

// `changes` are made on top of those of the plan: another precision makes the same strategy a program of that type.
absl::StatusOr<Plan> ParsePlan(const SourceFile& source, const ModelChanges& changes = {});

// The same with the flag --precision as a change. A model file is an error that says so.
absl::StatusOr<Plan> ParsePlan(const SourceFile& source, const Flags& flags);

// The program that the plan means.
absl::StatusOr<Program> ProgramOf(const Plan& plan);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PLAN_FILE_H_
