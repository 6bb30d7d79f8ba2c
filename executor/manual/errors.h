// The kinds of errors of the seeds (S0.3) as absl::Status.
//
//   E-TYPE     kInvalidArgument      a value has the wrong type. Most of these cannot be written in C++.
//   E-VALUE    kInvalidArgument      right type, but out of range or inconsistent
//   E-LAYOUT   kInvalidArgument      what the ranks ask of each other does not fit together
//   E-STATE    kFailedPrecondition   called in the wrong order, or where it cannot be
//   E-LAUNCH   kUnavailable          the processes of a job did not come together
//
// Three kinds share a code, so the message ends in its kind: "... [E-VALUE]". Other codes mean what they mean in
// executor/host/communicator.h: kDeadlineExceeded, kCancelled, kUnimplemented.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_ERRORS_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace meshwright::manual {

template <class... Parts>
absl::Status TypeError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts..., " [E-TYPE]"));
}
template <class... Parts>
absl::Status ValueError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts..., " [E-VALUE]"));
}
template <class... Parts>
absl::Status LayoutError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts..., " [E-LAYOUT]"));
}
template <class... Parts>
absl::Status StateError(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts..., " [E-STATE]"));
}
template <class... Parts>
absl::Status LaunchError(const Parts&... parts) {
  return absl::UnavailableError(absl::StrCat(parts..., " [E-LAUNCH]"));
}

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_ERRORS_H_
