#include "tools/operator_rows.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/strip.h"
#include "ir/op_list.h"

namespace meshwright {

std::vector<OperatorRow> OperatorRows(const Graph& graph, const Strategy& strategy, const Program& program) {
  std::vector<OperatorRow> rows;
  for (const RankClass& rank_class : program.classes) {
    for (const Block& block : rank_class.blocks) {
      if (block.phase != Phase::kForward) continue;
      for (const Instruction& instruction : block.instructions) {
        const auto* compute = std::get_if<Compute>(&instruction.work);
        // "segment/op", or "segment/op + op behind it": the first has the row, what it makes the other is laid out as.
        std::string name = instruction.origin.substr(instruction.origin.find('/') + 1);
        const bool epilogue = compute != nullptr && InfoOf(compute->op).epilogue != OpKind::kNumOps;
        if (epilogue) name = name.substr(0, name.find(" + "));
        // The first piece of an interleaved operator stands for it (S6.14).
        const auto own = strategy.ops.find(std::string(absl::StripSuffix(name, "/0")));
        const bool interleaved = own != strategy.ops.end() && own->second.interleaved.has_value();
        if (interleaved) name = own->first;
        const OpId op = graph.FindOp(name);
        const OpKind kind = epilogue ? InfoOf(compute->op).front : compute != nullptr ? compute->op : OpKind::kNumOps;
        if (!op.valid() || kind != graph.op(op).kind) continue;
        OperatorRow row{name, std::string(NameOf(kind)), {}};
        for (size_t i = 0; i < std::min(instruction.reads.size(), graph.op(op).inputs.size()); ++i) {
          const Layout& layout = rank_class.buffers[instruction.reads[i].buffer.index()].layout;
          std::vector<int64_t>& pieces = row.in_strategy.emplace_back();
          for (size_t d = 0; d < layout.dims.size(); ++d) {
            const int label = compute->rule->inputs[i][d].label;
            const bool cut = interleaved && label >= 0 &&
                             compute->rule->labels[static_cast<size_t>(label)].name == own->second.interleaved->label;
            pieces.push_back(program.mesh.SizeOf(layout.dims[d]) * (cut ? own->second.interleaved->pieces : 1));
          }
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace meshwright
