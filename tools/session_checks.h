// Whether what a model file and the flags fix fits together and on the devices: what the search, which knows no places,
// could only say without one.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_SESSION_CHECKS_H_
#define MESHWRIGHT_TOOLS_SESSION_CHECKS_H_

#include "absl/status/status.h"
#include "ir/cluster.h"
#include "models/model_file.h"
#include "tools/flags.h"
#include "tools/session.h"

namespace meshwright {

// S1.3: device_num, where the file has it, is the number of devices.
absl::Status CheckDeviceNum(const ModelFile& file, const Cluster& cluster);

// Several nodes have network cards.
absl::Status CheckCards(const ModelFile& file, const Cluster& cluster, const Flags& flags);

// Degrees and groups divide the devices, strategies of single operators fit these (S5.2). kInvalidArgument at the flag
// or in the file.
absl::Status CheckChoices(const Session& session, const Flags& flags);

// Flags act in the modes in which their knobs do (S1.2): E-STATE where a knob is refused. A notice for each flag and
// knob that has no effect: in the mode, in this kind of model, or since what it is a part of is off.
absl::Status CheckKnobs(const Flags& flags, Session& session);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_SESSION_CHECKS_H_
