// nanotron's YAML file (its config/config.py and models_config.py, 2024 to 2026) as a recipe. Its Llama alone is read.
//
// Errors: kInvalidArgument as ir/document.h says them. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_NANOTRON_H_
#define MESHWRIGHT_TOOLS_IMPORT_NANOTRON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "tools/export/recipe.h"
#include "tools/import/hints.h"

namespace meshwright {

bool LooksLikeNanotron(absl::string_view text);

absl::StatusOr<Recipe> ReadNanotron(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                    std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_NANOTRON_H_
