// Random models and random ways to split them, for property tests.
//
// A model is a graph of operators from the table behind each other and beside each other, with a loss at its end, in
// one of three forms. Everything is float64 (and int32 where ids are read) and of moderate size, so that one that is
// sharded can be compared with a whole one to many digits.
//
// Deterministic: the same seed and options, the same model and strategy.
#ifndef MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_H_
#define MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_H_

#include <cstdint>
#include <random>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/strategy.h"
#include "planner/lower.h"

namespace meshwright {

// Draws that are the same with every standard library.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  // In [0, n).
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(int percent) { return Below(100) < percent; }
  template <class List>
  const auto& Of(const List& list) {
    return list[static_cast<size_t>(Below(static_cast<int64_t>(list.size())))];
  }
  template <class List>
  void Shuffle(List& list) {
    for (size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  std::mt19937_64 random_;
};

enum class ModelForm : uint8_t {
  kFlat,      // one segment
  kLayers,    // an embedding, two to four layers that are stored once, sometimes layers of other kinds, a head
  kSegments,  // as many segments as stages, each on its stage, with values and parameters used across them
};

struct ModelOptions {
  ModelForm form = ModelForm::kFlat;
  int64_t rows = 48;       // of a micro-batch: the extent of label "b"
  int64_t num_stages = 1;  // kSegments: so many segments
  // May one row of the batch influence another before the loss? If not, micro-batches do not change the step.
  bool mixes_rows = false;
  // May operators draw random masks? Each row has its own, whichever micro-batch it is in.
  bool has_masks = false;
};

// A graph of 2 to some 12 operators whose loss is a mean over the rows.
absl::StatusOr<Graph> RandomModel(uint64_t seed, const ModelOptions& options);

// Every way of saying something in a strategy that a random one may use, by name.
inline constexpr absl::string_view kStrategyForms[] = {
    // How an operator is split. "axes": layouts over any axes of the mesh, which neither of the user's forms can say.
    "tuples", "tuples with repeats", "tuples, out_strategy all_reduce", "tuples, out_strategy reduce_scatter",
    "layouts", "layouts, several axes on a dim", "layouts, out_strategy all_reduce",
    "layouts, out_strategy reduce_scatter", "axes", "axes, out_strategy", "label rule", "no strategy", "interleaved",
    "interleaved behind axes", "interleaved before axes",
    // How the step runs.
    "input layout", "stages 1", "stages 2", "stages 3", "stages 4", "layers_per_stage", "microbatches 1",
    "microbatches 2", "microbatches 4", "schedule gpipe", "schedule 1f1b", "schedule zero_bubble_h1",
    "schedule zero_bubble_v", "schedule dualpipe_v", "schedule dualpipe", "recompute none", "recompute selective",
    "recompute full", "recompute layer", "parallel optimizer", "parallel optimizer with a threshold", "one by one",
    "buckets", "one bucket", "scatter_bucket", "gather_bucket", "bucket_ends", "fusion id 0", "fusion id 1",
    "fusion id 2", "fusion id 3", "gradients as rows", "single operators again", "bucket_ends of layers"};

struct RandomSplit {
  Strategy strategy;
  std::set<std::string> forms;  // which of kStrategyForms it uses
};

// A strategy for the graph on `stages` x `ranks_per_stage` ranks: for most ops integer tuples, a layout or any legal
// label assignment, label rules for the others, random choices for everything that must not change values.
RandomSplit RandomStrategy(uint64_t seed, const Graph& graph, int64_t stages, int64_t ranks_per_stage,
                           int64_t microbatches);

UpdateRule RandomOptimizer(uint64_t seed);

// Prices by bytes, with a random weight for every kind of step: any sequence may be the cheapest.
StepPrice RandomPrice(uint64_t seed);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_H_
