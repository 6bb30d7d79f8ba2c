#include "tools/validate/pipeline_text.h"

#include <algorithm>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace meshwright {
namespace {

struct Named {
  absl::string_view word;
  Schedule schedule;
  bool near = false;
};
// Words without hyphens, underscores and blanks. The first that is there counts.
constexpr Named kSchedules[] = {
    {"zbv", Schedule::kZeroBubbleV},
    {"zerobubblev", Schedule::kZeroBubbleV},
    {"vhalf", Schedule::kZeroBubbleV, true},
    {"zbh1", Schedule::kZeroBubbleH1},
    {"zb1p", Schedule::kZeroBubbleH1},
    {"zerobubbleh1", Schedule::kZeroBubbleH1},
    {"zb2p", Schedule::kZeroBubbleH1, true},
    {"zbh2", Schedule::kZeroBubbleH1, true},
    {"zerobubble", Schedule::kZeroBubbleH1, true},
    {"dualpipe", Schedule::kZeroBubbleH1, true},
    {"schedule1f1b", Schedule::kOneFOneB},
    {"scheduleinterleaved", Schedule::kOneFOneB},
    {"gpipe", Schedule::kGpipe},
};

// Longest layout that is read, written out: a part for each of the layers that a model may have is far less.
constexpr size_t kLongestLayout = 1 << 12;

// `layout` with what stands behind "*" as often as it says: "(tt|)*2" is "tt|tt|", "t*3" is "ttt". Empty where it is
// not written so.
std::string Unrolled(std::string layout) {
  static const std::regex* const kRepeated = new std::regex(R"((?:\(([etml|]*)\)|([etml|]))\*([0-9]{1,4}))");
  std::smatch match;
  while (std::regex_search(layout, match, *kRepeated)) {
    const std::string unit = match[1].matched ? match[1].str() : match[2].str();
    const size_t times = std::stoul(match[3].str());
    if (layout.size() + unit.size() * times > kLongestLayout) return "";
    std::string again;
    for (size_t i = 0; i < times; ++i) again += unit;
    layout = absl::StrCat(match.prefix().str(), again, match.suffix().str());
  }
  return layout.find_first_not_of("etml|") == std::string::npos ? layout : "";
}

// Nothing where no layout is written out.
void ReadLayout(const std::string& options, PipelineText* text) {
  static const std::regex* const kLayout = new std::regex(R"(layout[ :=]+([etml0-9*|()]+))");
  std::smatch match;
  if (!std::regex_search(options, match, *kLayout)) return;
  const std::string layout = Unrolled(match[1].str());
  if (!absl::StrContains(layout, '|')) return;
  for (const absl::string_view part : absl::StrSplit(layout, '|')) {
    text->layers.push_back(std::count(part.begin(), part.end(), 't'));
  }
  text->further = std::max<int64_t>(text->further, std::count(layout.begin(), layout.end(), 'm'));
}

// "2 MTP layers".
int64_t FurtherLayers(const std::string& options) {
  static const std::regex* const kNumber = new std::regex(R"(\b([0-9]{1,2}) mtp layers)");
  std::smatch match;
  return std::regex_search(options, match, *kNumber) ? std::stoll(match[1].str()) : 0;
}

}  // namespace

PipelineText ReadPipelineText(absl::string_view options) {
  PipelineText text;
  const auto has = [&options](absl::string_view words) { return absl::StrContains(options, words); };
  text.ends_count = has("one layer less") || has("one fewer layer") || has("one layer each") ||
                    has("padding-num-layers") || (has("account_for_embedding") && has("account_for_loss"));
  text.balanced = has("layers redistributed") || has("layers balanced");
  text.further = FurtherLayers(std::string(options));
  ReadLayout(std::string(options), &text);
  const std::string plain = absl::StrReplaceAll(options, {{"-", ""}, {"_", ""}, {" ", ""}, {":", ""}});
  for (const Named& named : kSchedules) {
    if (!absl::StrContains(plain, named.word)) continue;
    text.schedule = named.schedule;
    if (named.near) text.taken_for_another = std::string(named.word);
    return text;
  }
  static const std::regex* const kSchedule = new std::regex(R"(schedule[: ]+([a-z0-9_-]{1,40}))");
  const std::string given(options);
  std::smatch match;
  if (std::regex_search(given, match, *kSchedule)) text.taken_for_another = match[1].str();
  return text;
}

std::vector<int64_t> LayersWithEnds(int64_t layers, int64_t parts) {
  if ((layers + 2) % parts != 0) return {};
  std::vector<int64_t> counts(static_cast<size_t>(parts), (layers + 2) / parts);
  --counts.front();
  --counts.back();
  return counts;
}

std::vector<int64_t> LayersBesideHead(int64_t layers, int64_t stages, double head) {
  int64_t last = 0;
  double slowest = 0;
  for (int64_t n = 0; n <= layers - stages + 1; ++n) {
    const int64_t others = (layers - n + stages - 2) / (stages - 1);
    const double longest = std::max(static_cast<double>(n) + head, static_cast<double>(others));
    if (n > 0 && longest > slowest) continue;
    slowest = longest;
    last = n;
  }
  std::vector<int64_t> counts(static_cast<size_t>(stages), (layers - last) / (stages - 1));
  counts.back() = last;
  for (int64_t i = 0; i < (layers - last) % (stages - 1); ++i) ++counts[static_cast<size_t>(stages - 2 - i)];
  return counts;
}

}  // namespace meshwright
