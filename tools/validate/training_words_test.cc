// Words of other sources for what the tables of this folder say, and what is said where a word is not known.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "models/decoder.h"
#include "simulator/price.h"
#include "tools/validate/csv.h"
#include "tools/validate/framework.h"
#include "tools/validate/row_model.h"
#include "tools/validate/row_testing.h"
#include "tools/validate/run_problem.h"
#include "tools/validate/signs.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// Rows named NeMo's are of Transformer Engine as those are that name it; not on A100, nor AutoModel's.
TEST(TrainingWordsTest, NamesOfFrameworks) {
  const auto engine = [](const std::string& device, const std::string& options, const std::string& dtype) {
    const auto table = ParseCsv(
        absl::StrCat("model,gpu_type,other_opts,dtype\nLlama 2 7B,", device, ",", options, ",", dtype, "\n"), "t.csv");
    return FrameworkOf(CsvCells(*table, table->rows[0]), 4096);
  };
  EXPECT_TRUE(engine("H100", "NeMo 24.07", "bf16").Is(Sign::kNemo));
  EXPECT_TRUE(engine("H100", "Megatron-Bridge", "bf16").Is(Sign::kNemo));
  EXPECT_FALSE(engine("A100", "NeMo 22.08", "bf16").Is(Sign::kNemo));
  EXPECT_FALSE(engine("H100", "NeMo AutoModel", "bf16").Is(Sign::kNemo));
  EXPECT_TRUE(engine("H100", "Megatron-LM", "fp8").Is(Sign::kTransformerEngine));
  EXPECT_FALSE(engine("H100", "Megatron-LM", "bf16").Is(Sign::kTransformerEngine));
  EXPECT_FALSE(engine("H100", "NVIDIA DeepLearningExamples", "fp16").fused_attention);
}

// What rows leave open that name little: sizes by a published name, one stage with FSDP, experts for the search.
TEST(TrainingWordsTest, RowsThatSayLittle) {
  const auto read = [](const std::string& columns, const std::string& cells) {
    const auto table = ParseCsv(absl::StrCat(columns, "\n", cells, "\n"), "t.csv");
    return ReadTrainingRun(CsvCells(*table, table->rows[0]), {});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, read("model,gpu_type", "bert-large-uncased,Quadro RTX 8000"));
  EXPECT_EQ(run.model.layers, 24);
  EXPECT_EQ(run.cluster.device.name, "quadro-rtx-8000");
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type,gpus,zero_fsdp", "Qwen-7B,A100,64,FSDP"));
  EXPECT_EQ(run.model.vocab, 151936);
  EXPECT_TRUE(run.pipeline_given);
  EXPECT_EQ(run.degrees.pipeline, 1);
  EXPECT_THAT(run.defaults, Contains("pp 1"));
  EXPECT_TRUE(run.tensor_given);
  EXPECT_THAT(run.defaults, Contains("tp 1"));
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type,gpus,tp,pp,micro_batch_seqs", "GPT 175B,H100,128,8,16,1"));
  EXPECT_EQ(run.training.batch, DefaultBatch(175e9, 2048, 1));  // one row would leave the stages empty
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type,gpus,tp,pp,micro_batch_seqs", "GPT 7B,H100,8,1,1,2"));
  EXPECT_EQ(run.training.batch, 16);
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type,gpus", "Mixtral 8x7B,H100,64"));
  EXPECT_FALSE(run.experts_given);
  EXPECT_FALSE(run.pipeline_given);
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type,gpus,ep", "Mixtral 8x7B,H100,64,8"));
  EXPECT_TRUE(run.experts_given);
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type", "T5-11B,A100"));
  EXPECT_THAT(run.defaults, Contains("a decoder of these sizes in place of another kind of model"));
  ASSERT_OK_AND_ASSIGN(run, read("model,gpu_type,other_opts", "Llama 2 7B,A100,QLoRA"));
  EXPECT_THAT(run.approximations,
              Contains("frozen weights of 4 bits read as those of 16: norms train in place of adapters"));
}

// Both matrices of words counted: 18.9 million in the layers and 2 x 25.8 million are 70 million without gates.
TEST(TrainingWordsTest, FamiliesByEitherNumberOfEmbeddings) {
  const absl::StatusOr<CsvTable> table = ParseCsv(
      "model,params_b,layers,hidden,ffn,heads,vocab,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs\n"
      "a model 70M,0.070,6,512,2048,8,50304,A100,8,1,1,8,2048,64,1\n",
      "t.csv");
  ASSERT_OK(table);
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, ReadTrainingRun(CsvCells(*table, table->rows[0]), {}));
  EXPECT_THAT(run.defaults, Contains("a family like GPT"));
  EXPECT_THAT(run.defaults, Not(Contains("a family like Llama")));
}

TEST(TrainingWordsTest, TheFirstStableLmIsNoLlama) {
  EXPECT_FALSE(IsModernFamily("StableLM Alpha 3B"));
  EXPECT_TRUE(IsModernFamily("stablelm-2-1.6b"));
}

TEST(TrainingWordsTest, Gpt2HasItsOwnPositions) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun gpt2, OpenRunOf("GPT2-XL", ",gpus", ",1"));
  EXPECT_EQ(gpt2.training.sequence, 1024);
  ASSERT_OK_AND_ASSIGN(const TrainingRun llama, OpenRunOf("Llama 2 7B", ",gpus", ",1"));
  EXPECT_EQ(llama.training.sequence, 4096);
}

// GPT-3's 2^21 tokens for 7 billion parameters are 1024 rows of 2048: 8.3 on each of 124 replicas, taken for 8.
TEST(TrainingWordsTest, BatchesThatDoNotDivide) {
  EXPECT_EQ(DefaultBatch(7e9, 2048, 124), 8 * 124);
  EXPECT_EQ(DefaultBatch(7e9, 2048, 64), 1024);
  EXPECT_EQ(NearMultiple(1538, 48), 1536);
  EXPECT_EQ(NearMultiple(64, 8), 64);
  EXPECT_EQ(NearMultiple(60, 8), 0);
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("model,gpu_type,gpus,tp,pp,dp,global_batch_seqs,micro_batch_seqs\n"
                                "Llama 2 7B,A100,8,1,1,8,130,4\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), {}));
  EXPECT_EQ(run.training.batch, 128);
  EXPECT_THAT(run.approximations, Contains("global_batch_seqs 128, a multiple of 32"));
}

TEST(TrainingWordsTest, Types) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf(",dtype", ",amp"));
  EXPECT_EQ(run.training.dtype, DType::kBFloat16);
  EXPECT_THAT(run.defaults, Contains("dtype bf16 of \"amp\""));
}

// Autocast leaves the weights, and so their gradients, in float32.
TEST(TrainingWordsTest, GradientsUnderAutocast) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun half, RunOf(",dtype", ",fp16"));
  EXPECT_EQ(half.gradient_dtype, DType::kFloat16);
  ASSERT_OK_AND_ASSIGN(const TrainingRun cast, RunOf(",dtype,other_opts", ",fp16,FlashAttention (this repo)"));
  EXPECT_EQ(cast.gradient_dtype, DType::kFloat32);
}

// What a node's devices are joined by, without NVLink 16 of PCIe's lanes of the fourth generation.
TEST(TrainingWordsTest, WhatJoinsTheDevicesOfANode) {
  const auto with = [](const std::string& link) {
    return ParseCsv(absl::StrCat("model,gpu_type,gpus,tp,pp,seq_len,micro_batch_seqs,dtype,interconnect\n"
                                 "GPT2-XL,RTX 3090,2,2,1,1024,1,bf16,",
                                 link, "\n"),
                    "t.csv");
  };
  ASSERT_OK_AND_ASSIGN(const CsvTable bridge, with("NVLink bridge"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun joined, ReadTrainingRun(CsvCells(bridge, bridge.rows[0]), {}));
  EXPECT_EQ(joined.cluster.intra_bandwidth, BytesPerSecond(56.25e9));
  ASSERT_OK_AND_ASSIGN(const CsvTable lanes, with("PCIe 4.0 x8"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun apart, ReadTrainingRun(CsvCells(lanes, lanes.rows[0]), {}));
  EXPECT_EQ(apart.cluster.intra_bandwidth, BytesPerSecond(15.75e9));
  // Of several nodes it is how their network cards are plugged in.
  ASSERT_OK_AND_ASSIGN(const TrainingRun nodes,
                       OpenRunOf("GPT2-XL", ",gpus,interconnect", ",16,\"8 x 400 Gb/s RoCE, PCIe 5.0 x16\""));
  EXPECT_EQ(nodes.cluster.intra_kind, LinkKind::kNvSwitch);
}

// nanotron's benchmarks ran on EFA with NCCL 2.18, which has no plugin to choose its algorithms.
TEST(TrainingWordsTest, NanotronsBenchmarksHaveAnUntunedNetwork) {
  const auto rate_of = [](const std::string& source) -> absl::StatusOr<double> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table,
                                ParseCsv(absl::StrCat("source_ref,model,gpu_type,gpus,tp,pp,dp,global_batch_seqs\n",
                                                      source, ",Llama 2 7B (nanotron),H100,16,1,1,16,64\n"),
                                         "t.csv"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), {}));
    return run.cluster.nic_bandwidth.raw();
  };
  ASSERT_OK_AND_ASSIGN(const double later, rate_of("a report"));
  ASSERT_OK_AND_ASSIGN(const double benchmark, rate_of("docs/benchmark_summary.svg"));
  EXPECT_NEAR(later / benchmark, 1.56, 1e-6);
}

TEST(TrainingWordsTest, DistributedDataParallelSplitsNoModel) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun ddp, OpenRunOf("GPT2-XL", ",gpus,zero_fsdp", ",4,DDP"));
  EXPECT_TRUE(ddp.tensor_given && ddp.pipeline_given);
  EXPECT_EQ(ddp.degrees.data, 4);
  EXPECT_FALSE(ddp.parallel_optimizer);
}

// Of 32 layers over 8 stages; Llama's vocabulary of 32,000 costs as much as 0.6 of a layer.
TEST(TrainingWordsTest, Pipelines) {
  const auto with = [](const std::string& words, const std::string& vocab = "32000") {
    const absl::StatusOr<CsvTable> table = ParseCsv(
        absl::StrCat(
            "model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs,vocab,layers,other_opts\n",
            "Llama 2 7B,A100 80GB,8,1,8,1,2048,64,1,", vocab, ",", words, "\n"),
        "t.csv");
    return ReadTrainingRun(CsvCells(*table, table->rows[0]), {});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, with("32,schedule ZB-V"));
  EXPECT_EQ(ProblemOf(run).schedule, Schedule::kZeroBubbleV);
  EXPECT_EQ(ProblemOf(run).chunks, 2);
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
  EXPECT_THAT(with("8,schedule ZB-V"), StatusIs(absl::StatusCode::kUnimplemented, "fewer layers than parts"));
  ASSERT_OK_AND_ASSIGN(run, with("32,schedule ZB-2p"));
  EXPECT_THAT(run.approximations, Contains("schedule zb2p as zero_bubble_h1"));
  EXPECT_FALSE(run.memory_comparable);
  ASSERT_OK_AND_ASSIGN(run, with("30,first and last stage have one layer less"));
  EXPECT_EQ(ProblemOf(run).schedule, Schedule::kOneFOneB);
  EXPECT_THAT(LayersPerStage(run), ElementsAre(3, 4, 4, 4, 4, 4, 4, 3));
  ASSERT_OK_AND_ASSIGN(run, with("32,first and last stage have one layer less"));
  EXPECT_THAT(run.approximations, Contains("layers over stages evenly"));
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(run, with("32,layers redistributed", "256000"));
  EXPECT_THAT(LayersPerStage(run), ElementsAre(4, 4, 4, 5, 5, 5, 5, 0));
}

// 30 layers over 8 stages: with a layer less at both ends, four each, as only so Megatron-Core takes them.
TEST(TrainingWordsTest, LayersThatComeOutEvenOnlyWithTheEnds) {
  const auto with = [](const std::string& layers, const std::string& words) -> absl::StatusOr<TrainingRun> {
    const auto table = ParseCsv(absl::StrCat("model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs,"
                                             "layers,other_opts\nLlama 2 7B,A100 80GB,8,1,8,1,2048,64,1,",
                                             layers, ",", words, "\n"),
                                "t.csv");
    return ReadTrainingRun(CsvCells(*table, table->rows[0]), {});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, with("30", "Megatron-Core"));
  EXPECT_THAT(LayersPerStage(run), ElementsAre(3, 4, 4, 4, 4, 4, 4, 3));
  EXPECT_THAT(run.defaults, Contains("one layer less at both ends"));
  ASSERT_OK_AND_ASSIGN(run, with("32", "Megatron-Core"));
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(run, with("29", "Megatron-Core"));
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(run, with("30", "DeepSpeed"));
  EXPECT_THAT(LayersPerStage(run), IsEmpty());
}

// Eight parts on four stages; parts of other models, that stages do not divide or that have no layer, are left.
TEST(TrainingWordsTest, LayoutsOfParts) {
  const auto of = [](const std::string& layout) -> absl::StatusOr<TrainingRun> {
    const auto table =
        ParseCsv(absl::StrCat("model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs,other_opts\n"
                              "Llama 2 7B,A100 80GB,4,1,4,1,2048,64,1,Megatron-Core layout ",
                              layout, "\n"),
                 "t.csv");
    return ReadTrainingRun(CsvCells(*table, table->rows[0]), {});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, of("Et*5|t*4|t*4|t*4|t*4|t*4|t*4|t*3L"));
  EXPECT_EQ(run.chunks, 2);
  EXPECT_THAT(LayersPerStage(run), ElementsAre(5, 4, 4, 4, 4, 4, 4, 3));
  EXPECT_THAT(run.approximations, IsEmpty());
  EXPECT_THAT(run.defaults, Not(Contains("vpp 1")));
  ASSERT_OK_AND_ASSIGN(run, of("Et*11|t*11|t*10|L"));
  EXPECT_THAT(LayersPerStage(run), ElementsAre(11, 11, 10, 0)) << "the last stage has the loss alone";
  for (const char* other : {"Et*5|t*4L", "Et*12|t*10|t*10L", "Et*11||t*11|t*10L"}) {
    ASSERT_OK_AND_ASSIGN(run, of(other));
    EXPECT_THAT(LayersPerStage(run), IsEmpty());
    EXPECT_THAT(run.approximations, ElementsAre("layers over stages evenly"));
  }
}

// 94 layers, 3 a chunk on 8 stages: four chunks, embedding and loss with them.
TEST(TrainingWordsTest, LayersOfAChunk) {
  const auto of = [](const std::string& layers, const std::string& of_chunk) -> absl::StatusOr<TrainingRun> {
    const auto table =
        ParseCsv(absl::StrCat("model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs,"
                              "layers,layers_per_chunk,other_opts\nLlama 2 7B,A100 80GB,8,1,8,1,2048,64,1,",
                              layers, ",", of_chunk, ",Megatron-Core; overlap-p2p-communication\n"),
                 "t.csv");
    return ReadTrainingRun(CsvCells(*table, table->rows[0]), {});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, of("94", "3"));
  EXPECT_EQ(run.chunks, 4);
  EXPECT_TRUE(run.ends_count);
  ASSERT_OK_AND_ASSIGN(run, of("96", "3"));
  EXPECT_EQ(run.chunks, 4);
  EXPECT_FALSE(run.ends_count);
  ASSERT_OK_AND_ASSIGN(run, of("96", "12"));  // one, as it says
  EXPECT_EQ(run.chunks, 1);
  EXPECT_FALSE(run.most_chunks);
  ASSERT_OK_AND_ASSIGN(run, of("96", ""));
  EXPECT_TRUE(run.most_chunks);
}

// Their number is taken for the most, as NeMo sets it.
TEST(TrainingWordsTest, StagesThatOverlapWhatTheySendHaveChunks) {
  const auto with = [](const std::string& options) {
    const auto table = ParseCsv(
        absl::StrCat("model,gpu_type,gpus,tp,pp,global_batch_seqs,other_opts\nGPT 175B,H100,64,8,8,64,", options),
        "t.csv");
    return ReadTrainingRun(CsvCells(*table, table->rows[0]), {});
  };
  ASSERT_OK_AND_ASSIGN(const TrainingRun overlaps, with("Megatron-Core; overlap-p2p-communication"));
  EXPECT_TRUE(overlaps.most_chunks);
  EXPECT_THAT(overlaps.defaults, Contains("vpp: a layer a chunk, where that divides"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun plain, with("Megatron-Core"));
  EXPECT_FALSE(plain.most_chunks);
}

TEST(TrainingWordsTest, SequenceParallelismWhereNobodyNamesIt) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun fused, RunOf(",attention,other_opts", ",flash,Megatron-LM"));
  EXPECT_TRUE(fused.sequence_parallel);
  ASSERT_OK_AND_ASSIGN(const TrainingRun neox, RunOf(",attention,other_opts", ",flash,GPT-NeoX"));
  EXPECT_FALSE(neox.sequence_parallel);
}

TEST(TrainingWordsTest, Recompute) {
  const auto with = [](const std::string& text) {
    return RunOf(",recompute,zero_fsdp", absl::StrCat(",", text, ",none"));
  };
  for (const char* text : {"every layer", "every_layer", "gradient checkpointing", "enabled", "on"}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun run, with(text));
    EXPECT_EQ(run.recompute, Recompute::kLayer) << text;
    EXPECT_EQ(run.recompute_share, 1) << text;
  }
  for (const char* text : {"disabled", "off", "none"}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun run, with(text));
    EXPECT_EQ(run.recompute, Recompute::kNone) << text;
  }
  ASSERT_OK_AND_ASSIGN(const TrainingRun core, with("core attention"));
  EXPECT_EQ(core.recompute, Recompute::kSelective);
  ASSERT_OK_AND_ASSIGN(const TrainingRun levels, with("\"mlp_checkpoint_lvl=1 for 3 layers, 2 for 1 (inside MLP)\""));
  EXPECT_THAT(levels.recompute_ops, ElementsAre("activation"));
  EXPECT_THAT(levels.recompute_more, ElementsAre("mlp1"));
  EXPECT_EQ(levels.recompute_share, 1.0 / static_cast<double>(levels.model.layers));
  ASSERT_OK_AND_ASSIGN(const TrainingRun unknown, with("a little"));
  EXPECT_THAT(unknown.approximations, Contains("recompute \"a little\" as none"));
}

// Unless the row says so.
TEST(TrainingWordsTest, WhoRecomputesLayers) {
  for (const std::string framework : {"GPT-NeoX", "metaseq", "BMTrain"}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun open, RunOf(",other_opts", absl::StrCat(",", framework)));
    EXPECT_NE(open.recompute, Recompute::kNone) << framework;
    EXPECT_THAT(open.defaults, Contains("recompute full"));
    ASSERT_OK_AND_ASSIGN(const TrainingRun none, RunOf(",recompute,other_opts", absl::StrCat(",none,", framework)));
    EXPECT_EQ(none.recompute, Recompute::kNone) << framework;
  }
  ASSERT_OK_AND_ASSIGN(const TrainingRun other, RunOf(",other_opts", ",Megatron-LM"));
  EXPECT_EQ(other.recompute, Recompute::kNone);
}

TEST(TrainingWordsTest, AttentionThatNobodyKnowsSaysSo) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun unknown, RunOf(",attention", ",lightning"));
  EXPECT_THAT(unknown.approximations, Contains("attention \"lightning\" as fused"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun known, RunOf(",attention,zero_fsdp", ",FA2,none"));
  EXPECT_THAT(known.approximations, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const TrainingRun torch, RunOf(",attention", ",torch"));
  EXPECT_FALSE(torch.training.fused_attention);
}

// Fused attention draws the mask of its scores again; what is added keeps its masks.
TEST(TrainingWordsTest, DropoutOfFusedAttentionKeepsNoScores) {
  const auto copies_with = [](const std::string& attention) -> absl::StatusOr<FrameworkCopies> {
    MESHWRIGHT_ASSIGN_OR_RETURN(
        const CsvTable table,
        ParseCsv(
            absl::StrCat("source_ref,model,layers,hidden,heads,vocab,gpu_type,gpus,tp,pp,dp,global_batch_seqs,",
                         "attention,other_opts\nNeMo-Framework-Launcher (24.05),GPT3-5B,24,4096,32,51200,H100,8,1,1,",
                         "8,64,", attention, ",pretrain\n"),
            "t.csv"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), {}));
    return run.copies;
  };
  ASSERT_OK_AND_ASSIGN(const FrameworkCopies fused, copies_with("TE/cuDNN flash"));
  EXPECT_EQ(fused.scores, 0);
  EXPECT_GT(fused.norms, 0);
  ASSERT_OK_AND_ASSIGN(const FrameworkCopies unfused, copies_with("unfused"));
  EXPECT_GT(unfused.scores, 0);
}

// One kernel for each operator that the row names, steps for the others.
TEST(TrainingWordsTest, FusedOperators) {
  const auto fused = [](const TrainingRun& run) {
    std::string names;
    const absl::StatusOr<Graph> graph = ProblemOf(run).graph(1);
    EXPECT_OK(graph);
    for (const Op& op : graph->ops) {
      const bool steps = op.kind == OpKind::kRmsNorm || op.kind == OpKind::kRotary || op.kind == OpKind::kSwiglu;
      if (op.phase == Phase::kForward && steps && op.attrs.fused) absl::StrAppend(&names, op.name, " ");
    }
    return names;
  };
  ASSERT_OK_AND_ASSIGN(const TrainingRun none, RunOf(",attention", ",FA2"));
  EXPECT_EQ(fused(none), "");
  ASSERT_OK_AND_ASSIGN(const TrainingRun norms, RunOf(",attention", ",FA2 + RMSNorm kernel"));
  EXPECT_EQ(fused(norms), "norm1 norm2 norm ");
  ASSERT_OK_AND_ASSIGN(const TrainingRun liger, RunOf(",other_opts", ",Liger"));
  EXPECT_EQ(fused(liger), "norm1 rotary norm2 activation norm ");
  EXPECT_TRUE(liger.training.fused_loss);
  ASSERT_OK_AND_ASSIGN(const TrainingRun own, RunOf(",other_opts", ",Fast-LLM"));
  EXPECT_EQ(fused(own), fused(liger));
  ASSERT_OK_AND_ASSIGN(const TrainingRun without, RunOf(",other_opts", ",without fused norms"));
  EXPECT_EQ(fused(without), "");
}

// Megatron-Core takes Transformer Engine's kernels; what NeMo's recipes switch on besides is theirs.
TEST(TrainingWordsTest, TransformerEngineWithoutRecipes) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun core, RunOf(",dtype,other_opts", ",bf16,megatron-core 0.6.0"));
  EXPECT_TRUE(core.training.fused_norms);
  EXPECT_FALSE(core.host.overlaps_products || core.host.adds_gradients);
  EXPECT_EQ(core.gradient_dtype, DType::kFloat32);
  ASSERT_OK_AND_ASSIGN(const TrainingRun nemo, RunOf(",dtype,attention", ",bf16,TE/cuDNN flash"));
  EXPECT_TRUE(nemo.host.overlaps_products);
  EXPECT_EQ(nemo.gradient_dtype, DType::kBFloat16);
}

// Qwen3 has them as published.
TEST(TrainingWordsTest, NormsOfQueriesAndKeys) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun plain, RunOf(",other_opts", ",Megatron-Core"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun normed, RunOf(",other_opts", ",Megatron-Core; norms of queries and keys"));
  EXPECT_FALSE(plain.model.qk_norm);
  EXPECT_TRUE(normed.model.qk_norm);
  const auto of_qwen = [](const std::string& options) {
    const absl::StatusOr<TrainingRun> run = OpenRunOf("Qwen3 8B", ",gpus,other_opts", ",8," + options);
    EXPECT_OK(run.status());
    return run.ok() && run->model.qk_norm;
  };
  EXPECT_TRUE(of_qwen("Megatron-Core"));
  EXPECT_FALSE(of_qwen("Megatron-Core; no norms of queries and keys"));
}

TEST(TrainingWordsTest, LayersThatPredictFurtherTokens) {
  const auto of = [](const std::string& options) {
    const absl::StatusOr<TrainingRun> run =
        OpenRunOf("DeepSeek-V3", ",gpus,pp,vpp,ep,other_opts", ",256,4,4,64," + options);
    EXPECT_OK(run.status());
    return run.ok() ? run->model.mtp_layers : -1;
  };
  EXPECT_EQ(of("Megatron-Bridge"), 0);
  EXPECT_EQ(of("Megatron-Bridge; MTP"), 1);
  EXPECT_EQ(of("Megatron-Bridge; without MTP"), 0);
  EXPECT_EQ(of("Megatron-Bridge; layout Et*4|(t*4|)*14tmL"), 1);
}

TEST(TrainingWordsTest, FormsOfLayers) {
  const auto model_of = [](const std::string& name) {
    const absl::StatusOr<TrainingRun> run = OpenRunOf(name, ",gpus", ",8");
    EXPECT_OK(run.status());
    return run.ok() ? run->model : DecoderConfig();
  };
  EXPECT_EQ(model_of("Gemma 2 9B").norm_places, NormPlaces::kBoth);
  EXPECT_EQ(model_of("gemma-2b").norm_places, NormPlaces::kBefore) << "of the first Gemma";
  EXPECT_EQ(model_of("gemma-2b").activation, Activation::kGeglu);
  EXPECT_EQ(model_of("OLMo 2 7B").norm_places, NormPlaces::kAfter);
  EXPECT_EQ(model_of("Pythia 6.9B").layer_form, LayerForm::kParallel);
  EXPECT_EQ(model_of("Falcon 7B").layer_form, LayerForm::kParallelOneNorm);
  EXPECT_EQ(model_of("Nemotron-4 15B").activation, Activation::kSquaredRelu);
  EXPECT_EQ(model_of("Llama 3 8B").layer_form, LayerForm::kSerial);
}

// Its GPT-2: rotary positions, RMS norms, biases, one embedding; policy BF_16 reduces in bf16.
TEST(TrainingWordsTest, Modalities) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("model,gpu_type,gpus,seq_len,micro_batch_seqs,zero_fsdp,dtype\n"
                                                      "Modalities GPT 2.7B,A100,8,4096,1,FSDP HYBRID_SHARD,BF_16\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), {}));
  EXPECT_EQ(run.model.norm, Norm::kRmsNorm);
  EXPECT_EQ(run.model.positions, Positions::kRotary);
  EXPECT_EQ(run.model.activation, Activation::kGelu);
  EXPECT_TRUE(run.model.tied_embeddings);
  EXPECT_EQ(run.gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(run.host.queries, (EagerBytes{24, 0}));
}

TEST(TrainingWordsTest, ShardingInOtherWords) {
  const auto with = [](const std::string& zero) { return RunOf(",zero_fsdp,dtype", absl::StrCat(",", zero, ",bf16")); };
  ASSERT_OK_AND_ASSIGN(const TrainingRun stage3, with("DeepSpeed stage 3"));
  EXPECT_TRUE(stage3.shard_parameters);
  EXPECT_FALSE(stage3.reduces_afterwards);
  ASSERT_OK_AND_ASSIGN(const TrainingRun hybrid, with("HYBRID_SHARD"));
  EXPECT_TRUE(hybrid.shard_parameters);
  EXPECT_EQ(hybrid.degrees.copies, 1);  // all eight are of one node
  ASSERT_OK_AND_ASSIGN(const TrainingRun fours, with("HYBRID_SHARD in groups of 4"));
  EXPECT_EQ(fours.degrees.copies, 2);
  // A layer's products, 4 x 4096^2 + 3 x 4096 x 11008, of which each of four ranks has a fourth.
  EXPECT_EQ(ProblemOf(fours).bucket, SizeOf(fours.gradient_dtype) * 50593792);
  ASSERT_OK_AND_ASSIGN(const TrainingRun titan, with("dp_replicate=2 dp_shard"));
  EXPECT_TRUE(titan.shard_parameters);
  EXPECT_EQ(titan.degrees.copies, 2);
  ASSERT_OK_AND_ASSIGN(const TrainingRun thirds, with("HSDP in groups of 3"));
  EXPECT_EQ(thirds.degrees.copies, 1);
  EXPECT_THAT(thirds.approximations, Contains("parameters split over all replicas"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun stage2, with("sharding stage2"));
  EXPECT_THAT(stage2.approximations, Contains("ZeRO-2 as ZeRO-1"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun plain, with("plain data parallel"));
  EXPECT_FALSE(plain.parallel_optimizer);
  ASSERT_OK_AND_ASSIGN(const TrainingRun unknown, with("AMSP"));
  EXPECT_TRUE(unknown.parallel_optimizer);
  EXPECT_THAT(unknown.approximations, Contains("zero_fsdp \"AMSP\" as ZeRO-1"));
}

// Eight replicas have 40 million elements, 2,048 a million each; 4 bytes each as gradients, 2 as parameters.
TEST(TrainingWordsTest, MegatronsBucketsGrowWithTheReplicas) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(",other_opts,attention", ",Megatron-Core,flash"));
  EXPECT_EQ(run.bucket, 40'000'000);
  EXPECT_EQ(ProblemOf(run).bucket, Bytes(160'000'000));
  EXPECT_EQ(ProblemOf(run).gather_bucket, Bytes(80'000'000));
  const absl::StatusOr<CsvTable> table = ParseCsv(
      "model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs,other_opts,attention\n"
      "Llama 2 7B,A100 80GB,2048,1,1,2048,2048,2048,1,Megatron-Core,flash\n",
      "t.csv");
  ASSERT_OK(table);
  ASSERT_OK_AND_ASSIGN(const TrainingRun many, ReadTrainingRun(CsvCells(*table, table->rows[0]), {}));
  EXPECT_EQ(many.bucket, 2'048'000'000);
}

// Without Megatron-Core's `overlap_param_gather`.
TEST(TrainingWordsTest, GathersThatNothingHides) {
  const std::string overlaps = ",Megatron-Core; overlap-grad-reduce";
  ASSERT_OK_AND_ASSIGN(const TrainingRun usual, RunOf(",other_opts", overlaps));
  EXPECT_FALSE(usual.host.serial_gathers);
  ASSERT_OK_AND_ASSIGN(const TrainingRun serial, RunOf(",other_opts", overlaps + "; no overlap of gathers"));
  EXPECT_TRUE(serial.host.serial_gathers);
  EXPECT_FALSE(serial.reduces_afterwards);
}

// Its documentation: `overlap_comm` is false unless told otherwise.
TEST(TrainingWordsTest, DeepSpeedReducesBehindTheBackwardPass) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun deepspeed, RunOf(",zero_fsdp", ",ZeRO-1 (DeepSpeed)"));
  EXPECT_TRUE(deepspeed.reduces_afterwards);
  EXPECT_GT(ProblemOf(deepspeed).bucket, GiB(1000));
  EXPECT_TRUE(deepspeed.host.serial_gathers);
  for (const auto& [options, afterwards] : std::vector<std::pair<std::string, bool>>{
           {"DeepSpeed overlap_comm", false}, {"DeepSpeed; overlap_comm=false", true}, {"DeepSpeed", true}}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun told, RunOf(",zero_fsdp,other_opts", absl::StrCat(",ZeRO-2,", options)));
    EXPECT_EQ(told.reduces_afterwards, afterwards) << options;
    EXPECT_TRUE(told.host.serial_gathers) << options;
  }
  ASSERT_OK_AND_ASSIGN(const TrainingRun megatron, RunOf(",zero_fsdp", ",distributed optimizer (ZeRO-1)"));
  EXPECT_FALSE(megatron.reduces_afterwards);
  EXPECT_LT(ProblemOf(megatron).bucket, GiB(1000));
}

// On A100, by its own name, unless it says that it overlaps.
TEST(TrainingWordsTest, MegatronReducesBehindTheBackwardPassUnlessToldOtherwise) {
  const auto afterwards = [](const std::string& sharding, const std::string& options) {
    const absl::StatusOr<TrainingRun> run =
        RunOf(",zero_fsdp,other_opts,attention", absl::StrCat(",", sharding, ",", options, ",flash"));
    EXPECT_OK(run);
    return run->reduces_afterwards;
  };
  EXPECT_TRUE(afterwards("DistributedOptimizer", "Megatron-LM"));
  EXPECT_FALSE(afterwards("OverlappedDistributedOptimizer", "Megatron-LLaMA"));
  EXPECT_FALSE(afterwards("DistributedOptimizer", "Megatron-LM --overlap-grad-reduce"));
  EXPECT_FALSE(afterwards("DistributedOptimizer", "Megatron-Core"));
}

TEST(TrainingWordsTest, Lamb) {
  for (const auto& [options, kind] : std::vector<std::pair<std::string, OpKind>>{
           {"apex, FusedLAMB", OpKind::kLamb}, {"LAMB", OpKind::kLamb}, {"Lambda Cloud", OpKind::kAdamW}}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun run,
                         RunOf(",zero_fsdp,other_opts", absl::StrCat(",none,\"", options, "\"")));
    EXPECT_EQ(run.training.optimizer.kind, kind) << options;
  }
}

}  // namespace
}  // namespace meshwright
