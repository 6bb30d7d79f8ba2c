#include "planner/passes/scatter_in_backward.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/bucket_gradients.h"
#include "planner/passes/overlap.h"
#include "planner/passes/plan_memory.h"
#include "planner/passes/shard_optimizer.h"
#include "planner/passes/shard_parameters.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// One parameter with two contributions to its gradient, two micro-batches, momentum: what split_stages makes.
constexpr char kNetwork[] = R"(program step mesh dp=2 microbatches 2
class all
  buffer p float32 (512) {-} parameter
  buffer dp float32 (512) {-} partial sum dp gradient
  buffer dp@whole float32 (512) {-} gradient alias dp
  buffer p@m float32 (512) {-} optimizer_state
  buffer y float32 (1024) {-} temporary
  block "model backward" backward
    compute Fill " -> d0" writes y
    compute Fill " -> d0" accumulate scale=1 writes dp @first
    compute Fill " -> d0" accumulate scale=2 writes dp @second
  block "model zero" backward
    compute Fill " -> d0" writes dp
  block "model reduce" backward
    compute all_reduce sum (dp) gradient reads dp writes dp@whole @dp
  block "model update" backward
    compute Momentum reads p dp@whole p@m writes p p@m @p
  slot "model zero" mb 0 layer 0
  slot "model backward" mb 0 layer 0
  slot "model backward" mb 1 layer 0
  slot "model reduce" mb 0 layer 0
  slot "model update" mb 0 layer 0
)";

absl::StatusOr<Program> Sharded(const std::string& text, bool gradients) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  Strategy strategy;
  strategy.gradient_accumulation_shard = gradients;
  program = ShardOptimizer(std::move(program), strategy);
  if (gradients) program = ShardGradients(std::move(program));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

TEST(ScatterInBackwardTest, EachMicrobatchScattersWhatItMade) {
  ASSERT_OK_AND_ASSIGN(Program program, Sharded(kNetwork, true));
  EXPECT_THAT(Lines(program, 0, "model backward"),
              ElementsAre("compute Fill \" -> d0\" writes y", "compute Fill \" -> d0\" writes dp @first",
                          "compute Fill \" -> d0\" scale=2 writes dp@more @second",
                          "compute Add reads dp dp@more writes dp @second",
                          "compute reduce_scatter sum (dp) dim 0 gradient reads dp writes dp@whole@piece @dp",
                          "compute ReduceSum \"d0 -> d0\" accumulate reads dp@whole@piece writes dp@whole @dp"));
  EXPECT_THAT(Lines(program, 0, "model zero"), ElementsAre("compute Fill \" -> d0\" writes dp@whole"));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("model gather mb 0 layer 0", "model zero mb 0 layer 0", "model backward mb 0 layer 0",
                          "model backward mb 1 layer 0", "model update mb 0 layer 0"));
  program = BucketGradients(std::move(program), Strategy());
  program = OverlapCommunication(std::move(program));
  EXPECT_OK(VerifyProgram(program));
}

// Of 512 elements of 4 bytes, a parameter has 2048 bytes, its rows on each of two ranks 1024. The parameter's rows lie
// inside of it. Accumulated whole, so do the gradient's: 2048, the momentum's 1024, the gradient's 2048 and y's 4096.
// As rows, the gradient has 1024, and its two contributions take the place of y, which is not read any more.
TEST(ScatterInBackwardTest, WholeGradientsHaveNoMemoryOfTheirOwn) {
  for (const bool gradients : {false, true}) {
    ASSERT_OK_AND_ASSIGN(Program program, Sharded(kNetwork, gradients));
    program = PlanMemory(OverlapCommunication(std::move(program)));
    EXPECT_OK(VerifyProgram(program));
    EXPECT_EQ(program.classes[0].arena, Bytes(2048 + 1024 + (gradients ? 1024 : 2048) + 4096));
  }
}

// Nothing is accumulated over one micro-batch.
TEST(ScatterInBackwardTest, OneMicrobatchStaysAsItIs) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kNetwork));
  program.num_microbatches = 1;
  program.classes[0].slots.erase(program.classes[0].slots.begin() + 2);
  Strategy strategy;
  strategy.gradient_accumulation_shard = true;
  program = ShardOptimizer(std::move(program), strategy);
  const std::string before = ToText(program);
  EXPECT_EQ(ToText(ShardGradients(std::move(program))), before);
}

}  // namespace
}  // namespace meshwright
