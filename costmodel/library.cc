#include "costmodel/library.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/device_data.h"
#include "costmodel/device_file.h"
#include "ir/files.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {
namespace {

// The usual machines of all devices, sorted by the device's name.
using Library = std::vector<Cluster>;

absl::StatusOr<Library> ParseLibrary() {
  Library library;
  for (const DeviceData& data : kDeviceData) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(data.text, data.file));
    MESHWRIGHT_ASSIGN_OR_RETURN(Cluster machine, ReadDeviceFile(document.root()));
    library.push_back(std::move(machine));
  }
  std::sort(library.begin(), library.end(),
            [](const Cluster& a, const Cluster& b) { return a.device.name < b.device.name; });
  return library;
}

const absl::StatusOr<Library>& TheLibrary() {
  static const absl::StatusOr<Library>* const library = new absl::StatusOr<Library>(ParseLibrary());
  return *library;
}

// "NVIDIA A100-SXM4-80GB" -> "a100sxm480gb".
std::string Normalised(absl::string_view name) {
  const std::string lower =
      absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"nvidia", ""}, {"tesla", ""}, {"gpu", ""}});
  std::string result;
  for (char c : lower) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) result.push_back(c);
  }
  return result;
}

bool IsCalled(const Device& device, absl::string_view normalised) {
  if (Normalised(device.name) == normalised) return true;
  return std::any_of(device.aliases.begin(), device.aliases.end(),
                     [&](const std::string& alias) { return Normalised(alias) == normalised; });
}

// A device of the user's own. It keeps its path for a name, so that a plan that names it finds it again.
absl::StatusOr<Cluster> ReadMachine(absl::string_view path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(std::string(path), kMaxDocumentBytes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, path));
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster machine, ReadDeviceFile(document.root()));
  machine.device.name = std::string(path);
  return machine;
}

absl::StatusOr<Cluster> FindMachine(absl::string_view name) {
  if (IsDeviceFile(name)) return ReadMachine(name);
  const absl::StatusOr<Library>& library = TheLibrary();
  if (!library.ok()) return library.status();
  const std::string wanted = Normalised(name);
  std::vector<absl::string_view> names, all;
  for (const Cluster& machine : *library) {
    if (!wanted.empty() && IsCalled(machine.device, wanted)) return machine;
    names.push_back(machine.device.name);
    all.push_back(machine.device.name);
    all.insert(all.end(), machine.device.aliases.begin(), machine.device.aliases.end());
  }
  const absl::string_view nearest = NearestName(name, all);
  constexpr absl::string_view kFile =
      ", or a file that describes it, such as my_gpu.yaml, in the form of costmodel/data/*.yaml";
  return absl::NotFoundError(WrongInput(QuoteForMessage(name),
                                        absl::StrCat("one of ", ListNames(names), nearest.empty() ? kFile : ""),
                                        nearest.empty() ? "" : absl::StrCat("did you mean \"", nearest, "\"?"))
                                 .message());
}

absl::Status CheckCount(absl::string_view what, int64_t count, int64_t most) {
  if (count >= 1 && count <= most) return absl::OkStatus();
  return WrongInput(absl::StrCat(count, " ", what), absl::StrCat("from 1 to ", most));
}

// Whole usual machines, or part of one; of domains that are no power of two, as many of each as the largest one below
// (64 of 72, as jobs of a power of two are laid out); threads of the host are always one machine.
absl::Status ResizeTo(int64_t num_devices, Cluster* cluster) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCount("devices", num_devices, kMaxNodes * kMaxDevicesPerNode));
  const int64_t usual = cluster->devices_per_node;
  const bool one_machine = cluster->intra_kind == LinkKind::kHostMemory && num_devices <= kMaxDevicesPerNode;
  if (num_devices <= usual || one_machine) {
    Resize(1, num_devices, cluster);
    return absl::OkStatus();
  }
  const auto part = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(usual)));
  if (num_devices % usual != 0 && num_devices % part == 0) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckCount("nodes", num_devices / part, kMaxNodes));
    Resize(num_devices / part, part, cluster);
    return absl::OkStatus();
  }
  if (num_devices % usual != 0) {
    return WrongInput(absl::StrCat(num_devices, " devices"),
                      absl::StrCat("whole nodes of ", usual, " ", cluster->device.name,
                                   part < usual ? absl::StrCat(", or ", part, " of each") : ""),
                      "give nodes and devices_per_node for other machines");
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckCount("nodes", num_devices / usual, kMaxNodes));
  Resize(num_devices / usual, 0, cluster);
  return absl::OkStatus();
}

// The setters behind ClusterKeys().

absl::Status SetRate(absl::string_view text, BytesPerSecond* rate) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const double value, ParseQuantity(text, UnitKind::kBytesPerSecond));
  *rate = BytesPerSecond(value);
  return absl::OkStatus();
}

template <class E, size_t N>
absl::Status SetEnum(absl::string_view text, const absl::string_view (&names)[N], E* value) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) {
      *value = static_cast<E>(i);
      return absl::OkStatus();
    }
  }
  return UnknownName(text, names);
}

absl::Status SetMemory(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->device.memory, ParseBytes(text));
  return cluster->device.memory.raw() > 0 ? absl::OkStatus() : WrongInput("no memory", "a size above 0");
}
absl::Status SetMemoryBandwidth(absl::string_view text, Cluster* cluster) {
  return SetRate(text, &cluster->device.memory_bandwidth);
}
absl::Status SetAttention(absl::string_view text, Cluster* cluster) {
  std::vector<AttentionConstants>& kernels = cluster->device.attention;
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].kernel == text) {
      std::rotate(kernels.begin(), kernels.begin() + static_cast<std::ptrdiff_t>(i),
                  kernels.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return absl::OkStatus();
    }
    names.push_back(kernels[i].kernel);
  }
  return UnknownName(text, names);
}
absl::Status SetProducts(absl::string_view text, Cluster* cluster) {
  constexpr absl::string_view kProducts[] = {"bfloat16", "float8", "float4"};
  if (std::find(std::begin(kProducts), std::end(kProducts), text) == std::end(kProducts)) {
    return UnknownName(text, kProducts);
  }
  const int has = cluster->device.kernels.product_bits;
  if (text == "float4") return UseFloat4Products(&cluster->device);
  if (text == "float8" && has != 4) return UseFloat8Products(&cluster->device);
  if (has == 0) return absl::OkStatus();
  return WrongInput(text, absl::StrCat("float", has, ", as the cluster has it"),
                    "leave out `products` where the cluster is described");
}

absl::Status SetSustainedClock(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->device.kernels.sustained_clock, ParseDouble(text, 0.1, 1));
  return absl::OkStatus();
}
absl::Status SetIntraLink(absl::string_view text, Cluster* cluster) {
  return SetEnum(text, kLinkKindNames, &cluster->intra_kind);
}
absl::Status SetIntraBandwidth(absl::string_view text, Cluster* cluster) {
  return SetRate(text, &cluster->intra_bandwidth);
}
absl::Status SetNics(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->nics_per_node, ParseInt(text, 0, kMaxDevicesPerNode));
  return absl::OkStatus();
}
absl::Status SetInterBandwidth(absl::string_view text, Cluster* cluster) {
  return SetRate(text, &cluster->nic_bandwidth);
}
absl::Status SetNicLatency(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->nic_latency, ParseNanos(text));
  return absl::OkStatus();
}
constexpr absl::string_view kAnswers[] = {"no", "yes"};
absl::Status SetNicInOrder(absl::string_view text, Cluster* cluster) {
  return SetEnum(text, kAnswers, &cluster->nic_in_order);
}
absl::Status SetNicLl128(absl::string_view text, Cluster* cluster) {
  return SetEnum(text, kAnswers, &cluster->nic_ll128);
}
absl::Status SetOversubscription(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->oversubscription, ParseDouble(text, 1, 1000));
  return absl::OkStatus();
}
absl::Status SetNodesPerLeaf(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->nodes_per_leaf, ParseInt(text, 1, int64_t{1} << 32));
  return absl::OkStatus();
}
absl::Status SetCpu(absl::string_view text, Cluster* cluster) { return SetEnum(text, kCpuVendorNames, &cluster->cpu); }
absl::Status SetCpuSlowdown(absl::string_view text, Cluster* cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(cluster->cpu_slowdown, ParseDouble(text, kLeastCpuSlowdown, kMostCpuSlowdown));
  return absl::OkStatus();
}
absl::Status SetPrice(absl::string_view text, Cluster* cluster) {
  DevicePrice price;
  MESHWRIGHT_ASSIGN_OR_RETURN(price.dollars_per_hour, ParseQuantity(text, UnitKind::kPrice));
  price.source = "given by the user";
  cluster->price = std::move(price);
  return absl::OkStatus();
}

const ClusterKey* FindKey(absl::string_view name) {
  for (const ClusterKey& key : ClusterKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

// Reads how many: devices, or nodes and devices_per_node.
absl::Status ReadCounts(const NodeRef& in, Cluster* cluster) {
  if (in["devices"].present()) {
    for (absl::string_view other : {"nodes", "devices_per_node"}) {
      if (in[other].present()) {
        return in[other].Error(absl::StrCat(other, " beside devices"), "one of the two",
                               "devices are laid out on usual nodes");
      }
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t devices, in["devices"].AsInt(1, kMaxNodes * kMaxDevicesPerNode));
    return in["devices"].Locate(ResizeTo(devices, cluster));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t nodes, in["nodes"].AsIntOr(1, 1, kMaxNodes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t per_node,
                              in["devices_per_node"].AsIntOr(cluster->devices_per_node, 1, kMaxDevicesPerNode));
  Resize(nodes, per_node, cluster);
  return absl::OkStatus();
}

// An error of a device that is not known keeps its code.
absl::StatusOr<Cluster> FindMachineAt(const NodeRef& in) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, in.AsString());
  absl::StatusOr<Cluster> machine = FindMachine(name);
  if (IsFileError(machine.status())) return FileError(in.Locate(machine.status()).message());
  if (!machine.ok() && IsDeviceFile(name)) return machine.status();  // which has a place of its own
  if (!machine.ok()) return absl::Status(machine.status().code(), in.Locate(machine.status()).message());
  return machine;
}

}  // namespace

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  const absl::StatusOr<Library>& library = TheLibrary();
  if (library.ok()) {
    for (const Cluster& machine : *library) names.push_back(machine.device.name);
  }
  return names;
}

bool IsDeviceFile(absl::string_view name) { return absl::EndsWith(name, ".yaml") || absl::EndsWith(name, ".yml"); }

absl::StatusOr<Device> FindDevice(absl::string_view name) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster machine, FindMachine(name));
  return std::move(machine.device);
}

void WireBoard(Cluster* cluster) {
  const Generation generation = cluster->device.generation;
  const bool boards = generation == Generation::kAmpere || generation == Generation::kHopper;
  if (!boards || cluster->intra_kind != LinkKind::kNvSwitch || cluster->devices_per_node > kWiredBoard) return;
  cluster->intra_kind = LinkKind::kNvLinkMesh;
  const int64_t peers = std::max<int64_t>(1, cluster->devices_per_node - 1);
  cluster->intra_bandwidth = cluster->intra_bandwidth * (static_cast<double>(peers) / (kWiredBoard - 1));
}

void Resize(int64_t nodes, int64_t devices_per_node, Cluster* cluster) {
  cluster->nodes = nodes;
  if (devices_per_node == 0 || devices_per_node == cluster->devices_per_node) return;
  if (cluster->nics_per_node > 0) {
    cluster->nics_per_node =
        std::max<int64_t>(1, cluster->nics_per_node * devices_per_node / cluster->devices_per_node);
  }
  // Of devices that are wired each to each other, some have the links that lead to them.
  const int64_t wired = cluster->intra_kind == LinkKind::kNvLinkMesh ? cluster->devices_per_node : 0;
  if (wired <= kWiredBoard && devices_per_node > 1 && devices_per_node < wired) {
    cluster->intra_bandwidth =
        cluster->intra_bandwidth * (static_cast<double>(devices_per_node - 1) / static_cast<double>(wired - 1));
  }
  cluster->devices_per_node = devices_per_node;
  // Superchips on one board are wired to each other (quads of GH200: six links of NVLink a pair).
  if (devices_per_node > 1 && cluster->intra_kind == LinkKind::kC2c) cluster->intra_kind = LinkKind::kNvLinkMesh;
  if (nodes > 1 && devices_per_node == kWiredBoard) WireBoard(cluster);
}

absl::StatusOr<Cluster> MakeCluster(absl::string_view device, int64_t nodes, int64_t devices_per_node) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, FindMachine(device));
  MESHWRIGHT_RETURN_IF_ERROR(CheckCount("nodes", nodes, kMaxNodes));
  if (devices_per_node != 0) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckCount("devices per node", devices_per_node, kMaxDevicesPerNode));
  }
  Resize(nodes, devices_per_node, &cluster);
  return cluster;
}

absl::StatusOr<Cluster> MakeClusterOfDevices(absl::string_view device, int64_t num_devices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, FindMachine(device));
  return WithDevices(std::move(cluster), num_devices);
}

absl::StatusOr<Cluster> WithDevices(Cluster cluster, int64_t num_devices) {
  MESHWRIGHT_RETURN_IF_ERROR(ResizeTo(num_devices, &cluster));
  return cluster;
}

absl::Status UseFloat8Products(Device* device) {
  // Transformer Engine quantises the inputs and the gradients of a linear layer once, with their transposes: it reads 2
  // bytes and writes 2 of 1 for each element, for the left operands of two of its three products.
  constexpr Bytes kTransformerEngineBytes(3);
  // They draw more power than products of 16 bits: H100 and H200, whose limit leaves these the full clock, go at 0.91
  // of it after 10,000 of them (Azure/AI-benchmarking-guide, 18 products).
  constexpr double kFloat8Clock = 0.91;
  const FlopsPerSecond peak = device->Peak(DType::kFloat8), before = device->Peak(DType::kBFloat16);
  if (peak.raw() <= 0 || before.raw() <= 0) {
    return WrongInput("float8", absl::StrCat("bfloat16: ", device->name, " has no products in float8"));
  }
  KernelConstants& kernels = device->kernels;
  kernels.quantize_bytes = kTransformerEngineBytes;
  kernels.product_bits = 8;
  if (kernels.wide_peak.raw() == 0) {
    kernels.wide_peak = before;
    kernels.wide_share = kernels.matmul_share;
  }
  if (peak == before) return absl::OkStatus();
  for (const DType narrow : {DType::kBFloat16, DType::kFloat16}) device->peak[static_cast<size_t>(narrow)] = peak;
  kernels.matmul_share = kernels.matmul_share_fp8 * kFloat8Clock;
  for (AttentionConstants& attention : device->attention) {  // whose shares are of the peak
    attention.forward_share *= before.raw() / peak.raw();
    attention.backward_share *= before.raw() / peak.raw();
  }
  return absl::OkStatus();
}

absl::Status UseFloat4Products(Device* device) {
  // Over products in MXFP8 of a layer on B300, quantised before (Transformer Engine's documentation, GEMM Profiling
  // Tutorial). Whole products, so that it is of the rate of their operands, too.
  constexpr double kRate = 1.9;
  // Transformer Engine 2.14 looks for the largest of rows and of columns turned by a Hadamard matrix in one pass, 2,
  // and casts both in one kernel, 2 + 1/2 + 1/2 (pytorch/csrc/quantizer.cpp), for two of three products.
  constexpr Bytes kTransformerEngineBytes(3);
  KernelConstants& kernels = device->kernels;
  if (kernels.product_bits == 4) return absl::OkStatus();
  if (device->generation < Generation::kBlackwell || !UseFloat8Products(device).ok()) {
    return WrongInput("float4", absl::StrCat("bfloat16: ", device->name, " has no products in float4"));
  }
  kernels.quantize_bytes = kTransformerEngineBytes;
  kernels.product_bits = 4;
  for (const DType narrow : {DType::kBFloat16, DType::kFloat16}) {
    FlopsPerSecond& peak = device->peak[static_cast<size_t>(narrow)];
    peak = peak * kRate;
  }
  for (AttentionConstants& attention : device->attention) {
    attention.forward_share /= kRate;
    attention.backward_share /= kRate;
  }
  return absl::OkStatus();
}

const std::vector<ClusterKey>& ClusterKeys() {
  static const std::vector<ClusterKey>* const keys = new std::vector<ClusterKey>{
      {"memory", "memory of one device as its driver reports it, e.g. 80 GB", SetMemory},
      {"memory_bandwidth", "of one device, e.g. 3.35 TB/s", SetMemoryBandwidth},
      {"attention", "which fused attention runs, e.g. flash3", SetAttention},
      {"sustained_clock", "clock under load as a share of the nominal one, e.g. 0.9", SetSustainedClock},
      {"products", "type in which 16-bit products run: bfloat16 (as they are), float8, float4 (NVFP4)", SetProducts},
      {"intra_link",
       "what joins the devices of a node: nvswitch, nvlink_mesh, pcie, pcie_host (no peers), c2c, host_memory",
       SetIntraLink},
      {"intra_bandwidth", "of one device to its node, one direction, e.g. 450 GB/s", SetIntraBandwidth},
      {"nics_per_node", "network cards of a node, e.g. 8", SetNics},
      {"inter_bandwidth", "of one network card, e.g. 400 Gb/s", SetInterBandwidth},
      {"nic_latency", "that network card and fabric add to a message, e.g. 15 us", SetNicLatency},
      {"nic_in_order", "whether a message's bytes arrive in order, which NCCL's fast protocols need: yes, no",
       SetNicInOrder},
      {"nic_ll128", "whether NCCL takes LL128 through it, as it does not for cards that hang off the CPU: yes, no",
       SetNicLl128},
      {"oversubscription", "of the fabric above the leaf switches, e.g. 2 for 2:1", SetOversubscription},
      {"nodes_per_leaf", "nodes on one leaf switch, e.g. 32", SetNodesPerLeaf},
      {"cpu", "maker of the nodes' CPUs: intel, amd, arm", SetCpu},
      {"cpu_slowdown", "times as long as usual that CPUs take to issue what a framework runs eagerly, e.g. 1.8",
       SetCpuSlowdown},
      {"price_per_device_hour", "e.g. 2.5 USD/h", SetPrice},
  };
  return *keys;
}

absl::Status SetClusterKey(absl::string_view key, absl::string_view text, Cluster* cluster) {
  if (const ClusterKey* row = FindKey(key)) return row->set(text, cluster);
  std::vector<absl::string_view> names;
  for (const ClusterKey& row : ClusterKeys()) names.push_back(row.name);
  return UnknownName(key, names);
}

absl::StatusOr<Cluster> ReadCluster(const NodeRef& in) {
  if (in.is_scalar()) return FindMachineAt(in);
  std::vector<absl::string_view> names = {"device", "nodes", "devices_per_node", "devices", "kernels", "measured"};
  for (const ClusterKey& row : ClusterKeys()) names.push_back(row.name);
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(names));
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, FindMachineAt(in["device"]));
  MESHWRIGHT_RETURN_IF_ERROR(ReadCounts(in, &cluster));
  for (const ClusterKey& row : ClusterKeys()) {
    const NodeRef value = in[row.name];
    if (!value.present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, value.AsString());
    MESHWRIGHT_RETURN_IF_ERROR(value.Locate(row.set(text, &cluster)));
  }
  if (in["kernels"].present()) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadKernels(in["kernels"], /*all_required=*/false, &cluster.device));
  }
  return cluster;
}

}  // namespace meshwright
