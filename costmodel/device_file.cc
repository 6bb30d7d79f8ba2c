#include "costmodel/device_file.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/dtype.h"
#include "ir/quantities.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr double kMaxShare = 1;

// Every section says where its numbers come from.
absl::StatusOr<Provenance> ReadProvenance(const NodeRef& section, absl::string_view what) {
  Provenance provenance;
  provenance.what = std::string(what);
  MESHWRIGHT_ASSIGN_OR_RETURN(provenance.source, section["source"].AsString());
  if (provenance.source.empty()) return section["source"].Error("an empty text", "where the numbers come from");
  MESHWRIGHT_ASSIGN_OR_RETURN(provenance.estimated, section["estimated"].AsBoolOr(false));
  return provenance;
}

absl::Status ReadChip(const NodeRef& in, Device* device) {
  MESHWRIGHT_RETURN_IF_ERROR(
      in.CheckKeys({"source", "estimated", "sms", "l2", "boost_clock", "exponentials", "memory_bandwidth"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(Provenance provenance, ReadProvenance(in, "chip"));
  device->provenance.push_back(std::move(provenance));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t sms, in["sms"].AsInt(1, 100000));
  device->sms = static_cast<int>(sms);
  MESHWRIGHT_ASSIGN_OR_RETURN(device->l2, in["l2"].AsBytes());
  MESHWRIGHT_ASSIGN_OR_RETURN(const double clock, in["boost_clock"].AsQuantity(UnitKind::kFrequency));
  device->boost_mhz = clock / 1e6;
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t exponentials, in["exponentials"].AsIntOr(device->exponentials, 1, 1024));
  device->exponentials = static_cast<int>(exponentials);
  MESHWRIGHT_ASSIGN_OR_RETURN(device->memory_bandwidth, in["memory_bandwidth"].AsBytesPerSecond());
  return absl::OkStatus();
}

absl::Status ReadMemory(const NodeRef& in, Device* device) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"source", "estimated", "capacity"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(Provenance provenance, ReadProvenance(in, "memory"));
  device->provenance.push_back(std::move(provenance));
  MESHWRIGHT_ASSIGN_OR_RETURN(device->memory, in["capacity"].AsBytes());
  return absl::OkStatus();
}

absl::Status ReadPeak(const NodeRef& in, Device* device) {
  std::vector<absl::string_view> keys = {"source", "estimated"};
  for (const DTypeInfo& row : kDTypes) keys.push_back(row.name);
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(keys));
  MESHWRIGHT_ASSIGN_OR_RETURN(Provenance provenance, ReadProvenance(in, "peak"));
  device->provenance.push_back(std::move(provenance));
  for (const DTypeInfo& row : kDTypes) {
    const NodeRef value = in[row.name];
    if (!value.present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(device->peak[static_cast<size_t>(row.dtype)], value.AsFlopsPerSecond());
  }
  if (device->Peak(DType::kFloat32).raw() == 0) return in["float32"].Error("nothing", "the peak rate of float32");
  return absl::OkStatus();
}

absl::Status ReadAttention(const NodeRef& in, Device* device) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> rows, in.AsList());
  if (rows.empty()) return in.Error("an empty list", "at least one kernel");
  device->attention.clear();
  for (const NodeRef& row : rows) {
    MESHWRIGHT_RETURN_IF_ERROR(row.CheckKeys(
        {"kernel", "source", "estimated", "forward_share", "backward_share", "softmax_width", "setup_keys"}));
    AttentionConstants constants;
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.kernel, row["kernel"].AsName());
    MESHWRIGHT_ASSIGN_OR_RETURN(Provenance provenance,
                                ReadProvenance(row, absl::StrCat(kAttentionProvenance, constants.kernel)));
    constants.estimated = provenance.estimated;
    device->provenance.push_back(std::move(provenance));
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.forward_share, row["forward_share"].AsDouble(0.001, kMaxShare));
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.backward_share, row["backward_share"].AsDouble(0.001, kMaxShare));
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.softmax_width, row["softmax_width"].AsDouble(-32, 1e4));
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.setup_keys, row["setup_keys"].AsDouble(0, 1e5));
    device->attention.push_back(std::move(constants));
  }
  return absl::OkStatus();
}

absl::Status ReadNode(const NodeRef& in, Cluster* cluster) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(
      {"source", "estimated", "devices", "link", "bandwidth", "nics", "nic_bandwidth", "nic_latency", "cpu"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(Provenance provenance, ReadProvenance(in, "node"));
  cluster->links_estimated = provenance.estimated;
  cluster->device.provenance.push_back(std::move(provenance));
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->devices_per_node, in["devices"].AsInt(1, 4096));
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->intra_kind, in["link"].AsEnum<LinkKind>(kLinkKindNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->intra_bandwidth, in["bandwidth"].AsBytesPerSecond());
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->nics_per_node, in["nics"].AsInt(0, 4096));
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->nic_bandwidth, in["nic_bandwidth"].AsBytesPerSecond());
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->nic_latency, in["nic_latency"].AsNanos());
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->cpu, in["cpu"].AsEnum<CpuVendor>(kCpuVendorNames));
  return absl::OkStatus();
}

absl::Status ReadPrice(const NodeRef& in, Cluster* cluster) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"source", "estimated", "per_device_hour"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Provenance provenance, ReadProvenance(in, "price"));
  DevicePrice price;
  price.source = provenance.source;
  MESHWRIGHT_ASSIGN_OR_RETURN(price.dollars_per_hour, in["per_device_hour"].AsQuantity(UnitKind::kPrice));
  cluster->price = std::move(price);
  return absl::OkStatus();
}

// One row per constant of section `kernels`.
struct NanosKey {
  absl::string_view name;
  Nanos KernelConstants::*field;
};
constexpr NanosKey kNanosKeys[] = {
    {"startup", &KernelConstants::startup},
    {"host_launch", &KernelConstants::host_launch},
    {"matmul_per_wave", &KernelConstants::matmul_per_wave},
    {"split_k", &KernelConstants::split_k},
};
struct ShareKey {
  absl::string_view name;
  double KernelConstants::*field;
  bool optional;  // a device without float8 has no share of it
};
constexpr ShareKey kShareKeys[] = {
    {"matmul_share", &KernelConstants::matmul_share, false},
    {"matmul_share_fp8", &KernelConstants::matmul_share_fp8, true},
    {"wide_share", &KernelConstants::wide_share, true},
    {"memory_share", &KernelConstants::memory_share, false},
    {"normalize_backward_share", &KernelConstants::normalize_backward_share, false},
    {"sustained_clock", &KernelConstants::sustained_clock, false},
};

// Clocks that a card may exceed: GeForce boosts by a quarter over its data sheet.
constexpr absl::string_view kLoopClock = "loop_clock";
constexpr double kLeastClock = 0.1, kMostClock = 1.5;

// Of ranks of a host that share its cores.
constexpr absl::string_view kCoreSharing = "core_sharing";
constexpr absl::string_view kProductBits = "product_bits";
constexpr double kMostCoreSharing = 1024;

// Of kernels beside communication; 0: it does not slow them down.
struct OverlapKey {
  absl::string_view name;
  double KernelConstants::*field;
};
constexpr OverlapKey kOverlapKeys[] = {
    {"overlap_blocks", &KernelConstants::overlap_blocks},
    {"overlap_touches", &KernelConstants::overlap_touches},
};
constexpr double kMostOverlap = 100;

// Constants of the attention that runs.
struct AttentionKey {
  absl::string_view name;
  double AttentionConstants::*field;
  double least, most;
};
constexpr AttentionKey kAttentionKeys[] = {
    {"attention_forward_share", &AttentionConstants::forward_share, 0.001, kMaxShare},
    {"attention_backward_share", &AttentionConstants::backward_share, 0.001, kMaxShare},
    {"attention_softmax_width", &AttentionConstants::softmax_width, 0, 1e4},
    {"attention_setup_keys", &AttentionConstants::setup_keys, 0, 1e5},
};
constexpr absl::string_view kPeakPrefix = "peak_";

// What a measured machine says beyond the constants of its kind.
absl::Status ReadMeasuredRates(const NodeRef& in, Device* device) {
  for (const DTypeInfo& row : kDTypes) {
    const NodeRef value = in[absl::StrCat(kPeakPrefix, row.name)];
    if (!value.present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(device->peak[static_cast<size_t>(row.dtype)], value.AsFlopsPerSecond());
  }
  for (const AttentionKey& key : kAttentionKeys) {
    if (!in[key.name].present() || device->attention.empty()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(device->attention[0].*key.field, in[key.name].AsDouble(key.least, key.most));
    device->attention[0].estimated = device->kernels_estimated;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadKernels(const NodeRef& in, bool all_required, Device* device) {
  std::vector<absl::string_view> keys = {"source",    "estimated", "l2_bandwidth", "memory_ramp", "quantize_bytes",
                                         "wide_peak", kLoopClock,  kCoreSharing,   kProductBits};
  for (const NanosKey& key : kNanosKeys) keys.push_back(key.name);
  for (const ShareKey& key : kShareKeys) keys.push_back(key.name);
  for (const OverlapKey& key : kOverlapKeys) keys.push_back(key.name);
  std::vector<std::string> peaks;
  for (const DTypeInfo& row : kDTypes) peaks.push_back(absl::StrCat(kPeakPrefix, row.name));
  if (!all_required) {
    keys.insert(keys.end(), peaks.begin(), peaks.end());
    for (const AttentionKey& key : kAttentionKeys) keys.push_back(key.name);
  }
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(keys));
  MESHWRIGHT_ASSIGN_OR_RETURN(Provenance provenance, ReadProvenance(in, "kernels"));
  device->kernels_estimated = provenance.estimated;
  device->provenance.push_back(std::move(provenance));
  KernelConstants& constants = device->kernels;
  for (const NanosKey& key : kNanosKeys) {
    if (!in[key.name].present() && !all_required) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.*key.field, in[key.name].AsNanos());
  }
  for (const ShareKey& key : kShareKeys) {
    if (!in[key.name].present() && (key.optional || !all_required)) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.*key.field, in[key.name].AsDouble(0.001, kMaxShare));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(constants.loop_clock,
                              in[kLoopClock].AsDoubleOr(constants.loop_clock, kLeastClock, kMostClock));
  MESHWRIGHT_ASSIGN_OR_RETURN(constants.core_sharing,
                              in[kCoreSharing].AsDoubleOr(constants.core_sharing, 1, kMostCoreSharing));
  for (const OverlapKey& key : kOverlapKeys) {
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.*key.field, in[key.name].AsDoubleOr(constants.*key.field, 0, kMostOverlap));
  }
  if (in["quantize_bytes"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.quantize_bytes, in["quantize_bytes"].AsBytes());
    if (constants.quantize_bytes > Bytes()) constants.product_bits = 8;  // what files of before mean
  }
  if (in[kProductBits].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t bits, in[kProductBits].AsInt(4, 8));
    if (bits != 4 && bits != 8) return in[kProductBits].Locate(WrongInput(absl::StrCat(bits), "4 or 8"));
    constants.product_bits = static_cast<int>(bits);
  }
  if (in["wide_peak"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.wide_peak, in["wide_peak"].AsFlopsPerSecond());
  }
  if (all_required || in["l2_bandwidth"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.l2_bandwidth, in["l2_bandwidth"].AsBytesPerSecond());
  }
  if (all_required || in["memory_ramp"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(constants.memory_ramp, in["memory_ramp"].AsBytes());
  }
  return all_required ? absl::OkStatus() : ReadMeasuredRates(in, device);
}

absl::StatusOr<Cluster> ReadDeviceFile(const NodeRef& in) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(
      {"name", "aliases", "generation", "chip", "memory", "peak", "kernels", "attention", "node", "price"}));
  Cluster cluster;
  Device& device = cluster.device;
  MESHWRIGHT_ASSIGN_OR_RETURN(device.name, in["name"].AsName());
  MESHWRIGHT_ASSIGN_OR_RETURN(device.aliases, in["aliases"].AsStrings());
  MESHWRIGHT_ASSIGN_OR_RETURN(device.generation, in["generation"].AsEnum<Generation>(kGenerationNames));
  MESHWRIGHT_RETURN_IF_ERROR(ReadChip(in["chip"], &device));
  MESHWRIGHT_RETURN_IF_ERROR(ReadMemory(in["memory"], &device));
  MESHWRIGHT_RETURN_IF_ERROR(ReadPeak(in["peak"], &device));
  MESHWRIGHT_RETURN_IF_ERROR(ReadKernels(in["kernels"], /*all_required=*/true, &device));
  MESHWRIGHT_RETURN_IF_ERROR(ReadAttention(in["attention"], &device));
  MESHWRIGHT_RETURN_IF_ERROR(ReadNode(in["node"], &cluster));
  if (in["price"].present()) MESHWRIGHT_RETURN_IF_ERROR(ReadPrice(in["price"], &cluster));
  return cluster;
}

}  // namespace meshwright
