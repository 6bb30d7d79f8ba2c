// Megatron-LM: pretrain_gpt.py under torchrun, as a script. Ranks lie as ours do: tensor parallelism fastest, then
// context, experts, data, pipeline.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "models/decoder_layers.h"
#include "tools/export/writers.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// "Et*2|t*3|t*3|t*2L": parts of the pipeline, with the embedding and the loss; "E|t*5|t*5|L" with no layers at the
// ends.
std::string LayoutOf(const Recipe& recipe) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < recipe.layers.size(); ++i) {
    const std::string layers = recipe.layers[i] > 0 ? absl::StrCat("t*", recipe.layers[i]) : "";
    const bool last = i + 1 == recipe.layers.size();
    const std::string further(last ? static_cast<size_t>(recipe.model.mtp_layers) : 0, 'm');
    parts.push_back(absl::StrCat(i == 0 ? "E" : "", layers, further, last ? "L" : ""));
  }
  return absl::StrJoin(parts, "|");
}

// "([0]*3+[1]*58)": the layers that have experts.
std::string ExpertPattern(const DecoderConfig& m) {
  const std::string first = m.dense_layers > 0 ? absl::StrCat("[0]*", m.dense_layers, "+") : "";
  if (m.expert_every == 1) return absl::StrCat("(", first, "[1]*", ExpertLayers(m), ")");
  return absl::StrCat("(", first, "([0]*", m.expert_every - 1, "+[1])*", ExpertLayers(m), ")");
}

// Whether it is pretrain_hybrid.py's: layers by a pattern, or state spaces, which its GPT has not.
bool IsHybrid(const DecoderConfig& m) {
  return !m.layer_pattern.empty() ||
         (m.linear_attention.value_heads > 0 && m.linear_attention.form == LinearForm::kStateSpace);
}

// "MEME|M*EME/*E": halves of layers, with a bar where a part of the pipeline ends, and behind a slash those of each
// layer that predicts a further token.
std::string HybridPattern(const Recipe& recipe) {
  const DecoderConfig& m = recipe.model;
  const char linear = m.linear_attention.form == LinearForm::kGatedDelta ? 'G' : 'M';
  const std::vector<LayerKind> kinds = KindsOf(m);
  std::string pattern;
  size_t at = 0;
  for (size_t part = 0; part < recipe.layers.size(); ++part) {
    if (part > 0) pattern.push_back('|');
    for (int64_t i = 0; i < recipe.layers[part] && at < kinds.size(); ++i, ++at) {
      if (kinds[at].mixer) pattern.push_back(kinds[at].linear ? linear : '*');
      if (kinds[at].feed_forward) pattern.push_back(kinds[at].experts && m.experts > 0 ? 'E' : '-');
    }
  }
  for (int64_t k = 0; k < m.mtp_layers; ++k) absl::StrAppend(&pattern, m.experts > 0 ? "/*E" : "/*-");
  return pattern;
}

// Which layers have linear attention or a window, 1 in a list; a number where all but the last of each so many have.
std::string FullFrequency(const DecoderConfig& m) {
  if (m.full_attention_every > 0 && m.full_attention_at == 0) return absl::StrCat(m.full_attention_every);
  std::string layers;
  for (const LayerKind& kind : KindsOf(m)) {
    absl::StrAppend(&layers, layers.empty() ? "" : ",", kind.linear || kind.window > 0 ? 1 : 0);
  }
  return absl::StrCat("'[", layers, "]'");
}

// Names as they are written, with dashes in front; of those without a value "".
class Options {
 public:
  void Add(absl::string_view name) { options_.emplace_back(name, ""); }
  template <typename T>
  void Add(absl::string_view name, const T& value) {
    options_.emplace_back(name, absl::StrCat(value));
  }
  void Add(absl::string_view name, double value) { Add(name, ShortestNumber(value)); }
  const MegatronOptionList& list() const { return options_; }

 private:
  MegatronOptionList options_;
};

// Not with DeepEP (core/transformer/transformer_config.py).
bool PadsExperts(const Recipe& recipe) { return recipe.model.experts > 0 && recipe.expert_groups == 1; }

void AddLatentAttention(const DecoderConfig& m, Options& out) {
  out.Add("--multi-latent-attention");
  if (m.q_lora_rank > 0) out.Add("--q-lora-rank", m.q_lora_rank);
  out.Add("--kv-lora-rank", m.kv_lora_rank);
  out.Add("--qk-head-dim", m.head_dim);
  out.Add("--qk-pos-emb-head-dim", m.rope_head_dim);
  out.Add("--v-head-dim", ValueWidth(m));
  out.Add("--qk-layernorm");
  out.Add("--rope-type", "rope");  // where it is yarn for latent attention unasked
}

void AddLinearAttention(const Recipe& recipe, Options& out) {
  const LinearAttentionConfig& l = recipe.model.linear_attention;
  if (IsHybrid(recipe.model)) {
    out.Add("--spec", "megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec");
    out.Add("--hybrid-layer-pattern", absl::StrCat("'", HybridPattern(recipe), "'"));
  }
  if (l.value_heads == 0) return;
  if (l.form == LinearForm::kStateSpace) {
    out.Add("--mamba-num-heads", l.value_heads);
    out.Add("--mamba-head-dim", l.value_dim);
    out.Add("--mamba-num-groups", l.key_heads);
    out.Add("--mamba-state-dim", l.key_dim);
    return;
  }
  if (!IsHybrid(recipe.model)) {
    out.Add("--experimental-attention-variant", "gdn");
    out.Add("--linear-attention-freq", FullFrequency(recipe.model));
  }
  out.Add("--linear-conv-kernel-dim", l.convolution);
  out.Add("--linear-num-key-heads", l.key_heads);
  out.Add("--linear-num-value-heads", l.value_heads);
  out.Add("--linear-key-head-dim", l.key_dim);
  out.Add("--linear-value-head-dim", l.value_dim);
}

void AddModel(const Recipe& recipe, Options& out) {
  const DecoderConfig& m = recipe.model;
  out.Add("--use-mcore-models");
  if (!IsHybrid(m)) out.Add("--num-layers", m.layers);
  out.Add("--hidden-size", m.hidden);
  const bool some_dense = m.experts > 0 && CountLayers(m).dense > 0;
  out.Add("--ffn-hidden-size", some_dense ? m.dense_ffn : m.ffn);
  out.Add("--num-attention-heads", m.heads);
  if (m.kv_heads != m.heads) {
    out.Add("--group-query-attention");
    out.Add("--num-query-groups", m.kv_heads);
  }
  if (m.kv_lora_rank > 0) {
    AddLatentAttention(m, out);
  } else if (m.head_dim * m.heads != m.hidden) {
    out.Add("--kv-channels", m.head_dim);
  }
  if (m.sliding_window > 0) {  // in tokens before one's own and behind it
    out.Add("--window-size", absl::StrCat(m.sliding_window - 1, ",0"));
    if (HasFullAttention(m)) out.Add("--window-attn-skip-freq", FullFrequency(m));
  }
  out.Add("--seq-length", recipe.training.sequence);
  out.Add("--max-position-embeddings", std::max(m.max_positions, recipe.training.sequence));
  constexpr absl::string_view kPositions[] = {"learned_absolute", "rope", "none"};
  out.Add("--position-embedding-type", kPositions[static_cast<size_t>(m.positions)]);
  if (m.positions == Positions::kRotary) out.Add("--rotary-base", static_cast<int64_t>(m.rope_theta));
  if (m.rotary_factor < 1) out.Add("--rotary-percent", m.rotary_factor);
  if (m.activation == Activation::kSwiglu) out.Add("--swiglu");
  if (m.activation == Activation::kSquaredRelu) out.Add("--squared-relu");
  if (m.qk_norm) out.Add("--qk-layernorm");
  if (m.attention_gate) out.Add("--attention-output-gate");
  AddLinearAttention(recipe, out);
  if (m.mtp_layers > 0) {
    if (!IsHybrid(m)) out.Add("--mtp-num-layers", m.mtp_layers);
    out.Add("--mtp-loss-scaling-factor", m.mtp_loss_weight);
  }
  out.Add("--normalization", m.norm == Norm::kRmsNorm ? "RMSNorm" : "LayerNorm");
  out.Add("--norm-epsilon", m.norm_epsilon);
  if (!m.bias) out.Add("--disable-bias-linear");
  if (m.qkv_bias && !m.bias) out.Add("--add-qkv-bias");
  if (!m.tied_embeddings) out.Add("--untie-embeddings-and-output-weights");
  // Times the ranks of tensor parallelism there (training/vocab_utils.py).
  out.Add("--make-vocab-size-divisible-by", m.vocab_multiple / std::gcd(m.vocab_multiple, recipe.tensor));
  out.Add("--attention-dropout", 0);
  out.Add("--hidden-dropout", 0);
  out.Add("--init-method-std", 0.02);
  if (m.experts == 0) return;
  out.Add("--num-experts", m.experts);
  out.Add("--moe-router-topk", m.experts_per_token);
  if (some_dense) {
    out.Add("--moe-ffn-hidden-size", m.ffn);
    if (!IsHybrid(m)) out.Add("--moe-layer-freq", absl::StrCat("'", ExpertPattern(m), "'"));
  }
  if (m.shared_expert_ffn > 0) out.Add("--moe-shared-expert-intermediate-size", m.shared_expert_ffn);
  if (m.shared_expert_gate) out.Add("--moe-shared-expert-gate");
  if (m.expert_hidden > 0) out.Add("--moe-latent-size", m.expert_hidden);
  if (m.choice_groups > 1) {
    out.Add("--moe-router-num-groups", m.choice_groups);
    out.Add("--moe-router-group-topk", m.choice_groups_per_token);
  }
  out.Add("--moe-grouped-gemm");
  if (PadsExperts(recipe)) {
    out.Add("--moe-expert-capacity-factor", m.capacity_factor);
    out.Add("--moe-pad-expert-input-to-capacity");
  }
}

// Micro-batches that go through a chunk before the next chunk has its turn. Megatron-Core wants no fewer than there are
// stages, of the last group either (core/pipeline_parallel/schedules.py); the fewer, the less memory. REQUIRES: there
// are as many micro-batches as stages.
int64_t MicrobatchesOfGroup(const Recipe& recipe) {
  int64_t group = recipe.pipeline;
  const auto last = [&] { return recipe.microbatches % group; };
  while (0 < last() && last() < recipe.pipeline) ++group;
  return group;
}

void AddParallelism(const Recipe& recipe, Options& out) {
  out.Add("--tensor-model-parallel-size", recipe.tensor);
  out.Add("--pipeline-model-parallel-size", recipe.pipeline);
  out.Add("--context-parallel-size", recipe.context);
  if (recipe.context > 1) out.Add("--cp-comm-type", recipe.exchange == ContextExchange::kRing ? "p2p" : "all_gather");
  if (recipe.model.experts > 0) {
    out.Add("--expert-model-parallel-size", recipe.expert * (recipe.spread_experts ? recipe.tensor : 1));
    out.Add("--expert-tensor-parallel-size", recipe.spread_experts ? 1 : recipe.tensor);
    out.Add("--moe-token-dispatcher-type", recipe.expert_groups > 1 ? "flex" : "alltoall");
    if (recipe.expert_groups > 1) out.Add("--moe-flex-dispatcher-backend", "deepep");
  }
  if (recipe.sequence_parallel) out.Add("--sequence-parallel");
  if (IsHybrid(recipe.model)) {
    // its pattern says which part has which layers
  } else if (!recipe.even_layers()) {
    out.Add("--pipeline-model-parallel-layout", absl::StrCat("'", LayoutOf(recipe), "'"));
  } else if (recipe.chunks > 1) {
    out.Add("--num-virtual-stages-per-pipeline-rank", recipe.chunks);
  }
  if (recipe.chunks > 1 && recipe.microbatches % recipe.pipeline != 0) {
    out.Add("--microbatch-group-size-per-virtual-pipeline-stage", MicrobatchesOfGroup(recipe));
  }
  out.Add("--micro-batch-size", recipe.microbatch);
  out.Add("--global-batch-size", recipe.batch);
  if (recipe.shard_parameters) {
    out.Add("--use-megatron-fsdp");
    out.Add("--data-parallel-sharding-strategy", "optim_grads_params");
    if (recipe.copies > 1) out.Add("--outer-dp-sharding-strategy", "no_shard");
    out.Add("--ckpt-format", "fsdp_dtensor");  // the only one that Megatron-FSDP starts with
    // Its user guide's required and recommended configurations, 2025 and 2026: whole weights that no device holds are
    // not made on one first.
    out.Add("--no-gradient-accumulation-fusion");
    out.Add("--init-model-with-meta-device");
  }
  // Muon's states are shared out matrix by matrix, which its own kind of optimizer does.
  const bool by_matrices = recipe.training.optimizer.kind == OpKind::kMuon;
  if (recipe.shard_optimizer && !by_matrices) out.Add("--use-distributed-optimizer");
  if (recipe.copies > 1) out.Add("--num-distributed-optimizer-instances", recipe.copies);
  if (recipe.data * recipe.context > 1) {
    out.Add("--overlap-grad-reduce");
    if (recipe.shard_optimizer && !by_matrices) out.Add("--overlap-param-gather");
    if (recipe.bucket_elements > 0) out.Add("--ddp-bucket-size", recipe.bucket_elements);
  }
  switch (recipe.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      out.Add("--recompute-granularity", "selective");
      out.Add("--recompute-modules", "core_attn layernorm");
      break;
    case Recompute::kFull:
    case Recompute::kLayer:
      out.Add("--recompute-granularity", "full");
      out.Add("--recompute-method", "uniform");
      out.Add("--recompute-num-layers", 1);
  }
}

// As the plan has it: whole matrices also where tensor parallelism splits them, Nesterov's momentum, and updates as
// large as AdamW's (core/optimizer/optimizer_config.py).
void AddMuon(const Recipe& recipe, Options& out) {
  const Optimizer& o = recipe.training.optimizer;
  out.Add("--optimizer", recipe.shard_optimizer ? "dist_muon" : "muon");
  out.Add("--muon-momentum", o.momentum);
  out.Add("--muon-use-nesterov");
  out.Add("--muon-no-split-qkv");
  out.Add("--muon-scale-mode", "spectral");
  out.Add("--muon-extra-scale-factor", 0.2);
  if (recipe.tensor > 1) out.Add("--muon-tp-mode", "duplicated");
  out.Add("--adam-beta1", o.beta1);
  out.Add("--adam-beta2", o.beta2);
  out.Add("--adam-eps", o.epsilon);
}

absl::Status AddTraining(const Recipe& recipe, Options& out) {
  const Training& t = recipe.training;
  if (t.dtype == DType::kBFloat16) out.Add("--bf16");
  if (t.dtype == DType::kFloat16) out.Add("--fp16");
  if (recipe.product_bits() == 8) out.Add("--fp8-format", "hybrid");
  if (recipe.product_bits() == 4) out.Add("--fp4-format", "e2m1");
  if (t.float8_parameters) out.Add("--fp8-param-gather");
  if (!t.fused_attention) out.Add("--attention-backend", "unfused");
  const std::optional<LossScaling> scaling = t.LossScale();
  if (IsConstantScale(t)) {
    out.Add("--loss-scale", scaling.has_value() ? scaling->initial : 1);
  } else if (scaling.has_value()) {
    out.Add("--initial-loss-scale", scaling->initial);
    out.Add("--loss-scale-window", scaling->growth_interval);
    out.Add("--hysteresis", 1);  // the plan lowers the scale at the first step that is skipped
  }
  if (t.dtype != DType::kFloat32) {
    out.Add(t.gradient_dtype == DType::kFloat32 ? "--accumulate-allreduce-grads-in-fp32" : "--grad-reduce-in-bf16");
  }
  const Optimizer& o = t.optimizer;
  out.Add("--lr", o.learning_rate);
  out.Add("--weight-decay", o.weight_decay);
  if (o.kind == OpKind::kAdamW) {
    out.Add("--optimizer", "adam");
    out.Add("--adam-beta1", o.beta1);
    out.Add("--adam-beta2", o.beta2);
    out.Add("--adam-eps", o.epsilon);
  } else if (o.kind == OpKind::kSgd || o.kind == OpKind::kMomentum) {
    out.Add("--optimizer", "sgd");
    out.Add("--sgd-momentum", o.momentum);
  } else if (o.kind == OpKind::kMuon) {
    AddMuon(recipe, out);
  } else {
    return absl::UnimplementedError("Megatron has adam, muon and sgd; change training.optimizer of the model");
  }
  out.Add("--train-iters", t.steps);
  out.Add("--seed", t.seed);
  return absl::OkStatus();
}

// What its options (training/arguments.py) say of a layer, and recipes of models that are not made by options: Gemma's
// (Megatron-Bridge, models/gemma/gemma3_provider.py; gemma2_provider.py has attention with capped scores, not fused).
absl::Status CheckForm(const DecoderConfig& m, bool fused_attention, LayersFrom from,
                       std::vector<std::string>& differences) {
  if (m.activation == Activation::kRelu) return HasNo("Megatron", "option for ReLU", "another activation");
  const bool recipe = from == LayersFrom::kRecipe;
  if (recipe && (m.activation == Activation::kGeglu || m.activation == Activation::kSquaredRelu)) {
    differences.push_back(absl::StrCat("the activation function is the recipe's, ",
                                       m.activation == Activation::kGeglu ? "GELU of gates" : "squared ReLU",
                                       " in the plan"));
  } else if (m.activation == Activation::kGeglu) {
    return HasNo("Megatron", "option for GELU of gates, but for an approximation (--quick-geglu)",
                 "activation: swiglu");
  }
  if (HasNarrowValues(m)) {
    return absl::UnimplementedError(
        "Megatron has no option for values narrower than keys (`value_head_dim`) without latent attention; take "
        "torchtitan or deepspeed");
  }
  if (m.full_attention_heads.heads > 0) {
    return absl::UnimplementedError(
        "Megatron has no option for heads of layers without windows (`full_attention_heads`); take "
        "torchtitan or deepspeed");
  }
  if (m.layer_form != LayerForm::kSerial) {
    return HasNo("Megatron", "option for attention and the feed-forward layer side by side", "layer_form: serial");
  }
  if (recipe && m.norm_places == NormPlaces::kBoth && !m.qk_norm && fused_attention) {
    return HasNo("NeMo", "fused attention where norms stand on both sides and none on queries and keys (Gemma 2)",
                 "training: {attention: unfused}");
  }
  if (recipe && m.norm_places == NormPlaces::kBoth) {
    differences.push_back(
        "where norms are, windows and rotary positions are the recipe's: norms on both sides of attention and of the "
        "feed-forward layer in the plan");
  } else if (m.norm_places != NormPlaces::kBefore) {
    return HasNo("Megatron", "option for norms behind attention and the feed-forward layer", "norm_places: before");
  }
  const LinearAttentionConfig& l = m.linear_attention;
  if (l.value_heads > 0 && l.form == LinearForm::kKimiDelta) {
    return absl::UnimplementedError(
        "Megatron has no option for Kimi Delta Attention (`form: kimi_delta`); take torchtitan or deepspeed");
  }
  if (l.value_heads > 0 && l.form == LinearForm::kStateSpace && (l.convolution != 4 || !l.convolution_bias)) {
    return HasNo("Megatron", "state space with a convolution of other than 4 taps and a bias",
                 "convolution: 4, convolution_bias: true");
  }
  if (l.value_heads > 0 && l.form == LinearForm::kGatedDelta && (l.convolution == 0 || l.convolution_bias)) {
    return HasNo("Megatron", "gated delta rule without a convolution or with its bias", "convolution: 4");
  }
  // Its norms of queries and keys are of the kind of all others.
  if (m.qk_norm && m.norm == Norm::kLayerNorm) {
    differences.push_back("norms of queries and keys are LayerNorm there, RMSNorm in the plan");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MegatronOptionList> MegatronOptionsOf(const Plan& plan, const Recipe& recipe, LayersFrom layers,
                                                     std::vector<std::string>& differences) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCommon("Megatron", recipe, differences));
  AddLeftOut(plan, differences);
  if (recipe.pipeline > 1 && recipe.schedule != Schedule::kOneFOneB) {
    return HasNo("Megatron", absl::StrCat("schedule ", NameOf(recipe.schedule)), "--schedule=1f1b");
  }
  if (recipe.chunks > 1 && recipe.microbatches < recipe.pipeline) {
    return HasNo("Megatron",
                 absl::StrCat("interleaved pipeline of ", recipe.pipeline, " stages with ", recipe.microbatches,
                              " micro-batches, which must be as many"),
                 "--virtual_pipeline_stages=1");
  }
  if (recipe.chunks > 1 && recipe.microbatches >= 2 * recipe.pipeline && recipe.microbatches % recipe.pipeline != 0) {
    differences.push_back(absl::StrCat("Megatron takes micro-batches in groups of ", MicrobatchesOfGroup(recipe),
                                       " through the chunks, the plan of ", recipe.pipeline, ", the last of ",
                                       recipe.pipeline + recipe.microbatches % recipe.pipeline));
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckForm(recipe.model, recipe.training.fused_attention, layers, differences));
  if (recipe.training.optimizer.kind == OpKind::kMuon && recipe.shard_parameters) {
    return HasNo("Megatron", "Muon on parameters that are split", "--noshard_parameters");
  }
  if (recipe.training.optimizer.kind == OpKind::kMuon && recipe.copies > 1) {
    return HasNo("Megatron", "Muon in groups of replicas", "--optimizer_weight_shard_size=-1");
  }
  if (recipe.training.float8_parameters && !recipe.shard_optimizer && !recipe.shard_parameters) {
    return HasNo("Megatron", "weights in float8 (--fp8-param-gather) without its distributed optimizer",
                 "--parallel_optimizer");
  }
  if (recipe.training.dtype == DType::kFloat64) return HasNo("Megatron", "float64", "--precision=bfloat16");
  if (const int64_t most = std::max(recipe.model.kv_heads, recipe.tensor),
      least = std::min(recipe.model.kv_heads, recipe.tensor);
      most % least != 0) {
    return HasNo("Megatron",
                 absl::StrCat("tensor parallelism of ", recipe.tensor, " with ", recipe.model.kv_heads,
                              " heads of keys and values, of which one must divide the other"),
                 absl::StrCat("--tensor_parallel=", std::gcd(most, least)));
  }
  if (recipe.model.experts > 0 && recipe.tensor > 1 && !recipe.sequence_parallel) {
    return HasNo("Megatron", "experts beside tensor parallelism without sequence parallelism", "--sequence_parallel");
  }
  if (recipe.model.experts > 0 && !PadsExperts(recipe)) {
    differences.push_back("with DeepEP experts take the tokens that come, without a capacity");
  }
  TellOfScaling("Megatron", recipe.training, differences);
  if (recipe.recompute == Recompute::kSelective) {
    differences.push_back(
        "the plan runs activation functions again, too, which Megatron keeps: it needs more memory than predicted");
  }
  if (recipe.recompute == Recompute::kFull) {
    differences.push_back("Megatron runs all of a layer again, the plan only what backward reads of it");
  }
  Options options;
  AddModel(recipe, options);
  AddParallelism(recipe, options);
  MESHWRIGHT_RETURN_IF_ERROR(AddTraining(recipe, options));
  return options.list();
}

absl::StatusOr<Exported> ToMegatron(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(plan));
  MESHWRIGHT_RETURN_IF_ERROR(RefuseAdapters("Megatron-LM", recipe));
  Exported out;
  MESHWRIGHT_ASSIGN_OR_RETURN(const MegatronOptionList options,
                              MegatronOptionsOf(plan, recipe, LayersFrom::kOptions, out.differences));
  out.text = absl::StrCat(
      "#!/usr/bin/env bash\n", Heading(plan, out.differences),
      "#\n# On every node, with MASTER_ADDR (of the first) and MEGATRON (the folder of Megatron-LM) set; flags for "
      "data and\n"
      "# the tokenizer go behind it, and those of the learning rate's decay and of clipping, which Megatron does "
      "unasked\n"
      "# (--lr-decay-style, --clip-grad). To try it: --mock-data --tokenizer-type NullTokenizer --vocab-size ",
      // Tensor parallelism wants one connection before Blackwell, Megatron-FSDP does not start with one (its
      // training/arguments.py, 2025).
      recipe.model.vocab - 1, "\nset -euo pipefail\n",
      recipe.shard_parameters ? "unset CUDA_DEVICE_MAX_CONNECTIONS" : "export CUDA_DEVICE_MAX_CONNECTIONS=1",
      "\ntorchrun --nnodes ", recipe.cluster.nodes, " --nproc-per-node ", recipe.cluster.devices_per_node,
      " --rdzv-backend c10d \\\n  --rdzv-endpoint \"${MASTER_ADDR:?the first node}:${MASTER_PORT:-29400}\" \\\n"
      "  \"${MEGATRON:?the folder of Megatron-LM}/",
      IsHybrid(recipe.model) ? "pretrain_hybrid.py" : "pretrain_gpt.py", "\" \\\n  ",
      absl::StrJoin(options, " \\\n  ",
                    [](std::string* text, const auto& option) {
                      absl::StrAppend(text, option.first, option.second.empty() ? "" : " ", option.second);
                    }),
      " \\\n  \"$@\"\n");
  return out;
}

TrainerWords WordsOfMegatron(const Recipe& recipe) {
  TrainerWords words;
  words.other_opts = absl::StrCat("Megatron-Core, no dropout, ", GradientWords(recipe));
  if (recipe.data * recipe.context > 1) {
    const bool gathers = recipe.shard_optimizer && recipe.training.optimizer.kind != OpKind::kMuon;
    absl::StrAppend(&words.other_opts, ", overlap-grad-reduce", gathers ? ", overlap-param-gather" : "");
  }
  if (recipe.training.optimizer.kind == OpKind::kMuon) absl::StrAppend(&words.other_opts, ", Muon");
  if (recipe.chunks > 1) absl::StrAppend(&words.other_opts, ", overlap-p2p");
  if (recipe.expert_groups > 1) absl::StrAppend(&words.other_opts, ", DeepEP");
  words.zero_fsdp = recipe.shard_parameters ? "Megatron FSDP, ZeRO-3" : recipe.shard_optimizer ? "ZeRO-1" : "none";
  if (recipe.copies > 1 && recipe.shard_parameters) {
    absl::StrAppend(&words.zero_fsdp, ", HSDP, dp_replicate ", recipe.copies);
  } else if (recipe.copies > 1) {
    absl::StrAppend(&words.zero_fsdp, " in groups of ", recipe.data * recipe.context / recipe.copies);
  }
  constexpr absl::string_view kRecompute[] = {"none", "core_attn layernorm", "full", "full"};
  words.recompute = std::string(kRecompute[static_cast<size_t>(recipe.recompute)]);
  words.pads_experts = PadsExperts(recipe);
  return words;
}

// Buckets are Megatron-Core's own there.
TrainerWords WordsOfNemo(const Recipe& recipe) {
  TrainerWords words = WordsOfMegatron(recipe);
  words.other_opts = absl::StrCat("NeMo, ", words.other_opts);
  words.takes_bucket = false;
  return words;
}

void NarrowToNemo(Problem* problem) { FixBucket(problem); }

}  // namespace meshwright
