// One rank of a parallel program that its author writes by hand: who am I, how many are we, which groups are there
// (section 2 of the semantics). The collectives are in executor/manual/collectives.h, their derivatives in
// executor/manual/gradients.h, the ways to start ranks in executor/manual/launch.h.
//
//   absl::Status Train(Context& context) {                                            // runs on every rank
//     MESHWRIGHT_RETURN_IF_ERROR(context.Init());
//     MESHWRIGHT_ASSIGN_OR_RETURN(const RowRange rows, RowsOfRank(context, 32));      // this rank's rows of a batch
//     MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(context, LocalLoss(rows)));
//     ...
//   }
//
// A group is a set of ranks, in ascending order whatever order it was made with. The world is the group of all; its
// name is the back end's: mccl_world_group, nccl_world_group or hccl_world_group; "" means it too.
//
// Errors by kind as in ir/error_kind.h. Thread safety: a Context belongs to one thread.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_CONTEXT_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/host/communicator.h"

namespace meshwright::manual {

// Takes part in a job, waiting for the other ranks where need be. Null in the process that is the job's scheduler,
// after the job has ended.
using Join = std::function<absl::StatusOr<std::shared_ptr<Endpoint>>()>;

struct ContextOptions {
  std::string device_target = "CPU";                      // CPU, GPU or Ascend. Only CPU has a back end here
  Join join = nullptr;                                    // null: there is no launcher
  std::function<void(absl::string_view)> warn = nullptr;  // a line of text; null: to stderr
};

class Context {
 public:
  explicit Context(ContextOptions options) : options_(std::move(options)) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Joins the job (S2.1). The back end, "mccl", "nccl" or "hccl", must be that of the device target; without one it is.
  // E-STATE if it is not or has no such name, E-LAUNCH where no job can be joined, kUnimplemented for devices other
  // than the CPU. Calling it again does nothing. In the scheduler's process: kCancelled, when the job has ended; all
  // other calls are E-STATE there, so it runs no training code.
  absl::Status Init();
  absl::Status Init(absl::string_view backend);

  // This rank's place in the group, and the group's size (S2.2). E-STATE before Init; E-VALUE for an unknown name and,
  // GetRank, for a group that this rank is not in.
  absl::StatusOr<int64_t> GetRank(absl::string_view group = "") const;
  absl::StatusOr<int64_t> GetGroupSize(absl::string_view group = "") const;

  // Names a group (S2.3). Every rank that will use it calls this, others may. Sends nothing. E-VALUE when `ranks` is
  // empty, names a rank twice or one that does not exist, or the name stands for other ranks; E-STATE before Init.
  absl::Status CreateGroup(absl::string_view name, absl::Span<const int64_t> ranks);

  // For the collectives: the ranks of a group. E-STATE before Init, for an unknown group, and where this rank is not a
  // member. The view lives as long as this.
  absl::StatusOr<GroupView> Members(absl::string_view group) const;

  // REQUIRES: Init has succeeded.
  Endpoint& endpoint() const { return *endpoint_; }

  // Init ran in the process of the job's scheduler: how that ended.
  bool is_scheduler() const { return is_scheduler_; }

  void Warn(absl::string_view text) const;
  // Tells the other ranks, where there are some, that this one stops.
  void Stop(const absl::Status& reason);

 private:
  absl::Status CheckInitialised(absl::string_view call) const;
  std::string NameOfWorld() const;

  const ContextOptions options_;
  std::shared_ptr<Endpoint> endpoint_;  // null before Init
  bool is_scheduler_ = false;
  std::map<std::string, std::vector<int64_t>, std::less<>> groups_;  // the world under its own name and ""
};

// Rows [begin, end) of a batch: begin = position * (batch / size), S17.1.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t dropped = 0;  // rows at the batch's end that no rank gets
};

// This rank's rows of a batch that is divided over a group. Where rows are left over nobody gets them, and the first
// rank warns. E-VALUE when there are more ranks than rows; else as GetRank.
absl::StatusOr<RowRange> RowsOfRank(const Context& context, int64_t batch, absl::string_view group = "");

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_CONTEXT_H_
