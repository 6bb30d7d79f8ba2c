#include "tools/validate/row_cluster.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "costmodel/library.h"
#include "ir/cluster.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "tools/validate/interconnect.h"
#include "tools/validate/power_limit.h"
#include "tools/validate/row_model.h"
#include "tools/validate/signs.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

constexpr int64_t kDefaultDevicesPerNode = 8;
constexpr char kDgx2Device[] = "v100-sxm3-32gb";
// Boards of four superchips, as those of Alps, JUPITER and Isambard-AI, have less power for each.
constexpr char kSuperchip[] = "gh200", kSuperchipOfFour[] = "gh200-quad";
constexpr double kBytesPerParameter = 20;  // Megatron-LM's documentation, mixed precision in fp16
// NCCL 2.18 over EFA, of the bandwidth that later versions reach, which let EFA's plugin choose algorithms (2.19.1:
// "add tuning plugin support"): an all_reduce of 64 MiB to 2 GiB on two nodes of p5 takes 1.69, 2.07, 2.08, 1.42, 1.38
// and 1.04 times as long as priced (awsome-distributed-training, nccl-tests/README.md, 2.18.5). Their median.
constexpr double kUntunedEfaShare = 1 / 1.56;

// "80", "40 (comment)": a number in front of whatever else.
absl::StatusOr<std::optional<double>> MemoryOf(const CsvCells& cells) {
  const std::string text = cells.Text("gpu_mem_gb");
  const std::string number = text.substr(0, text.find(' '));
  double value = 0;
  if (text.empty() || !absl::SimpleAtod(number, &value) || !(value > 0)) return std::optional<double>();
  return std::optional<double>(value);
}

}  // namespace

absl::StatusOr<int64_t> DefaultDevices(const CsvCells& cells, const RowOverrides& overrides,
                                       const DecoderConfig& model) {
  if (overrides.device.empty() && cells.Text("gpu_type").empty()) {
    return CannotExpress("not given", "gpus, tp, pp and gpu_type");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> memory, MemoryOf(cells));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, DeviceOf(cells, overrides, memory.value_or(0)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Device device, FindDevice(name));
  const double needed = kBytesPerParameter * NumParameters(model) / (static_cast<double>(device.memory.raw()) / 2);
  if (needed <= 1) return 1;
  int64_t stages = 1;
  while (stages < model.layers &&
         (model.layers % stages != 0 || static_cast<double>(stages * kDefaultDevicesPerNode) < needed)) {
    ++stages;
  }
  return stages * kDefaultDevicesPerNode;
}

absl::Status ReadRowCluster(const CsvCells& cells, const RowOverrides& overrides, const Framework& framework,
                            int64_t gpus, TrainingRun* run) {
  if (overrides.cluster.has_value()) {
    run->cluster = *overrides.cluster;
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> memory, MemoryOf(cells));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::string name, DeviceOf(cells, overrides, memory.value_or(0)));
  // NVIDIA's DGX-2 and HGX-2: V100 of their own behind switches.
  const auto lower = [&](absl::string_view column) { return absl::AsciiStrToLower(cells.Text(column)); };
  const std::string machine = absl::StrCat(lower("source_ref"), " ", lower("gpu_type"), " ", lower("interconnect"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Device named, FindDevice(name));
  if (named.generation == Generation::kVolta && HasAny(machine, {"dgx-2", "hgx-2", "dgx2"})) name = kDgx2Device;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> given, cells.Int("gpus_per_node", 1));
  if (named.name == kSuperchip && given == kWiredBoard) name = kSuperchipOfFour;
  int64_t per_node = given.value_or(kDefaultDevicesPerNode);
  // Where more devices share a switch than a machine holds, the switch is what counts.
  MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster usual, MakeCluster(name, 1, 0));
  if (usual.devices_per_node > kDefaultDevicesPerNode) per_node = usual.devices_per_node;
  if (!given.has_value() && gpus > 1) run->defaults.push_back(absl::StrCat("gpus_per_node ", per_node));
  per_node = std::min(per_node, gpus);
  if (gpus % per_node != 0) {
    while (gpus % per_node != 0) --per_node;
    run->approximations.push_back(absl::StrCat("nodes of ", per_node, " devices, so that all are full"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(run->cluster, MakeCluster(name, gpus / per_node, per_node));
  if (overrides.device.empty() && !memory.has_value() && cells.Text("gpu_type") != run->cluster.device.name) {
    run->defaults.push_back(absl::StrCat("gpu_type ", run->cluster.device.name));
  }
  KernelConstants& kernels = run->cluster.device.kernels;
  kernels.sustained_clock *= ClockUnderLimit(lower("other_opts"), kernels);
  if (given == kWiredBoard) WireBoard(&run->cluster);
  // Of several nodes the cell names what is between them, as "PCIe 5.0" of their cards.
  SetIntranode(run->cluster.nodes == 1 ? cells.Text("interconnect") : "", per_node, &run->cluster);
  Bytes& capacity = run->cluster.device.memory;
  if (memory.has_value() && std::abs(*memory * 0.99 * 1073741824 / static_cast<double>(capacity.raw()) - 1) > 0.1) {
    capacity = Bytes(static_cast<int64_t>(*memory * 0.99 * 1073741824));
  }
  if (run->cluster.nodes == 1) return absl::OkStatus();
  std::string links = overrides.internode.empty() ? std::string(cells.Text("interconnect")) : overrides.internode;
  // nanotron's own machines: its scripts choose EFA and it warned of any other (FI_PROVIDER, core/utils.py of 2023).
  if (links.empty() && framework.Is(Sign::kNanotron)) links = "EFA";
  if (links == "EFA" && framework.untuned_nccl) {
    run->cluster.nic_bandwidth = run->cluster.nic_bandwidth * kUntunedEfaShare;
  }
  if (!SetInternode(links, &run->cluster)) {
    run->defaults.push_back(absl::StrCat("interconnect of the usual ", run->cluster.device.name, " machine"));
  }
  return absl::OkStatus();
}

}  // namespace meshwright
