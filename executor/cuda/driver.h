// What the back end needs from a GPU and from the library that joins GPUs: one narrow interface over the CUDA runtime,
// cuBLASLt and NCCL.
//
//   real       executor/cuda/real_driver.h, where there is CUDA
//   stand-in   executor/cuda/testing/stand_in.h, on host memory: keeps the order of streams and events, and checks it
//
// Work is asynchronous: a call that takes a stream returns when the work is queued. Pointers named `device` may not be
// read by the host. Handles are values; what they name lives until it is destroyed, or as long as the driver.
//
// Errors: those of the call, and of work queued earlier (a device that failed fails everything after). Errors of
// communicators show in AsyncError.
//
// Thread safety: one thread per driver, but AsyncError and AbortCommunicators may be called from another.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_DRIVER_H_
#define MESHWRIGHT_EXECUTOR_CUDA_DRIVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/layout.h"
#include "ir/quantities.h"

namespace meshwright::cuda {

// What a driver's handle points to is the driver's own.
template <class Tag>
struct Handle {
  void* raw = nullptr;
  explicit operator bool() const { return raw != nullptr; }
  friend auto operator<=>(const Handle&, const Handle&) = default;
};
using DeviceStream = Handle<struct StreamTag>;
using DeviceEvent = Handle<struct EventTag>;
using DeviceGraph = Handle<struct GraphTag>;
using Communicator = Handle<struct CommunicatorTag>;

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  Bytes memory, free_memory;
  int driver_version = 0, runtime_version = 0, nccl_version = 0;  // as the libraries number them
};

enum class CopyKind : uint8_t { kToDevice, kToHost, kOnDevice };

// c = a b + beta c for `batch` pairs of matrices, row-major, `leading` elements from row to row. a is m x k, b is k x
// n, c is m x n and never transposed. Sums are kept in float32, or float64 where c is.
struct MatrixRef {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t leading = 0;
  bool transposed = false;   // stored as its transpose
  int64_t batch_stride = 0;  // elements
};
// What is done to a product before it is written. GELU's tanh form, of what stands in `aux`:
//   kGelu      aux = a b + bias, where there is an aux; c = gelu(a b + bias)
//   kGeluGrad  c = a b gelu'(aux)
// aux lies as c, with rows of a multiple of 8 elements. Of 16-bit results that are not added to anything;
// kUnimplemented where the library has none for the operands.
enum class GemmEpilogue : uint8_t { kNone, kGelu, kGeluGrad };
struct GemmCall {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  MatrixRef a, b, c;
  bool add = false;  // beta is 1, else 0 and c is not read
  // Where there is one: n elements of c's type that are added to every row. Of one pair, and never in float64.
  const std::byte* bias = nullptr;
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  std::byte* aux = nullptr;
  bool tf32 = false;  // float32 operands may be rounded to TF32
};

// What a communicator can say of itself; the order is NCCL's.
enum class CommError : uint8_t {
  kNone,
  kUnhandledCuda,
  kSystem,
  kInternal,
  kInvalidArgument,
  kInvalidUsage,
  kRemote,      // another rank failed or went away
  kInProgress,  // no error: a call that has not finished yet
  kNumErrors
};
absl::string_view NameOf(CommError error);
// OK for kNone and kInProgress; kUnavailable for kRemote, kInternal else. "CALL: ncclSystemError"
absl::Status ToStatus(CommError error, absl::string_view call);

using UniqueId = std::array<std::byte, 128>;
inline constexpr int64_t kNoColor = -1;

class Driver {
 public:
  virtual ~Driver() = default;

  virtual absl::StatusOr<DeviceInfo> Info() = 0;
  // The device may never be idle again: from here on Destroy and Free do nothing, lest they wait for it.
  virtual void Abandon() = 0;

  // Device memory, aligned to kAlignment (ir/program.h); kResourceExhausted when there is not that much. And host
  // memory that copies read and write without a detour.
  virtual absl::StatusOr<std::byte*> Allocate(Bytes size) = 0;
  virtual void Free(std::byte* device) = 0;
  // The same, of memory that communicators can be told of (Register); kUnimplemented where there is no such memory.
  virtual absl::StatusOr<std::byte*> AllocateShared(Bytes size) = 0;
  virtual absl::StatusOr<std::byte*> AllocateHost(Bytes size) = 0;
  virtual void FreeHost(std::byte* host) = 0;
  virtual absl::Status Fill(DeviceStream stream, std::byte* device, uint8_t value, Bytes size) = 0;
  virtual absl::Status Copy(DeviceStream stream, CopyKind kind, const std::byte* from, std::byte* to, Bytes size) = 0;

  virtual absl::StatusOr<DeviceStream> MakeStream() = 0;
  virtual void Destroy(DeviceStream stream) = 0;
  // Whether all work of the stream is done.
  virtual absl::StatusOr<bool> IsIdle(DeviceStream stream) = 0;

  // Record marks the end of what the stream holds; Wait refers to the latest record, and to none where there is none.
  virtual absl::StatusOr<DeviceEvent> MakeEvent(bool timed) = 0;
  virtual void Destroy(DeviceEvent event) = 0;
  virtual absl::Status Record(DeviceStream stream, DeviceEvent event) = 0;
  // The same for a timed event; while the stream is captured, it becomes part of the graph, and each launch records.
  virtual absl::Status RecordTime(DeviceStream stream, DeviceEvent event) = 0;
  virtual absl::Status Wait(DeviceStream stream, DeviceEvent event) = 0;
  virtual absl::StatusOr<bool> HasHappened(DeviceEvent event) = 0;
  // Between two timed events that have happened.
  virtual absl::StatusOr<Nanos> Elapsed(DeviceEvent begin, DeviceEvent end) = 0;

  // From Begin to End, work of the stream, and of streams that wait for its events, is not done but kept. All of them
  // must be joined to the stream again before the end. Until then this thread allocates and frees nothing, asks nothing
  // about streams and events, and no stream waits for an event from before. End must follow even where a call between
  // has failed: it fails then too, and the streams are as before.
  virtual absl::Status BeginCapture(DeviceStream stream) = 0;
  virtual absl::StatusOr<DeviceGraph> EndCapture(DeviceStream stream) = 0;
  virtual absl::Status Launch(DeviceGraph graph, DeviceStream stream) = 0;
  virtual void Destroy(DeviceGraph graph) = 0;

  // kUnimplemented: the library cannot do this one, and nothing has been queued.
  virtual absl::Status Gemm(DeviceStream stream, const GemmCall& call) = 0;

  // Communicators. InitRank and Split are called by all members, and may return before they are done: AsyncError then
  // says kInProgress. Split makes one communicator for each colour, its members ordered by key; kNoColor gives none.
  virtual absl::StatusOr<UniqueId> MakeUniqueId() = 0;
  virtual absl::StatusOr<Communicator> InitRank(const UniqueId& id, int64_t size, int64_t rank) = 0;
  virtual absl::StatusOr<Communicator> Split(Communicator parent, int64_t color, int64_t key) = 0;
  virtual CommError AsyncError(Communicator communicator) = 0;
  // Ends their work at once, done or not, and destroys them, all together; Destroy is for one that is idle.
  virtual void AbortCommunicators(absl::Span<const Communicator> communicators) = 0;
  virtual void Destroy(Communicator communicator) = 0;

  // From here on what lies in `device` (of AllocateShared) may be read and written by the others of the communicator
  // where it lies, without copies through buffers of its own. Destroyed before the memory is freed.
  virtual absl::Status Register(Communicator communicator, std::byte* device, Bytes size) = 0;

  // What the library itself expects of collectives: on communicators of their own, whose calls are never launched.
  // InitForEstimates waits until all members have called; GroupEstimate stands for GroupEnd, and gives the time of a
  // group of one collective, zero where the library says nothing.
  virtual bool GivesEstimates() = 0;
  virtual absl::StatusOr<Communicator> InitForEstimates(const UniqueId& id, int64_t size, int64_t rank) = 0;
  virtual absl::StatusOr<Nanos> GroupEstimate() = 0;

  // Calls between GroupStart and GroupEnd are one launch: none waits for another. Counts are in elements; those of
  // AllGather and ReduceScatter are of one rank's piece. `from` and `to` may be the same for AllReduce and Broadcast;
  // AllGather may read where the result's own piece lies, ReduceScatter may write there.
  virtual absl::Status GroupStart() = 0;
  virtual absl::Status GroupEnd() = 0;
  virtual absl::Status AllReduce(const std::byte* from, std::byte* to, int64_t count, DType dtype, Reduction reduction,
                                 Communicator communicator, DeviceStream stream) = 0;
  virtual absl::Status AllGather(const std::byte* from, std::byte* to, int64_t count, DType dtype,
                                 Communicator communicator, DeviceStream stream) = 0;
  virtual absl::Status ReduceScatter(const std::byte* from, std::byte* to, int64_t count, DType dtype,
                                     Reduction reduction, Communicator communicator, DeviceStream stream) = 0;
  virtual absl::Status Broadcast(const std::byte* from, std::byte* to, int64_t count, DType dtype, int64_t root,
                                 Communicator communicator, DeviceStream stream) = 0;
  virtual absl::Status Send(const std::byte* from, int64_t count, DType dtype, int64_t peer, Communicator communicator,
                            DeviceStream stream) = 0;
  virtual absl::Status Receive(std::byte* to, int64_t count, DType dtype, int64_t peer, Communicator communicator,
                               DeviceStream stream) = 0;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_DRIVER_H_
