#include "executor/host/socket_fabric.h"

#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright {
namespace {

// Kinds of frames between workers: those of channels are their numbers.
constexpr uint8_t kHello = 16;         // token and rank, a line each
constexpr uint8_t kAbort = 17;         // one byte of status code, then why
constexpr uint8_t kBye = 18;           // nothing more will come
constexpr uint8_t kAcknowledged = 19;  // all before your kBye has been read

constexpr uint64_t kMessageLimit = uint64_t{1} << 40;
constexpr uint64_t kHelloLimit = 256;
// For the scheduler to say first why a job did not form, and for who has connected to say who it is.
constexpr absl::Duration kGrace = absl::Seconds(10);
constexpr absl::Duration kLeaveTime = absl::Seconds(10);        // to hand over what was sent
constexpr absl::Duration kStoppedLeaveTime = absl::Seconds(1);  // after an error
constexpr absl::Duration kMostBetweenHeartbeats = absl::Seconds(1);

constexpr uint8_t Kind(RendezvousFrame kind) { return static_cast<uint8_t>(kind); }

}  // namespace

namespace {

// Messages come and go by the megabyte. The allocator would give their memory back to the system and get it again, page
// by page, which took a third of an all-gather at 1 Gbit/s: it keeps what was freed, up to kKeptBytes, and maps only
// messages of its own largest threshold on their own.
constexpr int kMappedBytes = 32 << 20, kKeptBytes = 1 << 30;
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

}  // namespace

SocketWorld::SocketWorld(const RendezvousOptions& options, OwnedFd wake, std::unique_ptr<FrameConnection> scheduler)
    : options_(options),
      wake_(std::move(wake)),
      peers_(static_cast<size_t>(options.num_workers)),
      scheduler_(std::move(scheduler)) {}

absl::StatusOr<std::unique_ptr<SocketWorld>> SocketWorld::Join(const RendezvousOptions& options,
                                                               const std::string& id) {
  absl::StatusOr<OwnedFd> found = ConnectTo(options.scheduler, SteadyNow() + options.topology_timeout);
  if (!found.ok()) {
    return absl::UnavailableError(absl::StrCat("no scheduler within ", absl::FormatDuration(options.topology_timeout),
                                               ": ", found.status().message()));
  }
  OwnedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::UnavailableError("no file descriptor is left for an eventfd");
  auto scheduler = std::make_unique<FrameConnection>(*std::move(found), kRendezvousFrameLimit);
  KeepFreedMemory();
  std::unique_ptr<SocketWorld> world(new SocketWorld(options, std::move(wake), std::move(scheduler)));
  MESHWRIGHT_RETURN_IF_ERROR(world->MeetPeers(id, SteadyNow() + options.topology_timeout + kGrace));
  world->thread_ = std::thread([self = world.get()] { self->Run(); });
  return world;
}

absl::Status SocketWorld::MeetPeers(const std::string& id, absl::Time deadline) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const OwnedFd listening, ListenAt({OwnAddress(scheduler_->socket()).host, 0}));
  scheduler_->Queue(Kind(RendezvousFrame::kJoin),
                    absl::StrCat(options_.num_workers, "\n", OwnAddress(listening).port, "\n", id));
  MESHWRIGHT_RETURN_IF_ERROR(scheduler_->FlushAll(deadline));
  const absl::StatusOr<Frame> answer = scheduler_->ReadOne(deadline);
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::UnavailableError(absl::StrCat("the scheduler at ", ToText(options_.scheduler), " did not bring ",
                                               options_.num_workers, " workers together within ",
                                               absl::FormatDuration(options_.topology_timeout)));
  }
  if (!answer.ok()) return absl::UnavailableError("the scheduler went away before all workers had arrived");
  if (answer->kind != Kind(RendezvousFrame::kTable)) return absl::UnavailableError(answer->text());
  const std::vector<std::string> lines = absl::StrSplit(answer->text(), '\n');
  std::vector<SocketAddress> addresses;
  for (size_t i = 2; i < lines.size(); ++i) {
    const std::vector<std::string> parts = absl::StrSplit(lines[i], ' ');
    SocketAddress address = {parts[0], 0};
    if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &address.port)) addresses.push_back(address);
  }
  if (addresses.size() != peers_.size() || !absl::SimpleAtoi(lines[0], &rank_)) {
    return absl::UnavailableError("the scheduler's answer makes no sense; is it of the same build?");
  }
  return ConnectPeers(listening, lines[1], addresses, deadline);
}

absl::Status SocketWorld::ConnectPeers(const OwnedFd& listening, absl::string_view token,
                                       absl::Span<const SocketAddress> addresses, absl::Time deadline) {
  // Lower ranks have been listening since before they joined: connecting waits for nobody.
  for (int64_t other = 0; other < rank_; ++other) {
    MESHWRIGHT_ASSIGN_OR_RETURN(OwnedFd socket, ConnectTo(addresses[other], deadline));
    peers_[other].connection = std::make_unique<FrameConnection>(std::move(socket), kMessageLimit);
    peers_[other].connection->Queue(kHello, absl::StrCat(token, "\n", rank_));
    MESHWRIGHT_RETURN_IF_ERROR(peers_[other].connection->FlushAll(deadline));
  }
  const auto is_missing = [](const Peer& peer) { return peer.connection == nullptr; };
  while (std::any_of(peers_.begin() + rank_ + 1, peers_.end(), is_missing)) {
    // A rank that dies now is the scheduler's to notice.
    pollfd entries[] = {{listening.get(), POLLIN, 0}, {scheduler_->fd(), POLLIN, 0}};
    poll(entries, 2, scheduler_->has_read_ahead() ? 0 : PollMilliseconds(deadline, 1000));
    if (entries[0].revents != 0) MESHWRIGHT_RETURN_IF_ERROR(AcceptPeer(listening, token, deadline));
    if (entries[1].revents != 0 || scheduler_->has_read_ahead()) {
      const absl::StatusOr<Frame> news = scheduler_->ReadOne(deadline);
      return absl::UnavailableError(news.ok() ? news->text() : "the scheduler went away while the workers met");
    }
    if (SteadyNow() >= deadline) return absl::UnavailableError("not all workers connected to this one in time");
  }
  return absl::OkStatus();
}

absl::Status SocketWorld::AcceptPeer(const OwnedFd& listening, absl::string_view token, absl::Time deadline) {
  absl::StatusOr<OwnedFd> socket = AcceptFrom(listening);
  if (!socket.ok()) return absl::OkStatus();  // it has gone again
  auto connection = std::make_unique<FrameConnection>(*std::move(socket), kHelloLimit);
  const absl::StatusOr<Frame> hello = connection->ReadOne(std::min(deadline, SteadyNow() + kGrace));
  if (!hello.ok() || hello->kind != kHello) return absl::OkStatus();  // a stranger
  const std::vector<std::string> lines = absl::StrSplit(hello->text(), '\n');
  int64_t other = 0;
  if (lines.size() != 2 || lines[0] != token || !absl::SimpleAtoi(lines[1], &other) || other <= rank_ ||
      other >= num_ranks()) {
    return absl::OkStatus();
  }
  connection->set_limit(kMessageLimit);
  peers_[other].connection = std::move(connection);
  return absl::OkStatus();
}

SocketWorld::~SocketWorld() {
  if (!thread_.joinable()) return;  // never joined the job
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
    for (Peer& peer : peers_) {
      if (peer.connection != nullptr) peer.connection->Queue(kBye, "");
    }
  }
  Wake();
  thread_.join();
}

void SocketWorld::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof(one));  // full: it is awake
}

absl::Status SocketWorld::Send(int64_t to, Channel channel, absl::Span<const std::byte> message) {
  if (to < 0 || to >= num_ranks()) return absl::InternalError(absl::StrCat("rank ", to, " does not exist"));
  // Copied before anybody has to wait for the lock.
  std::vector<std::byte> frame;
  if (to != rank_) frame = EncodeFrame(static_cast<uint8_t>(channel), message);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_.ok()) return stopped_;
    if (to == rank_) {
      peers_[to].messages[channel].emplace_back(message.begin(), message.end());
      return absl::OkStatus();
    }
    // A rank that has left reads nothing more: as with threads, nobody minds.
    if (peers_[to].connection == nullptr) return absl::OkStatus();
    peers_[to].connection->Queue(std::move(frame));
  }
  Wake();
  return absl::OkStatus();
}

absl::Status SocketWorld::Receive(int64_t from, Channel channel, absl::Span<std::byte> message) {
  if (from < 0 || from >= num_ranks()) return absl::InternalError(absl::StrCat("rank ", from, " does not exist"));
  std::vector<std::byte> found;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    Peer& peer = peers_[from];
    std::deque<std::vector<std::byte>>& queue = peer.messages[channel];
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(deadline_);
    const bool ready =
        arrived_.wait_until(lock, deadline, [&] { return !stopped_.ok() || !queue.empty() || peer.left; });
    if (!stopped_.ok()) return stopped_;
    if (!ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", rank_, " waited ", absl::FormatDuration(deadline_), " for a message from rank ", from));
    }
    if (queue.empty()) {
      return absl::UnavailableError(
          absl::StrCat("rank ", rank_, " waits for a message from rank ", from, ", which has left the job"));
    }
    found = std::move(queue.front());
    queue.pop_front();
  }
  if (found.size() != message.size()) {
    return absl::InternalError(absl::StrCat("rank ", rank_, " expected ", message.size(), " bytes from rank ", from,
                                            ", which sent ", found.size()));
  }
  std::copy(found.begin(), found.end(), message.begin());
  return absl::OkStatus();
}

absl::StatusOr<bool> SocketWorld::TryReceive(int64_t from, Channel channel, absl::Span<std::byte> message) {
  if (from < 0 || from >= num_ranks()) return absl::InternalError(absl::StrCat("rank ", from, " does not exist"));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_.ok()) return stopped_;
    if (peers_[from].messages[channel].empty() && !peers_[from].left) return false;
  }
  MESHWRIGHT_RETURN_IF_ERROR(Receive(from, channel, message));  // does not wait: only this thread takes messages
  return true;
}

void SocketWorld::Abort(const absl::Status& reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_.ok()) return;  // the others know already
    for (Peer& peer : peers_) {
      if (peer.connection == nullptr) continue;
      peer.connection->Queue(kAbort, absl::StrCat(std::string(1, static_cast<char>(reason.code())), reason.message()));
    }
    abort_reason_ = reason;
    StopLocked("stopped: ", reason.message());
  }
  Wake();
}

absl::Status SocketWorld::abort_reason() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return abort_reason_;
}

void SocketWorld::StopLocked(absl::string_view who, absl::string_view why) {
  if (stopped_.ok()) stopped_ = absl::CancelledError(absl::StrCat(who, why));
  arrived_.notify_all();
}

bool SocketWorld::HasLeftLocked() const {
  return leaving_ && std::all_of(peers_.begin(), peers_.end(),
                                 [](const Peer& peer) { return peer.connection == nullptr || peer.acknowledged; });
}

void SocketWorld::Run() {
  // What came with the last frame of the rendezvous.
  ReadScheduler();
  for (int64_t rank = 0; rank < num_ranks(); ++rank) {
    if (rank != rank_) ReadPeer(rank);
  }
  const absl::Duration between = std::min(options_.node_timeout / 4, kMostBetweenHeartbeats);
  absl::Time heartbeat = SteadyNow(), leave = absl::InfiniteFuture();
  while (true) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (leaving_ && leave == absl::InfiniteFuture())
        leave = SteadyNow() + (stopped_.ok() ? kLeaveTime : kStoppedLeaveTime);
      if (HasLeftLocked() || SteadyNow() >= leave) break;
      if (SteadyNow() >= heartbeat) {
        if (scheduler_ != nullptr) scheduler_->Queue(Kind(RendezvousFrame::kHeartbeat), "");
        heartbeat = SteadyNow() + between;
      }
    }
    PollOnce(std::min(heartbeat, leave));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (scheduler_ == nullptr) return;
  scheduler_->Queue(Kind(RendezvousFrame::kDone), "");
  scheduler_->FlushAll(SteadyNow() + kStoppedLeaveTime).IgnoreError();
}

void SocketWorld::PollOnce(absl::Time until) {
  constexpr int64_t kSchedulerEntry = -1;
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  std::vector<int64_t> ranks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto add = [&](FrameConnection* connection, int64_t rank) {
      if (connection == nullptr) return;
      const short out = connection->has_queued() ? POLLOUT : 0;
      entries.push_back({connection->fd(), static_cast<short>(POLLIN | out), 0});
      ranks.push_back(rank);
    };
    for (int64_t rank = 0; rank < num_ranks(); ++rank) add(peers_[rank].connection.get(), rank);
    add(scheduler_.get(), kSchedulerEntry);
  }
  poll(entries.data(), entries.size(), PollMilliseconds(until, 1000));
  if (entries[0].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof(count));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const short events = entries[i + 1].revents;
    if ((events & POLLOUT) != 0) {
      // An error of writing shows in reading.
      const std::lock_guard<std::mutex> lock(mutex_);
      (ranks[i] == kSchedulerEntry ? *scheduler_ : *peers_[ranks[i]].connection).Flush().IgnoreError();
    }
    if ((events & ~POLLOUT) == 0) continue;
    if (ranks[i] == kSchedulerEntry) {
      ReadScheduler();
    } else {
      ReadPeer(ranks[i]);
    }
  }
}

void SocketWorld::ReadPeer(int64_t rank) {
  std::vector<Frame> frames;
  // Only this thread reads, or drops connections: the half that is read needs no lock.
  const absl::Status read = peers_[rank].connection->Read(frames);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Frame& frame : frames) HandleLocked(rank, std::move(frame));
  if (read.ok()) return;
  Peer& peer = peers_[rank];
  if (!peer.left) {
    StopLocked("stopped: ", absl::StrCat("rank ", rank, " was lost: ", read.message()));
  }
  peer.left = true;
  peer.connection = nullptr;
  arrived_.notify_all();
}

void SocketWorld::HandleLocked(int64_t rank, Frame frame) {
  Peer& peer = peers_[rank];
  switch (frame.kind) {
    case kAbort: {
      const std::string text = frame.text();
      if (text.empty()) break;
      if (abort_reason_.ok()) abort_reason_ = absl::Status(static_cast<absl::StatusCode>(text[0]), text.substr(1));
      StopLocked("stopped by another rank: ", text.substr(1));
      break;
    }
    case kBye:
      peer.left = true;
      peer.connection->Queue(kAcknowledged, "");
      peer.connection->Flush().IgnoreError();
      break;
    case kAcknowledged:
      peer.acknowledged = true;
      break;
    default:  // a channel
      peer.messages[static_cast<Channel>(frame.kind)].push_back(std::move(frame.payload));
  }
  arrived_.notify_all();
}

void SocketWorld::ReadScheduler() {
  std::vector<Frame> frames;
  const absl::Status read = scheduler_->Read(frames);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Frame& frame : frames) {
    if (frame.kind != Kind(RendezvousFrame::kLost)) continue;
    StopLocked("stopped: ", frame.text());
  }
  if (read.ok()) return;
  StopLocked("stopped: ", "the scheduler was lost");
  scheduler_ = nullptr;
}

}  // namespace meshwright
