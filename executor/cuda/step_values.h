// Numbers that kernels of a recorded step read and that change from step to step: an optimizer's corrections, the key
// of a random mask. They have a place in device memory, which is written anew at the start of each step.
//
// Thread safety: one thread, the rank's own.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_STEP_VALUES_H_
#define MESHWRIGHT_EXECUTOR_CUDA_STEP_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/cuda/driver.h"

namespace meshwright::cuda {

class StepValues {
 public:
  static constexpr int64_t kMost = 4096;  // values

  // A value of 8 bytes; `step` counts from 1, as KernelCall's.
  using Value = std::function<uint64_t(int64_t step)>;

  explicit StepValues(Driver& driver) : driver_(driver) {}
  ~StepValues();
  StepValues(const StepValues&) = delete;
  StepValues& operator=(const StepValues&) = delete;

  // Memory for all of them; once, before the rest.
  absl::Status Prepare();

  // Where a kernel finds the value of its step. One name, one value. kResourceExhausted when there is no place left.
  absl::StatusOr<const std::byte*> Get(const std::string& name, Value value);

  // Computes them for a step; the device has not read what was there, or is done with it.
  void Write(int64_t step);
  // Queues the copy of all places, used or not: the same for every step.
  absl::Status Copy(DeviceStream stream);
  void Forget();  // all values

 private:
  Driver& driver_;
  std::byte *host_ = nullptr, *device_ = nullptr;
  std::map<std::string, size_t> places_;
  std::vector<Value> values_;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_STEP_VALUES_H_
