#include "tools/validate/collective_row.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <optional>
#include <regex>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "costmodel/data_sheet.h"
#include "costmodel/library.h"
#include "costmodel/nccl_tuner.h"
#include "ir/status.h"
#include "tools/measure/nccl_json.h"
#include "tools/measure/nccl_log.h"
#include "tools/validate/interconnect.h"
#include "tools/validate/row_model.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

struct CallInfo {
  NcclCall call;
  absl::string_view name;
  absl::string_view others;  // letters and digits alone, separated by spaces
  // Of nccl-tests: bus bandwidth is `rounds` x (n - 1) / n of the algorithm's, or 1 where it is 0; `count` is of one
  // rank's share where `shares`.
  int rounds;
  bool shares;
};
constexpr CallInfo kCalls[] = {
    {NcclCall::kAllReduce, "all_reduce", "allreduce ar", 2, false},
    {NcclCall::kAllGather, "all_gather", "allgather ag allgatherbase", 1, true},
    {NcclCall::kReduceScatter, "reduce_scatter", "reducescatter rs reducescatterbase", 1, true},
    {NcclCall::kBroadcast, "broadcast", "broadcast bcast", 0, false},
    {NcclCall::kAllToAll, "all_to_all", "alltoall a2a all2all alltoallsingle", 1, true},
    {NcclCall::kReduce, "reduce", "reduce", 0, false},
    {NcclCall::kGather, "gather", "gather", 1, true},
    {NcclCall::kScatter, "scatter", "scatter", 1, true},
    {NcclCall::kSendRecv, "sendrecv", "sendrecv sendreceive p2p ppermute collectivepermute", 0, false},
    {NcclCall::kHypercube, "hypercube", "hypercube", 1, true},
};
static_assert(std::size(kCalls) == static_cast<size_t>(NcclCall::kHypercube) + 1);
const CallInfo& InfoOf(NcclCall call) { return kCalls[static_cast<size_t>(call)]; }

absl::StatusOr<int64_t> ElementBytes(const std::string& dtype) {
  struct Width {
    absl::string_view names;
    int64_t bytes;
  };
  constexpr Width kWidths[] = {{"int8 uint8 char float8 fp8 f8e4m3 f8e5m2 float8_e4m3 float8_e5m2 byte", 1},
                               {"half float16 fp16 f16 bfloat16 bf16 int16", 2},
                               {"float float32 fp32 f32 int32 uint32 int tfloat32 tf32", 4},
                               {"double float64 fp64 f64 int64 uint64 long", 8}};
  for (const Width& width : kWidths) {
    for (const absl::string_view name : absl::StrSplit(width.names, ' ')) {
      if (name == dtype) return width.bytes;
    }
  }
  return CannotExpress("unknown dtype", dtype);
}

// `count` elements, as nccl-tests prints them.
absl::StatusOr<int64_t> SizeByCount(const CsvCells& cells, NcclCall call, int64_t ranks) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> count, cells.Int("count", 1));
  if (!count.has_value()) return CannotExpress("not given", "size_bytes");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t element, ElementBytes(absl::AsciiStrToLower(cells.Text("dtype"))));
  return *count * element * (InfoOf(call).shares ? ranks : 1);
}

// time_us, else by the bandwidths that are there, which nccl-tests rounds to 10 MB/s: not where that says little.
absl::StatusOr<double> MeasuredSeconds(const CsvCells& cells, const CollectiveRow& row) {
  constexpr double kLeastRate = 0.5;  // GB/s: 1 % of it is what it was rounded to
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> time, cells.Number("time_us"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> bus, cells.Number("busbw_gbps"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> algorithm, cells.Number("algbw_gbps"));
  const double bytes = static_cast<double>(row.size.raw());
  if (time.has_value() && *time > 0) {
    if (algorithm.has_value() && *algorithm >= kLeastRate) {
      MESHWRIGHT_RETURN_IF_ERROR(CheckAgreement(bytes / (*time * 1e3), algorithm, "GB/s"));
    }
    return *time * 1e-6;
  }
  const double n = static_cast<double>(row.shape.ranks);
  const int rounds = InfoOf(row.call).rounds;
  const double factor = rounds == 0 ? 1 : rounds * (n - 1) / n;
  if (algorithm.has_value() && *algorithm >= kLeastRate) return bytes / (*algorithm * 1e9);
  if (bus.has_value() && *bus >= kLeastRate) return bytes * factor / (*bus * 1e9);
  return CannotExpress("no time or rate", "time_us is empty, busbw and algbw too or below 0.5 GB/s");
}

struct Counts {
  int64_t ranks = 0, nodes = 0;
};

// Of ranks, nodes and gpus_per_node two say the third; ranks alone fill usual machines.
absl::StatusOr<Counts> ReadCounts(const CsvCells& cells, const RowOverrides& overrides, int64_t usual,
                                  std::vector<std::string>* defaults) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> ranks, cells.Int("ranks", 1));
  if (overrides.ranks > 0) ranks = overrides.ranks;
  MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> nodes, cells.Int("nodes", 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> per_node, cells.Int("gpus_per_node", 1));
  const bool nodes_given = nodes.has_value() || (ranks.has_value() && per_node.has_value());
  if (!ranks.has_value() && per_node.has_value()) ranks = nodes.value_or(1) * *per_node;
  if (!ranks.has_value()) return CannotExpress("not given", "ranks; --ranks=N says it for all rows");
  if (*ranks == 1) return CannotExpress("one rank", "nothing is sent");
  if (!nodes.has_value()) {
    const int64_t fill = per_node.value_or(usual);
    nodes = *ranks <= fill ? 1 : *ranks % fill == 0 ? *ranks / fill : 0;
  }
  if (*nodes == 0 || *ranks % *nodes != 0)
    return CannotExpress("nodes that are not full", absl::StrCat(*ranks, " ranks"));
  if (!nodes_given) defaults->push_back(absl::StrCat("nodes ", *nodes));
  return Counts{*ranks, *nodes};
}

// By NCCL's own words. Others say nothing of its choice ("no SHARP", "auto").
NcclPins ReadPins(const CsvCells& cells) {
  const std::string algorithm = absl::AsciiStrToLower(cells.Text("algo"));
  const std::string protocol = absl::AsciiStrToLower(cells.Text("proto"));
  NcclPins pins;
  for (const auto& [word, pin] :
       {std::pair("ring", Algorithm::kRing), std::pair("tree", Algorithm::kTree), std::pair("nvls", Algorithm::kNvls),
        std::pair("nvlstree", Algorithm::kNvlsTree), std::pair("pat", Algorithm::kPat)}) {
    if (algorithm == word) pins.algorithm = pin;
  }
  for (const auto& [word, pin] :
       {std::pair("ll", Protocol::kLl), std::pair("ll128", Protocol::kLl128), std::pair("simple", Protocol::kSimple)}) {
    if (protocol == word) pins.protocol = pin;
  }
  return pins;
}

// Devices whose kernels one thread starts: `gpus_per_thread` (nccl-tests' -g), or all of a machine where the row says
// that it was one process.
absl::StatusOr<int64_t> LaunchesOf(const CsvCells& cells, const GroupShape& shape) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> given, cells.Int("gpus_per_thread", 1));
  if (given.has_value()) return std::min(*given, shape.ranks_per_node);
  const std::string text = absl::AsciiStrToLower(absl::StrCat(cells.Text("interconnect"), " ", cells.Text("notes")));
  return HasAny(text, {"one process", "single process"}) ? shape.ranks_per_node : 1;
}

constexpr int64_t kUsualDevices = 8;  // of a machine; more share a switch across machines

// "two NVLink domains": 2; 1 where no number says it.
int64_t DomainsIn(const std::string& lower) {
  static const std::regex* const kDomains = new std::regex(R"(\b(\d{1,4}|two|three|four|six|eight) nvlink domains)");
  std::smatch match;
  if (!std::regex_search(lower, match, *kDomains)) return 1;
  for (const auto& [word, number] :
       {std::pair("two", 2), std::pair("three", 3), std::pair("four", 4), std::pair("six", 6), std::pair("eight", 8)}) {
    if (match[1] == word) return number;
  }
  return std::max(1, std::stoi(match[1].str()));
}

// Machines that one switch joins become one: NVIDIA's NVL72 has 18 trays of 4.
void JoinByNvlink(absl::string_view interconnect, int64_t domain, GroupShape* shape, Cluster* cluster) {
  const std::string lower = absl::AsciiStrToLower(interconnect);
  const bool apart = HasAny(lower, {"other nvlink domain", "distinct nvlink domain", "different nvlink domain",
                                    "nvlink partitions", "nvl partitions", "cross-domain", "across domains",
                                    "without mnnvl", "no mnnvl", "mnnvl off", "mnnvl disabled", "mnnvl_enable=0"});
  if (apart || shape->nodes == 1) return;
  const int64_t most = shape->nodes / DomainsIn(lower);
  // As few domains as hold the ranks, all equally full; else the machines stay as they are.
  const int64_t per_machine = shape->ranks_per_node;
  for (int64_t machines = std::min(most, domain / std::max<int64_t>(1, per_machine)); machines > 1; --machines) {
    if (shape->nodes % machines != 0) continue;
    cluster->nics_per_node = std::max<int64_t>(1, cluster->nics_per_node) * machines;
    cluster->devices_per_node *= machines;
    shape->nodes /= machines;
    shape->ranks_per_node *= machines;
    cluster->nodes = shape->nodes;
    return;
  }
}

double Exchange(double bytes, bool crosses, const CollectiveRow& row) {
  // Every rank sends and receives: all links of a node carry as much as an all-to-all of two of its ranks.
  const Bytes size(static_cast<int64_t>(bytes));
  if (!crosses) return ToSeconds(PriceCollective(CollectiveKind::kAllToAll, size * 2, {2, 1, 2, 1}, row.cluster).time);
  const int64_t cards = std::max<int64_t>(1, row.cluster.nics_per_node);
  const int64_t sharing = row.call == NcclCall::kSendRecv ? 1 : (row.shape.ranks_per_node + cards - 1) / cards;
  return ToSeconds(PriceSendRecv(size, true, row.cluster, sharing).time);
}

}  // namespace

absl::StatusOr<NcclCall> CallNamed(absl::string_view name) {
  std::string letters;
  for (const char c : absl::AsciiStrToLower(name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) letters.push_back(c);
  }
  absl::string_view plain = letters;
  for (const absl::string_view before : {"nccl", "rccl"}) absl::ConsumePrefix(&plain, before);
  for (const absl::string_view behind : {"mpi", "perf", "intotensor", "tensor"}) absl::ConsumeSuffix(&plain, behind);
  std::string names;
  for (const CallInfo& row : kCalls) {
    for (const absl::string_view other : absl::StrSplit(row.others, ' ')) {
      if (plain == other) return row.call;
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", row.name);
  }
  return CannotExpress("unknown collective", absl::StrCat(name, "; known are ", names));
}

absl::Status CheckAgreement(double by_time, std::optional<double> printed, absl::string_view unit) {
  constexpr double kMostApart = 0.1;  // none of 5,650 published rows that have both is
  if (!printed.has_value() || *printed <= 0 || std::abs(by_time / *printed - 1) <= kMostApart) return absl::OkStatus();
  return CannotExpress("time and rate disagree", absl::StrFormat("%.4g %s by its time, %.4g printed; leave out the "
                                                                 "column that is something else",
                                                                 by_time, unit, *printed));
}

absl::StatusOr<CollectiveRow> ReadCollectiveRow(const CsvCells& cells, const RowOverrides& overrides) {
  CollectiveRow row;
  const std::string named = overrides.collective.empty() ? cells.Text("collective") : overrides.collective;
  if (named.empty()) return CannotExpress("not given", "collective; --collective=NAME says it for all rows");
  MESHWRIGHT_ASSIGN_OR_RETURN(row.call, CallNamed(named));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string device, DeviceOf(cells, overrides));
  absl::StatusOr<Cluster> usual = MakeCluster(device, 1, 0);
  if (!usual.ok()) return CannotExpress("unknown device", device);
  const int64_t domain = usual->devices_per_node;
  const bool shared_switch = domain > kUsualDevices;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Counts counts, ReadCounts(cells, overrides, domain, &row.defaults));
  row.shape = {counts.ranks, counts.nodes, counts.ranks / counts.nodes, 1};
  // A group of some devices of a whole machine: links and switch are the machine's.
  MESHWRIGHT_ASSIGN_OR_RETURN(
      row.cluster, MakeCluster(device, counts.nodes, shared_switch && counts.nodes > 1 ? row.shape.ranks_per_node : 0));
  if (row.shape.ranks_per_node > row.cluster.devices_per_node) {
    MESHWRIGHT_ASSIGN_OR_RETURN(row.cluster, MakeCluster(device, counts.nodes, row.shape.ranks_per_node));
  }
  const std::string links = overrides.internode.empty() ? cells.Text("interconnect") : overrides.internode;
  row.pins = ReadPins(cells);
  MESHWRIGHT_ASSIGN_OR_RETURN(row.launches, LaunchesOf(cells, row.shape));
  SetIntranode(absl::StrCat(cells.Text("interconnect"), " ", cells.Text("algo")), row.shape.ranks_per_node,
               &row.cluster);
  const bool says_cards = counts.nodes > 1 && SetInternode(links, &row.cluster);
  // A node of as many devices as the row says, which have all of its cards to themselves; but more cards than devices
  // are those of a machine that runs with some of its devices.
  if (says_cards && !cells.Text("gpus_per_node").empty() && row.cluster.nics_per_node <= row.shape.ranks_per_node) {
    row.cluster.devices_per_node = row.shape.ranks_per_node;
  }
  if (counts.nodes > 1 ? !says_cards : links.empty()) {
    row.defaults.push_back(absl::StrCat("interconnect of the usual ", row.cluster.device.name, " machine"));
  }
  if (shared_switch) JoinByNvlink(links, domain, &row.shape, &row.cluster);
  MESHWRIGHT_RETURN_IF_ERROR(SetClusterKeys(overrides, &row.cluster));
  row.cluster.devices_per_node = std::max(row.cluster.devices_per_node, row.shape.ranks_per_node);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> size, cells.Int("size_bytes", 1));
  row.size = Bytes(size.value_or(0));
  if (!size.has_value()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t counted, SizeByCount(cells, row.call, counts.ranks));
    row.size = Bytes(counted);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(row.seconds, MeasuredSeconds(cells, row));
  const std::string version = cells.Text("nccl_version");
  if (version.empty()) {
    row.defaults.push_back(absl::StrCat("nccl_version ", kNcclVersion));
  } else if (!absl::StrContains(version, kNcclVersion)) {
    row.approximations.push_back(absl::StrCat("NCCL ", version, " as ", kNcclVersion));
  }
  row.group = absl::StrCat(row.cluster.device.name, ", ", InfoOf(row.call).name, ", ", row.shape.nodes, " x ",
                           row.shape.ranks_per_node);
  row.label = absl::StrCat(row.group, ", ", row.size.raw(), " bytes");
  return row;
}

namespace {

double SecondsOnDevices(const CollectiveRow& row, const Device& fitted) {
  const auto collective = [&](CollectiveKind kind) {
    return ToSeconds(PriceCollectiveFittedOn(fitted, kind, row.size, row.shape, row.cluster, row.pins).time);
  };
  switch (row.call) {
    case NcclCall::kAllReduce:
      return collective(CollectiveKind::kAllReduce);
    case NcclCall::kAllGather:
      return collective(CollectiveKind::kAllGather);
    case NcclCall::kReduceScatter:
      return collective(CollectiveKind::kReduceScatter);
    case NcclCall::kBroadcast:
    case NcclCall::kReduce:
      return collective(CollectiveKind::kBroadcast);
    case NcclCall::kAllToAll:
    case NcclCall::kGather:
    case NcclCall::kScatter:
      return collective(CollectiveKind::kAllToAll);
    case NcclCall::kSendRecv: {
      const double bytes = static_cast<double>(row.size.raw());
      const double inside = row.shape.ranks_per_node > 1 ? Exchange(bytes, false, row) : 0;
      return std::max(inside, row.shape.nodes > 1 ? Exchange(bytes, true, row) : 0);
    }
    case NcclCall::kHypercube: {
      double seconds = 0;
      for (int64_t distance = 1; distance < row.shape.ranks; distance *= 2) {
        const double share = static_cast<double>(distance) / static_cast<double>(row.shape.ranks);
        seconds += Exchange(static_cast<double>(row.size.raw()) * share, distance >= row.shape.ranks_per_node, row);
      }
      return seconds;
    }
  }
  return 0;
}

}  // namespace

double SecondsOfCollective(const CollectiveRow& row, const Device& fitted) {
  const double launching = static_cast<double>(row.launches) * ToSeconds(row.cluster.device.kernels.host_launch);
  return std::max(SecondsOnDevices(row, fitted), row.launches > 1 ? launching : 0);
}

namespace {

// The one call that a text of lower case names, the longest of its names: "h100_all-reduce_2.log". "" for none or two.
std::string CallIn(absl::string_view text) {
  const std::string within(text.substr(0, 4096));  // a pattern takes stack for each byte
  absl::string_view found;
  for (const CallInfo& row : kCalls) {
    const std::regex name(absl::StrCat("(^|[^a-z])", absl::StrReplaceAll(row.name, {{"_", "[-_ ]?"}}), "([^a-z]|$)"));
    if (!std::regex_search(within, name) || absl::StrContains(found, row.name)) continue;
    if (!found.empty() && !absl::StrContains(row.name, found)) return "";
    found = row.name;
  }
  return std::string(found);
}

std::string CallOfFile(const std::string& path) {
  return CallIn(absl::AsciiStrToLower(path.substr(path.rfind('/') + 1)));  // all of it, without a slash
}

// What a log without a program's name is of: its file may say so, or what its last row, which has the most digits, says
// of the bus: an all-reduce's carries 2 (n - 1) / n of the bytes, a reduce-scatter's half of that. "" where that leaves
// several: an all-gather and an all-to-all look alike.
std::string CallOfUnnamed(const NcclLog& log, const std::string& path) {
  if (std::string found = CallOfFile(path); !found.empty()) return found;
  const NcclLog::Row& row = log.rows.back();
  constexpr double kAllReduceAlone = 1.1, kDigits = 0.05;
  if (row.bus_factor > kAllReduceAlone) return "all_reduce";
  if (log.ranks < 2 || row.bus_factor <= 0) return "";
  const double ranks = static_cast<double>(log.ranks);
  const auto carries = [&](double factor) { return std::abs(row.bus_factor / factor - 1) < kDigits; };
  if (row.rooted) return !carries(1) ? "" : row.reduces ? "reduce" : "broadcast";
  if (!row.reduces) return "";
  if (carries(2 * (ranks - 1) / ranks)) return "all_reduce";
  return carries((ranks - 1) / ranks) ? "reduce_scatter" : "";
}

}  // namespace

void NameCollective(CsvTable* table) {
  const std::string title = CallIn(table->title), call = title.empty() ? CallOfFile(table->file) : title;
  if (call.empty()) return;
  table->columns.push_back("collective");
  for (CsvRow& row : table->rows) row.cells.push_back(call);
  table->remarks.push_back(absl::StrCat("collective ", call, ", by the ", title.empty() ? "file's name" : "title"));
}

absl::StatusOr<CsvTable> TableOfNcclLog(absl::string_view text, const std::string& path) {
  std::vector<NcclLog> logs;
  if (LooksLikeNcclJson(text)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(logs.emplace_back(), ParseNcclJson(text, path));
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(logs, ParseNcclLogs(text, path));
  }
  CsvTable table;
  table.file = path;
  table.columns = {"collective", "gpu_type",   "nodes",   "ranks",     "nccl_version",
                   "dtype",      "size_bytes", "time_us", "placement", "gpus_per_thread"};
  for (const NcclLog& log : logs) {
    const std::string ranks = log.ranks > 0 ? absl::StrCat(log.ranks) : "";
    const std::string nodes = log.nodes > 0 ? absl::StrCat(log.nodes) : "";
    const std::string program = log.program.empty() ? CallOfUnnamed(log, path) : log.program;
    for (const NcclLog::Row& row : log.rows) {
      const auto add = [&](Nanos time, absl::string_view placement) {
        table.rows.push_back({row.line,
                              {program, log.device, nodes, ranks, log.version, row.dtype, absl::StrCat(row.size.raw()),
                               absl::StrFormat("%.3f", ToSeconds(time) * 1e6), std::string(placement),
                               absl::StrCat(log.gpus_per_thread)}});
      };
      add(row.time, "out-of-place");
      if (row.in_place.has_value()) add(*row.in_place, "in-place");
    }
  }
  return table;
}

}  // namespace meshwright
