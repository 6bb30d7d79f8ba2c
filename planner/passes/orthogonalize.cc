#include "planner/passes/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/passes/class_parts.h"
#include "planner/passes/replicas.h"

namespace meshwright {
namespace {

// Of the quintic whose slope at 0 is largest, by the authors.
constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;
constexpr int kIterations = 5;
// Added to the sum of squares: a step of zeros stays zeros.
constexpr double kLeastSquares = 1e-14;

constexpr absl::string_view kVocabulary = "v";

bool Has(const OperandRule& dims, int8_t label) {
  return absl::c_any_of(dims, [&](const DimRule& dim) { return dim.label == label; });
}

// The dims of the product's second operand; nothing for one that is no matrix.
std::optional<std::vector<MatrixDim>> DimsOfSecond(const IndexRule& rule) {
  std::vector<MatrixDim> dims;
  for (const DimRule& dim : rule.inputs[1]) {
    if (dim.label < 0 || rule.labels[static_cast<size_t>(dim.label)].name == kVocabulary) return std::nullopt;
    const bool in = Has(rule.inputs[0], dim.label), out = Has(rule.outputs[0], dim.label);
    if (!in && !out) return std::nullopt;
    dims.push_back(in && out ? MatrixDim::kMatrix : in ? MatrixDim::kRow : MatrixDim::kColumn);
  }
  const bool matrix = absl::c_linear_search(dims, MatrixDim::kRow) && absl::c_linear_search(dims, MatrixDim::kColumn);
  return matrix ? std::optional(dims) : std::nullopt;
}

int64_t ExtentOf(const Shape& shape, const std::vector<MatrixDim>& dims, MatrixDim which) {
  int64_t extent = 1;
  for (size_t d = 0; d < dims.size(); ++d) extent *= dims[d] == which ? shape[d] : 1;
  return extent;
}

// Names of labels, and rules made of them.
class Labels {
 public:
  Labels(const Shape& shape, const std::vector<MatrixDim>& dims) {
    const bool rows_in_front = ExtentOf(shape, dims, MatrixDim::kRow) <= ExtentOf(shape, dims, MatrixDim::kColumn);
    const MatrixDim front = rows_in_front ? MatrixDim::kRow : MatrixDim::kColumn;
    for (size_t d = 0; d < dims.size(); ++d) {
      const std::string label = absl::StrCat("x", d), twin = absl::StrCat("y", d), third = absl::StrCat("z", d);
      x_.push_back(label);
      turned_.push_back(dims[d] == front ? twin : label);
      if (dims[d] == MatrixDim::kMatrix) matrices_.push_back(label), matrix_shape_.push_back(shape[d]);
      if (dims[d] != front) continue;
      front_.push_back(label);
      twins_.push_back(twin);
      thirds_.push_back(third);
      front_shape_.push_back(shape[d]);
    }
  }

  std::string X() const { return absl::StrJoin(x_, " "); }
  std::string TurnedX() const { return absl::StrJoin(turned_, " "); }
  std::string Matrices() const { return absl::StrJoin(matrices_, " "); }
  // X X^T: of the labels in front with their twins; and the two factors of a product of two such.
  std::string Gram() const { return Of(front_, twins_); }
  std::string FirstHalf() const { return Of(front_, thirds_); }
  std::string SecondHalf() const { return Of(thirds_, twins_); }

  Shape GramShape() const {
    Shape shape = matrix_shape_;
    for (int time = 0; time < 2; ++time) shape.insert(shape.end(), front_shape_.begin(), front_shape_.end());
    return shape;
  }
  const Shape& matrix_shape() const { return matrix_shape_; }

 private:
  std::string Of(const std::vector<std::string>& a, const std::vector<std::string>& b) const {
    std::vector<std::string> all = matrices_;
    all.insert(all.end(), a.begin(), a.end());
    all.insert(all.end(), b.begin(), b.end());
    return absl::StrJoin(all, " ");
  }

  std::vector<std::string> x_, turned_, matrices_, front_, twins_, thirds_;
  Shape matrix_shape_, front_shape_;
};

// Instructions on whole matrices, those of them that this rank has.
class Iteration {
 public:
  Iteration(RankClass& c, const Turn& turn, const std::string& name, BufferId x, const std::vector<MatrixDim>& dims,
            std::vector<Instruction>& out)
      : c_(c), turn_(turn), name_(name), whole_(c.buffers[x.index()]), labels_(whole_.shape, dims), out_(out) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == MatrixDim::kMatrix) matrix_axes_.push_back(whole_.layout.dims[d]);
    }
  }

  BufferId Run(BufferId x) {
    x = ToUnitNorm(x);
    const std::string gram = labels_.Gram();
    for (int i = 0; i < kIterations; ++i) {
      const BufferId a =
          Add(OpKind::kMatMul, {x, x}, absl::StrCat(labels_.X(), ", ", labels_.TurnedX(), " -> ", gram), Gram("a"));
      const BufferId scaled = Scaled(a, kC, Gram("c")), summand = Scaled(a, kB, Gram("b"));
      const BufferId b = Add(OpKind::kMatMul, {scaled, a, summand},
                             absl::StrCat(labels_.FirstHalf(), ", ", labels_.SecondHalf(), ", ", gram, " -> ", gram),
                             Gram("polynomial"));
      const BufferId before = Scaled(x, kA, Like("before"));
      x = Add(OpKind::kMatMul, {b, x, before},
              absl::StrCat(gram, ", ", labels_.TurnedX(), ", ", labels_.X(), " -> ", labels_.X()), Like("x"));
    }
    return x;
  }

 private:
  BufferId ToUnitNorm(BufferId x) {
    const std::string all = labels_.X(), matrices = labels_.Matrices();
    const BufferId squares = Add(OpKind::kMul, {x, x}, absl::StrCat(all, ", ", all, " -> ", all), Like("squares"));
    const BufferId sum = Add(OpKind::kReduceSum, {squares}, absl::StrCat(all, " -> ", matrices), OfMatrices("sum"));
    const BufferId least = AddBuffer(c_, OfMatrices("least"));
    Compute fill;
    fill.op = OpKind::kFill;
    fill.attrs.Change([](OpAttrs& own) { own.scale = kLeastSquares; });
    Issue(std::move(fill), {}, least);
    const BufferId norm =
        Add(OpKind::kSqrt, {sum, least}, absl::StrCat(matrices, ", ", matrices, " -> ", matrices), OfMatrices("norm"));
    return Add(OpKind::kDiv, {x, norm}, absl::StrCat(all, ", ", matrices, " -> ", all), Like("x"));
  }

  BufferId Scaled(BufferId from, double scale, Buffer to) {
    const Shape shape = to.shape;
    Compute compute = MakeCompute(OpKind::kScale, ElementwiseRule(shape.size(), 1, 1));
    compute.attrs.Change([scale](OpAttrs& own) { own.scale = scale; });
    const BufferId made = AddBuffer(c_, std::move(to));
    Issue(std::move(compute), {from}, made);
    return made;
  }

  BufferId Add(OpKind op, const std::vector<BufferId>& reads, const std::string& rule, Buffer to) {
    const BufferId made = AddBuffer(c_, std::move(to));
    Compute compute;
    compute.op = op;
    compute.rule = *ParsedRule(rule);
    Issue(std::move(compute), reads, made);
    return made;
  }

  void Issue(Compute compute, const std::vector<BufferId>& reads, BufferId made) {
    compute.turn = turn_;
    Instruction instruction;
    for (const BufferId read : reads) instruction.reads.push_back({read, 0});
    instruction.writes = {{made, 0}};
    instruction.work = std::move(compute);
    instruction.origin = absl::StrCat(name_, kOrthogonalize);
    out_.push_back(std::move(instruction));
  }

  Buffer Like(absl::string_view what) {
    Buffer buffer = whole_;
    buffer.alias = BufferId();
    buffer.name = Name(what);
    return buffer;
  }
  Buffer Gram(absl::string_view what) {
    Buffer buffer = Like(what);
    buffer.shape = labels_.GramShape();
    buffer.layout = Layout();
    buffer.layout.dims.assign(buffer.shape.size(), AxisList());
    absl::c_copy(matrix_axes_, buffer.layout.dims.begin());
    return buffer;
  }
  // One number for each matrix. Sums are kept in float32 at least.
  Buffer OfMatrices(absl::string_view what) {
    Buffer buffer = Like(what);
    buffer.shape = labels_.matrix_shape();
    buffer.layout = Layout();
    buffer.layout.dims.assign(matrix_axes_.begin(), matrix_axes_.end());
    if (SizeOf(buffer.dtype) < SizeOf(DType::kFloat32)) buffer.dtype = DType::kFloat32;
    return buffer;
  }
  std::string Name(absl::string_view what) { return absl::StrCat(name_, "@", what, c_.buffers.size()); }

  RankClass& c_;
  const Turn turn_;
  const std::string& name_;
  const Buffer whole_;
  const Labels labels_;
  std::vector<AxisList> matrix_axes_;
  std::vector<Instruction>& out_;
};

// Over which axes the replicas of a tensor share out its matrices along `dim`: as many of them as can; none where the
// mesh has no such axes.
AxisList SharesOf(const Buffer& step, size_t dim, const Mesh& mesh, int64_t ranks) {
  const std::vector<ReplicaRun> runs = ReplicaRuns(step.layout, mesh, ranks);
  int64_t replicas = 1;
  for (const ReplicaRun& run : runs) replicas *= run.size;
  const int64_t matrices = step.shape[dim] / mesh.SizeOf(step.layout.dims[dim]);
  for (int64_t shares = std::gcd(replicas, matrices); shares > 1; --shares) {
    if (replicas % shares != 0 || matrices % shares != 0) continue;
    const std::optional<std::vector<ReplicaRun>> fastest = Fastest(runs, shares);
    const std::optional<AxisList> axes = fastest.has_value() ? AxesOf(*fastest, mesh) : std::nullopt;
    if (axes.has_value()) return *axes;
  }
  return {};
}

}  // namespace

Matrices MatricesOf(const Graph& graph) {
  Matrices matrices;
  std::set<std::string> others;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = graph.tensor(op.inputs[i]);
      if (tensor.kind != TensorKind::kParameter) continue;
      const std::string name = tensor.name.substr(0, tensor.name.find('@'));
      std::optional<std::vector<MatrixDim>> dims;
      if (op.kind == OpKind::kMatMul && i == 1) dims = DimsOfSecond(op.rule);
      if (dims.has_value()) {
        matrices.emplace(name, *std::move(dims));
      } else {
        others.insert(name);
      }
    }
  }
  for (const std::string& name : others) matrices.erase(name);
  return matrices;
}

bool TakesTurns(const Buffer& parameter, const std::vector<MatrixDim>& dims, const Mesh& mesh, int64_t ranks) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != MatrixDim::kMatrix) continue;
    if (!parameter.layout.dims[d].empty() || !SharesOf(parameter, d, mesh, ranks).empty()) return false;
  }
  return mesh.Compose(ranks, 1).ok();
}

double MuonScale(const Shape& shape, const std::vector<MatrixDim>& dims) {
  const int64_t larger = std::max(ExtentOf(shape, dims, MatrixDim::kRow), ExtentOf(shape, dims, MatrixDim::kColumn));
  return 0.2 * std::sqrt(static_cast<double>(larger));
}

BufferId Orthogonalize(RankClass& c, const Mesh& mesh, int64_t ranks, BufferId step, const std::vector<MatrixDim>& dims,
                       const Turn& turn, const std::string& name, std::vector<Instruction>& out) {
  const Buffer part = c.buffers[step.index()];
  const std::string origin = absl::StrCat(name, kOrthogonalize);
  BufferId x = step;
  Buffer whole = part;
  for (size_t d = 0; d < dims.size(); ++d) {
    AxisList& axes = whole.layout.dims[d];
    if (dims[d] == MatrixDim::kMatrix || axes.empty()) continue;
    const Collective gather = {.kind = CollectiveKind::kAllGather,
                               .axes = axes,
                               .dim = static_cast<int32_t>(d),
                               .purpose = Purpose::kParameter};
    axes.clear();
    whole.name = absl::StrCat(name, "@whole", d);
    const BufferId gathered = AddBuffer(c, whole);
    out.push_back(MakeInstruction(gather, {{x, 0}}, {{gathered, 0}}, origin));
    x = gathered;
  }
  const size_t matrices = static_cast<size_t>(absl::c_find(dims, MatrixDim::kMatrix) - dims.begin());
  const AxisList shares = matrices < dims.size() ? SharesOf(part, matrices, mesh, ranks) : AxisList();
  if (!shares.empty()) {
    Buffer share = c.buffers[x.index()];
    share.name = absl::StrCat(name, "@share");
    AxisList& axes = share.layout.dims[matrices];
    axes.insert(axes.end(), shares.begin(), shares.end());
    const BufferId id = AddBuffer(c, std::move(share));
    out.push_back(MakeInstruction(Slice{}, {{x, 0}}, {{id, 0}}, origin));
    x = id;
  }
  x = Iteration(c, turn, name, x, dims, out).Run(x);
  if (!shares.empty()) {
    Buffer all = whole;
    all.name = absl::StrCat(name, "@directions");
    const BufferId id = AddBuffer(c, std::move(all));
    const Collective gather = {.kind = CollectiveKind::kAllGather,
                               .axes = shares,
                               .dim = static_cast<int32_t>(matrices),
                               .purpose = Purpose::kParameter};
    out.push_back(MakeInstruction(gather, {{x, 0}}, {{id, 0}}, origin));
    x = id;
  }
  if (turn != Turn() && ranks > 1) {
    Buffer sent = c.buffers[x.index()];
    sent.name = absl::StrCat(name, "@direction");
    sent.alias = x;
    const BufferId all = AddBuffer(c, std::move(sent));
    const absl::StatusOr<AxisList> class_axes = mesh.Compose(ranks, 1);
    out.push_back(MakeInstruction(Collective{.kind = CollectiveKind::kBroadcast,
                                             .axes = *class_axes,
                                             .root = turn.first,
                                             .root_step = turn.step,
                                             .purpose = Purpose::kParameter},
                                  {{x, 0}}, {{all, 0}}, origin));
    x = all;
  }
  Buffer piece = c.buffers[x.index()];
  piece.alias = BufferId();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (piece.layout.dims[d] == part.layout.dims[d]) continue;
    piece.layout.dims[d] = part.layout.dims[d];
    piece.name = absl::StrCat(name, "@direction", d);
    const BufferId sliced = AddBuffer(c, piece);
    out.push_back(MakeInstruction(Slice{}, {{x, 0}}, {{sliced, 0}}, origin));
    x = sliced;
  }
  return x;
}

}  // namespace meshwright
