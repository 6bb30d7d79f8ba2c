#include "tools/batch_advice.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

std::string Advice(int64_t batch, const std::string& cluster, int64_t data_parallel) {
  const absl::StatusOr<Session> session = OpenModel(
      {"m.yaml", absl::StrCat("{name: m, architecture: {decoder: {hidden: 8, layers: 2, heads: 2, vocab: 32}}, "
                              "training: {batch: ",
                              batch, ", sequence: 16}, cluster: {", cluster, "}}")},
      Flags());
  EXPECT_OK(session);
  return session.ok() ? AdviceOnBatch(*session, data_parallel) : "";
}

// 20 sequences on 8 devices: 4 divides both; 16 and 24 are the multiples beside it. 5 devices would all have some, but
// three were idle.
TEST(BatchAdviceTest, ABatchThatDevicesDoNotDivideIsAdvisedAgainst) {
  const std::string eight = "device: h100, devices: 8";
  EXPECT_EQ(Advice(20, eight, 4),
            "a batch of 20 is no multiple of 8 devices: at most 4 can share it; 16 or 24 would leave more plans");
  EXPECT_EQ(Advice(20, eight, 2), "") << "a plan that shares it less has other reasons";
  EXPECT_EQ(Advice(20, "device: h100, devices: 4", 4), "");
  EXPECT_EQ(Advice(20, "device: h100, devices: 32", 4), "") << "more devices than sequences split something else, too";
}

}  // namespace
}  // namespace meshwright
