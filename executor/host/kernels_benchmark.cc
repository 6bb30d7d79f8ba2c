// The host's products against the BLAS library alone, and what other kernels move.
//   tools/bazel run -c opt //executor/host:kernels_benchmark
#include <string>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "executor/host/blas.h"
#include "executor/host/communicator.h"
#include "executor/host/kernels.h"
#include "executor/host/thread_fabric.h"
#include "executor/op_examples.h"

namespace meshwright {
namespace {

void SetFlops(benchmark::State& state, double flops) {
  state.counters["flops"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate, benchmark::Counter::OneK::kIs1000);
}

// m x k times k x n, by BLAS alone.
void BM_Gemm(benchmark::State& state) {
  host::UseOneBlasThread();
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  std::vector<float> a(m * k, 1), b(k * n, 1), c(m * n);
  for (auto _ : state) {
    host::Gemm<float>(m, n, k, 1, {a.data(), k}, {b.data(), n}, 0, {c.data(), n});
    benchmark::DoNotOptimize(c.data());
  }
  SetFlops(state, 2.0 * static_cast<double>(m * n) * static_cast<double>(k));
}

// Runs a kernel on the given shapes.
void RunCase(benchmark::State& state, const OpExample& example) {
  host::UseOneBlasThread();
  OpCase c = MakeCase(example, 1, DType::kFloat32);
  std::vector<TensorView> inputs, outputs;
  for (OwnedTensor& tensor : c.inputs) inputs.push_back(tensor.View());
  for (OwnedTensor& tensor : c.outputs) outputs.push_back(tensor.View());
  const KernelCall call = {example.op, &c.example.attrs, &c.rule, 0, 1, inputs, outputs};
  for (auto _ : state) {
    if (!RunHostKernel(call).ok()) state.SkipWithError("the kernel failed");
  }
}

// A decoder layer's products of s = 128, b = 2, h = 512, as kernels see them; each beside the plain product of its
// size.
struct ProductCase {
  const char* name;
  const char* rule;
  std::vector<Shape> inputs;
  int64_t m, n, k;
};
const ProductCase kProducts[] = {
    {"square", "m k, k n -> m n", {{512, 512}, {512, 512}}, 512, 512, 512},
    {"qkv", "s b h, h g r d -> s b g r d", {{128, 2, 512}, {512, 8, 3, 64}}, 256, 1536, 512},
    {"qkv input gradient", "s b g r d, h g r d -> s b h", {{128, 2, 8, 3, 64}, {512, 8, 3, 64}}, 256, 512, 1536},
    {"qkv weight gradient", "s b h, s b g r d -> h g r d", {{128, 2, 512}, {128, 2, 8, 3, 64}}, 512, 1536, 256},
    {"logits", "s b h, v h -> s b v", {{128, 2, 512}, {4096, 512}}, 256, 4096, 512},
    {"copied first", "s b h, f h g -> b s g f", {{128, 2, 512}, {4, 512, 256}}, 256, 1024, 512},
};

void BM_MatMul(benchmark::State& state) {
  const ProductCase& c = kProducts[state.range(0)];
  RunCase(state, {OpKind::kMatMul, c.rule, c.inputs});
  SetFlops(state, 2.0 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k));
  state.SetLabel(c.name);
}

void BM_Attention(benchmark::State& state) {
  const int64_t s = state.range(0);
  OpAttrs attrs;
  attrs.scale = 0.125;
  const Shape qkv = {s, 1, 8, 3, 64}, y = {s, 1, 8, 1, 64}, saved = {s, 1, 8, 1};
  RunCase(state, {OpKind::kAttention, "s! b g r! d! -> s! b g q! d!, s! b g q!", {qkv}, attrs, {}, -1, 1, {y, saved}});
  SetFlops(state, 2.0 * static_cast<double>(s * s) * 8 * 64);  // causal: half of 4 s^2 d per head
}
BENCHMARK(BM_Attention)->Arg(128)->Arg(1024);

// Of 4 heads of 64 x 64, by the delta rule: three products of a vector with the state for each token, backward six.
void BM_LinearAttention(benchmark::State& state) {
  const int64_t s = state.range(0);
  const bool backward = state.range(1) != 0;
  const Shape x = {s, 1, 4, 192}, gates = {s, 1, 4, 2}, heads = {4, 1}, y = {s, 1, 4, 1, 64};
  const std::string of = "s! b y w!, s! b y p!, y n!, y n!", made = "s! b y n! u!";
  if (backward) {
    RunCase(state, {OpKind::kLinearAttentionGrad, made + ", " + of + " -> " + of, {y, x, gates, heads, heads}});
  } else {
    RunCase(state, {OpKind::kLinearAttention, of + " -> " + made, {x, gates, heads, heads}, {}, {}, -1, 1, {y}});
  }
  SetFlops(state, 2.0 * (backward ? 6 : 3) * static_cast<double>(s) * 4 * 64 * 64);
}
BENCHMARK(BM_LinearAttention)->ArgsProduct({{128, 1024}, {0, 1}});

void BM_Add(benchmark::State& state) {
  RunCase(state, {OpKind::kAdd, "a b, a b -> a b", {{1024, 1024}, {1024, 1024}}});
  state.SetBytesProcessed(state.iterations() * 3 * 4 * 1024 * 1024);
}
BENCHMARK(BM_Add);

void BM_LayerNorm(benchmark::State& state) {
  RunCase(state, {OpKind::kLayerNorm, "a h!, h!, h! -> a h!", {{1024, 1024}, {1024}, {1024}}});
  state.SetBytesProcessed(state.iterations() * 2 * 4 * 1024 * 1024);
}
BENCHMARK(BM_LayerNorm);

// One all_reduce of `range(1)` floats over `range(0)` threads; rank 0's thread is timed.
void BM_AllReduce(benchmark::State& state) {
  const int64_t n = state.range(0), count = state.range(1);
  for (auto _ : state) {
    ThreadFabric fabric(n);
    std::vector<int64_t> ranks(n);
    for (int64_t r = 0; r < n; ++r) ranks[r] = r;
    std::vector<std::thread> threads;
    for (int64_t r = 0; r < n; ++r) {
      threads.emplace_back([&, r] {
        std::vector<float> x(count, 1);
        auto* data = reinterpret_cast<std::byte*>(x.data());
        const GroupView group = {ranks, r};
        AllReduce(fabric.endpoint(r), group, DType::kFloat32, Reduction::kSum, count, data, data).IgnoreError();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  state.SetBytesProcessed(state.iterations() * count * 4);
}
BENCHMARK(BM_AllReduce)->Args({2, 1 << 20})->Args({8, 1 << 20})->UseRealTime();

// BM_MatMul/i directly after the BM_Gemm of its size.
[[maybe_unused]] const bool registered = [] {
  for (int64_t i = 0; i < static_cast<int64_t>(std::size(kProducts)); ++i) {
    const ProductCase& c = kProducts[i];
    benchmark::RegisterBenchmark("BM_Gemm", BM_Gemm)->Args({c.m, c.n, c.k});
    benchmark::RegisterBenchmark("BM_MatMul", BM_MatMul)->Arg(i);
  }
  return true;
}();

}  // namespace
}  // namespace meshwright
