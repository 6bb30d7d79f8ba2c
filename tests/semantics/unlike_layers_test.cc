// Layers that are not alike: the first have no experts, and of the others only every second does. However the model is
// split, it trains as on one rank.
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "executor/runner.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

// 5 layers: one dense, then twice one dense and one with experts.
constexpr absl::string_view kBoth = "layers: 5, dense_layers: 1, expert_every: 2, dense_ffn: 48, shared_expert_ffn: 32",
                            kFirst = "layers: 5, dense_layers: 3", kAlternating = "layers: 8, expert_every: 2",
                            kEven = "layers: 4, dense_layers: 2, dense_ffn: 64";
// Two layers that see 5 tokens, and one that sees all, twice; another one that sees 5.
constexpr absl::string_view kWindows = "layers: 7, sliding_window: 5, full_attention_every: 3",
                            kAllWindows = "layers: 4, sliding_window: 6, expert_every: 2";

std::string Model(absl::string_view sizes, absl::string_view parallel, int64_t devices) {
  return absl::StrReplaceAll(R"(name: tiny
architecture:
  decoder: {hidden: 32, heads: 8, kv_heads: 4, ffn: 16, vocab: 128, experts: 4, experts_per_token: 2,
            capacity_factor: 2, activation: swiglu, norm: rms_norm, positions: rotary, SIZES}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {micro_batches: 4, PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)",
                             {{"SIZES", sizes}, {"PARALLEL", parallel}, {"DEVICES", absl::StrCat(devices)}});
}

struct Case {
  absl::string_view sizes;
  int64_t devices;
  absl::string_view degrees;
};

// On one rank, once for each model.
absl::StatusOr<RunResult> RunWhole(absl::string_view sizes) {
  static auto& known = *new std::map<std::string, RunResult>;
  if (const auto found = known.find(std::string(sizes)); found != known.end()) return found->second;
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult result, RunModel(Model(sizes, "recompute: none", 1), 3));
  return known[std::string(sizes)] = result;
}

void ExpectSplitEqualsWhole(const Case& c, absl::string_view choices) {
  SCOPED_TRACE(absl::StrCat(c.sizes, ", ", c.degrees, ", ", choices));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunWhole(c.sizes));
  EXPECT_LT(expected.losses[2], expected.losses[0]);
  ExpectTrainsAs(expected, Model(c.sizes, absl::StrCat(c.degrees, ", ", choices), c.devices));
}

constexpr absl::string_view kChoices[] = {
    "recompute: none, enable_parallel_optimizer: false",
    "recompute: full, enable_parallel_optimizer: true, shard_parameters: false, parallel_optimizer_config: "
    "{parallel_optimizer_threshold: 0}",
    "recompute: selective, enable_parallel_optimizer: true, shard_parameters: true, parallel_optimizer_config: "
    "{parallel_optimizer_threshold: 0}",
    "recompute: none, enable_parallel_optimizer: true, shard_parameters: false, parallel_optimizer_config: "
    "{parallel_optimizer_threshold: 0, gradient_accumulation_shard: true}"};

TEST(UnlikeLayersTest, OneStage) {
  for (const Case& c : {
           Case{kBoth, 1, "data_parallel: 1"},
           Case{kBoth, 4, "data_parallel: 4, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
           Case{kFirst, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
           Case{kEven, 4, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
           Case{kBoth, 4,
                "data_parallel: 1, context_parallel: 4, context_exchange: all_gather, expert_parallel: 2, "
                "tensor_parallel: 1, pipeline_stages: 1"},
           Case{kAlternating, 4, "data_parallel: 1, tensor_parallel: 4, sequence_parallel: true, pipeline_stages: 1"},
       }) {
    for (const absl::string_view choices : kChoices) ExpectSplitEqualsWhole(c, choices);
  }
}

// ZeRO-3 of runs of three and of four layers: each layer is gathered by itself, and its gradients are scattered, once
// in a step or for each micro-batch, between copies of what is split, and with layers computed again.
TEST(UnlikeLayersTest, ParametersOfRunsAreSplit) {
  constexpr absl::string_view kFours = "layers: 8, sliding_window: 5, full_attention_every: 4",
                              kOrder =
                                  "layers: 8, sliding_window: 5, full_attention_layers: [2, 3, 7], dense_layers: 1";
  for (const absl::string_view sizes : {kWindows, kFours, kOrder}) {
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunWhole(sizes));
    for (const absl::string_view micro_batches : {"micro_batches: 4", "micro_batches: 1"}) {
      for (const absl::string_view recompute : {"none", "selective", "full"}) {
        for (const absl::string_view more : {"", ", optimizer_weight_shard_size: 2"}) {
          SCOPED_TRACE(absl::StrCat(sizes, ", ", micro_batches, ", ", recompute, more));
          const std::string parallel = absl::StrCat(
              "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1, enable_parallel_optimizer: true, "
              "shard_parameters: true, recompute: ",
              recompute, ", parallel_optimizer_config: {parallel_optimizer_threshold: 0", more, "}");
          ExpectTrainsAs(expected,
                         absl::StrReplaceAll(Model(sizes, parallel, 4), {{"micro_batches: 4", micro_batches}}));
        }
      }
    }
  }
}

TEST(UnlikeLayersTest, Pipelines) {
  for (const Case& c : {
           Case{kBoth, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
           Case{kBoth, 3, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 3"},
           Case{kFirst, 4, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 4"},
           Case{kFirst, 4,
                "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 2, virtual_pipeline_stages: 2, "
                "pipeline_config: {pipeline_interleave: true}"},
           Case{kEven, 4, "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
           Case{kEven, 2,
                "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, virtual_pipeline_stages: 2, "
                "pipeline_config: {pipeline_interleave: true}"},
           Case{kAlternating, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
           Case{kAlternating, 4, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 4"},
       }) {
    for (const absl::string_view choices : kChoices) ExpectSplitEqualsWhole(c, choices);
  }
}

TEST(UnlikeLayersTest, Windows) {
  for (const Case& c : {
           Case{kWindows, 4, "data_parallel: 1, tensor_parallel: 4, sequence_parallel: true, pipeline_stages: 1"},
           Case{kWindows, 3, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 3"},
           Case{kAllWindows, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
       }) {
    for (const absl::string_view choices : kChoices) ExpectSplitEqualsWhole(c, choices);
  }
}

TEST(UnlikeLayersTest, AWindowMakesAnotherModel) {
  const auto loss_of = [](absl::string_view sizes) -> absl::StatusOr<double> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const PlannedRun run, PlanModel(Model(sizes, "recompute: none", 1)));
    MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult result, RunSteps(run.program, 3));
    return result.losses[2];
  };
  ASSERT_OK_AND_ASSIGN(const double whole, loss_of("layers: 7"));
  ASSERT_OK_AND_ASSIGN(const double windows, loss_of(kWindows));
  ASSERT_OK_AND_ASSIGN(const double idle, loss_of("layers: 7, sliding_window: 16, full_attention_every: 3"));
  EXPECT_NE(windows, whole);
  EXPECT_EQ(idle, whole);
}

TEST(UnlikeLayersTest, Schedules) {
  for (const absl::string_view sizes : {kBoth, kFirst, kEven, kAlternating}) {
    for (const absl::string_view schedule : {"gpipe", "zero_bubble_h1", "zero_bubble_v", "dualpipe_v", "dualpipe"}) {
      // Of three pieces there are none for four chunks.
      if (sizes == kBoth && (schedule == "zero_bubble_v" || schedule == "dualpipe_v")) continue;
      const std::string degrees = absl::StrCat(
          "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: "
          "{pipeline_scheduler: ",
          schedule, "}");
      for (const absl::string_view choices : {kChoices[0], kChoices[1]}) {
        ExpectSplitEqualsWhole({sizes, 4, degrees}, choices);
      }
    }
  }
}

}  // namespace
}  // namespace meshwright
