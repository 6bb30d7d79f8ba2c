#include "executor/cuda/progress.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr size_t kMostIssued = 4096;  // per stream; what is done is dropped then
constexpr int64_t kMostFlags = 1 << 16;

}  // namespace

Progress::~Progress() {
  Clear();
  for (const DeviceEvent event : free_) driver_.Destroy(event);
  if (flags_ != nullptr) driver_.FreeHost(flags_);
  if (one_ != nullptr) driver_.Free(one_);
}

absl::Status Progress::Prepare(DeviceStream stream) {
  MESHWRIGHT_ASSIGN_OR_RETURN(flags_, driver_.AllocateHost(Bytes(kMostFlags)));
  MESHWRIGHT_ASSIGN_OR_RETURN(one_, driver_.Allocate(Bytes(1)));
  return driver_.Fill(stream, one_, 1, Bytes(1));
}

absl::Status Progress::Set(DeviceStream device, Mark& mark) {
  if (recording_) {
    mark.flag = num_flags_++;
    return driver_.Copy(device, CopyKind::kToHost, one_, flags_ + mark.flag, Bytes(1));
  }
  if (free_.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(mark.event, driver_.MakeEvent(false));
  } else {
    mark.event = free_.back();
    free_.pop_back();
  }
  return driver_.Record(device, mark.event);
}

absl::Status Progress::Begin(Stream stream, DeviceStream device, const LaunchId& launch) {
  const size_t s = static_cast<size_t>(stream);
  std::deque<Issued>& issued = issued_[s];
  const bool waits = std::exchange(waits_[s], false);
  if (recording_) {
    const bool joins = open_[s] && launch.communicator < 0 && !waits && issued.back().launch.communicator < 0 &&
                       issued.back().place.slot == place_.slot && issued.back().place.layer == place_.layer;
    // Two flags at most for each; when there are none left, what comes joins what there is.
    if (joins || (open_[s] && num_flags_ + 2 * static_cast<int64_t>(kNumStreams) >= kMostFlags)) {
      return absl::OkStatus();
    }
    MESHWRIGHT_RETURN_IF_ERROR(Close(s, device));
    open_[s] = true;
  } else if (issued.size() >= kMostIssued) {
    while (!issued.empty() && Happened(issued.front().end)) Drop(issued);
  }
  Issued& now = issued.emplace_back(Issued{{}, {}, launch, place_});
  if (waits) return Set(device, now.begin);
  return absl::OkStatus();
}

absl::Status Progress::End(Stream stream, DeviceStream device) {
  const size_t s = static_cast<size_t>(stream);
  Issued& last = issued_[s].back();
  if (!recording_) return Set(device, last.end);
  return last.launch.communicator >= 0 ? Close(s, device) : absl::OkStatus();
}

absl::Status Progress::Close(size_t stream, DeviceStream device) {
  if (!std::exchange(open_[stream], false)) return absl::OkStatus();
  return Set(device, issued_[stream].back().end);
}

void Progress::StartRecording() {
  Clear();
  recording_ = true;
  num_flags_ = 0;
  open_ = {};
}

absl::Status Progress::EndRecording(absl::Span<const DeviceStream> devices) {
  absl::Status status;
  for (size_t s = 0; s < kNumStreams; ++s) status.Update(Close(s, devices[s]));
  recording_ = false;
  for (size_t s = 0; s < kNumStreams; ++s) recorded_[s] = std::exchange(issued_[s], {});
  waits_ = {};
  return status;
}

void Progress::Replay(int64_t step, absl::Span<const int64_t> launches) {
  std::memset(flags_, 0, static_cast<size_t>(num_flags_));
  place_.step = step;
  for (size_t s = 0; s < kNumStreams; ++s) {
    issued_[s] = recorded_[s];
    for (Issued& issued : issued_[s]) {
      issued.place.step = step;
      if (issued.launch.communicator >= 0) {
        issued.launch.ordinal += launches[static_cast<size_t>(issued.launch.communicator)];
      }
    }
  }
}

void Progress::Drop(std::deque<Issued>& issued) {
  for (const Mark& mark : {issued.front().begin, issued.front().end}) {
    if (mark.event) free_.push_back(mark.event);
  }
  issued.pop_front();
}

void Progress::Clear() {
  for (std::deque<Issued>& issued : issued_) {
    while (!issued.empty()) Drop(issued);
  }
  waits_ = {};
}

// A device that has failed has not done what it was asked.
bool Progress::Happened(const Mark& mark) {
  if (mark.event) {
    const absl::StatusOr<bool> happened = driver_.HasHappened(mark.event);
    return happened.ok() && *happened;
  }
  return mark.flag >= 0 && __atomic_load_n(reinterpret_cast<const uint8_t*>(flags_ + mark.flag), __ATOMIC_ACQUIRE) != 0;
}

StallReport Progress::Report(bool idle) {
  StallReport report;
  report.step = place_.step;
  report.finished = idle;
  std::string kernel, communication, first;
  for (std::deque<Issued>& issued : issued_) {
    while (!issued.empty() && Happened(issued.front().end)) Drop(issued);
    for (size_t i = 0; i < issued.size(); ++i) {
      const Issued& one = issued[i];
      const bool started = i == 0 && (!IsSet(one.begin) || Happened(one.begin));
      if (one.launch.communicator >= 0 && report.num_open < static_cast<int64_t>(StallReport::kMaxOpen)) {
        report.open[report.num_open++] = {one.launch.communicator, one.launch.ordinal, started};
      }
      if (i > 0) continue;
      first = ToText(one.place);
      if (one.end.flag >= 0 && one.launch.communicator < 0) absl::StrAppend(&first, " or one behind it");
      if (!started) continue;
      report.step = one.place.step;
      if (one.launch.communicator >= 0) {
        communication = first;
      } else {
        report.busy = true;
        kernel = first;
      }
    }
  }
  report.SetText(!kernel.empty() ? kernel : !communication.empty() ? communication : first);
  return report;
}

}  // namespace meshwright::cuda
