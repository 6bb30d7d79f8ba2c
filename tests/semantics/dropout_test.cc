// S5.10 and S1.6: a random mask belongs to the rows of the step's whole batch. So one rank that takes the batch at once
// trains as ranks that split it in any way do, and as micro-batches do: losses and parameters agree, where every
// operator drops a different half of what it reads.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"
#include "tests/semantics/play.h"

namespace meshwright {
namespace {

// Rows in front, behind another dim, and with one inside of them; a mask of a parameter, which has no rows. The sum of
// squares over micro-batches is that over the batch.
constexpr char kModel[] = R"(name: masks
inputs: {x: {shape: [16, 2, 8]}, t: {shape: [16, 8]}}
parameters:
  w: {shape: [8, 8], init: {normal: 0.5}}
  u: {shape: [16, 8], init: {normal: 0.5}}
operators:
  - {name: flat, op: Reshape, inputs: [x], shape: [-1, 8]}
  - {name: h, op: MatMul, inputs: [flat, w]COLUMNSFIRST}
  - {name: inside, op: Dropout, inputs: [h], rate: 0.5UNARYAGAIN}
  - {name: parted, op: Reshape, inputs: [inside], shape: [-1, 2, 8]}
  - {name: turned, op: Transpose, inputs: [parted], perm: [1, 0, 2]}
  - {name: behind, op: Dropout, inputs: [turned], rate: 0.5AGAIN}
  - {name: back, op: Transpose, inputs: [behind], perm: [1, 0, 2]}
  - {name: rows, op: Reshape, inputs: [back], shape: [-1, 16]}
  - {name: few, op: Dropout, inputs: [u], rate: 0.25}
  - {name: y, op: MatMul, inputs: [rows, few]COLUMNSSECOND}
  - {name: front, op: Dropout, inputs: [y], rate: 0.5UNARYAGAIN}
  - {name: loss, op: MSELoss, inputs: [front, t]}
training: {dtype: float64, gradient_dtype: float64, loss_reduction: sum, optimizer: {momentum: {learning_rate: 0.0002}}}
parallel: {PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)";

struct Case {
  std::string name;
  int64_t devices = 1;
  std::string parallel;
  std::string columns = {}, unary = {}, again = {};
  bool stages = false;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

std::string Model(const Case& c) {
  const std::string mode = absl::StrCat("parallel_mode: semi_auto_parallel", c.parallel.empty() ? "" : ", ");
  return absl::StrReplaceAll(kModel, {{"PARALLEL", mode + c.parallel},
                                      {"DEVICES", absl::StrCat(c.devices)},
                                      {"COLUMNS", c.columns},
                                      {"UNARY", c.unary},
                                      {"FIRST", c.stages ? ", pipeline_stage: 0" : ""},
                                      {"SECOND", c.stages ? ", pipeline_stage: 1" : ""},
                                      {"AGAIN", c.again}});
}

absl::StatusOr<RunResult> Train(const std::string& model) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const PlannedRun planned, PlanModel(model));
  RunOptions options;
  options.steps = 3;
  options.batches = planned.batches;
  options.trace = false;
  options.keep_parameters = true;
  return Play(planned.program, options, SyntheticData(1));
}

class DropoutTest : public testing::TestWithParam<Case> {};

TEST_P(DropoutTest, TrainsAsOneRankWithTheWholeBatch) {
  ASSERT_OK_AND_ASSIGN(const RunResult whole, Train(Model({})));
  ASSERT_OK_AND_ASSIGN(const RunResult found, Train(Model(GetParam())));
  ExpectSameTraining(found, whole, 1e-12);
}

constexpr char kColumns[] = ", shard: [[1, 1], [1, 2]]", kHalves[] = ", shard: [[1, 2]]";
constexpr char kAgain[] = ", recompute: true";
std::string Accumulated(int64_t microbatches, absl::string_view more = "") {
  return absl::StrCat("grad_accumulation_step: ", microbatches, more);
}
std::string Piped(int64_t microbatches, absl::string_view schedule) {
  return absl::StrCat("pipeline_stages: 2, micro_batches: ", microbatches,
                      ", pipeline_config: {pipeline_scheduler: ", schedule, "}");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, DropoutTest,
    testing::Values(Case{"one_rank_2", 1, Accumulated(2)}, Case{"one_rank_4", 1, Accumulated(4)},
                    Case{"one_rank_16", 1, Accumulated(16)}, Case{"rows_2", 2, ""},
                    // Every rank's part of a micro-batch is of its own batch (S12.3), or of one for all.
                    Case{"rows_2_2", 2, Accumulated(2)}, Case{"rows_4_2", 4, Accumulated(2)},
                    Case{"rows_8_2", 8, Accumulated(2)},
                    Case{"rows_2_4_full_batch", 2, Accumulated(4, ", dataset_strategy: full_batch")},
                    Case{"columns_2_2", 2, Accumulated(2), kColumns, kHalves},
                    Case{"columns_2_4_again", 2, Accumulated(4), kColumns, kHalves, kAgain},
                    Case{"again_2", 1, Accumulated(2), "", "", kAgain},
                    Case{"stages_4", 2, Piped(4, "1f1b"), "", "", "", true},
                    Case{"stages_4_gpipe_again", 2, Piped(4, "gpipe"), "", "", kAgain, true},
                    Case{"stages_4_zero_bubble", 2, Piped(4, "zero_bubble_h1"), "", "", "", true},
                    Case{"stages_of_rows_4", 4, Piped(4, "1f1b"), "", "", "", true},
                    Case{"stages_of_columns_2", 4, Piped(2, "1f1b"), kColumns, kHalves, "", true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshwright
