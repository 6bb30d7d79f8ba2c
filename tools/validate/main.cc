// validate: holds predictions to measurements that others published.
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "ir/files.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/measure/nccl_json.h"
#include "tools/measure/nccl_log.h"
#include "tools/validate/attention_log.h"
#include "tools/validate/collective_row.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"
#include "tools/validate/price_table.h"
#include "tools/validate/product_log.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

Command ValidateCommand() {
  Command command{
      .name = "validate",
      .summary = "Predicts rows of tables of measurements and of benchmarks' logs, and says how far off it is.",
      .arguments = "training|kernels|collectives TABLE.csv...",
      .num_arguments = 2,
      .more_arguments = true,
      .example = {"validate training korthikanti_2022.csv --rows"},
      .flags = {{"rows", "", "one line for each row, with the defaults that it took"},
                {"format", "FORM", "text or json"},
                {"device", "NAME", "in place of the column gpu_type: a device, or a file with one"},
                {"internode", "X",
                 "in place of the column interconnect: cards x rate, e.g. 8x200Gb/s, or a node's rate"},
                {"ranks", "N", "of collectives: in place of the column ranks"},
                {"collective", "NAME", "in place of the column collective, e.g. all_gather"},
                {"expert_imbalance", "X",
                 "tokens of the fullest expert over the mean, in place of the column; 1 unless given"},
                {"constants_of", "NAME", "of kernels and collectives: a device whose fitted constants are taken"}},
  };
  for (const ClusterKey& key : ClusterKeys()) {
    command.flags.push_back({std::string(key.name), "X", std::string(key.help), "", "The cluster"});
  }
  return command;
}

constexpr size_t kMostLogBytes = size_t{64} << 20;

// A table, or what FlashAttention's benchmarks printed.
absl::StatusOr<CsvTable> ReadKernels(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostLogBytes));
  if (LooksLikeAttentionLog(text)) return TableOfAttentionLog(text, path);
  return LooksLikeProductLog(text) ? TableOfProductLog(text, path) : ParseCsv(text, path);
}

// A table, or what nccl-tests printed.
absl::StatusOr<CsvTable> ReadCollectives(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostLogBytes));
  if (LooksLikeNcclJson(text)) return TableOfNcclLog(text, path);
  if (!LooksLikeNcclLog(text)) return ParseCsv(text, path);
  absl::StatusOr<CsvTable> log = TableOfNcclLog(text, path);
  // Scripts make tables of logs, whose lines have a part of the log's columns.
  const bool table = !log.ok() && absl::StrContains(text.substr(0, text.find('\n')), ',');
  return table ? ParseCsv(text, path) : log;
}

absl::StatusOr<TrainingTableResult> PredictTrainings(const CsvTable& table, const RowOverrides& overrides) {
  Progress progress("predicting");
  return PredictTrainingTable(table, overrides, [&](size_t done, size_t all) {
    progress.Update(static_cast<int64_t>(done), static_cast<int64_t>(all));
  });
}

// A script that looks at the exit code alone must not take tables of which no row could be read for checked ones.
template <class Result>
absl::Status CheckPredicted(const std::vector<Result>& results) {
  size_t rows = 0;
  for (const Result& result : results) {
    if (absl::c_any_of(result.rows, [](const auto& row) { return row.skipped.empty(); })) return absl::OkStatus();
    rows += result.rows.size();
  }
  return absl::InvalidArgumentError(
      rows == 0 ? "found no row below the line of names, wanted a line for each measurement"
                : absl::StrCat("predicted none of ", rows, rows == 1 ? " row" : " rows",
                               "; \"skipped\" above says what each lacks, docs/tables.md what the columns mean"));
}

// Prints the tables one by one and what `of_all` says of all, or JSON of all at the end. A file that cannot be read is
// told, and the others go on.
template <class Result>
absl::Status Predict(const Flags& flags, absl::StatusOr<Result> (*predict)(const CsvTable&, const RowOverrides&),
                     absl::StatusOr<CsvTable> (*read)(const std::string&),
                     std::string (*of_all)(const std::vector<Result>&) = nullptr) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RowOverrides overrides, OverridesFrom(flags));
  std::vector<Result> results;
  absl::Status unread;
  const size_t files = flags.arguments().size() - 1;
  for (size_t i = 1; i <= files; ++i) {
    const absl::StatusOr<CsvTable> table = read(flags.arguments()[i]);
    absl::StatusOr<Result> result = table.ok() ? predict(*table, overrides) : table.status();
    if (!result.ok()) {
      if (files > 1) std::fprintf(stderr, "not read: %s\n", std::string(result.status().message()).c_str());
      if (unread.ok()) unread = result.status();
      continue;
    }
    if (format != 1) Print(ToText(*result, flags.True("rows")));
    results.push_back(*std::move(result));
  }
  if (format != 1 && of_all != nullptr && !results.empty()) Print(of_all(results));
  if (format == 1 && !results.empty()) Print(ToJson(results, flags.True("rows")));
  if (unread.ok()) return CheckPredicted(results);
  if (files == 1) return unread;
  return WithExit(ExitCodeOf(unread),
                  WithPrefix(absl::StrCat("read ", results.size(), " of ", files, " files: "), unread));
}

absl::Status RunValidate(const Flags& flags) {
  const std::string& kind = flags.arguments()[0];
  if (kind == "training") return Predict(flags, PredictTrainings, ReadCsv, KindsToText);
  if (kind == "kernels") return Predict(flags, PriceKernelTable, ReadKernels);
  if (kind == "collectives") return Predict(flags, PriceCollectiveTable, ReadCollectives);
  return WithExit(ExitCode::kUsage, WrongInput(QuoteForMessage(kind), "one of training, kernels, collectives"));
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::ValidateCommand(), meshwright::RunValidate, argc, argv);
}
