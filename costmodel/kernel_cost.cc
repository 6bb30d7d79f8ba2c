#include "costmodel/kernel_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"

namespace meshwright {
namespace {

struct Peak {
  double per_second = 0;
  bool replaced = false;  // the device has no peak for the type
};

// The peak of `dtype`, or of the next slower type that the device has.
Peak PeakOf(DType dtype, const Device& device) {
  Peak peak;
  for (;;) {
    peak.per_second = device.Peak(dtype).raw();
    if (peak.per_second > 0) return peak;
    peak.replaced = true;
    switch (dtype) {
      case DType::kFloat8:
      case DType::kBFloat16:
        dtype = DType::kFloat16;
        break;
      case DType::kFloat16:
      case DType::kTFloat32:
      case DType::kFloat64:
      case DType::kInt64:
      case DType::kInt32:
      case DType::kBool:
        dtype = DType::kFloat32;
        break;
      case DType::kFloat32:
        peak.per_second = 1;  // a device without any peak: priced as if it stood still
        return peak;
    }
  }
}

// Time to stream `bytes`. The share of bandwidth that is reached grows with the size: bytes / (bytes + ramp).
double StreamSeconds(double bytes, const Device& device) {
  const KernelConstants& k = device.kernels;
  return (bytes + static_cast<double>(k.memory_ramp.raw())) / (device.memory_bandwidth.raw() * k.memory_share);
}

double CeilDiv(double a, double b) { return std::ceil(a / b); }

// A product is cut into tiles, a multiprocessor works on one at a time, so the tiles run in waves:
//
//   waves   = ceil(batch ceil(m/Tm) ceil(n/Tn) s / SMs)
//   compute = waves (2 Tm Tn (k/s) / (share x peak / SMs) + per_wave)
//   L2      = tiles (Tm + Tn) (k/s) x bytes / l2_bandwidth
//   memory  = StreamSeconds(operands)
//   compute += epilogue, where there is one
//   time    = max(compute, L2, memory) + (s > 1: split_k + the partial sums, written and read as float32)
//
// for the best tile (Tm, Tn) and split s of the inner dimension. The libraries choose about that well.
struct Tile {
  double m, n;
};
// Hopper's matrix units take any multiple of 8 columns, so its libraries have tiles of many widths.
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
constexpr Tile kHopperTiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64},  {64, 128},  {64, 64},
                                 {128, 192}, {192, 128}, {128, 160}, {160, 128}, {128, 224}, {224, 128},
                                 {128, 96},  {96, 128},  {256, 160}, {160, 256}, {256, 192}, {192, 256}};
// Of few rows, tiles of 64 are cut in steps of 16 columns, so that they fill a wave (DeepGEMM's get_best_configs).
constexpr int64_t kFewRows = 64;
constexpr Tile kHopperFewRowsTiles[] = {{64, 256}, {256, 64}, {64, 128}, {128, 64}, {64, 160}, {160, 64}, {64, 64},
                                        {64, 80},  {80, 64},  {64, 96},  {96, 64},  {64, 112}, {112, 64}};
// Those of tfloat32 are no narrower than 128: chosen on every second of 72 products of openxla's table on H100, 32.4 %
// with all tiles and 23.5 with these; the others 30.6 and 19.3, and those of three more sources 23.7 and 10.6.
constexpr Tile kHopperTFloat32Tiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 192}, {192, 128}};
constexpr double kSplits[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
constexpr double kMostSplitWaves = 4;
constexpr double kSmallestSplit = 256;  // of the inner dimension; below, nothing is gained

// The largest element of the left operand (in two steps), its scale, and the quantised operand.
constexpr double kQuantizeKernels = 4;

// Whether it is one of the products that frameworks do not quantise (KernelWork::wide).
bool StaysWide(const KernelWork& work, const Device& device) { return work.wide && device.kernels.wide_peak.raw() > 0; }

double QuantizeSeconds(const KernelWork& work, const Device& device) {
  const KernelConstants& constants = device.kernels;
  if (constants.quantize_bytes == Bytes() || StaysWide(work, device)) return 0;
  const double elements = static_cast<double>(work.batch) * static_cast<double>(work.m) * static_cast<double>(work.k);
  return kQuantizeKernels * ToSeconds(constants.startup) +
         StreamSeconds(elements * static_cast<double>(constants.quantize_bytes.raw()), device);
}

// Rows of 16-bit elements that do not begin at multiples of 16 bytes keep tensor cores from their fast loads (NVIDIA's
// guide asks for multiples of 8 elements); those of an odd number of elements, from loading two at once. Of aligned
// products, medians of EleutherAI/cookbook's sweeps (sizing/results, A100, PyTorch 1.13): 8192 x n x 14336 with n about
// 51200, even 0.54 and odd 0.29; 8192 x 51200 x k with k about 14336, 0.68 and 0.28; batches of 2048 x 2048 over heads
// of 64 to 256, 0.59 and 0.41; over 2048 keys, 0.62 and 0.39. On H100 0.68, even (273 against 398 TFLOP/s,
// stas00/ml-engineering, swiglu-maf-bench). The mean of each.
//
// Loads run on the rest of a multiprocessor, as long everywhere, so beside matrix units slower than A100's, 1024
// multiply-adds a clock, what they add weighs less: odd rows of RTX 4090, with a quarter of that, have 0.67 (0.69 to
// 0.75 measured, PyTorch's issue 181718).
constexpr double kMisalignedShare = 0.62, kOddShare = 0.34;
constexpr double kFittedRate = 1024;
constexpr int64_t kAlignedBytes = 16, kLoadedBytes = 4;

double LoadedShare(double share, const Device& device) {
  const double clocks = 2.0 * std::max(1, device.sms) * device.boost_mhz * 1e6;
  const double wide = std::max(device.Peak(DType::kFloat16).raw(), device.Peak(DType::kBFloat16).raw());
  const double weight = clocks > 0 && wide > 0 ? std::min(1.0, wide / clocks / kFittedRate) : 1;
  return 1 / (1 + weight * (1 / share - 1));
}

// Of what an aligned product reaches. `early`: of one that is not, KernelConstants::misaligned_attention.
double AlignedShare(const KernelWork& work, const Device& device, double early) {
  const int64_t element = SizeOf(work.dtype).raw();
  if (element > 2) return 1;
  const auto divide = [&](int64_t bytes) { return work.n * element % bytes == 0 && work.k * element % bytes == 0; };
  if (divide(kAlignedBytes)) return 1;
  if (early > 0) return early;
  return LoadedShare(divide(kLoadedBytes) ? kMisalignedShare : kOddShare, device);
}

// What a product does to its result before it is written: it keeps the general cores busy while the matrix units have
// nothing to do. Of the ten operations of a GELU in the op table two are special functions (exponential, reciprocal),
// of which a multiprocessor begins 16 in a clock (CUDA programming guide, throughput of native instructions), and the
// others instructions of which the float32 peak counts two operations each. That is 101 us for 8192 x 16384 results at
// an H100's full clock. The one published pair of times (XLA's change 7751: 1.28 ms with a kernel of its own, which
// moves 3 bytes an element in some 130 us, 1.25 ms in the epilogue) leaves 100 us for it.
constexpr double kSpecialShare = 0.2;

double EpilogueSeconds(const KernelWork& work, const Device& device) {
  if (work.epilogue.raw() == 0) return 0;
  const double clock = device.kernels.sustained_clock;
  const double sm_clocks = std::max(1, device.sms) * device.boost_mhz * 1e6 * clock;  // a second
  if (device.generation == Generation::kHost) return sm_clocks > 0 ? work.epilogue.raw() / sm_clocks : 0;
  const double plain =
      (1 - kSpecialShare) * work.epilogue.raw() / (PeakOf(DType::kFloat32, device).per_second * clock / 2);
  const double special = sm_clocks > 0 ? kSpecialShare * work.epilogue.raw() / (device.exponentials * sm_clocks) : 0;
  return plain + special;
}

// Multiprocessors with 128 general cores (GA10x, Ada, GB20x) have registers and shared memory for about two thirds of
// their float32 peak; those with 64 (V100, A100) for all of it. Mean of cuBLAS at 4096 and more on A10G, RTX 4090 and
// H200 (zzc0721/torch-performance-test-data, xzwgit/gpu-flops-bench); on RTX PRO 6000 and RTX 5090, which it was not
// taken from, 0.66 and 0.79 are reached. Hopper, with more of both, has its own, and V100 what A100 has: fitted on
// every second float32 layer of NeuSight's test set on H100 and V100 (docs/accuracy.md).
constexpr double kWideFloat32Share = 0.67, kHopperFloat32Share = 0.77, kNarrowFloat32Share = 0.96, kWideCores = 96;
// Such products run Ampere's kernels on later devices, too ("sm80_xmma_gemm_f32f32" on H100, in the same set), with its
// tiles and what a tile costs there.
constexpr double kFloat32PerWave = 5.4e-6;

bool RunsAmpereKernels(DType dtype, const Device& device) {
  return dtype == DType::kFloat32 && device.generation >= Generation::kHopper;
}

absl::Span<const Tile> TilesOf(const KernelWork& work, const Device& device) {
  if (device.generation < Generation::kHopper || RunsAmpereKernels(work.dtype, device)) return kTiles;
  if (device.generation == Generation::kHopper && work.dtype == DType::kTFloat32) return kHopperTFloat32Tiles;
  return std::min(work.m, work.n) <= kFewRows ? absl::MakeConstSpan(kHopperFewRowsTiles) : kHopperTiles;
}

// Of the peak that a product reaches inside of a wave.
double ProductShare(DType dtype, const Peak& peak, const Device& device) {
  const KernelConstants& constants = device.kernels;
  if (peak.replaced || device.generation == Generation::kHost) return constants.matmul_share;
  if (dtype == DType::kFloat8) return constants.matmul_share_fp8;
  if (dtype != DType::kFloat32) return constants.matmul_share;
  const double fma = 2.0 * std::max(1, device.sms) * device.boost_mhz * 1e6;
  if (fma <= 0 || peak.per_second <= kWideCores * fma) return kNarrowFloat32Share;
  return device.generation == Generation::kHopper ? kHopperFloat32Share : kWideFloat32Share;
}

// A core's product. Its library copies blocks of both operands into an order of its own before it computes with them
// (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008), and a step has moved too much since
// they were last used for them to be in a cache: all that takes its time before the computing, at a pace of its own.
//
//   time = 2 batch ceil16(m) ceil16(n) k / (share x peak) + operands / l2_bandwidth + epilogue
//
// The result counts once, also where the product is added to it: a cache fetches the lines that it is to overwrite.
constexpr double kRegisterBlock = 16;  // rows and columns of a core's innermost product

KernelEstimate HostContraction(const KernelWork& work, const Device& device) {
  const KernelConstants& constants = device.kernels;
  const Peak peak = PeakOf(work.dtype, device);
  const double clock = constants.sustained_clock;
  const auto whole_blocks = [](int64_t extent) {
    return kRegisterBlock * CeilDiv(static_cast<double>(extent), kRegisterBlock);
  };
  const double batch = static_cast<double>(work.batch), m = static_cast<double>(work.m);
  const double n = static_cast<double>(work.n), k = static_cast<double>(work.k);
  const double flops = 2 * batch * whole_blocks(work.m) * whole_blocks(work.n) * k;
  const double compute = flops / (ProductShare(work.dtype, peak, device) * peak.per_second * clock);
  const double bytes = static_cast<double>(SizeOf(work.dtype).raw()) * batch * (m * k + k * n + m * n);
  const double operands = bytes / (constants.l2_bandwidth.raw() * clock);
  const double startup = ToSeconds(constants.startup);
  KernelEstimate estimate;
  estimate.time = FromSeconds(compute + operands + EpilogueSeconds(work, device) + startup);
  estimate.bound = startup > compute + operands ? Bound::kLaunch
                   : operands > compute         ? Bound::kMemory
                                                : Bound::kCompute;
  estimate.estimated = device.kernels_estimated || peak.replaced;
  return estimate;
}

// `early_misaligned`: as AlignedShare's.
KernelEstimate Contraction(const KernelWork& work, const Device& device, double early_misaligned = 0) {
  if (device.generation == Generation::kHost) return HostContraction(work, device);
  const KernelConstants& constants = device.kernels;
  const bool wide = StaysWide(work, device);
  const Peak peak = wide ? Peak{constants.wide_peak.raw(), false} : PeakOf(work.dtype, device);
  const double share = wide ? constants.wide_share : ProductShare(work.dtype, peak, device);
  const double sms = std::max(1, device.sms);
  const double aligned = AlignedShare(work, device, early_misaligned);
  const double sm_rate = aligned * share * peak.per_second * constants.sustained_clock / sms;
  const double l2_rate = constants.l2_bandwidth.raw() * constants.sustained_clock;  // the cache runs on the same clock
  const double per_wave =
      std::max(ToSeconds(constants.matmul_per_wave), RunsAmpereKernels(work.dtype, device) ? kFloat32PerWave : 0);
  const double size = static_cast<double>(SizeOf(work.dtype).raw());
  const bool quantised = constants.product_bits > 0 && !wide && SizeOf(work.dtype) == Bytes(2);
  const double element = quantised ? constants.product_bits / 8.0 : size;  // of an operand
  const double batch = static_cast<double>(work.batch), m = static_cast<double>(work.m);
  const double n = static_cast<double>(work.n), k = static_cast<double>(work.k);
  const double moved = static_cast<double>(work.read.raw()) * element / size + static_cast<double>(work.written.raw());
  const double memory = StreamSeconds(moved, device);
  const double per_byte = 1 / (device.memory_bandwidth.raw() * constants.memory_share);
  const double epilogue = EpilogueSeconds(work, device);

  double best = 1e30, best_compute = 0;
  for (const Tile& tile : TilesOf(work, device)) {
    const double tiles = batch * CeilDiv(m, tile.m) * CeilDiv(n, tile.n);
    // No split makes it faster than all multiprocessors working without pause.
    if (tiles * 2 * tile.m * tile.n * k >= best * sm_rate * sms || best <= memory) continue;
    for (double split : kSplits) {
      const double inner = CeilDiv(k, split);
      if (split > 1 && (tiles * split > kMostSplitWaves * sms || inner < kSmallestSplit)) break;
      const double waves = CeilDiv(tiles * split, sms);
      const double compute = waves * (2 * tile.m * tile.n * inner / sm_rate + per_wave) + epilogue;
      const double l2 = tiles * split * (tile.m + tile.n) * inner * element / l2_rate;
      double extra = 0;
      if (split > 1) {
        extra = ToSeconds(constants.split_k) + 8 * batch * m * n * split * per_byte;
      }
      const double time = std::max({compute, l2, memory}) + extra;
      if (time < best) {
        best = time;
        best_compute = compute;
      }
    }
  }
  KernelEstimate estimate;
  const double startup = ToSeconds(constants.startup);
  estimate.time = FromSeconds(best + startup + QuantizeSeconds(work, device));
  estimate.bound = startup > best ? Bound::kLaunch : memory > best_compute ? Bound::kMemory : Bound::kCompute;
  estimate.estimated = device.kernels_estimated || peak.replaced;
  return estimate;
}

// Fused attention: each block of 128 queries runs over its keys; a score costs the products over the head's width and
// the softmax, which is as much work as `softmax_width` more columns; a block costs `setup_keys` keys besides.
//
//   keys = n (causal: n/2 are kept, and half a block on the diagonal is computed in vain)
//   score = flops / peak x (1 + gain x ((1 + softmax_width / k) / share - 1)), but no less than its exponential, 16 a
//           clock or as the device says; gain is the type's peak over that of 16 bits: what keeps the matrix units
//           waiting stays as long where float8 halves the products, or float32 has many more
//   time  = scores x score x (keys + wasted + setup_keys) / keys x waves
//
// The exponentials bind where matrix units are as fast as Blackwell's and heads narrow: 1190 TFLOP/s on B200 over heads
// of 64, where FlashAttention-4 reaches 1250, with some of them as polynomials, and cuDNN 1160.
constexpr double kQueryBlock = 128;
// Causal blocks differ in length: the last ones to finish leave the others idle for about three quarters of a mean
// block. Fitted on the small batches of ai-dynamo/aiconfigurator's context attention, A100.
constexpr double kCausalTail = 0.75;
constexpr double kLongestCausalBlock = 1.6;
// Kernels that lose with the head's width have a negative softmax_width; narrow heads do not gain without end.
constexpr double kLeastWidth = 0.5;

// Fused attention in float32 makes a product of three in TensorFloat-32 from Ampere on (PyTorch's mem_eff_attention,
// gemm_kernel_utils.h: OpMultiplyAddFastF32; no library has another).
constexpr double kProductsOfFloat32 = 3;

Peak AttentionPeak(DType dtype, const Device& device) {
  Peak peak = PeakOf(dtype, device);
  if (dtype != DType::kFloat32 || device.generation < Generation::kAmpere) return peak;
  peak.per_second = std::max(peak.per_second, device.Peak(DType::kTFloat32).raw() / kProductsOfFloat32);
  return peak;
}

// FlashAttention-2 and -3 have kernels for heads of these widths, and compute narrower ones as the next (HEADDIM_SWITCH
// in csrc/flash_attn/src/static_switch.h, round_up_headdim in hopper/flash_api.cpp). cuDNN's on Blackwell take the 128
// bytes of a swizzled row of shared memory at a time: those of 80 compute 12.8 scores in a clock of a multiprocessor,
// those of 128 do 12.9 (NVIDIA/cudnn-frontend, pull 598 and its results on GB300). Wider ones are left as they are:
// where queries and values differ, KernelWork holds the mean.
constexpr int64_t kFlash2Widths[] = {32, 64, 96, 128}, kFlash3Widths[] = {64, 96, 128}, kVendorWidths[] = {64, 128};

double ComputedWidth(int64_t width, const Device& device) {
  absl::Span<const int64_t> widths;
  if (!device.attention.empty()) {
    const std::string& kernel = device.attention.front().kernel;
    if (kernel == "flash2") widths = kFlash2Widths;
    if (kernel == "flash3") widths = kFlash3Widths;
    if (kernel == "vendor") widths = kVendorWidths;
  }
  const auto wide = std::lower_bound(widths.begin(), widths.end(), width);
  return static_cast<double>(wide == widths.end() ? std::max<int64_t>(1, width) : *wide);
}

struct AttentionShares {
  double share, softmax_width, setup_keys;
  bool estimated;
};
AttentionShares SharesOf(const Device& device, bool backward) {
  if (device.attention.empty()) return {device.kernels.matmul_share / 2, 0, 0, true};
  const AttentionConstants& first = device.attention.front();
  return {backward ? first.backward_share : first.forward_share, first.softmax_width, first.setup_keys,
          first.estimated};
}

KernelEstimate Attention(const KernelWork& work, const Device& device) {
  const KernelConstants& constants = device.kernels;
  const Peak peak = AttentionPeak(work.dtype, device);
  const double sms = std::max(1, device.sms);
  const AttentionShares attention = SharesOf(device, work.backward);
  const double n = std::max<double>(1, static_cast<double>(work.n));
  const double scored = std::max<double>(1, static_cast<double>(work.k));
  const double width = ComputedWidth(work.k, device);
  const double share = static_cast<double>(work.window) / n;
  const double keys = work.window > 0 ? n * (share - share * share / 2) : work.causal ? n / 2 : n;
  // The host's loops have no blocks of queries: nothing is wasted on the diagonal and no block is the last. A window
  // has a second diagonal, and blocks of one length.
  const bool blocked = device.generation != Generation::kHost;
  const bool longer = work.causal && work.window == 0;
  const double wasted = !work.causal || !blocked ? 0 : work.window > 0 ? kQueryBlock : kQueryBlock / 2;
  const double batch = static_cast<double>(work.batch), queries = static_cast<double>(work.m);
  // Blocks on each multiprocessor, if they could be spread evenly: as many as the queries fill, and as there are, the
  // last of a row as long as the others.
  const double even = std::max(batch * queries, 1.0) / kQueryBlock / sms;
  const double blocks = std::max(batch * CeilDiv(queries, kQueryBlock), 1.0) / sms;
  const double waves = !blocked ? even
                       : longer ? std::max(kLongestCausalBlock, blocks + kCausalTail)
                                : std::ceil(blocks);
  const double wide = std::max(device.Peak(DType::kFloat16).raw(), device.Peak(DType::kBFloat16).raw());
  const double gain = blocked && wide > 0 ? peak.per_second / wide : 1;
  const double in_16_bits = std::max(kLeastWidth, 1 + attention.softmax_width / width) / attention.share;
  const double products =
      work.flops.raw() * width / scored / (peak.per_second * constants.sustained_clock) * (1 + gain * (in_16_bits - 1));
  const double specials = device.exponentials * sms * device.boost_mhz * 1e6 * constants.sustained_clock;  // a second
  const double scores = work.flops.raw() / ((work.backward ? 10 : 4) * scored);
  const double exponentials = blocked && specials > 0 ? scores / specials : 0;
  const double compute =
      std::max(products, exponentials) * ((keys + wasted + attention.setup_keys) / keys) * waves / even;
  const double memory = StreamSeconds(static_cast<double>((work.read + work.written).raw()), device);
  const double startup = ToSeconds(constants.startup);
  const double best = std::max(compute, memory);
  KernelEstimate estimate;
  estimate.time = FromSeconds(best + startup);
  estimate.bound = startup > best ? Bound::kLaunch : memory > compute ? Bound::kMemory : Bound::kCompute;
  estimate.estimated = device.kernels_estimated || attention.estimated || peak.replaced;
  return estimate;
}

// Linear attention by chunks of tokens (flash-linear-attention's chunk_gated_delta_rule, Mamba-2's ssd_chunk_scan):
// within a chunk as attention, between chunks by the state, in several kernels that pass values through memory. Of a
// token of a head, with chunks of C tokens, and states of k x n:
//   delta rule   operations 6 k n + C (6 k + 4 n): keys with keys and queries, products with the inverse of the
//                triangular matrix, scores with values; the state is read twice and changed once
//                elements   8 k + 7 n + 2 C + 2 k n / C: operands of the kernels, the states of all chunks among them
//   state space  operations 4 k n + 2 C n, elements 5 n + 4 k n / C; keys and queries are those of many heads
// Where rows of the state decay apart (chunk_kda), decays of float32 are an operand of every kernel, and products
// within a chunk go part by part: kByRow times both. The matrix units hardly matter: where memory lets it, a
// multiprocessor does so many operations a cycle on H100, H200, B200 and GB200 alike; and chunks of one head follow
// each other. Sources and errors: costmodel/README.md.
constexpr double kDeltaChunk = 64, kSpaceChunk = 256;
constexpr double kLinearOperationsPerCycle = 450;
constexpr double kChunkStep = 1.4e-6, kBackwardChunkStep = 4.4e-6;
constexpr double kDeltaBackward = 2.7, kSpaceBackward = 2.6;  // with what is made once more
// Between 2.37 of H800 (PaddlePaddle/flash-attention, pull request 133) and 1.96 of H20 (FlashKDA, BENCHMARK_H20.md),
// each of 96 heads and 8,192 tokens forward.
constexpr double kByRow = 2.16;
// The host goes token by token (executor/host:kernels_benchmark, 4.6 and 2.6 GFLOP/s on a core of 2.1 GHz).
constexpr double kHostOperationsPerCycle = 2.1, kHostBackwardOperationsPerCycle = 1.2;

KernelEstimate LinearAttention(const KernelWork& work, const Device& device) {
  const double k = static_cast<double>(work.k), n = static_cast<double>(work.n), m = static_cast<double>(work.m);
  const double chunk = std::max(1.0, std::min(m, work.delta ? kDeltaChunk : kSpaceChunk));
  const double operations = work.delta ? 6 * k * n + chunk * (6 * k + 4 * n) : 4 * k * n + 2 * chunk * n;
  const double elements = work.delta ? 8 * k + 7 * n + 2 * chunk + 2 * k * n / chunk : 5 * n + 4 * k * n / chunk;
  const double tokens = static_cast<double>(work.batch) * m * (work.by_row ? kByRow : 1);
  const double more = !work.backward ? 1 : work.delta ? kDeltaBackward : kSpaceBackward;
  const double cycles = std::max(1, device.sms) * device.boost_mhz * 1e6;
  const double wide = std::max(device.Peak(DType::kFloat16).raw(), device.Peak(DType::kBFloat16).raw());
  const double pace = wide > 0 ? std::min(1.0, PeakOf(work.dtype, device).per_second / wide) : 1;
  const bool host = device.generation == Generation::kHost;
  const double compute =
      host ? work.flops.raw() / (cycles * (work.backward ? kHostBackwardOperationsPerCycle : kHostOperationsPerCycle))
           : tokens * operations * more / (cycles * kLinearOperationsPerCycle * pace);
  const double element = static_cast<double>(SizeOf(work.dtype).raw());
  const double memory = host ? 0 : StreamSeconds(tokens * elements * element * more, device);
  const double steps = host ? 0 : m / chunk * (work.backward ? kBackwardChunkStep : kChunkStep);
  const double startup = ToSeconds(device.kernels.startup), best = std::max(memory, compute + steps);
  KernelEstimate estimate;
  estimate.time = FromSeconds(best + startup);
  estimate.bound = startup > best ? Bound::kLaunch : memory == best ? Bound::kMemory : Bound::kCompute;
  estimate.estimated = device.kernels_estimated;
  return estimate;
}

// The host's loops that call functions such as exp and tanh do about one operation a cycle, which keeps them from their
// operands' pace; others, the optimizer's too, wait for memory (AdamW on a Xeon of 2.6 GHz: 14 operations in 9 cycles).
// Devices have operations to spare. Operators whose rule has labels that their output lacks (rows of a table) count
// points that no loop visits: more than kMostPerByte tells them.
constexpr double kMostPerByte = 2;

double LoopSeconds(const KernelWork& work, const Device& device) {
  if (device.generation != Generation::kHost || device.boost_mhz <= 0 || !work.functions) return 0;
  const double bytes = static_cast<double>((work.read + work.written).raw());
  if (work.kernel == KernelClass::kGather || work.flops.raw() > kMostPerByte * bytes) return 0;
  return work.flops.raw() / (device.boost_mhz * 1e6 * device.kernels.sustained_clock * std::max(1, device.sms));
}

// Kernels that stream their operands once. Backward norms read and write rows in two directions and reach less.
KernelEstimate Streaming(const KernelWork& work, const Device& device) {
  const KernelConstants& constants = device.kernels;
  double memory = StreamSeconds(static_cast<double>((work.read + work.written).raw()), device);
  if (work.kernel == KernelClass::kNormalize && work.backward) {
    memory *= constants.memory_share / constants.normalize_backward_share;
  }
  const double loops = LoopSeconds(work, device), best = std::max(memory, loops);
  const double startup = ToSeconds(constants.startup);
  KernelEstimate estimate;
  estimate.time = FromSeconds(best + startup);
  estimate.bound = startup > best ? Bound::kLaunch : loops > memory ? Bound::kCompute : Bound::kMemory;
  estimate.estimated = device.kernels_estimated;
  return estimate;
}

// Attention without a fused kernel: two products forward, four backward, over the whole score matrix (nothing is
// skipped for a causal mask), and the passes over it between them. A pass reads or writes every score once.
//   forward   softmax with mask: read, write; dropout: read, write, and write its mask, a byte a score
//   backward  dropout: read, write, and read its mask; softmax: read the probabilities and their gradient, write the
//             scores'
// The products' own reading and writing of the matrix is in their price.
constexpr int64_t kForwardPasses = 4, kBackwardPasses = 5;

KernelEstimate UnfusedAttention(const KernelWork& work, const Device& device) {
  const Bytes element = SizeOf(work.dtype);
  const double early = device.kernels.misaligned_attention;
  const int64_t scores = work.batch * work.m * work.n;
  const int64_t queries = work.batch * work.m * work.k, keys = work.batch * work.n * work.k;
  KernelWork product = work;
  product.kernel = KernelClass::kContraction;
  product.wide = true;
  product.read = element * (queries + keys);
  product.written = element * scores;
  const KernelEstimate outer = Contraction(product, device, early);  // over the head's width: m x n
  std::swap(product.n, product.k);
  product.read = element * (scores + keys);
  product.written = element * queries;
  const KernelEstimate inner = Contraction(product, device, early);  // over the keys: m x width
  KernelWork pass;
  pass.kernel = KernelClass::kMemory;
  pass.read = element * (scores * (work.backward ? kBackwardPasses : kForwardPasses)) + Bytes(scores);
  KernelEstimate estimate = Streaming(pass, device);
  estimate.bound = outer.time + inner.time > estimate.time ? Bound::kCompute : Bound::kMemory;
  // Backward: the gradient of the probabilities is a product like `outer`, those of queries, keys and values like
  // `inner`.
  estimate.time += outer.time + inner.time * (work.backward ? 3 : 1);
  estimate.estimated |= outer.estimated;
  return estimate;
}

}  // namespace

double ProductRate(DType dtype, const Device& device) {
  const Peak peak = PeakOf(dtype, device);
  return ProductShare(dtype, peak, device) * peak.per_second;
}

double AttentionRate(DType dtype, const Device& device) {
  const double rate = ProductRate(dtype, device);
  if (AttentionPeak(dtype, device).per_second <= PeakOf(dtype, device).per_second) return rate;
  return std::max(rate, ProductRate(DType::kTFloat32, device) / kProductsOfFloat32);
}

namespace {

KernelEstimate EstimateAlone(const KernelWork& work, const Device& device) {
  switch (work.kernel) {
    case KernelClass::kNone:
      return {};
    case KernelClass::kContraction:
      return Contraction(work, device);
    case KernelClass::kAttention:
      return work.fused ? Attention(work, device) : UnfusedAttention(work, device);
    case KernelClass::kLinearAttention:
      return LinearAttention(work, device);
    case KernelClass::kMemory:
    case KernelClass::kNormalize:
    case KernelClass::kGather:
      return Streaming(work, device);
  }
  return {};
}

}  // namespace

KernelEstimate EstimateKernel(const KernelWork& work, const Device& device) {
  KernelEstimate estimate = EstimateAlone(work, device);
  const double sharing = device.kernels.core_sharing;
  if (sharing != 1) estimate.time = FromSeconds(ToSeconds(estimate.time) * sharing);
  return estimate;
}

}  // namespace meshwright
