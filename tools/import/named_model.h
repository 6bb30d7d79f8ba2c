// The model of a trainer whose configuration does not say it: `import --model` names its file.
//
// Errors: kInvalidArgument at the place of the configuration, with the flag that is missing; those of the readers of
// config.json and of model files. Thread safety: pure functions, but for a model file that names a config.json.
#ifndef MESHWRIGHT_TOOLS_IMPORT_NAMED_MODEL_H_
#define MESHWRIGHT_TOOLS_IMPORT_NAMED_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ir/document.h"
#include "tools/export/recipe.h"
#include "tools/import/hints.h"

namespace meshwright {

// Sets the recipe's model, and how long its sequences are: as `hints` say, else as the configuration does (`sequence`),
// else as a model file does. `in` is the configuration.
absl::Status ReadNamedModel(const NodeRef& in, const ImportHints& hints, std::optional<int64_t> sequence,
                            Recipe& recipe, std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_NAMED_MODEL_H_
