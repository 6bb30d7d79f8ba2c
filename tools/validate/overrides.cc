#include "tools/validate/overrides.h"

#include <regex>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/cluster_flags.h"
#include "tools/validate/gpu_type.h"
#include "tools/validate/interconnect.h"
#include "tools/validate/row_model.h"

namespace meshwright {
namespace {

constexpr double kMostImbalance = 1024;

absl::Status CheckDevice(const std::string& device) {
  // Free text is good enough: "A100 SXM 80GB, dual socket".
  if (!device.empty() && !IsDeviceFile(device) && DeviceNamed(device).ok()) return absl::OkStatus();
  return FindDevice(device).status();
}

// A value is good where it is good for the device that the user names, or for any where that is up to the rows.
absl::Status CheckClusterKey(const std::string& device, const std::string& key, const std::string& value) {
  std::vector<std::string> names = DeviceNames();
  if (!device.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, DeviceNamed(device));
    names = {name};
  }
  absl::Status wrong;
  for (const std::string& name : names) {
    MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, MakeCluster(name, 1));
    absl::Status status = SetClusterKey(key, value, &cluster);
    if (status.ok()) return status;
    if (wrong.ok()) wrong = std::move(status);
  }
  return wrong;
}

absl::Status CheckInternode(const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster usual, MakeCluster("h100-sxm", 1));
  Cluster cluster = usual;
  // A cell's reader looks for a rate anywhere in its text, and so finds one behind a sign and beside no cards, too.
  static const std::regex* const kNone =
      new std::regex(R"(^\s*(-|(\d+\s*[x*]\s*)?(0+(\.0*)?|\.0+)\s*([x*]|[gt]b)))", std::regex::icase);
  const bool none = std::regex_search(text, *kNone);
  if (!none && (SetInternode(text, &cluster) || cluster != usual)) return absl::OkStatus();
  return WrongInput(QuoteForMessage(text), "cards and their rate, a node's rate or a kind of network",
                    "e.g. 8x200Gb/s, 800Gb/s, HDR, EFA");
}

}  // namespace

absl::StatusOr<RowOverrides> OverridesFrom(const Flags& flags) {
  RowOverrides overrides;
  overrides.device = flags.Text("device");
  overrides.internode = flags.Text("internode");
  overrides.constants_of = flags.Text("constants_of");
  if (flags.Has("device")) {
    if (const absl::Status known = CheckDevice(overrides.device); !known.ok())
      return WrongDevice(overrides.device, known);
  }
  if (flags.Has("internode")) {
    if (const absl::Status read = CheckInternode(overrides.internode); !read.ok()) {
      return Flags::Wrong("internode", read);
    }
  }
  if (flags.Has("constants_of")) {
    const absl::StatusOr<Device> device = FindDevice(overrides.constants_of);
    if (!device.ok()) return Flags::Wrong("constants_of", device.status());
  }
  overrides.collective = flags.Text("collective");
  if (flags.Has("ranks")) {
    constexpr int64_t kMostRanks = 1 << 20;
    const absl::StatusOr<int64_t> ranks = ParseInt(flags.Text("ranks"), 2, kMostRanks);
    if (!ranks.ok()) return Flags::Wrong("ranks", ranks.status());
    overrides.ranks = *ranks;
  }
  if (flags.Has("expert_imbalance")) {
    const absl::StatusOr<double> factor = ParseDouble(flags.Text("expert_imbalance"), 1, kMostImbalance);
    if (!factor.ok()) return Flags::Wrong("expert_imbalance", factor.status());
    overrides.expert_imbalance = *factor;
  }
  for (const ClusterKey& key : ClusterKeys()) {
    if (!flags.Has(key.name)) continue;
    const std::string value = flags.Text(key.name);
    if (const absl::Status good = CheckClusterKey(overrides.device, std::string(key.name), value); !good.ok()) {
      return Flags::Wrong(key.name, good);
    }
    overrides.cluster_keys[std::string(key.name)] = value;
  }
  return overrides;
}

absl::StatusOr<std::string> DeviceOf(const CsvCells& cells, const RowOverrides& overrides, double memory_gb) {
  if (!overrides.device.empty()) return DeviceNamed(overrides.device);
  const std::string text = cells.Text("gpu_type");
  if (text.empty()) return CannotExpress("not given", "gpu_type; --device=NAME says it for all rows");
  if (IsDeviceFile(text)) return CannotExpress("unknown device", text);  // a table opens no files
  return DeviceNamed(text, memory_gb);
}

CsvTable WithDevice(CsvTable table, const RowOverrides& overrides) {
  if (overrides.device.empty()) return table;
  if (!table.Find("gpu_type").has_value()) {
    table.columns.push_back("gpu_type");
    for (CsvRow& row : table.rows) row.cells.push_back("");
  }
  const size_t at = *table.Find("gpu_type");
  for (CsvRow& row : table.rows) {
    if (absl::StripAsciiWhitespace(row.cells[at]).empty()) row.cells[at] = overrides.device;
  }
  return table;
}

absl::Status SetClusterKeys(const RowOverrides& overrides, Cluster* cluster) {
  for (const auto& [key, value] : overrides.cluster_keys) {
    const absl::Status status = SetClusterKey(key, value, cluster);
    if (!status.ok()) {
      return CannotExpress(absl::StrCat("--", key, " does not go with the device"),
                           absl::StrCat(cluster->device.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace meshwright
