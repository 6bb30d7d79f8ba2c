#include "ir/strategy.h"

#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/status.h"
#include "ir/text.h"

namespace meshwright {
namespace {

// In the order of the enums.
constexpr absl::string_view kRecomputeNames[] = {"none", "selective", "full", "layer"};
static_assert(std::size(kRecomputeNames) == static_cast<size_t>(Recompute::kLayer) + 1, "a name per Recompute");

constexpr absl::string_view kGroupNames[] = {"summands", "replicas", "owner", "copy"};
static_assert(std::size(kGroupNames) == static_cast<size_t>(OptimizerGroup::kCopy) + 1, "a name per group");

constexpr absl::string_view kKeys[] = {"mesh",
                                       "rules",
                                       "ops",
                                       "inputs",
                                       "stages",
                                       "chunks",
                                       "layers_per_stage",
                                       "microbatches",
                                       "schedule",
                                       "recompute",
                                       "context",
                                       "expert_groups",
                                       "recompute_ops",
                                       "parallel_optimizer",
                                       "parallel_optimizer_threshold",
                                       "shard_parameters",
                                       "gradient_accumulation_shard",
                                       "optimizer_group",
                                       "optimizer_shard_size",
                                       "optimizer_whole",
                                       "bucket",
                                       "scatter_bucket",
                                       "gather_bucket",
                                       "bucket_ends",
                                       "fusion_ids",
                                       "own_parameters",
                                       "parameter_broadcast",
                                       "all_to_all",
                                       "fuse_epilogues",
                                       "fuse_loss",
                                       "fuse_updates",
                                       "gradients_mean",
                                       "gradient_fp32_sync",
                                       "gradient_dtype",
                                       "loss_divisor",
                                       "gradient_scale"};

// --- writing

std::string AxesText(const AxisList& axes, const Mesh& mesh) {
  return absl::StrCat(
      "[",
      absl::StrJoin(axes, ", ",
                    [&](std::string* out, AxisId id) { absl::StrAppend(out, QuoteYaml(mesh.axis(id).name)); }),
      "]");
}

std::string LayoutText(const Layout& layout, const Mesh& mesh) { return QuoteYaml(ToText(layout, mesh)); }

// In the largest binary unit that says it exactly.
std::string BytesText(Bytes bytes) {
  constexpr absl::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int64_t n = bytes.raw();
  size_t unit = 0;
  for (; n != 0 && n % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) n /= 1024;
  return absl::StrCat(n, " ", kUnits[unit]);
}

// "[w, w2]"
std::string NamesText(const std::set<std::string>& names) {
  return absl::StrCat(
      "[",
      absl::StrJoin(names, ", ",
                    [](std::string* out, const std::string& name) { absl::StrAppend(out, QuoteYaml(name)); }),
      "]");
}

// The shortest text that reads back as the same number.
std::string DoubleText(double x) {
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), x);
  return std::string(buffer, result.ptr);
}

std::string OpText(const OpStrategy& op, const Mesh& mesh) {
  std::string text =
      absl::StrCat("{inputs: [",
                   absl::StrJoin(op.inputs, ", ",
                                 [&](std::string* out, const Layout& l) { absl::StrAppend(out, LayoutText(l, mesh)); }),
                   "]");
  if (op.output.has_value()) absl::StrAppend(&text, ", output: ", LayoutText(*op.output, mesh));
  if (op.interleaved.has_value()) {
    absl::StrAppend(&text, ", interleaved: {label: ", QuoteYaml(op.interleaved->label),
                    ", pieces: ", op.interleaved->pieces, ", axes_before: ", op.interleaved->axes_before, "}");
  }
  return text + "}";
}

// --- reading

absl::StatusOr<AxisList> ReadAxes(const NodeRef& in, const Mesh& mesh) {
  AxisList axes;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> names, in.AsList());
  for (const NodeRef& node : names) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, node.AsString());
    const AxisId id = mesh.Find(name);
    if (!id.valid()) return node.Error(QuoteForMessage(name), absl::StrCat("an axis of the mesh ", ToText(mesh)));
    axes.push_back(id);
  }
  return axes;
}

absl::StatusOr<Layout> ReadLayout(const NodeRef& in, const Mesh& mesh) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, in.AsString());
  absl::StatusOr<Layout> layout = ParseLayout(text, mesh);
  if (!layout.ok()) return in.Locate(layout.status());
  return layout;
}

absl::StatusOr<OpStrategy> ReadOp(const NodeRef& in, const Mesh& mesh) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"inputs", "output", "interleaved"}));
  OpStrategy op;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> inputs, in["inputs"].AsList());
  for (const NodeRef& input : inputs) {
    MESHWRIGHT_ASSIGN_OR_RETURN(Layout layout, ReadLayout(input, mesh));
    op.inputs.push_back(std::move(layout));
  }
  if (in["output"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(op.output, ReadLayout(in["output"], mesh));
  }
  const NodeRef interleaved = in["interleaved"];
  if (!interleaved.present()) return op;
  MESHWRIGHT_RETURN_IF_ERROR(interleaved.CheckKeys({"label", "pieces", "axes_before"}));
  Interleaving& pieces = op.interleaved.emplace();
  MESHWRIGHT_ASSIGN_OR_RETURN(pieces.label, interleaved["label"].AsString());
  MESHWRIGHT_ASSIGN_OR_RETURN(pieces.pieces, interleaved["pieces"].AsInt(1, int64_t{1} << 32));
  MESHWRIGHT_ASSIGN_OR_RETURN(pieces.axes_before, interleaved["axes_before"].AsIntOr(0, 0));
  return op;
}

// What is said of labels, ops and inputs.
absl::Status ReadSplits(const NodeRef& in, Strategy& strategy) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> rules, in["rules"].AsListIfPresent());
  for (const NodeRef& rule : rules) {
    MESHWRIGHT_RETURN_IF_ERROR(rule.CheckKeys({"label", "axes"}));
    LabelRule label_rule;
    MESHWRIGHT_ASSIGN_OR_RETURN(label_rule.label, rule["label"].AsString());
    MESHWRIGHT_ASSIGN_OR_RETURN(label_rule.axes, ReadAxes(rule["axes"], strategy.mesh));
    strategy.rules.push_back(std::move(label_rule));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> ops, in["ops"].AsMapIfPresent());
  for (const NodeRef& op : ops) {
    MESHWRIGHT_ASSIGN_OR_RETURN(strategy.ops[op.key()], ReadOp(op, strategy.mesh));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> inputs, in["inputs"].AsMapIfPresent());
  for (const NodeRef& input : inputs) {
    MESHWRIGHT_ASSIGN_OR_RETURN(strategy.inputs[input.key()], ReadLayout(input, strategy.mesh));
  }
  return absl::OkStatus();
}

absl::Status ReadFusion(const NodeRef& in, Strategy& s) {
  MESHWRIGHT_ASSIGN_OR_RETURN(s.bucket, in["bucket"].AsBytesOr(s.bucket));
  for (auto [key, bucket] :
       {std::pair{"scatter_bucket", &s.scatter_bucket}, std::pair{"gather_bucket", &s.gather_bucket}}) {
    if (!in[key].present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(*bucket, in[key].AsBytesOr(Bytes()));
  }
  if (in["bucket_ends"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(s.bucket_ends, in["bucket_ends"].AsInts(0));
    for (size_t i = 1; i < s.bucket_ends.size(); ++i) {
      if (s.bucket_ends[i] <= s.bucket_ends[i - 1]) {
        return in["bucket_ends"].Error(absl::StrCat(s.bucket_ends[i], " after ", s.bucket_ends[i - 1]),
                                       "ascending numbers");
      }
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> ids, in["fusion_ids"].AsMapIfPresent());
  for (const NodeRef& id : ids) {
    MESHWRIGHT_ASSIGN_OR_RETURN(s.fusion_ids[id.key()], id.AsInt(0));
  }
  return absl::OkStatus();
}

absl::Status ReadNames(const NodeRef& in, std::set<std::string>& names) {
  if (!in.present()) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::string> read, in.AsStrings());
  names.insert(read.begin(), read.end());
  return absl::OkStatus();
}

// How the parallel optimizer shares out its work.
absl::Status ReadOptimizer(const NodeRef& in, Strategy& s) {
  const Strategy usual;
  MESHWRIGHT_ASSIGN_OR_RETURN(s.parallel_optimizer, in["parallel_optimizer"].AsBoolOr(usual.parallel_optimizer));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.parallel_optimizer_threshold,
                              in["parallel_optimizer_threshold"].AsBytesOr(usual.parallel_optimizer_threshold));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.shard_parameters, in["shard_parameters"].AsBoolOr(usual.shard_parameters));
  if (s.shard_parameters && !s.parallel_optimizer) {
    return in["shard_parameters"].Error("true", "it with parallel_optimizer: true, whose rows it gathers");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.gradient_accumulation_shard,
                              in["gradient_accumulation_shard"].AsBoolOr(usual.gradient_accumulation_shard));
  if (s.gradient_accumulation_shard && !s.parallel_optimizer) {
    return in["gradient_accumulation_shard"].Error("true", "it with parallel_optimizer: true, whose rows it adds up");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.optimizer_group, in["optimizer_group"].AsEnumOr(usual.optimizer_group, kGroupNames));
  if (s.optimizer_group == OptimizerGroup::kCopy && !s.mesh.Find("copy").valid()) {
    return in["optimizer_group"].Error("copy", absl::StrCat("a mesh with an axis \"copy\"; it is ", ToText(s.mesh)));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.optimizer_shard_size,
                              in["optimizer_shard_size"].AsIntOr(usual.optimizer_shard_size, -1));
  return ReadNames(in["optimizer_whole"], s.optimizer_whole);
}

// Everything else, but for the mesh.
absl::Status ReadChoices(const NodeRef& in, Strategy& s) {
  const Strategy usual;
  MESHWRIGHT_ASSIGN_OR_RETURN(s.stages, in["stages"].AsIntOr(usual.stages, 1));
  if (s.mesh.num_ranks() % s.stages != 0) {
    return in["stages"].Error(absl::StrCat(s.stages),
                              absl::StrCat("a divisor of the mesh's ", s.mesh.num_ranks(), " ranks"));
  }
  const AxisId pp = s.mesh.Find("pp");
  const int64_t staged = pp.valid() ? s.mesh.axis(pp).size : 1;
  if (staged != s.stages || (pp.valid() && s.mesh.axes()[0].name != "pp")) {
    return in["stages"].Error(
        absl::StrCat(s.stages),
        absl::StrCat("the size of the mesh's first axis, pp, and 1 without; the mesh is ", ToText(s.mesh)));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.chunks, in["chunks"].AsIntOr(usual.chunks, 1));
  if (s.chunks > 1 && s.stages == 1) {
    return in["chunks"].Error(absl::StrCat(s.chunks), "1, since there is one stage");
  }
  if (in["layers_per_stage"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(s.layers_per_stage, in["layers_per_stage"].AsInts(0));
    if (static_cast<int64_t>(s.layers_per_stage.size()) != s.stages * s.chunks) {
      return in["layers_per_stage"].Error(
          absl::StrCat(s.layers_per_stage.size(), " numbers"),
          absl::StrCat("one for each of the ", s.stages, " stages", s.chunks == 1 ? "" : "' chunks"));
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.microbatches, in["microbatches"].AsIntOr(usual.microbatches, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.schedule, in["schedule"].AsEnumOr(usual.schedule, kScheduleNames));
  const std::optional<int64_t> chunks = ChunksOf(s.schedule);
  if (chunks.has_value() && s.stages > 1 && s.chunks != *chunks) {
    return in["chunks"].Error(absl::StrCat(s.chunks), absl::StrCat(*chunks, " with ", NameOf(s.schedule)));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.recompute, in["recompute"].AsEnumOr(usual.recompute, kRecomputeNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.context, in["context"].AsEnumOr(usual.context, kContextExchangeNames));
  if ((s.context == ContextExchange::kNone) != ContextAxes(s.mesh).empty()) {
    return in["context"].Error(
        NameOf(s.context),
        absl::StrCat("all_gather or ring where the mesh has an axis \"cp\", none elsewhere; the mesh is ",
                     ToText(s.mesh)));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.expert_groups, in["expert_groups"].AsIntOr(usual.expert_groups, 1));
  const AxisId experts = s.mesh.Find("ep");
  const int64_t ranks = experts.valid() ? s.mesh.axis(experts).size : 1;
  const AxisList parts = ContextAxes(s.mesh);
  const int64_t of_part = parts.empty() ? 1 : s.mesh.axis(parts.back()).size;
  if (s.expert_groups > 1 && s.expert_groups != ranks && s.expert_groups != ranks * of_part) {
    return in["expert_groups"].Error(absl::StrCat(s.expert_groups),
                                     absl::StrCat("1, or the size of the mesh's axis \"ep\"",
                                                  of_part > 1 ? absl::StrCat(" or that times ", of_part, ", of \"",
                                                                             s.mesh.axis(parts.back()).name, "\"")
                                                              : "",
                                                  "; the mesh is ", ToText(s.mesh)));
  }
  MESHWRIGHT_RETURN_IF_ERROR(ReadNames(in["recompute_ops"], s.recompute_ops));
  MESHWRIGHT_RETURN_IF_ERROR(ReadOptimizer(in, s));
  MESHWRIGHT_RETURN_IF_ERROR(ReadFusion(in, s));
  MESHWRIGHT_RETURN_IF_ERROR(ReadNames(in["own_parameters"], s.own_parameters));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.parameter_broadcast, in["parameter_broadcast"].AsBoolOr(usual.parameter_broadcast));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.all_to_all, in["all_to_all"].AsBoolOr(usual.all_to_all));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.fuse_epilogues, in["fuse_epilogues"].AsBoolOr(usual.fuse_epilogues));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.fuse_loss, in["fuse_loss"].AsBoolOr(usual.fuse_loss));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.fuse_updates, in["fuse_updates"].AsBoolOr(usual.fuse_updates));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.gradients_mean, in["gradients_mean"].AsBoolOr(usual.gradients_mean));
  MESHWRIGHT_ASSIGN_OR_RETURN(s.gradient_fp32_sync, in["gradient_fp32_sync"].AsBoolOr(usual.gradient_fp32_sync));
  std::vector<absl::string_view> dtypes;
  for (const DTypeInfo& row : kDTypes) dtypes.push_back(row.name);
  MESHWRIGHT_ASSIGN_OR_RETURN(s.gradient_dtype, in["gradient_dtype"].AsEnumOr(usual.gradient_dtype, dtypes));
  if (!InfoOf(s.gradient_dtype).floating) {
    return in["gradient_dtype"].Error(NameOf(s.gradient_dtype), "a floating type, as float32");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.loss_divisor, in["loss_divisor"].AsDoubleOr(usual.loss_divisor));
  if (!(s.loss_divisor > 0)) {
    return in["loss_divisor"].Error(DoubleText(s.loss_divisor), "a number above 0");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(s.gradient_scale, in["gradient_scale"].AsDoubleOr(usual.gradient_scale));
  return absl::OkStatus();
}

template <class Enum, size_t N>
std::optional<Enum> FromName(absl::string_view name, const absl::string_view (&names)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> ChunksOf(Schedule schedule) {
  switch (schedule) {
    case Schedule::kGpipe:
    case Schedule::kOneFOneB:
      return std::nullopt;
    case Schedule::kZeroBubbleH1:
    case Schedule::kDualPipe:  // and another of the other direction
      return 1;
    case Schedule::kZeroBubbleV:
    case Schedule::kDualPipeV:
      return 2;
  }
  return std::nullopt;
}
absl::string_view NameOf(Schedule schedule) { return kScheduleNames[static_cast<size_t>(schedule)]; }
absl::string_view NameOf(ContextExchange exchange) { return kContextExchangeNames[static_cast<size_t>(exchange)]; }
absl::string_view NameOf(OptimizerGroup group) { return kGroupNames[static_cast<size_t>(group)]; }
absl::string_view NameOf(Recompute recompute) { return kRecomputeNames[static_cast<size_t>(recompute)]; }
std::optional<Schedule> ScheduleFromName(absl::string_view name) { return FromName<Schedule>(name, kScheduleNames); }

AxisList ContextAxes(const Mesh& mesh) {
  AxisList axes;
  for (const char* const name : {"cp", "ce"}) {
    if (const AxisId id = mesh.Find(name); id.valid()) axes.push_back(id);
  }
  return axes;
}

std::string ToText(const Strategy& s) {
  std::string text = absl::StrCat("mesh: ", QuoteYaml(ToText(s.mesh)), "\n");
  if (!s.rules.empty()) text += "rules:\n";
  for (const LabelRule& rule : s.rules) {
    absl::StrAppend(&text, "  - {label: ", QuoteYaml(rule.label), ", axes: ", AxesText(rule.axes, s.mesh), "}\n");
  }
  if (!s.ops.empty()) text += "ops:\n";
  for (const auto& [name, op] : s.ops) absl::StrAppend(&text, "  ", QuoteYaml(name), ": ", OpText(op, s.mesh), "\n");
  if (!s.inputs.empty()) text += "inputs:\n";
  for (const auto& [name, layout] : s.inputs) {
    absl::StrAppend(&text, "  ", QuoteYaml(name), ": ", LayoutText(layout, s.mesh), "\n");
  }
  absl::StrAppend(&text, "stages: ", s.stages, "\n");
  if (s.chunks > 1) absl::StrAppend(&text, "chunks: ", s.chunks, "\n");
  if (!s.layers_per_stage.empty()) {
    absl::StrAppend(&text, "layers_per_stage: [", absl::StrJoin(s.layers_per_stage, ", "), "]\n");
  }
  absl::StrAppend(&text, "microbatches: ", s.microbatches, "\nschedule: ", NameOf(s.schedule),
                  "\nrecompute: ", NameOf(s.recompute), "\n");
  if (s.context != ContextExchange::kNone) absl::StrAppend(&text, "context: ", NameOf(s.context), "\n");
  if (s.expert_groups > 1) absl::StrAppend(&text, "expert_groups: ", s.expert_groups, "\n");
  if (!s.recompute_ops.empty()) absl::StrAppend(&text, "recompute_ops: ", NamesText(s.recompute_ops), "\n");
  absl::StrAppend(&text, "parallel_optimizer: ", s.parallel_optimizer ? "true" : "false",
                  "\nparallel_optimizer_threshold: ", BytesText(s.parallel_optimizer_threshold),
                  s.shard_parameters ? "\nshard_parameters: true\n" : "\n");
  if (s.gradient_accumulation_shard) text += "gradient_accumulation_shard: true\n";
  if (s.optimizer_group != OptimizerGroup::kSummands) {
    absl::StrAppend(&text, "optimizer_group: ", NameOf(s.optimizer_group), "\n");
  }
  if (s.optimizer_shard_size != -1) absl::StrAppend(&text, "optimizer_shard_size: ", s.optimizer_shard_size, "\n");
  if (!s.optimizer_whole.empty()) absl::StrAppend(&text, "optimizer_whole: ", NamesText(s.optimizer_whole), "\n");
  absl::StrAppend(&text, "bucket: ", BytesText(s.bucket), "\n");
  if (s.scatter_bucket.has_value()) absl::StrAppend(&text, "scatter_bucket: ", BytesText(*s.scatter_bucket), "\n");
  if (s.gather_bucket.has_value()) absl::StrAppend(&text, "gather_bucket: ", BytesText(*s.gather_bucket), "\n");
  if (!s.bucket_ends.empty()) absl::StrAppend(&text, "bucket_ends: [", absl::StrJoin(s.bucket_ends, ", "), "]\n");
  if (!s.fusion_ids.empty()) text += "fusion_ids:\n";
  for (const auto& [name, id] : s.fusion_ids) absl::StrAppend(&text, "  ", QuoteYaml(name), ": ", id, "\n");
  if (!s.own_parameters.empty()) absl::StrAppend(&text, "own_parameters: ", NamesText(s.own_parameters), "\n");
  if (s.parameter_broadcast) text += "parameter_broadcast: true\n";
  if (!s.all_to_all) text += "all_to_all: false\n";
  if (!s.fuse_epilogues) text += "fuse_epilogues: false\n";
  if (!s.fuse_loss) text += "fuse_loss: false\n";
  if (!s.fuse_updates) text += "fuse_updates: false\n";
  absl::StrAppend(&text, "gradients_mean: ", s.gradients_mean ? "true" : "false",
                  "\ngradient_dtype: ", NameOf(s.gradient_dtype), "\nloss_divisor: ", DoubleText(s.loss_divisor), "\n");
  if (!s.gradient_fp32_sync) text += "gradient_fp32_sync: false\n";
  if (s.gradient_scale != 1) absl::StrAppend(&text, "gradient_scale: ", DoubleText(s.gradient_scale), "\n");
  return text;
}

absl::StatusOr<Strategy> ReadStrategy(const NodeRef& in) {
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys(kKeys));
  Strategy strategy;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string mesh, in["mesh"].AsString());
  absl::StatusOr<Mesh> parsed = ParseMesh(mesh);
  if (!parsed.ok()) return in["mesh"].Locate(parsed.status());
  strategy.mesh = *std::move(parsed);
  MESHWRIGHT_RETURN_IF_ERROR(ReadSplits(in, strategy));
  MESHWRIGHT_RETURN_IF_ERROR(ReadChoices(in, strategy));
  return strategy;
}

absl::StatusOr<Strategy> ParseStrategy(const std::string& text, const std::string& file) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Document document, ParseDocument(text, file));
  return ReadStrategy(document.root());
}

}  // namespace meshwright
