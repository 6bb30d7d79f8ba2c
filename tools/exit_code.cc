#include "tools/exit_code.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace meshwright {
namespace {

constexpr char kPayload[] = "meshwright/exit";

}  // namespace

absl::Status WithExit(ExitCode code, absl::Status status) {
  if (!status.ok()) status.SetPayload(kPayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kDone;
  if (const auto payload = status.GetPayload(kPayload); payload.has_value()) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*payload), &code)) return static_cast<ExitCode>(code);
  }
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kNothingFits;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kBug;
    default:
      return ExitCode::kBadInput;
  }
}

}  // namespace meshwright
