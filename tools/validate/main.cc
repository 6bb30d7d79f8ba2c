// validate: holds predictions to measurements that others published.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/measure/nccl_log.h"
#include "tools/validate/collective_row.h"
#include "tools/validate/csv.h"
#include "tools/validate/price_table.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

Command ValidateCommand() {
  Command command{
      .name = "validate",
      .summary = "Predicts the rows of tables of measurements, or of logs of nccl-tests, and says how far off it is.",
      .arguments = "training|kernels|collectives TABLE.csv...",
      .num_arguments = 2,
      .more_arguments = true,
      .example = {"validate training korthikanti_2022.csv --rows"},
      .flags = {{"rows", "", "one line for each row, with the defaults that it took"},
                {"format", "FORM", "text or json"},
                {"device", "NAME", "in place of the column gpu_type"},
                {"internode", "X",
                 "in place of the column interconnect: cards x rate, e.g. 8x200Gb/s, or a node's rate"},
                {"constants_of", "NAME", "of kernels and collectives: a device whose fitted constants are taken"},
                {"host_kernel", "TIME", "that an eager framework's CPU needs to issue a kernel, e.g. 20 us"},
                {"host_collective", "TIME", "the same of a collective"}},
  };
  for (const ClusterKey& key : ClusterKeys()) {
    command.flags.push_back({std::string(key.name), "X", std::string(key.help)});
  }
  return command;
}

absl::StatusOr<RowOverrides> OverridesFrom(const Flags& flags) {
  RowOverrides overrides;
  overrides.device = flags.Text("device");
  overrides.internode = flags.Text("internode");
  overrides.constants_of = flags.Text("constants_of");
  if (flags.Has("constants_of")) {
    const absl::StatusOr<Device> device = FindDevice(overrides.constants_of);
    if (!device.ok()) return Flags::Wrong("constants_of", device.status());
  }
  for (const auto& [name, time] : {std::make_pair("host_kernel", &overrides.eager.kernel),
                                   std::make_pair("host_collective", &overrides.eager.collective)}) {
    if (!flags.Has(name)) continue;
    const absl::StatusOr<Nanos> parsed = ParseNanos(flags.Text(name));
    if (!parsed.ok()) return Flags::Wrong(name, parsed.status());
    *time = *parsed;
  }
  for (const ClusterKey& key : ClusterKeys()) {
    if (flags.Has(key.name)) overrides.cluster_keys[std::string(key.name)] = flags.Text(key.name);
  }
  return overrides;
}

constexpr size_t kMostLogBytes = size_t{64} << 20;

// A table, or what nccl-tests printed.
absl::StatusOr<CsvTable> ReadTableOrLog(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostLogBytes));
  return LooksLikeNcclLog(text) ? TableOfNcclLog(text, path) : ParseCsv(text, path);
}

// Prints the tables one by one, or JSON of all at the end.
template <class Result>
absl::Status Predict(const Flags& flags, absl::StatusOr<Result> (*predict)(const CsvTable&, const RowOverrides&),
                     absl::StatusOr<CsvTable> (*read)(const std::string&) = ReadCsv) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RowOverrides overrides, OverridesFrom(flags));
  std::vector<Result> results;
  for (size_t i = 1; i < flags.arguments().size(); ++i) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table, read(flags.arguments()[i]));
    MESHWRIGHT_ASSIGN_OR_RETURN(Result result, predict(table, overrides));
    if (format != 1) Print(ToText(result, flags.True("rows")));
    results.push_back(std::move(result));
  }
  if (format == 1) Print(ToJson(results, flags.True("rows")));
  return absl::OkStatus();
}

absl::Status RunValidate(const Flags& flags) {
  const std::string& kind = flags.arguments()[0];
  if (kind == "training") return Predict(flags, PredictTrainingTable);
  if (kind == "kernels") return Predict(flags, PriceKernelTable);
  if (kind == "collectives") return Predict(flags, PriceCollectiveTable, ReadTableOrLog);
  return WithExit(ExitCode::kUsage, WrongInput(QuoteForMessage(kind), "one of training, kernels, collectives"));
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::ValidateCommand(), meshwright::RunValidate, argc, argv);
}
