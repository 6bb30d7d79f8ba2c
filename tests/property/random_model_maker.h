// The maker of random_model.h's models, in two sources: random_model.cc begins and ends a model and adds what is drawn,
// random_operators.cc has a way to draw each operator. Private to them.
#ifndef MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_MAKER_H_
#define MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_MAKER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ir/graph.h"
#include "tests/property/random_model.h"

namespace meshwright {

class ModelMaker {
 public:
  ModelMaker(uint64_t seed, const ModelOptions& options)
      : draw_(seed), draw_again_(~seed), options_(options), b_(absl::StrCat("random_", seed)) {}
  absl::StatusOr<Graph> Run();

 private:
  using OpSpec = GraphBuilder::OpSpec;
  using Names = std::vector<std::string>;
  // A value of the model and a label for each of its dims; "b" is the batch.
  struct Value {
    TensorId id;
    Names names;
    int degree = 1;  // how fast it grows with what went in; kept small, so that no model explodes
  };
  static constexpr DType kReal = DType::kFloat64;

  static Initializer Uniform(double low, double high) {
    return {.kind = Initializer::Kind::kUniform, .low = low, .high = high};
  }
  static Initializer Normal(double deviation) { return {.kind = Initializer::Kind::kNormal, .value = deviation}; }
  static OpAttrs Scaled(double scale);

  const Shape& ShapeOf(TensorId id) const { return b_.graph().tensor(id).shape; }
  int64_t Extent() { return draw_.Of(std::vector<int64_t>{2, 4, 6, 8, 8, 12, 3, 1}); }
  std::string Fresh(const std::string& stem) { return absl::StrCat(stem, next_++); }
  // A label that the given ones leave free.
  std::string FreshLabel(const Names& taken);
  static bool Fixed(const std::string& name) { return name == "b"; }
  TensorId Weight(Shape shape, Initializer init) { return b_.Parameter(Fresh("w"), kReal, std::move(shape), init); }

  absl::StatusOr<TensorId> AddOp(OpKind kind, std::vector<TensorId> inputs, std::string rule = "", OpAttrs attrs = {},
                                 std::vector<Shape> output_shapes = {});
  absl::StatusOr<std::vector<TensorId>> AddOps(OpKind kind, std::vector<TensorId> inputs, std::string rule,
                                               OpAttrs attrs, std::vector<Shape> output_shapes);
  absl::Status Push(const absl::StatusOr<TensorId>& made, Names names, int degree);
  // Made of `x` alone, and no larger.
  absl::Status Push(const absl::StatusOr<TensorId>& made, Names names);

  // How a model begins, in random_model.cc: rows of numbers, or embedded ids.
  absl::Status Start();
  // Rows of a table, by a product with ones and zeros.
  absl::Status OneHots();
  absl::Status Embed();

  // Operators, in random_operators.cc: adds `count` times one operator or a few that belong together, mostly behind the
  // newest value.
  absl::Status Ops(int64_t count);
  absl::Status OneOp();
  // A dim that may be cut and joined: not the batch.
  std::optional<size_t> OwnDim(const Value& x);
  // The dims of x, of which `own` is whole and called `name`.
  static std::string WithOwn(const Value& x, size_t own, const std::string& name);
  // x and other values behind each other along one dim.
  absl::Status Joined();
  // Two parts of x; one of them may stay unused.
  absl::Status Parts();
  // Every second or third element of x along some dims, not from the first on.
  absl::Status Piece();
  // x times a new weight, contracted over one dim that is not the batch; the result's dims in any order.
  absl::Status Product();
  // x times itself transposed: one tensor read in two layouts.
  absl::Status SelfProduct();
  // A weight that broadcasts to x: its last dims, some of them 1; never one extent per row.
  TensorId Broadcast(const Value& x, Initializer init);
  absl::Status Binary();
  absl::Status Activation();
  // Softmax and norms: along the last dim.
  absl::Status Rows();
  absl::Status Sum();
  absl::Status Transpose();
  absl::Status TransposeTo(const Value& x, const Names& result);
  // The last two dims become one, or the last one becomes two.
  absl::Status Reshape();
  // SwiGLU behind a product with two matrices.
  absl::Status Gated();
  absl::Status Simple();
  absl::Status Positions();
  // Whether x is as the layers of a transformer have it.
  bool IsStream(const Value& x) const;
  // A few operators that keep shape and names of (s, b, h).
  absl::Status Preserving();
  absl::Status Attention(const Value& x);
  absl::Status LinearAttention(const Value& x);
  // Queries, keys and values one behind the other, the keys with a part that all heads share.
  absl::StatusOr<TensorId> LatentHeads(const Value& x, int64_t width, int64_t value_width);
  // Every expert, and every group of experts, has a slot for every token, so that none is dropped, however the batch is
  // split.
  absl::Status Experts(const Value& x);

  // A whole model of layers up to its head, one segment of these, and how each model ends, in random_model.cc.
  absl::Status Layers();
  // Of runs of so many layers; what is carried behind it.
  absl::StatusOr<TensorId> StackOf(const Value& from, int64_t in_run, bool bounded = false);
  absl::Status Layer(Value in, bool bounded);
  absl::Status Loss();
  absl::Status SquaredError(const Value& x);
  absl::Status CrossEntropy(const Value& x, bool rows_second);

  Draw draw_, draw_again_;
  const ModelOptions options_;
  GraphBuilder b_;
  std::vector<Value> pool_;
  TensorId table_;                  // of the embedding
  TensorId common_;                 // of all layers
  std::vector<TensorId> products_;  // weights that may be used again
  int next_ = 0;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_PROPERTY_RANDOM_MODEL_MAKER_H_
