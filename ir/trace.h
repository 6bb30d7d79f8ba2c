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
  int64_t rank = 0;   // simulated traces: the first rank of the class
  uint32_t slot = 0;  // RankClass::slots
  int32_t layer = 0;
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

// Chrome trace JSON (https://ui.perfetto.dev opens it): one process per rank, one thread per stream, flows from send to
// receive, memory counters. `args` of each slice hold slot, layer, micro-batch and instruction, so that ParseChromeJson
// gives the same Trace back (times below 46 days exactly). Slices of one thread do not overlap: spans that do (of a
// measured trace whose clocks disagree) get threads of their own. Spans that name nothing in `program` are "unknown".
// Deterministic; one event per line.
std::string ToChromeJson(const Trace& trace, const Program& program);

// kInvalidArgument says which event lacks what. Other kinds of events are passed over.
absl::StatusOr<Trace> ParseChromeJson(const std::string& json);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_TRACE_H_
