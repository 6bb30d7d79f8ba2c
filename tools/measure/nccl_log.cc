#include "tools/measure/nccl_log.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace meshwright {
namespace {

constexpr size_t kColumns = 13, kTimeColumn = 5;

// nccl-tests' program of each collective.
struct Name {
  CollectiveKind kind;
  absl::string_view program;
};
constexpr Name kNames[] = {{CollectiveKind::kAllReduce, "all_reduce_perf"},
                           {CollectiveKind::kAllGather, "all_gather_perf"},
                           {CollectiveKind::kReduceScatter, "reduce_scatter_perf"},
                           {CollectiveKind::kAllToAll, "alltoall_perf"},
                           {CollectiveKind::kBroadcast, "broadcast_perf"}};

absl::Status Wrong(const std::string& path, size_t line, absl::string_view found, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line + 1, ":1: found ", found, ", wanted ", wanted));
}

}  // namespace

absl::StatusOr<NcclLog> ParseNcclLog(absl::string_view text, const std::string& path) {
  NcclLog log;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::string_view line = absl::StripAsciiWhitespace(lines[i]);
    if (absl::StartsWith(line, "#")) {
      for (const Name& name : kNames) {
        if (absl::StrContains(line, name.program)) log.collective = name.kind;
      }
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() > 2 && words[1] == "Rank") ++log.ranks;
      continue;
    }
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t size = 0;
    // What a launcher or NCCL itself prints between the rows begins with no number.
    if (words.empty() || !absl::SimpleAtoi(words[0], &size)) continue;
    if (words.size() < kColumns) {
      return Wrong(path, i, absl::StrCat(words.size(), " columns"), absl::StrCat(kColumns, ", as nccl-tests prints"));
    }
    double us = 0;
    if (size < 0 || !absl::SimpleAtod(words[kTimeColumn], &us) || !(us >= 0 && us < 1e12)) {
      return Wrong(path, i, absl::StrCat("\"", words[kTimeColumn], "\" as time"), "microseconds");
    }
    if (size > 0) log.rows.push_back({Bytes(size), FromSeconds(us * 1e-6)});
  }
  if (log.rows.empty()) return Wrong(path, 0, "no row", "a log of nccl-tests");
  return log;
}

std::string ToNcclLog(CollectiveKind kind, int64_t ranks, absl::Span<const Sample> samples, const std::string& device) {
  std::string text = "# written by measure in the form of nccl-tests\n";
  for (const Name& name : kNames) {
    if (name.kind == kind) absl::StrAppend(&text, "# Collective test starting: ", name.program, "\n");
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    absl::StrAppendFormat(&text, "#  Rank %2d Group  0 Pid      0 on       here device %2d [0x00] %s\n", rank, rank,
                          device);
  }
  absl::StrAppendFormat(&text, "# %10s %12s %8s %6s %6s %8s %7s %7s %6s %8s %7s %7s %6s\n", "size", "count", "type",
                        "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
  for (const Sample& sample : samples) {
    if (sample.kind != SampleKind::kCollective || sample.collective != kind || sample.ranks != ranks) continue;
    const double us = static_cast<double>(sample.time.raw()) / 1e3;
    const double algorithm = us == 0 ? 0 : static_cast<double>(sample.size.raw()) / us / 1e3;
    const double bus = algorithm * BusFactor(kind, ranks);
    const bool reduces = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
    const std::string half = absl::StrFormat("%8.2f %7.2f %7.2f %6s", us, algorithm, bus, "N/A");
    absl::StrAppendFormat(&text, "%12d %12d %8s %6s %6d %s %s\n", sample.size.raw(), sample.size.raw() / 4, "float",
                          reduces ? "sum" : "none", -1, half, half);
  }
  return text;
}

}  // namespace meshwright
