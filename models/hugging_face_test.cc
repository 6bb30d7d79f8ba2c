#include "models/hugging_face.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "models/hugging_face_testing.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  EXPECT_EQ(neox("", &notices)->rotary_factor, 0.25);
  EXPECT_EQ(neox("", &notices)->layer_form, LayerForm::kParallel);
  EXPECT_THAT(notices, IsEmpty());
  const std::string whole = R"(, "rotary_emb_base": 25000, "rotary_pct": 1.0, "use_parallel_residual": false)";
  EXPECT_EQ(neox(whole, &notices)->rope_theta, 25000);
  EXPECT_EQ(neox(whole, &notices)->rotary_factor, 1);
  EXPECT_EQ(neox(whole, &notices)->layer_form, LayerForm::kSerial);
  EXPECT_THAT(notices, IsEmpty());
  std::string mixtral(kMixtral);
  const size_t at = mixtral.find("\"rope_theta\"");
  if (at != std::string::npos) mixtral.replace(at, 12, "\"no_rope_theta\"");
  EXPECT_EQ(Read(mixtral)->rope_theta, 1e6);
}

// The decoder of Gemma 3 12B, in whose file no key says that a head is 256 wide, where 3840 over 16 is 240: 48 layers
// with attention of 3 x 3840 x 16 x 256, a feed-forward layer of 3 x 3840 x 15360, four norms and those of queries and
// keys, 2 x 256; the embedding and a norm. That of 4B has no number of key and value heads either.
TEST(HuggingFaceTest, MissingKeysAreWhatTheClassSays) {
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360,
      "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8, "vocab_size": 262208})")),
            11'766'034'176);
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

// 671,026,404,352 where the checkpoint has 671,026,419,200 (without the layer behind the last), of which 58 x 256 are
// biases of routers. Embedding and head 2 x 129280 x 7168. A layer: queries 7168 x 1536 and 1536 x 128 x 192, keys and
// values 7168 x 576 and 512 x 128 x 256, the output 128 x 128 x 7168, norms 2 x 7168 and those of latents; of 58 the
// router 7168 x 256, experts and the shared one 257 x 3 x 7168 x 2048, of 3 a feed-forward layer 3 x 7168 x 18432. The
// last norm 7168.
TEST(HuggingFaceTest, DeepSeek) {
  std::vector<std::string> notices;
  const absl::StatusOr<DecoderConfig> model = Read(kDeepSeekV3, 64, &notices);
  constexpr int64_t kAttention =
      7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168;
  constexpr int64_t kLayer = kAttention + 2 * 7168;
  constexpr int64_t kExperts = 7168 * 256 + int64_t{257} * 3 * 7168 * 2048, kDense = 3 * 7168 * 18432;
  // The layer behind the last, which joins two states and has a norm for each and one of its own in front of the head.
  constexpr int64_t kNext = kLayer + kExperts + 2 * 7168 * 7168 + 3 * 7168;
  EXPECT_EQ(model->mtp_layers, 1);
  EXPECT_EQ(CountOf(model), int64_t{2} * 129280 * 7168 + 61 * kLayer + 58 * kExperts + 3 * kDense + 7168 + kNext);
  EXPECT_EQ(CountOf(model) - kNext, 671'026'419'200 - 58 * 256);
  EXPECT_EQ(model->dense_layers, 3);
  EXPECT_EQ(model->dense_ffn, 18432);
  EXPECT_EQ(model->experts_per_token, 8);
  EXPECT_EQ(model->shared_expert_ffn, 2048);
  EXPECT_EQ(model->choice_groups, 8);
  EXPECT_EQ(model->choice_groups_per_token, 4);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("1 layer that predicts the token after the next is trained, too")));
  notices.clear();
  ASSERT_OK(Read(absl::StrReplaceAll(kDeepSeekV3, {{"\"n_group\"", "\"quantization_config\": {}, \"n_group\""}}), 64,
                 &notices)
                .status());
  EXPECT_THAT(notices.back(), HasSubstr("quantization_config is left out"));
  // Each would be written out: a file may not ask for millions.
  EXPECT_THAT(Read(absl::StrReplaceAll(kDeepSeekV3, {{"predict_layers\": 1", "predict_layers\": 16000000"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mtp_layers = 16000000, wanted at most 16")));
  // Layers 4, 6 .. 60; with 7 they would be 7, 14 .. 56 of 61.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig second,
                       Read(absl::StrReplaceAll(kDeepSeekV3, {{"moe_layer_freq\": 1", "moe_layer_freq\": 2"}})));
  EXPECT_EQ(second.dense_layers, 3);
  EXPECT_EQ(second.expert_every, 2);
  EXPECT_THAT(Read(absl::StrReplaceAll(kDeepSeekV3, {{"moe_layer_freq\": 1", "moe_layer_freq\": 7"}})),
              StatusIs(absl::StatusCode::kUnimplemented, "layers without experts that are neither"));
}

// DeepSeek-V3.2 and GLM-5 but for what picks the tokens that attention is to.
TEST(HuggingFaceTest, IndexersAreLeftOut) {
  std::vector<std::string> notices;
  const std::string v32 = absl::StrReplaceAll(
      kDeepSeekV3, {{"deepseek_v3", "deepseek_v32"}, {"\"num_nextn_predict_layers\": 1", "\"index_topk\": 64"}});
  EXPECT_EQ(CountOf(Read(v32, 64, &notices)), 671'026'419'200 - 58 * 256);
  EXPECT_THAT(notices, ElementsAre("the indexer of attention is left out: of 64 tokens it picks all"));
  notices.clear();
  EXPECT_THAT(Read(v32, 128, &notices), IsOk());
  EXPECT_THAT(notices, ElementsAre("the indexer of attention is left out, and attention to the 64 tokens that it picks "
                                   "is taken as attention over all 128"));
  // 744 billion by its name. Embedding and head 2 x 154880 x 6144, the last norm, and of 78 layers: queries 6144 x 2048
  // and 2048 x 64 x 256, keys and values 6144 x 576 and 512 x 64 x 448, the output 64 x 256 x 6144, norms 2 x 6144 and
  // those of latents 2048 and 512; of 75 the router 6144 x 256 and 257 x 3 x 6144 x 2048, of 3 3 x 6144 x 12288.
  constexpr int64_t kLayer =
      6144 * 2048 + 2048 * 64 * 256 + 6144 * 576 + 512 * 64 * 448 + 64 * 256 * 6144 + 2 * 6144 + 2048 + 512;
  constexpr int64_t kExperts = 6144 * 256 + int64_t{257} * 3 * 6144 * 2048, kDense = 3 * 6144 * 12288;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78,
      "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192, "intermediate_size": 12288,
      "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
      "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
      "qk_rope_head_dim": 64, "v_head_dim": 256, "vocab_size": 154880, "hidden_act": "silu", "index_head_dim": 128,
      "index_n_heads": 32})")),
            int64_t{2} * 154880 * 6144 + 6144 + 78 * kLayer + 75 * kExperts + 3 * kDense);
}

// Qwen1.5-MoE-A2.7B, gates and all.
TEST(HuggingFaceTest, SharedExpertsByTheirWidth) {
  constexpr absl::string_view kQwen = R"({"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
      "num_attention_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408, "vocab_size": 151936,
      "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "mlp_only_layers": []})";
  std::vector<std::string> notices;
  const absl::StatusOr<DecoderConfig> model = Read(kQwen, 64, &notices);
  EXPECT_EQ(CountOf(model), 14'315'784'192);
  EXPECT_EQ(model->experts_per_token, 4);
  EXPECT_EQ(model->shared_expert_ffn, 5632);
  EXPECT_TRUE(model->shared_expert_gate);
  EXPECT_THAT(notices, IsEmpty());
}

// ERNIE-4.5-21B-A3B, published as 21 billion. Embedding 103424 x 2560. A layer: queries and output 2 x 2560 x 2560,
// keys and values 2 x 2560 x 512, norms 2 x 2560; of 27 the router 2560 x 64 and 66 x 3 x 2560 x 1536, of the first 3 x
// 2560 x 12288. The last norm 2560.
TEST(HuggingFaceTest, ExpertsByTheirOtherNames) {
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig ernie, Read(R"({"model_type": "ernie4_5_moe", "hidden_size": 2560,
      "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4, "intermediate_size": 12288,
      "moe_intermediate_size": 1536, "vocab_size": 103424, "moe_num_experts": 64, "moe_k": 6,
      "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 1})",
                                                       64, &notices));
  EXPECT_EQ(ernie.experts, 64);
  EXPECT_EQ(ernie.experts_per_token, 6);
  EXPECT_EQ(ernie.shared_expert_ffn, 2 * 1536);
  EXPECT_TRUE(ernie.tied_embeddings);
  EXPECT_EQ(ernie.dense_layers, 1);
  constexpr int64_t kLayer = 2 * 2560 * 2560 + 2 * 2560 * 512 + 2 * 2560;
  constexpr int64_t kExperts = 2560 * 64 + int64_t{66} * 3 * 2560 * 1536;
  EXPECT_EQ(CountOf(ernie), int64_t{103424} * 2560 + 28 * kLayer + 27 * kExperts + 3 * 2560 * 12288 + 2560);
  EXPECT_THAT(notices, IsEmpty());
}

// Llama 4 Maverick and Scout, the decoders alone: 400 and 109 billion are published, with the vision models. Embedding
// and head 2 x 202048 x 5120, a layer's attention 2 x 5120 x 5120 + 2 x 5120 x 1024 and norms 2 x 5120, experts with a
// shared one and a router, or a feed-forward layer of 16384; the last norm.
TEST(HuggingFaceTest, ExpertsInEverySecondLayer) {
  constexpr absl::string_view kMaverick = R"({"model_type": "llama4_text", "hidden_size": 5120,
      "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "vocab_size": 202048, "num_local_experts": 128,
      "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192, "use_qk_norm": false,
      "tie_word_embeddings": false})";
  constexpr int64_t kLayer = 2 * 5120 * 5120 + 2 * 5120 * 1024 + 2 * 5120, kDense = int64_t{3} * 5120 * 16384;
  constexpr int64_t kAround = int64_t{2} * 202048 * 5120 + 5120;
  const auto with_experts = [](int64_t experts) { return 5120 * experts + (experts + 1) * 3 * 5120 * 8192; };
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig maverick, Read(kMaverick, 64, &notices));
  EXPECT_EQ(maverick.expert_every, 2);
  EXPECT_EQ(maverick.dense_ffn, 16384);
  EXPECT_EQ(CountOf(maverick), kAround + 48 * kLayer + 24 * (with_experts(128) + kDense));
  EXPECT_NEAR(static_cast<double>(CountOf(maverick)), 400e9, 1e9);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("layers without rotary positions are taken as layers with them")));
  notices.clear();
  ASSERT_OK_AND_ASSIGN(const DecoderConfig scout,
                       Read(absl::StrReplaceAll(kMaverick, {{"step\": 2", "step\": 1"},
                                                            {"local_experts\": 128", "local_experts\": 16"}}),
                            16384, &notices));
  EXPECT_EQ(CountOf(scout), kAround + 48 * (kLayer + with_experts(16)));
  EXPECT_NEAR(static_cast<double>(CountOf(scout)), 108e9, 1e9);
  EXPECT_THAT(notices, Contains(HasSubstr("attention in chunks of 8192 tokens is taken for windows of as many")));
  EXPECT_EQ(scout.sliding_window, 8192);
  EXPECT_EQ(scout.full_attention_every, 4);
}

// Published as 106 and 16.4 billion.
TEST(HuggingFaceTest, TheFirstLayerHasNoExperts) {
  const auto glm = CountOf(Read(R"({"model_type": "glm4_moe", "hidden_size": 4096, "num_hidden_layers": 46,
      "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944,
      "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
      "first_k_dense_replace": 1, "vocab_size": 151552})"));
  EXPECT_NEAR(static_cast<double>(glm), 106e9, 1e9);
  const auto deepseek = CountOf(Read(R"({"model_type": "deepseek", "hidden_size": 2048, "num_hidden_layers": 28,
      "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 10944, "vocab_size": 102400,
      "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
      "first_k_dense_replace": 1, "moe_layer_freq": 1})"));
  EXPECT_NEAR(static_cast<double>(deepseek), 16.4e9, 0.05e9);
}

// Every way to say which layers have experts, of 5 layers.
TEST(HuggingFaceTest, LayersWithExperts) {
  struct Case {
    absl::string_view keys;
    int64_t dense_layers, expert_every;
  };
  const auto read = [](absl::string_view keys) {
    return Read(absl::StrCat(R"({"model_type": "deepseek", "hidden_size": 64, "num_hidden_layers": 5,
        "num_attention_heads": 4, "intermediate_size": 96, "moe_intermediate_size": 32, "vocab_size": 32,
        "n_routed_experts": 4, "num_experts_per_tok": 1, )",
                             keys, "}"));
  };
  for (const Case& c : {Case{"\"first_k_dense_replace\": 0", 0, 1}, Case{"\"first_k_dense_replace\": 4", 4, 1},
                        Case{"\"first_k_dense_replace\": 1, \"moe_layer_freq\": 2", 1, 2},
                        Case{"\"moe_layer_freq\": [0, 0, 1, 1, 1]", 2, 1}, Case{"\"moe_layers\": [2, 4]", 1, 2},
                        Case{"\"mlp_only_layers\": [0, 1]", 2, 1}, Case{"\"decoder_sparse_step\": 5", 4, 1},
                        Case{"\"moe_layer_start_index\": 2, \"moe_layer_interval\": 1", 2, 1}}) {
    SCOPED_TRACE(c.keys);
    ASSERT_OK_AND_ASSIGN(const DecoderConfig config, read(c.keys));
    EXPECT_EQ(config.dense_layers, c.dense_layers);
    EXPECT_EQ(config.expert_every, c.expert_every);
    EXPECT_EQ(config.dense_ffn, c.dense_layers > 0 || c.expert_every > 1 ? 96 : 0);
  }
  ASSERT_OK_AND_ASSIGN(const DecoderConfig words,
                       read(R"("mlp_layer_types": ["dense", "dense", "sparse", "dense", "sparse"])"));
  EXPECT_EQ(words.dense_layers, 1);
  EXPECT_EQ(words.expert_every, 2);
  EXPECT_THAT(read(R"("mlp_layer_types": ["dense", "sparse", "sparse", "moe", "sparse"])"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mlp_layer_types[3]: found \"moe\"")));
  EXPECT_THAT(read(R"("mlp_layer_types": ["dense"])"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 1 kinds, wanted one for each of the 5")));
  for (const absl::string_view keys :
       {"\"mlp_only_layers\": [2]", "\"decoder_sparse_step\": 2", "\"moe_layers\": [0, 1]",
        "\"first_k_dense_replace\": 5", "\"moe_layer_freq\": [0, 1, 0, 0, 1]"}) {
    EXPECT_THAT(read(keys), StatusIs(absl::StatusCode::kUnimplemented, "layers without experts that are neither"));
  }
  EXPECT_THAT(read("\"moe_layer_freq\": [0, 1]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "moe_layer_freq: found 2 numbers, wanted one for each of the 5 layers"));
}

// configuration_mistral.py and the others: a number of key and value heads that is missing is the class's, one that is
// null is that of the heads.
TEST(HuggingFaceTest, ANullIsNoClassDefault) {
  const auto kv_heads = [](absl::string_view model_type, absl::string_view more) {
    const absl::StatusOr<DecoderConfig> config = Read(absl::StrCat(R"({"model_type": ")", model_type, R"(",
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 32, "intermediate_size": 64,
        "vocab_size": 32, "num_experts": 4, "num_experts_per_tok": 1)",
                                                                   more, "}"));
    return config.ok() ? config->kv_heads : -1;
  };
  EXPECT_EQ(kv_heads("mixtral", ""), 8);
  EXPECT_EQ(kv_heads("mixtral", R"(, "num_key_value_heads": null)"), 32);
  EXPECT_EQ(kv_heads("qwen3_moe", ""), 4);
  EXPECT_EQ(kv_heads("olmoe", ""), 32);
  std::vector<std::string> notices;
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\": null",
                                                 R"("attention_bias": null, "mlp_bias": null, "head_dim": null,
              "use_sliding_window": null, "sliding_window": null, "layer_types": null, "use_bias": null,
              "attention_dropout": null, "num_nextn_predict_layers": null)"},
                                                {"\"silu\"", "null"},
                                                {"1e-05", "null"},
                                                {"false", "null"}}),
                   8192, &notices),
              IsOk());
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_THAT(Read(absl::StrReplaceAll(kDeepSeekV3, {{"dense_replace\": 3", "dense_replace\": null"},
                                                     {"predict_layers\": 1", "predict_layers\": null"},
                                                     {"n_shared_experts\": 1", "n_shared_experts\": null"}})),
              IsOk());
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
              unimplemented("model_type: found \"bert\", wanted one of gpt2, gpt_bigcode, opt, gptj, falcon, "));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"llama\"", "\"bert\""}})), unimplemented(", kimi_linear; a decoder"))
      << "all of them are named";
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"silu", "relu2"}})), unimplemented("hidden_act: the activation"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\"", "\"mlp_bias\": true, \"rope_scaling\""}})),
              unimplemented("mlp_bias: a bias in one half"));
  EXPECT_THAT(Read(absl::StrReplaceAll(
                  kLlama, {{"\"rope_scaling\"", "\"layer_types\": [\"linear_attention\"], \"rope_scaling\""}})),
              unimplemented("layer_types[0]: \"linear_attention\" is not modelled"));
  const auto llama_with = [](absl::string_view more) {
    return Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\": null", std::string(more)}}));
  };
  EXPECT_THAT(llama_with(R"("num_local_experts": 8, "num_experts_per_tok": 2)"),
              unimplemented("num_local_experts: experts of the model_type llama"));
  EXPECT_THAT(llama_with(R"("num_local_experts": 1)"), IsOk());
  EXPECT_THAT(llama_with(R"("kv_lora_rank": 512)"), unimplemented("kv_lora_rank: latent attention"));
  EXPECT_THAT(llama_with(R"("add_cross_attention": true)"), unimplemented("add_cross_attention: attention to another"));
  EXPECT_THAT(
      llama_with(R"("layer_types": ["full_attention"])"),
      StatusIs(absl::StatusCode::kInvalidArgument, "layer_types: found 1 kinds, wanted one for each of the 32 layers"));
  EXPECT_THAT(llama_with(R"("index_topk": 2048)"), unimplemented("index_topk: an indexer of the model_type llama"));
  EXPECT_THAT(Read(R"({"model_type": "deepseek_v4", "hidden_size": 4096})"),
              unimplemented("found \"deepseek_v4\": several residual streams"));
  EXPECT_THAT(Read(R"({"model_type": "gemma3n_text", "hidden_size": 2048})"),
              unimplemented("model_type: found \"gemma3n_text\": an embedding in each layer"));
}

TEST(HuggingFaceTest, DropoutIsLeftOutAndTold) {
  std::vector<std::string> notices;
  EXPECT_THAT(Read(kGpt2, 64, &notices), IsOk());
  EXPECT_THAT(notices, ElementsAre("resid_pdrop of 0.1 is left out: decoders have no dropout"));
  notices.clear();
  EXPECT_THAT(Read(kLlama, 64, &notices), IsOk());
  EXPECT_THAT(notices, IsEmpty());
}

// Where one of each so many layers sees all, and where others do.
TEST(HuggingFaceTest, Windows) {
  std::vector<std::string> notices;
  const auto llama_with = [&notices](absl::string_view more, int64_t sequence) {
    notices.clear();
    const absl::StatusOr<DecoderConfig> model =
        Read(absl::StrReplaceAll(kLlama, {{"\"rope_scaling\": null", std::string(more)}}), sequence, &notices);
    EXPECT_THAT(model, IsOk());
    return std::pair(model->sliding_window, model->full_attention_every);
  };
  EXPECT_EQ(llama_with("\"sliding_window\": 4096", 4096), std::pair(int64_t{4096}, int64_t{0}));
  EXPECT_EQ(llama_with("\"sliding_window\": 4096, \"use_sliding_window\": false", 4097),
            std::pair(int64_t{0}, int64_t{0}));
  const auto types = [](int first) {
    std::string text = "\"sliding_window\": 128, \"layer_types\": [";
    for (int layer = 0; layer < 32; ++layer) {
      absl::StrAppend(&text, layer > 0 ? "," : "", layer % 2 == first ? "\"full_attention\"" : "\"sliding_attention\"");
    }
    return text + "]";
  };
  EXPECT_EQ(llama_with(types(1), 4096), std::pair(int64_t{128}, int64_t{2}));
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(llama_with(types(0), 4096), std::pair(int64_t{128}, int64_t{2}));
  EXPECT_THAT(notices, IsEmpty());
  const std::string irregular = absl::StrReplaceAll(types(0), {{"[\"full", "[\"sliding"}});
  EXPECT_EQ(llama_with(irregular, 4096), std::pair(int64_t{128}, int64_t{0}));
  EXPECT_THAT(notices, IsEmpty());
}

// Where the file does not say: Mistral's class has a window of 4096 tokens, Qwen's only with use_sliding_window, and
// then from the layer max_window_layers on; of Gemma 3 every sixth layer has none.
TEST(HuggingFaceTest, WindowsOfFamilies) {
  const auto windows_of = [](absl::string_view model_type, absl::string_view more) {
    std::vector<std::string> notices;
    const std::string model = absl::StrCat("\"", model_type, "\"");
    const absl::StatusOr<DecoderConfig> c =
        Read(absl::StrReplaceAll(kLlama, {{"\"llama\"", model}, {"\"rope_scaling\": null", std::string(more)}}), 8192,
             &notices);
    EXPECT_THAT(c, IsOk());
    return absl::StrCat(c->sliding_window, " ", c->full_attention_every, absl::StrJoin(notices, "; "));
  };
  EXPECT_EQ(windows_of("mistral", R"("use_cache": true)"), "4096 0");
  EXPECT_EQ(windows_of("mistral", R"("sliding_window": null)"), "0 0");
  EXPECT_EQ(windows_of("qwen2", R"("sliding_window": 4096)"), "0 0");
  EXPECT_EQ(windows_of("qwen2", R"("sliding_window": 4096, "use_sliding_window": true, "max_window_layers": 28)"),
            "4096 0");
  EXPECT_EQ(windows_of("qwen2", R"("sliding_window": 4096, "use_sliding_window": true, "max_window_layers": 32)"),
            "0 0");
  EXPECT_EQ(windows_of("gemma3_text", R"("sliding_window": 512)").substr(0, 5), "512 6");
  EXPECT_EQ(windows_of("gemma3_text", R"("sliding_window": 512, "sliding_window_pattern": 4)").substr(0, 5), "512 4");
}

// By layer, whether it is whole: DecoderConfig::full_attention_every and _at, or _layers.
TEST(HuggingFaceTest, WholeLayersAmongWindows) {
  const auto read = [](absl::string_view whole, absl::string_view more = "") {
    std::vector<std::string> types;
    for (const char c : whole) types.push_back(c == 'F' ? "\"full_attention\"" : "\"sliding_attention\"");
    const absl::StatusOr<DecoderConfig> c = Read(
        absl::StrCat(R"({"model_type": "glm4_moe", "hidden_size": 64, "num_attention_heads": 4, "n_routed_experts": 4,
            "num_experts_per_tok": 1, "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 64,
            "sliding_window": 32, "num_hidden_layers": )",
                     whole.size(), more.empty() ? ", \"first_k_dense_replace\": 0" : more, ", \"layer_types\": [",
                     absl::StrJoin(types, ","), "]}"));
    EXPECT_THAT(c, IsOk());
    return absl::StrCat(c->sliding_window, " ", c->full_attention_every, " ", c->full_attention_at,
                        c->full_attention_layers.empty() ? "" : ": ", absl::StrJoin(c->full_attention_layers, ","));
  };
  EXPECT_EQ(read("wwFwwF"), "32 3 0");
  EXPECT_EQ(read("wwFww"), "32 3 0");
  EXPECT_EQ(read("wFwwFw"), "32 3 2");
  EXPECT_EQ(read("FwwFww"), "32 3 1");
  EXPECT_EQ(read("Fwww"), "32 4 1");
  EXPECT_EQ(read("wwww"), "32 0 0");
  EXPECT_EQ(read("FwwFw"), "32 3 1");
  EXPECT_EQ(read("wwwFwF"), "32 0 0: 3,5");
  EXPECT_EQ(read("FFww"), "32 0 0: 0,1");
  EXPECT_EQ(read("wwFwwF", ", \"first_k_dense_replace\": 1"), "32 3 0");
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
