// What a strategy is worth: the program it becomes, simulated.
//
// MFU = model FLOPs of a step / (step time x devices x dense peak of the compute type), where model FLOPs are those of
// the matrix products and of attention (both halves of the score matrix counted), forward once and backward twice; what
// is recomputed does not count (Chowdhery et al., "PaLM", appendix B).
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_
#define MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "ir/program.h"
#include "planner/search/problem.h"
#include "simulator/simulate.h"

namespace meshwright {

// A strategy in the words of people: the degrees that make it up.
struct Degrees {
  int64_t data = 1, tensor = 1, pipeline = 1, expert = 1;
  bool sequence_parallel = false;
  int64_t microbatch = 1;  // rows of one micro-batch on one data-parallel rank
  friend auto operator<=>(const Degrees&, const Degrees&) = default;
};

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
absl::StatusOr<Evaluation> EvaluateGraph(const Problem& problem, const Graph& graph, const CostModel& costs,
                                         const Strategy& strategy);

// Model FLOPs of one step, as defined above.
double ModelFlops(const Graph& microbatch, int64_t microbatches);

// A strategy of degrees for models whose index labels are named as the decoder's are (models/decoder.h): batch "b" over
// dp and ep, experts "e" over ep and their slots "c" over dp, heads "g", ffn "f" and vocabulary "v" over tp, sequence
// "s" over tp between the split products. Mesh: pp, dp, ep, tp (those above 1) with tp fastest, so that tensor
// parallelism stays inside a node; dp x ep = degrees.data. What the problem leaves open besides the degrees gets the
// defaults of Strategy.
//
// kInvalidArgument: a degree below 1; the batch does not divide. Whether labels divide is seen when it is lowered.
absl::StatusOr<Strategy> FromDegrees(const Problem& problem, const Degrees& degrees);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_
