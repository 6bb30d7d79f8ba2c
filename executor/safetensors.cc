#include "executor/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/document.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/text.h"
#include "nlohmann/json.hpp"

namespace meshwright {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";
constexpr int64_t kMostElements = int64_t{1} << 48;

// The format's names, in the order of DType.
constexpr absl::string_view kTypeNames[] = {"F64", "F32", "F32", "F16", "BF16", "F8_E4M3", "I64", "I32", "BOOL"};
static_assert(std::size(kTypeNames) == std::size(kDTypes), "a name per DType");

std::optional<DType> TypeOf(absl::string_view name) {
  for (size_t i = 0; i < std::size(kTypeNames); ++i) {
    if (kTypeNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Where a tensor's bytes lie behind the header.
struct Extent {
  int64_t begin = 0, end = 0;
  std::string name;
};

absl::StatusOr<Extent> ReadTensor(const NodeRef& in, int64_t data_size, StoredTensor& tensor) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"dtype", "shape", "data_offsets"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string type, in["dtype"].AsString());
  const std::optional<DType> dtype = TypeOf(type);
  if (!dtype.has_value()) return in["dtype"].Error(QuoteForMessage(type), ListNames(kTypeNames));
  tensor.dtype = *dtype;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, in["shape"].AsInts(0, kMostElements));
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent != 0 && elements > kMostElements / extent) {
      return in["shape"].Error("a tensor of more than 2^48 elements", "a smaller one");
    }
    elements *= extent;
  }
  tensor.shape.assign(shape.begin(), shape.end());
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, in["data_offsets"].AsInts(0));
  const int64_t size = elements * SizeOf(tensor.dtype).raw();
  if (offsets.size() != 2 || offsets[1] - offsets[0] != size || offsets[1] > data_size) {
    return in["data_offsets"].Error(
        absl::StrCat("[", absl::StrJoin(offsets, ", "), "]"),
        absl::StrCat("two numbers ", size, " apart within the ", data_size, " bytes behind the header"));
  }
  return Extent{offsets[0], offsets[1], in.key()};
}

absl::StatusOr<TensorFile> Parse(absl::string_view bytes, absl::string_view path) {
  if (bytes.size() < kLengthBytes) {
    return ValueError(path, ": found ", bytes.size(), " bytes, wanted at least the 8 of the header's length");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
  bytes.remove_prefix(kLengthBytes);
  if (length > bytes.size() || length > kMaxDocumentBytes) {
    return ValueError(path, ": found a header of ", length, " bytes, wanted at most ",
                      std::min(bytes.size(), kMaxDocumentBytes), "; the file is cut short, or no safetensors file");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document header, ParseDocument(bytes.substr(0, length), path));
  const absl::string_view data = bytes.substr(length);
  TensorFile file;
  std::vector<Extent> extents;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> entries, header.root().AsMap());
  for (const NodeRef& entry : entries) {
    if (entry.key() == kMetadata) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> items, entry.AsMap());
      for (const NodeRef& item : items) {
        MESHWRIGHT_ASSIGN_OR_RETURN(file.metadata[item.key()], item.AsString());
      }
      continue;
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(Extent extent,
                                ReadTensor(entry, static_cast<int64_t>(data.size()), file.tensors[entry.key()]));
    extents.push_back(std::move(extent));
  }
  // The extents fill the file, each byte once.
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end) {
      return ValueError(path, ": tensor ", QuoteForMessage(extent.name), " begins at byte ", extent.begin,
                        " behind the header, wanted ", end, ", where the one before it ends");
    }
    end = extent.end;
    file.tensors[extent.name].bytes =
        std::string(data.substr(static_cast<size_t>(extent.begin), static_cast<size_t>(extent.end - extent.begin)));
  }
  if (end != static_cast<int64_t>(data.size())) {
    return ValueError(path, ": found ", data.size(), " bytes behind the header, wanted the ", end, " of its tensors");
  }
  return file;
}

}  // namespace

std::string ToBytes(const TensorFile& file) {
  std::string header = "{";
  if (!file.metadata.empty()) {
    absl::StrAppend(&header, "\"", kMetadata, "\": {",
                    absl::StrJoin(file.metadata, ", ",
                                  [](std::string* out, const auto& item) {
                                    absl::StrAppend(out, Quoted(item.first), ": ", Quoted(item.second));
                                  }),
                    "}");
  }
  size_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    absl::StrAppend(&header, header.size() > 1 ? ",\n" : "", Quoted(name), ": {\"dtype\": \"",
                    kTypeNames[static_cast<size_t>(tensor.dtype)], "\", \"shape\": [",
                    absl::StrJoin(tensor.shape, ", "), "], \"data_offsets\": [", offset, ", ",
                    offset + tensor.bytes.size(), "]}");
    offset += tensor.bytes.size();
  }
  header += "}";
  while (header.size() % kLengthBytes != 0) header += ' ';  // the tensors begin where 8-byte numbers may
  std::string bytes;
  bytes.reserve(kLengthBytes + header.size() + offset);
  for (size_t i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(uint64_t{header.size()} >> 8 * i & 0xff);
  bytes += header;
  for (const auto& [name, tensor] : file.tensors) bytes += tensor.bytes;
  return bytes;
}

absl::StatusOr<TensorFile> ParseTensorFile(absl::string_view bytes, absl::string_view path) {
  absl::StatusOr<TensorFile> file = Parse(bytes, path);
  if (!file.ok()) return WithKind("E-VALUE", file.status());
  return file;
}

}  // namespace meshwright
