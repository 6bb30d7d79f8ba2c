#include "tools/validate/training_row.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "costmodel/power_clock.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "models/decoder.h"
#include "tools/validate/row_testing.h"
#include "tools/validate/run_problem.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TrainingRunTest, ARowThatSaysEverythingTakesNoDefault) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({}));
  EXPECT_THAT(run.defaults, IsEmpty());
  EXPECT_THAT(run.approximations, IsEmpty());
  EXPECT_EQ(run.model.activation, Activation::kGelu);
  EXPECT_TRUE(run.model.tied_embeddings);
  EXPECT_EQ(run.degrees, (Degrees{.data = 4, .tensor = 2, .pipeline = 2, .microbatch = 2}));
  EXPECT_EQ(run.cluster.nodes, 2);
  EXPECT_EQ(run.cluster.nics_per_node, 4);
  EXPECT_EQ(run.cluster.nic_bandwidth, GBps(12.5));
  EXPECT_EQ(run.recompute, Recompute::kLayer);
  EXPECT_FALSE(run.training.fused_attention);
  EXPECT_FALSE(run.parallel_optimizer);
  EXPECT_EQ(run.gradient_dtype, DType::kFloat16);
}

// A100 draws 62 of 400 W idle: 200 W leave 138 of 338, 0.41 of the power, and the voltage is flat there: at the full
// clock power is 1.28^2.
TEST(TrainingRunTest, CardsUnderALimitOfTheirPower) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun own, RunOf({}));
  ASSERT_OK_AND_ASSIGN(const TrainingRun less, RunOf({{"other_opts", "cards limited to 200 of 400 W"}}));
  const double loop = own.cluster.device.kernels.loop_clock;
  EXPECT_NEAR(less.cluster.device.kernels.sustained_clock / own.cluster.device.kernels.sustained_clock,
              PowerAtClock(loop) * (200 - 62) / (400 - 62) / loop, 1e-6);
  ASSERT_OK_AND_ASSIGN(const TrainingRun none, RunOf({{"other_opts", "24 of 400 wide rows, 500 of 400 W"}}));
  EXPECT_EQ(none.cluster.device.kernels.sustained_clock, own.cluster.device.kernels.sustained_clock);
  for (const char* other : {"63 of 400 W", "recomputes 32 of 40 w/o the head"}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"other_opts", other}}));
    EXPECT_EQ(run.cluster.device.kernels.sustained_clock, own.cluster.device.kernels.sustained_clock) << other;
  }
}

TEST(TrainingRunTest, EmptyCellsTakeDefaultsAndSaySo) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"vocab", ""},
                                                     {"heads", ""},
                                                     {"kv_heads", ""},
                                                     {"dtype", ""},
                                                     {"gpu_type", "A100"},  // of 40 or 80 GB
                                                     {"interconnect", ""},
                                                     {"recompute", ""},
                                                     {"attention", ""},
                                                     {"zero_fsdp", ""},
                                                     {"seq_parallel", ""},
                                                     {"micro_batch_seqs", ""},
                                                     {"vpp", ""}}));
  EXPECT_THAT(run.defaults, ElementsAre("vocab 51200", "heads 8", "kv_heads 8", "vpp 1", "gpu_type a100-sxm-80gb",
                                        "interconnect of the usual a100-sxm-80gb machine", "dtype bf16",
                                        "attention unfused", "recompute none", "seq_parallel no", "zero_fsdp ZeRO-1"));
  EXPECT_FALSE(run.microbatch_given);
  EXPECT_EQ(run.model.head_dim, 128);
  EXPECT_TRUE(run.parallel_optimizer);
  EXPECT_EQ(run.gradient_dtype, DType::kFloat32);
}

TEST(TrainingRunTest, WhatIsOnlyNearIsNamed) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"zero_fsdp", "FSDP FULL_SHARD (ZeRO-3)"}, {"vpp", "2"}}));
  EXPECT_THAT(run.approximations, ElementsAre());
  EXPECT_TRUE(run.shard_parameters);
  EXPECT_EQ(run.chunks, 2);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"dtype", "fp8"}, {"gpu_type", "H100"}}));
  EXPECT_EQ(run.cluster.device.Peak(DType::kBFloat16), run.cluster.device.Peak(DType::kFloat8));
}

TEST(TrainingRunTest, WhatCannotBeExpressedSaysWhy) {
  const auto reason = [](const Cells& changes) {
    const absl::Status status = RunOf(changes).status();
    return absl::StrCat(status.code() == absl::StatusCode::kUnimplemented ? "" : "wrong code ", status.message());
  };
  EXPECT_EQ(reason({{"cp", "2"}, {"dp", "2"}}), "context parallelism without fused attention: cp");
  EXPECT_EQ(reason({{"tp", ""}, {"gpus", ""}, {"gpu_type", ""}}), "not given: gpus, tp, pp and gpu_type");
  EXPECT_EQ(reason({{"dp", "1000000"}, {"gpus", ""}}), "more devices than there are: 4e+06");
  EXPECT_EQ(reason({{"dp", "8"}}), "dp x tp x pp is not gpus: 32 and 16");
  // 2^32 stages of 2^32 chunks: 2^64 parts, which are 0 of 64 bits. So are 2^24 stages of chunks of 2^40 layers.
  EXPECT_EQ(reason({{"pp", "4294967296"}, {"vpp", "4294967296"}, {"other_opts", "Megatron-Core"}}),
            "more parts of a model than there are: 1.84467e+19");
  EXPECT_EQ(reason({{"pp", "16777216"}, {"vpp", ""}, {"layers_per_chunk", "1099511627776"}}),
            "more parts of a model than there are: 1.67772e+07");
  EXPECT_EQ(reason({{"gpu_type", "abacus"}}), "unknown device: abacus");
  EXPECT_EQ(reason({{"global_batch_seqs", "60"}}), "the batch does not divide: 60 over 4 x 2");
  EXPECT_EQ(reason({{"dtype", "fp8"}}), "no float8 on the device: a100-sxm-80gb");
}

TEST(TrainingRunTest, DamagedCellsAreErrorsWithTheirPlace) {
  const absl::Status status = RunOf({{"layers", "four"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t.csv:2: layers: found \"four\""));
}

TEST(TrainingRunTest, FlagsOverride) {
  RowOverrides overrides;
  overrides.device = "h100";
  overrides.internode = "800 Gb/s";
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({}, overrides));
  EXPECT_EQ(run.cluster.device.name, "h100-sxm");
  EXPECT_EQ(run.cluster.nics_per_node, 2);  // of 50 GB/s
}

TEST(TrainingRunTest, FamiliesByNameElseByParameters) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"model", "LLAMA2-1B"}}));
  EXPECT_EQ(run.model.activation, Activation::kSwiglu);
  EXPECT_FALSE(run.model.tied_embeddings);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "Mixtral-8x7B"}}));
  EXPECT_EQ(run.model.experts, 8);
  EXPECT_EQ(run.model.experts_per_token, 2);
  // 4 layers of 4 h^2 + 2 or 3 h f, h = 1024, f = 4096: 50 or 67 M, and 52 M of embedding: 103 or 120 M.
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "nobody knows"}, {"params_b", "0.12"}}));
  EXPECT_EQ(run.model.activation, Activation::kSwiglu);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "nobody knows"}, {"params_b", "0.103"}}));
  EXPECT_EQ(run.model.activation, Activation::kGelu);
  EXPECT_THAT(run.defaults, ElementsAre("a family like GPT"));
}

// DeepSeek-V3's experts are of 4 of 8 groups; AutoModel's benchmarks give a token neighbours, 8 of 128 are of one group
// of 16.
TEST(TrainingRunTest, GroupsThatRoutersChooseOf) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"model", "DeepSeekV3"}, {"hidden", "7168"}}));
  EXPECT_EQ(run.model.choice_groups, 8);
  EXPECT_EQ(run.model.choice_groups_per_token, 4);
  ASSERT_OK_AND_ASSIGN(
      run, RunOf({{"experts", "128"}, {"experts_per_token", "8"}, {"source_ref", "NVIDIA-NeMo/Automodel"}}));
  EXPECT_EQ(run.model.choice_groups, 16);
  EXPECT_EQ(run.model.choice_groups_per_token, 1);
}

// 20 bytes for each of 175 billion parameters in half of 79.2 GiB: 84 devices at least; 12 stages divide 96 layers.
TEST(TrainingRunTest, TheFewestDevicesWhereNoneAreNamed) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"gpus", ""},
                                                     {"tp", ""},
                                                     {"pp", ""},
                                                     {"dp", ""},
                                                     {"layers", "96"},
                                                     {"hidden", "12288"},
                                                     {"ffn", "49152"},
                                                     {"heads", "96"},
                                                     {"kv_heads", "96"}}));
  EXPECT_EQ(run.cluster.num_devices(), 96);
}

TEST(TrainingRunTest, WhatIsLeftOpenIsToBeChosen) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"tp", ""}, {"pp", ""}, {"dp", ""}}));
  EXPECT_FALSE(run.tensor_given || run.pipeline_given);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpus", ""}, {"dp", ""}, {"global_batch_seqs", ""}, {"micro_batch_seqs", ""}}));
  EXPECT_EQ(run.cluster.num_devices(), 4);  // tp 2 x pp 2
  // 103 M parameters: 2^19 tokens of 1024.
  EXPECT_EQ(run.training.batch, 512);
  EXPECT_THAT(run.defaults, ElementsAre("gpus 4", "global_batch_seqs 512"));
  // 2 s at 24,576 tokens a second are 48 rows of 1024; at 24,832 they are 48 and a half.
  const auto with_rate = [](const std::string& rate) {
    return RunOf({{"global_batch_seqs", ""}, {"micro_batch_seqs", ""}, {"tokens_per_s_total", rate}});
  };
  ASSERT_OK_AND_ASSIGN(run, with_rate("24576"));
  EXPECT_EQ(run.training.batch, 48);
  EXPECT_THAT(run.defaults, ElementsAre("global_batch_seqs 48 by tokens a second and time"));
  ASSERT_OK_AND_ASSIGN(run, with_rate("24832"));
  EXPECT_EQ(run.training.batch, 512);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpus", "12"}, {"dp", ""}, {"global_batch_seqs", "60"}}));
  EXPECT_THAT(run.approximations, ElementsAre("nodes of 6 devices, so that all are full"));
}

// 1024 rows over 6 replicas: of the numbers that divide, 4 and 8, 8 is nearer in ratio (1.33 against 1.5).
TEST(TrainingRunTest, ADegreeThatDividesStandsInForOneThatDoesNot) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run,
                       RunOf({{"dp", "6"}, {"gpus", "24"}, {"global_batch_seqs", "96"}, {"zero_fsdp", "ZeRO-1"}}));
  const TrainingRun near = WithDividingDegree(run);
  EXPECT_EQ(near.degrees.data, 8);
  EXPECT_EQ(near.training.batch, 128);
  EXPECT_EQ(near.cluster.nodes, 4);
  // Rows of the second product over 2 ranks, 11008 / 2 = 2^7 x 43: 128 is the most that divides them.
  ASSERT_OK_AND_ASSIGN(
      const TrainingRun many,
      RunOf(
          {{"dp", "256"}, {"gpus", "1024"}, {"global_batch_seqs", "512"}, {"ffn", "11008"}, {"zero_fsdp", "ZeRO-1"}}));
  EXPECT_EQ(WithDividingDegree(many).degrees.data, 128);
  ASSERT_OK_AND_ASSIGN(const TrainingRun whole, RunOf({{"dp", "6"}, {"gpus", "24"}, {"global_batch_seqs", "96"}}));
  EXPECT_EQ(WithDividingDegree(whole).degrees.data, 6);
}

// 4 layers over 2 stages are at most 2 chunks each; experts over 3 of 4 replicas would not come out even.
TEST(TrainingRunTest, WhatMegatronDoesAndOursDoesNotIsComeNearTo) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun chunks, RunOf({{"vpp", "8"}}));
  EXPECT_EQ(chunks.chunks, 2);
  EXPECT_THAT(chunks.approximations, ElementsAre("vpp 2: there are no more layers"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun experts, RunOf({{"model", "GPT 8x1B"}, {"ep", "3"}}));
  EXPECT_EQ(experts.degrees.expert, 1);
  EXPECT_THAT(experts.approximations, ElementsAre("experts over the 1 of those ranks that are replicas"));
}

// A layer has 4 h^2 + 2 h f = 12 h^2 parameters, the head 50 h^2 with h = 1024: 8 layers and the head are 96 + 50 =
// 146, half of it is 73: the seventh layer (84) is the first beyond, the eighth is left for the second stage.
TEST(TrainingRunTest, NanotronDealsLayersOutByCost) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"model", "GPT (nanotron)"}, {"layers", "8"}}));
  EXPECT_THAT(LayersPerStage(run), ElementsAre(7, 1));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"layers", "8"}}));
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
}

// Ranks that share a row hold the same parameters and split them as replicas do (accelerate's dp_shard_cp, Megatron's
// data-parallel group with context parallelism): with one replica of four ranks, too, and not with one rank.
TEST(TrainingRunTest, RanksThatShareARowSplitParameters) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run,
                       RunOf({{"cp", "4"}, {"dp", "1"}, {"pp", "2"}, {"attention", "flash"}, {"zero_fsdp", "ZeRO-1"}}));
  EXPECT_TRUE(run.parallel_optimizer);
  ASSERT_OK_AND_ASSIGN(run,
                       RunOf({{"cp", "8"}, {"dp", "1"}, {"pp", "1"}, {"attention", "flash"}, {"zero_fsdp", "FSDP2"}}));
  EXPECT_TRUE(run.shard_parameters);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"tp", "8"}, {"dp", "1"}, {"zero_fsdp", "ZeRO-1"}}));
  EXPECT_FALSE(run.parallel_optimizer);
}

// Of 16 devices, tp 2 x pp 2 x cp 2 x dp 2.
TEST(TrainingRunTest, ContextParallelism) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"cp", "2"}, {"dp", "2"}, {"attention", "flash"}}));
  EXPECT_EQ(run.training.sequence, 1024);
  EXPECT_EQ(run.training.batch, 64);
  EXPECT_EQ(run.degrees.data, 2);
  EXPECT_EQ(run.degrees.context, 2);
  EXPECT_EQ(run.degrees.exchange, ContextExchange::kRing);
  EXPECT_EQ(run.approximations.size(), 0);
}

// Eight experts over 2 tensor-parallel ranks x 4 replicas, as Megatron counts them; over 4 of these ranks where they
// are split over tensor parallelism.
TEST(TrainingRunTest, ExpertsOverTensorParallelRanks) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"model", "GPT 8x1B"}, {"ep", "8"}}));
  EXPECT_EQ(run.degrees.expert, 4);
  EXPECT_TRUE(run.degrees.spread_experts);
  EXPECT_THAT(run.approximations, ElementsAre());
  EXPECT_EQ(run.model.capacity_factor, 1);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "GPT 8x1B"}, {"ep", "4"}, {"etp", "1"}}));
  EXPECT_EQ(run.degrees.expert, 2);
  EXPECT_TRUE(run.degrees.spread_experts);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "GPT 8x1B"}, {"ep", "4"}, {"etp", "2"}}));
  EXPECT_EQ(run.degrees.expert, 4);
  EXPECT_FALSE(run.degrees.spread_experts);
  EXPECT_EQ(run.host.experts.sent_share, 1);
}

// The fullest of 64 measured experts, 0.62 above the mean, is 2.336 deviations away by Blom's quantiles, that of eight
// 1.434: 1.3806. A rank that has all eight is never fuller than the mean, but its products are where they are padded.
TEST(TrainingRunTest, ExpertsThatARouterFills) {
  const auto imbalance = [](absl::string_view ep, absl::string_view words) {
    const absl::StatusOr<TrainingRun> run =
        RunOf({{"model", "GPT 8x1B"}, {"ep", std::string(ep)}, {"other_opts", std::string(words)}});
    return run.ok() ? run->model.capacity_factor : 0;
  };
  EXPECT_NEAR(imbalance("8", "natural routing"), 1.3806, 0.002);
  EXPECT_EQ(imbalance("1", "natural routing"), 1);
  EXPECT_NEAR(imbalance("1", "one batched product"), 1.3806, 0.002);
}

// Over 4 replicas x 2 ranks that share a row.
TEST(TrainingRunTest, ExpertsOverContextParallelRanks) {
  ASSERT_OK_AND_ASSIGN(
      const TrainingRun run,
      RunOf({{"model", "GPT 8x1B"}, {"tp", "1"}, {"dp", "4"}, {"cp", "2"}, {"ep", "8"}, {"attention", "flash"}}));
  EXPECT_EQ(run.degrees.expert, 8);
  EXPECT_EQ(run.degrees.data, 4);
  EXPECT_EQ(run.degrees.context, 2);
  EXPECT_THAT(run.approximations, ElementsAre());
}

// Over 2 tensor-parallel ranks, and of 8 that share a row each 4: Megatron-Core counts tensor parallelism first.
TEST(TrainingRunTest, ExpertsOverAPartOfContextParallelRanks) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"model", "GPT 8x1B"},
                                                     {"gpus", "16"},
                                                     {"tp", "2"},
                                                     {"pp", "1"},
                                                     {"dp", "1"},
                                                     {"cp", "8"},
                                                     {"ep", "8"},
                                                     {"etp", "1"},
                                                     {"attention", "flash"}}));
  EXPECT_EQ(run.degrees.expert, 4);
  EXPECT_EQ(run.degrees.expert_context(), 4);
  EXPECT_TRUE(run.degrees.spread_experts);
  EXPECT_THAT(run.approximations, ElementsAre());
}

// 64 experts of which two are a token's, over 4 tensor-parallel ranks x 4 replicas: two nodes of 8. A token has some on
// a node with 1 - (32 x 31) / (64 x 63), and a copy for each node in place of one for each of its two experts.
TEST(TrainingRunTest, CopiesForNodesWhereExpertsAreSpread) {
  Cells cells = {{"model", "GPT 64x1B"},
                 {"gpu_type", "H100"},
                 {"attention", "flash"},
                 {"seq_parallel", ""},
                 {"gpus", "16"},
                 {"tp", "4"},
                 {"pp", "1"},
                 {"dp", "4"},
                 {"ep", "16"},
                 {"etp", "1"},
                 {"other_opts", "DeepEP"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(cells));
  EXPECT_TRUE(run.degrees.spread_experts);
  EXPECT_DOUBLE_EQ(run.host.experts.sent_share, 1 - 32.0 * 31 / (64 * 63));
}

// 72 devices share a switch.
TEST(TrainingRunTest, DevicesOfANode) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"gpu_type", "GB200"},
                                                     {"gpus", "72"},
                                                     {"gpus_per_node", ""},
                                                     {"tp", "1"},
                                                     {"dp", "36"},
                                                     {"global_batch_seqs", "72"},
                                                     {"interconnect", ""}}));
  EXPECT_THAT(run.defaults, Contains("gpus_per_node 72"));
}

TEST(TrainingRunTest, Dgx2HasSwitches) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"gpu_type", "V100"}}));
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvLinkMesh);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpu_type", "V100"}, {"interconnect", "DGX-2"}}));
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvSwitch);
  EXPECT_EQ(run.cluster.device.name, "v100-sxm3-32gb");
}

TEST(TrainingRunTest, BoardsOfFourSuperchipsHaveLessPower) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"gpu_type", "GH200"}, {"gpus_per_node", "4"}}));
  EXPECT_EQ(run.cluster.device.name, "gh200-quad");
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvLinkMesh);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpu_type", "GH200"}, {"gpus_per_node", "1"}}));
  EXPECT_EQ(run.cluster.device.name, "gh200");
}

TEST(TrainingRunTest, MachinesOfFourHaveNoSwitch) {
  ASSERT_OK_AND_ASSIGN(
      TrainingRun run,
      RunOf({{"gpu_type", "H100"}, {"gpus", "2"}, {"tp", "2"}, {"pp", "1"}, {"dp", "1"}, {"gpus_per_node", "4"}}));
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvLinkMesh);
  EXPECT_NEAR(run.cluster.intra_bandwidth.raw(), 150e9, 1e6);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpu_type", "H100"}, {"gpus", "4"}, {"tp", "4"}, {"pp", "1"}, {"dp", "1"}}));
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvSwitch);
}

TEST(TrainingRunTest, Float4) {
  const Cells row = {{"dtype", "NVFP4"}, {"attention", "TE/cuDNN flash"}};
  EXPECT_THAT(std::string(RunOf(row).status().message()), HasSubstr("no float8 on the device"));
  Cells blackwell = row;
  blackwell.push_back({"gpu_type", "B200"});
  ASSERT_OK_AND_ASSIGN(const TrainingRun four, RunOf(blackwell));
  blackwell[0].second = "MXFP8";
  ASSERT_OK_AND_ASSIGN(const TrainingRun eight, RunOf(blackwell));
  const Device &narrow = four.cluster.device, &wide = eight.cluster.device;
  EXPECT_NEAR(narrow.Peak(DType::kBFloat16).raw() / wide.Peak(DType::kBFloat16).raw(), 1.9, 1e-9);
  EXPECT_EQ(narrow.kernels.product_bits, 4);
  // Two thirds of 2 + 2, and of 2 + 3 beside a Hadamard transform, 7 before rows and columns were of one kernel.
  EXPECT_EQ(wide.kernels.quantize_bytes, Bytes(3));
  EXPECT_EQ(narrow.kernels.quantize_bytes, Bytes(3));
  Cells older = blackwell;
  older[0].second = "NVFP4";
  older.push_back({"other_opts", "Megatron-Bridge 26.02"});
  ASSERT_OK_AND_ASSIGN(const TrainingRun apart, RunOf(older));
  EXPECT_EQ(apart.cluster.device.kernels.quantize_bytes, Bytes(5));
  EXPECT_FALSE(four.host.overlaps_products);
  EXPECT_TRUE(eight.host.overlaps_products);
  blackwell.push_back({"other_opts", "current scaling, no overlap of tensor parallelism"});
  ASSERT_OK_AND_ASSIGN(const TrainingRun current, RunOf(blackwell));
  EXPECT_EQ(current.cluster.device.kernels.quantize_bytes, Bytes(3));  // 2 and 2 + 1
  EXPECT_FALSE(current.host.overlaps_products);
  Cells hopper = blackwell;  // 2 and 2 + 2
  hopper[0].second = "fp8";
  hopper[2].second = "H100";
  ASSERT_OK_AND_ASSIGN(const TrainingRun transposed, RunOf(hopper));
  EXPECT_EQ(transposed.cluster.device.kernels.quantize_bytes, Bytes(4));
  blackwell.back().second = "torchtitan";
  ASSERT_OK_AND_ASSIGN(const TrainingRun blocks, RunOf(blackwell));
  EXPECT_EQ(blocks.cluster.device.kernels.quantize_bytes, Bytes(6));
  blackwell[0].second = "fp8";
  ASSERT_OK_AND_ASSIGN(const TrainingRun whole, RunOf(blackwell));
  EXPECT_EQ(whole.cluster.device.kernels.quantize_bytes, Bytes(3));
  blackwell[2].second = "H100";
  blackwell[0].second = "fp4";
  EXPECT_THAT(std::string(RunOf(blackwell).status().message()), HasSubstr("no float4 on the device"));
}

// Grouped products came to float8 before Blackwell came.
TEST(TrainingRunTest, ExpertsInFloat8FromBlackwellOn) {
  Cells row = {{"model", "Mixtral-8x1B"}, {"dtype", "fp8"}, {"attention", "TE/cuDNN flash"}, {"gpu_type", "H100"}};
  ASSERT_OK_AND_ASSIGN(const TrainingRun hopper, RunOf(row));
  EXPECT_FALSE(hopper.narrow);
  row[3].second = "B200";
  ASSERT_OK_AND_ASSIGN(const TrainingRun blackwell, RunOf(row));
  EXPECT_TRUE(blackwell.narrow);
}

TEST(TrainingRunTest, ExpertsInBf16UnlessTheRowSaysOtherwise) {
  const Cells cells = {{"model", "Mixtral-8x7B"}, {"dtype", "fp8"}, {"gpu_type", "H100"}, {"seq_parallel", ""}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(cells));
  EXPECT_FALSE(run.narrow);
  Cells grouped = cells;
  grouped.push_back({"other_opts", "fp8 grouped products"});
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_TRUE(run.narrow);
  grouped.back().second = "DualPipe";
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_TRUE(run.narrow);
  grouped.back().second = "Megatron-Core; DualPipe";  // the schedule alone
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_FALSE(run.narrow);
  // Containers have them since February 2025.
  grouped = cells;
  grouped.push_back({"source_ref", "NVIDIA dgxc-benchmarking v25.04"});
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_TRUE(run.narrow);
  grouped.back().second = "NeMo docs (24.12)";
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_FALSE(run.narrow);
}

TEST(TrainingRunTest, RecomputeOfSomeLayers) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"recompute", "selective layer (every 4th layer)"}}));
  EXPECT_EQ(run.recompute_share, 0.25);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"recompute", "block, 3 layers"}}));
  EXPECT_EQ(run.recompute_share, 0.75);  // of 4
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"recompute", "full (uniform, 1 layer)"}}));
  EXPECT_EQ(run.recompute_share, 1);
  EXPECT_EQ(run.recompute, Recompute::kLayer);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"recompute", "mlp level 1"}}));
  EXPECT_EQ(run.recompute, Recompute::kNone);
  EXPECT_THAT(run.approximations, ElementsAre("recompute \"mlp level 1\" as none"));
}

// Megatron's is of attention's core.
TEST(TrainingRowTest, SelectiveRecomputeIsMegatronsWhereItSaysSo) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"recompute", "selective"}, {"other_opts", "Megatron-LM"}}));
  EXPECT_EQ(run.recompute, Recompute::kNone);
  EXPECT_EQ(run.recompute_ops, std::set<std::string>{"attention"});
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"recompute", "selective"}}));
  EXPECT_EQ(run.recompute, Recompute::kSelective);
}

TEST(TrainingRunTest, SequenceParallelismInOtherWords) {
  for (const char* const yes : {"yes", "True", "on", "y", "1", "yes (TE)"}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"seq_parallel", yes}}));
    EXPECT_TRUE(run.degrees.sequence_parallel) << yes;
  }
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"seq_parallel", "off"}}));
  EXPECT_FALSE(run.degrees.sequence_parallel);
  EXPECT_THAT(run.approximations, ElementsAre());
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"seq_parallel", "Maybe"}}));
  EXPECT_THAT(run.approximations, ElementsAre("seq_parallel \"maybe\" as no"));
}

// torchtitan keeps every other product's output: half of the first wide product is run again.
TEST(TrainingRunTest, SelectiveOp) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"recompute", "selective op"}, {"attention", "SDPA"}}));
  EXPECT_EQ(run.recompute, Recompute::kNone);
  EXPECT_EQ(run.recompute_ops.count("proj"), 1u);
  EXPECT_EQ(run.recompute_ops.count("attention"), 0u);
  EXPECT_THAT(run.recompute_more, ElementsAre("mlp1"));
  EXPECT_EQ(run.recompute_share, 0.5);
}

// PyTorch's stages reduce gradients once a step; AutoModel's experts do so without stages.
TEST(TrainingRunTest, Fsdp2ThatKeepsParametersWhole) {
  Cells cells = {{"model", "GPT 8x1B"},  {"tp", "1"}, {"dp", "8"}, {"ep", "4"}, {"zero_fsdp", "FSDP2"},
                 {"attention", "flash"}, {"pp", "2"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(cells));
  EXPECT_TRUE(run.parallel_optimizer);
  EXPECT_FALSE(run.shard_parameters);
  EXPECT_THAT(run.defaults, Contains("parameters gathered and gradients reduced once a step"));
  cells[2].second = "16";
  cells.back().second = "1";
  ASSERT_OK_AND_ASSIGN(run, RunOf(cells));
  EXPECT_TRUE(run.shard_parameters);
  cells.push_back({"other_opts", "NeMo AutoModel"});
  ASSERT_OK_AND_ASSIGN(run, RunOf(cells));
  EXPECT_FALSE(run.shard_parameters);
}

}  // namespace
}  // namespace meshwright
