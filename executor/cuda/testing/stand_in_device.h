// The inside of a StandInMachine: its devices and their queues. For executor/cuda/testing/stand_in.cc.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_DEVICE_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_DEVICE_H_

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "executor/cuda/testing/stand_in.h"
#include "executor/cuda/testing/stand_in_comm.h"
#include "executor/cuda/testing/stand_in_work.h"
#include "ir/program.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {

constexpr size_t kMostFaults = 100;

struct StandInMachine::State {
  class Device;

  mutable std::mutex mutex;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<InjectedFault> injected;
  std::vector<std::string> faults;
  StandInCounts counts;
  Bytes allocated;  // device memory
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
    machine_.allocated += size;
    machine_.counts.most_allocated = std::max(machine_.counts.most_allocated, machine_.allocated);
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
    if (registered_.count(device) > 0) machine_.Fault("memory is freed that a communicator knows of");
    used_ -= Bytes(found->second.size);
    machine_.allocated -= Bytes(found->second.size);
    freed_.push_back(device);  // work that is queued still may touch it, and would be told of
    allocations_.erase(found);
  }
  absl::StatusOr<std::byte*> AllocateShared(Bytes size) override {
    {
      const std::lock_guard<std::mutex> lock(machine_.mutex);
      if (machine_.Injected({FaultKind::kNoSharing}, index_, 0).has_value()) {
        return absl::UnimplementedError("NCCL is older than 2.19");
      }
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const data, Allocate(size));
    shared_.insert(data);
    return data;
  }
  absl::Status Register(Communicator communicator, std::byte* device, Bytes) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    if (shared_.count(device) == 0) return absl::InvalidArgumentError("memory that is not of AllocateShared");
    ++machine_.counts.registered;
    registered_.insert({device, Of(communicator)});
    return absl::OkStatus();
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
  void AbortCommunicators(absl::Span<const Communicator> communicators) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    for (const Communicator communicator : communicators) {
      Of(communicator)->aborted = true;
      if (Of(communicator)->group != nullptr) Of(communicator)->group->broken = true;
    }
  }
  void Destroy(Communicator communicator) override {
    const std::lock_guard<std::mutex> lock(machine_.mutex);
    for (auto known = registered_.begin(); known != registered_.end();) {
      known = known->second == Of(communicator) ? registered_.erase(known) : std::next(known);
    }
  }

  bool GivesEstimates() override { return true; }
  absl::StatusOr<Communicator> InitForEstimates(const UniqueId& id, int64_t size, int64_t rank) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Communicator made, InitRank(id, size, rank));
    while (true) {
      {
        const std::lock_guard<std::mutex> lock(machine_.mutex);
        Of(made)->for_estimates = true;
        if (Of(made)->group != nullptr) return made;
      }
      sched_yield();
    }
  }
  absl::StatusOr<Nanos> GroupEstimate() override;

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
  std::set<std::byte*> host_, shared_;
  std::multimap<std::byte*, CommMember*> registered_;
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  Graph* capture_ = nullptr;
  absl::Status capture_failed_;
  VectorClock host_clock_;  // what the host has seen done
  absl::Status failed_;
  int64_t kernels_ = 0, launches_ = 0, calls_ = 0;
  bool refused_ = false;  // a call of the open group was: none of it is launched
  bool in_group_ = false;
  bool abandoned_ = false;                            // nothing that is queued will be done
  std::vector<std::pair<StreamState*, Task>> group_;  // launches of the open group
};

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_STAND_IN_DEVICE_H_
