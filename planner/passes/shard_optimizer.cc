#include "planner/passes/shard_optimizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/orthogonalize.h"
#include "planner/passes/replicas.h"

namespace meshwright {
namespace {

// The ranks that both join.
std::vector<ReplicaRun> Overlap(const std::vector<ReplicaRun>& a, const std::vector<ReplicaRun>& b) {
  std::vector<ReplicaRun> both;
  for (const ReplicaRun& x : a) {
    for (const ReplicaRun& y : b) {
      const int64_t begin = std::max(x.stride, y.stride), end = std::min(x.size * x.stride, y.size * y.stride);
      if (end > begin && end % begin == 0) both.push_back({end / begin, begin});
    }
  }
  return both;
}

// Among whom a parameter's rows are shared out.
struct Sharing {
  AxisList axes;          // the slowest first; empty: it stays whole, for this reason
  std::string why_whole;  // "" where it has no replicas
};

Sharing Whole(std::string why) { return {{}, std::move(why)}; }

// `summands`: the axes over which the gradient is added up; where it has none, those of another, some of which may
// split the parameter.
Sharing SharingOf(const Buffer& parameter, const AxisList& summands, const Mesh& mesh, int64_t ranks_per_stage,
                  const Strategy& strategy) {
  std::vector<ReplicaRun> runs;
  if (strategy.optimizer_group == OptimizerGroup::kReplicas) {
    runs = ReplicaRuns(parameter.layout, mesh, ranks_per_stage);
  } else {
    const AxisId copies = strategy.optimizer_group == OptimizerGroup::kCopy ? mesh.Find("copy") : AxisId();
    for (AxisId id : summands) {
      if (id != copies) runs.push_back({mesh.axis(id).size, mesh.axis(id).stride});
    }
    if (!parameter.trainable) runs = Overlap(runs, ReplicaRuns(parameter.layout, mesh, ranks_per_stage));
  }
  int64_t replicas = 1;
  for (const ReplicaRun& run : runs) replicas *= run.size;
  if (replicas == 1) return Whole("");
  const std::string name = parameter.name.substr(0, parameter.name.find('@'));  // without its chunk of a stage
  if (strategy.optimizer_whole.count(name) > 0) return Whole("its parallel_optimizer is false");
  const Bytes size = SizeOf(parameter.dtype) * NumElements(parameter.shape);
  if (size < strategy.parallel_optimizer_threshold) {
    return Whole(absl::StrCat(size.raw(), " bytes, the threshold is ", strategy.parallel_optimizer_threshold.raw()));
  }
  if (strategy.optimizer_shard_size > 1) {
    const std::optional<std::vector<ReplicaRun>> fastest = Fastest(runs, strategy.optimizer_shard_size);
    if (!fastest.has_value()) {
      return Whole(absl::StrCat("optimizer_weight_shard_size ", strategy.optimizer_shard_size, " does not divide its ",
                                replicas, " replicas"));
    }
    runs = *fastest;
    replicas = strategy.optimizer_shard_size;
  }
  const int64_t rows = parameter.shape.empty() ? 1 : LocalShape(parameter.shape, parameter.layout, mesh)[0];
  if (rows % replicas != 0) return Whole(absl::StrCat(rows, " rows do not divide into ", replicas));
  const std::optional<AxisList> axes = AxesOf(runs, mesh);
  if (!axes.has_value()) return Whole(absl::StrCat("the mesh has no axes for its ", replicas, " replicas"));
  return {*axes, ""};
}

void Split(Buffer& buffer, const AxisList& axes) {
  AxisList& rows = buffer.layout.dims[0];
  rows.insert(rows.end(), axes.begin(), axes.end());
}

// Whether a rank's rows may lie in the whole's place on it, of which they are a part once `rows` split the first dim.
bool MayLieInWhole(const Buffer& whole, const Layout& rows, const Strategy& strategy, const Mesh& mesh) {
  // Of what is split itself, the whole has other instances; and a broadcast at the start would write over rows of
  // parameters but not over their master.
  const bool gradient = whole.role == BufferRole::kGradient;
  if (strategy.shard_parameters) return false;
  if (gradient ? strategy.gradient_accumulation_shard : strategy.parameter_broadcast) return false;
  Buffer piece = whole;
  piece.layout = rows;
  return IsPieceOf(piece, whole) && LocalBytes(piece, mesh).raw() % kAlignment == 0;
}

const Collective* GradientReduce(const Instruction& instruction) {
  const auto* collective = std::get_if<Collective>(&instruction.work);
  const bool reduces = collective != nullptr && collective->kind == CollectiveKind::kAllReduce &&
                       collective->purpose == Purpose::kGradient;
  return reduces ? collective : nullptr;
}

// Whether it updates a parameter (or its master) from a gradient.
bool IsUpdate(const Instruction& instruction, const RankClass& c) {
  const auto* compute = std::get_if<Compute>(&instruction.work);
  return compute != nullptr && IsOptimizer(compute->op) && instruction.reads.size() > 1 &&
         c.buffers[instruction.reads[1].buffer.index()].role == BufferRole::kGradient;
}

void Replace(BufferId from, BufferId to, Instruction& instruction) {
  for (auto* operands : {&instruction.reads, &instruction.writes}) {
    for (Operand& operand : *operands) {
      if (operand.buffer == from) operand.buffer = to;
    }
  }
}

// As StepEnd names the blocks of parameters that several stages or layers use.
constexpr absl::string_view kSharedParameters = "shared parameters";

class Sharder {
 public:
  Sharder(RankClass& c, const Mesh& mesh, int64_t ranks_per_stage, const Strategy& strategy)
      : c_(c), mesh_(mesh), ranks_per_stage_(ranks_per_stage), strategy_(strategy) {}

  void Run() {
    if (strategy_.optimizer_group == OptimizerGroup::kOwner) return GiveAway();
    std::vector<Slot> gathers, of_shared;
    for (size_t u = 0, n = c_.blocks.size(); u < n; ++u) {
      if (!absl::EndsWith(c_.blocks[u].name, " update")) continue;
      const std::string segment(absl::StripSuffix(c_.blocks[u].name, " update"));
      reduce_ = FindBlock(c_, absl::StrCat(segment, " reduce"));
      update_ = BlockId(u);
      gather_.clear();
      summands_.clear();
      for (BufferId gradient : Gradients()) Shard(gradient);
      if (strategy_.shard_parameters) ShardFrozen(segment);
      if (gather_.empty()) continue;
      AddBlock(c_, absl::StrCat(segment, " gather"), Phase::kForward, std::move(gather_));
      std::vector<Slot>& its = segment == kSharedParameters ? of_shared : gathers;
      for (const Slot& slot : c_.slots) {
        if (slot.block != update_) continue;
        for (int64_t k = 0; k < slot.count; ++k)
          its.push_back({BlockId(c_.blocks.size() - 1), 0, slot.layer + k * slot.step, 1, 1});
      }
    }
    // What other stages or layers wait for goes first.
    c_.slots.insert(c_.slots.begin(), gathers.begin(), gathers.end());
    c_.slots.insert(c_.slots.begin(), of_shared.begin(), of_shared.end());
  }

 private:
  Buffer& At(BufferId id) { return c_.buffers[id.index()]; }
  std::vector<Instruction>& InstructionsOf(BlockId id) { return c_.blocks[id.index()].instructions; }

  // S11.1.
  void GiveAway() {
    const absl::StatusOr<AxisList> all = mesh_.Compose(ranks_per_stage_, 1);
    if (!all.ok() || ranks_per_stage_ == 1) return;
    int64_t number = 0;
    for (size_t u = 0, n = c_.blocks.size(); u < n; ++u) {
      if (!absl::EndsWith(c_.blocks[u].name, " update")) continue;
      update_ = BlockId(u);
      std::map<int64_t, std::vector<Instruction>> broadcasts;  // by owner
      for (BufferId gradient : Gradients()) {
        const int64_t owner = number++ % ranks_per_stage_;
        const std::string name = InstructionsOf(update_)[UpdateOf(gradient)].origin;
        const Layout& layout = At(ParameterNamed(name)).layout;
        if (absl::c_any_of(layout.dims, [](const AxisList& axes) { return !axes.empty(); })) continue;
        for (const Instruction& instruction : InstructionsOf(update_)) {
          if (instruction.origin != name) continue;
          for (const auto* operands : {&instruction.reads, &instruction.writes}) {
            for (const Operand& operand : *operands) {
              Buffer& buffer = At(operand.buffer);
              const bool shared = buffer.role == BufferRole::kParameter || buffer.role == BufferRole::kGradient;
              if (!shared) buffer.owner = owner;
            }
          }
        }
        const Operand parameter = {ParameterNamed(name), 0};
        broadcasts[owner].push_back(MakeInstruction(Collective{.kind = CollectiveKind::kBroadcast,
                                                               .axes = *all,
                                                               .root = static_cast<int32_t>(owner),
                                                               .purpose = Purpose::kParameter},
                                                    {parameter}, {parameter}, name));
      }
      for (auto& [owner, calls] : broadcasts) {
        for (Instruction& call : calls) InstructionsOf(update_).push_back(std::move(call));
      }
    }
  }

  BufferId ParameterNamed(absl::string_view name) const {
    for (size_t i = 0; i < c_.buffers.size(); ++i) {
      if (c_.buffers[i].role == BufferRole::kParameter && c_.buffers[i].name == name) return BufferId(i);
    }
    return BufferId();
  }

  // The gradients that the block's updates read.
  std::vector<BufferId> Gradients() {
    std::vector<BufferId> gradients;
    for (const Instruction& instruction : InstructionsOf(update_)) {
      if (IsUpdate(instruction, c_)) gradients.push_back(instruction.reads[1].buffer);
    }
    return gradients;
  }
  // Where the gradient is reduced: an index into the reduce block.
  std::optional<size_t> ReduceOf(BufferId gradient) {
    if (!reduce_.valid()) return std::nullopt;
    const std::vector<Instruction>& instructions = InstructionsOf(reduce_);
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (GradientReduce(instructions[i]) != nullptr && instructions[i].writes[0].buffer == gradient) return i;
    }
    return std::nullopt;
  }

  void Shard(BufferId gradient) {
    const std::optional<size_t> reduce = ReduceOf(gradient);
    AxisList summands;
    if (reduce.has_value()) summands_ = summands = GradientReduce(InstructionsOf(reduce_)[*reduce])->axes;
    const std::string name = InstructionsOf(update_)[UpdateOf(gradient)].origin;
    const BufferId parameter = ParameterNamed(name);
    if (!parameter.valid()) return;
    const Sharing sharing = SharingOf(At(parameter), summands, mesh_, ranks_per_stage_, strategy_);
    if (sharing.axes.empty()) return;
    if (reduce.has_value()) {
      std::vector<Instruction>& instructions = InstructionsOf(reduce_);
      const Instruction all_reduce = instructions[*reduce];
      At(gradient).alias = BufferId();
      std::vector<Instruction> chain = Chain(all_reduce.reads[0].buffer, gradient, sharing.axes, all_reduce);
      instructions.erase(instructions.begin() + *reduce);
      instructions.insert(instructions.begin() + *reduce, chain.begin(), chain.end());
    } else {
      Buffer rows = At(gradient);
      absl::StrAppend(&rows.name, "@rows");
      rows.alias = BufferId();
      const BufferId own = AddBuffer(c_, std::move(rows));
      std::vector<Instruction>& instructions = InstructionsOf(update_);
      for (Instruction& instruction : instructions) Replace(gradient, own, instruction);
      Instruction all_reduce;  // of nothing
      all_reduce.work = Collective{};
      all_reduce.origin = At(gradient).name;
      const std::vector<Instruction> chain = Chain(gradient, own, sharing.axes, all_reduce);
      instructions.insert(instructions.begin(), chain.begin(), chain.end());
      gradient = own;
    }
    SplitUpdate(parameter, gradient, sharing.axes);
  }

  // What the segment reads and nothing updates: among the ranks that add up its gradients.
  void ShardFrozen(absl::string_view segment) {
    std::set<BlockId> passes;
    for (const absl::string_view pass : {" forward", " backward", " weights"}) {
      if (const BlockId id = FindBlock(c_, absl::StrCat(segment, pass)); id.valid()) passes.insert(id);
    }
    for (size_t i = 0, n = c_.buffers.size(); i < n; ++i) {
      const BufferId id(i);
      if (At(id).role != BufferRole::kParameter || At(id).trainable || absl::EndsWith(At(id).name, "@shard")) continue;
      if (!OnlyIn(c_, id, passes)) continue;
      const Sharing sharing = SharingOf(At(id), summands_, mesh_, ranks_per_stage_, strategy_);
      if (sharing.axes.empty()) continue;
      Buffer rows = At(id);
      absl::StrAppend(&rows.name, "@shard");
      Split(rows, sharing.axes);
      Gather(AddBuffer(c_, std::move(rows)), id, sharing.axes);
    }
  }

  void Gather(BufferId rows, BufferId parameter, const AxisList& axes) {
    gather_.push_back(
        MakeInstruction(Collective{.kind = CollectiveKind::kAllGather, .axes = axes, .purpose = Purpose::kParameter},
                        {{rows, 0}}, {{parameter, 0}}, At(parameter).name));
  }

  size_t UpdateOf(BufferId gradient) {
    const std::vector<Instruction>& instructions = InstructionsOf(update_);
    size_t i = 0;
    while (!IsUpdate(instructions[i], c_) || instructions[i].reads[1].buffer != gradient) ++i;
    return i;
  }

  // From the summands in `from` to the rank's rows of their sum in `to`, instead of `all_reduce`.
  std::vector<Instruction> Chain(BufferId from, BufferId to, const AxisList& rows, const Instruction& all_reduce) {
    const Collective reduce = std::get<Collective>(all_reduce.work);
    AxisList left = reduce.axes;  // to be reduced
    const auto is_summand = [&](AxisId id) { return absl::c_linear_search(left, id); };
    std::vector<std::pair<bool, AxisList>> pieces;  // reduce-scatter or slice
    // Axes of another reading of the ranks go with none of the rows': then the whole is reduced first.
    const bool apart = absl::c_all_of(left, [&](AxisId a) {
      return absl::c_all_of(rows, [&](AxisId b) { return a == b || mesh_.Orthogonal(a, b); });
    });
    std::vector<Instruction> chain;
    BufferId at = from;
    const auto step = [&](Work work, Layout layout, bool last) {
      Instruction instruction;
      instruction.work = std::move(work);
      instruction.reads = {{at, 0}};
      if (!last) {
        Buffer next = At(from);
        absl::StrAppend(&next.name, "@", chain.size() + 1);
        next.alias = BufferId();
        at = AddBuffer(c_, std::move(next));
      } else {
        at = to;
      }
      const bool scatters = std::holds_alternative<Collective>(instruction.work) &&
                            std::get<Collective>(instruction.work).kind == CollectiveKind::kReduceScatter;
      const BufferId summands = instruction.reads[0].buffer;
      if (scatters && MayLieInWhole(At(summands), layout, strategy_, mesh_)) At(at).alias = summands;
      At(at).layout = std::move(layout);
      instruction.writes = {{at, 0}};
      instruction.origin = all_reduce.origin;
      chain.push_back(std::move(instruction));
    };
    const auto remove = [](const AxisList& axes, Layout& layout) {
      for (AxisId id : axes) layout.partial.erase(std::find(layout.partial.begin(), layout.partial.end(), id));
    };
    if (!apart) {
      Layout layout = At(from).layout;
      remove(left, layout);
      step(reduce, std::move(layout), false);
      left.clear();
    }
    for (AxisId id : rows) {
      if (pieces.empty() || pieces.back().first != is_summand(id)) pieces.push_back({is_summand(id), {}});
      pieces.back().second.push_back(id);
    }
    AxisList outside;
    for (AxisId id : left) {
      if (!absl::c_linear_search(rows, id)) outside.push_back(id);
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [scatters, axes] = pieces[i];
      Layout layout = At(at).layout;
      layout.dims[0].insert(layout.dims[0].end(), axes.begin(), axes.end());
      Collective scatter = reduce;
      scatter.kind = CollectiveKind::kReduceScatter;
      scatter.axes = axes;
      scatter.dim = 0;
      if (scatters) remove(axes, layout);
      const bool last = i + 1 == pieces.size() && outside.empty();
      step(scatters ? Work(scatter) : Work(Slice{}), std::move(layout), last);
    }
    if (outside.empty()) return chain;
    Layout layout = At(at).layout;
    remove(outside, layout);
    Collective rest = reduce;
    rest.axes = outside;
    const BufferId summands = at;
    step(rest, std::move(layout), true);
    At(to).alias = summands;  // summed where they lie
    return chain;
  }

  // Moves the update to the rank's rows, and adds the gather that makes the parameter whole again.
  void SplitUpdate(BufferId parameter, BufferId gradient, const AxisList& axes) {
    std::vector<Instruction>& block = InstructionsOf(update_);
    const std::string name = At(parameter).name;
    std::vector<size_t> mine;
    bool has_master = false;
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i].origin != name) continue;
      mine.push_back(i);
      has_master |= At(block[i].reads[0].buffer).role == BufferRole::kMaster;
    }
    // The parameter's rows, as the update writes them.
    Buffer shard = At(parameter);
    if (!has_master) shard.role = BufferRole::kMaster;
    absl::StrAppend(&shard.name, has_master ? "@shard" : "@master");
    Layout layout = shard.layout;
    layout.dims[0].insert(layout.dims[0].end(), axes.begin(), axes.end());
    if (MayLieInWhole(At(parameter), layout, strategy_, mesh_)) shard.alias = parameter;
    const BufferId rows = AddBuffer(c_, std::move(shard));
    std::set<BufferId> split = {gradient};
    LeaveWhole(name, axes, mine, split);
    for (size_t i : mine) {
      Replace(parameter, rows, block[i]);
      for (const auto* operands : {&block[i].reads, &block[i].writes}) {
        for (const Operand& operand : *operands) {
          if (!split.insert(operand.buffer).second || At(operand.buffer).shape.empty()) continue;
          Split(At(operand.buffer), axes);
        }
      }
    }
    JoinNorms(mine, axes);
    Gather(rows, parameter, axes);
  }

  // What Muon does with whole matrices stays as it is: their rows are gathered in front of it, and cut out of its
  // result. `mine`: what is done with rows; `split`: buffers of rows.
  void LeaveWhole(const std::string& name, const AxisList& axes, std::vector<size_t>& mine, std::set<BufferId>& split) {
    std::vector<Instruction>& block = InstructionsOf(update_);
    const std::string origin = absl::StrCat(name, kOrthogonalize);
    const auto is_whole = [&](const Instruction& one) { return one.origin == origin; };
    const auto first = absl::c_find_if(block, is_whole);
    if (first == block.end()) return;
    const size_t begin = static_cast<size_t>(first - block.begin());
    size_t end = begin;
    while (end < block.size() && is_whole(block[end])) ++end;
    const auto rows_of = [&](BufferId whole) {
      Buffer rows = At(whole);
      absl::StrAppend(&rows.name, "@rows");
      rows.alias = BufferId();
      Split(rows, axes);
      return *split.insert(AddBuffer(c_, std::move(rows))).first;
    };
    const BufferId step = block[begin].reads[0].buffer, direction = block[end - 1].writes[0].buffer;
    const BufferId step_rows = rows_of(step), direction_rows = rows_of(direction);
    for (size_t i : mine) Replace(i < begin ? step : direction, i < begin ? step_rows : direction_rows, block[i]);
    const Collective gather = {.kind = CollectiveKind::kAllGather, .axes = axes, .purpose = Purpose::kParameter};
    block.insert(block.begin() + static_cast<int64_t>(end),
                 MakeInstruction(Slice{}, {{direction, 0}}, {{direction_rows, 0}}, origin));
    block.insert(block.begin() + static_cast<int64_t>(begin),
                 MakeInstruction(gather, {{step_rows, 0}}, {{step, 0}}, origin));
    // The second first, which moves nothing before it.
    const size_t behind = block.size();
    if (ExchangeRows(axes, block[end], block[end + 1])) block.erase(block.begin() + static_cast<int64_t>(end) + 1);
    if (ExchangeRows(axes, block[begin], block[begin + 1]))
      block.erase(block.begin() + static_cast<int64_t>(begin) + 1);
    for (size_t& i : mine) i += i < begin ? 0 : 2 - (behind - block.size());
  }

  // Makes a gather and a slice behind it, over the same ranks, one exchange: the rows of all matrices for all rows of
  // some, or back. Whether it could: `slice` is of no more use then.
  bool ExchangeRows(const AxisList& axes, Instruction& gather, const Instruction& slice) {
    const auto* const gathers = std::get_if<Collective>(&gather.work);
    if (gathers == nullptr || gathers->kind != CollectiveKind::kAllGather || gathers->axes != axes ||
        !std::holds_alternative<Slice>(slice.work)) {
      return false;
    }
    const Layout &before = At(slice.reads[0].buffer).layout, &after = At(slice.writes[0].buffer).layout;
    for (size_t d = 0; d < after.dims.size(); ++d) {
      AxisList moved = before.dims[d];
      moved.insert(moved.end(), axes.begin(), axes.end());
      if (after.dims[d] != moved || static_cast<int32_t>(d) == gathers->dim) continue;
      Collective exchange = *gathers;
      exchange.kind = CollectiveKind::kAllToAll;
      exchange.to_dim = static_cast<int32_t>(d);
      gather.work = std::move(exchange);
      gather.writes = slice.writes;
      return true;
    }
    return false;
  }

  // What an update adds up over the parameter is now a summand over `axes` too.
  void JoinNorms(const std::vector<size_t>& mine, const AxisList& axes) {
    std::vector<Instruction>& block = InstructionsOf(update_);
    std::vector<BufferId> sums;
    size_t made = 0;
    for (size_t i : mine) {
      if (auto* collective = std::get_if<Collective>(&block[i].work)) {
        collective->axes.insert(collective->axes.end(), axes.begin(), axes.end());
        for (const Operand& operand : block[i].reads) {
          AxisList& partial = At(operand.buffer).layout.partial;
          partial.insert(partial.end(), axes.begin(), axes.end());
        }
        return;
      }
      for (const Operand& operand : block[i].writes) {
        if (!At(operand.buffer).shape.empty()) continue;
        sums.push_back(operand.buffer);
        made = i;
      }
    }
    if (sums.empty()) return;
    Instruction add =
        MakeInstruction(Collective{.axes = axes, .purpose = Purpose::kParameter}, {}, {}, block[made].origin);
    for (BufferId sum : sums) {
      Buffer whole = At(sum);
      absl::StrAppend(&whole.name, "@whole");
      const BufferId id = AddBuffer(c_, std::move(whole));
      At(sum).layout.partial = axes;
      for (size_t i : mine) {
        if (i > made) Replace(sum, id, block[i]);
      }
      add.reads.push_back({sum, 0});
      add.writes.push_back({id, 0});
    }
    block.insert(block.begin() + made + 1, std::move(add));
  }

  RankClass& c_;
  const Mesh& mesh_;
  const int64_t ranks_per_stage_;
  const Strategy& strategy_;
  BlockId reduce_, update_;          // of the segment at hand
  AxisList summands_;                // of its gradients
  std::vector<Instruction> gather_;  // its third block
};

}  // namespace

Program ShardOptimizer(Program program, const Strategy& strategy) {
  for (RankClass& c : program.classes) Sharder(c, program.mesh, program.ranks_per_class(), strategy).Run();
  return program;
}

std::vector<std::string> WhyWhole(const Program& program, const Strategy& strategy) {
  std::vector<std::string> lines;
  if (strategy.optimizer_group == OptimizerGroup::kOwner) return lines;
  for (const RankClass& c : program.classes) {
    std::map<std::string, AxisList> summands;  // by gradient
    for (const Buffer& buffer : c.buffers) {
      if (buffer.role == BufferRole::kGradient && !buffer.layout.partial.empty()) {
        summands.try_emplace(buffer.name, buffer.layout.partial);
      }
    }
    for (const Buffer& buffer : c.buffers) {
      if (buffer.role != BufferRole::kParameter || !buffer.trainable || absl::StrContains(buffer.name, '@')) continue;
      const Sharing sharing = SharingOf(buffer, summands[absl::StrCat("d", buffer.name)], program.mesh,
                                        program.ranks_per_class(), strategy);
      if (sharing.why_whole.empty()) continue;
      lines.push_back(absl::StrCat(buffer.name, ": ", sharing.why_whole));
    }
  }
  return lines;
}

}  // namespace meshwright
