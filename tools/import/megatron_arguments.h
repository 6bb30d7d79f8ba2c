// Arguments of Megatron-LM that a model file has no word for. Used by megatron. Thread safety: constants.
#ifndef MESHWRIGHT_TOOLS_IMPORT_MEGATRON_ARGUMENTS_H_
#define MESHWRIGHT_TOOLS_IMPORT_MEGATRON_ARGUMENTS_H_

#include "absl/strings/string_view.h"

namespace meshwright {

// Changes time or memory, and is not in a model file.
struct LeftOut {
  absl::string_view name, note;
};
inline constexpr LeftOut kLeftOut[] = {
    {"rampup-batch-size", "the batch grows to its size at first; the plan is of the last one"},
    {"optimizer-cpu-offload", "the optimizer is on the host there, on the devices in the plan"},
    {"cpu-offloading-num-layers", "activations kept on the host are kept on the devices in the plan"},
    {"tp-comm-overlap", "tensor parallelism beside its products is not planned; `plan --trainer=nemo` has it"},
    {"moe-shared-expert-overlap", "the shared expert runs beside the exchange of tokens there, behind it in the plan"},
    {"overlap-moe-expert-parallel-comm", "two micro-batches hide the exchange of tokens there, not in the plan"},
    {"moe-router-force-load-balancing", "tokens are spread evenly over experts there, as the plan takes them to be"},
    {"enable-cuda-graph", "CUDA graphs are taken for granted in the plan"},
    {"external-cuda-graph", "CUDA graphs are taken for granted in the plan"},
    {"reset-attention-mask", "attention within documents is planned as over whole rows"},
    {"fp4-param-gather", "weights in 4 bits are planned in 16"},
    {"moe-layer-recompute", "experts alone are run again there, which the plan does not know"},
    {"no-rope-freq", "layers without rotary positions are planned with them"},
    {"softmax-type", "what attention adds to its sums is left out"},
    {"hierarchical-context-parallel-sizes", "context parallelism in two levels is planned in one"},
};
// Another model, or one that is not in the arguments.
inline constexpr LeftOut kRefused[] = {
    {"use-checkpoint-args", "sizes in the arguments, instead of in a checkpoint"},
    {"heterogeneous-layers-config-path", "layers that are alike, or alternate"},
    {"hybrid-attention-ratio", "--hybrid-layer-pattern, which says which layers have attention"},
    {"retro-add-retriever", "a decoder"},
};

// Neither time nor memory of a step depend on what begins so.
// clang-format off
inline constexpr absl::string_view kOfNoConcern[] = {
    "DDP-impl", "adlr", "apply-layernorm-1p", "attention-softmax-in-fp32", "auto-detect", "calculate-per-token-loss",
    "check-", "ckpt", "clip-grad", "cross-entropy", "data-", "dataloader-", "decoupled-", "disable-gloo", "dist-ckpt",
    "distributed-", "eval-", "exit-", "export-", "finetune", "hysteresis", "init-method-std", "init-model-with",
    "initial-loss-scale", "is-hybrid-model", "load", "log-", "logging-", "loss-scale", "lr", "manual-gc", "master-",
    "max-restarts", "max-tokens-to-oom", "merge-file", "min-lr", "min-loss-scale", "mock-data", "muon-", "moe-aux-loss",
    "moe-grouped-gemm", "moe-permute-fusion", "moe-router-", "moe-z-loss", "mscale", "no-bias", "no-check", "no-create",
    "no-load", "no-masked-softmax", "no-mmap", "no-rope-fusion", "no-save", "node-rank", "num-workers", "one-logger",
    "overlap-param-gather", "override-opt", "profile", "rdzv", "redirects", "rerun", "reset-position-ids",
    "rope-scaling", "rotary-scaling", "rotary-seq-len", "save", "spec", "split", "standalone", "start-weight-decay",
    "tee", "tensorboard", "tiktoken", "timing-", "tokenizer-", "train-samples", "trust-remote", "use-mcore-models",
    "use-rope-scaling", "use-te", "vocab-file", "wandb", "weight-decay-incr", "end-weight-decay",
};
// clang-format on

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_MEGATRON_ARGUMENTS_H_
