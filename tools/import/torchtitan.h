// torchtitan's TOML file (its config_manager.py and config/job_config.py of 2024 and 2025) as a recipe. Llama 3's sizes
// are known by their flavors; of other models `import --model` names the config.json. How many devices there are is
// torchrun's, unless the degrees say all of it.
//
// What is not compiled runs a kernel for each step of norms, positions and gates, and of the loss: unfused in the plan.
//
// Errors: kInvalidArgument as ir/document.h says them; kUnimplemented for parameters that are kept on the host. Thread
// safety: pure functions, but for ReadNamedModel.
#ifndef MESHWRIGHT_TOOLS_IMPORT_TORCHTITAN_H_
#define MESHWRIGHT_TOOLS_IMPORT_TORCHTITAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "tools/export/recipe.h"
#include "tools/import/hints.h"

namespace meshwright {

bool LooksLikeTorchtitan(absl::string_view text);

// `in` is as ParseToml makes it (toml_text.h).
absl::StatusOr<Recipe> ReadTorchtitan(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                      std::vector<std::string>& notes);

// --- for tests -------------------------------------------------------------------------------------------------------

// Layers of each of `parts`, evenly, where the first and the last have so many less (generate_llm_fqn_per_model_part);
// empty where a part would have none.
std::vector<int64_t> DealLayers(int64_t layers, int64_t parts, int64_t less_first, int64_t less_last);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_TORCHTITAN_H_
