// Megatron-LM's arguments (megatron/training/arguments.py, those of 2020 to 2026) as a recipe: out of the script that
// starts pretrain_gpt.py or pretrain_hybrid.py, or of a log, which lists them all with their values when it starts. The
// recipes of Megatron-Bridge and NeMo have other names and are not read.
//
// What Megatron does where an argument is missing is done here, too: heads of hidden / heads, 8/3 of the width behind a
// gate, a vocabulary padded to 128 times the tensor-parallel ranks. Left out with a note is what a model file cannot
// say; what it cannot even come near is kUnimplemented. Of arguments that nobody asks for their names are told.
//
// Errors: kInvalidArgument as `file:line: --name: found X, wanted Y`. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_MEGATRON_H_
#define MESHWRIGHT_TOOLS_IMPORT_MEGATRON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/export/recipe.h"
#include "tools/import/hints.h"
#include "tools/import/options.h"

namespace meshwright {

// One of these is on every command line of Megatron's.
const std::vector<absl::string_view>& MegatronOptions();

// `name` is the model's. Notes are added to those of the options.
absl::StatusOr<Recipe> ReadMegatron(Options& options, absl::string_view name, const ImportHints& hints);

// --- for tests -------------------------------------------------------------------------------------------------------

// "([0]*3+[1]*58)", "[0,1]*2": lists, their sums and multiples, at most kMostLayers of 0 and 1.
absl::StatusOr<std::vector<int>> ReadListExpression(absl::string_view text);

// "Et*3|(t*4|)*6t*3L": of each part of the pipeline its layers.
absl::StatusOr<std::vector<int64_t>> ReadPipelineLayout(absl::string_view text);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_MEGATRON_H_
