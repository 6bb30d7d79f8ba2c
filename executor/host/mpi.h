// Ranks as processes of an MPI job:
//
//   mpirun -np 8 program_that_calls_Join      // then executor/host/run_on_endpoint.h
//
// Only messages between two ranks are MPI's; collectives are ours (executor/host/communicator.h), so that results are
// bit for bit those of a run on threads.
#ifndef MESHWRIGHT_EXECUTOR_HOST_MPI_H_
#define MESHWRIGHT_EXECUTOR_HOST_MPI_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "executor/host/communicator.h"

namespace meshwright {

// This process's membership in its job. At most one at a time; MPI is initialised when it is made and finalised when it
// goes, once per process. One thread.
class MpiWorld : public Endpoint {
 public:
  // kInternal where MPI cannot be initialised. A process that mpirun did not start is a job of one rank.
  static absl::StatusOr<std::unique_ptr<MpiWorld>> Join();
  ~MpiWorld() override;

  // How long a receive waits.
  void set_deadline(absl::Duration deadline) override { deadline_ = deadline; }

  int64_t rank() const override { return rank_; }
  int64_t num_ranks() const override { return num_ranks_; }
  absl::Status Send(int64_t to, Channel channel, absl::Span<const std::byte> message) override;
  absl::Status Receive(int64_t from, Channel channel, absl::Span<std::byte> message) override;
  absl::StatusOr<bool> TryReceive(int64_t from, Channel channel, absl::Span<std::byte> message) override;
  void Abort(const absl::Status& reason) override;

  absl::Status abort_reason() const override { return abort_reason_; }

 private:
  struct Pending;
  MpiWorld();
  absl::Status SendPart(int64_t to, int tag, absl::Span<const std::byte> part);
  absl::Status ReceivePart(int64_t from, int tag, absl::Span<std::byte> part, absl::Time deadline);
  absl::Status CheckForAbort();
  void DropFinishedSends();

  int64_t rank_ = 0, num_ranks_ = 1;
  absl::Duration deadline_ = absl::Minutes(2);
  absl::Status abort_reason_;
  std::unique_ptr<Pending> pending_;  // sends that may still read their copy of the message
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_MPI_H_
