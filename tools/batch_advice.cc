#include "tools/batch_advice.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

// The most devices that all share a batch: fewer nodes, or fewer of each, as {nodes, devices of one}. {0, 0} where
// that leaves a fourth of them idle, or more.
std::pair<int64_t, int64_t> SharingAll(int64_t batch, const Cluster& cluster) {
  std::pair<int64_t, int64_t> most(0, 0);
  int64_t devices = cluster.num_devices() * 3 / 4;
  const auto offer = [&](int64_t nodes, int64_t of_node) {
    if (nodes * of_node <= devices || batch % (nodes * of_node) != 0) return;
    devices = nodes * of_node;
    most = {nodes, of_node};
  };
  for (int64_t nodes = 1; nodes < cluster.nodes; ++nodes) offer(nodes, cluster.devices_per_node);
  for (int64_t of_node = 1; of_node < cluster.devices_per_node; ++of_node) offer(cluster.nodes, of_node);
  return most;
}

}  // namespace

std::string AdviceOnBatch(const Session& session, int64_t data_parallel) {
  const int64_t batch = session.problem.batch, devices = session.problem.cluster.num_devices();
  const int64_t sharing = std::gcd(batch, devices), below = batch / devices * devices;
  if (!session.file->is_decoder() || below == 0 || sharing == devices || data_parallel != sharing) return "";
  const auto [nodes, of_node] = SharingAll(batch, session.problem.cluster);
  return absl::StrCat("a batch of ", batch, " is no multiple of ", devices, " devices: at most ", sharing,
                      " can share it; ", below, " or ", below + devices, " would leave more plans",
                      nodes > 0 ? absl::StrCat(", and so would ", nodes * of_node, " devices (--nodes=", nodes,
                                               " --devices_per_node=", of_node, ")")
                                : "");
}

}  // namespace meshwright
