// Joins an op and the op behind it into one kernel that does both: a product and its GELU, or GELU's gradient; a
// dropout and the sum with the residual; a sum and the norm of it; the gradient of a norm and the sum with the gradient
// that came past it.
//
//   before   MatMul reads h w b writes x                  MatMul reads dz v writes dy
//            GeLU reads x writes y                        GeLUGrad reads dy x writes dx
//   after    MatMulGeLU reads h w b writes y x            MatMulGeLUGrad reads dz v x writes dx
//
//   before   Add reads p b h writes x                     LayerNormGrad reads dn x g writes dx dg db
//            LayerNorm reads x g c writes n               Add reads dx dz writes dh
//   after    AddLayerNorm reads p b h g c writes n x      LayerNormGradAdd reads dn x g dz writes dh dg db
//
//   before   Dropout reads p writes d                     after    DropoutAdd reads p h writes x
//            Add reads d h writes x
//
// What it saves is a pass over the activation: x is not read again (nor written, where nobody else reads it), d, dy and
// dx never written nor read, and there is one kernel to start instead of two. d, dy and dx need no memory any more. A
// dropout's gradient is a dropout by the same mask: where it is added to a gradient from before, they are such a pair.
// A norm behind a DropoutAdd stays a kernel of its own: of 16 bits the two move 10 bytes an element, a Dropout and the
// AddLayerNorm that the norm would become 12.
//
// Only of 16-bit types, whose products run on matrix units and are so short that the passes show; in float32 and
// float64, where losses are compared to the last digits, the values are those of the kernels that define them. Of
// products only what libraries have an epilogue for (NVIDIA's cublasLt.h): a product that overwrites a row-major matrix
// whose rows have a multiple of 8 elements on each rank. What the GELU does for the bias's gradient (DGELU_BGRAD) is
// left out: it overwrites a sum in 16 bits, ours is added to in float32. A sum is of up to three tensors of its shape,
// or rows, and something reads it besides the norm.
//
// The op behind moves up: nothing between the two may wait on their stream or touch what it writes. Values do not
// change but for one rounding to 16 bits between the two, which a device's kernel leaves out (of a sum, which is
// written, it does not). Idempotent. Must run before overlap, whose waits would stand between.
//
// The op table says which ops are such a pair (OpInfo::front, OpInfo::epilogue).
#ifndef MESHWRIGHT_PLANNER_PASSES_FUSE_EPILOGUES_H_
#define MESHWRIGHT_PLANNER_PASSES_FUSE_EPILOGUES_H_

#include <set>
#include <string>

#include "ir/program.h"

namespace meshwright {

// `layer_ends`: names of what layers end with (Segment::layer_ends). The norm behind is the next layer's and stays its
// own, as between layers that do not alternate: each layer takes as long wherever a stage begins.
Program FuseEpilogues(Program program, const std::set<std::string>& layer_ends = {});

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_FUSE_EPILOGUES_H_
