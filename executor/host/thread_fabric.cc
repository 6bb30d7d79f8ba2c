#include "executor/host/thread_fabric.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

using Message = std::vector<std::byte>;

// What has been sent to one rank and not been received yet.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::pair<int64_t, Channel>, std::deque<Message>> messages;  // by sender
  bool aborted = false;
  absl::Status reason;
};

}  // namespace

struct ThreadFabric::Shared {
  explicit Shared(int64_t num_ranks, const FabricOptions& fabric_options)
      : options(fabric_options), mailboxes(num_ranks) {}
  const FabricOptions options;
  std::vector<Mailbox> mailboxes;
};

class ThreadFabric::ThreadEndpoint : public Endpoint {
 public:
  ThreadEndpoint(Shared& shared, int64_t rank) : shared_(shared), rank_(rank) {}

  int64_t rank() const override { return rank_; }
  int64_t num_ranks() const override { return static_cast<int64_t>(shared_.mailboxes.size()); }

  absl::Status Send(int64_t to, Channel channel, absl::Span<const std::byte> message) override {
    if (to < 0 || to >= num_ranks()) return absl::InternalError(absl::StrCat("rank ", to, " does not exist"));
    Message copy(message.begin(), message.end());
    Mailbox& box = shared_.mailboxes[to];
    {
      const std::lock_guard<std::mutex> lock(box.mutex);
      if (box.aborted) return Cancelled(box);
      box.messages[{rank_, channel}].push_back(std::move(copy));
    }
    box.arrived.notify_one();
    return absl::OkStatus();
  }

  absl::Status Receive(int64_t from, Channel channel, absl::Span<std::byte> message) override {
    Mailbox& box = shared_.mailboxes[rank_];
    Message found;
    {
      std::unique_lock<std::mutex> lock(box.mutex);
      std::deque<Message>& queue = box.messages[{from, channel}];
      const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(shared_.options.deadline);
      const bool ready = box.arrived.wait_until(lock, deadline, [&] { return box.aborted || !queue.empty(); });
      if (box.aborted) return Cancelled(box);
      if (!ready) {
        return absl::DeadlineExceededError(absl::StrCat("rank ", rank_, " waited ",
                                                        absl::FormatDuration(shared_.options.deadline),
                                                        " for a message from rank ", from));
      }
      found = std::move(queue.front());
      queue.pop_front();
    }
    return TakeOver(from, found, message);
  }

  absl::StatusOr<bool> TryReceive(int64_t from, Channel channel, absl::Span<std::byte> message) override {
    Mailbox& box = shared_.mailboxes[rank_];
    Message found;
    {
      const std::lock_guard<std::mutex> lock(box.mutex);
      if (box.aborted) return Cancelled(box);
      std::deque<Message>& queue = box.messages[{from, channel}];
      if (queue.empty()) return false;
      found = std::move(queue.front());
      queue.pop_front();
    }
    MESHWRIGHT_RETURN_IF_ERROR(TakeOver(from, found, message));
    return true;
  }

  void Abort(const absl::Status& reason) override {
    for (Mailbox& box : shared_.mailboxes) {
      {
        const std::lock_guard<std::mutex> lock(box.mutex);
        if (!box.aborted) box.reason = reason;
        box.aborted = true;
      }
      box.arrived.notify_one();
    }
  }

 private:
  static absl::Status Cancelled(const Mailbox& box) {
    return absl::CancelledError(absl::StrCat("stopped by another rank: ", box.reason.message()));
  }

  absl::Status TakeOver(int64_t from, const Message& found, absl::Span<std::byte> message) const {
    if (found.size() != message.size()) {
      return absl::InternalError(absl::StrCat("rank ", rank_, " expected ", message.size(), " bytes from rank ", from,
                                              ", which sent ", found.size()));
    }
    std::copy(found.begin(), found.end(), message.begin());
    return absl::OkStatus();
  }

  Shared& shared_;
  const int64_t rank_;
};

ThreadFabric::ThreadFabric(int64_t num_ranks, const FabricOptions& options)
    : shared_(std::make_unique<Shared>(num_ranks, options)) {
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    endpoints_.push_back(std::make_unique<ThreadEndpoint>(*shared_, rank));
  }
}

ThreadFabric::~ThreadFabric() = default;

Endpoint& ThreadFabric::endpoint(int64_t rank) { return *endpoints_[rank]; }

}  // namespace meshwright
