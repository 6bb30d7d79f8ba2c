#include "planner/passes/take_turns.h"

#include <cstddef>
#include <map>
#include <utility>
#include <variant>

#include "planner/passes/beside_kernels.h"

namespace meshwright {

std::vector<Block> CutAtCollectives(Block block, std::vector<Event>& events) {
  std::set<size_t> collectives;
  for (size_t i = 0; i < block.instructions.size(); ++i) {
    const Instruction& instruction = block.instructions[i];
    if (instruction.stream != Stream::kCompute) return {std::move(block)};
    if (std::holds_alternative<Collective>(instruction.work)) collectives.insert(i);
  }
  RunBesideKernels(collectives, Stream::kContext, TravelStart::kWhenReady, block, events);
  std::vector<Block> blocks = {{block.name, block.phase, {}}};
  bool on_its_way = false;  // a collective that was issued since the last cut
  for (Instruction& instruction : block.instructions) {
    if (on_its_way && !instruction.waits.empty() && instruction.stream == Stream::kCompute) {
      blocks.push_back({block.name, block.phase, {}});
      on_its_way = false;
    }
    on_its_way = on_its_way || instruction.stream == Stream::kContext;
    blocks.back().instructions.push_back(std::move(instruction));
  }
  return blocks;
}

std::set<BufferId> UsedAcross(const std::vector<Block>& blocks) {
  std::map<BufferId, size_t> user;
  std::set<BufferId> across;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const Instruction& instruction : blocks[b].instructions) {
      for (const auto* operands : {&instruction.reads, &instruction.writes}) {
        for (const Operand& operand : *operands) {
          const bool elsewhere = user.try_emplace(operand.buffer, b).first->second != b;
          const bool travels = blocks.size() > 1 && instruction.stream == Stream::kContext;
          if (elsewhere || travels) across.insert(operand.buffer);
        }
      }
    }
  }
  return across;
}

}  // namespace meshwright
