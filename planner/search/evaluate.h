// What a strategy is worth: the program it becomes, simulated.
//
// MFU = model FLOPs of a step / (step time x devices x dense peak of the compute type), where model FLOPs are those of
// the matrix products and of attention (both halves of the score matrix counted), forward once and backward twice, but
// once where a product's weight is frozen; what is recomputed does not count (Chowdhery et al., "PaLM", appendix B).
//
// Thread safety: pure functions; an Evaluator's methods from many threads.
#ifndef MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_
#define MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "ir/program.h"
#include "planner/search/degrees.h"
#include "planner/search/problem.h"
#include "simulator/simulate.h"

namespace meshwright {

struct Prediction {
  Nanos step;
  double mfu = 0;
  FlopsPerSecond peak_flops;     // dense peak of one device in the compute type, as MFU counts it
  double tokens_per_second = 0;  // rows per second where rows are samples
  TimeUses time;                 // exclusive, of the critical stage; sums to `step`
  size_t critical_class = 0;
  Bytes peak;                // of the fullest stage: arena and everything outside it
  size_t fullest_class = 0;  // that stage
  Bytes arena;               // of that stage
  BytesByRole memory = {};   // of that stage's arena, by role; adds up to it
  std::vector<std::pair<std::string, Bytes>>
      outside;     // context, communicators, workspace: costmodel/memory_overheads.h
  Bytes capacity;  // what a device can use
  bool fits() const { return peak <= capacity; }
};

struct Evaluation {
  Program program;
  Prediction prediction;
};

// Lowers, prices and simulates. kInvalidArgument where the strategy does not fit the model.
absl::StatusOr<Evaluation> Evaluate(const Problem& problem, const Strategy& strategy);

// The same where the caller has the graph of a micro-batch and the prices already. `costs`: of problem.cluster.
// kWhatFits: a program that needs more memory than there is is not simulated, its `step` stays 0; kNothing: none is,
// for who asks for memory alone.
enum class Simulated : uint8_t { kAll, kWhatFits, kNothing };
absl::StatusOr<Evaluation> EvaluateGraph(const Problem& problem, const Graph& graph, const CostModel& costs,
                                         const Strategy& strategy, Simulated simulated = Simulated::kAll);

// EvaluateGraph's prediction to the nanosecond and the byte, as far as a ranking needs it: `time` and `critical_class`
// may stay unset. Where a step has many more micro-batches than it takes to show what its stages repeat, only so many
// are lowered, and the others are played as turns of these or counted (simulator/repetition.h). Where that does not
// tell the time of the step, this is EvaluateGraph.
absl::StatusOr<Prediction> PredictGraph(const Problem& problem, const Graph& graph, const CostModel& costs,
                                        const Strategy& strategy, Simulated simulated = Simulated::kAll);

// Evaluates strategies of one problem, and keeps for the next what the first half of lowering makes (LowerBlocks), its
// stages before calls are fused (LowerUnfused), and what it predicts: strategies that differ in a bucket which fuses
// the same calls are lowered and played once.
//
// Of blocks:
// Key: rows of a micro-batch, BlockChoices and where runs of layers are cut. Value: a function of these, so that what
// is found there is what would be made anew. Lifetime: the Evaluator's. Size: kMostKept entries, of some hundred
// kilobytes each for a decoder, and kMostCut of graphs with cuts, of up to ten megabytes; the oldest makes room. Found
// where another schedule, number of chunks, parallel optimizer, bucket or other fusion is tried; another degree, size
// of the micro-batch or recompute has blocks of its own. These still share the graph of as many rows (as many are
// kept), and redistributions of tensors as large on the same mesh (planner/redistribute.h).
//
// Of stages: the key is the rows of a micro-batch and StageChoices, all but the bucket; the latest four, of up to some
// megabytes each. A search tries one bucket after another, so that half of what it plays finds them. Each use is a
// copy, which the passes that fuse calls change: a fifteenth of what making it takes.
//
// Of predictions: the key is the strategy without its bucket, and the range of buckets (BucketRange) that make the same
// program; no pass but the one that narrows the range sees the bucket.
class Evaluator {
 public:
  static constexpr size_t kMostKept = 64, kMostCut = 8;

  // Both must outlive this. `costs`: of problem.cluster.
  Evaluator(const Problem& problem, const CostModel& costs);
  ~Evaluator();

  // EvaluateGraph and PredictGraph, with the graph of problem.batch / strategy.microbatches rows.
  absl::StatusOr<Evaluation> Evaluate(const Strategy& strategy, Simulated simulated = Simulated::kAll) const;
  absl::StatusOr<Prediction> Predict(const Strategy& strategy, Simulated simulated = Simulated::kAll) const;

 private:
  class Kept;
  const Problem& problem_;
  const CostModel& costs_;
  const std::unique_ptr<Kept> kept_;
};

// What one device can use: its memory, or max_device_memory where that is less (S1.8).
Bytes CapacityOf(const Problem& problem);

// Model FLOPs of one step, as defined above.
double ModelFlops(const Graph& microbatch, int64_t microbatches);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_
