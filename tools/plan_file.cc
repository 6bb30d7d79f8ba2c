#include "tools/plan_file.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "costmodel/library.h"
#include "ir/document.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/cluster_flags.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

constexpr absl::string_view kSchema = "meshwright/plan/1";

// The lines of `text`, each behind two spaces.
std::string Indented(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const absl::string_view line = text.substr(0, end);
    absl::StrAppend(&out, line.empty() ? "" : "  ", line, "\n");
    if (end == absl::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

// `text` as a YAML block that reads back byte for byte.
std::string BlockText(absl::string_view text) {
  return absl::StrCat(absl::EndsWith(text, "\n") ? "|2+\n" : "|2-\n", Indented(text));
}

std::string ToYaml(const ModelChanges& changes) {
  std::vector<std::string> fields;
  if (changes.precision.has_value()) fields.push_back(absl::StrCat("precision: ", NameOf(*changes.precision)));
  if (changes.batch.has_value()) fields.push_back(absl::StrCat("batch: ", *changes.batch));
  if (changes.sequence.has_value()) fields.push_back(absl::StrCat("sequence: ", *changes.sequence));
  if (changes.lora_rank.has_value()) fields.push_back(absl::StrCat("lora_rank: ", *changes.lora_rank));
  if (changes.float8_parameters.has_value()) {
    fields.push_back(absl::StrCat("parameters: ", *changes.float8_parameters ? "float8" : "bfloat16"));
  }
  if (changes.stages.has_value()) fields.push_back(absl::StrCat("stages: ", *changes.stages));
  if (changes.tokens.has_value()) fields.push_back(absl::StrCat("tokens: ", ShortestNumber(*changes.tokens)));
  return absl::StrCat("{", absl::StrJoin(fields, ", "), "}");
}

absl::StatusOr<ModelChanges> ReadChanges(const NodeRef& in) {
  ModelChanges changes;
  if (!in.present()) return changes;
  MESHWRIGHT_RETURN_IF_ERROR(
      in.CheckKeys({"precision", "batch", "sequence", "lora_rank", "parameters", "stages", "tokens"}));
  if (in["precision"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(changes.precision, ReadDType(in["precision"], DType::kFloat32, /*floating=*/true));
  }
  if (in["batch"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(changes.batch, in["batch"].AsInt(1));
  }
  if (in["sequence"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(changes.sequence, in["sequence"].AsInt(1));
  }
  if (in["lora_rank"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(changes.lora_rank, in["lora_rank"].AsInt(1, kHighestLoraRank));
  }
  if (in["parameters"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t parameters, in["parameters"].AsChoice({"bfloat16", "float8"}));
    changes.float8_parameters = parameters == 1;
  }
  if (in["stages"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(changes.stages, in["stages"].AsInt(1));
  }
  if (in["tokens"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(changes.tokens, in["tokens"].AsDouble(1));
  }
  return changes;
}

absl::StatusOr<PlanPromise> ReadPromise(const NodeRef& in) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"step_time", "mfu", "tokens_per_second", "peak_memory", "trainer"}));
  PlanPromise promise;
  MESHWRIGHT_ASSIGN_OR_RETURN(promise.step, in["step_time"].AsNanos());
  MESHWRIGHT_ASSIGN_OR_RETURN(promise.mfu, in["mfu"].AsDouble(0));
  MESHWRIGHT_ASSIGN_OR_RETURN(promise.tokens_per_second, in["tokens_per_second"].AsDouble(0));
  MESHWRIGHT_ASSIGN_OR_RETURN(promise.peak, in["peak_memory"].AsBytes());
  if (in["trainer"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(promise.trainer, in["trainer"].AsString());
  }
  return promise;
}

}  // namespace

PlanPromise PromiseOf(const Prediction& prediction, absl::string_view trainer) {
  return {prediction.step, prediction.mfu, prediction.tokens_per_second, prediction.peak, std::string(trainer)};
}

std::string ToYaml(const Plan& plan) {
  const Session& session = plan.session;
  const PlanPromise& promise = plan.promise;
  std::string text = "# Written by Meshwright's plan; simulate and run read it.\n";
  absl::StrAppend(&text, "schema: ", kSchema, "\ntool: meshwright\nname: ", QuoteYaml(session.problem.name), "\n");
  absl::StrAppend(&text, "predicted: {step_time: ", promise.step.raw(), " ns, mfu: ", ShortestNumber(promise.mfu),
                  ", tokens_per_second: ", ShortestNumber(promise.tokens_per_second),
                  ", peak_memory: ", promise.peak.raw(), " B",
                  promise.trainer.empty() ? "" : absl::StrCat(", trainer: ", QuoteYaml(promise.trainer)), "}\n");
  absl::StrAppend(&text, "cluster: ", ToYaml(session.problem.cluster), "\n");
  if (session.changes != ModelChanges()) absl::StrAppend(&text, "changes: ", ToYaml(session.changes), "\n");
  absl::StrAppend(&text, "strategy:\n", Indented(ToText(plan.strategy)));
  if (!session.source.config.empty()) absl::StrAppend(&text, "config: ", BlockText(session.source.config));
  absl::StrAppend(&text, "model_file: ", QuoteYaml(session.source.path), "\nmodel: ", BlockText(session.source.text));
  return text;
}

absl::StatusOr<Plan> ParsePlan(const SourceFile& source, const ModelChanges& changes) {
  if (!IsPlan(source.text)) {
    // Another encoding hides the schema, too.
    if (!source.text.empty()) MESHWRIGHT_RETURN_IF_ERROR(ParseDocument(source.text, source.path).status());
    return absl::InvalidArgumentError(
        absl::StrCat(source.path, ":1:1: schema: found nothing, wanted a plan; plan writes one from a model file"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(source.text, source.path));
  const NodeRef in = document.root();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string schema, in["schema"].AsString());
  if (schema != kSchema) {
    return in["schema"].Error(QuoteForMessage(schema), kSchema, "plan again with this version of Meshwright");
  }
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(
      {"schema", "tool", "name", "predicted", "cluster", "changes", "strategy", "config", "model_file", "model"}));
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.promise, ReadPromise(in["predicted"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, ReadCluster(in["cluster"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.strategy, ReadStrategy(in["strategy"]));
  MESHWRIGHT_ASSIGN_OR_RETURN(ModelChanges all, ReadChanges(in["changes"]));
  if (changes.precision.has_value()) {
    all.precision = changes.precision;
    plan.strategy.gradient_dtype = *changes.precision;
  }
  if (plan.strategy.mesh.num_ranks() > cluster.num_devices()) {
    return in["strategy"]["mesh"].Error(
        absl::StrCat(plan.strategy.mesh.num_ranks(), " ranks"),
        absl::StrCat("at most ", cluster.num_devices(), ", the devices of the cluster"));
  }
  SourceFile model;
  MESHWRIGHT_ASSIGN_OR_RETURN(model.text, in["model"].AsString());
  MESHWRIGHT_ASSIGN_OR_RETURN(model.path, in["model_file"].AsString());
  MESHWRIGHT_ASSIGN_OR_RETURN(model.config, in["config"].AsStringOr(""));
  absl::StatusOr<Session> session = ReopenModel(model, all, std::move(cluster));
  if (!session.ok()) {
    return absl::Status(session.status().code(), absl::StrCat(source.path, ":", in["model"].line(),
                                                              ": the model in it: ", session.status().message()));
  }
  plan.session = *std::move(session);
  return plan;
}

absl::StatusOr<Plan> ParsePlan(const SourceFile& source, const Flags& flags) {
  for (const FlagSpec& flag : StrategyFlags()) {
    if (flag.name == "precision" || !flags.Has(flag.name)) continue;
    return Flags::Wrong(flag.name, WrongInput("it with a plan, which has made that choice", "a model file",
                                              "or make another plan with it"));
  }
  constexpr absl::string_view kPrecisions[] = {"float32", "float64", "bfloat16", "float16"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> precision, flags.Choice("precision", kPrecisions));
  ModelChanges changes;
  if (precision.has_value()) changes.precision = DTypeFromName(kPrecisions[*precision]);
  return ParsePlan(source, changes);
}

absl::StatusOr<Program> ProgramOf(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation, Evaluate(plan.session.problem, plan.strategy));
  return std::move(evaluation.program);
}

}  // namespace meshwright
