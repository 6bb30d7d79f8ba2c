#include "tools/sweep.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParseCountsTest, RangesDoubleAndListsAreSorted) {
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> range, ParseCounts("64..512"));
  EXPECT_THAT(range, ElementsAre(64, 128, 256, 512));
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> odd, ParseCounts("24..100"));
  EXPECT_THAT(odd, ElementsAre(24, 48, 96));
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> list, ParseCounts("64,8,16..32,64"));
  EXPECT_THAT(list, ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(ParseCounts("0"), StatusIs(kInvalid, "found \"0\""));
  for (const char* const bad : {"64..8", "8..x", "8..", "..8"}) {
    EXPECT_THAT(ParseCounts(bad), StatusIs(kInvalid, "\", wanted two numbers, the smaller first, e.g. 64..4096"))
        << bad;
  }
  EXPECT_THAT(ParseCounts(""), StatusIs(kInvalid));
}

SweepPoint Point(const std::string& device, int64_t devices, double tokens_per_second) {
  SweepPoint point;
  point.device = device;
  point.devices = devices;
  point.price = DevicePrice{2.0, "a test"};
  if (tokens_per_second == 0) {
    point.problem = "does not fit, \"at all\"";
    return point;
  }
  Candidate best;
  best.prediction.step = Millis(1000);
  best.prediction.tokens_per_second = tokens_per_second;
  best.prediction.mfu = 0.5;
  best.prediction.peak = GiB(10);
  point.best = best;
  return point;
}

// Work per device 100, 90, 80, 79 of the best: the knee is the third.
std::vector<SweepPoint> Points() {
  return {Point("a", 8, 0),         Point("a", 16, 1600),       Point("a", 32, 2880),
          Point("a", 64, 64 * 80.), Point("a", 128, 128 * 79.), Point("b", 8, 8)};
}

TEST(MarkPointsTest, TheSmallestThatFitsAndTheKnee) {
  std::vector<SweepPoint> points = Points();
  MarkPoints(points);
  std::vector<int64_t> smallest, knees;
  for (const SweepPoint& point : points) {
    if (point.smallest) smallest.push_back(point.devices);
    if (point.knee) knees.push_back(point.devices);
  }
  EXPECT_THAT(smallest, ElementsAre(16, 8));
  EXPECT_THAT(knees, ElementsAre(64, 8));
}

// A run of 1.152e9 tokens, $2 a device-hour. Seconds: 1.152e9 over 1600, 2880, 5120, 10112 tokens a second. Days of
// 86,400 s: 8.33, 4.63, 2.60, 1.32. Dollars: 2 x devices x hours: 6,400, 7,111, 8,000, 8,101.
TEST(CheapestWithinTest, KeepsDaysAndDollars) {
  SweepReport report;
  report.tokens = 1.152e9;
  report.points = Points();
  report.points.pop_back();
  const auto within = [&](double days, double dollars) {
    report.days = days;
    report.dollars = dollars;
    const SweepPoint* const best = CheapestWithin(report);
    return best == nullptr ? 0 : best->devices;
  };
  EXPECT_EQ(within(10, 10000), 16);
  EXPECT_EQ(within(5, 0), 32);
  EXPECT_EQ(within(3, 8050), 64);
  EXPECT_EQ(within(2, 8200), 128);
  EXPECT_EQ(within(2, 8050), 0);
  EXPECT_THAT(ToText(report), HasSubstr("\nnothing here is within 2 days and $8,050\n"
                                        "within 2 days alone: 128 a, 31.6 h, $8,101\n"
                                        "within $8,050 alone: 16 a, 8.3 d, $6,400\n"));
  EXPECT_TRUE(ToJson(report).at("cheapest_within").is_null());
  EXPECT_EQ(within(0, 6399), 0);
  EXPECT_THAT(ToText(report), HasSubstr("\nnothing here is within $6,399\nthe cheapest here: 16 a, 8.3 d, $6,400\n"));
  EXPECT_EQ(within(1, 6399), 0);
  EXPECT_THAT(ToText(report), HasSubstr("\nnothing here is within 1 days and $6,399\n"
                                        "the fastest here: 128 a, 31.6 h, $8,101\n"
                                        "the cheapest here: 16 a, 8.3 d, $6,400\n"));
  EXPECT_EQ(within(3, 0), 64);
  EXPECT_THAT(ToText(report), HasSubstr("\nthe cheapest within 3 days: 64 a, 2.6 d, $8,000\n"));
  const Json json = ToJson(report);
  EXPECT_EQ(json.at("cheapest_within").at("devices"), 64);
  EXPECT_EQ(json.at("points").at(2).at("within"), false);
  EXPECT_EQ(json.at("points").at(3).at("within"), true);
  // A kind without a price may be chosen for its days, never for its dollars.
  for (SweepPoint& point : report.points) point.price.reset();
  EXPECT_EQ(within(3, 0), 64) << "64 x 62.5 h are fewer device-hours than 128 x 31.6 h";
  EXPECT_EQ(within(3, 1e9), 0);
}

// 1600 tokens a second on 16 devices: 5.76e6 tokens take one hour, 16 device-hours, 32 dollars.
TEST(SweepPointTest, WhatARunTakes) {
  const SweepPoint point = Point("a", 16, 1600);
  EXPECT_DOUBLE_EQ(point.RunSeconds(5.76e6), 3600);
  EXPECT_DOUBLE_EQ(point.DeviceHours(5.76e6), 16);
  EXPECT_DOUBLE_EQ(point.Dollars(5.76e6), 32);
  // Where four fifths of the time count, all takes 5/4 as long.
  SweepPoint fails = point;
  fails.goodput = 0.8;
  EXPECT_DOUBLE_EQ(fails.RunSeconds(5.76e6), 4500);
  EXPECT_DOUBLE_EQ(fails.Dollars(5.76e6), 40);
  // With a device that holds all back to 1500 tokens a second: 16/15 of it.
  fails.at_slowest = fails.best->prediction;
  fails.at_slowest->tokens_per_second = 1500;
  EXPECT_DOUBLE_EQ(fails.RunSeconds(5.76e6), 4800);
}

TEST(SweepReportTest, Text) {
  SweepReport report{.name = "m", .batch = "16 x 8 tokens", .tokens = 5.76e6, .reliability = {}, .points = Points()};
  report.reliability = {.failures_per_device_hour = 2e-5, .checkpoint = Millis(6e4), .restart = Millis(6e5)};
  MarkPoints(report.points);
  const std::string text = ToText(report);
  EXPECT_THAT(text, testing::HasSubstr("with 20 failures in a million device-hours,\n"
                                       "         a checkpoint of 60.00 s as often as is best, restarts of 10.0 min\n"));
  EXPECT_THAT(text,
              testing::StartsWith("m: 16 x 8 tokens a step, 5.76 M tokens in all\n\n"
                                  "a, $2.00 a device-hour (a test)\n"
                                  " devices     step tokens/s    MFU per dev. goodput      run   dev.-h     cost\n"
                                  "       8  does not fit, \"at all\"\n"
                                  "      16  1.000 s    1.6 k 50.0 %    100 % 100.0 % 60.0 min       16   $32.00 s\n"));
}

// Of a device that has a row, its rows are the answer.
TEST(SweepReportTest, WhereNothingFitsItSaysWhatWould) {
  SweepReport report{.name = "m", .batch = "", .tokens = 0, .reliability = {}, .points = {}};
  report.points = {Point("a", 8, 0), Point("a", 16, 0), Point("b", 8, 0), Point("b", 16, 1600)};
  for (SweepPoint& point : report.points) {
    if (!point.best.has_value())
      point.problem = "memory: nothing fits. The closest needs 3 GiB. What would fit: use 32 devices, or smaller rows.";
  }
  MarkPoints(report.points);
  const std::string text = ToText(report);
  EXPECT_THAT(text, HasSubstr("      16  memory: nothing fits\n"
                              "  of 16: What would fit: use 32 devices, or smaller rows\n\nb, "));
  EXPECT_THAT(text.substr(text.find("\nb, ")), testing::Not(HasSubstr("What would fit")));
}

TEST(SweepReportTest, CsvQuotesWhatNeedsIt) {
  SweepReport report{
      .name = "m", .batch = "", .tokens = 0, .reliability = {}, .points = {Point("=a,b", 8, 0), Point("c", 8, 800)}};
  EXPECT_EQ(
      ToCsv(report),
      "device,devices,fits,step_time_s,step_time_at_slowest_device_s,tokens_per_second,mfu,peak_memory_bytes,goodput,"
      "run_s,device_hours,cost_usd,smallest_that_fits,knee,problem,idle_devices\r\n"
      "\"'=a,b\",8,false,,,,,,,,,,,,\"does not fit, \"\"at all\"\"\",\r\n"
      "c,8,true,1,,800,0.5,10737418240,,,,,false,false,,0\r\n");
}

}  // namespace
}  // namespace meshwright
