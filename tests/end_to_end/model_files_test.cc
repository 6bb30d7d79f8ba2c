// From a model file to the losses of a run: the portable oracles (S18) as they stand in the zoo, and small decoders of
// every kind, on one rank and on eight.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "executor/host/run_on_threads.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/testing.h"
#include "models/model_file.h"
#include "planner/lower.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

absl::StatusOr<std::vector<double>> Losses(const ModelFile& file, Strategy strategy, int64_t steps) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, BuildGraph(file, file.training.batch));
  strategy.gradient_dtype = file.training.gradient_dtype;
  const UpdateRule update{file.training.optimizer.kind, file.training.optimizer.Attrs()};
  MESHWRIGHT_ASSIGN_OR_RETURN(const Program program, Lower(graph, strategy, update, PriceByBytes));
  RunOptions options;
  options.steps = steps;
  MESHWRIGHT_ASSIGN_OR_RETURN(const auto result, RunOnThreads(program, options, SyntheticData(1)));
  return result.losses;
}

Strategy OneRank() {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 1);
  return strategy;
}

void ExpectOracle(absl::string_view name, const std::vector<double>& expected) {
  const std::string path = absl::StrCat("models/configs/", name, ".yaml");
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(path));
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(text, path));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> losses, Losses(file, OneRank(), 6));
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-9) << "step " << i + 1;
}

// The tables have nine decimals.
TEST(ModelFilesTest, OracleB) {
  ExpectOracle("oracle_b", {0.294782409, 0.292738942, 0.290354212, 0.287596576, 0.284185660, 0.279603848});
}
TEST(ModelFilesTest, OracleD) {
  ExpectOracle("oracle_d", {1.379620138, 1.363466394, 1.354297826, 1.344983313, 1.334692313, 1.319384193});
}

struct Decoder {
  absl::string_view name, sizes;
};
class DecoderFilesTest : public testing::TestWithParam<Decoder> {};

// Data over two ranks; KV heads, FFN columns, vocabulary and experts over four.
TEST_P(DecoderFilesTest, EightRanksComputeWhatOneDoes) {
  const std::string text =
      absl::StrCat("name: d\narchitecture: {decoder: {hidden: 16, layers: 2, vocab: 32, ", GetParam().sizes,
                   "}}\ntraining: {batch: 4, sequence: 8, dtype: float64, "
                   "optimizer: {adamw: {learning_rate: 0.01}}}\n");
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(text, "d.yaml"));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> one, Losses(file, OneRank(), 4));
  EXPECT_GT(one[0], 3.3);  // ln 32 = 3.466
  EXPECT_LT(one[0], 3.7);
  EXPECT_LT(one[3], one[0]);

  Strategy strategy;
  strategy.mesh = Mesh::RowMajor({{"dp", 2}, {"tp", 4}});
  const AxisList dp = {strategy.mesh.Find("dp")}, tp = {strategy.mesh.Find("tp")};
  strategy.rules = {{"b", dp}, {"c", dp}, {"g", tp}, {"f", tp}, {"v", tp}};
  ASSERT_OK_AND_ASSIGN(const std::vector<double> eight, Losses(file, strategy, 4));
  ASSERT_EQ(eight.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(eight[i], one[i], 1e-12 * one[i]) << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DecoderFilesTest,
    testing::Values(Decoder{"gpt", "heads: 4, bias: true, tied_embeddings: true"},
                    Decoder{"llama",
                            "heads: 8, kv_heads: 4, ffn: 24, activation: swiglu, norm: rms_norm, positions: "
                            "rotary"},
                    Decoder{"relu", "heads: 4, activation: relu, positions: none, qkv_bias: true"},
                    Decoder{"mixtral",
                            "heads: 4, ffn: 24, activation: swiglu, norm: rms_norm, positions: rotary, "
                            "experts: 4, experts_per_token: 2, capacity_factor: 4"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace meshwright
