// Element types of tensors.
#ifndef MESHWRIGHT_IR_DTYPE_H_
#define MESHWRIGHT_IR_DTYPE_H_

#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/string_view.h"
#include "ir/quantities.h"

namespace meshwright {

enum class DType : uint8_t { kFloat64, kFloat32, kTFloat32, kFloat16, kBFloat16, kFloat8, kInt64, kInt32, kBool };

struct DTypeInfo {
  DType dtype;
  absl::string_view name;  // as files and messages spell it
  int bytes;               // of one element in memory
  bool floating;
};

// One row per element type. tfloat32 is stored as float32 and only names the arithmetic of a product.
inline constexpr DTypeInfo kDTypes[] = {
    {DType::kFloat64, "float64", 8, true},   {DType::kFloat32, "float32", 4, true},
    {DType::kTFloat32, "tfloat32", 4, true}, {DType::kFloat16, "float16", 2, true},
    {DType::kBFloat16, "bfloat16", 2, true}, {DType::kFloat8, "float8", 1, true},
    {DType::kInt64, "int64", 8, false},      {DType::kInt32, "int32", 4, false},
    {DType::kBool, "bool", 1, false},
};
constexpr const DTypeInfo& InfoOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr bool DTypeRowsAreInOrder() {
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    if (kDTypes[i].dtype != static_cast<DType>(i)) return false;
  }
  return std::size(kDTypes) == static_cast<size_t>(DType::kBool) + 1;
}
static_assert(DTypeRowsAreInOrder(), "kDTypes needs one row per DType, in the enum's order");

constexpr Bytes SizeOf(DType dtype) { return Bytes(InfoOf(dtype).bytes); }
constexpr absl::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }
constexpr std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const DTypeInfo& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_DTYPE_H_
