// ir/testing.h
//
// What tests need to look at absl::Status and absl::StatusOr<T>. For tests only.
//
//   ASSERT_OK_AND_ASSIGN(const Graph graph, ParseGraph(text));   // fails the test with the error's text
//   EXPECT_OK(Verify(graph));
//   EXPECT_THAT(ParseGraph("?"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1")));
//
// ASSERT_OK and ASSERT_OK_AND_ASSIGN end the test function: usable where the function returns void.
#ifndef MESHWRIGHT_IR_TESTING_H_
#define MESHWRIGHT_IR_TESTING_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"

namespace meshwright {

// Matches a Status or StatusOr without error.
MATCHER(IsOk, negation ? "is an error" : "is OK") {
  const absl::Status status = status_internal::ToStatus(arg);
  *result_listener << "whose status is " << status;
  return status.ok();
}

// Matches a Status or StatusOr with code `code` and a message that `message` matches: a gmock matcher such as
// HasSubstr("..."), or a plain string, which is looked for anywhere in the message.
MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status status = status_internal::ToStatus(arg);
  *result_listener << "whose status is " << status;
  return status.code() == code && ::testing::Matches(message)(std::string(status.message()));
}
inline auto StatusIs(absl::StatusCode code, const char* substring) {
  return StatusIs(code, ::testing::HasSubstr(substring));
}
inline auto StatusIs(absl::StatusCode code, const std::string& substring) {
  return StatusIs(code, ::testing::HasSubstr(substring));
}
inline auto StatusIs(absl::StatusCode code) { return StatusIs(code, ::testing::_); }

}  // namespace meshwright

#define EXPECT_OK(expr) EXPECT_THAT(expr, ::meshwright::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT(expr, ::meshwright::IsOk())

// Assigns the value of `expr`, an absl::StatusOr<T>, to `lhs`, which may be a declaration; ends the test if it holds an
// error. The same restrictions as for MESHWRIGHT_ASSIGN_OR_RETURN.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL(MESHWRIGHT_STATUS_CONCAT(meshwright_result_, __LINE__), lhs, expr)

#define ASSERT_OK_AND_ASSIGN_IMPL(result, lhs, expr)              \
  auto result = (expr);                                           \
  ASSERT_TRUE(result.ok()) << #expr << " is " << result.status(); \
  lhs = *std::move(result)

#endif  // MESHWRIGHT_IR_TESTING_H_
