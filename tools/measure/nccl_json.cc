#include "tools/measure/nccl_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace meshwright {
namespace {

using Json = nlohmann::json;

absl::Status Wrong(const std::string& path, absl::string_view found, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": found ", found, ", wanted ", wanted));
}

// Members that are absent or of another type are as if they were not there.
const Json& Member(const Json& object, const char* name) {
  static const Json* const kNone = new Json();
  if (!object.is_object()) return *kNone;
  const auto found = object.find(name);
  return found == object.end() ? *kNone : *found;
}

std::string Text(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

std::optional<int64_t> Whole(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kMost = 1e15;
  if (!(number >= 0 && number <= kMost)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// NCCL_VERSION_CODE: 22703 is 2.27.3, and before 2.9 2804 was 2.8.4.
std::string VersionOf(int64_t code) {
  if (code <= 0) return "";
  const int64_t major = code >= 10000 ? 10000 : 1000;
  return absl::StrCat(code / major, ".", code % major / 100, ".", code % 100);
}

// nccl-tests lists the first device of each process.
void ReadDevices(const Json& config, NcclLog* log) {
  const Json& devices = Member(config, "devices");
  if (!devices.is_array()) return;
  std::set<std::string> hosts;
  for (const Json& device : devices) {
    if (const std::string host = Text(Member(device, "hostname")); !host.empty()) hosts.insert(host);
    if (log->device.empty()) log->device = Text(Member(device, "device_info"));
  }
  constexpr int64_t kMostThreads = int64_t{1} << 12;
  const int64_t threads = std::clamp<int64_t>(Whole(Member(config, "nthreads")).value_or(1), 1, kMostThreads);
  log->ranks = static_cast<int64_t>(devices.size()) * threads * log->gpus_per_thread;
  log->nodes = static_cast<int64_t>(hosts.size());
}

std::optional<Nanos> TimeOf(const Json& half) {
  const Json& time = Member(half, "time");
  if (!time.is_number()) return std::nullopt;
  const double us = time.get<double>();
  if (!(us >= 0 && us < 1e12)) return std::nullopt;
  return FromSeconds(us * 1e-6);
}

void ReadRow(const Json& result, int64_t number, NcclLog* log) {
  const Json& out = Member(result, "out_of_place");
  const std::optional<Nanos> time = TimeOf(out), in_place = TimeOf(Member(result, "in_place"));
  const std::optional<int64_t> size = Whole(Member(result, "size"));
  if (size.value_or(0) == 0 || !time.has_value()) return;
  NcclLog::Row row;
  row.size = Bytes(*size);
  row.time = *time;
  row.in_place = in_place;
  row.dtype = Text(Member(result, "type"));
  const std::string redop = Text(Member(result, "redop"));
  row.reduces = !redop.empty() && redop != "none";
  int64_t root = -1;
  row.rooted = absl::SimpleAtoi(Text(Member(result, "root")), &root) && root >= 0;
  const Json &algorithm = Member(out, "alg_bw"), &bus = Member(out, "bus_bw");
  if (algorithm.is_number() && bus.is_number() && algorithm.get<double>() > 0) {
    const double factor = bus.get<double>() / algorithm.get<double>();
    if (std::isfinite(factor)) row.bus_factor = factor;
  }
  row.line = number;
  log->rows.push_back(std::move(row));
}

// "all_reduce" of "./build/all_reduce_perf".
std::string ProgramOf(const Json& args) {
  if (!args.is_array() || args.empty()) return "";
  const std::string path = Text(args[0]);
  const size_t end = path.rfind("_perf");
  if (end == std::string::npos) return "";
  const size_t slash = path.rfind('/', end);
  return path.substr(slash == std::string::npos ? 0 : slash + 1, end - (slash == std::string::npos ? 0 : slash + 1));
}

}  // namespace

bool LooksLikeNcclJson(absl::string_view text) {
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{") && absl::StrContains(text, "\"results\"");
}

absl::StatusOr<NcclLog> ParseNcclJson(absl::string_view text, const std::string& path) {
  const Json report = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded()) return Wrong(path, "damaged JSON", "a report of nccl-tests (-J)");
  const Json& results = Member(report, "results");
  if (!results.is_array()) return Wrong(path, "no list of results", "a report of nccl-tests (-J)");
  NcclLog log;
  log.program = ProgramOf(Member(report, "args"));
  log.version = VersionOf(Whole(Member(report, "nccl_version")).value_or(0));
  const Json& config = Member(report, "config");
  log.gpus_per_thread = std::clamp<int64_t>(Whole(Member(config, "ngpus")).value_or(1), 1, int64_t{1} << 12);
  ReadDevices(config, &log);
  int64_t number = 0;
  for (const Json& result : results) ReadRow(result, ++number, &log);
  if (log.rows.empty()) {
    return Wrong(path, "no result with a time out of place",
                 "\"out_of_place\": {\"time\": ...}; -C 1 writes the CPU's");
  }
  return log;
}

}  // namespace meshwright
