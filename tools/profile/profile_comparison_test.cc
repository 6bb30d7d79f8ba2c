#include "tools/profile/profile_comparison.h"

#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/damage.h"
#include "ir/testing.h"
#include "planner/search/search.h"
#include "simulator/simulate.h"
#include "simulator/time_use.h"
#include "tools/profile/kernel_kinds.h"
#include "tools/profile/profile_testing.h"
#include "tools/session.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Two stages of four ranks: rank 1 of ProfileText is one of stage 0.
absl::StatusOr<Plan> MakePlan(absl::string_view trainer = "") {
  const SourceFile source = {"m.yaml",
                             "name: m\narchitecture: {decoder: {hidden: 64, layers: 4, heads: 4, vocab: 128}}\n"
                             "training: {batch: 16, sequence: 256, dtype: bfloat16, optimizer: adamw}\n"
                             "cluster: {device: h100-sxm, nodes: 1}\n"};
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel(source, Flags()));
  plan.session.problem.stages = 2;
  plan.session.problem.tensor_parallel = 2;
  MESHWRIGHT_ASSIGN_OR_RETURN(const SearchResult found, Search(plan.session.problem, {.keep = 1}));
  plan.strategy = found.ranked.front().strategy;
  plan.promise = PromiseOf(found.ranked.front().prediction, trainer);
  return plan;
}

absl::StatusOr<ProfileComparison> CompareText(const Plan& plan, const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const ProfileTrace trace, ReadProfileTrace(text, "trace.json"));
  return CompareWithProfile("plan.yaml", plan, trace);
}

std::string Kernel(absl::string_view name, double begin, double duration) {
  return ProfileEvent("kernel", name, absl::StrCat(begin), absl::StrCat(duration));
}

// A step of 1 ms between its mark and the next: products of 400 us, 200 us of a reduction of which 50 are beside them.
std::vector<std::string> OneStep(int number, double begin) {
  return {ProfileEvent("gpu_user_annotation", absl::StrCat("ProfilerStep#", number), absl::StrCat(begin), "900"),
          Kernel("nvjet_tst_128x256", begin, 400),
          ProfileEvent("kernel", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", absl::StrCat(begin + 350), "200", 20,
                       R"(, "Collective name": "_reduce_scatter_base", "In msg nelems": 1048576,
                           "Out msg nelems": 262144, "Group size": 4, "dtype": "BFloat16")"),
          Kernel("something\\u001b[31m<int>", begin + 600, 30), Kernel("another", begin + 640, 10)};
}

std::string FourSteps(double microseconds = 1000) {
  std::vector<std::string> events;
  for (int i = 0; i < 4; ++i) {
    for (std::string& event : OneStep(i + 1, microseconds * i)) events.push_back(std::move(event));
  }
  return ProfileText(events);
}

TEST(ProfileComparisonTest, BesideAPlan) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan());
  ASSERT_OK_AND_ASSIGN(const ProfileComparison c, CompareText(plan, FourSteps()));
  EXPECT_EQ(c.predicted.step, plan.promise.step);
  EXPECT_EQ(c.stage, "stage 0");
  EXPECT_EQ(c.window.first, 2);
  EXPECT_EQ(c.window.last, 3);
  EXPECT_EQ(c.measured.step, Micros(1000));
  EXPECT_EQ(c.measured[WorkKind::kProduct], Micros(400));
  EXPECT_EQ(c.measured[WorkKind::kCommunication], Micros(200));
  EXPECT_EQ(c.measured[WorkKind::kOther], Micros(40));
  EXPECT_EQ(c.measured.exposed, Micros(150));  // from 400 to 550
  EXPECT_EQ(c.measured.idle, Micros(1000 - 400 - 150 - 30 - 10));
  const CallUse& call = c.measured.calls.at({CallKind::kReduceScatter, 4});
  EXPECT_EQ(call.calls, 1);
  EXPECT_EQ(call.bytes, 2 << 20);  // what a rank gives, as ir/collective.h counts
  EXPECT_EQ(call.time, Micros(200));
  ASSERT_EQ(c.other.size(), 2u);
  EXPECT_EQ(c.other[0].second, Micros(30));

  const std::string text = ToText(c, 10);
  EXPECT_THAT(text, HasSubstr("trace.json\nrank 1 of 8, stage 0; steps 2 to 3, of 4 recorded, the mean\n"));
  EXPECT_THAT(text, HasSubstr("other: 2 kernels whose names are not known, such as\n"));
  EXPECT_THAT(text, HasSubstr("By kind, predicted is the plan's own program, without a framework's habits; a\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));  // names of a file do not colour a terminal
  for (const absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  const Json json = ToJson(c);
  EXPECT_EQ(json.at("schema"), "meshwright/profile_comparison/1");
  EXPECT_EQ(json.at("exposed_communication").at("measured_s"), 150e-6);
  EXPECT_EQ(json.at("step").at("measured_s"), 1e-3);
  EXPECT_FALSE(json.contains("trainer"));
}

// A name by which kernels of that kind are known.
absl::string_view NameFor(WorkKind kind) {
  switch (kind) {
    case WorkKind::kProduct:
      return "nvjet_tst";
    case WorkKind::kAttention:
      return "flash_fwd_kernel";
    case WorkKind::kLinearAttention:
      return "selective_scan";
    case WorkKind::kNorm:
      return "layer_norm_kernel";
    case WorkKind::kLoss:
      return "cross_entropy_kernel";
    case WorkKind::kElementwise:
      return "vectorized_elementwise_kernel";
    case WorkKind::kTable:
      return "embedding_kernel";
    case WorkKind::kOptimizer:
      return "multi_tensor_apply_kernel";
    case WorkKind::kCommunication:
    case WorkKind::kOther:
      break;
  }
  return "ncclDevKernel_SendRecv";
}

// A run that does what was simulated, to the nanosecond, is measured as it was predicted.
TEST(ProfileComparisonTest, ASimulatedStepAsATraceIsThePrediction) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan());
  ASSERT_OK_AND_ASSIGN(const Program program, ProgramOf(plan));
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, CostModel(plan.session.problem.cluster)));
  ASSERT_OK_AND_ASSIGN(const SimulationResult result, Simulate(program, prices, {.trace = TraceDetail::kInstructions}));
  const auto micros = [](Nanos time) {
    return absl::StrCat(time.raw() / 1000, ".", absl::Dec(time.raw() % 1000, absl::kZeroPad3));
  };
  std::vector<std::string> events = {
      ProfileEvent("gpu_user_annotation", "ProfilerStep#7", "0", micros(result.makespan))};
  const RankClass& stage = program.classes[0];
  for (const Span& span : result.trace.spans) {
    if (span.rank != 0 || span.begin == span.end) continue;
    const Block& block = stage.blocks[stage.slots[span.slot].block.index()];
    const Instruction& instruction = block.instructions[static_cast<size_t>(span.instruction)];
    std::string args;
    if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
      args = absl::StrCat(R"(, "Collective name": ")", NameOf(collective->kind), R"(", "Group size": )",
                          program.mesh.SizeOf(collective->axes));
    }
    const WorkKind kind = KindOfInstruction(instruction, HoldsOptimizer(block));
    events.push_back(ProfileEvent("kernel", NameFor(kind), micros(span.begin), micros(span.end - span.begin),
                                  static_cast<int>(span.stream), args));
  }
  ASSERT_OK_AND_ASSIGN(const ProfileComparison c, CompareText(plan, ProfileText(events)));
  EXPECT_EQ(c.measured.step, c.predicted.step);
  EXPECT_EQ(c.measured.time, c.predicted.time);
  EXPECT_GT(c.predicted[WorkKind::kProduct], Nanos());
  EXPECT_GT(c.predicted[WorkKind::kOptimizer], Nanos());
  EXPECT_EQ(c.measured.exposed, c.predicted.exposed);
  EXPECT_GT(c.predicted.exposed, Nanos());
  EXPECT_EQ(c.measured.idle, c.predicted.idle);
  ASSERT_EQ(c.measured.calls.size(), c.predicted.calls.size());
  for (const auto& [sort, use] : c.predicted.calls) {
    EXPECT_EQ(c.measured.calls.at(sort).calls, use.calls) << NameOf(sort.kind);
    EXPECT_EQ(c.measured.calls.at(sort).time, use.time) << NameOf(sort.kind);
    EXPECT_GT(use.bytes, 0) << NameOf(sort.kind);
  }
}

TEST(ProfileComparisonTest, AnotherRunIsAnErrorOrANote) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan());
  const auto with = [&](absl::string_view from, absl::string_view to) {
    return CompareText(plan, absl::StrReplaceAll(FourSteps(), {{from, to}}));
  };
  EXPECT_THAT(
      with("\"rank\": 1,", "\"rank\": 9,"),
      StatusIs(kInvalid, "trace.json: distributedInfo: found rank 9, wanted a rank of the plan, from 0 to 7; "));
  EXPECT_THAT(with("\"world_size\": 8", "\"world_size\": 16"),
              StatusIs(kInvalid,
                       "trace.json: distributedInfo: found world_size 16, wanted the ranks of the plan, 8; plan with"));
  EXPECT_THAT(CompareText(plan, ProfileText({Kernel("gemm", 1, 0)})),
              StatusIs(kInvalid, "trace.json: found steps of no time"));
  ASSERT_OK_AND_ASSIGN(const ProfileComparison last, with("\"rank\": 1,", "\"rank\": 7,"));
  EXPECT_EQ(last.stage, "stage 1");
  ASSERT_OK_AND_ASSIGN(const ProfileComparison a100, with("H100 80GB HBM3", "A100-SXM4-80GB"));
  EXPECT_THAT(a100.notes, Contains("The plan is for h100-sxm, the trace of \"NVIDIA A100-SXM4-80GB\"."));
  ASSERT_OK_AND_ASSIGN(const ProfileComparison nobody, with("distributedInfo", "info"));
  EXPECT_EQ(nobody.rank, 0);
  EXPECT_THAT(nobody.notes, Contains("The trace does not say whose it is: taken for rank 0."));
  ASSERT_OK_AND_ASSIGN(const ProfileComparison whole, with("ProfilerStep", "Step"));
  EXPECT_THAT(whole.notes, Contains("No ProfilerStep is marked: the whole trace counts as one step."));
  ASSERT_OK_AND_ASSIGN(const ProfileComparison same, CompareText(plan, FourSteps()));
  EXPECT_EQ(same.notes.size(), 2u);  // the program, waits
}

TEST(ProfileComparisonTest, APlanForATrainer) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan("megatron"));
  ASSERT_OK_AND_ASSIGN(const ProfileComparison c, CompareText(plan, FourSteps()));
  EXPECT_EQ(c.trainer, "Megatron-LM");
  ASSERT_TRUE(c.as_trainer.has_value());
  EXPECT_GT(*c.as_trainer, c.predicted.step);
  const std::string text = ToText(c, 1);
  EXPECT_THAT(text, HasSubstr("step as Megatron-LM runs it"));
  EXPECT_THAT(text, HasSubstr("By kind, predicted is the plan's own program, not what Megatron-LM does besides.\n"));
  EXPECT_THAT(text, HasSubstr(" more; --worst shows them\n"));
  EXPECT_EQ(ToJson(c).at("trainer"), "Megatron-LM");
  // Twice as long, idle for the most part.
  ASSERT_OK_AND_ASSIGN(const ProfileComparison waits, CompareText(plan, FourSteps(2e6 * ToSeconds(*c.as_trainer))));
  ASSERT_TRUE(waits.cpu_slowdown.has_value());
  EXPECT_GE(*waits.cpu_slowdown, 1.99);  // no step grows faster than its CPUs' time; to the hundredth
  const auto says = Contains(HasSubstr(absl::StrFormat("with `cpu_slowdown: %.2f` in", *waits.cpu_slowdown)));
  EXPECT_THAT(waits.notes, says);
  EXPECT_EQ(ToJson(waits).at("cpu_slowdown"), *waits.cpu_slowdown);
}

TEST(ProfileComparisonTest, DamagedTracesEndWell) {
  constexpr absl::string_view kTokens[] = {"-1", "1e9", "1e15", "\"ph\"", "0", "\xc3\xa9", "4000000000000000"};
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan());
  int compared = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const absl::StatusOr<ProfileComparison> c = CompareText(plan, Damaged(FourSteps(), kTokens, 3, random));
    if (!c.ok()) {
      EXPECT_THAT(c, StatusIs(kInvalid, "trace.json: "));
      continue;
    }
    ++compared;
    EXPECT_GE(c->measured.idle, Nanos());
    EXPECT_GE(c->measured.exposed, Nanos());
    for (const absl::string_view line : absl::StrSplit(ToText(*c, 10), '\n')) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_FALSE(ToText(ToJson(*c)).empty());
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace meshwright
