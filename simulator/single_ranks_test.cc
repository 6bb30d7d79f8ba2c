#include "simulator/single_ranks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// On four ranks, layers of two kernels that go round, a of each layer by the ranks 0, 2, 0, 2, .. and b by 1, 3, 1, 3,
// .., and one that all ranks run.
std::string Layers(int64_t layers) {
  return absl::StrCat(R"(program turns mesh x=4
class all
  buffer x float32 (4) {-} input
  buffer a float32 (4) {-} temporary
  buffer b float32 (4) {-} temporary
  buffer c float32 (4) {-} temporary
  block "layers update" backward
    compute ReLU turn 0 step 2 reads x writes a
    compute ReLU turn 1 step 2 reads x writes b
    compute ReLU reads x writes c
  slot "layers update" mb 0 layer 0 x)",
                      layers, " up\n");
}

// What is left of 30 and 10 ns, and of 5.
std::vector<Nanos> Shared(int64_t layers) {
  const absl::StatusOr<Program> program = ParseProgram(Layers(layers));
  EXPECT_OK(program);
  std::vector<std::vector<InstructionPrice>> prices(1, std::vector<InstructionPrice>(3));
  prices[0][0].time = Nanos(30);
  prices[0][1].time = Nanos(10);
  prices[0][2].time = Nanos(5);
  ShareTurns(program->classes[0], program->ranks_per_class(), prices);
  return {prices[0][0].time, prices[0][1].time, prices[0][2].time};
}

// Of four layers rank 0 has two a's, 60 ns of 160: so all of them take 60/160 of their time. Of one layer it has one of
// two kernels, 30 of 40, and of five layers three, 90 of 200.
TEST(ShareTurnsTest, TogetherTheyTakeAsLongAsTheBusiestRank) {
  EXPECT_EQ(Shared(4), (std::vector<Nanos>{Nanos(11), Nanos(4), Nanos(5)}));  // 11.25, 3.75
  EXPECT_EQ(Shared(1), (std::vector<Nanos>{Nanos(23), Nanos(8), Nanos(5)}));  // 22.5, 7.5
  EXPECT_EQ(Shared(5), (std::vector<Nanos>{Nanos(14), Nanos(5), Nanos(5)}));  // 13.5, 4.5
}

TEST(ShareTurnsTest, WhatAllRanksRunCostsWhatItDoes) {
  std::string text = Layers(3);
  for (const char* turn : {" turn 0 step 2", " turn 1 step 2"}) text.erase(text.find(turn), std::string(turn).size());
  const absl::StatusOr<Program> program = ParseProgram(text);
  ASSERT_OK(program);
  std::vector<std::vector<InstructionPrice>> prices(1, std::vector<InstructionPrice>(3));
  for (InstructionPrice& price : prices[0]) price.time = Nanos(7);
  ShareTurns(program->classes[0], 4, prices);
  for (const InstructionPrice& price : prices[0]) EXPECT_EQ(price.time, Nanos(7));
}

}  // namespace
}  // namespace meshwright
