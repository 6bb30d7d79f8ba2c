#include "executor/cuda/progress.h"

#include <algorithm>
#include <utility>

#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr size_t kMostIssued = 4096;  // per stream; what is done is dropped then

}  // namespace

Progress::~Progress() {
  Clear();
  for (const DeviceEvent event : free_) driver_.Destroy(event);
}

absl::Status Progress::Mark(DeviceStream device, DeviceEvent& event) {
  if (free_.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(event, driver_.MakeEvent(false));
  } else {
    event = free_.back();
    free_.pop_back();
  }
  return driver_.Record(device, event);
}

absl::Status Progress::Begin(Stream stream, DeviceStream device, const LaunchId& launch) {
  const size_t s = static_cast<size_t>(stream);
  std::deque<Issued>& issued = issued_[s];
  if (issued.size() >= kMostIssued) {
    while (!issued.empty() && Happened(issued.front().end)) Drop(issued);
  }
  Issued& now = issued.emplace_back(Issued{{}, {}, launch, place_});
  if (std::exchange(waits_[s], false)) return Mark(device, now.begin);
  return absl::OkStatus();
}

absl::Status Progress::End(Stream stream, DeviceStream device) {
  return Mark(device, issued_[static_cast<size_t>(stream)].back().end);
}

void Progress::Drop(std::deque<Issued>& issued) {
  for (const DeviceEvent event : {issued.front().begin, issued.front().end}) {
    if (event) free_.push_back(event);
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
bool Progress::Happened(DeviceEvent event) {
  if (!event) return false;
  const absl::StatusOr<bool> happened = driver_.HasHappened(event);
  return happened.ok() && *happened;
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
      const bool started = i == 0 && (!one.begin || Happened(one.begin));
      if (one.launch.communicator >= 0 && report.num_open < static_cast<int64_t>(StallReport::kMaxOpen)) {
        report.open[report.num_open++] = {one.launch.communicator, one.launch.ordinal, started};
      }
      if (i > 0) continue;
      first = ToText(one.place);
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
