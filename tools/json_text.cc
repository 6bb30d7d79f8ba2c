#include "tools/json_text.h"

#include <algorithm>

namespace meshwright {

std::string ToText(const Json& json) { return json.dump(2) + "\n"; }

double JsonSeconds(Nanos time) { return static_cast<double>(time.raw()) / 1e9; }

std::string JsonKey(absl::string_view name) {
  std::string key(name);
  key.erase(std::remove(key.begin(), key.end(), '\''), key.end());
  std::replace(key.begin(), key.end(), ' ', '_');
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

Json ToJson(const TimeUses& times) {
  Json out = Json::object();
  for (const TimeUseInfo& row : kTimeUses) out[JsonKey(row.name)] = JsonSeconds(times[row.use]);
  return out;
}

Json ToJson(const BytesByRole& memory) {
  Json out = Json::object();
  for (size_t role = 0; role < kNumRoles; ++role) {
    out[JsonKey(NameOf(static_cast<BufferRole>(role)))] = memory[role].raw();
  }
  return out;
}

}  // namespace meshwright
