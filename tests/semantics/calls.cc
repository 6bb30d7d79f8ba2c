#include "tests/semantics/calls.h"

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/program_text.h"

namespace meshwright {
namespace {

template <class Visit>
void ForEachCall(const Program& program, Purpose purpose, Visit visit) {
  const RankClass& c = program.classes[0];
  for (const Slot& slot : c.slots) {
    for (int64_t k = 0; k < slot.count; ++k) {
      for (const Instruction& instruction : c.blocks[slot.block.index()].instructions) {
        const auto* call = std::get_if<Collective>(&instruction.work);
        if (call != nullptr && call->purpose == purpose) visit(instruction, *call);
      }
    }
  }
}

}  // namespace

std::string GroupsOf(const Program& program, const AxisList& axes) {
  std::vector<std::string> groups;
  for (int64_t rank = 0; rank < program.ranks_per_class(); ++rank) {
    const std::vector<int64_t> group = program.mesh.Group(rank, axes);
    if (group[0] == rank) groups.push_back(absl::StrCat("{", absl::StrJoin(group, ","), "}"));
  }
  return absl::StrJoin(groups, " ");
}

std::vector<std::string> CallsOf(const Program& program, Purpose purpose) {
  std::vector<std::string> calls;
  ForEachCall(program, purpose, [&](const Instruction& instruction, const Collective& call) {
    std::vector<std::string> names;
    for (const Operand& read : instruction.reads) {
      names.push_back(program.classes[0].buffers[read.buffer.index()].name);
    }
    calls.push_back(
        absl::StrCat(NameOf(call.kind), " ", GroupsOf(program, call.axes), ": ", absl::StrJoin(names, " ")));
  });
  return calls;
}

std::vector<int64_t> SizesOfCalls(const Program& program, Purpose purpose) {
  std::vector<int64_t> sizes;
  ForEachCall(program, purpose, [&](const Instruction& instruction, const Collective&) {
    sizes.push_back(static_cast<int64_t>(instruction.reads.size()));
  });
  return sizes;
}

const Buffer& BufferNamed(const Program& program, absl::string_view name) {
  for (const Buffer& buffer : program.classes[0].buffers) {
    if (buffer.name == name) return buffer;
  }
  std::cerr << "no buffer " << name << " in\n" << ToText(program);
  std::abort();
}

std::string RowsOf(const Program& program, absl::string_view name, int64_t rank) {
  const Buffer& buffer = BufferNamed(program, name);
  const int64_t begin = SliceBegin(buffer.shape, buffer.layout, program.mesh, rank)[0];
  return absl::StrCat(begin, ":", begin + LocalShape(buffer.shape, buffer.layout, program.mesh)[0]);
}

}  // namespace meshwright
