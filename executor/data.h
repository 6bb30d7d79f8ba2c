// Where numbers come from: initial values of parameters, and the batches that inputs read.
//
// Every value depends on (seed, tensor name, layer, place in the whole tensor) only. A rank draws its own piece and
// gets what it would get by drawing the whole tensor and keeping its slice, however the tensor is split; replicas are
// equal.
#ifndef MESHWRIGHT_EXECUTOR_DATA_H_
#define MESHWRIGHT_EXECUTOR_DATA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/kernel_call.h"
#include "ir/graph.h"

namespace meshwright {

// Writes the piece's values. kFormula counts dim 0 as i and the others together, row-major, as j. Pieces are float16,
// bfloat16, float32, float64 or int32. kFailedPrecondition for kData: such an input wants a data set.
absl::Status FillInitial(const Initializer& init, uint64_t seed, absl::string_view name, int64_t layer,
                         const TensorView& piece);

// The batches of a training run. Thread safety: const functions may be called from many threads.
class DataSource {
 public:
  virtual ~DataSource() = default;

  // Writes a piece of the batch of `step` (from 0) for input `name`. The piece's global shape is that of the whole
  // step's batch: all micro-batches, dim 0 counts rows.
  virtual absl::Status Fill(absl::string_view name, const Initializer& init, int64_t step,
                            const TensorView& piece) const = 0;
};

// The same where `init` names an order for ranks that share a sequence: the piece's last dim is then a part of that
// order, while `data` knows positions only.
absl::Status FillInOrder(const DataSource& data, absl::string_view name, const Initializer& init, int64_t step,
                         const TensorView& piece);

// What the inputs' initializers say; the same at every step.
class SyntheticData : public DataSource {
 public:
  explicit SyntheticData(uint64_t seed) : seed_(seed) {}
  uint64_t seed() const { return seed_; }
  absl::Status Fill(absl::string_view name, const Initializer& init, int64_t step,
                    const TensorView& piece) const override;

 private:
  uint64_t seed_;
};

// Numbers between 0 and 1 as a numpy program draws them: np.random.seed(seed), then for each input in order
// np.random.rand(rows, width), the same at every step. A batch is copies of these rows, row i that of i modulo their
// number: what ranks get that all read the same data (S9.6). The inputs are those initialised with kData, in float32 or
// float64; others are synthetic.
class NumpyUniformData : public DataSource {
 public:
  struct Input {
    std::string name;
    int64_t width = 1;  // elements of a row
  };
  NumpyUniformData(uint32_t seed, int64_t rows, const std::vector<Input>& inputs);
  absl::Status Fill(absl::string_view name, const Initializer& init, int64_t step,
                    const TensorView& piece) const override;

 private:
  SyntheticData others_;
  int64_t rows_;
  std::map<std::string, std::vector<double>, std::less<>> values_;
};

// Handwritten digits in the idx format of MNIST (images: magic 0x00000803, labels: 0x00000801). Step t reads the t-th
// batch of the file, in order, and starts over after the last whole batch. With `rows_per_step` a batch reads so many
// rows and is copies of them, row i that of i modulo their number: what ranks get that all read the same file (S9.6).
//
// Inputs initialised with kData: those of floating type get pixels, (p / 255 - 0.1307) / 0.3081, in rows of rows x
// columns; int32 ones get labels. Other inputs are synthetic.
class MnistData : public DataSource {
 public:
  // Reads both files (not compressed). kNotFound; kInvalidArgument where they are no idx files or differ in length.
  static absl::StatusOr<MnistData> Load(const std::string& images_path, const std::string& labels_path, uint64_t seed);
  // `count` images of 28 x 28 that stand for digits: a picture of its own for each of the ten, and noise on it.
  static MnistData Synthetic(int64_t count, uint64_t seed);

  void set_rows_per_step(int64_t rows) { rows_per_step_ = rows; }

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t pixels() const { return pixels_; }
  absl::Status Fill(absl::string_view name, const Initializer& init, int64_t step,
                    const TensorView& piece) const override;

 private:
  explicit MnistData(uint64_t seed) : others_(seed) {}
  SyntheticData others_;
  int64_t pixels_ = 0;         // of one image
  int64_t rows_per_step_ = 0;  // 0: as many as the input has
  std::vector<uint8_t> images_, labels_;
};

// The bytes of a text, for decoders of 256 or more words: "tokens" are bytes, "labels" the byte behind each, "labels2"
// the one behind that, and so on. A row of a step begins at a place that is drawn. Other inputs are synthetic.
class TextData : public DataSource {
 public:
  // kNotFound; kInvalidArgument where the file has no more than `sequence` bytes.
  static absl::StatusOr<TextData> Load(const std::string& path, int64_t sequence, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  absl::Status Fill(absl::string_view name, const Initializer& init, int64_t step,
                    const TensorView& piece) const override;

 private:
  explicit TextData(uint64_t seed) : seed_(seed), others_(seed) {}
  uint64_t seed_;
  SyntheticData others_;
  std::string bytes_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_DATA_H_
