// The Graph: what to compute in one micro-batch, in global shapes, knowing nothing of devices.
//
// A graph is a list of segments in execution order. A segment with repeat > 1 holds one layer of a stack: its ops are
// stored once, its parameters exist once per layer, and one value (the carry) flows from each layer to the next.
//
//   embed (x1)  ->  layers (x96): in -> ... -> out, carried  ->  head (x1) -> loss
//
// Layers that differ stand in several such segments, a chain: each begins with what the one before it ends with.
//
//   embed (x1)  ->  dense_layers (x3)  ->  layers (x58)  ->  head (x1) -> loss
//
// Backward ops live in the same segments (phase kBackward): they run in reverse order of the segments and layers, and
// inside one segment in list order. Parameter gradients and the loss are accumulators: ops add to them.
//
// Ownership: values. Thread safety: const access from many threads.
#ifndef MESHWRIGHT_IR_GRAPH_H_
#define MESHWRIGHT_IR_GRAPH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/ids.h"
#include "ir/index_rule.h"
#include "ir/op_list.h"
#include "ir/shared.h"

namespace meshwright {

// How a parameter starts, or what an input holds where there is no data set. Every rank draws as if it drew the whole
// tensor and keeps its slice (S8.11), so values depend on (seed, name, layer, element) only.
struct Initializer {
  enum class Kind : uint8_t {
    kConstant,  // value
    kNormal,    // standard deviation `value`
    kUniform,   // [low, high)
    kTokens,    // integers in [0, high)
    kFormula,   // ((a*i + b*j) mod modulus - subtract) / divide for element (i, j); the portable oracles of S18
    kData,      // an input read from the data set of the training section
  };
  Kind kind = Kind::kConstant;
  double value = 0, low = 0, high = 1;
  int64_t a = 0, b = 0, modulus = 1, subtract = 0;
  double divide = 1;
  int64_t by_rank = 0;  // how many of the first dims count ranks that hold a value of their own each; all drawn alike
  int64_t context = 1;  // inputs: the last dim is a sequence in the order for so many ranks (ir/context_order.h)
};

// Of a reduction: whether each rank reduces its own part of the batch (cross_batch, S5.13), and what it makes of it.
enum class OwnBatch : uint8_t { kNo, kSum, kMean };

enum class TensorKind : uint8_t { kInput, kParameter, kValue, kGradient, kLoss };

struct Tensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  TensorKind kind = TensorKind::kValue;
  SegmentId segment;      // of the producing op; of the users for a parameter
  OpId producer;          // none for inputs, parameters and carried-in values
  TensorId gradient_of;   // the tensor whose gradient this is
  bool trainable = true;  // parameters
  Initializer init;       // inputs and parameters
  int64_t padding = 0;    // parameters: elements that are there to make a dim even, and do not count
};

// The numbers an operator may need. Which ones it reads is said beside its row or its kernel.
struct OpAttrs {
  double scale = 1;       // Scale, reductions, losses (1 / count), attention (1 / sqrt(head size))
  double epsilon = 1e-5;  // norms; AdamW
  bool causal = true;     // Attention
  int64_t window = 0;     // causal Attention: a query sees so many keys, its own the last of them; 0: all before it
  // Attention: no score matrix in memory; ExpSumAndPick, PartialsGrad, RMSNorm, NormHeads, Rotary, SwiGLU: one kernel
  bool fused = true;
  int64_t top_k = 2;  // Dispatch, Combine: experts per token
  // Dispatch, Combine: a token's experts are of the best `top_choice_groups` of so many equal groups of experts, those
  // whose two largest logits have the largest sums; 1: of all experts
  int64_t choice_groups = 1, top_choice_groups = 1;
  bool gate_first = false;  // GatedRMSNorm: the gate is applied before the norm (Mamba-2), not behind it
  double theta = 10000;     // Rotary
  int64_t turned = 0;       // Rotary: of each head, that so many elements are turned, the first; 0: all
  int64_t head_width = 0;   // Rotary of heads one behind the other: of a query or key; the value is no wider
  double rate = 0.5;        // Dropout: the share of elements that become 0
  int64_t stream = 0;       // Dropout: which of the model's random masks
  Shape begin, strides;     // StridedSlice, one per dim of its input; empty: from 0, every element
  Shape sources;            // Exchange: by rank, whose value it gets, or -1 for zeros
  int64_t context = 1;      // AddPositions, Rotary, Attention and linear: the order is that for so many ranks
                            // (ir/context_order.h)
  int64_t shift = -1;  // Attention: -1, or with `context` blocks of queries, block i has the keys of block i - shift
  double learning_rate = 0, beta1 = 0, beta2 = 0, weight_decay = 0;  // optimizers; Momentum uses beta1
  int64_t tensors = 1;  // optimizers: how many parameters are updated, see UpdateOperands
  // AdjustScale: the scale times `growth` after `interval` good steps in a row, times `backoff` after a bad one.
  double growth = 1, backoff = 1;
  int64_t interval = 1;
  friend bool operator==(const OpAttrs&, const OpAttrs&) = default;
};

enum class Phase : uint8_t { kForward, kBackward };

struct Op {
  std::string name;
  OpKind kind = OpKind::kFill;
  std::vector<TensorId> inputs, outputs;
  Shared<IndexRule> rule;
  OpAttrs attrs;
  Phase phase = Phase::kForward;
  SegmentId segment;
  OpId forward;            // backward ops: the op they belong to, whose label assignment they take over
  bool recompute = false;  // backward ops: a second run of `forward`
  OwnBatch own_batch = OwnBatch::kNo;
  std::string recompute_group;  // forward ops named here are run again under selective recompute
  bool on_host = false;         // Compute::on_host
};

// One value that flows through the layers of a repeated segment.
struct Carry {
  TensorId initial;  // made before the segment, or the `final` of the segment before; what layer 0 sees as `in`
  TensorId in, out;  // inside: layer l+1's `in` is layer l's `out`
  TensorId final;    // seen after the segment: the last layer's `out`
};

struct Segment {
  std::string name;
  int64_t repeat = 1;
  int64_t first = 0;                    // which run of the model's its first one is, or is a piece of
  std::vector<Carry> carries;           // at most one today; only where repeat > 1 is possible
  std::vector<Carry> gradient_carries;  // the same in the backward phase: from the last layer to the first
  int64_t stage = -1;                   // fixed by the user, or -1; with chunks the part (Strategy::chunks)
  // Where layers alternate, so that a run of it is several layers of the model: what each but the last ends with. A
  // layer sees of the others in the run only that of the one before it.
  std::vector<TensorId> layer_ends;

  int64_t layers() const { return static_cast<int64_t>(layer_ends.size()) + 1; }  // in one run
};

struct Graph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;            // of one segment and phase: in execution order
  std::vector<Segment> segments;  // in execution order
  TensorId loss;

  const Tensor& tensor(TensorId id) const { return tensors[id.index()]; }
  const Op& op(OpId id) const { return ops[id.index()]; }
  const Segment& segment(SegmentId id) const { return segments[id.index()]; }
  // All layers counted.
  int64_t NumParameters() const;
  int64_t NumTrainableParameters() const;
  // The op of that name, or an invalid id.
  OpId FindOp(absl::string_view name) const;
  TensorId FindTensor(absl::string_view name) const;
};

// Adds tensors and ops with their shapes inferred and checked. Errors name the op and what was wanted.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }
  // Continues a graph that exists (a pass that adds backward ops).
  explicit GraphBuilder(Graph graph) : graph_(std::move(graph)) {}

  // Ops added from here on belong to this segment.
  SegmentId BeginSegment(std::string name, int64_t repeat = 1);
  void ContinueSegment(SegmentId segment) { segment_ = segment; }
  // Declares the value that the current segment carries and returns the tensor its ops read. EndCarry closes it with
  // the value of the last op and returns the tensor that is seen after the segment.
  TensorId BeginCarry(TensorId initial);
  // Between the two: a layer of the run ends with this value, of the last op, and another one begins.
  void EndLayer(TensorId out) { graph_.segments[segment_.index()].layer_ends.push_back(out); }
  absl::StatusOr<TensorId> EndCarry(TensorId out);

  TensorId Input(std::string name, DType dtype, Shape shape, Initializer init);
  TensorId Parameter(std::string name, DType dtype, Shape shape, Initializer init, bool trainable = true);

  struct OpSpec {
    std::string name;
    OpKind kind;
    std::vector<TensorId> inputs = {};
    std::string rule = {};  // empty: the row's own
    OpAttrs attrs = {};
    // Sizes of dims that the rule leaves open (outputs-only labels, '=' dims); empty: none are.
    std::vector<Shape> output_shapes = {};
    std::vector<DType> output_dtypes = {};  // empty: that of the first floating input
    Phase phase = Phase::kForward;
    OpId forward = {};
    bool recompute = false;
    std::string recompute_group = {};
    OwnBatch own_batch = OwnBatch::kNo;
    bool on_host = false;  // backward ops run where their forward op does
    // Existing tensors to write (accumulators, or shapes already known) instead of new ones; empty: make new ones.
    std::vector<TensorId> outputs = {};
  };
  // The outputs.
  absl::StatusOr<std::vector<TensorId>> Add(OpSpec spec);
  // For ops of one output.
  absl::StatusOr<TensorId> AddOne(OpSpec spec);

  // A scalar accumulator: marks the output of a loss op.
  void SetLoss(TensorId loss);
  // The accumulator of a parameter's gradient, made at first use. REQUIRES: the builder began with a graph that has
  // none of it.
  TensorId GradientOf(TensorId parameter, DType dtype);

  const Graph& graph() const { return graph_; }
  Graph& mutable_graph() { return graph_; }
  Graph Build() && { return std::move(graph_); }

 private:
  Graph graph_;
  SegmentId segment_;
  std::map<TensorId, TensorId> gradients_;  // by parameter
};

// By segment, the first of its chain: itself where it begins with nothing that another carries.
std::vector<size_t> ChainsOf(const Graph& graph);

// By op, which layer of a run of the segment it is in; -1: of another segment, or a backward op.
std::vector<int64_t> LayersOfOps(const Graph& graph, SegmentId segment);

// Acyclic and in order, every tensor produced before use, shapes agree with rules, carries match, and so do the
// ends of layers. kInvalidArgument.
absl::Status VerifyGraph(const Graph& graph);

// One line per segment, tensor and op.
std::string ToText(const Graph& graph);

// The operands of an update of attrs.tensors parameters, one parameter after the other: it, its gradient and its state
// come in, it, its state and perhaps a copy go out; of LAMB's two steps also the two norms, scalars, behind the rest.
// The first step of LAMB or Muon makes that step in place of the parameter, and no copy. The scalars of loss scaling
// are the last inputs, for all of them.
struct UpdateOperands {
  size_t inputs = 2, outputs = 1;                // of each parameter
  size_t input_scalars = 0, output_scalars = 0;  // of these, the last
  bool scaled = false;
};
// Nothing where so many operands are not of such an update, or the op is none.
std::optional<UpdateOperands> UpdateOperandsOf(OpKind kind, const OpAttrs& attrs, size_t inputs, size_t outputs);

// What one rank does for an op with these operand shapes (local, or global for the whole).
KernelWork WorkOf(OpKind kind, const OpAttrs& attrs, const IndexRule& rule, absl::Span<const Shape> inputs,
                  absl::Span<const DType> input_dtypes, absl::Span<const Shape> outputs,
                  absl::Span<const DType> output_dtypes);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_GRAPH_H_
