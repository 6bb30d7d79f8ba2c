// The host kernels by folder-internal name; executor/host/kernels.h is what others include.
//
// Each is instantiated for float and double in its .cc file. RunHostKernel has checked the operands against the rule
// (number of dims, extents of labels); the kernel checks what only it knows.
#ifndef MESHWRIGHT_EXECUTOR_HOST_KERNEL_FUNCTIONS_H_
#define MESHWRIGHT_EXECUTOR_HOST_KERNEL_FUNCTIONS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "executor/kernel_call.h"

namespace meshwright::host {

// The kernel's operands must be between these numbers.
inline absl::Status CheckCounts(const KernelCall& call, size_t min_inputs, size_t max_inputs, size_t outputs) {
  if (call.inputs.size() >= min_inputs && call.inputs.size() <= max_inputs && call.outputs.size() == outputs) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(NameOf(call.op), " has ", call.inputs.size(), " inputs and ",
                                                 call.outputs.size(), " outputs, wants ", min_inputs, " to ",
                                                 max_inputs, " and ", outputs));
}

// products.cc
template <class T>
absl::Status MatMul(const KernelCall& call);

// elementwise.cc
template <class T>
absl::Status Add(const KernelCall& call);
template <class T>
absl::Status Binary(const KernelCall& call);  // Sub, Mul, Div, Equal
template <class T>
absl::Status Activation(const KernelCall& call);  // ReLU .. Sqrt
template <class T>
absl::Status ActivationGrad(const KernelCall& call);
template <class T>
absl::Status Gate(const KernelCall& call);
template <class T>
absl::Status GateGrad(const KernelCall& call);
template <class T>
absl::Status Dropout(const KernelCall& call);
template <class T>
absl::Status Fill(const KernelCall& call);

// movement.cc
template <class T>
absl::Status CopyByRule(const KernelCall& call);  // Scale, Broadcast, Transpose: scale * x
template <class T>
absl::Status Reduce(const KernelCall& call);  // ReduceSum, ReduceMax, ReduceMin
template <class T>
absl::Status Join(const KernelCall& call);  // Concat and Split
template <class T>
absl::Status StridedSlice(const KernelCall& call);  // and StridedSliceGrad
template <class T>
absl::Status OneHot(const KernelCall& call);
template <class T>
absl::Status Cast(const KernelCall& call);
template <class T>
absl::Status Reshape(const KernelCall& call);
template <class T>
absl::Status Gather(const KernelCall& call);
template <class T>
absl::Status GatherGrad(const KernelCall& call);
template <class T>
absl::Status AddPositions(const KernelCall& call);
template <class T>
absl::Status AddPositionsGrad(const KernelCall& call);

// norms.cc
template <class T>
absl::Status Softmax(const KernelCall& call);
template <class T>
absl::Status SoftmaxGrad(const KernelCall& call);
template <class T>
absl::Status LogSoftmax(const KernelCall& call);
template <class T>
absl::Status LogSoftmaxGrad(const KernelCall& call);
template <class T>
absl::Status LayerNorm(const KernelCall& call);
template <class T>
absl::Status LayerNormGrad(const KernelCall& call);
template <class T>
absl::Status RmsNorm(const KernelCall& call);
template <class T>
absl::Status RmsNormGrad(const KernelCall& call);
template <class T>
absl::Status NormHeads(const KernelCall& call);
template <class T>
absl::Status NormHeadsGrad(const KernelCall& call);

template <class T>
absl::Status GatedRmsNorm(const KernelCall& call);
template <class T>
absl::Status GatedRmsNormGrad(const KernelCall& call);

// linear_attention.cc
template <class T>
absl::Status CausalConv(const KernelCall& call);
template <class T>
absl::Status CausalConvGrad(const KernelCall& call);
template <class T>
absl::Status LinearAttention(const KernelCall& call);
template <class T>
absl::Status LinearAttentionGrad(const KernelCall& call);

// attention.cc
template <class T>
absl::Status Rotary(const KernelCall& call);  // and RotaryGrad
template <class T>
absl::Status LatentHeads(const KernelCall& call);
template <class T>
absl::Status LatentHeadsGrad(const KernelCall& call);
template <class T>
absl::Status Attention(const KernelCall& call);
template <class T>
absl::Status MergeAttention(const KernelCall& call);
template <class T>
absl::Status AttentionGrad(const KernelCall& call);

// losses.cc
template <class T>
absl::Status MseLoss(const KernelCall& call);
template <class T>
absl::Status MseLossGrad(const KernelCall& call);
template <class T>
absl::Status CrossEntropy(const KernelCall& call);
template <class T>
absl::Status CrossEntropyGrad(const KernelCall& call);
template <class T>
absl::Status RowMax(const KernelCall& call);
template <class T>
absl::Status ExpSumAndPick(const KernelCall& call);
template <class T>
absl::Status RowPartials(const KernelCall& call);
template <class T>
absl::Status JoinPartials(const KernelCall& call);
template <class T>
absl::Status LossFromPartials(const KernelCall& call);
template <class T>
absl::Status PartialsGrad(const KernelCall& call);

// moe.cc
template <class T>
absl::Status Dispatch(const KernelCall& call);
template <class T>
absl::Status DispatchGrad(const KernelCall& call);
template <class T>
absl::Status Combine(const KernelCall& call);
template <class T>
absl::Status CombineGrad(const KernelCall& call);
template <class T>
absl::Status ToGroups(const KernelCall& call);
template <class T>
absl::Status FromGroups(const KernelCall& call);

// optimizers.cc
template <class T>
absl::Status Sgd(const KernelCall& call);
template <class T>
absl::Status Momentum(const KernelCall& call);
template <class T>
absl::Status AdamW(const KernelCall& call);
template <class T>
absl::Status LambStep(const KernelCall& call);
template <class T>
absl::Status Lamb(const KernelCall& call);
template <class T>
absl::Status MuonStep(const KernelCall& call);
template <class T>
absl::Status Muon(const KernelCall& call);
template <class T>
absl::Status NotFinite(const KernelCall& call);
template <class T>
absl::Status AdjustScale(const KernelCall& call);

}  // namespace meshwright::host

#endif  // MESHWRIGHT_EXECUTOR_HOST_KERNEL_FUNCTIONS_H_
