#include "executor/cuda/step_recorder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright::cuda {

StepRecorder::StepRecorder(Driver& driver, Progress& progress, Communication& communication)
    : driver_(driver), progress_(progress), communication_(communication), values_(driver) {}

StepRecorder::~StepRecorder() {
  DropGraph();
  if (fork_) driver_.Destroy(fork_);
}

absl::Status StepRecorder::Prepare(absl::Span<const DeviceStream> streams) {
  streams_.assign(streams.begin(), streams.end());
  MESHWRIGHT_ASSIGN_OR_RETURN(fork_, driver_.MakeEvent(false));
  MESHWRIGHT_RETURN_IF_ERROR(values_.Prepare());
  return progress_.Prepare(streams_[0]);
}

void StepRecorder::DropGraph() {
  if (graph_) driver_.Destroy(std::exchange(graph_, {}));
  values_.Forget();
  feeds_.clear();
  next_feed_ = 0;
}

absl::Status StepRecorder::Fork() {
  MESHWRIGHT_RETURN_IF_ERROR(driver_.Record(streams_[0], fork_));
  for (size_t s = 1; s < streams_.size(); ++s) MESHWRIGHT_RETURN_IF_ERROR(driver_.Wait(streams_[s], fork_));
  return absl::OkStatus();
}

absl::Status StepRecorder::Join() {
  for (size_t s = 1; s < streams_.size(); ++s) {
    MESHWRIGHT_RETURN_IF_ERROR(driver_.Record(streams_[s], fork_));
    MESHWRIGHT_RETURN_IF_ERROR(driver_.Wait(streams_[0], fork_));
  }
  return absl::OkStatus();
}

absl::Status StepRecorder::Begin() {
  DropGraph();
  MESHWRIGHT_RETURN_IF_ERROR(driver_.BeginCapture(streams_[0]));
  recording_ = true;
  calls_ = 0;
  failed_ = absl::OkStatus();
  recorded_events_.clear();
  communication_.Idle();
  launches_before_ = communication_.launches();
  progress_.StartRecording();
  // The values are there before any kernel, on whatever stream.
  Note(values_.Copy(streams_[0])).IgnoreError();
  return Note(Fork());
}

absl::Status StepRecorder::Note(const absl::Status& status) {
  if (!recording_ || dropped()) return absl::OkStatus();
  failed_ = status;
  if (++calls_ > kMostCalls && status.ok()) {
    failed_ = absl::ResourceExhaustedError(absl::StrCat("a step of more than ", kMostCalls, " calls"));
  }
  return absl::OkStatus();
}

void StepRecorder::Recorded(int64_t event) {
  const size_t index = static_cast<size_t>(event);
  if (recorded_events_.size() <= index) recorded_events_.resize(index + 1);
  recorded_events_[index] = true;
}

bool StepRecorder::WasRecorded(int64_t event) const {
  return static_cast<size_t>(event) < recorded_events_.size() && recorded_events_[static_cast<size_t>(event)];
}

absl::Status StepRecorder::End() {
  Note(progress_.EndRecording(streams_)).IgnoreError();
  // Also where a call has failed that CUDA did not see, so that its capture goes on.
  Note(Join()).IgnoreError();
  recording_ = false;
  absl::Status status = std::exchange(failed_, absl::OkStatus());
  absl::StatusOr<DeviceGraph> graph = driver_.EndCapture(streams_[0]);
  if (graph.ok()) {
    graph_ = *graph;
  } else if (status.ok()) {
    status = graph.status();
  }
  communication_.Idle();
  if (status.ok()) {
    launches_per_step_ = communication_.launches();
    for (size_t c = 0; c < launches_per_step_.size(); ++c) launches_per_step_[c] -= launches_before_[c];
    return absl::OkStatus();
  }
  DropGraph();
  communication_.set_launches(launches_before_);
  return status;
}

absl::Status StepRecorder::CheckFeed(const std::byte* place, size_t size) {
  if (next_feed_ < feeds_.size() && feeds_[next_feed_].place == place && feeds_[next_feed_].size == size) {
    ++next_feed_;
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("feed ", next_feed_, " of a recorded step is of ", size, " bytes and not where it was"));
}

absl::Status StepRecorder::Launch(int64_t step, DeviceEvent clock, bool again) {
  if (again && next_feed_ != feeds_.size()) {
    return absl::InternalError(absl::StrCat(next_feed_, " feeds of a step that was recorded with ", feeds_.size()));
  }
  next_feed_ = 0;
  std::vector<int64_t> launches = communication_.launches();
  const std::vector<int64_t> now = launches;
  for (size_t c = 0; c < launches.size(); ++c) launches[c] = again ? launches[c] - launches_before_[c] : 0;
  progress_.Replay(step, launches);
  if (again) {
    for (size_t c = 0; c < launches.size(); ++c) launches[c] = now[c] + launches_per_step_[c];
    communication_.set_launches(launches);
  }
  values_.Write(step + 1);
  MESHWRIGHT_RETURN_IF_ERROR(driver_.RecordTime(streams_[0], clock));
  return driver_.Launch(graph_, streams_[0]);
}

}  // namespace meshwright::cuda
