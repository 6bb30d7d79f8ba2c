#include "tools/training_data.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

constexpr char kImages[] = "train-images-idx3-ubyte";
constexpr int64_t kSyntheticDigits = 6400;
constexpr char kLabels[] = "train-labels-idx1-ubyte";

}  // namespace

absl::StatusOr<TrainingData> OpenTrainingData(const Training& training, uint64_t seed, std::string folder) {
  TrainingData data;
  if (training.data == DataSet::kNone) {
    data.source = std::make_unique<SyntheticData>(seed);
    return data;
  }
  if (folder.empty()) folder = training.data_path;
  if (const char* const path = std::getenv("DATA_PATH"); folder.empty() && path != nullptr) folder = path;
  if (folder.empty() && training.synthetic_data) {
    MnistData digits = MnistData::Synthetic(kSyntheticDigits, seed);
    data.steps_per_epoch = digits.size() / training.batch;
    data.source = std::make_unique<MnistData>(std::move(digits));
    return data;
  }
  if (folder.empty()) {
    return WithExit(ExitCode::kIo,
                    absl::FailedPreconditionError("training.data is mnist, and nothing says where it lies; give "
                                                  "--data=FOLDER or set DATA_PATH"));
  }
  const std::string train = absl::StrCat(folder, "/train");
  if (::access(absl::StrCat(train, "/", kImages).c_str(), F_OK) == 0) folder = train;
  absl::StatusOr<MnistData> mnist =
      MnistData::Load(absl::StrCat(folder, "/", kImages), absl::StrCat(folder, "/", kLabels), seed);
  if (!mnist.ok()) {
    return absl::IsNotFound(mnist.status()) ? WithExit(ExitCode::kIo, mnist.status()) : mnist.status();
  }
  data.steps_per_epoch = mnist->size() / training.batch;
  data.source = std::make_unique<MnistData>(*std::move(mnist));
  return data;
}

}  // namespace meshwright
