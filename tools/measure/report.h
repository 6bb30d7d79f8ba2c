// What `measure` writes and prints.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_MEASURE_REPORT_H_
#define MESHWRIGHT_TOOLS_MEASURE_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "tools/measure/experiments.h"
#include "tools/measure/fit.h"
#include "tools/measure/nccl_log.h"

namespace meshwright {

struct MeasuredOn {
  std::string date;     // "2026-11-22 06:10 UTC"
  std::string machine;  // the device and what drives it
  std::string command;
};

// A cluster file (costmodel/library.h) of the fitted constants.
std::string ToClusterFile(const Fit& fit, absl::Span<const Sample> samples, const MeasuredOn& on);

// kind,name,dtype,ranks,bytes,flops,time_ns,spread,runs,price_ns; a line a sample.
std::string ToCsv(const Fit& fit, absl::Span<const Sample> samples);

// A line for each kind of sample: the prices' errors on those that were not fitted, before and after.
std::string ToText(const Fit& fit);

// Measured beside predicted, a line a size.
std::string CompareLog(const NcclLog& log, CollectiveKind kind, int64_t ranks, const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_REPORT_H_
