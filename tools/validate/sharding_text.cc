#include "tools/validate/sharding_text.h"

#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace meshwright {
namespace {

struct Alias {
  absl::string_view said, meant;
};
constexpr Alias kAliases[] = {
    {"fully sharded", "fsdp"},
    {"full_shard", "fsdp"},
    {"fully_shard", "fsdp"},
    {"full shard", "fsdp"},
    {"gemini", "fsdp"},
    {"hybrid_shard", "hsdp"},
    {"hybrid shard", "hsdp"},
    {"hybrid-shard", "hsdp"},
    {"dp_replicate", "hsdp"},
    {"shard_grad", "zero-2"},
    {"shard grad", "zero-2"},
    {"no reshard", "zero-2"},
    {"not reshard", "zero-2"},
    {"without reshard", "zero-2"},
    {"reshard_after_forward=false", "zero-2"},
    {"reshard_after_forward: false", "zero-2"},
    {"replicat", "zero-0"},
    {"data parallel", "zero-0"},
    {"dist opt", "zero-1"},
    {"dist_opt", "zero-1"},
    {"distopt", "zero-1"},
    {"distributed", "zero-1"},
};

}  // namespace

std::string ShardingText(absl::string_view cell) {
  const std::string lower = absl::AsciiStrToLower(cell);
  // "NO_SHARD" is PyTorch's name.
  static const std::regex* const kNone = new std::regex(
      R"(\b(no[ _-]?shard\w*|(no|not|without|w/o)[ -](zero|fsdp)\b|(zero|fsdp)\s*[:=]?\s*(off|disabled|false|none)\b))");
  const std::string denied = std::regex_replace(lower, *kNone, "");
  if (denied.size() < lower.size()) {
    // What is left says how it is split, or that it is not.
    const bool rest = denied.find_first_not_of(" ,;()+") != std::string::npos && SaysSharding(denied);
    return rest ? ShardingText(denied) : "none";
  }
  std::string text = lower;
  static const std::regex* const kStage = new std::regex(R"((zero|stage|\bz)[ _-]*(stage)?[ _-]*([0-3])\b)");
  std::smatch match;
  if (std::regex_search(lower, match, *kStage)) absl::StrAppend(&text, " zero-", match[3].str());
  const bool staged = text.size() > lower.size();
  if (staged && match[3] != "0") text = absl::StrReplaceAll(text, {{"ddp", "dp"}});  // "DDP + ZeRO-1"
  for (const Alias& alias : kAliases) {
    // "ZeRO-3 data parallel", "fully sharded data parallel": the first word that tells is the one that counts.
    if (absl::StrContains(lower, alias.said) && (!staged || absl::EndsWith(alias.meant, "sdp")) &&
        !(alias.meant == "zero-0" && SaysSharding(text))) {
      absl::StrAppend(&text, " ", alias.meant);
    }
  }
  return text;
}

bool SaysSharding(absl::string_view text) {
  for (const absl::string_view word : {"zero", "fsdp", "hsdp", "shard", "none", "ddp", "groups"}) {
    if (absl::StrContains(text, word)) return true;
  }
  return text == "no" || absl::StartsWith(text, "no ");
}

std::optional<int64_t> RanksThatShare(absl::string_view text, int64_t ranks) {
  static const std::regex* const kGroup =
      new std::regex(R"((groups? of|dp_shard|hsdp|shard_(degree|size))[ =:]*(\d{1,7}))");
  static const std::regex* const kMesh = new std::regex(R"(hsdp[ =:(]*\d{1,7} ?[x*] ?(\d{1,7}))");  // copies x shares
  static const std::regex* const kCopies = new std::regex(R"(replicate(_degree)?[ =:]*(\d{1,7}))");
  const std::string all(text);
  std::smatch match;
  int64_t number = 0;
  if (std::regex_search(all, match, *kMesh) && absl::SimpleAtoi(match[1].str(), &number)) return number;
  if (std::regex_search(all, match, *kGroup) && absl::SimpleAtoi(match[3].str(), &number)) return number;
  if (!std::regex_search(all, match, *kCopies) || !absl::SimpleAtoi(match[2].str(), &number)) return std::nullopt;
  return number > 0 && ranks % number == 0 ? ranks / number : 0;
}

double GathersAgain(int64_t hidden, int64_t ffn) {
  constexpr double kReuseDistance = 1e9;
  const double h = static_cast<double>(hidden), f = static_cast<double>(ffn);
  double after = 0, again = 0, all = 0;
  for (const double product : {f * h, f * h, h * h, 3 * h * h}) {  // from the last one
    if (2 * after > kReuseDistance) again += product;
    after += product;
    all += product;
  }
  return again / all;
}

}  // namespace meshwright
