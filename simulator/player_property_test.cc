// The player against a second one that is too plain to be wrong, on random programs: folded, not folded and plain agree
// to the nanosecond. The seed is printed with every failure.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
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

// Programs of 1 to 64 ranks, as classes and with each rank for itself: the same to the nanosecond. All ranks of a class
// begin each instruction at the same moment, so that a collective finds its whole group there and need not wait.
TEST(PlayerPropertyTest, RanksDoWhatTheirClassDoes) {
  constexpr uint32_t kPrograms = 400;
  int64_t most_ranks = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const int64_t ranks = int64_t{1} << seed % 4;
    const Program program = RandomProgram(seed, 8, ranks);
    Prices prices = RandomPrices(program, seed);
    // Links between classes are claimed by a class once, however many ranks it has.
    for (auto& blocks : prices.classes) {
      for (auto& block : blocks) {
        for (InstructionPrice& price : block) price.shared.clear();
      }
    }
    const SimulateOptions all = {.trace = TraceDetail::kInstructions};
    const Program each = WithClassPerRank(program);
    ASSERT_OK_AND_ASSIGN(const SimulationResult folded, Simulate(program, prices, all));
    ASSERT_OK_AND_ASSIGN(const SimulationResult single, Simulate(each, WithClassPerRank(program, prices), all));
    ASSERT_EQ(single.makespan, folded.makespan);
    ASSERT_EQ(each.classes.size(), static_cast<size_t>(program.mesh.num_ranks()));
    most_ranks = std::max(most_ranks, program.mesh.num_ranks());
    for (size_t r = 0; r < each.classes.size(); ++r) {
      ASSERT_EQ(single.classes[r].time.exclusive, folded.classes[r / static_cast<size_t>(ranks)].time.exclusive);
      ASSERT_EQ(single.classes[r].time.busy, folded.classes[r / static_cast<size_t>(ranks)].time.busy);
    }
    // Spans stand by rank; those of a class have the rank of its first.
    std::map<int64_t, std::vector<const Span*>> of_class, of_rank;
    for (const Span& span : folded.trace.spans) of_class[span.rank].push_back(&span);
    for (const Span& span : single.trace.spans) of_rank[span.rank].push_back(&span);
    for (size_t c = 0; c < program.classes.size(); ++c) {
      const auto& expected = of_class[program.RankOf(c, 0)];
      for (int64_t r = 0; r < ranks; ++r) {
        const auto& found = of_rank[each.RankOf(c * static_cast<size_t>(ranks) + static_cast<size_t>(r), 0)];
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          ASSERT_EQ(found[i]->slot, expected[i]->slot);
          ASSERT_EQ(found[i]->instruction, expected[i]->instruction);
          ASSERT_EQ(found[i]->begin, expected[i]->begin);
          ASSERT_EQ(found[i]->end, expected[i]->end);
        }
      }
    }
  }
  EXPECT_EQ(most_ranks, 64);
}

// When runs begin and end, by slot, run in its block, and the layer whose begin or end it is. A task may be several
// layers.
struct Edges {
  std::map<std::tuple<int32_t, std::ptrdiff_t, int64_t>, Nanos> begins, ends;
  std::set<std::pair<int32_t, std::ptrdiff_t>> runs;
};

std::pair<int32_t, std::ptrdiff_t> RunOf(const Task& task) { return {task.slot, task.run - task.block->runs.data()}; }

Edges EdgesOf(const TaskList& list, const std::vector<TaskTimes>& times, const RankClass& rank_class) {
  Edges edges;
  for (size_t i = 0; i < list.tasks.size(); ++i) {
    const Task& task = list.tasks[i];
    const auto [slot, run] = RunOf(task);
    const int64_t last = task.layer + (task.count - 1) * rank_class.slots[static_cast<size_t>(slot)].step;
    edges.begins[{slot, run, task.layer}] = times[i].begin;
    edges.ends[{slot, run, last}] = times[i].end;
    edges.runs.insert({slot, run});
  }
  return edges;
}

// Those that both have. Every run has its first begin and its last end in either.
void ExpectTheSame(const std::map<std::tuple<int32_t, std::ptrdiff_t, int64_t>, Nanos>& some,
                   const std::map<std::tuple<int32_t, std::ptrdiff_t, int64_t>, Nanos>& others) {
  for (const auto& [place, time] : some) {
    const auto other = others.find(place);
    if (other == others.end()) continue;
    EXPECT_EQ(time, other->second);
  }
}

// Tasks that are left with those without duration left out begin and end when they did among all. How many layers are
// one task differs: what waited for a sync waits for nothing, or for the task before it, which it had not waited for.
TEST(PlayerPropertyTest, WithoutSyncsTheOthersKeepTheirTimes) {
  size_t left_out = 0, tasks = 0;
  for (uint32_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    const Program program = RandomProgram(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", ToText(program)));
    const Prices prices = RandomPrices(program, seed);
    ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> all, Unroll(program, prices, Folding::kRuns));
    ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> fewer, Unroll(program, prices, Folding::kRunsWithoutSyncs));
    ASSERT_OK_AND_ASSIGN(const PlayedTimes expected, Play(program, all));
    ASSERT_OK_AND_ASSIGN(const PlayedTimes played, Play(program, fewer));
    ASSERT_EQ(played.makespan, expected.makespan);
    for (size_t c = 0; c < fewer.size(); ++c) {
      const Edges kept = EdgesOf(fewer[c], played.times[c], program.classes[c]);
      const Edges every = EdgesOf(all[c], expected.times[c], program.classes[c]);
      ExpectTheSame(kept.begins, every.begins);
      ExpectTheSame(kept.ends, every.ends);
      for (const Task& task : all[c].tasks) {
        if (kept.runs.count(RunOf(task)) > 0) continue;
        EXPECT_EQ(task.time(), Nanos());
        ++left_out;
      }
      tasks += all[c].tasks.size();
    }
  }
  EXPECT_GT(left_out, tasks / 50);
}

// Tasks and what they wait for, but for where their blocks lie.
std::vector<std::vector<int64_t>> StepsOf(const TaskList& list) {
  std::vector<std::vector<int64_t>> steps;
  for (const Task& task : list.tasks) {
    const auto [slot, run] = RunOf(task);
    steps.push_back({slot, task.block - list.blocks->data(), run, task.layer, task.count, task.previous, task.place});
    for (int32_t w = 0; w < task.num_waits; ++w) {
      const Wait& wait = list.waits[static_cast<size_t>(task.first_wait + w)];
      steps.back().insert(steps.back().end(), {wait.task, wait.place, static_cast<int64_t>(wait.stream)});
    }
  }
  return steps;
}

// Classes that are cut alike share blocks, whatever their slots are and however many instances their events have: each
// is issued as if it were alone.
TEST(PlayerPropertyTest, ClassesThatShareBlocksAreIssuedAsIfAlone) {
  size_t differ = 0;
  for (uint32_t seed = 0; seed < kSeeds / 4 && !testing::Test::HasFailure(); ++seed) {
    std::mt19937 random(seed);
    Program program = RandomProgram(seed, 1);
    Prices prices = RandomPrices(program, seed);
    RankClass other = program.classes[0];
    for (Event& event : other.events) {
      event.layers = event.layers > 1 && random() % 2 == 0 ? 1 : event.layers;
      event.microbatches += random() % 3;
    }
    if (!other.slots.empty()) other.slots.resize(1 + random() % other.slots.size());
    std::vector<RankClass> classes = {program.classes[0], std::move(other), program.classes[0]};
    std::vector<std::vector<std::vector<int64_t>>> alone;
    for (const RankClass& rank_class : classes) {
      program.classes = {rank_class};
      ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> list, Unroll(program, prices, Folding::kRunsWithoutSyncs));
      alone.push_back(StepsOf(list[0]));
    }
    program.classes = std::move(classes);
    prices.classes.resize(3, prices.classes[0]);
    ASSERT_OK_AND_ASSIGN(const std::vector<TaskList> lists, Unroll(program, prices, Folding::kRunsWithoutSyncs));
    for (size_t c = 0; c < lists.size(); ++c) {
      EXPECT_EQ(lists[c].blocks, lists[0].blocks);
      EXPECT_EQ(StepsOf(lists[c]), alone[c]) << "seed " << seed << ", class " << c;
    }
    differ += alone[0] != alone[1];
  }
  EXPECT_GT(differ, kSeeds / 8);
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
