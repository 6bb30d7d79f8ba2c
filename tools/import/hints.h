// What a trainer's configuration leaves open and flags of `import` say. Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_HINTS_H_
#define MESHWRIGHT_TOOLS_IMPORT_HINTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/export/recipe.h"

namespace meshwright {

// A file that a flag names.
struct NamedFile {
  std::string path, text;  // "": not given

  bool given() const { return !path.empty(); }
};

struct ImportHints {
  std::optional<int64_t> vocab = {};                  // words, where a tokenizer's file says how many
  std::optional<int64_t> batch = {};                  // sequences of a step
  std::optional<int64_t> devices = {};                // of the job
  std::string device = {};                            // a name of the library; "": not known
  std::map<std::string, std::string> variables = {};  // of a script, that its environment would have
  std::optional<int64_t> sequence = {};               // tokens of one
  NamedFile model = {};                               // a config.json or a model file of ours
  NamedFile deepspeed = {};                           // a ds_config.json that the configuration names
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

// A note of configurations of Hugging Face's users.
inline constexpr absl::string_view kRecomputeIsCode =
    "whether layers are run again is said in code there (gradient checkpointing): the plan chooses, or "
    "--recompute=full";

// What a configuration says of a step. 0: nothing.
struct StepParts {
  int64_t rows = 0;         // sequences of a micro-batch on one replica
  int64_t accumulated = 0;  // micro-batches
  int64_t batch = 0;        // sequences of the step
};

// How many replicas make up such a step, where all of it is said: else nothing.
std::optional<int64_t> ReplicasOf(const StepParts& step);

// Sets the recipe's batch and micro-batch. `hints` before `step`; what two of these numbers and the replicas, which are
// set, make of the third is not asked for. A note where the plan chooses the micro-batch. kInvalidArgument where they
// do not fit together, or nothing says the batch.
absl::Status SetStep(const ImportHints& hints, StepParts step, Recipe& recipe, std::vector<std::string>& notes);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_HINTS_H_
