// Kernels that one rank runs, in its turn: what the verifier says of them.
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

constexpr char kTurns[] = R"(program turns mesh x=4
class all
  buffer x float32 (4) {-} input
  buffer a float32 (4) {-} temporary
  buffer b float32 (4) {-} temporary
  buffer c float32 (4) {-} temporary alias b
  buffer d float32 (4) {-} temporary
  block f forward
    compute Feed writes x
    compute ReLU turn 1 step 2 reads x writes a
    compute ReLU turn 1 step 2 reads a writes b
    compute broadcast (x) root 1 step 2 parameter reads b writes c
    compute ReLU reads c writes d
  slot f mb 0 layer 0
)";

// What the verifier says when `from`, which must be there, becomes `to`.
std::string Changed(const std::string& text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  const absl::StatusOr<Program> program = ParseProgram(absl::StrReplaceAll(text, {{from, to}}));
  if (!program.ok()) return std::string(program.status().message());
  const absl::Status status = VerifyProgram(*program);
  return status.ok() ? "OK" : std::string(status.message());
}

// One rank's own: temporaries that kernels of the same turn read, and a broadcast from it to all.
TEST(VerifyTurnsTest, Rule1WhatOneRankMakesInItsTurnOthersGetByABroadcast) {
  EXPECT_EQ(Changed(kTurns, "block f", "block f"), "OK");
  EXPECT_THAT(Changed(kTurns, "turn 1 step 2 reads a", "turn 1 step 1 reads a"),
              HasSubstr("writes a on one rank alone, and others read it"));
  EXPECT_THAT(Changed(kTurns, "root 1 step 2", "root 1 step 3"),
              HasSubstr("writes b on one rank alone, and others read it"));
  EXPECT_THAT(Changed(kTurns, "ReLU reads c", "ReLU reads b"),
              HasSubstr("writes b on one rank alone, and others read it"));
  EXPECT_THAT(Changed(kTurns, "a float32 (4) {-} temporary", "a float32 (4) {-} activation"),
              HasSubstr("writes a on one rank alone, which is no temporary"));
  EXPECT_THAT(Changed(kTurns, "turn 1 step 2 reads x", "turn 4 step 2 reads x"),
              HasSubstr("has the turn 4 step 2, wanted places of the class's 4 ranks"));
  const std::string all = absl::StrReplaceAll(kTurns, {{" turn 1 step 2", ""}});
  EXPECT_EQ(Changed(all, "block f", "block f"), "OK");
  EXPECT_THAT(Changed(all, "root 1 step 2", "root 1 step -2"), HasSubstr("has a root that goes -2 places further"));
}

}  // namespace
}  // namespace meshwright
