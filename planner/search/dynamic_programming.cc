#include "planner/search/dynamic_programming.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "planner/search/compatible_costs.h"

namespace meshwright {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Stands for a cost that may not be chosen.
constexpr Cost kForbidden = {kInfinite, 0, 0};

class ChoicesBuilder {
 public:
  explicit ChoicesBuilder(const OperatorProblem& problem)
      : problem_(problem), graph_(*problem.graph), signatures_(graph_.ops.size()), gradient_(WantsGradient(graph_)) {}

  absl::StatusOr<OperatorChoices> Build() {
    Sign();
    FindRepeats();
    choices_.node.resize(graph_.ops.size());
    choices_.candidates.resize(graph_.ops.size());
    for (size_t i = 0; i < graph_.ops.size(); ++i) MESHWRIGHT_RETURN_IF_ERROR(AddCandidates(i));
    for (size_t i = 0; i < graph_.ops.size(); ++i) MESHWRIGHT_RETURN_IF_ERROR(AddCosts(i));
    AddSharedParameters();
    for (const std::vector<Cost>& costs : choices_.graph.nodes)
      choices_.combinations *= static_cast<double>(costs.size());
    return std::move(choices_);
  }

 private:
  // What of an op decides its candidates and what its inputs cost: equal text, equal costs.
  void Sign() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      std::string text = absl::StrCat(static_cast<int>(op.kind), " ", ToText(op.rule));
      for (TensorId id : op.inputs) {
        const Tensor& tensor = graph_.tensor(id);
        absl::StrAppend(&text, " ", ToText(tensor.shape), static_cast<int>(tensor.dtype), static_cast<int>(tensor.kind),
                        gradient_[id.index()] ? "g" : "");
      }
      for (TensorId id : op.outputs) {
        absl::StrAppend(&text, " ", ToText(graph_.tensor(id).shape), static_cast<int>(graph_.tensor(id).dtype));
      }
      const auto configured = problem_.configured.find(op.name);
      if (configured != problem_.configured.end()) {
        for (const Layout& layout : configured->second.inputs) {
          absl::StrAppend(&text, " ", ToText(layout, *problem_.mesh));
        }
      }
      signatures_[i] = std::move(text);
    }
  }

  // dp_algo_single_loop: the longest run of equal blocks of ops. Each op of a later block follows that of the first.
  void FindRepeats() {
    repeats_.assign(graph_.ops.size(), 0);
    for (size_t i = 0; i < repeats_.size(); ++i) repeats_[i] = i;
    if (!problem_.knobs.dp_algo_single_loop) return;
    const size_t n = graph_.ops.size();
    size_t best_begin = 0, best_period = 0, best_length = 0;
    for (size_t period = 1; period <= n / 2; ++period) {
      size_t run = 0;
      for (size_t i = period; i < n; ++i) {
        run = signatures_[i] == signatures_[i - period] ? run + 1 : 0;
        const size_t blocks = run / period;
        if (blocks * period <= best_length) continue;
        best_length = blocks * period;
        best_period = period;
        best_begin = i + 1 - run;
      }
    }
    for (size_t i = 0; i < best_length; ++i) repeats_[best_begin + i] = repeats_[best_begin + i - best_period];
  }

  // The op whose strategy this op copies under elementwise_op_strategy_follow, if it is one that does.
  std::optional<size_t> Followed(size_t number) const {
    const Op& op = graph_.ops[number];
    if (!problem_.knobs.elementwise_op_strategy_follow || problem_.configured.count(op.name) > 0) return std::nullopt;
    if (InfoOf(op.kind).kernel != KernelClass::kMemory) return std::nullopt;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const OpId producer = graph_.tensor(op.inputs[i]).producer;
      if (producer.valid() && op.rule->inputs[i] == op.rule->outputs[0]) return producer.index();
    }
    return std::nullopt;
  }

  // For each candidate of the op it follows the same split; nullopt where one does not go with this op.
  std::optional<std::vector<OpCandidate>> Followers(size_t number, size_t followed) const {
    const Op& op = graph_.ops[number];
    std::vector<OpCandidate> result;
    for (const OpCandidate& candidate : choices_.candidates[followed]) {
      const Op& producer = graph_.ops[followed];
      OpCandidate follower;
      follower.assignment.resize(op.rule->labels.size());
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (graph_.tensor(op.inputs[i]).producer != OpId(followed)) continue;
        size_t output = 0;
        while (producer.outputs[output] != op.inputs[i]) ++output;
        const Layout layout = OutputOf(producer, candidate, output);
        for (size_t d = 0; d < layout.dims.size(); ++d) {
          const int label = op.rule->inputs[i][d].label;
          if (label >= 0) follower.assignment[static_cast<size_t>(label)] = layout.dims[d];
        }
        break;
      }
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        follower.strategy.inputs.push_back(InputLayout(op.rule, follower.assignment, i));
      }
      if (!AssignmentOf(op, graph_, follower.strategy, *problem_.mesh).ok()) return std::nullopt;
      result.push_back(std::move(follower));
    }
    return result;
  }

  absl::Status AddCandidates(size_t number) {
    const Op& op = graph_.ops[number];
    std::vector<OpCandidate>& candidates = choices_.candidates[number];
    if (repeats_[number] != number) {
      candidates = choices_.candidates[repeats_[number]];
      choices_.node[number] = choices_.node[repeats_[number]];
      return absl::OkStatus();
    }
    if (const std::optional<size_t> followed = Followed(number); followed.has_value()) {
      if (auto followers = Followers(number, *followed); followers.has_value()) {
        candidates = *std::move(followers);
        choices_.node[number] = choices_.node[*followed];
        return absl::OkStatus();
      }
    }
    const auto configured = problem_.configured.find(op.name);
    if (configured != problem_.configured.end()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(OpCandidate one, MakeCandidate(op, graph_, configured->second, *problem_.mesh));
      candidates = {std::move(one)};
    } else {
      MESHWRIGHT_ASSIGN_OR_RETURN(
          std::vector<OpCandidate> all,
          CandidatesOf(op, graph_, *problem_.mesh, problem_.ranks_per_stage, OptionsFrom(problem_.knobs)));
      for (OpCandidate& candidate : all) {
        if (problem_.allowed == nullptr || problem_.allowed(op, candidate)) candidates.push_back(std::move(candidate));
      }
    }
    if (candidates.empty()) return NoCandidate(op, problem_.knobs);
    choices_.node[number] = choices_.graph.nodes.size();
    choices_.graph.nodes.emplace_back(candidates.size());
    return absl::OkStatus();
  }

  // The costs of an op and of its inputs.
  absl::Status AddCosts(size_t number) {
    const Op& op = graph_.ops[number];
    const std::vector<OpCandidate>& candidates = choices_.candidates[number];
    std::vector<Cost>& own = choices_.graph.nodes[choices_.node[number]];
    for (size_t s = 0; s < candidates.size(); ++s) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Cost cost, problem_.prices->OfOperator(number, candidates[s]));
      own[s] += cost;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = graph_.tensor(op.inputs[i]);
      if (tensor.producer.valid()) {
        MESHWRIGHT_RETURN_IF_ERROR(AddUse(number, i, tensor.producer.index()));
        continue;
      }
      const auto arrives = problem_.inputs.find(tensor.name);
      if (tensor.kind != TensorKind::kInput || arrives == problem_.inputs.end()) continue;
      const TensorSide side = {arrives->second, BoundsOf(arrives->second, *problem_.mesh, problem_.ranks_per_stage)};
      for (size_t s = 0; s < candidates.size(); ++s) {
        MESHWRIGHT_ASSIGN_OR_RETURN(const Cost cost, problem_.prices->OfUse(side, number, i, candidates[s]));
        own[s] += cost;
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddUse(size_t user, size_t input, size_t producer) {
    const Op& op = graph_.ops[producer];
    size_t output = 0;
    while (op.outputs[output] != graph_.ops[user].inputs[input]) ++output;
    const bool same = choices_.node[user] == choices_.node[producer];
    const std::string key =
        absl::StrCat(signatures_[producer], "\n", output, "\n", signatures_[user], "\n", input, same);
    auto [known, is_new] = uses_.try_emplace(key);
    // Ops that follow others do not have their own candidates, which the key would have to name.
    const bool plain = !problem_.knobs.elementwise_op_strategy_follow;
    const std::vector<OpCandidate>&from = choices_.candidates[producer], &to = choices_.candidates[user];
    if (is_new || !plain) {
      known->second.clear();
      for (size_t a = 0; a < from.size(); ++a) {
        const TensorSide side = {OutputOf(op, from[a], output),
                                 BoundsOf(from[a].assignment, *problem_.mesh, problem_.ranks_per_stage)};
        for (size_t b = same ? a : 0; b < (same ? a + 1 : to.size()); ++b) {
          MESHWRIGHT_ASSIGN_OR_RETURN(const Cost cost, problem_.prices->OfUse(side, user, input, to[b]));
          known->second.push_back(cost);
        }
      }
    }
    AddBetween(producer, user, known->second);
    return absl::OkStatus();
  }

  // Of every choice of `a` and `b`; of one node: of every choice of it.
  void AddBetween(size_t a, size_t b, const std::vector<Cost>& costs) {
    const size_t from = choices_.node[a], to = choices_.node[b];
    std::vector<std::vector<Cost>>& nodes = choices_.graph.nodes;
    if (from == to) {
      for (size_t s = 0; s < costs.size(); ++s) nodes[from][s] += costs[s];
      return;
    }
    ChoiceGraph::Edge edge{from, to, costs};
    if (from > to) {
      std::swap(edge.from, edge.to);
      for (size_t s = 0; s < costs.size(); ++s) {
        edge.costs[s % nodes[to].size() * nodes[from].size() + s / nodes[to].size()] = costs[s];
      }
    }
    choices_.graph.edges.push_back(std::move(edge));
  }

  // S5.15: neighbours in the list of a parameter's users read it alike, so all do.
  void AddSharedParameters() {
    struct User {
      size_t op, input;
    };
    std::map<TensorId, std::vector<User>> users;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (size_t k = 0; k < graph_.ops[i].inputs.size(); ++k) {
        const TensorId id = graph_.ops[i].inputs[k];
        if (graph_.tensor(id).kind == TensorKind::kParameter) users[id].push_back({i, k});
      }
    }
    for (const auto& [id, of_parameter] : users) {
      for (size_t u = 1; u < of_parameter.size(); ++u) {
        const User a = of_parameter[u - 1], b = of_parameter[u];
        const bool same = choices_.node[a.op] == choices_.node[b.op];
        const std::vector<OpCandidate>&from = choices_.candidates[a.op], &to = choices_.candidates[b.op];
        std::vector<Cost> costs;
        for (size_t s = 0; s < from.size(); ++s) {
          for (size_t t = same ? s : 0; t < (same ? s + 1 : to.size()); ++t) {
            const bool agree = SamePlacement(graph_.tensor(id).shape, from[s].strategy.inputs[a.input],
                                             to[t].strategy.inputs[b.input], *problem_.mesh);
            costs.push_back(agree ? Cost() : kForbidden);
          }
        }
        AddBetween(a.op, b.op, costs);
      }
    }
  }

  const OperatorProblem& problem_;
  const Graph& graph_;
  std::vector<std::string> signatures_;  // by op
  std::vector<bool> gradient_;           // by tensor: one is wanted
  std::vector<size_t> repeats_;          // by op: that whose choices it takes over, or itself
  std::map<std::string, std::vector<Cost>> uses_;
  OperatorChoices choices_;
};

}  // namespace

absl::StatusOr<OperatorChoices> ChoicesOf(const OperatorProblem& problem) { return ChoicesBuilder(problem).Build(); }

absl::StatusOr<OperatorPlan> PlanByDynamicProgramming(const OperatorProblem& problem) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const OperatorChoices choices, ChoicesOf(problem));
  if (const size_t parts = NumParts(choices.graph); parts > 1 && !problem.knobs.multi_subgraphs) {
    return StateError("the operators fall into ", parts,
                      " parts that no tensor joins; set multi_subgraphs to true to plan them together");
  }
  EliminationOptions options;
  options.alpha = problem.knobs.alpha;
  options.beta = problem.knobs.beta;
  options.capacity = problem.memory_capacity;
  options.simplify = problem.knobs.simplify_cal;
  if (problem.knobs.dp_algo_enable_approxi) {
    options.costs_per_list = static_cast<size_t>(std::ceil(1 / problem.knobs.dp_algo_approxi_epsilon));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Elimination found, Eliminate(choices.graph, options));
  OperatorPlan plan;
  for (size_t i = 0; i < choices.node.size(); ++i) {
    plan.ops[problem.graph->ops[i].name] = choices.candidates[i][found.choices[choices.node[i]]].strategy;
  }
  plan.cost = found.cost;
  plan.weighted = found.weighted;
  plan.combinations = choices.combinations;
  plan.exact = found.exact;
  plan.how = found.how;
  return plan;
}

}  // namespace meshwright
