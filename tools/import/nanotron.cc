#include "tools/import/nanotron.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr int64_t kMost = int64_t{1} << 32;

// A null is a missing value there.
NodeRef Value(const NodeRef& in, absl::string_view key) {
  const NodeRef value = in[key];
  return value.is_null() ? in["~"] : value;
}

absl::Status ReadModel(const NodeRef& model, const ImportHints& hints, Recipe& recipe) {
  const NodeRef in = model["model_config"];
  DecoderConfig& c = recipe.model;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.hidden, in["hidden_size"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.layers, in["num_hidden_layers"].AsInt(1, kMostLayers));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.heads, in["num_attention_heads"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, Value(in, "num_key_value_heads").AsIntOr(c.heads, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, in["intermediate_size"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab, in["vocab_size"].AsInt(1, kMost));
  if (hints.vocab.has_value()) c.vocab = *hints.vocab;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.vocab_multiple, Value(model, "make_vocab_size_divisible_by").AsIntOr(1, 1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, in["rms_norm_eps"].AsDoubleOr(1e-5, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, in["rope_theta"].AsDoubleOr(10000, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.tied_embeddings, in["tie_word_embeddings"].AsBoolOr(false));
  c.head_dim = std::max<int64_t>(1, c.hidden / c.heads);
  c.activation = Activation::kSwiglu;
  c.norm = Norm::kRmsNorm;
  c.positions = Positions::kRotary;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string dtype, model["dtype"].AsStringOr("bfloat16"));
  recipe.training.dtype = dtype == "float16"   ? DType::kFloat16
                          : dtype == "float32" ? DType::kFloat32
                                               : DType::kBFloat16;
  return absl::OkStatus();
}

absl::Status ReadOptimizer(const NodeRef& in, Recipe& recipe, std::vector<std::string>& notes) {
  Optimizer& o = recipe.training.optimizer;
  const NodeRef factory = in["optimizer_factory"];
  o.kind = OpKind::kAdamW;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, factory["name"].AsStringOr("adamW"));
  if (absl::EqualsIgnoreCase(name, "sgd")) {
    o.kind = OpKind::kMomentum;
  } else if (!absl::EqualsIgnoreCase(name, "adamW")) {
    notes.push_back(absl::StrCat("the optimizer ", name, " is planned as adamw"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(o.learning_rate,
                              in["learning_rate_scheduler"]["learning_rate"].AsDoubleOr(o.learning_rate, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.beta1, factory["adam_beta1"].AsDoubleOr(0.9, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.beta2, factory["adam_beta2"].AsDoubleOr(0.999, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.epsilon, factory["adam_eps"].AsDoubleOr(1e-8, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(o.weight_decay, in["weight_decay"].AsDoubleOr(0, 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool wide, in["accumulate_grad_in_fp32"].AsBoolOr(true));
  recipe.training.gradient_dtype = wide ? DType::kFloat32 : recipe.training.dtype;
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t stage, in["zero_stage"].AsIntOr(0, 0, 3));
  recipe.shard_optimizer = stage > 0;
  recipe.shard_parameters = stage == 3;
  return absl::OkStatus();
}

absl::Status ReadSplit(const NodeRef& in, Recipe& recipe, int64_t& replicas) {
  MESHWRIGHT_ASSIGN_OR_RETURN(replicas, in["dp"].AsInt(1, kMostOfDegree));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.tensor, in["tp"].AsInt(1, kMostOfDegree));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.pipeline, in["pp"].AsInt(1, kMostOfDegree));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.context, in["context_parallel_size"].AsIntOr(1, 1, kMostOfDegree));
  if (recipe.context > 1) recipe.exchange = ContextExchange::kRing;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string engine, in["pp_engine"].AsStringOr("1f1b"));
  recipe.schedule = engine == "afab" ? Schedule::kGpipe : Schedule::kOneFOneB;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string mode, in["tp_mode"].AsStringOr("ALL_REDUCE"));
  recipe.sequence_parallel = absl::EqualsIgnoreCase(mode, "REDUCE_SCATTER") && recipe.tensor > 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool again, in["recompute_layer"].AsBoolOr(false));
  recipe.recompute = again ? Recompute::kFull : Recompute::kNone;
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeNanotron(absl::string_view text) {
  return absl::StrContains(text, "model_config:") && absl::StrContains(text, "parallelism:");
}

absl::StatusOr<Recipe> ReadNanotron(const NodeRef& in, absl::string_view name, const ImportHints& hints,
                                    std::vector<std::string>& notes) {
  Recipe recipe;
  recipe.name = PlainName(name);
  int64_t replicas = 1;
  MESHWRIGHT_RETURN_IF_ERROR(ReadModel(in["model"], hints, recipe));
  MESHWRIGHT_RETURN_IF_ERROR(ReadOptimizer(in["optimizer"], recipe, notes));
  MESHWRIGHT_RETURN_IF_ERROR(ReadSplit(in["parallelism"], recipe, replicas));
  const NodeRef tokens = in["tokens"];
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.training.sequence, tokens["sequence_length"].AsInt(1, kLongestSequence));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.microbatch, tokens["micro_batch_size"].AsInt(1, kMostOfStep));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.microbatches, tokens["batch_accumulation_per_replica"].AsIntOr(1, 1, kMostOfStep));
  MESHWRIGHT_ASSIGN_OR_RETURN(recipe.training.steps, Value(tokens, "train_steps").AsIntOr(Training().steps, 1, kMost));
  MESHWRIGHT_RETURN_IF_ERROR(in["parallelism"].Locate(
      SetDevices(hints, replicas * recipe.tensor * recipe.pipeline * recipe.context, std::nullopt, recipe, notes)));
  recipe.batch = recipe.microbatch * recipe.microbatches * recipe.data;
  if (recipe.pipeline > 1)
    notes.push_back("nanotron deals layers out to stages by their cost, the plan by their number");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t megabytes, Value(in["model"], "ddp_bucket_cap_mb").AsIntOr(25, 1, 1 << 20));
  recipe.bucket_elements = (megabytes << 20) / SizeOf(recipe.training.gradient_dtype).raw();
  return recipe;
}

}  // namespace meshwright
