// Files of named tensors in the safetensors format (https://github.com/huggingface/safetensors, README, "Format"),
// which users' own programs open: 8 bytes with the length of the header (little-endian), the header as JSON, then the
// tensors' bytes, row-major and little-endian, without gaps.
//
//   {"__metadata__": {"rank": "3"}, "w": {"dtype": "F64", "shape": [8, 16], "data_offsets": [0, 1024]}}
//
// Errors: E-VALUE, with the path and, in the header, line and column. Thread safety: pure functions.
#ifndef MESHWRIGHT_EXECUTOR_SAFETENSORS_H_
#define MESHWRIGHT_EXECUTOR_SAFETENSORS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/dtype.h"
#include "ir/layout.h"

namespace meshwright {

struct StoredTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string bytes;
};

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredTensor> tensors;
};

// Deterministic: tensors in the order of their names. ParseTensorFile gives the same back.
// REQUIRES: every tensor has as many bytes as its shape and type say. tfloat32 is stored as float32.
std::string ToBytes(const TensorFile& file);

// Checks everything that the format promises. `path` is for messages. The header may have kMaxDocumentBytes.
absl::StatusOr<TensorFile> ParseTensorFile(absl::string_view bytes, absl::string_view path);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_SAFETENSORS_H_
