#include "planner/passes/shard_optimizer.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace meshwright {
namespace {

bool IsOptimizer(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.work);
  return compute != nullptr &&
         (compute->op == OpKind::kSgd || compute->op == OpKind::kMomentum || compute->op == OpKind::kAdamW);
}

class Sharder {
 public:
  Sharder(RankClass& c, const Mesh& mesh, Bytes threshold) : c_(c), mesh_(mesh), threshold_(threshold) {}

  void Run() {
    std::vector<Slot> gathers;
    for (size_t r = 0; r < c_.blocks.size(); ++r) {
      if (!absl::EndsWith(c_.blocks[r].name, " reduce")) continue;
      const absl::string_view segment = absl::StripSuffix(c_.blocks[r].name, " reduce");
      const BlockId update = Find(absl::StrCat(segment, " update"));
      if (!update.valid()) continue;
      std::vector<Instruction> gather;
      for (size_t i = 0; i < c_.blocks[r].instructions.size(); ++i) Shard(BlockId(r), i, update, gather);
      if (gather.empty()) continue;
      c_.blocks.push_back({absl::StrCat(segment, " gather"), Phase::kForward, std::move(gather)});
      for (const Slot& slot : c_.slots) {
        if (slot.block != update) continue;
        for (int64_t k = 0; k < slot.count; ++k)
          gathers.push_back({BlockId(c_.blocks.size() - 1), 0, slot.layer + k * slot.step, 1, 1});
      }
    }
    c_.slots.insert(c_.slots.begin(), gathers.begin(), gathers.end());
  }

 private:
  Buffer& At(BufferId id) { return c_.buffers[id.index()]; }
  BlockId Find(absl::string_view name) const {
    for (size_t i = 0; i < c_.blocks.size(); ++i) {
      if (c_.blocks[i].name == name) return BlockId(i);
    }
    return BlockId();
  }
  BufferId Add(Buffer buffer) {
    c_.buffers.push_back(std::move(buffer));
    return BufferId(c_.buffers.size() - 1);
  }

  // The update that reads this reduced gradient.
  Instruction* UpdateOf(BlockId block, BufferId gradient) {
    for (Instruction& instruction : c_.blocks[block.index()].instructions) {
      if (IsOptimizer(instruction) && instruction.reads[1].buffer == gradient) return &instruction;
    }
    return nullptr;
  }

  void Shard(BlockId reduce_block, size_t index, BlockId update_block, std::vector<Instruction>& gather) {
    Instruction& reduce = c_.blocks[reduce_block.index()].instructions[index];
    auto* collective = std::get_if<Collective>(&reduce.work);
    if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce ||
        collective->purpose != Purpose::kGradient)
      return;
    const BufferId gradient = reduce.writes[0].buffer;
    Instruction* update = UpdateOf(update_block, gradient);
    if (update == nullptr) return;
    const AxisList axes = collective->axes;
    const int64_t replicas = mesh_.SizeOf(axes);
    const Buffer& whole = At(gradient);
    if (replicas == 1 || whole.shape.empty()) return;
    if (SizeOf(whole.dtype) * NumElements(whole.shape) < threshold_) return;
    if (whole.shape[0] / mesh_.SizeOf(whole.layout.dims[0]) % replicas != 0) return;
    collective->kind = CollectiveKind::kReduceScatter;
    collective->dim = 0;
    At(gradient).alias = BufferId();
    Split(gradient, axes);
    gather.push_back(SplitUpdate(*update, axes));
  }

  void Split(BufferId id, const AxisList& axes) {
    AxisList& rows = At(id).layout.dims[0];
    rows.insert(rows.end(), axes.begin(), axes.end());
  }

  // Moves the update to the rank's rows; returns the gather that makes the parameter whole again.
  Instruction SplitUpdate(Instruction& update, const AxisList& axes) {
    for (size_t i = 2; i < update.reads.size(); ++i) Split(update.reads[i].buffer, axes);
    BufferId parameter = update.reads[0].buffer;
    BufferId rows;  // the parameter's rows, as the gather reads them
    if (At(parameter).role == BufferRole::kMaster) {
      Split(parameter, axes);
      parameter = update.writes.back().buffer;
      Buffer shard = At(parameter);
      absl::StrAppend(&shard.name, "@shard");
      rows = Add(std::move(shard));
      Split(rows, axes);
      update.writes.back().buffer = rows;
    } else {
      Buffer master = At(parameter);
      master.role = BufferRole::kMaster;
      absl::StrAppend(&master.name, "@master");
      rows = Add(std::move(master));
      Split(rows, axes);
      update.reads[0].buffer = update.writes[0].buffer = rows;
    }
    Instruction gather;
    Collective collective;
    collective.kind = CollectiveKind::kAllGather;
    collective.axes = axes;
    collective.dim = 0;
    collective.purpose = Purpose::kParameter;
    gather.work = collective;
    gather.reads = {{rows, 0}};
    gather.writes = {{parameter, 0}};
    gather.origin = At(parameter).name;
    return gather;
  }

  RankClass& c_;
  const Mesh& mesh_;
  const Bytes threshold_;
};

}  // namespace

Program ShardOptimizer(Program program, Bytes threshold) {
  for (RankClass& c : program.classes) Sharder(c, program.mesh, threshold).Run();
  return program;
}

}  // namespace meshwright
