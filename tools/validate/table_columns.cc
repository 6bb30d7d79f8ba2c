#include "tools/validate/table_columns.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/validate/columns.h"

namespace meshwright {
namespace {

// --- tables of kernels and of collectives ----------------------------------------------------------------------------

enum class Of : uint8_t { kBoth, kKernels, kCollectives };

struct PricedColumn {
  Of tables;
  KnownColumn column;
};
// An earlier row takes its column first: "gpus" counts ranks, and is no device.
constexpr PricedColumn kPriced[] = {
    {Of::kCollectives,
     {"collective", ColumnUnit::kText, "collective_op op operation coll collective_type primitive program test"}},
    {Of::kBoth, {"gpu_type", ColumnUnit::kText, "gpu device device_name gpu_name gpu_model accelerator hardware"}},
    {Of::kCollectives, {"nodes", ColumnUnit::kText, "num_nodes n_nodes nnodes hosts num_hosts servers"}},
    {Of::kCollectives,
     {"gpus_per_node", ColumnUnit::kText, "gpus_node ppn ranks_per_node local_size devices_per_node nproc_per_node"}},
    {Of::kCollectives,
     {"ranks", ColumnUnit::kText, "world_size num_ranks n_ranks nranks num_gpus n_gpus ngpus gpus np devices"}},
    {Of::kCollectives, {"interconnect", ColumnUnit::kText, "network fabric links link topology transport"}},
    {Of::kCollectives, {"nccl_version", ColumnUnit::kText, "nccl"}},
    {Of::kCollectives, {"algo", ColumnUnit::kText, "algorithm nccl_algo"}},
    {Of::kCollectives, {"proto", ColumnUnit::kText, "protocol nccl_proto"}},
    {Of::kBoth, {"dtype", ColumnUnit::kText, "precision datatype data_type type"}},
    {Of::kCollectives,
     {"size_bytes", ColumnUnit::kBytes, "message_size msg_size data_size buffer_size payload size message bytes"}},
    {Of::kCollectives, {"count", ColumnUnit::kText, "elements num_elements numel count_elements"}},
    {Of::kCollectives,
     {"time_us", ColumnUnit::kMicros,
      "time avg_time mean_time median_time time_avg time_mean latency avg_latency mean_latency duration elapsed"}},
    {Of::kCollectives, {"busbw_gbps", ColumnUnit::kGigabytesPerSecond, "busbw bus_bw bus_bandwidth"}},
    {Of::kCollectives, {"algbw_gbps", ColumnUnit::kGigabytesPerSecond, "algbw alg_bw algo_bw algorithm_bandwidth"}},
    {Of::kKernels, {"head_dim", ColumnUnit::kText, "headdim hdim head_size d_head dhead d"}},
    {Of::kKernels, {"seq_len", ColumnUnit::kText, "seqlen sequence_length seqlen_q q_len seq s"}},
    {Of::kKernels, {"kv_len", ColumnUnit::kText, "seqlen_k seqlen_kv kv_seq_len"}},
    {Of::kKernels, {"batch", ColumnUnit::kText, "batch_size bsz bs b"}},
    {Of::kKernels, {"heads", ColumnUnit::kText, "num_heads n_heads nheads q_heads num_q_heads hq h"}},
    {Of::kKernels, {"kv_heads", ColumnUnit::kText, "num_kv_heads n_kv_heads nheads_kv hkv"}},
    {Of::kKernels, {"causal", ColumnUnit::kText, "is_causal mask attn_mask mask_type"}},
    {Of::kKernels, {"pass", ColumnUnit::kText, "direction mode phase"}},
    {Of::kKernels, {"impl", ColumnUnit::kText, "implementation backend provider"}},
    {Of::kKernels,
     {"time_ms", ColumnUnit::kMillis,
      "time avg_time mean_time median_time median mean latency avg_latency mean_latency duration runtime elapsed"}},
    {Of::kKernels, {"tflops", ColumnUnit::kTeraflops, "tflop_s tflops_s tflops_per_s throughput performance perf"}},
    // The rate in other units, where the column's name is the unit.
    {Of::kKernels, {"gflops", ColumnUnit::kText, "gflop_s gflops_s gflops_per_s"}},
    {Of::kKernels, {"pflops", ColumnUnit::kText, "pflop_s pflops_s pflops_per_s"}},
};

CsvTable WithColumnsOf(Of kind, CsvTable table) {
  std::vector<KnownColumn> known;
  for (const PricedColumn& row : kPriced) {
    if (row.tables == kind || row.tables == Of::kBoth) known.push_back(row.column);
  }
  return WithKnownColumns(std::move(table), known);
}

// --- tables of training runs, which have these names -----------------------------------------------------------------

enum class Tells : uint8_t { kRun, kLayout, kLentLayout };

struct TrainingColumn {
  Tells tells;
  absl::string_view name;
};
constexpr TrainingColumn kTraining[] = {
    {Tells::kRun, "model"},
    {Tells::kRun, "layers"},
    {Tells::kRun, "hidden"},
    {Tells::kRun, "ffn"},
    {Tells::kRun, "heads"},
    {Tells::kRun, "kv_heads"},
    {Tells::kRun, "vocab"},
    {Tells::kRun, "seq_len"},
    {Tells::kRun, "global_batch_seqs"},
    {Tells::kRun, "dtype"},
    {Tells::kRun, "gpu_type"},
    {Tells::kRun, "gpu_mem_gb"},
    {Tells::kRun, "gpus"},
    {Tells::kRun, "interconnect"},
    {Tells::kRun, "recompute"},
    {Tells::kRun, "attention"},
    {Tells::kRun, "compile"},
    {Tells::kRun, "other_opts"},
    {Tells::kLentLayout, "tp"},
    {Tells::kLentLayout, "pp"},
    {Tells::kLentLayout, "vpp"},
    {Tells::kLentLayout, "dp"},
    {Tells::kLentLayout, "cp"},
    {Tells::kLentLayout, "micro_batch_seqs"},
    {Tells::kLayout, "ep"},
    {Tells::kLayout, "etp"},
    {Tells::kLayout, "zero_fsdp"},
    {Tells::kLayout, "seq_parallel"},
    {Tells::kLayout, "grad_accum"},
};

std::string KeyOf(const CsvCells& cells, bool run) {
  std::string key;
  for (const TrainingColumn& column : kTraining) {
    if ((column.tells == Tells::kRun) == run) absl::StrAppend(&key, cells.Text(column.name), "\x1f");
  }
  return key;
}

}  // namespace

CsvTable WithKernelColumns(CsvTable table) { return WithColumnsOf(Of::kKernels, std::move(table)); }
CsvTable WithCollectiveColumns(CsvTable table) { return WithColumnsOf(Of::kCollectives, std::move(table)); }

std::string RunKey(const CsvCells& cells) { return KeyOf(cells, true); }
std::string LayoutKey(const CsvCells& cells) { return KeyOf(cells, false); }

bool IsLentColumn(absl::string_view column) {
  return std::any_of(std::begin(kTraining), std::end(kTraining),
                     [&](const TrainingColumn& row) { return row.tells == Tells::kLentLayout && row.name == column; });
}

bool LentColumnsAreEmpty(const CsvCells& cells) {
  return std::all_of(std::begin(kTraining), std::end(kTraining), [&](const TrainingColumn& row) {
    return row.tells != Tells::kLentLayout || cells.Text(row.name).empty();
  });
}

}  // namespace meshwright
