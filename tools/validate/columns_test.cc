#include "tools/validate/columns.h"

#include <string>

#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"

namespace meshwright {
namespace {

constexpr KnownColumn kKnown[] = {{"gpu_type", ColumnUnit::kText, "gpu device"},
                                  {"size_bytes", ColumnUnit::kBytes, "message_size size"},
                                  {"time_us", ColumnUnit::kMicros, "time latency"},
                                  {"busbw_gbps", ColumnUnit::kGigabytesPerSecond, "busbw bus_bw"},
                                  {"time_ms", ColumnUnit::kMillis, "runtime"}};

// The cell of `known` where a table has one column under one name.
std::string CellOf(const std::string& column, const std::string& cell, const std::string& known) {
  const auto table = ParseCsv(column + "\n\"" + cell + "\"\n", "t.csv");
  EXPECT_OK(table);
  const CsvTable renamed = WithKnownColumns(*table, kKnown);
  return CsvCells(renamed, renamed.rows[0]).Text(known);
}

TEST(ColumnsTest, NamesAndUnits) {
  EXPECT_EQ(CellOf("GPU", "H100", "gpu_type"), "H100");
  EXPECT_EQ(CellOf("GPU Type", "H100", "gpu_type"), "H100");
  EXPECT_EQ(CellOf("Size Bytes", "64", "size_bytes"), "64");
  EXPECT_EQ(CellOf("Message Size (KiB)", "64", "size_bytes"), "65536");
  EXPECT_EQ(CellOf("size_mb", "2", "size_bytes"), "2097152");
  EXPECT_EQ(CellOf("size", "1 GiB", "size_bytes"), "1073741824");
  EXPECT_EQ(CellOf("size", "128M", "size_bytes"), "134217728");
  EXPECT_EQ(CellOf("latency_ms", "1.5", "time_us"), "1500");
  EXPECT_EQ(CellOf("time [s]", "2", "time_us"), "2000000");
  EXPECT_EQ(CellOf("time", "1.2 ms", "time_us"), "1200");
  EXPECT_EQ(CellOf("BusBW (GB/s)", "300", "busbw_gbps"), "300");
  EXPECT_EQ(CellOf("bus bw [MB/s]", "300", "busbw_gbps"), CellOf("busbw_mb_s", "300", "busbw_gbps"));
  EXPECT_EQ(CellOf("runtime_us", "250", "time_ms"), "0.25");
  EXPECT_EQ(CellOf("runtime", "250", "time_ms"), "250");
}

TEST(ColumnsTest, WhatIsThereOrNoNumberStays) {
  const auto table = ParseCsv("size_bytes,size,latency\n1024,7,fast\n", "t.csv");
  ASSERT_OK(table);
  const CsvTable renamed = WithKnownColumns(*table, kKnown);
  const CsvCells cells(renamed, renamed.rows[0]);
  EXPECT_EQ(cells.Text("size_bytes"), "1024");
  EXPECT_EQ(cells.Text("size"), "7");
  EXPECT_EQ(cells.Text("time_us"), "fast");
  EXPECT_EQ(cells.Text("busbw_gbps"), "");
  EXPECT_EQ(CellOf("size (KiB)", "1,024", "size_bytes"), "1048576");
  EXPECT_EQ(CellOf("time_per_step", "3", "time_us"), "");  // no unit: another column
  EXPECT_FALSE(FactorOf("furlongs", ColumnUnit::kMicros).has_value());
}

}  // namespace
}  // namespace meshwright
