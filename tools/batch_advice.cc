#include "tools/batch_advice.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace meshwright {

std::string AdviceOnBatch(const Session& session, int64_t data_parallel) {
  const int64_t batch = session.problem.batch, devices = session.problem.cluster.num_devices();
  const int64_t sharing = std::gcd(batch, devices), below = batch / devices * devices;
  if (!session.file->is_decoder() || below == 0 || sharing == devices || data_parallel != sharing) return "";
  return absl::StrCat("a batch of ", batch, " is no multiple of ", devices, " devices: at most ", sharing,
                      " can share it; ", below, " or ", below + devices, " would leave more plans");
}

}  // namespace meshwright
