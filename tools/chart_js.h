// Chart.js as its package has it, written into the program by tools/BUILD.bazel.
#ifndef MESHWRIGHT_TOOLS_CHART_JS_H_
#define MESHWRIGHT_TOOLS_CHART_JS_H_

#include "absl/strings/string_view.h"

namespace meshwright {

extern const absl::string_view kChartJs;

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_CHART_JS_H_
