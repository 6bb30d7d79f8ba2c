#include "simulator/flows.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BytesPerSecond kGigabyte = GBps(1);  // a byte a nanosecond

// All-reduce of `size` over a ring of n ranks, each with a link of its own to the next: 2 (n - 1) messages of size / n.
std::vector<Train> Ring(int32_t n, Bytes size) {
  std::vector<Train> trains;
  for (int32_t rank = 0; rank < n; ++rank) {
    trains.push_back({.route = rank, .size = size / n, .count = 2 * (n - 1), .feeder = (rank + n - 1) % n});
  }
  return trains;
}

TEST(PlayTrainsTest, ARingTakesWhatItsFormulaSays) {
  FlowNetwork network;
  for (int32_t rank = 0; rank < 8; ++rank) {
    network.links.push_back(kGigabyte);
    network.routes.push_back({{rank}, Nanos(50)});
  }
  ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(network, Ring(8, Bytes(8000))));
  // 14 steps of 1000 bytes at 1 byte/ns and 50 ns.
  for (const TrainTimes& of_rank : times) EXPECT_EQ(of_rank, (TrainTimes{Nanos(), Nanos(14 * 1050)}));
}

TEST(PlayTrainsTest, OneSlowLinkSlowsTheWholeRing) {
  FlowNetwork network;
  for (int32_t rank = 0; rank < 4; ++rank) {
    network.links.push_back(rank == 2 ? kGigabyte / 2.0 : kGigabyte);
    network.routes.push_back({{rank}, Nanos()});
  }
  ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(network, Ring(4, Bytes(4000))));
  // Rank 2 sends its six messages one after the other, 2000 ns each; the others wait for it or for who waits for it.
  EXPECT_EQ(times[2].end, Nanos(12'000));
  EXPECT_EQ(times[3].end, Nanos(11'000));  // its sixth message leaves when rank 2's fifth has come
}

TEST(PlayTrainsTest, MessagesShareALinkWhileBothAreUnderWay) {
  const FlowNetwork network = {{kGigabyte}, {{{0}, Nanos()}}};
  const std::vector<Train> trains = {{.size = Bytes(1000)}, {.size = Bytes(300), .begin = Nanos(400)}};
  ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(network, trains));
  // From 400 both have half: the short one is through after 600 ns, when the long one has 300 of its 600 bytes left.
  EXPECT_THAT(times, ElementsAre(TrainTimes{Nanos(), Nanos(1300)}, TrainTimes{Nanos(400), Nanos(1000)}));
}

TEST(PlayTrainsTest, WhatAnotherCannotUseIsTaken) {
  // 0 -> 1 -> 2 in a row: message A takes both links, B the first, C the second. The second has twice the bandwidth.
  const FlowNetwork network = {{kGigabyte, kGigabyte * 2.0}, {{{0, 1}, Nanos()}, {{0}, Nanos()}, {{1}, Nanos()}}};
  EXPECT_THAT(FairRates(network.links, network.routes), ElementsAre(kGigabyte / 2.0, kGigabyte / 2.0, kGigabyte * 1.5));
}

TEST(PlayTrainsTest, ATrainFollowsAnother) {
  const FlowNetwork network = {{kGigabyte}, {{{0}, Nanos(10)}}};
  const std::vector<Train> trains = {{.size = Bytes(100), .count = 3}, {.size = Bytes(), .after = 0}, {.after = 1}};
  ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(network, trains));
  EXPECT_THAT(times, ElementsAre(TrainTimes{Nanos(), Nanos(310)}, TrainTimes{Nanos(310), Nanos(320)},
                                 TrainTimes{Nanos(320), Nanos(330)}));
}

TEST(PlayTrainsTest, SaysWhatIsWrong) {
  const FlowNetwork network = {{kGigabyte}, {{{0}, Nanos()}}};
  const auto play = [&](Train train) { return PlayTrains(network, std::vector<Train>{train}).status(); };
  EXPECT_THAT(play({.route = 1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("train 0 takes route 1")));
  EXPECT_THAT(play({.count = 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 messages")));
  EXPECT_THAT(play({.after = 7}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("waits for train 7")));
  EXPECT_THAT(play({.after = 0}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("train 0 never ends")));
  EXPECT_THAT(PlayTrains({{BytesPerSecond()}, {}}, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("link 0 has no bandwidth")));
  EXPECT_THAT(PlayTrains({{kGigabyte}, {{{0, 0}, Nanos()}}}, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
}

// The same rules the plain way: from each moment to the next at which a message ends, arrives or may begin, with all
// rates anew, and each rate raised until a link on its way is full.
std::vector<TrainTimes> PlayPlainly(const FlowNetwork& network, const std::vector<Train>& trains) {
  struct Message {
    double remaining = 0, rate = 0;
    bool active = false;
    int64_t sent = 0;
    std::vector<double> arrivals;
  };
  std::vector<Message> messages(trains.size());
  std::vector<TrainTimes> times(trains.size());
  double now = 0;
  const auto arrived = [&](int32_t train) {
    const auto& all = messages[static_cast<size_t>(train)].arrivals;
    return std::count_if(all.begin(), all.end(), [&](double time) { return time <= now; });
  };
  while (true) {
    for (size_t t = 0; t < trains.size(); ++t) {
      Message& message = messages[t];
      const Train& train = trains[t];
      if (message.active || message.sent == train.count || now < static_cast<double>(train.begin.raw())) continue;
      if (train.after >= 0 && arrived(train.after) < trains[static_cast<size_t>(train.after)].count) continue;
      if (message.sent > 0 && train.feeder >= 0 && arrived(train.feeder) < message.sent) continue;
      if (message.sent == 0) times[t].begin = Nanos(static_cast<int64_t>(now));
      message.active = true;
      message.remaining = static_cast<double>(train.size.raw());
    }
    std::vector<FlowRoute> routes;
    std::vector<size_t> active;
    for (size_t t = 0; t < trains.size(); ++t) {
      if (!messages[t].active) continue;
      active.push_back(t);
      routes.push_back(network.routes[static_cast<size_t>(trains[t].route)]);
    }
    // Water-filling in small equal steps would do; in exact ones: the link that fills first stops its messages.
    std::vector<double> left;
    for (const BytesPerSecond link : network.links) left.push_back(link.raw() * 1e-9);
    std::vector<bool> stopped(active.size(), false);
    std::vector<double> rates(active.size(), 0);
    while (std::count(stopped.begin(), stopped.end(), false) > 0) {
      std::vector<int> users(left.size(), 0);
      for (size_t i = 0; i < active.size(); ++i) {
        for (const int32_t link : routes[i].links) users[static_cast<size_t>(link)] += stopped[i] ? 0 : 1;
      }
      double rise = 1e300;
      for (size_t l = 0; l < left.size(); ++l) {
        if (users[l] > 0) rise = std::min(rise, left[l] / users[l]);
      }
      for (size_t l = 0; l < left.size(); ++l) left[l] -= rise * users[l];
      for (size_t i = 0; i < active.size(); ++i) {
        if (stopped[i]) continue;
        rates[i] += rise;
        for (const int32_t link : routes[i].links) stopped[i] = stopped[i] || left[static_cast<size_t>(link)] < 1e-12;
      }
    }
    double next = 1e300;
    for (size_t i = 0; i < active.size(); ++i) {
      messages[active[i]].rate = rates[i];
      next = std::min(next, now + std::ceil(messages[active[i]].remaining / rates[i] - 1e-7));
    }
    for (size_t t = 0; t < trains.size(); ++t) {
      if (static_cast<double>(trains[t].begin.raw()) > now) {
        next = std::min(next, static_cast<double>(trains[t].begin.raw()));
      }
      for (const double time : messages[t].arrivals) {
        if (time > now) next = std::min(next, time);
      }
    }
    if (next == 1e300) break;
    for (const size_t t : active) {
      Message& message = messages[t];
      message.remaining -= (next - now) * message.rate;
      if (message.remaining > 1e-6) continue;
      message.active = false;
      ++message.sent;
      const double arrival =
          next + static_cast<double>(network.routes[static_cast<size_t>(trains[t].route)].latency.raw());
      message.arrivals.push_back(arrival);
      if (message.sent == trains[t].count) times[t].end = Nanos(static_cast<int64_t>(arrival));
    }
    now = next;
  }
  return times;
}

// 1, 2, 3 and 4 KB at 1 GB/s: each gets a quarter until the first has left after 4 us, then a third of it for 3 us, and
// so on.
TEST(PlayTrainsTest, SendersThatMeetOnOneLink) {
  FlowNetwork network;
  network.links.push_back(kGigabyte);
  std::vector<Train> trains;
  for (int32_t i = 0; i < 4; ++i) {
    network.links.push_back(kGigabyte);
    network.routes.push_back({{0, i + 1}, Nanos(100)});
    trains.push_back({.route = i, .size = Bytes(1000 * (i + 1))});
  }
  ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(network, trains));
  const int64_t ends[] = {4000, 7000, 9000, 10000};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(times[i].end, Nanos(ends[i] + 100)) << i;
}

// The same traffic where a second link, which is wide enough for all, has them meet twice: it is then filled up link by
// link. Each end is rounded up from other sums: a nanosecond at each of the messages before it, of one's own or others.
TEST(PlayTrainsTest, OneLinkOrTwoIsAllTheSame) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    FlowNetwork once, twice;
    once.links = {kGigabyte, GBps(1000)};
    std::vector<Train> trains;
    int64_t messages = 0;
    const BytesPerSecond own = kGigabyte * (random() % 2 == 0 ? 1 : 0.25);
    for (int32_t i = 0, n = 2 + static_cast<int32_t>(random() % 10); i < n; ++i) {
      once.links.push_back(own);
      once.routes.push_back({{0, i + 2}, Nanos(static_cast<int64_t>(random() % 3) * 500)});
      twice.routes.push_back({{0, 1, i + 2}, once.routes.back().latency});
      Train train = {.route = i,
                     .size = Bytes(static_cast<int64_t>(random() % 5000)),
                     .count = 1 + static_cast<int64_t>(random() % 5)};
      train.begin = Nanos(static_cast<int64_t>(random() % 4) * 1000);
      if (i > 0 && random() % 4 == 0) train.after = static_cast<int32_t>(random() % static_cast<uint32_t>(i));
      if (i > 0 && random() % 4 == 0) {
        train.feeder = static_cast<int32_t>(random() % static_cast<uint32_t>(i));
        train.count = std::min(train.count, trains[static_cast<size_t>(train.feeder)].count + 1);
      }
      messages += train.count;
      trains.push_back(train);
    }
    twice.links = once.links;
    ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(once, trains));
    ASSERT_OK_AND_ASSIGN(const auto other, PlayTrains(twice, trains));
    for (size_t t = 0; t < trains.size(); ++t) {
      EXPECT_NEAR(static_cast<double>(times[t].begin.raw()), static_cast<double>(other[t].begin.raw()), messages) << t;
      EXPECT_NEAR(static_cast<double>(times[t].end.raw()), static_cast<double>(other[t].end.raw()), messages) << t;
    }
  }
}

TEST(PlayTrainsTest, AgreesWithThePlainWayOnRandomTraffic) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
    FlowNetwork network;
    const int32_t num_links = 1 + below(6);
    // Bandwidths and sizes in powers of two keep rates and times whole, or nearly so: both ways round alike.
    for (int32_t l = 0; l < num_links; ++l) network.links.push_back(kGigabyte * static_cast<double>(1 << below(4)));
    for (int32_t r = 0; r < 5; ++r) {
      FlowRoute route;
      for (int32_t l = 0; l < num_links; ++l) {
        if (below(2) == 0) route.links.push_back(l);
      }
      if (route.links.empty()) route.links.push_back(below(static_cast<uint32_t>(num_links)));
      route.latency = Nanos(below(3) * 500);
      network.routes.push_back(route);
    }
    std::vector<Train> trains;
    const int32_t num_trains = 1 + below(8);
    for (int32_t t = 0; t < num_trains; ++t) {
      Train train = {.route = below(5), .size = Bytes(int64_t{1} << (10 + below(8))), .count = 1 + below(4)};
      train.begin = Nanos(below(4) * 1000);
      if (t > 0 && below(3) == 0) train.after = below(static_cast<uint32_t>(t));
      if (t > 0 && below(3) == 0) {
        train.feeder = below(static_cast<uint32_t>(t));
        train.count = std::min(train.count, trains[static_cast<size_t>(train.feeder)].count + 1);
      }
      trains.push_back(train);
    }
    ASSERT_OK_AND_ASSIGN(const auto times, PlayTrains(network, trains));
    const auto plain = PlayPlainly(network, trains);
    for (size_t t = 0; t < trains.size(); ++t) {
      // Each end is rounded up to a whole nanosecond in both ways, from sums in another order: one nanosecond apart at
      // each of the at most 32 messages before it.
      EXPECT_NEAR(static_cast<double>(times[t].begin.raw()), static_cast<double>(plain[t].begin.raw()), 32) << t;
      EXPECT_NEAR(static_cast<double>(times[t].end.raw()), static_cast<double>(plain[t].end.raw()), 32) << t;
    }
  }
}

TEST(FairRatesTest, NoLinkIsOverfullAndEveryMessageMeetsAFullLinkOnWhichNoneIsFaster) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::vector<BytesPerSecond> links;
    for (uint32_t l = 0, n = 1 + random() % 8; l < n; ++l)
      links.push_back(GBps(1 + static_cast<double>(random() % 50)));
    std::vector<FlowRoute> routes(1 + random() % 20);
    for (FlowRoute& route : routes) {
      for (size_t l = 0; l < links.size(); ++l) {
        if (random() % 3 == 0) route.links.push_back(static_cast<int32_t>(l));
      }
      if (route.links.empty()) route.links.push_back(0);
    }
    const std::vector<BytesPerSecond> rates = FairRates(links, routes);
    std::vector<double> load(links.size(), 0), fastest(links.size(), 0);
    for (size_t r = 0; r < routes.size(); ++r) {
      for (const int32_t link : routes[r].links) {
        load[static_cast<size_t>(link)] += rates[r].raw();
        fastest[static_cast<size_t>(link)] = std::max(fastest[static_cast<size_t>(link)], rates[r].raw());
      }
    }
    for (size_t l = 0; l < links.size(); ++l) EXPECT_LE(load[l], links[l].raw() * (1 + 1e-9)) << l;
    for (size_t r = 0; r < routes.size(); ++r) {
      EXPECT_TRUE(std::any_of(routes[r].links.begin(), routes[r].links.end(), [&](int32_t link) {
        const size_t l = static_cast<size_t>(link);
        return load[l] >= links[l].raw() * (1 - 1e-9) && rates[r].raw() >= fastest[l] * (1 - 1e-9);
      })) << r;
    }
  }
}

}  // namespace
}  // namespace meshwright
