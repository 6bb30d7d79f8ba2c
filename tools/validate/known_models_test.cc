#include "tools/validate/known_models.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(KnownModelsTest, NamesAsTablesWriteThem) {
  struct Case {
    absl::string_view name;
    double billions;
    int64_t hidden;
    int64_t layers, experts;
  };
  for (const Case& c : std::vector<Case>{{"Qwen3_30B_a3B", 30.5, 0, 48, 128},
                                         {"Qwen3-235B-A22B", 235, 4096, 94, 128},
                                         {"DeepSeek-V3 671B", 671, 7168, 61, 256},
                                         {"GPT OSS 120B", 117, 2880, 36, 128},
                                         {"LLAMA4-Maverick-LLM", 0, 0, 48, 128},
                                         {"LLAMA3.1-405B", 405, 0, 126, 0},
                                         {"Llama-3-8B", 8.03, 4096, 32, 0},
                                         {"LLaMA2-70B", 69, 0, 80, 0},
                                         {"llama-33b", 32.5, 0, 60, 0},
                                         {"TinyLlama 1.1B", 1.1, 0, 22, 0},
                                         {"GPT2-XL", 0, 0, 48, 0},
                                         {"GPT-2 1.5B", 1.5, 1600, 48, 0},
                                         {"InternLM2-7B", 7, 0, 32, 0},
                                         {"BERT 110m", 0.11, 0, 12, 0},
                                         {"BERT 4b", 4, 0, 48, 0},
                                         {"GPT-NeoX 20B", 20, 0, 44, 0},
                                         {"granite-3.1-8b-instruct", 8, 0, 40, 0},
                                         {"granite-8b-code-base", 8, 0, 36, 0},
                                         {"granite-3b-code-base-128k", 3, 0, 32, 0},
                                         {"granite-3.1-3b-a800m-instruct", 3, 0, 32, 40},
                                         {"granite-4.0-h-small", 0, 0, 40, 72},
                                         {"granite-34b-code-base", 34, 0, 88, 0},
                                         {"mistral-123b-v2", 123, 0, 88, 0},
                                         {"MT-NLG 530B", 530, 0, 105, 0}}) {
    const KnownModel* model = FindKnownModel(c.name, c.billions, c.hidden);
    ASSERT_NE(model, nullptr) << c.name;
    EXPECT_EQ(model->layers, c.layers) << c.name;
    EXPECT_EQ(model->experts.count, c.experts) << c.name;
  }
}

// Another width is another model: a cut-down one, or one that shares a word.
TEST(KnownModelsTest, OthersAreNotKnown) {
  EXPECT_EQ(FindKnownModel("DeepSeek-V3 small", 2, 1024), nullptr);
  EXPECT_EQ(FindKnownModel("Qwen3.5-35B-A3B truncated to 8 layers", 0, 0), nullptr);
  EXPECT_EQ(FindKnownModel("llama-1B (nanotron)", 1.2, 2048), nullptr);
  EXPECT_EQ(FindKnownModel("GPT 175B", 175, 0), nullptr);
  EXPECT_EQ(FindKnownModel("", 0, 0), nullptr);
}

}  // namespace
}  // namespace meshwright
