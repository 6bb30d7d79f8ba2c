#include "tools/export/recipe.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ir/document.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "models/decoder_layers.h"
#include "models/model_file.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/search/degrees.h"

namespace meshwright {
namespace {

int64_t DegreeOf(const Mesh& mesh, const std::string& axis) {
  const AxisId id = mesh.Find(axis);
  return id.valid() ? mesh.axis(id).size : 1;
}

bool SameRules(const Strategy& a, const Strategy& b) {
  const auto same = [](const LabelRule& x, const LabelRule& y) { return x.label == y.label && x.axes == y.axes; };
  return a.mesh == b.mesh && std::equal(a.rules.begin(), a.rules.end(), b.rules.begin(), b.rules.end(), same);
}

// Rows over all ranks and nothing else, on whatever axes: what the modes make that do not plan.
bool SplitsRowsAlone(const Strategy& strategy) {
  const bool rows = std::all_of(strategy.rules.begin(), strategy.rules.end(), [&](const LabelRule& rule) {
    return (rule.label == "b" || rule.label == "c") && strategy.mesh.SizeOf(rule.axes) == strategy.mesh.num_ranks();
  });
  return rows && !strategy.rules.empty() && strategy.stages == 1 && strategy.ops.empty() &&
         !strategy.parallel_optimizer && strategy.own_parameters.empty();
}

// The layers of each part as the strategy deals them: as it says, or evenly, the first parts one more.
std::vector<int64_t> LayersOf(const Strategy& strategy, const DecoderConfig& model) {
  if (!strategy.layers_per_stage.empty()) return strategy.layers_per_stage;
  return EvenLayers(model.layers, strategy.stages * strategy.chunks);
}

// Of the whole run: as many as the tokens take that a flag gave, or else those of the file, or as its tokens take.
int64_t StepsOf(const Session& session) {
  const Training& t = session.file->training;
  const NodeRef given = session.file->document.root()["training"];
  const bool counted = !session.changes.tokens.has_value() && (given["steps"].present() || given["epochs"].present());
  if (t.tokens <= 0 || counted) return t.steps;
  const double steps = std::ceil(t.tokens / (static_cast<double>(t.batch) * static_cast<double>(t.sequence)));
  return steps < 0x1p62 ? static_cast<int64_t>(steps) : t.steps;
}

}  // namespace

bool Recipe::even_layers() const {
  return std::all_of(layers.begin(), layers.end(), [&](int64_t n) { return n == layers.front(); });
}

std::string PlainName(absl::string_view name) {
  std::string plain;
  for (const char c : name) {
    plain.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' ? c : '_');
  }
  return plain.empty() ? "plan" : plain;
}

std::string NameOfProducts(const Recipe& recipe) {
  return recipe.product_bits() > 0 ? absl::StrCat("float", recipe.product_bits()) : "";
}

absl::StatusOr<Recipe> RecipeOf(const Plan& plan) {
  const ModelFile& file = *plan.session.file;
  const Problem& problem = plan.session.problem;
  const Strategy& strategy = plan.strategy;
  if (!file.is_decoder()) {
    return absl::UnimplementedError(absl::StrCat(
        "found a model of operators, wanted a decoder: trainers of decoders know no strategies of single operators; "
        "`export --to=mindspore` writes those"));
  }
  if (std::get<DecoderConfig>(file.model).classes > 0) {
    return absl::UnimplementedError(
        "found `classes`, wanted none: trainers of decoders have the vocabulary's output layer; leave it out of the "
        "model");
  }
  Recipe recipe;
  recipe.name = PlainName(file.name);
  recipe.model = std::get<DecoderConfig>(file.model);
  recipe.training = file.training;
  recipe.training.steps = StepsOf(plan.session);
  recipe.cluster = problem.cluster;
  recipe.promise = plan.promise;
  recipe.pipeline = DegreeOf(strategy.mesh, "pp");
  const AxisList context = ContextAxes(strategy.mesh);
  recipe.context = strategy.mesh.SizeOf(context);
  const int64_t expert_data = DegreeOf(strategy.mesh, "ep") * DegreeOf(strategy.mesh, "eg");
  const auto over_context = [&](const LabelRule& rule) {
    return rule.label == "e" && !context.empty() && absl::c_linear_search(rule.axes, context.back());
  };
  recipe.expert =
      expert_data * (absl::c_any_of(strategy.rules, over_context) ? strategy.mesh.axis(context.back()).size : 1);
  recipe.expert_groups = strategy.expert_groups;
  recipe.spread_experts = std::any_of(strategy.rules.begin(), strategy.rules.end(),
                                      [](const LabelRule& rule) { return rule.label == "x"; });
  const bool rows_alone = SplitsRowsAlone(strategy);
  recipe.copies = DegreeOf(strategy.mesh, "copy");
  recipe.data = rows_alone ? strategy.mesh.num_ranks() : recipe.copies * DegreeOf(strategy.mesh, "dp") * expert_data;
  recipe.tensor = DegreeOf(strategy.mesh, "tp") * DegreeOf(strategy.mesh, "again");
  recipe.exchange = strategy.context;
  recipe.chunks = strategy.chunks;
  const AxisId tp = strategy.mesh.Find("tp"), again = strategy.mesh.Find("again");
  recipe.sequence_parallel = std::any_of(strategy.rules.begin(), strategy.rules.end(), [&](const LabelRule& rule) {
    return rule.label == "s" &&
           std::any_of(rule.axes.begin(), rule.axes.end(), [&](AxisId axis) { return axis == tp || axis == again; });
  });
  recipe.batch = problem.batch;
  recipe.microbatches = strategy.microbatches;
  recipe.microbatch = problem.batch / strategy.microbatches / recipe.data;
  recipe.schedule = strategy.schedule;
  recipe.recompute = strategy.recompute;
  recipe.layers = LayersOf(strategy, recipe.model);
  recipe.shard_optimizer = strategy.parallel_optimizer;
  recipe.shard_parameters = strategy.shard_parameters;
  recipe.bucket_elements = strategy.bucket.raw() / SizeOf(strategy.gradient_dtype).raw();

  const Degrees degrees = {.data = recipe.data,
                           .tensor = recipe.tensor,
                           .pipeline = recipe.pipeline,
                           .expert = recipe.expert,
                           .context = recipe.context,
                           .copies = recipe.copies,
                           .expert_groups = recipe.expert_groups,
                           .spread_experts = recipe.spread_experts,
                           .sequence_parallel = recipe.sequence_parallel,
                           .exchange = recipe.exchange,
                           .microbatch = std::max<int64_t>(recipe.microbatch, 1)};
  const absl::StatusOr<Strategy> meant = FromDegrees(problem, degrees);
  recipe.sums_gradients = strategy.gradient_scale != 1 && !strategy.gradients_mean;
  if (!meant.ok() || strategy.optimizer_shard_size > 1 || !(rows_alone || SameRules(*meant, strategy)) ||
      meant->microbatches != strategy.microbatches || !strategy.ops.empty() || !strategy.recompute_ops.empty()) {
    return absl::UnimplementedError(
        "the plan's strategy is not one of data, tensor, pipeline, context and expert parallelism alone, which is all "
        "that "
        "trainers of decoders take; plan the model without `ops` of its own");
  }
  return recipe;
}

}  // namespace meshwright
