// Workers that talk over TCP on the loopback address, here as threads of one process; executor/manual/launch_test has
// them as processes.
#include "executor/host/socket_fabric.h"

#include <algorithm>
#include <functional>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "executor/host/rendezvous.h"
#include "executor/host/socket_frames.h"
#include "executor/host/testing.h"
#include "executor/steady_clock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::Duration kHang = absl::Seconds(200);  // only ends what would never end
using Numbers = std::vector<double>;
std::byte* Raw(Numbers& x) { return reinterpret_cast<std::byte*>(x.data()); }

struct Job {
  std::vector<absl::Status> workers;
  absl::Status scheduler;
  std::vector<int64_t> ranks = {};  // of the workers
};

// Runs a scheduler and a worker per id. A worker that is refused reports why.
Job RunJob(RendezvousOptions options, const std::vector<std::string>& ids,
           const std::function<absl::Status(SocketWorld&)>& body) {
  Job job;
  job.workers.resize(ids.size());
  job.ranks.resize(ids.size(), -1);
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Listen(options);
  if (!scheduler.ok()) return {.workers = {}, .scheduler = scheduler.status()};
  options.scheduler.port = (*scheduler)->port();
  std::thread serving([&] { job.scheduler = (*scheduler)->Serve(); });
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([&, i] {
      absl::StatusOr<std::unique_ptr<SocketWorld>> world = SocketWorld::Join(options, ids[i]);
      if (world.ok()) {
        (*world)->set_deadline(kHang);
        job.ranks[i] = (*world)->rank();
      }
      job.workers[i] = world.ok() ? body(**world) : world.status();
      if (world.ok() && !job.workers[i].ok()) (*world)->Abort(job.workers[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  serving.join();
  return job;
}

std::vector<int64_t> World(const Endpoint& self) {
  std::vector<int64_t> ranks(static_cast<size_t>(self.num_ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// 300,000 doubles are more than a socket holds: sends must not wait for their receivers.
TEST(SocketFabricTest, CollectivesGiveWhatTheyGiveOnThreads) {
  const Job job = RunJob({.num_workers = 4}, {"", "", "", ""}, [](SocketWorld& self) -> absl::Status {
    const std::vector<int64_t> world = World(self);
    const GroupView group = {world, self.rank()};
    constexpr int64_t kCount = 300'000;
    Numbers x(kCount, static_cast<double>(self.rank())), y(kCount), all(4 * kCount);
    x[0] = self.rank() == 0 ? 1e16 : self.rank() == 2 ? -1e16 : 1;  // ((1e16 + 1) - 1e16) + 1 = 1 in order
    MESHWRIGHT_RETURN_IF_ERROR(AllReduce(self, group, DType::kFloat64, Reduction::kSum, kCount, Raw(x), Raw(y)));
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 6);
    EXPECT_EQ(y[kCount - 1], 6);
    MESHWRIGHT_RETURN_IF_ERROR(AllGather(self, group, kCount * 8, Raw(x), Raw(all)));
    for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(all[rank * kCount + 1], static_cast<double>(rank));
    Numbers itself = {7}, back = {0};
    MESHWRIGHT_RETURN_IF_ERROR(self.Send(self.rank(), Channel::kTransfer, absl::MakeSpan(Raw(itself), 8)));
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(self.rank(), Channel::kTransfer, absl::MakeSpan(Raw(back), 8)));
    EXPECT_EQ(back, itself);
    return Barrier(self, group);
  });
  EXPECT_OK(job.scheduler);
  for (const absl::Status& status : job.workers) EXPECT_OK(status);
}

// What was sent arrives though the sender leaves at once.
TEST(SocketFabricTest, ALastMessageIsNotLost) {
  const Job job = RunJob({.num_workers = 2}, {"0", "1"}, [](SocketWorld& self) -> absl::Status {
    Numbers x(500'000, 3);
    if (self.rank() == 0) return self.Send(1, Channel::kTransfer, absl::MakeSpan(Raw(x), 8 * x.size()));
    absl::SleepFor(absl::Milliseconds(200));
    Numbers y(x.size());
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(0, Channel::kTransfer, absl::MakeSpan(Raw(y), 8 * y.size())));
    EXPECT_EQ(y, x);
    EXPECT_THAT(self.Receive(0, Channel::kTransfer, absl::MakeSpan(Raw(y), 8)),
                StatusIs(kUnavailable, "rank 1 waits for a message from rank 0, which has left the job"));
    return absl::OkStatus();
  });
  EXPECT_OK(job.scheduler);
  for (const absl::Status& status : job.workers) EXPECT_OK(status);
}

TEST(SocketFabricTest, AnIdThatIsANumberIsTheRank) {
  const Job job = RunJob({.num_workers = 3}, {"2", "somebody", "0"}, [](SocketWorld&) { return absl::OkStatus(); });
  EXPECT_OK(job.scheduler);
  EXPECT_THAT(job.ranks, ElementsAre(2, 1, 0));
}

TEST(SocketFabricTest, TooFewWorkersEndTheJobAndAllSayHowManyCame) {
  // On a busy machine the two may be late as well: then once more with more time.
  Job job;
  absl::Duration time = absl::Milliseconds(300);
  const auto all_say = [&](const std::string& words) {
    const auto says = [&](const absl::Status& status) { return absl::StrContains(status.message(), words); };
    return says(job.scheduler) && std::all_of(job.workers.begin(), job.workers.end(), says);
  };
  for (;; time *= 8) {
    job = RunJob({.num_workers = 3, .topology_timeout = time}, {"", ""}, [](SocketWorld&) { return absl::OkStatus(); });
    if (all_say("2 of 3") || time * 8 > kHang) break;
  }
  const std::string want = absl::StrCat("2 of 3 workers arrived at the scheduler within ", absl::FormatDuration(time));
  EXPECT_THAT(job.scheduler, StatusIs(kUnavailable, want));
  for (const absl::Status& status : job.workers) EXPECT_THAT(status, StatusIs(kUnavailable, want));
}

TEST(SocketFabricTest, WithoutSchedulerAWorkerGivesUp) {
  const ReservedPort port;  // nobody listens there
  const RendezvousOptions options = {
      .scheduler = {"127.0.0.1", port.number()}, .num_workers = 1, .topology_timeout = absl::Milliseconds(200)};
  EXPECT_THAT(SocketWorld::Join(options, ""), StatusIs(kUnavailable, "no scheduler within 200ms: nobody answers at "));
}

TEST(SocketFabricTest, ASchedulerNeedsItsPort) {
  ASSERT_OK_AND_ASSIGN(const auto first, Scheduler::Listen({}));
  EXPECT_THAT(Scheduler::Listen({.scheduler = {"127.0.0.1", first->port()}}),
              StatusIs(kUnavailable, absl::StrCat("cannot listen at 127.0.0.1:", first->port())));
}

TEST(SocketFabricTest, IdsAreUniqueAndRanksExist) {
  const auto nothing = [](SocketWorld&) { return absl::OkStatus(); };
  const Job twice = RunJob({.num_workers = 3}, {"1", "1"}, nothing);
  EXPECT_THAT(twice.scheduler, StatusIs(kUnavailable, "two workers have the node id 1"));
  for (const absl::Status& status : twice.workers) EXPECT_THAT(status, StatusIs(kUnavailable, "two workers have the"));
  const Job beyond = RunJob({.num_workers = 3}, {"3"}, nothing);
  EXPECT_THAT(beyond.scheduler, StatusIs(kUnavailable, "a worker has the node id 3; wants 0 to 2"));
  EXPECT_THAT(beyond.workers[0], StatusIs(kUnavailable, "a worker has the node id 3; wants 0 to 2"));
}

TEST(SocketFabricTest, ASurplusWorkerIsRefusedAndTheJobGoesOn) {
  ASSERT_OK_AND_ASSIGN(const auto scheduler, Scheduler::Listen({.num_workers = 1}));
  const RendezvousOptions options = {.scheduler = {"127.0.0.1", scheduler->port()}, .num_workers = 1};
  absl::Status served;
  std::thread serving([&] { served = scheduler->Serve(); });
  {
    ASSERT_OK_AND_ASSIGN(const auto first, SocketWorld::Join(options, ""));
    EXPECT_THAT(SocketWorld::Join(options, ""), StatusIs(kUnavailable, "the job has its 1 workers already"));
    RendezvousOptions other = options;
    other.num_workers = 2;
    EXPECT_THAT(SocketWorld::Join(other, ""),
                StatusIs(kUnavailable, "this worker wants a job of 2 workers, the scheduler one of 1"));
  }
  serving.join();
  EXPECT_OK(served);
}

TEST(SocketFabricTest, OneRankStopsAll) {
  const Job job = RunJob({.num_workers = 3}, {"0", "1", "2"}, [](SocketWorld& self) -> absl::Status {
    if (self.rank() == 2) return absl::InternalError("out of cheese");
    Numbers x(1);
    return self.Receive(2, Channel::kTransfer, absl::MakeSpan(Raw(x), 8));
  });
  EXPECT_OK(job.scheduler);  // all left in good order
  for (int rank : {0, 1}) {
    EXPECT_THAT(job.workers[rank], StatusIs(absl::StatusCode::kCancelled, "stopped by another rank: out of cheese"));
  }
}

TEST(SocketFabricTest, ARankThatWaitsInVainSaysForWhom) {
  std::promise<void> waited;  // rank 0 stays until then
  const Job job = RunJob({.num_workers = 2}, {"0", "1"}, [&](SocketWorld& self) -> absl::Status {
    Numbers x(1);
    if (self.rank() == 0) {
      waited.get_future().wait_for(absl::ToChronoSeconds(kHang));
      return absl::OkStatus();
    }
    self.set_deadline(absl::Milliseconds(50));
    absl::Status received = self.Receive(0, Channel::kTransfer, absl::MakeSpan(Raw(x), 8));
    waited.set_value();
    return received;
  });
  EXPECT_THAT(job.workers[1],
              StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1 waited 50ms for a message from rank 0"));
}

// This worker thinks that a heartbeat each second will do; the scheduler loses patience after 0.4 s.
TEST(SocketFabricTest, AWorkerThatIsSilentIsLostAndTold) {
  auto scheduler = Scheduler::Listen({.num_workers = 1, .node_timeout = absl::Milliseconds(400)});
  ASSERT_OK(scheduler);
  const RendezvousOptions options = {.scheduler = {"127.0.0.1", (*scheduler)->port()}, .num_workers = 1};
  absl::Status served;
  std::thread serving([&] { served = (*scheduler)->Serve(); });
  {
    ASSERT_OK_AND_ASSIGN(const auto world, SocketWorld::Join(options, ""));
    Numbers x(1);
    EXPECT_THAT(world->Receive(0, Channel::kTransfer, absl::MakeSpan(Raw(x), 8)),
                StatusIs(absl::StatusCode::kCancelled, "stopped: worker 0 was lost: silent for 400ms"));
  }
  serving.join();
  EXPECT_THAT(served, StatusIs(kUnavailable, "worker 0 was lost: silent for 400ms"));
}

// The system gives a connection's own end any free port, for a minute beyond its close; a scheduler that was told to
// listen there must not fail for it.
TEST(SocketFramesTest, ThePortOfAConnectionsOwnEndCanBeListenedAt) {
  // Somebody else may have the same port meanwhile: one of several does.
  bool listened = false;
  for (int i = 0; i < 10 && !listened; ++i) {
    absl::StatusOr<OwnedFd> listening = ListenAt({"127.0.0.1", 0});
    ASSERT_OK(listening);
    absl::StatusOr<OwnedFd> connection = ConnectTo(OwnAddress(*listening), SteadyNow() + kHang);
    ASSERT_OK(connection);
    const SocketAddress own = OwnAddress(*connection);
    const bool while_open = ListenAt(own).ok();
    *connection = OwnedFd(-1);
    EXPECT_OK(AcceptFrom(*listening));  // and closed at once
    listened = while_open && ListenAt(own).ok();
  }
  EXPECT_TRUE(listened);
}

}  // namespace
}  // namespace meshwright
