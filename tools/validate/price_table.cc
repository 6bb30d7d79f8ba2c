#include "tools/validate/price_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "costmodel/collective_cost.h"
#include "costmodel/data_sheet.h"
#include "costmodel/kernel_cost.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "nlohmann/json.hpp"
#include "tools/validate/gpu_type.h"
#include "tools/validate/interconnect.h"
#include "tools/validate/row_model.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

using Json = nlohmann::ordered_json;

std::string Lower(const CsvCells& cells, absl::string_view column) { return absl::AsciiStrToLower(cells.Text(column)); }

absl::StatusOr<int64_t> Needed(const CsvCells& cells, absl::string_view column) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> value, cells.Int(column, 1));
  if (!value.has_value()) return CannotExpress("not given", column);
  return *value;
}

absl::Status CheckStatus(const CsvCells& cells) {
  const std::string status = cells.Text("status");
  return status.empty() || status == "ok" ? absl::OkStatus() : CannotExpress("status", status);
}

absl::StatusOr<Cluster> ClusterOf(const CsvCells& cells, const RowOverrides& overrides, int64_t nodes,
                                  int64_t per_node) {
  const std::string text = overrides.device.empty() ? cells.Text("gpu_type") : overrides.device;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, DeviceNamed(text));
  absl::StatusOr<Cluster> cluster = MakeCluster(name, nodes, per_node);
  if (!cluster.ok()) return CannotExpress("unknown device", name);
  if (!overrides.constants_of.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Device fitted, FindDevice(overrides.constants_of));
    cluster->device = FromDataSheet(cluster->device, fitted);
  }
  return cluster;
}

absl::Status Override(const RowOverrides& overrides, Cluster* cluster) {
  for (const auto& [key, value] : overrides.cluster_keys) {
    MESHWRIGHT_RETURN_IF_ERROR(SetClusterKey(key, value, cluster));
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> DTypeOf(const CsvCells& cells) {
  const std::string text = Lower(cells, "dtype");
  if (absl::StrContains(text, "fp8") || absl::StrContains(text, "float8")) return DType::kFloat8;
  if (absl::StrContains(text, "bf16") || absl::StrContains(text, "bfloat16")) return DType::kBFloat16;
  if (absl::StrContains(text, "16") || text == "half") return DType::kFloat16;
  if (absl::StrContains(text, "tf32")) return DType::kTFloat32;
  if (absl::StrContains(text, "32") || text == "float") return DType::kFloat32;
  return CannotExpress("unknown dtype", text);
}

// --- kernels -------------------------------------------------------------------------------------------------------

// Seconds: time_ms, else by the rate in the first of `rates` that is there.
absl::StatusOr<double> MeasuredSeconds(const CsvCells& cells, double flops) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> time, cells.Number("time_ms"));
  if (time.has_value() && *time > 0) return *time * 1e-3;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> rate, cells.Number("tflops"));
  if (rate.has_value() && *rate > 0) return flops / (*rate * 1e12);
  return CannotExpress("no time or rate", "time_ms and tflops are empty");
}

// A linear layer of TensorRT-LLM finds the scale of its input, then quantises it: fitted on half of aiconfigurator's
// fp8 products on H100 (7 bytes an element, 8.8 us), error on the other half 3.8 %.
constexpr Bytes kDynamicQuantizeBytes = Bytes(7);

absl::Status PriceProduct(const CsvCells& cells, Device device, PriceRowResult* out) {
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  MESHWRIGHT_ASSIGN_OR_RETURN(work.dtype, DTypeOf(cells));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.m, Needed(cells, "m"));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.n, Needed(cells, "n"));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.k, Needed(cells, "k"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> batch, cells.Int("batch_or_groups", 1));
  work.batch = batch.value_or(1);
  const Bytes result = SizeOf(work.dtype == DType::kFloat8 ? DType::kBFloat16 : work.dtype);
  work.read = SizeOf(work.dtype) * (work.batch * (work.m * work.k + work.k * work.n));
  work.written = result * (work.batch * work.m * work.n);
  work.flops = Flops(2.0 * static_cast<double>(work.batch) * static_cast<double>(work.m) * static_cast<double>(work.n) *
                     static_cast<double>(work.k));
  MESHWRIGHT_ASSIGN_OR_RETURN(out->seconds.measured, MeasuredSeconds(cells, work.flops.raw()));
  if (work.dtype == DType::kFloat8 && absl::StrContains(Lower(cells, "library"), "linear")) {
    device.kernels.quantize_bytes = kDynamicQuantizeBytes;
  }
  out->seconds.predicted = ToSeconds(PriceKernel(work, device));
  out->group = absl::StrCat(device.name, ", ", NameOf(work.dtype), " products");
  out->label = absl::StrCat(out->group, ", ", work.batch, " x ", work.m, " x ", work.n, " x ", work.k);
  return absl::OkStatus();
}

// Implementations of attention by a word of the cells `impl`, `op` and `library`, and the kernel that stands for them;
// the first that matches.
struct Implementation {
  absl::string_view word, kernel;
};
constexpr Implementation kImplementations[] = {
    {"flashattention triton", "triton"},
    {"xformers", "xformers"},
    {"flashattention-1", "flash1"},
    {"flashattention-2", "flash2"},
    {"flashattention-3", "flash3"},
    {"trt-llm", "trtllm"},
    {"trtllm", "trtllm"},
};

// Whether the attention is fused, and by which kernel.
absl::StatusOr<bool> Fused(const CsvCells& cells, Device* device) {
  const std::string impl = Lower(cells, "impl");
  if (absl::StrContains(impl, "pytorch")) return false;
  const std::string made = impl.empty() ? absl::StrCat(Lower(cells, "op"), " ", Lower(cells, "library")) : impl;
  absl::string_view kernel;
  for (const Implementation& row : kImplementations) {
    if (kernel.empty() && absl::StrContains(made, row.word)) kernel = row.kernel;
  }
  if (kernel.empty()) {
    if (impl.empty()) return true;
    return CannotExpress("another implementation", made);
  }
  Cluster one;
  one.device = *device;
  if (!SetClusterKey("attention", kernel, &one).ok()) return CannotExpress("another implementation", made);
  *device = one.device;
  return true;
}

// PyTorch's plain attention, as FlashAttention's benchmark has it, adds a causal mask by a kernel of its own, bytes a
// score, and copies queries, keys, values and their gradients between layouts, bytes an element of the queries, forward
// and backward: fitted on every second of FlashAttention-2's bars (2.3 %), error on the others 3.0 %.
constexpr double kMaskBytes = 8, kForwardCopyBytes = 20, kBackwardCopyBytes = 40;

Nanos PlainCopies(const KernelWork& work, const Device& device) {
  const double queries = static_cast<double>(work.batch) * static_cast<double>(work.m) * static_cast<double>(work.k);
  const double scores = static_cast<double>(work.batch) * static_cast<double>(work.m) * static_cast<double>(work.n);
  KernelWork copies;
  copies.kernel = KernelClass::kMemory;
  const double masked = work.causal && !work.backward ? kMaskBytes * scores : 0;
  copies.read = Bytes(std::llround(masked + queries * (work.backward ? kBackwardCopyBytes : kForwardCopyBytes)));
  return PriceKernel(copies, device);
}

absl::Status PriceAttention(const CsvCells& cells, Device device, PriceRowResult* out) {
  KernelWork work;
  work.kernel = KernelClass::kAttention;
  MESHWRIGHT_ASSIGN_OR_RETURN(work.dtype, DTypeOf(cells));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.k, Needed(cells, "head_dim"));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.m, Needed(cells, "seq_len"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t batch, Needed(cells, "batch"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, Needed(cells, "heads"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads, cells.Int("kv_heads", 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.fused, Fused(cells, &device));
  work.n = work.m;
  work.batch = batch * heads;
  work.causal = Lower(cells, "causal") == "yes";
  const int64_t query = work.batch * work.m * work.k, keys = batch * kv_heads.value_or(heads) * work.m * work.k;
  // 4 operations a score and column forward, 2.5 times as many backward; half of them with a causal mask.
  const Flops forward(4.0 * static_cast<double>(query) * static_cast<double>(work.n) * (work.causal ? 0.5 : 1));
  const std::string pass = Lower(cells, "pass");
  const bool backward = absl::StrContains(pass, "bwd");
  double flops = 0;
  Nanos time;
  if (!backward || absl::StrContains(pass, "fwd")) {
    work.flops = forward;
    work.read = SizeOf(work.dtype) * (query + 2 * keys);
    work.written = SizeOf(work.dtype) * query;
    time += PriceKernel(work, device);
    if (!work.fused) time += PlainCopies(work, device);
    flops += forward.raw();
  }
  if (backward) {
    work.backward = true;
    work.flops = forward * 2.5;
    work.read = SizeOf(work.dtype) * (3 * query + 2 * keys);
    work.written = SizeOf(work.dtype) * (query + 2 * keys);
    time += PriceKernel(work, device);
    if (!work.fused) time += PlainCopies(work, device);
    flops += work.flops.raw();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(out->seconds.measured, MeasuredSeconds(cells, flops));
  out->seconds.predicted = ToSeconds(time);
  out->group =
      absl::StrCat(device.name, ", ", work.fused ? "fused" : "unfused", " attention ", backward ? pass : "forward");
  out->label = absl::StrCat(out->group, ", ", batch, " x ", heads, " heads of ", work.k, ", sequence ", work.m,
                            work.causal ? ", causal" : "");
  return absl::OkStatus();
}

// A layer's forward and backward pass: what a model of three layers takes beyond one of two, without the
// optimizer and the reduction of gradients.
absl::Status PriceLayer(const CsvCells& cells, const RowOverrides& overrides, PriceRowResult* out) {
  MESHWRIGHT_ASSIGN_OR_RETURN(TrainingRun run, ReadTrainingRun(cells, overrides));
  run.tensor_given = run.pipeline_given = run.microbatch_given = true;
  const auto seconds = [&run](int64_t layers) -> absl::StatusOr<double> {
    run.model.layers = layers;
    MESHWRIGHT_ASSIGN_OR_RETURN(const Prediction prediction, PredictRun(run));
    Nanos time;
    for (const TimeUse use :
         {TimeUse::kForward, TimeUse::kBackward, TimeUse::kRecompute, TimeUse::kActivationCollective}) {
      time += prediction.time[use];
    }
    return ToSeconds(time);
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const double three, seconds(3));
  MESHWRIGHT_ASSIGN_OR_RETURN(const double two, seconds(2));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> forward, cells.Number("fwd_ms"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> backward, cells.Number("bwd_ms"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> both, cells.Number("combined_ms"));
  const double measured = both.value_or(forward.value_or(0) + backward.value_or(0));
  if (measured <= 0 || (!both.has_value() && (!forward.has_value() || !backward.has_value()))) {
    return CannotExpress("no time or rate", "combined_ms is empty, fwd_ms or bwd_ms too");
  }
  out->seconds = {three - two, measured * 1e-3};
  out->group = absl::StrCat(run.cluster.device.name, ", layers");
  out->label = absl::StrCat(out->group, ", ", cells.Text("model"), ", tp", run.degrees.tensor, ", sequence parallel ",
                            cells.Text("seq_parallel"), ", recompute ", cells.Text("recompute"));
  return absl::OkStatus();
}

absl::Status PriceKernelRow(const CsvCells& cells, const RowOverrides& overrides, PriceRowResult* out) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckStatus(cells));
  if (!cells.Text("fwd_ms").empty() || !cells.Text("combined_ms").empty()) return PriceLayer(cells, overrides, out);
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, ClusterOf(cells, overrides, 1, 1));
  cluster.device.kernels.sustained_clock = 1;
  MESHWRIGHT_RETURN_IF_ERROR(Override(overrides, &cluster));
  if (!cells.Text("m").empty()) return PriceProduct(cells, cluster.device, out);
  if (!cells.Text("head_dim").empty()) return PriceAttention(cells, cluster.device, out);
  return CannotExpress("neither a product nor attention", cells.Text("op"));
}

// --- collectives ---------------------------------------------------------------------------------------------------

absl::StatusOr<CollectiveKind> KindOf(const std::string& name) {
  if (name == "alltoall") return CollectiveKind::kAllToAll;
  if (const auto kind = CollectiveKindFromName(name)) return *kind;
  return CannotExpress("unknown collective", name);
}

absl::Status PriceCollectiveRow(const CsvCells& cells, const RowOverrides& overrides, PriceRowResult* out) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckStatus(cells));
  MESHWRIGHT_ASSIGN_OR_RETURN(const CollectiveKind kind, KindOf(Lower(cells, "collective")));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size, Needed(cells, "size_bytes"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t ranks, Needed(cells, "ranks"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> nodes, cells.Int("nodes", 1));
  GroupShape shape;
  shape.ranks = ranks;
  shape.nodes = nodes.value_or(1);
  if (ranks % shape.nodes != 0) return CannotExpress("nodes that are not full", absl::StrCat(ranks, " ranks"));
  shape.ranks_per_node = ranks / shape.nodes;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> time, cells.Number("time_us"));
  if (!time.has_value() || *time <= 0) return CannotExpress("no time or rate", "time_us is empty");
  // A group of some devices of a whole machine: links and switch are the machine's.
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, ClusterOf(cells, overrides, shape.nodes, 0));
  if (shape.nodes > 1) {
    const std::string links = overrides.internode.empty() ? cells.Text("interconnect") : overrides.internode;
    SetInternode(links, &cluster);
  }
  MESHWRIGHT_RETURN_IF_ERROR(Override(overrides, &cluster));
  if (shape.ranks_per_node > cluster.devices_per_node) cluster.devices_per_node = shape.ranks_per_node;
  out->seconds.measured = *time * 1e-6;
  Device fitted = cluster.device;
  if (!overrides.constants_of.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(fitted, FindDevice(overrides.constants_of));
  }
  out->seconds.predicted = ToSeconds(PriceCollectiveFittedOn(fitted, kind, Bytes(size), shape, cluster).time);
  out->group = absl::StrCat(cluster.device.name, ", ", NameOf(kind), ", ", shape.nodes, " x ", shape.ranks_per_node);
  out->label = absl::StrCat(out->group, ", ", size, " bytes");
  return absl::OkStatus();
}

using PriceRow = std::function<absl::Status(const CsvCells&, const RowOverrides&, PriceRowResult*)>;

absl::StatusOr<PriceTableResult> PriceTable(const CsvTable& table, const RowOverrides& overrides,
                                            const PriceRow& price) {
  PriceTableResult result;
  result.file = table.file;
  for (const CsvRow& row : table.rows) {
    PriceRowResult& out = result.rows.emplace_back();
    out.line = row.line;
    const absl::Status status = price(CsvCells(table, row), overrides, &out);
    if (status.ok()) continue;
    out.skipped = WhySkipped(status);
  }
  return result;
}

std::string ErrorText(absl::string_view what, const ErrorSummary& e) {
  return absl::StrFormat("  %s: %d rows, mean %.1f %%, median %.1f %%, p90 %.1f %%, worst %+.1f %%, bias %+.1f %%\n",
                         what, e.count, 100 * e.mean, 100 * e.median, 100 * e.p90, 100 * e.worst, 100 * e.bias);
}

Json ErrorsJson(const ErrorSummary& errors) {
  return {{"count", errors.count}, {"mean", errors.mean},   {"median", errors.median},
          {"p90", errors.p90},     {"worst", errors.worst}, {"bias", errors.bias}};
}

}  // namespace

absl::StatusOr<PriceTableResult> PriceKernelTable(const CsvTable& table, const RowOverrides& overrides) {
  return PriceTable(table, overrides, PriceKernelRow);
}

absl::StatusOr<PriceTableResult> PriceCollectiveTable(const CsvTable& table, const RowOverrides& overrides) {
  return PriceTable(table, overrides, PriceCollectiveRow);
}

PriceTableSummary Summarise(const PriceTableResult& table) {
  PriceTableSummary summary;
  summary.rows = table.rows.size();
  std::vector<Pair> all;
  std::map<std::string, std::vector<Pair>> groups;
  for (const PriceRowResult& row : table.rows) {
    if (!row.skipped.empty()) {
      ++summary.skipped[row.skipped.substr(0, row.skipped.find(':'))];
      continue;
    }
    ++summary.predicted;
    all.push_back(row.seconds);
    groups[row.group].push_back(row.seconds);
  }
  summary.all = Summarise(all);
  for (const auto& [name, pairs] : groups) summary.groups[name] = Summarise(pairs);
  return summary;
}

std::string ToText(const PriceTableResult& table, bool rows) {
  const PriceTableSummary s = Summarise(table);
  std::string text = absl::StrCat(table.file, "\n");
  for (const PriceRowResult& row : table.rows) {
    if (!rows) break;
    absl::StrAppend(&text, "  line ", row.line, ": ");
    if (!row.skipped.empty()) {
      absl::StrAppend(&text, "skipped, ", row.skipped, "\n");
      continue;
    }
    absl::StrAppendFormat(&text, "%s: predicted %.4g us, measured %.4g us, %+.1f %%\n", row.label,
                          1e6 * row.seconds.predicted, 1e6 * row.seconds.measured, 100 * row.seconds.Error());
  }
  absl::StrAppend(&text, "  rows ", s.rows, ", predicted ", s.predicted, ", skipped ", s.rows - s.predicted, "\n");
  for (const auto& [why, count] : s.skipped) absl::StrAppend(&text, "  skipped ", count, " ", why, "\n");
  for (const auto& [name, errors] : s.groups) absl::StrAppend(&text, ErrorText(name, errors));
  if (s.all.count > 0) absl::StrAppend(&text, ErrorText("all", s.all));
  return text;
}

std::string ToJson(const std::vector<PriceTableResult>& tables, bool rows) {
  Json out = Json::array();
  for (const PriceTableResult& table : tables) {
    const PriceTableSummary s = Summarise(table);
    Json json = {{"file", table.file}, {"rows", s.rows}, {"predicted", s.predicted}};
    json["skipped"] = s.skipped;
    json["time"] = ErrorsJson(s.all);
    for (const auto& [name, errors] : s.groups) json["groups"][name] = ErrorsJson(errors);
    for (const PriceRowResult& row : table.rows) {
      if (!rows) break;
      Json one = {{"line", row.line}, {"label", row.label}};
      if (!row.skipped.empty()) {
        one["skipped"] = row.skipped;
      } else {
        one["predicted_s"] = row.seconds.predicted;
        one["measured_s"] = row.seconds.measured;
        one["error"] = row.seconds.Error();
      }
      json["per_row"].push_back(std::move(one));
    }
    out.push_back(std::move(json));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";  // cells may be any bytes
}

}  // namespace meshwright
