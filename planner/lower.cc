#include "planner/lower.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "ir/status.h"
#include "planner/passes/beside_kernels.h"
#include "planner/passes/bucket_gradients.h"
#include "planner/passes/complete_layouts.h"
#include "planner/passes/cut_runs.h"
#include "planner/passes/differentiate.h"
#include "planner/passes/fuse_epilogues.h"
#include "planner/passes/fuse_loss.h"
#include "planner/passes/fuse_updates.h"
#include "planner/passes/group_experts.h"
#include "planner/passes/interleave.h"
#include "planner/passes/overlap.h"
#include "planner/passes/partition.h"
#include "planner/passes/plan_memory.h"
#include "planner/passes/repeat_pieces.h"
#include "planner/passes/scale_loss.h"
#include "planner/passes/separate_ranks.h"
#include "planner/passes/shard_optimizer.h"
#include "planner/passes/shard_parameters.h"
#include "planner/passes/split_context.h"
#include "planner/passes/split_stages.h"
#include "planner/passes/start_equal.h"
#include "simulator/price.h"

namespace meshwright {
namespace {

// What a pass may read besides the value that it transforms.
struct Context {
  const Graph& graph;  // differentiated
  const Strategy& strategy;
  const UpdateRule& optimizer;
  const Strategy& with_bucket;  // the others see the default, so that none depends on it
  BucketRange* same_buckets;
  Followers* followers;  // null: no stage follows another
  ClassCopies* copies;   // null: those that do are written out
};

std::set<std::string> NamesOfLayerEnds(const Graph& graph) {
  std::set<std::string> names;
  for (const Segment& segment : graph.segments) {
    for (const TensorId end : segment.layer_ends) names.insert(graph.tensor(end).name);
  }
  return names;
}

struct ProgramPass {
  absl::string_view name;
  absl::StatusOr<Program> (*run)(Program program, const Context& context);
};

// The order is part of the design; each line says why it stands there. First of all comes split_stages, which only
// reads the blocks that strategies share: the later passes see classes, slots and one reduction per parameter. Behind
// the first list stand all collectives as they are before any is fused: what strategies share that differ in their
// bucket alone.
constexpr ProgramPass kBeforeBuckets[] = {
    // Before buckets: it changes which collectives there are.
    {"shard_optimizer",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (!c.strategy.parallel_optimizer) return program;
       return ShardOptimizer(std::move(program), c.strategy);
     }},
    // Between the two: it splits what the parallel optimizer has split once more, and makes the calls of a layer.
    {"shard_parameters",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (!c.strategy.parallel_optimizer) return program;
       if (c.strategy.shard_parameters) return ShardParameters(std::move(program), NamesOfLayerEnds(c.graph));
       if (c.strategy.gradient_accumulation_shard) return ShardGradients(std::move(program));
       return program;
     }},
    // Behind those that split updates: a rank checks what it updates. Before buckets and overlap: the check is the
    // gradients' first reader.
    {"scale_loss",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (!c.optimizer.loss_scale.has_value()) return program;
       return ScaleLoss(std::move(program), *c.optimizer.loss_scale);
     }},
    // Behind split_stages, which knows whether the gradients of parameters run apart; before overlap, since what waits
    // on
    // the compute stream would stand between.
    {"fuse_loss",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (!c.strategy.fuse_loss) return program;
       return FuseLoss(std::move(program));
     }},
    // Behind those that split updates or add operands to them, and before overlap for the same reason.
    {"fuse_updates",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (!c.strategy.fuse_updates) return program;
       return FuseUpdates(std::move(program));
     }},
};
constexpr ProgramPass kFromBuckets[] = {
    // Before overlap, which fixes the order of the calls.
    {"bucket_gradients",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       return BucketGradients(std::move(program), c.with_bucket, c.same_buckets);
     }},
    {"overlap",
     [](Program program, const Context&) -> absl::StatusOr<Program> {
       return OverlapCommunication(std::move(program));
     }},
    {"ring_beside_kernels",
     [](Program program, const Context&) -> absl::StatusOr<Program> {
       return RunRingBesideKernels(std::move(program));
     }},
    // After the passes that move collectives: these stay where they are.
    {"start_equal",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (!c.strategy.parameter_broadcast) return program;
       return StartEqual(std::move(program));
     }},
    // Behind those that change instructions: offsets hold for the final order only.
    {"plan_memory",
     [](Program program, const Context&) -> absl::StatusOr<Program> { return PlanMemory(std::move(program)); }},
    // Last: all others see one stage of those that are alike.
    {"follow_stages",
     [](Program program, const Context& c) -> absl::StatusOr<Program> {
       if (c.followers == nullptr) return program;
       return FollowStages(std::move(program), *c.followers, c.copies);
     }},
};

// Whether stages may be lowered after the pattern of others: not where passes change what each micro-batch does, which
// would be in vain, nor where they look from stage to stage, as the check of gradients does.
bool MayFollow(const Strategy& strategy, const UpdateRule& optimizer) {
  return !strategy.shard_parameters && !strategy.gradient_accumulation_shard && !optimizer.loss_scale.has_value();
}

absl::StatusOr<Program> RunPasses(absl::Span<const ProgramPass> passes, Program program, const Context& context,
                                  const PassObserver& observe) {
  for (const ProgramPass& pass : passes) {
    MESHWRIGHT_ASSIGN_OR_RETURN(program, pass.run(std::move(program), context));
    if (observe != nullptr) MESHWRIGHT_RETURN_IF_ERROR(observe(pass.name, program));
  }
  return program;
}

absl::StatusOr<UnfusedStages> UnfusedBy(const LoweredBlocks& blocks, const Strategy& without_bucket,
                                        const UpdateRule& optimizer, std::optional<Followers> followers,
                                        const PassObserver& observe) {
  UnfusedStages stages = {{}, std::move(followers)};
  Followers* const noted = stages.followers.has_value() ? &*stages.followers : nullptr;
  const Context context{blocks.graph, without_bucket, optimizer, without_bucket, nullptr, noted, nullptr};
  MESHWRIGHT_ASSIGN_OR_RETURN(
      stages.program, SplitStages(blocks.program, blocks.graph, without_bucket, optimizer, noted, blocks.matrices));
  if (observe != nullptr) MESHWRIGHT_RETURN_IF_ERROR(observe("split_stages", stages.program));
  MESHWRIGHT_ASSIGN_OR_RETURN(stages.program, RunPasses(kBeforeBuckets, std::move(stages.program), context, observe));
  return stages;
}

// Whether pieces of runs with the same layers have the same blocks: not where operators have strategies of their own,
// nor where what does not train ends the backward pass somewhere.
bool MayBeAlike(const Graph& forward, const Strategy& strategy) {
  return strategy.ops.empty() && absl::c_none_of(forward.tensors, [](const Tensor& tensor) {
           return tensor.kind == TensorKind::kParameter && !tensor.trainable;
         });
}

// Of a graph whose runs are cut. `strategy`: block choices.
absl::StatusOr<LoweredBlocks> LowerCut(const Graph& cut, const Strategy& strategy, const UpdateRule& optimizer,
                                       const StepPrice& price, const PassObserver& observe, KeptRedistributions* kept) {
  DifferentiateOptions options;
  options.recompute = strategy.recompute;
  options.gradient_dtype = strategy.gradient_dtype;
  if (optimizer.loss_scale.has_value()) options.loss_scale = optimizer.loss_scale->scale;
  options.loss_gradient = strategy.gradient_scale / strategy.loss_divisor;
  MESHWRIGHT_ASSIGN_OR_RETURN(InterleavedGraph interleaved, Interleave(cut, strategy));
  options.recompute_ops = interleaved.strategy.recompute_ops;
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph grouped, GroupExperts(std::move(interleaved.graph), interleaved.strategy));
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph shared, SplitContext(std::move(grouped), interleaved.strategy));
  for (std::string& name : BroughtKeys(shared)) options.recompute_ops.insert(std::move(name));
  MESHWRIGHT_ASSIGN_OR_RETURN(GraphAndStrategy separate,
                              SeparateRanks(std::move(shared), std::move(interleaved.strategy)));
  LoweredBlocks blocks;
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph whole, Differentiate(std::move(separate.graph), options));
  MESHWRIGHT_ASSIGN_OR_RETURN(ShardedGraph sharded, CompleteLayouts(std::move(whole), separate.strategy));
  const StepPrice without_all_to_all = [&price](const Shape& global, DType dtype, const Work& work,
                                                const Layout& before, const Layout& after) {
    const auto* const collective = std::get_if<Collective>(&work);
    const bool all_to_all = collective != nullptr && collective->kind == CollectiveKind::kAllToAll;
    return all_to_all ? kNever : price(global, dtype, work, before, after);
  };
  // Those that are kept are at the full choice of steps.
  MESHWRIGHT_ASSIGN_OR_RETURN(blocks.program, Partition(sharded, strategy.all_to_all ? price : without_all_to_all,
                                                        interleaved.pieces, strategy.all_to_all ? kept : nullptr));
  blocks.graph = std::move(sharded.graph);
  if (observe != nullptr) MESHWRIGHT_RETURN_IF_ERROR(observe("partition", blocks.program));
  // Here, since it is the same for all stages, and nothing waits yet between a product and its activation.
  if (strategy.fuse_epilogues) blocks.program = FuseEpilogues(std::move(blocks.program), NamesOfLayerEnds(cut));
  if (observe != nullptr) MESHWRIGHT_RETURN_IF_ERROR(observe("fuse_epilogues", blocks.program));
  return blocks;
}

}  // namespace

Strategy BlockChoices(const Strategy& strategy) {
  Strategy choices;
  choices.mesh = strategy.mesh;
  choices.rules = strategy.rules;
  choices.ops = strategy.ops;
  choices.inputs = strategy.inputs;
  choices.stages = strategy.stages;  // how many axes of the mesh split tensors
  choices.recompute = strategy.recompute;
  choices.context = strategy.context;
  choices.expert_groups = strategy.expert_groups;
  choices.recompute_ops = strategy.recompute_ops;
  choices.own_parameters = strategy.own_parameters;
  choices.all_to_all = strategy.all_to_all;
  choices.gradient_fp32_sync = strategy.gradient_fp32_sync;
  choices.gradient_dtype = strategy.gradient_dtype;
  choices.loss_divisor = strategy.loss_divisor;
  choices.gradient_scale = strategy.gradient_scale;
  choices.fuse_epilogues = strategy.fuse_epilogues;
  return choices;
}

static absl::StatusOr<LoweredBlocks> LowerBlocksOf(const Graph& forward, const std::vector<Cut>& cuts,
                                                   const Strategy& strategy, const UpdateRule& optimizer,
                                                   const StepPrice& price, const PassObserver& observe,
                                                   KeptRedistributions* kept) {
  if (cuts.empty()) return LowerCut(forward, strategy, optimizer, price, observe, kept);
  Graph cut = CutRuns(forward, cuts);
  if (observe == nullptr && MayBeAlike(forward, strategy)) {
    if (const std::optional<PieceKinds> kinds = KindsOf(forward, cuts); kinds.has_value()) {
      absl::StatusOr<LoweredBlocks> blocks = LowerCut(kinds->graph, strategy, optimizer, price, observe, kept);
      // What is wrong is to be said of the graph that was asked for.
      if (blocks.ok()) {
        Program program = RepeatPieces(blocks->program, *kinds, cut);
        return LoweredBlocks{std::move(cut), std::move(program)};
      }
    }
  }
  return LowerCut(cut, strategy, optimizer, price, observe, kept);
}

absl::StatusOr<LoweredBlocks> LowerBlocks(const Graph& forward, const std::vector<Cut>& cuts, const Strategy& strategy,
                                          const UpdateRule& optimizer, const StepPrice& price,
                                          const PassObserver& observe, KeptRedistributions* kept) {
  MESHWRIGHT_ASSIGN_OR_RETURN(LoweredBlocks blocks,
                              LowerBlocksOf(forward, cuts, BlockChoices(strategy), optimizer, price, observe, kept));
  // Of the graph as it is: strategies put other operators between a product and its weight.
  if (optimizer.kind == OpKind::kMuon) blocks.matrices = MatricesOf(forward);
  return blocks;
}

Strategy StageChoices(const Strategy& strategy) {
  Strategy choices = strategy;
  choices.bucket = Strategy().bucket;
  return choices;
}

absl::StatusOr<UnfusedStages> LowerUnfused(const LoweredBlocks& blocks, const Strategy& all_choices,
                                           const UpdateRule& optimizer, const PassObserver& observe) {
  const Strategy strategy = StageChoices(all_choices);
  const bool may_follow = observe == nullptr && MayFollow(strategy, optimizer);
  return UnfusedBy(blocks, strategy, optimizer, may_follow ? std::optional(Followers()) : std::nullopt, observe);
}

absl::StatusOr<Program> FuseCalls(UnfusedStages stages, const LoweredBlocks& blocks, const Strategy& strategy,
                                  const UpdateRule& optimizer, const PassObserver& observe, BucketRange* same_buckets,
                                  ClassCopies* copies) {
  const Strategy without_bucket = StageChoices(strategy);
  const auto run = [&](UnfusedStages& of) {
    Followers* const followers = of.followers.has_value() ? &*of.followers : nullptr;
    const Context context{blocks.graph, without_bucket, optimizer, strategy, same_buckets, followers, copies};
    return RunPasses(kFromBuckets, std::move(of.program), context, observe);
  };
  absl::StatusOr<Program> program = run(stages);
  if (!program.ok() || !stages.followers.has_value() || !stages.followers->in_vain) return program;
  MESHWRIGHT_ASSIGN_OR_RETURN(stages, UnfusedBy(blocks, without_bucket, optimizer, std::nullopt, observe));
  return run(stages);
}

absl::StatusOr<Program> LowerStages(const LoweredBlocks& blocks, const Strategy& strategy, const UpdateRule& optimizer,
                                    const PassObserver& observe, BucketRange* same_buckets) {
  MESHWRIGHT_ASSIGN_OR_RETURN(UnfusedStages stages, LowerUnfused(blocks, strategy, optimizer, observe));
  return FuseCalls(std::move(stages), blocks, strategy, optimizer, observe, same_buckets);
}

absl::StatusOr<Program> Lower(const Graph& forward, const Strategy& strategy, const UpdateRule& optimizer,
                              const StepPrice& price, const PassObserver& observe) {
  // First: what lies on a stage is then whole segments and whole runs of them.
  MESHWRIGHT_ASSIGN_OR_RETURN(const LoweredBlocks blocks,
                              LowerBlocks(forward, CutsOf(forward, strategy), strategy, optimizer, price, observe));
  return LowerStages(blocks, strategy, optimizer, observe);
}

StepPrice PriceSteps(const CostModel& costs, const Mesh& mesh) {
  return [prices = std::make_shared<StepPrices>(mesh, costs)](const Shape& global, DType dtype, const Work& work,
                                                              const Layout& before, const Layout& after) {
    return prices->Of(global, dtype, work, before, after);
  };
}

}  // namespace meshwright
