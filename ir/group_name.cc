#include "ir/group_name.h"

#include "absl/strings/str_cat.h"

namespace meshwright {

std::string GroupName(absl::Span<const int64_t> ranks) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int64_t rank : ranks) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash ^= static_cast<uint64_t>(rank) >> shift & 0xff;
      hash *= 0x100000001b3u;
    }
  }
  return absl::StrCat(ranks.size(), "-", hash);
}

}  // namespace meshwright
