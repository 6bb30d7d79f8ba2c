#include "tools/validate/framework.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using Cells = std::vector<std::pair<std::string, std::string>>;

Framework Of(const Cells& cells, int64_t sequence = 2048) {
  std::string header = "status", row = "ok";
  for (const auto& [name, value] : cells) {
    absl::StrAppend(&header, ",", name);
    absl::StrAppend(&row, ",", value);
  }
  const absl::StatusOr<CsvTable> table = ParseCsv(absl::StrCat(header, "\n", row, "\n"), "t.csv");
  EXPECT_OK(table);
  return FrameworkOf(CsvCells(*table, table->rows[0]), sequence);
}

TEST(FrameworkTest, EagerUnlessCompiledOrCaptured) {
  EXPECT_TRUE(Of({{"compile", ""}}).eager);
  EXPECT_TRUE(Of({{"compile", "no"}}).eager);
  EXPECT_FALSE(Of({{"compile", "torch.compile"}}).eager);
  EXPECT_FALSE(Of({{"other_opts", "CUDA graphs"}}).eager);
  EXPECT_FALSE(Of({{"recompute", "llm.c -r 1"}}).eager);
}

// No Llama was trained before there was fused attention; a GPT on the same device may have been.
TEST(FrameworkTest, AttentionThatNobodyNames) {
  EXPECT_FALSE(Of({{"gpu_type", "A100"}, {"model", "GPT 7B"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "A100"}, {"model", "LLaMA-7B"}}).fused_attention);
  EXPECT_FALSE(Of({{"gpu_type", "A100"}, {"model", "LLaMA-7B"}, {"attention", "eager"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "H100"}, {"model", "GPT 7B"}}).fused_attention);
}

// Scores of Gemma 2 have caps; the 2B of the first generation has none.
TEST(FrameworkTest, CapsOfScoresAreNotInPyTorchsAttention) {
  for (const char* name : {"Gemma 2 9B", "Gemma 2 27B (tied)", "google/gemma-2-9b-it", "gemma2-2.6b", "gemma2 27B"}) {
    EXPECT_FALSE(Of({{"attention", "sdpa"}, {"model", name}}).fused_attention) << name;
    EXPECT_TRUE(Of({{"attention", "flash"}, {"model", name}}).fused_attention) << name;
  }
  for (const char* name : {"Gemma 2B (tied)", "google/gemma-2b-it", "gemma-2b", "Gemma 7B", "gemma2b"}) {
    EXPECT_TRUE(Of({{"attention", "sdpa"}, {"model", name}}).fused_attention) << name;
  }
}

TEST(FrameworkTest, FusedLosses) {
  EXPECT_FALSE(Of({{"attention", "flash"}}).fused_loss);
  EXPECT_TRUE(Of({{"compile", "torch.compile"}}).fused_loss);
  const Framework foundry = Of({{"attention", "flash (FA via MPT attn_impl)"}});
  EXPECT_TRUE(foundry.fused_loss);
  EXPECT_EQ(foundry.host.logits, (EagerBytes{28, 0}));  // its two metrics
  EXPECT_TRUE(Of({{"attention", "flash v1"}, {"other_opts", "FlashAttention (this repo)"}}).fused_loss);
}

TEST(FrameworkTest, AttentionStepByStep) {
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "Megatron-LM"}}).host.scores, EagerBytes());
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}}).host.scores, (EagerBytes{24, 26}));
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}}).host.activations, (EagerBytes{72, 112}));
  const Framework bert = Of({{"model", "bert-large"}, {"attention", "standard"}, {"other_opts", "HuggingFace"}});
  EXPECT_EQ(bert.host.activations, EagerBytes());
  EXPECT_EQ(bert.host.scores, (EagerBytes{24, 26}));
  const Framework model_center = Of({{"attention", "standard"}, {"other_opts", "ModelCenter"}});
  EXPECT_EQ(model_center.host.scores, (EagerBytes{20, 20}));
  EXPECT_EQ(model_center.host.queries, (EagerBytes{28, 28}));
  EXPECT_FALSE(model_center.dropout);
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}, {"source_ref", "flash-attention assets"}})
                .host.scores,
            (EagerBytes{28, 30}));  // scaled by the number of the layer, too
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "Megatron-LM"}}, 8192).host.scores, (EagerBytes{24, 26}));
  EXPECT_EQ(Of({{"attention", "flash"}, {"other_opts", "HuggingFace"}}).host.scores, EagerBytes());
}

TEST(FrameworkTest, WhoPadsTheVocabulary) {
  EXPECT_TRUE(Of({{"other_opts", "Megatron-LM"}}).pads_vocabulary);
  EXPECT_FALSE(Of({{"other_opts", "HuggingFace"}}).pads_vocabulary);
  const Framework profiled = Of({{"source_ref", "vTrain data/ground_truth_single.csv row 2"}});
  EXPECT_FALSE(profiled.pads_vocabulary);
  EXPECT_TRUE(profiled.fused_loss);
  EXPECT_TRUE(Of({{"source_ref", "vTrain data/ground_truth_multi.csv row 2"}}).pads_vocabulary);
}

TEST(FrameworkTest, EarlyLibrariesAreToldByMegatronsOwnAttention) {
  EXPECT_NEAR(Of({{"attention", "Megatron fused softmax (no flash)"}}).misaligned_attention, 0.0559, 0.0001);
  EXPECT_EQ(Of({{"attention", "flash"}, {"other_opts", "Megatron-LM"}}).misaligned_attention, 0);
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}}).misaligned_attention, 0);
}

// Without ZeRO, and under its stages of a pipeline, what DeepSpeed has for bfloat16 is an optimizer of its own.
TEST(FrameworkTest, DeepSpeedsOptimizerForBfloat16) {
  const auto own = [](const std::string& dtype, const std::string& zero, const std::string& pp) {
    return Of({{"dtype", dtype}, {"zero_fsdp", zero}, {"pp", pp}, {"other_opts", "Megatron-DeepSpeed"}})
        .Is(Sign::kBf16Optimizer);
  };
  EXPECT_TRUE(own("bf16", "none", "1"));
  EXPECT_TRUE(own("bf16", "ZeRO-1", "4"));
  EXPECT_FALSE(own("bf16", "ZeRO-1", "1"));
  EXPECT_FALSE(own("fp16", "none", "4"));
  const HostPace host = Of({{"dtype", "bf16"}, {"zero_fsdp", "none"}, {"other_opts", "Megatron-DeepSpeed"}}).host;
  EXPECT_TRUE(host.adds_gradients && host.reduces_whole);
  EXPECT_EQ(host.parameters, (EagerBytes{0, 8}));
}

TEST(FrameworkTest, AutocastCastsParametersAndGradients) {
  EXPECT_FALSE(Of({{"other_opts", "HuggingFace; pure bf16"}}).autocast);
  const Framework hugging_face = Of({{"attention", "standard"}, {"other_opts", "HuggingFace"}});
  EXPECT_TRUE(hugging_face.Is(Sign::kHuggingFace) && hugging_face.autocast);
  EXPECT_EQ(hugging_face.host.parameters, (EagerBytes{6, 8}));
  EXPECT_EQ(Of({{"attention", "standard"}, {"other_opts", "Megatron-LM"}}).host.parameters, EagerBytes());
  EXPECT_TRUE(Of({{"other_opts", "native AMP"}}).autocast);
  // FSDP has a policy of its own.
  EXPECT_FALSE(Of({{"other_opts", "automatic mixed precision"}, {"zero_fsdp", "FSDP"}}).autocast);
}

// Divided, 4, and masked, 4, scores; three biases of 4, copies of queries, keys, values and context, 16.
TEST(FrameworkTest, NvidiasBertGoesStepByStep) {
  const Framework bert = Of({{"gpu_type", "V100"}, {"model", "bert-large"}, {"other_opts", "DeepLearningExamples"}});
  EXPECT_FALSE(bert.fused_attention);
  EXPECT_EQ(bert.host.scores, (EagerBytes{8, 4}));
  EXPECT_EQ(bert.host.queries, (EagerBytes{28, 28}));
  EXPECT_EQ(bert.host.norms, (EagerBytes{9, 5}));
}

// 36 and 56 bytes for gelu's eight operators and their gradients, of which ours has 4 and 6.
TEST(FrameworkTest, MinGptGoesStepByStep) {
  const Framework own = Of({{"gpu_type", "A100"}, {"zero_fsdp", "FSDP"}, {"other_opts", "PyTorch; minGPT"}});
  EXPECT_FALSE(own.fused_attention);
  EXPECT_TRUE(own.dropout);
  EXPECT_EQ(own.host.activations, (EagerBytes{32, 50}));
  EXPECT_EQ(own.host.scores, (EagerBytes{8, 8}));
  const Framework wide = Of({{"zero_fsdp", "FSDP"}, {"other_opts", "minGPT; automatic mixed precision"}});
  EXPECT_EQ(wide.host.activations, (EagerBytes{72, 112}));
  EXPECT_EQ(wide.host.scores, (EagerBytes{24, 26}));
}

// A dropout, 2 + 2 and a mask, 1, backward 2 + 1 + 2; autocast has the stream in float32. StarCoder's GELU is a kernel.
TEST(FrameworkTest, WhatIsAroundFusedAttentionStaysInSteps) {
  const auto with = [](const char* model, const char* attention, const char* options) {
    return Of({{"gpu_type", "A100"}, {"model", model}, {"attention", attention}, {"other_opts", options}});
  };
  EXPECT_EQ(with("santacoder", "flash", "HuggingFace; bf16-true").host.norms, (EagerBytes{5, 5}));
  const Framework wide = with("starcoderbase-1b", "flash", "HuggingFace");
  EXPECT_TRUE(wide.dropout);
  EXPECT_FALSE(with("starcoderbase-1b", "flash", "HuggingFace; without dropout").dropout);
  EXPECT_EQ(wide.host.norms, (EagerBytes{19, 29}));
  EXPECT_EQ(with("starcoderbase-1b", "standard", "HuggingFace").host.activations, EagerBytes());
  EXPECT_EQ(with("Llama 2 7B", "flash", "HuggingFace").host.norms, EagerBytes());
  EXPECT_EQ(with("Command R+", "flash", "HuggingFace").host.norms, EagerBytes());
}

TEST(FrameworkTest, GradientsOfSixteenBitsInWords) {
  for (const char* words : {"--main-grads-dtype bf16", "gradients in bf16"}) {
    EXPECT_TRUE(Of({{"other_opts", words}}).Is(Sign::kNarrowReduction)) << words;
  }
}

// A C program adds to the rows that it touched.
TEST(FrameworkTest, WhoseTablesHaveWholeGradients) {
  EXPECT_TRUE(Of({{"other_opts", "Megatron-LM"}}).host.whole_tables);
  EXPECT_FALSE(Of({{"other_opts", "llm.c"}}).host.whole_tables);
}

TEST(FrameworkTest, WhoOverlapsProducts) {
  EXPECT_TRUE(Of({{"attention", "TE/cuDNN flash"}}).host.overlaps_products);
  EXPECT_TRUE(Of({{"other_opts", "2D + async TP"}}).host.overlaps_products);
  EXPECT_FALSE(Of({{"attention", "flash"}}).host.overlaps_products);
  const HostPace forge = Of({{"source_ref", "KempnerInstitute/KempnerForge benchmarks"}}).host;
  EXPECT_TRUE(forge.gathers_each && forge.copies_gathered);
  const HostPace titan = Of({{"other_opts", "torchtitan 0.1"}}).host;
  EXPECT_TRUE(!titan.gathers_each && titan.copies_gathered);
  EXPECT_FALSE(Of({{"other_opts", "torchtitan 0.1; async TP"}}).host.copies_gathered);
  EXPECT_FALSE(Of({{"other_opts", "torchtitan"}}).host.copies_gathered);
}

TEST(FrameworkTest, TheFirstFlashAttention) {
  EXPECT_EQ(Of({{"attention", "FlashAttention"}, {"source_ref", "FlashAttention-2 paper"}}).attention, "flash1");
  EXPECT_EQ(Of({{"attention", "FlashAttention-2"}, {"source_ref", "FlashAttention-2 paper"}}).attention, "");
  EXPECT_EQ(Of({{"attention", "FlashAttention-3"}}).attention, "flash3");
  EXPECT_EQ(Of({{"attention", "FlashAttention"}}).attention, "");
}

// From Hopper on it prefers cuDNN's, unless it is told otherwise.
TEST(FrameworkTest, AttentionOfTransformerEngine) {
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "NeMo 24.12"}}).attention, "flash3");
  EXPECT_EQ(Of({{"gpu_type", "H200"}, {"other_opts", "Megatron-Core"}, {"attention", "fused"}}).attention, "flash3");
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "NeMo"}, {"attention", "FlashAttention-2"}}).attention, "");
  EXPECT_EQ(Of({{"gpu_type", "A100"}, {"other_opts", "NeMo"}, {"attention", "TE"}}).attention, "");
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "PyTorch"}}).attention, "");
}

// A100: 64 x 108 x 1.41e9 x 0.935 integer instructions a second are 9.11e12, of which 45 are 4.94 ps; 2039e9 x 0.84
// bytes a second are 8.46 bytes in that time. V100, 80 multiprocessors at 1.53 GHz and 0.95 of it, moves 4.4 bytes
// in 6.05 ps: what it streams takes longer.
TEST(FrameworkTest, RandomNumbersOfDropout) {
  ASSERT_OK_AND_ASSIGN(const Device a100, FindDevice("a100 80gb"));
  EXPECT_NEAR(DropoutBytes(a100, 5), 3.46, 0.05);
  EXPECT_NEAR(DropoutBytes(a100, 7), 1.46, 0.05);
  ASSERT_OK_AND_ASSIGN(const Device v100, FindDevice("v100"));
  EXPECT_EQ(DropoutBytes(v100, 5), 0);
  EXPECT_TRUE(Of({{"attention", "standard"}, {"other_opts", "Megatron-LM"}}).dropout);
  EXPECT_FALSE(Of({{"attention", "standard"}, {"other_opts", "GPT-NeoX"}}).dropout);
  EXPECT_FALSE(Of({{"attention", "standard"}, {"model", "LLaMA 7B"}}).dropout);
  EXPECT_FALSE(Of({{"attention", "flash"}}).dropout);
}

TEST(FrameworkTest, VersionsOfFlashAttention) {
  for (const char* first : {"flash v1", "flash_attn1.0.8", "FlashAttention-1", "FA1"}) {
    EXPECT_EQ(Of({{"attention", first}}).attention, "flash1") << first;
  }
  for (const char* second : {"flash attention 2", "SDPA flash v2", "flash_attn2 + RMS kern.", "flash"}) {
    EXPECT_EQ(Of({{"attention", second}}).attention, "") << second;
  }
}

TEST(FrameworkTest, CallsForEachTensor) {
  const auto calls = [](const std::string& model, const std::string& zero, const std::string& attention) {
    const absl::StatusOr<CsvTable> table =
        ParseCsv(absl::StrCat("model,zero_fsdp,attention\n", model, ",", zero, ",", attention, "\n"), "t.csv");
    EXPECT_OK(table);
    const CsvCells cells(*table, table->rows[0]);
    return FrameworkOf(cells, 2048).calls_each_tensor;
  };
  EXPECT_FALSE(calls("Llama (nanotron)", "ZeRO-1", "flash"));
  EXPECT_TRUE(calls("InternLM-7B", "ZeRO-1 over all DP ranks", "flash"));
  EXPECT_FALSE(calls("InternLM-7B", "ZeRO-1 within groups of 8 GPUs", "flash"));
  EXPECT_TRUE(calls("GPT", "ZeRO-3", "unfused"));
  EXPECT_FALSE(calls("GPT", "FSDP2 (ZeRO-3)", "SDPA"));
  EXPECT_FALSE(calls("GPT", "ZeRO-3", ""));  // not said to be that old
}

// Attention that nobody names is fused where the device is of its time, or the framework has a compiler.
TEST(FrameworkTest, UnnamedAttentionByTheAgeOfTheDevice) {
  EXPECT_FALSE(Of({{"gpu_type", "A100"}}).fused_attention);
  EXPECT_FALSE(Of({{"gpu_type", "V100"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "H100"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "A100"}, {"attention", "flash"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "A100"}, {"zero_fsdp", "FULL_SHARD"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "A100"}, {"compile", "torch.compile"}}).fused_attention);
  EXPECT_TRUE(Of({{"gpu_type", "a device that nobody knows"}}).fused_attention);
}

// Biases and copies of queries, keys and values, 3 x (4 + 4) forward, and the gradients joined, 3 x 4.
TEST(FrameworkTest, MegatronsOwnLayersWithFlashAttention) {
  const Framework own = Of({{"model", "GPT 4B"}, {"attention", "flash"}, {"other_opts", "Megatron-LM"}});
  EXPECT_TRUE(own.dropout && own.fused_attention);
  EXPECT_EQ(own.host.queries, (EagerBytes{24, 12}));
  EXPECT_EQ(own.host.norms, (EagerBytes{1, 5}));
  EXPECT_FALSE(Of({{"model", "Llama 2 7B"}, {"attention", "flash"}, {"other_opts", "Megatron-LM"}}).dropout);
  EXPECT_FALSE(Of({{"model", "GPT 4B"}, {"attention", "flash"}, {"other_opts", "Megatron-Core"}}).dropout);
  EXPECT_FALSE(Of({{"model", "GPT 4B"}, {"attention", "flash"}}).dropout);
}

// Of unfused softmax, 24 and 26 bytes a score.
TEST(FrameworkTest, MegatronOfDeepSpeedsExamplesFusesNothing) {
  const std::pair<std::string, std::string> plain = {"attention", "standard"};
  for (const char* options :
       {"Megatron-LM without operator fusion", "Megatron-LM of DeepSpeedExamples", "Megatron-LM v1.1.5"}) {
    EXPECT_EQ(Of({plain, {"other_opts", options}}).host.scores, (EagerBytes{24, 26})) << options;
  }
  EXPECT_EQ(Of({plain, {"other_opts", "Megatron-LM with DeepSpeed"}}).host.scores, EagerBytes());
}

TEST(FrameworkTest, WhatCollectivesWaitForAndCopy) {
  const HostPace zero3 = Of({{"zero_fsdp", "ZeRO-3"}, {"attention", "unfused"}}).host;
  EXPECT_TRUE(zero3.serial && zero3.copies_pieces);
  EXPECT_FALSE(zero3.launch_blocking);
  const HostPace fsdp = Of({{"zero_fsdp", "FSDP2 (ZeRO-3)"}, {"attention", "unfused"}}).host;
  EXPECT_FALSE(fsdp.serial || fsdp.copies_pieces);
  EXPECT_EQ(fsdp.parameters, (EagerBytes{4, 10}));
  const auto adapters = [](const std::string& zero, const std::string& options) {
    return Of({{"zero_fsdp", zero}, {"attention", "flash"}, {"other_opts", options}, {"pp", "1"}}).host;
  };
  EXPECT_TRUE(adapters("FSDP", "Hugging Face with PEFT LoRA of all linear products").serial);
  const std::string attention = "Hugging Face Trainer with PEFT LoRA";
  EXPECT_TRUE(adapters("FSDP", attention).serial_regathers);
  EXPECT_FALSE(adapters("FSDP", attention).serial);
  const std::pair<std::string, std::string> others[] = {{"FSDP2", attention},
                                                        {"FSDP", attention + "; fused kernels of LoRA"},
                                                        {"FSDP", "Hugging Face Trainer with full fine-tuning"},
                                                        {"DDP", attention}};
  for (const auto& [zero, options] : others) {
    const HostPace other = adapters(zero, options);
    EXPECT_FALSE(other.serial || other.serial_regathers) << zero << ": " << options;
  }
  // FSDP1: gradients joined and divided, 4 + 4; reduced in float32 also cast, 6, and divided as that, 8 in place of 4.
  const Cells::value_type fsdp1 = {"zero_fsdp", "FSDP FULL_SHARD (ZeRO-3)"};
  EXPECT_EQ(Of({fsdp1, {"other_opts", "FSDP mixed_precision=PURE"}}).host.parameters, (EagerBytes{0, 8}));
  EXPECT_EQ(Of({fsdp1, {"pp", "1"}}).host.parameters, (EagerBytes{0, 18}));
  // In float32 for autocast: cast, 6; backward cast, 6, joined, 8, cast, 6, and divided, 4.
  const HostPace wide = Of({fsdp1, {"other_opts", "parameters gathered in float32"}}).host;
  EXPECT_EQ(wide.parameters, (EagerBytes{6, 24}));
  EXPECT_EQ(wide.gathered_share, 2);
  EXPECT_EQ(wide.norms, (EagerBytes{14, 24}));
  EXPECT_EQ(Of({fsdp1, {"pp", "16"}}).host.parameters, EagerBytes());
  EXPECT_EQ(Of({fsdp1, {"compile", "XLA"}}).host.parameters, EagerBytes());
  EXPECT_EQ(Of({{"zero_fsdp", "Megatron FSDP (ZeRO-3)"}}).host.parameters, EagerBytes());
  // ZeRO-3: joined in both passes, 4 and 4, gradients copied, joined and divided, 4 each; that of 2021 copies
  // otherwise.
  EXPECT_EQ(Of({{"zero_fsdp", "DeepSpeed ZeRO-3"}, {"attention", "flash"}}).host.parameters, (EagerBytes{4, 16}));
  EXPECT_EQ(Of({{"zero_fsdp", "DeepSpeed ZeRO-3"}, {"attention", "unfused"}}).host.parameters, EagerBytes());
  // ZeRO-2: copied and divided, behind each micro-batch; ZeRO-1 once, and Paddle's stages beside the next pass.
  const HostPace zero2 = Of({{"zero_fsdp", "DeepSpeed ZeRO-2"}}).host;
  EXPECT_TRUE(zero2.reduces_each && zero2.parameters == (EagerBytes{0, 8}));
  EXPECT_FALSE(Of({{"zero_fsdp", "DeepSpeed ZeRO-1"}}).host.reduces_each);
  EXPECT_FALSE(Of({{"zero_fsdp", "sharding stage 2"}}).host.reduces_each);
  const HostPace bloom = Of({{"model", "BLOOM-candidate"}, {"interconnect", "Jean Zay: 4 x 100Gb Omni-Path"}}).host;
  EXPECT_TRUE(bloom.launch_blocking && bloom.serial);
  EXPECT_FALSE(Of({{"model", "BLOOM"}, {"interconnect", "8x200Gb"}}).host.launch_blocking);
  EXPECT_TRUE(Of({{"other_opts", "CUDA_LAUNCH_BLOCKING=1"}}).host.launch_blocking);
  const HostPace nanotron = Of({{"model", "Llama (nanotron)"}, {"zero_fsdp", "ZeRO-1"}}).host;
  EXPECT_TRUE(nanotron.reduces_whole && nanotron.copies_pieces);
  EXPECT_EQ(nanotron.gates, (EagerBytes{4, 16}));
}

TEST(FrameworkTest, WhichReleasesOfDeepSpeedSumGradientsOnAllRanks) {
  const auto whole = [](const std::string& device, const std::string& zero, const std::string& options) {
    return Of({{"gpu_type", device}, {"zero_fsdp", zero}, {"other_opts", options}}).host.reduces_whole;
  };
  EXPECT_TRUE(whole("A100", "ZeRO-1", "Megatron-DeepSpeed"));
  EXPECT_FALSE(whole("A100", "ZeRO-1", "Megatron-LM"));
  EXPECT_FALSE(whole("A100", "ZeRO-2", "DeepSpeed"));
  EXPECT_FALSE(whole("A100", "ZeRO-1", "GPT-NeoX; DeepSpeed"));  // of 0.3.15
  EXPECT_TRUE(whole("H100", "ZeRO-1", "DeepSpeed"));
  EXPECT_TRUE(whole("H100", "ZeRO-2", "DeepSpeed"));
  EXPECT_TRUE(whole("H800", "ZeRO-1", "DeepSpeed 0.11.1"));
  EXPECT_TRUE(whole("A100", "ZeRO-1", "DeepSpeed 0.13.1"));
  EXPECT_FALSE(whole("A100", "ZeRO-1", "DeepSpeed 0.4.5"));
  EXPECT_TRUE(whole("A100", "ZeRO-1", "DeepSpeed 1.0"));
  EXPECT_TRUE(Of({{"model", "BLOOM"}, {"interconnect", "Jean Zay"}, {"gpu_type", "A100"}, {"zero_fsdp", "ZeRO-1"}})
                  .host.reduces_whole);
}

TEST(FrameworkTest, WhereExpertsWeigh) {
  const auto inside = [](const std::string& device, const std::string& options) {
    return Of({{"gpu_type", device}, {"other_opts", options}}).weighs_inside;
  };
  EXPECT_TRUE(inside("H100", "Megatron-Bridge"));
  EXPECT_TRUE(inside("H100", "NeMo 25.04"));
  EXPECT_FALSE(inside("H100", "NeMo 25.02"));
  EXPECT_TRUE(inside("H100", "Megatron-Core"));
  EXPECT_TRUE(inside("H100", "Megatron-Core 0.12"));
  EXPECT_FALSE(inside("H100", "Megatron-Core 0.6"));
  EXPECT_FALSE(inside("A100", "Megatron-Core"));
  EXPECT_FALSE(inside("H100", "torchtitan"));
}

TEST(FrameworkTest, WhoseStateSpacesConvolveAgain) {
  EXPECT_TRUE(Of({{"gpu_type", "H100"}, {"other_opts", "Megatron-Bridge"}}).scans_again);
  EXPECT_TRUE(Of({{"gpu_type", "A100"}, {"other_opts", "Megatron-Core"}}).scans_again);
  EXPECT_FALSE(Of({{"gpu_type", "H100"}, {"other_opts", "NeMo AutoModel"}}).scans_again);
}

TEST(FrameworkTest, WhatRunsAroundExperts) {
  const Framework plain = Of({{"gpu_type", "H100"}});
  EXPECT_EQ(plain.dispatcher, Dispatcher::kAllToAll);
  EXPECT_TRUE(plain.host.experts.waits && plain.host.experts.dispatch.forward > 1);
  EXPECT_FALSE(plain.host.experts.joins || plain.host.experts.overlaps || plain.host.experts.graphs);
  const Framework flex =
      Of({{"gpu_type", "GB200"}, {"other_opts", "HybridEP; partial graphs of attention and router"}});
  EXPECT_EQ(flex.dispatcher, Dispatcher::kPerNode);
  EXPECT_TRUE(flex.host.experts.joins && flex.host.experts.graphs);
  EXPECT_EQ(Of({{"other_opts", "Megatron-Core; allgather dispatcher"}}).dispatcher, Dispatcher::kPerRank);
  EXPECT_TRUE(Of({{"other_opts", "DeepEP; expert-parallel overlap"}}).host.experts.overlaps);
  const Framework whole = Of({{"gpu_type", "GB200"}, {"other_opts", "full iteration graphs"}});
  EXPECT_TRUE(whole.whole_graphs);
  EXPECT_FALSE(whole.host.experts.waits);
  EXPECT_EQ(plain.host.experts.product, Nanos());
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "Megatron-Core"}}).host.experts.product, Nanos(13'480));
  EXPECT_EQ(Of({{"gpu_type", "GB200"}, {"other_opts", "Megatron-Core"}}).host.experts.product, Nanos(37'080));
  // GPT-OSS has biases of experts, in float32 where the dispatcher's weights are.
  EXPECT_EQ(plain.host.experts.results, EagerBytes());
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "loop over experts"}}).host.experts.whole_gradients, 8);
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "index_add_"}}).host.experts.results, (EagerBytes{49, 49}));
  EXPECT_EQ(Of({{"gpu_type", "H100"}, {"other_opts", "Megatron-Core; unfused permutation"}}).host.experts.results,
            (EagerBytes{49, 49}));
  // Operators of Megatron-Core around experts, those that a graph of the router leaves, and Transformers'.
  const auto steps = [](const std::string& options) {
    return Of({{"gpu_type", "H100"}, {"other_opts", options}}).host.experts.dispatch;
  };
  EXPECT_EQ(steps("Megatron-Core"), (PassSteps{43, 17}));
  EXPECT_EQ(steps("Megatron-Core; graphs of the router"), (PassSteps{11, 3}));
  EXPECT_EQ(steps("Hugging Face; loop over experts"), (PassSteps{12, 12}));
  const auto blocks = [](const std::string& options) {
    return Of({{"gpu_type", "H100"}, {"other_opts", options}}).host.experts.dispatch_blocks;
  };
  EXPECT_EQ(blocks("Megatron-Core; DeepEP"), 20);
  EXPECT_EQ(blocks("Megatron-Core; HybridEP"), 16);
  EXPECT_EQ(blocks("Megatron-Bridge; HybridEP"), 32);
  EXPECT_EQ(blocks("Megatron-Core"), 0);
  Cells oss = {{"model", "GPT OSS 120B"}, {"attention", "TE/cuDNN flash"}, {"gpu_type", "B200"}};
  EXPECT_EQ(Of(oss).host.experts.results, (EagerBytes{12, 16}));
  oss.push_back({"other_opts", "HybridEP"});
  EXPECT_EQ(Of(oss).host.experts.results, (EagerBytes{28, 40}));
  EXPECT_EQ(Of(oss).host.experts.step, Nanos(13'480));
  oss[2].second = "GB200";
  EXPECT_EQ(Of(oss).host.experts.step, Nanos(37'080));
}

TEST(FrameworkTest, WhoSendsAPartFromEachRank) {
  EXPECT_TRUE(Of({{"other_opts", "Megatron-DeepSpeed 1F1B"}}).host.scatters_transfers);
  EXPECT_TRUE(Of({{"attention", "unfused (Megatron 2021)"}}).host.scatters_transfers);
  EXPECT_FALSE(Of({{"attention", "flash2"}, {"other_opts", "Megatron-LM"}}).host.scatters_transfers);
}

TEST(FrameworkTest, CheckpointsStopEarlySinceTheReleaseThatMadeThem) {
  const std::string foundry = "flash (FA via MPT attn_impl)";
  EXPECT_FALSE(Of({{"attention", foundry}, {"gpu_type", "A100"}}).checkpoints_stop);
  EXPECT_TRUE(Of({{"attention", foundry}, {"gpu_type", "H100"}}).checkpoints_stop);
  EXPECT_TRUE(Of({{"attention", foundry}, {"gpu_type", "A100"}, {"dtype", "amp_bf16"}}).checkpoints_stop);
  EXPECT_TRUE(Of({{"attention", "SDPA"}, {"gpu_type", "A100"}}).checkpoints_stop);
}

Cells Nemo(const std::string& model, const std::string& release, const std::string& options = "pretrain") {
  return {{"model", model},
          {"gpu_type", "H100"},
          {"attention", "TE/cuDNN flash"},
          {"source_ref", absl::StrCat("examples/README.md (", release, ")")},
          {"other_opts", options}};
}

TEST(FrameworkTest, RecipesOfARelease) {
  EXPECT_EQ(Of(Nemo("LLAMA2-7B", "24.01")).host.gates, (EagerBytes{4, 16}));
  EXPECT_EQ(Of(Nemo("LLAMA2-7B", "24.03")).host.gates, EagerBytes());
  EXPECT_FALSE(Of(Nemo("LLAMA2-7B", "24.01")).narrow_gradients);
  EXPECT_TRUE(Of(Nemo("LLAMA2-7B", "24.03")).narrow_gradients);
  EXPECT_TRUE(Of({{"attention", "TE/cuDNN flash"}}).narrow_gradients);  // no release: a later one
  EXPECT_EQ(Of(Nemo("Nemotron-8B", "24.05")).host.activations, (EagerBytes{4, 14}));
  EXPECT_EQ(Of(Nemo("Nemotron-8B", "24.07")).host.activations, EagerBytes());
  EXPECT_TRUE(Of(Nemo("Nemotron-8B", "24.03")).host.adds_gradients);
  EXPECT_FALSE(Of(Nemo("Nemotron-8B", "24.05")).host.adds_gradients);
  EXPECT_FALSE(Of(Nemo("Nemotron-8B", "24.07")).narrow_gradients);
  EXPECT_TRUE(Of(Nemo("MIXTRAL-8x7B", "24.05")).host.adds_gradients);
  EXPECT_FALSE(Of(Nemo("MIXTRAL-8x7B", "24.05")).narrow_gradients);
  EXPECT_FALSE(Of(Nemo("MIXTRAL-8x7B", "24.07")).host.adds_gradients);
  EXPECT_TRUE(Of(Nemo("MIXTRAL-8x7B", "24.07")).narrow_gradients);
  EXPECT_TRUE(Of(Nemo("GPT3-5B", "24.07")).dropout);
  EXPECT_FALSE(Of(Nemo("LLAMA2-7B", "24.07")).dropout);
  EXPECT_FALSE(Of({{"model", "GPT3-5B"}, {"attention", "flash"}}).dropout);
  EXPECT_FALSE(Of(Nemo("GPT3-5B", "24.07", "MLPerf")).dropout);
}

// Elements of bf16 in 125, 200 and 100 MB; Megatron-Core's since NeMo 2.0.
TEST(FrameworkTest, BucketsOfARelease) {
  EXPECT_EQ(Of(Nemo("GPT3-5B", "24.07")).bucket, 125 << 19);
  EXPECT_EQ(Of(Nemo("GPT3-5B", "24.07")).bucket_of_replica, 0);
  EXPECT_EQ(Of(Nemo("GPT3-5B", "24.04", "MLPerf")).bucket, 200 << 19);
  EXPECT_EQ(Of(Nemo("GPT3-5B", "23.09", "MLPerf")).bucket, 100 << 19);
  const Framework core = Of(Nemo("GPT3-5B", "25.02"));
  EXPECT_EQ(core.bucket, 40'000'000);
  EXPECT_EQ(core.bucket_of_replica, 1'000'000);
  EXPECT_EQ(Of({{"attention", "SDPA"}, {"gpu_type", "H100"}}).bucket, 0);
}

// MLPerf's submissions since 4.0; their parameters are in float8 where their products are.
TEST(FrameworkTest, ParametersInFloat8) {
  const auto share = [](const std::string& release, const std::string& dtype) {
    Cells cells = Nemo("GPT3-5B", release, "MLPerf");
    cells.push_back({"dtype", dtype});
    return Of(cells).host.gathered_share;
  };
  EXPECT_EQ(share("24.04", "fp8"), 0.5);
  EXPECT_EQ(share("23.09", "fp8"), 1);
  EXPECT_EQ(share("24.04", "bf16"), 1);
}

// The benchmarks ran PyTorch 2.1; what was trained since then did not.
TEST(FrameworkTest, NcclOfNanotronsBenchmarks) {
  EXPECT_TRUE(Of({{"model", "Llama (nanotron)"}, {"source_ref", "docs/benchmark_summary.svg"}}).untuned_nccl);
  EXPECT_FALSE(Of({{"other_opts", "nanotron"}, {"source_ref", "SmolLM3"}}).untuned_nccl);
  EXPECT_FALSE(Of({{"model", "GPT"}, {"source_ref", "docs/benchmark_summary.svg"}}).untuned_nccl);
}

// With as many keys as queries: values copied, three gradients joined; LoRA's three times wider result besides.
TEST(FrameworkTest, CopiesBetweenProductsAndFusedAttention) {
  const auto copies = [](const Framework& framework, bool frozen, double keys) {
    EagerBytes queries;
    AddQueryCopies(framework, frozen, keys, &queries);
    return queries;
  };
  const Framework llama = Of(Nemo("LLAMA2-7B", "24.07"));
  EXPECT_EQ(copies(llama, false, 1), (EagerBytes{4, 12}));
  EXPECT_EQ(copies(llama, false, 0.25), (EagerBytes{5, 6}));
  EXPECT_EQ(copies(llama, true, 1), (EagerBytes{4 + 40, 12 + 34}));
  EXPECT_EQ(copies(Of(Nemo("GPT3-5B", "24.07")), false, 1), EagerBytes());  // nothing is turned
  EXPECT_EQ(copies(Of({{"attention", "flash"}}), true, 1), EagerBytes());
  // nanotron's: 12 of all three, 16 of keys and values; backward 8 of these, and 12 twice where there are as many keys.
  const Framework nanotron = Of({{"model", "Llama (nanotron)"}});
  EXPECT_EQ(copies(nanotron, false, 1), (EagerBytes{12 + 16, 8 + 12 + 12}));
  EXPECT_EQ(copies(nanotron, false, 0.25), (EagerBytes{6 + 4, 2 + 6}));
}

// Over four ranks each has a quarter of the queries, 16, and of the gate, 32, for 64 elements of the input, whose
// gradients are added: 2 x 6 bytes of each of 64 are 48 of each of 16, and 6 are 12 of each of 32.
TEST(FrameworkTest, GradientsOfSharedInputsAreAdded) {
  DecoderConfig model;
  model.hidden = 64;
  model.heads = 4;
  model.head_dim = 16;
  model.ffn = 128;
  model.activation = Activation::kSwiglu;
  HostPace host;
  AddInputGradients(Of({{"other_opts", "torchtitan 0.2"}}), model, 4, &host);
  EXPECT_EQ(host.queries, (EagerBytes{0, 2 * 6 * 4}));
  EXPECT_EQ(host.gates, (EagerBytes{0, 6 * 4 / 2}));
  HostPace since;  // one product of queries, keys and values
  AddInputGradients(Of({{"other_opts", "torchtitan"}}), model, 4, &since);
  EXPECT_EQ(since.queries, EagerBytes());
  EXPECT_EQ(since.gates, host.gates);
  HostPace fused;
  AddInputGradients(Of({{"other_opts", "Megatron-LM"}}), model, 4, &fused);
  EXPECT_EQ(fused, HostPace());
}

TEST(FrameworkTest, DropoutInFusedAttentionDrawsFewerNumbers) {
  ASSERT_OK_AND_ASSIGN(const Device h100, FindDevice("h100-sxm"));
  // 7 instructions against 45 and a pass.
  EXPECT_NEAR(FusedDropoutBytes(h100) / DropoutBytes(h100, 0), 7.0 / 45, 1e-9);
}

}  // namespace
}  // namespace meshwright
