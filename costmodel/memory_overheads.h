// Device memory that a training process loses outside its tensors: driver context, NCCL's buffers, library workspaces.
//
// The arena of a Program is planned to the byte; these are what the planner must leave free beside it. Each number is a
// named constant with its source; none was measured by us yet.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_MEMORY_OVERHEADS_H_
#define MESHWRIGHT_COSTMODEL_MEMORY_OVERHEADS_H_

#include <cstdint>

#include "ir/cluster.h"
#include "ir/quantities.h"

namespace meshwright {

// CUDA context and the libraries' code: 0.47 GiB with lazy loading of modules, 0.92 without (A100,
// stas00/ml-engineering). The default since CUDA 11.7 is lazy, but frameworks load much: between the two.
inline constexpr Bytes kContextBytes = MiB(750);
// PyTorch asks for lazy loading since 1.13 of October 2022 (torch/cuda/__init__.py); before it all modules were loaded.
inline constexpr Bytes kEarlyContextBytes = MiB(942);

// One NCCL communicator inside a node: 342 MiB over 2 GPUs, 392 MiB over 4 and 8 (ai-dynamo/aiconfigurator
// systems/*.yaml).
inline constexpr Bytes kCommunicatorBytes = MiB(392);
inline constexpr Bytes kPairCommunicatorBytes = MiB(342);

// The same before NCCL 2.22 (July 2024), which connects only what a call uses: 544 MB over 2 A100, 688 MB over 4 (NCCL
// issue 964).
inline constexpr Bytes kEarlyCommunicatorBytes = Bytes(688000000);
inline constexpr Bytes kEarlyPairCommunicatorBytes = Bytes(544000000);

// Buffers of the switch's reductions, on top: 16 channels x 2 x 1 MiB x 8 heads (arithmetic from NCCL 2.28 sources).
inline constexpr Bytes kNvlsBytes = MiB(256);
// The same for each rank of a node in NCCL 2.18 to 2.20: 16 channels x 2 x (4 MiB + 2 MiB) (transport/nvls.cc).
inline constexpr Bytes kEarlyNvlsBytes = MiB(192);

// A communicator with one rank per node: 4 channels of 2 connections, each 9.19 MiB rounded to 10 (NCCL 2.28 sources:
// LL 512 KiB, LL128 4.69 MiB, Simple 4 MiB), and its bookkeeping, a guess of 20 MiB.
inline constexpr Bytes kNodeCommunicatorBytes = MiB(100);

// Send and receive channels to every peer of a node for all-to-all: 32 channels x 10 MiB for each of at most 7 peers
// (arithmetic from NCCL 2.28 sources, not observed).
inline constexpr Bytes kPairChannelBytes = MiB(320);

// cuBLAS workspace of one stream: 32 MiB on Hopper and later, 8.1 MiB before (PyTorch pull request 120925).
inline constexpr Bytes kBlasWorkspaceHopperBytes = MiB(32);
inline constexpr Bytes kBlasWorkspaceBytes = Bytes(8519680);

// PyTorch takes workspaces from its allocator, one for each thread that issues products (cuda/CUDABlas.cpp,
// getWorkspace; cuda/CublasHandlePool.cpp): forward and backward. Transformer Engine has one more for its own
// (module/base.py, get_workspace).
inline constexpr int kPyTorchWorkspaces = 2, kTransformerEngineWorkspaces = 3;

// The host back end: stacks and library buffers of one thread. A guess.
inline constexpr Bytes kHostBytes = MiB(16);

// What a framework holds of each parameter besides the weights, gradients and optimizer state that a program has: bytes
// an element, of all parameters of the rank and of those whose optimizer state it owns.
struct FrameworkCopies {
  double whole = 0, owned = 0;
  double weights = 0;          // the same of weights of layers alone, without embedding and head
  double update = 0;           // and of the latter while they are updated, when nothing is kept for a backward pass
  double updated_at_once = 0;  // elements of them; 0: all
  double activations = 0;      // share of what is kept for the backward pass
  // Of each token and layer, besides: bytes an element of the hidden size and of the gates' width.
  double norms = 0, gates = 0;
  double scores = 0;             // of each key and head
  double turned_heads = 0;       // of the heads' width, where a micro-batch has more than a row
  double keys = 0;               // of the heads' width
  double logits = 0;             // of each logit
  bool gathered_inputs = false;  // keeps what tensor parallelism gathers for its two wide products a layer
  bool gathered_keys = false;    // and values, of all ranks of a sequence, while a layer's attention runs
  bool gathers_lists = false;    // nanotron's ZeRO-1 gathers parameters through lists of tensors
  Bytes buckets;                 // flat buffers of a fixed size that a step takes
  bool pieces = false;           // of gradients, beside no whole ones
  bool shards = false;           // of weights, beside the whole ones
  bool fresh_gradients = false;  // the backward pass makes them, and they are gone before the next forward pass
  double sum = 0;  // of gradients that micro-batches add up whole, where ranks hold parts: for each element
  bool narrow_passing = false;  // whole gradients that are about to be split are as wide as the weights
  bool one_gradient = false;    // each parameter is updated as soon as its gradient is there
  bool offloads = false;        // checkpoints of layers go to the host
  bool wide_rest = false;       // what is not quantized of the weights is in float32, where ours has 16 bits
  bool host_weights = false;    // weights come from the host, a layer at a time, and with them what trains them
  double flat_gradients = 0;    // of each frozen weight of a layer, which its adapters share a flat parameter with
  double adapters = 0;          // of each parameter of adapters
  double adapted = 0;           // of each token and layer, kept by adapters
  bool caches = true;           // memory comes from a caching allocator
  bool whole_experts = false;   // replicas do not split what a rank has of the experts
  bool weighs_inside = false;   // experts weigh what their last product reads, and what it makes is not kept
  bool scans_again = false;     // a state space keeps its gated result in place of the convolution's
  bool whole_table = false;     // tensor parallelism does not cut the embedding
  int workspaces = 0;           // of cuBLAS that come from the allocator, of as many handles
  bool node_group = false;      // a communicator of a node's devices, besides those that split the model

  friend bool operator==(const FrameworkCopies&, const FrameworkCopies&) = default;
};

// What autograd keeps of steps where ours has a kernel. RMS norms (Llama's, as published): the input cast to float32,
// 4, and the result before the scale, 2, where ours reads the residual stream, 2: 4 more, two norms a layer. Gates: the
// activated half, 2.
inline constexpr double kSplitNorms = 2 * 4;
inline constexpr double kSplitGates = 2;
// Norms of queries and of keys in steps keep what others do, 4 and 2 (transformers' modeling_qwen3.py), where ours has
// what it reads, 2. That holds the values, too, which lie behind the norms once more; frameworks have them once
// (Megatron-Core's attention.py norms what is cut out of one tensor).
inline constexpr double kSplitQueryNorms = 4, kNormedValues = 2;

// PyTorch's scaled_dot_product_attention had one key for each query until 2.5: who calls it repeats keys and values
// (repeat_kv in transformers, torchtitan; expand in torchtune and litgpt), and autograd keeps them so, 2 each.
inline constexpr double kRepeatedKeys = 2 + 2;
// Megatron-LM and litgpt have one product of queries, keys and values. The values are a view of its result, which is
// kept for them with the queries, 2, and the keys, 2 each, from before their rotation (transformer.py,
// ParallelAttention; litgpt's model.py, CausalSelfAttention, where each query has a key). Megatron-LM's norms are
// kernels.
inline constexpr double kJoinedQueries = 2, kJoinedKeys = 2;

// FlashAttention's training code keeps the residual stream in float32 where ours is 2 bytes, and a mask of each of its
// dropouts, 1; two of either a layer (training/configs, `residual_in_fp32`; GPT2Config's dropout of 0.1).
inline constexpr double kWideResiduals = 2 * (4 - 2) + 2 * 1;

// Dropout keeps a mask, 1, of what is added to the residual stream, twice a layer, and of attention's scores, with the
// result, 2, beside what softmax gave (Korthikanti et al. 2022, section 4.1).
inline constexpr double kDropoutMasks = 2 * 1, kDropoutScores = 1 + 2;

// Mixed precision in fp16: the optimizer reads gradients in float32 (Megatron-LM's documentation counts 20 bytes a
// parameter where weights, gradients and state are 16; DeepSpeed's estimate is 4 + 16/d). Megatron-LM copies them
// behind the last backward pass (optimizer.py, _copy_model_grads_to_main_grads).
inline constexpr double kFloat32GradientCopy = 4;
// DeepSpeed's ZeRO first flattens the gradients of a rank's part in their own type (zero/stage_1_and_2.py, step()), and
// Megatron-LM's replicas all gradients before they were in buffers (model/distributed.py, `_flatten_dense_tensors`).
// ZeRO-3 does both for a group of parameters at a time (zero/stage3.py, _prepare_fp32_grad_for_sub_group), of 1e9
// elements by default (zero/config.py, sub_group_size).
inline constexpr double kFlatGradientCopy = 2, kDeepSpeedGroupElements = 1e9;
// Apex's distributed Adam, which NeMo uses, holds of each parameter in float32 only the 16 bits that bf16 lacks
// (`store_param_remainders`); so does Megatron-Core where it is told to (`use_precision_aware_optimizer`).
inline constexpr double kParameterRemainders = -2;
// Transformer Engine keeps the inputs of products as float8, and attention's output besides. Of the 34 bytes a token
// and hidden element of a GPT layer (Korthikanti et al. 2022) the inputs are 2 + 2 + 8, which become 1 + 1 + 4, and 1
// is added; of the 37 of a gated layer with ffn 3.5 h, 2 + 2 + 7 become half, and 1 is added. The smaller of the two.
inline constexpr double kFloat8Activations = -0.12;
// It quantises weights of 16 bits once a step, in the first micro-batch, and keeps the result beside them, with the
// transpose where there is one (KeepsTransposes; module/base.py, quantize_weight with `cache=is_first_microbatch`,
// which Megatron-Core's extensions/transformer_engine.py passes).
inline constexpr double kFloat8Copy = 1, kFloat8CopyAndTranspose = 2;
// Training in 16 bits alone (Lightning's `bf16-true`, torchtune's `dtype: bf16`): no masters, 4, and two moments of 2
// where ours are of 4. State in 8 bits: moments of 1 (Dettmers et al. 2022); factored: none to speak of.
inline constexpr double kNoMasters = -4, kHalfMoments = 2 * (2 - 4), kEightBitMoments = 2 * (1 - 4);
inline constexpr double kNoMoments = 2 * (0 - 4);
// Transformer Engine's Adam makes copies in float32 of moments of 16 bits, all of them before its kernel runs
// (pytorch/optimizers/fused_adam.py, get_unscaled_state and step).
inline constexpr double kWidenedMoments = 2 * 4;

// PyTorch's AdamW takes the parameters of a device together unless told otherwise, and holds the roots of all second
// moments meanwhile (torch/optim/adamw.py, _multi_tensor_adamw).
inline constexpr double kForeachRoots = 4, kHalfForeachRoots = 2;

// Hugging Face's GPT-2 under autocast keeps 7 bytes a score (softmax in float32, dropout's mask and result) and, of a
// token and hidden element, 94: norms' inputs in float32 and outputs cast, copies of queries, keys and values, and 14
// of each element of gelu_new's steps. Ours are 2 and 28: with 16 or 32 scores an element, 2.4 times as much more.
inline constexpr double kHuggingFaceActivationShare = 2.4;
// Its layers take softmax in float32 and keep that and its cast (modeling_llama.py, eager_attention_forward), 4 more
// than ours; where a layer is run again its backward pass casts their gradient and takes it through softmax besides, 4
// + 4.
inline constexpr double kScoresAgain = 4 + 4 + 4;
// Its BERT has a kernel for GELU. Under autocast a layer keeps, of a token and hidden element, two norms' inputs in
// float32 and results cast, 2 x 6, queries, keys, values and attention's result, 8, both sides of GELU, 16, and two
// masks: 38 where ours are 32, and 7 bytes a score where ours are 2 (modeling_bert.py). In float32 a score is 4 + 1 + 4
// where ours is 4, and masks are all there is else.
inline constexpr double kBertActivations = 38 - 32, kBertScores = 7 - 2, kWideDropoutScores = 1 + 4;
// Its OPT keeps the larger of scores and the type's lowest number, 2, and of softmax what it gave, 2; with float16 it
// takes softmax in float32, 4, and keeps that and its cast (modeling_opt.py, OPTAttention, at v4.46).
inline constexpr double kKeptOptScores = 2 + 4 + 2 - 2, kKeptNarrowOptScores = 2 + 2 - 2;
// TensorFlow 1's BERT (DeepLearningExamples, TensorFlow/LanguageModeling/BERT/modeling.py) keeps of dropout a mask as
// wide as the numbers, of the residual stream's two and of the scores' with its result, and of GELU's chain tanh and
// what multiplies x. In elements.
inline constexpr double kTensorFlowMasks = 2, kTensorFlowScores = 2, kTensorFlowGelu = 2;
// PyTorch's autograd makes a gradient in the type of the weight, also where a framework adds it up in float32
// elsewhere; DistributedDataParallel keeps all of them in its buckets.
inline constexpr double kBucketGradientCopy = 2;

// PyTorch's autocast: weights in float32 where ours are 16 bits wide and their cast copies (4 + 2 for 2), with replicas
// gradients in float32 again in DistributedDataParallel's buckets (4); the weights are the optimizer's masters.
inline constexpr double kAutocastCopies = 4, kAutocastBuckets = 4;
inline constexpr double kAutocastMasters = -4;

// A frozen weight of 4 bits (bitsandbytes, functional.py, quantize_4bit: a scale in float32 for each 64).
inline constexpr double kQuantizedWeightBytes = 0.5 + 4.0 / 64;

// MatMul4Bit kept the input of each product, though no weight's gradient wants it, until bitsandbytes 0.43.2 of July
// 2024 (its pull request 1270): both norms' results, 2 of the hidden size each, attention's, 2 of the heads' width,
// and the activation's, 2 of the gates' width. Who checkpoints layers has one layer's of them.
inline constexpr double kQuantizedNorms = 2 * 2, kQuantizedHeads = 2, kQuantizedGates = 2;
// What an adapter's parameter takes with its gradient and two moments: in 16 bits where all is, else in float32, as
// PEFT makes them (`autocast_adapter_dtype`).
inline constexpr double kAdapterBytes = 16, kHalfAdapterBytes = 8;

// FSDP's pieces of the weights are the optimizer's masters, where ours are 16 bits wide beside these: the cast copies
// are made for a layer at a time (torch/distributed/fsdp/_fully_shard/_fsdp_param.py).
inline constexpr double kShardsAreMasters = -2;
// The same where ours are of 8 bits, without a transpose; with it they are 2 again.
inline constexpr double kNarrowShardsAreMasters = -1;

// A caching allocator reserves more than its tensors take, and tools outside of the process see what is reserved.
// Megatron-LM's own estimate (theoretical_memory_usage.py) adds this share.
inline constexpr double kAllocatorSlack = 0.05;

// nanotron keeps the sequence as the first dim, attention has it second: with more than one row the result is copied
// for the product behind it, which keeps the copy (models/llama.py, o_proj).
inline constexpr double kTurnedHeads = 2;
// At the loss a program has logits in 16 bits, cast, and the gradients of both: 2 + 4 + 4 bytes, without the first once
// it is cast. Hugging Face's heads have four: the logits, shifted by a token, the logarithms of their softmax and the
// gradient of that. They are in float32 where the model casts them (transformers 4.31, modeling_llama.py) or autocast
// does, 16 bytes, else in the type of the weights, 8 (modeling_gpt2.py). Losses that write the gradient where the
// logits were have one less in 16 bits (llm.c, fused_classifier; flash-attn's with `inplace_backward`).
inline constexpr double kWideHuggingFaceLogits = 16 - 10, kHuggingFaceLogits = 8 - 10;
// Since 4.45 they are cast in the loss, which lets go of that copy, and none is shifted (loss/loss_utils.py,
// ForCausalLMLoss); TRL, which asks for logits to count right tokens, lets go of those before the backward pass.
inline constexpr double kFloatLogits = 4;
inline constexpr double kInPlaceLogits = -2;
// Where a residual stream in float32 comes to the head: all that is kept is twice as wide, and of the wide logits the 2
// bytes that are counted there already.
inline constexpr double kWideActivations = 1, kWideRestLogits = 16 - 10 - 2;
// What a loss holds of a logit at most, all told. PyTorch's on 16-bit logits (litgpt): logits, logarithms, the
// gradients of both. torchtune and torchtitan (components/loss.py up to 0.2.2) cast the model's result to float32: four
// of 4, compiled the logits, their gradient, and that cast; in chunks (CEWithChunkedOutputLoss) 16-bit logits and their
// gradients, and until backward the logarithms, which compiled code makes again. A loss that has the product before it
// in it (Liger) holds a chunk of the rows, next to nothing.
inline constexpr double kHalfLoss = 8, kWideLoss = 16, kCompiledWideLoss = 10, kChunkedLoss = 8;
inline constexpr double kCompiledChunkedLoss = 4, kLinearLoss = 0;
// A kernel for the loss where transformers calls it, with logits that it cast and kept (loss/loss_utils.py,
// ForCausalLMLoss): 2 + 4, and the gradient cast back, 2.
inline constexpr double kKernelOnCastLogits = 8;
// Megatron-LM's casts the logits and works in that copy, forward and backward, then casts the gradient: 2 + 4, then 4 +
// 2 (mpu/cross_entropy.py of 2021, core/tensor_parallel/cross_entropy.py since; gpt_model.py, `output.float()`).
// Its fused kernels (core/fusions/fused_cross_entropy.py) read and write: 2 + 4 + 4, as steps do.
// DeepSpeed's pipeline holds what a stage gave until its backward pass (pipe/engine.py, `pipe_buffers`): 2 more.
inline constexpr double kVocabParallelLoss = 6, kHeldLogits = 2;
// Of these what programs have: with a kernel for the loss logits and gradients, 2 each, else 10; of either, this is
// there only at the loss.
inline constexpr double kFusedLossBytes = 4, kSplitLossBytes = 10, kFusedLossPassing = 2, kSplitLossPassing = 6;

// DeepSpeed copies gradients into a flat buffer of reduce_bucket_size, 5e8 elements by default, and gathers parameters
// by as many, through another (zero/stage_1_and_2.py, reduce_gradients and step; zero/config.py).
inline constexpr double kDeepSpeedBucketElements = 5e8;

// Products in float8 want both operands with the inner dimension last, where tensor cores do not turn them: backward
// reads a transpose of a weight beside it, another byte an element. Transformer Engine keeps it for a whole step, made
// once behind the gather of the weight, on Ada and Hopper, of scales for tensors and for blocks
// (pytorch/tensor/utils.py, post_all_gather_processing; common/transformer_engine.cpp,
// nvte_is_non_tn_fp8_gemm_supported); its pull request 2168 says that weights so take what they take in bf16. From
// Blackwell on there is none (issue 1880: 1 byte a parameter).
bool KeepsTransposes(const Device& device);

// A group of ranks that communicate, as far as memory is concerned.
struct CommunicatorUse {
  int64_t ranks = 1;
  int64_t ranks_per_node = 1;
  bool reduces = true;      // it runs all_reduce or reduce_scatter, so the switch's buffers are set up
  bool all_to_all = false;  // it runs all-to-all, so channels to every peer are set up
  bool early = false;       // before NCCL 2.22
};

// Bytes of one communicator on each of its ranks. 0 for one rank and on the host.
Bytes CommunicatorBytes(const CommunicatorUse& use, const Cluster& cluster);

// Of one handle of cuBLAS; 0 on the host.
Bytes WorkspaceBytes(const Cluster& cluster);

// Bytes that every process loses: context and `blas_streams` workspaces.
Bytes ProcessBytes(const Cluster& cluster, int blas_streams = 1);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_MEMORY_OVERHEADS_H_
