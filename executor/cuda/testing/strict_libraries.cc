#include "executor/cuda/testing/strict_libraries.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace {

using Work = std::function<void()>;
struct Graph {
  std::vector<Work> work;
};
struct Stream {
  int unfinished = 0;  // polls that find work not done
  Graph* graph = nullptr;
  bool loose = false;  // captured, and not joined to the stream that began
};
struct Event {
  bool timed = false;
  bool happened = false;       // recorded outside of a capture, or by a launch
  Stream* captured = nullptr;  // recorded in a capture of this stream
  int unfinished = 0;
};
struct Comm {
  bool blocking = false, done = false;
  int polls = 0;  // until it says ncclSuccess
  int ranks = 0, device = 0;
  int64_t split = -1, groups = 0;  // which of those that are split off it is
  ncclResult_t error = ncclSuccess;
  std::function<void()> when_ready;
  std::atomic<int> inside{0};
};

std::recursive_mutex mutex;
meshwright::cuda::testing::LibraryOptions options;
meshwright::cuda::testing::LibraryCounts counts;
std::atomic<int64_t> splits = 0;
std::vector<std::string> broken;
thread_local cudaError_t last_error = cudaSuccess;
thread_local Stream* capturing = nullptr;  // begun by this thread
thread_local std::vector<Stream*> forked;
thread_local int group_depth = 0, captured_calls = 0;
thread_local std::vector<Comm*> in_group;
thread_local int device = 0;

using Lock = std::lock_guard<std::recursive_mutex>;

void Broken(const std::string& rule) {
  const Lock lock(mutex);
  broken.push_back(rule);
}
cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
// CUDA programming guide, stream capture, prohibited calls; cudaStreamCaptureModeThreadLocal.
bool Forbidden(const char* call) {
  if (capturing == nullptr) return false;
  Broken(std::string(call) + " during a capture");
  return true;
}
cudaError_t Do(cudaStream_t raw, Work work) {
  auto* const stream = reinterpret_cast<Stream*>(raw);
  if (stream->graph != nullptr) {
    stream->graph->work.push_back(std::move(work));
    stream->loose = stream != capturing;
  } else {
    work();
    stream->unfinished = 2;
  }
  return cudaSuccess;
}

// One thread at a time on a communicator (NCCL user's guide, thread safety), and none before the last call is done
// (ncclCommEnsureReady).
class Inside {
 public:
  Inside(Comm* comm, const char* call, bool wants_ready) : comm_(comm) {
    if (comm_->inside.fetch_add(1) != 0) Broken(std::string(call) + ": two threads on one communicator");
    if (comm_->done) Broken(std::string(call) + " on a communicator that is gone");
    if (wants_ready && comm_->polls > 0)
      Broken(std::string(call) + " before the last call of the communicator is done");
  }
  ~Inside() { comm_->inside.fetch_sub(1); }

 private:
  Comm* const comm_;
};
Comm* Of(ncclComm_t comm) { return reinterpret_cast<Comm*>(comm); }
Comm* NewComm(int ranks, bool blocking) {
  const Lock lock(mutex);
  auto* const comm = new Comm;
  comm->ranks = ranks;
  comm->blocking = blocking;
  comm->device = device;
  comm->polls = blocking ? 0 : 3;
  ++counts.communicators;
  return comm;
}

ncclResult_t Call(ncclComm_t raw, cudaStream_t stream, const char* name, Work work) {
  Comm* const comm = Of(raw);
  const Inside inside(comm, name, true);
  if (group_depth == 0) Broken(std::string(name) + " outside of a group");
  if (capturing != nullptr && options.refuses_captured && ++captured_calls == 2) return ncclInvalidUsage;
  if (std::find(in_group.begin(), in_group.end(), comm) == in_group.end()) in_group.push_back(comm);
  Do(stream, std::move(work));
  return ncclSuccess;
}
size_t SizeOfType(ncclDataType_t type) {
  if (type == ncclFloat64 || type == ncclInt64) return 8;
  if (type == ncclFloat16 || type == ncclBfloat16) return 2;
  return type == ncclUint8 ? 1 : 4;
}

struct Description {
  std::map<int, std::vector<char>> attributes;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
};

}  // namespace

namespace meshwright::cuda::testing {

void ResetLibraries(const LibraryOptions& with) {
  const Lock lock(mutex);
  options = with;
  counts = {};
  splits = 0;
  counts.products.resize(options.good.size());
  broken.clear();
  last_error = cudaSuccess;
}
std::vector<std::string> BrokenRules() {
  const Lock lock(mutex);
  return broken;
}
LibraryCounts CountsOfLibraries() {
  const Lock lock(mutex);
  return counts;
}

}  // namespace meshwright::cuda::testing

// ---- the CUDA runtime

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorName"; }
const char* cudaGetErrorString(cudaError_t) { return "words"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = options.devices;
  if (options.driver < options.runtime) return Return(cudaErrorInsufficientDriver);
  return Return(options.devices == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = options.driver, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = options.runtime, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a strict GPU");
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = size_t{1} << 30, cudaSuccess; }
cudaError_t cudaSetDevice(int number) { return device = number, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t size) {
  if (Forbidden("cudaMalloc")) return Return(cudaErrorStreamCaptureUnsupported);
  if (size > size_t{1} << 30) return Return(cudaErrorMemoryAllocation);
  return *data = std::aligned_alloc(256, (size + 255) / 256 * 256), cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data != nullptr && Forbidden("cudaFree")) return Return(cudaErrorStreamCaptureUnsupported);
  return std::free(data), cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t size) {
  if (Forbidden("cudaMallocHost")) return Return(cudaErrorStreamCaptureUnsupported);
  return cudaMalloc(data, size);
}
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
cudaError_t cudaMallocAsync(void** data, size_t size, cudaStream_t) { return cudaMalloc(data, size); }
cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return cudaFree(data); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return Do(stream, [=] { std::memset(to, value, size); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  return Do(stream, [=] { std::memcpy(to, from, size); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(new Stream), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete reinterpret_cast<Stream*>(stream), cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (Forbidden("cudaStreamQuery")) return Return(cudaErrorStreamCaptureUnsupported);
  return Return(reinterpret_cast<Stream*>(stream)->unfinished-- > 0 ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const bool yes = reinterpret_cast<Stream*>(stream)->graph != nullptr;
  return *status = yes ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t raw, cudaEvent_t raw_event, unsigned) {
  auto* const stream = reinterpret_cast<Stream*>(raw);
  auto* const event = reinterpret_cast<Event*>(raw_event);
  if (event->captured != nullptr && event->captured->graph != nullptr) {
    if (stream->graph == nullptr) forked.push_back(stream);
    stream->graph = event->captured->graph;
    if (stream != event->captured) event->captured->loose = false;
    stream->loose = stream != capturing;
  } else if (event->captured != nullptr && stream->graph == nullptr) {  // cudaErrorCapturedEvent
    Broken("a wait for an event of a capture that is over");
    return Return(cudaErrorCapturedEvent);
  } else if (stream->graph != nullptr && event->happened) {
    Broken("a captured stream waits for what was recorded outside");
    return Return(cudaErrorStreamCaptureIsolation);
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto* const made = new Event;
  made->timed = (flags & cudaEventDisableTiming) == 0;
  return *event = reinterpret_cast<cudaEvent_t>(made), cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete reinterpret_cast<Event*>(event), cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t raw, cudaStream_t raw_stream, unsigned flags) {
  auto* const event = reinterpret_cast<Event*>(raw);
  auto* const stream = reinterpret_cast<Stream*>(raw_stream);
  const bool external = flags == cudaEventRecordExternal;
  if (external && stream->graph == nullptr) {  // cudaEventRecordWithFlags
    Broken("an external record outside of a capture");
    return Return(cudaErrorInvalidValue);
  }
  if (stream->graph != nullptr && !external) {
    event->captured = stream;
    event->happened = false;
    return cudaSuccess;
  }
  event->captured = nullptr;
  return Do(raw_stream, [event] {
    event->happened = true;
    event->unfinished = 2;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t raw) {
  if (Forbidden("cudaEventQuery")) return Return(cudaErrorStreamCaptureUnsupported);
  auto* const event = reinterpret_cast<Event*>(raw);
  if (event->captured != nullptr) return Return(cudaErrorCapturedEvent);
  return Return(options.hangs || event->unfinished-- > 0 ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t each : {begin, end}) {
    const auto* const event = reinterpret_cast<Event*>(each);
    if (!event->timed || !event->happened) {  // cudaErrorInvalidResourceHandle
      Broken("the time of an event that has none");
      return Return(cudaErrorInvalidResourceHandle);
    }
  }
  return *milliseconds = 0.25f, cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t raw, cudaStreamCaptureMode mode) {
  auto* const stream = reinterpret_cast<Stream*>(raw);
  if (mode != cudaStreamCaptureModeThreadLocal) Broken("a capture that other threads can break");
  stream->graph = new Graph;
  capturing = stream;
  captured_calls = 0;
  const Lock lock(mutex);
  ++counts.captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t raw, cudaGraph_t* graph) {
  auto* const stream = reinterpret_cast<Stream*>(raw);
  bool loose = false;
  for (Stream* const other : std::exchange(forked, {})) {
    loose = loose || other->loose;
    other->graph = nullptr;
    other->loose = false;
  }
  capturing = nullptr;
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(stream->graph, nullptr));
  if (!loose) return cudaSuccess;
  Broken("a stream that is not joined at the end of a capture");
  return Return(cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  const Lock lock(mutex);
  ++counts.graphs;
  return *ready = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph))), cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete reinterpret_cast<Graph*>(graph), cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete reinterpret_cast<Graph*>(graph), cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return Do(stream, [graph] {
    for (const Work& work : reinterpret_cast<Graph*>(graph)->work) work();
  });
}

// ---- cuBLASLt

const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_NAME"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return *handle = reinterpret_cast<cublasLtHandle_t>(new int), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return delete reinterpret_cast<int*>(handle), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
  return delete reinterpret_cast<Description*>(made), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  const char* const bytes = static_cast<const char*>(value);
  reinterpret_cast<Description*>(made)->attributes[attribute].assign(bytes, bytes + size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) Broken("a column of a matrix that reaches into the next");
  auto* const layout = new Layout{type, rows, columns, leading};
  return *made = reinterpret_cast<cublasLtMatrixLayout_t>(layout), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
  return delete reinterpret_cast<Layout*>(made), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void*,
                                                size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Description), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
  return delete reinterpret_cast<Description*>(made), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  const char* const bytes = static_cast<const char*>(value);
  reinterpret_cast<Description*>(made)->attributes[attribute].assign(bytes, bytes + size);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const auto at = [&](cublasLtMatrixLayout_t layout) { return reinterpret_cast<Layout*>(layout); };
  auto& attributes = reinterpret_cast<Description*>(operation)->attributes;
  const auto transposed = [&](cublasLtMatmulDescAttributes_t which) {
    return *reinterpret_cast<const cublasOperation_t*>(attributes[which].data()) == CUBLAS_OP_T;
  };
  const bool ta = transposed(CUBLASLT_MATMUL_DESC_TRANSA), tb = transposed(CUBLASLT_MATMUL_DESC_TRANSB);
  const uint64_t m = ta ? at(a)->columns : at(a)->rows, k = ta ? at(a)->rows : at(a)->columns;
  const uint64_t k2 = tb ? at(b)->columns : at(b)->rows, n = tb ? at(b)->rows : at(b)->columns;
  if (k != k2 || at(c)->rows != m || at(c)->columns != n || c != d) Broken("matrices that do not fit each other");
  if (attributes.count(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) > 0) {  // cublasLt.h: a multiple of 8
    int64_t leading = 0;
    std::memcpy(&leading, attributes[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD].data(), sizeof(leading));
    if (leading % 8 != 0 || leading < static_cast<int64_t>(m)) Broken("an aux whose rows are not a multiple of 8");
  }
  const std::vector<char>& schemes =
      reinterpret_cast<Description*>(preference)->attributes[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK];
  uint32_t allowed = CUBLASLT_REDUCTION_SCHEME_MASK;
  if (!schemes.empty()) std::memcpy(&allowed, schemes.data(), sizeof(allowed));
  if ((allowed & ~static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) != 0) {
    Broken("sums that are rounded to the type of the result on the way");
  }
  const Lock lock(mutex);
  *found = std::min(wanted, static_cast<int>(options.good.size()));
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].state = options.good[static_cast<size_t>(i)] ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                              const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t,
                              void*, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t) {
  const Lock lock(mutex);
  const size_t number = static_cast<size_t>(algorithm->data[0]);
  if (!options.good[number]) Broken("a product by an algorithm whose state is bad");
  if (!options.launches[number]) return CUBLAS_STATUS_NOT_SUPPORTED;
  ++counts.products[number];
  return CUBLAS_STATUS_SUCCESS;
}

// ---- NCCL

const char* ncclGetLastError(ncclComm_t) { return "NCCL's words"; }
ncclResult_t ncclGetVersion(int* version) { return *version = options.nccl, ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return *id = {}, ncclSuccess; }
ncclResult_t ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId, int) {
  return *made = reinterpret_cast<ncclComm_t>(NewComm(ranks, true)), ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId, int, ncclConfig_t* config) {
  *made = reinterpret_cast<ncclComm_t>(NewComm(ranks, config->blocking != 0));
  return ncclInProgress;
}
// The child is written by NCCL's own thread, some time later.
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int, ncclComm_t* made, ncclConfig_t* config) {
  const Inside inside(Of(parent), "ncclCommSplit", true);
  *made = nullptr;
  Of(parent)->polls = 4;
  if (color != NCCL_SPLIT_NOCOLOR) {
    Comm* const child = NewComm(Of(parent)->ranks, config->blocking != 0);
    child->split = splits++;
    Of(parent)->when_ready = [made, child] { *made = reinterpret_cast<ncclComm_t>(child); };
  }
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t raw, ncclResult_t* state) {
  Comm* const comm = Of(raw);
  const Inside inside(comm, "ncclCommGetAsyncError", false);
  std::this_thread::sleep_for(std::chrono::microseconds(5));  // as long as it takes to join a thread
  const Lock lock(mutex);
  ++counts.polls;
  if (comm->polls > 0 && --comm->polls == 0 && comm->when_ready) std::exchange(comm->when_ready, nullptr)();
  return *state = comm->error != ncclSuccess ? comm->error
                  : comm->polls > 0          ? ncclInProgress
                                             : ncclSuccess,
         ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Inside inside(Of(comm), "ncclCommFinalize", true);
  if (capturing != nullptr) Broken("ncclCommFinalize during a capture");
  Of(comm)->polls = 2;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Inside inside(Of(comm), "ncclCommDestroy", true);
  return Of(comm)->done = true, ncclSuccess;
}
// NVIDIA/nccl issue 1013: from 2.22 on, those of one thread in a group.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock(mutex);
  if (options.nccl >= 22200 && group_depth == 0) Broken("aborts one by one");
  if (Of(comm)->done) Broken("an abort of a communicator that is gone");
  if (device != Of(comm)->device) Broken("an abort on another device");
  Of(comm)->done = true;
  ++counts.aborted;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) Broken("the end of no group");
  if (--group_depth > 0) return ncclSuccess;
  const Lock lock(mutex);
  bool blocking = true;
  for (Comm* const comm : std::exchange(in_group, {})) {
    blocking = blocking && comm->blocking;
    if (!comm->blocking) comm->polls = 3;
    if (comm->split >= 0 && comm->split == options.failing_split && comm->groups++ >= options.fails_at)
      comm->error = ncclInternalError;
  }
  ++counts.groups;
  return blocking ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return Call(comm, stream, "ncclAllReduce", [=] { std::memmove(to, from, count * SizeOfType(type)); });
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int, ncclComm_t comm,
                           cudaStream_t stream) {
  return Call(comm, stream, "ncclBroadcast", [=] { std::memmove(to, from, count * SizeOfType(type)); });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, "ncclReduceScatter", [=] { std::memmove(to, from, count * SizeOfType(type)); });
}
// Of as many ranks as the first communicator has: a split one has fewer, so no more than one piece is written.
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Call(comm, stream, "ncclAllGather", [=] { std::memmove(to, from, count * SizeOfType(type)); });
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, "ncclSend", [] {});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int, ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, "ncclRecv", [=] { std::memset(to, 0, count * SizeOfType(type)); });
}
