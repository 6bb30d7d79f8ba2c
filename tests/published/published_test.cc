// Holds what is said of predictions to the published measurements of this folder: the table of README.md here, by file,
// and the record by kind of run that `plan` prints (tools/track_record.cc) and docs/accuracy.md and README.md show.
// Where a prediction changed, each test prints the lines that belong there now.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/track_record.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"
#include "tools/validate/page_testing.h"
#include "tools/validate/price_table.h"
#include "tools/validate/score.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

constexpr char kFolder[] = "tests/published";
constexpr char kPage[] = "tests/published/README.md";
constexpr char kRuns[] =
    "| training | rows | predicted | mean | median | worst | bias | peaks | mean | bias | out of memory |";
constexpr char kCollectives[] = "| collectives | rows | predicted | mean | median | worst | bias |";
constexpr char kKernels[] = "| kernels | rows | predicted | mean | median | worst | bias |";
constexpr char kKinds[] = "| kind of run | rows | mean | median | bias | eight in ten took |";

// By name.
std::vector<CsvTable> TablesOf(absl::string_view what) {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(absl::StrCat(kFolder, "/", what))) {
    files.push_back(file.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<CsvTable> tables;
  for (const std::string& file : files) {
    auto table = ReadCsv(file);
    EXPECT_OK(table.status());
    if (table.ok()) tables.push_back(*std::move(table));
  }
  return tables;
}

std::string NameOf(absl::string_view file) { return std::filesystem::path(std::string(file)).stem().string(); }

void ExpectPageSays(const char* page, absl::string_view header, const std::vector<std::string>& lines) {
  EXPECT_FALSE(lines.empty());
  EXPECT_TRUE(LinesUnder(page, header) == lines) << "wanted in " << page << " under\n"
                                                 << header << "\n"
                                                 << absl::StrJoin(lines, "\n");
}

// "| 20 | 4.1 | 3.2 | -9.0 | +1.2 |", or cells with nothing where there are no rows.
std::string CellsOf(const ErrorSummary& e) {
  if (e.count == 0) return " 0 | | | | |";
  return absl::StrFormat(" %d | %.1f | %.1f | %+.1f | %+.1f |", e.count, 100 * e.mean, 100 * e.median, 100 * e.worst,
                         100 * e.bias);
}

class PublishedRunsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const CsvTable& table : TablesOf("training")) {
      auto result = PredictTrainingTable(table, {});
      ASSERT_OK(result.status());
      results_.push_back(*std::move(result));
    }
  }
  static void TearDownTestSuite() { results_.clear(); }

  inline static std::vector<TrainingTableResult> results_;
};

TEST_F(PublishedRunsTest, ThePageSaysHowFarEachFileIsOff) {
  std::vector<std::string> lines;
  for (const TrainingTableResult& result : results_) {
    const TrainingTableSummary s = Summarise(result);
    std::string& line =
        lines.emplace_back(absl::StrCat("| ", NameOf(result.file), " | ", s.rows, " |", CellsOf(s.time)));
    if (s.memory.count == 0) {
      absl::StrAppend(&line, " 0 | | |");
    } else {
      absl::StrAppendFormat(&line, " %d | %.1f | %+.1f |", s.memory.count, 100 * s.memory.mean, 100 * s.memory.bias);
    }
    absl::StrAppend(&line, s.oom_rows == 0 ? " |" : absl::StrCat(" ", s.oom_right, " of ", s.oom_rows, " |"));
  }
  ExpectPageSays(kPage, kRuns, lines);
}

TEST_F(PublishedRunsTest, TheRecordOfEachKindIsOfTheseRuns) {
  std::vector<std::string> lines, rows;
  const std::vector<KindSummary> kinds = SummariseKinds(results_);
  EXPECT_EQ(kinds.size(), kNumRunKinds) << "a kind without a run";
  for (const KindSummary& kind : kinds) {
    const TrackRecord& record = TrackRecordOf(kind.kind);
    const auto row = [&](size_t runs, double median, double low, double high) {
      return absl::StrFormat("    {\"%s\", %d, %.3f, %.2f, %.2f},", record.name, runs, median, low, high);
    };
    rows.push_back(row(kind.errors.count, kind.errors.median, kind.low, kind.high));
    EXPECT_EQ(row(record.runs, record.median, record.low, record.high), rows.back());
    lines.push_back(absl::StrFormat("| %s | %d | %.1f | %.1f | %+.1f | %.2f to %.2f |", record.name, kind.errors.count,
                                    100 * kind.errors.mean, 100 * kind.errors.median, 100 * kind.errors.bias, kind.low,
                                    kind.high));
  }
  if (HasNonfatalFailure()) ADD_FAILURE() << "wanted in tools/track_record.cc\n" << absl::StrJoin(rows, "\n");
  for (const char* const page : {"docs/accuracy.md", "README.md"}) ExpectPageSays(page, kKinds, lines);
}

template <typename Predict>
std::vector<std::string> PriceLines(absl::string_view what, const Predict& predict) {
  std::vector<std::string> lines;
  for (const CsvTable& table : TablesOf(what)) {
    const auto result = predict(table, RowOverrides());
    EXPECT_OK(result.status());
    if (!result.ok()) continue;
    const PriceTableSummary s = Summarise(*result);
    lines.push_back(absl::StrCat("| ", NameOf(table.file), " | ", s.rows, " |", CellsOf(s.all)));
  }
  return lines;
}

TEST(PublishedPricesTest, ThePageSaysHowFarEachFileIsOff) {
  ExpectPageSays(kPage, kCollectives, PriceLines("collectives", PriceCollectiveTable));
  ExpectPageSays(kPage, kKernels, PriceLines("kernels", PriceKernelTable));
}

TEST(PublishedTest, EachRowNamesItsSource) {
  for (const char* const what : {"training", "kernels", "collectives"}) {
    for (const CsvTable& table : TablesOf(what)) {
      for (const CsvRow& row : table.rows) {
        EXPECT_EQ(row.damaged, "") << table.file << ":" << row.line;
        EXPECT_NE(CsvCells(table, row).Text("source"), "") << table.file << ":" << row.line;
      }
    }
  }
}

}  // namespace
}  // namespace meshwright
