#include "planner/search/canonical_redistribution.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace meshwright {
namespace {

// An axis of the refined matrix; `size` 1 stands for none.
struct Axis {
  int64_t size = 1, stride = 0;
  bool none() const { return size == 1; }
  friend bool operator==(const Axis&, const Axis&) = default;
};

// One side: for each dim of the tensor its axes, contiguous ones joined.
using SplitDims = std::vector<std::vector<Axis>>;

SplitDims Joined(const Layout& layout, const Mesh& mesh) {
  SplitDims dims;
  for (const AxisList& axes : layout.dims) {
    std::vector<Axis>& of_dim = dims.emplace_back();
    for (const AxisId id : axes) {
      const MeshAxis& axis = mesh.axis(id);
      if (axis.size == 1) continue;
      if (!of_dim.empty() && of_dim.back().stride == axis.stride * axis.size) {
        of_dim.back() = {of_dim.back().size * axis.size, axis.stride};
      } else {
        of_dim.push_back({axis.size, axis.stride});
      }
    }
  }
  return dims;
}

using Bounds = std::set<int64_t, std::greater<>>;

bool IsChain(const Bounds& bounds) {
  int64_t last = 0;
  for (const int64_t bound : bounds) {
    if (last != 0 && last % bound != 0) return false;
    last = bound;
  }
  return true;
}

// The axes cut at the bounds.
SplitDims Cut(const SplitDims& dims, const Bounds& bounds) {
  SplitDims result;
  for (const std::vector<Axis>& axes : dims) {
    std::vector<Axis>& cut = result.emplace_back();
    for (const Axis& axis : axes) {
      int64_t high = axis.stride * axis.size;
      for (const int64_t bound : bounds) {
        if (bound >= high || bound < axis.stride) continue;
        cut.push_back({high / bound, bound});
        high = bound;
      }
    }
  }
  return result;
}

// A dim of the refined tensor, and what splits it on either side.
struct RefinedDim {
  int64_t size = 1;
  Axis from, to;
};

// Lays the axes of one side over the parts of a dim. Adds a bound where an axis must be cut; false where no cut helps.
bool Place(const std::vector<Axis>& axes, const std::vector<int64_t>& parts, std::vector<Axis>& placed,
           Bounds& bounds) {
  size_t next = 0;
  for (const int64_t part : parts) {
    placed.push_back({});
    if (next == axes.size()) continue;
    const Axis& axis = axes[next];
    if (part % axis.size == 0) {
      placed.back() = axis;
      ++next;
      continue;
    }
    if (axis.size % part != 0) return false;
    bounds.insert(axis.stride * (axis.size / part));
    return true;
  }
  return next == axes.size();
}

// The sizes into which a dim is cut so that either side has at most one axis in each; empty where there are none.
std::vector<int64_t> PartsOf(int64_t size, const std::vector<Axis>& from, const std::vector<Axis>& to) {
  std::set<int64_t> ends;
  for (const std::vector<Axis>* axes : {&from, &to}) {
    int64_t end = 1;
    for (size_t i = 0; i + 1 < axes->size(); ++i) ends.insert(end *= (*axes)[i].size);
  }
  std::vector<int64_t> parts;
  int64_t last = 1;
  for (const int64_t end : ends) {
    if (end % last != 0) return {};
    parts.push_back(end / last);
    last = end;
  }
  if (size % last != 0) return {};
  parts.push_back(size / last);
  return parts;
}

// Step 2 of the header; nullopt where it cannot be done.
std::optional<std::vector<RefinedDim>> Refine(const Shape& global, const SplitDims& from, const SplitDims& to,
                                              Bounds bounds) {
  while (true) {
    if (!IsChain(bounds)) return std::nullopt;
    const size_t known = bounds.size();
    const SplitDims a = Cut(from, bounds), b = Cut(to, bounds);
    std::vector<RefinedDim> dims;
    for (size_t d = 0; d < global.size() && bounds.size() == known; ++d) {
      const std::vector<int64_t> parts = PartsOf(global[d], a[d], b[d]);
      std::vector<Axis> of_from, of_to;
      if (parts.empty() || !Place(a[d], parts, of_from, bounds) || !Place(b[d], parts, of_to, bounds)) {
        return std::nullopt;
      }
      if (bounds.size() != known) break;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i] > 1) dims.push_back({parts[i], of_from[i], of_to[i]});
      }
    }
    if (bounds.size() == known) return dims;
  }
}

// Step 3 of the header.
class Sequence {
 public:
  Sequence(const std::vector<RefinedDim>& dims, const Mesh& mesh, bool all_to_all)
      : dims_(dims), mesh_(mesh), all_to_all_(all_to_all) {
    for (const RefinedDim& dim : dims_) {
      local_.push_back(dim.size / dim.from.size);
      now_.push_back(dim.from);
      open_.push_back(true);
    }
  }

  std::vector<CanonicalStep> Run() {
    while (AnyOpen()) {
      const size_t before = steps_.size();
      while (AnyOpen()) {
        const size_t moved = steps_.size();
        Split();
        while (AnyOpen()) {
          const size_t permuted = steps_.size();
          Permute();
          if (permuted == steps_.size()) break;
        }
        if (moved == steps_.size()) break;
      }
      Concat();
      if (before == steps_.size() && AnyOpen()) {
        const size_t first = static_cast<size_t>(std::find(open_.begin(), open_.end(), true) - open_.begin());
        AddConcat(first, now_[first]);
        now_[first] = {};
      }
    }
    return std::move(steps_);
  }

 private:
  bool AnyOpen() const { return std::find(open_.begin(), open_.end(), true) != open_.end(); }
  // The open dim that has the axis now, or the number of dims.
  size_t Holder(const Axis& axis) const {
    for (size_t d = 0; d < now_.size(); ++d) {
      if (open_[d] && now_[d] == axis) return d;
    }
    return now_.size();
  }
  // Closes a dim that is as it should be; true if it is closed.
  bool Closed(size_t d) {
    if (open_[d] && now_[d] == dims_[d].to) open_[d] = false;
    return !open_[d];
  }

  void Split() {
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (Closed(d) || !now_[d].none() || Holder(dims_[d].to) < dims_.size()) continue;
      AddSplit(d, dims_[d].to);
      open_[d] = false;
    }
  }

  void Permute() {
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (Closed(d) || !now_[d].none()) continue;
      const Axis wanted = dims_[d].to;
      const size_t holder = Holder(wanted);
      if (holder == dims_.size()) continue;
      if (all_to_all_) {
        local_[d] /= wanted.size;
        local_[holder] *= wanted.size;
        Add(CanonicalStep::Kind::kAllToAll, d, holder, wanted);
      } else {
        AddConcat(holder, wanted);
        AddSplit(d, wanted);
      }
      open_[d] = false;
      now_[holder] = {};
    }
  }

  void Concat() {
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (!open_[d] || now_[d].none()) continue;
      const bool wanted =
          std::any_of(dims_.begin(), dims_.end(), [&](const RefinedDim& dim) { return dim.to == now_[d]; });
      if (wanted) continue;
      AddConcat(d, now_[d]);
      now_[d] = {};
      Closed(d);
    }
  }

  void AddSplit(size_t d, const Axis& axis) {
    local_[d] /= axis.size;
    Add(CanonicalStep::Kind::kSplit, d, d, axis);
  }
  void AddConcat(size_t d, const Axis& axis) {
    local_[d] *= axis.size;
    Add(CanonicalStep::Kind::kConcat, d, d, axis);
  }
  void Add(CanonicalStep::Kind kind, size_t dim, size_t concat_dim, const Axis& axis) {
    steps_.push_back({kind, dim, concat_dim, *mesh_.Compose(axis.size, axis.stride), axis.size, local_});
  }

  const std::vector<RefinedDim>& dims_;
  const Mesh& mesh_;
  const bool all_to_all_;
  Shape local_;             // what a rank holds
  std::vector<Axis> now_;   // what splits each dim
  std::vector<bool> open_;  // dims that may still change
  std::vector<CanonicalStep> steps_;
};

Shape WithoutOnes(const Shape& global, const Shape& local) {
  Shape result;
  for (size_t d = 0; d < global.size(); ++d) {
    if (global[d] > 1) result.push_back(local[d]);
  }
  return result;
}

// Gathers everything, then splits it.
void GatherAndSplit(const Shape& global, const Layout& from, const Layout& to, const Mesh& mesh,
                    CanonicalRedistribution& way) {
  Shape local = way.before;
  const auto visit = [&](const Layout& layout, CanonicalStep::Kind kind) {
    size_t dim = 0;
    for (size_t d = 0; d < global.size(); ++d) {
      if (global[d] == 1) continue;
      const int64_t pieces = mesh.SizeOf(layout.dims[d]);
      if (pieces > 1) {
        local[dim] = kind == CanonicalStep::Kind::kConcat ? local[dim] * pieces : local[dim] / pieces;
        way.steps.push_back({kind, dim, dim, layout.dims[d], pieces, local});
      }
      ++dim;
    }
  };
  visit(from, CanonicalStep::Kind::kConcat);
  visit(to, CanonicalStep::Kind::kSplit);
  way.refined_before = way.before;
  way.refined_after = way.after;
}

void AddBounds(const AxisList& axes, const Mesh& mesh, Bounds& bounds) {
  const SplitDims joined = Joined(Layout{{axes}, {}, Reduction::kSum}, mesh);
  for (const Axis& axis : joined[0]) {
    bounds.insert(axis.stride);
    bounds.insert(axis.stride * axis.size);
  }
}

}  // namespace

MatrixBounds BoundsOf(const Assignment& assignment, const Mesh& mesh, int64_t ranks) {
  Bounds bounds = {ranks, 1};
  for (const AxisList& axes : assignment) AddBounds(axes, mesh, bounds);
  return MatrixBounds(bounds.begin(), bounds.end());
}

MatrixBounds BoundsOf(const Layout& layout, const Mesh& mesh, int64_t ranks) {
  return BoundsOf(Assignment(layout.dims.begin(), layout.dims.end()), mesh, ranks);
}

CanonicalRedistribution CanonicallyRedistribute(const Shape& global, const Layout& from,
                                                const MatrixBounds& from_matrix, const Layout& to,
                                                const MatrixBounds& to_matrix, const Mesh& mesh, bool all_to_all) {
  CanonicalRedistribution way;
  way.before = WithoutOnes(global, LocalShape(global, from, mesh));
  way.after = WithoutOnes(global, LocalShape(global, to, mesh));
  Bounds bounds(from_matrix.begin(), from_matrix.end());
  bounds.insert(to_matrix.begin(), to_matrix.end());
  const std::optional<std::vector<RefinedDim>> dims =
      Refine(global, Joined(from, mesh), Joined(to, mesh), std::move(bounds));
  if (!dims.has_value()) {
    GatherAndSplit(global, from, to, mesh, way);
    return way;
  }
  for (const RefinedDim& dim : *dims) {
    way.refined_before.push_back(dim.size / dim.from.size);
    way.refined_after.push_back(dim.size / dim.to.size);
  }
  way.steps = Sequence(*dims, mesh, all_to_all).Run();
  return way;
}

CanonicalCost CostOf(const CanonicalRedistribution& way) {
  CanonicalCost cost;
  const double p = static_cast<double>(NumElements(way.refined_before));
  for (const CanonicalStep& step : way.steps) {
    const double k = static_cast<double>(step.pieces);
    // Concatenating another dim than the first takes a gather, a split and a copy.
    const double copied = step.concat_dim == 0 ? 0 : p + 2 * p * k;
    switch (step.kind) {
      case CanonicalStep::Kind::kSplit:
        cost.computation += p;
        cost.memory += p;
        break;
      case CanonicalStep::Kind::kConcat:
        cost.forward += 0.5 * p * k;
        cost.backward += 0.5 * p;
        cost.computation += step.concat_dim == 0 ? p : copied;
        cost.memory += step.concat_dim == 0 ? p * k : copied;
        break;
      case CanonicalStep::Kind::kAllToAll:
        cost.forward += 2 * p;
        cost.backward += 2 * p;
        cost.computation += step.concat_dim == 0 ? p : copied;
        cost.memory += step.concat_dim == 0 ? p : copied;
        break;
    }
  }
  if (way.reshapes()) {
    cost.computation += 2 * p;
    cost.memory += 2 * p;
  }
  return cost;
}

}  // namespace meshwright
