// The parallel optimizer's rows, which lie inside of the whole parameters and gradients: training, saved and loaded in
// between, is to the bit what it is where every rank updates all.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "executor/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"
#include "tests/semantics/play.h"

namespace meshwright {
namespace {

constexpr char kModel[] = R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, vocab: 128, FAMILY}
training: {batch: 16, sequence: 8, TYPE, optimizer: {OPTIMIZER: {learning_rate: 0.01}}}
parallel: {recompute: none, shard_parameters: false, sequence_parallel: false, DEGREES, OWN}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)";
constexpr char kGpt[] = "heads: 4, ffn: 64, bias: true, tied_embeddings: true";
constexpr char kLlama[] =
    "heads: 8, kv_heads: 4, ffn: 64, activation: swiglu, norm: rms_norm, positions: rotary, tied_embeddings: false";
constexpr char kDouble[] = "dtype: float64, gradient_dtype: float64";
constexpr char kBFloat16[] = "dtype: bfloat16";
// The first steps' gradients are infinite, and these steps are skipped.
constexpr char kFloat16[] = "dtype: float16, loss_scale: {initial: 1.6e7, growth_interval: 3}";
constexpr char kRows[] =
    "enable_parallel_optimizer: true, parallel_optimizer_config: {parallel_optimizer_threshold: 0, "
    "optimizer_weight_shard_size: SIZE}";
constexpr char kWhole[] = "enable_parallel_optimizer: false";

struct Case {
  std::string name;
  int64_t devices;
  std::string degrees;
  std::string type = kDouble, family = kGpt;
  int64_t size = -1;  // optimizer_weight_shard_size
  std::string optimizer = "adamw";
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

std::string Model(const Case& c, absl::string_view own) {
  return absl::StrReplaceAll(absl::StrReplaceAll(kModel, {{"FAMILY", c.family},
                                                          {"TYPE", c.type},
                                                          {"OPTIMIZER", c.optimizer},
                                                          {"DEGREES", c.degrees},
                                                          {"OWN", own},
                                                          {"DEVICES", absl::StrCat(c.devices)}}),
                             {{"SIZE", absl::StrCat(c.size)}});
}

int64_t NumPieces(const Program& program, BufferRole of) {
  int64_t pieces = 0;
  for (const RankClass& c : program.classes) {
    for (size_t b = 0; b < c.buffers.size(); ++b) {
      const Buffer& root = c.buffers[RootOf(c, BufferId(b)).index()];
      pieces += root.role == of && IsPieceOf(c.buffers[b], root) ? 1 : 0;
    }
  }
  return pieces;
}

struct Part {
  int64_t steps;
  const SavedState* from = nullptr;
  std::string save = "";
  bool integrated = true;
};
absl::StatusOr<RunResult> Train(const PlannedRun& planned, const Part& part) {
  RunOptions options;
  options.steps = part.steps;
  options.keep_parameters = true;
  options.batches = planned.batches;
  options.initial = part.from;
  options.first_step = part.from == nullptr ? 0 : part.from->steps_done;
  if (!part.save.empty()) options.checkpoint = CheckpointOptions{.directory = part.save, .integrated = part.integrated};
  return Play(planned.program, options, SyntheticData(1));
}

void ExpectSame(const RunResult& found, const RunResult& expected, double bound) {
  EXPECT_EQ(found.parameters.size(), expected.parameters.size());
  ExpectSameParameters(found, expected, bound);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], bound) << "step " << i + 1;
  }
  ASSERT_EQ(found.loss_scales.size(), expected.loss_scales.size());
  for (size_t rank = 0; rank < expected.loss_scales.size(); ++rank) {
    ASSERT_EQ(found.loss_scales[rank].size(), expected.loss_scales[rank].size());
    for (size_t i = 0; i < expected.loss_scales[rank].size(); ++i) {
      EXPECT_EQ(found.loss_scales[rank][i].scale, expected.loss_scales[rank][i].scale);
      EXPECT_EQ(found.loss_scales[rank][i].skipped, expected.loss_scales[rank][i].skipped);
    }
  }
}

class RowsInWholeTest : public testing::TestWithParam<Case> {};

TEST_P(RowsInWholeTest, TrainsSavesAndGoesOn) {
  const Case& c = GetParam();
  ASSERT_OK_AND_ASSIGN(const PlannedRun rows, PlanModel(Model(c, kRows)));
  EXPECT_GT(NumPieces(rows.program, BufferRole::kParameter), 0);
  EXPECT_GT(NumPieces(rows.program, BufferRole::kGradient), 0);
  ASSERT_OK_AND_ASSIGN(const PlannedRun whole, PlanModel(Model(c, kWhole)));
  EXPECT_EQ(NumPieces(whole.program, BufferRole::kParameter), 0);
  // Norms of rows are added up in another order; between groups, so are gradients.
  const double bound = c.optimizer == "lamb" || c.size > 0 ? 1e-12 : 0;
  ASSERT_OK_AND_ASSIGN(const RunResult expected, Train(whole, {.steps = 6}));
  ASSERT_OK_AND_ASSIGN(const RunResult found, Train(rows, {.steps = 6}));
  ExpectSame(found, expected, bound);
  for (const std::vector<LossScale>& scales : found.loss_scales) {
    if (c.type != kFloat16 || scales.empty()) continue;
    EXPECT_GT(scales.back().skipped, 0);
    EXPECT_LT(scales.back().skipped, 6);
  }

  for (const bool integrated : {true, false}) {
    SCOPED_TRACE(integrated ? "saved whole" : "saved in pieces");
    const std::string folder = absl::StrCat(testing::TempDir(), "/rows_", c.name, integrated ? "_whole" : "_pieces");
    std::filesystem::remove_all(folder);
    ASSERT_OK(Train(rows, {.steps = 3, .save = folder + "/{rank_id}", .integrated = integrated}));
    ASSERT_OK_AND_ASSIGN(const SavedState state,
                         LoadState(absl::StrCat(folder, "/", integrated ? "0" : "{rank_id}", "/CKP-1_3.ckpt")));
    EXPECT_EQ(state.steps_done, 3);
    for (const PlannedRun* const next : {&rows, &whole}) {
      SCOPED_TRACE(next == &rows ? "into rows" : "into whole parameters");
      ASSERT_OK_AND_ASSIGN(const RunResult rest, Train(*next, {.steps = 3, .from = &state}));
      RunResult tail = expected;
      tail.losses.erase(tail.losses.begin(), tail.losses.begin() + 3);
      for (auto& scales : tail.loss_scales) {
        if (!scales.empty()) scales.erase(scales.begin(), scales.begin() + 3);
      }
      ExpectSame(rest, tail, bound);
    }
  }
}

constexpr char kDp4[] = "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 1";
constexpr char kDp2Tp2[] = "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 1, micro_batches: 2";
constexpr char kDp2Pp2[] = "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 4";

INSTANTIATE_TEST_SUITE_P(
    Cases, RowsInWholeTest,
    testing::Values(
        Case{"Dp4", 4, kDp4}, Case{"Dp4Accumulates", 4, absl::StrReplaceAll(kDp4, {{"hes: 1", "hes: 4"}})},
        Case{"Dp4BFloat16", 4, kDp4, kBFloat16}, Case{"Dp4Skips", 4, kDp4, kFloat16},
        Case{"Dp4SkipsAndAccumulates", 4, absl::StrReplaceAll(kDp4, {{"hes: 1", "hes: 4"}}), kFloat16, kLlama},
        Case{"Dp4Lamb", 4, kDp4, kDouble, kGpt, -1, "lamb"},
        Case{"Dp4Momentum", 4, kDp4, kBFloat16, kGpt, -1, "momentum"}, Case{"Dp4Of2", 4, kDp4, kDouble, kLlama, 2},
        Case{"Dp2Tp2", 4, kDp2Tp2, kDouble, kLlama}, Case{"Dp2Tp2Skips", 4, kDp2Tp2, kFloat16},
        Case{"Dp2Pp2", 4, kDp2Pp2}, Case{"Dp2Pp2Skips", 4, kDp2Pp2, kFloat16},
        Case{"Dp2Pp2Chunks", 4,
             "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, micro_batches: 2, virtual_pipeline_stages: 2, "
             "pipeline_config: {pipeline_interleave: true}",
             kBFloat16},
        Case{"Dp2Pp2ZeroBubble", 4, absl::StrCat(kDp2Pp2, ", pipeline_config: {pipeline_scheduler: zero_bubble_v}"),
             kBFloat16},
        Case{"Dp2Cp2", 4,
             "data_parallel: 2, context_parallel: 2, tensor_parallel: 1, pipeline_stages: 1, micro_batches: 2", kDouble,
             kLlama}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshwright
