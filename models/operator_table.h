// The operators that a model file's operator form may use: user name -> operator of ir/op_list.h, its rule and its
// attributes. Only for models/operators.cc.
#ifndef MESHWRIGHT_MODELS_OPERATOR_TABLE_H_
#define MESHWRIGHT_MODELS_OPERATOR_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/document.h"
#include "ir/graph.h"
#include "models/by_hand.h"
#include "models/training.h"

namespace meshwright {

// One operator of a model file, about to become an op.
struct UserOpCall {
  const NodeRef& where;            // its map in the file
  std::vector<Shape> shapes = {};  // of the inputs
  std::vector<DType> dtypes = {};
  int64_t batch = 0;  // dim 0 of the inputs as the file says it, and
  int64_t rows = 0;   // in the graph that is being built
  LossReduction loss_reduction = LossReduction::kMean;
  DType dtype = DType::kFloat32;  // in which the model computes
  RankGraph::Group group = {};    // of ranks, where they talk with each other
};

// How many inputs an operator of any number of them takes at least.
inline constexpr size_t kSeveral = 0;
inline constexpr int64_t kMostParts = 64;  // of a Split

// Fills rule, attributes and output shapes. The caller has checked the number of inputs and the keys.
using PrepareFn = absl::Status (*)(const UserOpCall& call, GraphBuilder::OpSpec& spec);

// What ranks do with each other in a program that is split by hand: adds its ops.
using TogetherFn = absl::StatusOr<TensorId> (*)(const UserOpCall& call, RankGraph& graph, const std::string& name,
                                                TensorId x);

inline constexpr int kAnyType = -2;

struct UserOp {
  absl::string_view name;
  OpKind kind;
  size_t inputs;      // kSeveral: two or more
  int integer_input;  // the input that holds ids or class numbers, or -1; others are floating, but for kAnyType
  bool loss;
  absl::Span<const absl::string_view> keys;  // what its map may hold besides what every operator has
  PrepareFn prepare;
  TogetherFn together = nullptr;  // instead of `prepare`
};

absl::Span<const UserOp> UserOps();

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_OPERATOR_TABLE_H_
