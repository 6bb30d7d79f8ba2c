// What the user says in place of a table's cells, by flags: checked before any row is read, then applied row by row.
//
// Thread safety: plain values; functions may run at the same time.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_OVERRIDES_H_
#define MESHWRIGHT_TOOLS_VALIDATE_OVERRIDES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/cluster.h"
#include "models/decoder.h"
#include "tools/flags.h"
#include "tools/validate/csv.h"

namespace meshwright {

struct RowOverrides {
  std::string device;                               // "": the column gpu_type; a name, or a device's file
  std::string internode;                            // "": the column interconnect; "8x200Gb/s" or "800Gb/s" of a node
  std::string collective;                           // "": the column collective, else the title or the file's name
  int64_t ranks = 0;                                // 0: the column ranks
  std::string constants_of;                         // of kernels and collectives: another device's; "": its own
  std::optional<double> expert_imbalance;           // else the column expert_imbalance
  std::map<std::string, std::string> cluster_keys;  // costmodel/library.h
  std::optional<DecoderConfig> model;               // in place of the cells that tell of it, but for its name
  std::optional<Cluster> cluster;                   // in place of those of devices and of what joins them
  bool float8_parameters = false;                   // where products are in float8; no column tells of it
};

// kInvalidArgument, a usage error that names the flag: a device that nobody knows, a value that no device takes.
absl::StatusOr<RowOverrides> OverridesFrom(const Flags& flags);

// The device of a row. kUnimplemented, "unknown device: ..." or "not given: ...". `memory_gb`: as DeviceNamed has it,
// of the row's own device.
absl::StatusOr<std::string> DeviceOf(const CsvCells& cells, const RowOverrides& overrides, double memory_gb = 0);

// The table with the device of the flag where cells of gpu_type are empty: what is told by a row's device then is, too.
CsvTable WithDevice(CsvTable table, const RowOverrides& overrides);

// kUnimplemented: a value that this row's device does not take, such as a kernel of attention that it lacks.
absl::Status SetClusterKeys(const RowOverrides& overrides, Cluster* cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_OVERRIDES_H_
