#include "tools/validate/framework.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

std::string Lower(const CsvCells& cells, absl::string_view column) { return absl::AsciiStrToLower(cells.Text(column)); }

// Hugging Face's GPT-2 in eager mode under autocast (modeling_gpt2.py and PyTorch's list of operators that autocast
// runs in float32): what its attention moves besides the passes of a fused softmax with dropout, bytes a score.
//   forward   divide 2+2, mask 2+2, cast to float32 2+4, softmax 4+4 instead of 2+2, cast back 4+2
//   backward  cast 2+4, softmax 4+4+4 instead of 2+2+2, cast 4+2, mask 2+2, divide 2+2
// Its gelu_new is eight operators; ours reads and writes once, backward reads twice and writes once. The power runs in
// float32, so half of the others do.
constexpr EagerBytes kEagerScores = {24, 26};
constexpr EagerBytes kHuggingFaceActivations = {7 * 6, 2 * 8 * 6};

// A bias that is added by a kernel of its own before the activation (Narayanan et al. 2021, section 4.2): read and
// write.
constexpr EagerBytes kUnfusedBias = {4, 0};

// Megatron-LM's fused softmax takes rows up to here (fused_softmax.py); longer ones go through the same steps.
constexpr int64_t kLongestFusedSoftmax = 4096;

// Composer's two training metrics (LanguageCrossEntropy, LanguagePerplexity), on unless switched off (MPT's
// `use_train_metrics`): each casts the logits to float32, 2+4, takes their log-softmax, 4+4, and what they say goes
// unread.
constexpr EagerBytes kTrainMetrics = {2 * (6 + 8), 0};

}  // namespace

bool HasAny(absl::string_view text, absl::Span<const absl::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](absl::string_view word) { return absl::StrContains(text, word); });
}

Framework FrameworkOf(const CsvCells& cells, int64_t sequence) {
  const std::string attention = Lower(cells, "attention"), options = Lower(cells, "other_opts");
  const std::string model = Lower(cells, "model"), compile = Lower(cells, "compile");
  Framework f;
  f.fused_attention = !HasAny(
      attention, {"unfused", "pre-flash", "no flash", "without flash", "no cudnn", "standard", "eager", "naive"});
  const bool compiled = !compile.empty() && !absl::StartsWith(compile, "no") && !HasAny(compile, {"eager", "without"});
  // llm.c is a C program: nothing stands between it and the launches.
  const bool bare = HasAny(options, {"cuda graph", "cudagraph", "llm.c"}) ||
                    HasAny(absl::StrCat(attention, Lower(cells, "recompute")), {"llm.c"});
  f.eager = !compiled && !bare;
  f.transformer_engine = HasAny(attention, {"te/", "transformer engine", "transformerengine"}) ||
                         HasAny(Lower(cells, "dtype"), {"transformer engine", "transformerengine"});
  f.nanotron = HasAny(absl::StrCat(model, options), {"nanotron"});
  // llm-foundry's own layers; its benchmarks ran FlashAttention in Triton (submit_benchmarks.py, --attn_impl).
  const bool foundry = HasAny(attention, {"mpt attn_impl"});
  // FlashAttention's training code brings fused kernels for all of a layer and for the loss (its training/README.md).
  const bool flash_code = HasAny(options, {"flashattention (this repo)"}) ||
                          (f.fused_attention && HasAny(Lower(cells, "source_ref"),
                                                       {"flash-attention training/configs", "flashattention-2 paper"}));
  f.autocast = flash_code || HasAny(options, {"huggingface", "hugging face"});
  // Frameworks that issue kernel by kernel have a kernel for each step of the loss, too, but for these: MPT's default
  // loss is flash-attn's (modeling_mpt.py).
  f.fused_loss = !f.eager || foundry || flash_code;
  if (foundry) f.logits = kTrainMetrics;
  // Transformer Engine has a kernel for a norm, for rotary positions and for a gate; PyTorch's eager mode has none.
  // nanotron takes flash-attn's for the first two (nanotron/models/llama.py).
  f.fused_norms = !f.eager || f.transformer_engine || flash_code || f.nanotron;
  // Transformer Engine's products add to the gradient themselves. So does Megatron-LM since it has the choice of
  // sequence parallelism (3.0).
  f.adds_gradients = f.eager && !f.transformer_engine && cells.Text("seq_parallel").empty();
  // NeMo's recipes for tensor parallelism switch it on (`tp_comm_overlap`; NeMo-Framework-Launcher, conf/training);
  // PyTorch calls it asynchronous tensor parallelism.
  f.overlaps_products =
      f.transformer_engine || HasAny(options, {"async tp", "async_tp", "asynctp", "tp_comm_overlap", "userbuffers"});
  if (!f.fused_attention) {
    if (HasAny(options, {"without operator fusion", "no operator fusion"})) {
      f.scores = kEagerScores;
      f.activations = kUnfusedBias;
    } else if (HasAny(options, {"huggingface", "hugging face"}) || HasAny(attention, {"huggingface", "hugging face"})) {
      f.scores = kEagerScores;
      f.activations = kHuggingFaceActivations;
    } else if (sequence > kLongestFusedSoftmax) {
      f.scores = kEagerScores;
    }
    return f;
  }
  if (HasAny(attention, {"cudnn", "flash3", "flash-3", "flashattention-3", "fa3"})) f.attention = "flash3";
  // Before July 2023 there was no other; FlashAttention-2's paper calls it by the bare name beside its own.
  const bool first = flash_code || (attention == "flashattention" && HasAny(Lower(cells, "source_ref"), {"-2 paper"}));
  if (foundry) f.attention = "triton";
  if (HasAny(attention, {"flash v1", "flash1", "flashattention-1"})) f.attention = "flash1";
  if (first && !HasAny(attention, {"2", "3"})) f.attention = "flash1";
  return f;
}

// nanotron gathers and scatters a list of tensors, which becomes a call of each (`all_gather_coalesced`); InternEvo's
// ZeRO gives whole tensors to ranks, which reduce to and broadcast from them; DeepSpeed's first ZeRO-3, from before
// fused attention, gathered each tensor where a layer needed it.
bool CallsEachTensor(const CsvCells& cells, const Framework& framework) {
  const std::string zero = Lower(cells, "zero_fsdp");
  if (HasAny(zero, {"zero-3"})) return !framework.fused_attention;
  if (!HasAny(zero, {"zero-1"}) || HasAny(zero, {"groups", "hybrid"})) return false;
  return framework.nanotron || HasAny(Lower(cells, "model"), {"internlm"});
}

}  // namespace meshwright
