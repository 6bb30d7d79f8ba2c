// How fast simulated time goes by, beside limits measured in the same run.
//   tools/bazel run -c opt //tests/benchmarks:simulator
//
// Targets, on one core: a static program 50 M instructions/s; every message contended 3 M messages/s; one step of
// GPT-3 175B on 1,024 devices 10 ms, of a 405B model on 16,384 30 ms, on 131,072 devices 50 ms, flat within 2x from 1
// to 131,072 devices at the same classes; a 1 GiB all-reduce message by message: ring of 64 3 ms, flat ring of 1,024
// 1 s, 8 x 1,024 2 s; a data-parallel step of 48 layers on 1,024 devices 0.1 s.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "costmodel/cost_model.h"
#include "costmodel/library.h"
#include "models/model_file.h"
#include "planner/lower.h"
#include "simulator/flows.h"
#include "simulator/price.h"
#include "simulator/simulate.h"

namespace meshwright {
namespace {

// Limits of the machine: what a bare loop and a bare queue do.

// Longest path through a graph of 10^7 nodes, each after the one before it and one at random among the 64 before that.
void BM_LimitSweep(benchmark::State& state) {
  const size_t nodes = 10'000'000;
  std::vector<int32_t> other(nodes);
  std::vector<int64_t> end(nodes);
  std::mt19937 random(1);
  for (size_t i = 0; i < nodes; ++i) other[i] = static_cast<int32_t>(i - std::min<size_t>(i, 1 + random() % 64));
  for (auto _ : state) {
    end[0] = 1;
    for (size_t i = 1; i < nodes; ++i) {
      end[i] = std::max(end[i - 1], end[static_cast<size_t>(other[i])]) + static_cast<int64_t>(i & 7);
    }
    benchmark::DoNotOptimize(end.back());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(nodes));
}
BENCHMARK(BM_LimitSweep)->Unit(benchmark::kMillisecond);

// A binary heap of 1,024 times: take the first, put in a later one.
void BM_LimitHeap(benchmark::State& state) {
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> times;
  std::mt19937 random(1);
  for (int i = 0; i < 1024; ++i) times.push(static_cast<int64_t>(random() % 1000));
  for (auto _ : state) {
    const int64_t now = times.top();
    times.pop();
    times.push(now + static_cast<int64_t>(random() % 1000));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_LimitHeap);

// Real programs, from model to step time.

struct Setting {
  Program program;
  Prices prices;
};

Setting Lowered(const std::string& architecture, int64_t batch,
                const std::vector<std::pair<std::string, int64_t>>& axes, int64_t microbatches) {
  const std::string text =
      absl::StrCat("name: m\narchitecture:\n  decoder: ", architecture, "\ntraining: {batch: ", batch,
                   ", sequence: 2048, dtype: bfloat16, optimizer: {adamw: {learning_rate: 1.0e-4}}}\n");
  const ModelFile model = *ParseModelFile(text, "m.yaml");
  int64_t devices = 1;
  for (const auto& axis : axes) devices *= axis.second;
  const CostModel costs(*MakeClusterOfDevices("h100", devices));
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor(axes);
  const AxisList dp = {AxisId(1)}, tp = {AxisId(2)};
  strategy.rules = {{"b", dp}, {"g", tp}, {"f", tp}, {"v", tp}, {"s", tp}};
  strategy.stages = axes[0].second;
  strategy.microbatches = microbatches;
  strategy.loss_divisor = static_cast<double>(microbatches);
  strategy.recompute = Recompute::kSelective;
  strategy.parallel_optimizer = true;
  const Graph graph = *BuildGraph(model, batch / microbatches);
  Setting setting;
  setting.program = *Lower(graph, strategy, UpdateRule{OpKind::kAdamW, {}}, PriceSteps(costs, strategy.mesh));
  setting.prices = *PriceProgram(setting.program, costs);
  return setting;
}

void Play(benchmark::State& state, const Setting& setting, const SimulateOptions& options = {}) {
  int64_t instructions = 0;
  for (const RankClass& rank_class : setting.program.classes) instructions += NumIssued(rank_class);
  for (auto _ : state) {
    const auto result = Simulate(setting.program, setting.prices, options);
    if (!result.ok()) state.SkipWithError(result.status().ToString().c_str());
    state.counters["step_s"] = ToSeconds(result->makespan);
  }
  state.SetItemsProcessed(state.iterations() * instructions);
  state.counters["instructions"] = static_cast<double>(instructions);
}

constexpr char kGpt3[] = "{hidden: 12288, layers: 96, heads: 96, vocab: 51200, tied_embeddings: true, bias: true}";
constexpr char kLlama405[] =
    "{hidden: 16384, layers: 128, heads: 128, kv_heads: 8, ffn: 53248, vocab: 128256, norm: rms_norm, activation: "
    "swiglu}";

void BM_Gpt3On1024(benchmark::State& state) {
  Play(state, Lowered(kGpt3, 1536, {{"pp", 16}, {"dp", 8}, {"tp", 8}}, 192));
}
BENCHMARK(BM_Gpt3On1024)->Unit(benchmark::kMillisecond);

void BM_Llama405On16384(benchmark::State& state) {
  Play(state, Lowered(kLlama405, 2048, {{"pp", 16}, {"dp", 128}, {"tp", 8}}, 16));
}
BENCHMARK(BM_Llama405On16384)->Unit(benchmark::kMillisecond);

// The same classes on 128 x dp devices.
void BM_Gpt3OnDevices(benchmark::State& state) {
  const int64_t dp = state.range(0) / 128;
  Play(state, Lowered(kGpt3, 192 * dp, {{"pp", 16}, {"dp", dp}, {"tp", 8}}, 192));
}
BENCHMARK(BM_Gpt3OnDevices)->RangeMultiplier(8)->Range(128, 131072)->Unit(benchmark::kMillisecond);

// 48 equal layers, each of whose gradients are summed over 1,024 devices while backward goes on.
void BM_DataParallelOn1024(benchmark::State& state) {
  Play(state,
       Lowered("{hidden: 1024, layers: 48, heads: 16, vocab: 1024}", 1024, {{"pp", 1}, {"dp", 1024}, {"tp", 1}}, 1));
}
BENCHMARK(BM_DataParallelOn1024)->Unit(benchmark::kMillisecond);

// Message by message.

// Ring all-reduce over n ranks whose neighbours are one link out and one link in apart.
std::vector<Train> Ring(int32_t n, Bytes size) {
  std::vector<Train> trains;
  for (int32_t rank = 0; rank < n; ++rank) {
    trains.push_back({.route = rank, .size = size / n, .count = 2 * (n - 1), .feeder = (rank + n - 1) % n});
  }
  return trains;
}

FlowNetwork RingNetwork(int32_t n) {
  FlowNetwork network;
  network.links.assign(static_cast<size_t>(2 * n), GBps(50));
  for (int32_t rank = 0; rank < n; ++rank) network.routes.push_back({{rank, n + (rank + 1) % n}, Micros(2)});
  return network;
}

void PlayAll(benchmark::State& state, const FlowNetwork& network, const std::vector<Train>& trains) {
  int64_t messages = 0;
  for (const Train& train : trains) messages += train.count;
  for (auto _ : state) {
    const auto times = PlayTrains(network, trains);
    if (!times.ok()) state.SkipWithError(times.status().ToString().c_str());
    state.counters["simulated_s"] = ToSeconds(times->back().end);
  }
  state.SetItemsProcessed(state.iterations() * messages);
  state.counters["messages"] = static_cast<double>(messages);
}

void BM_RingAllReduce(benchmark::State& state) {
  const int32_t n = static_cast<int32_t>(state.range(0));
  PlayAll(state, RingNetwork(n), Ring(n, GiB(1)));
}
BENCHMARK(BM_RingAllReduce)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

// Reduce-scatter in nodes of 8, all-reduce of each eighth over the nodes, all-gather in the nodes.
void BM_NodesAllReduce(benchmark::State& state) {
  const int32_t nodes = static_cast<int32_t>(state.range(0)), per_node = 8, n = nodes * per_node;
  FlowNetwork network;
  network.links.assign(static_cast<size_t>(2 * n), GBps(450));  // inside the nodes, out and in
  network.links.resize(static_cast<size_t>(4 * n), GBps(50));   // network cards, out and in
  const auto rank_of = [&](int32_t node, int32_t place) {
    return (node + nodes) % nodes * per_node + (place + per_node) % per_node;
  };
  std::vector<Train> trains(static_cast<size_t>(3 * n));
  for (int32_t rank = 0; rank < n; ++rank) {
    const int32_t node = rank / per_node, place = rank % per_node;
    network.routes.push_back({{rank, n + rank_of(node, place + 1)}, Micros(1)});
  }
  for (int32_t rank = 0; rank < n; ++rank) {
    const int32_t node = rank / per_node, place = rank % per_node;
    network.routes.push_back({{2 * n + rank, 3 * n + rank_of(node + 1, place)}, Micros(2)});
    const int32_t left = rank_of(node, place - 1);
    const Bytes part = GiB(1) / per_node;
    const size_t r = static_cast<size_t>(rank);
    trains[r] = {.route = rank, .size = part, .count = per_node - 1, .feeder = left};
    trains[static_cast<size_t>(n) + r] = {.route = n + rank,
                                          .size = part / nodes,
                                          .count = 2 * (nodes - 1),
                                          .after = left,
                                          .feeder = n + rank_of(node - 1, place)};
    trains[static_cast<size_t>(2 * n) + r] = {.route = rank,
                                              .size = part,
                                              .count = per_node - 1,
                                              .after = n + rank_of(node - 1, place),
                                              .feeder = 2 * n + left};
  }
  PlayAll(state, network, trains);
}
BENCHMARK(BM_NodesAllReduce)->Arg(16)->Arg(128)->Arg(1024)->Unit(benchmark::kMillisecond);

// 512 pairs of senders, each pair on a link of its own, with messages of odd sizes: each end changes the other's rate.
void BM_EveryMessageContended(benchmark::State& state) {
  FlowNetwork network;
  std::vector<Train> trains;
  std::mt19937 random(1);
  for (int32_t pair = 0; pair < 512; ++pair) {
    network.links.push_back(GBps(50));
    network.routes.push_back({{pair}, Nanos()});
    for (int i = 0; i < 2; ++i) {
      trains.push_back(
          {.route = pair, .size = Bytes(100'000 + static_cast<int64_t>(random() % 100'000)), .count = 400});
    }
  }
  PlayAll(state, network, trains);
}
BENCHMARK(BM_EveryMessageContended)->Unit(benchmark::kMillisecond);

// 256 senders through one link: each end changes the rate of all.
void BM_OneLinkForAll(benchmark::State& state) {
  FlowNetwork network;
  std::vector<Train> trains;
  network.links.push_back(GBps(50));
  std::mt19937 random(1);
  for (int32_t i = 0; i < 256; ++i) {
    network.links.push_back(GBps(50));
    network.routes.push_back({{0, i + 1}, Micros(2)});
    trains.push_back({.route = i, .size = Bytes(100'000 + static_cast<int64_t>(random() % 100'000)), .count = 10});
  }
  PlayAll(state, network, trains);
}
BENCHMARK(BM_OneLinkForAll)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace meshwright

BENCHMARK_MAIN();
