// How fast the simulator is. `bazel run -c opt --config=opt //simulator:simulator_benchmark`
//
// items_per_second counts instructions as one rank of each class would issue them, folded or not.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "costmodel/cost_model.h"
#include "costmodel/testing.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "simulator/price.h"
#include "simulator/simulate.h"
#include "simulator/testing.h"

namespace meshwright {
namespace {

// GPT-3 175B as it is usually cut: 16 stages of 6 layers, 192 micro-batches, 36 kernels and 4 tensor parallel
// collectives in each layer and direction.
PipelineOptions Gpt3() {
  return {.stages = 16, .microbatches = 192, .layers = 6, .instructions = 36, .collective_every = 9, .optimizer = true};
}

// Kernels of 200 us, collectives of 100 us; `shares`: what communication takes of multiprocessors and links.
Prices PricesOf(const Program& program, double shares) {
  return PricesByOrigin(program, {{"F", KernelPrice(Micros(200))},
                                  {"B", KernelPrice(Micros(400))},
                                  {"T", CommunicationPrice(Micros(100), shares, shares)},
                                  {"X", CommunicationPrice(Micros(800), shares, shares)},
                                  {"R", CommunicationPrice(Millis(20), shares, shares)},
                                  {"U", KernelPrice(Millis(5))}});
}

void Simulates(benchmark::State& state, const PipelineOptions& pipeline, double shares,
               const SimulateOptions& options) {
  const Program program = MakePipeline(pipeline);
  const Prices prices = PricesOf(program, shares);
  int64_t instructions = 0, tasks = 0;
  for (const RankClass& rank_class : program.classes) instructions += NumIssued(rank_class);
  for (auto _ : state) {
    const auto result = Simulate(program, prices, options);
    if (!result.ok()) state.SkipWithError(result.status().ToString().c_str());
    tasks = result->num_tasks;
    benchmark::DoNotOptimize(result);
  }
  state.SetItemsProcessed(state.iterations() * instructions);
  state.counters["instructions"] = static_cast<double>(instructions);
  state.counters["tasks"] = static_cast<double>(tasks);
}

void BM_Gpt3(benchmark::State& state) { Simulates(state, Gpt3(), 0, {}); }
BENCHMARK(BM_Gpt3)->Unit(benchmark::kMillisecond);

// The same where transfers and collectives take a fifth of the device from what runs beside them.
void BM_Gpt3Contention(benchmark::State& state) { Simulates(state, Gpt3(), 0.2, {}); }
BENCHMARK(BM_Gpt3Contention)->Unit(benchmark::kMillisecond);

void BM_Gpt3Unfolded(benchmark::State& state) { Simulates(state, Gpt3(), 0.2, {.fold = false}); }
BENCHMARK(BM_Gpt3Unfolded)->Unit(benchmark::kMillisecond);

void BM_Gpt3SlotTraceAndMemory(benchmark::State& state) {
  Simulates(state, Gpt3(), 0.2, {.trace = TraceDetail::kSlots, .memory = true});
}
BENCHMARK(BM_Gpt3SlotTraceAndMemory)->Unit(benchmark::kMillisecond);

// One class, no transfers, 100,000 kernels that are played one by one: the player's own speed.
void BM_SingleStreamUnfolded(benchmark::State& state) {
  Simulates(state, {.stages = 1, .microbatches = 10, .layers = 50, .instructions = 100}, 0, {.fold = false});
}
BENCHMARK(BM_SingleStreamUnfolded)->Unit(benchmark::kMillisecond);

// Pricing 16 stages of 1024 ranks, each with a block of 32 products and 8 collectives.
void BM_PriceProgram(benchmark::State& state) {
  std::string text = "program priced mesh pp=16 dp=128 tp=8\n";
  for (int stage = 0; stage < 16; ++stage) {
    absl::StrAppend(&text, "class \"stage ", stage, "\"\n",
                    "buffer x bfloat16 (2048, 12288) {- | -} activation\n"
                    "buffer w bfloat16 (12288, 12288) {- | tp} parameter\n"
                    "buffer y bfloat16 (2048, 12288) {- | tp} activation\n"
                    "buffer part bfloat16 (2048, 12288) {- | -} partial sum tp activation\n"
                    "block layer forward\n");
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 4; ++j) absl::StrAppend(&text, "compute MatMul \"m k, k n -> m n\" reads x w writes y\n");
      absl::StrAppend(&text, "compute all_reduce sum (tp) activation reads part writes x\n");
    }
  }
  const auto program = ParseProgram(text);
  if (!program.ok()) {
    state.SkipWithError(program.status().ToString().c_str());
    return;
  }
  const CostModel costs(H100Cluster(2048));
  for (auto _ : state) benchmark::DoNotOptimize(PriceProgram(*program, costs));
  state.SetItemsProcessed(state.iterations() * 16 * 40);
}
BENCHMARK(BM_PriceProgram)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace meshwright
