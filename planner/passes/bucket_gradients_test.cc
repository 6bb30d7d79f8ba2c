#include "planner/passes/bucket_gradients.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// The last backward pass and the reduction of gradients of these sizes, in bytes, each of a parameter p0, p1, ...
std::string Reduction(const std::vector<int64_t>& sizes) {
  std::string text = "program reduction mesh dp=2\nclass all\n", fills, reduces;
  for (size_t i = 0; i < sizes.size(); ++i) {
    absl::StrAppend(&text, "  buffer p", i, " float32 (", sizes[i] / 4, ") {-} parameter\n");
    absl::StrAppend(&text, "  buffer dp", i, " float32 (", sizes[i] / 4, ") {-} partial sum dp gradient\n");
    absl::StrAppend(&text, "  buffer dp", i, "@whole float32 (", sizes[i] / 4, ") {-} gradient alias dp", i, "\n");
    absl::StrAppend(&fills, "    compute Fill \" -> d0\" scale=1 writes dp", i, "\n");
    absl::StrAppend(&reduces, "    compute all_reduce sum (dp) gradient reads dp", i, " writes dp", i, "@whole @dp", i,
                    "\n");
  }
  return absl::StrCat(text, "  block \"model backward\" backward\n", fills, "  block \"model reduce\" backward\n",
                      reduces, "  slot \"model backward\" mb 0 layer 0\n  slot \"model reduce\" mb 0 layer 0\n");
}

absl::StatusOr<Program> Bucketed(const std::string& text, const Strategy& strategy) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  program = BucketGradients(std::move(program), strategy);
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

// "{0,1} {2}": which gradients each call of the block reduces, and of those made of it.
std::string Buckets(const Program& program, const std::string& block) {
  std::vector<std::string> calls;
  const RankClass& c = program.classes[0];
  for (const Block& candidate : c.blocks) {
    if (!absl::StartsWith(candidate.name, block)) continue;
    for (const Instruction& instruction : candidate.instructions) {
      if (!std::holds_alternative<Collective>(instruction.work)) continue;
      calls.push_back(absl::StrCat("{",
                                   absl::StrJoin(instruction.reads, ",",
                                                 [&](std::string* out, const Operand& read) {
                                                   absl::StrAppend(out, c.buffers[read.buffer.index()].name.substr(2));
                                                 }),
                                   "}"));
    }
  }
  return absl::StrJoin(calls, " ");
}
std::string Buckets(const std::vector<int64_t>& sizes, const Strategy& strategy) {
  const absl::StatusOr<Program> program = Bucketed(Reduction(sizes), strategy);
  return program.ok() ? Buckets(*program, "model reduce") : program.status().ToString();
}

Strategy UpTo(Bytes bucket) {
  Strategy strategy;
  strategy.bucket = bucket;
  return strategy;
}
constexpr int64_t kMB = 1 << 20;

// S10.6.
TEST(BucketGradientsTest, TheSizeRule) {
  const std::vector<int64_t> mixed = {20 * kMB, 30 * kMB, 20 * kMB, 70 * kMB, 1 * kMB};
  EXPECT_EQ(Buckets(mixed, UpTo(MiB(64))), "{0,1} {2} {3} {4}");
  EXPECT_EQ(Buckets({32 * kMB, 32 * kMB, 32 * kMB, 32 * kMB}, UpTo(MiB(32))), "{0} {1} {2} {3}");
  const std::vector<int64_t> seed_a = {1605632, 2048, 1048576, 2048, 20480, 40};
  EXPECT_EQ(Buckets(seed_a, UpTo(MiB(64))), "{0,1,2,3,4,5}");
  EXPECT_EQ(Buckets(seed_a, UpTo(MiB(2))), "{0,1} {2,3,4,5}");
  EXPECT_EQ(Buckets(seed_a, UpTo(MiB(1))), "{0} {1} {2} {3,4,5}");
  EXPECT_EQ(Buckets(seed_a, UpTo(Bytes(0))), "{0} {1} {2} {3} {4} {5}");
}

TEST(BucketGradientsTest, OneCallForSeveral) {
  ASSERT_OK_AND_ASSIGN(const Program program, Bucketed(Reduction({64, 128, 32}), UpTo(MiB(64))));
  EXPECT_THAT(Lines(program, 0, "model reduce"),
              ElementsAre("compute all_reduce sum (dp) gradient reads dp0 dp1 dp2 writes dp0@whole dp1@whole dp2@whole "
                          "@\"dp0 +2\""));
}

// S10.4: ends are inclusive, from 0; the rest is a last segment; ends behind the last gradient do nothing.
TEST(BucketGradientsTest, TheIndexRule) {
  const auto by_index = [](std::vector<int64_t> ends) {
    Strategy strategy;
    strategy.bucket_ends = std::move(ends);
    return strategy;
  };
  const std::vector<int64_t> six(6, 64);
  EXPECT_EQ(Buckets(six, by_index({0})), "{0} {1,2,3,4,5}");
  EXPECT_EQ(Buckets(six, by_index({5})), "{0,1,2,3,4,5}");
  EXPECT_EQ(Buckets(six, by_index({1, 3})), "{0,1} {2,3} {4,5}");
  EXPECT_EQ(Buckets(six, by_index({1, 9})), "{0,1} {2,3,4,5}");
  // E's example: 21, 15 and 14 of 50 operators.
  const std::string segments = Buckets(std::vector<int64_t>(50, 64), by_index({20, 35}));
  EXPECT_THAT(segments, testing::StartsWith("{0,1,2,"));
  EXPECT_THAT(segments, testing::HasSubstr(",19,20} {21,22,"));
  EXPECT_THAT(segments, testing::HasSubstr(",34,35} {36,37,"));
  EXPECT_THAT(segments, testing::EndsWith(",48,49}"));
  // The index goes before the size.
  Strategy strategy = by_index({2});
  strategy.bucket = Bytes(64);
  EXPECT_EQ(Buckets(six, strategy), "{0,1,2} {3,4,5}");
}

// S10.3, S10.7: a parameter's own id goes before both: 0 is alone, equal ids are together whatever their size.
TEST(BucketGradientsTest, FusionIds) {
  Strategy strategy = UpTo(Bytes(128));
  strategy.fusion_ids = {{"p0", 2}, {"p2", 0}, {"p3", 2}, {"p4", 1}};
  EXPECT_EQ(Buckets({64, 64, 64, 1 << 20, 64, 64}, strategy), "{0,3} {1,4} {2} {5}");
  strategy.bucket_ends = {0};
  EXPECT_EQ(Buckets({64, 64, 64, 64, 64, 64}, strategy), "{0,3} {2} {1} {4,5}");
}

// S10.1: only what has one kind, group, type and reduction.
TEST(BucketGradientsTest, UnlikeCallsStayApart) {
  ASSERT_OK_AND_ASSIGN(const Program program, Bucketed(R"(program unlike mesh a=2 b=2
class all
  buffer dp0 float32 (8) {-} partial sum a gradient
  buffer dp1 float32 (8) {-} partial sum b gradient
  buffer dp2 bfloat16 (8) {-} partial sum a gradient
  buffer dp3 float32 (8) {-} partial sum a gradient
  buffer dp4 float32 (8) {-} partial sum a gradient
  buffer w0 float32 (8) {-} gradient alias dp0
  buffer w1 float32 (8) {-} gradient alias dp1
  buffer w2 bfloat16 (8) {-} gradient alias dp2
  buffer w3 float32 (8) {a} gradient
  buffer w4 float32 (8) {-} gradient alias dp4
  block "model backward" backward
    compute Fill "-> a, b, c, d, e" writes dp0 dp1 dp2 dp3 dp4
  block "model reduce" backward
    compute all_reduce sum (a) gradient reads dp0 writes w0
    compute all_reduce sum (b) gradient reads dp1 writes w1
    compute all_reduce sum (a) gradient reads dp2 writes w2
    compute reduce_scatter sum (a) dim 0 gradient reads dp3 writes w3
    compute all_reduce sum (a) gradient reads dp4 writes w4
  slot "model backward" mb 0 layer 0
  slot "model reduce" mb 0 layer 0
)",
                                                       UpTo(MiB(64))));
  EXPECT_EQ(Buckets(program, "model reduce"), "{0,4} {1} {2} {3}");
}

// Kinds may have limits of their own (S10.5).
TEST(BucketGradientsTest, LimitsOfScattersAndGathers) {
  constexpr char kGathers[] = R"(program gathers mesh dp=2
class all
  buffer dp0 float32 (64) {dp} master
  buffer dp1 float32 (64) {dp} master
  buffer dp2 float32 (64) {dp} master
  buffer p0 float32 (64) {-} parameter
  buffer p1 float32 (64) {-} parameter
  buffer p2 float32 (64) {-} parameter
  block gather forward
    compute all_gather (dp) dim 0 parameter reads dp0 writes p0
    compute all_gather (dp) dim 0 parameter reads dp1 writes p1
    compute all_gather (dp) dim 0 parameter reads dp2 writes p2
  slot gather mb 0 layer 0
)";
  Strategy strategy = UpTo(MiB(64));
  // What counts is the gathered result: 256 bytes each.
  strategy.gather_bucket = Bytes(512);
  ASSERT_OK_AND_ASSIGN(Program program, Bucketed(kGathers, strategy));
  EXPECT_EQ(Buckets(program, "gather"), "{0,1} {2}");
  strategy.gather_bucket.reset();
  ASSERT_OK_AND_ASSIGN(program, Bucketed(kGathers, strategy));
  EXPECT_EQ(Buckets(program, "gather"), "{0,1,2}");
}

// Four layers of two gradients of 64 bytes.
constexpr char kLayers[] = R"(program layers mesh dp=2
class all
  buffer dp0 float32 (16) {-} partial sum dp gradient layers 4
  buffer dp1 float32 (16) {-} partial sum dp gradient layers 4
  buffer dp0@whole float32 (16) {-} gradient layers 4 alias dp0
  buffer dp1@whole float32 (16) {-} gradient layers 4 alias dp1
  block "layers backward" backward
    compute Fill "-> a, b" writes dp0 dp1
  block "layers reduce" backward
    compute all_reduce sum (dp) gradient reads dp0 writes dp0@whole @dp0
    compute all_reduce sum (dp) gradient reads dp1 writes dp1@whole @dp1
  slot "layers backward" mb 0 layer 3
  slot "layers reduce" mb 0 layer 3
  slot "layers backward" mb 0 layer 2
  slot "layers reduce" mb 0 layer 2
  slot "layers backward" mb 0 layer 1
  slot "layers reduce" mb 0 layer 1
  slot "layers backward" mb 0 layer 0
  slot "layers reduce" mb 0 layer 0
)";

// 128 bytes a layer: three layers fit into 384. They are reduced when the lowest of them is through; one layer is left.
TEST(BucketGradientsTest, LayersThatAreSmallerThanABucket) {
  ASSERT_OK_AND_ASSIGN(const Program program, Bucketed(kLayers, UpTo(Bytes(400))));
  EXPECT_THAT(
      SlotLines(program.classes[0]),
      ElementsAre("layers backward mb 0 layer 3", "layers backward mb 0 layer 2", "layers backward mb 0 layer 1",
                  "layers reduce x3 mb 0 layer 1", "layers backward mb 0 layer 0", "layers reduce mb 0 layer 0"));
  EXPECT_THAT(Lines(program, 0, "layers reduce x3"),
              ElementsAre("compute all_reduce sum (dp) gradient reads dp0 dp1 dp0+1 dp1+1 dp0+2 dp1+2 writes dp0@whole "
                          "dp1@whole dp0@whole+1 dp1@whole+1 dp0@whole+2 dp1@whole+2 @\"dp0 +5\""));
}

// A bucket of just one layer: no layer waits for another; a smaller one: each gradient by itself.
TEST(BucketGradientsTest, LayersThatFillABucket) {
  ASSERT_OK_AND_ASSIGN(Program program, Bucketed(kLayers, UpTo(Bytes(128))));
  EXPECT_EQ(program.classes[0].slots.size(), 8u);
  EXPECT_EQ(Buckets(program, "layers reduce"), "{0,1}");
  ASSERT_OK_AND_ASSIGN(program, Bucketed(kLayers, UpTo(Bytes(127))));
  EXPECT_EQ(Buckets(program, "layers reduce"), "{0} {1}");
}

// A bucket's range has itself, and no bucket that makes another program; and it is as wide as can be told: of layers of
// 128 bytes, two gradients each, buckets below 128, below 256, below 384, below 512 and all others make the same.
TEST(BucketGradientsTest, RangesOfBucketsThatMakeTheSame) {
  for (const std::string& text : {std::string(kLayers), Reduction({64, 128, 32, 256, 64})}) {
    std::vector<std::pair<BucketRange, std::string>> made;
    ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(text));
    std::set<std::string> programs;
    for (int64_t bytes = 0; bytes < 700; ++bytes) {
      BucketRange& same = made.emplace_back().first;
      made.back().second = ToText(BucketGradients(before, UpTo(Bytes(bytes)), &same));
      programs.insert(made.back().second);
      EXPECT_TRUE(same.Has(Bytes(bytes))) << bytes;
    }
    if (text == kLayers) {
      EXPECT_EQ(programs.size(), 5u);
    }
    for (size_t a = 0; a < made.size(); ++a) {
      for (size_t b = 0; b < made.size(); ++b) {
        if (made[a].first.Has(Bytes(static_cast<int64_t>(b)))) {
          ASSERT_EQ(made[a].second, made[b].second) << a << ", " << b;
        } else if (text == kLayers) {
          ASSERT_NE(made[a].second, made[b].second) << a << ", " << b;
        }
      }
    }
  }
}

// Eight gradients in parameter order: p0 and p1 of layer 0, of layer 1, ... Those from 3 on, of layers 1 to 3, are
// ready behind layer 1; the others, behind layer 0, are in two calls.
TEST(BucketGradientsTest, TheIndexRuleCountsLayerByLayer) {
  Strategy strategy;
  strategy.bucket_ends = {0, 2};
  std::string text = kLayers;
  text.insert(text.find("  buffer dp0 "),
              "  buffer p0 float32 (16) {-} parameter layers 4\n"
              "  buffer p1 float32 (16) {-} parameter layers 4\n");
  ASSERT_OK_AND_ASSIGN(const Program program, Bucketed(text, strategy));
  const RankClass& c = program.classes[0];
  EXPECT_THAT(SlotLines(c), ElementsAre("layers backward mb 0 layer 3", "layers backward mb 0 layer 2",
                                        "layers backward mb 0 layer 1", "layers reduce by index mb 0 layer 0",
                                        "layers backward mb 0 layer 0", "layers reduce by index mb 0 layer 0"));
  const auto lines = [&](size_t slot) {
    std::vector<std::string> lines;
    for (const Instruction& instruction : c.blocks[c.slots[slot].block.index()].instructions) {
      lines.push_back(ToText(instruction, c, program.mesh));
    }
    return lines;
  };
  EXPECT_THAT(lines(3), ElementsAre("compute all_reduce sum (dp) gradient reads dp1+1 dp0+2 dp1+2 dp0+3 dp1+3 writes "
                                    "dp1@whole+1 dp0@whole+2 dp1@whole+2 dp0@whole+3 dp1@whole+3 @\"dp1 +4\""));
  EXPECT_THAT(lines(5), ElementsAre("compute all_reduce sum (dp) gradient reads dp0 writes dp0@whole @dp0",
                                    "compute all_reduce sum (dp) gradient reads dp1 dp0+1 writes dp1@whole dp0@whole+1 "
                                    "@\"dp1 +1\""));
}

// S10.8: all-reduces of activations whose ops have one id, and do not depend on each other.
TEST(BucketGradientsTest, ActivationsWithAnId) {
  constexpr char kText[] = R"(program activations mesh a=2
class all
  buffer x float32 (8) {-} partial sum a temporary
  buffer y float32 (8) {-} partial sum a temporary
  buffer z float32 () {} partial sum a temporary
  buffer x@1 float32 (8) {-} temporary
  buffer y@1 float32 (8) {-} temporary
  buffer z@1 float32 () {} temporary
  buffer half float32 (8) {a} temporary
  buffer u float32 (8) {-} temporary
  block "model forward" forward
    compute Fill " -> d0" writes x
    compute all_reduce sum (a) activation reads x writes x@1 @model/x/own
    compute ReLU reads x@1 writes u @u
    compute Fill " -> d0" writes y @y
    compute all_reduce sum (a) activation reads y writes y@1 @model/y
    compute slice reads u writes half @z
    compute ReduceSum "d0 -> " reads half writes z @z
    compute all_reduce sum (a) activation reads z writes z@1 @model/z
  slot "model forward" mb 0 layer 0
)";
  const auto calls = [&](std::map<std::string, int64_t> ids) {
    Strategy strategy = UpTo(Bytes(0));
    strategy.fusion_ids = std::move(ids);
    const absl::StatusOr<Program> program = Bucketed(kText, strategy);
    if (!program.ok()) return program.status().ToString();
    std::vector<std::string> origins;
    for (const Instruction& instruction : program->classes[0].blocks[0].instructions) {
      if (std::holds_alternative<Collective>(instruction.work))
        origins.push_back(instruction.origin.substr(6));  // behind "model/"
    }
    return absl::StrJoin(origins, ", ");
  };
  EXPECT_EQ(calls({}), "x/own, y, z");
  EXPECT_EQ(calls({{"x", 1}, {"y", 1}}), "x/own +1, z");
  EXPECT_EQ(calls({{"x", 1}, {"y", 2}}), "x/own, y, z");
  // What does not use the result of a call with an id stands before it; z does.
  EXPECT_EQ(calls({{"x", 1}, {"y", 0}}), "y, x/own, z");
  EXPECT_EQ(calls({{"x", 1}, {"z", 1}}), "y, x/own, z");
}

// What uses the result of a call stays behind it, what does not comes before; a call on a result is no part of a bucket
// (S10.10).
TEST(BucketGradientsTest, WhatDependsOnACallStaysBehindIt) {
  ASSERT_OK_AND_ASSIGN(const Program program, Bucketed(R"(program chain mesh a=2 b=2
class all
  buffer dp0 float32 (8) {-} partial sum a.b gradient
  buffer dp1 float32 (8) {-} partial sum b gradient
  buffer dp2 float32 (8) {-} gradient
  buffer dp3 float32 (8) {-} partial sum b gradient
  buffer w1 float32 (8) {-} gradient
  buffer w3 float32 (8) {-} gradient
  block "model backward" backward
    compute Fill "-> a, b" writes dp0 dp3
  block "model reduce" backward
    compute all_reduce sum (a) gradient reads dp0 writes dp1 @first
    compute all_reduce sum (b) gradient reads dp1 writes w1 @second
    compute Scale scale=2 reads w1 writes w1 @after
    compute Fill "-> a" writes dp2 @before
    compute all_reduce sum (b) gradient reads dp3 writes w3 @third
  slot "model backward" mb 0 layer 0
  slot "model reduce" mb 0 layer 0
)",
                                                       UpTo(MiB(64))));
  std::vector<std::string> order;
  for (const Instruction& instruction : program.classes[0].blocks[1].instructions) order.push_back(instruction.origin);
  EXPECT_THAT(order, ElementsAre("before", "first", "third", "second", "after"));
}

// Calls that depend on others are fused with their like: rows are added up between groups of replicas in one call for
// the two that were scattered in one.
TEST(BucketGradientsTest, WhatWasScatteredIsAddedUpInOneCall) {
  constexpr char kChain[] = R"(program chain mesh copy=2 dp=2
class all
  buffer dp0 float32 (8) {-} partial sum copy.dp gradient
  buffer dp1 float32 (8) {-} partial sum copy.dp gradient
  buffer r0 float32 (8) {dp} partial sum copy gradient
  buffer r1 float32 (8) {dp} partial sum copy gradient
  buffer w0 float32 (8) {dp} gradient alias r0
  buffer w1 float32 (8) {dp} gradient alias r1
  block "model backward" backward
    compute Fill "-> a, b" writes dp0 dp1
  block "model reduce" backward
    compute reduce_scatter sum (dp) dim 0 gradient reads dp0 writes r0 @scatter0
    compute all_reduce sum (copy) gradient reads r0 writes w0 @add0
    compute reduce_scatter sum (dp) dim 0 gradient reads dp1 writes r1 @scatter1
    compute all_reduce sum (copy) gradient reads r1 writes w1 @add1
    compute Scale scale=2 reads w0 writes w0 @after
  slot "model backward" mb 0 layer 0
  slot "model reduce" mb 0 layer 0
)";
  const auto order = [&](Bytes bucket) {
    const absl::StatusOr<Program> program = Bucketed(kChain, UpTo(bucket));
    EXPECT_OK(program);
    std::vector<std::string> origins;
    for (const Instruction& i : program->classes[0].blocks[1].instructions) origins.push_back(i.origin);
    return origins;
  };
  EXPECT_THAT(order(MiB(64)), ElementsAre("scatter0 +1", "add0 +1", "after"));
  // 32 bytes each are scattered, of which 16 are added up: two calls, and one.
  EXPECT_THAT(order(Bytes(32)), ElementsAre("scatter0", "scatter1", "add0 +1", "after"));
  EXPECT_THAT(order(Bytes(31)), ElementsAre("scatter0", "scatter1", "add0", "add1", "after"));
}

}  // namespace
}  // namespace meshwright
