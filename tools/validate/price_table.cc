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
#include "absl/strings/str_split.h"
#include "costmodel/data_sheet.h"
#include "costmodel/kernel_cost.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "nlohmann/json.hpp"
#include "tools/validate/collective_row.h"
#include "tools/validate/kernel_timing.h"
#include "tools/validate/predict_run.h"
#include "tools/validate/price_columns.h"
#include "tools/validate/row_model.h"
#include "tools/validate/training_row.h"
#include "tools/validate/words.h"

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
  const std::string status = Lower(cells, "status");
  for (const absl::string_view good : {"", "ok", "success", "passed", "pass", "done"}) {
    if (status == good) return absl::OkStatus();
  }
  return CannotExpress("status", status);
}

absl::StatusOr<Cluster> ClusterOf(const CsvCells& cells, const RowOverrides& overrides, int64_t nodes,
                                  int64_t per_node) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string name, DeviceOf(cells, overrides));
  absl::StatusOr<Cluster> cluster = MakeCluster(name, nodes, per_node);
  if (!cluster.ok()) return CannotExpress("unknown device", name);
  if (!overrides.constants_of.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Device fitted, FindDevice(overrides.constants_of));
    cluster->device = FromDataSheet(cluster->device, fitted);
  }
  return cluster;
}

absl::StatusOr<DType> DTypeNamed(const std::string& text) {
  for (const absl::string_view narrow : {"fp8", "float8", "f8e", "e4m3", "e5m2"}) {
    if (absl::StrContains(text, narrow)) return DType::kFloat8;
  }
  if (absl::StrContains(text, "bf16") || absl::StrContains(text, "bfloat16")) return DType::kBFloat16;
  if (absl::StrContains(text, "16") || text == "half") return DType::kFloat16;
  if (absl::StrContains(text, "tf32")) return DType::kTFloat32;
  if (absl::StrContains(text, "32") || text == "float") return DType::kFloat32;
  return CannotExpress("unknown dtype", text);
}

// Of an empty cell bf16, where the device has it. What the device does not have is emulated, by whatever ran.
absl::StatusOr<DType> DTypeOf(const CsvCells& cells, const Device& device, std::vector<std::string>* defaults) {
  const std::string text = Lower(cells, "dtype");
  if (text.empty()) {
    const DType usual = device.Peak(DType::kBFloat16).raw() > 0 ? DType::kBFloat16 : DType::kFloat16;
    defaults->push_back(absl::StrCat("dtype ", NameOf(usual)));
    return usual;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const DType dtype, DTypeNamed(text));
  if (device.Peak(dtype).raw() > 0) return dtype;
  return CannotExpress("the device has no such type", absl::StrCat(NameOf(dtype), " on ", device.name));
}

// Beyond it, counts of bytes overflow; no device holds a thousandth.
absl::Status CheckElements(double elements) {
  constexpr double kMostElements = int64_t{1} << 50;
  if (elements <= kMostElements) return absl::OkStatus();
  return CannotExpress("more elements than any device holds", absl::StrFormat("%.3g", elements));
}

// --- kernels -------------------------------------------------------------------------------------------------------

// Seconds: time_ms, else by the rate. `counted`: all count these operations alike, so both must say the same.
absl::StatusOr<double> MeasuredSeconds(const CsvCells& cells, double flops, bool counted) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> time, cells.Number("time_ms"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> rate, cells.Number("tflops"));
  if (time.has_value() && *time > 0) {
    if (counted) MESHWRIGHT_RETURN_IF_ERROR(CheckAgreement(flops / (*time * 1e9), rate, "TFLOP/s"));
    return *time * 1e-3;
  }
  if (rate.has_value() && *rate > 0) return flops / (*rate * 1e12);
  return CannotExpress("no time or rate", "time_ms and tflops are empty");
}

// A linear layer of TensorRT-LLM finds the scale of its input, then quantises it: fitted on half of aiconfigurator's
// fp8 products on H100 (7 bytes an element, 8.8 us), error on the other half 3.8 %.
constexpr Bytes kDynamicQuantizeBytes = Bytes(7);

absl::Status PriceProduct(const CsvCells& cells, Device device, PriceRowResult* out) {
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  MESHWRIGHT_ASSIGN_OR_RETURN(work.dtype, DTypeOf(cells, device, &out->defaults));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.m, Needed(cells, "m"));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.n, Needed(cells, "n"));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.k, Needed(cells, "k"));
  const bool groups = !cells.Text("batch_or_groups").empty();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> batch, cells.Int(groups ? "batch_or_groups" : "batch", 1));
  work.batch = batch.value_or(1);
  // BLAS's own sizes are of matrices by columns, whose results begin at multiples of m; n is no matrix's row.
  const std::string impl = Lower(cells, "impl");
  if (HasAny(impl, {"cublas"}) && !HasAny(impl, {"torch"})) std::swap(work.m, work.n);
  const double b = static_cast<double>(work.batch), m = static_cast<double>(work.m), n = static_cast<double>(work.n);
  const double k = static_cast<double>(work.k);
  MESHWRIGHT_RETURN_IF_ERROR(CheckElements(b * (m * k + k * n + m * n)));
  const Bytes result = SizeOf(work.dtype == DType::kFloat8 ? DType::kBFloat16 : work.dtype);
  work.read = SizeOf(work.dtype) * (work.batch * (work.m * work.k + work.k * work.n));
  work.written = result * (work.batch * work.m * work.n);
  work.flops = Flops(2.0 * b * m * n * k);
  MESHWRIGHT_ASSIGN_OR_RETURN(out->seconds.measured, MeasuredSeconds(cells, work.flops.raw(), true));
  if (work.dtype == DType::kFloat8 && absl::StrContains(Lower(cells, "library"), "linear")) {
    device.kernels.quantize_bytes = kDynamicQuantizeBytes;
  }
  out->seconds.predicted = LoopSeconds(work, device) + SecondsAlone(cells);
  out->group = absl::StrCat(device.name, ", ", NameOf(work.dtype), " products");
  out->label =
      absl::StrCat(out->group, ", ", work.batch, " x ", cells.Text("m"), " x ", cells.Text("n"), " x ", work.k);
  return absl::OkStatus();
}

// Implementations of attention by words of the cells `impl`, `op` and `library`, and the kernels that stand for them,
// the first that the device has, or else its own most usual one; the first row that matches. cuDNN's kernels are about
// as fast as those that FlashAttention has for the same chip (FlashAttention-3, figures 5 and 6). FlexAttention is 0.90
// forward and 0.85 backward of FlashAttention-2 (PyTorch's announcement).
struct Implementation {
  absl::string_view words, kernels;  // separated by '|', by spaces
  double forward = 1, backward = 1;  // of the kernel's rate
};
constexpr Implementation kImplementations[] = {
    {"flashattention triton|triton", "triton"},
    {"xformers|efficient|mem_eff", "xformers memory_efficient"},
    {"flashattention-1|flash1|flash_v1", "flash1"},
    {"flashattention-2|flashattention2|flash-attention-2|flash attention 2|flash2|flash_v2|fav2|fa2", "flash2"},
    {"flashattention-3|flashattention3|flash-attention-3|flash attention 3|flash3|flash_v3|fav3|fa3", "flash3"},
    {"flashattention-4|flashattention4|flash-attention-4|flash attention 4|flash4|flash_v4|fav4|fa4|fa python",
     "flash4"},
    {"trt-llm|trtllm", "trtllm"},
    {"cudnn", "cudnn vendor flash3 flash2"},
    {"flex", "flash2", 0.90, 0.85},
    {"sdpa|flash", "flash2"},
};

// Makes `kernel`, which the device's file does not have, the one that runs: as much of FlashAttention-2's rate as on
// A100. False where A100 has no such kernel, or the device no FlashAttention-2.
bool TakeFromA100(absl::string_view kernel, Device* device) {
  const absl::StatusOr<Device> a100 = FindDevice("a100");
  const auto find = [](const Device& in, absl::string_view name) -> const AttentionConstants* {
    for (const AttentionConstants& constants : in.attention) {
      if (constants.kernel == name) return &constants;
    }
    return nullptr;
  };
  const AttentionConstants* const flash2 = find(*device, "flash2");
  const AttentionConstants* const there = a100.ok() ? find(*a100, kernel) : nullptr;
  const AttentionConstants* const flash2_there = a100.ok() ? find(*a100, "flash2") : nullptr;
  if (flash2 == nullptr || there == nullptr || flash2_there == nullptr) return false;
  AttentionConstants constants = *there;
  constants.estimated = true;
  constants.forward_share *= flash2->forward_share / flash2_there->forward_share;
  constants.backward_share *= flash2->backward_share / flash2_there->backward_share;
  device->attention.insert(device->attention.begin(), constants);
  return true;
}

// Whether the attention is fused, and by which kernel.
absl::StatusOr<bool> Fused(const CsvCells& cells, Device* device, PriceRowResult* out) {
  const std::string impl = Lower(cells, "impl");
  if (absl::StrContains(impl, "pytorch") && !HasAny(impl, {"flash", "sdpa", "flex", "efficient", "cudnn"}))
    return false;
  const std::string made = impl.empty() ? absl::StrCat(Lower(cells, "op"), " ", Lower(cells, "library")) : impl;
  const Implementation* found = nullptr;
  for (const Implementation& row : kImplementations) {
    if (found == nullptr && HasAny(made, std::vector<absl::string_view>(absl::StrSplit(row.words, '|')))) found = &row;
  }
  if (found == nullptr && impl.empty()) {
    out->defaults.push_back(absl::StrCat("impl ", device->attention.front().kernel));
    return true;
  }
  if (found != nullptr) {
    Cluster one;
    one.device = *device;
    for (const absl::string_view kernel : absl::StrSplit(found->kernels, ' ')) {
      if (!SetClusterKey("attention", kernel, &one).ok()) continue;
      *device = one.device;
      device->attention.front().forward_share *= found->forward;
      device->attention.front().backward_share *= found->backward;
      return true;
    }
    for (const absl::string_view kernel : absl::StrSplit(found->kernels, ' ')) {
      if (!TakeFromA100(kernel, device)) continue;
      out->approximations.push_back(absl::StrCat("attention ", kernel, " as much of flash2 as on A100"));
      return true;
    }
    const std::string named(found->kernels.substr(0, found->kernels.find(' ')));
    out->approximations.push_back(absl::StrCat("attention ", named, " as ", device->attention.front().kernel));
    return true;
  }
  std::string has;
  for (const AttentionConstants& kernel : device->attention)
    absl::StrAppend(&has, has.empty() ? "" : ", ", kernel.kernel);
  return CannotExpress("another implementation", absl::StrCat(made, "; ", device->name, " has ", has));
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

absl::StatusOr<bool> IsCausal(const std::string& cell) {
  for (const absl::string_view yes : {"yes", "true", "1", "causal", "y", "top_left", "bottom_right"}) {
    if (cell == yes) return true;
  }
  for (const absl::string_view no : {"", "no", "false", "0", "none", "full", "n", "non-causal", "no_mask"}) {
    if (cell == no) return false;
  }
  return CannotExpress("another mask", cell);
}

absl::Status PriceAttention(const CsvCells& cells, Device device, PriceRowResult* out) {
  KernelWork work;
  work.kernel = KernelClass::kAttention;
  MESHWRIGHT_ASSIGN_OR_RETURN(work.dtype, DTypeOf(cells, device, &out->defaults));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.k, Needed(cells, "head_dim"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> values, cells.Int("head_dim_v", 1));
  // The values' width is that of one of two products forward, of two of five backward.
  const int64_t scored = work.k, valued = values.value_or(work.k);
  work.k = (scored + valued) / 2;
  MESHWRIGHT_ASSIGN_OR_RETURN(work.m, Needed(cells, "seq_len"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t batch, Needed(cells, "batch"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, Needed(cells, "heads"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads, cells.Int("kv_heads", 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.fused, Fused(cells, &device, out));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> kv_len, cells.Int("kv_len", 1));
  work.n = kv_len.value_or(work.m);
  const double heads_in_all = static_cast<double>(batch) * static_cast<double>(std::max(heads, kv_heads.value_or(1)));
  const double longest = static_cast<double>(std::max(work.m, work.n));
  MESHWRIGHT_RETURN_IF_ERROR(CheckElements(heads_in_all * longest * std::max(longest, static_cast<double>(work.k))));
  work.batch = batch * heads;
  const std::string window = Lower(cells, "window");
  if (!window.empty() && window != "-1" && window != "0" && !HasAny(window, {"no", "false", "full"})) {
    return CannotExpress("another mask", absl::StrCat("window ", window));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(work.causal, IsCausal(Lower(cells, "causal")));
  if (cells.Text("causal").empty()) out->defaults.push_back("causal no");
  const int64_t query = work.batch * work.m * work.k, keys = batch * kv_heads.value_or(heads) * work.n * work.k;
  // 4 operations a score and column forward, 2.5 times as many backward; half of them with a causal mask.
  const Flops forward(4.0 * static_cast<double>(query) * static_cast<double>(work.n) * (work.causal ? 0.5 : 1));
  const std::string pass = Lower(cells, "pass");
  if (pass.empty()) out->defaults.push_back("pass forward");
  const bool backward = HasAny(pass, {"bwd", "backward", "both"});
  if (!pass.empty() && !backward && !HasAny(pass, {"fwd", "forward", "context", "prefill"})) {
    return CannotExpress("another pass", absl::StrCat("pass \"", pass, "\", wanted forward, backward or both"));
  }
  const std::string deterministic = Lower(cells, "deterministic");
  if (backward && HasAny(deterministic, {"true", "yes", "1"})) return CannotExpress("deterministic sums", "backward");
  double flops = 0, seconds = 0;
  if (!backward || HasAny(pass, {"fwd", "forward", "both"})) {
    work.flops = forward;
    work.read = SizeOf(work.dtype) * (query + 2 * keys);
    work.written = SizeOf(work.dtype) * query;
    seconds += LoopSeconds(work, device);
    if (!work.fused) seconds += ToSeconds(PlainCopies(work, device));
    flops += forward.raw();
  }
  if (backward) {
    work.backward = true;
    work.flops = forward * (2.5 * static_cast<double>(3 * scored + 2 * valued) / static_cast<double>(5 * work.k));
    work.read = SizeOf(work.dtype) * (3 * query + 2 * keys);
    work.written = SizeOf(work.dtype) * (query + 2 * keys);
    seconds += LoopSeconds(work, device);
    if (!work.fused) seconds += ToSeconds(PlainCopies(work, device));
    flops += work.flops.raw();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(out->seconds.measured, MeasuredSeconds(cells, flops, false));
  out->seconds.predicted = seconds + SecondsAlone(cells);
  out->group =
      absl::StrCat(device.name, ", ", work.fused ? "fused" : "unfused", " attention ", backward ? pass : "forward");
  out->label = absl::StrCat(out->group, ", ", batch, " x ", heads, " heads of ", work.k, ", sequence ", work.m,
                            work.causal ? ", causal" : "");
  return absl::OkStatus();
}

// Of the word that is first in a row's cells: the delta rule, that with a decay for each row, or Mamba-2's state space.
constexpr absl::string_view kDeltaRules = "delta_rule|delta rule|gated_delta|gdn|kda|kimi_delta|kimi delta";
constexpr absl::string_view kDeltaRulesByRow = "kda|kimi_delta|kimi delta";
constexpr absl::string_view kStateSpaces = "mamba|ssd|state_space|state space|chunk_scan";

bool NamesAny(const CsvCells& cells, absl::string_view words) {
  return HasAny(absl::StrCat(Lower(cells, "op"), " ", Lower(cells, "impl")),
                std::vector<absl::string_view>(absl::StrSplit(words, '|')));
}

// `heads` have values, `head_dim` wide are keys.
absl::Status PriceLinearAttention(const CsvCells& cells, const Device& device, PriceRowResult* out) {
  KernelWork work;
  work.kernel = KernelClass::kLinearAttention;
  work.delta = NamesAny(cells, kDeltaRules);
  work.by_row = NamesAny(cells, kDeltaRulesByRow);
  MESHWRIGHT_ASSIGN_OR_RETURN(work.dtype, DTypeOf(cells, device, &out->defaults));
  MESHWRIGHT_ASSIGN_OR_RETURN(work.k, Needed(cells, "head_dim"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> values, cells.Int("head_dim_v", 1));
  work.n = values.value_or(work.k);
  MESHWRIGHT_ASSIGN_OR_RETURN(work.m, Needed(cells, "seq_len"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t batch, Needed(cells, "batch"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, Needed(cells, "heads"));
  const double tokens = static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(work.m);
  MESHWRIGHT_RETURN_IF_ERROR(CheckElements(tokens * static_cast<double>(std::max(work.k, work.n))));
  work.batch = batch * heads;
  const std::string pass = Lower(cells, "pass");
  if (pass.empty()) out->defaults.push_back("pass forward");
  const bool backward = HasAny(pass, {"bwd", "backward", "both"});
  double seconds = 0;
  if (!backward || HasAny(pass, {"fwd", "forward", "both"})) seconds += LoopSeconds(work, device);
  if (backward) {
    work.backward = true;
    seconds += LoopSeconds(work, device);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> time, cells.Number("time_ms"));
  if (!time.has_value() || *time <= 0) return CannotExpress("no time", "time_ms is empty");
  out->seconds = {seconds + SecondsAlone(cells), *time * 1e-3};
  out->group = absl::StrCat(device.name,
                            work.by_row  ? ", delta rule by row "
                            : work.delta ? ", delta rule "
                                         : ", state space ",
                            backward ? pass : "forward");
  out->label =
      absl::StrCat(out->group, ", ", batch, " x ", heads, " heads of ", work.k, " x ", work.n, ", sequence ", work.m);
  return absl::OkStatus();
}

// A layer's forward and backward pass: what a model of three layers takes beyond one of two, without the
// optimizer and the reduction of gradients.
absl::Status PriceLayer(const CsvCells& cells, const RowOverrides& overrides, PriceRowResult* out) {
  MESHWRIGHT_ASSIGN_OR_RETURN(TrainingRun run, ReadTrainingRun(cells, overrides));
  run.tensor_given = run.pipeline_given = run.microbatch_given = true;
  out->defaults = run.defaults;
  out->approximations = run.approximations;
  // A layer with experts, where there are such.
  run.model.dense_layers = 0;
  run.model.expert_every = 1;
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
  const bool attention = !cells.Text("head_dim").empty();
  if (!attention && !(cells.Text("fwd_ms") + cells.Text("combined_ms")).empty())
    return PriceLayer(cells, overrides, out);
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, ClusterOf(cells, overrides, 1, 1));
  cluster.device.kernels.sustained_clock = ClockInLoops(cells, cluster.device.kernels);
  MESHWRIGHT_RETURN_IF_ERROR(SetClusterKeys(overrides, &cluster));
  if (!cells.Text("m").empty()) return PriceProduct(cells, cluster.device, out);
  if (attention && (NamesAny(cells, kDeltaRules) || NamesAny(cells, kStateSpaces))) {
    return PriceLinearAttention(cells, cluster.device, out);
  }
  if (attention) return PriceAttention(cells, cluster.device, out);
  return CannotExpress("neither a product nor attention", cells.Text("op"));
}

// --- collectives ---------------------------------------------------------------------------------------------------

absl::Status PriceCollectiveRow(const CsvCells& cells, const RowOverrides& overrides, PriceRowResult* out) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckStatus(cells));
  MESHWRIGHT_ASSIGN_OR_RETURN(const CollectiveRow row, ReadCollectiveRow(cells, overrides));
  Device fitted = row.cluster.device;
  if (!overrides.constants_of.empty()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(fitted, FindDevice(overrides.constants_of));
  }
  out->seconds = {SecondsOfCollective(row, fitted), row.seconds};
  out->defaults = row.defaults;
  out->approximations = row.approximations;
  out->group = row.group;
  out->label = row.label;
  return absl::OkStatus();
}

using PriceRow = std::function<absl::Status(const CsvCells&, const RowOverrides&, PriceRowResult*)>;

absl::StatusOr<PriceTableResult> PriceTable(const CsvTable& table, const RowOverrides& overrides,
                                            const PriceRow& price) {
  PriceTableResult result;
  result.file = table.file;
  result.remarks = table.remarks;
  for (const CsvRow& row : table.rows) {
    PriceRowResult& out = result.rows.emplace_back();
    out.line = row.line;
    if (!row.damaged.empty()) {
      out.skipped = absl::StrCat("damaged row: ", row.damaged);
      continue;
    }
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

}  // namespace

absl::StatusOr<PriceTableResult> PriceKernelTable(const CsvTable& table, const RowOverrides& overrides) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable known, WithKernelColumns(table));
  return PriceTable(known, overrides, PriceKernelRow);
}

absl::StatusOr<PriceTableResult> PriceCollectiveTable(const CsvTable& table, const RowOverrides& overrides) {
  MESHWRIGHT_ASSIGN_OR_RETURN(CsvTable known, WithCollectiveColumns(table));
  if (!known.Find("collective").has_value()) NameCollective(&known);
  return PriceTable(known, overrides, PriceCollectiveRow);
}

PriceTableSummary Summarise(const PriceTableResult& table) {
  PriceTableSummary summary;
  std::vector<Pair> all;
  std::map<std::string, std::vector<Pair>> groups;
  for (const PriceRowResult& row : table.rows) {
    if (!summary.Add(row)) continue;
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
  for (const std::string& remark : table.remarks) absl::StrAppend(&text, "  note: ", remark, "\n");
  for (const PriceRowResult& row : table.rows) {
    if (!rows) break;
    absl::StrAppend(&text, "  line ", row.line, ": ");
    if (!row.skipped.empty()) {
      absl::StrAppend(&text, "skipped, ", row.skipped, "\n");
      continue;
    }
    absl::StrAppendFormat(&text, "%s: predicted %.4g us, measured %.4g us, %+.1f %%", row.label,
                          1e6 * row.seconds.predicted, 1e6 * row.seconds.measured, 100 * row.seconds.Error());
    absl::StrAppend(&text, TextOf(row.defaults, row.approximations), "\n");
  }
  absl::StrAppend(&text, s.Lines(0));
  for (const auto& [name, errors] : s.groups) absl::StrAppend(&text, ErrorText(name, errors));
  if (s.all.count > 0) absl::StrAppend(&text, ErrorText("all", s.all));
  return text;
}

std::string ToJson(const std::vector<PriceTableResult>& tables, bool rows) {
  Json out = Json::array();
  for (const PriceTableResult& table : tables) {
    const PriceTableSummary s = Summarise(table);
    Json json = JsonOf("meshwright/price_validation/1", table, s);
    json["time"] = JsonOf(s.all);
    json["groups"] = Json::object();
    for (const auto& [name, errors] : s.groups) json["groups"][name] = JsonOf(errors);
    if (rows) json["per_row"] = Json::array();
    for (const PriceRowResult& row : table.rows) {
      if (!rows) break;
      Json one = {{"line", row.line}, {"label", row.label}};
      if (!row.skipped.empty()) {
        one["skipped"] = row.skipped;
      } else {
        one["predicted_s"] = row.seconds.predicted;
        one["measured_s"] = row.seconds.measured;
        one["error"] = row.seconds.Error();
        one["defaults"] = row.defaults;
        one["approximations"] = row.approximations;
      }
      json["per_row"].push_back(std::move(one));
    }
    out.push_back(std::move(json));
  }
  return TextOf(out);
}

}  // namespace meshwright
