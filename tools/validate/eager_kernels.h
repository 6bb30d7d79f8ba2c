// What eager frameworks move and issue besides our kernels, counted in their code: bytes an element as HostPace has
// them, of a forward and of a backward pass, operators, and nanoseconds of CPU. Constants, each with its source.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_EAGER_KERNELS_H_
#define MESHWRIGHT_TOOLS_VALIDATE_EAGER_KERNELS_H_

#include <cstdint>

#include "ir/quantities.h"
#include "simulator/price.h"

namespace meshwright {

// Hugging Face's GPT-2 in eager mode under autocast (modeling_gpt2.py and PyTorch's list of operators that autocast
// runs in float32): what its attention moves besides the passes of a fused softmax with dropout, bytes a score.
//   forward   divide 2+2, mask 2+2, cast to float32 2+4, softmax 4+4 instead of 2+2, cast back 4+2
//   backward  cast 2+4, softmax 4+4+4 instead of 2+2+2, cast 4+2, mask 2+2, divide 2+2
inline constexpr EagerBytes kEagerScores = {24, 26};
// FlashAttention's comparisons ran it with Mistral's options (its training/configs/model/gpt2-hf.yaml), of which
// `scale_attn_by_inverse_layer_idx` divides once more, 2 + 2.
inline constexpr EagerBytes kEagerScoresByLayer = {kEagerScores.forward + 4, kEagerScores.backward + 4};
// Its gelu_new, 0.5 x (1 + tanh(c (x + d x^3))), one operator after the other. Autocast takes the power to float32, and
// what it is part of stays there (transformers, activations.py):
//   forward   half of x 2+2; x cast 2+4, to the third 4+4, times d 4+4, plus x 2+4+4, times c 4+4, tanh 4+4, plus one
//             4+4, times the half 2+4+4, cast for the product 4+2: 76, of which ours has 4
//   backward  cast 2+4; product: 4+4+4, cast 4+2 and halved 2+2, and 4+2+4; tanh 4+4+4, times c 4+4, cast for x 4+2,
//             times d 4+4, the power's gradient (a power, times three, a product) 4+4, 4+4, 4+4+4 and its cast 4+2, two
//             sums of three gradients 2 (2+2+2): 118, of which ours has 6
inline constexpr EagerBytes kHuggingFaceActivations = {76 - 4, 118 - 6};

// Its residual stream is float32, since norms give float32 and nothing narrows the sums: around a norm, forward, the
// norm reads and writes 4 + 4 instead of 2 + 2, a cast for the product 4 + 2, a dropout 2 + 2 and its mask 1, and the
// sum 4 + 2 + 4 instead of 2 + 2 + 2. Backward the norm moves 12 instead of 6, a cast 2 + 4, the dropout 5, the cast of
// the branch's gradient 4 + 2, the sum of the two gradients 4 + 4 + 4 instead of 6. Queries, keys and values are copied
// for batched products, 4 each, and the heads joined, 4; backward the same, and the three gradients joined, 12.
inline constexpr EagerBytes kHuggingFaceNorms = {4 + 6 + 5 + 4, 6 + 6 + 5 + 6 + 6};
inline constexpr EagerBytes kHuggingFaceQueries = {16, 28};

// The same without dropout, where embeddings in float32 make a residual stream of that under autocast.
inline constexpr EagerBytes kWideNorms = {kHuggingFaceNorms.forward - 5, kHuggingFaceNorms.backward - 5};

// minGPT has the same operators (mingpt/model.py, NewGELU and CausalSelfAttention), each of 16 bits where no autocast
// widens it: scores times a factor, 2 + 2, and the mask, 2 + 2; of GELU forward four operators of one operand beside
// the power and the tanh, 4 each, and two of two, 6 each, of which ours has 4; backward the product's two gradients,
// 6 + 6, the halved one 4, tanh 6, two factors 4 + 4, the power's 4 + 4 + 6 and two sums of 6, of which ours has 6.
// Its dropouts are kernels, 2 + 2 and a mask of 1; backward 2 + 1 + 2.
inline constexpr EagerBytes kMinGptScores = {8, 8}, kDropoutNorms = {5, 5};
// In float32 4 + 4 and the mask each way.
inline constexpr EagerBytes kWideDropoutNorms = {9, 9};
// OPT in float16 (modeling_opt.py of 4.44): scores get the mask, 2 + 2, and the larger of them and the least number, 2
// + 2, a softmax in float32 writes 4 instead of 2, and a cast 4 + 2; nothing is dropped, which ours counts, 5. Backward
// the cast 2 + 4, the softmax 4 + 4 + 2 instead of 6, the choice of the larger 2 + 1 and 2 + 1 + 2, without the 5.
inline constexpr EagerBytes kOptScores = {11, 13};
inline constexpr EagerBytes kMinGptActivations = {36 - 4, 56 - 6};

// Megatron-LM's layers (megatron/model/transformer.py of 2021). PyTorch before 1.12 adds the bias of a linear layer
// with three dims by a kernel of its own (pytorch issue 39661, pull request 72728): 2 + 2 of queries, keys and values
// each; the context is copied, 4; backward the three gradients are joined, 12, and the context's copied, 4. Hidden
// dropout, one for each norm, is fused with the sum: forward it writes a mask, 1, backward it is a kernel, 2 + 1 + 2.
inline constexpr EagerBytes kMegatronQueries = {12 + 4, 12 + 4};
inline constexpr EagerBytes kMegatronNorms = {1, 5};
// With FlashAttention in these layers (FlashSelfAttention, 2022 on): the same biases, 12, copies of all three into its
// order, 12, and backward the gradients joined, 12.
inline constexpr EagerBytes kMegatronFlashQueries = {12 + 12, 12};
// Modalities turns queries, keys and values to heads first, 12, for its rotary positions, and back for FlashAttention,
// 12 (models/gpt2/gpt2_model.py, CausalSelfAttention); backward those are views.
inline constexpr EagerBytes kModalitiesQueries = {12 + 12, 0};
// Without its fusion: a bias, 2 + 2, and a dropout, 2 + 2 and its mask, before the sum.
inline constexpr EagerBytes kUnfusedNorms = {4 + 5, 5};

// A bias that is added by a kernel of its own, as before the activation (Narayanan et al. 2021, section 4.2): read and
// write.
inline constexpr EagerBytes kUnfusedBias = {4, 0};

// ModelCenter's layers, all of 16 bits (layer/attention.py, layer/linear.py). Scores are divided, 2 + 2, and filled
// where the mask says before and behind the softmax, each time in a copy, 2 (4 + 4); backward the same. Queries, keys
// and values get a bias each, 12, and are copied, 12, as is the context, 4; backward those are copied, 16, and their
// three gradients added up, 12.
inline constexpr EagerBytes kModelCenterScores = {20, 20};
inline constexpr EagerBytes kModelCenterQueries = {12 + 12 + 4, 16 + 12};

// NVIDIA's BERT (DeepLearningExamples, PyTorch, modeling.py): scores are divided, 2 + 2, and get the mask added, 2 + 2,
// before the softmax; backward the division again. Its queries are as ModelCenter's, around a norm is what Megatron-LM
// has without its fusion.
inline constexpr EagerBytes kNvidiaBertScores = {8, 4};

// A gate in steps: forward silu 2 + 2 and a product 4 + 2 instead of 4 + 2; backward two products 4 + 2, silu 4 + 2 and
// the gradients of both halves joined, 4 + 4, instead of 6 + 4.
inline constexpr EagerBytes kStepsOfGates = {4, 16};

// FSDP2 copies what it gathered into the parameters, 2 + 2, and gradients into what it scatters in float32, 2 + 4, on
// the stream of the kernels (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py; pytorch issue 157027
// measures 1.4 % of a step).
inline constexpr EagerBytes kFsdp2Parameters = {4, 4 + 6};

// FSDP1 gathers into the flat parameter itself. Backward the gradients of its views are joined, 2 + 2 (its parameters
// are torch.split's, _flat_param.py), and divided by half of the ranks' number before they are scattered, 2 + 2
// (_runtime_utils.py, _reduce_grad); scattered in float32 they are cast, 2 + 4, and divided so, 4 + 4.
inline constexpr EagerBytes kFsdp1Parameters = {0, 4 + 4}, kFsdp1WideParameters = {0, 4 + 6 + 8};

// Gathered in float32 for autocast: a cast to 16 bits, 4 + 2; backward the gradient's, 2 + 4, the views' joined, 4 + 4,
// one to the 16 bits that are scattered, 4 + 2, and the division, 2 + 2.
inline constexpr EagerBytes kFsdp1AutocastParameters = {6, 6 + 8 + 6 + 4};

// DeepSpeed's ZeRO-3 joins each parameter's pieces out of what it gathered for several, 2 + 2 (partition_parameters.py,
// AllGatherCoalescedHandle), in either pass; gradients are copied to a bucket, 2 + 2 (stage3.py,
// __add_grad_to_ipg_bucket), joined by rank, 2 + 2, and divided, 2 + 2 (coalesced_collectives.py,
// reduce_scatter_coalesced).
inline constexpr EagerBytes kZero3Parameters = {4, 4 + 12};

// Its ZeRO-2 copies gradients to a bucket, 2 + 2, and divides them, 2 + 2 (stage_1_and_2.py, average_tensor), behind
// each micro-batch (engine.py, allreduce_gradients).
inline constexpr EagerBytes kZero2Parameters = {0, 4 + 4};

// DeepSpeed's optimizer for bfloat16 casts each gradient behind each micro-batch, 2 + 4, and adds that to the float32
// one, 8 + 4 (bf16_optimizer.py, `_update_hp_grad`): 18, of which a kernel that adds what it casts has 10.
inline constexpr EagerBytes kBf16OptimizerParameters = {0, 4 + 4};

// PyTorch's autocast casts weights from float32 once in each forward pass, 4 + 2, and their gradients back, 2 + 4,
// which are then added to float32 ones, 4 instead of 2 (its documentation, `cache_enabled`).
inline constexpr EagerBytes kAutocastParameters = {6, 6 + 2};

// Nemotron's squared ReLU as two operators: forward the square reads and writes, 4, besides ours; backward its
// derivative, the first power, is copied, 4, doubled, 4, and taken times the gradient, 4 + 2.
inline constexpr EagerBytes kSquaredRelu = {4, 14};

// Composer's two training metrics (LanguageCrossEntropy, LanguagePerplexity), on unless switched off (MPT's
// `use_train_metrics`): each casts the logits to float32, 2+4, takes their log-softmax, 4+4, and what they say goes
// unread.
inline constexpr EagerBytes kTrainMetrics = {2 * (6 + 8), 0};

// cuBLAS before CUDA 11.7 (June 2022): batches of 1024 x 1024 x 140 in bfloat16 took 12.2 TFLOP/s on A100 with 11.6
// where 11.7 takes 85.6 (pytorch issue 83272). As a share of what aligned products reach there, 0.959 of 312 TFLOP/s
// (costmodel/data/a100-sxm-80gb.yaml), with tiles of 64 columns, of which 140 take three: that batch then costs what it
// was measured to take, 9.2 ms. (The cache binds the 85.6 in our prices, so that a ratio to them says nothing.) In
// float16, 11.6 had gained (53.9); with 11.5, BLOOM's chronicles time both types alike, 845 and 854 s with heads of
// 150.
inline constexpr double kEarlyMisalignedAttention = 12.2 / (0.959 * 312) * (192.0 / 140);

// Operators around experts, as Megatron-Core issues them (its release 0.17, megatron/core/transformer/moe: router.py,
// moe_utils.py, token_dispatcher.py), each a call from Python with a kernel of its own. A step of Qwen3-30B in
// Megatron-Bridge's study of overlap has 463,348 kernels, 151 a layer and micro-batch; with the 48 of 8 experts'
// products and some 25 of attention and norms that leaves 78, where these are 65.
//   router    operands to float32 2, choice, softmax, its type, a table of zeros, scattered 5, the map of experts 4
//   its loss  softmax, choice, a map 4, counts, a sum, a product, a sum, a factor, kept for the log 2
//   counts    sum, type, by rank, gathered, cut, three sums 8, to the host 4
//   tokens    the order 3, permutation, the all-to-all of probabilities, by experts 2
//   behind    by ranks 2, permutation
//   backward  permutation, order; order, probabilities' all-to-all, permutation; scores 5, the loss 6, casts 2, a sum
// A CUDA graph of the router leaves what goes to the host and the tokens.
inline constexpr PassSteps kMegatronDispatch = {11 + 13 + 12 + 7, 3 + 5 + 6 + 2 + 1}, kMegatronCombine = {3, 2};
inline constexpr PassSteps kBehindRouterGraph = {4 + 7, 3};
// Transformers' layers (modeling_granitemoe.py, GraniteMoeTopKGating): choice, softmax, its type, a table of zeros and
// what is scattered into it 5, counts 2, the order of all choices 3, probabilities and tokens in that order 2; behind,
// the weights and the sum. Backward as many, for sums of gradients stand for what needs none.
inline constexpr PassSteps kPlainDispatch = {12, 12}, kPlainCombine = {2, 2};
// Transformer Engine's grouped products launch one for each expert (general_grouped_gemm), and in float8 a cast. Each
// is a call of cuBLAS with descriptors and a choice of algorithm (nvte_multi_tensor_gemm), beside pieces of the input
// and tensors that are saved (module/grouped_linear.py): taken for what PyTorch takes for a linear layer, kOperator. Of
// its backward pass each expert's parameter gets a gradient that stands for the one which the product has added
// already, an accumulation by autograd and Megatron's hook of it (grouped_linear.py, handle_custom_ddp_from_mcore;
// distributed_data_parallel.py, _make_backward_post_hook): taken for one more.
inline constexpr int64_t kExpertLaunches = 1;

// What Megatron-Core does to the results of experts that have biases: one after the other it adds the bias times the
// tokens' weights, joins what comes out, and casts it back (experts.py, `_apply_bias`). With weights in 16 bits, bytes
// an element:
//   forward   product 2, sum 2+2+2, joined 2+2
//   backward  for the bias a product 2+2 and its sum 2, for the weights the same, parts joined 2+2
// With weights in float32, as DeepEP and HybridEP ask for them (token_dispatcher.py): product 4, sum 2+4+4, joined 4+4,
// cast 4+2; cast 2+4, to the type of the parts 4+2, for the bias 4+4+4, for the weights 4+4+4, joined 2+2.
inline constexpr EagerBytes kBiasedResults = {12, 16}, kBiasedResultsWide = {28, 40};
inline constexpr EagerBytes kBiasedSteps = {2, 4};
// Rotary positions of packed rows where Megatron-Core has no kernel for them: of queries and of keys, one example after
// the other (rope_utils.py of June 2026, `_apply_rotary_pos_emb_thd`).
//   forward   cosine, sine, each times a factor and cast 6, two products, a sign, two joins, a sum, put in place 7
//   backward  all examples' gradient copied, the example's, zeros for it put back (PyTorch's CopySlices) 4, two
//             products, a sign, a join, a sum 5, zeros for dimensions without positions, a sum 2
// By kOperator each.
inline constexpr PassSteps kPositionSteps = {2 * 13, 2 * 11};
// index_add_ in bfloat16 has no native addition and swaps words until none came between. On B300 a call takes 0.38 ms
// for the 4 x 4,096 x 2,880 elements of GPT-OSS, and 1.5 ms for four times as many (halo's grouped-gemm.md): 8 ps an
// element, in which its memory moves so many bytes. One in the forward pass, one behind the gather in the other.
inline constexpr EagerBytes kIndexAddResults = {49, 49};
// The same where Megatron-Core's permutation is not fused (moe_utils.py, `unpermute`: scatter_add_ of tokens; the
// gradient of `permute`'s index_select), which adds words one by one in the same way; besides, in either pass an order
// by experts of all slots of the map is sorted.
inline constexpr EagerBytes kUnfusedPermutation = kIndexAddResults;
// A loop over experts that takes each one's matrix out of a parameter of all (Transformers' GraniteMoe and JetMoe,
// `self.weight[i]`, which also wait for the counts, `tolist`): PyTorch's derivative of a slice fills a gradient of the
// whole parameter with zeros (select_backward), which autograd adds to that of the experts before. Bytes an element and
// expert, in 16 bits 2 + 2+2+2; under autocast in float32.
inline constexpr double kWholeGradients = 8, kWideWholeGradients = 16;
// Such a loop over modules (Transformers 4, modeling_mixtral.py, modeling_qwen3_moe.py): of each expert its tokens are
// looked for and gathered, act and times, the weights gathered and times, added to the others' by index_add_ 7;
// backward gathered, two gradients of each of the products and those of what was gathered 10.
inline constexpr EagerBytes kLoopSteps = {7, 10};
// The CPU's time for an operator of PyTorch's, a linear layer's, on a DGX H100 (Xeon 8480C) and on a GB200 (Transformer
// Engine's issue 2053).
inline constexpr Nanos kOperator = Nanos(13'480), kOperatorOnGrace = Nanos(37'080);
// What hooks of FSDP take around each pass of a module whose parameters it gathers, on a Xeon ("1 ms launches", pytorch
// issue 173680, PyTorch 2.10).
inline constexpr Nanos kUnitHooks = Nanos(1'000'000);
// A Grace CPU's time over that Xeon's: 37.08 us on GB200 and 33.17 on GH200 (the same table), their mean.
inline constexpr double kGracePace = (37.08 + 33.17) / 2 / 13.48;

// An operator of ours under transformers, whose layers have no autograd functions in Python as Megatron's have. In the
// tables of inference of its pages of BERT (A100) and OPT (L40S), docs/source/en/model_doc, with batches so small that
// the CPU sets the pace, a layer takes 412 and 360 us with PyTorch's attention and 474 and 484 us without, which are
// ten and fourteen of our operators: 34 to 41 us, the mean of these. Its tables of training are kept as published rows.
inline constexpr Nanos kHuggingFaceOperator = Nanos(36'400);

// Elements that an optimizer reads and writes for each that it updates. PyTorch's AdamW over lists of tensors (torch/
// optim/adam.py, _multi_tensor_adam): decay 2, first moment 3, second 2 + 3, its root 2, divided 2, epsilon 2, and the
// step 4. Transformers' own of before (optimization.py, AdamW.step), tensor by tensor: first moment 2 + 3, second 2 +
// 3, root 2, epsilon 2, the step 4. In one kernel the parameter, two moments and the gradient.
inline constexpr double kListsOfTensors = 20, kTensorByTensor = 18, kOneKernel = 7;
// Moments of 16 bits that Transformer Engine's Adam widens and narrows around its kernel (fused_adam.py): each is read
// and written in float32, 2 + 4, narrowed, 4 + 2, and copied back, 2 + 2.
inline constexpr double kWideningBytes = 2 * (6 + 6 + 4);
// Transformers' Adafactor (optimization.py) squares the gradient 2, adds 2, takes means by rows and columns 2, their
// product 1, times the gradient 3, its norm 1, divides 2, times the rate 2, turns it 2, adds it 3, and a norm of the
// parameter 1. Operators that either runs for each parameter, with the norm and the product of clipping.
inline constexpr double kFactored = 21, kStepsByTensor = 7 + 2, kFactoredSteps = 20 + 2;
// Clipping reads gradients, reads and writes them (torch/nn/utils/clip_grad.py); a scale of the loss is taken out in
// one more pass (amp/grad_scaler.py).
inline constexpr double kClippingPasses = 3, kUnscalingPasses = 2;

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_EAGER_KERNELS_H_
