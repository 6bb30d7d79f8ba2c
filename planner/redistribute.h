// Redistribution: the cheapest sequence of steps that takes a tensor from one layout to another.
//
// A search, not a case list (design decision 3): Dijkstra over layouts, whose edges are the steps of
// Rink et al. ("Memory-efficient array redistribution through portable collective communication", arXiv 2112.01075):
// slice, all-gather, all-to-all, reduce-scatter, all-reduce, permute, each over one or several adjacent axes, priced by
// the caller. Covers S7.2: after the steps each rank holds exactly the slice that the target names.
//
// Thread safety: pure functions; KeptRedistributions from many threads.
#ifndef MESHWRIGHT_PLANNER_REDISTRIBUTE_H_
#define MESHWRIGHT_PLANNER_REDISTRIBUTE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace meshwright {

struct RedistributionStep {
  Work work;     // Slice, Collective or Permute
  Layout after;  // what the ranks hold then
};

// What a StepPrice gives for a step that may not be taken.
inline constexpr Nanos kNever(std::numeric_limits<int64_t>::max());

// The price of one step on a tensor of this global shape, on every rank.
using StepPrice =
    std::function<Nanos(const Shape& global, DType dtype, const Work& work, const Layout& before, const Layout& after)>;

struct Redistribution {
  std::vector<RedistributionStep> steps;  // none where both layouts place every element alike
  Nanos cost;
};

// REQUIRES: both layouts pass CheckLayout; every partial axis of `to` is partial in `from`. kInvalidArgument (E-LAYOUT)
// for booleans that would have to be communicated (S7.11).
absl::StatusOr<Redistribution> Redistribute(const Shape& global, DType dtype, const Layout& from, const Layout& to,
                                            const Mesh& mesh, const StepPrice& price);

// Finds each redistribution once, for lowerings that have some in common: what is computed twice, how the optimizer and
// the pipeline are split changes none of them. All are to ask with the same prices.
//
// Key: all that Redistribute is given but the prices. Lifetime: its own. Size: at most kMostKept, of about a kilobyte
// each; when there are as many, all make room.
class KeptRedistributions {
 public:
  static constexpr size_t kMostKept = 16384;

  // As Redistribute.
  absl::StatusOr<Redistribution> Find(const Shape& global, DType dtype, const Layout& from, const Layout& to,
                                      const Mesh& mesh, const StepPrice& price);

 private:
  std::mutex mutex_;
  std::map<std::vector<int64_t>, Redistribution> known_;
};

// Equal numbers, equal tensors of one mesh and layouts of them.
std::vector<int64_t> RedistributionKey(const Shape& global, DType dtype, const Layout& from, const Layout& to);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_REDISTRIBUTE_H_
