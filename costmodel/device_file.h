// Reads a device from its data file (data/*.yaml), and the parts of one that a cluster file may hold.
//
// A file names the device and has the sections chip, memory, peak, kernels, attention, node, price. Each section has a
// `source:`, and `estimated: true` where its numbers were not measured or published; a section without a source is
// refused.
//
// Errors: kInvalidArgument with file, line and column. Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_DEVICE_FILE_H_
#define MESHWRIGHT_COSTMODEL_DEVICE_FILE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/cluster.h"
#include "ir/document.h"

namespace meshwright {

// Before a kernel's name in Provenance::what.
inline constexpr absl::string_view kAttentionProvenance = "attention ";

// One usual machine with the device: Cluster::nodes is 1.
absl::StatusOr<Cluster> ReadDeviceFile(const NodeRef& in);

// Reads the section `kernels` into `device`. Keys that are missing keep their value, so a device that has constants can
// be given measured ones. With `all_required`, a missing one is an error; without it, `peak_TYPE` and
// `attention_CONSTANT`, of the attention that runs, may stand there too.
absl::Status ReadKernels(const NodeRef& in, bool all_required, Device* device);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_DEVICE_FILE_H_
