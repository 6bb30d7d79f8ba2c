// Which keys of a trainer's configuration are read, and what becomes of the others: a table for each trainer, a row for
// each key. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_KNOWN_KEYS_H_
#define MESHWRIGHT_TOOLS_IMPORT_KNOWN_KEYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/document.h"

namespace meshwright {

enum class KeyUse : uint8_t {
  kRead,
  kIgnored,  // neither time nor memory of a step depend on it
  kLeftOut,  // changes them, and a model file cannot say it: a note
  kRefused,  // changes them by far
};

struct KnownKey {
  absl::string_view section;  // "": the top level
  absl::string_view key;      // one that ends in '.': all that begin so
  KeyUse use;
  absl::string_view text = "";  // kLeftOut: the note; kRefused: what is wanted in its place
};

// Whether a setting is on: a scalar but for false, no, none, 0 and their like; a map whose `enabled` is on, or whose
// `device` is one, or that has neither and is not empty.
bool IsOn(const NodeRef& setting);

// A note for each setting that is on and left out, and one for all keys without a row, of the top level and of the
// sections that have rows. kUnimplemented, at its place: one that is on and refused.
absl::Status CheckKnownKeys(const NodeRef& root, absl::Span<const KnownKey> rows, std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_KNOWN_KEYS_H_
