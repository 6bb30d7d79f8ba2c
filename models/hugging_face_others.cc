#include "absl/strings/string_view.h"
#include "models/hugging_face_families.h"

namespace meshwright {

absl::string_view WhatOthersHave(absl::string_view model_type) {
  constexpr absl::string_view kStreams = "several residual streams that layers mix (hyper-connections)";
  constexpr absl::string_view kLightning = "linear attention with one decay for each head (lightning attention)";
  constexpr absl::string_view kMamba = "a state space with a decay for each element (Mamba)";
  constexpr absl::string_view kBlocks = "attention to blocks that an indexer picks";
  constexpr absl::string_view kConvolution = "a short convolution in place of attention";
  constexpr absl::string_view kKindsOfTokens = "a choice of experts by the kind of token (text or image)";
  constexpr absl::string_view kAnother = "attention to another sequence";
  const struct {
    absl::string_view model_type, what;
  } kRows[] = {
      {"axk2", "a gate behind each norm, with queries from two narrow vectors,"},
      {"bailing_hybrid", "linear attention with decays unlike Qwen's and Kimi's"},
      {"bailing_moe_linear", kLightning},
      {"cohere2_moe", "a layer with experts beside attention"},
      {"deepseek_v4", kStreams},
      {"diffllama", "attention by the difference of two"},
      {"doge", "attention under a mask that is learnt"},
      {"ernie4_5_vl_moe", kKindsOfTokens},
      {"ernie4_5_vl_moe_text", kKindsOfTokens},
      {"falcon_h1", "a state space beside attention in one layer"},
      {"falcon_mamba", kMamba},
      {"gemma3n_text", "an embedding in each layer, with keys and values that layers share,"},
      {"glm5_next", kStreams},
      {"glm5_next_text", kStreams},
      {"hrm_text", "a layer that a token goes through several times"},
      {"inkling_text", "a convolution around attention, with positions relative to each other,"},
      {"jamba", kMamba},
      {"jetmoe", "attention with experts"},
      {"lfm2", kConvolution},
      {"lfm2_moe", kConvolution},
      {"longcat_flash", "a layer of two attentions, with experts beside the second,"},
      {"mamba", kMamba},
      {"mamba2", "a model of state spaces alone"},
      {"minimax", kLightning},
      {"minimax_m1", kLightning},
      {"minimax_m3_vl", kBlocks},
      {"minimax_m3_vl_text", kBlocks},
      {"minimax_text_01", kLightning},
      {"mllama_text_model", kAnother},
      {"recurrent_gemma", "a recurrence of gates (RG-LRU)"},
      {"rwkv", "a recurrence in place of attention (RWKV)"},
      {"rwkv7", "a recurrence in place of attention (RWKV)"},
      {"t5gemma", kAnother},
      {"t5gemma2", kAnother},
      {"xlstm", "a recurrence in place of attention (xLSTM)"},
      {"zamba", kMamba},
      {"zamba2", "attention that layers share"},
  };
  for (const auto& row : kRows) {
    if (row.model_type == model_type) return row.what;
  }
  return "";
}

}  // namespace meshwright
