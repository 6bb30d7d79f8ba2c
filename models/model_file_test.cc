#include "models/model_file.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/document.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<ModelFile> ReadConfig(absl::string_view name) {
  const std::string path = absl::StrCat("models/configs/", name, ".yaml");
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseModelFile(text, path);
}

constexpr absl::string_view kMatMulRelu = R"(name: matmul_relu
inputs:     {x: {shape: [16, 32], dtype: float32}, label: {shape: [16, 16], dtype: float32}}
parameters: {w: {shape: [32, 16], init: normal}, w2: {shape: [16, 16], init: normal}}
operators:
  - {name: matmul,  op: MatMul,  inputs: [x, w],        shard: [[2, 4], [4, 1]]}
  - {name: relu,    op: ReLU,    inputs: [matmul]}
  - {name: matmul2, op: MatMul,  inputs: [relu, w2]}
  - {name: loss,    op: MSELoss, inputs: [matmul2, label]}
training: {optimizer: {momentum: {learning_rate: 0.2, momentum: 0.1}}, steps: 20, seed: 1}
parallel: {parallel_mode: auto_parallel, search_mode: sharding_propagation, dataset_strategy: data_parallel}
cluster:  {device: h100-sxm, nodes: 1, devices_per_node: 8}
)";

constexpr absl::string_view kTinyDecoder = R"(name: tiny
architecture: {decoder: {hidden: 8, layers: 2, heads: 2, vocab: 32}}
training: {batch: 4, sequence: 16}
)";

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<ModelFile> file = ParseModelFile(text, "m.yaml");
  return file.ok() ? "OK" : std::string(file.status().message());
}

// The first text with `from` replaced by `to`, which must change it.
std::string With(absl::string_view text, absl::string_view from, absl::string_view to) {
  std::string changed = absl::StrReplaceAll(text, {{from, to}});
  EXPECT_NE(changed, text) << "nothing to replace: " << from;
  return changed;
}

TEST(ModelFileTest, ReadsTheOperatorForm) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(kMatMulRelu, "m.yaml"));
  EXPECT_EQ(file.name, "matmul_relu");
  EXPECT_FALSE(file.is_decoder());
  EXPECT_EQ(file.training.batch, 16);
  EXPECT_EQ(file.training.steps, 20);
  EXPECT_EQ(file.training.optimizer.kind, OpKind::kMomentum);
  EXPECT_EQ(file.parallel.parallel_mode, ParallelMode::kAuto);
  EXPECT_EQ(file.parallel.search_mode, SearchKnob::kShardingPropagation);
  EXPECT_THAT(file.parallel.warnings, IsEmpty());
  const OperatorModel& model = std::get<OperatorModel>(file.model);
  ASSERT_EQ(model.operators.size(), 4u);
  ASSERT_TRUE(model.operators[0].shard.has_value());
  EXPECT_THAT(model.operators[0].shard->inputs[0].pieces, ElementsAre(2, 4));
  EXPECT_THAT(model.operators[0].shard->inputs[1].pieces, ElementsAre(4, 1));
  EXPECT_EQ(*file.cluster()["device"].AsString(), "h100-sxm");

  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 16));
  EXPECT_EQ(graph.NumParameters(), 32 * 16 + 16 * 16);
  EXPECT_EQ(ToText(graph), R"(graph matmul_relu
  input x float32 (16, 32)
  input label float32 (16, 16)
  parameter w float32 (32, 16)
  parameter w2 float32 (16, 16)
  loss loss float32 ()
  segment model x1
    forward  matmul: MatMul(x, w) -> matmul  [m k, k n -> m n]
    forward  relu: ReLU(matmul) -> relu  [d0 d1 -> d0 d1]
    forward  matmul2: MatMul(relu, w2) -> matmul2  [m k, k n -> m n]
    forward  loss: MSELoss(matmul2, label) -> loss  [d0 d1, d0 d1 -> ]
)");
  EXPECT_EQ(graph.op(graph.FindOp("loss")).attrs.scale, 1.0 / (16 * 16));
}

TEST(ModelFileTest, AMicroBatchHasFewerRowsAndItsOwnLossScale) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(kMatMulRelu, "m.yaml"));
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 4));
  EXPECT_EQ(graph.tensor(graph.FindTensor("x")).shape, (Shape{4, 32}));
  EXPECT_EQ(graph.tensor(graph.FindTensor("matmul2")).shape, (Shape{4, 16}));
  EXPECT_EQ(graph.op(graph.FindOp("loss")).attrs.scale, 1.0 / (4 * 16));
  EXPECT_THAT(BuildGraph(file, 0), StatusIs(absl::StatusCode::kInvalidArgument, "a micro-batch of 0 rows"));
  EXPECT_THAT(BuildGraph(file, 17), StatusIs(absl::StatusCode::kInvalidArgument, "wanted 1 to 16"));
}

TEST(ModelFileTest, AModelFileOutlivesItsText) {
  absl::StatusOr<ModelFile> parsed = absl::InternalError("");
  {
    const std::string text(kMatMulRelu);
    parsed = ParseModelFile(text, "m.yaml");
  }
  ASSERT_OK(parsed);
  const ModelFile copy = *parsed;
  parsed = absl::InternalError("");
  EXPECT_THAT(BuildGraph(copy, 8), IsOk());  // reads the operators' places in the document
  EXPECT_EQ(copy.cluster()["nodes"].line(), 11);
}

TEST(ModelFileTest, ReadsTheDecoderForm) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(kTinyDecoder, "m.yaml"));
  EXPECT_TRUE(file.is_decoder());
  EXPECT_EQ(file.parallel.parallel_mode, ParallelMode::kAuto);
  EXPECT_FALSE(file.cluster().present());
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 2));
  EXPECT_EQ(graph.tensor(graph.FindTensor("tokens")).shape, (Shape{2, 16}));
  EXPECT_EQ(graph.segments.size(), 3u);
}

TEST(ModelFileTest, WantsExactlyOneModel) {
  EXPECT_THAT(ErrorOf("name: x\n"), HasSubstr("m.yaml:1:1: found no model, wanted one of operators, architecture"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kTinyDecoder, "operators: []\n")), HasSubstr("both operators and architecture"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kTinyDecoder, "inputs: {}\n")), HasSubstr("inputs: found it, wanted it with"));
  EXPECT_THAT(ErrorOf("name: x\narchitecture: {encoder: {}}\n"), HasSubstr("training.batch: found nothing"));
  EXPECT_THAT(ErrorOf(With(kTinyDecoder, "decoder", "encoder")),
              HasSubstr("architecture.encoder: found an unknown key"));
}

TEST(ModelFileTest, ErrorsNameThePlace) {
  EXPECT_EQ(
      ErrorOf(With(kMatMulRelu, "training:", "trainig:")),
      "m.yaml:9:1: trainig: found an unknown key, wanted one of name, inputs, parameters, operators, groups, layouts, "
      "architecture, huggingface, training, parallel, cluster, context, cells, callbacks; did you mean \"training\"?");
  EXPECT_EQ(ErrorOf(With(kMatMulRelu, "[relu, w2]", "[relu, w3]")),
            "m.yaml:7:49: operators[2].inputs[1]: found \"w3\", wanted an input, a parameter or an earlier operator");
  EXPECT_EQ(
      ErrorOf(With(kMatMulRelu, "[relu, w2]", "[loss, w2]")),
      "m.yaml:7:43: operators[2].inputs[0]: found \"loss\", which does not come before matmul2, wanted an input, a "
      "parameter or an earlier operator; operators stand in the order in which they run; a circle has none");
  EXPECT_EQ(
      ErrorOf(With(kMatMulRelu, "[32, 16]", "[30, 16]")),
      "m.yaml:5:42: operators[0].inputs: found x (16, 32) and w (30, 16), wanted shapes that go together; operator "
      "\"matmul\" (MatMul): k is 32 in input 0 and 30 in input 1 [E-LAYOUT]");
  EXPECT_EQ(ErrorOf(With(kMatMulRelu, "steps: 20", "batch: 8")),
            "m.yaml:9:79: training.batch: found 8, wanted 16, dim 0 of the inputs; remove it");
  EXPECT_EQ(ErrorOf(With(kTinyDecoder, "batch: 4, ", "")),
            "m.yaml:3:11: training.batch: found nothing, wanted an "
            "integer; add it");
}

TEST(ModelFileTest, ReadsTheContext) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file,
                       ParseModelFile(absl::StrCat(kMatMulRelu,
                                                   "context: {mode: GRAPH_MODE, device_target: GPU, "
                                                   "max_device_memory: 28GB, save_graphs: true}\n"),
                                      "m.yaml"));
  EXPECT_EQ(file.context.device_target, DeviceTarget::kGpu);
  EXPECT_EQ(file.context.max_device_memory, Bytes(28'000'000'000));
  EXPECT_EQ(file.context.save_graphs, 2);  // S16.9: True is 2
  EXPECT_THAT(ErrorOf(absl::StrCat(kMatMulRelu, "context: {device_target: Ascend}\n")),
              HasSubstr("context.device_target: found \"Ascend\", wanted one of CPU, GPU"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kMatMulRelu, "context: {mode: PYNATIVE_MODE}\n")), HasSubstr("GRAPH_MODE"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kMatMulRelu, "context: {max_device_memory: 28}\n")), HasSubstr("has no unit"));
}

// S9.3, with x of 2 dims and label of 2 dims.
TEST(ModelFileTest, ChecksDatasetTuples) {
  const auto with = [](absl::string_view tuples) {
    return ErrorOf(With(kMatMulRelu, "dataset_strategy: data_parallel", absl::StrCat("dataset_strategy: ", tuples)));
  };
  EXPECT_EQ(with("[[4, 1], [4, 1]]"), "OK");
  EXPECT_EQ(with("[[4, 1], [1, 1]]"), "OK");
  EXPECT_EQ(with("[[1, 1], [1, 1]]"), "OK");
  EXPECT_EQ(with("full_batch"), "OK");
  EXPECT_THAT(with("[[4, 1]]"), HasSubstr("found 1 lists, wanted one for each of the 2 inputs"));
  EXPECT_THAT(with("[[4], [4, 1]]"), HasSubstr("wanted one number for each of the 2 dims of x"));
  EXPECT_THAT(with("[[2, 2], [4, 1]]"), HasSubstr("two dims that are split"));
  EXPECT_THAT(with("[[4, 1], [2, 1]]"), HasSubstr("found 2 pieces, wanted 4"));
  EXPECT_THAT(with("[[0, 1], [2, 1]]"), HasSubstr("wanted an integer from 1"));
  EXPECT_THAT(with("x"), HasSubstr("wanted one of data_parallel, full_batch"));
}

TEST(ModelFileTest, WarnsWhereAShardHasNoEffect) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file,
                       ParseModelFile(With(kMatMulRelu,
                                           "parallel_mode: auto_parallel, search_mode: "
                                           "sharding_propagation, dataset_strategy: data_parallel",
                                           "parallel_mode: data_parallel"),
                                      "m.yaml"));
  EXPECT_THAT(file.parallel.warnings, ElementsAre("shard of \"matmul\" has no effect in the mode data_parallel"));
}

TEST(ModelFileTest, AHuggingFaceConfigLiesBesideTheModelFile) {
  const std::string folder = testing::TempDir();
  std::ofstream(absl::StrCat(folder, "/tiny_config.json")) << R"({"model_type": "llama", "hidden_size": 8,
      "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 32})";
  const std::string text = "name: hf\nhuggingface: tiny_config.json\ntraining: {batch: 2, sequence: 4}\n";
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(text, absl::StrCat(folder, "/m.yaml")));
  EXPECT_EQ(std::get<DecoderConfig>(file.model).ffn, 16);
  EXPECT_THAT(ParseModelFile(With(text, "tiny_config", "no_such"), absl::StrCat(folder, "/m.yaml")),
              StatusIs(absl::StatusCode::kNotFound, "m.yaml:2:14: huggingface: "));
  EXPECT_THAT(file.notices, ElementsAre("training.optimizer is not given: adamw, which keeps 8 bytes a parameter",
                                        "training.dtype is not given: float32 unless --precision says otherwise"));
  // The text in place of the file, as a plan has it.
  ASSERT_OK_AND_ASSIGN(const ModelFile elsewhere, ParseModelFile(text, "/nowhere/m.yaml", file.config));
  EXPECT_EQ(std::get<DecoderConfig>(elsewhere.model).ffn, 16);
  EXPECT_THAT(ParseModelFile(file.config, "a/config.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "config.json:1:16: model_type: found the config.json of a Hugging Face model, wanted a model "
                       "file, which names it; write `name: ..`, `huggingface: config.json` and"));
  EXPECT_THAT(ErrorOf(With(text, "tiny_config.json", "../../etc/passwd")), HasSubstr("wanted a name of letters"));
  EXPECT_THAT(ErrorOf(With(text, "tiny_config.json", "/etc/passwd")), HasSubstr("wanted a name of letters"));
}

// What the checkpoint is stored in, under its old and its new name, unless the model file says something.
TEST(ModelFileTest, ATypeThatNobodyGivesIsTheCheckpoints) {
  const std::string text = "name: hf\nhuggingface: config.json\ntraining: {batch: 2, sequence: 4, optimizer: adamw}\n";
  const auto config = [](absl::string_view type) {
    return absl::StrCat(R"({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 32, )",
                        type, "}");
  };
  for (const char* const key : {"torch_dtype", "dtype"}) {
    const std::string given = config(absl::StrCat("\"", key, "\": \"bfloat16\""));
    ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(text, "m.yaml", given));
    EXPECT_EQ(file.training.dtype, DType::kBFloat16);
    EXPECT_EQ(file.training.gradient_dtype, DType::kFloat32);
    EXPECT_THAT(file.notices, ElementsAre("training.dtype is not given: bfloat16, as the checkpoint"));
    ASSERT_OK_AND_ASSIGN(const ModelFile own, ParseModelFile(With(text, "adamw", "adamw, dtype: float16"), "m", given));
    EXPECT_EQ(own.training.dtype, DType::kFloat16);
    EXPECT_THAT(own.notices, IsEmpty());
  }
  ASSERT_OK_AND_ASSIGN(const ModelFile nested,
                       ParseModelFile(text, "m.yaml",
                                      absl::StrCat(R"({"model_type": "mistral3", "text_config": )",
                                                   config(R"("dtype": "float16")"), "}")));
  EXPECT_EQ(nested.training.dtype, DType::kFloat16);
  ASSERT_OK_AND_ASSIGN(const ModelFile none, ParseModelFile(text, "m.yaml", config("\"torch_dtype\": null")));
  EXPECT_EQ(none.training.dtype, DType::kFloat32);
  EXPECT_THAT(
      ParseModelFile(text, "m.yaml", config("\"torch_dtype\": \"auto\"")),
      StatusIs(absl::StatusCode::kInvalidArgument, "torch_dtype: found \"auto\", wanted one of float64, float32"));
}

TEST(ModelFileTest, NoTrainerStoresAllInEightBits) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file,
                       ParseModelFile("name: d\narchitecture: {decoder: {hidden: 16, layers: 4, heads: 2, vocab: 32}}\n"
                                      "training: {batch: 2, sequence: 8, dtype: float8, optimizer: adamw}\n",
                                      "m.yaml"));
  EXPECT_THAT(file.notices, ElementsAre(HasSubstr("time and memory are bounds of what that gains")));
}

TEST(ModelFileTest, ASequenceFromOutsideTakesThePlaceOfTheFiles) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ParseModelFile(kTinyDecoder, "m.yaml", {}, 4));
  EXPECT_EQ(file.training.sequence, 4);
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 2));
  EXPECT_EQ(graph.tensor(graph.FindTensor("tokens")).shape, (Shape{2, 4}));
}

struct Counted {
  absl::string_view config;
  int64_t parameters;
};
class ConfigTest : public testing::TestWithParam<Counted> {};

TEST_P(ConfigTest, HasThePublishedNumberOfParameters) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ReadConfig(GetParam().config));
  EXPECT_EQ(file.name, GetParam().config);
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 1));
  EXPECT_EQ(graph.NumParameters(), GetParam().parameters);
  EXPECT_TRUE(file.cluster().present());
  EXPECT_THAT(file.parallel.warnings, IsEmpty());
  EXPECT_THAT(file.notices, IsEmpty());
}

// Of the decoders, with h hidden, v vocabulary, p positions, L layers, f ffn, k KV heads x head size:
//   GPT (biases, tied):     v h + p h + L (12 h^2 + 13 h) + 2 h, for f = 4 h
//   Llama (no biases):      2 v h + L (2 h^2 + 2 h k + 3 h f + 2 h) + h
//   Mixtral (E experts):    2 v h + L (2 h^2 + 2 h k + 3 E h f + E h + 2 h) + h
// gpt2_124m: 38,597,376 + 786,432 + 12 x 7,087,872 + 1,536. The totals are those of the published checkpoints.
INSTANTIATE_TEST_SUITE_P(
    Zoo, ConfigTest,
    testing::Values(
        Counted{"gpt2_124m", 124'439'808}, Counted{"gpt2_350m", 354'823'168}, Counted{"gpt2_1_5b", 1'557'611'200},
        Counted{"gpt2_tiny", 118'528}, Counted{"gpt_bytes", 120'576}, Counted{"gpt3_175b", 174'604'259'328},
        Counted{"llama3_8b", 8'030'261'248}, Counted{"llama3_70b", 70'553'706'496},
        Counted{"llama3_405b", 405'853'388'800}, Counted{"mixtral_8x7b", 46'702'792'704},
        // models/hugging_face_test.cc says of what
        Counted{"deepseek_v3", 671'026'404'352}, Counted{"qwen3_30b_a3b", 30'532'122'624},
        Counted{"qwen3_next_80b_a3b", 79'674'391'296}, Counted{"nemotron3_nano_30b_a3b", 31'577'937'344},
        // With a further norm of h behind each half and norms of 2 x 128 for queries
        // and keys, 32 x 128 wide queries and 16 x 128 keys, and one embedding.
        Counted{"gemma3_27b",
                int64_t{262208} * 5376 + 5376 +
                    62 * (int64_t{2} * 5376 * 4096 + 2 * 5376 * 2048 + 3 * 5376 * 21504 + 4 * 5376 + 2 * 128)},
        // An embedding and a head; of 61 layers latent attention (7168 x 1536 x 64 x 192 for queries, 7168 x
        // 576, 512 x 64 x 256, the output, two norms inside) and two norms, of one the dense layer, of 60 the
        // router, 384 experts and a shared one; a last norm.
        Counted{"kimi_k2", 2 * int64_t{163840} * 7168 +
                               61 * (int64_t{7168} * 1536 + 1536 + int64_t{1536} * 64 * 192 + int64_t{7168} * 576 +
                                     512 + int64_t{512} * 64 * 256 + int64_t{64} * 128 * 7168 + 2 * 7168) +
                               int64_t{3} * 7168 * 18432 + 60 * (int64_t{7168} * 384 + 385 * int64_t{3} * 7168 * 2048) +
                               7168},
        Counted{"matmul_relu", 768},
        // 784 x 512 + 512 x 512 + 512 x 10, and 512 + 512 + 10 biases
        Counted{"mnist_mlp_manual", 669'706}, Counted{"mnist_mlp_layout", 668'672},
        Counted{"mlp_interleaved", 3 * 4096 * 4096}, Counted{"oracle_b", 768},
        Counted{"oracle_d", 12 * 8 + 8 * 8 + 8 * 4}),
    [](const auto& info) { return std::string(info.param.config); });

TEST(ConfigTest, TheLayoutExampleIsAsInItsDocument) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ReadConfig("mnist_mlp_layout"));
  const OperatorModel& model = std::get<OperatorModel>(file.model);
  const OpSharding& matmul1 = *model.operators[1].shard;
  EXPECT_THAT(matmul1.device_matrix, ElementsAre(2, 2, 2));
  EXPECT_THAT(matmul1.axes, ElementsAre("dp", "sp", "mp"));
  EXPECT_THAT(matmul1.inputs[0].dims, ElementsAre(ElementsAre("mp"), ElementsAre("sp", "dp")));
  EXPECT_THAT(matmul1.inputs[1].dims, ElementsAre(ElementsAre("sp", "dp"), IsEmpty()));
  EXPECT_THAT(model.operators[2].shard->inputs[0].pieces, ElementsAre(4, 1));
  EXPECT_EQ(file.context.max_device_memory, Bytes(28'000'000'000));
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 256));
  EXPECT_EQ(graph.tensor(graph.FindTensor("flatten")).shape, (Shape{256, 784}));
}

TEST(ConfigTest, TheOraclesAreInFloat64AndByFormula) {
  ASSERT_OK_AND_ASSIGN(const ModelFile file, ReadConfig("oracle_d"));
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildGraph(file, 8));
  const Tensor& w1 = graph.tensor(graph.FindTensor("w1"));
  EXPECT_EQ(w1.dtype, DType::kFloat64);
  EXPECT_EQ(w1.init.kind, Initializer::Kind::kFormula);
  EXPECT_EQ(w1.init.a, 3);
  EXPECT_EQ(w1.init.b, 5);
  EXPECT_EQ(w1.init.modulus, 7);
  EXPECT_EQ(w1.init.subtract, 3);
  EXPECT_EQ(w1.init.divide, 10);
  EXPECT_EQ(graph.tensor(graph.loss).dtype, DType::kFloat64);
  EXPECT_EQ(file.training.gradient_dtype, DType::kFloat64);
  EXPECT_EQ(file.parallel.dataset_strategy, DatasetStrategy::kFullBatch);
}

}  // namespace
}  // namespace meshwright
