// Collectives and exchanges of one rank on the driver's communicators.
//
// What lies in memory as NCCL wants it goes straight from and to the tensors; pieces of an inner dim, and operands that
// share memory in a way NCCL does not allow, go through scratch. Tensors of a fused bucket that lie side by side are
// one call, all calls of an instruction one launch.
//
// Thread safety: one thread, the rank's own.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_COMMUNICATION_H_
#define MESHWRIGHT_EXECUTOR_CUDA_COMMUNICATION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/backend.h"
#include "executor/cuda/communicator_plan.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/kernels.h"
#include "executor/host/communicator.h"

namespace meshwright::cuda {

// What was put on a communicator: its index in the plan, -1 for work that stays on the rank, and the how many-th launch
// of this rank on it this is.
struct LaunchId {
  int64_t communicator = -1;
  int64_t ordinal = 0;
};

class Communication {
 public:
  // Asked while something is awaited: an error ends the wait.
  using Look = std::function<absl::Status()>;

  // All of these must outlive this.
  Communication(Driver& driver, Kernels& kernels, Scratch& scratch, Endpoint& endpoint, CommunicatorPlan plan,
                Look look);
  // To be called last; communicators that were not aborted must be idle.
  void Close();

  // Makes the communicators; all ranks call. `stream` carries a first small message over each, so that no rank waits
  // for a connection in the middle of a step. Calls made(index, handle) for each, at once.
  absl::Status Connect(DeviceStream stream, const std::function<void(int64_t, Communicator)>& made);
  // They were aborted, by whoever watches them.
  void Forget();

  // Tells the communicators of collectives of the arena, from where and to where they then move what they can.
  absl::Status Register(std::byte* arena, Bytes size);

  // Communicators for estimates, beside the others; all ranks call. False: the library gives none, on some rank.
  absl::StatusOr<bool> ConnectEstimates();
  // What the library expects the call to take, which is not run; zero where it does not say: exchanges, groups of one,
  // and what is more than one of its calls.
  absl::StatusOr<Nanos> Estimate(Stream program_stream, DeviceStream stream, const CollectiveCall& call);

  // Device memory that the call needs on its stream.
  static Bytes ScratchFor(const CollectiveCall& call);

  // What the call will be launched as.
  absl::StatusOr<LaunchId> Next(Stream stream, const CollectiveCall& call);
  absl::StatusOr<LaunchId> Next(Stream stream, const ExchangeCall& call);
  absl::Status Run(DeviceStream stream, const CollectiveCall& call, const LaunchId& id);
  absl::Status Run(DeviceStream stream, const ExchangeCall& call, const LaunchId& id);

  const CommunicatorPlan& plan() const { return plan_; }

  // All streams are idle: what comes need not wait for what was.
  void Idle();
  // How many launches of this rank each communicator of the plan has had. A step that is recorded and launched again
  // has more than Run knows of.
  std::vector<int64_t> launches() const;
  void set_launches(absl::Span<const int64_t> launches);

 private:
  absl::StatusOr<LaunchId> NextOf(CommUse use, Stream stream, absl::Span<const int64_t> ranks);
  absl::Status Ready(Communicator communicator);
  // All of `calls` as one launch, and until the communicator has taken it.
  template <class Calls>
  absl::Status InGroup(Communicator communicator, const Calls& calls);
  absl::Status FirstMessages(DeviceStream stream);
  absl::Status Put(const CollectiveCall& call, DType dtype, const std::byte* from, std::byte* to, int64_t count,
                   Communicator communicator, DeviceStream stream);
  absl::Status Unpack(DeviceStream stream, const Collective& c, int64_t n, size_t dim, std::byte* from,
                      const TensorView& write);
  absl::Status RunLocal(DeviceStream stream, const CollectiveCall& call);
  absl::Status CopyWhole(DeviceStream stream, const std::byte* from, std::byte* to, int64_t bytes);
  absl::Status OrderAfterLastUse(int64_t index, DeviceStream stream);

  struct Made {
    Communicator communicator;
    Communicator estimates;
    int64_t launches = 0;
    DeviceStream last;  // the stream of its last launch
  };

  Driver& driver_;
  Kernels& kernels_;
  Scratch& scratch_;
  Endpoint& endpoint_;
  const CommunicatorPlan plan_;
  const Look look_;
  Communicator world_;
  std::vector<Made> made_;  // [index in the plan]
  DeviceEvent order_;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_COMMUNICATION_H_
