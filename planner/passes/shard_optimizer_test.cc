#include "planner/passes/shard_optimizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// The end of a step for one parameter `p` with momentum: what SplitStages makes, or the optimizer for what it may be.
std::string Step(const std::string& mesh, const std::string& shape, const std::string& split,
                 const std::string& partial) {
  return absl::StrCat(R"(program step mesh )", mesh, R"(
class all
  buffer p float32 )",
                      shape, " ", split, R"( parameter
  buffer dp float32 )",
                      shape, " ", split, " partial sum ", partial, R"( gradient
  buffer dp@whole float32 )",
                      shape, " ", split, R"( gradient alias dp
  buffer p@m float32 )",
                      shape, " ", split, R"( optimizer_state
  buffer y float32 )",
                      shape, " ", split, R"( temporary
  block "model forward" forward
    compute ReLU reads p writes y
  block "model backward" backward
    compute Fill " -> d0 d1" scale=1 writes dp
  block "model reduce" backward
    compute all_reduce sum ()",
                      absl::StrReplaceAll(partial, {{".", ", "}}), R"() gradient reads dp writes dp@whole @dp
  block "model update" backward
    compute Momentum reads p dp@whole p@m writes p p@m @p
  slot "model forward" mb 0 layer 0
  slot "model backward" mb 0 layer 0
  slot "model reduce" mb 0 layer 0
  slot "model update" mb 0 layer 0
)");
}

absl::StatusOr<Program> Sharded(const std::string& text, Bytes threshold) {
  Strategy strategy;
  strategy.parallel_optimizer = true;
  strategy.parallel_optimizer_threshold = threshold;
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  program = ShardOptimizer(std::move(program), strategy);
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

bool IsSharded(const Program& program) { return program.classes[0].blocks.size() == 5; }

// The rows of the parameter's master that `rank` keeps: "98:196".
std::string Rows(const Program& program, int64_t rank) {
  const Buffer& master = Find(program, "p@master");
  const int64_t begin = SliceBegin(master.shape, master.layout, program.mesh, rank)[0];
  return absl::StrCat(begin, ":", begin + LocalShape(master.shape, master.layout, program.mesh)[0]);
}

TEST(ShardOptimizerTest, ReduceScatterUpdateGather) {
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(Step("dp=4", "(8, 2)", "{- | -}", "dp"), Bytes(0)));
  EXPECT_THAT(Lines(program, 0, "model reduce"),
              ElementsAre("compute reduce_scatter sum (dp) dim 0 gradient reads dp writes dp@whole @dp"));
  EXPECT_THAT(Lines(program, 0, "model update"),
              ElementsAre("compute Momentum reads p@master dp@whole p@m writes p@master p@m @p"));
  EXPECT_THAT(Lines(program, 0, "model gather"),
              ElementsAre("compute all_gather (dp) dim 0 parameter reads p@master writes p @p"));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("model gather mb 0 layer 0", "model forward mb 0 layer 0", "model backward mb 0 layer 0",
                          "model reduce mb 0 layer 0", "model update mb 0 layer 0"));
  // Gradient, state and master are of the rank's rows; the scattered gradient no longer lies in the summands' place.
  for (const char* name : {"dp@whole", "p@m", "p@master"}) {
    EXPECT_EQ(ToText(Find(program, name).layout, program.mesh), "{dp | -}") << name;
  }
  EXPECT_FALSE(Find(program, "dp@whole").alias.valid());
  EXPECT_EQ(Find(program, "p@master").role, BufferRole::kMaster);
  EXPECT_EQ(ToText(Find(program, "p").layout, program.mesh), "{- | -}");
}

// 16 of 64 rows of 64 bytes are 1,024 bytes: they lie inside of the whole, rank 3's behind those of three others.
TEST(ShardOptimizerTest, RowsLieInsideOfTheWhole) {
  const std::string text = Step("dp=4", "(64, 16)", "{- | -}", "dp");
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(text, Bytes(0)));
  const RankClass& c = program.classes[0];
  for (const auto& [rows, whole] : {std::pair("dp@whole", "dp"), std::pair("p@master", "p")}) {
    ASSERT_TRUE(Find(program, rows).alias.valid()) << rows;
    EXPECT_EQ(c.buffers[Find(program, rows).alias.index()].name, whole);
    const BufferId id(static_cast<size_t>(&Find(program, rows) - c.buffers.data()));
    EXPECT_EQ(PlaceInRoot(c, id, program.mesh, 3), Bytes(3 * 1024));
  }
  EXPECT_FALSE(Find(program, "p@m").alias.valid());
  // What is split itself has room for two layers alone where it is whole; and ranks that start with values of their own
  // get rank 0's in whole parameters, but not in their rows of the state.
  const auto lie_inside = [&](bool Strategy::*otherwise) {
    Strategy strategy;
    strategy.*otherwise = true;
    absl::StatusOr<Program> before = ParseProgram(text);
    EXPECT_OK(before);
    const Program after = ShardOptimizer(*std::move(before), strategy);
    return std::pair(Find(after, "dp@whole").alias.valid(), Find(after, "p@master").alias.valid());
  };
  EXPECT_EQ(lie_inside(&Strategy::shard_parameters), std::pair(false, false));
  EXPECT_EQ(lie_inside(&Strategy::gradient_accumulation_shard), std::pair(false, true));
  EXPECT_EQ(lie_inside(&Strategy::parameter_broadcast), std::pair(true, false));
}

// Rows are shared inside of a copy, and added up between copies where they lie.
TEST(ShardOptimizerTest, CopiesAreAddedUpWhereTheirRowsLie) {
  Strategy strategy;
  strategy.optimizer_group = OptimizerGroup::kCopy;
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(Step("copy=2 dp=4", "(8, 2)", "{- | -}", "copy.dp")));
  program = ShardOptimizer(std::move(program), strategy);
  ASSERT_OK(VerifyProgram(program));
  EXPECT_THAT(Lines(program, 0, "model reduce"),
              ElementsAre("compute reduce_scatter sum (dp) dim 0 gradient reads dp writes dp@1 @dp",
                          "compute all_reduce sum (copy) gradient reads dp@1 writes dp@whole @dp"));
  EXPECT_THAT(Lines(program, 0, "model gather"),
              ElementsAre("compute all_gather (dp) dim 0 parameter reads p@master writes p @p"));
  const Buffer& summed = Find(program, "dp@whole");
  ASSERT_TRUE(summed.alias.valid());
  EXPECT_EQ(program.classes[0].buffers[summed.alias.index()].name, "dp@1");
  // A parameter that is split over all of a copy has nobody there to share with.
  ASSERT_OK_AND_ASSIGN(program, ParseProgram(Step("copy=2 dp=4", "(8, 2)", "{dp | -}", "copy")));
  EXPECT_FALSE(IsSharded(ShardOptimizer(std::move(program), strategy)));
}

// S11.7, 8 devices, fp32.
TEST(ShardOptimizerTest, RowsOfTheSemantics) {
  // (784,512) ((8,1),(1,1)): rank r keeps 98r : 98r + 98.
  ASSERT_OK_AND_ASSIGN(Program program,
                       Sharded(Step("x4=2 x2=2 x1=2", "(784, 512)", "{- | -}", "x4.x2.x1"), Bytes(65536)));
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(Rows(program, rank), absl::StrCat(98 * rank, ":", 98 * rank + 98));
  }
  // (512,10), 20 KB: under a threshold of 64 KB it stays whole, at one of 20 KB rank r keeps 64r : 64r + 64.
  const std::string small = Step("x4=2 x2=2 x1=2", "(512, 10)", "{- | -}", "x4.x2.x1");
  ASSERT_OK_AND_ASSIGN(program, Sharded(small, Bytes(65536)));
  EXPECT_FALSE(IsSharded(program));
  ASSERT_OK_AND_ASSIGN(program, Sharded(small, Bytes(20480)));
  EXPECT_EQ(Rows(program, 3), "192:256");
  ASSERT_OK_AND_ASSIGN(program, Sharded(small, Bytes(20481)));
  EXPECT_FALSE(IsSharded(program));
  // (10,512): 10 rows do not split into 8.
  ASSERT_OK_AND_ASSIGN(program, Sharded(Step("x4=2 x2=2 x1=2", "(10, 512)", "{- | -}", "x4.x2.x1"), Bytes(0)));
  EXPECT_FALSE(IsSharded(program));
  // (32,16) ((2,4),(4,1)): rows split over x2.x1, replicas over x4; 0: 0:4, 4: 4:8, 1: 8:12, 5: 12:16, ... 7: 28:32.
  ASSERT_OK_AND_ASSIGN(program, Sharded(Step("x4=2 x2=2 x1=2", "(32, 16)", "{x2.x1 | -}", "x4"), Bytes(0)));
  const std::vector<std::string> rows = {"0:4", "8:12", "16:20", "24:28", "4:8", "12:16", "20:24", "28:32"};
  for (int64_t rank = 0; rank < 8; ++rank) EXPECT_EQ(Rows(program, rank), rows[rank]) << rank;
}

// The size is that of the whole parameter, not of a rank's piece (S11.4): (512, 10) in 4 pieces is still 20 KB.
TEST(ShardOptimizerTest, TheThresholdIsOnTheWholeParameter) {
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(Step("a=2 b=4", "(512, 10)", "{b | -}", "a"), Bytes(20480)));
  EXPECT_TRUE(IsSharded(program));
}

// dim 0 of what a rank holds must divide: 12 rows in 4 pieces are 3, which 2 replicas do not share.
TEST(ShardOptimizerTest, TheLocalRowsMustDivide) {
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(Step("a=2 b=4", "(12, 4)", "{b | -}", "a"), Bytes(0)));
  EXPECT_FALSE(IsSharded(program));
}

constexpr char kNarrow[] = R"(program narrow mesh dp=2
class all
  buffer p bfloat16 (8, 2) {- | -} parameter layers 2
  buffer p@master float32 (8, 2) {- | -} master layers 2
  buffer dp float32 (8, 2) {- | -} partial sum dp gradient layers 2
  buffer dp@whole float32 (8, 2) {- | -} gradient layers 2 alias dp
  buffer y bfloat16 (8, 2) {- | -} temporary
  block "layers forward" forward
    compute ReLU reads p writes y
  block "layers backward" backward
    compute Fill " -> d0 d1" scale=1 writes dp
  block "layers reduce" backward
    compute all_reduce sum (dp) gradient reads dp writes dp@whole @dp
    compute Scale scale=0.5 reads dp@whole writes dp@whole @dp
  block "layers update" backward
    compute SGD "d0 d1, d0 d1 -> d0 d1, d0 d1" reads p@master dp@whole writes p@master p @p
  slot "layers forward" mb 0 layer 0 x2 up
  slot "layers backward" mb 0 layer 1 x2 down
  slot "layers reduce" mb 0 layer 1
  slot "layers reduce" mb 0 layer 0
  slot "layers update" mb 0 layer 0 x2 up
)";

// With a master in another type: the update writes the rank's rows in the type of the kernels, and these are gathered.
// One gather per layer, before anything else.
TEST(ShardOptimizerTest, MastersAndLayers) {
  ASSERT_OK_AND_ASSIGN(const Program program, Sharded(kNarrow, Bytes(0)));
  EXPECT_THAT(
      Lines(program, 0, "layers update"),
      ElementsAre("compute SGD \"d0 d1, d0 d1 -> d0 d1, d0 d1\" reads p@master dp@whole writes p@master p@shard "
                  "@p"));
  EXPECT_THAT(Lines(program, 0, "layers gather"),
              ElementsAre("compute all_gather (dp) dim 0 parameter reads p@shard writes p @p"));
  EXPECT_THAT(Lines(program, 0, "layers reduce"),
              ElementsAre("compute reduce_scatter sum (dp) dim 0 gradient reads dp writes dp@whole @dp",
                          "compute Scale scale=0.5 reads dp@whole writes dp@whole @dp"));
  const std::vector<std::string> slots = SlotLines(program.classes[0]);
  EXPECT_EQ(slots[0], "layers gather mb 0 layer 0");
  EXPECT_EQ(slots[1], "layers gather mb 0 layer 1");
  EXPECT_EQ(slots[2], "layers forward mb 0 layer 0 x2 up");
  EXPECT_EQ(Find(program, "p@shard").dtype, DType::kBFloat16);
  EXPECT_EQ(Find(program, "p@shard").role, BufferRole::kParameter);
  EXPECT_EQ(ToText(Find(program, "p@master").layout, program.mesh), "{dp | -}");
}

// Stages that share `q` get its values at the start of a step, before the first pass.
TEST(ShardOptimizerTest, SharedParametersAreGatheredFirst) {
  const std::string text =
      absl::StrReplaceAll(Step("dp=4", "(8, 2)", "{- | -}", "dp"),
                          {{"  block \"model forward\"",
                            R"(  buffer q float32 (8, 2) {- | -} parameter
  buffer dq float32 (8, 2) {- | -} partial sum dp gradient
  buffer dq@whole float32 (8, 2) {- | -} gradient alias dq
  block "shared parameters reduce" backward
    compute all_reduce sum (dp) gradient reads dq writes dq@whole @dq
  block "shared parameters update" backward
    compute SGD reads q dq@whole writes q @q
  block "model forward")"},
                           {"writes dp\n", "writes dp\n    compute Fill \" -> d0 d1\" scale=1 writes dq\n"},
                           {"  slot \"model reduce\"",
                            "  slot \"shared parameters reduce\" mb 0 layer 0\n"
                            "  slot \"shared parameters update\" mb 0 layer 0\n  slot \"model reduce\""}});
  // Its blocks stand behind those of segments, as SplitStages makes them.
  ASSERT_OK_AND_ASSIGN(Program program, Sharded(text, Bytes(0)));
  const std::vector<std::string> slots = SlotLines(program.classes[0]);
  EXPECT_EQ(slots[0], "shared parameters gather mb 0 layer 0");
  EXPECT_EQ(slots[1], "model gather mb 0 layer 0");
}

// A gradient that is not reduced has one owner already.
TEST(ShardOptimizerTest, WithoutReplicasNothingChanges) {
  std::string text = Step("dp=4", "(8, 2)", "{dp | -}", "dp");
  // The parameter is split over all ranks; its gradient is no sum.
  text.replace(text.find(" partial sum dp"), 15, "");
  const size_t reduce = text.find("    compute all_reduce");
  text.erase(reduce, text.find('\n', reduce) + 1 - reduce);
  text.replace(text.find("reads p dp@whole"), 16, "reads p dp");
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(text));
  EXPECT_EQ(ToText(ShardOptimizer(before, Strategy())), ToText(before));
}

}  // namespace
}  // namespace meshwright
