#include "tools/import/cluster.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/import/nccl_topology.h"
#include "tools/import/nvidia_smi.h"
#include "tools/import/slurm.h"

namespace meshwright {
namespace {

// What nvidia-smi says of a machine, with what Slurm says of how many there are.
absl::StatusOr<ClusterFacts> Joined(ClusterFacts machine, ClusterFacts slurm, absl::string_view file_name) {
  machine.source = absl::StrCat(machine.source, " and ", slurm.source);
  if (slurm.devices_per_node.has_value() && machine.devices_per_node.has_value() &&
      slurm.devices_per_node != machine.devices_per_node) {
    return WrongAt(file_name, slurm.device_place, absl::StrCat(*slurm.devices_per_node, " GPUs of a node"),
                   absl::StrCat(*machine.devices_per_node, ", as nvidia-smi says"), "describe equal nodes");
  }
  if (machine.device_name.empty()) {
    machine.device_name = slurm.device_name;
    if (!slurm.device_name.empty()) machine.device_place = slurm.device_place;
  }
  if (!machine.devices_per_node.has_value()) machine.devices_per_node = slurm.devices_per_node;
  machine.nodes = slurm.nodes;
  machine.nodes_per_leaf = slurm.nodes_per_leaf;
  machine.cpu = slurm.cpu;
  machine.notes.insert(machine.notes.end(), std::make_move_iterator(slurm.notes.begin()),
                       std::make_move_iterator(slurm.notes.end()));
  return machine;
}

absl::StatusOr<ClusterFacts> ReadFacts(absl::string_view text, absl::string_view file_name) {
  if (LooksLikeNcclTopology(text)) return ReadNcclTopology(text, file_name);
  const bool nvidia_smi = LooksLikeNvidiaSmi(text), slurm = LooksLikeSlurm(text);
  if (!nvidia_smi && !slurm) {
    return WrongAt(file_name, {}, "no description of a cluster",
                   "what NCCL writes to NCCL_TOPO_DUMP_FILE, what `nvidia-smi topo -m`, `nvidia-smi -L`, `nvidia-smi "
                   "--query-gpu=name,memory.total --format=csv` or `scontrol show node` print, or a topology.conf");
  }
  if (!nvidia_smi) return ReadSlurm(text, file_name);
  MESHWRIGHT_ASSIGN_OR_RETURN(ClusterFacts machine, ReadNvidiaSmi(text, file_name));
  if (!slurm) return machine;
  MESHWRIGHT_ASSIGN_OR_RETURN(ClusterFacts nodes, ReadSlurm(text, file_name));
  return Joined(std::move(machine), std::move(nodes), file_name);
}

}  // namespace

bool LooksLikeCluster(absl::string_view text) {
  return LooksLikeNcclTopology(text) || LooksLikeNvidiaSmi(text) || LooksLikeSlurm(text);
}

absl::StatusOr<Imported> ImportCluster(absl::string_view text, absl::string_view file_name, const ClusterHints& hints) {
  if (text.size() > kMaxDescriptionBytes) {
    return WrongAt(file_name, {}, absl::StrCat(text.size(), " bytes"), absl::StrCat("at most ", kMaxDescriptionBytes));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(ClusterFacts facts, ReadFacts(text, file_name));
  return WriteCluster(std::move(facts), hints, file_name);
}

}  // namespace meshwright
