#include "executor/cuda/testing/stand_in.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "executor/cuda/testing/stand_in_comm.h"
#include "executor/cuda/testing/stand_in_work.h"
#include "ir/program.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {
namespace {

constexpr int kTasksPerLook = 64;  // that a thread does for each time it looks
constexpr size_t kMostFaults = 100;

}  // namespace

struct StandInMachine::State {
  class Device;

  mutable std::mutex mutex;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<InjectedFault> injected;
  std::vector<std::string> faults;
  StandInCounts counts;
  std::map<UniqueId, std::vector<CommMember*>> joining;
  std::vector<std::unique_ptr<CommMember>> members;
  int64_t unique_ids = 0;

  void Fault(std::string text) {
    if (faults.size() < kMostFaults) faults.push_back(std::move(text));
  }
  std::optional<InjectedFault> Injected(std::initializer_list<FaultKind> kinds, int64_t device, int64_t at) const {
    for (const InjectedFault& fault : injected) {
      if (fault.device != device || fault.at != at) continue;
      if (std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end()) return fault;
    }
    return std::nullopt;
  }
  CommMember* NewMember(int64_t device) {
    members.push_back(std::make_unique<CommMember>());
    members.back()->device = device;
    ++counts.communicators;
    return members.back().get();
  }
  void Pump();
};

// One device. Every function locks the machine.
class StandInMachine::State::Device : public StandInDriver {
 public:
  Device(State& machine, int64_t index, Bytes memory) : machine_(machine), index_(index), memory_(memory) {}
  ~Device() override {
    for (const auto& [data, unused] : allocations_) std::free(data);
    for (std::byte* data : freed_) std::free(data);
    for (std::byte* data : host_) std::free(data);
  }

  absl::StatusOr<DeviceInfo> Info() override {
    DeviceInfo info;
    info.name = "stand-in";
    info.multiprocessors = 1;
    info.memory = info.free_memory = memory_;
    return info;
  }
  void Abandon() override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    abandoned_ = true;
  }

  absl::StatusOr<std::byte*> Allocate(Bytes size) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    MESHWRIGHT_RETURN_IF_ERROR(NotWhileCapturing("memory is allocated"));
    ++machine_.counts.allocations;
    if (used_ + size > memory_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("out of memory: ", size.raw(), " bytes wanted, ", (memory_ - used_).raw(), " free"));
    }
    used_ += size;
    const size_t bytes = (static_cast<size_t>(size.raw()) + kAlignment - 1) / kAlignment * kAlignment;
    std::byte* const data =
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, std::max<size_t>(bytes, kAlignment)));
    std::memset(data, 0xfe, bytes);
    allocations_.emplace(data, Allocation{data, size.raw(), Shadow(size.raw())});
    return data;
  }
  void Free(std::byte* device) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    NotWhileCapturing("memory is freed").IgnoreError();
    const auto found = allocations_.find(device);
    if (found == allocations_.end()) return machine_.Fault("memory is freed that was not allocated");
    used_ -= Bytes(found->second.size);
    freed_.push_back(device);  // work that is queued still may touch it, and would be told of
    allocations_.erase(found);
  }
  absl::StatusOr<std::byte*> AllocateHost(Bytes size) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    MESHWRIGHT_RETURN_IF_ERROR(NotWhileCapturing("memory is allocated"));
    ++machine_.counts.allocations;
    std::byte* const data = static_cast<std::byte*>(std::malloc(static_cast<size_t>(std::max<int64_t>(size.raw(), 1))));
    host_.insert(data);
    return data;
  }
  void FreeHost(std::byte* host) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    if (!abandoned_ && host_.erase(host) != 0) std::free(host);
  }

  absl::Status Fill(DeviceStream stream, std::byte* device, uint8_t value, Bytes size) override {
    return Copied(stream, "fill", {{device, size.raw(), true}},
                  [=] { std::memset(device, value, static_cast<size_t>(size.raw())); });
  }
  absl::Status Copy(DeviceStream stream, CopyKind kind, const std::byte* from, std::byte* to, Bytes size) override {
    std::vector<Access> accesses;
    if (kind != CopyKind::kToDevice) accesses.push_back({from, size.raw(), false});
    if (kind != CopyKind::kToHost) accesses.push_back({to, size.raw(), true});
    return Copied(stream, "copy", std::move(accesses), [=] { CopyBytes(from, to, size.raw()); });
  }

  absl::StatusOr<DeviceStream> MakeStream() override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    if (streams_.size() == kMostStreams) return absl::ResourceExhaustedError("the stand-in has no more streams");
    streams_.push_back(std::make_unique<StreamState>());
    streams_.back()->id = streams_.size() - 1;
    return DeviceStream{streams_.back().get()};
  }
  void Destroy(DeviceStream) override {}
  absl::StatusOr<bool> IsIdle(DeviceStream stream) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    MESHWRIGHT_RETURN_IF_ERROR(NotWhileCapturing("a stream is asked whether it is idle"));
    machine_.Pump();
    MESHWRIGHT_RETURN_IF_ERROR(failed_);
    StreamState& s = *Of(stream);
    if (!s.tasks.empty()) return false;
    host_clock_.Join(s.clock);
    return true;
  }

  absl::StatusOr<DeviceEvent> MakeEvent(bool) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    events_.push_back(std::make_unique<Event>());
    return DeviceEvent{events_.back().get()};
  }
  void Destroy(DeviceEvent) override {}
  absl::Status Record(DeviceStream stream, DeviceEvent event) override {
    Task task;
    task.kind = Task::Kind::kRecord;
    task.event = Of(event);
    return Queue(stream, std::move(task));
  }
  absl::Status RecordTime(DeviceStream stream, DeviceEvent event) override { return Record(stream, event); }
  absl::Status Wait(DeviceStream stream, DeviceEvent event) override {
    Task task;
    task.kind = Task::Kind::kWait;
    task.event = Of(event);
    return Queue(stream, std::move(task));
  }
  absl::StatusOr<bool> HasHappened(DeviceEvent event) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    MESHWRIGHT_RETURN_IF_ERROR(NotWhileCapturing("an event is asked whether it has happened"));
    machine_.Pump();
    MESHWRIGHT_RETURN_IF_ERROR(failed_);
    const Event& e = *Of(event);
    if (e.done < e.issued) return false;
    host_clock_.Join(e.clock);
    return true;
  }
  absl::StatusOr<Nanos> Elapsed(DeviceEvent begin, DeviceEvent end) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    const Event &b = *Of(begin), &e = *Of(end);
    if (b.done == 0 || e.done == 0) return absl::InternalError("the time of an event that has not happened");
    return Nanos(absl::ToInt64Nanoseconds(e.time - b.time));
  }

  absl::Status BeginCapture(DeviceStream stream) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    if (capture_ != nullptr) return absl::InternalError("a capture within a capture");
    ++machine_.counts.captures;
    capture_failed_ = absl::OkStatus();
    graphs_.push_back(std::make_unique<Graph>());
    capture_ = graphs_.back().get();
    capture_->streams.insert(Of(stream));
    return absl::OkStatus();
  }
  absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    if (capture_ == nullptr) return absl::InternalError("the end of no capture");
    Graph* const graph = std::exchange(capture_, nullptr);
    MESHWRIGHT_RETURN_IF_ERROR(capture_failed_);
    for (const StreamState* s : graph->streams) {
      if (Of(stream)->clock.time[s->id] < s->clock.time[s->id]) {
        machine_.Fault(absl::StrCat("device ", index_, ": stream ", s->id, " is left behind by a capture"));
      }
    }
    return DeviceGraph{graph};
  }
  // As if issued again: on streams that begin after `stream` and that it waits for.
  absl::Status Launch(DeviceGraph graph, DeviceStream stream) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    ++machine_.counts.graphs;
    Graph& g = *static_cast<Graph*>(graph.raw);
    const auto order = [&](StreamState* first, StreamState* second) {
      if (first == second) return;
      events_.push_back(std::make_unique<Event>());
      Task record, wait;
      record.kind = Task::Kind::kRecord;
      wait.kind = Task::Kind::kWait;
      record.event = wait.event = events_.back().get();
      Issue(*first, std::move(record));
      Issue(*second, std::move(wait));
    };
    for (StreamState* s : g.streams) order(Of(stream), s);
    for (const auto& [s, task] : g.tasks) Issue(*s, task);
    for (StreamState* s : g.streams) order(s, Of(stream));
    return failed_;
  }
  void Destroy(DeviceGraph) override {}

  absl::Status Gemm(DeviceStream stream, const GemmCall& call) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(HostGemm gemm, PlanGemm(call));
    return RunKernel(stream, std::move(gemm.accesses), std::move(gemm.run));
  }

  absl::StatusOr<UniqueId> MakeUniqueId() override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    UniqueId id = {};
    const int64_t number = ++machine_.unique_ids;
    std::memcpy(id.data(), &number, sizeof(number));
    return id;
  }
  absl::StatusOr<Communicator> InitRank(const UniqueId& id, int64_t size, int64_t rank) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    std::vector<CommMember*>& joining = machine_.joining[id];
    joining.resize(size);
    CommMember* const own = machine_.NewMember(index_);
    own->position = rank;
    joining[rank] = own;
    if (std::count(joining.begin(), joining.end(), nullptr) == 0) {
      const auto group = std::make_shared<CommGroup>();
      group->members = joining;
      for (CommMember* member : joining) member->group = group;
    }
    return Communicator{own};
  }
  absl::StatusOr<Communicator> Split(Communicator parent, int64_t color, int64_t key) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    CommMember* const made = color == kNoColor ? nullptr : machine_.NewMember(index_);
    testing::Split(*Of(parent), color, key, made);
    return Communicator{made};
  }
  CommError AsyncError(Communicator communicator) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    const CommMember& member = *Of(communicator);
    if (member.error != CommError::kNone) return member.error;
    return member.group == nullptr ? CommError::kInProgress : CommError::kNone;
  }
  void AbortCommunicator(Communicator communicator) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    Of(communicator)->aborted = true;
    if (Of(communicator)->group != nullptr) Of(communicator)->group->broken = true;
  }
  void Destroy(Communicator) override {}

  absl::Status GroupStart() override {
    if (std::exchange(in_group_, true)) return absl::InternalError("a group within a group");
    return absl::OkStatus();
  }
  absl::Status GroupEnd() override;
  absl::Status AllReduce(const std::byte* from, std::byte* to, int64_t count, DType dtype, Reduction reduction,
                         Communicator communicator, DeviceStream stream) override {
    return Call({CallKind::kAllReduce, from, to, count, dtype, reduction}, communicator, stream);
  }
  absl::Status AllGather(const std::byte* from, std::byte* to, int64_t count, DType dtype, Communicator communicator,
                         DeviceStream stream) override {
    return Call({CallKind::kAllGather, from, to, count, dtype}, communicator, stream);
  }
  absl::Status ReduceScatter(const std::byte* from, std::byte* to, int64_t count, DType dtype, Reduction reduction,
                             Communicator communicator, DeviceStream stream) override {
    return Call({CallKind::kReduceScatter, from, to, count, dtype, reduction}, communicator, stream);
  }
  absl::Status Broadcast(const std::byte* from, std::byte* to, int64_t count, DType dtype, int64_t root,
                         Communicator communicator, DeviceStream stream) override {
    return Call({CallKind::kBroadcast, from, to, count, dtype, Reduction::kSum, root}, communicator, stream);
  }
  absl::Status Send(const std::byte* from, int64_t count, DType dtype, int64_t peer, Communicator communicator,
                    DeviceStream stream) override {
    return Call({CallKind::kSend, from, nullptr, count, dtype, Reduction::kSum, peer}, communicator, stream);
  }
  absl::Status Receive(std::byte* to, int64_t count, DType dtype, int64_t peer, Communicator communicator,
                       DeviceStream stream) override {
    return Call({CallKind::kReceive, nullptr, to, count, dtype, Reduction::kSum, peer}, communicator, stream);
  }

  absl::Status RunKernel(DeviceStream stream, std::vector<Access> accesses, std::function<absl::Status()> run) override;

  // Does one piece of work that can be done, if there is one.
  bool DoOne(size_t first);

 private:
  static StreamState* Of(DeviceStream stream) { return static_cast<StreamState*>(stream.raw); }
  static Event* Of(DeviceEvent event) { return static_cast<Event*>(event.raw); }
  static CommMember* Of(Communicator communicator) { return static_cast<CommMember*>(communicator.raw); }

  absl::Status Copied(DeviceStream stream, const char* name, std::vector<Access> accesses, std::function<void()> run) {
    Task task;
    task.name = name;
    task.accesses = std::move(accesses);
    task.run = [run = std::move(run)] {
      run();
      return absl::OkStatus();
    };
    {
      const std::lock_guard<std::mutex> lock(machine_.mutex);
      ++machine_.counts.copies;
    }
    return Queue(stream, std::move(task));
  }
  absl::Status Queue(DeviceStream stream, Task task) {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    return QueueLocked(*Of(stream), std::move(task));
  }
  // CUDA refuses such a call, and the capture is lost.
  absl::Status NotWhileCapturing(absl::string_view what) {
    if (capture_ == nullptr) return absl::OkStatus();
    machine_.Fault(absl::StrCat("device ", index_, ": ", what, " during a capture"));
    capture_failed_ = absl::InternalError("operation not permitted when stream is capturing");
    return capture_failed_;
  }
  absl::Status QueueLocked(StreamState& stream, Task task);
  void Issue(StreamState& stream, Task task);
  void Check(StreamState& stream, const Task& task);
  absl::Status Call(CommCall call, Communicator communicator, DeviceStream stream);
  bool Do(StreamState& stream);
  bool DoLaunch(Task& task);

  State& machine_;
  const int64_t index_;
  const Bytes memory_;
  Bytes used_;
  std::map<std::byte*, Allocation> allocations_;
  std::vector<std::byte*> freed_;
  std::set<std::byte*> host_;
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  Graph* capture_ = nullptr;
  absl::Status capture_failed_;
  VectorClock host_clock_;  // what the host has seen done
  absl::Status failed_;
  int64_t kernels_ = 0, launches_ = 0;
  bool in_group_ = false;
  bool abandoned_ = false;                            // nothing that is queued will be done
  std::vector<std::pair<StreamState*, Task>> group_;  // launches of the open group
};

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
  for (auto& [stream, task] : launches) {
    ++machine_.counts.launches;
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
      task.event->time = absl::Now();
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
