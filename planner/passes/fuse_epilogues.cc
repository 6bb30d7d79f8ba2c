#include "planner/passes/fuse_epilogues.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/passes/operands.h"

namespace meshwright {
namespace {

constexpr int64_t kRowMultiple = 8;  // elements, of a matrix beside an epilogue
constexpr size_t kMostSummands = 3;  // of a sum with a norm behind it

// The row of the op table that is `front` with `epilogue` behind it; kNumOps where there is none.
OpKind Both(OpKind front, OpKind epilogue) {
  for (const OpInfo& row : kOps) {
    if (row.epilogue != OpKind::kNumOps && row.front == front && row.epilogue == epilogue) return row.kind;
  }
  return OpKind::kNumOps;
}

// By operator, whether any epilogue can stand behind it.
constexpr auto kHasEpilogues = [] {
  std::array<bool, static_cast<size_t>(OpKind::kNumOps)> has = {};
  for (const OpInfo& row : kOps) {
    if (row.epilogue != OpKind::kNumOps) has[static_cast<size_t>(row.front)] = true;
  }
  return has;
}();

bool IsNorm(OpKind op) { return op == OpKind::kLayerNorm || op == OpKind::kRmsNorm; }
// Whether the op's result is not kept beside the epilogue's: gradients.
bool DropsResult(OpKind epilogue) { return epilogue == OpKind::kGeluGrad || epilogue == OpKind::kAdd; }

// Whether an operand is one row, that of the innermost dim of `of`.
bool IsRow(const OperandRule& operand, const OperandRule& of) {
  return operand.size() == 1 && !of.empty() && of.back().label != DimRule::kUnsplit && operand[0] == of.back();
}

const Compute* KernelOf(const Instruction& instruction) {
  const auto* const compute = std::get_if<Compute>(&instruction.work);
  const bool here = compute != nullptr && instruction.stream == Stream::kCompute && !compute->on_host;
  return here ? compute : nullptr;
}

class Fuser {
 public:
  Fuser(RankClass& c, const Mesh& mesh, const std::set<std::string>& layer_ends)
      : c_(c), mesh_(mesh), layer_ends_(layer_ends) {}

  void Run() {
    NoteReaders();
    bool any = false;
    for (Block& block : c_.blocks) {
      for (size_t front = 0; front < block.instructions.size(); ++front) {
        const size_t behind = EpilogueOf(block, front);
        if (behind == block.instructions.size()) continue;
        Fuse(block, front, behind);
        any = true;
      }
    }
    if (any) DropUnused();
  }

 private:
  const Buffer& BufferOf(const Operand& operand) const { return c_.buffers[operand.buffer.index()]; }

  // Fusing moves reads within a block only, so that no block is missing later.
  void NoteReaders() {
    readers_.resize(c_.buffers.size());
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      for (const Instruction& instruction : c_.blocks[b].instructions) {
        for (const Operand& read : instruction.reads) {
          Blocks& blocks = readers_[read.buffer.index()];
          if (blocks.empty() || blocks.back() != b) blocks.push_back(b);
        }
      }
    }
  }

  // Whether the op may have an epilogue: see the header. Its result is of 16 bits and overwrites.
  // REQUIRES: it writes something.
  bool TakesEpilogue(const Instruction& instruction, const Compute& compute) const {
    if (!compute.attrs->fused) return false;
    const Buffer& made = BufferOf(instruction.writes[0]);
    if (made.dtype != DType::kFloat16 && made.dtype != DType::kBFloat16) return false;
    if (made.role == BufferRole::kGradient || made.role == BufferRole::kLoss) return false;
    const bool alike = std::all_of(instruction.reads.begin(), instruction.reads.end(),
                                   [&](const Operand& operand) { return BufferOf(operand).dtype == made.dtype; });
    switch (compute.op) {
      case OpKind::kMatMul:
        return alike && HasRowsOfEight(instruction, compute.rule);
      case OpKind::kAdd:
        return alike && instruction.reads.size() <= kMostSummands &&
               std::all_of(compute.rule->inputs.begin(), compute.rule->inputs.end(), [&](const OperandRule& summand) {
                 return summand == compute.rule->outputs[0] || IsRow(summand, compute.rule->outputs[0]);
               });
      case OpKind::kDropout:
      case OpKind::kLayerNormGrad:
      case OpKind::kRmsNormGrad:
        return true;
      default:
        return false;
    }
  }

  // The result's dims: of both operands, then of the first, then of the second, which make a row.
  bool HasRowsOfEight(const Instruction& instruction, const IndexRule& rule) const {
    const auto in = [&](size_t input, int8_t label) {
      const OperandRule& dims = rule.inputs[input];
      return std::any_of(dims.begin(), dims.end(), [&](const DimRule& dim) { return dim.label == label; });
    };
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

  // What may move up to the op at `front` as its epilogue; the block's size where there is nothing.
  size_t EpilogueOf(const Block& block, size_t front) const {
    const std::vector<Instruction>& all = block.instructions;
    const Compute* const made = KernelOf(all[front]);
    if (made == nullptr || !kHasEpilogues[static_cast<size_t>(made->op)] || all[front].writes.empty())
      return all.size();
    const Operand x = all[front].writes[0];
    for (size_t i = front + 1; i < all.size(); ++i) {
      const Instruction& next = all[i];
      if (!Uses(next, x.buffer)) {
        if (next.stream == Stream::kCompute && !next.waits.empty()) break;
        continue;
      }
      const Compute* const compute = KernelOf(next);
      const bool fits = compute != nullptr && Both(made->op, compute->op) != OpKind::kNumOps && next.waits.empty() &&
                        compute->recompute == made->recompute && IsEpilogue(next, *compute, x) &&
                        TakesEpilogue(all[front], *made) && MayMoveUp(all, front, i);
      if (!fits) return all.size();
      // A product with a bias has no GELU's gradient as its epilogue. A norm is there for what reads the sum as well.
      const bool needed = NeededBeyond(block, front, i);
      if (DropsResult(compute->op) && (needed || (made->op == OpKind::kMatMul && all[front].reads.size() > 2))) break;
      if (IsNorm(compute->op) && (!needed || layer_ends_.contains(BufferOf(x).name))) return all.size();
      return i;
    }
    return all.size();
  }

  // Whether it makes of x, and perhaps of others that are laid out and typed alike, something that is alike: the
  // activation or its gradient, the sum of two, or the norm of rows.
  bool IsEpilogue(const Instruction& instruction, const Compute& compute, const Operand& x) const {
    const bool norm = IsNorm(compute.op);
    const size_t inputs = norm ? instruction.reads.size() : DropsResult(compute.op) ? 2 : 1;
    if (instruction.reads.size() != inputs || instruction.writes.size() != 1 || !compute.attrs->fused) return false;
    const Buffer& y = BufferOf(instruction.writes[0]);
    if (y.role == BufferRole::kGradient || y.role == BufferRole::kLoss || instruction.writes[0] == x) return false;
    const OperandRule& made = compute.rule->outputs[0];
    int of_x = 0;
    for (size_t i = 0; i < inputs; ++i) {
      const Buffer& read = BufferOf(instruction.reads[i]);
      of_x += instruction.reads[i] == x ? 1 : 0;
      if (norm && i > 0) {
        if (!IsRow(compute.rule->inputs[i], made)) return false;
      } else if (compute.rule->inputs[i] != made || read.dtype != y.dtype || read.shape != y.shape) {
        return false;
      }
    }
    return of_x == 1 && (compute.op == OpKind::kAdd || instruction.reads[0] == x);
  }

  static bool MayMoveUp(const std::vector<Instruction>& all, size_t front, size_t behind) {
    const Instruction& moves = all[behind];
    if (!moves.records.empty() && behind != front + 1) return false;
    for (size_t i = front; i < behind; ++i) {
      for (const Operand& write : moves.writes) {
        if (Uses(all[i], write.buffer)) return false;
      }
      for (const Operand& read : moves.reads) {
        if (i > front && Has(all[i].writes, read.buffer)) return false;
      }
    }
    return true;
  }

  // Whether anybody but its epilogue reads what the op makes.
  bool NeededBeyond(const Block& block, size_t front, size_t behind) const {
    const BufferId x = block.instructions[front].writes[0].buffer;
    const bool here_only = BufferOf(block.instructions[front].writes[0]).role == BufferRole::kTemporary;
    for (const size_t reader : readers_[x.index()]) {
      const Block& other = c_.blocks[reader];
      if (here_only && &other != &block) continue;
      for (size_t i = 0; i < other.instructions.size(); ++i) {
        if (&other == &block && (i == front || i == behind)) continue;
        if (Has(other.instructions[i].reads, x)) return true;
      }
    }
    return false;
  }

  void Fuse(Block& block, size_t front, size_t behind) {
    Instruction& one = block.instructions[front];
    Instruction& other = block.instructions[behind];
    Compute& compute = std::get<Compute>(one.work);
    const Compute& epilogue = std::get<Compute>(other.work);
    const bool keeps = !DropsResult(epilogue.op) && NeededBeyond(block, front, behind);
    const Operand x = one.writes[0];
    const OperandRule made = compute.rule->outputs[0];
    const bool norm = IsNorm(epilogue.op);
    compute.op = Both(compute.op, epilogue.op);
    if (norm) compute.attrs = epilogue.attrs;
    // Sums over labels must be whole before the epilogue, and so must rows: nobody may split what is contracted, nor
    // the row that a norm is over.
    IndexRule rule = compute.rule;
    for (size_t label = 0; label < rule.labels.size(); ++label) {
      const bool row = norm && made.back().label == static_cast<int>(label);
      if (row || !rule.InOutput(static_cast<int>(label), 0)) rule.labels[label].whole = true;
    }
    for (const Operand& read : other.reads) {
      if (read == x) continue;
      one.reads.push_back(read);
      rule.inputs.push_back(norm ? OperandRule{made.back()} : made);
    }
    one.writes[0] = other.writes[0];
    if (keeps) {
      one.writes.push_back(x);
      rule.outputs.push_back(made);
    }
    compute.rule = std::move(rule);
    one.records.insert(one.records.end(), other.records.begin(), other.records.end());
    absl::StrAppend(&one.origin, " + ", other.origin.substr(other.origin.find('/') + 1));
    block.instructions.erase(block.instructions.begin() + static_cast<int64_t>(behind));
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
    kept.reserve(c_.buffers.size());
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
  const std::set<std::string>& layer_ends_;
  using Blocks = absl::InlinedVector<size_t, 4>;
  std::vector<Blocks> readers_;  // by buffer, those that read it
};

}  // namespace

Program FuseEpilogues(Program program, const std::set<std::string>& layer_ends) {
  for (RankClass& c : program.classes) Fuser(c, program.mesh, layer_ends).Run();
  return program;
}

}  // namespace meshwright
