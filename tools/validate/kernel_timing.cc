#include "tools/validate/kernel_timing.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "costmodel/kernel_cost.h"
#include "costmodel/power_clock.h"
#include "ir/quantities.h"
#include "tools/validate/power_limit.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

// What a kernel takes more that a profiler times alone, with what it reads not in the cache, than in a loop, where its
// start overlaps the end of the one before: median of 18 products of H100 that both have, loops of ai-dynamo's
// aiconfigurator and openxla's table of products (its CUPTI tracer, matmul_perf_table_gen.cc); of the other 18 the
// median is 1.7 us. Products of 64 and 128 rows of two other logs are 14 % off with it, 25 without (DeepGEMM's issues
// 136 and 168, whose benchmark empties the cache).
constexpr double kAloneSeconds = 1.8e-6;

// The same where Triton's do_bench times it between two events, behind a kernel that empties the cache: mean of 256,
// 384 and 512 cubed of its tutorial on H100 (issue 3672). On B200, which it was not taken from, sixteen products of 256
// to 1408 take 5.6 us more (facebookexperimental/triton, pulls 180 and 220).
constexpr double kBetweenEventsSeconds = 5.2e-6;

// The same where the host waits for each kernel before it starts the next: 9.6 us for one of 2.9 us (NVIDIA, "Getting
// Started with CUDA Graphs", V100).
constexpr double kBetweenWaitsSeconds = 6.7e-6;

// Products of float8 draw more than those of 16 bits: H100 and H200, whose limit leaves these the full clock, go at
// 0.91 after 10,000 of them (Azure/AI-benchmarking-guide, 18 products), and power at 1 is 1.31 times that at 0.91.
constexpr double kFloat8Activity = 1.3;
// Products of float32 outside of matrix units draw less: V100 SXM2 does 14.4 TFLOP/s at 8192
// (zzc0721/torch-performance-test-data, issue 140), which is 0.955 of its clock at the share that V100 reaches, where
// those of float16 are held to 0.9, and power at 0.9 is 0.84 times that at 0.955. More so on A100 and Ada: fitted on
// every second float32 layer of NeuSight's test set on A100 PCIe 40GB and 80GB, and on L4, which has 0.46 of its clock
// where 16 bits have 0.55.
constexpr double kFloat32Activity = 0.84, kFloat32ActivityAmpere = 0.93, kFloat32ActivityAda = 1.2;

double Activity(DType dtype, Generation generation) {
  if (dtype == DType::kFloat8) return kFloat8Activity;
  if (dtype != DType::kFloat32) return 1;
  if (generation == Generation::kAda) return kFloat32ActivityAda;
  return generation == Generation::kAmpere ? kFloat32ActivityAmpere : kFloat32Activity;
}

// Attention, whose scores never leave the multiprocessor, draws less: on GB300 cuDNN does 2017 TFLOP/s where long
// products do 1757 (NVIDIA/cudnn-frontend; facebookexperimental/triton, pull 740).
constexpr double kAttentionActivity = 0.87;

// Between two events with nothing ahead of the kernel, so that the device waits while PyTorch issues it: fitted on
// every second float32 layer of NeuSight's test set (neusight/Dataset/collect.py) on six devices, 1.0 to 20 us were
// tried.
constexpr double kIssuedSeconds = 20e-6;

// All that a row says of its kernel, in lower case, each cell between blanks.
std::string Words(const CsvCells& cells) {
  std::string words = " ";
  for (const absl::string_view column : {"library", "impl", "notes", "source", "source_ref"}) {
    absl::StrAppend(&words, absl::AsciiStrToLower(cells.Text(column)), " ");
  }
  return words;
}

}  // namespace

double SecondsAlone(const CsvCells& cells) {
  const std::string words = Words(cells);
  if (HasAny(words, {"synchronisations", "synchronizations"})) return kBetweenWaitsSeconds;
  if (HasAny(words, {"between two events"})) return kIssuedSeconds;
  if (HasAny(words, {"do_bench", "tritonbench", "cold l2"})) return kBetweenEventsSeconds;
  // CUTLASS's profiler runs loops (its media/docs/profiler.md, `profiling-iterations`).
  if (HasAny(words, {"cutlass profiler", "cutlass_profiler"})) return 0;
  // "insights" are no profiler.
  return HasAny(words, {"profiler", "cupti", "nsys", " nsight", "deepgemm", "deep_gemm"}) ? kAloneSeconds : 0;
}

// Few runs end before a power limit acts: aiconfigurator's collector sets the highest clock and runs a kernel nine
// times (its collector/README.md), and its products on H100 go at 1 where long loops are held to 0.94.
double ClockInLoops(const CsvCells& cells, const KernelConstants& kernels) {
  const std::string words = Words(cells);
  if (HasAny(words, {"aiconfigurator"})) return std::max(1.0, kernels.loop_clock);
  return kernels.loop_clock * ClockUnderLimit(words, kernels);
}

// In a loop. A power limit that leaves matrix units at work without pause a share of their clock leaves those that wait
// more (costmodel/power_clock.h): on B200 products of 13 to 50 us go as at the full clock (vLLM's CUDA graphs,
// torchao's profiles), those of 300 us and more do not. Attention, which waits for its softmax, goes at the full clock
// until it draws as much. Cards that boost beyond their data sheet have a full clock above 1.
double LoopSeconds(const KernelWork& work, Device device) {
  KernelConstants& constants = device.kernels;
  const double clock = constants.sustained_clock, highest = std::max(1.0, constants.loop_clock);
  const auto seconds = [&](double at) {
    constants.sustained_clock = at;
    return ToSeconds(PriceKernel(work, device));
  };
  if (clock >= highest || work.kernel == KernelClass::kLinearAttention) return seconds(clock);
  const bool fused = work.kernel == KernelClass::kAttention && work.fused;
  const double rate = fused ? AttentionRate(work.dtype, device) : ProductRate(work.dtype, device);
  const double full = seconds(highest), busy = work.flops.raw() / rate;
  if (work.kernel == KernelClass::kAttention) return std::max(full, kAttentionActivity * busy / clock);
  const double activity = std::min(1.0, busy / highest / full) * Activity(work.dtype, device.generation);
  return activity > 0 ? seconds(highest * ClockOfActivity(clock / highest, activity)) : full;
}

}  // namespace meshwright
