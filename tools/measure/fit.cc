#include "tools/measure/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "costmodel/collective_cost.h"
#include "costmodel/kernel_cost.h"

namespace meshwright {
namespace {

constexpr int kGrid = 41;  // values of a constant that are tried, evenly in their logarithm
constexpr int kGrids = 2;

constexpr double kAboveHighestRate = 2;  // room for a host's matmul_share

constexpr Bytes kSmallMessage = Bytes(16 << 10);

using Group = std::vector<const Sample*>;

Group OfKind(absl::Span<const Sample> samples, SampleKind kind) {
  Group group;
  for (const Sample& sample : samples) {
    if (sample.kind == kind && sample.time > Nanos(0)) group.push_back(&sample);
  }
  return group;
}
// Every other one of each kernel or collective, from its first or its second.
Group Half(const Group& group, size_t first) {
  Group half;
  std::map<std::string, size_t> seen;  // by the first word of the name
  for (const Sample* sample : group) {
    if (seen[sample->name.substr(0, sample->name.find(' '))]++ % 2 == first) half.push_back(sample);
  }
  return half;
}

// Mean of |log(price / time)|: as bad for twice as for half.
double Badness(const Group& group, const Cluster& cluster) {
  double sum = 0;
  for (const Sample* sample : group) {
    const double price = std::max(1.0, static_cast<double>(PriceOf(*sample, cluster).raw()));
    sum += std::abs(std::log(price / static_cast<double>(sample->time.raw())));
  }
  return group.empty() ? 0 : sum / static_cast<double>(group.size());
}

// Sets a constant to the best of a grid from `low` to `high`, and of a finer one about that.
void Tune(const Group& group, double low, double high, const std::function<void(Cluster&, double)>& set,
          Cluster& cluster) {
  if (group.empty()) return;
  for (int grid = 0; grid < kGrids; ++grid) {
    const double step = std::pow(high / low, 1.0 / (kGrid - 1));
    double best = -1, chosen = low;
    for (int i = 0; i < kGrid; ++i) {
      const double value = low * std::pow(step, i);
      Cluster trial = cluster;
      set(trial, value);
      const double badness = Badness(group, trial);
      if (best >= 0 && badness >= best) continue;
      best = badness;
      chosen = value;
    }
    set(cluster, chosen);
    low = std::max(low, chosen / step);
    high = std::min(high, chosen * step);
  }
}

FitError ErrorOf(SampleKind kind, const Group& group, const Cluster& cluster) {
  FitError error;
  error.kind = kind;
  error.samples = static_cast<int64_t>(group.size());
  std::vector<double> errors;
  for (const Sample* sample : group) {
    const double time = static_cast<double>(sample->time.raw());
    errors.push_back(std::abs(static_cast<double>(PriceOf(*sample, cluster).raw()) - time) / time);
  }
  if (errors.empty()) return error;
  std::sort(errors.begin(), errors.end());
  for (const double e : errors) error.mean += e / static_cast<double>(errors.size());
  error.median = errors[errors.size() / 2];
  error.worst = errors.back();
  return error;
}

std::vector<FitError> Errors(absl::Span<const Sample> samples, const Cluster& cluster) {
  std::vector<FitError> errors;
  for (const SampleKind kind : {SampleKind::kProduct, SampleKind::kStream, SampleKind::kNormalizeBackward,
                                SampleKind::kAttention, SampleKind::kAttentionBackward, SampleKind::kCollective}) {
    const Group rest = Half(OfKind(samples, kind), 1);
    if (!rest.empty()) errors.push_back(ErrorOf(kind, rest, cluster));
  }
  return errors;
}

// The highest rate of a product in `dtype`; 0 where there is none.
double HighestRate(absl::Span<const Sample> samples, DType dtype) {
  double rate = 0;
  for (const Sample* sample : OfKind(samples, SampleKind::kProduct)) {
    if (sample->dtype == dtype) rate = std::max(rate, sample->work.flops.raw() / ToSeconds(sample->time));
  }
  return rate;
}

void FitMemory(absl::Span<const Sample> samples, Cluster& cluster) {
  const Group streams = Half(OfKind(samples, SampleKind::kStream), 0);
  if (cluster.device.generation == Generation::kHost) {
    double rate = 0;
    for (const Sample* sample : streams) {
      rate = std::max(rate,
                      static_cast<double>((sample->work.read + sample->work.written).raw()) / ToSeconds(sample->time));
    }
    if (rate > 0) cluster.device.memory_bandwidth = BytesPerSecond(rate);
  }
  // One depends on the other: twice.
  for (int round = 0; round < 2; ++round) {
    if (cluster.device.generation == Generation::kHost) {
      Tune(
          streams, 0.1, 1, [](Cluster& c, double v) { c.device.kernels.sustained_clock = v; }, cluster);
    }
    Tune(
        streams, 0.05, 1, [](Cluster& c, double v) { c.device.kernels.memory_share = v; }, cluster);
    Tune(
        streams, 64, 64e6, [](Cluster& c, double v) { c.device.kernels.memory_ramp = Bytes(static_cast<int64_t>(v)); },
        cluster);
  }
  Tune(
      Half(OfKind(samples, SampleKind::kNormalizeBackward), 0), 0.01, 1,
      [](Cluster& c, double v) { c.device.kernels.normalize_backward_share = v; }, cluster);
}

void FitProducts(absl::Span<const Sample> samples, Cluster& cluster) {
  const Group products = Half(OfKind(samples, SampleKind::kProduct), 0);
  const bool host = cluster.device.generation == Generation::kHost;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    // At the clock that is sustained, above the highest rate, which the operands' time is part of.
    const double rate = HighestRate(samples, dtype) * kAboveHighestRate;
    if (host && rate > 0) {
      cluster.device.peak[static_cast<size_t>(dtype)] = FlopsPerSecond(rate / cluster.device.kernels.sustained_clock);
    }
  }
  // A host's two constants each have a part of every product: it takes some rounds until neither gives way.
  for (int round = 0; round < (host ? 6 : 2); ++round) {
    Tune(
        products, 0.05, 1, [](Cluster& c, double v) { c.device.kernels.matmul_share = v; }, cluster);
    Tune(
        products, 1e9, 1e14, [](Cluster& c, double v) { c.device.kernels.l2_bandwidth = BytesPerSecond(v); }, cluster);
    if (host) continue;
    Tune(
        products, 50, 20000,
        [](Cluster& c, double v) { c.device.kernels.matmul_per_wave = Nanos(static_cast<int64_t>(v)); }, cluster);
  }
}

void FitAttention(absl::Span<const Sample> samples, Cluster& cluster) {
  if (cluster.device.attention.empty()) return;
  Tune(
      Half(OfKind(samples, SampleKind::kAttention), 0), 0.002, 1,
      [](Cluster& c, double v) { c.device.attention[0].forward_share = v; }, cluster);
  Tune(
      Half(OfKind(samples, SampleKind::kAttentionBackward), 0), 0.002, 1,
      [](Cluster& c, double v) { c.device.attention[0].backward_share = v; }, cluster);
}

// The small ones are all waiting and the large ones all moving, and each say what it takes.
void FitLinks(absl::Span<const Sample> samples, Cluster& cluster) {
  const Group collectives = Half(OfKind(samples, SampleKind::kCollective), 0);
  Group small, large;
  Bytes largest;
  for (const Sample* sample : collectives) largest = std::max(largest, sample->size);
  for (const Sample* sample : collectives) {
    if (sample->size <= kSmallMessage) small.push_back(sample);
    if (sample->size * 8 >= largest) large.push_back(sample);
  }
  const auto set_latency = [](Cluster& c, double v) { c.device.kernels.host_launch = Nanos(static_cast<int64_t>(v)); };
  for (int round = 0; round < 2; ++round) {
    Tune(
        large, 1e7, 1e12, [](Cluster& c, double v) { c.intra_bandwidth = BytesPerSecond(v); }, cluster);
    Tune(small, 100, 1e6, set_latency, cluster);
  }
}

}  // namespace

Nanos PriceOf(const Sample& sample, const Cluster& cluster) {
  if (sample.kind != SampleKind::kCollective) return PriceKernel(sample.work, cluster.device);
  GroupShape group;
  group.ranks = group.ranks_per_node = sample.ranks;
  return PriceCollective(sample.collective, sample.size, group, cluster).time;
}

Fit FitConstants(absl::Span<const Sample> samples, Nanos issued, const Cluster& from) {
  Fit fit;
  fit.cluster = from;
  fit.before = Errors(samples, from);
  Cluster& cluster = fit.cluster;
  for (const Sample* sample : OfKind(samples, SampleKind::kLaunch)) cluster.device.kernels.startup = sample->time;
  const bool host = cluster.device.generation == Generation::kHost;
  if (!host && issued > Nanos(0)) cluster.device.kernels.host_launch = issued;
  FitMemory(samples, cluster);
  FitProducts(samples, cluster);
  FitAttention(samples, cluster);
  if (host) FitLinks(samples, cluster);
  cluster.device.kernels_estimated = false;
  if (!cluster.device.attention.empty()) cluster.device.attention[0].estimated = false;
  fit.after = Errors(samples, cluster);
  return fit;
}

Fit FitCollectives(absl::Span<const Sample> samples, const Cluster& from) {
  Fit fit;
  fit.cluster = from;
  fit.before = Errors(samples, from);
  FitLinks(samples, fit.cluster);
  fit.after = Errors(samples, fit.cluster);
  return fit;
}

}  // namespace meshwright
