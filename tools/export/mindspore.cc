// MindSpore: a strategy for each operator of a model of operators, and the context that goes with them.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/graph.h"
#include "ir/status.h"
#include "tools/export/writers.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

absl::string_view True(bool value) { return value ? "True" : "False"; }

// layout("dp", ("sp", "mp"), "None")
std::string CallOf(const Layout& layout, const Mesh& mesh) {
  std::vector<std::string> dims;
  for (const AxisList& axes : layout.dims) {
    std::vector<std::string> names;
    for (const AxisId id : axes) names.push_back(absl::StrCat("\"", mesh.axis(id).name, "\""));
    dims.push_back(names.empty()       ? "\"None\""
                   : names.size() == 1 ? names[0]
                                       : absl::StrCat("(", absl::StrJoin(names, ", "), ")"));
  }
  return absl::StrCat("layout(", absl::StrJoin(dims, ", "), ")");
}

std::vector<int64_t> PiecesOf(const Layout& layout, const Mesh& mesh) {
  std::vector<int64_t> pieces;
  for (const AxisList& axes : layout.dims) pieces.push_back(mesh.SizeOf(axes));
  return pieces;
}

// One tuple or layout per input; `out_strategy` behind them where there is one. Tuples where these mean the same.
struct Written {
  std::string in, out;
  bool layouts = false;
};
Written WriteStrategy(const OpStrategy& strategy, const Op& op, const Graph& graph, const Mesh& mesh, int64_t ranks) {
  std::vector<std::vector<int64_t>> tuples;
  for (const Layout& input : strategy.inputs) tuples.push_back(PiecesOf(input, mesh));
  const absl::StatusOr<OpStrategy> meant = FromTuples(op, graph, tuples, mesh, ranks);
  Written written;
  written.layouts = !meant.ok() || meant->inputs != strategy.inputs;
  if (written.layouts) {
    std::vector<std::string> calls;
    for (const Layout& input : strategy.inputs) calls.push_back(CallOf(input, mesh));
    written.in = absl::StrCat("(", absl::StrJoin(calls, ", "), calls.size() == 1 ? ",)" : ")");
  } else {
    written.in = ShowTuples(tuples);
  }
  if (strategy.output.has_value()) {
    written.out = written.layouts ? absl::StrCat("(", CallOf(*strategy.output, mesh), ",)")
                                  : ShowTuples({PiecesOf(*strategy.output, mesh)});
  }
  return written;
}

// The axes of one stage, as a Layout's device matrix. kUnimplemented where they are not those of one row-major matrix.
absl::StatusOr<std::string> LayoutLine(const Mesh& mesh, int64_t ranks_per_stage) {
  std::vector<std::string> sizes, names;
  int64_t stride = ranks_per_stage;
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.stride >= ranks_per_stage) continue;
    if (axis.size * axis.stride != stride) {
      return absl::UnimplementedError(
          absl::StrCat("the mesh \"", ToText(mesh), "\" is not one device matrix, which a Layout needs"));
    }
    stride = axis.stride;
    sizes.push_back(absl::StrCat(axis.size));
    names.push_back(absl::StrCat("\"", axis.name, "\""));
  }
  const absl::string_view comma = sizes.size() == 1 ? "," : "";
  return absl::StrCat("layout = Layout((", absl::StrJoin(sizes, ", "), comma, "), (", absl::StrJoin(names, ", "), comma,
                      "))\n");
}

// What the parallel optimizer splits among whom, where it is not what MindSpore does without a word (S11.9).
std::string OptimizerConfig(const Strategy& strategy) {
  std::vector<std::string> keys;
  const int64_t threshold = strategy.parallel_optimizer_threshold.raw(), kib = KiB(1).raw();
  if (strategy.parallel_optimizer_threshold != KiB(64)) {
    keys.push_back(absl::StrCat("\"parallel_optimizer_threshold\": ", (threshold + kib - 1) / kib));
  }
  if (strategy.optimizer_shard_size > 1) {
    keys.push_back(absl::StrCat("\"optimizer_weight_shard_size\": ", strategy.optimizer_shard_size));
  }
  if (!strategy.parallel_optimizer || keys.empty()) return "";
  return absl::StrCat(",\n    parallel_optimizer_config={", absl::StrJoin(keys, ", "), "}");
}

std::string ContextCall(const Plan& plan) {
  const Strategy& s = plan.strategy;
  const Problem& problem = plan.session.problem;
  std::string text =
      absl::StrCat("mindspore.set_auto_parallel_context(\n    parallel_mode=\"semi_auto_parallel\",\n    device_num=",
                   s.mesh.num_ranks(), ",\n    gradients_mean=", True(s.gradients_mean),
                   ",\n    gradient_fp32_sync=", True(s.gradient_fp32_sync),
                   ",\n    enable_parallel_optimizer=", True(s.parallel_optimizer));
  absl::StrAppend(&text, OptimizerConfig(s));
  if (s.stages > 1) absl::StrAppend(&text, ",\n    pipeline_stages=", s.stages);
  switch (problem.feeding) {
    case Feeding::kDataParallel:
      absl::StrAppend(&text, ",\n    dataset_strategy=\"data_parallel\"");
      break;
    case Feeding::kFullBatch:
      absl::StrAppend(&text, ",\n    dataset_strategy=\"full_batch\"");
      break;
    case Feeding::kTuples:
      absl::StrAppend(&text, ",\n    dataset_strategy=", ShowTuples(problem.feeding_tuples));
  }
  const int64_t megabytes = s.bucket.raw() / (1 << 20);
  if (s.bucket.raw() == 0) absl::StrAppend(&text, ",\n    comm_fusion={\"openstate\": False}");
  if (megabytes > 0 && s.bucket < kOneBucket) {
    absl::StrAppend(&text, ",\n    comm_fusion={\"allreduce\": {\"mode\": \"size\", \"config\": ", megabytes, "}}");
  }
  return absl::StrCat(text, ")\n");
}

// What goes around the network for several micro-batches.
std::string Microbatches(const Strategy& strategy) {
  if (strategy.microbatches == 1) return "";
  const absl::string_view cell = strategy.stages > 1 ? "PipelineCell" : "GradAccumulationCell";
  return absl::StrCat("\n\ndef in_micro_batches(network_with_loss):\n    return mindspore.nn.", cell,
                      "(network_with_loss, ", strategy.microbatches, ")\n");
}

}  // namespace

absl::StatusOr<Exported> ToMindSpore(const Plan& plan) {
  const Strategy& strategy = plan.strategy;
  if (plan.session.file->is_decoder()) {
    return absl::UnimplementedError(
        "found a decoder, wanted a model of operators: MindSpore's decoders are split by the configuration of their "
        "library; `export --to=megatron` writes this one");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, plan.session.problem.graph(plan.session.problem.batch));
  const int64_t ranks = strategy.mesh.num_ranks() / strategy.stages;
  Exported out;
  if (strategy.schedule != Schedule::kOneFOneB && strategy.stages > 1) {
    out.differences.push_back(absl::StrCat("the plan's schedule is ", NameOf(strategy.schedule)));
  }
  if (strategy.chunks > 1) {
    out.differences.push_back(absl::StrCat("stages have ", strategy.chunks, " chunks each, which is not written"));
  }
  std::vector<std::string> interleaved;
  std::string rows, recomputed, stages;
  bool layouts = false;
  for (const Op& op : graph.ops) {
    const auto own = strategy.ops.find(op.name);
    if (op.phase != Phase::kForward) continue;
    if (const int64_t stage = graph.segment(op.segment).stage; strategy.stages > 1 && stage >= 0) {
      absl::StrAppend(&stages, "    network.", op.name, ".pipeline_stage = ", stage % strategy.stages, "\n");
    }
    if (own == strategy.ops.end()) continue;
    if (own->second.interleaved.has_value()) interleaved.push_back(op.name);
    const Written written = WriteStrategy(own->second, op, graph, strategy.mesh, ranks);
    layouts = layouts || written.layouts;
    absl::StrAppend(&rows, "    \"", op.name, "\": (", written.in, written.out.empty() ? "" : ", ", written.out,
                    written.out.empty() ? ",),\n" : "),\n");
    if (strategy.recompute_ops.count(op.name) > 0) {
      absl::StrAppend(&recomputed, "    network.", op.name, ".recompute()\n");
    }
  }
  if (!interleaved.empty()) {
    out.differences.push_back(absl::StrCat("the plan computes ", absl::StrJoin(interleaved, ", "),
                                           " piece by piece (interleaved_parallel), which is not written"));
  }
  std::string layout;
  if (layouts) {
    MESHWRIGHT_ASSIGN_OR_RETURN(layout, LayoutLine(strategy.mesh, ranks));
  }
  out.text = absl::StrCat(
      Heading(plan, out.differences), "import mindspore\n", layouts ? "from mindspore import Layout\n" : "", "\n",
      ContextCall(plan), "\n", layout,
      "# By the operator's name in the network: in_strategy, and out_strategy where there is one.\nSTRATEGIES = {\n",
      rows,
      "}\n\n\ndef split(network):\n    for name, strategy in STRATEGIES.items():\n"
      "        getattr(network, name).shard(*strategy)\n",
      stages, recomputed, Microbatches(strategy));
  return out;
}

}  // namespace meshwright
