#include "tools/import/model_text.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/testing.h"
#include "models/decoder.h"
#include "models/hugging_face.h"
#include "models/model_file.h"

namespace meshwright {
namespace {

// Models that between them have all that a decoder may have, as small as they may be.
constexpr absl::string_view kConfigs[] = {
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1024, "rope_theta": 500000.0})",
    R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 1000, "n_positions": 128})",
    R"({"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 256, "vocab_size": 1024, "hidden_act": "gelu"})",
    R"({"model_type": "gemma2", "hidden_size": 64, "num_hidden_layers": 4, "head_dim": 32, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 2048, "sliding_window": 16})",
    R"({"model_type": "olmo2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 1024})",
    R"({"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "bias": false, "num_attention_heads": 4,
        "vocab_size": 1024, "multi_query": true, "parallel_attn": true, "alibi": false,
        "new_decoder_architecture": false})",
    R"({"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 256, "moe_intermediate_size": 32, "n_routed_experts": 16,
        "n_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 2,
        "moe_layer_freq": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "vocab_size": 1024, "num_nextn_predict_layers": 1})",
    R"({"model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 8, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 1024,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 4,
        "linear_num_value_heads": 8, "partial_rotary_factor": 0.25})",
    R"({"model_type": "nemotron_h", "hidden_size": 64, "layers_block_type": ["mamba", "moe", "attention", "moe"],
        "num_attention_heads": 4, "num_key_value_heads": 2, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2,
        "moe_intermediate_size": 32, "moe_latent_size": 32, "n_routed_experts": 8,
        "moe_shared_expert_intermediate_size": 64, "num_experts_per_tok": 2, "vocab_size": 1024})",
    R"({"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 4, "head_dim": 16, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 1024, "num_local_experts": 4,
        "num_experts_per_tok": 2, "attention_bias": true, "sliding_window": 8})",
    R"({"model_type": "mistral3", "vision_config": {}, "text_config": {"model_type": "cwm", "hidden_size": 64,
        "num_hidden_layers": 8, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 64, "vocab_size": 1024, "sliding_window": 8}})",
    R"({"model_type": "gemma4_text", "hidden_size": 64, "num_hidden_layers": 6, "head_dim": 16, "global_head_dim": 32,
        "num_attention_heads": 4, "num_key_value_heads": 4, "num_global_key_value_heads": 2, "attention_k_eq_v": true,
        "hidden_size_per_layer_input": 0, "intermediate_size": 64, "vocab_size": 1024, "sliding_window": 8,
        "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                        "sliding_attention", "full_attention"]})",
    R"({"model_type": "kimi_linear", "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 4,
        "intermediate_size": 64, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_token": 2,
        "num_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 1024, "tie_word_embeddings": false,
        "linear_attn_config": {"num_heads": 4, "head_dim": 16, "full_attn_layers": [4, 5]}})",
};

TEST(ModelTextTest, AnyDecoderIsReadAgain) {
  for (const absl::string_view config : kConfigs) {
    SCOPED_TRACE(config);
    ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument(config, "config.json"));
    Recipe recipe;
    recipe.name = "model";
    recipe.batch = 8;
    recipe.training.sequence = 64;
    recipe.training.dtype = DType::kFloat16;
    recipe.training.optimizer.kind = OpKind::kLamb;
    recipe.training.scales_loss = Training::Scales::kYes;
    recipe.training.loss_scaling = {1024, 2, 0.5, 500};
    std::vector<std::string> notices;
    ASSERT_OK_AND_ASSIGN(recipe.model, ReadHuggingFace(document.root(), recipe.training, notices));
    const std::string text = ModelText(recipe, "From a test.");
    SCOPED_TRACE(text);
    ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(text, "model.yaml"));
    EXPECT_TRUE(std::get<DecoderConfig>(file.model) == recipe.model);
    EXPECT_EQ(file.training.optimizer, recipe.training.optimizer);
    EXPECT_EQ(file.training.loss_scaling, recipe.training.loss_scaling);
  }
}

}  // namespace
}  // namespace meshwright
