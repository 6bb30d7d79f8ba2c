// One row per operator: the only place where an operator is declared.
//
// The rule says what the operator does to dims (ir/index_rule.h); legal layouts, shapes, partial sums, backward layouts
// and operation counts follow from it. A row whose rule is empty takes the rule from each op ("m k, k n -> m n" for a
// plain MatMul, with the entries swapped for transpose flags). Gradients are in ir/gradients.cc, one entry per row that
// has `differentiable`; kernels in executor/, one per row.
//
// Conventions: grad operators take the gradient of the output first. An op's outputs overwrite their buffers, but those
// in gradient and loss buffers are added to them where the instruction says `accumulate`.
#ifndef MESHWRIGHT_IR_OP_LIST_H_
#define MESHWRIGHT_IR_OP_LIST_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/string_view.h"
#include "ir/kernel_work.h"
#include "ir/layout.h"

namespace meshwright {

enum class OpKind : uint8_t {
  kMatMul,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kScale,
  kCast,
  kRelu,
  kSquaredRelu,
  kGelu,
  kTanh,
  kSigmoid,
  kSilu,
  kSqrt,
  kSwiglu,
  kGeglu,
  kDropout,
  kSoftmax,
  kLogSoftmax,
  kLayerNorm,
  kRmsNorm,
  kGather,
  kOneHot,
  kAddPositions,
  kNormHeads,
  kRotary,
  kLatentHeads,
  kAttention,
  kMergeAttention,
  kCausalConv,
  kLinearAttention,
  kGatedRmsNorm,
  kReduceSum,
  kReduceMax,
  kReduceMin,
  kEqual,
  kBroadcast,
  kTranspose,
  kReshape,
  kConcat,
  kSplit,
  kStridedSlice,
  kExchange,
  kMseLoss,
  kCrossEntropy,
  kRowMax,
  kExpSumAndPick,
  kRowPartials,
  kJoinPartials,
  kLossFromPartials,
  kDispatch,
  kCombine,
  kToGroups,
  kFromGroups,
  kReluGrad,
  kSquaredReluGrad,
  kGeluGrad,
  kTanhGrad,
  kSigmoidGrad,
  kSiluGrad,
  kSqrtGrad,
  kSwigluGrad,
  kGegluGrad,
  kSoftmaxGrad,
  kLogSoftmaxGrad,
  kLayerNormGrad,
  kRmsNormGrad,
  kGatherGrad,
  kAddPositionsGrad,
  kNormHeadsGrad,
  kRotaryGrad,
  kLatentHeadsGrad,
  kAttentionGrad,
  kCausalConvGrad,
  kLinearAttentionGrad,
  kGatedRmsNormGrad,
  kStridedSliceGrad,
  kMseLossGrad,
  kCrossEntropyGrad,
  kPartialsGrad,
  kDispatchGrad,
  kCombineGrad,
  kMatMulGelu,
  kMatMulGeluGrad,
  kDropoutAdd,
  kAddLayerNorm,
  kAddRmsNorm,
  kLayerNormGradAdd,
  kRmsNormGradAdd,
  kSgd,
  kMomentum,
  kAdamW,
  kLambStep,
  kLamb,
  kMuonStep,
  kMuon,
  kNotFinite,
  kAdjustScale,
  kFill,
  kFeed,
  kNumOps
};

// What an op is in a layer, or its gradient belongs to: for those who count what frameworks issue and move besides
// (HostPace in simulator/price.h), and which use of a step's time it is.
enum class OpRole : uint8_t {
  kOther,
  kActivation,  // an activation function
  kGate,        // one that multiplies its input
  kNorm,        // LayerNorm; the steps of RMSNorm are counted as its own bytes (ir/op_work.cc)
  kLogits,      // what the loss makes of the logits first
  kTable,       // rows of a table, as an embedding
  kDispatch,    // tokens to experts
  kCombine,     // and back
  kGroup,       // the same by groups of experts, of which frameworks have no kernels
  kUpdate,      // the optimizer and what decides whether it runs
};

struct OpInfo {
  OpKind kind;
  absl::string_view name;  // as files, messages and traces spell it
  absl::string_view rule;  // template for InstantiateRule; empty: each op brings its own
  KernelClass kernel;
  double flops_per_point;        // operations per point of the space that all labels span
  Reduction reduction;           // how values combine over reduced labels
  bool differentiable;           // has an entry in ir/gradients.cc
  OpRole role = OpRole::kOther;  // what others count it by
  // Of two ops in one kernel: the one in front, and the one that is applied to its first result before that is written.
  OpKind front = OpKind::kNumOps, epilogue = OpKind::kNumOps;
};

// clang-format off
inline constexpr OpInfo kOps[] = {
    // Products. A third input is a bias, added in the product's epilogue; the contracted label is then whole.
    {OpKind::kMatMul, "MatMul", "", KernelClass::kContraction, 2, Reduction::kSum, true},
    // Elementwise. Add sums any number of inputs; an activation takes a bias as second input and is applied to the sum.
    {OpKind::kAdd, "Add", "..., ..., * -> ...", KernelClass::kMemory, 1, Reduction::kSum, true},
    {OpKind::kSub, "Sub", "..., ... -> ...", KernelClass::kMemory, 1, Reduction::kSum, true},
    {OpKind::kMul, "Mul", "..., ... -> ...", KernelClass::kMemory, 1, Reduction::kSum, true},
    {OpKind::kDiv, "Div", "..., ... -> ...", KernelClass::kMemory, 1, Reduction::kSum, true},
    {OpKind::kScale, "Scale", "... -> ...", KernelClass::kMemory, 1, Reduction::kSum, true},  // x * scale
    {OpKind::kCast, "Cast", "... -> ...", KernelClass::kMemory, 1, Reduction::kSum, true},
    {OpKind::kRelu, "ReLU", "..., * -> ...", KernelClass::kMemory, 1, Reduction::kSum, true, OpRole::kActivation},
    {OpKind::kSquaredRelu, "SquaredReLU", "..., * -> ...", KernelClass::kMemory, 2, Reduction::kSum, true, OpRole::kActivation},
    {OpKind::kGelu, "GeLU", "..., * -> ...", KernelClass::kMemory, 10, Reduction::kSum, true, OpRole::kActivation},  // tanh form
    {OpKind::kTanh, "Tanh", "..., * -> ...", KernelClass::kMemory, 5, Reduction::kSum, true, OpRole::kActivation},
    {OpKind::kSigmoid, "Sigmoid", "..., * -> ...", KernelClass::kMemory, 5, Reduction::kSum, true, OpRole::kActivation},
    {OpKind::kSilu, "SiLU", "..., * -> ...", KernelClass::kMemory, 6, Reduction::kSum, true, OpRole::kActivation},
    {OpKind::kSqrt, "Sqrt", "..., * -> ...", KernelClass::kMemory, 2, Reduction::kSum, true},
    {OpKind::kSwiglu, "SwiGLU", "... t! f -> ... f", KernelClass::kMemory, 4, Reduction::kSum, true, OpRole::kGate},  // silu(x[0]) * x[1]
    {OpKind::kGeglu, "GeGLU", "... t! f -> ... f", KernelClass::kMemory, 11, Reduction::kSum, true, OpRole::kGate},  // gelu(x[0]) * x[1]
    // 0 for a share `rate` of the elements, x / (1 - rate) for the others; which ones depends on the run's seed, the op's
    // stream, step, micro-batch, layer and the element's place in the whole (S5.10).
    {OpKind::kDropout, "Dropout", "... -> ...", KernelClass::kMemory, 8, Reduction::kSum, true},
    // Along the last dim.
    {OpKind::kSoftmax, "Softmax", "... c! -> ... c!", KernelClass::kNormalize, 5, Reduction::kSum, true},
    {OpKind::kLogSoftmax, "LogSoftmax", "... c! -> ... c!", KernelClass::kNormalize, 5, Reduction::kSum, true},
    {OpKind::kLayerNorm, "LayerNorm", "... h!, h!, h! -> ... h!", KernelClass::kNormalize, 8, Reduction::kSum, true, OpRole::kNorm},
    {OpKind::kRmsNorm, "RMSNorm", "... h!, h! -> ... h!", KernelClass::kNormalize, 6, Reduction::kSum, true},
    // Rows of a table named by integer ids; ids outside a rank's rows give 0, so a split table gives partial sums.
    {OpKind::kGather, "Gather", "", KernelClass::kGather, 0, Reduction::kSum, true, OpRole::kTable},  // "v h, b s -> s b h"
    // 1 at the place that an id names along the label that only the output has, which may be split; else 0.
    {OpKind::kOneHot, "OneHot", "", KernelClass::kMemory, 0, Reduction::kSum, false},  // "b s -> b s c"
    // x + table[position]: the table's first rows, whole on every rank, the rank's own positions are added.
    {OpKind::kAddPositions, "AddPositions", "s b h, p! h -> s b h", KernelClass::kMemory, 1, Reduction::kSum, true},
    // Attention works on q, k and v in one tensor: for each KV group g, r = q + 2 heads: its queries, then key, value.
    // RMSNorm of each query, by the first row of gamma, and of each key, by the second; values stay as they are.
    {OpKind::kNormHeads, "NormHeads", "s b g r! d!, t! d! -> s b g r! d!", KernelClass::kNormalize, 6, Reduction::kSum, true},
    // Turns queries and keys, or the first `turned` elements of each, by an angle of their position. Heads may lie one
    // behind the other, (s, b, g, w), queries and keys of `head_width`, and the value, no wider, behind them.
    {OpKind::kRotary, "Rotary", "s b g r! d! -> s b g r! d!", KernelClass::kMemory, 3, Reduction::kSum, true},
    // Of latent attention (DeepSeek-V2, section 2.1): a head's query (d), the part with positions that all heads' keys
    // share (p), and the head's key without it beside its value (u) -> query, key and value one behind the other, the
    // last p elements of query and key turned as by Rotary. Values are w - 2 d wide.
    {OpKind::kLatentHeads, "LatentHeads", "s b g d!, s b p!, s b g u! -> s b g w!", KernelClass::kMemory, 3, Reduction::kSum, true},
    // Second output: per row the log of the sum of exponentials (fused), or the probabilities (not fused). With a second
    // input, (t, b, g, 2, d), that holds the keys and values, the first is the queries alone; then always fused. Heads
    // that lie one behind the other, (s, b, g, w), may have values of another width than their keys (ir/heads.h).
    {OpKind::kAttention, "Attention", "", KernelClass::kAttention, 0, Reduction::kSum, true},
    // Results and row sums of the same queries over different keys, in turn: the attention over all of them.
    {OpKind::kMergeAttention, "MergeAttention", "", KernelClass::kMemory, 4, Reduction::kSum, true},
    // Of linear attention and state spaces. y = silu(bias + sum over i of weight[i] * x[t - k + 1 + i]), each channel with
    // its own k weights, along the sequence; 0 before it. The bias, a third input, may be missing.
    {OpKind::kCausalConv, "CausalConv", "", KernelClass::kMemory, 2, Reduction::kSum, true},  // "s! b y w!, y w! k! -> s! b y w!"
    // A state S of d x u for each head, which a token's key and value change and its query reads (ir/recurrence.h):
    // x (queries and keys of each group of heads, and a value for each head), logits of gates, the log of a rate and a
    // bias of each head, and of state spaces a weight for what goes past the state -> (s, b, y, n, u).
    {OpKind::kLinearAttention, "LinearAttention", "", KernelClass::kLinearAttention, 0, Reduction::kSum, true},
    // RMSNorm(x) * gamma * silu(z), or with gate_first RMSNorm(x silu(z)) * gamma. Gamma may have as many rows as the dim
    // in front of the last is long.
    {OpKind::kGatedRmsNorm, "GatedRMSNorm", "... h!, ... h!, h! -> ... h!", KernelClass::kNormalize, 11, Reduction::kSum, true},
    {OpKind::kReduceSum, "ReduceSum", "", KernelClass::kMemory, 1, Reduction::kSum, true},  // times scale
    {OpKind::kReduceMax, "ReduceMax", "", KernelClass::kMemory, 1, Reduction::kMax, true},
    {OpKind::kReduceMin, "ReduceMin", "", KernelClass::kMemory, 1, Reduction::kMin, true},
    {OpKind::kEqual, "Equal", "..., ... -> ...", KernelClass::kMemory, 1, Reduction::kSum, false},  // 1 or 0
    {OpKind::kBroadcast, "Broadcast", "", KernelClass::kMemory, 1, Reduction::kSum, true},  // times scale
    {OpKind::kTranspose, "Transpose", "", KernelClass::kMemory, 0, Reduction::kSum, true},
    {OpKind::kReshape, "Reshape", "", KernelClass::kNone, 0, Reduction::kSum, true},  // "b x! -> b y! z!": row-major view
    // Along the one dim whose labels are not the same in inputs and outputs: "b x! h, b y! h -> b z! h" and back.
    {OpKind::kConcat, "Concat", "", KernelClass::kMemory, 0, Reduction::kSum, true},
    {OpKind::kSplit, "Split", "", KernelClass::kMemory, 0, Reduction::kSum, true},
    // Of dims whose labels differ, "b x! -> b y!", the elements begin, begin + stride, ... of attrs; others whole.
    {OpKind::kStridedSlice, "StridedSlice", "", KernelClass::kMemory, 0, Reduction::kSum, true},
    // The first dims count ranks: each rank's value becomes that of the rank named in attrs. No kernel: a Permute, or a
    // broadcast where all get the same one.
    {OpKind::kExchange, "Exchange", "", KernelClass::kNone, 0, Reduction::kSum, true},
    // Losses: scalar, summed and multiplied by scale (1 / number of global rows or elements).
    {OpKind::kMseLoss, "MSELoss", "..., ... -> ", KernelClass::kMemory, 3, Reduction::kSum, true},
    {OpKind::kCrossEntropy, "CrossEntropy", "... v!, ... -> ", KernelClass::kNormalize, 5, Reduction::kSum, true},
    // Cross entropy over a split vocabulary, in three steps.
    {OpKind::kRowMax, "RowMax", "... v -> ...", KernelClass::kNormalize, 1, Reduction::kMax, false},
    {OpKind::kExpSumAndPick, "ExpSumAndPick", "... v, ..., ... -> ..., ...", KernelClass::kNormalize, 4, Reduction::kSum, false, OpRole::kLogits},
    // The first two in one pass (planner/passes/fuse_loss.h): logits, labels -> of each of as many equal parts of the
    // classes as the outputs have along v: the largest, the sum of exponentials less that, the label's logit or 0. Where
    // v is whole, outputs may lack it.
    {OpKind::kRowPartials, "RowPartials", "... v, ... -> ... =v, ... =v, ... =v", KernelClass::kNormalize, 5, Reduction::kSum, false},
    // Those, and the largest of all classes -> the two results of ExpSumAndPick.
    {OpKind::kJoinPartials, "JoinPartials", "... v, ... v, ... v, ... -> ..., ...", KernelClass::kMemory, 4, Reduction::kSum, false},
    {OpKind::kLossFromPartials, "LossFromPartials", "..., ..., ... -> ", KernelClass::kMemory, 3, Reduction::kSum, true},
    // Mixture of experts: tokens to per-expert slots of fixed capacity and back, by the router's logits of all experts, e.
    // Of the experts with slots, x, a rank may have some: it sends to these, and what they made is part of the sum.
    {OpKind::kDispatch, "Dispatch", "s! b h, s! b e! -> x =b h", KernelClass::kGather, 1, Reduction::kSum, true, OpRole::kDispatch},
    {OpKind::kCombine, "Combine", "x =b h, s! b e! -> s! b h", KernelClass::kGather, 2, Reduction::kSum, true, OpRole::kCombine},
    // The same by groups of as many experts, n: a token goes once to each group that has one of its experts, with its
    // logits (second output, optional; -infinity in slots that no token got), and what the groups made of it is summed.
    // Between the two, Dispatch and Combine take n in front: "n q! b h, n q! b e! -> =n =b h" and back; a group's tokens
    // find the group's experts alone.
    {OpKind::kToGroups, "ToGroups", "s! b h!, s! b e! -> n! q! b h!, n! q! b e!", KernelClass::kGather, 1, Reduction::kSum, true, OpRole::kGroup},
    {OpKind::kFromGroups, "FromGroups", "n! q! b h, s! b e! -> s! b h", KernelClass::kGather, 1, Reduction::kSum, true, OpRole::kGroup},

    {OpKind::kReluGrad, "ReLUGrad", "..., ..., * -> ...", KernelClass::kMemory, 1, Reduction::kSum, false, OpRole::kActivation},
    {OpKind::kSquaredReluGrad, "SquaredReLUGrad", "..., ..., * -> ...", KernelClass::kMemory, 2, Reduction::kSum, false, OpRole::kActivation},
    {OpKind::kGeluGrad, "GeLUGrad", "..., ..., * -> ...", KernelClass::kMemory, 15, Reduction::kSum, false, OpRole::kActivation},
    {OpKind::kTanhGrad, "TanhGrad", "..., ..., * -> ...", KernelClass::kMemory, 6, Reduction::kSum, false, OpRole::kActivation},
    {OpKind::kSigmoidGrad, "SigmoidGrad", "..., ..., * -> ...", KernelClass::kMemory, 6, Reduction::kSum, false, OpRole::kActivation},
    {OpKind::kSiluGrad, "SiLUGrad", "..., ..., * -> ...", KernelClass::kMemory, 8, Reduction::kSum, false, OpRole::kActivation},
    {OpKind::kSqrtGrad, "SqrtGrad", "..., ..., * -> ...", KernelClass::kMemory, 3, Reduction::kSum, false},
    {OpKind::kSwigluGrad, "SwiGLUGrad", "... f, ... t! f -> ... t! f", KernelClass::kMemory, 5, Reduction::kSum, false, OpRole::kGate},
    {OpKind::kGegluGrad, "GeGLUGrad", "... f, ... t! f -> ... t! f", KernelClass::kMemory, 17, Reduction::kSum, false, OpRole::kGate},
    {OpKind::kSoftmaxGrad, "SoftmaxGrad", "... c!, ... c! -> ... c!", KernelClass::kNormalize, 4, Reduction::kSum, false},
    {OpKind::kLogSoftmaxGrad, "LogSoftmaxGrad", "... c!, ... c! -> ... c!", KernelClass::kNormalize, 4, Reduction::kSum, false},
    // dy, x, gamma -> dx, dgamma, dbeta
    {OpKind::kLayerNormGrad, "LayerNormGrad", "... h!, ... h!, h! -> ... h!, h!, h!", KernelClass::kNormalize, 14, Reduction::kSum, false, OpRole::kNorm},
    {OpKind::kRmsNormGrad, "RMSNormGrad", "... h!, ... h!, h! -> ... h!, h!", KernelClass::kNormalize, 11, Reduction::kSum, false},
    {OpKind::kGatherGrad, "GatherGrad", "", KernelClass::kGather, 1, Reduction::kSum, false, OpRole::kTable},  // dy, ids -> dtable
    {OpKind::kAddPositionsGrad, "AddPositionsGrad", "s b h -> p! h", KernelClass::kMemory, 1, Reduction::kSum, false},
    // dy, qkv, gamma -> dqkv, dgamma
    {OpKind::kNormHeadsGrad, "NormHeadsGrad", "s b g r! d!, s b g r! d!, t! d! -> s b g r! d!, t! d!", KernelClass::kNormalize, 11, Reduction::kSum, false},
    {OpKind::kRotaryGrad, "RotaryGrad", "s b g r! d! -> s b g r! d!", KernelClass::kMemory, 3, Reduction::kSum, false},
    {OpKind::kLatentHeadsGrad, "LatentHeadsGrad", "s b g w! -> s b g d!, s b p!, s b g u!", KernelClass::kMemory, 3, Reduction::kSum, false},
    {OpKind::kAttentionGrad, "AttentionGrad", "", KernelClass::kAttention, 0, Reduction::kSum, false},  // dy, qkv or q and kv, y, saved -> theirs
    // dy, x, weight and perhaps bias -> theirs
    {OpKind::kCausalConvGrad, "CausalConvGrad", "", KernelClass::kMemory, 8, Reduction::kSum, false},
    {OpKind::kLinearAttentionGrad, "LinearAttentionGrad", "", KernelClass::kLinearAttention, 0, Reduction::kSum, false},  // dy, inputs -> theirs
    // dy, x, z, gamma -> dx, dz, dgamma
    {OpKind::kGatedRmsNormGrad, "GatedRMSNormGrad", "... h!, ... h!, ... h!, h! -> ... h!, ... h!, h!", KernelClass::kNormalize, 20, Reduction::kSum, false},
    {OpKind::kStridedSliceGrad, "StridedSliceGrad", "", KernelClass::kMemory, 0, Reduction::kSum, false},  // dy -> dx
    {OpKind::kMseLossGrad, "MSELossGrad", ", ..., ... -> ...", KernelClass::kMemory, 2, Reduction::kSum, false},  // dloss, x, target
    {OpKind::kCrossEntropyGrad, "CrossEntropyGrad", ", ... v!, ... -> ... v!", KernelClass::kNormalize, 4, Reduction::kSum, false},
    // dloss, logits, row max, exp sum, labels -> dlogits
    {OpKind::kPartialsGrad, "PartialsGrad", ", ... v, ..., ..., ... -> ... v", KernelClass::kMemory, 3, Reduction::kSum, false},
    {OpKind::kDispatchGrad, "DispatchGrad", "x =b h, s! b e! -> s! b h", KernelClass::kGather, 1, Reduction::kSum, false, OpRole::kDispatch},
    // dy, expert outputs, logits -> d expert outputs, d logits
    {OpKind::kCombineGrad, "CombineGrad", "s! b h!, x =b h!, s! b e! -> x =b h!, s! b e!", KernelClass::kGather, 4, Reduction::kSum, false, OpRole::kCombine},

    // What programs alone have (planner/passes/fuse_epilogues.h): an op and the op behind it in one kernel. They take the
    // inputs of the first, then what the other takes besides. Contracted labels of products are whole.
    // a, b and perhaps a bias -> GeLU of the product, and perhaps the product
    {OpKind::kMatMulGelu, "MatMulGeLU", "", KernelClass::kContraction, 2, Reduction::kSum, false, OpRole::kOther, OpKind::kMatMul, OpKind::kGelu},
    // a, b, x -> GeLUGrad(a b, x)
    {OpKind::kMatMulGeluGrad, "MatMulGeLUGrad", "", KernelClass::kContraction, 2, Reduction::kSum, false, OpRole::kOther, OpKind::kMatMul, OpKind::kGeluGrad},
    // x, summand -> Dropout(x) + summand
    {OpKind::kDropoutAdd, "DropoutAdd", "", KernelClass::kMemory, 9, Reduction::kSum, false, OpRole::kOther, OpKind::kDropout, OpKind::kAdd},
    // summands, gamma, and of LayerNorm beta -> the norm of their sum, the sum
    {OpKind::kAddLayerNorm, "AddLayerNorm", "", KernelClass::kNormalize, 9, Reduction::kSum, false, OpRole::kOther, OpKind::kAdd, OpKind::kLayerNorm},
    {OpKind::kAddRmsNorm, "AddRMSNorm", "", KernelClass::kNormalize, 7, Reduction::kSum, false, OpRole::kOther, OpKind::kAdd, OpKind::kRmsNorm},
    // dy, x, gamma, summand -> dx + summand, dgamma, and of LayerNorm dbeta
    {OpKind::kLayerNormGradAdd, "LayerNormGradAdd", "", KernelClass::kNormalize, 15, Reduction::kSum, false, OpRole::kOther, OpKind::kLayerNormGrad, OpKind::kAdd},
    {OpKind::kRmsNormGradAdd, "RMSNormGradAdd", "", KernelClass::kNormalize, 12, Reduction::kSum, false, OpRole::kOther, OpKind::kRmsNormGrad, OpKind::kAdd},

    // Optimizers: parameter, gradient, state... in place; an optional last output is the parameter in the compute type.
    // Under loss scaling two scalars follow the inputs: AdjustScale's factor and count of skipped steps. They take several
    // parameters at once (attrs.tensors, UpdateOperands); the instruction has no rule then.
    {OpKind::kSgd, "SGD", "..., ... -> ...", KernelClass::kMemory, 2, Reduction::kSum, false, OpRole::kUpdate},
    {OpKind::kMomentum, "Momentum", "..., ..., ... -> ..., ...", KernelClass::kMemory, 4, Reduction::kSum, false, OpRole::kUpdate},
    {OpKind::kAdamW, "AdamW", "..., ..., ..., ... -> ..., ..., ...", KernelClass::kMemory, 14, Reduction::kSum, false, OpRole::kUpdate},
    // LAMB in two steps, for its norms are of the whole parameter: parameter, gradient, m, v -> step, m, v, |parameter|^2,
    // |step|^2, and parameter, step and the two norms -> parameter.
    {OpKind::kLambStep, "LAMBStep", "..., ..., ..., ... -> ..., ..., ..., , ", KernelClass::kMemory, 19, Reduction::kSum, false, OpRole::kUpdate},
    {OpKind::kLamb, "LAMB", "..., ..., , -> ...", KernelClass::kMemory, 2, Reduction::kSum, false, OpRole::kUpdate},
    // Muon in two steps, for what lies between them is done with whole matrices (planner/passes/orthogonalize.h):
    // parameter, which is not read, gradient, u -> momentum * u + gradient with another gradient's weight (Nesterov), u, and
    // parameter, direction -> parameter.
    {OpKind::kMuonStep, "MuonStep", "..., ..., ... -> ..., ...", KernelClass::kMemory, 4, Reduction::kSum, false, OpRole::kUpdate},
    {OpKind::kMuon, "Muon", "..., ... -> ...", KernelClass::kMemory, 4, Reduction::kSum, false, OpRole::kUpdate},

    // Loss scaling. 0 where every element of every input is finite, else infinity; any number of inputs, one scalar output.
    {OpKind::kNotFinite, "NotFinite", "", KernelClass::kMemory, 0, Reduction::kMax, false, OpRole::kUpdate},
    // Scale, good steps in a row, steps skipped, what NotFinite found -> the first three after this step, and the factor
    // of its gradients: 1 / scale, or 0 where the step is skipped. By attrs growth, backoff, interval.
    {OpKind::kAdjustScale, "AdjustScale", ", , , -> , , , ", KernelClass::kMemory, 8, Reduction::kSum, false, OpRole::kUpdate},

    {OpKind::kFill, "Fill", "", KernelClass::kMemory, 0, Reduction::kSum, false},  // every element = scale
    {OpKind::kFeed, "Feed", "", KernelClass::kNone, 0, Reduction::kSum, false},    // this micro-batch's slice of an input
};
// clang-format on

constexpr bool OpRowsAreInOrder() {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].kind != static_cast<OpKind>(i)) return false;
  }
  return std::size(kOps) == static_cast<size_t>(OpKind::kNumOps);
}
static_assert(OpRowsAreInOrder(), "kOps needs one row per OpKind, in the enum's order");

constexpr const OpInfo& InfoOf(OpKind kind) { return kOps[static_cast<size_t>(kind)]; }
constexpr absl::string_view NameOf(OpKind kind) { return InfoOf(kind).name; }
// Whether sums of its outputs are outputs of the sums, so that partial sums may pass through.
constexpr bool IsLinear(OpKind kind) {
  return kind == OpKind::kAdd || kind == OpKind::kSub || kind == OpKind::kScale || kind == OpKind::kCast ||
         kind == OpKind::kReduceSum || kind == OpKind::kBroadcast || kind == OpKind::kTranspose ||
         kind == OpKind::kReshape || kind == OpKind::kConcat || kind == OpKind::kSplit;
}
// Whether its kernel looks at where its elements lie in the whole along the labels that its output keeps, so that it
// makes something else of a part that is a tensor of its own.
constexpr bool UsesPlace(OpKind kind) {
  return kind == OpKind::kDropout || kind == OpKind::kAddPositions || kind == OpKind::kRotary ||
         kind == OpKind::kLatentHeads;
}
// Whether its first output may lie where an input lies that has the same dims: it reads each element of it, or each
// row, before it writes that. Not an op with an epilogue, whose definition is two kernels.
constexpr bool WorksInPlace(OpKind kind) {
  const OpInfo& info = InfoOf(kind);
  return (info.kernel == KernelClass::kMemory && info.epilogue == OpKind::kNumOps && kind != OpKind::kMergeAttention &&
          kind != OpKind::kCausalConv && kind != OpKind::kCausalConvGrad) ||
         kind == OpKind::kCrossEntropyGrad;
}
constexpr bool IsOptimizer(OpKind kind) { return kind >= OpKind::kSgd && kind <= OpKind::kMuon; }
// How many tensors an optimizer keeps of each parameter besides it.
constexpr size_t NumStates(OpKind optimizer) {
  if (optimizer == OpKind::kMomentum || optimizer == OpKind::kMuonStep) return 1;
  return optimizer == OpKind::kAdamW || optimizer == OpKind::kLambStep || optimizer == OpKind::kLamb ? 2 : 0;
}
constexpr std::optional<OpKind> OpKindFromName(absl::string_view name) {
  for (const OpInfo& row : kOps) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_OP_LIST_H_
