#include "executor/cuda/driver.h"

#include "absl/strings/str_cat.h"

namespace meshwright::cuda {

absl::string_view NameOf(CommError error) {
  switch (error) {
    case CommError::kNone:
      return "ncclSuccess";
    case CommError::kUnhandledCuda:
      return "ncclUnhandledCudaError";
    case CommError::kSystem:
      return "ncclSystemError";
    case CommError::kInternal:
      return "ncclInternalError";
    case CommError::kInvalidArgument:
      return "ncclInvalidArgument";
    case CommError::kInvalidUsage:
      return "ncclInvalidUsage";
    case CommError::kRemote:
      return "ncclRemoteError";
    case CommError::kInProgress:
      return "ncclInProgress";
    case CommError::kNumErrors:
      break;
  }
  return "an unknown error of NCCL";
}

absl::Status ToStatus(CommError error, absl::string_view call) {
  if (error == CommError::kNone || error == CommError::kInProgress) return absl::OkStatus();
  const std::string text = absl::StrCat(call, ": ", NameOf(error));
  return error == CommError::kRemote ? absl::UnavailableError(text) : absl::InternalError(text);
}

}  // namespace meshwright::cuda
