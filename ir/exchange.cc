#include "ir/exchange.h"

#include <algorithm>

namespace meshwright {
namespace {

// Row-major coordinates of place `p` in the first `dims` dims.
Shape CoordinatesOf(int64_t p, const Shape& shape, size_t dims) {
  Shape at(dims, 0);
  for (size_t d = dims; d-- > 0; p /= shape[d]) at[d] = p % shape[d];
  return at;
}

}  // namespace

size_t RankDims(const Shape& sources, const Shape& shape) {
  size_t dims = 0;
  for (int64_t ranks = 1; dims < shape.size() && ranks < static_cast<int64_t>(sources.size()); ++dims) {
    ranks *= shape[dims];
  }
  return dims;
}

std::optional<ExchangedBroadcast> BroadcastOf(const Shape& sources, const Shape& shape) {
  const size_t dims = RankDims(sources, shape);
  ExchangedBroadcast cast{dims, 0, 0};
  for (size_t p = 0; p < sources.size(); ++p) {
    if (sources[p] < 0) return std::nullopt;
    const Shape to = CoordinatesOf(static_cast<int64_t>(p), shape, dims), from = CoordinatesOf(sources[p], shape, dims);
    for (size_t d = 0; d < dims; ++d) {
      if (to[d] == from[d]) continue;
      cast.begin = std::min(cast.begin, d);
      cast.end = std::max(cast.end, d + 1);
    }
  }
  if (cast.begin >= cast.end) return std::nullopt;
  for (size_t p = 0; p < sources.size(); ++p) {
    const Shape from = CoordinatesOf(sources[p], shape, dims);
    int64_t place = 0;
    for (size_t d = cast.begin; d < cast.end; ++d) place = place * shape[d] + from[d];
    if (p == 0) cast.root = place;
    if (place != cast.root) return std::nullopt;
  }
  return cast;
}

}  // namespace meshwright
