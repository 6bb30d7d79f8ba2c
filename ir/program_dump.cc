// DumpRank: the program as one rank runs it.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ir/program_text.h"

namespace meshwright {
namespace {

// A longer list of ranks is cut.
constexpr size_t kMaxRanksShown = 64;

// "0-1-2-3", as group_ranks is written in the dumps that our users know.
std::string RanksText(const std::vector<int64_t>& ranks) {
  if (ranks.size() <= kMaxRanksShown) return absl::StrJoin(ranks, "-");
  return absl::StrCat(absl::StrJoin(ranks.begin(), ranks.begin() + kMaxRanksShown, "-"), "-... (", ranks.size(),
                      " ranks)");
}

absl::string_view DumpName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "AllReduce";
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kAllToAll:
      return "AlltoAll";
  }
  return "";
}

class Dump {
 public:
  Dump(const Program& program, int64_t rank)
      : program_(program),
        rank_(rank),
        class_(program.classes[static_cast<size_t>(rank / program.ranks_per_class())]),
        shown_(class_.blocks.size(), false),
        loaded_(class_.buffers.size(), false) {}

  std::string Text() {
    for (const Slot& slot : class_.slots) AppendSlot(slot);
    return std::move(text_);
  }

 private:
  void AppendSlot(const Slot& slot) {
    const Block& block = class_.blocks[slot.block.index()];
    const int64_t last = slot.layer + slot.step * (slot.count - 1);
    absl::StrAppend(&text_, "# ", block.name, ": ", slot.count == 1 ? "layer " : "layers ", slot.layer);
    if (slot.count != 1) absl::StrAppend(&text_, slot.count == 2 ? ", " : " to ", last);
    absl::StrAppend(&text_, ", micro-batch ", slot.microbatch, shown_[slot.block.index()] ? ", as above\n" : "\n");
    if (shown_[slot.block.index()]) return;
    shown_[slot.block.index()] = true;
    for (const Instruction& instruction : block.instructions) {
      AppendLoads(instruction);
      absl::StrAppend(&text_, ++count_, " ");
      std::visit([&](const auto& work) { Append(instruction, work); }, instruction.work);
      text_ += '\n';
    }
  }

  void AppendLoads(const Instruction& instruction) {
    for (const Operand& read : instruction.reads) {
      const Buffer& buffer = BufferOf(read);
      if (buffer.role != BufferRole::kParameter || loaded_[read.buffer.index()]) continue;
      loaded_[read.buffer.index()] = true;
      absl::StrAppend(&text_, "- Load ", buffer.name, " ", LocalText(read), "\n");
    }
  }

  void Append(const Instruction& instruction, const Compute& compute) {
    absl::StrAppend(&text_, NameOf(compute.op));
    AppendShapes(instruction);
  }

  void Append(const Instruction& instruction, const Slice&) {
    const Buffer& from = BufferOf(instruction.reads[0]);
    const Buffer& to = BufferOf(instruction.writes[0]);
    const Shape base = SliceBegin(from.shape, from.layout, program_.mesh, rank_);
    Shape begin = SliceBegin(to.shape, to.layout, program_.mesh, rank_);
    Shape end = LocalShape(to.shape, to.layout, program_.mesh);
    for (size_t d = 0; d < begin.size(); ++d) {
      begin[d] -= base[d];
      end[d] += begin[d];
    }
    absl::StrAppend(&text_, "StridedSlice begin ", ToText(begin), " end ", ToText(end), " strides ",
                    ToText(Shape(begin.size(), 1)));
    AppendShapes(instruction);
  }

  void Append(const Instruction& instruction, const Collective& collective) {
    absl::StrAppend(&text_, DumpName(collective.kind));
    if (InfoOf(collective.kind).reduces) absl::StrAppend(&text_, " ", NameOf(collective.reduction));
    absl::StrAppend(&text_, " ranks ", RanksText(program_.mesh.Group(rank_, collective.axes)), " fusion ",
                    instruction.reads.size() > 1 ? ++fusions_ : 0);
    if (collective.kind == CollectiveKind::kAllReduce || collective.kind == CollectiveKind::kBroadcast) {
      for (const Operand& read : instruction.reads) absl::StrAppend(&text_, " ", LocalText(read));
      return;
    }
    absl::StrAppend(&text_, " dim ", collective.dim);
    if (collective.kind == CollectiveKind::kAllToAll) absl::StrAppend(&text_, " to ", collective.to_dim);
    AppendShapes(instruction);
  }

  void Append(const Instruction& instruction, const Permute& permute) {
    text_ += "Permute";
    if (!permute.sources.empty()) {
      const int32_t source = permute.sources[program_.mesh.PositionOf(rank_, permute.axes)];
      const std::vector<int64_t> group = program_.mesh.Group(rank_, permute.axes);
      absl::StrAppend(&text_, " from ", source < 0 ? "nobody" : absl::StrCat("rank ", group[source]));
    }
    AppendShapes(instruction);
  }

  void Append(const Instruction&, const Sync&) { text_ += "Sync"; }

  void Append(const Instruction& instruction, const Transfer& transfer) {
    const int64_t peer = rank_ + transfer.stage_offset * program_.ranks_per_class();
    absl::StrAppend(&text_, transfer.send ? "Send to rank " : "Receive from rank ", peer);
    for (const Operand& operand : transfer.send ? instruction.reads : instruction.writes) {
      absl::StrAppend(&text_, " ", LocalText(operand));
    }
  }

  // " (8, 8) (8, 16) -> (8, 16)"
  void AppendShapes(const Instruction& instruction) {
    for (const Operand& read : instruction.reads) absl::StrAppend(&text_, " ", LocalText(read));
    text_ += " ->";
    for (const Operand& write : instruction.writes) absl::StrAppend(&text_, " ", LocalText(write));
  }

  const Buffer& BufferOf(const Operand& operand) const { return class_.buffers[operand.buffer.index()]; }
  std::string LocalText(const Operand& operand) const {
    const Buffer& buffer = BufferOf(operand);
    return ToText(LocalShape(buffer.shape, buffer.layout, program_.mesh));
  }

  const Program& program_;
  const int64_t rank_;
  const RankClass& class_;
  std::vector<bool> shown_;   // by block
  std::vector<bool> loaded_;  // by buffer
  std::string text_;
  int64_t count_ = 0;
  int64_t fusions_ = 0;
};

}  // namespace

std::string DumpRank(const Program& program, int64_t rank) { return Dump(program, rank).Text(); }

}  // namespace meshwright
