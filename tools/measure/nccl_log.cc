#include "tools/measure/nccl_log.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace meshwright {
namespace {

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

// Where the columns are: those of today's nccl-tests, until a line of names says otherwise. 0: there is none.
struct Columns {
  size_t count = 13, dtype = 2, redop = 3, root = 4, time = 5, in_place = 9;
};

using Words = std::vector<absl::string_view>;

// What launchers put in front of a line: mpirun its rank and stream, SkyPilot and Ray a bracket, srun a number.
absl::string_view WithoutLauncher(absl::string_view line) {
  constexpr size_t kMost = 160;
  while (absl::StartsWith(line, "(")) {
    const size_t bracket = line.substr(0, kMost).find(") ");
    if (bracket == absl::string_view::npos) return line;
    line = absl::StripLeadingAsciiWhitespace(line.substr(bracket + 2));
  }
  const absl::string_view front = line.substr(0, kMost);
  const size_t stream = front.find(">:");
  if (absl::StartsWith(front, "[") && stream != absl::string_view::npos) return line.substr(stream + 2);
  const size_t digits = front.find_first_not_of("0123456789");
  if (digits > 0 && digits != absl::string_view::npos && absl::StartsWith(front.substr(digits), ": ")) {
    return line.substr(digits + 2);
  }
  return line;
}

Words WordsOf(absl::string_view line) {
  return absl::StrSplit(WithoutLauncher(line), absl::ByAnyChar(" ,\t\r"), absl::SkipEmpty());
}

bool IsNames(const Words& words) {
  const size_t at = !words.empty() && words[0] == "#" ? 1 : 0;
  if (words.size() < at + 6) return false;
  const bool begins =
      (words[at] == "size" || words[at] == "#size") && words[at + 1] == "count" && words[at + 2] == "type";
  return begins &&
         (words[at + 3] == "redop" || words[at + 3] == "root" || words[at + 3] == "time" || words[at + 3] == "cputime");
}

Columns ColumnsOf(const Words& words) {
  const size_t at = words[0] == "#" ? 1 : 0;
  Columns columns;
  columns.count = words.size() - at;
  columns.redop = columns.root = columns.time = columns.in_place = 0;
  for (size_t i = at; i < words.size(); ++i) {
    if (words[i] == "redop") columns.redop = i - at;
    if (words[i] == "root") columns.root = i - at;
    if (words[i] != "time") continue;
    (columns.time == 0 ? columns.time : columns.in_place) = i - at;
  }
  return columns;
}

// "sendrecv" of "./build/sendrecv_perf", "sendrecv_perf_mpi".
std::string ProgramIn(const Words& words) {
  for (const absl::string_view word : words) {
    const size_t end = word.find("_perf");
    if (end == absl::string_view::npos || end == 0) continue;
    const size_t slash = word.rfind('/', end);
    const size_t begin = slash == absl::string_view::npos ? 0 : slash + 1;
    return std::string(word.substr(begin, end - begin));
  }
  return "";
}

// Which ranks a test lists, and where they run.
struct Ranks {
  int64_t listed = 0, last = -1, last_device = 0;
  std::set<std::string> hosts;

  int64_t count() const { return std::max(listed, last + 1); }
  // Of a list that was cut short: as many as the devices of one fill.
  int64_t nodes() const {
    if (listed == 0 || hosts.empty()) return 0;
    return listed > last ? static_cast<int64_t>(hosts.size()) : (last + last_device + 1) / (last_device + 1);
  }
};

// A comment: the program, a rank of the test.
void ReadComment(absl::string_view line, const Words& words, Ranks* ranks, NcclLog* log) {
  for (const Name& name : kNames) {
    if (absl::StrContains(line, name.program)) log->collective = name.kind;
  }
  const std::string program = ProgramIn(words);
  if (!program.empty()) log->program = program;
  int64_t number = 0;
  for (size_t i = 1; i + 1 < words.size(); ++i) {
    if (words[i] == "nGpus" && absl::SimpleAtoi(words[i + 1], &number)) {
      log->gpus_per_thread = std::clamp<int64_t>(number, 1, int64_t{1} << 12);
    }
  }
  if (words.size() <= 2 || words[1] != "Rank") return;
  ++ranks->listed;
  if (absl::SimpleAtoi(words[2], &number)) ranks->last = std::clamp<int64_t>(number, ranks->last, int64_t{1} << 24);
  for (size_t i = 3; i + 1 < words.size(); ++i) {
    if (words[i] == "on") ranks->hosts.insert(std::string(words[i + 1]));
    if (words[i] == "device" && absl::SimpleAtoi(words[i + 1], &number)) {
      ranks->last_device = std::clamp<int64_t>(number, ranks->last_device, int64_t{1} << 12);
    }
  }
  const size_t bus = line.rfind(']');
  if (log->device.empty() && bus != absl::string_view::npos) {
    log->device = std::string(absl::StripAsciiWhitespace(line.substr(bus + 1)));
  }
  log->ranks = ranks->count();
  log->nodes = ranks->nodes();
}

void ReadVersion(absl::string_view line, NcclLog* log) {
  constexpr absl::string_view kVersion = "NCCL version ";
  const size_t at = line.find(kVersion);
  if (at == absl::string_view::npos) return;
  const absl::string_view rest = line.substr(at + kVersion.size());
  log->version = std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

bool Micros(absl::string_view word, Nanos* time) {
  double us = 0;
  if (!absl::SimpleAtod(word, &us) || !(us >= 0 && us < 1e12)) return false;
  *time = FromSeconds(us * 1e-6);
  return true;
}

}  // namespace

bool LooksLikeNcclLog(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const Words words = WordsOf(absl::StripAsciiWhitespace(line));
    if (IsNames(words)) return true;
    if (words.size() > 2 && words[0] == "#" && (words[1] == "nThread" || words[1] == "Rank")) return true;
  }
  return false;
}

absl::StatusOr<std::vector<NcclLog>> ParseNcclLogs(absl::string_view text, const std::string& path) {
  std::vector<NcclLog> logs(1);
  Columns columns;
  Ranks ranks;
  std::string named;  // by a command line, of the test behind it
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::string_view line = absl::StripAsciiWhitespace(lines[i]);
    const Words words = WordsOf(line);
    if (words.empty()) continue;
    ReadVersion(line, &logs.back());
    if (IsNames(words)) {
      columns = ColumnsOf(words);
      if (columns.time == 0) {
        return Wrong(path, i, "cputime alone", "time; nccl-tests prints the CPU's in its place with -C 1");
      }
      continue;
    }
    if (absl::StartsWith(words[0], "#")) {
      const bool begins = absl::StrContains(line, "nThread") || absl::StrContains(line, "test starting");
      if (begins && !logs.back().rows.empty()) {
        logs.emplace_back();
        ranks = Ranks();
      }
      if (begins && logs.back().program.empty()) logs.back().program = std::exchange(named, "");
      if (logs.back().rows.empty()) ReadComment(line, words, &ranks, &logs.back());
      continue;
    }
    int64_t size = 0;
    // What a launcher or NCCL itself prints between the rows begins with no number.
    if (!absl::SimpleAtoi(words[0], &size)) {
      const std::string program = ProgramIn(words);
      if (!program.empty()) named = program;
      continue;
    }
    if (words.size() < columns.count) {
      return Wrong(path, i, absl::StrCat(words.size(), " columns"),
                   absl::StrCat(columns.count, ", as nccl-tests prints"));
    }
    NcclLog::Row row;
    if (size < 0 || columns.time == 0 || columns.time + 2 >= words.size() || !Micros(words[columns.time], &row.time)) {
      return Wrong(path, i, absl::StrCat("\"", words[std::min(columns.time, words.size() - 1)], "\" as time"),
                   "microseconds");
    }
    row.size = Bytes(size);
    row.line = static_cast<int64_t>(i) + 1;
    row.dtype = std::string(words[columns.dtype]);
    row.reduces = columns.redop > 0 && words[columns.redop] != "none";
    int64_t root = -1;
    row.rooted = columns.root > 0 && absl::SimpleAtoi(words[columns.root], &root) && root >= 0;
    double algorithm = 0, bus = 0;
    if (absl::SimpleAtod(words[columns.time + 1], &algorithm) && absl::SimpleAtod(words[columns.time + 2], &bus) &&
        algorithm > 0 && std::isfinite(bus / algorithm)) {
      row.bus_factor = bus / algorithm;
    }
    Nanos in_place;
    if (columns.in_place > 0 && Micros(words[columns.in_place], &in_place)) row.in_place = in_place;
    if (size > 0) logs.back().rows.push_back(std::move(row));
  }
  if (logs.back().rows.empty()) logs.pop_back();
  if (logs.empty()) return Wrong(path, 0, "no row", "a log of nccl-tests");
  return logs;
}

absl::StatusOr<NcclLog> ParseNcclLog(absl::string_view text, const std::string& path) {
  absl::StatusOr<std::vector<NcclLog>> logs = ParseNcclLogs(text, path);
  if (!logs.ok()) return logs.status();
  if (logs->size() > 1) {
    return Wrong(path, static_cast<size_t>((*logs)[1].rows[0].line - 1), "a second test",
                 "one; `validate collectives` takes logs of several");
  }
  return std::move((*logs)[0]);
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
