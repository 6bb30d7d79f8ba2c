#include "planner/search/decoder.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/cut_runs.h"
#include "planner/schedule.h"
#include "planner/search/space.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ToText(const SearchResult& result) {
  std::string text = absl::StrCat("considered ", result.considered, " simulated ", result.simulated, "\n");
  for (const auto& [reason, count] : result.pruned) absl::StrAppend(&text, reason, ": ", count, "\n");
  for (const Candidate& c : result.ranked) {
    absl::StrAppend(&text, ToText(c.strategy), c.prediction.step.raw(), " ns ", c.prediction.peak.raw(), " B\n");
  }
  return text;
}

int64_t NumPruned(const SearchResult& result) {
  int64_t count = 0;
  for (const auto& [reason, n] : result.pruned) count += n;
  return count;
}

// The ranking that simulating every combination gives.
TEST(DecoderSearchTest, FindsWhatSimulatingEverythingFinds) {
  Problem problem =
      ToyDecoderProblem({.layers = 4, .hidden = 1024, .heads = 8, .ffn = 4096, .vocab = 1000}, 16, A100Cluster(1));
  problem.memory_limit = MiB(1800);  // so that some do not fit
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {.keep = 4}));
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
  const DecoderFacts facts = FactsOf(graph);
  std::map<std::tuple<Degrees, Recompute, bool, bool>, Nanos> best;  // of the buckets and chunks of each
  int too_large = 0, interleaved = 0;
  for (const Combination& c : DecoderSpace(problem, facts, {}).combinations) {
    ASSERT_OK_AND_ASSIGN(const Strategy strategy, StrategyOf(problem, c, facts.sizes));
    ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, strategy));
    if (!evaluation.prediction.fits()) {
      ++too_large;
      continue;
    }
    if (c.pipelining.chunks > 1) ++interleaved;
    const Nanos step = evaluation.prediction.step;
    Nanos& kept =
        best.try_emplace({c.degrees, c.recompute, c.parallel_optimizer, c.shard_parameters}, step).first->second;
    kept = std::min(kept, step);
  }
  EXPECT_GT(too_large, 0);
  EXPECT_GT(interleaved, 0);
  std::vector<Nanos> steps;
  for (const auto& [unused, step] : best) steps.push_back(step);
  std::sort(steps.begin(), steps.end());
  ASSERT_EQ(result.ranked.size(), 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(result.ranked[i].prediction.step, steps[i]) << i;
  // Every combination is accounted for once, and not all were simulated.
  EXPECT_EQ(result.considered, result.simulated + NumPruned(result));
  EXPECT_LT(result.simulated, static_cast<int64_t>(steps.size()));
}

TEST(DecoderSearchTest, DoesNotDependOnThreads) {
  const Problem problem = ToyDecoderProblem({.layers = 4, .heads = 8, .experts = 4}, 32, A100Cluster(2));
  ASSERT_OK_AND_ASSIGN(const SearchResult one, SearchDecoder(problem, {.threads = 1}));
  for (const int threads : {2, 5, 0}) {
    ASSERT_OK_AND_ASSIGN(const SearchResult several, SearchDecoder(problem, {.threads = threads}));
    EXPECT_EQ(ToText(several), ToText(one)) << threads;
  }
}

// What was simulated before is not again, and the result is that of a search alone, be it for more or for fewer.
TEST(DecoderSearchTest, SearchesGoOn) {
  const Problem problem = ToyDecoderProblem({.layers = 4, .heads = 8, .experts = 4}, 32, A100Cluster(2));
  DecoderSearches searches(problem);
  int64_t most = 0;
  for (const int64_t keep : {2, 12, 5}) {
    for (const bool again : {true, false}) {
      int64_t simulated = 0;
      SearchOptions options = {.keep = keep, .predicted_again = again};
      ASSERT_OK_AND_ASSIGN(const SearchResult alone, SearchDecoder(problem, options));
      options.progress = [&](int64_t, int64_t) { ++simulated; };
      ASSERT_OK_AND_ASSIGN(const SearchResult found, searches.Search(options));
      EXPECT_EQ(ToText(found), ToText(alone)) << keep;
      EXPECT_EQ(found.pruned, alone.pruned);
      most = std::max(most, alone.simulated);
      if (keep != 2) {
        EXPECT_LT(simulated, alone.simulated) << keep;
      }
    }
  }
  EXPECT_GT(most, 12);
}

// With a plan at hand that is slower than the best, the result is what it is without one, though it may have looked at
// less; with one that is as fast there is none, and little is simulated.
TEST(DecoderSearchTest, LooksForWhatIsFasterThanAPlanAtHand) {
  const Problem problem = ToyDecoderProblem({.layers = 4, .heads = 8, .experts = 4}, 32, A100Cluster(2));
  ASSERT_OK_AND_ASSIGN(const SearchResult all, SearchDecoder(problem, {}));
  const Nanos best = all.ranked.front().prediction.step;
  ASSERT_OK_AND_ASSIGN(const SearchResult faster, SearchDecoder(problem, {.faster_than = best + Nanos(1)}));
  EXPECT_FALSE(faster.none_faster);
  EXPECT_EQ(ToText(faster), ToText(all));
  ASSERT_OK_AND_ASSIGN(const SearchResult none, SearchDecoder(problem, {.faster_than = best}));
  EXPECT_TRUE(none.none_faster);
  EXPECT_TRUE(none.ranked.empty());
  EXPECT_LT(none.simulated, all.simulated);
  EXPECT_EQ(none.considered, all.considered);
  // Where nothing fits, that is said as without it.
  Problem small = problem;
  small.memory_limit = MiB(1);
  EXPECT_THAT(SearchDecoder(small, {.faster_than = best}), StatusIs(absl::StatusCode::kResourceExhausted, ""));
}

// 16 ranks with 8 experts each: two nodes of 8, or 16 groups; with tensor parallelism of 4 eight nodes of two. 128
// ranks with an expert each have no groups of ranks, and 8 ranks lie on one node.
TEST(ExpertGroupsTest, AreNodesOrRanks) {
  const Cluster cluster = A100Cluster(16);
  const LabelSizes sizes = {{"e", 128}};
  const auto groups = [&](Dispatcher dispatcher, int64_t expert, int64_t tensor) {
    return ExpertGroups(dispatcher, {.data = expert, .tensor = tensor, .expert = expert}, cluster, sizes);
  };
  EXPECT_EQ(groups(Dispatcher::kAllToAll, 16, 1), 1);
  EXPECT_EQ(groups(Dispatcher::kPerNode, 16, 1), 2);
  EXPECT_EQ(groups(Dispatcher::kPerRank, 16, 1), 16);
  EXPECT_EQ(groups(Dispatcher::kPerNode, 16, 4), 8);
  EXPECT_EQ(groups(Dispatcher::kPerNode, 8, 1), 1);
  EXPECT_EQ(groups(Dispatcher::kPerRank, 128, 1), 1);
  EXPECT_EQ(groups(Dispatcher::kPerNode, 4, 8), 4);
}

// 16 ranks of which 4 share a row, side by side: two nodes, each with two rows. Where 16 share a row, a node would have
// half of one: no groups but ranks. With tensor parallelism of 8 each is a node.
TEST(ExpertGroupsTest, RanksThatShareARowAreOfOneGroup) {
  const Cluster cluster = A100Cluster(16);
  const auto groups = [&](int64_t data, int64_t context, int64_t tensor) {
    const Degrees degrees = {.data = data, .tensor = tensor, .expert = data * context, .context = context};
    return ExpertGroups(Dispatcher::kPerNode, degrees, cluster, {{"e", 128}});
  };
  EXPECT_EQ(groups(4, 4, 1), 2);
  EXPECT_EQ(groups(1, 16, 1), 1);
  EXPECT_EQ(groups(2, 2, 8), 4);
}

// A token with 4 of 32 experts on two nodes of four: sent to 15/16 of the other nodes instead of 4 times to half.
TEST(DecoderSearchTest, TokensAreSentOnceToANode) {
  Problem problem = ToyDecoderProblem(
      {.layers = 4, .hidden = 1024, .heads = 8, .ffn = 512, .sequence = 512, .experts = 32, .top_k = 4}, 16,
      A100Cluster(2));
  problem.expert_parallel = problem.data_parallel = 16;
  problem.microbatch = 1;
  ASSERT_OK_AND_ASSIGN(const SearchResult free, SearchDecoder(problem, {}));
  EXPECT_EQ(free.ranked[0].degrees.expert_groups, 2);
  EXPECT_EQ(free.ranked[0].strategy.expert_groups, 2);
  problem.dispatcher = Dispatcher::kAllToAll;
  ASSERT_OK_AND_ASSIGN(const SearchResult fixed, SearchDecoder(problem, {}));
  EXPECT_EQ(fixed.ranked[0].strategy.expert_groups, 1);
  EXPECT_GT(fixed.ranked[0].prediction.step, free.ranked[0].prediction.step);
}

// 2^30 rows, whose programs of one row a micro-batch would fill the memory.
TEST(DecoderSearchTest, ABatchOfMoreMicroBatchesThanAProgramHolds) {
  const Problem problem = ToyDecoderProblem({.layers = 4}, int64_t{1} << 30, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
  const Space space = DecoderSpace(problem, FactsOf(graph), {});
  EXPECT_GT(space.pruned.at("more than 65536 passes of a stage"), 0);
  EXPECT_FALSE(space.combinations.empty());
  for (const Combination& c : space.combinations) {
    const int64_t microbatches = problem.batch / c.degrees.data / c.degrees.microbatch;
    EXPECT_LE(microbatches * c.pipelining.chunks, kMostPasses);
  }
}

TEST(DecoderSearchTest, RanksDistinctChoicesThatFit) {
  Problem problem = ToyDecoderProblem(Gpt3(), 1536, A100Cluster(128));
  problem.chunks = 1;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  ASSERT_EQ(result.ranked.size(), 5);
  for (size_t i = 0; i < 5; ++i) {
    const Candidate& c = result.ranked[i];
    EXPECT_TRUE(c.prediction.fits());
    EXPECT_EQ(c.degrees.data * c.degrees.tensor * c.degrees.pipeline, 1024);
    for (size_t j = 0; j < i; ++j) {
      const Candidate& before = result.ranked[j];
      EXPECT_LE(before.prediction.step, c.prediction.step);
      EXPECT_FALSE(before.degrees == c.degrees && before.strategy.recompute == c.strategy.recompute &&
                   before.strategy.parallel_optimizer == c.strategy.parallel_optimizer &&
                   before.strategy.shard_parameters == c.strategy.shard_parameters);
    }
  }
  // Model FLOPs utilisation of published runs of this model on this machine: 40 % to 60 %; the toy has no biases.
  EXPECT_GT(result.ranked[0].prediction.mfu, 0.4);
  EXPECT_LT(result.ranked[0].prediction.mfu, 0.65);
  EXPECT_THAT(result.not_tried, HasSubstr("over more than 128 devices"));
  // The bounds do their work: of thousands of combinations few are simulated.
  EXPECT_GT(result.considered, 5000);
  EXPECT_LT(result.simulated, 200);
}

TEST(DecoderSearchTest, WinnerIsAValidProgram) {
  const Problem problem = ToyDecoderProblem({.layers = 4}, 32, A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  EXPECT_EQ(result.not_tried, "") << "on 8 devices all is tried";
  for (const Candidate& candidate : result.ranked) {
    ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, candidate.strategy));
    EXPECT_OK(VerifyProgram(evaluation.program));
    EXPECT_EQ(evaluation.prediction.step, candidate.prediction.step);
  }
}

TEST(DecoderSearchTest, KeepsToWhatTheUserFixed) {
  Problem problem = ToyDecoderProblem({.layers = 4}, 32, A100Cluster(1));
  problem.tensor_parallel = 2;
  problem.stages = 2;
  problem.microbatches = 8;
  problem.recompute = Recompute::kFull;
  problem.sequence_parallel = false;
  problem.parallel_optimizer = true;
  problem.shard_parameters = false;
  problem.bucket = MiB(7);
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  ASSERT_EQ(result.ranked.size(), 1);
  const Candidate& c = result.ranked[0];
  EXPECT_EQ(c.degrees, (Degrees{.data = 2, .tensor = 2, .pipeline = 2, .microbatch = 2}));
  EXPECT_EQ(c.strategy.microbatches, 8);
  EXPECT_EQ(c.strategy.recompute, Recompute::kFull);
  EXPECT_TRUE(c.strategy.parallel_optimizer);
  EXPECT_EQ(c.strategy.bucket, MiB(7));
}

TEST(DecoderSearchTest, LayersThatTheUserDealt) {
  Problem problem = ToyDecoderProblem({.layers = 6}, 32, A100Cluster(1));
  problem.stages = 4;
  problem.chunks = 1;
  problem.layers_per_stage = {0, 3, 2, 1};
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  ASSERT_FALSE(result.ranked.empty());
  for (const Candidate& c : result.ranked) {
    EXPECT_THAT(c.strategy.layers_per_stage, testing::ElementsAre(0, 3, 2, 1));
    EXPECT_EQ(c.degrees.pipeline, 4);
  }
}

// Three dense layers and one with experts, three times: two stages have six layers each, though a run is four.
TEST(DecoderSearchTest, StagesBeginWithinRunsOfLayers) {
  Problem problem = ToyDecoderProblem(
      {.layers = 12, .hidden = 1024, .heads = 8, .ffn = 4096, .sequence = 1024, .experts = 4, .expert_every = 4}, 32,
      A100Cluster(1));
  problem.stages = 2;
  problem.chunks = 1;
  ASSERT_OK_AND_ASSIGN(const SearchResult dealt, SearchDecoder(problem, {}));
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
  EXPECT_FALSE(CutsOf(graph, dealt.ranked.front().strategy).empty());
  problem.layers_per_stage = {8, 4};
  ASSERT_OK_AND_ASSIGN(const SearchResult whole, SearchDecoder(problem, {}));
  EXPECT_GT(whole.ranked.front().prediction.step, dealt.ranked.front().prediction.step * 1.05);
}

// 24 x 113 M + 98 M = 2.8 B parameters on 8 devices of 18 GiB. Whole parameters and gradients take 2 + 4 bytes each,
// and optimizer state 12 / 8: 19.7 GiB before any activation. Split, all of it is 18 / 8 bytes each: 5.9 GiB.
TEST(DecoderSearchTest, SplitsParametersWhereTheyDoNotFitWhole) {
  Problem problem = ToyDecoderProblem(
      {.layers = 24, .hidden = 3072, .heads = 24, .ffn = 12288, .vocab = 32000, .sequence = 1024}, 64, A100Cluster(1));
  problem.memory_limit = GiB(18);
  problem.tensor_parallel = 1;
  problem.stages = 1;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  EXPECT_TRUE(result.ranked[0].strategy.shard_parameters);
  problem.shard_parameters = false;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("leave shard_parameters to the search"),
                             HasSubstr("or raise max_device_memory to"), Not(HasSubstr("use devices with")))));
}

// An output layer of 32,000 x 512 has five times the parameters of a layer, 12 x 512^2 and its attention: of 16 layers
// on two stages the last one has fewer, and the step is shorter than with eight on each.
TEST(DecoderSearchTest, TheStageOfTheOutputLayerHasFewerLayers) {
  Problem problem = ToyDecoderProblem(
      {.layers = 16, .hidden = 512, .heads = 8, .ffn = 2048, .vocab = 32000, .sequence = 1024}, 64, A100Cluster(1));
  problem.stages = 2;
  problem.tensor_parallel = 1;
  problem.microbatch = 1;
  problem.chunks = 1;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  const Candidate& best = result.ranked[0];
  ASSERT_EQ(best.strategy.layers_per_stage.size(), 2u);
  EXPECT_LT(best.strategy.layers_per_stage[1], 8);
  EXPECT_EQ(best.strategy.layers_per_stage[0] + best.strategy.layers_per_stage[1], 16);
  Strategy even = best.strategy;
  even.layers_per_stage.clear();
  ASSERT_OK_AND_ASSIGN(const Evaluation of_even, Evaluate(problem, even));
  EXPECT_GT(of_even.prediction.step, best.prediction.step * 105 / 100);
}

// Two nodes, 16 micro-batches: all of a layer's parameters cross between them twice a micro-batch, or the gradients of
// a copy once a step.
TEST(DecoderSearchTest, SharesParametersInsideNodes) {
  Problem problem = ToyDecoderProblem(
      {.layers = 4, .hidden = 1024, .heads = 8, .ffn = 4096, .vocab = 1024, .sequence = 256}, 16 * 16, A100Cluster(2));
  problem.data_parallel = 16;
  problem.microbatch = 1;
  problem.shard_parameters = true;
  ASSERT_OK_AND_ASSIGN(const SearchResult free, SearchDecoder(problem, {}));
  EXPECT_EQ(free.ranked[0].degrees.copies, 2);
  EXPECT_EQ(ToText(free.ranked[0].strategy.mesh), "copy=2 dp=8");
  problem.optimizer_shard_size = -1;
  ASSERT_OK_AND_ASSIGN(const SearchResult all, SearchDecoder(problem, {}));
  for (const Candidate& c : all.ranked) EXPECT_EQ(c.degrees.copies, 1);
  EXPECT_GT(all.ranked[0].prediction.step, free.ranked[0].prediction.step);
  EXPECT_LT(all.ranked[0].prediction.peak, free.ranked[0].prediction.peak);
  problem.optimizer_shard_size = 4;
  ASSERT_OK_AND_ASSIGN(const SearchResult fours, SearchDecoder(problem, {}));
  for (const Candidate& c : fours.ranked) EXPECT_EQ(c.degrees.copies, 4);
  problem.optimizer_shard_size = 3;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("groups of 3 ranks do not divide")));
}

// 131,072 tokens in one row: without context parallelism the eight devices of a node have nothing to share but heads
// and layers. Short sequences are not cut unless the user says so.
TEST(DecoderSearchTest, SharesLongSequences) {
  const ToyDecoder sizes{.layers = 2, .hidden = 1024, .heads = 2, .ffn = 4096, .vocab = 1000, .sequence = 131072};
  Problem problem = ToyDecoderProblem(sizes, 1, H100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  const Candidate& best = result.ranked[0];
  EXPECT_GE(best.degrees.context, 4);
  EXPECT_NE(best.strategy.context, ContextExchange::kNone);
  for (const Candidate& candidate : result.ranked) {
    ASSERT_OK_AND_ASSIGN(const Evaluation evaluation, Evaluate(problem, candidate.strategy));
    EXPECT_OK(VerifyProgram(evaluation.program));
  }
  problem.context_parallel = 2;
  problem.context_exchange = ContextExchange::kRing;
  problem.stages = 2;
  ASSERT_OK_AND_ASSIGN(const SearchResult fixed, SearchDecoder(problem, {}));
  EXPECT_EQ(fixed.ranked[0].degrees.context, 2);
  EXPECT_EQ(fixed.ranked[0].strategy.context, ContextExchange::kRing);
  ASSERT_OK_AND_ASSIGN(const SearchResult is_short,
                       SearchDecoder(ToyDecoderProblem({.layers = 4}, 32, A100Cluster(1)), {}));
  EXPECT_EQ(is_short.ranked[0].degrees.context, 1);
}

// 2 stages of 4 layers and 4 micro-batches: 1 / (4 V + 1) of a step is idle with V chunks, a fifth, a ninth or a
// seventeenth, and transfers inside a node take next to nothing.
TEST(DecoderSearchTest, InterleavesWhereThatIsFaster) {
  Problem problem = ToyDecoderProblem({.layers = 8, .hidden = 2048, .heads = 16, .ffn = 8192}, 4, A100Cluster(1));
  problem.cluster.devices_per_node = 2;
  problem.stages = 2;
  problem.microbatches = 4;
  problem.recompute = Recompute::kNone;
  ASSERT_OK_AND_ASSIGN(const SearchResult free, SearchDecoder(problem, {}));
  ASSERT_EQ(free.ranked.size(), 1);
  EXPECT_GT(free.ranked[0].strategy.chunks, 1);
  std::vector<Nanos> fixed;
  for (const int64_t chunks : {1, 2, 4}) {
    problem.chunks = chunks;
    ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
    EXPECT_EQ(result.ranked[0].strategy.chunks, chunks);
    fixed.push_back(result.ranked[0].prediction.step);
  }
  EXPECT_EQ(free.ranked[0].prediction.step, *std::min_element(fixed.begin(), fixed.end()));
  EXPECT_LT(ToSeconds(fixed[1]), 0.95 * ToSeconds(fixed[0]));
}

// Without a schedule that the user fixed all are tried: what is found is the fastest of what each finds alone.
TEST(DecoderSearchTest, TriesEverySchedule) {
  Problem problem = ToyDecoderProblem({.layers = 8, .hidden = 2048, .heads = 16, .ffn = 8192}, 8, A100Cluster(1));
  problem.cluster.devices_per_node = 4;
  problem.stages = 4;
  problem.microbatches = 8;
  problem.recompute = Recompute::kNone;
  std::map<Nanos, Schedule> fixed;
  for (size_t i = 0; i < std::size(kScheduleNames); ++i) {
    problem.schedule = static_cast<Schedule>(i);
    ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
    EXPECT_EQ(result.ranked[0].strategy.schedule, problem.schedule);
    fixed.emplace(result.ranked[0].prediction.step, *problem.schedule);
  }
  problem.schedule.reset();
  ASSERT_OK_AND_ASSIGN(const SearchResult free, SearchDecoder(problem, {}));
  EXPECT_EQ(free.ranked[0].prediction.step, fixed.begin()->first);
  EXPECT_EQ(free.ranked[0].strategy.schedule, fixed.begin()->second);
  EXPECT_NE(free.ranked[0].strategy.schedule, free.ranked[1].strategy.schedule);
}

// Also where the micro-batches are no whole groups of one for each stage.
TEST(DecoderSearchTest, InterleavesAnyNumberOfMicroBatches) {
  Problem problem = ToyDecoderProblem({.layers = 8}, 3, A100Cluster(1));
  problem.cluster.devices_per_node = 2;
  problem.stages = 2;
  problem.microbatches = 3;
  ASSERT_OK_AND_ASSIGN(const SearchResult free, SearchDecoder(problem, {}));
  EXPECT_GT(free.ranked[0].strategy.chunks, 1);
  problem.chunks = 1;
  ASSERT_OK_AND_ASSIGN(const SearchResult whole, SearchDecoder(problem, {}));
  EXPECT_LT(free.ranked[0].prediction.step, whole.ranked[0].prediction.step);
}

// 175B parameters on devices of 80 GB each, for a trainer that has neither stages nor tensor parallelism nor a split
// optimizer: these are its limits, not decisions of the user's. What the user has decided besides is still his.
TEST(DecoderSearchTest, LimitsOfATrainerAreNoDecisionsOfTheUser) {
  Problem problem = ToyDecoderProblem(Gpt3(), 1024, A100Cluster(128));
  problem.narrow = [](Problem* narrowed) {
    if (!narrowed->stages.has_value()) narrowed->stages = 1;
    narrowed->tensor_parallel = 1;
    narrowed->parallel_optimizer = narrowed->shard_parameters = false;
  };
  problem.narrowed_by = "Simple";
  const absl::Status limits = SearchDecoder(problem, {}).status();
  EXPECT_THAT(limits, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("What would fit: plan without --trainer or for a trainer with more choices "
                                         "than Simple, or use devices with ")));
  problem.stages = 2;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("What would fit: plan without --trainer")));
}

TEST(DecoderSearchTest, SaysWhyNothingIsValid) {
  Problem problem = ToyDecoderProblem({}, 32, A100Cluster(1));
  problem.tensor_parallel = 3;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the tensor degree does not divide the devices")));
  // 2 x 2 x 1 of 8 devices.
  problem.data_parallel = problem.tensor_parallel = 2;
  problem.stages = 1;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data 2 x tensor 2 x context 1 x pipeline 1 are 4 devices, wanted 8")));
}

// What an operator says of itself reaches the user.
TEST(DecoderSearchTest, SaysWhatAnOperatorRefuses) {
  Problem problem = ToyDecoderProblem({}, 32, A100Cluster(1));
  problem.stages = problem.tensor_parallel = 1;
  // Not for the micro-batches of any of these plans, alone or over all 8 devices.
  problem.graph = [toy = problem.graph](int64_t rows) -> absl::StatusOr<Graph> {
    if (rows != 1 && rows != 32) return absl::InvalidArgumentError("\"embed\" wants 1 row or 32");
    return toy(rows);
  };
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("an operator does not divide: \"embed\" wants 1 row or 32")));
}

// 8 devices with one head and one layer are data parallel alone: they share 24 or 32 rows, not 30.
TEST(DecoderSearchTest, SaysWhatWouldBeValid) {
  Problem problem = ToyDecoderProblem({.layers = 1, .heads = 1, .ffn = 255}, 30, A100Cluster(1));
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(". What would be valid: a batch of 24, or a batch of 32")));
  problem.batch = 32;
  problem.microbatch = 3;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("valid: leave the micro-batches to the search")));
  problem.microbatch.reset();
  problem.max_data_parallel = 4;
  EXPECT_THAT(SearchDecoder(problem, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than max_data_parallel (")));
}

// Each bound leaves degrees up to it, and what is above counts as pruned.
TEST(DecoderSearchTest, KeepsDegreesBelowTheUsersBounds) {
  const Problem with_experts = ToyDecoderProblem({.layers = 8, .heads = 8, .experts = 8}, 32, A100Cluster(2));
  const Problem with_long_rows = ToyDecoderProblem({.layers = 8, .heads = 8, .sequence = 32768}, 32, A100Cluster(2));
  struct Bound {
    std::optional<int64_t> Problem::*most;
    int64_t Degrees::*degree;
    const Problem& problem;
    const char* reason;
  };
  const Bound bounds[] = {
      {&Problem::max_stages, &Degrees::pipeline, with_experts, "more than max_pipeline_stages"},
      {&Problem::max_tensor_parallel, &Degrees::tensor, with_experts, "more than max_tensor_parallel"},
      {&Problem::max_data_parallel, &Degrees::data, with_experts, "more than max_data_parallel"},
      {&Problem::max_expert_parallel, &Degrees::expert, with_experts, "more than max_expert_parallel"},
      {&Problem::max_context_parallel, &Degrees::context, with_long_rows, "more than max_context_parallel"}};
  for (const Bound& bound : bounds) {
    SCOPED_TRACE(bound.reason);
    ASSERT_OK_AND_ASSIGN(const Graph graph, bound.problem.graph(1));
    const DecoderFacts facts = FactsOf(graph);
    Problem problem = bound.problem;
    problem.*bound.most = 2;
    const Space all = DecoderSpace(bound.problem, facts, {}), space = DecoderSpace(problem, facts, {});
    EXPECT_EQ(space.pruned.count(bound.reason), 1u);
    EXPECT_EQ(all.pruned.count(bound.reason), 0u);
    int64_t largest = 0, below = 0;
    for (const Combination& each : space.combinations) largest = std::max(largest, each.degrees.*bound.degree);
    EXPECT_EQ(largest, 2);
    // What is left is what lies below the bound of all that there was.
    for (const Combination& each : all.combinations) below += each.degrees.*bound.degree <= 2 ? 1 : 0;
    EXPECT_EQ(static_cast<int64_t>(space.combinations.size()), below);
    EXPECT_LT(below, static_cast<int64_t>(all.combinations.size()));
  }
}

// One row of one head and 8 layers, 4 devices: 4 stages for a single micro-batch are all there is.
TEST(DecoderSearchTest, FewerMicroBatchesThanStagesWhereNothingElseIsValid) {
  const Problem problem = ToyDecoderProblem({.layers = 8, .heads = 1, .ffn = 255}, 1, [] {
    Cluster cluster = A100Cluster(1);
    cluster.devices_per_node = 4;
    return cluster;
  }());
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  EXPECT_EQ(result.ranked[0].degrees, (Degrees{.pipeline = 4}));
}

TEST(DecoderSearchTest, TensorParallelismLeavesTheNodeWhereNothingElseIsValid) {
  const Problem problem = ToyDecoderProblem({.layers = 1, .heads = 16}, 1, A100Cluster(2));
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchDecoder(problem, {}));
  EXPECT_EQ(result.ranked[0].degrees.tensor, 16);
}

TEST(DecoderSearchTest, SaysWhatBindsAndWhatWouldFit) {
  Problem problem = ToyDecoderProblem(Gpt3(), 1536, A100Cluster(4));
  problem.parallel_optimizer = false;
  const auto result = SearchDecoder(problem, {});
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("nothing fits in 80.0 GiB on 32 x a100"), HasSubstr("optimizer_state"),
                                     HasSubstr("What would fit: use 64 devices"))));
}

TEST(DecoderSearchTest, NamesTheDecisionThatBinds) {
  Problem problem = ToyDecoderProblem(Gpt3(), 1536, A100Cluster(8));
  problem.tensor_parallel = 1;
  problem.stages = 8;
  const auto result = SearchDecoder(problem, {});
  EXPECT_THAT(result,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("leave the parallel degrees to the search")));
}

}  // namespace
}  // namespace meshwright
