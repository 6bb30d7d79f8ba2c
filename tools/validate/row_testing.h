// Rows of training runs that tests read: one that says everything, and Llama 2 7B on eight A100, with other cells.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_ROW_TESTING_H_
#define MESHWRIGHT_TOOLS_VALIDATE_ROW_TESTING_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/validate/csv.h"
#include "tools/validate/training_row.h"

namespace meshwright {

using Cells = std::vector<std::pair<std::string, std::string>>;

// Two nodes of A100, a small GPT.
inline Cells Usual() {
  return {{"model", "GPT 1B"},
          {"layers", "4"},
          {"hidden", "1024"},
          {"ffn", "4096"},
          {"heads", "16"},
          {"kv_heads", "16"},
          {"vocab", "51200"},
          {"seq_len", "1024"},
          {"dtype", "fp16"},
          {"gpu_type", "a100-sxm-80gb"},
          {"gpus", "16"},
          {"gpus_per_node", "8"},
          {"tp", "2"},
          {"pp", "2"},
          {"dp", "4"},
          {"global_batch_seqs", "64"},
          {"vpp", "1"},
          {"cp", "1"},
          {"micro_batch_seqs", "2"},
          {"interconnect", "4 x 100Gb RoCE"},
          {"recompute", "full"},
          {"attention", "unfused"},
          {"zero_fsdp", "none"},
          {"seq_parallel", "no"},
          {"step_time_s", "2"},
          {"status", "ok"}};
}

// That row with these cells in place of its own, or beside them.
inline CsvTable TableOf(const Cells& changes) {
  Cells cells = Usual();
  for (const auto& [name, value] : changes) {
    bool found = false;
    for (auto& [key, cell] : cells) {
      if (key == name) cell = value;
      found |= key == name;
    }
    if (!found) cells.push_back({name, value});
  }
  CsvTable table;
  table.file = "t.csv";
  table.rows.push_back({2, {}});
  for (const auto& [name, value] : cells) {
    table.columns.push_back(name);
    table.rows[0].cells.push_back(value);
  }
  return table;
}

inline absl::StatusOr<TrainingRun> RunOf(const Cells& changes, const RowOverrides& overrides = {}) {
  const CsvTable table = TableOf(changes);
  return ReadTrainingRun(CsvCells(table, table.rows[0]), overrides);
}

// A row of Llama 2 7B on 8 A100, with `columns` beside (",name") and their `cells`.
inline absl::StatusOr<CsvTable> Table(const std::string& columns, const std::string& cells) {
  return ParseCsv(absl::StrCat("model,gpu_type,gpus,tp,pp,dp,seq_len,global_batch_seqs,micro_batch_seqs", columns, "\n",
                               "Llama 2 7B,A100 80GB,8,1,1,8,2048,64,1", cells, "\n"),
                  "t.csv");
}

inline absl::StatusOr<TrainingRun> RunOf(const std::string& columns, const std::string& cells) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table, Table(columns, cells));
  return ReadTrainingRun(CsvCells(table, table.rows[0]), {});
}

// A row of `model` with the cells of `columns`, and no layout.
inline absl::StatusOr<TrainingRun> OpenRunOf(const std::string& model, const std::string& columns,
                                             const std::string& cells) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table,
                              ParseCsv(absl::StrCat("model,gpu_type,micro_batch_seqs,dtype", columns, "\n", model,
                                                    ",A100 80GB,2,bf16", cells, "\n"),
                                       "t.csv"));
  return ReadTrainingRun(CsvCells(table, table.rows[0]), {});
}

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_ROW_TESTING_H_
