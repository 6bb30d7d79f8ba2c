#include "executor/collective_pieces.h"

#include "absl/strings/str_cat.h"

namespace meshwright {

AlongDim::AlongDim(const TensorView& view, size_t dim) : extent(view.shape[dim]), inner(SizeOf(view.dtype).raw()) {
  for (size_t d = 0; d < dim; ++d) outer *= view.shape[d];
  for (size_t d = dim + 1; d < view.shape.size(); ++d) inner *= view.shape[d];
}

absl::Status CheckPieces(const Collective& c, int64_t n, const TensorView& read, const TensorView& write) {
  Shape want = read.shape;
  const size_t dims = want.size(), dim = static_cast<size_t>(c.dim), to_dim = static_cast<size_t>(c.to_dim);
  const bool uses_dim = c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter ||
                        c.kind == CollectiveKind::kAllToAll;
  if (uses_dim && (dim >= dims || (c.kind == CollectiveKind::kAllToAll && to_dim >= dims))) {
    return absl::InvalidArgumentError(absl::StrCat("dim ", c.dim, " of a tensor ", ToText(read.shape)));
  }
  if (c.kind == CollectiveKind::kAllGather) want[dim] *= n;
  if (c.kind == CollectiveKind::kReduceScatter) want[dim] /= n;
  if (c.kind == CollectiveKind::kAllToAll) {
    want[dim] *= n;
    want[to_dim] /= n;
  }
  if (want == write.shape &&
      NumElements(want) * (c.kind == CollectiveKind::kAllGather ? 1 : n) ==
          read.size() * (c.kind == CollectiveKind::kReduceScatter ? 1 : n) &&
      read.dtype == write.dtype) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("from ", ToText(read.shape), " to ", ToText(write.shape)));
}

}  // namespace meshwright
