#include "tools/profile/kernel_kinds.h"

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

// Names as traces have them, shortened behind what tells.
TEST(KernelKindsTest, OfWhatFrameworksRun) {
  struct Case {
    absl::string_view name;
    WorkKind kind;
  };
  constexpr Case kCases[] = {
      {"nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", WorkKind::kProduct},
      {"ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", WorkKind::kProduct},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", WorkKind::kProduct},
      {"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<",
       WorkKind::kProduct},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(",
       WorkKind::kProduct},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16,", WorkKind::kProduct},
      {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<", WorkKind::kProduct},
      {"Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", WorkKind::kProduct},
      {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64,",
       WorkKind::kAttention},
      {"void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<", WorkKind::kAttention},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_128x128x128", WorkKind::kAttention},
      {"fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<", WorkKind::kAttention},
      {"triton_tem_fused_flex_attention_0", WorkKind::kAttention},
      {"void (anonymous namespace)::scaled_upper_triang_masked_softmax_warp_forward<", WorkKind::kAttention},
      {"chunk_gated_delta_rule_fwd_kernel_h_blockdim64", WorkKind::kLinearAttention},
      {"_chunk_scan_fwd_kernel", WorkKind::kLinearAttention},
      {"void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<", WorkKind::kLinearAttention},
      {"void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<", WorkKind::kNorm},
      {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", WorkKind::kNorm},
      {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3", WorkKind::kNorm},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>", WorkKind::kLoss},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float,", WorkKind::kLoss},
      {"void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<", WorkKind::kLoss},
      {"liger_cross_entropy_kernel", WorkKind::kLoss},
      {"void multi_tensor_apply_kernel<TensorListMetadata<4>, transformer_engine::multi_tensor_adam::AdamFunctorMaster",
       WorkKind::kOptimizer},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
       "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, ",
       WorkKind::kOptimizer},
      {"void multi_tensor_apply_kernel<TensorListMetadata<1>, L2NormFunctor<float>, float*", WorkKind::kOptimizer},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, float, bool,",
       WorkKind::kElementwise},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<",
       WorkKind::kElementwise},
      {"triton_poi_fused__to_copy_permute_7", WorkKind::kElementwise},
      {"triton_poi_fused__scaled_dot_product_flash_attention_2", WorkKind::kElementwise},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<", WorkKind::kElementwise},
      {"void at::native::(anonymous namespace)::indexSelectLargeIndex<", WorkKind::kTable},
      {"void at::native::(anonymous namespace)::embedding_backward_feature_kernel<", WorkKind::kTable},
      {"void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>", WorkKind::kTable},
      {"_permute_kernel", WorkKind::kTable},
      {"something_of_my_own<int>", WorkKind::kOther},
      {"", WorkKind::kOther},
  };
  for (const Case& c : kCases) EXPECT_EQ(NameOf(KindOfKernel(c.name).work), NameOf(c.kind)) << c.name;
}

TEST(KernelKindsTest, OfCommunication) {
  struct Case {
    absl::string_view name;
    CallKind call;
  };
  constexpr Case kCases[] = {
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", CallKind::kAllReduce},
      {"ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", CallKind::kAllGather},
      {"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", CallKind::kReduceScatter},
      {"ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", CallKind::kBroadcast},
      {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", CallKind::kSendReceive},
      {"ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", CallKind::kOtherCall},
      {"void deep_ep::internode::dispatch<false, 8, false, 20480, 32>(int4*, float*,", CallKind::kAllToAll},
      {"void multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>", CallKind::kAllReduce},
  };
  for (const Case& c : kCases) {
    const KernelKind kind = KindOfKernel(c.name);
    EXPECT_EQ(kind.work, WorkKind::kCommunication) << c.name;
    EXPECT_EQ(NameOf(kind.call), NameOf(c.call)) << c.name;
  }
  EXPECT_EQ(CallOfPyTorch("_reduce_scatter_base"), CallKind::kReduceScatter);
  EXPECT_EQ(CallOfPyTorch("all_to_allv"), CallKind::kAllToAll);
  EXPECT_EQ(CallOfPyTorch("wait"), CallKind::kOtherCall);
  EXPECT_EQ(BytesOfPyTorch("BFloat16"), 2);
  EXPECT_EQ(BytesOfPyTorch("Float8_e4m3fn"), 1);
  EXPECT_EQ(BytesOfPyTorch("QInt8"), 0);
}

TEST(KernelKindsTest, OfInstructions) {
  const auto kind_of = [](OpKind op, bool optimizer = false) {
    Instruction instruction;
    Compute compute;
    compute.op = op;
    instruction.work = compute;
    return KindOfInstruction(instruction, optimizer);
  };
  EXPECT_EQ(kind_of(OpKind::kMatMul), WorkKind::kProduct);
  EXPECT_EQ(kind_of(OpKind::kMatMulGelu), WorkKind::kProduct);
  EXPECT_EQ(kind_of(OpKind::kAttentionGrad), WorkKind::kAttention);
  EXPECT_EQ(kind_of(OpKind::kCausalConv), WorkKind::kLinearAttention);
  EXPECT_EQ(kind_of(OpKind::kAddRmsNorm), WorkKind::kNorm);
  EXPECT_EQ(kind_of(OpKind::kRowPartials), WorkKind::kLoss);
  EXPECT_EQ(kind_of(OpKind::kSwiglu), WorkKind::kElementwise);
  EXPECT_EQ(kind_of(OpKind::kDispatch), WorkKind::kTable);
  EXPECT_EQ(kind_of(OpKind::kCast, true), WorkKind::kOptimizer);
  Instruction transfer;
  transfer.work = Transfer{};
  EXPECT_EQ(KindOfInstruction(transfer, false), WorkKind::kCommunication);
}

}  // namespace
}  // namespace meshwright
