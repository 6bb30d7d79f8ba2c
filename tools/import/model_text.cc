#include "tools/import/model_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/dtype.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// Lines of a section, "  key: value".
class Section {
 public:
  explicit Section(absl::string_view indent) : indent_(indent) {}
  void Add(absl::string_view key, absl::string_view value) { absl::StrAppend(&text_, indent_, key, ": ", value, "\n"); }
  void Add(absl::string_view key, const char* value) { Add(key, absl::string_view(value)); }
  void Add(absl::string_view key, int64_t value) { Add(key, absl::StrCat(value)); }
  void Add(absl::string_view key, double value) { Add(key, ShortestNumber(value)); }
  void Add(absl::string_view key, bool value) { Add(key, absl::string_view(value ? "true" : "false")); }
  // Where it is not what a missing key means.
  template <typename T, typename U>
  void AddUnless(absl::string_view key, const T& value, const U& usual) {
    if (value != static_cast<T>(usual)) Add(key, value);
  }
  const std::string& text() const { return text_; }

 private:
  const absl::string_view indent_;
  std::string text_;
};

void AddExperts(const DecoderConfig& c, Section& out) {
  if (c.experts == 0) return;
  out.Add("experts", c.experts);
  out.Add("experts_per_token", c.experts_per_token);
  out.AddUnless("shared_expert_ffn", c.shared_expert_ffn, 0);
  out.AddUnless("shared_expert_gate", c.shared_expert_gate, false);
  out.AddUnless("expert_hidden", c.expert_hidden, 0);
  out.AddUnless("dense_layers", c.dense_layers, 0);
  out.AddUnless("expert_every", c.expert_every, 1);
  out.AddUnless("dense_ffn", c.dense_ffn, 0);
  if (c.choice_groups > 1) {
    out.Add("choice_groups", c.choice_groups);
    out.Add("choice_groups_per_token", c.choice_groups_per_token);
  }
  out.Add("capacity_factor", c.capacity_factor);
}

void AddMixers(const DecoderConfig& c, Section& out) {
  if (c.kv_lora_rank > 0) {
    out.Add("kv_lora_rank", c.kv_lora_rank);
    out.AddUnless("q_lora_rank", c.q_lora_rank, 0);
    out.Add("rope_head_dim", c.rope_head_dim);
  }
  out.AddUnless("value_head_dim", c.value_head_dim, 0);
  out.AddUnless("sliding_window", c.sliding_window, 0);
  out.AddUnless("full_attention_every", c.full_attention_every, 0);
  out.AddUnless("full_attention_at", c.full_attention_at, 0);
  if (!c.full_attention_layers.empty()) {
    out.Add("full_attention_layers", absl::StrCat("[", absl::StrJoin(c.full_attention_layers, ", "), "]"));
  }
  if (const AttentionHeads& full = c.full_attention_heads; full.heads > 0) {
    out.Add("full_attention_heads",
            absl::StrCat("{heads: ", full.heads, ", kv_heads: ", full.kv_heads, ", head_dim: ", full.head_dim, "}"));
  }
  if (const LinearAttentionConfig& l = c.linear_attention; l.value_heads > 0) {
    out.Add("linear_attention",
            absl::StrCat("{form: ", kLinearFormNames[static_cast<size_t>(l.form)], ", key_heads: ", l.key_heads,
                         ", value_heads: ", l.value_heads, ", key_dim: ", l.key_dim, ", value_dim: ", l.value_dim,
                         ", convolution: ", l.convolution, l.convolution_bias ? ", convolution_bias: true" : "",
                         l.form == LinearForm::kKimiDelta
                             ? absl::StrCat(", decay_rank: ", l.decay_rank, ", gate_rank: ", l.gate_rank)
                             : "",
                         "}"));
  }
  out.AddUnless("attention_gate", c.attention_gate, false);
  out.AddUnless("qk_norm", c.qk_norm, false);
}

std::string Decoder(const DecoderConfig& c) {
  Section out("    ");
  out.Add("hidden", c.hidden);
  if (c.layer_pattern.empty()) {
    out.Add("layers", c.layers);
  } else {
    out.Add("layer_pattern", absl::StrCat("\"", c.layer_pattern, "\""));
  }
  out.Add("heads", c.heads);
  out.AddUnless("kv_heads", c.kv_heads, c.heads);
  if (c.heads * c.head_dim != c.hidden || c.kv_lora_rank > 0) out.Add("head_dim", c.head_dim);
  AddMixers(c, out);
  out.Add("ffn", c.ffn);
  out.Add("vocab", c.vocab);
  out.Add("vocab_multiple", c.vocab_multiple);
  out.AddUnless("classes", c.classes, 0);
  out.Add("activation", kActivationNames[static_cast<size_t>(c.activation)]);
  out.Add("norm", kNormNames[static_cast<size_t>(c.norm)]);
  out.Add("norm_epsilon", c.norm_epsilon);
  out.AddUnless("norm_places", kNormPlacesNames[static_cast<size_t>(c.norm_places)], kNormPlacesNames[0]);
  out.AddUnless("layer_form", kLayerFormNames[static_cast<size_t>(c.layer_form)], kLayerFormNames[0]);
  out.Add("positions", kPositionsNames[static_cast<size_t>(c.positions)]);
  if (c.positions == Positions::kLearned) out.AddUnless("max_positions", c.max_positions, 0);
  if (c.positions == Positions::kRotary) {
    out.Add("rope_theta", c.rope_theta);
    out.AddUnless("rotary_factor", c.rotary_factor, 1);
  }
  out.Add("tied_embeddings", c.tied_embeddings);
  out.Add("bias", c.bias);
  out.AddUnless("qkv_bias", c.qkv_bias, c.bias);
  AddExperts(c, out);
  if (c.mtp_layers > 0) {
    out.Add("mtp_layers", c.mtp_layers);
    out.Add("mtp_loss_weight", c.mtp_loss_weight);
  }
  return out.text();
}

std::string OptimizerText(const Optimizer& o) {
  const std::string rate = absl::StrCat("learning_rate: ", ShortestNumber(o.learning_rate));
  const std::string decay = absl::StrCat(", weight_decay: ", ShortestNumber(o.weight_decay));
  switch (o.kind) {
    case OpKind::kAdamW:
    case OpKind::kLamb:
      return absl::StrCat(o.kind == OpKind::kAdamW ? "{adamw: {" : "{lamb: {", rate,
                          ", beta1: ", ShortestNumber(o.beta1), ", beta2: ", ShortestNumber(o.beta2),
                          ", epsilon: ", ShortestNumber(o.epsilon), decay, "}}");
    case OpKind::kMuon:
      return absl::StrCat("{muon: {", rate, ", momentum: ", ShortestNumber(o.momentum),
                          ", beta1: ", ShortestNumber(o.beta1), ", beta2: ", ShortestNumber(o.beta2),
                          ", epsilon: ", ShortestNumber(o.epsilon), decay, "}}");
    case OpKind::kMomentum:
      return absl::StrCat("{momentum: {", rate, ", momentum: ", ShortestNumber(o.momentum), decay, "}}");
    default:
      return absl::StrCat("{sgd: {", rate, "}}");
  }
}

// A number stays what it is (models/training.cc).
std::string ScaleText(const LossScaling& s) {
  if (s.growth_factor == 1 && s.backoff_factor == 1) return ShortestNumber(s.initial);
  return absl::StrCat("{initial: ", ShortestNumber(s.initial), ", growth_factor: ", ShortestNumber(s.growth_factor),
                      ", backoff_factor: ", ShortestNumber(s.backoff_factor), ", growth_interval: ", s.growth_interval,
                      "}");
}

std::string TrainingText(const Recipe& recipe) {
  const Training& t = recipe.training;
  Section out("  ");
  out.Add("batch", recipe.batch);
  out.Add("sequence", t.sequence);
  out.Add("dtype", NameOf(t.dtype));
  out.AddUnless("gradient_dtype", NameOf(t.gradient_dtype), NameOf(DType::kFloat32));
  if (t.float8_parameters) out.Add("parameters", "float8");
  out.Add("optimizer", OptimizerText(t.optimizer));
  if (t.scales_loss == Training::Scales::kNo && t.dtype == DType::kFloat16) out.Add("loss_scale", "none");
  if (t.scales_loss == Training::Scales::kYes) out.Add("loss_scale", ScaleText(t.loss_scaling));
  if (!t.fused_attention) out.Add("attention", "unfused");
  if (!t.fused_norms) out.Add("norms", "unfused");
  if (!t.fused_loss) out.Add("loss", "unfused");
  out.AddUnless("steps", t.steps, Training().steps);
  out.AddUnless("seed", t.seed, 1);
  return out.text();
}

std::string ParallelText(const Recipe& recipe) {
  Section out("  ");
  if (recipe.data > 0) out.Add("data_parallel", recipe.data);
  out.Add("tensor_parallel", recipe.tensor);
  out.Add("context_parallel", recipe.context);
  if (recipe.context > 1 && recipe.exchange != ContextExchange::kNone) {
    out.Add("context_exchange", recipe.exchange == ContextExchange::kRing ? "ring" : "all_gather");
  }
  if (recipe.model.experts > 0) {
    out.Add("expert_parallel", recipe.expert);
    if (recipe.tensor > 1) out.Add("spread_experts", recipe.spread_experts);
  }
  out.Add("pipeline_stages", recipe.pipeline);
  if (recipe.pipeline > 1) {
    out.Add("pipeline_config", absl::StrCat("{pipeline_scheduler: ", NameOf(recipe.schedule),
                                            recipe.chunks > 1 ? ", pipeline_interleave: true}" : "}"));
    if (recipe.chunks > 1) out.Add("virtual_pipeline_stages", recipe.chunks);
    if (!recipe.layers.empty()) out.Add("layers_per_stage", absl::StrCat("[", absl::StrJoin(recipe.layers, ", "), "]"));
  }
  if (recipe.microbatch > 0) out.Add("micro_batch", recipe.microbatch);
  out.Add("sequence_parallel", recipe.sequence_parallel);
  out.Add("enable_parallel_optimizer", recipe.shard_optimizer || recipe.shard_parameters);
  out.Add("shard_parameters", recipe.shard_parameters);
  if (recipe.copies > 1 && recipe.data > 0) {
    out.Add("optimizer_weight_shard_size", recipe.data * recipe.context / recipe.copies);
  } else if (recipe.copies == 1 && (recipe.shard_optimizer || recipe.shard_parameters)) {
    out.Add("optimizer_weight_shard_size", int64_t{-1});  // over all, where a search would try groups
  }
  if (recipe.shard_gradients) out.Add("parallel_optimizer_config", "{gradient_accumulation_shard: true}");
  constexpr absl::string_view kRecomputes[] = {"none", "selective", "full", "full"};
  if (!recipe.leaves_recompute) out.Add("recompute", kRecomputes[static_cast<size_t>(recipe.recompute)]);
  if (recipe.bucket_elements > 0) {
    const int64_t bytes = recipe.bucket_elements * SizeOf(recipe.training.gradient_dtype).raw();
    out.Add("comm_fusion", absl::StrCat("{allreduce: {mode: size, config: ", (bytes + (1 << 20) - 1) >> 20, "}}"));
  }
  return out.text();
}

}  // namespace

std::string ModelText(const Recipe& recipe, absl::string_view heading) {
  std::string text =
      absl::StrCat("# ", heading, "\nname: ", recipe.name, "\narchitecture:\n  decoder:\n", Decoder(recipe.model),
                   "training:\n", TrainingText(recipe), "parallel:\n", ParallelText(recipe));
  const Cluster& cluster = recipe.cluster;
  if (!cluster.device.name.empty()) {
    absl::StrAppend(&text, "cluster: {device: ", cluster.device.name);
    if (cluster.nodes > 0) absl::StrAppend(&text, ", nodes: ", cluster.nodes);
    if (cluster.devices_per_node > 0) absl::StrAppend(&text, ", devices_per_node: ", cluster.devices_per_node);
    if (recipe.product_bits() > 0) absl::StrAppend(&text, ", products: ", NameOfProducts(recipe));
    absl::StrAppend(&text, "}\n");
  }
  return text;
}

}  // namespace meshwright
