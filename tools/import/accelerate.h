// The file that `accelerate config` writes for Hugging Face Accelerate (its commands/config/config_args.py, up to
// 1.15) as a recipe: DDP, FSDP 1 and 2, DeepSpeed, Megatron-LM, and the degrees of its parallelism_config. The model is
// its user's code: `import --model` names it, and `--deepspeed` the DeepSpeed file, where one is named there. What the
// code says, too, such as the batch, is a flag's.
//
// Parameters under mixed precision are float32 beside autocast there, and in 16 bits with a float32 copy in the plan.
//
// Errors: kInvalidArgument as ir/document.h says them; kUnimplemented for other kinds of devices, and for parameters
// that are kept on the host. Thread safety: pure functions, but for ReadNamedModel.
#ifndef MESHWRIGHT_TOOLS_IMPORT_ACCELERATE_H_
#define MESHWRIGHT_TOOLS_IMPORT_ACCELERATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "tools/export/recipe.h"
#include "tools/import/hints.h"

namespace meshwright {

bool LooksLikeAccelerate(absl::string_view text);

absl::StatusOr<Recipe> ReadAccelerate(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                      std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_ACCELERATE_H_
