// docs/semantics.md has a section for each feature row, with the row's test and something to run.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

constexpr int kRows = 37;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// What the section of `row`, such as "F06", lacks.
std::vector<std::string> Lacks(const std::string& row, absl::string_view page, absl::string_view build) {
  std::vector<std::string> lacks;
  const std::string heading = absl::StrCat("\n## ", row, " ");
  const size_t begin = page.find(heading);
  if (begin == absl::string_view::npos) return {"a section"};
  const absl::string_view section = page.substr(begin, page.find("\n## ", begin + heading.size()) - begin);
  if (!absl::StrContains(section, absl::StrCat("\nTest: `//tests/semantics:", row, "`"))) lacks.push_back("its test");
  if (!absl::StrContains(build, absl::StrCat("name = \"", row, "\","))) lacks.push_back("a target");
  const std::vector<absl::string_view> fences = absl::StrSplit(section, "\n```");
  if (fences.size() < 3) lacks.push_back("an example");
  // The heading, the line of the test and the example are no account of what the row does.
  size_t prose = 0;
  for (size_t i = 0; i < fences.size(); i += 2) prose += fences[i].size();
  if (prose < 200) lacks.push_back("what it does");
  return lacks;
}

TEST(SemanticsPageTest, EveryRowHasItsSectionTestAndExample) {
  const std::string page = Read("docs/semantics.md");
  const std::string build = Read("tests/semantics/BUILD.bazel");
  for (int row = 1; row <= kRows; ++row) {
    const std::string name = absl::StrFormat("F%02d", row);
    EXPECT_THAT(Lacks(name, page, build), testing::IsEmpty()) << name;
  }
}

TEST(SemanticsPageTest, NamesWhatASectionLacks) {
  const std::string prose(200, 'x');
  const std::string whole =
      absl::StrCat("\n## F01 A row\n\n", prose, "\n\nTest: `//tests/semantics:F01`\n\n```\nrun\n```\n");
  EXPECT_THAT(Lacks("F01", whole, "name = \"F01\","), testing::IsEmpty());
  EXPECT_THAT(Lacks("F02", whole, ""), testing::ElementsAre("a section"));
  EXPECT_THAT(Lacks("F01", whole, ""), testing::ElementsAre("a target"));
  EXPECT_THAT(Lacks("F01", "\n## F01 A row\n\n## F02 B\n```\nrun\n```\n", ""),
              testing::ElementsAre("its test", "a target", "an example", "what it does"));
}

}  // namespace
}  // namespace meshwright
