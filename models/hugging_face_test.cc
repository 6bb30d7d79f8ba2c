#include "models/hugging_face.h"

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

// configuration_gpt_neox.py, configuration_mixtral.py: each class has its own names and defaults of rotary positions.
TEST(HuggingFaceTest, RotaryPositionsOfFamilies) {
  const auto neox = [](const std::string& more, std::vector<std::string>* notices) {
    return Read(absl::StrCat(R"({"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 1024)",
                             more, "}"),
                64, notices);
  };
  std::vector<std::string> notices;
  EXPECT_EQ(neox("", &notices)->rope_theta, 10000);
  EXPECT_THAT(notices, Contains(HasSubstr("rotary positions of 0.25 of each head")));
  EXPECT_THAT(notices, Contains(HasSubstr("one behind the other, not side by side")));
  notices.clear();
  const std::string whole = R"(, "rotary_emb_base": 25000, "rotary_pct": 1.0, "use_parallel_residual": false)";
  EXPECT_EQ(neox(whole, &notices)->rope_theta, 25000);
  EXPECT_THAT(notices, IsEmpty());
  std::string mixtral(kMixtral);
  const size_t at = mixtral.find("\"rope_theta\"");
  if (at != std::string::npos) mixtral.replace(at, 12, "\"no_rope_theta\"");
  EXPECT_EQ(Read(mixtral)->rope_theta, 1e6);
}

// Published counts, less the norms of queries and keys, which are left out: 36 layers x 2 x 128; 48 x 2 x 128; and of
// OLMo 2, which has them over all heads, 32 x 2 x 4096.
TEST(HuggingFaceTest, FamiliesThatAreNearlyLlamas) {
  std::vector<std::string> notices;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12288, "vocab_size": 151936,
      "sliding_window": null, "use_sliding_window": false, "tie_word_embeddings": false})",
                         64, &notices)),
            8'190'735'360 - 9'216);
  EXPECT_THAT(notices, ElementsAre("the norms of queries and keys are left out"));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768,
      "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "tie_word_embeddings": false})")),
            30'532'122'624 - 12'288);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 100352,
      "tie_word_embeddings": false})")),
            7'298'617'344 - 262'144);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40,
      "num_attention_heads": 40, "num_key_value_heads": 10, "intermediate_size": 17920, "vocab_size": 100352,
      "sliding_window": null, "tie_word_embeddings": false})")),
            14'659'507'200);
}

// Published counts, less what is left out: of Gemma 2, two norms a layer, 42 x 2 x 3584; of gpt-oss, in each of 24
// layers, biases of the output 2880, of 32 experts 32 x (2 x 2880 + 2880), of the router 32, and 64 sinks.
TEST(HuggingFaceTest, FamiliesWithLayersOfTheirOwn) {
  std::vector<std::string> notices;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "head_dim": 256,
      "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384, "vocab_size": 256000,
      "hidden_act": "gelu"})",
                         64, &notices)),
            2'506'172'416);
  EXPECT_THAT(notices, ElementsAre("GELU of gates is taken as SiLU, which takes as long",
                                   "the scale of the embeddings is left out"));
  notices.clear();
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "head_dim": 256,
      "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 256000,
      "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096})",
                         64, &notices)),
            9'241'705'984 - 42 * 2 * 3584);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("GELU"), HasSubstr("the norms behind attention")));
  notices.clear();
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "head_dim": 64,
      "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 2880, "vocab_size": 201088,
      "num_local_experts": 32, "num_experts_per_tok": 4, "attention_bias": true, "hidden_act": "silu",
      "tie_word_embeddings": false})",
                         64, &notices)),
            20'914'757'184 - 24 * (2880 + 32 * 3 * 2880 + 32 + 64));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("attention sinks, are left out")));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gpt_neox", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 16384, "vocab_size": 50432, "hidden_act": "gelu",
      "layer_norm_eps": 1e-5, "tie_word_embeddings": false})")),
            6'857'302'016);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30,
      "num_attention_heads": 24, "num_key_value_heads": 2, "intermediate_size": 12288, "vocab_size": 49152,
      "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": true})")),
            3'030'371'328);
}

// The decoder of Gemma 3 12B, in whose file no key says that a head is 256 wide, where 3840 over 16 is 240: 48 layers
// with attention of 3 x 3840 x 16 x 256, a feed-forward layer of 3 x 3840 x 15360 and two norms, the embedding and a
// norm. That of 4B has no number of key and value heads either.
TEST(HuggingFaceTest, MissingKeysAreWhatTheClassSays) {
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360,
      "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8, "vocab_size": 262208})")),
            11'765'640'960);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig small,
                       Read(R"({"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
      "num_attention_heads": 8, "num_hidden_layers": 34, "vocab_size": 262208})"));
  EXPECT_EQ(small.kv_heads, 4);
  EXPECT_EQ(small.head_dim, 256);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig plain,
                       Read(R"({"model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30,
      "num_attention_heads": 24, "num_key_value_heads": 2, "intermediate_size": 12288, "vocab_size": 49152,
      "hidden_act": "gelu_pytorch_tanh", "use_bias": false})"));
  EXPECT_FALSE(plain.bias);
  EXPECT_FALSE(plain.qkv_bias);
}

constexpr absl::string_view kDeepSeekV3 = R"({"model_type": "deepseek_v3", "hidden_size": 7168,
  "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
  "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
  "num_nextn_predict_layers": 1, "tie_word_embeddings": false})";

// Embedding and head 2 x 129280 x 7168. A layer: queries and output 2 x 7168 x 16384, a key and a value
// 2 x 7168 x 128, the router 7168 x 256, experts and the shared one 257 x 3 x 7168 x 2048, norms 2 x 7168. The last
// norm 7168. 706 billion, where the published model has 671.
TEST(HuggingFaceTest, DeepSeekIsTakenForSomethingNear) {
  std::vector<std::string> notices;
  const absl::StatusOr<DecoderConfig> model = Read(kDeepSeekV3, 64, &notices);
  constexpr int64_t kLayer = 2 * 7168 * 16384 + 2 * 7168 * 128 + 7168 * 256 + int64_t{257} * 3 * 7168 * 2048 + 2 * 7168;
  EXPECT_EQ(CountOf(model), int64_t{2} * 129280 * 7168 + 61 * kLayer + 7168);
  EXPECT_EQ(model->experts_per_token, 8);
  EXPECT_EQ(model->shared_expert_ffn, 2048);
  EXPECT_EQ(model->choice_groups, 8);
  EXPECT_EQ(model->choice_groups_per_token, 4);
  EXPECT_THAT(notices,
              ElementsAre("the first 3 layers are taken as layers of experts, too",
                          HasSubstr("latent attention is taken as 128 heads of 128"), HasSubstr("are left out")));
  notices.clear();
  ASSERT_OK(Read(absl::StrReplaceAll(kDeepSeekV3, {{"\"n_group\"", "\"quantization_config\": {}, \"n_group\""}}), 64,
                 &notices)
                .status());
  EXPECT_THAT(notices.back(), HasSubstr("quantization_config is left out"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kDeepSeekV3, {{"\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2"}})),
              StatusIs(absl::StatusCode::kUnimplemented, "moe_layer_freq: experts in every 2th layer only"));
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
  EXPECT_THAT(
      Read(absl::StrReplaceAll(kLlama, {{"\"llama\"", "\"bert\""}})),
      unimplemented("model_type: found \"bert\", wanted one of gpt2, llama, mistral, mixtral, phi3, qwen2, qwen3, "));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"silu", "relu2"}})), unimplemented("hidden_act: the activation"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\"", "\"mlp_bias\": true, \"rope_scaling\""}})),
              unimplemented("mlp_bias: a bias in one half"));
  EXPECT_THAT(Read(absl::StrReplaceAll(
                  kLlama, {{"\"rope_scaling\"", "\"layer_types\": [\"linear_attention\"], \"rope_scaling\""}})),
              unimplemented("layer_types[0]: \"linear_attention\" is not modelled"));
  EXPECT_THAT(Read(R"({"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {}})"),
              unimplemented("found \"llava\", which is more than a decoder, wanted a decoder alone; to plan the one in "
                            "it, save the map `text_config` as a file of its own"));
  EXPECT_THAT(Read(R"({"model_type": "qwen2_5_vl", "hidden_size": 8, "vision_config": {}})"),
              unimplemented("remove `vision_config` and write the model_type of its decoder"));
}

TEST(HuggingFaceTest, DropoutIsLeftOutAndTold) {
  std::vector<std::string> notices;
  EXPECT_THAT(Read(kGpt2, 64, &notices), IsOk());
  EXPECT_THAT(notices, ElementsAre("resid_pdrop of 0.1 is left out: decoders have no dropout"));
  notices.clear();
  EXPECT_THAT(Read(kLlama, 64, &notices), IsOk());
  EXPECT_THAT(notices, IsEmpty());
}

// Of all families: Phi-3-mini has one of 2047 tokens. Llama's 32 layers with 16 that look far.
TEST(HuggingFaceTest, AWindowIsToldWhereItIsShorterThanTheSequence) {
  const auto notices_of = [](absl::string_view more, int64_t sequence) {
    std::vector<std::string> notices;
    EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\": null", std::string(more)}}), sequence, &notices),
                IsOk());
    return notices;
  };
  EXPECT_THAT(notices_of("\"sliding_window\": 4096", 4096), IsEmpty());
  EXPECT_THAT(notices_of("\"sliding_window\": 4096", 4097),
              ElementsAre("attention windows of 4096 tokens are taken as attention over all 4097: time and model FLOPs "
                          "come out too high"));
  EXPECT_THAT(notices_of("\"sliding_window\": 4096, \"use_sliding_window\": false", 4097), IsEmpty());
  std::string types = "\"sliding_window\": 128, \"layer_types\": [\"full_attention\"";
  for (int layer = 1; layer < 32; ++layer) types += layer % 2 == 1 ? ",\"sliding_attention\"" : ",\"full_attention\"";
  EXPECT_THAT(notices_of(types + "]", 4096),
              ElementsAre(HasSubstr("attention windows of 128 tokens in 16 of 32 layers are taken")));
}

TEST(HuggingFaceTest, WhatChangesNoTimeButTheModelIsTold) {
  std::vector<std::string> notices;
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\": null",
                                                 "\"attention_bias\": true, \"rope_scaling\": "
                                                 "{\"rope_type\": \"llama3\", \"factor\": 8}"}}),
                   64, &notices),
              IsOk());
  EXPECT_THAT(notices,
              ElementsAre(HasSubstr("rope_scaling is left out"), "the bias of attention's output is left out"));
}

TEST(HuggingFaceTest, LearnedPositionsAreAsManyAsTheSequence) {
  EXPECT_THAT(Read(kGpt2, 1025), StatusIs(absl::StatusCode::kInvalidArgument,
                                          "n_positions: found 1024, wanted at least the sequence of 1025; plan with a "
                                          "sequence of 1024 at most"));
}

TEST(HuggingFaceTest, WrongSizesAreErrorsAtTheirKey) {
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"4096", "40.5"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "config.json:2:18: hidden_size: found \"40.5\""));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"hidden_size\": 4096,", ""}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "hidden_size: found nothing"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "wanted a divisor of heads = 32"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"num_attention_heads\": 32", "\"num_attention_heads\": 33"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_attention_heads: found 33, wanted a divisor of the hidden size, 4096"));
  EXPECT_THAT(Read("[1]"), StatusIs(absl::StatusCode::kInvalidArgument, "wanted a map with the key model_type"));
}

TEST(HuggingFaceTest, AModelFileIsWrittenAroundAConfig) {
  EXPECT_EQ(ModelFileAround("models/Llama-3.1-70B/config.json", 1024, 8192),
            "name: Llama-3.1-70B\nhuggingface: config.json\n"
            "training: {batch: 1024, sequence: 8192, dtype: bfloat16, optimizer: adamw}\n");
  const auto name_in = [](absl::string_view path) {
    const std::string text = ModelFileAround(path, 1, 1);
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(name_in("qwen.json"), "name: qwen");
  EXPECT_EQ(name_in("config.json"), "name: model") << "no folder to take it from";
  EXPECT_EQ(name_in("/config.json"), "name: model");
  EXPECT_EQ(name_in("../config.json"), "name: model");
  EXPECT_EQ(name_in("-"), "name: model") << "the standard input";
  EXPECT_EQ(name_in("a/my model (2).json"), "name: my_model__2_");
  EXPECT_THAT(ModelFileAround("a/my model.json", 1, 1), HasSubstr("huggingface: config.json\n"));
}

}  // namespace
}  // namespace meshwright
