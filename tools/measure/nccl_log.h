// Logs of nccl-tests: read, and written in the same form, so that one can be laid beside the other.
//
//   # Collective test starting: all_reduce_perf
//   #  Rank  0 Group  0 Pid 1 on here device  0 [0x00] NVIDIA H200
//   #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
//   #wrong
//        1048576        262144     float     sum      -1    25.31   41.43   72.50      0    25.20   41.61   72.82 0
//
// size in bytes as PriceCollective counts it, time in microseconds, bandwidths in GB/s (10^9). The four columns behind
// the times are out of place, then the same in place. `#wrong` may be N/A. Older versions print fewer columns, which
// the line of names tells, scripts put commas between, and launchers write in front of each line: mpirun
// `[1,0]<stdout>:`, SkyPilot and Ray `(head, rank=0, pid=3808)`, srun `0:`. All that is read as well.
//
// Errors: kInvalidArgument with the line. Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_MEASURE_NCCL_LOG_H_
#define MESHWRIGHT_TOOLS_MEASURE_NCCL_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/collective.h"
#include "ir/quantities.h"
#include "tools/measure/experiments.h"

namespace meshwright {

struct NcclLog {
  std::optional<CollectiveKind> collective;  // where the log names it and it is one of ours
  std::string program;                       // as the log names it, without `_perf`: "sendrecv"; "": it does not
  int64_t ranks = 0;                         // that it lists, or numbers where lines were cut out; 0: none
  int64_t nodes = 0;                         // that they are on; 0: it does not say
  std::string device;                        // of the first rank: "NVIDIA H200"
  std::string version;                       // of NCCL, "2.27.3"
  int64_t gpus_per_thread = 1;               // whose kernels one thread starts (-g), as the line of nThread says
  struct Row {
    Bytes size;
    Nanos time;  // out of place
    std::optional<Nanos> in_place;
    std::string dtype;
    double bus_factor = 0;  // of the bus over the algorithm's bandwidth, as printed; 0: neither is
    bool reduces = false;   // redop is not "none", where there is such a column
    bool rooted = false;    // one rank is the root
    int64_t line = 0;       // from 1
  };
  std::vector<Row> rows;
};

// Whether a text is such a log rather than a table with a line of column names.
bool LooksLikeNcclLog(absl::string_view text);

// Every test that the text holds, one behind the other; those without rows left out. At least one.
absl::StatusOr<std::vector<NcclLog>> ParseNcclLogs(absl::string_view text, const std::string& path);

// The only test of a log.
absl::StatusOr<NcclLog> ParseNcclLog(absl::string_view text, const std::string& path);

// The samples of one collective over one group. Our collectives are out of place; both halves say so.
std::string ToNcclLog(CollectiveKind kind, int64_t ranks, absl::Span<const Sample> samples, const std::string& device);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_NCCL_LOG_H_
