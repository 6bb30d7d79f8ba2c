// Each family's parameters are those of its published checkpoints, or as many as its class in transformers has.
#include <cstdint>
#include <string>
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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Published counts. OLMo 2 has norms of queries and keys over all heads, 32 x 2 x 4096, where a plan has one for each
// head, 32 x 2 x 128.
TEST(HuggingFaceFamiliesTest, FamiliesThatAreNearlyLlamas) {
  std::vector<std::string> notices;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12288, "vocab_size": 151936,
      "sliding_window": null, "use_sliding_window": false, "tie_word_embeddings": false})",
                         64, &notices)),
            8'190'735'360);
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768,
      "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "tie_word_embeddings": false})")),
            30'532'122'624);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 100352,
      "tie_word_embeddings": false})")),
            7'298'617'344 - 32 * 2 * (4096 - 128));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40,
      "num_attention_heads": 40, "num_key_value_heads": 10, "intermediate_size": 17920, "vocab_size": 100352,
      "sliding_window": null, "tie_word_embeddings": false})")),
            14'659'507'200);
}

// Published counts, less what is left out of gpt-oss, in each of 24 layers, biases of the output 2880, of 32 experts 32
// x (2 x 2880 + 2880), of the router 32, and 64 sinks.
TEST(HuggingFaceFamiliesTest, FamiliesWithLayersOfTheirOwn) {
  std::vector<std::string> notices;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "head_dim": 256,
      "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384, "vocab_size": 256000,
      "hidden_act": "gelu"})",
                         64, &notices)),
            2'506'172'416);
  EXPECT_THAT(notices, ElementsAre("the scale of the embeddings is left out"));
  notices.clear();
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "head_dim": 256,
      "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 256000,
      "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096})",
                         64, &notices)),
            9'241'705'984);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("caps of scores and logits")));
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

// Published counts, and what a plan has more or less. Phi-2: less a bias of 51,200 logits. Command R: the biases of 41
// norms of 8192. OLMo: the weights of 65 norms of 4096. Phi-3.5-MoE: less biases of 32 outputs of 4096 and of 32,064
// logits.
TEST(HuggingFaceFamiliesTest, FamiliesWithNamesAndDefaultsOfTheirOwn) {
  EXPECT_EQ(CountOf(Read(R"({"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": null, "intermediate_size": 10240, "vocab_size": 51200,
      "hidden_act": "gelu_new", "partial_rotary_factor": 0.4, "qk_layernorm": false})")),
            2'779'683'840 - 51'200);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "cohere", "hidden_size": 8192, "num_hidden_layers": 40,
      "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 22528, "vocab_size": 256000,
      "use_qk_norm": false})")),
            34'980'831'232 + 41 * 8192);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "olmo", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 50304})")),
            6'888'095'744 + 65 * 4096);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "glm4", "hidden_size": 4096, "num_hidden_layers": 40,
      "num_attention_heads": 32, "intermediate_size": 13696, "vocab_size": 151552})")),
            9'400'279'040);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "phimoe", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 6400, "vocab_size": 32064, "num_local_experts": 16,
      "num_experts_per_tok": 2, "attention_bias": true})")),
            41'873'153'344 - 32 * 4096 - 32'064);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36,
      "num_attention_heads": 16, "intermediate_size": 11008, "vocab_size": 128256})")),
            3'075'098'624);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "stablelm", "hidden_size": 2560, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 6912, "vocab_size": 50304, "use_qkv_bias": false})")),
            2'795'443'200);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "internlm2", "hidden_size": 4096, "num_hidden_layers": 32, "bias": false,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 92544})")),
            7'737'708'544);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "ernie4_5", "hidden_size": 1024, "num_hidden_layers": 18,
      "num_attention_heads": 16, "intermediate_size": 3072, "vocab_size": 103424})")),
            360'748'032);
}

// Published counts. GPT-J: less 28 biases of 16384 + 4096, and one of 50,400 logits. BLOOM: less the norm of the
// embeddings, 2 x 1024. MPT: the biases of 65 norms of 4096.
TEST(HuggingFaceFamiliesTest, FamiliesBeforeLlama) {
  EXPECT_EQ(CountOf(Read(R"({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
      "num_attention_heads": 12, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768,
      "activation_function": "relu", "do_layer_norm_before": true})")),
            125'239'296);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48,
      "n_inner": 24576, "vocab_size": 49152, "n_positions": 8192, "activation_function": "gelu_pytorch_tanh",
      "multi_query": true})")),
            15'517'456'384);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig gptj, Read(R"({"model_type": "gptj", "n_embd": 4096, "n_layer": 28,
      "n_head": 16, "n_inner": null, "rotary_dim": 64, "vocab_size": 50400, "activation_function": "gelu_new",
      "tie_word_embeddings": false})"));
  EXPECT_EQ(CountOf(gptj), 6'050'882'784 - 28 * (16384 + 4096) - 50'400);
  EXPECT_EQ(TurnedElements(gptj, gptj.head_dim), 64);
  EXPECT_EQ(gptj.layer_form, LayerForm::kParallelOneNorm);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16,
      "vocab_size": 250880})")),
            559'214'592 - 2 * 1024);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "no_bias": true,
      "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432})")),
            6'649'286'656 + 65 * 4096);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig with_bias,
                       Read(R"({"model_type": "mpt", "d_model": 64, "n_layers": 2, "n_heads": 2, "no_bias": false,
      "vocab_size": 64})"));
  EXPECT_TRUE(with_bias.bias);
}

// Falcon 7B as published; its layers of 40B and 180B have eight heads of keys and two norms.
TEST(HuggingFaceFamiliesTest, Falcon) {
  EXPECT_EQ(CountOf(Read(R"({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "bias": false,
      "num_attention_heads": 71, "vocab_size": 65024, "multi_query": true, "parallel_attn": true, "alibi": false,
      "new_decoder_architecture": false})")),
            6'921'720'704);
  constexpr absl::string_view kNewer = R"({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
      "num_attention_heads": 128, "num_kv_heads": 8, "vocab_size": 65024, "multi_query": true, "bias": false,
      "new_decoder_architecture": true})";
  ASSERT_OK_AND_ASSIGN(const DecoderConfig newer, Read(kNewer));
  EXPECT_EQ(newer.kv_heads, 8);
  EXPECT_EQ(newer.layer_form, LayerForm::kParallel);
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig with_alibi,
                       Read(absl::StrReplaceAll(kNewer, {{"\"bias\"", "\"alibi\": true, \"bias\""}}), 64, &notices));
  EXPECT_EQ(with_alibi.positions, Positions::kNone);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("ALiBi")));
}

// Counts by hand. Nemotron-4's kind: products of 6 x 2 x 6144^2 .. as its class has them: attention 2 x 6144 x 6144 and
// 2 x 6144 x 1024, a feed-forward layer of two products, two norms with biases. AFM: the same under RMS norms.
TEST(HuggingFaceFamiliesTest, SquaredReluHasNoGate) {
  ASSERT_OK_AND_ASSIGN(const DecoderConfig nemotron, Read(R"({"model_type": "nemotron", "hidden_size": 6144,
      "num_hidden_layers": 32, "num_attention_heads": 48, "num_key_value_heads": 8, "intermediate_size": 24576,
      "vocab_size": 256000, "hidden_act": "relu2", "norm_eps": 1e-5})"));
  EXPECT_EQ(nemotron.activation, Activation::kSquaredRelu);
  EXPECT_EQ(TurnedElements(nemotron, nemotron.head_dim), 64);
  EXPECT_EQ(CountOf(nemotron), int64_t{2} * 256000 * 6144 + 2 * 6144 +
                                   32 * (int64_t{2} * 6144 * 6144 + 2 * 6144 * 1024 + 2 * 6144 * 24576 + 4 * 6144));
  // The 8 billion of Apertus: 8,053,338,176 with two numbers of xIELU in each of 32 layers.
  std::vector<std::string> notices;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "apertus", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 21504, "vocab_size": 131072,
      "hidden_act": "xielu", "qk_norm": true, "tie_word_embeddings": false})",
                         64, &notices)),
            8'053'338'176 - 2 * 32);
  EXPECT_THAT(notices, ElementsAre("the activation xIELU is taken as a squared ReLU"));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig arcee, Read(R"({"model_type": "arcee", "hidden_size": 2560,
      "num_hidden_layers": 36, "num_attention_heads": 20, "num_key_value_heads": 4, "intermediate_size": 18432,
      "vocab_size": 128004, "head_dim": 128, "hidden_act": "relu2"})"));
  EXPECT_EQ(CountOf(arcee), int64_t{2} * 128004 * 2560 + 2560 +
                                36 * (int64_t{2} * 2560 * 2560 + 2 * 2560 * 512 + 2 * 2560 * 18432 + 2 * 2560));
  EXPECT_THAT(Read(R"({"model_type": "arcee", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 64, "vocab_size": 64, "hidden_act": "silu"})"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("the activation \"silu\" is not modelled")));
}

// Ministral 8B as published. By hand, and near what their pages say, Ministral 3 8B and 14B (8.4 and 13.5 billion
// without the vision model), or their names: Code World Model 32 (32.58), InternLM3 8 (8.80), MiMo 7 (7.83 with the
// layer behind the last).
TEST(HuggingFaceFamiliesTest, NewerFamiliesOfPlainLayers) {
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig ministral, Read(R"({"model_type": "ministral", "hidden_size": 4096,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "intermediate_size": 12288, "vocab_size": 131072})"));
  EXPECT_EQ(CountOf(ministral), 8'019'808'256);
  EXPECT_EQ(ministral.sliding_window, 4096);
  constexpr absl::string_view kMinistral3 = R"({"model_type": "ministral3", "hidden_size": HIDDEN,
      "num_hidden_layers": LAYERS, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": FFN,
      "vocab_size": 131072, "sliding_window": null, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000}})";
  EXPECT_EQ(CountOf(Read(absl::StrReplaceAll(kMinistral3, {{"HIDDEN", "4096"}, {"LAYERS", "34"}, {"FFN", "14336"}}), 64,
                         &notices)),
            Ends(131072, 4096) + 34 * Layer(4096, 4096, 1024, 14336));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("rope_parameters"), "the scale of queries by position is left out"));
  EXPECT_EQ(CountOf(Read(absl::StrReplaceAll(kMinistral3, {{"HIDDEN", "5120"}, {"LAYERS", "40"}, {"FFN", "16384"}}))),
            Ends(131072, 5120) + 40 * Layer(5120, 4096, 1024, 16384));
  // Code World Model: layers 0, 4, .. see all.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig cwm,
                       Read(R"({"model_type": "cwm", "hidden_size": 6144, "num_hidden_layers": 64,
      "num_attention_heads": 48, "intermediate_size": 21504, "vocab_size": 128256})"));
  EXPECT_EQ(CountOf(cwm), Ends(128256, 6144) + 64 * Layer(6144, 6144, 1024, 21504));
  EXPECT_EQ(cwm.sliding_window, 8192);
  EXPECT_EQ(cwm.full_attention_every, 4);
  EXPECT_EQ(cwm.full_attention_at, 1);
  constexpr absl::string_view kInternLm3 = R"({"model_type": "internlm3", "hidden_size": 4096,
      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "bias": false,
      "qkv_bias": false, "intermediate_size": 10240, "vocab_size": 128512})";
  EXPECT_EQ(CountOf(Read(kInternLm3)), Ends(128512, 4096) + 48 * Layer(4096, 4096, 256, 10240));
  EXPECT_TRUE(Read(absl::StrReplaceAll(kInternLm3, {{"\"qkv_bias\": false", "\"qkv_bias\": true"}}))->qkv_bias);
  EXPECT_THAT(Read(absl::StrReplaceAll(kInternLm3, {{"\"bias\": false", "\"bias\": true"}})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("bias: a bias of all but")));
  // Biases of queries, keys and values; what joins two states, and three norms, in front of the layer behind the last.
  EXPECT_EQ(CountOf(Read(R"({"model_type": "mimo", "hidden_size": 4096, "num_hidden_layers": 36, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 11008, "vocab_size": 151680,
      "attention_bias": true, "num_nextn_predict_layers": 1, "sliding_window": 32768, "use_sliding_window": false})")),
            Ends(151680, 4096) + 37 * (Layer(4096, 4096, 1024, 11008) + 4096 + 2 * 1024) + 2 * 4096 * 4096 + 3 * 4096);
}

// FlexOlmo and Ling-mini as published, less what is left out: norms as of OLMo 2, and biases of routers, one number an
// expert. By hand, and near what their pages say, Solar Open 102.6 billion and Hunyuan A13B 80, or what they are known
// for: GLM-4.7-Flash 30 (29.9, and the layer behind the last), K-EXAONE 236, DBRX 132.
TEST(HuggingFaceFamiliesTest, NewerFamiliesWithExperts) {
  std::vector<std::string> notices;
  constexpr int64_t kLatent = 2048 * 768 + 768 + 768 * 20 * 256 + 2048 * 576 + 512 + 512 * 20 * 448 + 20 * 256 * 2048;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "glm4_moe_lite", "hidden_size": 2048, "num_hidden_layers": 47,
      "num_attention_heads": 20, "num_key_value_heads": 20, "intermediate_size": 10240, "moe_intermediate_size": 1536,
      "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1,
      "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
      "num_nextn_predict_layers": 1, "vocab_size": 154880})")),
            Ends(154880, 2048) + 48 * (kLatent + 2 * 2048) + 3 * 2048 * 10240 +
                47 * (2048 * 64 + int64_t{65} * 3 * 2048 * 1536) + 2 * 2048 * 2048 + 3 * 2048);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "solar_open", "hidden_size": 4096, "num_hidden_layers": 48,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10240,
      "moe_intermediate_size": 1280, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
      "vocab_size": 196608})")),
            Ends(196608, 4096) + 48 * (Layer(4096, 8192, 1024, 129 * 1280) + 4096 * 128));
  ASSERT_OK_AND_ASSIGN(const DecoderConfig exaone,
                       Read(R"({"model_type": "exaone_moe", "hidden_size": 6144, "num_hidden_layers": 48,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 18432,
      "moe_intermediate_size": 2048, "num_experts": 128, "num_shared_experts": 1, "num_experts_per_tok": 8,
      "sliding_window": 128, "vocab_size": 153600})",
                            4096, &notices));
  EXPECT_EQ(CountOf(exaone), Ends(153600, 6144) + 48 * 2 * 128 + Layer(6144, 8192, 1024, 18432) +
                                 47 * (Layer(6144, 8192, 1024, 129 * 2048) + 6144 * 128));
  EXPECT_EQ(exaone.norm_places, NormPlaces::kBefore);
  EXPECT_EQ(exaone.dense_layers, 1);
  EXPECT_EQ(exaone.sliding_window, 128);
  EXPECT_EQ(exaone.full_attention_every, 4);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("without rotary positions")));
  // Trinity Mini, 26 billion by its name: a gate as wide as queries in each layer, and norms on both sides.
  notices.clear();
  ASSERT_OK_AND_ASSIGN(const DecoderConfig trinity,
                       Read(R"({"model_type": "afmoe", "hidden_size": 2048, "num_hidden_layers": 32, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 1024,
      "num_dense_layers": 2, "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1, "n_group": 1,
      "global_attn_every_n_layers": 4, "sliding_window": 2048, "vocab_size": 200192, "mup_enabled": true})",
                            4096, &notices));
  EXPECT_EQ(CountOf(trinity), Ends(200192, 2048) + 32 * (int64_t{2048} * 4096 + 2 * 2048 + 2 * 128) +
                                  2 * Layer(2048, 4096, 512, 6144) +
                                  30 * (Layer(2048, 4096, 512, 129 * 1024) + 2048 * 128));
  EXPECT_EQ(trinity.sliding_window, 2048);
  EXPECT_EQ(trinity.full_attention_every, 4);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("without rotary positions")));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
      "moe_intermediate_size": [3072, 3072], "num_experts": 64, "moe_topk": [8, 8], "use_mla": false,
      "kv_lora_rank": 512, "vocab_size": 128167, "tie_word_embeddings": true})")),
            int64_t{128167} * 4096 + 4096 + 32 * (Layer(4096, 4096, 1024, 65 * 3072) + 4096 * 64 + 2 * 128));
  EXPECT_THAT(Read(R"({"model_type": "hunyuan_v1_moe", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 64, "num_experts": 4, "moe_topk": [1, 2], "vocab_size": 64})"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("moe_topk[1]: another in each layer")));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "flex_olmo", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 11008, "num_experts": 7, "num_experts_per_tok": 5,
      "vocab_size": 100352})")),
            33'270'665'216 - 32 * 2 * (4096 - 128));
  // Norms of the class have no biases: 81 of 6144.
  notices.clear();
  ASSERT_OK_AND_ASSIGN(const DecoderConfig dbrx,
                       Read(R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
      "max_seq_len": 32768, "vocab_size": 100352, "resid_pdrop": 0.0, "emb_pdrop": 0.1,
      "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
      "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "ffn_act_fn": {"name": "silu"}}})",
                            64, &notices));
  EXPECT_EQ(CountOf(dbrx), Ends(100352, 6144) + 40 * (Layer(6144, 6144, 1024, 16 * 10752) + 6144 * 16) + 81 * 6144);
  EXPECT_EQ(dbrx.experts_per_token, 4);
  EXPECT_EQ(dbrx.rope_theta, 500000);
  EXPECT_THAT(notices, ElementsAre("limits of queries, keys and values are left out", HasSubstr("emb_pdrop of 0.1")));
  // Ling-mini-2.0.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig ling,
                       Read(R"({"model_type": "bailing_moe_v2", "hidden_size": 2048, "num_hidden_layers": 20,
      "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 5120,
      "moe_intermediate_size": 512, "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8,
      "n_group": 8, "topk_group": 4, "first_k_dense_replace": 1, "use_bias": false, "use_qkv_bias": false,
      "use_qk_norm": true, "partial_rotary_factor": 0.5, "vocab_size": 157184})"));
  EXPECT_EQ(CountOf(ling), 16'255'643'392 - 19 * 256);
  EXPECT_EQ(TurnedElements(ling, ling.head_dim), 64);
  EXPECT_EQ(ling.choice_groups, 8);
}

// Where norms stand, by each class's decoder layer.
TEST(HuggingFaceFamiliesTest, NormsBehindAttention) {
  const auto of = [](absl::string_view type) {
    return *Read(absl::StrCat(R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 64, "model_type": ")",
                              type, "\"}"));
  };
  for (const absl::string_view type : {"olmo2", "olmo3", "exaone4"}) {
    EXPECT_EQ(of(type).norm_places, NormPlaces::kAfter) << type;
    EXPECT_TRUE(of(type).qk_norm) << type;
  }
  for (const absl::string_view type : {"gemma2", "gemma3_text", "glm4"}) {
    EXPECT_EQ(of(type).norm_places, NormPlaces::kBoth) << type;
  }
  for (const absl::string_view type : {"llama", "glm", "qwen3"}) {
    EXPECT_EQ(of(type).norm_places, NormPlaces::kBefore) << type;
  }
  EXPECT_EQ(of("cohere2").layer_form, LayerForm::kParallelOneNorm);
  EXPECT_EQ(of("cohere2").full_attention_every, 4);
  EXPECT_EQ(of("gemma").activation, Activation::kGeglu);
}

// Counts from the shapes of the published checkpoints: of Qwen3-Next 79,674,391,296 without the layer that predicts
// further tokens (151.49 GiB with it); of Granite 4.0 H Small and Tiny 59.99 and 12.93 GiB at 2 bytes each; of Nemotron
// 3 Super its card's 120,668,707,840 without one. Routers' biases of one number an expert are left out, 2,944 and
// 20,480.
TEST(HuggingFaceFamiliesTest, FamiliesWithLinearAttention) {
  std::vector<std::string> notices;
  const absl::StatusOr<DecoderConfig> next = Read(
      R"({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 256,
      "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 5120, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10, "vocab_size": 151936,
      "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "partial_rotary_factor": 0.25, "tie_word_embeddings": false})",
      64, &notices);
  EXPECT_EQ(CountOf(next), 79'674'391'296);
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(next->full_attention_every, 4);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 4,
      "num_attention_heads": 16, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "num_experts": 256, "num_experts_per_tok": 8, "vocab_size": 248320, "layer_types": ["linear_attention",
      "linear_attention", "linear_attention", "full_attention"], "rope_parameters": {"rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "rope_type": "default"}})")),
            (34'660'610'688 - 2 * 248320 * 2048 - 2048) / 10 + 2 * 248320 * 2048 + 2048);
}

constexpr absl::string_view kGranite = R"({"model_type": "granitemoehybrid", "hidden_size": HIDDEN,
      "num_hidden_layers": 40, "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "num_local_experts": EXPERTS,
      "num_experts_per_tok": 6, "intermediate_size": FFN, "shared_intermediate_size": SHARED, "mamba_n_heads": MAMBA,
      "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "vocab_size": 100352, "tie_word_embeddings": true,
      "position_embedding_type": "nope", "layer_types": [TYPES]})";

std::string GraniteTypes(int64_t at) {
  std::string types;
  for (int64_t i = 0; i < 40; ++i) {
    absl::StrAppend(&types, i > 0 ? ", " : "", i % 10 == at ? "\"attention\"" : "\"mamba\"");
  }
  return types;
}

TEST(HuggingFaceFamiliesTest, FamiliesWithStateSpaces) {
  const auto granite = [](absl::string_view hidden, absl::string_view heads, absl::string_view keys,
                          absl::string_view experts, absl::string_view ffn, absl::string_view shared,
                          absl::string_view mamba) {
    return Read(absl::StrReplaceAll(kGranite, {{"HIDDEN", hidden},
                                               {"HEADS", heads},
                                               {"KEYS", keys},
                                               {"EXPERTS", experts},
                                               {"FFN", ffn},
                                               {"SHARED", shared},
                                               {"MAMBA", mamba},
                                               {"TYPES", GraniteTypes(5)}}));
  };
  const absl::StatusOr<DecoderConfig> small = granite("4096", "32", "8", "72", "768", "1536", "128");
  EXPECT_EQ(CountOf(small), 32'207'337'984);
  EXPECT_EQ(small->full_attention_every, 10);
  EXPECT_EQ(small->full_attention_at, 6);
  EXPECT_EQ(small->positions, Positions::kNone);
  EXPECT_EQ(CountOf(granite("1536", "12", "4", "64", "512", "1024", "48")), 6'939'037'248);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "nemotron_h", "hidden_size": 2688, "hybrid_override_pattern":
      "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_hidden_layers": 52, "num_attention_heads": 32,
      "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128,
      "n_groups": 8, "intermediate_size": 1856, "moe_intermediate_size": 1856, "n_routed_experts": 128,
      "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 3712, "num_experts_per_tok": 6, "n_group": 1,
      "mlp_hidden_act": "relu2", "vocab_size": 131072, "tie_word_embeddings": false})")),
            31'577'937'344);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "nemotron_h", "hidden_size": 4096, "hybrid_override_pattern":
      "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 21504, "mamba_num_heads": 128, "mlp_hidden_act": "relu2", "vocab_size": 131072})")),
            8'100'852'736);
}

// Super's experts take 1,024 elements of a token.
TEST(HuggingFaceFamiliesTest, PatternsByNames) {
  const absl::StatusOr<DecoderConfig> config = Read(R"({"model_type": "nemotron_h", "hidden_size": 4096,
      "layers_block_type": ["mamba", "moe", "attention", "moe"], "num_attention_heads": 32, "num_key_value_heads": 2,
      "mamba_num_heads": 128, "moe_intermediate_size": 2688, "moe_latent_size": 1024, "n_routed_experts": 512,
      "moe_shared_expert_intermediate_size": 5376, "num_experts_per_tok": 22, "vocab_size": 131072})");
  ASSERT_OK(config);
  EXPECT_EQ(config->layer_pattern, "ME*E");
  EXPECT_EQ(config->expert_hidden, 1024);
  EXPECT_EQ(config->layers, 4);
  EXPECT_THAT(Read(R"({"model_type": "nemotron_h", "hidden_size": 8, "layers_block_type": ["mamba", "rwkv"],
      "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 16})")
                  .status()
                  .message(),
              HasSubstr("\"rwkv\" is not modelled"));
}

// Attention in two layers that no period says.
TEST(HuggingFaceFamiliesTest, LayersInAnotherOrder) {
  const absl::StatusOr<DecoderConfig> bamba = Read(R"({"model_type": "bamba", "hidden_size": 4096,
      "num_hidden_layers": 12, "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 128256,
      "attn_layer_indices": [3, 6], "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128})");
  ASSERT_OK(bamba);
  EXPECT_EQ(bamba->full_attention_every, 0);
  EXPECT_THAT(bamba->full_attention_layers, ::testing::ElementsAre(3, 6));
}

// The model cards' 30.7 and 25.2 billion; of the first 0.11 are ours alone, for values of layers without a window.
TEST(HuggingFaceFamiliesTest, HeadsByKindOfLayer) {
  constexpr absl::string_view kGemma4 = R"({"model_type": "gemma4_text", "hidden_size": 5376, "num_hidden_layers": 60,
      "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
      "num_global_key_value_heads": 4, "attention_k_eq_v": true, "intermediate_size": 21504, "vocab_size": 262144,
      "sliding_window": 1024, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": false,
      "num_experts": null, "use_bidirectional_attention": "vision", "tie_word_embeddings": true})";
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig dense, Read(kGemma4, 2048, &notices));
  EXPECT_EQ(dense.sliding_window, 1024);
  EXPECT_EQ(dense.full_attention_every, 6);
  EXPECT_EQ(dense.full_attention_heads, (AttentionHeads{32, 4, 512}));
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(CountOf(dense), 30807445760);
  EXPECT_THAT(notices, ::testing::Contains("of layers without a window values have a weight of their own, in place of "
                                           "that of keys"));
  ASSERT_OK_AND_ASSIGN(
      const DecoderConfig experts,
      Read(absl::StrReplaceAll(
          kGemma4, {{"5376", "2816"},
                    {"60", "30"},
                    {"heads\": 32", "heads\": 16"},
                    {"heads\": 16", "heads\": 8"},
                    {"heads\": 4", "heads\": 2"},
                    {"21504", "2112"},
                    {"block\": false", "block\": true"},
                    {"experts\": null", "experts\": 128, \"top_k_experts\": 8, \"moe_intermediate_size\": 704"}})));
  EXPECT_EQ(experts.full_attention_heads, (AttentionHeads{16, 2, 512}));
  EXPECT_EQ(experts.shared_expert_ffn, 2112);
  EXPECT_EQ(CountOf(experts), 25247217920);
  for (const auto& [key, what] :
       {std::pair("layer_input\": 0", "layer_input\": 256"), std::pair("shared_layers\": 0", "shared_layers\": 20"),
        std::pair("vision", "all"), std::pair("\"global_head_dim\": 512", "\"per_layer_config\": {}")}) {
    EXPECT_THAT(Read(absl::StrReplaceAll(kGemma4, {{key, what}})), StatusIs(absl::StatusCode::kUnimplemented)) << what;
  }
}

// Kimi Linear 48B: of the layers with Kimi Delta Attention 2304 x 32 x (3 x 128 + 1) of what makes queries, keys,
// values and amounts, twice (2304 + 32 x 128) x 128 of decays and gates, 32 x 384 x 4 taps, 32 rates, 32 x 128 biases,
// 128 of the norm and 2304 x 32 x 128 of the result.
constexpr absl::string_view kKimiLinear = R"({"model_type": "kimi_linear", "hidden_size": 2304,
    "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
    "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 256, "num_experts_per_token": 8,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_expert_group": 1, "topk_group": 1,
    "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "mla_use_nope": true, "num_nextn_predict_layers": 0, "vocab_size": 163840, "hidden_act": "silu",
    "tie_word_embeddings": false, "linear_attn_config": {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "kda_layers": [1, 2, 3]}})";
TEST(HuggingFaceFamiliesTest, KimiDeltaAttention) {
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig linear, Read(kKimiLinear, 2048, &notices));
  EXPECT_EQ(linear.linear_attention,
            (LinearAttentionConfig{LinearForm::kKimiDelta, 32, 32, 128, 128, 4, false, 128, 128}));
  EXPECT_THAT(linear.full_attention_layers, ElementsAre(3, 7, 11, 15, 19, 23, 26));
  EXPECT_EQ(linear.dense_layers, 1);
  EXPECT_EQ(CountOf(linear), 49122675072);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("without rotary positions")));
  EXPECT_THAT(Read(absl::StrReplaceAll(kKimiLinear, {{"[4, 8", "[0, 8"}})).status().message(),
              HasSubstr("full_attn_layers[0]: found \"0\", wanted"));
  // K3's text: gates from the hidden state, experts of narrower tokens; 2.8 trillion.
  ASSERT_OK_AND_ASSIGN(
      const DecoderConfig k3,
      Read(absl::StrReplaceAll(kKimiLinear, {{"2304", "7168"},
                                             {"_layers\": 27", "_layers\": 93"},
                                             {"heads\": 32", "heads\": 96"},
                                             {"9216", "33792"},
                                             {"1024", "3072"},
                                             {"256,", "896, \"routed_expert_hidden_size\": 3584,"},
                                             {"token\": 8", "token\": 16"},
                                             {"experts\": 1", "experts\": 2"},
                                             {"null", "1536"},
                                             {"\"silu\"", "\"situ\", \"attn_res_block_size\": 12"},
                                             {"\"mla_use_nope\": true", "\"mla_use_output_gate\": true"},
                                             {"\"kda_layers\"", "\"use_full_rank_gate\": true, \"kda_layers\""},
                                             {"20, 24, 27",
                                              "20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, "
                                              "92, 93"}}),
           2048, &notices));
  EXPECT_EQ(k3.linear_attention.gate_rank, 0);
  EXPECT_EQ(k3.expert_hidden, 3584);
  EXPECT_TRUE(k3.attention_gate);
  EXPECT_NEAR(static_cast<double>(CountOf(k3)), 2.78e12, 0.002e12);
  EXPECT_THAT(notices, ::testing::Contains(HasSubstr("attn_res_block_size")));
}

// Step 3.5 Flash: 196.8 billion are published. Its heads are those of layers without a window, its lists have a place
// for each layer that predicts further tokens, too.
TEST(HuggingFaceFamiliesTest, Step) {
  std::string kinds;
  for (int layer = 0; layer < 48; ++layer) {
    absl::StrAppend(&kinds, layer > 0 ? ", " : "", layer % 4 == 0 ? "\"full_attention\"" : "\"sliding_attention\"");
  }
  std::string experts;
  for (int layer = 3; layer < 45; ++layer) absl::StrAppend(&experts, layer > 3 ? "," : "", layer);
  const std::string text = absl::StrReplaceAll(
      R"({"model_type": "step3p5", "hidden_size": 4096, "num_hidden_layers": 45, "num_attention_heads": 64,
      "num_attention_groups": 8, "head_dim": 128, "attention_other_setting": {"attention_type": "sliding_attention",
      "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}, "intermediate_size": 11264,
      "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280,
      "moe_layers_enum": "EXPERTS", "vocab_size": 128896, "sliding_window": 512, "rope_theta": [5000000.0, 10000.0],
      "num_nextn_predict_layers": 3, "layer_types": [KINDS], "tie_word_embeddings": false})",
      {{"EXPERTS", experts}, {"KINDS", kinds}});
  ASSERT_OK_AND_ASSIGN(DecoderConfig step, Read(text));
  EXPECT_EQ(step.heads, 96);
  EXPECT_EQ(step.full_attention_heads, (AttentionHeads{64, 8, 128}));
  EXPECT_EQ(step.full_attention_every, 4);
  EXPECT_EQ(step.full_attention_at, 1);
  EXPECT_EQ(step.dense_layers, 3);
  EXPECT_EQ(step.rope_theta, 5e6);
  EXPECT_EQ(step.mtp_layers, 3);
  step.mtp_layers = 0;
  EXPECT_EQ(CountOf(step), 196939996416);
  EXPECT_THAT(Read(absl::StrReplaceAll(text, {{"\"3,4", "\"3,x"}})).status().message(),
              HasSubstr("found \"x\", wanted numbers of layers below 45"));
  // A layer of another kind cannot do without.
  EXPECT_THAT(Read(absl::StrReplaceAll(text, {{"\"num_nextn_predict_layers\": 3, ", ""}})).status().message(),
              HasSubstr("found 48 kinds, wanted one for each of the 45 layers"));
}

}  // namespace
}  // namespace meshwright
