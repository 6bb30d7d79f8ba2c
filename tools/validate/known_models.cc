#include "tools/validate/known_models.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace meshwright {
namespace {

constexpr absl::string_view kLatent = "latent attention as heads that share a key, a shared expert as one more a token";
constexpr absl::string_view kShared = "a shared expert as one more a token";
constexpr absl::string_view kWindow = "attention of windows as of whole rows";
constexpr absl::string_view kEverySecond =
    "experts in every layer instead of every second; a shared expert as one more";
constexpr double kNear = 0.1;  // names round: "70B" has 70.6

// The config.json that each model was published with. Of several that match the one nearest in size, then the first.
constexpr KnownModel kModels[] = {
    // family, billions, layers, hidden, ffn, heads, kv_heads, head_dim, vocab, tied, experts, a token, differs
    {"deepseekv2lite", 0, 27, 2048, 1408, 16, 1, 128, 102400, false, 64, 8, kLatent},
    {"deepseekv2", 0, 60, 5120, 1536, 128, 1, 128, 102400, false, 160, 8, kLatent},
    {"deepseekv3", 0, 61, 7168, 2048, 128, 1, 128, 129280, false, 256, 9, kLatent},
    {"deepseekr1", 0, 61, 7168, 2048, 128, 1, 128, 129280, false, 256, 9, kLatent},
    {"kimik2", 0, 61, 7168, 2048, 64, 1, 128, 163840, false, 384, 9, kLatent},
    {"qwen3", 30, 48, 2048, 768, 32, 4, 128, 151936, false, 128, 8, ""},
    {"qwen3", 235, 94, 4096, 1536, 64, 4, 128, 151936, false, 128, 8, ""},
    {"qwen2", 57, 28, 3584, 2560, 28, 4, 128, 151936, false, 64, 16, kShared},
    {"gptoss", 120, 36, 2880, 2880, 64, 8, 64, 201088, false, 128, 4, kWindow},
    {"gptoss", 20, 24, 2880, 2880, 64, 8, 64, 201088, false, 32, 4, kWindow},
    {"scout", 0, 48, 5120, 8192, 40, 8, 128, 202048, false, 16, 2, kShared},
    {"maverick", 0, 48, 5120, 8192, 40, 8, 128, 202048, false, 128, 2, kEverySecond},
    {"grok1", 0, 64, 6144, 32768, 48, 8, 128, 131072, false, 8, 2, ""},
    {"dbrx", 0, 40, 6144, 10752, 48, 8, 128, 100352, false, 16, 4, ""},
    {"olmoe", 0, 16, 2048, 1024, 16, 16, 128, 50304, false, 64, 8, ""},
    {"mixtral8x7b", 0, 32, 4096, 14336, 32, 8, 128, 32000, false, 8, 2, ""},
    {"mixtral8x22b", 0, 56, 6144, 16384, 48, 8, 128, 32768, false, 8, 2, ""},
    {"llama3", 405, 126, 16384, 53248, 128, 8, 128, 128256, false, 0, 0, ""},
    {"llama3", 70, 80, 8192, 28672, 64, 8, 128, 128256, false, 0, 0, ""},
    {"llama3", 8, 32, 4096, 14336, 32, 8, 128, 128256, false, 0, 0, ""},
    {"llama3", 3, 28, 3072, 8192, 24, 8, 128, 128256, true, 0, 0, ""},
    {"llama3", 1, 16, 2048, 8192, 32, 8, 64, 128256, true, 0, 0, ""},
    {"tinyllama", 1.1, 22, 2048, 5632, 32, 4, 64, 32000, false, 0, 0, ""},
    {"llama", 70, 80, 8192, 28672, 64, 8, 128, 32000, false, 0, 0, ""},
    {"llama", 65, 80, 8192, 22016, 64, 64, 128, 32000, false, 0, 0, ""},
    {"llama", 34, 48, 8192, 22016, 64, 8, 128, 32000, false, 0, 0, ""},
    {"llama", 32.5, 60, 6656, 17920, 52, 52, 128, 32000, false, 0, 0, ""},
    {"llama", 13, 40, 5120, 13824, 40, 40, 128, 32000, false, 0, 0, ""},
    {"llama", 7, 32, 4096, 11008, 32, 32, 128, 32000, false, 0, 0, ""},
    {"mistral", 7, 32, 4096, 14336, 32, 8, 128, 32000, false, 0, 0, ""},
    {"qwen2.5", 72, 80, 8192, 29568, 64, 8, 128, 152064, false, 0, 0, ""},
    {"qwen2.5", 32, 64, 5120, 27648, 40, 8, 128, 152064, false, 0, 0, ""},
    {"qwen2.5", 14, 48, 5120, 13824, 40, 8, 128, 152064, false, 0, 0, ""},
    {"qwen2.5", 7, 28, 3584, 18944, 28, 4, 128, 152064, false, 0, 0, ""},
    {"qwen2.5", 3, 36, 2048, 11008, 16, 2, 128, 151936, true, 0, 0, ""},
    {"qwen2.5", 1.5, 28, 1536, 8960, 12, 2, 128, 151936, true, 0, 0, ""},
    {"qwen2.5", 0.5, 24, 896, 4864, 14, 2, 64, 151936, true, 0, 0, ""},
    {"qwen3", 32, 64, 5120, 25600, 64, 8, 128, 151936, false, 0, 0, ""},
    {"qwen3", 14, 40, 5120, 17408, 40, 8, 128, 151936, false, 0, 0, ""},
    {"qwen3", 8, 36, 4096, 12288, 32, 8, 128, 151936, false, 0, 0, ""},
    {"nemotron", 340, 96, 18432, 73728, 96, 8, 192, 256000, false, 0, 0, ""},
    {"nemotron", 15, 32, 6144, 24576, 48, 8, 128, 256000, false, 0, 0, ""},
    {"falcon", 40, 60, 8192, 32768, 128, 8, 64, 65024, true, 0, 0, ""},
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
