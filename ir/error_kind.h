// The kinds of errors of the parallel semantics (S0.3) as absl::Status.
//
//   E-TYPE     kInvalidArgument      a value has the wrong type. Few of these can be written in C++.
//   E-VALUE    kInvalidArgument      right type, but out of range or inconsistent
//   E-KEY      kInvalidArgument      a map lacks a key or has one that it does not know
//   E-LAYOUT   kInvalidArgument      a strategy, or what the ranks ask of each other, does not fit together
//   E-STATE    kFailedPrecondition   called in the wrong order, or where it cannot be
//   E-PLAN     kResourceExhausted    no plan is feasible
//   E-LAUNCH   kUnavailable          the processes of a job did not come together
//
// Several kinds share a code, so the message ends in its kind: "... [E-VALUE]". Other codes mean what they mean
// elsewhere.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_ERROR_KIND_H_
#define MESHWRIGHT_IR_ERROR_KIND_H_

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace meshwright {

template <class... Parts>
absl::Status TypeError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts..., " [E-TYPE]"));
}
template <class... Parts>
absl::Status ValueError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts..., " [E-VALUE]"));
}
template <class... Parts>
absl::Status KeyError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts..., " [E-KEY]"));
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
absl::Status PlanError(const Parts&... parts) {
  return absl::ResourceExhaustedError(absl::StrCat(parts..., " [E-PLAN]"));
}
template <class... Parts>
absl::Status LaunchError(const Parts&... parts) {
  return absl::UnavailableError(absl::StrCat(parts..., " [E-LAUNCH]"));
}

// "E-VALUE" for a message that ends in its kind, else "".
inline absl::string_view KindOf(const absl::Status& status) {
  const absl::string_view message = status.message();
  const size_t open = message.rfind(" [E-");
  if (open == absl::string_view::npos || !absl::EndsWith(message, "]")) return "";
  return message.substr(open + 2, message.size() - open - 3);
}

// The same error, of `kind` unless its message says one already; OK stays OK.
inline absl::Status WithKind(absl::string_view kind, const absl::Status& status) {
  if (status.ok() || !KindOf(status).empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), " [", kind, "]"));
}

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_ERROR_KIND_H_
