// How long planning takes: one evaluation, and whole searches.
//
//   bazel run -c opt //planner/search:search_benchmark
#include <ctime>
#include <iterator>

#include "benchmark/benchmark.h"
#include "costmodel/testing.h"
#include "planner/search/evaluate.h"
#include "planner/search/search.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

// CPU time of one call.
template <typename Call>
double SecondsOf(const Call& call) {
  const std::clock_t begin = std::clock();
  benchmark::DoNotOptimize(call());
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// GPT-3 175B on 1,024 A100, time and memory.
struct Gpt3On1024 {
  Gpt3On1024(int64_t stages, int64_t chunks) : problem(ToyDecoderProblem(Gpt3(), 1536, A100Cluster(128))) {
    problem.chunks = chunks;
    strategy = *FromDegrees(problem, {.data = 128 / stages, .tensor = 8, .pipeline = stages});
  }
  Problem problem;
  Strategy strategy;
};

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"stages", "chunks"})
      ->Args({1, 1})
      ->Args({8, 1})
      ->Args({16, 1})
      ->Args({32, 1})
      ->Args({64, 1})
      ->Args({8, 12});
  benchmark->Unit(benchmark::kMillisecond);
}

// Within a search: as few micro-batches as it takes. `of_whole`: as a share of its peer, which plays all of them.
void BM_Predict(benchmark::State& state) {
  const Gpt3On1024 of(state.range(0), state.range(1));
  const CostModel costs(of.problem.cluster);
  const auto graph = [&of] { return *of.problem.graph(of.problem.batch / of.strategy.microbatches); };
  double whole = 0, predicted = 0;
  for (auto _ : state) {
    state.PauseTiming();
    whole += SecondsOf([&] { return EvaluateGraph(of.problem, graph(), costs, of.strategy); });
    state.ResumeTiming();
    predicted += SecondsOf([&] { return PredictGraph(of.problem, graph(), costs, of.strategy); });
  }
  state.counters["of_whole"] = predicted / whole;
}
BENCHMARK(BM_Predict)->Apply(Shapes);

// The same by an Evaluator that has just evaluated 8 stages of one chunk, micro-batches of one row, nothing computed
// twice, the optimizer whole and buckets of 64 MiB, where one choice changed. `of_fresh`: as a share of its peer, which
// finds nothing kept.
struct Change {
  const char* name;
  void (*make)(Degrees& degrees, Problem& problem);
};
constexpr Change kChanges[] = {
    {"stages", [](Degrees& degrees, Problem&) { degrees.pipeline = 16, degrees.data = 8; }},
    {"tensor_degree", [](Degrees& degrees, Problem&) { degrees.tensor = 4, degrees.data = 32; }},
    {"sequence_parallel", [](Degrees& degrees, Problem&) { degrees.sequence_parallel = true; }},
    {"microbatch", [](Degrees& degrees, Problem&) { degrees.microbatch = 2; }},
    {"recompute", [](Degrees&, Problem& problem) { problem.recompute = Recompute::kFull; }},
    {"schedule", [](Degrees&, Problem& problem) { problem.schedule = Schedule::kZeroBubbleH1; }},
    {"chunks", [](Degrees&, Problem& problem) { problem.chunks = 2; }},
    {"parallel_optimizer", [](Degrees&, Problem& problem) { problem.parallel_optimizer = true; }},
    {"bucket", [](Degrees&, Problem& problem) { problem.bucket = MiB(512); }},
    {"bucket_of_the_same_calls", [](Degrees&, Problem& problem) { problem.bucket = MiB(48); }},
    {"nothing", [](Degrees&, Problem&) {}},
};

void BM_Change(benchmark::State& state) {
  const Change& change = kChanges[state.range(0)];
  state.SetLabel(change.name);
  const Gpt3On1024 before(8, 1);
  Degrees degrees = {.data = 16, .tensor = 8, .pipeline = 8};
  Problem problem = before.problem;
  change.make(degrees, problem);
  const Strategy after = *FromDegrees(problem, degrees);
  const CostModel costs(problem.cluster);
  double fresh = 0, kept = 0;
  for (auto _ : state) {
    state.PauseTiming();
    fresh += SecondsOf([&] { return Evaluator(problem, costs).Predict(after); });
    const Evaluator evaluator(problem, costs);
    benchmark::DoNotOptimize(evaluator.Predict(before.strategy));
    state.ResumeTiming();
    kept += SecondsOf([&] { return evaluator.Predict(after); });
  }
  state.counters["of_fresh"] = kept / fresh;
}
BENCHMARK(BM_Change)->ArgName("change")->DenseRange(0, std::size(kChanges) - 1)->Unit(benchmark::kMillisecond);

// What a search changes most often: the bucket, from 32 to 128 MiB, where the optimizer is split, so that both ends of
// the step change.
void BM_NextBucket(benchmark::State& state) {
  Gpt3On1024 of(state.range(0), state.range(1));
  const auto with_bucket = [&of](Bytes bucket) {
    Strategy strategy = of.strategy;
    strategy.parallel_optimizer = true;
    strategy.bucket = bucket;
    return strategy;
  };
  const Strategy before = with_bucket(MiB(32)), after = with_bucket(MiB(128));
  const CostModel costs(of.problem.cluster);
  double fresh = 0, kept = 0;
  for (auto _ : state) {
    state.PauseTiming();
    fresh += SecondsOf([&] { return Evaluator(of.problem, costs).Predict(after); });
    const Evaluator evaluator(of.problem, costs);
    benchmark::DoNotOptimize(evaluator.Predict(before));
    state.ResumeTiming();
    kept += SecondsOf([&] { return evaluator.Predict(after); });
  }
  state.counters["of_fresh"] = kept / fresh;
}
BENCHMARK(BM_NextBucket)->Apply(Shapes);

void SearchOn(benchmark::State& state, const Problem& problem) {
  SearchResult last;
  for (auto _ : state) {
    auto result = Search(problem, {.threads = static_cast<int>(state.range(0))});
    if (!result.ok()) {
      state.SkipWithError(result.status().ToString().c_str());
      break;
    }
    last = *std::move(result);
  }
  state.counters["considered"] = static_cast<double>(last.considered);
  state.counters["simulated"] = static_cast<double>(last.simulated);
}

void BM_SearchGpt3(benchmark::State& state) { SearchOn(state, ToyDecoderProblem(Gpt3(), 1536, A100Cluster(128))); }
BENCHMARK(BM_SearchGpt3)->ArgName("threads")->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

// `of_adamw`: as a multiple of the same search with AdamW. Of each matrix an update has some thirty-five instructions.
void BM_SearchMuon(benchmark::State& state) {
  const auto search = [](OpKind optimizer) {
    Problem problem = ToyDecoderProblem(Gpt3(), 1536, A100Cluster(128));
    problem.update.kind = optimizer;
    return SecondsOf([&] { return Search(problem, {.threads = 1}); });
  };
  double muon = 0, adamw = 0;
  for (auto _ : state) {
    state.PauseTiming();
    adamw += search(OpKind::kAdamW);
    state.ResumeTiming();
    muon += search(OpKind::kMuon);
  }
  state.counters["of_adamw"] = muon / adamw;
}
BENCHMARK(BM_SearchMuon)->Unit(benchmark::kMillisecond);

// `of_24`: as a multiple of its peer of 24 layers. Each layer count has other stages and chunks to look at.
void BM_SearchLayers(benchmark::State& state) {
  const auto search = [](int64_t layers) {
    ToyDecoder sizes = Gpt3();
    sizes.layers = layers;
    return SecondsOf([&] { return Search(ToyDecoderProblem(sizes, 1536, A100Cluster(128)), {.threads = 1}); });
  };
  double seconds = 0, least = 0;
  for (auto _ : state) {
    state.PauseTiming();
    least += search(24);
    state.ResumeTiming();
    seconds += search(state.range(0));
  }
  state.counters["of_24"] = seconds / least;
}
BENCHMARK(BM_SearchLayers)->ArgName("layers")->RangeMultiplier(2)->Range(48, 384)->Unit(benchmark::kMillisecond);

// More experts make more degrees.
void BM_SearchExperts(benchmark::State& state) {
  const ToyDecoder sizes = {
      .layers = 32, .hidden = 4096, .heads = 32, .ffn = 14336, .vocab = 32000, .sequence = 4096, .experts = 8};
  SearchOn(state, ToyDecoderProblem(sizes, 1024, H100Cluster(16)));
}
BENCHMARK(BM_SearchExperts)->ArgName("threads")->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

// 3,025 combinations of operator strategies, each simulated.
void BM_Exhaustive(benchmark::State& state) {
  Problem problem;
  problem.graph = BuildSeedB;
  problem.batch = 16;
  problem.cluster = A100Cluster(1);
  problem.mode = SearchMode::kExhaustive;
  SearchOn(state, problem);
}
BENCHMARK(BM_Exhaustive)->ArgName("threads")->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace meshwright
