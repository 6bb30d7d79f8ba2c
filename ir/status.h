// ir/status.h
//
// Passes an error on to the caller in one line. For functions that return absl::Status or absl::StatusOr<T>.
//
//   absl::StatusOr<Plan> Load(const std::string& path) {
//     MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));  // text, or return of its error
//     MESHWRIGHT_RETURN_IF_ERROR(CheckSize(text));
//     return Parse(text);
//   }
//
// Both evaluate their expression once. Abseil as packaged by Debian 12 has no such macros; these go when it does.
#ifndef MESHWRIGHT_IR_STATUS_H_
#define MESHWRIGHT_IR_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshwright::status_internal {

inline absl::Status ToStatus(absl::Status status) { return status; }

template <class T>
absl::Status ToStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace meshwright::status_internal

// Returns the error from the enclosing function if `expr`, an absl::Status or absl::StatusOr<T>, holds one.
#define MESHWRIGHT_RETURN_IF_ERROR(expr)                                                                           \
  do {                                                                                                             \
    if (absl::Status meshwright_status = ::meshwright::status_internal::ToStatus(expr); !meshwright_status.ok()) { \
      return meshwright_status;                                                                                    \
    }                                                                                                              \
  } while (false)

// Assigns the value of `expr`, an absl::StatusOr<T>, to `lhs`, which may be a declaration; returns the error from the
// enclosing function if there is one. The value is moved, so T may be move-only. Expands to several statements: not for
// the body of an `if` without braces. An `lhs` with a comma outside parentheses (a structured binding, a template with
// two arguments) cannot be written; name the type with `auto` or an alias.
#define MESHWRIGHT_ASSIGN_OR_RETURN(lhs, expr) \
  MESHWRIGHT_ASSIGN_OR_RETURN_IMPL(MESHWRIGHT_STATUS_CONCAT(meshwright_result_, __LINE__), lhs, expr)

#define MESHWRIGHT_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                     \
  if (!result.ok()) return std::move(result).status();      \
  lhs = *std::move(result)

#define MESHWRIGHT_STATUS_CONCAT(a, b) MESHWRIGHT_STATUS_CONCAT_IMPL(a, b)
#define MESHWRIGHT_STATUS_CONCAT_IMPL(a, b) a##b

#endif  // MESHWRIGHT_IR_STATUS_H_
