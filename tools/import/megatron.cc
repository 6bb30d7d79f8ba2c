#include "tools/import/megatron.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"
#include "tools/import/megatron_arguments.h"

namespace meshwright {
namespace {

// What an argument is that is there and switches nothing on: logs list all of them.
bool IsOff(absl::string_view text) {
  return absl::c_linear_search(std::vector<absl::string_view>{"0", "0.0", "no", "none", "vanilla"}, text);
}

class Megatron {
 public:
  Megatron(Options& options, absl::string_view name, const ImportHints& hints) : o_(options), hints_(hints) {
    recipe_.name = PlainName(name);
  }

  absl::StatusOr<Recipe> Read() {
    for (const absl::string_view other : {"_bert", "_t5", "_ict", "_vision", "_vlm", "_multimodal", "_retro"}) {
      if (!absl::StrContains(o_.program, other)) continue;
      return absl::UnimplementedError(
          absl::StrCat("found ", o_.program, ", wanted a trainer of decoders such as pretrain_gpt.py"));
    }
    for (const LeftOut& refused : kRefused) {
      if (!IsOn(refused.name)) continue;
      return absl::UnimplementedError(o_.Error(refused.name, "it", refused.note).message());
    }
    MESHWRIGHT_RETURN_IF_ERROR(Degrees());
    MESHWRIGHT_RETURN_IF_ERROR(Pattern());
    MESHWRIGHT_RETURN_IF_ERROR(Sizes());
    MESHWRIGHT_RETURN_IF_ERROR(Attention());
    MESHWRIGHT_RETURN_IF_ERROR(Experts());
    MESHWRIGHT_RETURN_IF_ERROR(Linear());
    MESHWRIGHT_RETURN_IF_ERROR(Vocabulary());
    MESHWRIGHT_RETURN_IF_ERROR(Types());
    MESHWRIGHT_RETURN_IF_ERROR(Devices());
    MESHWRIGHT_RETURN_IF_ERROR(Batch());
    MESHWRIGHT_RETURN_IF_ERROR(Stages());
    MESHWRIGHT_RETURN_IF_ERROR(CheckLayers());
    MESHWRIGHT_RETURN_IF_ERROR(Choices());
    MESHWRIGHT_RETURN_IF_ERROR(Updates());
    for (const LeftOut& left_out : kLeftOut) {
      if (IsOn(left_out.name)) o_.notes.push_back(absl::StrCat("--", left_out.name, ": ", left_out.note));
    }
    for (const absl::string_view name : {"hidden-dropout", "attention-dropout"}) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const double rate, o_.Number(name, 0.1));
      if (rate > 0)
        o_.notes.push_back(absl::StrCat("--", name, " of ", rate, " is left out: decoders have no dropout"));
    }
    return std::move(recipe_);
  }

 private:
  bool IsOn(absl::string_view name) const {
    const std::vector<std::string> values = o_.Values(name);
    return o_.Has(name) && (values.empty() || !IsOff(values[0]));
  }

  // Where an argument switches something off that is on, and a log says whether it is on.
  bool OnUnless(absl::string_view off, absl::string_view on) const { return o_.resolved() ? o_.Has(on) : !o_.Has(off); }

  absl::Status Degrees() {
    const std::pair<absl::string_view, int64_t*> degrees[] = {{"tensor-model-parallel-size", &recipe_.tensor},
                                                              {"pipeline-model-parallel-size", &recipe_.pipeline},
                                                              {"context-parallel-size", &recipe_.context}};
    for (const auto& [name, degree] : degrees) {
      MESHWRIGHT_ASSIGN_OR_RETURN(*degree, o_.Int(name, 1));
      if (*degree > kMostOfDegree)
        return o_.Error(name, absl::StrCat(*degree), absl::StrCat("at most ", kMostOfDegree));
    }
    recipe_.sequence_parallel = o_.Has("sequence-parallel") && recipe_.tensor > 1;
    if (recipe_.context == 1) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(std::string way, o_.Text("cp-comm-type", "p2p"));
    way = absl::StrReplaceAll(way, {{"[", ""}, {"]", ""}, {"'", ""}});
    recipe_.exchange = way == "all_gather" ? ContextExchange::kAllGather : ContextExchange::kRing;
    if (way != "all_gather" && way != "p2p") {
      o_.notes.push_back(absl::StrCat("--cp-comm-type ", way, " is planned as p2p, a ring"));
    }
    return absl::OkStatus();
  }

  // "M-M-*-|M-M-*-/*-": halves of layers, parts of the pipeline, and behind slashes what predicts further tokens.
  absl::Status Pattern() {
    for (const absl::string_view name : {"hybrid-layer-pattern", "hybrid-override-pattern"}) {
      if (!o_.Has(name)) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, o_.Text(name, ""));
      const std::vector<std::string> parts = absl::StrSplit(text, '/');
      recipe_.model.mtp_layers = static_cast<int64_t>(parts.size()) - 1;
      const std::vector<std::string> stages = absl::StrSplit(parts[0], '|');
      if (stages.size() > 1) {
        for (const std::string& stage : stages) recipe_.layers.push_back(static_cast<int64_t>(stage.size()));
        recipe_.chunks = std::max<int64_t>(1, static_cast<int64_t>(stages.size()) / recipe_.pipeline);
      }
      std::string& pattern = recipe_.model.layer_pattern;
      pattern = absl::StrJoin(stages, "");
      if (absl::StrContains(pattern, 'G') && absl::StrContains(pattern, 'M')) {
        return absl::UnimplementedError(o_.Error(name, "state spaces and delta rules", "one of both").message());
      }
      recipe_.model.linear_attention.form =
          absl::StrContains(pattern, 'G') ? LinearForm::kGatedDelta : LinearForm::kStateSpace;
      absl::StrReplaceAll({{"G", "M"}}, &pattern);
      if (const size_t at = pattern.find_first_not_of("M*-E"); at != std::string::npos) {
        return absl::UnimplementedError(o_.Error(name, pattern.substr(at, 1), "letters M, G, *, - and E").message());
      }
    }
    return absl::OkStatus();
  }

  absl::Status Sizes() {
    DecoderConfig& c = recipe_.model;
    const auto required = [&](absl::string_view name, int64_t& size) -> absl::Status {
      if (!o_.Has(name)) return o_.Error(name, "nothing", "the model's size");
      MESHWRIGHT_ASSIGN_OR_RETURN(size, o_.Int(name, 0));
      return absl::OkStatus();
    };
    MESHWRIGHT_RETURN_IF_ERROR(required("hidden-size", c.hidden));
    MESHWRIGHT_RETURN_IF_ERROR(required("num-attention-heads", c.heads));
    c.layers = static_cast<int64_t>(c.layer_pattern.size());
    if (c.layer_pattern.empty()) MESHWRIGHT_RETURN_IF_ERROR(required("num-layers", c.layers));
    if (c.layers > kMostLayers)
      return o_.Error("num-layers", absl::StrCat(c.layers), absl::StrCat("up to ", kMostLayers));
    MESHWRIGHT_RETURN_IF_ERROR(required("seq-length", recipe_.training.sequence));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.max_positions, o_.Int("max-position-embeddings", recipe_.training.sequence));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, o_.Int("kv-channels", std::max<int64_t>(1, c.hidden / c.heads)));
    c.kv_heads = c.heads;
    if (o_.Has("group-query-attention")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_heads, o_.Int("num-query-groups", 1));
    }
    c.activation = o_.Has("swiglu")         ? Activation::kSwiglu
                   : o_.Has("squared-relu") ? Activation::kSquaredRelu
                   : o_.Has("quick-geglu")  ? Activation::kGeglu
                                            : Activation::kGelu;
    const int64_t gated = 4 * c.hidden * 2 / 3 / 64 * 64;
    MESHWRIGHT_ASSIGN_OR_RETURN(
        c.ffn, o_.Int("ffn-hidden-size", std::max<int64_t>(1, o_.Has("swiglu") ? gated : 4 * c.hidden)));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string norm, o_.Text("normalization", "LayerNorm"));
    c.norm = norm == "RMSNorm" ? Norm::kRmsNorm : Norm::kLayerNorm;
    MESHWRIGHT_ASSIGN_OR_RETURN(const double older, o_.Number("layernorm-epsilon", 1e-5));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.norm_epsilon, o_.Number("norm-epsilon", older));
    c.bias = OnUnless("disable-bias-linear", "add-bias-linear");
    c.qkv_bias = c.bias || o_.Has("add-qkv-bias");
    c.tied_embeddings = !o_.Has("untie-embeddings-and-output-weights");
    if (c.layer_pattern.empty()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(c.mtp_layers, o_.Int("mtp-num-layers", 0, 0));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(c.mtp_loss_weight, o_.Number("mtp-loss-scaling-factor", 0.1));
    return Positions();
  }

  absl::Status Positions() {
    DecoderConfig& c = recipe_.model;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string kind, o_.Text("position-embedding-type", "learned_absolute"));
    const bool rotary = kind == "rope" || kind == "yarn" || kind == "mrope" || o_.Has("use-rotary-position-embeddings");
    if (!rotary && kind != "learned_absolute" && kind != "none") {
      o_.notes.push_back(absl::StrCat("positions of type ", kind, " are left out"));
    }
    c.positions = rotary                                                           ? Positions::kRotary
                  : kind == "learned_absolute" && !o_.Has("no-position-embedding") ? Positions::kLearned
                                                                                   : Positions::kNone;
    MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_theta, o_.Number("rotary-base", 10000));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.rotary_factor, o_.Number("rotary-percent", 1));
    return absl::OkStatus();
  }

  absl::Status Attention() {
    DecoderConfig& c = recipe_.model;
    c.qk_norm = o_.Has("qk-layernorm");
    c.attention_gate = o_.Has("attention-output-gate");
    if (o_.Has("multi-latent-attention")) {
      c.qk_norm = false;  // of the vectors, which latent attention norms in any case
      c.kv_heads = c.heads;
      MESHWRIGHT_ASSIGN_OR_RETURN(c.kv_lora_rank, o_.Int("kv-lora-rank", 32));
      MESHWRIGHT_ASSIGN_OR_RETURN(c.q_lora_rank, o_.Int("q-lora-rank", 0, 0));
      MESHWRIGHT_ASSIGN_OR_RETURN(c.head_dim, o_.Int("qk-head-dim", 128));
      MESHWRIGHT_ASSIGN_OR_RETURN(c.rope_head_dim, o_.Int("qk-pos-emb-head-dim", 64));
      MESHWRIGHT_ASSIGN_OR_RETURN(c.value_head_dim, o_.Int("v-head-dim", 128));
      if (c.value_head_dim == c.head_dim) c.value_head_dim = 0;
    }
    if (o_.Has("window-size")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::string window, o_.Text("window-size", ""));
      const std::vector<std::string> sides = absl::StrSplit(absl::StrReplaceAll(window, {{"(", ""}, {")", ""}}), ',');
      if (!absl::SimpleAtoi(sides[0], &c.sliding_window) || c.sliding_window < 0) {
        return o_.Error("window-size", window, "tokens before one's own and behind it, such as 4095,0");
      }
      ++c.sliding_window;
      if (o_.Has("window-attn-skip-freq")) MESHWRIGHT_RETURN_IF_ERROR(FullLayers("window-attn-skip-freq"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string backend, o_.Text("attention-backend", "auto"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string layers, o_.Text("transformer-impl", "transformer_engine"));
    recipe_.training.fused_attention = !absl::EndsWith(backend, "unfused") && !absl::EndsWith(backend, "local") &&
                                       (layers != "local" || o_.Has("use-flash-attn"));
    return absl::OkStatus();
  }

  absl::Status Experts() {
    DecoderConfig& c = recipe_.model;
    MESHWRIGHT_ASSIGN_OR_RETURN(c.experts, o_.Int("num-experts", 0, 0));
    if (c.experts == 0) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(c.experts_per_token, o_.Int("moe-router-topk", 2));
    const int64_t dense = c.ffn;
    MESHWRIGHT_ASSIGN_OR_RETURN(c.ffn, o_.Int("moe-ffn-hidden-size", dense));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.shared_expert_ffn, o_.Int("moe-shared-expert-intermediate-size", 0, 0));
    c.shared_expert_gate = o_.Has("moe-shared-expert-gate");
    MESHWRIGHT_ASSIGN_OR_RETURN(c.expert_hidden, o_.Int("moe-latent-size", 0, 0));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups, o_.Int("moe-router-num-groups", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.choice_groups_per_token, o_.Int("moe-router-group-topk", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(c.capacity_factor, o_.Number("moe-expert-capacity-factor", 0));
    if (c.capacity_factor <= 0) {
      c.capacity_factor = 1;
      o_.notes.push_back("experts have no capacity there; the plan takes tokens to be spread evenly");
    }
    MESHWRIGHT_RETURN_IF_ERROR(ExpertLayerList());
    if (CountLayers(c).dense > 0) c.dense_ffn = dense;
    if (c.bias) {
      c.bias = false;
      o_.notes.push_back("biases are left out beside experts, but for those of queries, keys and values");
    }
    int64_t ranks = 1, tensor = 1;
    MESHWRIGHT_ASSIGN_OR_RETURN(ranks, o_.Int("expert-model-parallel-size", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(tensor, o_.Int("expert-tensor-parallel-size", recipe_.tensor));
    recipe_.expert = ranks;
    recipe_.spread_experts = tensor == 1 && recipe_.tensor > 1 && ranks % recipe_.tensor == 0;
    if (recipe_.spread_experts) recipe_.expert = ranks / recipe_.tensor;
    if (tensor != recipe_.tensor && !recipe_.spread_experts) {
      o_.notes.push_back(absl::StrCat("--expert-tensor-parallel-size ", tensor, " is planned as ", recipe_.tensor,
                                      ", the degree of the other layers"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string dispatcher, o_.Text("moe-token-dispatcher-type", "allgather"));
    recipe_.expert_groups = dispatcher == "flex" ? 0 : 1;
    if (dispatcher == "allgather" && ranks > 1)
      o_.notes.push_back("tokens are gathered there, and exchanged in the plan");
    return absl::OkStatus();
  }

  // A number n: the first of each n layers; or a list.
  absl::Status ExpertLayerList() {
    DecoderConfig& c = recipe_.model;
    if (!c.layer_pattern.empty()) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, o_.Text("moe-layer-freq", "1"));
    int64_t every = 0;
    std::vector<int> list;
    if (absl::SimpleAtoi(text, &every) && every > 0) {
      for (int64_t i = 0; i < c.layers; ++i) list.push_back(i % every == 0 ? 1 : 0);
    } else {
      const absl::StatusOr<std::vector<int>> read = ReadListExpression(text);
      if (!read.ok()) return o_.Error("moe-layer-freq", text, std::string(read.status().message()));
      list = *read;
    }
    if (static_cast<int64_t>(list.size()) != c.layers) {
      return o_.Error("moe-layer-freq", absl::StrCat(list.size(), " layers"), absl::StrCat(c.layers));
    }
    const int64_t dense = std::find(list.begin(), list.end(), 1) - list.begin();
    for (c.expert_every = 1; c.expert_every <= dense + 1; ++c.expert_every) {
      c.dense_layers = dense - (c.expert_every - 1);
      bool same = (c.layers - c.dense_layers) % c.expert_every == 0;
      for (int64_t i = c.dense_layers; i < c.layers; ++i) {
        same = same && (list[static_cast<size_t>(i)] == 1) == ((i - c.dense_layers + 1) % c.expert_every == 0);
      }
      if (same) return absl::OkStatus();
    }
    return absl::UnimplementedError(
        o_.Error("moe-layer-freq", text, "experts in all layers behind the first ones, or in the last of each so many")
            .message());
  }

  absl::Status Linear() {
    DecoderConfig& c = recipe_.model;
    LinearAttentionConfig& l = c.linear_attention;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string variant, o_.Text("experimental-attention-variant", "none"));
    const bool delta = variant == "gdn" || variant == "gated_delta_net";
    if (!delta && !IsOff(variant)) {
      return absl::UnimplementedError(o_.Error("experimental-attention-variant", variant, "gdn, or none").message());
    }
    if (c.layer_pattern.empty() ? delta
                                : l.form == LinearForm::kGatedDelta && absl::StrContains(c.layer_pattern, 'M')) {
      l.form = LinearForm::kGatedDelta;
      MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution, o_.Int("linear-conv-kernel-dim", 4));
      MESHWRIGHT_ASSIGN_OR_RETURN(l.key_heads, o_.Int("linear-num-key-heads", 16));
      MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads, o_.Int("linear-num-value-heads", 32));
      MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim, o_.Int("linear-key-head-dim", 128));
      MESHWRIGHT_ASSIGN_OR_RETURN(l.value_dim, o_.Int("linear-value-head-dim", 128));
      return c.layer_pattern.empty() ? FullLayers("linear-attention-freq") : absl::OkStatus();
    }
    if (!absl::StrContains(c.layer_pattern, 'M')) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(l.value_dim, o_.Int("mamba-head-dim", 64));
    MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads,
                                o_.Int("mamba-num-heads", std::max<int64_t>(1, 2 * c.hidden / l.value_dim)));
    MESHWRIGHT_ASSIGN_OR_RETURN(l.key_heads, o_.Int("mamba-num-groups", 8));
    MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim, o_.Int("mamba-state-dim", 128));
    l.convolution = 4;
    l.convolution_bias = true;
    return absl::OkStatus();
  }

  // A number n: attention of the usual kind in the last of each n layers; or a list, 0 where it is.
  absl::Status FullLayers(absl::string_view option) {
    DecoderConfig& c = recipe_.model;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, o_.Text(option, "1"));
    if (absl::SimpleAtoi(text, &c.full_attention_every) && c.full_attention_every > 1) return absl::OkStatus();
    c.full_attention_every = 0;
    const absl::StatusOr<std::vector<int>> list = ReadListExpression(text);
    if (!list.ok() || static_cast<int64_t>(list->size()) != c.layers) {
      return o_.Error(option, text, absl::StrCat("a number from 2, or a list of ", c.layers, " layers"));
    }
    std::vector<bool> full;
    for (const int other : *list) full.push_back(other == 0);
    SetFullAttention(full, c);
    return absl::OkStatus();
  }

  absl::Status Vocabulary() {
    DecoderConfig& c = recipe_.model;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> words, o_.IntIfGiven(kTokenizerWords, 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> padded, o_.IntIfGiven("padded-vocab-size", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string tokenizer, o_.Text("tokenizer-type", "none"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> given, o_.IntIfGiven("vocab-size", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t multiple, o_.Int("make-vocab-size-divisible-by", 128));
    c.vocab_multiple = multiple * recipe_.tensor;
    if (hints_.vocab.has_value()) {
      c.vocab = *hints_.vocab;
    } else if (words.has_value()) {
      c.vocab = *words;
    } else if (padded.has_value()) {
      c.vocab = *padded;
      c.vocab_multiple = 1;
    } else if (given.has_value()) {
      c.vocab = *given + (tokenizer == "NullTokenizer" ? 1 : 0);  // which has an end of text besides
    } else if (tokenizer == "GPT2BPETokenizer" || (tokenizer == "none" && o_.Has("merge-file"))) {
      c.vocab = 50257;
    } else if (tokenizer == "Llama2Tokenizer") {
      c.vocab = 32000;
    } else {
      return absl::InvalidArgumentError(
          "found no --vocab-size, wanted the number of words: the tokenizer's files say it; give it as --vocab=32000");
    }
    return absl::OkStatus();
  }

  // Where its Muon does other work than the plan's (core/optimizer/emerging_optimizers.py).
  absl::Status TellOfMuon() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const double iterations, o_.NumberIfKnown("muon-num-ns-steps", 5));
    if (iterations != 5) {
      o_.notes.push_back(absl::StrCat("--muon-num-ns-steps ", iterations, " is planned as 5"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string mode, o_.Text("muon-tp-mode", "blockwise"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const double tensor, o_.NumberIfKnown("tensor-model-parallel-size", 1));
    if (tensor > 1 && mode == "blockwise") {
      o_.notes.push_back(
          "--muon-tp-mode blockwise: a rank's part of a matrix is taken by itself there, whole ones here");
    }
    return absl::OkStatus();
  }

  absl::Status Float8Parameters() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string scales, o_.Text("fp8-recipe", "delayed"));
    if (!IsOn("fp8-param-gather") || recipe_.product_bits() != 8) return absl::OkStatus();
    // Twice in 8 bits, and gathered in 16 (distributed/param_and_grad_buffer.py, reuse_grad_buf_for_mxfp8_param_ag).
    const bool blocks = scales == "mxfp8";
    if (blocks) o_.notes.push_back("--fp8-param-gather: weights in MXFP8 are planned in 16 bits, which take as much");
    recipe_.training.float8_parameters = !blocks && !hints_.device.empty();
    if (!blocks && hints_.device.empty()) {
      o_.notes.push_back("weights in float8 want products in it: plan with --parameters=float8, too");
    }
    return absl::OkStatus();
  }

  absl::Status Types() {
    Training& t = recipe_.training;
    t.dtype = o_.Has("bf16") ? DType::kBFloat16 : o_.Has("fp16") ? DType::kFloat16 : DType::kFloat32;
    // Of bf16 float32 in any case but one (arguments.py, validate_args).
    const bool wide =
        o_.Has("accumulate-allreduce-grads-in-fp32") || (o_.Has("bf16") && !o_.Has("grad-reduce-in-bf16"));
    t.gradient_dtype = wide ? DType::kFloat32 : t.dtype;
    constexpr std::pair<absl::string_view, int> kFormats[] = {
        {"fp8-format", 8}, {"fp8", 8}, {"fp4-format", 4}, {"fp4", 4}};
    for (const auto& [name, bits] : kFormats) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::string format, o_.Text(name, "none"));
      if (!IsOff(format)) recipe_.cluster.device.kernels.product_bits = bits;
    }
    if (recipe_.product_bits() > 0 && hints_.device.empty()) {
      const std::string products = NameOfProducts(recipe_);
      o_.notes.push_back(absl::StrCat("products in ", products, " are the cluster's: plan with --products=", products));
    }
    MESHWRIGHT_RETURN_IF_ERROR(Float8Parameters());
    Optimizer& o = t.optimizer;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string kind, o_.Text("optimizer", "adam"));
    MESHWRIGHT_ASSIGN_OR_RETURN(o.learning_rate, o_.NumberIfKnown("lr", 3e-4));
    MESHWRIGHT_ASSIGN_OR_RETURN(o.weight_decay, o_.NumberIfKnown("weight-decay", 0.01));
    const bool muon = kind == "muon" || kind == "dist_muon";
    o.kind = kind == "sgd" ? OpKind::kMomentum : muon ? OpKind::kMuon : OpKind::kAdamW;
    if (kind != "sgd" && kind != "adam" && !muon) {
      o_.notes.push_back(absl::StrCat("--optimizer ", kind, " is planned as adam"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(o.momentum, o_.NumberIfKnown(muon ? "muon-momentum" : "sgd-momentum", 0.9));
    if (muon) MESHWRIGHT_RETURN_IF_ERROR(TellOfMuon());
    MESHWRIGHT_ASSIGN_OR_RETURN(o.beta1, o_.NumberIfKnown("adam-beta1", 0.9));
    MESHWRIGHT_ASSIGN_OR_RETURN(o.beta2, o_.NumberIfKnown("adam-beta2", 0.999));
    MESHWRIGHT_ASSIGN_OR_RETURN(o.epsilon, o_.NumberIfKnown("adam-eps", 1e-8));
    // In samples, where the batch grows at first; of a run that has not said either, as many as `run` takes.
    MESHWRIGHT_ASSIGN_OR_RETURN(const double steps, o_.NumberIfKnown("train-iters", 0));
    if (steps >= 1 && steps < 1e15) t.steps = static_cast<int64_t>(steps);
    MESHWRIGHT_ASSIGN_OR_RETURN(const double seed, o_.NumberIfKnown("seed", 1234));
    t.seed = static_cast<int64_t>(std::min(seed, 1e15));
    return absl::OkStatus();
  }

  // How many there are, on how many nodes.
  absl::Status Devices() {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> world, o_.IntIfGiven("world-size", 1));
    const LaunchSize& launch = o_.launch;
    if (!world.has_value() && launch.nodes.has_value() && launch.per_node.has_value()) {
      world = *launch.nodes * *launch.per_node;
    }
    if (!world.has_value()) world = launch.ranks;
    const absl::Status status = SetDevices(hints_, world, launch.per_node, recipe_, o_.notes);
    if (status.ok() || !o_.Has("tensor-model-parallel-size")) return status;
    return o_.Locate("tensor-model-parallel-size", status);
  }

  absl::Status Batch() {
    MESHWRIGHT_ASSIGN_OR_RETURN(recipe_.microbatch, o_.Int("micro-batch-size", 0));
    if (recipe_.microbatch == 0) o_.notes.push_back("no --micro-batch-size is said: the plan chooses it");
    MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> batch, o_.IntIfGiven("global-batch-size", 1));
    if (!batch.has_value() && recipe_.microbatch * recipe_.data > 0) batch = recipe_.microbatch * recipe_.data;
    if (hints_.batch.has_value()) batch = hints_.batch;
    if (!batch.has_value()) {
      return absl::InvalidArgumentError(
          "found no --global-batch-size, wanted the sequences of a step; give them as --batch=1024");
    }
    recipe_.batch = *batch;
    const int64_t rows = std::max<int64_t>(1, recipe_.microbatch), replicas = std::max<int64_t>(1, recipe_.data);
    if (*batch % (rows * replicas) == 0) return absl::OkStatus();
    return o_.Error("global-batch-size", absl::StrCat(*batch),
                    absl::StrCat("a multiple of ", rows, " sequences on ", replicas, " replicas"));
  }

  absl::Status Stages() {
    if (recipe_.pipeline == 1) return recipe_.layers.clear(), absl::OkStatus();
    if (!recipe_.layers.empty()) return absl::OkStatus();  // the pattern has them
    const int64_t layers = recipe_.model.layers, stages = recipe_.pipeline;
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t of_chunk, o_.Int("num-layers-per-virtual-pipeline-stage", 0, 0));
    MESHWRIGHT_ASSIGN_OR_RETURN(recipe_.chunks, o_.Int("num-virtual-stages-per-pipeline-rank", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(recipe_.chunks, o_.Int("virtual-pipeline-model-parallel-size", recipe_.chunks));
    if (of_chunk > 0 && !o_.resolved()) recipe_.chunks = std::max<int64_t>(1, layers / stages / of_chunk);
    if (stages * recipe_.chunks > kMostLayers) {
      return o_.Error("pipeline-model-parallel-size", absl::StrCat(stages, " stages of ", recipe_.chunks, " chunks"),
                      absl::StrCat("at most ", kMostLayers, " parts"));
    }
    if (o_.Has("pipeline-model-parallel-layout")) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, o_.Text("pipeline-model-parallel-layout", ""));
      const absl::StatusOr<std::vector<int64_t>> read = ReadPipelineLayout(text);
      if (!read.ok()) return o_.Error("pipeline-model-parallel-layout", text, std::string(read.status().message()));
      recipe_.layers = *read;
      recipe_.chunks = std::max<int64_t>(1, static_cast<int64_t>(recipe_.layers.size()) / stages);
      return absl::OkStatus();
    }
    const int64_t parts = stages * recipe_.chunks;
    MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> first, o_.IntIfGiven("decoder-first-pipeline-num-layers", 0));
    MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> last, o_.IntIfGiven("decoder-last-pipeline-num-layers", 0));
    const int64_t embedding = o_.Has("account-for-embedding-in-pipeline-split") ? 1 : 0;
    const int64_t loss = o_.Has("account-for-loss-in-pipeline-split") ? 1 : 0;
    if (embedding + loss > 0) {
      const int64_t of_part = (layers + embedding + loss) / parts;
      recipe_.layers.assign(static_cast<size_t>(parts), of_part);
      recipe_.layers.front() -= embedding;
      recipe_.layers.back() -= loss;
    } else if (first.has_value() || last.has_value()) {
      const int64_t ends = (first.has_value() ? 1 : 0) + (last.has_value() ? 1 : 0);
      const int64_t between = (stages - ends) * recipe_.chunks;
      const int64_t left = layers - first.value_or(0) - last.value_or(0);
      for (int64_t part = 0; part < parts; ++part) {
        const bool front = part % stages == 0 && first.has_value(),
                   back = part % stages == stages - 1 && last.has_value();
        recipe_.layers.push_back(front  ? *first / recipe_.chunks
                                 : back ? *last / recipe_.chunks
                                        : left / std::max<int64_t>(1, between));
      }
    }
    return absl::OkStatus();
  }

  // Each part of the pipeline has its layers, and all together the model's. Where nobody says, equal numbers, where a
  // search might deal others.
  absl::Status CheckLayers() {
    const int64_t all = recipe_.pipeline * recipe_.chunks;
    if (recipe_.layers.empty() && recipe_.pipeline > 1 && recipe_.model.layers % all == 0) {
      recipe_.layers.assign(static_cast<size_t>(all), recipe_.model.layers / all);
    }
    if (recipe_.layers.empty()) return absl::OkStatus();
    const auto parts = static_cast<int64_t>(recipe_.layers.size());
    int64_t sum = 0;
    for (const int64_t layers : recipe_.layers) sum += layers;
    if (parts == recipe_.pipeline * recipe_.chunks && sum == recipe_.model.layers) return absl::OkStatus();
    return o_.Error("pipeline-model-parallel-size", absl::StrCat(sum, " layers in ", parts, " parts of the pipeline"),
                    absl::StrCat(recipe_.model.layers, " in ", recipe_.pipeline * recipe_.chunks));
  }

  absl::Status Choices() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string again, o_.Text("recompute-granularity", "none"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string older, o_.Text("activations-checkpoint-method", "none"));
    recipe_.recompute = again == "full" || !IsOff(older) || o_.Has("checkpoint-activations") ? Recompute::kFull
                        : again == "selective" || o_.Has("recompute-activations")            ? Recompute::kSelective
                                                                                             : Recompute::kNone;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string method, o_.Text("recompute-method", "uniform"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layers, o_.Int("recompute-num-layers", 1));
    if (recipe_.recompute == Recompute::kFull && method == "block" &&
        layers * recipe_.pipeline < recipe_.model.layers) {
      o_.notes.push_back(absl::StrCat("--recompute-method block: ", layers,
                                      " layers of a stage are run again there, all of them in the plan"));
    }
    const std::vector<std::string> modules = o_.Values("recompute-modules");
    if (recipe_.recompute == Recompute::kSelective && !modules.empty()) {
      o_.notes.push_back(absl::StrCat("--recompute-modules ", absl::StrJoin(modules, " "),
                                      ": planned as `selective`, attention, norms and activations"));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string optimizer, o_.Text("optimizer", "adam"));
    recipe_.shard_optimizer = o_.Has("use-distributed-optimizer") || optimizer == "dist_muon";
    const bool fsdp = o_.Has("use-megatron-fsdp") || o_.Has("use-custom-fsdp");
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string split, o_.Text("data-parallel-sharding-strategy", "no_shard"));
    recipe_.shard_parameters = o_.Has("use-torch-fsdp2") || (fsdp && split == "optim_grads_params");
    if (fsdp && split == "optim_grads") o_.notes.push_back("split gradients are planned as the split optimizer");
    recipe_.shard_optimizer = recipe_.shard_optimizer || recipe_.shard_parameters || (fsdp && split != "no_shard");
    MESHWRIGHT_ASSIGN_OR_RETURN(recipe_.copies, o_.Int("num-distributed-optimizer-instances", 1));
    return absl::OkStatus();
  }

  // 40 million gradients at least in a bucket, a million for each replica
  // (core/distributed/distributed_data_parallel.py).
  absl::Status Updates() {
    const int64_t usual = std::max<int64_t>(40'000'000, 1'000'000 * recipe_.data * recipe_.context);
    MESHWRIGHT_ASSIGN_OR_RETURN(recipe_.bucket_elements, o_.Int("ddp-bucket-size", usual));
    const bool replicated = recipe_.data * recipe_.context != 1;
    if (replicated && !recipe_.shard_parameters && !o_.Has("overlap-grad-reduce")) {
      o_.notes.push_back("gradients are reduced behind the backward pass there, beside it in the plan");
    }
    return absl::OkStatus();
  }

  Options& o_;
  const ImportHints& hints_;
  Recipe recipe_;
};

}  // namespace

const std::vector<absl::string_view>& MegatronOptions() {
  static const std::vector<absl::string_view>* const kOptions =
      new std::vector<absl::string_view>{"num-layers", "hybrid-layer-pattern", "hybrid-override-pattern"};
  return *kOptions;
}

absl::StatusOr<Recipe> ReadMegatron(Options& options, absl::string_view name, const ImportHints& hints) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Recipe recipe, Megatron(options, name, hints).Read());
  std::vector<std::string> others = options.NotAskedFor();
  std::erase_if(others, [](const std::string& other) {
    return absl::c_any_of(kOfNoConcern, [&](absl::string_view begin) { return absl::StartsWith(other, begin); });
  });
  if (!options.resolved() && !others.empty()) {
    options.notes.push_back(absl::StrCat("not looked at: --", absl::StrJoin(others, " --")));
  }
  return recipe;
}

}  // namespace meshwright
