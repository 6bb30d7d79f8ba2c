#include "executor/permute.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

// Axes that neither layout names.
AxisList UnusedAxes(const Mesh& mesh, const Layout& a, const Layout& b) {
  std::vector<bool> used(mesh.axes().size(), false);
  for (const Layout* layout : {&a, &b}) {
    for (const AxisList& axes : layout->dims) {
      for (AxisId axis : axes) used[axis.index()] = true;
    }
    for (AxisId axis : layout->partial) used[axis.index()] = true;
  }
  AxisList unused;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) unused.push_back(AxisId(i));
  }
  return unused;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> PermuteSources(const Program& program, size_t rank_class, const Buffer& from,
                                                    const Buffer& to) {
  const Mesh& mesh = program.mesh;
  const int64_t n = program.ranks_per_class();
  const AxisList unused = UnusedAxes(mesh, from.layout, to.layout);
  struct Piece {
    Shape begin;
    int64_t summand;  // which of the partial values
  };
  std::vector<Piece> held;
  for (int64_t q = 0; q < n; ++q) {
    const int64_t rank = program.RankOf(rank_class, q);
    held.push_back({SliceBegin(from.shape, from.layout, mesh, rank), mesh.PositionOf(rank, from.layout.partial)});
  }
  std::vector<int64_t> sources;
  for (int64_t r = 0; r < n; ++r) {
    const int64_t rank = program.RankOf(rank_class, r);
    const Shape begin = SliceBegin(to.shape, to.layout, mesh, rank);
    const int64_t summand = mesh.PositionOf(rank, to.layout.partial);
    int64_t near = -1, any = -1;
    for (int64_t q = n - 1; q >= 0; --q) {
      if (held[q].begin != begin || held[q].summand != summand) continue;
      any = q;
      const int64_t holder = program.RankOf(rank_class, q);
      const bool agrees = std::all_of(unused.begin(), unused.end(), [&](AxisId axis) {
        return mesh.Coordinate(holder, axis) == mesh.Coordinate(rank, axis);
      });
      if (agrees) near = q;
    }
    if (any < 0) {
      return absl::InvalidArgumentError(absl::StrCat("no rank holds the piece of \"", to.name, "\" at ", ToText(begin),
                                                     " that rank ", rank, " wants"));
    }
    sources.push_back(near >= 0 ? near : any);
  }
  return sources;
}

std::vector<int64_t> NamedSources(const Program& program, size_t rank_class, const Permute& permute) {
  const Mesh& mesh = program.mesh;
  const int64_t first = program.RankOf(rank_class, 0);
  std::vector<int64_t> sources;
  for (int64_t r = 0; r < program.ranks_per_class(); ++r) {
    const int32_t source = permute.sources[static_cast<size_t>(mesh.PositionOf(first + r, permute.axes))];
    sources.push_back(source < 0 ? -1 : mesh.Group(first + r, permute.axes)[static_cast<size_t>(source)] - first);
  }
  return sources;
}

}  // namespace meshwright
