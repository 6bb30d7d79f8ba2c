#include "tools/trace_comparison.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Two ranks that run a kernel in two layers, then reduce.
Program TwoRanks() {
  auto program = ParseProgram(R"(program demo mesh dp=2
class "stage 0"
  buffer x float32 (8, 8) {dp | -} temporary
  buffer g float32 (8, 8) {- | -} partial sum dp gradient
  block layer forward
    compute ReLU reads x writes x @"layers/relu"
  block reduce backward
    comm all_reduce sum (dp) gradient reads g writes g @g
  slot layer mb 0 layer 0 x2 up
  slot reduce mb 0 layer 0
)");
  EXPECT_OK(program);
  return program.ok() ? *std::move(program) : Program();
}

Span At(int64_t rank, uint32_t slot, int32_t layer, Stream stream, int64_t begin, int64_t end) {
  return {rank, slot, layer, 0, stream, Nanos(begin), Nanos(end)};
}

Trace Simulated() {
  Trace trace;
  trace.source = "simulated";
  trace.makespan = Nanos(700);
  trace.spans = {At(0, 0, 0, Stream::kCompute, 0, 100), At(0, 0, 1, Stream::kCompute, 100, 200),
                 At(0, 1, 0, Stream::kComm, 200, 700)};
  return trace;
}

// Rank 1 is late for the all_reduce by 1000: rank 0 waits for it.
Trace Measured() {
  Trace trace;
  trace.source = "measured";
  trace.makespan = Nanos(2100);
  trace.spans = {At(0, 0, 0, Stream::kCompute, 0, 150),    At(0, 0, 1, Stream::kCompute, 150, 250),
                 At(0, 1, 0, Stream::kComm, 250, 1750),    At(1, 0, 0, Stream::kCompute, 0, 150),
                 At(1, 0, 1, Stream::kCompute, 150, 1250), At(1, 1, 0, Stream::kComm, 1250, 1750)};
  return trace;
}

absl::StatusOr<NamedTrace> Named(const Trace& trace) {
  return ParseNamedTrace(ToChromeJson(trace, TwoRanks()), "t.json");
}

// Only where the library was asked there is a column for it; the ranks' answers are alike.
TEST(TraceComparisonTest, ShowsWhatTheLibraryExpected) {
  ASSERT_OK_AND_ASSIGN(const NamedTrace simulated, Named(Simulated()));
  ASSERT_OK_AND_ASSIGN(const NamedTrace plain, Named(Measured()));
  EXPECT_THAT(ToText(*Compare(simulated, plain), 10), testing::Not(testing::HasSubstr("NCCL")));
  Trace trace = Measured();
  trace.spans[2].estimate = trace.spans[5].estimate = Nanos(640);
  ASSERT_OK_AND_ASSIGN(const NamedTrace asked, Named(trace));
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, Compare(simulated, asked));
  EXPECT_EQ(comparison.rows[0].library, Nanos(0));
  EXPECT_EQ(comparison.rows[1].library, Nanos(640));
  EXPECT_THAT(ToText(comparison, 10), testing::HasSubstr("NCCL's own"));
  EXPECT_EQ(ToJson(comparison)["rows"][1]["library_s"].get<double>(), 640e-9);
}

TEST(TraceComparisonTest, JoinsByPlaceAndSumsWhatDoesTheSame) {
  ASSERT_OK_AND_ASSIGN(const NamedTrace simulated, Named(Simulated()));
  ASSERT_OK_AND_ASSIGN(const NamedTrace measured, Named(Measured()));
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, Compare(simulated, measured));
  EXPECT_EQ(comparison.program, "demo");
  EXPECT_EQ(comparison.simulated_step, Nanos(700));
  EXPECT_EQ(comparison.measured_step, Nanos(2100));
  EXPECT_EQ(comparison.joined, 3);
  EXPECT_EQ(comparison.only_simulated, 0);
  EXPECT_EQ(comparison.only_measured, 0);
  ASSERT_EQ(comparison.rows.size(), 2u);
  // Kernels: of two ranks the upper median, 150 in layer 0 and 1100 in layer 1, against 100 and 100.
  EXPECT_EQ(comparison.rows[0].origin, "layers/relu");
  EXPECT_EQ(comparison.rows[0].instructions, 2);
  EXPECT_EQ(comparison.rows[0].simulated, Nanos(200));
  EXPECT_EQ(comparison.rows[0].measured, Nanos(1250));
  EXPECT_EQ(comparison.rows[0].difference(), Nanos(1050));
  // The all_reduce takes 500 on the rank that comes last, as predicted.
  EXPECT_EQ(comparison.rows[1].name, "all_reduce");
  EXPECT_EQ(comparison.rows[1].simulated, Nanos(500));
  EXPECT_EQ(comparison.rows[1].measured, Nanos(500));
}

TEST(TraceComparisonTest, CountsWhatDoesNotJoin) {
  Trace less = Measured(), other = Measured();
  less.spans.erase(less.spans.begin() + 2);  // the all_reduce of rank 0; rank 1 still has it
  less.spans.erase(less.spans.begin() + 4);  // and of rank 1
  other.spans.push_back(At(1, 1, 7, Stream::kComm, 1750, 1800));
  ASSERT_OK_AND_ASSIGN(const NamedTrace simulated, Named(Simulated()));
  ASSERT_OK_AND_ASSIGN(const NamedTrace fewer, Named(less));
  ASSERT_OK_AND_ASSIGN(const NamedTrace more, Named(other));
  ASSERT_OK_AND_ASSIGN(const Comparison missing, Compare(simulated, fewer));
  EXPECT_EQ(missing.joined, 2);
  EXPECT_EQ(missing.only_simulated, 1);
  EXPECT_EQ(missing.only_measured, 0);
  ASSERT_OK_AND_ASSIGN(const Comparison extra, Compare(simulated, more));
  EXPECT_EQ(extra.joined, 3);
  EXPECT_EQ(extra.only_measured, 1);
}

TEST(TraceComparisonTest, RefusesWhatCannotBeCompared) {
  ASSERT_OK_AND_ASSIGN(const NamedTrace simulated, Named(Simulated()));
  ASSERT_OK_AND_ASSIGN(NamedTrace measured, Named(Measured()));
  EXPECT_THAT(Compare(measured, simulated), StatusIs(kInvalid, "found a measured trace, wanted a simulated one"));
  measured.program = "other";
  EXPECT_THAT(Compare(simulated, measured), StatusIs(kInvalid, "found traces of demo and other"));
  Trace slots = Simulated();
  for (Span& span : slots.spans) span.instruction = -1;
  ASSERT_OK_AND_ASSIGN(const NamedTrace coarse, Named(slots));
  EXPECT_THAT(Compare(coarse, measured), StatusIs(kInvalid, "has slots, wanted instructions"));
  EXPECT_THAT(ParseNamedTrace("{}", "t.json"), StatusIs(kInvalid, "t.json: found no list"));
}

TEST(TraceComparisonTest, TextHasTheTotalsAndTheWorst) {
  ASSERT_OK_AND_ASSIGN(const NamedTrace simulated, Named(Simulated()));
  ASSERT_OK_AND_ASSIGN(const NamedTrace measured, Named(Measured()));
  ASSERT_OK_AND_ASSIGN(const Comparison comparison, Compare(simulated, measured));
  EXPECT_EQ(ToText(comparison, 1), R"(demo: step 700 ns predicted, 2.100 us measured (+200 %)
3 instructions joined, 0 predicted only, 0 measured only

  all stages                     number  predicted   measured      of it
  communication: gradient             1     500 ns     500 ns       +0 %
  kernels: forward                    2     200 ns   1.250 us     +525 %

the 1 that differ most, of 2
  st instruction                      times  predicted   measured  difference
  0  ReLU layers/relu                     2     200 ns   1.250 us   +1.050 us
)");
}

}  // namespace
}  // namespace meshwright
