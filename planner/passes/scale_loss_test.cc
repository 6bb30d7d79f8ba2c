#include "planner/passes/scale_loss.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/lower.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

OpAttrs Dynamic() {
  OpAttrs attrs;
  attrs.scale = 1024;
  attrs.growth = 2;
  attrs.backoff = 0.5;
  attrs.interval = 10;
  return attrs;
}

absl::StatusOr<Program> Scaled(const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  MESHWRIGHT_ASSIGN_OR_RETURN(program, ScaleLoss(std::move(program), Dynamic()));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

// The end of a step for `p`, whose replicas have equal gradients and update a row each.
std::string Stage(const std::string& name) {
  return absl::Substitute(R"(
class $0
  buffer p float32 (4, 2) {- | -} parameter
  buffer dp float32 (4, 2) {- | -} gradient
  buffer dp@rows float32 (4, 2) {dp | -} gradient
  buffer p@master float32 (4, 2) {dp | -} master
  block "model backward" backward
    compute Fill " -> d0 d1" scale=1 writes dp
  block "model update" backward
    compute slice reads dp writes dp@rows @dp
    compute SGD reads p@master dp@rows writes p@master @p
  slot "model backward" mb 0 layer 0
  slot "model update" mb 0 layer 0
)",
                          name);
}

TEST(ScaleLossTest, ChecksWhatIsUpdatedThenAgreesThenUpdates) {
  ASSERT_OK_AND_ASSIGN(const Program program, Scaled("program step mesh dp=2" + Stage("all")));
  EXPECT_THAT(Lines(program, 0, "model check"),
              ElementsAre("compute slice reads dp writes dp@rows @dp",
                          "compute NotFinite \"d0 d1 -> \" accumulate reads dp@rows writes not_finite "
                          "@model/not_finite"));
  EXPECT_THAT(
      Lines(program, 0, "loss scale"),
      ElementsAre("compute all_reduce max (dp) report reads not_finite writes not_finite@all @not_finite",
                  "compute AdjustScale scale=1024 growth=2 backoff=0.5 interval=10 reads loss_scale loss_scale@good "
                  "loss_scale@skipped not_finite@all writes loss_scale loss_scale@good loss_scale@skipped "
                  "gradient_factor @loss_scale"));
  EXPECT_THAT(Lines(program, 0, "model update"),
              ElementsAre("compute SGD \"d0 d1, d0 d1, ,  -> d0 d1\" reads p@master dp@rows gradient_factor "
                          "loss_scale@skipped writes p@master @p"));
  EXPECT_THAT(SlotLines(program.classes[0]),
              ElementsAre("model backward mb 0 layer 0", "clear not_finite mb 0 layer 0", "model check mb 0 layer 0",
                          "loss scale mb 0 layer 0", "model update mb 0 layer 0"));
}

// Equal values do not change a maximum: what is found may be said to be partial over all ranks, or over just those that
// split the tensors; and two tensors may be split by one axis in one check.
TEST(ScaleLossTest, TheVerifierKnowsMaxima) {
  const auto verify = [](const std::string& partial) {
    absl::StatusOr<Program> program = ParseProgram(absl::Substitute(R"(program maxima mesh x2=2 x1=2
class all
  buffer g float32 (4, 4) {x1 | -} gradient
  buffer h float32 (4, 4) {- | x1} gradient
  buffer f float32 () {} partial max $0 gradient
  block b backward
    compute Fill " -> d0 d1, d2 d3" scale=1 writes g h
    compute NotFinite "d0 d1, d2 d3 -> " reads g h writes f
  slot b mb 0 layer 0
)",
                                                                    partial));
    return program.ok() ? VerifyProgram(*program) : program.status();
  };
  EXPECT_OK(verify("x2.x1"));
  EXPECT_OK(verify("x1"));
  EXPECT_THAT(verify("x2"), StatusIs(absl::StatusCode::kInvalidArgument, "rule 4"));
}

// A segment of any number of parameters: their gradients are cleared and checked, by as many checks as it takes.
TEST(ScaleLossTest, ManyParametersInOneSegment) {
  GraphBuilder b("many");
  b.BeginSegment("model");
  const DType f = DType::kFloat32;
  const TensorId y = b.Input("y", f, {4, 4}, {});
  TensorId x = b.Input("x", f, {4, 4}, {});
  for (int i = 0; i < 140; ++i) {
    const TensorId w = b.Parameter(absl::StrCat("w", i), f, {4, 4}, {});
    ASSERT_OK_AND_ASSIGN(
        x,
        b.AddOne({.name = absl::StrCat("m", i), .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k n -> m n"}));
  }
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {x, y}}));
  b.SetLoss(loss);
  Strategy strategy;
  strategy.mesh = *ParseMesh("dp=2");
  UpdateRule adamw{OpKind::kAdamW, {}};
  adamw.loss_scale = Dynamic();
  ASSERT_OK_AND_ASSIGN(const Program program, Lower(std::move(b).Build(), strategy, adamw, PriceByBytes));
  EXPECT_OK(VerifyProgram(program));
  ASSERT_OK_AND_ASSIGN(const Program read, ParseProgram(ToText(program)));
  EXPECT_EQ(ToText(read), ToText(program));
  EXPECT_EQ(Lines(program, 0, "model zero").size(), 1u);
  int64_t checks = 0;
  for (const std::string& line : Lines(program, 0, "model check"))
    checks += absl::StartsWith(line, "compute NotFinite");
  EXPECT_EQ(checks, 3);  // of 140 gradients with two labels each, 100 labels in each
}

// Three stages: each tells the next one, then the one after it; all know of all, and each has its own scale.
TEST(ScaleLossTest, StagesTellEachOther) {
  std::string text = "program step mesh pp=3 dp=2";
  for (const char* const stage : {"a", "b", "c"}) absl::StrAppend(&text, Stage(stage));
  ASSERT_OK_AND_ASSIGN(const Program program, Scaled(text));
  const std::vector<std::string> lines = Lines(program, 2, "loss scale");
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(lines[2],
            "send to -2 report reads not_finite@all waits \"ready not_finite by 1\" "
            "@\"not_finite by 1\"");
  EXPECT_EQ(lines[3],
            "receive from -1 report writes not_finite@from1 records \"arrived not_finite by 1\" "
            "@\"not_finite by 1\"");
  EXPECT_EQ(lines[5],
            "compute NotFinite \",  -> \" reads not_finite@all not_finite@from1 writes not_finite@1 "
            "@\"not_finite by 1\"");
}

// A layered block is checked layer by layer, before the first update of any.
TEST(ScaleLossTest, AllLayersAreCheckedBeforeAnyIsUpdated) {
  Strategy strategy;
  strategy.mesh = *ParseMesh("pp=2 dp=2");
  strategy.stages = 2;
  strategy.microbatches = 2;
  strategy.parallel_optimizer = true;
  strategy.rules = {{"b", Axes(strategy.mesh, "dp")}};
  UpdateRule adamw{OpKind::kAdamW, {}};
  adamw.loss_scale = Dynamic();
  ASSERT_OK_AND_ASSIGN(const Program program,
                       Lower(TiedStack(4, 4), strategy, adamw, PriceByBytes,
                             [](absl::string_view, const Program& program) { return VerifyProgram(program); }));
  for (const RankClass& c : program.classes) {
    std::vector<std::string> order;
    for (const std::string& line : SlotLines(c)) {
      for (const absl::string_view what : {" check ", "loss scale ", " update "}) {
        if (absl::StrContains(line, what) && !absl::StartsWith(line, "await")) order.push_back(line);
      }
    }
    size_t decided = 0;
    while (!absl::StartsWith(order[decided], "loss scale")) ++decided;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == decided) continue;
      EXPECT_EQ(absl::StrContains(order[i], " check "), i < decided) << order[i];
    }
    EXPECT_GE(decided, 1u);
  }
}

}  // namespace
}  // namespace meshwright
