// How many layers each part of a pipeline should have where its ends have more to do than layers: the embedding, and
// the output layer with the loss, which of Llama 3 8B take as long as two layers. Frameworks let their users say so
// (Megatron-Core's pipeline_model_parallel_layout; Llama 3 herd of models, section 3.3.2: one layer less at both ends).
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_BALANCE_H_
#define MESHWRIGHT_PLANNER_SEARCH_BALANCE_H_

#include <cstdint>
#include <vector>

#include "ir/quantities.h"

namespace meshwright {

// What a micro-batch takes, forward and backward.
struct PartCosts {
  std::vector<Nanos> layers;  // each of the chain
  Nanos before, behind;       // what stands before the chain, on the first part, and behind it, on the last
};

// Layers of each part, in the form of Strategy::layers_per_stage, by which the part that takes longest takes as little
// as can be: all parts but the last have one at least. What is left over goes to the parts behind, which keep fewer
// micro-batches. Empty where that is not kLeastGain less than with EvenLayers, or there are fewer layers than parts.
// REQUIRES: parts >= 2.
std::vector<int64_t> BalancedLayers(const PartCosts& costs, int64_t parts);

// Less is not worth a layout that has to be written out.
inline constexpr double kLeastGain = 0.02;

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_BALANCE_H_
