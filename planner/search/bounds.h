// Lower bounds of a decoder's step time and memory: they only prune (design decision 7).
//
// Each way of splitting (tensor and expert degree, sequence parallelism, rows of a micro-batch, recompute, whether
// parameters are split over replicas) has a probe (planner/search/probe.h), which tells what the layers of any stage
// take; but of clearing and updating, which one kernel does for all layers of a run, what the longest of them takes.
// From these prices, with F(s) and B(s) those of a stage's pass over one micro-batch, Z(s) and U(s) those of clearing
// gradients and of the update, M micro-batches:
//
//   step >= max over s of   max over i <= s of Z(i) + F(i) + .. + F(s-1)
//                         + M (F(s) + B(s))
//                         + max over i <= s of B(s-1) + .. + B(i) + U(i)
//
// since a stage's compute stream works on one thing at a time, its first micro-batch passes the stages before it (their
// first chunks, where stages have several), and the gradient of its last one does so on the way back. Where passes take
// turns, F and B are the kernels' share, as the collectives run beside them, and where they go both ways, each of a
// stage's chunks runs M/2 times and the way to the first pass is left out. Gradient reduction, parameter gathering,
// transfers and contention are left out. Memory: all buffers of the stage's layers for as many micro-batches as are in
// flight, the widest point of any block, optimizer state split over its replicas, and the process's own; communicators
// are left out. Where gradients may be kept as rows, Z and whole gradients are left out (and whole parameters, where
// these may be rows too), and no gradient is read to be added to.
//
// Where nothing of a way of splitting fits with few rows of a micro-batch, or with much computed again, and so cannot
// with more rows and less, that is not probed: activations are as many times larger, or more of them, and all else is
// no smaller.
//
// Where the ends of a pipeline have more to do than layers, bounds also say how many layers each part should have.
//
// Thread safety: const methods from many threads.
#ifndef MESHWRIGHT_PLANNER_SEARCH_BOUNDS_H_
#define MESHWRIGHT_PLANNER_SEARCH_BOUNDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/search/probe.h"
#include "planner/search/problem.h"
#include "planner/search/space.h"

namespace meshwright {

struct LowerBound {
  Nanos step;
  Bytes peak;

  // Whether it is of a probe of its own; else all that it says is that there is too little memory.
  bool probed() const { return step > Nanos(); }
};

class LowerBounds {
 public:
  // Probes all ways of splitting that stand in `combinations`, on `threads` threads.
  static absl::StatusOr<LowerBounds> Make(const Problem& problem, const CostModel& costs, const DecoderFacts& facts,
                                          const std::vector<Combination>& combinations, int threads);

  // The layers by which the combination's slowest part is faster than with even numbers (planner/search/balance.h);
  // none where that is no gain, or nothing is known. Not of schedules that go both ways, whose ends are at either end.
  const std::vector<int64_t>& Balanced(const Combination& combination) const;

  // REQUIRES: Make saw this combination, maybe with other layers. The error of its probe where the model cannot be
  // split so. Of what was not probed the step is 0, and the peak more than the device has, maybe much less than it
  // takes.
  absl::StatusOr<LowerBound> Of(const Combination& combination) const;

 private:
  // Of what is lowered, and whether parameters are sharded, which is counted and not lowered.
  using SplitKey = std::tuple<int64_t, bool, int64_t, int64_t, bool, int64_t, ContextExchange>;
  // With the rows of a micro-batch.
  using Key = std::tuple<SplitKey, int64_t, Recompute, bool>;
  using Probes = std::map<Key, absl::StatusOr<Probe>>;
  static Key KeyOf(const Combination& combination);
  Nanos StepOf(const Probe& probe, const Combination& combination) const;
  // Of a probe of `rows` rows.
  Bytes PeakOf(const Probe& probe, int64_t rows, const Combination& combination) const;
  // The most that those of the same split say which take less: of no more rows, with no less computed again; none of
  // them: 0. The first that says more than `enough` will do.
  Bytes PeakOfSmaller(const Probes& probes, const Combination& combination, Bytes enough) const;
  int64_t MicrobatchesOf(const Combination& combination) const;
  // By stages, micro-batches, and how these are run.
  using FlightKey = std::tuple<int64_t, int64_t, Pipelining>;
  FlightKey FlightKeyOf(const Combination& combination) const;
  void CountInFlight(const Combination& combination);
  // For so many parts of a pipeline each.
  void Balance(const std::set<std::pair<Key, int64_t>>& asked);

  int64_t batch_ = 1;
  Bytes process_, surely_;  // what no device has
  // Of the stages that PeakOf looks at, micro-batches in flight by chunk.
  std::map<FlightKey, std::map<int64_t, std::vector<int64_t>>> in_flight_;
  Probes probes_;
  std::map<std::pair<Key, int64_t>, std::vector<int64_t>> balanced_;  // by probe and parts
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_BOUNDS_H_
