// Reports that nccl-tests writes with -J: what its log says, as JSON.
//
// Errors: kInvalidArgument with the file, what was found and what was wanted. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_MEASURE_NCCL_JSON_H_
#define MESHWRIGHT_TOOLS_MEASURE_NCCL_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/measure/nccl_log.h"

namespace meshwright {

// Whether a text is such a report: an object with results.
bool LooksLikeNcclJson(absl::string_view text);

// The only test of a report. A row's line is its number among the results, from 1.
absl::StatusOr<NcclLog> ParseNcclJson(absl::string_view text, const std::string& path);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_NCCL_JSON_H_
