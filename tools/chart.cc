#include "tools/chart.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tools/chart_js.h"
#include "tools/json_text.h"

namespace meshwright {
namespace {

// Okabe and Ito's colours, which people of any colour vision tell apart, and four more.
constexpr const char* kColours[] = {"#0072b2", "#56b4e9", "#009e73", "#f0e442", "#e69f00", "#d55e00",
                                    "#cc79a7", "#332288", "#882255", "#777777", "#cccccc"};

constexpr absl::string_view kStyle =
    "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "pre{overflow-x:auto;line-height:1.3}div{position:relative;margin:2em 0}";

// A bar's height with the space around it, and what stands above and below, in pixels.
constexpr size_t kBarHeight = 36, kBarsAround = 150, kLinesHeight = 400;

std::string EscapedHtml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// Chart.js's own description of the chart.
Json ConfigOf(const Chart& chart) {
  const bool bars = chart.kind == Chart::Kind::kBars;
  Json datasets = Json::array();
  for (const Chart::Series& series : chart.series) {
    Json row;
    row["label"] = series.name;
    Json data = Json::array();
    if (bars) data = std::vector<double>(chart.labels.size(), 0);
    for (const auto& [x, y] : series.points) {
      if (bars) {
        data.at(static_cast<size_t>(x)) = y;
      } else {
        data.push_back(Json{{"x", x}, {"y", y}});
      }
    }
    row["data"] = std::move(data);
    const char* const colour = kColours[series.colour.value_or(datasets.size()) % std::size(kColours)];
    row["backgroundColor"] = colour;
    if (!bars) {
      row["borderColor"] = colour;
      row["borderWidth"] = 2;
      row["pointRadius"] = chart.kind == Chart::Kind::kSteps ? 0 : 4;
      row["stepped"] = chart.kind == Chart::Kind::kSteps;
    }
    datasets.push_back(std::move(row));
  }
  Json config;
  config["type"] = bars ? "bar" : "line";
  if (bars) config["data"]["labels"] = chart.labels;
  config["data"]["datasets"] = std::move(datasets);
  Json options;
  options["animation"] = false;
  options["maintainAspectRatio"] = false;
  if (bars) options["indexAxis"] = "y";
  options["plugins"]["title"] = {{"display", true}, {"text", chart.title}, {"font", {{"size", 16}}}};
  options["plugins"]["legend"]["position"] = "bottom";
  Json x, y;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Chart::Series& series : chart.series) {
    for (const auto& [at, unused] : series.points) {
      least = std::min(least, at);
      most = std::max(most, at);
    }
  }
  x["title"] = {{"display", true}, {"text", chart.x}};
  if (bars) {
    x["stacked"] = y["stacked"] = true;
  } else {
    x["type"] = chart.powers_of_two ? "logarithmic" : "linear";
    if (least < most) {
      x["min"] = least;
      x["max"] = most;
    }
    y["title"] = {{"display", true}, {"text", chart.y}};
    y["beginAtZero"] = true;
  }
  options["scales"] = {{"x", std::move(x)}, {"y", std::move(y)}};
  config["options"] = std::move(options);
  return config;
}

}  // namespace

std::string ToHtml(absl::string_view title, const std::vector<Chart>& charts, absl::string_view text) {
  Json configs = Json::array();
  std::string canvases;
  for (const Chart& chart : charts) {
    configs.push_back(ConfigOf(chart));
    const size_t height =
        chart.kind == Chart::Kind::kBars ? kBarsAround + kBarHeight * chart.labels.size() : kLinesHeight;
    absl::StrAppend(&canvases, "<div style=\"height:", height, "px\"><canvas></canvas></div>\n");
  }
  // "</script>" in a name would end the script.
  const std::string data = absl::StrReplaceAll(configs.dump(), {{"<", "\\u003c"}});
  return absl::StrCat("<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>", EscapedHtml(title),
                      "</title>\n<style>", kStyle, "</style></head>\n<body>\n<h1>", EscapedHtml(title), "</h1>\n",
                      canvases, "<pre>", EscapedHtml(text), "</pre>\n<script>\n", kChartJs,
                      "\n</script>\n<script>\nconst configs = ", data,
                      ";\ndocument.querySelectorAll('canvas').forEach((canvas, i) => new Chart(canvas, configs[i]));\n"
                      "</script>\n</body>\n</html>\n");
}

}  // namespace meshwright
