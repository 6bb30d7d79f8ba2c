#include "executor/host/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr int kPollMilliseconds = 200;
constexpr absl::Duration kFarewell = absl::Seconds(2);  // for workers to read why the job failed

constexpr uint8_t Kind(RendezvousFrame kind) { return static_cast<uint8_t>(kind); }

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Listen(const RendezvousOptions& options) {
  MESHWRIGHT_ASSIGN_OR_RETURN(OwnedFd listening, ListenAt(options.scheduler));
  return std::unique_ptr<Scheduler>(new Scheduler(options, std::move(listening)));
}

std::vector<Scheduler::Worker*> Scheduler::Members() {
  std::vector<Worker*> members;
  for (const auto& worker : workers_) {
    if (worker->joined) members.push_back(worker.get());
  }
  return members;
}

absl::Status Scheduler::Serve() {
  if (const absl::Status status = Gather(); !status.ok()) {
    Fail(RendezvousFrame::kRefused, status);
    return status;
  }
  SendTable();
  const absl::Status status = Watch();
  if (!status.ok()) Fail(RendezvousFrame::kLost, status);
  return status;
}

absl::Status Scheduler::Gather() {
  const absl::Time deadline = SteadyNow() + options_.topology_timeout;
  while (static_cast<int64_t>(Members().size()) < options_.num_workers) {
    if (SteadyNow() >= deadline) {
      return absl::UnavailableError(absl::StrCat(Members().size(), " of ", options_.num_workers,
                                                 " workers arrived at the scheduler within ",
                                                 absl::FormatDuration(options_.topology_timeout)));
    }
    MESHWRIGHT_RETURN_IF_ERROR(Poll(deadline));
  }
  return absl::OkStatus();
}

void Scheduler::SendTable() {
  std::vector<Worker*> by_rank(static_cast<size_t>(options_.num_workers));
  for (Worker* worker : Members()) {
    if (worker->rank >= 0) by_rank[worker->rank] = worker;
  }
  auto free = by_rank.begin();
  for (Worker* worker : Members()) {
    if (worker->rank >= 0) continue;
    free = std::find(free, by_rank.end(), nullptr);
    worker->rank = free - by_rank.begin();
    *free = worker;
  }
  std::random_device random;
  const uint64_t token = (uint64_t{random()} << 32) | random();
  std::string addresses;
  for (const Worker* worker : by_rank) {
    absl::StrAppend(&addresses, "\n", worker->address.host, " ", worker->address.port);
  }
  for (Worker* worker : by_rank) {
    worker->heard = SteadyNow();
    worker->connection.Queue(Kind(RendezvousFrame::kTable), absl::StrCat(worker->rank, "\n", token, addresses));
  }
  formed_ = true;
}

absl::Status Scheduler::Watch() {
  while (true) {
    bool all_done = true;
    for (const Worker* worker : Members()) {
      all_done = all_done && worker->done;
      if (worker->done || SteadyNow() - worker->heard <= options_.node_timeout) continue;
      return absl::UnavailableError(
          absl::StrCat("worker ", worker->rank, " was lost: silent for ", absl::FormatDuration(options_.node_timeout)));
    }
    if (all_done) return absl::OkStatus();
    MESHWRIGHT_RETURN_IF_ERROR(Poll(SteadyNow() + std::min(options_.node_timeout / 4, absl::Seconds(1))));
  }
}

absl::Status Scheduler::Poll(absl::Time until) {
  std::vector<pollfd> entries = {{listening_.get(), POLLIN, 0}};
  std::vector<Worker*> polled;
  for (const auto& worker : workers_) {
    const short out = worker->connection.has_queued() ? POLLOUT : 0;
    const int fd = worker->gone ? -1 : worker->connection.fd();  // poll() passes over -1
    entries.push_back({fd, static_cast<short>(POLLIN | out), 0});
    polled.push_back(worker.get());
  }
  poll(entries.data(), entries.size(), PollMilliseconds(until, kPollMilliseconds));
  for (size_t i = 0; i < polled.size(); ++i) {
    if (entries[i + 1].revents == 0) continue;
    Worker& worker = *polled[i];
    std::vector<Frame> frames;
    const absl::Status written = worker.connection.Flush();
    const absl::Status read = worker.connection.Read(frames);
    for (const Frame& frame : frames) MESHWRIGHT_RETURN_IF_ERROR(Handle(worker, frame));
    worker.gone = !read.ok() || !written.ok();
    if (worker.gone && worker.joined && formed_ && !worker.done) {
      return absl::UnavailableError(absl::StrCat("worker ", worker.rank, " was lost: its connection closed"));
    }
  }
  if ((entries[0].revents & POLLIN) != 0) {
    if (absl::StatusOr<OwnedFd> socket = AcceptFrom(listening_); socket.ok()) {
      workers_.push_back(std::make_unique<Worker>(*std::move(socket)));
    }
  }
  // A worker that leaves before all have arrived makes room; one that is done is still a member.
  for (auto& worker : workers_) {
    if (worker->gone && !(formed_ && worker->joined)) worker.reset();
  }
  std::erase(workers_, nullptr);
  return absl::OkStatus();
}

absl::Status Scheduler::Handle(Worker& worker, const Frame& frame) {
  worker.heard = SteadyNow();
  if (frame.kind == Kind(RendezvousFrame::kDone)) worker.done = true;
  if (frame.kind == Kind(RendezvousFrame::kJoin) && !worker.joined) return HandleJoin(worker, frame.text());
  return absl::OkStatus();
}

void Scheduler::Refuse(Worker& worker, const std::string& why) {
  worker.connection.Queue(Kind(RendezvousFrame::kRefused), why);
  worker.connection.Flush().IgnoreError();
}

absl::Status Scheduler::HandleJoin(Worker& worker, const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  int64_t num_workers = 0;
  if (lines.size() != 3 || !absl::SimpleAtoi(lines[0], &num_workers) ||
      !absl::SimpleAtoi(lines[1], &worker.address.port)) {
    Refuse(worker, "the scheduler does not understand this worker; are they of the same build?");
    return absl::OkStatus();
  }
  if (num_workers != options_.num_workers) {
    Refuse(worker, absl::StrCat("this worker wants a job of ", num_workers, " workers, the scheduler one of ",
                                options_.num_workers));
    return absl::OkStatus();
  }
  if (formed_ || static_cast<int64_t>(Members().size()) >= options_.num_workers) {
    Refuse(worker,
           absl::StrCat("the job has its ", options_.num_workers, " workers already; this one is one too many"));
    return absl::OkStatus();
  }
  worker.id = lines[2];
  for (const Worker* other : Members()) {
    if (worker.id.empty() || other->id != worker.id) continue;
    Refuse(worker, absl::StrCat("two workers have the node id ", worker.id));
    return absl::UnavailableError(absl::StrCat("two workers have the node id ", worker.id));
  }
  int64_t rank = 0;
  if (absl::SimpleAtoi(worker.id, &rank)) {
    if (rank < 0 || rank >= options_.num_workers) {
      const std::string why =
          absl::StrCat("a worker has the node id ", worker.id, "; wants 0 to ", options_.num_workers - 1);
      Refuse(worker, why);
      return absl::UnavailableError(why);
    }
    worker.rank = rank;
  }
  worker.address.host = PeerAddress(worker.connection.socket()).host;
  worker.joined = true;
  return absl::OkStatus();
}

void Scheduler::Fail(RendezvousFrame kind, const absl::Status& why) {
  for (const auto& worker : workers_) worker->connection.Queue(Kind(kind), why.message());
  const absl::Time deadline = SteadyNow() + kFarewell;
  for (const auto& worker : workers_) worker->connection.Flush().IgnoreError();  // short: it fits
  for (const auto& worker : workers_) {
    // Until the worker closes its end: what was sent could be lost with an early end of ours.
    while (!worker->gone) worker->gone = !worker->connection.ReadOne(deadline).ok();
  }
}

}  // namespace meshwright
