// Holds the summary of docs/accuracy.md to what validate says, where the tables of measurements are at hand:
//   MESHWRIGHT_DATA=TABLES tools/bazel test //tools/validate:accuracy_doc_test
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"
#include "tools/validate/page_testing.h"
#include "tools/validate/price_table.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

constexpr char kDocument[] = "docs/accuracy.md";
constexpr char kHeader[] = "| table | rows | predicted | mean | median | worst | bias |";
constexpr char kPeaks[] = "| table | peaks | mean | median | bias | oom called | ran, called to fit |";
constexpr char kPrices[] = "| table | what | rows | mean | median | bias |";

// The cells of the document's table that begins so, by line.
std::vector<std::vector<std::string>> CellsUnder(absl::string_view header) {
  std::vector<std::vector<std::string>> lines;
  for (const std::string& line : LinesUnder(kDocument, header)) {
    std::vector<std::string>& cells = lines.emplace_back();
    for (const absl::string_view cell : absl::StrSplit(line, '|')) cells.emplace_back(absl::StripAsciiWhitespace(cell));
    cells.erase(cells.begin());
  }
  return lines;
}

TEST(AccuracyDocumentTest, TheSummaryHasALineForEachTable) {
  const auto lines = CellsUnder(kHeader);
  EXPECT_GE(lines.size(), 10u);
  for (const auto& cells : lines) EXPECT_GE(cells.size(), 7u) << cells[0];
}

TEST(AccuracyDocumentTest, TheSummaryIsWhatValidateSays) {
  const char* const data = std::getenv("MESHWRIGHT_DATA");
  if (data == nullptr) GTEST_SKIP() << "MESHWRIGHT_DATA names no folder of tables";
  for (const auto& cells : CellsUnder(kHeader)) {
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

TEST(AccuracyDocumentTest, TheLinesOfPeaksAreWhatValidateSays) {
  const char* const data = std::getenv("MESHWRIGHT_DATA");
  if (data == nullptr) GTEST_SKIP() << "MESHWRIGHT_DATA names no folder of tables";
  const auto lines = CellsUnder(kPeaks);
  EXPECT_GE(lines.size(), 5u);
  for (const auto& cells : lines) {
    ASSERT_GE(cells.size(), 7u) << cells[0];
    const std::string file = absl::StrCat(data, "/training/", cells[0], ".csv");
    if (!std::ifstream(file).good()) GTEST_SKIP() << "no table " << file;
    ASSERT_OK_AND_ASSIGN(const CsvTable table, ReadCsv(file));
    ASSERT_OK_AND_ASSIGN(const TrainingTableResult result, PredictTrainingTable(table, {}));
    const TrainingTableSummary summary = Summarise(result);
    EXPECT_EQ(cells[1], absl::StrCat(summary.memory.count)) << cells[0];
    EXPECT_EQ(cells[5], absl::StrCat(summary.oom_right, " of ", summary.oom_rows)) << cells[0];
    EXPECT_EQ(cells[6], absl::StrCat(summary.fitting_right, " of ", summary.fitting_rows)) << cells[0];
    if (summary.memory.count == 0) continue;
    EXPECT_EQ(cells[2], absl::StrFormat("%.1f", 100 * summary.memory.mean)) << cells[0];
    EXPECT_EQ(cells[3], absl::StrFormat("%.1f", 100 * summary.memory.median)) << cells[0];
    EXPECT_EQ(cells[4], absl::StrFormat("%+.1f", 100 * summary.memory.bias)) << cells[0];
  }
}

// "1120 / 1530": a part of a line for each device or kind. Parts of as many rows as the table or a group of it has are
// held to that; those of nccl_collectives are of nodes, which are no groups.
TEST(AccuracyDocumentTest, TheLinesOfPricesAreWhatValidateSays) {
  const char* const data = std::getenv("MESHWRIGHT_DATA");
  if (data == nullptr) GTEST_SKIP() << "MESHWRIGHT_DATA names no folder of tables";
  int held = 0;
  for (const auto& cells : CellsUnder(kPrices)) {
    ASSERT_GE(cells.size(), 6u) << cells[0];
    const std::string kernels = absl::StrCat(data, "/kernels/", cells[0], ".csv");
    const std::string collectives = absl::StrCat(data, "/collectives/", cells[0], ".csv");
    const bool products = std::ifstream(kernels).good();
    if (!products && !std::ifstream(collectives).good()) GTEST_SKIP() << "no table " << cells[0];
    ASSERT_OK_AND_ASSIGN(const CsvTable table, ReadCsv(products ? kernels : collectives));
    ASSERT_OK_AND_ASSIGN(const PriceTableResult result,
                         products ? PriceKernelTable(table, {}) : PriceCollectiveTable(table, {}));
    const PriceTableSummary summary = Summarise(result);
    std::set<std::string> said = {absl::StrFormat("%d %.1f %.1f %+.1f", summary.all.count, 100 * summary.all.mean,
                                                  100 * summary.all.median, 100 * summary.all.bias)};
    std::set<std::string> counts = {absl::StrCat(summary.all.count)};
    for (const auto& [name, e] : summary.groups) {
      said.insert(absl::StrFormat("%d %.1f %.1f %+.1f", e.count, 100 * e.mean, 100 * e.median, 100 * e.bias));
      counts.insert(absl::StrCat(e.count));
    }
    const auto parts = [&](size_t cell) { return std::vector<std::string>(absl::StrSplit(cells[cell], " / ")); };
    for (size_t i = 0; i < parts(2).size(); ++i) {
      if (counts.count(parts(2)[i]) == 0) continue;
      const std::string line = absl::StrCat(parts(2)[i], " ", parts(3)[i], " ", parts(4)[i], " ", parts(5)[i]);
      EXPECT_TRUE(said.count(line) == 1) << cells[0] << ": " << line;
      ++held;
    }
  }
  EXPECT_GE(held, 10);
}

}  // namespace
}  // namespace meshwright
