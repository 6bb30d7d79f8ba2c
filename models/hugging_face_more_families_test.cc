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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// What layers have that is not modelled is told.
TEST(HuggingFaceMoreFamiliesTest, OthersSayWhatTheyHave) {
  const auto of = [](absl::string_view type) {
    return Read(absl::StrCat(R"({"hidden_size": 64, "num_hidden_layers": 4, "model_type": ")", type, "\"}"));
  };
  for (const auto& [type, what] :
       {std::pair("mimo_v2_flash", "values narrower than keys is not modelled"),
        std::pair("longcat_flash", "a layer of two attentions"), std::pair("minimax", "lightning attention"),
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
