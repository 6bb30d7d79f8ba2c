// What a row becomes by the framework that it names: kernels, passes over parameters, bytes beside the program.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/testing.h"
#include "tools/validate/framework.h"
#include "tools/validate/row_testing.h"
#include "tools/validate/run_problem.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

// LitGPT has a head beside the embedding.
TEST(FrameworkRowsTest, FrameworksUntieHeads) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"other_opts", "Megatron-LM"}}));
  EXPECT_TRUE(run.model.tied_embeddings);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"other_opts", "LitGPT"}}));
  EXPECT_FALSE(run.model.tied_embeddings);
}

// 50257 over two ranks: 25128 each and one left over. Padded, 50257 is 50304 = 393 x 128.
TEST(FrameworkRowsTest, VocabulariesThatAreNotPadded) {
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

TEST(FrameworkRowsTest, FrameworksAreEagerUnlessTheRowSaysOtherwise) {
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

// The kernel that the cell names runs, where the device has it.
TEST(FrameworkRowsTest, AttentionKernels) {
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
TEST(FrameworkRowsTest, WhatEagerFrameworksRunApart) {
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
TEST(FrameworkRowsTest, RecipesOfTransformerEngine) {
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

TEST(FrameworkRowsTest, RecipesWithGradientsInFloat32) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run,
                       RunOf({{"other_opts", "Megatron-Bridge; gradients in float32"}, {"dtype", "bf16"}}));
  EXPECT_EQ(run.gradient_dtype, DType::kFloat32);
  // What the row says counts beside frameworks that reduce in the type of the weights, too.
  ASSERT_OK_AND_ASSIGN(
      const TrainingRun zero,
      RunOf({{"zero_fsdp", "ZeRO-2"}, {"other_opts", "DeepSpeed; gradients in float32"}, {"dtype", "fp16"}}));
  EXPECT_EQ(zero.gradient_dtype, DType::kFloat32);
}

// Whole masters beside float8, but of releases before the optimizer was Megatron-Core's, and with delayed scaling.
TEST(FrameworkRowsTest, RemaindersBesideFloat8) {
  const auto owned = [](const std::string& options, const std::string& dtype) {
    const absl::StatusOr<TrainingRun> run = RunOf({{"gpu_type", "H100"}, {"dtype", dtype}, {"other_opts", options}});
    EXPECT_OK(run.status());
    return run.ok() ? run->copies.owned : -99;
  };
  EXPECT_EQ(owned("Megatron-Bridge 26.02", "bf16"), -2);
  EXPECT_EQ(owned("Megatron-Bridge 26.02", "fp8"), 0);
  EXPECT_EQ(owned("NeMo 24.07", "fp8"), -2);
  EXPECT_EQ(owned("Megatron-Core; precision-aware optimizer; delayed scaling", "fp8"), -2);
  EXPECT_EQ(owned("Megatron-Core; precision-aware optimizer; current scaling", "fp8"), 0);
}

// NVIDIA's container runs other frameworks, too.
TEST(FrameworkRowsTest, ContainersAreNoRecipes) {
  const auto is_nemo = [](const std::string& options) {
    const absl::StatusOr<TrainingRun> run = RunOf({{"gpu_type", "H100"}, {"other_opts", options}});
    EXPECT_OK(run.status());
    return run.ok() && run->host.overlaps_products;
  };
  EXPECT_TRUE(is_nemo("NeMo 24.07"));
  EXPECT_FALSE(is_nemo("Megatron-Core, NeMo container 26.04"));
  EXPECT_TRUE(is_nemo("Megatron-Bridge, NeMo container 25.09"));
}

// 2.6 times a Xeon's: 52 us become 135.5. Recipes of NVIDIA's are captured where that is seen.
TEST(FrameworkRowsTest, GraceTakesLongerToIssue) {
  const Cells grace = {{"gpu_type", "GH200"}, {"seq_parallel", ""}, {"other_opts", "Megatron-Core"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(grace));
  EXPECT_NEAR(ToSeconds(run.host.kernel), 135.5e-6, 0.1e-6);
  EXPECT_EQ(run.host.collective, run.host.kernel);
  EXPECT_NEAR(ToSeconds(run.host.step), 35.1e-6, 0.1e-6);  // of 13.48
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"gpu_type", "GH200"}, {"other_opts", "NeMo"}}));
  EXPECT_EQ(run.host.kernel, kEagerFramework.kernel);
}

// All that the CPU does takes longer, on top of what is usual of the machine.
TEST(FrameworkRowsTest, ASlowCpu) {
  RowOverrides slow;
  slow.cluster_keys["cpu_slowdown"] = "1.5";
  const Cells fsdp = {{"zero_fsdp", "FSDP"}, {"other_opts", "Hugging Face Trainer"}};
  ASSERT_OK_AND_ASSIGN(const TrainingRun usual, RunOf(fsdp));
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf(fsdp, slow));
  EXPECT_EQ(run.host.kernel, usual.host.kernel * 3 / 2);
  EXPECT_EQ(run.host.collective, usual.host.collective * 3 / 2);
  EXPECT_EQ(run.host.step, usual.host.step * 3 / 2);
  EXPECT_EQ(run.host.update, usual.host.update * 3 / 2);
  EXPECT_EQ(run.host.layer_forward, Micros(1500));  // hooks of 1 ms
  EXPECT_EQ(run.host.layer_backward, Micros(1500));
}

// Accelerate's loop: gradients are whole until the last micro-batch, and hooks take 1 ms around each pass of a layer.
TEST(FrameworkRowsTest, FsdpUnderHuggingFacesTrainer) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"zero_fsdp", "FSDP"}, {"other_opts", "Hugging Face Trainer"}}));
  EXPECT_TRUE(run.host.scatters_once);
  EXPECT_EQ(run.host.layer_forward, Millis(1));
  EXPECT_EQ(run.host.layer_backward, Millis(1));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"zero_fsdp", "ZeRO-1"}, {"other_opts", "Hugging Face Trainer"}}));
  EXPECT_FALSE(run.host.scatters_once);
  EXPECT_EQ(run.host.layer_forward, Nanos());
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"zero_fsdp", "FSDP2"}, {"other_opts", "torchtitan"}}));
  EXPECT_FALSE(run.host.scatters_once);
}

TEST(FrameworkRowsTest, FrozenWeightsHaveNoGradients) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun run, RunOf({{"other_opts", "LoRA"}}));
  ASSERT_OK_AND_ASSIGN(const Graph graph, ProblemOf(run).graph(1));
  int64_t trained = 0;
  for (const Tensor& tensor : graph.tensors) trained += tensor.kind == TensorKind::kParameter && tensor.trainable;
  EXPECT_EQ(trained, 1);
  EXPECT_TRUE(graph.tensor(graph.FindTensor("norm1.gamma")).trainable);
}

TEST(FrameworkRowsTest, CheckpointsOfFsdpStopEarly) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({{"recompute", "full"}}));
  EXPECT_EQ(run.recompute, Recompute::kLayer);
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"recompute", "full"}, {"zero_fsdp", "FSDP2 (ZeRO-3)"}}));
  EXPECT_EQ(run.recompute, Recompute::kFull);
}

TEST(FrameworkRowsTest, OldFrameworksReduceGradientsAtOnce) {
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf({}));
  EXPECT_GT(ProblemOf(run).bucket.value_or(Bytes()), GiB(1000));
  ASSERT_OK_AND_ASSIGN(run, RunOf({{"attention", "flash"}}));
  EXPECT_FALSE(ProblemOf(run).bucket.has_value());
}

// Where parameters are split, a call moves a layer, whatever a framework's buckets are.
TEST(FrameworkRowsTest, SplitParametersAreGatheredByLayers) {
  Cells cells = {
      {"attention", "TE/cuDNN flash"}, {"gpu_type", "H100"}, {"pp", "1"}, {"dp", "8"}, {"zero_fsdp", "ZeRO-1"}};
  ASSERT_OK_AND_ASSIGN(TrainingRun run, RunOf(cells));
  EXPECT_TRUE(ProblemOf(run).gather_bucket.has_value());
  cells.back().second = "FSDP";
  ASSERT_OK_AND_ASSIGN(run, RunOf(cells));
  EXPECT_GT(run.bucket, 0);
  EXPECT_FALSE(ProblemOf(run).gather_bucket.has_value());
}

// Of a layer of 12 h^2 parameters all but the last product's 4 h^2 are gathered again where 8 h^2 are more than 1e9.
TEST(FrameworkRowsTest, FirstZero3GathersAgain) {
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

TEST(FrameworkRowsTest, TrainersCheckpointsHoldUnitsOfFsdp) {
  const auto of = [](const std::string& options, const std::string& zero) {
    return RunOf({{"zero_fsdp", zero},
                  {"recompute", "full"},
                  {"attention", "flash"},
                  {"other_opts", options},
                  {"pp", "1"},
                  {"tp", "1"},
                  {"dp", "16"}});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, of("Hugging Face Trainer", "FSDP"));
  EXPECT_EQ(run.recompute, Recompute::kLayer);
  EXPECT_EQ(run.host.gathers_again, 1);
  for (const auto& [options, zero] :
       {std::pair("Hugging Face", "FSDP"), std::pair("Hugging Face Trainer", "FSDP2"), std::pair("LitGPT", "FSDP")}) {
    ASSERT_OK_AND_ASSIGN(run, of(options, zero));
    EXPECT_EQ(run.recompute, Recompute::kFull) << options << zero;
    EXPECT_EQ(run.host.gathers_again, 0) << options << zero;
  }
}

// Where the CPU waits for each expert, nothing is gathered beside them.
TEST(FrameworkRowsTest, AdaptersThatAreUnitsOfFsdp) {
  const auto of = [](const std::string& experts) {
    return RunOf({{"zero_fsdp", "FSDP"},
                  {"recompute", "full"},
                  {"attention", "flash"},
                  {"other_opts", "Hugging Face Trainer with PEFT LoRA"},
                  {"experts", experts},
                  {"experts_per_token", experts.empty() ? "" : "2"},
                  {"pp", "1"},
                  {"tp", "1"},
                  {"dp", "16"}});
  };
  ASSERT_OK_AND_ASSIGN(TrainingRun run, of(""));
  EXPECT_TRUE(run.host.serial_regathers && !run.host.serial);
  EXPECT_EQ(run.host.gathers_again, 0);
  ASSERT_OK_AND_ASSIGN(run, of("8"));
  EXPECT_TRUE(run.host.serial);
  EXPECT_EQ(run.host.gathers_again, 1);
}

TEST(FrameworkRowsTest, CopiesThatFrameworksHold) {
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

// FSDP's pieces of the weights are the optimizer's masters; DeepSpeed's are 16 bits wide beside these.
TEST(FrameworkRowsTest, WhatSplitParametersHold) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun fsdp, RunOf({{"zero_fsdp", "FSDP2 (ZeRO-3)"}, {"dtype", "bf16"}}));
  EXPECT_EQ(fsdp.copies.owned, -2);
  ASSERT_OK_AND_ASSIGN(const TrainingRun zero3, RunOf({{"zero_fsdp", "DeepSpeed ZeRO-3"}, {"dtype", "bf16"}}));
  EXPECT_EQ(zero3.copies.owned, 0);
}

TEST(FrameworkRowsTest, WhatADeepSpeedAndAHuggingFaceHold) {
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

TEST(FrameworkRowsTest, LossesInPlace) {
  ASSERT_OK_AND_ASSIGN(const TrainingRun bare, RunOf({{"dtype", "bf16"}, {"attention", "llm.c"}}));
  EXPECT_EQ(bare.copies.logits, -2);
  EXPECT_FALSE(bare.copies.caches);
  EXPECT_EQ(bare.copies.norms, 0);
  ASSERT_OK_AND_ASSIGN(const TrainingRun flash, RunOf({{"other_opts", "FlashAttention (this repo)"}}));
  EXPECT_EQ(flash.copies.logits, -2);
  EXPECT_EQ(flash.copies.norms, 6);  // the residual stream in float32, two masks
}

}  // namespace
}  // namespace meshwright
