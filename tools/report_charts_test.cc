#include "tools/report_charts.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/chart.h"
#include "tools/json_text.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// What the page's own script is given.
Json ConfigsOf(const std::string& page) {
  const std::string begin = "const configs = ";
  const size_t from = page.rfind(begin) + begin.size();
  return Json::parse(page.substr(from, page.find(";\n", from) - from));
}

TEST(ToHtmlTest, HoldsWhatChartJsDraws) {
  const Chart bars{.title = "bars", .x = "seconds", .labels = {"a", "b"}, .series = {{"one", {{1, 0.5}}}}};
  const Chart lines{.title = "lines",
                    .x = "devices",
                    .y = "tokens/s",
                    .kind = Chart::Kind::kLines,
                    .powers_of_two = true,
                    .series = {{"h100", {{8, 100}, {16, 190}}}, {"b200", {{8, 250}}}}};
  const std::string page = ToHtml("a plan", {bars, lines}, "step 1 s");
  const Json configs = ConfigsOf(page);
  ASSERT_EQ(configs.size(), 2);
  EXPECT_EQ(configs[0]["type"], "bar");
  EXPECT_EQ(configs[0]["data"]["labels"], (Json{"a", "b"}));
  EXPECT_EQ(configs[0]["data"]["datasets"][0]["data"], (Json{0.0, 0.5}));  // what a series has not is 0
  EXPECT_EQ(configs[1]["type"], "line");
  EXPECT_EQ(configs[1]["options"]["scales"]["x"]["type"], "logarithmic");
  ASSERT_EQ(configs[1]["data"]["datasets"].size(), 2);
  EXPECT_EQ(configs[1]["data"]["datasets"][0]["data"][1], (Json{{"x", 16.0}, {"y", 190.0}}));
  // The library is in the page, which asks no server for anything.
  EXPECT_THAT(page, HasSubstr("Chart.js v"));
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(page, HasSubstr("<pre>step 1 s</pre>"));
  EXPECT_EQ(page, ToHtml("a plan", {bars, lines}, "step 1 s"));
}

TEST(ToHtmlTest, NamesMayContainAnything) {
  const std::string name = "</script><script>alert(1)</script>&\"";
  const Chart chart{.title = name, .x = "seconds", .labels = {name}, .series = {{name, {{0, 1}}}}};
  const std::string page = ToHtml(name, {chart}, name);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_EQ(ConfigsOf(page)[0]["data"]["datasets"][0]["label"], name);
}

TEST(ReportChartsTest, StrategiesByTimeAndMemory) {
  SearchResult result;
  for (const int64_t tensor : {1, 2}) {
    Candidate& candidate = result.ranked.emplace_back();
    candidate.degrees = {.data = 8 / tensor, .tensor = tensor};
    candidate.prediction.time[TimeUse::kForward] = Millis(100 * tensor);
    candidate.prediction.memory[static_cast<size_t>(BufferRole::kGradient)] = GiB(2 * tensor);
    candidate.prediction.outside = {{"communicators", GiB(tensor)}, {"framework's difference", GiB(-1)}};
  }
  const std::vector<Chart> charts = ChartsOf(result);
  ASSERT_EQ(charts.size(), 2);
  EXPECT_THAT(charts[0].labels,
              ElementsAre("1: dp 8, tp 1, pp 1, mb 1, recompute none", "2: dp 4, tp 2, pp 1, mb 1, recompute none"));
  ASSERT_EQ(charts[0].series.size(), 1);  // only what takes time
  EXPECT_EQ(charts[0].series[0].name, "forward");
  EXPECT_THAT(charts[0].series[0].points, ElementsAre(Pair(0, 0.1), Pair(1, 0.2)));
  ASSERT_EQ(charts[1].series.size(), 2);  // what is beside the arena, too, but nothing below 0
  EXPECT_THAT(charts[1].series[0].points, ElementsAre(Pair(0, 2), Pair(1, 4)));
  EXPECT_EQ(charts[1].series[1].name, "communicators");
  EXPECT_THAT(charts[1].series[1].points, ElementsAre(Pair(0, 1), Pair(1, 2)));
}

// 2,500 points of which one is high: a third as many are drawn, the high one among them.
TEST(ReportChartsTest, ThePeakOfMemoryIsDrawn) {
  Program program;
  program.classes.resize(1);
  program.classes[0].name = "stage 0";
  SimulationResult result;
  result.makespan = Nanos(2500);
  ClassResult& stage = result.classes.emplace_back();
  for (int64_t i = 0; i < 2500; ++i) stage.memory.points.push_back({0, Nanos(i), GiB(i == 1700 ? 9 : 1)});
  const std::vector<Chart> charts = ChartsOf(program, result);
  ASSERT_EQ(charts.size(), 2);
  ASSERT_EQ(charts[1].series.size(), 1);
  const auto& points = charts[1].series[0].points;
  EXPECT_EQ(points.size(), 834 + 1);  // 2500 / 3, and the end of the step
  EXPECT_THAT(points, ::testing::Contains(Pair(1.698e-6, 9)));
  EXPECT_THAT(points.back(), Pair(2.5e-6, 1));
}

TEST(ReportChartsTest, DevicesThatFitOverTheirNumber) {
  SweepReport report;
  for (const int64_t devices : {8, 16, 32}) {
    SweepPoint& point = report.points.emplace_back();
    point.device = "h100-sxm";
    point.devices = devices;
    if (devices == 8) continue;  // does not fit
    point.best.emplace().prediction.tokens_per_second = static_cast<double>(devices) * 100;
    point.best->prediction.mfu = 0.4;
  }
  EXPECT_EQ(ChartsOf(report).size(), 2);
  report.tokens = 86400 * 3200;
  report.points[1].price = report.points[2].price = DevicePrice{2.0, "a test"};
  const std::vector<Chart> charts = ChartsOf(report);
  ASSERT_EQ(charts.size(), 4);
  EXPECT_THAT(charts[0].series[0].points, ElementsAre(Pair(16, 1600), Pair(32, 3200)));
  EXPECT_THAT(charts[2].series[0].points, ElementsAre(Pair(16, 2), Pair(32, 1)));                          // days
  EXPECT_THAT(charts[3].series[0].points, ElementsAre(Pair(16, 24 * 16 * 2 * 2), Pair(32, 24 * 32 * 2)));  // dollars
}

}  // namespace
}  // namespace meshwright
