#include "ir/status.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::Status Wrong() { return absl::InvalidArgumentError("line 7: a wheel is missing"); }

// Counts its calls in `*calls`, then returns the error of `first` if there is one, else OK from after the macro.
absl::Status ReturnIfError(const absl::Status& first, int* calls) {
  const auto next = [&] {
    ++*calls;
    return first;
  };
  MESHWRIGHT_RETURN_IF_ERROR(next());
  return absl::AbortedError("reached the end");
}

absl::StatusOr<std::unique_ptr<int>> AddOne(absl::StatusOr<std::unique_ptr<int>> number) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::unique_ptr<int> value, std::move(number));
  ++*value;
  return value;
}

TEST(ReturnIfErrorTest, PassesTheErrorOnAndEvaluatesOnce) {
  int calls = 0;
  EXPECT_EQ(ReturnIfError(Wrong(), &calls), Wrong());
  EXPECT_EQ(calls, 1);
}

TEST(ReturnIfErrorTest, GoesOnWhereThereIsNoError) {
  int calls = 0;
  EXPECT_THAT(ReturnIfError(absl::OkStatus(), &calls), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(calls, 1);
}

TEST(ReturnIfErrorTest, TakesAStatusOr) {
  const auto function = [](const absl::StatusOr<int>& result) {
    MESHWRIGHT_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  };
  EXPECT_OK(function(1));
  EXPECT_EQ(function(Wrong()), Wrong());
}

TEST(AssignOrReturnTest, MovesTheValueOut) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<int> value, AddOne(std::make_unique<int>(41)));
  EXPECT_EQ(*value, 42);
}

TEST(AssignOrReturnTest, PassesTheErrorOn) { EXPECT_EQ(AddOne(Wrong()).status(), Wrong()); }

TEST(StatusIsTest, ComparesCodeAndMessage) {
  EXPECT_THAT(Wrong(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Wrong(), StatusIs(absl::StatusCode::kInvalidArgument, "a wheel"));
  EXPECT_THAT(Wrong(), StatusIs(absl::StatusCode::kInvalidArgument, std::string("a wheel")));
  EXPECT_THAT(Wrong(), StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("line 7")));
  EXPECT_THAT(Wrong(), Not(StatusIs(absl::StatusCode::kNotFound)));
  EXPECT_THAT(Wrong(), Not(StatusIs(absl::StatusCode::kInvalidArgument, "a pedal")));
}

TEST(StatusIsTest, TakesAStatusOr) {
  EXPECT_THAT(absl::StatusOr<int>(Wrong()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("wheel")));
  EXPECT_THAT(absl::StatusOr<int>(3), StatusIs(absl::StatusCode::kOk));
}

TEST(IsOkTest, TellsErrorsFromValues) {
  EXPECT_OK(absl::OkStatus());
  EXPECT_OK(absl::StatusOr<int>(3));
  EXPECT_THAT(Wrong(), Not(IsOk()));
  EXPECT_THAT(absl::StatusOr<int>(Wrong()), Not(IsOk()));
}

TEST(AssertOkAndAssignTest, FailsTheTestWithTheErrorsText) {
  EXPECT_FATAL_FAILURE(
      {
        ASSERT_OK_AND_ASSIGN(const int value, absl::StatusOr<int>(Wrong()));
        (void)value;
      },
      "line 7: a wheel is missing");
}

}  // namespace
}  // namespace meshwright
