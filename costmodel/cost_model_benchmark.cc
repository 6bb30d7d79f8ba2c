// What a price costs: the planner asks for millions.
#include <cstdint>

#include "benchmark/benchmark.h"
#include "costmodel/cost_model.h"
#include "costmodel/library.h"

namespace meshwright {
namespace {

CostModel Model() { return CostModel(*MakeCluster("h100-sxm", 16)); }

KernelWork Product(int64_t m, int64_t n, int64_t k) {
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  work.dtype = DType::kBFloat16;
  work.m = m;
  work.n = n;
  work.k = k;
  work.flops = Flops(2.0 * static_cast<double>(m * n) * static_cast<double>(k));
  work.read = Bytes(2 * (m * k + k * n));
  work.written = Bytes(2 * m * n);
  return work;
}

void BM_Product(benchmark::State& state) {
  const CostModel model = Model();
  const KernelWork work = Product(state.range(0), 4096, 4096);
  for (auto _ : state) benchmark::DoNotOptimize(model.Kernel(work));
}
BENCHMARK(BM_Product)->Arg(64)->Arg(1024)->Arg(16384);

void BM_Attention(benchmark::State& state) {
  const CostModel model = Model();
  KernelWork work;
  work.kernel = KernelClass::kAttention;
  work.dtype = DType::kBFloat16;
  work.batch = 32;
  work.m = work.n = 4096;
  work.k = 128;
  work.flops = Flops(1e12);
  work.read = work.written = MiB(64);
  for (auto _ : state) benchmark::DoNotOptimize(model.Kernel(work));
}
BENCHMARK(BM_Attention);

void BM_Streaming(benchmark::State& state) {
  const CostModel model = Model();
  KernelWork work;
  work.kernel = KernelClass::kMemory;
  work.read = work.written = MiB(64);
  for (auto _ : state) benchmark::DoNotOptimize(model.Kernel(work));
}
BENCHMARK(BM_Streaming);

void BM_AllReduce(benchmark::State& state) {
  const CostModel model = Model();
  const int64_t nodes = state.range(0);
  const GroupShape group = {8 * nodes, nodes, 8, 1};
  for (auto _ : state) benchmark::DoNotOptimize(model.Collective(CollectiveKind::kAllReduce, MiB(16), group).time);
}
BENCHMARK(BM_AllReduce)->Arg(1)->Arg(16);

void BM_AllToAll(benchmark::State& state) {
  const CostModel model = Model();
  const GroupShape group = {8, 1, 8, 1};
  for (auto _ : state) benchmark::DoNotOptimize(model.Collective(CollectiveKind::kAllToAll, MiB(16), group).time);
}
BENCHMARK(BM_AllToAll);

void BM_SendRecv(benchmark::State& state) {
  const CostModel model = Model();
  for (auto _ : state) benchmark::DoNotOptimize(model.SendRecv(MiB(16), true).time);
}
BENCHMARK(BM_SendRecv);

}  // namespace
}  // namespace meshwright
