// The host as a device: an arena in main memory, kernels that run when they are issued, ranks that talk through an
// Endpoint. Streams and events order nothing here: issue order is a legal order of every program. A broadcast sends
// what the first rank of its group holds.
#ifndef MESHWRIGHT_EXECUTOR_HOST_HOST_BACKEND_H_
#define MESHWRIGHT_EXECUTOR_HOST_HOST_BACKEND_H_

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "executor/backend.h"
#include "executor/host/communicator.h"

namespace meshwright {

class HostBackend : public Backend {
 public:
  // `endpoint` must outlive this.
  explicit HostBackend(Endpoint& endpoint) : endpoint_(endpoint) {}

  absl::StatusOr<std::byte*> AllocateArena(Bytes size) override;
  absl::Status CopyIn(Stream stream, absl::Span<const std::byte> from, std::byte* to) override;
  absl::Status CopyOut(Stream stream, const std::byte* from, absl::Span<std::byte> to) override;
  absl::Status RunKernel(Stream stream, const KernelCall& call) override;
  absl::Status RunSlice(Stream stream, const TensorView& from, const TensorView& to) override;
  absl::Status RunCollective(Stream stream, const CollectiveCall& call) override;
  absl::Status RunExchange(Stream stream, const ExchangeCall& call) override;
  absl::Status PrepareEvents(int64_t) override { return absl::OkStatus(); }
  absl::Status Record(Stream, int64_t) override { return absl::OkStatus(); }
  absl::Status Wait(Stream, int64_t) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status Barrier() override;
  absl::StatusOr<std::vector<std::string>> GatherAll(absl::string_view own) override;
  absl::Status StartClock() override;
  absl::Status Mark(Stream stream) override;
  absl::StatusOr<std::vector<Nanos>> MarkTimes() override { return marks_; }
  void Abort(const absl::Status& reason) override { endpoint_.Abort(reason); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  absl::Status Communicate(const CollectiveCall& call);

  Endpoint& endpoint_;
  std::unique_ptr<std::byte, Free> arena_;
  std::chrono::steady_clock::time_point start_;
  std::vector<Nanos> marks_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_HOST_BACKEND_H_
