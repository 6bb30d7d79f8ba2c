#include "planner/search/bounds.h"

#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "planner/search/evaluate.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

std::string ToText(const Combination& c) {
  const Degrees& d = c.degrees;
  return absl::StrCat("data ", d.data, " tensor ", d.tensor, " pipeline ", d.pipeline, " expert ", d.expert,
                      " context ", d.context, " ", NameOf(d.exchange), " sequence ", d.sequence_parallel,
                      " micro-batch ", d.microbatch, " recompute ", NameOf(c.recompute), " parallel optimizer ",
                      c.parallel_optimizer, " parameters split ", c.shard_parameters, " copies ", d.copies, " bucket ",
                      c.bucket.raw());
}

int num_balanced = 0;  // whose layers were dealt by what the ends of the pipeline have to do

// Evaluates some of the problem's combinations and expects their bounds below; returns how many.
int ExpectBounded(const Problem& problem, std::mt19937& random, size_t most) {
  const auto graph = problem.graph(1);
  EXPECT_OK(graph);
  const DecoderFacts facts = FactsOf(*graph);
  const CostModel costs(problem.cluster);
  std::vector<Combination> combinations = DecoderSpace(problem, facts, {true, true, true}).combinations;
  std::shuffle(combinations.begin(), combinations.end(), random);
  combinations.resize(std::min(combinations.size(), most));
  const auto bounds = LowerBounds::Make(problem, costs, facts, combinations, 1);
  EXPECT_OK(bounds);
  const auto expect = [&](const Combination& combination) {
    SCOPED_TRACE(absl::StrCat(ToText(combination), " layers ", absl::StrJoin(combination.layers, " ")));
    const auto strategy = StrategyOf(problem, combination, facts.sizes);
    EXPECT_OK(strategy);
    const auto evaluation = Evaluate(problem, *strategy);
    EXPECT_OK(evaluation);
    const auto bound = bounds->Of(combination);
    EXPECT_OK(bound);
    if (!evaluation.ok() || !bound.ok()) return;
    EXPECT_LE(bound->step, evaluation->prediction.step);
    EXPECT_LE(bound->peak, evaluation->prediction.peak);
  };
  for (const Combination& combination : combinations) {
    expect(combination);
    if (bounds->Balanced(combination).empty()) continue;
    Combination balanced = combination;
    balanced.layers = bounds->Balanced(combination);
    expect(balanced);
    ++num_balanced;
  }
  return static_cast<int>(combinations.size());
}

// Design decision 7: what prunes is a lower bound of what the simulator says.
TEST(LowerBoundsTest, HoldForRandomModels) {
  int evaluated = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto pick = [&](std::vector<int64_t> values) { return values[random() % values.size()]; };
    ToyDecoder sizes{.layers = pick({1, 2, 3, 5, 8}),
                     .hidden = pick({64, 256, 1024}),
                     .heads = pick({2, 4, 8}),
                     .ffn = pick({256, 1024, 4096}),
                     .vocab = pick({250, 1000, 4096}),
                     .sequence = pick({32, 256, 1024}),
                     .tied = random() % 2 == 0,
                     .experts = pick({0, 0, 4})};
    if (random() % 4 == 0) sizes.dtype = DType::kFloat32;
    Problem problem =
        ToyDecoderProblem(sizes, pick({8, 16, 24, 64}), random() % 2 == 0 ? A100Cluster(pick({1, 2})) : H100Cluster(2));
    if (random() % 3 == 0) problem.schedule = Schedule::kGpipe;
    if (const int64_t chunks = pick({0, 1, 1, 2, 3}); chunks > 0) problem.chunks = chunks;
    if (random() % 3 == 0) problem.update.kind = OpKind::kMomentum;
    problem.gradients_mean = random() % 4 == 0;
    if (random() % 4 == 0) problem.shard_parameters = true;  // with several stages, too
    if (seed % 3 == 0) problem.update.loss_scale.emplace();
    evaluated += ExpectBounded(problem, random, 25);
  }
  EXPECT_GT(evaluated, 800);
}

TEST(LowerBoundsTest, HoldForSplitBackwardPasses) {
  int evaluated = 0;
  for (const Schedule schedule :
       {Schedule::kZeroBubbleH1, Schedule::kZeroBubbleV, Schedule::kDualPipeV, Schedule::kDualPipe}) {
    for (const bool tied : {true, false}) {
      for (const int64_t experts : {0, 4}) {
        SCOPED_TRACE(absl::StrCat(NameOf(schedule), tied ? ", tied" : "", ", experts ", experts));
        std::mt19937 random(static_cast<uint32_t>(experts + (tied ? 1 : 0)));
        Problem problem = ToyDecoderProblem({.layers = 8,
                                             .hidden = 1024,
                                             .heads = 8,
                                             .ffn = 4096,
                                             .vocab = 4096,
                                             .sequence = 256,
                                             .tied = tied,
                                             .experts = experts},
                                            64, H100Cluster(2));
        problem.schedule = schedule;
        problem.chunks = ChunksOf(schedule).value_or(1);
        for (const int64_t stages : {2, 4}) {
          problem.stages = stages;
          evaluated += ExpectBounded(problem, random, 15);
        }
      }
    }
  }
  EXPECT_EQ(evaluated, 4 * 2 * 2 * 2 * 15);
}

// The first layers dense, of the others each or every second with experts: more of either on a stage, or of both.
TEST(LowerBoundsTest, HoldForUnlikeLayers) {
  int evaluated = 0;
  for (const int64_t dense_layers : {0, 1, 3}) {
    for (const int64_t expert_every : {1, 2}) {
      const int64_t layers = dense_layers + 8 / (expert_every == 1 ? 2 : 1);
      for (const Schedule schedule : {Schedule::kOneFOneB, Schedule::kZeroBubbleH1, Schedule::kDualPipe}) {
        SCOPED_TRACE(absl::StrCat(dense_layers, " of ", layers, ", every ", expert_every, ", ", NameOf(schedule)));
        std::mt19937 random(static_cast<uint32_t>(layers));
        Problem problem = ToyDecoderProblem({.layers = layers,
                                             .hidden = 256,
                                             .heads = 8,
                                             .ffn = 1024,
                                             .vocab = 4096,
                                             .sequence = 256,
                                             .experts = 4,
                                             .dense_layers = dense_layers,
                                             .expert_every = expert_every},
                                            64, H100Cluster(1));
        problem.schedule = schedule;
        evaluated += ExpectBounded(problem, random, 20);
        problem.stages = schedule == Schedule::kDualPipe ? 2 : 4;
        evaluated += ExpectBounded(problem, random, 20);
      }
    }
  }
  EXPECT_EQ(evaluated, 3 * 2 * 3 * 2 * 20);
  EXPECT_GT(num_balanced, 20);
}

TEST(LowerBoundsTest, HoldForLongSequences) {
  std::mt19937 random(1);
  Problem problem =
      ToyDecoderProblem({.layers = 4, .hidden = 1024, .heads = 8, .ffn = 4096, .sequence = 65536}, 8, H100Cluster(2));
  problem.stages = 2;
  EXPECT_EQ(ExpectBounded(problem, random, 40), 40);
}

// What is told from a probe of fewer rows, or of more that is computed again, has no place on a device.
TEST(LowerBoundsTest, WhatIsNotProbedDoesNotFit) {
  int evaluated = 0;
  for (const int64_t experts : {0, 4}) {
    for (const int64_t gigabytes : {4, 12}) {
      SCOPED_TRACE(absl::StrCat("experts ", experts, ", ", gigabytes, " GiB"));
      std::mt19937 random(static_cast<uint32_t>(experts + gigabytes));
      Problem problem = ToyDecoderProblem(
          {.layers = 4, .hidden = 1024, .heads = 8, .ffn = 4096, .sequence = 16384, .experts = experts}, 64,
          H100Cluster(2));
      problem.cluster.device.memory = GiB(gigabytes);
      ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
      const DecoderFacts facts = FactsOf(graph);
      std::vector<Combination> combinations = DecoderSpace(problem, facts, {true, true, true}).combinations;
      ASSERT_OK_AND_ASSIGN(const LowerBounds bounds,
                           LowerBounds::Make(problem, CostModel(problem.cluster), facts, combinations, 2));
      std::shuffle(combinations.begin(), combinations.end(), random);
      int here = 0;
      for (const Combination& combination : combinations) {
        const auto bound = bounds.Of(combination);
        if (!bound.ok() || bound->probed()) continue;
        SCOPED_TRACE(ToText(combination));
        EXPECT_GT(bound->peak, CapacityOf(problem));
        if (++here > 25) continue;
        ASSERT_OK_AND_ASSIGN(const Strategy strategy, StrategyOf(problem, combination, facts.sizes));
        ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
        EXPECT_GT(evaluation.prediction.peak, CapacityOf(problem));
        ++evaluated;
      }
    }
  }
  EXPECT_EQ(evaluated, 4 * 25);
}

TEST(LowerBoundsTest, HoldForGroupsOfReplicas) {
  std::mt19937 random(7);
  Problem problem =
      ToyDecoderProblem({.layers = 4, .hidden = 256, .heads = 8, .ffn = 1024, .vocab = 1024}, 32, A100Cluster(2));
  problem.parallel_optimizer = true;
  problem.optimizer_shard_size = 4;
  EXPECT_EQ(ExpectBounded(problem, random, 60), 60);
}

// As with adapters: little trains, and neither whole gradients nor whole states are there.
TEST(LowerBoundsTest, HoldForFrozenWeights) {
  int evaluated = 0;
  for (const int64_t experts : {0, 4}) {
    for (const bool tied : {true, false}) {
      SCOPED_TRACE(absl::StrCat(tied ? "tied" : "", ", experts ", experts));
      std::mt19937 random(static_cast<uint32_t>(experts + (tied ? 1 : 0)));
      Problem problem = ToyDecoderProblem({.layers = 8,
                                           .hidden = 256,
                                           .heads = 8,
                                           .ffn = 1024,
                                           .vocab = 4096,
                                           .sequence = 256,
                                           .tied = tied,
                                           .experts = experts},
                                          32, H100Cluster(2));
      problem.graph = [whole = problem.graph](int64_t rows) -> absl::StatusOr<Graph> {
        MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, whole(rows));
        for (Tensor& tensor : graph.tensors) tensor.trainable &= tensor.name == "norm1.gamma";
        return graph;
      };
      for (const bool sharded : {true, false}) {
        problem.shard_parameters = sharded;
        evaluated += ExpectBounded(problem, random, 40);
      }
    }
  }
  EXPECT_EQ(evaluated, 2 * 2 * 2 * 40);
}

TEST(LowerBoundsTest, HoldForALargeModel) {
  std::mt19937 random(1);
  EXPECT_EQ(ExpectBounded(ToyDecoderProblem(Gpt3(), 1536, A100Cluster(128)), random, 60), 60);
}

// A bound that is far below is of no use: on a combination bound by its kernels it is within 5 % of the simulation,
// and that of memory within 10 %.
TEST(LowerBoundsTest, AreTight) {
  const Problem problem = ToyDecoderProblem(Gpt3(), 1536, A100Cluster(128));
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
  const DecoderFacts facts = FactsOf(graph);
  const CostModel costs(problem.cluster);
  const Combination combination = {
      {.data = 32, .tensor = 4, .pipeline = 8, .sequence_parallel = true}, {}, Recompute::kNone, true, false, MiB(512)};
  ASSERT_OK_AND_ASSIGN(const LowerBounds bounds, LowerBounds::Make(problem, costs, facts, {combination}, 1));
  ASSERT_OK_AND_ASSIGN(const LowerBound bound, bounds.Of(combination));
  ASSERT_OK_AND_ASSIGN(const Strategy strategy, StrategyOf(problem, combination, facts.sizes));
  ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
  EXPECT_GT(ToSeconds(bound.step), 0.95 * ToSeconds(evaluation.prediction.step));
  EXPECT_GT(static_cast<double>(bound.peak.raw()), 0.9 * static_cast<double>(evaluation.prediction.peak.raw()));
}

}  // namespace
}  // namespace meshwright
