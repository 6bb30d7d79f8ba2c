#include "models/model_file.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/hugging_face.h"

namespace meshwright {
namespace {

// Inputs of the graph as their user sees them: name and number of dims.
struct GraphInput {
  absl::string_view name;
  size_t dims;
};

// S9.3: each input is split in one dim at most, all in the same number of pieces, the one with most dims among them.
absl::Status CheckDatasetTuples(const NodeRef& in, const Parallel& parallel, const std::vector<GraphInput>& inputs) {
  if (parallel.dataset_strategy != DatasetStrategy::kTuples) return absl::OkStatus();
  const auto& tuples = parallel.dataset_tuples;
  if (tuples.size() != inputs.size()) {
    return WithKind("E-VALUE", in.Error(absl::StrCat(tuples.size(), " lists"),
                                        absl::StrCat("one for each of the ", inputs.size(), " inputs")));
  }
  int64_t pieces = 1;
  size_t most_dims = 0;
  bool largest_is_split = false;
  for (size_t i = 0; i < tuples.size(); ++i) {
    const NodeRef at = in.children()[i];
    if (tuples[i].size() != inputs[i].dims) {
      return at.Error(absl::StrCat("a list of ", tuples[i].size()),
                      absl::StrCat("one number for each of the ", inputs[i].dims, " dims of ", inputs[i].name));
    }
    int64_t own = 1;
    for (int64_t count : tuples[i]) {
      if (count > 1 && own > 1) return at.Error("two dims that are split", "one at most");
      own = std::max(own, count);
    }
    if (own > 1 && pieces > 1 && own != pieces) {
      return at.Error(absl::StrCat(own, " pieces"), absl::StrCat(pieces, ", as the other inputs"));
    }
    pieces = std::max(pieces, own);
    if (inputs[i].dims > most_dims) {
      most_dims = inputs[i].dims;
      largest_is_split = false;
    }
    largest_is_split = largest_is_split || (inputs[i].dims == most_dims && own > 1);
  }
  if (pieces > 1 && !largest_is_split) return in.Error("the input with most dims whole", "it split as the others are");
  return absl::OkStatus();
}

// Of a decoder whose file says no type; `of_checkpoint` may be missing.
absl::Status SetType(const NodeRef& of_checkpoint, ModelFile& file) {
  if (file.document.root()["training"]["dtype"].present()) {
    if (file.training.dtype == DType::kFloat8) {
      file.notices.push_back(
          "training.dtype float8: parameters and activations are in 8 bits, too, where trainers only multiply in "
          "them, as --products=float8 does; time and memory are bounds of what that gains");
    }
    return absl::OkStatus();
  }
  if (!of_checkpoint.present() || of_checkpoint.is_null()) {
    file.notices.push_back("training.dtype is not given: float32 unless --precision says otherwise");
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(file.training.dtype, ReadDType(of_checkpoint, DType::kFloat32, /*floating=*/true));
  file.notices.push_back(absl::StrCat("training.dtype is not given: ", of_checkpoint.text(), ", as the checkpoint"));
  return absl::OkStatus();
}

// Sets the model, and `config` where the text is not there yet.
absl::Status ReadHuggingFaceFile(const NodeRef& in, ModelFile& file) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, in.AsName());
  const absl::string_view beside = file.document.file_name();
  const std::string& path = file.config_path = absl::StrCat(beside.substr(0, beside.rfind('/') + 1), name);
  if (file.config.empty()) {
    absl::StatusOr<std::string> text = ReadTextFile(path);
    if (!text.ok()) return in.Locate(text.status());
    file.config = *std::move(text);
  }
  const absl::StatusOr<Document> config = ParseDocument(file.config, path);
  if (!config.ok()) return in.Locate(config.status());
  MESHWRIGHT_RETURN_IF_ERROR(SetType(CheckpointType(config->root()), file));
  MESHWRIGHT_ASSIGN_OR_RETURN(file.model, ReadHuggingFace(config->root(), file.training, file.left_out));
  file.notices.insert(file.notices.end(), file.left_out.begin(), file.left_out.end());
  return absl::OkStatus();
}

// The parts of a file that depend on the form of its model. Reads `parallel`; sets `model`, and training.batch for the
// operator form.
absl::Status ReadModel(const NodeRef& root, ModelFile& file) {
  constexpr absl::string_view kForms[] = {"operators", "architecture", "huggingface"};
  std::vector<absl::string_view> forms;
  for (const absl::string_view form : kForms) {
    if (root[form].present()) forms.push_back(form);
  }
  if (forms.size() != 1) {
    return root.Error(forms.empty() ? "no model" : absl::StrCat("both ", forms[0], " and ", forms[1]),
                      absl::StrCat("one of ", ListNames(kForms)));
  }
  Training& training = file.training;
  if (forms[0] == "operators") {
    if (training.lora.has_value()) {
      return root["training"]["lora"].Error("it with `operators`", "a decoder",
                                            "a parameter that stays as it is has `trainable: false`");
    }
    if (training.float8_parameters) {
      return root["training"]["parameters"].Error("it with `operators`", "a decoder", "a parameter has a `dtype`");
    }
    const int64_t stages = file.parallel.pipeline_stages, chunks = stages > 1 ? file.parallel.chunks() : 1;
    MESHWRIGHT_ASSIGN_OR_RETURN(OperatorModel model, ReadOperators(root, training, stages, chunks));
    if (training.batch != 0 && training.batch != model.batch()) {
      return root["training"]["batch"].Error(absl::StrCat(training.batch),
                                             absl::StrCat(model.batch(), ", dim 0 of the inputs"), "remove it");
    }
    training.batch = model.batch();
    file.model = std::move(model);
    return absl::OkStatus();
  }
  for (const absl::string_view section : {"inputs", "parameters", "layouts", "groups"}) {
    if (root[section].present()) return root[section].Error("it", "it with `operators` only");
  }
  MESHWRIGHT_RETURN_IF_ERROR(root["training"]["batch"].AsInt(1).status());
  if (training.sequence == 0) MESHWRIGHT_RETURN_IF_ERROR(root["training"]["sequence"].AsInt(1).status());
  if (!root["training"]["optimizer"].present()) {
    training.optimizer = Optimizer::Default(OpKind::kAdamW);
    file.notices.push_back("training.optimizer is not given: adamw, which keeps 8 bytes a parameter");
  }
  if (forms[0] == "huggingface") return ReadHuggingFaceFile(root["huggingface"], file);
  MESHWRIGHT_RETURN_IF_ERROR(SetType(root["training"]["dtype"], file));
  MESHWRIGHT_RETURN_IF_ERROR(root["architecture"].CheckKeys({"decoder"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(file.model, ReadDecoder(root["architecture"]["decoder"], training));
  return absl::OkStatus();
}

// What the operator form says and the parallel mode does not use.
void WarnOfShards(const OperatorModel& model, Parallel& parallel) {
  if (parallel.parallel_mode == ParallelMode::kSemiAuto || parallel.parallel_mode == ParallelMode::kAuto) return;
  for (const OperatorSpec& op : model.operators) {
    if (!op.shard.has_value()) continue;
    parallel.warnings.push_back(
        absl::StrCat("shard of \"", op.name, "\" has no effect in the mode ", NameOf(parallel.parallel_mode)));
  }
}

// false, true or a number from 0 to 3.
absl::StatusOr<int64_t> ReadSaveGraphs(const NodeRef& in) {
  constexpr int64_t kTrue = 2, kMost = 3;
  if (!in.present()) return int64_t{0};
  if (const absl::StatusOr<bool> wanted = in.AsBool(); wanted.ok()) return *wanted ? kTrue : 0;
  if (const absl::StatusOr<int64_t> any = in.AsInt(std::numeric_limits<int64_t>::min()); !any.ok()) {
    return WithKind("E-TYPE", in.Error(in.is_scalar() ? QuoteForMessage(in.text()) : "a list or map",
                                       "false, true or a number from 0 to 3"));
  }
  absl::StatusOr<int64_t> level = in.AsInt(0, kMost);
  if (!level.ok()) return WithKind("E-VALUE", level.status());
  return level;
}

// S1.5.
absl::Status CheckModeByHand(const ModelFile& file) {
  const ParallelMode mode = file.parallel.parallel_mode;
  if (mode != ParallelMode::kSemiAuto && mode != ParallelMode::kAuto) return absl::OkStatus();
  return std::get<OperatorModel>(file.model)
      .CheckNotByHand(absl::StrCat("the planner splits the model in the mode ", NameOf(mode)));
}

bool IsBelow(absl::string_view name, absl::string_view cell) {
  const absl::string_view rest = absl::StripPrefix(name, cell);
  return cell.empty() || (rest.size() < name.size() && (rest.empty() || rest[0] == '.' || rest[0] == '/'));
}

// The ops below a cell, but for those with a value that is read outside.
std::set<std::string> InsideOf(absl::string_view cell, const Graph& graph, bool& found) {
  std::set<std::string> inside;
  std::set<TensorId> leaving = {graph.loss};
  for (const Op& op : graph.ops) {
    if (!IsBelow(op.name, cell)) leaving.insert(op.inputs.begin(), op.inputs.end());
  }
  for (const Op& op : graph.ops) {
    if (!IsBelow(op.name, cell)) continue;
    found = true;
    const bool leaves =
        std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) { return leaving.count(id) > 0; });
    if (!leaves) inside.insert(op.name);
  }
  return inside;
}

}  // namespace

absl::StatusOr<Context> ReadContext(const NodeRef& in) {
  Context context;
  if (!in.present()) return context;
  std::vector<absl::string_view> names;
  for (const ProcessKnob& knob : kProcessKnobs) names.push_back(knob.name);
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-VALUE", in.CheckKeys(names)));
  const auto read = [&]() -> absl::Status {
    if (in["mode"].present()) {
      constexpr absl::string_view kModes[] = {"GRAPH_MODE", "PYNATIVE_MODE"};
      MESHWRIGHT_ASSIGN_OR_RETURN(const size_t mode, in["mode"].AsChoice(kModes));
      context.graph_mode = mode == 0;
    }
    if (in["device_target"].present()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(context.device_target, in["device_target"].AsEnum<DeviceTarget>(kDeviceTargetNames));
    }
    if (in["max_device_memory"].present()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(context.max_device_memory, in["max_device_memory"].AsBytes());
    }
    return absl::OkStatus();
  };
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-VALUE", read()));
  MESHWRIGHT_ASSIGN_OR_RETURN(context.save_graphs, ReadSaveGraphs(in["save_graphs"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(context.save_graphs_path, in["save_graphs_path"].AsStringOr("."));
  return context;
}

absl::StatusOr<ModelFile> ParseModelFile(absl::string_view text, absl::string_view file_name, absl::string_view config,
                                         int64_t sequence, const ParallelFlags& flags) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Document document, ParseDocument(text, file_name));
  ModelFile file{.name = {},
                 .model = {},
                 .training = {},
                 .parallel = {},
                 .context = {},
                 .callbacks = {},
                 .config = std::string(config),
                 .config_path = {},
                 .left_out = {},
                 .notices = {},
                 .document = std::move(document)};
  const NodeRef root = file.document.root();
  if (IsHuggingFaceConfig(root)) {
    return root["model_type"].Error(
        "the config.json of a Hugging Face model", "a model file, which names it",
        absl::StrCat("write `name: ..`, `huggingface: ", file_name.substr(file_name.rfind('/') + 1),
                     "` and `training: {batch: .., sequence: ..}` into one beside it"));
  }
  MESHWRIGHT_RETURN_IF_ERROR(
      root.CheckKeys({"name", "inputs", "parameters", "operators", "groups", "layouts", "architecture", "huggingface",
                      "training", "parallel", "cluster", "context", "cells", "callbacks"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(file.name, root["name"].AsName());
  MESHWRIGHT_ASSIGN_OR_RETURN(file.training, ReadTraining(root["training"]));
  if (sequence > 0) file.training.sequence = sequence;
  MESHWRIGHT_ASSIGN_OR_RETURN(file.context, ReadContext(root["context"]));
  if (!file.context.graph_mode) {
    return root["context"]["mode"].Locate(StateError("planning needs the whole graph; write GRAPH_MODE"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(file.callbacks, ReadCallbacks(root["callbacks"]));
  const ParallelMode mode = root["operators"].present() ? ParallelMode::kStandAlone : ParallelMode::kAuto;
  MESHWRIGHT_ASSIGN_OR_RETURN(file.parallel, ReadParallelAlone(root["parallel"], mode, flags));
  MESHWRIGHT_RETURN_IF_ERROR(ReadModel(root, file));
  MESHWRIGHT_RETURN_IF_ERROR(CheckParallel(root["parallel"], file.parallel, file.training));

  std::vector<GraphInput> inputs = {{"tokens", 2}, {"labels", 2}};
  if (const OperatorModel* model = std::get_if<OperatorModel>(&file.model)) {
    WarnOfShards(*model, file.parallel);
    inputs.clear();
    for (const InputSpec& input : model->inputs) inputs.push_back({input.name, input.shape.size()});
  }
  MESHWRIGHT_RETURN_IF_ERROR(
      WithKind("E-LAYOUT", CheckDatasetTuples(root["parallel"]["dataset_strategy"], file.parallel, inputs)));
  // The shapes of a program that is split by hand depend on how many ranks there are.
  if (file.by_hand()) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckModeByHand(file));
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, BuildGraph(file, file.training.batch));
    MESHWRIGHT_RETURN_IF_ERROR(RecomputedOps(file, graph).status());
  }
  MESHWRIGHT_RETURN_IF_ERROR(FusionIds(file).status());
  return file;
}

absl::StatusOr<std::set<std::string>> RecomputedOps(const ModelFile& file, const Graph& graph) {
  std::set<std::string> ops;
  for (const NodeRef& cell : file.document.root()["cells"].children()) {
    if (!cell["recompute"].present()) continue;
    const absl::StatusOr<bool> recompute = cell["recompute"].AsBool();
    if (!recompute.ok()) return WithKind("E-TYPE", recompute.status());
    if (file.is_decoder()) {
      return cell["recompute"].Locate(
          StateError("cells of a decoder are not recomputed one by one; write parallel.recompute: selective or full"));
    }
    bool found = false;
    const std::set<std::string> inside = InsideOf(cell.key(), graph, found);
    if (!found) {
      return WithKind("E-VALUE", cell.Error(QuoteForMessage(cell.key()), "the beginning of an operator's name"));
    }
    if (*recompute) ops.insert(inside.begin(), inside.end());
    if (!*recompute) std::erase_if(ops, [&](const std::string& name) { return IsBelow(name, cell.key()); });
  }
  const OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (model == nullptr) return ops;
  for (const OperatorSpec& spec : model->operators) {
    if (!spec.recompute.has_value()) continue;
    for (const Op& op : graph.ops) {  // one in the file may be several in the graph: AllReduce
      if (op.name != spec.name && !absl::StartsWith(op.name, absl::StrCat(spec.name, "/"))) continue;
      ops.erase(op.name);
      if (*spec.recompute) ops.insert(op.name);
    }
  }
  return ops;
}

absl::StatusOr<std::map<std::string, int64_t>> FusionIds(const ModelFile& file) {
  constexpr int64_t kMostFusionId = int64_t{1} << 20;
  const NodeRef cells = file.document.root()["cells"];
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> in_order, cells.AsMapIfPresent());
  std::map<std::string, int64_t> ids;
  if (const OperatorModel* model = std::get_if<OperatorModel>(&file.model)) {
    for (const ParameterSpec& parameter : model->parameters) ids[parameter.name] = parameter.comm_fusion;
  } else if (!in_order.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, BuildGraph(file, file.training.batch));
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind == TensorKind::kParameter) ids[tensor.name] = 1;
    }
  }
  for (const NodeRef& cell : in_order) {
    MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-KEY", cell.CheckKeys({"comm_fusion", "recompute"})));
    if (cell["recompute"].present() && !cell["comm_fusion"].present()) continue;
    const absl::StatusOr<int64_t> fusion = cell["comm_fusion"].AsInt(0, kMostFusionId);
    if (!fusion.ok()) return WithKind("E-VALUE", fusion.status());
    bool found = false;
    for (auto& [name, id] : ids) {
      if (!IsBelow(name, cell.key())) continue;
      id = *fusion;
      found = true;
    }
    if (found) continue;
    std::vector<absl::string_view> names;
    for (const auto& [name, id] : ids) names.push_back(name);
    return WithKind("E-VALUE", cell.Error(QuoteForMessage(cell.key()), "the beginning of a parameter's name",
                                          absl::StrCat("there are ", ListNames(names))));
  }
  std::map<std::string, int64_t> other;
  for (const auto& [name, id] : ids) {
    if (id != 1) other[name] = id;
  }
  if (const OperatorModel* model = std::get_if<OperatorModel>(&file.model)) {
    for (const OperatorSpec& op : model->operators) {
      if (op.fusion > 0) other[op.name] = op.fusion;
    }
  }
  return other;
}

absl::StatusOr<Graph> BuildGraph(const ModelFile& file, int64_t rows, int64_t ranks,
                                 std::vector<std::string>* warnings) {
  if (rows < 1 || rows > file.training.batch) {
    return WrongInput(absl::StrCat("a micro-batch of ", rows, " rows"),
                      absl::StrCat("1 to ", file.training.batch, ", the rows of a step"));
  }
  if (const DecoderConfig* decoder = std::get_if<DecoderConfig>(&file.model)) {
    return BuildDecoder(*decoder, file.training, file.name, rows);
  }
  const OperatorModel& model = std::get<OperatorModel>(file.model);
  if (!model.by_hand()) return BuildOperators(model, file.training, file.name, rows);
  MESHWRIGHT_RETURN_IF_ERROR(CheckModeByHand(file));
  return BuildOperators(model, file.training, file.name, rows,
                        {ranks, file.parallel.parallel_mode == ParallelMode::kStandAlone, warnings});
}

}  // namespace meshwright
