#include "executor/cuda/kernels.h"

#include <algorithm>

#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr Bytes kLeast = MiB(1);

}  // namespace

Scratch::~Scratch() {
  keep_ = false;
  Release();
  for (const auto& [stream, block] : blocks_) driver_.Free(block.data);
}

absl::StatusOr<std::byte*> Scratch::Get(DeviceStream stream, Bytes size) {
  Block& block = blocks_[stream];
  if (block.size < size || block.data == nullptr) {
    const Bytes wanted = std::max({size, block.size * 2, kLeast});
    MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const data, driver_.Allocate(wanted));
    // Work that was queued may still use the old block.
    if (block.data != nullptr) outgrown_.push_back(block.data);
    block = {data, wanted};
    held_ += wanted;
  }
  return block.data;
}

void Scratch::Release() {
  if (keep_) return;
  for (std::byte* data : outgrown_) driver_.Free(data);
  outgrown_.clear();
}

}  // namespace meshwright::cuda
