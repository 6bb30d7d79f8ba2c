// Pipeline schedules: in which order a stage runs the forward and backward passes of its micro-batches.
//
//   gpipe    F0 F1 .. F(M-1)  B0 B1 .. B(M-1)
//   1f1b     min(M, S-s) forwards, then backward and forward in turn, then the remaining backwards  (S12.8)
//
// With V > 1 chunks per stage (interleaved, S12.10) the model is cut into S V parts, of which stage s has the parts
// s, S+s, 2S+s, ... A stage takes micro-batches in groups of S through its first chunk, then through its second, and so
// on; backward in the opposite order of chunks:
//
//   S = 2, M = 4, V = 2, stage 1   F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0
//
// 1f1b runs 2 (S-s-1) + (V-1) S + 1 forwards first, as Megatron-LM does. Where S does not divide M, the last group has
// the M % S that are left too, and V-1 times the largest group counts above; Megatron-Core has its own groups then.
// With transfers that take no time (S-1) / (M V + S-1) of a step is idle if S divides M, and seldom more if not and M >
// S. With M < S there is one group, and more idle time.
//
// The zero-bubble schedules (Qi et al., Zero Bubble Pipeline Parallelism, 2023, sections 2 and 3; Pipeline Parallelism
// with Controllable Memory, 2024, for V) split a backward pass: B makes the gradients of activations, which the stage
// before waits for, W those of parameters, which nobody waits for and which therefore fill what would be idle:
//
//   zero_bubble_h1   as 1f1b; W is put off by s micro-batches on stage s. (S-1)(F + B - W) of a step is idle, 1f1b's
//                    (S-1)(F + B + W); no stage has more than S micro-batches in flight, as 1f1b's first.
//   zero_bubble_v    two chunks a stage, part p on stage min(p, 2S-1-p): forth and back, so that the first stage has
//                    the loss too. Each stage runs what can run, W last, and no more than 2S forwards (of half a
//                    stage) ahead of their W. With F = B = W no more is idle than filling the pipeline takes, (S-1) F,
//                    if M >= 2S, and little more otherwise.
//
// DualPipeV and DualPipe (DeepSeek-V3 technical report, 2024, section 3.2.1; orders: github.com/deepseek-ai/DualPipe)
// run a forward pass of one micro-batch and a backward pass of another in turns, so that the collectives of each run
// beside the kernels of the other:
//
//   dualpipe_v       two chunks a stage as zero_bubble_v, M >= 2S. With FB the time of such a pair, of a chunk, and B
//                    without W, (S-1)(FB + B - 2W) of a step is idle. At most 2S+1 forwards of a chunk in flight.
//   dualpipe         S even; every part of the model is on two stages, p and S-1-p. Half of the micro-batches go from
//                    stage 0 to S-1, the others the other way. Each stage does what dualpipe_v's stage min(s, S-1-s) of
//                    S/2 does with M/2 micro-batches: M even, M >= 2S. At most S+1 in flight.
//
// A schedule is a row: a name and a function. Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_SCHEDULE_H_
#define MESHWRIGHT_PLANNER_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

enum class PassKind : uint8_t {
  kForward,
  kBackward,  // all of it, or without the gradients of parameters where the schedule splits it
  kWeights,   // the gradients of parameters
};
inline constexpr size_t kNumPassKinds = 3;
struct Pass {
  PassKind kind = PassKind::kForward;
  int64_t microbatch = 0;
  int64_t chunk = 0;  // of the stage
  // In turns with the next of the list: a forward with a backward pass of another micro-batch, a backward pass with the
  // W of the same one, layer by layer. Passes that are linked like this start and end together.
  bool with_next = false;
  friend bool operator==(const Pass&, const Pass&) = default;
};
inline Phase PhaseOf(PassKind kind) { return kind == PassKind::kForward ? Phase::kForward : Phase::kBackward; }

// Whether gradients of parameters have passes of their own.
bool SplitsBackward(Schedule schedule);

// Whether passes run in turns, with their collectives beside the kernels.
bool TakesTurns(Schedule schedule);

// Forward passes of a stage: micro-batches times chunks. A program lists them all, so that more of them would take
// gigabytes; steps that anybody runs have a few thousand.
inline constexpr int64_t kMostPasses = int64_t{1} << 16;

// Whether two chunks lie on each stage forth and back: dualpipe's second chunks are those of the other direction, whose
// first part is S, on the last stage.
bool IsV(Schedule schedule);

// In how many directions micro-batches go. Where it is 2, the parts [0, S) are the model, for the first half of the
// micro-batches, and so are [S, 2S), for the second.
int64_t DirectionsOf(Schedule schedule);

// kInvalidArgument: what the schedule cannot do, and what to do about it. OK where there is one stage.
absl::Status CheckSchedule(Schedule schedule, int64_t stages, int64_t microbatches);

// Part p of the pipeline is chunk p / S of its stage; `stage` has part PartAt(..., chunk).
int64_t StageOfPart(Schedule schedule, int64_t part, int64_t stages);
int64_t PartAt(Schedule schedule, int64_t stage, int64_t chunk, int64_t stages);

// REQUIRES: 0 <= stage < stages; microbatches >= 1; chunks as ChunksOf says, or >= 1; CheckSchedule is OK. dualpipe's
// second chunk is that of the other direction.
std::vector<Pass> PassesOfStage(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches,
                                int64_t chunks = 1);
// By stage: for zero_bubble_v faster than one after the other.
std::vector<std::vector<Pass>> PassesOf(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks = 1);

// How long a pass takes; a backward pass takes backward + weights where the schedule does not split it. A forward pass
// and the backward pass that it takes turns with take `saved` less than one after the other.
struct PassTimes {
  int64_t forward = 1, backward = 1, weights = 1, saved = 0;
};

// When each pass ends, if transfers take nothing: an order of all passes that every stage's agrees with. Empty if
// stages wait for each other. `passes`: those of PassesOf.
std::vector<std::vector<int64_t>> EndsOf(Schedule schedule, const std::vector<std::vector<Pass>>& passes,
                                         const PassTimes& times = {});
// One past the last of the passes that are linked with this one.
size_t EndOfLinked(const std::vector<Pass>& passes, size_t first);

// Of how many micro-batches the pass of kind `from` has been run and not yet that of kind `to`, at most; both of this
// chunk, or the latter of `to_chunk`.
int64_t MaxBetween(const std::vector<Pass>& passes, PassKind from, PassKind to, int64_t chunk, int64_t to_chunk);
// How many micro-batches have run forward and not yet backward through this chunk, at most.
inline int64_t MaxInFlight(const std::vector<Pass>& passes, int64_t chunk = 0) {
  return MaxBetween(passes, PassKind::kForward, PassKind::kBackward, chunk, chunk);
}
// Of all chunks at once: no more than the sum of theirs, whose peaks are at different times.
int64_t MaxInFlightTogether(const std::vector<Pass>& passes);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SCHEDULE_H_
