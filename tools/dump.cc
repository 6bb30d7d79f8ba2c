#include "tools/dump.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "ir/text.h"
#include "planner/search/evaluate.h"

namespace meshwright {

absl::StatusOr<DumpRequest> DumpRequest::Parse(const Flags& flags) {
  DumpRequest request;
  if (!flags.Has("dump")) return request;
  const std::string text = flags.Text("dump");
  constexpr absl::string_view kNames[] = {"graph", "strategy", "program", "rank0"};
  for (size_t i = 0; i < 3; ++i) {
    if (text == kNames[i]) {
      request.what_ = static_cast<What>(i + 1);
      return request;
    }
  }
  if (!absl::StartsWith(text, "rank")) return Flags::Wrong("dump", UnknownName(text, kNames));
  const absl::StatusOr<int64_t> rank = ParseInt(text.substr(4), 0, int64_t{1} << 32);
  if (!rank.ok()) return Flags::Wrong("dump", rank.status());
  request.what_ = What::kRank;
  request.rank_ = *rank;
  return request;
}

absl::StatusOr<std::string> DumpRequest::Show(const Problem& problem, const Strategy& strategy) const {
  switch (what_) {
    case What::kNothing:
      return std::string();
    case What::kGraph: {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(problem.batch / strategy.microbatches));
      return ToText(graph);
    }
    case What::kStrategy:
      return ToText(strategy);
    case What::kProgram:
    case What::kRank:
      break;
  }
  const int64_t ranks = strategy.mesh.num_ranks();
  if (what_ == What::kRank && rank_ >= ranks) {
    return Flags::Wrong("dump", WrongInput(absl::StrCat("rank", rank_), absl::StrCat("a rank below ", ranks)));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation evaluation, Evaluate(problem, strategy));
  return what_ == What::kRank ? DumpRank(evaluation.program, rank_) : ToText(evaluation.program);
}

}  // namespace meshwright
