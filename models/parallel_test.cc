#include "models/parallel.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kState = absl::StatusCode::kFailedPrecondition;

// Reads a section given as the inside of a map on one line, for a batch of 16 and SGD.
absl::StatusOr<Parallel> Read(absl::string_view section, OpKind optimizer = OpKind::kSgd) {
  const absl::StatusOr<Document> document = ParseDocument(absl::StrCat("parallel: {", section, "}\n"), "m.yaml");
  if (!document.ok()) return document.status();
  Training training;
  training.batch = 16;
  training.optimizer.kind = optimizer;
  return ReadParallel(document->root()["parallel"], training, ParallelMode::kStandAlone);
}

// The same in the mode auto_parallel.
absl::StatusOr<Parallel> ReadAuto(absl::string_view section) {
  return Read(absl::StrCat("parallel_mode: auto_parallel", section.empty() ? "" : ", ", section));
}

TEST(ParallelTest, DefaultsAreThoseOfTheInterface) {
  ASSERT_OK_AND_ASSIGN(const Parallel p, Read(""));
  EXPECT_EQ(p.parallel_mode, ParallelMode::kStandAlone);
  EXPECT_FALSE(p.search_mode.has_value());
  EXPECT_FALSE(p.device_num.has_value());
  EXPECT_EQ(p.dataset_strategy, DatasetStrategy::kDataParallel);
  EXPECT_FALSE(p.gradients_mean);
  EXPECT_TRUE(p.gradient_fp32_sync);
  EXPECT_FALSE(p.enable_parallel_optimizer);
  EXPECT_TRUE(p.gradient_accumulation_shard);
  EXPECT_EQ(p.parallel_optimizer_threshold, KiB(64));
  EXPECT_EQ(p.pipeline_stages, 1);
  EXPECT_EQ(p.schedule, Schedule::kOneFOneB);
  EXPECT_EQ(p.recompute, RecomputeChoice::kAuto);
  EXPECT_THAT(p.warnings, IsEmpty());
}

TEST(ParallelTest, EveryKnobIsReadBackAsItWasSet) {
  ASSERT_OK_AND_ASSIGN(
      const Parallel p,
      ReadAuto("search_mode: recursive_programming, device_num: 8, global_rank: 7, gradients_mean: true, "
               "gradient_fp32_sync: false, enable_alltoall: true, grad_accumulation_step: 4, "
               "enable_parallel_optimizer: true, parallel_optimizer_config: {gradient_accumulation_shard: false, "
               "parallel_optimizer_threshold: 0, optimizer_weight_shard_size: 2}, pipeline_stages: 2, pipeline_config: "
               "{pipeline_scheduler: gpipe, pipeline_interleave: true}, pipeline_loss: mean, micro_batches: 4, "
               "layers_per_stage: [3, 2, 2, 1], "
               "micro_batch: 2, tensor_parallel: 2, data_parallel: 2, expert_parallel: 1, sequence_parallel: true, "
               "shard_parameters: true, recompute: selective, strategy_ckpt_load_file: a, strategy_ckpt_save_file: b"));
  EXPECT_EQ(p.parallel_mode, ParallelMode::kAuto);
  EXPECT_EQ(p.search_mode, SearchKnob::kRecursiveProgramming);
  EXPECT_EQ(p.device_num, 8);
  EXPECT_EQ(p.global_rank, 7);
  EXPECT_TRUE(p.gradients_mean);
  EXPECT_FALSE(p.gradient_fp32_sync);
  EXPECT_TRUE(p.enable_alltoall);
  EXPECT_EQ(p.grad_accumulation_step, 4);
  EXPECT_TRUE(p.enable_parallel_optimizer);
  EXPECT_FALSE(p.gradient_accumulation_shard);
  EXPECT_EQ(p.parallel_optimizer_threshold, Bytes(0));
  EXPECT_EQ(p.optimizer_weight_shard_size, 2);
  EXPECT_EQ(p.pipeline_stages, 2);
  EXPECT_EQ(p.schedule, Schedule::kGpipe);
  EXPECT_TRUE(p.pipeline_interleave);
  EXPECT_EQ(p.pipeline_loss, PipelineLoss::kMean);
  EXPECT_EQ(p.layers_per_stage, (std::vector<int64_t>{3, 2, 2, 1}));
  EXPECT_EQ(p.micro_batches, 4);
  EXPECT_EQ(p.micro_batch, 2);
  EXPECT_EQ(p.tensor_parallel, 2);
  EXPECT_EQ(p.data_parallel, 2);
  EXPECT_EQ(p.expert_parallel, 1);
  EXPECT_EQ(p.sequence_parallel, true);
  EXPECT_EQ(p.shard_parameters, true);
  EXPECT_EQ(p.recompute, RecomputeChoice::kSelective);
  EXPECT_EQ(p.strategy_ckpt_load_file, "a");
  EXPECT_EQ(p.strategy_ckpt_save_file, "b");
}

// R1 to R4, R19, R20, R23 of the error catalogue, as far as they are about files.
TEST(ParallelTest, WrongValuesAreRefused) {
  for (const absl::string_view device_num : {"0", "-1", "4097", "\"8\"", "8.0", "true"}) {
    EXPECT_THAT(ReadAuto(absl::StrCat("device_num: ", device_num)), StatusIs(kInvalid, "parallel.device_num: found"));
  }
  for (const absl::string_view rank : {"-1", "4096", "8"}) {
    EXPECT_THAT(ReadAuto(absl::StrCat("device_num: 8, global_rank: ", rank)),
                StatusIs(kInvalid, "parallel.global_rank: found"));
  }
  EXPECT_THAT(Read("parallel_mode: auto"), StatusIs(kInvalid, "wanted one of stand_alone, data_parallel"));
  EXPECT_THAT(Read("gradient_mean: true"), StatusIs(kInvalid, "did you mean \"gradients_mean\"?"));
  EXPECT_THAT(Read("gradients_mean: 1"), StatusIs(kInvalid, "wanted true or false"));
  EXPECT_THAT(ReadAuto("pipeline_stages: 0"), StatusIs(kInvalid, "pipeline_stages"));
  EXPECT_THAT(ReadAuto("pipeline_stages: 3, device_num: 8"),
              StatusIs(kInvalid, "found 3, wanted a divisor of device_num"));
  EXPECT_THAT(ReadAuto("pipeline_stages: 4, micro_batches: 2"), StatusIs(kInvalid, "wanted at least as many as"));
  EXPECT_THAT(ReadAuto("micro_batches: 5"), StatusIs(kInvalid, "found 5, wanted a divisor of the batch of 16 rows"));
  EXPECT_THAT(ReadAuto("micro_batches: 4, grad_accumulation_step: 2"),
              StatusIs(kInvalid, "grad_accumulation_step: found 2, wanted 4, which micro_batches says"));
  EXPECT_THAT(ReadAuto("pipeline_stages: 4, grad_accumulation_step: 2"),
              StatusIs(kInvalid, "grad_accumulation_step: found 2, wanted at least as many as"));
  EXPECT_THAT(ReadAuto("pipeline_config: {scheduler: gpipe}"), StatusIs(kInvalid, "found an unknown key"));
  EXPECT_THAT(ReadAuto("pipeline_config: {pipeline_scheduler: zero}"), StatusIs(kInvalid, "wanted one of gpipe, 1f1b"));
  EXPECT_THAT(ReadAuto("parallel_optimizer_config: {optimizer_weight_shard_size: 0}"), StatusIs(kInvalid, "found 0"));
  EXPECT_THAT(ReadAuto("optimizer_weight_shard_size: -2"), StatusIs(kInvalid, "wanted an integer from -1"));
}

TEST(ParallelTest, KnobsThatExcludeEachOther) {
  EXPECT_THAT(Read("device_num: 2"), StatusIs(kInvalid, "found 2, wanted 1, since parallel_mode is stand_alone"));
  EXPECT_THAT(Read("device_num: 1"), IsOk());
  EXPECT_THAT(Read("full_batch: true"), StatusIs(kState, "parallel.full_batch: needs semi_auto_parallel"));
  EXPECT_THAT(Read("parallel_mode: data_parallel, full_batch: true"),
              StatusIs(kState, "parallel_mode is data_parallel"));
  EXPECT_THAT(ReadAuto("parameter_broadcast: true"), StatusIs(kState, "needs data_parallel or hybrid_parallel"));
  EXPECT_THAT(Read("parallel_mode: hybrid_parallel, parameter_broadcast: true"), IsOk());
  EXPECT_THAT(Read("enable_parallel_optimizer: true"), StatusIs(kState, "parallel_mode is stand_alone"));
  EXPECT_THAT(Read("parallel_mode: data_parallel, enable_parallel_optimizer: true"), StatusIs(kState, "adamw only"));
  EXPECT_THAT(Read("parallel_mode: data_parallel, enable_parallel_optimizer: true", OpKind::kAdamW), IsOk());
  EXPECT_THAT(Read("parallel_mode: data_parallel, pipeline_stages: 2"), StatusIs(kState, "parallel.pipeline_stages"));
  EXPECT_THAT(ReadAuto("pipeline_stages: 2, search_mode: dynamic_programming"), StatusIs(kState, "a pipeline needs"));
  EXPECT_THAT(ReadAuto("pipeline_stages: 2, search_mode: sharding_propagation"), IsOk());
}

TEST(ParallelTest, FusionLists) {
  EXPECT_THAT(Read("all_reduce_fusion_config: [20, 35]")->all_reduce_fusion_config, ElementsAre(20, 35));
  EXPECT_THAT(Read("all_reduce_fusion_config: []")->all_reduce_fusion_config, IsEmpty());
  EXPECT_THAT(Read("all_reduce_fusion_config: [35, 20]"),
              StatusIs(kInvalid, "all_reduce_fusion_config[1]: found 20 after 35, wanted ascending indices"));
  EXPECT_THAT(Read("all_reduce_fusion_config: [1, 1]"), StatusIs(kInvalid, "found 1 after 1"));
  EXPECT_THAT(Read("all_reduce_fusion_config: [-1]"), StatusIs(kInvalid, "found \"-1\""));
  EXPECT_THAT(Read("all_reduce_fusion_config: [a]"), StatusIs(kInvalid, "found \"a\""));
}

TEST(ParallelTest, CommFusion) {
  ASSERT_OK_AND_ASSIGN(const Parallel p, Read("comm_fusion: {openstate: true, allreduce: {mode: index, config: [20, "
                                              "35]}, allgather: {mode: size, config: 32}, reducescatter: {mode: auto, "
                                              "config: None}}"));
  EXPECT_THAT(p.comm_fusion.allreduce->last, ElementsAre(20, 35));
  EXPECT_EQ(p.comm_fusion.allgather->size, MiB(32));
  EXPECT_EQ(p.comm_fusion.reducescatter->mode, FusionRule::Mode::kAuto);
  EXPECT_FALSE(Read("comm_fusion: {openstate: false}")->comm_fusion.open);
  EXPECT_THAT(Read("comm_fusion: {allgather: {mode: index, config: [1]}}"),
              StatusIs(kInvalid, "wanted one of auto, size"));
  EXPECT_THAT(Read("comm_fusion: {allreduce: {config: 1}}"), StatusIs(kInvalid, "allreduce.mode: found nothing"));
  EXPECT_THAT(Read("comm_fusion: {allreduce: {mode: size}}"), StatusIs(kInvalid, "allreduce.config: found nothing"));
  EXPECT_THAT(Read("comm_fusion: {allreduce: {mode: size, config: 0}}"), StatusIs(kInvalid, "config: found \"0\""));
  EXPECT_THAT(Read("comm_fusion: {allreduce: {mode: auto, config: 3}}"), StatusIs(kInvalid, "wanted None"));
  EXPECT_THAT(Read("comm_fusion: {alltoall: {mode: auto, config: None}}"), StatusIs(kInvalid, "found an unknown key"));
}

TEST(ParallelTest, OfTwoFusionSettingsTheLaterHolds) {
  ASSERT_OK_AND_ASSIGN(const Parallel map_later,
                       ReadAuto("all_reduce_fusion_config: [1], comm_fusion: {allreduce: {mode: size, config: 1}}"));
  EXPECT_THAT(map_later.all_reduce_fusion_config, IsEmpty());
  EXPECT_EQ(map_later.comm_fusion.allreduce->size, MiB(1));
  EXPECT_THAT(map_later.warnings, ElementsAre(HasSubstr("comm_fusion, the later, holds")));
  ASSERT_OK_AND_ASSIGN(const Parallel list_later,
                       ReadAuto("comm_fusion: {allreduce: {mode: size, config: 1}}, all_reduce_fusion_config: [1]"));
  EXPECT_THAT(list_later.all_reduce_fusion_config, ElementsAre(1));
  EXPECT_FALSE(list_later.comm_fusion.allreduce.has_value());
  EXPECT_THAT(list_later.warnings, ElementsAre(HasSubstr("all_reduce_fusion_config, the later, holds")));
}

TEST(ParallelTest, OfTwoDatasetSettingsTheLaterHolds) {
  ASSERT_OK_AND_ASSIGN(const Parallel full_later, ReadAuto("dataset_strategy: data_parallel, full_batch: true"));
  EXPECT_EQ(full_later.dataset_strategy, DatasetStrategy::kFullBatch);
  EXPECT_EQ(full_later.warnings.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const Parallel strategy_later, ReadAuto("full_batch: true, dataset_strategy: data_parallel"));
  EXPECT_EQ(strategy_later.dataset_strategy, DatasetStrategy::kDataParallel);
  EXPECT_EQ(ReadAuto("full_batch: true")->dataset_strategy, DatasetStrategy::kFullBatch);
  EXPECT_THAT(ReadAuto("full_batch: true")->warnings, IsEmpty());
}

// S11.9: the size of groups has two places.
TEST(ParallelTest, OfTwoSizesOfGroupsTheLaterHolds) {
  constexpr absl::string_view kNested = "parallel_optimizer_config: {optimizer_weight_shard_size: 2}";
  constexpr absl::string_view kAlone = "optimizer_weight_shard_size: 4";
  ASSERT_OK_AND_ASSIGN(const Parallel alone, ReadAuto(absl::StrCat(kNested, ", ", kAlone)));
  EXPECT_EQ(alone.optimizer_weight_shard_size, 4);
  EXPECT_THAT(alone.warnings, ElementsAre(HasSubstr("both set; that of its own, the later, holds")));
  ASSERT_OK_AND_ASSIGN(const Parallel nested, ReadAuto(absl::StrCat(kAlone, ", ", kNested)));
  EXPECT_EQ(nested.optimizer_weight_shard_size, 2);
  EXPECT_THAT(nested.warnings, ElementsAre(HasSubstr("both set; that of the map, the later, holds")));
}

TEST(ParallelTest, TheOldNameOfSearchModeIsTakenWithAWarning) {
  ASSERT_OK_AND_ASSIGN(const Parallel p, ReadAuto("auto_parallel_search_mode: sharding_propagation"));
  EXPECT_EQ(p.search_mode, SearchKnob::kShardingPropagation);
  EXPECT_EQ(p.warnings.size(), 1u);
}

// Reads the shard of an operator with two inputs.
absl::StatusOr<OpSharding> ReadShard(absl::string_view op, absl::string_view layouts = "") {
  const absl::StatusOr<Document> document =
      ParseDocument(absl::StrCat("op: {", op, "}\n", layouts.empty() ? "" : "layouts: ", layouts, "\n"), "m.yaml");
  if (!document.ok()) return document.status();
  return ReadSharding(document->root()["op"], document->root()["layouts"], 2);
}

TEST(ShardingTest, Tuples) {
  ASSERT_OK_AND_ASSIGN(const OpSharding s, ReadShard("shard: [[2, 4], [4, 1]], out_strategy: [[8, 1]]"));
  EXPECT_FALSE(s.is_layout());
  EXPECT_THAT(s.inputs[0].pieces, ElementsAre(2, 4));
  EXPECT_THAT(s.inputs[1].pieces, ElementsAre(4, 1));
  EXPECT_THAT(s.output->pieces, ElementsAre(8, 1));
  EXPECT_THAT(ReadShard("shard: [[2, 4]]"),
              StatusIs(kInvalid, "op.shard: found a list of 1, wanted one entry for each"));
  EXPECT_THAT(ReadShard("shard: [[0, 1], [1, 1]]"), StatusIs(kInvalid, "op.shard[0][0]: found \"0\""));
  EXPECT_THAT(ReadShard("shard: [2, 4]"), StatusIs(kInvalid, "op.shard[0]: found \"2\", wanted a list of integers"));
  EXPECT_THAT(ReadShard("shard: [[2, 4], [4, 1]], out_strategy: [[8, 1], [1, 1]]"), StatusIs(kInvalid, "out_strategy"));
  EXPECT_THAT(ReadShard("shard: 3"), StatusIs(kInvalid, "wanted a list"));
}

TEST(ShardingTest, Layouts) {
  const absl::string_view cube = "{cube: {device_matrix: [2, 2, 2], alias_name: [dp, sp, mp]}}";
  ASSERT_OK_AND_ASSIGN(const OpSharding s, ReadShard("shard: {layout: cube, in_strategy: [[mp, [sp, dp]], [[sp, dp], "
                                                     "None]]}, out_strategy: [[[mp, sp, dp], None]]",
                                                     cube));
  EXPECT_TRUE(s.is_layout());
  EXPECT_THAT(s.device_matrix, ElementsAre(2, 2, 2));
  EXPECT_THAT(s.inputs[0].dims, ElementsAre(ElementsAre("mp"), ElementsAre("sp", "dp")));
  EXPECT_THAT(s.inputs[1].dims, ElementsAre(ElementsAre("sp", "dp"), IsEmpty()));
  EXPECT_THAT(s.output->dims, ElementsAre(ElementsAre("mp", "sp", "dp"), IsEmpty()));

  const auto first = [&](absl::string_view tensor) {
    return ReadShard(absl::StrCat("shard: {layout: cube, in_strategy: [", tensor, ", [None, None]]}"), cube).status();
  };
  EXPECT_THAT(first("[x, None]"), StatusIs(kInvalid, "found \"x\", wanted one of dp, sp, mp"));
  EXPECT_THAT(first("[dp, dp]"), StatusIs(kInvalid, "found \"dp\", wanted an axis that this tensor does not use yet"));
  EXPECT_THAT(first("[[dp, None], sp]"), StatusIs(kInvalid, "found \"None\""));
  EXPECT_THAT(first("[[], sp]"), StatusIs(kInvalid, "found an empty list"));
  EXPECT_THAT(first("[]"), StatusIs(kInvalid, "found an empty list"));
  EXPECT_THAT(ReadShard("shard: {layout: ring, in_strategy: []}", cube), StatusIs(kInvalid, "wanted one of cube"));
  EXPECT_THAT(ReadShard("shard: {layout: ring, in_strategy: []}"), StatusIs(kInvalid, "wanted one of nothing"));
}

// R13 of the error catalogue.
TEST(ShardingTest, DeviceMatrices) {
  const auto matrix = [](absl::string_view text) {
    return ReadShard("shard: {layout: l, in_strategy: [[a], [a]]}", absl::StrCat("{l: ", text, "}")).status();
  };
  EXPECT_THAT(matrix("{device_matrix: [2], alias_name: [a]}"), IsOk());
  EXPECT_THAT(matrix("{device_matrix: [2], name: [a]}"), IsOk());
  EXPECT_THAT(matrix("{device_matrix: [2, 2], alias_name: [a]}"),
              StatusIs(kInvalid, "found 1 names, wanted one for each"));
  EXPECT_THAT(matrix("{device_matrix: [2, 2], alias_name: [a, a]}"), StatusIs(kInvalid, "found \"a\" twice"));
  EXPECT_THAT(matrix("{device_matrix: [2, 2], alias_name: [None, b]}"), StatusIs(kInvalid, "found \"None\""));
  EXPECT_THAT(matrix("{device_matrix: [2, 0], alias_name: [a, b]}"), StatusIs(kInvalid, "device_matrix[1]"));
  EXPECT_THAT(matrix("{device_matrix: [], alias_name: []}"), StatusIs(kInvalid, "found 0 names"));
  EXPECT_THAT(matrix("{device_matrix: [2, 2], alias_name: [a, interleaved_parallel]}"), IsOk());
  EXPECT_THAT(matrix("{device_matrix: [2, 2], alias_name: [interleaved_parallel, a]}"),
              StatusIs(kInvalid, "wanted it as the last axis"));
}

}  // namespace
}  // namespace meshwright
