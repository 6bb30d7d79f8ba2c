// As hugging_face_families_test, of families with names of keys or kinds of layers of their own.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
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

// Of latent attention, by hand: two products of queries, two of keys and values, that of the result, two norms.
constexpr int64_t Latent(int64_t hidden, int64_t heads, int64_t q, int64_t kv, int64_t plain, int64_t turned,
                         int64_t value) {
  return hidden * q + q + q * heads * (plain + turned) + hidden * (kv + turned) + kv + kv * heads * (plain + value) +
         heads * value * hidden;
}

// A list of `layers` kinds, of which each fourth, counted from `at`, is the second.
std::string EachFourth(int64_t layers, int64_t at, absl::string_view most, absl::string_view fourth) {
  std::string list;
  for (int64_t i = 0; i < layers; ++i) absl::StrAppend(&list, i > 0 ? ", " : "", i % 4 == at ? fourth : most);
  return absl::StrCat("[", list, "]");
}

// Baichuan 7B and 13B as their pages have them (the second with ALiBi). By hand, and near what their pages say or what
// they are known for: Qwen 7.7 billion, ChatGLM2 6.2, EXAONE 3.0 7.8 and 3.5 2.4, MiniCPM 2.7 (2.4 without embeddings).
TEST(HuggingFaceMoreFamiliesTest, LlamasWithKeysOfTheirOwn) {
  std::vector<std::string> notices;
  constexpr absl::string_view kBaichuan = R"({"model_type": "baichuan", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 64000, "tie_word_embeddings": false})";
  EXPECT_EQ(CountOf(Read(kBaichuan)), 7'000'559'616);
  EXPECT_EQ(CountOf(Read(absl::StrReplaceAll(kBaichuan,
                                             {{"4096", "5120"}, {"32", "40"}, {"11008", "13696"}, {"64000", "64000"}}),
                         64, &notices)),
            13'264'901'120);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("ALiBi")));
  // Biases of queries, keys and values; a gate and what it gates have 22016 elements together.
  notices.clear();
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32, "kv_channels": 128,
      "num_attention_heads": 32, "intermediate_size": 22016, "vocab_size": 151936, "no_bias": true,
      "rotary_emb_base": 10000, "rotary_pct": 1.0, "tie_word_embeddings": false})",
                         64, &notices)),
            Ends(151936, 4096) + 32 * (Layer(4096, 4096, 4096, 11008) + 3 * 4096));
  EXPECT_THAT(notices, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const DecoderConfig glm, Read(R"({"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28,
      "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2,
      "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "add_qkv_bias": true, "add_bias_linear": false,
      "layernorm_epsilon": 1e-05, "rope_ratio": 50, "tie_word_embeddings": false})"));
  EXPECT_EQ(CountOf(glm), 6'243'584'000);
  EXPECT_EQ(glm.kv_heads, 2);
  EXPECT_EQ(glm.rope_theta, 500000);
  EXPECT_EQ(TurnedElements(glm, glm.head_dim), 64);
  constexpr absl::string_view kExaone = R"({"model_type": "exaone", "hidden_size": 4096, "num_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 102400,
      "activation_function": "silu", "embed_dropout": 0.0, "layer_norm_epsilon": 1e-05, "rope_theta": 500000.0,
      "tie_word_embeddings": false})";
  EXPECT_EQ(CountOf(Read(kExaone)), Ends(102400, 4096) + 32 * Layer(4096, 4096, 1024, 14336));
  EXPECT_EQ(CountOf(Read(absl::StrReplaceAll(
                kExaone, {{"4096", "2560"}, {"layers\": 32", "layers\": 30"}, {"14336", "7168"}, {"false", "true"}}))),
            int64_t{102400} * 2560 + 2560 + 30 * Layer(2560, 2560, 640, 7168));
  notices.clear();
  EXPECT_EQ(CountOf(Read(R"({"model_type": "minicpm", "hidden_size": 2304, "num_hidden_layers": 40,
      "num_attention_heads": 36, "num_key_value_heads": 36, "intermediate_size": 5760, "vocab_size": 122753,
      "scale_emb": 12, "dim_model_base": 256, "scale_depth": 1.4, "sparse_config": {"topk": 64}})",
                         64, &notices)),
            int64_t{122753} * 2304 + 2304 + 40 * Layer(2304, 2304, 2304, 5760));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("sparse_config"), HasSubstr("multipliers")));
}

// Gemma 4 12B: 11.9 billion, of which 0.016 are ours alone, for values of the 8 layers without a window. KORMo's class
// is Llama's.
TEST(HuggingFaceMoreFamiliesTest, NewNamesOfOldLayers) {
  ASSERT_OK_AND_ASSIGN(const DecoderConfig gemma, Read(R"({"model_type": "gemma4_unified", "text_config": {
      "hidden_size": 3840, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8,
      "num_global_key_value_heads": 1, "attention_k_eq_v": true, "intermediate_size": 15360, "vocab_size": 262144,
      "num_experts": null, "num_kv_shared_layers": 0, "use_bidirectional_attention": "vision"}})"));
  EXPECT_EQ(gemma.sliding_window, 1024);
  EXPECT_EQ(gemma.full_attention_every, 6);
  EXPECT_EQ(gemma.full_attention_heads, (AttentionHeads{16, 1, 512}));
  EXPECT_EQ(CountOf(gemma), int64_t{262144} * 3840 + 3840 + 48 * int64_t{2} * 3840 +
                                40 * (Layer(3840, 4096, 2048, 15360) + 2 * 256) +
                                8 * (Layer(3840, 8192, 512, 15360) + 2 * 512));
  EXPECT_NEAR(static_cast<double>(CountOf(gemma)), 12e9, 0.1e9);
  constexpr absl::string_view kLlama = R"({"model_type": "kormo", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000})";
  EXPECT_EQ(*Read(kLlama), *Read(absl::StrReplaceAll(kLlama, {{"kormo", "llama"}})));
  // EXAONE 4.5's decoder, by its first name and the one that its class has.
  constexpr absl::string_view kExaone = R"({"model_type": "exaone4_5", "vision_config": {}, "text_config": {OWN
      "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
      "intermediate_size": 64, "vocab_size": 64}})";
  EXPECT_EQ(*Read(absl::StrReplaceAll(kExaone, {{"OWN", ""}})),
            *Read(absl::StrReplaceAll(kExaone, {{"OWN", "\"model_type\": \"exaone4_5_text\","}})));
}

// By hand from each class, and near their names: CodeGen 16.1, GPT-Neo 2.7 and XGLM 0.56 billion, Persimmon 8 (9.4 with
// all of its vocabulary), Helium 2.2.
TEST(HuggingFaceMoreFamiliesTest, OlderFamilies) {
  ASSERT_OK_AND_ASSIGN(const DecoderConfig codegen, Read(R"({"model_type": "codegen", "n_embd": 6144, "n_layer": 34,
      "n_head": 24, "n_inner": null, "rotary_dim": 64, "vocab_size": 51200, "activation_function": "gelu_new"})"));
  EXPECT_EQ(CountOf(codegen), Ends(51200, 6144) + 6144 + 34 * (int64_t{12} * 6144 * 6144 + 2 * 6144));
  EXPECT_EQ(codegen.layer_form, LayerForm::kParallelOneNorm);
  // As published 2,651,307,520, and biases of queries, keys and values.
  constexpr absl::string_view kNeo = R"({"model_type": "gpt_neo", "hidden_size": 2560, "num_layers": 32,
      "num_heads": 20, "intermediate_size": null, "vocab_size": 50257, "max_position_embeddings": 2048,
      "attention_types": [[["global", "local"], 16]], "window_size": 256, "activation_function": "gelu_new"})";
  ASSERT_OK_AND_ASSIGN(const DecoderConfig neo, Read(kNeo));
  EXPECT_EQ(CountOf(neo), 2'651'307'520 + 32 * 3 * 2560);
  EXPECT_EQ(neo.sliding_window, 256);
  EXPECT_EQ(neo.full_attention_every, 2);
  EXPECT_EQ(neo.full_attention_at, 1);
  EXPECT_EQ(Read(absl::StrReplaceAll(kNeo, {{", \"local\"], 16", "], 32"}}))->sliding_window, 0);
  EXPECT_THAT(Read(absl::StrReplaceAll(kNeo, {{"16", "8"}})).status().message(),
              HasSubstr("attention_types: found 16 kinds, wanted one for each of the 32 layers"));
  EXPECT_THAT(Read(absl::StrReplaceAll(kNeo, {{"], 16", "]"}})).status().message(),
              HasSubstr("found 1 parts, wanted a list of kinds"));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "xglm", "d_model": 1024, "num_layers": 24, "attention_heads": 16,
      "ffn_dim": 4096, "vocab_size": 256008, "activation_function": "gelu", "max_position_embeddings": 2048})")),
            int64_t{256008} * 1024 + 2 * 1024 + 24 * (int64_t{12} * 1024 * 1024 + (4 + 5 + 4) * 1024));
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig persimmon,
                       Read(R"({"model_type": "persimmon", "hidden_size": 4096, "num_hidden_layers": 36,
      "num_attention_heads": 64, "intermediate_size": 16384, "vocab_size": 262144, "hidden_act": "relu2",
      "qk_layernorm": true, "tie_word_embeddings": false})",
                            64, &notices));
  // Norms of queries and keys have biases in the class, 36 x 2 x 64.
  EXPECT_EQ(CountOf(persimmon),
            Ends(262144, 4096) + 4096 + 36 * (int64_t{12} * 4096 * 4096 + (4 + 5 + 4) * 4096 + 2 * 64));
  EXPECT_EQ(TurnedElements(persimmon, persimmon.head_dim), 32);
  EXPECT_EQ(persimmon.rope_theta, 25000);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("taken as RMSNorm")));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig helium, Read(R"({"model_type": "helium", "hidden_size": 2560,
      "num_hidden_layers": 24, "num_attention_heads": 20, "intermediate_size": 7040, "vocab_size": 48000,
      "attention_bias": false, "mlp_bias": false, "hidden_act": "silu"})"));
  EXPECT_EQ(CountOf(helium), Ends(48000, 2560) + 24 * Layer(2560, 2560, 2560, 7040));
  EXPECT_EQ(helium.rope_theta, 100000);
}

// nanochat d20 as its page has it, 560,988,160, and weights of norms, which it has not. By hand, and near what their
// pages say: HyperCLOVA X SEED Think 14.74 billion; or their names, VaultGemma 1 (1.04), Jais 2 8 (8.1), Muse Glimmer
// 30 (27.8, and an encoder of 1.9), Granite SWASH 2 (2.1).
TEST(HuggingFaceMoreFamiliesTest, DenseFamilies) {
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig nanochat, Read(R"({"model_type": "nanochat", "hidden_size": 1280,
      "num_hidden_layers": 20, "num_attention_heads": 10, "num_key_value_heads": 10, "intermediate_size": 5120,
      "vocab_size": 65536, "hidden_act": "relu2", "tie_word_embeddings": false})",
                                                          64, &notices));
  EXPECT_EQ(CountOf(nanochat), 560'988'160 + 1280 + 20 * (2 * 1280 + 2 * 128));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("norms without weights")));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig clova, Read(R"({"model_type": "hyperclovax", "hidden_size": 6144,
      "num_hidden_layers": 38, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 14336, "vocab_size": 110592, "use_post_norm": true, "tie_word_embeddings": false})"));
  EXPECT_EQ(CountOf(clova), Ends(110592, 6144) + 38 * (Layer(6144, 6144, 1024, 14336) + 2 * 6144));
  EXPECT_NEAR(static_cast<double>(CountOf(clova)), 14.74e9, 0.01e9);
  EXPECT_EQ(clova.norm_places, NormPlaces::kBoth);
  constexpr absl::string_view kVault = R"({"model_type": "vaultgemma", "hidden_size": 1152, "num_hidden_layers": 26,
      "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 6912,
      "vocab_size": 256000, "sliding_window": 512, "layer_types": KINDS, "hidden_activation": "gelu_pytorch_tanh"})";
  ASSERT_OK_AND_ASSIGN(
      const DecoderConfig vault,
      Read(absl::StrReplaceAll(kVault, {{"KINDS", EachFourth(26, 0, "\"full_attention\"", "\"full_attention\"")}})));
  EXPECT_EQ(CountOf(vault), int64_t{256000} * 1152 + 1152 + 26 * Layer(1152, 1024, 1024, 6912));
  EXPECT_EQ(vault.sliding_window, 0);
  EXPECT_EQ(vault.norm_places, NormPlaces::kBefore);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig jais, Read(R"({"model_type": "jais2", "hidden_size": 3328,
      "num_hidden_layers": 32, "num_attention_heads": 26, "num_key_value_heads": 26, "intermediate_size": 26624,
      "vocab_size": 150272, "hidden_act": "relu2", "attention_bias": true, "mlp_bias": true})"));
  EXPECT_EQ(CountOf(jais), Ends(150272, 3328) + 3328 +
                               32 * (int64_t{4} * 3328 * 3328 + 2 * 3328 * 26624 + (4 + 4 + 1) * 3328 + 26624));
  // Its map in the file of the whole model; the class's windows and heads.
  notices.clear();
  ASSERT_OK_AND_ASSIGN(const DecoderConfig muse, Read(R"({"model_type": "muse_glimmer", "vision_config": {},
      "text_config": {"hidden_size": 6656, "num_hidden_layers": 52, "num_attention_heads": 32,
      "intermediate_size": 19968, "vocab_size": 202048, "hidden_activation": "silu"}})",
                                                      64, &notices));
  EXPECT_EQ(CountOf(muse),
            Ends(202048, 6656) + 52 * (Layer(6656, 4096, 256, 19968) + int64_t{6656} * 4096 + 2 * 6656 + 2 * 128));
  EXPECT_EQ(muse.sliding_window, 2048);
  EXPECT_EQ(muse.full_attention_every, 4);
  EXPECT_EQ(muse.full_attention_at, 0);
  EXPECT_THAT(notices, Contains(HasSubstr("without rotary positions")));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig granite, Read(R"({"model_type": "granite_swa", "hidden_size": 2560,
      "num_hidden_layers": 24, "num_attention_heads": 20, "intermediate_size": 8192, "vocab_size": 100352})"));
  EXPECT_EQ(CountOf(granite), int64_t{100352} * 2560 + 2560 + 24 * Layer(2560, 2560, 512, 8192));
  EXPECT_EQ(granite.full_attention_every, 4);
  EXPECT_EQ(granite.full_attention_at, 1);
}

// By hand, and near what their pages say: Youtu-LLM 1.96 billion, MiniCPM3 4, Mistral Small 4 119, A.X K1 519 (less a
// norm behind the experts of 60 layers, 7168 each).
TEST(HuggingFaceMoreFamiliesTest, LatentAttention) {
  const absl::StatusOr<DecoderConfig> youtu = Read(R"({"model_type": "youtu", "hidden_size": 2048, "head_dim": 64,
      "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 6144,
      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "vocab_size": 128256})");
  EXPECT_EQ(CountOf(youtu), int64_t{128256} * 2048 + 2048 +
                                32 * (Latent(2048, 16, 1536, 512, 128, 64, 128) + int64_t{3} * 2048 * 6144 + 2 * 2048));
  EXPECT_NEAR(static_cast<double>(CountOf(youtu)), 1.96e9, 0.01e9);
  // No width of values in the file.
  constexpr absl::string_view kMini = R"({"model_type": "minicpm3", "hidden_size": 2560, "num_hidden_layers": 62,
      "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 6400, "q_lora_rank": 768,
      "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "vocab_size": 73448})";
  const absl::StatusOr<DecoderConfig> mini = Read(kMini);
  EXPECT_EQ(CountOf(mini), int64_t{73448} * 2560 + 2560 +
                               62 * (Latent(2560, 40, 768, 256, 64, 32, 64) + int64_t{3} * 2560 * 6400 + 2 * 2560));
  EXPECT_EQ(mini->value_head_dim, 64);
  EXPECT_THAT(Read(absl::StrReplaceAll(kMini, {{"minicpm3", "youtu"}})).status().message(), HasSubstr("v_head_dim"));
  const absl::StatusOr<DecoderConfig> mistral = Read(R"({"model_type": "mistral3", "vision_config": {},
      "text_config": {"model_type": "mistral4", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 32, "head_dim": 128, "intermediate_size": 12288, "moe_intermediate_size": 2048,
      "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1,
      "first_k_dense_replace": 0, "q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 131072, "rope_parameters": {"type": "yarn",
      "rope_theta": 10000.0, "factor": 128.0, "partial_rotary_factor": 0.5}}})");
  EXPECT_EQ(CountOf(mistral), Ends(131072, 4096) + 36 * (Latent(4096, 32, 1024, 256, 64, 64, 128) + 2 * 4096 +
                                                         4096 * 128 + int64_t{129} * 3 * 4096 * 2048));
  EXPECT_NEAR(static_cast<double>(CountOf(mistral)), 119e9, 0.5e9);
  EXPECT_EQ(mistral->rotary_factor, 1);
  const absl::StatusOr<DecoderConfig> axk1 = Read(R"({"model_type": "axk1", "hidden_size": 7168,
      "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 18432,
      "moe_intermediate_size": 2048, "n_routed_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8,
      "n_group": 8, "topk_group": 4, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840})");
  EXPECT_EQ(CountOf(axk1), Ends(163840, 7168) + 61 * (Latent(7168, 64, 1536, 512, 128, 64, 128) + 2 * 7168) +
                               int64_t{3} * 7168 * 18432 + 60 * (7168 * 192 + int64_t{193} * 3 * 7168 * 2048));
  EXPECT_NEAR(static_cast<double>(CountOf(axk1)), 519e9, 0.5e9);
  EXPECT_EQ(axk1->dense_layers, 1);
}

// By hand, and near what their pages say: Ling-lite 16.8 billion, Hy3 295 and 3.8 behind the last layer, Mellum 2 12,
// Laguna XS.2 33 (less gates of each head, 2048 x (10 x 48 + 30 x 64)).
TEST(HuggingFaceMoreFamiliesTest, FamiliesWithExperts) {
  const absl::StatusOr<DecoderConfig> ling = Read(R"({"model_type": "bailing_moe", "hidden_size": 2048,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 1408,
      "moe_intermediate_size": 1408, "num_experts": 64, "num_shared_experts": 2, "num_experts_per_tok": 6,
      "first_k_dense_replace": 0, "use_bias": false, "use_qkv_bias": false, "vocab_size": 126464})");
  EXPECT_EQ(CountOf(ling), Ends(126464, 2048) + 28 * (Layer(2048, 2048, 512, 66 * 1408) + 2048 * 64));
  EXPECT_NEAR(static_cast<double>(CountOf(ling)), 16.8e9, 0.05e9);
  EXPECT_FALSE(ling->qk_norm);
  constexpr absl::string_view kHy3 = R"({"model_type": "hy_v3", "hidden_size": 4096, "num_hidden_layers": 80,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 13312,
      "moe_intermediate_size": 1536, "num_experts": 192, "num_shared_experts": 1, "num_experts_per_tok": 8,
      "num_nextn_predict_layers": 1, "vocab_size": 120832})";
  const absl::StatusOr<DecoderConfig> hy3 = Read(kHy3);
  constexpr int64_t kHy3Layer = Layer(4096, 8192, 1024, 193 * 1536) + 4096 * 192 + 2 * 128;
  EXPECT_EQ(CountOf(Read(absl::StrReplaceAll(kHy3, {{"layers\": 1", "layers\": 0"}}))),
            Ends(120832, 4096) + Layer(4096, 8192, 1024, 13312) + 2 * 128 + 79 * kHy3Layer);
  EXPECT_EQ(hy3->dense_layers, 1);
  EXPECT_EQ(hy3->mtp_layers, 1);
  EXPECT_NEAR(static_cast<double>(CountOf(hy3)), 295e9 + 3.8e9, 0.5e9);
  const absl::StatusOr<DecoderConfig> mellum =
      Read(absl::StrReplaceAll(R"({"model_type": "mellum", "hidden_size": 2304, "num_hidden_layers": 28,
      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 7168,
      "moe_intermediate_size": 896, "num_experts": 64, "num_experts_per_tok": 8, "sliding_window": 1024,
      "layer_types": KINDS, "vocab_size": 98304})",
                               {{"KINDS", EachFourth(28, 3, "\"sliding_attention\"", "\"full_attention\"")}}));
  EXPECT_EQ(CountOf(mellum), Ends(98304, 2304) + 28 * (Layer(2304, 4096, 512, 64 * 896) + 2304 * 64 + 2 * 128));
  EXPECT_NEAR(static_cast<double>(CountOf(mellum)), 12.1e9, 0.1e9);
  EXPECT_EQ(mellum->sliding_window, 1024);
  EXPECT_EQ(mellum->full_attention_every, 4);
  const std::string laguna_text =
      absl::StrReplaceAll(R"({"model_type": "laguna", "hidden_size": 2048, "num_hidden_layers": 40,
      "num_attention_heads": 48, "num_attention_heads_per_layer": HEADS, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 8192, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "num_experts": 256, "num_experts_per_tok": 8, "mlp_only_layers": [0], "sliding_window": 512,
      "layer_types": KINDS, "gating": "per-head", "vocab_size": 100352})",
                          {{"HEADS", EachFourth(40, 0, "64", "48")},
                           {"KINDS", EachFourth(40, 0, "\"sliding_attention\"", "\"full_attention\"")}});
  const absl::StatusOr<DecoderConfig> laguna = Read(laguna_text);
  EXPECT_EQ(CountOf(laguna), Ends(100352, 2048) + 40 * 2 * 128 + 10 * Layer(2048, 6144, 1024, 0) +
                                 30 * Layer(2048, 8192, 1024, 0) + int64_t{3} * 2048 * 8192 +
                                 39 * (2048 * 256 + int64_t{257} * 3 * 2048 * 512));
  EXPECT_EQ(laguna->heads, 64);
  EXPECT_EQ(laguna->full_attention_heads, (AttentionHeads{48, 8, 128}));
  EXPECT_EQ(laguna->full_attention_at, 1);
  EXPECT_EQ(laguna->dense_layers, 1);
  EXPECT_THAT(Read(absl::StrReplaceAll(laguna_text, {{"48, 64, 64, 64, 48, 64", "48, 64, 64, 64, 48, 32"}})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("num_attention_heads_per_layer[")));
  EXPECT_THAT(Read(absl::StrReplaceAll(laguna_text, {{"[48, 64, ", "[48, "}})).status().message(),
              HasSubstr("found 39 numbers, wanted one for each of the 40 layers"));
  // Of the classes: experts of 1024, and one of 2048 that all tokens pass through.
  for (const absl::string_view type : {"granitemoeshared", "granitemoe_swa"}) {
    EXPECT_EQ(CountOf(Read(absl::StrCat(R"({"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
        "intermediate_size": 1024, "shared_intermediate_size": 2048, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 1024, "model_type": ")",
                                        type, "\"}"))),
              Ends(1024, 1024) + 4 * (Layer(1024, 1024, 1024, 8 * 1024 + 2048) + 1024 * 8))
        << type;
  }
}

// OLMo Hybrid 7B, by hand as its class has it: of layers with linear attention products of queries and keys, of values,
// gates and the result, of two logits, four taps, two numbers of each of 30 heads, and the norm of 192. The norms of
// queries and keys are of all heads there, 3840, and of one here.
TEST(HuggingFaceMoreFamiliesTest, OlmoHybrid) {
  std::vector<std::string> notices;
  const std::string text =
      absl::StrReplaceAll(R"({"model_type": "olmo_hybrid", "hidden_size": 3840,
      "num_hidden_layers": 32, "num_attention_heads": 30, "intermediate_size": 11008, "vocab_size": 100352,
      "layer_types": KINDS, "rope_parameters": null, "tie_word_embeddings": false})",
                          {{"KINDS", EachFourth(32, 3, "\"linear_attention\"", "\"full_attention\"")}});
  ASSERT_OK_AND_ASSIGN(const DecoderConfig olmo, Read(text, 64, &notices));
  EXPECT_EQ(olmo.linear_attention, (LinearAttentionConfig{LinearForm::kGatedDelta, 30, 30, 96, 192, 4}));
  EXPECT_EQ(olmo.positions, Positions::kNone);
  EXPECT_EQ(olmo.full_attention_every, 4);
  constexpr int64_t kLinear =
      int64_t{3840} * (2 * 2880 + 3 * 5760 + 2 * 30) + 4 * (2 * 2880 + 5760) + 2 * 30 + 192 + 2 * 3840;
  EXPECT_EQ(CountOf(olmo), Ends(100352, 3840) + 8 * (Layer(3840, 3840, 3840, 11008) + 2 * 128) +
                               24 * (kLinear + int64_t{3} * 3840 * 11008));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("norms behind attention")));
  EXPECT_EQ(Read(absl::StrReplaceAll(text, {{"null", "{\"rope_theta\": 500000}"}}))->positions, Positions::kRotary);
}

// MiMo-V2-Flash, 309 billion parameters of which a token uses 15 (its report, arXiv:2601.02780): 9 layers of 48 see
// all, with 4 keys, the others 128 tokens, with 8; keys of 192, of which 64 are turned, and values of 128; 47 have
// experts.
TEST(HuggingFaceMoreFamiliesTest, ValuesNarrowerThanKeys) {
  std::string full, experts;
  for (int layer = 0; layer < 48; ++layer) {
    absl::StrAppend(&full, layer > 0 ? ", " : "", layer == 0 || layer % 6 == 5 ? 0 : 1);
    absl::StrAppend(&experts, layer > 0 ? ", " : "", layer == 0 ? 0 : 1);
  }
  std::vector<std::string> notices;
  const std::string text = absl::StrCat(
      R"({"model_type": "mimo_v2_flash", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48,
      "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
      "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
      "sliding_window": 128, "partial_rotary_factor": 0.334, "n_routed_experts": 256, "num_experts_per_tok": 8,
      "moe_intermediate_size": 2048, "vocab_size": 152576, "rope_theta": 5000000, "tie_word_embeddings": false,
      "hybrid_layer_pattern": [)",
      full, R"(], "moe_layer_freq": [)", experts, "]}");
  ASSERT_OK_AND_ASSIGN(const DecoderConfig c, Read(text, 64, &notices));
  const auto attention = [](int64_t keys) { return int64_t{4096} * (64 + keys) * (192 + 128); };
  constexpr int64_t kExperts = int64_t{256} * 3 * 4096 * 2048 + 4096 * 256, kDense = int64_t{3} * 4096 * 16384;
  EXPECT_EQ(CountOf(c), Ends(152576, 4096) + 9 * attention(4) + 39 * attention(8) + kDense + 47 * kExperts +
                            int64_t{48} * 2 * 4096);
  EXPECT_EQ(c.full_attention_heads, (AttentionHeads{64, 4, 192}));
  EXPECT_EQ(TurnedElements(c, c.head_dim), 64);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("attention sinks")));
  // Without the list: as its class has it.
  EXPECT_EQ(Read(absl::StrReplaceAll(text, {{"hybrid_layer_pattern", "not_a_key"}}))->full_attention_layers,
            c.full_attention_layers);
  EXPECT_THAT(Read(absl::StrReplaceAll(text, {{"\"swa_v_head_dim\": 128", "\"swa_v_head_dim\": 64"}})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("values of another width in some layers")));
}

// What layers have that is not modelled is told.
TEST(HuggingFaceMoreFamiliesTest, OthersSayWhatTheyHave) {
  const auto of = [](absl::string_view type) {
    return Read(absl::StrCat(R"({"hidden_size": 64, "num_hidden_layers": 4, "model_type": ")", type, "\"}"));
  };
  for (const auto& [type, what] :
       {std::pair("longcat_flash", "a layer of two attentions"), std::pair("minimax", "lightning attention"),
        std::pair("lfm2_moe", "a short convolution in place of attention"),
        std::pair("falcon_h1", "a state space beside attention in one layer"),
        std::pair("jamba", "(Mamba) is not modelled"),
        std::pair("cohere2_moe", "a layer with experts beside attention")}) {
    EXPECT_THAT(of(type), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(what))) << type;
  }
  // MiniMax M3's decoder calls itself an M2.
  EXPECT_THAT(Read(R"({"model_type": "minimax_m3_vl", "text_config": {"model_type": "minimax_m2", "hidden_size": 64,
      "sparse_attention_config": {}}})"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("blocks that an indexer picks")));
}

}  // namespace
}  // namespace meshwright
