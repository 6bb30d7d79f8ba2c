#include "planner/passes/fuse_epilogues.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

constexpr int64_t kRowMultiple = 8;  // elements, of a matrix beside an epilogue

using Operands = absl::InlinedVector<Operand, 4>;

bool Has(const Operands& operands, BufferId buffer) {
  return std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return o.buffer == buffer; });
}
bool Uses(const Instruction& instruction, BufferId buffer) {
  return Has(instruction.reads, buffer) || Has(instruction.writes, buffer);
}

// The row of the op table that is a product with `activation` as its epilogue; kNumOps where there is none.
OpKind ProductWith(OpKind activation) {
  for (const OpInfo& row : kOps) {
    if (row.epilogue == activation && activation != OpKind::kNumOps) return row.kind;
  }
  return OpKind::kNumOps;
}

const Compute* KernelOf(const Instruction& instruction) {
  const auto* const compute = std::get_if<Compute>(&instruction.work);
  const bool here = compute != nullptr && instruction.stream == Stream::kCompute && !compute->on_host;
  return here ? compute : nullptr;
}

class Fuser {
 public:
  Fuser(RankClass& c, const Mesh& mesh) : c_(c), mesh_(mesh) {}

  void Run() {
    bool any = false;
    for (Block& block : c_.blocks) {
      for (size_t product = 0; product < block.instructions.size(); ++product) {
        const size_t activation = ActivationOf(block, product);
        if (activation == block.instructions.size()) continue;
        Fuse(block, product, activation);
        any = true;
      }
    }
    if (any) DropUnused();
  }

 private:
  const Buffer& BufferOf(const Operand& operand) const { return c_.buffers[operand.buffer.index()]; }

  // Whether libraries may have an epilogue for it: see the header.
  bool TakesEpilogue(const Instruction& instruction, const Compute& compute) const {
    if (compute.op != OpKind::kMatMul || instruction.writes.size() != 1) return false;
    const DType dtype = BufferOf(instruction.writes[0]).dtype;
    if (dtype != DType::kFloat16 && dtype != DType::kBFloat16) return false;
    for (const Operand& operand : instruction.reads) {
      if (BufferOf(operand).dtype != dtype) return false;
    }
    const BufferRole role = BufferOf(instruction.writes[0]).role;
    if (role == BufferRole::kGradient || role == BufferRole::kLoss) return false;
    const IndexRule& rule = compute.rule;
    const auto in = [&](size_t input, int8_t label) {
      const OperandRule& dims = rule.inputs[input];
      return std::any_of(dims.begin(), dims.end(), [&](const DimRule& dim) { return dim.label == label; });
    };
    // The result's dims: of both operands, then of the first, then of the second, which make a row.
    const Buffer& made = BufferOf(instruction.writes[0]);
    const Shape local = LocalShape(made.shape, made.layout, mesh_);
    int64_t row = 1;
    int before = 0;
    for (size_t d = 0; d < local.size(); ++d) {
      const int8_t label = rule.outputs[0][d].label;
      if (label == DimRule::kUnsplit) continue;
      const bool a = in(0, label), b = in(1, label);
      const int part = a && b ? 0 : a ? 1 : 2;
      if (part < before || (!a && !b)) return false;
      before = part;
      if (part == 2) row *= local[d];
    }
    return row % kRowMultiple == 0;
  }

  // The activation of what `product` makes, which may move up to it; the block's size where there is none.
  size_t ActivationOf(const Block& block, size_t product) const {
    const std::vector<Instruction>& all = block.instructions;
    const Compute* const made = KernelOf(all[product]);
    if (made == nullptr || !TakesEpilogue(all[product], *made)) return all.size();
    const Operand x = all[product].writes[0];
    for (size_t i = product + 1; i < all.size(); ++i) {
      const Instruction& next = all[i];
      if (!Uses(next, x.buffer)) {
        if (next.stream == Stream::kCompute && !next.waits.empty()) break;
        continue;
      }
      const Compute* const compute = KernelOf(next);
      const bool fits = compute != nullptr && ProductWith(compute->op) != OpKind::kNumOps && next.reads[0] == x &&
                        next.waits.empty() && compute->recompute == made->recompute &&
                        OnlyElementwise(next, *compute) && MayMoveUp(all, product, i);
      const bool gradient = fits && next.reads.size() == 2;
      // Of the gradient only what comes out is kept, and a product with a bias has no such epilogue.
      return fits && !(gradient && (NeededBeyond(block, product, i) || all[product].reads.size() > 2)) ? i : all.size();
    }
    return all.size();
  }

  // One input, or two of which the other is what the activation was of, all laid out and typed as the result.
  bool OnlyElementwise(const Instruction& instruction, const Compute& compute) const {
    const size_t inputs = compute.op == OpKind::kGeluGrad ? 2 : 1;
    if (instruction.reads.size() != inputs || instruction.writes.size() != 1) return false;
    const Buffer& y = BufferOf(instruction.writes[0]);
    for (size_t i = 0; i < inputs; ++i) {
      const Buffer& x = BufferOf(instruction.reads[i]);
      const bool alike = compute.rule.inputs[i] == compute.rule.outputs[0] && x.dtype == y.dtype && x.shape == y.shape;
      if (!alike) return false;
    }
    return y.role != BufferRole::kGradient && y.role != BufferRole::kLoss &&
           instruction.writes[0] != instruction.reads[0];
  }

  static bool MayMoveUp(const std::vector<Instruction>& all, size_t product, size_t activation) {
    const Instruction& moves = all[activation];
    if (!moves.records.empty() && activation != product + 1) return false;
    for (size_t i = product; i < activation; ++i) {
      for (const Operand& write : moves.writes) {
        if (Uses(all[i], write.buffer)) return false;
      }
      for (const Operand& read : moves.reads) {
        if (i > product && Has(all[i].writes, read.buffer)) return false;
      }
    }
    return true;
  }

  // Whether anybody but its activation reads what the product makes.
  bool NeededBeyond(const Block& block, size_t product, size_t activation) const {
    const BufferId x = block.instructions[product].writes[0].buffer;
    const bool here_only = BufferOf(block.instructions[product].writes[0]).role == BufferRole::kTemporary;
    for (const Block& other : c_.blocks) {
      if (here_only && &other != &block) continue;
      for (size_t i = 0; i < other.instructions.size(); ++i) {
        if (&other == &block && (i == product || i == activation)) continue;
        if (Has(other.instructions[i].reads, x)) return true;
      }
    }
    return false;
  }

  void Fuse(Block& block, size_t product, size_t activation) {
    const bool needed = NeededBeyond(block, product, activation);
    Instruction& one = block.instructions[product];
    Instruction& other = block.instructions[activation];
    Compute& compute = std::get<Compute>(one.work);
    const Operand x = one.writes[0];
    const OperandRule made = compute.rule.outputs[0];
    compute.op = ProductWith(std::get<Compute>(other.work).op);
    // Sums must be whole before the activation: nobody may split what is contracted.
    for (size_t label = 0; label < compute.rule.labels.size(); ++label) {
      if (!compute.rule.InOutput(static_cast<int>(label), 0)) compute.rule.labels[label].whole = true;
    }
    for (size_t i = 1; i < other.reads.size(); ++i) {
      one.reads.push_back(other.reads[i]);
      compute.rule.inputs.push_back(made);
    }
    one.writes = other.writes;
    if (needed) {
      one.writes.push_back(x);
      compute.rule.outputs.push_back(made);
    }
    one.records.insert(one.records.end(), other.records.begin(), other.records.end());
    absl::StrAppend(&one.origin, " + ", other.origin.substr(other.origin.find('/') + 1));
    block.instructions.erase(block.instructions.begin() + static_cast<int64_t>(activation));
  }

  // Buffers that nothing uses any more go away, so that nobody reserves or reports them.
  void DropUnused() {
    std::vector<bool> used(c_.buffers.size(), false);
    const auto each = [this](const auto& f) {
      for (Block& block : c_.blocks) {
        for (Instruction& instruction : block.instructions) {
          for (Operands* operands : {&instruction.reads, &instruction.writes}) {
            for (Operand& operand : *operands) f(operand.buffer);
          }
        }
      }
    };
    each([&](BufferId& id) { used[id.index()] = true; });
    for (size_t b = 0; b < c_.buffers.size(); ++b) {
      const BufferRole role = c_.buffers[b].role;
      if (role != BufferRole::kTemporary && role != BufferRole::kActivation) used[b] = true;
      if (!used[b]) continue;
      for (BufferId id = c_.buffers[b].alias; id.valid(); id = c_.buffers[id.index()].alias) used[id.index()] = true;
    }
    std::vector<BufferId> now(c_.buffers.size());
    std::vector<Buffer> kept;
    for (size_t b = 0; b < c_.buffers.size(); ++b) {
      if (!used[b]) continue;
      now[b] = BufferId(kept.size());
      kept.push_back(std::move(c_.buffers[b]));
    }
    for (Buffer& buffer : kept) {
      if (buffer.alias.valid()) buffer.alias = now[buffer.alias.index()];
    }
    each([&](BufferId& id) { id = now[id.index()]; });
    c_.buffers = std::move(kept);
  }

  RankClass& c_;
  const Mesh& mesh_;
};

}  // namespace

Program FuseEpilogues(Program program) {
  for (RankClass& c : program.classes) Fuser(c, program.mesh).Run();
  return program;
}

}  // namespace meshwright
