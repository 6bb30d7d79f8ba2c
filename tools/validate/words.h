// Words in the cells of tables.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_WORDS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_WORDS_H_

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace meshwright {

// Whether the lower-case `text` holds one of `words`.
inline bool HasAny(absl::string_view text, absl::Span<const absl::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](absl::string_view word) { return absl::StrContains(text, word); });
}

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_WORDS_H_
