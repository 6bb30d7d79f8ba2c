#include "tools/validate/row_model.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<DecoderConfig> ModelOf(const std::string& text, std::vector<std::string>* defaults) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table, ParseCsv(text, "t.csv"));
  return ReadRowModel(CsvCells(table, table.rows[0]), 1024, defaults);
}

// "4b": between 2.7 and 6.7, nearer to 2.7 in ratio: hidden 2560. A layer has 12 h^2 = 78.6 M, the embedding 131 M:
// (4000 - 131) / 78.6 = 49.2 layers. 2560 / 128 = 20 heads.
TEST(RowModelTest, SizesFromTheNumberInTheName) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig model, ModelOf("model\nGPT 4b\n", &defaults));
  EXPECT_EQ(model.hidden, 2560);
  EXPECT_EQ(model.layers, 49);
  EXPECT_EQ(model.heads, 20);
  EXPECT_THAT(defaults, ElementsAre("hidden 2560", "vocab 51200", "heads 20", "kv_heads 20", "ffn 10240", "layers 49"));
  // 12 x 49 x 2560^2 and 2560 x 51200.
  EXPECT_EQ(NumParameters(model), 12.0 * 49 * 2560 * 2560 + 2560.0 * 51200);
}

// Qwen3 235B-A22B: a layer has 4096 x 128 x (2 x 64 + 2 x 4) of attention and 3 x 4096 x 1536 of each expert; two
// matrices of 4096 x 151936 beside 94 of them. 8 of its 128 experts are the 22 billion of its name.
TEST(RowModelTest, AttentionCountsOnceBesideExperts) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(DecoderConfig model, ModelOf("model\nQwen3-235B-A22B\n", &defaults));
  const double attention = 4096.0 * 128 * 136, expert = 3.0 * 4096 * 1536, ends = 2.0 * 4096 * 151936;
  EXPECT_EQ(NumParameters(model), 94 * (attention + 128 * expert) + ends);
  model.experts = 8;
  EXPECT_NEAR(NumParameters(model) / 1e9, 22, 0.2);
}

// 46.7 billion parameters as published, also where a column says how many experts; others are another model.
TEST(RowModelTest, ExpertsOfAKnownModelMayHaveAColumn) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig known, ModelOf("model,experts\nMixtral 8x7B,8\n", &defaults));
  EXPECT_NEAR(NumParameters(known) / 1e9, 46.7, 0.1);
  EXPECT_EQ(known.experts_per_token, 2);
  EXPECT_THAT(ModelOf("model,experts\nMixtral,16\n", &defaults),
              StatusIs(absl::StatusCode::kUnimplemented, "not given: hidden"));
}

// A known model's width with other heads is another model.
TEST(RowModelTest, HeadsOfTheRowGoBeforeThoseOfTheKnownModel) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig own, ModelOf("model\nLlama-3 8B\n", &defaults));
  EXPECT_EQ(own.head_dim, 128);
  EXPECT_EQ(own.kv_heads, 8);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig other, ModelOf("model,heads\nLlama-3 8B,16\n", &defaults));
  EXPECT_EQ(other.head_dim, 256);
  EXPECT_EQ(other.kv_heads, 16);
}

// Two layers of 4 h^2 + 3 h ffn = 16 x 256^2, and 1024 x 256 for an embedding: 2.36 million with one, 2.62 with two.
TEST(RowModelTest, OneEmbeddingOrTwoByTheNumberOfParameters) {
  std::vector<std::string> defaults;
  const std::string sizes = "model,layers,hidden,heads,ffn,vocab,params_b\nLlama-like,2,256,4,1024,1024,";
  ASSERT_OK_AND_ASSIGN(const DecoderConfig one, ModelOf(sizes + "0.00236\n", &defaults));
  EXPECT_TRUE(one.tied_embeddings);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig two, ModelOf(sizes + "0.00262\n", &defaults));
  EXPECT_FALSE(two.tied_embeddings);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig neither, ModelOf(sizes + "0.0021\n", &defaults));
  EXPECT_FALSE(neither.tied_embeddings);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig unknown, ModelOf(sizes + "\n", &defaults));
  EXPECT_FALSE(unknown.tied_embeddings);
}

// 14400 / 128 is no integer; of the divisors that 8 ranks split, 120 heads of 120 are nearest to 128.
TEST(RowModelTest, HeadsDivideAndSplit) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig model, ModelOf("model,hidden,layers,tp\nGPT,14400,2,8\n", &defaults));
  EXPECT_EQ(model.heads, 120);
}

// Of the rows with this hidden size the one nearest in layers, if its heads split over 8 ranks.
TEST(RowModelTest, HeadsOfTheTablesOtherRows) {
  std::vector<std::string> defaults;
  const std::string rows =
      "GPT,14400,80,8,\nGPT,14400,8,8,32\nGPT,14400,78,8,96\nGPT,14400,80,2,90\nGPT,1024,80,8,16\n";
  ASSERT_OK_AND_ASSIGN(const DecoderConfig model, ModelOf("model,hidden,layers,tp,heads\n" + rows, &defaults));
  EXPECT_EQ(model.heads, 96);
}

TEST(RowModelTest, NothingToGuessFrom) {
  std::vector<std::string> defaults;
  EXPECT_EQ(std::string(ModelOf("model\nnobody\n", &defaults).status().message()), "not given: hidden");
  EXPECT_EQ(std::string(ModelOf("model,hidden\nnobody,64\n", &defaults).status().message()), "not given: layers");
  EXPECT_EQ(std::string(ModelOf("model,hidden,layers\nA-MoE,64,2\n", &defaults).status().message()),
            "experts not given: A-MoE");
}

TEST(RowModelTest, KnownModelsFillWhatIsLeftOut) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig llama, ModelOf("model,vocab\nLLAMA3-8B,128000\n", &defaults));
  EXPECT_EQ(llama.ffn, 14336);
  EXPECT_EQ(llama.kv_heads, 8);
  EXPECT_EQ(llama.vocab, 128000);  // the row's own
  // The row's ffn is that of no expert.
  defaults.clear();
  ASSERT_OK_AND_ASSIGN(const DecoderConfig qwen, ModelOf("model,hidden,layers,heads,kv_heads,ffn,vocab\n"
                                                         "Qwen3_30B_a3B,2048,48,32,4,6144,151936\n",
                                                         &defaults));
  EXPECT_EQ(qwen.ffn, 768);
  EXPECT_EQ(qwen.head_dim, 128);
  EXPECT_EQ(qwen.experts, 128);
  EXPECT_THAT(defaults, ElementsAre("experts 128 of 768, 8 a token"));
}

// Nemotron 3 Nano's and Qwen3-Next's config.json: 31.6 and 79.7 billion, norms and biases aside.
TEST(RowModelTest, KnownHybrids) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig nano, ModelOf("model\nNemotron 3 Nano 30B-A3B\n", &defaults));
  EXPECT_EQ(nano.layer_pattern.size(), 52u);
  EXPECT_EQ(nano.activation, Activation::kSquaredRelu);
  EXPECT_EQ(nano.positions, Positions::kNone);
  EXPECT_NEAR(NumParameters(nano), 31.578e9, 0.02e9);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig next, ModelOf("model\nQwen3-Next-80B-A3B\n", &defaults));
  EXPECT_EQ(next.full_attention_every, 4);
  EXPECT_TRUE(next.attention_gate);
  EXPECT_NEAR(NumParameters(next), 79.674e9, 0.08e9);
  // Of fewer layers the first of the pattern.
  ASSERT_OK_AND_ASSIGN(const DecoderConfig cut, ModelOf("model,layers\nNemotron-3-Nano-30B-A3B,6\n", &defaults));
  EXPECT_EQ(cut.layer_pattern, "MEMEM*");
}

// What a name says of layers and experts counts.
TEST(RowModelTest, TruncatedModels) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(const DecoderConfig model,
                       ModelOf("model\nQwen3.5-35B-A3B truncated to 8 layers / 6 experts\n", &defaults));
  EXPECT_EQ(model.layers, 8);
  EXPECT_EQ(model.experts, 6);
  EXPECT_EQ(model.experts_per_token, 6);
  EXPECT_EQ(model.full_attention_every, 4);
}

// Megatron-Core's letters and sizes. 2 x 1024 / 64 = 32 heads.
TEST(RowModelTest, PatternsOfHybrids) {
  std::vector<std::string> defaults;
  const std::string header = "model,hidden,heads,layer_pattern\n";
  ASSERT_OK_AND_ASSIGN(const DecoderConfig model,
                       ModelOf(header + "a hybrid 1b,1024,16,M-M*-|M-M*-/*-/*-\n", &defaults));
  EXPECT_EQ(model.layer_pattern, "M-M*-M-M*-");
  EXPECT_EQ(model.layers, 10);
  EXPECT_EQ(model.mtp_layers, 2);
  EXPECT_EQ(model.linear_attention.form, LinearForm::kStateSpace);
  EXPECT_EQ(model.linear_attention.value_heads, 32);
  EXPECT_EQ(model.linear_attention.key_heads, 8);
  ASSERT_OK_AND_ASSIGN(const DecoderConfig delta, ModelOf(header + "a hybrid 1b,1024,16,G-G*-\n", &defaults));
  EXPECT_EQ(delta.linear_attention.form, LinearForm::kGatedDelta);
  EXPECT_EQ(delta.linear_attention.value_heads, 32);
  const auto refused = [&](const std::string& pattern) {
    return std::string(ModelOf(header + "a hybrid 1b,1024,16," + pattern + "\n", &defaults).status().message());
  };
  EXPECT_EQ(refused("M-G-"), "layers of both M and G: M-G-");
  EXPECT_EQ(refused("M-D-"), "a pattern of other letters than M, G, *, - and E: M-D-");
  EXPECT_EQ(refused("M-ME"), "experts not given: layers M-ME");
}

TEST(RowModelTest, ExpertsFromColumns) {
  std::vector<std::string> defaults;
  ASSERT_OK_AND_ASSIGN(
      const DecoderConfig model,
      ModelOf("model,hidden,layers,experts,experts_per_token,expert_ffn\nA-MoE,64,2,16,4,32\n", &defaults));
  EXPECT_EQ(model.experts, 16);
  EXPECT_EQ(model.experts_per_token, 4);
  EXPECT_EQ(model.ffn, 32);
}

TEST(RowModelTest, SharedExperts) {
  const auto shared = [](const std::string& columns, const std::string& cells) {
    std::vector<std::string> defaults;
    const auto model = ModelOf(absl::StrCat("model,layers,", columns, "\n", cells, "\n"), &defaults);
    return model.ok() ? model->shared_expert_ffn : -1;
  };
  constexpr char kSizes[] = "hidden,experts,experts_per_token,expert_ffn";
  EXPECT_EQ(shared(kSizes, "A-MoE,2,64,16,4,32"), 0);
  EXPECT_EQ(shared(absl::StrCat(kSizes, ",shared_expert_ffn"), "A-MoE,2,64,16,4,32,48"), 48);
  EXPECT_EQ(shared(absl::StrCat(kSizes, ",shared_experts"), "A-MoE,2,64,16,4,32,2"), 2 * 32);
  // A published model's, of two experts' width; none where the row says so; of a dense model there is none.
  EXPECT_EQ(shared("gpus", "DeepSeek-V2-Lite,27,8"), 2 * 1408);
  EXPECT_EQ(shared("hidden,experts,shared_experts", "DeepSeek-V2-Lite,27,2048,64,0"), 0);
  EXPECT_EQ(shared("hidden,heads,shared_experts", "GPT,2,64,4,1"), 0);
}

TEST(RowModelTest, LayersWithoutExperts) {
  const auto model = [](const std::string& columns, const std::string& cells) {
    std::vector<std::string> defaults;
    return ModelOf(absl::StrCat("model,layers,", columns, "\n", cells, "\n"), &defaults);
  };
  const auto text = [&](const std::string& columns, const std::string& cells) {
    const auto read = model(columns, cells);
    return read.ok() ? absl::StrCat(read->dense_layers, " ", read->expert_every, " ", read->dense_ffn)
                     : std::string(read.status().message());
  };
  // Published ones, whole and cut: 16 layers begin as 61 do, 5 of pairs with one more.
  EXPECT_EQ(text("gpus", "DeepSeek-V3,61,8"), "3 1 18432");
  EXPECT_EQ(text("gpus", "DeepSeek-V3,16,8"), "3 1 18432");
  EXPECT_EQ(text("gpus", "DeepSeek-V3,2,8"), "1 1 18432");
  EXPECT_EQ(text("gpus", "Llama4-Maverick,48,8"), "0 2 16384");
  EXPECT_EQ(text("gpus", "Llama4-Maverick,5,8"), "1 2 16384");
  EXPECT_EQ(text("gpus", "Llama4-Scout,48,8"), "0 1 0");
  ASSERT_OK_AND_ASSIGN(const DecoderConfig maverick, model("gpus", "Llama4-Maverick,48,8"));
  EXPECT_NEAR(NumParameters(maverick), 400e9, 1e9);
  // Columns; without a width what a token goes through in the others, 4 x 32.
  constexpr char kSizes[] = "hidden,experts,experts_per_token,expert_ffn,";
  const auto columns = [&](const std::string& names, const std::string& cells) {
    return text(absl::StrCat(kSizes, names), absl::StrCat("A-MoE,5,64,16,4,32,", cells));
  };
  EXPECT_EQ(columns("dense_layers", "2"), "2 1 128");
  EXPECT_EQ(columns("dense_layers,dense_ffn,expert_every", "1,96,2"), "1 2 96");
  EXPECT_EQ(columns("expert_every", "([0]*2+[1]*3)"), "2 1 128");
  EXPECT_EQ(columns("expert_every", "1"), "0 1 0");
  EXPECT_EQ(columns("dense_layers", "5"),
            "layers without experts that do not fit: 5 layers, the first 5 dense, experts every 1");
}

// 64 experts, whose fullest has 0.62 more than the mean, deviate by 0.62 / 2.37 = 0.262. Eight on each of 16 ranks:
// 0.0925 a rank, and of 16 draws the largest is 1.766: 1.163.
TEST(RowModelTest, ARankEvensOutItsExperts) {
  EXPECT_NEAR(NaturalRouting(64, 64, Balance::kLoss), 1 + kFullestByLoss, 1e-9);
  EXPECT_NEAR(NaturalRouting(64, 64, Balance::kBias), 1 + kFullestByBias, 1e-9);
  EXPECT_NEAR(NaturalRouting(128, 16, Balance::kLoss), 1.163, 0.003);
  EXPECT_EQ(NaturalRouting(128, 1, Balance::kLoss), 1);
  // 0.53 / sqrt(8) of a rank, the largest of 8 draws 1.42 deviations above their mean.
  EXPECT_NEAR(NaturalRouting(64, 8, Balance::kTuned), 1.267, 0.003);
}

TEST(RowModelTest, OddNamesAreNoNumbers) {
  for (const std::string name :
       {"99999999999999999999999999b", "0b", "b", "x99999999999999999x1b", "1.2.3b", "\xff 1b"}) {
    std::vector<std::string> defaults;
    const auto model = ModelOf(absl::StrCat("model\n", name, "\n"), &defaults);
    if (model.ok()) {
      EXPECT_GT(model->layers, 0) << name;
    }
  }
}

TEST(RowModelTest, TokensOfAStepGrowWithTheModel) {
  EXPECT_EQ(DefaultTokens(125e6), 1 << 19);
  EXPECT_EQ(DefaultTokens(2.7e9), 1 << 20);
  EXPECT_EQ(DefaultTokens(175e9), 1 << 22);
}

TEST(RowModelTest, TokensOfARowAreThoseThatAFamilyWasPretrainedWith) {
  EXPECT_EQ(DefaultSequence("BERT 110m"), 512);
  for (const char* name : {"GPT-2 124M", "gpt2-xl"}) EXPECT_EQ(DefaultSequence(name), 1024) << name;
  for (const char* name : {"Llama 2 7B", "LLAMA2-70B", "llama-2-13b-hf"})
    EXPECT_EQ(DefaultSequence(name), 4096) << name;
  for (const char* name : {"Llama 3.1 8B", "llama3-8b", "Meta-Llama-3-70B", "Gemma 7B"}) {
    EXPECT_EQ(DefaultSequence(name), 8192) << name;
  }
  // Sizes, no versions.
  for (const char* name :
       {"LLaMA 33B", "LLaMA 7B", "Llama 3B", "Sheared LLaMA 2.7B", "GPT-20B", "GPT 2.7B", "GPT-2B"}) {
    EXPECT_EQ(DefaultSequence(name), 2048) << name;
  }
}

}  // namespace
}  // namespace meshwright
