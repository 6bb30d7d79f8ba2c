// Holds predictions to measurements that others published.
//   validate training|kernels|collectives FILE... [--rows] [--format=json] [--device=NAME] [--internode=8x200Gb/s]
//   [--<cluster key>=...]
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/validate/csv.h"
#include "tools/validate/price_table.h"
#include "tools/validate/training_table.h"

namespace meshwright {
namespace {

constexpr char kUsage[] =
    "validate training|kernels|collectives FILE... [--rows] [--format=text|json] [--device=NAME] "
    "[--internode=8x200Gb/s]\n"
    "  FILE         a table of measurements, CSV with a header; columns are found by name, extra ones ignored\n"
    "  --rows       one line for each row, with the defaults that it took\n"
    "  --device     in place of the column gpu_type\n"
    "  --internode  in place of the column interconnect: cards x rate, or the rate of a node\n"
    "  --constants_of  kernels, collectives: a device whose fitted constants take the place of the row's own\n"
    "  --host_kernel, --host_collective  time that an eager framework's CPU needs to issue one, e.g. 20 us\n"
    "and for every row, as in a cluster file:\n";

struct Options {
  std::string kind;
  std::vector<std::string> files;
  bool rows = false, json = false;
  RowOverrides overrides;
};

std::string Usage() {
  std::string text = kUsage;
  for (const ClusterKey& key : ClusterKeys()) absl::StrAppend(&text, "  --", key.name, "  ", key.help, "\n");
  return text;
}

absl::Status SetFlag(const std::string& name, const std::string& value, Options* options) {
  if (name == "rows" && value.empty()) {
    options->rows = true;
  } else if (name == "format" && (value == "json" || value == "text")) {
    options->json = value == "json";
  } else if (name == "device" && !value.empty()) {
    options->overrides.device = value;
  } else if (name == "constants_of" && FindDevice(value).ok()) {
    options->overrides.constants_of = value;
  } else if (name == "internode" && !value.empty()) {
    options->overrides.internode = value;
  } else if (name == "host_kernel") {
    MESHWRIGHT_ASSIGN_OR_RETURN(options->overrides.eager.kernel, ParseNanos(value));
  } else if (name == "host_collective") {
    MESHWRIGHT_ASSIGN_OR_RETURN(options->overrides.eager.collective, ParseNanos(value));
  } else {
    for (const ClusterKey& key : ClusterKeys()) {
      if (key.name != name) continue;
      options->overrides.cluster_keys[name] = value;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, value.empty() ? "" : "=", value, ": there is no such flag or value\n", Usage()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (const std::string& argument : arguments) {
    if (absl::StartsWith(argument, "--")) {
      const size_t equals = argument.find('=');
      const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
      MESHWRIGHT_RETURN_IF_ERROR(SetFlag(argument.substr(2, equals - 2), value, &options));
    } else if (options.kind.empty()) {
      options.kind = argument;
    } else {
      options.files.push_back(argument);
    }
  }
  const bool known = options.kind == "training" || options.kind == "kernels" || options.kind == "collectives";
  if (!known || options.files.empty()) return absl::InvalidArgumentError(Usage());
  return options;
}

// Prints the tables one by one, or JSON of all at the end.
template <class Result>
absl::Status Print(const Options& options, absl::StatusOr<Result> (*predict)(const CsvTable&, const RowOverrides&)) {
  std::vector<Result> results;
  for (const std::string& file : options.files) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table, ReadCsv(file));
    MESHWRIGHT_ASSIGN_OR_RETURN(Result result, predict(table, options.overrides));
    if (!options.json) std::cout << ToText(result, options.rows) << std::flush;
    results.push_back(std::move(result));
  }
  if (options.json) std::cout << ToJson(results, options.rows);
  return absl::OkStatus();
}

absl::Status Validate(const std::vector<std::string>& arguments) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Options options, ParseOptions(arguments));
  if (options.kind == "kernels") return Print(options, PriceKernelTable);
  if (options.kind == "collectives") return Print(options, PriceCollectiveTable);
  return Print(options, PredictTrainingTable);
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  const absl::Status status = meshwright::Validate(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "validate: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}
