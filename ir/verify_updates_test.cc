// Instructions that update several parameters: what the verifier says of them.
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

// Two parameters that one axis splits, along different dims: each is an update of its own.
constexpr char kUpdates[] = R"(program updates mesh a=2
class s
  buffer w float32 (4, 6) {a | -} parameter
  buffer dw float32 (4, 6) {a | -} gradient
  buffer v float32 (8) {a} parameter
  buffer dv float32 (8) {a} gradient
  block b backward
    compute Fill scale=1 writes dw dv
    compute SGD tensors=2 learning_rate=0.1 reads w dw v dv writes w v
  slot b mb 0 layer 0
)";

TEST(VerifyUpdatesTest, Rule3EachIsAnUpdateOfItsOwn) {
  // What the verifier says when `from` becomes `to`.
  const auto changed = [](const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(kUpdates, {{from, to}});
    EXPECT_NE(text, kUpdates) << from;
    const absl::StatusOr<Program> program = ParseProgram(text);
    return std::string((program.ok() ? VerifyProgram(*program) : program.status()).message());
  };
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kUpdates));
  EXPECT_OK(VerifyProgram(program));
  EXPECT_EQ(changed("tensors=2", "tensors=3"),
            "rule 3: class s, block b, instruction 1 (compute SGD learning_rate=0.1 tensors=3 reads w dw v dv writes w "
            "v): is no SGD of 3 tensors, found 4 inputs and 2 outputs");
  EXPECT_THAT(changed("tensors=2", "tensors=0"), HasSubstr("is no SGD of 0 tensors"));
  EXPECT_THAT(changed("compute SGD", "compute SGD \"a, a, b, b -> a, b\""), HasSubstr("has a rule"));
  EXPECT_THAT(changed("dv float32 (8) {a}", "dv float32 (8) {-}"),
              HasSubstr("d0 is split over a in input 0 (v) and over - in input 1 (dv)"));
  EXPECT_THAT(changed("dv float32 (8) {a}", "dv float32 (6) {a}"), HasSubstr("d0 is 8 in input 0 and 6 in input 1"));
  EXPECT_THAT(changed("compute Fill scale=1", "compute Fill scale=1 tensors=2"), HasSubstr("is no Fill of 2 tensors"));
}

}  // namespace
}  // namespace meshwright
