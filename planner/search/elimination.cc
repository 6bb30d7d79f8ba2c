#include "planner/search/elimination.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "planner/search/elimination_table.h"

namespace meshwright {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kDescentSweeps = 100;
constexpr int kMostPrices = 100;                   // of memory; each step finds a new plan, so few are needed
constexpr size_t kShortLists[] = {2, 8, 32, 128};  // costs
constexpr size_t kMostSums = 1 << 24;              // of costs in lists: about a second
constexpr double kRounding = 1e-9;                 // of sums: what is closer than this is taken for equal

struct Counts {
  int64_t operators = 0, edges = 0, merges = 0, contracts = 0, triangles = 0, stars = 0, joins = 0;
};

std::string ToText(const Counts& counts) {
  std::string text;
  const auto add = [&](int64_t n, const char* name) {
    if (n > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", n, " ", name);
  };
  add(counts.operators, "operator");
  add(counts.edges, "edge");
  add(counts.merges, "merge");
  add(counts.contracts, "contract");
  add(counts.triangles, "triangle");
  add(counts.stars, "star");
  add(counts.joins, "join");
  return text.empty() ? "single operators" : text;
}

// One run of eliminations over one kind of lists. The order depends on the graph alone, so that all runs over one graph
// number their tables alike.
class Run {
 public:
  enum class End : uint8_t { kDone, kTableTooLarge, kListsTooLarge };

  // `record`: Bounds() will be asked for.
  Run(const ChoiceGraph& graph, const ListRule& rule, bool record = false)
      : graph_(graph), rule_(rule), record_(record) {
    tables_at_.resize(graph.nodes.size());
    for (size_t v = 0; v < graph.nodes.size(); ++v) Put(UnaryTable(graph, v));
    for (const ChoiceGraph::Edge& edge : graph.edges) {
      const auto parallel = PairTable(edge.from, edge.to);
      Put(EdgeTable(edge));
      if (parallel != kNone) {
        ++counts_.edges;
        Combine(parallel, tables_.size() - 1);
      }
    }
    rule_.SetTotals(graph);
  }

  End Go() {
    std::set<size_t> left;
    for (size_t v = 0; v < graph_.nodes.size(); ++v) left.insert(v);
    while (!left.empty()) {
      const std::optional<size_t> node = Next(left);
      if (!node.has_value()) return End::kTableTooLarge;
      left.erase(*node);
      if (!Remove(*node)) return End::kListsTooLarge;
    }
    return End::kDone;
  }

  // The best of what is left, after Go() is done; nullopt where nothing is allowed.
  std::optional<Elimination> Best() const {
    std::vector<ListEntry> sums = {ListEntry{}};
    std::vector<std::vector<int32_t>> decisions = {{}};
    double least = 0, most = 0;
    for (const size_t p : parts_) {
      const Table& part = tables_[p];
      least += part.least_memory;
      most += part.most_memory;
      std::vector<ListEntry> next;
      std::vector<std::vector<int32_t>> next_decisions;
      for (size_t i = 0; i < sums.size(); ++i) {
        for (const ListEntry& entry : part.entries) {
          next.push_back(sums[i] + entry);
          next_decisions.push_back(decisions[i]);
          next_decisions.back().push_back(entry.decision);
        }
      }
      // By number, so that the lists of decisions can follow.
      for (size_t i = 0; i < next.size(); ++i) next[i].decision = static_cast<int32_t>(i);
      rule_.Keep(least, most, next);
      sums = next;
      decisions.clear();
      for (ListEntry& entry : sums) decisions.push_back(next_decisions[static_cast<size_t>(entry.decision)]);
    }
    const ListEntry* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].cost.memory > rule_.capacity) continue;
      if (best == nullptr || rule_.Weight(sums[i].cost) < rule_.Weight(best->cost)) best = &sums[i], at = i;
    }
    if (best == nullptr) return std::nullopt;
    Elimination result;
    result.cost = best->cost;
    result.choices.resize(graph_.nodes.size());
    for (const int32_t decision : decisions[at]) arena_.Unroll(decision, result.choices);
    result.how = how();
    return result;
  }
  std::string how() const { return ToText(counts_); }

  bool cut_lists() const { return rule_.cut; }

  // After Go() of single costs is done. A plan is worth it that weighs no more than `limit`, as PlanBounds has it.
  PlanBounds Bounds(double limit) const {
    PlanBounds bounds;
    bounds.price = rule_.memory_price;
    bounds.limit = limit;
    bounds.within = within_;
    for (const std::vector<double>& values : within_) bounds.outside.emplace_back(values.size(), kInfinite);
    for (const size_t part : parts_) {
      double& outside = bounds.outside[part][0] = 0;
      for (const size_t other : parts_) outside += other == part ? 0 : within_[other][0];
    }
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step& step = steps_[i];
      if (step.node != kNone) {
        AddOutside(graph_, step.node, step.inputs, step.output, nodes_of_, bounds);
        continue;
      }
      const size_t a = step.inputs[0], b = step.inputs[1];
      for (size_t cell = 0; cell < within_[a].size(); ++cell) {
        bounds.outside[a][cell] = within_[b][cell] + bounds.outside[step.output][cell];
        bounds.outside[b][cell] = within_[a][cell] + bounds.outside[step.output][cell];
      }
    }
    return bounds;
  }

 private:
  // A table made of others: by eliminating a node, or as the sum of two (kNone).
  struct Step {
    size_t node = 0;
    std::vector<size_t> inputs;
    size_t output = 0;
  };

  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  void Put(Table table) {
    Prune(rule_, tables_.size(), table);
    for (const size_t v : table.nodes) tables_at_[v].insert(tables_.size());
    if (record_) {
      std::vector<double>& within = within_.emplace_back(table.begin.size() - 1, kInfinite);
      for (size_t cell = 0; cell < within.size(); ++cell) {
        if (table.begin[cell] < table.begin[cell + 1]) {
          within[cell] = rule_.Weight(table.entries[table.begin[cell]].cost);
        }
      }
      nodes_of_.push_back(table.nodes);
    }
    tables_.push_back(std::move(table));
  }
  void Drop(size_t table) {
    for (const size_t v : tables_[table].nodes) tables_at_[v].erase(table);
  }
  size_t PairTable(size_t a, size_t b) const {
    for (const size_t t : tables_at_[a]) {
      if (tables_[t].nodes.size() == 2 && tables_at_[b].count(t) > 0) return t;
    }
    return kNone;
  }
  // Both tables have the same nodes.
  void Combine(size_t a, size_t b) {
    Table sum = Sum(tables_[a], tables_[b], tables_.size(), rule_, arena_);
    Drop(a);
    Drop(b);
    if (record_) steps_.push_back({kNone, {a, b}, tables_.size()});
    Put(std::move(sum));
  }

  struct Around {
    std::set<size_t> before, after;  // joined by edges
    std::set<size_t> all;            // neighbours, also through larger tables
    bool edges_only = true;
  };
  Around Look(size_t v) const {
    Around around;
    for (const size_t t : tables_at_[v]) {
      const Table& table = tables_[t];
      around.edges_only &= table.nodes.size() <= 2;
      for (const size_t other : table.nodes) {
        if (other == v) continue;
        around.all.insert(other);
        (other < v ? around.before : around.after).insert(other);
      }
    }
    return around;
  }
  double SizeOver(const std::set<size_t>& nodes) const {
    double size = 1;
    for (const size_t v : nodes) size *= static_cast<double>(graph_.nodes[v].size());
    return size;
  }

  // The node that the first rule that applies eliminates; nullopt where every table would be too large.
  std::optional<size_t> Next(const std::set<size_t>& left) {
    struct Rule {
      bool (*applies)(const Around&);
      int64_t Counts::*count;
    };
    static constexpr Rule kRules[] = {
        {[](const Around& a) { return a.edges_only && a.before.size() == 1 && a.after.size() == 1; },
         &Counts::operators},
        {[](const Around& a) { return a.edges_only && a.before.empty() && a.after.size() == 1; }, &Counts::merges},
        {[](const Around& a) { return a.edges_only && a.after.empty() && a.before.size() == 1; }, &Counts::contracts},
        {[](const Around& a) { return a.all.empty(); }, nullptr},
    };
    for (const Rule& rule : kRules) {
      for (const size_t v : left) {
        if (!rule.applies(Look(v))) continue;
        if (rule.count != nullptr) ++(counts_.*rule.count);
        return v;
      }
    }
    for (const size_t v : left) {
      const Around around = Look(v);
      if (!around.edges_only || !around.before.empty() || around.after.size() != 2) continue;
      if (PairTable(*around.after.begin(), *around.after.rbegin()) == kNone) continue;
      ++counts_.triangles;
      return v;
    }
    std::optional<size_t> best;
    double smallest = kInfinite;
    for (const size_t v : left) {
      const double size = SizeOver(Look(v).all);
      if (size < smallest) smallest = size, best = v;
    }
    if (smallest > static_cast<double>(rule_.most_costs)) return std::nullopt;
    const Around around = Look(*best);
    ++(around.edges_only && around.before.empty() ? counts_.stars : counts_.joins);
    return best;
  }

  // False where the lists of the table that is left behind are too long.
  bool Remove(size_t v) {
    std::vector<const Table*> of_node;
    for (const size_t t : tables_at_[v]) of_node.push_back(&tables_[t]);
    std::optional<Table> result = EliminateNode(graph_, v, of_node, tables_.size(), rule_, arena_);
    if (!result.has_value()) return false;
    const std::set<size_t> old = tables_at_[v];
    if (record_) steps_.push_back({v, {old.begin(), old.end()}, tables_.size()});
    for (const size_t t : old) {
      Drop(t);
      tables_[t] = Table();
    }
    if (result->nodes.empty()) {
      parts_.push_back(tables_.size());
      Put(*std::move(result));
      return true;
    }
    const size_t parallel = result->nodes.size() == 2 ? PairTable(result->nodes[0], result->nodes[1]) : kNone;
    const size_t alone = result->nodes.size() == 1 ? Unary(result->nodes[0]) : kNone;
    Put(*std::move(result));
    if (parallel != kNone) {
      ++counts_.edges;
      Combine(parallel, tables_.size() - 1);
    } else if (alone != kNone) {
      Combine(alone, tables_.size() - 1);
    }
    return true;
  }
  size_t Unary(size_t v) const {
    for (const size_t t : tables_at_[v]) {
      if (tables_[t].nodes.size() == 1) return t;
    }
    return kNone;
  }

  const ChoiceGraph& graph_;
  mutable ListRule rule_;
  mutable DecisionArena arena_;
  std::vector<Table> tables_;                // by number; empty once used
  std::vector<std::set<size_t>> tables_at_;  // by node
  std::vector<size_t> parts_;                // tables over no node
  Counts counts_;
  bool record_ = false;
  std::vector<Step> steps_;
  std::vector<std::vector<double>> within_;    // by table and combination
  std::vector<std::vector<size_t>> nodes_of_;  // by table
};

// Total cost of a full choice.
Cost Total(const ChoiceGraph& graph, const std::vector<size_t>& choices) {
  Cost cost;
  for (size_t v = 0; v < choices.size(); ++v) cost += graph.nodes[v][choices[v]];
  for (const ChoiceGraph::Edge& edge : graph.edges) {
    cost += edge.costs[choices[edge.from] * graph.nodes[edge.to].size() + choices[edge.to]];
  }
  return cost;
}

class Descent {
 public:
  Descent(const ChoiceGraph& graph, const ListRule& rule) : graph_(graph), rule_(rule), edges_at_(graph.nodes.size()) {
    for (size_t e = 0; e < graph.edges.size(); ++e) {
      edges_at_[graph.edges[e].from].push_back(e);
      edges_at_[graph.edges[e].to].push_back(e);
    }
  }

  std::vector<size_t> Run() {
    std::vector<size_t> choices(graph_.nodes.size(), 0);
    std::vector<bool> set(graph_.nodes.size(), false);
    bool changed = true;
    for (int sweep = 0; changed && sweep < kDescentSweeps; ++sweep) {
      changed = false;
      for (size_t v = 0; v < choices.size(); ++v) {
        const size_t best = BestOf(v, choices, set);
        changed |= best != choices[v] || !set[v];
        choices[v] = best;
        set[v] = true;
      }
    }
    return choices;
  }

 private:
  // In the first sweep neighbours that come later do not count yet.
  size_t BestOf(size_t v, const std::vector<size_t>& choices, const std::vector<bool>& set) const {
    size_t best = 0;
    double least = kInfinite;
    for (size_t s = 0; s < graph_.nodes[v].size(); ++s) {
      double sum = rule_.Weight(graph_.nodes[v][s]);
      for (const size_t e : edges_at_[v]) {
        const ChoiceGraph::Edge& edge = graph_.edges[e];
        const size_t other = edge.from == v ? edge.to : edge.from;
        if (!set[other]) continue;
        const size_t a = edge.from == v ? s : choices[other], b = edge.from == v ? choices[other] : s;
        sum += rule_.Weight(edge.costs[a * graph_.nodes[edge.to].size() + b]);
      }
      if (sum < least) least = sum, best = s;
    }
    return best;
  }

  const ChoiceGraph& graph_;
  const ListRule& rule_;
  std::vector<std::vector<size_t>> edges_at_;
};

class Solver {
 public:
  Solver(const ChoiceGraph& graph, const EliminationOptions& options) : graph_(graph), options_(options) {}

  absl::StatusOr<Elimination> Solve() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Elimination free, LeastFor(0));
    if (free.cost.memory <= options_.capacity) return free;
    // Memory binds.
    MESHWRIGHT_ASSIGN_OR_RETURN(const Elimination smallest, LeastFor(kInfinite));
    if (smallest.cost.memory > options_.capacity) return TooLittle(smallest.cost.memory);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Priced priced, Price(free, smallest));
    if (!free.exact) {
      Elimination best = priced.best;
      best.exact = false;
      best.how = absl::StrCat(free.how, "; memory binds, a price on it was raised until the plan fits");
      return best;
    }
    return ByLists(priced);
  }

 private:
  ListRule Rule(ListRule::Kind kind) const {
    ListRule rule;
    rule.kind = kind;
    rule.alpha = options_.alpha;
    rule.beta = options_.beta;
    rule.most_costs = options_.most_costs;
    return rule;
  }

  // The least weighted sum with that price per byte of memory; an infinite price: the least memory.
  absl::StatusOr<Elimination> LeastFor(double price) const {
    ListRule rule = Rule(ListRule::Kind::kBest);
    if (price == kInfinite) {
      rule.alpha = rule.beta = 0;
      rule.memory_price = 1;
    } else {
      rule.memory_price = price;
    }
    Run run(graph_, rule);
    if (run.Go() == Run::End::kDone) {
      std::optional<Elimination> best = run.Best();
      if (!best.has_value() || !std::isfinite(best->cost.computation)) {
        return absl::InvalidArgumentError("no choices of the operators are allowed together");
      }
      return Finish(*std::move(best));
    }
    Elimination result;
    result.choices = Descent(graph_, rule).Run();
    result.cost = Total(graph_, result.choices);
    result.exact = false;
    result.how = absl::StrCat("not proven to be the least: every further elimination needs a table of more than ",
                              options_.most_costs, " costs, so descent was used instead");
    if (!std::isfinite(result.cost.computation) || !std::isfinite(result.cost.communication)) {
      return absl::InvalidArgumentError(absl::StrCat("no allowed choices were found; ", result.how));
    }
    return Finish(std::move(result));
  }

  // What prices on memory find: the price at which the bound is highest, and the best plan on the way that fits.
  struct Priced {
    Elimination best;
    double price = 0;  // of one byte
    double bound = 0;  // no plan that fits weighs less, if the plans found are the least
  };
  // `over` does not fit, `under` does. At the price at which both weigh the same, either one of them is the least, and
  // that price is the best; or a plan is found that takes the place of one.
  absl::StatusOr<Priced> Price(Elimination over, Elimination under) const {
    Priced priced = {under, 0, over.weighted};
    for (int step = 0; step < kMostPrices; ++step) {
      const double price = (under.weighted - over.weighted) / (over.cost.memory - under.cost.memory);
      if (price <= 0) break;
      MESHWRIGHT_ASSIGN_OR_RETURN(Elimination at, LeastFor(price));
      const double known = over.weighted + price * over.cost.memory, found = at.weighted + price * at.cost.memory;
      if (const double bound = found - price * options_.capacity; bound >= priced.bound) {
        priced.bound = bound;
        priced.price = price;
      }
      const bool fits = at.cost.memory <= options_.capacity;
      if (fits && at.weighted < priced.best.weighted) priced.best = at;
      if (found >= known - kRounding * known) break;
      (fits ? under : over) = std::move(at);
    }
    return priced;
  }

  // The least of all that fit, by lists of costs that leave out what cannot be below the best plan known.
  absl::StatusOr<Elimination> ByLists(const Priced& priced) const {
    ListRule single = Rule(ListRule::Kind::kBest);
    single.memory_price = priced.price;
    Run relaxed(graph_, single, true);
    if (relaxed.Go() != Run::End::kDone) return absl::InternalError("a run that was done before is not done again");
    const auto limit = [&](double weighted) {
      const double with_memory = weighted + priced.price * options_.capacity;
      return with_memory + kRounding * std::abs(with_memory);
    };
    PlanBounds bounds = relaxed.Bounds(limit(priced.best.weighted));
    ListRule lists = Rule(ListRule::Kind::kLists);
    lists.capacity = options_.capacity;
    lists.bounds = &bounds;
    lists.most_sums = kMostSums;
    // Short lists find better plans, which make the bounds tighter and so longer lists affordable.
    Elimination known = priced.best;
    for (const size_t costs : kShortLists) {
      lists.costs_per_list = costs;
      Run run(graph_, lists);
      if (run.Go() != Run::End::kDone) break;
      const std::optional<Elimination> found = run.Best();
      if (!found.has_value()) continue;
      if (Elimination better = Finish(*found); better.weighted < known.weighted) known = std::move(better);
      bounds.limit = limit(known.weighted);
    }
    lists.simplify = options_.simplify;
    lists.costs_per_list = options_.costs_per_list;
    std::string unsimplified;
    while (true) {
      Run run(graph_, lists);
      if (run.Go() == Run::End::kDone) {
        std::optional<Elimination> best = run.Best();
        if (!best.has_value() && !run.cut_lists()) return absl::InternalError("lists lost every plan that fits");
        Elimination result = best.has_value() ? Finish(*std::move(best)) : known;
        const std::string how = absl::StrCat(run.how(), unsimplified, "; memory binds");
        if (known.weighted < result.weighted) result = known;
        result.exact = !run.cut_lists();
        result.how = how;
        if (run.cut_lists()) {
          absl::StrAppend(&result.how, ", lists are cut to ", options_.costs_per_list,
                          " costs (dp_algo_enable_approxi), so others may be better");
        }
        return result;
      }
      if (lists.simplify) break;
      lists.simplify = true;
      unsimplified = "; costmodel_simplify_cal false would make lists too long, so it was not followed";
    }
    known.exact = false;
    known.how = absl::StrFormat(
        "not proven to be the least: memory binds, and lists of costs and memory become too long; at most %.3g %% "
        "above "
        "the least",
        (known.weighted / priced.bound - 1) * 100);
    return known;
  }

  absl::Status TooLittle(double smallest) const {
    return PlanError(
        absl::StrFormat("no plan fits: the capacity is %.0f bytes (device_memory_capacity), the smallest "
                        "memory of any plan is %.0f bytes",
                        options_.capacity, smallest));
  }

  Elimination Finish(Elimination result) const {
    result.cost = Total(graph_, result.choices);
    result.weighted = options_.alpha * result.cost.computation + options_.beta * result.cost.communication;
    return result;
  }

  const ChoiceGraph& graph_;
  const EliminationOptions& options_;
};

}  // namespace

size_t NumParts(const ChoiceGraph& graph) {
  std::vector<size_t> part(graph.nodes.size());
  for (size_t v = 0; v < part.size(); ++v) part[v] = v;
  const auto find = [&](size_t v) {
    while (part[v] != v) v = part[v] = part[part[v]];
    return v;
  };
  for (const ChoiceGraph::Edge& edge : graph.edges) part[find(edge.from)] = find(edge.to);
  size_t parts = 0;
  for (size_t v = 0; v < part.size(); ++v) parts += find(v) == v;
  return parts;
}

absl::StatusOr<Elimination> Eliminate(const ChoiceGraph& graph, const EliminationOptions& options) {
  return Solver(graph, options).Solve();
}

}  // namespace meshwright
