// Rows of fine-tuning: packed examples, adapters, weights of 4 bits, and the habits of who trains them.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/testing.h"
#include "simulator/price.h"
#include "tools/validate/csv.h"
#include "tools/validate/row_testing.h"
#include "tools/validate/training_measurement.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

using ::testing::Contains;

// A row of 2048 tokens is 8 examples of 256, in the count of FLOPs, too: 4 (N - embedding) + 12 L h 256 a token.
TEST(FineTuningTest, FineTuningOfNemoPacksExamples) {
  const std::string columns = ",attention,other_opts,tflops_per_gpu,flops_def";
  const std::string count = "6*(N - input embedding)+12*L*h*s";
  ASSERT_OK_AND_ASSIGN(const CsvTable table, Table(columns, absl::StrCat(",TE/cuDNN flash,LoRA,500,", count)));
  const CsvCells cells(table, table.rows[0]);
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, ReadTrainingRun(cells, {}));
  EXPECT_EQ(run.training.sequence, 256);
  EXPECT_EQ(run.training.batch, 64 * 8);
  EXPECT_EQ(run.degrees.microbatch, 8);
  EXPECT_THAT(run.approximations, Contains("rows of packed examples as examples of 256 tokens"));
  ASSERT_OK_AND_ASSIGN(const TrainingMeasurement measured, ReadTrainingMeasurement(cells, run));
  const double parameters = 32 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008) + 4096 * 32000.0;
  const double flops = 64 * 2048 * (4 * parameters + 12.0 * 32 * 4096 * 256);
  EXPECT_NEAR(measured.step_seconds.value_or(0), flops / (8 * 500e12), 1e-6);
  ASSERT_OK_AND_ASSIGN(const TrainingRun plain, RunOf(",attention,other_opts", ",TE/cuDNN flash,pretrain"));
  EXPECT_EQ(plain.training.sequence, 2048);
  ASSERT_OK_AND_ASSIGN(const TrainingRun other, RunOf(",attention,other_opts", ",flash,LoRA"));
  EXPECT_EQ(other.training.sequence, 2048);
  ASSERT_OK_AND_ASSIGN(const TrainingRun mlperf, RunOf(",attention,other_opts", ",TE/cuDNN flash,MLPerf; LoRA"));
  EXPECT_EQ(mlperf.training.sequence, 2048);
}

// The same of rows whose attention stays in documents, whoever trains: a row of 2048 tokens is 4 documents of 512, and
// 500 are no divisor, but the next shorter, 256, is one.
TEST(FineTuningTest, PackedDocumentsAreRows) {
  const auto tokens = [](const std::string& options, const std::string& told) {
    const absl::StatusOr<TrainingRun> run = RunOf(",other_opts,example_tokens", absl::StrCat(",", options, ",", told));
    EXPECT_OK(run);
    EXPECT_EQ(run->training.batch * run->training.sequence, 64 * 2048);
    EXPECT_EQ(run->degrees.microbatch * run->training.sequence, 2048);
    return run->training.sequence;
  };
  EXPECT_EQ(tokens("torchtitan; packed documents", "512"), 512);
  EXPECT_EQ(tokens("torchtitan; packed documents", "500"), 256);
  EXPECT_EQ(tokens("torchtitan; packed documents", "5000"), 2048);
  EXPECT_EQ(tokens("torchtitan; packed documents", ""), 256);
  EXPECT_EQ(tokens("torchtitan", "512"), 2048);
}

// Frozen weights are loaded in 16 bits, so that autocast has nothing to cast.
TEST(FineTuningTest, AutocastCastsWhatTrains) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun frozen, RunOf(",other_opts", ",HuggingFace; LoRA"));
  EXPECT_EQ(frozen.host.parameters, EagerBytes());
  ASSERT_OK_AND_ASSIGN(const TrainingRun whole, RunOf(",other_opts", ",HuggingFace"));
  EXPECT_EQ(whole.host.parameters, (EagerBytes{6, 8}));
}

// A row of 2048 tokens is 2 examples of 750: queries' and keys' 13 operators forward, 11 backward, of 13.48 us.
TEST(FineTuningTest, PositionsByExample) {
  const auto times = [](const std::string& options, const std::string& tokens) {
    const absl::StatusOr<TrainingRun> run =
        RunOf(",other_opts,example_tokens", absl::StrCat(",", options, ",", tokens));
    EXPECT_OK(run);
    return std::make_pair(run->host.layer_forward, run->host.layer_backward);
  };
  const std::string options = "Megatron-Bridge; SFT; positions by example";
  EXPECT_EQ(times(options, "750"), std::make_pair(Nanos(13'480 * 2 * 26), Nanos(13'480 * 2 * 22)));
  EXPECT_EQ(times(options, ""), std::make_pair(Nanos(13'480 * 8 * 26), Nanos(13'480 * 8 * 22)));
  EXPECT_EQ(times("Megatron-Bridge; SFT", "750"), std::make_pair(Nanos(), Nanos()));
  EXPECT_EQ(times(options + "; full iteration graphs", "750"), std::make_pair(Nanos(), Nanos()));
}

// PEFT's five operators of 13.48 us beside two of a layer's products, or seven, which are four here, of 36.4.
TEST(FineTuningTest, AdaptersBesideFrozenProducts) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun two, RunOf(",other_opts", ",HuggingFace; LoRA"));
  EXPECT_DOUBLE_EQ(two.host.products, 1 + 13.48 / 36.4 * 5 * 2 / 4.0);
  EXPECT_GT(two.host.queries.forward, 0);
  ASSERT_OK_AND_ASSIGN(const TrainingRun all, RunOf(",other_opts", ",HuggingFace; LoRA (all-linear)"));
  EXPECT_DOUBLE_EQ(all.host.products, 1 + 13.48 / 36.4 * 5 * 7 / 4.0);
  ASSERT_OK_AND_ASSIGN(const TrainingRun none, RunOf(",other_opts", ",HuggingFace"));
  EXPECT_EQ(none.host.products, 1);
  EXPECT_EQ(none.host.queries, EagerBytes());
}

// Weights of 4 bits: inputs of four products are kept, 2 bytes each: two of the hidden size, one of the heads, one of
// the gates; and 0.5625 bytes in place of 2 are gathered.
TEST(FineTuningTest, WeightsOf4BitsInLitGpt) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun wide, OpenRunOf("Llama 2 7B", ",gpus,other_opts", ",1,LitGPT; LoRA"));
  ASSERT_OK_AND_ASSIGN(const TrainingRun packed,
                       OpenRunOf("Llama 2 7B", ",gpus,other_opts", ",1,LitGPT; LoRA; bnb.nf4"));
  EXPECT_EQ(packed.copies.norms - wide.copies.norms, 4);
  EXPECT_EQ(packed.copies.keys - wide.copies.keys, 2);
  EXPECT_EQ(packed.copies.gates - wide.copies.gates, 2);
  EXPECT_EQ(packed.host.gathered_share, 0.28125);
  EXPECT_EQ(wide.host.unpacked, EagerBytes());
  // 32 layers, rank 8, queries and values: 8 x 32 x (4096 + 8192), with 8 bytes each.
  EXPECT_EQ(packed.adapters, 8 * 32 * (4096 + 8192));
  EXPECT_EQ(packed.copies.adapters, 8);
}

// Its fine-tuning under FSDP checkpoints layers, its pretraining does not.
TEST(FineTuningTest, LitGptRecomputesWhereItTunes) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun tuned,
                       OpenRunOf("Llama 2 7B", ",gpus,zero_fsdp,other_opts", ",2,FSDP,LitGPT; full fine-tuning"));
  EXPECT_EQ(tuned.recompute, Recompute::kFull);
  ASSERT_OK_AND_ASSIGN(const TrainingRun other,
                       OpenRunOf("Llama 2 7B", ",gpus,zero_fsdp,other_opts", ",2,FSDP,LitGPT"));
  EXPECT_EQ(other.recompute, Recompute::kNone);
}

TEST(FineTuningTest, LitGptAndTorchtuneFuseAttentionOfAllModels) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun others, OpenRunOf("phi-1.5", ",gpus,other_opts", ",1,LoRA"));
  EXPECT_FALSE(others.training.fused_attention);
  for (const std::string framework : {"LitGPT", "torchtune"}) {
    ASSERT_OK_AND_ASSIGN(const TrainingRun run,
                         OpenRunOf("phi-1.5", ",gpus,other_opts", absl::StrCat(",1,", framework)));
    EXPECT_TRUE(run.training.fused_attention) << framework;
  }
}

TEST(FineTuningTest, LlamaFactoryRecomputes) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run,
                       OpenRunOf("Llama 2 7B", ",gpus,other_opts", ",1,Hugging Face; LLaMA-Factory; LoRA"));
  EXPECT_EQ(run.recompute, Recompute::kLayer);
  EXPECT_THAT(run.defaults, Contains("recompute full"));
}

// Neither masters, 4 bytes, nor moments of more than 2 each.
TEST(FineTuningTest, MsSwiftTrainsInTheTypeThatItLoads) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run,
                       OpenRunOf("Qwen-7B", ",gpus,other_opts", ",1,ms-swift; Hugging Face Trainer; full"));
  EXPECT_EQ(run.gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(run.copies.owned, -4 - 4);
}

}  // namespace
}  // namespace meshwright
