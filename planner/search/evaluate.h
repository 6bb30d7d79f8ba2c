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
#include <vector>

#include "absl/status/statusor.h"
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
  double tokens_per_second = 0;  // rows per second where rows are samples
  TimeUses time;                 // exclusive, of the critical stage; sums to `step`
  size_t critical_class = 0;
  Bytes peak;               // of the fullest stage: arena and everything outside it
  Bytes arena;              // of that stage
  BytesByRole memory = {};  // of that stage's arena, by role
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

// Model FLOPs of one step, as defined above.
double ModelFlops(const Graph& microbatch, int64_t microbatches);

// A strategy of degrees for models whose index labels are named as the decoder's are (models/decoder.h): batch "b" and
// expert capacity "c" over dp, heads "g", ffn "f" and vocabulary "v" over tp, sequence "s" over tp between the split
// products, experts "e" over dp. Mesh: pp, dp, tp with tp fastest, so that tensor parallelism stays inside a node.
absl::StatusOr<Strategy> FromDegrees(const Problem& problem, const Degrees& degrees);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_EVALUATE_H_
