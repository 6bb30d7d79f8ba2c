#include "planner/passes/arrivals.h"

#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/strategy.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// What the parts of a chain hand on, a tensor each way: what a part sends forward is kept until its backward pass.
std::vector<Route> ChainRoutes(Schedule schedule, int64_t stages, int64_t chunks) {
  std::vector<Route> routes;
  const int64_t parts = stages * chunks;
  for (int64_t part = 0; part + 1 < parts; ++part) {
    for (const PassKind kind : {PassKind::kForward, PassKind::kBackward}) {
      const int64_t from = kind == PassKind::kForward ? part : part + 1;
      const int64_t to = kind == PassKind::kForward ? part + 1 : part;
      Route route;
      route.from = StageOfPart(schedule, from, stages), route.from_chunk = from / stages;
      route.to = StageOfPart(schedule, to, stages), route.to_chunk = to / stages;
      if (route.from == route.to) continue;  // copied, as where a V turns
      route.kind = kind;
      route.last_kind = PassKind::kBackward, route.last_chunk = route.to_chunk;
      route.home = {route.to_chunk, BufferId(static_cast<size_t>(kind))};
      routes.push_back(route);
    }
  }
  return routes;
}

using Received = std::vector<std::vector<std::pair<size_t, int64_t>>>;  // by pass: routes and micro-batches
Received ReceivedBy(const Arrivals& arrivals) {
  Received received;
  for (const auto& before : arrivals.before) {
    auto& of_pass = received.emplace_back();
    for (const Arrivals::Receive& one : before) of_pass.emplace_back(one.route, one.microbatch);
  }
  return received;
}

// Stage 1 of 3 in 1f1b, 4 micro-batches: F0 F1 B0 F2 B1 F3 B2 B3. Each pass reads one tensor of its own. Of those that
// come forward two wait at once, those of micro-batches 0 and 1 before B0 and so on; of those that come back one.
TEST(ArrivalsTest, EachReceiveStandsBeforeThePassThatReadsIt) {
  const auto passes = PassesOf(Schedule::kOneFOneB, 3, 4);
  const std::vector<Route> routes = ChainRoutes(Schedule::kOneFOneB, 3, 1);  // 0->1, 1->0, 1->2, 2->1
  const std::optional<Arrivals> arrivals = ArrivalsInOrder(1, passes, routes);
  ASSERT_TRUE(arrivals.has_value());
  const Received wanted = {{{0, 0}}, {{0, 1}}, {{3, 0}}, {{0, 2}}, {{3, 1}}, {{0, 3}}, {{3, 2}}, {{3, 3}}};
  EXPECT_EQ(ReceivedBy(*arrivals), wanted);
  EXPECT_THAT(arrivals->early, IsEmpty());
  EXPECT_THAT(arrivals->waiting, UnorderedElementsAre(Pair(Pair(0, BufferId(0)), 2), Pair(Pair(0, BufferId(1)), 1)));
}

TEST(ArrivalsTest, WithoutTimesTheyAreWhatTheyAreByTimes) {
  int in_order = 0, by_time = 0;
  for (const Schedule schedule : {Schedule::kGpipe, Schedule::kOneFOneB, Schedule::kZeroBubbleH1,
                                  Schedule::kZeroBubbleV, Schedule::kDualPipeV, Schedule::kDualPipe}) {
    const bool is_v = IsV(schedule);
    const int64_t most_chunks = is_v ? 2 : schedule == Schedule::kOneFOneB ? 3 : 1;
    for (int64_t stages = 2; stages <= 6; ++stages) {
      for (int64_t microbatches = stages; microbatches <= 3 * stages; ++microbatches) {
        if (!CheckSchedule(schedule, stages, microbatches).ok()) continue;
        for (int64_t chunks = is_v ? 2 : 1; chunks <= most_chunks; ++chunks) {
          const auto passes = PassesOf(schedule, stages, microbatches, chunks);
          const auto ends = EndsOf(schedule, passes);
          const std::vector<Route> routes = ChainRoutes(schedule, stages, chunks);
          for (int64_t stage = 0; stage < stages; ++stage) {
            const std::optional<Arrivals> found = ArrivalsInOrder(stage, passes, routes);
            ++(found.has_value() ? in_order : by_time);
            if (!found.has_value()) {
              // A stage of a plain pipeline reads what its neighbours send, one after the other.
              EXPECT_TRUE(is_v || chunks > 1) << static_cast<int>(schedule) << " stage " << stage << " of " << stages;
              continue;
            }
            const Arrivals wanted = PlanArrivals(stage, passes, ends, routes, /*in_order_of_time=*/false);
            EXPECT_EQ(ReceivedBy(*found), ReceivedBy(wanted))
                << static_cast<int>(schedule) << " stage " << stage << " of " << stages << ", " << microbatches
                << " micro-batches, " << chunks << " chunks";
            EXPECT_EQ(found->early, wanted.early);
            EXPECT_EQ(found->waiting, wanted.waiting);
          }
        }
      }
    }
  }
  // Both ways have been gone.
  EXPECT_GT(in_order, 100);
  EXPECT_GT(by_time, 10);
}

// What skips a part comes from another peer, and in which order is a matter of time.
TEST(ArrivalsTest, WhatSkipsPartsTakesTimes) {
  std::vector<Route> routes = ChainRoutes(Schedule::kOneFOneB, 3, 1);
  Route skips = routes[0];
  skips.to = 2, skips.skips = true;
  routes.push_back(skips);
  const auto passes = PassesOf(Schedule::kOneFOneB, 3, 4);
  EXPECT_FALSE(ArrivalsInOrder(2, passes, routes).has_value());
  EXPECT_TRUE(ArrivalsInOrder(1, passes, routes).has_value());
}

}  // namespace
}  // namespace meshwright
