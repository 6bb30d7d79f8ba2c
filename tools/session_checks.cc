#include "tools/session_checks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/error_kind.h"
#include "ir/mesh.h"
#include "ir/sharding.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

constexpr const char* kBoundFlags[] = {"max_stages", "max_tensor_parallel", "max_data_parallel", "max_expert_parallel",
                                       "max_context_parallel"};
constexpr absl::string_view kPlanningModes = "the modes that plan, semi_auto_parallel and auto_parallel";

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
  if (problem.mode != SearchMode::kDecoder || group == -1) return;
  constexpr absl::string_view kSize = "optimizer_weight_shard_size";
  if (!problem.parallel_optimizer.value_or(true)) {
    session.notices.push_back(absl::StrCat(kSize, " ", group, " has no effect without the parallel optimizer"));
  } else if (group == 1) {
    session.notices.push_back(absl::StrCat(
        kSize, " 1 is taken for -1, all replicas: it acts from 2 on; without the parallel optimizer nothing is split"));
  }
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
  return file.document.root()["parallel"]["device_num"].Error(
      absl::StrCat(*wanted), absl::StrCat(cluster.num_devices(), ", the devices of the cluster"),
      "change one of them, or leave it out");
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

absl::Status CheckChoices(const Session& session, const Flags& flags) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckDegrees(session, flags));
  MESHWRIGHT_RETURN_IF_ERROR(CheckBounds(session, flags));
  MESHWRIGHT_RETURN_IF_ERROR(CheckGroups(session, flags));
  return CheckShards(session);
}

void NoteIdleChoices(const Flags& flags, Session& session) {
  NoteIdleGroups(session);
  const auto note = [&](absl::string_view flag, absl::string_view whose) {
    if (flags.Has(flag)) session.notices.push_back(absl::StrCat("--", flag, " has no effect: it is for ", whose));
  };
  if (!session.file->is_decoder()) {
    for (const char* const flag :
         {"data_parallel", "tensor_parallel", "expert_parallel", "context_parallel", "context_exchange", "dispatcher",
          "spread_experts", "sequence_parallel", "microbatch"}) {
      note(flag, "decoders");
    }
    for (const char* const flag : kBoundFlags) note(flag, "decoders");
    for (const NodeRef& knob : session.file->document.root()["parallel"].children()) {
      if (!absl::StartsWith(knob.key(), "max_")) continue;
      session.notices.push_back(absl::StrCat(knob.key(), " has no effect: it is for decoders"));
    }
    return;
  }
  for (const char* const flag : {"search_mode", "ignore_shards"}) note(flag, "models of operators");
  if (session.problem.mode != SearchMode::kDecoder) {
    for (const char* const flag :
         {"data_parallel", "tensor_parallel", "stages", "virtual_pipeline_stages", "schedule", "expert_parallel",
          "dispatcher", "spread_experts", "context_parallel", "context_exchange", "sequence_parallel",
          "shard_parameters", "optimizer_weight_shard_size", "microbatch"}) {
      note(flag, kPlanningModes);
    }
    for (const char* const flag : kBoundFlags) note(flag, kPlanningModes);
    return;
  }
  const DecoderConfig& model = std::get<DecoderConfig>(session.file->model);
  const int64_t chunks = session.problem.chunks.value_or(1);
  if (chunks > 1 && 2 * chunks > model.layers) {
    session.notices.push_back(
        absl::StrCat(chunks, " chunks a stage (virtual_pipeline_stages) leave pipelines out: two stages have ",
                     2 * chunks, " chunks, and there are ", model.layers, " layers"));
  }
  if (model.experts > 0) return;
  for (const char* const flag : {"expert_parallel", "max_expert_parallel", "dispatcher", "spread_experts"}) {
    note(flag, "decoders with experts");
  }
}

}  // namespace meshwright
