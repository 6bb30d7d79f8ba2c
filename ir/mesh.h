// The mesh: named axes over the ranks.
//
// An axis is a size and a stride: the coordinate of a rank on it is (rank / stride) % size. In a row-major mesh the
// last axis is contiguous (stride 1), as in the device matrix of a sharding strategy: Layout((2,2,2),
// ("dp","sp","mp")).
//
// Two axes are orthogonal when a rank's coordinates on them vary independently: one's stride times size divides the
// other's stride. A mesh may hold axes that are not orthogonal to each other: 6 ranks can be read as 2 x 3 and as 3 x
// 2, and the axes of both readings have their place in Factored(6). One tensor only ever uses mutually orthogonal axes.
//
// Thread safety: immutable after construction.
#ifndef MESHWRIGHT_IR_MESH_H_
#define MESHWRIGHT_IR_MESH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "ir/ids.h"

namespace meshwright {

// Ordered axes, the first most significant. As a group: the ranks that differ in these coordinates only, in this order.
using AxisList = absl::InlinedVector<AxisId, 4>;

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  int64_t stride = 1;
};

class Mesh {
 public:
  // A mesh of one rank.
  Mesh() = default;

  // Row-major: the last axis is contiguous. REQUIRES: sizes >= 1, names unique and not empty.
  static Mesh RowMajor(const std::vector<std::pair<std::string, int64_t>>& axes);

  // `stages` (axis "pp", the slowest) times every prime axis of every row-major reading of `ranks_per_stage` ranks:
  // for each divisor s of the count and each prime p with s * p dividing it, an axis of size p and stride s.
  // For 8 these are x4, x2, x1 (each of size 2, named by stride); for 6: 2x3, 3x1, 3x2, 2x1 (size x stride).
  static Mesh Factored(int64_t stages, int64_t ranks_per_stage);

  int64_t num_ranks() const { return num_ranks_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  const MeshAxis& axis(AxisId id) const { return axes_[id.index()]; }

  // The axis of that name, or an invalid id.
  AxisId Find(const std::string& name) const;

  int64_t Coordinate(int64_t rank, AxisId id) const { return rank / axis(id).stride % axis(id).size; }
  // The rank whose coordinate on `id` is `coordinate` and which agrees with `rank` elsewhere.
  int64_t WithCoordinate(int64_t rank, AxisId id, int64_t coordinate) const {
    return rank + (coordinate - Coordinate(rank, id)) * axis(id).stride;
  }

  // Product of the sizes; 1 for an empty list.
  int64_t SizeOf(const AxisList& axes) const;
  // Mixed-radix number of the rank's coordinates on `axes`, the first most significant.
  int64_t PositionOf(int64_t rank, const AxisList& axes) const;
  // The ranks that differ from `rank` only on `axes`, ordered by PositionOf.
  std::vector<int64_t> Group(int64_t rank, const AxisList& axes) const;

  bool Orthogonal(AxisId a, AxisId b) const;
  // Whether both lists join the same ranks to groups, in whatever order: 2x3, 3x1 and 3x2, 2x1 both join all 6.
  // REQUIRES: the axes of each list are mutually orthogonal.
  bool SameGroups(const AxisList& a, const AxisList& b) const;

  // The axes, most significant first, that together are one axis of `size` and `stride`. Used to express a device
  // matrix [d0, d1, ...] in a factored mesh. kInvalidArgument when this mesh has no such axes.
  absl::StatusOr<AxisList> Compose(int64_t size, int64_t stride) const;

  friend bool operator==(const Mesh& a, const Mesh& b);
  friend absl::StatusOr<Mesh> ParseMesh(const std::string& text);

 private:
  bool ComposeInto(int64_t size, int64_t stride, AxisList& result) const;

  std::vector<MeshAxis> axes_;
  int64_t num_ranks_ = 1;
};

// "pp=4 dp=8 tp=8", with "@stride" after the size of an axis that is not row-major.
std::string ToText(const Mesh& mesh);
absl::StatusOr<Mesh> ParseMesh(const std::string& text);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_MESH_H_
