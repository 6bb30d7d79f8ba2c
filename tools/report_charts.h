// What the charts of `plan`, `simulate` and `whatif` show. The pages hold the text of the report, too.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_REPORT_CHARTS_H_
#define MESHWRIGHT_TOOLS_REPORT_CHARTS_H_

#include <vector>

#include "ir/program.h"
#include "planner/search/search.h"
#include "simulator/simulate.h"
#include "tools/chart.h"
#include "tools/sweep.h"

namespace meshwright {

// The ranked strategies: seconds by use, and bytes by what they hold on the fullest stage.
std::vector<Chart> ChartsOf(const SearchResult& result);
// The stages: seconds by use, and memory over the step. `result` was asked for memory.
std::vector<Chart> ChartsOf(const Program& program, const SimulationResult& result);
// The kinds of devices over their number: work per second, MFU, and what a run costs where that was asked.
std::vector<Chart> ChartsOf(const SweepReport& report);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_REPORT_CHARTS_H_
