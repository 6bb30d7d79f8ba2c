#include "planner/redistribute.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"

namespace meshwright {
namespace {

// Beyond these the search takes only the steps that are likely to help: the number of layouts grows too fast.
constexpr int64_t kSmallMesh = 16;  // ranks
constexpr size_t kFewAxes = 4;

// A layout as a key: equal keys, equal layouts.
std::vector<int32_t> KeyOf(const Layout& layout) {
  std::vector<int32_t> key;
  for (const AxisList& axes : layout.dims) {
    for (AxisId id : axes) key.push_back(static_cast<int32_t>(id.index()));
    key.push_back(-1);
  }
  AxisList partial = layout.partial;
  std::sort(partial.begin(), partial.end());
  for (AxisId id : partial) key.push_back(static_cast<int32_t>(id.index()));
  return key;
}

class Search {
 public:
  Search(const Shape& global, DType dtype, const Layout& to, const Mesh& mesh, const StepPrice& price)
      : global_(global), dtype_(dtype), to_(to), mesh_(mesh), price_(price) {
    for (const AxisList& axes : to.dims) wanted_.insert(wanted_.end(), axes.begin(), axes.end());
    stages_ = mesh.Find("pp");
  }

  absl::StatusOr<Redistribution> Run(const Layout& from) {
    Visit(from, Nanos(), {}, nullptr);
    while (!queue_.empty()) {
      const auto [cost, order, key] = *queue_.begin();
      queue_.erase(queue_.begin());
      Node& node = nodes_.at(key);
      if (node.done) continue;
      node.done = true;
      if (SamePlacement(global_, node.layout, to_, mesh_)) return Unwind(key, cost);
      Expand(key, node.layout, cost);
    }
    if (dtype_ == DType::kBool) {
      return LayoutError("a tensor of bool ", ToText(global_), " lies as ", ToText(from, mesh_), " and is wanted as ",
                         ToText(to_, mesh_), "; booleans are not communicated, split it alike or cast it");
    }
    return absl::InternalError(absl::StrCat("no redistribution of ", ToText(global_), " from ", ToText(from, mesh_),
                                            " to ", ToText(to_, mesh_)));
  }

 private:
  using Key = std::vector<int32_t>;
  struct Node {
    Layout layout;
    Nanos cost;
    Work work;
    Key previous;
    bool has_previous = false;
    bool done = false;
  };

  void Visit(const Layout& layout, Nanos cost, const Work& work, const Key* previous) {
    const Key key = KeyOf(layout);
    const auto [it, inserted] = nodes_.try_emplace(key);
    if (!inserted && (it->second.done || it->second.cost <= cost)) return;
    it->second = Node{layout, cost, work, previous == nullptr ? Key() : *previous, previous != nullptr, false};
    // Equal costs: fewer expansions first, then the order in which they were found. Deterministic.
    queue_.insert({cost, order_++, key});
  }

  void Try(const Key& key, const Layout& before, Nanos cost, const Work& work, Layout after) {
    if (after.partial.empty()) after.reduction = Reduction::kSum;
    if (!CheckLayout(global_, after, mesh_).ok()) return;
    if (dtype_ == DType::kBool && !std::holds_alternative<Slice>(work)) return;
    // What was reached for less needs no price.
    const auto known = nodes_.find(KeyOf(after));
    if (known != nodes_.end() && (known->second.done || known->second.cost <= cost)) return;
    const Nanos step = price_(global_, dtype_, work, before, after);
    if (step == kNever) return;
    // One nanosecond a step, so that of sequences that cost nothing the shortest wins.
    Visit(after, cost + step + Nanos(1), work, &key);
  }

  bool Uses(const Layout& layout, AxisId id) const {
    for (const AxisList& axes : layout.dims) {
      if (absl::c_linear_search(axes, id)) return true;
    }
    return absl::c_linear_search(layout.partial, id);
  }

  void Expand(const Key& key, const Layout& layout, Nanos cost) {
    Reduce(key, layout, cost);
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      Slices(key, layout, cost, d);
      Moves(key, layout, cost, d);
    }
    if (layout.partial.empty() && to_.partial.empty() &&
        LocalShape(global_, layout, mesh_) == LocalShape(global_, to_, mesh_)) {
      Try(key, layout, cost, Permute{}, to_);
    }
  }

  // All-reduces over what the target does not keep partial; reduce-scatters of such axes onto the end of a dim.
  void Reduce(const Key& key, const Layout& layout, Nanos cost) {
    AxisList open;
    for (AxisId id : layout.partial) {
      if (!absl::c_linear_search(to_.partial, id)) open.push_back(id);
    }
    for (const AxisList& run : RunsOf(open, layout)) {
      Collective reduce;
      reduce.reduction = layout.reduction;
      reduce.axes = run;
      Layout after = layout;
      after.partial.erase(std::remove_if(after.partial.begin(), after.partial.end(),
                                         [&](AxisId id) { return absl::c_linear_search(run, id); }),
                          after.partial.end());
      // What is to be summed whole is summed in one call.
      if (run == open) Try(key, layout, cost, reduce, after);
      if (layout.reduction != Reduction::kSum) continue;
      reduce.kind = CollectiveKind::kReduceScatter;
      for (size_t d = 0; d < layout.dims.size(); ++d) {
        reduce.dim = static_cast<int32_t>(d);
        Layout scattered = after;
        scattered.dims[d].insert(scattered.dims[d].end(), run.begin(), run.end());
        Try(key, layout, cost, reduce, scattered);
      }
    }
  }

  // The axes of `open` that may be reduced in one call, in order: of a few every list; of many all, each by itself, and
  // what the target wants on a dim.
  std::vector<AxisList> RunsOf(const AxisList& open, const Layout& layout) const {
    std::vector<AxisList> runs;
    if (open.empty()) return runs;
    if (open.size() <= kFewAxes) {
      runs.push_back({});
      for (size_t i = 0; i < runs.size(); ++i) {
        for (AxisId id : open) {
          if (absl::c_linear_search(runs[i], id)) continue;
          AxisList longer = runs[i];
          longer.push_back(id);
          runs.push_back(std::move(longer));
        }
      }
      runs.erase(runs.begin());
      return runs;
    }
    runs.push_back(open);
    for (AxisId id : open) runs.push_back({id});
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      const AxisList &have = layout.dims[d], &want = to_.dims[d];
      if (have.size() >= want.size() || !std::equal(have.begin(), have.end(), want.begin())) continue;
      AxisList run;
      for (size_t i = have.size(); i < want.size() && absl::c_linear_search(open, want[i]); ++i) run.push_back(want[i]);
      if (run.size() > 1) runs.push_back(run);
    }
    return runs;
  }

  // Appends free axes: the whole run that the target wants here, or any one. Also one that the target does not use:
  // what is held several times may be cut first and gathered last.
  void Slices(const Key& key, const Layout& layout, Nanos cost, size_t d) {
    const AxisList& have = layout.dims[d];
    const AxisList& want = to_.dims[d];
    if (have.size() < want.size() && std::equal(have.begin(), have.end(), want.begin())) {
      Layout after = layout;
      for (size_t i = have.size(); i < want.size() && !Uses(layout, want[i]); ++i) {
        after.dims[d].push_back(want[i]);
        Try(key, layout, cost, Slice{}, after);
      }
    }
    for (size_t a = 0; a < mesh_.axes().size(); ++a) {
      const AxisId id(a);
      if (id == stages_ || Uses(layout, id)) continue;
      // Of a large mesh only at first.
      const bool first = cost == Nanos();
      if (mesh_.num_ranks() > kSmallMesh && !absl::c_linear_search(wanted_, id) && !first) continue;
      Layout after = layout;
      after.dims[d].push_back(id);
      Try(key, layout, cost, Slice{}, after);
    }
  }

  // Takes the last k axes off a dim: gathers them, or moves them to the end of another dim.
  void Moves(const Key& key, const Layout& layout, Nanos cost, size_t d) {
    const AxisList& have = layout.dims[d];
    for (size_t k = 1; k <= have.size(); ++k) {
      const AxisList run(have.end() - static_cast<ptrdiff_t>(k), have.end());
      if (mesh_.SizeOf(run) == 1) continue;
      Collective gather;
      gather.kind = CollectiveKind::kAllGather;
      gather.axes = run;
      gather.dim = static_cast<int32_t>(d);
      Layout after = layout;
      after.dims[d].resize(have.size() - k);
      Try(key, layout, cost, gather, after);
      for (size_t other = 0; other < layout.dims.size(); ++other) {
        if (other == d) continue;
        Collective move;
        move.kind = CollectiveKind::kAllToAll;
        move.axes = run;
        move.dim = static_cast<int32_t>(d);
        move.to_dim = static_cast<int32_t>(other);
        Layout moved = after;
        moved.dims[other].insert(moved.dims[other].end(), run.begin(), run.end());
        Try(key, layout, cost, move, moved);
      }
    }
  }

  Redistribution Unwind(Key key, Nanos cost) const {
    Redistribution result;
    result.cost = cost;
    while (nodes_.at(key).has_previous) {
      const Node& node = nodes_.at(key);
      result.steps.push_back({node.work, node.layout});
      key = node.previous;
    }
    std::reverse(result.steps.begin(), result.steps.end());
    result.cost = cost - Nanos(static_cast<int64_t>(result.steps.size()));
    return result;
  }

  const Shape& global_;
  const DType dtype_;
  const Layout& to_;
  const Mesh& mesh_;
  const StepPrice& price_;
  AxisList wanted_;
  AxisId stages_;  // no tensor is split over the stages
  std::map<Key, Node> nodes_;
  std::set<std::tuple<Nanos, int64_t, Key>> queue_;
  int64_t order_ = 0;
};

}  // namespace

absl::StatusOr<Redistribution> Redistribute(const Shape& global, DType dtype, const Layout& from, const Layout& to,
                                            const Mesh& mesh, const StepPrice& price) {
  return Search(global, dtype, to, mesh, price).Run(from);
}

}  // namespace meshwright
