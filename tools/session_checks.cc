#include "tools/session_checks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/error_kind.h"
#include "ir/mesh.h"
#include "ir/sharding.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/knobs.h"
#include "planner/passes/cut_runs.h"
#include "planner/passes/pipeline_parts.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

enum class Whose : uint8_t { kAny, kDecoders, kExperts, kOperators };  // the models in which a knob acts

// Flags that speak for a knob of the file, and knobs without a flag.
struct Choice {
  absl::string_view flag, knob;
  Whose whose;
};
constexpr Choice kChoices[] = {
    {"stages", "pipeline_stages", Whose::kAny},
    {"schedule", "pipeline_config", Whose::kAny},
    {"virtual_pipeline_stages", "virtual_pipeline_stages", Whose::kAny},
    {"parallel_optimizer", "enable_parallel_optimizer", Whose::kAny},
    {"optimizer_weight_shard_size", "optimizer_weight_shard_size", Whose::kAny},
    {"gradients_mean", "gradients_mean", Whose::kAny},
    {"shard_parameters", "shard_parameters", Whose::kAny},
    {"data_parallel", "data_parallel", Whose::kDecoders},
    {"tensor_parallel", "tensor_parallel", Whose::kDecoders},
    {"context_parallel", "context_parallel", Whose::kDecoders},
    {"context_exchange", "context_exchange", Whose::kDecoders},
    {"sequence_parallel", "sequence_parallel", Whose::kDecoders},
    {"microbatch", "micro_batch", Whose::kDecoders},
    {"expert_parallel", "expert_parallel", Whose::kExperts},
    {"dispatcher", "dispatcher", Whose::kExperts},
    {"spread_experts", "spread_experts", Whose::kExperts},
    {"max_stages", "max_pipeline_stages", Whose::kDecoders},
    {"max_data_parallel", "max_data_parallel", Whose::kDecoders},
    {"max_tensor_parallel", "max_tensor_parallel", Whose::kDecoders},
    {"max_context_parallel", "max_context_parallel", Whose::kDecoders},
    {"max_expert_parallel", "max_expert_parallel", Whose::kExperts},
    {"search_mode", "search_mode", Whose::kOperators},
    {"", "layers_per_stage", Whose::kDecoders},
    {"", "full_batch", Whose::kOperators},
    {"", "dataset_strategy", Whose::kOperators},
};

// Whether the file says something that is not the default.
bool IsSet(const NodeRef& value, const Knob& knob) {
  return value.present() && !(value.is_scalar() && value.text() == knob.fallback);
}

void NoteOtherModels(const std::string& name, Whose whose, Session& session) {
  const DecoderConfig* const decoder = std::get_if<DecoderConfig>(&session.file->model);
  const auto note = [&](absl::string_view models) {
    session.notices.push_back(absl::StrCat(name, " has no effect: it is for ", models));
  };
  if (whose == Whose::kOperators && decoder != nullptr) note("models of operators");
  if ((whose == Whose::kDecoders || whose == Whose::kExperts) && decoder == nullptr) note("decoders");
  if (whose == Whose::kExperts && decoder != nullptr && decoder->experts == 0) note("decoders with experts");
}

// Each degree that the user fixed must divide the devices, with the others too. Said here since the search knows no
// places.
absl::Status CheckDegrees(const Session& session, const Flags& flags) {
  const Problem& problem = session.problem;
  if (problem.mode == SearchMode::kStandAlone || problem.mode == SearchMode::kByHand) return absl::OkStatus();
  struct Degree {
    absl::string_view flag, key;
    std::optional<int64_t> value;
  };
  const Degree degrees[] = {{"stages", "pipeline_stages", problem.stages},
                            {"tensor_parallel", "tensor_parallel", problem.tensor_parallel},
                            {"context_parallel", "context_parallel", problem.context_parallel},
                            {"data_parallel", "data_parallel", problem.data_parallel}};
  const int64_t devices = problem.cluster.num_devices();
  int64_t rest = devices;
  for (const Degree& degree : degrees) {
    const int64_t value = degree.value.value_or(1);
    if (rest % value == 0) {
      rest /= value;
      continue;
    }
    const std::string found = absl::StrCat(value);
    const std::string wanted = devices == 1      ? "1, since there is one device (`run` has --ranks)"
                               : rest == devices ? absl::StrCat("a divisor of the ", devices, " devices")
                                                 : absl::StrCat("a divisor of the ", rest,
                                                                " devices that the other degrees leave of ", devices);
    if (flags.Has(degree.flag)) return Flags::Wrong(degree.flag, WrongInput(found, wanted));
    return session.file->document.root()["parallel"][degree.key].Error(found, wanted);
  }
  return absl::OkStatus();
}

// A degree that the user fixed is not above the most that he allows.
absl::Status CheckBounds(const Session& session, const Flags& flags) {
  const Problem& problem = session.problem;
  struct Bound {
    absl::string_view flag, key;
    std::optional<int64_t> most, fixed;
  };
  const Bound bounds[] = {
      {"max_stages", "max_pipeline_stages", problem.max_stages, problem.stages},
      {"max_tensor_parallel", "max_tensor_parallel", problem.max_tensor_parallel, problem.tensor_parallel},
      {"max_data_parallel", "max_data_parallel", problem.max_data_parallel, problem.data_parallel},
      {"max_expert_parallel", "max_expert_parallel", problem.max_expert_parallel, problem.expert_parallel},
      {"max_context_parallel", "max_context_parallel", problem.max_context_parallel, problem.context_parallel}};
  for (const Bound& bound : bounds) {
    if (problem.mode != SearchMode::kDecoder || !bound.most.has_value() || bound.fixed.value_or(1) <= *bound.most) {
      continue;
    }
    const std::string found = absl::StrCat(*bound.most);
    const std::string wanted = absl::StrCat("at least ", *bound.fixed, ", which the degree is fixed at");
    if (flags.Has(bound.flag)) return Flags::Wrong(bound.flag, WrongInput(found, wanted));
    return session.file->document.root()["parallel"][bound.key].Error(found, wanted);
  }
  return absl::OkStatus();
}

// The ranks that share a decoder's optimizer are a part of those that have the same parameters, and have the whole
// sequence and all experts. Said here as far as the degrees are known; the search leaves out what does not divide.
absl::Status CheckGroups(const Session& session, const Flags& flags) {
  const Problem& problem = session.problem;
  const int64_t group = problem.optimizer_shard_size.value_or(-1);
  if (problem.mode != SearchMode::kDecoder || group <= 1) return absl::OkStatus();
  const bool known = problem.data_parallel.has_value() && problem.context_parallel.has_value();
  const int64_t ranks =
      known ? *problem.data_parallel * *problem.context_parallel
            : problem.cluster.num_devices() / problem.stages.value_or(1) / problem.tensor_parallel.value_or(1);
  const bool experts = std::get<DecoderConfig>(session.file->model).experts > 0;
  const int64_t least =
      problem.context_parallel.value_or(1) * (experts ? problem.expert_parallel.value_or(1) : int64_t{1});
  if (ranks % group == 0 && group % least == 0) return absl::OkStatus();
  const std::string found = absl::StrCat(group);
  const std::string wanted = absl::StrCat(
      "a divisor of the ", ranks, " ranks that can have the same parameters",
      least > 1 ? absl::StrCat(", and a multiple of the ", least, " that share a sequence or the experts") : "");
  constexpr absl::string_view kFlag = "optimizer_weight_shard_size", kRemedy = "-1 is all of them";
  if (flags.Has(kFlag)) return Flags::Wrong(kFlag, WrongInput(found, wanted, kRemedy));
  const NodeRef knobs = session.file->document.root()["parallel"], nested = knobs["parallel_optimizer_config"];
  return WithKind("E-VALUE", (nested[kFlag].present() ? nested : knobs)[kFlag].Error(found, wanted, kRemedy));
}

// Sizes of groups that split nothing, or everything.
void NoteIdleGroups(Session& session) {
  const Problem& problem = session.problem;
  const int64_t group = problem.optimizer_shard_size.value_or(-1);
  constexpr absl::string_view kSize = "optimizer_weight_shard_size";
  if (!ActsIn(*FindKnob(kSize), session.file->parallel.parallel_mode) || group == -1) return;
  if (!problem.parallel_optimizer.value_or(session.file->is_decoder())) {
    session.notices.push_back(absl::StrCat(kSize, " ", group, " has no effect without the parallel optimizer"));
  } else if (group == 1) {
    session.notices.push_back(absl::StrCat(
        kSize, " 1 is taken for -1, all replicas: it acts from 2 on; without the parallel optimizer nothing is split"));
  }
}

// Knobs that say how another one acts, which is off; chunks that no pipeline of a decoder has.
void NoteIdleParts(const Flags& flags, Session& session) {
  const Problem& problem = session.problem;
  const NodeRef in_file = session.file->document.root()["parallel"];
  const DecoderConfig* const decoder = std::get_if<DecoderConfig>(&session.file->model);
  const auto note = [&](absl::string_view knob, absl::string_view without) {
    const Knob& row = *FindKnob(knob);
    if (!ActsIn(row, session.file->parallel.parallel_mode) || !IsSet(in_file[knob], row)) return;
    session.notices.push_back(absl::StrCat(knob, " has no effect without ", without));
  };
  if (!problem.parallel_optimizer.value_or(decoder != nullptr)) {
    note("parallel_optimizer_config", "the parallel optimizer");
    if (decoder == nullptr) note("shard_parameters", "the parallel optimizer");
  } else if (decoder == nullptr && problem.shard_parameters.value_or(false)) {
    session.notices.push_back("shard_parameters splits only the frozen parameters of a network of operators");
  }
  if (decoder == nullptr) {
    if (problem.stages.value_or(1) > 1) return;
    note("pipeline_config", "a pipeline (pipeline_stages)");
    if (flags.Has("schedule")) session.notices.push_back("--schedule has no effect without a pipeline (--stages)");
    return;
  }
  const int64_t chunks = problem.chunks.value_or(1);
  if (problem.mode != SearchMode::kDecoder || chunks == 1 || 2 * chunks <= decoder->layers) return;
  session.notices.push_back(
      absl::StrCat(chunks, " chunks a stage (virtual_pipeline_stages) leave pipelines out: two stages have ",
                   2 * chunks, " chunks, and there are ", decoder->layers, " layers"));
}

// The micro-batches of a step divide it, and the rows that each rank feeds; there are as many as stages (S12.3).
absl::Status CheckMicroBatches(const Session& session, const Flags& flags) {
  const Problem& problem = session.problem;
  const int64_t count = problem.microbatches.value_or(1), stages = problem.stages.value_or(1);
  const bool by_rows =
      !session.file->is_decoder() && (problem.mode == SearchMode::kDataParallel ||
                                      (problem.mode != SearchMode::kStandAlone && problem.mode != SearchMode::kByHand &&
                                       problem.feeding == Feeding::kDataParallel));
  const int64_t ranks = by_rows ? problem.cluster.num_devices() / stages : 1;
  std::string wanted;
  if (count < stages) {
    wanted = absl::StrCat("at least as many as pipeline stages, ", stages);
  } else if (problem.batch % count != 0) {
    wanted = absl::StrCat("a divisor of the batch of ", problem.batch, " rows");
  } else if (problem.batch % ranks == 0 && problem.batch / ranks % count != 0) {
    wanted = absl::StrCat("a divisor of the ", problem.batch / ranks, " rows of each of ", ranks, " ranks");
  }
  if (wanted.empty() || count == 1) return absl::OkStatus();
  const std::string found = absl::StrCat(count);
  if (flags.Has("microbatches")) return Flags::Wrong("microbatches", WrongInput(found, wanted));
  const NodeRef in_file = session.file->document.root()["parallel"];
  const NodeRef given = in_file["micro_batches"];
  return WithKind("E-VALUE", (given.present() ? given : in_file["grad_accumulation_step"]).Error(found, wanted));
}

// S11.2: in data_parallel a rank owns whole parameters, for which there are two optimizers.
absl::Status CheckOwners(const Flags& flags, const Session& session) {
  const Problem& problem = session.problem;
  const OperatorModel* const model = std::get_if<OperatorModel>(&session.file->model);
  if (problem.mode != SearchMode::kDataParallel || !problem.parallel_optimizer.value_or(false)) {
    return absl::OkStatus();
  }
  const auto error = [&](const absl::Status& status) {
    if (flags.Has("parallel_optimizer")) return Flags::Wrong("parallel_optimizer", status);
    return session.file->document.root()["parallel"]["enable_parallel_optimizer"].Locate(status);
  };
  if (problem.update.kind != OpKind::kAdamW && problem.update.kind != OpKind::kLamb) {
    return error(StateError(kOwnersOptimizers));
  }
  if (model == nullptr) return absl::OkStatus();
  const auto trained = std::count_if(model->parameters.begin(), model->parameters.end(),
                                     [](const ParameterSpec& parameter) { return parameter.trainable; });
  const int64_t devices = problem.cluster.num_devices();
  if (trained >= devices) return absl::OkStatus();
  return error(StateError("in data_parallel every rank owns parameters: found ", trained, " parameters for ", devices,
                          " ranks, wanted at least as many"));
}

// Strategies of single operators fit these and the devices (S5.2). Said here for the same reason.
absl::Status CheckShards(const Session& session) {
  const Problem& problem = session.problem;
  const OperatorModel* const model = std::get_if<OperatorModel>(&session.file->model);
  if (model == nullptr || model->by_hand() || problem.mode == SearchMode::kStandAlone ||
      problem.mode == SearchMode::kDataParallel) {
    return absl::OkStatus();
  }
  const int64_t stages = problem.stages.value_or(1), ranks = problem.cluster.num_devices() / stages;
  const Mesh mesh = Mesh::Factored(stages, ranks);
  const int64_t rows = std::max<int64_t>(1, problem.batch / problem.microbatches.value_or(1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(rows));
  for (const OperatorSpec& spec : model->operators) {
    const OpId op = graph.FindOp(spec.name);
    if (!spec.shard.has_value() || !op.valid()) continue;
    const absl::Status status = Resolve(*spec.shard, graph.op(op), graph, mesh, ranks).status();
    if (status.ok()) continue;
    const OpSharding& shard = *spec.shard;
    std::vector<std::vector<int64_t>> tuples;
    for (const TensorSharding& input : shard.inputs) tuples.push_back(input.pieces);
    const std::string prefix = absl::StrCat("operator \"", spec.name, "\" (", NameOf(graph.op(op).kind), "): ");
    return spec.where["shard"].Error(
        shard.is_layout() ? "a layout" : ShowTuples(tuples),
        absl::StrCat("one that fits ", NameOf(graph.op(op).kind), " on ", ranks, " devices"),
        absl::StripPrefix(status.message(), prefix));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDeviceNum(const ModelFile& file, const Cluster& cluster) {
  const std::optional<int64_t> wanted = file.parallel.device_num;
  if (!wanted.has_value() || *wanted == cluster.num_devices()) return absl::OkStatus();
  return WithKind("E-VALUE",
                  file.document.root()["parallel"]["device_num"].Error(
                      absl::StrCat(*wanted), absl::StrCat(cluster.num_devices(), ", the devices of the cluster"),
                      "change one of them, or leave it out"));
}

absl::Status CheckCards(const ModelFile& file, const Cluster& cluster, const Flags& flags) {
  if (cluster.nodes == 1 || cluster.nics_per_node > 0) return absl::OkStatus();
  constexpr absl::string_view kKey = "nics_per_node";
  const std::string wanted = absl::StrCat("at least 1 for ", cluster.nodes, " nodes");
  if (flags.Has(kKey)) return Flags::Wrong(kKey, WrongInput("0", wanted));
  const NodeRef section = file.cluster();
  if (!flags.Has("cluster") && section.is_map() && section[kKey].present()) return section[kKey].Error("0", wanted);
  return WrongInput(absl::StrCat(kKey, " 0"), wanted);
}

// Layers of each part of a pipeline, as the file deals them; how many parts there are flags may say.
absl::Status CheckLayers(const Session& session) {
  const Problem& problem = session.problem;
  if (problem.layers_per_stage.empty()) return absl::OkStatus();
  const NodeRef at = session.file->document.root()["parallel"]["layers_per_stage"];
  Strategy strategy;
  strategy.stages = problem.stages.value_or(1);
  strategy.chunks = problem.chunks.value_or(1);
  if (problem.schedule.has_value()) strategy.schedule = *problem.schedule;
  strategy.layers_per_stage = problem.layers_per_stage;
  const std::string found = absl::StrCat(problem.layers_per_stage.size(), " numbers");
  if (strategy.stages == 1) {
    return at.Error(found, "`pipeline_stages` of several stages beside it, or --stages");
  }
  if (const int64_t parts = strategy.stages * strategy.chunks;
      static_cast<int64_t>(problem.layers_per_stage.size()) != parts) {
    return at.Error(found,
                    absl::StrCat(parts, ", one for each of ", strategy.stages, " stages",
                                 strategy.chunks > 1 ? absl::StrCat(" x ", strategy.chunks, " chunks") : ""),
                    strategy.chunks > 1 ? "" : "chunks are `virtual_pipeline_stages`");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(1));
  return at.Locate(PartsOf(CutRuns(graph, strategy), strategy).status());
}

absl::Status CheckChoices(const Session& session, const Flags& flags) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckDegrees(session, flags));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLayers(session));
  MESHWRIGHT_RETURN_IF_ERROR(CheckBounds(session, flags));
  MESHWRIGHT_RETURN_IF_ERROR(CheckGroups(session, flags));
  MESHWRIGHT_RETURN_IF_ERROR(CheckMicroBatches(session, flags));
  return CheckShards(session);
}

absl::Status CheckKnobs(const Flags& flags, Session& session) {
  const ParallelMode mode = session.file->parallel.parallel_mode;
  const NodeRef in_file = session.file->document.root()["parallel"];
  for (const Choice& choice : kChoices) {
    const Knob& knob = *FindKnob(choice.knob);
    const bool flag = flags.Has(choice.flag);
    if (flag && !ActsIn(knob, mode) && flags.Text(choice.flag) != knob.fallback) {
      const absl::Status status = CheckMode(knob, mode);
      if (!status.ok()) return Flags::Wrong(choice.flag, status);
      session.notices.push_back(absl::StrCat("--", choice.flag, " has no effect in the mode ", NameOf(mode)));
    }
    if (ActsIn(knob, mode) && (flag || IsSet(in_file[choice.knob], knob))) {
      NoteOtherModels(flag ? absl::StrCat("--", choice.flag) : std::string(choice.knob), choice.whose, session);
    }
  }
  if (flags.Has("ignore_shards")) NoteOtherModels("--ignore_shards", Whose::kOperators, session);
  for (const Knob& knob : ParallelKnobs()) {  // what only auto_parallel has is the compatible search's
    if (knob.modes == ModeBit(ParallelMode::kAuto) && ActsIn(knob, mode) && IsSet(in_file[knob.name], knob) &&
        knob.name != "search_mode") {
      NoteOtherModels(std::string(knob.name), Whose::kOperators, session);
    }
  }
  NoteIdleGroups(session);
  NoteIdleParts(flags, session);
  return CheckOwners(flags, session);
}

}  // namespace meshwright
