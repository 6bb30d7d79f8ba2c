#include "tools/measure/report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "costmodel/collective_cost.h"
#include "ir/text.h"
#include "tools/cluster_flags.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// "{a: 1, b: {c: 2}}" with a line for each field of the outer map.
std::string Unfold(const std::string& flow) {
  std::string text;
  int depth = 0;
  for (size_t i = 0; i < flow.size(); ++i) {
    const char c = flow[i];
    if (c == '{' && depth++ == 0) continue;
    if (c == '}' && --depth == 0) continue;
    if (c == ',' && depth == 1) {
      text.push_back('\n');
      ++i;  // the space behind it
      continue;
    }
    text.push_back(c);
  }
  return text + "\n";
}

double MedianSpread(absl::Span<const Sample> samples) {
  std::vector<double> spreads;
  for (const Sample& sample : samples) spreads.push_back(sample.spread);
  if (spreads.empty()) return 0;
  std::sort(spreads.begin(), spreads.end());
  return spreads[spreads.size() / 2];
}

double Error(Nanos predicted, Nanos measured) {
  return measured.raw() == 0 ? 0
                             : static_cast<double>((predicted - measured).raw()) / static_cast<double>(measured.raw());
}

}  // namespace

std::string ToClusterFile(const Fit& fit, absl::Span<const Sample> samples, const MeasuredOn& on) {
  Cluster cluster = fit.cluster;
  cluster.device.provenance.push_back(
      {"kernels", absl::StrCat("measure, ", on.date, ", ", on.machine), /*estimated=*/false});
  std::string text = absl::StrCat("# Written by measure. Errors are of samples that were not fitted:\n");
  for (const FitError& error : fit.after) {
    absl::StrAppendFormat(&text, "#   %-20s %3d samples, error mean %s, median %s, worst %s\n", NameOf(error.kind),
                          error.samples, ShowPercent(error.mean), ShowPercent(error.median), ShowPercent(error.worst));
  }
  absl::StrAppend(&text, Unfold(ToYaml(cluster)));
  absl::StrAppend(&text, "measured: {date: ", QuoteYaml(on.date), ", machine: ", QuoteYaml(on.machine),
                  ", command: ", QuoteYaml(on.command), ", samples: ", samples.size(),
                  ", median_spread: ", ShortestNumber(MedianSpread(samples)), "}\n");
  return text;
}

std::string ToCsv(const Fit& fit, absl::Span<const Sample> samples) {
  std::string text = "kind,name,dtype,ranks,bytes,flops,time_ns,spread,runs,price_ns\n";
  for (const Sample& sample : samples) {
    const Bytes bytes = sample.kind == SampleKind::kCollective ? sample.size : sample.work.read + sample.work.written;
    absl::StrAppendFormat(&text, "%s,\"%s\",%s,%d,%d,%.0f,%d,%.3f,%d,%d\n", NameOf(sample.kind), sample.name,
                          NameOf(sample.dtype), sample.ranks, bytes.raw(), sample.work.flops.raw(), sample.time.raw(),
                          sample.spread, sample.runs, PriceOf(sample, fit.cluster).raw());
  }
  return text;
}

std::string ToText(const Fit& fit) {
  std::string text = absl::StrFormat("%-20s %8s %10s %10s %10s %12s\n", "errors of prices", "samples", "mean", "median",
                                     "worst", "median before");
  for (size_t i = 0; i < fit.after.size(); ++i) {
    const FitError& after = fit.after[i];
    absl::StrAppendFormat(&text, "%-20s %8d %10s %10s %10s %12s\n", NameOf(after.kind), after.samples,
                          ShowPercent(after.mean), ShowPercent(after.median), ShowPercent(after.worst),
                          ShowPercent(fit.before[i].median));
  }
  return text;
}

std::string CompareLog(const NcclLog& log, CollectiveKind kind, int64_t ranks, const Cluster& cluster) {
  GroupShape group;
  group.ranks = ranks;
  group.ranks_per_node = std::min(ranks, cluster.devices_per_node);
  group.nodes = (ranks + group.ranks_per_node - 1) / group.ranks_per_node;
  std::string text =
      absl::StrFormat("%s over %d ranks on %d node%s\n%14s %12s %12s %9s %11s\n", NameOf(kind), ranks, group.nodes,
                      group.nodes == 1 ? "" : "s", "bytes", "measured", "predicted", "error", "bus GB/s");
  for (const NcclLog::Row& row : log.rows) {
    const CollectiveCost cost = PriceCollective(kind, row.size, group, cluster);
    const double bus = row.time.raw() == 0 ? 0
                                           : static_cast<double>(row.size.raw()) / static_cast<double>(row.time.raw()) *
                                                 BusFactor(kind, ranks);
    absl::StrAppendFormat(&text, "%14d %12s %12s %+8.1f%% %11.2f\n", row.size.raw(), ShowTime(row.time),
                          ShowTime(cost.time), 100 * Error(cost.time, row.time), bus);
  }
  return text;
}

}  // namespace meshwright
