// The cluster of a command: from the `cluster:` section of a file, and from flags that change it.
//
//   --devices=N --device=NAME --nodes=N --devices_per_node=N     counts and kind
//   --cluster=FILE                                               instead of the section
//   --memory=40GB --inter_bandwidth="100 Gb/s" ...               one flag per row of ClusterKeys (costmodel/library.h)
//
// Counts alone keep the device and the links of the section. Another device brings the links of its own usual machine,
// and as many devices as before unless counts are given.
//
// Thread safety: pure functions but for reading the file of --cluster.
#ifndef MESHWRIGHT_TOOLS_CLUSTER_FLAGS_H_
#define MESHWRIGHT_TOOLS_CLUSTER_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/cluster.h"
#include "ir/document.h"
#include "tools/flags.h"

namespace meshwright {

const std::vector<FlagSpec>& ClusterFlags();

// `section` is the `cluster:` of a file, which may be missing; flags must then name a device.
absl::StatusOr<Cluster> ClusterFrom(const NodeRef& section, const Flags& flags);

// The cluster of a file, that of --cluster.
absl::StatusOr<Cluster> OpenCluster(const std::string& path);

// What is wrong with --device=NAME: of a file that could be read, what it says; else how the flag is used.
absl::Status WrongDevice(absl::string_view name, const absl::Status& status);

// Changes an existing cluster.
absl::StatusOr<Cluster> WithFlags(Cluster cluster, const Flags& flags);

// Whether a flag of ClusterFlags says how many devices there are.
bool CountsDevices(const Flags& flags);

// The cluster as one line of YAML that ReadCluster reads back as the same: counts, and what differs from the device's
// usual machine. REQUIRES: the device's own numbers are the library's, but for what ClusterKeys and `kernels` change.
std::string ToYaml(const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_CLUSTER_FLAGS_H_
