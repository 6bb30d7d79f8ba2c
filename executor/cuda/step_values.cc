#include "executor/cuda/step_values.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr Bytes kSize = Bytes(StepValues::kMost * static_cast<int64_t>(sizeof(uint64_t)));

}  // namespace

StepValues::~StepValues() {
  if (host_ != nullptr) driver_.FreeHost(host_);
  if (device_ != nullptr) driver_.Free(device_);
}

absl::Status StepValues::Prepare() {
  MESHWRIGHT_ASSIGN_OR_RETURN(host_, driver_.AllocateHost(kSize));
  std::memset(host_, 0, static_cast<size_t>(kSize.raw()));
  MESHWRIGHT_ASSIGN_OR_RETURN(device_, driver_.Allocate(kSize));
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> StepValues::Get(const std::string& name, Value value) {
  const auto [found, added] = places_.emplace(name, values_.size());
  if (added) {
    if (values_.size() == static_cast<size_t>(kMost)) {
      places_.erase(found);
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kMost, " values change from step to step"));
    }
    values_.push_back(std::move(value));
  }
  return device_ + found->second * sizeof(uint64_t);
}

void StepValues::Write(int64_t step) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const uint64_t bits = values_[i](step);
    std::memcpy(host_ + i * sizeof(bits), &bits, sizeof(bits));
  }
}

absl::Status StepValues::Copy(DeviceStream stream) {
  return driver_.Copy(stream, CopyKind::kToDevice, host_, device_, kSize);
}

void StepValues::Forget() {
  places_.clear();
  values_.clear();
}

}  // namespace meshwright::cuda
