#include "planner/passes/start_equal.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "ir/status.h"

namespace meshwright {

absl::StatusOr<Program> StartEqual(Program program) {
  if (program.ranks_per_class() == 1) return program;
  MESHWRIGHT_ASSIGN_OR_RETURN(const AxisList all, program.mesh.Compose(program.ranks_per_class(), 1));
  for (RankClass& c : program.classes) {
    std::map<DType, Instruction> calls;
    for (size_t i = 0; i < c.buffers.size(); ++i) {
      const Buffer& buffer = c.buffers[i];
      const bool starts = buffer.role == BufferRole::kParameter || buffer.role == BufferRole::kMaster;
      const bool whole = absl::c_all_of(buffer.layout.dims, [](const AxisList& axes) { return axes.empty(); });
      if (!starts || !whole || buffer.owner >= 0) continue;
      for (int64_t layer = 0; layer < buffer.layers; ++layer) {
        Instruction& call = calls[buffer.dtype];
        call.reads.push_back({BufferId(i), static_cast<int32_t>(layer)});
        call.writes = call.reads;
      }
    }
    std::vector<Instruction> instructions;
    for (auto& [dtype, call] : calls) {
      call.work = Collective{.kind = CollectiveKind::kBroadcast, .axes = all, .purpose = Purpose::kParameter};
      call.origin = "parameters";
      instructions.push_back(std::move(call));
    }
    if (instructions.empty()) continue;
    c.blocks.push_back({"start", Phase::kForward, std::move(instructions)});
    c.start.push_back({BlockId(c.blocks.size() - 1), 0, 0, 1, 1});
  }
  return program;
}

}  // namespace meshwright
