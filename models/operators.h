// The operator form of a model file: inputs, parameters and operators, one line each, as small networks are written.
//
//   inputs:     {x: {shape: [16, 32], init: {uniform: [0, 1]}}, label: {shape: [16, 16]}}
//   parameters: {w: {shape: [32, 16], init: normal}, w2: {shape: [16, 16], init: {normal: 0.02}}}
//   operators:
//     - {name: matmul,  op: MatMul,  inputs: [x, w], shard: [[2, 4], [4, 1]]}
//     - {name: relu,    op: ReLU,    inputs: [matmul]}
//     - {name: matmul2, op: MatMul,  inputs: [relu, w2]}
//     - {name: loss,    op: MSELoss, inputs: [matmul2, label]}
//
// `cross_batch: true` on a ReduceSum or ReduceMean over the batch: each rank reduces its own rows (S5.13).
// `recompute: true` on any: its output is not kept, backward computes it again (S13.1).
//
// Shapes are global, of a whole step. Dim 0 of every input is the batch: BuildOperators makes the graph of fewer rows.
// Operators stand in execution order and name inputs, parameters or earlier operators; the parts of a Split named s are
// s.0, s.1, ... The last one is the loss.
//
// Ranks of a program that is split by hand (models/by_hand.h) may talk within groups, which together hold every rank
// once; an operator names one by `group: pairs`, else it is about all ranks:
//
//   groups: {pairs: [[0, 1], [2, 3]]}
//
// kUserOps in operators.cc is the one table of operators a user may write; docs list it from UserOpNames().
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_MODELS_OPERATORS_H_
#define MESHWRIGHT_MODELS_OPERATORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/graph.h"
#include "models/parallel.h"
#include "models/training.h"

namespace meshwright {

struct InputSpec {
  std::string name = {};
  DType dtype = DType::kFloat32;
  Shape shape;
  Initializer init;
};

struct ParameterSpec {
  std::string name = {};
  DType dtype = DType::kFloat32;
  Shape shape;
  Initializer init;
  bool trainable = true;
  bool layerwise_parallel = false;  // S8.9
  bool parallel_optimizer = true;   // S11.4: may be split further
  int64_t comm_fusion = 1;          // S10.7: fusion id of its gradient's collective; 0: alone
};

struct OperatorSpec {
  std::string name = {};
  size_t op = 0;  // row of kUserOps
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};  // its name; of a Split, one name for each part
  std::optional<OpSharding> shard = {};
  std::optional<bool> recompute = {};  // S13.1; what cells say counts where it says nothing
  bool on_host = false;                // S13.5: device_target is CPU
  int64_t fusion = 0;                  // S10.8: of an AllReduce or AllGather; equal ids are one call, 0: alone
  // As written, or taken over from a neighbour; -1 where no operator has one. With chunks it counts on (S12.10): chunk
  // v of stage s is v * stages + s.
  int64_t pipeline_stage = -1;
  int64_t group = -1;  // of OperatorModel::groups, or all ranks
  NodeRef where;       // for errors, and for what only this kind of operator has (transpose_b, axis, ...)
};

struct GroupSpec {
  std::string name = {};
  std::vector<std::vector<int64_t>> ranks;
  NodeRef where;
};

struct OperatorModel {
  std::vector<GroupSpec> groups;
  std::vector<InputSpec> inputs;
  std::vector<ParameterSpec> parameters;
  std::vector<OperatorSpec> operators;

  // Whether ranks do something with each other: the author splits the program by hand (models/by_hand.h).
  bool by_hand() const;
  // E-STATE at the first such operator, if there is one (S1.5).
  absl::Status CheckNotByHand(absl::string_view why) const;
  int64_t batch() const { return inputs.empty() ? 0 : inputs.front().shape[0]; }
};

// Reads `inputs`, `parameters`, `operators`, `groups` and `layouts` of the file at `root`. `stages` is
// parallel.pipeline_stages, of `chunks` each: stages never decrease along the operators, or start anew with the next
// chunk.
absl::StatusOr<OperatorModel> ReadOperators(const NodeRef& root, const Training& training, int64_t stages,
                                            int64_t chunks = 1);

// Of a program that is split by hand.
struct ByHand {
  int64_t ranks = 1;
  // Each rank has parameters of its own, and nothing keeps them equal (stand_alone); else only those that are marked
  // layerwise_parallel.
  bool own_parameters = true;
  std::vector<std::string>* warnings = nullptr;  // is told of rows that no rank gets
};

// The forward graph of one micro-batch of `rows` rows, with the loss. One segment "model", or one per pipeline stage.
// Where the author splits by hand the loss is each rank's own.
absl::StatusOr<Graph> BuildOperators(const OperatorModel& model, const Training& training, const std::string& name,
                                     int64_t rows, const ByHand& by_hand = {});

// The names of the operators a user may write, in the table's order.
std::vector<absl::string_view> UserOpNames();

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_OPERATORS_H_
