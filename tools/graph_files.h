// context.save_graphs and save_graphs_path (S16.9): the files that tell a user what was planned.
//
//   PATH/rank_0/step_parallel_begin_0001.ir   from level 1: the graph in global shapes, with each operator's strategy
//   PATH/rank_0/1_execute_0002.ir                           what this rank runs, in the shapes of its own pieces
//   PATH/rank_0/graph_0003.ir                 from level 2: the same graph in our notation (ir/graph.h)
//   PATH/rank_0/program_0004.ir                             and the whole program (ir/program_text.h)
//   PATH/rank_0/step_parallel_begin_0001.dot  level 3: drawings of the first two, for Graphviz
//   PATH/rank_0/1_execute_0002.dot
//
// Thread safety: functions may run at the same time on different paths.
#ifndef MESHWRIGHT_TOOLS_GRAPH_FILES_H_
#define MESHWRIGHT_TOOLS_GRAPH_FILES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright {

// Of one rank, or of all. `graph`: the forward graph of a micro-batch that became the program.
absl::Status WriteGraphs(int64_t level, const std::string& path, const Graph& graph, const Program& program,
                         std::optional<int64_t> rank);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_GRAPH_FILES_H_
