// The topology that NCCL found on a machine, as XML: what a run writes to the file that NCCL_TOPO_DUMP_FILE names, and
// what clouds ship for NCCL_TOPO_FILE.
//
//   <system version="1">
//     <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" ..>
//       <pci busid="0000:01:00.0" class="0x060400" ..>                           a PCIe switch
//         <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
//           <gpu dev="0" sm="90" ..><nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/></gpu>
//         </pci>
//         <pci busid="0000:03:00.0" class="0x020700" ..><nic><net name="mlx5_0" speed="400000" ../></nic></pci>
//
// What is read: devices (`gpu`; in files of clouds PCI class 0x03), their compute capability and lanes, NVLinks by what
// they end in (class 0x068000 a switch, 0x03 a device, 0x068001 POWER's CPU, which is left out), C2C links (MB/s x
// count), network cards (`net`: Mbit/s; several names joined by + are those cards seen as one, and are taken apart),
// the CPU's maker. A card is near a device where both hang off one PCIe switch.
//
// Files come from strangers: at most kMaxDescriptionBytes, 100,000 elements, 64 of them inside of each other, and
// NCCL's own limits of 640 children and 16 attributes of an element and 255 characters of a value. A DOCTYPE is an
// error, so no entities are defined, and nothing outside of the text is opened.
//
// Errors: kInvalidArgument, `file:line:column: found X, wanted Y; remedy`, the place that of the element's name.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_NCCL_TOPOLOGY_H_
#define MESHWRIGHT_TOOLS_IMPORT_NCCL_TOPOLOGY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/import/cluster_facts.h"

namespace meshwright {

// Whether the text's first element is `system`.
bool LooksLikeNcclTopology(absl::string_view text);

absl::StatusOr<ClusterFacts> ReadNcclTopology(absl::string_view text, absl::string_view file_name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_NCCL_TOPOLOGY_H_
