// What torch.profiler (Kineto) recorded of one rank, as far as it tells what the device did: kernels, copies and fills
// with their times, what collectives moved, and where the profiler's steps begin and end.
//
// The file is Chrome's JSON, packed by gzip or not, and may have hundreds of megabytes: it is read event by event and
// never held as a tree. Fields that are not listed here are passed over, whatever they hold. Of several devices in one
// file the one with the most events counts.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_PROFILE_PROFILE_TRACE_H_
#define MESHWRIGHT_TOOLS_PROFILE_PROFILE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/quantities.h"

namespace meshwright {

enum class DeviceEventKind : uint8_t { kKernel, kCopy, kFill };  // cat kernel, gpu_memcpy, gpu_memset

// What PyTorch wrote beside the kernel of a collective. Sizes that are missing or absurd are -1.
struct CollectiveArgs {
  std::string name;  // "_allgather_base"
  std::string dtype;
  int64_t elements_in = -1, elements_out = -1;  // of this rank
  int64_t group_size = -1;                      // ranks
  friend auto operator<=>(const CollectiveArgs&, const CollectiveArgs&) = default;
};

struct DeviceEvent {
  Nanos begin, end;  // by the trace's clock
  DeviceEventKind kind = DeviceEventKind::kKernel;
  int32_t name = 0;         // in ProfileTrace::names
  int32_t collective = -1;  // in ProfileTrace::collectives; -1: none is told
  int32_t stream = -1;
};

// ProfilerStep#k: on the device from its first kernel to its last, on the CPU from one call of step() to the next.
struct ProfiledStep {
  int64_t number = 0;
  Nanos begin, end;
};

struct ProfileTrace {
  std::string file;
  std::string device;                       // "NVIDIA H100 80GB HBM3"; "" where the file does not say
  std::optional<int64_t> rank, world_size;  // of distributedInfo
  std::vector<std::string> names;           // of kernels, each once
  std::vector<CollectiveArgs> collectives;  // each once
  std::vector<DeviceEvent> events;          // in the order of their begin; one device's
  std::vector<ProfiledStep> steps;          // by number; on the device where it is told there, else on the CPU
  bool steps_of_device = false;             // which of the two
  int64_t without_time = 0;                 // events of the device without a time, left out
  int64_t other_devices = 0;                // events of other devices, left out
};

struct ProfileLimits {
  size_t text = size_t{1} << 33;    // bytes, unpacked
  size_t events = size_t{1} << 23;  // of devices: 300 MiB in memory
  size_t names = size_t{1} << 26;   // bytes of names, each counted once
};

// Whether a text begins as such a trace, and not as a timeline that simulate or run wrote. Packed text is unpacked as
// far as it takes.
bool IsProfileTrace(absl::string_view bytes);

// kInvalidArgument, with the file: no JSON, cut short, no event of a device, a number out of range, more than `limits`.
absl::StatusOr<ProfileTrace> ReadProfileTrace(absl::string_view bytes, const std::string& file,
                                              const ProfileLimits& limits = {});

// Which part of a trace to look at: whole steps in its middle.
struct ProfileWindow {
  Nanos begin, end;               // the latter not with it
  int64_t steps = 1;              // in it
  int64_t first = -1, last = -1;  // their numbers; -1: no step is marked
  int64_t recorded = 0;           // how many steps are marked
};
// Of the longest row of steps that follow each other the first, in which the profiler starts, and the last, whose end
// nothing shows, are left out where others remain. A step lasts until the next one begins. Where none is marked the
// whole trace is one.
ProfileWindow WindowOf(const ProfileTrace& trace);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PROFILE_PROFILE_TRACE_H_
