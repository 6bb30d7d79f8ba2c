// A Program unrolled into tasks: what one rank of each class puts on its streams, with waits and partners resolved.
//
// A task is one communication, or a run of kernels of the compute stream that nothing outside of the stream can tell
// apart: no event that another stream waits for is recorded inside of it, and it waits only at its beginning. A run
// covers several layers where a block is nothing but one such run. So the number of tasks grows with what the streams
// have to say to each other, not with the number of instructions. Folding says how far this goes.
//
// Everything here is decided by issue order and needs no times: which record a wait means (the latest one issued before
// it) and which receive a send meets (the n-th the n-th).
//
// Thread safety: plain values; functions are pure.
#ifndef MESHWRIGHT_SIMULATOR_TASKS_H_
#define MESHWRIGHT_SIMULATOR_TASKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/class_copies.h"
#include "simulator/price.h"
#include "simulator/time_use.h"

namespace meshwright {

inline constexpr size_t kNumStreams = static_cast<size_t>(Stream::kNumStreams);

// One instruction inside a run.
struct Piece {
  const InstructionPrice* price = nullptr;
  TimeUse use = TimeUse::kForward;
  bool communicates = false;  // a collective on the compute stream
  int32_t instruction = 0;    // in its block
};

// How a piece goes beside the same communication from its run's beginning to its end.
struct PieceAtPace {
  Nanos before;      // time of the pieces before it
  Nanos alone;       // its own without that communication
  int32_t rate = 0;  // in kWhole-ths
};

// What becomes one task each time the block runs.
struct Run {
  Stream stream = Stream::kCompute;
  int32_t first_piece = 0, num_pieces = 0;                 // in UnrolledBlock::pieces
  int32_t first_alone = 0;                                 // in UnrolledBlock::alone
  Nanos time;                                              // all pieces, each run alone
  absl::InlinedVector<std::pair<TimeUse, Nanos>, 4> uses;  // what `time` is spent on
  bool takes = false;                                      // some piece communicates and takes something
  std::array<int32_t, kNumLinks> links = {};               // the most that a piece takes of each link
  int32_t shared = 0;  // links that it shares with other classes: one more than the largest of their numbers
  bool is_transfer = false, send = false;
  int32_t stage_offset = 0;  // transfers: how many classes away the other half is
  absl::InlinedVector<EventRef, 2> waits, records;
};

struct UnrolledBlock {
  struct Action {
    bool record = false;  // or else: issue
    int32_t run = 0;
  };
  std::vector<Piece> pieces;
  std::vector<PieceAtPace> alone;  // of each run its pieces, and one behind the last, beside nothing
  std::vector<Run> runs;
  std::vector<Action> actions;  // in issue order
};

struct Task {
  const UnrolledBlock* block = nullptr;
  const Run* run = nullptr;
  int32_t slot = 0;
  int32_t layer = 0;                      // the first
  int32_t count = 1;                      // layers
  int32_t previous = -1;                  // the task before it on its stream
  int32_t place = 0;                      // on its stream
  int32_t first_wait = 0, num_waits = 0;  // in TaskList::waits
  int32_t partner = -1;                   // transfers: the other half, in its class

  Nanos time() const { return run->time * count; }
  // Transfers: the class of the other half, for a task of class `c`.
  size_t PeerOf(size_t c) const { return c + static_cast<size_t>(run->stage_offset); }
  const Piece& piece(int32_t index) const { return block->pieces[static_cast<size_t>(run->first_piece + index)]; }
  const PieceAtPace* alone() const { return &block->alone[static_cast<size_t>(run->first_alone)]; }
};

// What a task waits for, and where that stands.
struct Wait {
  int32_t task = 0, place = 0;
  Stream stream = Stream::kCompute;
};

// Of one class.
struct TaskList {
  std::shared_ptr<const std::vector<UnrolledBlock>> blocks;  // classes that run the same share them
  std::vector<Task> tasks;                                   // in issue order
  std::vector<Wait> waits;
  std::array<std::vector<int32_t>, kNumStreams> streams;  // tasks of each stream, in issue order
};

enum class Folding : uint8_t {
  kNone,  // every instruction is its own task
  kRuns,  // as above
  // And what takes no time is no task: the next one on its stream waits for what it waits for, and it happens when the
  // one before it ends. All other tasks begin and end as they did, but which of them held up a stream is not to be
  // seen.
  kRunsWithoutSyncs,
};

// One list per class. `prices` must outlive the result, which points into it.
//
// kInvalidArgument: the prices are of another program, a price is negative, an id or layer is out of range, or a
// transfer has no partner; kFailedPrecondition: an instruction has no finite price (kForever); kUnimplemented: a
// collective over stages. The message names the instruction.
absl::StatusOr<std::vector<TaskList>> Unroll(const Program& program, const Prices& prices, Folding folding,
                                             const ClassCopies& copies = {});

// "stage 0 slot 12 (layers forward, micro-batch 3, layer 7) attention": for messages.
std::string Describe(const Program& program, size_t class_index, const Task& task);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_TASKS_H_
