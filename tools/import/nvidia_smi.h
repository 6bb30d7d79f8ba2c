// What nvidia-smi prints about a machine, pasted into a file: any of three, in any order.
//
//   nvidia-smi topo -m                                     the matrix: how each two of GPUs and network cards are
//   joined nvidia-smi --query-gpu=name,memory.total,.. --format=csv      a line for each GPU; more than names,
//   `nounits` too, not `noheader` nvidia-smi -L                                          GPU 0: NVIDIA H100 80GB HBM3
//   (UUID: GPU-..)
//
// Of the matrix: the number of GPUs, NVLinks between them (NV4: four between the two), network cards (their
// names by the legend below) and whether one shares a PCIe switch with a GPU (PIX, PXB). Of the table: name,
// memory.total, power.limit beside power.default_limit, pcie.link.gen.max with pcie.link.width.max. Of both lists the
// number of GPUs, which must agree. Lines of other things (prompts, legends) are passed over; a terminal's escapes are
// taken out.
//
// Errors: kInvalidArgument, `file:line:column: found X, wanted Y; remedy`: what does not fit together, GPUs of
// different kinds, a matrix that is cut off.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_NVIDIA_SMI_H_
#define MESHWRIGHT_TOOLS_IMPORT_NVIDIA_SMI_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/import/cluster_facts.h"

namespace meshwright {

// Whether a line begins one of the three.
bool LooksLikeNvidiaSmi(absl::string_view text);

// REQUIRES: LooksLikeNvidiaSmi(text).
absl::StatusOr<ClusterFacts> ReadNvidiaSmi(absl::string_view text, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_NVIDIA_SMI_H_
