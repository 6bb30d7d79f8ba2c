// Holds the summary of docs/accuracy.md to what validate says, where the tables of measurements are at hand:
//   MESHWRIGHT_DATA=TABLES tools/bazel test //tools/validate:accuracy_doc_test
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

constexpr char kDocument[] = "docs/accuracy.md";
constexpr char kHeader[] = "| table | rows | predicted | mean | median | worst | bias |";

// The cells of the summary's lines, by line.
std::vector<std::vector<std::string>> SummaryLines() {
  std::ifstream in(kDocument);
  std::vector<std::vector<std::string>> lines;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, kHeader)) {
      inside = true;
      std::getline(in, line);  // the rule under it
    } else if (inside && !absl::StartsWith(line, "|")) {
      break;
    } else if (inside) {
      std::vector<std::string> cells;
      for (absl::string_view cell : absl::StrSplit(line, '|')) cells.emplace_back(absl::StripAsciiWhitespace(cell));
      lines.push_back(std::vector<std::string>(cells.begin() + 1, cells.end()));
    }
  }
  return lines;
}

TEST(AccuracyDocumentTest, TheSummaryHasALineForEachTable) {
  const auto lines = SummaryLines();
  EXPECT_GE(lines.size(), 10u);
  for (const auto& cells : lines) EXPECT_GE(cells.size(), 7u) << cells[0];
}

TEST(AccuracyDocumentTest, TheSummaryIsWhatValidateSays) {
  const char* const data = std::getenv("MESHWRIGHT_DATA");
  if (data == nullptr) GTEST_SKIP() << "MESHWRIGHT_DATA names no folder of tables";
  for (const auto& cells : SummaryLines()) {
    const std::string file = absl::StrCat(data, "/training/", cells[0], ".csv");
    if (!std::ifstream(file).good()) GTEST_SKIP() << "no table " << file;
    ASSERT_OK_AND_ASSIGN(const CsvTable table, ReadCsv(file));
    ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
    const TrainingTableSummary summary = Summarise(result);
    EXPECT_EQ(cells[1], absl::StrCat(summary.rows)) << cells[0];
    EXPECT_EQ(cells[2], absl::StrCat(summary.time.count)) << cells[0];
    if (summary.time.count == 0) continue;
    EXPECT_EQ(cells[3], absl::StrFormat("%.1f", 100 * summary.time.mean)) << cells[0];
    EXPECT_EQ(cells[4], absl::StrFormat("%.1f", 100 * summary.time.median)) << cells[0];
    EXPECT_EQ(cells[5], absl::StrFormat("%+.1f", 100 * summary.time.worst)) << cells[0];
    EXPECT_EQ(cells[6], absl::StrFormat("%+.1f", 100 * summary.time.bias)) << cells[0];
  }
}

}  // namespace
}  // namespace meshwright
