#include "tools/graph_files.h"

#include "absl/strings/str_cat.h"
#include "ir/graph_dump.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "tools/files.h"

namespace meshwright {

absl::Status WriteGraphs(int64_t level, const std::string& path, const Graph& graph, const Program& program,
                         std::optional<int64_t> rank) {
  if (level == 0) return absl::OkStatus();
  const Dump begin = DumpGraph(graph, program);
  const int64_t ranks = program.mesh.num_ranks();
  for (int64_t r = rank.value_or(0); r < (rank.has_value() ? *rank + 1 : ranks); ++r) {
    const std::string folder = absl::StrCat(path, "/rank_", r, "/");
    const Dump execution = DumpExecution(program, r);
    MESHWRIGHT_RETURN_IF_ERROR(WriteFileInNewFolder(folder + "step_parallel_begin_0001.ir", ToText(begin)));
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(folder + "1_execute_0002.ir", ToText(execution)));
    if (level < 2) continue;
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(folder + "graph_0003.ir", ToText(graph)));
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(folder + "program_0004.ir", ToText(program)));
    if (level < 3) continue;
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(folder + "step_parallel_begin_0001.dot", ToDot(begin)));
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(folder + "1_execute_0002.dot", ToDot(execution)));
  }
  return absl::OkStatus();
}

}  // namespace meshwright
