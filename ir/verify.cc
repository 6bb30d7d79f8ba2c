#include "ir/verify.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "ir/verify_internal.h"

namespace meshwright {
namespace verify_internal {

absl::Status Broken(int rule, const RankClass& rank_class, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("rule ", rule, ": class ", rank_class.name, ": ", what));
}

absl::Status Broken(int rule, const Program& program, const RankClass& rank_class, const Block& block,
                    size_t instruction, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("rule ", rule, ": class ", rank_class.name, ", block ", block.name, ", instruction ", instruction,
                   " (", ToText(block.instructions[instruction], rank_class, program.mesh), "): ", what));
}

}  // namespace verify_internal

namespace {

using verify_internal::Broken;

// More instances of one class than this are taken for an error: one would need as many entries in memory.
constexpr double kMaxInstances = 1 << 22;
// More bytes in one buffer of one class are taken for an error, so that sizes do not overflow.
constexpr double kMaxBytes = 1e18;

template <class T, class Tag>
bool InRange(const std::vector<T>& things, Id<Tag> id) {
  return id.valid() && id.index() < things.size();
}

// The ranks that differ on this axis are in several classes.
bool CrossesClasses(const Program& program, AxisId id) {
  const MeshAxis& axis = program.mesh.axis(id);
  return axis.size > 1 && axis.stride * axis.size > program.ranks_per_class();
}

// Rule 1, and what makes rule 1 of the classes well defined.
absl::Status VerifyShape(const Program& program) {
  const auto broken = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("rule 1: ", parts...));
  };
  const int64_t classes = static_cast<int64_t>(program.classes.size());
  if (classes == 0) return broken("the program has no class");
  if (program.num_microbatches < 1) return broken("the program has ", program.num_microbatches, " micro-batches");
  const int64_t ranks = program.mesh.num_ranks();
  if (classes > 1) {
    const bool has_axes = !program.mesh.axes().empty();
    const MeshAxis first = has_axes ? program.mesh.axes()[0] : MeshAxis();
    const bool staged = first.name == "pp" && first.size == classes && first.stride * classes == ranks;
    if (!staged) {
      return broken("there are ", classes, " classes, so the first axis of the mesh must be pp=", classes,
                    "; the mesh is ", ToText(program.mesh));
    }
  }
  for (int64_t c = 0; c < classes; ++c) {
    if (program.classes[c].stage != c) {
      return broken("class ", program.classes[c].name, " is of stage ", program.classes[c].stage, ", wanted ", c);
    }
  }
  return absl::OkStatus();
}

// That every axis exists and stays inside a class, and that no two name the same ranks.
absl::Status VerifyAxes(const Program& program, const RankClass& rank_class, const AxisList& axes,
                        absl::string_view where) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!InRange(program.mesh.axes(), axes[i])) {
      return Broken(1, rank_class, absl::StrCat(where, " uses an axis that the mesh lacks"));
    }
    if (CrossesClasses(program, axes[i])) {
      return Broken(1, rank_class,
                    absl::StrCat(where, " uses the axis ", program.mesh.axis(axes[i]).name, ", which crosses stages"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (!program.mesh.Orthogonal(axes[i], axes[j])) {
        return Broken(1, rank_class,
                      absl::StrCat(where, " uses the axes ", program.mesh.axis(axes[j]).name, " and ",
                                   program.mesh.axis(axes[i]).name, ", which name the same ranks"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyInstances(const RankClass& rank_class, absl::string_view name, int64_t layers, int64_t microbatches,
                             double& total) {
  if (layers < 1 || microbatches < 1) {
    return Broken(
        1, rank_class,
        absl::StrCat(name, " has ", layers, " layers and ", microbatches, " micro-batches, wanted at least 1"));
  }
  total += static_cast<double>(layers) * static_cast<double>(microbatches);
  if (total > kMaxInstances)
    return Broken(1, rank_class, absl::StrCat("with ", name, " there are over 2^22 instances"));
  return absl::OkStatus();
}

absl::Status VerifyBufferIndices(const Program& program, const RankClass& rank_class) {
  double instances = 0;
  for (size_t b = 0; b < rank_class.buffers.size(); ++b) {
    const Buffer& buffer = rank_class.buffers[b];
    const std::string name = absl::StrCat("buffer ", buffer.name);
    for (const AxisList& axes : buffer.layout.dims) {
      MESHWRIGHT_RETURN_IF_ERROR(VerifyAxes(program, rank_class, axes, name));
    }
    MESHWRIGHT_RETURN_IF_ERROR(VerifyAxes(program, rank_class, buffer.layout.partial, name));
    MESHWRIGHT_RETURN_IF_ERROR(VerifyInstances(rank_class, name, buffer.layers, buffer.microbatches, instances));
    if (buffer.owner < -1 || buffer.owner >= program.ranks_per_class()) {
      return Broken(1, rank_class,
                    absl::StrCat(name, " has the owner ", buffer.owner, ", wanted one of the class's ",
                                 program.ranks_per_class(), " ranks"));
    }
    BufferId at = buffer.alias;
    for (size_t steps = 0; at.valid(); ++steps) {
      if (!InRange(rank_class.buffers, at) || steps > rank_class.buffers.size()) {
        return Broken(1, rank_class, absl::StrCat(name, " is an alias of ", steps == 0 ? "no buffer" : "itself"));
      }
      at = rank_class.buffers[at.index()].alias;
    }
  }
  instances = 0;
  for (const Event& event : rank_class.events) {
    MESHWRIGHT_RETURN_IF_ERROR(
        VerifyInstances(rank_class, absl::StrCat("event ", event.name), event.layers, event.microbatches, instances));
  }
  return absl::OkStatus();
}

absl::Status VerifyOperandIndices(const Program& program, const RankClass& rank_class, const Block& block, size_t i) {
  const Instruction& instruction = block.instructions[i];
  const auto broken = [&](absl::string_view what) { return Broken(1, program, rank_class, block, i, what); };
  for (const auto* operands : {&instruction.reads, &instruction.writes}) {
    for (const Operand& operand : *operands) {
      if (!InRange(rank_class.buffers, operand.buffer)) return broken("there is no such buffer");
    }
  }
  for (const auto* refs : {&instruction.waits, &instruction.records}) {
    for (const EventRef& ref : *refs) {
      if (!InRange(rank_class.events, ref.event)) return broken("there is no such event");
    }
  }
  const auto* collective = std::get_if<Collective>(&instruction.work);
  const auto* permute = std::get_if<Permute>(&instruction.work);
  if (collective != nullptr || permute != nullptr) {
    const std::string where = absl::StrCat("block ", block.name, ", instruction ", i, " (",
                                           ToText(instruction, rank_class, program.mesh), ")");
    MESHWRIGHT_RETURN_IF_ERROR(
        VerifyAxes(program, rank_class, collective != nullptr ? collective->axes : permute->axes, where));
  }
  return absl::OkStatus();
}

// The lowest and the highest layer shift in a block, 0 among them.
struct Shifts {
  int64_t lowest = 0, highest = 0;
};
Shifts ShiftsOf(const Block& block) {
  Shifts shifts;
  const auto add = [&](const auto& refs) {
    for (const auto& ref : refs) {
      shifts.lowest = std::min<int64_t>(shifts.lowest, ref.layer_shift);
      shifts.highest = std::max<int64_t>(shifts.highest, ref.layer_shift);
    }
  };
  for (const Instruction& instruction : block.instructions) {
    add(instruction.reads);
    add(instruction.writes);
    add(instruction.waits);
    add(instruction.records);
  }
  return shifts;
}

absl::Status VerifySlots(const Program& program, const RankClass& rank_class) {
  constexpr int64_t kMaxLayers = std::numeric_limits<int32_t>::max() / 2;
  for (size_t s = 0; s < rank_class.slots.size(); ++s) {
    const Slot& slot = rank_class.slots[s];
    const auto broken = [&](const auto&... parts) { return Broken(1, rank_class, absl::StrCat("slot ", s, parts...)); };
    if (!InRange(rank_class.blocks, slot.block)) return broken(" runs no block");
    if (slot.microbatch < 0 || slot.microbatch >= program.num_microbatches) {
      return broken(" is for micro-batch ", slot.microbatch, " of ", program.num_microbatches);
    }
    const bool counts = slot.count >= 1 && slot.count <= kMaxLayers && (slot.step == 1 || slot.step == -1) &&
                        slot.layer >= 0 && slot.layer <= kMaxLayers;
    if (!counts) {
      return broken(" runs ", slot.count, " layers from ", slot.layer, " with step ", slot.step,
                    ", wanted at least one, with step 1 or -1");
    }
    const int64_t last = slot.layer + slot.step * (slot.count - 1);
    const Block& block = rank_class.blocks[slot.block.index()];
    if (last < 0) return broken(" runs down to layer ", last);
    const Shifts shifts = ShiftsOf(block);
    const int64_t lowest = std::min(slot.layer, last) + shifts.lowest;
    const int64_t highest = std::max(slot.layer, last) + shifts.highest;
    if (lowest < 0 || highest > std::numeric_limits<int32_t>::max()) {
      return broken(" runs block ", block.name, ", which names layer ", lowest < 0 ? lowest : highest);
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyIndices(const Program& program) {
  MESHWRIGHT_RETURN_IF_ERROR(VerifyShape(program));
  for (const RankClass& rank_class : program.classes) {
    MESHWRIGHT_RETURN_IF_ERROR(VerifyBufferIndices(program, rank_class));
    for (const Block& block : rank_class.blocks) {
      for (size_t i = 0; i < block.instructions.size(); ++i) {
        MESHWRIGHT_RETURN_IF_ERROR(VerifyOperandIndices(program, rank_class, block, i));
      }
    }
    MESHWRIGHT_RETURN_IF_ERROR(VerifySlots(program, rank_class));
  }
  return absl::OkStatus();
}

// Rule 2 for one buffer.
absl::Status VerifyBuffer(const Program& program, const RankClass& rank_class, size_t index) {
  const Buffer& buffer = rank_class.buffers[index];
  const auto broken = [&](const auto&... parts) {
    return Broken(2, rank_class, absl::StrCat("buffer ", buffer.name, parts...));
  };
  double bytes = static_cast<double>(SizeOf(buffer.dtype).raw());
  for (int64_t extent : buffer.shape) {
    if (extent < 1) return broken(" has the shape ", ToText(buffer.shape), ", wanted dims of at least 1");
    bytes *= static_cast<double>(extent);
  }
  if (bytes > kMaxBytes) return broken(" has the shape ", ToText(buffer.shape), ", which is over 10^18 bytes");
  const absl::Status layout = CheckLayout(buffer.shape, buffer.layout, program.mesh);
  if (!layout.ok()) return broken(": ", layout.message());

  const int64_t local = LocalBytes(buffer, program.mesh).raw();
  if (buffer.alias.valid()) {
    const Buffer& target = rank_class.buffers[RootOf(rank_class, BufferId(index)).index()];
    if (buffer.layers != target.layers || buffer.microbatches != target.microbatches) {
      return broken(" is an alias of ", target.name, ", which has other instances");
    }
    const int64_t there = LocalBytes(target, program.mesh).raw();
    if (local > there) return broken(" (", local, " bytes) is an alias of ", target.name, " (", there, " bytes)");
    if (IsPieceOf(buffer, target) && local % kAlignment != 0) {
      return broken(" is a piece of ", target.name, " of ", local, " bytes, wanted a multiple of ", kAlignment);
    }
    if (buffer.offset != target.offset || buffer.bytes != target.bytes) {
      return broken(" is an alias of ", target.name, " but lies elsewhere in the arena");
    }
  }
  const int64_t arena = rank_class.arena.raw();
  if (arena == 0) return absl::OkStatus();
  const int64_t size = buffer.bytes.raw(), offset = buffer.offset.raw();
  if (size < local) return broken(" has ", size, " bytes, wanted at least ", local);
  if (size % kAlignment != 0 || offset % kAlignment != 0) {
    return broken(" has ", size, " bytes at offset ", offset, ", wanted multiples of ", kAlignment);
  }
  const double end = static_cast<double>(offset) + static_cast<double>(size) * static_cast<double>(buffer.layers) *
                                                       static_cast<double>(buffer.microbatches);
  if (offset < 0 || end > static_cast<double>(arena)) {
    return broken(" ends at ", static_cast<int64_t>(end), ", outside the arena of ", arena, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyProgram(const Program& program) {
  const auto starts = [](const RankClass& rank_class) { return !rank_class.start.empty(); };
  if (std::any_of(program.classes.begin(), program.classes.end(), starts)) {
    // The first step, with what comes before it.
    Program first = program;
    for (RankClass& rank_class : first.classes) {
      rank_class.slots.insert(rank_class.slots.begin(), rank_class.start.begin(), rank_class.start.end());
      rank_class.start.clear();
    }
    return VerifyProgram(first);
  }
  MESHWRIGHT_RETURN_IF_ERROR(VerifyIndices(program));
  for (const RankClass& rank_class : program.classes) {
    for (size_t b = 0; b < rank_class.buffers.size(); ++b) {
      MESHWRIGHT_RETURN_IF_ERROR(VerifyBuffer(program, rank_class, b));
    }
  }
  MESHWRIGHT_RETURN_IF_ERROR(verify_internal::VerifyWork(program));
  std::vector<verify_internal::ClassTransfers> transfers;
  for (size_t c = 0; c < program.classes.size(); ++c) {
    MESHWRIGHT_ASSIGN_OR_RETURN(verify_internal::ClassTransfers of_class, verify_internal::VerifyOrder(program, c));
    transfers.push_back(std::move(of_class));
  }
  return verify_internal::VerifyTransfers(program, transfers);
}

}  // namespace meshwright
