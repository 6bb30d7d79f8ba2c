// A device priced from its data sheet, with constants that were fitted on another one: what a device costs before
// anybody has measured it, and how far off that is for one that was measured.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_DATA_SHEET_H_
#define MESHWRIGHT_COSTMODEL_DATA_SHEET_H_

#include "costmodel/collective_cost.h"
#include "ir/cluster.h"
#include "ir/collective.h"
#include "ir/quantities.h"

namespace meshwright {

// `device` with the kernel constants of `fitted`. Shares of peak and of memory bandwidth and times stay as they are;
// the rate of operands, `l2_bandwidth`, is in proportion to the peak; float8 products reach the share of 16-bit ones.
// The clock under load and attention stay the device's own.
Device FromDataSheet(const Device& device, const Device& fitted);

// PriceCollective, with NCCL's choice as for `cluster` and the corrections that were fitted on the generation of
// `fitted`; latencies shrink as the clock of vector code grows, which is that of the float32 peak. `pins`: of NCCL's
// choice, where they leave one.
CollectiveCost PriceCollectiveFittedOn(const Device& fitted, CollectiveKind kind, Bytes size, const GroupShape& group,
                                       const Cluster& cluster, const NcclPins& pins = {});

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_DATA_SHEET_H_
