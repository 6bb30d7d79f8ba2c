#include "planner/search/evaluate.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "costmodel/cost_model.h"
#include "costmodel/memory_overheads.h"
#include "ir/status.h"
#include "planner/lower.h"
#include "planner/passes/cut_runs.h"
#include "planner/schedule.h"
#include "planner/search/latest.h"
#include "simulator/class_copies.h"
#include "simulator/price.h"

namespace meshwright {
namespace {

// --- model FLOPs ---------------------------------------------------------------------------------------------------

KernelWork WholeWorkOf(const Graph& graph, const Op& op) {
  std::vector<Shape> inputs, outputs;
  std::vector<DType> input_dtypes, output_dtypes;
  for (TensorId id : op.inputs) {
    inputs.push_back(graph.tensor(id).shape);
    input_dtypes.push_back(graph.tensor(id).dtype);
  }
  for (TensorId id : op.outputs) {
    outputs.push_back(graph.tensor(id).shape);
    output_dtypes.push_back(graph.tensor(id).dtype);
  }
  return WorkOf(op.kind, op.attrs, op.rule, inputs, input_dtypes, outputs, output_dtypes);
}

// Slots of experts that no token fills are no model FLOPs: of each tensor between Dispatch and Combine, the share of
// rows that tokens fill when they spread evenly.
class FilledShares {
 public:
  explicit FilledShares(const Graph& graph) : graph_(graph), shares_(graph.tensors.size(), 1.0) {}

  // To be called for the forward ops in order.
  double Visit(const Op& op) {
    double share = 1;
    for (TensorId id : op.inputs) share = std::min(share, shares_[id.index()]);
    if (InfoOf(op.kind).role == OpRole::kCombine) share = 1;
    if (InfoOf(op.kind).role == OpRole::kDispatch) {
      const Shape& tokens = graph_.tensor(op.inputs[0]).shape;  // (s, b, h)
      const Shape& slots = graph_.tensor(op.outputs[0]).shape;  // (e, c, h)
      share = std::min(
          1.0, static_cast<double>(tokens[0] * tokens[1] * op.attrs.top_k) / static_cast<double>(slots[0] * slots[1]));
    }
    for (TensorId id : op.outputs) shares_[id.index()] = share;
    return share;
  }

 private:
  const Graph& graph_;
  std::vector<double> shares_;
};

struct ModelWork {
  double all = 0;  // FLOPs of one micro-batch, forward and backward
  std::map<DType, double> by_type;
};

// Whether an input of the op is a parameter that does not train.
bool IsFrozen(const Graph& graph, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId id) {
    return graph.tensor(id).kind == TensorKind::kParameter && !graph.tensor(id).trainable;
  });
}

ModelWork WorkOfModel(const Graph& graph) {
  ModelWork model;
  FilledShares filled(graph);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    const double share = filled.Visit(op);
    const KernelClass kernel = InfoOf(op.kind).kernel;
    if (kernel != KernelClass::kContraction && kernel != KernelClass::kAttention &&
        kernel != KernelClass::kLinearAttention) {
      continue;
    }
    const KernelWork work = WholeWorkOf(graph, op);
    double flops = work.flops.raw() * share * static_cast<double>(graph.segment(op.segment).repeat);
    if (kernel == KernelClass::kAttention && work.causal && work.window == 0) flops *= 2;
    model.all += flops * (IsFrozen(graph, op) ? 2 : 3);
    model.by_type[work.dtype] += flops;
  }
  return model;
}

// The type in which most of the model is computed.
DType ComputeType(const ModelWork& model) {
  DType type = DType::kFloat32;
  double most = 0;
  for (const auto& [dtype, flops] : model.by_type) {
    if (flops <= most) continue;
    most = flops;
    type = dtype;
  }
  return type;
}

// Of the type, or of the one that the cost model takes in its place (costmodel/kernel_cost.h).
FlopsPerSecond PeakOf(DType dtype, const Device& device) {
  if (device.Peak(dtype).raw() > 0 || dtype == DType::kFloat32) return device.Peak(dtype);
  const bool narrow = dtype == DType::kFloat8 || dtype == DType::kBFloat16;
  return PeakOf(narrow ? DType::kFloat16 : DType::kFloat32, device);
}

// --- memory outside the arena --------------------------------------------------------------------------------------

// The communicators that one rank of a class is in, by axes in ascending order.
std::map<AxisList, CommunicatorUse> CommunicatorsOf(const Program& program, const ClassCopies& copies, size_t c,
                                                    const Cluster& cluster) {
  std::map<AxisList, CommunicatorUse> communicators;
  const auto use_of = [&](AxisList axes, int64_t first, int64_t ranks) -> CommunicatorUse& {
    std::sort(axes.begin(), axes.end());
    const auto [it, inserted] = communicators.try_emplace(axes);
    if (inserted) {
      const GroupShape shape = ShapeOf(program.mesh, axes, first, ranks, cluster);
      it->second = {shape.ranks, shape.ranks_per_node, false, false};
    }
    return it->second;
  };
  for (const Block& block : program.classes[copies.Of(c)].blocks) {
    for (const Instruction& instruction : block.instructions) {
      if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
        CommunicatorUse& use = use_of(collective->axes, program.RankOf(c, 0), program.ranks_per_class());
        use.reduces |=
            collective->kind == CollectiveKind::kAllReduce || collective->kind == CollectiveKind::kReduceScatter;
        use.all_to_all |= collective->kind == CollectiveKind::kAllToAll;
      } else if (std::holds_alternative<Transfer>(instruction.work)) {
        if (const AxisId stages = program.mesh.Find("pp"); stages.valid()) {
          use_of({stages}, 0, program.mesh.num_ranks());
        }
      }
    }
  }
  return communicators;
}

Bytes BytesOfCommunicators(const Program& program, const ClassCopies& copies, size_t c, const Cluster& cluster) {
  Bytes communication;
  for (const auto& [axes, use] : CommunicatorsOf(program, copies, c, cluster)) {
    communication += CommunicatorBytes(use, cluster);
  }
  return communication;
}

// Of weights in float8, which take as much again.
Bytes BytesOfTransposes(const RankClass& rank_class, const Device& device) {
  Bytes transposes;
  if (!KeepsTransposes(device)) return transposes;
  for (const Buffer& buffer : rank_class.buffers) {
    const bool weight = buffer.role == BufferRole::kParameter && buffer.dtype == DType::kFloat8;
    if (weight && !buffer.alias.valid()) transposes += buffer.bytes * (buffer.layers * buffer.microbatches);
  }
  return transposes;
}

std::vector<std::pair<std::string, Bytes>> OutsideArena(Bytes communication, Bytes transposes, const Cluster& cluster) {
  std::vector<std::pair<std::string, Bytes>> outside = {{"context and workspace", ProcessBytes(cluster)}};
  if (communication > Bytes()) outside.push_back({"communicators", communication});
  if (transposes > Bytes()) outside.push_back({"transposes of weights", transposes});
  return outside;
}

BytesByRole ReservedBy(const Program& program, const ClassCopies& copies, size_t c) {
  const RankClass& written = program.classes[copies.Of(c)];
  if (copies.Of(c) == c) return ReservedBytes(written);
  RankClass copy;
  copy.buffers = written.buffers;
  const std::vector<int64_t>& microbatches = copies.microbatches[c];
  for (size_t i = 0; i < microbatches.size(); ++i) copy.buffers[i].microbatches = microbatches[i];
  return ReservedBytes(copy);
}

void SetMemory(const Program& program, const ClassCopies& copies, const Problem& problem, Prediction* prediction) {
  const Cluster& cluster = problem.cluster;
  const auto place_in_node = [&](size_t c) { return program.RankOf(c, 0) % cluster.devices_per_node; };
  prediction->capacity = CapacityOf(problem);
  std::vector<Bytes> communication;  // by class
  for (size_t c = 0; c < program.classes.size(); ++c) {
    const size_t written = copies.Of(c);
    // Classes that begin at the same place of a node have equal groups.
    const bool alike = written < c && place_in_node(written) == place_in_node(c);
    communication.push_back(alike ? communication[written] : BytesOfCommunicators(program, copies, c, cluster));
    const Bytes transposes = BytesOfTransposes(program.classes[written], cluster.device);
    const auto outside = OutsideArena(communication[c], transposes, cluster);
    Bytes peak = program.classes[c].arena;
    for (const auto& [name, bytes] : outside) peak += bytes;
    if (c > 0 && peak <= prediction->peak) continue;
    prediction->peak = peak;
    prediction->fullest_class = c;
    prediction->arena = program.classes[c].arena;
    prediction->outside = outside;
  }
  // Temporaries share memory: they take what the others leave of the arena.
  prediction->memory = ReservedBy(program, copies, prediction->fullest_class);
  Bytes others;
  for (const Bytes bytes : prediction->memory) others += bytes;
  Bytes& temporary = prediction->memory[static_cast<size_t>(BufferRole::kTemporary)];
  temporary = prediction->arena - (others - temporary);
}

// Of a micro-batch, for strategies with the same BlockChoices and cuts.
struct Microbatch {
  ModelWork work;
  LoweredBlocks blocks;
};

absl::StatusOr<Microbatch> MicrobatchOf(const Problem& problem, const Graph& graph, const CostModel& costs,
                                        const Strategy& strategy, const std::vector<Cut>& cuts,
                                        KeptRedistributions* kept = nullptr) {
  Microbatch microbatch;
  const StepPrice price = PriceSteps(costs, strategy.mesh);
  MESHWRIGHT_ASSIGN_OR_RETURN(microbatch.blocks,
                              LowerBlocks(graph, cuts, strategy, problem.update, price, nullptr, kept));
  microbatch.work = WorkOfModel(graph);
  return microbatch;
}

// LowerUnfused of a micro-batch, or what it made before.
using Unfused = std::function<absl::StatusOr<UnfusedStages>(const Microbatch& microbatch, const Strategy& strategy)>;

Unfused MadeAnew(const Problem& problem) {
  return [&problem](const Microbatch& microbatch, const Strategy& strategy) {
    return LowerUnfused(microbatch.blocks, strategy, problem.update);
  };
}

absl::StatusOr<Program> LowerFor(const Problem& problem, const Microbatch& microbatch, const Unfused& unfused,
                                 const Strategy& strategy, BucketRange* same, ClassCopies* copies = nullptr) {
  MESHWRIGHT_ASSIGN_OR_RETURN(UnfusedStages stages, unfused(microbatch, strategy));
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, FuseCalls(std::move(stages), microbatch.blocks, strategy, problem.update,
                                                         /*observe=*/nullptr, same, copies));
  if (problem.host.serial) program = Serial(std::move(program));
  if (problem.host.serial_gathers) program = SerialGathers(std::move(program));
  if (problem.host.serial_regathers) program = SerialRegathers(std::move(program));
  return program;
}

// --- steps of many micro-batches -----------------------------------------------------------------------------------

// Another number of micro-batches for a strategy, with the same program but for periods in the middle.
struct Shorter {
  int64_t microbatches = 0;
  MorePeriods periods;
};

// With no more periods where that is all of them, or forward and backward passes do not alternate.
Shorter Shorten(const Strategy& strategy) {
  const Schedule schedule = strategy.stages > 1 ? strategy.schedule : Schedule::kOneFOneB;
  const Shorter whole = {strategy.microbatches, {}};
  if (schedule == Schedule::kGpipe) return whole;
  const bool in_order = schedule == Schedule::kOneFOneB && strategy.chunks == 1;
  const bool in_groups = schedule == Schedule::kOneFOneB && strategy.chunks > 1;  // of a micro-batch for each stage
  const int64_t distance = in_groups ? strategy.stages : 1;
  const int64_t period = distance * DirectionsOf(schedule);  // micro-batches
  // With so many each stage has as many in flight as it ever has.
  const int64_t fill = strategy.stages * (in_order ? 1 : 2);
  // And so many periods more for all stages to do twice what the longer step repeats.
  const int64_t shown = in_groups ? 2 : in_order ? 3 : 6;
  const int64_t more = (strategy.microbatches - fill) / period - shown;
  const int64_t left = strategy.microbatches - more * period;
  return more < 1 ? whole : Shorter{left, {distance, more}};
}

// Fills in what follows from the step's time.
void SetSpeed(const Problem& problem, const ModelWork& model, const Strategy& strategy, Prediction* prediction) {
  const double seconds = ToSeconds(prediction->step);
  if (seconds <= 0) return;
  prediction->tokens_per_second = static_cast<double>(problem.batch * problem.tokens_per_row) / seconds;
  prediction->peak_flops = PeakOf(ComputeType(model), problem.cluster.device);
  const double available = prediction->peak_flops.raw() * static_cast<double>(strategy.mesh.num_ranks()) * seconds;
  if (available > 0) prediction->mfu = model.all * static_cast<double>(strategy.microbatches) / available;
}

absl::StatusOr<SimulationResult> Play(const Problem& problem, const CostModel& costs, const Program& program) {
  if (problem.cluster.device.generation == Generation::kHost) {
    const Program played = AsPlayed(program, problem.cluster);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(played, costs, problem.host));
    return Simulate(played, prices);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(program, costs, problem.host));
  return Simulate(program, prices);
}

// Of a prediction that has its memory.
bool IsSimulated(Simulated simulated, const Prediction& prediction) {
  return simulated == Simulated::kAll || (simulated == Simulated::kWhatFits && prediction.fits());
}

absl::StatusOr<Evaluation> EvaluateMicrobatch(const Problem& problem, const Microbatch& microbatch,
                                              const Unfused& unfused, const CostModel& costs, const Strategy& strategy,
                                              Simulated simulated, BucketRange* same = nullptr) {
  Evaluation evaluation;
  MESHWRIGHT_ASSIGN_OR_RETURN(evaluation.program, LowerFor(problem, microbatch, unfused, strategy, same));
  const Program& program = evaluation.program;
  Prediction& prediction = evaluation.prediction;
  SetMemory(program, {}, problem, &prediction);
  if (!IsSimulated(simulated, prediction)) return evaluation;
  MESHWRIGHT_ASSIGN_OR_RETURN(const SimulationResult result, Play(problem, costs, program));
  prediction.step = result.makespan;
  prediction.critical_class = result.critical_class;
  prediction.time = result.classes[result.critical_class].time.exclusive;
  SetSpeed(problem, microbatch.work, strategy, &prediction);
  return evaluation;
}

// `same`, which may be null, is narrowed to the buckets that have the same prediction.
absl::StatusOr<Prediction> PredictMicrobatch(const Problem& problem, const Microbatch& microbatch,
                                             const Unfused& unfused, const CostModel& costs, const Strategy& strategy,
                                             Simulated simulated, BucketRange* same = nullptr) {
  const Shorter shorter = Shorten(strategy);
  Strategy fewer = strategy;
  fewer.microbatches = shorter.microbatches;
  ClassCopies copies;
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, LowerFor(problem, microbatch, unfused, fewer, same, &copies));
  Prediction prediction;
  SetMemory(program, copies, problem, &prediction);
  if (!IsSimulated(simulated, prediction)) return prediction;
  program = AsPlayed(std::move(program), problem.cluster);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(program, costs, problem.host, copies));
  const absl::StatusOr<std::optional<Nanos>> step = SimulateLonger(program, prices, shorter.periods, copies);
  // What is wrong is to be said of the step that was asked for.
  if (step.ok() && step->has_value()) {
    prediction.step = **step;
    SetSpeed(problem, microbatch.work, strategy, &prediction);
    return prediction;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation,
                              EvaluateMicrobatch(problem, microbatch, unfused, costs, strategy, simulated, same));
  return std::move(evaluation.prediction);
}

}  // namespace

class Evaluator::Kept {
 public:
  absl::StatusOr<std::shared_ptr<const Microbatch>> Get(const Problem& problem, const CostModel& costs,
                                                        const Strategy& strategy) {
    if (strategy.microbatches < 1 || problem.batch % strategy.microbatches != 0) {
      return absl::InvalidArgumentError(absl::StrCat("found ", strategy.microbatches,
                                                     " micro-batches, wanted a divisor of the batch of ", problem.batch,
                                                     " rows"));
    }
    const int64_t rows = problem.batch / strategy.microbatches;
    MESHWRIGHT_ASSIGN_OR_RETURN(const auto graph, graphs_.Get(rows, [&] { return problem.graph(rows); }));
    const std::vector<Cut> cuts = CutsOf(*graph, strategy);
    Latest<BlocksKey, Microbatch>& known = cuts.empty() ? microbatches_ : cut_;
    return known.Get({rows, ToText(BlockChoices(strategy)), cuts},
                     [&] { return MicrobatchOf(problem, *graph, costs, strategy, cuts, &redistributions_); });
  }

  // Of micro-batches of so many rows. A pass changes its copy.
  Unfused UnfusedOf(const Problem& problem, int64_t rows) {
    return [this, &problem, rows](const Microbatch& microbatch,
                                  const Strategy& strategy) -> absl::StatusOr<UnfusedStages> {
      MESHWRIGHT_ASSIGN_OR_RETURN(const auto stages, stages_.Get({rows, ToText(StageChoices(strategy))}, [&] {
        return LowerUnfused(microbatch.blocks, strategy, problem.update);
      }));
      return *stages;
    };
  }

  std::optional<Prediction> Find(const Strategy& strategy, Simulated simulated) {
    const PredictionKey key = {simulated, ToText(StageChoices(strategy))};
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = predictions_.find(key);
    if (found == predictions_.end()) return std::nullopt;
    for (const auto& [same, prediction] : found->second) {
      if (same.Has(strategy.bucket)) return prediction;
    }
    return std::nullopt;
  }
  void Keep(const Strategy& strategy, Simulated simulated, const BucketRange& same, const Prediction& prediction) {
    const PredictionKey key = {simulated, ToText(StageChoices(strategy))};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (predictions_.size() >= kMostPredictions) predictions_.clear();
    predictions_[key].push_back({same, prediction});
  }

 private:
  static constexpr size_t kMostPredictions = 1024;  // of a kilobyte or two each
  static constexpr size_t kMostGraphs = kMostKept;  // of some ten kilobytes each
  static constexpr size_t kMostStages = 4;          // of up to some megabytes each; a search asks for them in a row

  using BlocksKey = std::tuple<int64_t, std::string, std::vector<Cut>>;
  using StagesKey = std::pair<int64_t, std::string>;  // rows of a micro-batch, and choices
  // All of the strategy but its bucket, for which there is a range.
  using PredictionKey = std::pair<Simulated, std::string>;

  std::mutex mutex_;  // of `predictions_`
  std::map<PredictionKey, std::vector<std::pair<BucketRange, Prediction>>> predictions_;
  Latest<int64_t, Graph> graphs_{kMostGraphs};
  KeptRedistributions redistributions_;
  Latest<BlocksKey, Microbatch> microbatches_{kMostKept}, cut_{kMostCut};
  Latest<StagesKey, UnfusedStages> stages_{kMostStages};
};

Evaluator::Evaluator(const Problem& problem, const CostModel& costs)
    : problem_(problem), costs_(costs), kept_(std::make_unique<Kept>()) {}
Evaluator::~Evaluator() = default;

absl::StatusOr<Evaluation> Evaluator::Evaluate(const Strategy& strategy, Simulated simulated) const {
  MESHWRIGHT_ASSIGN_OR_RETURN(const auto microbatch, kept_->Get(problem_, costs_, strategy));
  return EvaluateMicrobatch(problem_, *microbatch, MadeAnew(problem_), costs_, strategy, simulated);
}

absl::StatusOr<Prediction> Evaluator::Predict(const Strategy& strategy, Simulated simulated) const {
  if (std::optional<Prediction> kept = kept_->Find(strategy, simulated); kept.has_value()) return *std::move(kept);
  MESHWRIGHT_ASSIGN_OR_RETURN(const auto microbatch, kept_->Get(problem_, costs_, strategy));
  const int64_t rows = problem_.batch / strategy.microbatches;
  BucketRange same;
  MESHWRIGHT_ASSIGN_OR_RETURN(
      Prediction prediction,
      PredictMicrobatch(problem_, *microbatch, kept_->UnfusedOf(problem_, rows), costs_, strategy, simulated, &same));
  kept_->Keep(strategy, simulated, same, prediction);
  return prediction;
}

Bytes CapacityOf(const Problem& problem) {
  const Bytes device = problem.cluster.device.memory;
  return std::min(device, problem.memory_limit.value_or(device));
}

double ModelFlops(const Graph& microbatch, int64_t microbatches) {
  return WorkOfModel(microbatch).all * static_cast<double>(microbatches);
}

absl::StatusOr<Evaluation> EvaluateGraph(const Problem& problem, const Graph& graph, const CostModel& costs,
                                         const Strategy& strategy, Simulated simulated) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Microbatch microbatch,
                              MicrobatchOf(problem, graph, costs, strategy, CutsOf(graph, strategy)));
  return EvaluateMicrobatch(problem, microbatch, MadeAnew(problem), costs, strategy, simulated);
}

absl::StatusOr<Prediction> PredictGraph(const Problem& problem, const Graph& graph, const CostModel& costs,
                                        const Strategy& strategy, Simulated simulated) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Microbatch microbatch,
                              MicrobatchOf(problem, graph, costs, strategy, CutsOf(graph, strategy)));
  return PredictMicrobatch(problem, microbatch, MadeAnew(problem), costs, strategy, simulated);
}

absl::StatusOr<Evaluation> Evaluate(const Problem& problem, const Strategy& strategy) {
  const CostModel costs(problem.cluster);
  return Evaluator(problem, costs).Evaluate(strategy);
}

}  // namespace meshwright
