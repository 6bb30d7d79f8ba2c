// DeepSpeed's JSON file (its runtime/config.py and runtime/zero/config.py, 0.16) as a recipe. The model is its
// user's code: `import --model` names it. A value of "auto" is one that Hugging Face's Trainer fills in
// (transformers/integrations/deepspeed.py) or Accelerate does, and is left open but for the size of buckets, which
// follows from the model.
//
// ZeRO-2 is the optimizer's state and accumulated gradients in parts. With zero_hpz_partition_size parameters,
// gradients and the optimizer stay split over all replicas, and a second copy of the parameters is split over groups,
// from the first gather of a step to its end (partition_parameters.py): the plan has the first copy alone. Groups that
// have all between them, as the plan's have, are those of mics_shard_size. What DeepSpeed keeps on the host is a note
// where it is the optimizer, and else kUnimplemented.
//
// Errors: kInvalidArgument as ir/document.h says them. Thread safety: pure functions, but for ReadNamedModel.
#ifndef MESHWRIGHT_TOOLS_IMPORT_DEEPSPEED_H_
#define MESHWRIGHT_TOOLS_IMPORT_DEEPSPEED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/dtype.h"
#include "tools/export/recipe.h"
#include "tools/import/hints.h"

namespace meshwright {

bool LooksLikeDeepSpeed(absl::string_view text);

// What a launcher says where the file leaves it to it.
struct DeepSpeedLauncher {
  std::optional<DType> dtype = {};
  int64_t accumulated = 0;                          // micro-batches; 0: not said
  int64_t context = 0;                              // ranks that share a sequence; 0: not said
  std::optional<int64_t> world = {}, of_node = {};  // devices
  std::optional<NodeRef> place = {};                // of what no key says; not given: the file's beginning
};

absl::StatusOr<Recipe> ReadDeepSpeed(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                     const DeepSpeedLauncher& launcher, std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_DEEPSPEED_H_
