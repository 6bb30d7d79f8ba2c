// Pictures of results: a page that any browser shows, without a network. Charts are drawn by Chart.js 3.9 (MIT), which
// is written into the page.
//
// Thread safety: plain values, pure functions. Same charts, same bytes.
#ifndef MESHWRIGHT_TOOLS_CHART_H_
#define MESHWRIGHT_TOOLS_CHART_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace meshwright {

struct Chart {
  enum class Kind : uint8_t {
    kBars,   // lying, one for each label, the series on top of each other
    kLines,  // a line for each series, with a mark at each point
    kSteps,  // the same, level from each point to the next, without marks
  };
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points = {};  // of bars: number of the label, value
    std::optional<size_t> colour = std::nullopt;         // of ten and one; the place among the series unless given
  };
  std::string title;
  std::string x = {}, y = {};  // what the axes count, with the unit; of bars x only
  Kind kind = Kind::kBars;
  bool powers_of_two = false;            // the x axis is logarithmic
  std::vector<std::string> labels = {};  // of bars
  std::vector<Series> series = {};
};

// `text` stands below the charts as it is. Names may contain anything.
std::string ToHtml(absl::string_view title, const std::vector<Chart>& charts, absl::string_view text);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_CHART_H_
