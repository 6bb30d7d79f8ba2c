// How a Trace is drawn, whatever the file it goes to: a process per rank, threads for its streams, slices with names,
// and arrows from sends to receives. ir/trace.h writes it as Chrome JSON, ir/perfetto_trace.h as Perfetto's protobuf.
//
// Thread safety: pure function.
#ifndef MESHWRIGHT_IR_TRACE_DRAWING_H_
#define MESHWRIGHT_IR_TRACE_DRAWING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/program.h"
#include "ir/trace.h"

namespace meshwright {

struct DrawnThread {
  int64_t thread = 0;  // number within its rank; thread % number of streams is the stream
  std::string name;    // "compute", "compute 2"
};

struct DrawnRank {
  int64_t rank = 0;
  std::string name;  // "rank 16 (stage 1)"
  std::vector<DrawnThread> threads;
};

// Of one span. What the program does not know is called "unknown".
struct DrawnSlice {
  int64_t thread = 0;
  absl::string_view name, category;   // of the program, or constants
  absl::string_view origin;           // the op that the instruction comes from; empty: none
  int64_t microbatch = -1;            // -1: unknown
  uint64_t departs = 0, arrives = 0;  // the flow that begins or ends here, the first is 1; 0: none
};

// From a send to the receive that it meets.
struct DrawnFlow {
  size_t from = 0, to = 0;  // spans
  Nanos begin, end;         // end: inside the receive, and not before `begin` where that can be
};

struct TraceDrawing {
  std::vector<DrawnRank> ranks;    // ascending
  std::vector<DrawnSlice> slices;  // by span
  std::vector<DrawnFlow> flows;    // by ranks, then in order of issue
  // All spans as a file has them: what a flow arrives at comes last. Viewers go by time and, of what begins at once, by
  // place in the file, and drop a flow whose end they meet before its beginning.
  std::vector<size_t> order;
};

// Refers into `program`, which must outlive it. A stream runs one thing at a time, so one thread serves it; should the
// spans of a (measured) trace overlap all the same, the later one moves to a further thread of the stream, since
// viewers do not show slices that cross.
TraceDrawing Draw(const Trace& trace, const Program& program);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_TRACE_DRAWING_H_
