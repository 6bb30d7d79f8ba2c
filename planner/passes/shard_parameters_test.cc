#include "planner/passes/shard_parameters.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/overlap.h"
#include "planner/passes/plan_memory.h"
#include "planner/passes/shard_optimizer.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// Three layers y = relu(p), two micro-batches, GPipe order, momentum: what split_stages makes.
constexpr char kThreeLayers[] = R"(program step mesh dp=2 microbatches 2
class all
  buffer p float32 (16) {-} parameter layers 3
  buffer dp float32 (16) {-} partial sum dp gradient layers 3
  buffer dp@whole float32 (16) {-} gradient layers 3 alias dp
  buffer p@m float32 (16) {-} optimizer_state layers 3
  buffer y float32 (16) {-} temporary
  block "layers forward" forward
    compute ReLU reads p writes y
  block "layers backward" backward
    compute ReLU reads p writes y
    compute Fill " -> d0" accumulate scale=1 writes dp @first
    compute Fill " -> d0" accumulate scale=2 writes dp @second
  block "layers zero" backward
    compute Fill " -> d0" writes dp
  block "layers reduce" backward
    compute all_reduce sum (dp) gradient reads dp writes dp@whole @dp
  block "layers update" backward
    compute Momentum reads p dp@whole p@m writes p p@m @p
  slot "layers zero" mb 0 layer 0 x3 up
  slot "layers forward" mb 0 layer 0 x3 up
  slot "layers backward" mb 0 layer 2 x3 down
  slot "layers forward" mb 1 layer 0 x3 up
  slot "layers backward" mb 1 layer 2
  slot "layers reduce" mb 0 layer 2
  slot "layers backward" mb 1 layer 1
  slot "layers reduce" mb 0 layer 1
  slot "layers backward" mb 1 layer 0
  slot "layers reduce" mb 0 layer 0
  slot "layers update" mb 0 layer 0 x3 up
)";

absl::StatusOr<Program> Sharded(const std::string& text, const std::set<std::string>& layer_ends = {}) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  Strategy strategy;
  strategy.shard_parameters = true;
  program = ShardParameters(ShardOptimizer(std::move(program), strategy), layer_ends);
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

const Buffer* Find(const Program& program, const std::string& name) {
  for (const Buffer& buffer : program.classes[0].buffers) {
    if (buffer.name == name) return &buffer;
  }
  return nullptr;
}

// Layers 0, 1, 2 lie at places 0, 1, 0. Each gather runs one pass ahead; layer 2 follows layer 1, so its gather stands
// before it; backward, layers 2 and 1 are still there, and forward again layers 0 and 1.
TEST(ShardParametersTest, GathersOneLayerAheadAndScattersEachMicrobatch) {
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(kThreeLayers));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("layers zero mb 0 layer 0 x3 up",                                    //
                          "layers gather one mb 0 layer 0", "layers gather one mb 0 layer 1",  //
                          "layers forward mb 0 layer 0", "layers gather one mb 0 layer 2",     //
                          "layers forward mb 0 layer 1", "layers forward mb 0 layer 2",        //
                          "layers backward mb 0 layer 2", "layers scatter mb 0 layer 2",       //
                          "layers gather one mb 0 layer 0", "layers backward mb 0 layer 1",    //
                          "layers add mb 0 layer 2", "layers scatter mb 0 layer 1",            //
                          "layers backward mb 0 layer 0", "layers add mb 0 layer 1",           //
                          "layers scatter mb 0 layer 0",                                       //
                          "layers forward mb 1 layer 0", "layers add mb 0 layer 0",            //
                          "layers gather one mb 0 layer 2", "layers forward mb 1 layer 1",     //
                          "layers forward mb 1 layer 2",                                       //
                          "layers backward mb 1 layer 2", "layers scatter mb 1 layer 2",       //
                          "layers gather one mb 0 layer 0", "layers backward mb 1 layer 1",    //
                          "layers add mb 1 layer 2", "layers scatter mb 1 layer 1",            //
                          "layers backward mb 1 layer 0", "layers add mb 1 layer 1",           //
                          "layers scatter mb 1 layer 0", "layers add mb 1 layer 0",            //
                          "layers update mb 0 layer 0 x3 up"));
  EXPECT_THAT(Lines(program, 0, "layers scatter"),
              ElementsAre("compute reduce_scatter sum (dp) dim 0 gradient reads dp writes dp@whole@piece @dp"));
  // The first contribution overwrites, the second is added to it.
  EXPECT_THAT(Lines(program, 0, "layers backward"),
              ElementsAre("compute ReLU reads p writes y", "compute Fill \" -> d0\" writes dp @first",
                          "compute Fill \" -> d0\" accumulate scale=2 writes dp @second"));
}

// What is frozen is split and gathered beside what is trained, and has neither gradient nor update: of its 16 elements
// in three layers a rank has 8 of each, and two layers whole.
TEST(ShardParametersTest, GathersFrozenParameters) {
  const std::string text = absl::StrReplaceAll(
      kThreeLayers,
      {{"  buffer dp float32", "  buffer q float32 (16) {-} parameter layers 3 frozen\n  buffer dp float32"},
       {"compute ReLU reads p writes y", "compute Add reads p q writes y"}});
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(text));
  EXPECT_THAT(Lines(program, 0, "layers gather one"),
              ElementsAre("compute all_gather (dp) dim 0 parameter reads q@shard writes q @q",
                          "compute all_gather (dp) dim 0 parameter reads p@master writes p @p"));
  EXPECT_THAT(Lines(program, 0, "layers scatter"),
              ElementsAre("compute reduce_scatter sum (dp) dim 0 gradient reads dp writes dp@whole@piece @dp"));
  EXPECT_EQ(Find(program, "q")->layers, 2);
  EXPECT_EQ(Find(program, "q@shard")->layers, 3);
  EXPECT_EQ(Find(program, "q@shard")->role, BufferRole::kParameter);
}

// Two runs of three layers: the first is gathered in front of the pass forward, the last in front of that backward, the
// others within, each when the one before it begins. Gradients of the first layer, to which the pass backward comes
// last, are scattered behind it, those of the others within.
TEST(ShardParametersTest, LayersOfARunGoOneByOne) {
  std::string text = R"(program step mesh dp=2 microbatches 2
class all
)";
  std::string forward, backward, clear, reduce, update;
  for (const char* const p : {"p", "q", "r"}) {
    const auto add = [p](std::string& to, absl::string_view line) { absl::StrAppend(&to, absl::Substitute(line, p)); };
    add(text,
        "  buffer $0 float32 (16) {-} parameter layers 2\n  buffer d$0 float32 (16) {-} partial sum dp gradient "
        "layers 2\n  buffer d$0@whole float32 (16) {-} gradient layers 2 alias d$0\n  buffer $0@m float32 (16) {-} "
        "optimizer_state layers 2\n  buffer x$0 float32 (16) {-} temporary\n  buffer y$0 float32 (16) {-} "
        "temporary\n");
    add(forward, "    compute ReLU reads $0 writes x$0\n");
    std::string one;
    add(one, "    compute ReLU reads $0 writes y$0\n    compute Fill \" -> d0\" accumulate scale=1 writes d$0\n");
    backward = one + backward;
    add(clear, "    compute Fill \" -> d0\" writes d$0\n");
    add(reduce, "    compute all_reduce sum (dp) gradient reads d$0 writes d$0@whole @d$0\n");
    add(update, "    compute Momentum reads $0 d$0@whole $0@m writes $0 $0@m @$0\n");
  }
  absl::StrAppend(&text, "  block \"layers forward\" forward\n", forward, "  block \"layers backward\" backward\n",
                  backward, "  block \"layers zero\" backward\n", clear, "  block \"layers reduce\" backward\n", reduce,
                  "  block \"layers update\" backward\n", update, R"(  slot "layers zero" mb 0 layer 0 x2 up
  slot "layers forward" mb 0 layer 0 x2 up
  slot "layers backward" mb 0 layer 1 x2 down
  slot "layers forward" mb 1 layer 0 x2 up
  slot "layers backward" mb 1 layer 1
  slot "layers reduce" mb 0 layer 1
  slot "layers backward" mb 1 layer 0
  slot "layers reduce" mb 0 layer 0
  slot "layers update" mb 0 layer 0 x2 up
)");
  ASSERT_OK_AND_ASSIGN(Program program, Sharded(text, {"xp", "xq"}));
  const auto gather = [](const char* p, const char* to) {
    return absl::Substitute("compute all_gather (dp) dim 0 parameter reads $0@master writes $0$1 @$0", p, to);
  };
  const auto scatter = [](const char* p) {
    return absl::Substitute("compute reduce_scatter sum (dp) dim 0 gradient reads d$0 writes d$0@whole@piece @d$0", p);
  };
  const auto add = [](const char* p) {
    return absl::Substitute(
        "compute ReduceSum \"d0 -> d0\" accumulate reads d$0@whole@piece writes d$0@whole @d$0@whole", p);
  };
  EXPECT_THAT(Lines(program, 0, "layers gather one"), ElementsAre(gather("p", "")));
  EXPECT_THAT(Lines(program, 0, "layers gather last"), ElementsAre(gather("r", "")));
  EXPECT_THAT(Lines(program, 0, "layers forward"),
              ElementsAre(gather("q", "@forward"), "compute ReLU reads p writes xp", gather("r", "@forward"),
                          "compute ReLU reads q@forward writes xq", "compute ReLU reads r@forward writes xr"));
  EXPECT_THAT(
      Lines(program, 0, "layers backward"),
      ElementsAre(gather("q", "@backward"), "compute ReLU reads r writes yr", "compute Fill \" -> d0\" writes dr",
                  scatter("r"), gather("p", "@backward"), "compute ReLU reads q@backward writes yq",
                  "compute Fill \" -> d0\" writes dq", add("r"), scatter("q"),
                  "compute ReLU reads p@backward writes yp", "compute Fill \" -> d0\" writes dp", add("q")));
  EXPECT_THAT(Lines(program, 0, "layers scatter"), ElementsAre(scatter("p")));
  // Of a layer in the middle nothing whole lasts.
  EXPECT_EQ(Find(program, "p")->layers, 2);
  EXPECT_EQ(Find(program, "q")->role, BufferRole::kTemporary);
  EXPECT_EQ(Find(program, "dq")->role, BufferRole::kTemporary);
  EXPECT_EQ(Find(program, "dp")->role, BufferRole::kGradient);
  // Beside the kernels: who uses a layer waits for it, and who scatters for what was scattered before.
  program = PlanMemory(OverlapCommunication(std::move(program)));
  EXPECT_OK(VerifyProgram(program));
  EXPECT_THAT(Lines(program, 0, "layers forward").size(), 5u + 2 * 2u);
  EXPECT_THAT(Lines(program, 0, "layers backward").size(), 12u + 2 * 4u);
}

// S11.10: the same for gradients alone; parameters are gathered once, before their first use.
TEST(ShardGradientsTest, ScattersEachMicrobatchAndKeepsParametersWhole) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kThreeLayers));
  Strategy strategy;
  strategy.gradient_accumulation_shard = true;
  program = ShardGradients(ShardOptimizer(std::move(program), strategy));
  ASSERT_OK(VerifyProgram(program));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("layers gather mb 0 layer 0", "layers gather mb 0 layer 1", "layers gather mb 0 layer 2",
                          "layers zero mb 0 layer 0 x3 up",                               //
                          "layers forward mb 0 layer 0", "layers forward mb 0 layer 1",   //
                          "layers forward mb 0 layer 2",                                  //
                          "layers backward mb 0 layer 2", "layers scatter mb 0 layer 2",  //
                          "layers backward mb 0 layer 1", "layers add mb 0 layer 2",      //
                          "layers scatter mb 0 layer 1",                                  //
                          "layers backward mb 0 layer 0", "layers add mb 0 layer 1",      //
                          "layers scatter mb 0 layer 0",                                  //
                          "layers forward mb 1 layer 0", "layers add mb 0 layer 0",       //
                          "layers forward mb 1 layer 1", "layers forward mb 1 layer 2",   //
                          "layers backward mb 1 layer 2", "layers scatter mb 1 layer 2",  //
                          "layers backward mb 1 layer 1", "layers add mb 1 layer 2",      //
                          "layers scatter mb 1 layer 1",                                  //
                          "layers backward mb 1 layer 0", "layers add mb 1 layer 1",      //
                          "layers scatter mb 1 layer 0", "layers add mb 1 layer 0",       //
                          "layers update mb 0 layer 0 x3 up"));
  for (const char* name : {"p", "p@master", "dp@whole", "p@m"}) EXPECT_EQ(Find(program, name)->layers, 3) << name;
  for (const char* name : {"dp", "dp@whole@piece"}) EXPECT_EQ(Find(program, name)->layers, 2) << name;
}

// 16 elements of 4 bytes, halved by two ranks: rows of parameter, gradient and momentum for three layers, whole
// parameters, whole gradients and pieces for two: 3 (32 + 32 + 32) + 2 (64 + 64 + 32), each rounded up to 256 bytes.
TEST(ShardParametersTest, OnlyTwoLayersAreWhole) {
  ASSERT_OK_AND_ASSIGN(Program program, Sharded(kThreeLayers));
  for (const char* name : {"p", "dp", "dp@whole@piece"}) EXPECT_EQ(Find(program, name)->layers, 2) << name;
  for (const char* name : {"p@master", "dp@whole", "p@m"}) EXPECT_EQ(Find(program, name)->layers, 3) << name;
  program = PlanMemory(OverlapCommunication(std::move(program)));
  EXPECT_OK(VerifyProgram(program));
  EXPECT_EQ(program.classes[0].arena, Bytes(256 * (3 * 3 + 2 * 3 + 1)));  // and y
}

// What communication still reads is not overwritten: backward of layer 0 waits for the scatter of layer 2.
TEST(ShardParametersTest, OverlapsSafely) {
  ASSERT_OK_AND_ASSIGN(Program program, Sharded(kThreeLayers));
  program = OverlapCommunication(std::move(program));
  ASSERT_OK(VerifyProgram(program));
  const std::vector<std::string> slots = SlotLines(program.classes[0]);
  const auto at = [&](const std::string& line) { return std::find(slots.begin(), slots.end(), line) - slots.begin(); };
  EXPECT_LT(at("await layers scatter mb 0 layer 2"), at("layers backward mb 0 layer 0"));
  EXPECT_LT(at("layers backward mb 0 layer 1"), at("await layers scatter mb 0 layer 2"));
}

// Two copies: rows are added up over both once a step, behind the last micro-batch's part of them.
TEST(ShardParametersTest, CopiesAreAddedUpBehindTheLastPart) {
  std::string text = kThreeLayers;
  for (const auto& [from, to] : {std::pair("mesh dp=2", "mesh copy=2 dp=2"),
                                 {"partial sum dp ", "partial sum copy.dp "},
                                 {"all_reduce sum (dp)", "all_reduce sum (copy, dp)"}}) {
    text.replace(text.find(from), std::string(from).size(), to);
  }
  Strategy strategy;
  strategy.optimizer_group = OptimizerGroup::kCopy;
  strategy.shard_parameters = true;
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(text));
  program = ShardParameters(ShardOptimizer(std::move(program), strategy));
  ASSERT_OK(VerifyProgram(program));
  EXPECT_THAT(Lines(program, 0, "layers reduce"),
              ElementsAre("compute all_reduce sum (copy) gradient reads dp@1 writes dp@whole @dp"));
  const std::vector<std::string> slots = SlotLines(program.classes[0]);
  const auto from = std::find(slots.begin(), slots.end(), "layers backward mb 1 layer 2");
  EXPECT_THAT(std::vector<std::string>(from, slots.end()),
              ElementsAre("layers backward mb 1 layer 2", "layers scatter mb 1 layer 2",     //
                          "layers gather one mb 0 layer 0", "layers backward mb 1 layer 1",  //
                          "layers add mb 1 layer 2", "layers reduce mb 0 layer 2",           //
                          "layers scatter mb 1 layer 1", "layers backward mb 1 layer 0",     //
                          "layers add mb 1 layer 1", "layers reduce mb 0 layer 1",           //
                          "layers scatter mb 1 layer 0",                                     //
                          "layers add mb 1 layer 0", "layers reduce mb 0 layer 0",           //
                          "layers update mb 0 layer 0 x3 up"));
  ASSERT_OK(VerifyProgram(OverlapCommunication(program)));
}

}  // namespace
}  // namespace meshwright
