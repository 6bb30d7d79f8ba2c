#include "ir/cluster.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

std::string Gigabytes(BytesPerSecond rate) { return absl::StrCat(rate.raw() / 1e9, " GB/s"); }

}  // namespace

std::string ToText(const Cluster& cluster) {
  std::string text = absl::StrCat(cluster.nodes, cluster.nodes == 1 ? " node x " : " nodes x ",
                                  cluster.devices_per_node, " ", cluster.device.name);
  if (cluster.devices_per_node > 1) {
    absl::StrAppend(&text, ", ", std::string(NameOf(cluster.intra_kind)), " ", Gigabytes(cluster.intra_bandwidth));
  }
  if (cluster.nodes > 1) {
    absl::StrAppend(&text, ", ", cluster.nics_per_node, cluster.nics_per_node == 1 ? " NIC x " : " NICs x ",
                    Gigabytes(cluster.nic_bandwidth));
    if (cluster.oversubscription != 1) {
      absl::StrAppend(&text, ", oversubscribed ", cluster.oversubscription, ":1");
      if (cluster.nodes_per_leaf > 0) absl::StrAppend(&text, " above leaves of ", cluster.nodes_per_leaf, " nodes");
    }
  }
  return text;
}

}  // namespace meshwright
