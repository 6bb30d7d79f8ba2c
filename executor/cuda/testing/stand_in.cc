#include "executor/cuda/testing/stand_in.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "executor/cuda/testing/stand_in_device.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {
namespace {

constexpr int kTasksPerLook = 64;  // that a thread does for each time it looks

}  // namespace

absl::Status StandInMachine::State::Device::QueueLocked(StreamState& stream, Task task) {
  MESHWRIGHT_RETURN_IF_ERROR(failed_);
  if (capture_ == nullptr) {
    Issue(stream, std::move(task));
    return absl::OkStatus();
  }
  // Streams join a capture by waiting for an event of it.
  if (task.kind == Task::Kind::kWait) {
    const bool captured = std::any_of(capture_->tasks.begin(), capture_->tasks.end(), [&](const auto& t) {
      return t.second.kind == Task::Kind::kRecord && t.second.event == task.event;
    });
    if (!captured) MESHWRIGHT_RETURN_IF_ERROR(NotWhileCapturing("a stream waits for an event from before"));
    capture_->streams.insert(&stream);
  }
  if (!capture_->streams.contains(&stream)) return absl::InternalError("work on a stream that is not captured");
  ++stream.clock.time[stream.id];
  if (task.kind == Task::Kind::kRecord) task.event->clock = stream.clock;
  if (task.kind == Task::Kind::kWait) stream.clock.Join(task.event->clock);
  capture_->tasks.emplace_back(&stream, std::move(task));
  return absl::OkStatus();
}

void StandInMachine::State::Device::Issue(StreamState& stream, Task task) {
  stream.clock.Join(host_clock_);
  ++stream.clock.time[stream.id];
  switch (task.kind) {
    case Task::Kind::kRecord:
      task.generation = ++task.event->issued;
      task.event->clock = stream.clock;
      break;
    case Task::Kind::kWait:
      task.generation = task.event->issued;
      stream.clock.Join(task.event->clock);
      break;
    case Task::Kind::kLaunch:
      task.launch = std::make_shared<CommLaunch>();
      task.launch->member = task.member;
      task.launch->calls = task.calls;
      Check(stream, task);
      break;
    case Task::Kind::kRun:
      Check(stream, task);
      break;
  }
  stream.tasks.push_back(std::move(task));
}

void StandInMachine::State::Device::Check(StreamState& stream, const Task& task) {
  for (const Access& access : task.accesses) {
    const std::string wrong = Enter(access, stream.id, stream.clock, allocations_);
    if (wrong.empty()) continue;
    machine_.Fault(absl::StrCat("device ", index_, ", ", task.name, " on stream ", stream.id, ": ", wrong));
  }
}

absl::Status StandInMachine::State::Device::RunKernel(DeviceStream stream, std::vector<Access> accesses,
                                                      std::function<absl::Status()> run) {
  Task task;
  task.accesses = std::move(accesses);
  task.run = std::move(run);
  int64_t number;
  std::optional<InjectedFault> fault;
  {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    ++machine_.counts.kernels;
    number = kernels_++;
    fault = machine_.Injected(
        {FaultKind::kKernelHangs, FaultKind::kKernelFails, FaultKind::kHostHangs, FaultKind::kCaptureFails}, index_,
        number);
    if (fault.has_value() && fault->kind == FaultKind::kCaptureFails) {
      if (capture_ == nullptr) return absl::InternalError("the stand-in was to fail a capture, and there is none");
      capture_failed_ = absl::InternalError("a kernel that cannot be captured");
      return capture_failed_;
    }
  }
  task.name = absl::StrCat("kernel ", number);
  if (fault.has_value()) {
    if (fault->kind == FaultKind::kHostHangs) absl::SleepFor(fault->delay);
    task.hangs = fault->kind == FaultKind::kKernelHangs;
    if (fault->kind == FaultKind::kKernelFails) {
      task.run = [] { return absl::InternalError("an illegal memory access was encountered"); };
    }
  }
  return Queue(stream, std::move(task));
}

absl::Status StandInMachine::State::Device::Call(CommCall call, Communicator communicator, DeviceStream stream) {
  if (!in_group_) return absl::InternalError("the stand-in wants every call in a group");
  const std::lock_guard<std::mutex> lock(machine_.mutex);
  CommMember& member = *Of(communicator);
  if (member.group == nullptr) return absl::InternalError("a communicator is used before it is made");
  ++machine_.counts.calls;
  if (const auto fault = machine_.Injected({FaultKind::kCallRefused}, index_, calls_++)) {
    refused_ = true;
    return ToStatus(fault->error, "a call in a group");
  }
  const int64_t members = static_cast<int64_t>(member.group->members.size());
  if (const std::string wrong = CheckCall(call, member.position, members); !wrong.empty()) {
    machine_.Fault(absl::StrCat("device ", index_, ": ", wrong));
  }
  auto found = std::find_if(group_.begin(), group_.end(), [&](const auto& launch) {
    return launch.first == Of(stream) && launch.second.member == &member;
  });
  if (found == group_.end()) {
    Task task;
    task.kind = Task::Kind::kLaunch;
    task.name = "communication";
    task.member = &member;
    group_.emplace_back(Of(stream), std::move(task));
    found = group_.end() - 1;
  }
  Task& task = found->second;
  task.accesses.push_back({call.from, call.read_bytes(members), false});
  task.accesses.push_back({call.to, call.write_bytes(members), true});
  task.calls.push_back(call);
  return absl::OkStatus();
}

absl::Status StandInMachine::State::Device::GroupEnd() {
  if (!std::exchange(in_group_, false)) return absl::InternalError("the end of no group");
  const std::lock_guard<std::mutex> lock(machine_.mutex);
  auto launches = std::exchange(group_, {});
  if (std::exchange(refused_, false)) return absl::InternalError("ncclGroupEnd: a call was refused");
  for (auto& [stream, task] : launches) {
    ++machine_.counts.launches;
    if (task.member->for_estimates) machine_.Fault("a launch on a communicator for estimates");
    const auto fault = machine_.Injected({FaultKind::kMessageHangs, FaultKind::kAsyncError, FaultKind::kCallFails},
                                         index_, launches_++);
    if (fault.has_value()) {
      if (fault->kind == FaultKind::kCallFails) return ToStatus(fault->error, "ncclGroupEnd");
      task.hangs = true;
      if (fault->kind == FaultKind::kAsyncError) task.breaks = fault->error;
    }
    MESHWRIGHT_RETURN_IF_ERROR(QueueLocked(*stream, std::move(task)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Nanos> StandInMachine::State::Device::GroupEstimate() {
  if (!std::exchange(in_group_, false)) return absl::InternalError("the end of no group");
  const std::lock_guard<std::mutex> lock(machine_.mutex);
  const auto launches = std::exchange(group_, {});
  ++machine_.counts.estimates;
  Nanos expected;
  for (const auto& [stream, task] : launches) {
    if (!task.member->for_estimates) machine_.Fault("an estimate that NCCL would launch");
    const int64_t members = static_cast<int64_t>(task.member->group->members.size());
    for (const CommCall& call : task.calls) expected = kStandInLatency + Nanos(call.read_bytes(members));
  }
  return expected;
}

bool StandInMachine::State::Device::DoLaunch(Task& task) {
  CommMember& member = *task.member;
  if (member.aborted) return true;
  if (task.breaks.has_value()) {
    for (CommMember* other : member.group->members) {
      if (other->error == CommError::kNone) other->error = CommError::kRemote;
    }
    member.error = *std::exchange(task.breaks, std::nullopt);
    member.group->broken = true;
  }
  if (task.hangs || member.group->broken) return false;
  if (!task.launch->arrived) {
    if (const std::string wrong = Arrive(*task.launch); !wrong.empty()) {
      machine_.Fault(wrong);
      for (CommMember* other : member.group->members) other->error = CommError::kInvalidUsage;
    }
  }
  return task.launch->done();
}

// Whether the stream's first piece of work could be done; it is gone then.
bool StandInMachine::State::Device::Do(StreamState& stream) {
  Task& task = stream.tasks.front();
  switch (task.kind) {
    case Task::Kind::kRun: {
      if (task.hangs) return false;
      const absl::Status status = task.run();
      if (!status.ok()) failed_ = status;
      break;
    }
    case Task::Kind::kRecord:
      task.event->done = std::max(task.event->done, task.generation);
      task.event->time = SteadyNow();
      break;
    case Task::Kind::kWait:
      if (task.event->done < task.generation) return false;
      break;
    case Task::Kind::kLaunch: {
      const bool arrived = task.launch->arrived;
      if (!DoLaunch(task)) return !arrived && task.launch->arrived;
      break;
    }
  }
  stream.tasks.pop_front();
  return true;
}

bool StandInMachine::State::Device::DoOne(size_t first) {
  if (abandoned_ || !failed_.ok()) return false;
  for (size_t i = 0; i < streams_.size(); ++i) {
    StreamState& stream = *streams_[(first + i) % streams_.size()];
    if (!stream.tasks.empty() && Do(stream)) return true;
  }
  return false;
}

void StandInMachine::State::Pump() {
  for (int done = 0; done < kTasksPerLook; ++done) {
    const size_t first_device = random() % devices.size(), first_stream = random() % kMostStreams;
    bool any = false;
    for (size_t d = 0; d < devices.size() && !any; ++d) {
      any = devices[(first_device + d) % devices.size()]->DoOne(first_stream);
    }
    if (!any) return;
  }
}

StandInMachine::StandInMachine(int64_t num_devices, uint64_t seed, Bytes memory) : state_(std::make_unique<State>()) {
  state_->random.seed(seed);
  for (int64_t d = 0; d < num_devices; ++d) {
    state_->devices.push_back(std::make_unique<State::Device>(*state_, d, memory));
  }
}

StandInMachine::~StandInMachine() = default;

StandInDriver& StandInMachine::driver(int64_t device) { return *state_->devices[static_cast<size_t>(device)]; }

void StandInMachine::Inject(const InjectedFault& fault) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->injected.push_back(fault);
}

std::vector<std::string> StandInMachine::faults() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->faults;
}

StandInCounts StandInMachine::counts() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->counts;
}

}  // namespace meshwright::cuda::testing
