// Which way a prediction moves when one thing about machine, model or plan changes, over random models, strategies and
// all devices of the library. These hold whatever the constants are; the seed is printed with every failure.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/search/evaluate.h"
#include "planner/search/search.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

constexpr uint32_t kSeeds = 60;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  template <class T>
  T Of(const std::vector<T>& values) {
    return values[engine_() % values.size()];
  }
  bool Coin() { return engine_() % 2 == 0; }

 private:
  std::mt19937 engine_;
};

struct Case {
  ToyDecoder sizes;
  int64_t batch = 0;
  Cluster cluster;
  Degrees degrees;
  Recompute recompute = Recompute::kNone;
  bool parallel_optimizer = false;
  Schedule schedule = Schedule::kOneFOneB;
  Bytes bucket;
};

Case RandomCase(uint32_t seed) {
  Random random(seed);
  Case of;
  Degrees& d = of.degrees;
  d.pipeline = random.Of<int64_t>({1, 1, 2, 4});
  d.tensor = random.Of<int64_t>({1, 2, 4});
  d.data = 16 / d.pipeline / d.tensor;
  d.sequence_parallel = d.tensor > 1 && random.Coin();
  d.microbatch = random.Of<int64_t>({1, 2, 4});
  // The last layer of a stage is not run again (its backward pass follows at once): of few layers that is much.
  of.sizes.layers = d.pipeline * random.Of<int64_t>({4, 6, 10});
  of.sizes.hidden = random.Of<int64_t>({256, 1024, 4096});
  of.sizes.heads = of.sizes.hidden / 64;
  of.sizes.ffn = 4 * of.sizes.hidden;
  of.sizes.sequence = random.Of<int64_t>({128, 1024, 4096});
  of.sizes.vocab = random.Of<int64_t>({1024, 32000});
  of.sizes.tied = random.Coin();
  if (random.Of<int>({0, 0, 1}) == 1) {
    of.sizes.experts = 8;
    if (d.data % 2 == 0) d.expert = random.Of<int64_t>({1, 2});
  }
  of.batch = d.data * d.microbatch * d.pipeline * random.Of<int64_t>({1, 2, 5});
  std::vector<std::string> devices;
  for (const std::string& name : DeviceNames()) {
    if (name != "host") devices.push_back(name);
  }
  const std::string device = random.Of(devices);
  const absl::StatusOr<Cluster> cluster = MakeClusterOfDevices(device, 16);
  EXPECT_OK(cluster) << device;
  if (cluster.ok()) of.cluster = *cluster;
  of.recompute = random.Of<Recompute>({Recompute::kNone, Recompute::kSelective, Recompute::kFull});
  of.parallel_optimizer = random.Coin();
  of.schedule = random.Of<Schedule>({Schedule::kOneFOneB, Schedule::kGpipe});
  of.bucket = random.Of<Bytes>({MiB(8), MiB(256)});
  return of;
}

Problem ProblemOf(const Case& of) {
  Problem problem = ToyDecoderProblem(of.sizes, of.batch, of.cluster);
  problem.recompute = of.recompute;
  problem.parallel_optimizer = of.parallel_optimizer;
  problem.shard_parameters = false;
  problem.schedule = of.schedule;
  problem.chunks = 1;
  problem.bucket = of.bucket;
  return problem;
}

absl::StatusOr<Prediction> PredictionOf(const Case& of) {
  const Problem problem = ProblemOf(of);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Strategy strategy, FromDegrees(problem, of.degrees));
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(problem, strategy));
  return std::move(evaluation.prediction);
}

std::string Describe(uint32_t seed, const Case& of) {
  const Degrees& d = of.degrees;
  return absl::StrCat("seed ", seed, ": ", of.cluster.device.name, " dp ", d.data, " tp ", d.tensor, " pp ", d.pipeline,
                      " ep ", d.expert, " x ", d.microbatch, ", hidden ", of.sizes.hidden, " layers ", of.sizes.layers,
                      " sequence ", of.sizes.sequence, " batch ", of.batch, " recompute ", NameOf(of.recompute));
}

Case With(Case of, const std::function<void(Case&)>& change) {
  change(of);
  return of;
}

// What makes a machine slower, by so much that no second-order effect outweighs it: a collective that takes longer
// disturbs the kernels beside it less at any moment, and NCCL may choose another algorithm.
struct Slower {
  std::string what;
  std::function<void(Cluster&)> change;
};
const std::vector<Slower>& WaysToBeSlower() {
  static const auto* const kWays = new std::vector<Slower>{
      {"network cards at an eighth", [](Cluster& c) { c.nic_bandwidth = BytesPerSecond(c.nic_bandwidth.raw() / 8); }},
      {"links of a node at an eighth",
       [](Cluster& c) { c.intra_bandwidth = BytesPerSecond(c.intra_bandwidth.raw() / 8); }},
      {"messages 1 ms later", [](Cluster& c) { c.nic_latency = c.nic_latency + Millis(1); }},
      {"memory at half",
       [](Cluster& c) { c.device.memory_bandwidth = BytesPerSecond(c.device.memory_bandwidth.raw() / 2); }},
      {"clock at half", [](Cluster& c) { c.device.kernels.sustained_clock /= 2; }},
  };
  return *kWays;
}

TEST(DirectionPropertyTest, SlowerMachinesAreNotFaster) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Case of = RandomCase(seed);
    SCOPED_TRACE(Describe(seed, of));
    ASSERT_OK_AND_ASSIGN(const Prediction before, PredictionOf(of));
    for (const Slower& way : WaysToBeSlower()) {
      ASSERT_OK_AND_ASSIGN(const Prediction after, PredictionOf(With(of, [&](Case& c) { way.change(c.cluster); })));
      EXPECT_GE(after.step, before.step) << way.what;
    }
  }
}

// Twice of something takes longer, and no more than twice: what is done once stays, and a second half can be appended
// to the first.
TEST(DirectionPropertyTest, TwiceTheWorkTakesUpToTwiceAsLong) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Case of = RandomCase(seed);
    SCOPED_TRACE(Describe(seed, of));
    ASSERT_OK_AND_ASSIGN(const Prediction once, PredictionOf(of));
    ASSERT_OK_AND_ASSIGN(const Prediction rows, PredictionOf(With(of, [](Case& c) { c.batch *= 2; })));
    EXPECT_GT(rows.step, once.step);
    EXPECT_LE(rows.step, 2 * once.step);
    EXPECT_GE(rows.arena, once.arena);
    ASSERT_OK_AND_ASSIGN(const Prediction layers, PredictionOf(With(of, [](Case& c) { c.sizes.layers *= 2; })));
    EXPECT_GT(layers.step, once.step);
    EXPECT_LE(layers.step, 2 * once.step);
    EXPECT_GT(layers.arena, once.arena);
    ASSERT_OK_AND_ASSIGN(const Prediction tokens, PredictionOf(With(of, [](Case& c) { c.sizes.sequence *= 2; })));
    EXPECT_GT(tokens.step, once.step);
    EXPECT_GT(tokens.arena, once.arena);
  }
}

TEST(DirectionPropertyTest, RecomputeGivesTimeForMemory) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Case of = RandomCase(seed);
    SCOPED_TRACE(Describe(seed, of));
    std::vector<Prediction> by_choice;
    for (const Recompute choice : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      of.recompute = choice;
      ASSERT_OK_AND_ASSIGN(const Prediction prediction, PredictionOf(of));
      by_choice.push_back(prediction);
    }
    for (size_t i = 1; i < by_choice.size(); ++i) {
      EXPECT_GE(by_choice[i].step, by_choice[0].step);
      EXPECT_LE(by_choice[i].arena, by_choice[i - 1].arena);
    }
  }
}

// S12.8: GPipe keeps the activations of all micro-batches.
TEST(DirectionPropertyTest, GpipeNeedsNoLessMemoryThan1F1B) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Case of = RandomCase(seed);
    if (of.degrees.pipeline == 1) continue;
    SCOPED_TRACE(Describe(seed, of));
    of.schedule = Schedule::kGpipe;
    ASSERT_OK_AND_ASSIGN(const Prediction gpipe, PredictionOf(of));
    of.schedule = Schedule::kOneFOneB;
    ASSERT_OK_AND_ASSIGN(const Prediction one, PredictionOf(of));
    EXPECT_GE(gpipe.arena, one.arena);
  }
}

// A search that may choose more finds nothing slower.
TEST(DirectionPropertyTest, MoreToChooseFromIsNotSlower) {
  for (uint32_t seed = 0; seed < kSeeds / 10; ++seed) {
    const Case of = RandomCase(seed);
    SCOPED_TRACE(Describe(seed, of));
    Problem all = ProblemOf(of);  // fewer choices than there are, for a search of moments
    all.recompute.reset();
    ASSERT_OK_AND_ASSIGN(const SearchResult free, Search(all));
    const Candidate& best = free.ranked[0];
    const auto expect_no_faster = [&](const Problem& problem, const std::string& what) {
      const absl::StatusOr<SearchResult> found = Search(problem);
      if (!found.ok()) return;  // nothing fits
      EXPECT_GE(found->ranked[0].prediction.step, best.prediction.step) << what;
    };
    Problem fixed = all;
    fixed.tensor_parallel = of.degrees.tensor;
    expect_no_faster(fixed, "one tensor degree");
    fixed = all;
    fixed.recompute = of.recompute;
    expect_no_faster(fixed, "one recompute");
    fixed = all;
    fixed.memory_limit = Bytes(best.prediction.peak.raw() * 2 / 3);
    expect_no_faster(fixed, "less memory");
    // And what it chose, fixed, is found again.
    fixed = all;
    fixed.data_parallel = best.degrees.data;
    fixed.tensor_parallel = best.degrees.tensor;
    fixed.stages = best.degrees.pipeline;
    fixed.microbatch = best.degrees.microbatch;
    fixed.recompute = best.strategy.recompute;
    ASSERT_OK_AND_ASSIGN(const SearchResult again, Search(fixed));
    EXPECT_EQ(again.ranked[0].prediction.step, best.prediction.step);
  }
}

}  // namespace
}  // namespace meshwright
