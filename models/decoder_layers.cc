#include "models/decoder_layers.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

// Of layer i of a model without a pattern.
LayerKind KindOfLayer(const DecoderConfig& c, int64_t i) {
  const int64_t every = c.full_attention_every;
  const bool in_period = every > 0 && i % every == (c.full_attention_at > 0 ? c.full_attention_at : every) - 1;
  const bool full = in_period || std::binary_search(c.full_attention_layers.begin(), c.full_attention_layers.end(), i);
  return {.experts = i >= c.dense_layers && (i - c.dense_layers + 1) % c.expert_every == 0,
          .window = full ? 0 : c.sliding_window,
          .linear = !full && c.linear_attention.value_heads > 0};
}

LayerKind KindOfLetter(char letter) {
  const bool mixer = letter == 'M' || letter == '*';
  return {.mixer = mixer, .feed_forward = !mixer, .experts = letter == 'E', .window = 0, .linear = letter == 'M'};
}

const char* NameOf(const LayerKind& kind) {
  if (!kind.mixer) return kind.experts ? "experts" : "dense";
  if (kind.feed_forward && !kind.experts) return "dense";
  if (!kind.feed_forward) return kind.linear ? "linear" : "attention";
  return kind.linear ? "linear" : kind.window > 0 ? "window" : "layer";
}

// The last of a run stands for all: of it names begin as the stretch's do.
std::vector<LayerInRun> Named(const std::string& stretch, const std::vector<LayerKind>& kinds) {
  std::vector<LayerInRun> run;
  for (size_t i = 0; i < kinds.size(); ++i) {
    run.push_back({i + 1 == kinds.size() ? stretch : absl::StrCat(stretch, NameOf(kinds[i]), i, "_"), kinds[i]});
  }
  return run;
}

// Of a letter for each layer, and the kind that it stands for.
template <typename KindOf>
std::vector<Stretch> StretchesOfPattern(const std::string& pattern, const KindOf& kind_of) {
  std::vector<Stretch> stretches;
  for (const PatternRun& run : RunsOfPattern(pattern)) {
    std::vector<LayerKind> kinds;
    for (const char letter : run.letters) kinds.push_back(kind_of(letter));
    const size_t part = stretches.size() + 1;
    stretches.push_back({part == 1 ? "layers" : absl::StrCat("layers", part), run.repeat,
                         Named(part == 1 ? "" : absl::StrCat("part", part, "_"), kinds)});
  }
  return stretches;
}

// Of layers in any order, of few kinds.
std::vector<Stretch> StretchesOfKinds(const std::vector<LayerKind>& kinds) {
  std::vector<LayerKind> distinct;
  std::string pattern;
  for (const LayerKind& kind : kinds) {
    const auto found = std::find(distinct.begin(), distinct.end(), kind);
    pattern.push_back(static_cast<char>('a' + (found - distinct.begin())));
    if (found == distinct.end()) distinct.push_back(kind);
  }
  return StretchesOfPattern(pattern, [&](char letter) { return distinct[static_cast<size_t>(letter - 'a')]; });
}

std::vector<LayerKind> Expanded(const std::vector<Stretch>& stretches) {
  std::vector<LayerKind> kinds;
  for (const Stretch& stretch : stretches) {
    for (int64_t i = 0; i < stretch.repeat; ++i) {
      for (const LayerInRun& layer : stretch.run) kinds.push_back(layer.kind);
    }
  }
  return kinds;
}

}  // namespace

// The least sum of letters over runs, and a run counts as kOfRun more: a segment is work for the planner, too.
std::vector<PatternRun> RunsOfPattern(const std::string& pattern) {
  constexpr int64_t kOfRun = 1;
  constexpr size_t kLongestRun = 64;
  struct Best {
    int64_t cost = std::numeric_limits<int64_t>::max();
    size_t begin = 0, length = 0;  // of the last stretch, and of its run
  };
  std::vector<Best> best(pattern.size() + 1);  // of what is in front of each letter
  best[0].cost = 0;
  for (size_t begin = 0; begin < pattern.size(); ++begin) {
    for (size_t length = 1; length <= kLongestRun && begin + length <= pattern.size(); ++length) {
      const int64_t cost = best[begin].cost + static_cast<int64_t>(length) + kOfRun;
      for (size_t end = begin + length; end <= pattern.size(); end += length) {
        if (pattern.compare(end - length, length, pattern, begin, length) != 0) break;
        if (cost < best[end].cost) best[end] = {cost, begin, length};
      }
    }
  }
  std::vector<PatternRun> runs;
  for (size_t end = pattern.size(); end > 0; end = best[end].begin) {
    const Best& last = best[end];
    runs.push_back({pattern.substr(last.begin, last.length), static_cast<int64_t>((end - last.begin) / last.length)});
  }
  std::reverse(runs.begin(), runs.end());
  return runs;
}

std::vector<Stretch> StretchesOf(const DecoderConfig& config) {
  if (!config.layer_pattern.empty()) return StretchesOfPattern(config.layer_pattern, KindOfLetter);
  std::vector<LayerKind> kinds;
  for (int64_t i = 0; i < config.layers; ++i) kinds.push_back(KindOfLayer(config, i));
  const int64_t run = LayersOfRun(config), behind = config.layers - config.dense_layers;
  if (behind < run || !config.full_attention_layers.empty() ||
      (config.dense_layers > 0 && config.full_attention_every > 0)) {
    return StretchesOfKinds(kinds);
  }
  const auto first = kinds.end() - behind;  // of what repeats
  const int64_t last = behind % run;
  if (std::any_of(kinds.end() - last, kinds.end(), [&](const LayerKind& kind) { return kind != *first; })) {
    return StretchesOfKinds(kinds);
  }
  std::vector<Stretch> stretches;
  if (config.dense_layers > 0) stretches.push_back({"dense_layers", config.dense_layers, {{"dense_", kinds.front()}}});
  stretches.push_back({"layers", behind / run, Named("", {first, first + run})});
  if (last > 0) stretches.push_back({"last_layers", last, {{"last_", *first}}});
  return stretches;
}

// One of each so many where that says it: the distance of the first two, or what the only one leaves open.
void SetFullAttention(const std::vector<bool>& full, DecoderConfig& config) {
  config.full_attention_every = config.full_attention_at = 0;
  config.full_attention_layers.clear();
  for (int64_t i = 0; i < config.layers; ++i) {
    if (full[static_cast<size_t>(i)]) config.full_attention_layers.push_back(i);
  }
  const std::vector<int64_t>& all = config.full_attention_layers;
  if (all.empty()) return;
  const int64_t first = all[0], alone = 2 * (first + 1) > config.layers ? first + 1 : config.layers;
  const int64_t every = all.size() > 1 ? all[1] - first : alone;
  if (every < 2 || first >= every) return;
  for (int64_t i = 0; i < config.layers; ++i) {
    if (full[static_cast<size_t>(i)] != (i % every == first)) return;
  }
  config.full_attention_every = every;
  config.full_attention_at = first + 1 == every ? 0 : first + 1;
  config.full_attention_layers.clear();
}

std::vector<LayerKind> KindsOf(const DecoderConfig& config) { return Expanded(StretchesOf(config)); }

LayerKind NextKind(const DecoderConfig& config) {
  if (!config.layer_pattern.empty()) return LayerKind();
  const bool listed = !config.full_attention_layers.empty();
  LayerKind kind = KindOfLayer(config, (listed ? config.layers : LayersOfRun(config)) - 1);
  kind.experts = true;
  return kind;
}

std::string NextPrefix(int64_t k) { return k == 1 ? "next_" : absl::StrCat("next", k, "_"); }

std::vector<std::string> LayerPrefixes(const DecoderConfig& config) {
  std::vector<std::string> prefixes;
  for (const Stretch& stretch : StretchesOf(config)) {
    for (const LayerInRun& layer : stretch.run) prefixes.push_back(layer.prefix);
  }
  for (int64_t k = 1; k <= config.mtp_layers; ++k) prefixes.push_back(NextPrefix(k));
  return prefixes;
}

LayerCounts CountLayers(const DecoderConfig& config) {
  LayerCounts counts;
  for (const Stretch& stretch : StretchesOf(config)) {
    for (const LayerInRun& layer : stretch.run) {
      if (layer.kind.mixer) (layer.kind.linear ? counts.linear : counts.attention) += stretch.repeat;
      if (layer.kind.window > 0) counts.windows += stretch.repeat;
      if (!layer.kind.feed_forward) continue;
      (layer.kind.experts && config.experts > 0 ? counts.experts : counts.dense) += stretch.repeat;
    }
  }
  return counts;
}

int64_t ExpertLayers(const DecoderConfig& config) {
  const LayerCounts counts = CountLayers(config);
  return config.experts > 0 ? counts.experts : counts.dense;
}

}  // namespace meshwright
