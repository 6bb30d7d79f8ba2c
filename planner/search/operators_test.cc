#include "planner/search/operators.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Problem SeedB(SearchMode mode) {
  Problem problem;
  problem.name = "seed b";
  problem.graph = BuildSeedB;
  problem.batch = 16;
  problem.update.kind = OpKind::kMomentum;
  problem.cluster = A100Cluster(1);
  problem.mode = mode;
  return problem;
}

OpSharding Shard(std::vector<std::vector<int64_t>> tuples) {
  OpSharding sharding;
  for (auto& pieces : tuples) sharding.inputs.push_back({std::move(pieces), {}});
  return sharding;
}

std::string LayoutsOf(const Strategy& strategy, const std::string& op) {
  std::string text;
  for (const Layout& layout : strategy.ops.at(op).inputs) text += ToText(layout, strategy.mesh);
  return text;
}

void ExpectValid(const Problem& problem, const SearchResult& result) {
  for (const Candidate& candidate : result.ranked) {
    ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, candidate.strategy));
    EXPECT_OK(VerifyProgram(evaluation.program));
    EXPECT_EQ(evaluation.prediction.step, candidate.prediction.step);
  }
}

TEST(OperatorSearchTest, StandAloneIsOneRank) {
  const Problem problem = SeedB(SearchMode::kStandAlone);
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  ASSERT_EQ(result.ranked.size(), 1);
  EXPECT_EQ(result.ranked[0].strategy.mesh.num_ranks(), 1);
  ExpectValid(problem, result);
}

TEST(OperatorSearchTest, DataParallelSplitsRowsAndKeepsParametersWhole) {
  Problem problem = SeedB(SearchMode::kDataParallel);
  problem.shards["matmul"] = Shard({{2, 4}, {4, 1}});  // has no effect in this mode (S5.2)
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  ASSERT_EQ(result.ranked.size(), 1);
  const Strategy& strategy = result.ranked[0].strategy;
  EXPECT_EQ(LayoutsOf(strategy, "matmul"), "{x4.x2.x1 | -}{- | -}");
  EXPECT_EQ(LayoutsOf(strategy, "matmul2"), "{x4.x2.x1 | -}{- | -}");
  EXPECT_EQ(LayoutsOf(strategy, "loss"), "{x4.x2.x1 | -}{x4.x2.x1 | -}");
  EXPECT_EQ(result.ranked[0].degrees.data, 8);
  ExpectValid(problem, result);
}

// Rows go through layers and experts: the same step as the decoder's search finds with that one degree.
TEST(OperatorSearchTest, DataParallelSplitsRowsInLayersToo) {
  for (const int64_t experts : {0, 4}) {
    SCOPED_TRACE(experts);
    ToyDecoder sizes;
    sizes.experts = experts;
    Problem problem = ToyDecoderProblem(sizes, 32, A100Cluster(1));
    problem.data_parallel = 8;
    problem.expert_parallel = 1;
    problem.microbatch = 4;
    problem.recompute = Recompute::kNone;
    problem.parallel_optimizer = problem.shard_parameters = false;
    problem.bucket = MiB(64);
    ASSERT_OK_AND_ASSIGN(const SearchResult degrees, Search(problem));
    problem.mode = SearchMode::kDataParallel;
    ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
    ASSERT_EQ(result.ranked.size(), 1);
    EXPECT_EQ(result.ranked[0].prediction.step, degrees.ranked[0].prediction.step);
    EXPECT_EQ(result.ranked[0].prediction.peak, degrees.ranked[0].prediction.peak);
    ExpectValid(problem, result);
  }
}

TEST(OperatorSearchTest, DefaultsLeaveWhatIsConfigured) {
  Problem problem = SeedB(SearchMode::kDefaults);
  problem.shards["matmul"] = Shard({{2, 4}, {4, 1}});
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  const Strategy& strategy = result.ranked[0].strategy;
  EXPECT_EQ(LayoutsOf(strategy, "matmul"), "{x4 | x2.x1}{x2.x1 | -}");
  EXPECT_EQ(LayoutsOf(strategy, "relu"), "{x4.x2.x1 | -}");
  EXPECT_EQ(LayoutsOf(strategy, "matmul2"), "{x4.x2.x1 | -}{- | -}");
  ExpectValid(problem, result);
}

TEST(OperatorSearchTest, PropagationOfSeedB) {
  Problem problem = SeedB(SearchMode::kShardingPropagation);
  problem.shards["matmul"] = Shard({{2, 4}, {4, 1}});
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  const Strategy& strategy = result.ranked[0].strategy;
  EXPECT_EQ(LayoutsOf(strategy, "relu"), "{x4 | x2.x1}");
  EXPECT_EQ(LayoutsOf(strategy, "matmul2"), "{x4 | x2.x1}{x2.x1 | -}");
  EXPECT_EQ(ToText(strategy.inputs.at("x"), strategy.mesh), "{x4.x2.x1 | -}");
  ExpectValid(problem, result);
}

// S15.10: on 8 devices each product of seed B costs least where it is not cut.
TEST(OperatorSearchTest, RecursiveProgrammingOfSeedB) {
  const Problem problem = SeedB(SearchMode::kRecursiveProgramming);
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  EXPECT_EQ(LayoutsOf(result.ranked[0].strategy, "matmul"), "{- | -}{- | -}");
  EXPECT_THAT(result.guarantee, HasSubstr("matmul ---"));
  ExpectValid(problem, result);
  Problem sharded = problem;
  sharded.parallel_optimizer = true;
  sharded.shards["matmul2"] = Shard({{2, 4}, {4, 1}});
  ASSERT_OK_AND_ASSIGN(const SearchResult mixed, Search(sharded));
  EXPECT_EQ(LayoutsOf(mixed.ranked[0].strategy, "matmul2"), "{x4 | x2.x1}{x2.x1 | -}");
  ExpectValid(sharded, mixed);
}

// S15.9: memory is warned about. S14.8 of whole tensors: w 32 x 16, w2 16 x 16, x 16 x 32, what relu makes and the two
// that the loss reads, 16 x 16 each: 2048 elements of 4 bytes.
TEST(OperatorSearchTest, RecursiveProgrammingWarnsOfMemory) {
  Problem problem = SeedB(SearchMode::kRecursiveProgramming);
  problem.cost_model.device_memory_capacity = Bytes(8192);
  ASSERT_OK_AND_ASSIGN(const SearchResult fits, Search(problem));
  EXPECT_THAT(fits.warnings, IsEmpty());
  problem.cost_model.device_memory_capacity = Bytes(8191);
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  EXPECT_THAT(result.warnings, ElementsAre("recursive_programming does not look at memory: the plan takes 8192 bytes, "
                                           "device_memory_capacity is 8191"));
}

TEST(OperatorSearchTest, DynamicProgrammingOfSeedB) {
  for (const PriceKind prices : {PriceKind::kBytes, PriceKind::kTime}) {
    Problem problem = SeedB(SearchMode::kDynamicProgramming);
    problem.search_prices = prices;
    ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
    EXPECT_EQ(result.considered, 11 * 5 * 11 * 5);  // matmul, relu, matmul2, loss
    EXPECT_EQ(result.simulated, 1);
    EXPECT_THAT(result.guarantee, HasSubstr("the least of 3025 combinations of strategies"));
    ExpectValid(problem, result);
    problem.shards["matmul"] = Shard({{2, 4}, {4, 1}});
    ASSERT_OK_AND_ASSIGN(const SearchResult given, Search(problem));
    EXPECT_EQ(LayoutsOf(given.ranked[0].strategy, "matmul"), "{x4 | x2.x1}{x2.x1 | -}");
    ExpectValid(problem, given);
    problem.shards.clear();
    problem.stages = 2;  // R25
    EXPECT_THAT(Search(problem), StatusIs(absl::StatusCode::kFailedPrecondition, "plans one stage, found 2"));
  }
  Problem small = SeedB(SearchMode::kDynamicProgramming);
  small.cost_model.device_memory_capacity = Bytes(100);
  EXPECT_THAT(Search(small), StatusIs(absl::StatusCode::kResourceExhausted, "the smallest memory of any plan is"));
}

// Two stages of four ranks, cut behind relu.
absl::StatusOr<Graph> TwoStages(int64_t rows) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, BuildSeedB(rows));
  graph.segments[0].stage = 0;
  Segment rest;
  rest.name = "rest";
  rest.stage = 1;
  graph.segments.push_back(rest);
  for (const char* name : {"matmul2", "loss"}) {
    Op& op = graph.ops[graph.FindOp(name).index()];
    op.segment = SegmentId(1);
    for (TensorId id : op.outputs) graph.tensors[id.index()].segment = SegmentId(1);
  }
  graph.tensors[graph.FindTensor("w2").index()].segment = SegmentId(1);
  return graph;
}

TEST(OperatorSearchTest, StagesOfOperators) {
  Problem problem = SeedB(SearchMode::kShardingPropagation);
  problem.graph = TwoStages;
  problem.stages = 2;
  problem.microbatches = 4;
  problem.shards["matmul"] = Shard({{2, 2}, {2, 1}});
  ASSERT_OK_AND_ASSIGN(const SearchResult result, Search(problem));
  EXPECT_EQ(ToText(result.ranked[0].strategy.mesh), "pp=2 x2=2 x1=2");
  EXPECT_EQ(LayoutsOf(result.ranked[0].strategy, "matmul2"), "{x2 | x1}{x1 | -}");
  ExpectValid(problem, result);
}

TEST(OperatorSearchTest, RefusesWhatContradictsItself) {
  const auto wrong = [](const char* what) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)); };
  Problem problem = SeedB(SearchMode::kDefaults);
  problem.stages = 3;
  EXPECT_THAT(Search(problem), wrong("8 devices do not divide into 3 pipeline stages"));
  problem.stages = 2;
  problem.microbatches = 1;
  EXPECT_THAT(Search(problem), wrong("found 1 micro-batches for 2 stages"));
  problem.microbatches = 3;
  EXPECT_THAT(Search(problem), wrong("found 3 micro-batches, wanted a divisor of the batch of 16 rows"));
  problem = SeedB(SearchMode::kDefaults);
  problem.shards["matmull"] = Shard({{2, 4}, {4, 1}});
  EXPECT_THAT(Search(problem), wrong("\"matmull\", which the model does not have"));
  EXPECT_THAT(Search(SeedB(SearchMode::kShardingPropagation)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("sharding_propagation starts from")));
}

TEST(OperatorSearchTest, SaysWhatDoesNotFit) {
  Problem problem = SeedB(SearchMode::kDefaults);
  problem.memory_limit = MiB(1);
  EXPECT_THAT(Search(problem),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("does not fit in 1.0 MiB of a100")));
}

// Exhaustive search looks at every combination of candidates, so nothing that propagation finds is faster.
TEST(ExhaustiveTest, IsNeverBeatenByPropagation) {
  const std::vector<std::vector<std::vector<int64_t>>> configured = {
      {{2, 4}, {4, 1}}, {{8, 1}, {1, 1}}, {{1, 8}, {8, 1}}, {{1, 1}, {1, 8}}, {{2, 2}, {2, 2}}, {{4, 1}, {1, 2}}};
  for (const auto& tuples : configured) {
    Problem problem = SeedB(SearchMode::kShardingPropagation);
    problem.shards["matmul"] = Shard(tuples);
    ASSERT_OK_AND_ASSIGN(const SearchResult propagated, Search(problem));
    problem.mode = SearchMode::kExhaustive;
    ASSERT_OK_AND_ASSIGN(const SearchResult exhaustive, Search(problem, {.threads = 2}));
    EXPECT_EQ(exhaustive.considered, 5 * 11 * 5);  // relu, matmul2, loss
    EXPECT_LE(exhaustive.ranked[0].prediction.step, propagated.ranked[0].prediction.step);
    ExpectValid(problem, exhaustive);
  }
}

TEST(ExhaustiveTest, DoesNotDependOnThreads) {
  Problem problem = SeedB(SearchMode::kExhaustive);
  problem.shards["loss"] = Shard({{8, 1}, {8, 1}});
  const auto text = [&](int threads) {
    const auto result = Search(problem, {.keep = 20, .threads = threads});
    EXPECT_OK(result);
    std::string text;
    for (const Candidate& c : result->ranked) absl::StrAppend(&text, ToText(c.strategy), c.prediction.step.raw(), "\n");
    return text;
  };
  const std::string one = text(1);
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(text(2), one);
  EXPECT_EQ(text(3), one);
}

TEST(ExhaustiveTest, RefusesWhatIsTooMuch) {
  Problem problem = SeedB(SearchMode::kExhaustive);
  problem.graph = [](int64_t rows) -> absl::StatusOr<Graph> {
    GraphBuilder b("chain");
    b.BeginSegment("model");
    TensorId x = b.Input("x", DType::kFloat32, {rows, 64}, {});
    for (int i = 0; i < 9; ++i) {
      MESHWRIGHT_ASSIGN_OR_RETURN(x, b.AddOne({.name = absl::StrCat("relu", i), .kind = OpKind::kRelu, .inputs = {x}}));
    }
    return std::move(b).Build();
  };
  // Five candidates each: 5^7 = 78125 is the first power above the limit.
  EXPECT_THAT(Search(problem), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("the operators up to \"relu6\" alone have 78125 combinations")));
}

}  // namespace
}  // namespace meshwright
