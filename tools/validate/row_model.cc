#include "tools/validate/row_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "costmodel/variability.h"
#include "ir/status.h"
#include "planner/passes/group_experts.h"
#include "tools/validate/known_models.h"
#include "tools/validate/siblings.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

constexpr int64_t kDefaultVocab = 51200;  // GPT-2's, padded as Megatron does
constexpr int64_t kDefaultHeadDim = 128;  // where no number of heads is given
constexpr int64_t kMostHeads = 1024;
constexpr int64_t kDefaultExpertsPerToken = 2;

// Model families by a word of the name; the first that matches. Others: by their number of parameters, if given.
struct Family {
  absl::string_view word;
  Activation activation;
  Norm norm;
  Positions positions;
  bool tied, bias;
};
constexpr Family kFamilies[] = {
    {"mpt", Activation::kGelu, Norm::kLayerNorm, Positions::kNone, true, false},
    {"bloom", Activation::kGelu, Norm::kLayerNorm, Positions::kNone, true, true},
    {"opt", Activation::kRelu, Norm::kLayerNorm, Positions::kLearned, true, true},
    {"nemotron", Activation::kSquaredRelu, Norm::kLayerNorm, Positions::kRotary, false, false},
    {"falcon", Activation::kGelu, Norm::kLayerNorm, Positions::kRotary, true, false},
    {"neox", Activation::kGelu, Norm::kLayerNorm, Positions::kRotary, false, true},
    {"pythia", Activation::kGelu, Norm::kLayerNorm, Positions::kRotary, false, true},
    // Modalities' GPT-2 as its configurations set it (config_files/training).
    {"modalities", Activation::kGelu, Norm::kRmsNorm, Positions::kRotary, true, true},
    {"gpt", Activation::kGelu, Norm::kLayerNorm, Positions::kLearned, true, true},
    {"bert", Activation::kGelu, Norm::kLayerNorm, Positions::kLearned, true, true},
};
constexpr Family kClassic = {"", Activation::kGelu, Norm::kLayerNorm, Positions::kLearned, true, true};
constexpr Family kModern = {"", Activation::kSwiglu, Norm::kRmsNorm, Positions::kRotary, false, false};
constexpr absl::string_view kModernWords[] = {
    "llama", "mistral", "mixtral", "qwen",    "internlm", "yi-",      "grok",    "glm",   "gemma", "deepseek",
    "kimi",  "gpt-oss", "gpt oss", "dbrx",    "olmo",     "baichuan", "smollm",  "phi-3", "phi3",  "stablelm",
    "phi-4", "phi4",    "granite", "powerlm", "vicuna",   "skywork",  "minicpm", "yi "};

// What layers have besides, by words of the name; the first that matches. As the families' classes in transformers have
// it.
struct Form {
  absl::string_view word;
  bool gelu_gates;
  NormPlaces norm_places;
  LayerForm layer_form;
};
constexpr Form kForms[] = {
    {"gemma2", true, NormPlaces::kBoth, LayerForm::kSerial},
    {"gemma-2-", true, NormPlaces::kBoth, LayerForm::kSerial},
    {"gemma 2 ", true, NormPlaces::kBoth, LayerForm::kSerial},
    {"gemma3", true, NormPlaces::kBoth, LayerForm::kSerial},
    {"gemma-3-", true, NormPlaces::kBoth, LayerForm::kSerial},
    {"gemma 3 ", true, NormPlaces::kBoth, LayerForm::kSerial},
    {"gemma", true, NormPlaces::kBefore, LayerForm::kSerial},
    {"olmo2", false, NormPlaces::kAfter, LayerForm::kSerial},
    {"olmo-2-", false, NormPlaces::kAfter, LayerForm::kSerial},
    {"olmo 2 ", false, NormPlaces::kAfter, LayerForm::kSerial},
    {"olmo3", false, NormPlaces::kAfter, LayerForm::kSerial},
    {"olmo-3-", false, NormPlaces::kAfter, LayerForm::kSerial},
    {"olmo 3 ", false, NormPlaces::kAfter, LayerForm::kSerial},
    {"neox", false, NormPlaces::kBefore, LayerForm::kParallel},
    {"pythia", false, NormPlaces::kBefore, LayerForm::kParallel},
    {"falcon", false, NormPlaces::kBefore, LayerForm::kParallelOneNorm},
    {"gptj", false, NormPlaces::kBefore, LayerForm::kParallelOneNorm},
    {"gpt-j", false, NormPlaces::kBefore, LayerForm::kParallelOneNorm},
};

// Widths by number of parameters: GPT-3 (Brown et al. 2020, table 2.1) up to 13 billion and at 175, Megatron-LM
// (Narayanan et al. 2021, table 1) between and above.
struct Width {
  double billions;
  int64_t hidden;
};
constexpr Width kWidths[] = {{0.125, 768}, {0.35, 1024}, {0.76, 1536}, {1.3, 2048},  {2.7, 2560},
                             {6.7, 4096},  {13, 5120},   {18.4, 6144}, {39.1, 8192}, {76, 10240},
                             {175, 12288}, {310, 16384}, {530, 20480}, {1008, 25600}};

// Tokens of a step by number of parameters (Brown et al. 2020, table 2.1).
struct StepTokens {
  double billions;
  int64_t tokens;
};
constexpr StepTokens kStepTokens[] = {{1.0, 1 << 19}, {5.0, 1 << 20}, {100.0, 1 << 21}, {1e30, 1 << 22}};

// However many experts there are.
double FeedForwardParameters(const DecoderConfig& c, bool gated) {
  const double matrices = gated ? 3 : 2, hidden = static_cast<double>(c.hidden);
  const double of_expert = c.expert_hidden > 0 ? static_cast<double>(c.expert_hidden) : hidden;
  return matrices * (of_expert * static_cast<double>(c.ffn) * static_cast<double>(std::max<int64_t>(1, c.experts)) +
                     hidden * static_cast<double>(c.shared_expert_ffn)) +
         2 * hidden * static_cast<double>(c.expert_hidden);
}
double LayerParameters(const DecoderConfig& c, bool gated) {
  return AttentionParameters(c) + FeedForwardParameters(c, gated);
}

double NumParameters(const DecoderConfig& c, bool gated) {
  const double embeddings = (c.tied_embeddings ? 1 : 2) * static_cast<double>(c.hidden) * static_cast<double>(c.vocab);
  const LayerCounts layers = CountLayers(c);
  const double mixers = static_cast<double>(layers.attention) * AttentionParameters(c) +
                        static_cast<double>(layers.linear) * LinearAttentionParameters(c);
  const double dense = c.experts > 0 ? static_cast<double>(layers.dense) : 0;
  const double matrices = gated ? 3 : 2, hidden = static_cast<double>(c.hidden);
  return mixers + static_cast<double>(ExpertLayers(c)) * FeedForwardParameters(c, gated) +
         dense * matrices * hidden * static_cast<double>(c.dense_ffn) + embeddings;
}

// Words of the names of models that are no decoders of attention: with an encoder, of pictures, with states.
constexpr absl::string_view kOtherKinds[] = {"t5",  "mt5",  "flan", "ul2",   "bart",   "pegasus", "whisper", "vit",
                                             "dit", "swin", "clip", "mamba", "mamba2", "rwkv",    "jamba"};

bool NamesAnotherKind(const std::string& name) {
  for (const absl::string_view word : absl::StrSplit(name, absl::ByAnyChar(" -_/."))) {
    if (std::find(std::begin(kOtherKinds), std::end(kOtherKinds), word) != std::end(kOtherKinds)) return true;
  }
  return false;
}

class ModelReader {
 public:
  ModelReader(const CsvCells& cells, int64_t sequence, std::vector<std::string>* defaults)
      : cells_(cells),
        sequence_(sequence),
        defaults_(*defaults),
        name_(absl::StrReplaceAll(absl::AsciiStrToLower(cells.Text("model")), {{"_", "-"}})) {}

  absl::StatusOr<DecoderConfig> Read() {
    MESHWRIGHT_ASSIGN_OR_RETURN(billions_, cells_.Number("params_b"));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> width, cells_.Int("hidden", 1));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> experts, cells_.Int("experts", 1));
    // A row that says its experts, hidden size and layers is of a model of its own, whatever its name.
    if (!experts.has_value() || cells_.Text("hidden").empty() || cells_.Text("layers").empty()) {
      known_ = FindKnownModel(name_, BillionsInName().value_or(billions_.value_or(0)), width.value_or(0));
      const bool other =
          known_ != nullptr && (experts.has_value() ? known_->experts.count != (*experts > 1 ? *experts : 0)
                                                    : known_->experts.count == 0 && NamesExperts());
      if (other) known_ = nullptr;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> tensor, cells_.Int("tp", 1));
    tensor_ = tensor.value_or(1);
    if (NamesAnotherKind(name_)) defaults_.push_back("a decoder of these sizes in place of another kind of model");
    MESHWRIGHT_RETURN_IF_ERROR(ReadSizes());
    const Family& family = FamilyOf();
    c_.activation = family.activation;
    c_.norm = family.norm;
    c_.positions = family.positions;
    SetForm();
    if (c_.positions == Positions::kRotary && c_.kv_lora_rank == 0 && c_.head_dim % 2 != 0)
      c_.positions = Positions::kNone;
    c_.tied_embeddings = known_ != nullptr ? known_->tied : &family == &kModern ? CountsOneEmbedding() : family.tied;
    c_.bias = c_.qkv_bias = family.bias;
    if (known_ != nullptr && known_->hybrid != nullptr) SetHybrid(*known_->hybrid);
    MESHWRIGHT_RETURN_IF_ERROR(ReadPattern());
    c_.max_positions = sequence_;
    MESHWRIGHT_RETURN_IF_ERROR(ReadExperts());
    if (c_.experts == 0 && absl::StrContains(c_.layer_pattern, 'E')) {
      return CannotExpress("experts not given", absl::StrCat("layers ", c_.layer_pattern));
    }
    return std::move(c_);
  }

 private:
  absl::StatusOr<int64_t> Size(absl::string_view column, int64_t fallback, bool say = true) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, cells_.Int(column, 1));
    if (value.has_value()) return *value;
    if (say) defaults_.push_back(absl::StrCat(column, " ", fallback));
    return fallback;
  }

  // "GPT3-175B", "BERT 110m".
  std::optional<double> BillionsInName() const {
    std::smatch match;
    static const std::regex* const kSize = new std::regex(R"((^|[^0-9a-z.])(\d{1,6}(\.\d{1,6})?)\s?([bm])\b)");
    double value = 0;
    if (!std::regex_search(name_, match, *kSize) || !absl::SimpleAtod(match[2].str(), &value)) return std::nullopt;
    return match[4].str() == "b" ? value : value / 1000;
  }

  // "truncated to 8 layers / 8 experts".
  std::optional<int64_t> CountInName(absl::string_view of_what) const {
    std::smatch match;
    const std::regex count(absl::StrCat(R"(\b([1-9]\d{0,3})[ -])", of_what, R"(\b)"));
    if (!std::regex_search(name_, match, count)) return std::nullopt;
    return std::stoll(match[1].str());
  }

  // Those of the table's row of the same hidden size and nearest in layers. Else the number of heads that divides the
  // hidden size and splits over `tensor` ranks, whose width is nearest to the usual.
  int64_t DefaultHeads(double layers) const {
    if (const int64_t heads = HeadsOfSibling(cells_, c_.hidden, layers, tensor_); heads > 0) return heads;
    const double usual = absl::StrContains(name_, "bert") ? kDefaultHeadDim / 2.0 : kDefaultHeadDim;
    int64_t best = 1;
    double nearest = 1e30;
    for (int64_t heads = 1; heads <= std::min(c_.hidden, kMostHeads); ++heads) {
      if (c_.hidden % heads != 0 || (heads % tensor_ != 0 && c_.hidden % tensor_ == 0)) continue;
      const double distance = std::abs(std::log(static_cast<double>(c_.hidden / heads) / usual));
      if (distance >= nearest) continue;
      nearest = distance;
      best = heads;
    }
    return best;
  }

  // Sizes that the row leaves out, of a model that is known by its name.
  absl::Status ReadKnownSizes() {
    const KnownModel& known = *known_;
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.hidden, Size("hidden", known.hidden));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.layers, Size("layers", CountInName("layers?").value_or(known.layers)));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.vocab, Size("vocab", known.vocab));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.heads, Size("heads", known.heads));
    // Other heads are another model of that width: BLOOM's search of a layout had 64 and 112.
    const bool same = c_.heads == known.heads || c_.hidden % c_.heads != 0;
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.kv_heads, Size("kv_heads", same ? known.kv_heads : c_.heads, false));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.head_dim, Size("head_dim", same ? known.head_dim : c_.hidden / c_.heads, false));
    if (known.latent.kv_lora_rank > 0) {  // a table has a number of its own for keys, if any
      c_.kv_heads = c_.heads;
      c_.head_dim = known.head_dim;
      c_.kv_lora_rank = known.latent.kv_lora_rank;
      c_.q_lora_rank = known.latent.q_lora_rank;
      c_.rope_head_dim = known.latent.rope_head_dim;
    }
    c_.sliding_window = known.windows.sliding;
    c_.full_attention_every = known.windows.full_attention_every <= c_.layers ? known.windows.full_attention_every : 0;
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.ffn, Size("ffn", known.ffn));
    if (known.experts.count > 0) c_.ffn = known.ffn;  // tables have the dense layers' or one expert's
    c_.vocab_multiple = DefaultVocabMultiple(c_.vocab);
    return absl::OkStatus();
  }

  absl::Status ReadSizes() {
    if (known_ != nullptr) return ReadKnownSizes();
    for (const absl::string_view column : {"hidden", "layers"}) {
      const bool by_pattern = column == "layers" && !cells_.Text("layer_pattern").empty();
      if (by_pattern || !cells_.Text(column).empty()) continue;
      if (!billions_.has_value()) billions_ = BillionsInName();
      if (!billions_.has_value() || *billions_ <= 0) return CannotExpress("not given", column);
    }
    int64_t hidden = 0;
    double nearest = 1e30;
    for (const Width& width : kWidths) {
      const double distance = std::abs(std::log(billions_.value_or(1) / width.billions));
      if (distance >= nearest) continue;
      nearest = distance;
      hidden = width.hidden;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.hidden, Size("hidden", hidden));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.vocab, Size("vocab", kDefaultVocab));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> given, cells_.Int("layers", 1));
    const bool heads_given = !cells_.Text("heads").empty();  // else all rows are looked through
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.heads,
                                Size("heads", heads_given ? 1 : DefaultHeads(static_cast<double>(given.value_or(0)))));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.kv_heads, Size("kv_heads", c_.heads));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.head_dim, Size("head_dim", std::max<int64_t>(1, c_.hidden / c_.heads), false));
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.ffn, Size("ffn", 4 * c_.hidden));
    c_.vocab_multiple = DefaultVocabMultiple(c_.vocab);
    if (!cells_.Text("layer_pattern").empty()) return absl::OkStatus();
    const double embedding = static_cast<double>(c_.hidden) * static_cast<double>(c_.vocab);
    const double layers = (billions_.value_or(0) * 1e9 - embedding) / LayerParameters(c_, false);
    MESHWRIGHT_ASSIGN_OR_RETURN(c_.layers,
                                Size("layers", static_cast<int64_t>(std::lround(std::clamp(layers, 1.0, 1e4)))));
    return absl::OkStatus();
  }

  void SetForm() {
    for (const Form& form : kForms) {
      if (!absl::StrContains(name_, form.word)) continue;
      if (form.gelu_gates && c_.activation == Activation::kSwiglu) c_.activation = Activation::kGeglu;
      c_.norm_places = form.norm_places;
      c_.layer_form = form.layer_form;
      return;
    }
  }

  // A model of fewer or more layers than the published one has the first of its pattern, or that again.
  void SetHybrid(const KnownHybrid& hybrid) {
    c_.linear_attention = hybrid.linear;
    c_.full_attention_every = hybrid.full_attention_every <= c_.layers ? hybrid.full_attention_every : 0;
    c_.attention_gate = c_.shared_expert_gate = hybrid.gates;
    c_.expert_hidden = hybrid.expert_hidden;
    c_.mtp_layers = hybrid.mtp_layers;
    if (hybrid.layer_pattern.empty()) return;
    const auto layers = static_cast<size_t>(c_.layers);
    while (c_.layer_pattern.size() < layers) absl::StrAppend(&c_.layer_pattern, hybrid.layer_pattern);
    c_.layer_pattern.resize(layers);
    c_.activation = Activation::kSquaredRelu;
    c_.norm = Norm::kRmsNorm;
    c_.positions = Positions::kNone;
    c_.bias = c_.qkv_bias = false;
  }

  // Megatron-Core's letters, with bars where stages end and, behind a slash, those of each layer that predicts further
  // tokens (models/hybrid/hybrid_layer_allocation.py); its own sizes where the row has none (training/arguments.py).
  absl::Status ReadPattern() {
    const std::string text = absl::StrReplaceAll(cells_.Text("layer_pattern"), {{" ", ""}, {"|", ""}, {"'", ""}});
    if (text.empty()) return absl::OkStatus();
    std::string pattern = text.substr(0, text.find('/'));
    const bool delta = absl::StrContains(pattern, 'G');
    if (delta && absl::StrContains(pattern, 'M')) return CannotExpress("layers of both M and G", text);
    c_.layer_pattern = absl::StrReplaceAll(pattern, {{"G", "M"}});
    if (c_.layer_pattern.empty() || c_.layer_pattern.find_first_not_of("M*-E") != std::string::npos) {
      return CannotExpress("a pattern of other letters than M, G, *, - and E", text);
    }
    c_.layers = static_cast<int64_t>(c_.layer_pattern.size());
    c_.full_attention_every = c_.sliding_window = 0;
    c_.mtp_layers = std::count(text.begin(), text.end(), '/');
    c_.positions = Positions::kNone;
    LinearAttentionConfig& l = c_.linear_attention;
    if (known_ != nullptr && known_->hybrid != nullptr && l.value_heads > 0) return absl::OkStatus();
    constexpr int64_t kStateDim = 128, kHeadDim = 64, kGroups = 8;
    if (delta) {
      l = {LinearForm::kGatedDelta, 16, 32, 128, 128, 4, false};
      return absl::OkStatus();
    }
    l.form = LinearForm::kStateSpace;
    l.convolution_bias = true;
    MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim, Size("ssm_state", kStateDim));
    MESHWRIGHT_ASSIGN_OR_RETURN(l.value_dim, Size("ssm_head_dim", kHeadDim));
    MESHWRIGHT_ASSIGN_OR_RETURN(l.key_heads, Size("ssm_groups", kGroups));
    MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads, Size("ssm_heads", std::max<int64_t>(1, 2 * c_.hidden / l.value_dim)));
    if (l.value_heads % l.key_heads == 0) return absl::OkStatus();
    return CannotExpress("heads of a state space that groups do not divide",
                         absl::StrCat(l.value_heads, " in ", l.key_heads, " groups"));
  }

  const Family& FamilyOf() {
    if (IsModernFamily(name_)) return kModern;
    for (const Family& family : kFamilies) {
      if (absl::StrContains(name_, family.word)) return family;
    }
    bool gated = c_.ffn != 4 * c_.hidden;
    if (billions_.has_value()) {
      // Counted with one embedding or with two, whichever is nearer.
      const auto off = [&](bool with_gate) {
        DecoderConfig model = c_;
        double least = 1e30;
        for (const bool tied : {true, false}) {
          model.tied_embeddings = tied;
          least = std::min(least, std::abs(NumParameters(model, with_gate) - *billions_ * 1e9));
        }
        return least;
      };
      gated = off(true) < off(false);
    }
    defaults_.push_back(gated ? "a family like Llama" : "a family like GPT");
    return gated ? kModern : kClassic;
  }

  // Models like Llama are published with one matrix for embedding and head (Llama 3.2 1B and 3B, the small ones of
  // Qwen) and with two: whichever number of parameters is nearer to the one given. Two where there is none, or none is
  // near.
  bool CountsOneEmbedding() const {
    constexpr double kNear = 0.02;
    if (!billions_.has_value()) return false;
    DecoderConfig model = c_;
    model.tied_embeddings = true;
    const double one = std::abs(NumParameters(model, true) / (*billions_ * 1e9) - 1);
    model.tied_embeddings = false;
    return one < kNear && one < std::abs(NumParameters(model, true) / (*billions_ * 1e9) - 1);
  }

  bool NamesExperts() const {
    constexpr absl::string_view kWords[] = {"moe", "-a3b", "-a22b", "deepseek", "maverick", "scout"};
    return std::any_of(std::begin(kWords), std::end(kWords),
                       [this](absl::string_view word) { return absl::StrContains(name_, word); });
  }

  // Columns of its own, a known name, or "8x7B", which is eight experts.
  absl::Status ReadExperts() {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> experts, cells_.Int("experts", 1));
    if (experts.has_value()) {
      c_.experts = *experts > 1 ? *experts : 0;
      const int64_t chosen = known_ != nullptr ? std::max<int64_t>(1, known_->experts.per_token)
                                               : std::min(kDefaultExpertsPerToken, *experts);
      MESHWRIGHT_ASSIGN_OR_RETURN(c_.experts_per_token, Size("experts_per_token", chosen));
      MESHWRIGHT_ASSIGN_OR_RETURN(c_.ffn, Size("expert_ffn", c_.ffn, false));
      MESHWRIGHT_ASSIGN_OR_RETURN(c_.shared_expert_ffn, SharedExpert());
      return ReadDenseLayers();
    }
    if (known_ != nullptr) {
      c_.experts = known_->experts.count > 0 ? CountInName("experts").value_or(known_->experts.count) : 0;
      c_.experts_per_token = std::min(known_->experts.per_token, c_.experts);
      c_.choice_groups = known_->experts.groups;
      c_.choice_groups_per_token = known_->experts.groups_per_token;
      c_.shared_expert_ffn = known_->experts.shared_ffn;
      if (c_.experts > 0) {
        defaults_.push_back(
            absl::StrCat("experts ", c_.experts, " of ", c_.ffn, ", ", c_.experts_per_token, " a token",
                         c_.shared_expert_ffn == 0 ? "" : absl::StrCat(", shared of ", c_.shared_expert_ffn)));
        return ReadDenseLayers();
      }
      return absl::OkStatus();
    }
    std::smatch match;
    static const std::regex* const kExperts = new std::regex(R"((\d{1,6})\s*x\s*\d{1,6}(\.\d{1,6})?\s*b)");
    if (std::regex_search(name_, match, *kExperts)) {
      c_.experts = std::max<int64_t>(1, std::stoll(match[1].str()));
      c_.experts_per_token = std::min(kDefaultExpertsPerToken, c_.experts);
      defaults_.push_back(absl::StrCat("experts ", c_.experts, ", ", c_.experts_per_token, " a token"));
      return absl::OkStatus();
    }
    if (NamesExperts()) return CannotExpress("experts not given", cells_.Text("model"));
    return absl::OkStatus();
  }

  // Said, or the model's; else there is none.
  absl::StatusOr<int64_t> SharedExpert() const {
    if (c_.experts == 0) return 0;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> width, cells_.Int("shared_expert_ffn", 0));
    if (width.has_value()) return *width;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> experts, cells_.Int("shared_experts", 0));
    if (experts.has_value()) return *experts * c_.ffn;
    return known_ != nullptr ? known_->experts.shared_ffn : 0;
  }

  // Of Megatron-LM's "([0]*3+[1]*58)" the 3.
  std::optional<int64_t> FirstDense() const {
    std::smatch match;
    static const std::regex* const kList = new std::regex(R"(\(?\[0\]\*(\d{1,4})\+\[1\]\*\d{1,4}\)?)");
    const std::string text = absl::StrReplaceAll(cells_.Text("expert_every"), {{" ", ""}});
    if (!std::regex_match(text, match, *kList)) return std::nullopt;
    return std::stoll(match[1].str());
  }

  // Said, or the model's; else all have experts. A model of fewer layers than the published one has the rest.
  absl::Status ReadDenseLayers() {
    if (c_.experts == 0) return absl::OkStatus();
    const bool known = known_ != nullptr;
    MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<int64_t> first, cells_.Int("dense_layers", 0));
    std::optional<int64_t> every = FirstDense();
    if (every.has_value()) {
      first = *std::exchange(every, 1);
    } else {
      MESHWRIGHT_ASSIGN_OR_RETURN(every, cells_.Int("expert_every", 1));
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> width, cells_.Int("dense_ffn", 1));
    c_.expert_every = std::min(every.value_or(known ? known_->experts.every : 1), c_.layers);
    c_.dense_layers = first.value_or(known ? known_->experts.dense_layers : 0);
    if (!first.has_value()) {
      c_.dense_layers = std::min(c_.dense_layers, c_.layers - c_.expert_every);
      c_.dense_layers += (c_.layers - c_.dense_layers) % c_.expert_every;
    }
    if (c_.dense_layers >= c_.layers || (c_.layers - c_.dense_layers) % c_.expert_every != 0) {
      return CannotExpress(
          "layers without experts that do not fit",
          absl::StrCat(c_.layers, " layers, the first ", c_.dense_layers, " dense, experts every ", c_.expert_every));
    }
    if (c_.dense_layers == 0 && c_.expert_every == 1) return absl::OkStatus();
    const int64_t of_token = c_.experts_per_token * c_.ffn + c_.shared_expert_ffn;
    c_.dense_ffn = width.value_or(known && known_->experts.dense_ffn > 0 ? known_->experts.dense_ffn : of_token);
    if (!first.has_value() || !every.has_value() || !width.has_value()) {
      defaults_.push_back(
          absl::StrCat(c_.dense_layers == 0 ? "" : absl::StrCat("the first ", c_.dense_layers, " layers"),
                       c_.dense_layers > 0 && c_.expert_every > 1 ? " and " : "",
                       c_.expert_every == 1 ? "" : absl::StrCat("all but one of each ", c_.expert_every), " dense, of ",
                       c_.dense_ffn));
    }
    return absl::OkStatus();
  }

  const CsvCells& cells_;
  const int64_t sequence_;
  int64_t tensor_ = 1;  // tensor parallelism
  std::vector<std::string>& defaults_;
  const std::string name_;
  std::optional<double> billions_;
  const KnownModel* known_ = nullptr;
  DecoderConfig c_;
};

}  // namespace

absl::Status CannotExpress(absl::string_view reason, absl::string_view detail) {
  return absl::UnimplementedError(absl::StrCat(reason, ": ", detail));
}

std::string WhySkipped(const absl::Status& status) {
  const bool reason = status.code() == absl::StatusCode::kUnimplemented;
  return absl::StrCat(reason ? "" : "damaged cell: ", status.message());
}

bool IsModernFamily(absl::string_view model_name) {
  const std::string name = absl::AsciiStrToLower(model_name);
  // The first StableLM are GPT-NeoX's models (stabilityai/stablelm-base-alpha-3b, config.json).
  if (absl::StrContains(name, "stablelm") && absl::StrContains(name, "alpha")) return false;
  return std::any_of(std::begin(kModernWords), std::end(kModernWords),
                     [&](absl::string_view word) { return absl::StrContains(name, word); });
}

int64_t DefaultSequence(absl::string_view model_name) {
  struct Family {
    std::regex name;
    int64_t tokens;
  };
  // What they were pretrained with: config.json of BERT and GPT-2, the reports of Llama 2, Llama 3 and Gemma. A version
  // may have a minor one ("3.1"); a size that begins with its digit ("33B", "3B", "2.7B") is none.
  static const auto* const kFamilies =
      new std::vector<Family>{{std::regex("bert"), 512},
                              {std::regex("gpt[ _-]?2(?![0-9.b])"), 1024},
                              {std::regex("llama[ _-]?2(?![0-9a-z.])"), 4096},
                              {std::regex(R"(llama[ _-]?3(\.\d)?(?![0-9a-z.]))"), 8192},
                              {std::regex("gemma"), 8192}};
  const std::string name = absl::AsciiStrToLower(model_name);
  for (const Family& family : *kFamilies) {
    if (std::regex_search(name, family.name)) return family.tokens;
  }
  return 2048;  // GPT-3's
}

int64_t DefaultTokens(double parameters) {
  for (const StepTokens& row : kStepTokens) {
    if (parameters <= row.billions * 1e9) return row.tokens;
  }
  return 1 << 22;
}

int64_t DefaultBatch(double parameters, int64_t sequence, int64_t replicas) {
  const double rows = static_cast<double>(DefaultTokens(parameters)) / static_cast<double>(sequence * replicas);
  return replicas * (int64_t{1} << std::max<int64_t>(0, std::llround(std::log2(rows))));
}

int64_t NearMultiple(int64_t rows, int64_t unit) {
  constexpr int64_t kShare = 20;
  const int64_t near = (rows + unit / 2) / unit * unit;
  return std::abs(near - rows) * kShare <= rows ? near : 0;
}

double NaturalRouting(int64_t experts, int64_t ranks, Balance balance) {
  const double fullest = balance == Balance::kBias ? kFullestByBias : kFullestByLoss;
  const double deviation = balance == Balance::kTuned ? kTunedDeviation : fullest / ExpectedLargest(kMeasuredExperts);
  const double of_rank = deviation / std::sqrt(static_cast<double>(experts) / static_cast<double>(ranks));
  return 1 + of_rank * ExpectedLargest(ranks);
}

double NumParameters(const DecoderConfig& config) { return NumParameters(config, IsGated(config.activation)); }

absl::StatusOr<DecoderConfig> ReadRowModel(const CsvCells& cells, int64_t sequence,
                                           std::vector<std::string>* defaults) {
  return ModelReader(cells, sequence, defaults).Read();
}

void ChooseNeighbours(DecoderConfig* model) {
  model->choice_groups = model->experts / model->experts_per_token;
  while (model->experts % model->choice_groups != 0) --model->choice_groups;
  model->choice_groups_per_token = 1;
}

double ShareSentOnce(const DecoderConfig& model, int64_t nodes) {
  OpAttrs routing;
  routing.top_k = model.experts_per_token;
  routing.choice_groups = model.choice_groups;
  routing.top_choice_groups = model.choice_groups_per_token;
  const double copies = ShareOfGroup(model.experts, routing, nodes) * static_cast<double>(nodes);
  return std::min(1.0, copies / static_cast<double>(model.experts_per_token));
}

}  // namespace meshwright
