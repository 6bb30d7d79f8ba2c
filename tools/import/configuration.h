// A trainer's configuration as a model file: the readers, and which of them a text is for.
//
// Errors: those of the readers; kInvalidArgument for a text that looks like nothing that is known, with what is. What
// is written was read back: a model that no model file can say is an error here. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_CONFIGURATION_H_
#define MESHWRIGHT_TOOLS_IMPORT_CONFIGURATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/import/hints.h"
#include "tools/import/imported.h"

namespace meshwright {

// "megatron, megatron_log, ...".
std::string ConfigurationNames();

// Whether any of the readers takes the text for one of its own.
bool LooksLikeConfiguration(absl::string_view text);

// `from` is one of those names, or "": the first that the text looks like. The model is called as `file_name` is.
absl::StatusOr<Imported> ImportConfiguration(absl::string_view text, absl::string_view file_name,
                                             absl::string_view from, const ImportHints& hints);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_CONFIGURATION_H_
