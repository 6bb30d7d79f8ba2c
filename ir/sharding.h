// How a user says that one operator is split (`shard:` of a model file, S5.1 and S6.2), before it meets a mesh.
//
// Ownership: values. Thread safety: plain values and pure functions.
#ifndef MESHWRIGHT_IR_SHARDING_H_
#define MESHWRIGHT_IR_SHARDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/strategy.h"

namespace meshwright {

// S6.14: the reserved name of an axis that splits on each rank instead of over ranks; the last one of its layout.
inline constexpr absl::string_view kInterleavedAxis = "interleaved_parallel";

// How one tensor of an operator is split, in one of two ways.
struct TensorSharding {
  std::vector<int64_t> pieces;  // tuple form: the number of pieces of each dim
  std::vector<std::vector<std::string>>
      dims;  // layout form: for each dim the axes that split it, most significant first
};

struct OpSharding {
  // Layout form: the device matrix, its axes in order. Empty for the tuple form.
  std::vector<int64_t> device_matrix;
  std::vector<std::string> axes;
  std::vector<TensorSharding> inputs;
  std::optional<TensorSharding> output;  // out_strategy

  bool is_layout() const { return !axes.empty(); }
};

// The layouts that it means on `mesh`, whose stages have `ranks_per_stage` ranks each. kInvalidArgument, naming the op,
// as S5.2, S6.2, S6.6, S6.7 and S6.14 say.
absl::StatusOr<OpStrategy> Resolve(const OpSharding& sharding, const Op& op, const Graph& graph, const Mesh& mesh,
                                   int64_t ranks_per_stage);

// The layout of a tensor given in tuple form: its dims in order are the device matrix (S9.3, S4.5). With `repeat_first`
// the repeats vary slowest, as for the data-feeding operator (S9.4).
absl::StatusOr<Layout> LayoutFromTuple(const std::vector<int64_t>& pieces, const Shape& shape, const Mesh& mesh,
                                       int64_t ranks_per_stage, bool repeat_first);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_SHARDING_H_
