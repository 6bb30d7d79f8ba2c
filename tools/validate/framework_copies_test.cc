#include "tools/validate/framework_copies.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "costmodel/memory_overheads.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"
#include "tools/validate/training_row.h"

namespace meshwright {
namespace {

// Of a row of a model with 32 layers on 8 A100, four rows a step and replica unless `batch` says otherwise.
absl::StatusOr<FrameworkCopies> CopiesOf(const std::string& columns, const std::string& cells,
                                         const std::string& model = "Llama 2 7B", int batch = 32,
                                         const std::string& device = "A100 80GB") {
  const std::string row = absl::StrCat(model, ",", device, ",8,1,1,8,2048,", batch, ",4,", cells, "\n");
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const CsvTable table,
      ParseCsv(
          absl::StrCat("model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs,", columns, "\n", row),
          "t.csv"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), {}));
  return run.copies;
}

// What autograd keeps of Llama's steps where they are steps, 8 a hidden element in the published code, 2 of the gate's;
// where norms are kernels, 2 + 2 of queries and keys from before their rotation, and of eight keys for 32 queries 2
// / 4.
TEST(FrameworkCopiesTest, StepsOfALayerKeepTheirResults) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("attention,other_opts", "flash,Megatron-LM"));
  EXPECT_EQ(copies.norms, 0);
  EXPECT_EQ(copies.keys, 4);
  EXPECT_EQ(copies.gates, 2);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts", "flash,Megatron-LM", "Llama 3 8B"));
  EXPECT_EQ(copies.keys, 2.5);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts", "flash,torchtune"));
  EXPECT_EQ(copies.norms, 8);
  EXPECT_EQ(copies.keys, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts,compile", "flash,torchtune,yes"));
  EXPECT_EQ(copies.norms + copies.keys + copies.gates, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts", "flash,nanotron"));
  EXPECT_EQ(copies.norms, 0);
  EXPECT_EQ(copies.gates, 2);
  // Keys and values repeated for SDPA: of each query's 2 + 2, three quarters are new. litgpt's values are a view.
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts,compile", "sdpa,torchtune,yes", "Llama 3 8B"));
  EXPECT_EQ(copies.keys, 3);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts,compile", "sdpa,litgpt,yes"));
  EXPECT_EQ(copies.keys, 4);
}

// Against the program's 4 with a kernel for the loss, as compiled code has it, and 10 without.
TEST(FrameworkCopiesTest, LossesHoldLogits) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("other_opts,compile", "torchtune,yes"));
  EXPECT_EQ(copies.logits, 10 - 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "torchtune,no"));
  EXPECT_EQ(copies.logits, 16 - 10);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "torchtitan 0.2.2,no"));
  EXPECT_EQ(copies.logits, 16 - 10);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "torchtitan,no"));
  EXPECT_EQ(copies.logits, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "logits gathered whole,no"));
  EXPECT_EQ(copies.logits, 16 - 10);  // of one rank, all there are
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "torchtune; chunked cross entropy,yes"));
  EXPECT_EQ(copies.logits, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "litgpt,no"));
  EXPECT_EQ(copies.logits, 8 - 10);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "HuggingFace; fused linear cross entropy,no"));
  EXPECT_EQ(copies.logits, 0 - 4);
}

// Megatron-LM's works in one copy in float32, which DeepSpeed's pipeline keeps the 16-bit logits beside; its fused
// kernels read one and write another. Ranks of tensor parallelism gather KempnerForge's.
TEST(FrameworkCopiesTest, LossesOfLogitsThatRanksSplit) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("other_opts,compile", "Megatron-LM,no"));
  EXPECT_EQ(copies.logits, 6 - 10);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "Megatron-DeepSpeed,no"));
  EXPECT_EQ(copies.logits, 8 - 10);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "Megatron-Core; fused cross entropy,no"));
  EXPECT_EQ(copies.logits, 10 - 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("source_ref,compile", "KempnerInstitute/KempnerForge,no"));
  EXPECT_EQ(copies.logits, 8 - 10);
  EXPECT_TRUE(copies.whole_table);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "HuggingFace; loss of 16-bit logits,no"));
  EXPECT_EQ(copies.logits, 8 - 10);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("source_ref,other_opts,compile", "whitecircle/halo,HuggingFace; Liger,no"));
  EXPECT_EQ(copies.logits, 8 - 4);
}

// transformers' losses of today cast logits within, and labels are shifted: 4 less.
TEST(FrameworkCopiesTest, TrlLetsGoOfLogits) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("other_opts,compile", "HuggingFace; TRL SFTTrainer,no"));
  EXPECT_EQ(copies.logits, 12 - 10);
}

// Masks and GELU's steps of 4 bytes, two each.
TEST(FrameworkCopiesTest, TensorFlowKeepsWideMasks) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies,
                       CopiesOf("dtype,attention,other_opts", "fp32,unfused,TensorFlow", "BERT-large"));
  EXPECT_EQ(copies.norms, 8);
  EXPECT_EQ(copies.scores, 8);
  EXPECT_EQ(copies.gates, 8);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,compile,other_opts", "fp32,XLA,Keras 3; TensorFlow", "BERT-large"));
  EXPECT_EQ(copies.gates, 0);
}

// Neither moments nor masters; weights in float32, as autocast and FSDP have them, stay.
TEST(FrameworkCopiesTest, WithoutAnUpdate) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies,
                       CopiesOf("dtype,other_opts", "bf16,HuggingFace; weights in bf16; without an optimizer"));
  EXPECT_EQ(copies.owned, -8 - 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts", "bf16,HuggingFace; without an optimizer"));
  EXPECT_EQ(copies.owned, -8 + kAutocastMasters);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,zero_fsdp,other_opts", "bf16,FSDP,HuggingFace; without an optimizer"));
  EXPECT_EQ(copies.owned, -8 + kShardsAreMasters);
}

// ZeRO-3 makes gradients of a group of parameters flat, 2, and float32, 4; ZeRO-2 in bfloat16 does so of all it owns.
TEST(FrameworkCopiesTest, DeepSpeedUpdatesInFloat32) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("dtype,zero_fsdp", "bf16,DeepSpeed ZeRO-3"));
  EXPECT_EQ(copies.update, 6);
  EXPECT_EQ(copies.updated_at_once, 1e9);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,zero_fsdp", "bf16,DeepSpeed ZeRO-2"));
  EXPECT_EQ(copies.owned, 4 + 2);
}

// Without masters and with moments of 2 bytes, but where DeepSpeed or a type of 4 bytes has them as they are.
TEST(FrameworkCopiesTest, StateOfTheWeightsType) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("dtype,other_opts", "bf16,HuggingFace; weights in bf16"));
  EXPECT_EQ(copies.owned, -4 - 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts", "tf32,HuggingFace; without mixed precision"));
  EXPECT_EQ(copies.owned, 0);
  ASSERT_OK_AND_ASSIGN(copies,
                       CopiesOf("dtype,zero_fsdp,other_opts", "bf16,DeepSpeed ZeRO-2,HuggingFace; weights in bf16"));
  EXPECT_EQ(copies.owned, 4 + 2);
}

// Wide logits of the loss, 16, of which 2 are counted as kept; of a loss with its product there are none.
TEST(FrameworkCopiesTest, WideRestsHaveTheLossThatTheRowSays) {
  const std::string wide = "HuggingFace; QLoRA; all else in float32";
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("other_opts,compile", wide + ",no"));
  EXPECT_EQ(copies.logits, 16 - 10 - 2);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", wide + "; fused linear cross entropy,no"));
  EXPECT_EQ(copies.logits, 0 - 4);
}

// A tenth is dropped with Transformer Engine's layers as with Megatron-LM's own, but of Llama's kind nothing.
TEST(FrameworkCopiesTest, MegatronDropsATenth) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("other_opts", "Megatron-Core; Transformer Engine", "GPT 7B"));
  EXPECT_EQ(copies.norms, 2);
  EXPECT_EQ(copies.scores, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts", "Megatron-Core; Transformer Engine; no dropout", "GPT 7B"));
  EXPECT_EQ(copies.norms, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts", "Megatron-Core; Transformer Engine"));
  EXPECT_EQ(copies.norms, 0);
}

// All of 16 bits, but FSDP sums whole gradients in float32 until the last of two micro-batches.
TEST(FrameworkCopiesTest, KempnerForgeReducesInFloat32) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies,
                       CopiesOf("source_ref,zero_fsdp,other_opts", "KempnerForge,FSDP2,no_sync", "Llama 2 7B", 64));
  EXPECT_EQ(copies.sum, 4);
  EXPECT_EQ(copies.owned, -8 - 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("source_ref,zero_fsdp", "KempnerForge,FSDP2"));
  EXPECT_EQ(copies.sum, 0);
  EXPECT_EQ(copies.owned, -8 - 2);
}

// Blocks of LitGPT have gradients of frozen weights under FSDP, too: whole ones over two micro-batches, of 8 ranks a
// part of one.
TEST(FrameworkCopiesTest, FlatParametersOfAdapters) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies,
                       CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,LitGPT; LoRA,FSDP", "Llama 2 7B", 64));
  EXPECT_EQ(copies.flat_gradients, 2);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,LitGPT; LoRA,FSDP"));
  EXPECT_EQ(copies.flat_gradients, 2.0 / 8);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,LitGPT; LoRA,none"));
  EXPECT_EQ(copies.flat_gradients, 0);
}

// gelu's steps widened by autocast, whether weights are split or not.
TEST(FrameworkCopiesTest, MinGptKeepsWideSteps) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies,
                       CopiesOf("other_opts,zero_fsdp", "minGPT; automatic mixed precision,FSDP"));
  EXPECT_EQ(copies.activations, 2.4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,zero_fsdp", "minGPT,FSDP"));
  EXPECT_EQ(copies.activations, 0);
}

// Transformer Engine's: weights in 8 bits beside those in 16, with their transposes before Blackwell, and inputs of
// products, but for those of layers that are run again.
TEST(FrameworkCopiesTest, ProductsInFloat8) {
  const auto copies = [](const std::string& cells, const std::string& device) {
    return CopiesOf("dtype,recompute,other_opts", cells, "Llama 3 8B", 32, device);
  };
  ASSERT_OK_AND_ASSIGN(FrameworkCopies of, copies("fp8,none,Megatron-LM", "H100 SXM"));
  EXPECT_EQ(of.weights, 2);
  EXPECT_EQ(of.activations, kFloat8Activations);
  ASSERT_OK_AND_ASSIGN(of, copies("fp8,full,Megatron-LM", "B200"));
  EXPECT_EQ(of.weights, 1);
  EXPECT_EQ(of.activations, 0);
  ASSERT_OK_AND_ASSIGN(of, copies("bf16,none,Megatron-LM", "H100 SXM"));
  EXPECT_EQ(of.weights, 0);
  EXPECT_EQ(of.activations, 0);
}

// Weights of 2 and moments of 2 + 2 where ours are 2 + 4 and 4 + 4; moments of 1 + 1; none.
TEST(FrameworkCopiesTest, StateInFewerBits) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,litgpt,FSDP"));
  EXPECT_EQ(copies.owned, -8);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16,torchtune; full bf16; 8-bit AdamW,FSDP"));
  EXPECT_EQ(copies.owned, -10);
  // litgpt's AdamW is fused and holds no roots, transformers' does, of 2.
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,litgpt,none"));
  EXPECT_EQ(copies.update, 0);
  for (const char* words :
       {"HuggingFace; pure bf16", "HuggingFace; full bf16", "HuggingFace without mixed precision"}) {
    ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", absl::StrCat("bf16,", words, ",none")));
    EXPECT_EQ(copies.owned, -8) << words;
    EXPECT_EQ(copies.update, 2) << words;
    EXPECT_EQ(copies.whole, 0) << words;
  }
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16,HuggingFace; Adafactor,FSDP"));
  EXPECT_EQ(copies.owned, -2 - 8);
  EXPECT_EQ(copies.update, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16,HuggingFace,FSDP"));
  EXPECT_EQ(copies.update, 4);  // roots of second moments
}

// Masters are what bf16 lacks, 2 of 4. Moments of 2 + 2 are widened to 4 + 4 for the update. Recipes that reduce in
// float32 hold whole masters.
TEST(FrameworkCopiesTest, PrecisionAwareOptimizer) {
  const std::string core = "bf16,Megatron-Core 0.16; precision-aware optimizer";
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("dtype,other_opts,zero_fsdp", core + ",ZeRO-1"));
  EXPECT_EQ(copies.owned, -2);
  EXPECT_EQ(copies.update, 0);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", core + "; Adam state in bf16,ZeRO-1"));
  EXPECT_EQ(copies.owned, -2 - 4);
  EXPECT_EQ(copies.update, 8);
  // Where nothing else is of 32 bits it has no masters, either.
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts", "bf16,pure bf16; Adam state in bf16"));
  EXPECT_EQ(copies.owned, -4 - 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,attention", "bf16,TE/cuDNN flash"));
  EXPECT_EQ(copies.owned, -2);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,attention,other_opts", "bf16,TE/cuDNN flash,gradients in float32"));
  EXPECT_EQ(copies.owned, 0);
}

// All gradients at once, flat, and then their copies in float32; with buffers or parts of them neither.
TEST(FrameworkCopiesTest, MegatronFlattensGradientsWithoutBuffers) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies,
                       CopiesOf("dtype,attention,other_opts,zero_fsdp", "fp16,unfused,Megatron-LM,none"));
  EXPECT_EQ(copies.update, 4 + 2);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,attention,other_opts,zero_fsdp", "fp16,flash,Megatron-LM,none"));
  EXPECT_EQ(copies.update, 4);
}

// Loops of PyTorch's own let go of gradients, where a step is one micro-batch.
TEST(FrameworkCopiesTest, WhoKeepsGradients) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,litgpt,FSDP"));
  EXPECT_TRUE(copies.fresh_gradients);
  EXPECT_EQ(copies.sum, 0);
  // Over two micro-batches all of them, 2 bytes an element, before what a rank owns of them is
  // there.
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,litgpt,FSDP", "Llama 2 7B", 64));
  EXPECT_FALSE(copies.fresh_gradients);
  EXPECT_EQ(copies.sum, 2);
  EXPECT_EQ(copies.owned, -8 - 2);
  // So do transformers' Trainer and accelerate, not whatever calls itself a trainer.
  for (const char* words : {"HuggingFace Trainer", "accelerate"}) {
    ASSERT_OK_AND_ASSIGN(
        copies, CopiesOf("dtype,other_opts,zero_fsdp", absl::StrCat("bf16,", words, ",FSDP"), "Llama 2 7B", 64));
    EXPECT_EQ(copies.sum, 2) << words;
  }
  ASSERT_OK_AND_ASSIGN(copies,
                       CopiesOf("dtype,other_opts,zero_fsdp", "bf16,torchtitan's trainer.py,FSDP", "Llama 2 7B", 64));
  EXPECT_EQ(copies.sum, 0);
  // And whoever says so; FSDP2 in the type that it reduces in.
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16,PyTorch; no_sync,FSDP2", "Llama 2 7B", 64));
  EXPECT_EQ(copies.sum, 4);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16,Megatron-LM,none"));
  EXPECT_FALSE(copies.fresh_gradients);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,litgpt,none (DDP)"));
  EXPECT_EQ(copies.whole, 2);  // buckets
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("dtype,other_opts,zero_fsdp", "bf16-true,litgpt,FSDP2 ZeRO-2"));
  EXPECT_EQ(copies.whole, -2);
  EXPECT_TRUE(copies.shards && copies.pieces);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts", "torchtune; optimizer in backward; activation offloading"));
  EXPECT_TRUE(copies.one_gradient && copies.offloads);
}

// Of a score beside ours of 2: OPT's larger of two, softmax in float32 and its cast, or softmax alone; BERT's with a
// mask, 1 + 2, under autocast 4 + 1 + 2. Of layers that are run again Llama's softmax, 4, and its gradient, 4 + 4.
TEST(FrameworkCopiesTest, ScoresInSteps) {
  const auto scores = [](const std::string& model, const std::string& type, const std::string& options) -> double {
    const absl::StatusOr<FrameworkCopies> copies =
        CopiesOf("dtype,attention,recompute,other_opts", absl::StrCat(type, ",eager,", options), model);
    return copies.ok() ? copies->scores : -1;
  };
  EXPECT_EQ(scores("OPT 350M", "fp16", "none,HuggingFace; weights in fp16"), 2 + 4 + 2 - 2);
  EXPECT_EQ(scores("OPT 350M", "bf16", "none,HuggingFace; weights in bf16"), 2 + 2 - 2);
  EXPECT_EQ(scores("bert-base-uncased", "fp16", "none,HuggingFace; weights in fp16"), 1 + 2);
  EXPECT_EQ(scores("bert-base-uncased", "fp16", "none,HuggingFace"), 4 + 1 + 2 - 2);
  EXPECT_EQ(scores("Llama 2 7B", "bf16", "full,HuggingFace; pure bf16"), 4 + 4 + 4);
  EXPECT_EQ(scores("Llama 2 7B", "bf16", "none,HuggingFace; pure bf16"), 0);
}

// A mask and what it leaves, 1 + 2, but where attention is run again, by whichever words.
TEST(FrameworkCopiesTest, DroppedScoresThatAreMadeAgain) {
  for (const auto& [recompute, scores] :
       {std::pair("none", 3), {"selective (attention core)", 0}, {"selective", 0}, {"full", 3}}) {
    ASSERT_OK_AND_ASSIGN(const FrameworkCopies copies,
                         CopiesOf("attention,recompute", absl::StrCat("unfused (pre-flash),", recompute), "GPT 7B"));
    EXPECT_EQ(copies.scores, scores) << recompute;
  }
}

// Gradients go since PyTorch 2, also where attention is in steps.
TEST(FrameworkCopiesTest, PyTorchTwoLetsGoOfGradients) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("attention,other_opts", "unfused,HuggingFace", "GPT 7B", 32));
  EXPECT_FALSE(copies.fresh_gradients);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts", "unfused,HuggingFace; PyTorch 2.2", "GPT 7B", 32));
  EXPECT_TRUE(copies.fresh_gradients);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("attention,other_opts", "eager,HuggingFace", "GPT 7B", 32));
  EXPECT_TRUE(copies.fresh_gradients);
}

// Of a fourth as many keys as queries, whose values lie twice in a plan, 2; norms in steps keep 4 of each. Workspaces
// of PyTorch's and Transformer Engine's, none of TensorFlow.
TEST(FrameworkCopiesTest, QueryNormsAndWorkspaces) {
  ASSERT_OK_AND_ASSIGN(FrameworkCopies copies, CopiesOf("other_opts", "Megatron-Core", "Qwen3 8B"));
  EXPECT_EQ(copies.keys, -2 * 0.25);
  EXPECT_EQ(copies.workspaces, 3);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts,compile", "HuggingFace,no", "Qwen3 8B"));
  EXPECT_EQ(copies.keys, 4 * 1.25 - 2 * 0.25);
  EXPECT_EQ(copies.workspaces, 2);
  ASSERT_OK_AND_ASSIGN(copies, CopiesOf("other_opts", "TensorFlow", "bert-base-uncased"));
  EXPECT_EQ(copies.workspaces, 0);
}

}  // namespace
}  // namespace meshwright
