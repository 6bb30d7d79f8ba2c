// Writes a Trace in Perfetto's own format, a protobuf, which https://ui.perfetto.dev and its trace processor read.
//
// A process per rank with a track for each stream's thread and a counter for memory, slices named after instruction and
// op with slot, layer and micro-batch, flows from send to receive. Less than half of the Chrome JSON of
// ir/trace.h, and nothing is lost to microseconds; but only Chrome JSON is read back.
//
// Thread safety: pure function. Deterministic.
#ifndef MESHWRIGHT_IR_PERFETTO_TRACE_H_
#define MESHWRIGHT_IR_PERFETTO_TRACE_H_

#include <string>

#include "ir/program.h"
#include "ir/trace.h"

namespace meshwright {

std::string ToPerfetto(const Trace& trace, const Program& program);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_PERFETTO_TRACE_H_
