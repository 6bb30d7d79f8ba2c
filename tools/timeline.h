// A trace in the format that its file's name asks for.
//
//   NAME.json       Chrome JSON (ir/trace.h); so is any other name
//   NAME.json.gz    the same in gzip's format (RFC 1952), about a tenth of it; viewers open it as it is
//   NAME.pftrace    Perfetto's own (ir/perfetto_trace.h), less than half of the first
//
// The same trace gives the same bytes: no name or time stands in the archive. Thread safety: pure function.
#ifndef MESHWRIGHT_TOOLS_TIMELINE_H_
#define MESHWRIGHT_TOOLS_TIMELINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "ir/program.h"
#include "ir/trace.h"

namespace meshwright {

std::string TimelineFor(absl::string_view file, const Trace& trace, const Program& program);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_TIMELINE_H_
