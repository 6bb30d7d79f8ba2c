// The verifier's clocks against the definition: random programs of one class, where every pair of instructions is
// looked at and order is reachability in the graph of streams and events.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

constexpr size_t kNumBuffers = 4, kNumEvents = 3, kNumInstructions = 10;

// Buffers of 2 instances at random places of a small arena, instructions on random streams with random waits.
Program RandomProgram(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  Program program;
  program.num_microbatches = 2;
  RankClass& rank_class = program.classes.emplace_back();
  rank_class.arena = Bytes(256 * 16);
  for (size_t b = 0; b < kNumBuffers; ++b) {
    Buffer& buffer = rank_class.buffers.emplace_back();
    buffer.name = absl::StrCat("b", b);
    buffer.shape = {16};
    buffer.layout = Layout::Replicated(1);
    buffer.microbatches = 1 + below(2);
    buffer.bytes = Bytes(256 * (1 + below(2)));
    buffer.offset = Bytes(256 * below(12));
    if (below(4) == 0) buffer.role = BufferRole::kParameter;
  }
  for (size_t e = 0; e < kNumEvents; ++e) {
    rank_class.events.push_back({absl::StrCat("e", e), 1, 1 + below(2)});
  }
  Block& block = rank_class.blocks.emplace_back();
  for (size_t i = 0; i < kNumInstructions; ++i) {
    Instruction& instruction = block.instructions.emplace_back();
    instruction.stream = static_cast<Stream>(below(3));
    Compute compute;
    const BufferId target(below(kNumBuffers)), source(below(kNumBuffers));
    if (i < kNumBuffers || below(2) == 0) {
      compute.op = OpKind::kFill;
      instruction.writes = {{i < kNumBuffers ? BufferId(i) : target, 0}};
    } else {
      compute.op = OpKind::kScale;
      compute.rule = *ParseRule("i -> i");
      instruction.reads = {{source, 0}};
      instruction.writes = {{target, 0}};
    }
    instruction.work = compute;
    // Mostly one event that everyone waits for and records, so that some programs are right.
    for (int64_t n = below(3); n > 0; --n) instruction.waits.push_back({EventId(below(2) * below(kNumEvents)), 0});
    for (int64_t n = below(3); n > 0; --n) instruction.records.push_back({EventId(below(2) * below(kNumEvents)), 0});
  }
  for (size_t e = 0; e < kNumEvents; ++e) block.instructions.back().records.push_back({EventId(e), 0});  // rule 8
  rank_class.slots = {{BlockId(0), 0, 0, 1, 1}, {BlockId(0), 1, 0, 1, 1}};
  return program;
}

struct Instance {
  size_t buffer = 0;
  int64_t begin = 0, end = 0;
  bool operator==(const Instance&) const = default;
};
bool Overlap(const Instance& a, const Instance& b) { return a.begin < b.end && b.begin < a.end; }

struct Played {
  const Instruction* instruction = nullptr;
  std::vector<Instance> reads, writes;
};

// The definition, as directly as can be: "" if the program is right.
std::string Judge(const Program& program) {
  const RankClass& c = program.classes[0];
  std::vector<Played> played;
  std::vector<std::vector<bool>> before;  // before[j][i]: i is done when j starts
  const auto instance = [&](const Operand& operand, int64_t mb) {
    const Buffer& buffer = c.buffers[operand.buffer.index()];
    const int64_t begin = OffsetOf(buffer, 0, mb).raw();
    return Instance{operand.buffer.index(), begin, begin + buffer.bytes.raw()};
  };
  std::vector<std::vector<int>> recorded;  // by event and instance: the latest
  for (const Event& event : c.events) recorded.emplace_back(event.microbatches, -1);
  for (const Slot& slot : c.slots) {
    for (const Instruction& instruction : c.blocks[0].instructions) {
      const int me = static_cast<int>(played.size());
      Played p{&instruction, {}, {}};
      for (const Operand& read : instruction.reads) p.reads.push_back(instance(read, slot.microbatch));
      for (const Operand& write : instruction.writes) p.writes.push_back(instance(write, slot.microbatch));
      std::vector<bool> mine(played.size(), false);
      const auto after = [&](int i) {
        mine[i] = true;
        for (int k = 0; k < i; ++k) mine[k] = mine[k] || before[i][k];
      };
      for (int i = 0; i < me; ++i) {
        if (played[i].instruction->stream == instruction.stream) after(i);
      }
      const auto event = [&](const EventRef& ref) -> int& {
        return recorded[ref.event.index()][InstanceOf(c.events[ref.event.index()], 0, slot.microbatch)];
      };
      for (const EventRef& ref : instruction.waits) {
        if (event(ref) >= 0) after(event(ref));
      }
      for (const EventRef& ref : instruction.records) event(ref) = me;
      played.push_back(std::move(p));
      before.push_back(std::move(mine));
    }
  }
  const auto lasts = [&](const Instance& i) { return c.buffers[i.buffer].role == BufferRole::kParameter; };
  // The value that a read finds: the last write to the instance, unless another buffer was written over it.
  const auto found = [&](const Instance& read, size_t until) -> std::string {
    bool valid = lasts(read);
    for (size_t j = 0; j < until; ++j) {
      for (const Instance& write : played[j].writes) {
        if (write == read) {
          valid = true;
        } else if (Overlap(write, read)) {
          valid = false;
        }
      }
    }
    return valid ? "" : "not there";
  };
  for (size_t j = 0; j < played.size(); ++j) {
    for (const Instance& read : played[j].reads) {
      if (!found(read, j).empty()) return absl::StrCat(j, " reads what is not there");
      for (const Instance& write : played[j].writes) {
        if (!(write == read) && Overlap(write, read)) return absl::StrCat(j, " overwrites its input");
      }
    }
    for (size_t i = 0; i < j; ++i) {
      bool conflict = false;
      for (const Instance& write : played[i].writes) {
        for (const Instance& read : played[j].reads) conflict |= Overlap(write, read);
        for (const Instance& other : played[j].writes) conflict |= Overlap(write, other);
      }
      for (const Instance& read : played[i].reads) {
        for (const Instance& write : played[j].writes) conflict |= Overlap(read, write);
      }
      if (conflict && !before[j][i]) return absl::StrCat(j, " races with ", i);
    }
  }
  for (size_t b = 0; b < c.buffers.size(); ++b) {
    for (int64_t mb = 0; mb < c.buffers[b].microbatches; ++mb) {
      const Instance last = instance({BufferId(b), 0}, mb);
      if (lasts(last) && !found(last, played.size()).empty()) return "a parameter is lost";
    }
  }
  return "";
}

TEST(VerifyRandomTest, AgreesWithTheDefinition) {
  int right = 0, races = 0, lost = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    const Program program = RandomProgram(seed);
    const std::string judgement = Judge(program);
    const absl::Status status = VerifyProgram(program);
    ASSERT_EQ(status.ok(), judgement.empty()) << "seed " << seed << ": " << judgement << " / " << status << "\n"
                                              << ToText(program);
    right += judgement.empty() ? 1 : 0;
    races += absl::StrContains(judgement, "races") ? 1 : 0;
    lost += absl::StrContains(judgement, "lost") || absl::StrContains(judgement, "there") ? 1 : 0;
  }
  // The programs are of every sort.
  EXPECT_GT(right, 100);
  EXPECT_GT(races, 1000);
  EXPECT_GT(lost, 1000);
}

}  // namespace
}  // namespace meshwright
