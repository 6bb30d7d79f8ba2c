#include "simulator/alike_blocks.h"

#include <algorithm>
#include <variant>

namespace meshwright {
namespace {

using Operands = absl::InlinedVector<Operand, 4>;

// The kind of a buffer that costs what no other does: one of a single rank.
constexpr int32_t kNoOther = -1;

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
           a.to_dim == b.to_dim && a.root == b.root && a.root_step == b.root_step && a.purpose == b.purpose;
  }
  bool operator()(const Slice&) const { return true; }
  bool operator()(const Sync&) const { return true; }
  bool operator()(const Permute&) const { return false; }
  bool operator()(const Transfer&) const { return false; }
};

bool CostTheSame(const Buffer& a, const Buffer& b) {
  return a.dtype == b.dtype && a.role == b.role && a.shape == b.shape && a.layout == b.layout && a.owner < 0 &&
         b.owner < 0;
}

bool SameKinds(const Operands& a, const std::vector<int32_t>& of_a, const Operands& b,
               const std::vector<int32_t>& of_b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Operand& x, const Operand& y) {
    const int32_t kind = of_a[x.buffer.index()];
    return kind != kNoOther && kind == of_b[y.buffer.index()];
  });
}

}  // namespace

std::optional<AlikeBlocks::Place> AlikeBlocks::FindOrNote(const Place& place) {
  const Block& block = BlockAt(place);
  KindsOf(copies_.Of(place.class_index));
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

const std::vector<int32_t>& AlikeBlocks::KindsOf(size_t c) {
  std::vector<int32_t>& kinds = kinds_[c];
  const std::vector<Buffer>& buffers = program_.classes[c].buffers;
  if (kinds.size() == buffers.size()) return kinds;
  kinds.reserve(buffers.size());
  const size_t before = c > 0 ? copies_.Of(c - 1) : 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const bool as_before =
        c > 0 && i < kinds_[before].size() && CostTheSame(program_.classes[before].buffers[i], buffers[i]);
    kinds.push_back(as_before ? kinds_[before][i] : KindOf(buffers[i]));
  }
  return kinds;
}

int32_t AlikeBlocks::KindOf(const Buffer& buffer) {
  if (buffer.owner >= 0) return kNoOther;
  uint64_t look = static_cast<uint64_t>(buffer.dtype) * 31 + static_cast<uint64_t>(buffer.role);
  for (const int64_t size : buffer.shape) look = look * 31 + static_cast<uint64_t>(size);
  std::vector<int32_t>& candidates = kinds_seen_[look];
  for (const int32_t kind : candidates) {
    if (CostTheSame(*of_kind_[static_cast<size_t>(kind)], buffer)) return kind;
  }
  candidates.push_back(static_cast<int32_t>(of_kind_.size()));
  of_kind_.push_back(&buffer);
  return candidates.back();
}

bool AlikeBlocks::AreAlike(const Place& a, const Place& b) const {
  const auto place_in_node = [this](const Place& place) {
    return program_.RankOf(place.class_index, 0) % devices_per_node_;
  };
  const std::vector<int32_t>&of_a = kinds_[copies_.Of(a.class_index)], &of_b = kinds_[copies_.Of(b.class_index)];
  const Block &one = BlockAt(a), &other = BlockAt(b);
  return one.phase == other.phase && place_in_node(a) == place_in_node(b) &&
         std::equal(one.instructions.begin(), one.instructions.end(), other.instructions.begin(),
                    other.instructions.end(), [&](const Instruction& x, const Instruction& y) {
                      return x.stream == y.stream && x.work.index() == y.work.index() &&
                             SameKinds(x.reads, of_a, y.reads, of_b) && SameKinds(x.writes, of_a, y.writes, of_b) &&
                             std::visit(SameWork{y.work}, x.work);
                    });
}

}  // namespace meshwright
