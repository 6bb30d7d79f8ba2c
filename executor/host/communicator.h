// How the host's ranks talk: messages between two ranks, and the collectives made of them.
//
//   Endpoint            one rank's end: send, receive. ThreadFabric (ranks are threads), MpiWorld and SocketWorld
//                       (ranks are processes) each give one.
//   AllReduce(...) ...  collectives over an ordered group of ranks, written once on top of it.
//
// Values that are reduced are added in the order of the group, each element by one rank, and then handed to all: every
// rank gets the same bits, whatever carries the messages and however late a rank is.
//
// Nothing hangs: a receive that waits longer than its deadline returns kDeadlineExceeded, and when one rank gives up
// (Abort) all others return kCancelled from their next or current call.
#ifndef MESHWRIGHT_EXECUTOR_HOST_COMMUNICATOR_H_
#define MESHWRIGHT_EXECUTOR_HOST_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/layout.h"

namespace meshwright {

// Messages of one pair of ranks arrive in the order in which they were sent, per channel. Transfers have channels of
// their own because a receive may be issued later, against a collective, than its send was; so have words between those
// who watch over devices.
enum class Channel : uint8_t { kTransfer, kCollective, kReport, kWatch };

// Thread safety: one thread (the rank's own) calls it.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t num_ranks() const = 0;

  // Copies the message and returns. Sending to oneself is allowed.
  virtual absl::Status Send(int64_t to, Channel channel, absl::Span<const std::byte> message) = 0;
  // Waits for the next message from there, whose size must be that of `message`: kInternal if it is not.
  virtual absl::Status Receive(int64_t from, Channel channel, absl::Span<std::byte> message) = 0;

  // The same without waiting: false where there is none yet. An Abort shows here too.
  virtual absl::StatusOr<bool> TryReceive(int64_t from, Channel channel, absl::Span<std::byte> message) = 0;

  // Tells all ranks, this one included, that this one stops; their kCancelled names the first reason they hear.
  virtual void Abort(const absl::Status& reason) = 0;

  // Why a rank stopped, where ranks are processes and one did and said so; else OK.
  virtual absl::Status abort_reason() const { return absl::OkStatus(); }
  // How long a receive waits, where ranks are processes.
  virtual void set_deadline(absl::Duration) {}
};

// The members of a collective, in the order in which their pieces lie, and the caller's place among them.
struct GroupView {
  absl::Span<const int64_t> ranks;
  int64_t position = 0;
  int64_t size() const { return static_cast<int64_t>(ranks.size()); }
};

// All members call with the same sizes. `from` and `to` may be the same memory for AllReduce, and must not overlap
// otherwise. Counts are in elements of float32, float64, int32 or int64: kUnimplemented for other
// types.

// to = reduction over the members of their `from`, element by element.
absl::Status AllReduce(Endpoint& self, const GroupView& group, DType dtype, Reduction reduction, int64_t count,
                       const std::byte* from, std::byte* to);

// to = the members' pieces of `piece` bytes, in the order of the group.
absl::Status AllGather(Endpoint& self, const GroupView& group, int64_t piece, const std::byte* from, std::byte* to);

// `from` holds one piece of `count` elements per member; to = this member's, reduced.
absl::Status ReduceScatter(Endpoint& self, const GroupView& group, DType dtype, Reduction reduction, int64_t count,
                           const std::byte* from, std::byte* to);

// data = that of the member at position `root`.
absl::Status Broadcast(Endpoint& self, const GroupView& group, int64_t root, absl::Span<std::byte> data);

// Piece p of `from` goes to member p; piece p of `to` came from member p. Pieces of `piece` bytes.
absl::Status AllToAll(Endpoint& self, const GroupView& group, int64_t piece, const std::byte* from, std::byte* to);

// What every rank gave, in order of rank, of any size; all ranks call.
absl::StatusOr<std::vector<std::string>> GatherAll(Endpoint& self, absl::string_view own);

// Returns when all members have called.
absl::Status Barrier(Endpoint& self, const GroupView& group);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_COMMUNICATOR_H_
