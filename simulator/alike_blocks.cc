#include "simulator/alike_blocks.h"

#include <algorithm>
#include <variant>

namespace meshwright {
namespace {

using Operands = absl::InlinedVector<Operand, 4>;

// Of two instructions that do the same kind of work.
struct SameWork {
  const Work& other;
  bool operator()(const Compute& a) const {
    const Compute& b = std::get<Compute>(other);
    return a.op == b.op && a.accumulate == b.accumulate && a.recompute == b.recompute && a.on_host == b.on_host &&
           a.attrs == b.attrs && a.rule == b.rule;
  }
  bool operator()(const Collective& a) const {
    const Collective& b = std::get<Collective>(other);
    return a.kind == b.kind && a.reduction == b.reduction && a.axes == b.axes && a.dim == b.dim &&
           a.to_dim == b.to_dim && a.root == b.root && a.purpose == b.purpose;
  }
  bool operator()(const Slice&) const { return true; }
  bool operator()(const Sync&) const { return true; }
  bool operator()(const Permute&) const { return false; }
  bool operator()(const Transfer&) const { return false; }
};

bool SameBuffers(const Operands& a, const RankClass& of_a, const Operands& b, const RankClass& of_b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Operand& x, const Operand& y) {
    const Buffer &p = of_a.buffers[x.buffer.index()], &q = of_b.buffers[y.buffer.index()];
    return p.dtype == q.dtype && p.role == q.role && p.shape == q.shape && p.layout == q.layout && p.owner < 0 &&
           q.owner < 0;
  });
}

}  // namespace

std::optional<AlikeBlocks::Place> AlikeBlocks::FindOrNote(const Place& place) {
  const Block& block = BlockAt(place);
  uint64_t look = static_cast<uint64_t>(program_.RankOf(place.class_index, 0) % devices_per_node_) * 2 +
                  (block.phase == Phase::kForward ? 0 : 1);
  for (const Instruction& instruction : block.instructions) {
    if (std::holds_alternative<Permute>(instruction.work) || std::holds_alternative<Transfer>(instruction.work)) {
      return std::nullopt;
    }
    const auto* compute = std::get_if<Compute>(&instruction.work);
    const uint64_t work = compute != nullptr ? static_cast<uint64_t>(compute->op) : 1000 + instruction.work.index();
    look = (look * 31 + work) * 31 + instruction.reads.size() * 7 + instruction.writes.size();
  }
  std::vector<Place>& candidates = seen_[look];
  for (const Place& candidate : candidates) {
    if (AreAlike(candidate, place)) return candidate;
  }
  candidates.push_back(place);
  return std::nullopt;
}

bool AlikeBlocks::AreAlike(const Place& a, const Place& b) const {
  const auto place_in_node = [this](const Place& place) {
    return program_.RankOf(place.class_index, 0) % devices_per_node_;
  };
  const RankClass &of_a = program_.classes[a.class_index], &of_b = program_.classes[b.class_index];
  const Block &one = BlockAt(a), &other = BlockAt(b);
  return one.phase == other.phase && place_in_node(a) == place_in_node(b) &&
         std::equal(one.instructions.begin(), one.instructions.end(), other.instructions.begin(),
                    other.instructions.end(), [&](const Instruction& x, const Instruction& y) {
                      return x.stream == y.stream && x.work.index() == y.work.index() &&
                             SameBuffers(x.reads, of_a, y.reads, of_b) && SameBuffers(x.writes, of_a, y.writes, of_b) &&
                             std::visit(SameWork{y.work}, x.work);
                    });
}

}  // namespace meshwright
