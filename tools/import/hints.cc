#include "tools/import/hints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {

absl::Status SetDevices(const ImportHints& hints, std::optional<int64_t> world, std::optional<int64_t> of_node,
                        Recipe& recipe, std::vector<std::string>& notes) {
  Cluster& cluster = recipe.cluster;
  cluster.nodes = cluster.devices_per_node = recipe.data = 0;
  cluster.device.name = hints.device;
  if (hints.devices.has_value()) {
    if (world != hints.devices) of_node.reset();
    world = hints.devices;
  }
  if (!world.has_value()) {
    notes.push_back("how many devices there are is not said: plan with --device=NAME --devices=N");
    return absl::OkStatus();
  }
  const int64_t others = recipe.tensor * recipe.pipeline * recipe.context;
  if (*world % others != 0) {
    return WrongInput(absl::StrCat("tensor ", recipe.tensor, " x pipeline ", recipe.pipeline, " x context ",
                                   recipe.context, " = ", others, " ranks"),
                      absl::StrCat("a divisor of the ", *world, " devices"), "--devices=N says how many there are");
  }
  recipe.data = *world / others;
  if (hints.device.empty()) {
    notes.push_back(absl::StrCat("which devices these are is not said: plan with --device=NAME --devices=", *world));
    return absl::OkStatus();
  }
  if (!of_node.has_value()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster usual, MakeCluster(hints.device, 1));
    of_node = std::min(usual.devices_per_node, *world);
  }
  if (*world % *of_node != 0) {
    return WrongInput(absl::StrCat(*world, " devices, ", *of_node, " on a node"), "whole nodes");
  }
  cluster.nodes = *world / *of_node;
  cluster.devices_per_node = *of_node;
  return absl::OkStatus();
}

}  // namespace meshwright
