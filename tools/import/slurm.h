// What Slurm knows of a cluster, any of three, in one file too:
//
//   scontrol show node                NodeName=gpu001 Arch=x86_64 .. Gres=gpu:h100:8(S:0-1) ..   a block for each node
//   slurm.conf                        NodeName=gpu[001-128] Gres=gpu:h100:8
//   topology.conf                     SwitchName=leaf1 Nodes=gpu[001-032]
//                                     SwitchName=spine Switches=leaf[1-4]
//
// What is read: how many nodes have GPUs, how many GPUs of which type each has, whether the CPU is an ARM; of the
// switches with nodes how many nodes each has. Nodes without GPUs are left out. Lists of hosts are counted, never
// written out: `a[0-999999999]` costs nothing.
//
// Errors: kInvalidArgument, `file:line:column: found X, wanted Y; remedy`: nodes or GPUs that differ, lists of hosts
// that are none, more than kMaxNodes of them.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_SLURM_H_
#define MESHWRIGHT_TOOLS_IMPORT_SLURM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/import/cluster_facts.h"

namespace meshwright {

// How many hosts a list names: 5 of "gpu[001-004,007]", 6 of "a[0-1]b[0-2]", 2 of "login,gpu1". Hosts that are named
// twice count twice. kInvalidArgument, without a place, for what is no list or names more than kMaxNodes
// (costmodel/library.h).
absl::StatusOr<int64_t> CountHosts(absl::string_view list);

// Whether a line begins with NodeName= or SwitchName=.
bool LooksLikeSlurm(absl::string_view text);

// REQUIRES: LooksLikeSlurm(text).
absl::StatusOr<ClusterFacts> ReadSlurm(absl::string_view text, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_SLURM_H_
