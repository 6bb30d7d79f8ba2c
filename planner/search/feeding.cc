#include "planner/search/feeding.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/error_kind.h"
#include "ir/sharding.h"
#include "ir/status.h"

namespace meshwright {
namespace {

absl::Status Wrong(absl::string_view what) { return LayoutError("dataset_strategy: ", what); }

std::vector<const Tensor*> InputsOf(const Graph& graph) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::kInput) inputs.push_back(&tensor);
  }
  return inputs;
}

// S9.3.
absl::Status CheckTuples(const std::vector<const Tensor*>& inputs, const std::vector<std::vector<int64_t>>& tuples) {
  if (tuples.size() != inputs.size()) {
    return ValueError("dataset_strategy: found ", tuples.size(), " tuples, wanted one for each of the ", inputs.size(),
                      " inputs");
  }
  int64_t pieces = 1;
  size_t highest = 0;
  bool highest_split = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    int64_t of_input = 1, split_dims = 0;
    for (const int64_t p : tuples[i]) {
      if (p < 1) return Wrong(absl::StrCat("input \"", inputs[i]->name, "\": found ", p, " pieces, wanted at least 1"));
      if (p > 1) ++split_dims;
      of_input *= p;
    }
    if (split_dims > 1) {
      return Wrong(absl::StrCat("input \"", inputs[i]->name, "\" is split in ", split_dims, " dims, one is allowed"));
    }
    if (of_input > 1 && pieces > 1 && of_input != pieces) {
      return Wrong(absl::StrCat("input \"", inputs[i]->name, "\" is split into ", of_input, " pieces, another into ",
                                pieces, "; all split inputs need the same number"));
    }
    pieces = std::max(pieces, of_input);
    const size_t rank = inputs[i]->shape.size();
    if (rank > highest) highest_split = false;
    if (rank >= highest) highest_split |= of_input > 1;
    highest = std::max(highest, rank);
  }
  if (pieces > 1 && !highest_split) return Wrong("the input of highest rank must be split where any is");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, Layout>> FeedingLayouts(const Problem& problem, const Graph& graph,
                                                             const Mesh& mesh, int64_t ranks_per_stage) {
  const std::vector<const Tensor*> inputs = InputsOf(graph);
  if (problem.feeding == Feeding::kTuples) MESHWRIGHT_RETURN_IF_ERROR(CheckTuples(inputs, problem.feeding_tuples));
  std::map<std::string, Layout> layouts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> pieces(inputs[i]->shape.size(), 1);
    switch (problem.feeding) {
      case Feeding::kDataParallel:
        if (!pieces.empty()) pieces[0] = ranks_per_stage;
        break;
      case Feeding::kFullBatch:
        break;
      case Feeding::kTuples:
        pieces = problem.feeding_tuples[i];
        break;
    }
    const absl::StatusOr<Layout> layout = LayoutFromTuple(pieces, inputs[i]->shape, mesh, ranks_per_stage, true);
    if (!layout.ok()) {
      return WithKind("E-LAYOUT",
                      absl::InvalidArgumentError(absl::StrCat(
                          "dataset_strategy: input \"", inputs[i]->name, "\" of ", ToText(inputs[i]->shape),
                          " in a micro-batch: ", absl::StripSuffix(layout.status().message(), " [E-LAYOUT]"),
                          problem.mode == SearchMode::kDataParallel ? "; in data_parallel all ranks have as many rows"
                          : problem.feeding == Feeding::kDataParallel
                              ? "; with `dataset_strategy: full_batch` every rank has all rows"
                              : "")));
    }
    layouts[inputs[i]->name] = *layout;
  }
  return layouts;
}

int64_t NumBatches(const Problem& problem, int64_t ranks_per_stage) {
  switch (problem.mode) {
    case SearchMode::kDecoder:
    case SearchMode::kByHand:
    case SearchMode::kStandAlone:
      return 1;
    case SearchMode::kDataParallel:
      return ranks_per_stage;
    case SearchMode::kDynamicProgramming:
    case SearchMode::kRecursiveProgramming:
    case SearchMode::kShardingPropagation:
    case SearchMode::kExhaustive:
    case SearchMode::kDefaults:
      break;
  }
  int64_t batches = problem.feeding == Feeding::kDataParallel ? ranks_per_stage : 1;
  if (problem.feeding == Feeding::kTuples) {
    for (const std::vector<int64_t>& tuple : problem.feeding_tuples) {
      if (!tuple.empty()) batches = std::max(batches, tuple[0]);
    }
  }
  return batches;
}

}  // namespace meshwright
