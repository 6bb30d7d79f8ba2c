#include "tools/validate/siblings.h"

#include <algorithm>
#include <cmath>

#include "tools/validate/table_columns.h"

namespace meshwright {
namespace {

// An integer from 1; nothing for an empty cell, or a damaged one, which costs its own row.
std::optional<int64_t> IntOf(const CsvCells& cells, absl::string_view column) {
  const auto value = cells.Int(column, 1);
  return value.ok() ? *value : std::nullopt;
}

bool SameRun(const CsvCells& one, const CsvCells& other) {
  constexpr absl::string_view kColumns[] = {"model", "layers", "hidden", "seq_len", "gpus", "gpu_type", "other_opts"};
  return std::all_of(std::begin(kColumns), std::end(kColumns),
                     [&](absl::string_view column) { return one.Text(column) == other.Text(column); });
}

}  // namespace

int64_t HeadsOfSibling(const CsvCells& cells, int64_t hidden, double layers, int64_t tensor) {
  int64_t found = 0;
  double least = 1e30;
  for (const CsvCells& row : cells.Others()) {
    const auto heads = IntOf(row, "heads"), depth = IntOf(row, "layers");
    if (IntOf(row, "hidden") != hidden || !heads.has_value() || !depth.has_value()) continue;
    const double distance = std::abs(layers - static_cast<double>(*depth));
    if (*heads % tensor != 0 || distance >= least) continue;
    found = *heads;
    least = distance;
  }
  return found;
}

std::optional<CsvCells> SiblingWithLayout(const CsvCells& cells) {
  const auto batch = IntOf(cells, "global_batch_seqs"), devices = IntOf(cells, "gpus");
  if (!LentColumnsAreEmpty(cells) || !batch.has_value() || !devices.has_value()) return std::nullopt;
  std::optional<CsvCells> found;
  double least = 1e30;
  for (const CsvCells& row : cells.Others()) {
    const auto tensor = IntOf(row, "tp");
    if (!tensor.has_value()) continue;  // most rows, where one lacks it
    const auto pipeline = IntOf(row, "pp"), other = IntOf(row, "global_batch_seqs");
    if (!pipeline.has_value() || !other.has_value() || !SameRun(cells, row)) continue;
    const int64_t context = IntOf(row, "cp").value_or(1), rows = IntOf(row, "micro_batch_seqs").value_or(1);
    // Beyond these nothing divides; cells may hold more than 64 bits of product.
    const double parts = static_cast<double>(*tensor) * static_cast<double>(*pipeline) * static_cast<double>(context);
    if (parts > static_cast<double>(*devices)) continue;
    const int64_t model = *tensor * *pipeline * context, replicas = *devices / model;
    if (static_cast<double>(replicas) * static_cast<double>(rows) > static_cast<double>(*batch)) continue;
    if (*devices % model != 0 || *batch % (replicas * rows) != 0) continue;
    const double distance = std::abs(std::log(static_cast<double>(*other) / static_cast<double>(*batch)));
    if (distance >= least) continue;
    found.emplace(row);
    least = distance;
  }
  return found;
}

}  // namespace meshwright
