// Free text that names a device, as tables have it, to a device of the library: "H100 SXM (80GB HBM3)",
// "8x NVIDIA A100-SXM4-40GB", "H100 96GB HBM2e 2.4 TB/s".
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_GPU_TYPE_H_
#define MESHWRIGHT_TOOLS_VALIDATE_GPU_TYPE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace meshwright {

// The name of a device: `text` whole if the library knows it so; else its chip with form, memory and what else tells
// devices of one chip apart, as far as the library knows these. `memory_gb` is that of the table's own column, 0 where
// it is silent. A device's file (costmodel/library.h) is its own name. kUnimplemented, "unknown device: ...": no chip
// that the library knows.
absl::StatusOr<std::string> DeviceNamed(absl::string_view text, double memory_gb = 0);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_GPU_TYPE_H_
