// Hybrid sharded data parallelism of decoders (HSDP): groups of neighbouring ranks share what the parallel optimizer
// splits, and have copies of each other's parts (S11.8, optimizer_weight_shard_size).
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kModel[] = R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, vocab: 128, FAMILY}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {OPTIMIZER: {learning_rate: 0.01}}}
parallel: {recompute: none, enable_parallel_optimizer: true, PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)";
constexpr char kGpt[] = "heads: 4, ffn: 64, bias: true, tied_embeddings: true";
constexpr char kLlama[] =
    "heads: 8, kv_heads: 4, ffn: 64, activation: swiglu, norm: rms_norm, positions: rotary, tied_embeddings: false";
constexpr char kMixtral[] =
    "heads: 8, kv_heads: 4, ffn: 64, activation: swiglu, norm: rms_norm, positions: rotary, experts: 4, "
    "experts_per_token: 2, capacity_factor: 2";

// Of the parallel optimizer: what it splits besides its state.
constexpr char kZero1[] = "shard_parameters: false";
constexpr char kZero2[] =
    "shard_parameters: false, parallel_optimizer_config: {gradient_accumulation_shard: true, SIZE}";
constexpr char kZero3[] = "shard_parameters: true";
constexpr char kOthers[] = "parallel_optimizer_config: {SIZE}";

// Groups of `size`; -1: all ranks.
std::string Model(absl::string_view family, int64_t devices, absl::string_view degrees, absl::string_view stage,
                  int64_t size, absl::string_view optimizer = "adamw") {
  std::string parallel = absl::StrCat(degrees, ", ", stage);
  if (stage != kZero2) absl::StrAppend(&parallel, ", ", kOthers);
  parallel = absl::StrReplaceAll(
      parallel, {{"SIZE", absl::StrCat("parallel_optimizer_threshold: 0, optimizer_weight_shard_size: ", size)}});
  return absl::StrReplaceAll(
      kModel,
      {{"FAMILY", family}, {"PARALLEL", parallel}, {"OPTIMIZER", optimizer}, {"DEVICES", absl::StrCat(devices)}});
}

struct Case {
  std::string name;
  int64_t devices, size;
  std::string degrees;
  std::vector<std::string> families = {kGpt, kLlama};
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class ShardGroupsTest : public testing::TestWithParam<Case> {};

// Optimizer, gradients or parameters split over groups: losses and parameters are those of one rank.
TEST_P(ShardGroupsTest, SharedEqualsWhole) {
  for (const std::string& family : GetParam().families) {
    ASSERT_OK_AND_ASSIGN(
        const RunResult expected,
        RunModel(Model(family, 1, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1", kZero1, -1), 3));
    for (const char* const stage : {kZero1, kZero2, kZero3}) {
      SCOPED_TRACE(absl::StrCat(family, ", ", stage));
      ASSERT_OK_AND_ASSIGN(const PlannedRun planned,
                           PlanModel(Model(family, GetParam().devices, GetParam().degrees, stage, GetParam().size)));
      ASSERT_OK(VerifyProgram(planned.program));
      EXPECT_EQ(planned.strategy.optimizer_group, OptimizerGroup::kCopy);
      EXPECT_EQ(planned.strategy.shard_parameters, stage == kZero3);
      ASSERT_OK_AND_ASSIGN(const Strategy read, ParseStrategy(ToText(planned.strategy), "strategy.yaml"));
      EXPECT_EQ(ToText(read), ToText(planned.strategy));
      ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
      ExpectSameTraining(found, expected, 1e-9);
      for (size_t rank = 0; rank < found.arenas.size(); ++rank) {
        const auto c = rank / static_cast<size_t>(planned.program.ranks_per_class());
        EXPECT_EQ(found.arenas[rank], planned.program.classes[c].arena);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Degrees, ShardGroupsTest,
    testing::Values(
        Case{"Dp4Of2", 4, 2, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 2"},
        Case{"Dp4Of2OneMicroBatch", 4, 2, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 1"},
        Case{"Dp8Of2", 8, 2, "data_parallel: 8, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 2"},
        Case{"Dp4Of2Tp2", 8, 2,
             "data_parallel: 4, tensor_parallel: 2, pipeline_stages: 1, micro_batches: 2, "
             "sequence_parallel: false"},
        Case{"Dp4Of2Tp2Sequence", 8, 2,
             "data_parallel: 4, tensor_parallel: 2, pipeline_stages: 1, micro_batches: 2, "
             "sequence_parallel: true"},
        Case{"Dp4Of2Pp2", 8, 2, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 4"},
        Case{"Dp4Of2Pp2Chunks", 8, 2,
             "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 2, "
             "virtual_pipeline_stages: 2, pipeline_config: {pipeline_interleave: true}"},
        Case{"Dp4Of2Pp2ZeroBubble", 8, 2,
             "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 4, "
             "pipeline_config: {pipeline_scheduler: zero_bubble_v}"},
        Case{"Dp4Of2Tp2Pp2", 16, 2,
             "data_parallel: 4, tensor_parallel: 2, pipeline_stages: 2, micro_batches: 2, "
             "sequence_parallel: true"},
        // A group of all ranks that share a sequence, and of two places of data parallelism.
        Case{"Dp4Cp2Of4", 8, 4,
             "data_parallel: 4, context_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "micro_batches: 2"},
        Case{"Dp2Cp2Of2", 4, 2,
             "data_parallel: 2, context_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "micro_batches: 2"},
        // Experts over the ranks of a group, and over a part of them.
        Case{"Dp4Ep2Of2",
             4,
             2,
             "data_parallel: 4, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "micro_batches: 2, dispatcher: all_to_all",
             {kMixtral}},
        Case{"Dp8Ep2Of4",
             8,
             4,
             "data_parallel: 8, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, "
             "micro_batches: 2, dispatcher: per_rank",
             {kMixtral}}),
    [](const auto& info) { return info.param.name; });

// What no gradient reaches is split beside what is trained: gathered for each pass, it is what one rank has.
TEST(ShardGroups, FrozenParametersToo) {
  const auto model = [](int64_t devices) {
    return absl::StrCat(R"(name: frozen
inputs: {x: {shape: [16, 8]}, y: {shape: [16, 8]}}
parameters: {w: {shape: [8, 8]}, frozen: {shape: [8, 8], trainable: false}}
operators:
  - {name: one, op: MatMul, inputs: [x, w]}
  - {name: two, op: MatMul, inputs: [one, frozen]}
  - {name: loss, op: MSELoss, inputs: [two, y]}
training: {dtype: float64, optimizer: {adamw: {learning_rate: 0.1}}}
parallel: {parallel_mode: semi_auto_parallel, enable_parallel_optimizer: true, shard_parameters: true, parallel_optimizer_config: {parallel_optimizer_threshold: 0}}
cluster: {device: host, nodes: 1, devices_per_node: )",
                        devices, "}\n");
  };
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunModel(model(1), 3));
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(model(4)));
  ASSERT_OK(VerifyProgram(planned.program));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kParameter), Contains("all_gather {0,1,2,3}: frozen@shard w@master"));
  ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
  ExpectSameTraining(found, expected, 1e-12);
}

constexpr char kDp4[] = "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 2";

// Neighbours share; ranks at the same place of their groups add up.
TEST(ShardGroups, GroupsOfRanks) {
  for (const char* const stage : {kZero1, kZero2, kZero3}) {
    SCOPED_TRACE(stage);
    ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(Model(kLlama, 4, kDp4, stage, 2)));
    EXPECT_THAT(CallsOf(planned.program, Purpose::kParameter), Each(StartsWith("all_gather {0,1} {2,3}: ")));
    int64_t scattered = 0, added = 0;
    for (const std::string& call : CallsOf(planned.program, Purpose::kGradient)) {
      const bool scatters = absl::StartsWith(call, "reduce_scatter {0,1} {2,3}: ");
      ++(scatters ? scattered : added);
      EXPECT_TRUE(scatters || absl::StartsWith(call, "all_reduce {0,2} {1,3}: ")) << call;
    }
    EXPECT_GT(scattered, 0);
    EXPECT_GT(added, 0);
  }
  // Tensor parallelism is faster: 0 and 1 have parts of one copy, with 2 and 3.
  ASSERT_OK_AND_ASSIGN(
      const PlannedRun planned,
      PlanModel(Model(kLlama, 8, "data_parallel: 4, tensor_parallel: 2, pipeline_stages: 1, sequence_parallel: false",
                      kZero1, 2)));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kParameter), Each(StartsWith("all_gather {0,2} {1,3} {4,6} {5,7}: ")));
}

// All-reduces between groups are as few as the reduce-scatters before them: of one layer's six parameters one.
TEST(ShardGroups, RowsAreAddedUpInBuckets) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(Model(kLlama, 4, kDp4, kZero3, 2)));
  int64_t calls = 0, tensors = 0;
  const std::vector<std::string> names = CallsOf(planned.program, Purpose::kGradient);
  const std::vector<int64_t> sizes = SizesOfCalls(planned.program, Purpose::kGradient);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!absl::StartsWith(names[i], "all_reduce")) continue;
    ++calls;
    tensors += sizes[i];
  }
  EXPECT_EQ(tensors, 4 * 6 + 1 + 2);  // layers; embedding; last norm and head
  EXPECT_LE(calls, 3);
}

// Bytes of AdamW's state on a rank, by hand: 2 moments of 8 bytes, over the ranks of a group.
TEST(ShardGroups, StateTakesTheGroupsShare) {
  // Of a layer: q, k and v 32 x 64, projection 32 x 32, SwiGLU 32 x 128 and 64 x 32; embedding and head 128 x 32. Of
  // nine norms each part has at most 16 of 32 elements, for which there are 256 bytes.
  constexpr int64_t kProducts = 4 * (32 * 64 + 32 * 32 + 32 * 128 + 64 * 32) + 2 * 128 * 32;
  constexpr int64_t kNorms = 9 * 256;
  for (const auto& [size, parts] : {std::pair(-1, 4), {4, 4}, {2, 2}}) {
    for (const char* const stage : {kZero1, kZero2, kZero3}) {
      ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(Model(kLlama, 4, kDp4, stage, size)));
      const auto bytes = [&](BufferRole role) { return planned.prediction.memory[static_cast<size_t>(role)].raw(); };
      EXPECT_EQ(bytes(BufferRole::kOptimizerState), 2 * (8 * kProducts / parts + kNorms)) << size << ", " << stage;
      // Where parameters stay whole, products' rows lie inside of them.
      const int64_t products = stage != kZero3 ? 0 : 8 * kProducts / parts;
      EXPECT_EQ(bytes(BufferRole::kMaster), products + kNorms) << size << ", " << stage;
      EXPECT_EQ(planned.strategy.optimizer_group, parts == 2 ? OptimizerGroup::kCopy : OptimizerGroup::kSummands);
    }
  }
}

// LAMB's norms are of whole parameters: added up inside of a group alone.
TEST(ShardGroups, NormsOfWholeParameters) {
  ASSERT_OK_AND_ASSIGN(
      const RunResult expected,
      RunModel(Model(kGpt, 1, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 1", kZero1, -1, "lamb"), 3));
  for (const char* const stage : {kZero1, kZero3}) {
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunModel(Model(kGpt, 4, kDp4, stage, 2, "lamb"), 3));
    ExpectSameTraining(found, expected, 1e-9);
  }
}

TEST(ShardGroups, ErrorsSayWhatDoesNotDivide) {
  const auto error = [](absl::string_view degrees, int64_t size) {
    return PlanModel(Model(kLlama, 8, degrees, kZero1, size)).status();
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(error("data_parallel: 4, tensor_parallel: 2, pipeline_stages: 1", 3),
              StatusIs(kInvalid, HasSubstr("optimizer_weight_shard_size: found 3, wanted a divisor of the 4 ranks that "
                                           "can have the same parameters; -1 is all of them")));
  EXPECT_THAT(error("tensor_parallel: 1, pipeline_stages: 1", 16), StatusIs(kInvalid, HasSubstr("of the 8 ranks")));
  // Left to the search as far as the file leaves the degrees to it.
  EXPECT_THAT(error("pipeline_stages: 1", 4), IsOk());
  // Ranks that share a sequence are not taken apart.
  EXPECT_THAT(error("data_parallel: 2, context_parallel: 4, tensor_parallel: 1, pipeline_stages: 1", 2),
              StatusIs(kInvalid, HasSubstr("and a multiple of the 4 that share a sequence")));
}

}  // namespace
}  // namespace meshwright
