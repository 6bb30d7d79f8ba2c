#include "tools/validate/signs.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

Signs Of(const std::string& column, const std::string& cell, int64_t sequence = 2048) {
  const absl::StatusOr<CsvTable> table = ParseCsv(absl::StrCat("status,", column, "\nok,", cell, "\n"), "t.csv");
  EXPECT_OK(table);
  return ReadSigns(CsvCells(*table, table->rows[0]), sequence);
}

bool Has(const Signs& signs, Sign sign) { return signs.set.HasAll({sign}); }

TEST(SignSetTest, AllAndAny) {
  constexpr SignSet kBoth = {Sign::kNemo, Sign::kFusedLoss};
  static_assert(kBoth.HasAll({Sign::kNemo}) && kBoth.HasAll(kBoth) && kBoth.HasAll({}));
  static_assert(!kBoth.HasAll({Sign::kNemo, Sign::kEager}));
  static_assert(kBoth.HasAny({Sign::kEager, Sign::kFusedLoss}));
  static_assert(!kBoth.HasAny({Sign::kEager}) && !kBoth.HasAny({}));
}

TEST(SignsTest, WordsAreAnywhereTheWholeCellOrItsBeginning) {
  EXPECT_TRUE(Has(Of("other_opts", "with Megatron-Core 0.9"), Sign::kTransformerEngine));
  EXPECT_TRUE(Has(Of("attention", "PyTorch"), Sign::kSaysUnfused));
  EXPECT_FALSE(Has(Of("attention", "PyTorch SDPA"), Sign::kSaysUnfused));
  EXPECT_TRUE(Has(Of("compile", "none"), Sign::kNotCompiled));
  EXPECT_FALSE(Has(Of("compile", "inductor; nothing else"), Sign::kNotCompiled));
  EXPECT_TRUE(Has(Of("compile", ""), Sign::kNotCompiled));
  for (const char* off : {"False", "off", "0", "disabled", "n"}) {
    EXPECT_TRUE(Has(Of("compile", off), Sign::kNotCompiled)) << off;
  }
  EXPECT_TRUE(Has(Of("other_opts", "torch.compile"), Sign::kSaysCompiled));
  EXPECT_FALSE(Has(Of("other_opts", "no torch.compile"), Sign::kSaysCompiled));
  for (const char* unfused : {"w/o flash", "math", "megatron softmax kernel", "False"}) {
    EXPECT_TRUE(Has(Of("attention", unfused), Sign::kSaysUnfused)) << unfused;
  }
}

TEST(SignsTest, NamesAreWordsOfTheirOwn) {
  EXPECT_TRUE(Has(Of("other_opts", "NeMo 24.07"), Sign::kSaysNemo));
  EXPECT_FALSE(Has(Of("other_opts", "the setup of Nemotron-4"), Sign::kSaysNemo));
  EXPECT_FALSE(Has(Of("other_opts", "own code; not NeMo"), Sign::kSaysNemo));
  EXPECT_TRUE(Has(Of("source_ref", "hiyouga/LLaMA-Factory wiki"), Sign::kLlamaFactory));
  EXPECT_FALSE(Has(Of("source_ref", "https://example.org/llamafactory-numbers"), Sign::kLlamaFactory));
  for (const char* denied : {"no Megatron", "non-Megatron", "w/o Megatron", "own code (not Megatron)"}) {
    EXPECT_FALSE(Has(Of("other_opts", denied), Sign::kMegatron)) << denied;
  }
  EXPECT_TRUE(Has(Of("other_opts", "on Volcano Megatron-LM"), Sign::kMegatron));
}

TEST(SignsTest, SomeNamesGoOnInLongerWords) {
  for (const char* core : {"MegatronCore 0.9", "mcore"}) {
    EXPECT_TRUE(Has(Of("other_opts", core), Sign::kSaysMegatronCore)) << core;
  }
  const Signs both = Of("other_opts", "MegatronDeepSpeed");
  EXPECT_TRUE(Has(both, Sign::kMegatron) && Has(both, Sign::kDeepSpeed));
  EXPECT_TRUE(Has(Of("other_opts", "DeepSpeedPlugin"), Sign::kDeepSpeed));
  EXPECT_TRUE(Has(Of("other_opts", "Hugging Face DPOTrainer"), Sign::kAccelerate));
  EXPECT_TRUE(Has(Of("other_opts", "GPTNeoX"), Sign::kNeox));
  EXPECT_FALSE(Has(Of("other_opts", "AutoModelForCausalLM"), Sign::kSaysAutoModel));
}

// Transformers before its release 5 computes one expert after the other where nothing stands in for it.
TEST(SignsTest, HuggingFaceLoopsOverExpertsWhereNothingSaysOtherwise) {
  const auto loops = [](const std::string& options) {
    return Has(Of("other_opts", absl::StrCat("\"", options, "\"")), Sign::kExpertLoop);
  };
  EXPECT_TRUE(loops("Hugging Face, SFT"));
  EXPECT_TRUE(loops("loop over experts"));
  EXPECT_FALSE(loops("Hugging Face, ScatterMoE"));
  EXPECT_FALSE(loops("Hugging Face, grouped_mm"));
  EXPECT_FALSE(loops("Hugging Face, transformers 5.1"));
  EXPECT_TRUE(loops("Hugging Face, transformers 4.57"));
  EXPECT_FALSE(loops("Megatron-Core"));
}

TEST(SignsTest, WhatARowDeniesIsNotSo) {
  const struct {
    const char* word;
    Sign sign;
  } kCases[] = {{"autocast", Sign::kSaysAutocast},
                {"natural routing", Sign::kNaturalRouting},
                {"one batched product", Sign::kPaddedExperts},
                {"loop over experts", Sign::kExpertLoop},
                {"index_add_", Sign::kIndexAdd},
                {"gradients in bf16", Sign::kNarrowReduction},
                {"gradients in float32", Sign::kWideGradients},
                {"precision-aware optimizer", Sign::kPrecisionAware},
                {"Adam state in bf16", Sign::kNarrowMoments},
                {"current scaling", Sign::kCurrentScaling},
                {"minGPT", Sign::kMinGpt},
                {"DeepEP", Sign::kOnePerNode},
                {"all-gather dispatcher", Sign::kToEachRank},
                {"Unsloth", Sign::kFusedNorms},
                {"fused AdamW", Sign::kFusedAdam},
                {"grouped GEMM", Sign::kGroupedExperts},
                {"MegaBlocks", Sign::kExpertKernels},
                {"graphs of the router", Sign::kRouterGraphs},
                {"positions by example", Sign::kSlicedPositions},
                {"packed documents", Sign::kPackedDocuments},
                {"DualPipe", Sign::kExpertOverlap},
                {"LAMB", Sign::kLamb},
                {"Muon", Sign::kMuon}};
  for (const auto& [word, sign] : kCases) {
    EXPECT_TRUE(Has(Of("other_opts", absl::StrCat("PyTorch; ", word)), sign)) << word;
    EXPECT_FALSE(Has(Of("other_opts", absl::StrCat("PyTorch; no ", word)), sign)) << word;
    EXPECT_TRUE(Has(Of("other_opts", absl::StrCat("no graphs; ", word)), sign)) << word;
  }
}

TEST(SignsTest, PartsOfLongerWordsAreOthers) {
  EXPECT_FALSE(Has(Of("other_opts", "unfused Adam"), Sign::kFusedAdam));
  EXPECT_TRUE(Has(Of("other_opts", "optim=adamw_torch_fused"), Sign::kFusedAdam));
  EXPECT_FALSE(Has(Of("other_opts", "grouped-query attention"), Sign::kGroupedExperts));
  EXPECT_FALSE(Has(Of("other_opts", "no optimizer offload"), Sign::kNoUpdate));
  EXPECT_TRUE(Has(Of("other_opts", "forward and backward without an optimizer"), Sign::kNoUpdate));
  EXPECT_TRUE(Has(Of("dtype", "TF32"), Sign::kFloat32));
  EXPECT_FALSE(Has(Of("dtype", "bf16 with fp32 masters"), Sign::kFloat32));
}

TEST(SignsTest, PagesOfOneFrameworkHaveRowsOfOthers) {
  const auto halo = [](const std::string& options) {
    const std::string text = absl::StrCat("status,source_ref,other_opts\nok,whitecircle/halo docs,", options, "\n");
    const absl::StatusOr<CsvTable> table = ParseCsv(text, "t.csv");
    EXPECT_OK(table);
    return Has(ReadSigns(CsvCells(*table, table->rows[0]), 2048), Sign::kHalo);
  };
  EXPECT_TRUE(halo("Hugging Face; Liger"));
  EXPECT_FALSE(halo("Hugging Face; TRL SFTTrainer; Liger"));
}

// Whichever column says that it is KempnerForge.
TEST(SignsTest, KempnerForgeGathersForEachProduct) {
  EXPECT_TRUE(Has(Of("source_ref", "KempnerInstitute/KempnerForge"), Sign::kGathersEach));
  EXPECT_TRUE(Has(Of("other_opts", "KempnerForge"), Sign::kGathersEach));
  EXPECT_FALSE(Has(Of("other_opts", "torchtitan; not KempnerForge"), Sign::kGathersEach));
}

// Megatron-Core's layers were its own by default until April 2024.
TEST(SignsTest, PapersTellWhichLayersMegatronCoreHad) {
  const auto engine = [](const std::string& source, const std::string& options) {
    const std::string text = absl::StrCat("status,source_ref,other_opts\nok,", source, ",", options, "\n");
    const absl::StatusOr<CsvTable> table = ParseCsv(text, "t.csv");
    EXPECT_OK(table);
    return Has(ReadSigns(CsvCells(*table, table->rows[0]), 2048), Sign::kTransformerEngine);
  };
  EXPECT_FALSE(engine("Somebody (arXiv 2310.19341) table 10", "Megatron-Core"));
  EXPECT_FALSE(engine("https://arxiv.org/abs/2310.19341v1", "mcore"));
  EXPECT_TRUE(engine("Somebody (arXiv 2404.19341)", "Megatron-Core"));
  EXPECT_TRUE(engine("Somebody", "Megatron-Core"));
  EXPECT_TRUE(engine("Somebody (arXiv 2310.19341)", "Megatron-Core; Transformer Engine"));
}

TEST(SignsTest, ReleasesOfPeft) {
  for (const char* narrow : {"PEFT 0.9", "PEFT 0.10.0", "PEFT before 0.8", "PEFT before 0.11"}) {
    EXPECT_TRUE(Has(Of("other_opts", narrow), Sign::kNarrowPeft)) << narrow;
  }
  for (const char* wide : {"PEFT", "PEFT 0.11", "PEFT 0.20", "PEFT before 0.17"}) {
    EXPECT_FALSE(Has(Of("other_opts", wide), Sign::kNarrowPeft)) << wide;
  }
}

TEST(SignsTest, Adapters) {
  for (const char* adapted : {"LoRA", "QLoRA of rank 8", "Q-LoRA", "PEFT before 0.11", "peft_lora", "rsLoRA"}) {
    EXPECT_TRUE(Has(Of("other_opts", adapted), Sign::kAdapters)) << adapted;
    EXPECT_TRUE(Has(Of("other_opts", adapted), Sign::kFineTuning)) << adapted;
  }
  for (const char* whole : {"full fine-tuning; no LoRA", "without PEFT", "an exploratory run"}) {
    EXPECT_FALSE(Has(Of("other_opts", whole), Sign::kAdapters)) << whole;
  }
}

TEST(SignsTest, PureDataParallelismReducesAsOthersDo) {
  EXPECT_FALSE(Has(Of("other_opts", "pure data parallel"), Sign::kNarrowReduction));
  EXPECT_TRUE(Has(Of("other_opts", "FSDP mixed_precision=PURE"), Sign::kNarrowReduction));
  EXPECT_TRUE(Has(Of("other_opts", "pure bf16"), Sign::kNarrowReduction));
  EXPECT_FALSE(Has(Of("other_opts", "Adam state in bf16"), Sign::kNarrowStates));  // masters are not told of
  EXPECT_TRUE(Has(Of("other_opts", "precision-aware optimizer with offload"), Sign::kPrecisionAware));
  EXPECT_FALSE(Has(Of("other_opts", "precision-aware optimizer off"), Sign::kPrecisionAware));
}

// torchtune's chunks are of logits that are there.
TEST(SignsTest, ChunksOfALossWithItsProduct) {
  EXPECT_TRUE(Has(Of("other_opts", "Hugging Face TRL; chunked loss"), Sign::kLinearLoss));
  EXPECT_FALSE(Has(Of("other_opts", "torchtune; chunked loss"), Sign::kLinearLoss));
  EXPECT_TRUE(Has(Of("other_opts", "checkpoints offloaded"), Sign::kOffloadsActivations));
}

TEST(SignsTest, DatesAreNoContainers) {
  EXPECT_EQ(Of("source_ref", "a page of 21.05.2024").container, Of("source_ref", "a page").container);
  EXPECT_EQ(Of("source_ref", "release 26.04.01").container, 2604);
}

// The column of sharding has the folder's own words for others' (sharding_text.h).
TEST(SignsTest, ShardingInOtherWords) { EXPECT_TRUE(Has(Of("zero_fsdp", "FULL_SHARD"), Sign::kFsdp)); }

TEST(SignsTest, KernelsThatARowSaysAreFused) {
  EXPECT_TRUE(Has(Of("other_opts", "fused rms norm"), Sign::kFusedNorms));
  EXPECT_FALSE(Has(Of("other_opts", "rms norm"), Sign::kFusedNorms));
  EXPECT_FALSE(Has(Of("other_opts", "no fused rms norm"), Sign::kFusedNorms));
  EXPECT_FALSE(Has(Of("other_opts", "fused adam; rms norm"), Sign::kFusedNorms));  // of another part of the cell
  const std::string kernels = "fused kernels of LoRA; cross entropy loss; rms norm and rope; swiglu";
  for (const Sign sign : {Sign::kFusedLoss, Sign::kFusedNorms, Sign::kFusedRotary}) {
    EXPECT_TRUE(Has(Of("other_opts", kernels), sign));
  }
  EXPECT_FALSE(Has(Of("other_opts", kernels), Sign::kFusedGates));
  EXPECT_FALSE(Has(Of("other_opts", "fused kernels of LoRA; rms norm"), Sign::kFusedNorms));
}

TEST(SignsTest, Releases) {
  EXPECT_EQ(Of("source_ref", "README.md (24.03)").container, 2403);
  EXPECT_EQ(Of("source_ref", "README.md 124.03").container, kNewest);
  EXPECT_FALSE(Has(Of("source_ref", "README.md"), Sign::kNamesContainer));
  EXPECT_EQ(Of("other_opts", "DeepSpeed 0.11.1").deepspeed, 11);
  EXPECT_EQ(Of("other_opts", "DeepSpeed 1.0").deepspeed, kNewest);
  EXPECT_EQ(Of("gpu_type", "A100").deepspeed, 12);  // of its time
  EXPECT_EQ(Of("gpu_type", "H100").deepspeed, kNewest);
  EXPECT_EQ(Of("other_opts", "Megatron-Core 0.6; Megatron-LM").megatron_core, 6);
  EXPECT_EQ(Of("other_opts", "NeMo; MCore v0.12.1").megatron_core, 12);
  EXPECT_EQ(Of("other_opts", "megatron-core tag:core_v0.6.0").megatron_core, 6);
  EXPECT_EQ(Of("source_ref", "Megatron-LM core_r0.16.0; TE 2.15").megatron_core, 16);
  EXPECT_EQ(Of("other_opts", "Megatron-Core 1.0").megatron_core, kNewest);
  EXPECT_EQ(Of("other_opts", "Megatron-Core; Transformer Engine 0.6").megatron_core, kNewest);
}

TEST(SignsTest, Conclusions) {
  EXPECT_TRUE(Has(Of("attention", "TE/cuDNN flash"), Sign::kRecipeSteps));
  EXPECT_TRUE(Has(Of("attention", "eager"), Sign::kOldSteps));
  EXPECT_FALSE(Has(Of("attention", "eager"), Sign::kRecipeSteps));
  EXPECT_FALSE(Has(Of("other_opts", "CUDA graphs"), Sign::kEager));
  EXPECT_TRUE(Has(Of("model", "GPT", 4097), Sign::kLongRows));
  EXPECT_FALSE(Has(Of("model", "GPT", 4096), Sign::kLongRows));
}

}  // namespace
}  // namespace meshwright
