// What the back end runs on a device besides communication: one kernel per operator, and copies between strided places.
//
//   device     executor/cuda/device_kernels.h
//   stand-in   executor/cuda/testing/stand_in.h: the host's kernels, in the order of the streams
//
// Thread safety: that of the driver.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/step_values.h"
#include "executor/kernel_call.h"

namespace meshwright::cuda {

// to[i...] = from[i...] for all i below `extents`; strides in elements.
struct StridedCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t element = 1;  // bytes
  Shape extents, from_strides, to_strides;
};

// Device memory that a kernel needs beside its operands, one block per stream: valid until the stream's next request.
// It grows and is kept.
class Scratch {
 public:
  explicit Scratch(Driver& driver) : driver_(driver) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least `size` bytes, aligned; what is there is undefined.
  absl::StatusOr<std::byte*> Get(DeviceStream stream, Bytes size);
  // No work is under way: blocks that were outgrown can go. After Keep none goes: recorded work uses them.
  void Release();
  void Keep() { keep_ = true; }
  Bytes held() const { return held_; }

 private:
  struct Block {
    std::byte* data = nullptr;
    Bytes size;
  };
  Driver& driver_;
  std::map<DeviceStream, Block> blocks_;
  std::vector<std::byte*> outgrown_;
  bool keep_ = false;
  Bytes held_;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  // With `values` the work is recorded, to be done in other steps than `call.step` too: what depends on the step is
  // read from there.
  virtual absl::Status Run(DeviceStream stream, const KernelCall& call, Scratch& scratch, StepValues* values) = 0;
  virtual absl::Status Copy(DeviceStream stream, const StridedCopy& copy) = 0;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_H_
