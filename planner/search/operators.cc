#include "planner/search/operators.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/dynamic_programming.h"
#include "planner/search/feeding.h"
#include "planner/search/notes.h"
#include "planner/search/nothing_fits.h"
#include "planner/search/op_candidates.h"
#include "planner/search/parallel_for.h"
#include "planner/search/propagation.h"
#include "planner/search/recursive_programming.h"
#include "planner/search/time_costs.h"

namespace meshwright {
namespace {

// Simulated together; a constant, so that nothing depends on the number of threads.
constexpr size_t kBatch = 256;

// Operators that users write one by one are never repeated.
bool IsDecoder(const Graph& graph) {
  return std::any_of(graph.segments.begin(), graph.segments.end(),
                     [](const Segment& segment) { return !segment.carries.empty(); });
}

class OperatorSearch {
 public:
  OperatorSearch(const Problem& problem, const SearchOptions& options)
      : problem_(problem), options_(options), costs_(problem.cluster) {}

  absl::StatusOr<SearchResult> Run() {
    MESHWRIGHT_RETURN_IF_ERROR(MakeBase());
    switch (problem_.mode) {
      case SearchMode::kDecoder:
        return absl::InternalError("a decoder is no graph of single operators");
      case SearchMode::kStandAlone:
        return One(base_);
      case SearchMode::kDataParallel:
        MESHWRIGHT_RETURN_IF_ERROR(SplitBatch());
        return One(base_);
      case SearchMode::kByHand:
        MESHWRIGHT_RETURN_IF_ERROR(SplitRanks());
        return One(base_);
      case SearchMode::kDefaults:
        MESHWRIGHT_RETURN_IF_ERROR(Defaults());
        return One(base_);
      case SearchMode::kDynamicProgramming:
        MESHWRIGHT_RETURN_IF_ERROR(ProgramDynamically());
        return One(base_);
      case SearchMode::kRecursiveProgramming:
        MESHWRIGHT_RETURN_IF_ERROR(ProgramRecursively());
        return One(base_);
      case SearchMode::kShardingPropagation:
        MESHWRIGHT_RETURN_IF_ERROR(PropagateShards());
        return One(base_);
      case SearchMode::kExhaustive:
        return Exhaustive();
    }
    return absl::InternalError("an unknown search mode");
  }

 private:
  // Lays the dims that count ranks over them: "rank", or "rank0", "rank1", ..., the last one contiguous.
  absl::Status SplitRanks() {
    std::map<std::string, int64_t> extents;
    for (const Op& op : graph_.ops) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        for (size_t d = 0; d < op.rule->inputs[i].size(); ++d) {
          const DimRule& dim = op.rule->inputs[i][d];
          if (dim.label < 0 || dim.own_size || op.rule->labels[dim.label].whole) continue;
          const std::string& name = op.rule->labels[dim.label].name;
          if (absl::StartsWith(name, "rank")) extents[name] = graph_.tensor(op.inputs[i]).shape[d];
        }
      }
    }
    if (extents.size() <= 1) extents = {{"rank", ranks_}};
    int64_t stride = 1;
    for (size_t k = extents.size(); k-- > 0;) {
      const std::string name = extents.size() == 1 ? "rank" : absl::StrCat("rank", k);
      MESHWRIGHT_ASSIGN_OR_RETURN(const AxisList axes, base_.mesh.Compose(extents[name], stride));
      base_.rules.push_back({name, axes});
      stride *= extents[name];
    }
    return absl::OkStatus();
  }

  // The graph, and all of the strategy but how operators are split.
  absl::Status MakeBase() {
    const bool alone = problem_.mode == SearchMode::kStandAlone;
    const bool simple = alone || problem_.mode == SearchMode::kDataParallel || problem_.mode == SearchMode::kByHand;
    const int64_t devices = alone ? 1 : problem_.cluster.num_devices();
    const int64_t stages = simple ? 1 : problem_.stages.value_or(1);
    if (stages < 1 || devices % stages != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(devices, " devices do not divide into ", stages, " pipeline stages"));
    }
    ranks_ = devices / stages;
    base_.mesh = Mesh::Factored(stages, ranks_);
    base_.stages = stages;
    base_.microbatches = problem_.microbatches.value_or(stages);
    if (base_.microbatches < stages) {
      return absl::InvalidArgumentError(absl::StrCat("found ", base_.microbatches, " micro-batches for ", stages,
                                                     " stages, wanted at least as many"));
    }
    if (problem_.batch % base_.microbatches != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found ", base_.microbatches, " micro-batches, wanted a divisor of the batch of ", problem_.batch, " rows"));
    }
    const bool by_rank = problem_.mode == SearchMode::kDataParallel;
    base_.optimizer_group = by_rank ? OptimizerGroup::kOwner : OptimizerGroup::kReplicas;
    base_.optimizer_shard_size = problem_.optimizer_shard_size.value_or(-1);
    SetGivenChoices(problem_, base_);
    MESHWRIGHT_ASSIGN_OR_RETURN(graph_, problem_.graph(problem_.batch / base_.microbatches));
    if (simple) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(base_.inputs, FeedingLayouts(problem_, graph_, base_.mesh, ranks_));
    for (const auto& [name, sharding] : problem_.shards) {
      const OpId op = graph_.FindOp(name);
      if (!op.valid()) {
        return absl::InvalidArgumentError(
            absl::StrCat("a strategy is given for an operator \"", name, "\", which the model does not have"));
      }
      MESHWRIGHT_ASSIGN_OR_RETURN(base_.ops[name], Resolve(sharding, graph_.op(op), graph_, base_.mesh, ranks_));
    }
    return absl::OkStatus();
  }

  // data_parallel: whatever comes from the rows of the inputs is split as they are.
  absl::Status SplitBatch() {
    Problem rows = problem_;
    rows.feeding = Feeding::kDataParallel;
    MESHWRIGHT_ASSIGN_OR_RETURN(base_.inputs, FeedingLayouts(rows, graph_, base_.mesh, ranks_));
    if (IsDecoder(graph_)) {  // its labels say what the rows are, through layers and experts
      MESHWRIGHT_ASSIGN_OR_RETURN(const AxisList axes, base_.mesh.Compose(ranks_, 1));
      base_.rules = {{"b", axes}, {"c", axes}};
      return absl::OkStatus();
    }
    std::vector<int> row_dim(graph_.tensors.size(), -1);
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      if (tensor.kind == TensorKind::kInput && !tensor.shape.empty()) row_dim[t] = 0;
    }
    for (const Op& op : graph_.ops) {
      Pieces pieces(op.rule->labels.size(), 1);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const int dim = row_dim[op.inputs[i].index()];
        if (dim < 0) continue;
        const int label = op.rule->inputs[i][static_cast<size_t>(dim)].label;
        if (label >= 0 && !op.rule->labels[static_cast<size_t>(label)].whole)
          pieces[static_cast<size_t>(label)] = ranks_;
      }
      MESHWRIGHT_ASSIGN_OR_RETURN(base_.ops[op.name], FromTuples(op, graph_, TuplesOf(op, pieces), base_.mesh, ranks_));
      for (size_t k = 0; k < op.outputs.size(); ++k) {
        for (size_t d = 0; d < op.rule->outputs[k].size(); ++d) {
          const int label = op.rule->outputs[k][d].label;
          if (label >= 0 && pieces[static_cast<size_t>(label)] > 1)
            row_dim[op.outputs[k].index()] = static_cast<int>(d);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Defaults() {
    for (const Op& op : graph_.ops) {
      if (base_.ops.count(op.name) > 0) continue;
      // What computes nothing takes over how its input lies (S5.10): CompleteLayouts sees to it.
      if (InfoOf(op.kind).kernel == KernelClass::kNone) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(
          base_.ops[op.name],
          FromTuples(op, graph_, TuplesOf(op, DefaultPieces(op, graph_, ranks_)), base_.mesh, ranks_));
    }
    return absl::OkStatus();
  }

  // The layouts of inputs that the user gave: they count as a configured operator (S15.5).
  std::map<std::string, Layout> GivenInputs() const {
    return problem_.feeding == Feeding::kTuples ? base_.inputs : std::map<std::string, Layout>();
  }

  absl::StatusOr<CompatibleCosts> MakeCompatible() const {
    return CompatibleCosts::Make(graph_, base_.mesh, ranks_, problem_.cost_model, problem_.enable_alltoall);
  }

  absl::Status PropagateShards() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const CompatibleCosts costs, MakeCompatible());
    MESHWRIGHT_ASSIGN_OR_RETURN(Propagated propagated,
                                Propagate(graph_, base_.mesh, ranks_, costs, base_.ops, GivenInputs()));
    base_.ops = std::move(propagated.ops);
    result_.warnings = std::move(propagated.warnings);
    result_.guarantee =
        "sharding_propagation: each operator redistributes as few bytes as it can towards the neighbour it was reached "
        "from; other plans may be faster";
    return absl::OkStatus();
  }

  absl::Status ProgramDynamically() {
    if (base_.stages > 1) {
      return StateError("dynamic_programming plans one stage, found ", base_.stages,
                        " pipeline stages; use search_mode sharding_propagation or recursive_programming");
    }
    const bool bytes = problem_.search_prices == PriceKind::kBytes;
    OperatorProblem operators;
    operators.graph = &graph_;
    operators.mesh = &base_.mesh;
    operators.ranks_per_stage = ranks_;
    operators.knobs = problem_.cost_model;
    operators.configured = base_.ops;
    MESHWRIGHT_ASSIGN_OR_RETURN(const CompatibleCosts compatible, MakeCompatible());
    if (bytes) {
      operators.prices = &compatible;
      operators.inputs = GivenInputs();
      // S1.8: the lower of the two.
      const Bytes capacity = problem_.cost_model.device_memory_capacity;
      operators.memory_capacity =
          static_cast<double>(std::min(capacity, problem_.memory_limit.value_or(capacity)).raw());
      MESHWRIGHT_ASSIGN_OR_RETURN(OperatorPlan plan, PlanByDynamicProgramming(operators));
      return Take(std::move(plan), operators);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const TimeCosts times,
                                TimeCosts::Make(graph_, base_.mesh, costs_, compatible, problem_.update));
    operators.prices = &times;
    operators.inputs = base_.inputs;
    operators.knobs.alpha = operators.knobs.beta = 1;
    operators.memory_capacity = static_cast<double>(CapacityOf(problem_).raw());
    MESHWRIGHT_ASSIGN_OR_RETURN(OperatorPlan plan, PlanByDynamicProgramming(operators));
    return Take(std::move(plan), operators);
  }

  absl::Status Take(OperatorPlan plan, const OperatorProblem& operators) {
    const bool bytes = problem_.search_prices == PriceKind::kBytes;
    const std::string sum =
        bytes ? absl::StrFormat("%g x computation %.0f + %g x communication %.10g = %.1f", operators.knobs.alpha,
                                plan.cost.computation, operators.knobs.beta, plan.cost.communication, plan.weighted)
              : absl::StrFormat("kernels %.1f us + communication %.1f us, each alone", plan.cost.computation / 1e3,
                                plan.cost.communication / 1e3);
    result_.guarantee = absl::StrFormat(
        "dynamic_programming, prices in %s: %s of %.6g combinations of strategies: %s, in %.0f of %.0f bytes of "
        "memory; "
        "by elimination: %s",
        bytes ? "bytes" : "time", plan.exact ? "the least" : "a low one", plan.combinations, sum, plan.cost.memory,
        operators.memory_capacity, plan.how);
    result_.considered = plan.combinations < 1e18 ? static_cast<int64_t>(plan.combinations) : int64_t{1} << 60;
    base_.ops = std::move(plan.ops);
    return absl::OkStatus();
  }

  // S15.9: of the memory (S14.8) that the chosen strategies take.
  absl::Status WarnOfMemory() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const CompatibleCosts costs, MakeCompatible());
    OperatorProblem chosen;
    chosen.graph = &graph_;
    chosen.mesh = &base_.mesh;
    chosen.ranks_per_stage = ranks_;
    chosen.prices = &costs;
    chosen.knobs = problem_.cost_model;
    chosen.knobs.multi_subgraphs = true;
    chosen.configured = base_.ops;
    chosen.inputs = GivenInputs();
    chosen.memory_capacity = std::numeric_limits<double>::infinity();
    const absl::StatusOr<OperatorPlan> plan = PlanByDynamicProgramming(chosen);
    const auto capacity = static_cast<double>(problem_.cost_model.device_memory_capacity.raw());
    // What is wrong with the strategies is said when they are lowered.
    if (!plan.ok() || plan->cost.memory <= capacity) return absl::OkStatus();
    result_.warnings.push_back(absl::StrFormat(
        "recursive_programming does not look at memory: the plan takes %.0f bytes, device_memory_capacity is %.0f",
        plan->cost.memory, capacity));
    return absl::OkStatus();
  }

  absl::Status ProgramRecursively() {
    RecursiveProblem recursive;
    recursive.graph = &graph_;
    recursive.mesh = &base_.mesh;
    recursive.ranks_per_stage = ranks_;
    recursive.knobs = problem_.cost_model;
    recursive.parallel_optimizer = problem_.parallel_optimizer.value_or(false);
    recursive.configured = base_.ops;
    MESHWRIGHT_ASSIGN_OR_RETURN(RecursivePlan plan, PlanByRecursiveProgramming(recursive));
    base_.ops = std::move(plan.ops);
    MESHWRIGHT_RETURN_IF_ERROR(WarnOfMemory());
    std::vector<std::string> cuts;
    for (const auto& [name, of_op] : plan.cuts) cuts.push_back(absl::StrCat(name, " ", of_op));
    result_.guarantee = absl::StrCat(
        "recursive_programming: a heuristic, other plans may be faster and memory was not looked at; rounds: ",
        absl::StrJoin(cuts, ", "));
    return absl::OkStatus();
  }

  Candidate CandidateOf(Strategy strategy) const {
    Candidate candidate;
    candidate.degrees.pipeline = strategy.stages;
    candidate.degrees.microbatch = problem_.batch / strategy.microbatches;
    if (problem_.mode == SearchMode::kDataParallel) {
      candidate.degrees.data = ranks_;
      candidate.degrees.microbatch /= ranks_;
    }
    candidate.strategy = std::move(strategy);
    return candidate;
  }

  absl::StatusOr<SearchResult> One(Strategy strategy) {
    Candidate candidate = CandidateOf(std::move(strategy));
    MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, EvaluateGraph(problem_, graph_, costs_, candidate.strategy));
    candidate.prediction = std::move(evaluation.prediction);
    if (!candidate.prediction.fits()) return DoesNotFit(problem_, candidate.prediction);
    Note(evaluation.program, candidate.strategy);
    result_.considered = std::max<int64_t>(result_.considered, 1);
    result_.simulated = 1;
    result_.ranked.push_back(std::move(candidate));
    return std::move(result_);
  }

  void Note(const Program& program, const Strategy& strategy) {
    for (std::string& note : NotesOn(program, strategy)) result_.warnings.push_back(std::move(note));
  }

  absl::StatusOr<SearchResult> Exhaustive() {
    std::vector<std::vector<OpStrategy>> choices;
    int64_t combinations = 1;
    for (const Op& op : graph_.ops) {
      std::vector<OpStrategy>& of_op = choices.emplace_back();
      if (const auto configured = base_.ops.find(op.name); configured != base_.ops.end()) {
        of_op = {configured->second};
        continue;
      }
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<OpCandidate> candidates,
                                  CandidatesOf(op, graph_, base_.mesh, ranks_));
      for (const OpCandidate& candidate : candidates) of_op.push_back(candidate.strategy);
      combinations *= static_cast<int64_t>(of_op.size());
      if (combinations > kMostCombinations) {
        return absl::InvalidArgumentError(
            absl::StrCat("exhaustive search: the operators up to \"", op.name, "\" alone have ", combinations,
                         " combinations of strategies, at most ", kMostCombinations,
                         " are tried; configure some with `shard:`, or use search_mode sharding_propagation"));
      }
    }
    result_.considered = combinations;
    std::optional<Prediction> smallest;
    for (int64_t first = 0; first < combinations; first += static_cast<int64_t>(kBatch)) {
      const size_t n = std::min(kBatch, static_cast<size_t>(combinations - first));
      std::vector<absl::StatusOr<Candidate>> candidates(n, absl::UnknownError("not evaluated"));
      ParallelFor(n, options_.threads,
                  [&](size_t i) { candidates[i] = Combination(choices, first + static_cast<int64_t>(i)); });
      for (absl::StatusOr<Candidate>& candidate : candidates) {
        MESHWRIGHT_RETURN_IF_ERROR(Take(std::move(candidate), &smallest));
      }
      if (options_.progress != nullptr) options_.progress(first + static_cast<int64_t>(n), combinations);
    }
    result_.guarantee = "every combination of strategies was simulated: none is faster";
    if (!result_.ranked.empty()) {
      const Strategy& best = result_.ranked[0].strategy;
      MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation evaluation, EvaluateGraph(problem_, graph_, costs_, best));
      Note(evaluation.program, best);
      return std::move(result_);
    }
    if (smallest.has_value()) return DoesNotFit(problem_, *smallest);
    return absl::InvalidArgumentError(
        "exhaustive search: no combination of strategies gives every parameter one layout");
  }

  // Number `index` of the combinations; the last operator's choice varies fastest.
  absl::StatusOr<Candidate> Combination(const std::vector<std::vector<OpStrategy>>& choices, int64_t index) const {
    Strategy strategy = base_;
    for (size_t i = choices.size(); i-- > 0;) {
      const int64_t n = static_cast<int64_t>(choices[i].size());
      strategy.ops[graph_.ops[i].name] = choices[i][static_cast<size_t>(index % n)];
      index /= n;
    }
    Candidate candidate = CandidateOf(std::move(strategy));
    MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation,
                                EvaluateGraph(problem_, graph_, costs_, candidate.strategy, Simulated::kWhatFits));
    candidate.prediction = std::move(evaluation.prediction);
    return candidate;
  }

  absl::Status Take(absl::StatusOr<Candidate> candidate, std::optional<Prediction>* smallest) {
    if (absl::IsInvalidArgument(candidate.status())) {
      ++result_.pruned["users of a parameter split it differently"];
      return absl::OkStatus();
    }
    MESHWRIGHT_RETURN_IF_ERROR(candidate.status());
    if (!candidate->prediction.fits()) {
      ++result_.pruned["does not fit in memory"];
      if (!smallest->has_value() || candidate->prediction.peak < (*smallest)->peak) *smallest = candidate->prediction;
      return absl::OkStatus();
    }
    ++result_.simulated;
    std::vector<Candidate>& ranked = result_.ranked;
    const auto place =
        std::upper_bound(ranked.begin(), ranked.end(), *candidate,
                         [](const Candidate& a, const Candidate& b) { return a.prediction.step < b.prediction.step; });
    ranked.insert(place, *std::move(candidate));
    const size_t keep = static_cast<size_t>(std::max<int64_t>(1, options_.keep));
    if (ranked.size() > keep) ranked.resize(keep);
    return absl::OkStatus();
  }

  const Problem& problem_;
  const SearchOptions& options_;
  const CostModel costs_;
  int64_t ranks_ = 1;  // of a stage
  Graph graph_;
  Strategy base_;
  SearchResult result_;
};

}  // namespace

absl::StatusOr<SearchResult> SearchOperators(const Problem& problem, const SearchOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  MESHWRIGHT_ASSIGN_OR_RETURN(SearchResult result, OperatorSearch(problem, options).Run());
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace meshwright
