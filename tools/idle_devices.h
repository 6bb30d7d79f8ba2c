// Devices that a plan leaves idle, where fewer of them are faster.
//
// A count of devices that is no power of two has an odd factor, which some degree has to have: that of data parallelism
// where the batch has it, too, else that of the pipeline or of nothing. And where the devices of a node are no power of
// two, groups of ranks lie across nodes. 64 of a rack of 72, or 8 of 9 nodes, have neither.
//
// Thread safety: pure functions, but of the session that is given to be changed.
#ifndef MESHWRIGHT_TOOLS_IDLE_DEVICES_H_
#define MESHWRIGHT_TOOLS_IDLE_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/cluster.h"
#include "planner/search/search.h"
#include "tools/export/writers.h"
#include "tools/flags.h"
#include "tools/session.h"

namespace meshwright {

// The parts of a cluster that may be faster than all of it, at most two, each more than three quarters. Where `batch`
// (rows of a step) is no multiple of all devices: the most nodes of whose devices it is one, or else, where the odd
// factor of all devices does not divide it, the most nodes whose does. Where the devices of a node are no power of two:
// the largest power of two of each, of as many nodes by the same rule, or else of all.
std::vector<Cluster> PartsWithIdleDevices(const Cluster& cluster, int64_t batch);

// --idle_devices.
FlagSpec IdleDevicesFlag();

// SearchFor (tools/export/trainer_prediction.h) of the session, and of its model on parts of its cluster, in the form
// that `flags` gave it. Where one of these is faster, the session becomes that of the part and says how many devices
// are idle, and the result's warnings what all of them would take. All devices are used where the user says so or gave
// their number in the file or a file of strategies, and of models without repeated layers. Counts of what was searched
// are those of all searches together. Errors: those of SearchFor of all devices, where no part has a plan either.
absl::StatusOr<SearchResult> SearchForDevices(const Trainer* trainer, const Flags& flags, const SearchOptions& options,
                                              Session& session);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IDLE_DEVICES_H_
