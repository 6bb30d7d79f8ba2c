#include "executor/host/socket_frames.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr size_t kHeader = 9;
constexpr size_t kChunk = size_t{1} << 18;             // bytes per read
constexpr uint64_t kMostReserved = uint64_t{1} << 26;  // for a frame of which only the length is there
constexpr size_t kReadsPerCall = 16;                   // so that one busy connection does not starve the others
constexpr absl::Duration kRetry = absl::Milliseconds(20);

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<sockaddr_in> Resolve(const SocketAddress& address) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (code != 0) return absl::UnavailableError(absl::StrCat("no host \"", address.host, "\": ", gai_strerror(code)));
  sockaddr_in result;
  std::memcpy(&result, found->ai_addr, sizeof(result));
  freeaddrinfo(found);
  result.sin_port = htons(static_cast<uint16_t>(address.port));
  return result;
}

SocketAddress FromSystem(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return {text, ntohs(address.sin_port)};
}

// Messages are sent as they are queued, small ones too.
void Prepare(const OwnedFd& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
}

// True when the socket is ready for `events` before the deadline.
bool WaitFor(int fd, short events, absl::Time deadline) {
  pollfd entry = {fd, events, 0};
  while (true) {
    const int ready = poll(&entry, 1, PollMilliseconds(deadline, 1000));
    if (ready > 0) return true;
    if (SteadyNow() >= deadline) return false;
  }
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

std::string ToText(const SocketAddress& address) { return absl::StrCat(address.host, ":", address.port); }

int PollMilliseconds(absl::Time until, int most) {
  const int64_t left = absl::ToInt64Milliseconds(until - SteadyNow());  // the largest where there is no deadline
  return static_cast<int>(std::clamp<int64_t>(left, -1, most - 1) + 1);
}

absl::StatusOr<OwnedFd> ListenAt(const SocketAddress& address) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const sockaddr_in target, Resolve(address));
  OwnedFd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listening.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listening.get(), reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0 ||
      listen(listening.get(), SOMAXCONN) != 0) {
    return SystemError(absl::StrCat("cannot listen at ", ToText(address)));
  }
  return listening;
}

absl::StatusOr<OwnedFd> ConnectTo(const SocketAddress& address, absl::Time deadline) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const sockaddr_in target, Resolve(address));
  while (true) {
    OwnedFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connection.get() < 0) return SystemError("socket");
    // Or the port that the system picks for this end is nobody's to listen at, until a minute after its close.
    const int on = 1;
    setsockopt(connection.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    int error = 0;
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0) error = errno;
    if (error == EINPROGRESS && WaitFor(connection.get(), POLLOUT, deadline)) {
      socklen_t size = sizeof(error);
      getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    // A connection that happened to be made to itself: both ends chose the same port.
    const bool to_itself = error == 0 && ToText(OwnAddress(connection)) == ToText(PeerAddress(connection));
    if (error == 0 && !to_itself) {
      Prepare(connection);
      return connection;
    }
    if (SteadyNow() + kRetry >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("nobody answers at ", ToText(address), ": ", std::strerror(to_itself ? ECONNREFUSED : error)));
    }
    absl::SleepFor(kRetry);
  }
}

absl::StatusOr<OwnedFd> AcceptFrom(const OwnedFd& listening) {
  OwnedFd connection(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0) return SystemError("accept");
  Prepare(connection);
  return connection;
}

SocketAddress OwnAddress(const OwnedFd& socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return FromSystem(address);
}

SocketAddress PeerAddress(const OwnedFd& socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return FromSystem(address);
}

FrameConnection::FrameConnection(OwnedFd socket, uint64_t limit) : socket_(std::move(socket)), limit_(limit) {}

std::vector<std::byte> EncodeFrame(uint8_t kind, absl::Span<const std::byte> payload) {
  const uint64_t size = payload.size();
  const auto* const bytes = reinterpret_cast<const std::byte*>(&size);
  std::vector<std::byte> frame;
  frame.reserve(kHeader + payload.size());
  frame.push_back(std::byte{kind});
  frame.insert(frame.end(), bytes, bytes + sizeof(size));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

void FrameConnection::Queue(uint8_t kind, absl::string_view text) {
  Queue(EncodeFrame(kind, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size())));
}

absl::Status FrameConnection::Flush() {
  while (!outgoing_.empty()) {
    const std::vector<std::byte>& frame = outgoing_.front();
    const ssize_t n = send(fd(), frame.data() + written_, frame.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
      return SystemError("the connection broke");
    }
    written_ += static_cast<size_t>(n);
    if (written_ < frame.size()) continue;
    outgoing_.pop_front();
    written_ = 0;
  }
  return absl::OkStatus();
}

ssize_t FrameConnection::Receive() {
  std::vector<std::byte>& into = rest_ > 0 ? under_way_.payload : incoming_;
  const size_t size = into.size(), most = rest_ > 0 ? std::min<uint64_t>(rest_, kChunk) : kChunk;
  into.resize(size + most);
  const ssize_t n = recv(fd(), into.data() + size, most, MSG_DONTWAIT);
  const size_t came = static_cast<size_t>(std::max<ssize_t>(n, 0));
  into.resize(size + came);
  if (rest_ > 0) rest_ -= came;
  return n;
}

absl::Status FrameConnection::TakeFrames(std::vector<Frame>& frames) {
  size_t at = 0;
  while (incoming_.size() - at >= kHeader) {
    uint64_t length = 0;
    std::memcpy(&length, incoming_.data() + at + 1, sizeof(length));
    if (length > limit_ && !frames.empty()) break;  // for the next call, which may have another limit
    if (length > limit_) return absl::UnavailableError(absl::StrCat("a frame of ", length, " bytes came"));
    Frame frame = {static_cast<uint8_t>(incoming_[at]), {}};
    at += kHeader;
    const uint64_t here = std::min<uint64_t>(length, incoming_.size() - at);
    frame.payload.reserve(std::min<uint64_t>(length, kMostReserved));
    frame.payload.assign(incoming_.begin() + static_cast<ptrdiff_t>(at),
                         incoming_.begin() + static_cast<ptrdiff_t>(at + here));
    at += here;
    if (here == length) {
      frames.push_back(std::move(frame));
    } else {
      under_way_ = std::move(frame);
      rest_ = length - here;
    }
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<ptrdiff_t>(at));
  return absl::OkStatus();
}

absl::Status FrameConnection::Read(std::vector<Frame>& frames) {
  std::move(read_ahead_.begin(), read_ahead_.end(), std::back_inserter(frames));
  read_ahead_.clear();
  const size_t before = frames.size();
  if (!incoming_.empty()) MESHWRIGHT_RETURN_IF_ERROR(TakeFrames(frames));  // that the last call left
  for (size_t reads = 0; reads < kReadsPerCall; ++reads) {
    const bool in_payload = rest_ > 0;
    const ssize_t n = Receive();
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) {
      if (frames.size() == before) return absl::UnavailableError("the connection is closed");
      break;
    }
    if (in_payload && rest_ == 0) frames.push_back(std::exchange(under_way_, {}));
    MESHWRIGHT_RETURN_IF_ERROR(TakeFrames(frames));
  }
  return absl::OkStatus();
}

absl::Status FrameConnection::FlushAll(absl::Time deadline) {
  while (true) {
    MESHWRIGHT_RETURN_IF_ERROR(Flush());
    if (!has_queued()) return absl::OkStatus();
    if (!WaitFor(fd(), POLLOUT, deadline)) return absl::DeadlineExceededError("the other end does not read");
  }
}

absl::StatusOr<Frame> FrameConnection::ReadOne(absl::Time deadline) {
  while (read_ahead_.empty()) {
    if (!WaitFor(fd(), POLLIN, deadline)) return absl::DeadlineExceededError("no answer");
    std::vector<Frame> frames;
    MESHWRIGHT_RETURN_IF_ERROR(Read(frames));
    read_ahead_.insert(read_ahead_.end(), std::make_move_iterator(frames.begin()),
                       std::make_move_iterator(frames.end()));
  }
  Frame first = std::move(read_ahead_.front());
  read_ahead_.pop_front();
  return first;
}

}  // namespace meshwright
