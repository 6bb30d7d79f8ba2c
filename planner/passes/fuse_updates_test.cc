#include "planner/passes/fuse_updates.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

// Three parameters on two ranks, of which a and b are split over them, along different dims, and c has a master.
constexpr char kStep[] = R"(program step mesh tp=2
class all
  buffer a float32 (4, 2) {tp | -} parameter
  buffer da float32 (4, 2) {tp | -} gradient
  buffer a@m float32 (4, 2) {tp | -} optimizer_state
  buffer b float32 (6) {tp} parameter
  buffer db float32 (6) {tp} gradient
  buffer b@m float32 (6) {tp} optimizer_state
  buffer c bfloat16 (8) {-} parameter
  buffer c@master float32 (8) {-} master
  buffer dc float32 (8) {-} gradient
  buffer c@m float32 (8) {-} optimizer_state
  buffer e float32 (2) {-} parameter
  buffer de float32 (2) {-} gradient
  buffer e@m float32 (2) {-} optimizer_state
  event done
  block "model backward" backward
    compute Fill scale=1 writes da db dc de
  block "model update" backward
    compute Momentum learning_rate=0.5 reads a da a@m writes a a@m @a
    compute Scale scale=0.5 reads db writes db @db
    compute Momentum learning_rate=0.5 reads b db b@m writes b b@m @b
    compute Momentum "d0, d0, d0 -> d0, d0, d0" learning_rate=0.5 reads c@master dc c@m writes c@master c@m c @c
    compute Momentum learning_rate=0.5 reads e de e@m writes e e@m @e
  slot "model backward" mb 0 layer 0
  slot "model update" mb 0 layer 0
)";

Program Fused(const std::string& text) { return Passed(text, FuseUpdates); }
Program Changed(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kStep, {{from, to}});
  EXPECT_NE(text, kStep) << from;
  return Fused(text);
}

// Past what makes b's gradient a mean; c, which has a copy besides, stays alone.
TEST(FuseUpdatesTest, UpdatesThatAreAlikeBecomeOne) {
  EXPECT_THAT(Lines(Fused(kStep), 0, "model update"),
              ElementsAre("compute Scale scale=0.5 reads db writes db @db",
                          "compute Momentum learning_rate=0.5 tensors=3 reads a da a@m b db b@m e de e@m "
                          "writes a a@m b b@m e e@m @\"a +2\"",
                          "compute Momentum \"d0, d0, d0 -> d0, d0, d0\" learning_rate=0.5 reads c@master dc c@m "
                          "writes c@master c@m c @c"));
}

TEST(FuseUpdatesTest, OtherNumbersAreOtherUpdates) {
  const Program program = Changed("learning_rate=0.5 reads b", "learning_rate=0.25 reads b");
  EXPECT_THAT(Lines(program, 0, "model update"),
              ElementsAre("compute Scale scale=0.5 reads db writes db @db",
                          "compute Momentum learning_rate=0.5 tensors=2 reads a da a@m e de e@m writes a a@m e e@m "
                          "@\"a +1\"",
                          "compute Momentum learning_rate=0.25 reads b db b@m writes b b@m @b",
                          "compute Momentum \"d0, d0, d0 -> d0, d0, d0\" learning_rate=0.5 reads c@master dc c@m "
                          "writes c@master c@m c @c"));
}

TEST(FuseUpdatesTest, NothingMovesPastWhatOrdersOthersOrUsesIt) {
  // A recorded event tells others that a has its new value.
  EXPECT_EQ(Lines(Changed("reads db writes db @db", "reads db writes db records done @db"), 0, "model update")[0],
            "compute Momentum learning_rate=0.5 reads a da a@m writes a a@m @a");
  EXPECT_EQ(Lines(Changed("compute Scale scale=0.5 reads db writes db @db",
                          "compute Scale \"d0 d1 -> d0 d1\" scale=0.5 reads a writes a"),
                  0, "model update")[0],
            "compute Momentum learning_rate=0.5 reads a da a@m writes a a@m @a");
  // The same parameter twice: one after the other.
  EXPECT_EQ(
      Lines(Changed("reads e de e@m writes e e@m @e", "reads a da a@m writes a a@m @e"), 0, "model update").back(),
      "compute Momentum learning_rate=0.5 reads a da a@m writes a a@m @e");
}

// Of each owner its own: all ranks would wait for the one that has both.
TEST(FuseUpdatesTest, OwnersUpdateApart) {
  const Program program =
      Changed("buffer e@m float32 (2) {-} optimizer_state", "buffer e@m float32 (2) {-} optimizer_state owner 1");
  EXPECT_THAT(Lines(program, 0, "model update"),
              ElementsAre("compute Scale scale=0.5 reads db writes db @db",
                          "compute Momentum learning_rate=0.5 tensors=2 reads a da a@m b db b@m writes a a@m b b@m "
                          "@\"a +1\"",
                          "compute Momentum \"d0, d0, d0 -> d0, d0, d0\" learning_rate=0.5 reads c@master dc c@m "
                          "writes c@master c@m c @c",
                          "compute Momentum learning_rate=0.5 reads e de e@m writes e e@m @e"));
}

// The scalars of loss scaling stay the last inputs, once.
TEST(FuseUpdatesTest, UnderLossScaling) {
  std::string text = absl::StrReplaceAll(
      kStep,
      {{"  event done", "  buffer factor float32 () {} gradient\n  buffer skipped float32 () {} optimizer_state"},
       {"writes da db dc de", "writes da db dc de factor"},
       {"compute Momentum learning_rate=0.5 reads a da a@m",
        "compute Momentum \"d0 d1, d0 d1, d0 d1, , -> d0 d1, d0 d1\" learning_rate=0.5 reads a da a@m factor "
        "skipped"},
       {"compute Momentum learning_rate=0.5 reads b db b@m",
        "compute Momentum \"d0, d0, d0, , -> d0, d0\" learning_rate=0.5 reads b db b@m factor skipped"}});
  EXPECT_THAT(Lines(Fused(text), 0, "model update")[1],
              "compute Momentum learning_rate=0.5 tensors=2 reads a da a@m b db b@m factor skipped "
              "writes a a@m b b@m @\"a +1\"");
}

int64_t CountUpdates(const Program& program) {
  int64_t count = 0;
  for (const Block& block : program.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* compute = std::get_if<Compute>(&instruction.work);
      if (compute != nullptr && IsOptimizer(compute->op)) ++count;
    }
  }
  return count;
}

// A block of the step's end has one update, and LAMB's two steps for each of its parameters.
TEST(FuseUpdatesTest, OnTheWayFromAPlan) {
  for (const bool sharded : {false, true}) {
    for (const OpKind kind : {OpKind::kSgd, OpKind::kMomentum, OpKind::kAdamW, OpKind::kLamb}) {
      Strategy strategy;
      strategy.mesh = *ParseMesh("dp=2");
      strategy.parallel_optimizer = sharded;
      int64_t updates[2];
      for (const bool fused : {false, true}) {
        strategy.fuse_updates = fused;
        ASSERT_OK_AND_ASSIGN(const Program program,
                             Lower(TiedStack(4, 4), strategy, {kind, {}}, PriceByBytes,
                                   [](absl::string_view, const Program& lowered) { return VerifyProgram(lowered); }));
        updates[fused] = CountUpdates(program);
      }
      // The table in one block, u and v of the layers in another.
      const int64_t each = kind == OpKind::kLamb ? 2 : 1;
      EXPECT_EQ(updates[false], 3 * each);
      EXPECT_EQ(updates[true], kind == OpKind::kLamb ? 6 : 2) << NameOf(kind);
    }
  }
}

}  // namespace
}  // namespace meshwright
