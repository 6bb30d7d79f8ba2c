// Plays the threads of kernels on the host: the very text that nvcc compiles for devices, on a stand-in's streams;
// those for tensor cores by warp_player.h. For tests only.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_EMULATED_LAUNCHER_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_EMULATED_LAUNCHER_H_

#include <string>
#include <vector>

#include "executor/cuda/kernels/launcher.h"
#include "executor/cuda/testing/stand_in.h"

namespace meshwright::cuda::testing {

class EmulatedLauncher : public KernelLauncher {
 public:
  // Blocks have `threads` threads, or fewer where the kernel wants fewer; with more than one they are real threads.
  explicit EmulatedLauncher(StandInDriver& driver, int threads = 1) : driver_(driver), threads_(threads) {}

#define MESHWRIGHT_LAUNCH(Body) \
  absl::Status Launch(DeviceStream stream, const LaunchShape& shape, bool wide, const Body& body) override;
  MESHWRIGHT_BODIES(MESHWRIGHT_LAUNCH)
#undef MESHWRIGHT_LAUNCH

  // The names of the bodies, in the order in which they were launched.
  const std::vector<std::string>& launched() const { return launched_; }

 private:
  template <class Body>
  absl::Status Queue(DeviceStream stream, const LaunchShape& shape, bool wide, const Body& body);

  StandInDriver& driver_;
  const int threads_;
  std::vector<std::string> launched_;
};

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_EMULATED_LAUNCHER_H_
