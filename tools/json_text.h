// JSON as the tools write it: keys in a fixed order, SI base units in their names, two spaces of indentation, doubles
// in their shortest form that reads back the same, so that equal results are equal bytes.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_JSON_TEXT_H_
#define MESHWRIGHT_TOOLS_JSON_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "simulator/memory.h"
#include "simulator/time_use.h"

namespace meshwright {

using Json = nlohmann::ordered_json;

// With a newline at the end.
std::string ToText(const Json& json);

// The double nearest to the decimal fraction: 1.1713e-05, not 1.1713000000000001e-05.
double JsonSeconds(Nanos time);

// A name as a key: "pipeline bubble" is pipeline_bubble, "framework's difference" frameworks_difference.
std::string JsonKey(absl::string_view name);

// {"forward": 1.5, ...} in seconds, {"parameter": 1024, ...} in bytes: all rows.
Json ToJson(const TimeUses& times);
Json ToJson(const BytesByRole& memory);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_JSON_TEXT_H_
