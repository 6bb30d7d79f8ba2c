// Joins a product and the GELU behind it, or GELU's gradient, into one kernel that does both.
//
//   before   MatMul reads h w b writes x                  MatMul reads dz v writes dy
//            GeLU reads x writes y                        GeLUGrad reads dy x writes dx
//   after    MatMulGeLU reads h w b writes y x            MatMulGeLUGrad reads dz v x writes dx
//
// What it saves is a pass over the activation: x is not read again (nor written, where nobody else reads it), dy never
// written nor read, and there is one kernel to start instead of two. dy needs no memory any more.
//
// Only of 16-bit types, whose products run on matrix units and are so short that the passes show; in float32 and
// float64, where losses are compared to the last digits, the values are those of the kernels that define them. And only
// what libraries have an epilogue for (NVIDIA's cublasLt.h): a product that overwrites a row-major matrix whose rows
// have a multiple of 8 elements on each rank. What the GELU does for the bias's gradient (DGELU_BGRAD) is left out: it
// overwrites a sum in 16 bits, ours is added to in float32.
//
// The activation moves up to its product: nothing between them may wait on their stream or touch what it writes. Values
// do not change but for one rounding of x to 16 bits, which a device's epilogue leaves out. Idempotent. Must run before
// overlap, whose waits would stand between.
//
// The op table says which ops are such a pair (OpInfo::epilogue).
#ifndef MESHWRIGHT_PLANNER_PASSES_FUSE_EPILOGUES_H_
#define MESHWRIGHT_PLANNER_PASSES_FUSE_EPILOGUES_H_

#include "ir/program.h"

namespace meshwright {

Program FuseEpilogues(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_FUSE_EPILOGUES_H_
