// What the runner needs from a kind of device: an arena, kernels, communication, events and clocks. One object per
// rank.
//
// Work is issued in the program's order. A back end may run it later, as long as each stream runs its work in order and
// waits are kept (ir/program.h, Meaning); the host runs it at once. An error may be reported by a later call, at the
// latest by Synchronize.
//
// Thread safety: one thread, the rank's own.
#ifndef MESHWRIGHT_EXECUTOR_BACKEND_H_
#define MESHWRIGHT_EXECUTOR_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/kernel_call.h"
#include "ir/program.h"

namespace meshwright {

// Where an instruction stands, for messages. Names belong to the Program.
struct Place {
  int64_t step = 0;
  int64_t slot = 0;
  absl::string_view block;
  int64_t layer = 0, microbatch = 0;
  size_t instruction = 0;
  absl::string_view origin;
};
// "slot 5 (layers forward, layer 2, micro-batch 1), instruction 7 (matmul)"
std::string ToText(const Place& place);
// What a message calls an instruction: where it comes from, or what it does.
absl::string_view TitleOf(const Instruction& instruction);

// One call for all pairs (reads[i], writes[i]); see Collective in ir/program.h. reads[i] and writes[i] may share
// memory.
struct CollectiveCall {
  const Collective* collective = nullptr;
  absl::Span<const int64_t> group;  // ranks, in order
  int64_t position = 0;             // of this rank
  absl::Span<const TensorView> reads, writes;
  int32_t root = 0;  // broadcast: its position, of the layer at hand
};

// Pieces that go to and come from single ranks, all in flight together. A rank may send to itself.
struct ExchangeCall {
  struct Part {
    int64_t peer;
    TensorView view;
  };
  bool transfer = true;  // between stages; else a permutation within one
  std::vector<Part> sends, receives;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Exactly that much memory, every byte 0xff: what nobody wrote reads as NaN or -1. Once per back end.
  // kResourceExhausted when there is not that much.
  virtual absl::StatusOr<std::byte*> AllocateArena(Bytes size) = 0;

  // Between host memory, which may be reused when the call returns, and the arena. CopyOut waits for what was issued on
  // the stream before; within a step for that alone, since other streams may wait for ranks that wait for this one.
  virtual absl::Status CopyIn(Stream stream, absl::Span<const std::byte> from, std::byte* to) = 0;
  virtual absl::Status CopyOut(Stream stream, const std::byte* from, absl::Span<std::byte> to) = 0;

  // The calls that follow are for this instruction: what a back end says of work that fails later.
  virtual void At(const Place&) {}

  virtual absl::Status RunKernel(Stream stream, const KernelCall& call) = 0;
  // to = the part of `from` that lies where `to` does in the whole.
  virtual absl::Status RunSlice(Stream stream, const TensorView& from, const TensorView& to) = 0;
  virtual absl::Status RunCollective(Stream stream, const CollectiveCall& call) = 0;
  virtual absl::Status RunExchange(Stream stream, const ExchangeCall& call) = 0;

  // Events are numbered by the runner from 0, `num_events` in all.
  virtual absl::Status PrepareEvents(int64_t num_events) = 0;
  virtual absl::Status Record(Stream stream, int64_t event) = 0;
  virtual absl::Status Wait(Stream stream, int64_t event) = 0;

  // Around the instructions of a step, after StartClock. Steps differ in their number and in what they are fed only, so
  // a back end may record one and do it again: it then asks for the copies of Feed instructions alone, in their order.
  // Marks are wanted where `marked`; such a step is never asked for feeds alone.
  enum class Wanted : uint8_t { kAll, kFeeds };
  virtual absl::StatusOr<Wanted> BeginStep(int64_t /*step*/, bool /*marked*/) { return Wanted::kAll; }
  // False: nothing has been done, and everything must be issued again, without another BeginStep.
  virtual absl::StatusOr<bool> EndStep() { return true; }

  // Returns when all streams are idle.
  virtual absl::Status Synchronize() = 0;
  // Returns when all ranks have called: the start of a step.
  virtual absl::Status Barrier() = 0;
  // What every rank gave, in order of rank; all ranks call together. For host memory, outside of a step.
  virtual absl::StatusOr<std::vector<std::string>> GatherAll(absl::string_view own) = 0;

  // The clock of one step: notes the time at which the stream gets here. MarkTimes, after Synchronize, gives the times
  // since StartClock in the order of the calls.
  virtual absl::Status StartClock() = 0;
  virtual absl::Status Mark(Stream stream) = 0;
  virtual absl::StatusOr<std::vector<Nanos>> MarkTimes() = 0;

  // Between steps, by all ranks: whether the library that carries collectives says what it expects of them. If so,
  // Estimate gives it for a call, which is not run; zero where it says nothing.
  virtual absl::StatusOr<bool> BeginEstimates() { return false; }
  virtual absl::StatusOr<Nanos> Estimate(Stream, const CollectiveCall&) { return Nanos(0); }

  // Tells the other ranks that this one stops.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_BACKEND_H_
