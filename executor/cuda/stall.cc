#include "executor/cuda/stall.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace meshwright::cuda {
namespace {

// Whether the rank has reached launch `ordinal` of the communicator: it is started or already done.
bool Reached(const StallReport& report, int64_t communicator, int64_t ordinal) {
  for (int64_t i = 0; i < report.num_open; ++i) {
    const StallReport::Open& open = report.open[i];
    if (open.communicator != communicator) continue;
    // Launches of one communicator are done in order: the oldest that is open says all.
    return open.ordinal > ordinal || (open.ordinal == ordinal && open.started);
  }
  return report.num_open < static_cast<int64_t>(StallReport::kMaxOpen);  // nothing open there: all done
}

// The members for which `rank` waits.
std::set<int64_t> WaitsFor(const CommunicatorPlan& plan, absl::Span<const std::optional<StallReport>> reports,
                           int64_t rank) {
  std::set<int64_t> others;
  const StallReport& own = *reports[rank];
  for (int64_t i = 0; i < own.num_open; ++i) {
    const StallReport::Open& open = own.open[i];
    if (!open.started) continue;
    for (const int64_t member : plan.communicators[open.communicator].ranks) {
      if (member == rank) continue;
      if (!reports[member].has_value() || !Reached(*reports[member], open.communicator, open.ordinal)) {
        others.insert(member);
      }
    }
  }
  return others;
}

// "step 2, slot 1 (...), instruction 8 (...)"; only the step where a rank is at none of its instructions.
std::string PlaceOf(const StallReport& report) {
  const absl::string_view text = report.text;
  return absl::StrCat("step ", report.step + 1, text.empty() ? "" : ", ", text);
}

}  // namespace

void StallReport::SetText(absl::string_view value) {
  const size_t size = std::min(value.size(), kTextSize - 1);
  std::memcpy(text, value.data(), size);
  text[size] = '\0';
}

Verdict Judge(const CommunicatorPlan& plan, absl::Span<const std::optional<StallReport>> reports) {
  Verdict verdict;
  std::vector<std::string> lines;
  const auto blame = [&](int64_t rank, std::string line) {
    verdict.culprits.push_back(rank);
    lines.push_back(std::move(line));
  };
  const int64_t n = static_cast<int64_t>(reports.size());
  for (int64_t r = 0; r < n; ++r) {
    if (!reports[r].has_value()) blame(r, absl::StrCat("rank ", r, " does not answer"));
  }
  if (lines.empty()) {
    for (int64_t r = 0; r < n; ++r) {
      const StallReport& own = *reports[r];
      if (!own.finished && own.busy) blame(r, absl::StrCat("rank ", r, " does not finish ", PlaceOf(own)));
    }
  }
  if (lines.empty()) {
    std::vector<std::pair<std::string, std::vector<int64_t>>> waiting;  // ranks that wait for the same, together
    for (int64_t r = 0; r < n; ++r) {
      if (reports[r]->finished) continue;
      const std::set<int64_t> others = WaitsFor(plan, reports, r);
      const bool waits = reports[r]->num_open > 0 || !others.empty();
      std::string line =
          absl::StrCat(PlaceOf(*reports[r]),
                       !waits           ? ""
                       : others.empty() ? ", which all its members have reached"
                                        : absl::StrCat(", and waits for rank ", absl::StrJoin(others, ", ")),
                       reports[r]->remote ? "; it was told that another rank failed" : "");
      const auto same = std::find_if(waiting.begin(), waiting.end(), [&](const auto& w) { return w.first == line; });
      if (same != waiting.end()) {
        same->second.push_back(r);
      } else {
        waiting.emplace_back(std::move(line), std::vector<int64_t>{r});
      }
    }
    for (const auto& [line, ranks] : waiting) {
      lines.push_back(absl::StrCat("rank ", absl::StrJoin(ranks, ", "), " is in ", line));
    }
  }
  verdict.text = absl::StrJoin(lines, "; ");
  return verdict;
}

}  // namespace meshwright::cuda
