#include "executor/spread.h"

#include <algorithm>
#include <cstddef>

namespace meshwright {
namespace {

bool IsByRank(const Buffer& buffer) {
  return buffer.role == BufferRole::kParameter && buffer.trainable && buffer.init.by_rank > 0;
}

double SpreadOf(const WholeTensor& whole, int64_t rank_dims) {
  if (whole.values.empty()) return 0;
  const int64_t ranks = NumElements(Shape(whole.shape.begin(), whole.shape.begin() + rank_dims));
  const size_t elements = whole.values.size() / static_cast<size_t>(ranks);
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

bool HasSpread(const Program& program) {
  for (const RankClass& rank_class : program.classes) {
    if (std::any_of(rank_class.buffers.begin(), rank_class.buffers.end(), IsByRank)) return true;
  }
  return false;
}

std::vector<Spread> SpreadByRank(const Program& program, const RunResult& result) {
  std::vector<Spread> spreads;
  for (const RankClass& rank_class : program.classes) {
    for (const Buffer& buffer : rank_class.buffers) {
      const auto found = result.parameters.find({buffer.name, buffer.first_layer});
      if (!IsByRank(buffer) || found == result.parameters.end()) continue;
      spreads.push_back({buffer.name, SpreadOf(found->second, buffer.init.by_rank)});
    }
  }
  return spreads;
}

}  // namespace meshwright
