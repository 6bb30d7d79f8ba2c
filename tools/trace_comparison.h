// Predicted against measured, instruction by instruction: joins a simulated and a measured trace of one program.
//
// Instructions join by (stage, slot, layer, instruction). A simulated trace has the first rank of each stage; a
// measured one has all ranks, and rank r belongs to the stage whose first rank is the last one not above r. Of an
// instruction's times on the ranks of a stage, the median counts for what a rank does alone, the least for
// communication: the rank that comes last does not wait. A receive still contains the wait for its sender.
//
// Instructions that do the same (same stage, operator, origin and stream, in other layers and micro-batches) are one
// row of the table; `differences` are of the rows' sums.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_TRACE_COMPARISON_H_
#define MESHWRIGHT_TOOLS_TRACE_COMPARISON_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/quantities.h"
#include "ir/trace.h"
#include "tools/json_text.h"

namespace meshwright {

// A trace with what its file says about each instruction.
struct NamedTrace {
  Trace trace;
  std::string program;
  struct Name {
    std::string name, category, origin;  // "MatMul", "forward", "layers/qkv"
  };
  using Place = std::tuple<int64_t, uint32_t, int32_t, int32_t>;  // rank, slot, layer, instruction
  std::map<Place, Name> names;
};
// A file that --trace wrote. Errors name the file.
absl::StatusOr<NamedTrace> ParseNamedTrace(const std::string& json, absl::string_view file_name);

struct ComparedRow {
  int64_t stage = 0;
  std::string name, category, origin;
  int64_t instructions = 0;   // of one rank, that were joined
  Nanos simulated, measured;  // their sums
  Nanos library;              // what the collectives' library expected of them (run --nccl_estimates); 0: nothing
  Nanos difference() const { return measured - simulated; }
};

struct Comparison {
  std::string program;
  Nanos simulated_step, measured_step;
  int64_t joined = 0, only_simulated = 0, only_measured = 0;  // instructions of one rank per stage
  std::vector<ComparedRow> rows;                              // the largest difference first
};

// kInvalidArgument: the traces are not one simulated and one measured, of one program, with all instructions.
absl::StatusOr<Comparison> Compare(const NamedTrace& simulated, const NamedTrace& measured);

// 80 columns: the totals, the sums by category, the `worst` rows that differ most.
std::string ToText(const Comparison& comparison, size_t worst);
Json ToJson(const Comparison& comparison);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_TRACE_COMPARISON_H_
