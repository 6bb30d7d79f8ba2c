// Strategy files: how the operators with weights are split, written after planning and read before it (S16.1 to S16.3).
//
//   {
//     "current_stage": 0,
//     "parallel_strategy_item": {
//       "MatMul_w": {"stage": 0, "parallel_strategy": [[2, 4], [4, 1]]}
//     },
//     "parallel_layout_item": {
//       "w": {"dev_matrix": [2, 4, 1], "tensor_map": [1, 0], "tensor_shape": [32, 16], "field": 0,
//             "opt_weight_shard_step": 0, "opt_weight_shard_size": 0}
//     }
//   }
//
// Keys are <Operator>_<its first parameter>; of operators that would share one, the second of the graph has "#2" behind
// it. What integer tuples cannot say (layouts with axes in another order than the device matrix, S6) stands beside them
// in the serial form of S6.13: "in_layout", one {device_matrix, tensor_map, interleaved_parallel} per input, and
// "out_layout"; an output strategy of tuples is "out_strategy". A tensor map counts axes from the right, -1 is whole.
// Where interleaved_parallel is true the last axis of the matrix, number 0, splits on each device (S6.14).
//
// The binary form is MindSpore's protobuf message (strategy_map.proto), which has no tensor_shape; in_layout,
// out_layout and out_strategy are fields of ours in it, which its readers pass over.
//
// Errors: E-VALUE, as `path:line:column: found X, wanted Y` (the binary form has no lines).
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_STRATEGY_FILE_H_
#define MESHWRIGHT_PLANNER_STRATEGY_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/sharding.h"
#include "ir/strategy.h"

namespace meshwright {

struct StrategyFile {
  struct Operator {
    int64_t stage = 0;
    OpSharding sharding;     // the axes of a layout are named by their number in the tensor map
    std::string where = {};  // "path:line:column" of a file that was read, its path alone in the binary form
  };
  struct Parameter {
    std::vector<int64_t> dev_matrix;
    std::vector<std::vector<int64_t>> tensor_map;  // per dim, most significant first; empty: whole
    std::vector<int64_t> tensor_shape;             // global; empty where it was not said
    int64_t field = 0;
    // Of a parameter whose optimizer state is split: the pieces, and the distance between neighbours' ranks; else 0.
    int64_t opt_weight_shard_step = 0, opt_weight_shard_size = 0;
  };
  int64_t current_stage = 0;
  std::map<std::string, Operator> operators;
  std::map<std::string, Parameter> parameters;
};

// Deterministic. ParseStrategyFile gives the same back.
std::string ToJson(const StrategyFile& file);

std::string ToBinary(const StrategyFile& file);

// Either form. `path` is for messages.
absl::StatusOr<StrategyFile> ParseStrategyFile(absl::string_view text, absl::string_view path);

// What `strategy` says of the operators and parameters of one pipeline stage. `graph` is the forward graph, `program`
// what the two become.
absl::StatusOr<StrategyFile> StrategyFileOf(const Graph& graph, const Strategy& strategy, const Program& program,
                                            int64_t stage);

struct UsedStrategies {
  std::vector<std::string> notices;           // where the program says something else; keys that the graph lacks
  std::map<std::string, std::string> places;  // by op: `path:line:column: "key"`, for later errors
};

// Gives the operators of `file.current_stage` that have no strategy in `shards` (by op name) that of the file; `path`
// is for messages. E-LAYOUT, at the place of the item: one of another stage, a strategy that does not fit the operator
// or the ranks of a stage, or that is another one than an earlier stage has for the same repeated layer.
absl::StatusOr<UsedStrategies> UseStrategyFile(const StrategyFile& file, absl::string_view path, const Graph& graph,
                                               int64_t stages, int64_t ranks_per_stage,
                                               std::map<std::string, OpSharding>& shards);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_STRATEGY_FILE_H_
