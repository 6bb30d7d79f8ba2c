// StrategyFileOf and UseStrategyFile: between strategy files and plans.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/text.h"
#include "planner/passes/complete_layouts.h"
#include "planner/strategy_file.h"

namespace meshwright {
namespace {

// The parameter that an operator's key names: its first; none where it has no weight.
TensorId FirstParameter(const Op& op, const Graph& graph) {
  for (const TensorId id : op.inputs) {
    if (graph.tensor(id).kind == TensorKind::kParameter) return id;
  }
  return TensorId();
}

// The weighted operators of a stage by their keys, in the graph's order.
std::vector<std::pair<std::string, OpId>> KeysOf(const Graph& graph, int64_t stage) {
  std::vector<std::pair<std::string, OpId>> keys;
  std::map<std::string, int64_t> seen;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const TensorId parameter = FirstParameter(op, graph);
    const int64_t own_stage = graph.segment(op.segment).stage;
    if (op.phase != Phase::kForward || !parameter.valid() || (own_stage >= 0 && own_stage != stage)) continue;
    std::string key = absl::StrCat(NameOf(op.kind), "_", graph.tensor(parameter).name);
    if (const int64_t number = ++seen[key]; number > 1) absl::StrAppend(&key, "#", number);
    keys.emplace_back(std::move(key), OpId(i));
  }
  return keys;
}

// The device matrix whose axes are those that `layouts` use, and fillers between them.
class UsedAxes {
 public:
  UsedAxes(const std::vector<Layout>& layouts, const Mesh& mesh, int64_t ranks) {
    std::vector<AxisId> used;
    for (const Layout& layout : layouts) {
      for (const AxisList& axes : layout.dims) used.insert(used.end(), axes.begin(), axes.end());
    }
    std::sort(used.begin(), used.end(), [&](AxisId a, AxisId b) { return mesh.axis(a).stride > mesh.axis(b).stride; });
    used.erase(std::unique(used.begin(), used.end()), used.end());
    int64_t stride = ranks;
    for (const AxisId id : used) {
      const MeshAxis& axis = mesh.axis(id);
      if (stride > axis.size * axis.stride) matrix_.push_back(stride / (axis.size * axis.stride));
      place_[id] = matrix_.size();
      matrix_.push_back(axis.size);
      stride = axis.stride;
    }
    if (stride > 1) matrix_.push_back(stride);
  }

  const std::vector<int64_t>& matrix() const { return matrix_; }
  std::vector<std::vector<int64_t>> MapOf(const Layout& layout) const {
    std::vector<std::vector<int64_t>> map;
    for (const AxisList& axes : layout.dims) {
      std::vector<int64_t>& numbers = map.emplace_back();
      for (const AxisId id : axes) numbers.push_back(static_cast<int64_t>(matrix_.size() - 1 - place_.at(id)));
    }
    return map;
  }
  // The axes named by their numbers; with interleaving those of its own matrix, in which the pieces are the last axis.
  TensorSharding ShardingOf(const Layout& layout, const OperandRule& operand, int label,
                            const std::optional<Interleaving>& pieces) const {
    TensorSharding tensor;
    for (const std::vector<int64_t>& axes : MapOf(layout)) {
      const size_t d = tensor.dims.size();
      std::vector<std::string>& names = tensor.dims.emplace_back();
      for (const int64_t axis : axes) names.push_back(absl::StrCat(axis + (pieces.has_value() ? 1 : 0)));
      if (!pieces.has_value() || operand[d].label != label) continue;
      names.insert(names.begin() + pieces->axes_before, std::string(kInterleavedAxis));
    }
    return tensor;
  }

 private:
  std::vector<int64_t> matrix_;
  std::map<AxisId, size_t> place_;
};

TensorSharding TupleOf(const Layout& layout, const Mesh& mesh) {
  TensorSharding tensor;
  for (const AxisList& axes : layout.dims) tensor.pieces.push_back(mesh.SizeOf(axes));
  return tensor;
}

bool Same(const OpStrategy& a, const OpStrategy& b) {
  return a.inputs == b.inputs && a.output == b.output && a.interleaved == b.interleaved;
}

// One weighted operator as a strategy file says it.
struct Described {
  OpSharding sharding;
  std::vector<int64_t> dev_matrix;
  std::vector<std::vector<std::vector<int64_t>>> tensor_maps;  // per input
};

// Tuples where these mean the same, else layouts.
Described Describe(const Op& op, const Graph& graph, const OpStrategy& strategy, const Assignment& assignment,
                   const Mesh& mesh, int64_t ranks) {
  Described out;
  for (const Layout& input : strategy.inputs) out.sharding.inputs.push_back(TupleOf(input, mesh));
  if (strategy.output.has_value()) out.sharding.output = TupleOf(*strategy.output, mesh);
  const absl::StatusOr<OpStrategy> meant = Resolve(out.sharding, op, graph, mesh, ranks);
  if (meant.ok() && Same(*meant, strategy)) {
    const std::vector<size_t> order = MatrixOrder(op.rule);
    int64_t product = 1;
    for (const size_t label : order) {
      out.dev_matrix.push_back(mesh.SizeOf(assignment[label]));
      product *= out.dev_matrix.back();
    }
    if (product < ranks) out.dev_matrix.push_back(ranks / product);
    for (const OperandRule& input : op.rule->inputs) {
      std::vector<std::vector<int64_t>>& map = out.tensor_maps.emplace_back();
      for (const DimRule& dim : input) {
        std::vector<int64_t>& axes = map.emplace_back();
        const auto found = std::find(order.begin(), order.end(), static_cast<size_t>(dim.label));
        if (dim.label == DimRule::kUnsplit || found == order.end()) continue;
        axes.push_back(static_cast<int64_t>(out.dev_matrix.size()) - 1 - (found - order.begin()));
      }
    }
    return out;
  }
  std::vector<Layout> layouts = strategy.inputs;
  if (strategy.output.has_value()) layouts.push_back(*strategy.output);
  const UsedAxes used(layouts, mesh, ranks);
  out.dev_matrix = used.matrix();
  for (const Layout& input : strategy.inputs) out.tensor_maps.push_back(used.MapOf(input));
  const std::optional<Interleaving>& pieces = strategy.interleaved;
  const int label = pieces.has_value() ? op.rule->FindLabel(pieces->label) : DimRule::kUnsplit;
  OpSharding sharding;
  sharding.device_matrix = used.matrix();
  if (pieces.has_value()) sharding.device_matrix.push_back(pieces->pieces);
  for (size_t i = 0; i < sharding.device_matrix.size(); ++i) {
    sharding.axes.push_back(absl::StrCat(sharding.device_matrix.size() - 1 - i));
  }
  if (pieces.has_value()) sharding.axes.back() = std::string(kInterleavedAxis);
  for (size_t i = 0; i < strategy.inputs.size(); ++i) {
    sharding.inputs.push_back(used.ShardingOf(strategy.inputs[i], op.rule->inputs[i], label, pieces));
  }
  if (strategy.output.has_value()) {
    sharding.output = used.ShardingOf(*strategy.output, op.rule->outputs[0], label, pieces);
  }
  out.sharding = std::move(sharding);
  return out;
}

// Of the parameter of which a stage has a piece, where runs of layers are cut (planner/passes/cut_runs.h): "w@cut2" is
// "w". Of another buffer its own.
absl::string_view NameBeforeCut(absl::string_view name) {
  const size_t at = name.find("@cut");
  return at != absl::string_view::npos && name.find('@', at + 1) == absl::string_view::npos ? name.substr(0, at) : name;
}

// The split of optimizer state, as the program of the stage has it.
void SetOptimizerShard(absl::string_view name, const RankClass& c, const Mesh& mesh, StrategyFile::Parameter& item) {
  const Buffer *parameter = nullptr, *master = nullptr;
  for (const Buffer& buffer : c.buffers) {
    if (absl::string_view(buffer.name).substr(0, buffer.name.find('@')) != name) continue;
    if (buffer.role == BufferRole::kParameter && NameBeforeCut(buffer.name) == name) parameter = &buffer;
    if (buffer.role == BufferRole::kMaster) master = &buffer;
  }
  if (parameter == nullptr || master == nullptr || parameter->layout.dims.empty()) return;
  const AxisList &whole = parameter->layout.dims[0], &split = master->layout.dims[0];
  if (split.size() <= whole.size()) return;
  const std::vector<int64_t> group = mesh.Group(0, AxisList(split.begin() + whole.size(), split.end()));
  item.opt_weight_shard_size = static_cast<int64_t>(group.size());
  if (group.size() > 1) item.opt_weight_shard_step = group[1] - group[0];
}

}  // namespace

absl::StatusOr<StrategyFile> StrategyFileOf(const Graph& graph, const Strategy& strategy, const Program& program,
                                            int64_t stage) {
  if (stage < 0 || stage >= static_cast<int64_t>(program.classes.size())) {
    return absl::InvalidArgumentError(absl::StrCat("there is no stage ", stage));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const ShardedGraph sharded, CompleteLayouts(graph, strategy));
  const RankClass& c = program.classes[static_cast<size_t>(stage)];
  const int64_t ranks = program.ranks_per_class();
  std::set<std::string> here;  // a layer's operators belong to every stage that has some of the layers
  for (const Buffer& buffer : c.buffers) {
    if (buffer.role == BufferRole::kParameter) here.emplace(NameBeforeCut(buffer.name));
  }
  StrategyFile file;
  file.current_stage = stage;
  for (const auto& [key, id] : KeysOf(graph, stage)) {
    const Op& op = graph.op(id);
    if (here.count(graph.tensor(FirstParameter(op, graph)).name) == 0) continue;
    const Assignment& assignment = sharded.assignments[id.index()];
    OpStrategy own;
    for (size_t i = 0; i < op.inputs.size(); ++i) own.inputs.push_back(InputLayout(op.rule, assignment, i));
    const auto given = strategy.ops.find(op.name);
    if (given != strategy.ops.end()) {
      own.output = given->second.output;
      own.interleaved = given->second.interleaved;
    }
    Described described = Describe(op, graph, own, assignment, strategy.mesh, ranks);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = graph.tensor(op.inputs[i]);
      if (tensor.kind != TensorKind::kParameter || file.parameters.count(tensor.name) > 0) continue;
      StrategyFile::Parameter& item = file.parameters[tensor.name];
      item.dev_matrix = described.dev_matrix;
      item.tensor_map = described.tensor_maps[i];
      item.tensor_shape.assign(tensor.shape.begin(), tensor.shape.end());
      SetOptimizerShard(tensor.name, c, program.mesh, item);
    }
    file.operators[key] = {stage, std::move(described.sharding)};
  }
  return file;
}

absl::StatusOr<UsedStrategies> UseStrategyFile(const StrategyFile& file, absl::string_view path, const Graph& graph,
                                               int64_t stages, int64_t ranks_per_stage,
                                               std::map<std::string, OpSharding>& shards) {
  const Mesh mesh = Mesh::Factored(stages, ranks_per_stage);
  UsedStrategies used;
  std::set<std::string> known;
  for (const auto& [key, id] : KeysOf(graph, file.current_stage)) {
    known.insert(key);
    const auto item = file.operators.find(key);
    if (item == file.operators.end()) continue;
    const Op& op = graph.op(id);
    const std::string place = absl::StrCat(item->second.where, ": \"", key, "\"");
    if (item->second.stage != file.current_stage) {
      return LayoutError(place, absl::StrCat(": stage: found ", item->second.stage, ", wanted ", file.current_stage,
                                             ", the file's current_stage; each stage has a file of its own"));
    }
    const absl::StatusOr<OpStrategy> meant = Resolve(item->second.sharding, op, graph, mesh, ranks_per_stage);
    if (!meant.ok() && shards.count(op.name) == 0) {
      return WithKind("E-LAYOUT", absl::InvalidArgumentError(absl::StrCat(place, ": ", meant.status().message())));
    }
    const auto [own, added] = shards.emplace(op.name, item->second.sharding);
    if (added) {
      used.places[op.name] = place;
      continue;
    }
    const absl::StatusOr<OpStrategy> kept = Resolve(own->second, op, graph, mesh, ranks_per_stage);
    if (!kept.ok() || (meant.ok() && Same(*meant, *kept))) continue;
    if (stages > 1 && graph.segment(op.segment).stage < 0) {
      return LayoutError(place,
                         ": found another strategy than in the file of an earlier stage, wanted one for all "
                         "stages that have some of these layers");
    }
    used.notices.push_back(absl::StrCat(place, " differs from the model's `shard` of \"", op.name, "\", which holds"));
  }
  std::vector<std::string> unknown;
  for (const auto& [key, op] : file.operators) {
    if (known.count(key) == 0) unknown.push_back(key);
  }
  if (!unknown.empty()) {
    const std::vector<absl::string_view> names(unknown.begin(), unknown.end());
    used.notices.push_back(absl::StrCat(path, ": not in the model, and left out: ", ListNames(names)));
  }
  return used;
}

}  // namespace meshwright
