#include "executor/cuda/real_driver.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "executor/cuda/real_products.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr int kGroupAborts = 22200;  // NCCL 2.22
constexpr absl::Duration kFinalizeTime = absl::Seconds(10), kNap = absl::Microseconds(50);

// CUDA keeps the last error of a thread until it is asked for, also one that was returned and handled: nobody else
// shall take it for his own.
void Forget() { cudaGetLastError(); }

absl::Status ToStatus(cudaError_t code, absl::string_view call) {
  if (code == cudaSuccess) return absl::OkStatus();
  Forget();
  const std::string text = absl::StrCat(call, ": ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  return code == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

// "Not ready" becomes the last error, too (pytorch/pytorch pull request 61554).
absl::StatusOr<bool> IsDone(cudaError_t code, absl::string_view what) {
  if (code == cudaErrorNotReady) {
    Forget();
    return false;
  }
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(code, what));
  return true;
}

CommError ErrorOf(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return CommError::kNone;
    case ncclUnhandledCudaError:
      return CommError::kUnhandledCuda;
    case ncclSystemError:
      return CommError::kSystem;
    case ncclInternalError:
      return CommError::kInternal;
    case ncclInvalidArgument:
      return CommError::kInvalidArgument;
    case ncclInvalidUsage:
      return CommError::kInvalidUsage;
    case ncclRemoteError:
      return CommError::kRemote;
    case ncclInProgress:
      return CommError::kInProgress;
    case ncclNumResults:
      break;
  }
  return CommError::kInternal;
}
// With NCCL's own words, where it has some.
absl::Status ToStatus(ncclResult_t code, absl::string_view call) {
  const absl::Status status = ToStatus(ErrorOf(code), call);
  if (status.ok()) return status;
  const char* const more = ncclGetLastError(nullptr);
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), more == nullptr ? "" : ": ", more == nullptr ? "" : more));
}

absl::StatusOr<ncclDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat32:
    case DType::kTFloat32:
      return ncclFloat32;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt64:
      return ncclInt64;
    case DType::kInt32:
      return ncclInt32;
    case DType::kFloat8:
    case DType::kBool:
      return ncclUint8;  // moved, not reduced
  }
  return absl::InvalidArgumentError("not an element type");
}
ncclRedOp_t OpOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kProd:
      return ncclProd;
  }
  return ncclSum;
}

cudaStream_t Of(DeviceStream stream) { return static_cast<cudaStream_t>(stream.raw); }
cudaEvent_t Of(DeviceEvent event) { return static_cast<cudaEvent_t>(event.raw); }
// Communicators that do not block are written to where NCCL was told, some time after the call: a handle is that place.
using Slot = std::atomic<ncclComm_t>;
static_assert(sizeof(Slot) == sizeof(ncclComm_t));
ncclComm_t Of(Communicator communicator) { return static_cast<Slot*>(communicator.raw)->load(); }

// What older NCCLs lack, by name; null where the one that is loaded does.
template <class F>
F* FindFunction(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}
using MemAlloc = ncclResult_t(void**, size_t);                               // 2.19
using MemFree = ncclResult_t(void*);                                         // 2.19
using CommRegister = ncclResult_t(const ncclComm_t, void*, size_t, void**);  // 2.19
using CommDeregister = ncclResult_t(const ncclComm_t, void*);                // 2.19
// ncclSimInfo_t, as NCCL 2.22 has it and later ones still do.
struct SimInfo {
  size_t size = sizeof(SimInfo);
  unsigned magic = 0x74685283;
  unsigned version = 0;
  float microseconds = -1;
};
using GroupSimulateEnd = ncclResult_t(SimInfo*);  // 2.22

class RealDriver : public Driver {
 public:
  RealDriver(int device, std::unique_ptr<Products> products) : device_(device), products_(std::move(products)) {}

  absl::StatusOr<DeviceInfo> Info() override {
    cudaDeviceProp properties;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties"));
    size_t free_bytes = 0, total = 0;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo"));
    DeviceInfo info;
    info.name = properties.name;
    info.major = properties.major;
    info.minor = properties.minor;
    info.multiprocessors = properties.multiProcessorCount;
    info.memory = Bytes(static_cast<int64_t>(total));
    info.free_memory = Bytes(static_cast<int64_t>(free_bytes));
    cudaDriverGetVersion(&info.driver_version);
    cudaRuntimeGetVersion(&info.runtime_version);
    ncclGetVersion(&info.nccl_version);
    return info;
  }
  void Abandon() override {
    abandoned_ = true;
    products_->Abandon();
  }

  absl::StatusOr<std::byte*> Allocate(Bytes size) override {
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, static_cast<size_t>(size.raw()));
    if (code == cudaErrorMemoryAllocation) {
      Forget();
      size_t free_bytes = 0, total = 0;
      cudaMemGetInfo(&free_bytes, &total);
      return absl::ResourceExhaustedError(
          absl::StrCat("cudaMalloc: ", size.raw(), " bytes wanted, ", free_bytes, " of ", total, " free"));
    }
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(code, "cudaMalloc"));
    return static_cast<std::byte*>(data);
  }
  void Free(std::byte* device) override {
    if (abandoned_) return;
    if (shared_.erase(device) == 0) {
      cudaFree(device);
    } else {
      FindFunction<MemFree>("ncclMemFree")(device);
    }
  }
  absl::StatusOr<std::byte*> AllocateShared(Bytes size) override {
    MemAlloc* const allocate = FindFunction<MemAlloc>("ncclMemAlloc");
    if (allocate == nullptr || FindFunction<MemFree>("ncclMemFree") == nullptr ||
        FindFunction<CommRegister>("ncclCommRegister") == nullptr ||
        FindFunction<CommDeregister>("ncclCommDeregister") == nullptr) {
      return absl::UnimplementedError("NCCL is older than 2.19");
    }
    void* data = nullptr;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(allocate(&data, static_cast<size_t>(size.raw())), "ncclMemAlloc"));
    shared_.insert(static_cast<std::byte*>(data));
    return static_cast<std::byte*>(data);
  }
  absl::StatusOr<std::byte*> AllocateHost(Bytes size) override {
    void* data = nullptr;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaMallocHost(&data, static_cast<size_t>(size.raw())), "cudaMallocHost"));
    return static_cast<std::byte*>(data);
  }
  void FreeHost(std::byte* host) override {
    if (!abandoned_) cudaFreeHost(host);
  }
  absl::Status Fill(DeviceStream stream, std::byte* device, uint8_t value, Bytes size) override {
    return ToStatus(cudaMemsetAsync(device, value, static_cast<size_t>(size.raw()), Of(stream)), "cudaMemsetAsync");
  }
  absl::Status Copy(DeviceStream stream, CopyKind kind, const std::byte* from, std::byte* to, Bytes size) override {
    const cudaMemcpyKind direction = kind == CopyKind::kToDevice ? cudaMemcpyHostToDevice
                                     : kind == CopyKind::kToHost ? cudaMemcpyDeviceToHost
                                                                 : cudaMemcpyDeviceToDevice;
    return ToStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(size.raw()), direction, Of(stream)),
                    "cudaMemcpyAsync");
  }

  absl::StatusOr<DeviceStream> MakeStream() override {
    cudaStream_t stream = nullptr;
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
    return DeviceStream{stream};
  }
  void Destroy(DeviceStream stream) override {
    if (!abandoned_) cudaStreamDestroy(Of(stream));
  }
  absl::StatusOr<bool> IsIdle(DeviceStream stream) override {
    return IsDone(cudaStreamQuery(Of(stream)), "work on a stream");
  }

  absl::StatusOr<DeviceEvent> MakeEvent(bool timed) override {
    cudaEvent_t event = nullptr;
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
                 "cudaEventCreateWithFlags"));
    return DeviceEvent{event};
  }
  void Destroy(DeviceEvent event) override {
    if (!abandoned_) cudaEventDestroy(Of(event));
  }
  absl::Status Record(DeviceStream stream, DeviceEvent event) override {
    return ToStatus(cudaEventRecord(Of(event), Of(stream)), "cudaEventRecord");
  }
  absl::Status RecordTime(DeviceStream stream, DeviceEvent event) override {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaStreamIsCapturing(Of(stream), &capture), "cudaStreamIsCapturing"));
    const unsigned flags = capture == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    return ToStatus(cudaEventRecordWithFlags(Of(event), Of(stream), flags), "cudaEventRecordWithFlags");
  }
  absl::Status Wait(DeviceStream stream, DeviceEvent event) override {
    return ToStatus(cudaStreamWaitEvent(Of(stream), Of(event), 0), "cudaStreamWaitEvent");
  }
  absl::StatusOr<bool> HasHappened(DeviceEvent event) override {
    return IsDone(cudaEventQuery(Of(event)), "work before an event");
  }
  absl::StatusOr<Nanos> Elapsed(DeviceEvent begin, DeviceEvent end) override {
    float milliseconds = 0;
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(cudaEventElapsedTime(&milliseconds, Of(begin), Of(end)), "cudaEventElapsedTime"));
    return Nanos(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6 + 0.5));
  }

  absl::Status BeginCapture(DeviceStream stream) override {
    return ToStatus(cudaStreamBeginCapture(Of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) override {
    cudaGraph_t graph = nullptr;
    absl::Status status = ToStatus(cudaStreamEndCapture(Of(stream), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t ready = nullptr;
    if (status.ok()) status = ToStatus(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (status.ok()) return DeviceGraph{ready};
    return status;
  }
  absl::Status Launch(DeviceGraph graph, DeviceStream stream) override {
    return ToStatus(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.raw), Of(stream)), "cudaGraphLaunch");
  }
  void Destroy(DeviceGraph graph) override {
    if (!abandoned_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph.raw));
  }

  absl::Status Gemm(DeviceStream stream, const GemmCall& call) override { return products_->Run(Of(stream), call); }

  absl::StatusOr<UniqueId> MakeUniqueId() override {
    static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));
    const std::lock_guard<std::mutex> lock(nccl_);
    ncclUniqueId made;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(ncclGetUniqueId(&made), "ncclGetUniqueId"));
    UniqueId id;
    std::memcpy(id.data(), &made, sizeof(made));
    return id;
  }
  absl::StatusOr<Communicator> InitRank(const UniqueId& id, int64_t size, int64_t rank) override {
    ncclUniqueId made;
    std::memcpy(&made, id.data(), sizeof(made));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Slot* const slot = NewSlot();
    const std::lock_guard<std::mutex> lock(nccl_);
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(slot), static_cast<int>(size), made,
                                        static_cast<int>(rank), &config),
                 "ncclCommInitRankConfig"));
    return Communicator{slot};
  }
  absl::StatusOr<Communicator> Split(Communicator parent, int64_t color, int64_t key) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Slot* const slot = NewSlot();
    const std::lock_guard<std::mutex> lock(nccl_);
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(ncclCommSplit(Of(parent), color == kNoColor ? NCCL_SPLIT_NOCOLOR : static_cast<int>(color),
                               static_cast<int>(key), reinterpret_cast<ncclComm_t*>(slot), &config),
                 "ncclCommSplit"));
    return color == kNoColor ? Communicator() : Communicator{slot};
  }
  // Never waits: who finds another thread in NCCL learns that something is in progress.
  CommError AsyncError(Communicator communicator) override {
    const std::unique_lock<std::mutex> lock(nccl_, std::try_to_lock);
    if (!lock.owns_lock() || Of(communicator) == nullptr) return CommError::kInProgress;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(Of(communicator), &state);
    return ErrorOf(asked != ncclSuccess ? asked : state);
  }
  // Without the lock: the thread that has it may be in the call that is to end. One after the other, an abort may wait
  // for the whole device, on which another communicator's kernel waits for its own abort (NVIDIA/nccl issue 1013):
  // together, as a group (NCCL 2.22), else each from a thread of its own.
  void AbortCommunicators(absl::Span<const Communicator> communicators) override {
    std::vector<ncclComm_t> alive;
    for (const Communicator communicator : communicators) {
      const ncclComm_t taken = communicator ? static_cast<Slot*>(communicator.raw)->exchange(nullptr) : nullptr;
      if (taken != nullptr) alive.push_back(taken);
    }
    if (alive.empty()) return;
    cudaSetDevice(device_);  // of whatever thread this is
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess && version >= kGroupAborts) {
      ncclGroupStart();
      for (const ncclComm_t one : alive) ncclCommAbort(one);
      ncclGroupEnd();
      return;
    }
    std::vector<std::thread> threads;
    for (const ncclComm_t one : alive) {
      threads.emplace_back([one, device = device_] {
        cudaSetDevice(device);
        ncclCommAbort(one);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void Destroy(Communicator communicator) override {
    if (abandoned_ || Of(communicator) == nullptr) return;
    {
      const std::lock_guard<std::mutex> lock(nccl_);
      for (void* const handle : registered_[communicator]) {
        FindFunction<CommDeregister>("ncclCommDeregister")(Of(communicator), handle);
      }
      registered_.erase(communicator);
      ncclCommFinalize(Of(communicator));
    }
    // The others finalize theirs, too; one that has died never does.
    const absl::Time until = SteadyNow() + kFinalizeTime;
    CommError state = AsyncError(communicator);
    while (state == CommError::kInProgress && SteadyNow() < until) {
      absl::SleepFor(kNap);
      state = AsyncError(communicator);
    }
    if (state != CommError::kNone) return AbortCommunicators({communicator});
    const std::lock_guard<std::mutex> lock(nccl_);
    ncclCommDestroy(static_cast<Slot*>(communicator.raw)->exchange(nullptr));
  }

  absl::Status Register(Communicator communicator, std::byte* device, Bytes size) override {
    if (shared_.count(device) == 0) return absl::InvalidArgumentError("memory that is not of AllocateShared");
    void* handle = nullptr;
    const std::lock_guard<std::mutex> lock(nccl_);
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(FindFunction<CommRegister>("ncclCommRegister")(
                                            Of(communicator), device, static_cast<size_t>(size.raw()), &handle),
                                        "ncclCommRegister"));
    if (handle != nullptr) registered_[communicator].push_back(handle);
    return absl::OkStatus();
  }

  bool GivesEstimates() override { return FindFunction<GroupSimulateEnd>("ncclGroupSimulateEnd") != nullptr; }
  // One that blocks: on others NCCL's groupLaunchNonBlocking forgets the estimate and launches (src/group.cc, 2.22 to
  // 2.29).
  absl::StatusOr<Communicator> InitForEstimates(const UniqueId& id, int64_t size, int64_t rank) override {
    ncclUniqueId made;
    std::memcpy(&made, id.data(), sizeof(made));
    Slot* const slot = NewSlot();
    const std::lock_guard<std::mutex> lock(nccl_);
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(
        ncclCommInitRank(reinterpret_cast<ncclComm_t*>(slot), static_cast<int>(size), made, static_cast<int>(rank)),
        "ncclCommInitRank"));
    return Communicator{slot};
  }
  absl::StatusOr<Nanos> GroupEstimate() override {
    const std::lock_guard<std::mutex> lock(nccl_);
    SimInfo info;
    int version = 0;
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(ncclGetVersion(&version), "ncclGetVersion"));
    info.version = static_cast<unsigned>(version);
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(FindFunction<GroupSimulateEnd>("ncclGroupSimulateEnd")(&info), "ncclGroupSimulateEnd"));
    return Nanos(info.microseconds > 0 ? static_cast<int64_t>(static_cast<double>(info.microseconds) * 1e3 + 0.5) : 0);
  }

  absl::Status GroupStart() override {
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(ncclGroupStart(), "ncclGroupStart");
  }
  absl::Status GroupEnd() override {
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(ncclGroupEnd(), "ncclGroupEnd");
  }
  absl::Status AllReduce(const std::byte* from, std::byte* to, int64_t count, DType dtype, Reduction reduction,
                         Communicator communicator, DeviceStream stream) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(
        ncclAllReduce(from, to, static_cast<size_t>(count), type, OpOf(reduction), Of(communicator), Of(stream)),
        "ncclAllReduce");
  }
  absl::Status AllGather(const std::byte* from, std::byte* to, int64_t count, DType dtype, Communicator communicator,
                         DeviceStream stream) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(ncclAllGather(from, to, static_cast<size_t>(count), type, Of(communicator), Of(stream)),
                    "ncclAllGather");
  }
  absl::Status ReduceScatter(const std::byte* from, std::byte* to, int64_t count, DType dtype, Reduction reduction,
                             Communicator communicator, DeviceStream stream) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(
        ncclReduceScatter(from, to, static_cast<size_t>(count), type, OpOf(reduction), Of(communicator), Of(stream)),
        "ncclReduceScatter");
  }
  absl::Status Broadcast(const std::byte* from, std::byte* to, int64_t count, DType dtype, int64_t root,
                         Communicator communicator, DeviceStream stream) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(
        ncclBroadcast(from, to, static_cast<size_t>(count), type, static_cast<int>(root), Of(communicator), Of(stream)),
        "ncclBroadcast");
  }
  absl::Status Send(const std::byte* from, int64_t count, DType dtype, int64_t peer, Communicator communicator,
                    DeviceStream stream) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(
        ncclSend(from, static_cast<size_t>(count), type, static_cast<int>(peer), Of(communicator), Of(stream)),
        "ncclSend");
  }
  absl::Status Receive(std::byte* to, int64_t count, DType dtype, int64_t peer, Communicator communicator,
                       DeviceStream stream) override {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(dtype));
    const std::lock_guard<std::mutex> lock(nccl_);
    return ToStatus(
        ncclRecv(to, static_cast<size_t>(count), type, static_cast<int>(peer), Of(communicator), Of(stream)),
        "ncclRecv");
  }

 private:
  Slot* NewSlot() {
    slots_.push_back(std::make_unique<Slot>(nullptr));
    return slots_.back().get();
  }

  const int device_;
  const std::unique_ptr<Products> products_;
  // One thread at a time in NCCL, but for aborts: the watchdog's and the rank's would both join the thread that a call
  // of a communicator that does not block has left behind (pytorch/pytorch issue 169484; NCCL user's guide, thread
  // safety).
  std::mutex nccl_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::set<std::byte*> shared_;  // of AllocateShared
  std::map<Communicator, std::vector<void*>> registered_;
  bool abandoned_ = false;
};

// 13000 is 13.0, 12040 is 12.4.
std::string VersionText(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }

}  // namespace

absl::StatusOr<int64_t> CountDevices() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess) return count;
  Forget();
  if (code == cudaErrorNoDevice) return 0;
  // The runtime says "insufficient driver" where there is none at all, too: its version is 0 then.
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (code == cudaErrorInsufficientDriver && driver == 0) return 0;
  const std::string text = absl::StrCat("cudaGetDeviceCount: ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  if (code != cudaErrorInsufficientDriver) return absl::FailedPreconditionError(text);
  return absl::FailedPreconditionError(absl::StrCat(
      text, ": the driver is for CUDA ", VersionText(driver), ", this program was built with ", VersionText(runtime),
      "; it wants a driver for that or a later one, or to be built with an older toolkit"));
}

absl::Status CheckDevice() {
  cudaError_t code = cudaDeviceSynchronize();
  if (code == cudaSuccess) code = cudaGetLastError();
  return ToStatus(code, "the device");
}

absl::StatusOr<std::unique_ptr<Driver>> OpenDevice(int64_t device) {
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaSetDevice(static_cast<int>(device)), "cudaSetDevice"));
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaFree(nullptr), "the device's context"));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::unique_ptr<Products> products, Products::Make());
  return std::unique_ptr<Driver>(new RealDriver(static_cast<int>(device), std::move(products)));
}

}  // namespace meshwright::cuda
