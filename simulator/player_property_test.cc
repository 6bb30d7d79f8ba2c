// The player against a second one that is too plain to be wrong, on random programs: folded, not folded and plain agree
// to the nanosecond. The seed is printed with every failure.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "simulator/player.h"
#include "simulator/simulate.h"
#include "simulator/tasks.h"
#include "simulator/testing.h"

namespace meshwright {
namespace {

constexpr uint32_t kSeeds = 4000;

TEST(PlayerPropertyTest, FoldedUnfoldedAndPlainAgree) {
  int64_t folded_tasks = 0, tasks = 0, contended = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Program program = RandomProgram(seed);
    const Prices prices = RandomPrices(program, seed);
    const PlainTimes plain = PlayPlainly(program, prices);
    ASSERT_OK_AND_ASSIGN(const SimulationResult folded, Simulate(program, prices, {.trace = TraceDetail::kSlots}));
    ASSERT_OK_AND_ASSIGN(const SimulationResult single,
                         Simulate(program, prices, {.trace = TraceDetail::kInstructions}));
    ASSERT_EQ(folded.makespan, plain.makespan) << ToText(program);
    ASSERT_EQ(single.makespan, plain.makespan) << ToText(program);
    folded_tasks += folded.num_tasks;
    tasks += single.num_tasks;

    // Every single instruction begins and ends at the same time.
    std::vector<Span> spans;
    for (size_t c = 0; c < program.classes.size(); ++c) {
      for (size_t s = 0; s < kNumStreams; ++s) {
        for (const PlainTimes::Entry& entry : plain.entries) {
          const Slot& slot = program.classes[entry.class_index].slots[entry.slot];
          const Instruction& instruction =
              program.classes[entry.class_index].blocks[slot.block.index()].instructions[entry.instruction];
          if (entry.class_index != c || instruction.stream != static_cast<Stream>(s)) continue;
          Span& span = spans.emplace_back();
          span.rank = program.RankOf(c, 0);
          span.slot = static_cast<uint32_t>(entry.slot);
          span.layer = static_cast<int32_t>(entry.layer);
          span.instruction = static_cast<int32_t>(entry.instruction);
          span.begin = entry.begin;
          span.end = entry.end;
        }
      }
    }
    ASSERT_EQ(single.trace.spans.size(), spans.size());
    for (size_t i = 0; i < spans.size(); ++i) {
      const Span& span = single.trace.spans[i];
      ASSERT_EQ(span.rank, spans[i].rank);
      ASSERT_EQ(span.slot, spans[i].slot);
      ASSERT_EQ(span.layer, spans[i].layer);
      ASSERT_EQ(span.instruction, spans[i].instruction);
      ASSERT_EQ(span.begin, spans[i].begin) << ToText(program);
      ASSERT_EQ(span.end, spans[i].end) << ToText(program);
    }

    // Slots begin and end as their instructions do, and the same uses explain the same time.
    for (const Span& slot : folded.trace.spans) {
      Nanos begin = kForever, end;
      for (const Span& span : single.trace.spans) {
        if (span.rank != slot.rank || span.slot != slot.slot || span.stream != slot.stream) continue;
        begin = std::min(begin, span.begin);
        end = std::max(end, span.end);
      }
      ASSERT_EQ(slot.begin, begin);
      ASSERT_EQ(slot.end, end);
    }
    for (size_t c = 0; c < folded.classes.size(); ++c) {
      const Breakdown& time = folded.classes[c].time;
      ASSERT_EQ(time.exclusive.Total(), folded.makespan);
      ASSERT_EQ(time.exclusive, single.classes[c].time.exclusive) << ToText(program);
      ASSERT_EQ(time.busy, single.classes[c].time.busy);
      contended += time.exclusive[TimeUse::kContention] > Nanos();
    }
    ASSERT_EQ(folded.critical_class, single.critical_class);
  }
  // The programs are worth the name: many fold, many have contention.
  EXPECT_LT(folded_tasks, tasks * 3 / 4);
  EXPECT_GT(contended, kSeeds / 4);
}

// Tasks that are left with those without duration left out begin and end when they did among all.
TEST(PlayerPropertyTest, WithoutSyncsTheOthersKeepTheirTimes) {
  size_t left_out = 0, tasks = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Program program = RandomProgram(seed);
    const Prices prices = RandomPrices(program, seed);
    ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> all, Unroll(program, prices, Folding::kRuns));
    ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> fewer, Unroll(program, prices, Folding::kRunsWithoutSyncs));
    ASSERT_OK_AND_ASSIGN(const PlayedTimes expected, Play(program, all));
    ASSERT_OK_AND_ASSIGN(const PlayedTimes played, Play(program, fewer));
    ASSERT_EQ(played.makespan, expected.makespan) << ToText(program);
    for (size_t c = 0; c < fewer.size(); ++c) {
      size_t t = 0;
      for (size_t i = 0; i < fewer[c].tasks.size(); ++i, ++t) {
        const Task& task = fewer[c].tasks[i];
        const auto same = [&](const Task& other) {
          return other.slot == task.slot && other.layer == task.layer &&
                 other.run - other.block->runs.data() == task.run - task.block->runs.data();
        };
        for (; t < all[c].tasks.size() && !same(all[c].tasks[t]); ++t) EXPECT_EQ(all[c].tasks[t].time(), Nanos());
        ASSERT_LT(t, all[c].tasks.size());
        ASSERT_EQ(played.times[c][i].begin, expected.times[c][t].begin) << ToText(program);
        // Layers that waited for nothing but a sync are one task without it, and several among all.
        const Slot& slot = program.classes[c].slots[static_cast<size_t>(task.slot)];
        int32_t layers = all[c].tasks[t].count;
        for (; layers < task.count; layers += all[c].tasks[t].count) {
          ASSERT_LT(++t, all[c].tasks.size());
          ASSERT_EQ(all[c].tasks[t].slot, task.slot);
          ASSERT_EQ(all[c].tasks[t].layer, slot.layer + layers * slot.step);
        }
        ASSERT_EQ(layers, task.count);
        ASSERT_EQ(played.times[c][i].end, expected.times[c][t].end) << ToText(program);
      }
      left_out += all[c].tasks.size() - fewer[c].tasks.size();
      tasks += all[c].tasks.size();
    }
  }
  EXPECT_GT(left_out, tasks / 50);
}

TEST(PlayerPropertyTest, SameInputSameResult) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Program program = RandomProgram(seed);
    const Prices prices = RandomPrices(program, seed);
    ASSERT_OK_AND_ASSIGN(const SimulationResult one, Simulate(program, prices));
    ASSERT_OK_AND_ASSIGN(const SimulationResult two, Simulate(program, prices));
    EXPECT_EQ(one.makespan, two.makespan);
    EXPECT_EQ(ToText(one, program), ToText(two, program));
  }
}

}  // namespace
}  // namespace meshwright
