// What is measured of a machine: small Programs, each with one instruction that is repeated, played by the executor
// itself. So what is timed is what a plan's program runs, with its kernels, its streams and its clocks.
//
// Thread safety: pure functions but for Measure, which plays programs.
#ifndef MESHWRIGHT_TOOLS_MEASURE_EXPERIMENTS_H_
#define MESHWRIGHT_TOOLS_MEASURE_EXPERIMENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/data.h"
#include "executor/runner.h"
#include "ir/collective.h"
#include "ir/dtype.h"
#include "ir/kernel_work.h"
#include "ir/program.h"
#include "ir/quantities.h"

namespace meshwright {

// What a sample says something about: a group of the cost model's constants each.
enum class SampleKind : uint8_t {
  kProduct,
  kStream,             // kernels that read and write their operands once
  kNormalizeBackward,  // backward norms
  kAttention,
  kAttentionBackward,
  kCollective,
  kLaunch,  // a kernel that does next to nothing: what is between two of them
};
inline constexpr absl::string_view kSampleKindNames[] = {
    "product", "stream", "normalize_backward", "attention", "attention_backward", "collective", "launch"};
constexpr absl::string_view NameOf(SampleKind kind) { return kSampleKindNames[static_cast<size_t>(kind)]; }

struct Experiment {
  SampleKind kind = SampleKind::kProduct;
  std::string name;  // "MatMul 512 x 512 x 512"
  DType dtype = DType::kFloat32;
  Program program;  // block 0 is repeated; `measured` is the instruction of it that counts
  size_t measured = 0;
  int64_t steps = 2;                                       // the last one's times count, but for the first repetition
  CollectiveKind collective = CollectiveKind::kAllReduce;  // kCollective
  Bytes size;                                              // as PriceCollective counts it
};

struct Sample {
  SampleKind kind = SampleKind::kProduct;
  std::string name;
  DType dtype = DType::kFloat32;
  KernelWork work;  // but for kCollective
  CollectiveKind collective = CollectiveKind::kAllReduce;
  Bytes size;
  int64_t ranks = 1;
  Nanos time;         // the lower quartile of the runs: what else a machine does only adds to them
  double spread = 0;  // (90th - 10th percentile) / time
  int64_t runs = 0;
};

// How large the shapes are: what one core does in a minute, and what fills a GPU.
struct MeasurePlan {
  std::vector<DType> products = {DType::kFloat32, DType::kFloat64};
  DType dtype = DType::kFloat32;                                                          // of everything else
  std::vector<int64_t> sides = {64, 96, 192, 256, 384, 512, 768, 1024};                   // of products
  std::vector<int64_t> streams = {1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21, 1 << 23};  // elements
  std::vector<int64_t> sequences = {64, 128, 256, 512};
  std::vector<int64_t> collectives = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23};  // bytes
  int64_t repeats = 9;
  std::vector<int64_t> rows = {16};  // of products that have few: a micro-batch's tokens
  // Written before each run of a kernel, so that its operands have left the caches, as they have in a step, which goes
  // over all parameters between two runs. None: a device's caches are small beside its operands.
  Bytes flush = Bytes(64 << 20);
  // Ranks of the host begin a collective together. Else one that is early has sent its part before the last arrives,
  // and what is measured from there on is too short by it.
  bool together = true;
};
MeasurePlan HostPlan();
MeasurePlan GpuPlan();
// A few small shapes: to see that all of it works.
MeasurePlan QuickPlan(MeasurePlan plan);

// With collectives of `bytes`, of a quarter of that, and so on down to what the plan has. On the host those beyond 8
// MiB are run three times each.
MeasurePlan LargerPlan(MeasurePlan plan, Bytes bytes);

// `repeats` products of m x k and k x n on one rank.
absl::StatusOr<Experiment> ProductExperiment(const MeasurePlan& plan, DType dtype, int64_t m, int64_t n, int64_t k);

// Of one rank, and of groups of `ranks` ranks.
absl::StatusOr<std::vector<Experiment>> KernelExperiments(const MeasurePlan& plan);
absl::StatusOr<std::vector<Experiment>> CollectiveExperiments(const MeasurePlan& plan, int64_t ranks);

// The program of one class with a place for each buffer, one behind the other: nothing of an experiment shares memory.
Program Placed(Program program);

using PlayProgram = std::function<absl::StatusOr<RunResult>(const Program&, const RunOptions&, const DataSource&)>;
// Plays its steps and measures the last. A collective's time is from the arrival of the last rank to its end on
// the last rank; a launch's is the distance between the ends of neighbours.
// With `graphs` a device records the step, else it is issued kernel by kernel.
absl::StatusOr<Sample> Measure(const Experiment& experiment, const PlayProgram& play, bool graphs = true);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_EXPERIMENTS_H_
