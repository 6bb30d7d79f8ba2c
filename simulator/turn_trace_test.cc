#include "simulator/turn_trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "simulator/play_state.h"
#include "simulator/run_paces.h"

namespace meshwright {
namespace {

constexpr size_t kFirst = 0, kSecond = kNumStreams;  // clocks: the compute streams of two classes

Running From(int64_t begin, int64_t lasts) {
  Running running;
  running.updated = Nanos(begin);
  running.remaining = lasts * kWhole;
  running.end = Nanos(begin + lasts);
  return running;
}

// Two sites, one task of 100 ns after the other on the first, of 130 ns on the second. A turn from 0 on is traced, in
// which one of each ends; `meet`: where the second's does, both meet.
class TurnTraceTest : public testing::Test {
 protected:
  void Trace(bool meet) {
    trace_.Clear(2 * kNumStreams, 2);
    trace_.End(kFirst, 0, Nanos(100));
    trace_.Begin(kFirst, 0, Nanos(100), From(100, 100));
    trace_.End(kSecond, 1, Nanos(130));
    if (meet) trace_.Meet(1, 0, Nanos(130));
    trace_.Begin(kSecond, 1, Nanos(130), From(130, 130));
    clocks_.running.resize(2 * kNumStreams);
    clocks_.running[kFirst] = From(100, 100);
    clocks_.running[kSecond] = From(130, 130);
    clocks_.moments = {Nanos(130), Nanos(130)};
  }
  void ExpectEnds(int64_t first, int64_t second) const {
    EXPECT_EQ(clocks_.running[kFirst].end, Nanos(first));
    EXPECT_EQ(clocks_.running[kSecond].end, Nanos(second));
  }

  RunPaces paces_;
  TurnTrace trace_{&paces_};
  Clocks clocks_;
};

TEST_F(TurnTraceTest, SitesThatDoNotMeetAreNotCompared) {
  Trace(/*meet=*/false);
  // 1000 tasks end on each, the last at 100,100 and 130,130, by when the first site is 30 us behind: one turn less.
  EXPECT_EQ(trace_.Repeat(1000, &clocks_), 999);
  ExpectEnds(100 + 100 * 1000, 130 + 130 * 1000);
}

// Behind two times they stand at 300 and 390, and nothing ends before 400; behind three at 400 and 520, and the first
// site's next task ends at 500.
TEST_F(TurnTraceTest, TheLastTimeCountsWhereSitesAreTogether) {
  Trace(/*meet=*/false);
  EXPECT_EQ(trace_.Repeat(2, &clocks_), 2);
  ExpectEnds(400, 520);
  Trace(/*meet=*/false);
  EXPECT_EQ(trace_.Repeat(3, &clocks_), 2);
  ExpectEnds(400, 520);
}

// They meet at 260, 390 and 520, and the first site's task that ends at 500 would come behind that: three times the
// order is that of the trace, and what is known ends with the second.
TEST_F(TurnTraceTest, SitesThatMeetKeepTheirOrder) {
  Trace(/*meet=*/true);
  EXPECT_EQ(trace_.Repeat(1000, &clocks_), 2);
  ExpectEnds(400, 520);
}

// What no turn ends must end behind all that they do: behind 260 and 390, before 520.
TEST_F(TurnTraceTest, WhatRunsThroughAllTurnsMustNotEnd) {
  Trace(/*meet=*/false);
  clocks_.running[kFirst + 1] = From(0, 450);
  EXPECT_EQ(trace_.Repeat(1000, &clocks_), 1);
  ExpectEnds(300, 390);
}

TEST_F(TurnTraceTest, WhatGoesOnAtAnotherRateMustNotHaveEnded) {
  Trace(/*meet=*/false);
  // At half the rate from when the second site's task ends: 30 ns of 100 are done by 130, 70 take 140.
  Running slower = From(130, 70);
  slower.rate = kWhole / 2;
  slower.end = Nanos(270);
  trace_.Clear(2 * kNumStreams, 2);
  trace_.End(kSecond, 1, Nanos(130));
  trace_.Meet(1, 0, Nanos(130));
  trace_.GoOn(kFirst, 0, Nanos(130), slower);
  trace_.Begin(kSecond, 1, Nanos(130), From(130, 130));
  clocks_.running[kFirst] = From(100, 1000);
  // At 260, 390 and 520: of 840 ns that are left first, 65 are done in each turn.
  EXPECT_EQ(trace_.Repeat(3, &clocks_), 3);
  // At 260 840 of 1000 ns are left, at 390 775, at 520 710: 1,420 ns at half the rate.
  ExpectEnds(520 + 1420, 650);
  clocks_.running[kFirst] = From(100, 160);  // until 260, when it would go on
  clocks_.running[kSecond] = From(130, 130);
  clocks_.moments = {Nanos(130), Nanos(130)};
  EXPECT_EQ(trace_.Repeat(3, &clocks_), 0);
}

// Two tasks of 50 ns a turn on a stream, and two messages on another that receives them, whose end nobody there knows.
// Of the first of both nobody asks for more than its end, of the second all is known behind the last turn.
TEST_F(TurnTraceTest, WhatEndsBeforeAnythingElseHappensToItIsGoneThrough) {
  constexpr size_t kReceives = kFirst + 1;
  const auto receiving = [](int64_t since) {
    Running running = From(since, 50);
    running.end = kNever;
    return running;
  };
  trace_.Clear(2 * kNumStreams, 2);
  for (const int64_t now : {100, 150}) {
    trace_.End(kFirst, 0, Nanos(now));
    trace_.Begin(kFirst, 0, Nanos(now), From(now, 50));
    trace_.Begin(kReceives, 0, Nanos(now), receiving(now));
  }
  clocks_.running.resize(2 * kNumStreams);
  clocks_.running[kFirst] = From(150, 50);
  clocks_.running[kReceives] = receiving(150);
  clocks_.moments = {Nanos(150), Nanos(150)};
  EXPECT_EQ(trace_.Repeat(3, &clocks_), 3);
  EXPECT_EQ(clocks_.moments[0], Nanos(450));
  EXPECT_EQ(clocks_.running[kFirst].updated, Nanos(450));
  EXPECT_EQ(clocks_.running[kFirst].end, Nanos(500));
  EXPECT_EQ(clocks_.running[kReceives].updated, Nanos(450));
  EXPECT_EQ(clocks_.running[kReceives].end, kNever);
}

// Against a look at all of them, of as many classes as blocks have and of fewer.
TEST(FirstEndsTest, AreThoseOfAllClasses) {
  std::mt19937 random(1);
  for (size_t classes = 1; classes <= 17; ++classes) {
    FirstEnds first_ends(classes);
    std::vector<Nanos> ends(classes, kNever);
    for (int i = 0; i < 300; ++i) {
      const size_t c = random() % classes;
      ends[c] = random() % 4 == 0 ? kNever : Nanos(static_cast<int64_t>(random() % 5));
      first_ends.Set(c, ends[c]);
      const Nanos first = *std::min_element(ends.begin(), ends.end());
      ASSERT_EQ(first_ends.First(), first);
      std::vector<size_t> expected, visited;
      for (size_t k = 0; k < classes; ++k) {
        if (ends[k] == first) expected.push_back(k);
      }
      if (first == kNever) continue;
      first_ends.ForEachAt(first, [&](size_t k) { visited.push_back(k); });
      ASSERT_EQ(visited, expected) << classes << " classes";
    }
  }
}

// Anywhere in a stretch that goes to its end in one step is the same place, and another state.
TEST(RunningTest, APieceOfAFoldedStretchIsItsTime) {
  const Task task;
  Running folded = From(0, 100);
  folded.of = &task;
  folded.pace = -1;
  Running later = folded;
  later.piece = 1;
  EXPECT_TRUE(folded.AlikeBut(later));
  EXPECT_FALSE(folded.SameTimesBut(later, Nanos()));
  folded.pace = later.pace = kPieceByPiece;
  EXPECT_FALSE(folded.AlikeBut(later));
}

}  // namespace
}  // namespace meshwright
