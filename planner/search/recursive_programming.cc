#include "planner/search/recursive_programming.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "ir/error_kind.h"
#include "ir/status.h"
#include "planner/search/op_candidates.h"
#include "planner/search/parameter_users.h"

namespace meshwright {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kMostRanks = 1024;
constexpr double kNoneFactor = 1.5, kNoneDivisor = 350;  // S15.10
constexpr double kRedistribution = 16;

enum Cut : size_t { kRows, kColumns, kContraction, kNone, kNumCuts };
constexpr char kLetters[] = {'I', 'J', 'K', '-'};

// A product: which of its labels are rows, columns and contracted, and how they have been cut.
struct Product {
  std::array<std::vector<int>, 3> labels;  // by Cut
  Pieces pieces;                           // by label
  Cuts cuts;
  std::optional<Cuts> configured;  // its rounds, where the user gave the strategy
  int now = -1;                    // the label that this round halved, or -1
};

class Recursion {
 public:
  explicit Recursion(const RecursiveProblem& problem)
      : problem_(problem),
        graph_(*problem.graph),
        parameters_(graph_, *problem.mesh),
        products_(graph_.ops.size()),
        chosen_(graph_.ops.size()),
        users_(graph_.tensors.size()) {}

  absl::StatusOr<RecursivePlan> Run() {
    int rounds = 0;
    while ((int64_t{1} << rounds) < problem_.ranks_per_stage) ++rounds;
    if (problem_.ranks_per_stage > kMostRanks || (int64_t{1} << rounds) != problem_.ranks_per_stage) {
      return ValueError("recursive_programming halves operators: found ", problem_.ranks_per_stage,
                        " devices in a stage, wanted a power of two, at most ", kMostRanks);
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (TensorId id : graph_.ops[i].inputs) users_[id.index()].push_back(i);
    }
    MESHWRIGHT_RETURN_IF_ERROR(FindProducts());
    for (int round = 0; round < rounds; ++round) {
      for (auto& product : products_) {
        if (product.has_value()) product->now = -1;
      }
      decided_.assign(graph_.ops.size(), false);
      for (size_t i = 0; i < graph_.ops.size(); ++i) {
        if (products_[i].has_value() && products_[i]->configured.has_value()) Replay(i, round);
      }
      for (size_t i = graph_.ops.size(); i-- > 0;) {
        if (products_[i].has_value() && !products_[i]->configured.has_value()) Decide(i, round);
      }
    }
    return Settle();
  }

 private:
  absl::Status FindProducts() {
    for (TensorId id : InputsOf()) {
      if (graph_.tensor(id).shape.empty()) continue;
      batch_ = graph_.tensor(id).shape[0];
      break;
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const auto configured = problem_.configured.find(op.name);
      if (configured != problem_.configured.end()) {
        MESHWRIGHT_ASSIGN_OR_RETURN(chosen_[i], MakeCandidate(op, graph_, configured->second, *problem_.mesh));
        MESHWRIGHT_RETURN_IF_ERROR(parameters_.Check(i, *chosen_[i], chosen_));
      }
      if (InfoOf(op.kind).kernel != KernelClass::kContraction) continue;
      Product& product = products_[i].emplace();
      product.pieces.assign(op.rule->labels.size(), 1);
      for (size_t label = 0; label < op.rule->labels.size(); ++label) {
        const int id = static_cast<int>(label);
        const bool a = Has(op.rule->inputs[0], id), b = Has(op.rule->inputs[1], id), y = op.rule->InOutput(id, 0);
        if (op.rule->labels[label].whole) continue;
        if (y && a) product.labels[kRows].push_back(id);
        if (y && !a) product.labels[kColumns].push_back(id);
        if (!y && a && b) product.labels[kContraction].push_back(id);
      }
      if (chosen_[i].has_value()) product.configured = RoundsOf(product, *chosen_[i]);
    }
    return absl::OkStatus();
  }
  static bool Has(const OperandRule& operand, int label) {
    return std::any_of(operand.begin(), operand.end(), [label](const DimRule& dim) { return dim.label == label; });
  }
  std::vector<TensorId> InputsOf() const {
    std::vector<TensorId> inputs;
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (graph_.tensors[t].kind == TensorKind::kInput) inputs.push_back(TensorId(t));
    }
    return inputs;
  }
  Cuts RoundsOf(const Product& product, const OpCandidate& candidate) const {
    Cuts cuts;
    for (const Cut cut : {kRows, kContraction, kColumns}) {
      for (const int label : product.labels[cut]) {
        for (int64_t p = problem_.mesh->SizeOf(candidate.assignment[static_cast<size_t>(label)]); p > 1; p /= 2) {
          cuts.push_back(kLetters[cut]);
        }
      }
    }
    return cuts;
  }

  int64_t Extent(const Op& op, int label) const {
    const auto find = [&](const std::vector<OperandRule>& operands, const std::vector<TensorId>& ids) -> int64_t {
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t d = 0; d < operands[i].size(); ++d) {
          if (operands[i][d].label == label) return graph_.tensor(ids[i]).shape[d];
        }
      }
      return 1;
    };
    return find(op.rule->inputs, op.inputs);
  }
  int64_t Left(size_t number, int label) const {
    return Extent(graph_.ops[number], label) / products_[number]->pieces[static_cast<size_t>(label)];
  }
  double Size(size_t number, Cut cut) const {
    double size = 1;
    for (const int label : products_[number]->labels[cut]) size *= static_cast<double>(Left(number, label));
    return size;
  }
  // The label that the cut halves, or -1 where it is not allowed.
  int LabelOf(size_t number, Cut cut) const {
    const Product& product = *products_[number];
    const auto was_cut = [&](Cut other) { return product.cuts.find(kLetters[other]) != Cuts::npos; };
    if (cut == kNone || (cut == kColumns && was_cut(kContraction)) || (cut == kContraction && was_cut(kColumns))) {
      return -1;
    }
    if (cut == kRows) {
      int64_t pieces = 1;
      for (const int label : product.labels[kRows]) pieces *= product.pieces[static_cast<size_t>(label)];
      if (pieces >= batch_) return -1;
    }
    for (const int label : product.labels[cut]) {
      if (Left(number, label) % 2 == 0) return label;
    }
    return -1;
  }

  // The dim of an operand that halving the label halves, or -1.
  static int DimOf(const OperandRule& operand, int label) {
    for (size_t d = 0; d < operand.size() && label >= 0; ++d) {
      if (operand[d].label == label) return static_cast<int>(d);
    }
    return -1;
  }

  // A decided product that reads or makes a tensor, and the dim that it halves.
  struct Neighbour {
    size_t op;
    int dim;
  };
  // The tensors that an elementwise op reads and makes have the same dims.
  static bool IsElementwise(const Op& op, size_t input) {
    return InfoOf(op.kind).kernel == KernelClass::kMemory && op.rule->inputs[input] == op.rule->outputs[0];
  }
  void FindReaders(TensorId id, std::vector<Neighbour>& found) const {
    for (const size_t user : users_[id.index()]) {
      const Op& op = graph_.ops[user];
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i] != id) continue;
        if (products_[user].has_value()) {
          if (decided_[user]) found.push_back({user, DimOf(op.rule->inputs[i], products_[user]->now)});
        } else if (IsElementwise(op, i)) {
          FindReaders(op.outputs[0], found);
        }
      }
    }
  }
  void FindMakers(TensorId id, std::vector<Neighbour>& found) const {
    const OpId producer = graph_.tensor(id).producer;
    if (!producer.valid()) return;
    const Op& op = graph_.op(producer);
    if (products_[producer.index()].has_value()) {
      if (decided_[producer.index()]) {
        found.push_back({producer.index(), DimOf(op.rule->outputs[0], products_[producer.index()]->now)});
      }
      return;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (IsElementwise(op, i)) FindMakers(op.inputs[i], found);
    }
  }

  // What neighbours that halve another dim cost; infinite where a user of the same parameter does.
  double Disagreement(size_t number, int label) const {
    const Op& op = graph_.ops[number];
    double cost = 0;
    const auto elements = [&](const OperandRule& operand, TensorId id) {
      double size = static_cast<double>(NumElements(graph_.tensor(id).shape));
      for (const DimRule& dim : operand) {
        if (dim.label >= 0) size /= static_cast<double>(products_[number]->pieces[static_cast<size_t>(dim.label)]);
      }
      return size;
    };
    const auto add = [&](const OperandRule& operand, TensorId id, const std::vector<Neighbour>& neighbours) {
      for (const Neighbour& neighbour : neighbours) {
        if (neighbour.op != number && neighbour.dim != DimOf(operand, label)) {
          cost += kRedistribution * elements(operand, id);
        }
      }
    };
    std::vector<Neighbour> readers;
    FindReaders(op.outputs[0], readers);
    add(op.rule->outputs[0], op.outputs[0], readers);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId id = op.inputs[i];
      std::vector<Neighbour> others;
      if (graph_.tensor(id).kind != TensorKind::kParameter) {
        FindMakers(id, others);
        add(op.rule->inputs[i], id, others);
        continue;
      }
      FindReaders(id, others);
      for (const Neighbour& other : others) {
        if (other.op != number && other.dim != DimOf(op.rule->inputs[i], label)) return kInfinite;
      }
    }
    return cost;
  }

  void Decide(size_t number, int round) {
    const double i = Size(number, kRows), j = Size(number, kColumns), k = Size(number, kContraction);
    double costs[kNumCuts] = {problem_.knobs.rp_matmul_mem_coef * j * k / 2, i * k / 2, i * j / 2, 0};
    const double least = std::min({costs[kRows], costs[kColumns], costs[kContraction]});
    costs[kNone] = kNoneFactor * least * kNoneFactor * least / kNoneDivisor;
    size_t best = kNone;
    double lowest = kInfinite;
    for (size_t cut = 0; cut < kNumCuts; ++cut) {
      const int label = LabelOf(number, static_cast<Cut>(cut));
      if (cut != kNone && label < 0) continue;
      const bool first = round == 0 && problem_.parallel_optimizer && cut == kRows;
      const double disagreement = Disagreement(number, label);
      const double cost = first && disagreement < kInfinite ? -1 : costs[cut] + disagreement;
      if (cost < lowest) lowest = cost, best = cut;
    }
    Take(number, static_cast<Cut>(best));
  }

  void Replay(size_t number, int round) {
    const Cuts& cuts = *products_[number]->configured;
    Cut cut = kNone;
    for (const Cut other : {kRows, kColumns, kContraction}) {
      if (static_cast<size_t>(round) < cuts.size() && cuts[static_cast<size_t>(round)] == kLetters[other]) cut = other;
    }
    Take(number, cut);
  }

  void Take(size_t number, Cut cut) {
    Product& product = *products_[number];
    product.now = -1;
    for (const int label : cut == kNone ? std::vector<int>() : product.labels[cut]) {
      if (Left(number, label) % 2 != 0) continue;
      product.now = label;
      product.pieces[static_cast<size_t>(label)] *= 2;
      break;
    }
    product.cuts.push_back(kLetters[cut]);
    decided_[number] = true;
  }

  absl::StatusOr<RecursivePlan> Settle() {
    RecursivePlan plan;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!products_[i].has_value() || chosen_[i].has_value()) continue;
      const Op& op = graph_.ops[i];
      plan.cuts[op.name] = products_[i]->cuts;
      MESHWRIGHT_ASSIGN_OR_RETURN(OpCandidate candidate, MakeCandidate(op, graph_, products_[i]->pieces, *problem_.mesh,
                                                                       problem_.ranks_per_stage));
      MESHWRIGHT_RETURN_IF_ERROR(Choose(i, std::move(candidate)));
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!chosen_[i].has_value()) MESHWRIGHT_RETURN_IF_ERROR(Follow(i));
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) plan.ops[graph_.ops[i].name] = chosen_[i]->strategy;
    return plan;
  }

  // The candidate, or the first one that reads parameters as their other users do.
  absl::Status Choose(size_t number, OpCandidate candidate) {
    if (!parameters_.Agrees(number, candidate, chosen_)) {
      MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<OpCandidate> others,
                                  CandidatesOf(graph_.ops[number], graph_, *problem_.mesh, problem_.ranks_per_stage,
                                               {.fully_use_devices = false}));
      const auto agrees = std::find_if(others.begin(), others.end(), [&](const OpCandidate& other) {
        return parameters_.Agrees(number, other, chosen_);
      });
      if (agrees == others.end()) return parameters_.Check(number, candidate, chosen_);
      candidate = std::move(*agrees);
    }
    chosen_[number] = std::move(candidate);
    return absl::OkStatus();
  }

  // Gives the labels of an operand the axes of a layout, where they may be split.
  static void Assign(const Op& op, const OperandRule& operand, const Layout& layout, Assignment& assignment) {
    for (size_t d = 0; d < operand.size(); ++d) {
      const int label = operand[d].label;
      if (label < 0 || op.rule->labels[static_cast<size_t>(label)].whole) continue;
      assignment[static_cast<size_t>(label)] = layout.dims[d];
    }
  }

  absl::Status Follow(size_t number) {
    const Op& op = graph_.ops[number];
    Assignment assignment(op.rule->labels.size());
    bool known = false;
    for (size_t i = 0; i < op.inputs.size() && !known; ++i) {
      const OpId producer = graph_.tensor(op.inputs[i]).producer;
      if (!producer.valid()) continue;
      const Op& from = graph_.op(producer);
      size_t output = 0;
      while (from.outputs[output] != op.inputs[i]) ++output;
      Assign(op, op.rule->inputs[i], OutputOf(from, *chosen_[producer.index()], output), assignment);
      known = true;
    }
    for (const size_t user : known ? std::vector<size_t>() : users_[op.outputs[0].index()]) {
      if (!chosen_[user].has_value()) continue;
      for (size_t i = 0; i < graph_.ops[user].inputs.size(); ++i) {
        if (graph_.ops[user].inputs[i] != op.outputs[0]) continue;
        Assign(op, op.rule->outputs[0], chosen_[user]->strategy.inputs[i], assignment);
        known = true;
      }
      break;
    }
    OpCandidate candidate;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      candidate.strategy.inputs.push_back(InputLayout(op.rule, assignment, i));
    }
    candidate.assignment = assignment;
    if (!known || !AssignmentOf(op, graph_, candidate.strategy, *problem_.mesh).ok()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(
          candidate, MakeCandidate(op, graph_, DefaultPieces(op, graph_, problem_.ranks_per_stage), *problem_.mesh,
                                   problem_.ranks_per_stage));
    }
    return Choose(number, std::move(candidate));
  }

  const RecursiveProblem& problem_;
  const Graph& graph_;
  const ParameterUsers parameters_;
  int64_t batch_ = std::numeric_limits<int64_t>::max();
  std::vector<std::optional<Product>> products_;  // by op
  ParameterUsers::Chosen chosen_;                 // by op
  std::vector<std::vector<size_t>> users_;        // by tensor
  std::vector<bool> decided_;                     // by op: in this round
};

}  // namespace

absl::StatusOr<RecursivePlan> PlanByRecursiveProgramming(const RecursiveProblem& problem) {
  return Recursion(problem).Run();
}

}  // namespace meshwright
