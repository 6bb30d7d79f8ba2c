// Steps of many micro-batches that are played in part against the same steps played from beginning to end: equal to the
// nanosecond and the byte, over random models, strategies and clusters; and strategies whose blocks were kept against
// fresh ones. The seed is printed with every failure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "planner/lower.h"
#include "planner/passes/cut_runs.h"
#include "planner/passes/split_stages.h"
#include "planner/search/evaluate.h"
#include "planner/search/testing.h"
#include "simulator/class_copies.h"
#include "simulator/player.h"
#include "simulator/price.h"
#include "simulator/tasks.h"

namespace meshwright {
namespace {

constexpr uint32_t kSeeds = 400, kDeepSeeds = 120;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Of(const std::vector<int64_t>& values) { return values[engine_() % values.size()]; }
  int64_t UpTo(int64_t last) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(last + 1)); }
  bool Coin() { return engine_() % 2 == 0; }

 private:
  std::mt19937 engine_;
};

struct Case {
  Problem problem;
  Degrees degrees;
};

Case RandomCase(uint32_t seed) {
  Random random(seed);
  Case of;
  Degrees& degrees = of.degrees;
  degrees.pipeline = random.Of({1, 2, 2, 4, 4, 8});
  degrees.tensor = random.Of({1, 2});
  degrees.data = 16 / degrees.pipeline / degrees.tensor;
  degrees.sequence_parallel = degrees.tensor > 1 && random.Coin();
  degrees.microbatch = random.Of({1, 2});
  ToyDecoder sizes;
  sizes.layers = degrees.pipeline * random.Of({1, 2, 3, 4, 6}) + (degrees.pipeline > 1 ? random.Of({0, 0, 1, 3}) : 0);
  sizes.hidden = random.Of({64, 512, 2048});
  sizes.ffn = 4 * sizes.hidden;
  sizes.sequence = random.Of({32, 1024});
  sizes.vocab = random.Of({256, 32000});
  sizes.tied = random.Coin();
  if (random.UpTo(5) == 0) sizes.experts = 4;
  if (sizes.experts > 0) {  // in some layers only
    sizes.dense_layers = std::min<int64_t>(seed % 4, sizes.layers - 1);
    if (seed % 8 >= 4 && (sizes.layers - sizes.dense_layers) % 2 == 0) sizes.expert_every = 2;
  }
  if (sizes.experts > 0 && degrees.data % 2 == 0) degrees.expert = random.Of({1, 2});
  const int64_t microbatches = degrees.pipeline * random.Of({2, 4, 7}) + 2 * random.UpTo(40);
  const int64_t batch = microbatches * degrees.data * degrees.microbatch;
  of.problem = ToyDecoderProblem(sizes, batch, random.Coin() ? A100Cluster(2) : H100Cluster(2));
  Problem& problem = of.problem;
  if (seed % 8 == 7) problem.cluster.device.generation = Generation::kHost;  // one stream: AsPlayed
  problem.schedule = random.Coin() ? Schedule::kOneFOneB : static_cast<Schedule>(random.UpTo(5));
  if (problem.schedule == Schedule::kOneFOneB) problem.chunks = random.Of({1, 1, 2, 3});
  problem.recompute = static_cast<Recompute>(random.UpTo(3));
  problem.parallel_optimizer = random.Coin();
  problem.shard_parameters = *problem.parallel_optimizer && random.UpTo(3) == 0;
  problem.gradient_accumulation_shard = random.UpTo(3) == 0;
  problem.bucket = random.Coin() ? MiB(1) : MiB(100);
  problem.host.serial = random.UpTo(7) == 0;
  // What frameworks do besides, and links that stages share.
  if (random.UpTo(2) == 0) problem.host.kernel = Micros(static_cast<double>(random.Of({5, 50})));
  problem.host.gathers_each = random.UpTo(3) == 0;
  problem.host.overlaps_products = random.UpTo(3) == 0;
  problem.host.experts.overlaps = sizes.experts > 0 && random.Coin();
  if (random.UpTo(3) == 0) {
    problem.cluster.oversubscription = 2;
    problem.cluster.nodes_per_leaf = 1;
  }
  return of;
}

std::string Describe(const Case& of, const Strategy& strategy) {
  const Degrees& d = of.degrees;
  return absl::StrCat("dp ", d.data, " tp ", d.tensor, " pp ", d.pipeline, " ep ", d.expert, " x ", d.microbatch, ", ",
                      NameOf(strategy.schedule), " of ", strategy.chunks, " chunks, ", strategy.microbatches,
                      " micro-batches");
}

TEST(PredictPropertyTest, AStepInPartIsTheWholeStep) {
  std::map<std::string, int64_t> cases, in_part;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Case of = RandomCase(seed);
    ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(of.problem, of.degrees));
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Describe(of, strategy)));
    ASSERT_OK_AND_ASSIGN(const Graph graph, of.problem.graph(of.problem.batch / strategy.microbatches));
    const CostModel costs(of.problem.cluster);
    const absl::StatusOr<Evaluation> whole = EvaluateGraph(of.problem, graph, costs, strategy);
    const absl::StatusOr<Prediction> predicted = PredictGraph(of.problem, graph, costs, strategy);
    ASSERT_EQ(predicted.status(), whole.status());
    // Stages never wait for each other in a circle.
    EXPECT_NE(whole.status().code(), absl::StatusCode::kFailedPrecondition) << whole.status();
    if (!whole.ok()) continue;
    const Prediction& expected = whole->prediction;
    ASSERT_EQ(predicted->step, expected.step);
    EXPECT_EQ(predicted->peak, expected.peak);
    EXPECT_EQ(predicted->fullest_class, expected.fullest_class);
    EXPECT_EQ(predicted->arena, expected.arena);
    EXPECT_EQ(predicted->memory, expected.memory);
    EXPECT_EQ(predicted->outside, expected.outside);
    EXPECT_EQ(predicted->mfu, expected.mfu);
    EXPECT_EQ(predicted->tokens_per_second, expected.tokens_per_second);
    const std::string kind = strategy.stages == 1  ? "one stage"
                             : strategy.chunks > 1 ? absl::StrCat(NameOf(strategy.schedule), " in chunks")
                                                   : std::string(NameOf(strategy.schedule));
    ++cases[kind];
    if (predicted->time.Total() != predicted->step) ++in_part[kind];
  }
  std::string counts;
  for (const auto& [kind, count] : cases) absl::StrAppend(&counts, kind, ": ", in_part[kind], " of ", count, "\n");
  RecordProperty("played_in_part", counts);
  // The test is about something: steps of every kind that can are played in part.
  for (const auto& [kind, count] : cases) {
    if (kind == NameOf(Schedule::kGpipe)) continue;
    EXPECT_GT(in_part[kind], 0) << kind << " of\n" << counts;
  }
  EXPECT_GT(in_part["1f1b"], cases["1f1b"] / 2) << counts;
  EXPECT_GT(in_part["one stage"], cases["one stage"] / 2) << counts;
  std::fputs(counts.c_str(), stderr);
}

// Stages that are lowered after the pattern of another (planner/passes/follow_stages.h) against each lowered for
// itself, as it is where somebody looks at the passes: the same program, to the byte.
TEST(LowerPropertyTest, AStageThatFollowsIsItself) {
  std::map<std::string, int64_t> cases, with_followers;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Case of = RandomCase(seed);
    Random random(seed + 1'000'000);
    of.degrees.pipeline *= random.Of({1, 2});  // up to 16 stages
    of.degrees.data = std::max<int64_t>(1, of.degrees.data / 2);
    absl::StatusOr<Strategy> strategy = FromDegrees(of.problem, of.degrees);
    if (!strategy.ok()) continue;
    strategy->microbatches = std::min<int64_t>(strategy->microbatches, strategy->stages * 3 + random.UpTo(9));
    strategy->gradients_mean = random.Coin();
    strategy->parameter_broadcast = random.Coin();
    strategy->fuse_updates = random.Coin();
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Describe(of, *strategy)));
    ASSERT_OK_AND_ASSIGN(const Graph graph, of.problem.graph(of.degrees.microbatch * of.degrees.data));
    const CostModel costs(of.problem.cluster);
    const StepPrice price = PriceSteps(costs, strategy->mesh);
    const UpdateRule& update = of.problem.update;
    const absl::StatusOr<Program> followed = Lower(graph, *strategy, update, price);
    const absl::StatusOr<Program> own =
        Lower(graph, *strategy, update, price, [](absl::string_view, const Program&) { return absl::OkStatus(); });
    ASSERT_EQ(followed.status(), own.status());
    if (!own.ok()) continue;
    ASSERT_EQ(ToText(*followed), ToText(*own));
    ASSERT_OK_AND_ASSIGN(const LoweredBlocks blocks,
                         LowerBlocks(graph, CutsOf(graph, *strategy), *strategy, update, price));
    Followers followers;
    ASSERT_OK(SplitStages(blocks.program, blocks.graph, *strategy, update, &followers));
    const std::string kind = absl::StrCat(NameOf(strategy->schedule), strategy->chunks > 1 ? " in chunks" : "");
    ++cases[kind];
    with_followers[kind] += !followers.followers.empty();
  }
  std::string counts;
  for (const auto& [kind, count] : cases)
    absl::StrAppend(&counts, kind, ": ", with_followers[kind], " of ", count, "\n");
  // The test is about something.
  for (const char* kind : {"1f1b", "1f1b in chunks", "gpipe", "zero_bubble_h1"}) {
    EXPECT_GT(with_followers[kind], 0) << kind << " of\n" << counts;
  }
  std::fputs(counts.c_str(), stderr);
}

// More than ten kinds of pieces, so that "@cut1" begins what others end with: two runs of twelve layers, each layer on
// a stage of its own, and a third on eight.
TEST(LowerTest, AsManyKindsOfPiecesAsARunHasLayers) {
  ToyDecoder sizes;
  sizes.layers = 36;
  sizes.expert_every = 12;
  sizes.experts = 4;
  const Problem problem = ToyDecoderProblem(sizes, 256, A100Cluster(4));
  ASSERT_OK_AND_ASSIGN(Strategy strategy, FromDegrees(problem, {.pipeline = 32}));
  strategy.layers_per_stage.assign(32, 1);
  std::fill_n(strategy.layers_per_stage.begin() + 24, 4, 2);
  ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(1));
  const std::optional<PieceKinds> kinds = KindsOf(graph, CutsOf(graph, strategy));
  ASSERT_TRUE(kinds.has_value());
  ASSERT_GT(kinds->graph.segments.size(), 2 + 11u);
  const StepPrice price = PriceSteps(CostModel(problem.cluster), strategy.mesh);
  ASSERT_OK_AND_ASSIGN(const Program once, Lower(graph, strategy, problem.update, price));
  ASSERT_OK_AND_ASSIGN(const Program own, Lower(graph, strategy, problem.update, price,
                                                [](absl::string_view, const Program&) { return absl::OkStatus(); }));
  EXPECT_EQ(ToText(once), ToText(own));
}

// Pieces of runs that are alike, lowered once (planner/passes/repeat_pieces.h), against each lowered for itself, as it
// is where somebody looks at the passes: the same program, to the byte.
TEST(LowerPropertyTest, APieceLikeAnotherIsItself) {
  int64_t cases = 0, with_alike = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Case of = RandomCase(seed);
    Random random(seed + 3'000'000);
    ToyDecoder sizes;
    sizes.expert_every = random.Of({2, 3, 4});
    sizes.layers = sizes.expert_every * (2 + random.UpTo(6));
    sizes.experts = 4;
    sizes.tied = random.Coin();
    Problem problem = ToyDecoderProblem(sizes, 256, of.problem.cluster);
    problem.schedule = of.problem.schedule;
    problem.recompute = of.problem.recompute;
    problem.parallel_optimizer = of.problem.parallel_optimizer;
    problem.shard_parameters = of.problem.shard_parameters;
    if (of.degrees.data % 4 == 0) {
      of.degrees.expert = 4;
      of.degrees.expert_groups = random.Of({1, 2});
    }
    if (of.degrees.data % 2 == 0 && random.Coin()) {
      of.degrees.data /= 2;
      of.degrees.context = 2;
      of.degrees.expert = 1;
      of.degrees.exchange = random.Coin() ? ContextExchange::kRing : ContextExchange::kAllGather;
    }
    absl::StatusOr<Strategy> strategy = FromDegrees(problem, of.degrees);
    if (!strategy.ok()) continue;
    strategy->microbatches = strategy->stages * 2;
    std::vector<int64_t>& dealt = strategy->layers_per_stage;
    if (strategy->stages > 1 && strategy->chunks == 1 && random.Coin()) {
      for (int64_t left = sizes.layers, stage = strategy->stages; stage > 0; --stage) {
        dealt.push_back(stage == 1 ? left : std::min(left, random.UpTo(2 * left / stage)));
        left -= dealt.back();
      }
    }
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", sizes.layers, " layers, experts in every ", sizes.expert_every,
                              "th, on (", absl::StrJoin(dealt, ", "), "): ", Describe(of, *strategy)));
    ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(of.degrees.microbatch * of.degrees.data));
    const StepPrice price = PriceSteps(CostModel(problem.cluster), strategy->mesh);
    const absl::StatusOr<Program> once = Lower(graph, *strategy, problem.update, price);
    const absl::StatusOr<Program> own = Lower(graph, *strategy, problem.update, price,
                                              [](absl::string_view, const Program&) { return absl::OkStatus(); });
    ASSERT_EQ(once.status(), own.status());
    if (!own.ok()) continue;
    ASSERT_EQ(ToText(*once), ToText(*own));
    ++cases;
    with_alike += KindsOf(graph, CutsOf(graph, *strategy)).has_value();
  }
  // The test is about something.
  EXPECT_GT(with_alike, cases / 4) << cases;
  std::fputs(absl::StrCat(with_alike, " of ", cases, " have pieces that are alike\n").c_str(), stderr);
}

// Stages that are not written out (simulator/class_copies.h) against the same program in full: each instruction costs
// the same, also where stages begin at other places of their nodes, so that groups of three ranks lie in one node or in
// two, and transfers stay in one or leave it.
TEST(LowerPropertyTest, AStageThatIsNotWrittenOutCostsTheSame) {
  int64_t copied = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Case of = RandomCase(seed);
    Random random(seed + 2'000'000);
    of.degrees = {.data = random.Of({1, 3}), .tensor = random.Of({1, 2}), .pipeline = random.Of({6, 8, 12})};
    of.problem.cluster = random.Coin() ? A100Cluster(9) : H100Cluster(9);
    of.problem.cluster.nics_per_node = random.Of({4, 8});
    absl::StatusOr<Strategy> strategy = FromDegrees(of.problem, of.degrees);
    if (!strategy.ok()) continue;
    strategy->microbatches = strategy->stages * 2;
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Describe(of, *strategy)));
    ASSERT_OK_AND_ASSIGN(const Graph graph, of.problem.graph(6));
    const CostModel costs(of.problem.cluster);
    const UpdateRule& update = of.problem.update;
    const absl::StatusOr<LoweredBlocks> blocks =
        LowerBlocks(graph, {}, *strategy, update, PriceSteps(costs, strategy->mesh));
    if (!blocks.ok()) continue;
    const absl::StatusOr<Program> written = LowerStages(*blocks, *strategy, update);
    if (!written.ok()) continue;
    ASSERT_OK_AND_ASSIGN(UnfusedStages stages, LowerUnfused(*blocks, *strategy, update));
    ClassCopies copies;
    ASSERT_OK_AND_ASSIGN(const Program outline,
                         FuseCalls(std::move(stages), *blocks, *strategy, update, nullptr, nullptr, &copies));
    ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(*written, costs, of.problem.host));
    ASSERT_OK_AND_ASSIGN(const Prices of_outline, PriceProgram(outline, costs, of.problem.host, copies));
    ASSERT_EQ(outline.classes.size(), written->classes.size());
    for (size_t c = 0; c < outline.classes.size(); ++c) {
      EXPECT_EQ(outline.classes[c].arena, written->classes[c].arena) << c;
      EXPECT_EQ(of_outline.Of(c), prices.Of(c)) << c;
      copied += copies.Of(c) != c;
    }
    for (const Folding folding : {Folding::kRuns, Folding::kRunsWithoutSyncs}) {
      ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> lists, Unroll(*written, prices, folding));
      ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> of_copies, Unroll(outline, of_outline, folding, copies));
      ASSERT_OK_AND_ASSIGN(const PlayedTimes played, Play(*written, lists));
      ASSERT_OK_AND_ASSIGN(const PlayedTimes copies_played, Play(outline, of_copies));
      EXPECT_EQ(copies_played.makespan, played.makespan);
    }
  }
  // The test is about something.
  EXPECT_GT(copied, 200);
}

// Deep pipelines, most with stages of one and of two layers, which seldom come to a common pace: what cannot be counted
// is played to the end of the step.
TEST(PredictPropertyTest, ADeepPipelineInPartIsTheWholePipeline) {
  int64_t in_part = 0;
  for (uint32_t seed = 0; seed < kDeepSeeds; ++seed) {
    Random random(seed);
    Case of;
    of.degrees.pipeline = random.Of({8, 16, 24, 32});
    of.degrees.microbatch = random.Of({1, 2});
    const int64_t stages = of.degrees.pipeline;
    ToyDecoder sizes;
    const bool in_chunks = stages <= 16 && random.UpTo(2) == 0;
    sizes.layers = in_chunks ? stages * random.Of({2, 4}) : stages + random.UpTo(stages);
    sizes.hidden = random.Of({256, 2048, 8192});
    sizes.ffn = 4 * sizes.hidden;
    sizes.sequence = random.Of({128, 2048});
    sizes.vocab = random.Of({256, 50000});
    sizes.tied = random.Coin();
    const int64_t microbatches = in_chunks ? stages * (6 + random.UpTo(4)) : 2 * stages + random.UpTo(3 * stages);
    of.problem = ToyDecoderProblem(sizes, microbatches * of.degrees.microbatch, A100Cluster(4));
    of.problem.chunks = in_chunks ? 2 : 1;
    of.problem.recompute = static_cast<Recompute>(random.UpTo(3));
    ASSERT_OK_AND_ASSIGN(const Strategy strategy, FromDegrees(of.problem, of.degrees));
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Describe(of, strategy), ", ", sizes.layers, " layers"));
    ASSERT_OK_AND_ASSIGN(const Graph graph, of.problem.graph(of.problem.batch / strategy.microbatches));
    const CostModel costs(of.problem.cluster);
    ASSERT_OK_AND_ASSIGN(const Evaluation whole, EvaluateGraph(of.problem, graph, costs, strategy));
    ASSERT_OK_AND_ASSIGN(const Prediction predicted, PredictGraph(of.problem, graph, costs, strategy));
    ASSERT_EQ(predicted.step, whole.prediction.step);
    EXPECT_EQ(predicted.peak, whole.prediction.peak);
    EXPECT_EQ(predicted.memory, whole.prediction.memory);
    in_part += predicted.time.Total() != predicted.step;
  }
  EXPECT_GT(in_part, kDeepSeeds * 3 / 4);
}

// Strategies of one problem, evaluated by one Evaluator in random orders with repetitions, by two threads: each time
// what they are worth fresh, whatever was kept before.
TEST(EvaluatorPropertyTest, WhatIsKeptChangesNothing) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    ToyDecoder sizes;
    sizes.layers = 8;
    if (random.Coin()) sizes.hidden = 128;
    sizes.tied = random.Coin();
    Problem problem = ToyDecoderProblem(sizes, 128, A100Cluster(2));
    const CostModel costs(problem.cluster);
    std::vector<Strategy> strategies;
    std::vector<Prediction> fresh;
    while (strategies.size() < 16) {
      Degrees degrees;
      degrees.pipeline = random.Of({1, 2, 4});
      degrees.tensor = random.Of({1, 2});
      degrees.data = 16 / degrees.pipeline / degrees.tensor;
      degrees.microbatch = random.Of({1, 2});
      problem.recompute = static_cast<Recompute>(random.UpTo(2));
      problem.schedule =
          degrees.pipeline > 1 ? random.Coin() ? Schedule::kZeroBubbleH1 : Schedule::kOneFOneB : Schedule::kOneFOneB;
      problem.chunks = *problem.schedule == Schedule::kOneFOneB && degrees.pipeline > 1 ? random.Of({1, 2}) : 1;
      problem.parallel_optimizer = random.Coin();
      problem.shard_parameters = *problem.parallel_optimizer && random.Coin();
      problem.bucket = Bytes(random.Of({0, 10'000, 100'000, 200'000, 1'000'000, 100'000'000}));
      ASSERT_OK_AND_ASSIGN(Strategy strategy, FromDegrees(problem, degrees));
      ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(problem.batch / strategy.microbatches));
      const absl::StatusOr<Prediction> predicted = PredictGraph(problem, graph, costs, strategy);
      if (!predicted.ok()) continue;
      strategies.push_back(std::move(strategy));
      fresh.push_back(*predicted);
    }
    const Evaluator evaluator(problem, costs);
    const auto ask = [&](uint32_t order) {
      Random of_thread(order);
      for (int k = 0; k < 40; ++k) {
        const size_t i = static_cast<size_t>(of_thread.UpTo(15));
        ASSERT_OK_AND_ASSIGN(const Prediction kept, evaluator.Predict(strategies[i]));
        ASSERT_EQ(kept.step, fresh[i].step) << ToText(strategies[i]);
        ASSERT_EQ(kept.peak, fresh[i].peak) << ToText(strategies[i]);
        ASSERT_EQ(kept.memory, fresh[i].memory);
        ASSERT_EQ(kept.outside, fresh[i].outside);
        ASSERT_EQ(kept.mfu, fresh[i].mfu);
        ASSERT_EQ(kept.time, fresh[i].time);
      }
    };
    std::thread other([&] { ask(2 * seed); });
    ask(2 * seed + 1);
    other.join();
  }
}

// What one choice may change to, and which is changed.
struct Choices {
  Degrees degrees;
  Problem problem;
};
constexpr std::pair<const char*, void (*)(Random&, Choices&)> kChanges[] = {
    {"bucket",
     [](Random& random, Choices& of) {
       of.problem.bucket = Bytes(random.Of({0, 10'000, 100'000, 200'000, 1'000'000, 100'000'000}));
     }},
    {"parallel optimizer", [](Random& random, Choices& of) { of.problem.parallel_optimizer = random.Coin(); }},
    {"sharded parameters", [](Random& random, Choices& of) { of.problem.shard_parameters = random.UpTo(4) == 0; }},
    {"recompute", [](Random& random, Choices& of) { of.problem.recompute = static_cast<Recompute>(random.UpTo(3)); }},
    {"schedule",
     [](Random& random, Choices& of) {
       of.problem.schedule = random.Of({1, 0}) > 0 ? Schedule::kOneFOneB : Schedule::kZeroBubbleH1;
     }},
    {"chunks",
     [](Random& random, Choices& of) {
       of.problem.chunks = random.Of({1, 2});
     }},
    {"micro-batch",
     [](Random& random, Choices& of) {
       of.degrees.microbatch = random.Of({1, 2, 4});
     }},
    {"stages",
     [](Random& random, Choices& of) {
       of.degrees.pipeline = random.Of({1, 2, 4, 8});
     }},
    {"tensor degree",
     [](Random& random, Choices& of) {
       of.degrees.tensor = random.Of({1, 2});
     }},
    {"sequence parallel", [](Random& random, Choices& of) { of.degrees.sequence_parallel = random.Coin(); }},
};

// As a search goes: one choice after another is changed, each strategy evaluated by one Evaluator, and fresh.
TEST(EvaluatorPropertyTest, OneChoiceAfterAnother) {
  std::map<std::string, int64_t> changes;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    ToyDecoder sizes;
    sizes.layers = 16;
    sizes.hidden = random.Of({64, 128});
    sizes.tied = random.Coin();
    Choices of = {{}, ToyDecoderProblem(sizes, 256, A100Cluster(2))};
    const Problem problem = of.problem;
    const CostModel costs(problem.cluster);
    const Evaluator evaluator(problem, costs);
    for (int k = 0; k < 40; ++k) {
      // Every second change is of the bucket, which a search changes most.
      const auto& [name, change] = kChanges[random.Coin() ? 0 : random.UpTo(std::size(kChanges) - 1)];
      change(random, of);
      of.degrees.data = 16 / of.degrees.pipeline / of.degrees.tensor;
      const absl::StatusOr<Strategy> strategy = FromDegrees(of.problem, of.degrees);
      if (!strategy.ok()) continue;
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", change ", k, " of ", name, ": ", ToText(*strategy)));
      ASSERT_OK_AND_ASSIGN(const Graph graph, problem.graph(problem.batch / strategy->microbatches));
      const absl::StatusOr<Prediction> fresh = PredictGraph(problem, graph, costs, *strategy);
      const absl::StatusOr<Prediction> kept = evaluator.Predict(*strategy);
      ASSERT_EQ(kept.status(), fresh.status());
      if (!fresh.ok()) continue;
      ASSERT_EQ(kept->step, fresh->step);
      ASSERT_EQ(kept->peak, fresh->peak);
      ASSERT_EQ(kept->memory, fresh->memory);
      ASSERT_EQ(kept->outside, fresh->outside);
      ASSERT_EQ(kept->mfu, fresh->mfu);
      ASSERT_EQ(kept->time, fresh->time);
      ++changes[name];
    }
  }
  for (const auto& [name, change] : kChanges) EXPECT_GT(changes[name], 5) << name;
}

}  // namespace
}  // namespace meshwright
