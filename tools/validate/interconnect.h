// What connects the nodes, and what the devices of a node, in the words of a table.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_INTERCONNECT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_INTERCONNECT_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "ir/cluster.h"

namespace meshwright {

// "8x200Gb/s HDR InfiniBand per node", "4 x 100Gb RoCE", "800 Gb/s per node", "4 NICs", "Slingshot": sets network cards
// and their bandwidth; false where the text says neither. "EFA", "A3 Mega", "gIB", "TCP": what their messages take.
bool SetInternode(absl::string_view text, Cluster* cluster);

// "PCIe 4.0 x8", "NVLink bridge", "NVSwitch (DGX-2)", "no NVLS": what joins the devices of a node, of which `ranks`
// take part. What the text does not say stays as it is on the device's usual machine.
void SetIntranode(absl::string_view text, int64_t ranks, Cluster* cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_INTERCONNECT_H_
