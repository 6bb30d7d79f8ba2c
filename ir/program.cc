#include "ir/program.h"

#include <algorithm>
#include <iterator>

namespace meshwright {
namespace {

// In the order of the enums.
constexpr absl::string_view kStreamNames[] = {"compute", "comm", "send", "receive", "context"};
static_assert(std::size(kStreamNames) == static_cast<size_t>(Stream::kNumStreams), "a name per Stream");

constexpr absl::string_view kRoleNames[] = {"parameter", "master",     "gradient",  "optimizer_state",
                                            "input",     "activation", "temporary", "loss"};
static_assert(std::size(kRoleNames) == static_cast<size_t>(BufferRole::kNumRoles), "a name per BufferRole");

constexpr absl::string_view kPurposeNames[] = {"activation", "gradient", "parameter", "report"};
static_assert(std::size(kPurposeNames) == static_cast<size_t>(Purpose::kReport) + 1, "a name per Purpose");

}  // namespace

absl::string_view NameOf(Stream stream) { return kStreamNames[static_cast<size_t>(stream)]; }
absl::string_view NameOf(BufferRole role) { return kRoleNames[static_cast<size_t>(role)]; }
absl::string_view NameOf(Purpose purpose) { return kPurposeNames[static_cast<size_t>(purpose)]; }

BufferId RootOf(const RankClass& rank_class, BufferId id) {
  while (rank_class.buffers[id.index()].alias.valid()) id = rank_class.buffers[id.index()].alias;
  return id;
}

bool IsPieceOf(const Buffer& buffer, const Buffer& whole) {
  const auto &pieces = buffer.layout.dims, &rows = whole.layout.dims;
  return buffer.dtype == whole.dtype && buffer.shape == whole.shape && !rows.empty() && pieces.size() == rows.size() &&
         pieces[0].size() > rows[0].size() && std::equal(rows[0].begin(), rows[0].end(), pieces[0].begin()) &&
         std::equal(rows.begin() + 1, rows.end(), pieces.begin() + 1);
}

Bytes PlaceInRoot(const RankClass& rank_class, BufferId id, const Mesh& mesh, int64_t rank) {
  const Buffer &buffer = rank_class.buffers[id.index()], &root = rank_class.buffers[RootOf(rank_class, id).index()];
  if (!IsPieceOf(buffer, root)) return Bytes();
  const int64_t first = SliceBegin(buffer.shape, buffer.layout, mesh, rank)[0];
  const int64_t rows = first - SliceBegin(root.shape, root.layout, mesh, rank)[0];
  const int64_t each = LocalBytes(buffer, mesh).raw() / LocalShape(buffer.shape, buffer.layout, mesh)[0];
  return Bytes(rows * each);
}

int64_t OwnerOf(const Instruction& instruction, const RankClass& rank_class) {
  for (const auto* operands : {&instruction.reads, &instruction.writes}) {
    for (const Operand& operand : *operands) {
      const int64_t owner = rank_class.buffers[operand.buffer.index()].owner;
      if (owner >= 0) return owner;
    }
  }
  return -1;
}

Bytes LocalBytes(const Buffer& buffer, const Mesh& mesh) {
  int64_t elements = 1;  // of LocalShape
  for (size_t d = 0; d < buffer.shape.size(); ++d) elements *= buffer.shape[d] / mesh.SizeOf(buffer.layout.dims[d]);
  return SizeOf(buffer.dtype) * elements;
}

int64_t NumIssued(const RankClass& rank_class) {
  int64_t count = 0;
  for (const Slot& slot : rank_class.slots) {
    count += slot.count * static_cast<int64_t>(rank_class.blocks[slot.block.index()].instructions.size());
  }
  return count;
}

KernelWork WorkOf(const Instruction& instruction, const Compute& compute, const RankClass& rank_class,
                  const Mesh& mesh) {
  struct Side {
    absl::InlinedVector<Shape, 4> shapes;
    absl::InlinedVector<DType, 4> dtypes;
  };
  const auto side_of = [&](const absl::InlinedVector<Operand, 4>& operands) {
    Side side;
    for (const Operand& operand : operands) {
      const Buffer& buffer = rank_class.buffers[operand.buffer.index()];
      side.shapes.push_back(LocalShape(buffer.shape, buffer.layout, mesh));
      side.dtypes.push_back(buffer.dtype);
    }
    return side;
  };
  const Side reads = side_of(instruction.reads);
  const Side writes = side_of(instruction.writes);
  KernelWork work =
      WorkOf(compute.op, compute.attrs, compute.rule, reads.shapes, reads.dtypes, writes.shapes, writes.dtypes);
  for (size_t i = 0; i < writes.shapes.size() && compute.accumulate; ++i) {
    const BufferRole role = rank_class.buffers[instruction.writes[i].buffer.index()].role;
    if (role != BufferRole::kGradient && role != BufferRole::kLoss) continue;
    // What is added to: of a table the rows that are written.
    work.read += std::min(work.written, SizeOf(writes.dtypes[i]) * NumElements(writes.shapes[i]));
  }
  return work;
}

}  // namespace meshwright
