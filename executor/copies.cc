#include "executor/copies.h"

#include <algorithm>
#include <cstddef>

namespace meshwright {
namespace {

bool IsCopied(const Buffer& buffer) {
  return buffer.role == BufferRole::kParameter && buffer.trainable && buffer.init.copies > 1;
}

double SpreadOf(const WholeTensor& whole, int64_t copies) {
  const size_t elements = whole.values.size() / static_cast<size_t>(copies);
  double spread = 0;
  for (size_t e = 0; e < elements; ++e) {
    double least = whole.values[e], most = least;
    for (size_t at = e; at < whole.values.size(); at += elements) {
      least = std::min(least, whole.values[at]);
      most = std::max(most, whole.values[at]);
    }
    spread = std::max(spread, most - least);
  }
  return spread;
}

}  // namespace

bool HasCopies(const Program& program) {
  for (const RankClass& rank_class : program.classes) {
    if (std::any_of(rank_class.buffers.begin(), rank_class.buffers.end(), IsCopied)) return true;
  }
  return false;
}

std::vector<Spread> SpreadOfCopies(const Program& program, const RunResult& result) {
  std::vector<Spread> spreads;
  for (const RankClass& rank_class : program.classes) {
    for (const Buffer& buffer : rank_class.buffers) {
      const auto found = result.parameters.find({buffer.name, buffer.first_layer});
      if (!IsCopied(buffer) || found == result.parameters.end()) continue;
      spreads.push_back({buffer.name, SpreadOf(found->second, buffer.init.copies)});
    }
  }
  return spreads;
}

}  // namespace meshwright
