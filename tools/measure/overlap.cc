#include "tools/measure/overlap.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "costmodel/collective_cost.h"
#include "costmodel/cost_model.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

constexpr int64_t kKernels = 16;  // in a row
// Blocks of an experiment's program.
constexpr uint32_t kKernelBlock = 1, kCollectiveBlock = 2;

// `buffers` and `kernel` in the text form of programs.
absl::StatusOr<OverlapExperiment> Make(OverlapBound bound, const std::string& name, const std::string& buffers,
                                       const std::string& kernel, Bytes size, int64_t ranks, int64_t rounds) {
  const int64_t elements = std::max<int64_t>(1, size.raw() / SizeOf(DType::kFloat32).raw());
  std::string text = absl::StrCat("program overlap mesh x1=", ranks, "\nclass all\n  buffer x float32 (", elements,
                                  ") {-} partial sum x1 activation\n  buffer y float32 (", elements,
                                  ") {-} activation\n", buffers, R"(  event ready
  event reduced
  block fill forward
    compute Fill "-> i" scale=1 writes x
  block kernel forward
    compute )",
                                  kernel, R"(
  block reduce forward
    compute sync records ready
    comm all_reduce sum (x1) activation reads x writes y waits ready records reduced
  block await forward
    compute sync waits reduced
)");
  for (int64_t round = 0; round < rounds; ++round) {
    absl::StrAppend(&text, "  slot fill mb 0 layer 0\n");
    for (int64_t k = 0; k < kKernels; ++k) absl::StrAppend(&text, "  slot kernel mb 0 layer 0\n");
    absl::StrAppend(&text, "  slot reduce mb 0 layer 0\n");
    for (int64_t k = 0; k < kKernels; ++k) absl::StrAppend(&text, "  slot kernel mb 0 layer 0\n");
    absl::StrAppend(&text, "  slot await mb 0 layer 0\n  slot reduce mb 0 layer 0\n  slot await mb 0 layer 0\n");
  }
  OverlapExperiment experiment;
  experiment.bound = bound;
  experiment.size = SizeOf(DType::kFloat32) * elements;
  experiment.name =
      absl::StrCat(name, " beside all_reduce of ", experiment.size.raw(), " bytes over ", ranks, " ranks");
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  experiment.program = Placed(std::move(program));
  return experiment;
}

Nanos Median(std::vector<Nanos>& times) {
  if (times.empty()) return Nanos(0);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// From the arrival of the last rank to the end on the first.
struct Window {
  Nanos begin = Nanos(std::numeric_limits<int64_t>::min()), end = Nanos(std::numeric_limits<int64_t>::max());
  Nanos last_end;
};

double Slowdown(Nanos alone, Nanos beside) {
  if (alone <= Nanos(0) || beside <= Nanos(0)) return 1;
  return static_cast<double>(beside.raw()) / static_cast<double>(alone.raw());
}

CollectiveCost CostOf(const OverlapSample& sample, const Cluster& cluster) {
  GroupShape group;
  group.ranks = group.ranks_per_node = sample.ranks;
  return PriceCollective(CollectiveKind::kAllReduce, sample.size, group, cluster);
}

BytesPerSecond RateOf(const OverlapSample& sample, const Cluster& cluster) {
  const CollectiveCost cost = CostOf(sample, cluster);
  return BytesPerSecond(static_cast<double>(cost.intra_bytes.raw()) / ToSeconds(sample.collective_beside));
}

}  // namespace

double OverlapSample::kernel_slowdown() const { return Slowdown(kernel_alone, kernel_beside); }
double OverlapSample::collective_slowdown() const { return Slowdown(collective_alone, collective_beside); }

absl::StatusOr<std::vector<OverlapExperiment>> OverlapExperiments(const MeasurePlan& plan, int64_t ranks) {
  std::vector<OverlapExperiment> all;
  if (ranks < 2) return all;
  const int64_t side = plan.sides[plan.sides.size() * 2 / 3], n = plan.streams.back();
  const Bytes size(plan.collectives.back());
  const std::string type(NameOf(plan.dtype));
  const auto matrix = [&](const std::string& name) {
    return absl::StrCat("  buffer ", name, " ", type, " (", side, ", ", side, ") {- | -} parameter\n");
  };
  const auto vector = [&](const std::string& name) {
    return absl::StrCat("  buffer ", name, " ", type, " (", n, ") {-} parameter\n");
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(
      OverlapExperiment product,
      Make(OverlapBound::kMultiprocessors, absl::StrCat("MatMul ", side, " x ", side, " x ", side),
           absl::StrCat(matrix("a"), matrix("b"), matrix("c")), "MatMul \"m k, k n -> m n\" reads a b writes c", size,
           ranks, plan.repeats));
  all.push_back(std::move(product));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      OverlapExperiment stream,
      Make(OverlapBound::kMemory, absl::StrCat("Scale of ", n), absl::StrCat(vector("a"), vector("c")),
           "Scale \"i -> i\" scale=0.5 reads a writes c", size, ranks, plan.repeats));
  all.push_back(std::move(stream));
  return all;
}

OverlapSample ReadOverlap(const OverlapExperiment& experiment, const Trace& trace) {
  const RankClass& all = experiment.program.classes[0];
  // Slots of a round, in order: fill, kernels, reduce, kernels, await, reduce, await.
  constexpr int64_t kSlots = 2 * kKernels + 5, kBeside = kKernels + 1, kAlone = 2 * kKernels + 3;
  std::map<int64_t, Window> windows;  // by slot of the collective
  for (const Span& span : trace.spans) {
    if (all.slots[span.slot].block.index() != kCollectiveBlock || span.stream != Stream::kComm) continue;
    Window& window = windows[span.slot];
    window.begin = std::max(window.begin, span.begin);
    window.end = std::min(window.end, span.end);
    window.last_end = std::max(window.last_end, span.end);
  }
  std::vector<Nanos> kernels_alone, kernels_beside, collectives_alone, collectives_beside;
  std::map<int64_t, int64_t> met;  // by slot of the collective: kernels
  for (const Span& span : trace.spans) {
    if (all.slots[span.slot].block.index() != kKernelBlock) continue;
    const int64_t round = span.slot / kSlots, place = span.slot % kSlots;
    if (round == 0) continue;  // the first is cold
    if (place < kBeside) {
      kernels_alone.push_back(span.end - span.begin);
      continue;
    }
    const auto window = windows.find(round * kSlots + kBeside);
    if (window == windows.end() || span.begin < window->second.begin || span.end > window->second.end) continue;
    kernels_beside.push_back(span.end - span.begin);
    ++met[window->first];
  }
  for (const auto& [slot, window] : windows) {
    if (slot < kSlots) continue;
    const Nanos time = window.last_end - window.begin;
    if (slot % kSlots == kAlone) collectives_alone.push_back(time);
    if (slot % kSlots == kBeside && met[slot] > 0) collectives_beside.push_back(time);
  }
  OverlapSample sample;
  sample.bound = experiment.bound;
  sample.name = experiment.name;
  sample.size = experiment.size;
  sample.ranks = experiment.program.mesh.num_ranks();
  sample.runs = static_cast<int64_t>(kernels_beside.size());
  sample.kernel_alone = Median(kernels_alone);
  sample.kernel_beside = Median(kernels_beside);
  sample.collective_alone = Median(collectives_alone);
  sample.collective_beside = Median(collectives_beside);
  return sample;
}

absl::StatusOr<OverlapSample> MeasureOverlap(const OverlapExperiment& experiment, const PlayProgram& play) {
  RunOptions options;
  options.steps = 2;
  MESHWRIGHT_ASSIGN_OR_RETURN(const RunResult result, play(experiment.program, options, SyntheticData(1)));
  return ReadOverlap(experiment, result.trace);
}

void FitOverlap(absl::Span<const OverlapSample> samples, Cluster& cluster) {
  std::vector<double> blocks, touches;
  for (const OverlapSample& sample : samples) {
    if (sample.runs == 0) continue;
    const double taken = std::max(0.0, 1 - 1 / sample.kernel_slowdown());  // the inverse of CostModel's slow-downs
    if (sample.bound == OverlapBound::kMultiprocessors) {
      const int channels = CostOf(sample, cluster).channels;
      if (channels > 0) blocks.push_back(taken * cluster.device.sms / channels);
    } else if (const double rate = RateOf(sample, cluster).raw(); rate > 0) {
      touches.push_back(taken * cluster.device.memory_bandwidth.raw() / rate);
    }
  }
  const auto set = [](std::vector<double>& found, double& constant) {
    if (found.empty()) return;
    std::sort(found.begin(), found.end());
    constant = found[found.size() / 2];
  };
  set(blocks, cluster.device.kernels.overlap_blocks);
  set(touches, cluster.device.kernels.overlap_touches);
}

std::string ToText(absl::Span<const OverlapSample> samples, const Cluster& cluster) {
  std::string text;
  const CostModel costs(cluster);
  for (const OverlapSample& sample : samples) {
    if (sample.runs == 0) {
      absl::StrAppend(&text, sample.name, ": one after the other, as nothing runs beside anything here\n");
      continue;
    }
    const double predicted = sample.bound == OverlapBound::kMultiprocessors
                                 ? costs.ComputeSlowdown(CostOf(sample, cluster).channels)
                                 : costs.MemorySlowdown(RateOf(sample, cluster));
    absl::StrAppendFormat(&text,
                          "%s: the kernel takes %.2f times as long (%s alone, model %.2f), the collective %.2f "
                          "times (%s alone, model 1.00); %d kernels\n",
                          sample.name, sample.kernel_slowdown(), ShowTime(sample.kernel_alone), predicted,
                          sample.collective_slowdown(), ShowTime(sample.collective_alone), sample.runs);
  }
  return text;
}

}  // namespace meshwright
