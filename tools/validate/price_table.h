// Tables of single kernels and single collectives against their prices.
//
// Kernels: columns m, n, k (and batch_or_groups) are a product, head_dim and seq_len (kv_len, batch, heads, causal,
// pass, impl) fused attention; time_ms, else tflops as the source counts it. Measured in loops of one kernel, so
// at the device's loop_clock (1 where neither power limit nor boost move it) unless a flag says otherwise, or alone
// where the row's words say so (kernel_timing.h). Where cells
// are empty: dtype bf16 (fp16 where the device has no other), kv_heads as heads, kv_len as seq_len, causal no, pass
// forward, impl the kernel that the device runs. Collectives: collective, size_bytes as nccl-tests count it (else count
// and dtype), ranks, nodes, gpus_per_node (two of the three); time_us, else busbw_gbps or algbw_gbps. Other names and
// units of these columns: price_columns.h and table_columns.cc; what a row of collectives may hold: collective_row.h.
// A row that has a time and a rate of one product or call must have them agree.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_PRICE_TABLE_H_
#define MESHWRIGHT_TOOLS_VALIDATE_PRICE_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"
#include "tools/validate/row_counts.h"
#include "tools/validate/score.h"

namespace meshwright {

struct PriceRowResult {
  int64_t line = 0;     // in the file
  std::string label;    // "a100-sxm-80gb bfloat16 4096 x 4096 x 4096"
  std::string group;    // what is summarised on its own: "a100-sxm-80gb, bfloat16 products"
  std::string skipped;  // why there is no prediction: "reason: detail"
  std::vector<std::string> defaults, approximations;  // of cells that are empty; of what is priced as something else
  Pair seconds;
};

struct PriceTableResult {
  std::string file;
  std::vector<std::string> remarks;  // CsvTable's
  std::vector<PriceRowResult> rows;
};

// A damaged cell and what cannot be expressed is a row that says so. kInvalidArgument where the columns leave open what
// they are (price_columns.h).
absl::StatusOr<PriceTableResult> PriceKernelTable(const CsvTable& table, const RowOverrides& overrides);
absl::StatusOr<PriceTableResult> PriceCollectiveTable(const CsvTable& table, const RowOverrides& overrides);

struct PriceTableSummary : RowCounts {
  ErrorSummary all;
  std::map<std::string, ErrorSummary> groups;
};
PriceTableSummary Summarise(const PriceTableResult& table);

std::string ToText(const PriceTableResult& table, bool rows);
std::string ToJson(const std::vector<PriceTableResult>& tables, bool rows);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_PRICE_TABLE_H_
