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

std::optional<int64_t> ReplicasOf(const StepParts& step) {
  const int64_t of_replica = step.rows * step.accumulated;
  if (of_replica == 0 || step.batch == 0 || step.batch % of_replica != 0) return std::nullopt;
  return step.batch / of_replica;
}

absl::Status SetStep(const ImportHints& hints, StepParts step, Recipe& recipe, std::vector<std::string>& notes) {
  const int64_t replicas = std::max<int64_t>(1, recipe.data);
  if (hints.batch.has_value()) {
    if (step.rows > 0) step.accumulated = 0;  // as many as the batch takes
    step.batch = *hints.batch;
  }
  const bool known = step.rows > 0 && step.accumulated > 0 && recipe.data > 0;
  if (step.batch == 0 && known) step.batch = step.rows * step.accumulated * recipe.data;
  if (step.batch == 0) {
    return WrongInput("nothing that says how large the batch is", "the sequences of a step",
                      "give them as --batch=1024");
  }
  if (known && step.batch != step.rows * step.accumulated * recipe.data) {
    return WrongInput(absl::StrCat(step.batch, " sequences of a step"),
                      absl::StrCat(step.rows, " of a micro-batch x ", step.accumulated, " micro-batches x ",
                                   recipe.data, " replicas"),
                      "--devices=N and --batch=N say how many there are");
  }
  if (step.rows == 0 && step.accumulated > 0 && recipe.data > 0 && step.batch % (step.accumulated * replicas) == 0) {
    step.rows = step.batch / (step.accumulated * replicas);
  }
  if (step.rows == 0) notes.push_back("how large a micro-batch is is not said: the plan chooses it, or --microbatch=N");
  if (const int64_t rows = std::max<int64_t>(1, step.rows); step.batch % (rows * replicas) != 0) {
    return WrongInput(absl::StrCat(step.batch, " sequences of a step"),
                      absl::StrCat("a multiple of ", rows, " on ", replicas, " replicas"),
                      "--devices=N and --batch=N say how many there are");
  }
  recipe.batch = step.batch;
  recipe.microbatch = step.rows;
  return absl::OkStatus();
}

}  // namespace meshwright
