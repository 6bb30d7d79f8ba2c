#include "executor/permute.h"

#include "executor/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// Sources for a tensor of 4 x 4 that goes from one layout to another on 2 x 2 ranks (x2 the slower).
absl::StatusOr<std::vector<int64_t>> Sources(const std::string& from, const std::string& to) {
  const Program program = ProgramFromText("program p mesh x2=2 x1=2\nclass all\n  buffer a float64 (4, 4) " + from +
                                          " activation\n  buffer b float64 (4, 4) " + to + " activation\n");
  return PermuteSources(program, 0, program.classes[0].buffers[0], program.classes[0].buffers[1]);
}

// Rank 1 (x2 0, x1 1) holds rows 0, columns 1; by {x1 | x2} it wants rows 1, columns 0, which rank 2 holds.
TEST(PermuteSourcesTest, PiecesComeFromWhoHoldsThem) {
  EXPECT_THAT(*Sources("{x2 | x1}", "{x1 | x2}"), ElementsAre(0, 2, 1, 3));
}

// Under {x2 | -} ranks 0 and 1 hold the upper rows, 2 and 3 the lower. Both layouts together use both axes, so no axis
// has to agree: the lowest holder sends. Where x1 is not used, it has to.
TEST(PermuteSourcesTest, TheLowestHolderSendsUnlessAReplicaIsNearer) {
  EXPECT_THAT(*Sources("{x2 | -}", "{x1 | -}"), ElementsAre(0, 2, 0, 2));
  EXPECT_THAT(*Sources("{x2 | -}", "{x2 | -}"), ElementsAre(0, 1, 2, 3));
}

// Partial over x1, split by x2, and the same the other way round: the summands' numbers must agree, so rank 1 (summand
// 1 of the upper rows) turns into summand 0 of the lower rows, which rank 2 holds.
TEST(PermuteSourcesTest, SummandsAreNotMixed) {
  EXPECT_THAT(*Sources("{x2 | -} partial sum x1", "{x1 | -} partial sum x2"), ElementsAre(0, 2, 1, 3));
}

TEST(PermuteSourcesTest, APieceThatNobodyHoldsIsAnError) {
  EXPECT_THAT(Sources("{x2 | -}", "{x2.x1 | -}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "no rank holds the piece"));
}

// Along x1 only: the pairs {0,1} and {2,3}; the second of each gets the first's piece, the first gets zeros.
TEST(PermuteSourcesTest, NamedSourcesAreWithinTheGroup) {
  const Program program = ProgramFromText("program p mesh x2=2 x1=2\nclass all\n");
  EXPECT_THAT(NamedSources(program, 0, {{program.mesh.Find("x1")}, {-1, 0}}), ElementsAre(-1, 0, -1, 2));
  EXPECT_THAT(NamedSources(program, 0, {{program.mesh.Find("x2"), program.mesh.Find("x1")}, {3, 2, 1, 0}}),
              ElementsAre(3, 2, 1, 0));
}

}  // namespace
}  // namespace meshwright
