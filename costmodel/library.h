// The devices that Meshwright knows, and clusters made of them.
//
// Devices are data (data/*.yaml, part of the program): each number has a unit and a source, and what nobody measured is
// marked estimated. A cluster is a device, counts, and the links of that device's usual machine (a DGX or what is
// common), each of which can be overridden:
//
//   cluster: h100-sxm                                               # one usual node
//   cluster: {device: h100-sxm, nodes: 4}                           # four of them
//   cluster: {device: a100-80gb, nodes: 2, nics_per_node: 4, inter_bandwidth: 100 Gb/s, price_per_device_hour: 2 USD/h}
//
// A name that ends in .yaml or .yml is a file with a device of the user's own, of the form of data/*.yaml, found from
// where the program runs: `cluster: {device: my_gpu.yaml, nodes: 2}`.
//
// Flags of the tools use the same keys (ClusterKeys). In a file, `kernels:` may hold the constants that were measured
// on the machine, with the names of data/*.yaml, besides `peak_TYPE` and `attention_CONSTANT` (device_file.h); and
// `measured:` says when, where and how, which nothing reads. tools:measure writes both.
//
// Errors: kNotFound for a device that is not known, with the names there are; those of ir/files.h for a device's file
// that cannot be read; kInvalidArgument for everything else, with file, line and column where a file is read.
//
// Thread safety: all functions may be called from any thread.
#ifndef MESHWRIGHT_COSTMODEL_LIBRARY_H_
#define MESHWRIGHT_COSTMODEL_LIBRARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/cluster.h"
#include "ir/document.h"

namespace meshwright {

// Counts that a cluster may have.
inline constexpr int64_t kMaxNodes = 1 << 20;
inline constexpr int64_t kMaxDevicesPerNode = 1 << 12;

// Cluster::cpu_slowdown that a cluster may have.
inline constexpr double kLeastCpuSlowdown = 0.1;
inline constexpr double kMostCpuSlowdown = 10;

// The names of all devices, sorted.
std::vector<std::string> DeviceNames();

// Whether a device of this name is one of a file, not of the library.
bool IsDeviceFile(absl::string_view name);

// The device called `name` or one of its aliases; case and punctuation do not count, nor do the words nvidia, tesla and
// gpu: "A100 SXM 80GB", "NVIDIA A100-SXM4-80GB" and "a100-sxm-80gb" are the same. "A100" alone is the most common of
// its kind.
absl::StatusOr<Device> FindDevice(absl::string_view name);

// `nodes` usual machines of the device, cut down or stretched to `devices_per_node` (0: as many as usual). Network
// cards are scaled with the devices: half a node has half of them, at least one.
//
// Boards of four A100, H100 or H200 have no switch: a device's links go to the other three in equal shares (NVIDIA's
// "Introducing HGX A100", 8-GPU with NVSwitch and 4-GPU with NVLink). Several nodes of four are taken for such boards,
// one node of four for half of a machine of eight.
absl::StatusOr<Cluster> MakeCluster(absl::string_view device, int64_t nodes, int64_t devices_per_node = 0);

// Makes a cluster that is there one of so many nodes and devices a node (0: as many as it has). What it says of its
// links stays where nodes have as many devices as before; else cards are scaled and boards wired as above, and some of
// up to four devices that are wired each to each other have the links that lead to them.
void Resize(int64_t nodes, int64_t devices_per_node, Cluster* cluster);

// The links of a node of `cluster` whose machine is such a board, of which the node's devices are all or some.
inline constexpr int64_t kWiredBoard = 4;
void WireBoard(Cluster* cluster);

// `num_devices` of the device in usual machines: one node that is not full, or whole nodes; else of each node as many
// as the largest power of two, 64 of a domain of 72.
absl::StatusOr<Cluster> MakeClusterOfDevices(absl::string_view device, int64_t num_devices);
// The same of machines as those of `cluster`, with their links and whatever else it says.
absl::StatusOr<Cluster> WithDevices(Cluster cluster, int64_t num_devices);

// Reads the value of `cluster:`: the name of a device (one usual node), or a map of ClusterKeys and `kernels`. A
// cluster file is a document of that form.
absl::StatusOr<Cluster> ReadCluster(const NodeRef& in);

// Lets products of 16-bit types run at the rate of float8, their operands quantised before them as Transformer Engine
// does; all else stays what it is, memory too, and what no framework quantises: the output layer's products, and those
// of attention that has no kernel of its own. Twice is as once. kInvalidArgument where the device has no float8.
absl::Status UseFloat8Products(Device* device);
// The same of NVFP4, as Transformer Engine has it. kInvalidArgument before Blackwell, too.
absl::Status UseFloat4Products(Device* device);

// What can be said about a cluster besides `device`, `nodes`, `devices_per_node` and `devices`: one row per key.
struct ClusterKey {
  absl::string_view name;
  absl::string_view help;  // with the form of the value: "GB/s of one device to its node, e.g. 450 GB/s"
  absl::Status (*set)(absl::string_view text, Cluster* cluster);
};
const std::vector<ClusterKey>& ClusterKeys();

// Sets one key, from a flag. The message of an error does not name the key.
absl::Status SetClusterKey(absl::string_view key, absl::string_view text, Cluster* cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_LIBRARY_H_
