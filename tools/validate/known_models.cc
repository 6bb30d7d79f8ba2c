#include "tools/validate/known_models.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace meshwright {
namespace {

constexpr double kNear = 0.1;  // names round: "70B" has 70.6

constexpr LinearAttentionConfig kQwenHeads = {LinearForm::kGatedDelta, 16, 32, 128, 128, 4, false};
constexpr LinearAttentionConfig Mamba(int64_t heads, int64_t state) {
  return {LinearForm::kStateSpace, 8, heads, state, 64, 4, true};
}
constexpr KnownHybrid kQwenNext = {kQwenHeads, 4, "", true};
constexpr KnownHybrid kQwen35Dense = {{LinearForm::kGatedDelta, 16, 48, 128, 128, 4, false}, 4, "", true};
constexpr KnownHybrid kNano = {Mamba(64, 128), 0, "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"};
constexpr KnownHybrid kLightning = {kNano.linear, 0, kNano.layer_pattern, false, 0, 2};
constexpr KnownHybrid kSuper = {
    Mamba(128, 128), 0, "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    false, 1024};
constexpr KnownHybrid kUltra = {
    Mamba(256, 128), 0,
    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    false, 2048};
constexpr KnownHybrid kGraniteSmall = {{LinearForm::kStateSpace, 1, 128, 128, 64, 4, true}, 10};
constexpr KnownHybrid kGraniteTiny = {{LinearForm::kStateSpace, 1, 48, 128, 64, 4, true}, 10};
constexpr KnownHybrid kNemotronH8 = {Mamba(128, 128), 0, "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"};
constexpr KnownHybrid kNemotronH56 = {
    Mamba(256, 256), 0,
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-"
    "M-M-"};

// The config.json that each model was published with. Of several that match the one nearest in size, then the first.
constexpr KnownModel kModels[] = {
    // family, billions, layers, hidden, ffn, heads, kv_heads, head_dim, vocab, tied,
    // {experts, a token, width of the shared one, first layers without, width of such, experts every, groups, a token},
    // {latent attention: widths of what makes queries, of what makes keys and values, of positions}, {window, full
    // every},
    // linear attention
    {"qwen3next", 0, 48, 2048, 512, 16, 2, 256, 151936, false, {512, 10, 512}, {}, {}, &kQwenNext},
    {"qwen3.5", 35, 40, 2048, 512, 16, 2, 256, 248320, false, {256, 8, 512}, {}, {}, &kQwenNext},
    {"qwen3.6", 35, 40, 2048, 512, 16, 2, 256, 248320, false, {256, 8, 512}, {}, {}, &kQwenNext},
    {"qwen3.5", 27, 64, 5120, 17408, 24, 4, 256, 248320, false, {}, {}, {}, &kQwen35Dense},
    {"nemotron3nano", 30, 52, 2688, 1856, 32, 2, 128, 131072, false, {128, 6, 3712}, {}, {}, &kNano},
    {"nemotron3.5lightning", 0, 52, 2688, 1856, 32, 2, 128, 131072, false, {128, 6, 3712}, {}, {}, &kLightning},
    {"nemotron3super", 0, 88, 4096, 2688, 32, 2, 128, 131072, false, {512, 22, 5376}, {}, {}, &kSuper},
    {"nemotron3ultra", 0, 108, 8192, 5120, 64, 2, 128, 131072, false, {512, 22, 10240}, {}, {}, &kUltra},
    {"nemotronh", 8, 52, 4096, 21504, 32, 8, 128, 131072, false, {}, {}, {}, &kNemotronH8},
    {"nemotronh", 56, 118, 8192, 32768, 64, 8, 128, 131072, false, {}, {}, {}, &kNemotronH56},
    {"deepseekv2lite", 0, 27, 2048, 1408, 16, 16, 128, 102400, false, {64, 6, 2816, 1, 10944}, {0, 512, 64}},
    {"deepseekv2", 0, 60, 5120, 1536, 128, 128, 128, 102400, false, {160, 6, 3072, 1, 12288, 1, 8, 3}, {1536, 512, 64}},
    {"deepseekv3", 0, 61, 7168, 2048, 128, 128, 128, 129280, false, {256, 8, 2048, 3, 18432, 1, 8, 4}, {1536, 512, 64}},
    {"deepseekr1", 0, 61, 7168, 2048, 128, 128, 128, 129280, false, {256, 8, 2048, 3, 18432, 1, 8, 4}, {1536, 512, 64}},
    {"moonlight", 0, 27, 2048, 1408, 16, 16, 128, 163840, false, {64, 6, 2816, 1, 11264}, {0, 512, 64}},
    {"kimik2", 0, 61, 7168, 2048, 64, 64, 128, 163840, false, {384, 8, 2048, 1, 18432}, {1536, 512, 64}},
    {"qwen3", 30, 48, 2048, 768, 32, 4, 128, 151936, false, {128, 8}},
    {"qwen3", 235, 94, 4096, 1536, 64, 4, 128, 151936, false, {128, 8}},
    {"qwen2", 57, 28, 3584, 2560, 28, 4, 128, 151936, false, {64, 8, 20480}},
    {"gptoss", 120, 36, 2880, 2880, 64, 8, 64, 201088, false, {128, 4}, {}, {128, 2}},
    {"gptoss", 20, 24, 2880, 2880, 64, 8, 64, 201088, false, {32, 4}, {}, {128, 2}},
    {"scout", 0, 48, 5120, 8192, 40, 8, 128, 202048, false, {16, 1, 8192}},
    {"maverick", 0, 48, 5120, 8192, 40, 8, 128, 202048, false, {128, 1, 8192, 0, 16384, 2}},
    {"grok1", 0, 64, 6144, 32768, 48, 8, 128, 131072, false, {8, 2}},
    {"dbrx", 0, 40, 6144, 10752, 48, 8, 128, 100352, false, {16, 4}},
    {"olmoe", 0, 16, 2048, 1024, 16, 16, 128, 50304, false, {64, 8}},
    {"mixtral8x7b", 0, 32, 4096, 14336, 32, 8, 128, 32000, false, {8, 2}},
    {"mixtral8x22b", 0, 56, 6144, 16384, 48, 8, 128, 32768, false, {8, 2}},
    {"llama3", 405, 126, 16384, 53248, 128, 8, 128, 128256, false},
    {"llama3", 70, 80, 8192, 28672, 64, 8, 128, 128256, false},
    {"llama3", 8, 32, 4096, 14336, 32, 8, 128, 128256, false},
    {"llama3", 3, 28, 3072, 8192, 24, 8, 128, 128256, true},
    {"llama3", 1, 16, 2048, 8192, 32, 8, 64, 128256, true},
    {"tinyllama", 1.1, 22, 2048, 5632, 32, 4, 64, 32000, false},
    {"llama", 70, 80, 8192, 28672, 64, 8, 128, 32000, false},
    {"llama", 65, 80, 8192, 22016, 64, 64, 128, 32000, false},
    {"llama", 34, 48, 8192, 22016, 64, 8, 128, 32000, false},
    {"llama", 32.5, 60, 6656, 17920, 52, 52, 128, 32000, false},
    {"llama", 13, 40, 5120, 13824, 40, 40, 128, 32000, false},
    {"llama", 7, 32, 4096, 11008, 32, 32, 128, 32000, false},
    {"mistralnemo", 12, 40, 5120, 14336, 32, 8, 128, 131072, false},
    {"mistral", 7, 32, 4096, 14336, 32, 8, 128, 32000, false},
    {"qwen2.5", 72, 80, 8192, 29568, 64, 8, 128, 152064, false},
    {"qwen2.5", 32, 64, 5120, 27648, 40, 8, 128, 152064, false},
    {"qwen2.5", 14, 48, 5120, 13824, 40, 8, 128, 152064, false},
    {"qwen2.5", 7, 28, 3584, 18944, 28, 4, 128, 152064, false},
    {"qwen2.5", 3, 36, 2048, 11008, 16, 2, 128, 151936, true},
    {"qwen2.5", 1.5, 28, 1536, 8960, 12, 2, 128, 151936, true},
    {"qwen2.5", 0.5, 24, 896, 4864, 14, 2, 64, 151936, true},
    {"qwen3", 4, 36, 2560, 9728, 32, 8, 128, 151936, true},
    {"qwen3", 1.7, 28, 2048, 6144, 16, 8, 128, 151936, true},
    {"qwen3", 0.6, 28, 1024, 3072, 16, 8, 128, 151936, true},
    {"qwen3", 32, 64, 5120, 25600, 64, 8, 128, 151936, false},
    {"qwen3", 14, 40, 5120, 17408, 40, 8, 128, 151936, false},
    {"qwen3", 8, 36, 4096, 12288, 32, 8, 128, 151936, false},
    {"qwen2", 72, 80, 8192, 29568, 64, 8, 128, 152064, false},
    {"qwen2", 7, 28, 3584, 18944, 28, 4, 128, 152064, false},
    {"qwen2", 1.5, 28, 1536, 8960, 12, 2, 128, 151936, true},
    {"qwen2", 0.5, 24, 896, 4864, 14, 2, 64, 151936, true},
    // Qwen and Qwen1.5
    {"qwen", 72, 80, 8192, 24576, 64, 64, 128, 152064, false},
    {"qwen", 14, 40, 5120, 13696, 40, 40, 128, 152064, false},
    {"qwen", 7, 32, 4096, 11008, 32, 32, 128, 151936, false},
    {"qwen", 1.8, 24, 2048, 5504, 16, 16, 128, 151936, false},
    {"nemotron", 340, 96, 18432, 73728, 96, 8, 192, 256000, false},
    {"nemotron", 15, 32, 6144, 24576, 48, 8, 128, 256000, false},
    {"falcon", 40, 60, 8192, 32768, 128, 8, 64, 65024, true},
    {"qwen1.5moe", 0, 24, 2048, 1408, 16, 16, 128, 151936, false, {60, 4, 5632}},
    {"deepseekmoe", 16, 28, 2048, 1408, 16, 16, 128, 102400, false, {64, 6, 2816, 1, 10944}},
    {"falcon", 7, 32, 4544, 18176, 71, 1, 64, 65024, true},
    {"falcon", 180, 80, 14848, 59392, 232, 8, 64, 65024, true},
    {"opt", 175, 96, 12288, 49152, 96, 96, 128, 50272, true},
    {"opt", 66, 64, 9216, 36864, 72, 72, 128, 50272, true},
    {"opt", 30, 48, 7168, 28672, 56, 56, 128, 50272, true},
    {"opt", 13, 40, 5120, 20480, 40, 40, 128, 50272, true},
    {"opt", 6.7, 32, 4096, 16384, 32, 32, 128, 50272, true},
    {"opt", 2.7, 32, 2560, 10240, 32, 32, 80, 50272, true},
    {"opt", 0.35, 24, 1024, 4096, 16, 16, 64, 50272, true},
    {"opt", 0.125, 12, 768, 3072, 12, 12, 64, 50272, true},
    {"opt", 1.3, 24, 2048, 8192, 32, 32, 64, 50272, true},
    {"bloom", 176, 70, 14336, 57344, 112, 112, 128, 250880, true},
    {"bloom", 7.1, 30, 4096, 16384, 32, 32, 128, 250880, true},
    {"gptneox", 20, 44, 6144, 24576, 64, 64, 96, 50432, false},
    {"gptj", 6, 28, 4096, 16384, 16, 16, 256, 50400, false},
    {"pythia", 12, 36, 5120, 20480, 40, 40, 128, 50688, false},
    {"pythia", 6.9, 32, 4096, 16384, 32, 32, 128, 50432, false},
    {"pythia", 2.8, 32, 2560, 10240, 32, 32, 80, 50304, false},
    {"pythia", 1, 16, 2048, 8192, 8, 8, 256, 50304, false},
    {"pythia", 0.41, 24, 1024, 4096, 16, 16, 64, 50304, false},
    {"pythia", 0.16, 12, 768, 3072, 12, 12, 64, 50304, false},
    {"pythia", 1.4, 24, 2048, 8192, 16, 16, 128, 50304, false},
    {"gpt2xl", 0, 48, 1600, 6400, 25, 25, 64, 50257, true},
    {"gpt2large", 0, 36, 1280, 5120, 20, 20, 64, 50257, true},
    {"gpt2medium", 0, 24, 1024, 4096, 16, 16, 64, 50257, true},
    {"gpt2", 1.5, 48, 1600, 6400, 25, 25, 64, 50257, true},
    {"gpt2", 0.774, 36, 1280, 5120, 20, 20, 64, 50257, true},
    {"gpt2", 0.355, 24, 1024, 4096, 16, 16, 64, 50257, true},
    {"gpt2", 0.124, 12, 768, 3072, 12, 12, 64, 50257, true},
    {"mtnlg", 530, 105, 20480, 81920, 128, 128, 160, 51200, true},
    {"turingnlg", 17, 78, 4256, 17024, 28, 28, 152, 50257, true},
    {"mpt", 30, 48, 7168, 28672, 64, 64, 112, 50432, true},
    {"mpt", 7, 32, 4096, 16384, 32, 32, 128, 50432, true},
    // NeMo-Framework-Launcher, conf/training/bert; the first two as published
    {"robertalarge", 0, 24, 1024, 4096, 16, 16, 64, 50265, true},
    {"robertabase", 0, 12, 768, 3072, 12, 12, 64, 50265, true},
    {"bertlarge", 0, 24, 1024, 4096, 16, 16, 64, 30522, true},
    {"bertbase", 0, 12, 768, 3072, 12, 12, 64, 30522, true},
    {"bert", 0.11, 12, 768, 3072, 12, 12, 64, 30522, true},
    {"bert", 0.34, 24, 1024, 4096, 16, 16, 64, 30522, true},
    {"bert", 4, 48, 2560, 10240, 32, 32, 80, 30522, true},
    {"bert", 20, 48, 6144, 24576, 96, 96, 64, 30522, true},
    {"bert", 100, 96, 9216, 36864, 96, 96, 96, 30522, true},
    {"yi", 34, 60, 7168, 20480, 56, 8, 128, 64000, false},
    {"yi", 6, 32, 4096, 11008, 32, 4, 128, 64000, false},
    {"internlm2", 20, 48, 6144, 16384, 48, 8, 128, 92544, false},
    {"internlm2", 7, 32, 4096, 14336, 32, 8, 128, 92544, false},
    {"internlm", 20, 60, 5120, 13824, 40, 40, 128, 103168, false},
    {"internlm", 7, 32, 4096, 11008, 32, 32, 128, 103168, false},
    {"baichuan2", 13, 40, 5120, 13696, 40, 40, 128, 125696, false},
    {"baichuan2", 7, 32, 4096, 11008, 32, 32, 128, 125696, false},
    {"chatglm2", 6, 28, 4096, 13696, 32, 2, 128, 65024, false},
    {"chatglm3", 6, 28, 4096, 13696, 32, 2, 128, 65024, false},
    {"glm4", 9, 40, 4096, 13696, 32, 2, 128, 151552, false},
    {"glm", 130, 70, 12288, 32768, 96, 96, 128, 150528, true},
    {"olmo2", 32, 64, 5120, 27648, 40, 8, 128, 100352, false},
    {"olmo2", 13, 40, 5120, 13824, 40, 40, 128, 100352, false},
    {"olmo2", 7, 32, 4096, 11008, 32, 32, 128, 100352, false},
    {"olmo", 13, 40, 5120, 13824, 40, 40, 128, 100352, false},
    {"olmo", 1, 16, 2048, 8192, 16, 16, 128, 50304, true},
    {"olmo", 7, 32, 4096, 11008, 32, 32, 128, 50304, false},
    {"gemma3", 27, 62, 5376, 21504, 32, 16, 128, 262208, true, {}, {}, {1024, 6}},
    {"gemma3", 12, 48, 3840, 15360, 16, 8, 256, 262208, true, {}, {}, {1024, 6}},
    {"gemma3", 4, 34, 2560, 10240, 8, 4, 256, 262208, true, {}, {}, {1024, 6}},
    {"gemma2", 27, 46, 4608, 36864, 32, 16, 128, 256000, true, {}, {}, {4096, 2}},
    {"gemma2", 9, 42, 3584, 14336, 16, 8, 256, 256000, true, {}, {}, {4096, 2}},
    {"gemma2", 2.6, 26, 2304, 9216, 8, 4, 256, 256000, true, {}, {}, {4096, 2}},
    {"gemma", 7, 28, 3072, 24576, 16, 16, 256, 256000, true},
    {"gemma", 2, 18, 2048, 16384, 8, 1, 256, 256000, true},
    {"starcoder2", 15, 40, 6144, 24576, 48, 4, 128, 49152, false},
    {"smollm2", 1.7, 24, 2048, 8192, 32, 32, 64, 49152, true},
    {"smollm2", 0.135, 30, 576, 1536, 9, 3, 64, 49152, true},
    {"smollm2", 0.36, 32, 960, 2560, 15, 5, 64, 49152, true},
    {"granite4.0hsmall", 0, 40, 4096, 768, 32, 8, 128, 100352, true, {72, 10, 1536}, {}, {}, &kGraniteSmall},
    {"granite4.0htiny", 0, 40, 1536, 512, 12, 4, 128, 100352, true, {64, 6, 1024}, {}, {}, &kGraniteTiny},
    {"granite3bcode", 0, 32, 2560, 10240, 32, 32, 80, 49152, true},
    {"granite8bcode", 0, 36, 4096, 14336, 32, 8, 128, 49152, true},
    {"granite", 34, 88, 6144, 24576, 48, 1, 128, 49152, true},
    {"granite", 20, 52, 6144, 24576, 48, 1, 128, 49152, true},
    {"granite", 7, 32, 4096, 11008, 32, 32, 128, 32000, false},
    {"granite", 8, 40, 4096, 12800, 32, 8, 128, 49155, true},
    {"granite", 2, 40, 2048, 8192, 32, 8, 64, 49155, true},
    {"granite", 3, 32, 1536, 512, 24, 8, 64, 49155, true, {40, 8}},
    {"granite3", 1, 24, 1024, 512, 16, 8, 64, 49155, true, {32, 8}},
    {"allam", 13, 40, 5120, 13824, 40, 40, 128, 64000, false},
    {"mistral", 123, 88, 12288, 28672, 96, 8, 128, 32768, false},
    {"santacoder", 0, 24, 2048, 8192, 16, 1, 128, 49280, true},
    {"powerlm", 0, 40, 2304, 9216, 36, 36, 64, 49152, true},
    {"phi3mini", 0, 32, 3072, 8192, 32, 32, 96, 32064, false},
    {"phi4", 14, 40, 5120, 17920, 40, 10, 128, 100352, false},
    {"phi3", 14, 40, 5120, 17920, 40, 10, 128, 32064, false},
    {"phi1.5", 0, 24, 2048, 8192, 32, 32, 64, 51200, false},
    {"phi2", 0, 32, 2560, 10240, 32, 32, 80, 51200, false},
};

}  // namespace

const KnownModel* FindKnownModel(absl::string_view name, double billions, int64_t hidden) {
  const std::string plain =
      absl::StrReplaceAll(absl::AsciiStrToLower(name), {{" ", ""}, {"-", ""}, {"_", ""}, {"/", ""}});
  const KnownModel* nearest = nullptr;
  double distance = kNear;
  for (const KnownModel& model : kModels) {
    if (!absl::StrContains(plain, model.family) || (hidden > 0 && hidden != model.hidden)) continue;
    const double away = model.billions > 0 ? std::abs(billions / model.billions - 1) : 0;
    if (away >= distance) continue;
    nearest = &model;
    distance = away;
  }
  return nearest;
}

}  // namespace meshwright
