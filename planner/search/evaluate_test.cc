#include "planner/search/evaluate.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/lower.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// Of one token and layer, forward: products 2 (3 h^2 + h^2 + 2 h f), attention 2 products of 2 s h. Head: 2 h v.
// h 64, f 256, s 32, v 256, 2 layers, 4 rows:
//   2 x (2 x (4 x 4096 + 2 x 16384) + 4 x 32 x 64) + 2 x 64 x 256 = 245,760 a token, times 128 tokens, times 3.
// Forward and the gradient of the input, and of what trains that of the weight: with frozen weights 4 FLOPs a token and
// parameter of the products, 6 without. Attention, 4 s h FLOPs a token forward, has twice as many backward all the
// same.
TEST(ModelFlopsTest, FrozenWeightsHaveNoModelFlopsOfTheirGradients) {
  const ToyDecoder sizes{.layers = 2, .hidden = 64, .heads = 4, .ffn = 256, .vocab = 256, .sequence = 32};
  ASSERT_OK_AND_ASSIGN(Graph graph, BuildToyDecoder(sizes, 2));
  double weights = 0;  // of products: all but gammas and the embedding
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::kParameter || tensor.shape.size() < 2 || tensor.name == "embedding") continue;
    weights += static_cast<double>(NumElements(tensor.shape) * graph.segment(tensor.segment).repeat);
  }
  const double tokens = 2 * 32, attention = 3 * 2 * 4 * 32 * 64;
  EXPECT_EQ(ModelFlops(graph, 3), 3 * tokens * (6 * weights + attention));
  for (Tensor& tensor : graph.tensors) tensor.trainable = tensor.name == "norm1.gamma";
  EXPECT_EQ(ModelFlops(graph, 3), 3 * tokens * (4 * weights + attention));
}

TEST(ModelFlopsTest, CountsProductsAndBothHalvesOfAttention) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildToyDecoder({}, 4));
  EXPECT_EQ(ModelFlops(graph, 1), 3.0 * 128 * 245760);
  EXPECT_EQ(ModelFlops(graph, 5), 5 * 3.0 * 128 * 245760);
}

// 8 experts, 2 for each token: the products of two dense feed-forward layers and of the router (2 h e), however many
// slots stay empty (here a quarter: 10 slots for 8 tokens).
TEST(ModelFlopsTest, EmptySlotsOfExpertsDoNotCount) {
  ASSERT_OK_AND_ASSIGN(const Graph dense, BuildToyDecoder({}, 4));
  ASSERT_OK_AND_ASSIGN(const Graph experts, BuildToyDecoder({.experts = 8}, 4));
  const double feed_forward = 2.0 * 2 * 64 * 256, router = 2.0 * 64 * 8;
  EXPECT_DOUBLE_EQ(ModelFlops(experts, 1), ModelFlops(dense, 1) + 3.0 * 128 * 2 * (feed_forward + router));
}

// Six stages of three ranks on nodes of four: those of stage 1 (3 | 4, 5) lie in two nodes, at most two in one, so that
// the switch reduces nothing for them, those of stage 3 (9, 10, 11) in one. That stage is lowered after the pattern of
// the other, and it is the fullest by what its communicators take: ends of one layer, and little that is kept.
TEST(PredictTest, AStageThatFollowsHasCommunicatorsOfItsOwn) {
  Problem problem = ToyDecoderProblem({.layers = 18}, 3 * 24, H100Cluster(6));
  problem.cluster.devices_per_node = 4;
  ASSERT_OK_AND_ASSIGN(Strategy strategy, FromDegrees(problem, {.data = 3, .pipeline = 6}));
  strategy.layers_per_stage = {1, 4, 4, 4, 4, 1};
  const CostModel costs(problem.cluster);
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(3));
  ASSERT_OK_AND_ASSIGN(const Evaluation whole, EvaluateGraph(problem, graph, costs, strategy));
  ASSERT_OK_AND_ASSIGN(const Prediction predicted, PredictGraph(problem, graph, costs, strategy));
  EXPECT_EQ(whole.prediction.fullest_class, 3u);
  EXPECT_NE(predicted.time.Total(), predicted.step);  // played in part
  EXPECT_EQ(predicted.fullest_class, 3u);
  EXPECT_EQ(predicted.outside, whole.prediction.outside);
  EXPECT_EQ(predicted.peak, whole.prediction.peak);
  EXPECT_EQ(predicted.memory, whole.prediction.memory);
  EXPECT_EQ(predicted.step, whole.prediction.step);
}

// Visits every field of a strategy. One more field, and this does not compile: it then stands here, too, and the test
// below holds for it.
template <typename Visit>
void ForEachField(Strategy& strategy, const Visit& visit) {
  auto& [mesh, rules, ops, inputs, stages, chunks, layers_per_stage, microbatches, schedule, recompute, context,
         expert_groups, recompute_ops, parallel_optimizer, optimizer_group, parallel_optimizer_threshold,
         optimizer_shard_size, optimizer_whole, shard_parameters, gradient_accumulation_shard, bucket, scatter_bucket,
         gather_bucket, bucket_ends, fusion_ids, own_parameters, parameter_broadcast, all_to_all, fuse_epilogues,
         fuse_loss, fuse_updates, gradients_mean, gradient_fp32_sync, gradient_dtype, loss_divisor, gradient_scale] =
      strategy;
  const auto each = [&visit](auto&... fields) { (visit(fields), ...); };
  each(mesh, rules, ops, inputs, stages, chunks, layers_per_stage, microbatches, schedule, recompute, context,
       expert_groups, recompute_ops, parallel_optimizer, optimizer_group, parallel_optimizer_threshold,
       optimizer_shard_size, optimizer_whole, shard_parameters, gradient_accumulation_shard, bucket, scatter_bucket,
       gather_bucket, bucket_ends, fusion_ids, own_parameters, parameter_broadcast, all_to_all, fuse_epilogues,
       fuse_loss, fuse_updates, gradients_mean, gradient_fp32_sync, gradient_dtype, loss_divisor, gradient_scale);
}

// Another value of any field, by no more than it takes.
void Alter(Mesh& mesh) { mesh = Mesh::RowMajor({{"dp", mesh.num_ranks() + 1}}); }
void Alter(bool& value) { value = !value; }
void Alter(int64_t& value) { ++value; }
void Alter(double& value) { value = std::nextafter(value, 2 * value); }
void Alter(Bytes& value) { value += Bytes(1); }
void Alter(std::optional<Bytes>& value) { value = Bytes(1); }
void Alter(std::vector<LabelRule>& rules) { rules.push_back({"b", {}}); }
void Alter(std::vector<int64_t>& values) { values.push_back(1); }
void Alter(std::set<std::string>& names) { names.insert("w"); }
template <typename Value>
void Alter(std::map<std::string, Value>& values) {
  values["w"];
}
template <typename Enum>
requires std::is_enum_v<Enum>
void Alter(Enum& value) { value = static_cast<Enum>(static_cast<int>(value) == 0 ? 1 : 0); }

// Whether Alter changed a field: sizes of what it added something to, values of the others.
template <typename Field>
std::string Seen(const Field& field) {
  if constexpr (std::is_same_v<Field, Mesh>) {
    return absl::StrCat(field.num_ranks());
  } else if constexpr (std::is_same_v<Field, Bytes>) {
    return absl::StrCat(field.raw());
  } else if constexpr (std::is_same_v<Field, std::optional<Bytes>>) {
    return absl::StrCat(field.has_value());
  } else if constexpr (std::is_enum_v<Field>) {
    return absl::StrCat(static_cast<int>(field));
  } else if constexpr (std::is_arithmetic_v<Field>) {
    return absl::StrFormat("%.17g", static_cast<double>(field));
  } else {
    return absl::StrCat(field.size());
  }
}
std::vector<std::string> FieldsOf(Strategy strategy) {
  std::vector<std::string> fields;
  ForEachField(strategy, [&](const auto& field) { fields.push_back(Seen(field)); });
  return fields;
}

// An Evaluator finds blocks by the text of BlockChoices, from nothing but which they are made, and stages and
// predictions by that of StageChoices: every field changes the text of a strategy, and every one that such choices keep
// changes theirs, however little it changes.
TEST(EvaluatorTest, KeysHoldEveryChoice) {
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor({{"dp", 2}});
  const std::vector<std::string> before = FieldsOf(strategy);
  size_t of_blocks = 0, of_stages = 0;
  for (size_t k = 0; k < before.size(); ++k) {
    SCOPED_TRACE(absl::StrCat("field ", k));
    Strategy altered = strategy;
    size_t at = 0;
    ForEachField(altered, [&](auto& field) {
      if (at++ == k) Alter(field);
    });
    ASSERT_NE(FieldsOf(altered)[k], before[k]);
    EXPECT_NE(ToText(altered), ToText(strategy));
    for (const auto& [choices, seen] : {std::pair(&BlockChoices, &of_blocks), std::pair(&StageChoices, &of_stages)}) {
      if (FieldsOf(choices(altered)) == FieldsOf(choices(strategy))) continue;
      ++*seen;
      EXPECT_NE(ToText(choices(altered)), ToText(choices(strategy)));
    }
  }
  EXPECT_GT(of_blocks, 10u);
  EXPECT_EQ(of_stages, before.size() - 1);  // all but the bucket
}

std::string RulesOf(const Strategy& strategy) {
  std::string text;
  for (const LabelRule& rule : strategy.rules) {
    text += rule.label + ":";
    for (AxisId id : rule.axes) text += strategy.mesh.axis(id).name + " ";
  }
  return text;
}

TEST(FromDegreesTest, TensorParallelRanksAreNeighbours) {
  const Problem problem = ToyDecoderProblem({}, 16, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(Strategy strategy, FromDegrees(problem, {.data = 2, .tensor = 2, .pipeline = 2}));
  EXPECT_EQ(ToText(strategy.mesh), "pp=2 dp=2 tp=2");
  EXPECT_EQ(RulesOf(strategy), "b:dp c:dp g:tp f:tp v:tp ");
  EXPECT_EQ(strategy.stages, 2);
  EXPECT_EQ(strategy.microbatches, 8);
  EXPECT_EQ(strategy.loss_divisor, 8);
  ASSERT_OK_AND_ASSIGN(strategy, FromDegrees(problem, {.data = 4, .tensor = 2, .sequence_parallel = true}));
  EXPECT_EQ(ToText(strategy.mesh), "dp=4 tp=2");
  EXPECT_EQ(RulesOf(strategy), "b:dp c:dp g:tp f:tp v:tp s:tp ");
  ASSERT_OK_AND_ASSIGN(strategy, FromDegrees(problem, {.data = 8, .expert = 4}));
  EXPECT_EQ(ToText(strategy.mesh), "dp=2 ep=4");
  EXPECT_EQ(RulesOf(strategy), "b:dp ep e:ep c:dp ");
}

TEST(FromDegreesTest, ASumOverMicroBatchesIsNotDivided) {
  Problem problem = ToyDecoderProblem({}, 16, A100Cluster(1));
  problem.loss_is_sum = true;
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, {.data = 8}));
  EXPECT_EQ(strategy.microbatches, 2);
  EXPECT_EQ(strategy.loss_divisor, 1);
}

TEST(FromDegreesTest, RefusesWhatDoesNotDivide) {
  const Problem problem = ToyDecoderProblem({}, 12, A100Cluster(1));
  EXPECT_THAT(FromDegrees(problem, {.data = 8}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a batch of 12 rows does not divide")));
  EXPECT_THAT(FromDegrees(problem, {.data = 4, .expert = 3}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not divide data parallelism 4")));
  EXPECT_THAT(FromDegrees(problem, {.data = 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least 1")));
}

// Recompute::kFull leaves out what no gradient reads: the last product of a layer and the addition behind it.
TEST(EvaluateTest, ALayersWholeForwardPassIsRunAgainWhereAsked) {
  const Problem problem = ToyDecoderProblem({}, 16, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(Strategy strategy, FromDegrees(problem, {.data = 8}));
  const auto recomputed = [&](Recompute recompute) -> absl::StatusOr<std::vector<std::string>> {
    strategy.recompute = recompute;
    MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation evaluation, Evaluate(problem, strategy));
    MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(evaluation.program));
    std::vector<std::string> names;
    for (const Block& block : evaluation.program.classes[0].blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* compute = std::get_if<Compute>(&instruction.work);
        if (compute != nullptr && compute->recompute) names.push_back(instruction.origin);
      }
    }
    return names;
  };
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> full, recomputed(Recompute::kFull));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> layer, recomputed(Recompute::kLayer));
  EXPECT_EQ(layer.size(), full.size() + 2);
  std::vector<std::string> forward;  // in the order of the forward pass
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  for (const Instruction& instruction : evaluation.program.classes[0].blocks[1].instructions) {
    if (std::holds_alternative<Compute>(instruction.work)) forward.push_back(instruction.origin);
  }
  EXPECT_EQ(layer, forward);
}

TEST(EvaluateTest, PredictionIsThatOfTheSimulatedProgram) {
  const Problem problem = ToyDecoderProblem({.tied = true}, 16, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(Strategy strategy,
                       FromDegrees(problem, {.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true}));
  strategy.recompute = Recompute::kSelective;
  strategy.parallel_optimizer = true;
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  const Program& program = evaluation.program;
  const Prediction& prediction = evaluation.prediction;
  EXPECT_OK(VerifyProgram(program));
  ASSERT_EQ(program.classes.size(), 2);

  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, CostModel(problem.cluster)));
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices));
  EXPECT_EQ(prediction.step, result.makespan);
  EXPECT_EQ(prediction.time.Total(), prediction.step);

  // 16 rows of 32 tokens on 8 devices of 312 TFLOP/s.
  ASSERT_OK_AND_ASSIGN(const Graph graph, BuildToyDecoder({.tied = true}, 16));
  EXPECT_EQ(prediction.peak_flops, Teraflops(312));
  EXPECT_NEAR(prediction.mfu, ModelFlops(graph, 1) / (ToSeconds(prediction.step) * 8 * 312e12), 1e-12);
  EXPECT_NEAR(prediction.tokens_per_second, 512 / ToSeconds(prediction.step), 1e-6);

  const RankClass& fullest = program.classes[prediction.fullest_class];
  EXPECT_EQ(prediction.arena, fullest.arena);
  EXPECT_GE(fullest.arena, program.classes[1 - prediction.fullest_class].arena);
  Bytes roles;
  for (const Bytes bytes : prediction.memory) {
    EXPECT_GE(bytes, Bytes());
    roles += bytes;
  }
  EXPECT_EQ(roles, prediction.arena);
  Bytes peak = prediction.arena;
  for (const auto& [name, bytes] : prediction.outside) peak += bytes;
  EXPECT_EQ(prediction.peak, peak);
  EXPECT_EQ(prediction.capacity, GiB(80));
}

// Context 750 MiB, one cuBLAS workspace of 8,519,680 bytes; communicators over tp and dp (2 ranks of one node each:
// 342 MiB), both together for the loss (4 ranks: 392 MiB), and the two stages (342 MiB).
TEST(EvaluateTest, MemoryOutsideTheArenaCountsEachGroupOnce) {
  const Problem problem = ToyDecoderProblem({}, 16, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Strategy strategy,
                       FromDegrees(problem, {.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true}));
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  const std::vector<std::pair<std::string, Bytes>> expected = {
      {"context and workspace", MiB(750) + Bytes(8519680)},
      {"communicators", MiB(342) + MiB(342) + MiB(392) + MiB(342)},
  };
  EXPECT_EQ(evaluation.prediction.outside, expected);
}

// Products of a layer, h 4096 and f 16384, read 3 h^2 + h^2 + 2 h f = 201,326,592 weights, two layers twice as many. In
// float8 they take and are gathered as as many bytes, half of what they are in 16 bits; transposes are as much again.
TEST(EvaluateTest, WeightsInFloat8) {
  constexpr Bytes kLayer(201326592), kWeights = kLayer * 2;
  Problem problem = ToyDecoderProblem({.hidden = 4096, .heads = 32, .ffn = 16384}, 16, H100Cluster(1));
  problem.parallel_optimizer = true;
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, {.data = 8}));
  ASSERT_OK_AND_ASSIGN(const Evaluation wide, Evaluate(problem, strategy));
  problem.graph = [build = problem.graph](int64_t rows) -> absl::StatusOr<Graph> {
    MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, build(rows));
    for (Tensor& tensor : graph.tensors) {
      const bool end = tensor.name == "embedding" || tensor.name == "head";
      if (tensor.kind == TensorKind::kParameter && tensor.shape.size() > 1 && !end) tensor.dtype = DType::kFloat8;
    }
    return graph;
  };
  const auto gathered = [](const Evaluation& of) {
    Bytes bytes;
    const RankClass& c = of.program.classes[0];
    for (const Block& block : c.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* call = std::get_if<Collective>(&instruction.work);
        if (call == nullptr || call->purpose != Purpose::kParameter) continue;
        for (const Operand& whole : instruction.writes) bytes += c.buffers[whole.buffer.index()].bytes;
      }
    }
    return bytes;
  };
  const auto parameters = [](const Evaluation& of) {
    return of.prediction.memory[static_cast<size_t>(BufferRole::kParameter)];
  };
  ASSERT_OK_AND_ASSIGN(const Evaluation narrow, Evaluate(problem, strategy));
  EXPECT_OK(VerifyProgram(narrow.program));
  EXPECT_EQ(parameters(wide) - parameters(narrow), kWeights);
  EXPECT_EQ(gathered(wide) - gathered(narrow), kLayer);  // at a time
  EXPECT_EQ(narrow.prediction.outside.back(), std::make_pair(std::string("transposes of weights"), kWeights));
  EXPECT_EQ(narrow.prediction.peak - narrow.prediction.arena, wide.prediction.peak - wide.prediction.arena + kWeights);
  EXPECT_LT(narrow.prediction.step, wide.prediction.step);
  problem.cluster.device.generation = Generation::kBlackwell;
  ASSERT_OK_AND_ASSIGN(const Evaluation blackwell, Evaluate(problem, strategy));
  EXPECT_EQ(parameters(blackwell), parameters(narrow));
  EXPECT_NE(blackwell.prediction.outside.back().first, "transposes of weights");
}

// S1.8: of the device's memory and max_device_memory the lower.
TEST(EvaluateTest, AMemoryLimitLowersTheDevices) {
  Problem problem = ToyDecoderProblem({}, 16, A100Cluster(1));
  problem.memory_limit = GiB(81);
  EXPECT_EQ(CapacityOf(problem), GiB(80));
  problem.memory_limit = GiB(1);
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, {.data = 8}));
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  EXPECT_EQ(evaluation.prediction.capacity, GiB(1));
  EXPECT_FALSE(evaluation.prediction.fits());  // context and one communicator alone are 1,142 MiB
}

// Two heads over four tensor ranks: split in two, each computed twice; the feed-forward is split in four.
TEST(EvaluateTest, HeadsThatDoNotDivideAreRepeated) {
  const Problem problem = ToyDecoderProblem({.heads = 2}, 16, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, {.data = 2, .tensor = 4}));
  EXPECT_EQ(ToText(strategy.mesh), "dp=2 tp=2 again=2");
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  EXPECT_OK(VerifyProgram(evaluation.program));
}

TEST(EvaluateTest, ExpertsOverDataParallelRanks) {
  const Problem problem = ToyDecoderProblem({.experts = 8}, 16, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, {.data = 4, .tensor = 2, .expert = 2}));
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  EXPECT_OK(VerifyProgram(evaluation.program));
}

// Groups of micro-batches that are of different sizes where the stages do not divide them: 8, 11, 14 .. for 3 stages
// and 10, 11, 14, 15 .. for 4 are those in which each peer's order alone makes stages wait for each other in a circle.
TEST(EvaluateGraphTest, InterleavedPipelinesTakeAnyNumberOfMicroBatches) {
  for (const int64_t stages : {2, 3, 4}) {
    for (const int64_t chunks : {2, 3}) {
      for (int64_t microbatches = stages; microbatches <= 5 * stages + 3; ++microbatches) {
        ToyDecoder sizes;
        sizes.layers = stages * chunks;
        Problem problem = ToyDecoderProblem(sizes, microbatches, A100Cluster(1));
        problem.cluster.devices_per_node = stages;
        problem.schedule = Schedule::kOneFOneB;
        problem.chunks = chunks;
        ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(problem, {.data = 1, .pipeline = stages}));
        ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
        const absl::StatusOr<Evaluation> whole = EvaluateGraph(problem, graph, CostModel(problem.cluster), strategy);
        SCOPED_TRACE(absl::StrCat(stages, " stages of ", chunks, " chunks, ", microbatches, " micro-batches"));
        ASSERT_OK(whole);
        EXPECT_OK(VerifyProgram(whole->program));  // what comes early overwrites nothing that is still needed
      }
    }
  }
}

}  // namespace
}  // namespace meshwright
