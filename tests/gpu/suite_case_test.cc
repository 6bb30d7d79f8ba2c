#include "tests/gpu/suite_case.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "executor/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

SuiteCase Example() {
  SuiteCase example;
  example.options.steps = 2;
  example.options.batches = 3;
  example.options.seed = 18446744073709551615u;
  example.data_seed = 5;
  example.losses = {0.1, 1.0 / 3};
  example.program = ProgramFromText(kOraclePipeline);
  return example;
}

TEST(SuiteCaseTest, RoundTrips) {
  const SuiteCase before = Example();
  ASSERT_OK_AND_ASSIGN(const SuiteCase after, ParseSuiteCase(ToText(before)));
  EXPECT_EQ(after.options.steps, 2);
  EXPECT_EQ(after.options.batches, 3);
  EXPECT_EQ(after.options.seed, before.options.seed);
  EXPECT_EQ(after.data_seed, 5u);
  EXPECT_EQ(after.losses, before.losses);  // to the bit
  EXPECT_EQ(ToText(after.program), ToText(before.program));
}

TEST(SuiteCaseTest, WhatIsWrongIsNamed) {
  const std::string text = ToText(Example());
  const auto error = [&](const std::string& from, const std::string& to) {
    return std::string(ParseSuiteCase(absl::StrReplaceAll(text, {{from, to}})).status().message());
  };
  EXPECT_THAT(error("ranks 4", "ranks four"), HasSubstr("line 1: found \"ranks four"));
  EXPECT_THAT(error("ranks 4", "ranks 5"), HasSubstr("wanted \"ranks 4\""));
  EXPECT_THAT(error("losses", "lossless"), HasSubstr("line 2: "));
  EXPECT_FALSE(ParseSuiteCase("").ok());
}

// The oracle is of float64: 1e-9 of the loss, no more.
TEST(SuiteCaseTest, OtherLossesAreSeen) {
  const SuiteCase example = Example();
  EXPECT_OK(CompareLosses(example, {0.1 * (1 + 9e-10), 1.0 / 3}));
  EXPECT_THAT(CompareLosses(example, {0.1, 1.0 / 3 * (1 + 2e-9)}),
              StatusIs(absl::StatusCode::kDataLoss, "step 1: found the loss 0.333333333999"));
  EXPECT_THAT(CompareLosses(example, {0.1}), StatusIs(absl::StatusCode::kDataLoss, "found 1 losses, wanted 2"));
}

}  // namespace
}  // namespace meshwright
