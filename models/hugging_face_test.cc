#include "models/hugging_face.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Training TrainingOf(int64_t sequence) {
  Training training;
  training.batch = 1;
  training.sequence = sequence;
  return training;
}

absl::StatusOr<DecoderConfig> Read(absl::string_view json, int64_t sequence = 64,
                                   std::vector<std::string>* notices = nullptr) {
  const absl::StatusOr<Document> document = ParseDocument(json, "config.json");
  if (!document.ok()) return document.status();
  std::vector<std::string> unread;
  return ReadHuggingFace(document->root(), TrainingOf(sequence), notices == nullptr ? unread : *notices);
}

int64_t CountOf(const absl::StatusOr<DecoderConfig>& config) {
  EXPECT_THAT(config, IsOk());
  if (!config.ok()) return -1;
  const absl::StatusOr<Graph> graph = BuildDecoder(*config, TrainingOf(64), "hf", 1);
  EXPECT_THAT(graph, IsOk());
  return graph.ok() ? graph->NumParameters() : -1;
}

constexpr absl::string_view kGpt2 = R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
  "n_inner": null, "vocab_size": 50257, "n_positions": 1024, "activation_function": "gelu_new", "resid_pdrop": 0.1})";
constexpr absl::string_view kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu", "rope_theta": 500000.0,
  "rope_scaling": null, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
constexpr absl::string_view kMixtral = R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
  "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null})";

TEST(HuggingFaceTest, CountsAreThoseOfTheCheckpoints) {
  EXPECT_EQ(CountOf(Read(kGpt2)), 124'439'808);
  EXPECT_EQ(CountOf(Read(kLlama)), 8'030'261'248);
  EXPECT_EQ(CountOf(Read(kMixtral)), 46'702'792'704);
}

TEST(HuggingFaceTest, Qwen2HasBiasesOnQKAndVOnly) {
  // 2 layers of: norms 2 x 8; q, k, v 8 x (4 + 2 + 2) x 2 and 16 biases; o 8 x 8; three FFN matrices 8 x 16: 648.
  // Embedding and head 2 x 32 x 8 = 512, last norm 8.
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen2", "hidden_size": 8, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 32})")),
            2 * (16 + 8 * 16 + 16 + 64 + 3 * 8 * 16) + 512 + 8);
}

TEST(HuggingFaceTest, DefaultsAreThoseOfTheFamily) {
  ASSERT_OK_AND_ASSIGN(const DecoderConfig gpt2, Read(kGpt2));
  EXPECT_TRUE(gpt2.tied_embeddings);
  EXPECT_EQ(gpt2.ffn, 4 * 768);
  EXPECT_EQ(gpt2.kv_heads, 12);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig llama, Read(R"({"model_type": "llama", "hidden_size": 8,
      "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16, "vocab_size": 32, "head_dim": null,
      "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}})"));
  EXPECT_FALSE(llama.tied_embeddings);
  EXPECT_EQ(llama.kv_heads, 4) << "missing means as many as heads";
  EXPECT_EQ(llama.head_dim, 2);
  EXPECT_EQ(llama.rope_theta, 1e6);
}

TEST(HuggingFaceTest, WhatWeDoNotModelIsRefused) {
  const auto unimplemented = [](absl::string_view what) {
    return StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(std::string(what)));
  };
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"llama\"", "\"bert\""}})),
              unimplemented("model_type: found \"bert\", wanted one of gpt2, llama, mistral, mixtral, qwen2"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"silu", "relu2"}})), unimplemented("hidden_act: the activation"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\"", "\"attention_bias\": true, \"rope_scaling\""}})),
              unimplemented("attention_bias: a bias in one half"));
  EXPECT_THAT(Read(absl::StrReplaceAll(
                  kLlama, {{"\"rope_scaling\"", "\"layer_types\": [\"sliding_attention\"], \"rope_scaling\""}})),
              unimplemented("layer_types[0]: \"sliding_attention\" is not modelled"));
}

TEST(HuggingFaceTest, DropoutIsLeftOutAndTold) {
  std::vector<std::string> notices;
  EXPECT_THAT(Read(kGpt2, 64, &notices), IsOk());
  EXPECT_THAT(notices, ElementsAre("resid_pdrop of 0.1 is left out: decoders have no dropout"));
  notices.clear();
  EXPECT_THAT(Read(kLlama, 64, &notices), IsOk());
  EXPECT_THAT(notices, IsEmpty());
}

TEST(HuggingFaceTest, AWindowMattersOnlyIfItIsShorterThanTheSequence) {
  const std::string mistral = absl::StrReplaceAll(
      kLlama, {{"\"llama\"", "\"mistral\""}, {"\"rope_scaling\"", "\"sliding_window\": 4096, \"x\""}});
  EXPECT_THAT(Read(mistral, 4096), IsOk());
  EXPECT_THAT(Read(mistral, 4097), StatusIs(absl::StatusCode::kUnimplemented,
                                            "sliding_window: an attention window of 4096 in a sequence of 4097"));
}

TEST(HuggingFaceTest, WrongSizesAreErrorsAtTheirKey) {
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"4096", "40.5"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "config.json:2:18: hidden_size: found \"40.5\""));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"hidden_size\": 4096,", ""}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "hidden_size: found nothing"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "wanted a divisor of heads = 32"));
  EXPECT_THAT(Read("[1]"), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a map with the key model_type"));
}

}  // namespace
}  // namespace meshwright
