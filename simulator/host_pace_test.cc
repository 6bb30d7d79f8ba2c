// HostPace (simulator/price.h): what the CPU that issues kernels, and a framework that has more of them, add to the
// kernels of a block. host_pace_collectives_test.cc has what they do to collectives.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/cost_model.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/kernel_work.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "simulator/price.h"
#include "simulator/price_testing.h"

namespace meshwright {
namespace {

constexpr char kHostBound[] = R"(program host_bound mesh tp=8
class "stage 0"
  buffer x float32 (1024) {-} activation
  buffer sum float32 (1024) {-} partial sum tp activation
  buffer g float32 (1024) {-} gradient
  block b forward
    compute ReLU reads x writes x
    compute all_reduce sum (tp) activation reads sum writes x
    compute ReLU accumulate reads x writes g
    compute sync
  slot b mb 0 layer 0
)";

// Kernels at 1 ms, of which the accumulating one is two, and a collective at 2 ms: 5 ms to issue, against microseconds
// to run. What the device waits is spread over the kernels, 1 : 2.
TEST(HostPaceTest, ABlockLastsAsLongAsIssuingIt) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kHostBound));
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Prices free, PriceProgram(program, costs));
  ASSERT_OK_AND_ASSIGN(const Prices paced, PriceProgram(program, costs, {Millis(1), Millis(2)}));
  const auto& before = free.classes[0][0];
  const auto& after = paced.classes[0][0];
  Nanos total;
  for (const InstructionPrice& price : after) total += price.time;
  EXPECT_NEAR(static_cast<double>(total.raw()), 5e6, 2);
  EXPECT_EQ(after[1].time, before[1].time);
  EXPECT_NEAR(static_cast<double>((after[2].time - before[2].time).raw()),
              2.0 * static_cast<double>((after[0].time - before[0].time).raw()), 2);
  EXPECT_EQ(after[3].time, Nanos());
  // A CPU that is fast enough is not seen.
  ASSERT_OK_AND_ASSIGN(const Prices fast, PriceProgram(program, costs, {Nanos(1), Nanos(1)}));
  EXPECT_EQ(fast.classes, free.classes);
}

// A norm of eight operators: the first at 10 ms, seven more at 1 ms. What else goes along rows, as a loss does, is
// none.
TEST(HostPaceTest, WhatIsNotOneKernelIsIssuedStepByStep) {
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(R"(program norm mesh dp=1
class all
  buffer x float32 (8, 64) {- | -} activation
  buffer w float32 (64) {-} parameter
  block b forward
    compute RMSNorm "m h!, h! -> m h!" reads x w writes x
  slot b mb 0 layer 0
)"));
  const auto time = [&](Nanos step) {
    HostPace host;
    host.kernel = Millis(10);
    host.step = step;
    const absl::StatusOr<Prices> prices = PriceProgram(program, costs, host);
    EXPECT_OK(prices.status());
    return prices.ok() ? prices->classes[0][0][0].time : Nanos();
  };
  EXPECT_EQ(time(Millis(1)), Millis(10));
  Compute& norm = std::get<Compute>(program.classes[0].blocks[0].instructions[0].work);
  OpAttrs attrs = *norm.attrs;
  attrs.fused = false;
  norm.attrs = std::move(attrs);
  EXPECT_EQ(time(Millis(1)), Millis(17));
  EXPECT_EQ(time(Nanos()), Millis(10));
  norm.op = OpKind::kSoftmax;
  EXPECT_EQ(time(Millis(1)), Millis(10));
}

// An update takes what the CPU takes to issue it, where each parameter has kernels of its own.
TEST(HostPaceTest, UpdatesOfEachParameterAreIssued) {
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program update mesh dp=1
class all
  buffer w float32 (1024) {-} parameter
  buffer g float32 (1024) {-} gradient
  block b forward
    compute SGD reads w g writes w
  slot b mb 0 layer 0
)"));
  HostPace host;
  host.update = Millis(3);
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, costs, host));
  EXPECT_EQ(prices.classes[0][0][0].time, Millis(3));
}

// A kernel of 5 ms, tokens that leave, a short kernel; 1 ms to issue each. The CPU runs ahead of the first, and is not
// seen; where it waits for counts behind the second, the third and the next layer's first start when they are issued:
// two milliseconds that the device waits, less what the third runs.
TEST(HostPaceTest, WhereTheCpuWaitsForCountsItRunsAheadFromThere) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer x float32 (1073741824) {-} activation\n"
                                    "  buffer y float32 (1073741824) {-} activation\n"
                                    "  buffer t bfloat16 (4, 2, 6) {- | - | -} activation\n"
                                    "  buffer l bfloat16 (4, 2, 4) {- | - | -} activation\n"
                                    "  buffer e bfloat16 (4, 10, 6) {- | - | -} activation\n"
                                    "  buffer f bfloat16 (4, 10, 6) {- | - | -} activation\n"
                                    "  block b forward\n    compute ReLU reads x writes y\n"
                                    "    compute Dispatch reads t l writes e\n    compute ReLU reads e writes f\n"
                                    "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  const auto time_of = [&](const HostPace& host) {
    const absl::StatusOr<Prices> prices = PriceProgram(program, costs, host);
    EXPECT_OK(prices);
    Nanos sum;
    for (const InstructionPrice& price : prices->classes[0][0]) sum += price.time;
    return ToSeconds(sum);
  };
  ASSERT_OK_AND_ASSIGN(const Prices free, PriceProgram(program, costs));
  HostPace host;
  host.kernel = Millis(1);
  const double busy = time_of({}), last = ToSeconds(free.classes[0][0][2].time);
  EXPECT_GT(busy, 3e-3);
  EXPECT_EQ(time_of(host), busy);
  host.experts.waits = true;
  EXPECT_NEAR(time_of(host), busy + 2e-3 - last, 1e-8);
  // Seven operators for one of ours: nine to issue.
  host.experts = {};
  host.experts.dispatch.forward = 7;
  EXPECT_NEAR(time_of(host), 9e-3, 1e-8);
}

// A product of 4 experts is issued expert by expert, 2 ms each beside 10, and its parameters' gradients again.
TEST(HostPaceTest, ProductsOfExperts) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer e bfloat16 (4, 64, 64) {- | - | -} activation\n"
                                    "  buffer w bfloat16 (4, 64, 64) {- | - | -} parameter\n"
                                    "  buffer f bfloat16 (4, 64, 64) {- | - | -} activation\n"
                                    "  buffer g bfloat16 (4, 64, 64) {- | - | -} gradient\n"
                                    "  block b forward\n"
                                    "    compute MatMul \"e c h, e h f -> e c f\" reads e w writes f\n"
                                    "    compute MatMul \"e c h, e c f -> e h f\" reads e f writes g\n"
                                    "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.kernel = Millis(10);
  host.experts.launches = 1;
  host.experts.product = Millis(2);
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, costs, host));
  const auto& list = prices.classes[0][0];
  EXPECT_NEAR(static_cast<double>((list[0].time + list[1].time).raw()), 18e6 + 26e6, 2);
}

// The gradient of a parameter of 4 experts, of which each expert's product makes all: 4 x 256 bytes an element.
TEST(HostPaceTest, WholeGradientsOfExperts) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer e bfloat16 (4, 64, 1024) {- | - | -} activation\n"
                                    "  buffer f bfloat16 (4, 64, 1024) {- | - | -} activation\n"
                                    "  buffer g bfloat16 (4, 1024, 1024) {- | - | -} gradient\n"
                                    "  block b backward\n"
                                    "    compute MatMul \"e c h, e c f -> e h f\" reads e f writes g\n"
                                    "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  HostPace host;
  ASSERT_OK_AND_ASSIGN(const Prices grouped, PriceProgram(program, costs, host));
  host.experts.whole_gradients = 256;
  ASSERT_OK_AND_ASSIGN(const Prices looped, PriceProgram(program, costs, host));
  // 2^22 elements, a KiB each, as a kernel that reads them.
  KernelWork pass;
  pass.kernel = KernelClass::kMemory;
  pass.read = Bytes(int64_t{1} << 32);
  EXPECT_NEAR(static_cast<double>((looped.classes[0][0][0].time - grouped.classes[0][0][0].time).raw()),
              static_cast<double>(costs.Estimate(pass).time.raw()), 1e4);
}

// What is done to experts' results moves bytes of each, and is issued expert by expert: ten milliseconds each for the
// product of 4 experts and for Combine, and for 2 steps of each expert one.
TEST(HostPaceTest, ResultsOfExpertsInSteps) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer e bfloat16 (4, 16384, 64) {- | - | -} activation\n"
                                    "  buffer w bfloat16 (4, 64, 64) {- | - | -} parameter\n"
                                    "  buffer f bfloat16 (4, 16384, 64) {- | - | -} activation\n"
                                    "  buffer l bfloat16 (4, 16384, 4) {- | - | -} activation\n"
                                    "  buffer t bfloat16 (4, 16384, 64) {- | - | -} activation\n"
                                    "  block b forward\n"
                                    "    compute MatMul \"e c h, e h f -> e c f\" reads e w writes f\n"
                                    "    compute Combine reads f l writes t\n  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  HostPace host;
  ASSERT_OK_AND_ASSIGN(const Prices free, PriceProgram(program, costs, host));
  host.experts.results = {1024, 0};
  ASSERT_OK_AND_ASSIGN(const Prices steps, PriceProgram(program, costs, host));
  // 2^22 elements, a KiB each, as a kernel that reads them.
  KernelWork pass;
  pass.kernel = KernelClass::kMemory;
  pass.read = Bytes(int64_t{1} << 32);
  EXPECT_NEAR(static_cast<double>((steps.classes[0][0][1].time - free.classes[0][0][1].time).raw()),
              static_cast<double>(costs.Estimate(pass).time.raw()), 1e4);
  host = {};
  host.kernel = Millis(10);
  host.experts.result_steps = {2, 0};
  host.experts.step = Millis(1);
  ASSERT_OK_AND_ASSIGN(const Prices issued, PriceProgram(program, costs, host));
  const auto& list = issued.classes[0][0];
  EXPECT_NEAR(static_cast<double>((list[0].time + list[1].time).raw()), 28e6, 2);
  // Products that take the CPU twice as long.
  host.products = 2;
  ASSERT_OK_AND_ASSIGN(const Prices twice, PriceProgram(program, costs, host));
  const auto& slow = twice.classes[0][0];
  EXPECT_NEAR(static_cast<double>((slow[0].time + slow[1].time).raw()), 38e6, 2);
}

// A product's 4096 x 4096 gradient in bfloat16 is added to a float32 one by a kernel that reads 6 bytes and writes 4 of
// each element; the product itself adds it where the framework can, and with one micro-batch there is nothing to add
// to.
TEST(HostPaceTest, AutogradAddsGradientsByAKernelOfItsOwn) {
  const auto time_of = [](int microbatches, bool adds_gradients) {
    const std::string text =
        absl::StrCat("program p mesh tp=1 microbatches ", microbatches,
                     "\nclass \"stage 0\"\n"
                     "  buffer x bfloat16 (1024, 4096) {- | -} activation\n"
                     "  buffer g float32 (4096, 4096) {- | -} gradient\n"
                     "  block b backward\n    compute MatMul \"s m, s n -> m n\" accumulate reads x x writes g\n"
                     "  slot b mb 0 layer 0\n");
    return ToSeconds(TimesOf(text, CostModel(A100Cluster(1)), {Nanos(), Nanos(), adds_gradients})[0]);
  };
  KernelWork add;
  add.kernel = KernelClass::kMemory;
  add.read = Bytes(6 * 4096 * 4096);
  add.written = Bytes(4 * 4096 * 4096);
  EXPECT_NEAR(time_of(2, true) - time_of(2, false), ToSeconds(CostModel(A100Cluster(1)).Kernel(add)), 1e-8);
  EXPECT_EQ(time_of(1, true), time_of(1, false));
}

// 2^24 elements, 26 bytes of each, in kernels of their own: 0.8 of 2.039 TB/s, the start and the ramp.
TEST(HostPaceTest, OptimizersPassOverGradients) {
  const auto time_of = [](double bytes) {
    const std::string text =
        "program p mesh tp=1\nclass \"stage 0\"\n"
        "  buffer w float32 (16777216) {-} parameter\n"
        "  buffer g float32 (16777216) {-} gradient\n"
        "  block b backward\n    compute SGD reads w g writes w\n  slot b mb 0 layer 0\n";
    HostPace host;
    host.optimizer_bytes = bytes;
    return ToSeconds(TimesOf(text, CostModel(A100Cluster(1)), host)[0]);
  };
  KernelWork passes;
  passes.kernel = KernelClass::kMemory;
  passes.read = Bytes(26 << 24);
  EXPECT_NEAR(time_of(26) - time_of(0), ToSeconds(CostModel(A100Cluster(1)).Kernel(passes)), 1e-8);
}

// 2^24 elements, 3 bytes of each besides, by a kernel of its own.
TEST(HostPaceTest, ActivationsStepByStep) {
  const auto time_of = [](EagerBytes bytes, const std::string& op = "GeLU") {
    const std::string text = absl::StrCat(
        "program p mesh tp=1\nclass \"stage 0\"\n"
        "  buffer x bfloat16 (16777216) {-} activation\n"
        "  buffer y bfloat16 (16777216) {-} activation\n"
        "  block b forward\n    compute ",
        op, " reads x writes y\n  slot b mb 0 layer 0\n");
    HostPace host;
    host.activations = bytes;
    return ToSeconds(TimesOf(text, CostModel(A100Cluster(1)), host)[0]);
  };
  KernelWork steps;
  steps.kernel = KernelClass::kMemory;
  steps.read = Bytes(3 << 24);
  EXPECT_NEAR(time_of({3, 9}) - time_of({}), ToSeconds(CostModel(A100Cluster(1)).Kernel(steps)), 1e-8);
  EXPECT_NEAR(time_of({3, 9}, "ReLU") - time_of({}, "ReLU"), ToSeconds(CostModel(A100Cluster(1)).Kernel(steps)), 1e-8);
}

// A kernel of 1 ms, and 3 or 5 ms for positions or hooks, against microseconds to run.
TEST(HostPaceTest, WhatTheCpuTakesBesideAttention) {
  const auto time_of = [](const std::string& phase, const std::string& instruction) {
    HostPace host = {Millis(1), Millis(1)};
    host.layer_forward = Millis(3);
    host.layer_backward = Millis(5);
    const std::string shape = " {- | - | - | - | -} activation\n";
    return TimesOf(
        absl::StrCat("program p mesh tp=1\nclass \"stage 0\"\n  buffer x bfloat16 (64, 1, 8, 3, 64)", shape,
                     "  buffer dx bfloat16 (64, 1, 8, 3, 64)", shape, "  buffer y bfloat16 (64, 1, 8, 1, 64)", shape,
                     "  buffer dy bfloat16 (64, 1, 8, 1, 64)", shape,
                     "  buffer saved float32 (64, 1, 8, 1) {- | - | - | -} activation\n  block b ", phase,
                     "\n    compute ", instruction, "\n  slot b mb 0 layer 0\n"),
        CostModel(A100Cluster(1)), host)[0];
  };
  EXPECT_EQ(time_of("forward", "Attention reads x writes y saved"), Millis(4));
  // Of blocks of keys that go round, the first.
  EXPECT_EQ(time_of("forward", "Attention context=2 shift=0 reads x writes y saved"), Millis(4));
  EXPECT_EQ(time_of("forward", "Attention context=2 shift=1 reads x writes y saved"), Millis(1));
  EXPECT_EQ(time_of("backward", "AttentionGrad reads dy x y saved writes dx"), Millis(6));
}

// The kernels of 1 and 2 ms to issue, the collective of 2 ms: 5 ms besides what the device takes.
TEST(HostPaceTest, WhereLaunchesBlockIssuingAddsToTheTime) {
  const CostModel costs(A100Cluster(1));
  HostPace host = {Millis(1), Millis(2)};
  host.launch_blocking = true;
  Nanos before, after;
  for (const Nanos time : TimesOf(kHostBound, costs, {})) before += time;
  for (const Nanos time : TimesOf(kHostBound, costs, host)) after += time;
  EXPECT_NEAR(static_cast<double>((after - before).raw()), 5e6, 2);
}

// Around the kernels of `text` `host` moves 10, 20 and 30 bytes for each of 4096 x 4096 elements.
void ExpectStepsMove(const std::string& text, const HostPace& host) {
  const CostModel costs(A100Cluster(1));
  const std::vector<Nanos> before = TimesOf(text, costs, {}), after = TimesOf(text, costs, host);
  for (size_t i = 0; i < 3; ++i) {
    KernelWork work;
    work.kernel = KernelClass::kMemory;
    work.read = Bytes(int64_t{10} * static_cast<int64_t>(i + 1) * 4096 * 4096);
    EXPECT_EQ(after[i] - before[i], costs.Kernel(work)) << i;
  }
}

// A norm and a gate of 4096 x 4096 elements, and a product with a parameter as large: each moves its bytes once more.
TEST(HostPaceTest, BytesOfStepsAroundNormsGatesAndParameters) {
  const std::string text = R"(program steps mesh tp=1
class "stage 0"
  buffer x bfloat16 (4096, 4096) {- | -} activation
  buffer y bfloat16 (4096, 4096) {- | -} activation
  buffer wide bfloat16 (4096, 2, 4096) {- | - | -} activation
  buffer w bfloat16 (4096, 4096) {- | -} parameter
  buffer gamma bfloat16 (4096) {-} parameter
  block b forward
    compute LayerNorm "r h!, h!, h! -> r h!" reads x gamma gamma writes y
    compute SwiGLU "r t! f -> r f" reads wide writes y
    compute MatMul "r h, h f -> r f" reads x w writes y
  slot b mb 0 layer 0
)";
  HostPace host;
  host.norms = {10, 0};
  host.gates = {20, 0};
  host.parameters = {20, 0};
  host.unpacked = {10, 99};  // made of a packed one first
  ExpectStepsMove(text, host);
}

// Backward, bytes are of the result whose gradient comes in: of a gate 4096 x 4096 as well, and not of the two parts
// that its gradient makes.
TEST(HostPaceTest, BytesOfStepsBackwardAreOfTheSameElements) {
  const std::string text = R"(program steps mesh tp=1
class "stage 0"
  buffer x bfloat16 (4096, 4096) {- | -} activation
  buffer dy bfloat16 (4096, 4096) {- | -} activation
  buffer wide bfloat16 (4096, 2, 4096) {- | - | -} activation
  buffer dwide bfloat16 (4096, 2, 4096) {- | - | -} activation
  buffer gamma bfloat16 (4096) {-} parameter
  buffer dgamma float32 (4096) {-} gradient
  block b backward
    compute LayerNormGrad "r h!, r h!, h! -> r h!, h!, h!" reads dy x gamma writes dy dgamma dgamma
    compute SwiGLUGrad "r f, r t! f -> r t! f" reads dy wide writes dwide
    compute SiLUGrad "r f, r f -> r f" reads dy x writes dy
  slot b mb 0 layer 0
)";
  HostPace host;
  host.norms = {0, 10};
  host.gates = {0, 20};
  host.activations = {0, 30};
  ExpectStepsMove(text, host);
}

// A table of 2^24 elements, of which 8 rows get a gradient: filled with 2 bytes each, then, with several micro-batches,
// read, 2 and 4, and added, 4.
TEST(HostPaceTest, WholeTablesAreFilledAndAdded) {
  constexpr absl::string_view kTable = R"(program table mesh tp=1 microbatches 2
class "stage 0"
  buffer dy bfloat16 (8, 256) {- | -} activation
  buffer ids int32 (8) {-} input
  buffer dtable float32 (65536, 256) {- | -} gradient
  block b backward
    compute GatherGrad "s h, s -> v h" accumulate reads dy ids writes dtable
  slot b mb 0 layer 0
  slot b mb 1 layer 0
)";
  const CostModel costs(A100Cluster(1));
  const auto moved = [&](int64_t read, int64_t written) {
    KernelWork work;
    work.kernel = KernelClass::kMemory;
    work.read = Bytes(read << 24);
    work.written = Bytes(written << 24);
    return costs.Kernel(work);
  };
  HostPace host;
  host.whole_tables = true;
  const auto more = [&](const std::string& text) {
    return TimesOf(text, costs, host)[0] - TimesOf(text, costs, {})[0];
  };
  EXPECT_EQ(more(std::string(kTable)), moved(0, 2) + moved(6, 4));
  EXPECT_EQ(more(absl::StrReplaceAll(kTable, {{" microbatches 2", ""}, {"  slot b mb 1 layer 0\n", ""}})), moved(0, 2));
}

}  // namespace
}  // namespace meshwright
