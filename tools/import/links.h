// What links of a device can carry, by its generation: numbers that no description of a machine holds.
//
// Units: GB/s is 1e9 bytes per second, one direction.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_IMPORT_LINKS_H_
#define MESHWRIGHT_TOOLS_IMPORT_LINKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/cluster.h"
#include "ir/quantities.h"

namespace meshwright {

// Compute capability of a device of the library, 90 for 9.0 (NVIDIA's list of CUDA GPUs); 0 for the host and for
// devices of a file.
int ComputeCapability(absl::string_view device);

// Devices of the library with this capability, the most common first.
std::vector<std::string> DevicesOfCapability(int capability);

// One NVLink: 25 GB/s of V100, Turing, A100, A30 and H100, 50 of B200 and Rubin, 14.0625 of boards with a bridge of
// Ampere's graphics chips (RTX A6000 data sheet: 112.5 GB/s both ways over four links). Nothing where the chip has
// none. A device of a file is taken for the training chip of its generation.
std::optional<BytesPerSecond> NvLinkRate(const Device& device);

// The most NVLinks that the chip has: V100 6, A100 12, H100 and B200 18, Rubin 36. Of a device of a file those of its
// generation.
int64_t MostNvLinks(const Device& device);

// PCIe of generation 1 to 6 with so many lanes, the rate of the lanes less their coding: 15.75 GB/s of 16 lanes in
// generation 3, 31.5 in 4, 63 in 5. Nothing for other generations and numbers of lanes.
std::optional<BytesPerSecond> PcieRate(int64_t generation, int64_t lanes);

// The same of "16.0 GT/s PCIe", as Linux prints the speed of a lane.
std::optional<BytesPerSecond> PcieRateOfSpeed(absl::string_view speed, int64_t lanes);

// PCIe of the cards of a generation, with 16 lanes.
BytesPerSecond UsualPcieRate(Generation generation);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_LINKS_H_
