// What one rank has issued in this step and how far its device has come: for saying which instruction a device is in
// when something goes wrong. An event behind each instruction, and one before it where it waits for other streams.
//
// Thread safety: one thread, the rank's own.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_PROGRESS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_PROGRESS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "executor/backend.h"
#include "executor/cuda/communication.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/stall.h"

namespace meshwright::cuda {

inline constexpr size_t kNumStreams = static_cast<size_t>(Stream::kNumStreams);

class Progress {
 public:
  explicit Progress(Driver& driver) : driver_(driver) {}
  ~Progress();

  void At(const Place& place) { place_ = place; }
  const Place& place() const { return place_; }

  // The stream is about to wait for another.
  void Waits(Stream stream) { waits_[static_cast<size_t>(stream)] = true; }
  // Around what is issued to a stream for the current instruction.
  absl::Status Begin(Stream stream, DeviceStream device, const LaunchId& launch);
  absl::Status End(Stream stream, DeviceStream device);
  // All streams are idle.
  void Clear();

  // `idle`: the rank has no work, it waits for the others.
  StallReport Report(bool idle);

 private:
  struct Issued {
    DeviceEvent begin, end;  // begin: none where it is the end of the one before
    LaunchId launch;
    Place place;
  };
  absl::Status Mark(DeviceStream device, DeviceEvent& event);
  bool Happened(DeviceEvent event);
  void Drop(std::deque<Issued>& issued);

  Driver& driver_;
  Place place_;
  std::array<bool, kNumStreams> waits_ = {};
  std::array<std::deque<Issued>, kNumStreams> issued_;
  std::vector<DeviceEvent> free_;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_PROGRESS_H_
