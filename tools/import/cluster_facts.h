// What the descriptions of machines say, and the cluster file that is made of it.
//
// Readers (nccl_topology.h, nvidia_smi.h, slurm.h) fill a ClusterFacts, each with what its description has; nothing in
// it is guessed. WriteCluster decides which device it is, what the links carry, and says what it had to take for
// granted.
//
// Thread safety: plain values, pure functions; a device of the user's own (`--device=my_gpu.yaml`) is read from its
// file.
#ifndef MESHWRIGHT_TOOLS_IMPORT_CLUSTER_FACTS_H_
#define MESHWRIGHT_TOOLS_IMPORT_CLUSTER_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/cluster.h"
#include "ir/quantities.h"
#include "tools/import/imported.h"

namespace meshwright {

// The longest description that is read.
inline constexpr size_t kMaxDescriptionBytes = size_t{16} << 20;

// What flags say of a cluster that its description may not. A flag wins over the description.
struct ClusterHints {
  std::optional<std::string> device;  // --device: a name, an alias or a device's file
  std::optional<int64_t> nodes;       // --nodes
};

// A place in a description, counted from 1, columns in bytes. Those of a terminal's output without its escapes.
struct TextPlace {
  size_t line = 1, column = 1;
};

// The one form of an error, `file:line:column: found X, wanted Y; remedy`.
absl::Status WrongAt(absl::string_view file_name, TextPlace place, absl::string_view found, absl::string_view wanted,
                     absl::string_view remedy = "");

// How NVLinks join the devices of a node.
struct NvLinks {
  enum class Shape : uint8_t {
    kNone,       // there are none, or none that join all devices
    kSwitch,     // `links` of each device end in switches
    kMesh,       // `links` of each device end in other devices
    kEveryPair,  // `links` between each two, through a switch or not: the device tells
  };
  Shape shape = Shape::kNone;
  int64_t links = 0;
};

// A mesh of links between devices; `links[i][j]` of them join i and j. kNone, with a note, where they leave the node in
// parts that only PCIe joins: bridges of two cards. Where devices have different numbers of links, the least, with a
// note. REQUIRES: square, symmetric.
NvLinks WiredLinks(const std::vector<std::vector<int64_t>>& links, std::vector<std::string>& notes);

// A network card.
struct NetworkCard {
  std::string name;
  double megabits = 0;  // per second; 0: not told
  bool near = false;    // a device shares a PCIe switch with it
};

struct ClusterFacts {
  std::string source;       // "an NCCL topology"
  std::string device_name;  // as the description writes it; "": it doesn't
  TextPlace device_place;
  int capability = 0;  // compute capability, 90 for 9.0; 0: not told

  std::optional<int64_t> nodes, devices_per_node, nodes_per_leaf;
  std::optional<Bytes> memory;                   // of a device, with what its driver keeps
  std::optional<double> power_limit, own_power;  // W: the limit that is set, and the card's own
  std::optional<NvLinks> nvlinks;
  std::optional<BytesPerSecond> pcie;  // of a device
  std::optional<BytesPerSecond> c2c;   // of a device to its CPU
  std::vector<NetworkCard> cards;      // empty: not told
  std::optional<CpuVendor> cpu;
  std::vector<std::string> notes;
};

// The cluster file (costmodel/library.h): a key for each thing that the description says, none for what it doesn't.
// Notes say what that is, of the device's usual machine.
//
// Errors, at the place of the file where there is one: kInvalidArgument where no device is named, where the capability
// leaves several (the message lists them) or is not that of hints.device; kNotFound for a device that is not known.
absl::StatusOr<Imported> WriteCluster(ClusterFacts facts, const ClusterHints& hints, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_CLUSTER_FACTS_H_
