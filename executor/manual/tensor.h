// A tensor in main memory, as a value: what the collectives of a hand-written parallel program take and return.
//
//   const Tensor x = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
//   x.As<float>()[3];   // 4: row-major
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_TENSOR_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/layout.h"

namespace meshwright::manual {

struct Tensor {
  Shape shape;  // () is a scalar
  DType dtype = DType::kFloat32;
  std::vector<std::byte> data;  // row-major, NumElements(shape) elements

  static Tensor Zeros(const Shape& shape, DType dtype);

  // T: float, double, int32_t or int64_t.
  template <class T>
  static Tensor Of(const Shape& shape, const std::vector<T>& values) {
    Tensor tensor = {shape, DTypeOf<T>(), std::vector<std::byte>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    return tensor;
  }
  template <class T>
  static Tensor Full(const Shape& shape, T value) {
    return Of(shape, std::vector<T>(static_cast<size_t>(NumElements(shape)), value));
  }

  // The elements. REQUIRES: T is how the host stores `dtype`.
  template <class T>
  absl::Span<const T> As() const {
    return absl::MakeConstSpan(reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T));
  }
  template <class T>
  absl::Span<T> As() {
    return absl::MakeSpan(reinterpret_cast<T*>(data.data()), data.size() / sizeof(T));
  }

  friend bool operator==(const Tensor&, const Tensor&) = default;  // bit for bit

  template <class T>
  static constexpr DType DTypeOf() {
    if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
    if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
    if constexpr (std::is_same_v<T, int32_t>) return DType::kInt32;
    if constexpr (std::is_same_v<T, int64_t>) return DType::kInt64;
  }
};

using meshwright::ToText;                  // of a Shape
std::string ToText(const Tensor& tensor);  // type and shape: "float32 (2, 2)"

// E-VALUE when a dim is negative or the data are not as many bytes as shape and type ask for.
absl::Status CheckTensor(const Tensor& tensor);

// Elements [begin[d], begin[d] + shape[d]) of every dim d. REQUIRES: they exist.
Tensor Block(const Tensor& from, const Shape& begin, const Shape& shape);
// Writes, or with `add` adds, the block `from` at `begin` of `to`. REQUIRES: it fits and the types are equal; to add,
// float32, float64, int32 or int64.
void SetBlock(const Tensor& from, const Shape& begin, Tensor& to);
void AddBlock(const Tensor& from, const Shape& begin, Tensor& to);

// Rows [begin, end) of dim 0. REQUIRES: they exist.
Tensor Rows(const Tensor& from, int64_t begin, int64_t end);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_TENSOR_H_
