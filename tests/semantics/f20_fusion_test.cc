// F20: fusion of gradient all-reduces by index, by size, and without either (S10.1 to S10.6).
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One parameter of each of these many float32 elements, each with a row of its own in the loss; on 2 devices.
std::string Parameters(const std::vector<int64_t>& elements, const std::string& parallel,
                       const std::string& device = "host") {
  std::string text = "name: parameters\ninputs: {x: {shape: [2, 1]}, t: {shape: [2]}}\nparameters:\n";
  std::string operators = "operators:\n";
  for (size_t i = 0; i < elements.size(); ++i) {
    absl::StrAppend(&text, "  p", i, ": {shape: [1, ", elements[i], "]}\n");
    absl::StrAppend(&operators, "  - {name: m", i, ", op: Mul, inputs: [x, p", i, "]}\n  - {name: r", i,
                    ", op: ReduceSum, inputs: [m", i, "], axis: 1}\n");
    if (i == 0) continue;
    absl::StrAppend(&operators, "  - {name: s", i, ", op: Add, inputs: [", i == 1 ? "r0" : absl::StrCat("s", i - 1),
                    ", r", i, "]}\n");
  }
  const size_t last = elements.size() - 1;
  absl::StrAppend(&operators, "  - {name: loss, op: MSELoss, inputs: [", last == 0 ? "r0" : absl::StrCat("s", last),
                  ", t]}\n");
  return absl::StrCat(text, operators, "parallel: {parallel_mode: data_parallel", parallel.empty() ? "" : ", ",
                      parallel, "}\ncluster: {device: ", device, ", nodes: 1, devices_per_node: 2}\n");
}

std::vector<int64_t> SizesFor(const std::string& model) {
  const absl::StatusOr<PlannedRun> planned = PlanModel(model);
  EXPECT_OK(planned);
  return planned.ok() ? SizesOfCalls(planned->program, Purpose::kGradient) : std::vector<int64_t>();
}

// S10.2: without a setting, one call in parameter order.
TEST(F20Fusion, OneCallByDefault) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(Parameters({8, 8, 8, 8, 8, 8}, "")));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kGradient), ElementsAre("all_reduce {0,1}: dp0 dp1 dp2 dp3 dp4 dp5"));
  // However large: 5 times 32 MB.
  EXPECT_THAT(SizesFor(Parameters(std::vector<int64_t>(5, 8 << 20), "")), ElementsAre(5));
}

// S10.4.
TEST(F20Fusion, IndexLists) {
  struct Row {
    size_t operators;
    std::string list;
    std::vector<int64_t> sizes;
  };
  const std::vector<Row> rows = {{50, "[20, 35]", {21, 15, 14}}, {36, "[20, 35]", {21, 15}}, {30, "[20, 35]", {21, 9}},
                                 {10, "[20, 35]", {10}},         {6, "[0]", {1, 5}},         {6, "[5]", {6}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(absl::StrCat(row.operators, " operators, ", row.list));
    const std::vector<int64_t> elements(row.operators, 4);
    EXPECT_EQ(SizesFor(Parameters(elements, absl::StrCat("all_reduce_fusion_config: ", row.list))), row.sizes);
    EXPECT_EQ(
        SizesFor(Parameters(elements, absl::StrCat("comm_fusion: {allreduce: {mode: index, config: ", row.list, "}}"))),
        row.sizes);
  }
  // An empty list is the default; entries that no operator has are ignored, and said.
  EXPECT_THAT(SizesFor(Parameters({4, 4}, "all_reduce_fusion_config: []")), ElementsAre(2));
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned,
                       PlanModel(Parameters(std::vector<int64_t>(30, 4), "all_reduce_fusion_config: [20, 35]")));
  EXPECT_THAT(planned.notices, Contains(HasSubstr("35 ignored, there are 30 gradients")));
}

// Of a decoder the list counts through the layers, whose parameters are stored once. The embedding, number 0, is
// reduced last; the other two segments end in layer 0, so both are ready there.
TEST(F20Fusion, IndexListsOfLayers) {
  const auto decoder = [](absl::string_view fusion) {
    return PlanModel(absl::StrCat(R"(name: tiny
architecture: {decoder: {layers: 3, hidden: 16, heads: 2, vocab: 128, ffn: 64, positions: rotary}}
training: {batch: 8, sequence: 16, dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {data_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 2, recompute: none,
           enable_parallel_optimizer: false, )",
                                  fusion, "}\ncluster: {device: host, nodes: 1, devices_per_node: 2}\n"));
  };
  ASSERT_OK_AND_ASSIGN(const PlannedRun alone, decoder("comm_fusion: {openstate: false}"));
  const std::vector<int64_t> sizes = SizesOfCalls(alone.program, Purpose::kGradient);
  EXPECT_THAT(sizes, Each(1));
  const auto all = static_cast<int64_t>(sizes.size());
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(alone.program, 2));
  for (const char* list :
       {"all_reduce_fusion_config: [0, 5]", "comm_fusion: {allreduce: {mode: index, config: [0, 5]}}"}) {
    ASSERT_OK_AND_ASSIGN(const PlannedRun by_index, decoder(list));
    EXPECT_THAT(SizesOfCalls(by_index.program, Purpose::kGradient), ElementsAre(5, all - 6, 1)) << list;
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(by_index.program, 2));
    EXPECT_EQ(found.losses, expected.losses);
  }
}

// S10.6, MB = 2^20 bytes = 262,144 float32 elements.
TEST(F20Fusion, SizeRule) {
  const auto sizes = [](const std::vector<int64_t>& bytes, int64_t limit) {
    std::vector<int64_t> elements;
    for (int64_t b : bytes) elements.push_back(b / 4);
    return SizesFor(Parameters(elements, absl::StrCat("comm_fusion: {allreduce: {mode: size, config: ", limit, "}}")));
  };
  constexpr int64_t kMb = 1 << 20;
  EXPECT_THAT(sizes({20 * kMb, 30 * kMb, 20 * kMb, 70 * kMb, 1 * kMb}, 64), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(sizes(std::vector<int64_t>(4, 32 * kMb), 32), ElementsAre(1, 1, 1, 1));
  const std::vector<int64_t> seed_a = {1605632, 2048, 1048576, 2048, 20480, 40};
  EXPECT_THAT(sizes(seed_a, 64), ElementsAre(6));
  EXPECT_THAT(sizes(seed_a, 2), ElementsAre(2, 4));
  EXPECT_THAT(sizes(seed_a, 1), ElementsAre(1, 1, 1, 3));
  // auto is a size of 64 MB.
  const std::vector<int64_t> elements = {20 * kMb / 4, 30 * kMb / 4, 20 * kMb / 4};
  EXPECT_THAT(SizesFor(Parameters(elements, "comm_fusion: {allreduce: {mode: auto, config: None}}")),
              ElementsAre(2, 1));
}

// S10.5: openstate false fuses nothing; of two settings the later one holds, with a warning.
TEST(F20Fusion, OpenstateAndTheLaterSetting) {
  EXPECT_THAT(SizesFor(Parameters({4, 4, 4}, "comm_fusion: {openstate: false}")), ElementsAre(1, 1, 1));
  const std::string list = "all_reduce_fusion_config: [0]";
  const std::string map = "comm_fusion: {allreduce: {mode: index, config: [1]}}";
  EXPECT_THAT(SizesFor(Parameters({4, 4, 4}, absl::StrCat(list, ", ", map))), ElementsAre(2, 1));
  EXPECT_THAT(SizesFor(Parameters({4, 4, 4}, absl::StrCat(map, ", ", list))), ElementsAre(1, 2));
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(Parameters({4, 4, 4}, absl::StrCat(list, ", ", map))));
  EXPECT_THAT(planned.notices, Contains(HasSubstr("comm_fusion, the later, holds")));
}

// S10.1: fusion changes calls, not values.
TEST(F20Fusion, LossesAreTheSame) {
  ASSERT_OK_AND_ASSIGN(const RunResult fused, RunModel(OracleB("parallel_mode: data_parallel", 8, {}), 6));
  ASSERT_OK_AND_ASSIGN(const RunResult alone,
                       RunModel(OracleB("parallel_mode: data_parallel, comm_fusion: {openstate: false}", 8, {}), 6));
  ASSERT_OK_AND_ASSIGN(const RunResult by_index,
                       RunModel(OracleB("parallel_mode: data_parallel, all_reduce_fusion_config: [0]", 8, {}), 6));
  EXPECT_EQ(fused.losses, alone.losses);
  EXPECT_EQ(fused.losses, by_index.losses);
}

// What the simulator says: on two H100s, 50 gradients of 16 bytes in 50 calls cost 50 latencies, in one call one.
TEST(F20Fusion, FewerCallsCostFewerLatencies) {
  const std::vector<int64_t> elements(50, 4);
  const auto step = [&](const std::string& parallel) {
    const absl::StatusOr<PlannedRun> planned = PlanModel(Parameters(elements, parallel, "h100-sxm"));
    EXPECT_OK(planned);
    return planned.ok() ? planned->prediction.time[TimeUse::kGradientCollective] : Nanos();
  };
  const Nanos one = step(""), three = step("all_reduce_fusion_config: [20, 35]");
  const Nanos fifty = step("comm_fusion: {openstate: false}");
  EXPECT_GT(one, Nanos(0));
  EXPECT_GT(three.raw(), 2 * one.raw());
  EXPECT_LT(three.raw(), 4 * one.raw());
  EXPECT_GT(fifty.raw(), 10 * three.raw());
}

void ExpectError(const std::string& parallel, absl::string_view kind) {
  const absl::Status status = PlanModel(Parameters({4, 4}, parallel)).status();
  EXPECT_EQ(KindOf(status), kind) << parallel << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.yaml:")) << parallel;
}

// R19, R20 and the rest of S10.5.
TEST(F20Fusion, Errors) {
  ExpectError("all_reduce_fusion_config: [35, 20]", "E-VALUE");
  ExpectError("all_reduce_fusion_config: [20, 20]", "E-VALUE");
  ExpectError("all_reduce_fusion_config: [-1]", "E-VALUE");
  ExpectError("all_reduce_fusion_config: [a]", "E-TYPE");
  ExpectError("comm_fusion: {allgather: {mode: index, config: [1]}}", "E-KEY");
  ExpectError("comm_fusion: {reducescatter: {mode: index, config: [1]}}", "E-KEY");
  ExpectError("comm_fusion: {allreduce: {config: [1]}}", "E-KEY");
  ExpectError("comm_fusion: {allreduce: {mode: size}}", "E-KEY");
  ExpectError("comm_fusion: {alltoall: {mode: auto, config: None}}", "E-KEY");
  ExpectError("comm_fusion: {allreduce: {mode: best, config: None}}", "E-KEY");
  ExpectError("comm_fusion: {allreduce: {mode: auto, config: 5}}", "E-VALUE");
  ExpectError("comm_fusion: {allreduce: {mode: size, config: 0}}", "E-VALUE");
}

}  // namespace
}  // namespace meshwright
