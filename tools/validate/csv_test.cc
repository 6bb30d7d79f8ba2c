#include "tools/validate/csv.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

TEST(CsvTest, QuotedCellsHoldCommasQuotesAndLineBreaks) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("a,b\r\n\"x, \"\"y\"\"\",\"two\nlines\"\n\n , 3 \n", "t.csv"));
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"x, \"y\"", "two\nlines"}));
  EXPECT_EQ(table.rows[0].line, 2);
  EXPECT_EQ(table.rows[1].line, 5);  // header 1, record 2 and 3, blank 4
  const CsvCells cells(table, table.rows[1]);
  EXPECT_EQ(cells.Text("a"), "");
  ASSERT_OK_AND_ASSIGN(const std::optional<int64_t> three, cells.Int("b", 1));
  EXPECT_EQ(three, 3);
  ASSERT_OK_AND_ASSIGN(const std::optional<double> none, cells.Number("no such column"));
  EXPECT_FALSE(none.has_value());
}

TEST(CsvTest, SpacesAroundQuotes) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("\"a\" , \"b\"\n 1, \"2,\" \n", "t.csv"));
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{" 1", "2,"}));
}

TEST(CsvTest, ALastLineNeedsNoEndAndMayEndWithAnEmptyCell) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("\xEF\xBB\xBF"
                                                      "a,b\n1,",
                                                      "t.csv"));
  EXPECT_EQ(table.columns[0], "a");
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"1", ""}));
}

std::string ErrorOf(const std::string& text) { return std::string(ParseCsv(text, "t.csv").status().message()); }

// As spreadsheets write: other cases, thousands, empty cells dropped at the end.
TEST(CsvTest, TablesMadeByHand) {
  const auto table = ParseCsv("GPUs,Step_Time_s,notes\n\"1,024\",\"12,345.5\"\n\"1,02\",1,x\n", "t.csv");
  ASSERT_OK(table);
  const CsvCells cells(*table, table->rows[0]);
  EXPECT_EQ(cells.Int("gpus", 1).value(), 1024);
  EXPECT_EQ(cells.Number("step_time_s").value(), 12345.5);
  EXPECT_EQ(cells.Text("notes"), "");
  EXPECT_FALSE(CsvCells(*table, table->rows[1]).Number("gpus").ok());
}

// As spreadsheets write where commas are for fractions; "1,024" may be a thousand or one.
TEST(CsvTest, OtherSeparators) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("a;\"b,;c\"\n4,25;\"x;y\"\n1,024;3\n", "t.csv"));
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b,;c"}));
  const CsvCells cells(table, table.rows[0]);
  EXPECT_EQ(cells.Number("a").value(), 4.25);
  EXPECT_EQ(cells.Text("b,;c"), "x;y");
  EXPECT_EQ(CsvCells(table, table.rows[1]).Number("a").value(), 1.024);
  ASSERT_OK_AND_ASSIGN(const CsvTable tabs, ParseCsv("\na\tb\n1,024\t2\n", "t.csv"));
  EXPECT_EQ(tabs.rows[0].cells, (std::vector<std::string>{"1,024", "2"}));
  EXPECT_EQ(CsvCells(tabs, tabs.rows[0]).Number("a").value(), 1024);
}

// A spreadsheet of a country whose fractions stand behind commas. Versions of a column with points stay.
TEST(CsvTest, OneFractionBehindACommaTellsOfAllNumbers) {
  for (const char separator : {';', '\t'}) {
    const std::string text = absl::StrReplaceAll(
        "time;rate;torch;shape\n9,87;106.240;2.4;1,5 x 2\n9,125;1.024,5;2.100;x\n", {{";", std::string(1, separator)}});
    ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv(text, "t.csv"));
    EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"9.87", "106240", "2.4", "1,5 x 2"}));
    EXPECT_EQ(table.rows[1].cells, (std::vector<std::string>{"9.125", "1024.5", "2.100", "x"}));
    EXPECT_EQ(table.remarks,
              (std::vector<std::string>{"commas are decimal here, and points of thousands, as in \"106.240\""}));
  }
  // Without one, a point is a point.
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("time;rate\n9;106.240\n", "t.csv"));
  EXPECT_EQ(table.rows[0].cells[1], "106.240");
}

// Who writes 0,1 in a column may mean 3125 or 3.125 by "3.125" there: that row is not guessed at.
TEST(CsvTest, APointThatMayBeOfThousandsOrOfAFractionIsNotRead) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("time\trate\n0,1\t7\n3.125\t7\n", "t.tsv"));
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"0.1", "7"}));
  EXPECT_EQ(table.rows[1].cells, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(table.rows[1].damaged,
            "t.tsv:3: time: found \"3.125\" in a column whose fractions stand behind commas, wanted no point that may "
            "be of thousands or of a fraction; write 3,125 or 3125");
  // Another cell tells.
  ASSERT_OK_AND_ASSIGN(const CsvTable told, ParseCsv("time\trate\n0,1\t7\n3.125\t7\n1.024,5\t7\n", "t.tsv"));
  EXPECT_EQ(told.rows[1].cells, (std::vector<std::string>{"3125", "7"}));
}

TEST(CsvTest, WhatSpreadsheetsLeaveBehind) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("\xEF\xBB\xBF"
                                                      "a,b\r\n1,#DIV/0!\r\n,\r\n #N/A ,2\r\n,,,\r\n",
                                                      "t.csv"));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[1].line, 4);
  EXPECT_EQ(CsvCells(table, table.rows[0]).Number("b").value(), std::nullopt);
  EXPECT_EQ(CsvCells(table, table.rows[1]).Number("a").value(), std::nullopt);
}

// What is wrong with a row costs that row, and no other.
TEST(CsvTest, ADamagedRowSaysSo) {
  const auto damaged = [](const std::string& rows) {
    const absl::StatusOr<CsvTable> table = ParseCsv("a,b\n1,2\n" + rows + "7,8\n", "t.csv");
    if (!table.ok()) return std::string(table.status().message());
    std::string found;
    for (const CsvRow& row : table->rows) {
      EXPECT_EQ(row.cells.size(), 2u);
      found += row.damaged;
    }
    EXPECT_EQ(table->rows.front().cells[1], "2");
    EXPECT_EQ(table->rows.back().cells[1], "8");
    EXPECT_EQ(table->rows.back().damaged, "");
    return found;
  };
  EXPECT_EQ(damaged("3,4,5\n"), "t.csv:3: found 3 cells, wanted 2 as in the header");
  EXPECT_THAT(damaged("1,\"2\n"), HasSubstr("t.csv:3: found an opening quote"));
  EXPECT_THAT(damaged("1,\"2\"x\n"), HasSubstr("t.csv:3: found text behind a closing quote"));
  EXPECT_EQ(damaged("3,4,,,\n3,5\" wide\n"), "");  // a spreadsheet's empty cells; a quote for inches
}

TEST(CsvTest, OfColumnsWithOneNameTheFirstCounts) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("notes,a,Notes,,\nx,1,y,,\n", "t.csv"));
  EXPECT_EQ(CsvCells(table, table.rows[0]).Text("notes"), "x");
  EXPECT_EQ(CsvCells(table, table.rows[0]).Text("a"), "1");
  EXPECT_EQ(table.remarks, (std::vector<std::string>{"the column \"notes\" stands twice: the first counts"}));
}

TEST(CsvTest, ErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("t.csv:1: found no header"));
  EXPECT_THAT(ErrorOf("a,\"b\n1,2\n"), HasSubstr("t.csv:1: found an opening quote"));
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("n\nmany\n1.5\n0\n", "t.csv"));
  EXPECT_THAT(std::string(CsvCells(table, table.rows[0]).Int("n", 0).status().message()),
              HasSubstr("t.csv:2: n: found \"many\", wanted a number"));
  EXPECT_THAT(std::string(CsvCells(table, table.rows[1]).Int("n", 0).status().message()),
              HasSubstr("t.csv:3: n: found \"1.5\", wanted an integer"));
  EXPECT_FALSE(CsvCells(table, table.rows[2]).Int("n", 1).ok());
}

// As READMEs have them.
TEST(CsvTest, TablesInMarkdown) {
  const auto read = ParseCsv("| Model | GPUs |\n|---|:---:|\n| Llama | 8 |\n", "t.md");
  ASSERT_OK(read);
  ASSERT_EQ(read->rows.size(), 1U);
  EXPECT_EQ(CsvCells(*read, read->rows[0]).Text("model"), "Llama");
  EXPECT_EQ(CsvCells(*read, read->rows[0]).Text("gpus"), "8");
}

// Text with commas before the table is none of its columns.
TEST(CsvTest, ProseBeforeATableInMarkdown) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("Hi all, our numbers (Megatron-LM, H100, bf16)\n\nas | promised:\n\n"
                                "| Model | GPUs |\n|---|:---:|\n| Llama | 8 |\n",
                                "t.md"));
  EXPECT_EQ(table.title, "hi all, our numbers (megatron-lm, h100, bf16); as | promised:");
  EXPECT_EQ(table.separator, '|');
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].line, 7);
  EXPECT_EQ(CsvCells(table, table.rows[0]).Text("model"), "Llama");
}

TEST(CsvTest, ATableInMarkdownInACellIsOfItsCell) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("model,notes\nLlama,\"see\n| a | b |\n|---|---|\n| 1 | 2 |\"\nQwen,\n", "t.csv"));
  EXPECT_EQ(table.separator, ',');
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(CsvCells(table, table.rows[1]).Text("model"), "Qwen");
}

// As programs print them, with what they say before; pandas numbers its rows.
TEST(CsvTest, TablesBetweenSpaces) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("# Allreduce of this machine\n\n# Size    Avg Latency(us)\n-----  ----\n"
                                "8           1.5\n16 2\n",
                                "t.txt"));
  EXPECT_EQ(table.columns, (std::vector<std::string>{"size", "avg latency(us)"}));
  EXPECT_EQ(table.title, "allreduce of this machine");
  EXPECT_EQ(table.places, (std::vector<std::string>{"t.txt:3:3", "t.txt:3:11"}));
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"8", "1.5"}));
  EXPECT_EQ(table.rows[1].cells, (std::vector<std::string>{"16", "2"}));
  ASSERT_OK_AND_ASSIGN(const CsvTable pandas,
                       ParseCsv("perf:\n      M     Triton [FP16]\n0   256.0     4.5\n", "t.txt"));
  EXPECT_EQ(pandas.rows[0].cells, (std::vector<std::string>{"256.0", "4.5"}));
  EXPECT_EQ(pandas.rows[0].line, 3);
  ASSERT_OK_AND_ASSIGN(const CsvTable column, ParseCsv("name\n\"a,b\"\n", "t.csv"));  // no title
  EXPECT_EQ(column.columns, std::vector<std::string>{"name"});
  ASSERT_OK_AND_ASSIGN(const CsvTable bold, ParseCsv("| a |\n|--|\n| **1** |\n", "t.md"));
  EXPECT_EQ(CsvCells(bold, bold.rows[0]).Text("a"), "1");
}

TEST(CsvTest, Utf16IsRefused) {
  EXPECT_THAT(ParseCsv(std::string("\xFF\xFEm\0", 4), "t.csv"),
              StatusIs(absl::StatusCode::kInvalidArgument, "found UTF-16, wanted UTF-8"));
}

// 2^24 cells are 16,777 rows of 1,000 columns.
TEST(CsvTest, ShortLinesBelowAWideHeaderDoNotFillTheMemory) {
  std::string text = "a";
  for (int i = 1; i < 1000; ++i) text += ",a";
  for (int i = 0; i < 16778; ++i) text += "\n1";
  EXPECT_THAT(ParseCsv(text, "t.csv"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                "found more than 16777 rows of 1000 columns, wanted at most 16777216"));
}

TEST(CsvTest, AHeaderThatIsNone) {
  std::string text = "a";
  for (int i = 1; i < 8193; ++i) text += ",a";
  EXPECT_THAT(ParseCsv(text + "\n", "t.csv"),
              StatusIs(absl::StatusCode::kInvalidArgument, "found 8193 columns, wanted at most 8192"));
}

TEST(CsvTest, CellsThatHoldNothing) {
  const auto read = ParseCsv("a,b,c,d\n-,N/A, / ,none\n", "t.csv");
  ASSERT_OK(read);
  const CsvCells cells(*read, read->rows[0]);
  EXPECT_EQ(cells.Text("a") + cells.Text("b") + cells.Text("c"), "");
  EXPECT_EQ(cells.Text("d"), "none");
  ASSERT_OK_AND_ASSIGN(const std::optional<double> number, cells.Number("a"));
  EXPECT_FALSE(number.has_value());
}

// Fractions with commas, and dots between thousands.
TEST(CsvTest, ContinentalNumbers) {
  EXPECT_EQ(NumberIn("20.000,5", ';'), 20000.5);
  EXPECT_EQ(NumberIn("20.000,5", ','), std::nullopt);
}

}  // namespace
}  // namespace meshwright
