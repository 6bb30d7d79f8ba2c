// What Muon does between its two steps (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the step of a matrix
// becomes the nearest with orthogonal rows or columns, by five Newton-Schulz iterations on
// X = step / |step|, with the smaller side in front (X X^T as small as can be):
//
//   A = X X^T,  B = b A + c A A,  X = a X + B X         a, b, c = 3.4445, -4.775, 2.0315
//
// All of it is done in the parameter's type. Three products each; what frameworks call addmm is a Scale and a product
// with a third input here, as PyTorch's is a copy and a product that adds.
//
// Where a parameter is split over ranks, its step is gathered first; and where all ranks of a class then have the same,
// one of them orthogonalizes it and sends the others what it made: each layer's matrices are another rank's, in turn
// (Turn in ir/program.h), so that a step takes a rank its part of the work. Where a parameter is several matrices
// (experts), its replicas share them out instead, as far as the mesh has axes for that.
#ifndef MESHWRIGHT_PLANNER_PASSES_ORTHOGONALIZE_H_
#define MESHWRIGHT_PLANNER_PASSES_ORTHOGONALIZE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace meshwright {

// What a dim of a parameter is to the product that reads it: of its sums, of its result alone, or of both, so that
// there is a matrix for each place along it.
enum class MatrixDim : uint8_t { kRow, kColumn, kMatrix };

// By name, up to its '@', the parameters that are matrices, with what their dims are. Not what no product reads as its
// second operand, or something else reads besides (an embedding), nor the output layer, whose columns or rows are the
// vocabulary ("v"). Whatever the strategy, they are the same.
using Matrices = std::map<std::string, std::vector<MatrixDim>>;
Matrices MatricesOf(const Graph& graph);

// Whether one rank does it for all of the class.
bool TakesTurns(const Buffer& parameter, const std::vector<MatrixDim>& dims, const Mesh& mesh, int64_t ranks);

// The root of its larger side: |orthogonal matrix| / |matrix whose elements have a mean square of 1|, by which an
// update is made as large as AdamW's, times 0.2 (Liu et al., arXiv:2502.16982, section 2.2).
double MuonScale(const Shape& shape, const std::vector<MatrixDim>& dims);

// The instructions between the two steps carry this behind the parameter's name as their origin.
inline constexpr absl::string_view kOrthogonalize = "/orthogonalize";

// Adds to `out` what makes the direction of `step`, which is laid out as the parameter, and returns it, laid out so,
// too. `ranks`: of the class.
BufferId Orthogonalize(RankClass& c, const Mesh& mesh, int64_t ranks, BufferId step, const std::vector<MatrixDim>& dims,
                       const Turn& turn, const std::string& name, std::vector<Instruction>& out);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_ORTHOGONALIZE_H_
