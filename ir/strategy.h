// The Strategy: how a graph is split. With the graph and the mesh it fixes the Program (together with the prices that
// choose among equivalent redistributions).
//
// Two ways to say how ops are split, which may be mixed: rules that name index labels ("batch over dp", as the decoder
// models use), and strategies of single ops (integer tuples or layouts per input, as the seeds' networks use).
//
// Ownership: values. Thread safety: const access from many threads.
#ifndef MESHWRIGHT_IR_STRATEGY_H_
#define MESHWRIGHT_IR_STRATEGY_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/mesh.h"

namespace meshwright {

class NodeRef;  // ir/document.h

// All but the first two compute the gradients of parameters apart from those of activations (Qi et al., Zero Bubble
// Pipeline Parallelism, 2023). zero_bubble_v and dualpipe_v lay two chunks on every stage, forth and back; dualpipe_v
// and dualpipe (DeepSeek-V3 technical report, 2024, section 3.2.1) run forward and backward passes of different
// micro-batches in turns; dualpipe has every part of the model on two stages and feeds both ends.
enum class Schedule : uint8_t { kGpipe, kOneFOneB, kZeroBubbleH1, kZeroBubbleV, kDualPipeV, kDualPipe };
// What backward computes a second time instead of keeping it: nothing; norms, activations and the core of attention
// (Op::recompute_group); everything that it reads of a layer; or the layer's whole forward pass, as the checkpoints of
// training frameworks do, including what no gradient reads.
enum class Recompute : uint8_t { kNone, kSelective, kFull, kLayer };
inline constexpr absl::string_view kScheduleNames[] = {"gpipe",         "1f1b",       "zero_bubble_h1",
                                                       "zero_bubble_v", "dualpipe_v", "dualpipe"};
static_assert(std::size(kScheduleNames) == static_cast<size_t>(Schedule::kDualPipe) + 1, "a name per Schedule");
absl::string_view NameOf(Schedule schedule);
std::optional<int64_t> ChunksOf(Schedule schedule);  // that each stage has; nullopt: any number
absl::string_view NameOf(Recompute recompute);
std::optional<Schedule> ScheduleFromName(absl::string_view name);

// How ranks that share a sequence, those along ContextAxes, come by the keys and values of all of it: there is
// no such axis; gathered before attention (Grattafiori et al., The Llama 3 Herd of Models, 2024, section 3.3.2); or
// handed round a ring, a block at a time, beside the attention over the block at hand (Liu et al., Ring Attention with
// Blockwise Transformers, 2023).
enum class ContextExchange : uint8_t { kNone, kAllGather, kRing };
inline constexpr absl::string_view kContextExchangeNames[] = {"none", "all_gather", "ring"};
static_assert(std::size(kContextExchangeNames) == static_cast<size_t>(ContextExchange::kRing) + 1);
absl::string_view NameOf(ContextExchange exchange);

// How tokens come to experts on other ranks: a copy for each of a token's experts; one for each node that has any of
// them, spread inside (DeepSeek-V3 technical report, 2024, section 3.2.2, and its DeepEP); or one for each such rank.
enum class Dispatcher : uint8_t { kAllToAll, kPerNode, kPerRank };
inline constexpr absl::string_view kDispatcherNames[] = {"all_to_all", "per_node", "per_rank"};
static_assert(std::size(kDispatcherNames) == static_cast<size_t>(Dispatcher::kPerRank) + 1);

// Which ranks share the update of one parameter, under the parallel optimizer.
enum class OptimizerGroup : uint8_t {
  kSummands,  // those whose gradients of it are added up, as Megatron's distributed optimizer has it
  kReplicas,  // all that hold the same piece of it, also where they compute the same (S11.5)
  kOwner,     // one: parameter i is updated by rank i mod N, which then sends it to the others (S11.1)
  // As kSummands, of those at one place of the mesh's axis "copy": each place has a whole copy of what is split, and
  // rows are added up over the places (hybrid sharded data parallelism, HSDP).
  kCopy,
};
absl::string_view NameOf(OptimizerGroup group);

// An index label and the axes that split it in every op that has it and has not used them for an earlier rule.
struct LabelRule {
  std::string label;
  AxisList axes;
};

inline constexpr Bytes kOneBucket = Bytes(int64_t{1} << 52);

// S6.14: one label of an op is split on each rank, too, and the op runs once for each of the `pieces`. Of the label's
// axes the first `axes_before` are more significant than the pieces, the others less: with m over dp, 2 pieces and mp,
// in this order, the rank (dp, mp) holds of piece k the rows at place (dp, k, mp) of as many.
struct Interleaving {
  std::string label;
  int64_t pieces = 1;
  int64_t axes_before = 0;
  friend bool operator==(const Interleaving&, const Interleaving&) = default;
};

// One op's own strategy: the layouts of its inputs, and of its output where it asks for a ReduceScatter (S5.7, S6.7).
// With interleaving these are the layouts of each piece.
struct OpStrategy {
  std::vector<Layout> inputs;
  std::optional<Layout> output;
  std::optional<Interleaving> interleaved;
};

struct Strategy {
  Mesh mesh;
  std::vector<LabelRule> rules;           // in order of precedence
  std::map<std::string, OpStrategy> ops;  // by op name; takes precedence over `rules`
  std::map<std::string, Layout> inputs;   // dataset strategy: how input tensors arrive; others as their user wants them

  int64_t stages = 1;
  int64_t chunks = 1;                     // of a stage, S12.10: stage s has the parts s, stages + s, 2 stages + s, ...
  std::vector<int64_t> layers_per_stage;  // of the repeated segment, by part, 0 at ends; empty: even, the first more
  int64_t microbatches = 1;               // per step
  Schedule schedule = Schedule::kOneFOneB;
  Recompute recompute = Recompute::kNone;
  ContextExchange context = ContextExchange::kNone;  // where the mesh has an axis "cp", which splits label "s"
  // Where above 1, the size of the mesh axis "ep", or that times ranks that share sequences: experts are in so many
  // groups, and a token goes once to each group that has one of its experts (planner/passes/group_experts.h).
  int64_t expert_groups = 1;
  std::set<std::string> recompute_ops;  // S13.1: by name, these are run again whatever `recompute` says

  bool parallel_optimizer = false;  // split optimizer state (and master parameters) over replicas
  OptimizerGroup optimizer_group = OptimizerGroup::kSummands;
  Bytes parallel_optimizer_threshold;     // smaller parameters stay whole (global bytes)
  int64_t optimizer_shard_size = -1;      // S11.8, kReplicas: into how many parts at most; -1: as there are replicas
  std::set<std::string> optimizer_whole;  // parameters that stay whole (S11.4)
  bool shard_parameters = false;          // split parameters and gradients, too; takes parallel_optimizer
  // S11.10: gradients are scattered after every micro-batch and accumulated as rows, not whole and scattered once a
  // step. Takes parallel_optimizer, and several micro-batches.
  bool gradient_accumulation_shard = false;
  // Fusion (S10): gradients are reduced, parameters gathered, in calls of several tensors.
  Bytes bucket = MiB(64);                              // largest call; 0: one by one; kOneBucket: all together
  std::optional<Bytes> scatter_bucket, gather_bucket;  // of reduce-scatters and all-gathers, where they differ
  std::vector<int64_t> bucket_ends;                    // S10.4, instead of a size: the last gradient of each all-reduce
  std::map<std::string, int64_t> fusion_ids;           // S10.7, by parameter: 0 alone, 1 as above, else with its like
  std::set<std::string> own_parameters;                // S8.9: every rank has its own, which it trains alone
  bool parameter_broadcast = false;                    // S8.10: rank 0's values replace the others' at the start
  bool all_to_all = true;                              // S7.4: may redistributions use all-to-alls?
  bool fuse_epilogues = true;                          // an op and the one behind it (fuse_epilogues.h)
  bool fuse_loss = true;                               // logits read once, written over (fuse_loss.h)
  bool fuse_updates = true;                            // updates that are alike in one kernel (fuse_updates.h)
  bool gradients_mean = false;                         // S8.2: divide by the replica count
  bool gradient_fp32_sync = true;                      // S8.6: casts of gradients come before their sum
  DType gradient_dtype = DType::kFloat32;              // accumulators and reduction
  double loss_divisor = 1;                             // reported loss = sum of the micro-batch losses / this
  double gradient_scale = 1;                           // of what is reported: S8.7's data_parallel has N
};

// Text form (YAML, as in plan.yaml): round-trips.
//
//   mesh: "pp=2 x4=2 x2=2 x1=2"
//   rules:
//     - {label: batch, axes: [x4, x2]}
//   ops:
//     matmul: {inputs: ["{x4 | x2.x1}", "{x2.x1 | -}"], output: "{x4.x2.x1 | -}"}
//     relu: {inputs: ["{x4 | -}"], interleaved: {label: d0, pieces: 2, axes_before: 1}}
//   inputs:
//     x: "{x4.x2.x1 | -}"
//   stages: 2
//   chunks: 2                 # interleaved
//   layers_per_stage: [2, 2, 2, 2]
//   microbatches: 4
//   schedule: 1f1b                      # gpipe
//   recompute: selective                # none, full, layer
//   context: ring                       # all_gather
//   expert_groups: 4
//   recompute_ops: [relu]
//   parallel_optimizer: true
//   parallel_optimizer_threshold: 64 KiB   # and optimizer_group: replicas, optimizer_shard_size: 4
//   optimizer_whole: [w]
//   shard_parameters: false              # and gradient_accumulation_shard: true
//   bucket: 64 MiB            # and scatter_bucket, gather_bucket, bucket_ends: [20, 35], fusion_ids: {w: 2}
//   all_to_all: true
//   fuse_epilogues: true      # and fuse_loss: true, fuse_updates: true
//   gradients_mean: false
//   gradient_dtype: float32
//   loss_divisor: 4
//   gradient_scale: 1
//
// Only the mesh is required. kInvalidArgument, as ir/document.h says errors. That layouts fit the tensors of a graph is
// not known here.
std::string ToText(const Strategy& strategy);
absl::StatusOr<Strategy> ParseStrategy(const std::string& text, const std::string& file);
// The same from a value of a larger document.
absl::StatusOr<Strategy> ReadStrategy(const NodeRef& in);

// The mesh's axes along which ranks share sequences, if any: "cp", and behind it "ce" where experts lie over a part of
// these ranks only.
AxisList ContextAxes(const Mesh& mesh);

// The labels in the order of their axes in the device matrix of integer tuples: of first appearance. But a product has
// its rows, what it contracts, its columns, whichever way its inputs are stored (S5.4).
std::vector<size_t> MatrixOrder(const IndexRule& rule);

// The strategy of one op given as integer tuples (S5.1): one piece count per dim of each input. The device matrix is
// the labels in MatrixOrder, a repeat axis last (S4.5).
// Errors as S5.2, kInvalidArgument.
absl::StatusOr<OpStrategy> FromTuples(const Op& op, const Graph& graph, const std::vector<std::vector<int64_t>>& tuples,
                                      const Mesh& mesh, int64_t ranks_per_stage);

// The label assignment that layouts of an op's inputs mean; kInvalidArgument when two inputs disagree about a label
// ("contracting dimension must be split equally") or split what must stay whole.
absl::StatusOr<Assignment> AssignmentOf(const Op& op, const Graph& graph, const OpStrategy& strategy, const Mesh& mesh);

// Whether the op may run piece by piece (S6.14): the label is one that its inputs have, every output keeps and nothing
// needs whole; its dims divide; its kernel does not look at places and is no step of a larger operator; parameters have
// the pieces last in their dim, so that what a rank holds of one is a block. E-LAYOUT names the op and says which of
// these is not so. OK without interleaving.
absl::Status CheckInterleaving(const Op& op, const Graph& graph, const OpStrategy& strategy, const Mesh& mesh);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_STRATEGY_H_
