// Frames over TCP: one byte of kind, eight bytes of length, the payload. For processes on machines of one kind: numbers
// are as they lie in memory. Inner to this folder: executor/host/rendezvous.h and executor/host/socket_fabric.h use it.
//
// Errors: kUnavailable for whatever a connection or an address can cause.
#ifndef MESHWRIGHT_EXECUTOR_HOST_SOCKET_FRAMES_H_
#define MESHWRIGHT_EXECUTOR_HOST_SOCKET_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace meshwright {

// A file descriptor that is closed with this.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct SocketAddress {
  std::string host;  // a name or four numbers with dots
  int port = 0;
};
std::string ToText(const SocketAddress& address);  // "127.0.0.1:8118"

// Port 0: any that is free.
absl::StatusOr<OwnedFd> ListenAt(const SocketAddress& address);
// Tries until it succeeds or the time has come.
absl::StatusOr<OwnedFd> ConnectTo(const SocketAddress& address, absl::Time deadline);
// The next connection to a socket that listens, which must have one.
absl::StatusOr<OwnedFd> AcceptFrom(const OwnedFd& listening);
// This end of a socket, and the other.
SocketAddress OwnAddress(const OwnedFd& socket);
SocketAddress PeerAddress(const OwnedFd& socket);

struct Frame {
  uint8_t kind = 0;
  std::vector<std::byte> payload;
  std::string text() const { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }
};

// A frame as it is sent: its kind, the payload's length in 8 bytes, the payload.
std::vector<std::byte> EncodeFrame(uint8_t kind, absl::Span<const std::byte> payload);

// A connection that is written and read without blocking. The two halves, Queue to Flush and Read, may be used by
// different threads, each half by one at a time.
class FrameConnection {
 public:
  // Frames longer than `limit` bytes break the connection, once all before them have been taken.
  explicit FrameConnection(OwnedFd socket, uint64_t limit);

  int fd() const { return socket_.get(); }
  const OwnedFd& socket() const { return socket_; }

  void Queue(std::vector<std::byte> frame) { outgoing_.push_back(std::move(frame)); }  // EncodeFrame's
  void Queue(uint8_t kind, absl::string_view text);
  bool has_queued() const { return !outgoing_.empty(); }
  // Writes what the connection takes now.
  absl::Status Flush();

  // Appends the frames that have arrived in whole. kUnavailable once the other end is closed and nothing is left.
  absl::Status Read(std::vector<Frame>& frames);
  void set_limit(uint64_t limit) { limit_ = limit; }

  // Waits, for the steps before a thread of its own takes over. ReadOne may read more than its frame: the next Read has
  // it, though poll() does not know.
  absl::Status FlushAll(absl::Time deadline);
  absl::StatusOr<Frame> ReadOne(absl::Time deadline);  // kDeadlineExceeded when it does not come
  bool has_read_ahead() const { return !read_ahead_.empty(); }

 private:
  // Receives into the payload that is under way, else behind `incoming_`; as recv().
  ssize_t Receive();
  // Takes from `incoming_` the frames that are whole, and begins the next one.
  absl::Status TakeFrames(std::vector<Frame>& frames);

  OwnedFd socket_;
  uint64_t limit_;
  std::deque<std::vector<std::byte>> outgoing_;
  size_t written_ = 0;               // of the first outgoing
  std::vector<std::byte> incoming_;  // before a payload that is under way; then empty
  Frame under_way_;
  uint64_t rest_ = 0;  // of its payload: 0 is none under way
  std::deque<Frame> read_ahead_;
};

// Milliseconds until then for poll(): at least 0, at most `most`.
int PollMilliseconds(absl::Time until, int most);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_SOCKET_FRAMES_H_
