// The batches that a run trains on, as the training section of a model file asks for them.
#ifndef MESHWRIGHT_TOOLS_TRAINING_DATA_H_
#define MESHWRIGHT_TOOLS_TRAINING_DATA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/data.h"
#include "models/operators.h"
#include "models/training.h"

namespace meshwright {

struct TrainingData {
  std::unique_ptr<const DataSource> source;
  int64_t steps_per_epoch = 0;  // 0: data without an end, all of it one epoch
  std::vector<std::string> notices;
};

// What the training section asks for, for the inputs of a model of operators. `folder` is where the data set lies; ""
// takes training.data_path, else the environment's DATA_PATH. MNIST's files are looked for there and in `train`, with
// their usual names. Errors: ExitCode::kIo where files cannot be read.
absl::StatusOr<TrainingData> OpenTrainingData(const Training& training, absl::Span<const InputSpec> inputs,
                                              uint64_t seed, std::string folder);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_TRAINING_DATA_H_
