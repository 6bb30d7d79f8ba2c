#include "planner/passes/plan_memory.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

absl::StatusOr<Program> Planned(const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  program = PlanMemory(std::move(program));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

const Buffer& Find(const Program& program, const std::string& name) {
  for (const Buffer& buffer : program.classes[0].buffers) {
    if (buffer.name == name) return buffer;
  }
  ADD_FAILURE() << "no buffer " << name;
  return program.classes[0].buffers[0];
}
int64_t At(const Program& program, const std::string& name) { return Find(program, name).offset.raw(); }

// Sizes on one rank, rounded up to 256 bytes, all instances: p 256, x 2 x 512, dp 3 x 256, together 2048. The block
// needs y and z at the same time: 2 x 256. Temporaries come last.
TEST(PlanMemoryTest, WhatLivesAcrossBlocksLiesInARow) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(R"(program row mesh dp=2
class all
  buffer p float32 (16) {-} parameter
  buffer y float32 (64) {-} temporary
  buffer x float32 (130) {dp} activation microbatches 2
  buffer dp float32 (64) {-} gradient layers 3
  buffer z float32 (1) {-} temporary
  block f forward
    compute Fill "-> a, b" writes y z
    compute Fill "-> a" writes x
  slot f mb 0 layer 0
)"));
  EXPECT_EQ(At(program, "p"), 0);
  EXPECT_EQ(At(program, "x"), 256);  // 65 elements of 4 bytes are 260: two units
  EXPECT_EQ(Find(program, "x").bytes, Bytes(512));
  EXPECT_EQ(At(program, "dp"), 256 + 2 * 512);
  EXPECT_EQ(At(program, "y"), 2048);
  EXPECT_EQ(At(program, "z"), 2304);
  EXPECT_EQ(program.classes[0].arena, Bytes(2560));
}

// x is kept for 5 micro-batches instead of 2, o and its twin, of other owners, for 1 instead of 3: as if planned so,
// with what stands behind them, what shares x's memory, and what no block uses, which has no place.
TEST(PlanMemoryTest, ResizedIsAsPlanned) {
  const auto planned = [](int64_t kept, int64_t owned) {
    return Planned(absl::StrCat(R"(program resized mesh dp=2
class all
  buffer x float32 (64) {-} activation microbatches )",
                                kept, R"(
  buffer o float32 (64) {-} activation microbatches )",
                                owned, R"( owner 0
  buffer twin float32 (128) {-} activation microbatches )",
                                owned, R"( owner 1
  buffer y float32 (64) {-} temporary
  buffer unused float32 (64) {-} temporary
  buffer over_x float32 (64) {-} activation microbatches )",
                                kept, R"( alias x
  buffer p float32 (16) {-} parameter
  buffer z float32 (64) {-} temporary
  block f forward
    compute Fill "-> a, b" writes y z
    compute Fill "-> a" writes x
    compute GeLU "m -> m" reads x writes over_x
    compute Fill "-> a" writes o
    compute Fill "-> a" writes twin
  slot f mb 0 layer 0
)"));
  };
  ASSERT_OK_AND_ASSIGN(Program program, planned(2, 3));
  // p and two of x, of either owner at most three of 512, and two temporaries.
  EXPECT_EQ(program.classes[0].arena, Bytes(256 + 2 * 256 + 3 * 512 + 2 * 256));
  ResizeMemory(program.classes[0], {5, 1, 1, 1, 1, 5});
  ASSERT_OK_AND_ASSIGN(const Program own, planned(5, 1));
  EXPECT_EQ(ToText(program), ToText(own));
  EXPECT_EQ(program.classes[0].arena, own.classes[0].arena);
}

// The all-reduce of a may start when a is made, and is waited for when b is read: what is made and read meanwhile, c
// and d, shares memory with neither.
TEST(PlanMemoryTest, WhatRunsBesideTheKernelsKeepsItsOperands) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(R"(program beside mesh dp=2
class all
  buffer a float32 (64) {-} partial sum dp temporary
  buffer b float32 (64) {-} temporary
  buffer c float32 (64) {-} temporary
  buffer d float32 (64) {-} temporary
  buffer e float32 (64) {-} temporary
  event ready
  event done
  block f forward
    compute Fill "-> n" writes a records ready
    compute Fill "-> n" writes c
    comm all_reduce sum (dp) activation reads a writes b waits ready records done
    compute ReLU reads c writes d
    compute sync waits done
    compute Add reads b d writes e
  slot f mb 0 layer 0
)"));
  for (const char* const other : {"c", "d"}) {
    EXPECT_NE(At(program, "a"), At(program, other)) << other;
    EXPECT_NE(At(program, "b"), At(program, other)) << other;
  }
}

// In a chain only neighbours live at the same time: a and c share, b and d.
TEST(PlanMemoryTest, TemporariesShareTheirRegion) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(R"(program chain mesh dp=1
class all
  buffer a float32 (64) {-} temporary
  buffer b float32 (64) {-} temporary
  buffer c float32 (64) {-} temporary
  buffer d float32 (64) {-} temporary
  block f forward
    compute Fill "-> n" writes a
    compute ReLU reads a writes b
    compute ReLU reads b writes c
    compute ReLU reads c writes d
  slot f mb 0 layer 0
)"));
  EXPECT_EQ(At(program, "a"), At(program, "c"));
  EXPECT_EQ(At(program, "b"), At(program, "d"));
  EXPECT_NE(At(program, "a"), At(program, "b"));
  EXPECT_EQ(program.classes[0].arena, Bytes(512));
}

// The largest first, each into the lowest gap: big (4 units) at 0, long (2 units, meets all) at 4, then small ones in
// the room that big has left.
TEST(PlanMemoryTest, FirstFit) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(R"(program fit mesh dp=1
class all
  buffer one float32 (64) {-} temporary
  buffer other float32 (64) {-} temporary
  buffer big float32 (256) {-} temporary
  buffer long float32 (128) {-} temporary
  buffer out float32 (64) {-} activation
  block f forward
    compute Fill "-> n, m" writes big long
    compute Fill "-> n" writes one
    compute Fill "-> n" writes other
    compute Add "n, n, m -> n" reads one other long writes out
  slot f mb 0 layer 0
)"));
  EXPECT_EQ(At(program, "big"), 256);  // behind `out`
  EXPECT_EQ(At(program, "long"), 256 + 1024);
  EXPECT_EQ(At(program, "one"), 256);
  EXPECT_EQ(At(program, "other"), 512);
  EXPECT_EQ(program.classes[0].arena, Bytes(256 + 1024 + 512));
}

// Kernels of two blocks never run at once: the larger block counts.
TEST(PlanMemoryTest, BlocksShareTheRegion) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(R"(program blocks mesh dp=1
class all
  buffer a float32 (64) {-} temporary
  buffer b float32 (192) {-} temporary
  block f forward
    compute Fill "-> n" writes a
  block g forward
    compute Fill "-> n" writes b
  slot f mb 0 layer 0
  slot g mb 0 layer 0
)"));
  EXPECT_EQ(At(program, "a"), 0);
  EXPECT_EQ(At(program, "b"), 0);
  EXPECT_EQ(program.classes[0].arena, Bytes(768));
}

// A gradient that is reduced in place is counted once, all its instances at the same places.
TEST(PlanMemoryTest, Aliases) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned(R"(program alias mesh dp=2
class all
  buffer g float32 (64) {-} partial sum dp gradient layers 3
  buffer g@whole float32 (64) {-} gradient layers 3 alias g
  buffer h float32 (64) {-} gradient
  block f backward
    compute Fill "-> n, m" writes g h
    compute all_reduce sum (dp) gradient reads g writes g@whole
  slot f mb 0 layer 0 x3 up
)"));
  EXPECT_EQ(At(program, "g@whole"), At(program, "g"));
  EXPECT_EQ(Find(program, "g@whole").bytes, Bytes(256));
  EXPECT_EQ(At(program, "h"), 3 * 256);
  EXPECT_EQ(program.classes[0].arena, Bytes(4 * 256));
}

// A class without buffers, and one whose only temporary is never used.
TEST(PlanMemoryTest, Nothing) {
  ASSERT_OK_AND_ASSIGN(const Program program, Planned("program nothing mesh dp=1\nclass all\n"));
  EXPECT_EQ(program.classes[0].arena, Bytes(0));
  ASSERT_OK_AND_ASSIGN(const Program unused,
                       Planned("program unused mesh dp=1\nclass all\n  buffer a float32 (64) {-} temporary\n"));
  EXPECT_LE(Find(unused, "a").offset + Find(unused, "a").bytes, std::max(unused.classes[0].arena, Bytes(256)));
}

// Random blocks: no two that live at the same time overlap, nothing lies outside, and the arena is not above the sum of
// all that lives at the busiest moment by more than first fit may waste.
TEST(PlanMemoryTest, RandomBlocks) {
  double worst = 1;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int n = 3 + static_cast<int>(random() % 20);
    std::string text = "program random mesh dp=1\nclass all\n", body = "  block f forward\n";
    for (int i = 0; i < n; ++i) {
      absl::StrAppend(&text, "  buffer t", i, " float32 (", 1 + random() % 1000, ") {-} temporary\n");
      // Operands of any size: the rule has a label for each.
      absl::StrAppend(&body, i == 0 ? "    compute Fill \"-> n\"" : "    compute Scale", i == 0 ? "" : " \"n -> m\"");
      if (i > 0) absl::StrAppend(&body, " reads t", random() % i);
      absl::StrAppend(&body, " writes t", i, "\n");
    }
    ASSERT_OK_AND_ASSIGN(const Program program, Planned(text + body + "  slot f mb 0 layer 0\n"));
    const RankClass& c = program.classes[0];
    std::map<size_t, std::pair<size_t, size_t>> lives;
    for (size_t i = 0; i < c.blocks[0].instructions.size(); ++i) {
      for (const auto* operands : {&c.blocks[0].instructions[i].reads, &c.blocks[0].instructions[i].writes}) {
        for (const Operand& operand : *operands) {
          lives.try_emplace(operand.buffer.index(), i, i).first->second.second = i;
        }
      }
    }
    Bytes busiest;
    for (size_t i = 0; i < c.blocks[0].instructions.size(); ++i) {
      Bytes alive;
      for (const auto& [b, life] : lives) {
        if (life.first <= i && i <= life.second) alive += c.buffers[b].bytes;
      }
      busiest = std::max(busiest, alive);
    }
    for (const auto& [a, life] : lives) {
      EXPECT_LE(c.buffers[a].offset + c.buffers[a].bytes, c.arena);
      for (const auto& [b, other] : lives) {
        if (a >= b || life.second < other.first || other.second < life.first) continue;
        const bool apart = c.buffers[a].offset + c.buffers[a].bytes <= c.buffers[b].offset ||
                           c.buffers[b].offset + c.buffers[b].bytes <= c.buffers[a].offset;
        EXPECT_TRUE(apart) << c.buffers[a].name << " and " << c.buffers[b].name;
      }
    }
    EXPECT_GE(c.arena, busiest);
    worst = std::max(worst, static_cast<double>(c.arena.raw()) / static_cast<double>(busiest.raw()));
  }
  EXPECT_LT(worst, 1.5);
}

}  // namespace
}  // namespace meshwright
