// F01: every knob of S1.2, S14.2 and S1.8 through a C++ context and through a model file: what is set is what is got,
// what is wrong is refused with its kind, a failed set changes nothing. R1 to R4, R18 and R28 of the error catalogue.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "models/knob_context.h"
#include "models/knobs.h"
#include "models/model_file.h"
#include "models/parallel.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Map = KnobValue::Map;
using List = KnobValue::List;

Training AnyTraining() {
  Training training;
  training.optimizer.kind = OpKind::kAdamW;
  return training;
}

// The same knob in a model file, in a mode in which it acts.
absl::Status ReadInFile(const std::string& knob, const KnobValue& value) {
  const Knob* const row = FindKnob(knob);
  ParallelMode mode = ParallelMode::kAuto;
  if (row != nullptr && (row->modes & ModeBit(mode)) == 0) mode = ParallelMode::kDataParallel;
  const absl::StatusOr<Document> document =
      ParseDocument(absl::StrCat("parallel: {", knob, ": ", ToText(value), "}"), "model.yaml");
  if (!document.ok()) return document.status();
  return ReadParallel(document->root()["parallel"], AnyTraining(), mode).status();
}

struct Wrong {
  KnobValue value;
  absl::string_view kind;
};
struct Case {
  std::string knob;
  KnobValue fallback;
  std::vector<KnobValue> good;
  std::vector<Wrong> wrong;
};

Map Rule(const char* mode, KnobValue config) { return {{"mode", mode}, {"config", std::move(config)}}; }

// S1.2 and S14.2, row by row: default, values in range, values out of it.
std::vector<Case> Cases() {
  const Wrong no_bool{1, "E-TYPE"};
  const std::vector<Wrong> not_above_zero = {{0, "E-VALUE"}, {-1.0, "E-VALUE"}, {"x", "E-TYPE"}};
  const std::vector<Wrong> below_zero = {{-1, "E-VALUE"}, {"x", "E-TYPE"}};
  return {
      // R1, R2, R3, R4.
      {"device_num",
       0,
       {1, 3, 8, 4096},
       {{0, "E-VALUE"}, {-1, "E-VALUE"}, {4097, "E-VALUE"}, {"8", "E-TYPE"}, {8.0, "E-TYPE"}, {true, "E-TYPE"}}},
      {"global_rank", 0, {0, 4095}, {{-1, "E-VALUE"}, {4096, "E-VALUE"}, {"0", "E-TYPE"}, {1.5, "E-TYPE"}}},
      {"gradients_mean", false, {true, false}, {no_bool, {"yes", "E-TYPE"}}},
      {"gradient_fp32_sync", true, {false}, {no_bool}},
      {"parallel_mode",
       "stand_alone",
       {"stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel"},
       {{"auto", "E-VALUE"}, {List{"auto_parallel"}, "E-TYPE"}}},
      {"search_mode",
       "dynamic_programming",
       {"dynamic_programming", "recursive_programming", "sharding_propagation"},
       {{"best", "E-VALUE"}}},
      {"auto_parallel_search_mode", "dynamic_programming", {"sharding_propagation"}, {{"best", "E-VALUE"}}},
      {"all_reduce_fusion_config",
       List{},
       {List{20, 35}, List{0}, List{}},
       {{List{35, 20}, "E-VALUE"}, {List{-1}, "E-VALUE"}, {List{"a"}, "E-TYPE"}, {3, "E-TYPE"}}},
      {"comm_fusion",
       KnobValue(),
       {Map{{"openstate", false}}, Map{{"allreduce", Rule("auto", KnobValue())}}, Map{{"allreduce", Rule("size", 32)}},
        Map{{"allreduce", Rule("index", List{20, 35})}},
        Map{{"allgather", Rule("size", 16)}, {"reducescatter", Rule("size", 32)}}},
       {{Map{{"allgather", Rule("index", List{1})}}, "E-KEY"},
        {Map{{"allreduce", Map{{"config", 1}}}}, "E-KEY"},
        {Map{{"allreduce", Map{{"mode", "size"}}}}, "E-KEY"},
        {Map{{"alltoall", Rule("auto", KnobValue())}}, "E-KEY"},
        {Map{{"allreduce", Rule("auto", 3)}}, "E-VALUE"},
        {Map{{"allreduce", Rule("size", 0)}}, "E-VALUE"},
        {Map{{"allreduce", Rule("size", "32")}}, "E-TYPE"},
        {Map{{"openstate", 1}}, "E-TYPE"},
        {"size", "E-TYPE"}}},
      {"enable_parallel_optimizer", false, {true}, {no_bool}},
      {"parallel_optimizer_config",
       Map{},
       {Map{{"gradient_accumulation_shard", true}}, Map{{"parallel_optimizer_threshold", 24}}},
       {{Map{{"parallel_optimizer_threshold", -1}}, "E-VALUE"},
        {Map{{"gradient_accumulation_shard", 1}}, "E-TYPE"},
        {Map{{"shards", 2}}, "E-VALUE"}}},
      {"optimizer_weight_shard_size", -1, {-1, 2}, {{0, "E-VALUE"}, {-2, "E-VALUE"}, {"2", "E-TYPE"}}},
      {"parameter_broadcast", false, {true}, {no_bool}},
      {"full_batch", false, {true, false}, {no_bool}},
      {"dataset_strategy",
       "data_parallel",
       {"full_batch", "data_parallel", List{List{1, 4}, List{4}}},
       {{"x", "E-VALUE"}, {List{4}, "E-TYPE"}, {List{List{"a"}}, "E-TYPE"}, {List{}, "E-VALUE"}}},
      {"pipeline_stages", 1, {4}, {{0, "E-VALUE"}, {-1, "E-VALUE"}, {"4", "E-TYPE"}}},
      {"pipeline_config",
       Map{{"pipeline_scheduler", "1f1b"}, {"pipeline_interleave", false}},
       {Map{{"pipeline_scheduler", "gpipe"}}, Map{{"pipeline_interleave", true}}},
       {{Map{{"scheduler", "gpipe"}}, "E-KEY"}, {Map{{"pipeline_scheduler", "zero"}}, "E-VALUE"}}},
      {"strategy_ckpt_save_file", "", {"./strategy.json"}, {{List{}, "E-TYPE"}}},
      {"group_ckpt_save_file", "", {"./groups.pb"}, {{List{}, "E-TYPE"}}},
      {"strategy_ckpt_load_file", "", {"./"}, {{List{}, "E-TYPE"}}},
      {"enable_alltoall", false, {true}, {no_bool}},
      {"grad_accumulation_step", 1, {4}, {{0, "E-VALUE"}, {1.0, "E-TYPE"}}},
      // R28 and the rest of S14.2.
      {"device_memory_capacity", "16 GiB", {24576, "32 GiB"}, {{0, "E-VALUE"}, {-1.0, "E-VALUE"}, {List{}, "E-TYPE"}}},
      {"costmodel_alpha", 1.0, {2, 0.5}, not_above_zero},
      {"costmodel_beta", 50.0, {400.0}, not_above_zero},
      {"costmodel_gamma", 0.001, {0, 1, 0.5}, {{1.1, "E-VALUE"}, {-0.1, "E-VALUE"}, {"x", "E-TYPE"}}},
      {"costmodel_communi_threshold", 2048, {0, 4096}, below_zero},
      {"costmodel_communi_const", 3072, {0}, below_zero},
      {"costmodel_communi_bias", 1024, {0}, below_zero},
      {"run_phase", 0, {0, 1}, {{2, "E-VALUE"}, {"1", "E-TYPE"}}},
      {"costmodel_simplify_cal", true, {false}, {no_bool}},
      {"multi_subgraphs", false, {true}, {no_bool}},
      {"fully_use_devices", true, {false}, {no_bool}},
      {"elementwise_op_strategy_follow", false, {true}, {no_bool}},
      {"tensor_slice_align_enable", false, {true}, {no_bool}},
      {"tensor_slice_align_size", 16, {1, 1024}, {{0, "E-VALUE"}, {1025, "E-VALUE"}, {16.0, "E-TYPE"}}},
      {"dp_algo_enable_approxi", false, {true}, {no_bool}},
      {"dp_algo_approxi_epsilon", 0.1, {1, 0.01}, {{0, "E-VALUE"}, {1.5, "E-VALUE"}, {"x", "E-TYPE"}}},
      {"dp_algo_single_loop", false, {true}, {no_bool}},
      {"rp_matmul_mem_coef", 0.25, {1}, not_above_zero},
      {"search_prices", "bytes", {"time", "simulation"}, {{"guesses", "E-VALUE"}, {List{}, "E-TYPE"}}},
  };
}

TEST(KnobsTest, WhatIsSetIsWhatIsGot) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.knob);
    KnobContext context;
    ASSERT_OK_AND_ASSIGN(const KnobValue fallback, context.Get(c.knob));
    EXPECT_EQ(ToText(fallback), ToText(c.fallback));
    for (const KnobValue& value : c.good) {
      SCOPED_TRACE(ToText(value));
      EXPECT_OK(context.Set({{c.knob, value}}));
      ASSERT_OK_AND_ASSIGN(const KnobValue got, context.Get(c.knob));
      EXPECT_EQ(got, value);
      EXPECT_OK(ReadInFile(c.knob, value));
    }
    context.Reset();
    EXPECT_EQ(ToText(context.Get(c.knob).value()), ToText(c.fallback));
  }
}

TEST(KnobsTest, WhatIsWrongIsRefusedWithItsKindAndChangesNothing) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.knob);
    KnobContext context;
    ASSERT_OK(context.Set({{c.knob, c.good[0]}}));
    for (const Wrong& wrong : c.wrong) {
      SCOPED_TRACE(ToText(wrong.value));
      const absl::Status set = context.Set({{"strategy_ckpt_save_file", "other"}, {c.knob, wrong.value}});
      EXPECT_EQ(KindOf(set), wrong.kind) << set;
      EXPECT_THAT(std::string(set.message()), HasSubstr(c.knob));
      EXPECT_EQ(context.Get(c.knob).value(), c.good[0]) << "a failed set changes nothing";
      if (c.knob != "strategy_ckpt_save_file") {
        EXPECT_EQ(context.Get("strategy_ckpt_save_file").value(), KnobValue(""));
      }
      const absl::Status read = ReadInFile(c.knob, wrong.value);
      EXPECT_EQ(KindOf(read), wrong.kind) << read;
      EXPECT_THAT(std::string(read.message()), HasSubstr(c.knob));
    }
  }
}

// The table has no row that the cases above do not cover, but for the planner's own choices, which have no default.
TEST(KnobsTest, EveryRowIsCovered) {
  std::set<std::string> covered;
  for (const Case& c : Cases()) covered.insert(c.knob);
  std::vector<std::string> others;
  for (const Knob& knob : ParallelKnobs()) {
    if (covered.count(std::string(knob.name)) == 0) others.emplace_back(knob.name);
  }
  EXPECT_THAT(others, ElementsAre("pipeline_loss", "virtual_pipeline_stages", "layers_per_stage", "micro_batches",
                                  "micro_batch", "tensor_parallel", "data_parallel", "expert_parallel", "dispatcher",
                                  "spread_experts", "context_parallel", "context_exchange", "sequence_parallel",
                                  "shard_parameters", "max_pipeline_stages", "max_tensor_parallel", "max_data_parallel",
                                  "max_expert_parallel", "max_context_parallel", "fuse_epilogues", "fuse_loss",
                                  "fuse_updates", "recompute"));
}

// R3.
TEST(KnobsTest, AnUnknownKnobIsRefusedEverywhere) {
  KnobContext context;
  EXPECT_THAT(context.Set({{"gradient_mean", true}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "did you mean \"gradients_mean\"?"));
  EXPECT_EQ(KindOf(context.Set({{"gradient_mean", true}})), "E-VALUE");
  EXPECT_EQ(KindOf(context.Get("gradient_mean").status()), "E-VALUE");
  EXPECT_EQ(KindOf(ReadInFile("gradient_mean", true)), "E-VALUE");
}

// R2: below device_num, whichever is set first.
TEST(KnobsTest, ARankIsBelowTheNumberOfDevices) {
  KnobContext context;
  EXPECT_EQ(KindOf(context.Set({{"device_num", 8}, {"global_rank", 8}})), "E-VALUE");
  ASSERT_OK(context.Set({{"global_rank", 7}}));
  EXPECT_OK(context.Set({{"device_num", 8}}));
  EXPECT_THAT(context.Set({{"device_num", 7}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "global_rank: found 7, wanted a rank below device_num = 7"));
  EXPECT_EQ(context.Get("device_num").value(), KnobValue(8));
}

// Seed E sets one knob after the other, in no order: the mode decides what may be used only once it is set.
TEST(KnobsTest, StatesAreCheckedOnceTheModeIsKnown) {
  KnobContext context;
  ASSERT_OK(context.Set({{"full_batch", true}}));
  // R18.
  EXPECT_EQ(KindOf(context.Set({{"parallel_mode", "data_parallel"}})), "E-STATE");
  EXPECT_EQ(context.Get("parallel_mode").value(), KnobValue("stand_alone"));
  EXPECT_OK(context.Set({{"parallel_mode", "semi_auto_parallel"}}));
  // A knob that is never given its mode is refused when the plan is made.
  context.Reset();
  ASSERT_OK(context.Set({{"full_batch", true}}));
  EXPECT_EQ(KindOf(context.Parallel(AnyTraining()).status()), "E-STATE");
  EXPECT_THAT(context.Parallel(AnyTraining()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "full_batch: needs semi_auto_parallel or auto_parallel, parallel_mode is stand_alone"));
}

// The column "effective in" of S1.2: where a knob acts, is refused, or is ignored with a warning.
TEST(KnobsTest, EachKnobActsInItsModes) {
  const struct {
    const char *knob, *value;
    const char* acts;  // one letter per mode of S1.4: + acts, S E-STATE, . warned of
  } cases[] = {
      {"gradients_mean", "true", ".++++"},
      {"gradient_fp32_sync", "false", "...++"},
      {"enable_parallel_optimizer", "true", "S+S++"},
      {"parameter_broadcast", "true", "S++SS"},
      {"full_batch", "true", "SSS++"},
      {"dataset_strategy", "full_batch", "SSS++"},
      {"pipeline_stages", "2", "SSS++"},
      {"search_mode", "sharding_propagation", "....+"},
      {"all_reduce_fusion_config", "[1]", ".++++"},
      {"comm_fusion", "{openstate: false}", ".++++"},
      {"strategy_ckpt_save_file", "a", "...++"},
      {"costmodel_gamma", "0.5", "....+"},
      {"grad_accumulation_step", "2", "+++++"},
      {"shard_parameters", "true", "S+S++"},
      {"tensor_parallel", "2", "...++"},
      {"micro_batch", "2", "...++"},
  };
  for (const auto& c : cases) {
    for (size_t m = 0; m < 5; ++m) {
      SCOPED_TRACE(absl::StrCat(c.knob, " in ", kParallelModeNames[m]));
      ASSERT_OK_AND_ASSIGN(
          const Document document,
          ParseDocument(absl::StrCat("{parallel_mode: ", kParallelModeNames[m], ", ", c.knob, ": ", c.value, "}"),
                        "m.yaml"));
      const absl::StatusOr<Parallel> read = ReadParallel(document.root(), AnyTraining(), ParallelMode::kStandAlone);
      if (c.acts[m] == 'S') {
        EXPECT_EQ(KindOf(read.status()), "E-STATE") << read.status();
        continue;
      }
      ASSERT_OK(read);
      bool warned = false;
      for (const std::string& warning : read->warnings)
        warned |= absl::StrContains(warning, "has no effect in the mode");
      EXPECT_EQ(warned, c.acts[m] == '.');
    }
  }
}

// S1.3: what is set counts; else the job, once there is one.
TEST(KnobsTest, ExplicitBeatsDiscovered) {
  KnobContext context;
  EXPECT_EQ(KindOf(context.DeviceNum().status()), "E-STATE");
  EXPECT_EQ(KindOf(context.GlobalRank().status()), "E-STATE");
  ASSERT_OK(context.Set({{"device_num", 8}, {"global_rank", 3}}));  // on a machine with none
  EXPECT_EQ(context.DeviceNum().value(), 8);
  EXPECT_EQ(context.GlobalRank().value(), 3);
  context.Reset();
  context.SetWorld(1, 4);
  EXPECT_EQ(context.DeviceNum().value(), 4);
  EXPECT_EQ(context.GlobalRank().value(), 1);
  ASSERT_OK(context.Set({{"device_num", 8}}));
  EXPECT_EQ(context.DeviceNum().value(), 8);
}

// S1.4: one device is what stand_alone means.
TEST(KnobsTest, StandAloneHasOneDevice) {
  KnobContext context;
  EXPECT_EQ(KindOf(context.Set({{"parallel_mode", "stand_alone"}, {"device_num", 2}})), "E-VALUE");
  EXPECT_OK(context.Set({{"parallel_mode", "stand_alone"}, {"device_num", 1}}));
}

TEST(KnobsTest, TheTypedKnobsAreThoseThatWereSet) {
  KnobContext context;
  ASSERT_OK(context.Set({{"parallel_mode", "auto_parallel"}, {"device_num", 8}, {"costmodel_gamma", 0.5}}));
  ASSERT_OK(context.Set({{"dataset_strategy", List{List{1, 4}, List{4}}}, {"pipeline_stages", 2}}));
  ASSERT_OK_AND_ASSIGN(const Parallel parallel, context.Parallel(AnyTraining()));
  EXPECT_EQ(parallel.parallel_mode, ParallelMode::kAuto);
  EXPECT_EQ(parallel.device_num, 8);
  EXPECT_EQ(parallel.cost_model.gamma, 0.5);
  EXPECT_EQ(parallel.pipeline_stages, 2);
  EXPECT_THAT(parallel.dataset_tuples, ElementsAre(ElementsAre(1, 4), ElementsAre(4)));
}

// S9.5, S10.4: of two knobs that say the same the later one holds, with a warning.
TEST(KnobsTest, TheLaterOfTwoHolds) {
  KnobContext context;
  ASSERT_OK(context.Set({{"parallel_mode", "semi_auto_parallel"}, {"dataset_strategy", "data_parallel"}}));
  ASSERT_OK(context.Set({{"full_batch", true}}));
  ASSERT_OK_AND_ASSIGN(Parallel parallel, context.Parallel(AnyTraining()));
  EXPECT_EQ(parallel.dataset_strategy, DatasetStrategy::kFullBatch);
  EXPECT_THAT(parallel.warnings, ElementsAre(HasSubstr("full_batch, the later, holds")));
  ASSERT_OK(context.Set({{"dataset_strategy", "data_parallel"}}));
  ASSERT_OK_AND_ASSIGN(parallel, context.Parallel(AnyTraining()));
  EXPECT_EQ(parallel.dataset_strategy, DatasetStrategy::kDataParallel);
  EXPECT_THAT(parallel.warnings, ElementsAre(HasSubstr("dataset_strategy, the later, holds")));
}

// S1.8.
TEST(KnobsTest, TheProcessHasItsOwnKnobs) {
  KnobContext context;
  ASSERT_OK(context.Set({{"mode", "GRAPH_MODE"}, {"device_target", "CPU"}, {"max_device_memory", "28GB"}}));
  EXPECT_EQ(context.Get("max_device_memory").value(), KnobValue("28GB"));
  EXPECT_EQ(context.Process()->max_device_memory, Bytes(28'000'000'000));
  EXPECT_OK(context.Set({{"mode", "PYNATIVE_MODE"}}));
  for (const auto& [knob, value] : Map{{"mode", "EAGER"}, {"device_target", "Ascend"}, {"max_device_memory", "28"}}) {
    EXPECT_EQ(KindOf(context.Set({{knob, value}})), "E-VALUE") << knob;
  }
  EXPECT_EQ(KindOf(context.Set({{"save_graphs", "yes"}})), "E-TYPE");
  // X30: the target stays as it was when init joined.
  context.SetWorld(0, 1);
  EXPECT_EQ(KindOf(context.Set({{"device_target", "GPU"}})), "E-STATE");
  EXPECT_OK(context.Set({{"device_target", "CPU"}}));
}

}  // namespace
}  // namespace meshwright
