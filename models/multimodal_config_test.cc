// Decoders in published config.json of multimodal models, without the keys that nobody reads.
#include "models/multimodal_config.h"

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

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::string_view kVision = "the decoder alone is planned, without vision_config and its projector";

// google/gemma-3-12b-it: what its class says is not in the file.
constexpr absl::string_view kGemma3 = R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "text_config": {"hidden_size": 3840, "intermediate_size": 15360, "model_type": "gemma3_text",
    "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
  "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}})";

TEST(MultimodalConfigTest, TheDecoderIsPlanned) {
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig gemma, Read(kGemma3, 64, &notices));
  EXPECT_EQ(CountOf(gemma), 11'766'034'176);
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_EQ(gemma.full_attention_every, 6);
  EXPECT_THAT(notices, ElementsAre(kVision, HasSubstr("rope_scaling is left out"), HasSubstr("the scale of the")));
  // 4B, whose file says nothing of heads: published as 4,300,079,472, of which 416,866,032 are the vision model's and
  // 2,950,272 what joins it, 1152 x 2560 and a norm.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig small, Read(R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 34}, "vision_config": {}})"));
  EXPECT_EQ(small.heads, 8);
  EXPECT_EQ(small.vocab, 262208);
  EXPECT_EQ(CountOf(small), 3'880'263'168);
}

// Counts of the decoders alone, as they are published by themselves: Mistral Small 3, Qwen2.5-7B, Qwen3-8B,
// Qwen3-30B-A3B, GLM-4-9B-0414. Each with its vision model is its checkpoint's: Qwen2.5-VL-7B 8,292,166,656 with
// 676,550,144, Qwen3-VL-8B 8,767,123,696 with 576,388,336.
TEST(MultimodalConfigTest, CountsAreThoseOfDecoders) {
  EXPECT_EQ(CountOf(Read(R"({"model_type": "mistral3", "spatial_merge_size": 2, "text_config": {"head_dim": 128,
      "hidden_size": 5120, "intermediate_size": 32768, "model_type": "mistral", "num_attention_heads": 32,
      "num_hidden_layers": 40, "num_key_value_heads": 8, "sliding_window": null, "vocab_size": 131072},
      "vision_config": {"model_type": "pixtral"}})")),
            23'572'403'200);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", "head_dim": 128,
      "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "vocab_size": 151936}, "tie_word_embeddings": false, "vision_config": {}})")),
            8'190'735'360);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3_vl_moe", "text_config": {"decoder_sparse_step": 1, "head_dim": 128,
      "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [], "model_type": "qwen3_vl_moe_text",
      "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936}, "tie_word_embeddings": false,
      "vision_config": {}})")),
            30'532'122'624);
  EXPECT_EQ(CountOf(Read(R"({"model_type": "glm4v", "text_config": {"hidden_size": 4096, "intermediate_size": 13696,
      "model_type": "glm4v_text", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2,
      "vocab_size": 151552}, "vision_config": {}})")),
            9'400'279'040);
  // GLM-4.5V, published as 106 billion with the vision model: GLM-4.5-Air's layers.
  EXPECT_NEAR(static_cast<double>(CountOf(Read(R"({"model_type": "glm4v_moe", "text_config": {"head_dim": 128,
      "attention_bias": true, "first_k_dense_replace": 1, "hidden_size": 4096, "intermediate_size": 10944,
      "model_type": "glm4v_moe_text", "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 1,
      "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
      "use_qk_norm": false, "vocab_size": 151552}, "tie_word_embeddings": false, "vision_config": {}})"))),
              106e9, 1e9);
  // Kimi K2.5: embedding and head 2 x 163840 x 7168, 61 layers' attention of 64 heads as DeepSeek-V3's, 60 with a
  // router 7168 x 384 and 385 experts of 3 x 7168 x 2048, one of 3 x 7168 x 18432.
  constexpr int64_t kAttention =
      7168 * 1536 + 1536 + 1536 * 64 * 192 + 7168 * 576 + 512 + 512 * 64 * 256 + 64 * 128 * 7168 + 2 * 7168;
  EXPECT_EQ(CountOf(Read(R"({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "hidden_size": 7168,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64,
      "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_group": 1, "topk_group": 1, "vocab_size": 163840}, "tie_word_embeddings": false, "vision_config": {}})")),
            int64_t{2} * 163840 * 7168 + 7168 + 61 * kAttention + 60 * (7168 * 384 + int64_t{385} * 3 * 7168 * 2048) +
                3 * 7168 * 18432);
}

// Releases before 4.52 wrote the decoder's keys beside `vision_config`; newer ones write `text_config`.
TEST(MultimodalConfigTest, KeysOfDecodersBesideOthers) {
  constexpr absl::string_view kDecoder = R"("hidden_size": 3584, "intermediate_size": 18944, "max_window_layers": 28,
      "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "sliding_window": 32768,
      "use_sliding_window": false, "vocab_size": 152064, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24]})";
  std::vector<std::string> notices;
  EXPECT_EQ(CountOf(Read(absl::StrCat(R"({"model_type": "qwen2_5_vl", "tie_word_embeddings": false,
      "vision_config": {"depth": 32}, )",
                                      kDecoder, "}"),
                         64, &notices)),
            7'615'616'512);
  EXPECT_THAT(notices, ElementsAre(kVision));
  EXPECT_EQ(CountOf(Read(
                absl::StrCat(R"({"model_type": "qwen2_5_vl", "vision_config": {}, "text_config": {)", kDecoder, "}}"))),
            7'615'616'512);
  EXPECT_EQ(CountOf(Read(absl::StrCat(R"({"model_type": "qwen2_vl", "vision_config": {}, )", kDecoder, "}"))),
            7'615'616'512);
}

// PaliGemma's decoder is Gemma's, where its map does not say, too.
TEST(MultimodalConfigTest, APrefixIsTakenAsCausal) {
  std::vector<std::string> notices;
  ASSERT_OK(Read(
      R"({"model_type": "paligemma", "vision_config": {}, "text_config": {"hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18,
      "num_key_value_heads": 1, "vocab_size": 257216}})",
      64, &notices));
  EXPECT_THAT(notices, Contains(HasSubstr("prefix (an image and its prompt) to all of itself is taken as causal")));
}

// Qwen-Omni: the thinker's decoder is that of Qwen2.5-7B, and that of Qwen3-30B-A3B with 128 words more.
TEST(MultimodalConfigTest, ThinkersHaveADecoder) {
  std::vector<std::string> notices;
  const std::string omni = R"({"model_type": "qwen2_5_omni", "talker_config": {"hidden_size": 896},
      "thinker_config": {"audio_config": {}, "model_type": "qwen2_5_omni_thinker", "vision_config": {},
      "text_config": {"model_type": "qwen2_5_omni_text", "hidden_size": 3584, "intermediate_size": 18944,
      "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064}}})";
  EXPECT_EQ(CountOf(Read(omni, 64, &notices)), 7'615'616'512);
  EXPECT_THAT(notices,
              ElementsAre("thinker_config alone is planned, without what speaks",
                          "the decoder alone is planned, without vision_config, audio_config and their projectors"));
  // A decoder of its own stays one.
  EXPECT_EQ(CountOf(Read(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "vocab_size": 64,
      "num_attention_heads": 4, "num_hidden_layers": 1, "thinker_config": {}})")),
            2 * 64 * 64 + 64 + 4 * 64 * 64 + 3 * 64 * 64 + 2 * 64);
  EXPECT_EQ(CountOf(Read(absl::StrReplaceAll(omni, {{"\"model_type\": \"qwen2_5_omni_text\", ", ""}}))), 7'615'616'512);
  EXPECT_THAT(Read(absl::StrReplaceAll(omni, {{"3584", "35.5"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "thinker_config.text_config.hidden_size: found \"35.5\""));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "qwen3_omni_moe", "thinker_config": {"model_type": "qwen3_omni_moe_thinker",
      "text_config": {"model_type": "qwen3_omni_moe_text", "head_dim": 128, "hidden_size": 2048,
      "intermediate_size": 768, "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 152064}}})")),
            30'532'122'624 + 2 * 128 * 2048);
}

// InternVL's and others' own code. DeepSeek-VL2-Small has the layers of DeepSeek-V2-Lite, of 15,706,484,224.
TEST(MultimodalConfigTest, OtherNamesOfTheMap) {
  constexpr absl::string_view kLlm = R"({"model_type": "internvl_chat", "tie_word_embeddings": false,
      "llm_config": {"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4,
      "num_hidden_layers": 2, "num_key_value_heads": 4, "tie_word_embeddings": true, "vocab_size": 64}, "vision_config": {}})";
  std::vector<std::string> notices;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig llm, Read(kLlm, 64, &notices));
  EXPECT_TRUE(llm.tied_embeddings) << "its class's own, not the file's";
  EXPECT_THAT(notices, ElementsAre(kVision));
  notices.clear();
  ASSERT_OK(Read(absl::StrReplaceAll(kLlm, {{"\"vision_config\"", "\"other\""}}), 64, &notices));
  EXPECT_THAT(notices, ElementsAre("the decoder alone is planned, without what else the model has"));
  notices.clear();
  ASSERT_OK(Read(absl::StrReplaceAll(kLlm, {{"\"llm", "\"audio_config\": {}, \"llm"}}), 64, &notices));
  EXPECT_THAT(notices,
              ElementsAre("the decoder alone is planned, without vision_config, audio_config and their projectors"));
  EXPECT_EQ(CountOf(Read(R"({"model_type": "deepseek_vl_v2", "language_config": {"model_type": "deepseek_v2",
      "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
      "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 16,
      "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400},
      "vision_config": {}})")),
            15'706'484'224);
}

// The file's own key, the map's, the class's.
TEST(MultimodalConfigTest, TiedEmbeddings) {
  std::vector<std::string> notices;
  const auto tied = [&notices](absl::string_view outer, absl::string_view inner) {
    notices.clear();
    return Read(
               absl::StrReplaceAll(kGemma3, {{"\"text_config\": {", absl::StrCat(outer, "\"text_config\": {", inner)}}),
               64, &notices)
        ->tied_embeddings;
  };
  constexpr absl::string_view kNo = "\"tie_word_embeddings\": false, ", kYes = "\"tie_word_embeddings\": true, ";
  EXPECT_TRUE(tied("", ""));
  EXPECT_FALSE(tied("", kNo));
  EXPECT_FALSE(tied(kNo, ""));
  EXPECT_FALSE(tied(kNo, kNo));
  EXPECT_TRUE(tied(kYes, kNo));
  EXPECT_THAT(notices, Contains("tie_word_embeddings of text_config is left out: that of the file is another"));
}

TEST(MultimodalConfigTest, QuantizationOfTheFile) {
  std::vector<std::string> notices;
  ASSERT_OK(Read(absl::StrReplaceAll(kGemma3, {{"\"torch_dtype\"", "\"quantization_config\": {}, \"torch_dtype\""}}),
                 64, &notices));
  EXPECT_THAT(notices, Contains(HasSubstr("quantization_config is left out")));
}

TEST(MultimodalConfigTest, ErrorsAreAtKeysOfTheMap) {
  EXPECT_THAT(
      Read(absl::StrReplaceAll(kGemma3, {{"3840", "40.5"}})),
      StatusIs(absl::StatusCode::kInvalidArgument, "config.json:2:34: text_config.hidden_size: found \"40.5\""));
  EXPECT_THAT(Read(absl::StrReplaceAll(kGemma3, {{"gemma3_text", "t5"}})),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "config.json:2:82: text_config.model_type: found \"t5\", wanted one of gpt2, "));
  // LLaVA 1.5's file leaves sizes to Llama's class.
  EXPECT_THAT(Read(R"({"model_type": "llava", "text_config": {"vocab_size": 32064}, "vision_config": {}})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text_config.hidden_size: found nothing")));
  EXPECT_THAT(Read(R"({"model_type": "whatever", "text_config": {"hidden_size": 64}})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("text_config.model_type: found nothing, wanted the decoder's, such as llama")));
  EXPECT_THAT(Read(R"({"model_type": "llama4", "vision_config": {}})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("text_config: found nothing, wanted the decoder's sizes")));
  EXPECT_THAT(
      Read(R"({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}})"),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("found \"gemma3n_text\": an embedding in each layer")));
  EXPECT_THAT(Read(R"({"model_type": "glm4v", "vision_config": {}})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hidden_size: found nothing")));
}

TEST(MultimodalConfigTest, ADecoderAloneIsNothingElse) {
  std::vector<std::string> notices;
  ASSERT_OK(Read(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 64, "vocab_size": 64, "vision_config": null})",
                 64, &notices));
  EXPECT_THAT(notices, IsEmpty());
}

}  // namespace
}  // namespace meshwright
