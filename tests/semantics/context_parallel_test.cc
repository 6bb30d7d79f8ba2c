// Context parallelism: ranks share every sequence, through attention too (planner/passes/split_context.h).
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, vocab: 128, FAMILY}
training: {batch: 4, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {PARALLEL}
cluster: {device: host, nodes: NODES, devices_per_node: DEVICES}
)";
constexpr char kGpt[] = "heads: 4, ffn: 64, bias: true, tied_embeddings: true";
constexpr char kLlama[] =
    "heads: 8, kv_heads: 4, ffn: 64, activation: swiglu, norm: rms_norm, positions: rotary, tied_embeddings: false";

// With room for all tokens in each expert, as capacity that is counted by parts of a sequence asks for.
constexpr char kExperts[] =
    "heads: 8, kv_heads: 4, ffn: 32, activation: swiglu, norm: rms_norm, positions: rotary, tied_embeddings: false, "
    "experts: 8, experts_per_token: 2, shared_expert_ffn: 16, capacity_factor: 4";

std::string Model(absl::string_view family, int64_t devices, absl::string_view parallel, int64_t nodes = 1) {
  return absl::StrReplaceAll(kModel, {{"FAMILY", family},
                                      {"PARALLEL", parallel},
                                      {"NODES", absl::StrCat(nodes)},
                                      {"DEVICES", absl::StrCat(devices / nodes)}});
}

struct Case {
  std::string name;
  int64_t devices;
  std::string parallel;
  int64_t nodes = 1;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class ContextParallelTest : public testing::TestWithParam<Case> {};

// Plans of the model that ranks share its rows in, by both exchanges of keys, train as one rank does.
void ExpectSharedEqualsWhole(absl::string_view family, const Case& c) {
  ASSERT_OK_AND_ASSIGN(
      const PlannedRun one,
      PlanModel(Model(family, 1, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1, recompute: none")));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(one.program, 3));
  for (const std::string exchange : {"all_gather", "ring"}) {
    SCOPED_TRACE(absl::StrCat(family, ", ", exchange));
    ASSERT_OK_AND_ASSIGN(
        const PlannedRun shared,
        PlanModel(Model(family, c.devices, absl::StrCat(c.parallel, ", context_exchange: ", exchange), c.nodes)));
    ASSERT_OK(VerifyProgram(shared.program));
    EXPECT_EQ(NameOf(shared.strategy.context), exchange);
    ASSERT_OK_AND_ASSIGN(const Strategy read, ParseStrategy(ToText(shared.strategy), "strategy.yaml"));
    EXPECT_EQ(ToText(read), ToText(shared.strategy));
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(shared.program, 3));
    ExpectSameTraining(found, expected, 1e-9);
    ExpectPlannedArenas(found, shared.program);
  }
}

// Keys gathered or handed round, GPT with learned positions and Llama with rotary ones and two queries a key: losses
// and parameters are those of one rank.
TEST_P(ContextParallelTest, SharedEqualsWhole) {
  for (const absl::string_view family : {kGpt, kLlama}) ExpectSharedEqualsWhole(family, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Degrees, ContextParallelTest,
    testing::Values(
        Case{"Cp2", 2,
             "context_parallel: 2, data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1, recompute: none"},
        Case{"Cp4", 4,
             "context_parallel: 4, data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1, recompute: full"},
        Case{"Cp2Selective", 2,
             "context_parallel: 2, data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1, recompute: selective"},
        Case{"Cp2Dp2", 4,
             "context_parallel: 2, data_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 2, "
             "recompute: none, enable_parallel_optimizer: true, "
             "parallel_optimizer_config: {parallel_optimizer_threshold: 0}"},
        Case{"Cp2Tp2", 4,
             "context_parallel: 2, data_parallel: 1, tensor_parallel: 2, pipeline_stages: 1, recompute: none, "
             "sequence_parallel: false"},
        Case{"Cp4Tp2Sequence", 8,
             "context_parallel: 4, data_parallel: 1, tensor_parallel: 2, pipeline_stages: 1, recompute: none, "
             "sequence_parallel: true"},
        Case{"Cp2Pp2", 4,
             "context_parallel: 2, data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 4, "
             "recompute: none"},
        Case{"Cp2Pp2ZeroBubble", 4,
             "context_parallel: 2, data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 4, "
             "recompute: none, pipeline_config: {pipeline_scheduler: zero_bubble_v}"},
        Case{"Cp2Dp2Tp2Pp2", 16,
             "context_parallel: 2, data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, micro_batches: 2, "
             "recompute: full, sequence_parallel: true, enable_parallel_optimizer: true"}),
    [](const auto& info) { return info.param.name; });

class ContextParallelExpertsTest : public testing::TestWithParam<Case> {};

// Each rank's part of a row goes to experts by itself: alone, in groups of experts, and from tensor-parallel ranks.
TEST_P(ContextParallelExpertsTest, SharedEqualsWhole) { ExpectSharedEqualsWhole(kExperts, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Degrees, ContextParallelExpertsTest,
    testing::Values(
        Case{"Cp2", 2,
             "context_parallel: 2, data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1, recompute: none"},
        Case{"Cp2Ep2", 4,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: full, micro_batches: 2, dispatcher: all_to_all"},
        Case{"Cp2Ep2PerRank", 4,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: selective, dispatcher: per_rank"},
        Case{"Cp4Ep2Dp4PerRank", 16,
             "context_parallel: 4, data_parallel: 4, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: none, dispatcher: per_rank, enable_parallel_optimizer: true, "
             "parallel_optimizer_config: {parallel_optimizer_threshold: 0}"},
        Case{"Cp2Ep4", 4,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: none, dispatcher: all_to_all, enable_parallel_optimizer: true"},
        Case{"Cp2Ep4PerRank", 4,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: none, dispatcher: per_rank"},
        Case{"Cp2Ep8PerNode", 8,
             "context_parallel: 2, data_parallel: 4, expert_parallel: 8, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: none, dispatcher: per_node",
             2},
        Case{"Cp4Ep2", 8,
             "context_parallel: 4, data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "recompute: none, dispatcher: all_to_all"},
        Case{"Cp4Tp2Ep2Spread", 8,
             "context_parallel: 4, data_parallel: 1, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1, "
             "recompute: full, sequence_parallel: true, spread_experts: true"},
        Case{"Cp2Tp2Ep4Spread", 8,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 4, tensor_parallel: 2, pipeline_stages: 1, "
             "recompute: none, sequence_parallel: true, spread_experts: true"},
        Case{"Cp2Tp2Ep2Sequence", 8,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1, "
             "recompute: none, sequence_parallel: true, dispatcher: all_to_all"},
        Case{"Cp2Tp2Ep2Spread", 8,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1, "
             "recompute: none, sequence_parallel: true, spread_experts: true"},
        Case{"Cp2Ep2Pp2ZeroBubble", 8,
             "context_parallel: 2, data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, "
             "micro_batches: 2, recompute: none, dispatcher: all_to_all, pipeline_config: {pipeline_scheduler: "
             "zero_bubble_v}"}),
    [](const auto& info) { return info.param.name; });

TEST(ContextParallelErrorsTest, SayWhatCannotBeShared) {
  const auto error = [](absl::string_view family, absl::string_view parallel, absl::string_view training = "") {
    std::string text =
        Model(family, 2, absl::StrCat("data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1, ", parallel));
    return PlanModel(absl::StrReplaceAll(text, {{"batch: 4,", absl::StrCat("batch: 4,", training)}})).status();
  };
  EXPECT_THAT(error(kGpt, "context_parallel: 2", " attention: unfused,"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("use fused attention")));
  EXPECT_THAT(error(kGpt, "context_parallel: 3"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("context_parallel: found 3, wanted a divisor")));
  EXPECT_THAT(error(kGpt, "context_parallel: 2, context_exchange: bus"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("all_gather")));
}

}  // namespace
}  // namespace meshwright
