#include "executor/manual/tensor.h"

#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"

namespace meshwright::manual {
namespace {

// Calls row(offset in the whole tensor, offset in the block, elements) for each contiguous run of the block of `shape`
// at `begin` of a tensor of shape `whole`.
template <class Row>
void ForEachRow(const Shape& whole, const Shape& begin, const Shape& shape, const Row& row) {
  if (NumElements(shape) == 0) return;
  const size_t dims = shape.size();
  if (dims == 0) return row(0, 0, 1);
  const int64_t length = shape.back();
  Shape at(dims, 0);
  for (int64_t done = 0;; done += length) {
    int64_t offset = 0;
    for (size_t d = 0; d < dims; ++d) offset = offset * whole[d] + begin[d] + at[d];
    row(offset, done, length);
    size_t d = dims - 1;
    do {
      if (d == 0) return;
      --d;
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    } while (true);
  }
}

template <class T>
void AddTyped(const Tensor& from, const Shape& begin, Tensor& to) {
  const absl::Span<const T> source = from.As<T>();
  const absl::Span<T> target = to.As<T>();
  ForEachRow(to.shape, begin, from.shape, [&](int64_t in_whole, int64_t in_block, int64_t n) {
    for (int64_t i = 0; i < n; ++i) target[in_whole + i] += source[in_block + i];
  });
}

}  // namespace

Tensor Tensor::Zeros(const Shape& shape, DType dtype) {
  return {shape, dtype, std::vector<std::byte>(static_cast<size_t>(NumElements(shape) * SizeOf(dtype).raw()))};
}

std::string ToText(const Tensor& tensor) {
  return absl::StrCat(NameOf(tensor.dtype), " ", meshwright::ToText(tensor.shape));
}

absl::Status CheckTensor(const Tensor& tensor) {
  for (const int64_t extent : tensor.shape) {
    if (extent < 0) {
      return ValueError("a tensor has the shape ", meshwright::ToText(tensor.shape), "; extents are 0 or more");
    }
  }
  const int64_t want = NumElements(tensor.shape) * SizeOf(tensor.dtype).raw();
  if (static_cast<int64_t>(tensor.data.size()) == want) return absl::OkStatus();
  return ValueError("a tensor of ", ToText(tensor), " holds ", tensor.data.size(), " bytes, not ", want);
}

Tensor Block(const Tensor& from, const Shape& begin, const Shape& shape) {
  Tensor block = Tensor::Zeros(shape, from.dtype);
  const int64_t element = SizeOf(from.dtype).raw();
  ForEachRow(from.shape, begin, shape, [&](int64_t in_whole, int64_t in_block, int64_t n) {
    std::memcpy(block.data.data() + in_block * element, from.data.data() + in_whole * element,
                static_cast<size_t>(n * element));
  });
  return block;
}

void SetBlock(const Tensor& from, const Shape& begin, Tensor& to) {
  const int64_t element = SizeOf(from.dtype).raw();
  ForEachRow(to.shape, begin, from.shape, [&](int64_t in_whole, int64_t in_block, int64_t n) {
    std::memcpy(to.data.data() + in_whole * element, from.data.data() + in_block * element,
                static_cast<size_t>(n * element));
  });
}

void AddBlock(const Tensor& from, const Shape& begin, Tensor& to) {
  if (from.dtype == DType::kFloat32) AddTyped<float>(from, begin, to);
  if (from.dtype == DType::kFloat64) AddTyped<double>(from, begin, to);
  if (from.dtype == DType::kInt32) AddTyped<int32_t>(from, begin, to);
  if (from.dtype == DType::kInt64) AddTyped<int64_t>(from, begin, to);
}

Tensor Rows(const Tensor& from, int64_t begin, int64_t end) {
  Shape start(from.shape.size(), 0), shape = from.shape;
  start[0] = begin;
  shape[0] = end - begin;
  return Block(from, start, shape);
}

}  // namespace meshwright::manual
