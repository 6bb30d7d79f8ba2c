#include "tools/validate/run_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/graph.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "models/decoder.h"
#include "tools/validate/pipeline_text.h"
#include "tools/validate/row_model.h"

namespace meshwright {
namespace {

constexpr Bytes kEverything = GiB(1 << 20);
constexpr int64_t kLeastVocabPerPadding = 32;

// Only the scales of each layer's first norm train: adapters are as small, and gradients reach them through the same
// products.
void FreezeWeights(Graph* graph) {
  for (Tensor& tensor : graph->tensors) {
    if (tensor.kind == TensorKind::kParameter) tensor.trainable = absl::EndsWith(tensor.name, "norm1.gamma");
  }
}

// Operators of these names in every kind of layer.
std::set<std::string> InAllLayers(const std::set<std::string>& names, const DecoderConfig& model) {
  std::set<std::string> all;
  for (const std::string& prefix : LayerPrefixes(model)) {
    for (const std::string& name : names) all.insert(absl::StrCat(prefix, name));
  }
  return all;
}

void FuseNamed(const std::set<std::string>& names, Graph* graph) {
  for (Op& op : graph->ops) {
    if (names.contains(op.name)) op.attrs.fused = true;
  }
}

double HeadParameters(const DecoderConfig& model) {
  return static_cast<double>(model.vocab) * static_cast<double>(model.hidden);
}

double LayerParameters(const DecoderConfig& model) {
  const double ends = HeadParameters(model) * (model.tied_embeddings ? 1 : 2);
  return (NumParameters(model) - ends) / static_cast<double>(model.layers);
}

// NeMo's recipes interleave as much as there are layers (NeMo-Framework-Launcher, conf/training: "set to maximum"),
// which takes whole rounds of micro-batches; so do those whose number is not said.
int64_t ChunksOf(const TrainingRun& run) {
  const int64_t stages = run.degrees.pipeline, layers = run.model.layers;
  const int64_t microbatches = run.training.batch / std::max<int64_t>(1, run.degrees.data * run.degrees.microbatch);
  const bool divides = run.model.layer_pattern.empty() && layers % stages == 0 && microbatches % stages == 0;
  return run.most_chunks && stages > 1 && divides ? layers / stages : run.chunks;
}

}  // namespace

Problem ProblemOf(const TrainingRun& run) {
  Problem problem;
  problem.batch = run.training.batch;
  problem.tokens_per_row = run.training.sequence;
  problem.update = {run.training.optimizer.kind, run.training.optimizer.Attrs()};
  problem.update.others = run.training.optimizer.AttrsOfAdamW();
  problem.gradient_dtype = run.gradient_dtype;
  problem.cluster = run.cluster;
  problem.schedule = run.schedule;
  problem.chunks = ChunksOf(run);
  problem.fuse_epilogues = problem.fuse_loss = false;  // they run a kernel for each
  problem.host = run.host;
  problem.recompute = run.recompute;
  problem.recompute_ops = InAllLayers(run.recompute_ops, run.model);
  problem.parallel_optimizer = run.parallel_optimizer;
  problem.shard_parameters = run.shard_parameters;
  if (run.bucket > 0 && !run.shard_parameters) {
    problem.bucket = SizeOf(run.gradient_dtype) * run.bucket;
    problem.gather_bucket = SizeOf(run.training.TypeOfWeights()) * run.bucket;
  }
  // Frameworks from before fused attention reduce all gradients at once, after the last micro-batch; so does nanotron
  // with ZeRO-1 (trainer.py, sync_gradients_across_dp). Where parameters are split, a call moves a layer.
  const bool afterwards = (run.nanotron && run.parallel_optimizer) || run.reduces_afterwards;
  if (!run.training.fused_attention || run.shard_parameters || afterwards) problem.bucket = kEverything;
  if (run.call_each_tensor) problem.bucket = Bytes();
  if (run.nanotron) problem.gather_bucket = kEverything;
  // Frameworks pad flat buffers; ours splits rows, so the vocabulary gets some more where that is little.
  DecoderConfig model = run.model;
  const int64_t sharing = run.degrees.data * run.degrees.context / run.degrees.copies;
  // Between groups each layer's rows are added up behind their reduce-scatter (PyTorch, fsdp/_runtime_utils.py,
  // _reduce_grad: an all-reduce of the unit's shard over `_inter_node_pg`).
  if (run.shard_parameters && run.degrees.copies > 1) {
    const double rows = LayerParameters(model) / static_cast<double>(run.degrees.tensor * sharing);
    problem.bucket = SizeOf(run.gradient_dtype) * std::llround(std::ceil(rows));
  }
  const int64_t padded = std::lcm(model.vocab_multiple, run.degrees.tensor * sharing);
  if (run.parallel_optimizer && model.vocab_multiple > 1 && padded <= model.vocab / kLeastVocabPerPadding)
    model.vocab_multiple = padded;
  problem.graph = [model, training = run.training, frozen = run.frozen,
                   fused = InAllLayers(run.fused_ops, model)](int64_t rows) -> absl::StatusOr<Graph> {
    MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, BuildDecoder(model, training, "row", rows));
    if (frozen) FreezeWeights(&graph);
    FuseNamed(fused, &graph);
    return graph;
  };
  return problem;
}

std::vector<int64_t> LayersPerStage(const TrainingRun& run) {
  const int64_t stages = run.degrees.pipeline;
  if (!run.parts.empty() && stages > 1) return run.parts;
  if (run.ends_count && stages > 1) return LayersWithEnds(run.model.layers, stages * ChunksOf(run));
  if (!run.balanced_stages || stages == 1 || run.chunks > 1) return {};
  const double head = HeadParameters(run.model), layer = LayerParameters(run.model);
  const double layers = static_cast<double>(run.model.layers);
  if (!run.nanotron) {  // operations, a multiple of those of a parameter: attention's are 12 s h, all keys counted
    const double scores = 2 * static_cast<double>(run.training.sequence * run.model.hidden);
    return LayersBesideHead(run.model.layers, stages, head / (layer + scores));
  }
  std::vector<int64_t> counts(static_cast<size_t>(stages), 0);
  size_t stage = 0;
  for (int64_t i = 1; i <= run.model.layers; ++i) {
    ++counts[stage];
    const double share = (layers * layer + head) * static_cast<double>(stage + 1) / static_cast<double>(stages);
    if (static_cast<double>(i) * layer > share && stage + 1 < counts.size()) ++stage;
  }
  if (std::count(counts.begin(), counts.end(), 0) > 0) return {};
  return counts;
}

TrainingRun WithDividingDegree(const TrainingRun& run) {
  const int64_t data = run.degrees.data, context = run.degrees.context, hidden = run.model.hidden;
  const int64_t ffn = std::max<int64_t>(1, run.model.ffn / run.degrees.tensor);
  const auto divides = [&](int64_t degree) {
    return hidden % (degree * context) == 0 && ffn % (degree * context) == 0;
  };
  if (!run.parallel_optimizer || run.degrees.expert > 1 || divides(data / run.degrees.copies)) return run;
  int64_t nearest = 1;
  const auto distance = [&](int64_t degree) {
    return std::abs(std::log(static_cast<double>(degree) / static_cast<double>(data)));
  };
  for (int64_t degree = 1; degree <= std::min(hidden, 2 * data); ++degree) {
    if (divides(degree) && distance(degree) < distance(nearest)) nearest = degree;
  }
  TrainingRun near = run;
  near.degrees.data = nearest;
  near.degrees.copies = 1;
  near.training.batch = run.training.batch / data * nearest;
  const int64_t per_node = run.cluster.devices_per_node;
  near.cluster.nodes = (run.cluster.num_devices() / data * nearest + per_node - 1) / per_node;
  return near;
}

}  // namespace meshwright
