#include "executor/data.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "executor/narrow_floats.h"
#include "executor/random.h"
#include "ir/context_order.h"
#include "ir/status.h"

namespace meshwright {
namespace {

double ValueOf(const Initializer& init, const Draws& draws, int64_t element, int64_t columns) {
  switch (init.kind) {
    case Initializer::Kind::kConstant:
      return init.value;
    case Initializer::Kind::kNormal:
      return init.value * draws.Normal(element);
    case Initializer::Kind::kUniform:
      return init.low + (init.high - init.low) * draws.Uniform(element);
    case Initializer::Kind::kTokens:
      return std::floor(init.high * draws.Uniform(element));
    case Initializer::Kind::kFormula: {
      const int64_t i = element / columns, j = element % columns;
      return static_cast<double>((init.a * i + init.b * j) % init.modulus - init.subtract) / init.divide;
    }
    case Initializer::Kind::kData:
      break;
  }
  return 0;
}

template <class F>
absl::Status FillRows(const TensorView& piece, const F& value_of) {
  switch (piece.dtype) {
    case DType::kFloat32:
      ForEachElement(piece, [&](int64_t i, int64_t e) { piece.as<float>()[i] = static_cast<float>(value_of(e)); });
      return absl::OkStatus();
    case DType::kFloat64:
      ForEachElement(piece, [&](int64_t i, int64_t e) { piece.as<double>()[i] = value_of(e); });
      return absl::OkStatus();
    case DType::kInt32:
      ForEachElement(piece, [&](int64_t i, int64_t e) { piece.as<int32_t>()[i] = static_cast<int32_t>(value_of(e)); });
      return absl::OkStatus();
    case DType::kFloat16:
    case DType::kBFloat16:
      ForEachElement(piece, [&](int64_t i, int64_t e) {
        piece.as<uint16_t>()[i] = ToNarrow(piece.dtype, static_cast<float>(value_of(e)));
      });
      return absl::OkStatus();
    case DType::kTFloat32:
    case DType::kFloat8:
    case DType::kInt64:
    case DType::kBool:
      break;
  }
  return absl::UnimplementedError(absl::StrCat("no initial values of type ", NameOf(piece.dtype)));
}

// Writes value_of(element number) in the piece's type: a part of the rows in each of several threads, where there is
// much to write. A normal number takes some 30 ns, and a large model has billions.
template <class F>
absl::Status FillFrom(const TensorView& piece, const F& value_of) {
  constexpr int64_t kLeast = 1 << 20, kMostThreads = 16;  // elements of a thread
  const int64_t rows = piece.shape.empty() ? 1 : piece.shape[0];
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t parts = std::min({piece.size() / kLeast, rows, cores, kMostThreads});
  if (parts < 2) return FillRows(piece, value_of);
  std::vector<absl::Status> statuses(parts);
  std::vector<std::thread> threads;
  for (int64_t p = 0; p < parts; ++p) {
    threads.emplace_back([&, p] {
      const int64_t begin = rows * p / parts, end = rows * (p + 1) / parts;
      TensorView part = piece;
      part.data += piece.bytes() / rows * begin;
      part.begin[0] += begin;
      part.shape[0] = end - begin;
      statuses[p] = FillRows(part, value_of);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(statuses.begin(), statuses.end(),
                           [](const auto& a, const auto& b) { return a.ok() && !b.ok(); });
}

absl::Status CheckIsNoFolder(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_directory(path, none)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": found a folder, wanted a file"));
}

absl::StatusOr<std::vector<uint8_t>> ReadBytes(const std::string& path) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckIsNoFolder(path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

uint32_t BigEndian(const std::vector<uint8_t>& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

// An idx file of unsigned bytes: the extents of its dims, and the bytes.
struct IdxFile {
  std::vector<int64_t> extents;
  std::vector<uint8_t> bytes;
};
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, uint32_t dims) {
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, ReadBytes(path));
  const size_t header = 4 + 4 * size_t{dims};
  const uint32_t magic = bytes.size() < header ? 0 : BigEndian(bytes, 0), wanted = 0x800 + dims;
  if (magic != wanted) {
    const bool gzip = bytes.size() > 1 && bytes[0] == 0x1f && bytes[1] == 0x8b;
    return absl::InvalidArgumentError(absl::StrFormat("%s: starts with %08x, wanted %08x (idx, %d dims)%s", path, magic,
                                                      wanted, dims, gzip ? "; it is compressed, gunzip it" : ""));
  }
  IdxFile file;
  double size = 1;  // three extents of 32 bits: more than an integer holds
  for (size_t d = 0; d < dims; ++d) {
    file.extents.push_back(BigEndian(bytes, 4 + 4 * d));
    size *= static_cast<double>(file.extents.back());
  }
  if (static_cast<double>(bytes.size() - header) != size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: its header promises %.0f bytes, it has %d", path, size, bytes.size() - header));
  }
  file.bytes.assign(bytes.begin() + static_cast<int64_t>(header), bytes.end());
  return file;
}

// MNIST's mean and standard deviation, of pixels in [0, 1]; the values that training scripts use for it.
constexpr double kMnistMean = 0.1307, kMnistDeviation = 0.3081;

}  // namespace

absl::Status FillInitial(const Initializer& init, uint64_t seed, absl::string_view name, int64_t layer,
                         const TensorView& piece) {
  if (init.kind == Initializer::Kind::kData) {
    return absl::FailedPreconditionError(absl::StrCat("\"", name, "\" is read from a data set, and there is none"));
  }
  if (init.kind == Initializer::Kind::kFormula && (init.modulus == 0 || init.divide == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("the formula of \"", name, "\" divides by 0"));
  }
  if (init.by_rank > 0 && init.by_rank <= static_cast<int64_t>(piece.global.size())) {
    Initializer one = init;
    one.by_rank = 0;
    TensorView copy = piece;
    for (Shape* shape : {&copy.shape, &copy.global, &copy.begin}) {
      shape->erase(shape->begin(), shape->begin() + init.by_rank);
    }
    const int64_t ranks = NumElements(Shape(piece.shape.begin(), piece.shape.begin() + init.by_rank));
    for (int64_t i = 0; i < ranks; ++i, copy.data += copy.bytes()) {
      MESHWRIGHT_RETURN_IF_ERROR(FillInitial(one, seed, name, layer, copy));
    }
    return absl::OkStatus();
  }
  const Draws draws(seed, name, layer);
  const int64_t rows = piece.global.empty() ? 1 : piece.global[0];
  const int64_t columns = rows == 0 ? 1 : NumElements(piece.global) / rows;
  return FillFrom(piece, [&](int64_t element) { return ValueOf(init, draws, element, columns); });
}

absl::Status FillInOrder(const DataSource& data, absl::string_view name, const Initializer& init, int64_t step,
                         const TensorView& piece) {
  if (init.context <= 1 || piece.global.empty()) return data.Fill(name, init, step, piece);
  // Whole rows, of which the piece's places are picked.
  TensorView rows = piece;
  const int64_t sequence = rows.global.back(), width = piece.shape.back(), first = piece.begin.back();
  rows.shape.back() = sequence;
  rows.begin.back() = 0;
  std::vector<std::byte> whole(static_cast<size_t>(rows.bytes()));
  rows.data = whole.data();
  MESHWRIGHT_RETURN_IF_ERROR(data.Fill(name, init, step, rows));
  const int64_t size = SizeOf(piece.dtype).raw();
  for (int64_t i = 0; i < piece.size(); ++i) {
    const int64_t position = PositionOf(first + i % width, sequence, init.context);
    std::memcpy(piece.data + i * size, rows.data + (i / width * sequence + position) * size, static_cast<size_t>(size));
  }
  return absl::OkStatus();
}

absl::Status SyntheticData::Fill(absl::string_view name, const Initializer& init, int64_t,
                                 const TensorView& piece) const {
  return FillInitial(init, seed_, name, 0, piece);
}

NumpyUniformData::NumpyUniformData(uint32_t seed, int64_t rows, const std::vector<Input>& inputs)
    : others_(seed), rows_(rows) {
  // numpy's RandomState: MT19937, seeded as its authors' init_genrand does, and their genrand_res53.
  std::mt19937 twister(seed);
  for (const Input& input : inputs) {
    std::vector<double>& values = values_[input.name];
    for (int64_t i = 0; i < rows * input.width; ++i) {
      const uint64_t high = twister() >> 5, low = twister() >> 6;
      values.push_back(static_cast<double>((high << 26) + low) * 0x1.0p-53);
    }
  }
}

absl::Status NumpyUniformData::Fill(absl::string_view name, const Initializer& init, int64_t step,
                                    const TensorView& piece) const {
  if (init.kind != Initializer::Kind::kData) return others_.Fill(name, init, step, piece);
  const auto found = values_.find(name);
  const int64_t rows = piece.global.empty() ? 1 : piece.global[0];
  const int64_t width = rows == 0 ? 0 : NumElements(piece.global) / rows;
  if (found == values_.end() || static_cast<int64_t>(found->second.size()) != rows_ * width) {
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", name, "\" has ", width, " elements a row, which is not what was drawn for it"));
  }
  return FillFrom(piece, [&](int64_t element) {
    return found->second[static_cast<size_t>(element / width % rows_ * width + element % width)];
  });
}

absl::StatusOr<MnistData> MnistData::Load(const std::string& images_path, const std::string& labels_path,
                                          uint64_t seed) {
  MESHWRIGHT_ASSIGN_OR_RETURN(IdxFile images, ReadIdx(images_path, 3));
  MESHWRIGHT_ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(labels_path, 1));
  if (images.extents[0] != labels.extents[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images_path, " has ", images.extents[0], " images, ", labels_path,
                                                   " ", labels.extents[0], " labels"));
  }
  MnistData data(seed);
  data.pixels_ = images.extents[1] * images.extents[2];
  data.images_ = std::move(images.bytes);
  data.labels_ = std::move(labels.bytes);
  return data;
}

MnistData MnistData::Synthetic(int64_t count, uint64_t seed) {
  constexpr int64_t kPixels = 28 * 28, kDigits = 10;
  MnistData data(seed);
  data.pixels_ = kPixels;
  const Draws picture(seed, "picture", 0), noise(seed, "noise", 0), label(seed, "label", 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto digit = static_cast<int64_t>(kDigits * label.Uniform(static_cast<uint64_t>(i)));
    data.labels_.push_back(static_cast<uint8_t>(digit));
    for (int64_t p = 0; p < kPixels; ++p) {
      // A fifth of the pixels are ink, as in handwriting; of these a fifth is lost.
      const bool ink = picture.Uniform(static_cast<uint64_t>(digit * kPixels + p)) < 0.2;
      const bool seen = noise.Uniform(static_cast<uint64_t>(i * kPixels + p)) < 0.8;
      data.images_.push_back(ink && seen ? 255 : 0);
    }
  }
  return data;
}

absl::Status MnistData::Fill(absl::string_view name, const Initializer& init, int64_t step,
                             const TensorView& piece) const {
  if (init.kind != Initializer::Kind::kData) return others_.Fill(name, init, step, piece);
  const int64_t all = piece.global.empty() ? 0 : piece.global[0];
  const int64_t rows = rows_per_step_ == 0 ? all : rows_per_step_;
  if (all == 0 || rows > size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", name, "\" wants ", rows, " rows a step, the data set has ", size()));
  }
  const int64_t width = NumElements(piece.global) / all;
  const bool labels = piece.dtype == DType::kInt32;
  if (width != (labels ? 1 : pixels_)) {
    return absl::InvalidArgumentError(absl::StrCat("input \"", name, "\" has ", width, " elements a row, ",
                                                   labels ? "a label is one" : absl::StrCat("an image has ", pixels_)));
  }
  const int64_t first = step % (size() / rows) * rows * width;
  return FillFrom(piece, [&](int64_t element) {
    element %= rows * width;
    if (labels) return static_cast<double>(labels_[first + element]);
    return (images_[first + element] / 255.0 - kMnistMean) / kMnistDeviation;
  });
}

absl::StatusOr<TextData> TextData::Load(const std::string& path, int64_t sequence, uint64_t seed) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckIsNoFolder(path));
  std::ifstream file(path, std::ios::binary);
  if (!file.good()) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  TextData data(seed);
  data.bytes_.assign(std::istreambuf_iterator<char>(file), {});
  if (data.size() <= sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", data.size(), " bytes, wanted more than ", sequence, ", the sequence"));
  }
  return data;
}

namespace {

// Of an input: "tokens" 0, "labels" 1, "labels2" 2, ..
std::optional<int64_t> BytesBehind(absl::string_view name) {
  if (name == "tokens") return 0;
  if (!absl::ConsumePrefix(&name, "labels")) return std::nullopt;
  int64_t behind = 1;
  if (!name.empty() && (!absl::SimpleAtoi(name, &behind) || behind < 2 || behind > 64)) return std::nullopt;
  return behind;
}

}  // namespace

absl::Status TextData::Fill(absl::string_view name, const Initializer& init, int64_t step,
                            const TensorView& piece) const {
  const std::optional<int64_t> behind = BytesBehind(name);
  if (!behind.has_value() || piece.dtype != DType::kInt32 || piece.shape.size() != 2) {
    return others_.Fill(name, init, step, piece);
  }
  const int64_t sequence = piece.global[1], starts = size() - sequence;
  if (starts <= 0)
    return absl::InvalidArgumentError(absl::StrCat("a text of ", size(), " bytes has no row of ", sequence));
  if (init.high < 256) return absl::InvalidArgumentError(absl::StrCat("bytes as words of a vocabulary of ", init.high));
  const Draws draws = Draws(seed_, "text", 0).Sub(step);
  int32_t* const out = piece.as<int32_t>();
  for (int64_t r = 0; r < piece.shape[0]; ++r) {
    const double drawn = draws.Uniform(static_cast<uint64_t>(piece.begin[0] + r));
    const auto start = static_cast<int64_t>(drawn * static_cast<double>(starts)) + *behind + piece.begin[1];
    for (int64_t i = 0; i < piece.shape[1]; ++i) {  // behind the last byte stands the first
      out[r * piece.shape[1] + i] = static_cast<unsigned char>(bytes_[static_cast<size_t>((start + i) % size())]);
    }
  }
  return absl::OkStatus();
}

}  // namespace meshwright
