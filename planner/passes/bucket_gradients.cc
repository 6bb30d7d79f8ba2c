#include "planner/passes/bucket_gradients.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/orthogonalize.h"

namespace meshwright {
namespace {

class Bucketer {
 public:
  Bucketer(RankClass& c, const Mesh& mesh, const Strategy& strategy, BucketRange& same)
      : c_(c), mesh_(mesh), strategy_(strategy), same_(same) {}

  void Run() {
    const size_t n = c_.blocks.size();
    if (!strategy_.bucket_ends.empty()) FuseByIndex();
    slots_of_.resize(c_.blocks.size());
    for (size_t s = 0; s < c_.slots.size(); ++s) slots_of_[c_.slots[s].block.index()].push_back(s);
    dropped_.resize(c_.slots.size(), false);
    for (size_t b = 0; b < n; ++b) {
      const Bytes layer = BytesOf(c_.blocks[b]);
      if (layer == Bytes()) continue;
      const bool merges = OnlyCollectives(c_.blocks[b]) && RunsOncePerLayer(BlockId(b));
      const int64_t together = merges ? LayersTogether(BlockId(b), layer) : 1;
      if (together > 1) FuseLayers(BlockId(b), together);
      const bool inside = GathersInside(c_.blocks[b]);
      c_.blocks[b].instructions = inside ? FusedInPlace(c_.blocks[b].instructions) : Fused(c_.blocks[b].instructions);
    }
    MergeSlots();
  }

 private:
  // The collective, if it is one that may share a call.
  const Collective* BucketedWork(const Instruction& instruction) const {
    const auto* collective = std::get_if<Collective>(&instruction.work);
    if (collective == nullptr || collective->purpose == Purpose::kReport) return nullptr;
    if (absl::EndsWith(instruction.origin, kOrthogonalize)) return nullptr;  // matrices go one by one
    const bool ours = collective->purpose != Purpose::kActivation || IdOf(instruction, *collective) != 0;
    return ours ? collective : nullptr;
  }

  // The largest call. What is asked about it narrows the range of buckets: so it is asked here only.
  bool IsWithin(Bytes size, CollectiveKind kind) const {
    const std::optional<Bytes> own = kind == CollectiveKind::kReduceScatter ? strategy_.scatter_bucket
                                     : kind == CollectiveKind::kAllGather   ? strategy_.gather_bucket
                                                                            : std::nullopt;
    const bool within = size <= own.value_or(strategy_.bucket);
    if (!own.has_value()) same_.Narrow(size, within);
    return within;
  }
  // Whether the block runs once for each layer and has memory for all of them.
  bool RunsOncePerLayer(BlockId id) const {
    std::set<int64_t> layers;
    for (const size_t s : slots_of_[id.index()]) {
      if (!layers.insert(c_.slots[s].layer).second) return false;
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
  // As many as are within the bucket of any of its calls, and as there are.
  int64_t LayersTogether(BlockId id, Bytes layer) const {
    const auto fit = [&](int64_t layers) {
      const std::vector<Instruction>& calls = c_.blocks[id.index()].instructions;
      return std::any_of(calls.begin(), calls.end(), [&](const Instruction& instruction) {
        return IsWithin(layer * layers, BucketedWork(instruction)->kind);
      });
    };
    int64_t together = 1;
    while (together < static_cast<int64_t>(slots_of_[id.index()].size()) && fit(together + 1)) ++together;
    return together;
  }

  // The fusion id of the parameter whose gradient or rows the call moves: 1 unless given. Of an activation that of the
  // collective that the author wrote, which is the op NAME or its result's way to all ranks, NAME/own: 0 unless given.
  int64_t IdOf(const Instruction& instruction, const Collective& collective) const {
    const bool activation = collective.purpose == Purpose::kActivation;
    if (strategy_.fusion_ids.empty()) return activation ? 0 : 1;
    absl::string_view name;
    if (activation) {
      name = instruction.origin;
      name = absl::StripSuffix(name.substr(name.find('/') + 1), "/own");  // behind the segment
    } else {
      name = c_.buffers[instruction.reads[0].buffer.index()].name;
      name = name.substr(0, name.find('@'));
      if (collective.purpose == Purpose::kGradient) name.remove_prefix(1);
    }
    const auto found = strategy_.fusion_ids.find(std::string(name));
    return found != strategy_.fusion_ids.end() ? found->second : activation ? 0 : 1;
  }

  // --- the index rule ----------------------------------------------------------------------------------------------

  // One gradient of one layer, whose all-reduce the index rule counts.
  struct Numbered {
    std::tuple<BufferId, int64_t, BufferId> order;  // of parameters: the layers of a block beside each other
    size_t slot = 0;                                // where it is ready
    Instruction call;                               // as if issued at layer 0
  };

  BufferId ParameterOf(const Instruction& instruction) const {
    const std::string& gradient = c_.buffers[instruction.reads[0].buffer.index()].name;
    for (size_t i = 0; i < c_.buffers.size(); ++i) {
      const Buffer& buffer = c_.buffers[i];
      if (buffer.role == BufferRole::kParameter && gradient == absl::StrCat("d", buffer.name)) return BufferId(i);
    }
    return BufferId();
  }
  // The all-reduces of a block that the index rule counts. What the block goes on with (a slice of it, for the parallel
  // optimizer) stays there.
  std::vector<bool> FindNumbered(const Block& block) const {
    std::set<BufferId> used;
    for (const Instruction& instruction : block.instructions) {
      for (const Operand& operand : instruction.reads) used.insert(operand.buffer);
    }
    std::vector<bool> numbered;
    for (const Instruction& instruction : block.instructions) {
      const Collective* collective = BucketedWork(instruction);
      numbered.push_back(collective != nullptr && collective->kind == CollectiveKind::kAllReduce &&
                         collective->purpose == Purpose::kGradient && IdOf(instruction, *collective) == 1 &&
                         ParameterOf(instruction).valid() && used.count(instruction.writes[0].buffer) == 0);
    }
    return numbered;
  }
  bool IsLayered(const Instruction& instruction) const {
    return c_.buffers[instruction.reads[0].buffer.index()].layers > 1;
  }

  // What the slot reduces, layer by layer. A block's layered parameters stand where the first of them does.
  void AddNumbered(size_t s, std::vector<Numbered>& all) const {
    const Slot& slot = c_.slots[s];
    std::vector<Instruction> calls;
    BufferId first;
    const Block& block = c_.blocks[slot.block.index()];
    const std::vector<bool> numbered = FindNumbered(block);
    for (size_t i = 0; i < numbered.size(); ++i) {
      if (!numbered[i]) continue;
      const Instruction& instruction = block.instructions[i];
      calls.push_back(instruction);
      const BufferId parameter = ParameterOf(instruction);
      if (IsLayered(instruction) && (!first.valid() || parameter < first)) first = parameter;
    }
    for (int64_t k = 0; k < slot.count; ++k) {
      for (Instruction call : calls) {
        const int64_t layer = IsLayered(call) ? slot.layer + k * slot.step : 0;
        const BufferId parameter = ParameterOf(call);
        const BufferId place = IsLayered(call) ? first : parameter;
        for (auto* operands : {&call.reads, &call.writes}) {
          for (Operand& operand : *operands) operand.layer_shift += static_cast<int32_t>(layer);
        }
        all.push_back({{place, layer, parameter}, s, std::move(call)});
      }
    }
  }

  // S10.4: entries of the list are the last gradients of segments. What is alike in one becomes one call, behind the
  // slot where its last gradient is ready.
  void FuseByIndex() {
    std::vector<Numbered> gradients;
    for (size_t s = 0; s < c_.slots.size(); ++s) AddNumbered(s, gradients);
    std::stable_sort(gradients.begin(), gradients.end(),
                     [](const Numbered& a, const Numbered& b) { return a.order < b.order; });
    const auto& ends = strategy_.bucket_ends;
    std::map<std::pair<size_t, Key>, Numbered> calls;  // by segment
    size_t segment = 0;
    for (size_t number = 0; number < gradients.size(); ++number) {
      const Numbered& one = gradients[number];
      const auto [call, is_new] = calls.try_emplace({segment, KeyOf(one.call)}, one);
      if (!is_new) Join(one.call, call->second.call);
      call->second.slot = std::max(call->second.slot, one.slot);
      if (segment < ends.size() && ends[segment] == static_cast<int64_t>(number)) ++segment;
    }
    std::map<size_t, std::vector<Instruction>> behind;  // by slot
    for (auto& [key, call] : calls) behind[call.slot].push_back(std::move(call.call));
    MoveBehind(std::move(behind));
  }

  // Replaces the numbered calls of all blocks by these.
  void MoveBehind(std::map<size_t, std::vector<Instruction>> calls) {
    std::set<BlockId> emptied;
    for (size_t b = 0; b < c_.blocks.size(); ++b) {
      const std::vector<bool> numbered = FindNumbered(c_.blocks[b]);
      std::vector<Instruction> kept;
      for (size_t i = 0; i < numbered.size(); ++i) {
        if (!numbered[i]) kept.push_back(std::move(c_.blocks[b].instructions[i]));
      }
      if (kept.empty() && !numbered.empty()) emptied.insert(BlockId(b));
      c_.blocks[b].instructions = std::move(kept);
    }
    std::vector<Slot> slots;
    for (size_t s = 0; s < c_.slots.size(); ++s) {
      const BlockId block = c_.slots[s].block;
      if (emptied.count(block) == 0) slots.push_back(c_.slots[s]);
      const auto here = calls.find(s);
      if (here == calls.end()) continue;
      const std::string name = absl::StrCat(c_.blocks[block.index()].name, " by index");
      c_.blocks.push_back({name, Phase::kBackward, std::move(here->second)});
      slots.push_back({BlockId(c_.blocks.size() - 1), 0, 0, 1, 1});
    }
    c_.slots = std::move(slots);
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
  bool OnlyCollectives(const Block& block) const {
    return std::all_of(block.instructions.begin(), block.instructions.end(),
                       [this](const Instruction& instruction) { return BucketedWork(instruction) != nullptr; });
  }

  // Kind, purpose, type and group: what may share a call.
  using Key = std::tuple<CollectiveKind, Purpose, Reduction, DType, std::vector<size_t>, int32_t, Turn, int64_t>;
  Key KeyOf(const Instruction& instruction) const {
    const Collective& collective = *BucketedWork(instruction);
    std::vector<size_t> axes;
    for (AxisId id : collective.axes) axes.push_back(id.index());
    const BufferId first = instruction.reads[0].buffer;
    return {collective.kind, collective.purpose, collective.reduction,         c_.buffers[first.index()].dtype, axes,
            collective.dim,  TurnOf(collective), IdOf(instruction, collective)};
  }

  // Whether a call takes one more, which makes it `together` large. Calls of one key only meet here.
  bool Takes(const Instruction& more, Bytes together) const {
    const Collective& collective = *BucketedWork(more);
    const int64_t id = IdOf(more, collective);
    if (id != 1) return id != 0;
    return collective.purpose == Purpose::kActivation || IsWithin(together, collective.kind);
  }

  static void Join(const Instruction& instruction, Instruction& call) {
    call.reads.insert(call.reads.end(), instruction.reads.begin(), instruction.reads.end());
    call.writes.insert(call.writes.end(), instruction.writes.begin(), instruction.writes.end());
    call.origin = absl::StrCat(call.origin.substr(0, call.origin.find(" +")), " +", call.reads.size() - 1);
  }

  // Other instructions come before the calls, unless they use what a call makes: these come behind, fused likewise (the
  // all-reduces of what was scattered, between groups of replicas).
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
        Join(instruction, calls[found->second]);
        continue;
      }
      open[key] = calls.size();
      calls.push_back(instruction);
      sizes.push_back(size);
    }
    head.insert(head.end(), calls.begin(), calls.end());
    if (!tail.empty()) tail = Fused(tail);
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }

  // Calls that follow each other alone.
  std::vector<Instruction> FusedInPlace(const std::vector<Instruction>& before) const {
    std::vector<Instruction> out, calls;
    const auto close = [&] {
      for (Instruction& call : Fused(calls)) out.push_back(std::move(call));
      calls.clear();
    };
    for (const Instruction& instruction : before) {
      if (BucketedWork(instruction) != nullptr) {
        calls.push_back(instruction);
        continue;
      }
      if (!calls.empty()) close();
      out.push_back(instruction);
    }
    close();
    return out;
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
    const std::vector<size_t>& mine = slots_of_[block.index()];
    if (mine.size() < 2) return;
    for (size_t first = 0; first < mine.size(); first += together) {
      const size_t end = std::min(mine.size(), first + static_cast<size_t>(together));
      int64_t lowest = c_.slots[mine[first]].layer;
      for (size_t i = first; i < end; ++i) {
        lowest = std::min(lowest, c_.slots[mine[i]].layer);
        dropped_[mine[i]] = true;
      }
      dropped_[mine[end - 1]] = false;
      const int64_t count = static_cast<int64_t>(end - first);
      c_.slots[mine[end - 1]] = {count == 1 ? block : Wide(block, count), 0, lowest, 1, 1};
    }
  }

  // Slots that others have taken in go; neighbouring slots of one block over consecutive layers become one.
  void MergeSlots() {
    std::vector<bool> communicates;  // by block
    for (const Block& block : c_.blocks) communicates.push_back(BytesOf(block) > Bytes());
    std::vector<Slot> merged;
    merged.reserve(c_.slots.size());
    for (size_t s = 0; s < c_.slots.size(); ++s) {
      if (dropped_[s]) continue;
      const Slot& slot = c_.slots[s];
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
  BucketRange& same_;
  std::vector<std::vector<size_t>> slots_of_;  // by block
  std::vector<bool> dropped_;                  // by slot
  std::map<std::pair<BlockId, int64_t>, BlockId> wide_;
};

}  // namespace

Program BucketGradients(Program program, const Strategy& strategy, BucketRange* same) {
  BucketRange unused;
  for (RankClass& c : program.classes) Bucketer(c, program.mesh, strategy, same != nullptr ? *same : unused).Run();
  return program;
}

}  // namespace meshwright
