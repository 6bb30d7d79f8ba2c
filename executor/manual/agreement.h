// Before a collective moves data its members tell each other what they are about to do, so that a mistake of one is the
// same error on all, at once, and never a wait. Inner to this folder.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_AGREEMENT_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/host/communicator.h"

namespace meshwright::manual {

// What each member says, in the order of the group. Every member calls with the operator's name, the result of its own
// checks, and a text. All get: the first error in the order of the group, if there is one; E-STATE when the operators
// differ; else the texts.
absl::StatusOr<std::vector<std::string>> ShareTexts(Endpoint& self, const GroupView& group, absl::string_view op,
                                                    const absl::Status& own_checks, absl::string_view text);

// ShareTexts, and E-VALUE unless all texts are equal: what must be the same on all, such as the tensor's shape.
absl::Status Agree(Endpoint& self, const GroupView& group, absl::string_view op, const absl::Status& own_checks,
                   absl::string_view text);

// A message that a member will send, or waits for, in an exchange. `what` must be the same at both ends.
struct Transfer {
  int64_t peer;
  std::string what;
};

// ShareTexts, and E-LAYOUT unless for every pair of members the transfers of one end are those of the other, in order.
absl::Status AgreeOnExchange(Endpoint& self, const GroupView& group, absl::string_view op,
                             const absl::Status& own_checks, const std::vector<Transfer>& sends,
                             const std::vector<Transfer>& receives);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_AGREEMENT_H_
