// What simulator and executors both report: begin and end of every instruction, or of every slot where that is asked.
//
// Instructions are identified by where they stand in the Program, so that a simulated and a measured trace join.
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_IR_TRACE_H_
#define MESHWRIGHT_IR_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace meshwright {

struct Span {
  int64_t rank = 0;          // simulated traces: the first rank of the class
  uint32_t slot = 0;         // RankClass::slots
  int32_t layer = 0;         // 0 for a whole slot
  int32_t instruction = -1;  // in the slot's block; -1: the whole slot on this stream
  Stream stream = Stream::kCompute;
  Nanos begin, end;           // from the start of the step
  Nanos estimate = Nanos(0);  // what the communication library itself expects of it; 0: it says nothing
  friend bool operator==(const Span&, const Span&) = default;
};

// Arena in use over time; `bytes` from this moment on.
struct MemoryPoint {
  int64_t rank = 0;
  Nanos time;
  Bytes bytes;
  friend bool operator==(const MemoryPoint&, const MemoryPoint&) = default;
};

struct Trace {
  std::string source;  // "simulated" or "measured"
  Nanos makespan;
  std::vector<Span> spans;  // ordered by (rank, stream, begin)
  std::vector<MemoryPoint> memory;
};

// Chrome trace JSON (chrome://tracing and https://ui.perfetto.dev open it): one process per rank, one thread per
// stream, flows from send to receive, memory counters. `args` of each slice hold slot and micro-batch and, but for
// whole slots, layer and instruction, so that ParseChromeJson gives the same Trace back (times below 46 days exactly).
// Slices of one thread do not overlap: spans that do (of a measured trace whose clocks disagree) get threads of their
// own. Spans that name nothing in `program` are "unknown". Deterministic; one event per line.
//
// A flow is two fields of either slice (`bind_id` with `flow_out` or `flow_in`), a third of what two events of its own
// take. Both viewers drop it where the receive began before its send (which measured ones do, to wait): such a flow is
// two events, `s` and `f`. Source: the importers, trace_event_importer.html of catapult and flow_tracker.cc of
// Perfetto. Whole slots have no category, as their names say what they are.
std::string ToChromeJson(const Trace& trace, const Program& program);

// Spans come in the order of Trace. kInvalidArgument says which event lacks what. Other kinds of events are passed
// over.
absl::StatusOr<Trace> ParseChromeJson(const std::string& json);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_TRACE_H_
