#include "tools/session.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/cluster_flags.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/numbers.h"
#include "tools/session_checks.h"

namespace meshwright {
namespace {

constexpr int64_t kMostDegree = int64_t{1} << 32;
constexpr absl::string_view kPrecisions[] = {"float32", "float64", "bfloat16", "float16"};
constexpr absl::string_view kRecomputes[] = {"none", "selective", "full"};  // in the order of Recompute

// --- the model file --------------------------------------------------------------------------------------------------

// Operators of each stage follow each other; the first stages get one more.
void AssignStages(OperatorModel& model, int64_t parts) {
  const auto count = static_cast<int64_t>(model.operators.size());
  for (int64_t i = 0; i < count; ++i) {
    model.operators[static_cast<size_t>(i)].pipeline_stage = parts == 1 ? -1 : i * parts / count;
  }
}

void SetPrecision(ModelFile& file, DType dtype) {
  file.training.dtype = file.training.gradient_dtype = dtype;
  OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (model == nullptr) return;
  for (InputSpec& input : model->inputs) {
    if (InfoOf(input.dtype).floating) input.dtype = dtype;
  }
  for (ParameterSpec& parameter : model->parameters) {
    if (InfoOf(parameter.dtype).floating) parameter.dtype = dtype;
  }
}

// The sequence is part of a decoder's sizes, the other changes are made to what was read.
absl::StatusOr<ModelFile> Parse(const SourceFile& source, const ModelChanges& changes,
                                const ParallelFlags& flags = {}) {
  return ParseModelFile(source.text, source.path, source.config, changes.sequence.value_or(0), flags);
}

absl::Status ApplyChanges(const ModelChanges& changes, ModelFile& file) {
  if (changes.precision.has_value()) SetPrecision(file, *changes.precision);
  if (!file.is_decoder() && (changes.batch.has_value() || changes.sequence.has_value())) {
    return Flags::Wrong(
        changes.batch.has_value() ? "batch" : "sequence",
        WrongInput("a model of operators", "a decoder", "the shapes of its inputs say how many rows it has"));
  }
  if (!file.is_decoder() && changes.lora_rank.has_value()) {
    return Flags::Wrong("lora_rank", WrongInput("a model of operators", "a decoder",
                                                "a parameter that stays as it is has `trainable: false`"));
  }
  if (!file.is_decoder() && changes.float8_parameters.value_or(false)) {
    return Flags::Wrong("parameters", WrongInput("a model of operators", "a decoder", "a parameter has a `dtype`"));
  }
  if (changes.float8_parameters.has_value()) file.training.float8_parameters = *changes.float8_parameters;
  if (changes.batch.has_value()) file.training.batch = *changes.batch;
  if (changes.lora_rank.has_value()) {
    if (!file.training.lora.has_value()) file.training.lora.emplace();
    file.training.lora->rank = *changes.lora_rank;
  }
  if (changes.tokens.has_value()) file.training.tokens = *changes.tokens;
  OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (changes.stages.has_value() && model != nullptr) {
    const int64_t parts = *changes.stages == 1 ? 1 : *changes.stages * file.parallel.chunks();
    if (parts > static_cast<int64_t>(model->operators.size())) {
      return Flags::Wrong("stages",
                          WrongInput(absl::StrCat(*changes.stages),
                                     absl::StrCat("at most ", model->operators.size() / file.parallel.chunks(),
                                                  file.parallel.chunks() == 1 ? ", one per operator"
                                                                              : ", an operator for each chunk")));
    }
    AssignStages(*model, parts);
    file.parallel.pipeline_stages = *changes.stages;
  }
  if (changes != ModelChanges() && !file.by_hand()) {
    MESHWRIGHT_RETURN_IF_ERROR(BuildGraph(file, file.training.batch).status());
  }
  return absl::OkStatus();
}

// --- the problem -----------------------------------------------------------------------------------------------------

absl::StatusOr<SearchMode> ModeOf(const ModelFile& file, int64_t devices) {
  const Parallel& parallel = file.parallel;
  const bool stand_alone = parallel.parallel_mode == ParallelMode::kStandAlone;
  if (file.by_hand()) return SearchMode::kByHand;
  if (file.is_decoder()) {
    if (stand_alone) return SearchMode::kStandAlone;
    const bool data = parallel.parallel_mode == ParallelMode::kDataParallel ||
                      parallel.parallel_mode == ParallelMode::kHybridParallel;
    return data ? SearchMode::kDataParallel : SearchMode::kDecoder;
  }
  if (stand_alone || devices == 1) return SearchMode::kStandAlone;
  switch (parallel.parallel_mode) {
    case ParallelMode::kStandAlone:
      return SearchMode::kStandAlone;
    case ParallelMode::kDataParallel:
    case ParallelMode::kHybridParallel:
      return SearchMode::kDataParallel;
    case ParallelMode::kSemiAuto:
      return SearchMode::kDefaults;
    case ParallelMode::kAuto:
      break;
  }
  switch (parallel.search_mode.value_or(SearchKnob::kDynamicProgramming)) {
    case SearchKnob::kShardingPropagation:
      return SearchMode::kShardingPropagation;
    case SearchKnob::kRecursiveProgramming:
      return SearchMode::kRecursiveProgramming;
    case SearchKnob::kDynamicProgramming:
      break;
  }
  if (parallel.pipeline_stages > 1) {  // S12.11
    return file.document.root()["parallel"]["search_mode"].Locate(
        StateError("dynamic_programming (the default) plans no pipeline, and pipeline_stages is ",
                   parallel.pipeline_stages, "; use sharding_propagation or recursive_programming"));
  }
  const bool simulates = parallel.search_prices == SearchPricesKnob::kSimulation;
  return simulates ? SearchMode::kExhaustive : SearchMode::kDynamicProgramming;
}

// A knob that a decoder's planner is free to choose unless the file has it.
bool IsGiven(const ModelFile& file, absl::string_view knob) { return file.document.root()["parallel"][knob].present(); }

// S10.9: parameters that are read in several types, for example by some users through a Cast.
absl::StatusOr<std::vector<std::string>> ReadInSeveralTypes(const ModelFile& file) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, BuildGraph(file, file.training.batch));
  std::map<std::string, std::set<DType>> types;
  for (const Op& op : graph.ops) {
    for (TensorId id : op.inputs) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.kind != TensorKind::kParameter) continue;
      // An op of this one input is what changes the type, or it computes in it.
      const bool changes = op.inputs.size() == 1 && InfoOf(graph.tensor(op.outputs[0]).dtype).floating;
      types[tensor.name].insert(changes ? graph.tensor(op.outputs[0]).dtype : tensor.dtype);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, in] : types) {
    if (in.size() > 1) names.push_back(name);
  }
  return names;
}

// S10: one call for all gradients of operators, buckets for decoders, or what the file says.
absl::Status SetFusion(const ModelFile& file, Problem& problem, std::vector<std::string>& notices) {
  const CommFusion& fusion = file.parallel.comm_fusion;
  if (!fusion.open) {
    problem.bucket = Bytes(0);
    return absl::OkStatus();
  }
  if (!file.is_decoder()) problem.bucket = kOneBucket;
  problem.bucket_ends = file.parallel.all_reduce_fusion_config;
  if (fusion.allreduce.has_value()) {
    if (fusion.allreduce->mode == FusionRule::Mode::kIndex) {
      problem.bucket_ends = fusion.allreduce->last;
    } else {
      problem.bucket = fusion.allreduce->size;
    }
  }
  if (fusion.reducescatter.has_value()) problem.scatter_bucket = fusion.reducescatter->size;
  if (fusion.allgather.has_value()) problem.gather_bucket = fusion.allgather->size;
  MESHWRIGHT_ASSIGN_OR_RETURN(problem.fusion_ids, FusionIds(file));
  if (file.is_decoder() || file.by_hand()) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::string> several, ReadInSeveralTypes(file));
  for (const std::string& name : several) {
    problem.fusion_ids[name] = 0;
    notices.push_back(absl::StrCat("parameter \"", name, "\" is read in several types; its gradient is reduced alone"));
  }
  return absl::OkStatus();
}

// S11: which parameters the parallel optimizer may share out, and among how many.
void SetOptimizer(const ModelFile& file, Problem& problem) {
  const Parallel& parallel = file.parallel;
  problem.parallel_optimizer_threshold = parallel.parallel_optimizer_threshold;
  problem.optimizer_shard_size = parallel.optimizer_weight_shard_size;
  // X18: on where users of operators say nothing; decoders accumulate whole gradients then, as Megatron does.
  const NodeRef config = file.document.root()["parallel"]["parallel_optimizer_config"];
  problem.gradient_accumulation_shard =
      parallel.gradient_accumulation_shard && (!file.is_decoder() || config["gradient_accumulation_shard"].present());
  const OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (model == nullptr) return;
  if (problem.mode == SearchMode::kDataParallel) {
    for (const ParameterSpec& parameter : model->parameters) {
      if (parameter.layerwise_parallel) problem.own_parameters.insert(parameter.name);
    }
  }
  for (const ParameterSpec& parameter : model->parameters) {
    if (!parameter.parallel_optimizer) problem.optimizer_whole.insert(parameter.name);
  }
}

absl::Status SetChoices(const ModelFile& file, const ModelChanges& changes, Problem& problem,
                        std::vector<std::string>& notices) {
  const Parallel& parallel = file.parallel;
  const bool decoder = file.is_decoder();
  problem.tensor_parallel = parallel.tensor_parallel;
  problem.data_parallel = parallel.data_parallel;
  problem.expert_parallel = parallel.expert_parallel;
  problem.context_parallel = parallel.context_parallel;
  problem.max_stages = parallel.max_pipeline_stages;
  problem.max_tensor_parallel = parallel.max_tensor_parallel;
  problem.max_data_parallel = parallel.max_data_parallel;
  problem.max_expert_parallel = parallel.max_expert_parallel;
  problem.max_context_parallel = parallel.max_context_parallel;
  problem.context_exchange = parallel.context_exchange;
  problem.dispatcher = parallel.dispatcher;
  problem.spread_experts = parallel.spread_experts;
  problem.sequence_parallel = parallel.sequence_parallel;
  problem.microbatch = parallel.micro_batch;
  problem.microbatches = parallel.NumMicroBatches();
  if (!decoder || IsGiven(file, "pipeline_stages")) problem.stages = parallel.pipeline_stages;
  if (decoder && changes.stages.has_value()) problem.stages = changes.stages;
  if (!decoder || IsGiven(file, "enable_parallel_optimizer")) {
    problem.parallel_optimizer = parallel.enable_parallel_optimizer;
  } else if (problem.gradient_accumulation_shard) {
    problem.parallel_optimizer = true;  // which splitting gradients asks for
  }
  problem.shard_parameters = parallel.shard_parameters;
  if (parallel.recompute != RecomputeChoice::kAuto) problem.recompute = static_cast<Recompute>(parallel.recompute);
  problem.schedule = parallel.schedule;
  // S8.7: in data_parallel each rank's loss is of its own rows: where it is their mean, the sum of gradients is that of
  // the mean over all rows times the ranks.
  problem.gradients_mean = parallel.gradients_mean;
  problem.parameter_broadcast = parallel.parameter_broadcast;
  problem.gradient_fp32_sync = parallel.gradient_fp32_sync || problem.mode == SearchMode::kDataParallel;
  if (problem.mode == SearchMode::kDataParallel && file.training.loss_reduction == LossReduction::kMean) {
    problem.gradient_scale = static_cast<double>(problem.cluster.num_devices());
  }
  // S7.5: where nobody says anything the cheapest sequence is taken, whatever its operators.
  problem.all_to_all = parallel.enable_alltoall || !IsGiven(file, "enable_alltoall");
  problem.fuse_epilogues = parallel.fuse_epilogues;
  problem.fuse_loss = parallel.fuse_loss;
  problem.fuse_updates = parallel.fuse_updates;
  SetOptimizer(file, problem);
  MESHWRIGHT_RETURN_IF_ERROR(SetFusion(file, problem, notices));
  if (!decoder || IsGiven(file, "pipeline_config") || IsGiven(file, "virtual_pipeline_stages")) {
    problem.chunks = parallel.chunks();
  }
  if (decoder && !parallel.layers_per_stage.empty()) {
    problem.layers_per_stage = parallel.layers_per_stage;
    if (!problem.chunks.has_value()) problem.chunks = parallel.chunks();
  }

  // S12.4: a pipeline reports the sum over its micro-batches. Decoders report the mean, as everybody does for them.
  const bool sum = parallel.pipeline_loss == PipelineLoss::kSum;
  problem.loss_is_sum = IsGiven(file, "pipeline_loss")
                            ? sum
                            : !decoder && (problem.stages.value_or(1) > 1 || parallel.grad_accumulation_step > 1);
  return absl::OkStatus();
}

void SetOperatorChoices(const ModelFile& file, Problem& problem, std::vector<std::string>& notices) {
  problem.cost_model = file.parallel.cost_model;
  problem.enable_alltoall = file.parallel.enable_alltoall;
  const bool time = file.parallel.search_prices == SearchPricesKnob::kTime;
  problem.search_prices = time ? PriceKind::kTime : PriceKind::kBytes;
  switch (file.parallel.dataset_strategy) {
    case DatasetStrategy::kDataParallel:
      problem.feeding = Feeding::kDataParallel;
      break;
    case DatasetStrategy::kFullBatch:
      problem.feeding = Feeding::kFullBatch;
      break;
    case DatasetStrategy::kTuples:
      problem.feeding = Feeding::kTuples;
      problem.feeding_tuples = file.parallel.dataset_tuples;
      break;
  }
  const OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (model == nullptr) return;
  for (const OperatorSpec& op : model->operators) {
    if (op.shard.has_value()) problem.shards[op.name] = *op.shard;
  }
  if (!problem.shards.empty() && problem.mode == SearchMode::kStandAlone) {
    notices.push_back("on one rank `shard` has no effect");
  }
}

// Errors of the search begin with what they are about.
absl::Status LocateInModel(const ModelFile& file, const absl::Status& status) {
  const OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (model == nullptr) return status;
  const auto name_after = [&](absl::string_view what) {
    absl::string_view rest = status.message();
    return absl::ConsumePrefix(&rest, absl::StrCat(what, " \"")) ? rest.substr(0, rest.find('"')) : absl::string_view();
  };
  const NodeRef root = file.document.root();
  for (const OperatorSpec& op : model->operators) {
    if (op.name != name_after("operator")) continue;
    return (op.where["shard"].present() ? op.where["shard"] : op.where).Locate(status);
  }
  for (const absl::string_view section : {"parameters", "inputs"}) {
    const absl::string_view name = name_after(section.substr(0, section.size() - 1));
    if (!name.empty() && root[section][name].present()) return root[section][name].Locate(status);
  }
  if (absl::StartsWith(status.message(), "dataset_strategy: ")) {
    const NodeRef given = root["parallel"]["dataset_strategy"];
    return (given.present() ? given : root["inputs"]).Locate(status);
  }
  return status;
}

// What stands in for bfloat16 on devices before Ampere (PeakOf of costmodel/kernel_cost.cc).
void NoteMissingType(const ModelFile& file, const Device& device, std::vector<std::string>& notices) {
  if (file.training.dtype != DType::kBFloat16 || device.Peak(DType::kBFloat16).raw() > 0) return;
  const bool half = device.Peak(DType::kFloat16).raw() > 0;
  notices.push_back(absl::StrCat(device.name, " has no bfloat16, whose products are priced as in ",
                                 half ? "float16; --precision=float16 plans for that type, with a loss scale"
                                      : "float32; --precision=float32 plans for that type"));
}

// Only all-to-alls are slowed where nobody says what is on a leaf switch (simulator/network_links.h).
void NoteFabric(const Cluster& cluster, std::vector<std::string>& notices) {
  if (cluster.nodes == 1 || (cluster.oversubscription > 1) == (cluster.nodes_per_leaf > 0)) return;
  notices.push_back(cluster.nodes_per_leaf > 0
                        ? "nodes_per_leaf has no effect without oversubscription"
                        : "oversubscription slows all-to-alls alone, unless nodes_per_leaf says how many nodes are on "
                          "one leaf switch");
}

// As trainers have it: Megatron-Core takes `fp8_param` with `fp8` alone (transformer_config.py), torchao casts for its
// float8 linear layers.
absl::Status CheckParameters(const ModelFile& file, const Device& device) {
  if (!file.training.float8_parameters) return absl::OkStatus();
  const int bits = device.kernels.product_bits;
  if (bits == 8 && SizeOf(file.training.dtype) == Bytes(2)) return absl::OkStatus();
  const std::string found = absl::StrCat("weights in float8 for products in ", NameOf(file.training.dtype));
  return Flags::Wrong("parameters", WrongInput(found, "16-bit products that run in float8",
                                               bits == 8 ? "give --precision=bfloat16" : "give --products=float8"));
}

absl::StatusOr<Session> MakeSession(const SourceFile& source, ModelFile file, const ModelChanges& changes,
                                    Cluster cluster) {
  MESHWRIGHT_RETURN_IF_ERROR(ApplyChanges(changes, file));
  Session session;
  session.source = {source.path, source.text, file.config};
  session.changes = changes;
  session.notices = file.notices;
  session.notices.insert(session.notices.end(), file.parallel.warnings.begin(), file.parallel.warnings.end());
  Problem& problem = session.problem;
  MESHWRIGHT_ASSIGN_OR_RETURN(problem.mode, ModeOf(file, cluster.num_devices()));
  problem.name = file.name;
  problem.batch = file.training.batch;
  problem.tokens_per_row = std::max<int64_t>(1, file.training.sequence);
  problem.update = UpdateRule{file.training.optimizer.kind, file.training.optimizer.Attrs()};
  problem.update.others = file.training.optimizer.AttrsOfAdamW();
  if (const std::optional<LossScaling> scaling = file.training.LossScale(); scaling.has_value()) {
    problem.update.loss_scale = scaling->Attrs();
  }
  problem.gradient_dtype = file.training.gradient_dtype;
  problem.cluster = std::move(cluster);
  MESHWRIGHT_RETURN_IF_ERROR(CheckParameters(file, problem.cluster.device));
  NoteMissingType(file, problem.cluster.device, session.notices);
  NoteFabric(problem.cluster, session.notices);
  problem.memory_limit = file.context.max_device_memory;
  MESHWRIGHT_RETURN_IF_ERROR(SetChoices(file, changes, problem, session.notices));
  SetOperatorChoices(file, problem, session.notices);
  session.file = std::make_shared<const ModelFile>(std::move(file));
  const int64_t ranks = problem.cluster.num_devices();
  problem.graph = [file = session.file, ranks](int64_t rows) { return BuildGraph(*file, rows, ranks); };
  problem.locate = [file = session.file](const absl::Status& status) { return LocateInModel(*file, status); };
  std::vector<std::string> warnings;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, BuildGraph(*session.file, problem.batch, ranks, &warnings));
  MESHWRIGHT_ASSIGN_OR_RETURN(problem.recompute_ops, RecomputedOps(*session.file, graph));
  if (problem.mode == SearchMode::kByHand) {
    session.notices.insert(session.notices.end(), warnings.begin(), warnings.end());
  }
  return session;
}

// --- flags -----------------------------------------------------------------------------------------------------------

absl::StatusOr<ModelChanges> ChangesFrom(const Flags& flags) {
  ModelChanges changes;
  absl::string_view meant = DTypeNameOfShort(flags.Text("precision"));
  if (meant == "float8" || flags.Text("precision") == "float8") {
    return Flags::Wrong("precision", WrongInput("float8", absl::StrCat("one of ", ListNames(kPrecisions)),
                                                "--products=float8 multiplies in it"));
  }
  if (std::count(std::begin(kPrecisions), std::end(kPrecisions), meant) > 0) {
    return Flags::Wrong("precision", WrongInput(QuoteForMessage(flags.Text("precision")), std::string(meant)));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> precision, flags.Choice("precision", kPrecisions));
  if (precision.has_value()) changes.precision = DTypeFromName(kPrecisions[*precision]);
  MESHWRIGHT_ASSIGN_OR_RETURN(changes.batch, BatchFrom(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(changes.sequence, flags.Int("sequence", 1, kLongestSequence));
  MESHWRIGHT_ASSIGN_OR_RETURN(changes.lora_rank, flags.Int("lora_rank", 1, kHighestLoraRank));
  constexpr absl::string_view kParameters[] = {"bfloat16", "float8"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> parameters, flags.Choice("parameters", kParameters));
  if (parameters.has_value()) changes.float8_parameters = *parameters == 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(changes.stages, flags.Int("stages", 1, kMostDegree));
  if (flags.Has("tokens")) {
    const absl::StatusOr<double> tokens = ParseAmount(flags.Text("tokens"));
    if (!tokens.ok()) return Flags::Wrong("tokens", tokens.status());
    changes.tokens = *tokens;
  }
  return changes;
}

// The modes, in which the file is read.
absl::StatusOr<ParallelFlags> ParallelFlagsFrom(const Flags& flags) {
  ParallelFlags result;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> mode, flags.Choice("mode", kParallelModeNames));
  if (mode.has_value()) result.parallel_mode = static_cast<ParallelMode>(*mode);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> search, flags.Choice("search_mode", kSearchModeNames));
  if (search.has_value()) result.search_mode = static_cast<SearchKnob>(*search);
  return result;
}

// As if the file said so.
void SetInFile(const Flags& flags, ModelFile& file) {
  if (flags.Has("gradients_mean")) file.parallel.gradients_mean = flags.True("gradients_mean");
  OperatorModel* const model = std::get_if<OperatorModel>(&file.model);
  if (flags.True("ignore_shards") && model != nullptr) {
    for (OperatorSpec& op : model->operators) op.shard.reset();
  }
}

absl::Status SetBytes(const Flags& flags, absl::string_view name, Bytes& bytes) {
  if (!flags.Has(name)) return absl::OkStatus();
  const absl::StatusOr<Bytes> value = ParseBytes(flags.Text(name));
  if (!value.ok()) return Flags::Wrong(name, value.status());
  bytes = *value;
  return absl::OkStatus();
}

absl::Status SetPipelining(const Flags& flags, Problem& problem) {
  const bool decoder = problem.mode == SearchMode::kDecoder;
  std::vector<absl::string_view> names(std::begin(kScheduleNames), std::end(kScheduleNames));
  names.push_back("any");
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> schedule, flags.Choice("schedule", names));
  if (schedule.has_value() && names[*schedule] == "any") {
    if (!decoder) {
      return Flags::Wrong("schedule", WrongInput("any", "a model of repeated layers", "others have the one they name"));
    }
    problem.schedule.reset();
  } else if (schedule.has_value()) {
    problem.schedule = static_cast<Schedule>(*schedule);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> chunks,
                              flags.Int("virtual_pipeline_stages", 1, kMostDegree));
  if (chunks.has_value() && *chunks != problem.chunks && !decoder) {
    return Flags::Wrong("virtual_pipeline_stages",
                        WrongInput(absl::StrCat(*chunks), "a model of repeated layers",
                                   "of a model of operators the file says so (virtual_pipeline_stages)"));
  }
  if (chunks.has_value()) problem.chunks = chunks;
  const std::optional<int64_t> fixed = problem.schedule.has_value() ? ChunksOf(*problem.schedule) : std::nullopt;
  if (!fixed.has_value()) return absl::OkStatus();
  if (chunks.value_or(*fixed) != *fixed) {
    return Flags::Wrong("virtual_pipeline_stages", WrongInput(absl::StrCat(*chunks), absl::StrCat(*fixed),
                                                              absl::StrCat("with ", NameOf(*problem.schedule))));
  }
  problem.chunks = *fixed;
  return absl::OkStatus();
}

absl::Status SetChoices(const Flags& flags, bool decoder, Problem& problem) {
  struct Degree {
    absl::string_view name;
    std::optional<int64_t> Problem::*field;
  };
  constexpr Degree kDegrees[] = {
      {"data_parallel", &Problem::data_parallel},
      {"tensor_parallel", &Problem::tensor_parallel},
      {"expert_parallel", &Problem::expert_parallel},
      {"context_parallel", &Problem::context_parallel},
      {"microbatches", &Problem::microbatches},
      {"microbatch", &Problem::microbatch},
      {"max_data_parallel", &Problem::max_data_parallel},
      {"max_tensor_parallel", &Problem::max_tensor_parallel},
      {"max_expert_parallel", &Problem::max_expert_parallel},
      {"max_context_parallel", &Problem::max_context_parallel},
      {"max_stages", &Problem::max_stages},
  };
  for (const Degree& degree : kDegrees) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, flags.Int(degree.name, 1, kMostDegree));
    if (value.has_value()) problem.*degree.field = value;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const std::optional<size_t> way,
      flags.Choice("context_exchange", absl::MakeConstSpan(kContextExchangeNames).subspan(1)));  // without "none"
  if (way.has_value()) problem.context_exchange = static_cast<ContextExchange>(*way + 1);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> dispatcher, flags.Choice("dispatcher", kDispatcherNames));
  if (dispatcher.has_value()) problem.dispatcher = static_cast<Dispatcher>(*dispatcher);
  if (flags.Has("spread_experts")) problem.spread_experts = flags.Bool("spread_experts");
  if (flags.Has("sequence_parallel")) problem.sequence_parallel = flags.Bool("sequence_parallel");
  if (flags.Has("parallel_optimizer")) problem.parallel_optimizer = flags.Bool("parallel_optimizer");
  if (flags.Has("shard_parameters")) problem.shard_parameters = flags.Bool("shard_parameters");
  const bool alone = problem.shard_parameters.value_or(false) && !problem.parallel_optimizer.value_or(true);
  if (alone && !decoder && !flags.Has("shard_parameters")) problem.shard_parameters.reset();
  if (alone && problem.shard_parameters.has_value()) {
    return Flags::Wrong("shard_parameters",
                        absl::InvalidArgumentError("parameters are split with their optimizer state, "
                                                   "wanted the parallel optimizer with it"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> group,
                              flags.Int("optimizer_weight_shard_size", -1, kMostDegree));
  if (group.has_value()) {
    if (*group == 0) {
      return Flags::Wrong("optimizer_weight_shard_size", WrongInput("0", "-1 (all replicas) or a number of them"));
    }
    problem.optimizer_shard_size = group;
  }
  MESHWRIGHT_RETURN_IF_ERROR(SetBytes(flags, "parallel_optimizer_threshold", problem.parallel_optimizer_threshold));
  if (flags.Has("bucket")) {
    Bytes bucket;
    MESHWRIGHT_RETURN_IF_ERROR(SetBytes(flags, "bucket", bucket));
    problem.bucket = bucket;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> recompute, flags.Choice("recompute", kRecomputes));
  if (recompute.has_value()) problem.recompute = static_cast<Recompute>(*recompute);
  MESHWRIGHT_RETURN_IF_ERROR(SetPipelining(flags, problem));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> loss, flags.Choice("pipeline_loss", kPipelineLossNames));
  if (loss.has_value()) problem.loss_is_sum = static_cast<PipelineLoss>(*loss) == PipelineLoss::kSum;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Session> OpenModel(const SourceFile& source, const Flags& flags, std::optional<Cluster> cluster) {
  if (IsPlan(source.text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.path, ":1:1: schema: found a plan, wanted a model file; simulate and run take plans"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const ModelChanges changes, ChangesFrom(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ParallelFlags modes, ParallelFlagsFrom(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(ModelFile file, Parse(source, changes, modes));
  if (!source.config.empty()) {
    file.notices.push_back(
        absl::StrCat("planned in ", NameOf(changes.precision.value_or(file.training.dtype)),
                     " with AdamW; to plan otherwise, write a model file with `huggingface: config.json`"));
  }
  SetInFile(flags, file);
  const bool counted = cluster.has_value() || CountsDevices(flags);
  if (!cluster.has_value()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(cluster, ClusterFrom(file.cluster(), flags));
  }
  if (cluster->cpu_slowdown.has_value() && !flags.Has("trainer")) {
    file.notices.push_back(
        "cpu_slowdown has no effect on our own program; --trainer plans for one that CPUs slow down");
  }
  const absl::Status device_num = CheckDeviceNum(file, *cluster);
  if (!device_num.ok() && !counted) return device_num;
  if (!device_num.ok()) {
    file.notices.push_back(absl::StrCat("device_num ", *file.parallel.device_num, " of the file has no effect: there ",
                                        cluster->num_devices() == 1 ? "is " : "are ", cluster->num_devices(),
                                        cluster->num_devices() == 1 ? " device" : " devices"));
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckCards(file, *cluster, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(Session session, MakeSession(source, std::move(file), changes, *std::move(cluster)));
  MESHWRIGHT_RETURN_IF_ERROR(SetChoices(flags, session.file->is_decoder(), session.problem));
  MESHWRIGHT_RETURN_IF_ERROR(CheckKnobs(flags, session));
  MESHWRIGHT_RETURN_IF_ERROR(CheckChoices(session, flags));
  return session;
}

absl::StatusOr<Session> ReopenModel(const SourceFile& source, const ModelChanges& changes, Cluster cluster) {
  MESHWRIGHT_ASSIGN_OR_RETURN(ModelFile file, Parse(source, changes));
  return MakeSession(source, std::move(file), changes, std::move(cluster));
}

std::string ShowBatch(const Problem& problem) {
  if (problem.tokens_per_row == 1) return absl::StrCat(ShowCount(problem.batch), " rows");
  return absl::StrCat(ShowCount(problem.batch), " x ", ShowCount(problem.tokens_per_row), " tokens");
}

}  // namespace meshwright
