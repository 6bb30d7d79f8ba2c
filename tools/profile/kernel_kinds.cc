#include "tools/profile/kernel_kinds.h"

#include <algorithm>
#include <string>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace meshwright {
namespace {

struct KernelName {
  absl::string_view part;  // of the name, in small letters
  WorkKind work;
  CallKind call = CallKind::kOtherCall;
};

// A row is named by whose kernels have the part in their names. Rows that are part of others' names come behind these.
constexpr KernelName kKernelNames[] = {
    // NCCL: ncclDevKernel_, and ncclKernel_ of older releases. RCCL's are all of one name, of which PyTorch says the
    // kind.
    {"kernel_allreduce", WorkKind::kCommunication, CallKind::kAllReduce},
    {"kernel_allgather", WorkKind::kCommunication, CallKind::kAllGather},
    {"kernel_reducescatter", WorkKind::kCommunication, CallKind::kReduceScatter},
    {"kernel_broadcast", WorkKind::kCommunication, CallKind::kBroadcast},
    {"kernel_alltoall", WorkKind::kCommunication, CallKind::kAllToAll},
    // An all-to-all, too: which of the two, PyTorch says where it writes what collectives moved.
    {"kernel_sendrecv", WorkKind::kCommunication, CallKind::kSendReceive},
    {"nccldevkernel", WorkKind::kCommunication},
    {"ncclkernel", WorkKind::kCommunication},
    {"ncclsym", WorkKind::kCommunication},
    // DeepEP: dispatch and combine of experts' tokens
    {"deep_ep", WorkKind::kCommunication, CallKind::kAllToAll},
    // PyTorch's symmetric memory
    {"shot_all_reduce", WorkKind::kCommunication, CallKind::kAllReduce},
    {"multimem_all_gather", WorkKind::kCommunication, CallKind::kAllGather},
    // vLLM, SGLang: custom all-reduce
    {"cross_device_reduce", WorkKind::kCommunication, CallKind::kAllReduce},
    // Transformer Engine: overlapped tensor parallelism
    {"userbuffers", WorkKind::kCommunication},
    {"nvshmem", WorkKind::kCommunication},

    // mamba_ssm, causal-conv1d
    {"causal_conv1d", WorkKind::kLinearAttention},
    {"selective_scan", WorkKind::kLinearAttention},
    {"_chunk_scan", WorkKind::kLinearAttention},
    {"_chunk_state", WorkKind::kLinearAttention},
    {"_state_passing", WorkKind::kLinearAttention},
    {"_bmm_chunk", WorkKind::kLinearAttention},
    {"_chunk_cumsum", WorkKind::kLinearAttention},
    // flash-linear-attention
    {"delta_rule", WorkKind::kLinearAttention},
    {"chunk_fwd", WorkKind::kLinearAttention},
    {"chunk_bwd", WorkKind::kLinearAttention},
    {"chunk_local_cumsum", WorkKind::kLinearAttention},
    {"chunk_scaled_dot", WorkKind::kLinearAttention},
    {"solve_tril", WorkKind::kLinearAttention},
    {"recompute_w_u", WorkKind::kLinearAttention},
    {"prepare_wy_repr", WorkKind::kLinearAttention},
    {"merge_16x16_to", WorkKind::kLinearAttention},
    {"fused_recurrent", WorkKind::kLinearAttention},
    {"lightning_attn", WorkKind::kLinearAttention},

    // Inductor: copies before attention, named after it
    {"scaled_dot_product", WorkKind::kElementwise},
    // FlashAttention 1 to 3, also inside of PyTorch
    {"flash_fwd", WorkKind::kAttention},
    {"flash_bwd", WorkKind::kAttention},
    {"flashattn", WorkKind::kAttention},
    {"fmha", WorkKind::kAttention},  // and xformers, Apex
    // xformers' and PyTorch's CUTLASS kernels
    {"attentionkernel", WorkKind::kAttention},
    {"attentionbackwardkernel", WorkKind::kAttention},
    // cuDNN
    {"sdpa", WorkKind::kAttention},
    {"flash_fprop", WorkKind::kAttention},
    {"flash_bprop", WorkKind::kAttention},
    // FlexAttention, Triton's tutorial, Transformer Engine, composable kernel on ROCm
    {"flex_attention", WorkKind::kAttention},
    {"_attn_fwd", WorkKind::kAttention},
    {"_attn_bwd", WorkKind::kAttention},
    {"fused_attn", WorkKind::kAttention},
    {"attention", WorkKind::kAttention},
    // Megatron-LM: the softmax of attention that is not fused
    {"scaled_upper_triang_masked_softmax", WorkKind::kAttention},
    {"scaled_masked_softmax", WorkKind::kAttention},
    {"scaled_aligned_causal_masked_softmax", WorkKind::kAttention},

    // PyTorch's foreach copies, as FSDP2 makes them: no update
    {"copyfunctor", WorkKind::kElementwise},
    {"foreach_copy", WorkKind::kElementwise},
    // Apex, Transformer Engine, PyTorch's foreach and fused optimizers; norms and scales of gradients, too
    {"multi_tensor", WorkKind::kOptimizer},
    {"multitensorapply", WorkKind::kOptimizer},
    {"adam", WorkKind::kOptimizer},
    {"fused_sgd", WorkKind::kOptimizer},
    {"newton_schulz", WorkKind::kOptimizer},
    {"addcdiv", WorkKind::kOptimizer},  // Inductor's AdamW

    // cuBLAS and cuBLASLt: nvjet of Hopper and Blackwell; xmma, s16816gemm and the like before
    {"nvjet", WorkKind::kProduct},
    {"gemm", WorkKind::kProduct},  // CUTLASS, DeepGEMM, grouped ones, too
    {"gemv", WorkKind::kProduct},
    {"splitkreduce", WorkKind::kProduct},
    {"xmma", WorkKind::kProduct},
    {"cublas", WorkKind::kProduct},
    {"cutlass", WorkKind::kProduct},
    // rocBLAS and hipBLASLt: Tensile
    {"cijk_", WorkKind::kProduct},
    // Triton: Inductor's templates, grouped products of experts, scattermoe, Megablocks
    {"triton_tem_", WorkKind::kProduct},
    {"matmul", WorkKind::kProduct},
    {"scatter2scatter", WorkKind::kProduct},
    {"_sdd_kernel", WorkKind::kProduct},
    {"_dsd_kernel", WorkKind::kProduct},

    // PyTorch, Apex, Transformer Engine, Liger, flash_attn's Triton norms
    {"layer_norm", WorkKind::kNorm},
    {"layernorm", WorkKind::kNorm},
    {"rms_norm", WorkKind::kNorm},
    {"rmsnorm", WorkKind::kNorm},
    {"rowwisemoments", WorkKind::kNorm},
    {"gammabeta", WorkKind::kNorm},
    {"ln_fwd", WorkKind::kNorm},
    {"ln_bwd", WorkKind::kNorm},
    {"normalization::", WorkKind::kNorm},
    {"l2norm_", WorkKind::kNorm},
    {"pow_rsqrt", WorkKind::kNorm},  // Inductor's RMSNorm

    // PyTorch, Apex' xentropy, Transformer Engine, Liger
    {"cross_entropy", WorkKind::kLoss},
    {"xentropy", WorkKind::kLoss},
    {"nll_loss", WorkKind::kLoss},
    {"softmax", WorkKind::kLoss},

    // PyTorch's embeddings and indexed reads; routers' sorts and permutations in Megatron-LM and Transformer Engine
    {"embedding", WorkKind::kTable},
    {"triton_poi_", WorkKind::kElementwise},  // Inductor's, which name all that is fused
    {"triton_red_", WorkKind::kElementwise},
    {"triton_per_", WorkKind::kElementwise},
    {"indexselect", WorkKind::kTable},
    {"index_elementwise", WorkKind::kTable},
    {"indexing_backward", WorkKind::kTable},
    {"indexfunc", WorkKind::kTable},
    {"compute_grad_weight", WorkKind::kTable},
    {"sum_and_scatter", WorkKind::kTable},
    {"scatter_gather", WorkKind::kTable},
    {"vectorized_gather", WorkKind::kTable},
    {"bounds_check_indices", WorkKind::kTable},  // FBGEMM
    {"linearize_index", WorkKind::kTable},
    {"topk", WorkKind::kTable},
    {"sort", WorkKind::kTable},
    {"histogram", WorkKind::kTable},
    {"permute", WorkKind::kTable},
    {"moe_", WorkKind::kTable},

    // PyTorch; Inductor's pointwise, reduction and persistent kernels; Apex and Transformer Engine
    {"elementwise", WorkKind::kElementwise},
    {"reduce_kernel", WorkKind::kElementwise},
    {"triton_", WorkKind::kElementwise},
    {"catarraybatchedcopy", WorkKind::kElementwise},
    {"chunk_cat", WorkKind::kElementwise},
    {"split_with_sizes", WorkKind::kElementwise},
    {"copy", WorkKind::kElementwise},
    {"cast", WorkKind::kElementwise},
    {"transpose", WorkKind::kElementwise},
    {"dropout", WorkKind::kElementwise},
    {"fill", WorkKind::kElementwise},
    {"rope", WorkKind::kElementwise},
    {"rotary", WorkKind::kElementwise},
    {"swiglu", WorkKind::kElementwise},
    {"silu", WorkKind::kElementwise},
    {"gelu", WorkKind::kElementwise},
    {"quantize", WorkKind::kElementwise},
    {"amax", WorkKind::kElementwise},
    {"distribution_", WorkKind::kElementwise},
    {"cub::", WorkKind::kElementwise},
};

struct CallName {
  absl::string_view name;
  CallKind call;
};
// As torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp names them.
constexpr CallName kPyTorchCalls[] = {
    {"allreduce", CallKind::kAllReduce},
    {"allreduce_coalesced", CallKind::kAllReduce},
    {"all_reduce", CallKind::kAllReduce},
    {"allgather", CallKind::kAllGather},
    {"all_gather", CallKind::kAllGather},
    {"_allgather_base", CallKind::kAllGather},
    {"allgather_into_tensor_coalesced", CallKind::kAllGather},
    {"reduce_scatter", CallKind::kReduceScatter},
    {"_reduce_scatter_base", CallKind::kReduceScatter},
    {"reduce_scatter_tensor_coalesced", CallKind::kReduceScatter},
    {"broadcast", CallKind::kBroadcast},
    {"_broadcast_oop", CallKind::kBroadcast},
    {"all_to_all", CallKind::kAllToAll},
    {"all_to_allv", CallKind::kAllToAll},
    {"alltoall", CallKind::kAllToAll},
    {"send", CallKind::kSendReceive},
    {"recv", CallKind::kSendReceive},
};

struct DtypeName {
  absl::string_view name;
  int64_t bytes;
};
constexpr DtypeName kPyTorchDtypes[] = {
    {"BFloat16", 2}, {"Half", 2}, {"Float", 4}, {"Double", 8}, {"Long", 8},         {"Int", 4},
    {"Short", 2},    {"Char", 1}, {"Byte", 1},  {"Bool", 1},   {"ComplexFloat", 8},
};

// Ops whose kernels are normalizing ones, or sweep over the logits, but for the norms.
constexpr OpKind kLossOps[] = {
    OpKind::kSoftmax,          OpKind::kLogSoftmax,    OpKind::kMseLoss,        OpKind::kCrossEntropy,
    OpKind::kRowMax,           OpKind::kExpSumAndPick, OpKind::kRowPartials,    OpKind::kJoinPartials,
    OpKind::kLossFromPartials, OpKind::kSoftmaxGrad,   OpKind::kLogSoftmaxGrad, OpKind::kMseLossGrad,
    OpKind::kCrossEntropyGrad, OpKind::kPartialsGrad,
};

WorkKind KindOfOp(OpKind op) {
  if (std::find(std::begin(kLossOps), std::end(kLossOps), op) != std::end(kLossOps)) return WorkKind::kLoss;
  if (op == OpKind::kCausalConv || op == OpKind::kCausalConvGrad) return WorkKind::kLinearAttention;
  switch (InfoOf(op).kernel) {
    case KernelClass::kContraction:
      return WorkKind::kProduct;
    case KernelClass::kAttention:
      return WorkKind::kAttention;
    case KernelClass::kLinearAttention:
      return WorkKind::kLinearAttention;
    case KernelClass::kNormalize:
      return WorkKind::kNorm;
    case KernelClass::kGather:
      return WorkKind::kTable;
    case KernelClass::kNone:
    case KernelClass::kMemory:
      break;
  }
  return WorkKind::kElementwise;
}

struct KindOfWork {
  bool optimizer;

  WorkKind operator()(const Compute& compute) const { return optimizer ? WorkKind::kOptimizer : KindOfOp(compute.op); }
  WorkKind operator()(const Slice&) const { return optimizer ? WorkKind::kOptimizer : WorkKind::kElementwise; }
  WorkKind operator()(const Sync&) const { return WorkKind::kElementwise; }  // takes no time
  WorkKind operator()(const Collective&) const { return WorkKind::kCommunication; }
  WorkKind operator()(const Permute&) const { return WorkKind::kCommunication; }
  WorkKind operator()(const Transfer&) const { return WorkKind::kCommunication; }
};

}  // namespace

CallKind CallOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return CallKind::kAllReduce;
    case CollectiveKind::kAllGather:
      return CallKind::kAllGather;
    case CollectiveKind::kReduceScatter:
      return CallKind::kReduceScatter;
    case CollectiveKind::kBroadcast:
      return CallKind::kBroadcast;
    case CollectiveKind::kAllToAll:
      break;
  }
  return CallKind::kAllToAll;
}

absl::string_view NameOf(CallKind kind) {
  for (const CollectiveInfo& row : kCollectives) {
    if (CallOf(row.kind) == kind) return row.name;
  }
  return kind == CallKind::kSendReceive ? "send_receive" : "other";
}

KernelKind KindOfKernel(absl::string_view name) {
  const std::string small = absl::AsciiStrToLower(name);
  for (const KernelName& row : kKernelNames) {
    if (absl::StrContains(small, row.part)) return {row.work, row.call};
  }
  return {};
}

CallKind CallOfPyTorch(absl::string_view collective) {
  for (const CallName& row : kPyTorchCalls) {
    if (row.name == collective) return row.call;
  }
  return CallKind::kOtherCall;
}

int64_t BytesOfPyTorch(absl::string_view dtype) {
  for (const DtypeName& row : kPyTorchDtypes) {
    if (row.name == dtype) return row.bytes;
  }
  return absl::StartsWith(dtype, "Float8") ? 1 : 0;
}

WorkKind KindOfInstruction(const Instruction& instruction, bool optimizer) {
  return std::visit(KindOfWork{optimizer}, instruction.work);
}

}  // namespace meshwright
