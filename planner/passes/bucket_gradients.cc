#include "planner/passes/bucket_gradients.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

const Collective* BucketedWork(const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.work);
  const bool ours = collective != nullptr &&
                    (collective->purpose == Purpose::kGradient || collective->purpose == Purpose::kParameter);
  return ours ? collective : nullptr;
}

class Bucketer {
 public:
  Bucketer(RankClass& c, const Mesh& mesh, const Strategy& strategy) : c_(c), mesh_(mesh), strategy_(strategy) {}

  absl::Status Run() {
    if (!strategy_.bucket_ends.empty()) MESHWRIGHT_RETURN_IF_ERROR(NumberGradients());
    for (size_t b = 0, n = c_.blocks.size(); b < n; ++b) {
      const Bytes layer = BytesOf(c_.blocks[b]);
      if (layer == Bytes()) continue;
      const bool merges = OnlyCollectives(c_.blocks[b]) && RunsOncePerLayer(BlockId(b));
      const int64_t together = merges ? LayersTogether(c_.blocks[b], layer) : 1;
      if (together > 1) FuseLayers(BlockId(b), together);
      c_.blocks[b].instructions = Fused(c_.blocks[b].instructions);
    }
    MergeSlots();
    return absl::OkStatus();
  }

 private:
  Bytes LimitOf(CollectiveKind kind) const {
    if (kind == CollectiveKind::kReduceScatter) return strategy_.scatter_bucket.value_or(strategy_.bucket);
    if (kind == CollectiveKind::kAllGather) return strategy_.gather_bucket.value_or(strategy_.bucket);
    return strategy_.bucket;
  }
  // Whether the block runs once for each layer and has memory for all of them.
  bool RunsOncePerLayer(BlockId id) const {
    std::set<int64_t> layers;
    for (const Slot& slot : c_.slots) {
      if (slot.block == id && !layers.insert(slot.layer).second) return false;
    }
    for (const Instruction& instruction : c_.blocks[id.index()].instructions) {
      for (const auto* operands : {&instruction.reads, &instruction.writes}) {
        for (const Operand& operand : *operands) {
          if (c_.buffers[operand.buffer.index()].layers < static_cast<int64_t>(layers.size())) return false;
        }
      }
    }
    return true;
  }
  int64_t LayersTogether(const Block& block, Bytes layer) const {
    Bytes limit;
    for (const Instruction& instruction : block.instructions) {
      limit = std::max(limit, LimitOf(BucketedWork(instruction)->kind));
    }
    return std::max<int64_t>(1, limit.raw() / layer.raw());
  }

  // The fusion id of the parameter whose gradient or rows the call moves.
  int64_t IdOf(const Instruction& instruction) const {
    const Buffer& buffer = c_.buffers[instruction.reads[0].buffer.index()];
    absl::string_view name = buffer.name;
    name = name.substr(0, name.find('@'));
    if (BucketedWork(instruction)->purpose == Purpose::kGradient) name.remove_prefix(1);
    const auto found = strategy_.fusion_ids.find(std::string(name));
    return found == strategy_.fusion_ids.end() ? 1 : found->second;
  }

  // S10.4: the number of each gradient's all-reduce in parameter order, and the segment in which it falls.
  absl::Status NumberGradients() {
    std::map<BufferId, BufferId> gradients;  // by parameter
    for (const Block& block : c_.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const Collective* collective = BucketedWork(instruction);
        if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce || IdOf(instruction) != 1) continue;
        const BufferId gradient = instruction.reads[0].buffer;
        if (c_.buffers[gradient.index()].layers > 1) {
          return absl::UnimplementedError("fusion by index is not there for models with repeated layers; fuse by size");
        }
        for (size_t i = 0; i < c_.buffers.size(); ++i) {
          const Buffer& parameter = c_.buffers[i];
          if (parameter.role != BufferRole::kParameter) continue;
          if (c_.buffers[gradient.index()].name == absl::StrCat("d", parameter.name)) gradients[BufferId(i)] = gradient;
        }
      }
    }
    int64_t number = 0, segment = 0;
    for (const auto& [parameter, gradient] : gradients) {
      const auto& ends = strategy_.bucket_ends;
      segment_of_[gradient] = segment;
      if (segment < static_cast<int64_t>(ends.size()) && ends[segment] == number) ++segment;
      ++number;
    }
    return absl::OkStatus();
  }

  // The larger side of the call on one rank: what is reduced or gathered.
  Bytes SizeOfCall(const Instruction& instruction) const {
    Bytes size;
    for (size_t i = 0; i < instruction.reads.size(); ++i) {
      size += std::max(LocalBytes(c_.buffers[instruction.reads[i].buffer.index()], mesh_),
                       LocalBytes(c_.buffers[instruction.writes[i].buffer.index()], mesh_));
    }
    return size;
  }
  Bytes BytesOf(const Block& block) const {
    Bytes size;
    for (const Instruction& instruction : block.instructions) {
      if (BucketedWork(instruction) != nullptr) size += SizeOfCall(instruction);
    }
    return size;
  }
  static bool OnlyCollectives(const Block& block) {
    return std::all_of(block.instructions.begin(), block.instructions.end(),
                       [](const Instruction& instruction) { return BucketedWork(instruction) != nullptr; });
  }

  // Kind, purpose, type and group: what may share a call.
  using Key =
      std::tuple<CollectiveKind, Purpose, Reduction, DType, std::vector<size_t>, int32_t, int32_t, int64_t, int64_t>;
  Key KeyOf(const Instruction& instruction) const {
    const Collective& collective = *BucketedWork(instruction);
    std::vector<size_t> axes;
    for (AxisId id : collective.axes) axes.push_back(id.index());
    const BufferId first = instruction.reads[0].buffer;
    const auto segment = segment_of_.find(first);
    return {collective.kind,
            collective.purpose,
            collective.reduction,
            c_.buffers[first.index()].dtype,
            axes,
            collective.dim,
            collective.root,
            IdOf(instruction),
            segment == segment_of_.end() ? -1 : segment->second};
  }

  // Whether a call takes one more, which makes it `together` large. Calls of one key only meet here.
  bool Takes(const Instruction& more, Bytes together) const {
    const int64_t id = IdOf(more);
    if (id != 1) return id != 0;
    if (segment_of_.count(more.reads[0].buffer) > 0) return true;
    return together <= LimitOf(BucketedWork(more)->kind);
  }

  // Other instructions come before the calls, unless they use what a call makes.
  std::vector<Instruction> Fused(const std::vector<Instruction>& before) const {
    std::vector<Instruction> head, calls, tail;
    std::vector<Bytes> sizes;  // of the calls
    std::set<Operand> made;
    std::map<Key, size_t> open;  // the call that still takes members
    for (const Instruction& instruction : before) {
      const bool uses = std::any_of(instruction.reads.begin(), instruction.reads.end(),
                                    [&](const Operand& operand) { return made.count(operand) > 0; });
      const bool call = BucketedWork(instruction) != nullptr;
      if (call || uses) made.insert(instruction.writes.begin(), instruction.writes.end());
      if (!call || uses) {  // S10.10: a call that depends on another is not fused
        (uses ? tail : head).push_back(instruction);
        continue;
      }
      const Key key = KeyOf(instruction);
      const Bytes size = SizeOfCall(instruction);
      const auto found = open.find(key);
      if (found != open.end() && Takes(instruction, sizes[found->second] + size)) {
        sizes[found->second] += size;
        Instruction& call = calls[found->second];
        call.reads.insert(call.reads.end(), instruction.reads.begin(), instruction.reads.end());
        call.writes.insert(call.writes.end(), instruction.writes.begin(), instruction.writes.end());
        call.origin = absl::StrCat(call.origin.substr(0, call.origin.find(" +")), " +", call.reads.size() - 1);
        continue;
      }
      open[key] = calls.size();
      calls.push_back(instruction);
      sizes.push_back(size);
    }
    head.insert(head.end(), calls.begin(), calls.end());
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }

  // The block over `count` layers, from the slot's layer upwards.
  BlockId Wide(BlockId block, int64_t count) {
    const auto found = wide_.find({block, count});
    if (found != wide_.end()) return found->second;
    Block wide = c_.blocks[block.index()];
    wide.name = absl::StrCat(wide.name, " x", count);
    const std::vector<Instruction> one = wide.instructions;
    for (int64_t k = 1; k < count; ++k) {
      for (Instruction instruction : one) {
        for (Operand& operand : instruction.reads) operand.layer_shift += static_cast<int32_t>(k);
        for (Operand& operand : instruction.writes) operand.layer_shift += static_cast<int32_t>(k);
        wide.instructions.push_back(std::move(instruction));
      }
    }
    wide.instructions = Fused(wide.instructions);
    c_.blocks.push_back(std::move(wide));
    return wide_[{block, count}] = BlockId(c_.blocks.size() - 1);
  }

  // Replaces the slots of single layers by slots of up to `together` neighbours, at the place of the last of them.
  void FuseLayers(BlockId block, int64_t together) {
    std::vector<size_t> mine;
    for (size_t i = 0; i < c_.slots.size(); ++i) {
      if (c_.slots[i].block == block) mine.push_back(i);
    }
    if (mine.size() < 2) return;
    std::vector<bool> dropped(c_.slots.size(), false);
    for (size_t first = 0; first < mine.size(); first += together) {
      const size_t end = std::min(mine.size(), first + static_cast<size_t>(together));
      int64_t lowest = c_.slots[mine[first]].layer;
      for (size_t i = first; i < end; ++i) {
        lowest = std::min(lowest, c_.slots[mine[i]].layer);
        dropped[mine[i]] = true;
      }
      dropped[mine[end - 1]] = false;
      const int64_t count = static_cast<int64_t>(end - first);
      c_.slots[mine[end - 1]] = {count == 1 ? block : Wide(block, count), 0, lowest, 1, 1};
    }
    std::vector<Slot> kept;
    for (size_t i = 0; i < c_.slots.size(); ++i) {
      if (!dropped[i]) kept.push_back(c_.slots[i]);
    }
    c_.slots = std::move(kept);
  }

  // Neighbouring slots of one block over consecutive layers become one.
  void MergeSlots() {
    std::vector<bool> communicates;  // by block
    for (const Block& block : c_.blocks) communicates.push_back(BytesOf(block) > Bytes());
    std::vector<Slot> merged;
    for (const Slot& slot : c_.slots) {
      if (!merged.empty()) {
        Slot& last = merged.back();
        if (last.block == slot.block && last.microbatch == slot.microbatch && last.step == slot.step &&
            last.layer + last.count * last.step == slot.layer && !communicates[slot.block.index()]) {
          last.count += slot.count;
          continue;
        }
      }
      merged.push_back(slot);
    }
    c_.slots = std::move(merged);
  }

  RankClass& c_;
  const Mesh& mesh_;
  const Strategy& strategy_;
  std::map<std::pair<BlockId, int64_t>, BlockId> wide_;
  std::map<BufferId, int64_t> segment_of_;  // by gradient: under the index rule, its bucket
};

}  // namespace

absl::StatusOr<Program> BucketGradients(Program program, const Strategy& strategy) {
  for (RankClass& c : program.classes) MESHWRIGHT_RETURN_IF_ERROR(Bucketer(c, program.mesh, strategy).Run());
  return program;
}

}  // namespace meshwright
