#include "planner/passes/fuse_loss.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

// The op's kernel, where the instruction is one on the compute stream that waits for nobody and is waited for by
// nobody.
const Compute* KernelOf(const Instruction& instruction, OpKind op) {
  const auto* const compute = std::get_if<Compute>(&instruction.work);
  const bool alone = instruction.stream == Stream::kCompute && instruction.waits.empty() && instruction.records.empty();
  return compute != nullptr && compute->op == op && alone && !compute->on_host ? compute : nullptr;
}

class LossFuser {
 public:
  LossFuser(RankClass& c, const Mesh& mesh) : c_(c), mesh_(mesh) {}

  void Run() {
    for (Block& block : c_.blocks) {
      for (size_t i = 0; i < block.instructions.size(); ++i) {
        if (KernelOf(block.instructions[i], OpKind::kExpSumAndPick) != nullptr) ReadOnce(block, i);
      }
    }
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      for (size_t i = 0; i < c_.blocks[b].instructions.size(); ++i) WriteOver(b, i);
    }
  }

 private:
  const Buffer& BufferOf(const Operand& operand) const { return c_.buffers[operand.buffer.index()]; }

  // `root`: of the memory in question.
  bool Touches(const Instruction& instruction, BufferId root) const {
    for (const auto* operands : {&instruction.reads, &instruction.writes}) {
      for (const Operand& o : *operands) {
        if (RootOf(c_, o.buffer) == root) return true;
      }
    }
    return false;
  }
  // The last instruction before `end` that writes the operand; `end` where there is none.
  static size_t MakerOf(const Block& block, size_t end, const Operand& operand) {
    for (size_t i = end; i-- > 0;) {
      const auto& writes = block.instructions[i].writes;
      if (std::find(writes.begin(), writes.end(), operand) != writes.end()) return i;
    }
    return end;
  }
  // The RowMax that finds what ExpSumAndPick takes for the largest, all-reduces between; `sums` where there is none.
  size_t MaxOf(const Block& block, size_t sums) const {
    const std::vector<Instruction>& all = block.instructions;
    for (size_t i = MakerOf(block, sums, all[sums].reads[1]); i < sums;) {
      if (KernelOf(all[i], OpKind::kRowMax) != nullptr) return all[i].reads[0] == all[sums].reads[0] ? i : sums;
      const auto* const collective = std::get_if<Collective>(&all[i].work);
      if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce || all[i].reads.size() != 1) break;
      const size_t before = MakerOf(block, i, all[i].reads[0]);
      if (before == i) break;
      i = before;
    }
    return sums;
  }
  // Brings what makes the labels in front of `max`; whether they are there.
  bool LabelsBefore(Block& block, size_t& max, size_t sums) const {
    std::vector<Instruction>& all = block.instructions;
    const Operand labels = all[sums].reads[2];
    const size_t maker = MakerOf(block, sums, labels);
    if (maker == sums || maker < max) return true;  // of another block, or before
    if (KernelOf(all[maker], OpKind::kFeed) == nullptr || !all[maker].reads.empty()) return false;
    for (size_t i = max; i < maker; ++i) {
      if (Touches(all[i], RootOf(c_, labels.buffer))) return false;
    }
    std::rotate(all.begin() + static_cast<int64_t>(max), all.begin() + static_cast<int64_t>(maker),
                all.begin() + static_cast<int64_t>(maker) + 1);
    ++max;
    return true;
  }

  void ReadOnce(Block& block, size_t sums) {
    std::vector<Instruction>& all = block.instructions;
    const Buffer& logits = BufferOf(all[sums].reads[0]);
    if (!std::get<Compute>(all[sums].work).attrs->fused || SizeOf(logits.dtype) != Bytes(2)) return;
    size_t max = MaxOf(block, sums);
    if (max == sums) return;
    for (size_t i = max + 1; i < sums; ++i) {
      for (const Operand& write : all[sums].writes) {
        if (Touches(all[i], RootOf(c_, write.buffer))) return;
      }
    }
    const int64_t parts = mesh_.SizeOf(logits.layout.dims.back());
    const bool direct = all[sums].reads[1] == all[max].writes[0];
    if ((parts == 1) != direct || !LabelsBefore(block, max, sums)) return;
    Instruction partials = PartialsOf(all[sums]);
    if (parts == 1) {
      MakeResults(all[max], all[sums], partials);
      all[max] = std::move(partials);
      all.erase(all.begin() + static_cast<int64_t>(sums));
    } else {
      MakeColumns(all[max], all[sums], parts, partials);
      all.insert(all.begin() + static_cast<int64_t>(max), std::move(partials));
    }
  }

  // In place of an ExpSumAndPick, without what it writes.
  static Instruction PartialsOf(const Instruction& sums) {
    Instruction partials = sums;
    Compute& kernel = std::get<Compute>(partials.work);
    kernel.op = OpKind::kRowPartials;
    kernel.rule.Change([](IndexRule& own) { own.inputs.erase(own.inputs.begin() + 1); });
    partials.reads = {sums.reads[0], sums.reads[2]};
    return partials;
  }

  // Of whole rows they are what the two kernels made.
  static void MakeResults(const Instruction& max, const Instruction& sums, Instruction& partials) {
    const IndexRule& before = std::get<Compute>(sums.work).rule;
    std::get<Compute>(partials.work).rule.Change([&before](IndexRule& own) {
      own.labels[static_cast<size_t>(before.inputs[0].back().label)].whole = true;
      own.outputs = {before.inputs[1], before.outputs[0], before.outputs[1]};
    });
    partials.writes = {max.writes[0], sums.writes[0], sums.writes[1]};
  }

  // Of split ones a column for each rank, from which the two kernels go on.
  void MakeColumns(Instruction& max, Instruction& sums, int64_t parts, Instruction& partials) {
    const AxisList axes = BufferOf(partials.reads[0]).layout.dims.back();
    Compute& join = std::get<Compute>(sums.work);
    const OperandRule top_rule = join.rule->inputs[1];
    OperandRule column = join.rule->outputs[0];
    column.push_back({join.rule->inputs[0].back().label, true});
    std::get<Compute>(partials.work).rule.Change([&column](IndexRule& own) { own.outputs = {column, column, column}; });
    partials.writes.clear();
    for (const absl::string_view name : {"tops", "sums", "picks"}) {
      Buffer buffer = BufferOf(sums.writes[0]);
      buffer.name = absl::StrCat(BufferOf(partials.reads[0]).name, "/", name);
      buffer.shape.push_back(parts);
      buffer.layout.partial.clear();
      buffer.layout.dims.push_back(axes);
      buffer.role = BufferRole::kTemporary;
      buffer.layers = buffer.microbatches = 1;
      buffer.first_layer = 0;
      partials.writes.push_back({BufferId(c_.buffers.size()), 0});
      c_.buffers.push_back(std::move(buffer));
    }
    column.back().own_size = false;
    std::get<Compute>(max.work).rule = IndexRule{join.rule->labels, {column}, {top_rule}};
    max.reads = {partials.writes[0]};
    join.op = OpKind::kJoinPartials;
    join.rule.Change([&](IndexRule& own) { own.inputs = {column, column, column, top_rule}; });
    sums.reads = {partials.writes[0], partials.writes[1], partials.writes[2], sums.reads[1]};
  }

  // Whether everything that uses the buffer's memory is a kernel, or beside no kernel, at its own layer: in `block` up
  // to instruction `last`, elsewhere forward.
  bool DiesAt(BufferId buffer, size_t block, size_t last) const {
    const BufferId root = RootOf(c_, buffer);
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      for (size_t i = 0; i < c_.blocks[b].instructions.size(); ++i) {
        const Instruction& instruction = c_.blocks[b].instructions[i];
        if (!Touches(instruction, root)) continue;
        if (b == block ? i > last : c_.blocks[b].phase != Phase::kForward) return false;
        if (!IsInOrder(instruction, buffer)) return false;
      }
    }
    return true;
  }
  // Whether the buffer is used in `block` alone, from instruction `first` on.
  bool BornAt(BufferId buffer, size_t block, size_t first) const {
    const BufferId root = RootOf(c_, buffer);
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      for (size_t i = 0; i < c_.blocks[b].instructions.size(); ++i) {
        const Instruction& instruction = c_.blocks[b].instructions[i];
        if (!Touches(instruction, root)) continue;
        if (b != block || i < first || !IsInOrder(instruction, buffer)) return false;
      }
    }
    return true;
  }
  bool IsInOrder(const Instruction& instruction, BufferId buffer) const {
    const auto here = [&](const Operand& o) { return o.buffer != buffer || o.layer_shift == 0; };
    return instruction.stream == Stream::kCompute &&
           std::all_of(instruction.reads.begin(), instruction.reads.end(), here) &&
           std::all_of(instruction.writes.begin(), instruction.writes.end(), here);
  }

  void WriteOver(size_t block, size_t i) {
    const Instruction& instruction = c_.blocks[block].instructions[i];
    const auto* const compute = std::get_if<Compute>(&instruction.work);
    const bool gradient =
        compute != nullptr && (compute->op == OpKind::kPartialsGrad || compute->op == OpKind::kCrossEntropyGrad);
    if (!gradient || compute->on_host || !compute->attrs->fused) return;
    const BufferId from = instruction.reads[1].buffer, to = instruction.writes[0].buffer;
    const Buffer& logits = c_.buffers[from.index()];
    Buffer& made = c_.buffers[to.index()];
    const bool lives_here = logits.role == BufferRole::kActivation || logits.role == BufferRole::kTemporary;
    if (!lives_here || made.role != BufferRole::kTemporary || logits.alias.valid() || made.alias.valid()) return;
    if (logits.dtype != made.dtype || logits.shape != made.shape || logits.layout != made.layout) return;
    if (!DiesAt(from, block, i) || !BornAt(to, block, i)) return;
    made.alias = from;
    made.layers = logits.layers;
    made.microbatches = logits.microbatches;
    made.first_layer = logits.first_layer;
  }

  RankClass& c_;
  const Mesh& mesh_;
};

}  // namespace

Program FuseLoss(Program program) {
  for (RankClass& c : program.classes) LossFuser(c, program.mesh).Run();
  return program;
}

}  // namespace meshwright
