#include "models/operators.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "models/by_hand.h"
#include "models/operator_table.h"
#include "models/rows.h"

namespace meshwright {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;  // of one tensor
constexpr size_t kMostDims = 8;
constexpr size_t kMostInputs = 64;  // of one operator

bool IsTooLarge(const Shape& shape) {
  double elements = 1;
  for (int64_t size : shape) elements *= static_cast<double>(size);
  return elements > static_cast<double>(kMostElements);
}

absl::StatusOr<Shape> ReadShape(const NodeRef& in, size_t min_dims) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, in.AsInts(1, int64_t{1} << 40));
  if (sizes.size() < min_dims || sizes.size() > kMostDims) {
    return in.Error(absl::StrCat(sizes.size(), " dims"), absl::StrCat(min_dims, " to ", kMostDims));
  }
  Shape shape(sizes.begin(), sizes.end());
  if (IsTooLarge(shape)) return in.Error(ToText(shape), "at most 2^48 elements");
  return shape;
}

absl::Status ReadFormula(const NodeRef& in, Initializer& init) {
  constexpr int64_t kMost = int64_t{1} << 31;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"a", "b", "mod", "sub", "div"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(init.a, in["a"].AsInt(0, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(init.b, in["b"].AsIntOr(0, 0, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(init.modulus, in["mod"].AsInt(1, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(init.subtract, in["sub"].AsIntOr(0, -kMost, kMost));
  MESHWRIGHT_ASSIGN_OR_RETURN(init.divide, in["div"].AsDoubleOr(1));
  if (init.divide == 0) return in["div"].Error("0", "a number other than 0");
  return absl::OkStatus();
}

// `init`: zeros, ones, {constant: 0.5}, normal, {normal: 0.02}, uniform, {uniform: [low, high]}, {tokens: vocabulary},
// {formula: {a: 7, b: 3, mod: 11, sub: 0, div: 11}}, data.
absl::StatusOr<Initializer> ReadInitializer(const NodeRef& in, Initializer fallback) {
  if (!in.present()) return fallback;
  using Kind = Initializer::Kind;
  constexpr absl::string_view kNames[] = {"constant", "normal", "uniform", "tokens",
                                          "formula",  "data",   "zeros",   "ones"};  // the kinds in order, and two
  MESHWRIGHT_ASSIGN_OR_RETURN(const NodeRef::Variant variant, in.AsVariant(kNames));
  const NodeRef& options = variant.options;
  Initializer init;
  if (variant.index > static_cast<size_t>(Kind::kData)) {
    if (options.present()) return options.Error("an option", "none");
    init.value = kNames[variant.index] == "ones" ? 1 : 0;
    return init;
  }
  init.kind = static_cast<Kind>(variant.index);
  switch (init.kind) {
    case Kind::kConstant: {
      MESHWRIGHT_ASSIGN_OR_RETURN(init.value, options.AsDouble());
      return init;
    }
    case Kind::kNormal: {
      MESHWRIGHT_ASSIGN_OR_RETURN(init.value, options.AsDoubleOr(0.01, 0));
      return init;
    }
    case Kind::kUniform: {
      if (!options.present()) return init;
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<double> bounds, options.AsDoubles());
      if (bounds.size() != 2 || bounds[0] >= bounds[1])
        return options.Error("other bounds", "[low, high], low below high");
      init.low = bounds[0];
      init.high = bounds[1];
      return init;
    }
    case Kind::kTokens: {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t high, options.AsInt(1, int64_t{1} << 31));
      init.high = static_cast<double>(high);
      return init;
    }
    case Kind::kFormula:
      MESHWRIGHT_RETURN_IF_ERROR(ReadFormula(options, init));
      return init;
    case Kind::kData:
      if (options.present()) return options.Error("an option", "none");
      return init;
  }
  return init;
}

absl::Status ReadInputs(const NodeRef& root, const Training& training, OperatorModel& model) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> inputs, root["inputs"].AsMap());
  if (inputs.empty()) return root["inputs"].Error("an empty map", "at least one input");
  for (const NodeRef& in : inputs) {
    MESHWRIGHT_RETURN_IF_ERROR(in.Locate(CheckName(in.key())));
    MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"shape", "dtype", "init"}));
    InputSpec spec;
    spec.name = in.key();
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.dtype, ReadDType(in["dtype"], training.dtype, false));
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.shape, ReadShape(in["shape"], 1));
    Initializer fallback;
    const bool has_data = training.data != DataSet::kNone;
    fallback.kind = has_data ? Initializer::Kind::kData : Initializer::Kind::kUniform;
    const bool floating = InfoOf(spec.dtype).floating;
    if (!floating && !has_data && !in["init"].present()) {
      return in["init"].Error("nothing", "what the integers are", "write e.g. `init: {tokens: 10}` for 0 to 9");
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.init, ReadInitializer(in["init"], fallback));
    if (spec.init.kind == Initializer::Kind::kData && !has_data) {
      return in["init"].Error("data", "a data set", "write it in training.data");
    }
    if (!model.inputs.empty() && spec.shape[0] != model.batch()) {
      return in["shape"].children()[0].Error(absl::StrCat(spec.shape[0]),
                                             absl::StrCat("the batch of ", model.inputs[0].name, ", ", model.batch()),
                                             "dim 0 of every input is the batch");
    }
    model.inputs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

// S10.1.
absl::StatusOr<int64_t> ReadFusionId(const NodeRef& in, int64_t usual) {
  if (!in.present()) return usual;
  const absl::StatusOr<int64_t> any = in.AsInt(std::numeric_limits<int64_t>::min());
  if (!any.ok()) return WithKind("E-TYPE", any.status());
  const absl::StatusOr<int64_t> id = in.AsInt(0, 1 << 20);
  return id.ok() ? id : WithKind("E-VALUE", id.status());
}

absl::Status ReadParameters(const NodeRef& root, const Training& training, OperatorModel& model) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> parameters, root["parameters"].AsMap());
  for (const NodeRef& in : parameters) {
    MESHWRIGHT_RETURN_IF_ERROR(in.Locate(CheckName(in.key())));
    MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(
        {"shape", "dtype", "init", "trainable", "layerwise_parallel", "parallel_optimizer", "comm_fusion"}));
    ParameterSpec spec;
    spec.name = in.key();
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.dtype, ReadDType(in["dtype"], training.dtype, true));
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.shape, ReadShape(in["shape"], 0));
    Initializer fallback;
    fallback.kind = Initializer::Kind::kNormal;
    fallback.value = 0.01;
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.init, ReadInitializer(in["init"], fallback));
    if (spec.init.kind == Initializer::Kind::kData) return in["init"].Error("data", "an init for a parameter");
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.trainable, in["trainable"].AsBoolOr(true));
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.layerwise_parallel, in["layerwise_parallel"].AsBoolOr(false));
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.parallel_optimizer, in["parallel_optimizer"].AsBoolOr(true));
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.comm_fusion, ReadFusionId(in["comm_fusion"], 1));
    model.parameters.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

absl::Status ReadGroups(const NodeRef& in, OperatorModel& model) {
  constexpr int64_t kMostRank = int64_t{1} << 20;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> groups, in.AsMapIfPresent());
  for (const NodeRef& group : groups) {
    GroupSpec spec{group.key(), {}, group};
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> lists, group.AsList());
    if (lists.empty()) return WithKind("E-VALUE", group.Error("an empty list", "lists of ranks"));
    for (const NodeRef& list : lists) {
      const absl::StatusOr<std::vector<int64_t>> ranks = list.AsInts(0, kMostRank);
      if (!ranks.ok()) return WithKind("E-VALUE", ranks.status());
      spec.ranks.push_back(*ranks);
    }
    model.groups.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

// Names that operators may use so far: what each is, and whether some operator has used it.
struct Known {
  std::map<std::string, bool> used;
  std::vector<std::string> in_order;
  std::vector<std::string> operators;  // all of the file, those that are not read yet too

  // False if there is one of this name.
  bool Add(const std::string& name) {
    in_order.push_back(name);
    return used.emplace(name, false).second;
  }
};

// S13.5: an operator may be pinned to the host. GPU is where operators are anyway.
absl::StatusOr<bool> ReadOnHost(const NodeRef& in, const UserOp& op) {
  constexpr absl::string_view kTargets[] = {"CPU", "GPU"};
  if (!in.present()) return false;
  const absl::StatusOr<size_t> target = in.AsChoice(kTargets);
  if (!target.ok()) return WithKind("E-VALUE", target.status());
  if (*target == 0 && op.together != nullptr) {
    return WithKind("E-VALUE", in.Error("CPU", absl::StrCat("no ", op.name, ", by which devices talk")));
  }
  return *target == 0;
}

absl::StatusOr<OperatorSpec> ReadOperator(const NodeRef& in, const NodeRef& layouts, int64_t stages, Known& known) {
  OperatorSpec spec{.where = in};
  MESHWRIGHT_RETURN_IF_ERROR(in.AsMap().status());
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.name, in["name"].AsName());
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.op, in["op"].AsChoice(UserOpNames()));
  const UserOp& op = UserOps()[spec.op];
  std::vector<absl::string_view> keys = {"name",           "op",          "inputs",    "shard",        "out_strategy",
                                         "pipeline_stage", "cross_batch", "recompute", "device_target"};
  keys.insert(keys.end(), op.keys.begin(), op.keys.end());
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(keys));
  // S5.13: on other operators than reductions it has no effect.
  const absl::StatusOr<bool> cross_batch = in["cross_batch"].AsBoolOr(false);
  if (!cross_batch.ok()) return WithKind("E-TYPE", cross_batch.status());
  const absl::StatusOr<bool> recompute = in["recompute"].AsBoolOr(false);
  if (!recompute.ok()) return WithKind("E-TYPE", recompute.status());
  if (in["recompute"].present()) spec.recompute = *recompute;
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.on_host, ReadOnHost(in["device_target"], op));
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.fusion, ReadFusionId(in["fusion"], 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.inputs, in["inputs"].AsStrings());
  const bool several = op.inputs == kSeveral;
  if (several ? spec.inputs.size() < 2 || spec.inputs.size() > kMostInputs : spec.inputs.size() != op.inputs) {
    return in["inputs"].Error(absl::StrCat("a list of ", spec.inputs.size()),
                              absl::StrCat(several ? absl::StrCat("2 to ", kMostInputs) : absl::StrCat(op.inputs),
                                           op.inputs == 1 ? " input" : " inputs", " for ", op.name));
  }
  for (const NodeRef& input : in["inputs"].children()) {
    const auto it = known.used.find(input.text());
    if (it == known.used.end()) {
      if (known.used.count(absl::StrCat(input.text(), ".0")) > 0) {
        return input.Error(absl::StrCat(QuoteForMessage(input.text()), ", which has several parts"),
                           absl::StrCat("one of them: ", input.text(), ".0, ", input.text(), ".1, ..."));
      }
      if (std::find(known.operators.begin(), known.operators.end(), input.text()) != known.operators.end()) {
        return input.Error(absl::StrCat(QuoteForMessage(input.text()), ", which does not come before ", spec.name),
                           "an input, a parameter or an earlier operator",
                           "operators stand in the order in which they run; a circle has none");
      }
      const std::vector<absl::string_view> names(known.in_order.begin(), known.in_order.end());
      const absl::string_view nearest = NearestName(input.text(), names);
      return input.Error(QuoteForMessage(input.text()), "an input, a parameter or an earlier operator",
                         nearest.empty() ? "" : absl::StrCat("did you mean \"", nearest, "\"?"));
    }
    it->second = true;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t parts, in["parts"].AsIntOr(1, 1, kMostParts));
  for (int64_t i = 0; i < parts; ++i) {
    spec.outputs.push_back(parts == 1 ? spec.name : absl::StrCat(spec.name, ".", i));
    if (!known.Add(spec.outputs.back())) {
      return in["name"].Error(QuoteForMessage(spec.outputs.back()), "a name that is not taken yet");
    }
  }
  if (in["shard"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.shard, ReadSharding(in, layouts, spec.inputs.size()));
  } else if (in["out_strategy"].present()) {
    return WithKind("E-VALUE", in["out_strategy"].Error("it alone", "`shard` beside it"));
  }
  if (in["pipeline_stage"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.pipeline_stage, in["pipeline_stage"].AsInt(0, stages - 1));
  }
  return spec;
}

absl::StatusOr<int64_t> FindGroup(const NodeRef& in, const OperatorModel& model) {
  if (!in.present()) return int64_t{-1};
  std::vector<absl::string_view> names;
  for (const GroupSpec& group : model.groups) names.push_back(group.name);
  const absl::StatusOr<size_t> index = in.AsChoice(names);
  if (!index.ok()) return WithKind("E-VALUE", index.status());
  return static_cast<int64_t>(*index);
}

// Stages as written become parts: a lower one than before is of the next chunk (S12.10).
absl::Status CountChunks(int64_t stages, int64_t chunks, OperatorModel& model) {
  int64_t reached = 0;
  absl::string_view before;
  for (OperatorSpec& op : model.operators) {
    if (op.pipeline_stage < 0) continue;
    int64_t part = reached - reached % stages + op.pipeline_stage;
    if (part < reached) part += stages;
    if (part >= stages * chunks) {
      return op.where.Error(absl::StrCat("\"", op.name, "\" of stage ", op.pipeline_stage, " after \"", before,
                                         "\" of stage ", reached % stages, " in the last chunk"),
                            absl::StrCat("stages that never decrease within each of the ", chunks, " chunks"));
    }
    op.pipeline_stage = reached = part;
    before = op.name;
  }
  return absl::OkStatus();
}

// Operators without a stage take over that of what they read, else that of who reads them (S12.2).
absl::Status AssignStages(const NodeRef& root, int64_t stages, int64_t chunks, OperatorModel& model) {
  if (chunks > 1) MESHWRIGHT_RETURN_IF_ERROR(CountChunks(stages, chunks, model));
  const int64_t parts = stages * chunks;
  const auto show = [&](int64_t part) {
    return absl::StrCat("stage ", part % stages, chunks == 1 ? "" : absl::StrCat(", chunk ", part / stages));
  };
  std::map<std::string, OperatorSpec*> made_by;
  bool any = false;
  for (OperatorSpec& op : model.operators) {
    if (op.pipeline_stage < 0) {
      for (const std::string& input : op.inputs) {
        const auto it = made_by.find(input);
        if (it != made_by.end()) op.pipeline_stage = std::max(op.pipeline_stage, it->second->pipeline_stage);
      }
    }
    any = any || op.pipeline_stage >= 0;
    for (const std::string& output : op.outputs) made_by[output] = &op;
  }
  if (!any && parts == 1) return absl::OkStatus();
  if (!any)
    return root["operators"].Error("no pipeline_stage",
                                   absl::StrCat("one on some operator of each of the ", stages, " stages"));
  for (size_t i = model.operators.size(); i-- > 0;) {
    const OperatorSpec& reader = model.operators[i];
    for (const std::string& input : reader.inputs) {
      const auto it = made_by.find(input);
      if (it != made_by.end() && it->second->pipeline_stage < 0) it->second->pipeline_stage = reader.pipeline_stage;
    }
  }
  int64_t reached = 0;
  for (size_t i = 0; i < model.operators.size(); ++i) {
    OperatorSpec& op = model.operators[i];
    if (op.pipeline_stage < 0) op.pipeline_stage = reached;
    if (op.pipeline_stage < reached) {
      return op.where.Error(absl::StrCat("\"", op.name, "\" of ", show(op.pipeline_stage), " after \"",
                                         model.operators[i - 1].name, "\" of ", show(reached)),
                            "stages that never decrease");
    }
    if (op.pipeline_stage > (i == 0 ? 0 : reached + 1)) {
      return op.where.Error(show(op.pipeline_stage),
                            absl::StrCat("an operator of ", show(i == 0 ? 0 : reached + 1), " before it"));
    }
    reached = op.pipeline_stage;
  }
  if (reached != parts - 1) {
    return root["operators"].Error(absl::StrCat("no operator of ", show(reached + 1)),
                                   absl::StrCat("operators in each of the ", stages, " stages",
                                                chunks == 1 ? "" : absl::StrCat(" and ", chunks, " chunks")));
  }
  for (const OperatorSpec& op : model.operators) {
    if (op.pipeline_stage > 0) break;
    for (const std::string& input : op.inputs) {
      for (const ParameterSpec& parameter : model.parameters) {
        if (parameter.name == input) return absl::OkStatus();
      }
    }
  }
  if (parts == 1) return absl::OkStatus();
  return root["operators"].Error("no parameter in stage 0", "at least one");
}

// The error that names what nobody uses.
absl::Status CheckUsed(const NodeRef& root, const OperatorModel& model, const Known& known) {
  for (const absl::string_view section : {"inputs", "parameters"}) {
    for (const NodeRef& in : root[section].children()) {
      if (!known.used.at(in.key())) return in.Error("no operator that uses it", "one", "remove it");
    }
  }
  for (const OperatorSpec& op : model.operators) {
    const bool is_last = &op == &model.operators.back();
    if (UserOps()[op.op].loss != is_last && !model.by_hand()) {
      return op.where.Error(is_last ? "no loss at the end" : "a loss before the end", "one loss, as the last operator");
    }
    for (const std::string& output : op.outputs) {
      if (is_last || known.used.at(output)) continue;
      return op.where.Error(absl::StrCat("no operator that uses ", op.outputs.size() == 1 ? "it" : output), "one",
                            "remove it");
    }
  }
  return absl::OkStatus();
}

// Adds operator `spec` to the graph; its outputs.
absl::StatusOr<std::vector<TensorId>> AddOperator(const OperatorSpec& spec, const OperatorModel& model,
                                                  const Training& training, int64_t rows,
                                                  const std::map<std::string, TensorId>& tensors,
                                                  const GraphBuilder& builder, RankGraph::Group group,
                                                  RankGraph& graph) {
  const UserOp& op = UserOps()[spec.op];
  UserOpCall call{.where = spec.where, .batch = model.batch(), .rows = rows, .loss_reduction = training.loss_reduction};
  call.dtype = training.dtype;
  call.group = group;
  GraphBuilder::OpSpec out{.name = spec.name, .kind = op.kind, .inputs = {}};
  DType floating = DType::kFloat32;
  bool any_floating = false;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorId id = tensors.at(spec.inputs[i]);
    const Tensor& tensor = builder.graph().tensor(id);
    out.inputs.push_back(id);
    call.shapes.push_back(graph.ShapeOf(id));
    call.dtypes.push_back(tensor.dtype);
    if (op.integer_input == kAnyType) continue;
    const NodeRef at = spec.where["inputs"].children()[i];
    if (InfoOf(tensor.dtype).floating == (static_cast<int>(i) == op.integer_input)) {
      return at.Error(absl::StrCat("a tensor of ", NameOf(tensor.dtype)),
                      static_cast<int>(i) == op.integer_input ? "one of integers" : "one of a floating type");
    }
    if (static_cast<int>(i) == op.integer_input) continue;
    if (any_floating && tensor.dtype != floating) {
      return at.Error(absl::StrCat("a tensor of ", NameOf(tensor.dtype)),
                      absl::StrCat("one of ", NameOf(floating), ", as the others"), "insert a Cast");
    }
    floating = tensor.dtype;
    any_floating = true;
  }
  if (op.together != nullptr) {
    const absl::StatusOr<TensorId> result = op.together(call, graph, spec.name, out.inputs[0]);
    if (result.ok()) return std::vector<TensorId>{*result};
    return KindOf(result.status()).empty() ? result.status() : spec.where.Locate(result.status());
  }
  out.on_host = spec.on_host;
  MESHWRIGHT_RETURN_IF_ERROR(op.prepare(call, out));
  const absl::StatusOr<std::vector<TensorId>> result = graph.Add(std::move(out));
  if (!result.ok()) {
    std::vector<std::string> found;
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      found.push_back(absl::StrCat(spec.inputs[i], " ", ToText(call.shapes[i])));
    }
    return WithKind("E-LAYOUT", spec.where["inputs"].Error(absl::StrJoin(found, " and "), "shapes that go together",
                                                           result.status().message()));
  }
  const Shape& shape = builder.graph().tensor(result->front()).shape;
  if (shape.size() > kMostDims || IsTooLarge(shape)) {
    return spec.where.Error(absl::StrCat("an output of shape ", ToText(shape)), "at most 2^48 elements in 8 dims");
  }
  return *result;
}

}  // namespace

std::vector<absl::string_view> UserOpNames() {
  std::vector<absl::string_view> names;
  for (const UserOp& op : UserOps()) names.push_back(op.name);
  return names;
}

absl::StatusOr<OperatorModel> ReadOperators(const NodeRef& root, const Training& training, int64_t stages,
                                            int64_t chunks) {
  OperatorModel model;
  MESHWRIGHT_RETURN_IF_ERROR(ReadGroups(root["groups"], model));
  MESHWRIGHT_RETURN_IF_ERROR(ReadInputs(root, training, model));
  MESHWRIGHT_RETURN_IF_ERROR(ReadParameters(root, training, model));
  Known known;
  for (const absl::string_view section : {"inputs", "parameters"}) {
    for (const NodeRef& in : root[section].children()) {
      if (!known.Add(in.key())) return in.Error(QuoteForMessage(in.key()), "a name that is not an input's too");
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> operators, root["operators"].AsList());
  if (operators.empty()) return root["operators"].Error("an empty list", "at least one operator");
  for (const NodeRef& in : operators) known.operators.push_back(in["name"].text());
  for (const NodeRef& in : operators) {
    MESHWRIGHT_ASSIGN_OR_RETURN(OperatorSpec spec, ReadOperator(in, root["layouts"], stages, known));
    MESHWRIGHT_ASSIGN_OR_RETURN(spec.group, FindGroup(in["group"], model));
    model.operators.push_back(std::move(spec));
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckUsed(root, model, known));
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-LAYOUT", AssignStages(root, stages, chunks, model)));
  return model;
}

bool OperatorModel::by_hand() const {
  return std::any_of(operators.begin(), operators.end(),
                     [](const OperatorSpec& op) { return UserOps()[op.op].together != nullptr; });
}

absl::Status OperatorModel::CheckNotByHand(absl::string_view why) const {
  for (const OperatorSpec& op : operators) {
    const UserOp& row = UserOps()[op.op];
    if (row.together == nullptr) continue;
    return op.where["op"].Locate(StateError("operator \"", op.name, "\" is ", row.name, ", by which ranks talk, and ",
                                            why, "; leave it out, or set the mode stand_alone or hybrid_parallel"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> BuildOperators(const OperatorModel& model, const Training& training, const std::string& name,
                                     int64_t rows, const ByHand& by_hand) {
  GraphBuilder builder(name);
  std::vector<GroupAxis> groups;
  for (const GroupSpec& group : model.groups) {
    const absl::StatusOr<GroupAxis> axis = GroupAxisOf(group.ranks, by_hand.ranks);
    if (!axis.ok()) return group.where.Locate(axis.status());
    groups.push_back(*axis);
  }
  const absl::StatusOr<Shape> rank_dims = RankDimsFor(groups, by_hand.ranks);
  if (!rank_dims.ok()) return model.groups[0].where.Locate(rank_dims.status());
  RankGraph graph(builder, *rank_dims);
  std::map<std::string, TensorId> tensors;
  for (const InputSpec& input : model.inputs) {
    Shape shape = input.shape;
    shape[0] = rows;
    tensors[input.name] = builder.Input(input.name, input.dtype, std::move(shape), input.init);
  }
  // Segments first, so that each parameter can be made, in the file's order, in that of its first user.
  std::map<int64_t, SegmentId> segments;
  std::map<std::string, SegmentId> users;
  for (const OperatorSpec& op : model.operators) {
    if (segments.count(op.pipeline_stage) == 0) {
      const int64_t stage = op.pipeline_stage;
      segments[stage] = builder.BeginSegment(stage < 0 ? "model" : absl::StrCat("stage", stage));
      builder.mutable_graph().segments.back().stage = stage;
    }
    for (const std::string& input : op.inputs) users.emplace(input, segments[op.pipeline_stage]);
  }
  for (const ParameterSpec& parameter : model.parameters) {
    builder.ContinueSegment(users.at(parameter.name));
    const bool own = model.by_hand() && (by_hand.own_parameters || parameter.layerwise_parallel);
    tensors[parameter.name] =
        own ? graph.OwnParameter(parameter.name, parameter.dtype, parameter.shape, parameter.init, parameter.trainable)
            : builder.Parameter(parameter.name, parameter.dtype, parameter.shape, parameter.init, parameter.trainable);
  }
  for (const OperatorSpec& op : model.operators) {
    builder.ContinueSegment(segments[op.pipeline_stage]);
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                                AddOperator(op, model, training, rows, tensors, builder,
                                            op.group < 0 ? graph.World() : graph.GroupOf(groups[op.group]), graph));
    for (size_t i = 0; i < outputs.size(); ++i) tensors[op.outputs[i]] = outputs[i];
  }
  TensorId loss = tensors[model.operators.back().name];
  if (model.by_hand()) {
    if (!graph.ShapeOf(loss).empty()) {
      return model.operators.back().where.Error(absl::StrCat("a last operator of shape ", ToText(graph.ShapeOf(loss))),
                                                "a scalar, the loss");
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(loss, graph.Own(loss));
    if (by_hand.warnings != nullptr) *by_hand.warnings = graph.warnings();
  }
  builder.SetLoss(loss);
  NameRows(builder.mutable_graph());
  // Of a single row a dim of extent 1 may be taken for it; in the whole batch's graph of the same ops it may not.
  const bool drops = std::any_of(builder.graph().ops.begin(), builder.graph().ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::kDropout; });
  if (drops && rows == 1 && model.batch() > 1) {
    ByHand quiet = by_hand;
    quiet.warnings = nullptr;
    const absl::StatusOr<Graph> whole = BuildOperators(model, training, name, model.batch(), quiet);
    for (size_t i = 0; whole.ok() && i < whole->ops.size(); ++i) {
      if (whole->ops[i].kind == OpKind::kDropout) builder.mutable_graph().ops[i].rule = whole->ops[i].rule;
    }
  }
  MESHWRIGHT_RETURN_IF_ERROR(VerifyGraph(builder.graph()));
  return std::move(builder).Build();
}

}  // namespace meshwright
