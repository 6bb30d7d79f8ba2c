// Files that say something wrong: each gives its golden message, with file, line and column, and exit code 3, within a
// second of work.
//
// tests/golden/bad_inputs/NAME.yaml is the file, NAME.txt what is said. A new message is read by a person and put there
// by hand: the test prints it.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/cli/run_tool.h"

namespace meshwright {
namespace {

constexpr char kFolder[] = "tests/golden/bad_inputs";

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class BadInputTest : public testing::TestWithParam<std::string> {};

TEST_P(BadInputTest, GivesItsMessage) {
  const std::string path = absl::StrCat(kFolder, "/", GetParam(), ".yaml");
  // A plan is simulated, a model planned.
  const bool plan = absl::StartsWith(ReadText(path), "schema:");
  const ToolResult result = plan ? RunTool("simulate", {path}) : RunTool("plan", {path, "--out="});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_LT(result.seconds, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, ReadText(absl::StrCat(kFolder, "/", GetParam(), ".txt")));
}

INSTANTIATE_TEST_SUITE_P(All, BadInputTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return "No" + info.param; });

TEST(BadInputsTest, ThereAreAtLeastTwenty) { EXPECT_GE(Names().size(), 20u); }

}  // namespace
}  // namespace meshwright
