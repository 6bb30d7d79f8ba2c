// Traces as torch.profiler writes them, for tests only.
#ifndef MESHWRIGHT_TOOLS_PROFILE_PROFILE_TESTING_H_
#define MESHWRIGHT_TOOLS_PROFILE_PROFILE_TESTING_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace meshwright {

// An event of category `category`. Times in microseconds, as text; no "dur" where that is "". `args`: further members,
// each behind a comma.
std::string ProfileEvent(absl::string_view category, absl::string_view name, absl::string_view begin,
                         absl::string_view duration, int stream = 7, absl::string_view args = "");

// The whole file of rank 1 of 8, on an H100, without what Kineto has beyond that.
std::string ProfileText(const std::vector<std::string>& events);

// In gzip's format.
std::string PackedAsGzip(const std::string& text);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PROFILE_PROFILE_TESTING_H_
