#include "tools/cluster_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "costmodel/library.h"
#include "ir/files.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

constexpr int64_t kMaxDevices = kMaxNodes * kMaxDevicesPerNode;

// The errors of a value that a flag gave.
template <class T>
absl::StatusOr<T> Of(absl::string_view flag, absl::StatusOr<T> value) {
  if (!value.ok()) return Flags::Wrong(flag, value.status());
  return value;
}

// The usual machine of --device.
absl::StatusOr<Cluster> MachineOf(const Flags& flags) {
  absl::StatusOr<Cluster> machine = MakeCluster(flags.Text("device"), 1);
  if (!machine.ok()) return WrongDevice(flags.Text("device"), machine.status());
  return machine;
}

// As many devices in the machine that `cluster` is made of: whole nodes, or part of one.
absl::StatusOr<Cluster> Resized(Cluster cluster, int64_t devices) {
  const bool host = cluster.intra_kind == LinkKind::kHostMemory;
  const int64_t per_node = cluster.devices_per_node;
  if (!host && devices >= per_node) {
    if (devices % per_node != 0) {
      return WrongInput(absl::StrCat(devices), absl::StrCat("whole nodes of ", per_node, " ", cluster.device.name),
                        "give --nodes and --devices_per_node for other machines");
    }
    Resize(devices / per_node, per_node, &cluster);
  } else {
    Resize(1, devices, &cluster);
  }
  return cluster;
}

absl::Status SetCounts(const Flags& flags, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> devices, flags.Int("devices", 1, kMaxDevices));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> nodes, flags.Int("nodes", 1, kMaxNodes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> per_node,
                              flags.Int("devices_per_node", 1, kMaxDevicesPerNode));
  if (devices.has_value() && (nodes.has_value() || per_node.has_value())) {
    return Flags::Wrong("devices", WrongInput("--nodes or --devices_per_node beside it", "one of the two"));
  }
  if (devices.has_value()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(*cluster, Of("devices", Resized(std::move(*cluster), *devices)));
  }
  Resize(nodes.value_or(cluster->nodes), per_node.value_or(cluster->devices_per_node), cluster);
  return absl::OkStatus();
}

// The usual machine of the device, with `devices` of them, or a part-filled one where they fit no whole nodes.
absl::StatusOr<Cluster> OfDevice(const Flags& flags, int64_t devices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster one, MachineOf(flags));
  absl::StatusOr<Cluster> cluster = Resized(one, devices);
  if (!cluster.ok()) return Flags::Wrong("device", cluster.status());
  return cluster;
}

std::string YamlBytes(Bytes bytes) { return absl::StrCat(bytes.raw(), " B"); }
std::string YamlRate(BytesPerSecond rate) { return absl::StrCat(ShortestNumber(rate.raw()), " B/s"); }
std::string YamlNanos(Nanos time) { return absl::StrCat(time.raw(), " ns"); }

// What differs from the same kernel of the library.
void AddAttention(const AttentionConstants& own, const absl::StatusOr<Device>& usual,
                  std::vector<std::string>& fields) {
  if (!usual.ok()) return;
  for (const AttentionConstants& base : usual->attention) {
    if (base.kernel != own.kernel) continue;
    const auto add = [&](absl::string_view name, double value, double of_base) {
      if (value != of_base) fields.push_back(absl::StrCat("attention_", name, ": ", ShortestNumber(value)));
    };
    add("forward_share", own.forward_share, base.forward_share);
    add("backward_share", own.backward_share, base.backward_share);
    add("softmax_width", own.softmax_width, base.softmax_width);
    add("setup_keys", own.setup_keys, base.setup_keys);
  }
}

std::string KernelsToYaml(const Device& device) {
  const KernelConstants& k = device.kernels;
  std::string source = "unknown";
  for (const Provenance& row : device.provenance) {
    if (row.what == "kernels") source = row.source;
  }
  std::vector<std::string> fields = {
      absl::StrCat("source: ", QuoteYaml(source)),
      absl::StrCat("estimated: ", device.kernels_estimated ? "true" : "false"),
      absl::StrCat("startup: ", YamlNanos(k.startup)),
      absl::StrCat("host_launch: ", YamlNanos(k.host_launch)),
      absl::StrCat("matmul_share: ", ShortestNumber(k.matmul_share)),
      absl::StrCat("matmul_per_wave: ", YamlNanos(k.matmul_per_wave)),
      absl::StrCat("split_k: ", YamlNanos(k.split_k)),
      absl::StrCat("l2_bandwidth: ", YamlRate(k.l2_bandwidth)),
      absl::StrCat("memory_share: ", ShortestNumber(k.memory_share)),
      absl::StrCat("memory_ramp: ", YamlBytes(k.memory_ramp)),
      absl::StrCat("normalize_backward_share: ", ShortestNumber(k.normalize_backward_share)),
      absl::StrCat("sustained_clock: ", ShortestNumber(k.sustained_clock))};
  const KernelConstants unmeasured;
  const auto add_if_measured = [&](absl::string_view name, double value, double usual) {
    if (value != usual) fields.push_back(absl::StrCat(name, ": ", ShortestNumber(value)));
  };
  add_if_measured("overlap_blocks", k.overlap_blocks, unmeasured.overlap_blocks);
  add_if_measured("overlap_touches", k.overlap_touches, unmeasured.overlap_touches);
  add_if_measured("core_sharing", k.core_sharing, unmeasured.core_sharing);
  if (k.matmul_share_fp8 != 0) {
    fields.push_back(absl::StrCat("matmul_share_fp8: ", ShortestNumber(k.matmul_share_fp8)));
  }
  if (k.quantize_bytes != Bytes()) fields.push_back(absl::StrCat("quantize_bytes: ", YamlBytes(k.quantize_bytes)));
  if (k.product_bits == 4) fields.push_back("product_bits: 4");
  if (k.wide_share != 0) {
    fields.push_back(absl::StrCat("wide_peak: ", ShortestNumber(k.wide_peak.raw()), " FLOP/s"));
    fields.push_back(absl::StrCat("wide_share: ", ShortestNumber(k.wide_share)));
  }
  const absl::StatusOr<Device> usual = FindDevice(device.name);
  for (const DTypeInfo& row : kDTypes) {
    const FlopsPerSecond peak = device.Peak(row.dtype);
    if (!usual.ok() || peak == usual->Peak(row.dtype)) continue;
    fields.push_back(absl::StrCat("peak_", row.name, ": ", ShortestNumber(peak.raw()), " FLOP/s"));
  }
  if (!device.attention.empty()) AddAttention(device.attention[0], usual, fields);
  return absl::StrCat("{", absl::StrJoin(fields, ", "), "}");
}

// What other tools call a cluster's key.
absl::string_view OthersSay(absl::string_view key) {
  if (key == "memory") return "max_device_memory device_memory gpu_memory mem";
  if (key == "nics_per_node") return "nics num_nics";
  if (key == "inter_bandwidth") return "nic_bandwidth internode_bandwidth network_bandwidth ib_bandwidth";
  if (key == "intra_bandwidth") return "nvlink_bandwidth intranode_bandwidth";
  return "";
}

}  // namespace

absl::Status WrongDevice(absl::string_view name, const absl::Status& status) {
  return IsDeviceFile(name) && !IsFileError(status) ? status : Flags::Wrong("device", status);
}

const std::vector<FlagSpec>& ClusterFlags() {
  static const std::vector<FlagSpec>* const specs = [] {
    auto* all = new std::vector<FlagSpec>{
        {"cluster", "FILE", "a cluster file, instead of the section `cluster:`"},
        {"device", "NAME", "another kind of device, e.g. h100-sxm, or a file with one", "gpu gpu_type gpu_name"},
        {"devices", "N", "that many devices, in usual nodes", "gpus num_gpus ngpus world_size"},
        {"nodes", "N", "that many nodes", "nnodes num_nodes"},
        {"devices_per_node", "N", "devices of a node", "gpus_per_node nproc_per_node"},
    };
    for (const ClusterKey& key : ClusterKeys()) {
      all->push_back({std::string(key.name), "X", std::string(key.help), std::string(OthersSay(key.name))});
    }
    for (FlagSpec& flag : *all) flag.section = "The cluster";
    return all;
  }();
  return *specs;
}

bool CountsDevices(const Flags& flags) {
  return flags.Has("cluster") || flags.Has("devices") || flags.Has("nodes") || flags.Has("devices_per_node");
}

absl::StatusOr<Cluster> OpenCluster(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxDocumentBytes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, path));
  const NodeRef section = document.root()["cluster"];  // of whoever copied it out of a model file
  if (!section.present()) return ReadCluster(document.root());
  MESHWRIGHT_RETURN_IF_ERROR(document.root().CheckKeys({"cluster"}));
  return ReadCluster(section);
}

absl::StatusOr<Cluster> WithFlags(Cluster cluster, const Flags& flags) {
  if (flags.Has("cluster")) {
    MESHWRIGHT_ASSIGN_OR_RETURN(cluster, OpenCluster(flags.Text("cluster")));
  }
  // One that names the cluster's own device leaves its links, cards and price as they are.
  const absl::StatusOr<Device> named = FindDevice(flags.Text("device"));
  const bool own = named.ok() && named->name == cluster.device.name;
  if (flags.Has("device") && !own) {
    const bool counted = flags.Has("devices") || flags.Has("nodes") || flags.Has("devices_per_node");
    if (counted) {
      MESHWRIGHT_ASSIGN_OR_RETURN(cluster, MachineOf(flags));
    } else {
      MESHWRIGHT_ASSIGN_OR_RETURN(cluster, OfDevice(flags, cluster.num_devices()));
    }
  }
  MESHWRIGHT_RETURN_IF_ERROR(SetCounts(flags, &cluster));
  for (const ClusterKey& key : ClusterKeys()) {
    if (!flags.Has(key.name)) continue;
    const absl::Status status = key.set(flags.Text(key.name), &cluster);
    if (!status.ok()) return Flags::Wrong(key.name, status);
  }
  return cluster;
}

absl::StatusOr<Cluster> ClusterFrom(const NodeRef& section, const Flags& flags) {
  Cluster cluster;
  if (section.present() && !flags.Has("cluster")) {
    MESHWRIGHT_ASSIGN_OR_RETURN(cluster, ReadCluster(section));
  } else if (!flags.Has("device") && !flags.Has("cluster")) {
    return section.Error("nothing", "what to train on, e.g. `cluster: h100-sxm`", "or give --device");
  } else if (!flags.Has("cluster")) {
    MESHWRIGHT_ASSIGN_OR_RETURN(cluster, MachineOf(flags));
  }
  return WithFlags(std::move(cluster), flags);
}

std::string ToYaml(const Cluster& cluster) {
  std::vector<std::string> fields = {absl::StrCat("device: ", QuoteYaml(cluster.device.name)),
                                     absl::StrCat("nodes: ", cluster.nodes),
                                     absl::StrCat("devices_per_node: ", cluster.devices_per_node)};
  const absl::StatusOr<Cluster> usual = MakeCluster(cluster.device.name, cluster.nodes, cluster.devices_per_node);
  const Cluster base = usual.ok() ? *usual : Cluster();
  const auto add = [&](bool differs, absl::string_view key, const std::string& value) {
    if (differs) fields.push_back(absl::StrCat(key, ": ", value));
  };
  const Device &device = cluster.device, &base_device = base.device;
  add(device.memory != base_device.memory, "memory", YamlBytes(device.memory));
  add(device.memory_bandwidth != base_device.memory_bandwidth, "memory_bandwidth", YamlRate(device.memory_bandwidth));
  if (!device.attention.empty()) {
    add(base_device.attention.empty() || device.attention[0].kernel != base_device.attention[0].kernel, "attention",
        device.attention[0].kernel);
  }
  add(cluster.intra_kind != base.intra_kind, "intra_link", std::string(NameOf(cluster.intra_kind)));
  add(cluster.intra_bandwidth != base.intra_bandwidth, "intra_bandwidth", YamlRate(cluster.intra_bandwidth));
  add(cluster.nics_per_node != base.nics_per_node, "nics_per_node", absl::StrCat(cluster.nics_per_node));
  add(cluster.nic_bandwidth != base.nic_bandwidth, "inter_bandwidth", YamlRate(cluster.nic_bandwidth));
  add(cluster.nic_latency != base.nic_latency, "nic_latency", YamlNanos(cluster.nic_latency));
  add(cluster.nic_in_order != base.nic_in_order, "nic_in_order", cluster.nic_in_order ? "yes" : "no");
  add(cluster.nic_ll128 != base.nic_ll128, "nic_ll128", cluster.nic_ll128 ? "yes" : "no");
  add(cluster.oversubscription != base.oversubscription, "oversubscription", ShortestNumber(cluster.oversubscription));
  add(cluster.nodes_per_leaf != base.nodes_per_leaf, "nodes_per_leaf", absl::StrCat(cluster.nodes_per_leaf));
  add(cluster.cpu != base.cpu, "cpu", std::string(NameOf(cluster.cpu)));
  add(cluster.cpu_slowdown.has_value(), "cpu_slowdown", ShortestNumber(cluster.cpu_slowdown.value_or(1)));
  add(cluster.price != base.price && cluster.price.has_value(), "price_per_device_hour",
      absl::StrCat(ShortestNumber(cluster.price.value_or(DevicePrice()).dollars_per_hour), " USD/h"));
  KernelConstants without_clock = device.kernels;
  without_clock.sustained_clock = base_device.kernels.sustained_clock;
  if (without_clock != base_device.kernels || device.kernels_estimated != base_device.kernels_estimated ||
      device.provenance != base_device.provenance) {
    fields.push_back(absl::StrCat("kernels: ", KernelsToYaml(device)));
  } else {
    add(device.kernels.sustained_clock != base_device.kernels.sustained_clock, "sustained_clock",
        ShortestNumber(device.kernels.sustained_clock));
  }
  return absl::StrCat("{", absl::StrJoin(fields, ", "), "}");
}

}  // namespace meshwright
