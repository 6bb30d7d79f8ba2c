#include "tools/validate/adapters.h"

#include <algorithm>
#include <regex>

#include "costmodel/memory_overheads.h"
#include "tools/validate/eager_kernels.h"
#include "tools/validate/signs.h"

namespace meshwright {
namespace {

// An adapted product gives x W + s B(A(dropout(x))), one operator after the other (peft/tuners/lora/layer.py,
// Linear.forward). Bytes an element of 2 bytes; what is as narrow as the rank does not count:
//   x         forward dropout 2+2 and its mask 1, A reads 2; backward A's two products 2+2, dropout 2+1+2, and the sum
//             with the gradient of x W 2+2+2
//   result    forward B writes 2, times s 2+2, sum 2+2+2; backward times s 2+2, B's two products 2+2
// PEFT drops nothing unless told to; scripts tell it (0.05 in QwenLM/Qwen's finetune.py, 0.1 in vectorlm's
// configurations).
constexpr EagerBytes kInputs = {7, 15}, kResults = {12, 8};
// Adapters are float32 since PEFT 0.11 of May 2024 (its pull request 1706, `autocast_adapter_dtype`), and what they
// read is made so first; autocast then takes it back for the product: cast 2+4, dropout 4+4 and its mask 1, cast 4+2, A
// reads 2; backward A's two products 2+2, cast 2+4, dropout 4+1+4, cast 4+2, and the sum 2+2+2. Not beside quantized
// weights (lora/bnb.py, lora/gptq.py: under autocast nothing is cast), not where DeepSpeed or FSDP give adapters the
// type of the rest, and not in Unsloth's kernels, which cast the adapter (fms_acceleration_foak, matmul_lora). FSDP1
// does when a unit runs: adapters that are units of their own (PEFT's policy) have their part's float32 where PEFT asks
// for it, before. TRL leaves them narrow beside quantized weights alone (its pull 1654).
constexpr EagerBytes kWideInputs = {23, 31};
constexpr double kOperators = 5;
// PEFT's and most others' rank where none is told (peft/tuners/lora/config.py, `r`).
constexpr int64_t kUsualRank = 8, kHighestRank = 1 << 14;
// Products of a layer in our programs: queries, keys and values; of the heads; and two of the MLP.
constexpr double kOurProducts = 4;

// Of a layer: adapted products, and elements of a token of their inputs and results.
struct Adapted {
  double products = 0, inputs = 0, results = 0;
  void Add(double input, double result) {
    ++products;
    inputs += input;
    results += result;
  }
};

void AddMlp(const DecoderConfig& model, int64_t width, Adapted* adapted) {
  const auto hidden = static_cast<double>(model.hidden), ffn = static_cast<double>(width);
  adapted->Add(hidden, ffn);
  if (IsGated(model.activation)) adapted->Add(hidden, ffn);
  adapted->Add(ffn, hidden);
}

// Without more words those that PEFT takes by default, queries and values (utils/constants.py, Llama's kind).
Adapted AdaptedOf(const Framework& framework, const DecoderConfig& model) {
  const auto hidden = static_cast<double>(model.hidden);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  const auto keys = static_cast<double>(model.kv_heads * model.head_dim);
  Adapted adapted;
  // LitGPT's layers and NeMo's have one product of queries, keys and values as well.
  const bool joined = framework.Is(Sign::kJoinedQueries) || framework.Is(Sign::kLitGpt) || framework.Is(Sign::kNemo);
  if (!framework.Is(Sign::kAllAdapted) && !framework.Is(Sign::kAttentionAdapted)) {
    adapted.Add(hidden, queries);
    adapted.Add(joined ? 0 : hidden, keys);
    return adapted;
  }
  if (joined) {
    adapted.Add(hidden, queries + 2 * keys);
  } else {
    adapted.Add(hidden, queries);
    adapted.Add(hidden, keys);
    adapted.Add(hidden, keys);
  }
  adapted.Add(queries, hidden);
  if (!framework.Is(Sign::kAllAdapted)) return adapted;
  AddMlp(model, model.ffn, &adapted);
  if (model.shared_expert_ffn > 0) AddMlp(model, model.shared_expert_ffn, &adapted);
  return adapted;
}

int64_t RankOf(const std::string& options) {
  std::smatch match;
  static const std::regex* const kRank = new std::regex(R"((?:\b|_)(?:rank|r)\s*[=: ]\s*(\d{1,5})\b)");
  if (!std::regex_search(options, match, *kRank)) return kUsualRank;
  return std::clamp<int64_t>(std::stoll(match[1].str()), 1, kHighestRank);
}

}  // namespace

EagerBytes UnpackedWeights(bool gptq, bool recomputes) {
  constexpr double kBitsAndBytes = kQuantizedWeightBytes + 2, kSteps = 4.5 + 5 + 2 + 2 + 3;
  if (!gptq) return {kBitsAndBytes, kBitsAndBytes};
  return {kSteps, recomputes ? kSteps / 2 : 0};
}

void AddAdapters(const Framework& framework, const DecoderConfig& model, bool quantized, HostPace* host) {
  if (!framework.Is(Sign::kHuggingFace) || !framework.eager) return;
  const Adapted adapted = AdaptedOf(framework, model);
  const auto queries = static_cast<double>(model.heads * model.head_dim);
  const auto bytes = [&](double input, double result) {
    return (adapted.inputs * input + adapted.results * result) / queries;
  };
  const bool whole_units = framework.Is(Sign::kFsdp) && !framework.Is(Sign::kPyTorchFsdp);
  const bool narrow = quantized || !framework.autocast || framework.Is(Sign::kNarrowPeft) ||
                      framework.Is(Sign::kFusedAdapters) || framework.Is(Sign::kDeepSpeed) || whole_units;
  const EagerBytes inputs = narrow ? kInputs : kWideInputs;
  host->queries.forward += bytes(inputs.forward, kResults.forward);
  host->queries.backward += bytes(inputs.backward, kResults.backward);
  if (host->kernel == Nanos()) return;
  // An operator of PEFT's is one of PyTorch's, where one of ours stands for several.
  const double each = static_cast<double>(kOperator.raw()) / static_cast<double>(host->kernel.raw());
  host->products *= 1 + each * kOperators * adapted.products / kOurProducts;
  // Two of each product are modules that FSDP gathers by themselves (PEFT's fsdp_auto_wrap_policy in utils/other.py,
  // which transformers' Trainer takes, _fsdp_qlora_plugin_updates).
  if (framework.Is(Sign::kPyTorchFsdp)) {
    const Nanos hooks = Nanos(std::llround(2 * adapted.products * static_cast<double>(kUnitHooks.raw())));
    host->layer_forward += hooks;
    host->layer_backward += hooks;
  }
}

double AdaptersKeep(const Framework& framework, const DecoderConfig& model) {
  constexpr double kKept = 2 + 1;
  return kKept * AdaptedOf(framework, model).inputs;
}

double AdapterParameters(const Framework& framework, const DecoderConfig& model, const std::string& options) {
  const Adapted adapted = AdaptedOf(framework, model);
  return static_cast<double>(RankOf(options)) * static_cast<double>(model.layers) * (adapted.inputs + adapted.results);
}

double ExpertAdapterParameters(const Framework& framework, const DecoderConfig& model, const std::string& options) {
  const bool each = framework.HasMegatronLayers() || framework.Is(Sign::kExpertLoop);
  if (!each || !framework.Is(Sign::kAllAdapted) || model.experts <= 1) return 0;
  Adapted expert;
  AddMlp(model, model.ffn, &expert);
  return static_cast<double>(RankOf(options) * ExpertLayers(model) * (model.experts - 1)) *
         (expert.inputs + expert.results);
}

}  // namespace meshwright
