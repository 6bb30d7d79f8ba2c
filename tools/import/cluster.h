// Clusters from what users already have: the topology that NCCL writes, what nvidia-smi prints, what Slurm knows.
//
//   Imported cluster = ImportCluster(text, "topo.xml", {.device = "h100-sxm", .nodes = 4});
//   # From an NCCL topology, topo.xml. What is not here is of the device's usual machine.
//   device: h100-sxm
//   nodes: 4
//   devices_per_node: 8
//   intra_link: nvswitch
//   intra_bandwidth: 450 GB/s
//   ..
//
// The result is a cluster file (costmodel/library.h), as `measure` writes one and --cluster=FILE reads it. The forms,
// and what is read of each: nccl_topology.h, nvidia_smi.h, slurm.h. One file may hold both what nvidia-smi prints and
// what Slurm knows; they must agree.
//
// Sources of numbers that no description has (bandwidth of a link, lanes of PCIe): links.h.
//
// Errors: kInvalidArgument, `file:line:column: found X, wanted Y; remedy`, of what is damaged or does not fit together,
// and where the device is not told and several could be it; kNotFound for a device that the library does not have.
//
// Thread safety: pure functions, but that a device's file of hints.device is read.
#ifndef MESHWRIGHT_TOOLS_IMPORT_CLUSTER_H_
#define MESHWRIGHT_TOOLS_IMPORT_CLUSTER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/import/cluster_facts.h"
#include "tools/import/imported.h"

namespace meshwright {

// Whether the text looks like one of the descriptions: by its content, in one pass.
bool LooksLikeCluster(absl::string_view text);

// `file_name` is for messages and the comment in the result. Texts above kMaxDescriptionBytes are refused.
absl::StatusOr<Imported> ImportCluster(absl::string_view text, absl::string_view file_name, const ClusterHints& hints);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_CLUSTER_H_
