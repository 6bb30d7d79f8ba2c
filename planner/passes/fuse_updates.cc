#include "planner/passes/fuse_updates.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "planner/passes/operands.h"

namespace meshwright {
namespace {

// Whether nothing but its operands orders it among others: a kernel that neither waits nor is waited for.
bool IsPlain(const Instruction& instruction) {
  const bool local =
      std::holds_alternative<Compute>(instruction.work) || std::holds_alternative<Slice>(instruction.work);
  return local && instruction.waits.empty() && instruction.records.empty();
}

class Fuser {
 public:
  explicit Fuser(const RankClass& c) : c_(c) {}

  // What may be joined waits in `open_`, in its order, for more of its kind, until something comes that it may not move
  // past.
  std::vector<Instruction> Run(std::vector<Instruction> before) {
    for (Instruction& instruction : before) {
      if (!MayWait(instruction)) {
        CloseIf([&](const Instruction& open) { return !IsPlain(instruction) || Meet(open, instruction); });
        done_.push_back(std::move(instruction));
      } else if (Instruction* const alike = AlikeOf(instruction)) {
        Join(instruction, *alike);
      } else {
        open_.push_back(std::move(instruction));
      }
    }
    CloseIf([](const Instruction&) { return true; });
    return std::move(done_);
  }

 private:
  static std::optional<UpdateOperands> OperandsOf(const Instruction& instruction) {
    const auto* compute = std::get_if<Compute>(&instruction.work);
    if (compute == nullptr) return std::nullopt;
    return UpdateOperandsOf(compute->op, compute->attrs, instruction.reads.size(), instruction.writes.size());
  }

  // Muon's matrices go one by one: whole steps and directions of several would be there at once.
  static bool IsOfMuon(const Instruction& instruction) {
    const OpKind op = std::get<Compute>(instruction.work).op;
    return op == OpKind::kMuonStep || op == OpKind::kMuon;
  }

  // An update, or the sum over ranks of norms that an update has left which waits.
  bool MayWait(const Instruction& instruction) const {
    if (IsPlain(instruction)) return OperandsOf(instruction).has_value() && !IsOfMuon(instruction);
    const auto* const sum = std::get_if<Collective>(&instruction.work);
    return sum != nullptr && sum->kind == CollectiveKind::kAllReduce && instruction.waits.empty() &&
           instruction.records.empty() && absl::c_all_of(instruction.reads, [this](const Operand& read) {
             return absl::c_any_of(open_, [&](const Instruction& open) {
               return std::holds_alternative<Compute>(open.work) && Has(open.writes, read.buffer);
             });
           });
  }

  // The last of its kind that waits; none where that would move it past what it must stay behind.
  Instruction* AlikeOf(const Instruction& instruction) {
    for (auto open = open_.rbegin(); open != open_.rend() && !Meet(*open, instruction); ++open) {
      if (AreAlike(*open, instruction)) return &*open;
    }
    return nullptr;
  }

  DType TypeOf(const Operand& operand) const { return c_.buffers[operand.buffer.index()].dtype; }

  bool AreAlike(const Instruction& a, const Instruction& b) const {
    if (a.work.index() != b.work.index() || a.stream != b.stream || OwnerOf(a, c_) != OwnerOf(b, c_)) return false;
    if (const auto* const sum = std::get_if<Collective>(&a.work)) {
      const Collective& other = std::get<Collective>(b.work);
      return sum->axes == other.axes && sum->reduction == other.reduction && sum->purpose == other.purpose &&
             TypeOf(a.reads[0]) == TypeOf(b.reads[0]);
    }
    const Compute &one = std::get<Compute>(a.work), &other = std::get<Compute>(b.work);
    const UpdateOperands first = *OperandsOf(a), second = *OperandsOf(b);
    if (one.op != other.op || one.on_host != other.on_host || first.outputs != second.outputs ||
        first.scaled != second.scaled) {
      return false;
    }
    OpAttrs attrs = one.attrs;
    attrs.tensors = other.attrs->tensors;
    if (attrs != *other.attrs) return false;
    const auto same_types = [&](const Operands& x, const Operands& y, size_t each) {
      return std::equal(x.begin(), x.begin() + static_cast<int64_t>(each), y.begin(),
                        [&](const Operand& p, const Operand& q) { return TypeOf(p) == TypeOf(q); });
    };
    if (first.scaled && !std::equal(a.reads.end() - 2, a.reads.end(), b.reads.end() - 2)) return false;
    return same_types(a.reads, b.reads, first.inputs) && same_types(a.writes, b.writes, first.outputs);
  }

  static void Join(const Instruction& more, Instruction& all) {
    int64_t scalars = 0,
            tensors = static_cast<int64_t>(all.reads.size() + more.reads.size()) / 2;  // norms are in pairs
    if (auto* const update = std::get_if<Compute>(&all.work)) {
      scalars = OperandsOf(all)->scaled ? 2 : 0;
      tensors = update->attrs->tensors + std::get<Compute>(more.work).attrs->tensors;
      update->attrs.Change([tensors](OpAttrs& own) { own.tensors = tensors; });
      update->rule = {};
    }
    all.reads.insert(all.reads.end() - scalars, more.reads.begin(), more.reads.end() - scalars);
    all.writes.insert(all.writes.end(), more.writes.begin(), more.writes.end());
    all.origin = absl::StrCat(all.origin.substr(0, all.origin.find(" +")), " +", tensors - 1);
  }

  // Those that fulfil the condition, behind what they must stay behind.
  template <class Condition>
  void CloseIf(const Condition& condition) {
    std::vector<bool> closes(open_.size(), false);
    for (size_t i = open_.size(); i-- > 0;) {
      closes[i] = condition(open_[i]);
      for (size_t k = i + 1; k < open_.size() && !closes[i]; ++k) closes[i] = closes[k] && Meet(open_[i], open_[k]);
    }
    std::vector<Instruction> open;
    for (size_t i = 0; i < open_.size(); ++i) (closes[i] ? done_ : open).push_back(std::move(open_[i]));
    open_ = std::move(open);
  }

  const RankClass& c_;
  std::vector<Instruction> open_, done_;
};

}  // namespace

Program FuseUpdates(Program program) {
  for (RankClass& c : program.classes) {
    for (Block& block : c.blocks) {
      const auto updates =
          std::count_if(block.instructions.begin(), block.instructions.end(), [](const Instruction& i) {
            const auto* compute = std::get_if<Compute>(&i.work);
            return compute != nullptr && IsOptimizer(compute->op);
          });
      if (updates > 1) block.instructions = Fuser(c).Run(std::move(block.instructions));
    }
  }
  return program;
}

}  // namespace meshwright
