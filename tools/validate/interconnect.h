// What connects the nodes, in the words of a table.
//
// Thread safety: a pure function.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_INTERCONNECT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_INTERCONNECT_H_

#include "absl/strings/string_view.h"
#include "ir/cluster.h"

namespace meshwright {

// "8x200Gb/s HDR InfiniBand per node", "4 x 100Gb RoCE", "800 Gb/s per node": sets network cards and their bandwidth.
// False where the text says neither.
bool SetInternode(absl::string_view text, Cluster* cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_INTERCONNECT_H_
