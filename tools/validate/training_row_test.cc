#include "tools/validate/training_row.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tools/validate/run_problem.h"
#include "tools/validate/training_measurement.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Cells = std::vector<std::pair<std::string, std::string>>;

// Two nodes of A100, a small GPT.
Cells Usual() {
  return {{"model", "GPT 1B"},
          {"layers", "4"},
          {"hidden", "1024"},
          {"ffn", "4096"},
          {"heads", "16"},
          {"kv_heads", "16"},
          {"vocab", "51200"},
          {"seq_len", "1024"},
          {"dtype", "fp16"},
          {"gpu_type", "a100-sxm-80gb"},
          {"gpus", "16"},
          {"gpus_per_node", "8"},
          {"tp", "2"},
          {"pp", "2"},
          {"dp", "4"},
          {"global_batch_seqs", "64"},
          {"vpp", "1"},
          {"cp", "1"},
          {"micro_batch_seqs", "2"},
          {"interconnect", "4 x 100Gb RoCE"},
          {"recompute", "full"},
          {"attention", "unfused"},
          {"zero_fsdp", "none"},
          {"seq_parallel", "no"},
          {"step_time_s", "2"},
          {"status", "ok"}};
}

CsvTable TableOf(const Cells& changes) {
  Cells cells = Usual();
  for (const auto& [name, value] : changes) {
    bool found = false;
    for (auto& [key, cell] : cells) {
      if (key == name) cell = value;
      found |= key == name;
    }
    if (!found) cells.push_back({name, value});
  }
  CsvTable table;
  table.file = "t.csv";
  table.rows.push_back({2, {}});
  for (const auto& [name, value] : cells) {
    table.columns.push_back(name);
    table.rows[0].cells.push_back(value);
  }
  return table;
}

absl::StatusOr<TrainingRun> RunOf(const Cells& changes, const RowOverrides& overrides = {}) {
  const CsvTable table = TableOf(changes);
  return ReadTrainingRun(CsvCells(table, table.rows[0]), overrides);
}
absl::StatusOr<TrainingMeasurement> MeasuredOf(const Cells& changes) {
  const CsvTable table = TableOf(changes);
  const CsvCells cells(table, table.rows[0]);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingRun run, ReadTrainingRun(cells, {}));
  return ReadTrainingMeasurement(cells, run);
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
  EXPECT_NEAR(narrow.kernels.l2_bandwidth.raw() / wide.kernels.l2_bandwidth.raw(), 1.9, 1e-9);
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

// LitGPT has a head beside the embedding.
TEST(TrainingRunTest, FrameworksUntieHeads) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"other_opts", "Megatron-LM"}}));
  EXPECT_TRUE(run.model.tied_embeddings);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"other_opts", "LitGPT"}}));
  EXPECT_FALSE(run.model.tied_embeddings);
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

TEST(TrainingRunTest, WhatIsOnlyNearIsNamed) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"zero_fsdp", "FSDP FULL_SHARD (ZeRO-3)"}, {"vpp", "2"}}));
  EXPECT_THAT(run.approximations, ElementsAre());
  EXPECT_TRUE(run.shard_parameters);
  EXPECT_EQ(run.chunks, 2);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"dtype", "fp8"}, {"gpu_type", "H100"}}));
  EXPECT_EQ(run.cluster.device.Peak(DType::kBFloat16), run.cluster.device.Peak(DType::kFloat8));
}

TEST(TrainingRunTest, WhatIsLeftOpenIsToBeChosen) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"tp", ""}, {"pp", ""}, {"dp", ""}}));
  EXPECT_FALSE(run.tensor_given || run.pipeline_given);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpus", ""}, {"dp", ""}, {"global_batch_seqs", ""}, {"micro_batch_seqs", ""}}));
  EXPECT_EQ(run.cluster.num_devices(), 4);  // tp 2 x pp 2
  // 103 M parameters: 2^19 tokens of 1024.
  EXPECT_EQ(run.training.batch, 512);
  EXPECT_THAT(run.defaults, ElementsAre("gpus 4", "global_batch_seqs 512"));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpus", "12"}, {"dp", ""}, {"global_batch_seqs", "60"}}));
  EXPECT_THAT(run.approximations, ElementsAre("nodes of 6 devices, so that all are full"));
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
  // With experts, two ranks that share a row of 1024 tokens are twice as many rows of half the length, with attention
  // at half the rate.
  ASSERT_OK_AND_ASSIGN(const TrainingRun whole, RunOf({{"model", "GPT 8x1B"}, {"attention", "flash"}}));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "GPT 8x1B"}, {"cp", "2"}, {"dp", "2"}, {"attention", "flash"}}));
  EXPECT_EQ(run.training.sequence, 512);
  EXPECT_EQ(run.degrees.data, 4);
  EXPECT_EQ(run.cluster.device.attention[0].forward_share, whole.cluster.device.attention[0].forward_share / 2);
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

// Over 4 replicas x 2 ranks that share a row.
TEST(TrainingRunTest, ExpertsOverContextParallelRanks) {
  ASSERT_OK_AND_ASSIGN(
      const TrainingRun run,
      RunOf({{"model", "GPT 8x1B"}, {"tp", "1"}, {"dp", "4"}, {"cp", "2"}, {"ep", "8"}, {"attention", "flash"}}));
  EXPECT_EQ(run.degrees.expert, 8);
  EXPECT_EQ(run.degrees.data, 8);
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

// A layer has 4 h^2 + 2 h f = 12 h^2 parameters, the head 50 h^2 with h = 1024: 8 layers and the head are 96 + 50 =
// 146, half of it is 73: the seventh layer (84) is the first beyond, the eighth is left for the second stage.
TEST(TrainingRunTest, NanotronDealsLayersOutByCost) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"model", "GPT (nanotron)"}, {"layers", "8"}}));
  EXPECT_THAT(LayersPerStage(run), ElementsAre(7, 1));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"layers", "8"}}));
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
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

TEST(TrainingRunTest, CopiesThatFrameworksHold) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({}));
  EXPECT_EQ(run.copies.update, 4);  // fp16: gradients in float32
  EXPECT_EQ(run.copies.owned, 0);
  EXPECT_EQ(run.copies.whole, 0);
  EXPECT_EQ(run.host.optimizer_bytes, 26);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"zero_fsdp", "ZeRO-1"}}));
  EXPECT_EQ(run.copies.owned, 6);                       // and flat ones before
  EXPECT_EQ(run.copies.buckets, Bytes(2'000'000'000));  // of gradients and of parameters, 5e8 x 2 bytes each
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"dtype", "bf16"}, {"seq_parallel", ""}}));
  EXPECT_EQ(run.copies.whole, 0);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "GPT (nanotron)"}, {"dtype", "bf16"}, {"seq_parallel", ""}}));
  EXPECT_EQ(run.copies.whole, 2);  // DistributedDataParallel's buckets
  EXPECT_TRUE(run.copies.gathers_lists && run.copies.node_group);
  EXPECT_FALSE(run.copies.gathered_inputs);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"model", "GPT (nanotron)"}, {"dtype", "bf16"}, {"interconnect", ""}}));
  EXPECT_EQ(run.cluster.nic_latency, Micros(22));  // EFA, and the usual machine's rate
  EXPECT_EQ(run.host.optimizer_bytes, 12);
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
  // Containers have them since February 2025.
  grouped = cells;
  grouped.push_back({"source_ref", "NVIDIA dgxc-benchmarking v25.04"});
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_TRUE(run.narrow);
  grouped.back().second = "NeMo docs (24.12)";
  ASSERT_OK_AND_ASSIGN(run, RunOf(grouped));
  EXPECT_FALSE(run.narrow);
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

TEST(TrainingRunTest, FrozenWeightsHaveNoGradients) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"other_opts", "LoRA"}}));
  ASSERT_OK_AND_ASSIGN(const Graph graph, ProblemOf(run).graph(1));
  int64_t trained = 0;
  for (const Tensor& tensor : graph.tensors) trained += tensor.kind == TensorKind::kParameter && tensor.trainable;
  EXPECT_EQ(trained, 1);
  EXPECT_TRUE(graph.tensor(graph.FindTensor("norm1.gamma")).trainable);
}

TEST(TrainingRunTest, FrameworksAreEagerUnlessTheRowSaysOtherwise) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"seq_parallel", ""}}));
  EXPECT_EQ(run.host.kernel, kEagerFramework.kernel);
  EXPECT_FALSE(run.training.fused_loss);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"seq_parallel", ""}, {"compile", "no"}}));
  EXPECT_EQ(run.host.kernel, kEagerFramework.kernel);
  for (const auto& [column, text] : Cells{{"compile", "torch.compile"},
                                          {"other_opts", "CUDA graphs"},
                                          {"attention", "cuDNN flash (llm.c build option)"}}) {
    ASSERT_OK_AND_ASSIGN(run, RunOf({{column, text}}));
    run.host.updates_shared = false;  // no kernel's business
    EXPECT_EQ(run.host, HostPace()) << text;
    EXPECT_TRUE(run.training.fused_loss);
  }
}

// 50257 over two ranks: 25128 each and one left over. Padded, 50257 is 50304 = 393 x 128.
TEST(TrainingRunTest, VocabulariesThatAreNotPadded) {
  const Cells cells = {{"vocab", "50257"}, {"seq_parallel", ""}, {"tp", "2"}, {"dp", "4"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(cells));
  EXPECT_EQ(run.model.vocab, 50257);
  EXPECT_EQ(run.model.vocab_multiple, 128);
  Cells own = cells;
  own.push_back({"other_opts", "HuggingFace"});
  ASSERT_OK_AND_ASSIGN(run, RunOf(own));
  EXPECT_EQ(run.model.vocab, 50256);
  EXPECT_EQ(run.model.vocab_multiple, 1);
}

// The kernel that the cell names runs, where the device has it.
TEST(TrainingRunTest, AttentionKernels) {
  const auto kernel = [](const std::string& text) -> std::string {
    const auto run = RunOf({{"attention", text}});
    return run.ok() ? run->cluster.device.attention.front().kernel : run.status().ToString();
  };
  EXPECT_EQ(kernel("flash"), "flash2");
  EXPECT_EQ(kernel("flash v1"), "flash1");
  EXPECT_EQ(kernel("flash (FA via MPT attn_impl)"), "triton");
  EXPECT_EQ(kernel("TE/cuDNN flash"), "flash2");  // no newer one on A100
}

// Eager PyTorch has no kernel for RMS norms and adds gradients by a kernel of its own; Transformer Engine does not need
// either, nor does a Megatron that knows sequence parallelism add gradients apart.
TEST(TrainingRunTest, WhatEagerFrameworksRunApart) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"attention", "flash"}, {"seq_parallel", ""}}));
  EXPECT_FALSE(run.training.fused_norms);
  EXPECT_TRUE(run.host.adds_gradients);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"attention", "TE/cuDNN flash"}, {"seq_parallel", ""}}));
  EXPECT_TRUE(run.training.fused_norms);
  EXPECT_FALSE(run.host.adds_gradients);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"attention", "unfused"}, {"seq_parallel", "no"}}));
  EXPECT_FALSE(run.host.adds_gradients);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"compile", "torch.compile"}}));
  EXPECT_TRUE(run.training.fused_norms);
  EXPECT_FALSE(run.host.adds_gradients);
}

// NeMo's recipes: gradients in bf16, masters as remainders, as many chunks as layers.
TEST(TrainingRunTest, RecipesOfTransformerEngine) {
  const Cells recipe = {{"attention", "TE/cuDNN flash"}, {"dtype", "bf16"}, {"vpp", ""}, {"layers", "8"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(recipe));
  EXPECT_TRUE(run.host.overlaps_products);
  EXPECT_EQ(run.gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(run.copies.owned, -2);
  EXPECT_EQ(run.copies.activations, 0);
  EXPECT_EQ(ProblemOf(run).chunks, 4);  // 8 layers on 2 stages
  run.degrees.microbatch = 16;          // a single micro-batch fills no round
  EXPECT_EQ(ProblemOf(run).chunks, 1);
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

TEST(TrainingRunTest, CheckpointsOfFsdpStopEarly) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"recompute", "full"}}));
  EXPECT_EQ(run.recompute, Recompute::kLayer);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"recompute", "full"}, {"zero_fsdp", "FSDP2 (ZeRO-3)"}}));
  EXPECT_EQ(run.recompute, Recompute::kFull);
}

TEST(TrainingRunTest, OldFrameworksReduceGradientsAtOnce) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({}));
  EXPECT_GT(ProblemOf(run).bucket.value_or(Bytes()), GiB(1000));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"attention", "flash"}}));
  EXPECT_FALSE(ProblemOf(run).bucket.has_value());
}

// Of a layer of 12 h^2 parameters all but the last product's 4 h^2 are gathered again where 8 h^2 are more than 1e9.
TEST(TrainingRunTest, FirstZero3GathersAgain) {
  const std::vector<std::pair<std::string, std::string>> cells = {{"zero_fsdp", "ZeRO-3"},
                                                                  {"attention", "unfused"},
                                                                  {"recompute", "full"},
                                                                  {"dp", "8"},
                                                                  {"gpus", "8"},
                                                                  {"tp", "1"},
                                                                  {"pp", "1"},
                                                                  {"heads", "96"},
                                                                  {"hidden", "12288"},
                                                                  {"ffn", "49152"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(cells));
  EXPECT_NEAR(run.host.gathers_again, 8.0 / 12, 1e-9);
  std::vector<std::pair<std::string, std::string>> small = cells;
  small[8].second = "1536";
  small[9].second = "6144";
  ASSERT_OK_AND_ASSIGN(run, RunOf(small));
  EXPECT_EQ(run.host.gathers_again, 0);
}

TEST(TrainingRunTest, Dgx2HasSwitches) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"gpu_type", "V100"}}));
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvLinkMesh);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpu_type", "V100"}, {"interconnect", "DGX-2"}}));
  EXPECT_EQ(run.cluster.intra_kind, LinkKind::kNvSwitch);
  EXPECT_EQ(run.cluster.device.name, "v100-sxm3-32gb");
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

TEST(TrainingRunTest, FlagsOverride) {
  RowOverrides overrides;
  overrides.device = "h100";
  overrides.internode = "800 Gb/s";
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({}, overrides));
  EXPECT_EQ(run.cluster.device.name, "h100-sxm");
  EXPECT_EQ(run.cluster.nics_per_node, 2);  // of 50 GB/s
}

TEST(TrainingMeasurementTest, StepTimeElseDerivedElseTokens) {
  ASSERT_OK_AND_ASSIGN(TrainingMeasurement measured, MeasuredOf({{"step_time_derived_s", "3"}}));
  EXPECT_EQ(measured.step_seconds, 2);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"step_time_s", ""}, {"step_time_derived_s", "3"}}));
  EXPECT_EQ(measured.step_seconds, 3);
  // 64 x 1024 tokens at 16 x 512 a second.
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"step_time_s", ""}, {"tokens_per_s_per_gpu", "512"}}));
  EXPECT_EQ(measured.step_seconds, 8);
  EXPECT_EQ(measured.from, "tokens_per_s_per_gpu");
  // 1 TFLOP/s on each of 16 devices: 4 (24 B s L h^2 (1 + s/6h) + 3/4 of 2 B s h V) with B = 64, V = 51200.
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"step_time_s", ""}, {"tflops_per_gpu", "1"}, {"flops_def", "96BLsh^2"}}));
  EXPECT_NEAR(*measured.step_seconds, 65536.0 * (96 * 4 * 1048576.0 * (1 + 1 / 6.0) + 6 * 1024.0 * 51200) / 16e12,
              1e-9);
  EXPECT_THAT(std::string(MeasuredOf({{"step_time_s", ""}}).status().message()), HasSubstr("no time or rate"));
  EXPECT_THAT(std::string(MeasuredOf({{"status", "suspect"}}).status().message()), HasSubstr("status: suspect"));
}

// FSDP's pieces of the weights are the optimizer's masters; DeepSpeed's are 16 bits wide beside these.
TEST(TrainingRunTest, WhatSplitParametersHold) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun fsdp, RunOf({{"zero_fsdp", "FSDP2 (ZeRO-3)"}, {"dtype", "bf16"}}));
  EXPECT_EQ(fsdp.copies.owned, -2);
  ASSERT_OK_AND_ASSIGN(const TrainingRun zero3, RunOf({{"zero_fsdp", "DeepSpeed ZeRO-3"}, {"dtype", "bf16"}}));
  EXPECT_EQ(zero3.copies.owned, 0);
}

TEST(TrainingRunTest, WhatADeepSpeedAndAHuggingFaceHold) {
  const Cells zero2 = {{"zero_fsdp", "DeepSpeed ZeRO-2"}, {"dtype", "bf16"}, {"other_opts", "HuggingFace"}};
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf(zero2));
  EXPECT_EQ(run.gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(run.copies.whole, -2);  // no whole gradients
  EXPECT_TRUE(run.copies.pieces);
  EXPECT_EQ(run.copies.logits, -2);  // four in 16 bits
  EXPECT_TRUE(run.memory_comparable);
  ASSERT_OK_AND_ASSIGN(const TrainingRun casts, RunOf({{"model", "LLaMA 1B"}, {"other_opts", "HuggingFace"}}));
  EXPECT_EQ(casts.copies.logits, 6);  // in float32
  ASSERT_OK_AND_ASSIGN(const TrainingRun megatron, RunOf({{"zero_fsdp", "ZeRO-1"}, {"dtype", "bf16"}}));
  EXPECT_EQ(megatron.gradient_dtype, DType::kFloat32);
}

TEST(TrainingRunTest, LossesInPlace) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun bare, RunOf({{"dtype", "bf16"}, {"attention", "llm.c"}}));
  EXPECT_EQ(bare.copies.logits, -2);
  EXPECT_FALSE(bare.copies.caches);
  EXPECT_EQ(bare.copies.norms, 0);
  ASSERT_OK_AND_ASSIGN(const TrainingRun flash, RunOf({{"other_opts", "FlashAttention (this repo)"}}));
  EXPECT_EQ(flash.copies.logits, -2);
  EXPECT_EQ(flash.copies.norms, 6);  // the residual stream in float32, two masks
}

TEST(TrainingMeasurementTest, MemoryAsTheCounterMeansIt) {
  ASSERT_OK_AND_ASSIGN(TrainingMeasurement measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GB"}}));
  EXPECT_EQ(measured.peak, Bytes(2000000000));
  EXPECT_FALSE(measured.whole_process);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GB from nvidia-smi"}}));
  EXPECT_EQ(measured.peak, GiB(2));
  EXPECT_TRUE(measured.whole_process);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GiB, max reserved"}}));
  EXPECT_EQ(measured.peak, GiB(2));
  EXPECT_TRUE(measured.reserved);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GB, nanotron peak memory"}}));
  EXPECT_EQ(measured.peak, GiB(2));
  EXPECT_TRUE(measured.reserved);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"peak_mem_gb", "2"}, {"mem_def", "GiB"}, {"notes", "torchtitan log"}}));
  EXPECT_TRUE(measured.reserved);
  ASSERT_OK_AND_ASSIGN(measured, MeasuredOf({{"status", "oom"}}));
  EXPECT_TRUE(measured.out_of_memory);
  EXPECT_FALSE(measured.step_seconds.has_value());
}

}  // namespace
}  // namespace meshwright
