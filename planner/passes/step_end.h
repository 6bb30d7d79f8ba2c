// What surrounds the passes of a step on one stage: clearing and reducing gradients, the update, the loss report, and
// parameters that several stages share. Used by split_stages.
//
// Gradients are reduced in place, one all-reduce per parameter and layer, on the compute stream: shard_optimizer,
// bucket_gradients and overlap make something better of it.
#ifndef MESHWRIGHT_PLANNER_PASSES_STEP_END_H_
#define MESHWRIGHT_PLANNER_PASSES_STEP_END_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/strategy.h"
#include "planner/passes/orthogonalize.h"

namespace meshwright {

// The update rule of the training section.
struct UpdateRule {
  OpKind kind = OpKind::kSgd;  // kSgd, kMomentum, kAdamW, kLamb, kMuon
  OpAttrs attrs;
  std::optional<OpAttrs> loss_scale = std::nullopt;  // scale_loss.h's; nullopt: the loss is not scaled
  OpAttrs others = {};                               // kMuon: AdamW's, of parameters that are no matrices
};

// A parameter that several stages use (a tied embedding, S12.7). Its owner, the lowest stage whose backward pass has a
// gradient of it, sends its values to the others at the start of the step, and gets their gradients at its end.
struct SharedParameter {
  std::string name;
  int64_t owner = 0;
  std::vector<int64_t> users;         // the other stages that read it
  std::vector<int64_t> contributors;  // the other stages that have a gradient of it
};
using SharedParameters = std::vector<SharedParameter>;

class StepEnd {
 public:
  struct SegmentLayers {
    std::string name;
    int64_t layers = 1;             // runs of its blocks in one pass
    std::vector<BlockId> backward;  // its blocks that make gradients
    // The stage that has the same layers for the other direction (dualpipe), or -1. One of the two owns them: it gets
    // the other's gradients at the end of a step, updates, and sends its values at the start of the next.
    int64_t twin = -1;
    bool owned = true;
  };

  // Adds the blocks to the class. `matrices`: what kMuon updates.
  static absl::StatusOr<StepEnd> Make(RankClass& c, const Mesh& mesh, const UpdateRule& optimizer,
                                      const Strategy& strategy, const std::vector<SegmentLayers>& segments,
                                      const SharedParameters& shared, const Matrices& matrices);

  void AppendStart(RankClass& c) const;  // clear, exchange shared parameters
  // Behind the last pass of a layer, whose gradients are complete; nothing where there are none to reduce.
  std::optional<Slot> ReduceOf(size_t segment, int64_t layer) const;
  void AppendEnd(RankClass& c) const;  // after the last pass: update, then the loss

 private:
  struct Blocks {
    BlockId zero, reduce, update;               // invalid: nothing to do
    BlockId send_values, receive_values;        // to and from the twin
    BlockId send_gradients, receive_gradients;  // with these, gradients are complete at the end of the step
    int64_t layers = 1;
  };
  // For each segment those of its blocks that there are, over all layers; one kind after the other.
  void AppendForEach(std::initializer_list<BlockId Blocks::*> which, RankClass& c) const;

  std::vector<Blocks> segments_;
  Blocks late_;  // of gradients that are complete after the last pass only: shared between stages or between layers
  BlockId share_, give_back_, report_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_STEP_END_H_
