// One row of a table of collectives: which call on which machine, how long it took, and its price.
//
// What nccl-tests calls anything is known: its ten programs, sizes as it counts them, its own logs (tools/measure/
// nccl_log.h). Calls that our programs do not have are priced by what NCCL makes of them:
//
//   reduce             as a broadcast: one chain either way (NCCL, src/graph/tuning.cc)
//   gather, scatter    grouped sends and receives; the root moves as much as each rank of an all-to-all
//   sendrecv           each rank sends to the next and receives from the one before it, all at once
//   hypercube          log2(ranks) exchanges, of S/n, 2S/n, ... bytes
//
// A device that shares its switch with more than a machine holds (GB200, GB300: trays of 4 in domains of 72) has nodes
// of domains, however many trays the row counts, unless its `interconnect` says that NVLink does not join them.
//
// `algo` and `proto` are what NCCL was told to use (NCCL_ALGO, NCCL_PROTO). A row that counts as many devices a node as
// its `interconnect` counts cards is of machines with as many devices: one card each.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_COLLECTIVE_ROW_H_
#define MESHWRIGHT_TOOLS_VALIDATE_COLLECTIVE_ROW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "costmodel/collective_cost.h"
#include "ir/cluster.h"
#include "ir/quantities.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"

namespace meshwright {

// As nccl-tests' programs.
enum class NcclCall : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kReduce,
  kGather,
  kScatter,
  kSendRecv,
  kHypercube,
};

// By any of the names in use: "all_reduce", "AllReduce", "ncclAllReduce", "all_reduce_perf", "a2a", "send/recv". An
// error of CannotExpress that lists them.
absl::StatusOr<NcclCall> CallNamed(absl::string_view name);

struct CollectiveRow {
  NcclCall call = NcclCall::kAllReduce;
  Bytes size;
  GroupShape shape;      // nodes are those that NVLink joins
  Cluster cluster;       // whole machines
  NcclPins pins;         // by `algo` and `proto`
  int64_t launches = 1;  // kernels that one thread starts for each call
  double seconds = 0;
  std::string group, label;                           // as PriceRowResult has them
  std::vector<std::string> defaults, approximations;  // the same
};

// Whether the rate that a row's time makes is the one that it prints, within 10 %: else a unit or a count was misread.
// Nothing printed agrees. An error of CannotExpress.
absl::Status CheckAgreement(double by_time, std::optional<double> printed, absl::string_view unit);

// Reads one row of such a table. Errors of CannotExpress, and of damaged cells.
absl::StatusOr<CollectiveRow> ReadCollectiveRow(const CsvCells& cells, const RowOverrides& overrides);

// Its price in seconds, with the corrections that were fitted on `fitted` (costmodel/data_sheet.h). A thread that
// starts the kernels of several devices, one behind the other (nccl-tests' -g), makes calls no faster than it starts
// them: 40 us for eight devices at the 5 us a launch of the library; seven machines of published logs take 27 to 54.
double SecondsOfCollective(const CollectiveRow& row, const Device& fitted);

// Gives a table without a column `collective` the one that its title names, else its file ("all-gather.csv"), and says
// so; neither where these name several, or none.
void NameCollective(CsvTable* table);

// The table that a log of nccl-tests is: a row for each size, out of place and in place.
absl::StatusOr<CsvTable> TableOfNcclLog(absl::string_view text, const std::string& path);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_COLLECTIVE_ROW_H_
