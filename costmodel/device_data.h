// The files of costmodel/data, built into the program: a binary needs nothing beside it.
#ifndef MESHWRIGHT_COSTMODEL_DEVICE_DATA_H_
#define MESHWRIGHT_COSTMODEL_DEVICE_DATA_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace meshwright {

struct DeviceData {
  absl::string_view file;  // for messages
  absl::string_view text;
};

// One entry per file, in the order of the BUILD file. Generated.
extern const absl::Span<const DeviceData> kDeviceData;

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_DEVICE_DATA_H_
