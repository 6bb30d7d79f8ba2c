// The tables of elimination.h: for each combination of some nodes' choices a list of costs, with the decisions on the
// nodes that were eliminated into them. Only for elimination.cc.
#ifndef MESHWRIGHT_PLANNER_SEARCH_ELIMINATION_TABLE_H_
#define MESHWRIGHT_PLANNER_SEARCH_ELIMINATION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planner/search/elimination.h"

namespace meshwright {

struct ListEntry {
  Cost cost;
  int32_t decision = -1;  // of a DecisionArena; -1: none

  friend ListEntry operator+(const ListEntry& a, const ListEntry& b) { return {a.cost + b.cost, -1}; }
};

struct Table {
  std::vector<size_t> nodes;    // ascending; the last one's choice varies fastest
  std::vector<uint32_t> begin;  // of each combination's list in `entries`, and the end
  std::vector<ListEntry> entries;
  // Of what was added up in it: the least and the most memory that it can have.
  double least_memory = 0, most_memory = 0;
};

// What was chosen for eliminated nodes: a choice, and the decisions on which it rests.
class DecisionArena {
 public:
  int32_t Add(size_t node, size_t choice, const int32_t* rests_on, size_t count);
  // Writes all choices that the decision implies.
  void Unroll(int32_t decision, std::vector<size_t>& choices) const;

 private:
  struct Decision {
    int32_t node, choice;  // node -1: only what it rests on
    uint32_t begin, end;   // in rests_on_
  };
  std::vector<Decision> decisions_;
  std::vector<int32_t> rests_on_;
};

// What the rest of a graph adds to each combination of a table: from a run of single costs at a price on memory, whose
// tables have the same numbers as those of any other run over that graph. Weights are alpha x computation +
// beta x communication + price x memory, of which a run at one price finds the least exactly; so a list's cost whose
// own weight and the least of all else exceed `limit` is part of no plan that is worth it.
struct PlanBounds {
  double price = 0;                          // of one byte
  double limit = 0;                          // weight of a plan that fits, with the price of the whole capacity
  std::vector<std::vector<double>> within;   // by table and combination: the least weight of what was added up in it
  std::vector<std::vector<double>> outside;  // and of all else; infinite where nothing is allowed
};

// Which costs of a list are kept.
struct ListRule {
  enum class Kind : uint8_t { kBest, kLists };
  Kind kind = Kind::kBest;  // the least weight; or what none beats in weight and memory
  double alpha = 1, beta = 1, memory_price = 0;
  double capacity = std::numeric_limits<double>::infinity();  // kLists
  bool simplify = true;                                       // kLists
  size_t costs_per_list = std::numeric_limits<size_t>::max(), most_costs = std::numeric_limits<size_t>::max();
  double all_least = 0, all_most = 0;                     // memory of the whole graph
  size_t most_sums = std::numeric_limits<size_t>::max();  // kLists: that a run may look at
  size_t sums = 0;                                        // that it has looked at
  bool cut = false;                                       // a list was cut to costs_per_list
  const PlanBounds* bounds = nullptr;                     // kLists; null: none

  double Weight(const Cost& cost) const {
    const double infinite = std::numeric_limits<double>::infinity();
    if (cost.computation == infinite || cost.communication == infinite) return infinite;
    return alpha * cost.computation + beta * cost.communication + (memory_price == 0 ? 0 : memory_price * cost.memory);
  }
  // Whether a plan with that cost in a combination of the table can be worth it.
  bool IsWorth(const Cost& cost, size_t table, size_t combination) const {
    if (bounds == nullptr) return true;
    const double weight = alpha * cost.computation + beta * cost.communication + bounds->price * cost.memory;
    return weight + bounds->outside[table][combination] <= bounds->limit;
  }
  // Whether any can.
  bool IsWorth(size_t table, size_t combination) const {
    return bounds == nullptr ||
           bounds->within[table][combination] + bounds->outside[table][combination] <= bounds->limit;
  }
  void SetTotals(const ChoiceGraph& graph);
  // `least` and `most`: memory of all that the list has added up.
  void Keep(double least, double most, std::vector<ListEntry>& list);
  void Cut(std::vector<ListEntry>& list);  // to costs_per_list
};

Table UnaryTable(const ChoiceGraph& graph, size_t node);
Table EdgeTable(const ChoiceGraph::Edge& edge);

// Without the costs that are not worth it. `number` is the table's, here and below.
void Prune(const ListRule& rule, size_t number, Table& table);

// Of two tables over the same nodes.
Table Sum(const Table& a, const Table& b, size_t number, ListRule& rule, DecisionArena& arena);

// The table over the neighbours that `node` leaves behind; nullopt where it exceeds rule.most_costs, or the run
// rule.most_sums.
std::optional<Table> EliminateNode(const ChoiceGraph& graph, size_t node, const std::vector<const Table*>& tables,
                                   size_t number, ListRule& rule, DecisionArena& arena);

// A table was made of others by eliminating `node`, and what lies outside of it is known: lowers what lies outside of
// those (which begins as infinite) to its value. All by number, as in PlanBounds; `nodes` are those of each table.
void AddOutside(const ChoiceGraph& graph, size_t node, const std::vector<size_t>& inputs, size_t output,
                const std::vector<std::vector<size_t>>& nodes, PlanBounds& bounds);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_ELIMINATION_TABLE_H_
