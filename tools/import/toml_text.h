// TOML as a document of ours (ir/document.h): the one reader of files sees its values where the TOML has them, so that
// errors name the right line and column. Keys are whole: "training.seq_len", not a map in a map.
//
// Errors: kInvalidArgument as `file:line:column: ..`. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_TOML_TEXT_H_
#define MESHWRIGHT_TOOLS_IMPORT_TOML_TEXT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"

namespace meshwright {

// Arrays of scalars and of such arrays are lists. A table in an array is an empty map.
absl::StatusOr<Document> ParseToml(absl::string_view text, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_TOML_TEXT_H_
