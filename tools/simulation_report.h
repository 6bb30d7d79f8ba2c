// What `simulate` says: the step's time by use on every stage, and memory over time.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_SIMULATION_REPORT_H_
#define MESHWRIGHT_TOOLS_SIMULATION_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/simulate.h"
#include "simulator/variation.h"
#include "tools/json_text.h"

namespace meshwright {

// 80 columns. `result` was asked for memory. `varied`: the same step where devices vary.
std::string ToText(const Program& program, const SimulationResult& result,
                   const std::optional<StepTimes>& varied = std::nullopt);
Json ToJson(const Program& program, const SimulationResult& result,
            const std::optional<StepTimes>& varied = std::nullopt);

// The use of memory over a step as a line of `columns` digits: '7' where the most in use in that part of the step is
// between 70 % and 80 % of `whole`, '#' from 100 % on.
std::string MemoryLine(const std::vector<MemoryPoint>& points, Nanos end, Bytes whole, size_t columns);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_SIMULATION_REPORT_H_
