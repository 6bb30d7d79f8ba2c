#include "tools/validate/training_measurement.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/validate/flops_rate.h"
#include "tools/validate/row_model.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

// Where a source does not say how it counts: as most do (Chowdhery et al. 2022, appendix B, with 6 N of all
// parameters).
constexpr absl::string_view kUsualFlops = "6N + 12 L h s";

absl::Status ReadPeak(const CsvCells& cells, const Device& device, TrainingMeasurement* measured) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> peak, cells.Number("peak_mem_gb"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> share, cells.Number("peak_mem_pct"));
  if (!peak.has_value() && share.has_value() && *share > 0 && *share <= 100) {
    // Who has a share of the card has it from the driver.
    measured->whole_process = true;
    measured->peak = Bytes(static_cast<int64_t>(static_cast<double>(device.memory.raw()) * *share / 100));
  }
  if (!peak.has_value() || *peak <= 0) return absl::OkStatus();
  const std::string definition = cells.Text("mem_def");
  // nvidia-smi's figures are MiB; who calls them GB has divided by 1024.
  // nanotron's table of a run has what the allocator reserved on the first rank, in GB of 1024^3 (helpers.py,
  // create_table_log; what was allocated is reset before the optimizer's step).
  const bool nanotron = HasAny(definition, {"nanotron"});
  // torchtitan's, too, in GiB (components/metrics.py).
  const std::string source = absl::AsciiStrToLower(
      absl::StrCat(cells.Text("source_ref"), definition, cells.Text("flops_def"), cells.Text("notes")));
  measured->reserved = nanotron || HasAny(definition, {"reserved"}) ||
                       (HasAny(source, {"torchtitan"}) && !HasAny(definition, {"allocated"}));
  measured->whole_process = HasAny(definition, {"nvidia-smi", "device memory"});
  const bool binary = nanotron || measured->whole_process || absl::StrContains(definition, "GiB");
  // FlashAttention's training code prints no memory; its monitors ask nvidia-smi (configs/callbacks/gpu-monitor.yaml:
  // Lightning's GPUStatsMonitor), whose MiB it divides by 1000 (configs/experiment/owt/base.yaml, gpu_mem).
  const bool thousands = HasAny(source, {"flash-attention training/configs"});
  measured->whole_process |= thousands;
  measured->peak = Bytes(static_cast<int64_t>(*peak * (thousands ? 1048576e3 : binary ? 1073741824.0 : 1e9)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingMeasurement> ReadTrainingMeasurement(const CsvCells& cells, const TrainingRun& run) {
  TrainingMeasurement measured;
  const std::string status = absl::AsciiStrToLower(cells.Text("status"));
  measured.out_of_memory = HasAny(status, {"oom", "out of memory", "out_of_memory"});
  if (!measured.out_of_memory && !status.empty() && status != "ok") {
    return CannotExpress("status", status);
  }
  MESHWRIGHT_RETURN_IF_ERROR(ReadPeak(cells, run.cluster.device, &measured));
  if (measured.out_of_memory) return measured;
  for (const char* column : {"step_time_s", "step_time_derived_s"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> seconds, cells.Number(column));
    if (!seconds.has_value() || *seconds <= 0) continue;
    measured.step_seconds = seconds;
    measured.from = column;
    return measured;
  }
  const double tokens = static_cast<double>(run.training.batch) * static_cast<double>(run.training.sequence);
  const double devices = static_cast<double>(run.cluster.num_devices());
  for (const char* column : {"tokens_per_s_total", "tokens_per_s_per_gpu"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> rate, cells.Number(column));
    if (!rate.has_value() || *rate <= 0) continue;
    measured.step_seconds = tokens / (absl::EndsWith(column, "per_gpu") ? *rate * devices : *rate);
    measured.from = column;
    return measured;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> teraflops, cells.Number("tflops_per_gpu"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> sequence, cells.Number("seq_len"));
  for (const char* column : {"samples_per_s", "samples_per_s_per_gpu"}) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> rate, cells.Number(column));
    if (!rate.has_value() || *rate <= 0) continue;
    const double rows =
        run.packed && sequence.has_value() ? tokens / *sequence : static_cast<double>(run.training.batch);
    measured.step_seconds = rows / (absl::EndsWith(column, "per_gpu") ? *rate * devices : *rate);
    measured.from = column;
    return measured;
  }
  const double row = static_cast<double>(run.training.sequence);
  const std::string definition = cells.Text("flops_def");
  const bool open = definition.empty();
  std::optional<double> flops = FlopsOfStep(open ? kUsualFlops : definition, run.model,
                                            run.packed ? row : sequence.value_or(row), tokens, run.frozen);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::optional<double> share, cells.Number("mfu_pct"));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<double> hardware, cells.Number("hfu_pct"));
  const bool again = run.recompute == Recompute::kLayer || run.recompute == Recompute::kFull;
  if (open && again && hardware.has_value() && !share.has_value() && flops.has_value()) {
    // The rate is that of the hardware: the forward pass of these layers runs twice.
    *flops *= 1 + run.recompute_share / (run.frozen ? 2 : 3);
  }
  // Alone it tells the time where it is known what runs again.
  const bool alone = !share.has_value() && (again || run.recompute == Recompute::kNone);
  if (alone) share = hardware;
  const std::string count = open ? "taken for 6 N + 12 L h s a token" : "as flops_def counts them";
  if (teraflops.has_value() && *teraflops > 0 && flops.has_value()) {
    measured.step_seconds = *flops / (*teraflops * 1e12 * devices);
    measured.from = absl::StrCat("tflops_per_gpu, ", count);
    return measured;
  }
  // A share of the peak that the data sheet gives for the type, where nothing else is printed.
  const double peak_rate = run.narrow ? 0 : run.cluster.device.Peak(run.training.dtype).raw();
  if (share.has_value() && *share > 0 && *share < 100 && peak_rate > 0 && flops.has_value()) {
    measured.step_seconds = *flops / (*share / 100 * peak_rate * devices);
    measured.from = absl::StrCat(alone ? "hfu_pct" : "mfu_pct", ", FLOPs ", count);
    return measured;
  }
  if (measured.peak.has_value()) return measured;
  return CannotExpress("no time or rate",
                       "step_time_s, step_time_derived_s, tokens_per_s and samples_per_s are empty or not above 0, "
                       "tflops_per_gpu and mfu_pct, too, or flops_def counts in a way that is not known");
}

}  // namespace meshwright
