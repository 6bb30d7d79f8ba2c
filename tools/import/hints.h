// What a trainer's configuration leaves open and flags of `import` say. Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_HINTS_H_
#define MESHWRIGHT_TOOLS_IMPORT_HINTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/export/recipe.h"

namespace meshwright {

struct ImportHints {
  std::optional<int64_t> vocab = {};                  // words, where a tokenizer's file says how many
  std::optional<int64_t> batch = {};                  // sequences of a step
  std::optional<int64_t> devices = {};                // of the job
  std::string device = {};                            // a name of the library; "": not known
  std::map<std::string, std::string> variables = {};  // of a script, that its environment would have
};

// How a job is started: torchrun's options, mpirun's, Slurm's directives.
struct LaunchSize {
  std::optional<int64_t> nodes, per_node, ranks;
};

// What a degree, a number of nodes or of devices on one, and what a step's parts may be at most: products of four of
// the first, or of three of the others, are integers still. No run is near.
inline constexpr int64_t kMostOfDegree = int64_t{1} << 15, kMostOfStep = int64_t{1} << 18;

// Sets the recipe's cluster and `data` by how many devices there are: `hints` before `world`, what the configuration
// says (nothing: not known). Its other degrees are set. A note where a plan will have to be told more. kInvalidArgument
// where the degrees do not make up the devices.
absl::Status SetDevices(const ImportHints& hints, std::optional<int64_t> world, std::optional<int64_t> of_node,
                        Recipe& recipe, std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_HINTS_H_
