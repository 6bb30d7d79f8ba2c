// What one device does with its time, by kind of work: of a simulated step and of a profiled one in the same words.
//
// Thread safety: plain values and pure functions.
#ifndef MESHWRIGHT_TOOLS_PROFILE_DEVICE_USE_H_
#define MESHWRIGHT_TOOLS_PROFILE_DEVICE_USE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ir/quantities.h"
#include "tools/profile/kernel_kinds.h"

namespace meshwright {

// Calls that communicate the same way among as many ranks.
struct CallSort {
  CallKind kind = CallKind::kOtherCall;
  int64_t group_size = -1;  // ranks; -1: nobody says, and of send_receive
  friend auto operator<=>(const CallSort&, const CallSort&) = default;
};

// Something that ran on a stream of the device.
struct DeviceSpan {
  Nanos begin, end;
  WorkKind kind = WorkKind::kOther;
  CallSort call;      // of communication
  Bytes bytes;        // of communication: S of ir/collective.h, or what is sent or received
  bool sized = true;  // whether `bytes` is known
};

struct CallUse {
  double calls = 0;  // of a step
  double bytes = 0;
  Nanos time;
};

struct DeviceUse {
  Nanos step;
  std::array<Nanos, kNumWorkKinds> time = {};  // what runs side by side is counted each
  Nanos exposed;                               // nothing but communication runs
  Nanos idle;                                  // nothing runs
  std::map<CallSort, CallUse> calls;
  double unsized = 0;  // calls whose bytes are not known

  Nanos operator[](WorkKind kind) const { return time[static_cast<size_t>(kind)]; }
};

// What `spans` do from `begin` to `end`, which are `steps` steps: of one of them, in the mean. Of a span that begins
// before or ends after them, what lies between counts; its call counts where it begins.
// REQUIRES: begin < end, steps > 0.
DeviceUse UseBetween(const std::vector<DeviceSpan>& spans, Nanos begin, Nanos end, int64_t steps);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_PROFILE_DEVICE_USE_H_
