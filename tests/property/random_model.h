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
#include <string>

#include "absl/status/statusor.h"
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
  kLayers,    // an embedding, two to four layers that are stored once, a head
  kSegments,  // as many segments as stages, each on its stage, with values and parameters used across them
};

struct ModelOptions {
  ModelForm form = ModelForm::kFlat;
  int64_t rows = 48;       // of a micro-batch: the extent of label "b"
  int64_t num_stages = 1;  // kSegments: so many segments
  // May one row of the batch influence another before the loss? If not, micro-batches do not change the step.
  bool mixes_rows = false;
};

// A graph of 2 to some 12 operators whose loss is a mean over the rows.
absl::StatusOr<Graph> RandomModel(uint64_t seed, const ModelOptions& options);

// A strategy for the graph on `stages` x `ranks_per_stage` ranks: a random legal label assignment for most ops, label
// rules for the others, random choices for everything that must not change values.
Strategy RandomStrategy(uint64_t seed, const Graph& graph, int64_t stages, int64_t ranks_per_stage,
                        int64_t microbatches);

UpdateRule RandomOptimizer(uint64_t seed);

// Prices by bytes, with a random weight for every kind of step: any sequence may be the cheapest.
StepPrice RandomPrice(uint64_t seed);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_H_
