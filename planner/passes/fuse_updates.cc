#include "planner/passes/fuse_updates.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

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

  // An update waits in `open_` for more of its kind, until something comes that it may not move past.
  std::vector<Instruction> Run(std::vector<Instruction> before) {
    for (Instruction& instruction : before) {
      CloseIf([&](const Instruction& update) { return !IsPlain(instruction) || Meet(update, instruction); });
      if (!IsPlain(instruction) || !OperandsOf(instruction).has_value()) {
        done_.push_back(std::move(instruction));
        continue;
      }
      const auto alike = std::find_if(open_.begin(), open_.end(),
                                      [&](const Instruction& update) { return AreAlike(update, instruction); });
      if (alike == open_.end()) {
        open_.push_back(std::move(instruction));
      } else {
        Join(instruction, *alike);
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

  bool AreAlike(const Instruction& a, const Instruction& b) const {
    const Compute &one = std::get<Compute>(a.work), &other = std::get<Compute>(b.work);
    const UpdateOperands first = *OperandsOf(a), second = *OperandsOf(b);
    if (one.op != other.op || one.on_host != other.on_host || a.stream != b.stream || first.outputs != second.outputs ||
        first.scaled != second.scaled || OwnerOf(a, c_) != OwnerOf(b, c_)) {
      return false;
    }
    OpAttrs attrs = one.attrs;
    attrs.tensors = other.attrs.tensors;
    if (attrs != other.attrs) return false;
    const auto same_types = [&](const Operands& x, const Operands& y, size_t each) {
      return std::equal(x.begin(), x.begin() + static_cast<int64_t>(each), y.begin(),
                        [&](const Operand& p, const Operand& q) {
                          return c_.buffers[p.buffer.index()].dtype == c_.buffers[q.buffer.index()].dtype;
                        });
    };
    if (first.scaled && !std::equal(a.reads.end() - 2, a.reads.end(), b.reads.end() - 2)) return false;
    return same_types(a.reads, b.reads, first.inputs) && same_types(a.writes, b.writes, first.outputs);
  }

  static void Join(const Instruction& more, Instruction& update) {
    Compute& compute = std::get<Compute>(update.work);
    const int64_t scalars = OperandsOf(update)->scaled ? 2 : 0;
    update.reads.insert(update.reads.end() - scalars, more.reads.begin(), more.reads.end() - scalars);
    update.writes.insert(update.writes.end(), more.writes.begin(), more.writes.end());
    compute.attrs.tensors += std::get<Compute>(more.work).attrs.tensors;
    compute.rule = {};
    update.origin = absl::StrCat(update.origin.substr(0, update.origin.find(" +")), " +", compute.attrs.tensors - 1);
  }

  template <class Condition>
  void CloseIf(const Condition& condition) {
    if (std::none_of(open_.begin(), open_.end(), condition)) return;
    std::vector<Instruction> open;
    for (Instruction& update : open_) (condition(update) ? done_ : open).push_back(std::move(update));
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
            return compute != nullptr && UpdatesMany(compute->op);
          });
      if (updates > 1) block.instructions = Fuser(c).Run(std::move(block.instructions));
    }
  }
  return program;
}

}  // namespace meshwright
