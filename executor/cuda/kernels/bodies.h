// The list of all kernel bodies, by the file that compiles them for the device.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_BODIES_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_BODIES_H_

#define MESHWRIGHT_POINTWISE_BODIES(X) \
  X(Pointwise)                         \
  X(RawCopy)                           \
  X(Fill)                              \
  X(Gate)                              \
  X(GatherRows)                        \
  X(GatherRowsGrad) X(OneHot) X(Dropout) X(Rotary) X(Update) X(LambStep) X(LambNorms) X(NotFinite) X(AdjustScale)
#define MESHWRIGHT_ROW_BODIES(X) X(Reduce) X(RowOp) X(Norm) X(NormParameters) X(SumAll)
#define MESHWRIGHT_TILE_BODIES(X) \
  X(LatentHeads)                  \
  X(AttentionForward) X(AttentionBackward) X(AttentionMerge) X(Route) X(RouteGroups) X(SlotRows) X(CombineSlots)
#define MESHWRIGHT_RECURRENT_BODIES(X) \
  X(CausalConv)                        \
  X(CausalConvParameters)              \
  X(GatedNorm)                         \
  X(GatedNormParameters)               \
  X(LinearAttentionScalars) X(LinearAttentionForward) X(LinearAttentionBackward) X(LinearAttentionSums)
// On tensor cores: a variant per type and width of heads.
#define MESHWRIGHT_WARP_BODIES(X) X(FlashForward) X(FlashQueryGradient) X(FlashKeyGradient)
// On Hopper's tensor cores, likewise.
#define MESHWRIGHT_WARPGROUP_BODIES(X) X(HopperForward) X(HopperQueryGradient) X(HopperKeyGradient)

// All of them.
#define MESHWRIGHT_BODIES(X)     \
  MESHWRIGHT_POINTWISE_BODIES(X) \
  MESHWRIGHT_ROW_BODIES(X)       \
  MESHWRIGHT_TILE_BODIES(X)      \
  MESHWRIGHT_RECURRENT_BODIES(X) \
  MESHWRIGHT_WARP_BODIES(X)      \
  MESHWRIGHT_WARPGROUP_BODIES(X)

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_BODIES_H_
